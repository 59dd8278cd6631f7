/* The attention kernels against double loops of the test's own: shapes, batch broadcasting, data
 * types and group geometries of K and V, masks, NaN rules, splits of T, every ISA level. Frames,
 * steps and chains are built by hand, threads are played one after the other. */
#define _GNU_SOURCE
#include <sinter/sinter_graph.h>

#include "backend_xsmm/drivers/attention/attention.h"
#include "backend_xsmm/drivers/attention/attention_decode.h"
#include "base/cpu.h"
#include "check.h"
#include "test_decode.h"

static const kernel_t *kernel_named(const char *name)
{
    for (int i = 0; i < sinter_n_kernels; i++) {
        if (strcmp(sinter_kernels[i].name, name) == 0) {
            return &sinter_kernels[i];
        }
    }
    printf("there is no kernel %s\n", name);
    exit(1);
}

static int refused;

/* ---- a problem ------------------------------------------------------------------------------- */

enum {
    Q,
    K,
    KS,
    KZ,
    V,
    VS,
    VZ,
    SCALE,
    MASK,
    FILL,
    SHIFT,
    WINDOW,
    SINK,
    OUT,
    STATS,
    SCORES,
    N_VALUES
};
enum { MAX_NB = 3 };
/* One sink for all rows, for each index of the last batch dim, for each row. */
typedef enum sink { SINK_NONE, SINK_ONE, SINK_HEAD, SINK_ROW, SINKS } sink_t;
typedef enum mask {
    MASK_NONE,
    MASK_FULL,
    MASK_ROW,
    MASK_CAUSAL,
    MASK_CAUSAL_BOTTOM_RIGHT,
    MASKS
} mask_t;
/* What MASK_FULL and MASK_ROW leave: anything, with other numbers than 0; columns in turn to rows,
 * whole runs of columns to rows; one column; all; no column; random ones. */
typedef enum cell_pattern {
    CELLS_TERMS,
    CELLS_SLOTS,
    CELLS_RUNS,
    CELLS_ONE,
    CELLS_ALL,
    CELLS_NONE,
    CELLS_RANDOM,
    CELLS
} cell_pattern_t;
/* Memory order of a K/V cache: dense; with room for more tokens; tokens outside the last batch
 * dim ([B][T][H][D]). */
typedef enum cache { CACHE_DENSE, CACHE_ROOM, CACHE_TOKENS_OUTSIDE } cache_t;

typedef struct attention_case {
    int nb;
    int64_t q_batch[MAX_NB], kv_batch[MAX_NB], S, T, D, Dv;
    sinter_data_type_t q, k, v, scale, zp, out; /* scale, zp 0: none (K and V of float types) */
    int k_group, v_group;                       /* along D and Dv; 0: whole */
    int t_group;                                /* along T; 0: each token; -1: whole */
    bool one_zp;                                /* for all of K, and for all of V */
    bool offsets;                               /* zp has offsets */
    bool trans_q, trans_k, trans_v;
    cache_t cache;
    sink_t sink;
    mask_t mask;
    bool bare;  /* the kernel may put the masks itself; */
    bool lists; /* and may make lists of cells of MASK_FULL and MASK_ROW */
    cell_pattern_t cells;
    int slots;                    /* of CELLS_SLOTS: every so many columns belong to a row */
    bool mask_batches;            /* MASK_FULL has the last batch dim of the output */
    sinter_data_type_t mask_type; /* 0: f32 */
    int window; /* of a causal mask: columns that count, up to the diagonal; 0: all */
    float fill;
    bool inf_as_zero, stats, prob, dynamic, plain; /* plain: no score chain at all */
    int gain; /* what the chain on probabilities makes is multiplied with 2^gain */
    int threads;
    sinter_fpmath_mode_t mode;
} attention_case_t;

typedef struct world {
    const attention_case_t *p;
    bound_t v[N_VALUES];
    guarded_t mem[N_VALUES];
    unsigned char *out_copy;
    size_t out_bytes;
    chain_instr_t score_code[24], prob_code[5], post_code[1];
    chain_operand_t score_ops[8], post_ops[1];
    chain_t score, bare, under, prob, post;
} world_t;

static size_t bytes_of(sinter_data_type_t type, int64_t n)
{
    return (size_t)((n * dtype_traits(type)->bits + 7) / 8);
}

static int64_t extent(const bound_t *b)
{
    int64_t n = 1;
    for (int d = 0; d < b->ndims; d++) {
        if (b->dims[d] == 0) {
            return 0;
        }
        n += (b->dims[d] - 1) * b->strides[d];
    }
    return n;
}

/* dims in logical order; order[] lists them from the outermost in memory, NULL: as they are;
 * room: extra entries in dim room_dim (-1: none). */
static void shape(world_t *w, int value, sinter_data_type_t type, int ndims, const int64_t *dims,
                  const int *order, int room_dim)
{
    bound_t *b = &w->v[value];
    *b = (bound_t){.dtype = type, .ndims = ndims};
    int64_t s = 1;
    for (int i = ndims - 1; i >= 0; i--) {
        const int d = order ? order[i] : i;
        b->dims[d] = dims[d];
        b->strides[d] = s;
        s *= dims[d] + (d == room_dim ? 3 : 0);
    }
    w->mem[value] = guarded(bytes_of(type, extent(b)));
    b->data = w->mem[value].data;
}

static void put_float(sinter_data_type_t type, unsigned char *p, int64_t i, float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    const uint16_t bf = (uint16_t)(u >> 16);
    const uint16_t half = (uint16_t)(u >> 16 & 0x8000) |
                          (uint16_t)((u & 0x7fffffff) ? ((u >> 13 & 0x3ffff) - (112 << 10)) : 0);
    if (type == sinter_f32) {
        memcpy(p + 4 * i, &x, 4);
    } else {
        memcpy(p + 2 * i, type == sinter_f16 ? &half : &bf, 2);
    }
}

/* Floats become multiples of 1/64 in [-1, 1], exact in all of them; codes stay random but for
 * NaN and the huge. */
static void fill(world_t *w, int value)
{
    const bound_t *b = &w->v[value];
    const int64_t n = extent(b);
    for (int64_t i = 0; i < n; i++) {
        const float x = (float)((int)(rnd() % 129) - 64) / 64;
        switch (b->dtype) {
        case sinter_f32:
        case sinter_f16:
        case sinter_bf16:
            put_float(b->dtype, b->data, i, x);
            break;
        case sinter_f8_e5m2:
        case sinter_f8_e4m3:
            b->data[i] &= 0xbf;
            break;
        case sinter_f8_e5m2fnuz:
        case sinter_f8_e4m3fnuz:
            b->data[i] = (b->data[i] & 0xbf) == 0x80 ? 0 : b->data[i] & 0xbf;
            break;
        default:
            break;
        }
    }
}

/* Scales that bring codes of the type to about [-1, 1]. */
static void fill_scales(world_t *w, int value, sinter_data_type_t data_type)
{
    const bound_t *b = &w->v[value];
    const int64_t n = extent(b);
    const double max = dtype_traits(data_type)->bits == 8 && dtype_is_float(data_type)
                           ? 2
                           : dtype_traits(data_type)->max; /* fill depends on it */
    for (int64_t i = 0; i < n; i++) {
        const int log2_max = ilogb(max) + 1;
        if (b->dtype == sinter_e8m0) {
            b->data[i] = (unsigned char)(127 - log2_max - (int)(rnd() % 2));
        } else if (b->dtype == sinter_f8_e4m3) {
            b->data[i] = (unsigned char)(1 + rnd() % 6); /* 2^-9 to 6 * 2^-9 */
        } else {
            put_float(b->dtype, b->data, i, ldexpf((float)(64 + rnd() % 64) / 128, -log2_max));
        }
    }
}

static void make_side(world_t *w, int value, sinter_data_type_t type, const bound_t *data, int dim,
                      int group, int token)
{
    const int tokens = w->p->t_group;
    int64_t dims[SINTER_MAX_NDIMS];
    for (int d = 0; d < data->ndims; d++) {
        dims[d] = d == dim ? data->dims[d] / (group           ? group
                                              : data->dims[d] ? data->dims[d]
                                                              : 1)
                           : data->dims[d];
        if (d == token && tokens != 0 && data->dims[d] > 0) {
            dims[d] = tokens < 0                    ? 1
                      : data->dims[d] % tokens == 0 ? data->dims[d] / tokens
                                                    : data->dims[d];
        }
    }
    shape(w, value, type, data->ndims, dims, NULL, -1);
}

/* Zero points that are floats are among codes; offsets are as large as the values of codes. */
static void fill_float_zps(world_t *w, int value, sinter_data_type_t codes)
{
    const double reach = w->p->offsets ? 1 : dtype_traits(codes)->max;
    for (int64_t i = 0, n = extent(&w->v[value]); i < n; i++) {
        put_float(w->v[value].dtype, w->v[value].data, i,
                  (float)(((int)(rnd() % 129) - 64) * reach / 64));
    }
}

static bool has_float_zp(const attention_case_t *p)
{
    return p->zp && dtype_is_wide_float(p->zp);
}

static void make_cache(world_t *w, int value, sinter_data_type_t type, bool trans, int64_t rows,
                       int64_t cols, bool tokens_are_rows, int group)
{
    const attention_case_t *p = w->p;
    int64_t dims[MAX_NB + 2];
    int order[MAX_NB + 2];
    const int nb = p->nb, r = nb, c = nb + 1, token = tokens_are_rows != trans ? r : c,
              other = token == r ? c : r;
    for (int d = 0; d < nb; d++) {
        dims[d] = p->kv_batch[d];
        order[d] = d;
    }
    dims[trans ? c : r] = rows;
    dims[trans ? r : c] = cols;
    /* The token dim is never the packed one, so that a cache can grow. */
    order[nb] = token, order[nb + 1] = other;
    if (p->cache == CACHE_TOKENS_OUTSIDE && nb > 0) {
        order[nb - 1] = token, order[nb] = nb - 1;
    }
    shape(w, value, type, nb + 2, dims, order, p->cache == CACHE_ROOM ? token : -1);
    fill(w, value);
    const bound_t *b = &w->v[value];
    if (p->scale && !dtype_is_wide_float(type)) {
        make_side(w, value + 1, p->scale, b, other, group, token);
        fill_scales(w, value + 1, type);
    }
    if (p->zp && dtype_traits(type)->cls == DTYPE_INT && p->one_zp) {
        static const int64_t ones[MAX_NB + 2] = {1, 1, 1, 1, 1};
        shape(w, value + 2, p->zp, b->ndims, ones, NULL, -1);
    } else if (p->zp && dtype_traits(type)->cls == DTYPE_INT) {
        make_side(w, value + 2, p->zp, b, other, group, token);
    }
    if (has_float_zp(p) && w->mem[value + 2].map) {
        fill_float_zps(w, value + 2, type);
    }
}

/* ---- chains ---------------------------------------------------------------------------------- */

static int load(world_t *w, int n, int reg, int value, int nd)
{
    chain_operand_t *o = &w->score_ops[w->score.n_operands];
    o->value = value;
    for (int d = 0; d < nd; d++) {
        const int own = d - (nd - w->v[value].ndims);
        o->map[d] = (int8_t)(own >= 0 ? own : -1);
    }
    w->score_code[n] =
        (chain_instr_t){.op = CHAIN_LOAD, .dst = reg, .operand = w->score.n_operands++};
    return n + 1;
}

/* Select(row + shift >= col, score, FILL), or Select(col + window - 1 >= row + shift, score,
 * FILL). */
static int make_limit(world_t *w, int n, bool lower)
{
    const int nd = w->p->nb + 2;
    chain_instr_t *code = w->score_code;
    code[n++] = (chain_instr_t){.op = CHAIN_INDEX, .dst = 1, .index = 0};
    n = load(w, n, 2, SHIFT, nd);
    code[n++] = (chain_instr_t){.op = sinter_op_add, .dst = 1, .a = 1, .b = 2};
    code[n++] = (chain_instr_t){.op = CHAIN_INDEX, .dst = 2, .index = 1};
    if (lower) {
        n = load(w, n, 3, WINDOW, nd);
        code[n++] = (chain_instr_t){.op = sinter_op_add, .dst = 2, .a = 2, .b = 3};
    }
    code[n++] = (chain_instr_t){
        .op = sinter_op_greater_equal, .dst = 1, .a = lower ? 2 : 1, .b = lower ? 1 : 2};
    n = load(w, n, 2, FILL, nd);
    code[n++] = (chain_instr_t){.op = sinter_op_select, .dst = 0, .a = 1, .b = 0, .c = 2};
    return n;
}

