/* Decoding attention: which operands it takes, and the work around the micro-kernels. */
#include "backend_xsmm/drivers/attention_decode.h"

#include <string.h>

#include "backend_xsmm/kernel.h"

const decode_table_t *decode_table(features_t features)
{
#if defined(__x86_64__)
    if (has_features(features, NEEDS_AVX512)) {
        return &decode_table_avx512;
    }
    if (has_features(features, NEEDS_AVX2)) {
        return &decode_table_avx2;
    }
#endif
    (void)features;
    return NULL;
}

const codes_table_t *codes_table(features_t features)
{
#if defined(__x86_64__)
    if (has_features(features, NEEDS_AVX512_VNNI)) {
        return &codes_table_avx512_vnni;
    }
#endif
    (void)features;
    return NULL;
}

/* ---- binding --------------------------------------------------------------------------------- */

/* Along the head and along the tokens: strides and group sizes of scales or zero points. */
typedef struct grouping {
    bool there;
    int64_t head_stride, head_group, token_stride, token_group;
    int groups; /* along the head */
} grouping_t;

static grouping_t grouping(const void *data, bool tokens_are_rows, int64_t rs, int64_t cs,
                           int64_t gr, int64_t gc, int64_t head)
{
    grouping_t g = {.there = data != NULL};
    g.head_stride = tokens_are_rows ? cs : rs;
    g.head_group = tokens_are_rows ? gc : gr;
    g.token_stride = tokens_are_rows ? rs : cs;
    g.token_group = tokens_are_rows ? gr : gc;
    g.groups = !g.there || g.head_stride == 0 || head == 0 ? 1 : (int)(head / g.head_group);
    return g;
}

static grouping_t scales_of(const tile_src_t *s, bool tokens_are_rows, int64_t head)
{
    return grouping(s->scale, tokens_are_rows, s->scale_rs, s->scale_cs, s->scale_gr, s->scale_gc,
                    head);
}

static grouping_t zps_of(const tile_src_t *s, bool tokens_are_rows, int64_t head)
{
    return grouping(s->zp, tokens_are_rows, s->zp_rs, s->zp_cs, s->zp_gr, s->zp_gc, head);
}

static bool varies_by_token(const grouping_t *g)
{
    return g->there && g->token_stride != 0 && g->token_group < DECODE_LANES;
}

/* The finer groups along the head, of which the other ones are whole numbers; 0: they do not fit
 * each other or the lanes. */
static int common_groups(const grouping_t *scale, const grouping_t *zp, const decode_ops_t *ops,
                         int lanes, int64_t head)
{
    const int s = scale->there ? scale->groups : 1, z = zp->there ? zp->groups : 1,
              n = s > z ? s : z;
    return n % s == 0 && n % z == 0 && n <= lanes && (n == 1 || head / n % ops->unit == 0) ? n : 0;
}

/* Whole bytes: where every row starts. */
static bool rows_on_bytes(const tile_operand_t *op, const tile_src_t *s, int64_t row_stride)
{
    const int bits = s->type->bits;
    bool ok = s->first * bits % 8 == 0 && row_stride * bits % 8 == 0;
    for (int d = 0; d + 2 < op->ndims; d++) {
        ok = ok && (op->dims[d] == 1 || op->stride[d] * bits % 8 == 0);
    }
    return ok;
}

static void fill_order(decode_side_t *side)
{
    const code_layout_t *o = &side->ops->layout;
    for (int at = 0; at < side->padded; at++) {
        const int in_chunk = at % o->elems,
                  place = side->codes ? side->codes->element(in_chunk)
                                      : o->element(in_chunk / side->lanes, in_chunk % side->lanes);
        const int e = at / o->elems * o->elems + place;
        side->order[at] = (int16_t)(e < side->head * side->fold ? e : -1);
    }
}

/* The group of each lane of each class: that of the element of its first vector. */
static void fill_groups(decode_side_t *side)
{
    const int per_class = side->ops->layout.vectors / side->ops->layout.classes,
              size = side->head / side->groups;
    for (int i = 0; i < side->classes * side->lanes; i++) {
        const int e = side->order[i / side->lanes * per_class * side->lanes + i % side->lanes];
        side->group_at[i] =
            e < 0 ? 0 : e / size; /* of two tokens: one's groups after the other's */
    }
    for (int i = 0; i < side->groups * side->lanes; i++) { /* by token */
        side->group_row[i] = i / side->groups;
    }
}

