/* What this machine can do with the instruction set that an engine has, measured with the same
 * number of threads as the graph runs with. */
#ifndef GR_LIMITS_H
#define GR_LIMITS_H

#include "base.h"

#include <sinter/sinter.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct gr_limits {
    double read_bytes; /* bytes per second read from memory by all threads */
    /* Bytes per second, reads and writes counted, of the best copy between two large buffers. */
    double copy_bytes;
    /* Operations per second on registers, two for a product that is added: of f32; of 8-bit
     * integers whose sums are exact; of bf16. 0: no such instruction. */
    double fma_flops, int8_ops, bf16_flops;
    const char *int8_by; /* the instructions of int8_ops; NULL: none */
    const char *isa;     /* the instruction set of all of them */
    int threads;
} gr_limits_t;

/* Of an engine's instruction set. Measured at the first call with a thread count and kept; each
 * call measures the arithmetic again and keeps the best, as other guests of a virtual machine's
 * host can take half of it for a while. Zero where there is no memory for it. */
const gr_limits_t *gr_limits(sinter_cpu_isa_t isa, int threads);
/* Limits that the user gives, as --limits describes them. Without copy it is that of reads, and
 * products that are left out have none. 0, or -1 with a message. */
int gr_limits_parse(const char *text, int threads, gr_limits_t *out, gr_error_t *err);

/* Passes over memory that alternate with what is timed, so that both see the same state of the
 * machine: reads, or copies past the caches, of memory that the caches can hold little of. */
typedef struct gr_meter {
    char *from, *to; /* to NULL: reads */
    size_t bytes;
    int threads;
    sinter_cpu_isa_t isa;
} gr_meter_t;

/* 0, or -1 without memory for it. The memory is kept for the next meter: two that are open at once
 * share it. */
int gr_meter_open(gr_meter_t *m, sinter_cpu_isa_t isa, bool copies, int threads);
/* One pass; bytes per second, read and written ones counted. It leaves nothing of other memory
 * in the caches. */
double gr_meter_rate(const gr_meter_t *m);
/* One pass that reads and writes memory past the caches in this proportion, without arithmetic:
 * what a conversion of `read` bytes to `written` bytes could reach. Bytes per second, read and
 * written ones counted. Not of a meter of reads; 0 if `read` is 0. */
double gr_meter_mixed(const gr_meter_t *m, double read, double written);
/* Bytes of the last-level cache, or a guess. */
size_t gr_last_level_cache(void);

#endif
