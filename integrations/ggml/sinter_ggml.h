/* What the files of the ggml backend share. See README.md for how it works. */
#ifndef SINTER_GGML_H
#define SINTER_GGML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sinter/sinter.h>

#include "ggml-backend-impl.h"
#include "ggml-impl.h"

/* Where SINTER_VERBOSE lists dispatch, these print on stderr: a reason, the first time that it
 * occurs, with the node that it is about; and at the end how often each has occurred, and what was
 * compiled. */
void sg_say_reason(const char *node, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sg_say_counts(uint64_t compiled, uint64_t reused);

/* ---- layout.c: quantised tensors in our buffers ---------------------------------------------- */

/* ggml mixes scales and codes in blocks. In a buffer of ours such a tensor is planes instead: the
 * codes of all rows, then the scales, the offsets, and what else the way back needs. They are then
 * ordinary tensors. */
enum { SG_CODES, SG_SCALES, SG_OFFSETS, SG_KEPT, SG_PLANES };

typedef struct sg_layout {
    enum ggml_type type;
    int elements, bytes; /* of a block of ggml */
    int group;           /* elements with one scale */
    sinter_data_type_t codes, scales, offsets;
    int plane_bytes[SG_PLANES]; /* that a block of ggml has in each plane */
    void (*unpack)(const uint8_t *block, uint8_t *const *planes);
    void (*pack)(uint8_t *block, uint8_t *const *planes);
} sg_layout_t;

/* The layout of a type, or NULL where its blocks stay as they are. */
const sg_layout_t *sg_layout_of(enum ggml_type type);
/* Where a plane of a tensor that is no view begins, from its data on. */
size_t sg_plane_offset(const struct ggml_tensor *root, int plane);
/* Bytes of a tensor in a buffer of ours. */
size_t sg_tensor_bytes(const struct ggml_tensor *tensor);
/* Blocks of a tensor that is not a view, to planes and back. */
void sg_unpack_blocks(const struct ggml_tensor *root, size_t first, size_t count,
                      const uint8_t *blocks);
void sg_pack_blocks(const struct ggml_tensor *root, size_t first, size_t count, uint8_t *blocks);

/* ---- buffer.c -------------------------------------------------------------------------------- */

ggml_backend_buffer_type_t sg_buffer_type(void);
bool sg_is_ours(const struct ggml_tensor *tensor);
/* The tensor that owns the memory. */
const struct ggml_tensor *sg_root(const struct ggml_tensor *tensor);
/* Bytes of a tensor in a buffer of ours have changed: copies in the constant cache are stale. */
void sg_forget_copies(const struct ggml_tensor *tensor);

/* ---- translate.c: ggml nodes to ops of a Sinter graph ---------------------------------------- */

enum { SG_MAX_RANK = 6, SG_MAX_PARTS = 16 };

/* An input of a Sinter graph, and where an execute finds it: dim i is ne[size_dim[i]] of tensor
 * number size_of[i] of the plan, its stride nb[stride_dim[i]] of the tensor. A size_dim below 0 is
 * a dim of 1, a stride_dim below 0 a stride of 0. */
typedef struct sg_input {
    uint64_t id;
    int tensor; /* in the plan; -1: memory of the plan */
    int plane;  /* -1: plain elements */
    const void *own;
    int rank; /* of memory of the plan: how many floats */
    int size_of[SG_MAX_RANK], size_dim[SG_MAX_RANK], stride_dim[SG_MAX_RANK];
} sg_input_t;

/* An output, which lies where the tensor does. */
typedef struct sg_output {
    uint64_t id;
    int tensor;
    int rank;
    int dim[SG_MAX_RANK]; /* of the tensor, for each dim of the output */
} sg_output_t;

/* What a tensor of ggml is in the graph that is being built. The Sinter tensor `id` has the dims
 * `dims`. In row-major order its elements are those of a tensor of ggml with the dims ne; dim i of
 * the tensor itself is dim perm[i] of that one. */
typedef struct sg_value {
    bool known;
    uint64_t id;
    sinter_data_type_t type;
    int rank;
    sinter_dim_t dims[SG_MAX_RANK];
    int64_t ne[GGML_MAX_DIMS];
    int perm[GGML_MAX_DIMS];
    const void *begin; /* of rows that SET_ROWS has written */
} sg_value_t;

/* The tensors of a range of nodes: the nodes first, then all others that they read. */
typedef struct sg_tensors {
    int n_nodes, count, capacity;
    const struct ggml_tensor **list;
    int *outer_uses;            /* of a node: by nodes outside of the range */
    int (*open)[GGML_MAX_DIMS]; /* 0, or the class of a dim that may change, see plan.c */
    int *slots, n_slots;        /* from pointer to index */
    int (*src)[GGML_MAX_SRC];
} sg_tensors_t;

int sg_tensors_find(const sg_tensors_t *tensors, const struct ggml_tensor *tensor);

typedef struct sg_builder {
    sg_tensors_t *tensors;
    sinter_graph_t *graph;
    int first, end; /* the nodes of the graph, as far as is known */
    int node;       /* that is being translated */
    uint64_t ids;
    sg_value_t *values;   /* of each tensor */
    sg_value_t *versions; /* of roots that a node of the graph has written */
    sg_input_t *inputs;
    int n_inputs, inputs_capacity;
    sg_output_t *outputs;
    int n_outputs, outputs_capacity;
    uint64_t *silent; /* outputs that take the buffer of an input */
    int n_silent, silent_capacity;
    void **memory; /* constants of the plan */
    int n_memory, memory_capacity;
    char why[256]; /* the node cannot be a part of this graph */
} sg_builder_t;

/* Translates node number `node`. false: b->why says why it does not fit into this graph. */
bool sg_translate(sg_builder_t *b, int node);
/* Makes the value of a node an output in the node's memory. */
bool sg_export(sg_builder_t *b, int node);
/* NULL, or why the backend does not take this op. */
const char *sg_refuses(const struct ggml_tensor *op);
bool sg_is_view(const struct ggml_tensor *tensor);
/* What the translation of a view makes of its strides and offset, as a number. */
uint64_t sg_kind_of_view(const struct ggml_tensor *view);
/* Weights, of which Sinter may keep copies. */
bool sg_is_constant(const struct ggml_tensor *tensor);
/* The stride of a dim in elements of a plane (-1: plain elements), and the begin of a plane. */
sinter_dim_t sg_stride(const struct ggml_tensor *tensor, int plane, int dim);
void *sg_begin(const struct ggml_tensor *tensor, int plane);
sinter_dim_t sg_size(const struct ggml_tensor *tensor, int plane, int dim, int64_t size);
/* Nodes that the backend computes with loops of its own; NULL for all others. */
typedef bool (*sg_native_t)(const struct ggml_tensor *node);
sg_native_t sg_native(const struct ggml_tensor *node);

/* ---- plan.c: compiled graphs ----------------------------------------------------------------- */

typedef struct sg_plans sg_plans_t;

sg_plans_t *sg_plans_create(sinter_engine_t *engine);
void sg_plans_destroy(sg_plans_t *plans);
enum ggml_status sg_plans_compute(sg_plans_t *plans, sinter_stream_t *stream,
                                  struct ggml_cgraph *graph);

/* ---- backend.c ------------------------------------------------------------------------------- */

sinter_engine_t *sg_engine(void);
sinter_fpmath_mode_t sg_fpmath(void);

#endif
