/* Engines, arenas, id maps, text and messages: with an allocator that counts and fails on
 * demand. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

#include <sinter/sinter_graph.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/idmap.h"
#include "base/status.h"
#include "check.h"

typedef struct counter {
    long calls, live, fail_at; /* fail_at: the number of the call that gets NULL, 0: none */
} counter_t;

static void *counting_alloc(size_t bytes, size_t alignment, void *user)
{
    counter_t *c = user;
    if (++c->calls == c->fail_at) {
        return NULL;
    }
    void *ptr = NULL;
    if (posix_memalign(&ptr, alignment, bytes) != 0) {
        return NULL;
    }
    memset(ptr, 0xA5, bytes); /* an arena must zero it */
    c->live++;
    return ptr;
}

static void counting_free(void *ptr, void *user)
{
    ((counter_t *)user)->live--;
    free(ptr);
}

static sinter_engine_t *counting_engine(counter_t *c)
{
    sinter_allocator_t allocator = {counting_alloc, counting_free, c};
    sinter_engine_t *engine = NULL;
    *c = (counter_t){0, 0, 0};
    CHECK(engine_new(&allocator, sinter_isa_default, &engine) == sinter_success, "engine_new");
    return engine;
}

static void test_engine(void)
{
    counter_t c;
    sinter_engine_t *engine = counting_engine(&c), *untouched = NULL;
    CHECK(c.live == 1, "the engine comes from its own allocator");
    CHECK(engine_ref(engine) == engine, "ref gives the same engine");
    engine_unref(engine);
    CHECK(c.live == 1, "still held");
    engine_unref(engine);
    CHECK(c.live == 0, "freed with the last reference");

    c = (counter_t){0, 0, 1};
    sinter_allocator_t failing = {counting_alloc, counting_free, &c},
                       half = {counting_alloc, NULL, &c}, none = {NULL, NULL, NULL};
    CHECK(engine_new(&failing, sinter_isa_default, &untouched) == sinter_out_of_memory &&
              untouched == NULL,
          "out of memory");
    CHECK(strstr(sinter_last_error_message(), "out of memory") != NULL, "message: %s",
          sinter_last_error_message());
    CHECK(engine_new(&half, sinter_isa_default, &untouched) == sinter_invalid_arguments &&
              untouched == NULL,
          "one callback only");
    CHECK(strstr(sinter_last_error_message(), "both callbacks") != NULL, "message: %s",
          sinter_last_error_message());
    CHECK(engine_new(NULL, (sinter_cpu_isa_t)9, &untouched) == sinter_invalid_arguments &&
              untouched == NULL,
          "unknown ISA");
    CHECK(engine_new(&none, sinter_isa_generic, &engine) == sinter_success &&
              engine->features.bits == 0,
          "NULL callbacks mean malloc");
    engine_unref(engine);

    sinter_engine_t *standard = engine_ref(NULL);
    CHECK(standard != NULL && engine_ref(NULL) == standard && engine_ref(standard) == standard,
          "one default engine");
    engine_unref(standard);
    engine_unref(standard);
    engine_unref(standard);
    engine_unref(standard);
    CHECK(engine_ref(NULL) == standard && engine_check(NULL) == sinter_success,
          "which is never freed");
    engine_unref(NULL);
}

static void test_memory(void)
{
    counter_t c;
    sinter_engine_t *engine = counting_engine(&c);
    for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
        for (size_t bytes = 0; bytes < 200; bytes += 33) {
            void *own = sg_alloc(engine, bytes, alignment),
                 *standard = sg_alloc(NULL, bytes, alignment);
            CHECK(own != NULL && (uintptr_t)own % alignment == 0, "%zu bytes aligned to %zu", bytes,
                  alignment);
            CHECK(standard != NULL && (uintptr_t)standard % alignment == 0,
                  "%zu bytes aligned to %zu by malloc", bytes, alignment);
            sg_free(engine, own);
            sg_free(NULL, standard);
        }
    }
    sg_free(engine, NULL);
    CHECK(sg_alloc(NULL, SIZE_MAX - 8, 64) == NULL, "an impossible size");
    CHECK(c.live == 1, "nothing but the engine is left");
    engine_unref(engine);
}

