/* Engines, streams, tensors, ops and graphs. Read the manners in sinter.h first. */
#ifndef SINTER_GRAPH_H
#define SINTER_GRAPH_H

#include "sinter_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- library --------------------------------------------------------------------------------- */

/* major * 10000 + minor * 100 + patch of the library at run time. */
SINTER_API int sinter_version(void);

/* The calling thread's last failure: never NULL, "" when there was none; valid until this
 * thread's next failing call. */
SINTER_API const char *sinter_last_error_message(void);

/* A short static name of a status, "unknown" for anything else. */
SINTER_API const char *sinter_status_name(sinter_status_t status);

/* Static names as in JSON ("f16", "MatMul", "axis"); NULL for an unknown value. The parsers
 * return 0 and leave *out alone on an unknown name. */
SINTER_API const char *sinter_data_type_name(sinter_data_type_t type);
SINTER_API const char *sinter_op_kind_name(sinter_op_kind_t kind);
SINTER_API const char *sinter_op_attr_name(sinter_op_attr_t attr);
SINTER_API const char *sinter_fpmath_mode_name(sinter_fpmath_mode_t mode);
SINTER_API const char *sinter_cpu_isa_name(sinter_cpu_isa_t isa);
SINTER_API int sinter_data_type_parse(const char *name, sinter_data_type_t *out);
SINTER_API int sinter_op_kind_parse(const char *name, sinter_op_kind_t *out);
SINTER_API int sinter_op_attr_parse(const char *name, sinter_op_attr_t *out);
SINTER_API int sinter_fpmath_mode_parse(const char *name, sinter_fpmath_mode_t *out);
SINTER_API int sinter_cpu_isa_parse(const char *name, sinter_cpu_isa_t *out);

/* 1 if the library executes this op kind, 0 if it is only checked and partitioned. */
SINTER_API int sinter_op_kind_is_executed(sinter_op_kind_t kind);

/* ---- what an op may look like ----------------------------------------------------------------- */

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

/* Writes the port and attribute counts of a kind into *schema; set schema->size first. An unknown
 * kind, or a size that is too small, is sinter_invalid_arguments. Thread-safe.
 * graph_runner --describe-op prints all that these functions tell. */
SINTER_API sinter_status_t sinter_op_kind_get_schema(sinter_op_kind_t kind,
                                                     sinter_op_schema_t *schema);

/* Writes the rule of attribute number index, 0 <= index < n_attrs, into *rule; set rule->size
 * first. Errors as for sinter_op_kind_get_schema. Rules that tie several attributes or tensors
 * together are not in it: add_op checks those. Thread-safe. */
SINTER_API sinter_status_t sinter_op_kind_get_attr_rule(sinter_op_kind_t kind, size_t index,
                                                        sinter_op_attr_rule_t *rule);

/* 1 if input number port (counted from 0) of the kind may have this data type, else 0, also where
 * the kind or the port does not exist. Thread-safe. */
SINTER_API int sinter_op_kind_input_takes(sinter_op_kind_t kind, int port, sinter_data_type_t type);

/* The same for output number port. Thread-safe. */
SINTER_API int sinter_op_kind_output_takes(sinter_op_kind_t kind, int port,
                                           sinter_data_type_t type);

/* ---- messages and dumps ---------------------------------------------------------------------- */

/* Messages on stderr: a comma-separated list of "error", "dispatch" (why a partition or kernel
 * was chosen or refused), "compile", "exec", "all", or "none". "exec" prints a line for each
 * execute: dims, threads, time, and for each step its kernel, the code path that it took and why
 * not a faster one. Overrides SINTER_VERBOSE. NULL or an unknown word: sinter_invalid_arguments. */
SINTER_API sinter_status_t sinter_set_verbose(const char *words);

/* A list of "graph" and "subgraph", or "none": finalize writes the graph, get_partitions each
 * partition, as JSON files sinter-graph-<n>.json and sinter-subgraph-<n>-<partition>.json into
 * the current directory. Overrides SINTER_GRAPH_DUMP. */
