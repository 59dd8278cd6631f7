/* The libxsmm adaptor. libxsmm is column-major, so a row-major product is asked for with its
 * operands swapped: its first operand is our B. Everything that libxsmm accepts but gets wrong
 * is refused here before it is asked. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, P_tmpdir */
#include "backend_xsmm/ukernels/xsmm.h"

#include <fcntl.h>
#include <libxsmm.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu.h"

#if !defined(LIBXSMM_X86_AVX512_SKX)
#define LIBXSMM_X86_AVX512_SKX LIBXSMM_X86_AVX512_CORE /* 1.17's name */
#endif

/* What the process may execute, by libxsmm's target, which LIBXSMM_TARGET can set below or above
 * what the CPU has. */
typedef struct target {
    features_t needs; /* of the code that libxsmm makes; nothing: no JIT */
    const char *why;
} target_t;

static const char NO_CODE_MEMORY[] = "the system refuses executable memory";
static target_t usable; /* set by xs_start */

static target_t target_of(int archid)
{
    const features_t cpu = cpu_features();
    const target_t above = {.why = "libxsmm's target is above what the CPU has"};
    if (archid <= LIBXSMM_X86_GENERIC) {
        return (target_t){.why = "libxsmm's JIT is off (LIBXSMM_TARGET)"};
    }
    if (archid < LIBXSMM_X86_AVX2 || archid > LIBXSMM_X86_ALLFEAT) {
        return (target_t){.why = "libxsmm's target is below AVX2 (LIBXSMM_TARGET or the CPU)"};
    }
    if (archid > libxsmm_cpuid_x86(NULL)) {
        return above;
    }
    if (archid < LIBXSMM_X86_AVX512_SKX) { /* AVX2; the AVX-512 of Xeon Phi is not offered */
        if (archid > LIBXSMM_X86_AVX2) {
            return (target_t){
                .why = "libxsmm's target is neither AVX2 nor AVX-512 with BW, DQ and VL"};
        }
        return has_features(cpu, NEEDS_AVX2) ? (target_t){.needs = {NEEDS_AVX2}} : above;
    }
    const target_t t = {.needs = {archid >= LIBXSMM_X86_AVX512_CPX   ? NEEDS_AVX512_BF16
                                  : archid >= LIBXSMM_X86_AVX512_CLX ? NEEDS_AVX512_VNNI
                                                                     : NEEDS_AVX512}};
    return has_features(cpu, t.needs.bits) ? t : above;
}

/* Kernels of f32 use AVX-512 F and VL at most, whatever the target's name; the others use what
 * their target adds. */
static uint32_t needs(xs_kind_t kind, features_t target)
{
    return kind == XS_F32 ? target.bits & NEEDS_AVX512 : target.bits;
}

const char *xs_refuse(xs_kind_t kind, features_t features)
{
    if (!has_features(features, NEEDS_AVX2)) {
        return "ISA capped at generic";
    }
    xs_start();
    const target_t t = usable;
    if (t.needs.bits == 0) {
        return t.why;
    }
    if (!has_features(features, needs(kind, t.needs))) {
        return "ISA capped below libxsmm's target";
    }
    if (kind == XS_BF16F32 && !has_features(t.needs, NEEDS_AVX512_BF16)) {
        return "no native bf16 products (CPU without AVX512_BF16 or libxsmm's target below it)";
    }
    return NULL;
}

static int size_of_input(xs_kind_t kind)
{
    return kind == XS_F32 ? 4 : 2;
}

/* Shapes that libxsmm must not be asked for. */
static const char *refuse_shape(const xs_shape_t *s)
{
    const int64_t size = size_of_input(s->kind), limit = INT32_MAX;
    const int pack = s->kind == XS_F32 ? 1 : 2;
    if (s->m < 1 || s->n < 1 || s->k < 1) {
        return "empty product";
    }
    if (s->lda < s->k || s->ldb < s->n || s->ldc < s->n) {
        return "leading dimension below the row length";
    }
    if (s->k % pack || s->lda % pack) {
        return "K or the leading dimension of A is no multiple of the packing";
    }
    if (s->stride_a < 0 || s->stride_b < 0 || s->stride_a * size > limit ||
        s->stride_b * size > limit) {
        return "stride between blocks out of range";
    }
    if ((int64_t)s->ldb * s->k * size > limit || (int64_t)s->lda * s->m * size > limit ||
        (int64_t)s->ldc * s->m * 4 > limit) {
        return "operand of 2 GiB or more";
    }
    return NULL;
}

#if defined(SINTER_LIBXSMM_2)

