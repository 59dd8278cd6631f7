/* The bulk conversions of every ISA level against the codec, bit for bit, with FTZ/DAZ off and on:
 * all codes, f32 inputs of every exponent, offsets, lengths, neighbours, ends of memory. Against
 * the formats' definitions both stand in test_dtype.c.
 *
 *   test_dtype_bulk --all [TYPE...]    encodes all 2^32 floats instead of a sample of 2^24; half
 *   an hour on one core */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <sinter/sinter_graph.h>

#include "base/cpu.h"
#include "check.h"
#include "numeric/dtype.h"
#include "test_decode.h"

static const sinter_data_type_t types[] = {
#define SINTER_DTYPE(value, name, ...) sinter_##name,
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
};
enum { TYPES = sizeof types / sizeof *types, CHUNK = 1 << 13 };

static void set_flush(bool flush)
{
#if defined(__SSE__)
    _mm_setcsr(flush ? _mm_getcsr() | 0x8040 : _mm_getcsr() & ~0x8040u);
#else
    (void)flush;
#endif
}

static size_t bytes_of(sinter_data_type_t type, int64_t n)
{
    int64_t bytes = 0;
    dtype_bytes(type, n, &bytes);
    return (size_t)bytes;
}

/* ---- encoding many floats -------------------------------------------------------------------- */

/* Chunk i of the inputs: all floats in order, or for each sign and exponent 2^15 fractions: ties
 * of every width, their neighbours, random. */
static void fill_chunk(uint32_t chunk, bool all, uint32_t *x)
{
    for (uint32_t i = 0; i < CHUNK; i++) {
        const uint32_t at = chunk * CHUNK + i, high = at >> 15 << 23, low = at & 0x7FFF;
        if (all) {
            x[i] = at;
        } else if (low < 0x6000) {
            /* All upper 11 bits of the fraction with some patterns of the 12 bits below them. */
            static const uint32_t rest[] = {0,     1,     0xFFF, 0x800, 0x7FF, 0x801,
                                            0x400, 0x3FF, 0x401, 0x200, 0xE00, 0xC00};
            x[i] = high | (low & 0x7FF) << 12 | rest[low >> 11];
        } else {
            x[i] = high | (at * 2654435761u >> 9);
        }
    }
}

/* The first byte that differs names the element, of the packed types one in the same group of
 * bytes. */
static void report(const char *what, int bits, const uint32_t *x, const unsigned char *want,
                   const unsigned char *got)
{
    size_t byte = 0;
    while (want[byte] == got[byte]) {
        byte++;
    }
#pragma omp critical
    CHECK(false, "%s: 0x%08X gives byte 0x%02X, not 0x%02X", what, x[byte * 8 / (size_t)bits],
          got[byte], want[byte]);
}

/* The forms of a type at the levels up to top, each once. */
static int forms_of(sinter_data_type_t type, int top, const dtype_bulk_t **forms)
{
    int n = 0;
    for (int isa = sinter_isa_generic; isa <= top; isa++) {
        const dtype_bulk_t *bulk = dtype_bulk(type, features_up_to((sinter_cpu_isa_t)isa));
        if (n == 0 || bulk != forms[n - 1]) {
            forms[n++] = bulk;
        }
    }
    return n;
}

/* modes: bit 0 without FTZ/DAZ, bit 1 with. */
static void check_chunk(sinter_data_type_t type, int top, int modes, const uint32_t *x)
{
    static const char *const form_names[] = {"portable", "first vector form", "second vector form"};
    unsigned char want[CHUNK * 8], got[CHUNK * 8];
    const dtype_traits_t *t = dtype_traits(type);
    const size_t bytes = bytes_of(type, CHUNK);
    const float *src = (const float *)(const void *)x;
    const dtype_bulk_t *forms[LEVELS];
    const int n = forms_of(type, top, forms);
    for (int sat = 0; sat < 2; sat++) {
        (sat ? t->codec.store_sat : t->codec.store_f32)(want, 0, 1, CHUNK, src);
        for (int flush = 0; flush < 2; flush++) {
            for (int f = flush ? 0 : 1; f < n && modes >> flush & 1;
                 f++) { /* without FTZ/DAZ the portable form is the codec */
                set_flush(flush != 0);
                (sat ? forms[f]->store_sat : forms[f]->store)(got, 0, CHUNK, src);
                set_flush(false);
                if (memcmp(want, got, bytes) != 0) {
                    char what[100];
                    snprintf(what, sizeof what, "%s %s, %s, FTZ/DAZ %d", t->name,
                             sat ? "store_sat" : "store", form_names[f], flush);
                    report(what, t->bits, x, want, got);
                }
            }
        }
    }
}