/* Where the coefficients of each corner are. */
static void fill_corners(decode_side_t *side)
{
    const int quad = side->codes->quad, size = side->head / side->groups,
              chunks = side->padded / side->codes->elems;
    side->near = true;
    for (int i = 0; i < chunks * 16; i++) {
        const int e = i / 4 * quad,
                  token = i % 4 * side->fold + (e < side->fold * side->head ? e / side->head : 0);
        side->corner[i] =
            token * side->groups + (e < side->fold * side->head ? e % side->head / size : 0);
        side->near = side->near && side->corner[i] < 16;
    }
}

/* Integers want whole quads in a group and zero points as small as codes. */
static bool fits_codes(const codes_ops_t *o, const tile_src_t *s, const decode_side_t *side)
{
    const bool small = s->zp == NULL || (s->zp_type->cls == DTYPE_INT && s->zp_type->bits <= 8);
    return small && side->groups > 0 &&
           (side->groups == 1 || side->head / side->groups % o->quad == 0);
}

const char *decode_bind(const decode_table_t *table, const decode_how_t *how,
                        const tile_operand_t *op, bool tokens_are_rows, decode_side_t *side)
{
    const tile_src_t *s = &op->base;
    const int n = op->ndims;
    const int64_t head = tokens_are_rows ? op->dims[n - 1] : op->dims[n - 2],
                  along = tokens_are_rows ? s->cs : s->rs;
    const grouping_t scale = scales_of(s, tokens_are_rows, head),
                     zp = zps_of(s, tokens_are_rows, head);
    side->ops = NULL;
    if ((int)s->dtype >= table->n_ops || table->ops[s->dtype].layout.elems == 0) {
        return "no decoder for the data type";
    }
    const decode_ops_t *ops = &table->ops[s->dtype];
    const code_layout_t *o = &ops->layout;
    if (s->high != NULL) {
        return "split codes";
    }
    if (along != 1 && head > 1) {
        return "the head is not contiguous";
    }
    if (head < 1 || head > DECODE_HEAD || head % o->multiple != 0) {
        return "the head is longer than 256 or not a multiple of what the decoder takes at once";
    }
    if (!rows_on_bytes(op, s, tokens_are_rows ? s->rs : s->cs)) {
        return "rows do not start at whole bytes";
    }
    side->lanes = table->lanes;
    side->head = (int)head;
    side->quantised = scale.there || zp.there;
    side->groups = common_groups(&scale, &zp, ops, table->lanes, head);
    side->by_lane =
        varies_by_token(&scale) ||
        /* codes less zero points are exact only before anything is multiplied with them */
        zp.there;
    if (side->by_lane && side->groups == 0) {
        return "groups along the head do not fall on lanes";
    }
    if (side->by_lane && ops->qk[zp.there ? 2 : 1][0] == NULL) {
        return "no decoder for the data type with scales or zero points";
    }
    side->ops = ops;
    side->codes = how->codes && fits_codes(how->codes, s, side) ? how->codes : NULL;
    side->limbs = how->limbs;
    side->any_tiny = scale.there && s->scale_type->digits < 24 && s->scale_type->max < 0x1p100
                         ? NULL
                         : table->any_tiny;
    const bool halves = o->element(o->vectors - 1, table->lanes / 2 - 1) <
                        o->elems / 2; /* of a chunk are those of its vectors */
    side->fold = (side->by_lane || side->codes) && (halves || side->codes) &&
                         2 * head == o->elems && (tokens_are_rows ? s->rs : s->cs) == head &&
                         2 * side->groups <= table->lanes
                     ? 2
                     : 1;
    side->padded = (int)((head + o->elems - 1) / o->elems) * o->elems;
    side->classes = side->padded / o->elems * o->classes;
    fill_order(side);
    if (s->type->bits == 4) {
        dtype_nibble_values(&s->type->codec, side->values);
    }
    if (side->codes) {
        for (int i = 0; i < 16; i++) {
            side->table[i] =
                (unsigned char)(side->values[i] / side->codes->unit + (float)side->codes->offset);
        }
        fill_corners(side);
    } else if (side->by_lane) {
        fill_groups(side);
    }
    return NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

size_t decode_buffers(int rows, bool codes, unsigned char *scratch, decode_buffers_t *out)
{
    const size_t r = (size_t)rows;
    size_t at = 0;
    out->q = carve(scratch, &at, r * DECODE_ORDER, sizeof(float));
    out->scale = carve(scratch, &at, DECODE_TOKENS * DECODE_LANES + 16, sizeof(float));
    out->zp = carve(scratch, &at, DECODE_TOKENS * DECODE_LANES + 16, sizeof(float));
    out->folded = carve(scratch, &at, r * DECODE_HEAD, sizeof(float));
    out->run = carve(scratch, &at, r * DECODE_ORDER, sizeof(float));
    out->coef = carve(scratch, &at, DECODE_HEAD, sizeof(float));
    out->tile = carve(scratch, &at, DECODE_SLOW * DECODE_HEAD, sizeof(float));
    out->tame = carve(scratch, &at, 1, sizeof(bool));
    out->codes = codes ? carve(scratch, &at, 1, sizeof(codes_query_t)) : NULL;
    out->weights = codes ? carve(scratch, &at, 1, sizeof(codes_weights_t)) : NULL;
    return at;
}

/* ---- coefficients ---------------------------------------------------------------------------- */

/* A matrix of scales or zero points alone: rows are token groups, columns groups along the head. */
static tile_src_t coefs_of(const tile_src_t *s, bool zps, const grouping_t *g)
{
    tile_src_t m = tile_coefs(s, zps);
    m.rs = g->token_stride;
    m.cs = g->head_stride;
    return m;
}

/* True if scales are folded into the query, or into a result in the order of the head. */
static bool is_folded(const decode_side_t *side)
{
    return !side->codes && side->quantised && !side->by_lane;
}

/* One row of coefficients for each token: [nt][groups]. */
static void coefs_by_token(const tile_table_t *tile, const tile_src_t *s, bool zps,
                           const grouping_t *g, int64_t t0, int nt, float *to)
{
    tile_src_t m = coefs_of(s, zps, g);
    const int n = g->groups;
    if (!g->there) {
        for (int i = 0; i < nt * n; i++) {
            to[i] = zps ? 0 : 1;
        }
    } else if (g->token_group == 1 && (n == 1 ? m.rs == 1 : m.cs == 1 && m.rs == n)) { /* one run */
        m.first += t0 * m.rs;
        m.cs = 1;
        const unsigned char *next = m.data + (m.first + nt * n) * m.type->bits / 8;
        for (int64_t i = 0; i < (int64_t)nt * n * m.type->bits / 8; i += 64) {
            __builtin_prefetch(next + i);
        }
        tile->load(&m, 0, 1, 0, nt * n, to, nt * n, 1, nt * n);
    } else if (g->token_group == 1) {
        tile->load(&m, t0, nt, 0, n, to, n, nt, n);
    } else {
        for (int t = 0; t < nt; t++) {
            if (t == 0 || (t0 + t) % g->token_group == 0) {
                tile->load(&m, (t0 + t) / g->token_group, 1, 0, n, to + t * n, n, 1, n);
            } else {
                memcpy(to + t * n, to + (t - 1) * n, (size_t)n * sizeof(float));
            }
        }
    }
}

/* The scales of one token spread over the head. */
static void coefs_by_element(const tile_table_t *tile, const tile_src_t *s, const grouping_t *g,
                             int64_t t, int head, float *to)
{
    const tile_src_t m = coefs_of(s, false, g);
    float values[DECODE_HEAD];
    tile->load(&m, t / g->token_group, 1, 0, g->groups, values, DECODE_HEAD, 1, g->groups);
    for (int e = 0; e < head; e++) {
        to[e] = values[g->groups == 1 ? 0 : e / g->head_group];
    }
}

/* Tokens from t on (fewer than n) that have the same scales. */
static int stretch(const grouping_t *scale, int64_t t, int n)
{
    const int64_t left = scale->token_stride != 0 ? scale->token_group - t % scale->token_group : n;
    return left < n ? (int)left : n;
}

/* ---- what stays in the range of floats ------------------------------------------------------- */

/* The bits of the largest |x|; infinities and NaNs are above all numbers. */
static int32_t largest(const float *x, int64_t n)
{
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
    }
    return most;
}

