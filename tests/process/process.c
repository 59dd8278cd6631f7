/* process CASE: what the library does to the process of its host, and what it does when the system
 * refuses something. One case for each process. Exit status 0: passed, 1: failed, 77: the system
 * does not allow this test. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, P_tmpdir, setgroups */
#include <errno.h>
#include <grp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#endif

#include "product.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#elif defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SANITIZED false
#endif

enum { PASSED = 0, FAILED = 1, SKIPPED = 77, HANGS_AFTER = 30 /* seconds */ };

extern char **environ;

static product_t product;

static int skip(const char *why)
{
    printf("skipped: %s\n", why);
    return SKIPPED;
}

static bool expect(bool ok, const char *what)
{
    if (!ok) {
        printf("FAILED: %s\n", what);
    }
    return ok;
}

static sinter_stream_t *new_stream(sinter_engine_t *engine, int threads)
{
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = threads, .all_threads = 1};
    sinter_stream_t *stream = NULL;
    if (sinter_stream_create(&stream, engine, &desc) != sinter_success) {
        printf("stream: %s\n", sinter_last_error_message());
    }
    return stream;
}

static int threads_of(const sinter_stream_t *stream)
{
    int threads = -1;
    sinter_stream_get_threads(stream, &threads);
    return threads;
}

/* A whole life of an engine, executing on `threads` threads. */
static bool engine_works(int threads)
{
    sinter_engine_t *engine = NULL;
    sinter_stream_t *stream = NULL;
    bool ok = expect(sinter_engine_create(&engine, NULL) == sinter_success, "an engine is created");
    if (ok) {
        stream = new_stream(engine, threads);
        ok = stream != NULL && product_open(&product, engine) && product_run(&product, stream);
        printf("%s", product_report(&product));
    }
    sinter_stream_destroy(&stream);
    sinter_engine_destroy(&engine);
    return ok;
}

/* Exit status of a child that runs f, or -1 with a message if a signal ended it. */
static int in_child(int (*f)(void))
{
    int status = -1;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        alarm(HANGS_AFTER);
        const int result = f();
        fflush(stdout);
        _exit(result);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        printf("no child: %s\n", strerror(errno));
        return -1;
    }
    if (!WIFEXITED(status)) {
        printf("the child was ended by signal %d\n", WTERMSIG(status));
        return -1;
    }
    return WEXITSTATUS(status);
}

static int uses_generated_code(void)
{
    return product_open(&product, NULL) &&
                   strstr(product_report(&product), "brgemm libxsmm") != NULL
               ? PASSED
               : FAILED;
}

/* True if this process would use libxsmm's kernels, by its CPU and environment, if nothing were
 * refused. A child finds out, so that libxsmm is not yet started here. */
static bool would_generate_code(void)
{
    const bool would = in_child(uses_generated_code) == PASSED;
    if (!would) {
        printf("this process uses no generated code anyway\n");
    }
    return would;
}

/* The report names the reason, where there would have been generated code. */
static bool expect_reason(bool would_generate, const char *reason)
{
    if (would_generate && strstr(product_report(&product), reason) == NULL) {
        printf("FAILED: the report does not say \"%s\"\n", reason);
        return false;
    }
    return true;
}

/* ---- executable memory ----------------------------------------------------------------------- */

#if defined(__x86_64__)
static bool forbid_executable_memory(void)
{
    /* mmap, mprotect and pkey_mprotect have the protection as their third argument. */
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 7),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pkey_mprotect, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        return false;
    }
    const int access = PROT_READ | PROT_WRITE | PROT_EXEC;
    return mmap(NULL, 4096, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
}
#else
static bool forbid_executable_memory(void)
{
    return false;
}
#endif

static int case_no_executable_memory(void)
{
    const bool would = would_generate_code();
    if (!forbid_executable_memory()) {
        return skip("no seccomp filters here");
    }
    return engine_works(2) && expect_reason(would, "the system refuses executable memory") ? PASSED
                                                                                           : FAILED;
}

/* ---- the environment ------------------------------------------------------------------------- */

static char **copy_environment(size_t *n)
{
    *n = 0;
    while (environ[*n] != NULL) {
        ++*n;
    }
    char **copy = calloc(*n + 1, sizeof *copy);
    for (size_t i = 0; copy != NULL && i < *n; i++) {
        copy[i] = strdup(environ[i]);
    }
    return copy;
}

/* With OMP_PROC_BIND set to the value, or not at all; all variables that keep libxsmm from setting
 * it are unset. */
static int environment_stays(const char *value)
{
    unsetenv("GOMP_CPU_AFFINITY");
    unsetenv("KMP_AFFINITY");
    unsetenv("OMP_PROC_BIND");
    if (value != NULL) {
        setenv("OMP_PROC_BIND", value, 1);
    }
    size_t before, after;
    char **old = copy_environment(&before);
    bool ok = old != NULL && engine_works(2);
    char **new = copy_environment(&after);
    for (size_t i = 0; old != NULL && new != NULL && (i < before || i < after); i++) {
        const char *was = i < before ? old[i] : "(nothing)", *is = i < after ? new[i] : "(nothing)";
        if (strcmp(was, is) != 0) {
            printf("FAILED: string %zu of the environment was %s and is %s\n", i, was, is);
            ok = false;
        }
        free(i < before ? old[i] : NULL);
        free(i < after ? new[i] : NULL);
    }
    free(old);
    free(new);
    return ok ? PASSED : FAILED;
}

