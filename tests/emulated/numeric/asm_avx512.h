/* The functions of src/numeric/asm_avx512.h in C. */
#ifndef SINTER_SRC_NUMERIC_ASM_AVX512_H
#define SINTER_SRC_NUMERIC_ASM_AVX512_H

OP __m512i asm_dot_bytes(__m512i sum, __m512i u, __m512i s)
{
    return _mm512_dpbusd_epi32(sum, u, s);
}
OP __m512i asm_dot_dword(__m512i sum, __m512i u, const uint8_t *p)
{
    int32_t dword;
    memcpy(&dword, p, sizeof dword);
    return _mm512_dpbusd_epi32(sum, u, _mm512_set1_epi32(dword));
}
OP __m512i asm_dot_words(__m512i sum, __m512i a, __m512i b)
{
    return _mm512_dpwssd_epi32(sum, a, b);
}
OP __m512 asm_add_product(__m512 sum, __m512 a, __m512 b)
{
    return _mm512_fmadd_ps(a, b, sum);
}
OP __m512 asm_add_multiple(__m512 sum, __m512 a, const float *by)
{
    return _mm512_fmadd_ps(a, _mm512_set1_ps(*by), sum);
}
OP __m256i asm_bf16(__m512 x)
{
    return _mm512_cvtneps_pbh(x);
}
OP __m512i asm_bf16_pair(__m512 low, __m512 high)
{
    return (any512){.half_i = {_mm512_cvtneps_pbh(low), _mm512_cvtneps_pbh(high)}}.i;
}

#endif
