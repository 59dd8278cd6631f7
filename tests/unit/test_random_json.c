/* Damaged graphs: files of models/patterns with random mutations of bytes and of tokens go the
 * whole way, from text to an execution where that is small. Whatever they say, the answer is a
 * result or a failure with a message. SINTER_RANDOM_SEED, SINTER_RANDOM_CASES and
 * SINTER_RANDOM_ONLY (a seed in hex, whose text goes to stderr) as in test_random;
 * SINTER_RANDOM_VERBOSE shows every answer. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "exec.h"
#include "random.h"

enum { MAX_FILES = 128, MAX_TOKENS = 8192, MAX_BYTES = 1 << 20, SECONDS_PER_CASE = 60 };

static uint64_t state;

static size_t pick(size_t n)
{
    return (size_t)(random_next(&state) % n);
}

/* ---- text ------------------------------------------------------------------------------------ */

typedef struct text {
    char *bytes;
    size_t size;
} text_t;

static void *take(size_t bytes)
{
    void *p = malloc(bytes + 1);

    if (!p) {
        abort();
    }
    return p;
}

static void splice(text_t *t, size_t at, size_t gone, const char *with, size_t n)
{
    char *bytes = take(t->size - gone + n);

    memcpy(bytes, t->bytes, at);
    memcpy(bytes + at, with, n);
    memcpy(bytes + at + n, t->bytes + at + gone, t->size - at - gone);
    free(t->bytes);
    t->bytes = bytes;
    t->size += n - gone;
}

/* A number, a string or a word; the rest is punctuation. */
typedef struct token {
    size_t at, n;
} token_t;

static token_t tokens[MAX_TOKENS];
static size_t n_tokens;

static void scan(const text_t *t)
{
    n_tokens = 0;
    for (size_t i = 0; i < t->size && n_tokens < MAX_TOKENS;) {
        size_t from = i;

        if (t->bytes[i] == '"') {
            for (i++; i < t->size && t->bytes[i] != '"'; i++) {
            }
            i++;
        } else {
            while (i < t->size && strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzE", t->bytes[i]) &&
                   t->bytes[i]) {
                i++;
            }
        }
        i = i > t->size ? t->size : i;
        if (i > from) {
            tokens[n_tokens++] = (token_t){from, i - from};
        } else {
            i++;
        }
    }
}

static int is_key(const text_t *t, const token_t *k)
{
    return t->bytes[k->at] == '"' && k->at + k->n < t->size && t->bytes[k->at + k->n] == ':';
}

/* ---- mutations ------------------------------------------------------------------------------- */

static void mutate_byte(text_t *t)
{
    size_t at = pick(t->size), n = 1 + pick(8);
    char byte = (char)random_next(&state);

    n = n > t->size - at ? t->size - at : n;
    switch (pick(5)) {
    case 0:
        t->bytes[at] = (char)(t->bytes[at] ^ 1 << pick(8));
        break;
    case 1:
        splice(t, at, 1, &byte, 1);
        break;
    case 2:
        splice(t, at, n, "", 0);
        break;
    case 3:
        splice(t, at, 0, t->bytes + at, n);
        break;
    default:
        t->size = pick(20) ? t->size : at;
        break;
    }
}

static const char *const numbers[] = {"0",
                                      "1",
                                      "-1",
                                      "2",
                                      "3",
                                      "7",
                                      "12",
                                      "13",
                                      "17",
                                      "64",
                                      "4096",
                                      "-5",
                                      "127",
                                      "128",
                                      "255",
                                      "256",
                                      "65536",
                                      "2147483647",
                                      "2147483648",
                                      "-2147483648",
                                      "4294967296",
                                      "9007199254740992",
                                      "9007199254740993",
                                      "9223372036854775807",
                                      "-9223372036854775808",
                                      "18446744073709551615",
                                      "18446744073709551616",
                                      "1e3",
                                      "1e30",
                                      "1e400",
                                      "0.5",
                                      "-0",
                                      "1e-40",
                                      "3037000500",
                                      "0x10",
                                      "01"};
