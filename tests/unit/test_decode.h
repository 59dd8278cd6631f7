/* For tests of kernels: decoders of every data type, written from the format tables and sharing
 * nothing with the library; memory that ends at an unreadable page; a small random generator.
 * Needs _GNU_SOURCE. */
#ifndef SINTER_TEST_DECODE_H
#define SINTER_TEST_DECODE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <sinter/sinter_types.h>

#include "random.h"

static uint64_t rng = 1;
static inline uint32_t rnd(void)
{
    return (uint32_t)(random_next(&rng) >> 33);
}

/* Reads no byte that has none of the bits. */
static inline unsigned bits_at(const unsigned char *p, int64_t index, int bits)
{
    const int64_t at = index * bits;
    const int skipped = (int)(at % 8);
    unsigned v = p[at / 8];
    if (skipped + bits > 8) {
        v |= (unsigned)p[at / 8 + 1] << 8;
    }
    return v >> skipped & ((1u << bits) - 1);
}

/* 2^n, of normal numbers. */
static inline double power_of_two(int n)
{
    const uint64_t bits = (uint64_t)(n + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline double minifloat(unsigned v, int ebits, int mbits, int bias)
{
    const unsigned m = v & ((1u << mbits) - 1), e = v >> mbits & ((1u << ebits) - 1);
    const double fraction = m * power_of_two(-mbits),
                 x = e ? (1 + fraction) * power_of_two((int)e - bias)
                       : fraction * power_of_two(1 - bias);
    return v >> (ebits + mbits) & 1 ? -x : x;
}

static inline double ieee(unsigned v, int ebits, int mbits)
{
    const unsigned e = v >> mbits & ((1u << ebits) - 1), m = v & ((1u << mbits) - 1);
    if (e == (1u << ebits) - 1) {
        return m ? NAN : v >> (ebits + mbits) & 1 ? -INFINITY : INFINITY;
    }
    return minifloat(v, ebits, mbits, (1 << (ebits - 1)) - 1);
}

static inline double decode(sinter_data_type_t type, const unsigned char *p, int64_t i)
{
    unsigned v;
    double d;
    int64_t l;
    int32_t w;
    switch (type) {
    case sinter_f32:
        memcpy(&v, p + 4 * i, 4);
        return ieee(v, 8, 23);
    case sinter_f64:
        memcpy(&d, p + 8 * i, 8);
        return d;
    case sinter_s64:
        memcpy(&l, p + 8 * i, 8);
        return (double)l;
    case sinter_s32:
        memcpy(&w, p + 4 * i, 4);
        return w;
    case sinter_f16:
        return ieee(bits_at(p, i, 16), 5, 10);
    case sinter_bf16:
        return ieee(bits_at(p, i, 16), 8, 7);
    case sinter_s8:
        return (int)(bits_at(p, i, 8) ^ 128) - 128;
    case sinter_u8:
        return bits_at(p, i, 8);
    case sinter_boolean:
        return bits_at(p, i, 8) != 0;
    case sinter_s4:
        return (int)(bits_at(p, i, 4) ^ 8) - 8;
    case sinter_u4:
        return bits_at(p, i, 4);
    case sinter_u2:
        return bits_at(p, i, 2);
    case sinter_f4_e2m1:
        return minifloat(bits_at(p, i, 4), 2, 1, 1);
    case sinter_f6_e3m2:
        return minifloat(bits_at(p, i, 6), 3, 2, 3);
    case sinter_f6_e2m3:
        return minifloat(bits_at(p, i, 6), 2, 3, 1);
    case sinter_f8_e5m2:
        return ieee(bits_at(p, i, 8), 5, 2);
    case sinter_f8_e4m3:
        return (p[i] & 127) == 127 ? NAN : minifloat(p[i], 4, 3, 7);
    case sinter_f8_e5m2fnuz:
        return p[i] == 128 ? NAN : minifloat(p[i], 5, 2, 16);
    case sinter_f8_e4m3fnuz:
        return p[i] == 128 ? NAN : minifloat(p[i], 4, 3, 8);
    case sinter_e8m0:
        return p[i] == 255 ? NAN : power_of_two(p[i] - 127);
    default:
        printf("no decoder\n");
        exit(1);
    }
}

/* Random bytes, any access beyond which faults. */
typedef struct guarded {
    unsigned char *map, *data;
    size_t bytes;
} guarded_t;

static inline guarded_t guarded(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (bytes + page - 1) / page * page;
    guarded_t g = {
        mmap(NULL, body + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), NULL,
        body + page};
    if (g.map == MAP_FAILED || mprotect(g.map + body, page, PROT_NONE)) {
        perror("guard page");
        exit(1);
    }
    g.data = g.map + body - bytes;
    for (size_t i = 0; i < bytes; i++) {
        g.data[i] = (unsigned char)rnd();
    }
    return g;
}

static inline void unguard(guarded_t *g)
{
    munmap(g->map, g->bytes);
}

#endif
