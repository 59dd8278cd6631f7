/* Decoding and storing of pairs of blocks, 32 elements, with AVX2: what bulk_stream.h is made
 * of. */
#ifndef SINTER_SRC_NUMERIC_BULK_PAIRS_AVX2_H
#define SINTER_SRC_NUMERIC_BULK_PAIRS_AVX2_H

#include "numeric/simd_avx2.h"

#include "numeric/bulk.h"

/* The two blocks at p. */
OP void decode_pair(const code_t *c, const unsigned char *p, vf *x)
{
    const block_t first = unpack(c->bits, block_load(c->bits, p)),
                  second = unpack(c->bits, block_load(c->bits, p + 2 * c->bits));
    EACH_VECTOR
    {
        x[h] = decode(c, first, h);
        x[VECTORS + h] = decode(c, second, h);
    }
}

OP __m256i block_of_words(result_t result, const vf *x)
{
    if (result == RESULT_F16) {
        return encode(&code_f16, PLAIN, x).words;
    }
    if (result == RESULT_ANY_BF16) {
        return encode(&code_bf16, PLAIN, x).words;
    }
    const vu rounded[2] = {round_to_bf16(x[0]), round_to_bf16(x[1])};
    return narrow_high(rounded);
}
OP void put_pair(result_t result, unsigned char *to, const vf *x)
{
    if (result == RESULT_F32) {
        UNROLL
        for (int k = 0; k < 2 * VECTORS; k++) {
            vf_stream(to + 4 * k * LANES, x[k]);
        }
        return;
    }
    _mm256_stream_si256((__m256i *)(void *)to, block_of_words(result, x));
    _mm256_stream_si256((__m256i *)(void *)(to + 32), block_of_words(result, x + VECTORS));
}

/* There are no tables of results and no AVX512_BF16. */
enum { HAS_TABLES = 0, HAS_NATIVE_BF16 = 0 };
OP const float *values_of(const code_t *c)
{
    return c->magnitudes;
}
OP void table_group(result_t result, vf results, const unsigned char *p, int64_t n,
                    unsigned char *to)
{
    (void)result, (void)results, (void)p, (void)n, (void)to;
}
static inline bool all_normal(const dtype_scaled_t *g, int64_t n)
{
    (void)g, (void)n;
    return false;
}

#endif
