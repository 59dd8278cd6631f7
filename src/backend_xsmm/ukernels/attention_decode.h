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
    DECODE_GROUPS = 16 /* most coefficients of a token: the lanes of the widest ISA */
};

/* Rows are tokens of K or V; scores and weights are by token, where a row is two of them, too. A
 * row has at most as many coefficients as a vector has lanes, and zero points only with scales.
 *
 * s[q][t] = q . row t; q: queries in decoding order, [vector][query][lane], so that what is loaded
 * together lies together. lds >= the tokens rounded up to twice the lanes, all of which are
 * written. */
typedef void (*qk_t)(const code_rows_t *k, const float *q, float *s, int64_t lds);
/* acc[q][..] += sum over t of p[q][t] * row t, in decoding order. */
typedef void (*pv_t)(const code_rows_t *v, const float *p, int64_t ldp, float *acc, int64_t ldacc);

/* The same for any number of fours of queries from tiles of floats; fours lie DECODE_ORDER * 4
 * apart. */
typedef void (*qk_tiles_t)(tile_decode_t decode, const code_rows_t *k, int nq, const float *q,
                           float *s, int64_t lds);
typedef void (*pv_tiles_t)(tile_decode_t decode, const code_rows_t *v, int nq, const float *p,
                           int64_t ldp, float *acc, int64_t ldacc);

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
     * row_of: code_rows_t.row_of_scale. */
    void (*values)(const float *plus, int groups, int n, const int32_t *row_of, int nq,
                   const float *p, int64_t ldp, float *out);
} decode_plus_t;

/* Without scales, with scales, with scales and zero points. */
enum { DECODE_COEFS = 3 };

/* One data type on one ISA, for 1 to 4 queries. Reads nothing beyond the elements of a row. */
typedef struct decode_ops {
    code_layout_t layout;
    int unit;      /* a group of scales or zero points is a multiple of this many elements */
    bool by_chunk; /* takes coefficients without a pick, which do not change within chunks */
    qk_t qk[DECODE_COEFS][4]; /* by queries - 1; NULL: no such coefficients, or by tiles */
    pv_t pv[DECODE_COEFS][4];
    /* Weighting rows by p * scale would lose bits to underflow. */
    bool (*any_tiny)(const float *scale, int n);
    const decode_plus_t *plus;
    place_zps_t place_zps; /* NULL: zero points stay what they are */
    /* For fours of queries: by coefficients; whether these are fine. NULL: by qk and pv. */
    const tile_decode_t (*decode)[2];
    qk_tiles_t qk_tiles;
    pv_tiles_t pv_tiles;
} decode_ops_t;

/* By data type; NULL: this ISA has no decoder for it. */
const decode_ops_t *decode_ops(features_t features, sinter_data_type_t type);

#endif
