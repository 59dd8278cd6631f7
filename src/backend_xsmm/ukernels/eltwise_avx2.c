#define ELTWISE_TABLE eltwise_table_avx2
#if defined(__AVX2__)
#include "numeric/simd_avx2.h"
#define ELTWISE_OWN_ROWS
#endif
#define ELTWISE_NEEDS NEEDS_AVX2
#include "backend_xsmm/ukernels/eltwise_f32.inc"

#ifdef ELTWISE_OWN_ROWS

#include "backend_xsmm/ukernels/eltwise_rows.h"

/* Four maxima at a time: one would wait for the one before it. */
static float row_max(const float *x, int n)
{
    vf m[4];
    int i = 0;
    for (int k = 0; k < 4; k++) {
        m[k] = vf_set1(-INFINITY);
    }
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        for (int k = 0; k < 4; k++) {
            m[k] = vf_max(vf_load(x + i + k * LANES), m[k]);
        }
    }
    for (; i + LANES <= n; i += LANES) {
        m[0] = vf_max(vf_load(x + i), m[0]);
    }
    m[0] = vf_max(vf_max(m[0], m[1]), vf_max(m[2], m[3]));
    float lane[LANES], most = -INFINITY;
    vf_store(lane, m[0]);
    for (int k = 0; k < LANES; k++) {
        most = lane[k] > most ? lane[k] : most;
    }
    for (; i < n; i++) {
        most = x[i] > most ? x[i] : most;
    }
    return most;
}

/* e^x for x <= 4 or NaN, which stays: as exp_16 of AVX-512, but 2^n is 2^(n + 64) 2^-64. The first
 * factor is a normal number, whose exponent the rounding sum has in its low bits; the second one is
 * in the polynomial. Their product rounds what is below 2^-126, once. */
static inline vf exp_8(vf x)
{
    const vf round = vf_set1(0x1.8p23f + 127 + 64), log2e = vf_set1(0x1.715476p+0f);
    x = vf_max(vf_set1(-130), x);
    const vf t = vf_fma(x, log2e, round), n = vf_sub(t, round), high = (vf)((vu)t << 23);
    const vf r = _mm256_fmsub_ps(x, log2e, n), r2 = vf_mul(r, r);
    const vf p0 = vf_fma(r, vf_set1(0x1p-64f * EXP2_1), vf_set1(0x1p-64f)),
             p2 = vf_fma(r, vf_set1(0x1p-64f * EXP2_3), vf_set1(0x1p-64f * EXP2_2)),
             p4 = vf_fma(r, vf_set1(0x1p-64f * EXP2_5), vf_set1(0x1p-64f * EXP2_4)),
             p = vf_fma(r2, vf_set1(0x1p-64f * EXP2_6), p4);
    return vf_mul(vf_fma(vf_fma(p, r2, p2), r2, p0), high);
}

/* n <= LANES elements of src, times f if it multiplies, less top. */
static inline __attribute__((always_inline)) vf less(const float *src, int n, bool multiplies, vf f,
                                                     vf top)
{
    const vf x = n < LANES ? vf_load_n(src, n) : vf_load(src);
    return vf_sub(multiplies ? vf_mul(x, f) : x, top);
}

/* Products are rounded before max, itself one of them, is subtracted: what is left then never
 * exceeds 0. Sums run in 16 lanes, as those of row_sum. */
static inline __attribute__((always_inline)) float exp_sum(float *dst, const float *src, int n,
                                                           bool multiplies, float mul, float max)
{
    const vf f = vf_set1(mul), top = vf_set1(max);
    vf sum[2] = {vf_set1(0), vf_set1(0)};
    int i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        for (int k = 0; k < 2; k++) {
            const int at = i + k * LANES;
            const vf y = exp_8(less(src + at, LANES, multiplies, f, top));
            vf_store(dst + at, y);
            sum[k] = vf_add(sum[k], y);
        }
    }
    for (int k = 0; i < n; i += LANES, k++) {
        const vf y = exp_8(less(src + i, n - i, multiplies, f, top));
        vf_store_n(dst + i, y, n - i);
        sum[k] = vf_add(sum[k], vf_first(y, n - i));
    }
    return vf_sum(vf_add(sum[0], sum[1]));
}

static float exp_mul_sub_sum(float *dst, const float *src, int n, float mul, float max)
{
    return exp_sum(dst, src, n, true, mul, max);
}

static float exp_sub_sum(float *dst, const float *src, int n, float max)
{
    return exp_sum(dst, src, n, false, 1, max);
}

#endif
