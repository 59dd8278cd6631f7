/* Opaque layouts in graphs: a Reorder packs and unpacks, ops that do not read tiles read what is
 * unpacked for them, and the report says so. All results are those of the oracle, which knows
 * strides alone. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "e2e.h"
#include "ops_text.h"

enum {
    CODES = sinter_weights_codes,
    VALUES = sinter_weights_values,
    BLOCKS = sinter_weights_codes_blocks
};

#define CONSTANT(id, type, shape)                                                             \
    "{\"id\": " #id ", \"dtype\": \"" #type "\", \"shape\": [" shape "], \"property_type\": " \
    "\"constant\"}"
#define BY_GROUP ATTR("qtype", "string", "\"per_group\"")
#define TRANSPOSE_B ATTR("transpose_b", "bool", "1")

static sinter_stream_t *stream;

static void *take(size_t bytes)
{
    void *p = malloc(bytes + 1);
    if (p == NULL) {
        abort();
    }
    return p;
}

static size_t bytes_of(const sinter_logical_tensor_t *lt)
{
    size_t bytes = 0;
    CHECK_THAT(sinter_logical_tensor_get_bytes(lt, &bytes) == sinter_success);
    return bytes;
}

static void fails(int line, sinter_status_t got, sinter_status_t want, const char *words)
{
    const char *message = sinter_last_error_message();
    check_at(got == want && strstr(message, words) != NULL, line,
             "%s, not %s: \"%s\" has no \"%s\"", sinter_status_name(got), sinter_status_name(want),
             message, words);
}
#define FAILS(call, status, words) fails(__LINE__, call, sinter_##status, words)

/* A tensor that lies in tiles. */
typedef struct tiles {
    uint64_t id;
    int part, transposed, bits;
} tiles_t;

enum { MOST_TILES = 8 };

/* A graph, which of its tensors lie in tiles, and what the reports say about it. */
typedef struct graph_case {
    const char *ops;
    tiles_t tiles[MOST_TILES]; /* up to the first one of id 0 behind the first */
    const char *words;
} graph_case_t;

static const tiles_t *tiles_of(const graph_case_t *c, uint64_t id)
{
    for (int i = 0; i < MOST_TILES && (i == 0 || c->tiles[i].id != 0); i++) {
        if (c->tiles[i].id == id) {
            return &c->tiles[i];
        }
    }
    return NULL;
}

static sinter_logical_tensor_t tiled(sinter_logical_tensor_t lt, const tiles_t *t)
{
    CHECK_THAT(sinter_logical_tensor_set_weights_layout(&lt, (sinter_weights_part_t)t->part,
                                                        t->bits, t->transposed) == sinter_success);
    return lt;
}

static void tile_model(model_t *model, const graph_case_t *c)
{
    for (size_t i = 0; i < model->n_uses; i++) {
        sinter_logical_tensor_t *lt = model_at(model, &model->uses[i]);
        const tiles_t *t = tiles_of(c, lt->id);
        *lt = t != NULL ? tiled(*lt, t) : *lt;
    }
}

/* ---- a graph as a whole ---------------------------------------------------------------------- */

/* Ports as the library has them: those in tiles beside the strided ones of the oracle. */
typedef struct run {
    const graph_case_t *c;
    model_t model; /* strided */
    e2e_ports_t ports;
    sinter_tensor_t *in[E2E_MAX_PORTS], *out[E2E_MAX_PORTS];
    unsigned char *in_data[E2E_MAX_PORTS], *out_data[E2E_MAX_PORTS];
} run_t;

/* The tensor as the library has it. */
static sinter_tensor_t *own(const run_t *r, sinter_tensor_t *strided,
                            const sinter_logical_tensor_t *lt, unsigned char **data)
{
    const tiles_t *t = tiles_of(r->c, lt->id);
    sinter_tensor_t *tensor = strided;
    *data = NULL;
    if (t != NULL) {
        const sinter_logical_tensor_t tiles = tiled(*lt, t);
        *data = take(bytes_of(&tiles));
        memset(*data, 0xFF, bytes_of(&tiles));
        CHECK_THAT(!sinter_tensor_create(&tensor, NULL, &tiles, *data, bytes_of(&tiles)));
    }
    return tensor;
}

static void open_run(run_t *r, const graph_case_t *c, uint64_t seed)
{
    r->c = c;
    load_text(&r->model, c->ops);
    e2e_ports_make(&r->ports, &r->model, NULL, seed, 0);
    for (size_t i = 0; i < r->ports.n_in; i++) {
        r->in[i] = own(r, r->ports.in[i], &r->ports.in_lt[i], &r->in_data[i]);
        CHECK_THAT(r->in_data[i] == NULL || !sinter_reorder(r->ports.in[i], r->in[i]));
    }
    for (size_t i = 0; i < r->ports.n_out; i++) {
        r->out[i] = own(r, r->ports.out[i], &r->ports.out_lt[i], &r->out_data[i]);
    }
}

static void close_run(run_t *r)
{
    for (size_t i = 0; i < r->ports.n_in + r->ports.n_out; i++) {
        const bool out = i >= r->ports.n_in;
        const size_t at = out ? i - r->ports.n_in : i;
        unsigned char *data = out ? r->out_data[at] : r->in_data[at];
        if (data != NULL) {
            sinter_tensor_destroy(out ? &r->out[at] : &r->in[at]);
            free(data);
        }
    }
    e2e_ports_free(&r->ports);
    model_free(&r->model);
}

static void poison(run_t *r)
{
    for (size_t i = 0; i < r->ports.n_out; i++) {
        memset(r->ports.out_data[i], 0xFF, bytes_of(&r->ports.out_lt[i]));
    }
}

