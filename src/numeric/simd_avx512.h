/* Vectors with AVX-512 F, BW, DQ and VL. This header and simd_avx2.h are the one vocabulary that
 * templates are written in; every name means the same in both. For files of x86-64 only.
 *
 *   TARGET, OP       attributes of a function for this ISA; of one that is always inlined. A file
 *                    that may use more instructions defines TARGET first.
 *   LANES            dwords in a vector
 *   vf, vu, vd       floats, unsigned dwords, half as many doubles; all take C's operators
 *   vi, vm           a register of integers, for intrinsics and & | ^; a mask, for vu_select
 *
 *   lanes_below(n)                    the mask of the first n lanes; none below 0, at most all
 *   vf_load, vf_store, vi_load, ...   LANES elements at any address
 *   vf_load_n, vf_store_n             the first n lanes under a mask: other lanes are loaded as 0
 *   vf_stream, stream_line            past the caches, to aligned memory; stream_line: 64 bytes
 *   bytes_load_n, words_load_n, ...   the first n <= 16 bytes or 16-bit words
 *   vf_load_s8, _u8, _f16, _bf16      LANES elements of this type as floats
 *   vf_set_pair(p)                    two floats, again and again
 *   load_8_bytes, load_16_bytes ...   at any address
 *   prefetch(p)                       fetches a line into the caches; p may lie outside of memory
 *   prefetch_far(p)                   the same, but not into the first one
 *
 *   stream_end()                      before other threads may look at what went past the caches
 *
 *   vf_quotient(x, by, inverse)       x / by, correctly rounded, where inverse is 1 / by correctly
 *                                     rounded; -0 may become 0, and subnormals may be off
 *   vd_set1, vd_min, vd_quotient      the same of doubles
 *   vd_of(x, h), vf_of_vd(low, high)  half h of a vector as doubles; two halves as floats
 *   vf_fma(a, b, c)                   a * b + c, rounded once
 *   vf_add_product(sum, a, b)         the same where many sums stay in registers: sum + a * b
 *   vf_add_multiple(sum, a, by)       sum + a * *by
 *   vf_min, vf_max(a, b)              b if one is NaN
 *   vf_abs(x), vf_abs_min(x, high)    |x|; min(|x|, high)
 *   vf_abs_max(a, b)                  max(|a|, |b|) by bits: NaN is above all numbers
 *   vf_round                          to the nearest whole number, ties to even
 *   vf_ordered(x), vf_ge, vu_gt       masks: not NaN; a >= b; a > b (as signed integers)
 *   vu_select(m, a, b)                lanes of a where m is set, else of b
 *   vm_any(m)                         whether any lane of a mask is set
 *   vu_merge(mask, a, b)              bits of a where mask has ones, else of b
 *
 * 16 codes are a block, whose vectors have the numbers h = 0 to 16 / LANES - 1:
 *
 *   widen_8, widen_s8(codes, h)       vector h of 16 bytes as dwords; widen_high: words, to the
 *                                     upper halves of dwords
 *   vf_of_f16(codes, h)               vector h of 16 f16
 *   narrow_8, narrow_16(x)            the codes of a block, which have only 8 or 16 low bits
 *   narrow_high(x)                    the upper halves of a block's dwords
 *   f16_of_vf(x)                      a block of floats as f16, to nearest even
 *
 *   vf_half(x, h)                     half h of a vector that has two
 *   vf_lookup(index, v)               lane i: v[index[i] % LANES]; vf_pick(v, at): v[at[i]]
 *   lut16(index, values)              lane i: values[index[i] % 16]
 *   lut32(index, values)              the same of 32; FAST_LUT32: in one instruction
 *   vf_sum(x)                         in a fixed tree: halves, then quarters ... are added
 *   vi_larger_each(is_signed, v)      lane i: the largest dword of v[i], for LANES vectors;
 *                                     vi_max_each: the largest signed one
 *
 * What readers of codes need besides, a register of codes being a chunk:
 *
 *   vt, vt_load(values)               a table of 16 floats by code of 4 bits, which bf16 holds
 *                                     exactly; TABLES_OF_FLOATS: it may hold any, t.values
 *   vn, vn_of(codes, t), vn_vector    what a chunk of codes of 4 bits stands for: vector v has that
 *                                     of nibble v of each dword
 *   vn_turn(i)                        the vector to make as the i-th one: those that share work
 *                                     follow each other, and little waits in registers
 *   vf_masked_xor(x, mask, flip)      (x & mask) ^ flip
 *   vi_load_bytes(p, n)               the first n bytes, a multiple of 4 with AVX2, then zeros
 *   high_bytes(x, h)                  words of the lower or upper 8 bytes of each 128 bits, shifted
 *                                     up by 8 bits; f16_of_e4m3: those of f8_e4m3 as f16 / 256,
 *                                     in which nan_of_e4m3 makes NaNs of what they are of NaNs
 *   any_nan_of_e4m3(x)                whether any of the codes is NaN
 *   most_of_e4m3(most, x)             of each two codes one with the larger magnitude: NaN is above
 *                                     all, and any_nan_of_e4m3 finds it
 *   words_of_pair(x, i)               words, up by 8 bits: bytes 2 i of the dwords, then 2 i + 1
 *   vf_of_half(words, h)              the f16 of half h of a register
 *   vf_of_six(x, fraction, at)        byte `at` of each dword, which is a float of six bits with so
 *                                     many bits of fraction: 2 of f6_e3m2, 3 of f6_e2m3. Its code
 *                                     begins at bit SIX_UP, and the bits above it are 0;
 *                                     six_unit(fraction): what the values are times the results
 *   vf_of_byte(is_signed, x, v)       byte v of each dword
 *   vf_of_nibble(x, v)                nibble v of each dword
 *   nibbles_of_half(x, h)             half h of each dword for raised_nibble
 *   raised_nibble(half, v)            nibble v of it plus 2^(23 - 4 v): one AND, or a ternary one
 *   vf_even, vf_odd(a, b)             every second element of a and b
 *   vf_in_turn(a, b, h)               half h of elements of a and b in turn
 *   vf_first(x, n)                    the first n lanes, others 0
 *   vf_eights(p, q)                   8 floats at p, and at q as many as fill a vector
 *   across_eights(in, out)            out[v]: element v of each eight of in
 *   vi_transpose(row, to)             LANES rows of LANES dwords
 *   sum_rows, sum_halves(rows, s)     the sums of LANES vectors, or of the halves of each
 */
