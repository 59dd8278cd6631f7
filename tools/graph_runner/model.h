/* A graph in memory, between the JSON text and the library: what rewrites change, what the
 * filler looks at, what the oracle gets. */
#ifndef GR_MODEL_H
#define GR_MODEL_H

#include "../../tests/oracle/oracle.h"
#include "base.h"

#include <sinter/sinter.h>

/* The kind column of attrs.def. */
typedef enum model_attr_kind {
    MODEL_F32,
    MODEL_F32S,
    MODEL_S64,
    MODEL_S64S,
    MODEL_S64_OR_S64S,
    MODEL_BOOL,
    MODEL_STR
} model_attr_kind_t;
model_attr_kind_t model_attr_kind(sinter_op_attr_t attr);

typedef struct model_op {
    uint64_t id;
    sinter_op_kind_t kind;
    const char *name; /* may be NULL */
    int line;
    size_t n_attrs, n_inputs, n_outputs;
    orc_attr_t *attrs;
    sinter_logical_tensor_t *inputs, *outputs;
} model_op_t;

/* One place where a tensor stands. */
typedef struct model_use {
    uint64_t id;
    size_t op, slot;
    int output;
} model_use_t;

enum { MODEL_NONE = -1, MODEL_MAX_WARNINGS = 16 };

/* A tensor id with all its places: uses[first .. first + n), producers first, then by op. */
typedef struct model_tensor {
    uint64_t id;
    size_t first, n;
    int64_t producer; /* index of an op, or MODEL_NONE */
    int is_input, is_output;
} model_tensor_t;

typedef struct model {
    gr_arena_t arena;
    const char *file;
    sinter_fpmath_mode_t mode;
    int apply_to_int;
    size_t n_ops, n_uses, n_tensors;
    model_op_t *ops;
    model_use_t *uses;
    model_tensor_t *tensors; /* by id */
    model_op_t **by_id;
    size_t n_in_ports, n_out_ports;
    uint64_t *in_ports, *out_ports; /* as given */
    size_t n_warnings;
    const char *warnings[MODEL_MAX_WARNINGS]; /* "file:line:col: ..." about what was accepted and
                                                 has no effect */
} model_t;

/* JSON text to a model. file is used in messages and copied. Free the model also after a
 * failure. */
int model_load_text(model_t *model, const char *file, const char *text, size_t size,
                    gr_error_t *err);
int model_load_file(model_t *model, const char *path, gr_error_t *err);
void model_free(model_t *model);
/* Fills uses and tensors from the ops. */
int model_index(model_t *model, gr_error_t *err);

model_tensor_t *model_find(const model_t *model, uint64_t id);
model_op_t *model_find_op(const model_t *model, uint64_t id);
/* The logical tensor standing at a place, and at the first place of a tensor. */
sinter_logical_tensor_t *model_at(const model_t *model, const model_use_t *use);
sinter_logical_tensor_t *model_lt(const model_t *model, const model_tensor_t *tensor);
const orc_attr_t *model_attr(const model_op_t *op, sinter_op_attr_t attr);
/* The dim of a MatMul's input 0 or 1 that the product sums over; 0: there is none. */
int64_t model_inner_dim(const model_op_t *op, int slot);
/* Replaces or adds an attribute; value's arrays must live as long as the model. */
int model_set_attr(model_t *model, model_op_t *op, const orc_attr_t *value, gr_error_t *err);

/* The model as a finalized graph of the library. A refusal names file, line, op and the
 * library's reason. */
int model_build(const model_t *model, sinter_engine_t *engine, sinter_graph_t **graph,
                gr_error_t *err);
/* The model as the oracle takes it; ops from the arena. */
int model_to_oracle(model_t *model, orc_graph_t *graph, gr_error_t *err);

#endif
