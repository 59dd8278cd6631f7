/* Memory: the engine's allocator, and arenas on top of it. Everything that lives as long as a
 * graph, a partition or a plan comes from its arena. */
#ifndef SINTER_SRC_ALLOC_H
#define SINTER_SRC_ALLOC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sinter/sinter_types.h>

#include "base/constants.h"
#include "base/features.h"

/* Reference-counted: every object made from an engine holds it. */
struct sinter_engine {
    atomic_int refs;
    sinter_allocator_t allocator;
    features_t features; /* what the machine has below the caps of the desc and the environment */
    bool deterministic;  /* as the desc says */
    constants_t constants;
};

/* NULL gives the default engine, which is never freed. With a SINTER_MAX_CPU_ISA that names no
 * ISA the default engine is generic; engine_check reports it. */
sinter_engine_t *engine_ref(sinter_engine_t *engine);
/* For public functions that take an engine: fails if engine is NULL and the default engine has
 * no valid SINTER_MAX_CPU_ISA. */
sinter_status_t engine_check(const sinter_engine_t *engine);
/* allocator NULL or all NULL: aligned malloc. max_isa may be sinter_isa_default.
 * SINTER_MAX_CPU_ISA is read here. Made with one reference. */
sinter_status_t engine_new(const sinter_allocator_t *allocator, sinter_cpu_isa_t max_isa,
                           sinter_engine_t **engine);
void engine_unref(sinter_engine_t *engine);

/* memory_take and memory_give with an engine's allocator; engine NULL: the default engine. */
void *sg_alloc(const sinter_engine_t *engine, size_t bytes, size_t alignment);
void sg_free(const sinter_engine_t *engine, void *ptr);

/* A public object: zeroed memory whose first field is the engine, which it holds. NULL: out of
 * memory. */
void *object_new(sinter_engine_t *engine, size_t bytes);
void object_free(void *object);

/* Zeroed memory that is freed all at once. Not thread-safe. */
typedef struct arena {
    sinter_engine_t *engine; /* borrowed: the owner of the arena holds it */
    struct arena_block *blocks;
} arena_t;

void arena_init(arena_t *arena, sinter_engine_t *engine);
/* Zeroed memory for count elements of `size` bytes. Large blocks are aligned to 64 bytes. NULL:
 * out of memory, or the product overflows. */
void *arena_alloc(arena_t *arena, size_t count, size_t size);
char *arena_strdup(arena_t *arena, const char *text);
void arena_free(arena_t *arena);
#define ARENA_NEW(arena, type, count) ((type *)arena_alloc((arena), (size_t)(count), sizeof(type)))

/* Makes room for one more element of an array in an arena, where it is full. False: out of
 * memory. The storage that an array outgrows stays in the arena until the arena is freed. */
bool arena_grow(arena_t *arena, void **items, int *capacity, int count, size_t size);

/* Text that grows; a failed allocation is remembered in oom. */
typedef struct textbuf {
    arena_t *arena;
    char *text; /* "" at first */
    size_t len, cap;
    bool oom;
} textbuf_t;
void text_init(textbuf_t *buf, arena_t *arena);
void text_add(textbuf_t *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Overflow-checked arithmetic on non-negative values; false on overflow. */
static inline bool mul_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool add_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
static inline bool mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* The greatest common divisor of non-negative values. */
static inline int64_t common_divisor(int64_t a, int64_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

#endif
