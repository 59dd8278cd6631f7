/* Before src/base/cpu.c: this machine has AVX-512, VNNI and BF16. */
#define __builtin_cpu_supports(name) \
    (__builtin_strncmp(name, "avx512", 6) == 0 || __builtin_cpu_supports(name))