/* Weights other than probabilities may be large. True if they stay finite when they are multiplied
 * with codes, or with n scales and then with codes. */
static bool weights_are_tame(int rows, const float *p, int64_t ldp, int nt, const float *scale,
                             int n)
{
    int32_t most = 0;
    float p_most, scale_most = 1;
    for (int r = 0; r < rows; r++) {
        const int32_t of_row = largest(p + r * ldp, nt);
        most = of_row > most ? of_row : most;
    }
    memcpy(&p_most, &most, sizeof(p_most));
    if (n > 0) {
        most = largest(scale, n);
        memcpy(&scale_most, &most, sizeof(scale_most));
    }
    return p_most < 0x1p100f && scale_most < 0x1p100f && p_most * scale_most < 0x1p100f;
}

/* ---- the query ------------------------------------------------------------------------------- */

/* Query r of all, from src in the order of the head, to its places among its batch. */
static void place_query(const decode_side_t *k, const decode_buffers_t *b, int rows, int r,
                        const float *src)
{
    const int lanes = k->lanes;
    int first = 0, batch = rows_batch(rows);
    for (; r >= first + batch; batch = rows_batch(rows - first)) {
        first += batch;
    }
    float *to = b->q + first * DECODE_ORDER + (r - first) * lanes;
    for (int i = 0; i < k->padded; i++) {
        to[i / lanes * batch * lanes + i % lanes] =
            k->order[i] < 0 ? 0 : src[k->order[i] % k->head];
    }
}

