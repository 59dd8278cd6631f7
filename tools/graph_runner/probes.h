/* Loops without anything to wait for but memory or one kind of instruction, for each instruction
 * set: what gr_limits measures. */
#ifndef GR_PROBES_H
#define GR_PROBES_H

#include <sinter/sinter.h>
#include <stddef.h>

/* read sums the 64-bit words of whole 512-byte blocks; copy writes past the caches, whole blocks of
 * 512 bytes at addresses aligned to 64; mixed reads `read` and writes `written` lines of 64 bytes,
 * evenly spread, and writes past the caches where the instruction set can; the others run `rounds`
 * rounds of independent instructions and return the operations done, two for a product that is
 * added: fma of f32, bytes of 8-bit integers, bf16 (both NULL: no such instruction). */
typedef struct gr_probe {
    const char *isa;
    unsigned long long (*read)(const void *data, size_t bytes);
    void (*copy)(void *to, const void *from, size_t bytes);
    void (*mixed)(void *to, const void *from, size_t read, size_t written);
    double (*fma)(long rounds, float *sink);
    double (*bytes)(long rounds, float *sink);
    const char *bytes_by; /* the instructions of bytes */
    double (*bf16)(long rounds, float *sink);
} gr_probe_t;

/* That of an instruction set which this machine has. */
gr_probe_t gr_probe_of(sinter_cpu_isa_t isa);
/* A copy through the caches. */
void gr_copy_plain(void *to, const void *from, size_t bytes);

#endif
