/* Matmul with few rows and weights along N with AVX2, FMA and F16C. */
#include "backend_xsmm/drivers/matmul_columns.h"

#if defined(__x86_64__)

#include "backend_xsmm/ukernels/chunks_avx2.h"

#define SUMS 8
#define TABLE(form) false

OP vf vf_bits(__m256i x, int mask, int flip)
{
    return _mm256_castsi256_ps(
        _mm256_xor_si256(_mm256_and_si256(x, _mm256_set1_epi32(mask)), _mm256_set1_epi32(flip)));
}
OP __m256i upper(__m256i x)
{
    return _mm256_srli_epi32(x, 16);
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
OP vf vf_eights(const float *p, const float *q)
{
    (void)q;
    return _mm256_loadu_ps(p);
}
#include "backend_xsmm/ukernels/matmul_columns.inc"

NIBBLES_OF(s4, NIBBLES_S4, 8, 64)
NIBBLES_OF(u4, NIBBLES_U4, 0, 64)
CODES(e2m1, NIBBLES_E2M1, 8, 1, 64)
CODES(s8, BYTES_S8, 4, 4, 32)
CODES(u8, BYTES_U8, 4, 4, 32)
CODES(e5m2, BYTES_E5M2, 4, 2, 32)
CODES(e4m3, BYTES_E4M3, 4, 2, 32)
NUMBERS(f16, HALVES, 2, 16)
NUMBERS(bf16, BRAINS, 2, 16)
NUMBERS(f32, WORDS, 1, 8)

static const columns_floats_t ops[] = {
    [sinter_s4] = {64, 8, 1, 8, nibble_at, bias_s4, arrange_nibbles, RUN_NIBBLES(s4)},
    [sinter_u4] = {64, 8, 1, 8, nibble_at, bias_u4, arrange_nibbles, RUN_NIBBLES(u4)},
    [sinter_f4_e2m1] = {64, 8, 1, 8, nibble_at, NULL, arrange_nibbles, RUN_CODES(e2m1)},
    [sinter_s8] = {32, 4, 4, 16, in_order, NULL, arrange_bytes, RUN_CODES(s8)},
    [sinter_u8] = {32, 4, 4, 16, in_order, NULL, arrange_bytes, RUN_CODES(u8)},
    [sinter_f8_e5m2] = {32, 4, 2, 16, in_order, NULL, arrange_bytes, RUN_CODES(e5m2)},
    [sinter_f8_e4m3] = {32, 4, 2, 16, in_order, NULL, arrange_bytes, RUN_CODES(e4m3)},
    [sinter_f16] = {16, 2, 1, 0, in_order, NULL, NULL, RUN_NUMBERS(f16)},
    [sinter_bf16] = {16, 2, 1, 0, in_order, NULL, NULL, RUN_NUMBERS(bf16)},
    [sinter_f32] = {8, 1, 1, 0, in_order, NULL, NULL, RUN_NUMBERS(f32)},
};

const columns_table_t columns_avx2 = {LANES, sizeof ops / sizeof *ops, ops};

#endif