#ifndef SINTER_SRC_NUMERIC_SIMD_AVX512_H
#define SINTER_SRC_NUMERIC_SIMD_AVX512_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <immintrin.h>

#include "numeric/unroll.h"

#ifndef TARGET
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
#endif
#define OP TARGET static inline __attribute__((always_inline))
enum { LANES = 16 };
typedef __m512 vf;
typedef __m512i vi;
typedef uint32_t vu __attribute__((vector_size(64)));
typedef __m512d vd;
typedef __mmask16 vm;

#include "numeric/asm_avx512.h"

/* ---- loads and stores ------------------------------------------------------------------------ */

OP vm lanes_below(int64_t n)
{
    return (vm)(n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1);
}
OP vf vf_load(const void *p)
{
    return _mm512_loadu_ps(p);
}
OP void vf_store(void *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
OP vf vf_load_n(const void *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(lanes_below(n), p);
}
OP void vf_store_n(void *p, vf x, int64_t n)
{
    _mm512_mask_storeu_ps(p, lanes_below(n), x);
}
OP void vf_stream(void *p, vf x)
{
    _mm512_stream_ps(p, x);
}
OP vi vi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
OP void vi_store(void *p, vi x)
{
    _mm512_storeu_si512(p, x);
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
OP __m128i bytes_load_n(const unsigned char *p, int64_t n)
{
    return _mm_maskz_loadu_epi8(lanes_below(n), p);
}
OP void bytes_store_n(unsigned char *p, __m128i x, int64_t n)
{
    _mm_mask_storeu_epi8(p, lanes_below(n), x);
}
OP __m256i words_load_n(const unsigned char *p, int64_t n)
{
    return _mm256_maskz_loadu_epi16(lanes_below(n), p);
}
OP void words_store_n(unsigned char *p, __m256i x, int64_t n)
{
    _mm256_mask_storeu_epi16(p, lanes_below(n), x);
}
OP void stream_line(void *to, const void *from)
{
    _mm512_stream_si512(to, vi_load(from));
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
    return _mm512_set1_ps(x);
}
OP vf vf_set_pair(const float *p)
{
    int64_t pair;
    memcpy(&pair, p, sizeof pair);
    return _mm512_castsi512_ps(_mm512_set1_epi64(pair));
}
OP vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
OP vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
OP vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
OP vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
/* q is within 1.5 ulp, and what is left over brings it to the nearest float in all cases
 * (test_quotient tries all that come near the middle of two). */
OP vf vf_quotient(vf x, vf by, vf inverse)
{
    const vf q = x * inverse;
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(q, by, x), inverse, q);
}
OP vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
OP vf vf_add_product(vf sum, vf a, vf b)
{
    return asm_add_product(sum, a, b);
}
OP vf vf_add_multiple(vf sum, vf a, const float *by)
{
    return asm_add_multiple(sum, a, by);
}
OP vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
OP vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
OP vf vf_clamp(vf x, float low, float high)
{
    return vf_min(vf_max(x, vf_set1(low)), vf_set1(high));
}
OP vf vf_abs(vf x)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), x);
}
OP vf vf_abs_min(vf x, float high)
{
    return _mm512_range_ps(x, vf_set1(high), 0xA);
}
OP vf vf_abs_max(vf a, vf b)
{
    const vi bits = _mm512_set1_epi32(INT32_MAX), x = _mm512_castps_si512(a),
             y = _mm512_castps_si512(b);
    return _mm512_castsi512_ps(
        _mm512_max_epi32(_mm512_and_si512(x, bits), _mm512_and_si512(y, bits)));
}
OP vf vf_round(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
OP vi vi_of(vf x)
{
    return _mm512_castps_si512(x);
}
OP vi vi_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}
OP vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}
OP vi vi_xor(vi a, vi b)
{
    return _mm512_xor_si512(a, b);
}
OP vi vi_max(vi a, vi b)
{
    return _mm512_max_epi32(a, b);
}
OP vu vu_set1(uint32_t x)
{
    return (vu)vi_set1((int32_t)x);
}
OP vu vu_min(vu a, vu b)
{
    return (vu)_mm512_min_epu32((vi)a, (vi)b);
}
OP vu vu_max(vu a, vu b)
{
    return (vu)_mm512_max_epu32((vi)a, (vi)b);
}

