/* Tiles of K and V in products of integers, for the fpmath mode that allows 8 bits: see
 * attention.h for the algorithm and ukernels/matmul_blocks.h for the products.
 *
 *   Q K   rows of Q are quantised once, by groups of D inside which no scale of K changes. K's
 *         codes are bytes less their zero points.
 *   P V   V's scales change from token to token. They are multiplied into the weights, once for
 *         each range of columns that share them, before those are quantised for ATT_SPAN tokens.
 *
 * Zero points that are floats, and offsets as such, stay out of the bytes: of K they are multiplied
 * with the sums of the quantised Q, of V with the quantised weights. So an error of either meets
 * the value, as the contract wants it, and not the code.
 *
 * A strip goes by floats if its operands have a NaN or an infinity, or are too small or too
 * large. */
#include "backend_xsmm/drivers/attention/attention_task.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    STRIP = BLOCKS_STRIP,
    LEAST_COLUMNS = 32, /* that products work on at a time */
    SPANS = ATT_TK / ATT_SPAN,
    MOST_PARTS = 4 /* of ATT_HEAD elements: the least part has two blocks of 88 */
};

/* ---- binding --------------------------------------------------------------------------------- */

/* Whether there is one scale for all of an axis, or one for each element. */
static bool one_or_each(const groups_t *g, const axis_t *axis, int64_t n)
{
    return groups_are_one(g, axis, n) || axis->group == 1;
}

static float unit_of(const groups_t *codes)
{
    return codes->dtype == sinter_f4_e2m1 ? 0.5f : 1;
}

/* Codes that are contiguous along D, in tokens that begin with whole bytes, and whose zero points
 * do not change inside blocks. */
static void bind_direct(attention_state_t *st, bool sums_bytes)
{
    attention_ints_t *ints = &st->ints;
    const attention_dims_t *d = &st->d;
    const groups_t *codes = &st->k.base.codes, *zp = &st->k.base.zp;
    const int bits = codes->type->bits, each = 32 / bits; /* codes of a dword */
    const int64_t stride = codes->column.stride;
    float x[16];
    ints->direct = (bits == 4 || bits == 8) && codes->row.stride == 1 && stride > 0 &&
                   stride < INT32_MAX / 16 && matrices_on_bytes(&st->k, false) &&
                   ints->block % each == 0 && d->D % each == 0 &&
                   one_or_each(zp, &zp->column, d->T) &&
                   (groups_are_one(zp, &zp->row, d->D) || zp->row.group == ints->block);
    ints->order = ints->direct ? blocks_order(bits, false) : NULL;
    /* Zero points are subtracted from sums where small bytes make products faster. */
    ints->nibbles = ints->direct && bits == 4 && ints->k_unit == 1 && !sums_bytes;
    ints->offset = ints->nibbles && codes->dtype == sinter_u4 ? BLOCKS_NIBBLE : 0;
    ints->shifted = (ints->nibbles && (zp->type != NULL || ints->offset != 0)) || ints->k_floats;
    if (ints->direct && bits == 4) {
        dtype_nibble_values(&codes->type->codec, x);
        for (int i = 0; i < 16; i++) {
            ints->table[i] = (int8_t)(x[i] / ints->k_unit - ints->offset);
        }
    }
}

