/* Whole graphs in tests: load a model, build it, run one partition, compare with the oracle.
 * Reuses graph_runner's loader and filler. */
#ifndef SINTER_TESTS_E2E_H
#define SINTER_TESTS_E2E_H

#include <sinter/sinter.h>

#include "check.h"
#include "fill.h"
#include "model.h"

enum { E2E_MAX_PORTS = 32 };

/* models/NAME; stops the test if it does not load. */
void e2e_load(model_t *model, const char *name);
/* Everywhere in the model, a dim of size `from` becomes `to` (SINTER_UNKNOWN_DIM: not known,
 * layout any), strides in the order they were. */
void e2e_replace_dim(model_t *model, int64_t from, int64_t to);
/* The only partition of the model under a policy; stops the test if there is another number. */
sinter_partition_t *e2e_partition(const model_t *model, sinter_engine_t *engine);

/* Buffers for all ports of a model with known dims: inputs filled, outputs poisoned. */
typedef struct e2e_ports {
    size_t n_in, n_out;
    sinter_tensor_t *in[E2E_MAX_PORTS], *out[E2E_MAX_PORTS];
    unsigned char *in_data[E2E_MAX_PORTS], *out_data[E2E_MAX_PORTS];
    sinter_logical_tensor_t in_lt[E2E_MAX_PORTS], out_lt[E2E_MAX_PORTS];
} e2e_ports_t;
/* misalign: bytes added to every data pointer. */
void e2e_ports_make(e2e_ports_t *ports, const model_t *model, sinter_engine_t *engine,
                    uint64_t seed, size_t misalign);
void e2e_ports_free(e2e_ports_t *ports);
sinter_status_t e2e_execute(const sinter_compiled_partition_t *compiled, sinter_stream_t *stream,
                            e2e_ports_t *ports);
/* 0 if every output is within the oracle's bounds under this mode; prints the worst element
 * otherwise. */
int e2e_compare(model_t *model, const e2e_ports_t *ports, sinter_fpmath_mode_t mode,
                int apply_to_int);

#endif
