/* The attention kernels: selection, setup, geometry. The arithmetic begins in attention_work.c. */
#include "backend_xsmm/drivers/attention/attention.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <sinter/sinter_graph.h>

#include "backend_xsmm/drivers/common/products.h"
#include "base/status.h"

/* Strip heights with JIT kernels; a shorter strip is computed at the next height, rows beyond it
 * are not looked at. */
static const int ladder[ATT_LADDER] = {1, 2, 4, 6, 8, 12, 16, ATT_STRIP};

static int round_up(int64_t n, int to)
{
    return (int)((n + to - 1) / to * to);
}

/* ---- selection ------------------------------------------------------------------------------- */

/* The dims of a step that its kernels ask for; -1: not known. */
typedef struct known {
    int64_t S, T, D, Dv;
    int64_t rows; /* query rows that share one K and V */
} known_t;

/* The most rows of a short run whose tokens have `rows` each. */
static int64_t short_run(int64_t rows)
{
    return at_least(DECODE_ROWS / at_least(rows, 1), 1) * rows;
}

/* K or V may lack leading dims or have 1 there: then query heads share them. */
static int64_t rows_of(const problem_t *problem)
{
    const attention_params_t *p = &problem->step->p.attention;
    const int ndims = problem_ndims(problem, p->out_dims);
    int64_t rows = problem_dim(problem, p->out_dims, 2);
    if (p->runs == LONG_RUNS) {
        return -1;
    }
    for (int e = 3; e <= ndims && rows >= 0; e++) {
        const int64_t k = problem_dim(problem, p->k.data, e),
                      v = problem_dim(problem, p->v.data, e),
                      n = k == 1 && v == 1 ? problem_dim(problem, p->out_dims, e) : 1;
        if (k < 0 || v < 0 || n < 0 || !mul_i64(rows, n, &rows)) {
            return -1;
        }
    }
    return ndims < 2 ? -1 : p->runs == SHORT_RUNS ? short_run(rows) : rows;
}

static known_t known_dims(const problem_t *problem)
{
    const attention_params_t *p = &problem->step->p.attention;
    return (known_t){.S = problem_dim(problem, p->out_dims, 2),
                     .T = problem_dim(problem, p->v.data, p->trans_v ? 1 : 2),
                     .D = problem_dim(problem, p->q.data, p->trans_q ? 2 : 1),
                     .Dv = problem_dim(problem, p->v.data, p->trans_v ? 2 : 1),
                     .rows = rows_of(problem)};
}

/* Why values of the tokens of an operand in pages cannot be copied token by token, as far as
 * compile knows; `most`: the bytes that there is room for. */
static const char *refuse_values(const problem_t *p, int value, int dim, int64_t most)
{
    const int ndims = value < 0 ? 0 : problem_ndims(p, value);
    const int64_t n = value < 0 ? 0
                      : dim < 0 ? 1
                                : problem_dim(p, value, ndims - dim),
                  bits = value < 0 ? 0 : n * dtype_traits(problem_type(p, value))->bits;
    return n < 0             ? "compile does not know how many values a token in pages has"
           : bits % 8 != 0   ? "tokens in pages are not whole bytes"
           : bits / 8 > most ? "tokens in pages have too many scales"
                             : NULL;
}

/* Why K and V cannot be read in pages; NULL: they can, or do not lie there. */
static const char *refuse_pages(const problem_t *p)
{
    const attention_params_t *a = &p->step->p.attention;
    const operand_t *const of[] = {&a->k, &a->v};
    const char *why = NULL;
    for (int i = 0; i < 2 && why == NULL && reads_pages(p, of[i]); i++) {
        const operand_t *o = of[i];
        const int ndims = problem_ndims(p, o->data),
                  head = ndims - ((i == 1 ? !a->trans_v : a->trans_k) ? 1 : 2);
        why = refuse_values(p, o->data, head, INT64_MAX);
        why = why != NULL ? why : refuse_values(p, o->scale, o->scale_dim[head], CELL_COEFS);
        why = why != NULL ? why : refuse_values(p, o->zp, o->zp_dim[head], CELL_COEFS);
    }
    return why;
}

static const char *refuse_flash(const kernel_t *self, const problem_t *problem)
{
    (void)self;
    return refuse_pages(problem);
}

/* Why a deterministic engine does not take a kernel for which other rows of a strip matter. */
#define OTHER_ROWS "the engine is deterministic, and other rows change its sums"

static const char *refuse_bf16(const kernel_t *self, const problem_t *problem)
{
    const attention_params_t *p = &problem->step->p.attention;
    const char *why = problem->plan->deterministic ? OTHER_ROWS : refuse_bf16_products(problem);
    const int64_t D = problem_dim(problem, p->q.data, p->trans_q ? 2 : 1),
                  Dv = problem_dim(problem, p->v.data, p->trans_v ? 2 : 1);
    (void)self;
    return why != NULL                       ? why
           : D < 1 || Dv < 1 || D > ATT_HEAD ? "needs head sizes known at compile, 1 to 576"
                                             : refuse_pages(problem);
}

/* True if a dim is known to be unable to stand at stride 1 where that of the head must. */
static bool head_strided(const problem_t *p, int value, int from_end)
{
    const int64_t stride = problem_stride(p, value, from_end);
    return stride >= 0 && stride != 1 && problem_dim(p, value, from_end) != 1;
}

static bool lies_in_tiles(const problem_t *p, const operand_t *o)
{
    return p->plan->values[o->data].tiled != NOT_TILED;
}

/* Whether the rows of a token, or some of them, may be decoded apart from the others, since a mask
 * in memory may leave them other keys. */
static bool by_token(const problem_t *problem, const known_t *n, int most_rows)
{
    return problem->step->p.attention.mask >= 0 && problem->step->p.attention.prob == NULL &&
           n->S > 1 && n->rows / n->S <= most_rows;
}

static const char *refuse_decode(const kernel_t *self, const problem_t *problem)
{
    const attention_params_t *p = &problem->step->p.attention;
    const known_t n = known_dims(problem);
    const decode_ops_t *k = decode_ops(self->needs, problem_type(problem, p->k.data)),
                       *v = decode_ops(self->needs, problem_type(problem, p->v.data));
    if (n.D < 1 || n.D > DECODE_HEAD || n.Dv < 1 || n.Dv > DECODE_HEAD) {
        return "needs heads of 1 to 256 elements, known at compile";
    }
    if (n.rows == 0 ||
        (!problem->plan->deterministic &&
         (n.S > DECODE_ROWS || (n.rows > DECODE_ROWS && !by_token(problem, &n, DECODE_ROWS))))) {
        return "needs 1 to 8 query rows for each K and V";
    }
    if (lies_in_tiles(problem, &p->k) || lies_in_tiles(problem, &p->v)) {
        return "K or V lies in tiles";
    }
    if (n.T >= 0 && n.T < DECODE_LANES) {
        return "needs 16 tokens or more";
    }
    const char *why = refuse_pages(problem);
    if (why != NULL) {
        return why;
    }
    if (p->k.split != sinter_data_type_undef || p->v.split != sinter_data_type_undef) {
        return "K or V is in two planes";
    }
    if (k == NULL || v == NULL || n.D % k->layout.multiple != 0 || n.Dv % v->layout.multiple != 0) {
        return "no decoder for these data types and head sizes";
    }
    return head_strided(problem, p->k.data, p->trans_k ? 1 : 2) ||
                   head_strided(problem, p->v.data, p->trans_v ? 2 : 1)
               ? "a head is not contiguous"
               : NULL;
}

/* Elements along the head that share scales or zero points of an operand; 0: all, or not known; -1:
 * they have none. */
