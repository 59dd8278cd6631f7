/* Codes of 4 and 8 bits times activations of one or two signed bytes with AVX-512 VNNI: exact
 * products, exact sums. For x86-64 files of this ISA only.
 *
 * 64 bytes of a row of codes are four quads of 16 bytes, inside which coefficients do not
 * change. Codes become bytes u = code + offset >= 0. Four rows are worked off together: a vector
 * of "corners" has lane 4 * quad + row. */
#ifndef SINTER_SRC_KERNELS_CODES_VNNI_H
#define SINTER_SRC_KERNELS_CODES_VNNI_H

#include <stdint.h>

#include <immintrin.h>

#include "backend_xsmm/ukernels/few_rows.h"
#include "numeric/unroll.h"

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")))
#define OP TARGET static inline __attribute__((always_inline))

typedef __m512i vi;
typedef __m512 vf;
typedef enum form { NIBBLES, TABLE, BYTES } form_t;

enum {
    MOST_2 = 127 * 256 + 127, /* of two limbs, the lower one from -128 to 127 */
    MOST_1 = 127
};

/* sum + u * bytes: GCC copies the sums around the intrinsic. */
OP vi dp_of(vi sum, vi u, vi bytes)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u), "v"(bytes));
    return sum;
}

/* What makes bytes of codes. */
typedef struct unpack {
    vi flip, table;
} unpack_t;

/* u = code ^ flip, by byte, or table[code] (16 bytes, NULL unless form is TABLE). */
OP unpack_t unpack_of(form_t form, int flip_byte, const unsigned char *table)
{
    const vi flip = _mm512_set1_epi8((char)flip_byte);
    return (unpack_t){flip, form == TABLE ? _mm512_broadcast_i32x4(_mm_loadu_si128(
                                                (const __m128i *)(const void *)table))
                                          : flip};
}

/* The even or the odd codes of 4 bits, or all of 8. */
OP vi bytes_of(form_t form, const unpack_t *un, vi x, int odd)
{
    if (form == BYTES) {
        return _mm512_xor_si512(x, un->flip);
    }
    const vi low = _mm512_set1_epi8(15), y = odd ? _mm512_srli_epi16(x, 4) : x;
    return form == NIBBLES
               ? _mm512_ternarylogic_epi32(y, low, un->flip, 0x6a) /* (y & low) ^ flip */
               : _mm512_shuffle_epi8(un->table, _mm512_and_si512(y, low));
}

/* Corners of the dot products of four rows' bytes, u[row * halves + half], with one row of
 * activations. */
OP vi dots(int halves, int limbs, const vi *u, const int8_t (*q)[2][64])
{
    vi a[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        a[i] = _mm512_setzero_si512();
    }
    UNROLL
    for (int l = 0; l < limbs; l++) {
        UNROLL
        for (int h = 0; h < halves; h++) {
            const vi y = _mm512_load_si512(q[l][h]);
            UNROLL
            for (int i = 0; i < 4; i++) {
                a[i] = dp_of(l && !h ? _mm512_slli_epi32(a[i], 8) : a[i], u[i * halves + h], y);
            }
        }
    }
    const vi ab =
        _mm512_add_epi32(_mm512_unpacklo_epi32(a[0], a[1]), _mm512_unpackhi_epi32(a[0], a[1]));
    const vi cd =
        _mm512_add_epi32(_mm512_unpacklo_epi32(a[2], a[3]), _mm512_unpackhi_epi32(a[2], a[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* One quad, 16 or 32 integers, as `limbs` bytes each. */
OP void place_quad(form_t form, const vi *y, int limbs, int quad, int8_t (*byte)[2][64],
                   float scale, float *scales, int32_t *sums)
{
    const int n = form == BYTES ? 1 : 2;
    __m128i high[2], low[2];
    UNROLL
    for (int i = 0; i < n; i++) {
        low[i] = _mm512_cvtepi32_epi8(y[i]);
        high[i] = limbs == 2 ? _mm512_cvtepi32_epi8(_mm512_srai_epi32(
                                   _mm512_add_epi32(y[i], _mm512_set1_epi32(128)), 8))
                             : low[i];
    }
    const __m128i *limb[2] = {high, low};
    UNROLL
    for (int l = 0; l < limbs; l++) {
        int8_t *to = &byte[l][0][quad * 16];
        if (form == BYTES) {
            _mm_store_si128((__m128i *)(void *)to, limb[l][0]);
        } else {
            const __m128i low_byte = _mm_set1_epi16(255), a = limb[l][0], b = limb[l][1];
            _mm_store_si128((__m128i *)(void *)to, _mm_packus_epi16(_mm_and_si128(a, low_byte),
                                                                    _mm_and_si128(b, low_byte)));
            _mm_store_si128((__m128i *)(void *)(to + 64),
                            _mm_packus_epi16(_mm_srli_epi16(a, 8), _mm_srli_epi16(b, 8)));
        }
    }
    _mm_store_ps(scales + quad * 4, _mm_set1_ps(scale));
    _mm_store_si128(
        (__m128i *)(void *)(sums + quad * 4),
        _mm_set1_epi32(_mm512_reduce_add_epi32(n == 1 ? y[0] : _mm512_add_epi32(y[0], y[1]))));
}

/* One quad, of 16 or 32 floats, as `limbs` bytes each. False: not numbers, so small that the
 * reciprocal of the scale would be infinite, or so large that sums would be before they are
 * scaled. */
OP bool quantise_quad(form_t form, float unit, const float *x, int limbs, int quad,
                      int8_t (*byte)[2][64], float *scale, int32_t *sums)
{
    const int n = form == BYTES ? 1 : 2;
    const vf most = _mm512_set1_ps(limbs == 2 ? MOST_2 : MOST_1);
    const vi magnitude = _mm512_set1_epi32(INT32_MAX);
    vf v[2];
    vi y[2], largest = _mm512_setzero_si512();
    UNROLL
    for (int i = 0; i < n; i++) {
        v[i] = _mm512_loadu_ps(x + i * 16);
        largest = _mm512_max_epi32(largest, _mm512_and_si512(_mm512_castps_si512(v[i]), magnitude));
    }
    const int bits = _mm512_reduce_max_epi32(largest);
    if (bits >= TAME_BEYOND || (bits > 0 && bits < TAME_LEAST)) {
        return false;
    }
    const vf amax = _mm512_castsi512_ps(_mm512_set1_epi32(bits));
    const vf by = bits > 0 ? _mm512_div_ps(most, amax) : _mm512_setzero_ps();
    UNROLL
    for (int i = 0; i < n; i++) {
        y[i] = _mm512_cvtps_epi32(_mm512_mul_ps(v[i], by));
    }
    place_quad(form, y, limbs, quad, byte, _mm512_cvtss_f32(_mm512_div_ps(amax, most)) * unit,
               scale, sums);
    return true;
}

#endif
