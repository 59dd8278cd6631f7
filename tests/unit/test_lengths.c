/* Attention over sequences that have lengths, and windows, of their own: tensors of s32 that
 * broadcast to [batch.., 1, 1]. Results are the oracle's in every way that attention is processed.
 * Nothing of K and V is read where no row of a batch sees it: there, whole pages are protected and
 * the rest is NaN. The oracle reads numbers in these places. Caches in tiles have the NaN, too. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <sinter/sinter.h>

#include "capture.h"
#include "node.h"
#include "random.h"

/* ---- cases ----------------------------------------------------------------------------------- */

enum {
    MOST_LEAD = 3,
    MOST_LENGTHS = 64,
    GRAIN = 16, /* tokens are read by as many, */
    TILE = 32   /* and by as many of a cache in tiles */
};

/* What rows see. With S rows the last one is the last token of its sequence. */
typedef enum form {
    BEYOND,   /* Select(column >= length, fill, x) */
    WITHIN,   /* Select(length - 1 >= column, x, fill) */
    CAUSAL,   /* Select(column >= row + length - (S - 1), fill, x) */
    WINDOWED, /* CAUSAL, and Select(column >= row + length - (S - 1) - window, x, fill) above it */
    FORMS
} form_t;

/* How K and V are stored. */
typedef struct stored {
    const char *name;
    sinter_data_type_t codes, scales, zps; /* undef: none */
    int64_t group;
} stored_t;

static const stored_t all_stored[] = {
    {"f32", sinter_f32, sinter_data_type_undef, sinter_data_type_undef, 0},
    {"f16", sinter_f16, sinter_data_type_undef, sinter_data_type_undef, 0},
    {"s8", sinter_s8, sinter_f16, sinter_data_type_undef, 32},
    {"s4 with zero points", sinter_s4, sinter_f16, sinter_s4, 32},
    {"u4 with zero points", sinter_u4, sinter_f32, sinter_u8, 64},
    {"mxfp8", sinter_f8_e4m3, sinter_e8m0, sinter_data_type_undef, 32},
    {"mxfp4", sinter_f4_e2m1, sinter_e8m0, sinter_data_type_undef, 32},
};
enum { N_STORED = sizeof all_stored / sizeof *all_stored };

typedef struct lengths_case {
    int rank;                /* of the scores: lead dims, rows, columns */
    int64_t lead[MOST_LEAD]; /* of the query */
    bool shared[MOST_LEAD];  /* dims that K and V do not have */
    bool varies[MOST_LEAD];  /* dims that lengths have */
    int64_t S, T, D;
    const stored_t *stored;
    form_t form;
    float fill;
    bool inf_as_zero, stats, quantised; /* quantised: probabilities, to 8 bits and back */
    bool dynamic, strided; /* T is not known to compile; lengths are 3 elements apart */
    bool tiles;            /* K and V lie in them */
    int threads;
    sinter_fpmath_mode_t mode;
    int32_t lengths[MOST_LENGTHS], windows[MOST_LENGTHS];
} lengths_case_t;

static int n_lead(const lengths_case_t *c)
{
    return c->rank - 2;
}

static int64_t lead_items(const lengths_case_t *c)
{
    int64_t n = 1;
    for (int d = 0; d < n_lead(c); d++) {
        n *= c->lead[d];
    }
    return n;
}

/* The index, among those dims that `has`, of lead index i. */
static int64_t index_among(const lengths_case_t *c, const bool *has, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = n_lead(c) - 1; d >= 0; d--) {
        if (has[d]) {
            at += i % c->lead[d] * step;
            step *= c->lead[d];
        }
        i /= c->lead[d];
    }
    return at;
}

static int64_t count_of(const lengths_case_t *c, const bool *has)
{
    return index_among(c, has, lead_items(c) - 1) + 1;
}

static void kv_dims(const lengths_case_t *c, bool *has)
{
    for (int d = 0; d < MOST_LEAD; d++) {
        has[d] = !c->shared[d];
    }
}

/* The columns that the rows at a lead index see, from a whole grain on. */
static void columns_of(const lengths_case_t *c, int64_t i, int64_t *begin, int64_t *end)
{
    const int64_t at = index_among(c, c->varies, i), length = c->lengths[at],
                  grain = c->tiles ? TILE : GRAIN;
    *begin = c->form == WINDOWED ? length - (c->S - 1) - c->windows[at] : 0;
    *begin = *begin > 0 ? *begin / grain * grain : 0;
    *end = length > c->T ? c->T : length;
    if (c->fill != -INFINITY) {
        *begin = 0;
        *end = c->T;
    }
}