static int64_t group_of_head(const problem_t *p, const operand_t *o, bool zero_points, int from_end)
{
    const int coef = zero_points ? o->zp : o->scale, ndims = problem_ndims(p, o->data),
              coefs = coef < 0 ? 0 : problem_ndims(p, coef);
    if (coef < 0 || ndims < from_end || coefs < 0) {
        return 0;
    }
    const int at = ndims - from_end, d = zero_points ? o->zp_dim[at] : o->scale_dim[at];
    const int64_t n = d < 0 ? 1 : problem_dim(p, coef, coefs - d),
                  head = problem_dim(p, o->data, from_end);
    if (n == 0 || n == 1 || n < 0 || head <= 0) {
        return n == 0 ? -1 : 0;
    }
    const int64_t size = quant_group_size(head, n, o->group_size[at]);
    return size > 0 ? size : -1;
}

/* Why an operand's products with floats cannot be of integers. Groups that are not known at compile
 * may allow it. */
static const char *refuse_integers(const codes_table_t *table, const problem_t *p,
                                   const operand_t *o, int from_end)
{
    const sinter_data_type_t type = problem_type(p, o->data);
    const codes_type_t *codes = codes_type(type);
    if (p->step->permit.integers == NO_INTEGERS) {
        return MODE_HAS_NO_INTEGERS;
    }
    if (!table || !codes) {
        return "the data type has no codes that are small integers";
    }
    if (codes->form == CODES_BYTES && !table->sums_bytes) {
        return BYTES_NEED_VNNI;
    }
    const dtype_traits_t *zp = o->zp < 0 ? NULL : dtype_traits(problem_type(p, o->zp));
    if (zp != NULL && zp->cls == DTYPE_INT && zp->bits > 8) {
        return "zero points of more than 8 bits";
    }
    const int64_t quad = codes->elems / CODES_QUADS, s = group_of_head(p, o, false, from_end),
                  z = group_of_head(p, o, true, from_end);
    return s < 0 || z < 0 || s % quad != 0 || z % quad != 0
               ? "groups along the head do not fit the decoder"
               : NULL;
}

/* Products in integers, if the mode allows them: of 16 bits where it rounds floats to 8 or 11,
 * of 8 bits in mode int8. */
static decode_how_t how_of(const kernel_t *self, const problem_t *p, bool is_v)
{
    const attention_params_t *a = &p->step->p.attention;
    const operand_t *o = is_v ? &a->v : &a->k;
    const int from_end = (is_v ? !a->trans_v : a->trans_k) ? 1 : 2;
    const codes_table_t *table = codes_table(self->needs);
    const sinter_data_type_t type = problem_type(p, o->data);
    const pv_kind_t zp = o->zp >= 0 ? p->plan->values[o->zp].kind : PV_TEMP;
    decode_how_t how = {.ops = decode_ops(self->needs, type),
                        .features = self->needs,
                        .early_zp = zp == PV_INPUT || zp == PV_CONST};
    if (self->driver->arithmetic == IN_INT8) {
        how.why = refuse_integers(table, p, o, from_end);
    }
    if (self->driver->arithmetic == IN_INT8 && how.why == NULL) {
        how.codes = codes_type(type);
        how.ints = table;
        how.kind = p->step->permit.integers;
    }
    return how;
}

static const char *refuse_codes(const kernel_t *self, const problem_t *p)
{
    const char *why = refuse_decode(self, p);
    return why != NULL || how_of(self, p, true).codes ? why : how_of(self, p, false).why;
}

/* ---- caches in tiles ------------------------------------------------------------------------- */

/* Elements of the head that share scales: whole tiles, or halves of them, of K; whole strips of
 * V. */
static const char *refuse_cache_groups(const problem_t *p, const operand_t *o, bool is_v,
                                       int from_end)
{
    const int64_t head = problem_dim(p, o->data, from_end),
                  n = group_of_head(p, o, false, from_end);
    if (n == 0) {
        return NULL; /* one for all of the head */
    }
    const bool halves = n == TILES_K / 2 && head % TILES_K == 0;
    return n < 0 || n % TILES_COLUMNS != 0 || (!is_v && n % TILES_K != 0 && !halves)
               ? "groups along the head are not of 16 elements or whole tiles"
               : NULL;
}

static const char *refuse_cache_side(const problem_t *p, const operand_t *o, bool is_v)
{
    const attention_params_t *a = &p->step->p.attention;
    const int from_end = (is_v ? !a->trans_v : a->trans_k) ? 1 : 2;
    if (!lies_in_tiles(p, o)) {
        return "K or V does not lie in tiles";
    }
    const char *why = refuse_cache_groups(p, o, is_v, from_end);
    const dtype_traits_t *zp =
        o->zp < 0 || o->offsets ? NULL : dtype_traits(problem_type(p, o->zp));
    if (why != NULL) {
        return why;
    }
    if (zp != NULL && !is_v && group_of_head(p, o, true, from_end) % TILES_K != 0) {
        return "zero points of K change inside a tile";
    }
    return zp != NULL && !is_v && zp->cls != DTYPE_INT ? "zero points of K are floats" : NULL;
}

static const char *refuse_cache(const kernel_t *self, const problem_t *problem)
{
    const attention_params_t *p = &problem->step->p.attention;
    const known_t n = known_dims(problem);
    (void)self;
    if (!lies_in_tiles(problem, &p->k) && !lies_in_tiles(problem, &p->v)) {
        return "";
    }
    if (n.D < 1 || n.D > CACHE_HEAD || n.Dv < 1 || n.Dv > ATT_CHUNK) {
        return "needs heads of 1 to 576 and values of 1 to 512 elements, known at compile";
    }
    if (n.rows == 0 ||
        (!problem->plan->deterministic &&
         (n.S > TILES_ROWS || (n.rows > TILES_ROWS && !by_token(problem, &n, TILES_ROWS))))) {
        return "needs 1 to 16 query rows for each K and V";
    }
    if (p->prob != NULL) {
        return "a chain follows the probabilities";
    }
    const char *why = refuse_cache_side(problem, &p->k, false);
    return why != NULL ? why : refuse_cache_side(problem, &p->v, true);
}

static const char *refuse_cache_codes(const kernel_t *self, const problem_t *problem)
{
    const attention_params_t *p = &problem->step->p.attention;
    const char *why = refuse_cache(self, problem);
    if (why != NULL) {
        return why;
    }
    if (problem->step->permit.integers == NO_INTEGERS) {
        return MODE_HAS_NO_INTEGERS;
    }
    if (codes_type(problem_type(problem, p->k.data)) == NULL &&
        codes_type(problem_type(problem, p->v.data)) == NULL) {
        return "the data types have no codes that are small integers";
    }
    return NULL;
}

/* Why tiles of an operand cannot be of bytes less their zero points. */
static const char *refuse_bytes(const blocks_table_t *table, const problem_t *p, const operand_t *o)
{
    const dtype_traits_t *type = dtype_traits(problem_type(p, o->data)),
                         *zp = o->zp < 0 ? NULL : dtype_traits(problem_type(p, o->zp));
    if (problem_type(p, o->data) == sinter_f4_e2m1) { /* twice a code is an integer */
        return zp == NULL ? NULL : "codes of K or V that are no integers have zero points";
    }
    if (type->cls != DTYPE_INT || type->bits > 8 || o->split != sinter_data_type_undef) {
        return "codes of K or V are neither integers of at most 8 bits nor f4_e2m1";
    }
    if (zp != NULL && zp->cls != DTYPE_INT) {
        zp = NULL; /* they stay out of the bytes */
    }
    if (type->bits > 4 ? type->digits == 8 || zp != NULL : zp != NULL && zp->bits > 4) {
        return "codes of K or V less their zero points do not fit a signed byte";
    }
    if (table->sums_bytes) {
        return NULL;
    }
    const double above = type->max - (zp != NULL ? zp->min : 0),
                 below = (zp != NULL ? zp->max : 0) - type->min;
    return type->bits > 4                                   ? BYTES_NEED_VNNI
           : above > BLOCKS_NARROW || below > BLOCKS_NARROW ? "sums of pairs would saturate"
                                                            : NULL;
}