/* Whether the outputs are the oracle's; those in tiles are unpacked first. */
static bool results_are_right(run_t *r)
{
    bool ok = true;
    for (size_t i = 0; i < r->ports.n_out; i++) {
        ok = (r->out_data[i] == NULL || !sinter_reorder(r->out[i], r->ports.out[i])) && ok;
    }
    return ok && e2e_compare(&r->model, &r->ports, sinter_fpmath_mode_strict, 0) == 0;
}

static sinter_status_t bind(sinter_compiled_graph_t *whole, const sinter_tensor_t *tensor)
{
    sinter_logical_tensor_t lt;
    void *data = NULL;
    CHECK_THAT(!sinter_tensor_get_logical_tensor(tensor, &lt) &&
               !sinter_tensor_get_data(tensor, &data));
    return sinter_compiled_graph_bind(whole, lt.id, 0, NULL, NULL, data, bytes_of(&lt));
}

static sinter_status_t run_whole(sinter_compiled_graph_t *whole, run_t *r)
{
    sinter_status_t status = sinter_success;
    poison(r);
    for (size_t i = 0; i < r->ports.n_in && !status; i++) {
        status = bind(whole, r->in[i]);
    }
    for (size_t i = 0; i < r->ports.n_out && !status; i++) {
        status = bind(whole, r->out[i]);
    }
    return status ? status : sinter_compiled_graph_execute(whole, stream);
}

static sinter_status_t compile_whole(const graph_case_t *c, sinter_engine_t *engine,
                                     sinter_partition_policy_t policy,
                                     sinter_compiled_graph_t **whole)
{
    model_t given;
    gr_error_t err = {{0}, 0};
    sinter_graph_t *graph = NULL;
    load_text(&given, c->ops);
    tile_model(&given, c);
    sinter_status_t status = sinter_invalid_graph;
    if (CHECK(model_build(&given, engine, &graph, &err) == 0, "%s", err.text)) {
        status = sinter_graph_filter(graph, policy);
        status = status ? status : sinter_graph_compile(graph, engine, 0, NULL, whole);
    }
    sinter_graph_destroy(&graph);
    model_free(&given);
    return status;
}

/* Some partition's report has these words. */
static bool reports_say(const sinter_compiled_graph_t *whole, const char *words)
{
    sinter_compiled_partition_t *parts[8];
    size_t n = 0;
    bool found = false;
    if (!CHECK_THAT(!sinter_compiled_graph_get_partition_num(whole, &n) && n <= 8 &&
                    !sinter_compiled_graph_get_partitions(whole, n, NULL, parts))) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const char *text = "";
        found =
            (!sinter_compiled_partition_report(parts[i], &text) && strstr(text, words)) || found;
    }
    for (size_t i = 0; i < n && !found; i++) {
        const char *text = "";
        (void)sinter_compiled_partition_report(parts[i], &text);
        fprintf(stderr, "%s", text);
    }
    return found;
}

static void check_case(const graph_case_t *c)
{
    static const sinter_partition_policy_t policies[] = {sinter_partition_policy_fusion,
                                                         sinter_partition_policy_debug};
    const long before = check_failed;
    for (int p = 0; p < 2; p++) {
        sinter_compiled_graph_t *whole = NULL;
        if (!CHECK(compile_whole(c, NULL, policies[p], &whole) == sinter_success, "compile, %s",
                   p ? "ops alone" : "fused")) {
            continue;
        }
        for (uint64_t seed = 1; seed <= 2; seed++) {
            run_t r;
            open_run(&r, c, seed);
            CHECK(run_whole(whole, &r) == sinter_success && results_are_right(&r), "%s",
                  p ? "ops alone" : "fused");
            close_run(&r);
        }
        CHECK(p == 1 || c->words == NULL || reports_say(whole, c->words), "no \"%s\"", c->words);
        sinter_compiled_graph_destroy(&whole);
    }
    if (check_failed > before) {
        fprintf(stderr, "  %s\n", c->ops);
    }
}

/* ---- ops that do not read tiles -------------------------------------------------------------- */

#define UNPACKS(id, bytes) "unpacks tensor " #id " from tiles of " #bytes " bytes, which op "
#define DEQUANTISED(codes, scales, to)                                                   \
    OP(1, DynamicDequantize, BY_GROUP, T(0, codes, "32, 16") ", " T(1, scales, "1, 16"), \
       T(2, to, "32, 16"))
#define PRODUCT_OF_2 \
    OP(2, MatMul, "", T(3, f32, "8, 32") ", " T(2, f32, "32, 16"), T(4, f32, "8, 16"))

/* Attention with `s` query rows for each of two heads, over codes with groups of 32 elements. */
#define CODES_OF(id, codes, scales, to)                                 \
    OP(id, DynamicDequantize, BY_GROUP,                                 \
       T(codes, s8, "1, 2, 48, 64") ", " T(scales, f16, "1, 2, 48, 2"), \
       T(to, f32, "1, 2, 48, 64"))
#define PRODUCTS(s, k, v)                                                                   \
    OP(2, MatMul, TRANSPOSE_B, T(1, f32, "1, 2, " s ", 64") ", " T(k, f32, "1, 2, 48, 64"), \
       T(21, f32, "1, 2, " s ", 48"))                                                       \
    ", " OP(3, SoftMax, ATTR("axis", "s64", "-1"), T(21, f32, "1, 2, " s ", 48"),           \
            T(22, f32, "1, 2, " s ", 48")) ", " OP(4, MatMul, "",                           \
                                                   T(22, f32, "1, 2, " s ", 48") ", " T(    \
                                                       v, f32, "1, 2, 48, 64"),             \
                                                   T(24, f32, "1, 2, " s ", 64"))
