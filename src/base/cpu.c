#include "base/cpu.h"

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
    {sinter_isa_generic, "generic"},
    {sinter_isa_avx2, "avx2"},
    {sinter_isa_avx512, "avx512"},
    {sinter_isa_avx512_vnni, "avx512_vnni"},
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

static bool value_of(const named_t *table, size_t n, const char *name, int *value)
{
    for (size_t i = 0; name != NULL && i < n; i++) {
        if (strcmp(table[i].name, name) == 0) {
            *value = table[i].value;
            return true;
        }
    }
    return false;
}

const char *sinter_cpu_isa_name(sinter_cpu_isa_t isa)
{
    return name_of(isa_names, LENGTH(isa_names), (int)isa);
}

int sinter_cpu_isa_parse(const char *name, sinter_cpu_isa_t *out)
{
    int value;
    if (out == NULL || !value_of(isa_names, LENGTH(isa_names), name, &value)) {
        return 0;
    }
    *out = (sinter_cpu_isa_t)value;
    return 1;
}

const char *sinter_fpmath_mode_name(sinter_fpmath_mode_t mode)
{
    return name_of(mode_names, LENGTH(mode_names), (int)mode);
}

int sinter_fpmath_mode_parse(const char *name, sinter_fpmath_mode_t *out)
{
    int value;
    if (out == NULL || !value_of(mode_names, LENGTH(mode_names), name, &value)) {
        return 0;
    }
    *out = (sinter_fpmath_mode_t)value;
    return 1;
}

bool fpmath_mode_is_valid(sinter_fpmath_mode_t mode)
{
    return sinter_fpmath_mode_name(mode) != NULL;
}

#if defined(__x86_64__) || defined(__i386__)
/* Not every compiler's __builtin_cpu_supports knows it. The operating system's part is that of
 * AVX, which is checked beside it. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}

sinter_cpu_isa_t cpu_isa_detect(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) {
        return sinter_isa_generic;
    }
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
        return sinter_isa_avx2;
    }
    return __builtin_cpu_supports("avx512vnni") ? sinter_isa_avx512_vnni : sinter_isa_avx512;
}

bool cpu_has_bf16(void)
{
    return __builtin_cpu_supports("avx512bf16");
}

/* The list of caches: Intel's leaf, or AMD's, which has the same form. */
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

size_t cpu_last_level_cache(void)
{
    const size_t intel = largest_cache(4), amd = largest_cache(0x8000001D);
    return intel > amd ? intel : amd;
}
#else
sinter_cpu_isa_t cpu_isa_detect(void)
{
    return sinter_isa_generic;
}

bool cpu_has_bf16(void)
{
    return false;
}

size_t cpu_last_level_cache(void)
{
    return 0;
}
#endif

static sinter_cpu_isa_t lesser(sinter_cpu_isa_t a, sinter_cpu_isa_t cap)
{
    return cap != sinter_isa_default && cap < a ? cap : a;
}

sinter_status_t cpu_isa_cap(sinter_cpu_isa_t max, sinter_cpu_isa_t *isa)
{
    if (sinter_cpu_isa_name(max) == NULL) {
        return sg_fail(sinter_invalid_arguments, "max_isa %d is no ISA level", (int)max);
    }
    const char *env = getenv("SINTER_MAX_CPU_ISA");
    sinter_cpu_isa_t env_max = sinter_isa_default;
    if (env != NULL && *env != '\0' && !sinter_cpu_isa_parse(env, &env_max)) {
        return sg_fail(
            sinter_invalid_arguments,
            "SINTER_MAX_CPU_ISA is \"%s\", expected default, generic, avx2, avx512 or avx512_vnni",
            env);
    }
    *isa = lesser(lesser(cpu_isa_detect(), max), env_max);
    return sinter_success;
}
