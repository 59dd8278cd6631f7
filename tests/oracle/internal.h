/* Inside the oracle: values with bounds, the context an op runs in, and the engines that several
 * ops share. */
#ifndef SINTER_TESTS_ORACLE_INTERNAL_H
#define SINTER_TESTS_ORACLE_INTERNAL_H

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"

/* Largest error of one rounding to f32: relative, and absolute where it is below the normal
 * numbers. */
#define ORC_U 0x1p-24
#define ORC_UNDERFLOW 0x1p-150
/* What evaluating a transcendental function near the f32 underflow threshold may lose. */
#define ORC_TINY 0x1p-126
/* The bound of a zero of either sign, which a later pole tells apart: beyond no type's rounding
 * but f64's, and it outlives products. */
#define ORC_ZERO_SIGN 0x1p-900
#define ORC_MAX_PORTS 64

/* ---- codec.c --------------------------------------------------------------------------------- */

typedef enum orc_class { ORC_WIDE, ORC_NARROW, ORC_INT, ORC_BOOL } orc_class_t;

/* ORC_WIDE (f16, bf16, f32, f64) are the types whose rounding a fused execution may leave out.
 * Every other type's rounding is part of the value. */
orc_class_t orc_class(sinter_data_type_t type);
const char *orc_type_name(sinter_data_type_t type); /* NULL: no such type */
bool orc_find_type(const char *name, sinter_data_type_t *type);
int orc_type_bits(sinter_data_type_t type);
double orc_type_max(sinter_data_type_t type);
/* A type without NaN stores one as its largest number with the NaN's sign. IEEE arithmetic leaves
 * the sign of a NaN open. */
bool orc_stores_signed_nan(sinter_data_type_t type);
int orc_type_digits(sinter_data_type_t type);
/* The value of type that a plain cast of v gives. */
double orc_round(sinter_data_type_t type, double v);
/* Decodes the logical elements first .. first + n - 1 in row-major order. table: 256 decoded
 * codes of a type of at most 8 bits. */
void orc_decode_table(sinter_data_type_t type, double *table);
void orc_decode_span(const sinter_logical_tensor_t *lt, const void *data, const double *table,
                     size_t first, size_t n, double *out);

/* ---- values ---------------------------------------------------------------------------------- */

/* A tensor during the run: dense row-major. b == NULL: every bound is zero. */
typedef struct orc_value {
    sinter_logical_tensor_t lt;
    size_t n;
    double *v, *b;
    /* The scale of each element where small_codes holds and the mode lets kernels fold scales;
     * else NULL. */
    double *scale;
    const orc_tensor_t *source; /* graph input, decoded when first used */
    size_t uses;                /* consumers still to run */
    bool ready, wanted, produced;
    bool saturates; /* what lies beyond the type's largest number was stored as that */
    bool kept; /* elements of a value of the same type, which went through its roundings already */
    /* Bounds are probable ones, of sums of independent errors (matmul.c), or derived from such. */
    bool walked;
    bool probabilities; /* of a SoftMax, possibly changed by elementwise ops since */
    bool from_int;      /* dequantised from an integer type, possibly moved or cast since */
    /* As from_int, from codes that are integers of at most 8 bits times a power of two. */
    bool small_codes;
    /* As from_int or from floats: codes times scales that are beyond f32. Op by op they are
     * infinite; a product that scales its sums need not see them. */
    bool beyond;
    int64_t group[SINTER_MAX_NDIMS]; /* dequantised: elements of each dim that share a scale */
} orc_value_t;

typedef struct orc_ctx {
    const orc_graph_t *graph;
    const orc_op_t *op;
    sinter_fpmath_mode_t mode;
    int apply_to_int;
    bool doubles; /* the graph has a type that f32 cannot hold: fused arithmetic may be in double */
    size_t n_in, n_out;
    orc_value_t *in[ORC_MAX_PORTS], *out[ORC_MAX_PORTS];
    bool
        dying[ORC_MAX_PORTS]; /* in[i] has no use after this op: its memory may become the output */
    char *err;
    size_t err_size;
} orc_ctx_t;

/* One oracle_<name> for each op that ops.def marks RUN: a row without it does not link. */
typedef int orc_fn_t(orc_ctx_t *c);
#define SINTER_OP(value, name, spelling, schema, shape, run) ORC_DECLARE_##run(name)
#define ORC_DECLARE_RUN(name) orc_fn_t oracle_##name;
#define ORC_DECLARE_ACCEPT(name)
#include <sinter/ops.def>
#undef SINTER_OP
#undef ORC_DECLARE_RUN
#undef ORC_DECLARE_ACCEPT

