/* Convolution in integers: the image as rows of A.
 *
 * In the first phase, codes become the bytes that products want, with channels last and with all
 * places around the image that a window meets, which have the byte of the zero point. Then
 * element k of a row lies at an address that is the row's plus that of k alone:
 *
 *   place(result, tap) = result * times + tap * step + base - least, by spatial dim
 *
 * Places of a transposed convolution between two elements are as those around the image. So rows of
 * A are copies of few runs of bytes; a run is the channels of a tap, or of several taps that follow
 * one another. */
#include <string.h>

#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/drivers/matmul/matmul.h"

enum {
    STAGED = 32,         /* places that become bytes by way of floats at a time */
    MOST_BYTES = 1 << 30 /* of the places */
};

/* ---- geometry -------------------------------------------------------------------------------- */

bool image_bind(const matmul_config_t *c, const matmul_state_t *all, blocks_state_t *st)
{
    const patches_t *p = &all->patches;
    blocks_image_t *image = &st->image;
    const int64_t channels = all->a.dims[p->channel];
    int64_t bytes = channels;
    bool fits = true;
    image->flip = (st->a_bias == 0) == c->words ? 128 : 0;
    for (int i = p->n - 1; i >= 0; i--) {
        const patch_dim_t *d = &p->dim[i];
        const int64_t taps = (d->kernel - 1) * d->step,
                      results = (all->row_extent[1 + i] - 1) * d->times;
        image->least[i] = d->base + at_most(taps, 0);
        image->places[i] = results + (taps < 0 ? -taps : taps) + 1;
        image->apart[1 + i] = bytes;
        fits = fits && mul_i64(bytes, image->places[i], &bytes) && bytes <= MOST_BYTES;
    }
    image->apart[0] = bytes;
    fits = fits && mul_i64(bytes, all->row_extent[0], &bytes) && bytes <= MOST_BYTES;
    image->bytes = bytes;
    image->run = p->dim[p->n - 1].step == 1 && channels == p->channels
                     ? channels * p->kernel[p->n - 1]
                     : p->channels;
    image->on = fits;
    return fits;
}

/* ---- the first phase ------------------------------------------------------------------------- */

bool image_coefs(const matmul_task_t *t, float *scale, float *zp)
{
    const groups_t *of[2] = {&t->st->a.base.scale, &t->st->a.base.zp};
    const blocks_state_t *st = &t->st->blocks;
    float value[2] = {1, 0};
    for (int i = 0; i < 2; i++) {
        if (of[i]->type != NULL) {
            of[i]->type->codec.load_f32(of[i]->data, of[i]->first, 0, 1, &value[i]);
        }
    }
    *scale = value[0] / st->a_steps;
    *zp = value[1] * st->a_steps;
    const float byte = *zp + st->a_bias;
    return matmul_scale_fits(*scale) && byte >= 0 && byte <= 255;
}

static void flip_bytes(const unsigned char *from, int64_t n, uint8_t flip, uint8_t *to)
{
    if (flip == 0) {
        memcpy(to, from, (size_t)n);
    }
    for (int64_t i = 0; i < n && flip != 0; i++) {
        to[i] = from[i] ^ flip;
    }
}

/* n elements that follow one another along the last spatial dim, the first one at `first`; places
 * are `apart` bytes apart. */
static void place_elements(const matmul_task_t *t, int64_t first, int64_t n, int64_t apart,
                           uint8_t *to)
{
    const patches_t *p = &t->st->patches;
    const matrices_t *a = &t->st->a;
    const blocks_state_t *st = &t->st->blocks;
    const int64_t channels = a->dims[p->channel],
                  step = a->axis[p->first + p->n - 1][IN_CODES].stride,
                  along = a->axis[p->channel][IN_CODES].stride;
    matrix_t line = matrix_of_codes(&a->base);
    line.codes.first = first;
    line.codes.row = (axis_t){step, 1};
    line.codes.column = (axis_t){along, 1};
    if (a->base.codes.type->bits == 8 && (along == 1 || channels == 1)) {
        const bool dense = step == channels && apart == channels;
        for (int64_t i = 0; i < (dense ? 1 : n); i++) {
            flip_bytes(line.codes.data + first + i * step, dense ? n * channels : channels,
                       st->image.flip, to + i * apart);
        }
        return;
    }
    for (int64_t i = 0; i < n; i += STAGED) {
        for (int64_t c = 0; c < channels; c += MM_K) {
            const rect_t at = {i, (int)at_most(n - i, STAGED), c, (int)at_most(channels - c, MM_K)};
            float x[STAGED * MM_K];
            t->c->tile->load(&line, at, x, MM_K, at.rows, at.columns);
            for (int r = 0; r < at.rows; r++) {
                for (int k = 0; k < at.columns; k++) {
                    to[(i + r) * apart + c + k] =
                        (uint8_t)((int)(x[r * MM_K + k] * st->a_steps) ^ st->image.flip);
                }
            }
        }
    }
}