static const char *refuse_blocks(const kernel_t *self, const problem_t *p)
{
    const attention_params_t *a = &p->step->p.attention;
    const blocks_table_t *table = blocks_table(self->needs);
    const known_t n = known_dims(p);
    if (p->step->permit.integers != ONE_LIMB) {
        return "the fpmath mode does not allow products of 8-bit integers with floats";
    }
    if (p->plan->deterministic) {
        return OTHER_ROWS;
    }
    if (table == NULL) {
        return "no products of integers for this CPU";
    }
    if (a->q.scale >= 0 || a->q.zp >= 0 || a->prob != NULL) {
        return "Q is quantised, or a chain follows the probabilities";
    }
    if (n.D < 1 || n.D > ATT_HEAD || n.Dv < 1 || n.Dv > ATT_CHUNK) {
        return "needs heads of 1 to 576 and values of 1 to 512 elements, known at compile";
    }
    const char *why = refuse_bytes(table, p, &a->k);
    why = why != NULL ? why : refuse_bytes(table, p, &a->v);
    return why != NULL ? why : refuse_pages(p);
}

/* ---- setup ----------------------------------------------------------------------------------- */

/* The size of heads from which tiles that lie call by call pay for their packing. */
enum { BY_CALL_FROM = 128 };

/* Bytes of a token of K or V that is gathered where masks in memory leave some of them. */
static int cell_bytes(const problem_t *p, const operand_t *o, int64_t head)
{
    return (int)(head * dtype_traits(problem_type(p, o->data))->bits / 8) + CELL_BYTES_BESIDES;
}

static const char *jit_rows(attention_config_t *c, int rows, int D, features_t features)
{
    const char *why = NULL;
    attention_jit_t *j = &c->jit[c->n_jit];
    const xs_kind_t kind = c->bf16 ? XS_BF16F32 : XS_F32;
    xs_shape_t qk = {.kind = kind,
                     .m = rows,
                     .n = ATT_GRAIN,
                     .k = c->bf16 ? round_up(D, 2) : D,
                     .lda = c->ld_q,
                     .ldb = c->by_call ? c->qk_columns : c->ld_k,
                     .ldc = c->ld_s};
    const int ld_v = c->by_call ? c->pv_columns : c->ld_v;
    const xs_shape_t pv = {.kind = kind,
                           .m = rows,
                           .n = c->pv_columns,
                           .k = ATT_GRAIN,
                           .lda = c->ld_s,
                           .ldb = ld_v,
                           .ldc = c->ld_v,
                           .stride_a = ATT_GRAIN,
                           .stride_b = (int64_t)ATT_GRAIN * ld_v};
    j->rows = rows;
    j->qk = j->qk_step = xs_dispatch(&qk, features, &why);
    if (!why && c->tk >= c->qk_columns) {
        qk.n = c->qk_columns;
        j->qk = xs_dispatch(&qk, features, &why);
    }
    if (!why) {
        j->pv = xs_dispatch(&pv, features, &why);
    }
    c->n_jit += !why;
    return why;
}

/* JIT kernels for all heights that can occur: with the number of rows known that is the full
 * strip and what is left over. */
static const char *jit(attention_config_t *c, int64_t rows, int64_t D, int64_t Dv,
                       features_t features)
{
    const char *why = NULL;
    if (c->deterministic) { /* libxsmm adds in another order where there are few rows */
        return "the engine is deterministic";
    }
    if (D < 1 || Dv < 1 || D > ATT_HEAD) {
        return D > ATT_HEAD ? "head size above 576" : "head size not known at compile or 0";
    }
    c->qk_columns = product_columns(features);
    c->pv_columns =
        has_features(features, NEEDS_AVX512) || c->dv % c->qk_columns != 0 ? c->dv : c->qk_columns;
    c->by_call = !c->bf16 && c->blocks == NULL && c->dk >= BY_CALL_FROM &&
                 !has_features(features, NEEDS_AVX512);
    c->least_height = has_features(features, NEEDS_AVX512) ? ATT_HEIGHT : 1;
    const int over = rows > 0 ? (int)(rows % c->strip) : 0,
              rest = over > 0 ? attention_height(c, rows, over) : 0;
    for (int i = 0; i < ATT_LADDER && !why && ladder[i] <= c->strip; i++) {
        const bool covers_rest = rest && ladder[i] >= rest && (i == 0 || ladder[i - 1] < rest);
        if (rows < 0 || ladder[i] == c->strip || covers_rest) {
            why = jit_rows(c, ladder[i], (int)D, features);
        }
    }
    if (why) {
        c->n_jit = 0;
        c->by_call = false;
    }
    return why;
}

/* Tile and block sizes. Wider heads get fewer rows and columns, for a block and its tiles to
 * stay in L2; those that are processed in chunks load K for one strip at a time. */
static void size_blocks(attention_config_t *c, int64_t rows, int64_t T, int64_t D, int64_t Dv)
{
    const bool decode = attention_few_rows(c), chunks = D < 0 || D > ATT_HEAD;
    c->dk = chunks ? ATT_CHUNK : round_up(D ? D : 1, 16);
    c->dv = Dv >= 0 && Dv < ATT_CHUNK ? round_up(Dv ? Dv : 1, c->decode ? 128 : 16)
                                      : ATT_CHUNK; /* decoding order: up to 128 elements */
    const int wide = c->dk > c->dv ? c->dk : c->dv, part = wide <= 128 ? 1 : wide <= 256 ? 2 : 4;
    const int bytes = c->blocks != NULL && part > 2 ? 2 : part, /* which are less than floats */
        tk = decode ? DECODE_TOKENS : ATT_TK / bytes;
    c->tk = T >= 0 && T < tk ? round_up(T ? T : 1, decode ? 2 * DECODE_LANES : 16) : tk;
    c->rows = chunks ? ATT_STRIP : wide > 256 ? ATT_WIDE_ROWS : ATT_ROWS / part;
    if (rows >= 0) { /* blocks of about the same size */
        const int64_t blocks = at_least((rows + c->rows - 1) / c->rows, 1);
        c->rows = round_up(at_least((rows + blocks - 1) / blocks, 1), ATT_STRIP);
    }
    for (int i = ATT_LADDER - 1; i >= 0 && rows >= 0 && ladder[i] >= rows; i--) {
        c->rows = ladder[i];
    }
    if (c->blocks != NULL) {
        c->rows = round_up(c->rows, BLOCKS_ROWS);
        c->tk = round_up(c->tk, BLOCKS_STRIP);
        c->dv = round_up(c->dv, BLOCKS_STRIP);
    }
    c->strip = c->rows < ATT_STRIP ? c->rows : ATT_STRIP;
    const int pad = decode ? 0 : 16;
    c->ld_q = c->dk + pad;
    c->ld_k = c->tk + pad;
    /* Decoders write a multiple of twice the lanes of scores, from any grain of a tile on. */
    c->ld_s = c->tk + (decode ? 2 * DECODE_LANES : pad);
    c->ld_v = c->dv + pad;
}

static int64_t least_part(const attention_config_t *c)
{
    return attention_few_rows(c) ? ATT_DECODE_PART : ATT_PART;
}

/* What is to be unpacked of K or V; its head is the dim `from_end` of the data. */
static cache_sizes_t sizes_to_unpack(const problem_t *p, const operand_t *o, int64_t head,
                                     int from_end)
{
    const int coefs[] = {o->scale, o->zp}, at = problem_ndims(p, o->data) - from_end;
    cache_sizes_t of = {.head = head, .groups = 1};
    for (int i = 0; i < 2; i++) {
        const int d = coefs[i] < 0 || at < 0 ? -1 : (i == 0 ? o->scale_dim : o->zp_dim)[at];
        const int64_t n = d < 0 ? 1 : problem_dim(p, coefs[i], problem_ndims(p, coefs[i]) - d);
        of.groups = at_least(n, of.groups);
    }
    of.bits = lies_in_tiles(p, o) ? dtype_traits(problem_type(p, o->data))->bits : 0;
    return of;
}