/* The masks over score * SCALE + MASK, each part if the problem has it. */
static void make_score(world_t *w)
{
    const attention_case_t *p = w->p;
    const int nd = p->nb + 2;
    chain_instr_t *code = w->score_code;
    int n = load(w, 0, 1, SCALE, nd);
    code[n++] = (chain_instr_t){.op = sinter_op_multiply, .dst = 0, .a = 0, .b = 1};
    const int n_under = n, n_under_operands = w->score.n_operands;
    if (p->mask == MASK_FULL || p->mask == MASK_ROW) {
        n = load(w, n, 1, MASK, nd);
        code[n++] = (chain_instr_t){.op = sinter_op_add, .dst = 0, .a = 0, .b = 1};
    }
    const int n_bare = n, n_bare_operands = w->score.n_operands;
    if (p->mask >= MASK_CAUSAL) {
        n = p->window ? make_limit(w, n, true) : n;
        n = make_limit(w, n, false);
    }
    w->score = (chain_t){.ndims = nd,
                         .dims_value = SCORES,
                         .n_regs = 4,
                         .n_instrs = n,
                         .n_operands = w->score.n_operands,
                         .n_indices = 2,
                         .instrs = code,
                         .operands = w->score_ops,
                         .indices = {{nd - 2, SCORES}, {nd - 1, SCORES}}};
    w->bare = w->score;
    w->bare.n_instrs = n_bare;
    w->bare.n_operands = n_bare_operands;
    w->bare.n_indices = 0;
    w->under = w->bare;
    w->under.n_instrs = n_under;
    w->under.n_operands = n_under_operands;
}

/* prob = (p^2 + 1/2) 2^gain: smooth, so that no rounding flips, and not 0 at 0. */
static void make_prob(world_t *w)
{
    const double gain = ldexp(1, w->p->gain);
    w->prob_code[0] = (chain_instr_t){.op = sinter_op_square, .dst = 0, .a = 0};
    w->prob_code[1] = (chain_instr_t){.op = CHAIN_CONST, .dst = 1, .p = {0.5f}, .pd = {0.5}};
    w->prob_code[2] = (chain_instr_t){.op = sinter_op_add, .dst = 0, .a = 0, .b = 1};
    w->prob_code[3] =
        (chain_instr_t){.op = CHAIN_CONST, .dst = 1, .p = {(float)gain}, .pd = {gain}};
    w->prob_code[4] = (chain_instr_t){.op = sinter_op_multiply, .dst = 0, .a = 0, .b = 1};
    w->prob = (chain_t){.ndims = w->p->nb + 2,
                        .dims_value = SCORES,
                        .n_regs = 2,
                        .n_instrs = 5,
                        .instrs = w->prob_code};
}

static void make_post(world_t *w)
{
    w->post_ops[0] = (chain_operand_t){.value = OUT, .map = {0, 1, 2, 3, 4}};
    w->post_code[0] = (chain_instr_t){.op = CHAIN_STORE, .a = 0};
    w->post = (chain_t){.ndims = w->p->nb + 2,
                        .dims_value = OUT,
                        .n_regs = 1,
                        .n_instrs = 1,
                        .n_operands = 1,
                        .result = -1,
                        .instrs = w->post_code,
                        .operands = w->post_ops};
}

/* ---- building the values --------------------------------------------------------------------- */

static int64_t out_batch(const attention_case_t *p, int d)
{
    return p->q_batch[d] == 1 ? p->kv_batch[d] : p->q_batch[d];
}

/* Random numbers beside those of rnd(). */
static uint32_t another(void)
{
    static uint32_t x = 12345;
    x = x * 1664525 + 1013904223;
    return x >> 8;
}

static void make_mask(world_t *w)
{
    const attention_case_t *p = w->p;
    const bool full = p->mask == MASK_FULL, batches = full && p->mask_batches && p->nb > 0;
    const int64_t heads = batches ? out_batch(p, p->nb - 1) : 1, rows = full ? p->S : 1,
                  dims[] = {heads, rows, p->T};
    const sinter_data_type_t type = p->mask_type ? p->mask_type : sinter_f32;
    shape(w, MASK, type, batches ? 3 : full ? 2 : 1, dims + (batches ? 0 : full ? 1 : 2), NULL, -1);
    fill(w, MASK);
    /* random ones, and the mask leaves some rows nothing */
    for (int64_t i = 0; i < heads * rows * p->T; i++) {
        if (rnd() % 3 == 0) {
            put_float(type, w->v[MASK].data, i, -INFINITY);
        }
    }
    for (int64_t row = 0; full && row < heads * rows; row++) {
        for (int64_t t = 0; rnd() % 5 == 0 && t < p->T; t++) {
            put_float(type, w->v[MASK].data, row * p->T + t, -INFINITY);
        }
    }
    for (int64_t row = 0; p->cells != CELLS_TERMS && row < heads * rows; row++) {
        const int64_t s = row % rows, slots = p->slots > 0 ? p->slots : 1,
                      one = p->T > 0 ? (int64_t)(another() % (uint32_t)p->T) : 0;
        const bool none = p->cells == CELLS_NONE || (full && another() % 5 == 0);
        for (int64_t t = 0; t < p->T; t++) {
            const bool sees = p->cells == CELLS_SLOTS  ? t % slots == s % slots
                              : p->cells == CELLS_RUNS ? t * slots / p->T == s % slots
                              : p->cells == CELLS_ONE  ? t == one
                                                      : p->cells == CELLS_ALL || another() % 3 == 0;
            put_float(type, w->v[MASK].data, row * p->T + t, sees && !none ? 0 : -INFINITY);
        }
    }
}

static void scalar(world_t *w, int value, float x)
{
    shape(w, value, sinter_f32, 0, NULL, NULL, -1);
    memcpy(w->v[value].data, &x, 4);
}

static void make_sink(world_t *w)
{
    static const sinter_data_type_t types[] = {sinter_f32, sinter_bf16, sinter_f16};
    const attention_case_t *p = w->p;
    const int64_t dims[] = {p->nb && p->sink >= SINK_HEAD ? out_batch(p, p->nb - 1) : 1,
                            p->sink == SINK_ROW ? p->S : 1, 1};
    shape(w, SINK, types[(p->S + p->T) % 3], p->nb ? 3 : 2, p->nb ? dims : dims + 1, NULL, -1);
    fill(w, SINK);
}

static void build(world_t *w, const attention_case_t *p)
{
    const int nb = p->nb,
              out_order[][MAX_NB + 2] = {{0, 1},
                                         {0, 1, 2},
                                         {0, 2, 1, 3},
                                         {0, 3, 1, 2, 4}}; /* tokens outside the last batch dim */
    int64_t dims[MAX_NB + 2];
    memset(w, 0, sizeof *w);
    w->p = p;
    memcpy(dims, p->q_batch, sizeof p->q_batch);
    dims[nb] = p->trans_q ? p->D : p->S, dims[nb + 1] = p->trans_q ? p->S : p->D;
    shape(w, Q, p->q, nb + 2, dims, NULL, nb);
    fill(w, Q);
    make_cache(w, K, p->k, p->trans_k, p->D, p->T, false, p->k_group);
    make_cache(w, V, p->v, p->trans_v, p->T, p->Dv, true, p->v_group);
    scalar(w, SCALE, p->D ? 1 / sqrtf((float)p->D) : 1);
    scalar(w, FILL, p->fill);
    scalar(w, SHIFT, p->mask == MASK_CAUSAL_BOTTOM_RIGHT ? (float)(p->T - p->S) : 0);
    scalar(w, WINDOW, (float)(p->window - 1));
    make_mask(w);
    make_sink(w);
    for (int d = 0; d < nb; d++) {
        dims[d] = out_batch(p, d);
    }
    dims[nb] = p->S, dims[nb + 1] = p->T;
    w->v[SCORES] = (bound_t){.dtype = sinter_f32, .ndims = nb + 2};
    memcpy(w->v[SCORES].dims, dims, sizeof(int64_t) * (size_t)(nb + 2));
    dims[nb + 1] = p->Dv;
    shape(w, OUT, p->out, nb + 2, dims, out_order[nb], nb);
    dims[nb + 1] = 1;
    shape(w, STATS, sinter_f32, nb + 2, dims, NULL, nb);
    w->out_bytes = bytes_of(p->out, extent(&w->v[OUT]));
    w->out_copy = malloc(w->out_bytes + 1);
    memcpy(w->out_copy, w->v[OUT].data, w->out_bytes);
    make_score(w);
    make_prob(w);
    make_post(w);
}

static void destroy(world_t *w)
{
    for (int i = 0; i < N_VALUES; i++) {
        if (w->mem[i].map) {
            unguard(&w->mem[i]);
        }
    }
    free(w->out_copy);
}

/* ---- running a kernel ------------------------------------------------------------------------ */

static operand_t operand_of(const world_t *w, int value)
{
    operand_t o = {.data = value,
                   .scale = w->mem[value + 1].map && value != Q ? value + 1 : -1,
                   .zp = w->mem[value + 2].map && value != Q ? value + 2 : -1,
                   .offsets = w->mem[value + 2].map && value != Q && w->p->offsets};
    for (int d = 0; d < SINTER_MAX_NDIMS; d++) {
        o.scale_dim[d] = o.zp_dim[d] = (int8_t)d;
    }
    return o;
}

static void compile_time_view(const world_t *w, plan_value_t *pv)
{
    for (int i = 0; i < N_VALUES; i++) {
        lt_t *lt = &pv[i].lt;
        lt->ndims = w->v[i].ndims;
        lt->data_type = w->v[i].dtype;
        for (int d = 0; d < lt->ndims; d++) {
            lt->dims[d] = w->p->dynamic && rnd() % 2 ? SINTER_UNKNOWN_DIM : w->v[i].dims[d];
            lt->strides[d] = w->v[i].strides[d];
        }
    }
}

static detour_t last_detour;

static void play_threads(const kernel_t *k, const problem_t *problem, const candidate_t *with,
                         const void *state, const choice_t *choice, char *what)
{
    const size_t each = with->share_bytes, all = choice->shared_bytes;
    const frame_t *frame = problem->frame;
    enum { PAD = 24 }; /* scratch at odd addresses, canaries behind it */
    unsigned char *shared = malloc(all + PAD), *scratch[8];
    CHECK(each < 2u << 20, "%s: scratch of a thread is below 2 MiB", what);
    memset(shared + all, 0x5a, PAD);
    for (int t = 0; t < frame->shares; t++) {
        scratch[t] = malloc(each + PAD);
        /* NaN, so that a read of an element that was not written shows */
        memset(scratch[t], 0xff, each);
        memset(scratch[t] + each, 0x5a, PAD);
    }
    last_detour = NULL;
    const int phases = choice->phases > 0 ? choice->phases : k->driver->phases;
    for (int phase = 0; phase < phases; phase++) {
        const int nth = choice->shares_bytes ? 1 : frame->shares;
        for (int t = 0; t < nth; t++) {
            uint64_t products = 0;
            const worker_t w = {.phase = phase,
                                .tid = t,
                                .nth = nth,
                                .scratch = scratch[t],
                                .shared = shared,
                                .detour = &last_detour,
                                .products = &products};
            k->driver->work(k, problem, with->config, state, &w);
        }
    }
    bool whole = true;
    for (int i = 0; i < PAD; i++) {
        whole = whole && shared[all + (size_t)i] == 0x5a;
        for (int t = 0; t < frame->shares; t++) {
            whole = whole && scratch[t][each + (size_t)i] == 0x5a;
        }
    }
    CHECK(whole, "%s: scratch and shared memory stay in their sizes", what);
    for (int t = 0; t < frame->shares; t++) {
        free(scratch[t]);
    }
    free(shared);
}

static char last_note[200];
static bool k_took_one_zp; /* in decoding: it went into the values of codes */
static bool took_offsets;  /* of K and V, or such zero points, and added them on their own */

static bool is_decode(const kernel_t *k)
{
    return strstr(k->name, "_decode_") != NULL;
}

/* The kernel does not take every problem. */
static bool is_choosy(const kernel_t *k)
{
    return is_decode(k) || k->driver->arithmetic == IN_INT8;
}