int orc_fail(orc_ctx_t *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
const orc_attr_t *orc_attr(const orc_ctx_t *c, sinter_op_attr_t id);
int64_t orc_attr_s64(const orc_ctx_t *c, sinter_op_attr_t id, int64_t missing);
double orc_attr_f32(const orc_ctx_t *c, sinter_op_attr_t id, double missing);
bool orc_attr_bool(const orc_ctx_t *c, sinter_op_attr_t id, bool missing);
const char *orc_attr_str(const orc_ctx_t *c, sinter_op_attr_t id, const char *missing);
/* The axis attribute (or missing) as 0 .. ndims - 1; -1 after reporting one that is out of
 * range. */
int orc_axis(orc_ctx_t *c, int64_t missing, int ndims);

/* Product of dims[0 .. n - 1]. */
size_t orc_count(const int64_t *dims, int n);
void orc_dense_strides(int ndims, const int64_t *dims, int64_t *strides);
/* Gives output i its dims, which must agree with what the graph declares. */
int orc_shape(orc_ctx_t *c, size_t i, int ndims, const int64_t *dims);
int orc_shape_like(orc_ctx_t *c, size_t i, const orc_value_t *like);
/* Uninitialised memory for n doubles, to be freed with free; in large pages where it is large,
 * as page faults cost like arithmetic. */
double *orc_doubles(size_t n);
/* Memory for a shaped value. */
int orc_alloc(orc_ctx_t *c, orc_value_t *value, bool with_bound);
/* Hands in[i]'s elements over to the value unchanged: moved if in[i] is dying, copied otherwise. */
int orc_take(orc_ctx_t *c, size_t i, orc_value_t *value);
void orc_value_clear(orc_value_t *value);

/* ---- rounding.c ------------------------------------------------------------------------------ */

/* After an op: f32 arithmetic before a narrower type; types that are no wide floats take their
 * stored value. */
int orc_finish(orc_ctx_t *c, orc_value_t *value);
/* Before consumers: the rounding to a declared wide float that an unfused execution makes. */
int orc_finish_stored(orc_ctx_t *c, orc_value_t *value);

/* x, but no further from 0 than most; a NaN stays one. */
static inline double orc_cut(double x, double most)
{
    return x > most ? most : x < -most ? -most : x;
}
/* |a - b|, with equal infinities at distance 0. */
static inline double orc_distance(double a, double b)
{
    return a == b ? 0 : fabs(a - b);
}
/* How far v may be from low and high, the ends of its interval, all as a type stores them. */
static inline double orc_reach(double v, double low, double high)
{
    double down = orc_distance(v, low), up = orc_distance(v, high);
    if (low == 0 && high == 0 && !signbit(low) != !signbit(high)) {
        return ORC_ZERO_SIGN;
    }
    return down > up ? down : up;
}
static inline bool orc_is_pow2(double x)
{
    int e;
    return fabs(frexp(x, &e)) == 0.5;
}
/* Error of rounding v, itself off by up to b, to f32: the actual one where v is certain. */
static inline double orc_f32_error(double v, double b)
{
    double most = fabs(v) + b;
    return b == 0 ? orc_distance((double)(float)v, v)
                  : most * ORC_U + (most < ORC_UNDERFLOW ? most : ORC_UNDERFLOW);
}

/* ---- map.c: elementwise work ----------------------------------------------------------------- */

enum { ORC_CHUNK = 1024, ORC_MAX_VIEWS = 4 };

/* How an output index finds its element of an operand: sum over dims of (index / div) * stride. */
typedef struct orc_view {
    const orc_value_t *src;
    int64_t div[SINTER_MAX_NDIMS], stride[SINTER_MAX_NDIMS];
} orc_view_t;

/* n output elements. b[] and ob are set, or ob is NULL and no operand has a bound. ov may be
 * v[i]: read index i before writing it. */
typedef struct orc_chunk {
    size_t n;
    const double *v[ORC_MAX_VIEWS], *b[ORC_MAX_VIEWS];
    double *ov, *ob;
    const void *args;
} orc_chunk_t;
typedef void orc_chunk_fn(const orc_chunk_t *k);

/* NumPy broadcast of src to dims; false if it does not broadcast. */
bool orc_view_broadcast(orc_view_t *view, const orc_value_t *src, int ndims, const int64_t *dims);
/* One value of src for each index of one dim. */
void orc_view_channel(orc_view_t *view, const orc_value_t *src, int dim);
/* Applies fn over a shaped, not yet allocated output. inexact: fn adds errors of its own, so the
 * output needs bounds in any case. */
int orc_map(orc_ctx_t *c, orc_value_t *out, size_t n_views, const orc_view_t *views,
            orc_chunk_fn *fn, const void *args, bool inexact);
/* Numpy-broadcast shape of the inputs first .. first + n - 1 (or equal shapes, if auto_broadcast
 * is none) for output 0. */
int orc_broadcast_shape(orc_ctx_t *c, size_t first, size_t n);

/* ---- gemm.c ---------------------------------------------------------------------------------- */

typedef struct orc_matrix {
    const double *p;
    int64_t row, col; /* strides */
} orc_matrix_t;

enum { ORC_GEMM_M = 128, ORC_GEMM_N = 256, ORC_GEMM_K = 256 };
#define ORC_GEMM_SCRATCH ((size_t)(ORC_GEMM_M + ORC_GEMM_N) * ORC_GEMM_K)

/* C (row-major, ldc) = A (m x k) * B (k x n) for m <= ORC_GEMM_M, n <= ORC_GEMM_N. scratch:
 * ORC_GEMM_SCRATCH doubles, 64-byte aligned. */
void orc_gemm_block(int64_t m, int64_t n, int64_t k, orc_matrix_t a, orc_matrix_t b, double *c,
                    int64_t ldc, double *scratch);

#endif
