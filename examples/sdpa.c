/* Grouped-query attention over an int4 KV cache: build the graph, take its one partition, let it
 * compute in bf16, compile, execute, and compare with plain loops. Valid C11 and C++17. */
#include <math.h>
#include <sinter/sinter.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    KV_HEADS = 2,
    HEADS_PER_KV = 4,
    D = 64,
    T = 96,
    GROUP = 32,
    D_GROUPS = D / GROUP,
    ROWS = KV_HEADS * T
};

#define CHECK(call)                                                          \
    do {                                                                     \
        if ((call) != sinter_success) {                                      \
            fprintf(stderr, "%s\n%s\n", #call, sinter_last_error_message()); \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

/* A compressed K or V: each token is a row of D int4 codes, two per byte; scales (f16) and zero
 * points (int4) for each 32 of them. */
typedef struct cache {
    uint8_t codes[ROWS * D / 2], zero_points[ROWS * D_GROUPS / 2];
    uint16_t scales[ROWS * D_GROUPS];
} cache_t;

static cache_t k_cache, v_cache;
static float q[KV_HEADS * HEADS_PER_KV * D], scale, mask[T], out[KV_HEADS * HEADS_PER_KV * D];

/* Tensor ids; the ones from K on live inside the partition and have no data. */
enum {
    Q,
    K_CODES,
    K_SCALES,
    K_ZPS,
    V_CODES,
    V_SCALES,
    V_ZPS,
    SCALE,
    MASK,
    OUT,
    N_PORTS,
    K = N_PORTS,
    V,
    SCORES,
    SCALED,
    MASKED,
    P,
    N_TENSORS
};
static sinter_logical_tensor_t tensors[N_TENSORS];

static void describe(int id, sinter_data_type_t type, sinter_dim_t d1, sinter_dim_t d2,
                     sinter_dim_t d3, sinter_dim_t d4)
{
    const sinter_dim_t dims[5] = {1, d1, d2, d3, d4};
    CHECK(sinter_logical_tensor_init(&tensors[id], (uint64_t)id, type, 5, dims,
                                     sinter_tensor_property_undef));
}

/* K is used as [D][T] but stored token by token, like V: the strides say so. */
static void describe_transposed(int id, sinter_data_type_t type, sinter_dim_t rows,
                                sinter_dim_t columns)
{
    const sinter_dim_t dims[5] = {1, KV_HEADS, 1, rows, columns};
    const sinter_dim_t strides[5] = {KV_HEADS * rows * columns, rows * columns, rows * columns, 1,
                                     rows};
    CHECK(sinter_logical_tensor_init_with_strides(&tensors[id], (uint64_t)id, type, 5, dims,
                                                  strides, sinter_tensor_property_undef));
}

static sinter_op_t *new_op(sinter_op_kind_t kind, int a, int b, int c, int output)
{
    const int inputs[3] = {a, b, c};
    sinter_op_t *op = NULL;
    CHECK(sinter_op_create(&op, NULL, (uint64_t)output, kind, NULL));
    for (int i = 0; i < 3 && inputs[i] >= 0; i++) {
        CHECK(sinter_op_add_input(op, &tensors[inputs[i]]));
    }
    CHECK(sinter_op_add_output(op, &tensors[output]));
    return op;
}

static void add(sinter_graph_t *graph, sinter_op_t *op)
{
    CHECK(sinter_graph_add_op(graph, op));
    CHECK(sinter_op_destroy(&op));
}

static void add_dequantize(sinter_graph_t *graph, int codes, int output, int64_t axis)
{
    const int64_t groups = D_GROUPS;
    sinter_op_t *op = new_op(sinter_op_dynamic_dequantize, codes, codes + 1, codes + 2, output);
    CHECK(sinter_op_set_attr_str(op, sinter_op_attr_qtype, "per_group"));
    CHECK(sinter_op_set_attr_s64(op, sinter_op_attr_axis, &axis, 1));
    CHECK(sinter_op_set_attr_s64(op, sinter_op_attr_groups, &groups, 1));
    add(graph, op);
}

static sinter_partition_t *attention_partition(void)
{
    describe(Q, sinter_f32, KV_HEADS, HEADS_PER_KV, 1, D);
    describe_transposed(K_CODES, sinter_s4, D, T);
    describe_transposed(K_SCALES, sinter_f16, D_GROUPS, T);
    describe_transposed(K_ZPS, sinter_s4, D_GROUPS, T);
    describe(V_CODES, sinter_s4, KV_HEADS, 1, T, D);
    describe(V_SCALES, sinter_f16, KV_HEADS, 1, T, D_GROUPS);
    describe(V_ZPS, sinter_s4, KV_HEADS, 1, T, D_GROUPS);
    describe(SCALE, sinter_f32, 1, 1, 1, 1);
    describe(MASK, sinter_f32, 1, 1, 1, T);
    describe(K, sinter_f32, KV_HEADS, 1, D, T);
    describe(V, sinter_f32, KV_HEADS, 1, T, D);
    for (int id = SCORES; id <= P; id++) {
        describe(id, sinter_f32, KV_HEADS, HEADS_PER_KV, 1, T);
    }
    describe(OUT, sinter_f32, KV_HEADS, HEADS_PER_KV, 1, D);

    sinter_graph_t *graph = NULL;
    CHECK(sinter_graph_create(&graph, NULL, sinter_cpu));
    add_dequantize(graph, K_CODES, K, 3);
    add_dequantize(graph, V_CODES, V, 4);
    add(graph, new_op(sinter_op_matmul, Q, K, -1, SCORES));
    add(graph, new_op(sinter_op_multiply, SCORES, SCALE, -1, SCALED));
    add(graph, new_op(sinter_op_add, SCALED, MASK, -1, MASKED));
    const int64_t last = -1;
    sinter_op_t *softmax = new_op(sinter_op_softmax, MASKED, -1, -1, P);
    CHECK(sinter_op_set_attr_s64(softmax, sinter_op_attr_axis, &last, 1));
    add(graph, softmax);
    add(graph, new_op(sinter_op_matmul, P, V, -1, OUT));
    CHECK(sinter_graph_finalize(graph));

    size_t count = 0;
    CHECK(sinter_graph_filter(graph, sinter_partition_policy_fusion));
    CHECK(sinter_graph_get_partition_num(graph, &count));
    if (count != 1) {
        fprintf(stderr, "expected 1 partition, got %zu\n", count);
        exit(1);
    }
    sinter_partition_t *partition = NULL;
    CHECK(sinter_graph_get_partitions(graph, 1, &partition));
    CHECK(sinter_graph_destroy(&graph));
    return partition;
}

static void execute(const sinter_compiled_partition_t *compiled)
{
    void *const data[N_PORTS] = {q,
                                 k_cache.codes,
                                 k_cache.scales,
                                 k_cache.zero_points,
                                 v_cache.codes,
                                 v_cache.scales,
                                 v_cache.zero_points,
                                 &scale,
                                 mask,
                                 out};
    sinter_stream_t *stream = NULL;
    sinter_tensor_t *ports[N_PORTS];
    CHECK(sinter_stream_create(&stream, NULL, NULL));
    for (int id = 0; id < N_PORTS; id++) {
        CHECK(sinter_tensor_create(&ports[id], NULL, &tensors[id], data[id], SINTER_BYTES_TRUSTED));
    }
    CHECK(sinter_compiled_partition_execute(
        compiled, stream, OUT, (const sinter_tensor_t *const *)ports, 1, &ports[OUT], NULL, 0));
    for (int id = 0; id < N_PORTS; id++) {
        CHECK(sinter_tensor_destroy(&ports[id]));
    }
    CHECK(sinter_stream_destroy(&stream));
}

static unsigned random_bits(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return state >> 16;
}

static void fill_cache(cache_t *cache)
{
    for (size_t i = 0; i < sizeof cache->codes; i++) {
        cache->codes[i] = (uint8_t)random_bits();
    }
    for (size_t i = 0; i < sizeof cache->zero_points; i++) {
        cache->zero_points[i] = (uint8_t)random_bits();
    }
    for (int i = 0; i < ROWS * D_GROUPS; i++) {
        cache->scales[i] =
            (uint16_t)((10 + random_bits() % 2) << 10); /* the f16 numbers 2^-5 and 2^-4 */
    }
}

static int int4_at(const uint8_t *codes, int i)
{
    return ((codes[i / 2] >> (i % 2 * 4) & 15) ^ 8) - 8;
}

static double cache_at(const cache_t *cache, int row, int d)
{
    const int group = row * D_GROUPS + d / GROUP;
    return ldexp(int4_at(cache->codes, row * D + d) - int4_at(cache->zero_points, group),
                 (cache->scales[group] >> 10) - 15);
}

/* Largest |out - reference|, as a fraction of the largest |V|. */
static double worst_difference(void)
{
    double worst = 0.0, largest = 0.0;
    for (int h = 0; h < KV_HEADS * HEADS_PER_KV; h++) {
        const int row = h / HEADS_PER_KV * T;
        double p[T], sum = 0.0;
        for (int t = 0; t < T; t++) {
            double s = 0.0;
            for (int d = 0; d < D; d++) {
                s += q[h * D + d] * cache_at(&k_cache, row + t, d);
            }
            sum += p[t] = exp(s * scale + mask[t]);
        }
        for (int d = 0; d < D; d++) {
            double want = 0.0;
            for (int t = 0; t < T; t++) {
                want += p[t] / sum * cache_at(&v_cache, row + t, d);
                largest = fmax(largest, fabs(cache_at(&v_cache, row + t, d)));
            }
            worst = fmax(worst, fabs(out[h * D + d] - want));
        }
    }
    return worst / largest;
}

int main(void)
{
    fill_cache(&k_cache);
    fill_cache(&v_cache);
    for (int i = 0; i < KV_HEADS * HEADS_PER_KV * D; i++) {
        q[i] = (float)random_bits() / 32768.0f - 1.0f;
    }
    scale = 0.125f;
    for (int t = 0; t < T; t++) {
        mask[t] =
            t < T - 3 ? 0.0f : -INFINITY; /* the last three slots of the cache are not in use yet */
    }

    sinter_partition_t *partition = attention_partition();
    CHECK(sinter_partition_set_fpmath_mode(partition, sinter_fpmath_mode_bf16, 1));
    sinter_compiled_partition_t *compiled = NULL;
    CHECK(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &compiled));
    const char *report = NULL;
    CHECK(sinter_compiled_partition_report(compiled, &report));
    fputs(report, stdout);
    execute(compiled);
    CHECK(sinter_compiled_partition_destroy(&compiled));
    CHECK(sinter_partition_destroy(&partition));

    double checksum = 0.0;
    for (int i = 0; i < KV_HEADS * HEADS_PER_KV * D; i++) {
        checksum += out[i];
    }
    /* bf16 keeps 8 bits of every operand of both products: with scores of this size that moves
     * the result by less than 2^-5 of the largest V. */
    const double difference = worst_difference();
    const int ok = difference < 0x1p-5 && isfinite(checksum);
    printf("checksum %.4f, largest difference from plain loops %.2e of the largest V: %s\n",
           checksum, difference, ok ? "ok" : "WRONG");
    return !ok;
}
