/* Convolution in integers: each code of the image and of the weights is brought into the form that
 * products want once, in the first phase; products read the image tap by tap where it lies.
 *
 * It takes codes of 8 bits with one scale and one zero point for the image, and one for each
 * column of the weights. Where values that only the work sees do not suit integers, it goes by
 * panels of floats. */
#include "backend_xsmm/drivers/taps.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "backend_xsmm/drivers/chain_walk.h"
#include "backend_xsmm/drivers/matmul.h"

enum {
    ADDRESSES = TAPS_ROWS + TAPS_GRAIN, /* of a piece */
    STAGED = 32,                        /* rows that become bytes by way of floats at a time */
    MOST_BYTES = 1 << 30                /* of memory that threads share */
};

const taps_table_t *taps_table(features_t features)
{
#if defined(__x86_64__)
    if (has_features(features, NEEDS_AVX512_VNNI)) {
        return &taps_table_avx512_vnni;
    }
    if (has_features(features, NEEDS_AVX2_VNNI)) {
        return &taps_table_avx2_vnni;
    }
    if (has_features(features, NEEDS_AVX2)) {
        return &taps_table_avx2;
    }
#endif
    (void)features;
    return NULL;
}

/* ---- selection ------------------------------------------------------------------------------- */

bool taps_in_words(const problem_t *p, bool sums_bytes)
{
    const operand_t *b = &p->step->p.matmul.b;
    return !sums_bytes || b->zp >= 0 || problem_type(p, b->data) == sinter_u8;
}

/* ---- geometry -------------------------------------------------------------------------------- */

static int64_t parts_of(int64_t n, int64_t most)
{
    return (n + most - 1) / most;
}

static void bind_pieces(const patches_t *p, taps_state_t *st)
{
    st->tap = parts_of(p->channels, st->each);
    st->parts = parts_of(st->tap, TAPS_DWORDS);
    st->part = parts_of(st->tap, st->parts);
    st->pieces = p->taps * st->parts;
    const int64_t most = at_least(at_most(TAPS_DWORDS / st->part, TAPS_PIECES), 1);
    st->per_block = parts_of(st->pieces, parts_of(st->pieces, most));
    st->blocks = parts_of(st->pieces, st->per_block);
}

static const char *bind_image(const matmul_state_t *all, taps_state_t *st)
{
    const matrices_t *a = &all->a;
    st->pixels = 1;
    for (int d = a->ndims - 1; d >= 0; d--) {
        const bool channel = d == all->patches.channel;
        st->apart[d] = channel ? 0 : st->pixels;
        if (!channel && !mul_i64(st->pixels, a->dims[d], &st->pixels)) {
            return "the image is too large";
        }
    }
    return mul_i64(a->dims[all->patches.channel], st->wide, &st->pixel) ? NULL
                                                                        : "the image is too large";
}

/* All that threads share, in bytes; false: it is too much. */
static bool has_room(const matmul_config_t *c, const matmul_state_t *all)
{
    const taps_state_t *st = &all->taps;
    int64_t image, b, sums;
    return mul_i64(st->pixels, st->pixel, &image) && image <= MOST_BYTES &&
           mul_i64(all->mats, st->columns, &b) && mul_i64(b, st->blocks, &sums) &&
           mul_i64(b, all->patches.taps, &b) && mul_i64(b, 4 * st->tap, &b) && b <= MOST_BYTES &&
           sums <= MOST_BYTES && c->taps != NULL;
}

