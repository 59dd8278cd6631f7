/* Division by a reciprocal that is rounded, as quantisation with vectors does it: x r, the exact
 * remainder of that times r added, is x / y as division rounds it. The result can differ only where
 * x / y lies so near the middle of two floats that the error of the last step, of a first quotient
 * that is off by 1.5 ulp at most, reaches it: |x 2^k - m y| <= 8 for significands x, y of 24 bits
 * and a middle m of 25. All of those are tried. Scaling by powers of two changes nothing where
 * nothing overflows or is subnormal.
 *
 * In double precision by small odd numbers, as scales of dynamic_asymmetric are made, no
 * quotient comes that near; some are tried. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "check.h"
#include "random.h"

/* The inverse of odd y modulo 2^32. */
static uint32_t inverse(uint32_t y)
{
    uint32_t x = y;

    for (int i = 0; i < 5; i++) {
        x *= 2 - y * x;
    }
    return x;
}

static long tried, wrong;

static void try_one(int64_t x, uint32_t y)
{
    const float a = (float)x, b = (float)y, r = 1 / b, q = a * r, left = fmaf(-q, b, a);

    tried++;
    wrong += fmaf(left, r, q) != a / b;
}

/* All x with m y = x 2^k + d for a middle m in [2^24, 2^25). k 24: x >= y, 25: x < y. */
static void try_near(uint32_t y, int k, int d)
{
    const int zeros = __builtin_ctz(y), bits = k - zeros;
    const uint32_t first = (uint32_t)(d / (1 << zeros)) * inverse(y >> zeros) & ((1u << bits) - 1);

    if (d % (1 << zeros) != 0) {
        return;
    }
    for (uint32_t m = first; m < 1u << 25; m += 1u << bits) {
        const int64_t product = (int64_t)m * y - d, x = product >> k;
        const bool exact = (product & ((INT64_C(1) << k) - 1)) == 0,
                   range = x >= 1 << 23 && x < 1 << 24;

        if (m >= 1u << 24 && m % 2 == 1 && exact && range && (x < y) == (k == 25)) {
            try_one(x, y);
        }
    }
}

static void try_levels(double levels)
{
    uint64_t state = 1;

    for (int i = 0; i < 2000000; i++) {
        const double x = (double)(random_next(&state) >> 11), r = 1 / levels, q = x * r;

        tried++;
        wrong += fma(fma(-q, levels, x), r, q) != x / levels;
    }
}

int main(void)
{
    try_levels(15);
    try_levels(255);

    for (uint32_t y = 1u << 23; y < 1u << 24; y++) {
        for (int d = -8; d <= 8; d++) {
            if (d != 0) {
                try_near(y, 24, d);
                try_near(y, 25, d);
            }
        }
    }
    printf("%ld quotients, %ld wrong\n", tried, wrong);
    CHECK(tried > 40000000, "%ld quotients tried", tried);
    CHECK(wrong == 0, "%ld of %ld quotients are wrong", wrong, tried);
    return check_finish();
}
