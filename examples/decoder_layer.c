/* Decoding with a small model of two layers: five compiled partitions serve both layers and every
 * token. Weights are s8 codes with a scale for each group of 32; the cache of K and V is s8 codes,
 * too, and each token is quantised straight into its slice of the cache. Query, key and value are
 * views of one product's output: no Split, no Concat. Norms and rotary embedding are left out.
 * docs/decoder-layer.md explains the steps. Valid C11 and C++17. */
#include <math.h>
#include <sinter/sinter.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LAYERS = 2,
    TOKENS = 6,
    CAPACITY = 16, /* tokens that the cache has room for */
    KV_HEADS = 2,
    QUERIES = 2, /* query heads for each KV head */
    D = 64,
    GROUP = 32,
    HIDDEN = KV_HEADS * QUERIES * D,
    KV = KV_HEADS * D,
    QKV = HIDDEN + 2 * KV,
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

typedef struct layer {
    weight_t qkv, out, gate, up, down;
    cache_t k, v;
} layer_t;

static layer_t layers[LAYERS];

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

static void free_weight(weight_t *w)
{
    free(w->codes);
    free(w->scales);
}

/* ---- building a partition -------------------------------------------------------------------- */

enum { MOST = 8 };

/* A compiled partition with its ports, in the order in which data is given to run. */
typedef struct part {
    sinter_compiled_partition_t *compiled;
    int n_in, n_out;
    lt_t in[MOST], out[2];
} part_t;

static lt_t tensor(uint64_t id, sinter_data_type_t type, int ndims, const sinter_dim_t *dims)
{
    lt_t lt;
    CHECK(sinter_logical_tensor_init(&lt, id, type, ndims, dims, sinter_tensor_property_undef));
    return lt;
}

static lt_t matrix(uint64_t id, sinter_data_type_t type, sinter_dim_t rows, sinter_dim_t columns)
{
    const sinter_dim_t dims[2] = {rows, columns};
    return tensor(id, type, 2, dims);
}

static sinter_op_t *new_op(sinter_op_kind_t kind, uint64_t id, int n_in, const lt_t *in, int n_out,
                           const lt_t *out)
{
    sinter_op_t *op = NULL;
    CHECK(sinter_op_create(&op, NULL, id, kind, NULL));
    for (int i = 0; i < n_in; i++) {
        CHECK(sinter_op_add_input(op, &in[i]));
    }
    for (int i = 0; i < n_out; i++) {
        CHECK(sinter_op_add_output(op, &out[i]));
    }
    return op;
}

static void add_op(sinter_graph_t *graph, sinter_op_t *op)
{
    CHECK(sinter_graph_add_op(graph, op));
    CHECK(sinter_op_destroy(&op));
}

/* y = a op b; b NULL: y = op a. The op has the id of its output. */
static lt_t eltwise(sinter_graph_t *graph, sinter_op_kind_t kind, uint64_t id, const lt_t *a,
                    const lt_t *b)
{
    const lt_t in[2] = {*a, b != NULL ? *b : *a};
    const lt_t y = tensor(id, sinter_f32, a->ndims, a->dims);
    add_op(graph, new_op(kind, id, b != NULL ? 2 : 1, in, 1, &y));
    return y;
}

/* x = scales * codes, per group; the shape of the scales tells the groups. */
static void dequantize(sinter_graph_t *graph, const lt_t codes_and_scales[2], const lt_t *x)
{
    sinter_op_t *op = new_op(sinter_op_dynamic_dequantize, x->id, 2, codes_and_scales, 1, x);
    CHECK(sinter_op_set_attr_str(op, sinter_op_attr_qtype, "per_group"));
    add_op(graph, op);
}

static lt_t matmul(sinter_graph_t *graph, uint64_t id, const lt_t *a, const lt_t *b,
                   int transpose_b, const lt_t *y)
{
    const lt_t in[2] = {*a, *b};
    sinter_op_t *op = new_op(sinter_op_matmul, id, 2, in, 1, y);
    CHECK(sinter_op_set_attr_bool(op, sinter_op_attr_transpose_b, transpose_b));
    add_op(graph, op);
    return *y;
}

/* y = x * (scales * codes) transposed, with a weight [n, k]. Codes and scales become inputs of the
 * part. Ids from `id` on: y, the weight, codes, scales. */