static sinter_status_t execute(world_t *w, const kernel_t *k, sinter_cpu_isa_t isa, char *what)
{
    const attention_case_t *p = w->p;
    plan_value_t values[N_VALUES] = {0};
    plan_t plan = {.values = values,
                   .n_values = N_VALUES,
                   .features = features_up_to(isa),
                   .engine = engine_ref(NULL)};
    arena_init(&plan.arena, plan.engine);
    compile_time_view(w, values);
    step_t step = {.kind = STEP_ATTENTION, .post = &w->post, .permit = permit_of(p->mode, false)};
    step.p.attention = (attention_params_t){
        .q = operand_of(w, Q),
        .k = operand_of(w, K),
        .v = operand_of(w, V),
        .trans_q = p->trans_q,
        .trans_k = p->trans_k,
        .trans_v = p->trans_v,
        .score = p->plain ? NULL : &w->score,
        .prob = p->prob ? &w->prob : NULL,
        .score_dims = SCORES,
        .out_dims = OUT,
        .stats = p->stats ? STATS : -1,
        .sink = p->sink ? SINK : -1,
        .inf_as_zero = p->inf_as_zero,
        .n_limits = p->plain || p->mask < MASK_CAUSAL ? 0
                    : p->window                       ? 2
                                                      : 1,
        .n_bare = p->plain || !p->bare || p->mask < MASK_CAUSAL ? 0
                  : p->window                                   ? 2
                                                                : 1,
        .bare = &w->bare,
        .mask = p->lists && !p->plain && (p->mask == MASK_FULL || p->mask == MASK_ROW) ? MASK : -1,
        .under = &w->under,
        .limits = {{.moves = true,
                    .n_terms = 1,
                    .term = {SHIFT},
                    .sign = {1},
                    .fill = FILL,
                    .row_of = SCORES,
                    .column_of = SCORES},
                   {.lower = true,
                    .moves = true,
                    .n_terms = 2,
                    .term = {SHIFT, WINDOW},
                    .sign = {1, -1},
                    .fill = FILL,
                    .row_of = SCORES,
                    .column_of = SCORES}}};
    const frame_t frame = {.v = w->v, .shares = p->threads};
    problem_t problem = {.plan = &plan, .step = &step};
    candidate_t with = {0};
    choice_t choice = {0};
    memcpy(w->v[OUT].data, w->out_copy, w->out_bytes);
    bool refuses = is_choosy(k) && k->driver->refuse(k, &problem) != NULL;
    sinter_status_t status =
        refuses ? sinter_unimplemented : k->driver->setup(k, &problem, &plan.arena, &with);
    problem.frame = &frame;
    if (status == sinter_success && is_choosy(k)) { /* it counts on what it refuses */
        status = k->driver->refuse(k, &problem) != NULL ? sinter_unimplemented : status;
    }
    if (status == sinter_success) {
        void *state = malloc(with.state_bytes);
        snprintf(last_note, sizeof last_note, "%s: %s", k->name, with.note);
        status = k->driver->choose(k, &problem, with.config, state, &choice);
        status =
            status == sinter_success ? k->driver->start(k, &problem, with.config, state) : status;
        if (status == sinter_success) {
            const attention_state_t *st = state;
            play_threads(k, &problem, &with, state, &choice, what);
            k_took_one_zp = is_decode(k) && is_decoded(&st->k_side) && st->k_side.zps == IN_VALUES;
            took_offsets = is_decode(k)
                               ? is_decoded(&st->k_side) && is_decoded(&st->v_side) &&
                                     st->k_side.zps == ADDED &&
                                     st->v_side.zps ==
                                         (st->v_side.way < BY_DECODING ? TAKEN_OFF_WEIGHED : ADDED)
                               : st->ints.on && st->ints.k_floats && st->ints.v_floats;
        }
        free(state);
    }
    arena_free(&plan.arena);
    engine_unref(plan.engine);
    return status;
}

/* ---- the reference --------------------------------------------------------------------------- */

static int64_t at(const bound_t *b, const bound_t *side, const int64_t *idx)
{
    int64_t a = 0;
    for (int d = 0; d < b->ndims; d++) {
        const int64_t n = side->dims[d]; /* divisions take most of the test's time */
        a += (n == b->dims[d] ? idx[d] : n == 1 ? 0 : idx[d] / (b->dims[d] / n)) * side->strides[d];
    }
    return a;
}

/* Element (r, c) of a matrix operand at a batch index of the output. rounding: what the contract
 * lets zero points that are floats cost it, in units of 2^-24 (docs/numerics.md): with offsets two
 * roundings of each term, else one of the code and of the zero point. */
static double element_of(const world_t *w, int value, bool trans, const int64_t *batch, int64_t r,
                         int64_t c, double *rounding)
{
    const bound_t *b = &w->v[value];
    int64_t idx[MAX_NB + 2];
    for (int d = 0; d < w->p->nb; d++) {
        idx[d] = b->dims[d] == 1 ? 0 : batch[d];
    }
    idx[w->p->nb] = trans ? c : r, idx[w->p->nb + 1] = trans ? r : c;
    const double x = decode(b->dtype, b->data, at(b, b, idx)),
                 scale = value != Q && w->mem[value + 1].map
                             ? decode(w->v[value + 1].dtype, w->v[value + 1].data,
                                      at(b, &w->v[value + 1], idx))
                             : 1;
    *rounding = 0;
    if (value == Q || !w->mem[value + 2].map) {
        return x * scale;
    }
    const double zp =
        decode(w->v[value + 2].dtype, w->v[value + 2].data, at(b, &w->v[value + 2], idx));
    if (w->p->offsets) {
        *rounding = 2 * (fabs(x * scale) + fabs(zp));
        return x * scale + zp;
    }
    *rounding = has_float_zp(w->p) ? fabs(scale) * (fabs(x) + fabs(zp)) : 0;
    return (x - zp) * scale;
}

static double element(const world_t *w, int value, bool trans, const int64_t *batch, int64_t r,
                      int64_t c)
{
    double rounding;
    return element_of(w, value, trans, batch, r, c, &rounding);
}

/* The operands of one batch index, decoded: each element is needed for many rows. */
typedef struct batch_ref {
    double *q, *k;        /* rows along the head */
    double *v, *v_scales; /* rows along the channels */
    double *k_rounding, *v_rounding;
} batch_ref_t;

typedef struct row_ref {
    double *s, *p; /* scores, probabilities */
    double delta;  /* bounds of the error of scores: the sum of relative arithmetic errors */
    double rel;    /* the same for a probability */
    double stats;
} row_ref_t;

static double unit(const attention_case_t *p)
{
    return p->mode == sinter_fpmath_mode_bf16 ? 0x1p-9 : 0;
}

/* What rounding to limbs of 8 bits may cost each activation of a group, as a part of the largest
 * one. */
static double limb(const attention_case_t *p)
{
    return p->mode == sinter_fpmath_mode_f16    ? 0x1p-15
           : p->mode == sinter_fpmath_mode_int8 ? 0x1p-7
                                                : 0;
}

/* The scale of an element of K or V; 1: none. */
static double scale_at(const world_t *w, int value, const int64_t *batch, int64_t t, int64_t d)
{
    const bound_t *b = &w->v[value];
    const bool trans = value == K ? w->p->trans_k : w->p->trans_v;
    const int64_t r = value == K ? d : t, c = value == K ? t : d;
    int64_t idx[MAX_NB + 2];
    for (int i = 0; i < w->p->nb; i++) {
        idx[i] = b->dims[i] == 1 ? 0 : batch[i];
    }
    idx[w->p->nb] = trans ? c : r, idx[w->p->nb + 1] = trans ? r : c;
    return w->mem[value + 1].map
               ? decode(w->v[value + 1].dtype, w->v[value + 1].data, at(b, &w->v[value + 1], idx))
               : 1;
}

static batch_ref_t new_batch(const attention_case_t *p)
{
    return (batch_ref_t){
        calloc((size_t)(p->S * p->D) + 1, 8),  calloc((size_t)(p->T * p->D) + 1, 8),
        calloc((size_t)(p->T * p->Dv) + 1, 8), calloc((size_t)(p->T * p->Dv) + 1, 8),
        calloc((size_t)(p->T * p->D) + 1, 8),  calloc((size_t)(p->T * p->Dv) + 1, 8)};
}

static void free_batch(const batch_ref_t *o)
{
    free(o->q), free(o->k), free(o->v), free(o->v_scales);
    free(o->k_rounding), free(o->v_rounding);
}

static void read_batch(const world_t *w, const int64_t *batch, const batch_ref_t *o)
{
    const attention_case_t *p = w->p;
    for (int64_t s = 0; s < p->S; s++) {
        for (int64_t d = 0; d < p->D; d++) {
            o->q[s * p->D + d] = element(w, Q, p->trans_q, batch, s, d);
        }
    }
    for (int64_t t = 0; t < p->T; t++) {
        for (int64_t d = 0; d < p->D; d++) {
            o->k[t * p->D + d] =
                element_of(w, K, p->trans_k, batch, d, t, &o->k_rounding[t * p->D + d]);
        }
        for (int64_t c = 0; c < p->Dv; c++) {
            o->v[t * p->Dv + c] =
                element_of(w, V, p->trans_v, batch, t, c, &o->v_rounding[t * p->Dv + c]);
            o->v_scales[t * p->Dv + c] = limb(p) > 0 ? scale_at(w, V, batch, t, c) : 1;
        }
    }
}

static double sink_of(const world_t *w, const int64_t *batch, int64_t s)
{
    const bound_t *b = &w->v[SINK];
    const int nb = w->p->nb, head = nb && b->dims[0] > 1, row = b->dims[b->ndims - 2] > 1;
    const int64_t at =
        (head ? batch[nb - 1] * b->strides[0] : 0) + (row ? s * b->strides[b->ndims - 2] : 0);
    return w->p->sink ? decode(b->dtype, b->data, at) : -INFINITY;
}

static void reference_row(const world_t *w, const int64_t *batch, const batch_ref_t *o, int64_t s,
                          row_ref_t *r)
{
    const attention_case_t *p = w->p;
    const double *q = o->q + s * p->D;
    const double scale = p->plain ? 1 : decode(sinter_f32, w->v[SCALE].data, 0);
    const double sink = sink_of(w, batch, s);
    double max = sink, magnitude = 0, sum = 0, qmax = 0, lost = 0;
    for (int64_t d = 0; d < p->D; d++) {
        qmax = fmax(qmax, fabs(q[d]));
    }
    for (int64_t t = 0; t < p->T; t++) {
        const double *k = o->k + t * p->D;
        const double *rounding = o->k_rounding + t * p->D;
        double x = 0, abs = 0, mask = 0, ks = 0, rounded = 0;
        for (int64_t d = 0; d < p->D; d++) {
            const double term = q[d] * k[d];
            x += term;
            abs += fabs(term);
            ks += limb(p) > 0 ? fabs(k[d]) : 0;
            rounded += fabs(q[d]) * rounding[d];
        }
        x *= scale;
        lost = fmax(lost, (ks * qmax * limb(p) + rounded * 0x1p-24) * scale);
        if (!p->plain && (p->mask == MASK_FULL || p->mask == MASK_ROW)) {
            const bound_t *m = &w->v[MASK];
            const int64_t head = m->ndims == 3 ? batch[p->nb - 1] * p->S : 0;
            mask = decode(m->dtype, m->data, (p->mask == MASK_FULL ? head + s : 0) * p->T + t);
            x += mask;
        } else if (!p->plain && p->mask >= MASK_CAUSAL) {
            const int64_t row = s + (p->mask == MASK_CAUSAL ? 0 : p->T - p->S);
            x = row >= t && (p->window == 0 || t > row - p->window) ? x : (double)p->fill;
        }
        r->s[t] = x;
        max = x > max ? x : max;
        magnitude = fmax(magnitude, abs * scale + (isfinite(mask) ? fabs(mask) : 0));
    }
    bool numbers = true;
    for (int64_t t = 0; t < p->T; t++) {
        numbers = numbers && !isnan(r->s[t]);
        r->p[t] = max == -INFINITY && p->inf_as_zero && !isnan(r->s[t]) ? 0 : exp(r->s[t] - max);
        sum += r->p[t];
    }
    sum += p->sink ? exp(sink - max) : 0;
    for (int64_t t = 0; t < p->T; t++) {
        r->p[t] = sum == 0 && p->inf_as_zero ? 0 : r->p[t] / sum;
        r->p[t] = p->prob ? ldexp(r->p[t] * r->p[t] + 0.5, p->gain) : r->p[t];
    }
    r->stats = max == -INFINITY && numbers ? -INFINITY : max + log(sum);
    r->delta = magnitude * (2.1 * unit(p) + 0x1p-24 * (double)(p->D + 8)) + lost + 0x1p-22;
    r->rel = (r->delta < 1 ? expm1(2 * r->delta) : 2 * r->delta) + 2.1 * unit(p) +
             0x1p-24 * (double)(p->T + 32);
}

static bool close_to(double got, double want, double bound)
{
    return isnan(want) ? isnan(got) : got == want || (isfinite(want) && fabs(got - want) <= bound);
}

