#include "base/status.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter_graph.h>

enum { MESSAGE_SIZE = 1024 };

static _Thread_local char last_message[MESSAGE_SIZE];

static atomic_int verbose_bits = -1; /* -1: SINTER_VERBOSE not read yet */

static const struct {
    const char *word;
    int bits;
} verbose_words[] = {
    {"none", 0},
    {"error", SG_VERBOSE_ERROR},
    {"dispatch", SG_VERBOSE_DISPATCH},
    {"compile", SG_VERBOSE_COMPILE},
    {"exec", SG_VERBOSE_EXEC},
    {"all", SG_VERBOSE_ERROR | SG_VERBOSE_DISPATCH | SG_VERBOSE_COMPILE | SG_VERBOSE_EXEC},
};

static void print_line(const char *format, va_list args)
{
    flockfile(stderr);
    fputs("sinter: ", stderr);
    vfprintf(stderr, format, args);
    putc('\n', stderr);
    funlockfile(stderr);
}

static bool parse_word(const char *word, size_t len, int *bits)
{
    for (size_t i = 0; i < sizeof verbose_words / sizeof *verbose_words; i++) {
        if (strlen(verbose_words[i].word) == len && memcmp(verbose_words[i].word, word, len) == 0) {
            *bits |= verbose_words[i].bits;
            return true;
        }
    }
    return false;
}

/* An empty list is "none". On failure *bad is the unknown word. */
static bool parse_words(const char *words, int *bits, const char **bad)
{
    *bits = 0;
    if (*words == '\0') {
        return true;
    }
    for (const char *word = words;; word++) {
        size_t len = strcspn(word, ",");
        if (!parse_word(word, len, bits)) {
            *bad = word;
            return false;
        }
        word += len;
        if (*word == '\0') {
            return true;
        }
    }
}

int sg_verbose(void)
{
    int bits = atomic_load_explicit(&verbose_bits, memory_order_relaxed);
    if (bits >= 0) {
        return bits;
    }
    const char *words = getenv("SINTER_VERBOSE"), *bad = NULL;
    bool known = parse_words(words != NULL ? words : "", &bits, &bad);
    int expected = -1;
    if (!atomic_compare_exchange_strong(&verbose_bits, &expected, known ? bits : 0)) {
        return expected; /* another thread, or sinter_set_verbose, was first */
    }
    if (!known) {
        fprintf(stderr, "sinter: SINTER_VERBOSE is ignored, unknown word at \"%s\"\n", bad);
    }
    return known ? bits : 0;
}

sinter_status_t sinter_set_verbose(const char *words)
{
    int bits;
    const char *bad = NULL;
    SG_REQUIRE(words != NULL);
    if (!parse_words(words, &bits, &bad)) {
        return sg_fail(sinter_invalid_arguments, "sinter_set_verbose: unknown word at \"%s\"", bad);
    }
    atomic_store(&verbose_bits, bits);
    return sinter_success;
}

void sg_log(int verbose_class, const char *format, ...)
{
    if ((sg_verbose() & verbose_class) == 0) {
        return;
    }
    va_list args;
    va_start(args, format);
    print_line(format, args);
    va_end(args);
}

sinter_status_t sg_fail(sinter_status_t status, const char *format, ...)
{
    char text[MESSAGE_SIZE]; /* an argument may be the last message itself */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(last_message, text, sizeof text);
    sg_log(SG_VERBOSE_ERROR, "%s: %s", sinter_status_name(status), last_message);
    return status;
}

sinter_status_t sg_require(const char *function, const char *names, const void *const *pointers,
                           size_t n)
{
    size_t i = 0;
    while (i < n && pointers[i] != NULL) {
        i++;
    }
    for (size_t k = 0; k < i && i < n; k++) {
        names = strchr(names, ',') + strlen(", ");
    }
    return i == n ? sinter_success
                  : sg_fail(sinter_invalid_arguments, "%s: argument check failed: %.*s != NULL",
                            function, (int)strcspn(names, ","), names);
}

sinter_status_t sg_copy_sized(void *to, const void *from, size_t size, size_t ours,
                              const char *name)
{
    if (size < sizeof(size_t)) {
        return sg_fail(sinter_invalid_arguments, "%s: its field size is %zu, set it to sizeof(%s)",
                       name, size, name);
    }
    memcpy(to, from, size < ours ? size : ours);
    return sinter_success;
}

const char *sinter_last_error_message(void)
{
    return last_message;
}

const char *sinter_status_name(sinter_status_t status)
{
    static const char *const names[] = {
        [sinter_success] = "success",
        [sinter_out_of_memory] = "out_of_memory",
        [sinter_invalid_arguments] = "invalid_arguments",
        [sinter_unimplemented] = "unimplemented",
        [sinter_last_impl_reached] = "last_impl_reached",
        [sinter_runtime_error] = "runtime_error",
        [sinter_not_required] = "not_required",
        [sinter_invalid_graph] = "invalid_graph",
        [sinter_invalid_graph_op] = "invalid_graph_op",
        [sinter_invalid_shape] = "invalid_shape",
        [sinter_invalid_data_type] = "invalid_data_type",
    };
    size_t i = (size_t)status;
    return i < sizeof names / sizeof *names ? names[i] : "unknown";
}