static lt_t product(sinter_graph_t *graph, part_t *part, uint64_t id, const lt_t *x, int n, int k)
{
    const lt_t y = matrix(id, sinter_f32, 1, n), w = matrix(id + 1, sinter_f32, n, k);
    lt_t *stored = &part->in[part->n_in];
    stored[0] = matrix(id + 2, sinter_s8, n, k);
    stored[1] = matrix(id + 3, sinter_f32, n, k / GROUP);
    stored[0].property = stored[1].property = sinter_tensor_property_constant;
    part->n_in += 2;
    dequantize(graph, stored, &w);
    return matmul(graph, id, x, &w, 1, &y);
}

static sinter_graph_t *new_graph(void)
{
    sinter_graph_t *graph = NULL;
    CHECK(sinter_graph_create(&graph, NULL, sinter_cpu));
    return graph;
}

/* The whole graph is one partition, or the example fails. */
static void compile(part_t *part, sinter_graph_t *graph, const char *name)
{
    size_t count = 0;
    sinter_partition_t *partition = NULL;
    const char *pattern = NULL;
    CHECK(sinter_graph_finalize(graph));
    CHECK(sinter_graph_filter(graph, sinter_partition_policy_fusion));
    CHECK(sinter_graph_get_partition_num(graph, &count));
    if (count != 1) {
        fprintf(stderr, "%s: %zu partitions instead of one\n", name, count);
        exit(1);
    }
    CHECK(sinter_graph_get_partitions(graph, 1, &partition));
    CHECK(sinter_partition_get_pattern(partition, &pattern));
    printf("%-10s %s\n", name, pattern);
    CHECK(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &part->compiled));
    CHECK(sinter_partition_destroy(&partition));
    CHECK(sinter_graph_destroy(&graph));
}

/* data: of the inputs, then of the outputs. An engine would keep the tensors, and only set their
 * data and dims. */
static void run(const part_t *part, sinter_stream_t *stream, void *const *data)
{
    sinter_tensor_t *tensors[MOST + 2] = {NULL};
    const int n = part->n_in + part->n_out;
    for (int i = 0; i < n; i++) {
        const lt_t *lt = i < part->n_in ? &part->in[i] : &part->out[i - part->n_in];
        CHECK(sinter_tensor_create(&tensors[i], NULL, lt, data[i], SINTER_BYTES_TRUSTED));
    }
    CHECK(sinter_compiled_partition_execute(part->compiled, stream, (size_t)part->n_in,
                                            (const sinter_tensor_t *const *)tensors,
                                            (size_t)part->n_out, &tensors[part->n_in], NULL, 0));
    for (int i = 0; i < n; i++) {
        CHECK(sinter_tensor_destroy(&tensors[i]));
    }
}

/* ---- the five partitions --------------------------------------------------------------------- */

/* y = x W; with a residual: y = x W + r. */
static part_t projection(const char *name, int n, int k, int residual)
{
    part_t part;
    sinter_graph_t *graph = new_graph();
    memset(&part, 0, sizeof part);
    part.in[part.n_in++] = matrix(0, sinter_f32, 1, k);
    part.out[part.n_out++] = product(graph, &part, 10, &part.in[0], n, k);
    if (residual) {
        part.in[part.n_in] = matrix(1, sinter_f32, 1, n);
        part.out[0] = eltwise(graph, sinter_op_add, 20, &part.out[0], &part.in[part.n_in]);
        part.n_in++;
    }
    compile(&part, graph, name);
    return part;
}

/* One token of K or V into its slice of the cache: the strides are those of the whole cache. */
static part_t append(void)
{
    const sinter_dim_t x[4] = {1, KV_HEADS, 1, D}, s[4] = {1, KV_HEADS, 1, D / GROUP};
    const sinter_dim_t code_strides[4] = {KV_HEADS * CAPACITY * D, CAPACITY * D, D, 1};
    const sinter_dim_t scale_strides[4] = {KV_HEADS * CAPACITY * (D / GROUP),
                                           CAPACITY * (D / GROUP), D / GROUP, 1};
    part_t part;
    sinter_graph_t *graph = new_graph();
    memset(&part, 0, sizeof part);
    part.in[part.n_in++] = tensor(0, sinter_f32, 4, x);
    CHECK(sinter_logical_tensor_init_with_strides(&part.out[0], 1, sinter_s8, 4, x, code_strides,
                                                  sinter_tensor_property_undef));
    CHECK(sinter_logical_tensor_init_with_strides(&part.out[1], 2, sinter_f32, 4, s, scale_strides,
                                                  sinter_tensor_property_undef));
    part.n_out = 2;
    sinter_op_t *op = new_op(sinter_op_dynamic_quantize, 0, 1, part.in, 2, part.out);
    CHECK(sinter_op_set_attr_str(op, sinter_op_attr_quantization_kind, "dynamic_symmetric"));
    CHECK(sinter_op_set_attr_str(op, sinter_op_attr_qtype, "per_group"));
    add_op(graph, op);
    compile(&part, graph, "append");
    return part;
}

