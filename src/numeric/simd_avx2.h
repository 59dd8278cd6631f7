/* Vectors with AVX2, FMA and F16C. simd_avx512.h lists the names, which mean the same in both. */
#ifndef SINTER_SRC_NUMERIC_SIMD_AVX2_H
#define SINTER_SRC_NUMERIC_SIMD_AVX2_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <immintrin.h>

#include "numeric/unroll.h"

#ifndef TARGET
#define TARGET __attribute__((target("avx2,fma,f16c")))
#endif
#define OP TARGET static inline __attribute__((always_inline))
enum { LANES = 8 };
typedef __m256 vf;
typedef __m256i vi;
typedef uint32_t vu __attribute__((vector_size(32)));
typedef __m256d vd;
typedef __m256i vm;

/* ---- loads and stores ------------------------------------------------------------------------ */

OP vm lanes_below(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
OP vf vf_load(const void *p)
{
    return _mm256_loadu_ps(p);
}
OP void vf_store(void *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
OP vf vf_load_n(const void *p, int64_t n)
{
    return _mm256_maskload_ps(p, lanes_below(n));
}
OP void vf_store_n(void *p, vf x, int64_t n)
{
    _mm256_maskstore_ps(p, lanes_below(n), x);
}
OP void vf_stream(void *p, vf x)
{
    _mm256_stream_ps(p, x);
}
OP vi vi_load(const void *p)
{
    return _mm256_loadu_si256(p);
}
OP void vi_store(void *p, vi x)
{
    _mm256_storeu_si256(p, x);
}
OP __m128i load_8_bytes(const void *p)
{
    return _mm_loadl_epi64(p);
}
OP __m128i load_16_bytes(const void *p)
{
    return _mm_loadu_si128(p);
}
OP __m256i load_32_bytes(const void *p)
{
    return _mm256_loadu_si256(p);
}
/* n <= 8 bytes, in at most three loads: a copy of them in memory could not be loaded as a vector
 * at once. */
static inline uint64_t short_load(const unsigned char *p, int64_t n)
{
    uint64_t all = 0;
    uint32_t low, high;
    if (n == 8) {
        memcpy(&all, p, sizeof all);
    } else if (n >= 4) { /* two loads that overlap */
        memcpy(&low, p, sizeof low);
        memcpy(&high, p + n - 4, sizeof high);
        all = low | (uint64_t)high << 8 * (n - 4);
    } else if (n > 0) {
        all = p[0] | (uint64_t)p[n / 2] << 8 * (n / 2) | (uint64_t)p[n - 1] << 8 * (n - 1);
    }
    return all;
}
OP __m128i bytes_load_n(const unsigned char *p, int64_t n)
{
    const int64_t low = n < 8 ? n : 8;
    return _mm_set_epi64x((long long)short_load(p + low, n - low), (long long)short_load(p, low));
}
OP void bytes_store_n(unsigned char *p, __m128i x, int64_t n)
{
    memcpy(p, &x, (size_t)n);
}
OP __m256i words_load_n(const unsigned char *p, int64_t n)
{
    const int64_t low = n < 8 ? n : 8;
    return _mm256_set_m128i(bytes_load_n(p + 2 * low, 2 * (n - low)), bytes_load_n(p, 2 * low));
}
OP void words_store_n(unsigned char *p, __m256i x, int64_t n)
{
    memcpy(p, &x, (size_t)n * 2);
}
OP void stream_line(void *to, const void *from)
{
    _mm256_stream_si256(to, vi_load(from));
    _mm256_stream_si256((__m256i *)to + 1, vi_load((const __m256i *)from + 1));
}
OP void stream_end(void)
{
    _mm_sfence();
}
OP void prefetch(const void *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T0);
}
OP void prefetch_far(const void *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T1);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

OP vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}
OP vf vf_set_pair(const float *p)
{
    double pair;
    memcpy(&pair, p, sizeof pair);
    return _mm256_castpd_ps(_mm256_set1_pd(pair));
}
OP vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
OP vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
OP vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
OP vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
OP vf vf_quotient(vf x, vf by, vf inverse) /* as in simd_avx512.h */
{
    const vf q = x * inverse;
    return _mm256_fmadd_ps(_mm256_fnmadd_ps(q, by, x), inverse, q);
}
OP vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
/* As assembly: GCC would copy the sums around the intrinsic. */
OP vf vf_add_product(vf sum, vf a, vf b)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
    return sum;
}
OP vf vf_add_multiple(vf sum, vf a, const float *by)
{
    return vf_add_product(sum, a, vf_set1(*by));
}
OP vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
OP vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
OP vf vf_clamp(vf x, float low, float high)
{
    return vf_min(vf_max(x, vf_set1(low)), vf_set1(high));
}
OP vf vf_abs(vf x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}
OP vf vf_abs_min(vf x, float high)
{
    return vf_min(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x), vf_set1(high));
}
OP vf vf_abs_max(vf a, vf b)
{
    const vi bits = _mm256_set1_epi32(INT32_MAX), x = _mm256_castps_si256(a),
             y = _mm256_castps_si256(b);
    return _mm256_castsi256_ps(
        _mm256_max_epi32(_mm256_and_si256(x, bits), _mm256_and_si256(y, bits)));
}
OP vf vf_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
OP vi vi_of(vf x)
{
    return _mm256_castps_si256(x);
}
OP vi vi_set1(int32_t x)
{
    return _mm256_set1_epi32(x);
}
OP vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}
OP vi vi_xor(vi a, vi b)
{
    return _mm256_xor_si256(a, b);
}
OP vi vi_not(vi a)
{
    return _mm256_xor_si256(a, _mm256_set1_epi32(-1));
}
OP vi vi_max(vi a, vi b)
{
    return _mm256_max_epi32(a, b);
}
OP vu vu_set1(uint32_t x)
{
    return (vu)vi_set1((int32_t)x);
}
OP vu vu_min(vu a, vu b)
{
    return (vu)_mm256_min_epu32((vi)a, (vi)b);
}
OP vu vu_max(vu a, vu b)
{
    return (vu)_mm256_max_epu32((vi)a, (vi)b);
}