/* Rounding of the output: half a unit in the last place, f16 subnormals included. */
static double output_error(sinter_data_type_t type, double x)
{
    return type == sinter_f16 ? fmax(fabs(x) * 0x1p-11, 0x1p-25)
                              : fabs(x) * (type == sinter_bf16 ? 0x1p-8 : 0x1p-24);
}

/* Marks in `seen` where each element of the output starts, so that everything else can be compared
 * with the original. */
static bool compare_row(const world_t *w, const int64_t *batch, const batch_ref_t *o, int64_t s,
                        const row_ref_t *r, unsigned char *seen)
{
    const attention_case_t *p = w->p;
    const bound_t *out = &w->v[OUT];
    const size_t size = (size_t)dtype_traits(p->out)->bits / 8;
    int64_t first = s * out->strides[p->nb], stat = s * w->v[STATS].strides[p->nb];
    bool ok = true;
    for (int d = 0; d < p->nb; d++) {
        first += batch[d] * out->strides[d];
        stat += batch[d] * w->v[STATS].strides[d];
    }
    for (int64_t c = 0; c < p->Dv; c++) {
        double want = 0, abs = 0, most = 0, codes = 0, rounded = 0;
        for (int64_t t = 0; t < p->T; t++) {
            const double v = o->v[t * p->Dv + c];
            want += r->p[t] * v;
            abs += fabs(r->p[t] * v);
            rounded += fabs(r->p[t]) * o->v_rounding[t * p->Dv + c];
            if (limb(p) > 0) {
                const double by = o->v_scales[t * p->Dv + c];
                most = fmax(most, fabs(r->p[t] * by));
                codes += by != 0 ? fabs(v / by) : 0;
            }
        }
        const double got = decode(p->out, out->data, first + c * out->strides[p->nb + 1]);
        const double bound = abs * r->rel * (p->prob ? 3 : 1) +
                             (limb(p) * most * codes + rounded * 0x1p-24) * (1 + r->rel) +
                             output_error(p->out, want) + 1e-12;
        if (!close_to(got, want, bound)) {
            if (check_failed < 10) {
                printf("  row %lld column %lld: got %.9g, want %.9g, bound %.3g\n", (long long)s,
                       (long long)c, got, want, bound);
            }
            ok = false;
        }
        memset(seen + (size_t)(first + c * out->strides[p->nb + 1]) * size, 1, size);
    }
    if (p->stats) {
        const double got = decode(sinter_f32, w->v[STATS].data, stat);
        ok = ok && close_to(got, r->stats, 2 * r->delta + 1e-6 * (1 + fabs(r->stats)));
    }
    return ok;
}

static bool compare(const world_t *w)
{
    const attention_case_t *p = w->p;
    row_ref_t r = {calloc((size_t)p->T + 1, 8), calloc((size_t)p->T + 1, 8), 0, 0, 0};
    const batch_ref_t o = new_batch(p);
    unsigned char *seen = calloc(w->out_bytes + 1, 1);
    int64_t batches = 1;
    bool ok = true;
    for (int d = 0; d < p->nb; d++) {
        batches *= out_batch(p, d);
    }
    for (int64_t b = 0; b < batches; b++) {
        int64_t batch[MAX_NB], rest = b;
        for (int d = p->nb - 1; d >= 0; rest /= out_batch(p, d), d--) {
            batch[d] = rest % out_batch(p, d);
        }
        read_batch(w, batch, &o);
        for (int64_t s = 0; s < p->S; s++) {
            reference_row(w, batch, &o, s, &r);
            ok = compare_row(w, batch, &o, s, &r, seen) && ok;
        }
    }
    for (size_t i = 0; i < w->out_bytes; i++) {
        ok = ok && (seen[i] || w->v[OUT].data[i] == w->out_copy[i]);
    }
    free(r.s), free(r.p), free(seen);
    free_batch(&o);
    return ok;
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* Heads of queries that share those of K and V, all of it in f32. */
static attention_case_t in_floats(int64_t queries, int64_t heads, int64_t S, int64_t T, int64_t D,
                                  int64_t Dv, sinter_fpmath_mode_t mode)
{
    return (attention_case_t){.nb = 1,
                              .q_batch = {queries},
                              .kv_batch = {heads},
                              .S = S,
                              .T = T,
                              .D = D,
                              .Dv = Dv,
                              .q = sinter_f32,
                              .k = sinter_f32,
                              .v = sinter_f32,
                              .out = sinter_f32,
                              .threads = 1,
                              .mode = mode};
}

static void describe(const attention_case_t *p, const char *kernel, char *what, size_t n)
{
    snprintf(what, n,
             "%s nb %d q %lldx%lldx%lld kv %lldx%lldx%lld S %lld T %lld D %lld Dv %lld %s K %s V "
             "%s scale %s zp %s%s%s groups %d %d trans "
             "%d%d%d cache %d mask %d "
             "bare %d lists %d cells %d slots %d heads %d %s sink %d window %d fill %g inf0 %d "
             "stats %d prob %d dyn %d plain %d threads %d mode %d",
             kernel, p->nb, (long long)p->q_batch[0], (long long)p->q_batch[1],
             (long long)p->q_batch[2], (long long)p->kv_batch[0], (long long)p->kv_batch[1],
             (long long)p->kv_batch[2], (long long)p->S, (long long)p->T, (long long)p->D,
             (long long)p->Dv, dtype_traits(p->q)->name, dtype_traits(p->k)->name,
             dtype_traits(p->v)->name, p->scale ? dtype_traits(p->scale)->name : "-",
             p->zp ? dtype_traits(p->zp)->name : "-", p->offsets ? " offsets" : "",
             p->one_zp ? " for all" : "", p->k_group, p->v_group, p->trans_q, p->trans_k,
             p->trans_v, (int)p->cache, (int)p->mask, p->bare, p->lists, (int)p->cells, p->slots,
             p->mask_batches, p->mask_type ? dtype_traits(p->mask_type)->name : "f32", (int)p->sink,
             p->window, (double)p->fill, p->inf_as_zero, p->stats, p->prob, p->dynamic, p->plain,
             p->threads, (int)p->mode);
}

static void run(const attention_case_t *p, const kernel_t *k, sinter_cpu_isa_t isa)
{
    static world_t w;
    char what[600];
    describe(p, k->name, what, sizeof what);
    build(&w, p);
    const sinter_status_t status = execute(&w, k, isa, what);
    refused += status == sinter_unimplemented;
    if (status != sinter_unimplemented &&
        CHECK(status == sinter_success, "%s: setup and prepare", what)) {
        CHECK(compare(&w), "%s: differs from the double loops", what);
    }
    destroy(&w);
}

#define PICK(array) (array)[rnd() % (sizeof(array) / sizeof *(array))]

static attention_case_t random_problem(void)
{
    static const int64_t rows[] = {1, 1, 2, 5, 16, 33, 64, 70},
                         columns[] = {1, 7, 16, 63, 64, 65, 100, 130, 200}, heads[] = {1, 2, 3, 8};
    static const int64_t sizes[] = {1, 8, 17, 32, 40, 64, 80};
    static const sinter_data_type_t wide[] = {sinter_f32, sinter_f16, sinter_bf16};
    static const sinter_data_type_t narrow[] = {
        sinter_f32,         sinter_f16,     sinter_bf16,    sinter_s8,
        sinter_u8,          sinter_s4,      sinter_u4,      sinter_s4,
        sinter_u4,          sinter_f8_e5m2, sinter_f8_e4m3, sinter_f8_e5m2fnuz,
        sinter_f8_e4m3fnuz, sinter_f4_e2m1, sinter_f6_e3m2, sinter_f6_e2m3};
    static const sinter_data_type_t scales[] = {sinter_f32, sinter_f16, sinter_bf16, sinter_e8m0,
                                                sinter_f8_e4m3};
    static const sinter_data_type_t zps[] = {
        0, 0, 0, sinter_s4, sinter_u4, sinter_s4, sinter_u4, sinter_f16, sinter_bf16, sinter_f32};
    attention_case_t p = {.nb = (int)(rnd() % 4),
                          .S = PICK(rows),
                          .T = PICK(columns),
                          .D = PICK(sizes),
                          .Dv = PICK(sizes),
                          .q = PICK(wide),
                          .k = PICK(narrow),
                          .v = PICK(narrow),
                          .scale = PICK(scales),
                          .zp = PICK(zps),
                          .out = PICK(wide),
                          .trans_q = rnd() % 4 == 0,
                          .trans_k = rnd() % 2,
                          .trans_v = rnd() % 4 == 0,
                          .cache = (cache_t)(rnd() % 3),
                          .mask = (mask_t)(rnd() % MASKS),
                          .sink = rnd() % 2 ? SINK_NONE : (sink_t)(rnd() % SINKS),
                          .inf_as_zero = rnd() % 2,
                          .stats = rnd() % 2,
                          .prob = rnd() % 6 == 0,
                          .dynamic = rnd() % 3 == 0,
                          .plain = rnd() % 8 == 0,
                          .threads = 1 + (int)(rnd() % 5)};
    p.offsets = has_float_zp(&p) && rnd() % 2;
    p.bare = rnd() % 2;
    p.lists = another() % 2;
    p.cells = p.lists ? (cell_pattern_t)(another() % CELLS) : CELLS_TERMS;
    p.slots = 1 + (int)(another() % 8);
    p.mask_batches = p.lists && another() % 3 == 0;
    p.mask_type = p.lists ? wide[another() % 3] : sinter_f32;
    p.window = rnd() % 2 ? 0 : (int[]){1, 2, 16, 40, 64, 100}[rnd() % 6];
    p.fill = rnd() % 4 ? -INFINITY : -1e4f;
    p.k_group = p.D % 4 == 0 && rnd() % 2 ? (int)(p.D % 8 || rnd() % 2 ? 4 : 8) : rnd() % 3 ? 0 : 1;
    p.v_group = p.Dv % 8 == 0 && rnd() % 2 ? 8 : rnd() % 3 ? 0 : 1;
    for (int d = 0; d < p.nb; d++) {
        const int64_t n = d == 2 ? 2 : PICK(heads);
        p.q_batch[d] = rnd() % 8 ? n : 1;
        p.kv_batch[d] = rnd() % 2 ? n : 1;
    }
    for (int64_t work = 1; p.nb > 0; p.nb--, work = 1) { /* keep the double loops short */
        for (int d = 0; d < p.nb; d++) {
            work *= out_batch(&p, d);
        }
        if (work * p.S * p.T * (p.D + p.Dv) < 1500000) {
            break;
        }
    }
    return p;
}

/* One to eight query rows for each K and V, heads that decoding takes. */
static attention_case_t random_decode(void)
{
    static const int64_t columns[] = {16, 31, 32, 33, 127, 256, 257, 513, 600},
                         sizes[] = {8, 16, 32, 40, 64, 64, 80, 96, 128, 192, 256};
    static const sinter_data_type_t types[] = {
        sinter_f32, sinter_f16, sinter_bf16,    sinter_s8,      sinter_u8,     sinter_s4,
        sinter_u4,  sinter_s4,  sinter_f8_e5m2, sinter_f8_e4m3, sinter_f4_e2m1};
    static const int groups[] = {0, 1, 8, 16, 16, 32, 32, 64, 128};
    static const int64_t rows[] = {1, 1, 2, 3, 4, 5, 7, 8};
    attention_case_t p = random_problem();
    const int64_t n = PICK(rows), group = n % 2 == 0 && rnd() % 2 ? 2 : 1;
    p.nb = 2;
    p.q_batch[0] = p.kv_batch[0] = 1 + rnd() % 2;
    p.kv_batch[1] = 1;
    p.q_batch[1] = group;
    p.S = n / group;
    p.T = PICK(columns), p.D = PICK(sizes), p.Dv = PICK(sizes), p.k = PICK(types),
    p.v = PICK(types);
    p.trans_k = true; /* heads contiguous */
    p.trans_v = false;
    p.dynamic = false;
    p.t_group = (int[]){0, 0, 0, -1, 32, 8, 64}[rnd() % 7];
    p.k_group = PICK(groups);
    p.v_group = PICK(groups);
    p.k_group = p.k_group > 0 && p.D % p.k_group ? 0 : p.k_group;
    p.v_group = p.v_group > 0 && p.Dv % p.v_group ? 0 : p.v_group;
    p.one_zp = !p.offsets && rnd() % 4 == 0; /* offsets have the groups of the scales */
    return p;
}

/* Decoding in floats with one to 16 coefficients in a row: how micro-kernels load them depends on
 * their number in a row and in a chunk. */
static void test_coefficients(const kernel_t *k, sinter_cpu_isa_t isa)
{
    static const struct {
        sinter_data_type_t codes, zp;
    } types[] = {{sinter_s4, 0},         {sinter_u4, sinter_u4}, {sinter_f4_e2m1, 0},
                 {sinter_s8, 0},         {sinter_u8, sinter_u8}, {sinter_f8_e4m3, 0},
                 {sinter_f8_e5m2, 0},    {sinter_s4, sinter_s4}, {sinter_u4, sinter_s4},
                 {sinter_s4, sinter_s8}, {sinter_u4, sinter_u8}}; /* far from codes of 4 bits */
    static const int groups[] = {0, 64, 32, 16, 8};
    attention_case_t p = {.nb = 2,
                          .q_batch = {1, 4},
                          .kv_batch = {1, 1},
                          .S = 1,
                          .T = 70,
                          .D = 128,
                          .Dv = 128,
                          .q = sinter_f32,
                          .out = sinter_f32,
                          .scale = sinter_f16,
                          .trans_k = true,
                          .fill = -INFINITY,
                          .threads = 1};
    for (int t = 0; t < (int)(sizeof types / sizeof *types); t++) {
        for (int g = 0; g < (int)(sizeof groups / sizeof *groups); g++) {
            p.k = p.v = types[t].codes;
            p.zp = types[t].zp;
            p.k_group = p.v_group = groups[g];
            run(&p, k, isa);
        }
    }
    /* Dwords of codes with several scales. */
    for (int i = 0; i < 12; i++) {
        p.D = p.Dv = i % 3 == 2 ? 32 : 16;
        p.k_group = p.v_group = i % 3 == 0 ? 1 : 2;
        p.k = p.v = i % 2 ? sinter_u8 : sinter_s8;
        p.zp = i < 6 ? 0 : p.k;
        run(&p, k, isa);
    }
}

/* One zero point for all codes costs nothing where it goes into their values, which it does where
 * these stay exact. */
static void test_one_zp(const kernel_t *k, sinter_cpu_isa_t isa, sinter_fpmath_mode_t mode)
{
    static const struct {
        sinter_data_type_t codes, zp;
        bool in_values;
    } types[] = {{sinter_u4, sinter_u4, true},   {sinter_u4, sinter_u8, true},
                 {sinter_s4, sinter_s4, true},   {sinter_s4, sinter_s8, true},
                 {sinter_u4, sinter_s8, true},   {sinter_s4, sinter_u8, false},
                 {sinter_u4, sinter_s32, false}, {sinter_s8, sinter_s8, false}};
    attention_case_t p = {.nb = 2,
                          .q_batch = {2, 4},
                          .kv_batch = {2, 1},
                          .S = 1,
                          .T = 277,
                          .D = 128,
                          .Dv = 64,
                          .q = sinter_f32,
                          .out = sinter_f32,
                          .one_zp = true,
                          .trans_k = true,
                          .fill = -INFINITY,
                          .threads = 1,
                          .mode = mode};
    for (int t = 0; t < (int)(sizeof types / sizeof *types); t++) {
        for (int i = 0; i < 6; i++) {
            p.k = p.v = types[t].codes;
            p.zp = types[t].zp;
            p.scale = i == 5 ? 0 : sinter_f16;
            p.k_group = p.v_group = i % 2 ? 32 : 0;
            p.t_group = i == 2 ? -1 : i == 3 ? 32 : 0;
            const int before = refused;
            run(&p, k, isa);
            CHECK(refused > before || k_took_one_zp == types[t].in_values,
                  "%s: where the zero point of %s codes of type %s goes", k->name,
                  dtype_traits(p.zp)->name, dtype_traits(p.k)->name);
        }
    }
}

static attention_case_t offsets_case(int rows, sinter_fpmath_mode_t mode)
{
    return (attention_case_t){.nb = 2,
                              .q_batch = {1, rows},
                              .kv_batch = {1, 1},
                              .S = 1,
                              .T = 277,
                              .D = 128,
                              .Dv = 128,
                              .q = sinter_f32,
                              .out = sinter_f32,
                              .scale = sinter_f16,
                              .trans_k = true,
                              .fill = -INFINITY,
                              .threads = 1,
                              .mode = mode};
}

/* Offsets, and zero points that are floats, are added on their own: with sums of the query and of
 * the weights. rows: of queries. */
static void test_offsets(const kernel_t *k, sinter_cpu_isa_t isa, sinter_fpmath_mode_t mode,
                         bool bytes, int rows)
{
    static const sinter_data_type_t codes[] = {sinter_u4, sinter_s4, sinter_u8, sinter_s8};
    static const int groups[] = {0, 32, 64}, heads[] = {128, 64, 96, 256};
    for (int i = 0; i < 4 * 3 * 4; i++) {
        attention_case_t p = offsets_case(rows, mode);
        p.k = p.v = codes[bytes ? i % 4 : i % 2];
        if (rows > DECODE_ROWS && p.k == sinter_u8) { /* its bytes would not be signed ones */
            continue;
        }
        p.zp = i % 3 ? sinter_f16 : sinter_f32;
        p.k_group = p.v_group = groups[i / 4 % 3];
        p.D = p.Dv = heads[i / 12];
        for (int kind = 0; kind < 2; kind++) {
            p.offsets = kind;
            took_offsets = false;
            run(&p, k, isa);
            CHECK(took_offsets, "%s: %s of %s codes are added on their own", k->name,
                  kind ? "offsets" : "float zero points", dtype_traits(p.k)->name);
            CHECK(last_detour == NULL, "%s: detour \"%s\"", k->name,
                  last_detour != NULL ? last_detour : "");
        }
    }
}

/* Offsets that cannot be added on their own are a detour, which execute reports. */
static void test_odd_offsets(const kernel_t *k, sinter_cpu_isa_t isa, sinter_fpmath_mode_t mode,
                             int rows)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 0x1p110f, -0x1p120f};
    enum { ODD = sizeof odd / sizeof *odd };
    for (int i = 0; i < 4 * ODD; i++) {
        static world_t w;
        char text[600];
        const int side = i % 2 ? K + 2 : V + 2;
        attention_case_t p = offsets_case(rows, mode);
        p.k = p.v = i % 4 < 2 ? sinter_u4 : sinter_s4;
        p.zp = p.scale = sinter_f32;
        p.offsets = i % 4 < 2;
        p.k_group = p.v_group = 32;
        describe(&p, k->name, text, sizeof text);
        build(&w, &p);
        put_float(sinter_f32, w.v[side].data, extent(&w.v[side]) / 2, odd[i / 4]);
        CHECK(execute(&w, k, isa, text) == sinter_success && compare(&w), "%s: %g", text,
              (double)odd[i / 4]);
        CHECK(last_detour != NULL || fabsf(odd[i / 4]) < INFINITY, "%s: %g is a detour", text,
              (double)odd[i / 4]);
        destroy(&w);
    }
}

