/* Engines, streams, tensors, ops and graphs. Read the manners in sinter.h first. */
#ifndef SINTER_GRAPH_H
#define SINTER_GRAPH_H

#include "sinter_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- library --------------------------------------------------------------------------------- */

/* The version of the library at run time: major * 10000 + minor * 100 + patch. The headers'
 * version is in sinter_version.h. Thread-safe. */
SINTER_API int sinter_version(void);

/* Why the last call of this thread failed: op id, tensor id and the rule that was broken. Never
 * NULL; "" if no call has failed. The text belongs to the library and is valid until the next
 * call of this thread that fails. Each thread has its own. */
SINTER_API const char *sinter_last_error_message(void);

/* The name of a status, such as "invalid_shape"; "unknown" for any other number. Static text.
 * Thread-safe. */
SINTER_API const char *sinter_status_name(sinter_status_t status);

/* The name of a data type as in JSON ("f16"); NULL for an unknown value. Static text.
 * Thread-safe. */
SINTER_API const char *sinter_data_type_name(sinter_data_type_t type);

/* The name of an op kind as in JSON ("MatMul"); NULL for an unknown value. Static text.
 * Thread-safe. */
SINTER_API const char *sinter_op_kind_name(sinter_op_kind_t kind);

/* The name of an attribute as in JSON ("axis"); NULL for an unknown value. Static text.
 * Thread-safe. */
SINTER_API const char *sinter_op_attr_name(sinter_op_attr_t attr);

/* The name of an fpmath mode as in JSON ("bf16"); NULL for an unknown value. Static text.
 * Thread-safe. */
SINTER_API const char *sinter_fpmath_mode_name(sinter_fpmath_mode_t mode);

/* The name of an instruction set as in SINTER_MAX_CPU_ISA ("avx2"); NULL for an unknown value.
 * Static text. Thread-safe. */
SINTER_API const char *sinter_cpu_isa_name(sinter_cpu_isa_t isa);

/* Writes the data type with this name into *out and returns 1. For an unknown name, or a NULL,
 * it returns 0 and leaves *out alone. Thread-safe. */
SINTER_API int sinter_data_type_parse(const char *name, sinter_data_type_t *out);

/* Writes the op kind with this name into *out and returns 1. For an unknown name, or a NULL, it
 * returns 0 and leaves *out alone. Thread-safe. */
SINTER_API int sinter_op_kind_parse(const char *name, sinter_op_kind_t *out);

/* Writes the attribute with this name into *out and returns 1. For an unknown name, or a NULL,
 * it returns 0 and leaves *out alone. Thread-safe. */
SINTER_API int sinter_op_attr_parse(const char *name, sinter_op_attr_t *out);

/* Writes the fpmath mode with this name into *out and returns 1. For an unknown name, or a NULL,
 * it returns 0 and leaves *out alone. Thread-safe. */
SINTER_API int sinter_fpmath_mode_parse(const char *name, sinter_fpmath_mode_t *out);

/* Writes the instruction set with this name into *out and returns 1. For an unknown name, or a
 * NULL, it returns 0 and leaves *out alone. Thread-safe. */
SINTER_API int sinter_cpu_isa_parse(const char *name, sinter_cpu_isa_t *out);

/* 1 if the library runs this op kind. 0 if it only checks it: such an op becomes a partition of
 * its own that is not supported. Thread-safe. */
SINTER_API int sinter_op_kind_is_executed(sinter_op_kind_t kind);

/* ---- what an op may look like ---------------------------------------------------------------- */

/* How many ports and attributes an op kind has. Inputs and outputs beyond the least number are
 * optional, the last ones first. */
typedef struct sinter_op_schema {
    size_t size;                      /* sizeof(sinter_op_schema_t), set by the caller */
    int32_t min_inputs, max_inputs;   /* number of input tensors */
    int32_t min_outputs, max_outputs; /* number of output tensors */
    int32_t any_attr;                 /* 1: every attribute is accepted (Wildcard) */
    size_t n_attrs;                   /* number of attributes that the kind knows */
} sinter_op_schema_t;

