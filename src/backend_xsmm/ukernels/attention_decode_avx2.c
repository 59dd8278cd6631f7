/* Decoding attention with AVX2, FMA and F16C. */
#include "backend_xsmm/drivers/attention_decode.h"

#if defined(__x86_64__)

#include <string.h>

#include "backend_xsmm/ukernels/chunks_avx2.h"

enum { ACCS = 8, PAIR = 1 };

/* Short loads seldom cross a cache line. */
OP vf vf_groups(const float *p, bool few)
{
    return few ? _mm256_castps128_ps256(_mm_loadu_ps(p)) : _mm256_loadu_ps(p);
}
/* Pairs of rows are folded into one up to 128-bit lanes, which are the halves: two vectors, of
 * rows 0 to 3 and 4 to 7. */
OP void fold(const float *rows, vf *to)
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

OP void reduce(const float *rows, float *s)
{
    vf x[2];
    fold(rows, x);
    vf_store(s, vf_add(_mm256_permute2f128_ps(x[0], x[1], 0x20),
                       _mm256_permute2f128_ps(x[0], x[1], 0x31)));
}

OP void reduce_halves(const float *rows, float *s)
{
    const __m256i low = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    vf x[2];
    fold(rows, x);
    vf_store(s, _mm256_permutevar8x32_ps(x[0], low));
    vf_store(s + 8, _mm256_permutevar8x32_ps(x[1], low));
}

#include "backend_xsmm/ukernels/attention_decode.inc"

FORM(s4, NIBBLES_S4, 8, 1, 64)
FORM(u4, NIBBLES_U4, 8, 1, 64)
FORM(e2m1, NIBBLES_E2M1, 8, 1, 64)
FORM(s8, BYTES_S8, 4, 4, 32)
FORM(u8, BYTES_U8, 4, 4, 32)
FORM(e5m2, BYTES_E5M2, 4, 2, 32)
FORM(e4m3, BYTES_E4M3, 4, 2, 32)
FORM(f16, HALVES, 2, 2, 16)
FORM(bf16, BRAINS, 2, 2, 16)
FORM(f32, WORDS, 1, 1, 8)

static const decode_ops_t ops[] = {
    [sinter_s4] = {8, 1, 64, 8, 8, nibble_at, qk_s4, pv_s4},
    [sinter_u4] = {8, 1, 64, 8, 8, nibble_at, qk_u4, pv_u4},
    [sinter_f4_e2m1] = {8, 1, 64, 8, 8, nibble_at, qk_e2m1, pv_e2m1},
    [sinter_s8] = {4, 4, 32, 1, 8, in_order, qk_s8, pv_s8},
    [sinter_u8] = {4, 4, 32, 1, 8, in_order, qk_u8, pv_u8},
    [sinter_f8_e5m2] = {4, 2, 32, 16, 8, in_order, qk_e5m2, pv_e5m2},
    [sinter_f8_e4m3] = {4, 2, 32, 16, 8, in_order, qk_e4m3, pv_e4m3},
    [sinter_f16] = {2, 2, 16, 1, 8, in_order, qk_f16, pv_f16},
    [sinter_bf16] = {2, 2, 16, 1, 8, in_order, qk_bf16, pv_bf16},
    [sinter_f32] = {1, 1, 8, 1, 8, in_order, qk_f32, pv_f32},
};

const decode_table_t decode_table_avx2 = {LANES, sizeof ops / sizeof *ops, ops, any_tiny};

#endif
