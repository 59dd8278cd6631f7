/* A compressed KV cache as an engine uses it: each token's K and V are quantised into a slice of
 * a larger cache by one compiled partition, and attended by another, compiled once for every
 * number of tokens. At every step codes, scales and zero points are what the oracle makes of the
 * token, no other byte of the cache changes, and the output is the oracle's attention over the
 * bytes in the cache. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter.h>

#include "node.h"
#include "passive.h"
#include "random.h"

enum { BATCH = 2, HEADS = 2, QUERIES = 2, D = 64, TOKENS = 40, CAPACITY = 48, N_PARTS = 3 };

typedef struct scheme {
    const char *kind;
    sinter_data_type_t type[N_PARTS]; /* of codes, scales, zero points (undef: none) */
    int64_t group;
    int tokens_outside;   /* layout B T H D instead of B H T D */
    const char *zps_kind; /* NULL: zero_points */
} scheme_t;

static const scheme_t schemes[] = {
    {"dynamic_mx", {sinter_f8_e4m3, sinter_e8m0}, 32, 0, NULL},
    {"dynamic_mx", {sinter_f8_e5m2, sinter_e8m0}, 32, 1, NULL},
    {"dynamic_mx", {sinter_f6_e3m2, sinter_e8m0}, 32, 0, NULL},
    {"dynamic_mx", {sinter_f6_e2m3, sinter_e8m0}, 16, 1, NULL},
    {"dynamic_mx", {sinter_f4_e2m1, sinter_e8m0}, 32, 0, NULL},
    {"dynamic_mx", {sinter_s8, sinter_e8m0}, 32, 0, NULL},
    {"dynamic_mx_rceil", {sinter_f8_e4m3, sinter_e8m0}, 32, 0, NULL},
    {"dynamic_mx_rceil", {sinter_f4_e2m1, sinter_e8m0}, 32, 1, NULL},
    {"dynamic_symmetric", {sinter_s8, sinter_f16}, 64, 0, NULL},
    {"dynamic_symmetric", {sinter_s4, sinter_f16}, 32, 0, NULL},
    {"dynamic_symmetric", {sinter_f8_e4m3, sinter_f32}, 64, 1, NULL},
    {"dynamic_symmetric", {sinter_f8_e4m3fnuz, sinter_bf16}, 32, 0, NULL},
    {"dynamic_asymmetric", {sinter_u8, sinter_f16, sinter_u8}, 32, 0, NULL},
    {"dynamic_asymmetric", {sinter_u4, sinter_f16, sinter_u4}, 32, 0, NULL},
    {"dynamic_asymmetric", {sinter_s8, sinter_f32, sinter_s8}, 64, 1, NULL},
    {"dynamic_asymmetric", {sinter_s4, sinter_bf16, sinter_s4}, 32, 1, NULL},
    {"dynamic_asymmetric", {sinter_u4, sinter_f16, sinter_f16}, 32, 0, "offsets"},
    {"dynamic_asymmetric", {sinter_s8, sinter_bf16, sinter_f32}, 64, 1, "offsets"},
    {"dynamic_asymmetric", {sinter_u8, sinter_f16, sinter_f16}, 32, 1, "zero_points"},
    {"dynamic_nv", {sinter_f4_e2m1, sinter_f8_e4m3}, 16, 0, NULL},
    {"dynamic_signed", {sinter_s4, sinter_f16}, 32, 0, NULL},
    {"dynamic_signed", {sinter_s8, sinter_f32}, 64, 1, NULL},
    {"dynamic_iq4_nl", {sinter_s8, sinter_f16}, 32, 0, NULL},
    {"dynamic_iq4_nl", {sinter_s8, sinter_bf16}, 16, 1, NULL},
};

/* ---- caches ---------------------------------------------------------------------------------- */

typedef struct cache {
    const scheme_t *scheme;
    int n_parts;
    int64_t width[N_PARTS], strides[N_PARTS][4]; /* of batch, head, token, element */
    size_t bytes[N_PARTS];
    unsigned char *data[N_PARTS], *before[N_PARTS];
} cache_t;