void image_make(const matmul_task_t *t, int tid, int nth)
{
    const patches_t *p = &t->st->patches;
    const matrices_t *a = &t->st->a;
    const blocks_image_t *image = &t->st->blocks.image;
    const int last = p->n - 1;
    const patch_dim_t *along = &p->dim[last];
    const int64_t apart = image->apart[1 + last],
                  lines = image->bytes / (image->places[last] * apart);
    float scale, zp;
    int64_t begin, end;
    if (!image_coefs(t, &scale, &zp)) {
        return;
    }
    /* Elements x of a line lie at places x * over - least. */
    const int64_t first = at_least((image->least[last] + along->over - 1) / along->over, 0),
                  most = image->places[last] - 1 + image->least[last],
                  n = most < 0 ? 0 : at_most(most / along->over + 1, along->in) - first;
    share(lines, tid, nth, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        uint8_t *to = t->buf.whole.image + i * image->places[last] * apart;
        int64_t at = a->base.codes.first + first * a->axis[p->first + last][IN_CODES].stride,
                left = i;
        bool inside = n > 0;
        for (int d = last - 1; d >= 0; d--) {
            const int64_t place = left % image->places[d] + image->least[d];
            inside = inside && place >= 0 && place % p->dim[d].over == 0 &&
                     place / p->dim[d].over < p->dim[d].in;
            at += place / p->dim[d].over * a->axis[p->first + d][IN_CODES].stride;
            left /= image->places[d];
        }
        at += left * a->axis[0][IN_CODES].stride;
        if (!inside || n < image->places[last]) {
            memset(to, (uint8_t)((int)zp ^ image->flip), (size_t)(image->places[last] * apart));
        }
        if (inside) {
            place_elements(t, at, n, along->over * apart,
                           to + (first * along->over - image->least[last]) * apart);
        }
    }
}

/* ---- rows of A ------------------------------------------------------------------------------- */

void image_gather(matmul_task_t *t, int64_t k, int kn, const limb_rows_t *to)
{
    const patches_t *p = &t->st->patches;
    const blocks_state_t *st = &t->st->blocks;
    const blocks_image_t *image = &st->image;
    const uint8_t *from[MM_HEIGHT];
    int64_t run[BLOCKS_LONG], tap[SINTER_MAX_NDIMS];
    int length[BLOCKS_LONG], runs = 0;
    float scale, zp;
    image_coefs(t, &scale, &zp);
    for (int r = 0, rows; r < t->rows; r += rows) {
        rows = (int)at_most(matmul_seek_row(t, r), t->rows - r);
        const uint8_t *at = t->buf.whole.image + t->idx[0] * image->apart[0] + t->mat * p->channels;
        for (int i = 0; i < p->n; i++) {
            at += t->idx[1 + i] * p->dim[i].times * image->apart[1 + i];
        }
        for (int i = 0; i < rows; i++) {
            from[r + i] = at + i * p->dim[p->n - 1].times * image->apart[p->n];
        }
    }
    for (int64_t at = k; at < k + kn; at += length[runs++]) {
        walk_seek(p->n, p->kernel, at / p->channels, tap);
        run[runs] = at % p->channels;
        for (int i = 0; i < p->n; i++) {
            run[runs] +=
                (tap[i] * p->dim[i].step + p->dim[i].base - image->least[i]) * image->apart[1 + i];
        }
        length[runs] = (int)at_most(image->run - at % image->run, k + kn - at);
    }
    to->scale[0] = scale;
    for (int r = 0; r < t->rows && !st->long_rows; r++) {
        for (int i = 0; i < kn; i += st->block) {
            to->scale[r * BLOCKS_MOST + i / st->block] = scale;
        }
    }
    t->c->blocks->gather(&(blocks_gather_t){.from = from,
                                            .rows = t->rows,
                                            .run = run,
                                            .length = length,
                                            .runs = runs,
                                            .n = kn,
                                            .block = st->block,
                                            .apart = blocks_row(st),
                                            .words = st->words,
                                            .order = st->order,
                                            .zero = (uint8_t)((int)zp ^ image->flip),
                                            .sums = st->shifted},
                         to);
}