static void query_codes(const decode_side_t *k, codes_query_t *codes, int r, const float *q)
{
    const int elems = k->codes->elems;
    float x[DECODE_ORDER];
    for (int e = 0; e < k->padded; e++) {
        x[e] = e < k->fold * k->head ? q[e % k->head] : 0;
    }
    for (int c = 0; c < k->padded / elems; c++) {
        codes->usable = k->codes->quantise(x + c * elems, k->limbs, r, c, codes) && codes->usable;
    }
}

void decode_query(const decode_side_t *k, const decode_buffers_t *b, int rows, const float *q,
                  int64_t ld)
{
    if (k->codes) {
        b->codes->usable = true;
        for (int r = 0; r < rows; r++) {
            query_codes(k, b->codes, r, q + r * ld);
        }
        return;
    }
    *b->tame = true;
    for (int r = 0; r < rows; r++) {
        *b->tame = is_tame_bits(largest(q + r * ld, k->head)) && *b->tame;
        place_query(k, b, rows, r, q + r * ld);
    }
}

/* ---- the products ---------------------------------------------------------------------------- */

/* Which of the micro-kernels' coefficients rows have. */
static int coefs_kind(const decode_rows_t *rows)
{
    return rows->zp ? 2 : rows->scale ? 1 : 0;
}

/* Queries have DECODE_ORDER floats each. */
static void qk(const decode_ops_t *ops, const decode_rows_t *k, int nq, const float *q, float *s,
               int64_t lds)
{
    for (int r = 0, n; r < nq; r += n) {
        n = rows_batch(nq - r);
        ops->qk[coefs_kind(k)][n / 2](k, q + r * DECODE_ORDER, s + r * lds, lds);
    }
}

static void pv(const decode_ops_t *ops, const decode_rows_t *v, int nq, const float *p, int64_t ldp,
               float *acc, int64_t ldacc)
{
    for (int r = 0, n; r < nq; r += n) {
        n = rows_batch(nq - r);
        ops->pv[coefs_kind(v)][n / 2](v, p + r * ldp, ldp, acc + r * ldacc, ldacc);
    }
}

