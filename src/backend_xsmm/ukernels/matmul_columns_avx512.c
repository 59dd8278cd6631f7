/* Matmul with few rows and weights along N with AVX-512 F, BW, DQ and VL. */
#include "backend_xsmm/drivers/matmul_columns.h"

#if defined(__x86_64__)

#include "backend_xsmm/ukernels/chunks_avx512.h"

#define SUMS 16
#define TABLE(form) ((form) == NIBBLES)

OP vf vf_bits(__m512i x, int mask, int flip)
{
    return _mm512_castsi512_ps(
        _mm512_ternarylogic_epi32(x, _mm512_set1_epi32(mask), _mm512_set1_epi32(flip), 0x6a));
}
OP __m512i upper(__m512i x)
{
    return _mm512_srli_epi32(x, 16);
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
OP vf vf_eights(const float *p, const float *q)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(p)), _mm256_loadu_ps(q), 1);
}
#include "backend_xsmm/ukernels/matmul_columns.inc"

ARRANGE(arrange_unpacked, true, 4, unpacked_at)

NIBBLES_OF(s4, NIBBLES, 8, 128)
NIBBLES_OF(u4, NIBBLES, 0, 128)
CODES(e2m1, NIBBLES, 8, 1, 128)
CODES(s8, BYTES_S8, 4, 4, 64)
CODES(u8, BYTES_U8, 4, 4, 64)
CODES(e5m2, BYTES_E5M2, 4, 2, 64)
CODES(e4m3, BYTES_E4M3, 4, 2, 64)
NUMBERS(f16, HALVES, 2, 32)
NUMBERS(bf16, BRAINS, 2, 32)
NUMBERS(f32, WORDS, 1, 16)

static const columns_floats_t ops[] = {
    [sinter_s4] = {128, 8, 1, 8, nibble_at, bias_s4, arrange_nibbles, RUN_NIBBLES(s4)},
    [sinter_u4] = {128, 8, 1, 8, nibble_at, bias_u4, arrange_nibbles, RUN_NIBBLES(u4)},
    [sinter_f4_e2m1] = {128, 8, 1, 8, nibble_at, NULL, arrange_nibbles, RUN_CODES(e2m1)},
    [sinter_s8] = {64, 4, 4, 16, in_order, NULL, arrange_bytes, RUN_CODES(s8)},
    [sinter_u8] = {64, 4, 4, 16, in_order, NULL, arrange_bytes, RUN_CODES(u8)},
    [sinter_f8_e5m2] = {64, 4, 2, 16, unpacked_at, NULL, arrange_unpacked, RUN_CODES(e5m2)},
    [sinter_f8_e4m3] = {64, 4, 2, 16, unpacked_at, NULL, arrange_unpacked, RUN_CODES(e4m3)},
    [sinter_f16] = {32, 2, 1, 0, in_order, NULL, NULL, RUN_NUMBERS(f16)},
    [sinter_bf16] = {32, 2, 1, 0, in_order, NULL, NULL, RUN_NUMBERS(bf16)},
    [sinter_f32] = {16, 1, 1, 0, in_order, NULL, NULL, RUN_NUMBERS(f32)},
};

const columns_table_t columns_avx512 = {LANES, sizeof ops / sizeof *ops, ops};

#endif
