/* Bulk conversions with AVX-512 F, BW, DQ and VL. */
#include "numeric/dtype_bulk.h"

#if defined(__x86_64__)

#include "numeric/simd_avx512.h"

/* Codes of six bits by their magnitudes. */
#define SIXES
static const float magnitudes_f6_e3m2[32] = {
    0.0f,   0.0625f, 0.125f, 0.1875f, 0.25f, 0.3125f, 0.375f, 0.4375f, 0.5f,  0.625f, 0.75f,
    0.875f, 1.0f,    1.25f,  1.5f,    1.75f, 2.0f,    2.5f,   3.0f,    3.5f,  4.0f,   5.0f,
    6.0f,   7.0f,    8.0f,   10.0f,   12.0f, 14.0f,   16.0f,  20.0f,   24.0f, 28.0f};
static const float magnitudes_f6_e2m3[32] = {
    0.0f,   0.125f, 0.25f,  0.375f, 0.5f,   0.625f, 0.75f, 0.875f, 1.0f,  1.125f, 1.25f,
    1.375f, 1.5f,   1.625f, 1.75f,  1.875f, 2.0f,   2.25f, 2.5f,   2.75f, 3.0f,   3.25f,
    3.5f,   3.75f,  4.0f,   4.5f,   5.0f,   5.5f,   6.0f,  6.5f,   7.0f,  7.5f};
OP vf six_to_vf(vu code, const float *magnitudes)
{
    const __m512 magnitude = _mm512_permutex2var_ps(_mm512_loadu_ps(magnitudes), (__m512i)code,
                                                    _mm512_loadu_ps(magnitudes + 16));
    return (vf)((vu)magnitude | (code << 26 & 0x80000000));
}

#define PAIRS
#define BLOCKS
#define BULK_TABLE dtype_bulk_avx512
#include "numeric/dtype_bulk_simd.inc"

#endif