/* The first `tokens` tokens of a part of a cache, with a dim of 1 for the queries of a head. */
static lt_t cache_port(uint64_t id, sinter_data_type_t type, sinter_dim_t tokens,
                       sinter_dim_t width)
{
    const sinter_dim_t dims[5] = {1, KV_HEADS, 1, tokens, width};
    const sinter_dim_t strides[5] = {KV_HEADS * CAPACITY * width, CAPACITY * width,
                                     CAPACITY * width, width, 1};
    lt_t lt;
    CHECK(sinter_logical_tensor_init_with_strides(&lt, id, type, 5, dims, strides,
                                                  sinter_tensor_property_undef));
    return lt;
}

/* Tensors inside the partition: their layout is nobody's affair. */
static lt_t inner(uint64_t id, sinter_dim_t queries, sinter_dim_t rows, sinter_dim_t columns)
{
    const sinter_dim_t dims[5] = {1, KV_HEADS, queries, rows, columns};
    lt_t lt = tensor(id, sinter_f32, 5, dims);
    lt.layout_type = sinter_layout_type_any;
    return lt;
}

enum { Q = 0, K_CODES, K_SCALES, V_CODES, V_SCALES, ATTENTION_INPUTS };

static void set_tokens(part_t *part, sinter_dim_t tokens)
{
    for (int i = K_CODES; i <= V_SCALES; i++) {
        part->in[i].dims[3] = tokens;
    }
}

/* softmax(q K^T / sqrt(D)) V. The number of tokens is unknown here: one compile serves all. */
static part_t attention(void)
{
    const sinter_dim_t t = SINTER_UNKNOWN_DIM, dims[5] = {1, KV_HEADS, QUERIES, 1, D};
    const int64_t last = -1;
    part_t part;
    sinter_graph_t *graph = new_graph();
    memset(&part, 0, sizeof part);
    part.n_in = ATTENTION_INPUTS;
    part.in[Q] = tensor(Q, sinter_f32, 5, dims);
    part.in[K_CODES] = cache_port(K_CODES, sinter_s8, t, D);
    part.in[K_SCALES] = cache_port(K_SCALES, sinter_f32, t, D / GROUP);
    part.in[V_CODES] = cache_port(V_CODES, sinter_s8, t, D);
    part.in[V_SCALES] = cache_port(V_SCALES, sinter_f32, t, D / GROUP);
    const lt_t k = inner(10, 1, t, D), v = inner(11, 1, t, D);
    const lt_t scores = inner(12, QUERIES, 1, t), p = inner(13, QUERIES, 1, t);
    dequantize(graph, &part.in[K_CODES], &k);
    dequantize(graph, &part.in[V_CODES], &v);
    matmul(graph, scores.id, &part.in[Q], &k, 1, &scores); /* q comes scaled by 1 / sqrt(D) */
    sinter_op_t *op = new_op(sinter_op_softmax, p.id, 1, &scores, 1, &p);
    CHECK(sinter_op_set_attr_s64(op, sinter_op_attr_axis, &last, 1));
    add_op(graph, op);
    part.out[part.n_out++] = tensor(14, sinter_f32, 5, dims);
    matmul(graph, 14, &p, &v, 0, &part.out[0]);
    compile(&part, graph, "attention");
    return part;
}

/* y = (silu(x Wg) * x Wu) Wd + x, with silu(g) = g * sigmoid(g) */
static part_t mlp(void)
{
    part_t part;
    sinter_graph_t *graph = new_graph();
    memset(&part, 0, sizeof part);
    part.in[part.n_in++] = matrix(0, sinter_f32, 1, HIDDEN);
    const lt_t x = part.in[0];
    const lt_t gate = product(graph, &part, 10, &x, FFN, HIDDEN);
    const lt_t up = product(graph, &part, 20, &x, FFN, HIDDEN);
    const lt_t sigmoid = eltwise(graph, sinter_op_sigmoid, 30, &gate, NULL);
    const lt_t silu = eltwise(graph, sinter_op_multiply, 31, &gate, &sigmoid);
    const lt_t mid = eltwise(graph, sinter_op_multiply, 32, &silu, &up);
    const lt_t down = product(graph, &part, 40, &mid, HIDDEN, FFN);
    part.out[part.n_out++] = eltwise(graph, sinter_op_add, 50, &down, &x);
    compile(&part, graph, "mlp");
    return part;
}

