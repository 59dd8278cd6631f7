/* Status codes, enumerations and the plain structs of the API. Numbers of data types, op kinds,
 * attributes, layouts, properties, statuses, fpmath modes and policies are those of oneDNN
 * Graph. */
#ifndef SINTER_TYPES_H
#define SINTER_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Define SINTER_STATIC where the static library is linked; the CMake target does. */
#if defined(SINTER_STATIC)
#define SINTER_API
#else
#define SINTER_API __attribute__((visibility("default")))
#endif

/* No tensor has more dimensions. */
#define SINTER_MAX_NDIMS 12
/* As ndims: the number of dimensions is not known yet. */
#define SINTER_UNKNOWN_NDIMS (-1)
/* As a dim or a stride: not known yet. */
#define SINTER_UNKNOWN_DIM INT64_MIN

/* The result of a call. The comment of each says what the caller should do about it. */
typedef enum sinter_status {
    sinter_success = 0,
    /* The allocator returned NULL: free something and call again. */
    sinter_out_of_memory = 1,
    /* A NULL, a wrong order of calls, a tensor that does not fit: mend the call. */
    sinter_invalid_arguments = 2,
    /* Valid, but not run by this library. The message has the reason: run it in another way. */
    sinter_unimplemented = 3,
    /* Not used; keeps oneDNN Graph's numbering. */
    sinter_last_impl_reached = 4,
    /* The system failed: threads, memory for code, files. */
    sinter_runtime_error = 5,
    /* Not used; keeps oneDNN Graph's numbering. */
    sinter_not_required = 6,
    /* A cycle, a tensor that nobody produces or that two ops produce: mend the graph. */
    sinter_invalid_graph = 7,
    /* An op that breaks its schema, in ports, attributes or their relation: see docs/ops.md. */
    sinter_invalid_graph_op = 8,
    /* Dims or strides that contradict each other, or a size that overflows. */
    sinter_invalid_shape = 9,
    /* A data type that the op does not take at this port: see docs/ops.md. */
    sinter_invalid_data_type = 10
} sinter_status_t;

/* Data types: one for each row of dtypes.def, sinter_f32 and so on. Numbers below 64 are oneDNN
 * Graph's. graph_runner --describe-dtype=NAME tells all about one. */
typedef enum sinter_data_type {
    sinter_data_type_undef = 0,
#define SINTER_DTYPE(value, name, ...) sinter_##name = value,
#include "dtypes.def"
#undef SINTER_DTYPE
} sinter_data_type_t;

/* Op kinds: one for each row of ops.def, sinter_op_matmul and so on. docs/ops.md describes them. */
typedef enum sinter_op_kind {
#define SINTER_OP(value, name, ...) sinter_op_##name = value,
#include "ops.def"
#undef SINTER_OP
    sinter_op_last_symbol
} sinter_op_kind_t;

/* Attributes of ops: one for each row of attrs.def, sinter_op_attr_axis and so on. */
typedef enum sinter_op_attr {
    sinter_op_attr_undef = 0,
#define SINTER_ATTR(value, name, kind) sinter_op_attr_##name = value,
#include "attrs.def"
#undef SINTER_ATTR
    sinter_op_attr_end = 0xFF
} sinter_op_attr_t;

/* What a graph is to run on. There are CPU engines only. */
typedef enum sinter_engine_kind {
    sinter_any_engine = 0,
    sinter_cpu = 1,
    sinter_gpu = 2
} sinter_engine_kind_t;

/* How the elements of a tensor lie in memory. */
typedef enum sinter_layout_type {
    /* Not said; treated as any. */
    sinter_layout_type_undef = 0,
    /* The library chooses, which means dense row-major. For an input with dynamic dims: whatever
     * strides the tensor has at execute. For an input that is a part of the second operand of a
     * MatMul (sinter_weights_part_t): perhaps an opaque layout, so ask the compiled partition. */
    sinter_layout_type_any = 1,
    /* As the strides say: elements from one index to the next, the dims in any order. */
    sinter_layout_type_strided = 2,
    /* As the library wants it: layout_id says which. MatMul reads its second operand so, attention
     * its caches, a Reorder makes it, and ScatterRows writes tokens into it. */
    sinter_layout_type_opaque = 3
} sinter_layout_type_t;

/* What the caller promises about a tensor's data. */
typedef enum sinter_tensor_property {
    sinter_tensor_property_undef = 0,
    /* The data may change with each execute; the same as undef. */
    sinter_tensor_property_variable = 1,
    /* The data does not change between executes, so that the library may keep a copy in another
     * layout: see the constant cache in sinter_graph.h. */
    sinter_tensor_property_constant = 2,
    /* One element in the host's memory. Each execute reads it anew. */
    sinter_tensor_property_host_scalar = 3
} sinter_tensor_property_t;

/* How far products of f32, f16 and bf16 operands may depart from f32. With apply_to_int the mode
 * also covers products of integers with floats. A mode is a permission: kernels may be more
 * exact. docs/numerics.md has the bounds. */