/* One attribute of an op kind. All texts are static. */
typedef struct sinter_op_attr_rule {
    size_t size;           /* sizeof(sinter_op_attr_rule_t), set by the caller */
    sinter_op_attr_t attr; /* its name: sinter_op_attr_name */
    const char *kind;      /* "f32", "f32[]", "s64", "s64[]", "s64 or s64[]", "bool" or "string" */
    int32_t required;      /* 1: add_op refuses the op without it */
    int32_t has_default;   /* 1: one of the two next fields is what a missing attribute means */
    double default_number; /* default of a number, or of a bool (0 or 1) */
    const char *default_word; /* default of a string; NULL: not a string, or no default */
    const char *words;        /* values that a string may have, with '|' between them, or NULL */
    int32_t has_least;        /* 1: no value of an s64 or s64[] may be below least */
    int64_t least;
} sinter_op_attr_rule_t;

/* Writes the numbers of ports and attributes of a kind into *schema. Set schema->size first. An
 * unknown kind, a NULL, or a size that is too small is sinter_invalid_arguments. Thread-safe.
 * graph_runner --describe-op prints all that these functions tell. */
SINTER_API sinter_status_t sinter_op_kind_get_schema(sinter_op_kind_t kind,
                                                     sinter_op_schema_t *schema);

/* Writes the rule of attribute number index, 0 <= index < n_attrs, into *rule. Set rule->size
 * first. Errors as for sinter_op_kind_get_schema. Rules that tie several attributes or tensors
 * together are not in it: sinter_graph_add_op checks those. Thread-safe. */
SINTER_API sinter_status_t sinter_op_kind_get_attr_rule(sinter_op_kind_t kind, size_t index,
                                                        sinter_op_attr_rule_t *rule);

/* 1 if input number port (counted from 0) of the kind may have this data type. 0 if not, or if
 * the kind or the port does not exist. Thread-safe. */
SINTER_API int sinter_op_kind_input_takes(sinter_op_kind_t kind, int port, sinter_data_type_t type);

/* 1 if output number port (counted from 0) of the kind may have this data type. 0 if not, or if
 * the kind or the port does not exist. Thread-safe. */
SINTER_API int sinter_op_kind_output_takes(sinter_op_kind_t kind, int port,
                                           sinter_data_type_t type);

/* ---- messages and dumps ---------------------------------------------------------------------- */

/* Which messages the library prints on stderr, for the whole process: a list of these words with
 * commas between them. Overrides SINTER_VERBOSE. NULL or an unknown word is
 * sinter_invalid_arguments. Thread-safe.
 *   error     the message of each call that fails
 *   dispatch  why a partition or a kernel was chosen or refused
 *   compile   what compile did
 *   exec      a line for each execute: dims, threads, time, and for each step its kernel, the way
 *             that it took, and why not a faster one
 *   all, none */
SINTER_API sinter_status_t sinter_set_verbose(const char *words);

/* Which graphs the library writes as JSON files into the current directory: a list of these
 * words with commas between them. Overrides SINTER_GRAPH_DUMP. NULL or an unknown word is
 * sinter_invalid_arguments. A file that cannot be written does not make the call fail.
 * Thread-safe.
 *   graph     each finalized graph, as sinter-graph-<n>.json
 *   subgraph  each partition that sinter_graph_get_partitions gives, as
 *             sinter-subgraph-<n>-<partition>.json
 *   none */
SINTER_API sinter_status_t sinter_set_graph_dump(const char *words);

/* ---- engine and stream ----------------------------------------------------------------------- */

/* What an engine is created with. Zero what you do not set. */
typedef struct sinter_engine_desc {
    size_t size;                  /* sizeof(sinter_engine_desc_t) */
    sinter_allocator_t allocator; /* all NULL: aligned malloc; else both callbacks */
    sinter_cpu_isa_t max_isa;     /* never use more than this has */
    /* Nonzero: a result has the same bits whatever is computed with it: a row or a sequence alone
     * and among others, a prompt at once and in chunks, with any budget of the constant cache.
     * docs/numerics.md, "Deterministic engines", says where that holds and what it costs; the
     * report of a compiled partition says where it does not hold. 0: only the number of threads
     * changes no bit. */
    int deterministic;
} sinter_engine_desc_t;