/* ---- decoding -------------------------------------------------------------------------------- */

typedef struct model {
    part_t qkv, append, attention, out, mlp;
} model_t;

static void append_token(const model_t *m, sinter_stream_t *stream, float *x, cache_t *cache,
                         int token)
{
    void *data[3] = {x, cache->codes[0][token], cache->scales[0][token]};
    run(&m->append, stream, data);
}

/* x becomes the output of the layer. */
static void decode_layer(model_t *m, sinter_stream_t *stream, layer_t *l, int token, float *x)
{
    static float qkv[QKV], mixed[HIDDEN], sum[HIDDEN];
    void *qkv_data[4] = {x, l->qkv.codes, l->qkv.scales, qkv};
    run(&m->qkv, stream, qkv_data);
    for (int i = 0; i < HIDDEN; i++) {
        qkv[i] *= 1.0f / sqrtf((float)D);
    }
    append_token(m, stream, qkv + HIDDEN, &l->k, token);
    append_token(m, stream, qkv + HIDDEN + KV, &l->v, token);
    set_tokens(&m->attention, token + 1);
    void *attention_data[6] = {qkv, l->k.codes, l->k.scales, l->v.codes, l->v.scales, mixed};
    run(&m->attention, stream, attention_data);
    void *out_data[5] = {mixed, l->out.codes, l->out.scales, x, sum};
    run(&m->out, stream, out_data);
    void *mlp_data[8] = {sum,          l->gate.codes, l->gate.scales, l->up.codes,
                         l->up.scales, l->down.codes, l->down.scales, x};
    run(&m->mlp, stream, mlp_data);
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

static void plain_attention(int layer, int token, const float *q, float *y)
{
    for (int h = 0; h < KV_HEADS * QUERIES; h++) {
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
    static float qkv[QKV], mixed[HIDDEN], sum[HIDDEN], gate[FFN], up[FFN];
    const layer_t *l = &layers[layer];
    plain_product(&l->qkv, x, qkv);
    memcpy(plain_k[layer][token], qkv + HIDDEN, sizeof plain_k[layer][token]);
    memcpy(plain_v[layer][token], qkv + HIDDEN + KV, sizeof plain_v[layer][token]);
    plain_attention(layer, token, qkv, mixed);
    plain_product(&l->out, mixed, sum);
    for (int i = 0; i < HIDDEN; i++) {
        sum[i] += x[i];
    }
    plain_product(&l->gate, sum, gate);
    plain_product(&l->up, sum, up);
    for (int i = 0; i < FFN; i++) {
        gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    }
    plain_product(&l->down, gate, x);
    for (int i = 0; i < HIDDEN; i++) {
        x[i] += sum[i];
    }
}

int main(void)
{
    static float x[HIDDEN], plain[HIDDEN];
    sinter_stream_t *stream = NULL;
    double worst = 0.0, largest = 0.0;
    CHECK(sinter_stream_create(&stream, NULL, NULL));
    for (int i = 0; i < LAYERS; i++) {
        layers[i].qkv = new_weight(QKV, HIDDEN);
        layers[i].out = new_weight(HIDDEN, HIDDEN);
        layers[i].gate = new_weight(FFN, HIDDEN);
        layers[i].up = new_weight(FFN, HIDDEN);
        layers[i].down = new_weight(HIDDEN, FFN);
    }
    model_t model = {projection("qkv", QKV, HIDDEN, 0), append(), attention(),
                     projection("out", HIDDEN, HIDDEN, 1), mlp()};

    for (int token = 0; token < TOKENS; token++) {
        for (int i = 0; i < HIDDEN; i++) {
            plain[i] = x[i] = noise(); /* the token's embedding */
        }
        for (int i = 0; i < LAYERS; i++) {
            decode_layer(&model, stream, &layers[i], token, x);
            plain_layer(i, token, plain);
        }
        for (int i = 0; i < HIDDEN; i++) {
            worst = fmax(worst, fabs((double)x[i] - plain[i]));
            largest = fmax(largest, fabs((double)plain[i]));
        }
    }

    part_t *const parts[] = {&model.qkv, &model.append, &model.attention, &model.out, &model.mlp};
    for (int i = 0; i < 5; i++) {
        CHECK(sinter_compiled_partition_destroy(&parts[i]->compiled));
    }
    for (int i = 0; i < LAYERS; i++) {
        free_weight(&layers[i].qkv);
        free_weight(&layers[i].out);
        free_weight(&layers[i].gate);
        free_weight(&layers[i].up);
        free_weight(&layers[i].down);
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