static int bits_of(sinter_data_type_t type)
{
    sinter_logical_tensor_t lt;
    const sinter_dim_t eight = 8;
    size_t bytes = 0;

    CHECK_THAT(sinter_logical_tensor_init(&lt, 0, type, 1, &eight, sinter_tensor_property_undef) ==
               sinter_success);
    CHECK_THAT(sinter_logical_tensor_get_bytes(&lt, &bytes) == sinter_success);
    return (int)bytes;
}

static void cache_open(cache_t *c, const scheme_t *s)
{
    *c = (cache_t){.scheme = s, .n_parts = s->type[2] ? 3 : 2};
    for (int p = 0; p < c->n_parts; p++) {
        const int64_t w = c->width[p] = p == 0 ? D : D / s->group;
        const int64_t heads_outside[4] = {HEADS * CAPACITY * w, CAPACITY * w, w, 1},
                      tokens_outside[4] = {CAPACITY * HEADS * w, w, HEADS * w, 1};

        memcpy(c->strides[p], s->tokens_outside ? tokens_outside : heads_outside,
               sizeof c->strides[p]);
        c->bytes[p] = (size_t)(BATCH * HEADS * CAPACITY * w * bits_of(s->type[p]) / 8);
        c->data[p] = malloc(c->bytes[p]);
        c->before[p] = malloc(c->bytes[p]);
        memset(c->data[p], 0xA5, c->bytes[p]);
    }
}

static void cache_close(cache_t *c)
{
    for (int p = 0; p < c->n_parts; p++) {
        free(c->data[p]);
        free(c->before[p]);
    }
}

/* Where the slice of a token begins. */
static size_t token_at(const cache_t *c, int p, int64_t token)
{
    return (size_t)(token * c->strides[p][2] * bits_of(c->scheme->type[p]) / 8);
}

/* Ids of the tensors of both graphs; parts of a cache follow each other. */
enum {
    TOKEN = 1,
    SLICE = 2,
    K_CACHE = 11,
    V_CACHE = 21,
    Q = 30,
    SCALE,
    OUT,
    K,
    V,
    SCORES,
    SCALED,
    P
};

/* One token: B H 1 W. */
static void slice_lt(const cache_t *c, int p, sinter_logical_tensor_t *lt)
{
    const sinter_dim_t dims[4] = {BATCH, HEADS, 1, c->width[p]};
    CHECK_THAT(sinter_logical_tensor_init_with_strides(
                   lt, (uint64_t)(SLICE + p), c->scheme->type[p], 4, dims, c->strides[p],
                   sinter_tensor_property_undef) == sinter_success);
}

/* The first tokens, with a dim for the queries that share a head: B H 1 T W. */
static void tokens_lt(const cache_t *c, int p, int first_id, int64_t tokens,
                      sinter_logical_tensor_t *lt)
{
    const sinter_dim_t dims[5] = {BATCH, HEADS, 1, tokens, c->width[p]};
    const sinter_dim_t strides[5] = {c->strides[p][0], c->strides[p][1], c->strides[p][1],
                                     c->strides[p][2], 1};
    CHECK_THAT(sinter_logical_tensor_init_with_strides(
                   lt, (uint64_t)(first_id + p), c->scheme->type[p], 5, dims, strides,
                   sinter_tensor_property_undef) == sinter_success);
}

/* ---- appending ------------------------------------------------------------------------------- */

static orc_attr_t zps_kind_of(const cache_t *c)
{
    const char *kind = c->scheme->zps_kind;
    return (orc_attr_t){.id = sinter_op_attr_zps_kind, .str = kind ? kind : "zero_points"};
}

static node_t append_node(const cache_t *c)
{
    const sinter_dim_t dims[4] = {BATCH, HEADS, 1, D};
    node_t n = {sinter_op_dynamic_quantize, 1, c->n_parts, 3,
                .attrs = {{.id = sinter_op_attr_quantization_kind, .str = c->scheme->kind},
                          {.id = sinter_op_attr_qtype, .str = "per_group"},
                          zps_kind_of(c)}};

    CHECK_THAT(sinter_logical_tensor_init(&n.in[0], TOKEN, sinter_f32, 4, dims,
                                          sinter_tensor_property_undef) == sinter_success);
    for (int p = 0; p < c->n_parts; p++) {
        slice_lt(c, p, &n.out[p]);
    }
    return n;
}