static xs_kernel_t dispatch(const xs_shape_t *s, const char **why)
{
    const libxsmm_datatype in = s->kind == XS_F32 ? LIBXSMM_DATATYPE_F32 : LIBXSMM_DATATYPE_BF16,
                           out = LIBXSMM_DATATYPE_F32;
    const int size = size_of_input(s->kind);
    libxsmm_gemm_shape shape =
        libxsmm_create_gemm_shape(s->n, s->m, s->k, s->ldb, s->lda, s->ldc, in, in, out, out);
    libxsmm_gemm_batch_reduce_config config = {0};
    config.br_type = LIBXSMM_GEMM_BATCH_REDUCE_STRIDE;
    config.br_stride_a_hint = s->stride_b * size;
    config.br_stride_b_hint = s->stride_a * size;
    libxsmm_bitfield flags = (s->beta ? 0 : LIBXSMM_GEMM_FLAG_BETA_0) |
                             (s->kind == XS_F32 ? 0 : LIBXSMM_GEMM_FLAG_VNNI_A);
    libxsmm_gemmfunction fn =
        libxsmm_dispatch_brgemm(shape, flags, LIBXSMM_GEMM_PREFETCH_NONE, config);
    libxsmm_kernel_info info;
    const void *code;
    memcpy(&code, &fn, sizeof code); /* ISO C has no cast for this */
    /* 2.x answers what it cannot JIT with a scalar reference kernel, not with NULL. */
    if (fn && (libxsmm_get_kernel_info(code, &info) != 0 || info.is_reference_kernel)) {
        *why = "libxsmm has only a reference kernel for this shape";
        return (xs_kernel_t){0};
    }
    if (!fn) {
        *why = "libxsmm has no kernel for this shape";
    }
    return (xs_kernel_t){(void (*)(void))fn, true};
}

void xs_call(xs_kernel_t kernel, const void *a, const void *b, void *c, uint64_t count)
{
    unsigned long long n = count;
    if (count == 0) {
        return;
    }
    libxsmm_gemm_param p = {0};
    p.op.tertiary = &n;
    p.a.primary = (void *)(uintptr_t)b;
    p.b.primary = (void *)(uintptr_t)a;
    p.c.primary = c;
    ((libxsmm_gemmfunction)kernel.fn)(&p);
}

#else

static atomic_bool no_code_memory; /* libxsmm found no executable memory, and will not look again */

static xs_kernel_t dispatch(const xs_shape_t *s, const char **why)
{
    const int m = s->n, n = s->m, k = s->k, lda = s->ldb, ldb = s->lda, ldc = s->ldc,
              size = size_of_input(s->kind);
    const int stride_a = (int)s->stride_b * size, stride_b = (int)s->stride_a * size;
    /* All of these are given: NULL would let defaults of the environment in. Only alpha 1, beta
     * 0 or 1 and no TRANS_A are safe. */
    const int flags = s->kind == XS_F32 ? LIBXSMM_GEMM_FLAG_NONE : LIBXSMM_GEMM_FLAG_VNNI_A,
              prefetch = LIBXSMM_GEMM_PREFETCH_NONE;
    const float alpha = 1, beta = s->beta;
    void (*fn)(void) = NULL;
    if (s->kind == XS_F32) {
        fn = (void (*)(void))libxsmm_smmdispatch_reducebatch_strd(
            m, n, k, stride_a, stride_b, &lda, &ldb, &ldc, &alpha, &beta, &flags, &prefetch);
    } else {
        fn = (void (*)(void))libxsmm_bsmmdispatch_reducebatch_strd(
            m, n, k, stride_a, stride_b, &lda, &ldb, &ldc, &alpha, &beta, &flags, &prefetch);
    }
    if (!fn) {
        const bool no_memory = atomic_load(&no_code_memory);
        *why = no_memory ? NO_CODE_MEMORY : "libxsmm has no kernel for this shape";
    }
    return (xs_kernel_t){fn, false};
}

void xs_call(xs_kernel_t kernel, const void *a, const void *b, void *c, uint64_t count)
{
    unsigned long long n = count;
    if (count) { /* the kernels run once even for 0 */
        ((libxsmm_smmfunction_reducebatch_strd)kernel.fn)((const float *)b, (const float *)a,
                                                          (float *)c, &n);
    }
}

#endif

/* ---- start ----------------------------------------------------------------------------------- */

#if defined(SINTER_LIBXSMM_2)

static bool lock_file_is_safe(void)
{
    return true; /* libxsmm 2.x has started before main */
}