/* ---- arena ----------------------------------------------------------------------------------- */

static bool all_zero(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

static void test_arena(void)
{
    counter_t c;
    sinter_engine_t *engine = counting_engine(&c);
    arena_t arena;
    unsigned char *kept[300];
    arena_init(&arena, engine);
    for (size_t i = 0; i < 300; i++) {
        size_t n = i * i % 9000;
        kept[i] = arena_alloc(&arena, n, 1);
        CHECK(kept[i] != NULL && all_zero(kept[i], n), "%zu bytes are zeroed", n);
        CHECK((uintptr_t)kept[i] % (n >= 64 ? 64 : 16) == 0, "%zu bytes are aligned", n);
        memset(kept[i], (int)(i % 255) + 1, n);
    }
    for (size_t i = 0; i < 300; i++) {
        size_t n = i * i % 9000;
        CHECK(n == 0 || (kept[i][0] == i % 255 + 1 && kept[i][n - 1] == i % 255 + 1),
              "block %zu is not shared", i);
    }
    CHECK(arena_alloc(&arena, SIZE_MAX / 2, 3) == NULL, "count * size overflows");
    CHECK(strstr(sinter_last_error_message(), "overflow") != NULL, "message: %s",
          sinter_last_error_message());
    CHECK(arena_alloc(&arena, SIZE_MAX, 1) == NULL && arena_alloc(&arena, SIZE_MAX - 40, 1) == NULL,
          "size overflows with padding");
    CHECK(strcmp(arena_strdup(&arena, "text"), "text") == 0 && *arena_strdup(&arena, "") == '\0',
          "strdup");

    int *items = NULL, capacity = 0;
    for (int i = 0; i < 1000; i++) {
        CHECK(arena_grow(&arena, (void **)&items, &capacity, i, sizeof *items) && capacity > i,
              "grow to %d", i);
        items[i] = i;
    }
    bool kept_all = true;
    for (int i = 0; i < 1000; i++) {
        kept_all = kept_all && items[i] == i;
    }
    CHECK(kept_all, "growing keeps the items");
    long calls = c.calls;
    for (int i = 0; i < 100000; i++) {
        CHECK(arena_alloc(&arena, 1, 100) != NULL, "many small ones");
    }
    CHECK(c.calls - calls < 40, "10^5 small blocks took %ld calls", c.calls - calls);
    arena_free(&arena);
    arena_free(&arena);
    engine_unref(engine);
    CHECK(c.live == 0, "everything is freed, %ld left", c.live);
}

/* ---- what uses an arena, with every allocation failing in turn ------------------------------- */

/* False: out of memory was reported. */
static bool use_everything(sinter_engine_t *engine)
{
    arena_t arena;
    textbuf_t text;
    int *items = NULL, capacity = 0, n = 0;
    bool ok = true;
    arena_init(&arena, engine);
    text_init(&text, &arena);
    idmap_t *map = idmap_new(&arena);
    ok = map != NULL;
    for (uint64_t id = 0; ok && id < 2000; id++) {
        ok = idmap_put(map, id << 40, (int)id);
        bool there = idmap_get(map, id << 40) == (int)id;
        CHECK(ok == there, "id %d", (int)id);
        CHECK(id == 0 || idmap_get(map, (id - 1) << 40) == (int)id - 1,
              "a failed put leaves the map as it was");
    }
    for (; ok && n < 5000; n++) {
        ok = arena_grow(&arena, (void **)&items, &capacity, n, sizeof *items);
        if (ok) {
            items[n] = n;
        }
    }
    for (int i = 0; ok && i < 3000; i++) {
        text_add(&text, "%d,", i);
        ok = !text.oom;
    }
    CHECK(strlen(text.text) == text.len, "text is terminated");
    CHECK(!ok || text.len == 10 * 2 + 90 * 3 + 900 * 4 + 2000 * 5, "text has %zu characters",
          text.len);
    arena_free(&arena);
    return ok;
}

static void test_failing(void)
{
    counter_t c;
    long total = 1000;
    for (long n = 0; n <= total; n++) { /* n = 0: none fails, and tells how many calls there are */
        sinter_engine_t *engine = counting_engine(&c);
        c.calls = 0;
        c.fail_at = n;
        bool ok = use_everything(engine);
        CHECK(ok == (n == 0), "allocation %ld fails", n);
        if (n == 0) {
            total = c.calls;
            CHECK(total > 5 && total < 1000, "%ld allocations", total);
        }
        engine_unref(engine);
        CHECK(c.live == 0, "allocation %ld fails: %ld leaked", n, c.live);
    }
}

static void test_idmap(void)
{
    arena_t arena;
    arena_init(&arena, engine_ref(NULL));
    idmap_t *map = idmap_new(&arena);
    static const uint64_t odd_ids[] = {0, UINT64_MAX, UINT64_C(1) << 63, (UINT64_C(1) << 53) + 1,
                                       UINT64_C(1) << 53};
    CHECK(idmap_get(NULL, 1) == -1 && idmap_get(map, 0) == -1, "empty");
    for (int i = 0; i < 5; i++) {
        CHECK(idmap_put(map, odd_ids[i], i), "put");
    }
    for (int i = 0; i < 100000; i++) {
        CHECK(idmap_put(map, (uint64_t)i * 1024 + 7, i), "put %d", i);
    }
    for (int i = 0; i < 100000; i++) {
        CHECK(idmap_get(map, (uint64_t)i * 1024 + 7) == i &&
                  idmap_get(map, (uint64_t)i * 1024 + 8) == -1,
              "get %d", i);
    }
    for (int i = 0; i < 5; i++) {
        CHECK(idmap_get(map, odd_ids[i]) == i, "id %d of the odd ones", i);
    }
    CHECK(idmap_put(map, 7, 42) && idmap_get(map, 7) == 42 && idmap_get(map, 1031) == 1, "replace");
    CHECK(idmap_grow(map, 300000) && idmap_get(map, 99999 * 1024 + 7) == 99999,
          "grow keeps the entries");
    CHECK(!idmap_grow(map, SIZE_MAX), "an impossible size");
    arena_free(&arena);
}

static void test_grow_promise(void)
{
    counter_t c;
    sinter_engine_t *engine = counting_engine(&c);
    arena_t arena;
    arena_init(&arena, engine);
    idmap_t *map = idmap_new(&arena);
    CHECK(idmap_grow(map, 5000), "grow");
    c.fail_at = c.calls + 1;
    bool ok = true;
    for (uint64_t id = 0; id < 5000; id++) {
        ok = ok && idmap_put(map, id, 1);
    }
    CHECK(ok, "puts after grow cannot fail");
    arena_free(&arena);
    engine_unref(engine);
}

/* ---- messages, verbose, ISA names ------------------------------------------------------------ */

static int other_thread(void *text)
{
    bool empty = sinter_last_error_message()[0] == '\0';
    sg_fail(sinter_runtime_error, "%s", (const char *)text);
    return empty && strcmp(sinter_last_error_message(), text) == 0;
}

static void test_messages(void)
{
    char huge[5000];
    thrd_t thread;
    int ok = 0;
    memset(huge, 'x', sizeof huge - 1);
    huge[sizeof huge - 1] = '\0';
    CHECK(sg_fail(sinter_invalid_shape, "op %d", 3) == sinter_invalid_shape, "returns its status");
    CHECK(strcmp(sinter_last_error_message(), "op 3") == 0, "message");
    CHECK(thrd_create(&thread, other_thread, "elsewhere") == thrd_success &&
              thrd_join(thread, &ok) == thrd_success && ok,
          "own message per thread");
    CHECK(strcmp(sinter_last_error_message(), "op 3") == 0,
          "another thread's failure does not show here");
    sg_fail(sinter_invalid_shape, "while: %s", sinter_last_error_message());
    CHECK(strcmp(sinter_last_error_message(), "while: op 3") == 0,
          "the last message may be an argument");
    sg_fail(sinter_invalid_shape, "%s", huge);
    CHECK(strlen(sinter_last_error_message()) == 1023, "cut, not overflowed");
    CHECK(strcmp(sinter_status_name(sinter_success), "success") == 0, "status name");
    CHECK(strcmp(sinter_status_name(sinter_invalid_data_type), "invalid_data_type") == 0,
          "status name");
    CHECK(strcmp(sinter_status_name((sinter_status_t)11), "unknown") == 0, "no status");
    CHECK(strcmp(sinter_status_name((sinter_status_t)-1), "unknown") == 0, "no status");
}

static void test_verbose(void)
{
    static const struct {
        const char *words;
        int bits;
    } good[] = {{"none", 0}, {"error", 1},        {"dispatch,exec", 10}, {"all", 15},
                {"", 0},     {"none,compile", 4}, {"exec,exec", 8}};
    static const char *const bad[] = {"errors", "error,", ",error",     "error, exec",
                                      "ALL",    ",",      "error;exec", "err"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK(sinter_set_verbose(good[i].words) == sinter_success && sg_verbose() == good[i].bits,
              "\"%s\" gives %d", good[i].words, sg_verbose());
    }
    CHECK(sinter_set_verbose("dispatch") == sinter_success, "dispatch");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(sinter_set_verbose(bad[i]) == sinter_invalid_arguments && sg_verbose() == 2,
              "\"%s\" is refused", bad[i]);
    }
    CHECK(sinter_set_verbose(NULL) == sinter_invalid_arguments, "NULL");
    CHECK(sinter_set_verbose("none") == sinter_success, "none");
}

