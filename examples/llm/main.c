/* llm MODEL.gguf [option=value ...]: continues a prompt, and says how fast.
 *
 *   prompt=TEXT       what the user says
 *   file=PATH         a text instead, as it is
 *   raw=1             the prompt as it is, without the words that mark a user's turn
 *   weights=FORMAT    file (default), f16, int8, int4, mxfp4
 *   head=FORMAT       the same for the product that gives the logits
 *   cache=FORMAT      f16 (default), int8, int4, mxfp8
 *   mode=MODE         strict, f16, bf16 or int8 (default): the fpmath mode
 *   threads=N         0 (default): as many as OpenMP would use
 *   chunk=N           tokens of the prompt at once (512); 0: all
 *   tokens=N          to generate (64)
 *   logits=PATH       where to write the tokens of the prompt and the logits behind them
 *   profile=N         times so many tokens partition by partition */
#include "llm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct options {
    const char *path, *prompt, *file, *weights, *head, *cache, *mode, *logits;
    long raw, threads, chunk, tokens, profile;
} options_t;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die_if(const char *error)
{
    if (error != NULL) {
        fprintf(stderr, "llm: %s\n", error);
        exit(1);
    }
}

static void *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    long end = -1;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
        end = ftell(file);
    }
    char *data = end >= 0 ? malloc((size_t)end + 1) : NULL;
    if (data == NULL || fseek(file, 0, SEEK_SET) != 0 ||
        fread(data, 1, (size_t)end, file) != (size_t)end) {
        die_if(failure("cannot read %s", path));
    }
    fclose(file);
    data[end] = 0;
    *size = (size_t)end;
    return data;
}

static const format_t *format_named(const format_t *formats, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(formats[i].name, name) == 0) {
            return &formats[i];
        }
    }
    die_if(failure("no format %s", name));
    return NULL;
}

static options_t read_options(int argc, char **argv)
{
    options_t o = {.prompt = "What is the capital of France?",
                   .weights = "file",
                   .head = "file",
                   .cache = "f16",
                   .mode = "int8",
                   .chunk = 512,
                   .tokens = 64};
    const struct {
        const char *name;
        const char **text;
        long *number;
    } names[] = {
        {"prompt", &o.prompt, NULL}, {"file", &o.file, NULL},     {"weights", &o.weights, NULL},
        {"head", &o.head, NULL},     {"logits", &o.logits, NULL}, {"cache", &o.cache, NULL},
        {"mode", &o.mode, NULL},     {"raw", NULL, &o.raw},       {"threads", NULL, &o.threads},
        {"chunk", NULL, &o.chunk},   {"tokens", NULL, &o.tokens}, {"profile", NULL, &o.profile}};
    for (int i = 2; i < argc; i++) {
        const char *value = strchr(argv[i], '=');
        size_t at = 0;
        while (at < sizeof names / sizeof names[0] &&
               (value == NULL || strlen(names[at].name) != (size_t)(value - argv[i]) ||
                strncmp(names[at].name, argv[i], (size_t)(value - argv[i])) != 0)) {
            at++;
        }
        if (at == sizeof names / sizeof names[0]) {
            die_if(failure("no option %s", argv[i]));
        } else if (names[at].text != NULL) {
            *names[at].text = value + 1;
        } else {
            *names[at].number = strtol(value + 1, NULL, 10);
        }
    }
    if (argc < 2) {
        die_if("usage: llm MODEL.gguf [option=value ...]");
    }
    o.path = argv[1];
    return o;
}

/* The text that the model continues; the caller frees it. */
static char *prompt_of(const options_t *o)
{
    size_t size = 0;
    if (o->file != NULL) {
        return read_file(o->file, &size);
    }
    static const char turn[] = "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n";
    size = strlen(o->prompt) + sizeof turn;
    char *text = malloc(size);
    if (text != NULL) {
        snprintf(text, size, o->raw ? "%s" : turn, o->prompt);
    }
    return text;
}

static int32_t largest(const float *x, int64_t n)
{
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++) {
        at = x[i] > x[at] ? i : at;
    }
    return (int32_t)at;
}

/* The prompt in chunks. Returns the token that follows it. */
static int32_t read_prompt(model_t *m, const options_t *o, size_t n, const int32_t *tokens,
                           float *logits)
{
    const size_t chunk = o->chunk > 0 ? (size_t)o->chunk : n;
    const double start = now();
    for (size_t at = 0; at < n; at += chunk) {
        die_if(model_step(m, n - at < chunk ? n - at : chunk, tokens + at, logits));
    }
    const double seconds = now() - start;
    fprintf(stderr, "prompt: %zu tokens, %.2f s, %.1f tokens/s\n", n, seconds, (double)n / seconds);
    return largest(logits, m->sizes.vocabulary);
}

