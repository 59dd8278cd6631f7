#define ELTWISE_TABLE eltwise_table_avx512
#if defined(__AVX512F__)
#define ELTWISE_OWN_ROWS
#endif
#define ELTWISE_ISA sinter_isa_avx512
#include "eltwise.inc"

#ifdef ELTWISE_OWN_ROWS

static inline __mmask16 lanes_below(int n)
{
    return (__mmask16)(n >= LANES ? 0xffff : (1u << n) - 1);
}

static float row_max(const float *x, int n)
{
    const __m512 least = _mm512_set1_ps(-INFINITY);
    __m512 m = least;
    for (int i = 0; i < n; i += LANES) { /* the second operand where one is NaN */
        m = _mm512_max_ps(_mm512_mask_loadu_ps(least, lanes_below(n - i), x + i), m);
    }
    return _mm512_reduce_max_ps(m);
}

/* As exp_1, with the scaling by 2^n in one instruction, which rounds once below 2^-126. NaN stays. */
static inline __m512 exp_16(__m512 x)
{
    x = _mm512_min_ps(_mm512_set1_ps(90), _mm512_max_ps(_mm512_set1_ps(-150), x));
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.63p-1f), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(0x1.bd0106p-13f), r);
    __m512 p = _mm512_set1_ps(1.9875691500e-4f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    return _mm512_scalef_ps(_mm512_add_ps(_mm512_set1_ps(1), _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r)), n);
}

static float exp_mul_sub_sum(float *dst, const float *src, int n, float mul, float max)
{
    const __m512 f = _mm512_set1_ps(mul), top = _mm512_set1_ps(max);
    __m512 sum = _mm512_setzero_ps();
    float lane[LANES];
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m512 y = exp_16(_mm512_fmsub_ps(_mm512_loadu_ps(src + i), f, top));
        _mm512_storeu_ps(dst + i, y);
        sum = _mm512_add_ps(sum, y);
    }
    if (i < n) {
        const __mmask16 there = lanes_below(n - i);
        const __m512 y = exp_16(_mm512_fmsub_ps(_mm512_maskz_loadu_ps(there, src + i), f, top));
        _mm512_mask_storeu_ps(dst + i, there, y);
        sum = _mm512_mask_add_ps(sum, there, sum, y);
    }
    _mm512_storeu_ps(lane, sum);
    return lanes_sum(lane);
}

static float exp_sub_sum(float *dst, const float *src, int n, float max)
{
    return exp_mul_sub_sum(dst, src, n, 1, max);
}

#endif
