/* Runs a graph of spec.h as a whole, fused or op by op. */
#ifndef SINTER_TESTS_SPEC_RUN_H
#define SINTER_TESTS_SPEC_RUN_H

#include "check.h"
#include "spec.h"

/* The memory of an input or output; a list ends with data NULL. */
typedef struct spec_port {
    uint64_t id;
    void *data;
} spec_port_t;

enum { SPEC_MOST_PARTS = 64 };

/* All dims are known; data lies as the spec says. The status of the first call that fails. */
static inline sinter_status_t spec_run(const char *spec, sinter_partition_policy_t policy,
                                       const spec_port_t *ports)
{
    sinter_graph_t *graph = NULL;
    sinter_stream_t *stream = NULL;
    sinter_compiled_graph_t *whole = NULL;
    sinter_partition_t *parts[SPEC_MOST_PARTS] = {NULL};
    sinter_compiled_partition_t *compiled[SPEC_MOST_PARTS] = {NULL};
    size_t n = 0;
    sinter_status_t status = spec_graph(&graph, NULL, spec);
    status = status ? status : sinter_graph_filter(graph, policy);
    status = status ? status : sinter_graph_get_partition_num(graph, &n);
    if (!CHECK(n <= SPEC_MOST_PARTS, "%zu partitions", n)) {
        exit(check_finish());
    }
    status = status ? status : sinter_graph_get_partitions(graph, n, parts);
    for (size_t i = 0; i < n && !status; i++) {
        status = sinter_partition_compile(parts[i], NULL, 0, NULL, 0, NULL, &compiled[i]);
    }
    status = status ? status : sinter_compiled_graph_create(&whole, NULL, graph, n, compiled);
    for (const spec_port_t *p = ports; p->data != NULL && !status; p++) {
        status =
            sinter_compiled_graph_bind(whole, p->id, 0, NULL, NULL, p->data, SINTER_BYTES_TRUSTED);
    }
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = 2};
    status = status ? status : sinter_stream_create(&stream, NULL, &desc);
    status = status ? status : sinter_compiled_graph_execute(whole, stream);
    sinter_stream_destroy(&stream);
    sinter_compiled_graph_destroy(&whole);
    for (size_t i = 0; i < n; i++) {
        sinter_compiled_partition_destroy(&compiled[i]);
        sinter_partition_destroy(&parts[i]);
    }
    sinter_graph_destroy(&graph);
    return status;
}

#endif
