/* Matmul of many rows in integers: what it takes, and the work around the micro-kernels. What it
 * does not take goes by panels of floats. */
#include "backend_xsmm/drivers/matmul/matmul_blocks.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "backend_xsmm/drivers/common/products.h"
#include "backend_xsmm/drivers/matmul/matmul.h"
#include "numeric/tiles.h"

enum {
    PART_ROWS = 24, /* of A that are multiplied by one call */
    PANEL_STRIPS = MM_PANEL / BLOCKS_STRIP,
    COEF_BLOCKS = 32,       /* whose coefficients are loaded together: each costs a call */
    FIRST_CACHE = 24 << 10, /* bytes of B that stay there while long rows are multiplied */
    WHOLE_MOST = 64 << 20   /* bytes of A that are kept: beyond that each panel quantises its own */
};

/* ---- selection ------------------------------------------------------------------------------- */

float blocks_steps(sinter_data_type_t type)
{
    const dtype_traits_t *t = dtype_traits(type);
    return t->cls == DTYPE_INT && t->bits <= 8 ? 1 : type == sinter_f4_e2m1 ? 2 : 0;
}

static bool are_integers(const problem_t *p, int value)
{
    return value < 0 || dtype_traits(problem_type(p, value))->cls == DTYPE_INT;
}

/* Whether zero points are integers. Offsets are not: where they are codes, these have scales. */
static bool has_integer_zps(const problem_t *p, const operand_t *b)
{
    return b->zp >= 0 && !b->offsets && are_integers(p, b->zp);
}

bool blocks_of_codes(const problem_t *p)
{
    const operand_t *a = &p->step->p.matmul.a;
    return a->scale >= 0 && a->split == sinter_data_type_undef &&
           blocks_steps(problem_type(p, a->data)) > 0 && are_integers(p, a->zp);
}

const char *blocks_refuse(const kernel_t *self, const problem_t *p)
{
    const operand_t *a = &p->step->p.matmul.a, *b = &p->step->p.matmul.b;
    const integers_t kind = p->step->permit.integers;
    const bool codes = kind == EXACT_CODES;
    (void)self;
    if (blocks_steps(problem_type(p, b->data)) == 0 || b->split != sinter_data_type_undef) {
        return "B is not made of integers of 8 bits or fewer";
    }
    if (kind == NO_INTEGERS) {
        return MODE_HAS_NO_INTEGERS;
    }
    if (p->step->p.matmul.experts >= 0) {
        return "rows of A go to experts";
    }
    if (b->scale < 0) {
        return "B has no scales";
    }
    if (!codes &&
        (a->scale >= 0 || a->zp >= 0 || dtype_traits(problem_type(p, a->data))->bits < 16)) {
        return A_HAS_NO_INTEGERS;
    }
    const blocks_table_t *table = blocks_table(p->plan->features);
    if (table == NULL) {
        return "no VNNI";
    }
    return b->zp >= 0 && !has_integer_zps(p, b) && (codes || blocks_in_words(p, table, kind))
               ? "B has zero points that are no integers, and products of codes or words are exact"
               : NULL;
}

/* The largest |w| of bytes of B, which are less their zero points where these are integers. */
static double widest_code(const problem_t *p)
{
    const operand_t *b = &p->step->p.matmul.b;
    const bool less = has_integer_zps(p, b);
    const dtype_traits_t *type = dtype_traits(problem_type(p, b->data)),
                         *zp = less ? dtype_traits(problem_type(p, b->zp)) : NULL;
    const int kept = tiles_kept(p->plan->values[b->data].tiled);
    const bool fewer = kept > 0 && kept != TILES_NUMBER && type->digits < type->bits;
    const double steps = blocks_steps(problem_type(p, b->data)), half = fewer ? 1 << (kept - 1) : 0,
                 most = fewer ? half - 1 : type->max, least = fewer ? -half : type->min,
                 above = most - (zp != NULL ? zp->min : 0),
                 below = (zp != NULL ? zp->max : 0) - least;
    return steps * (above > below ? above : below);
}

bool blocks_in_words(const problem_t *p, const blocks_table_t *table, integers_t kind)
{
    const bool bytes = dtype_traits(problem_type(p, p->step->p.matmul.b.data))->bits == 8;
    return kind == TWO_LIMBS ||
           (!table->sums_bytes && widest_code(p) > (bytes ? BLOCKS_SIX : BLOCKS_NARROW));
}

/* Scales or zero points do not change inside a block of K, as far as is known. */
static bool fit_blocks(const plan_t *plan, const operand_t *b, bool zero_points, int dim)
{
    const int coefs = zero_points ? b->zp : b->scale,
              own = coefs < 0 ? -1 : (zero_points ? b->zp_dim : b->scale_dim)[dim];
    const int64_t K = plan->values[b->data].lt.dims[dim],
                  groups = own < 0 ? 1 : plan->values[coefs].lt.dims[own];
    return K < 0 || groups < 1 ||
           quant_group_size(K, groups, b->group_size[dim]) >= at_most(K, BLOCKS_LEAST);
}