/* Zero points at the ends of what decoders take off codes of 4 bits, and beyond, for fours of rows
 * and for other numbers of them, in whole chunks and in parts. Those that a decoder cannot take off
 * are a detour, which execute reports. */
static void test_far_zps(const kernel_t *k, sinter_cpu_isa_t isa, sinter_fpmath_mode_t mode)
{
    static const int32_t far[] = {-248, -240, 0, 7, 240, 248, 249, 256, 257, -241, 100000, -100000};
    for (int i = 0; i < 72; i++) {
        static world_t w;
        char text[600];
        bool detour = false;
        attention_case_t p = {.nb = 2,
                              .q_batch = {2, (int64_t[]){1, 2, 4, 5, 7, 8}[i / 2 % 6]},
                              .kv_batch = {2, 1},
                              .S = 1,
                              .T = i % 4 < 2 ? 70 : 277,
                              .D = 128,
                              .Dv = 40,
                              .q = sinter_f32,
                              .out = sinter_f32,
                              .k = i % 2 ? sinter_s4 : sinter_u4,
                              .v = i % 2 ? sinter_s4 : sinter_u4,
                              .scale = sinter_f16,
                              .zp = sinter_s32,
                              .k_group = i / 12 % 2 ? 32 : 64,
                              .trans_k = true,
                              .fill = -INFINITY,
                              .threads = 1,
                              .mode = mode};
        /* a chunk of V, and of K in groups of 64, has one zero point, which is a place in tables */
        const bool places = decode_ops(features_up_to(isa), p.k)->place_zps != NULL;
        const int32_t flip = i % 2 ? 8 : 0;
        describe(&p, k->name, text, sizeof text);
        build(&w, &p);
        for (int side = K + 2; side <= V + 2; side += V - K) {
            int32_t *zp = (int32_t *)(void *)w.v[side].data;
            for (int64_t e = 0; e < extent(&w.v[side]); e++) {
                zp[e] = far[rnd() % (i < 36 ? 6 : sizeof far / sizeof *far)];
                detour = detour || (places && (side == V + 2 || p.k_group == 64) &&
                                    (zp[e] + flip < ZP_LEAST || zp[e] + flip > ZP_MOST));
            }
        }
        const sinter_status_t status = execute(&w, k, isa, text);
        CHECK(status == sinter_success && compare(&w), "%s: zero points far from the codes", text);
        const char *reported = last_detour;
        CHECK(detour ? reported != NULL && strstr(reported, "zero points are too far") != NULL
                     : reported == NULL,
              "%s: detour \"%s\"", text, reported != NULL ? reported : "none");
        destroy(&w);
    }
}

/* On AVX2 codes of 4 bits are looked up less their zero points, and fours of rows take tiles. */
static void test_avx2_nibbles(void)
{
    static const struct {
        sinter_data_type_t type;
        int flip;
        float least, most;
    } ends[] = {{sinter_u4, 0, -240, 256}, {sinter_s4, 8, -248, 248}};
    for (int i = 0; i < 2; i++) {
        const decode_ops_t *ops = decode_ops(features_up_to(sinter_isa_avx2), ends[i].type);
        bool tiles = ops != NULL;
        for (int coefs = 0; coefs < DECODE_COEFS && tiles; coefs++) {
            tiles = ops->loops[coefs] && ops->loops[coefs]->qk[QK_TILES][3] &&
                    ops->loops[coefs]->pv[PV_TILES][3];
        }
        CHECK(tiles && ops->place_zps, "AVX2 takes codes of 4 bits by tables and tiles");
        for (int at = 0; at < 19 && ops; at++) { /* in whole vectors and behind them */
            for (int out = 0; out < 4; out++) {
                float zp[19];
                for (int e = 0; e < 19; e++) {
                    zp[e] = e % 2 ? ends[i].least : ends[i].most;
                }
                zp[at] = out == 0   ? ends[i].least
                         : out == 1 ? ends[i].most
                         : out == 2 ? ends[i].least - 1
                                    : ends[i].most + 1;
                CHECK(ops->place_zps(zp, 19, ends[i].flip) == (out < 2),
                      "%s: zero point %d of kind %d", dtype_traits(ends[i].type)->name, at, out);
            }
        }
    }
}

/* A window may begin at any grain of a tile of the second pass, whose scores reach its end. */
static void test_windows(const kernel_t *k, sinter_cpu_isa_t isa, sinter_fpmath_mode_t mode)
{
    attention_case_t p = {.nb = 2,
                          .q_batch = {1, 1},
                          .kv_batch = {1, 1},
                          .D = 64,
                          .Dv = 128,
                          .q = sinter_bf16,
                          .k = sinter_u4,
                          .v = sinter_u8,
                          .scale = sinter_f8_e4m3,
                          .out = sinter_f32,
                          .k_group = 32,
                          .v_group = 32,
                          .trans_k = true,
                          .mask = MASK_CAUSAL_BOTTOM_RIGHT,
                          .window = 100,
                          .fill = -INFINITY,
                          .prob = true,
                          .threads = 1,
                          .mode = mode};
    for (int i = 0; i < 32; i++) {
        p.S = 1 + i % 2;
        p.T = 300 + 16 * (i / 2) + i % 3;
        run(&p, k, isa);
    }
}

/* Decoders must give NaN of NaN, wherever in a head it is. */
static void test_nans(const kernel_t *k, sinter_cpu_isa_t isa)
{
    attention_case_t p = {.nb = 2,
                          .q_batch = {1, 1},
                          .kv_batch = {1, 1},
                          .S = 1,
                          .T = 9,
                          .D = 128,
                          .Dv = 128,
                          .q = sinter_f32,
                          .out = sinter_f32,
                          .scale = sinter_e8m0,
                          .fill = -INFINITY,
                          .threads = 1};
    for (int i = 0; i < 2 * 128; i += 5) {
        static world_t w;
        char what[100];
        p.k = p.v = i % 2 ? sinter_f8_e4m3 : sinter_f8_e5m2;
        snprintf(what, sizeof what, "%s: NaN at %d of %s", k->name, i % 128, i < 128 ? "K" : "V");
        build(&w, &p);
        w.v[i < 128 ? K : V].data[128 + i % 128] = i % 4 < 2 ? 0x7f : 0xff;
        const sinter_status_t status = execute(&w, k, isa, what);
        CHECK(status == sinter_unimplemented || (status == sinter_success && compare(&w)),
              "%s: differs from op-by-op arithmetic", what);
        destroy(&w);
    }
}

