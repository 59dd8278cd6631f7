/* The micro-kernels of attention with few query rows in floats: K and V are read once, element by
 * element, straight from their codes (see decoded.h):
 *
 *   q.k  = sum over classes of  scale * (sum over its vectors of  q (x - zp))
 *   out += (p scale) (x - zp) */
#ifndef SINTER_SRC_UKERNELS_ATTENTION_DECODE_H
#define SINTER_SRC_UKERNELS_ATTENTION_DECODE_H

#include <sinter/sinter_types.h>

#include "backend_xsmm/ukernels/decoded.h"
#include "backend_xsmm/ukernels/few_rows.h"
#include "base/features.h"

enum {
    DECODE_HEAD = 256,               /* longest head */
    DECODE_ORDER = DECODE_HEAD + 128 /* floats of a query in decoding order */
};

/* Rows of K or V as a micro-kernel reads them. scale, zp: [rows][groups] floats, then 16 more
 * that may be read, NULL: none; zp only with scale. */
typedef struct decode_rows {
    const unsigned char *data;
    int64_t stride; /* bytes from row to row */
    int rows, n;    /* n: elements of a row */
    /* 2: a row is two tokens, which fill a chunk together; scores and weights are by token */
    int fold;
    int groups; /* along a row; at most the lanes of a vector */
    const float *scale, *zp;
    const float *values;     /* of the 16 codes of a 4-bit type */
    const int32_t *group_at; /* [class][lanes]: the group of each lane */
    const int32_t *
        group_row; /* [groups][lanes]: the row of each of lanes * groups consecutive coefficients */
} decode_rows_t;

/* s[q][t] = q . row t; q: queries in decoding order, [vector][query][lane], so that what is loaded
 * together lies together. lds >= the tokens rounded up to twice the lanes, all of which are
 * written. */
typedef void (*qk_t)(const decode_rows_t *k, const float *q, float *s, int64_t lds);
/* acc[q][..] += sum over t of p[q][t] * row t, in decoding order. */
typedef void (*pv_t)(const decode_rows_t *v, const float *p, int64_t ldp, float *acc,
                     int64_t ldacc);

/* Without scales, with scales, with scales and zero points. */
enum { DECODE_COEFS = 3 };

/* One data type on one ISA, for 1, 2 and 4 queries. Reads nothing beyond the elements of a row. */
typedef struct decode_ops {
    code_layout_t layout;
    int unit; /* a group of scales or zero points is a multiple of this many elements */
    qk_t qk[DECODE_COEFS][3]; /* NULL: no such coefficients */
    pv_t pv[DECODE_COEFS][3];
} decode_ops_t;

typedef struct decode_table {
    int lanes, n_ops;
    const decode_ops_t *ops; /* by data type */
    /* Weighting rows by p * scale would lose bits to underflow. */
    bool (*any_tiny)(const float *scale, int n);
} decode_table_t;

/* NULL: this ISA has none. */
const decode_table_t *decode_table(features_t features);
extern const decode_table_t decode_table_avx2, decode_table_avx512;

#endif