OP vd vd_set1(double x)
{
    return _mm256_set1_pd(x);
}
OP vd vd_min(vd a, vd b)
{
    return _mm256_min_pd(a, b);
}
OP vd vd_quotient(vd x, vd by, vd inverse)
{
    const vd q = x * inverse;
    return _mm256_fmadd_pd(_mm256_fnmadd_pd(q, by, x), inverse, q);
}

/* ---- masks ----------------------------------------------------------------------------------- */

OP vm vf_ordered(vf x)
{
    return _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_ORD_Q));
}
OP vm vf_ge(vf a, vf b)
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GE_OQ));
}
OP vm vu_gt(vu a, vu b)
{
    return _mm256_cmpgt_epi32((vi)a, (vi)b);
}
OP vm vu_eq(vu a, vu b)
{
    return _mm256_cmpeq_epi32((vi)a, (vi)b);
}
OP vu vu_select(vm m, vu a, vu b)
{
    return (vu)_mm256_blendv_epi8((vi)b, (vi)a, m);
}
OP bool vm_any(vm m)
{
    return !_mm256_testz_si256(m, m);
}
OP vu vu_merge(uint32_t mask, vu a, vu b)
{
    return (a & mask) | (b & ~mask);
}

/* ---- conversions ----------------------------------------------------------------------------- */

OP vf vf_of_int(vu x)
{
    return _mm256_cvtepi32_ps((vi)x);
}
OP vu vf_to_int(vf x)
{
    return (vu)_mm256_cvtps_epi32(x);
}
OP vf vf_load_s8(const void *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8_bytes(p)));
}
OP vf vf_load_u8(const void *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load_8_bytes(p)));
}
OP vf vf_load_f16(const void *p)
{
    return _mm256_cvtph_ps(load_16_bytes(p));
}
OP vf vf_load_bf16(const void *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16_bytes(p)), 16));
}
OP vd vd_of(vf x, int h)
{
    return _mm256_cvtps_pd(h == 0 ? _mm256_castps256_ps128(x) : _mm256_extractf128_ps(x, 1));
}
OP vf vf_of_vd(vd low, vd high)
{
    return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low));
}