/* Shapes that random cases seldom reach. */
static void test_corners(const kernel_t *k, sinter_cpu_isa_t isa, sinter_fpmath_mode_t mode)
{
    const attention_case_t base = {.nb = 2,
                                   .q_batch = {1, 2},
                                   .kv_batch = {1, 2},
                                   .S = 3,
                                   .T = 9,
                                   .D = 16,
                                   .Dv = 16,
                                   .q = sinter_f32,
                                   .k = sinter_f32,
                                   .v = sinter_f32,
                                   .out = sinter_f32,
                                   .fill = -INFINITY,
                                   .threads = 2,
                                   .mode = mode};
    attention_case_t p = base;
    p.Dv = 600; /* Dv in chunks */
    p.stats = true;
    run(&p, k, isa);
    p = base;
    p.T = 0;
    p.inf_as_zero = true;
    p.stats = true;
    run(&p, k, isa);
    p.inf_as_zero = false;
    run(&p, k, isa);
    p = base;
    p.Dv = 0;
    p.stats = true;
    if (mode == sinter_fpmath_mode_strict) {
        run(&p, k, isa);
    }
    p = base;
    p.S = 0;
    run(&p, k, isa);
    p = base; /* decode: one row, T split over threads, int4 in groups of 32 */
    p.S = 1, p.T = 1000, p.D = 128, p.Dv = 128, p.q_batch[1] = 4, p.kv_batch[1] = 1,
    p.k = sinter_s4, p.v = sinter_u4, p.scale = sinter_f16, p.zp = sinter_u4;
    p.k_group = 32, p.v_group = 32, p.threads = 4, p.trans_k = true, p.stats = true;
    run(&p, k, isa);
    p.mask = MASK_FULL, p.inf_as_zero = true;
    run(&p, k, isa);
    p.dynamic = mode == sinter_fpmath_mode_strict;
    run(&p, k, isa);
    /* causal over several tiles and blocks, more rows than columns and the other way round */
    p = base;
    p.S = 150, p.T = 100, p.mask = MASK_CAUSAL_BOTTOM_RIGHT, p.inf_as_zero = true;
    run(&p, k, isa);
    p.S = 100, p.T = 150, p.mask = MASK_CAUSAL, p.inf_as_zero = false;
    run(&p, k, isa);
    p.prob = true;
    run(&p, k, isa);
    /* sinks: of a row with nothing else, of no columns at all, of parts of T that see nothing */
    p = base;
    p.sink = SINK_HEAD, p.stats = true, p.S = 80, p.T = 40, p.mask = MASK_CAUSAL_BOTTOM_RIGHT;
    run(&p, k, isa);
    p.T = 0;
    run(&p, k, isa);
    p.S = 1, p.T = 700, p.mask = MASK_CAUSAL, p.threads = 8, p.sink = SINK_ROW;
    run(&p, k, isa);
    p = base; /* a window with tiles to skip on both sides */
    p.S = 150, p.T = 300, p.mask = MASK_CAUSAL_BOTTOM_RIGHT, p.window = 40, p.stats = true;
    run(&p, k, isa);
    p.T = 100, p.inf_as_zero = true, p.bare = true; /* rows before the first column */
    run(&p, k, isa);
    p.S = 200, p.T = 100, p.mask = MASK_CAUSAL; /* and behind the last */
    run(&p, k, isa);
    p.prob = true;
    run(&p, k, isa);
    p = base; /* decode */
    p.S = 1, p.T = 1000, p.D = 64, p.Dv = 64, p.q_batch[1] = 8, p.kv_batch[1] = 1,
    p.k = p.v = sinter_f4_e2m1, p.scale = sinter_e8m0, p.k_group = p.v_group = 32, p.trans_k = true,
    p.mask = MASK_CAUSAL_BOTTOM_RIGHT, p.window = 100, p.stats = true, p.threads = 4;
    run(&p, k, isa);
    if (mode == sinter_fpmath_mode_strict) {
        p = base; /* D in chunks */
        p.D = 600;
        run(&p, k, isa);
        p.D = 0;
        run(&p, k, isa);
    }
}

/* Exact results: with one column left a probability is 1, with q = 0 and 2^n columns it is 2^-n. */
static void test_exact(const kernel_t *k, sinter_cpu_isa_t isa, sinter_fpmath_mode_t mode)
{
    const attention_case_t p = {.nb = 1,
                                .q_batch = {2},
                                .kv_batch = {2},
                                .S = 5,
                                .T = 128,
                                .D = 24,
                                .Dv = 40,
                                .q = sinter_f32,
                                .k = sinter_f16,
                                .v = sinter_f16,
                                .out = sinter_f32,
                                .mask = MASK_FULL,
                                .threads = 2,
                                .mode = mode};
    static world_t w;
    char what[] = "exact";
    build(&w, &p);
    float *mask = (float *)(void *)w.v[MASK].data, *q = (float *)(void *)w.v[Q].data;
    for (int64_t i = 0; i < p.S * p.T; i++) {
        mask[i] = i % p.T == (i / p.T * 37 + 70) % p.T ? 0 : -INFINITY;
    }
    bool ok = execute(&w, k, isa, what) == sinter_success;
    for (int64_t b = 0; b < 2; b++) {
        for (int64_t s = 0; ok && s < p.S; s++) {
            for (int64_t c = 0; c < p.Dv; c++) {
                const double got = decode(p.out, w.v[OUT].data,
                                          b * w.v[OUT].strides[0] + s * w.v[OUT].strides[1] +
                                              c * w.v[OUT].strides[2]);
                ok = ok && got == element(&w, V, false, &b, (s * 37 + 70) % p.T, c);
            }
        }
    }
    CHECK(ok, "%s: one column left: the output is that row of V, to the bit", k->name);
    memset(q, 0,
           w.v[Q].dims[0] * (size_t)w.v[Q].strides[0] > 0 ? bytes_of(sinter_f32, extent(&w.v[Q]))
                                                          : 0);
    memset(mask, 0, bytes_of(sinter_f32, p.S * p.T));
    ok = execute(&w, k, isa, what) == sinter_success;
    for (int64_t c = 0; ok && c < p.Dv; c++) {
        double mean = 0;
        const int64_t b = 1;
        for (int64_t t = 0; t < p.T; t++) {
            mean += element(&w, V, false, &b, t, c) / (double)p.T;
        }
        ok =
            decode(p.out, w.v[OUT].data,
                   w.v[OUT].strides[0] + 4 * w.v[OUT].strides[1] + c * w.v[OUT].strides[2]) == mean;
    }
    CHECK(ok, "%s: q = 0: the output is the mean of V, to the bit", k->name);
    destroy(&w);
}

/* Rows of a 4-bit output with an odd number of columns share bytes: all are right, whatever
 * thread they belong to. */
static void test_packed_output(const kernel_t *k, sinter_cpu_isa_t isa, sinter_fpmath_mode_t mode)
{
    const attention_case_t p = {.nb = 1,
                                .q_batch = {3},
                                .kv_batch = {3},
                                .S = 70,
                                .T = 40,
                                .D = 8,
                                .Dv = 5,
                                .q = sinter_f32,
                                .k = sinter_f32,
                                .v = sinter_s4,
                                .out = sinter_s4,
                                .mask = MASK_FULL,
                                .threads = 3,
                                .mode = mode};
    static world_t w;
    char what[] = "packed output";
    build(&w, &p);
    float *mask = (float *)(void *)w.v[MASK].data;
    for (int64_t i = 0; i < p.S * p.T; i++) {
        mask[i] = i % p.T == i / p.T % p.T ? 0 : -INFINITY;
    }
    bool ok = execute(&w, k, isa, what) == sinter_success;
    for (int64_t i = 0; ok && i < 3 * p.S * p.Dv; i++) {
        const int64_t b = i / p.Dv / p.S, s = i / p.Dv % p.S, c = i % p.Dv,
                      *stride = w.v[OUT].strides;
        ok = decode(p.out, w.v[OUT].data, b * stride[0] + s * stride[1] + c * stride[2]) ==
             element(&w, V, false, &b, s % p.T, c);
    }
    CHECK(ok, "%s: 4-bit output, odd rows", k->name);
    destroy(&w);
}

/* 0 times NaN is NaN, NaN and +inf scores give NaN rows, other rows are not touched by it: the
 * reference's own arithmetic says where. */
static void test_nan(const kernel_t *k, sinter_cpu_isa_t isa, sinter_fpmath_mode_t mode)
{
    for (int kind = 0; kind < 8; kind++) {
        attention_case_t p = in_floats(2, 2, 6, 200, 24, 24, mode);
        p.mask = MASK_FULL;
        p.inf_as_zero = kind & 1;
        p.stats = true;
        p.threads = kind & 1 ? 1 : 8;
        static world_t w;
        char what[80];
        build(&w, &p);
        float *mask = (float *)(void *)w.v[MASK].data, *q = (float *)(void *)w.v[Q].data,
              *v = (float *)(void *)w.v[V].data;
        for (int64_t t = 0; t < p.T;
             t++) { /* the mask leaves row 1 nothing, and row 2 only the last column */
            mask[p.T + t] = -INFINITY;
            mask[2 * p.T + t] = t + 1 < p.T ? -INFINITY : 0;
        }
        switch (kind / 2) {
        case 0:
            v[7 * p.Dv + 3] = NAN;
            break; /* V under a mask in rows 1 and 2 */
        case 1:
            v[150 * p.Dv + 5] = INFINITY;
            break; /* 0 * Inf is NaN too */
        case 2:
            q[4 * p.D + 1] = NAN;
            mask[p.T + 9] = NAN;
            break;
        default:
            mask[3 * p.T + 100] = INFINITY;
            mask[5 * p.T + 2] = NAN;
            break;
        }
        snprintf(what, sizeof what, "%s NaN kind %d", k->name, kind);
        CHECK(execute(&w, k, isa, what) == sinter_success && compare(&w),
              "%s: differs from op-by-op arithmetic", what);
        destroy(&w);
    }
}

/* K and V before the window, and from one tile after it on, are not read: NaN there changes
 * nothing. */
static void test_untouched(const kernel_t *k, sinter_cpu_isa_t isa, sinter_fpmath_mode_t mode)
{
    const float shift = 700;
    const int64_t tile = is_decode(k) ? 256 : 64, most = is_decode(k) ? 1 : 70;
    for (int64_t S = 1; S <= most; S += 23) {
        attention_case_t p = in_floats(4, 1, S, 1500, 64, 64, mode);
        p.trans_k = true;
        p.mask = MASK_CAUSAL;
        p.window = 128;
        p.fill = -INFINITY;
        p.threads = 1 + (int)(S % 3);
        static world_t w;
        char what[80];
        snprintf(what, sizeof what, "%s untouched S %lld", k->name, (long long)S);
        build(&w, &p);
        memcpy(w.v[SHIFT].data, &shift, sizeof shift);
        float *kd = (float *)(void *)w.v[K].data, *vd = (float *)(void *)w.v[V].data;
        bool ok = execute(&w, k, isa, what) == sinter_success;
        float *first = malloc(w.out_bytes);
        memcpy(first, w.v[OUT].data, w.out_bytes);
        for (int64_t t = 0; t < p.T; t++) {
            for (int64_t d = 0; d < 64 && (t < 700 - 128 - 16 || t > 700 + S + tile); d++) {
                kd[t * w.v[K].strides[1] + d * w.v[K].strides[2]] =
                    vd[t * w.v[V].strides[1] + d * w.v[V].strides[2]] = NAN;
            }
        }
        ok = ok && execute(&w, k, isa, what) == sinter_success &&
             memcmp(first, w.v[OUT].data, w.out_bytes) == 0;
        for (int64_t i = 0; ok && i < 64; i++) {
            ok = !isnan(first[i]);
        }
        CHECK(ok, "%s: what the mask hides is read, or matters", what);
        free(first);
        destroy(&w);
    }
}

/* What a mask in memory hides may be anything. Rows see every fourth column, in turn, and then
 * almost the same columns; what no row sees becomes NaN and infinities, and then something that
 * only the last row sees. */