int matmul_packs_along(const plan_t *plan, const step_t *step)
{
    const operand_t *b = &step->p.matmul.b;
    const lt_t *lt = &plan->values[b->data].lt;
    const problem_t problem = {.plan = plan, .step = step};
    const int dim = lt->ndims - (step->p.matmul.trans_b ? 1 : 2);
    if (step->p.matmul.conv != NULL) {
        return lt->ndims - 1;
    }
    if (lt->ndims < 2 || dtype_traits(lt->data_type)->bits < 4 ||
        blocks_refuse(NULL, &problem) != NULL) {
        return -1;
    }
    return fit_blocks(plan, b, false, dim) && fit_blocks(plan, b, true, dim) ? dim : -1;
}

/* ---- geometry -------------------------------------------------------------------------------- */

/* The longest block that groups of n elements are made of; 0: none. */
static int longest_block(int64_t n)
{
    for (int64_t parts = 1; n / parts >= BLOCKS_LEAST; parts++) {
        if (n % parts == 0 && n / parts <= BLOCKS_LONGEST && n / parts % 4 == 0) {
            return (int)(n / parts);
        }
    }
    return 0;
}

/* Elements of K with one coefficient each, of these groups and of others; 0: all. */
static int64_t common_group(int64_t others, const groups_t *g, const axis_t *along, int64_t K)
{
    return groups_are_one(g, along, K) ? others : common_divisor(others, along->group);
}

/* The groups of both operands along K. */
static int64_t group_of(const matmul_state_t *st, bool a_codes)
{
    const matrix_t *a = &st->a.base, *b = &st->b.base;
    if (st->patches.on) { /* if it has any: patches_refuse_integers */
        return 0;
    }
    int64_t g = common_group(0, &b->scale, &b->scale.row, st->K);
    g = common_group(g, &b->zp, &b->zp.row, st->K);
    g = a_codes ? common_group(g, &a->scale, &a->scale.column, st->K) : g;
    return a_codes ? common_group(g, &a->zp, &a->zp.column, st->K) : g;
}

/* Whether all of A is quantised before anything else, and what it takes. */
static void bind_whole(const matmul_config_t *c, const matmul_state_t *all, blocks_state_t *st)
{
    const int64_t row_bytes = (c->words ? 2 : 1) * BLOCKS_K +
                              BLOCKS_MOST * (int64_t)(2 * sizeof(float) + sizeof(int32_t)) + 1;
    int64_t bytes;
    st->pieces = (all->K + st->k - 1) / st->k;
    st->mats = all->mats;
    st->rows = (all->rows / MM_HEIGHT + 1) * MM_HEIGHT;
    st->room = !st->image.on && mul_i64(st->pieces, st->mats, &bytes) &&
               mul_i64(bytes, st->rows, &bytes) && mul_i64(bytes, row_bytes, &bytes) &&
               bytes <= WHOLE_MOST;
    st->once = st->room && all->n_panels > 1;
}

/* Codes of 4 or 8 bits that are contiguous along K, in columns that begin with whole bytes; or in
 * tiles, whose last elements may meet zeros of an image. */
static void bind_direct(const matmul_state_t *all, blocks_state_t *st)
{
    const groups_t *codes = &all->b.base.codes;
    const bool tiles = codes->tiled != NOT_TILED;
    const int bits = codes->type->bits, each = tiles ? 4 : 32 / bits; /* codes of a dword */
    const int64_t stride = codes->column.stride;
    const bool lines = codes->row.stride == 1 && stride > 0 && stride < INT32_MAX / 16 &&
                       matrices_on_bytes(&all->b, false);
    float x[16];
    st->direct = codes->block == 0 && (bits == 4 || bits == 8) &&
                 (tiles || (lines && !all->patches.on)) && st->block % each == 0 &&
                 (all->K % each == 0 || (tiles && st->image.on));
    st->order = st->direct ? blocks_order(tiles ? 8 : bits, st->words) : NULL;
    if (st->direct && bits == 4) {
        dtype_nibble_values(&codes->type->codec, x);
        for (int i = 0; i < 16; i++) {
            const float value = x[tiles ? i ^ tiles_flip(codes->dtype) : i];
            st->table[i] = (int8_t)(value * st->steps - (st->words ? 0 : st->offset));
        }
    }
}

/* Whether zero points of A differ in one execute. */
static bool has_many_zps(const matrices_t *a)
{
    int64_t strides = 0;
    for (int d = 0; d < a->ndims; d++) {
        strides |= a->axis[d][IN_ZP].stride;
    }
    return a->base.zp.type != NULL && strides != 0;
}