typedef enum sinter_fpmath_mode {
    /* f32 operands, f32 sums. */
    sinter_fpmath_mode_strict = 0,
    /* Operands may have 8 significant bits. */
    sinter_fpmath_mode_bf16 = 1,
    /* Operands may have 11 significant bits. */
    sinter_fpmath_mode_f16 = 2,
    /* As bf16. */
    sinter_fpmath_mode_any = 3,
    /* Operands may have 11 significant bits. */
    sinter_fpmath_mode_tf32 = 4,
    /* Beyond oneDNN Graph: activations may be quantised to s8 for each group of the other
     * operand. */
    sinter_fpmath_mode_int8 = 64
} sinter_fpmath_mode_t;

/* How a graph is divided into partitions. */
typedef enum sinter_partition_policy {
    /* The largest fusion pattern that matches. */
    sinter_partition_policy_fusion = 1,
    /* Every op is a partition of its own. */
    sinter_partition_policy_debug = 2
} sinter_partition_policy_t;

/* Instruction sets: what a CPU has, and caps. Each of 1 to 4 includes the ones before it, and 5
 * includes 1 and 2. A larger number does not mean more instructions, so do not compare them with <
 * or >. */
typedef enum sinter_cpu_isa {
    sinter_isa_default = 0,     /* whatever the machine has */
    sinter_isa_generic = 1,     /* portable C only */
    sinter_isa_avx2 = 2,        /* AVX2, FMA, F16C */
    sinter_isa_avx512 = 3,      /* AVX-512 F, BW, DQ, VL */
    sinter_isa_avx512_vnni = 4, /* and VNNI; also BF16 and AVX-VNNI where the machine has them */
    sinter_isa_avx2_vnni = 5    /* AVX2 and AVX-VNNI, without AVX-512 */
} sinter_cpu_isa_t;

/* A dim, a stride or an index, in elements. */
typedef int64_t sinter_dim_t;

/* A tensor without data: what the graph knows of it. Two logical tensors with one id in one
 * graph are the same tensor and must agree in data type, dims and strides wherever both know
 * them.
 *
 * Types narrower than a byte are packed along the dim of stride 1, whether it has several
 * elements or one; strides are in elements for them as well. A scalar has ndims 0. */
typedef struct sinter_logical_tensor {
    uint64_t id;                         /* unique in its graph, chosen by the caller */
    int32_t ndims;                       /* 0..SINTER_MAX_NDIMS, or SINTER_UNKNOWN_NDIMS */
    sinter_dim_t dims[SINTER_MAX_NDIMS]; /* in elements; SINTER_UNKNOWN_DIM: not known yet */
    sinter_data_type_t data_type;
    sinter_tensor_property_t property;
    sinter_layout_type_t layout_type;
    union {
        sinter_dim_t strides[SINTER_MAX_NDIMS]; /* layout strided: in elements */
        /* Layout opaque: from sinter_compiled_partition_query_logical_tensor or
         * sinter_logical_tensor_set_weights_layout. */
        uint64_t layout_id;
    };
} sinter_logical_tensor_t;

/* What a tensor is of the second operand of a MatMul. */
typedef enum sinter_weights_part {
    /* What DynamicDequantize reads; or all of the operand, plain floats of f32, f16 or bf16. */
    sinter_weights_codes = 0,
    sinter_weights_values = 1, /* its scales, zero points or offsets, and scales of these */
    /* Codes of s8 that are numbers of the table of IQ4_NL (docs/layouts.md), of which four bits are
     * stored: which one. sinter_reorder refuses others. */
    sinter_weights_codes_iq4_nl = 2,
    /* Codes, or plain floats, in blocks of 256 elements of K: V of attention, whose K is the
     * tokens. */
    sinter_weights_codes_blocks = 3,
    /* Of a cache of attention with the dims [tokens, heads, head]: codes or plain floats of K,
     * those of V, and the coefficients of both. */
    sinter_weights_heads_k = 4,
    sinter_weights_heads_v = 5,
    sinter_weights_heads_values = 6
} sinter_weights_part_t;

/* Memory callbacks of an engine. Both may be called from any thread at any time, and neither may
 * call the library. */
typedef struct sinter_allocator {
    /* bytes of memory at a multiple of alignment, a power of two; NULL if there is none. */
    void *(*alloc)(size_t bytes, size_t alignment, void *user);
    /* Frees what alloc returned. */
    void (*free)(void *ptr, void *user);
    /* Handed to both. */
    void *user;
} sinter_allocator_t;

/* An input and an output of a compiled partition that may share one buffer, by tensor id. */
typedef struct sinter_inplace_pair {
    uint64_t input_id;
    uint64_t output_id;
} sinter_inplace_pair_t;

/* The objects; their insides belong to the library. */
typedef struct sinter_engine sinter_engine_t;       /* allocator, cap, constant cache */
typedef struct sinter_stream sinter_stream_t;       /* how many threads execute */
typedef struct sinter_op sinter_op_t;               /* kind, ports, attributes */
typedef struct sinter_graph sinter_graph_t;         /* ops over logical tensors */
typedef struct sinter_partition sinter_partition_t; /* a part of a graph that runs as one unit */
typedef struct sinter_compiled_partition sinter_compiled_partition_t; /* steps with kernels */
typedef struct sinter_tensor sinter_tensor_t;                 /* a logical tensor with data */
typedef struct sinter_sequence sinter_sequence_t;             /* executes that run in one go */
typedef struct sinter_compiled_graph sinter_compiled_graph_t; /* a graph that runs as a whole */

#ifdef __cplusplus
}
#endif
#endif