#define ATTENTION(s) CODES_OF(5, 10, 11, 20) ", " CODES_OF(6, 12, 13, 23) ", " PRODUCTS(s, 20, 23)
/* Three tokens more in a part of the cache. */
#define APPEND(id, type, width, from, new, to)                                           \
    OP(id, ScatterRows, ATTR("axis", "s64", "2"),                                        \
       T(from, type, "1, 2, 48, " width) ", " T(40, s32, "3") ", " T(new, type,          \
                                                                     "1, 2, 3, " width), \
       T(to, type, "1, 2, 48, " width))
#define APPENDS                                                           \
    APPEND(7, s8, "64", 30, 41, 10)                                       \
    ", " APPEND(8, f16, "2", 31, 42, 11) ", " APPEND(9, s8, "64", 32, 43, \
                                                     12) ", " APPEND(10, f16, "2", 33, 44, 13)

static const graph_case_t readers[] = {
    /* Caches of attention, which it reads, or which are unpacked for it; tokens are written first.
     */
    {ATTENTION("4"),
     {{10, CODES, 1, 0}, {11, VALUES, 1, 0}, {12, BLOCKS, 0, 0}, {13, VALUES, 1, 0}},
     "reads tensor 12 in tiles, as it was given"},
    {ATTENTION("40"),
     {{10, CODES, 1, 0}, {11, VALUES, 1, 0}, {12, BLOCKS, 0, 0}, {13, VALUES, 1, 0}},
     "unpacked from tiles, "},
    {ATTENTION("4"), {{12, BLOCKS, 0, 0}, {13, VALUES, 1, 0}}, "attention_flash_f32_"},
    {ATTENTION("4"), {{12, BLOCKS, 0, 0}, {11, VALUES, 1, 0}}, "unpacks tensor 12 from tiles"},
    {ATTENTION("4"), {{10, CODES, 0, 0}, {11, VALUES, 1, 0}}, "unpacks tensor 10 from tiles"},
    {ATTENTION("4"), {{10, BLOCKS, 1, 0}, {11, VALUES, 1, 0}}, "unpacks tensor 10 from tiles"},
    {PRODUCTS("4", 10, 12), {{10, CODES, 1, 0}, {12, BLOCKS, 0, 0}}, "reads tensor 10 in tiles"},
    {PRODUCTS("4", 10, 12), {{10, CODES, 1, 0}, {12, CODES, 0, 0}}, "unpacks tensor 12 from tiles"},
    {APPENDS ", " ATTENTION("4"),
     {{10, CODES, 1, 0},
      {11, VALUES, 1, 0},
      {12, BLOCKS, 0, 0},
      {13, VALUES, 1, 0},
      {30, CODES, 1, 0},
      {31, VALUES, 1, 0},
      {32, BLOCKS, 0, 0},
      {33, VALUES, 1, 0}},
     "reads tensor 12 in tiles, as it was given"},
    {OP(1, ReLU, "", T(0, f32, "32, 16"), T(1, f32, "32, 16")),
     {{0, VALUES, 0, 0}},
     UNPACKS(0, 2048) "1 (ReLU) does not read: at every execute, because it is not constant"},
    {OP(1, ReLU, "", T(0, f32, "33, 17"), T(1, f32, "33, 17")),
     {{0, VALUES, 1, 0}},
     UNPACKS(0, 3264)},
    {OP(1, Add, "", T(1, f32, "32, 16") ", " T(0, f32, "32, 16"), T(2, f32, "32, 16")),
     {{0, VALUES, 0, 0}, {1, VALUES, 1, 0}},
     UNPACKS(0, 2048) "1 (Add)"},
    /* Read twice, unpacked once. */
    {OP(1, Multiply, "", T(1, f32, "32, 16") ", " T(1, f32, "32, 16"), T(2, f32, "32, 16")),
     {{1, VALUES, 0, 0}},
     UNPACKS(1, 2048) "1 (Multiply)"},
    {OP(1, TypeCast, "", T(0, f16, "32, 16"), T(1, f32, "32, 16")), {{0, VALUES, 0, 0}}, NULL},
    {OP(1, SoftMax, "", T(0, f32, "32, 16"), T(1, f32, "32, 16")), {{0, VALUES, 0, 0}}, NULL},
    {OP(1, ReduceSum, ATTR("axes", "s64[]", "[0]"), T(0, f32, "32, 16"), T(1, f32, "16")),
     {{0, VALUES, 0, 0}},
     NULL},
    {OP(1, Concat, ATTR("axis", "s64", "0"), T(0, f32, "32, 16") ", " T(1, f32, "32, 16"),
        T(2, f32, "64, 16")),
     {{0, VALUES, 0, 0}},
     NULL},
    {OP(1, MatMul, "", T(0, f32, "32, 16") ", " T(1, f32, "16, 8"), T(2, f32, "32, 8")),
     {{0, VALUES, 0, 0}},
     NULL},
    {OP(1, MatMul, "", T(1, f32, "8, 32") ", " T(0, f32, "32, 16"), T(2, f32, "8, 16")),
     {{0, VALUES, 0, 0}},
     UNPACKS(0, 2048) "1 (MatMul)"},
    {OP(1, MatMul, "", T(1, f32, "8, 32") ", " T(2, f32, "32, 16") ", " T(4, f32, "16"),
        T(3, f32, "8, 16")),
     {{4, VALUES, 0, 0}},
     NULL},
    {OP(1, MatMul, "", T(1, f32, "8, 32") ", " T(2, f32, "32, 16"), T(3, f32, "8, 16")) ", " OP(
         2, Multiply, "", T(3, f32, "8, 16") ", " T(5, f32, "8, 16"), T(4, f32, "8, 16")),
     {{5, VALUES, 0, 0}},
     NULL},
    {OP(1, Dequantize, ATTR("scales", "f32[]", "[0.5]") ", " ATTR("zps", "s64[]", "[0]"),
        T(0, s8, "32, 16"), T(1, f32, "32, 16")),
     {{0, CODES, 0, 0}},
     NULL},
    /* Scales in attributes are no tensors, so that they cannot have the layout. */
    {OP(1, Dequantize, ATTR("scales", "f32[]", "[0.5]") ", " ATTR("zps", "s64[]", "[0]"),
        T(0, s8, "32, 16"),
        T(1, f32, "32, 16")) ", " OP(2, MatMul, "", T(2, f32, "8, 32") ", " T(1, f32, "32, 16"),
                                     T(3, f32, "8, 16")),
     {{0, CODES, 0, 0}},
     UNPACKS(0, 512) "2 (MatMul)"},
    {OP(1, DynamicQuantize, "", T(1, f32, "32, 16") ", " T(2, f32, "1"), T(3, s8, "32, 16")),
     {{2, VALUES, 0, 0}},
     NULL},
    {OP(1, StaticTranspose, ATTR("order", "s64[]", "[1, 0]"), T(0, s4, "33, 17"),
        T(1, s4, "17, 33")),
     {{0, CODES, 0, 0}},
     UNPACKS(0, 1024) "1 (StaticTranspose)"},
    {OP(1, StaticTranspose, ATTR("order", "s64[]", "[1, 0]"), T(0, f32, "32, 16"),
        T(1, f32, "16, 32")) ", " OP(2, ReLU, "", T(1, f32, "16, 32"), T(2, f32, "16, 32")),
     {{0, VALUES, 0, 0}},
     NULL},
    {OP(1, StaticReshape, ATTR("shape", "s64[]", "[8, 64]") ", " ATTR("special_zero", "bool", "0"),
        T(0, f32, "32, 16"),
        T(1, f32, "8, 64")) ", " OP(2, ReLU, "", T(1, f32, "8, 64"), T(2, f32, "8, 64")),
     {{0, VALUES, 0, 0}},
     NULL},
    {OP(1, StaticReshape, ATTR("shape", "s64[]", "[8, 64]") ", " ATTR("special_zero", "bool", "0"),
        T(0, f32, "32, 16"), T(1, f32, "8, 64")),
     {{0, VALUES, 0, 0}},
     NULL},
    {OP(1, Slice,
        ATTR("starts", "s64[]", "[4]") ", " ATTR("ends", "s64[]", "[20]") ", " ATTR(
            "axes", "s64[]", "[0]") ", " ATTR("steps", "s64[]", "[2]"),
        T(0, f32, "32, 16"), T(1, f32, "8, 16")),
     {{0, VALUES, 0, 0}},
     NULL},
    {OP(1, Gather, "", T(0, f32, "32, 16") ", " T(1, s32, "5"), T(2, f32, "5, 16")),
     {{0, VALUES, 0, 0}},
     NULL},
    /* Its op alone, and all parts but one. */
    {DEQUANTISED(s8, f16, f32), {{0, CODES, 0, 0}, {1, VALUES, 0, 0}}, UNPACKS(0, 512)},
    {DEQUANTISED(s8, f16, f32) ", " PRODUCT_OF_2, {{0, CODES, 0, 0}}, UNPACKS(0, 512) "2 (MatMul)"},
    {DEQUANTISED(s8, f16, f32) ", " PRODUCT_OF_2, {{1, VALUES, 0, 0}}, UNPACKS(1, 32) "2 (MatMul)"},
    /* The layouts of another orientation, or of another part. */
    {DEQUANTISED(s8, f16, f32) ", " PRODUCT_OF_2,
     {{0, CODES, 1, 0}, {1, VALUES, 1, 0}},
     UNPACKS(0, 1024) "2 (MatMul)"},
    {DEQUANTISED(s8, f16, f32) ", " PRODUCT_OF_2,
     {{0, VALUES, 0, 0}, {1, VALUES, 0, 0}},
     UNPACKS(0, 512) "2 (MatMul)"},
    /* The scales are read by another op, too: it alone has them unpacked. */
    {DEQUANTISED(s8, f32, f32) ", " PRODUCT_OF_2
                               ", " OP(3, Square, "", T(1, f32, "1, 16"), T(5, f32, "1, 16")),
     {{0, CODES, 0, 0}, {1, VALUES, 0, 0}},
     UNPACKS(1, 64) "3 (Square)"},
    /* An embedding table that is the weight of the output, too. */
    {OP(1, Gather, "", T(0, s8, "40, 32") ", " T(6, s32, "5"), T(7, s8, "5, 32")) ", " OP(
         2, DynamicDequantize, BY_GROUP, T(0, s8, "40, 32") ", " T(1, f32, "40, 1"),
         T(2, f32, "40, 32")) ", " OP(3, MatMul, TRANSPOSE_B,
                                      T(3, f32, "8, 32") ", " T(2, f32, "40, 32"),
                                      T(4, f32, "8, 40")),
     {{0, CODES, 1, 0}, {1, VALUES, 1, 0}},
     "takes rows of tensor 0 from its tiles"},
    /* A quantised table, of rows that begin within a byte; rows along K; rows of other tensors. */
    {OP(1, Gather, "", T(0, u4, "40, 33") ", " T(6, s32, "2, 9"), T(7, u4, "2, 9, 33")) ", " OP(
         2, Gather, ATTR("axis", "s64", "-2"), T(1, f16, "40, 1") ", " T(6, s32, "2, 9"),
         T(8, f16, "2, 9, 1")) ", " OP(3, DynamicDequantize, BY_GROUP,
                                       T(7, u4, "2, 9, 33") ", " T(8, f16, "2, 9, 1"),
                                       T(2, f32, "2, 9, 33")),
     {{0, CODES, 1, 0}, {1, VALUES, 1, 0}},
     "takes rows of tensor 1 from its tiles"},
    {OP(1, Gather, "", T(0, f32, "300, 40") ", " T(6, s64, "70"), T(7, f32, "70, 40")),
     {{0, VALUES, 1, 0}},
     "takes rows of tensor 0 from its tiles"},
    /* Plain floats: read as they are, for another transpose_b, by an op without tiles, and as a
     * table that is the weight of the output, too. */
    {OP(1, MatMul, "", T(1, f32, "8, 32") ", " T(0, bf16, "32, 16"), T(2, f32, "8, 16")),
     {{0, CODES, 0, 0}},
     "reads tensor 0 in tiles, as it was given"},
    {OP(1, MatMul, "", T(1, f32, "8, 32") ", " T(0, f32, "32, 16"), T(2, f32, "8, 16")),
     {{0, CODES, 1, 0}},
     UNPACKS(0, 4096) "1 (MatMul)"},
    {OP(1, ReLU, "", T(0, f16, "33, 17"), T(1, f16, "33, 17")),
     {{0, CODES, 1, 0}},
     UNPACKS(0, 3072)},
    {OP(1, Gather, "", T(0, f16, "40, 33") ", " T(6, s32, "5"), T(7, f16, "5, 33")) ", " OP(
         2, MatMul, TRANSPOSE_B, T(3, f32, "8, 33") ", " T(0, f16, "40, 33"), T(4, f32, "8, 40")),
     {{0, CODES, 1, 0}},
     "takes rows of tensor 0 from its tiles"},
    {OP(1, Gather, ATTR("axis", "s64", "1"), T(0, s8, "40, 33") ", " T(6, s32, "9"),
        T(7, s8, "40, 9")),
     {{0, CODES, 1, 0}},
     UNPACKS(0, 3072) "1 (Gather)"},
    {OP(1, Gather, "", T(0, f32, "40") ", " T(6, s32, "9"), T(7, f32, "9")),
     {{0, VALUES, 1, 0}},
     UNPACKS(0, 192) "1 (Gather)"},
};

