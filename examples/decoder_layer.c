/* A decoder layer as one graph: RMSNorm, query, key and value, rotary embedding, the append to a
 * cache of s8 codes, causal attention over it, the output projection, and a gated MLP, with s8
 * weights and a scale for each group of 32. The graph is compiled once, for any number of tokens,
 * and serves a prompt and single tokens of both layers of a small model; each layer binds its own
 * weights and caches. The results are compared with plain loops.
 * docs/decoder-layer.md explains the steps. Valid C11 and C++17. */
#include <math.h>
#include <sinter/sinter.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LAYERS = 2,
    PROMPT = 5,    /* tokens of the first step; then they come one by one */
    TOKENS = 9,    /* of all steps */
    CAPACITY = 16, /* tokens that the cache has room for */
    KV_HEADS = 2,
    QUERIES = 2, /* query heads for each KV head */
    HEADS = KV_HEADS * QUERIES,
    D = 64,
    GROUP = 32,
    HIDDEN = HEADS * D,
    KV = KV_HEADS * D,
    FFN = 384
};

#define CHECK(call)                                                          \
    do {                                                                     \
        if ((call) != sinter_success) {                                      \
            fprintf(stderr, "%s\n%s\n", #call, sinter_last_error_message()); \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

typedef sinter_logical_tensor_t lt_t;

/* ---- data ------------------------------------------------------------------------------------ */

typedef struct weight {
    int8_t *codes; /* [n, k] */
    float *scales; /* [n, k / GROUP] */
    int n, k;
} weight_t;

typedef struct cache {
    int8_t codes[KV_HEADS][CAPACITY][D];
    float scales[KV_HEADS][CAPACITY][D / GROUP];
} cache_t;

enum { WQ = 0, WK, WV, WO, GATE, UP, DOWN, WEIGHTS };

typedef struct layer {
    weight_t weights[WEIGHTS];
    float norms[2][HIDDEN]; /* before attention, before the MLP */
    cache_t k, v;
} layer_t;

static layer_t layers[LAYERS];
static float frequencies[D / 2];

static float noise(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) * 0x1p-23f - 1.0f;
}

static weight_t new_weight(int n, int k)
{
    weight_t w = {(int8_t *)malloc((size_t)(n * k)),
                  (float *)malloc(sizeof(float) * (size_t)(n * (k / GROUP))), n, k};
    if (w.codes == NULL || w.scales == NULL) {
        exit(1);
    }
    for (int i = 0; i < n * k; i++) {
        w.codes[i] = (int8_t)(noise() * 127.0f);
    }
    for (int i = 0; i < n * (k / GROUP); i++) {
        w.scales[i] = (1.5f + noise()) / 127.0f / sqrtf((float)k);
    }
    return w;
}

static void fill(layer_t *l)
{
    static const int rows[WEIGHTS] = {HIDDEN, KV, KV, HIDDEN, FFN, FFN, HIDDEN};
    for (int i = 0; i < WEIGHTS; i++) {
        l->weights[i] = new_weight(rows[i], i == DOWN ? FFN : HIDDEN);
    }
    for (int i = 0; i < HIDDEN; i++) {
        l->norms[0][i] = 1.0f + 0.1f * noise();
        l->norms[1][i] = 1.0f + 0.1f * noise();
    }
}

/* ---- the graph ------------------------------------------------------------------------------- */

/* Ids of the tensors that the program binds. Those between ops get ids from INNER on. */
enum {
    X = 1,
    Y,
    POSITIONS,
    SLOTS,
    PAST,
    SCALE,
    MASKED,
    FREQUENCIES,
    NORMS,                 /* 2 */
    K_CACHE = NORMS + 2,   /* codes, scales; K, then V */
    K_AFTER = K_CACHE + 4, /* the same after the append */
    WEIGHT = K_AFTER + 4,  /* codes, scales of each weight */
    INNER = WEIGHT + 2 * WEIGHTS
};

static sinter_graph_t *graph;
static uint64_t next_id = INNER;

/* An input or an output. */
static lt_t port(uint64_t id, sinter_data_type_t type, int ndims, const sinter_dim_t *dims,
                 sinter_tensor_property_t property)
{
    lt_t lt;
    CHECK(sinter_logical_tensor_init(&lt, id, type, ndims, dims, property));
    return lt;
}

static lt_t matrix(uint64_t id, sinter_data_type_t type, sinter_dim_t rows, sinter_dim_t columns,
                   sinter_tensor_property_t property)
{
    const sinter_dim_t dims[2] = {rows, columns};
    return port(id, type, 2, dims, property);
}

static lt_t vector(uint64_t id, sinter_data_type_t type, sinter_dim_t n)
{
    return port(id, type, 1, &n, sinter_tensor_property_undef);
}

/* A tensor between ops: the graph infers its shape. */
static lt_t inner(sinter_data_type_t type)
{
    lt_t lt;
    CHECK(sinter_logical_tensor_init_unknown(&lt, next_id++, type, SINTER_UNKNOWN_NDIMS,
                                             sinter_tensor_property_undef));
    return lt;
}

/* Each op has the id of its first output. */
static lt_t unary(sinter_op_kind_t kind, lt_t x)
{
    const lt_t y = inner(sinter_f32);
    CHECK(sinter_graph_add(graph, y.id, kind, sinter_in(&x), sinter_out(&y)));
    return y;
}

static lt_t binary_to(sinter_op_kind_t kind, lt_t a, lt_t b, lt_t y)
{
    CHECK(sinter_graph_add(graph, y.id, kind, sinter_in(&a), sinter_in(&b), sinter_out(&y)));
    return y;
}

static lt_t binary(sinter_op_kind_t kind, lt_t a, lt_t b)
{
    return binary_to(kind, a, b, inner(sinter_f32));
}

/* dims: -1 for the one that follows from the number of elements */
static lt_t reshape(lt_t x, size_t ndims, const int64_t *dims)
{
    const lt_t y = inner(x.data_type);
    CHECK(sinter_graph_add(graph, y.id, sinter_op_static_reshape, sinter_in(&x), sinter_out(&y),
                           sinter_attr_s64s(sinter_op_attr_shape, ndims, dims),
                           sinter_attr_bool(sinter_op_attr_special_zero, 0)));
    return y;
}

static lt_t transpose(lt_t x, size_t ndims, const int64_t *order)
{
    const lt_t y = inner(x.data_type);
    CHECK(sinter_graph_add(graph, y.id, sinter_op_static_transpose, sinter_in(&x), sinter_out(&y),
                           sinter_attr_s64s(sinter_op_attr_order, ndims, order)));
    return y;
}

/* scales * codes, per group; the shape of the scales tells the groups. */
static lt_t dequantize(lt_t codes, lt_t scales)
{
    const lt_t y = inner(sinter_f32);
    CHECK(sinter_graph_add(graph, y.id, sinter_op_dynamic_dequantize, sinter_in(&codes),
                           sinter_in(&scales), sinter_out(&y),
                           sinter_attr_str(sinter_op_attr_qtype, "per_group")));
    return y;
}

static lt_t matmul(lt_t a, lt_t b, int transpose_b)
{
    const lt_t y = inner(sinter_f32);
    CHECK(sinter_graph_add(graph, y.id, sinter_op_matmul, sinter_in(&a), sinter_in(&b),
                           sinter_out(&y),
                           sinter_attr_bool(sinter_op_attr_transpose_b, transpose_b)));
    return y;
}

/* x times a weight [n, k] transposed. */
static lt_t linear(lt_t x, int at)
{
    const weight_t *w = &layers[0].weights[at];
    const uint64_t id = WEIGHT + 2 * (uint64_t)at;
    const lt_t codes = matrix(id, sinter_s8, w->n, w->k, sinter_tensor_property_constant);
    const lt_t scales =
        matrix(id + 1, sinter_f32, w->n, w->k / GROUP, sinter_tensor_property_constant);
    return matmul(x, dequantize(codes, scales), 1);
}

static lt_t norm(lt_t x, int at)
{
    const lt_t y = inner(sinter_f32), gamma = vector(NORMS + (uint64_t)at, sinter_f32, HIDDEN);
    CHECK(sinter_graph_add(graph, y.id, sinter_op_rms_norm, sinter_in(&x), sinter_in(&gamma),
                           sinter_out(&y), sinter_attr_f32(sinter_op_attr_epsilon, 1e-5f)));
    return y;
}

/* [n, heads * D] as [1, heads, n, D] */
static lt_t split_heads(lt_t x, int64_t heads)
{
    const int64_t dims[4] = {1, -1, heads, D}, order[4] = {0, 2, 1, 3};
    return transpose(reshape(x, 4, dims), 4, order);
}

static lt_t rotate(lt_t x)
{
    const sinter_dim_t n[2] = {1, SINTER_UNKNOWN_DIM};
    const lt_t y = inner(sinter_f32), f = vector(FREQUENCIES, sinter_f32, D / 2),
               positions = port(POSITIONS, sinter_s32, 2, n, sinter_tensor_property_undef);
    CHECK(sinter_graph_add(graph, y.id, sinter_op_rotary_embedding, sinter_in(&x), sinter_in(&f),
                           sinter_in(&positions), sinter_out(&y)));
    return y;
}

/* Rows go to their slots of a cache. What ScatterRows returns is the cache after that. */
static lt_t scatter(uint64_t id, lt_t rows, sinter_dim_t width)
{
    const sinter_dim_t dims[4] = {1, KV_HEADS, SINTER_UNKNOWN_DIM, width};
    const lt_t cache = port(id, rows.data_type, 4, dims, sinter_tensor_property_undef),
               after = port(id + 4, rows.data_type, 4, dims, sinter_tensor_property_undef),
               slots = vector(SLOTS, sinter_s32, SINTER_UNKNOWN_DIM);
    CHECK(sinter_graph_add(graph, after.id, sinter_op_scatter_rows, sinter_in(&cache),
                           sinter_in(&slots), sinter_in(&rows), sinter_out(&after),
                           sinter_attr_s64(sinter_op_attr_axis, 2)));
    return after;
}

/* Quantises x [1, KV_HEADS, n, D] into a cache, and gives all of it as [1, KV_HEADS, 1, T, D]. */
static lt_t append(uint64_t cache, lt_t x)
{
    const int64_t group[4] = {1, 1, 1, GROUP}, dims[5] = {1, KV_HEADS, 1, -1, D};
    const lt_t codes = inner(sinter_s8), scales = inner(sinter_f32);
    CHECK(sinter_graph_add(graph, codes.id, sinter_op_dynamic_quantize, sinter_in(&x),
                           sinter_out(&codes), sinter_out(&scales),
                           sinter_attr_str(sinter_op_attr_quantization_kind, "dynamic_symmetric"),
                           sinter_attr_str(sinter_op_attr_qtype, "per_group"),
                           sinter_attr_s64s(sinter_op_attr_group_shape, 4, group)));
    const lt_t c = scatter(cache, codes, D), s = scatter(cache + 1, scales, D / GROUP);
    return reshape(dequantize(c, s), 5, dims);
}

/* Token i of the step sees the keys 0 ... past + i. */
static lt_t mask(lt_t scores)
{
    const sinter_dim_t one[5] = {1, 1, 1, 1, 1};
    const lt_t row = inner(sinter_s32), column = inner(sinter_s32), y = inner(sinter_f32),
               past = port(PAST, sinter_s32, 5, one, sinter_tensor_property_undef),
               fill_in = vector(MASKED, sinter_f32, 1);
    CHECK(sinter_graph_add(graph, row.id, sinter_op_gen_index, sinter_in(&scores), sinter_out(&row),
                           sinter_attr_s64(sinter_op_attr_axis, 3)));
    CHECK(sinter_graph_add(graph, column.id, sinter_op_gen_index, sinter_in(&scores),
                           sinter_out(&column), sinter_attr_s64(sinter_op_attr_axis, 4)));
    const lt_t last = binary_to(sinter_op_add, row, past, inner(sinter_s32)),
               keep = binary_to(sinter_op_greater_equal, last, column, inner(sinter_boolean));
    CHECK(sinter_graph_add(graph, y.id, sinter_op_select, sinter_in(&keep), sinter_in(&scores),
                           sinter_in(&fill_in), sinter_out(&y)));
    return y;
}

/* softmax(q K^T / sqrt(D)) V of q [1, HEADS, n, D], as [n, HIDDEN] */
static lt_t attention(lt_t q, lt_t k, lt_t v)
{
    const int64_t heads[5] = {1, KV_HEADS, QUERIES, -1, D}, order[5] = {0, 3, 1, 2, 4},
                  rows[2] = {-1, HIDDEN};
    const lt_t scale = vector(SCALE, sinter_f32, 1), p = inner(sinter_f32);
    const lt_t scores = mask(binary(sinter_op_multiply, matmul(reshape(q, 5, heads), k, 1), scale));
    CHECK(sinter_graph_add(graph, p.id, sinter_op_softmax, sinter_in(&scores), sinter_out(&p),
                           sinter_attr_s64(sinter_op_attr_axis, -1)));
    return reshape(transpose(matmul(p, v, 0), 5, order), 2, rows);
}

static void build(void)
{
    const uint64_t outputs[5] = {Y, K_AFTER, K_AFTER + 1, K_AFTER + 2, K_AFTER + 3};
    CHECK(sinter_graph_create(&graph, NULL, sinter_cpu));
    const lt_t x = matrix(X, sinter_f32, SINTER_UNKNOWN_DIM, HIDDEN, sinter_tensor_property_undef);
    const lt_t h = norm(x, 0);
    const lt_t k = append(K_CACHE, rotate(split_heads(linear(h, WK), KV_HEADS)));
    const lt_t v = append(K_CACHE + 2, split_heads(linear(h, WV), KV_HEADS));
    const lt_t q = rotate(split_heads(linear(h, WQ), HEADS));
    const lt_t sum = binary(sinter_op_add, linear(attention(q, k, v), WO), x);
    const lt_t m = norm(sum, 1), gate = linear(m, GATE);
    const lt_t silu = binary(sinter_op_multiply, gate, unary(sinter_op_sigmoid, gate));
    const lt_t mid = binary(sinter_op_multiply, silu, linear(m, UP));
    binary_to(sinter_op_add, linear(mid, DOWN), sum,
              matrix(Y, sinter_f32, SINTER_UNKNOWN_DIM, HIDDEN, sinter_tensor_property_undef));
    CHECK(sinter_graph_set_ports(graph, 0, NULL, 5, outputs));
    CHECK(sinter_graph_finalize(graph));
}

/* ---- running it ------------------------------------------------------------------------------ */

enum { MOST_PARTS = 6 };

static void print_parts(const sinter_graph_t *g)
{
    sinter_partition_t *parts[MOST_PARTS] = {NULL};
    size_t n = 0;
    const char *pattern = NULL;
    CHECK(sinter_graph_get_partition_num(g, &n));
    if (n > MOST_PARTS) {
        fprintf(stderr, "%zu partitions, at most %d were expected\n", n, MOST_PARTS);
        exit(1);
    }
    CHECK(sinter_graph_get_partitions((sinter_graph_t *)g, n, parts));
    for (size_t i = 0; i < n; i++) {
        CHECK(sinter_partition_get_pattern(parts[i], &pattern));
        printf("%s%s", i > 0 ? ", " : "", pattern);
        CHECK(sinter_partition_destroy(&parts[i]));
    }
    printf(": %zu partitions\n", n);
}

static void bind(sinter_compiled_graph_t *c, uint64_t id, void *data)
{
    CHECK(sinter_compiled_graph_bind(c, id, 0, NULL, NULL, data, SINTER_BYTES_TRUSTED));
}

static void bind_cache(sinter_compiled_graph_t *c, uint64_t id, cache_t *cache)
{
    const sinter_dim_t codes[4] = {1, KV_HEADS, CAPACITY, D},
                       scales[4] = {1, KV_HEADS, CAPACITY, D / GROUP};
    CHECK(sinter_compiled_graph_bind(c, id, 4, codes, NULL, cache->codes, sizeof cache->codes));
    CHECK(sinter_compiled_graph_bind(c, id + 1, 4, scales, NULL, cache->scales,
                                     sizeof cache->scales));
}

/* What stays: weights, caches, scalars. The outputs of the appends are not bound: they take the
 * buffers of the caches, which ScatterRows updates in place. */
static void bind_layer(sinter_compiled_graph_t *c, layer_t *l)
{
    const float scale = 1.0f / sqrtf((float)D), masked = -INFINITY;
    for (uint64_t i = 0; i < WEIGHTS; i++) {
        bind(c, WEIGHT + 2 * i, l->weights[i].codes);
        bind(c, WEIGHT + 2 * i + 1, l->weights[i].scales);
    }
    bind(c, NORMS, l->norms[0]);
    bind(c, NORMS + 1, l->norms[1]);
    bind(c, FREQUENCIES, frequencies);
    bind_cache(c, K_CACHE, &l->k);
    bind_cache(c, K_CACHE + 2, &l->v);
    CHECK(sinter_compiled_graph_bind_scalar(c, SCALE, &scale));
    CHECK(sinter_compiled_graph_bind_scalar(c, MASKED, &masked));
}

/* x [n, HIDDEN], of tokens from `past` on, becomes the output of the layer. */
static void run_layer(sinter_compiled_graph_t *c, sinter_stream_t *stream, int past, int n,
                      float *x)
{
    static int32_t at[TOKENS]; /* a token's position and its slot are the same number here */
    const sinter_dim_t rows[2] = {n, HIDDEN}, positions[2] = {1, n}, slots[1] = {n};
    const int32_t before = past;
    for (int i = 0; i < n; i++) {
        at[i] = past + i;
    }
    CHECK(sinter_compiled_graph_bind(c, X, 2, rows, NULL, x, SINTER_BYTES_TRUSTED));
    CHECK(sinter_compiled_graph_bind(c, Y, 2, rows, NULL, x, SINTER_BYTES_TRUSTED)); /* in place */
    CHECK(sinter_compiled_graph_bind(c, POSITIONS, 2, positions, NULL, at, sizeof at));
    CHECK(sinter_compiled_graph_bind(c, SLOTS, 1, slots, NULL, at, sizeof at));
    CHECK(sinter_compiled_graph_bind_scalar(c, PAST, &before));
    CHECK(sinter_compiled_graph_execute(c, stream));
}

/* One compile for both layers. */
static void compile(sinter_compiled_graph_t **compiled)
{
    sinter_compiled_partition_t *parts[MOST_PARTS];
    size_t n = 0;
    build();
    CHECK(sinter_graph_compile(graph, NULL, 0, NULL, &compiled[0]));
    print_parts(graph);
    CHECK(sinter_compiled_graph_get_partition_num(compiled[0], &n));
    CHECK(sinter_compiled_graph_get_partitions(compiled[0], n, NULL, parts));
    for (int i = 1; i < LAYERS; i++) {
        CHECK(sinter_compiled_graph_create(&compiled[i], NULL, graph, n, parts));
    }
    CHECK(sinter_graph_destroy(&graph));
    for (int i = 0; i < LAYERS; i++) {
        bind_layer(compiled[i], &layers[i]);
    }
}

/* ---- the same in plain loops, with a cache that is not quantised ----------------------------- */

static float plain_k[LAYERS][TOKENS][KV], plain_v[LAYERS][TOKENS][KV];

static void plain_product(const weight_t *w, const float *x, float *y)
{
    for (int n = 0; n < w->n; n++) {
        double sum = 0.0;
        for (int k = 0; k < w->k; k++) {
            sum += (double)x[k] * w->codes[n * w->k + k] * w->scales[(n * w->k + k) / GROUP];
        }
        y[n] = (float)sum;
    }
}

static void plain_norm(const float *x, const float *gamma, float *y)
{
    double sum = 0.0;
    for (int i = 0; i < HIDDEN; i++) {
        sum += (double)x[i] * x[i];
    }
    for (int i = 0; i < HIDDEN; i++) {
        y[i] = (float)(x[i] / sqrt(sum / HIDDEN + 1e-5) * gamma[i]);
    }
}

static void plain_rotate(float *x, int heads, int position)
{
    for (int i = 0; i < heads * D / 2; i++) {
        float *a = x + i / (D / 2) * D + i % (D / 2), *b = a + D / 2;
        const double angle = position * (double)frequencies[i % (D / 2)];
        const double u = *a * cos(angle) - *b * sin(angle), w = *b * cos(angle) + *a * sin(angle);
        *a = (float)u;
        *b = (float)w;
    }
}

static void plain_attention(int layer, int token, const float *q, float *y)
{
    for (int h = 0; h < HEADS; h++) {
        const int at = h / QUERIES * D;
        double p[TOKENS], total = 0.0;
        for (int t = 0; t <= token; t++) {
            double score = 0.0;
            for (int d = 0; d < D; d++) {
                score += (double)q[h * D + d] * plain_k[layer][t][at + d];
            }
            total += p[t] = exp(score / sqrt((double)D));
        }
        for (int d = 0; d < D; d++) {
            double sum = 0.0;
            for (int t = 0; t <= token; t++) {
                sum += p[t] / total * plain_v[layer][t][at + d];
            }
            y[h * D + d] = (float)sum;
        }
    }
}

static void plain_layer(int layer, int token, float *x)
{
    static float h[HIDDEN], q[HIDDEN], mixed[HIDDEN], sum[HIDDEN], gate[FFN], up[FFN];
    const layer_t *l = &layers[layer];
    plain_norm(x, l->norms[0], h);
    plain_product(&l->weights[WQ], h, q);
    plain_product(&l->weights[WK], h, plain_k[layer][token]);
    plain_product(&l->weights[WV], h, plain_v[layer][token]);
    plain_rotate(q, HEADS, token);
    plain_rotate(plain_k[layer][token], KV_HEADS, token);
    plain_attention(layer, token, q, mixed);
    plain_product(&l->weights[WO], mixed, sum);
    for (int i = 0; i < HIDDEN; i++) {
        sum[i] += x[i];
    }
    plain_norm(sum, l->norms[1], h);
    plain_product(&l->weights[GATE], h, gate);
    plain_product(&l->weights[UP], h, up);
    for (int i = 0; i < FFN; i++) {
        gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    }
    plain_product(&l->weights[DOWN], gate, x);
    for (int i = 0; i < HIDDEN; i++) {
        x[i] += sum[i];
    }
}

int main(void)
{
    static float x[TOKENS][HIDDEN], plain[TOKENS][HIDDEN];
    sinter_compiled_graph_t *compiled[LAYERS] = {NULL};
    sinter_stream_t *stream = NULL;
    double worst = 0.0, largest = 0.0;
    CHECK(sinter_stream_create(&stream, NULL, NULL));
    for (int i = 0; i < D / 2; i++) {
        frequencies[i] = powf(10000.0f, -2.0f * (float)i / D);
    }
    for (int i = 0; i < LAYERS; i++) {
        fill(&layers[i]);
    }
    compile(compiled);

    for (int i = 0; i < TOKENS * HIDDEN; i++) {
        plain[i / HIDDEN][i % HIDDEN] = x[i / HIDDEN][i % HIDDEN] = noise(); /* embeddings */
    }
    for (int past = 0, n = PROMPT; past < TOKENS; past += n, n = 1) {
        for (int i = 0; i < LAYERS; i++) {
            run_layer(compiled[i], stream, past, n, x[past]);
        }
    }
    for (int token = 0; token < TOKENS; token++) {
        for (int i = 0; i < LAYERS; i++) {
            plain_layer(i, token, plain[token]);
        }
        for (int i = 0; i < HIDDEN; i++) {
            worst = fmax(worst, fabs((double)x[token][i] - plain[token][i]));
            largest = fmax(largest, fabs((double)plain[token][i]));
        }
    }

    for (int i = 0; i < LAYERS; i++) {
        CHECK(sinter_compiled_graph_destroy(&compiled[i]));
        for (int k = 0; k < WEIGHTS; k++) {
            free(layers[i].weights[k].codes);
            free(layers[i].weights[k].scales);
        }
    }
    CHECK(sinter_stream_destroy(&stream));
    /* Codes of 8 bits are off by 2^-8 of the largest magnitude in their group, in K, V and each
     * layer. */
    const int ok = worst < 0x1p-5 * largest;
    printf("%d tokens, %d layers: largest difference from plain loops %.2e of the largest value: "
           "%s\n",
           TOKENS, LAYERS, worst / largest, ok ? "ok" : "WRONG");
    return !ok;
}