static const char *refuse_code(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const int access = PROT_READ | PROT_WRITE | PROT_EXEC;
    void *code = mmap(NULL, page, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) {
        return NO_CODE_MEMORY;
    }
    munmap(code, page);
    return NULL;
}

#else

/* When libxsmm starts, it opens .libxsmm.UID among the temporary files for writing, and locks it.
 * It follows whatever another user has planted there: it would wait at a FIFO for ever, or create
 * a file at the end of a link. A regular file is harmless. A missing file is created here, so that
 * nobody can plant anything before libxsmm opens it. */
static bool lock_file_is_safe(void)
{
    char name[64];
    struct stat status;
    snprintf(name, sizeof name, P_tmpdir "/.libxsmm.%u", (unsigned)getuid()); /* as libxsmm does */
    if (lstat(name, &status) != 0) {
        const int file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
        if (file >= 0) {
            close(file);
        }
    }
    return lstat(name, &status) != 0 || S_ISREG(status.st_mode);
}

/* libxsmm maps executable pages. Where the system refuses them, libxsmm puts the code into memory
 * of its allocator, asks the system to make that executable, and ignores the answer: the kernel
 * would crash. This allocator never has memory, so that libxsmm has no kernel then. */
static void *no_memory_for_code(size_t bytes)
{
    (void)bytes;
    atomic_store(&no_code_memory, true);
    return NULL;
}

static void free_nothing(void *memory)
{
    (void)memory;
}

/* NULL if a kernel can be generated, else why not. */
static const char *refuse_code(void)
{
    const xs_shape_t any = {.m = 1, .n = 16, .k = 1, .lda = 1, .ldb = 16, .ldc = 16};
    const libxsmm_malloc_function allocate = {.function = no_memory_for_code};
    const libxsmm_free_function release = {.function = free_nothing};
    const char *why = NULL;
    libxsmm_set_default_allocator(NULL, allocate, release);
    dispatch(&any, &why);
    return why;
}

#endif

/* False: libxsmm has no tables, and a dispatch would crash. libxsmm also puts OMP_PROC_BIND=TRUE
 * into the environment if the variable is unset or empty. Nothing needs it: OpenMP read its
 * variables when it was loaded. So the environment is restored. */
static bool init_libxsmm(void)
{
    libxsmm_registry_info info;
    const char *before = getenv("OMP_PROC_BIND");
    const bool unset = before == NULL, empty = before != NULL && *before == '\0';
    libxsmm_init();
    const bool has_tables = libxsmm_get_registry_info(&info) == EXIT_SUCCESS;
    if (unset) {
        unsetenv("OMP_PROC_BIND");
    } else if (empty) {
        setenv("OMP_PROC_BIND", "", 1);
    }
    return has_tables;
}

static void start_once(void)
{
    if (!lock_file_is_safe()) {
        usable.why = "libxsmm's lock file in /tmp is not a regular file";
        return;
    }
    if (!init_libxsmm()) {
        usable.why = "libxsmm has no memory for its tables";
        return;
    }
    usable = target_of(libxsmm_get_target_archid());
    if (usable.needs.bits) {
        const char *why = refuse_code();
        usable = why != NULL ? (target_t){.why = why} : usable;
    }
}

void xs_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_once);
}

xs_kernel_t xs_dispatch(const xs_shape_t *shape, features_t features, const char **why)
{
    *why = xs_refuse(shape->kind, features);
    if (!*why) {
        *why = refuse_shape(shape);
    }
    return *why ? (xs_kernel_t){0} : dispatch(shape, why);
}

const char *xs_version(void)
{
    /* One literal for each target, so that nothing has to be formatted into static memory. */
#define XS_NAME(target)                             \
    LIBXSMM_STRINGIFY(LIBXSMM_CONFIG_VERSION_MAJOR) \
    "." LIBXSMM_STRINGIFY(LIBXSMM_CONFIG_VERSION_MINOR) " " target
    xs_start();
    const int id = usable.needs.bits ? libxsmm_get_target_archid() : LIBXSMM_X86_GENERIC;
    return id < LIBXSMM_X86_AVX2          ? XS_NAME("no JIT")
           : id == LIBXSMM_X86_AVX2       ? XS_NAME("hsw")
           : id < LIBXSMM_X86_AVX512_SKX  ? XS_NAME("avx512 subset")
           : id == LIBXSMM_X86_AVX512_SKX ? XS_NAME("skx")
           : id == LIBXSMM_X86_AVX512_CLX ? XS_NAME("clx")
           : id == LIBXSMM_X86_AVX512_CPX ? XS_NAME("cpx")
                                          : XS_NAME("above cpx");
#undef XS_NAME
}
