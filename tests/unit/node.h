/* Ops that both the library, through its API, and the oracle run. */
#ifndef SINTER_TESTS_NODE_H
#define SINTER_TESTS_NODE_H

#include <stdint.h>
#include <string.h>

#include <sinter/sinter.h>

#include "check.h"
#include "oracle.h"

enum { NODE_MAX_OUTPUTS = 3 };

/* An op as the library and as the oracle take it. */
typedef struct node {
    sinter_op_kind_t kind;
    int n_in, n_out, n_attrs;
    sinter_logical_tensor_t in[3], out[3];
    orc_attr_t attrs[5];
} node_t;

static inline void node_add(sinter_graph_t *graph, const node_t *n, uint64_t id)
{
    sinter_op_t *op = NULL;

    CHECK_THAT(sinter_op_create(&op, NULL, id, n->kind, NULL) == sinter_success);
    for (int i = 0; i < n->n_in; i++) {
        CHECK_THAT(sinter_op_add_input(op, &n->in[i]) == sinter_success);
    }
    for (int i = 0; i < n->n_out; i++) {
        CHECK_THAT(sinter_op_add_output(op, &n->out[i]) == sinter_success);
    }
    for (int i = 0; i < n->n_attrs; i++) {
        const orc_attr_t *a = &n->attrs[i];
        if (a->str) {
            CHECK_THAT(sinter_op_set_attr_str(op, a->id, a->str) == sinter_success);
        } else if (a->s64) {
            CHECK_THAT(sinter_op_set_attr_s64(op, a->id, a->s64, a->n) == sinter_success);
        } else if (a->f32) {
            CHECK_THAT(sinter_op_set_attr_f32(op, a->id, a->f32, a->n) == sinter_success);
        } else {
            CHECK_THAT(sinter_op_set_attr_bool(op, a->id, a->b) == sinter_success);
        }
    }
    CHECK_THAT(sinter_graph_add_op(graph, op) == sinter_success);
    sinter_op_destroy(&op);
}

/* The only partition of n nodes, which must have this pattern; mode: its fpmath mode, for integers,
 * too. */
static inline sinter_compiled_partition_t *
node_compiled_as(const node_t *nodes, int n, const char *pattern, sinter_fpmath_mode_t mode)
{
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partition = NULL;
    sinter_compiled_partition_t *result = NULL;
    const char *name = "";
    size_t count = 0;

    CHECK_THAT(sinter_graph_create(&graph, NULL, sinter_cpu) == sinter_success);
    for (int i = 0; i < n; i++) {
        node_add(graph, &nodes[i], (uint64_t)i);
    }
    CHECK_THAT(sinter_graph_finalize(graph) == sinter_success);
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partition_num(graph, &count) == sinter_success);
    CHECK(count == 1, "%zu partitions", count);
    CHECK_THAT(sinter_graph_get_partitions(graph, 1, &partition) == sinter_success);
    CHECK_THAT(sinter_partition_get_pattern(partition, &name) == sinter_success);
    CHECK(strcmp(name, pattern) == 0, "pattern %s, not %s", name, pattern);
    CHECK_THAT(sinter_partition_set_fpmath_mode(partition, mode, 1) == sinter_success);
    CHECK_THAT(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &result) ==
               sinter_success);
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
    return result;
}

static inline sinter_compiled_partition_t *node_compiled(const node_t *nodes, int n,
                                                         const char *pattern)
{
    return node_compiled_as(nodes, n, pattern, sinter_fpmath_mode_strict);
}

/* Some ops with what they read and write. */
typedef struct node_case {
    const node_t *nodes;
    int n;
    sinter_fpmath_mode_t mode; /* for integers, too */
    const orc_tensor_t *in, *out;
    size_t n_in, n_out;
} node_case_t;

/* Runs the oracle and compares the outputs. */
static inline void node_compare_case(const char *what, const node_case_t *c)
{
    enum { MOST_OPS = 64 };
    const node_t *nodes = c->nodes;
    const orc_tensor_t *out = c->out;
    const size_t n_out = c->n_out;
    orc_op_t ops[MOST_OPS];
    orc_graph_t graph = {(size_t)c->n, ops, c->mode, c->mode != sinter_fpmath_mode_strict};
    orc_result_t results[NODE_MAX_OUTPUTS];
    uint64_t ids[NODE_MAX_OUTPUTS];
    orc_diff_t diff;
    char err[300] = "";

    for (int i = 0; i < c->n; i++) {
        ops[i] = (orc_op_t){(uint64_t)i,
                            nodes[i].kind,
                            (size_t)nodes[i].n_attrs,
                            (size_t)nodes[i].n_in,
                            (size_t)nodes[i].n_out,
                            nodes[i].attrs,
                            nodes[i].in,
                            nodes[i].out};
    }
    for (size_t i = 0; i < n_out; i++) {
        ids[i] = out[i].lt.id;
    }
    const int failed = orc_run(&graph, c->n_in, c->in, n_out, ids, results, err, sizeof err);
    CHECK(!failed, "%s: %s", what, err);
    for (size_t i = 0; !failed && i < n_out; i++) {
        const int wrong = orc_compare(&results[i], &out[i].lt, out[i].data, &diff);
        CHECK(!wrong, "%s, output %zu: %s", what, i, orc_diff_text(&diff, err, sizeof err));
        orc_result_free(&results[i]);
    }
}

/* The same for few words, in strict mode. */
static inline void node_compare(const char *what, const node_t *nodes, int n,
                                const orc_tensor_t *in, size_t n_in, const orc_tensor_t *out,
                                size_t n_out)
{
    const node_case_t c = {
        .nodes = nodes, .n = n, .in = in, .out = out, .n_in = n_in, .n_out = n_out};
    node_compare_case(what, &c);
}

static inline void node_execute(const sinter_compiled_partition_t *what, sinter_stream_t *stream,
                                const orc_tensor_t *in, int n_in, const orc_tensor_t *out,
                                int n_out)
{
    sinter_tensor_t *t[16];

    for (int i = 0; i < n_in + n_out; i++) {
        const orc_tensor_t *from = i < n_in ? &in[i] : &out[i - n_in];
        CHECK_THAT(sinter_tensor_create(&t[i], NULL, &from->lt, (void *)(uintptr_t)from->data,
                                        SINTER_BYTES_TRUSTED) == sinter_success);
    }
    CHECK_THAT(sinter_compiled_partition_execute(what, stream, (size_t)n_in,
                                                 (const sinter_tensor_t *const *)t, (size_t)n_out,
                                                 t + n_in, NULL, 0) == sinter_success);
    for (int i = 0; i < n_in + n_out; i++) {
        sinter_tensor_destroy(&t[i]);
    }
}

#endif