SINTER_API sinter_status_t sinter_set_graph_dump(const char *words);

/* ---- engine and stream ----------------------------------------------------------------------- */

typedef struct sinter_engine_desc {
    size_t size;                  /* sizeof(sinter_engine_desc_t) */
    sinter_allocator_t allocator; /* all NULL: aligned malloc; else both callbacks */
    sinter_cpu_isa_t max_isa;     /* never use more than this */
} sinter_engine_desc_t;

/* desc NULL: all defaults. Thread-safe. */
SINTER_API sinter_status_t sinter_engine_create(sinter_engine_t **engine,
                                                const sinter_engine_desc_t *desc);
SINTER_API sinter_status_t sinter_engine_destroy(sinter_engine_t **engine);
/* The level in use: the least of the machine's, the engine's and SINTER_MAX_CPU_ISA's. engine
 * may be NULL. */
SINTER_API sinter_cpu_isa_t sinter_engine_get_isa(const sinter_engine_t *engine);

/* The constant cache. Where a kernel wants an input of property `constant` (weights) in another
 * layout than the tensor's, the first execute makes a copy in that layout; later ones, of all
 * compiled partitions of the engine, find it by the tensor's data pointer, dims and strides. A
 * copy goes when the last compiled partition that has used it is destroyed, or by invalidation.
 * Whoever changes or frees the buffer of a constant before that must say so, or executes with
 * that address read the copy of what was there. engine may be NULL; all are thread-safe. */
typedef struct sinter_constant_cache_stats {
    size_t size; /* sizeof(sinter_constant_cache_stats_t), set by the caller */
    size_t budget,
        /* of copies: most that are kept, and those there are, ones in use by an execute included */
        bytes;
    size_t entries;        /* copies that can be found */
    uint64_t packed, hits; /* copies made; times one was found */
    uint64_t
        /* times the budget had no room, and the kernel read the tensor as it is, which may be
         * much slower */
        refused;
    uint64_t evicted; /* copies that had to go to make room */
} sinter_constant_cache_stats_t;

/* At first there is no limit (SIZE_MAX). 0: no copies. Those used longest ago go first. */
SINTER_API sinter_status_t sinter_engine_set_constant_cache_budget(sinter_engine_t *engine,
                                                                   size_t bytes);
SINTER_API sinter_status_t sinter_engine_get_constant_cache_stats(
    const sinter_engine_t *engine, sinter_constant_cache_stats_t *stats);
/* Forgets all copies of data in [data, data + bytes); executes that read one at this moment
 * finish with it. */
SINTER_API sinter_status_t sinter_engine_invalidate_constants(sinter_engine_t *engine,
                                                              const void *data, size_t bytes);

typedef struct sinter_stream_desc {
    size_t size; /* sizeof(sinter_stream_desc_t) */
    /* threads per execute; 0: as many as OpenMP would use by default when the stream is created */
    int threads;
} sinter_stream_desc_t;

SINTER_API sinter_status_t sinter_stream_create(sinter_stream_t **stream, sinter_engine_t *engine,
                                                const sinter_stream_desc_t *desc);
SINTER_API sinter_status_t sinter_stream_destroy(sinter_stream_t **stream);
/* The threads that an execute from this thread uses: fewer than the desc's where the system refused
 * them (SINTER_VERBOSE=exec prints that), 1 where a fork has taken them away. */
SINTER_API sinter_status_t sinter_stream_get_threads(const sinter_stream_t *stream, int *threads);

/* ---- logical tensors ------------------------------------------------------------------------- */

/* Known dims and dense row-major strides. dims NULL only if ndims is 0. */
SINTER_API sinter_status_t sinter_logical_tensor_init(sinter_logical_tensor_t *lt, uint64_t id,
                                                      sinter_data_type_t type, int ndims,
                                                      const sinter_dim_t *dims,
                                                      sinter_tensor_property_t property);
/* The same with strides in elements. */
SINTER_API sinter_status_t sinter_logical_tensor_init_with_strides(
    sinter_logical_tensor_t *lt, uint64_t id, sinter_data_type_t type, int ndims,
    const sinter_dim_t *dims, const sinter_dim_t *strides, sinter_tensor_property_t property);
