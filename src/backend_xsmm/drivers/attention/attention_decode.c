/* Decoding attention: which operands it takes, and the work around the micro-kernels. */
#include "backend_xsmm/drivers/attention/attention_decode.h"

#include <string.h>

#include "backend_xsmm/kernel.h"
#include "numeric/quant_rows.h"

/* ---- binding --------------------------------------------------------------------------------- */

/* True if all of an operand of 4-bit codes has the same zero point, and a table of values, which
 * need hold no more than bf16 does, has codes less such a zero point exactly. */
static bool has_one_zp(const matrices_t *op)
{
    const dtype_traits_t *zp = op->base.zp.type, *codes = op->base.codes.type;
    const double most = 256;
    if (zp == NULL || codes->bits != 4 || codes->max - zp->min > most ||
        zp->max - codes->min > most) {
        return false;
    }
    for (int d = 0; d < op->ndims; d++) {
        const axis_t *axis = &op->axis[d][IN_ZP];
        if (op->dims[d] == 0 || (axis->stride != 0 && axis->group < op->dims[d])) {
            return false;
        }
    }
    return true;
}

/* Groups along the head. */
static int groups_of_head(const groups_t *g, int64_t head)
{
    return g->type == NULL ? 1 : (int)axis_groups(&g->column, head);
}

/* Elements of a group along the head; the last group may have fewer. */
static int64_t group_of_head(const groups_t *g, int64_t head)
{
    return groups_are_one(g, &g->column, head) ? head : g->column.group;
}

/* The finer groups along the head, of which the other ones are whole numbers; 0: they do not fit
 * each other or the lanes. size: elements of each but the last one. */
static int common_groups(const matrix_t *m, const decode_ops_t *ops, int64_t head, int *size)
{
    const int64_t s = group_of_head(&m->scale, head), z = group_of_head(&m->zp, head),
                  fine = s < z ? s : z, coarse = s < z ? z : s, n = (head - 1) / fine + 1,
                  n_coarse = (head - 1) / coarse + 1;
    const bool nested = n_coarse == 1 || (coarse % fine == 0 && n == n_coarse * (coarse / fine));
    *size = (int)fine;
    return nested && n <= ops->layout.lanes && (n == 1 || fine % ops->unit == 0) ? (int)n : 0;
}

/* Elements of a chunk, as the micro-kernels in floats or in integers (codes) read it. */
static int chunk_elems(const decode_ops_t *ops, const codes_type_t *codes)
{
    return codes != NULL ? codes->elems : ops->layout.elems;
}

static void fill_order(const decode_ops_t *ops, const codes_type_t *codes, int head, int fold,
                       decode_order_t *order)
{
    const code_layout_t *o = &ops->layout;
    const int elems = chunk_elems(ops, codes), n = head * fold;
    order->padded = (head + elems - 1) / elems * elems;
    order->in_place = true;
    for (int at = 0; at < order->padded; at++) {
        const int chunk = at / elems * elems, i = at - chunk,
                  e = chunk + (codes ? codes->element(i) : o->element(i / o->lanes, i % o->lanes));
        order->element[at] = (int16_t)(e < n ? e : -1);
        order->source[at] = (int16_t)(e < n ? e % head : -1);
        if (e < n) {
            order->place[e] = (int16_t)at;
            order->in_place = order->in_place && e == at;
        }
    }
}

void decode_orders(decode_how_t *how, int64_t head)
{
    for (int codes = 0; codes <= (how->codes != NULL); codes++) {
        const codes_type_t *type = codes ? how->codes : NULL;
        for (int fold = 1; fold <= 2; fold++) {
            if (fold == 1 || 2 * head <= chunk_elems(how->ops, type)) {
                fill_order(how->ops, type, (int)head, fold, &how->order[codes][fold - 1]);
            }
        }
    }
}

/* The group of element e of a row. A second token in the row has its groups after those of the
 * first, whose last one may be short. */
static int group_of_element(const decode_side_t *side, int e)
{
    const int token = e / side->head;
    return token * side->groups + (e - token * side->head) / side->size;
}

/* Tells micro-kernels where the coefficients of a chunk are. Either 2^shift chunks share one, or
 * each lane of each class has that of the group of its element in the first vector of the class. */
static void fill_groups(decode_side_t *side)
{
    const code_layout_t *o = &side->how->ops->layout;
    const int per_class = o->vectors / o->classes * o->lanes, chunk = o->elems;
    code_coefs_t *coefs = &side->like.scale;
    int shift = 0;
    while (chunk << shift < side->size) {
        shift++;
    }
    coefs->ld = side->like.tokens * side->groups;
    if (side->how->ops->by_chunk && side->like.tokens == 1 &&
        (side->groups == 1 || chunk << shift == side->size)) {
        coefs->step = 1;
        coefs->shift = chunk << shift == side->size ? shift : 30;
        return;
    }
    coefs->pick = side->floats.group_at;
    for (int i = 0; i < side->order->padded / per_class * o->lanes; i++) {
        const int e = side->order->element[i / o->lanes * per_class + i % o->lanes];
        side->floats.group_at[i] = e < 0 ? 0 : group_of_element(side, e);
    }
}

/* What the ways of one operand are chosen by. */
typedef struct operand_rows {
    const decode_operand_t *of;
    matrix_t m; /* by token */
    int64_t head;
    bool by_token; /* scales change from token to token, or there are zero points */
} operand_rows_t;

