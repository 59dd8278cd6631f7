/* The functions of emulated/vectors.h against the instructions that they stand for. Needs a machine
 * with AVX-512, or an emulator of one. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

#define EMULATED(name) emulated##name
#define EMULATED_ASIDE
#include "../emulated/vectors.h"

enum { ROUNDS = 300 };

/* Random bits, and now and then what floats and integers have at their ends. */
static uint64_t state = 88172645463325252u;
static uint32_t draw(void)
{
    static const uint32_t ends[] = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,
                                    0x7f800001, 0xffffffff, 0x3f800000, 0x00000001, 0x807fffff,
                                    0x7f7fffff, 0x7fff8000, 0x40200000, 0xbf000000};
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const uint32_t x = (uint32_t)(state >> 20);
    switch (state % 4) {
    case 0:
        return ends[x % (sizeof ends / sizeof *ends)];
    case 1: /* floats of common sizes */
        return (x & 0x80ffffff) | (uint32_t)(100 + x % 56) << 23;
    default:
        return x;
    }
}
static any512 drawn(void)
{
    any512 a;
    EACH_OF(16) a.u32[i] = draw();
    return a;
}

/* Infinities and numbers: which of several NaNs a sum or a product hands on depends on the order
 * in which the compiler takes the operands. */
static any512 without_nan(any512 a)
{
    EACH_OF(16) a.u32[i] &= (a.u32[i] & MAGNITUDE_BITS) > INFINITY_BITS ? 0xbfffffff : 0xffffffff;
    return a;
}

static void compare(const char *name, const void *ours, const void *theirs, size_t size)
{
    for (size_t i = 0; i < size / 4; i++) {
        uint32_t x, y;
        memcpy(&x, (const char *)ours + 4 * i, 4);
        memcpy(&y, (const char *)theirs + 4 * i, 4);
        CHECK(x == y, "%s: dword %zu is %08x, by the instruction %08x", name, i, x, y);
    }
}

/* Both with the same arguments. */
#define SAME(type, name, ...)                                                      \
    do {                                                                           \
        const type ours = EMULATED(name)(__VA_ARGS__), theirs = name(__VA_ARGS__); \
        compare(#name, &ours, &theirs, sizeof ours);                               \
    } while (0)
#define FLOATS(name) SAME(__m512, _mm512_##name, a.f, b.f);
#define THREE(name) SAME(__m512, _mm512_##name, a.f, b.f, c.f);
#define INTS(name) SAME(__m512i, _mm512_##name, a.i, b.i);
#define SHIFTS(name) SAME(__m512i, _mm512_##name, a.i, 3);
#define MASKS(type, name) SAME(type, _mm512_##name##_mask, a.i, b.i);

__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) static void sums_and_products(void)
{
    const any512 a = drawn(), b = without_nan(drawn()), c = without_nan(drawn());
    FLOATS(add_ps)
    FLOATS(sub_ps)
    FLOATS(mul_ps)
    FLOATS(div_ps)
    THREE(fmadd_ps)
    THREE(fmsub_ps)
    THREE(fnmadd_ps)
    SAME(__m512d, _mm512_fmadd_pd, a.d, b.d, c.d);
    SAME(__m512d, _mm512_fnmadd_pd, a.d, b.d, c.d);
    SAME(__m512, _mm512_mask_add_ps, c.f, 0x5a3c, a.f, b.f);
}