/* Half h of 32 bytes. */
OP __m128i half_of(__m256i x, int h)
{
    return h == 0 ? _mm256_castsi256_si128(x) : _mm256_extracti128_si256(x, 1);
}
OP vu widen_8(__m128i codes, int h)
{
    return (vu)_mm256_cvtepu8_epi32(h == 0 ? codes : _mm_unpackhi_epi64(codes, codes));
}
OP vu widen_s8(__m128i codes, int h)
{
    return (vu)_mm256_cvtepi8_epi32(h == 0 ? codes : _mm_unpackhi_epi64(codes, codes));
}
OP vu widen_high(__m256i codes, int h)
{
    return (vu)_mm256_cvtepu16_epi32(half_of(codes, h)) << 16;
}
OP vf vf_of_f16(__m256i codes, int h)
{
    return _mm256_cvtph_ps(half_of(codes, h));
}
OP __m256i narrow_16(const vu *x)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32((vi)x[0], (vi)x[1]), 0xD8);
}
OP __m128i narrow_8(const vu *x)
{
    const __m256i words = narrow_16(x);
    return _mm_packus_epi16(half_of(words, 0), half_of(words, 1));
}
OP __m256i narrow_high(const vu *x)
{
    const vu high[2] = {x[0] >> 16, x[1] >> 16};
    return narrow_16(high);
}
OP __m256i f16_of_vf(const vf *x)
{
    return _mm256_set_m128i(_mm256_cvtps_ph(x[1], _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(x[0], _MM_FROUND_TO_NEAREST_INT));
}

/* ---- permutes and reductions ----------------------------------------------------------------- */

OP __m256 vf_half(vf x, int h)
{
    (void)h;
    return x;
}
/* Four values; the lanes behind them are undefined. */
OP vf vf_load_four(const float *p)
{
    return _mm256_castps128_ps256(_mm_loadu_ps(p));
}
OP vf vf_lookup(vu index, vf values)
{
    return _mm256_permutevar8x32_ps(values, (vi)index);
}
OP vf vf_pick(vf v, const int32_t *at)
{
    return vf_lookup((vu)vi_load(at), v);
}
/* The permutes see the low three bits of the index, the blend bit 3. */
OP vf lut16(vu index, const float *values)
{
    const vf low = _mm256_permutevar8x32_ps(vf_load(values), (vi)index);
    const vf high = _mm256_permutevar8x32_ps(vf_load(values + 8), (vi)index);
    return _mm256_blendv_ps(low, high, (vf)(index << 28));
}
/* The same with two more bits of the index. */
enum { FAST_LUT32 = 0 };
OP vf lut32(vu index, const float *values)
{
    const vf low = lut16(index, values), high = lut16(index, values + 16);
    return _mm256_blendv_ps(low, high, (vf)(index << 27));
}
OP float vf_sum(vf x)
{
    const __m128 a = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1)),
                 b = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}
OP vi vi_larger(bool is_signed, vi a, vi b)
{
    return is_signed ? _mm256_max_epi32(a, b) : _mm256_max_epu32(a, b);
}
/* A tree: each level folds two vectors into one that holds half as many lanes of each. */
OP vi vi_larger_each(bool is_signed, const vi *v)
{
    vi a[4];
    for (int i = 0; i < 4; i++) { /* 128-bit lanes of v[i], v[i + 4] */
        a[i] = vi_larger(is_signed, _mm256_permute2x128_si256(v[i], v[i + 4], 0x20),
                         _mm256_permute2x128_si256(v[i], v[i + 4], 0x31));
    }
    const vi even =
        vi_larger(is_signed, _mm256_unpacklo_epi32(a[0], a[1]), _mm256_unpackhi_epi32(a[0], a[1]));
    const vi odd =
        vi_larger(is_signed, _mm256_unpacklo_epi32(a[2], a[3]), _mm256_unpackhi_epi32(a[2], a[3]));
    return vi_larger(is_signed, _mm256_unpacklo_epi64(even, odd), _mm256_unpackhi_epi64(even, odd));
}
OP vi vi_max_each(const vi *v)
{
    return vi_larger_each(true, v);
}

/* ---- codes ----------------------------------------------------------------------------------- */

/* Floats by code of 4 bits that fit 16 bits: the lower and the upper bytes of these, in both halves
 * of a register. */
#define TABLES_OF_FLOATS 0
typedef struct vt {
    vi low, high, flip;
} vt;
OP vt vt_load(const float *values)
{
    const vi words = _mm256_packus_epi32(_mm256_srli_epi32(vi_load(values), 16),
                                         _mm256_srli_epi32(vi_load(values + 8), 16)),
             in_order = _mm256_permute4x64_epi64(words, 0xd8),
             low = _mm256_and_si256(in_order, _mm256_set1_epi16(0xff)),
             high = _mm256_srli_epi16(in_order, 8);
    return (vt){_mm256_permute4x64_epi64(_mm256_packus_epi16(low, low), 0x88),
                _mm256_permute4x64_epi64(_mm256_packus_epi16(high, high), 0x88),
                _mm256_setzero_si256()};
}
/* Bytes 0 and 1 of dwords, and bytes 2 and 3, each in one half of 128 bits. */
typedef struct vn {
    vi pairs;
    vt table;
} vn;
OP vn vn_of(vi codes, vt t)
{
    const vi pairs = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4,
                                      5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    return (vn){_mm256_shuffle_epi8(codes, pairs), t};
}
/* Of four vectors, two share words and all look even codes up, or odd ones. */
OP vf vn_vector(const vn *n, int v)
{
    const vi codes = _mm256_and_si256(v % 2 ? _mm256_srli_epi16(n->pairs, 4) : n->pairs,
                                      _mm256_set1_epi8(15)),
             low = _mm256_shuffle_epi8(n->table.low, codes),
             high = _mm256_shuffle_epi8(n->table.high, codes);
    const vu pair = (vu)(v < 4 ? _mm256_unpacklo_epi8(low, high) : _mm256_unpackhi_epi8(low, high));
    return (vf)(v % 4 < 2 ? pair << 16 : pair & 0xffff0000u);
}
OP int vn_turn(int i)
{
    return i % 4 * 2 + i / 4;
}
/* A chunk of 16 bytes of codes: the lower codes in the lower half of a register, the upper ones in
 * the upper half. flip: 0, or 8 in each byte, which makes signed codes count from zero. */