static const char *const words[] = {"\"\"",
                                    "null",
                                    "true",
                                    "false",
                                    "[]",
                                    "{}",
                                    "\"f32\"",
                                    "\"f16\"",
                                    "\"bf16\"",
                                    "\"f64\"",
                                    "\"s32\"",
                                    "\"s64\"",
                                    "\"s8\"",
                                    "\"u8\"",
                                    "\"s4\"",
                                    "\"u4\"",
                                    "\"f8_e4m3\"",
                                    "\"f8_e5m2fnuz\"",
                                    "\"f6_e3m2\"",
                                    "\"f4_e2m1\"",
                                    "\"e8m0\"",
                                    "\"boolean\"",
                                    "\"any\"",
                                    "\"opaque\"",
                                    "\"undef\"",
                                    "\"constant\"",
                                    "\"host_scalar\"",
                                    "\"per_tensor\"",
                                    "\"per_channel\"",
                                    "\"per_group\"",
                                    "\"none\"",
                                    "\"NCX\"",
                                    "\"MatMul\"",
                                    "\"SoftMax\"",
                                    "\"LogSoftmax\"",
                                    "\"Add\"",
                                    "\"Select\"",
                                    "\"StaticReshape\"",
                                    "\"StaticTranspose\"",
                                    "\"Reorder\"",
                                    "\"TypeCast\"",
                                    "\"Quantize\"",
                                    "\"Dequantize\"",
                                    "\"DynamicQuantize\"",
                                    "\"DynamicDequantize\"",
                                    "\"GenIndex\"",
                                    "\"BiasAdd\"",
                                    "\"PReLU\"",
                                    "\"Convolution\"",
                                    "\"LayerNorm\"",
                                    "\"Wildcard\"",
                                    "\"End\"",
                                    "\"axis\"",
                                    "\"groups\"",
                                    "\"group_shape\"",
                                    "\"scales\"",
                                    "\"zps\"",
                                    "\"shape\"",
                                    "\"order\"",
                                    "\"dynamic_mx\"",
                                    "\"dynamic_nv\"",
                                    "\"quantization_kind\"",
                                    "\"inf_as_zero\"",
                                    "\"s64[]\"",
                                    "\"f32[]\""};
#define COUNT(a) (sizeof(a) / sizeof *(a))

static void put(text_t *t, const token_t *k, const char *with)
{
    splice(t, k->at, k->n, with, strlen(with));
}

/* A number becomes another that tends to break things, or its neighbour. */
static void mutate_number(text_t *t, const token_t *k)
{
    char near[32];

    /* The neighbour of the largest number is the least one. */
    const unsigned long long next =
        (unsigned long long)strtoll(t->bytes + k->at, NULL, 10) + pick(3) - 1;
    snprintf(near, sizeof near, "%lld", (long long)next);
    put(t, k, pick(3) ? numbers[pick(COUNT(numbers))] : near);
}

/* One token takes the text of another of the file: ids twice, dims swapped, names moved. */
static void copy_token(text_t *t, const token_t *k)
{
    const token_t *from = &tokens[pick(n_tokens)];
    char *text = take(from->n);

    memcpy(text, t->bytes + from->at, from->n);
    splice(t, k->at, k->n, text, from->n);
    free(text);
}

/* What other members of the same name have for a value: a graph that still reads well. */
static void copy_sibling(text_t *t, size_t i)
{
    const token_t *key = i > 0 && is_key(t, &tokens[i - 1]) ? &tokens[i - 1] : NULL;

    for (int tries = 0; key && tries < 64; tries++) {
        size_t k = 1 + pick(n_tokens - 1);
        const token_t *other = &tokens[k - 1];

        if (k != i && other->n == key->n && is_key(t, other) &&
            !memcmp(t->bytes + other->at, t->bytes + key->at, key->n)) {
            char *text = take(tokens[k].n);
            size_t n = tokens[k].n;

            memcpy(text, t->bytes + tokens[k].at, n);
            splice(t, tokens[i].at, tokens[i].n, text, n);
            free(text);
            return;
        }
    }
}