__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) static void arithmetic(void)
{
    const any512 a = drawn(), b = drawn(), c = drawn();
    FLOATS(min_ps)
    FLOATS(max_ps)
    FLOATS(andnot_ps)
    FLOATS(unpacklo_ps)
    FLOATS(unpackhi_ps)
    if ((_mm_getcsr() & 0x40) == 0) { /* Bochs leaves subnormals as they are there */
        FLOATS(scalef_ps)
    }
    SAME(__m512d, _mm512_min_pd, a.d, b.d);
    SAME(__m512i, _mm512_abs_epi16, a.i);
    INTS(add_epi8)
    INTS(add_epi16)
    INTS(add_epi32)
    INTS(sub_epi8)
    INTS(sub_epi16)
    INTS(mullo_epi32)
    INTS(madd_epi16)
    INTS(maddubs_epi16)
    INTS(avg_epu16)
    INTS(min_epi8)
    INTS(min_epu8)
    INTS(min_epu16)
    INTS(min_epu32)
    INTS(max_epi8)
    INTS(max_epi16)
    INTS(max_epi32)
    INTS(max_epu16)
    INTS(max_epu32)
    INTS(packs_epi16)
    INTS(packs_epi32)
    INTS(packus_epi16)
    INTS(and_si512)
    INTS(andnot_si512)
    INTS(or_si512)
    INTS(xor_si512)
    SHIFTS(slli_epi16)
    SHIFTS(slli_epi32)
    SHIFTS(srai_epi16)
    SHIFTS(srai_epi32)
    SHIFTS(srli_epi16)
    SHIFTS(srli_epi32)
    any512 n = b;
    EACH_OF(32) n.u16[i] %= 20;
    SAME(__m512i, _mm512_srlv_epi16, a.i, n.i);
    EACH_OF(16) n.u32[i] %= 40;
    SAME(__m512i, _mm512_srlv_epi32, a.i, n.i);
    SAME(__m512i, _mm512_ternarylogic_epi32, a.i, b.i, c.i, 0xE4);
    SAME(__m512i, _mm512_ternarylogic_epi32, a.i, b.i, c.i, 0x6A);
    SAME(__m512i, _mm512_ternarylogic_epi32, a.i, b.i, c.i, 0xEA);
    SAME(__m512i, _mm512_ternarylogic_epi32, a.i, b.i, c.i, 0xF8);
    SAME(__m512, _mm512_range_ps, a.f, b.f, 0xA);
    SAME(int, _mm512_reduce_add_epi32, a.i);
    SAME(int, _mm512_reduce_max_epi32, a.i);
    SAME(float, _mm512_reduce_max_ps, a.f);
}

