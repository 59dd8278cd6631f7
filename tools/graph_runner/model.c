#include "model.h"

#include <stdlib.h>
#include <string.h>

#define F32 MODEL_F32
#define F32S MODEL_F32S
#define S64 MODEL_S64
#define S64S MODEL_S64S
#define S64_OR_S64S MODEL_S64_OR_S64S
#define BOOL MODEL_BOOL
#define STR MODEL_STR
static const model_attr_kind_t attr_kinds[] = {
#define SINTER_ATTR(value, name, kind) [value] = kind,
#include <sinter/attrs.def>
#undef SINTER_ATTR
};
#undef F32
#undef F32S
#undef S64
#undef S64S
#undef S64_OR_S64S
#undef BOOL
#undef STR

model_attr_kind_t model_attr_kind(sinter_op_attr_t attr)
{
    return attr_kinds[attr];
}

void model_free(model_t *model)
{
    gr_arena_free(&model->arena);
    *model = (model_t){0};
}

/* ---- index ----------------------------------------------------------------------------------- */

static int compare_uses(const void *a, const void *b)
{
    const model_use_t *x = a, *y = b;

    if (x->id != y->id) {
        return x->id < y->id ? -1 : 1;
    }
    if (x->output != y->output) {
        return y->output - x->output;
    }
    if (x->op != y->op) {
        return x->op < y->op ? -1 : 1;
    }
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

static int compare_ops(const void *a, const void *b)
{
    const model_op_t *x = *(model_op_t *const *)a, *y = *(model_op_t *const *)b;

    return (x->id > y->id) - (x->id < y->id);
}

static void collect_uses(model_t *model)
{
    size_t n = 0;

    for (size_t i = 0; i < model->n_ops; i++) {
        const model_op_t *op = &model->ops[i];

        for (size_t j = 0; j < op->n_inputs; j++) {
            model->uses[n++] = (model_use_t){op->inputs[j].id, i, j, 0};
        }
        for (size_t j = 0; j < op->n_outputs; j++) {
            model->uses[n++] = (model_use_t){op->outputs[j].id, i, j, 1};
        }
    }
}

static void describe_tensor(const model_t *model, model_tensor_t *t)
{
    const model_use_t *last = &model->uses[t->first + t->n - 1];

    t->producer = model->uses[t->first].output ? (int64_t)model->uses[t->first].op : MODEL_NONE;
    t->is_input = t->producer == MODEL_NONE;
    t->is_output = last->output; /* nobody consumes it */
}

/* Whether every listed output is one. Dumps in the wild carry stale lists; with such a list
 * everything unread is an output. */
static int lists_outputs(const model_t *model)
{
    for (size_t i = 0; i < model->n_out_ports; i++) {
        const model_tensor_t *t = model_find(model, model->out_ports[i]);

        if (!t || t->is_input) {
            return 0;
        }
    }
    return model->n_out_ports > 0;
}

/* The library leaves out ops on which no listed output depends, so what they make is no output. */
static int drop_unlisted(model_t *model, gr_error_t *err)
{
    unsigned char *needed = gr_arena_alloc(&model->arena, model->n_ops, sizeof *needed);
    size_t *stack = gr_arena_alloc(&model->arena, model->n_ops + model->n_out_ports, sizeof *stack),
           n = 0;

    if (!needed || !stack) {
        return gr_fail_memory(err);
    }
    memset(needed, 0, model->n_ops);
    for (size_t i = 0; i < model->n_out_ports; i++) {
        const size_t op = (size_t)model_find(model, model->out_ports[i])->producer;

        if (!needed[op]) {
            stack[n++] = op;
        }
        needed[op] = 1;
    }
    while (n > 0) {
        const model_op_t *op = &model->ops[stack[--n]];

        for (size_t j = 0; j < op->n_inputs; j++) {
            const int64_t p = model_find(model, op->inputs[j].id)->producer;

            if (p != MODEL_NONE && !needed[p]) {
                stack[n++] = (size_t)p;
                needed[p] = 1;
            }
        }
    }
    for (size_t i = 0; i < model->n_tensors; i++) {
        model_tensor_t *t = &model->tensors[i];

        t->is_output = t->is_output && needed[t->producer];
    }
    return 0;
}

int model_index(model_t *model, gr_error_t *err)
{
    size_t n = 0;

    for (size_t i = 0; i < model->n_ops; i++) {
        n += model->ops[i].n_inputs + model->ops[i].n_outputs;
    }
    model->n_uses = n;
    model->uses = gr_arena_alloc(&model->arena, n, sizeof *model->uses);
    model->tensors = gr_arena_alloc(&model->arena, n, sizeof *model->tensors);
    model->by_id = gr_arena_alloc(&model->arena, model->n_ops, sizeof *model->by_id);
    if (!model->uses || !model->tensors || !model->by_id) {
        return gr_fail_memory(err);
    }
    for (size_t i = 0; i < model->n_ops; i++) {
        model->by_id[i] = &model->ops[i];
    }
    qsort(model->by_id, model->n_ops, sizeof *model->by_id, compare_ops);
    collect_uses(model);
    qsort(model->uses, n, sizeof *model->uses, compare_uses);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || model->uses[i].id != model->uses[i - 1].id) {
            model->tensors[model->n_tensors++] =
                (model_tensor_t){.id = model->uses[i].id, .first = i};
        }
        model->tensors[model->n_tensors - 1].n++;
    }
    for (size_t i = 0; i < model->n_tensors; i++) {
        describe_tensor(model, &model->tensors[i]);
    }
    for (size_t i = 0; i < model->n_out_ports; i++) {
        model_tensor_t *t = model_find(model, model->out_ports[i]);

        if (t && !t->is_input) {
            t->is_output = 1;
        }
    }
    return lists_outputs(model) ? drop_unlisted(model, err) : 0;
}

