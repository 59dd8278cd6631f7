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

#if defined(SINTER_STATIC)
#define SINTER_API
#else
#define SINTER_API __attribute__((visibility("default")))
#endif

#define SINTER_MAX_NDIMS 12
/* Number of dimensions not known yet. */
#define SINTER_UNKNOWN_NDIMS (-1)
/* A dimension or a stride not known yet. */
#define SINTER_UNKNOWN_DIM INT64_MIN

/* What the caller should do about it is said behind each. */
typedef enum sinter_status {
    sinter_success = 0,
    sinter_out_of_memory = 1, /* the allocator returned NULL: free something and call again */
    sinter_invalid_arguments =
        2, /* a NULL, a wrong call order, a tensor that does not fit: mend the call */
    sinter_unimplemented = 3, /* valid, but not run by this library: the message has the reason */
    sinter_last_impl_reached = 4, /* kept for numbering */
    sinter_runtime_error = 5,     /* the system failed (threads, code pages, files) */
    sinter_not_required = 6,      /* kept for numbering */
    sinter_invalid_graph = 7,     /* cycle, dangling or doubly produced tensor */
    sinter_invalid_graph_op = 8,  /* an op that breaks its schema: arity, attribute, constraint */
    sinter_invalid_shape = 9,     /* dims or strides that contradict each other or overflow */
    sinter_invalid_data_type = 10 /* a data type that the op's schema does not have */
} sinter_status_t;

typedef enum sinter_data_type {
    sinter_data_type_undef = 0,
#define SINTER_DTYPE(value, name, ...) sinter_##name = value,
#include "dtypes.def"
#undef SINTER_DTYPE
} sinter_data_type_t;

typedef enum sinter_op_kind {
#define SINTER_OP(value, name, ...) sinter_op_##name = value,
#include "ops.def"
#undef SINTER_OP
    sinter_op_last_symbol
} sinter_op_kind_t;

typedef enum sinter_op_attr {
    sinter_op_attr_undef = 0,
#define SINTER_ATTR(value, name, kind) sinter_op_attr_##name = value,
#include "attrs.def"
#undef SINTER_ATTR
    sinter_op_attr_end = 0xFF
} sinter_op_attr_t;

typedef enum sinter_engine_kind {
    sinter_any_engine = 0,
    sinter_cpu = 1,
    sinter_gpu = 2
} sinter_engine_kind_t;

typedef enum sinter_layout_type {
    sinter_layout_type_undef = 0,
    sinter_layout_type_any =
        /* dense row-major; for an input with dynamic dims: whatever strides the tensor has at
         * execute */
    1,
    sinter_layout_type_strided = 2, /* strides in elements, any order */
    sinter_layout_type_opaque =
        3 /* accepted by the JSON reader, refused by add_op: Sinter has no opaque layouts */
} sinter_layout_type_t;

typedef enum sinter_tensor_property {
    sinter_tensor_property_undef = 0,
    sinter_tensor_property_variable = 1,
    sinter_tensor_property_constant = 2,   /* the data does not change between executes */
    sinter_tensor_property_host_scalar = 3 /* a scalar handed over by value */
} sinter_tensor_property_t;

/* How far f32/f16/bf16 arithmetic, and int x float arithmetic with apply_to_int, may depart from
 * f32. The README's numeric contract has the bounds. */
typedef enum sinter_fpmath_mode {
    sinter_fpmath_mode_strict = 0,
    sinter_fpmath_mode_bf16 = 1,
    sinter_fpmath_mode_f16 = 2,
    sinter_fpmath_mode_any = 3,
    sinter_fpmath_mode_tf32 = 4,
    sinter_fpmath_mode_int8 =
        64 /* extension: activations may be quantised to s8 per group on the fly */
} sinter_fpmath_mode_t;

typedef enum sinter_partition_policy {
    sinter_partition_policy_fusion = 1,
    sinter_partition_policy_debug = 2 /* every op its own partition */
} sinter_partition_policy_t;

/* Instruction sets, each containing the ones before it. */
typedef enum sinter_cpu_isa {
    sinter_isa_default = 0, /* whatever the machine has */
    sinter_isa_generic = 1, /* portable C only */
    sinter_isa_avx2 = 2,    /* AVX2, FMA, F16C */
    sinter_isa_avx512 = 3,  /* AVX-512 F, BW, DQ, VL */
    sinter_isa_avx512_vnni = 4
} sinter_cpu_isa_t;

typedef int64_t sinter_dim_t;

/* A tensor without data. Two logical tensors with one id in one graph are the same tensor and
 * must agree in data type, dims and strides wherever both know them. Strides are in elements,
 * also for types narrower than a byte; the packed dimension of those is the one of stride 1,
 * whether it has several elements or one. A scalar has ndims 0. */
typedef struct sinter_logical_tensor {
    uint64_t id;
    int32_t ndims; /* 0..SINTER_MAX_NDIMS, or SINTER_UNKNOWN_NDIMS */
    sinter_dim_t dims[SINTER_MAX_NDIMS];
    sinter_data_type_t data_type;
    sinter_tensor_property_t property;
    sinter_layout_type_t layout_type;
    sinter_dim_t strides[SINTER_MAX_NDIMS]; /* meaningful for layout strided */
} sinter_logical_tensor_t;

/* Memory callbacks. alloc returns NULL when it has none; alignment is a power of two. Both may
 * be called from any thread at any time. */
typedef struct sinter_allocator {
    void *(*alloc)(size_t bytes, size_t alignment, void *user);
    void (*free)(void *ptr, void *user);
    void *user;
} sinter_allocator_t;

typedef struct sinter_inplace_pair {
    uint64_t input_id;
    uint64_t output_id;
} sinter_inplace_pair_t;

/* Opaque objects. */
typedef struct sinter_engine sinter_engine_t;
typedef struct sinter_stream sinter_stream_t;
typedef struct sinter_op sinter_op_t;
typedef struct sinter_graph sinter_graph_t;
typedef struct sinter_partition sinter_partition_t;
typedef struct sinter_compiled_partition sinter_compiled_partition_t;
typedef struct sinter_tensor sinter_tensor_t;

#ifdef __cplusplus
}
#endif
#endif