static void note_how(const char *of, const decode_how_t *how, textbuf_t *note)
{
    text_add(note, ", %s by %s", of, how->codes ? integers_name(how->kind) : DECODED_FMA);
    if (how->why != NULL) {
        text_add(note, " (%s)", how->why);
    }
}

static sinter_status_t setup_as(const kernel_t *self, const problem_t *p, bool decode,
                                arena_t *arena, candidate_t *out)
{
    const known_t n = known_dims(p);
    const bool cache = self->driver->reads_cache;
    attention_config_t *c = ARENA_NEW(arena, attention_config_t, 1);
    if (c == NULL) {
        return sinter_out_of_memory;
    }
    c->decode = decode;
    c->cache = cache;
    c->needs = self->needs;
    c->all = p->plan->features;
    c->deterministic = p->plan->deterministic;
    if (!cache) {
        const attention_params_t *a = &p->step->p.attention;
        c->unpacks_k = sizes_to_unpack(p, &a->k, n.D, a->trans_k ? 1 : 2);
        c->unpacks_v = sizes_to_unpack(p, &a->v, n.Dv, a->trans_v ? 2 : 1);
    }
    c->kind = self->driver->arithmetic == IN_INT8 ? p->step->permit.integers : NO_INTEGERS;
    c->tile = tile_table(self->needs);
    c->fn = eltwise_table(self->needs);
    c->quant = quant_rows(self->needs);
    c->bf16 = self->driver->arithmetic == IN_BF16;
    c->blocks = self->driver->arithmetic == IN_INT8 && !attention_few_rows(c)
                    ? blocks_table(self->needs)
                    : NULL;
    if (decode) {
        c->k_how = how_of(self, p, false);
        c->v_how = how_of(self, p, true);
        decode_orders(&c->k_how, n.D);
        decode_orders(&c->v_how, n.Dv);
    }
    c->lists = p->step->p.attention.mask >= 0 && p->step->p.attention.prob == NULL && n.D >= 1 &&
               n.D <= ATT_HEAD && n.Dv >= 1 && n.Dv <= ATT_CHUNK;
    if (c->lists && cache) {
        c->copy_bits[0] = dtype_traits(problem_type(p, p->step->p.attention.k.data))->bits;
        c->copy_bits[1] = dtype_traits(problem_type(p, p->step->p.attention.v.data))->bits;
    }
    c->pages = reads_pages(p, &p->step->p.attention.k);
    if (c->pages || (c->lists && !attention_in_tiles(c))) {
        c->cell_bytes[0] = cell_bytes(p, &p->step->p.attention.k, n.D);
        c->cell_bytes[1] = cell_bytes(p, &p->step->p.attention.v, n.Dv);
    }
    const int64_t most = attention_few_rows(c) ? attention_most_rows(c) : INT64_MAX;
    size_blocks(c,
                n.rows < 0                          ? (attention_few_rows(c) ? most : -1)
                : c->deterministic && n.rows > most ? most
                                                    : n.rows,
                n.T, n.D, n.Dv);
    c->totals = p->step->p.attention.prob == NULL && (n.T < 0 || n.T > least_part(c));
    /* Masks in memory may divide rows into groups of any size. */
    const char *why =
        c->cache ? NULL
                 : jit(c, c->lists ? -1 : n.rows, n.D, n.Dv, products_features(self, p, c->bf16));
    if (c->bf16 && why) {
        return sg_fail(sinter_runtime_error, "bf16 attention: %s", why);
    }
    attention_buffers_t b;
    textbuf_t note;
    text_init(&note, arena);
    if (cache) {
        text_add(&note, "%d query row%s, kv-tile %d, rows times tiles of K and V: %s", c->rows,
                 c->rows == 1 ? "" : "s", c->tk,
                 c->kind != NO_INTEGERS ? integers_name(c->kind) : DECODED_FMA);
    } else if (decode) {
        text_add(&note, "%d query row%s, kv-tile %d", c->rows, c->rows == 1 ? "" : "s", c->tk);
        note_how("K", &c->k_how, &note);
        note_how("V", &c->v_how, &note);
    } else {
        text_add(&note, "q-block %d in strips of %d, kv-tile %d, %s", c->rows, c->strip, c->tk,
                 c->unpacks_k.bits > 0 || c->unpacks_v.bits > 0 ? "unpacked from tiles, " : "");
        if (c->blocks != NULL) {
            text_add(&note, ONE_LIMB_NAME);
        } else {
            note_products(&note, c->bf16, self, why);
        }
    }
    *out = (candidate_t){.config = c,
                         .state_bytes = sizeof(attention_state_t),
                         .share_bytes = attention_buffers(c, p->step, NULL, &b),
                         .note = note.text};
    return note.oom ? sinter_out_of_memory : sinter_success;
}

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    return setup_as(self, p, false, arena, out);
}

static sinter_status_t setup_decode(const kernel_t *self, const problem_t *p, arena_t *arena,
                                    candidate_t *out)
{
    return setup_as(self, p, true, arena, out);
}

/* ---- memory ---------------------------------------------------------------------------------- */

size_t attention_buffers(const attention_config_t *c, const step_t *step, unsigned char *scratch,
                         attention_buffers_t *out)
{
    /* Scratch has any alignment; vectors are happier on 64 bytes. */
    unsigned char *base = scratch ? scratch + (64 - (uintptr_t)scratch % 64) % 64 : NULL;
    const size_t q = (size_t)c->rows * (size_t)c->ld_q, k = (size_t)c->dk * (size_t)c->ld_k,
                 v = (size_t)c->tk * (size_t)c->ld_v;
    const size_t s = (size_t)c->strip * (size_t)c->ld_s, acc = (size_t)c->rows * (size_t)c->ld_v,
                 rows = (size_t)c->rows;
    const chain_t *const chains[] = {step->p.attention.score, step->p.attention.bare,
                                     step->p.attention.prob, step->p.attention.under, step->post};
    size_t at = 0, chain = 0;
    for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++) {
        const size_t bytes = chains[i] ? chain_scratch_bytes(chains[i]) : 0;
        chain = bytes > chain ? bytes : chain;
    }
    *out = (attention_buffers_t){0};
    out->q = carve(base, &at, q, sizeof(float));
    out->k = carve(base, &at, k, sizeof(float));
    out->v = carve(base, &at, v, sizeof(float));
    out->s = carve(base, &at, s, sizeof(float));
    out->acc = carve(base, &at, acc, sizeof(float));
    out->part = carve(base, &at, (size_t)c->strip * (size_t)c->ld_v, sizeof(float));
    out->m = carve(base, &at, rows, sizeof(float));
    out->l = carve(base, &at, rows, sizeof(float));
    if (c->totals) {
        out->total.acc = carve(base, &at, acc, sizeof(float));
        out->total.m = carve(base, &at, rows, sizeof(float));
        out->total.l = carve(base, &at, rows, sizeof(float));
    }
    if (c->bf16) {
        out->q16 = carve(base, &at, q, sizeof(uint16_t));
        out->k16 = carve(base, &at, k, sizeof(uint16_t));
        out->v16 = carve(base, &at, v, sizeof(uint16_t));
        out->p16 = carve(base, &at, s, sizeof(uint16_t));
    }
    if (c->decode) {
        const size_t from = at;
        at = from + decode_buffers((int)at_most(c->rows, DECODE_ROWS),
                                   c->k_how.codes || c->v_how.codes, base ? base + from : NULL,
                                   &out->decode);
    }
    if (c->cache) {
        const size_t from = at;
        at = from + cache_buffers((int)at_most(c->rows, TILES_ROWS), at_least(c->dk, c->dv),
                                  base ? base + from : NULL, &out->cache);
    }
    const cache_sizes_t *const sizes[] = {&c->unpacks_k, &c->unpacks_v};
    cache_unpacked_t *const unpacked[] = {&out->k_unpacked, &out->v_unpacked};
    for (int i = 0; i < 2; i++) {
        const size_t from = at;
        if (sizes[i]->bits > 0) {
            at = from + cache_unpacked(sizes[i], base ? base + from : NULL, unpacked[i]);
        }
    }
    if (c->blocks != NULL) {
        ints_buffers(c, base, &at, &out->ints);
    }
    if (c->lists || c->pages) {
        const size_t tokens = (size_t)c->tk;
        out->cell = carve(base, &at, tokens + 1, sizeof(int32_t));
        out->place = carve(base, &at, tokens + 1, sizeof(int32_t));
        for (int i = 0; i < 2 && c->cache; i++) {
            const size_t from = at;
            at = from + cache_copies(c->copy_bits[i], i == 0 ? c->dk : c->dv,
                                     base ? base + from : NULL, &out->copies[i]);
        }
        out->cells[0] = carve(base, &at, tokens, (size_t)c->cell_bytes[0]);
        out->cells[1] = carve(base, &at, tokens, (size_t)c->cell_bytes[1]);
        out->mask = carve(base, &at, tokens, sizeof(float));
        out->terms = carve(base, &at, tokens, sizeof(float));
    }
    out->chain = carve(base, &at, chain, 1);
    out->tail = carve(base, &at, step->tail != NULL ? quant_tail_scratch() : 0, 1);
    return at + 64;
}