static void test_isa(void)
{
    sinter_cpu_isa_t isa = sinter_isa_default, machine = level_of_features(cpu_features());
    const char *was = getenv("SINTER_MAX_CPU_ISA");
    char saved[64] = "";
    snprintf(saved, sizeof saved, "%s", was != NULL ? was : "");
    unsetenv("SINTER_MAX_CPU_ISA");
    CHECK(machine >= sinter_isa_generic && (int)machine < LEVELS, "machine");
    CHECK(cpu_isa_cap(sinter_isa_default, &isa) == sinter_success && isa == machine, "no cap");
    CHECK(cpu_isa_cap(sinter_isa_generic, &isa) == sinter_success && isa == sinter_isa_generic,
          "capped by the caller");
    setenv("SINTER_MAX_CPU_ISA", "generic", 1);
    CHECK(cpu_isa_cap(sinter_isa_avx512, &isa) == sinter_success && isa == sinter_isa_generic,
          "capped by the environment");
    setenv("SINTER_MAX_CPU_ISA", "avx2", 1);
    CHECK(cpu_isa_cap(sinter_isa_default, &isa) == sinter_success &&
              isa == (machine < sinter_isa_avx2 ? machine : sinter_isa_avx2),
          "never above the machine");
    features_t features = {0};
    setenv("SINTER_MAX_CPU_ISA", "avx512_vnni", 1);
    CHECK(cpu_cap_features(sinter_isa_avx2, &features) == sinter_success &&
              (features.bits & ~(uint32_t)NEEDS_AVX2) == 0,
          "avx2 leaves AVX-VNNI out");
    setenv("SINTER_MAX_CPU_ISA", "avx2_vnni", 1);
    CHECK(cpu_cap_features(sinter_isa_avx512_vnni, &features) == sinter_success &&
              features.bits == (cpu_features().bits & NEEDS_AVX2_VNNI),
          "avx2_vnni leaves AVX-512 out");
    isa = sinter_isa_avx512;
    setenv("SINTER_MAX_CPU_ISA", "avx1024", 1);
    sinter_engine_t *engine = NULL;
    CHECK(cpu_isa_cap(sinter_isa_default, &isa) == sinter_invalid_arguments &&
              isa == sinter_isa_avx512,
          "an unknown level is an error");
    CHECK(engine_new(NULL, sinter_isa_default, &engine) == sinter_invalid_arguments &&
              engine == NULL,
          "for an engine too");
    CHECK(strstr(sinter_last_error_message(), "avx1024") != NULL &&
              strstr(sinter_last_error_message(), "default, generic, avx2, avx2_vnni,") != NULL,
          "message: %s", sinter_last_error_message());
    if (was != NULL) {
        setenv("SINTER_MAX_CPU_ISA", saved, 1);
    } else {
        unsetenv("SINTER_MAX_CPU_ISA");
    }
}