static int case_environment_unset(void)
{
    return environment_stays(NULL);
}

static int case_environment_empty(void)
{
    return environment_stays("");
}

static int case_environment_given(void)
{
    return environment_stays("close");
}

/* ---- fork ------------------------------------------------------------------------------------ */

static sinter_stream_t *two; /* a stream of two threads */

static bool runs_with(int threads)
{
    printf("%d threads, expected %d\n", threads_of(two), threads);
    return product_run(&product, two) &&
           expect(threads_of(two) == threads, "the number of threads");
}

static void *run_with_two(void *ok)
{
    *(bool *)ok = runs_with(2);
    return NULL;
}

static int child_of_team(void)
{
    bool ok = runs_with(1), other = false;
    pthread_t thread;
    /* A thread that the child makes has lost nothing. */
    if (!expect(pthread_create(&thread, NULL, run_with_two, &other) == 0,
                "a thread in the child")) {
        return FAILED;
    }
    pthread_join(thread, NULL);
    return ok && other && runs_with(1) ? PASSED : FAILED;
}

static int child_without_team(void)
{
    return runs_with(2) ? PASSED : FAILED;
}

static int case_fork_after_team(void)
{
    two = new_stream(NULL, 2);
    const bool ok = two != NULL && product_open(&product, NULL) && runs_with(2) &&
                    expect(in_child(child_of_team) == PASSED, "the child executes") && runs_with(2);
    return ok ? PASSED : FAILED;
}