/* Creates an engine. desc NULL: all defaults. The allocator's two callbacks go together: one
 * without the other is sinter_invalid_arguments. The first engine of a process starts libxsmm
 * (see Process in sinter.h). Destroy the engine with sinter_engine_destroy. Thread-safe. */
SINTER_API sinter_status_t sinter_engine_create(sinter_engine_t **engine,
                                                const sinter_engine_desc_t *desc);

/* Gives up the caller's engine and sets *engine to NULL; a *engine of NULL is fine. Objects that
 * were made with it keep it alive until they are destroyed. No other thread may use this pointer
 * meanwhile. */
SINTER_API sinter_status_t sinter_engine_destroy(sinter_engine_t **engine);

/* The instruction set in use: the highest one that the machine has and that neither the engine's
 * max_isa nor SINTER_MAX_CPU_ISA rule out. engine may be NULL. Thread-safe. */
SINTER_API sinter_cpu_isa_t sinter_engine_get_isa(const sinter_engine_t *engine);

/* The constant cache. Some kernels want an input of property `constant` (weights) in another
 * layout than the tensor's. The first execute makes a copy in that layout. Later executes, of
 * all compiled partitions of the engine, find the copy by the tensor's data pointer, dims and
 * strides. A copy goes when the last compiled partition that has used it is destroyed, or by
 * invalidation. To change or free a constant earlier, call sinter_engine_invalidate_constants;
 * otherwise executes may read a stale copy. The statistics of the cache: */
typedef struct sinter_constant_cache_stats {
    size_t size;      /* sizeof(sinter_constant_cache_stats_t), set by the caller */
    size_t budget;    /* most bytes of copies that are kept */
    size_t bytes;     /* bytes of the copies that there are, those in use by an execute included */
    size_t entries;   /* copies that can be found */
    uint64_t packed;  /* copies made */
    uint64_t hits;    /* times that a copy was found */
    uint64_t refused; /* times that the budget had no room. The kernel then reads the tensor as it
                       * is, or, with a deterministic engine, a copy that lives for one execute.
                       * Both may be much slower */
    uint64_t evicted; /* copies that had to go to make room */
} sinter_constant_cache_stats_t;

/* The most bytes of copies that the engine keeps; at first there is no limit (SIZE_MAX). 0: no
 * copies. If there are more now, those used longest ago go first. engine may be NULL.
 * Thread-safe. */
SINTER_API sinter_status_t sinter_engine_set_constant_cache_budget(sinter_engine_t *engine,
                                                                   size_t bytes);

/* Writes what is in the cache, and what has happened since the engine was created, into *stats.
 * Set stats->size first, else sinter_invalid_arguments. engine may be NULL. Thread-safe. */
SINTER_API sinter_status_t sinter_engine_get_constant_cache_stats(
    const sinter_engine_t *engine, sinter_constant_cache_stats_t *stats);

/* Forgets all copies of data in [data, data + bytes). Call it before you change or free the
 * buffer of a constant while compiled partitions live that have read it. An execute that reads a
 * copy at this moment finishes with it. engine may be NULL. Thread-safe. */
SINTER_API sinter_status_t sinter_engine_invalidate_constants(sinter_engine_t *engine,
                                                              const void *data, size_t bytes);

/* A parallel loop over an engine's own threads. It calls run(task, worker) once for each worker in
 * [0, workers), and returns when all these calls have returned. The calls may come from any
 * threads, the calling one included, at the same time or one after the other: the workers share
 * out the work among those that have come, and none waits for one that has not. pool: what the
 * stream was created with. It must not fail; where it cannot get a thread, it calls run itself, or
 * leaves workers out. */
typedef void (*sinter_parallel_for_t)(void *pool, int workers, void (*run)(void *task, int worker),
                                      void *task);