/* Weights that a view shows with other dims: the report names the product, not what passes have
 * made of the view. */
static void test_behind_view(void)
{
    static const graph_case_t view = {
        DEQUANTISED(s8, f32, f32) ", " OP(
            2, StaticReshape,
            ATTR("shape", "s64[]", "[1, 32, 16]") ", " ATTR("special_zero", "bool", "0"),
            T(2, f32, "32, 16"),
            T(6, f32, "1, 32, 16")) ", " OP(3, MatMul, "",
                                            T(3, f32, "8, 32") ", " T(6, f32, "1, 32, 16"),
                                            T(4, f32, "1, 8, 16")),
        {{0, CODES, 0, 0}, {1, VALUES, 0, 0}},
        UNPACKS(0, 512) "3 (MatMul) does not read"};
    check_case(&view);
}

/* Two products of the same weights read them as they are. */
static void test_two_products(void)
{
    static const graph_case_t both = {
        DEQUANTISED(s8, f32, f32) ", " PRODUCT_OF_2 ", " OP(
            3, DynamicDequantize, BY_GROUP, T(0, s8, "32, 16") ", " T(1, f32, "1, 16"),
            T(5, f32, "32, 16")) ", " OP(4, MatMul, "", T(6, f32, "4, 32") ", " T(5, f32, "32, 16"),
                                         T(7, f32, "4, 16")),
        {{0, CODES, 0, 0}, {1, VALUES, 0, 0}},
        "reads tensor 0 in tiles, as it was given"};
    sinter_compiled_graph_t *whole = NULL;
    check_case(&both);
    CHECK_THAT(!compile_whole(&both, NULL, sinter_partition_policy_fusion, &whole));
    CHECK(!reports_say(whole, "unpacks"), "weights that MatMuls alone read are unpacked");
    sinter_compiled_graph_destroy(&whole);
}