static void bind_codes(const matmul_state_t *all, blocks_state_t *st)
{
    const dtype_traits_t *type = all->a.base.codes.type;
    st->codes = true;
    st->a_steps = blocks_steps(all->a.base.codes.dtype);
    st->a_bias = type->cls == DTYPE_INT && type->digits == type->bits ? 0 : 128;
    st->own = !all->patches.on && has_many_zps(&all->a);
}

/* What bytes of B are, and what corrects their products. Where no instruction sums products of
 * bytes, integers of 4 bits are not less their zero points: the smaller they are, the more of them
 * are added in 16 bits. */
static void bind_values(const matmul_config_t *c, const matrix_t *b, blocks_state_t *st)
{
    const int bits = b->codes.type->bits;
    /* Without an instruction that sums bytes, codes of 8 bits are words, unless tiles keep six. */
    st->six = !st->words && bits == 8;
    st->nibbles = !st->words && !c->blocks->sums_bytes && bits == 4 && st->steps == 1;
    st->folded =
        st->words || (bits <= 4 && !st->nibbles && (b->zp.type == NULL || b->zp.type->bits <= 4));
    st->offset = b->codes.dtype == sinter_u8                  ? 128
                 : st->nibbles && b->codes.dtype == sinter_u4 ? BLOCKS_NIBBLE
                                                              : 0;
    st->shifted = !st->folded && (b->zp.type != NULL || st->offset != 0);
    st->floats = st->shifted && b->zp.type != NULL && (b->offsets || b->zp.type->cls != DTYPE_INT);
}

void blocks_bind(const matmul_config_t *c, matmul_state_t *all)
{
    const matrix_t *b = &all->b.base;
    const int64_t K = all->K;
    blocks_state_t *st = &all->blocks;
    *st = (blocks_state_t){0};
    if (c->blocks == NULL || K < 1) {
        return;
    }
    const int64_t group = group_of(all, c->kind == EXACT_CODES);
    st->block = group == 0 ? BLOCKS_LONGEST : longest_block(group);
    if (st->block == 0) {
        st->why = "groups along K are not made of blocks of 16 to 128 elements";
        return;
    }
    st->why = all->patches.on ? patches_refuse_integers(all) : NULL;
    if (st->why != NULL) {
        st->block = 0;
        return;
    }
    st->words = c->words;
    st->k = BLOCKS_K / st->block * st->block;
    st->span = COEF_BLOCKS / (st->k / st->block) * st->k;
    st->steps = blocks_steps(b->codes.dtype);
    bind_values(c, b, st);
    if (c->kind == EXACT_CODES) {
        bind_codes(all, st);
    }
    if (st->codes && all->patches.on && all->rows > 0 && !image_bind(c, all, st)) {
        st->why = "the image is too large";
        st->block = 0;
        return;
    }
    bind_direct(all, st);
    st->long_rows =
        st->image.on && st->direct && !st->shifted && (st->words || c->blocks->sums_bytes);
    if (st->long_rows) {
        const int64_t most = BLOCKS_LONG / (st->words ? 2 : 1), pieces = (K - 1) / most + 1;
        st->k = (int)(((K - 1) / pieces / TILES_K + 1) * TILES_K);
        st->block = st->k;
        st->span = COEF_BLOCKS * st->k;
        st->in_place = !st->words && b->codes.dtype == sinter_s8 && tiles_kept(b->codes.tiled) == 0;
    }
    st->strip = BLOCKS_STRIP;
    while (st->long_rows && st->strip > c->blocks->together &&
           st->strip * st->k * (st->words ? 2 : 1) > FIRST_CACHE) {
        st->strip /= 2;
    }
    bind_whole(c, all, st);
}

bool blocks_alike(const matmul_config_t *a, const blocks_state_t *a_blocks,
                  const matmul_config_t *b, const blocks_state_t *b_blocks)
{
    const blocks_state_t *x = a_blocks, *y = b_blocks;
    return x->block > 0 && x->once && y->once && a->kind == b->kind && a->blocks == b->blocks &&
           x->block == y->block && x->k == y->k && x->words == y->words && x->order == y->order &&
           x->codes == y->codes && x->pieces == y->pieces && x->mats == y->mats &&
           x->rows == y->rows;
}

int blocks_row(const blocks_state_t *st)
{
    return st->long_rows ? BLOCKS_LONG : BLOCKS_K * (st->words ? 2 : 1);
}

/* Some rows of A from one on. */
static limb_rows_t rows_from(const blocks_state_t *st, const limb_rows_t *a, int64_t row)
{
    return limb_rows_from(a, row * blocks_row(st), row * BLOCKS_MOST);
}

/* Room for `rows` rows of A. */
static limb_rows_t carve_rows(const matmul_config_t *c, size_t rows, unsigned char *base,
                              size_t *at)
{
    const size_t blocks = rows * BLOCKS_MOST;
    const size_t bytes = c->image ? BLOCKS_LONG : BLOCKS_K * (c->words ? 2 : 1);
    return carve_limbs(base, at, rows * bytes + BLOCKS_VECTOR, 0, blocks,
                       c->kind == EXACT_CODES ? blocks : 0);
}

