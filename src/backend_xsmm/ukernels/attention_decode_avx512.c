/* Decoding attention with AVX-512 F, BW, DQ and VL. */
#include "backend_xsmm/drivers/attention_decode.h"

#if defined(__x86_64__)

#include <string.h>

#include "backend_xsmm/ukernels/chunks_avx512.h"

enum { ACCS = 16, PAIR = 2 };

/* Short loads seldom cross a cache line. */
OP vf vf_groups(const float *p, bool few)
{
    return few ? _mm512_castps128_ps512(_mm_loadu_ps(p)) : _mm512_loadu_ps(p);
}
/* Pairs of rows are folded into one up to 128-bit lanes, of which two make a half: two vectors,
 * of lower and upper halves of rows i.. and of rows i + 4.. in turn, i = 0 and 8. */
OP void fold(const float *rows, vf *to)
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

OP void reduce(const float *rows, float *s)
{
    vf x[2];
    fold(rows, x);
    vf_store(
        s, vf_add(_mm512_shuffle_f32x4(x[0], x[1], 0x88), _mm512_shuffle_f32x4(x[0], x[1], 0xdd)));
}

OP void reduce_halves(const float *rows, float *s)
{
    const __m512i low = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    vf x[2];
    fold(rows, x);
    vf_store(s, _mm512_permutexvar_ps(low, x[0]));
    vf_store(s + 16, _mm512_permutexvar_ps(low, x[1]));
}

#include "backend_xsmm/ukernels/attention_decode.inc"

FORM(nibbles, NIBBLES, 8, 1, 128)
FORM(s8, BYTES_S8, 4, 4, 64)
FORM(u8, BYTES_U8, 4, 4, 64)
FORM(e5m2, BYTES_E5M2, 4, 2, 64)
FORM(e4m3, BYTES_E4M3, 4, 2, 64)
FORM(f16, HALVES, 2, 2, 32)
FORM(bf16, BRAINS, 2, 2, 32)
FORM(f32, WORDS, 1, 1, 16)

static const decode_ops_t ops[] = {
    [sinter_s4] = {8, 1, 128, 8, 8, nibble_at, qk_nibbles, pv_nibbles},
    [sinter_u4] = {8, 1, 128, 8, 8, nibble_at, qk_nibbles, pv_nibbles},
    [sinter_f4_e2m1] = {8, 1, 128, 8, 8, nibble_at, qk_nibbles, pv_nibbles},
    [sinter_s8] = {4, 4, 64, 1, 1, in_order, qk_s8, pv_s8},
    [sinter_u8] = {4, 4, 64, 1, 1, in_order, qk_u8, pv_u8},
    [sinter_f8_e5m2] = {4, 2, 64, 16, 1, unpacked_at, qk_e5m2, pv_e5m2},
    [sinter_f8_e4m3] = {4, 2, 64, 16, 1, unpacked_at, qk_e4m3, pv_e4m3},
    [sinter_f16] = {2, 2, 32, 1, 1, in_order, qk_f16, pv_f16},
    [sinter_bf16] = {2, 2, 32, 1, 1, in_order, qk_bf16, pv_bf16},
    [sinter_f32] = {1, 1, 16, 1, 1, in_order, qk_f32, pv_f32},
};

const decode_table_t decode_table_avx512 = {LANES, sizeof ops / sizeof *ops, ops, any_tiny};

#endif
