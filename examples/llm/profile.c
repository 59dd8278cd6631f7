/* A step partition by partition, with the time of each: tensors for the ports of a partition, and
 * an execute of its own. */
#include "llm.h"

#include <stdlib.h>
#include <time.h>

enum { MOST_PORTS = 32, MOST_INNER = 128 };

/* The memory of a tensor of one partition: what is bound, or what lies between partitions. */
static void *memory_of(model_t *m, layer_t *l, uint64_t id, void **between, size_t bytes)
{
    void *const ports[PORT_WEIGHT] = {
        [PORT_X] = m->x,          [PORT_Y] = m->x,           [PORT_COSINES] = m->cosines,
        [PORT_SINES] = m->sines,  [PORT_SLOTS] = m->slots,   [PORT_PAST] = &m->past32,
        [PORT_SCALE] = &m->scale, [PORT_MASKED] = &m->masked};
    if (id >= PORT_INNER) {
        void **memory = &between[(id - PORT_INNER) % MOST_INNER]; /* a layer has fewer */
        *memory = *memory != NULL ? *memory : malloc(bytes + 1);
        return *memory;
    }
    if (id >= PORT_WEIGHT) {
        const weight_t *w = &l->weights[(id - PORT_WEIGHT) / 3];
        const void *const parts[3] = {w->codes, w->scales, w->minima};
        return (void *)parts[(id - PORT_WEIGHT) % 3];
    }
    if (id >= PORT_CACHE) {
        return l->cache[(id - PORT_CACHE) % 4];
    }
    return id >= PORT_NORM ? (void *)l->norms[id - PORT_NORM].codes : ports[id];
}

/* Tensors for ports, with the dims that follow from what is bound to the layer's graph. */
static const char *make_tensors(model_t *m, layer_t *l, void **between, size_t n,
                                const sinter_logical_tensor_t *ports, sinter_tensor_t **tensors)
{
    for (size_t i = 0; i < n; i++) {
        sinter_logical_tensor_t lt;
        size_t bytes = 0;
        TRY(status_error(sinter_compiled_graph_query_logical_tensor(l->graph, ports[i].id, &lt)));
        TRY(status_error(sinter_logical_tensor_get_bytes(&lt, &bytes)));
        void *data = memory_of(m, l, lt.id, between, bytes);
        TRY(status_error(sinter_tensor_create(&tensors[i], NULL, &lt, data, SINTER_BYTES_TRUSTED)));
    }
    return NULL;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Executes a partition of a layer alone, and adds its seconds. */
static const char *time_partition(model_t *m, layer_t *l, size_t at, void **between,
                                  double *seconds)
{
    sinter_logical_tensor_t ports[MOST_PORTS];
    sinter_tensor_t *tensors[MOST_PORTS] = {NULL};
    sinter_compiled_partition_t *compiled[MOST_PARTS];
    size_t n_in = 0, n_out = 0;
    const sinter_partition_t *part = m->parts[at];
    TRY(status_error(sinter_compiled_graph_get_partitions(l->graph, m->n_parts, NULL, compiled)));
    TRY(status_error(sinter_partition_get_input_num(part, &n_in)));
    TRY(status_error(sinter_partition_get_output_num(part, &n_out)));
    if (n_in + n_out > MOST_PORTS) {
        return failure("a partition of %zu ports", n_in + n_out);
    }
    TRY(status_error(sinter_partition_get_inputs(part, n_in, ports)));
    TRY(status_error(sinter_partition_get_outputs(part, n_out, ports + n_in)));
    const char *error = make_tensors(m, l, between, n_in + n_out, ports, tensors);
    const double start = now();
    if (error == NULL) {
        error = status_error(sinter_compiled_partition_execute(
            compiled[at], m->stream, n_in, (const sinter_tensor_t *const *)tensors, n_out,
            tensors + n_in, NULL, 0));
    }
    *seconds += now() - start;
    for (size_t i = 0; i < n_in + n_out; i++) {
        sinter_tensor_destroy(&tensors[i]);
    }
    return error;
}

const char *model_profile(model_t *m, int32_t token, float *logits, double *seconds)
{
    void *between[MOST_INNER] = {NULL};
    double start = now();
    const char *error = begin_step(m, 1, &token);
    seconds[0] += now() - start;
    for (int64_t i = 0; i < m->sizes.layers && error == NULL; i++) {
        error = bind_step(m, m->layers[i].graph, 1);
        for (size_t at = 0; at < m->n_parts && error == NULL; at++) {
            error = time_partition(m, &m->layers[i], at, between, &seconds[1 + at]);
        }
    }
    start = now();
    error = error != NULL ? error : end_step(m, 1, logits);
    seconds[1 + m->n_parts] += now() - start;
    for (int i = 0; i < MOST_INNER; i++) {
        free(between[i]);
    }
    return error;
}