/* For data types and heads that refuse_decode of attention.c takes at compile. */
static const char *refuse_decoding(int kind, const void *config, void *state)
{
    const operand_rows_t *rows = config;
    const decode_ops_t *ops = rows->of->how->ops;
    const matrix_t *m = &rows->m;
    const int64_t head = rows->head;
    (void)kind;
    (void)state;
    if (m->codes.column.stride != 1 && head > 1) {
        return "the head is not contiguous";
    }
    if (!matrices_on_bytes(rows->of->op, rows->of->is_v)) {
        return "rows do not start at whole bytes";
    }
    int size;
    if (rows->by_token && common_groups(m, ops, head, &size) == 0) {
        return "groups along the head do not fall on lanes";
    }
    const bool shifted = m->zp.type != NULL && !has_offsets(m);
    return rows->by_token && ops->loops[shifted ? 2 : 1] == NULL
               ? "no decoder for the data type with scales or zero points"
               : NULL;
}

/* Integers want whole quads in a group, and zero points as small as codes or floats. */
static const char *refuse_integers(int kind, const void *config, void *state)
{
    const operand_rows_t *rows = config;
    const decode_how_t *how = rows->of->how;
    if (how->codes == NULL || how->kind != (integers_t)kind) {
        return "";
    }
    const char *why = refuse_decoding(0, config, state);
    if (why != NULL) {
        return why;
    }
    const matrix_t *m = &rows->m;
    int size;
    const int groups = common_groups(m, how->ops, rows->head, &size);
    const dtype_traits_t *zp = m->zp.type;
    const bool small = zp == NULL || has_offsets(m) || zp->bits <= 8,
               quads = groups == 1 || (groups > 1 && size % (how->codes->elems / CODES_QUADS) == 0);
    return small && quads ? NULL : "groups or zero points do not allow products of integers";
}

const way_row_t ways_attention_operands[] = {
    LIMB_WAYS(refuse_integers), {DECODED_FMA, refuse_decoding, 0}, {"tiles of floats", NULL, 0}};

static bool in_integers(const decode_side_t *side)
{
    return side->way < BY_DECODING;
}

/* Whether micro-kernels take zero points off. */
static bool takes_zps_off(const decode_side_t *side)
{
    return side->zps >= TAKEN_OFF;
}

/* ---- inner loops ----------------------------------------------------------------------------- */

/* What an inner loop is chosen by. */
typedef struct loop_rows {
    const decode_side_t *side;
    int queries; /* at a time */
    int chunk;   /* bytes */
} loop_rows_t;

/* A reason is given where other shapes of K or V would do. */
#define PARTS_OF_CHUNKS "a head is not a whole number of chunks"
#define FINE_SCALES "scales change within chunks"

static const char *refuse_qk(int loop, const void *config, void *state)
{
    const loop_rows_t *x = config;
    const code_rows_t *k = &x->side->like;
    const bool scaled = x->side->scales == OF_ROWS;
    (void)state;
    if (x->side->floats.loops->qk[loop][x->queries - 1] == NULL) {
        return "";
    }
    if (loop == QK_LANES) {
        return scaled && (k->bytes % (4 * k->tokens) != 0 || k->floats.group_bytes % 4 != 0)
                   ? "groups along the head are not made of dwords"
                   : NULL;
    }
    if (loop == QK_THREE && k->bytes % x->chunk != 0) {
        return PARTS_OF_CHUNKS;
    }
    return loop != QK_TILES && scaled && k->scale.pick != NULL ? FINE_SCALES : NULL;
}

static const char *refuse_pv(int loop, const void *config, void *state)
{
    const loop_rows_t *x = config;
    const decode_side_t *v = x->side;
    const bool few = v->scales != OF_ROWS ||
                     (v->how->ops->by_chunk ? v->like.scale.pick == NULL : v->like.scale.ld <= 4);
    (void)state;
    const char *many = v->how->ops->by_chunk ? FINE_SCALES : "a row has more than four scales";
    return v->floats.loops->pv[loop][x->queries - 1] == NULL ? ""
           : loop != PV_TILES && !few                        ? many
                                                             : NULL;
}

static const char *refuse_codes_qk(int loop, const void *config, void *state)
{
    enum { ACROSS_QUERIES = 4 }; /* fewer queries are faster one by one */
    const loop_rows_t *x = config;
    const code_rows_t *k = &x->side->like;
    const int chunks = loop == CODES_QK_TWO_CHUNKS ? 2 : 1, kind = limbs_of(x->side->how->kind) - 1;
    (void)state;
    if (x->side->how->ints->qk[loop][k->ints.type->form][kind][takes_zps_off(x->side)] == NULL ||
        (loop == CODES_QK_ACROSS && x->queries < ACROSS_QUERIES)) {
        return "";
    }
    return loop == CODES_QK_ACROSS ||
                   (k->ints.picks_fit_one_vector && k->bytes == chunks * CODES_CHUNK)
               ? NULL
           : chunks == 1 ? ""
                         : "a head is not of one or two whole chunks, or has too many groups";
}

static const char *refuse_codes_pv(int loop, const void *config, void *state)
{
    const loop_rows_t *x = config;
    const code_rows_t *v = &x->side->like;
    const bool whole =
        loop == CODES_PV_WHOLE_PAIRS || loop == CODES_PV_WHOLE_WORDS || loop == CODES_PV_WHOLE;
    const int kind = limbs_of(x->side->how->kind) - 1;
    (void)state;
    return x->side->how->ints->pv[loop][v->ints.type->form][kind][x->queries - 1] == NULL ? ""
           : whole && v->bytes % CODES_CHUNK != 0 ? PARTS_OF_CHUNKS
                                                  : NULL;
}

#define LOOP(loop, name, refuse) [loop] = {name, refuse, loop}
const way_row_t ways_decode_qk[] = {
    LOOP(QK_TILES, "tiles of floats", refuse_qk), LOOP(QK_LANES, "tokens in lanes", refuse_qk),
    LOOP(QK_THREE, "twelve sums", refuse_qk), LOOP(QK_CHUNKS, "chunks of one scale", refuse_qk),
    LOOP(QK_FINE, "chunks of any scales", NULL)};
const way_row_t ways_decode_pv[] = {
    LOOP(PV_TILES, "tiles of floats", refuse_pv), LOOP(PV_THREE, "twelve sums", refuse_pv),
    LOOP(PV_FEW, "rows of few scales", refuse_pv), LOOP(PV_FINE, "rows of any scales", NULL)};
