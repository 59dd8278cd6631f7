/* What every file of the tool shares: errors, the one allocator, an arena, number parsing, time. */
#ifndef GR_BASE_H
#define GR_BASE_H

#include <sinter/sinter_types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first failure wins. out_of_memory says that text is about memory, so that tests can tell
 * it from bad input. */
typedef struct gr_error {
    char text[1024];
    int out_of_memory;
} gr_error_t;

/* Both return -1, for `return gr_fail(...)`. */
int gr_fail(gr_error_t *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
int gr_fail_memory(gr_error_t *err);

/* Every allocation of the tool goes through this, cJSON's too, so that a test can make the n-th
 * one fail. alloc may return NULL. */
typedef struct gr_alloc {
    void *(*alloc)(size_t bytes, void *user);
    void (*free)(void *ptr, void *user);
    void *user;
} gr_alloc_t;

/* NULL: malloc and free. Only while nothing is allocated. */
void gr_alloc_set(const gr_alloc_t *alloc);
void *gr_malloc(size_t bytes);
void gr_free(void *ptr);

/* Memory that is freed all at once. Zeroed; aligned for any type; NULL if there is none or count
 * * size overflows. */
typedef struct gr_arena {
    struct gr_chunk *head;
} gr_arena_t;

void *gr_arena_alloc(gr_arena_t *arena, size_t count, size_t size);
char *gr_arena_strdup(gr_arena_t *arena, const char *text);
void gr_arena_free(gr_arena_t *arena);

/* Read a number at *p and move *p behind it; 0, or -1 if there is none or it does not fit. */
int gr_parse_s64(const char **p, int64_t *value);
int gr_parse_u64(const char **p, uint64_t *value);
int gr_parse_double(const char **p, double *value);
/* "4x16x32": at most max values. */
int gr_parse_dims(const char **p, int max, int64_t *values, int *n);

/* A data type's row in dtypes.def. */
typedef enum gr_class { GR_FLOAT, GR_INT, GR_SCALE, GR_BOOL } gr_class_t;
typedef struct gr_dtype {
    const char *name;
    gr_class_t class_;
    int bits, digits;
    double max;
} gr_dtype_t;
/* Never NULL; an unknown type has 0 bits. */
const gr_dtype_t *gr_dtype(sinter_data_type_t type);

/* Known dims and layout. */
int gr_is_known(const sinter_logical_tensor_t *lt);
int64_t gr_elements(const sinter_logical_tensor_t *lt);
int gr_is_dense(const sinter_logical_tensor_t *lt);
/* Element offset of the logical (row-major) index. */
int64_t gr_offset(const sinter_logical_tensor_t *lt, int64_t index);
/* Dense strides in the given order of dims (outermost first); NULL: row-major. -1 if they
 * overflow. */
int gr_set_dense(sinter_logical_tensor_t *lt, const int *order);
/* "0,3,17": the coordinates of the logical (row-major) index. */
void gr_index_text(const sinter_logical_tensor_t *lt, int64_t index, char *text, size_t size);
/* "f16[1x32x128x32]*131072x4096x1x128"; strides only if not dense. */
const char *gr_lt_text(const sinter_logical_tensor_t *lt, char *text, size_t size);

double gr_seconds(void);
/* The text of results on stdout; nothing while muted, as --json has a document there instead. */
void gr_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
void gr_print_mute(bool mute);
/* A line on stderr. */
void gr_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
