#include "limits.h"

#include "probes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PASSES = 5, N_ISAS = 8 };
static const size_t least_read = (size_t)256 << 20, least_copied = (size_t)128 << 20;
static const long op_rounds = 2000000;

/* Memory of which the caches hold little, even if they keep a part of what is read again and again.
 */
static size_t read_bytes(void)
{
    const size_t caches = 8 * gr_last_level_cache();

    return caches > least_read ? caches : least_read;
}

/* The same of what is read and written: half of it is read. */
static size_t copied_bytes(void)
{
    const size_t caches = 4 * gr_last_level_cache();

    return caches > least_copied ? caches : least_copied;
}

/* Memory that passes from one measurement to the next, as filling it anew takes longer than a short
 * line of a list. */
static char *memory_from, *memory_to;

/* Memory with something in it, at *kept; NULL without memory for it. */
static char *keep_filled(char **kept, size_t bytes, int value, int threads)
{
    if (!*kept) {
        const size_t piece = bytes / (size_t)threads + 1;

        *kept = gr_malloc(bytes);
        if (!*kept) {
            return NULL;
        }
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int t = 0; t < threads; t++) {
            const size_t from = (size_t)t * piece;

            if (from < bytes) {
                memset(*kept + from, value, bytes - from < piece ? bytes - from : piece);
            }
        }
    }
    return *kept;
}

static char *aligned_to(void)
{
    return memory_to + (64 - (uintptr_t)memory_to % 64) % 64;
}

/* The sum of what it reads, so that the reads cannot be dropped. */
static unsigned long long read_all(const gr_probe_t *probe, const void *data, size_t bytes,
                                   int threads)
{
    const size_t piece = (bytes / (size_t)threads + 511) / 512 * 512;
    unsigned long long sum = 0;

#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : sum)
    for (int t = 0; t < threads; t++) {
        size_t from = (size_t)t * piece;

        if (from < bytes) {
            sum +=
                probe->read((const char *)data + from, bytes - from < piece ? bytes - from : piece);
        }
    }
    return sum;
}

static double measure_read(const gr_probe_t *probe, int threads)
{
    const size_t bytes = read_bytes();
    volatile unsigned long long sink;
    double best = 0;

    if (!keep_filled(&memory_from, bytes, 1, threads)) {
        return 0;
    }
    for (int pass = 0; pass < PASSES; pass++) {
        double start = gr_seconds(), rate;

        sink = read_all(probe, memory_from, bytes, threads);
        rate = (double)bytes / (gr_seconds() - start);
        best = rate > best ? rate : best;
    }
    (void)sink;
    return best;
}

static double time_copy(void (*copy)(void *to, const void *from, size_t bytes), char *to,
                        const char *from, size_t bytes, int threads)
{
    const size_t piece = (bytes / (size_t)threads + 511) / 512 * 512;
    double start = gr_seconds();

#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        size_t at = (size_t)t * piece;

        if (at < bytes) {
            copy(to + at, from + at, bytes - at < piece ? bytes - at : piece);
        }
    }
    return 2 * (double)bytes / (gr_seconds() - start);
}

/* The better of a copy through the caches and one past them. */
static double measure_copy(const gr_probe_t *probe, int threads)
{
    const size_t bytes = copied_bytes();
    double best = 0;

    if (!keep_filled(&memory_from, read_bytes(), 1, threads) ||
        !keep_filled(&memory_to, bytes + 64, 2, threads)) {
        return 0;
    }
    for (int pass = 0; pass < PASSES; pass++) {
        double plain = time_copy(gr_copy_plain, aligned_to(), memory_from, bytes, threads),
               past = time_copy(probe->copy, aligned_to(), memory_from, bytes, threads);

        best = plain > best ? plain : best;
        best = past > best ? past : best;
    }
    return best;
}

/* op: fma, bytes or bf16 of the probe. */
static double measure_ops(double (*op)(long rounds, float *sink), int threads)
{
    volatile float sink;
    double best = 0;

    for (int pass = 0; op && pass < PASSES; pass++) {
        double start = gr_seconds(), done = 0, rate;
        float all = 0;

#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : done, all)
        for (int t = 0; t < threads; t++) {
            done += op(op_rounds, &all);
        }
        rate = done / (gr_seconds() - start);
        best = rate > best ? rate : best;
        sink = all;
    }
    (void)sink;
    return best;
}

static gr_limits_t limits[N_ISAS]; /* by instruction set */

static void keep_best(double *best, double rate)
{
    *best = rate > *best ? rate : *best;
}