static void test_hidden(const kernel_t *k, sinter_cpu_isa_t isa, sinter_fpmath_mode_t mode)
{
    enum { SLOTS = 4, ROWS = 3, TOKENS = 603, LAST = 590 };
    for (int together = 0; together < 2; together++) {
        attention_case_t p = in_floats(4, 1, ROWS, TOKENS, 64, 64, mode);
        p.trans_k = true;
        p.mask = MASK_FULL;
        p.lists = true;
        p.threads = 2;
        static world_t w;
        char what[80];
        snprintf(what, sizeof what, "%s hidden %d", k->name, together);
        build(&w, &p);
        float *mask = (float *)(void *)w.v[MASK].data, *kd = (float *)(void *)w.v[K].data,
              *vd = (float *)(void *)w.v[V].data;
        for (int i = 0; i < ROWS * TOKENS; i++) {
            const int s = i / TOKENS, t = i % TOKENS;
            mask[i] = (together ? t < LAST + s : t % SLOTS == s) ? 0 : -INFINITY;
        }
        bool ok = execute(&w, k, isa, what) == sinter_success && compare(&w);
        float *first = malloc(w.out_bytes);
        const float *out = (const float *)(const void *)w.v[OUT].data;
        memcpy(first, out, w.out_bytes);
        for (int t = 0; t < TOKENS; t++) {
            const bool hidden = together ? t >= LAST + ROWS - 1 : t % SLOTS == ROWS;
            for (int d = 0; d < 64 && hidden; d++) {
                kd[t * w.v[K].strides[1] + d * w.v[K].strides[2]] = t % 3 ? NAN : INFINITY;
                vd[t * w.v[V].strides[1] + d * w.v[V].strides[2]] = t % 2 ? NAN : -INFINITY;
            }
        }
        ok = ok && execute(&w, k, isa, what) == sinter_success &&
             memcmp(first, out, w.out_bytes) == 0;
        CHECK(ok, "%s: what no row sees matters", what);
        const int t = together ? LAST + ROWS - 2 : SLOTS * 20 + ROWS - 1;
        vd[t * w.v[V].strides[1]] = INFINITY;
        kd[t * w.v[K].strides[1] + w.v[K].strides[2]] = together ? NAN : 1;
        ok = execute(&w, k, isa, what) == sinter_success;
        for (int h = 0; h < 4; h++) {
            for (int s = 0; s < ROWS; s++) {
                const int64_t at = h * w.v[OUT].strides[0] + s * w.v[OUT].strides[1];
                ok = ok &&
                     (s == ROWS - 1 ? !isfinite(out[at]) : fabsf(out[at] - first[at]) <= 1e-2f);
            }
        }
        CHECK(ok, "%s: what another row sees matters", what);
        free(first);
        destroy(&w);
    }
}

static void test_repeatable(const kernel_t *k, sinter_cpu_isa_t isa, sinter_fpmath_mode_t mode)
{
    attention_case_t p = in_floats(1, 1, 3, 600, 40, 24, mode);
    p.threads = 3;
    static world_t w;
    char what[] = "repeatable";
    build(&w, &p);
    execute(&w, k, isa, what);
    unsigned char *first = malloc(w.out_bytes);
    memcpy(first, w.v[OUT].data, w.out_bytes);
    execute(&w, k, isa, what);
    CHECK(memcmp(first, w.v[OUT].data, w.out_bytes) == 0, "%s: same inputs and threads, same bits",
          k->name);
    free(first);
    destroy(&w);
}

/* bf16 products must show: their results have other bits than those of mode strict. A kernel
 * that may not use them must say why. */
static void test_bf16_differs(sinter_cpu_isa_t isa)
{
    attention_case_t p = {.nb = 1,
                          .q_batch = {2},
                          .kv_batch = {2},
                          .S = 8,
                          .T = 100,
                          .D = 64,
                          .Dv = 32,
                          .q = sinter_f32,
                          .k = sinter_f32,
                          .v = sinter_f32,
                          .out = sinter_f32,
                          .threads = 1,
                          .mode = sinter_fpmath_mode_bf16};
    static world_t w;
    char what[] = "bf16";
    build(&w, &p);
    bool ok = execute(&w, kernel_named("attention_flash_bf16_avx512"), isa, what) == sinter_success;
    unsigned char *low = malloc(w.out_bytes);
    memcpy(low, w.v[OUT].data, w.out_bytes);
    ok = ok && execute(&w, kernel_named("attention_flash_f32_avx512"), isa, what) == sinter_success;
    CHECK(ok && memcmp(low, w.v[OUT].data, w.out_bytes) != 0, "%s: gives the bits of strict", what);
    CHECK(strstr(last_note, "attention_flash_f32") != NULL, "%s: note of the f32 kernel", what);
    free(low);
    destroy(&w);
}

static const char *refusal(sinter_fpmath_mode_t mode, sinter_cpu_isa_t isa, int64_t D)
{
    plan_value_t values[N_VALUES] = {0};
    values[Q].lt = values[V].lt = (lt_t){.ndims = 2, .dims = {4, D}};
    const plan_t plan = {.values = values, .n_values = N_VALUES, .features = features_up_to(isa)};
    step_t step = {.kind = STEP_ATTENTION, .permit = permit_of(mode, false)};
    step.p.attention = (attention_params_t){.q = {.data = Q}, .v = {.data = V}};
    const kernel_t *k = kernel_named("attention_flash_bf16_avx512");
    const problem_t problem = {.plan = &plan, .step = &step};
    return k->driver->refuse(k, &problem);
}

static void test_refusals(sinter_cpu_isa_t isa)
{
    static const sinter_fpmath_mode_t no[] = {sinter_fpmath_mode_strict, sinter_fpmath_mode_f16,
                                              sinter_fpmath_mode_tf32, sinter_fpmath_mode_int8};
    for (int i = 0; i < 4; i++) {
        CHECK(refusal(no[i], isa, 64) != NULL,
              "bf16 kernel: modes that do not name bf16 must not get it");
    }
    CHECK(refusal(sinter_fpmath_mode_bf16, isa, SINTER_UNKNOWN_DIM) != NULL,
          "bf16 kernel: refuses unknown head sizes");
    CHECK(refusal(sinter_fpmath_mode_any, sinter_isa_avx512, 64) != NULL,
          "bf16 kernel: refuses a plan capped below it");
    CHECK((refusal(sinter_fpmath_mode_any, isa, 64) == NULL) ==
              (refusal(sinter_fpmath_mode_bf16, isa, 64) == NULL),
          "bf16 kernel: any is as bf16");
}

/* All values of a tensor in f32 times 2^e. */
static void raise_by(world_t *w, int value, int e)
{
    float *x = (float *)(void *)w->v[value].data;
    for (int64_t i = 0; i < extent(&w->v[value]); i++) {
        x[i] = ldexpf(x[i], e);
    }
}

static void clear_value(world_t *w, int value)
{
    if (w->mem[value].map) {
        memset(w->v[value].data, 0, bytes_of(w->v[value].dtype, extent(&w->v[value])));
    }
}

/* Which operand is near the ends of the range of floats, and what keeps op-by-op results inside. */
typedef enum range {
    QUERY_BY_SCALES,
    QUERY_BY_ZEROS,
    WEIGHTS_BY_SCALES,
    WEIGHTS_BY_ZEROS,
    RANGES
} range_t;

/* Products of activations with codes, or with scales, that leave the range of floats where products
 * of activations with scaled codes do not. */
static void test_range(const kernel_t *k, sinter_cpu_isa_t isa, sinter_fpmath_mode_t mode)
{
    static const sinter_data_type_t types[] = {sinter_s4,      sinter_u4,      sinter_s8,
                                               sinter_f8_e5m2, sinter_f8_e4m3, sinter_f4_e2m1};
    static const int tokens[] = {0, 8, 64, -1};
    static const char *const names[RANGES] = {"query, tiny scales", "query, zero codes",
                                              "weights, tiny scales", "weights, zero codes"};
    enum { CASES = RANGES * 4 * 6 * 2 };
    int taken = 0;
    for (int i = 0; i < CASES; i++) {
        static world_t w;
        char what[700], text[600];
        attention_case_t p = random_decode();
        const range_t range = (range_t)(i % RANGES);
        p.k = p.v = types[i / RANGES / 4 % 6];
        p.t_group = tokens[i / RANGES % 4];
        p.q = p.out = p.scale = sinter_f32;
        p.T = (int64_t[]){16, 31, 70, 257}[rnd() % 4];
        p.D = p.Dv = (int64_t[]){16, 40, 64, 128}[rnd() % 4];
        p.k_group = p.v_group = p.D % 32 == 0 ? (int)(rnd() % 2) * 32 : 0;
        p.zp = i / RANGES / 4 / 6 ? sinter_s32 : 0;
        p.mode = mode;
        p.prob = range == WEIGHTS_BY_SCALES || range == WEIGHTS_BY_ZEROS;
        p.gain = range == WEIGHTS_BY_SCALES ? 125 : range == WEIGHTS_BY_ZEROS ? 60 : 0;
        describe(&p, k->name, text, sizeof text);
        snprintf(what, sizeof what, "%s: %s", names[range], text);
        build(&w, &p);
        if (p.zp) {
            clear_value(&w, K + 2);
            clear_value(&w, V + 2);
        }
        if (range == QUERY_BY_SCALES || range == QUERY_BY_ZEROS) {
            raise_by(&w, Q, 125);
            raise_by(&w, K + 1, range == QUERY_BY_SCALES ? -125 : 12);
        } else {
            raise_by(&w, V + 1, range == WEIGHTS_BY_SCALES ? -125 : 90);
        }
        if (range == QUERY_BY_ZEROS || range == WEIGHTS_BY_ZEROS) {
            clear_value(&w, range == QUERY_BY_ZEROS ? K : V);
        }
        const sinter_status_t status = execute(&w, k, isa, what);
        CHECK(status == sinter_unimplemented || (status == sinter_success && compare(&w)),
              "%s: differs from op-by-op arithmetic", what);
        taken += status == sinter_success;
        destroy(&w);
    }
    CHECK(4 * taken > CASES, "%s: takes few of the cases near the ends of the range", k->name);
}

static void test_kernel(const kernel_t *k, sinter_cpu_isa_t isa, sinter_fpmath_mode_t mode,
                        int rounds)
{
    static char before[200];
    for (int i = 0; i < rounds; i++) {
        attention_case_t p = is_decode(k) ? random_decode() : random_problem();
        p.mode = mode;
        p.dynamic =
            p.dynamic &&
            mode == sinter_fpmath_mode_strict; /* the bf16 kernel refuses unknown head sizes */
        run(&p, k, isa);
        if (strcmp(before, last_note) && i < 4) {
            printf("%s\n", last_note);
        }
        strcpy(before, last_note);
    }
    test_corners(k, isa, mode);
    if (is_decode(k) && mode == sinter_fpmath_mode_strict) {
        test_coefficients(k, isa);
        test_one_zp(k, isa, mode);
        test_far_zps(k, isa, mode);
        test_offsets(k, isa, mode, true, 1);
        test_offsets(k, isa, mode, true, 4);
        test_odd_offsets(k, isa, mode, 2);
        test_windows(k, isa, mode);
        test_nans(k, isa);
    }
    test_exact(k, isa, mode);
    if (!is_decode(k)) { /* odd rows of 4-bit heads are not decoded */
        test_packed_output(k, isa, mode);
    }
    test_nan(k, isa, mode);
    test_untouched(k, isa, mode);
    test_hidden(k, isa, mode);
    test_repeatable(k, isa, mode);
    if (is_decode(k)) {
        test_range(k, isa, mode);
    }
}

/* The kernel takes codes of 8 bits in limbs. */
static bool bytes_in_limbs;

/* Heads of the types that are processed in integers. */
static attention_case_t random_codes(sinter_fpmath_mode_t mode)
{
    static const sinter_data_type_t types[] = {sinter_s4, sinter_u4, sinter_f4_e2m1, sinter_s8,
                                               sinter_u8};
    const bool floats = mode != sinter_fpmath_mode_int8;
    sinter_data_type_t type[2];
    for (int i = 0; i < 2; i++) {
        do {
            type[i] = types[rnd() % (bytes_in_limbs ? 5 : 3)];
        } while (!floats && type[i] == sinter_f4_e2m1);
    }
    attention_case_t p = random_decode();
    const unsigned some = floats ? rnd() % 4 : 3; /* K, V, or both */
    p.k = some != 1 ? type[0] : p.k;
    p.v = some != 0 ? type[1] : p.v;
    p.mode = mode;
    p.k_group = p.k_group && p.k_group < 32 ? 32 : p.k_group;
    p.v_group = p.v_group && p.v_group < 32 ? 32 : p.v_group;
    p.k_group = p.k_group > 0 && p.D % p.k_group ? 0 : p.k_group;
    p.v_group = p.v_group > 0 && p.Dv % p.v_group ? 0 : p.v_group;
    p.one_zp = !p.offsets && rnd() % 4 == 0;
    return p;
}