size_t blocks_share(const matmul_config_t *c, const blocks_state_t *st, unsigned char *base,
                    blocks_whole_t *out)
{
    const size_t rows = st->room ? (size_t)(st->pieces * st->mats * st->rows) : 0;
    size_t at = 0;
    out->a = carve_rows(c, rows, base, &at);
    out->usable = carve(base, &at, rows / MM_HEIGHT, sizeof(bool));
    out->image = carve(base, &at, st->image.on ? (size_t)st->image.bytes + BLOCKS_VECTOR : 0, 1);
    return at;
}

void blocks_buffers(const matmul_config_t *c, unsigned char *base, size_t *at,
                    blocks_buffers_t *out)
{
    const size_t coefs = PANEL_STRIPS * COEF_BLOCKS * BLOCKS_STRIP,
                 row = c->image ? BLOCKS_LONG : BLOCKS_K * (c->words ? 2 : 1);
    out->a = carve_rows(c, blocks_rows(c->rows), base, at);
    out->b.byte = carve(base, at, row, BLOCKS_STRIP);
    out->b.start = carve(base, at, BLOCKS_MOST * BLOCKS_STRIP, sizeof(int32_t));
    out->b.scale = carve(base, at, coefs, sizeof(float));
    out->b.zp = carve(base, at, coefs, sizeof(int32_t));
    out->zp = carve(base, at, coefs, sizeof(float));
    out->fits = carve(base, at, PANEL_STRIPS, sizeof(bool));
}

/* ---- A --------------------------------------------------------------------------------------- */

static bool encode_rows(matmul_task_t *t, int64_t k, int kn, const limb_rows_t *to)
{
    const blocks_state_t *st = &t->st->blocks;
    if (!matmul_load_codes(t, k, kn, st->block, to->scale, to->offset, BLOCKS_MOST)) {
        return false;
    }
    for (int i = 0; i < t->rows * BLOCKS_MOST; i++) {
        to->scale[i] *= 1 / st->a_steps;
        to->offset[i] = to->offset[i] * st->a_steps + st->a_bias;
    }
    t->c->blocks->encode(&(blocks_form_t){st->words, st->order, st->a_steps, st->a_bias}, t->buf.a,
                         MM_LDA, t->rows, kn, st->block, to);
    return true;
}

/* kn elements of a task's rows, at most MM_HEIGHT of them, by way of floats. False: some are not
 * for integers. */
static bool quantise_rows(matmul_task_t *t, int64_t k, int kn, const limb_rows_t *to)
{
    const blocks_state_t *st = &t->st->blocks;
    if (st->image.on) {
        float scale, zp;
        const bool usable = image_coefs(t, &scale, &zp);
        if (usable) {
            image_gather(t, k, kn, to);
        }
        return usable;
    }
    if (st->codes) {
        return encode_rows(t, k, kn, to);
    }
    matmul_load_a(t, k, kn);
    return t->c->blocks->quantise(&(blocks_form_t){st->words, st->order, 1, 0}, t->buf.a, MM_LDA,
                                  t->rows, kn, st->block, to);
}

/* Of a matrix, from a multiple of MM_HEIGHT on. */
static int64_t whole_row(const blocks_state_t *st, int64_t piece, int64_t mat, int64_t row)
{
    return (piece * st->mats + mat) * st->rows + row;
}

void blocks_quantise(matmul_task_t *t, int tid, int nth)
{
    const blocks_state_t *st = &t->st->blocks;
    const blocks_whole_t *whole = &t->buf.whole;
    const int64_t heights = (t->st->rows + MM_HEIGHT - 1) / MM_HEIGHT,
                  all = t->st->rows > 0 ? st->mats * heights : 0;
    int64_t begin, end;
    share(all, tid, nth, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t mat = i / heights, row = i % heights * MM_HEIGHT;
        matmul_seek_rows(t, mat, row, (int)at_most(t->st->rows - row, MM_HEIGHT));
        for (int64_t p = 0; p < st->pieces; p++) {
            const int64_t k = p * st->k, to = whole_row(st, p, mat, row);
            const limb_rows_t a = rows_from(st, &whole->a, to);
            whole->usable[to / MM_HEIGHT] =
                quantise_rows(t, k, (int)at_most(t->st->K - k, st->k), &a);
        }
    }
}