/* Dims unknown, number of dims known or SINTER_UNKNOWN_NDIMS; layout any. */
SINTER_API sinter_status_t sinter_logical_tensor_init_unknown(sinter_logical_tensor_t *lt,
                                                              uint64_t id, sinter_data_type_t type,
                                                              int ndims,
                                                              sinter_tensor_property_t property);
/* Bytes from the first element to the end of the last one; overflow or unknown dims are
 * sinter_invalid_shape. */
SINTER_API sinter_status_t sinter_logical_tensor_get_bytes(const sinter_logical_tensor_t *lt,
                                                           size_t *bytes);
/* *equal = 1 if id, type, dims, layout and strides are the same. */
SINTER_API sinter_status_t sinter_logical_tensor_is_equal(const sinter_logical_tensor_t *a,
                                                          const sinter_logical_tensor_t *b,
                                                          int *equal);

/* ---- tensors --------------------------------------------------------------------------------- */

/* For sinter_tensor_create's bytes when the caller vouches for the buffer. */
#define SINTER_BYTES_TRUSTED ((size_t)-1)

/* Data behind a logical tensor whose dims are all known. data may have any alignment and stays
 * the caller's; bytes is what is readable (and, for outputs, writable) from it. Too few bytes:
 * sinter_invalid_arguments. data may be NULL if the tensor has no elements, or to be set later. */
SINTER_API sinter_status_t sinter_tensor_create(sinter_tensor_t **tensor, sinter_engine_t *engine,
                                                const sinter_logical_tensor_t *lt, void *data,
                                                size_t bytes);
/* A host scalar: lt has one element; the value (one element of lt's type) is copied. */
SINTER_API sinter_status_t sinter_tensor_create_scalar(sinter_tensor_t **tensor,
                                                       sinter_engine_t *engine,
                                                       const sinter_logical_tensor_t *lt,
                                                       const void *value);
SINTER_API sinter_status_t sinter_tensor_destroy(sinter_tensor_t **tensor);
SINTER_API sinter_status_t sinter_tensor_set_data(sinter_tensor_t *tensor, void *data,
                                                  size_t bytes);
/* A new shape over the same buffer, as a growing KV cache needs it: same id, type and rank;
 * checked like sinter_tensor_create. No allocation. */
SINTER_API sinter_status_t sinter_tensor_set_dims(sinter_tensor_t *tensor, const sinter_dim_t *dims,
                                                  const sinter_dim_t *strides);
SINTER_API sinter_status_t sinter_tensor_get_data(const sinter_tensor_t *tensor, void **data);
SINTER_API sinter_status_t sinter_tensor_get_logical_tensor(const sinter_tensor_t *tensor,
                                                            sinter_logical_tensor_t *lt);

/* ---- ops ------------------------------------------------------------------------------------- */

/* name may be NULL. The kind's schema is checked when the op is added to a graph. */
SINTER_API sinter_status_t sinter_op_create(sinter_op_t **op, sinter_engine_t *engine, uint64_t id,
                                            sinter_op_kind_t kind, const char *name);
SINTER_API sinter_status_t sinter_op_destroy(sinter_op_t **op);
SINTER_API sinter_status_t sinter_op_add_input(sinter_op_t *op, const sinter_logical_tensor_t *lt);
SINTER_API sinter_status_t sinter_op_add_output(sinter_op_t *op, const sinter_logical_tensor_t *lt);
/* The attribute's kind follows from its id (attrs.def); another kind, or count != 1 for a scalar
 * kind, is sinter_invalid_arguments. Setting twice replaces the value. */
SINTER_API sinter_status_t sinter_op_set_attr_f32(sinter_op_t *op, sinter_op_attr_t attr,
                                                  const float *values, size_t count);
SINTER_API sinter_status_t sinter_op_set_attr_s64(sinter_op_t *op, sinter_op_attr_t attr,
                                                  const int64_t *values, size_t count);