/* A part of an execute that one thread runs at a time, as a watch sees it. */
typedef struct sinter_share {
    size_t size;        /* sizeof(sinter_share_t) */
    int element;        /* of the sequence or compiled graph, in order; else 0 */
    int step, phase;    /* of the element; a barrier stands between phases and between steps */
    int number, shares; /* which share of the phase, of how many */
    int done;           /* 0: it is about to run; 1: it has run, and products tells */
    uint64_t products;  /* multiplications of two elements that are summed */
    const char *kernel; /* that runs the step, as in sinter_kernel_list; static text */
} sinter_share_t;

/* Called before and after each share of an execute, in the thread that runs it. It must not call
 * the library. user: what the stream was created with. */
typedef void (*sinter_watch_t)(void *user, const sinter_share_t *share);

/* What a stream is created with. Zero what you do not set. */
typedef struct sinter_stream_desc {
    size_t size; /* sizeof(sinter_stream_desc_t) */
    /* The most threads of an execute. 0: as many as OpenMP would use by default when the stream is
     * created; one in a build without OpenMP. With parallel_for the number of workers, at least
     * 1. */
    int threads;
    /* 0: each step of an execute is divided among as many threads as its work pays for, and an
     * execute of less than some tens of microseconds of work runs in the calling thread alone.
     * Other than 0: all threads take part in every step, as tests of the library want it. */
    int all_threads;
    /* Runs the threads of an execute, at most one loop for each. NULL: OpenMP does. An execute of
     * little work does not call it. */
    sinter_parallel_for_t parallel_for;
    void *pool; /* its first argument; stays yours, and must live as long as the stream */
    /* For profilers and simulations: sees how work is divided. NULL: nobody watches. */
    sinter_watch_t watch;
    void *watch_user; /* its first argument; stays yours, and must live as long as the stream */
} sinter_stream_desc_t;

/* Creates a stream: how many threads an execute may use, and whose. desc NULL: all defaults.
 * threads below 0 or too large, parallel_for without threads, and a pool without parallel_for are
 * sinter_invalid_arguments. Without parallel_for it tries how many threads the system allows, and
 * takes no more than that; a build without OpenMP has one. A stream is for one thread at a time:
 * executes that run side by side need one each. Destroy it with sinter_stream_destroy.
 * Thread-safe. */
SINTER_API sinter_status_t sinter_stream_create(sinter_stream_t **stream, sinter_engine_t *engine,
                                                const sinter_stream_desc_t *desc);

/* Destroys the stream and sets *stream to NULL; a *stream of NULL is fine. No execute may be
 * using it. OpenMP's threads stay. */
SINTER_API sinter_status_t sinter_stream_destroy(sinter_stream_t **stream);

/* Writes the most threads that an execute from this thread uses: fewer than the desc's where the
 * system refused them (SINTER_VERBOSE=exec prints that), 1 where a fork has taken them away.
 * Thread-safe. */
SINTER_API sinter_status_t sinter_stream_get_threads(const sinter_stream_t *stream, int *threads);

/* ---- logical tensors ------------------------------------------------------------------------- */

/* Fills in a logical tensor with known dims and dense row-major strides. dims has ndims entries,
 * in elements, and may be NULL only if ndims is 0 (a scalar). A dim may be SINTER_UNKNOWN_DIM;
 * then the strides that depend on it are unknown. Dims that are negative or overflow are
 * sinter_invalid_shape, more than SINTER_MAX_NDIMS dims sinter_invalid_arguments. Thread-safe. */
SINTER_API sinter_status_t sinter_logical_tensor_init(sinter_logical_tensor_t *lt, uint64_t id,
                                                      sinter_data_type_t type, int ndims,
                                                      const sinter_dim_t *dims,
                                                      sinter_tensor_property_t property);

/* The same with strides: elements of the tensor's type from one index to the next, ndims of
 * them, in any order of the dims. Slices, transposes and views of a larger buffer are tensors
 * with strides. Errors as for sinter_logical_tensor_init. An output with two elements in one
 * place is refused by sinter_graph_add_op. Thread-safe. */
