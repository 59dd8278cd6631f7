/* Elementwise functions over blocks of floats, one table for each ISA, all compiled from
 * eltwise_f32.inc. What the chain interpreter, softmax and attention call. Results are within a few
 * units in the last place of the exact ones, with the special values of C's math library; every
 * table gives NaN for NaN. */
#ifndef SINTER_SRC_ELTWISE_H
#define SINTER_SRC_ELTWISE_H

#include <stdbool.h>
#include <stdint.h>

#include <sinter/sinter_types.h>

#include "base/features.h"
#include "base/op_slot.h"

enum { ELTWISE_KINDS = OP_SLOTS, TOP_MOST = 16, TOP_ROW = 256 };

/* An element as one number, its key above the bits of its inverted index: among equal elements the
 * first one is larger. */
static inline int64_t top_rank(int32_t key, int64_t at)
{
    return (int64_t)key * (INT64_C(1) << 32) + (UINT32_MAX - at);
}

/* dst[i] = f(a[i], b[i], c[i]) for i < n; dst may be any of a, b, c but not overlap them
 * otherwise. Operands that f does not have are not read. p: attributes as in chain_instr_t. */
typedef void (*eltwise_fn_t)(float *dst, const float *a, const float *b, const float *c, int n,
                             const float *p);
typedef void (*eltwise_f64_fn_t)(double *dst, const double *a, const double *b, const double *c,
                                 int n, const double *p);

/* Memory that is prefetched element by element while others are worked on: where it begins, and
 * the bytes of an element. NULL: nothing. */
typedef struct ahead {
    const unsigned char *at;
    int step;
} ahead_t;

/* dst = ((src - shift) * factor + offset) * gamma + beta. */
typedef struct eltwise_norm {
    float shift, factor, offset;
    const float *gamma, *beta; /* NULL: 1 and 0 */
    bool each;                 /* they have a value for each element, else one for all */
    bool nontemporal; /* dst goes past the caches: the kernel must end with quant->stream_end */
    ahead_t ahead;    /* prefetched meanwhile */
} eltwise_norm_t;

typedef struct eltwise_table {
    features_t needs;               /* what it was built for */
    eltwise_fn_t op[ELTWISE_KINDS]; /* by op_slot; NULL: no elementwise function */
    /* The same for 32-bit integers in place of floats: results saturate. Conditions are floats. */
    eltwise_fn_t op_words[ELTWISE_KINDS];

    /* Rows. Sums run in 16 lanes that are added in a fixed tree, so they depend on n alone. */
    float (*row_max)(const float *x, int n); /* NaN are passed over; -inf if n is 0 */
    float (*row_sum)(const float *x, int n);
    /* The sum of (x - shift)^2, and in *sum that of x - shift; the sum of x^2. Some terms are added
     * in f32 before they are added in double: within 12 units of f32 of the sum of magnitudes. An
     * infinity: terms do not fit f32. Squares below 2^-126 may be lost. */
    double (*row_moments)(const float *x, int n, float shift, double *sum);
    double (*row_squares)(const float *x, int n);
    float (*exp_sub_sum)(
        float *dst, const float *src, int n,
        float max); /* dst = exp(src - max), returns the sum; dst may be src; max >= src */
    float (*exp_mul_sub_sum)(float *dst, const float *src, int n, float mul,
                             float max);           /* dst = exp(src * mul - max), as exp_sub_sum */
    void (*scale_row)(float *dst, int n, float f); /* dst *= f */
    void (*norm_row)(float *dst, const float *src, int n, const eltwise_norm_t *how);
    /* Turns the pairs x[i], x[i + n] by angles with these cosines and sines, and the pairs
     * x[2 i], x[2 i + 1]. */
    void (*turn_halves)(float *x, const float *cosine, const float *sine, int n);
    void (*turn_pairs)(float *x, const float *cosine, const float *sine, int n);
    /* x = H x / sqrt(n), H the Hadamard matrix of Sylvester; n is a power of two. */
    void (*hadamard)(float *x, int64_t n);
    /* Numbers with the order of the elements, zeros of both signs equal, a NaN above infinity;
     * `least`: with the reverse order. Returns the largest. */
    int32_t (*rank_row)(int32_t *key, const float *x, int n, bool least);
    /* best[0..k) = the k largest top_rank of n elements, in order. k <= TOP_MOST, k <= n, n <=
     * TOP_ROW, and key has room for TOP_ROW elements. False: too many elements are as large as the
     * k-th. */
    bool (*top_row)(int64_t *best, int32_t *key, int n, int k);
    /* By op_slot of a reduction: n elements folded into one sum, and 1 to 8 rows of n elements
     * into n sums. NULL: another op. */
    double (*fold_row[ELTWISE_KINDS])(const float *x, int n, double sum);
    void (*fold_columns[ELTWISE_KINDS])(double *sums, const float *const *x, int rows, int n);
    /* n floats at dst, which may have any address, = src * f. They go past the caches: the kernel
     * must end with quant->stream_end. */
    void (*scale_past)(unsigned char *dst, const float *src, int n, float f);
    void (*add_row)(float *dst, const float *src, int n); /* dst += src */
    /* dst = dst * f + src * g */
    void (*mix_row)(float *dst, float f, const float *src, float g, int n);
    void (*max_row)(float *dst, const float *src,
                    int n); /* dst = max(dst, src), src NaN passed over */
    /* x[i] = otherwise, unless bit first + i of a set of bits is 1. first is a multiple of 32. */
    void (*keep_row)(float *x, const uint64_t *set, int64_t first, int n, float otherwise);
} eltwise_table_t;

