#define _DEFAULT_SOURCE /* madvise */
#include "base.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* ---- errors ---------------------------------------------------------------------------------- */

int gr_fail(gr_error_t *err, const char *format, ...)
{
    va_list args;

    if (err->text[0]) {
        return -1;
    }
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return -1;
}

int gr_fail_memory(gr_error_t *err)
{
    err->out_of_memory = 1;
    return gr_fail(err, "out of memory");
}

/* ---- memory ---------------------------------------------------------------------------------- */

static gr_alloc_t the_alloc;

static void *json_malloc(size_t bytes)
{
    return gr_malloc(bytes);
}

static void json_free(void *ptr)
{
    gr_free(ptr);
}

void gr_alloc_set(const gr_alloc_t *alloc)
{
    cJSON_Hooks hooks = {json_malloc, json_free};

    the_alloc = alloc ? *alloc : (gr_alloc_t){0};
    cJSON_InitHooks(&hooks);
}

/* Large memory lies on large pages where the system has them, as the library's copies of constants
 * do. Otherwise the measured limit of reads would be lower than what kernels reach. */
static void ask_for_large_pages(void *memory, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    enum { LARGE_PAGE = 2 << 20 };
    const size_t skipped = (LARGE_PAGE - (uintptr_t)memory % LARGE_PAGE) % LARGE_PAGE;

    if (memory && bytes >= 2 * (size_t)LARGE_PAGE) {
        (void)madvise((char *)memory + skipped, (bytes - skipped) / LARGE_PAGE * LARGE_PAGE,
                      MADV_HUGEPAGE);
    }
#else
    (void)memory;
    (void)bytes;
#endif
}

void *gr_malloc(size_t bytes)
{
    void *memory =
        the_alloc.alloc ? the_alloc.alloc(bytes, the_alloc.user) : malloc(bytes ? bytes : 1);

    ask_for_large_pages(memory, bytes);
    return memory;
}

void gr_free(void *ptr)
{
    if (ptr && the_alloc.free) {
        the_alloc.free(ptr, the_alloc.user);
    } else {
        free(ptr);
    }
}

struct gr_chunk {
    struct gr_chunk *next;
    size_t used, size;
    max_align_t data[];
};

static struct gr_chunk *new_chunk(gr_arena_t *arena, size_t bytes)
{
    size_t size = bytes > 4096 ? bytes : 4096;
    struct gr_chunk *chunk = size < SIZE_MAX / 2 ? gr_malloc(sizeof *chunk + size) : NULL;

    if (!chunk) {
        return NULL;
    }
    *chunk = (struct gr_chunk){.next = arena->head, .size = size};
    arena->head = chunk;
    return chunk;
}

void *gr_arena_alloc(gr_arena_t *arena, size_t count, size_t size)
{
    const size_t align = sizeof(max_align_t);
    struct gr_chunk *chunk = arena->head;
    size_t bytes;
    void *ptr;

    if (size && count > SIZE_MAX / 4 / size) {
        return NULL;
    }
    bytes = (count * size + align) / align *
            align; /* at least one, so that NULL always means failure */
    if (!chunk || chunk->size - chunk->used < bytes) {
        chunk = new_chunk(arena, bytes);
    }
    if (!chunk) {
        return NULL;
    }
    ptr = (char *)chunk->data + chunk->used;
    chunk->used += bytes;
    return memset(ptr, 0, bytes);
}

char *gr_arena_strdup(gr_arena_t *arena, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = gr_arena_alloc(arena, n, 1);

    return copy ? memcpy(copy, text, n) : NULL;
}

void gr_arena_free(gr_arena_t *arena)
{
    while (arena->head) {
        struct gr_chunk *next = arena->head->next;

        gr_free(arena->head);
        arena->head = next;
    }
}

/* ---- numbers --------------------------------------------------------------------------------- */

int gr_parse_s64(const char **p, int64_t *value)
{
    char *end;
    long long v;

    if ((**p < '0' || **p > '9') && **p != '-') {
        return -1;
    }
    errno = 0;
    v = strtoll(*p, &end, 10);
    if (errno || end == *p) {
        return -1;
    }
    *value = v;
    *p = end;
    return 0;
}

int gr_parse_u64(const char **p, uint64_t *value)
{
    char *end;
    unsigned long long v;

    if (**p < '0' || **p > '9') {
        return -1;
    }
    errno = 0;
    v = strtoull(*p, &end, 10);
    if (errno) {
        return -1;
    }
    *value = v;
    *p = end;
    return 0;
}

int gr_parse_double(const char **p, double *value)
{
    char *end;

    *value = strtod(*p, &end);
    if (end == *p) {
        return -1;
    }
    *p = end;
    return 0;
}

int gr_parse_dims(const char **p, int max, int64_t *values, int *n)
{
    for (*n = 0;; (*p)++) {
        if (*n == max || gr_parse_s64(p, &values[*n])) {
            return -1;
        }
        ++*n;
        if (**p != 'x') {
            return 0;
        }
    }
}

/* ---- data types and logical tensors ---------------------------------------------------------- */