OP vi split_codes(const void *p, vi flip)
{
    const vi both = _mm256_broadcastsi128_si256(load_16_bytes(p)),
             codes = _mm256_and_si256(
                 _mm256_srlv_epi32(both, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4)),
                 _mm256_set1_epi8(15));
    return _mm256_xor_si256(codes, flip);
}
/* The upper 16 bits of the floats of eight codes of each half: of the first or the last ones. */
OP vi split_words(vi codes, vt t, int last)
{
    const vi low = _mm256_shuffle_epi8(t.low, codes), high = _mm256_shuffle_epi8(t.high, codes);
    return last ? _mm256_unpackhi_epi8(low, high) : _mm256_unpacklo_epi8(low, high);
}
OP vf split_vector(vi words, int odd)
{
    return (vf)(odd ? (vu)words & 0xffff0000u : (vu)words << 16);
}
/* Lower and upper bytes in both halves of a register each. */
OP vt vt_of_bytes(const void *low, const void *high)
{
    return (vt){_mm256_broadcastsi128_si256(load_16_bytes(low)),
                _mm256_broadcastsi128_si256(load_16_bytes(high)), _mm256_setzero_si256()};
}
OP vf vf_masked_xor(vu x, uint32_t mask, uint32_t flip)
{
    return (vf)((x & mask) ^ flip);
}
OP vi vi_load_bytes(const void *p, int64_t n)
{
    return _mm256_maskload_epi32(p, lanes_below(n / 4));
}
OP vi high_bytes(vi x, int h)
{
    const vi zero = _mm256_setzero_si256();
    return h == 0 ? _mm256_unpacklo_epi8(zero, x) : _mm256_unpackhi_epi8(zero, x);
}
OP vf vf_of_half(vi words, int h)
{
    return _mm256_cvtph_ps(half_of(words, h));
}
OP vi f16_of_e4m3(vi x)
{
    return _mm256_and_si256(_mm256_srai_epi16(x, 1), _mm256_set1_epi16((short)0xbfff));
}
OP bool any_nan_of_e4m3(vi codes)
{
    const vi ones = _mm256_set1_epi8(-1), x = _mm256_or_si256(codes, _mm256_set1_epi8((char)0x80));
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(x, ones)) != 0;
}
OP vi nan_of_e4m3(vi half)
{
    const vi magnitude = _mm256_and_si256(half, _mm256_set1_epi16(0x7fff)),
             nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x3f80));
    return _mm256_or_si256(half, _mm256_and_si256(nan, _mm256_set1_epi16(0x7e00)));
}
OP vi most_of_e4m3(vi most, vi codes)
{
    return _mm256_max_epu8(most, _mm256_or_si256(codes, _mm256_set1_epi8((char)0x80)));
}
OP vi words_of_pair(vi x, int i)
{
    const vi first = _mm256_setr_epi8(-1, 0, -1, 4, -1, 8, -1, 12, -1, 1, -1, 5, -1, 9, -1, 13, -1,
                                      0, -1, 4, -1, 8, -1, 12, -1, 1, -1, 5, -1, 9, -1, 13),
             last = _mm256_setr_epi8(-1, 2, -1, 6, -1, 10, -1, 14, -1, 3, -1, 7, -1, 11, -1, 15, -1,
                                     2, -1, 6, -1, 10, -1, 14, -1, 3, -1, 7, -1, 11, -1, 15);
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(x, i == 0 ? first : last), 0xd8);
}
/* As f16, whose exponent has more bits: a sign, and magnitudes that lie `fraction` bits lower. */
enum { SIX_UP = 2 };
OP float six_unit(int fraction)
{
    return fraction == 2 ? 0x1p12f : 0x1p14f;
}
OP vf vf_of_six(vi codes, int fraction, int at)
{
    const vi lower = _mm256_srai_epi16(words_of_pair(codes, at / 2), fraction),
             mask = _mm256_set1_epi16((short)(0x8000 | 0x7c00 >> fraction));
    return vf_of_half(_mm256_and_si256(lower, mask), at % 2);
}
OP vf vf_of_byte(bool is_signed, vi x, int v)
{
    const vi high = v < 3 ? _mm256_slli_epi32(x, 24 - 8 * v) : x;
    return _mm256_cvtepi32_ps(is_signed ? _mm256_srai_epi32(high, 24)
                                        : _mm256_srli_epi32(high, 24));
}
OP vu nibbles_of_half(vi x, int h)
{
    vu half = (h == 0 ? (vu)x : (vu)x >> 16) | 0x7f800000u;
    HIDE_VECTOR(half); /* or GCC ORs each nibble */
    return half;
}
OP vf raised_nibble(vu half, int v)
{
    return (vf)(half & ((uint32_t)(150 - 4 * v) << 23 | UINT32_C(15) << 4 * v));
}
OP vf vf_of_nibble(vi x, int v)
{
    const vi low = v > 0 ? _mm256_srli_epi32(x, 4 * v) : x;
    return _mm256_cvtepi32_ps(v < 7 ? _mm256_and_si256(low, _mm256_set1_epi32(15)) : low);
}
OP vf in_turn(vf x) /* lanes 0, 1, 4, 5 and 2, 3, 6, 7 */
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xd8));
}
OP vf vf_even(vf a, vf b)
{
    return in_turn(_mm256_shuffle_ps(a, b, 0x88));
}
OP vf vf_odd(vf a, vf b)
{
    return in_turn(_mm256_shuffle_ps(a, b, 0xdd));
}
OP vf vf_in_turn(vf a, vf b, int h)
{
    const vf low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
    return h == 0 ? _mm256_permute2f128_ps(low, high, 0x20)
                  : _mm256_permute2f128_ps(low, high, 0x31);
}
OP vf vf_first(vf x, int64_t n)
{
    return _mm256_and_ps(x, _mm256_castsi256_ps(lanes_below(n)));
}
OP vf vf_eights(const float *p, const float *q)
{
    (void)q;
    return vf_load(p);
}
OP int32_t vi_largest(vi x)
{
    const __m128i fours = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)),
                  twos = _mm_max_epi32(fours, _mm_shuffle_epi32(fours, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(twos, _mm_shuffle_epi32(twos, 0xb1)));
}
OP void across_eights(const vf *in, vf *out)
{
    vf pairs[8], fours[8];
    UNROLL
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_ps(in[i], in[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_ps(in[i], in[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 8; i += 4) { /* fours[i + j]: elements j and 4 + j of eights i to i + 3 */
        fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
        fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
        fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
        fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        out[i] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
        out[i + 4] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
    }
}
OP void vi_transpose(const vi *row, vi *to)
{
    vf x[8], y[8];
    UNROLL
    for (int i = 0; i < 8; i++) {
        x[i] = _mm256_castsi256_ps(row[i]);
    }
    across_eights(x, y);
    UNROLL
    for (int i = 0; i < 8; i++) {
        to[i] = _mm256_castps_si256(y[i]);
    }
}
/* Pairs of rows are folded into one up to 128-bit lanes, which are the halves: two vectors, of
 * rows 0 to 3 and 4 to 7. */
OP void fold_rows(const float *rows, vf *to)
{
    vf x[8];
    UNROLL
    for (int i = 0; i < 8; i += 2) {
        const vf a = vf_load(rows + i * 8), b = vf_load(rows + i * 8 + 8);
        x[i] = vf_add(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    }
    UNROLL
    for (int i = 0; i < 8; i += 4) { /* lane 4b + j: row i + j, of 128-bit lane b */
        to[i / 4] = vf_add(_mm256_shuffle_ps(x[i], x[i + 2], 0x44),
                           _mm256_shuffle_ps(x[i], x[i + 2], 0xee));
    }
}
OP void sum_rows(const float *rows, float *s)
{
    vf x[2];
    fold_rows(rows, x);
    vf_store(s, vf_add(_mm256_permute2f128_ps(x[0], x[1], 0x20),
                       _mm256_permute2f128_ps(x[0], x[1], 0x31)));
}
OP void sum_halves(const float *rows, float *s)
{
    const vi low = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    vf x[2];
    fold_rows(rows, x);
    vf_store(s, _mm256_permutevar8x32_ps(x[0], low));
    vf_store(s + 8, _mm256_permutevar8x32_ps(x[1], low));
}

#endif