/* ---- geometry -------------------------------------------------------------------------------- */

static int64_t batch_dim(const bound_t *b, int from_end)
{
    return b->ndims < from_end ? 1 : b->dims[b->ndims - from_end];
}

/* n elements can stand for `all`. */
static bool broadcasts(int64_t n, int64_t all)
{
    return n == 1 || n == all;
}

/* S and T are those of the output and of V: masks may have made them more than Q and K have. Where
 * the output has no elements, the statistics are still due. */
static sinter_status_t check_dims(const attention_params_t *p, const frame_t *frame,
                                  attention_dims_t *d)
{
    const bound_t *q = &frame->v[p->q.data], *k = &frame->v[p->k.data], *v = &frame->v[p->v.data],
                  *out = &frame->v[p->out_dims], *scores = &frame->v[p->score_dims];
    bool no_output = false;
    for (int i = 0; i < out->ndims; i++) {
        no_output = no_output || (p->stats >= 0 && out->dims[i] == 0);
    }
    const bound_t *space = no_output ? scores : out;
    if (q->ndims < 2 || k->ndims < 2 || v->ndims < 2 || out->ndims < 2 || scores->ndims < 2) {
        return sg_fail(sinter_invalid_shape, "attention: an operand has fewer than 2 dims");
    }
    d->nb = out->ndims - 2;
    d->S = batch_dim(space, 2);
    d->D = batch_dim(q, p->trans_q ? 2 : 1);
    d->T = batch_dim(v, p->trans_v ? 1 : 2);
    d->Dv = batch_dim(v, p->trans_v ? 2 : 1);
    if (batch_dim(k, p->trans_k ? 1 : 2) != d->D || batch_dim(out, 1) != d->Dv ||
        scores->ndims > out->ndims || !broadcasts(batch_dim(q, p->trans_q ? 1 : 2), d->S) ||
        !broadcasts(batch_dim(scores, 2), d->S) ||
        !broadcasts(batch_dim(k, p->trans_k ? 2 : 1), d->T) ||
        !broadcasts(batch_dim(scores, 1), d->T)) {
        return sg_fail(sinter_invalid_shape,
                       "attention: dims of Q, K, V and the output do not fit each other");
    }
    if (batch_dim(scores, 1) != d->T) {
        return sg_fail(sinter_unimplemented,
                       "attention: a softmax over 1 key, whose probability an op behind it "
                       "broadcasts to %lld keys",
                       (long long)d->T);
    }
    for (int i = 0; i < d->nb; i++) {
        const int from_end = out->ndims - i;
        const int64_t n = d->batch[i] = batch_dim(space, from_end), qd = batch_dim(q, from_end),
                      kd = batch_dim(k, from_end), vd = batch_dim(v, from_end);
        if (!broadcasts(qd, n) || !broadcasts(kd, n) || !broadcasts(vd, batch_dim(out, from_end)) ||
            !broadcasts(batch_dim(scores, from_end), n)) {
            return sg_fail(sinter_invalid_shape, "attention: batch dim %d does not broadcast", i);
        }
        d->grouped[i] = kd == 1 && vd == 1 && n != 1;
    }
    if (no_output) {
        d->Dv = 0;
    }
    return sinter_success;
}

/* The rows of a block of a deterministic engine that decodes: those of one token, or an even part
 * of them. Then the rows of other tokens do not matter. */
static int rows_of_token(int64_t group, int most)
{
    int rows = (int)at_most(group, most);
    while (rows > 1 && group % rows != 0) {
        rows--;
    }
    return rows;
}

/* The second pass of a probability chain needs the sums of whole rows, so its items are not cut.
 * Where tokens have lists of cells, each may see a few columns of a part only: then parts of
 * decoding are longer, for tiles to be full. */
static void choose_parts(const attention_params_t *p, const attention_config_t *c, bool lists,
                         attention_dims_t *d)
{
    const int most = attention_few_rows(c) ? ATT_DECODE_PARTS : ATT_PARTS;
    const bool fixed = c->deterministic && (attention_few_rows(c) || lists);
    d->part = p->prob != NULL ? d->T + 1 : least_part(c);
    for (int64_t tokens = 1;
         lists && attention_few_rows(c) && !fixed && tokens < at_most(d->S, ATT_LIST_TOKENS);
         tokens *= 2) {
        d->part *= 2;
    }
    while (!fixed && (d->T - 1) / d->part >= most) {
        d->part *= 2;
    }
    d->parts = (int)at_least((d->T + d->part - 1) / d->part, 1);
}

/* Whether there are so few items that some shares would have less work than others. Smaller blocks
 * would decode the same tiles for each of them; where there are many tokens, shares divide these
 * instead. Rows do not depend on each other, nor their results on the block. */
static bool wants_smaller_blocks(const attention_dims_t *d, int shares)
{
    const int64_t items = d->n_kv * d->n_blocks * d->n_chunks;
    const bool by_parts = d->parts > 1 && d->T >= ATT_LONG * d->block;
    return shares > 1 && (by_parts ? items * d->parts < 2 * (int64_t)shares
                                   : items < ATT_ITEMS * (int64_t)shares);
}

static sinter_status_t geometry(const attention_params_t *p, const attention_config_t *c,
                                const frame_t *frame, attention_dims_t *d)
{
    *d = (attention_dims_t){0};
    SG_TRY(check_dims(p, frame, d));
    d->group = d->n_kv = 1;
    for (int i = 0; i < d->nb; i++) {
        int64_t *n = d->grouped[i] ? &d->group : &d->n_kv;
        if (!mul_i64(*n, d->batch[i], n)) {
            return sg_fail(sinter_invalid_shape, "attention: batch dims overflow");
        }
    }
    d->rows = d->S * d->group;
    d->row_dim = d->nb;
    d->apart = d->group;
    d->n_chunks = (d->Dv + c->dv - 1) / c->dv;
    if (d->n_chunks == 0 && p->stats >= 0) {
        d->n_chunks = 1; /* no output element, but the statistics are still due */
    }
    d->block = c->deterministic && c->decode ? rows_of_token(d->group, c->rows) : c->rows;
    d->n_blocks = (d->rows + d->block - 1) / d->block;
    d->items = d->n_kv * d->n_blocks * d->n_chunks;
    return sinter_success;
}

/* Makes blocks smaller until so many shares have enough of them. Lists say which rows of a block
 * are read together, and so their bits: then blocks are as large as they can be, or, in a
 * deterministic engine, have the rows of one token. */