const way_row_t ways_codes_qk[] = {LOOP(CODES_QK_ACROSS, "transposed tokens", refuse_codes_qk),
                                   LOOP(CODES_QK_ONE_CHUNK, "one chunk", refuse_codes_qk),
                                   LOOP(CODES_QK_TWO_CHUNKS, "two chunks", refuse_codes_qk),
                                   LOOP(CODES_QK_ANY, "any chunks", NULL)};
const way_row_t ways_codes_pv[] = {
    LOOP(CODES_PV_WHOLE_PAIRS, "pairs of whole chunks", refuse_codes_pv),
    LOOP(CODES_PV_PAIRS, "pairs of any chunks", refuse_codes_pv),
    LOOP(CODES_PV_WHOLE_WORDS, "words of whole chunks", refuse_codes_pv),
    LOOP(CODES_PV_WORDS, "words of any chunks", refuse_codes_pv),
    LOOP(CODES_PV_WHOLE, "whole chunks", refuse_codes_pv),
    LOOP(CODES_PV_ANY, "any chunks", NULL)};

/* q.k in integers has one loop for all queries, the others have one for fours of them and one for
 * the rest. */
void decode_loops(const decode_operand_t *of, decode_side_t *side, choice_t *choice)
{
    static const way_row_t *const tables[2][2] = {{ways_decode_qk, ways_decode_pv},
                                                  {ways_codes_qk, ways_codes_pv}};
    static const char *const names[2][2] = {{"q.k", "p.v"}, {"q.k of the rest", "p.v of the rest"}};
    if (!is_decoded(side)) {
        return;
    }
    const bool ints = in_integers(side), at_once = ints && !of->is_v;
    const way_row_t *rows = tables[ints][of->is_v];
    const int elems = chunk_elems(side->how->ops, ints ? side->how->codes : NULL),
              least = of->any_queries ? 1 : of->queries,
              most = of->any_queries ? DECODE_ROWS : of->queries;
    for (int q = least; q <= most; q++) {
        const int n[2] = {at_once ? 0 : q / 4, at_once ? q : q % 4};
        for (int i = 0; i < 2; i++) {
            const loop_rows_t x = {side, i == 0 ? 4 : n[1],
                                   elems * of->op->base.codes.type->bits / 8};
            choice_t unsaid = {0};
            if (n[i] > 0) {
                side->loop[q - 1][i] = take_way(rows, names[i == 1 && n[0] > 0][of->is_v], &x, NULL,
                                                q == of->queries ? choice : &unsaid);
            }
        }
    }
}

/* ---- bind ------------------------------------------------------------------------------------ */

/* The rest of a side whose products are of integers. */
static void bind_integers(const matrix_t *m, decode_side_t *side)
{
    decode_ints_t *to = &side->ints;
    const int tokens = side->like.tokens, ld = tokens * side->groups,
              quad = side->how->codes->elems / CODES_QUADS;
    float values[16];
    bool picks_fit_one_vector = true;
    to->type = *side->how->codes;
    if (to->type.form == CODES_TABLE) {
        dtype_nibble_values(&m->codes.type->codec, values);
        for (int i = 0; i < 16; i++) {
            to->table[i] = (unsigned char)(values[i] / to->type.unit + (float)to->type.offset);
        }
    }
    /* Where the coefficients of each corner are, quad by quad. */
    for (int e = 0, i = 0; e < side->order->padded; e += quad) {
        for (int row = 0; row < CODES_ROWS; row++, i++) {
            to->corner[i] = row * ld + (e < tokens * side->head ? group_of_element(side, e) : 0);
            picks_fit_one_vector = picks_fit_one_vector && to->corner[i] < 16;
        }
    }
    side->like.scale = (code_coefs_t){.ld = ld, .pick = to->corner};
    side->like.ints =
        (int_codes_t){.type = &to->type,
                      .table = to->table,
                      .half_stride = tokens == 2 ? side->like.stride / 2 : CODES_CHUNK / 2,
                      .picks_fit_one_vector = picks_fit_one_vector,
                      .zps_are_floats = side->zps == TAKEN_OFF_WEIGHED};
}

/* The rest of a side whose products are of floats. */
static void bind_floats(const matrix_t *m, decode_side_t *side)
{
    decode_floats_t *to = &side->floats;
    const decode_ops_t *ops = side->how->ops;
    const int lanes = ops->layout.lanes;
    const bool nibbles = m->codes.type->bits == 4;
    if (nibbles) {
        dtype_nibble_values(&m->codes.type->codec, to->values);
    }
    if (side->scales == OF_ROWS) {
        fill_groups(side);
        for (int i = 0; i < lanes * side->groups; i++) { /* tokens of the scales of a vector */
            to->group_row[i] = i / side->groups;
        }
    }
    if (takes_zps_off(side) && ops->place_zps != NULL && side->like.scale.pick == NULL) {
        side->zps = AS_PLACES;
        fill_less_zp(&to->less_zp);
    }
    to->loops = ops->loops[side->scales != OF_ROWS ? 0 : takes_zps_off(side) ? 2 : 1];
    side->like.floats = (float_codes_t){.values = to->values,
                                        .less_zp = &to->less_zp,
                                        .row_of_scale = to->group_row,
                                        .group_bytes = side->size * m->codes.type->bits / 8,
                                        .flip = nibbles && to->values[15] < 0 ? 8 : 0};
}