/* A number becomes another wherever it stands, as a dim does that several tensors share. */
static void replace_all(text_t *t, const token_t *k, const char *with)
{
    char old[64];
    size_t n = k->n < sizeof old ? k->n : sizeof old;

    memcpy(old, t->bytes + k->at, n);
    for (size_t i = n_tokens; i-- > 0;) {
        if (tokens[i].n == n && !memcmp(t->bytes + tokens[i].at, old, n)) {
            splice(t, tokens[i].at, n, with, strlen(with));
        }
    }
}

/* A key goes with its value if that is a plain one. */
static void drop_member(text_t *t, size_t i)
{
    size_t from = tokens[i].at,
           to = i + 1 < n_tokens ? tokens[i + 1].at + tokens[i + 1].n : t->size;

    while (to < t->size && strchr("], ", t->bytes[to]) && t->bytes[to]) {
        to++;
    }
    splice(t, from, to - from, "", 0);
}

/* tame: the text stays a graph file, which may be wrong. */
static void mutate_token(text_t *t, int tame)
{
    static const char *const small[] = {"0", "1", "2", "3", "5", "8", "16", "33", "-1", "-2"};
    const token_t *k;
    size_t i;

    scan(t);
    if (n_tokens == 0) {
        return;
    }
    i = pick(n_tokens);
    k = &tokens[i];
    if (tame && t->bytes[k->at] == '"') {
        copy_sibling(t, i);
    } else if (tame && pick(3)) {
        replace_all(t, k, small[pick(COUNT(small))]);
    } else if (tame) {
        put(t, k, small[pick(COUNT(small))]);
    } else if (is_key(t, k) && pick(3) == 0) {
        drop_member(t, i);
    } else if (pick(5) == 0) {
        copy_token(t, k);
    } else if (t->bytes[k->at] == '"' || pick(12) == 0) {
        put(t, k, words[pick(COUNT(words))]);
    } else {
        mutate_number(t, k);
    }
}

/* ---- one case -------------------------------------------------------------------------------- */

static long n_loaded, n_built, n_compiled, n_executed;

static int is_small(const gr_exec_t *x)
{
    for (size_t p = 0; p < x->n_parts; p++) {
        const gr_part_t *part = &x->parts[p];

        for (size_t i = 0; i < part->n_in + part->n_out; i++) {
            const sinter_logical_tensor_t *lt =
                i < part->n_in ? &part->in[i] : &part->out[i - part->n_in];
            size_t bytes;

            if (!gr_is_known(lt) || sinter_logical_tensor_get_bytes(lt, &bytes) ||
                bytes > MAX_BYTES || gr_elements(lt) > MAX_BYTES) {
                return 0;
            }
        }
        if (part->scratch > (size_t)64 << 20) {
            return 0;
        }
    }
    return 1;
}

static int small_inputs(const model_t *m)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        const sinter_logical_tensor_t *lt = model_lt(m, &m->tensors[i]);
        size_t bytes;

        if (m->tensors[i].is_input &&
            (!gr_is_known(lt) || sinter_logical_tensor_get_bytes(lt, &bytes) || bytes > MAX_BYTES ||
             gr_elements(lt) > MAX_BYTES)) {
            return 0;
        }
    }
    return 1;
}

/* The first stage that failed has left a message. */
static int go(const text_t *t, int no_fuse, gr_error_t *err)
{
    gr_options_t opt = gr_default_options;
    gr_exec_t x = {0};
    model_t m = {0};
    int failed = model_load_text(&m, "mutated.json", t->bytes, t->size, err);

    opt.no_fuse = no_fuse;
    opt.threads = 2;
    if (!failed) {
        n_loaded++;
        failed = gr_exec_open(&x, &m, &opt, err);
        if (!failed) {
            n_built++;
            failed = gr_exec_compile(&x, err);
        }
        n_compiled += !failed;
        if (!failed && is_small(&x) && small_inputs(&m)) {
            failed = gr_exec_inputs(&x, err) || gr_exec_run(&x, err);
            n_executed += !failed;
        }
        gr_exec_close(&x);
    }
    model_free(&m);
    return failed;
}