OP vd vd_set1(double x)
{
    return _mm512_set1_pd(x);
}
OP vd vd_min(vd a, vd b)
{
    return _mm512_min_pd(a, b);
}
OP vd vd_quotient(vd x, vd by, vd inverse)
{
    const vd q = x * inverse;
    return _mm512_fmadd_pd(_mm512_fnmadd_pd(q, by, x), inverse, q);
}

/* ---- masks ----------------------------------------------------------------------------------- */

OP vm vf_ordered(vf x)
{
    return _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
}
OP vm vf_ge(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}
OP vm vu_gt(vu a, vu b)
{
    return _mm512_cmpgt_epi32_mask((vi)a, (vi)b);
}
OP vm vu_eq(vu a, vu b)
{
    return _mm512_cmpeq_epi32_mask((vi)a, (vi)b);
}
OP vu vu_select(vm m, vu a, vu b)
{
    return (vu)_mm512_mask_mov_epi32((vi)b, m, (vi)a);
}
OP bool vm_any(vm m)
{
    return m != 0;
}
OP vu vu_merge(uint32_t mask, vu a, vu b)
{
    return (vu)_mm512_ternarylogic_epi32((vi)a, (vi)b, vi_set1((int32_t)mask), 0xE4);
}

/* ---- conversions ----------------------------------------------------------------------------- */