void decode_bind(const decode_operand_t *of, decode_side_t *side, choice_t *choice)
{
    const decode_how_t *how = of->how;
    const matrices_t *op = of->op;
    operand_rows_t rows = {of, of->is_v ? op->base : matrix_transposed(&op->base),
                           op->dims[op->ndims - (of->is_v ? 1 : 2)], false};
    matrix_t *m = &rows.m;
    const bool one_zp = how->early_zp && has_one_zp(op);
    if (one_zp) {
        m->zp.type = NULL;
    }
    /* Codes less zero points are exact only before anything is multiplied with them. */
    const groups_t *scale = &m->scale;
    rows.by_token = m->zp.type != NULL || (scale->type != NULL && scale->row.stride != 0 &&
                                           scale->row.group < DECODE_LANES);
    side->way = take_way(ways_attention_operands, of->is_v ? "V" : "K", &rows, NULL, choice);
    if (!is_decoded(side)) {
        return;
    }
    const code_layout_t *o = &how->ops->layout;
    const bool ints = in_integers(side);
    const int bits = m->codes.type->bits, head = (int)rows.head,
              elems = chunk_elems(how->ops, ints ? how->codes : NULL);
    side->how = how;
    side->head = head;
    side->groups = common_groups(m, how->ops, head, &side->size);
    side->scales = ints || rows.by_token ? OF_ROWS : scale->type != NULL ? FOLDED : NO_SCALES;
    side->zps = one_zp               ? IN_VALUES
                : m->zp.type == NULL ? NO_ZPS
                : !has_offsets(m)    ? TAKEN_OFF
                : ints && of->is_v   ? TAKEN_OFF_WEIGHED
                                     : ADDED;
    side->any_weight = of->any_weight && (rows.by_token || !ints);
    /* Whether the halves of a chunk are those of its vectors. */
    const bool halves = o->element(o->vectors - 1, o->lanes / 2 - 1) < o->elems / 2;
    const int fold = 2 * head == elems && 2 * side->groups <= o->lanes &&
                             (ints || (rows.by_token && halves && m->codes.row.stride == head))
                         ? 2
                         : 1;
    side->order = &how->order[ints][fold - 1];
    side->like = (code_rows_t){.stride = m->codes.row.stride * fold * bits / 8,
                               .bytes = fold * head * bits / 8,
                               .ahead = READ_AHEAD,
                               .tokens = fold};
    if (ints) {
        bind_integers(m, side);
    } else {
        bind_floats(m, side);
    }
    side->like.zp = side->like.scale;
    if (side->zps == ADDED) { /* once, for the first token of a row */
        for (int i = 0; i < side->order->padded; i++) {
            const int e = side->order->element[i];
            side->plus_at[i] = (int16_t)(e < 0 || e >= head ? DECODE_GROUPS : e / side->size);
        }
    }
}

void decode_start(const matrices_t *op, decode_side_t *side)
{
    const groups_t *zps = &op->base.zp;
    float zp;
    if (!is_decoded(side) || side->zps != IN_VALUES) {
        return;
    }
    zps->type->codec.load_f32(zps->data, zps->first, 1, 1, &zp);
    if (in_integers(side)) {
        side->ints.type.offset = side->how->codes->offset + (int)zp;
        return;
    }
    dtype_nibble_values(&op->base.codes.type->codec, side->floats.values);
    for (int i = 0; i < 16; i++) {
        side->floats.values[i] -= zp;
    }
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
    out->sums = carve(scratch, &at, r * DECODE_GROUPS, sizeof(float));
    out->tile = carve(scratch, &at, DECODE_SLOW * DECODE_HEAD, sizeof(float));
    out->usable = carve(scratch, &at, 1, sizeof(bool));
    out->codes = codes ? carve(scratch, &at, 1, sizeof(codes_query_t)) : NULL;
    out->weights = codes ? carve(scratch, &at, CODES_CHUNKS, sizeof(codes_weights_t)) : NULL;
    return at;
}

/* ---- coefficients ---------------------------------------------------------------------------- */

/* How many of n tokens from t on have the same coefficients. */
static int stretch(const groups_t *g, int64_t t, int n)
{
    const bool changes = g->type != NULL && g->row.stride != 0;
    const int64_t left = changes ? g->row.group - t % g->row.group : n;
    return left < n ? (int)left : n;
}

/* Copies `bytes` bytes from every stride-th byte, n times. The usual sizes are constants, for which
 * the compiler makes a load and a store of each copy. */
static inline __attribute__((always_inline)) void
gather_bytes(const unsigned char *from, int64_t stride, int n, size_t bytes, unsigned char *to)
{
    for (int i = 0; i < n; i++) {
        memcpy(to + (size_t)i * bytes, from + i * stride, bytes);
    }
}

/* Loads n values for each of the tokens t0 .. t0 + nt - 1. Values of other heads lie between them,
 * so that the bytes are copied together first and then converted in one call. */
static void load_apart(const decode_task_t *task, const groups_t *g, int64_t t0, int nt, int n,
                       float *to)
{
    unsigned char packed[DECODE_TOKENS * DECODE_LANES * sizeof(float)];
    groups_t run = *g;
    const int64_t size = g->type->bits / 8, stride = g->row.stride * size;
    const unsigned char *from = groups_byte(g, g->first + t0 * g->row.stride);
    switch (n * size) {
    case 2:
        gather_bytes(from, stride, nt, 2, packed);
        break;
    case 4:
        gather_bytes(from, stride, nt, 4, packed);
        break;
    case 8:
        gather_bytes(from, stride, nt, 8, packed);
        break;
    default:
        gather_bytes(from, stride, nt, (size_t)(n * size), packed);
    }
    run.data = packed;
    groups_load(&run, task->side->how->features, 0, 1, (int64_t)nt * n, to);
}

/* The values of g for tokens t0 .. t0 + nt - 1, [nt][side->groups]. Where g has fewer groups along
 * the head, each value stands several times. */
