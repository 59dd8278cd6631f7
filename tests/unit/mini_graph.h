/* Graphs written by hand, straight into the IR: tensors are made from text ("2x3x?x16"), ops
 * take tensors and give their output's. */
#ifndef SINTER_TESTS_MINI_GRAPH_H
#define SINTER_TESTS_MINI_GRAPH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter.h>

#include "graph/graph.h"
#include "graph/schema.h"

typedef struct mini {
    graph_t g;
    uint64_t n_tensors, n_ops;
    sinter_status_t status; /* the first failure */
} mini_t;

static inline void mini_begin(mini_t *m, sinter_engine_t *engine)
{
    *m = (mini_t){.status = sinter_success};
    graph_init(&m->g, engine);
}

/* dims "" is a scalar, "*" an unknown rank, ? an unknown dim. */
static inline lt_t mini_tensor(mini_t *m, sinter_data_type_t type, const char *dims)
{
    lt_t lt = {.id = m->n_tensors++, .data_type = type};
    if (strcmp(dims, "*") == 0) {
        lt.ndims = SINTER_UNKNOWN_NDIMS;
        return lt;
    }
    while (*dims != '\0') {
        char *end = NULL;
        const long long dim = strtoll(dims, &end, 10);
        lt.dims[lt.ndims++] = *dims == '?' ? SINTER_UNKNOWN_DIM : dim;
        dims = *dims == '?' ? dims + 1 : end;
        dims += *dims == 'x';
    }
    lt.layout_type = sinter_layout_type_any;
    return lt;
}

static inline void mini_add(mini_t *m, sinter_op_kind_t kind, const lt_t *in, int n_in,
                            const lt_t *out, int n_out, const attr_t *attrs, int n_attrs)
{
    struct sinter_op op = {.engine = m->g.engine,
                           .id = m->n_ops++,
                           .kind = kind,
                           .name = "",
                           .n_in = n_in,
                           .n_out = n_out,
                           .n_attrs = n_attrs};
    lt_t ins[4], outs[4];
    attr_t copy[8];
    memcpy(ins, in, sizeof(lt_t) * (size_t)n_in);
    memcpy(outs, out, sizeof(lt_t) * (size_t)n_out);
    if (n_attrs > 0) {
        memcpy(copy, attrs, sizeof(attr_t) * (size_t)n_attrs);
    }
    op.in = ins;
    op.out = outs;
    op.attrs = copy;
    sinter_status_t status = graph_add_node(&m->g, &op);
    if (status != sinter_success && status != sinter_out_of_memory) {
        printf("op %llu: %s\n", (unsigned long long)op.id, sinter_last_error_message());
    }
    m->status = m->status == sinter_success ? status : m->status;
}

static inline lt_t mini_op(mini_t *m, sinter_op_kind_t kind, sinter_data_type_t type,
                           const lt_t *in, int n_in, const attr_t *attrs, int n_attrs)
{
    const lt_t out = mini_tensor(m, type, "*");
    mini_add(m, kind, in, n_in, &out, 1, attrs, n_attrs);
    return out;
}

#define MINI_N(array) ((int)(sizeof(array) / sizeof((array)[0])))
/* OP(m, relu, f32, x), OPA(m, matmul, f32, ATTRS(BOOL(transpose_b, true)), a, b) */
#define OP(m, kind, type, ...)                                         \
    mini_op(m, sinter_op_##kind, sinter_##type, (lt_t[]){__VA_ARGS__}, \
            MINI_N(((lt_t[]){__VA_ARGS__})), NULL, 0)
#define OPA(m, kind, type, attributes, ...)                            \
    mini_op(m, sinter_op_##kind, sinter_##type, (lt_t[]){__VA_ARGS__}, \
            MINI_N(((lt_t[]){__VA_ARGS__})), attributes)
#define ATTRS(...) (attr_t[]){__VA_ARGS__}, MINI_N(((attr_t[]){__VA_ARGS__}))
#define BOOL(name, value)                                 \
    {                                                     \
        .id = sinter_op_attr_##name, .n = 1, .b = (value) \
    }
#define STR(name, value)                                    \
    {                                                       \
        .id = sinter_op_attr_##name, .n = 1, .str = (value) \
    }
#define S64S(name, ...)                                                                       \
    {                                                                                         \
        .id = sinter_op_attr_##name, .n = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
        .s64 = (int64_t[])                                                                    \
        {                                                                                     \
            __VA_ARGS__                                                                       \
        }                                                                                     \
    }
#define F32S(name, ...)                                                                   \
    {                                                                                     \
        .id = sinter_op_attr_##name, .n = sizeof((float[]){__VA_ARGS__}) / sizeof(float), \
        .f32 = (float[])                                                                  \
        {                                                                                 \
            __VA_ARGS__                                                                   \
        }                                                                                 \
    }
#define IN(m, type, dims) mini_tensor(m, sinter_##type, dims)

/* Declares a graph output; tensors that nothing reads become outputs by themselves. */
static inline void mini_output(mini_t *m, lt_t lt)
{
    const int v = graph_find_value(&m->g, lt.id);
    if (v >= 0) {
        m->g.values[v].is_output = true;
    }
}

/* Sorted, shapes inferred. */
static inline sinter_status_t mini_end(mini_t *m)
{
    sinter_status_t status = m->status;
    status = status == sinter_success ? graph_sort(&m->g) : status;
    status = status == sinter_success ? graph_infer_shapes(&m->g) : status;
    for (int v = 0; v < m->g.n_values && status == sinter_success; v++) {
        value_t *value = &m->g.values[v];
        value->is_output = value->is_output || (value->producer >= 0 && value->n_uses == 0);
    }
    return status;
}

/* Counts and fails allocations. */
typedef struct mini_heap {
    long budget, live; /* budget < 0: no limit */
} mini_heap_t;

static inline void *mini_heap_alloc(size_t bytes, size_t alignment, void *user)
{
    mini_heap_t *heap = user;
    void *p = NULL;
    if (heap->budget == 0 || posix_memalign(&p, alignment, bytes) != 0) {
        return NULL;
    }
    heap->budget -= heap->budget > 0;
    heap->live++;
    memset(p, 0xA5, bytes);
    return p;
}

static inline void mini_heap_free(void *ptr, void *user)
{
    ((mini_heap_t *)user)->live--;
    free(ptr);
}

#endif