/* A sample alternates FTZ/DAZ, all floats see both. */
static void check_encoding(sinter_data_type_t type, int top, bool all)
{
    const uint32_t chunks = all ? (UINT32_MAX / CHUNK) + 1 : (1u << 24) / CHUNK;
    const long failed = check_failed;
#pragma omp parallel for schedule(dynamic, 64)
    for (uint32_t c = 0; c < chunks; c++) {
        uint32_t x[CHUNK];
        fill_chunk(c, all, x);
        check_chunk(type, top, all ? 3 : 1 << c % 2, x);
    }
    CHECK(failed == check_failed, "%s encoding", dtype_traits(type)->name);
}

/* ---- decoding: all codes, NaN payloads included ---------------------------------------------- */

static void check_decoding(sinter_data_type_t type, int top)
{
    static unsigned char codes[1 << 18];
    static float want[1 << 16], got[1 << 16];
    const int bits = dtype_traits(type)->bits;
    const int64_t n =
        bits == 6 ? 1 << 12 : 1 << 16; /* 16 bits: each code once; 6 bits: each at each place */
    for (int64_t i = 0; i < n; i++) {
        if (bits == 16) {
            codes[2 * i] = (unsigned char)i;
            codes[2 * i + 1] = (unsigned char)(i >> 8);
        } else if (bits == 6) {
            for (int b = 0; b < 6; b++) {
                const int64_t at = i * 6 + b;
                const unsigned bit = (unsigned)(i + i / 64) >> b & 1, old = codes[at / 8];
                codes[at / 8] = (unsigned char)((old & ~(1u << at % 8)) | bit << at % 8);
            }
        }
    }
    for (size_t i = 0; bits != 16 && bits != 6 && i < sizeof codes; i++) {
        codes[i] = (unsigned char)(i + i / 256);
    }
    const int64_t fit = (int64_t)sizeof codes * 8 / bits, count = n < fit ? n : fit;
    dtype_traits(type)->codec.load_f32(codes, 0, 1, count, want);
    for (int isa = sinter_isa_generic; isa <= top; isa++) {
        for (int flush = 0; flush < 2; flush++) {
            memset(got, 0x55, sizeof got);
            set_flush(flush != 0);
            dtype_bulk(type, features_up_to((sinter_cpu_isa_t)isa))->load(codes, 0, count, got);
            set_flush(false);
            CHECK(memcmp(want, got, (size_t)count * sizeof(float)) == 0, "%s load, %s, FTZ/DAZ %d",
                  dtype_traits(type)->name, sinter_cpu_isa_name((sinter_cpu_isa_t)isa), flush);
        }
    }
}

/* ---- offsets, lengths: memory ends at an unreadable page, the floats lie between sentinels --- */

enum { MAX_N = 70, MAX_FIRST = 9, GAP = 3 };