const gr_limits_t *gr_limits(sinter_cpu_isa_t isa, int threads)
{
    const gr_probe_t probe = gr_probe_of(isa);
    gr_limits_t *l = &limits[(size_t)isa < N_ISAS ? isa : sinter_isa_generic];

    if (l->threads != threads) {
        gr_progress("measuring bandwidth and peaks of %d threads, %s", threads, probe.isa);
        *l = (gr_limits_t){.read_bytes = measure_read(&probe, threads),
                           .copy_bytes = measure_copy(&probe, threads),
                           .isa = probe.isa,
                           .int8_by = probe.bytes_by,
                           .threads = threads};
    }
    keep_best(&l->fma_flops, measure_ops(probe.fma, threads));
    keep_best(&l->int8_ops, measure_ops(probe.bytes, threads));
    keep_best(&l->bf16_flops, measure_ops(probe.bf16, threads));
    return l;
}

int gr_limits_parse(const char *text, int threads, gr_limits_t *out, gr_error_t *err)
{
    const struct {
        const char *name;
        double *rate;
    } known[] = {{"read", &out->read_bytes},
                 {"copy", &out->copy_bytes},
                 {"fma", &out->fma_flops},
                 {"int8", &out->int8_ops},
                 {"bf16", &out->bf16_flops}};
    const size_t n = sizeof known / sizeof *known;

    *out = (gr_limits_t){.isa = "given", .int8_by = "given", .threads = threads};
    for (const char *p = text; p; p = *p ? p + 1 : NULL) {
        const size_t length = strcspn(p, ":");
        char *end;
        double rate;
        size_t i = 0;

        while (i < n && (strlen(known[i].name) != length || strncmp(p, known[i].name, length))) {
            i++;
        }
        if (i == n || !p[length]) {
            return gr_fail(
                err, "--limits: expected read, copy, fma, int8 or bf16, and :RATE, at \"%s\"", p);
        }
        rate = strtod(p + length + 1, &end);
        if (end == p + length + 1 || (*end && *end != '+') || !(rate >= 0 && rate < 1e9)) {
            return gr_fail(err, "--limits: expected a rate in GB/s or GFLOP/s at \"%s\"", p);
        }
        *known[i].rate = 1e9 * rate;
        p = end;
    }
    if (out->read_bytes <= 0 || out->fma_flops <= 0) {
        return gr_fail(err, "--limits: read and fma must be given, above 0");
    }
    out->copy_bytes = out->copy_bytes > 0 ? out->copy_bytes : out->read_bytes;
    return 0;
}

int gr_meter_open(gr_meter_t *m, sinter_cpu_isa_t isa, bool copies, int threads)
{
    const size_t bytes = copies ? copied_bytes() : read_bytes();

    *m = (gr_meter_t){keep_filled(&memory_from, read_bytes(), 1, threads),
                      copies ? keep_filled(&memory_to, bytes + 64, 2, threads) : NULL, bytes,
                      threads, isa};
    return m->from && (!copies || m->to) ? 0 : -1;
}

double gr_meter_mixed(const gr_meter_t *m, double read, double written)
{
    const gr_probe_t probe = gr_probe_of(m->isa);
    const double lines = (double)(m->bytes / 64 / (size_t)m->threads),
                 most = read > written ? read : written;
    const size_t reads = most > 0 ? (size_t)(lines * read / most) : 0,
                 writes = most > 0 ? (size_t)(lines * written / most) : 0;
    double start = gr_seconds();

    if (!m->to || reads == 0) {
        return 0;
    }
#pragma omp parallel for num_threads(m->threads) schedule(static)
    for (int t = 0; t < m->threads; t++) {
        probe.mixed(aligned_to() + (size_t)t * writes * 64, m->from + (size_t)t * reads * 64, reads,
                    writes);
    }
    return 64.0 * (double)(reads + writes) * m->threads / (gr_seconds() - start);
}

double gr_meter_rate(const gr_meter_t *m)
{
    const gr_probe_t probe = gr_probe_of(m->isa);
    volatile unsigned long long sink;
    double start = gr_seconds();

    if (m->to) {
        return time_copy(probe.copy, aligned_to(), m->from, m->bytes, m->threads);
    }
    sink = read_all(&probe, m->from, m->bytes, m->threads);
    (void)sink;
    return (double)m->bytes / (gr_seconds() - start);
}

/* Linux's own answer first: sysconf computes a wrong one on some CPUs under a hypervisor. */
size_t gr_last_level_cache(void)
{
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    long bytes = 0;

    if (f) {
        if (fscanf(f, "%ldK", &bytes) == 1) {
            bytes *= 1024;
        }
        fclose(f);
    }
    if (bytes <= 0) {
        bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    }
    if (bytes <= 0) {
        bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    }
    return bytes > 0 ? (size_t)bytes : (size_t)32 << 20;
}