/* How many tokens, the tokens, the logits: 32 bits each. */
static void write_logits(const model_t *m, const char *path, int32_t n, const int32_t *tokens,
                         const float *logits)
{
    const size_t vocabulary = (size_t)m->sizes.vocabulary;
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(&n, sizeof n, 1, file) != 1 ||
        fwrite(tokens, sizeof n, (size_t)n, file) != (size_t)n ||
        fwrite(logits, sizeof *logits, vocabulary, file) != vocabulary || fclose(file) != 0) {
        die_if(failure("cannot write %s", path));
    }
}

static int32_t generate(model_t *m, const options_t *o, const vocabulary_t *v, int32_t token,
                        float *logits)
{
    static const char *const ends[] = {"<|im_end|>", "<|endoftext|>"};
    const double start = now();
    long n = 0;
    while (n < o->tokens && !is_token(v, token, ends[0]) && !is_token(v, token, ends[1])) {
        print_token(v, token);
        fflush(stdout);
        die_if(model_step(m, 1, &token, logits));
        token = largest(logits, m->sizes.vocabulary);
        n++;
    }
    const double seconds = now() - start;
    printf("\n");
    fprintf(stderr, "decode: %ld tokens, %.2f s, %.1f tokens/s\n", n, seconds, (double)n / seconds);
    return token;
}

/* Where the time of a token goes. */
static void profile(model_t *m, const options_t *o, int32_t token, float *logits)
{
    double seconds[MOST_PARTS + 2] = {0.0}, total = 0.0;
    for (long i = 0; i < o->profile; i++) {
        die_if(model_profile(m, token, logits, seconds));
    }
    for (size_t i = 0; i < m->n_parts + 2; i++) {
        total += seconds[i];
    }
    for (size_t i = 0; i < m->n_parts + 2 && o->profile > 0; i++) {
        const char *name = i == 0 ? "embedding" : "logits";
        if (i > 0 && i <= m->n_parts) {
            sinter_partition_get_pattern(m->parts[i - 1], &name);
        }
        fprintf(stderr, "%-12s %6.3f ms %5.1f %%\n", name, 1e3 * seconds[i] / (double)o->profile,
                100.0 * seconds[i] / total);
    }
}

int main(int argc, char **argv)
{
    const options_t o = read_options(argc, argv);
    size_t bytes = 0;
    void *data = read_file(o.path, &bytes);
    gguf_t file;
    vocabulary_t v;
    model_t m;
    model_desc_t desc = {.weights = format_named(weight_formats, WEIGHT_FORMATS, o.weights),
                         .head = format_named(weight_formats, WEIGHT_FORMATS, o.head),
                         .cache = format_named(cache_formats, CACHE_FORMATS, o.cache),
                         .threads = (int)o.threads};
    if (!sinter_fpmath_mode_parse(o.mode, &desc.mode)) {
        die_if(failure("no mode %s", o.mode));
    }
    const double start = now();
    die_if(gguf_open(&file, data, bytes));
    die_if(vocabulary_open(&v, &file));
    die_if(model_open(&m, &file, &desc));
    if ((size_t)m.sizes.vocabulary > v.count) {
        die_if("the file names fewer tokens than it has");
    }
    fprintf(stderr, "model: %s weights, %s cache, %.2f s\n", o.weights, o.cache, now() - start);

    char *text = prompt_of(&o);
    int32_t *tokens = text != NULL ? malloc(strlen(text) * sizeof *tokens + 1) : NULL;
    float *logits = malloc((size_t)m.sizes.vocabulary * sizeof *logits);
    if (tokens == NULL || logits == NULL) {
        die_if("no memory");
    }
    const size_t n = encode(&v, text, tokens);
    const int32_t first = read_prompt(&m, &o, n, tokens, logits);
    if (o.logits != NULL) {
        write_logits(&m, o.logits, (int32_t)n, tokens, logits);
    }
    const int32_t last = generate(&m, &o, &v, first, logits);
    profile(&m, &o, last, logits);

    model_close(&m);
    vocabulary_close(&v);
    free(logits);
    free(tokens);
    free(text);
    free(data);
    return 0;
}