/* kn elements of all rows of a task. False: some are not for integers. */
static bool load_a(const matmul_task_t *t, int64_t k, int kn, limb_rows_t *a)
{
    const blocks_state_t *st = &t->st->blocks;
    const int64_t first = st->once ? whole_row(st, k / st->k, t->mat, t->row0) : 0;
    matmul_task_t some = *t;
    bool usable = true;
    *a = st->once ? rows_from(st, &t->buf.whole.a, first) : t->buf.blocks.a;
    for (int r = 0; r < t->rows && usable; r += MM_HEIGHT) {
        const limb_rows_t to = rows_from(st, a, r);
        some.row0 = t->row0 + r;
        some.rows = (int)at_most(t->rows - r, MM_HEIGHT);
        usable = st->once ? t->buf.whole.usable[(first + r) / MM_HEIGHT]
                          : quantise_rows(&some, k, kn, &to);
    }
    return usable;
}

/* ---- B --------------------------------------------------------------------------------------- */

/* Where the coefficients of block i of a span of blocks are, for the strip at column c. */
static size_t coefs_at(int c, int i)
{
    return ((size_t)(c / BLOCKS_STRIP) * COEF_BLOCKS + (size_t)i) * BLOCKS_STRIP;
}

/* Scales or offsets, with what they are multiplied with. */
static void load_scaled(const matmul_task_t *t, const groups_t *of, const groups_t *by,
                        const matmul_places_t *rows, const matmul_places_t *columns, float *to)
{
    float factor[COEF_BLOCKS * BLOCKS_STRIP];
    matmul_load_coefs(t, of, rows, columns, to, BLOCKS_STRIP);
    if (by->type != NULL) {
        matmul_load_coefs(t, by, rows, columns, factor, BLOCKS_STRIP);
        for (int i = 0; i < rows->n * BLOCKS_STRIP; i++) {
            to[i] *= factor[i];
        }
    }
}

/* The same of tiles that micro-kernels take: each column has values of its own. */
static void load_tiled(const matmul_task_t *t, const tiled_plane_t *from,
                       const matmul_places_t *rows, const matmul_places_t *columns, float *to)
{
    const int64_t group = from->halves ? TILES_K / 2 : from->group * TILES_K,
                  first = rows->from / group,
                  last = (rows->from + (int64_t)(rows->n - 1) * rows->step) / group;
    const int64_t begin = rows->from - first * group;
    float lines[COEF_BLOCKS * TILES_COLUMNS];
    for (int c = 0; c < BLOCKS_STRIP; c += TILES_COLUMNS) {
        if (c < columns->n) {
            tiled_values(&t->st->tiled, from, matmul_strip(t, columns->from + c), first,
                         (int)(last - first) + 1, 1, lines);
        } else {
            memset(lines, 0, sizeof lines);
        }
        int64_t end = group;
        const float *line = lines;
        for (int64_t i = 0, k = begin; i < rows->n; i++, k += rows->step) {
            if (k >= end) {
                end += group;
                line += TILES_COLUMNS;
            }
            memcpy(to + i * BLOCKS_STRIP + c, line, TILES_COLUMNS * sizeof *to);
        }
    }
}

/* Coefficients of kn elements from k on of the strip at column c of the panel. False: they are not
 * for integers. */
static bool load_coefs(const matmul_task_t *t, int64_t k, int64_t kn, int c)
{
    const blocks_state_t *st = &t->st->blocks;
    const blocks_buffers_t *buf = &t->buf.blocks;
    const matmul_places_t rows = {k, (int)((kn + st->block - 1) / st->block), st->block},
                          columns = {t->n0 + c, (int)at_most(t->cols - c, BLOCKS_STRIP), 1};
    const tiled_b_t *tiled = &t->st->tiled;
    const int all = rows.n * BLOCKS_STRIP;
    float *scale = buf->b.scale + coefs_at(c, 0), *zp = buf->zp + coefs_at(c, 0);
    if (tiled->table != NULL && t->b.scale.tiled != NOT_TILED) {
        load_tiled(t, &tiled->scale, &rows, &columns, scale);
    } else {
        load_scaled(t, &t->b.scale, &t->b.scale_scale, &rows, &columns, scale);
    }
    if (t->b.zp.type == NULL) {
        memset(zp, 0, (size_t)all * sizeof *zp);
    } else if (tiled->table != NULL && t->b.zp.tiled != NOT_TILED) {
        load_tiled(t, &tiled->zp, &rows, &columns, zp);
    } else {
        load_scaled(t, &t->b.zp, &t->b.zp_scale, &rows, &columns, zp);
    }
    if (t->b.offsets) {
        t->c->quant->zps_of_offsets(scale, zp, all);
    }
    if (!matmul_within(scale, all, FLT_MAX)) {
        return false;
    }
    const float unit = 1 / st->steps, offset = st->offset;
    for (int i = 0; unit != 1 && i < all; i++) {
        scale[i] *= unit;
    }
    if (st->floats) {
        float *z = (float *)(void *)(buf->b.zp + coefs_at(c, 0));
        for (int i = 0; i < all; i++) {
            z[i] = zp[i] - offset;
        }
        return matmul_within(zp, all, ZP_FLOAT_MOST);
    }
    if (!st->shifted && (t->b.zp.type == NULL || t->b.zp.type->bits <= 8)) {
        return true;
    }
    if (!matmul_within(zp, all, MATMUL_ZP_MOST)) {
        return false;
    }
    int32_t *z = buf->b.zp + coefs_at(c, 0);
    for (int i = 0; st->shifted && i < all; i++) {
        z[i] = (int32_t)(zp[i] - offset);
    }
    return true;
}