/* Levels are sets: what a set of features is called, and what a cap leaves of it. */
static void test_levels(void)
{
    static const struct {
        uint32_t has;
        sinter_cpu_isa_t level;
    } sets[] = {
        {NEEDS_NOTHING, sinter_isa_generic},
        {FEATURE_AVX_VNNI, sinter_isa_generic},
        {NEEDS_AVX2, sinter_isa_avx2},
        {NEEDS_AVX2_VNNI, sinter_isa_avx2_vnni},
        {NEEDS_AVX512, sinter_isa_avx512},
        {NEEDS_AVX512 | FEATURE_AVX_VNNI, sinter_isa_avx512},
        {NEEDS_AVX512_VNNI, sinter_isa_avx512_vnni},
        {NEEDS_AVX512_BF16 | FEATURE_AVX_VNNI, sinter_isa_avx512_vnni},
    };
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        const sinter_cpu_isa_t level = level_of_features((features_t){sets[i].has});
        CHECK(level == sets[i].level, "set %zu is %s", i, sinter_cpu_isa_name(level));
    }
    for (int i = sinter_isa_generic; i < LEVELS; i++) {
        const sinter_cpu_isa_t level = (sinter_cpu_isa_t)i;
        CHECK(level_of_features(features_of_level(level)) == level, "cap %s",
              sinter_cpu_isa_name(level));
    }
}

