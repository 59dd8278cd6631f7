/* Whole graphs as one partition, past the partitioner: compiled, looked into, executed and
 * compared with the oracle. For tests of the lowering. */
#ifndef SINTER_TESTS_PLAN_RIG_H
#define SINTER_TESTS_PLAN_RIG_H

#include "api/compile_with.h"
#include "mini_graph.h"
#include "oracle.h"
#include "passive.h"

enum { PLAN_PORTS = 32, PLAN_OPS = 64 };

typedef struct planned {
    mini_t *m;
    sinter_partition_t part;
    int in[PLAN_PORTS], out[PLAN_PORTS]; /* values of m->g */
    sinter_compiled_partition_t *cp;
} planned_t;

/* The ended graph as a partition of one family. */
static inline void planned_part(planned_t *p, mini_t *m, family_t family, sinter_fpmath_mode_t mode,
                                bool apply_to_int)
{
    *p = (planned_t){.m = m};
    p->part = (sinter_partition_t){.engine = m->g.engine,
                                   .pattern = "test",
                                   .family = family,
                                   .sub = m->g,
                                   .inputs = p->in,
                                   .outputs = p->out,
                                   .supported = true};
    partition_set_fpmath(&p->part, mode, apply_to_int);
    for (int v = 0; v < m->g.n_values; v++) {
        const value_t *value = &m->g.values[v];
        if (value->producer < 0) {
            p->in[p->part.n_inputs++] = v;
        } else if (value->is_output) {
            p->out[p->part.n_outputs++] = v;
        }
    }
}

/* Through the passes and the lowering; ports: what the caller knows now. */
static inline sinter_status_t planned_compile(planned_t *p, const compile_ports_t *ports)
{
    arena_t arena;
    arena_init(&arena, p->part.engine);
    const sinter_status_t status =
        compile_with(&p->part, p->part.engine, ports, &(strided_inputs_t){.arena = &arena}, &p->cp);
    arena_free(&arena);
    return status;
}

static inline void planned_free(planned_t *p)
{
    if (p->cp != NULL) {
        compiled_unref(p->cp);
    }
    graph_free(&p->m->g);
}

/* Ends the graph and compiles it as it is. */
static inline sinter_status_t planned(planned_t *p, mini_t *m, family_t family)
{
    sinter_status_t status = mini_end(m);
    planned_part(p, m, family, sinter_fpmath_mode_strict, false);
    return status == sinter_success ? planned_compile(p, &(compile_ports_t){0}) : status;
}

/* "matmul softmax chain": the kinds of the steps in order; ", else ...": those of the fallback. */
static inline const char *planned_steps(const planned_t *p, char *text, size_t size)
{
    static const char *const names[STEP_KINDS] = {
#define SINTER_STEP(kind, name, driver) [STEP_##kind] = #name,
#include "backend_xsmm/steps.def"
    };
    text[0] = '\0';
    for (int i = 0; p->cp != NULL && i < 2; i++) {
        const plan_t *plan = i == 0 ? &p->cp->plan : p->cp->fallback;
        for (int s = 0; plan != NULL && s < plan->n_steps; s++) {
            const size_t len = strlen(text);
            snprintf(text + len, size - len, "%s%s",
                     s > 0   ? " "
                     : i > 0 ? ", else "
                             : "",
                     names[plan->steps[s].kind]);
        }
    }
    return text;
}

/* ---- execute --------------------------------------------------------------------------------- */

enum { PLAN_GUARD = 64 };

typedef struct plan_buffers {
    lt_t lt[PLAN_PORTS];
    unsigned char *data[PLAN_PORTS]; /* PLAN_GUARD bytes in front of the tensor and behind it */
    size_t bytes[PLAN_PORTS];
    sinter_tensor_t *tensor[PLAN_PORTS];
    int n;
} plan_buffers_t;

static inline void plan_buffer(plan_buffers_t *b, const lt_t *lt, unsigned char poison)
{
    const int i = b->n++;
    b->lt[i] = *lt;
    if (!lt_strides_known(&b->lt[i])) {
        lt_set_dense(&b->lt[i]);
    }
    if (lt_bytes(&b->lt[i], &b->bytes[i]) != sinter_success) {
        printf("plan_buffer: %s\n", sinter_last_error_message());
        exit(1);
    }
    b->data[i] = malloc(b->bytes[i] + 2 * PLAN_GUARD);
    memset(b->data[i], poison, b->bytes[i] + 2 * PLAN_GUARD);
    sinter_tensor_create(&b->tensor[i], NULL, &b->lt[i], b->data[i] + PLAN_GUARD, b->bytes[i]);
}

static inline void plan_buffers_free(plan_buffers_t *b)
{
    for (int i = 0; i < b->n; i++) {
        sinter_tensor_destroy(&b->tensor[i]);
        free(b->data[i]);
    }
}

static inline bool plan_guarded(const plan_buffers_t *b, unsigned char poison)
{
    bool ok = true;
    for (int i = 0; i < b->n; i++) {
        for (size_t k = 0; k < PLAN_GUARD; k++) {
            ok =
                ok && b->data[i][k] == poison && b->data[i][PLAN_GUARD + b->bytes[i] + k] == poison;
        }
    }
    return ok;
}

/* The oracle's outputs of a graph whose dims are known; 0 or -1 with err filled. */
static inline int plan_oracle(const graph_t *g, sinter_fpmath_mode_t mode, bool apply_to_int,
                              const plan_buffers_t *in, size_t n_out, const uint64_t *ids,
                              orc_result_t *want, char *err, size_t err_size)
{
    static lt_t ports[PLAN_OPS][8];
    static orc_attr_t attrs[PLAN_OPS][8];
    static orc_op_t ops[PLAN_OPS];
    orc_tensor_t tensors[PLAN_PORTS];
    for (int i = 0; i < g->n_nodes; i++) {
        const node_t *n = &g->nodes[i];
        ops[i] = (orc_op_t){.id = n->id,
                            .kind = n->kind,
                            .n_attrs = (size_t)n->n_attrs,
                            .n_inputs = (size_t)n->n_in,
                            .n_outputs = (size_t)n->n_out,
                            .attrs = attrs[i],
                            .inputs = ports[i],
                            .outputs = ports[i] + n->n_in};
        for (int k = 0; k < n->n_in + n->n_out; k++) {
            ports[i][k] = g->values[k < n->n_in ? n->in[k] : n->out[k - n->n_in]].lt;
        }
        for (int k = 0; k < n->n_attrs; k++) {
            const attr_t *a = &n->attrs[k];
            attrs[i][k] = (orc_attr_t){
                .id = a->id, .n = a->n, .s64 = a->s64, .f32 = a->f32, .str = a->str, .b = a->b};
        }
    }
    for (int i = 0; i < in->n; i++) {
        tensors[i] = (orc_tensor_t){in->lt[i], in->data[i] + PLAN_GUARD};
    }
    const orc_graph_t graph = {
        .n_ops = (size_t)g->n_nodes, .ops = ops, .mode = mode, .apply_to_int = apply_to_int};
    return orc_run(&graph, (size_t)in->n, tensors, n_out, ids, want, err, err_size);
}

#endif
