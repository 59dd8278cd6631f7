/* Tensors for the ports of a compiled partition: matching by id, and the checks in front of the
 * executor. */
#ifndef SINTER_SRC_BIND_H
#define SINTER_SRC_BIND_H

#include "backend_xsmm/exec/exec.h"
#include "graph/objects.h"

struct sinter_stream {
    sinter_engine_t *engine; /* held */
    threads_t threads;       /* most >= 1 */
};

/* The tensors of an execute, in any order. */
typedef struct tensors {
    size_t n_in, n_out;
    const sinter_tensor_t *const *in;
    sinter_tensor_t *const *out;
} tensors_t;

/* The first tensor with this id; NULL: there is none. Entries may be NULL. */
const sinter_tensor_t *find_tensor(uint64_t id, size_t n, const sinter_tensor_t *const *tensors);

/* Makes a frame with the dims and strides that follow from the inputs, which need no data. Its plan
 * is the one that is right for these dims. memory: plan.frame_bytes, aligned to 64 bytes. */
sinter_status_t bind_input_dims(const sinter_compiled_partition_t *cp, void *memory, size_t n,
                                const sinter_tensor_t *const *inputs, frame_mem_t **fm);
/* The same for all ports, with the data of all values but the temporaries. An output that overlaps
 * another port is an error. *fm is set even where this fails. */
sinter_status_t bind_all(const sinter_compiled_partition_t *cp, void *memory,
                         const tensors_t *tensors, frame_mem_t **fm);

/* A port of the subgraph, the inputs first. */
static inline const lt_t *bind_port(const sinter_compiled_partition_t *cp, int i)
{
    return &cp->plan.sub.values[cp->inputs[i]].lt;
}
/* data, if it is given, has all bytes of a tensor. */
sinter_status_t bind_check_bytes(const lt_t *lt, const void *data, size_t bytes);
/* The last error as that of an element of a sequence. */
sinter_status_t bind_fail(const sinter_compiled_partition_t *cp, int element,
                          sinter_status_t status);

/* Compares a tensor with the port that it was compiled for: data type, dims and strides. */
sinter_status_t bind_check_port(const lt_t *want, const lt_t *got);
/* A port with these dims. strides NULL: those that were compiled; dense where some are unknown. */
sinter_status_t bind_with_dims(const lt_t *port, int ndims, const sinter_dim_t *dims,
                               const sinter_dim_t *strides, lt_t *lt);
/* The outputs of a frame with shapes, in the partition's order. */
void bind_take_outputs(const sinter_compiled_partition_t *cp, const frame_mem_t *fm, lt_t *outputs);
/* The outputs in the partition's order, with the dims that these inputs lead to. The inputs need no
 * data. memory: as in bind_input_dims. */
sinter_status_t bind_infer(const sinter_compiled_partition_t *cp, void *memory, size_t n,
                           const sinter_tensor_t *const *inputs, lt_t *outputs);

#endif
