/* Matmul with few rows in floats with AVX2, FMA and F16C. */
#include "backend_xsmm/ukernels/matmul_rows.h"

#if defined(__x86_64__)

#include "backend_xsmm/ukernels/chunks_avx2.h"

#define LINES_AT(nq) ((nq) == 4 ? 1 : 2)
#define TABLE(form) false

OP int32_t vf_largest(vf x)
{
    int32_t lane[LANES], most = 0;
    vf_store((float *)(void *)lane, x);
    for (int i = 0; i < LANES; i++) {
        most = lane[i] > most ? lane[i] : most;
    }
    return most;
}

/* out[v]: element v of each eight of in. */
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

#include "backend_xsmm/ukernels/matmul_rows.inc"

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
    [sinter_s4] = {64, 8, 1, 8, 8, nibble_at, place_nibbles, run_s4},
    [sinter_u4] = {64, 8, 1, 8, 8, nibble_at, place_nibbles, run_u4},
    [sinter_f4_e2m1] = {64, 8, 1, 8, 8, nibble_at, place_nibbles, run_e2m1},
    [sinter_s8] = {32, 4, 4, 16, 8, in_order, place_in_order, run_s8},
    [sinter_u8] = {32, 4, 4, 16, 8, in_order, place_in_order, run_u8},
    [sinter_f8_e5m2] = {32, 4, 2, 16, 8, in_order, place_in_order, run_e5m2},
    [sinter_f8_e4m3] = {32, 4, 2, 16, 8, in_order, place_in_order, run_e4m3},
    [sinter_f16] = {16, 2, 1, 0, 8, in_order, place_in_order, run_f16},
    [sinter_bf16] = {16, 2, 1, 0, 8, in_order, place_in_order, run_bf16},
    [sinter_f32] = {8, 1, 1, 0, 8, in_order, place_in_order, run_f32},
};

const rows_floats_table_t rows_floats_avx2 = {LANES, sizeof ops / sizeof *ops, ops};

#endif
