/* Matmul with few rows in floats with AVX-512 F, BW, DQ and VL. */
#include "backend_xsmm/ukernels/matmul_rows.h"

#if defined(__x86_64__)

#include "backend_xsmm/ukernels/chunks_avx512.h"

#define LINES_AT(nq) ((nq) == 4 ? 2 : 4)
#define TABLE(form) ((form) == NIBBLES)

OP int32_t vf_largest(vf x)
{
    return _mm512_reduce_max_epi32(_mm512_castps_si512(x));
}

/* out[v]: element v of each eight of in. */
OP void across_eights(const vf *in, vf *out)
{
    const __m512i first =
        _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
    UNROLL
    for (int g = 0; g < 2; g++) {
        const __m512i at = _mm512_add_epi32(first, _mm512_set1_epi32(4 * g));
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

#include "backend_xsmm/ukernels/matmul_rows.inc"

/* Unpacking works within 128 bits. */
TARGET static int32_t place_unpacked(const float *x, int vectors, float *to, int64_t step)
{
    vf most = vf_set1(0);
    for (int v = 0; v < vectors; v++) {
        const float *low = x + unpacked_at(v, 0), *high = x + unpacked_at(v, 8);
        const vf y = _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(low)),
                                        _mm256_loadu_ps(high), 1);
        most = vf_abs_max(most, y);
        vf_store(to + v * step, y);
    }
    return vf_largest(most);
}

CODES(nibbles, NIBBLES, 8, 1, 128)
CODES(s8, BYTES_S8, 4, 4, 64)
CODES(u8, BYTES_U8, 4, 4, 64)
CODES(e5m2, BYTES_E5M2, 4, 2, 64)
CODES(e4m3, BYTES_E4M3, 4, 2, 64)
NUMBERS(f16, HALVES, 2, 32)
NUMBERS(bf16, BRAINS, 2, 32)
NUMBERS(f32, WORDS, 1, 16)

static const rows_floats_t ops[] = {
    [sinter_s4] = {128, 8, 1, 8, 8, nibble_at, place_nibbles, run_nibbles},
    [sinter_u4] = {128, 8, 1, 8, 8, nibble_at, place_nibbles, run_nibbles},
    [sinter_f4_e2m1] = {128, 8, 1, 8, 8, nibble_at, place_nibbles, run_nibbles},
    [sinter_s8] = {64, 4, 4, 16, 1, in_order, place_in_order, run_s8},
    [sinter_u8] = {64, 4, 4, 16, 1, in_order, place_in_order, run_u8},
    [sinter_f8_e5m2] = {64, 4, 2, 16, 1, unpacked_at, place_unpacked, run_e5m2},
    [sinter_f8_e4m3] = {64, 4, 2, 16, 1, unpacked_at, place_unpacked, run_e4m3},
    [sinter_f16] = {32, 2, 1, 0, 1, in_order, place_in_order, run_f16},
    [sinter_bf16] = {32, 2, 1, 0, 1, in_order, place_in_order, run_bf16},
    [sinter_f32] = {16, 1, 1, 0, 1, in_order, place_in_order, run_f32},
};

const rows_floats_table_t rows_floats_avx512 = {LANES, sizeof ops / sizeof *ops, ops};

#endif