const char *ints_refuse(int kind, const void *config, void *state)
{
    const attention_config_t *c = config;
    attention_state_t *st = state;
    const attention_dims_t *d = &st->d;
    const groups_t *k = &st->k.base.scale, *v = &st->v.base.scale, *k_zp = &st->k.base.zp,
                   *v_zp = &st->v.base.zp;
    attention_ints_t *ints = &st->ints;
    (void)kind;
    *ints = (attention_ints_t){0};
    if (c->blocks == NULL) {
        return "";
    }
    if (!one_or_each(k, &k->column, d->T) || !one_or_each(v, &v->row, d->T)) {
        return "tokens share scales of K or V";
    }
    const bool k_one = groups_are_one(k, &k->row, d->D),
               v_one = groups_are_one(v, &v->column, d->Dv);
    const int64_t block = k_one ? BLOCKS_LONGEST : k->row.group;
    if (block % 4 != 0 || block < BLOCKS_LEAST || block > BLOCKS_LONGEST || d->D % 4 != 0) {
        return "groups of K are not made of blocks of 16 to 128 elements";
    }
    if (!v_one && v->column.group % LEAST_COLUMNS != 0) {
        return "groups of V are not made of ranges of 32 elements";
    }
    ints->block = (int)block;
    ints->part = d->D <= BLOCKS_K ? (int)d->D : BLOCKS_K / (int)block * (int)block;
    ints->parts = (int)((d->D + ints->part - 1) / ints->part);
    ints->group = (int)(v_one ? c->dv : v->column.group);
    ints->groups = (int)((d->Dv + ints->group - 1) / ints->group);
    ints->k_floats = has_offsets(&st->k.base);
    ints->v_floats = has_offsets(&st->v.base);
    /* Float zero points must go with the groups of the scales. */
    if (ints->k_floats && (!one_or_each(k_zp, &k_zp->column, d->T) ||
                           (!groups_are_one(k_zp, &k_zp->row, d->D) && k_zp->row.group != block))) {
        return "zero points of K are floats and have other groups than its scales";
    }
    if (ints->v_floats &&
        (!one_or_each(v_zp, &v_zp->row, d->T) ||
         (!groups_are_one(v_zp, &v_zp->column, d->Dv) && v_zp->column.group != ints->group))) {
        return "zero points of V are floats and have other groups than its scales";
    }
    ints->on = true;
    ints->k_unit = unit_of(&st->k.base.codes);
    ints->v_unit = unit_of(&st->v.base.codes);
    bind_direct(st, c->blocks->sums_bytes);
    ints->v_nibbles =
        st->v.base.codes.dtype == sinter_s4 && (st->v.base.zp.type == NULL || ints->v_floats);
    return NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t strips_of(int columns)
{
    return ((size_t)columns + STRIP - 1) / STRIP;
}

void ints_buffers(const attention_config_t *c, unsigned char *base, size_t *at,
                  attention_int_buffers_t *out)
{
    const size_t parts = c->dk <= BLOCKS_K ? 1 : MOST_PARTS,
                 coefs = strips_of(c->tk) * parts * BLOCKS_MOST * STRIP,
                 rows = (size_t)c->rows * parts, weights = blocks_rows(c->strip);
    out->q = carve_limbs(base, at, rows * BLOCKS_K, 0, rows * BLOCKS_MOST, 0);
    out->p = carve_limbs(base, at, weights * BLOCKS_K, 0, weights * BLOCKS_MOST, 0);
    out->usable = carve(base, at, (size_t)c->rows, sizeof(bool));
    out->k = carve(base, at, strips_of(c->tk) * STRIP, (size_t)c->dk);
    out->v = carve(base, at, strips_of(c->dv) * STRIP, (size_t)c->tk);
    out->k_start = carve(base, at, coefs, sizeof(int32_t));
    out->k_z = carve(base, at, coefs, sizeof(int32_t));
    out->k_zp = carve(base, at, BLOCKS_MOST * STRIP, sizeof(float));
    out->k_scale = carve(base, at, coefs, sizeof(float));
    out->v_scale = carve(base, at, strips_of(c->dv) * 2 * (size_t)c->tk, sizeof(float));
    out->v_zp = carve(base, at, strips_of(c->dv) * 2 * (size_t)c->tk, sizeof(float));
    out->zp_offset = carve(base, at, blocks_rows(c->strip), sizeof(float));
    out->no_start = carve(base, at, SPANS * STRIP, sizeof(int32_t));
    out->no_scale = carve(base, at, SPANS * STRIP, sizeof(float));
}

/* ---- Q --------------------------------------------------------------------------------------- */

/* The rows of Q of a strip, a part of D. */
static limb_rows_t queries_of(const task_t *t, const strip_t *strip, int part)
{
    return blocks_from(&t->b.ints.q, false, (int64_t)part * t->c->rows + strip->r0);
}

/* Elements of D in a part. */
static int part_size(const task_t *t, int part)
{
    const attention_ints_t *ints = &t->st->ints;
    return (int)at_most(t->st->d.D - (int64_t)part * ints->part, ints->part);
}

void ints_queries(task_t *t, const strip_t *strip)
{
    const attention_ints_t *ints = &t->st->ints;
    const blocks_form_t form = {.order = ints->order, .factor = 1};
    const float *q = t->b.q + (int64_t)strip->r0 * t->c->ld_q;
    bool usable = true;
    for (int part = 0; part < ints->parts; part++) {
        const limb_rows_t to = queries_of(t, strip, part);
        usable = t->c->blocks->quantise(&form, q + part * ints->part, t->c->ld_q, strip->n,
                                        part_size(t, part), ints->block, &to) &&
                 usable;
    }
    t->b.ints.usable[strip->r0] = usable;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

static bool within(const float *x, size_t n, float least, float most)
{
    bool beyond = false;
    for (size_t i = 0; i < n; i++) {
        beyond |= !(x[i] >= least && x[i] <= most);
    }
    return !beyond;
}

/* Coefficients of `groups` groups from `first` on and of n tokens, [group][ld]. */
static void load_scales(const task_t *t, const groups_t *g, int first, int groups, int64_t t0,
                        int n, float *to, int64_t ld)
{
    const bool by_token = g->type != NULL && g->column.stride != 0 && g->column.group == 1;
    if (g->type == NULL) {
        for (int i = 0; i < groups * ld; i++) {
            to[i] = 1;
        }
        return;
    }
    const matrix_t m = matrix_of_groups(g);
    t->c->tile->load(&m, (rect_t){first, groups, by_token ? t0 : 0, by_token ? n : 1}, to, ld,
                     groups, (int)ld);
    for (int r = 0; r < groups && !by_token; r++) {
        for (int i = 1; i < n; i++) {
            to[r * ld + i] = to[r * ld];
        }
    }
}

static void times_unit(float unit, float *scale, int n)
{
    for (int i = 0; i < n && unit != 1; i++) {
        scale[i] *= unit;
    }
}

/* The same of groups of an axis of n elements, where one may serve all. */
static void load_groups(const task_t *t, const groups_t *g, int64_t n, int first, int groups,
                        int64_t t0, int nt, float *to, int64_t ld)
{
    const bool one = g->type == NULL || groups_are_one(g, &g->row, n);
    load_scales(t, g, one ? 0 : first, one ? 1 : groups, t0, nt, to, ld);
    for (int i = 1; i < groups && one; i++) {
        memcpy(to + i * ld, to, (size_t)ld * sizeof *to);
    }
}

/* Codes, less their zero points unless these are floats. */
static matrix_t integers_of(const matrix_t *m, bool floats)
{
    matrix_t codes = matrix_of_codes(m);
    if (!floats) {
        codes.zp = m->zp;
    }
    return codes;
}

static int blocks_of(const task_t *t, int part)
{
    const int block = t->st->ints.block;
    return (part_size(t, part) + block - 1) / block;
}

/* Zero points of a part and a strip of tokens, and what of them is subtracted from sums: z. Offsets
 * change the scales, too. False: some are not for products with integers. */
static bool load_k_zps(task_t *t, int part, int64_t t0, int n, float *scale, int32_t *z)
{
    const attention_ints_t *ints = &t->st->ints;
    const int blocks = blocks_of(t, part), all = blocks * STRIP;
    float *zp = t->b.ints.k_zp;
    const bool zps = t->k.zp.type != NULL;
    if (zps && (ints->direct || ints->k_floats)) {
        load_groups(t, &t->k.zp, t->st->d.D, part * ints->part / ints->block, blocks, t0, n, zp,
                    STRIP);
    }
    if (ints->k_floats) {
        if (t->k.offsets) {
            t->c->quant->zps_of_offsets(scale, zp, all);
        }
        for (int i = 0; i < all; i++) {
            ((float *)(void *)z)[i] = zp[i] - ints->offset;
        }
        return within(zp, (size_t)all, -ZP_FLOAT_MOST, ZP_FLOAT_MOST);
    }
    for (int i = 0; i < all && ints->shifted; i++) {
        z[i] = (int32_t)((zps ? zp[i] : 0) - ints->offset);
    }
    return true;
}

/* A part of D of a strip of n tokens from t0 on, which is the strip at `at` of the tile. */
static bool load_k_part(task_t *t, int64_t t0, int at, int n, int part)
{
    const attention_int_buffers_t *b = &t->b.ints;
    const attention_ints_t *ints = &t->st->ints;
    const groups_t *codes = &t->k.codes;
    const int blocks = blocks_of(t, part), size = part_size(t, part), first = part * ints->part,
              s = at / STRIP;
    const size_t coefs = ((size_t)s * (size_t)ints->parts + (size_t)part) * BLOCKS_MOST * STRIP;
    float *scale = b->k_scale + coefs;
    int8_t *byte = b->k + (size_t)s * STRIP * (size_t)t->c->dk + (size_t)first * STRIP;
    load_groups(t, &t->k.scale, t->st->d.D, first / ints->block, blocks, t0, n, scale, STRIP);
    times_unit(ints->k_unit, scale, blocks * STRIP);
    const bool usable = load_k_zps(t, part, t0, n, scale, b->k_z + coefs) &&
                        within(scale, (size_t)blocks * STRIP, -FLT_MAX, FLT_MAX);
    if (ints->direct) {
        const blocks_codes_t tokens = {.data = groups_byte(codes, codes_at(codes, first, t0)),
                                       .stride = codes->column.stride * codes->type->bits / 8,
                                       .columns = n,
                                       .n = size,
                                       .block = ints->block,
                                       .bits = codes->type->bits,
                                       .table = ints->table,
                                       .zp =
                                           t->k.zp.type != NULL && !ints->shifted ? b->k_zp : NULL,
                                       .factor = -128};
        t->c->blocks->pack_codes(&tokens, false, byte, b->k_start + coefs);
        return usable;
    }
    const matrix_t floats = integers_of(&t->k, ints->k_floats);
    t->c->tile->load(&floats, (rect_t){first, size, t0, n}, t->b.k, STRIP, size, STRIP);
    for (int e = 0; e < size; e += ints->block) {
        t->c->blocks->pack(t->b.k + e * STRIP, (int)at_most(size - e, ints->block),
                           1 / ints->k_unit, 0, -128, byte + e * STRIP,
                           b->k_start + coefs + e / ints->block * STRIP);
    }
    return usable;
}

static void load_k_ints(task_t *t, int64_t t0, int nt)
{
    t->k_ints = true;
    for (int at = 0; at < nt; at += STRIP) {
        for (int part = 0; part < t->st->ints.parts; part++) {
            t->k_ints =
                load_k_part(t, t0 + at, at, (int)at_most(nt - at, STRIP), part) && t->k_ints;
        }
    }
}

/* Zero points of V that are floats, as many as there are scales; offsets change these. */
static bool load_v_zps(task_t *t, int64_t t0, int nt)
{
    const attention_int_buffers_t *b = &t->b.ints;
    const int groups = t->st->ints.groups, ld = t->c->tk;
    const groups_t zp = groups_transposed(&t->v.zp);
    bool usable = true;
    load_groups(t, &zp, t->st->d.Dv, 0, groups, t0, nt, b->v_zp, ld);
    for (int g = 0; g < groups; g++) {
        float *z = b->v_zp + g * ld;
        memset(z + nt, 0, (size_t)(round_grain(nt) - nt) * sizeof(float));
        if (t->v.offsets) {
            t->c->quant->zps_of_offsets(b->v_scale + g * ld, z, nt);
        }
        usable = usable && within(z, (size_t)nt, -ZP_FLOAT_MOST, ZP_FLOAT_MOST);
    }
    return usable;
}

static void load_v_ints(task_t *t, int64_t t0, int nt)
{
    const attention_int_buffers_t *b = &t->b.ints;
    const attention_ints_t *ints = &t->st->ints;
    const int rows = round_grain(nt);
    const matrix_t codes = integers_of(&t->v, ints->v_floats);
    const groups_t scale = groups_transposed(&t->v.scale);
    int32_t none[STRIP];
    load_scales(t, &scale, 0, ints->groups, t0, nt, b->v_scale, t->c->tk);
    times_unit(ints->v_unit, b->v_scale, ints->groups * t->c->tk);
    t->v_ints = !ints->v_floats || load_v_zps(t, t0, nt);
    for (int g = 0; g < ints->groups; g++) {
        t->v_ints = t->v_ints && within(b->v_scale + g * t->c->tk, (size_t)nt, 0, FLT_MAX);
    }
    for (int at = 0; at < t->dv; at += STRIP) {
        const int n = (int)at_most(t->dv - at, STRIP);
        t->c->tile->load(&codes, (rect_t){t0, nt, t->dv0 + at, n}, t->b.v, STRIP, rows, STRIP);
        t->c->blocks->pack(t->b.v, rows, 1 / ints->v_unit, 0, 0,
                           b->v + (size_t)at * (size_t)t->c->tk, none);
    }
}

void ints_load(task_t *t, int64_t t0, int nt)
{
    const attention_int_buffers_t *b = &t->b.ints;
    load_k_ints(t, t0, nt);
    load_v_ints(t, t0, nt);
    memset(b->no_start, 0, SPANS * STRIP * sizeof *b->no_start);
    for (int i = 0; i < SPANS * STRIP; i++) {
        b->no_scale[i] = 1;
    }
}

/* ---- products -------------------------------------------------------------------------------- */

bool ints_scores(task_t *t, const strip_t *strip, int at, int nt)
{
    const attention_config_t *c = t->c;
    const attention_int_buffers_t *b = &t->b.ints;
    const attention_ints_t *ints = &t->st->ints;
    if (!t->k_ints || !b->usable[strip->r0]) {
        report_detour(t->worker, t->k_ints ? "some by floats (rows of Q do not suit integers)"
                                           : "some by floats (scales of K do not suit integers)");
        return false;
    }
    const int begin = at / LEAST_COLUMNS * LEAST_COLUMNS, end = at + nt;
    for (int r = 0; r < strip->n; r++) {
        memset(t->b.s + r * c->ld_s + begin, 0, (size_t)(round_grain(end) - begin) * sizeof(float));
    }
    for (int i = begin, n; i < end; i += n) {
        const size_t s = (size_t)(i / STRIP), in = (size_t)(i % STRIP);
        n = (int)at_most(end - i, STRIP - (int64_t)in);
        for (int part = 0; part < ints->parts; part++) {
            const size_t coefs =
                (s * (size_t)ints->parts + (size_t)part) * BLOCKS_MOST * STRIP + in;
            const limb_rows_t q = queries_of(t, strip, part);
            const blocks_b_t k = {.byte = b->k + s * STRIP * (size_t)c->dk +
                                          (size_t)(part * ints->part) * STRIP + in * 4,
                                  .scale = b->k_scale + coefs,
                                  .start = b->k_start + coefs,
                                  .zp = b->k_z + coefs,
                                  .shifted = ints->shifted,
                                  .floats = ints->k_floats,
                                  .nibbles = ints->nibbles};
            c->blocks->product(&(blocks_product_t){.rows = strip->n,
                                                   .n = part_size(t, part),
                                                   .block = ints->block,
                                                   .columns = n,
                                                   .a = &q,
                                                   .b = &k,
                                                   .c = t->b.s + i,
                                                   .ldc = c->ld_s});
        }
    }
    return true;
}

/* The weights times V for columns from `column` on that share scales, in integers. */
static void multiply_v(task_t *t, const strip_t *strip, int at, int nt, int column, int columns)
{
    const attention_config_t *c = t->c;
    const attention_int_buffers_t *b = &t->b.ints;
    for (int i = column, n; i < column + columns; i += n) {
        const size_t s = (size_t)(i / STRIP), in = (size_t)(i % STRIP);
        const blocks_b_t v = {.byte =
                                  b->v + s * STRIP * (size_t)c->tk + (size_t)at * STRIP + in * 4,
                              .scale = b->no_scale,
                              .start = b->no_start,
                              .zp = b->no_start,
                              .nibbles = t->st->ints.v_nibbles};
        n = (int)at_most(column + columns - i, STRIP - (int64_t)in);
        c->blocks->product(&(blocks_product_t){.rows = strip->n,
                                               .n = round_grain(nt),
                                               .block = ATT_SPAN,
                                               .columns = n,
                                               .a = &b->p,
                                               .b = &v,
                                               .c = t->b.acc + (int64_t)strip->r0 * c->ld_v + i,
                                               .ldc = c->ld_v});
    }
}

void ints_accumulate(task_t *t, const strip_t *strip, int64_t t0, int at, int nt)
{
    const attention_config_t *c = t->c;
    const attention_int_buffers_t *b = &t->b.ints;
    const attention_ints_t *ints = &t->st->ints;
    for (int g = 0; g < ints->groups; g++) {
        const int column = g * ints->group, columns = (int)at_most(t->dv - column, ints->group);
        const blocks_weights_t weights = {.x = t->b.s + at,
                                          .ldx = c->ld_s,
                                          .factor = b->v_scale + g * c->tk + at,
                                          .zps = ints->v_floats ? b->v_zp + g * c->tk + at : NULL,
                                          .rows = strip->n,
                                          .n = round_grain(nt),
                                          .block = ATT_SPAN,
                                          .zp_offset = b->zp_offset};
        if (t->v_ints && c->blocks->weigh(&weights, &b->p)) {
            multiply_v(t, strip, at, nt, column, columns);
            for (int r = 0; r < strip->n && ints->v_floats; r++) {
                float *acc = t->b.acc + (int64_t)(strip->r0 + r) * c->ld_v + column;
                for (int i = 0; i < columns; i++) {
                    acc[i] -= b->zp_offset[r];
                }
            }
            continue;
        }
        report_detour(t->worker, "some by floats (weights or scales of V do not suit integers)");
        attention_load_v(t, t0);
        c->tile->gemm(&(gemm_t){.m = strip->n,
                                .n = columns,
                                .k = round_grain(nt),
                                .a = t->b.s + at,
                                .lda = c->ld_s,
                                .b = t->b.v + (int64_t)at * c->ld_v + column,
                                .ldb = c->ld_v,
                                .c = t->b.acc + (int64_t)strip->r0 * c->ld_v + column,
                                .ldc = c->ld_v,
                                .add = true});
    }
}