static void load_by_token(const decode_task_t *task, const groups_t *g, int64_t t0, int nt,
                          float *to)
{
    const int n = groups_of_head(g, task->side->head);
    const int64_t group = g->row.group;
    const bool bytes = g->type->bits % 8 == 0 && g->type->bits <= 32;
    if (group == 1 &&
        (n == 1 ? g->row.stride == 1 : g->column.stride == 1 && g->row.stride == n)) { /* one run */
        const int64_t first = g->first + t0 * g->row.stride;
        const unsigned char *next = groups_byte(g, first + nt * n);
        for (int64_t i = 0; i < (int64_t)nt * n * g->type->bits / 8; i += 64) {
            __builtin_prefetch(next + i);
        }
        groups_load(g, task->side->how->features, first, 1, (int64_t)nt * n, to);
    } else if (group == 1 && bytes && (n == 1 || g->column.stride == 1)) {
        load_apart(task, g, t0, nt, n, to);
    } else { /* the matrix is large: filling it in takes as long as loading a piece of one run */
        const matrix_t m = matrix_of_groups(g);
        if (group == 1) {
            task->tile->load(&m, (rect_t){t0, nt, 0, n}, to, n, nt, n);
        }
        for (int t = 0, same; group > 1 && t < nt; t += same) {
            same = stretch(g, t0 + t, nt - t);
            task->tile->load(&m, (rect_t){(t0 + t) / group, 1, 0, n}, to + t * n, n, 1, n);
            for (int i = n; i < same * n; i++) {
                to[t * n + i] = to[t * n + i - n];
            }
        }
    }
    repeat_each(to, (int64_t)nt * n, task->side->groups / n);
}