OP vf vf_of_int(vu x)
{
    return _mm512_cvtepi32_ps((vi)x);
}
OP vu vf_to_int(vf x)
{
    return (vu)_mm512_cvtps_epi32(x);
}
OP vf vf_load_s8(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16_bytes(p)));
}
OP vf vf_load_u8(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load_16_bytes(p)));
}
OP vf vf_load_f16(const void *p)
{
    return _mm512_cvtph_ps(load_32_bytes(p));
}
OP vf vf_load_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_32_bytes(p)), 16));
}
OP vu widen_8(__m128i codes, int h)
{
    (void)h;
    return (vu)_mm512_cvtepu8_epi32(codes);
}
OP vu widen_s8(__m128i codes, int h)
{
    (void)h;
    return (vu)_mm512_cvtepi8_epi32(codes);
}
OP vu widen_high(__m256i codes, int h)
{
    (void)h;
    const vi low = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return (vu)_mm512_maskz_permutexvar_epi16(0xAAAAAAAA, _mm512_slli_epi32(low, 16),
                                              _mm512_castsi256_si512(codes));
}
OP vf vf_of_f16(__m256i codes, int h)
{
    (void)h;
    return _mm512_cvtph_ps(codes);
}
OP __m128i narrow_8(const vu *x)
{
    return _mm512_cvtepi32_epi8((vi)x[0]);
}
OP __m256i narrow_16(const vu *x)
{
    return _mm512_cvtepi32_epi16((vi)x[0]);
}
OP __m256i narrow_high(const vu *x)
{
    const __m256i odd =
        _mm256_setr_epi16(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi16(_mm512_castsi256_si512(odd), (vi)x[0]));
}
OP __m256i f16_of_vf(const vf *x)
{
    return _mm512_cvtps_ph(x[0], _MM_FROUND_TO_NEAREST_INT);
}

/* ---- permutes and reductions ----------------------------------------------------------------- */

OP __m256 vf_half(vf x, int h)
{
    return h == 0 ? _mm512_castps512_ps256(x) : _mm512_extractf32x8_ps(x, 1);
}
/* Four values; the lanes behind them are undefined. */
OP vf vf_load_four(const float *p)
{
    return _mm512_castps128_ps512(_mm_loadu_ps(p));
}
OP vf vf_lookup(vu index, vf values)
{
    return _mm512_permutexvar_ps((vi)index, values);
}
OP vf vf_pick(vf v, const int32_t *at)
{
    return vf_lookup((vu)vi_load(at), v);
}
OP vf lut16(vu index, const float *values)
{
    return _mm512_permutexvar_ps((vi)index, vf_load(values));
}
enum { FAST_LUT32 = 1 };
OP vf lut32(vu index, const float *values)
{
    return _mm512_permutex2var_ps(vf_load(values), (vi)index, vf_load(values + 16));
}
OP vd vd_of(vf x, int h)
{
    return _mm512_cvtps_pd(vf_half(x, h));
}
OP vf vf_of_vd(vd low, vd high)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high),
                              1);
}
OP float vf_sum(vf x)
{
    const __m256 y = _mm256_add_ps(vf_half(x, 0), vf_half(x, 1));
    const __m128 z = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1)),
                 w = _mm_add_ps(z, _mm_movehl_ps(z, z));
    return _mm_cvtss_f32(_mm_add_ss(w, _mm_movehdup_ps(w)));
}

