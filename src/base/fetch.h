/* Software prefetching. */
#ifndef SINTER_SRC_BASE_FETCH_H
#define SINTER_SRC_BASE_FETCH_H

#include <stdint.h>

/* Prefetches the cache line at p, which may be any address, for reading. GCC takes a function that
 * does nothing else for one without effects, and drops calls of it, so that nothing would be
 * prefetched: the empty statement counts as an effect. */
static inline void fetch_line(const void *p)
{
    __builtin_prefetch(p);
    __asm__ volatile("");
}

/* Prefetches all cache lines of the bytes from p on, for writing. */
static inline void fetch_lines_to_write(const unsigned char *p, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(p + i, 1);
        __asm__ volatile("");
    }
}

/* The same for reading. */
static inline void fetch_lines(const unsigned char *p, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64) {
        fetch_line(p + i);
    }
}

/* Reads one byte of each cache line of the bytes from p on, of which there is one at least.
 * A processor may drop a prefetch when too many are under way, but never a load. */
static inline void read_lines(const unsigned char *p, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64) {
        (void)*(const volatile unsigned char *)(p + i);
    }
    (void)*(const volatile unsigned char *)(p + bytes - 1);
}

#endif