SINTER_API sinter_status_t sinter_op_set_attr_bool(sinter_op_t *op, sinter_op_attr_t attr,
                                                   int value);
SINTER_API sinter_status_t sinter_op_set_attr_str(sinter_op_t *op, sinter_op_attr_t attr,
                                                  const char *value);
SINTER_API sinter_status_t sinter_op_get_id(const sinter_op_t *op, uint64_t *id);
SINTER_API sinter_status_t sinter_op_get_kind(const sinter_op_t *op, sinter_op_kind_t *kind);

/* ---- graph ----------------------------------------------------------------------------------- */

/* kind must be sinter_cpu or sinter_any_engine (else sinter_unimplemented). */
SINTER_API sinter_status_t sinter_graph_create(sinter_graph_t **graph, sinter_engine_t *engine,
                                               sinter_engine_kind_t kind);
SINTER_API sinter_status_t sinter_graph_create_with_fpmath_mode(sinter_graph_t **graph,
                                                                sinter_engine_t *engine,
                                                                sinter_engine_kind_t kind,
                                                                sinter_fpmath_mode_t mode,
                                                                int apply_to_int);
SINTER_API sinter_status_t sinter_graph_destroy(sinter_graph_t **graph);
SINTER_API sinter_status_t sinter_graph_set_fpmath_mode(sinter_graph_t *graph,
                                                        sinter_fpmath_mode_t mode,
                                                        int apply_to_int);
SINTER_API sinter_status_t sinter_graph_get_fpmath_mode(const sinter_graph_t *graph,
                                                        sinter_fpmath_mode_t *mode,
                                                        int *apply_to_int);
/* Checks the op against its schema and copies it in; the op stays the caller's. A failing op
 * leaves the graph as it was. */
SINTER_API sinter_status_t sinter_graph_add_op(sinter_graph_t *graph, const sinter_op_t *op);
/* Which graph inputs and outputs exist, by tensor id. Optional: without it every tensor without
 * producer is an input and every tensor without consumer an output. An id that the graph does not
 * have is sinter_invalid_graph at finalize. A listed output may also be consumed inside: it is then
 * kept as an output of its partition. Ops on which no listed output depends are left out: they are
 * in no partition. With a count of 0 that side stays as without the call; a list of inputs must be
 * complete (else sinter_invalid_graph at finalize). */
SINTER_API sinter_status_t sinter_graph_set_ports(sinter_graph_t *graph, size_t n_inputs,
                                                  const uint64_t *inputs, size_t n_outputs,
                                                  const uint64_t *outputs);
/* Ends building: checks producers, cycles and that tensors agree, and infers shapes. add_op
 * afterwards is sinter_invalid_arguments. */
SINTER_API sinter_status_t sinter_graph_finalize(sinter_graph_t *graph);
SINTER_API sinter_status_t sinter_graph_is_finalized(const sinter_graph_t *graph, int *finalized);
/* Partitions a finalized graph. Calling again with another policy partitions anew. */
SINTER_API sinter_status_t sinter_graph_filter(sinter_graph_t *graph,
                                               sinter_partition_policy_t policy);
/* Both need a filter call before. partitions has room for count entries; each is a new object
 * for the caller to destroy. In execution order. */
SINTER_API sinter_status_t sinter_graph_get_partition_num(const sinter_graph_t *graph,
                                                          size_t *count);
SINTER_API sinter_status_t sinter_graph_get_partitions(sinter_graph_t *graph, size_t count,
                                                       sinter_partition_t **partitions);
/* A logical tensor of a finalized graph with everything inferred. Unknown id:
 * sinter_invalid_arguments. */
SINTER_API sinter_status_t sinter_graph_query_logical_tensor(const sinter_graph_t *graph,
                                                             uint64_t id,
                                                             sinter_logical_tensor_t *lt);
/* Writes the graph as JSON, in the format that graph_runner loads. */
SINTER_API sinter_status_t sinter_graph_dump(const sinter_graph_t *graph, const char *path);

#ifdef __cplusplus
}
#endif
#endif
