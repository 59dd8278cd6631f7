/* Model to a graph of the library, through its public calls only. */
#include "model.h"

#include <string.h>

static int refuse(const model_t *model, const model_op_t *op, sinter_status_t status,
                  gr_error_t *err)
{
    if (status == sinter_out_of_memory) {
        return gr_fail_memory(err);
    }
    if (!op) {
        return gr_fail(err, "%s: %s: %s", model->file, sinter_status_name(status),
                       sinter_last_error_message());
    }
    return gr_fail(err, "%s:%d: op %llu (%s): %s: %s", model->file, op->line,
                   (unsigned long long)op->id, sinter_op_kind_name(op->kind),
                   sinter_status_name(status), sinter_last_error_message());
}

static sinter_status_t set_attr(sinter_op_t *op, const orc_attr_t *attr)
{
    if (attr->s64) {
        return sinter_op_set_attr_s64(op, attr->id, attr->s64, attr->n);
    }
    if (attr->f32) {
        return sinter_op_set_attr_f32(op, attr->id, attr->f32, attr->n);
    }
    if (attr->str) {
        return sinter_op_set_attr_str(op, attr->id, attr->str);
    }
    return sinter_op_set_attr_bool(op, attr->id, attr->b);
}

static sinter_status_t fill_op(sinter_op_t *op, const model_op_t *m)
{
    sinter_status_t status = sinter_success;

    for (size_t i = 0; i < m->n_attrs && !status; i++) {
        status = set_attr(op, &m->attrs[i]);
    }
    for (size_t i = 0; i < m->n_inputs && !status; i++) {
        status = sinter_op_add_input(op, &m->inputs[i]);
    }
    for (size_t i = 0; i < m->n_outputs && !status; i++) {
        status = sinter_op_add_output(op, &m->outputs[i]);
    }
    return status;
}

static int add_op(const model_t *model, const model_op_t *m, sinter_engine_t *engine,
                  sinter_graph_t *graph, gr_error_t *err)
{
    sinter_op_t *op = NULL;
    sinter_status_t status = sinter_op_create(&op, engine, m->id, m->kind, m->name);

    if (!status) {
        status = fill_op(op, m);
    }
    if (!status) {
        status = sinter_graph_add_op(graph, op);
    }
    if (status) {
        refuse(model, m, status, err);
    }
    sinter_op_destroy(&op);
    return status ? -1 : 0;
}

/* Dumps in the wild carry stale lists: ports that the graph does not have are dropped, and further
 * outputs are added (see model_index). */
static sinter_status_t set_ports(const model_t *model, sinter_graph_t *graph, uint64_t *ids)
{
    size_t n_in = 0, n_out = 0;
    uint64_t *outs = ids + model->n_tensors;

    if (!model->n_out_ports) {
        return sinter_success;
    }
    for (size_t i = 0; i < model->n_tensors; i++) {
        if (model->tensors[i].is_input) {
            ids[n_in++] = model->tensors[i].id;
        }
        if (model->tensors[i].is_output) {
            outs[n_out++] = model->tensors[i].id;
        }
    }
    return sinter_graph_set_ports(graph, n_in, ids, n_out, outs);
}

int model_build(const model_t *model, sinter_engine_t *engine, sinter_graph_t **graph,
                gr_error_t *err)
{
    sinter_graph_t *g = NULL;
    sinter_status_t status;
    uint64_t *ids;
    int failed = 0;

    status = sinter_graph_create_with_fpmath_mode(&g, engine, sinter_cpu, model->mode,
                                                  model->apply_to_int);
    if (status) {
        return refuse(model, NULL, status, err);
    }
    for (size_t i = 0; i < model->n_ops && !failed; i++) {
        failed = add_op(model, &model->ops[i], engine, g, err);
    }
    if (!failed) {
        ids = gr_malloc((2 * model->n_tensors + 1) * sizeof *ids);
        status = ids ? set_ports(model, g, ids) : sinter_out_of_memory;
        gr_free(ids);
        if (!status) {
            status = sinter_graph_finalize(g);
        }
        failed = status ? refuse(model, NULL, status, err) : 0;
    }
    if (failed) {
        sinter_graph_destroy(&g);
        return -1;
    }
    *graph = g;
    return 0;
}
