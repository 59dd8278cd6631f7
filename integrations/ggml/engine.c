/* The engine, settings from the environment, and messages of the backend. */
#include "engine.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The reports of compiled partitions, thousands of lines for a model, are left to the word compile:
 * the library does not see the word dispatch. */
static void quiet_library(const char *words)
{
    char others[256] = "";
    for (const char *at = words; *at;) {
        const size_t length = strcspn(at, ",");
        const bool dropped = length == 8 && !strncmp(at, "dispatch", length);
        const size_t used = strlen(others);
        if (!dropped && used + length + 2 < sizeof(others)) {
            snprintf(others + used, sizeof(others) - used, "%s%.*s", used ? "," : "", (int)length,
                     at);
        }
        at += length + (at[length] == ',');
    }
    sinter_set_verbose(*others ? others : "none");
}

static bool verbose;

static void read_verbose(void)
{
    const char *words = getenv("SINTER_VERBOSE");
    verbose = words && (strstr(words, "dispatch") || strstr(words, "all"));
    if (verbose) {
        quiet_library(words);
    }
}

bool gs_is_verbose(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_verbose);
    return verbose;
}

/* The reasons that were printed already. Once the list is full, a reason is printed each time. */
enum { MOST_REASONS = 128, REASON_LENGTH = 256 };

typedef struct reason {
    char text[REASON_LENGTH];
    int count, told; /* how often it has occurred, and was said to have */
} reason_t;

static pthread_mutex_t reasons_lock = PTHREAD_MUTEX_INITIALIZER;
static reason_t reasons[MOST_REASONS];
static int n_reasons;

void gs_say_reason(const char *node, const char *format, ...)
{
    if (!gs_is_verbose()) {
        return;
    }
    char text[REASON_LENGTH];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&reasons_lock);
    int i = 0;
    while (i < n_reasons && strcmp(reasons[i].text, text) != 0) {
        i++;
    }
    if (i < n_reasons) {
        reasons[i].count++;
    } else {
        fprintf(stderr, "sinter: ggml: %s (%s)\n", text, node);
    }
    if (i == n_reasons && i < MOST_REASONS) {
        reasons[n_reasons++] = (reason_t){.count = 1, .told = 1};
        memcpy(reasons[i].text, text, sizeof(text));
    }
    pthread_mutex_unlock(&reasons_lock);
}

void gs_say_counts(uint64_t compiled, uint64_t reused)
{
    if (!gs_is_verbose()) {
        return;
    }
    pthread_mutex_lock(&reasons_lock);
    for (int i = 0; i < n_reasons; i++) {
        if (reasons[i].count > reasons[i].told) {
            fprintf(stderr, "sinter: ggml: %d times: %s\n", reasons[i].count, reasons[i].text);
            reasons[i].told = reasons[i].count;
        }
    }
    if (compiled + reused > 0) {
        fprintf(stderr, "sinter: ggml: %llu graphs compiled, %llu runs without a compile\n",
                (unsigned long long)compiled, (unsigned long long)reused);
    }
    pthread_mutex_unlock(&reasons_lock);
}

static bool deterministic;

static void read_deterministic(void)
{
    const char *text = getenv("SINTER_GGML_DETERMINISTIC");
    if (text && strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
        fprintf(stderr, "sinter: ggml: SINTER_GGML_DETERMINISTIC=%s is neither 0 nor 1\n", text);
    }
    deterministic = text && strcmp(text, "1") == 0;
}

bool gs_is_deterministic(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_deterministic);
    return deterministic;
}

sinter_engine_t *gs_engine(void)
{
    static sinter_engine_t *engine;
    if (!engine) {
        const sinter_engine_desc_t desc = {.size = sizeof desc,
                                           .deterministic = gs_is_deterministic()};
        (void)gs_is_verbose();
        sinter_engine_create(&engine, &desc);
    }
    return engine;
}

/* What SINTER_GGML_FPMATH says; `asked` is false where it names no fpmath mode. */
static bool asked;
static sinter_fpmath_mode_t asked_mode;

static void read_fpmath(void)
{
    const char *name = getenv("SINTER_GGML_FPMATH");
    asked = name && sinter_fpmath_mode_parse(name, &asked_mode);
    if (name && !asked) {
        fprintf(stderr, "sinter: ggml: SINTER_GGML_FPMATH=%s is no fpmath mode\n", name);
    }
}

/* ggml's contract for products with quantised weights is activations of 8 bits. */
sinter_fpmath_mode_t gs_fpmath(bool exact)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_fpmath);
    return asked ? asked_mode : exact ? sinter_fpmath_mode_strict : sinter_fpmath_mode_int8;
}

static gs_role_t role;

static void read_role(void)
{
    const char *name = getenv("SINTER_GGML_DEVICE");
    role = !name                    ? GS_ROLE_BY_HOST
           : !strcmp(name, "gpu")   ? GS_ROLE_GPU
           : !strcmp(name, "accel") ? GS_ROLE_ACCEL
                                    : GS_ROLE_BY_HOST;
    if (name && role == GS_ROLE_BY_HOST) {
        fprintf(stderr, "sinter: ggml: SINTER_GGML_DEVICE=%s is neither gpu nor accel\n", name);
    }
}

gs_role_t gs_asked_role(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_role);
    return role;
}

size_t gs_available_memory(void)
{
    char line[128];
    unsigned long kilobytes = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "MemAvailable: %lu kB", &kilobytes) == 1) {
            break;
        }
    }
    if (file) {
        fclose(file);
    }
    return (size_t)kilobytes * 1024;
}

static size_t most_copies;

static void read_most_copies(void)
{
    const char *text = getenv("SINTER_GGML_COPIES");
    char *end = NULL;
    const unsigned long long megabytes = text ? strtoull(text, &end, 10) : 0;
    const bool good = text && end != text && !*end && megabytes <= SIZE_MAX >> 20;
    most_copies = good ? (size_t)megabytes << 20 : gs_available_memory() / 2;
    if (text && !good) {
        fprintf(stderr, "sinter: ggml: SINTER_GGML_COPIES=%s is no number of MB\n", text);
    }
}

size_t gs_most_copies(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_most_copies);
    return most_copies;
}
