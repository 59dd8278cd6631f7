#include "base/cpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#include <sinter/sinter_graph.h>

#include "base/status.h"

typedef struct named {
    int value;
    const char *name;
} named_t;

static const named_t isa_names[] = {
    {sinter_isa_default, "default"},
#define SINTER_LEVEL(name, needs, keeps) {sinter_isa_##name, #name},
#include "base/features.def"
#undef SINTER_LEVEL
};

static const named_t mode_names[] = {
    {sinter_fpmath_mode_strict, "strict"}, {sinter_fpmath_mode_bf16, "bf16"},
    {sinter_fpmath_mode_f16, "f16"},       {sinter_fpmath_mode_any, "any"},
    {sinter_fpmath_mode_tf32, "tf32"},     {sinter_fpmath_mode_int8, "int8"},
};

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static const char *name_of(const named_t *table, size_t n, int value)
{
    for (size_t i = 0; i < n; i++) {
        if (table[i].value == value) {
            return table[i].name;
        }
    }
    return NULL;
}

static const named_t *find_name(const named_t *table, size_t n, const char *name)
{
    for (size_t i = 0; name != NULL && i < n; i++) {
        if (strcmp(table[i].name, name) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

const char *sinter_cpu_isa_name(sinter_cpu_isa_t isa)
{
    return name_of(isa_names, LENGTH(isa_names), (int)isa);
}

int sinter_cpu_isa_parse(const char *name, sinter_cpu_isa_t *out)
{
    const named_t *found = out != NULL ? find_name(isa_names, LENGTH(isa_names), name) : NULL;
    if (found != NULL) {
        *out = (sinter_cpu_isa_t)found->value;
    }
    return found != NULL;
}

const char *sinter_fpmath_mode_name(sinter_fpmath_mode_t mode)
{
    return name_of(mode_names, LENGTH(mode_names), (int)mode);
}

int sinter_fpmath_mode_parse(const char *name, sinter_fpmath_mode_t *out)
{
    const named_t *found = out != NULL ? find_name(mode_names, LENGTH(mode_names), name) : NULL;
    if (found != NULL) {
        *out = (sinter_fpmath_mode_t)found->value;
    }
    return found != NULL;
}

bool fpmath_mode_is_valid(sinter_fpmath_mode_t mode)
{
    return sinter_fpmath_mode_name(mode) != NULL;
}

#if defined(__x86_64__) || defined(__i386__)
enum { EAX, EBX, ECX, EDX };

/* For features whose names not every compiler's __builtin_cpu_supports knows, and that may be used
 * wherever the system allows AVX. */
static bool cpuid_bit(unsigned leaf, unsigned subleaf, int in, int bit)
{
    unsigned r[4];
    return __get_cpuid_count(leaf, subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) &&
           (r[in] >> bit & 1) != 0;
}

#define HAS(name) (__builtin_cpu_supports(name) != 0)
#define CPUID(leaf, subleaf, in, bit) cpuid_bit(leaf, subleaf, in, bit)
#define HAS_NEON false

static void detect_begin(void)
{
    __builtin_cpu_init();
}

/* The leaf of cpuid that lists the caches: Intel's, or AMD's, which has the same form. */
static size_t largest_cache(unsigned leaf)
{
    unsigned eax, ebx, ecx, edx;
    size_t most = 0;
    for (unsigned i = 0;
         i < 16 && __get_cpuid_count(leaf, i, &eax, &ebx, &ecx, &edx) && (eax & 31) != 0; i++) {
        const size_t ways = (ebx >> 22) + 1, partitions = (ebx >> 12 & 0x3FF) + 1,
                     line = (ebx & 0xFFF) + 1, sets = (size_t)ecx + 1;
        const size_t bytes = ways * partitions * line * sets;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static size_t last_level_cache;

static void detect_cache(void)
{
    const size_t intel = largest_cache(4), amd = largest_cache(0x8000001D);
    last_level_cache = intel > amd ? intel : amd;
}

/* Asked once, as the features are. */
size_t cpu_last_level_cache(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, detect_cache);
    return last_level_cache;
}
#else
#define HAS(name) false
#define CPUID(leaf, subleaf, in, bit) false
#if defined(__ARM_NEON)
#define HAS_NEON true
#else
#define HAS_NEON false
#endif

static void detect_begin(void)
{
}

size_t cpu_last_level_cache(void)
{
    return 0;
}
#endif

/* ---- features -------------------------------------------------------------------------------- */

static const char *const feature_names[] = {
#define SINTER_FEATURE(name, text, has) text,
#include "base/features.def"
#undef SINTER_FEATURE
};

static features_t found; /* detect sets it */

static void detect(void)
{
    features_t f = {0};
    detect_begin();
#define SINTER_FEATURE(name, text, has) f.bits |= (has) ? (uint32_t)FEATURE_##name : 0;
#include "base/features.def"
#undef SINTER_FEATURE
    /* Every set that code asks for includes AVX2, and AVX-512 where it says so. */
    if ((f.bits & FEATURE_AVX2) == 0) {
        f.bits &= FEATURE_NEON;
    } else if ((f.bits & FEATURE_AVX512) == 0) {
        f.bits &= ~(uint32_t)(FEATURE_AVX512_VNNI | FEATURE_AVX512_BF16);
    }
    found = f;
}

/* Asked once: in a virtual machine each question takes microseconds. */
features_t cpu_features(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, detect);
    return found;
}

/* ", " before each name. */
#define SINTER_LEVEL(name, needs, keeps) ", " #name
static const char level_names[] =
#include "base/features.def"
    ;
#undef SINTER_LEVEL

typedef struct level {
    sinter_cpu_isa_t level;
    uint32_t needs, keeps;
} level_t;

static const level_t levels[] = {
#define SINTER_LEVEL(name, needs, keeps) {sinter_isa_##name, needs, keeps},
#include "base/features.def"
#undef SINTER_LEVEL
};

#define SINTER_LEVEL(name, needs, keeps) \
    _Static_assert((int)sinter_isa_##name < LEVELS, "numbers of levels are consecutive");
#include "base/features.def"
#undef SINTER_LEVEL

features_t features_of_level(sinter_cpu_isa_t level)
{
    for (size_t i = 0; i < LENGTH(levels); i++) {
        if (levels[i].level == level) {
            return (features_t){levels[i].keeps};
        }
    }
    return (features_t){UINT32_MAX};
}

sinter_cpu_isa_t level_of_features(features_t features)
{
    sinter_cpu_isa_t level = sinter_isa_generic;
    for (size_t i = 0; i < LENGTH(levels); i++) {
        if (has_features(features, levels[i].needs)) {
            level = levels[i].level;
        }
    }
    return level;
}

features_t features_up_to(sinter_cpu_isa_t level)
{
    return (features_t){cpu_features().bits & features_of_level(level).bits};
}

const char *missing_feature(features_t have, uint32_t needs)
{
    for (int i = FEATURES - 1; i >= 0; i--) {
        if ((needs & ~have.bits & 1u << i) != 0) {
            return feature_names[i];
        }
    }
    return NULL;
}

sinter_status_t cpu_cap_features(sinter_cpu_isa_t max, features_t *features)
{
    if (sinter_cpu_isa_name(max) == NULL) {
        return sg_fail(sinter_invalid_arguments, "max_isa %d is no ISA level", (int)max);
    }
    const char *env = getenv("SINTER_MAX_CPU_ISA");
    sinter_cpu_isa_t env_max = sinter_isa_default;
    if (env != NULL && *env != '\0' && !sinter_cpu_isa_parse(env, &env_max)) {
        return sg_fail(sinter_invalid_arguments, "SINTER_MAX_CPU_ISA is \"%s\", expected default%s",
                       env, level_names);
    }
    features->bits = features_up_to(max).bits & features_of_level(env_max).bits;
    return sinter_success;
}

sinter_status_t cpu_isa_cap(sinter_cpu_isa_t max, sinter_cpu_isa_t *isa)
{
    features_t features;
    SG_TRY(cpu_cap_features(max, &features));
    *isa = level_of_features(features);
    return sinter_success;
}