/* Every byte outside of the token's slice is as it was. */
static void check_untouched(const cache_t *c, int64_t token)
{
    for (int p = 0; p < c->n_parts; p++) {
        const size_t bits = (size_t)bits_of(c->scheme->type[p]),
                     row = (size_t)c->width[p] * bits / 8;
        for (size_t b = 0; b < BATCH; b++) {
            for (size_t h = 0; h < HEADS; h++) {
                const size_t at =
                    token_at(c, p, token) +
                    (b * (size_t)c->strides[p][0] + h * (size_t)c->strides[p][1]) * bits / 8;
                memcpy(c->before[p] + at, c->data[p] + at, row);
            }
        }
        CHECK(memcmp(c->before[p], c->data[p], c->bytes[p]) == 0,
              "token %d: part %d of the cache changed elsewhere", (int)token, p);
    }
}

static void append(cache_t *c, const sinter_compiled_partition_t *quantise, const node_t *node,
                   sinter_stream_t *stream, const float *x, int64_t token)
{
    const orc_tensor_t in = {node->in[0], x};
    orc_tensor_t out[N_PARTS];
    char what[64];

    for (int p = 0; p < c->n_parts; p++) {
        out[p] = (orc_tensor_t){node->out[p], c->data[p] + token_at(c, p, token)};
        memcpy(c->before[p], c->data[p], c->bytes[p]);
    }
    node_execute(quantise, stream, &in, 1, out, c->n_parts);
    check_untouched(c, token);
    snprintf(what, sizeof what, "scheme %d, token %d", (int)(c->scheme - schemes), (int)token);
    node_compare(what, node, 1, &in, 1, out, (size_t)c->n_parts);
}

/* ---- attending ------------------------------------------------------------------------------- */

static sinter_logical_tensor_t dense(int id, int64_t rows, int64_t columns)
{
    const sinter_dim_t dims[5] = {BATCH, HEADS, id == K || id == V ? 1 : QUERIES, rows, columns};
    sinter_logical_tensor_t lt;

    CHECK_THAT(sinter_logical_tensor_init(&lt, (uint64_t)id, sinter_f32, 5, dims,
                                          sinter_tensor_property_undef) == sinter_success);
    if (rows == SINTER_UNKNOWN_DIM || columns == SINTER_UNKNOWN_DIM) {
        lt.layout_type = sinter_layout_type_any;
    }
    return lt;
}

static node_t dequantise_node(const cache_t *c, int first_id, int id, int64_t tokens)
{
    node_t n = {sinter_op_dynamic_dequantize, c->n_parts, 1, 2,
                .attrs = {{.id = sinter_op_attr_qtype, .str = "per_group"}, zps_kind_of(c)}};

    for (int p = 0; p < c->n_parts; p++) {
        tokens_lt(c, p, first_id, tokens, &n.in[p]);
    }
    n.out[0] = dense(id, tokens, D);
    return n;
}

/* softmax(Q K' * scale) V */
static void attention_nodes(const cache_t *k, const cache_t *v, int64_t tokens, node_t nodes[6])
{
    static const int64_t last = -1;
    const sinter_dim_t one = 1;
    sinter_logical_tensor_t scale;

    CHECK_THAT(sinter_logical_tensor_init(&scale, SCALE, sinter_f32, 1, &one,
                                          sinter_tensor_property_undef) == sinter_success);
    nodes[0] = dequantise_node(k, K_CACHE, K, tokens);
    nodes[1] = dequantise_node(v, V_CACHE, V, tokens);
    nodes[2] = (node_t){sinter_op_matmul,
                        2,
                        1,
                        1,
                        {dense(Q, 1, D), dense(K, tokens, D)},
                        {dense(SCORES, 1, tokens)},
                        {{.id = sinter_op_attr_transpose_b, .b = 1}}};
    nodes[3] = (node_t){sinter_op_multiply,         2,    1, 0, {dense(SCORES, 1, tokens), scale},
                        {dense(SCALED, 1, tokens)}, {{0}}};
    nodes[4] = (node_t){sinter_op_softmax,
                        1,
                        1,
                        1,
                        {dense(SCALED, 1, tokens)},
                        {dense(P, 1, tokens)},
                        {{.id = sinter_op_attr_axis, .n = 1, .s64 = &last}}};
    nodes[5] = (node_t){sinter_op_matmul,   2,    1, 0, {dense(P, 1, tokens), dense(V, tokens, D)},
                        {dense(OUT, 1, D)}, {{0}}};
}