static const unsigned char *row_of(const tile_src_t *s, int64_t step, int64_t t)
{
    return s->data + (s->first + t * step) * s->type->bits / 8;
}

static decode_rows_t rows_at(const decode_side_t *side, const tile_src_t *s, bool tokens_are_rows,
                             int64_t t, int nt)
{
    const int64_t step = tokens_are_rows ? s->rs : s->cs;
    return (decode_rows_t){.data = row_of(s, step, t),
                           .stride = side->fold * step * s->type->bits / 8,
                           .rows = nt / side->fold,
                           .n = side->fold * side->head,
                           .fold = side->fold,
                           .values = side->values};
}

static void load_coefs(const tile_table_t *tile, const decode_side_t *side, const tile_src_t *s,
                       const grouping_t *scale, const grouping_t *zp, const decode_buffers_t *b,
                       int64_t t0, int nt)
{
    coefs_by_token(tile, s, false, scale, t0, nt, b->scale);
    repeat_each(b->scale, (int64_t)nt * scale->groups, side->groups / scale->groups);
    if (zp->there) {
        coefs_by_token(tile, s, true, zp, t0, nt, b->zp);
        repeat_each(b->zp, (int64_t)nt * zp->groups, side->groups / zp->groups);
    }
}

static void add_lanes(const tile_table_t *tile, const decode_side_t *side, const tile_src_t *s,
                      const grouping_t *scale, const grouping_t *zp, const decode_buffers_t *b,
                      int64_t t0, int nt, decode_rows_t *rows)
{
    load_coefs(tile, side, s, scale, zp, b, t0, nt);
    rows->scale = b->scale;
    rows->groups = side->fold * side->groups;
    rows->group_at = side->group_at;
    rows->group_row = side->group_row;
    rows->zp = zp->there ? b->zp : NULL;
}

static codes_rows_t codes_at(const tile_table_t *tile, const decode_side_t *side,
                             const tile_src_t *s, bool tokens_are_rows, const grouping_t *scale,
                             const grouping_t *zp, const decode_buffers_t *b, int64_t t0, int nt)
{
    const int64_t step = tokens_are_rows ? s->rs : s->cs;
    const int rows = nt / side->fold, n = rows * side->fold,
              end = (rows + CODES_ROWS - 1) / CODES_ROWS * CODES_ROWS * side->fold;
    load_coefs(tile, side, s, scale, zp, b, t0, nt);
    memset(b->scale + n * side->groups, 0, (size_t)((end - n) * side->groups) * sizeof(float));
    memset(b->zp + n * side->groups, 0, (size_t)((end - n) * side->groups) * sizeof(float));
    return (codes_rows_t){.data = row_of(s, step, t0),
                          .stride = side->fold * step * s->type->bits / 8,
                          .rows = rows,
                          .bytes = side->fold * side->head * s->type->bits / 8,
                          .fold = side->fold,
                          .groups = side->groups,
                          .scale = b->scale,
                          .zp = zp->there ? b->zp : NULL,
                          .corner = side->corner,
                          .near = side->near,
                          .flip = side->codes->flip,
                          .table = side->codes->table ? side->table : NULL,
                          .offset = side->codes->offset};
}

/* Scores of a stretch of tokens with the same scales, which go into the query. Returns false and
 * does nothing if the query then is not tame. */
static bool folded_scores(const tile_table_t *tile, const decode_side_t *side, const tile_src_t *k,
                          const grouping_t *scale, const decode_buffers_t *b, int rows,
                          const float *q, int64_t ldq, int64_t t, int nt, float *s, int64_t lds)
{
    const decode_rows_t at = rows_at(side, k, false, t, nt);
    float out[DECODE_ROWS * DECODE_TOKENS];
    coefs_by_element(tile, k, scale, t, side->head, b->coef);
    for (int r = 0; r < rows; r++) {
        for (int e = 0; e < side->head; e++) {
            b->folded[e] = q[r * ldq + e] * b->coef[e];
        }
        if (!is_tame_bits(largest(b->folded, side->head))) {
            return false;
        }
        place_query(side, b, rows, r, b->folded);
    }
    qk(side->ops, &at, rows, b->q, out, DECODE_TOKENS);
    for (int r = 0; r < rows; r++) {
        memcpy(s + r * lds, out + r * DECODE_TOKENS, (size_t)nt * sizeof(float));
    }
    return true;
}