void taps_bind(const matmul_config_t *c, matmul_state_t *all)
{
    const groups_t *a = &all->a.base.codes, *b = &all->b.base.codes;
    taps_state_t *st = &all->taps;
    *st = (taps_state_t){0};
    if (c->taps == NULL || !all->patches.on || all->blocks.block == 0 || all->rows < 1) {
        return;
    }
    if (a->type->bits != 8 || b->type->cls != DTYPE_INT) {
        st->why = "codes of the image have less than 8 bits, or those of the weights are floats";
        return;
    }
    st->wide = c->taps_words ? 2 : 1;
    st->each = 4 / st->wide;
    st->flip_a = (a->dtype == sinter_u8) == c->taps_words ? 128 : 0;
    st->flip_w = b->dtype == sinter_u8 ? 128 : 0;
    st->bias = c->taps_words || a->dtype == sinter_u8 ? 0 : 128;
    bind_pieces(&all->patches, st);
    if (all->panel % c->taps->strip != 0 && all->n_panels > 1) {
        st->why = "panels are narrower than strips";
        return;
    }
    st->units = parts_of(all->N, c->taps->codes);
    st->columns = st->units * c->taps->codes;
    const int64_t times = parts_of(at_most(all->rows, all->block), TAPS_ROWS),
                  rows = parts_of(at_most(all->rows, all->block), times);
    st->rows =
        all->tail.rows > 1 ? TAPS_ROWS : (int)at_most(parts_of(rows, TAPS_GRAIN) * TAPS_GRAIN, 60);
    st->why = bind_image(all, st);
    if (st->why == NULL && !has_room(c, all)) {
        st->why = "the image or the weights are too large";
    }
    st->on = st->why == NULL;
    st->codes = chain_stores_codes(&all->post);
}

size_t taps_share(const matmul_config_t *c, const matmul_state_t *all, unsigned char *base,
                  taps_shared_t *out)
{
    const taps_state_t *st = &all->taps;
    const size_t mats = (size_t)all->mats, columns = mats * (size_t)st->columns;
    size_t at = 0;
    out->padding = carve(base, &at, (size_t)st->pixel + 4, 1);
    out->image = carve(base, &at, (size_t)(st->pixels * st->pixel) + 4, 1);
    out->b = carve(base, &at, columns * (size_t)(st->tap * all->patches.taps), 4);
    out->sum = carve(base, &at, c->taps_words ? 0 : columns * (size_t)st->blocks, sizeof(int32_t));
    out->usable = carve(base, &at, mats * (size_t)st->units, sizeof(bool));
    return at;
}

void taps_buffers(unsigned char *base, size_t *at, taps_buffers_t *out)
{
    out->at = carve(base, at, TAPS_PIECES * ADDRESSES, sizeof(uint8_t *));
    out->pixel = carve(base, at, TAPS_ROWS, sizeof(int64_t));
    out->scale = carve(base, at, MM_PANEL, sizeof(float));
}

/* ---- A --------------------------------------------------------------------------------------- */

/* The scale and the zero point of the image. False: they are not for integers, or no byte can
 * stand for the padding. */
static bool read_image(const matmul_task_t *t, float *scale, float *zp)
{
    const matrix_t *a = &t->st->a.base;
    const groups_t *of[2] = {&a->scale, &a->zp};
    const taps_state_t *st = &t->st->taps;
    float value[2] = {1, 0};
    for (int i = 0; i < 2; i++) {
        if (of[i]->type != NULL) {
            of[i]->type->codec.load_f32(of[i]->data, of[i]->first, 0, 1, &value[i]);
        }
    }
    *scale = value[0];
    *zp = value[1];
    const float byte = *zp + st->bias;
    return matmul_scale_fits(*scale) && fabsf(*zp) <= MATMUL_ZP_MOST &&
           (st->wide == 2 || (byte >= 0 && byte <= 255));
}

/* Codes of some rows and columns as bytes, by way of floats. */
static void stage(const matmul_task_t *t, const matrix_t *codes, rect_t at, unsigned char *to,
                  int64_t ld)
{
    t->c->tile->load(codes, at, t->buf.b, MM_LDB, at.rows, at.columns);
    for (int r = 0; r < at.rows; r++) {
        for (int i = 0; i < at.columns; i++) {
            to[r * ld + i] = (unsigned char)(int)t->buf.b[r * MM_LDB + i];
        }
    }
}