/* The larger dwords of a and b, as signed integers or as unsigned ones. */
OP vi vi_larger(bool is_signed, vi a, vi b)
{
    return is_signed ? _mm512_max_epi32(a, b) : _mm512_max_epu32(a, b);
}
/* A tree: each level folds two vectors into one that holds half as many lanes of each. */
OP vi vi_larger_each(bool is_signed, const vi *v)
{
    vi a[8], b[4];
    for (int i = 0; i < 8; i++) { /* 128-bit lanes of v[i], v[i], v[i + 8], v[i + 8] */
        a[i] = vi_larger(is_signed, _mm512_shuffle_i64x2(v[i], v[i + 8], 0x44),
                         _mm512_shuffle_i64x2(v[i], v[i + 8], 0xee));
    }
    for (int i = 0; i < 4; i++) { /* of v[i], v[i + 8], v[i + 4], v[i + 12] */
        b[i] = vi_larger(is_signed, _mm512_shuffle_i64x2(a[i], a[i + 4], 0x88),
                         _mm512_shuffle_i64x2(a[i], a[i + 4], 0xdd));
    }
    const vi even =
        vi_larger(is_signed, _mm512_unpacklo_epi32(b[0], b[1]), _mm512_unpackhi_epi32(b[0], b[1]));
    const vi odd =
        vi_larger(is_signed, _mm512_unpacklo_epi32(b[2], b[3]), _mm512_unpackhi_epi32(b[2], b[3]));
    const vi all =
        vi_larger(is_signed, _mm512_unpacklo_epi64(even, odd), _mm512_unpackhi_epi64(even, odd));
    return _mm512_shuffle_i64x2(all, all, 0xd8);
}
OP vi vi_max_each(const vi *v)
{
    return vi_larger_each(true, v);
}

/* ---- codes ----------------------------------------------------------------------------------- */

/* A table of 16 floats fits into a register. */
#define TABLES_OF_FLOATS 1
typedef struct vt {
    vf values;
} vt;
OP vt vt_load(const float *values)
{
    return (vt){vf_load(values)};
}
typedef struct vn {
    vu codes;
    vf values;
} vn;
OP vn vn_of(vi codes, vt t)
{
    return (vn){(vu)codes, t.values};
}
OP vf vn_vector(const vn *n, int v)
{
    return _mm512_permutexvar_ps((vi)(n->codes >> (4 * v)), n->values);
}
OP int vn_turn(int i)
{
    return i;
}
OP vf vf_masked_xor(vu x, uint32_t mask, uint32_t flip)
{
    return (vf)_mm512_ternarylogic_epi32((vi)x, vi_set1((int32_t)mask), vi_set1((int32_t)flip),
                                         0x6a);
}
OP vi vi_load_bytes(const void *p, int64_t n)
{
    return n >= 64 ? vi_load(p) : _mm512_maskz_loadu_epi8((1ull << n) - 1, p);
}
OP vi high_bytes(vi x, int h)
{
    const vi zero = _mm512_setzero_si512();
    return h == 0 ? _mm512_unpacklo_epi8(zero, x) : _mm512_unpackhi_epi8(zero, x);
}
OP vf vf_of_half(vi words, int h)
{
    return _mm512_cvtph_ps(h == 0 ? _mm512_castsi512_si256(words)
                                  : _mm512_extracti64x4_epi64(words, 1));
}
OP vi f16_of_e4m3(vi x)
{
    return _mm512_and_si512(_mm512_srai_epi16(x, 1), _mm512_set1_epi16((short)0xbfff));
}
OP bool any_nan_of_e4m3(vi codes)
{
    const vi x = _mm512_or_si512(codes, _mm512_set1_epi8((char)0x80));
    return _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8(-1)) != 0;
}
OP vi nan_of_e4m3(vi half)
{
    const vi magnitude = _mm512_and_si512(half, _mm512_set1_epi16(0x7fff));
    const __mmask32 nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x3f80));
    return _mm512_mask_mov_epi16(half, nan, _mm512_set1_epi16(0x7e00));
}
OP vi most_of_e4m3(vi most, vi codes)
{
    return _mm512_max_epu8(most, _mm512_or_si512(codes, _mm512_set1_epi8((char)0x80)));
}
OP vi words_of_pair(vi x, int i)
{
    const __m128i first = _mm_setr_epi8(-1, 0, -1, 4, -1, 8, -1, 12, -1, 1, -1, 5, -1, 9, -1, 13),
                  last = _mm_setr_epi8(-1, 2, -1, 6, -1, 10, -1, 14, -1, 3, -1, 7, -1, 11, -1, 15);
    const vi words = _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(i == 0 ? first : last));
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), words);
}
/* A table of bf16 has all of them: the lower bytes of both words of a dword are looked up. */
enum { SIX_UP = 0 };
static const uint16_t magnitudes_of_six[2][32] = {
    {0x0000, 0x3d80, 0x3e00, 0x3e40, 0x3e80, 0x3ea0, 0x3ec0, 0x3ee0, 0x3f00, 0x3f20, 0x3f40,
     0x3f60, 0x3f80, 0x3fa0, 0x3fc0, 0x3fe0, 0x4000, 0x4020, 0x4040, 0x4060, 0x4080, 0x40a0,
     0x40c0, 0x40e0, 0x4100, 0x4120, 0x4140, 0x4160, 0x4180, 0x41a0, 0x41c0, 0x41e0},
    {0x0000, 0x3e00, 0x3e80, 0x3ec0, 0x3f00, 0x3f20, 0x3f40, 0x3f60, 0x3f80, 0x3f90, 0x3fa0,
     0x3fb0, 0x3fc0, 0x3fd0, 0x3fe0, 0x3ff0, 0x4000, 0x4010, 0x4020, 0x4030, 0x4040, 0x4050,
     0x4060, 0x4070, 0x4080, 0x4090, 0x40a0, 0x40b0, 0x40c0, 0x40d0, 0x40e0, 0x40f0}};
