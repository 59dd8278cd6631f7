/* The graph IR: order, uses, verifier, extracting, JSON and text. */
#include <time.h>

#include "base/idmap.h"
#include "check.h"
#include "graph/graph.h"
#include "spec.h"

/* ---- building the IR itself ------------------------------------------------------------------ */

static sinter_status_t add_text(graph_t *g, uint64_t id, sinter_op_kind_t kind,
                                const char *const *in, int n_in, const char *const *out, int n_out)
{
    sinter_op_t *op = NULL;
    sinter_op_create(&op, NULL, id, kind, "a \"name\"\n");
    for (int i = 0; i < n_in + n_out; i++) {
        sinter_logical_tensor_t lt = spec_tensor(i < n_in ? in[i] : out[i - n_in]);
        i < n_in ? sinter_op_add_input(op, &lt) : sinter_op_add_output(op, &lt);
    }
    sinter_status_t status = graph_add_node(g, op);
    sinter_op_destroy(&op);
    return status;
}

static void add_unary(graph_t *g, uint64_t id, const char *in, const char *out)
{
    CHECK(add_text(g, id, sinter_op_abs, &in, 1, &out, 1) == sinter_success, "%s",
          sinter_last_error_message());
}

static void add_binary(graph_t *g, uint64_t id, const char *a, const char *b, const char *out)
{
    CHECK(add_text(g, id, sinter_op_add, (const char *const[]){a, b}, 2, &out, 1) == sinter_success,
          "%s", sinter_last_error_message());
}

static void check_sort(void)
{
    graph_t g;
    graph_init(&g, NULL);
    add_unary(&g, 30, "3:f32:2", "4:f32:2"); /* behind its producer 10 */
    add_unary(&g, 10, "1:f32:2", "3:f32:2");
    add_unary(&g, 20, "1:f32:2", "5:f32:2");
    add_binary(&g, 40, "4:f32:2", "4:f32:2", "6:f32:2");
    add_binary(&g, 50, "6:f32:2", "5:f32:2", "7:f32:2");
    CHECK(graph_sort(&g) == sinter_success && graph_n_live(&g) == 5, "sort");
    static const uint64_t order[] = {10, 30, 20, 40, 50};
    for (int i = 0; i < 5; i++) {
        CHECK(g.nodes[g.topo[i]].id == order[i], "place %d is op %llu", i,
              (unsigned long long)g.nodes[g.topo[i]].id);
    }
    int v4 = graph_find_value(&g, 4), v1 = graph_find_value(&g, 1);
    CHECK(g.values[v4].n_uses == 2 && g.values[v1].n_uses == 2 && g.values[v1].producer == -1,
          "uses");
    CHECK(g.uses_begin[v4 + 1] - g.uses_begin[v4] == 2 &&
              g.nodes[g.uses[g.uses_begin[v4]]].id == 40,
          "uses of tensor 4");
    CHECK(g.nodes[g.values[v4].producer].id == 30 && g.values[v4].producer_port == 0,
          "producer of tensor 4");
    CHECK(graph_verify(&g, "test") == sinter_success, "%s", sinter_last_error_message());

    /* dead nodes leave the order, the uses and the producers */
    g.nodes[idmap_get(g.op_ids, 50)].dead = true;
    CHECK(graph_verify(&g, "test") == sinter_invalid_graph, "a change without sorting is noticed");
    CHECK(graph_sort(&g) == sinter_success && graph_n_live(&g) == 4, "sort without op 50");
    CHECK(g.values[graph_find_value(&g, 6)].n_uses == 0 &&
              g.values[graph_find_value(&g, 7)].producer == -1,
          "uses without op 50");
    CHECK(graph_verify(&g, "test") == sinter_success, "%s", sinter_last_error_message());
    graph_free(&g);
}

