#define ELTWISE_TABLE eltwise_table_avx512
#if defined(__AVX512F__)
#include "numeric/simd_avx512.h"
#define ELTWISE_OWN_ROWS
#endif
#define ELTWISE_NEEDS NEEDS_AVX512
#include "backend_xsmm/ukernels/eltwise_f32.inc"

#ifdef ELTWISE_OWN_ROWS

#include "backend_xsmm/ukernels/eltwise_rows.h"

/* vf_sum adds lanes in the order of lanes_sum, without the way through memory. */

static float row_max(const float *x, int n)
{
    const __m512 least = _mm512_set1_ps(-INFINITY);
    __m512 m = least, m1 = least;
    int i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) { /* the second operand where one is NaN */
        m = _mm512_max_ps(_mm512_loadu_ps(x + i), m);
        m1 = _mm512_max_ps(_mm512_loadu_ps(x + i + LANES), m1);
    }
    for (; i < n; i += LANES) {
        m = _mm512_max_ps(_mm512_mask_loadu_ps(least, lanes_below(n - i), x + i), m);
    }
    return _mm512_reduce_max_ps(_mm512_max_ps(m, m1));
}

/* e^x for x <= 4 or NaN, which stays: 2^n 2^r, n + r = x log2(e), |r| <= 1 / 2. The error of
 * log2(e) makes that of r x / 2^26. The polynomial in pairs makes for short chains of dependent
 * operations. */
static inline __m512 exp_16(__m512 x)
{
    const __m512 log2e = _mm512_set1_ps(0x1.715476p+0f);
    x = _mm512_max_ps(_mm512_set1_ps(-150), x);
    const __m512 n = vf_round(_mm512_mul_ps(x, log2e)), r = _mm512_fmsub_ps(x, log2e, n),
                 r2 = _mm512_mul_ps(r, r);
    const __m512 p0 = _mm512_fmadd_ps(r, _mm512_set1_ps(EXP2_1), _mm512_set1_ps(1)),
                 p2 = _mm512_fmadd_ps(r, _mm512_set1_ps(EXP2_3), _mm512_set1_ps(EXP2_2)),
                 p4 = _mm512_fmadd_ps(r, _mm512_set1_ps(EXP2_5), _mm512_set1_ps(EXP2_4)),
                 p = _mm512_fmadd_ps(r2, _mm512_set1_ps(EXP2_6), p4);
    return _mm512_scalef_ps(_mm512_fmadd_ps(_mm512_fmadd_ps(p, r2, p2), r2, p0), n);
}

/* Products are rounded before max, itself one of them, is subtracted: what is left then never
 * exceeds 0. */
static float exp_mul_sub_sum(float *dst, const float *src, int n, float mul, float max)
{
    const __m512 f = _mm512_set1_ps(mul), top = _mm512_set1_ps(max);
    __m512 sum = _mm512_setzero_ps();
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m512 y = exp_16(_mm512_sub_ps(_mm512_mul_ps(_mm512_loadu_ps(src + i), f), top));
        _mm512_storeu_ps(dst + i, y);
        sum = _mm512_add_ps(sum, y);
    }
    if (i < n) {
        const __mmask16 there = lanes_below(n - i);
        const __m512 y =
            exp_16(_mm512_sub_ps(_mm512_mul_ps(_mm512_maskz_loadu_ps(there, src + i), f), top));
        _mm512_mask_storeu_ps(dst + i, there, y);
        sum = _mm512_mask_add_ps(sum, there, sum, y);
    }
    return vf_sum(sum);
}

static float exp_sub_sum(float *dst, const float *src, int n, float max)
{
    return exp_mul_sub_sum(dst, src, n, 1, max);
}

#endif