model_tensor_t *model_find(const model_t *model, uint64_t id)
{
    size_t lo = 0, hi = model->n_tensors;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (model->tensors[mid].id < id) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < model->n_tensors && model->tensors[lo].id == id ? &model->tensors[lo] : NULL;
}

model_op_t *model_find_op(const model_t *model, uint64_t id)
{
    size_t lo = 0, hi = model->n_ops;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (model->by_id[mid]->id < id) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < model->n_ops && model->by_id[lo]->id == id ? model->by_id[lo] : NULL;
}

sinter_logical_tensor_t *model_at(const model_t *model, const model_use_t *use)
{
    const model_op_t *op = &model->ops[use->op];

    return use->output ? &op->outputs[use->slot] : &op->inputs[use->slot];
}

sinter_logical_tensor_t *model_lt(const model_t *model, const model_tensor_t *tensor)
{
    return model_at(model, &model->uses[tensor->first]);
}

/* ---- attributes ------------------------------------------------------------------------------ */

const orc_attr_t *model_attr(const model_op_t *op, sinter_op_attr_t attr)
{
    for (size_t i = 0; i < op->n_attrs; i++) {
        if (op->attrs[i].id == attr) {
            return &op->attrs[i];
        }
    }
    return NULL;
}

int model_set_attr(model_t *model, model_op_t *op, const orc_attr_t *value, gr_error_t *err)
{
    orc_attr_t *attrs;

    for (size_t i = 0; i < op->n_attrs; i++) {
        if (op->attrs[i].id == value->id) {
            op->attrs[i] = *value;
            return 0;
        }
    }
    attrs = gr_arena_alloc(&model->arena, op->n_attrs + 1, sizeof *attrs);
    if (!attrs) {
        return gr_fail_memory(err);
    }
    if (op->n_attrs) {
        memcpy(attrs, op->attrs, op->n_attrs * sizeof *attrs);
    }
    attrs[op->n_attrs++] = *value;
    op->attrs = attrs;
    return 0;
}

int64_t model_inner_dim(const model_op_t *op, int slot)
{
    const sinter_logical_tensor_t *lt = &op->inputs[slot];
    const orc_attr_t *transpose =
        model_attr(op, slot ? sinter_op_attr_transpose_b : sinter_op_attr_transpose_a);
    int swapped = transpose && transpose->b;
    int last = slot ? swapped : !swapped; /* A ends with K, B has it before N */

    return lt->ndims < 2 ? 0 : lt->dims[last ? lt->ndims - 1 : lt->ndims - 2];
}

/* ---- oracle ---------------------------------------------------------------------------------- */

int model_to_oracle(model_t *model, orc_graph_t *graph, gr_error_t *err)
{
    orc_op_t *ops = gr_arena_alloc(&model->arena, model->n_ops, sizeof *ops);

    if (!ops) {
        return gr_fail_memory(err);
    }
    for (size_t i = 0; i < model->n_ops; i++) {
        const model_op_t *op = &model->ops[i];

        ops[i] = (orc_op_t){op->id,        op->kind,  op->n_attrs, op->n_inputs,
                            op->n_outputs, op->attrs, op->inputs,  op->outputs};
    }
    *graph = (orc_graph_t){model->n_ops, ops, model->mode, model->apply_to_int};
    return 0;
}
