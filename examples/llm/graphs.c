/* The graphs of a model. A layer is one graph, which serves prompts and single tokens of all
 * layers: the number of tokens and the length of the cache are left open. */
#include "llm.h"

#include <string.h>

const format_t weight_formats[WEIGHT_FORMATS] = {
    {"file", sinter_data_type_undef, sinter_data_type_undef, 0, NULL}, /* as they are stored */
    {"f16", sinter_f16, sinter_data_type_undef, 0, NULL},
    {"int8", sinter_s8, sinter_f16, 32, "dynamic_symmetric"},
    {"int4", sinter_s4, sinter_f16, 32, "dynamic_symmetric"},
    {"mxfp4", sinter_f4_e2m1, sinter_e8m0, 32, "dynamic_mx"},
};
const format_t cache_formats[CACHE_FORMATS] = {
    {"f16", sinter_f16, sinter_data_type_undef, 0, NULL},
    {"int8", sinter_s8, sinter_f16, 64, "dynamic_symmetric"},
    {"int4", sinter_s4, sinter_f16, 32, "dynamic_symmetric"},
    {"mxfp8", sinter_f8_e4m3, sinter_e8m0, 32, "dynamic_mx"},
};

/* A graph that is being built. After the first error it takes no more ops. */
typedef struct builder {
    sinter_graph_t *graph;
    uint64_t next_id;
    const char *error;
    const sizes_t *sizes;
} builder_t;

typedef sinter_logical_tensor_t lt_t;

static void note(builder_t *b, sinter_status_t status)
{
    if (status != sinter_success && b->error == NULL) {
        b->error = failure("%s", sinter_last_error_message());
    }
}

static builder_t begin(const sizes_t *s, sinter_fpmath_mode_t mode)
{
    builder_t b = {NULL, PORT_INNER, NULL, s};
    note(&b, sinter_graph_create_with_fpmath_mode(&b.graph, NULL, sinter_cpu, mode, 1));
    return b;
}

