/* Convolution in integers: each code of the image and of the weights is brought into the form that
 * products want once, in the first phase; products read the image tap by tap where it lies.
 *
 * It takes codes of 8 bits with one scale and one zero point for the image, and one for each
 * column of the weights. Where values that only the work sees do not suit integers, it goes by
 * panels of floats. */
#include "backend_xsmm/drivers/matmul/taps.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/drivers/matmul/matmul.h"

enum {
    ADDRESSES = TAPS_ROWS + TAPS_GRAIN, /* of a piece */
    STAGED = 32,                        /* rows that become bytes by way of floats at a time */
    MOST_BYTES = 1 << 30                /* of memory that threads share */
};

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

/* What products of the weights have to do with: words, or bytes. */
static void bind_weights(const taps_table_t *table, bool words, matmul_state_t *all)
{
    taps_state_t *st = &all->taps;
    st->wide = words ? 2 : 1;
    st->each = 4 / st->wide;
    st->flip_w = all->b.base.codes.dtype == sinter_u8 ? 128 : 0;
    bind_pieces(&all->patches, st);
    st->units = parts_of(all->N, table->codes);
    st->columns = st->units * table->codes;
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

/* Tiles that are as even as possible for the shares. What a share has to do grows by reading A for
 * each panel, and B for each block; costs are in products, by element of a row or a column. */
static void choose_tiles(const matmul_config_t *c, int shares, matmul_state_t *all)
{
    enum { MORE_BLOCKS = 4 };
    const double of_a = 8, of_b = 4;
    double least = 0;
    for (int panel = MM_PANEL; panel >= c->taps->codes; panel /= 2) {
        const int64_t panels = parts_of(all->N, panel);
        for (int64_t n = 1; n <= (int64_t)shares * MORE_BLOCKS; n++) {
            const int64_t block = parts_of(parts_of(all->rows, n), TAPS_GRAIN) * TAPS_GRAIN,
                          blocks = parts_of(all->rows, block),
                          items = parts_of(all->mats * panels * blocks, shares);
            const double rows = (double)at_most(block, all->rows),
                         columns = (double)at_most(panel, all->N),
                         cost = (double)items * rows * columns * (1 + of_b / rows + of_a / columns);
            if (block <= INT32_MAX / 2 && (least == 0 || cost < least)) {
                least = cost;
                all->panel = panel;
                all->block = (int)block;
                all->n_panels = panels;
                all->n_blocks = blocks;
            }
        }
    }
}

void taps_bind(const matmul_config_t *c, const bound_t *packed, int shares, matmul_state_t *all)
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
    bind_weights(c->taps, c->taps_words, all);
    st->flip_a = (a->dtype == sinter_u8) == c->taps_words ? 128 : 0;
    st->bias = c->taps_words || a->dtype == sinter_u8 ? 0 : 128;
    st->why = bind_image(all, st);
    if (all->tail.cols > 1 && all->panel % c->taps->strip != 0 && all->n_panels > 1) {
        st->why = "panels are narrower than strips";
    }
    if (st->why == NULL && !has_room(c, all)) {
        st->why = "the image or the weights are too large";
    }
    st->on = st->why == NULL;
    if (!st->on) {
        return;
    }
    if (all->tail.cols == 1) {
        choose_tiles(c, shares, all);
    }
    const int64_t most = at_most(all->rows, all->block), rows = parts_of(most, parts_of(most, 60));
    st->rows = (int)(parts_of(rows, TAPS_GRAIN) * TAPS_GRAIN);
    st->packed = packed != NULL && packed->strip == c->taps->strip;
    st->given = st->packed ? packed->data : NULL;
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
    if (st->given != NULL) {
        out->b = (int8_t *)st->given;
        out->sum =
            (int32_t *)(void *)(st->given + columns * (size_t)(st->tap * all->patches.taps) * 4);
    }
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
static void stage(const tile_table_t *tile, const matrix_t *codes, rect_t at, unsigned char *to,
                  int64_t ld)
{
    float x[STAGED * MM_K];
    tile->load(codes, at, x, MM_K, at.rows, at.columns);
    for (int r = 0; r < at.rows; r++) {
        for (int i = 0; i < at.columns; i++) {
            to[r * ld + i] = (unsigned char)(int)x[r * MM_K + i];
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
            stage(t->c->tile, &line, at, codes, MM_K);
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

/* Where weights are packed to. */
typedef struct packing {
    const taps_table_t *table;
    const tile_table_t *tile;
    const matmul_state_t *all;
    int8_t *b;
    int32_t *sum;
} packing_t;

static void pack_piece(const packing_t *p, int64_t mat, const piece_t *piece, int64_t column,
                       taps_codes_t *codes, int8_t *to, int32_t *sum)
{
    const taps_state_t *st = &p->all->taps;
    const matrix_t w = patches_weights(p->all, mat, piece->tap), m = matrix_of_codes(&w);
    const int64_t apart = st->tap * p->all->patches.taps * 4 * p->table->strip;
    if (m.codes.type->bits == 8 && m.codes.column.stride == 1) {
        codes->data = m.codes.data + codes_at(&m.codes, piece->channel, column);
        codes->stride = m.codes.row.stride;
        codes->rows = piece->channels;
        p->table->pack(st->wide == 2, codes, to, apart, sum);
        return;
    }
    for (int k = 0; k < piece->channels; k += STAGED) {
        unsigned char staged[STAGED * TAPS_CODES];
        codes->data = staged;
        codes->stride = TAPS_CODES;
        codes->rows = (int)at_most(piece->channels - k, STAGED);
        stage(p->tile, &m, (rect_t){piece->channel + k, codes->rows, column, codes->columns},
              staged, TAPS_CODES);
        p->table->pack(st->wide == 2, codes, to + k / st->each * 4 * p->table->strip, apart, sum);
    }
}

/* All of K of one unit of columns of a group. zp: of the columns, TAPS_CODES of them. */
static void pack_unit(const packing_t *p, int64_t mat, int64_t unit, const float *zp)
{
    const taps_state_t *st = &p->all->taps;
    const int64_t column = unit * p->table->codes, all = st->tap * p->all->patches.taps;
    const int strip = 4 * p->table->strip;
    int32_t less[TAPS_CODES];
    bool any = st->flip_w != 0;
    for (int i = 0; i < TAPS_CODES; i++) {
        less[i] = fabsf(zp[i]) <= MATMUL_ZP_MOST ? (int32_t)zp[i] - (st->flip_w != 0 ? 128 : 0) : 0;
        any = any || less[i] != 0;
    }
    taps_codes_t codes = {.columns = (int)at_most(p->all->N - column, p->table->codes),
                          .flip = st->flip_w,
                          .zp = any ? less : NULL};
    int8_t *to = p->b + (mat * st->units + unit) * 2 * all * strip;
    for (int64_t i = 0; i < st->pieces; i++) {
        const piece_t piece = piece_of(p->all, i);
        int32_t *sum = p->sum + (mat * st->blocks + i / st->per_block) * st->columns + column;
        if (st->wide == 1 && i % st->per_block == 0) {
            memset(sum, 0, (size_t)p->table->codes * sizeof *sum);
        }
        pack_piece(p, mat, &piece, column, &codes, to + piece.dword * strip, sum);
    }
}

/* This thread's part of the weights. */
static void pack_weights(const matmul_task_t *t, int tid, int nth)
{
    const taps_state_t *st = &t->st->taps;
    const taps_shared_t *shared = &t->buf.taps_shared;
    const packing_t p = {t->c->taps, t->c->tile, t->st, shared->b, shared->sum};
    int64_t begin, end;
    share(t->st->mats * st->units, tid, nth, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t mat = i / st->units, column = i % st->units * t->c->taps->codes;
        const int n = (int)at_most(t->st->N - column, t->c->taps->codes);
        const matrix_t w = patches_weights(t->st, mat, 0);
        float zp[TAPS_CODES];
        load_columns(t, &w.zp, column, n, zp);
        shared->usable[i] = matmul_within(zp, n, MATMUL_ZP_MOST);
        pack_unit(&p, mat, i % st->units, zp);
    }
}

/* ---- constant weights ------------------------------------------------------------------------ */

int matmul_packs_taps(const plan_t *plan, const step_t *step)
{
    const problem_t p = {.plan = plan, .step = step};
    const matmul_params_t *m = &step->p.matmul;
    const taps_table_t *table = taps_table(plan->features);
    if (m->conv == NULL || table == NULL || step->permit.integers != EXACT_CODES ||
        blocks_refuse(NULL, &p) != NULL) {
        return 0;
    }
    const dtype_traits_t *a = dtype_traits(problem_type(&p, m->a.data)),
                         *b = dtype_traits(problem_type(&p, m->b.data));
    return a->bits == 8 && b->bits == 8 && b->cls == DTYPE_INT && m->b.zp < 0 ? table->strip : 0;
}

/* The parts of a state that packing reads, of weights without zero points. */
static void state_of_weights(features_t features, const bound_t *w, matmul_state_t *all)
{
    const taps_table_t *table = taps_table(features);
    const int last = w->ndims - 1;
    groups_t *codes = &all->b.base.codes;
    patches_t *p = &all->patches;
    all->b.ndims = w->ndims;
    *codes = (groups_t){.data = w->data,
                        .type = dtype_traits(w->dtype),
                        .dtype = w->dtype,
                        .row = {w->strides[last - 1], 1},
                        .column = {w->strides[last], 1}};
    p->on = true;
    p->n = w->ndims - 3;
    p->taps = 1;
    p->channels = w->dims[last - 1];
    for (int d = 0; d < w->ndims; d++) {
        all->b.dims[d] = w->dims[d];
        all->b.axis[d][IN_CODES] = (axis_t){w->strides[d], 1};
    }
    for (int i = 0; i < p->n; i++) {
        p->kernel[i] = w->dims[1 + i];
        p->taps *= p->kernel[i];
    }
    all->mats = w->dims[0];
    all->N = w->dims[last];
    bind_weights(table, !blocks_table(features)->sums_bytes || w->dtype == sinter_u8, all);
}

/* Bytes of the strips and of the sums of a group; false: too many. */
static bool group_bytes(const taps_table_t *table, const matmul_state_t *all, int64_t *b,
                        int64_t *sums)
{
    const taps_state_t *st = &all->taps;
    (void)table;
    return mul_i64(st->columns, all->patches.taps, b) && mul_i64(*b, 4 * st->tap, b) &&
           *b <= MOST_BYTES && mul_i64(st->columns * 4, st->wide == 1 ? st->blocks : 0, sums) &&
           *sums <= MOST_BYTES;
}

bool matmul_taps_bytes(features_t features, const bound_t *weights, int64_t *bytes)
{
    matmul_state_t all = {0};
    int64_t sums;
    state_of_weights(features, weights, &all);
    return group_bytes(taps_table(features), &all, bytes, &sums) && add_i64(*bytes, sums, bytes);
}

void matmul_pack_taps(features_t features, const constant_key_t *key, void *memory)
{
    static const float none[TAPS_CODES];
    bound_t w = {.data = (unsigned char *)(uintptr_t)key->data,
                 .dtype = (sinter_data_type_t)key->type,
                 .ndims = key->ndims};
    matmul_state_t all = {0};
    int64_t bytes, sums;
    memcpy(w.dims, key->dims, sizeof w.dims);
    memcpy(w.strides, key->strides, sizeof w.strides);
    state_of_weights(features, &w, &all);
    group_bytes(taps_table(features), &all, &bytes, &sums);
    const packing_t p = {taps_table(features), tile_table(features), &all, memory,
                         (int32_t *)(void *)((unsigned char *)memory + all.mats * bytes)};
    for (int64_t i = 0; i < all.mats * all.taps.units; i++) {
        pack_unit(&p, i / all.taps.units, i % all.taps.units, none);
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
    for (int64_t c = t->n0 / codes; !st->packed && c * codes < t->n0 + t->cols; c++) {
        fits = fits && t->buf.taps_shared.usable[t->mat * st->units + c];
    }
    return fits;
}

/* As matmul_finish, where the chain is no more than the micro-kernel does. */
static void finish_codes(matmul_task_t *t)
{
    const matmul_state_t *st = t->st;
    t->idx[st->nb + 1] = t->n0 + t->mat * st->N;
    const int row = st->row_dim[st->n_row - 1];
    const bool repeat = chain_codes_repeat(&st->post);
    taps_codes_of_t how;
    for (int r = 0, some; r < t->rows; r += some) {
        some = (int)at_most(matmul_seek_row(t, r), t->rows - r);
        for (int i = 0; i < some; i++, t->idx[row]++) {
            if ((r == 0 && i == 0) || !repeat) {
                const chain_codes_run_t run =
                    chain_codes_run(&st->post, t->idx, t->cols, t->buf.chain);
                how = (taps_codes_of_t){run.bias, run.relu, run.is_signed, run.scale, run.zp};
            }
            t->c->taps->store(&how, t->buf.acc + (size_t)(r + i) * MM_PANEL, t->cols,
                              chain_codes_to(&st->post, t->idx));
        }
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
        if (!st->taps.packed) {
            pack_weights(t, w->tid, w->nth);
        }
        return;
    }
    int64_t begin, end;
    share(st->items, w->tid, w->nth, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        matmul_seek(t, i);
        const bool all = load_scales(t) && fits;
        if (!all) {
            report_detour(w, "some by floats (scales or zero points do not suit integers)");
        }
        multiply_rows(t, all, scale, zp);
    }
}
