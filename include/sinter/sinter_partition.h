/* Partitions: what was fused, compiling it, running it. Read the manners in sinter.h first. */
#ifndef SINTER_PARTITION_H
#define SINTER_PARTITION_H

#include "sinter_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- partition ------------------------------------------------------------------------------- */

/* Gives up the caller's partition and sets *partition to NULL; a *partition of NULL is fine.
 * Compiled partitions made from it live on. */
SINTER_API sinter_status_t sinter_partition_destroy(sinter_partition_t **partition);

/* Writes the partition's number: unique within its graph, counted from 0 in execution order.
 * Thread-safe. */
SINTER_API sinter_status_t sinter_partition_get_id(const sinter_partition_t *partition, size_t *id);

/* Writes the number of ops in the partition. Thread-safe. */
SINTER_API sinter_status_t sinter_partition_get_op_num(const sinter_partition_t *partition,
                                                       size_t *count);

/* Writes the ids of the ops, in execution order. ids has room for count entries, and count must
 * be the number of ops, else sinter_invalid_arguments. Thread-safe. */
SINTER_API sinter_status_t sinter_partition_get_ops(const sinter_partition_t *partition,
                                                    size_t count, uint64_t *ids);

/* Writes the number of inputs. Thread-safe. */
SINTER_API sinter_status_t sinter_partition_get_input_num(const sinter_partition_t *partition,
                                                          size_t *count);

/* Writes the number of outputs. Thread-safe. */
SINTER_API sinter_status_t sinter_partition_get_output_num(const sinter_partition_t *partition,
                                                           size_t *count);

/* Writes copies of the input ports. ports has room for count entries, and count must be the
 * number of inputs, else sinter_invalid_arguments. Dims may be unknown. Thread-safe. */
SINTER_API sinter_status_t sinter_partition_get_inputs(const sinter_partition_t *partition,
                                                       size_t count,
                                                       sinter_logical_tensor_t *ports);

/* The same for the output ports. Thread-safe. */
SINTER_API sinter_status_t sinter_partition_get_outputs(const sinter_partition_t *partition,
                                                        size_t count,
                                                        sinter_logical_tensor_t *ports);

/* Writes 1 if compile can succeed, 0 if the library does not run this partition; then
 * sinter_partition_explain has the reason. Thread-safe. */
SINTER_API sinter_status_t sinter_partition_is_supported(const sinter_partition_t *partition,
                                                         int *supported);

/* Sets the mode that later compiles of this partition use. It wins over the graph's mode, which
 * a partition starts with. Compiled partitions keep the mode that they were compiled with.
 * apply_to_int other than 0 extends the mode to arithmetic of integers with floats. An unknown
 * mode is sinter_invalid_arguments. Thread-safe, also while other threads compile: mode and
 * apply_to_int change together. */
SINTER_API sinter_status_t sinter_partition_set_fpmath_mode(sinter_partition_t *partition,
                                                            sinter_fpmath_mode_t mode,
                                                            int apply_to_int);

/* Writes the mode that the next compile uses, and whether it applies to integers (0 or 1).
 * Thread-safe. */
SINTER_API sinter_status_t sinter_partition_get_fpmath_mode(const sinter_partition_t *partition,
                                                            sinter_fpmath_mode_t *mode,
                                                            int *apply_to_int);

/* Writes a text that says which pattern matched, with the role of each op, and why larger
 * patterns were refused. Lines end with \n. The text belongs to the partition. Thread-safe. */
SINTER_API sinter_status_t sinter_partition_explain(const sinter_partition_t *partition,
                                                    const char **text);

/* Writes the name of the pattern that matched ("sdpa", "matmul", "single"). Static text.
 * Thread-safe. */
SINTER_API sinter_status_t sinter_partition_get_pattern(const sinter_partition_t *partition,
                                                        const char **name);

/* Writes the partition as a JSON graph of its own. A file that cannot be written is
 * sinter_runtime_error. Thread-safe, for different files. */
SINTER_API sinter_status_t sinter_partition_dump(const sinter_partition_t *partition,
                                                 const char *path);

/* ---- compile --------------------------------------------------------------------------------- */

/* Makes a compiled partition. All code generation happens here. partition may be compiled many
 * times, with other shapes and in other modes.
 * inputs and outputs are the partition's ports, in any order, matched by id, with dims and
 * layouts that are now known. A dim that is still unknown stays dynamic: it takes its value from
 * the tensors at each execute. NULL with a count of 0: as the partition has them. Shapes of
 * outputs are inferred, and outputs of layout any become dense row-major. Of inputs of layout any
 * that are weights compile chooses the layout: sinter_compiled_partition_query_logical_tensor gives
 * it, and the executes must have it (docs/layouts.md).
 * An unsupported partition is sinter_unimplemented; shapes that contradict each other are
 * sinter_invalid_shape. Destroy the result with sinter_compiled_partition_destroy. Thread-safe. */
SINTER_API sinter_status_t sinter_partition_compile(sinter_partition_t *partition,
                                                    sinter_engine_t *engine, size_t n_inputs,
                                                    const sinter_logical_tensor_t *inputs,
                                                    size_t n_outputs,
                                                    const sinter_logical_tensor_t *outputs,
                                                    sinter_compiled_partition_t **compiled);