/* n elements of a strip of B, whole blocks but for the end of K, from block i on. */
static void pack(const matmul_task_t *t, const matrix_t *codes, int64_t k, int n, int i, int64_t c,
                 int cols)
{
    const blocks_state_t *st = &t->st->blocks;
    const blocks_b_t *b = &t->buf.blocks.b;
    const rect_t at = {k, n, c, cols};
    if (t->st->patches.on) {
        patches_load_b(t, st->folded ? PATCHES_LESS_ZPS : PATCHES_CODES, at, t->buf.b, BLOCKS_STRIP,
                       (n + 3) / 4 * 4, BLOCKS_STRIP);
    } else {
        t->c->tile->load(codes, at, t->buf.b, BLOCKS_STRIP, (n + 3) / 4 * 4, BLOCKS_STRIP);
    }
    for (int e = 0; e < n; e += st->block) {
        const float *from = t->buf.b + e * BLOCKS_STRIP;
        const int some = (int)at_most(n - e, st->block);
        int8_t *byte = b->byte + (i * st->block + e) * (st->words ? 2 : 1) * BLOCKS_STRIP;
        if (st->words) {
            t->c->blocks->pack_words(from, some, st->steps, byte);
        } else {
            t->c->blocks->pack(from, some, st->steps, st->offset, t->buf.blocks.factor, byte,
                               b->start + (i + e / st->block) * BLOCKS_STRIP);
        }
    }
}

static const unsigned char *tiles_at(const groups_t *codes, int64_t k, int64_t c)
{
    return codes->data + c / TILES_COLUMNS * codes->strip +
           k / TILES_K * tiles_bytes(tiles_bits(codes->tiled, codes->dtype));
}

/* Bytes from 16 columns to the next ones, for long rows. */
static int64_t strips_apart(const blocks_state_t *st)
{
    return st->long_rows ? st->k / (st->words ? 2 : 4) * TILES_LINE : 0;
}

/* Columns that are multiplied by one call from column c of the panel on. In place, no call reads
 * beyond the last strip: two strips at a time, then one. */
static int columns_at(const matmul_task_t *t, int c)
{
    const blocks_state_t *st = &t->st->blocks;
    const int n = (int)at_most(t->cols - c, st->strip), together = t->c->blocks->together;
    return st->in_place && n > together ? n / together * together : n;
}

/* The same without a detour by floats. */
static void pack_codes(const matmul_task_t *t, int64_t k, int n, int64_t c, int cols,
                       const float *zp)
{
    const blocks_state_t *st = &t->st->blocks;
    const blocks_buffers_t *buf = &t->buf.blocks;
    const groups_t *codes = &t->b.codes;
    const bool tiles = codes->tiled != NOT_TILED;
    const int bits = codes->type->bits, kept = tiles_kept(codes->tiled);
    const unsigned char *data =
        tiles ? tiles_at(codes, k, c) : groups_byte(codes, codes_at(codes, k, c));
    const blocks_codes_t columns = {.data = data,
                                    .stride =
                                        tiles ? codes->strip : codes->column.stride * bits / 8,
                                    .skip = (int)(k % TILES_K),
                                    .apart = strips_apart(st),
                                    .columns = cols,
                                    .n = (n + 3) / 4 * 4,
                                    .block = st->block,
                                    .bits = bits,
                                    .kept = kept,
                                    .less = tiles_zero(kept, codes->dtype),
                                    .table = st->table,
                                    .flip = (uint8_t)st->offset,
                                    .zp = st->folded ? zp : NULL,
                                    .zp_less = st->words ? st->offset : 0,
                                    .factor = buf->factor};
    if (st->in_place) {
        t->c->blocks->sum_tiles(&columns, buf->b.start);
    } else {
        (tiles ? t->c->blocks->pack_tiles : t->c->blocks->pack_codes)(&columns, st->words,
                                                                      buf->b.byte, buf->b.start);
    }
}

/* kn elements of the strip at column c of the panel, from block i of a span on. */
static void load_b(const matmul_task_t *t, int64_t k, int kn, int c, int i)
{
    const blocks_state_t *st = &t->st->blocks;
    const int cols = columns_at(t, c), some = BLOCKS_LONGEST / st->block * st->block;
    if (st->direct) {
        pack_codes(t, k, kn, t->n0 + c, cols, t->buf.blocks.zp + coefs_at(c, i) + c % BLOCKS_STRIP);
        return;
    }
    matrix_t codes = matrix_of_codes(&t->b);
    if (st->folded) {
        codes.zp = t->b.zp;
    }
    for (int at = 0; at < kn; at += some) {
        pack(t, &codes, k + at, (int)at_most(kn - at, some), at / st->block, t->n0 + c, cols);
    }
}