static void check_verifier(void)
{
    graph_t g;
    graph_init(&g, NULL);
    add_unary(&g, 1, "1:f32:2", "2:f32:2");
    add_unary(&g, 2, "2:f32:2", "3:f32:2");
    CHECK(graph_verify(&g, "here") == sinter_invalid_graph, "unsorted");
    CHECK(graph_sort(&g) == sinter_success && graph_verify(&g, "here") == sinter_success, "sorted");
    int saved = g.nodes[1].in[0];
    g.nodes[1].in[0] = 99;
    CHECK(graph_verify(&g, "here") == sinter_invalid_graph &&
              strstr(sinter_last_error_message(), "here: op 2 (Abs)"),
          "index out of range");
    g.nodes[1].in[0] = graph_find_value(&g, 1);
    CHECK(graph_verify(&g, "here") == sinter_invalid_graph, "use counts");
    g.nodes[1].in[0] = saved;
    g.nodes[1].out[0] = graph_find_value(&g, 2);
    CHECK(graph_verify(&g, "here") == sinter_invalid_graph, "two producers");
    g.nodes[1].out[0] = graph_find_value(&g, 3);
    g.values[graph_find_value(&g, 3)].lt.data_type = sinter_s8;
    CHECK(graph_verify(&g, "here") == sinter_invalid_data_type, "data type");
    g.values[graph_find_value(&g, 3)].lt.data_type = sinter_f32;
    g.nodes[1].n_in = 0;
    CHECK(graph_verify(&g, "here") == sinter_invalid_graph_op, "arity");
    g.nodes[1].n_in = 1;
    int first = g.topo[0];
    g.topo[0] = g.topo[1];
    g.topo[1] = first;
    CHECK(graph_verify(&g, "here") == sinter_invalid_graph, "order");
    graph_free(&g);
}

/* Values that passes add have ids of their own, also where users took ids from 2^63 up. */
static void check_inner_values(void)
{
    graph_t g;
    graph_init(&g, NULL);
    add_unary(&g, 1, "9223372036854775809:f32:2", "18446744073709551615:f32:2");
    lt_t lt = g.values[0].lt;
    for (int i = 0; i < 10; i++) {
        int v = graph_add_value(&g, &lt);
        CHECK(v == 2 + i && graph_find_value(&g, g.values[v].lt.id) == v, "inner value %d", i);
    }
    CHECK(graph_find_value(&g, UINT64_MAX) == 1, "largest id");
    CHECK(graph_sort(&g) == sinter_success && graph_verify(&g, "test") == sinter_success, "%s",
          sinter_last_error_message());
    graph_free(&g);
}

static void check_extract(void)
{
    graph_t g, part;
    graph_init(&g, NULL);
    graph_init(&part, NULL);
    add_unary(&g, 1, "1:f32:2", "2:f32:2");
    add_binary(&g, 2, "2:f32:2", "9:f32:2", "3:f32:2");
    add_unary(&g, 3, "3:f32:2", "4:f32:2");
    add_binary(&g, 4, "4:f32:2", "2:f32:2", "5:f32:2");
    CHECK(graph_sort(&g) == sinter_success, "sort");
    g.values[graph_find_value(&g, 5)].is_output = true;
    g.nodes[1].role = "anchor";
    CHECK(graph_extract(&g, (const int[]){1, 2}, 2, &part) == sinter_success, "%s",
          sinter_last_error_message());
    CHECK(part.n_nodes == 2 && part.n_values == 4 && graph_n_live(&part) == 2, "sizes");
    CHECK(part.nodes[0].role != NULL && strcmp(part.nodes[0].role, "anchor") == 0 &&
              part.nodes[1].role == NULL,
          "roles");
    static const struct {
        uint64_t id;
        int producer;
        bool is_output;
    } want[] = {{2, -1, false}, {9, -1, false}, {3, 0, false}, {4, 1, true}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        int v = graph_find_value(&part, want[i].id);
        CHECK(v >= 0 && part.values[v].producer == want[i].producer &&
                  part.values[v].is_output == want[i].is_output,
              "tensor %llu", (unsigned long long)want[i].id);
    }
    graph_free(&g); /* the copy stands alone */
    CHECK(strcmp(part.nodes[1].name, "a \"name\"\n") == 0 &&
              graph_verify(&part, "part") == sinter_success,
          "%s", sinter_last_error_message());
    graph_free(&part);
}

/* ---- size ------------------------------------------------------------------------------------ */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A chain added back to front, so that every op comes before its producer: the hardest order for
 * what is quadratic. */