/* The best table at or below isa (the plan's, which the machine has). */
const eltwise_table_t *eltwise_table(features_t features);

/* n elements of a tensor as f32, from element `first` on, `stride` elements apart: dtype_bulk if
 * they are consecutive, else the codec. */
void eltwise_load(const eltwise_table_t *fn, sinter_data_type_t type, const unsigned char *base,
                  int64_t first, int64_t stride, int n, float *dst);
void eltwise_store(const eltwise_table_t *fn, sinter_data_type_t type, unsigned char *base,
                   int64_t first, int64_t stride, int n, const float *src);

/* The same ops in double, and conversions between types of which one has numbers that no float is:
 * portable C, compiled for each instruction set. */
enum { WIDE_f64, WIDE_s64, WIDE_s32, WIDE_f32, WIDE_s8, WIDE_u8, WIDE_boolean, WIDE_TYPES };
/* n elements at src, which may have any address, to dst, rounded once as by a cast. dst may be src
 * if elements of both have one size. */
typedef void eltwise_convert_t(const unsigned char *src, unsigned char *dst, int n);
typedef struct eltwise_f64 {
    bool has_pow;                                       /* Pow in vectors; else by the C library */
    eltwise_f64_fn_t op[ELTWISE_KINDS];                 /* by op_slot */
    eltwise_convert_t *convert[WIDE_TYPES][WIDE_TYPES]; /* from, to; NULL: floats do it */
    /* Floats which types of fewer digits than f32 round as they would round the doubles. */
    void (*to_sticky)(float *dst, const double *src, int n);
    void (*truncate)(double *dst, const double *src, int n); /* towards 0 */
    void (*fill)(double *dst, int n, double x);
} eltwise_f64_t;
const eltwise_f64_t *eltwise_f64(features_t features);
eltwise_convert_t *eltwise_convert(const eltwise_f64_t *fn, sinter_data_type_t from,
                                   sinter_data_type_t to); /* NULL: there is none */
/* The function of the C library that an op with attribute u calls for each element; NULL: none. */
const char *eltwise_f64_by_element(const eltwise_f64_t *fn, sinter_op_kind_t kind, double u);

extern const eltwise_f64_t eltwise_f64_generic;

#endif