SINTER_API sinter_status_t sinter_logical_tensor_init_with_strides(
    sinter_logical_tensor_t *lt, uint64_t id, sinter_data_type_t type, int ndims,
    const sinter_dim_t *dims, const sinter_dim_t *strides, sinter_tensor_property_t property);

/* Fills in a logical tensor whose dims are all unknown, with layout any. ndims may be
 * SINTER_UNKNOWN_NDIMS. Use it for intermediate results: finalize infers their shapes.
 * Thread-safe. */
SINTER_API sinter_status_t sinter_logical_tensor_init_unknown(sinter_logical_tensor_t *lt,
                                                              uint64_t id, sinter_data_type_t type,
                                                              int ndims,
                                                              sinter_tensor_property_t property);

/* Writes the bytes from the first element to the end of the last one. For types narrower than a
 * byte the number is rounded up. Unknown dims and overflow are sinter_invalid_shape.
 * Thread-safe. */
SINTER_API sinter_status_t sinter_logical_tensor_get_bytes(const sinter_logical_tensor_t *lt,
                                                           size_t *bytes);

/* Gives a logical tensor the opaque layout in which MatMul reads its second operand fastest. An
 * engine can then own its weights in that layout and free all other copies. `part` says which part
 * of the operand the tensor is. bits, from 1 to 6, is how many bits of each element of s8 or u8 are
 * stored: values of s8 must be at least -2^(bits-1) and below 2^(bits-1), values of u8 below
 * 2^bits, and sinter_reorder refuses others. bits 0 stores all bits of the type. transpose_b is the
 * attribute of the MatMul: if it is not 0, the last dim is K. All parts of the operand (codes,
 * scales, and zero points or offsets if there are any) must have such a layout. Plain floats have
 * that of codes. The tensor is one matrix, or several with a multiple of 16 columns each, which
 * follow one another. Only a Reorder makes such a tensor, or a ScatterRows from one. For all other
 * ops that read it, it is unpacked, and the report of the compiled partition says so.
 * Caches of attention have such layouts, too: K as the second operand of its MatMul, whose columns
 * are tokens; V with its codes in blocks (sinter_weights_codes_blocks); and all coefficients with
 * tokens as columns, so that those of V have the other transpose_b than its codes. In blocks, K is
 * up to 256 elements or a multiple of 256, and with several blocks N is a multiple of 16.
 * A cache in which the heads of a token are side by side, [tokens, heads, head], has layouts of its
 * own (sinter_weights_heads_k, _v and _values), for which bits are 0 and transpose_b means nothing.
 * Its tokens are up to 256 or a multiple of 256, and may be unknown: the first n of them lie as a
 * cache of n tokens does.
 * sinter_invalid_shape: the tensor is not a matrix, or its dims are not known;
 * sinter_invalid_data_type: there is no such layout for its type; sinter_invalid_arguments: it is a
 * host scalar, or bits are out of range. After an error *lt is unchanged. sinter_reorder converts,
 * and docs/layouts.md describes the layouts. Thread-safe. */
SINTER_API sinter_status_t sinter_logical_tensor_set_weights_layout(sinter_logical_tensor_t *lt,
                                                                    sinter_weights_part_t part,
                                                                    int bits, int transpose_b);

/* Writes 1 into *equal if id, data type, dims, layout and (for layout strided) strides, (for layout
 * opaque) the layout's id are the same, else 0. Thread-safe. */
SINTER_API sinter_status_t sinter_logical_tensor_is_equal(const sinter_logical_tensor_t *a,
                                                          const sinter_logical_tensor_t *b,
                                                          int *equal);

/* ---- tensors --------------------------------------------------------------------------------- */

/* As the bytes of sinter_tensor_create and sinter_tensor_set_data: the caller vouches that the
 * buffer is large enough. */
#define SINTER_BYTES_TRUSTED ((size_t)-1)