static void test_names(void)
{
    for (int i = sinter_isa_default; i < LEVELS; i++) {
        sinter_cpu_isa_t isa = (sinter_cpu_isa_t)99;
        CHECK(sinter_cpu_isa_parse(sinter_cpu_isa_name((sinter_cpu_isa_t)i), &isa) == 1 &&
                  (int)isa == i,
              "ISA %d", i);
    }
    static const int modes[] = {0, 1, 2, 3, 4, 64};
    for (int i = 0; i < 6; i++) {
        sinter_fpmath_mode_t mode = (sinter_fpmath_mode_t)99;
        CHECK(sinter_fpmath_mode_parse(sinter_fpmath_mode_name((sinter_fpmath_mode_t)modes[i]),
                                       &mode) == 1 &&
                  (int)mode == modes[i],
              "mode %d", i);
        CHECK(fpmath_mode_is_valid((sinter_fpmath_mode_t)modes[i]), "mode %d", i);
    }
    sinter_cpu_isa_t isa = sinter_isa_avx2;
    sinter_fpmath_mode_t mode = sinter_fpmath_mode_tf32;
    CHECK(sinter_cpu_isa_parse("sse", &isa) == 0 && sinter_cpu_isa_parse(NULL, &isa) == 0 &&
              isa == sinter_isa_avx2,
          "unknown ISA");
    CHECK(sinter_fpmath_mode_parse("f8", &mode) == 0 &&
              sinter_fpmath_mode_parse(NULL, &mode) == 0 && mode == sinter_fpmath_mode_tf32,
          "unknown mode");
    CHECK(sinter_cpu_isa_parse("avx2", NULL) == 0 && sinter_fpmath_mode_parse("any", NULL) == 0,
          "NULL");
    CHECK(sinter_cpu_isa_name((sinter_cpu_isa_t)LEVELS) == NULL &&
              sinter_fpmath_mode_name((sinter_fpmath_mode_t)5) == NULL,
          "no name");
    CHECK(!fpmath_mode_is_valid((sinter_fpmath_mode_t)5), "no mode");
}

int main(void)
{
    test_engine();
    test_memory();
    test_arena();
    test_failing();
    test_idmap();
    test_grow_promise();
    test_messages();
    test_verbose();
    test_isa();
    test_levels();
    test_names();
    return check_finish();
}