/* n pixels that follow each other along the last spatial dim, the first one at `first`. */
static void encode_line(const matmul_task_t *t, int64_t first, int64_t n, int32_t zp, uint8_t *to)
{
    const taps_state_t *st = &t->st->taps;
    const patches_t *p = &t->st->patches;
    const matrices_t *image = &t->st->a;
    const bool words = st->wide == 2;
    const int64_t channels = image->dims[p->channel],
                  step = image->axis[p->first + p->n - 1][IN_CODES].stride,
                  along = image->axis[p->channel][IN_CODES].stride;
    matrix_t line = matrix_of_codes(&image->base);
    line.codes.first = first;
    line.codes.row = (axis_t){step, 1};
    line.codes.column = (axis_t){along, 1};
    if (along == 1 || channels == 1) {
        const bool dense = step == channels;
        for (int64_t i = 0; i < (dense ? 1 : n); i++) {
            t->c->taps->encode(words, line.codes.data + first + i * step,
                               dense ? n * channels : channels, st->flip_a, zp, to + i * st->pixel);
        }
        return;
    }
    for (int64_t i = 0; i < n; i += STAGED) {
        for (int64_t c = 0; c < channels; c += MM_K) {
            unsigned char codes[STAGED * MM_K];
            const rect_t at = {i, (int)at_most(n - i, STAGED), c, (int)at_most(channels - c, MM_K)};
            stage(t, &line, at, codes, MM_K);
            for (int r = 0; r < at.rows; r++) {
                t->c->taps->encode(words, codes + r * MM_K, at.columns, st->flip_a, zp,
                                   to + (i + r) * st->pixel + c * st->wide);
            }
        }
    }
}

/* This thread's part of the image. */
static void encode_image(const matmul_task_t *t, float zp, int tid, int nth)
{
    const taps_state_t *st = &t->st->taps;
    const patches_t *p = &t->st->patches;
    const matrices_t *image = &t->st->a;
    const int last = p->first + p->n - 1;
    const int32_t less = (int32_t)zp - (st->wide == 2 && st->flip_a != 0 ? 128 : 0);
    int64_t begin, end;
    share(st->pixels, tid, nth, &begin, &end);
    for (int64_t i = begin, n; i < end; i += n) {
        int64_t first = image->base.codes.first;
        for (int d = 0; d < image->ndims; d++) {
            first += d == p->channel
                         ? 0
                         : i / st->apart[d] % image->dims[d] * image->axis[d][IN_CODES].stride;
        }
        n = at_most(image->dims[last] - i % image->dims[last], end - i);
        encode_line(t, first, n, less, t->buf.taps_shared.image + i * st->pixel);
    }
    if (tid == 0) {
        memset(t->buf.taps_shared.padding, st->wide == 2 ? 0 : (int)(zp + st->bias),
               (size_t)st->pixel + 4);
    }
}

/* ---- B --------------------------------------------------------------------------------------- */

/* A piece of K, and the dword of K that it begins with. */
typedef struct piece {
    int64_t tap, channel, dword;
    int channels, dwords;
} piece_t;

static piece_t piece_of(const matmul_state_t *all, int64_t i)
{
    const taps_state_t *st = &all->taps;
    const int64_t part = i % st->parts * st->part, tap = i / st->parts,
                  dwords = at_most(st->part, st->tap - part), channel = part * st->each;
    return (piece_t){.tap = tap,
                     .channel = channel,
                     .dword = tap * st->tap + part,
                     .channels = (int)at_most(dwords * st->each, all->patches.channels - channel),
                     .dwords = (int)dwords};
}

/* Coefficients of n <= BLOCKS_STRIP columns of the task's group, zeros without any. */
static void load_columns(const matmul_task_t *t, const groups_t *of, int64_t column, int n,
                         float *to)
{
    memset(to, 0, BLOCKS_STRIP * sizeof *to);
    if (of->type != NULL) {
        matmul_load_coefs(t, of, &(matmul_places_t){0, 1, 1}, &(matmul_places_t){column, n, 1}, to,
                          BLOCKS_STRIP);
    }
}

static void pack_piece(const matmul_task_t *t, const piece_t *piece, int64_t column,
                       taps_codes_t *codes, int8_t *to, int32_t *sum)
{
    const taps_state_t *st = &t->st->taps;
    const matrix_t w = patches_weights(t->st, t->mat, piece->tap), m = matrix_of_codes(&w);
    const int64_t apart = st->tap * t->st->patches.taps * 4 * t->c->taps->strip;
    if (m.codes.type->bits == 8 && m.codes.column.stride == 1) {
        codes->data = m.codes.data + codes_at(&m.codes, piece->channel, column);
        codes->stride = m.codes.row.stride;
        codes->rows = piece->channels;
        t->c->taps->pack(st->wide == 2, codes, to, apart, sum);
        return;
    }
    for (int k = 0; k < piece->channels; k += STAGED) {
        unsigned char staged[STAGED * TAPS_CODES];
        codes->data = staged;
        codes->stride = TAPS_CODES;
        codes->rows = (int)at_most(piece->channels - k, STAGED);
        stage(t, &m, (rect_t){piece->channel + k, codes->rows, column, codes->columns}, staged,
              TAPS_CODES);
        t->c->taps->pack(st->wide == 2, codes, to + k / st->each * 4 * t->c->taps->strip, apart,
                         sum);
    }
}