/* Destroys the compiled partition and sets *compiled to NULL; a *compiled of NULL is fine. No
 * execute may be using it. Copies of constants that only it has used go. */
SINTER_API sinter_status_t
sinter_compiled_partition_destroy(sinter_compiled_partition_t **compiled);

/* Writes a port with everything that compile has filled in; dynamic dims stay
 * SINTER_UNKNOWN_DIM. An id that is no port is sinter_invalid_arguments. Thread-safe. */
SINTER_API sinter_status_t sinter_compiled_partition_query_logical_tensor(
    const sinter_compiled_partition_t *compiled, uint64_t id, sinter_logical_tensor_t *lt);

/* Creates a tensor for the port with this id, with its data type and strides, over memory as in
 * sinter_tensor_create. dims has ndims entries, in elements; NULL with an ndims of 0: the dims that
 * were compiled. Dims that do not fit the port, or that are dynamic and not given, are
 * sinter_invalid_arguments. Where dims are dynamic, unknown strides become dense. data may be NULL
 * if sinter_tensor_set_data follows. Destroy it with sinter_tensor_destroy. Thread-safe. */
SINTER_API sinter_status_t sinter_compiled_partition_create_tensor(
    const sinter_compiled_partition_t *compiled, uint64_t id, int ndims, const sinter_dim_t *dims,
    void *data, size_t bytes, sinter_tensor_t **tensor);

/* Writes the pairs of an input and an output that may share one buffer, from the same address
 * on. *pairs belongs to the compiled partition. Thread-safe. */
SINTER_API sinter_status_t
sinter_compiled_partition_get_inplace_ports(const sinter_compiled_partition_t *compiled,
                                            size_t *count, const sinter_inplace_pair_t **pairs);

/* Writes the mode that it was compiled with, and whether it applies to integers (0 or 1).
 * Thread-safe. */
SINTER_API sinter_status_t sinter_compiled_partition_get_fpmath_mode(
    const sinter_compiled_partition_t *compiled, sinter_fpmath_mode_t *mode, int *apply_to_int);

/* Writes a text with a line for each step: kernel, mode, arithmetic, scratch memory, tile sizes;
 * below it what else the step does, and why better kernels were refused. The text belongs to the
 * compiled partition. Thread-safe. */
SINTER_API sinter_status_t
sinter_compiled_partition_report(const sinter_compiled_partition_t *compiled, const char **text);

/* The kernels that the library has, one in each line. Static text. Thread-safe. */
SINTER_API const char *sinter_kernel_list(void);

/* ---- execute --------------------------------------------------------------------------------- */

/* Writes the bytes of scratch memory that an execute on this stream needs into *total:
 * temporaries that all threads share, plus per_thread bytes for each thread. per_thread may be
 * NULL. With dynamic dims pass the tensors of the execute, which need no data; without, n_inputs
 * may be 0. Dynamic dims without tensors are sinter_invalid_arguments. Thread-safe. */
SINTER_API sinter_status_t sinter_compiled_partition_get_scratchpad_bytes(
    const sinter_compiled_partition_t *compiled, const sinter_stream_t *stream, size_t n_inputs,
    const sinter_tensor_t *const *inputs, size_t *total, size_t *per_thread);

/* Runs it, and returns when the outputs are written.
 * Tensors are matched to ports by id, in any order; an id that is given twice must be the same
 * buffer. Data type, dims and strides must be those that were compiled. With dynamic dims,
 * outputs must have the dims that sinter_compiled_partition_infer_outputs tells. A tensor that
 * does not fit, a NULL pointer, or an output that overlaps an input or another output (except an
 * in-place pair from the same address on) is sinter_invalid_arguments, and nothing is written.
 * Tensors overlap where some byte holds elements of both; those whose elements lie between one
 * another, such as the two halves of each row, do not. An index, a slot or a position of a row
 * that does not exist is the same error, and so is a Dropout whose probability is not 0.
 * scratchpad has at least the queried bytes, any alignment, and serves one execute at a time.
 * NULL with 0: the library uses memory of its own, which it keeps for the next execute, so that
 * steady state allocates nothing.
 * Thread-safe for executes on different streams, with outputs that do not overlap. */
SINTER_API sinter_status_t sinter_compiled_partition_execute(
    const sinter_compiled_partition_t *compiled, sinter_stream_t *stream, size_t n_inputs,
    const sinter_tensor_t *const *inputs, size_t n_outputs, sinter_tensor_t *const *outputs,
    void *scratchpad, size_t scratchpad_bytes);

/* Writes the output ports with the dims that these inputs lead to, in the partition's order.
 * outputs has room for count entries, which must be the number of outputs. The inputs need no data.
 * Inputs that do not fit are errors as in execute. Thread-safe. */
SINTER_API sinter_status_t sinter_compiled_partition_infer_outputs(
    const sinter_compiled_partition_t *compiled, size_t n_inputs,
    const sinter_tensor_t *const *inputs, size_t count, sinter_logical_tensor_t *outputs);

#ifdef __cplusplus
}
#endif
#endif
