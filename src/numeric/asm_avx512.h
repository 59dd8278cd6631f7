/* A part of simd_avx512.h: instructions that are written as assembly. Those of VNNI and AVX512_BF16
 * are for code that has checked for them. tests/emulated has a header of this name that does the
 * same in C. */
#ifndef SINTER_SRC_NUMERIC_ASM_AVX512_H
#define SINTER_SRC_NUMERIC_ASM_AVX512_H

/* Every dword of sum plus the products of the four unsigned bytes of u there and the four signed
 * bytes of s. As assembly, because GCC would copy the sums around the intrinsic. */
OP __m512i asm_dot_bytes(__m512i sum, __m512i u, __m512i s)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u), "v"(s));
    return sum;
}
/* The same with the four bytes at p in every dword of s. */
OP __m512i asm_dot_dword(__m512i sum, __m512i u, const uint8_t *p)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(u), "m"(*(const uint8_t(*)[4])p));
    return sum;
}
/* The same of two signed words. */
OP __m512i asm_dot_words(__m512i sum, __m512i a, __m512i b)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

/* sum + a * b, and sum + a * *by, rounded once. As assembly for the same reason. */
OP __m512 asm_add_product(__m512 sum, __m512 a, __m512 b)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}
OP __m512 asm_add_multiple(__m512 sum, __m512 a, const float *by)
{
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(a), "m"(*by));
    return sum;
}

/* Floats as bf16. As assembly, because the file is not compiled for AVX512_BF16. */
OP __m256i asm_bf16(__m512 x)
{
    __m256i words;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(words) : "v"(x));
    return words;
}
OP __m512i asm_bf16_pair(__m512 low, __m512 high)
{
    __m512i words;
    __asm__("vcvtne2ps2bf16 %2, %1, %0" : "=v"(words) : "v"(high), "v"(low));
    return words;
}

#endif