/* The scales of one token spread over the head. */
static void load_by_element(const decode_task_t *task, int64_t t, float *to)
{
    const groups_t *g = &task->m.scale;
    const matrix_t m = matrix_of_groups(g);
    const int groups = groups_of_head(g, task->side->head);
    float values[DECODE_HEAD];
    task->tile->load(&m, (rect_t){t / g->row.group, 1, 0, groups}, values, DECODE_HEAD, 1, groups);
    for (int e = 0; e < task->side->head; e++) {
        to[e] = values[groups == 1 ? 0 : e / g->column.group];
    }
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
 * with codes, or with n scales (or offsets) and then with codes. */
static bool weights_in_product_range(const decode_task_t *task, const float *scale, int n)
{
    int32_t most = 0;
    float p_most, scale_most = 1;
    for (int r = 0; r < task->rows; r++) {
        const int32_t of_row = largest(task->x + r * task->ldx, task->tokens);
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
    const int lanes = k->how->ops->layout.lanes;
    const int first = r / 4 * 4, batch = queries_batch(rows - first);
    float *to = b->q + first * DECODE_ORDER + (r - first) * lanes;
    for (int v = 0; v < k->order->padded; v += lanes, to += batch * lanes) {
        const int16_t *source = k->order->source + v;
        for (int i = 0; i < lanes; i++) {
            to[i] = source[i] < 0 ? 0 : src[source[i]];
        }
    }
}

/* Query r as limbs. False: they cannot be made. */
static bool query_codes(const decode_side_t *k, codes_query_t *codes, int r, const float *q)
{
    const codes_type_t *type = &k->ints.type;
    float x[DECODE_ORDER];
    const int n = k->like.tokens * k->head, padded = k->order->padded;
    bool usable = true;
    for (int e = 0; e < n; e += k->head) {
        memcpy(x + e, q, (size_t)k->head * sizeof(float));
    }
    memset(x + n, 0, (size_t)(padded - n) * sizeof(float));
    for (int c = 0; c < padded / type->elems; c++) {
        usable = k->how->ints->quantise(type, x + c * type->elems, 0, 1, limbs_of(k->how->kind),
                                        &codes->chunk[c][r]) &&
                 usable;
    }
    return usable;
}

/* Sums of a query by group of K's offsets. In integers they are those of its limbs, so that an
 * error of the query meets the value and not the code. */
static void sum_query(const decode_side_t *k, const decode_buffers_t *b, int r, const float *q)
{
    float *sums = b->sums + r * DECODE_GROUPS;
    memset(sums, 0, DECODE_GROUPS * sizeof(float));
    if (!in_integers(k)) {
        for (int e = 0; e < k->head; e++) {
            sums[e / k->size] += q[e];
        }
        return;
    }
    const int elems = k->ints.type.elems, quad = elems / CODES_QUADS;
    for (int e = 0; e < k->head; e += quad) {
        const limbs_t *x = &b->codes->chunk[e / elems][r];
        const int corner = e % elems / quad * CODES_ROWS;
        sums[e / k->size] += (float)x->sum[corner] * (x->scale[corner] / k->ints.type.unit);
    }
}

void decode_query(const decode_side_t *k, const decode_buffers_t *b, int rows, const float *q,
                  int64_t ld)
{
    *b->usable = true;
    for (int r = 0; r < rows; r++, q += ld) {
        if (in_integers(k)) {
            *b->usable = query_codes(k, b->codes, r, q) && *b->usable;
        } else {
            *b->usable = is_in_product_range(largest(q, k->head)) && *b->usable;
            place_query(k, b, rows, r, q);
        }
        if (k->zps == ADDED) {
            sum_query(k, b, r, q);
        }
    }
}

/* ---- the products ---------------------------------------------------------------------------- */

/* Detours: values first, then products. */
#define BY_FLOATS(why) "some by tiles of floats (" why ")"
static const char far_zps[] = BY_FLOATS("zero points are too far from the codes"),
                  odd_offsets[] = BY_FLOATS("offsets are not finite or too large, or scales too "
                                            "small"),
                  odd_query[] = BY_FLOATS("a query is not finite, too small or too large"),
                  odd_scaled[] = BY_FLOATS("a query times scales is not finite, too small or too "
                                           "large"),
                  large_weights[] = BY_FLOATS("weights or scales are not finite or too large"),
                  tiny_scales[] = BY_FLOATS("scales are too small"),
                  odd_weights[] = BY_FLOATS("weights are not finite");

/* How many of n queries that are left of all the inner loop takes at once, and which one it is. */
static int queries_of(const decode_side_t *side, int all, int n, int tiles, int *loop)
{
    *loop = side->loop[all - 1][n < 4];
    return n < 4 ? n : *loop == tiles ? n / 4 * 4 : 4;
}

/* Queries have DECODE_ORDER floats each. */
static void qk(const decode_side_t *side, const code_rows_t *k, int nq, const float *q, float *s,
               int64_t lds)
{
    for (int r = 0, n, loop; r < nq; r += n) {
        n = queries_of(side, nq, nq - r, QK_TILES, &loop);
        side->floats.loops->qk[loop][queries_batch(n) - 1](k, n, q + r * DECODE_ORDER, s + r * lds,
                                                           lds);
    }
}

static void pv(const decode_side_t *side, const code_rows_t *v, int nq, const float *p, int64_t ldp,
               float *acc, int64_t ldacc)
{
    for (int r = 0, n, loop; r < nq; r += n) {
        n = queries_of(side, nq, nq - r, PV_TILES, &loop);
        side->floats.loops->pv[loop][queries_batch(n) - 1](v, n, p + r * ldp, ldp, acc + r * ldacc,
                                                           ldacc);
    }
}

/* The scales and zero points of all tokens of a task into its buffers. Gives why the micro-kernels
 * cannot use some of these; NULL: they can. */
static const char *load_coefs(const decode_task_t *task)
{
    enum { BITS_OF_2_60 = 0x5d800000 };
    const decode_side_t *side = task->side;
    const decode_buffers_t *b = task->buffers;
    const int groups = side->groups, n = task->tokens * groups;
    if (task->m.scale.type != NULL) {
        load_by_token(task, &task->m.scale, task->token, task->tokens, b->scale);
    } else {
        for (int i = 0; i < n; i++) {
            b->scale[i] = 1;
        }
    }
    if (side->zps >= ADDED) {
        load_by_token(task, &task->m.zp, task->token, task->tokens, b->zp);
    }
    if (side->zps == ADDED) {
        return side->how->ops->plus->make(b->scale, b->zp, n, task->m.offsets) ? NULL : odd_offsets;
    }
    if (side->zps == TAKEN_OFF_WEIGHED) {
        if (task->m.offsets) {
            quant_rows(side->how->features)->zps_of_offsets(b->scale, b->zp, n);
        }
        /* They meet integers: products stay far from the ends of floats. */
        return largest(b->zp, n) < BITS_OF_2_60 ? NULL : far_zps;
    }
    if (side->zps != AS_PLACES) {
        return NULL;
    }
    /* Rows of K are read in pairs. Where the last pair lacks its second row, the coefficients
     * behind the last row are read for it: they must be places within the tables, too. */
    const bool usable = side->how->ops->place_zps(b->zp, n, side->like.floats.flip);
    memcpy(b->zp + n, b->zp, (size_t)groups * sizeof(float));
    return usable ? NULL : far_zps;
}

int decode_block(const decode_side_t *side)
{
    return side->like.tokens * (in_integers(side) ? CODES_SPAN : DECODE_BLOCK);
}

/* How many of n tokens of a task from `at` on are in one page, where they follow one another. */
static int page_at(const decode_task_t *task, int at, int n)
{
    return task->place == NULL ? n : (int)at_most(n, task->page - (task->token + at) % task->page);
}

/* K or V so that the tokens from number `at` of a task on are where its numbers say. */
static matrix_t matrix_from(const decode_task_t *task, int at)
{
    matrix_t m = task->m;
    if (task->place != NULL) {
        m.codes.first += (task->place[at] - (task->token + at)) * m.codes.row.stride;
    }
    return m;
}

static const unsigned char *byte_of(const groups_t *codes, int64_t token)
{
    return groups_byte(codes, codes_at(codes, token, 0));
}

/* Tokens at .. at + n - 1 of a task, which follow one another, as the micro-kernels want them.
 * Their coefficients, if they have any, are in the buffers. */
static void rows_at(const decode_task_t *task, int at, int n, code_rows_t *rows)
{
    const decode_side_t *side = task->side;
    const groups_t *codes = &task->m.codes;
    *rows = side->like;
    rows->data = byte_of(codes, task->place != NULL ? task->place[at] : task->token + at);
    rows->rows = n / rows->tokens;
    if (task->spaced) {
        rows->stride = codes->row.stride * rows->tokens * codes->type->bits / 8;
        rows->ahead = at_least(READ_AHEAD / at_least(rows->stride, 1), 1) * rows->stride;
        if (rows->tokens == 2) {
            rows->ints.half_stride = rows->stride / 2;
        }
    }
    if (task->next != NULL) {
        rows->ahead =
            (int64_t)((uintptr_t)task->next - (uintptr_t)rows->data) + at * task->next_bytes;
        rows->ahead_less_per_row = rows->stride - task->next_bytes * rows->tokens;
    }
    if (task->place != NULL) { /* the next page, row by row */
        const int32_t next = at + n < task->tokens ? task->place[at + n] : task->after;
        rows->ahead = (int64_t)((uintptr_t)byte_of(codes, next) - (uintptr_t)rows->data);
        rows->jumps = true;
    }
    const int64_t first = at / rows->tokens * rows->scale.ld;
    rows->scale.at = side->scales == OF_ROWS ? task->buffers->scale + first : NULL;
    rows->zp.at = takes_zps_off(side) ? task->buffers->zp + first : NULL;
}

/* For the micro-kernels in integers: the coefficients that the last four rows lack are zero. */
static void end_coefs(const decode_task_t *task)
{
    const decode_buffers_t *b = task->buffers;
    const int64_t rows = task->tokens / task->side->like.tokens, ld = task->side->like.scale.ld,
                  n = rows * ld, end = (rows + CODES_ROWS - 1) / CODES_ROWS * CODES_ROWS * ld;
    if (n < end) {
        memset(b->scale + n, 0, (size_t)(end - n) * sizeof(float));
        memset(b->zp + n, 0, (size_t)(end - n) * sizeof(float));
    }
}

/* Scores of a stretch of tokens with the same scales, which go into the query. Returns false and
 * does nothing if the query then is not in the range of products. */
static bool folded_scores(const decode_task_t *task, int at, int n)
{
    const decode_side_t *side = task->side;
    const decode_buffers_t *b = task->buffers;
    code_rows_t rows;
    rows_at(task, at, n, &rows);
    float out[DECODE_ROWS * DECODE_TOKENS];
    load_by_element(task, task->token + at, b->coef);
    for (int r = 0; r < task->rows; r++) {
        for (int e = 0; e < side->head; e++) {
            b->folded[e] = task->x[r * task->ldx + e] * b->coef[e];
        }
        if (!is_in_product_range(largest(b->folded, side->head))) {
            return false;
        }
        place_query(side, b, task->rows, r, b->folded);
    }
    qk(side, &rows, task->rows, b->q, out, DECODE_TOKENS);
    for (int r = 0; r < task->rows; r++) {
        memcpy(task->out + r * task->ldo + at, out + r * DECODE_TOKENS, (size_t)n * sizeof(float));
    }
    return true;
}

/* Scores of n tokens: values first, then products. */
static void slow_scores(const decode_task_t *task, int at, int n)
{
    const int head = task->side->head;
    float *tile = task->buffers->tile;
    for (int t = at; t < at + n; t += DECODE_SLOW) {
        const int some = at + n - t < DECODE_SLOW ? at + n - t : DECODE_SLOW;
        const matrix_t tokens = matrix_from(task, t), k = matrix_transposed(&tokens);
        task->tile->load(&k, (rect_t){0, head, task->token + t, some}, tile, DECODE_SLOW, head,
                         some);
        task->tile->gemm(&(gemm_t){.m = task->rows,
                                   .n = some,
                                   .k = head,
                                   .a = task->x,
                                   .lda = task->ldx,
                                   .b = tile,
                                   .ldb = DECODE_SLOW,
                                   .c = task->out + t,
                                   .ldc = task->ldo});
    }
}

void decode_scores(const decode_task_t *task)
{
    const decode_side_t *side = task->side;
    const decode_buffers_t *b = task->buffers;
    const int nt = task->tokens;
    code_rows_t rows;
    if (side->scales == FOLDED) {
        for (int done = 0, n; done < nt; done += n) {
            n = page_at(task, done, stretch(&task->m.scale, task->token + done, nt - done));
            if (!folded_scores(task, done, n)) {
                report_detour(task->worker, odd_scaled);
                slow_scores(task, done, n);
            }
        }
        return;
    }
    const char *odd = side->scales != OF_ROWS ? NULL : *b->usable ? load_coefs(task) : odd_query;
    if (odd != NULL) {
        report_detour(task->worker, odd);
        slow_scores(task, 0, nt);
        return;
    }
    if (in_integers(side)) {
        end_coefs(task);
    }
    for (int at = 0, n; at < nt; at += n) {
        n = page_at(task, at, nt - at);
        rows_at(task, at, n, &rows);
        if (in_integers(side)) {
            side->how->ints->qk[side->loop[task->rows - 1][1]][side->ints.type.form]
                               [limbs_of(side->how->kind) - 1][takes_zps_off(side)](
                                   &rows, task->rows, b->codes, task->out + at, task->ldo);
        } else {
            qk(side, &rows, task->rows, b->q, task->out + at, task->ldo);
        }
    }
    if (side->zps == ADDED) {
        side->how->ops->plus->scores(b->zp, side->groups, nt, task->rows, b->sums, task->out,
                                     task->ldo);
    }
    if (nt % side->like.tokens != 0) { /* the last token alone */
        slow_scores(task, nt - 1, 1);
    }
}

/* Adds a stretch of tokens with the same scales, which multiply the sums of their codes. */
static void folded_values(const decode_task_t *task, int at, int n)
{
    const decode_side_t *side = task->side;
    const decode_buffers_t *b = task->buffers;
    code_rows_t rows;
    rows_at(task, at, n, &rows);
    load_by_element(task, task->token + at, b->coef);
    memset(b->run, 0, (size_t)task->rows * DECODE_ORDER * sizeof(float));
    pv(side, &rows, task->rows, task->x + at, task->ldx, b->run, DECODE_ORDER);
    for (int r = 0; r < task->rows; r++) {
        for (int i = 0; i < side->order->padded; i++) {
            const int e = side->order->element[i];
            if (e >= 0) {
                task->out[r * task->ldo + e] += b->run[r * DECODE_ORDER + i] * b->coef[e];
            }
        }
    }
}

/* Values first, then weights: for scales that p must not be multiplied with, and for weights that
 * codes must not be multiplied with. */
static void slow_values(const decode_task_t *task, int at, int n)
{
    const decode_side_t *side = task->side;
    const decode_buffers_t *b = task->buffers;
    for (int t = at; t < at + n; t += DECODE_SLOW) {
        const int some = at + n - t < DECODE_SLOW ? at + n - t : DECODE_SLOW;
        const matrix_t v = matrix_from(task, t);
        task->tile->load(&v, (rect_t){task->token + t, some, 0, side->head}, b->tile, DECODE_HEAD,
                         some, side->head);
        task->tile->gemm(&(gemm_t){.m = task->rows,
                                   .n = side->head,
                                   .k = some,
                                   .a = task->x + t,
                                   .lda = task->ldx,
                                   .b = b->tile,
                                   .ldb = DECODE_HEAD,
                                   .c = b->folded,
                                   .ldc = DECODE_HEAD,
                                   .add = t > at});
    }
    for (int r = 0; r < task->rows; r++) {
        for (int i = 0; i < side->order->padded; i++) {
            const int e = side->scales == FOLDED ? i : side->order->element[i];
            task->out[r * task->ldo + i] +=
                e < 0 || e >= side->head ? 0 : b->folded[r * DECODE_HEAD + e];
        }
    }
}

static void codes_values(const decode_task_t *task)
{
    const decode_side_t *side = task->side;
    const codes_table_t *ints = side->how->ints;
    codes_weights_t *w = task->buffers->weights;
    const int tokens = side->like.tokens, all = task->tokens / tokens,
              limbs = limbs_of(side->how->kind);
    end_coefs(task);
    for (int row = 0; row < all; row += CODES_SPAN) {
        const int t = row * tokens, span = all - row < CODES_SPAN ? all - row : CODES_SPAN;
        code_rows_t at;
        rows_at(task, t, span * tokens, &at);
        for (int r = 0, n; r < task->rows; r += n) {
            n = queries_batch(task->rows - r);
            const float *p = task->x + r * task->ldx;
            float *acc = task->out + r * task->ldo;
            const codes_pv_t of_chunk =
                ints->pv[side->loop[task->rows - 1][n < 4]][side->ints.type.form][limbs - 1][n - 1];
            const bool ok = ints->weigh(n, limbs, &at, p + t, task->ldx, w);
            for (int c = 0; ok && c * CODES_CHUNK < at.bytes; c++) {
                of_chunk(&at, c, w + (at.scale.ld == 1 ? 0 : c), acc, task->ldo);
            }
            if (!ok) {
                decode_task_t some = *task;
                some.rows = n;
                some.x = p;
                some.out = acc;
                report_detour(task->worker, odd_weights);
                slow_values(&some, t, at.rows * at.tokens);
            }
        }
    }
}

/* Sums start with what offsets add, and only their end is added to those of the tokens before:
 * codes that count from zero and their offsets cancel for the most part. */
static void values_with_offsets(const decode_task_t *task)
{
    const decode_side_t *side = task->side;
    const decode_buffers_t *b = task->buffers;
    const int n = task->tokens - task->tokens % side->like.tokens;
    float plus[DECODE_ROWS * DECODE_GROUPS];
    code_rows_t rows;
    side->how->ops->plus->values(b->zp, side->groups, n, side->floats.group_row, task->rows,
                                 task->x, task->ldx, plus);
    for (int r = 0; r < task->rows; r++) {
        float by_group[DECODE_GROUPS + 1];
        memcpy(by_group, plus + r * DECODE_GROUPS, (size_t)side->groups * sizeof(float));
        by_group[DECODE_GROUPS] = 0;
        for (int i = 0; i < side->order->padded; i++) {
            b->run[r * DECODE_ORDER + i] = by_group[side->plus_at[i]];
        }
    }
    for (int at = 0, some; at < n; at += some) {
        some = page_at(task, at, n - at);
        rows_at(task, at, some, &rows);
        pv(side, &rows, task->rows, task->x + at, task->ldx, b->run, DECODE_ORDER);
    }
    for (int r = 0; r < task->rows; r++) {
        float *out = task->out + r * task->ldo;
        const float *run = b->run + r * DECODE_ORDER;
        for (int i = 0; i < side->order->padded; i++) {
            out[i] += run[i];
        }
    }
}

/* Why values must come before weights; NULL: they need not. */
static const char *refuse_weights(const decode_task_t *task)
{
    const decode_side_t *side = task->side;
    const dtype_traits_t *type = task->m.scale.type;
    const float *scale = task->buffers->scale;
    const int n = side->scales == OF_ROWS ? task->tokens * side->groups : 0;
    const char *odd = n > 0 ? load_coefs(task) : NULL;
    if (odd != NULL) {
        return odd;
    }
    if (n > 0 && type != NULL && (type->digits >= 24 || type->max >= 0x1p100f) &&
        side->how->ops->any_tiny(scale, n)) {
        return tiny_scales;
    }
    return side->any_weight && side->scales != NO_SCALES &&
                   (!weights_in_product_range(task, scale, n) ||
                    (side->zps == ADDED && !weights_in_product_range(task, task->buffers->zp, n)))
               ? large_weights
               : NULL;
}

void decode_accumulate(const decode_task_t *task)
{
    const decode_side_t *side = task->side;
    const int nt = task->tokens;
    const char *odd = refuse_weights(task);
    if (odd != NULL) {
        report_detour(task->worker, odd);
        slow_values(task, 0, nt);
        return;
    }
    if (side->scales == FOLDED) {
        for (int done = 0, n; done < nt; done += n) {
            n = page_at(task, done, stretch(&task->m.scale, task->token + done, nt - done));
            folded_values(task, done, n);
        }
    } else if (in_integers(side)) {
        codes_values(task);
    } else if (side->zps == ADDED) {
        values_with_offsets(task);
    } else {
        code_rows_t rows;
        for (int at = 0, n; at < nt; at += n) {
            n = page_at(task, at, nt - at);
            rows_at(task, at, n, &rows);
            pv(side, &rows, task->rows, task->x + at, task->ldx, task->out, task->ldo);
        }
    }
    if (nt % side->like.tokens != 0) { /* the last token alone */
        slow_values(task, nt - 1, 1);
    }
}

void decode_restore(const decode_side_t *v, const decode_buffers_t *b, int rows, float *acc,
                    int64_t ldacc)
{
    if (v->way == IN_CACHE || v->scales == FOLDED || (v->order->in_place && v->like.tokens == 1)) {
        return;
    }
    for (int r = 0; r < rows; r++, acc += ldacc) {
        const int16_t *first = v->order->place, *second = first + v->head;
        memcpy(b->run, acc, (size_t)v->order->padded * sizeof(float));
        for (int e = 0; e < v->head; e++) {
            acc[e] = b->run[first[e]] + (v->like.tokens == 2 ? b->run[second[e]] : 0);
        }
    }
}
