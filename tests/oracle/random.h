/* The random generator of the tests and of graph_runner: SplitMix64. Each generator is one 64-bit
 * state, which any number may start. */
#ifndef SINTER_TESTS_RANDOM_H
#define SINTER_TESTS_RANDOM_H

#include <stdint.h>

#define RANDOM_STEP UINT64_C(0x9E3779B97F4A7C15)

/* A hash: every bit of the result depends on every bit of x; 0 stays 0. */
static inline uint64_t random_mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

/* 64 random bits. */
static inline uint64_t random_next(uint64_t *state)
{
    return random_mix(*state += RANDOM_STEP);
}

/* 0 ... n - 1. */
static inline int random_below(uint64_t *state, int n)
{
    return (int)(random_next(state) % (uint64_t)n);
}

/* From -1 (included) to 1 (excluded), in steps of 2^-52. */
static inline double random_signed(uint64_t *state)
{
    return (double)(random_next(state) >> 11) * 0x1p-52 - 1;
}

#endif