static void check_long_chain(void)
{
    enum { N = 100000 };
    sinter_graph_t *graph = NULL;
    sinter_op_t *op = NULL;
    sinter_logical_tensor_t lt = spec_tensor("0:f32:2x3");
    double start = seconds();
    sinter_graph_create(&graph, NULL, sinter_cpu);
    bool added = true;
    for (int i = N - 1; i >= 0 && added; i--) {
        sinter_op_create(&op, NULL, (uint64_t)i, i % 2 ? sinter_op_relu : sinter_op_add, NULL);
        lt.id = (uint64_t)i;
        sinter_op_add_input(op, &lt);
        if (i % 2 == 0) {
            lt.id = 1000000 + (uint64_t)i;
            sinter_op_add_input(op, &lt);
        }
        lt.id = (uint64_t)i + 1;
        sinter_op_add_output(op, &lt);
        added = sinter_graph_add_op(graph, op) == sinter_success;
        sinter_op_destroy(&op);
    }
    CHECK(added, "%s", sinter_last_error_message());
    uint64_t last = N, *inputs = malloc(sizeof *inputs * N);
    size_t n_inputs = 0;
    inputs[n_inputs++] = 0;
    for (uint64_t i = 0; i < N; i += 2) {
        inputs[n_inputs++] = 1000000 + i;
    }
    CHECK(sinter_graph_set_ports(graph, n_inputs, inputs, 1, &last) == sinter_success, "ports");
    CHECK(sinter_graph_finalize(graph) == sinter_success, "%s", sinter_last_error_message());
    double took = seconds() - start;
    printf("10^5 ops added and finalized in %.3f s\n", took);
    CHECK(took < 20, "%.1f s for 10^5 ops is not near-linear",
          took); /* quadratic would take minutes; the rest is for slow sanitized machines */
    free(inputs);
    sinter_graph_destroy(&graph);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 16);
    if (f != NULL) {
        size_t n = fread(text, 1, (1 << 16) - 1, f);
        text[n] = '\0';
        fclose(f);
    }
    return text;
}

static void check_json(void)
{
    static const char *const want[] = {
        "\"version\": \"",
        "\"engine_kind\": \"cpu\",\n  \"fpmath_mode\": \"bf16\",\n  \"fpmath_mode_apply_to_int\": "
        "\"true\",\n",
        "\"input_ports\": [1, 18446744073709551615],\n  \"output_ports\": [3],\n  \"graph\": [",
        "\"id\": 9007199254740993,\n      \"name\": \"Clamp\",\n      \"kind\": \"Clamp\"",
        "\"min\": {\"type\": \"f32\", \"value\": 0.1}",
        "\"max\": {\"type\": \"f32\", \"value\": 16777216}",
        "\"axis\": {\"type\": \"s64\", \"value\": -1}",
        "\"mode\": {\"type\": \"string\", \"value\": \"inf_as_zero\"}",
        "\"transpose_b\": {\"type\": \"bool\", \"value\": 1}",
        "\"order\": {\"type\": \"s64[]\", \"value\": [1, 0]}",
        "\"scales\": {\"type\": \"f32[]\", \"value\": [0.5]}",
        "{\"id\": 18446744073709551615, \"dtype\": \"f32\", \"shape\": [3, 2], \"stride\": [2, 1], "
        "\"layout_type\": \"strided\", \"property_type\": "
        "\"undef\"}",
    };
    const char *path = "test_graph_dump.json";
    sinter_graph_t *graph;
    sinter_status_t status =
        spec_graph(&graph, NULL,
                   "#9007199254740993 Clamp min=0.1 max=16777216 1:f32:2x3 -> 5:f32:2x3; "
                   "StaticTranspose order=1,0 "
                   "18446744073709551615:f32:3x2 -> 6:f32:2x3; MatMul transpose_b=1 5:f32:2x3 "
                   "6:f32:2x3 -> 7:f32:*; SoftMax axis=-1 "
                   "mode=inf_as_zero 7:f32:* -> 8:f32:*; Quantize scales=0.5 8:f32:* -> 3:u8:*");
    CHECK(status == sinter_success, "%s", sinter_last_error_message());
    sinter_graph_set_fpmath_mode(graph, sinter_fpmath_mode_bf16, 1);
    CHECK(sinter_graph_dump(graph, path) == sinter_success, "%s", sinter_last_error_message());
    char *text = read_file(path);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        CHECK(strstr(text, want[i]) != NULL, "the dump lacks %s", want[i]);
    }
    free(text);
    remove(path);
    CHECK(sinter_graph_dump(graph, "no/such/directory/x.json") == sinter_runtime_error,
          "a path that cannot be written");
    sinter_graph_destroy(&graph);
}

int main(void)
{
    check_sort();
    check_verifier();
    check_inner_values();
    check_extract();
    check_long_chain();
    check_json();
    return check_finish();
}
