/* AVX-512 on machines without it: the compiler's intrinsics up to AVX2 and FMA, and in C those of
 * AVX-512 F, BW, DQ, VL and VNNI that the library uses, by Intel's definitions (vectors.h). The
 * build with SINTER_EMULATE_AVX512 finds this file where it asks for <immintrin.h>, so that the
 * library's files for AVX-512 are compiled as they are and run on AVX2. unit/test_emulated.c
 * compares each of these functions with the instruction itself, on a machine that has it.
 *
 * Memory that an instruction does not touch because of a mask is not touched here either, and
 * addresses that an instruction wants aligned must be so here. */
#ifndef SINTER_TESTS_EMULATED_IMMINTRIN_H
#define SINTER_TESTS_EMULATED_IMMINTRIN_H

#include <stdint.h>
#include <string.h>

/* Its parts want to be included by the compiler's immintrin.h, which this file stands for. */
#define _IMMINTRIN_H_INCLUDED
#include <mmintrin.h>

#include <xmmintrin.h>

#include <emmintrin.h>

#include <pmmintrin.h>

#include <tmmintrin.h>

#include <smmintrin.h>

#include <avxintrin.h>

#include <avx2intrin.h>

#include <f16cintrin.h>

#include <fmaintrin.h>

typedef float __m512 __attribute__((vector_size(64), may_alias));
typedef double __m512d __attribute__((vector_size(64), may_alias));
typedef long long __m512i __attribute__((vector_size(64), may_alias));
typedef uint8_t __mmask8;
typedef uint16_t __mmask16;
typedef uint32_t __mmask32;
typedef uint64_t __mmask64;

#include "vectors.h"

/* These vectors have no register to be hidden in. */
#undef HIDE_VECTOR
#define HIDE_VECTOR(x) __asm__("" : "+m"(x))
#undef HIDE_AFTER
#define HIDE_AFTER(p, x) __asm__("" : "+r"(p), "+m"(x))

#endif
