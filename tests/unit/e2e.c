#include "e2e.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

void e2e_load(model_t *model, const char *name)
{
    char path[1024];
    gr_error_t err = {{0}, 0};
    snprintf(path, sizeof path, "%s/models/%s", SINTER_SOURCE_DIR, name);
    memset(model, 0, sizeof *model);
    if (model_load_file(model, path, &err)) {
        stop(path, err.text);
    }
}

/* Dense strides in the order of the old ones. */
static void restride(sinter_logical_tensor_t *lt, const int64_t *old)
{
    int order[SINTER_MAX_NDIMS];
    for (int i = 0; i < lt->ndims; i++) {
        int at = i;
        for (; at > 0 && old[order[at - 1]] < old[i]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    gr_set_dense(lt, order);
}

static void replace_in(sinter_logical_tensor_t *lt, int64_t from, int64_t to)
{
    int64_t old[SINTER_MAX_NDIMS];
    int changed = 0;
    memcpy(old, lt->strides, sizeof old);
    for (int d = 0; d < lt->ndims; d++) {
        if (lt->dims[d] == from) {
            lt->dims[d] = to;
            changed = 1;
        }
    }
    if (!changed) {
        return;
    }
    if (to == SINTER_UNKNOWN_DIM) {
        lt->layout_type = sinter_layout_type_any;
    } else {
        restride(lt, old);
    }
}

void e2e_replace_dim(model_t *model, int64_t from, int64_t to)
{
    for (size_t o = 0; o < model->n_ops; o++) {
        for (size_t i = 0; i < model->ops[o].n_inputs; i++) {
            replace_in(&model->ops[o].inputs[i], from, to);
        }
        for (size_t i = 0; i < model->ops[o].n_outputs; i++) {
            replace_in(&model->ops[o].outputs[i], from, to);
        }
    }
}

sinter_partition_t *e2e_partition(const model_t *model, sinter_engine_t *engine)
{
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partition = NULL;
    gr_error_t err = {{0}, 0};
    size_t n = 0;
    if (model_build(model, engine, &graph, &err)) {
        stop(model->file, err.text);
    }
    if (sinter_graph_filter(graph, sinter_partition_policy_fusion) ||
        sinter_graph_get_partition_num(graph, &n) || n != 1 ||
        sinter_graph_get_partitions(graph, 1, &partition)) {
        stop(model->file, n != 1 ? "is not one partition" : sinter_last_error_message());
    }
    sinter_graph_destroy(&graph);
    return partition;
}

static unsigned char *buffer(const sinter_logical_tensor_t *lt, size_t misalign,
                             unsigned char poison, size_t *bytes)
{
    if (sinter_logical_tensor_get_bytes(lt, bytes)) {
        stop("buffer", sinter_last_error_message());
    }
    unsigned char *data = malloc(*bytes + misalign + 64);
    if (!data) {
        stop("buffer", "no memory");
    }
    memset(data, poison, *bytes + misalign + 64);
    return data;
}

void e2e_ports_make(e2e_ports_t *ports, const model_t *model, sinter_engine_t *engine,
                    uint64_t seed, size_t misalign)
{
    memset(ports, 0, sizeof *ports);
    for (size_t i = 0; i < model->n_tensors; i++) {
        const model_tensor_t *t = &model->tensors[i];
        if (!t->is_input && !t->is_output) {
            continue;
        }
        const size_t n = t->is_input ? ports->n_in++ : ports->n_out++;
        sinter_logical_tensor_t *lt = t->is_input ? &ports->in_lt[n] : &ports->out_lt[n];
        unsigned char **data = t->is_input ? &ports->in_data[n] : &ports->out_data[n];
        size_t bytes;
        *lt = *model_lt(model, t);
        *data = buffer(lt, misalign, 0xFF, &bytes);
        if (t->is_input) {
            fill_input(model, t, lt, seed, *data + misalign);
        }
        if (sinter_tensor_create(t->is_input ? &ports->in[n] : &ports->out[n], engine, lt,
                                 *data + misalign, bytes)) {
            stop("tensor", sinter_last_error_message());
        }
    }
}

void e2e_ports_free(e2e_ports_t *ports)
{
    for (size_t i = 0; i < ports->n_in; i++) {
        sinter_tensor_destroy(&ports->in[i]);
        free(ports->in_data[i]);
    }
    for (size_t i = 0; i < ports->n_out; i++) {
        sinter_tensor_destroy(&ports->out[i]);
        free(ports->out_data[i]);
    }
}

sinter_status_t e2e_execute(const sinter_compiled_partition_t *compiled, sinter_stream_t *stream,
                            e2e_ports_t *ports)
{
    return sinter_compiled_partition_execute(compiled, stream, ports->n_in,
                                             (const sinter_tensor_t *const *)ports->in,
                                             ports->n_out, ports->out, NULL, 0);
}

int e2e_compare(model_t *model, const e2e_ports_t *ports, sinter_fpmath_mode_t mode,
                int apply_to_int)
{
    orc_graph_t graph;
    orc_tensor_t in[E2E_MAX_PORTS];
    orc_result_t want[E2E_MAX_PORTS];
    uint64_t ids[E2E_MAX_PORTS];
    gr_error_t err = {{0}, 0};
    char text[512] = "";
    int bad = 0;
    if (model_to_oracle(model, &graph, &err)) {
        stop(model->file, err.text);
    }
    graph.mode = mode;
    graph.apply_to_int = apply_to_int;
    for (size_t i = 0; i < ports->n_in; i++) {
        void *data;
        sinter_tensor_get_data(ports->in[i], &data);
        in[i] = (orc_tensor_t){ports->in_lt[i], data};
    }
    for (size_t i = 0; i < ports->n_out; i++) {
        ids[i] = ports->out_lt[i].id;
    }
    if (orc_run(&graph, ports->n_in, in, ports->n_out, ids, want, text, sizeof text)) {
        stop("oracle", text);
    }
    for (size_t i = 0; i < ports->n_out; i++) {
        orc_diff_t diff;
        void *data;
        sinter_tensor_get_data(ports->out[i], &data);
        if (orc_compare(&want[i], &ports->out_lt[i], data, &diff)) {
            bad = 1;
            fprintf(stderr, "tensor %llu: %s\n", (unsigned long long)ids[i],
                    orc_diff_text(&diff, text, sizeof text));
        }
        orc_result_free(&want[i]);
    }
    return bad;
}