/* All of K of one unit of columns of the task's group. */
static bool pack_unit(const matmul_task_t *t, int64_t unit)
{
    const taps_state_t *st = &t->st->taps;
    const taps_shared_t *shared = &t->buf.taps_shared;
    const int64_t column = unit * t->c->taps->codes, all = st->tap * t->st->patches.taps;
    const int n = (int)at_most(t->st->N - column, t->c->taps->codes), strip = 4 * t->c->taps->strip;
    const matrix_t w = patches_weights(t->st, t->mat, 0);
    float zp[BLOCKS_STRIP];
    int32_t less[BLOCKS_STRIP];
    load_columns(t, &w.zp, column, n, zp);
    for (int i = 0; i < BLOCKS_STRIP; i++) {
        less[i] = fabsf(zp[i]) <= MATMUL_ZP_MOST ? (int32_t)zp[i] - (st->flip_w != 0 ? 128 : 0) : 0;
    }
    taps_codes_t codes = {
        .columns = n, .flip = st->flip_w, .zp = w.zp.type != NULL || st->flip_w != 0 ? less : NULL};
    int8_t *to = shared->b + ((t->mat * st->units + unit) * 2 * all) * strip;
    for (int64_t i = 0; i < st->pieces; i++) {
        const piece_t piece = piece_of(t->st, i);
        int32_t *sum =
            shared->sum + (t->mat * st->blocks + i / st->per_block) * st->columns + column;
        if (st->wide == 1 && i % st->per_block == 0) {
            memset(sum, 0, (size_t)t->c->taps->codes * sizeof *sum);
        }
        pack_piece(t, &piece, column, &codes, to + piece.dword * strip, sum);
    }
    return matmul_within(zp, n, MATMUL_ZP_MOST);
}

static void pack_weights(matmul_task_t *t, int tid, int nth)
{
    const taps_state_t *st = &t->st->taps;
    int64_t begin, end;
    share(t->st->mats * st->units, tid, nth, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        t->mat = i / st->units;
        t->buf.taps_shared.usable[i] = pack_unit(t, i % st->units);
    }
}

/* ---- the product ----------------------------------------------------------------------------- */

/* Where the rows of a piece find their channels. */
static void find_rows(matmul_task_t *t, const piece_t *piece, bool same_tap, const uint8_t **to)
{
    const taps_state_t *st = &t->st->taps;
    const int64_t channel = (t->mat * t->st->patches.channels + piece->channel) * st->wide;
    const uint8_t *image = t->buf.taps_shared.image + channel;
    if (!same_tap) {
        patches_find(t, piece->tap, st->apart, t->buf.taps.pixel);
    }
    for (int r = 0; r < t->rows; r++) {
        const int64_t pixel = t->buf.taps.pixel[r];
        to[r] = pixel < 0 ? t->buf.taps_shared.padding : image + pixel * st->pixel;
    }
    for (int r = t->rows; r < (t->rows + TAPS_GRAIN - 1) / TAPS_GRAIN * TAPS_GRAIN; r++) {
        to[r] = t->buf.taps_shared.padding;
    }
}