OP float six_unit(int fraction)
{
    (void)fraction;
    return 1;
}
OP vf vf_of_six(vi codes, int fraction, int at)
{
    const vi plus = vi_load(magnitudes_of_six[fraction - 2]),
             minus = _mm512_xor_si512(plus, _mm512_set1_epi16((short)0x8000)),
             index = at % 2 ? _mm512_srli_epi32(codes, 8) : codes;
    const vu words = (vu)_mm512_permutex2var_epi16(plus, index, minus);
    return (vf)(at < 2 ? words << 16 : words & 0xffff0000u);
}
OP vf vf_of_byte(bool is_signed, vi x, int v)
{
    const vi high = v < 3 ? _mm512_slli_epi32(x, 24 - 8 * v) : x;
    return _mm512_cvtepi32_ps(is_signed ? _mm512_srai_epi32(high, 24)
                                        : _mm512_srli_epi32(high, 24));
}
OP vu nibbles_of_half(vi x, int h)
{
    return h == 0 ? (vu)x : (vu)x >> 16;
}
OP vf raised_nibble(vu half, int v)
{
    return vf_masked_xor(half, UINT32_C(15) << 4 * v, (uint32_t)(150 - 4 * v) << 23);
}
OP vf vf_of_nibble(vi x, int v)
{
    const vi low = v > 0 ? _mm512_srli_epi32(x, (unsigned)(4 * v)) : x;
    return _mm512_cvtepi32_ps(v < 7 ? _mm512_and_si512(low, _mm512_set1_epi32(15)) : low);
}
OP vf vf_even(vf a, vf b)
{
    return _mm512_permutex2var_ps(
        a, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), b);
}
OP vf vf_odd(vf a, vf b)
{
    return _mm512_permutex2var_ps(
        a, _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31), b);
}
OP vf vf_in_turn(vf a, vf b, int h)
{
    const vi low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_ps(a, _mm512_add_epi32(low, _mm512_set1_epi32(8 * h)), b);
}
OP vf vf_first(vf x, int64_t n)
{
    return _mm512_maskz_mov_ps(lanes_below(n), x);
}
OP vf vf_eights(const float *p, const float *q)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(p)), _mm256_loadu_ps(q), 1);
}
OP int32_t vi_largest(vi x)
{
    return _mm512_reduce_max_epi32(x);
}
OP void across_eights(const vf *in, vf *out)
{
    const vi first = _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
    UNROLL
    for (int g = 0; g < 2; g++) {
        const vi at = _mm512_add_epi32(first, vi_set1(4 * g));
        vf four[4]; /* 128-bit lane i of four[j]: element 4 g + i of eights 4 j to 4 j + 3 */
        UNROLL
        for (int j = 0; j < 4; j++) {
            four[j] = _mm512_permutex2var_ps(in[2 * j], at, in[2 * j + 1]);
        }
        const vf low_01 = _mm512_shuffle_f32x4(four[0], four[1], 0x44),
                 high_01 = _mm512_shuffle_f32x4(four[0], four[1], 0xee);
        const vf low_23 = _mm512_shuffle_f32x4(four[2], four[3], 0x44),
                 high_23 = _mm512_shuffle_f32x4(four[2], four[3], 0xee);
        out[4 * g] = _mm512_shuffle_f32x4(low_01, low_23, 0x88);
        out[4 * g + 1] = _mm512_shuffle_f32x4(low_01, low_23, 0xdd);
        out[4 * g + 2] = _mm512_shuffle_f32x4(high_01, high_23, 0x88);
        out[4 * g + 3] = _mm512_shuffle_f32x4(high_01, high_23, 0xdd);
    }
}
OP void vi_transpose(const vi *row, vi *to)
{
    vi pairs[16], fours[16];
    UNROLL
    for (int i = 0; i < 16; i += 2) {
        pairs[i] = _mm512_unpacklo_epi32(row[i], row[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi32(row[i], row[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 16; i += 4) { /* 128-bit lane b of fours[i + j]: lane 4b + j of row[i] .. */
        fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    UNROLL
    for (int j = 0; j < 4; j++) {
        const vi even_low = _mm512_shuffle_i64x2(fours[j], fours[4 + j], 0x88),
                 odd_low = _mm512_shuffle_i64x2(fours[j], fours[4 + j], 0xdd),
                 even_high = _mm512_shuffle_i64x2(fours[8 + j], fours[12 + j], 0x88),
                 odd_high = _mm512_shuffle_i64x2(fours[8 + j], fours[12 + j], 0xdd);
        to[j] = _mm512_shuffle_i64x2(even_low, even_high, 0x88);
        to[4 + j] = _mm512_shuffle_i64x2(odd_low, odd_high, 0x88);
        to[8 + j] = _mm512_shuffle_i64x2(even_low, even_high, 0xdd);
        to[12 + j] = _mm512_shuffle_i64x2(odd_low, odd_high, 0xdd);
    }
}
/* Pairs of rows are folded into one up to 128-bit lanes, of which two make a half: two vectors,
 * of lower and upper halves of rows i.. and of rows i + 4.. in turn, i = 0 and 8. */
OP void fold_rows(const float *rows, vf *to)
{
    vf x[16];
    UNROLL
    for (int i = 0; i < 16; i += 2) {
        const vf a = vf_load(rows + i * 16), b = vf_load(rows + i * 16 + 16);
        x[i] = vf_add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    }
    UNROLL
    for (int i = 0; i < 16; i += 4) { /* lane 4b + j: row i + j, of 128-bit lane b */
        x[i] = vf_add(_mm512_shuffle_ps(x[i], x[i + 2], 0x44),
                      _mm512_shuffle_ps(x[i], x[i + 2], 0xee));
    }
    UNROLL
    for (int i = 0; i < 16; i += 8) {
        to[i / 8] = vf_add(_mm512_shuffle_f32x4(x[i], x[i + 4], 0x88),
                           _mm512_shuffle_f32x4(x[i], x[i + 4], 0xdd));
    }
}
OP void sum_rows(const float *rows, float *s)
{
    vf x[2];
    fold_rows(rows, x);
    vf_store(
        s, vf_add(_mm512_shuffle_f32x4(x[0], x[1], 0x88), _mm512_shuffle_f32x4(x[0], x[1], 0xdd)));
}
OP void sum_halves(const float *rows, float *s)
{
    const vi low = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    vf x[2];
    fold_rows(rows, x);
    vf_store(s, _mm512_permutexvar_ps(low, x[0]));
    vf_store(s + 16, _mm512_permutexvar_ps(low, x[1]));
}

#endif