/* Queries that limbs cannot hold (NaN, infinity, subnormals): results are those of float
 * arithmetic. */
static void test_codes_specials(const kernel_t *k, sinter_cpu_isa_t isa)
{
    static const float specials[] = {NAN, INFINITY, 1e-40f, 0x1p-110f, 1e30f};
    for (int i = 0; i < 10; i++) {
        attention_case_t p = random_codes(sinter_fpmath_mode_f16);
        p.q = sinter_f32;
        p.k = p.v = i % 2 || !bytes_in_limbs ? sinter_s4 : sinter_s8;
        p.scale = sinter_f32;
        static world_t w;
        char what[80];
        build(&w, &p);
        float *q = (float *)(void *)w.v[Q].data;
        q[0] = specials[i / 2];
        snprintf(what, sizeof what, "%s q %g", k->name, (double)q[0]);
        const sinter_status_t status = execute(&w, k, isa, what);
        CHECK(status == sinter_unimplemented || (status == sinter_success && compare(&w)),
              "%s: differs from op-by-op arithmetic", what);
        destroy(&w);
    }
}

/* If all codes equal their zero point, results are exactly zero, however limbs round. */
static void test_codes_zero(const kernel_t *k, sinter_cpu_isa_t isa)
{
    attention_case_t p = random_codes(sinter_fpmath_mode_f16);
    p.nb = 1, p.q_batch[0] = p.kv_batch[0] = 2, p.S = 3, p.T = 300, p.D = p.Dv = 128,
    p.k = p.v = bytes_in_limbs ? sinter_s8 : sinter_s4, p.zp = p.k, p.offsets = false,
    p.scale = sinter_f32, p.k_group = p.v_group = 32, p.t_group = 0, p.out = sinter_f32, p.mask = 0,
    p.sink = SINK_NONE, p.prob = false, p.plain = true, p.stats = false;
    static world_t w;
    char what[] = "zero codes";
    build(&w, &p);
    memset(w.v[V].data, 0x55, bytes_of(p.v, extent(&w.v[V])));
    memset(w.v[V + 2].data, 0x55, bytes_of(p.zp, extent(&w.v[V + 2])));
    bool ok = execute(&w, k, isa, what) == sinter_success;
    const int64_t n = p.S * 2;
    for (int64_t i = 0; ok && i < n; i++) {
        for (int64_t c = 0; ok && c < p.Dv; c++) {
            ok = decode(p.out, w.v[OUT].data,
                        i / p.S * w.v[OUT].strides[0] + i % p.S * w.v[OUT].strides[1] +
                            c * w.v[OUT].strides[2]) == 0;
        }
    }
    CHECK(ok, "%s: codes at their zero point give 0", k->name);
    destroy(&w);
}

static void test_codes(const kernel_t *k)
{
    static const sinter_fpmath_mode_t modes[] = {sinter_fpmath_mode_f16, sinter_fpmath_mode_int8};
    const sinter_cpu_isa_t isa = level_of_features(k->needs);
    bytes_in_limbs = k->needs.bits != NEEDS_AVX2;
    for (int m = 0; m < 2; m++) {
        refused = 0;
        for (int i = 0; i < 120; i++) {
            const attention_case_t p = random_codes(modes[m]);
            run(&p, k, isa);
        }
        CHECK(refused < 36, "%s: refuses what it is made for", k->name);
        test_one_zp(k, isa, modes[m]);
        test_offsets(k, isa, modes[m], bytes_in_limbs, 1);
        test_offsets(k, isa, modes[m], bytes_in_limbs, 4);
        test_odd_offsets(k, isa, modes[m], 2);
        test_windows(k, isa, modes[m]);
        attention_case_t strict = random_codes(modes[m]);
        strict.mode = sinter_fpmath_mode_strict;
        refused = 0;
        run(&strict, k, isa);
        CHECK(refused == 1, "%s: strict products are not for integers", k->name);
    }
    printf("%s\n", last_note);
    test_codes_specials(k, isa);
    test_codes_zero(k, isa);
    test_range(k, isa, sinter_fpmath_mode_f16);
}

/* ---- many query rows in integers ------------------------------------------------------------- */

/* Heads that prefill works off in integers, but for a few. */
static attention_case_t random_blocks(void)
{
    static const sinter_data_type_t types[] = {sinter_s4, sinter_u4, sinter_f4_e2m1, sinter_s8};
    static const int64_t rows[] = {1, 3, 24, 25, 33, 64, 70},
                         columns[] = {1, 15, 16, 17, 64, 100, 255, 256, 257, 300},
                         sizes[] = {16, 32, 40, 64, 64, 96, 128, 256};
    static const int groups[] = {0, 0, 16, 32, 32, 32, 64};
    attention_case_t p = random_problem();
    p.nb = p.nb > 2 ? 2 : p.nb;
    for (int d = 0; d < p.nb; d++) {
        p.q_batch[d] = p.q_batch[d] > 3 ? 3 : p.q_batch[d];
        p.kv_batch[d] = p.kv_batch[d] == 1 ? 1 : p.q_batch[d];
    }
    p.S = PICK(rows), p.T = PICK(columns), p.D = PICK(sizes), p.Dv = PICK(sizes);
    p.k = types[rnd() % (bytes_in_limbs ? 4 : 3)];
    p.v = types[rnd() % (bytes_in_limbs ? 4 : 3)];
    p.zp = !has_float_zp(&p) && (p.k == sinter_s8 || p.v == sinter_s8) ? 0 : p.zp;
    p.zp = p.k == sinter_f4_e2m1 || p.v == sinter_f4_e2m1 ? 0 : p.zp;
    p.mode = sinter_fpmath_mode_int8;
    p.dynamic = p.prob = false;
    p.t_group = rnd() % 4 ? 0 : -1;
    p.k_group = PICK(groups);
    p.v_group = PICK(groups);
    p.k_group = p.k_group > 0 && p.D % p.k_group ? 0 : p.k_group;
    p.v_group = p.v_group > 0 && p.Dv % p.v_group ? 0 : p.v_group;
    return p;
}

/* Operands that integers cannot stand for: results are those of float arithmetic. */
static void test_blocks_specials(const kernel_t *k, sinter_cpu_isa_t isa)
{
    static const float specials[] = {NAN, INFINITY, -INFINITY, 1e-40f, 0x1p-110f, 1e30f, -1};
    enum { SPECIALS = sizeof specials / sizeof *specials };
    static const int values[] = {Q, KS, VS};
    for (int i = 0; i < 3 * SPECIALS; i++) {
        attention_case_t p = random_blocks();
        static world_t w;
        char what[100];
        p.q = p.scale = p.out = sinter_f32;
        p.k = p.v = sinter_s4;
        p.zp = p.zp != 0 && !has_float_zp(&p)
                   ? sinter_s4
                   : p.zp; /* with u4, codes reach too far without VNNI */
        p.k_group = p.v_group = p.t_group = 0;
        p.mask = MASK_NONE; /* which could remove what is special */
        build(&w, &p);
        float *x = (float *)(void *)w.v[values[i % 3]].data;
        x[0] = specials[i / 3];
        snprintf(what, sizeof what, "%s: operand %d begins with %g", k->name, values[i % 3],
                 (double)x[0]);
        const sinter_status_t status = execute(&w, k, isa, what);
        CHECK(status == sinter_success && compare(&w), "%s: differs from op-by-op arithmetic",
              what);
        destroy(&w);
    }
}

/* The largest sums of products of bytes: all weights are equal, and all codes as far from their
 * zero points as can be. */
static void test_blocks_most(const kernel_t *k, sinter_cpu_isa_t isa)
{
    for (int i = 0; i < 2; i++) {
        attention_case_t p = random_blocks();
        static world_t w;
        char what[100];
        bool ok = true;
        p.nb = 0, p.S = 30, p.T = 300, p.D = p.Dv = 64, p.q = p.scale = p.out = sinter_f32,
        p.k = p.v = p.zp = sinter_s4, p.offsets = false, p.k_group = p.v_group = 32, p.t_group = 0,
        p.mask = 0, p.sink = SINK_NONE, p.plain = true;
        build(&w, &p);
        clear_value(&w, Q);
        memset(w.v[V].data, i ? 0x88 : 0x77, bytes_of(p.v, extent(&w.v[V])));
        memset(w.v[VZ].data, i ? 0x77 : 0x88, bytes_of(p.zp, extent(&w.v[VZ])));
        for (int64_t n = extent(&w.v[VS]), e = 0; e < n; e++) {
            put_float(sinter_f32, w.v[VS].data, e, 1);
        }
        snprintf(what, sizeof what, "%s: largest sums", k->name);
        CHECK(execute(&w, k, isa, what) == sinter_success, "%s: runs", what);
        for (int64_t s = 0; ok && s < p.S; s++) {
            for (int64_t c = 0; ok && c < p.Dv; c++) {
                const double x =
                    decode(p.out, w.v[OUT].data, s * w.v[OUT].strides[0] + c * w.v[OUT].strides[1]);
                ok = fabs(x - (i ? -15 : 15)) < 1e-4;
            }
        }
        CHECK(ok, "%s: all of V is %d", what, i ? -15 : 15);
        destroy(&w);
    }
}

static void test_blocks(const kernel_t *k)
{
    const sinter_cpu_isa_t isa = level_of_features(k->needs);
    bytes_in_limbs = k->needs.bits != NEEDS_AVX2;
    refused = 0;
    for (int i = 0; i < 100; i++) {
        const attention_case_t p = random_blocks();
        run(&p, k, isa);
    }
    CHECK(bytes_in_limbs ? refused == 0 : refused < 50, "%s: refuses what it is made for", k->name);
    attention_case_t strict = random_blocks();
    strict.mode = sinter_fpmath_mode_strict;
    refused = 0;
    run(&strict, k, isa);
    CHECK(refused == 1, "%s: strict products are not for integers", k->name);
    printf("%s\n", last_note);
    test_blocks_specials(k, isa);
    test_blocks_most(k, isa);
    test_offsets(k, isa, sinter_fpmath_mode_int8, bytes_in_limbs, 40);
    test_odd_offsets(k, isa, sinter_fpmath_mode_int8, 40);
}

int main(void)
{
    const kernel_t *const kernels[] = {kernel_named("attention_flash_f32_generic"),
                                       kernel_named("attention_flash_f32_avx2"),
                                       kernel_named("attention_flash_f32_avx512")};
    sinter_cpu_isa_t top;
    if (cpu_isa_cap(sinter_isa_default, &top) != sinter_success) {
        return 1;
    }
    for (int i = 0; i < 3 && has_features(features_up_to(top), kernels[i]->needs.bits); i++) {
        test_kernel(kernels[i], level_of_features(kernels[i]->needs), sinter_fpmath_mode_strict,
                    100);
    }
    const char *why = refusal(sinter_fpmath_mode_bf16, top, 64);
    if (!why) {
        test_kernel(kernel_named("attention_flash_bf16_avx512"), top, sinter_fpmath_mode_bf16, 100);
        test_bf16_differs(top);
    } else {
        check_skip("attention_flash_bf16_avx512: %s", why);
    }
    if (has_features(features_up_to(top), NEEDS_AVX2)) {
        test_avx2_nibbles();
    }
    const kernel_t *const decoding[] = {kernel_named("attention_decode_f32_avx2"),
                                        kernel_named("attention_decode_f32_avx512")};
    for (int i = 0; i < 2 && has_features(features_up_to(top), decoding[i]->needs.bits); i++) {
        refused = 0;
        test_kernel(decoding[i], level_of_features(decoding[i]->needs), sinter_fpmath_mode_strict,
                    200);
        CHECK(refused < 40, "attention_decode: refuses what it is made for");
    }
    const kernel_t *const codes[] = {kernel_named("attention_decode_int8_avx2"),
                                     kernel_named("attention_decode_int8_avxvnni"),
                                     kernel_named("attention_decode_int8_vnni")};
    for (int i = 0; i < 3; i++) {
        if (has_features(features_up_to(top), codes[i]->needs.bits)) {
            test_codes(codes[i]);
        }
    }
    const kernel_t *const blocks[] = {kernel_named("attention_flash_int8_avx2"),
                                      kernel_named("attention_flash_int8_avxvnni"),
                                      kernel_named("attention_flash_int8_vnni")};
    for (int i = 0; i < 3; i++) {
        if (has_features(features_up_to(top), blocks[i]->needs.bits)) {
            test_blocks(blocks[i]);
        }
    }
    test_refusals(top);
    return check_finish();
}