static int case_fork_before_team(void)
{
    two = new_stream(NULL, 2);
    const bool ok = two != NULL && product_open(&product, NULL) &&
                    expect(in_child(child_without_team) == PASSED, "the child executes") &&
                    runs_with(2);
    return ok ? PASSED : FAILED;
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* Temporary files of the user that a test has become; libxsmm locks the first when it starts. */
static char lock_file[64], elsewhere[64];

/* Becomes a user that has no other processes, so that none is disturbed. */
static bool become_nobody(void)
{
    const uid_t uid = (uid_t)(2000000 + getpid() % 1000000);
    if (geteuid() != 0 || setgroups(0, NULL) != 0 || setgid(uid) != 0 || setuid(uid) != 0) {
        return false;
    }
    snprintf(lock_file, sizeof lock_file, P_tmpdir "/.libxsmm.%u", (unsigned)uid);
    snprintf(elsewhere, sizeof elsewhere, P_tmpdir "/.sinter-test.%u", (unsigned)uid);
    return true;
}

static bool limit(int what, rlim_t soft)
{
    struct rlimit now;
    if (getrlimit(what, &now) != 0) {
        return false;
    }
    now.rlim_cur = soft == RLIM_INFINITY || soft > now.rlim_max ? now.rlim_max : soft;
    return setrlimit(what, &now) == 0;
}

/* Limits the address space to what the process has mapped, plus `more` bytes. */
static bool limit_address_space(size_t more)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    const bool known = file != NULL && fscanf(file, "%lu", &pages) == 1;
    if (file != NULL) {
        fclose(file);
    }
    return known && limit(RLIMIT_AS, (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + more);
}

static void *wait_for_lock(void *lock)
{
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

/* How many of `most` threads the system lets live at once beside this one. */
static int threads_possible(int most)
{
    pthread_t threads[16];
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int n = 0;
    pthread_mutex_lock(&lock);
    while (n < most && n < 16 && pthread_create(&threads[n], NULL, wait_for_lock, &lock) == 0) {
        n++;
    }
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
    }
    return n;
}

/* A stream of eight threads has as many as can be had, and executes. */
static bool takes_fewer(int least, int most)
{
    sinter_stream_t *stream = new_stream(NULL, 8);
    const int threads = stream == NULL ? 0 : threads_of(stream);
    printf("asked for 8 threads, got %d, expected %d to %d\n", threads, least, most);
    return product_run(&product, stream) &&
           expect(threads >= least && threads <= most, "as many threads as can be had");
}

static int case_threads_refused(void)
{
    if (!become_nobody()) {
        return skip("only root can become a user without processes");
    }
    if (!product_open(&product, NULL) || !limit(RLIMIT_NPROC, 3)) {
        return FAILED;
    }
    const int possible = threads_possible(7);
    if (possible == 7) {
        return skip("the system does not enforce RLIMIT_NPROC");
    }
    const bool ok = takes_fewer(1 + possible, 1 + possible);
    limit(RLIMIT_NPROC, RLIM_INFINITY);
    return ok ? PASSED : FAILED;
}

/* Room for two or three of the usual stacks of 8 MiB. */
static int case_threads_without_memory(void)
{
    if (SANITIZED) {
        return skip("sanitizers map more than any limit allows");
    }
    if (!limit(RLIMIT_STACK, 8 << 20) || !product_open(&product, NULL) ||
        !limit_address_space(28 << 20)) {
        return FAILED;
    }
    const bool ok = takes_fewer(2, 4);
    limit(RLIMIT_AS, RLIM_INFINITY);
    return ok ? PASSED : FAILED;
}

/* OMP_STACKSIZE is read when OpenMP is loaded, so it must be set before this program starts. */
static int case_threads_with_large_stacks(void)
{
    if (SANITIZED) {
        return skip("sanitizers map more than any limit allows");
    }
    if (getenv("OMP_STACKSIZE") == NULL) {
        char self[] = "/proc/self/exe", name[] = "process", which[] = "threads_with_large_stacks";
        char *const arguments[] = {name, which, NULL};
        setenv("OMP_STACKSIZE", " 64 m ", 1);
        execv(self, arguments);
        return skip("no /proc/self/exe");
    }
    if (!product_open(&product, NULL) || !limit_address_space((size_t)150 << 20)) {
        return FAILED;
    }
    const bool ok = takes_fewer(2, 3);
    limit(RLIMIT_AS, RLIM_INFINITY);
    return ok ? PASSED : FAILED;
}

/* libxsmm's tables take 9 MiB. */
static int case_tables_without_memory(void)
{
    if (SANITIZED) {
        return skip("sanitizers map more than any limit allows");
    }
    const bool would = would_generate_code();
    if (!limit_address_space(6 << 20)) {
        return FAILED;
    }
    const bool ok = engine_works(1);
    limit(RLIMIT_AS, RLIM_INFINITY);
    return ok && expect_reason(would, "libxsmm has no memory for its tables") ? PASSED : FAILED;
}

/* The stack grows now: it cannot where nothing can be mapped. */
static __attribute__((noinline)) int grow_stack(void)
{
    enum { ROOM = 512 << 10, PAGE = 1 << 12 };
    volatile char room[ROOM];
    int sum = 0;
    for (int i = 0; i < ROOM; i += PAGE) {
        room[i] = 0;
        sum += room[i];
    }
    return sum;
}

/* The heap has room, but nothing can be mapped, so that code could only lie in the heap, which is
 * not executable. */
static int case_code_without_memory(void)
{
    enum { BLOCKS = 256, BLOCK = 1 << 16 };
    static void *blocks[BLOCKS];
    if (SANITIZED) {
        return skip("sanitizers map more than any limit allows");
    }
    const bool would = would_generate_code();
    sinter_engine_t *engine = NULL;
    if (sinter_engine_create(&engine, NULL) != sinter_success) {
        return FAILED;
    }
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BLOCK);
    }
    for (int i = 0; i < BLOCKS; i++) {
        free(blocks[i]);
    }
    sinter_stream_t *stream = new_stream(engine, 1);
    if (stream == NULL || grow_stack() != 0 || !limit_address_space(0)) {
        return FAILED;
    }
    const bool ok = product_open(&product, engine) && product_run(&product, stream);
    limit(RLIMIT_AS, RLIM_INFINITY);
    printf("%s", product_report(&product));
    return ok && expect_reason(would, "the system refuses executable memory") ? PASSED : FAILED;
}

/* ---- temporary files ------------------------------------------------------------------------- */

static int case_planted_fifo(void)
{
    if (!become_nobody()) {
        return skip("only root can become a user without processes");
    }
    const bool would = would_generate_code();
    unlink(lock_file);
    if (mkfifo(lock_file, 0600) != 0) {
        return skip("no FIFO among the temporary files");
    }
    const int result = in_child(uses_generated_code);
    const bool ok = expect(result >= 0, "compile does not wait for the FIFO") && engine_works(2) &&
                    expect_reason(would, "libxsmm's lock file");
    return ok ? PASSED : FAILED;
}

static int case_planted_link(void)
{
    if (!become_nobody()) {
        return skip("only root can become a user without processes");
    }
    const bool would = would_generate_code();
    struct stat status;
    unlink(lock_file);
    if (symlink(elsewhere, lock_file) != 0) {
        return skip("no link among the temporary files");
    }
    bool ok = engine_works(2) && expect_reason(would, "libxsmm's lock file");
    ok = expect(lstat(elsewhere, &status) != 0, "no file is created through the link") && ok;
    return ok ? PASSED : FAILED;
}

/* ---------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int (*run)(void);
} cases[] = {
#define PROCESS_CASE(name) {#name, case_##name},
#include "cases.def"
#undef PROCESS_CASE
};

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(argv[1], cases[i].name) == 0) {
            const int result = cases[i].run();
            if (lock_file[0] != '\0') {
                unlink(lock_file);
                unlink(elsewhere);
            }
            fflush(stdout);
            _exit(result); /* the search for leaks of sanitizers needs what some cases forbid */
        }
    }
    printf("usage: process CASE, with one of the cases of cases.def\n");
    return 1;
}