static void divide_blocks(const attention_config_t *c, bool lists, int shares, attention_dims_t *d)
{
    if (lists && c->deterministic) {
        d->block = rows_of_token(d->group, c->strip);
        d->n_blocks = (d->rows + d->block - 1) / d->block;
    }
    while (!lists && d->block > c->strip && wants_smaller_blocks(d, shares)) {
        d->block = round_up(d->block / 2, c->strip);
        d->n_blocks = (d->rows + d->block - 1) / d->block;
    }
    d->items = d->n_kv * d->n_blocks * d->n_chunks;
}

/* Places of tokens in pages are numbers of 32 bits. */
static bool counts_tokens(const pages_t *pages)
{
    int64_t n;
    return mul_i64(pages->blocks, at_least(pages->cells, 1), &n) && n <= INT32_MAX;
}

/* Where each token names its sequence, tokens are rows. */
static void choose_runs(const attention_params_t *p, attention_state_t *st)
{
    attention_dims_t *d = &st->d;
    const pages_t *pages = &st->k.pages;
    const int of_q = pages->by + st->q.ndims - st->k.ndims; /* dims are counted from the end */
    if (pages->named && pages->by >= 0 && of_q >= 0 && st->q.axis[of_q][IN_SCALE].group == 1 &&
        st->q.axis[of_q][IN_ZP].group == 1) {
        const int64_t most = short_run(d->rows);
        d->row_dim = pages->by + d->nb + 2 - st->k.ndims;
        d->apart = d->rows;
        d->run_rows[0] = p->runs == LONG_RUNS ? most + 1 : 0;
        d->run_rows[1] = p->runs == SHORT_RUNS ? most : INT64_MAX;
    } else if (p->runs == LONG_RUNS) { /* the other step has all of them */
        d->n_kv = 0;
    }
}

/* Binds a chain to the dims that scores have in the work, [b.., S, T]. */
static sinter_status_t bind_scores(const chain_t *chain, const problem_t *problem,
                                   attention_state_t *st, chain_bound_t *out)
{
    int64_t dims[SINTER_MAX_NDIMS];
    const int nb = st->d.nb;
    memcpy(dims, st->d.batch, sizeof(int64_t) * (size_t)nb);
    dims[nb] = st->d.S;
    dims[nb + 1] = st->d.T;
    st->skip = nb + 2 - chain->ndims;
    return chain_bind_over(chain, dims + st->skip, problem->frame, problem->plan->features, out);
}

/* ---- start ----------------------------------------------------------------------------------- */

/* True if a chain's result depends on nothing but the value that it is given. */
static bool is_steady(const chain_bound_t *b)
{
    for (int k = 0; k < b->chain->n_indices; k++) {
        if (b->at[k] >= 0 && b->dims[b->at[k]] != 1) {
            return false;
        }
    }
    for (int i = 0; i < b->chain->n_operands; i++) {
        for (int d = 0; d < b->ndims; d++) {
            if (b->refs[i].stride[d] != 0 && b->dims[d] != 1) {
                return false;
            }
        }
    }
    return true;
}

/* The same along the columns of the scores. */
static bool is_steady_along_columns(const chain_bound_t *b)
{
    const int last = b->ndims - 1;
    bool steady = true;
    for (int k = 0; k < b->chain->n_indices; k++) {
        steady = steady && (b->at[k] != last || b->dims[last] == 1);
    }
    for (int i = 0; i < b->chain->n_operands; i++) {
        steady = steady && (b->refs[i].stride[last] == 0 || b->dims[last] == 1);
    }
    return steady;
}

/* True if the program does nothing but multiply by one positive number, which is known before the
 * first step runs. */
static bool is_scale(const plan_t *plan, const chain_bound_t *b, float *scale)
{
    const chain_instr_t *load = b->chain->instrs, *mul = load + 1;
    if (b->chain->f64 || b->chain->n_instrs != 2 || load->op != CHAIN_LOAD ||
        mul->op != sinter_op_multiply || b->chain->result != mul->dst || load->dst == 0 ||
        !((mul->a == 0 && mul->b == load->dst) || (mul->a == load->dst && mul->b == 0))) {
        return false;
    }
    const chain_ref_t *ref = &b->refs[load->operand];
    const int memory = plan_memory_of(plan, b->chain->operands[load->operand].value);
    if (!is_steady(b) || plan->values[memory].kind == PV_TEMP) {
        return false;
    }
    ref->traits->codec.load_f32(ref->data, 0, 0, 1, scale);
    return *scale > 0 && *scale < INFINITY;
}

/* ---- choose ---------------------------------------------------------------------------------- */

static sinter_status_t bind_sink(const bound_t *sink, attention_state_t *st)
{
    const attention_dims_t *d = &st->d;
    const int shift = d->nb + 2 - sink->ndims;
    memset(st->sink_stride, 0, sizeof(st->sink_stride));
    for (int i = 0; i < sink->ndims; i++) {
        const int at = i + shift;
        const int64_t n = at < 0 ? 0 : at < d->nb ? d->batch[at] : at == d->nb ? d->S : 1;
        if (at < 0 || (sink->dims[i] != 1 && sink->dims[i] != n)) {
            return sg_fail(sinter_invalid_shape,
                           "attention: sinks do not broadcast to one value for each row");
        }
        st->sink_stride[at] = sink->dims[i] == 1 ? 0 : sink->strides[i];
    }
    return sinter_success;
}

static const char *refuse_brgemm(int bf16, const void *config, void *state)
{
    const attention_config_t *c = config;
    (void)state;
    return c->n_jit > 0 && c->bf16 == (bf16 != 0) ? NULL : "";
}

/* How tiles of floats are multiplied. */
const way_row_t ways_attention_products[] = {{ONE_LIMB_NAME, ints_refuse, 0},
                                             {"bf16 brgemm", refuse_brgemm, 1},
                                             {"f32 brgemm", refuse_brgemm, 0},
                                             {"own f32 gemm", NULL, 0}};

/* Whether values of all groups along one axis lie where those along the other one do. */
static bool same_axis(const groups_t *of, const axis_t *x, int64_t nx, const axis_t *y, int64_t ny)
{
    return (groups_are_one(of, x, nx) && groups_are_one(of, y, ny)) ||
           (x->stride == y->stride && x->group == y->group);
}

/* Whether V is the first elements of the tokens of K, where both lie in memory already. */
static bool is_of_keys(const matrices_t *k, const matrices_t *v)
{
    const int rows = k->ndims - 2, columns = k->ndims - 1;
    const groups_t *const of_k[] = {&k->base.codes, &k->base.high, &k->base.scale, &k->base.zp},
                          *const of_v[] = {&v->base.codes, &v->base.high, &v->base.scale,
                                           &v->base.zp};
    bool same = k->base.codes.data != NULL && k->ndims == v->ndims &&
                k->dims[rows] >= v->dims[columns] && k->dims[columns] == v->dims[rows] &&
                k->base.offsets == v->base.offsets && k->base.split == v->base.split;
    for (int i = 0; i < MATRIX_PARTS && same; i++) {
        const groups_t *x = of_k[i], *y = of_v[i];
        same = x->type == y->type;
        if (!same || x->type == NULL) {
            continue;
        }
        same = x->dtype == y->dtype && x->data == y->data && x->first == y->first &&
               x->block == 0 && y->block == 0 &&
               same_axis(x, &x->row, k->dims[rows], &y->column, v->dims[columns]) &&
               same_axis(x, &x->column, k->dims[columns], &y->row, v->dims[rows]);
        for (int d = 0; d < rows && same; d++) {
            same = k->dims[d] == v->dims[d] && k->axis[d][i].stride == v->axis[d][i].stride &&
                   k->axis[d][i].group == v->axis[d][i].group;
        }
    }
    return same;
}

static const char *refuse_cache_way(int way, const void *config, void *state)
{
    const attention_config_t *c = config;
    const cache_side_t *side = state;
    const int only = side->ints                                ? c->kind == TWO_LIMBS ? 0 : 1
                     : side->b.plain != sinter_data_type_undef ? 2
                                                               : 3;
    return way == only ? NULL : "";
}