/* From the first to the last column that rows of a batch of K and V see. */
static void columns_of_batch(const lengths_case_t *c, const bool *has, int64_t kv, int64_t *begin,
                             int64_t *end)
{
    *begin = c->T;
    *end = 0;
    for (int64_t i = 0; i < lead_items(c); i++) {
        int64_t first, last;
        columns_of(c, i, &first, &last);
        if (index_among(c, has, i) == kv && first < last) {
            *begin = first < *begin ? first : *begin;
            *end = last > *end ? last : *end;
        }
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { MOST_PARTS = 8 };

/* A part of K or V, one row of elements for each token, twice: as the oracle reads it, and as the
 * library does. */
typedef struct cache {
    sinter_data_type_t type;
    size_t row, bytes, mapped; /* of a token; of all; of the pages */
    unsigned char *numbers, *guarded;
    unsigned char *tiles; /* NULL: it does not lie so */
} cache_t;

static uint64_t seed = 1;

static size_t bytes_of(sinter_data_type_t type, int64_t n)
{
    sinter_logical_tensor_t lt;
    size_t bytes = 0;
    CHECK_THAT(sinter_logical_tensor_init(&lt, 0, type, 1, &n, sinter_tensor_property_undef) ==
               sinter_success);
    CHECK_THAT(sinter_logical_tensor_get_bytes(&lt, &bytes) == sinter_success);
    return bytes;
}

/* Floats are in [-1, 1), and scales bring codes there. */
static void fill(const stored_t *s, int part, unsigned char *data, int64_t n)
{
    const sinter_data_type_t type = part == 0 ? s->codes : part == 1 ? s->scales : s->zps;
    const double size = s->codes == sinter_s8 ? 0x1p-8 : s->codes == sinter_f8_e4m3 ? 0.25 : 0x1p-4;
    for (int64_t i = 0; i < n; i++) {
        const double x = random_signed(&seed);
        if (part == 1) {
            orc_encode(type, data, i, size * (1 + fabs(x)));
        } else if (s->scales == sinter_data_type_undef || s->codes == sinter_f8_e4m3) {
            orc_encode(type, data, i, x * (part == 0 ? 1 : 4));
        } else {
            orc_encode(type, data, i,
                       floor(x * (s->codes == sinter_s8 ? 127 : 8)) +
                           (type == sinter_u4 || type == sinter_u8 ? 8 : 0));
        }
    }
}

/* Everything before the first and behind the last column that some row of its batch sees becomes
 * NaN or unreadable. */
static void guard(const lengths_case_t *c, cache_t *cache, int64_t n_kv)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), sequence = (size_t)c->T * cache->row;
    bool has[MOST_LEAD];
    kv_dims(c, has);
    memset(cache->guarded, 0xFF, cache->mapped);
    for (size_t at = 0; at < cache->mapped; at += page) {
        bool needed = false;
        for (int64_t kv = 0; kv < n_kv; kv++) {
            int64_t begin, end;
            columns_of_batch(c, has, kv, &begin, &end);
            const size_t first = (size_t)kv * sequence + (size_t)begin * cache->row,
                         last = (size_t)kv * sequence + (size_t)end * cache->row,
                         from = first > at ? first : at, to = last < at + page ? last : at + page;
            if (from < to) {
                needed = true;
                memcpy(cache->guarded + from, cache->numbers + from, to - from);
            }
        }
        if (!needed && !c->tiles) {
            CHECK_THAT(mprotect(cache->guarded + at, page, PROT_NONE) == 0);
        }
    }
}

