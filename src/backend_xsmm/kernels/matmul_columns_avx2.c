/* Matmul with few rows and weights along N with AVX2, FMA and F16C. */
#include "matmul_columns.h"

#if defined(__x86_64__)

#include "chunks_avx2.h"

#define SUMS 8
#define TABLE(form) false

OP vf vf_pick(vf v, const int32_t *at)
{
    return _mm256_permutevar8x32_ps(v, _mm256_loadu_si256((const __m256i *)(const void *)at));
}

#include "matmul_columns.inc"

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

static const columns_floats_t ops[] = {
    [sinter_s4] = {64, 8, 1, 8, nibble_at, RUN_CODES(s4)},        [sinter_u4] = {64, 8, 1, 8, nibble_at, RUN_CODES(u4)},
    [sinter_f4_e2m1] = {64, 8, 1, 8, nibble_at, RUN_CODES(e2m1)}, [sinter_s8] = {32, 4, 4, 16, in_order, RUN_CODES(s8)},
    [sinter_u8] = {32, 4, 4, 16, in_order, RUN_CODES(u8)},        [sinter_f8_e5m2] = {32, 4, 2, 16, in_order, RUN_CODES(e5m2)},
    [sinter_f8_e4m3] = {32, 4, 2, 16, in_order, RUN_CODES(e4m3)}, [sinter_f16] = {16, 2, 1, 0, in_order, RUN_NUMBERS(f16)},
    [sinter_bf16] = {16, 2, 1, 0, in_order, RUN_NUMBERS(bf16)},   [sinter_f32] = {8, 1, 1, 0, in_order, RUN_NUMBERS(f32)},
};

const columns_table_t columns_avx2 = {LANES, sizeof ops / sizeof *ops, ops};

#endif