/* Some rows and columns of a matrix that lies in tiles: of each strip, what belongs to the rows. */
static blocks_fetch_t lines_of_tiles(const groups_t *g, rect_t at, int64_t K)
{
    const bool one = tiles_are_values(g->tiled) && groups_are_one(g, &g->row, K);
    const int64_t first = at.column / TILES_COLUMNS,
                  rows = tiles_are_values(g->tiled) ? g->row.group : TILES_K,
                  from = one ? 0 : at.row / rows, to = one ? 1 : (at.row + at.rows - 1) / rows + 1,
                  bytes = g->strip / (one ? 1 : (K - 1) / rows + 1);
    return (blocks_fetch_t){.data = g->data + first * g->strip + from * bytes,
                            .stride = g->strip,
                            .lines =
                                (int)((at.column + at.columns - 1) / TILES_COLUMNS - first) + 1,
                            .bytes = (int)((to - from) * bytes)};
}

/* Some rows and columns of a matrix that is contiguous along one of both; else nothing. */
static blocks_fetch_t lines_of(const groups_t *g, rect_t at)
{
    const bool down = g->row.stride == 1;
    if (!down && g->column.stride != 1) {
        return (blocks_fetch_t){.lines = 0};
    }
    const int64_t rows = (at.rows - 1) / g->row.group + 1,
                  columns = (at.columns - 1) / g->column.group + 1,
                  stride = down ? g->column.stride : g->row.stride;
    return (blocks_fetch_t){.data = groups_byte(g, groups_at(g, at.row, at.column)),
                            .stride = stride * g->type->bits / 8,
                            .lines = (int)(down ? columns : rows),
                            .bytes = (int)(((down ? rows : columns) * g->type->bits + 7) / 8)};
}

/* Part `part` of `parts` of what belongs to some rows and columns of B. */
static blocks_fetch_t part_of(const matmul_task_t *t, const groups_t *g, rect_t at, int part,
                              int parts)
{
    if (g->type == NULL || at.rows < 1) {
        return (blocks_fetch_t){.lines = 0};
    }
    blocks_fetch_t of = g->tiled != NOT_TILED ? lines_of_tiles(g, at, t->st->K) : lines_of(g, at);
    const int first = of.lines * part / parts;
    of.data += first * of.stride;
    of.lines = of.lines * (part + 1) / parts - first;
    return of;
}

/* The next strip of B: the products leave memory idle otherwise. */
static void fetch_b(const matmul_task_t *t, int64_t k, int64_t c, int part, int parts,
                    blocks_fetch_t *to)
{
    const blocks_state_t *st = &t->st->blocks;
    const int64_t left = t->st->K - k, column = t->n0 + c;
    if (t->st->patches.on) {
        to[0].lines = to[1].lines = to[2].lines = 0;
        return;
    }
    const int columns = columns_at(t, c);
    const rect_t codes = {k, (int)at_most(left, st->k), column, columns},
                 coefs = {k, k % st->span == 0 ? (int)at_most(left, st->span) : 0, column, columns};
    to[0] = part_of(t, &t->b.codes, codes, part, parts);
    to[1] = part_of(t, &t->b.scale, coefs, part, parts);
    to[2] = part_of(t, &t->b.zp, coefs, part, parts);
}

/* ---- the product ----------------------------------------------------------------------------- */

/* All rows by the strip at column c, whose coefficients are those from block i of a span on, while
 * what comes next is fetched. */
static void multiply(const matmul_task_t *t, int64_t k, int kn, int c, int i, const limb_rows_t *a)
{
    const blocks_state_t *st = &t->st->blocks;
    const int columns = columns_at(t, c);
    const bool last = c + columns >= t->cols;
    /* Long rows stay in the second-level cache, while some columns of B stay in the first. */
    const int part = st->long_rows ? t->rows : PART_ROWS, parts = (t->rows + part - 1) / part;
    blocks_b_t b = t->buf.blocks.b;
    b.apart = strips_apart(st);
    if (st->in_place) {
        b.byte = (int8_t *)(uintptr_t)tiles_at(&t->b.codes, k, t->n0 + c);
        b.apart = columns > TILES_COLUMNS ? t->b.codes.strip : 0;
    }
    b.scale += coefs_at(c, i) + (size_t)(c % BLOCKS_STRIP);
    b.zp += coefs_at(c, i) + (size_t)(c % BLOCKS_STRIP);
    b.shifted = st->shifted;
    b.floats = st->floats;
    b.own = st->own;
    b.nibbles = st->nibbles;
    b.six = st->six;
    for (int r = 0; r < t->rows; r += part) {
        const limb_rows_t rows = rows_from(st, a, r);
        blocks_product_t p = {.rows = (int)at_most(t->rows - r, part),
                              .n = kn,
                              .block = st->block,
                              .columns = columns,
                              .words = st->words,
                              .long_rows = st->long_rows,
                              .first = k == 0,
                              .a = &rows,
                              .b = &b,
                              .c = t->buf.acc + (size_t)r * MM_PANEL + c,
                              .ldc = MM_PANEL};
        fetch_b(t, last ? k + st->k : k, last ? 0 : c + columns, r / part, parts, p.next);
        t->c->blocks->product(&p);
    }
}

