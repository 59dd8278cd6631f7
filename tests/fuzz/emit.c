/* A fuzz graph as the model that graph_runner's code and the oracle take. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int has_symbol(const fz_tensor_t *t)
{
    for (int d = 0; d < t->ndims; d++) {
        if (fz_is_symbol(t->dims[d])) {
            return 1;
        }
    }
    return 0;
}

static int64_t largest(const fz_t *f, int64_t dim)
{
    int64_t size = 0;

    for (int v = 0; v < FZ_VARIANTS; v++) {
        size = fz_size(f, dim, v) > size ? fz_size(f, dim, v) : size;
    }
    return size;
}

static void put_strides(const fz_t *f, const fz_tensor_t *t, sinter_logical_tensor_t *lt)
{
    int64_t step = 1;

    for (int i = t->ndims - 1; i >= 0; i--) {
        int d = t->order[i];
        int64_t size = t->fixed ? largest(f, t->dims[d]) : lt->dims[d];

        step *=
            t->halves == i + 1 && (i + 1 < t->ndims || gr_dtype(t->type)->bits % 8 == 0) ? 2 : 1;
        lt->strides[d] = t->repeat[d] ? 0 : step;
        if (!t->repeat[d]) {
            step = step * (size > 1 ? size : 1) + t->pad[d];
        }
    }
}

int fz_tiled(const fz_t *f, int tensor, sinter_logical_tensor_t *lt)
{
    static const sinter_weights_part_t parts[] = {
        [1] = sinter_weights_codes, [2] = sinter_weights_values, [3] = sinter_weights_codes_blocks};
    const fz_tensor_t *t = &f->tensors[tensor];

    if (t->tiles &&
        sinter_logical_tensor_set_weights_layout(lt, parts[t->tiles], t->kept, t->turned)) {
        fprintf(stderr, "tensor %d: %s\n", tensor, sinter_last_error_message());
        abort();
    }
    return t->tiles;
}

/* unknown: without what a declaration of that kind leaves open. */
static void describe_as(const fz_t *f, int id, int variant, int unknown, fz_declare_t declare,
                        sinter_logical_tensor_t *lt)
{
    const fz_tensor_t *t = &f->tensors[id];

    memset(lt, 0, sizeof *lt);
    lt->id = (uint64_t)id;
    lt->ndims = t->ndims;
    lt->data_type = t->type;
    lt->property = t->property;
    lt->layout_type = sinter_layout_type_strided;
    for (int d = 0; d < t->ndims; d++) {
        lt->dims[d] = fz_size(f, t->dims[d], variant);
    }
    put_strides(f, t, lt);
    if (!unknown) {
        return;
    }
    for (int d = 0; d < t->ndims; d++) {
        if (fz_is_symbol(t->dims[d]) || declare >= FZ_NO_DIMS) {
            lt->dims[d] = SINTER_UNKNOWN_DIM;
        }
    }
    if (declare >= FZ_NO_LAYOUT || (has_symbol(t) && !t->fixed)) {
        lt->layout_type = sinter_layout_type_any;
    }
    if (declare == FZ_NO_RANK) {
        lt->ndims = SINTER_UNKNOWN_NDIMS;
    }
    fz_tiled(f, id, lt);
    if (t->any) {
        lt->layout_type = sinter_layout_type_any;
    }
}

static void describe(const fz_t *f, int id, int variant, int unknown, sinter_logical_tensor_t *lt)
{
    describe_as(f, id, variant, unknown, f->tensors[id].declare, lt);
}

void fz_with_dims(const fz_t *f, int tensor, sinter_logical_tensor_t *lt)
{
    const fz_tensor_t *t = &f->tensors[tensor];

    describe_as(f, tensor, 0, 1, t->produced && t->declare != FZ_ALL ? FZ_NO_LAYOUT : FZ_ALL, lt);
}