/* Creates a tensor: data behind a logical tensor whose dims are all known. The memory stays the
 * caller's and must live as long as the tensor is used; it may have any alignment. bytes is how
 * much of it is readable, and writable if it is an output; fewer than the tensor needs is
 * sinter_invalid_arguments. data may be NULL if the tensor has no elements, or if
 * sinter_tensor_set_data follows. Layouts any and undef become dense. Destroy it with
 * sinter_tensor_destroy. Thread-safe. */
SINTER_API sinter_status_t sinter_tensor_create(sinter_tensor_t **tensor, sinter_engine_t *engine,
                                                const sinter_logical_tensor_t *lt, void *data,
                                                size_t bytes);

/* Creates a tensor of one element (another number of elements is sinter_invalid_arguments), with
 * a copy of the value, which is one element of lt's type. Each execute reads it anew.
 * sinter_tensor_set_scalar changes it. Destroy it with sinter_tensor_destroy. Thread-safe. */
SINTER_API sinter_status_t sinter_tensor_create_scalar(sinter_tensor_t **tensor,
                                                       sinter_engine_t *engine,
                                                       const sinter_logical_tensor_t *lt,
                                                       const void *value);

/* Gives a tensor of one element (another is sinter_invalid_arguments) a copy of the value, which is
 * one element of its data type. The copy belongs to the tensor, and its data pointer points there
 * from now on: memory that the tensor had before stays the caller's and is not touched. No
 * allocation. Not while another thread uses the tensor. */
SINTER_API sinter_status_t sinter_tensor_set_scalar(sinter_tensor_t *tensor, const void *value);

/* Destroys the tensor and sets *tensor to NULL; a *tensor of NULL is fine. The caller's memory
 * is left alone. No execute may be using the tensor. */
SINTER_API sinter_status_t sinter_tensor_destroy(sinter_tensor_t **tensor);

/* Lets the tensor point to other memory, with the conditions of sinter_tensor_create. No
 * allocation. Not while another thread uses the tensor. */
SINTER_API sinter_status_t sinter_tensor_set_data(sinter_tensor_t *tensor, void *data,
                                                  size_t bytes);

/* Gives the tensor another shape over the same memory, as a growing KV cache needs it. dims and
 * strides have ndims entries, in elements; strides NULL: dense. Id, data type and number of dims
 * stay: another ndims is sinter_invalid_arguments, and so are more bytes than the tensor's memory
 * has; nothing changes then. No allocation. Not while another thread uses the tensor. */
SINTER_API sinter_status_t sinter_tensor_set_dims(sinter_tensor_t *tensor, int ndims,
                                                  const sinter_dim_t *dims,
                                                  const sinter_dim_t *strides);

/* Copies all elements of `from` into `to`, of which one has an opaque layout and the other one
 * strides; data type and dims must be the same. But the one with strides may have fewer columns, or
 * tokens of codes in blocks, if the layout keeps all bits: these are the first ones, and the others
 * stay as they are. 16 columns (the dim that is not K) from a multiple of 16 on lie together in an
 * opaque layout, codes and values alike, so that ranges of columns can be converted one by one,
 * each as a tensor of its own. The caller's thread does it.
 * Not while another thread changes one of the tensors. */
SINTER_API sinter_status_t sinter_reorder(const sinter_tensor_t *from, sinter_tensor_t *to);

/* Writes the data pointer. It belongs to the caller, or, for a scalar, to the tensor.
 * Thread-safe while nobody changes the tensor. */
SINTER_API sinter_status_t sinter_tensor_get_data(const sinter_tensor_t *tensor, void **data);

/* Writes a copy of the logical tensor, with its present dims and strides in elements.
 * Thread-safe while nobody changes the tensor. */
SINTER_API sinter_status_t sinter_tensor_get_logical_tensor(const sinter_tensor_t *tensor,
                                                            sinter_logical_tensor_t *lt);

/* ---- ops ------------------------------------------------------------------------------------- */

/* Creates an op without ports and attributes. id is the caller's and names the op in messages
 * and JSON; it must be unique in its graph. name may be NULL and is copied. An unknown kind is
 * sinter_invalid_arguments. What the kind demands is checked when the op is added to a graph.
 * Destroy it with sinter_op_destroy. Thread-safe. */
