/* Partitions: what was fused, compiling it, running it. Read the manners in sinter.h first. */
#ifndef SINTER_PARTITION_H
#define SINTER_PARTITION_H

#include "sinter_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- partition ------------------------------------------------------------------------------- */

SINTER_API sinter_status_t sinter_partition_destroy(sinter_partition_t **partition);
/* Unique within its graph, counted from 0 in execution order. */
SINTER_API sinter_status_t sinter_partition_get_id(const sinter_partition_t *partition, size_t *id);
SINTER_API sinter_status_t sinter_partition_get_op_num(const sinter_partition_t *partition,
                                                       size_t *count);
/* ids has room for count entries, which must be the op number. */
SINTER_API sinter_status_t sinter_partition_get_ops(const sinter_partition_t *partition,
                                                    size_t count, uint64_t *ids);
SINTER_API sinter_status_t sinter_partition_get_input_num(const sinter_partition_t *partition,
                                                          size_t *count);
SINTER_API sinter_status_t sinter_partition_get_output_num(const sinter_partition_t *partition,
                                                           size_t *count);
SINTER_API sinter_status_t sinter_partition_get_inputs(const sinter_partition_t *partition,
                                                       size_t count,
                                                       sinter_logical_tensor_t *ports);
SINTER_API sinter_status_t sinter_partition_get_outputs(const sinter_partition_t *partition,
                                                        size_t count,
                                                        sinter_logical_tensor_t *ports);
/* 1 if compile can succeed for it; explain has the reason otherwise. */
SINTER_API sinter_status_t sinter_partition_is_supported(const sinter_partition_t *partition,
                                                         int *supported);
/* The mode that later compiles of this partition use. It wins over the graph's mode, which a
 * partition starts with. Compiled partitions keep the mode they were compiled with. apply_to_int
 * extends the mode to integer x float arithmetic. Any thread may set and read both at any time;
 * they change together. */
SINTER_API sinter_status_t sinter_partition_set_fpmath_mode(sinter_partition_t *partition,
                                                            sinter_fpmath_mode_t mode,
                                                            int apply_to_int);
SINTER_API sinter_status_t sinter_partition_get_fpmath_mode(const sinter_partition_t *partition,
                                                            sinter_fpmath_mode_t *mode,
                                                            int *apply_to_int);
/* Which pattern matched with which role for each op, and why larger patterns were refused.
 * Borrowed text, lines ended by \n. */
SINTER_API sinter_status_t sinter_partition_explain(const sinter_partition_t *partition,
                                                    const char **text);
/* The name of the pattern that matched ("sdpa", "matmul", "single"). Borrowed. */
SINTER_API sinter_status_t sinter_partition_get_pattern(const sinter_partition_t *partition,
                                                        const char **name);
/* Writes the partition as a JSON graph of its own. */
SINTER_API sinter_status_t sinter_partition_dump(const sinter_partition_t *partition,
                                                 const char *path);

/* ---- compile --------------------------------------------------------------------------------- */

/* inputs and outputs: the partition's ports in any order, by id, with dims and layouts now
 * known, or left unknown: such a dimension stays dynamic and takes its value from the tensors at
 * each execute. NULL with 0: as the partition has them. Output shapes are inferred, outputs of
 * layout any become dense row-major. All kernel generation happens here. An unsupported
 * partition is sinter_unimplemented. */
SINTER_API sinter_status_t sinter_partition_compile(sinter_partition_t *partition,
                                                    sinter_engine_t *engine, size_t n_inputs,
                                                    const sinter_logical_tensor_t *inputs,
                                                    size_t n_outputs,
                                                    const sinter_logical_tensor_t *outputs,
                                                    sinter_compiled_partition_t **compiled);
SINTER_API sinter_status_t
sinter_compiled_partition_destroy(sinter_compiled_partition_t **compiled);
/* A port with everything compile has filled in; dynamic dims stay SINTER_UNKNOWN_DIM. */
SINTER_API sinter_status_t sinter_compiled_partition_query_logical_tensor(
    const sinter_compiled_partition_t *compiled, uint64_t id, sinter_logical_tensor_t *lt);
/* Input/output pairs that may share one buffer. pairs is borrowed. */
SINTER_API sinter_status_t
sinter_compiled_partition_get_inplace_ports(const sinter_compiled_partition_t *compiled,
                                            size_t *count, const sinter_inplace_pair_t **pairs);
SINTER_API sinter_status_t sinter_compiled_partition_get_fpmath_mode(
    const sinter_compiled_partition_t *compiled, sinter_fpmath_mode_t *mode, int *apply_to_int);
/* A line for each step: kernel name, mode, arithmetic, scratch, tile sizes; below it what the
 * step does besides and why better kernels were refused. Borrowed. */
SINTER_API sinter_status_t
sinter_compiled_partition_report(const sinter_compiled_partition_t *compiled, const char **text);
/* The kernels the library has, one per line, for --list-kernels. Static text. */
SINTER_API const char *sinter_kernel_list(void);

/* ---- execute --------------------------------------------------------------------------------- */

/* Bytes of scratch memory an execute on this stream needs: temporaries shared by all threads
 * plus per_thread bytes for each thread (total includes both). With dynamic dims pass the
 * tensors of the execute; else n_inputs 0. per_thread may be NULL. */
SINTER_API sinter_status_t sinter_compiled_partition_get_scratchpad_bytes(
    const sinter_compiled_partition_t *compiled, const sinter_stream_t *stream, size_t n_inputs,
    const sinter_tensor_t *const *inputs, size_t *total, size_t *per_thread);
/* Runs it and returns when the outputs are written. Tensors are matched to ports by id, in any
 * order; an id given twice must be the same buffer. With dynamic dims, outputs must have the
 * dims that sinter_compiled_partition_infer_outputs tells. A tensor of another data type, other
 * dims or strides than compiled, a NULL pointer, or an output that overlaps an input or another
 * output (unless they are an in-place pair with the same address) is sinter_invalid_arguments,
 * and nothing is written. scratchpad: at least the queried bytes, any alignment, one execute at
 * a time; NULL: the library's own, which is kept for the next execute, so that steady state
 * allocates nothing. */
SINTER_API sinter_status_t sinter_compiled_partition_execute(
    const sinter_compiled_partition_t *compiled, sinter_stream_t *stream, size_t n_inputs,
    const sinter_tensor_t *const *inputs, size_t n_outputs, sinter_tensor_t *const *outputs,
    void *scratchpad, size_t scratchpad_bytes);
/* The output logical tensors that these inputs lead to: outputs has room for count entries, in
 * the partition's order. */
SINTER_API sinter_status_t sinter_compiled_partition_infer_outputs(
    const sinter_compiled_partition_t *compiled, size_t n_inputs,
    const sinter_tensor_t *const *inputs, size_t count, sinter_logical_tensor_t *outputs);

#ifdef __cplusplus
}
#endif
#endif