/* Values first, then products. */
static void slow_scores(const tile_table_t *tile, const decode_side_t *side, const tile_src_t *k,
                        const decode_buffers_t *b, int rows, const float *q, int64_t ldq,
                        int64_t t0, int nt, float *s, int64_t lds)
{
    for (int t = 0; t < nt; t += DECODE_SLOW) {
        const int n = nt - t < DECODE_SLOW ? nt - t : DECODE_SLOW;
        tile->load(k, 0, side->head, t0 + t, n, b->tile, DECODE_SLOW, side->head, n);
        tile->gemm(rows, n, side->head, q, ldq, b->tile, DECODE_SLOW, s + t, lds, false);
    }
}

void decode_scores(const tile_table_t *tile, const decode_side_t *side, const tile_src_t *k,
                   const decode_buffers_t *b, int rows, const float *q, int64_t ldq, int64_t t0,
                   int nt, float *s, int64_t lds)
{
    const grouping_t scale = scales_of(k, false, side->head), zp = zps_of(k, false, side->head);
    decode_rows_t at = rows_at(side, k, false, t0, nt);
    if (side->codes ? !b->codes->usable : side->by_lane && !*b->tame) {
        slow_scores(tile, side, k, b, rows, q, ldq, t0, nt, s, lds);
        return;
    }
    if (is_folded(side)) {
        for (int done = 0, n; done < nt; done += n) {
            n = stretch(&scale, t0 + done, nt - done);
            if (!folded_scores(tile, side, k, &scale, b, rows, q, ldq, t0 + done, n, s + done,
                               lds)) {
                slow_scores(tile, side, k, b, rows, q, ldq, t0 + done, n, s + done, lds);
            }
        }
        return;
    }
    if (side->codes) {
        const codes_rows_t codes = codes_at(tile, side, k, false, &scale, &zp, b, t0, nt);
        side->codes->qk(&codes, rows, side->limbs, b->codes, s, lds);
    } else {
        if (side->by_lane) {
            add_lanes(tile, side, k, &scale, &zp, b, t0, nt, &at);
        }
        qk(side->ops, &at, rows, b->q, s, lds);
    }
    if (nt % side->fold != 0) { /* the last token alone */
        slow_scores(tile, side, k, b, rows, q, ldq, t0 + nt - 1, 1, s + nt - 1, lds);
    }
}

static void folded_values(const tile_table_t *tile, const decode_side_t *side, const tile_src_t *v,
                          const grouping_t *scale, const decode_buffers_t *b, int rows,
                          const float *p, int64_t ldp, int64_t t, int nt, float *acc, int64_t ldacc)
{
    const decode_rows_t at = rows_at(side, v, true, t, nt);
    coefs_by_element(tile, v, scale, t, side->head, b->coef);
    memset(b->run, 0, (size_t)rows * DECODE_ORDER * sizeof(float));
    pv(side->ops, &at, rows, p, ldp, b->run, DECODE_ORDER);
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < side->padded; i++) {
            const int e = side->order[i];
            if (e >= 0) {
                acc[r * ldacc + e] += b->run[r * DECODE_ORDER + i] * b->coef[e];
            }
        }
    }
}

/* Values first, then weights: for scales that p must not be multiplied with, and for weights that
 * codes must not be multiplied with. */
static void slow_values(const tile_table_t *tile, const decode_side_t *side, const tile_src_t *v,
                        const decode_buffers_t *b, int rows, const float *p, int64_t ldp,
                        int64_t t0, int nt, float *acc, int64_t ldacc)
{
    for (int t = 0; t < nt; t += DECODE_SLOW) {
        const int n = nt - t < DECODE_SLOW ? nt - t : DECODE_SLOW;
        tile->load(v, t0 + t, n, 0, side->head, b->tile, DECODE_HEAD, n, side->head);
        tile->gemm(rows, side->head, n, p + t, ldp, b->tile, DECODE_HEAD, b->folded, DECODE_HEAD,
                   t > 0);
    }
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < side->padded; i++) {
            const int e = is_folded(side) ? i : side->order[i];
            acc[r * ldacc + i] += e < 0 || e >= side->head ? 0 : b->folded[r * DECODE_HEAD + e];
        }
    }
}