static void attend(const cache_t *k, const cache_t *v, const sinter_compiled_partition_t *attention,
                   sinter_stream_t *stream, const float *q, int64_t tokens)
{
    static const float scale = 0.125f;
    static float result[BATCH * HEADS * QUERIES * D];
    const cache_t *caches[2] = {k, v};
    node_t nodes[6];
    orc_tensor_t in[2 + 2 * N_PARTS], out;
    int n = 0;
    char what[64];

    attention_nodes(k, v, tokens, nodes);
    in[n++] = (orc_tensor_t){nodes[2].in[0], q};
    in[n++] = (orc_tensor_t){nodes[3].in[1], &scale};
    for (int i = 0; i < 2; i++) {
        for (int p = 0; p < caches[i]->n_parts; p++) {
            in[n++] = (orc_tensor_t){nodes[i].in[p], caches[i]->data[p]};
        }
    }
    out = (orc_tensor_t){nodes[5].out[0], result};
    node_execute(attention, stream, in, n, &out, 1);
    snprintf(what, sizeof what, "scheme %d, attention over %d", (int)(k->scheme - schemes),
             (int)tokens);
    node_compare(what, nodes, 6, in, (size_t)n, &out, 1);
}

/* ---- decoding -------------------------------------------------------------------------------- */

static float noise(void)
{
    static uint64_t state = 1;
    return (float)random_signed(&state);
}

/* Most tokens are noise; some are zero, tiny, or have an outlier. */
static void next_token(float *x, int n, int64_t token)
{
    const float size = token % 10 == 4 ? 0 : token % 10 == 7 ? 0x1p-130f : token % 10 == 9 ? 30 : 1;

    for (int i = 0; i < n; i++) {
        x[i] = noise() * size;
    }
    if (token % 10 == 2) {
        x[token % n] = -100;
    }
}

static void decode(const scheme_t *scheme, sinter_stream_t *stream)
{
    static float x[BATCH * HEADS * D], q[BATCH * HEADS * QUERIES * D];
    cache_t k, v;
    node_t nodes[6];

    cache_open(&k, scheme);
    cache_open(&v, scheme);
    const node_t node = append_node(&k);
    sinter_compiled_partition_t *quantise = node_compiled(&node, 1, "single");
    attention_nodes(&k, &v, SINTER_UNKNOWN_DIM, nodes);
    sinter_compiled_partition_t *attention = node_compiled(nodes, 6, "sdpa");
    for (int64_t token = 0; token < TOKENS && check_failed == 0; token++) {
        next_token(x, BATCH * HEADS * D, token);
        append(&k, quantise, &node, stream, x, token);
        /* Shifted so that the token whose K wins the softmax is not the one with a tiny V: the
         * result would be smaller than the errors that the other tokens' V allow. */
        next_token(x, BATCH * HEADS * D, token + 4);
        append(&v, quantise, &node, stream, x, token);
        next_token(q, BATCH * HEADS * QUERIES * D, 0);
        attend(&k, &v, attention, stream, q, token + 1);
    }
    sinter_compiled_partition_destroy(&attention);
    sinter_compiled_partition_destroy(&quantise);
    cache_close(&k);
    cache_close(&v);
}

int main(int argc, char **argv)
{
    sinter_stream_t *stream = NULL;

    (void)argc;
    wait_passively(argv);
    CHECK_THAT(sinter_stream_create(&stream, NULL, NULL) == sinter_success);
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        decode(&schemes[i], stream);
    }
    sinter_stream_destroy(&stream);
    return check_finish();
}