/* Constants are unpacked once, unless the cache has no room. */
static void test_constants(void)
{
    static const graph_case_t table = {
        OP(1, Gather, ATTR("axis", "s64", "1"), CONSTANT(0, f16, "33, 17") ", " T(1, s32, "5"),
           T(2, f16, "33, 5")) ", " OP(2, Multiply, "",
                                       T(2, f16, "33, 5") ", " CONSTANT(3, f16, "1"),
                                       T(4, f16, "33, 5")),
        {{0, VALUES, 1, 0}, {3, VALUES, 0, 0}},
        "which op 1 (Gather) does not read: it is constant, so once, into the constant cache"};
    for (int room = 0; room < 2; room++) {
        sinter_engine_t *engine = NULL;
        sinter_compiled_graph_t *whole = NULL;
        sinter_constant_cache_stats_t stats = {.size = sizeof stats};
        run_t r;
        CHECK_THAT(!sinter_engine_create(&engine, NULL) &&
                   (room || !sinter_engine_set_constant_cache_budget(engine, 0)) &&
                   !compile_whole(&table, engine, sinter_partition_policy_fusion, &whole));
        CHECK_THAT(reports_say(whole, table.words));
        open_run(&r, &table, 1);
        for (int i = 0; i < 3; i++) {
            CHECK_THAT(!run_whole(whole, &r) && results_are_right(&r));
        }
        CHECK_THAT(!sinter_engine_get_constant_cache_stats(engine, &stats));
        CHECK(stats.entries == (room ? 1 : 0), "%zu copies", (size_t)stats.entries);
        close_run(&r);
        sinter_compiled_graph_destroy(&whole);
        sinter_engine_destroy(&engine);
    }
}