static char now[32];

static void too_long(int signal)
{
    static const char text[] = " takes too long\n";

    (void)signal;
    if (write(2, now, strlen(now)) < 0 || write(2, text, sizeof text - 1) < 0) {
        _exit(2);
    }
    _exit(1);
}

static void run_case(uint64_t seed, const text_t *files, size_t n_files, int show)
{
    const text_t *file = &files[(state = seed, pick(n_files))];
    text_t t = {take(file->size), file->size};
    size_t n = 1 + pick(4);
    int tame = pick(2) == 0;

    memcpy(t.bytes, file->bytes, file->size);
    for (size_t i = 0; i < n && t.size; i++) {
        if (tame || pick(4)) {
            mutate_token(&t, tame);
        } else {
            mutate_byte(&t);
        }
    }
    snprintf(now, sizeof now, "%016llx", (unsigned long long)seed);
    alarm(SECONDS_PER_CASE);
    if (show) {
        fprintf(stderr, "%.*s\n", (int)t.size, t.bytes);
    }
    for (int no_fuse = 0; no_fuse < 2; no_fuse++) {
        gr_error_t err = {{0}, 0};
        int failed = go(&t, no_fuse, &err);

        if (show || getenv("SINTER_RANDOM_VERBOSE")) {
            fprintf(stderr, "%s %s: %s\n", now, no_fuse ? "unfused" : "fused",
                    failed ? err.text : "executed or too large to");
        }
        /* No memory is an answer to huge dims; what runs must not leave its buffers. */
        const bool bad = failed && (!err.text[0] || strstr(err.text, "overwritten"));
        CHECK(!bad, "%s: \"%s\"", now, err.text);
    }
    free(t.bytes);
}

/* ---- files ----------------------------------------------------------------------------------- */

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static text_t read_file(const char *name)
{
    char path[1024];
    text_t t = {take(1 << 20), 0};
    FILE *f;

    snprintf(path, sizeof path, "%s/models/patterns/%s", SINTER_SOURCE_DIR, name);
    f = fopen(path, "rb");
    if (f) {
        t.size = fread(t.bytes, 1, 1 << 20, f);
        fclose(f);
    }
    return t;
}

static size_t read_files(text_t *files)
{
    struct dirent **list;
    int found = scandir(SINTER_SOURCE_DIR "/models/patterns", &list, NULL, by_name);
    size_t n = 0;

    for (int i = 0; i < found; i++) {
        if (strstr(list[i]->d_name, ".json") && n < MAX_FILES) {
            files[n++] = read_file(list[i]->d_name);
        }
        free(list[i]);
    }
    if (found >= 0) {
        free(list);
    }
    return n;
}

static long number(const char *name, long missing)
{
    const char *text = getenv(name);

    return text ? strtol(text, NULL, 0) : missing;
}

int main(int argc, char **argv)
{
    static text_t files[MAX_FILES];
    const size_t n_files = read_files(files);
    const char *only = getenv("SINTER_RANDOM_ONLY");
    const long cases = only ? 1 : number("SINTER_RANDOM_CASES", 10000);
    uint64_t seeds = (uint64_t)number("SINTER_RANDOM_SEED", 1);

    (void)argc;
    if (!getenv("OMP_WAIT_POLICY") &&
        !setenv("OMP_WAIT_POLICY", "passive", 1)) { /* see test_random */
        execv("/proc/self/exe", argv);
    }
    signal(SIGALRM, too_long);
    for (long i = 0; i < cases && n_files; i++) {
        uint64_t seed;

        state = seeds;
        seed = random_next(&state);
        seeds = state;
        run_case(only ? strtoull(only, NULL, 16) : seed, files, n_files, only != NULL);
    }
    for (size_t i = 0; i < n_files; i++) {
        free(files[i].bytes);
    }
    printf("%ld of %ld texts load, %ld graphs build, %ld compile, %ld execute\n", n_loaded / 2,
           cases, n_built, n_compiled, n_executed);
    return check_finish();
}
