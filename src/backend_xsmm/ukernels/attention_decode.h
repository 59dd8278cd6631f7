/* The micro-kernels of attention with few query rows in floats: K and V are read once, element by
 * element, straight from their codes:
 *
 *   q.k  = sum over classes of  scale * (sum over its vectors of  q (x - zp))
 *   out += (p scale) (x - zp)
 *
 * Offsets, and zero points that are floats, are added on their own, with plus = offset or
 * -scale * zp:
 *
 *   q.k += sum over groups of  plus * (sum over the group of  q)
 *   out += p plus */
#ifndef SINTER_SRC_UKERNELS_ATTENTION_DECODE_H
#define SINTER_SRC_UKERNELS_ATTENTION_DECODE_H

#include <sinter/sinter_types.h>

#include "backend_xsmm/ukernels/few_rows.h"
#include "base/features.h"

enum {
    DECODE_HEAD = 256,                /* longest head */
    DECODE_ORDER = DECODE_HEAD + 128, /* floats of a query in decoding order */
    DECODE_GROUPS = 16, /* most coefficients of a token: the lanes of the widest ISA */
    DECODE_BLOCK = 64   /* rows of V after which sums begin anew */
};

/* Rows are tokens of K or V; scores and weights are by token, where a row is two of them, too. A
 * row has at most as many coefficients as a vector has lanes, and zero points only with scales.
 *
 * s[q][t] = q . row t; q: queries in decoding order, [vector][query][lane], so that what is loaded
 * together lies together; fours of them are DECODE_ORDER * 4 apart. lds >= the tokens rounded up to
 * twice the lanes, all of which are written. */
typedef void (*qk_t)(const code_rows_t *k, int queries, const float *q, float *s, int64_t lds);
/* acc[q][..] += sum over t of p[q][t] * row t, in decoding order. */
typedef void (*pv_t)(const code_rows_t *v, int queries, const float *p, int64_t ldp, float *acc,
                     int64_t ldacc);

/* The inner loops, in order of preference. Those by tiles take any number of fours of queries, the
 * others the number that they are made for. What rows each takes, attention_decode.c of the driver
 * says. */
enum { QK_TILES, QK_LANES, QK_THREE, QK_CHUNKS, QK_FINE, QK_LOOPS };
enum { PV_TILES, PV_THREE, PV_FEW, PV_FINE, PV_LOOPS };

/* Those of one data type on one ISA with one kind of coefficients, by queries - 1. NULL: there is
 * none, or another one is better for all such rows. */
typedef struct decode_loops {
    qk_t qk[QK_LOOPS][4];
    pv_t pv[PV_LOOPS][4];
} decode_loops_t;

/* What offsets add, [token][group]. */
typedef struct decode_plus {
    /* Makes n of them in place: from zero points, with their scales, or of offsets. False: some
     * cannot be used, because they are NaN, infinite or too large, or their scales too small. */
    bool (*make)(const float *scale, float *zp, int n, bool offsets);
    /* s[q][t] += sum over groups of sums[q][g] * plus[t][g] for n tokens; sums: [DECODE_GROUPS] for
     * each query. plus is read up to the next multiple of 32 tokens. */
    void (*scores)(const float *plus, int groups, int n, int nq, const float *sums, float *s,
                   int64_t lds);
    /* out[q][g] = sum over n tokens of p[q][t] * plus[t][g], [DECODE_GROUPS] for each query;
     * row_of: float_codes_t.row_of_scale. */
    void (*values)(const float *plus, int groups, int n, const int32_t *row_of, int nq,
                   const float *p, int64_t ldp, float *out);
} decode_plus_t;

/* Without scales, with scales, with scales and zero points. */
enum { DECODE_COEFS = 3 };

/* One data type on one ISA. Reads nothing beyond the elements of a row. */
typedef struct decode_ops {
    code_layout_t layout;
    int unit;      /* a group of scales or zero points is a multiple of this many elements */
    bool by_chunk; /* takes coefficients without a pick, which do not change within chunks */
    /* Weighting rows by p * scale would lose bits to underflow. */
    bool (*any_tiny)(const float *scale, int n);
    const decode_plus_t *plus;
    place_zps_t place_zps;                     /* NULL: zero points stay what they are */
    const decode_loops_t *loops[DECODE_COEFS]; /* NULL: no such coefficients */
} decode_ops_t;

/* By data type; NULL: this ISA has no decoder for it. */
const decode_ops_t *decode_ops(features_t features, sinter_data_type_t type);

#endif