static const char *end(builder_t *b, sinter_graph_t **graph)
{
    if (b->error == NULL) {
        note(b, sinter_graph_finalize(b->graph));
    }
    if (b->error != NULL) {
        sinter_graph_destroy(&b->graph);
    }
    *graph = b->graph;
    return b->error;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static const sinter_dim_t OPEN = SINTER_UNKNOWN_DIM;

/* A tensor that the engine binds. */
static lt_t port(builder_t *b, uint64_t id, sinter_data_type_t type, int ndims,
                 const sinter_dim_t *dims)
{
    lt_t lt = {0};
    const bool weight = id == PORT_NORM || id == PORT_NORM + 1 || id >= PORT_WEIGHT;
    note(b, sinter_logical_tensor_init(&lt, id, type, ndims, dims,
                                       weight ? sinter_tensor_property_constant
                                              : sinter_tensor_property_undef));
    return lt;
}

static lt_t matrix(builder_t *b, uint64_t id, sinter_data_type_t type, sinter_dim_t rows,
                   sinter_dim_t columns)
{
    const sinter_dim_t dims[2] = {rows, columns};
    return port(b, id, type, 2, dims);
}

static lt_t vector(builder_t *b, uint64_t id, sinter_data_type_t type, sinter_dim_t n)
{
    return port(b, id, type, 1, &n);
}

/* A tensor between ops: the graph infers its shape. */
static lt_t inner(builder_t *b, sinter_data_type_t type)
{
    lt_t lt = {0};
    note(b, sinter_logical_tensor_init_unknown(&lt, b->next_id++, type, SINTER_UNKNOWN_NDIMS,
                                               sinter_tensor_property_undef));
    return lt;
}

/* ---- ops; each has the id of its first output ------------------------------------------------ */

/* Adds an op; its parts are inputs, outputs and attributes. */
#define ADD(b, y, kind, ...) note(b, sinter_graph_add((b)->graph, (y).id, kind, __VA_ARGS__))

static lt_t unary(builder_t *b, sinter_op_kind_t kind, lt_t x, sinter_data_type_t type)
{
    const lt_t y = inner(b, type);
    ADD(b, y, kind, sinter_in(&x), sinter_out(&y));
    return y;
}

static lt_t binary_to(builder_t *b, sinter_op_kind_t kind, lt_t x, lt_t z, lt_t y)
{
    ADD(b, y, kind, sinter_in(&x), sinter_in(&z), sinter_out(&y));
    return y;
}

static lt_t binary(builder_t *b, sinter_op_kind_t kind, lt_t x, lt_t z)
{
    return binary_to(b, kind, x, z, inner(b, sinter_f32));
}

/* dims: -1 for the one that follows from the number of elements */
static lt_t reshape(builder_t *b, lt_t x, size_t ndims, const int64_t *dims)
{
    const lt_t y = inner(b, x.data_type);
    ADD(b, y, sinter_op_static_reshape, sinter_in(&x), sinter_out(&y),
        sinter_attr_s64s(sinter_op_attr_shape, ndims, dims),
        sinter_attr_bool(sinter_op_attr_special_zero, 0));
    return y;
}

static lt_t transpose(builder_t *b, lt_t x, size_t ndims, const int64_t *order)
{
    const lt_t y = inner(b, x.data_type);
    ADD(b, y, sinter_op_static_transpose, sinter_in(&x), sinter_out(&y),
        sinter_attr_s64s(sinter_op_attr_order, ndims, order));
    return y;
}

static lt_t gather(builder_t *b, lt_t data, lt_t indices)
{
    const lt_t y = inner(b, data.data_type);
    ADD(b, y, sinter_op_gather, sinter_in(&data), sinter_in(&indices), sinter_out(&y));
    return y;
}

static lt_t matmul(builder_t *b, lt_t x, lt_t w, int transpose_w, lt_t y)
{
    ADD(b, y, sinter_op_matmul, sinter_in(&x), sinter_in(&w), sinter_out(&y),
        sinter_attr_bool(sinter_op_attr_transpose_b, transpose_w));
    return y;
}

static lt_t norm(builder_t *b, lt_t x, int at)
{
    const lt_t gamma = vector(b, PORT_NORM + (uint64_t)at, sinter_f32, b->sizes->hidden);
    const lt_t y = inner(b, sinter_f32);
    ADD(b, y, sinter_op_rms_norm, sinter_in(&x), sinter_in(&gamma), sinter_out(&y),
        sinter_attr_f32(sinter_op_attr_epsilon, b->sizes->epsilon));
    return y;
}

/* Codes with their scales and, where part[2] has an id, offsets, as f32 y. */
static void dequantize(builder_t *b, const lt_t *part, size_t ndims, int64_t group, lt_t y)
{
    const int64_t groups[4] = {1, ndims == 2 ? group : 1, 1, group};
    sinter_op_part_t parts[7] = {sinter_in(&part[0]), sinter_in(&part[1]), sinter_out(&y),
                                 sinter_attr_str(sinter_op_attr_qtype, "per_group"),
                                 sinter_attr_s64s(sinter_op_attr_group_shape, ndims, groups)};
    size_t n = 5;
    if (part[2].id != 0) {
        parts[n++] = sinter_in(&part[2]);
        parts[n++] = sinter_attr_str(sinter_op_attr_zps_kind, "offsets");
    }
    note(b, sinter_graph_add_parts(b->graph, y.id, sinter_op_dynamic_dequantize, n, parts));
}

/* x in a format: numbers, or codes and scales. */
static void quantize(builder_t *b, lt_t x, size_t ndims, const format_t *f, const lt_t *part)
{
    const int64_t groups[4] = {1, ndims == 2 ? f->group : 1, 1, f->group};
    if (f->kind == NULL) {
        ADD(b, part[0], sinter_op_type_cast, sinter_in(&x), sinter_out(&part[0]));
        return;
    }
    ADD(b, part[0], sinter_op_dynamic_quantize, sinter_in(&x), sinter_out(&part[0]),
        sinter_out(&part[1]), sinter_attr_str(sinter_op_attr_quantization_kind, f->kind),
        sinter_attr_str(sinter_op_attr_qtype, "per_group"),
        sinter_attr_s64s(sinter_op_attr_group_shape, ndims, groups));
}

/* ---- weights --------------------------------------------------------------------------------- */

/* The tensors of a weight, and of its rows that indices name, if there are indices. */
static void weight_parts(builder_t *b, uint64_t id, const weight_t *w, const lt_t *rows, lt_t *part)
{
    const sinter_dim_t groups = (w->k + w->group - 1) / w->group;
    memset(part, 0, 3 * sizeof *part);
    part[0] = matrix(b, id, w->type, w->n, w->k);
    if (w->scale_type != sinter_data_type_undef) {
        part[1] = matrix(b, id + 1, w->scale_type, w->n, groups);
    }
    if (w->offsets) {
        part[2] = matrix(b, id + 2, w->scale_type, w->n, groups);
    }
    for (int i = 0; rows != NULL && i < 3 && part[i].id != 0; i++) {
        part[i] = gather(b, part[i], *rows);
    }
}

/* A weight, or rows of it, as f32 y. */
static lt_t decode(builder_t *b, uint64_t id, const weight_t *w, const lt_t *rows, lt_t y)
{
    lt_t part[3];
    weight_parts(b, id, w, rows, part);
    if (part[1].id != 0) {
        dequantize(b, part, 2, w->group, y);
    } else if (w->type != sinter_f32) {
        ADD(b, y, sinter_op_type_cast, sinter_in(&part[0]), sinter_out(&y));
    } else {
        return part[0];
    }
    return y;
}

/* x times a weight [n, k] transposed. */
static lt_t linear_to(builder_t *b, lt_t x, int at, const weight_t *w, lt_t y)
{
    const lt_t f = decode(b, PORT_WEIGHT + 3 * (uint64_t)at, w, NULL, inner(b, sinter_f32));
    return matmul(b, x, f, 1, y);
}

static lt_t linear(builder_t *b, lt_t x, int at, const weight_t *weights)
{
    return linear_to(b, x, at, &weights[at], inner(b, sinter_f32));
}

/* ---- attention ------------------------------------------------------------------------------- */

/* [n, heads * head] as [1, heads, n, head] */
static lt_t split_heads(builder_t *b, lt_t x, int64_t heads)
{
    const int64_t dims[4] = {1, -1, heads, b->sizes->head}, order[4] = {0, 2, 1, 3};
    return transpose(b, reshape(b, x, 4, dims), 4, order);
}

/* Pairs are neighbours, as GGUF stores the weights of llama. */
static lt_t rotate(builder_t *b, lt_t x)
{
    const sinter_dim_t dims[3] = {1, OPEN, b->sizes->rotated / 2};
    const lt_t y = inner(b, sinter_f32), cosines = port(b, PORT_COSINES, sinter_f32, 3, dims),
               sines = port(b, PORT_SINES, sinter_f32, 3, dims);
    ADD(b, y, sinter_op_rotary_embedding, sinter_in(&x), sinter_in(&cosines), sinter_in(&sines),
        sinter_out(&y), sinter_attr_bool(sinter_op_attr_interleaved, 1),
        sinter_attr_s64(sinter_op_attr_rotary_embedding_dim, b->sizes->rotated));
    return y;
}

/* Rows go to their slots of a cache. What ScatterRows returns is the cache after that. */
static lt_t scatter(builder_t *b, uint64_t id, lt_t rows, sinter_dim_t width)
{
    const sinter_dim_t dims[4] = {1, b->sizes->kv_heads, OPEN, width};
    const lt_t cache = port(b, id, rows.data_type, 4, dims),
               after = port(b, id + 4, rows.data_type, 4, dims),
               slots = vector(b, PORT_SLOTS, sinter_s32, OPEN);
    ADD(b, after, sinter_op_scatter_rows, sinter_in(&cache), sinter_in(&slots), sinter_in(&rows),
        sinter_out(&after), sinter_attr_s64(sinter_op_attr_axis, 2));
    return after;
}

/* x [1, kv_heads, n, head] goes into a cache; all of it as f32 [1, kv_heads, 1, T, head]. */
static lt_t append(builder_t *b, uint64_t id, lt_t x, const format_t *f)
{
    const int64_t head = b->sizes->head, dims[5] = {1, b->sizes->kv_heads, 1, -1, head};
    const lt_t y = inner(b, sinter_f32);
    lt_t part[3] = {inner(b, f->type)};
    if (f->kind != NULL) {
        part[1] = inner(b, f->scale_type);
    }
    quantize(b, x, 4, f, part);
    part[0] = scatter(b, id, part[0], head);
    if (f->kind == NULL) {
        ADD(b, y, sinter_op_type_cast, sinter_in(&part[0]), sinter_out(&y));
    } else {
        part[1] = scatter(b, id + 1, part[1], (head + f->group - 1) / f->group);
        dequantize(b, part, 4, f->group, y);
    }
    return reshape(b, y, 5, dims);
}

/* Token i of the step sees the keys 0 ... past + i. */
static lt_t mask(builder_t *b, lt_t scores)
{
    const sinter_dim_t one[5] = {1, 1, 1, 1, 1};
    const lt_t row = inner(b, sinter_s32), column = inner(b, sinter_s32), y = inner(b, sinter_f32),
               past = port(b, PORT_PAST, sinter_s32, 5, one),
               masked = vector(b, PORT_MASKED, sinter_f32, 1);
    ADD(b, row, sinter_op_gen_index, sinter_in(&scores), sinter_out(&row),
        sinter_attr_s64(sinter_op_attr_axis, 3));
    ADD(b, column, sinter_op_gen_index, sinter_in(&scores), sinter_out(&column),
        sinter_attr_s64(sinter_op_attr_axis, 4));
    const lt_t last = binary_to(b, sinter_op_add, row, past, inner(b, sinter_s32)),
               keep = binary_to(b, sinter_op_greater_equal, last, column, inner(b, sinter_boolean));
    ADD(b, y, sinter_op_select, sinter_in(&keep), sinter_in(&scores), sinter_in(&masked),
        sinter_out(&y));
    return y;
}

/* softmax(q K^T * scale) V of q [1, heads, n, head], as [n, heads * head]. Query heads that share
 * a KV head are a dim of their own. */
static lt_t attention(builder_t *b, lt_t q, lt_t k, lt_t v)
{
    const sizes_t *s = b->sizes;
    const int64_t heads[5] = {1, s->kv_heads, s->heads / s->kv_heads, -1, s->head},
                  order[5] = {0, 3, 1, 2, 4}, rows[2] = {-1, s->heads * s->head};
    const lt_t scale = vector(b, PORT_SCALE, sinter_f32, 1), p = inner(b, sinter_f32);
    const lt_t products = matmul(b, reshape(b, q, 5, heads), k, 1, inner(b, sinter_f32));
    const lt_t scores = mask(b, binary(b, sinter_op_multiply, products, scale));
    ADD(b, p, sinter_op_softmax, sinter_in(&scores), sinter_out(&p),
        sinter_attr_s64(sinter_op_attr_axis, -1));
    const lt_t y = matmul(b, p, v, 0, inner(b, sinter_f32));
    return reshape(b, transpose(b, y, 5, order), 2, rows);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

const char *graph_embedding(sinter_graph_t **graph, const sizes_t *s, const weight_t *w)
{
    builder_t b = begin(s, sinter_fpmath_mode_strict);
    const lt_t tokens = vector(&b, PORT_TOKENS, sinter_s32, OPEN);
    const lt_t y = matrix(&b, PORT_Y, sinter_f32, OPEN, s->hidden);
    if (w->type == sinter_f32) {
        const lt_t rows = matrix(&b, PORT_WEIGHT, w->type, w->n, w->k);
        ADD(&b, y, sinter_op_gather, sinter_in(&rows), sinter_in(&tokens), sinter_out(&y));
    } else {
        decode(&b, PORT_WEIGHT, w, &tokens, y);
    }
    return end(&b, graph);
}

const char *graph_layer(sinter_graph_t **graph, const sizes_t *s, const weight_t *weights,
                        const format_t *cache, sinter_fpmath_mode_t mode)
{
    builder_t b = begin(s, mode);
    const lt_t x = matrix(&b, PORT_X, sinter_f32, OPEN, s->hidden), h = norm(&b, x, 0);
    const lt_t k = append(
        &b, PORT_CACHE, rotate(&b, split_heads(&b, linear(&b, h, K, weights), s->kv_heads)), cache);
    const lt_t v =
        append(&b, PORT_CACHE + 2, split_heads(&b, linear(&b, h, V, weights), s->kv_heads), cache);
    const lt_t q = rotate(&b, split_heads(&b, linear(&b, h, Q, weights), s->heads));
    const lt_t a = linear(&b, attention(&b, q, k, v), OUT, weights);
    const lt_t sum = binary(&b, sinter_op_add, a, x), m = norm(&b, sum, 1);
    const lt_t gate = linear(&b, m, GATE, weights);
    const lt_t sigmoid = unary(&b, sinter_op_sigmoid, gate, sinter_f32);
    const lt_t silu = binary(&b, sinter_op_multiply, gate, sigmoid);
    const lt_t mid = binary(&b, sinter_op_multiply, silu, linear(&b, m, UP, weights));
    binary_to(&b, sinter_op_add, linear(&b, mid, DOWN, weights), sum,
              matrix(&b, PORT_Y, sinter_f32, OPEN, s->hidden));

    const uint64_t outputs[5] = {PORT_Y, PORT_AFTER, PORT_AFTER + 2, PORT_AFTER + 1,
                                 PORT_AFTER + 3};
    note(&b, sinter_graph_set_ports(b.graph, 0, NULL, cache->kind != NULL ? 5 : 3, outputs));
    return end(&b, graph);
}

const char *graph_logits(sinter_graph_t **graph, const sizes_t *s, const weight_t *w,
                         sinter_fpmath_mode_t mode)
{
    builder_t b = begin(s, mode);
    const lt_t x = matrix(&b, PORT_X, sinter_f32, 1, s->hidden);
    linear_to(&b, norm(&b, x, 0), 0, w, matrix(&b, PORT_Y, sinter_f32, 1, s->vocabulary));
    return end(&b, graph);
}

const char *graph_convert(sinter_graph_t **graph, const weight_t *from, const weight_t *to,
                          const format_t *format)
{
    builder_t b = begin(NULL, sinter_fpmath_mode_strict);
    const lt_t x = decode(&b, PORT_WEIGHT, from, NULL, inner(&b, sinter_f32));
    lt_t part[3];
    weight_parts(&b, PORT_WEIGHT + 3, to, NULL, part);
    quantize(&b, x, 2, format, part);
    return end(&b, graph);
}
