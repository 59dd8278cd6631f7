/* Matmul with few rows in floats with AVX2, FMA and F16C. */
#include "matmul_rows.h"

#if defined(__x86_64__)

#include "chunks_avx2.h"

#define LINES_AT(nq) ((nq) == 4 ? 1 : 2)
#define TABLE(form) false

OP vf vf_pick(vf v, const int32_t *at)
{
    return _mm256_permutevar8x32_ps(v, _mm256_loadu_si256((const __m256i *)(const void *)at));
}
OP float vf_sum(vf x)
{
    const __m128 a = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1)), b = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}

#include "matmul_rows.inc"

CODES(s4, NIBBLES_S4, 8, 1, 64)
CODES(u4, NIBBLES_U4, 8, 1, 64)
CODES(e2m1, NIBBLES_E2M1, 8, 1, 64)
CODES(s8, BYTES_S8, 4, 4, 32)
CODES(u8, BYTES_U8, 4, 4, 32)
CODES(e5m2, BYTES_E5M2, 4, 2, 32)
CODES(e4m3, BYTES_E4M3, 4, 2, 32)
NUMBERS(f16, HALVES, 2, 16)
NUMBERS(bf16, BRAINS, 2, 16)
NUMBERS(f32, WORDS, 1, 8)

static const rows_floats_t ops[] = {
    [sinter_s4] = {64, 8, 1, 8, 8, nibble_at, run_s4},
    [sinter_u4] = {64, 8, 1, 8, 8, nibble_at, run_u4},
    [sinter_f4_e2m1] = {64, 8, 1, 8, 8, nibble_at, run_e2m1},
    [sinter_s8] = {32, 4, 4, 16, 8, in_order, run_s8},
    [sinter_u8] = {32, 4, 4, 16, 8, in_order, run_u8},
    [sinter_f8_e5m2] = {32, 4, 2, 16, 8, in_order, run_e5m2},
    [sinter_f8_e4m3] = {32, 4, 2, 16, 8, in_order, run_e4m3},
    [sinter_f16] = {16, 2, 1, 0, 8, in_order, run_f16},
    [sinter_bf16] = {16, 2, 1, 0, 8, in_order, run_bf16},
    [sinter_f32] = {8, 1, 1, 0, 8, in_order, run_f32},
};

const rows_floats_table_t rows_floats_avx2 = {LANES, sizeof ops / sizeof *ops, ops};

#endif