/* What the sums of w are multiplied with to be what sums start from: those of rows with the same
 * offset. */
static int32_t start_factor(const matmul_task_t *t)
{
    const blocks_state_t *st = &t->st->blocks;
    const groups_t *zps = &t->st->a.base.zp;
    float zp = 0;
    if (st->own) {
        return 1;
    }
    if (!st->codes) {
        return -128;
    }
    if (zps->type != NULL) {
        zps->type->codec.load_f32(zps->data, zps->first, 0, 1, &zp);
    }
    return fabsf(zp) <= MATMUL_ZP_MOST ? -(int32_t)(zp * st->a_steps + st->a_bias) : 0;
}

/* The same of columns c..c + n, where some rows are not for integers: these are multiplied in
 * floats. What is done for a row depends neither on other rows nor on the shares. */
static void multiply_each(const matmul_task_t *t, int64_t k, int kn, int c, int n, int i)
{
    const limb_rows_t *a = &t->buf.blocks.a;
    float before[MM_HEIGHT][BLOCKS_STRIP];
    float acc[BLOCKS_ROWS * MM_PANEL]; /* products of integers write to some rows behind */
    for (int r0 = 0; r0 < t->rows; r0 += MM_HEIGHT) {
        matmul_task_t some = *t;
        some.row0 += r0;
        some.rows = (int)at_most(t->rows - r0, MM_HEIGHT);
        some.buf.acc += (size_t)r0 * MM_PANEL;
        for (int r = 0; r < some.rows; r++) {
            memcpy(before[r], some.buf.acc + (size_t)r * MM_PANEL + c, (size_t)n * sizeof(float));
        }
        matmul_add(&some, k, kn, c, n);
        for (int r = 0; r < some.rows; r++) {
            matmul_task_t one = some;
            one.row0 += r;
            one.rows = 1;
            one.buf.acc = acc;
            if (!quantise_rows(&one, k, kn, a)) {
                continue;
            }
            memset(acc, 0, sizeof acc);
            memcpy(acc + c, before[r], (size_t)n * sizeof(float));
            for (int s = c; s < c + n; s += columns_at(t, s)) {
                load_b(&one, k, kn, s, i);
                multiply(&one, k, kn, s, i, a);
            }
            memcpy(some.buf.acc + (size_t)r * MM_PANEL + c, acc + c, (size_t)n * sizeof(float));
        }
    }
}

void blocks_panel(matmul_task_t *t)
{
    const blocks_state_t *st = &t->st->blocks;
    const int64_t K = t->st->K;
    bool *fits = t->buf.blocks.fits;
    t->buf.blocks.factor = start_factor(t);
    for (int64_t k = 0; k < K; k += st->k) {
        const int kn = (int)at_most(K - k, st->k), i = (int)(k % st->span / st->block);
        limb_rows_t a;
        const bool usable = load_a(t, k, kn, &a);
        for (int c = 0; c < t->cols; c += BLOCKS_STRIP) {
            if (i == 0) {
                fits[c / BLOCKS_STRIP] = load_coefs(t, k, at_most(K - k, st->span), c);
            }
            if (usable && fits[c / BLOCKS_STRIP]) {
                const int end = (int)at_most(c + BLOCKS_STRIP, t->cols);
                for (int s = c; s < end; s += columns_at(t, s)) {
                    load_b(t, k, kn, s, i);
                    multiply(t, k, kn, s, i, &a);
                }
            } else {
                report_detour(t->worker, usable ? "some by floats (scales or zero points of B do "
                                                  "not suit integers)"
                                                : "some by floats (rows of A do not suit "
                                                  "integers)");
                const int n = (int)at_most(t->cols - c, BLOCKS_STRIP);
                for (int r = 0; r < t->rows && st->long_rows && k == 0; r++) {
                    memset(t->buf.acc + (size_t)r * MM_PANEL + c, 0, BLOCKS_STRIP * sizeof(float));
                }
                if (fits[c / BLOCKS_STRIP] && !t->st->patches.on) {
                    multiply_each(t, k, kn, c, n, i);
                } else {
                    matmul_add(t, k, kn, c, n);
                }
            }
        }
    }
}