SINTER_API sinter_status_t sinter_op_create(sinter_op_t **op, sinter_engine_t *engine, uint64_t id,
                                            sinter_op_kind_t kind, const char *name);

/* Destroys the op and sets *op to NULL; a *op of NULL is fine. Graphs that it was added to keep
 * their copy. */
SINTER_API sinter_status_t sinter_op_destroy(sinter_op_t **op);

/* Appends an input. Inputs have the order that docs/ops.md names. lt is copied. Not for an op
 * that another thread uses. */
SINTER_API sinter_status_t sinter_op_add_input(sinter_op_t *op, const sinter_logical_tensor_t *lt);

/* Appends an output, in the order that docs/ops.md names. lt is copied. Not for an op that
 * another thread uses. */
SINTER_API sinter_status_t sinter_op_add_output(sinter_op_t *op, const sinter_logical_tensor_t *lt);

/* Sets an attribute of kind f32 (count 1) or f32[]. The values are copied. The attribute's kind
 * follows from its id (attrs.def): another kind is sinter_invalid_arguments. Setting twice
 * replaces the value. Not for an op that another thread uses. */
SINTER_API sinter_status_t sinter_op_set_attr_f32(sinter_op_t *op, sinter_op_attr_t attr,
                                                  const float *values, size_t count);

/* Sets an attribute of kind s64 (count 1) or s64[]. The values are copied. The attribute's kind
 * follows from its id (attrs.def): another kind is sinter_invalid_arguments. Setting twice
 * replaces the value. Not for an op that another thread uses. */
SINTER_API sinter_status_t sinter_op_set_attr_s64(sinter_op_t *op, sinter_op_attr_t attr,
                                                  const int64_t *values, size_t count);

/* Sets an attribute of kind bool; any value but 0 is true. The attribute's kind follows from its
 * id (attrs.def): another kind is sinter_invalid_arguments. Setting twice replaces the value.
 * Not for an op that another thread uses. */
SINTER_API sinter_status_t sinter_op_set_attr_bool(sinter_op_t *op, sinter_op_attr_t attr,
                                                   int value);

/* Sets an attribute of kind string. The text is copied. The attribute's kind follows from its id
 * (attrs.def): another kind is sinter_invalid_arguments. Setting twice replaces the value. Not
 * for an op that another thread uses. */
SINTER_API sinter_status_t sinter_op_set_attr_str(sinter_op_t *op, sinter_op_attr_t attr,
                                                  const char *value);

/* Writes the id that the op was created with. Thread-safe while nobody changes the op. */
SINTER_API sinter_status_t sinter_op_get_id(const sinter_op_t *op, uint64_t *id);

/* Writes the kind that the op was created with. Thread-safe while nobody changes the op. */
SINTER_API sinter_status_t sinter_op_get_kind(const sinter_op_t *op, sinter_op_kind_t *kind);

/* ---- graph ----------------------------------------------------------------------------------- */

/* Creates an empty graph in fpmath mode strict. kind must be sinter_cpu or sinter_any_engine,
 * else sinter_unimplemented. Destroy it with sinter_graph_destroy. Thread-safe; the graph is for
 * one thread at a time. */
SINTER_API sinter_status_t sinter_graph_create(sinter_graph_t **graph, sinter_engine_t *engine,
                                               sinter_engine_kind_t kind);

/* The same with another fpmath mode, which the graph's partitions start with. An unknown mode is
 * sinter_invalid_arguments. Thread-safe; the graph is for one thread at a time. */
SINTER_API sinter_status_t sinter_graph_create_with_fpmath_mode(sinter_graph_t **graph,
                                                                sinter_engine_t *engine,
                                                                sinter_engine_kind_t kind,
                                                                sinter_fpmath_mode_t mode,
                                                                int apply_to_int);

/* Destroys the graph and sets *graph to NULL; a *graph of NULL is fine. Partitions taken from it
 * live on. */
SINTER_API sinter_status_t sinter_graph_destroy(sinter_graph_t **graph);