__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) static void moves(void)
{
    const any512 a = drawn(), b = drawn(), c = drawn();
    const uint64_t m = (uint64_t)draw() << 32 | draw();
    unsigned char to_ours[64], to_theirs[64];
    INTS(shuffle_epi8)
    INTS(unpacklo_epi8)
    INTS(unpackhi_epi8)
    INTS(unpacklo_epi16)
    INTS(unpackhi_epi16)
    INTS(unpacklo_epi32)
    INTS(unpackhi_epi32)
    INTS(unpacklo_epi64)
    INTS(unpackhi_epi64)
    INTS(permutexvar_epi16)
    INTS(permutexvar_epi32)
    INTS(permutexvar_epi64)
    SAME(__m512, _mm512_permutexvar_ps, a.i, b.f);
    SAME(__m512i, _mm512_permutex2var_epi16, a.i, b.i, c.i);
    SAME(__m512i, _mm512_permutex2var_epi32, a.i, b.i, c.i);
    SAME(__m512, _mm512_permutex2var_ps, a.f, b.i, c.f);
    SAME(__m512i, _mm512_maskz_permutexvar_epi16, (__mmask32)m, a.i, b.i);
    SAME(__m512i, _mm512_maskz_permutex2var_epi16, (__mmask32)m, a.i, b.i, c.i);
    SAME(__m512i, _mm512_shuffle_i32x4, a.i, b.i, 0x4E);
    SAME(__m512i, _mm512_shuffle_i64x2, a.i, b.i, 0xD8);
    SAME(__m512, _mm512_shuffle_f32x4, a.f, b.f, 0x88);
    SAME(__m512, _mm512_shuffle_f32x4, a.f, b.f, 0xDD);
    SAME(__m512, _mm512_shuffle_ps, a.f, b.f, 0x44);
    SAME(__m512, _mm512_shuffle_ps, a.f, b.f, 0xB1);
    SAME(__m256, _mm512_extractf32x8_ps, a.f, 1);
    SAME(__m256i, _mm512_extracti64x4_epi64, a.i, 1);
    SAME(__m512, _mm512_insertf32x8, a.f, b.half_f[0], 1);
    SAME(__m512i, _mm512_broadcast_i32x4, a.quarter[1]);
    SAME(__m512i, _mm512_broadcast_i64x4, a.half_i[1]);
    MASKS(__mmask64, cmpeq_epi8)
    MASKS(__mmask32, cmpeq_epi16)
    MASKS(__mmask16, cmpeq_epi32)
    MASKS(__mmask16, cmpgt_epi32)
    MASKS(__mmask16, cmplt_epu32)
    MASKS(__mmask32, test_epi16)
    SAME(__mmask16, _mm512_cmp_ps_mask, a.f, b.f, _CMP_ORD_Q);
    SAME(__mmask16, _mm512_cmp_ps_mask, a.f, b.f, _CMP_UNORD_Q);
    SAME(__mmask16, _mm512_cmp_ps_mask, a.f, b.f, _CMP_GE_OQ);
    SAME(__mmask32, _mm512_kunpackw, (__mmask32)m, (__mmask32)(m >> 32));
    SAME(__m512i, _mm512_mask_mov_epi16, a.i, (__mmask32)m, b.i);
    SAME(__m512i, _mm512_mask_blend_epi16, (__mmask32)m, a.i, b.i);
    SAME(__m512i, _mm512_mask_mov_epi32, a.i, (__mmask16)m, b.i);
    SAME(__m512i, _mm512_mask_set1_epi32, a.i, (__mmask16)m, 7);
    SAME(__m512i, _mm512_mask_or_epi32, a.i, (__mmask16)m, b.i, c.i);
    SAME(__m512, _mm512_mask_mov_ps, a.f, (__mmask16)m, b.f);
    SAME(__m512, _mm512_maskz_mov_ps, (__mmask16)m, b.f);
    SAME(__m512, _mm512_mask_loadu_ps, a.f, (__mmask16)m, &b);
    SAME(__m512, _mm512_maskz_loadu_ps, (__mmask16)m, &b);
    SAME(__m512i, _mm512_maskz_loadu_epi32, (__mmask16)m, &b);
    SAME(__m512i, _mm512_maskz_loadu_epi8, (__mmask64)m, &b);
    SAME(__m256i, _mm256_maskz_loadu_epi16, (__mmask16)m, &b);
    SAME(__m128i, _mm_maskz_loadu_epi8, (__mmask16)m, &b);
#define STORES(name, mask, x)                                         \
    memset(to_ours, 1, 64), memset(to_theirs, 1, 64);                 \
    EMULATED(name)(to_ours, (mask)m, x), name(to_theirs, (mask)m, x); \
    compare(#name, to_ours, to_theirs, 64);
    STORES(_mm512_mask_storeu_ps, __mmask16, a.f)
    STORES(_mm256_mask_storeu_epi16, __mmask16, a.half_i[0])
    STORES(_mm_mask_storeu_epi8, __mmask16, a.quarter[0])
    any512 at = c;
    EACH_OF(16) at.u32[i] %= 16;
    SAME(__m512, _mm512_i32gather_ps, at.i, (const float *)&b, 4);
}

__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) static void conversions(void)
{
    const any512 a = drawn();
    SAME(__m512i, _mm512_cvtepi8_epi16, a.half_i[0]);
    SAME(__m512i, _mm512_cvtepi8_epi32, a.quarter[0]);
    SAME(__m512i, _mm512_cvtepu8_epi32, a.quarter[0]);
    SAME(__m512i, _mm512_cvtepu16_epi32, a.half_i[0]);
    SAME(__m256i, _mm512_cvtepi32_epi16, a.i);
    SAME(__m128i, _mm512_cvtepi32_epi8, a.i);
    SAME(__m512, _mm512_cvtepi32_ps, a.i);
    SAME(__m512i, _mm512_cvtps_epi32, a.f);
    SAME(__m512, _mm512_roundscale_ps, a.f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    SAME(__m512i, _mm512_cvt_roundps_epi32, a.f, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    SAME(__m512i, _mm512_cvt_roundps_epi32, a.f, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    SAME(__m512, _mm512_cvtph_ps, a.half_i[0]);
    SAME(__m256i, _mm512_cvtps_ph, a.f, _MM_FROUND_TO_NEAREST_INT);
    SAME(__m512d, _mm512_cvtps_pd, a.half_f[0]);
    SAME(__m256, _mm512_cvtpd_ps, a.d);
}

__attribute__((target("avx512f,avx512vnni"))) static void products(void)
{
    const any512 a = drawn(), b = drawn(), c = drawn();
    SAME(__m512i, _mm512_dpbusd_epi32, a.i, b.i, c.i);
    SAME(__m512i, _mm512_dpwssd_epi32, a.i, b.i, c.i);
}

/* As AVX512_BF16's, which few emulators have. */
__attribute__((target("avx512f,avx512bf16"))) static void bf16(void)
{
    const any512 a = drawn();
    const __m256i ours = emulated_mm512_cvtneps_pbh(a.f);
    const __m256bh theirs = _mm512_cvtneps_pbh(a.f);
    compare("_mm512_cvtneps_pbh", &ours, &theirs, sizeof ours);
}

int main(void)
{
    if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl")) {
        check_skip("this machine has no AVX-512");
        return check_finish();
    }
    const unsigned control = _mm_getcsr();
    for (int i = 0; i < ROUNDS; i++) {
        _mm_setcsr(i % 3 == 2 ? control | 0x8040 : control); /* subnormals are zeros */
        sums_and_products();
        arithmetic();
        moves();
        conversions();
        if (__builtin_cpu_supports("avx512vnni")) {
            products();
        }
        if (__builtin_cpu_supports("avx512bf16")) {
            bf16();
        }
    }
    return check_finish();
}