/* All rows and columns of the task. */
static void multiply(matmul_task_t *t, float scale, float zp)
{
    const taps_state_t *st = &t->st->taps;
    const taps_shared_t *shared = &t->buf.taps_shared;
    const int strip = t->c->taps->strip;
    const int64_t apart = st->tap * t->st->patches.taps * 4 * strip;
    int dwords[TAPS_PIECES];
    taps_product_t p = {.rows = t->rows,
                        .columns = t->cols,
                        .words = st->wide == 2,
                        .a = t->buf.taps.at,
                        .dwords = dwords,
                        .apart = apart,
                        .times = -(int32_t)(zp + st->bias),
                        .scale_a = scale,
                        .scale = t->buf.taps.scale,
                        .c = t->buf.acc,
                        .ldc = MM_PANEL};
    const int8_t *b = shared->b + (t->mat * 2 * st->units + t->n0 / strip) * apart;
    for (int64_t i = 0; i < st->blocks; i++) {
        const int64_t first = i * st->per_block;
        int64_t tap = -1;
        p.pieces = (int)at_most(st->pieces - first, st->per_block);
        p.b = b + piece_of(t->st, first).dword * 4 * strip;
        p.sum = shared->sum + (t->mat * st->blocks + i) * st->columns + t->n0;
        p.add = i > 0;
        for (int k = 0; k < p.pieces; k++) {
            const piece_t piece = piece_of(t->st, first + k);
            find_rows(t, &piece, piece.tap == tap, t->buf.taps.at + k * ADDRESSES);
            tap = piece.tap;
            dwords[k] = piece.dwords;
        }
        t->c->taps->product(&p);
    }
}

/* Whether the columns of the task are for integers; loads their scales. */
static bool load_scales(const matmul_task_t *t)
{
    const taps_state_t *st = &t->st->taps;
    const int codes = t->c->taps->codes;
    bool fits = true;
    memset(t->buf.taps.scale, 0, MM_PANEL * sizeof(float));
    for (int c = 0; c < t->cols; c += BLOCKS_STRIP) {
        const int n = (int)at_most(t->cols - c, BLOCKS_STRIP);
        load_columns(t, &t->b.scale, t->n0 + c, n, t->buf.taps.scale + c);
        fits = fits && matmul_within(t->buf.taps.scale + c, n, FLT_MAX);
    }
    for (int64_t c = t->n0 / codes; c * codes < t->n0 + t->cols; c++) {
        fits = fits && t->buf.taps_shared.usable[t->mat * st->units + c];
    }
    return fits;
}

/* As matmul_finish, where the chain is no more than the micro-kernel does. */
static void finish_codes(matmul_task_t *t)
{
    const matmul_state_t *st = t->st;
    t->idx[st->nb + 1] = t->n0 + t->mat * st->N;
    for (int r = 0; r < t->rows; r++) {
        matmul_seek_row(t, r);
        const chain_codes_run_t run = chain_codes_run(&st->post, t->idx, t->cols, t->buf.chain);
        const taps_codes_of_t how = {run.bias, run.relu, run.is_signed, run.scale, run.zp};
        t->c->taps->store(&how, t->buf.acc + (size_t)r * MM_PANEL, t->cols, run.to);
    }
}

/* The task's rows, some at a time. */
static void multiply_rows(matmul_task_t *t, bool fits, float scale, float zp)
{
    const int64_t row0 = t->row0, end = row0 + t->rows;
    for (int64_t r = row0; r < end; r += t->st->taps.rows) {
        matmul_seek_rows(t, t->mat, r, (int)at_most(end - r, t->st->taps.rows));
        if (fits) {
            multiply(t, scale, zp);
        } else {
            matmul_floats(t);
        }
        if (t->st->taps.codes && !t->tail) {
            finish_codes(t);
        } else {
            matmul_finish(t);
        }
    }
}

void taps_work(matmul_task_t *t)
{
    const matmul_state_t *st = t->st;
    const worker_t *w = t->worker;
    float scale, zp;
    const bool fits = read_image(t, &scale, &zp);
    taps_share(t->c, st, w->shared, &t->buf.taps_shared);
    if (w->phase == 0) {
        encode_image(t, fits ? zp : 0, w->tid, w->nth);
        pack_weights(t, w->tid, w->nth);
        return;
    }
    int64_t begin, end;
    share(st->items, st->serial ? 0 : w->tid, st->serial ? 1 : w->nth, &begin, &end);
    for (int64_t i = begin; i < end && (!st->serial || w->tid == 0); i++) {
        matmul_seek(t, i);
        const bool all = load_scales(t) && fits;
        if (!all) {
            report_detour(w, "some by floats (scales or zero points do not suit integers)");
        }
        multiply_rows(t, all, scale, zp);
    }
}