/* ---- layout any ------------------------------------------------------------------------------ */

/* A graph of whose inputs some have layout any, what compile makes of these (part, or -1: strides)
 * where there are kernels for few rows and tiles, and what the report says there. */
typedef struct any_case {
    const char *ops;
    int n;
    struct {
        uint64_t id;
        int part, transposed;
    } any[MOST_TILES];
    const char *words;
} any_case_t;

static const any_case_t any_cases[] = {
    /* Caches of attention: codes and floats; a part with strides; many rows, which unpack. */
    {ATTENTION("4"),
     4,
     {{10, CODES, 1}, {11, VALUES, 1}, {12, BLOCKS, 0}, {13, VALUES, 1}},
     "wants tensor 12, whose layout may be any, in tiles: layout 32\n"},
    {PRODUCTS("16", 10, 12), 2, {{10, CODES, 1}, {12, BLOCKS, 0}}, NULL},
    {ATTENTION("4"),
     3,
     {{10, -1, 0}, {12, -1, 0}, {13, -1, 0}},
     "wants tensor 10, whose layout may be any, with strides: all tensors of its operand must lie "
     "in tiles, and tensor 11 has strides"},
    {ATTENTION("40"),
     4,
     {{10, -1, 0}, {11, -1, 0}, {12, -1, 0}, {13, -1, 0}},
     "wants tensor 13, whose layout may be any, with strides: attention_flash_f32_"},
    {DEQUANTISED(s8, f16, f32) ", " PRODUCT_OF_2,
     2,
     {{0, CODES, 0}, {1, VALUES, 0}},
     "wants tensor 0, whose layout may be any, in tiles: layout 2\n"},
    /* A constant makes no copy. */
    {OP(1, DynamicDequantize, BY_GROUP,
        CONSTANT(0, u4, "48, 64") ", " CONSTANT(1, f32, "48, 2") ", " CONSTANT(5, u4, "48, 2"),
        T(2, f32, "48, 64")) ", " OP(2, MatMul, TRANSPOSE_B,
                                     T(3, f32, "3, 64") ", " T(2, f32, "48, 64"),
                                     T(4, f32, "3, 48")),
     3,
     {{0, CODES, 1}, {1, VALUES, 1}, {5, VALUES, 1}},
     "reads tensor 5 in tiles, as it was given"},
    /* Scales of scales. */
    {OP(1, DynamicDequantize, BY_GROUP, T(1, u8, "32, 8") ", " T(6, f16, "32, 1"),
        T(7, f32, "32, 8")) ", " OP(2, DynamicDequantize, BY_GROUP,
                                    T(0, u4, "32, 256") ", " T(7, f32, "32, 8"),
                                    T(2, f32, "32, 256")) ", " OP(3, MatMul, TRANSPOSE_B,
                                                                  T(3, f32, "2, 256") ", " T(
                                                                      2, f32, "32, 256"),
                                                                  T(4, f32, "2, 32")),
     3,
     {{0, CODES, 1}, {1, VALUES, 1}, {6, VALUES, 1}},
     NULL},
    /* One part has strides. */
    {DEQUANTISED(s8, f16, f32) ", " PRODUCT_OF_2,
     1,
     {{0, -1, 0}},
     "wants tensor 0, whose layout may be any, with strides: all tensors of its operand must lie "
     "in tiles, and tensor 1 has strides"},
    /* Many rows; a float that is no weight. */
    {OP(1, DynamicDequantize, BY_GROUP, T(0, s8, "32, 16") ", " T(1, f32, "1, 16"),
        T(2, f32, "32, 16")) ", " OP(2, MatMul, "", T(3, f32, "80, 32") ", " T(2, f32, "32, 16"),
                                     T(4, f32, "80, 16")),
     3,
     {{0, CODES, 0}, {1, VALUES, 0}, {3, -1, 0}},
     NULL},
    /* Groups that tiles have, but kernels of few rows do not read. */
    {OP(1, DynamicDequantize, BY_GROUP, T(0, s8, "32, 16") ", " T(1, f32, "4, 16"),
        T(2, f32, "32, 16")) ", " PRODUCT_OF_2,
     2,
     {{0, -1, 0}, {1, -1, 0}},
     "wants tensor 1, whose layout may be any, with strides: "},
    /* Another op reads the scales, in the partition and in one of its own. */
    {DEQUANTISED(s8, f32, f32) ", " PRODUCT_OF_2
                               ", " OP(3, Square, "", T(1, f32, "1, 16"), T(5, f32, "1, 16")),
     2,
     {{0, -1, 0}, {1, -1, 0}},
     "does not read it in these tiles"},
    {OP(1, Gather, "", T(0, s8, "40, 32") ", " T(6, s32, "5"), T(7, s8, "5, 32")) ", " OP(
         2, DynamicDequantize, BY_GROUP, T(0, s8, "40, 32") ", " T(1, f32, "40, 1"),
         T(2, f32, "40, 32")) ", " OP(3, MatMul, TRANSPOSE_B,
                                      T(3, f32, "8, 32") ", " T(2, f32, "40, 32"),
                                      T(4, f32, "8, 40")),
     2,
     {{0, -1, 0}, {1, -1, 0}},
     "wants tensor 1, whose layout may be any, with strides: all tensors of its operand must lie "
     "in tiles, and tensor 0 does not"},
    {DEQUANTISED(s8, f32, f32) ", " PRODUCT_OF_2 ", " OP(
         3, Add, "", T(4, f32, "8, 16") ", " T(1, f32, "1, 16"), T(5, f32, "8, 16")),
     2,
     {{0, -1, 0}, {1, -1, 0}},
     "wants tensor 1, whose layout may be any, with strides: op "},
};

