/* The Sinter graph that is made of a run of nodes: its ops, and its inputs and outputs with the
 * memory that they are bound to. */
#ifndef SINTER_GGML_GRAPH_H
#define SINTER_GGML_GRAPH_H

#include <sinter/sinter.h>

#include "layout.h"
#include "relaid.h"
#include "tensors.h"

typedef sinter_logical_tensor_t lt_t;

enum { GS_MAX_RANK = 6 };

/* An input, and where an execute finds it: dim i is ne[size_dim[i]] of tensor number size_of[i] of
 * the list; its stride is nb[stride_dim[i]] of tensor number strides_of. A size_dim below 0 is a
 * dim of 1, a stride_dim below 0 a stride of stride[i] elements. */
typedef struct gs_input {
    uint64_t id;
    int tensor; /* in the list; -1: constants of the graph's own */
    int plane;  /* -1: plain elements */
    /* Of a cache in tiles, of which rank is 3: the first dim is the tokens, the others are those of
     * all heads. */
    gs_heads_t heads;
    void *own;      /* f32 or s32 */
    int rank;       /* of constants: how many */
    int strides_of; /* the tensor, or another one that sees its memory with more dims */
    int size_of[GS_MAX_RANK], size_dim[GS_MAX_RANK], stride_dim[GS_MAX_RANK];
    sinter_dim_t stride[GS_MAX_RANK];
    bool keeps_strides; /* they are those of now, whatever dims change */
} gs_input_t;

/* An output, which lies where the tensor does. */
typedef struct gs_output {
    uint64_t id; /* 0: no op writes it yet */
    int tensor;  /* -1: it takes the buffer of an input */
    int rank;
    int dim[GS_MAX_RANK]; /* of the tensor, for each dim of the output */
} gs_output_t;

typedef struct gs_ports {
    gs_input_t *inputs;
    gs_output_t *outputs;
    int n_inputs, n_outputs, inputs_capacity, outputs_capacity;
} gs_ports_t;

/* How the graph represents a tensor of ggml. The Sinter tensor `id` has the dims `dims`. Its
 * elements in row-major order are those of a dense ggml tensor with the dims `ne`; the represented
 * tensor is a permutation of that one, and its dim i is dim perm[i] there. */
typedef struct gs_value {
    bool known;
    uint64_t id;
    sinter_data_type_t type;
    int rank;
    sinter_dim_t dims[GS_MAX_RANK];
    int64_t ne[GGML_MAX_DIMS];
    int perm[GGML_MAX_DIMS];
    const void *begin; /* of rows that SET_ROWS has written */
    bool columns;      /* these are columns: the cells of an element lie side by side */
    uint64_t sorted;   /* of indices that sorting gave: the elements in that order, f32; else 0 */
} gs_value_t;

/* Slots of a cache that has a part for each sequence, as slots within the part, in the graph. */
typedef struct gs_slots {
    uint64_t id; /* 0: none */
    int64_t streams, first, cells, columns;
} gs_slots_t;

/* The graph while it is being built. */
typedef struct gs_builder {
    const gs_tensors_t *tensors;
    sinter_graph_t *graph;
    int first, end; /* the nodes of the graph, as far as is known */
    int node;       /* that is being translated */
    uint64_t ids;
    gs_value_t *values;   /* of each tensor */
    gs_value_t *versions; /* of roots that a node of the graph has written */
    gs_slots_t *slots;    /* of tensors that are slots */
    gs_ports_t ports;
    uint64_t *exact; /* the ops whose nodes ask for f32 */
    int n_exact, exact_capacity;
    char why[256]; /* the node cannot be a part of this graph */
} gs_builder_t;

/* false: out of memory. gs_builder_free is due in either case. */
bool gs_builder_open(gs_builder_t *b, const gs_tensors_t *tensors, int first, int end);
void gs_builder_free(gs_builder_t *b);
/* Compiles the graph; NULL: sinter_last_error_message says why not. */
sinter_compiled_graph_t *gs_builder_compile(gs_builder_t *b);

/* false, and b->why says this. */
bool gs_fail(gs_builder_t *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds an op of these parts. false: b->why says why not. */
bool gs_add_parts(gs_builder_t *b, sinter_op_kind_t kind, int count, const sinter_op_part_t *parts);
/* The same with the parts as arguments. */
#define gs_add(b, kind, ...) \
    gs_added(b, sinter_graph_add((b)->graph, ++(b)->ids, kind, __VA_ARGS__))
bool gs_added(gs_builder_t *b, sinter_status_t status);

/* The op that was added last must be computed in f32: its node has that precision hint. */
bool gs_keep_exact(gs_builder_t *b);

/* A tensor within the graph. */
lt_t gs_inner(gs_builder_t *b, sinter_data_type_t type);
/* y = kind(x, z), of f32, within the graph. */
bool gs_binary(gs_builder_t *b, sinter_op_kind_t kind, const lt_t *x, const lt_t *z, lt_t *y);
/* y = x * factor, the same. */
bool gs_times(gs_builder_t *b, const lt_t *x, float factor, lt_t *y);

/* The type of plain elements; undefined where ggml has blocks. */
sinter_data_type_t gs_plain_type(enum ggml_type type);
/* A dim of a tensor. One that may change is minus its class; Sinter sees it as unknown. */
sinter_dim_t gs_dim(const gs_builder_t *b, const tensor_t *t, int i);
bool gs_has_open(const gs_builder_t *b, const tensor_t *t);

/* The input that is a tensor of memory with its dims in this order. -1 in the order is a dim of 1
 * and stride 0; dims of size 1 may be left out. */
gs_input_t gs_input_in_order(const gs_builder_t *b, const tensor_t *t, int plane, int rank,
                             const int *order);
/* The input that is a plane of a cache in tiles: as many of its first tokens as dim `dim` of `rows`
 * has elements. */
gs_input_t gs_input_of_heads(const gs_builder_t *b, const tensor_t *root, int plane,
                             gs_heads_t heads, const tensor_t *rows, int dim);
/* Takes an input into the graph, unless one that is always the same is there, and describes it. */
bool gs_add_input(gs_builder_t *b, gs_input_t in, lt_t *lt);
/* Constants of the graph's own. */
bool gs_constants(gs_builder_t *b, const float *values, int count, lt_t *lt);
bool gs_integers(gs_builder_t *b, const int32_t *values, int count, lt_t *lt);
bool gs_scalar(gs_builder_t *b, float value, lt_t *lt);
/* The output that lies in the memory of a node, or NULL. */
gs_output_t *gs_output_of(const gs_builder_t *b, int node);
bool gs_add_output(gs_builder_t *b, uint64_t id, int tensor);

/* Binds all ports to the memory of the tensors. */
sinter_status_t gs_ports_bind(const gs_ports_t *ports, sinter_compiled_graph_t *graph,
                              const gs_tensors_t *tensors, gs_caches_t *caches);
/* Takes over what the host has written into inputs that have its blocks: before each execute. */
void gs_ports_refresh(const gs_ports_t *ports, const gs_tensors_t *tensors, gs_caches_t *caches);
/* Drops the inputs for which the compiled graph has no port, because it does not read them. */
void gs_ports_drop_dead(gs_ports_t *ports, sinter_compiled_graph_t *graph);
void gs_ports_free(gs_ports_t *ports);

#endif