static void check_span(sinter_data_type_t type, sinter_cpu_isa_t isa, int64_t first, int64_t n)
{
    const dtype_traits_t *t = dtype_traits(type);
    const dtype_bulk_t *bulk = dtype_bulk(type, features_up_to(isa));
    const size_t bytes = bytes_of(type, first + n);
    guarded_t memory = guarded(bytes), floats = guarded((size_t)n * sizeof(float));
    unsigned char before[(MAX_N + MAX_FIRST) * 8];
    float want[MAX_N], *x = (float *)(void *)floats.data;
    char where[80];
    snprintf(where, sizeof where, "%s %s first %d n %d", t->name, sinter_cpu_isa_name(isa),
             (int)first, (int)n);
    t->codec.load_f32(memory.data, first, 1, n, want);
    bulk->load(memory.data, first, n, x);
    CHECK(n == 0 || memcmp(want, x, (size_t)n * sizeof(float)) == 0, "load %s", where);
    for (int sat = 0; sat < 2; sat++) {
        for (int64_t i = 0; i < n; i++) {
            x[i] = (float)(int)(rnd() % 4096 - 2048) / 64;
        }
        memcpy(before, memory.data, bytes);
        (sat ? bulk->store_sat : bulk->store)(memory.data, first, n, x);
        (sat ? t->codec.store_sat : t->codec.store_f32)(before, first, 1, n, x);
        CHECK(memcmp(before, memory.data, bytes) == 0, "%s %s", sat ? "store_sat" : "store", where);
    }
    unguard(&memory), unguard(&floats);
}

/* The same at the start of a region with bytes behind it, none of which may change. */
static void check_sentinels(sinter_data_type_t type, sinter_cpu_isa_t isa, int64_t first, int64_t n)
{
    const dtype_bulk_t *bulk = dtype_bulk(type, features_up_to(isa));
    unsigned char before[(MAX_N + MAX_FIRST + GAP) * 8], after[sizeof before];
    float x[MAX_N + GAP];
    for (size_t i = 0; i < sizeof before; i++) {
        before[i] = (unsigned char)rnd();
    }
    for (int i = 0; i < MAX_N + GAP; i++) {
        x[i] = 1;
    }
    memcpy(after, before, sizeof after);
    bulk->store(after + GAP, first, n, x);
    dtype_traits(type)->codec.store_f32(before + GAP, first, 1, n, x);
    CHECK(memcmp(before, after, sizeof before) == 0, "%s store %s first %d n %d: neighbours",
          dtype_traits(type)->name, sinter_cpu_isa_name(isa), (int)first, (int)n);
    for (int i = 0; i < MAX_N + GAP; i++) {
        x[i] = 1234.5f;
    }
    bulk->load(after + GAP, first, n, x);
    for (int64_t i = n; i < n + GAP; i++) {
        CHECK(x[i] == 1234.5f, "%s load %s writes beyond n %d", dtype_traits(type)->name,
              sinter_cpu_isa_name(isa), (int)n);
    }
}

static void check_layouts(sinter_data_type_t type, int top)
{
    for (int isa = sinter_isa_generic; isa <= top; isa++) {
        for (int64_t first = 0; first < MAX_FIRST; first++) {
            for (int64_t n = 0; n <= MAX_N; n += n < 36 ? 1 : 5) {
                check_span(type, (sinter_cpu_isa_t)isa, first, n);
                check_sentinels(type, (sinter_cpu_isa_t)isa, first, n);
            }
        }
    }
}

static bool is_named(sinter_data_type_t type, int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], dtype_traits(type)->name) == 0) {
            return true;
        }
    }
    return argc <= 2;
}

int main(int argc, char **argv)
{
    const bool all = argc > 1 && strcmp(argv[1], "--all") == 0;
    sinter_cpu_isa_t top;
    if (cpu_isa_cap(sinter_isa_default, &top) != sinter_success) {
        return 1;
    }
    for (int i = 0; i < TYPES; i++) {
        if (!is_named(types[i], argc, argv)) {
            continue;
        }
        const time_t start = time(NULL);
        check_decoding(types[i], (int)top);
        check_encoding(types[i], (int)top, all);
        check_layouts(types[i], (int)top);
        if (all) {
            printf("%s: 2^32 floats, up to %s, %ld s, %ld failures so far\n",
                   dtype_traits(types[i])->name, sinter_cpu_isa_name(top),
                   (long)(time(NULL) - start), check_failed);
            fflush(stdout);
        }
    }
    return check_finish();
}