#define FLOAT GR_FLOAT
#define INT GR_INT
#define SCALE GR_SCALE
#define BOOL GR_BOOL
static const gr_dtype_t dtypes[] = {
#define SINTER_DTYPE(value, name, class_, bits, elems, bytes, digits, max) \
    [value] = {#name, class_, bits, digits, max},
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
};
#undef FLOAT
#undef INT
#undef SCALE
#undef BOOL

const gr_dtype_t *gr_dtype(sinter_data_type_t type)
{
    static const gr_dtype_t unknown = {"undef", GR_FLOAT, 0, 0, 0};

    return (size_t)type < sizeof dtypes / sizeof *dtypes && dtypes[type].name ? &dtypes[type]
                                                                              : &unknown;
}

int gr_is_known(const sinter_logical_tensor_t *lt)
{
    if (lt->ndims < 0 || lt->layout_type != sinter_layout_type_strided) {
        return 0;
    }
    for (int i = 0; i < lt->ndims; i++) {
        if (lt->dims[i] < 0 || lt->strides[i] == SINTER_UNKNOWN_DIM) {
            return 0;
        }
    }
    return 1;
}

int64_t gr_elements(const sinter_logical_tensor_t *lt)
{
    int64_t n = 1;

    for (int i = 0; i < lt->ndims; i++) {
        n *= lt->dims[i];
    }
    return n;
}

int64_t gr_offset(const sinter_logical_tensor_t *lt, int64_t index)
{
    int64_t offset = 0;
    int i = lt->ndims - 1;

    /* Divisions of 64 bits take several times as long. */
    for (; i >= 0 && index > 0 && index <= INT32_MAX && lt->dims[i] <= INT32_MAX; i--) {
        const uint32_t at = (uint32_t)index, dim = (uint32_t)lt->dims[i];

        offset += at % dim * lt->strides[i];
        index = at / dim;
    }
    for (; i >= 0 && index > 0; i--) {
        offset += index % lt->dims[i] * lt->strides[i];
        index /= lt->dims[i];
    }
    return offset;
}

int gr_set_dense(sinter_logical_tensor_t *lt, const int *order)
{
    int64_t stride = 1;

    for (int i = lt->ndims - 1; i >= 0; i--) {
        int d = order ? order[i] : i;

        lt->strides[d] = stride;
        if (lt->dims[d] > 1 && stride > INT64_MAX / lt->dims[d]) {
            return -1;
        }
        stride *= lt->dims[d] > 1 ? lt->dims[d] : 1;
    }
    lt->layout_type = sinter_layout_type_strided;
    return 0;
}

int gr_is_dense(const sinter_logical_tensor_t *lt)
{
    int64_t stride = 1;

    for (int i = lt->ndims - 1; i >= 0; i--) {
        if (lt->dims[i] != 1 && lt->strides[i] != stride) {
            return 0;
        }
        stride *= lt->dims[i];
    }
    return 1;
}

void gr_index_text(const sinter_logical_tensor_t *lt, int64_t index, char *text, size_t size)
{
    int64_t at[SINTER_MAX_NDIMS];
    size_t used = 0;

    for (int i = lt->ndims - 1; i >= 0; i--) {
        at[i] = lt->dims[i] ? index % lt->dims[i] : 0;
        index = lt->dims[i] ? index / lt->dims[i] : 0;
    }
    text[0] = 0;
    for (int i = 0; i < lt->ndims && used < size; i++) {
        used +=
            (size_t)snprintf(text + used, size - used, "%s%lld", i ? "," : "", (long long)at[i]);
    }
}

static int append_dims(char *text, size_t size, int n, const int64_t *dims)
{
    int used = 0;

    for (int i = 0; i < n && (size_t)used < size; i++) {
        const char *x = i ? "x" : "";

        used += dims[i] == SINTER_UNKNOWN_DIM
                    ? snprintf(text + used, size - (size_t)used, "%s?", x)
                    : snprintf(text + used, size - (size_t)used, "%s%lld", x, (long long)dims[i]);
    }
    return (size_t)used < size ? used : (int)size - 1;
}

const char *gr_lt_text(const sinter_logical_tensor_t *lt, char *text, size_t size)
{
    int used = snprintf(text, size, "%s[", gr_dtype(lt->data_type)->name);

    if (lt->ndims < 0) {
        used += snprintf(text + used, size - (size_t)used, "?");
    } else {
        used += append_dims(text + used, size - (size_t)used, lt->ndims, lt->dims);
    }
    used += snprintf(text + used, size - (size_t)used, "]");
    if ((size_t)used < size && gr_is_known(lt) && !gr_is_dense(lt)) {
        used += snprintf(text + used, size - (size_t)used, "*");
        if ((size_t)used < size) {
            append_dims(text + used, size - (size_t)used, lt->ndims, lt->strides);
        }
    }
    return text;
}

/* ---- time and text --------------------------------------------------------------------------- */

double gr_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool print_muted;

void gr_print_mute(bool mute)
{
    print_muted = mute;
}

void gr_print(const char *format, ...)
{
    va_list args;

    if (print_muted) {
        return;
    }
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
}

void gr_progress(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}