static bool has_tiles(void)
{
    const sinter_cpu_isa_t isa = sinter_engine_get_isa(NULL);
    return isa != sinter_isa_generic;
}

static void check_any(const any_case_t *a)
{
    graph_case_t c = {.ops = a->ops, .tiles = {{UINT64_MAX, 0, 0}}};
    model_t model;
    gr_error_t err = {{0}, 0};
    sinter_graph_t *graph = NULL;
    sinter_compiled_graph_t *whole = NULL;
    const long before = check_failed;
    load_text(&model, a->ops);
    for (size_t i = 0; i < model.n_uses; i++) {
        sinter_logical_tensor_t *lt = model_at(&model, &model.uses[i]);
        for (int k = 0; k < a->n; k++) {
            lt->layout_type = lt->id == a->any[k].id ? sinter_layout_type_any : lt->layout_type;
        }
    }
    if (CHECK(!model_build(&model, NULL, &graph, &err), "%s", err.text) &&
        CHECK_THAT(!sinter_graph_compile(graph, NULL, 0, NULL, &whole))) {
        for (int k = 0, n = 0; k < a->n; k++) {
            sinter_logical_tensor_t got, want;
            CHECK_THAT(!sinter_compiled_graph_query_logical_tensor(whole, a->any[k].id, &got));
            const bool opaque = a->any[k].part >= 0 && has_tiles();
            CHECK((got.layout_type == sinter_layout_type_opaque) == opaque,
                  "tensor %llu: layout %d", (unsigned long long)a->any[k].id, (int)got.layout_type);
            if (opaque) {
                c.tiles[n] = (tiles_t){a->any[k].id, a->any[k].part, a->any[k].transposed, 0};
                want = tiled(got, &c.tiles[n++]);
                CHECK(want.layout_id == got.layout_id && bytes_of(&want) == bytes_of(&got),
                      "tensor %llu: layout_id %llu", (unsigned long long)got.id,
                      (unsigned long long)got.layout_id);
            }
        }
        CHECK(a->words == NULL || !has_tiles() || reports_say(whole, a->words), "no \"%s\"",
              a->words);
        run_t r;
        open_run(&r, &c, 1);
        CHECK_THAT(!run_whole(whole, &r) && results_are_right(&r));
        close_run(&r);
    }
    sinter_compiled_graph_destroy(&whole);
    sinter_graph_destroy(&graph);
    model_free(&model);
    if (check_failed > before) {
        fprintf(stderr, "  %s\n", a->ops);
    }
}

/* ---- Reorder --------------------------------------------------------------------------------- */

#define REORDER(type, shape) OP(1, Reorder, "", T(1, type, shape), T(2, type, shape))

static const graph_case_t reorders[] = {
    {REORDER(s8, "40, 35"), {{2, CODES, 0, 0}}, "packs tensor 1 into tiles"},
    {REORDER(s8, "40, 35"), {{1, CODES, 0, 0}}, "unpacks tensor 1 from tiles\n"},
    {REORDER(s4, "41, 35"), {{2, CODES, 1, 0}}, NULL},
    {REORDER(s4, "41, 35"), {{1, CODES, 1, 0}}, NULL},
    {REORDER(u4, "41, 35"), {{1, CODES, 0, 0}}, NULL}, /* strips share bytes */
    {REORDER(f4_e2m1, "1, 64, 48"), {{2, CODES, 0, 0}}, NULL},
    {REORDER(u2, "5, 37"), {{2, VALUES, 0, 0}}, NULL},
    {REORDER(u2, "5, 37"), {{1, VALUES, 0, 0}}, NULL},
    {REORDER(e8m0, "70, 3"), {{2, VALUES, 1, 0}}, NULL},
    {REORDER(f32, "19"), {{2, VALUES, 1, 0}}, NULL},
    {REORDER(f32, "19"), {{1, VALUES, 0, 0}}, NULL},
    {REORDER(bf16, "0, 16"), {{2, VALUES, 0, 0}}, NULL},
    /* From one layout to another. */
    {REORDER(u8, "40, 35"), {{1, CODES, 0, 0}, {2, CODES, 1, 0}}, "packs tensor 1 into tiles"},
    /* Weights that the graph packs itself, between partitions; and an output in tiles that an op of
     * the graph reads. */
    {OP(1, Reorder, "", T(1, u4, "96, 33"), T(2, u4, "96, 33")) ", " OP(
         2, Reorder, "", T(3, f16, "3, 33"),
         T(4, f16, "3, 33")) ", " OP(3, DynamicDequantize, BY_GROUP,
                                     T(2, u4, "96, 33") ", " T(4, f16, "3, 33"),
                                     T(5, f32, "96, 33")) ", " OP(4, MatMul, "",
                                                                  T(6, f32, "4, 96") ", " T(
                                                                      5, f32, "96, 33"),
                                                                  T(7, f32, "4, 33")),
     {{2, CODES, 0, 0}, {4, VALUES, 0, 0}},
     "reads tensor 2 in tiles"},
    {OP(1, Square, "", T(1, f32, "20, 33"), T(2, f32, "20, 33")) ", " OP(
         2, Reorder, "", T(2, f32, "20, 33"),
         T(3, f32, "20, 33")) ", " OP(3, ReLU, "", T(3, f32, "20, 33"), T(4, f32, "20, 33")),
     {{3, VALUES, 0, 0}},
     "unpacks tensor 3"},
};