/* Sets the mode that partitions start with, from the next sinter_graph_filter on. apply_to_int
 * other than 0 extends it to arithmetic of integers with floats. An unknown mode is
 * sinter_invalid_arguments. */
SINTER_API sinter_status_t sinter_graph_set_fpmath_mode(sinter_graph_t *graph,
                                                        sinter_fpmath_mode_t mode,
                                                        int apply_to_int);

/* Writes the graph's mode and whether it applies to integers (0 or 1). */
SINTER_API sinter_status_t sinter_graph_get_fpmath_mode(const sinter_graph_t *graph,
                                                        sinter_fpmath_mode_t *mode,
                                                        int *apply_to_int);

/* Checks the op against its schema and copies it into the graph; the op stays the caller's. The
 * status says what is wrong: sinter_invalid_graph_op (ports, attributes),
 * sinter_invalid_data_type, sinter_invalid_shape; after finalize sinter_invalid_arguments. An op
 * that is refused leaves the graph as it was. Tensors with the same id are the same tensor. */
SINTER_API sinter_status_t sinter_graph_add_op(sinter_graph_t *graph, const sinter_op_t *op);

/* Says which inputs and outputs the graph has, by tensor id. The lists are copied. Optional:
 * without this call every tensor without a producer is an input, and every tensor without a
 * consumer is an output. With a count of 0 that side stays as without the call.
 * A listed output may be consumed inside the graph too: then it is kept as an output of its
 * partition. Ops on which no listed output depends are left out: they are in no partition. A
 * list of inputs must be complete, and ids must exist, else finalize gives sinter_invalid_graph. */
SINTER_API sinter_status_t sinter_graph_set_ports(sinter_graph_t *graph, size_t n_inputs,
                                                  const uint64_t *inputs, size_t n_outputs,
                                                  const uint64_t *outputs);

/* Ends building: checks that each tensor has at most one producer, that there is no cycle and
 * that tensors agree, and infers shapes. Errors are sinter_invalid_graph and
 * sinter_invalid_shape; the graph is then not finalized. Afterwards sinter_graph_add_op is
 * sinter_invalid_arguments. A second call does nothing. */
SINTER_API sinter_status_t sinter_graph_finalize(sinter_graph_t *graph);

/* Writes 1 into *finalized if sinter_graph_finalize has succeeded, else 0. */
SINTER_API sinter_status_t sinter_graph_is_finalized(const sinter_graph_t *graph, int *finalized);

/* Divides a finalized graph into partitions. Calling it again, with the same policy or another
 * one, divides the graph anew; partitions taken before live on. A graph that is not finalized,
 * or an unknown policy, is sinter_invalid_arguments. */
SINTER_API sinter_status_t sinter_graph_filter(sinter_graph_t *graph,
                                               sinter_partition_policy_t policy);

/* Writes the number of partitions. Before sinter_graph_filter: sinter_invalid_arguments. */
SINTER_API sinter_status_t sinter_graph_get_partition_num(const sinter_graph_t *graph,
                                                          size_t *count);

/* Writes the partitions in execution order. partitions has room for count entries; fewer than
 * there are is sinter_invalid_arguments. Each is the caller's, to destroy with
 * sinter_partition_destroy. */
SINTER_API sinter_status_t sinter_graph_get_partitions(sinter_graph_t *graph, size_t count,
                                                       sinter_partition_t **partitions);

/* Writes a tensor of a finalized graph with everything that was inferred; what is unknown stays
 * unknown. An unknown id is sinter_invalid_arguments. */
SINTER_API sinter_status_t sinter_graph_query_logical_tensor(const sinter_graph_t *graph,
                                                             uint64_t id,
                                                             sinter_logical_tensor_t *lt);

/* Writes a finalized graph as JSON into the file, in the format that graph_runner loads. A file
 * that cannot be written is sinter_runtime_error. */
SINTER_API sinter_status_t sinter_graph_dump(const sinter_graph_t *graph, const char *path);

#ifdef __cplusplus
}
#endif
#endif
