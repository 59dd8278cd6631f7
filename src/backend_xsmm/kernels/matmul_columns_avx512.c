/* Matmul with few rows and weights along N with AVX-512 F, BW, DQ and VL. */
#include "matmul_columns.h"

#if defined(__x86_64__)

#include "chunks_avx512.h"

#define SUMS 16
#define TABLE(form) ((form) == NIBBLES)

OP vf vf_pick(vf v, const int32_t *at)
{
    return _mm512_permutexvar_ps(_mm512_loadu_si512(at), v);
}

#include "matmul_columns.inc"

CODES(nibbles, NIBBLES, 8, 1, 128)
CODES(s8, BYTES_S8, 4, 4, 64)
CODES(u8, BYTES_U8, 4, 4, 64)
CODES(e5m2, BYTES_E5M2, 4, 2, 64)
CODES(e4m3, BYTES_E4M3, 4, 2, 64)
NUMBERS(f16, HALVES, 2, 32)
NUMBERS(bf16, BRAINS, 2, 32)
NUMBERS(f32, WORDS, 1, 16)

static const columns_floats_t ops[] = {
    [sinter_s4] = {128, 8, 1, 8, nibble_at, RUN_CODES(nibbles)},
    [sinter_u4] = {128, 8, 1, 8, nibble_at, RUN_CODES(nibbles)},
    [sinter_f4_e2m1] = {128, 8, 1, 8, nibble_at, RUN_CODES(nibbles)},
    [sinter_s8] = {64, 4, 4, 16, in_order, RUN_CODES(s8)},
    [sinter_u8] = {64, 4, 4, 16, in_order, RUN_CODES(u8)},
    [sinter_f8_e5m2] = {64, 4, 2, 16, unpacked_at, RUN_CODES(e5m2)},
    [sinter_f8_e4m3] = {64, 4, 2, 16, unpacked_at, RUN_CODES(e4m3)},
    [sinter_f16] = {32, 2, 1, 0, in_order, RUN_NUMBERS(f16)},
    [sinter_bf16] = {32, 2, 1, 0, in_order, RUN_NUMBERS(bf16)},
    [sinter_f32] = {16, 1, 1, 0, in_order, RUN_NUMBERS(f32)},
};

const columns_table_t columns_avx512 = {LANES, sizeof ops / sizeof *ops, ops};

#endif