/* Layouts that compile alone learns of: ports of a partition of several ops. */
static void test_compile(void)
{
    static const graph_case_t c = {
        OP(1, Reorder, "", T(1, f32, "20, 33"), T(2, f32, "20, 33")) ", " OP(
            2, TypeCast, "", T(2, f32, "20, 33"),
            T(3, bf16, "20, 33")) ", " OP(3, Reorder, "", T(3, bf16, "20, 33"),
                                          T(4, bf16, "20, 33")),
        {{1, VALUES, 0, 0}, {4, VALUES, 1, 0}},
        NULL};
    run_t r;
    sinter_compiled_partition_t *compiled = NULL;
    sinter_logical_tensor_t in, out, got;
    open_run(&r, &c, 1);
    sinter_partition_t *partition = e2e_partition(&r.model, NULL);
    CHECK_THAT(!sinter_tensor_get_logical_tensor(r.in[0], &in) &&
               !sinter_tensor_get_logical_tensor(r.out[0], &out));
    if (CHECK_THAT(!sinter_partition_compile(partition, NULL, 1, &in, 1, &out, &compiled))) {
        CHECK_THAT(!sinter_compiled_partition_query_logical_tensor(compiled, 4, &got) &&
                   got.layout_type == sinter_layout_type_opaque && got.layout_id == out.layout_id &&
                   bytes_of(&got) == bytes_of(&out));
        CHECK_THAT(!sinter_compiled_partition_infer_outputs(compiled, 0, NULL, 1, &got) &&
                   got.layout_type == sinter_layout_type_opaque && got.layout_id == out.layout_id);
        poison(&r);
        CHECK_THAT(!sinter_compiled_partition_execute(compiled, stream, 1,
                                                      (const sinter_tensor_t *const *)r.in, 1,
                                                      r.out, NULL, 0) &&
                   results_are_right(&r));
        FAILS(sinter_compiled_partition_execute(compiled, stream, 1,
                                                (const sinter_tensor_t *const *)r.in, 1,
                                                r.ports.out, NULL, 0),
              invalid_arguments, "tensor 4 has another layout than it was compiled for: an opaque");
        sinter_tensor_t *inside = NULL;
        CHECK_THAT(!sinter_tensor_create(&inside, NULL, &out, r.in_data[0], bytes_of(&in)));
        FAILS(sinter_compiled_partition_execute(
                  compiled, stream, 1, (const sinter_tensor_t *const *)r.in, 1, &inside, NULL, 0),
              invalid_arguments, "output tensor 4 overlaps input tensor 1");
        sinter_tensor_destroy(&inside);
    }
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&partition);
    close_run(&r);
}

/* Codes that a layout has no bits for are an error of the execute, before anything is written. */
static void test_six_bits(void)
{
    static const graph_case_t c = {
        REORDER(s8, "70, 35"), {{2, CODES, 1, 6}}, "packs tensor 1 into tiles"};
    sinter_compiled_graph_t *whole = NULL;
    run_t r;
    CHECK_THAT(!compile_whole(&c, NULL, sinter_partition_policy_fusion, &whole));
    open_run(&r, &c, 1);
    int8_t *codes = (int8_t *)r.ports.in_data[0];
    for (int i = 0; i < 70 * 35; i++) {
        codes[i] = (int8_t)(codes[i] & 63) - 32;
    }
    CHECK_THAT(!run_whole(whole, &r) && results_are_right(&r));
    const int wrong[] = {0, 34, 35 * 69 + 34, 35 * 33};
    for (int i = 0; i < 4; i++) {
        const int8_t before = codes[wrong[i]];
        codes[wrong[i]] = i % 2 ? 32 : -33;
        memset(r.out_data[0], 0x11, 64);
        FAILS(run_whole(whole, &r), invalid_arguments,
              "Reorder: tensor 1 has codes that do not fit the bits that the layout of tensor 2");
        CHECK_THAT(r.out_data[0][0] == 0x11);
        codes[wrong[i]] = before;
    }
    close_run(&r);
    sinter_compiled_graph_destroy(&whole);
    /* Such codes must not come from the same partition. */
    static const graph_case_t made = {
        OP(1, Quantize, ATTR("scales", "f32[]", "[0.5]") ", " ATTR("zps", "s64[]", "[0]"),
           T(1, f32, "70, 35"),
           T(2, s8, "70, 35")) ", " OP(2, Reorder, "", T(2, s8, "70, 35"), T(4, s8, "70, 35")),
        {{4, CODES, 1, 6}},
        NULL};
    model_t model;
    sinter_compiled_partition_t *compiled = NULL;
    load_text(&model, made.ops);
    sinter_partition_t *partition = e2e_partition(&model, NULL);
    const sinter_logical_tensor_t out = tiled(model.ops[1].outputs[0], &made.tiles[0]);
    FAILS(sinter_partition_compile(partition, NULL, 0, NULL, 1, &out, &compiled), unimplemented,
          "tensor 2, whose codes must fit fewer bits, is computed in the same partition");
    sinter_partition_destroy(&partition);
    model_free(&model);
}

int main(void)
{
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = 2, .all_threads = 1};
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        check_case(&readers[i]);
    }
    for (size_t i = 0; i < sizeof reorders / sizeof *reorders; i++) {
        check_case(&reorders[i]);
    }
    for (size_t i = 0; i < sizeof any_cases / sizeof *any_cases; i++) {
        check_any(&any_cases[i]);
    }
    test_behind_view();
    test_two_products();
    test_constants();
    test_compile();
    test_six_bits();
    sinter_stream_destroy(&stream);
    return check_finish();
}