/* How a side that lies in tiles is multiplied. */
const way_row_t ways_attention_cache[] = {{TWO_LIMBS_NAME " on tiles", refuse_cache_way, 0},
                                          {ONE_LIMB_NAME " on tiles", refuse_cache_way, 1},
                                          {"f32 FMA on tiles of floats", refuse_cache_way, 2},
                                          {"f32 FMA on tiles", NULL, 3}};

static void choose_sides(const attention_params_t *p, const attention_config_t *c,
                         attention_state_t *st, choice_t *choice)
{
    const bool runs = st->d.row_dim < st->d.nb;
    const int64_t rows = c->deterministic ? st->d.block
                         : st->cells.on   ? st->d.group
                         : runs           ? st->d.most_rows
                                          : st->d.rows;
    const int queries = (int)at_most(rows, DECODE_ROWS);
    st->k_side.way = st->v_side.way = BY_TILES;
    st->ints.on = false;
    if (c->cache) {
        const bool ints = c->kind != NO_INTEGERS;
        cache_bind(c->needs, &st->k, false, ints, &st->k_cache);
        cache_bind(c->needs, &st->v, true, ints, &st->v_cache);
        st->k_side.way = st->v_side.way = IN_CACHE;
        st->of_keys = false;
        take_way(ways_attention_cache, "K", c, &st->k_cache, choice);
        take_way(ways_attention_cache, "V", c, &st->v_cache, choice);
        return;
    }
    st->of_keys = c->unpacks_k.bits == 0 && c->unpacks_v.bits == 0 && c->dk >= st->d.D &&
                  c->dv >= st->d.Dv && is_of_keys(&st->k, &st->v);
    if (c->decode) {
        const bool any = st->cells.on || (runs && !c->deterministic) || rows > DECODE_ROWS;
        decode_operand_t k = {&c->k_how, &st->k, false, false, queries, any},
                         v = {&c->v_how, &st->v, true, p->prob != NULL, queries, any};
        matrices_t keys, values;
        if (c->pages) { /* as their copies lie */
            keys = st->k;
            keys.base.codes.column.stride = st->d.D;
            k.op = &keys;
            values = st->v;
            values.base.codes.row.stride = st->d.Dv;
            v.op = &values;
        }
        decode_bind(&k, &st->k_side, choice);
        decode_bind(&v, &st->v_side, choice);
        decode_loops(&k, &st->k_side, choice);
        decode_loops(&v, &st->v_side, choice);
    }
    if (!is_decoded(&st->k_side) || !is_decoded(&st->v_side)) {
        take_way(ways_attention_products, "products", c, st, choice);
    }
}

/* ---- lists of cells -------------------------------------------------------------------------- */

/* What lists of cells are chosen by. */
typedef struct cells_of {
    const problem_t *problem;
    const attention_config_t *config;
} cells_of_t;

static bool both_in_tiles(const problem_t *p)
{
    return lies_in_tiles(p, &p->step->p.attention.k) && lies_in_tiles(p, &p->step->p.attention.v);
}

static const char *refuse_cells(int kind, const void *config, void *state)
{
    const cells_of_t *of = config;
    const attention_params_t *p = &of->problem->step->p.attention;
    attention_state_t *st = state;
    const attention_dims_t *d = &st->d;
    int64_t dims[SINTER_MAX_NDIMS];
    (void)kind;
    if (p->prob != NULL) {
        return "a chain follows the probabilities";
    }
    if (attention_in_tiles(of->config) && !both_in_tiles(of->problem)) {
        return "one of K and V lies in tiles, the other one does not";
    }
    if (!of->config->lists) {
        return "heads of more than 576 or values of more than 512 elements, or not known at "
               "compile";
    }
    if (p->under != NULL && (bind_scores(p->under, of->problem, st, &st->score) != sinter_success ||
                             !is_steady_along_columns(&st->score))) {
        return "scores have other terms for each key";
    }
    const bool gathers = !attention_in_tiles(of->config);
    const char *why = gathers ? cells_refuse_tokens(&st->k, false, d->T, d->D) : NULL;
    why = why != NULL || !gathers ? why : cells_refuse_tokens(&st->v, true, d->T, d->Dv);
    if (why != NULL) {
        return why;
    }
    memcpy(dims, d->batch, sizeof(int64_t) * (size_t)d->nb);
    dims[d->nb] = d->S;
    dims[d->nb + 1] = d->T;
    return cells_bind(&of->problem->frame->v[p->mask], dims, d->nb + 2, of->problem->plan->features,
                      &st->cells);
}

/* How the masks in memory meet the scores. */
const way_row_t ways_attention_masks[] = {{"lists of cells", refuse_cells, 0},
                                          {"terms of all scores", NULL, 0}};

static void choose_cells(const problem_t *problem, const attention_config_t *c,
                         attention_state_t *st, choice_t *choice)
{
    const cells_of_t of = {problem, c};
    st->cells.on = false;
    if (problem->step->p.attention.mask >= 0 && st->d.items > 0 && st->d.T > 0) {
        take_way(ways_attention_masks, "the mask", &of, st, choice);
    }
}

/* Bytes from token to token of K or V where batch dims, such as heads, lie between; else 0. */
static int64_t bytes_of_token(const matrices_t *op, int token_dim)
{
    const int64_t stride = op->axis[token_dim][IN_CODES].stride;
    for (int i = 0; i < op->ndims - 2; i++) {
        const int64_t other = op->axis[i][IN_CODES].stride;
        if (op->dims[i] > 1 && other > 0 && other < stride) {
            return stride * op->base.codes.type->bits / 8;
        }
    }
    return 0;
}

/* Whether rows of an item may see other cells than others: then pieces are whole parts, as sums of
 * earlier pieces are in the way where some are computed again. */
static bool lists_vary(const attention_state_t *st)
{
    bool vary = st->cells.list[st->d.nb] > 0;
    for (int i = 0; i < st->d.nb; i++) {
        vary = vary || (st->d.grouped[i] && st->cells.list[i] > 0);
    }
    return st->cells.on && vary;
}

/* Columns of a piece: whole tiles, of which K and V stay in the second cache while all heads are
 * processed. 0: items are not processed in pieces. */
static int64_t piece_of(const attention_params_t *p, const attention_config_t *c,
                        const frame_t *frame, const attention_state_t *st)
{
    enum { PIECE_BYTES = 1 << 18, MOST_TILES = ATT_DECODE_PART / DECODE_TOKENS };
    const int64_t k = bytes_of_token(&st->k, st->k.ndims - 1),
                  v = bytes_of_token(&st->v, st->v.ndims - 2);
    if (c->cache || c->pages || !is_decoded(&st->k_side) || !is_decoded(&st->v_side) || p->prob ||
        k == 0 || v == 0 || st->d.items != st->d.n_kv || st->d.items > ATT_PIECE_ITEMS ||
        limits_vary(p, frame)) {
        return 0;
    }
    if (lists_vary(st)) {
        return st->d.part;
    }
    return at_least(at_most(PIECE_BYTES / (k + v) / c->tk, MOST_TILES), 1) * c->tk;
}

/* Whether the next piece of all items has room in the second cache beside this one. Several
 * sequences have so many heads that it would be lost before it is used. */
static bool prefetches_pieces(const attention_state_t *st)
{
    enum { MOST_BYTES = 1 << 20 };
    const int64_t bits =
        st->d.D * st->k.base.codes.type->bits + st->d.Dv * st->v.base.codes.type->bits;
    return st->d.piece * st->d.items * bits / 8 <= MOST_BYTES;
}

const way_row_t ways_attention_heads[] = {{"pieces of the cache in turn", NULL, 0}};

/* How items go to shares. Items of decoding may always be divided, as their sums are small. Others
 * are divided where there are few, or where masks leave some batches fewer columns than others. */