static void cache_open(cache_t *cache, const lengths_case_t *c, int part)
{
    const stored_t *s = c->stored;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const int64_t width = part == 0 ? c->D : c->D / s->group;
    bool has[MOST_LEAD];
    kv_dims(c, has);
    const int64_t n_kv = count_of(c, has), n = n_kv * c->T * width;
    *cache = (cache_t){.type = part == 0 ? s->codes : part == 1 ? s->scales : s->zps};
    cache->row = bytes_of(cache->type, width);
    cache->bytes = bytes_of(cache->type, n);
    cache->mapped = (cache->bytes + page) / page * page;
    cache->numbers = malloc(cache->bytes + 1);
    cache->guarded =
        mmap(NULL, cache->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_THAT(cache->guarded != MAP_FAILED);
    fill(s, part, cache->numbers, n);
    guard(c, cache, n_kv);
}

static void cache_close(cache_t *cache)
{
    free(cache->numbers);
    free(cache->tiles);
    munmap(cache->guarded, cache->mapped);
}

/* ---- the graph ------------------------------------------------------------------------------- */

enum {
    Q = 1,
    SCALE,
    FILL,
    LENGTHS,
    WINDOWS,
    BEFORE, /* S - 1, or 1 where the form wants that */
    K_PARTS,
    V_PARTS = K_PARTS + 3,
    OUT = V_PARTS + 3,
    STATS,
    K,
    V,
    SCORES,
    SCALED,
    COLUMN,
    ROW,
    FIRST,
    LAST,
    KEEP,
    MASKED,
    BEGIN,
    NEAR,
    WITHIN_WINDOW,
    P,
    P_CODES,
    P_AGAIN
};

static sinter_logical_tensor_t tensor(const lengths_case_t *c, int id, sinter_data_type_t type,
                                      const bool *has, int64_t rows, int64_t columns)
{
    sinter_dim_t dims[MOST_LEAD + 2];
    sinter_logical_tensor_t lt;
    for (int d = 0; d < n_lead(c); d++) {
        dims[d] = has == NULL || has[d] ? c->lead[d] : 1;
    }
    dims[c->rank - 2] = rows;
    dims[c->rank - 1] = columns;
    CHECK_THAT(sinter_logical_tensor_init(&lt, (uint64_t)id, type, c->rank, dims,
                                          sinter_tensor_property_undef) == sinter_success);
    if (rows == SINTER_UNKNOWN_DIM || columns == SINTER_UNKNOWN_DIM) {
        lt.layout_type = sinter_layout_type_any;
    }
    return lt;
}

static sinter_logical_tensor_t scalar(int id, sinter_data_type_t type)
{
    const sinter_dim_t one = 1;
    sinter_logical_tensor_t lt;
    CHECK_THAT(sinter_logical_tensor_init(&lt, (uint64_t)id, type, 1, &one,
                                          sinter_tensor_property_undef) == sinter_success);
    return lt;
}

static sinter_logical_tensor_t lengths_tensor(const lengths_case_t *c, int id)
{
    sinter_logical_tensor_t lt = tensor(c, id, sinter_s32, c->varies, 1, 1);
    for (int d = 0; d < c->rank && c->strided; d++) {
        lt.strides[d] *= 3;
    }
    return lt;
}

/* Some nodes in their order; T is that of the graph. */
typedef struct graph {
    const lengths_case_t *c;
    int64_t T;
    bool tiles;
    node_t nodes[16];
    int n;
} graph_t;

static sinter_logical_tensor_t add(graph_t *g, sinter_op_kind_t kind, int n_in,
                                   const sinter_logical_tensor_t *in, sinter_logical_tensor_t out)
{
    node_t *n = &g->nodes[g->n++];
    *n = (node_t){.kind = kind, .n_in = n_in, .n_out = 1, .out = {out}};
    memcpy(n->in, in, (size_t)n_in * sizeof *in);
    return out;
}

static sinter_logical_tensor_t add2(graph_t *g, sinter_op_kind_t kind, sinter_logical_tensor_t a,
                                    sinter_logical_tensor_t b, sinter_logical_tensor_t out)
{
    const sinter_logical_tensor_t in[2] = {a, b};
    return add(g, kind, 2, in, out);
}

static void set_s64(graph_t *g, sinter_op_attr_t id, const int64_t *value)
{
    node_t *n = &g->nodes[g->n - 1];
    n->attrs[n->n_attrs++] = (orc_attr_t){.id = id, .n = 1, .s64 = value};
}

static void set_str(graph_t *g, sinter_op_attr_t id, const char *value)
{
    node_t *n = &g->nodes[g->n - 1];
    n->attrs[n->n_attrs++] = (orc_attr_t){.id = id, .str = value};
}

static sinter_logical_tensor_t scores(const graph_t *g, int id, sinter_data_type_t type)
{
    return tensor(g->c, id, type, NULL, g->c->S, g->T);
}

/* A part of K or V as it lies in tiles: tokens are columns, but of codes of V. */
static sinter_logical_tensor_t in_tiles(sinter_logical_tensor_t lt, bool is_v, int part)
{
    const bool rows = is_v && part == 0;
    CHECK_THAT(sinter_logical_tensor_set_weights_layout(&lt,
                                                        part > 0 ? sinter_weights_values
                                                        : is_v   ? sinter_weights_codes_blocks
                                                                 : sinter_weights_codes,
                                                        0, !rows) == sinter_success);
    return lt;
}

static void pack(const sinter_logical_tensor_t *lt, bool is_v, int part, cache_t *cache)
{
    const sinter_logical_tensor_t tiles = in_tiles(*lt, is_v, part);
    sinter_tensor_t *from = NULL, *to = NULL;
    size_t bytes = 0;
    CHECK_THAT(sinter_logical_tensor_get_bytes(&tiles, &bytes) == sinter_success);
    cache->tiles = malloc(bytes);
    CHECK_THAT(sinter_tensor_create(&from, NULL, lt, cache->guarded, cache->bytes) ==
               sinter_success);
    CHECK_THAT(sinter_tensor_create(&to, NULL, &tiles, cache->tiles, bytes) == sinter_success);
    CHECK_THAT(sinter_reorder(from, to) == sinter_success);
    sinter_tensor_destroy(&from);
    sinter_tensor_destroy(&to);
}

/* K or V: [.., T, D], dequantised. */
static sinter_logical_tensor_t stored_tensor(graph_t *g, int first, int id)
{
    const lengths_case_t *c = g->c;
    const stored_t *s = c->stored;
    const sinter_data_type_t types[3] = {s->codes, s->scales, s->zps};
    sinter_logical_tensor_t in[3];
    bool has[MOST_LEAD];
    int n = 0;
    kv_dims(c, has);
    for (; n < 3 && types[n] != sinter_data_type_undef; n++) {
        in[n] = tensor(c, first + n, types[n], has, g->T, n == 0 ? c->D : c->D / s->group);
        in[n] = g->tiles ? in_tiles(in[n], first == V_PARTS, n) : in[n];
    }
    if (n == 1) {
        return in[0];
    }
    add(g, sinter_op_dynamic_dequantize, n, in, tensor(c, id, sinter_f32, has, g->T, c->D));
    set_str(g, sinter_op_attr_qtype, "per_group");
    return g->nodes[g->n - 1].out[0];
}

static sinter_logical_tensor_t choose(graph_t *g, sinter_logical_tensor_t condition, bool keeps,
                                      sinter_logical_tensor_t x, int id)
{
    const sinter_logical_tensor_t value = scalar(FILL, sinter_f32),
                                  in[3] = {condition, keeps ? x : value, keeps ? value : x};
    return add(g, sinter_op_select, 3, in, scores(g, id, sinter_f32));
}

static sinter_logical_tensor_t masked(graph_t *g, sinter_logical_tensor_t x)
{
    static const int64_t last_dim = -1, rows = -2;
    const lengths_case_t *c = g->c;
    const sinter_logical_tensor_t lengths = lengths_tensor(c, LENGTHS),
                                  before = scalar(BEFORE, sinter_s32),
                                  sizes = tensor(c, FIRST, sinter_s32, c->varies, 1, 1);
    add(g, sinter_op_gen_index, 1, &x, scores(g, COLUMN, sinter_s32));
    set_s64(g, sinter_op_attr_axis, &last_dim);
    const sinter_logical_tensor_t column = g->nodes[g->n - 1].out[0];
    sinter_logical_tensor_t end = lengths;
    if (c->form == WITHIN) {
        end = add2(g, sinter_op_subtract, lengths, before, sizes);
        return choose(
            g, add2(g, sinter_op_greater_equal, end, column, scores(g, KEEP, sinter_boolean)), true,
            x, MASKED);
    }
    if (c->form >= CAUSAL) {
        const sinter_logical_tensor_t row =
            add(g, sinter_op_gen_index, 1, &x, scores(g, ROW, sinter_s32));
        set_s64(g, sinter_op_attr_axis, &rows);
        end = add2(g, sinter_op_add, row, add2(g, sinter_op_subtract, lengths, before, sizes),
                   scores(g, LAST, sinter_s32));
    }
    x = choose(g, add2(g, sinter_op_greater_equal, column, end, scores(g, KEEP, sinter_boolean)),
               false, x, MASKED);
    if (c->form == WINDOWED) {
        end = add2(g, sinter_op_subtract, end, lengths_tensor(c, WINDOWS),
                   scores(g, BEGIN, sinter_s32));
        x = choose(g,
                   add2(g, sinter_op_greater_equal, column, end, scores(g, NEAR, sinter_boolean)),
                   true, x, WITHIN_WINDOW);
    }
    return x;
}

static void build(graph_t *g, const lengths_case_t *c, int64_t T, bool tiles)
{
    static const int64_t last_dim = -1;
    static const float p_scale = 1.0f / 128;
    *g = (graph_t){.c = c, .T = T, .tiles = tiles};
    sinter_logical_tensor_t x =
        add2(g, sinter_op_matmul, tensor(c, Q, sinter_f32, NULL, c->S, c->D),
             stored_tensor(g, K_PARTS, K), scores(g, SCORES, sinter_f32));
    g->nodes[g->n - 1].n_attrs = 1;
    g->nodes[g->n - 1].attrs[0] = (orc_attr_t){.id = sinter_op_attr_transpose_b, .b = 1};
    x = add2(g, sinter_op_multiply, x, scalar(SCALE, sinter_f32), scores(g, SCALED, sinter_f32));
    x = masked(g, x);
    x = add(g, sinter_op_softmax, 1, &x, scores(g, P, sinter_f32));
    set_s64(g, sinter_op_attr_axis, &last_dim);
    set_str(g, sinter_op_attr_mode, c->inf_as_zero ? "inf_as_zero" : "none");
    if (c->stats) {
        node_t *softmax = &g->nodes[g->n - 1];
        softmax->out[softmax->n_out++] = tensor(c, STATS, sinter_f32, NULL, c->S, 1);
    }
    for (int i = 0; i < 2 && c->quantised; i++) {
        x = add(g, i == 0 ? sinter_op_quantize : sinter_op_dequantize, 1, &x,
                scores(g, i == 0 ? P_CODES : P_AGAIN, i == 0 ? sinter_u8 : sinter_f32));
        node_t *n = &g->nodes[g->n - 1];
        n->attrs[n->n_attrs++] = (orc_attr_t){.id = sinter_op_attr_scales, .n = 1, .f32 = &p_scale};
    }
    add2(g, sinter_op_matmul, x, stored_tensor(g, V_PARTS, V),
         tensor(c, OUT, sinter_f32, NULL, c->S, c->D));
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct inputs {
    orc_tensor_t guarded[MOST_PARTS * 2], numbers[MOST_PARTS * 2];
    int n;
} inputs_t;

static void give(inputs_t *in, sinter_logical_tensor_t lt, const void *guarded, const void *numbers)
{
    in->guarded[in->n] = (orc_tensor_t){lt, guarded};
    in->numbers[in->n++] = (orc_tensor_t){lt, numbers};
}

static void describe(const lengths_case_t *c, char *text, size_t size)
{
    int n = snprintf(text, size, "%s, q [", c->stored->name);
    for (int d = 0; d < n_lead(c); d++) {
        n += snprintf(text + n, size - (size_t)n, "%lld%s%s ", (long long)c->lead[d],
                      c->shared[d] ? " shared" : "", c->varies[d] ? " with lengths" : "");
    }
    n += snprintf(text + n, size - (size_t)n,
                  "%lld %lld] T %lld form %d%s%s%s%s%s%s fill %g mode %d threads %d lengths",
                  (long long)c->S, (long long)c->D, (long long)c->T, (int)c->form,
                  c->inf_as_zero ? " inf_as_zero" : "", c->stats ? " stats" : "",
                  c->quantised ? " quantised" : "", c->dynamic ? " dynamic" : "",
                  c->strided ? " strided" : "", c->tiles ? " in tiles" : "", (double)c->fill,
                  (int)c->mode, c->threads);
    for (int64_t i = 0; i < count_of(c, c->varies); i++) {
        n += snprintf(text + n, size - (size_t)n, " %d", c->lengths[i]);
    }
}

/* Elements 3 apart where the tensor is strided. */
static void spread(const lengths_case_t *c, const int32_t *from, int32_t *to)
{
    for (int64_t i = 0; i < count_of(c, c->varies); i++) {
        to[i * (c->strided ? 3 : 1)] = from[i];
    }
}

static void give_caches(inputs_t *in, const graph_t *g, cache_t caches[2][3])
{
    const lengths_case_t *c = g->c;
    bool has[MOST_LEAD];
    kv_dims(c, has);
    for (int i = 0; i < 2; i++) {
        for (int p = 0; p < 3 && caches[i][p].numbers != NULL; p++) {
            const sinter_logical_tensor_t lt =
                tensor(c, (i == 0 ? K_PARTS : V_PARTS) + p, caches[i][p].type, has, c->T,
                       p == 0 ? c->D : c->D / c->stored->group);
            give(in, lt, caches[i][p].guarded, caches[i][p].numbers);
            if (c->tiles) {
                pack(&lt, i == 1, p, &caches[i][p]);
                in->guarded[in->n - 1] =
                    (orc_tensor_t){in_tiles(lt, i == 1, p), caches[i][p].tiles};
            }
        }
    }
}

static void run(const lengths_case_t *c)
{
    static int32_t lengths[3 * MOST_LENGTHS], windows[3 * MOST_LENGTHS];
    const float scale = 1 / sqrtf((float)c->D);
    const int32_t before = c->form == WITHIN ? 1 : (int32_t)c->S - 1;
    const sinter_stream_desc_t desc = {
        .size = sizeof desc, .threads = c->threads, .all_threads = 1};
    const size_t rows = (size_t)(lead_items(c) * c->S);
    float *q = malloc(rows * (size_t)c->D * sizeof *q), *out = malloc(rows * (size_t)c->D * 4),
          *stats = malloc(rows * sizeof *stats);
    sinter_stream_t *stream = NULL;
    graph_t g;
    inputs_t in = {.n = 0};
    cache_t caches[2][3] = {0};
    char what[600];

    describe(c, what, sizeof what);
    if (getenv("LENGTHS_SAY") != NULL) {
        printf("%s\n", what);
    }
    for (size_t i = 0; i < rows * (size_t)c->D; i++) {
        q[i] = (float)random_signed(&seed);
    }
    spread(c, c->lengths, lengths);
    spread(c, c->windows, windows);
    for (int i = 0; i < 2; i++) {
        for (int p = 0; p < 1 + (c->stored->scales != 0) + (c->stored->zps != 0); p++) {
            cache_open(&caches[i][p], c, p);
        }
    }
    build(&g, c, c->dynamic ? SINTER_UNKNOWN_DIM : c->T, c->tiles);
    sinter_compiled_partition_t *compiled = node_compiled_as(g.nodes, g.n, "sdpa", c->mode);
    build(&g, c, c->T, false);
    give(&in, tensor(c, Q, sinter_f32, NULL, c->S, c->D), q, q);
    give(&in, scalar(SCALE, sinter_f32), &scale, &scale);
    give(&in, scalar(FILL, sinter_f32), &c->fill, &c->fill);
    give(&in, lengths_tensor(c, LENGTHS), lengths, lengths);
    if (c->form != BEYOND) {
        give(&in, scalar(BEFORE, sinter_s32), &before, &before);
    }
    if (c->form == WINDOWED) {
        give(&in, lengths_tensor(c, WINDOWS), windows, windows);
    }
    give_caches(&in, &g, caches);
    const orc_tensor_t results[2] = {{tensor(c, OUT, sinter_f32, NULL, c->S, c->D), out},
                                     {tensor(c, STATS, sinter_f32, NULL, c->S, 1), stats}};
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    node_execute(compiled, stream, in.guarded, in.n, results, 1 + c->stats);
    const node_case_t expected = {.nodes = g.nodes,
                                  .n = g.n,
                                  .mode = c->mode,
                                  .in = in.numbers,
                                  .out = results,
                                  .n_in = (size_t)in.n,
                                  .n_out = 1 + (size_t)c->stats};
    node_compare_case(what, &expected);
    sinter_compiled_partition_destroy(&compiled);
    sinter_stream_destroy(&stream);
    for (int i = 0; i < 6; i++) {
        if (caches[i / 3][i % 3].numbers != NULL) {
            cache_close(&caches[i / 3][i % 3]);
        }
    }
    free(q);
    free(out);
    free(stats);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* A batch of sequences, heads of K and V, queries for each of them. */
static lengths_case_t batch_case(int64_t batch, int64_t heads, int64_t queries)
{
    return (lengths_case_t){.rank = 5,
                            .lead = {batch, heads, queries},
                            .shared = {false, false, true},
                            .varies = {true, false, false},
                            .S = 1,
                            .T = 500,
                            .D = 64,
                            .stored = &all_stored[0],
                            .fill = -INFINITY,
                            .inf_as_zero = true,
                            .threads = 2};
}

static void set_lengths(lengths_case_t *c, const int32_t *lengths, int n)
{
    for (int i = 0; i < MOST_LENGTHS; i++) {
        c->lengths[i] = lengths[i % n];
        c->windows[i] = 1 + i * 37 % 100;
    }
}

/* Decoding, verification of drafts and prefill, in each way of storing and with each mask. */
static void test_kinds(void)
{
    static const int32_t lengths[] = {500, 300, 17, 1, 257, 0, 499};
    static const int64_t batches[] = {1, 4, 7}, queries[] = {1, 4, 8, 1}, rows[] = {1, 1, 1, 40};
    static const sinter_fpmath_mode_t modes[] = {sinter_fpmath_mode_strict, sinter_fpmath_mode_f16,
                                                 sinter_fpmath_mode_int8, sinter_fpmath_mode_bf16};
    int n = 0;
    for (int stored = 0; stored < N_STORED; stored++) {
        for (int kind = 0; kind < 4; kind++) {
            for (int form = 0; form < FORMS; form++, n++) {
                lengths_case_t c = batch_case(batches[n % 3], 2, queries[kind]);
                set_lengths(&c, lengths, 7);
                c.S = rows[kind];
                c.stored = &all_stored[stored];
                c.form = (form_t)form;
                c.mode = modes[(n + n / 4) % 4];
                c.threads = 1 + n % 5;
                c.dynamic = n / 2 % 2 == 0;
                c.strided = n / 3 % 2 == 0;
                c.stats = n % 7 == 0;
                run(&c);
            }
        }
    }
}

/* Lengths of 0 and below, and of the cache and beyond it. What a row of nothing gives is the
 * softmax's mode. */
static void test_ends(void)
{
    static const int32_t lengths[] = {0, -1, 64, 65, INT32_MIN, 1000000, INT32_MAX};
    static const int32_t none[] = {0, -5};
    for (int i = 0; i < 16; i++) {
        lengths_case_t c = batch_case(7, 1, i % 4 < 2 ? 4 : 1);
        c.S = i % 4 == 3 ? 30 : 1;
        c.T = 64;
        set_lengths(&c, i < 8 ? lengths : none, i < 8 ? 7 : 2);
        c.inf_as_zero = i % 2 == 0;
        c.stored = &all_stored[i / 2 % N_STORED];
        c.threads = 1 + i % 3;
        c.stats = i % 3 == 0;
        run(&c);
    }
}

/* One long sequence among short ones is divided among threads; so is a single one. */
static void test_division(void)
{
    static const int32_t one_long[] = {1, 1, 3000, 1, 1, 1, 1}, last_long[] = {5, 3000},
                         two_long[] = {2500, 2000, 1, 0};
    static const struct {
        const int32_t *lengths;
        int n;
    } all[] = {{one_long, 7}, {last_long, 2}, {two_long, 4}, {one_long + 2, 1}};
    for (int i = 0; i < 24; i++) {
        lengths_case_t c = batch_case(all[i % 4].n, 1, 2);
        c.T = 3000;
        c.D = 32 + 32 * (i % 2);
        c.stored = &all_stored[c.D == 64 ? i / 2 % N_STORED : i / 2 % 3];
        c.form = i / 4 % 2 == 0 ? BEYOND : WINDOWED;
        c.threads = (int[]){2, 3, 7, 16, 33}[i % 5];
        set_lengths(&c, all[i % 4].lengths, all[i % 4].n);
        for (int k = 0; k < MOST_LENGTHS; k++) {
            c.windows[k] = 1800;
        }
        c.mode = i % 3 == 0 ? sinter_fpmath_mode_f16 : sinter_fpmath_mode_strict;
        run(&c);
    }
}

/* Fewer dims; lengths for each head, and for each query of one head; K and V that all sequences
 * share. */
static void test_dims(void)
{
    static const int32_t lengths[] = {100, 260, 3, 0, 31, 257, 300, 299, 64};
    for (int i = 0; i < 24; i++) {
        lengths_case_t c = batch_case(3, 2, 2);
        c.rank = 3 + i % 3;
        c.T = 300;
        c.S = i / 3 % 2 == 0 ? 1 : 33;
        c.shared[0] = i / 6 % 2 == 1;
        c.shared[1] = c.rank == 4;
        c.varies[1] = i / 2 % 2 == 1;
        c.varies[2] = i % 4 == 2;
        c.form = (form_t)(i / 6);
        c.stored = &all_stored[i % N_STORED];
        c.threads = 1 + i % 4;
        c.dynamic = i % 5 == 0;
        set_lengths(&c, lengths, 9);
        run(&c);
    }
}

/* Probabilities that are quantised make a second pass over V. Where the softmax makes NaN of a row
 * of nothing, that reads all of V. */
static void test_quantised_probabilities(void)
{
    static const int32_t lengths[] = {100, 300, 1, 33};
    for (int i = 0; i < 8; i++) {
        lengths_case_t c = batch_case(4, 2, i % 2 == 0 ? 1 : 4);
        c.T = 300;
        c.S = i / 2 % 2 == 0 ? 1 : 20;
        c.quantised = true;
        c.form = i < 4 ? BEYOND : CAUSAL;
        c.stored = &all_stored[i % N_STORED];
        set_lengths(&c, lengths, 4);
        if (c.form == CAUSAL) { /* no row may be empty */
            c.lengths[2] = c.lengths[3] = 44;
        }
        c.inf_as_zero = i % 3 != 0;
        run(&c);
    }
}

/* A mask that puts a number leaves nothing out. */
static void test_finite_fill(void)
{
    static const int32_t lengths[] = {100, 300, 0, 33};
    for (int i = 0; i < 4; i++) {
        lengths_case_t c = batch_case(4, 1, 2);
        c.T = 300;
        c.S = i % 2 == 0 ? 1 : 20;
        c.fill = -1;
        c.stored = &all_stored[i];
        set_lengths(&c, lengths, 4);
        run(&c);
    }
}

/* Caches in tiles, with numbers only where rows see them: up to 16 rows are multiplied with the
 * tiles, more unpack them. */
static void test_in_tiles(void)
{
    static const int32_t lengths[] = {0, 1, 15, 16, 17, 31, 32, 33, 255, 256, 257, 512};
    static const int64_t queries[] = {1, 4, 8, 16, 3, 2, 5, 1, 4},
                         rows[] = {1, 1, 2, 1, 1, 4, 1, 17, 10}, heads[] = {64, 128, 192, 256},
                         tokens[] = {512, 256, 48};
    static const sinter_fpmath_mode_t modes[] = {sinter_fpmath_mode_strict, sinter_fpmath_mode_int8,
                                                 sinter_fpmath_mode_f16, sinter_fpmath_mode_bf16,
                                                 sinter_fpmath_mode_any};
    int n = 0;
    for (int stored = 0; stored < N_STORED; stored++) {
        for (int kind = 0; kind < 9; kind++) {
            for (int form = 0; form < FORMS; form++, n++) {
                if (n % 3 == stored % 3) { /* a third of the cases, to save time */
                    continue;
                }
                lengths_case_t c = batch_case(12, 1, queries[kind]);
                set_lengths(&c, lengths, 12);
                c.S = rows[kind];
                c.T = tokens[n / 3 % 3];
                c.D = heads[n / 5 % 4];
                c.stored = &all_stored[stored];
                c.form = (form_t)form;
                c.mode = modes[(n + n / 5) % 5];
                c.threads = 1 + n / 2 % 3;
                c.strided = n / 3 % 2 == 0;
                c.stats = n % 5 == 0;
                c.quantised = n % 11 == 0 && c.form < CAUSAL;
                c.tiles = true;
                run(&c);
            }
        }
    }
    for (int i = 0; i < 8; i++) { /* what is not a number is read where a number fills in */
        lengths_case_t c = batch_case(4, 1, i % 2 == 0 ? 2 : 20);
        c.T = 256;
        c.fill = -1;
        c.stored = &all_stored[i % N_STORED];
        c.tiles = true;
        set_lengths(&c, lengths + 4, 4);
        run(&c);
    }
}

/* The log says how much is left. */
static void test_log(void)
{
    static const int32_t lengths[] = {250, 0};
    static char text[4096];
    capture_t capture;
    lengths_case_t c = batch_case(2, 2, 1);
    set_lengths(&c, lengths, 2);
    CHECK_THAT(sinter_set_verbose("exec") == sinter_success);
    capture_begin(&capture);
    run(&c);
    capture_end(&capture, text, sizeof text);
    CHECK_THAT(sinter_set_verbose("none") == sinter_success);
    CHECK(strstr(text, ", masks leave 25.0% of the tokens") != NULL, "%s", text);
}

int main(void)
{
    test_kinds();
    test_ends();
    test_division();
    test_dims();
    test_quantised_probabilities();
    test_finite_fill();
    test_in_tiles();
    test_log();
    return check_finish();
}