static void codes_values(const tile_table_t *tile, const decode_side_t *side, const tile_src_t *v,
                         const decode_buffers_t *b, int rows, const codes_rows_t *all,
                         const float *p, int64_t ldp, int64_t t0, float *acc, int64_t ldacc)
{
    for (int row = 0; row < all->rows; row += CODES_BLOCK) {
        const int t = row * side->fold;
        codes_rows_t at = *all;
        at.data += row * all->stride;
        at.rows = all->rows - row < CODES_BLOCK ? all->rows - row : CODES_BLOCK;
        at.scale += t * all->groups;
        at.zp = all->zp ? all->zp + t * all->groups : NULL;
        for (int r = 0, n; r < rows; r += n) {
            n = rows_batch(rows - r);
            if (!side->codes->pv(&at, n, side->limbs, p + r * ldp + t, ldp, b->weights,
                                 acc + r * ldacc, ldacc)) {
                slow_values(tile, side, v, b, n, p + r * ldp + t, ldp, t0 + t, at.rows * side->fold,
                            acc + r * ldacc, ldacc);
            }
        }
    }
}

void decode_accumulate(const tile_table_t *tile, const decode_side_t *side, const tile_src_t *v,
                       const decode_buffers_t *b, int rows, const float *p, int64_t ldp, int64_t t0,
                       int nt, float *acc, int64_t ldacc)
{
    const grouping_t scale = scales_of(v, true, side->head), zp = zps_of(v, true, side->head);
    decode_rows_t at = rows_at(side, v, true, t0, nt);
    if (is_folded(side)) {
        if (side->any_weight && !weights_are_tame(rows, p, ldp, nt, NULL, 0)) {
            slow_values(tile, side, v, b, rows, p, ldp, t0, nt, acc, ldacc);
            return;
        }
        for (int done = 0, n; done < nt; done += n) {
            n = stretch(&scale, t0 + done, nt - done);
            folded_values(tile, side, v, &scale, b, rows, p + done, ldp, t0 + done, n, acc, ldacc);
        }
        return;
    }
    codes_rows_t codes;
    if (side->codes) {
        codes = codes_at(tile, side, v, true, &scale, &zp, b, t0, nt);
    } else if (side->by_lane) {
        add_lanes(tile, side, v, &scale, &zp, b, t0, nt, &at);
    }
    const int n_scales = side->codes || side->by_lane ? nt * side->groups : 0;
    const bool tiny = n_scales > 0 && side->any_tiny && side->any_tiny(b->scale, n_scales);
    if (tiny || (side->by_lane && side->any_weight &&
                 !weights_are_tame(rows, p, ldp, nt, b->scale, n_scales))) {
        slow_values(tile, side, v, b, rows, p, ldp, t0, nt, acc, ldacc);
        return;
    }
    if (side->codes) {
        codes_values(tile, side, v, b, rows, &codes, p, ldp, t0, acc, ldacc);
    } else {
        pv(side->ops, &at, rows, p, ldp, acc, ldacc);
    }
    if (nt % side->fold != 0) { /* the last token alone */
        slow_values(tile, side, v, b, rows, p + nt - 1, ldp, t0 + nt - 1, 1, acc, ldacc);
    }
}

void decode_restore(const decode_side_t *v, const decode_buffers_t *b, int rows, float *acc,
                    int64_t ldacc)
{
    if (is_folded(v)) {
        return;
    }
    for (int r = 0; r < rows; r++) {
        memcpy(b->run, acc + r * ldacc, (size_t)v->padded * sizeof(float));
        memset(acc + r * ldacc, 0, (size_t)v->head * sizeof(float));
        for (int i = 0; i < v->padded; i++) {
            if (v->order[i] >= 0) {
                acc[r * ldacc + v->order[i] % v->head] += b->run[i];
            }
        }
    }
}