int fz_emit(const fz_t *f, int variant, int unknown, model_t *m, gr_error_t *err)
{
    memset(m, 0, sizeof *m);
    m->file = f->generator;
    m->mode = f->mode;
    m->apply_to_int = f->apply_to_int;
    m->n_ops = (size_t)f->n_ops;
    m->ops = gr_arena_alloc(&m->arena, m->n_ops, sizeof *m->ops);
    m->out_ports = gr_arena_alloc(&m->arena, (size_t)f->n_tensors + 1, sizeof *m->out_ports);
    for (int i = 0; i < f->n_tensors; i++) {
        if (f->tensors[i].keep) {
            m->out_ports[m->n_out_ports++] = (uint64_t)i;
        }
    }
    for (int i = 0; i < f->n_ops; i++) {
        const fz_op_t *from = &f->ops[i];
        model_op_t *to = &m->ops[i];

        *to = (model_op_t){.id = (uint64_t)i,
                           .kind = from->kind,
                           .n_attrs = (size_t)from->n_attrs,
                           .n_inputs = (size_t)from->n_in,
                           .n_outputs = (size_t)from->n_out};
        to->attrs = gr_arena_alloc(&m->arena, to->n_attrs + 1, sizeof *to->attrs);
        to->inputs = gr_arena_alloc(&m->arena, to->n_inputs, sizeof *to->inputs);
        to->outputs = gr_arena_alloc(&m->arena, to->n_outputs, sizeof *to->outputs);
        memcpy(to->attrs, from->attrs, to->n_attrs * sizeof *to->attrs);
        for (int k = 0; k < from->n_in; k++) {
            describe(f, from->in[k], variant, unknown, &to->inputs[k]);
        }
        for (int k = 0; k < from->n_out; k++) {
            describe(f, from->out[k], variant, unknown, &to->outputs[k]);
        }
    }
    return model_index(m, err);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_tensor(const fz_t *f, int id)
{
    const fz_tensor_t *t = &f->tensors[id];
    sinter_logical_tensor_t lt;
    char text[256];

    describe(f, id, 0, 0, &lt);
    fprintf(stderr, " %d:%s%s%s", id, gr_lt_text(&lt, text, sizeof text), t->keep ? "!" : "",
            !t->tiles ? ""
            : t->any  ? " in any layout"
                      : " in tiles");
    for (int d = 0; d < t->ndims; d++) {
        if (fz_is_symbol(t->dims[d])) {
            fprintf(stderr, "{%d:%lld|%lld}", d, (long long)fz_size(f, t->dims[d], 1),
                    (long long)fz_size(f, t->dims[d], 2));
        }
    }
}

static void print_attr(const orc_attr_t *a)
{
    fprintf(stderr, " %s=", sinter_op_attr_name(a->id));
    for (size_t i = 0; a->s64 && i < a->n; i++) {
        fprintf(stderr, "%s%lld", i ? "," : "", (long long)a->s64[i]);
    }
    for (size_t i = 0; a->f32 && i < a->n; i++) {
        fprintf(stderr, "%s%g", i ? "," : "", (double)a->f32[i]);
    }
    if (a->str) {
        fprintf(stderr, "%s", a->str);
    } else if (!a->s64 && !a->f32) {
        fprintf(stderr, "%d", a->b);
    }
}

void fz_print(const fz_t *f)
{
    fprintf(stderr, "  fpmath %s%s\n", sinter_fpmath_mode_name(f->mode),
            f->apply_to_int ? ":true" : "");
    for (int i = 0; i < f->n_ops; i++) {
        const fz_op_t *op = &f->ops[i];

        fprintf(stderr, "  #%d %s", i, sinter_op_kind_name(op->kind));
        for (int k = 0; k < op->n_attrs; k++) {
            print_attr(&op->attrs[k]);
        }
        for (int k = 0; k < op->n_in; k++) {
            print_tensor(f, op->in[k]);
        }
        fprintf(stderr, " ->");
        for (int k = 0; k < op->n_out; k++) {
            print_tensor(f, op->out[k]);
        }
        fprintf(stderr, "\n");
    }
}