static sinter_status_t choose_division(const attention_params_t *p, const attention_config_t *c,
                                       const frame_t *frame, attention_state_t *st,
                                       choice_t *choice)
{
    attention_dims_t *d = &st->d;
    const int shares = choice->shares_bytes ? 1 : frame->shares;
    d->piece = d->items > 0 && d->Dv > 0 && !choice->shares_bytes ? piece_of(p, c, frame, st) : 0;
    d->prefetches = d->piece > 0 && prefetches_pieces(st);
    d->weighs = shares > 1 && d->items > 0 && d->piece == 0;
    d->divides =
        d->weighs && d->parts > 1 &&
        (attention_few_rows(c) || d->items < ATT_ITEMS * (int64_t)shares || limits_vary(p, frame));
    if (d->piece > 0) {
        add_way(choice, "heads", ways_attention_heads, NULL);
    }
    const int64_t groups = d->piece > 0 ? d->items : d->divides ? at_most(d->items, shares - 1) : 0;
    size_t rows = (size_t)d->most_rows;
    if (!mul_size(rows, (size_t)groups * (size_t)d->parts, &rows) ||
        !mul_size(rows, ((size_t)c->ld_v + 2) * sizeof(float), &choice->shared_bytes)) {
        return sg_fail(sinter_invalid_shape, "scratch size overflows");
    }
    if (st->cells.on) {
        st->cells.at = scratch_round(choice->shared_bytes);
        choice->shared_bytes = st->cells.at + cells_bytes(&st->cells, frame->shares);
    }
    st->scans = st->cells.on;
    choice->phases = (st->scans ? 1 : 0) + (d->divides || d->piece > 0 ? 2 : 1);
    return sinter_success;
}

static sinter_status_t choose(const kernel_t *self, const problem_t *problem, const void *config,
                              void *state, choice_t *choice)
{
    const step_t *step = problem->step;
    const frame_t *frame = problem->frame;
    const features_t features = problem->plan->features;
    const attention_params_t *p = &step->p.attention;
    const attention_config_t *c = config;
    attention_state_t *st = state;
    (void)self;
    SG_TRY(geometry(p, c, frame, &st->d));
    SG_TRY(matrices_bind(&p->q, p->trans_q, frame, &st->q));
    SG_TRY(matrices_bind(&p->k, p->trans_k, frame, &st->k));
    SG_TRY(matrices_bind(&p->v, p->trans_v, frame, &st->v));
    choose_runs(p, st);
    /* Rows and columns that broadcast among them. */
    if (st->q.dims[st->q.ndims - 2] != st->d.S) {
        matrices_repeat(&st->q, true);
    }
    if (st->k.dims[st->k.ndims - 1] != st->d.T) {
        matrices_repeat(&st->k, false);
    }
    if (c->pages) {
        const char *why = cells_refuse_tokens(&st->k, false, st->d.T, st->d.D);
        why = why != NULL ? why : cells_refuse_tokens(&st->v, true, st->d.T, st->d.Dv);
        if (why == NULL &&
            (!counts_tokens(&st->k.pages) || !counts_tokens(&st->v.pages) || st->d.T > INT32_MAX)) {
            why = "there are 2^31 tokens or more";
        }
        if (why != NULL) {
            return sg_fail(sinter_unimplemented, "attention over pages: %s", why);
        }
    }
    if (c->unpacks_k.bits > 0) {
        cache_will_unpack(&st->k, false);
    }
    if (c->unpacks_v.bits > 0) {
        cache_will_unpack(&st->v, true);
    }
    if (p->prob) {
        SG_TRY(bind_scores(p->prob, problem, st, &st->prob));
    }
    SG_TRY(chain_bind(step->post, frame, features, &st->post));
    int out;
    st->out = chain_is_store(step->post, &out) && st->post.refs[out].stride[st->post.ndims - 1] == 1
                  ? &st->post.refs[out]
                  : NULL;
    choice->shares_bytes = chain_shares_bytes(&st->post);
    if (step->tail != NULL) {
        SG_TRY(quant_tail_bind(step->tail, frame, features, &st->tail));
        choice->shares_bytes = choice->shares_bytes || quant_tail_shares_bytes(&st->tail, c->dv);
    }
    if (p->sink >= 0) {
        SG_TRY(bind_sink(&frame->v[p->sink], st));
    }
    choose_cells(problem, c, st, choice);
    choose_parts(p, c, st->cells.on, &st->d);
    divide_blocks(c, st->cells.on, frame->shares, &st->d);
    st->d.most_rows =
        (int)at_most(st->d.block, st->d.row_dim < st->d.nb ? st->d.batch[st->d.row_dim] * st->d.rows
                                                           : st->d.rows);
    choose_sides(p, c, st, choice);
    return choose_division(p, c, frame, st, choice);
}

/* What scalars say about masks and scores. */
static sinter_status_t start(const kernel_t *self, const problem_t *problem, const void *config,
                             void *state)
{
    const frame_t *frame = problem->frame;
    const attention_params_t *p = &problem->step->p.attention;
    const attention_config_t *c = config;
    attention_state_t *st = state;
    (void)self;
    if (c->decode) {
        decode_start(&st->k, &st->k_side);
        decode_start(&st->v, &st->v_side);
    }
    st->masked = limits_bind(p, frame, st);
    st->d.has_runs = st->d.row_dim < st->d.nb && attention_has_runs(st);
    if (st->d.weighs) {
        division_bind(st);
    }
    st->prob_steady = p->prob != NULL && is_steady(&st->prob);
    /* Lists hold only where the masks above them are limits. */
    st->cells.on = st->cells.on && (p->n_bare == 0 || st->masked);
    /* Tiles of a cache stay where they are. */
    st->cells.by_place = st->cells.on && c->deterministic && !attention_in_tiles(c);
    const chain_t *score = st->cells.on ? p->under : st->masked ? p->bare : p->score;
    st->scored = score != NULL;
    st->scale = 1;
    if (score) {
        float scale;
        SG_TRY(bind_scores(score, problem, st, &st->score));
        if (is_scale(problem->plan, &st->score, &scale)) {
            st->scored = false;
            st->scale = scale;
        }
    }
    if (problem->step->tail != NULL) {
        quant_tail_start(problem->step->tail, frame, &st->tail);
    }
    return sinter_success;
}

static void tell(const void *state, char *text)
{
    const attention_state_t *st = state;
    const double all = (double)st->d.n_kv * (double)st->d.T, seen = (double)limits_tokens(st);
    if (seen < all) {
        snprintf(text, TELL_BYTES, "masks leave %.1f%% of the tokens", 100 * seen / all);
    }
}

/* ---- the drivers ----------------------------------------------------------------------------- */

#define ATTENTION                                                                    \
    .step = STEP_ATTENTION, .phases = 2, .choose = choose, .check = attention_check, \
    .checked = attention_checked, .start = start, .work = attention_work, .tell = tell
#define FLASH ATTENTION, .setup = setup
#define DECODE                        \
    ATTENTION, .setup = setup_decode, \
               .takes = "1 to 8 query rows for each K and V, 16 tokens or more"
#define CACHE                                       \
    ATTENTION, .setup = setup, .reads_cache = true, \
               .takes = "1 to 16 query rows for each K and V, which lie in tiles"
const driver_t driver_attention_cache = {CACHE, .arithmetic = IN_F32, .refuse = refuse_cache};
const driver_t driver_attention_cache_int8 = {CACHE, .arithmetic = IN_INT8,
                                              .refuse = refuse_cache_codes};
const driver_t driver_attention_flash = {FLASH, .arithmetic = IN_F32, .refuse = refuse_flash};
const driver_t driver_attention_flash_bf16 = {FLASH, .arithmetic = IN_BF16, .refuse = refuse_bf16};
const driver_t driver_attention_flash_int8 = {FLASH, .arithmetic = IN_INT8,
                                              .refuse = refuse_blocks};
const driver_t driver_attention_decode = {DECODE, .arithmetic = IN_F32, .refuse = refuse_decode};
const driver_t driver_attention_decode_int8 = {DECODE, .arithmetic = IN_INT8,
                                               .refuse = refuse_codes};
