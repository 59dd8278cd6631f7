#include "base/alloc.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/status.h"

/* ---- engine ---------------------------------------------------------------------------------- */

static void *default_alloc(size_t bytes, size_t alignment, void *user)
{
    (void)user;
    size_t rounded;
    if (!add_size(bytes, alignment - 1, &rounded)) {
        return NULL;
    }
    /* aligned_alloc wants a multiple of the alignment. */
    return aligned_alloc(alignment, rounded & ~(alignment - 1));
}

static void default_free(void *ptr, void *user)
{
    (void)user;
    free(ptr);
}

static sinter_engine_t default_engine = {1,
                                         {default_alloc, default_free, NULL},
                                         {0},
                                         false,
                                         CONSTANTS_INITIALIZER(&default_engine.allocator)};
static sinter_status_t default_engine_status;
static pthread_once_t default_engine_once = PTHREAD_ONCE_INIT;

static void init_default_engine(void)
{
    default_engine_status = cpu_cap_features(sinter_isa_default, &default_engine.features);
}

static sinter_engine_t *get_default_engine(void)
{
    pthread_once(&default_engine_once, init_default_engine);
    return &default_engine;
}

sinter_status_t engine_check(const sinter_engine_t *engine)
{
    if (engine != NULL && engine != &default_engine) {
        return sinter_success;
    }
    get_default_engine();
    if (default_engine_status != sinter_success) {
        return sg_fail(default_engine_status,
                       "default engine: SINTER_MAX_CPU_ISA named no ISA level when it was created");
    }
    return sinter_success;
}

sinter_status_t engine_new(const sinter_allocator_t *allocator, sinter_cpu_isa_t max_isa,
                           sinter_engine_t **engine)
{
    sinter_allocator_t use = {default_alloc, default_free, NULL};
    if (allocator != NULL && (allocator->alloc != NULL || allocator->free != NULL)) {
        if (allocator->alloc == NULL || allocator->free == NULL) {
            return sg_fail(sinter_invalid_arguments,
                           "engine: an allocator needs both callbacks, alloc and free");
        }
        use = *allocator;
    }
    features_t features;
    SG_TRY(cpu_cap_features(max_isa, &features));
    sinter_engine_t *new_engine = memory_take(&use, sizeof *new_engine, 64);
    if (new_engine == NULL) {
        return sinter_out_of_memory;
    }
    if (!constants_init(&new_engine->constants, &new_engine->allocator)) {
        use.free(new_engine, use.user);
        return sg_fail(sinter_runtime_error, "engine: no mutex or condition variable");
    }
    new_engine->allocator = use;
    new_engine->features = features;
    new_engine->deterministic = false;
    atomic_init(&new_engine->refs, 1);
    *engine = new_engine;
    return sinter_success;
}

sinter_engine_t *engine_ref(sinter_engine_t *engine)
{
    if (engine == NULL || engine == &default_engine) {
        return get_default_engine();
    }
    atomic_fetch_add(&engine->refs, 1);
    return engine;
}

void engine_unref(sinter_engine_t *engine)
{
    if (engine == NULL || engine == &default_engine || atomic_fetch_sub(&engine->refs, 1) != 1) {
        return;
    }
    sinter_allocator_t allocator = engine->allocator;
    constants_end(&engine->constants);
    allocator.free(engine, allocator.user);
}

void *sg_alloc(const sinter_engine_t *engine, size_t bytes, size_t alignment)
{
    const sinter_allocator_t *allocator =
        engine != NULL ? &engine->allocator : &default_engine.allocator;
    return memory_take(allocator, bytes, alignment);
}

void sg_free(const sinter_engine_t *engine, void *ptr)
{
    const sinter_allocator_t *allocator =
        engine != NULL ? &engine->allocator : &default_engine.allocator;
    memory_give(allocator, ptr);
}

void *object_new(sinter_engine_t *engine, size_t bytes)
{
    sinter_engine_t *held = engine_ref(engine);
    sinter_engine_t **object = sg_alloc(held, bytes, _Alignof(max_align_t));
    if (object == NULL) {
        engine_unref(held);
        return NULL;
    }
    memset(object, 0, bytes);
    *object = held;
    return object;
}

void object_free(void *object)
{
    sinter_engine_t *engine = *(sinter_engine_t **)object;
    sg_free(engine, object);
    engine_unref(engine);
}

/* ---- arena ----------------------------------------------------------------------------------- */

enum { ARENA_ALIGN = 64, SMALL_ALIGN = 16, FIRST_BLOCK = 4096, LAST_BLOCK = 1 << 20 };

struct arena_block {
    struct arena_block *next;
    size_t used, size; /* of the whole block, this header included */
};

void arena_init(arena_t *arena, sinter_engine_t *engine)
{
    arena->engine = engine;
    arena->blocks = NULL;
}

/* Block sizes double, so that 10^5 nodes need few calls of the allocator and a small graph
 * little memory. */
static struct arena_block *arena_new_block(arena_t *arena, size_t need)
{
    size_t size = FIRST_BLOCK;
    if (arena->blocks != NULL) {
        size = arena->blocks->size < LAST_BLOCK / 2 ? arena->blocks->size * 2 : LAST_BLOCK;
    }
    if (!add_size(need, ARENA_ALIGN, &need)) {
        sg_fail(sinter_out_of_memory, "out of memory: size overflow");
        return NULL;
    }
    size = need > size ? need : size;
    struct arena_block *block = sg_alloc(arena->engine, size, ARENA_ALIGN);
    if (block == NULL) {
        return NULL;
    }
    memset(block, 0, size);
    block->size = size;
    block->used = ARENA_ALIGN;
    block->next = arena->blocks;
    arena->blocks = block;
    return block;
}

void *arena_alloc(arena_t *arena, size_t count, size_t size)
{
    size_t bytes, padded;
    if (!mul_size(count, size, &bytes) || !add_size(bytes, SMALL_ALIGN, &padded)) {
        sg_fail(sinter_out_of_memory, "out of memory: %zu items of %zu bytes overflow", count,
                size);
        return NULL;
    }
    size_t align = bytes >= ARENA_ALIGN ? ARENA_ALIGN : SMALL_ALIGN;
    struct arena_block *block = arena->blocks;
    size_t start = block == NULL ? 0 : (block->used + align - 1) & ~(align - 1);
    if (block == NULL || start > block->size || padded > block->size - start) {
        block = arena_new_block(arena, padded);
        if (block == NULL) {
            return NULL;
        }
        start = block->used;
    }
    block->used = start + (bytes > 0 ? bytes : 1);
    return (char *)block + start;
}

char *arena_strdup(arena_t *arena, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = arena_alloc(arena, size, 1);
    if (copy != NULL) {
        memcpy(copy, text, size);
    }
    return copy;
}

void arena_free(arena_t *arena)
{
    while (arena->blocks != NULL) {
        struct arena_block *next = arena->blocks->next;
        sg_free(arena->engine, arena->blocks);
        arena->blocks = next;
    }
}

bool arena_grow(arena_t *arena, void **items, int *capacity, int count, size_t size)
{
    if (count < *capacity) {
        return true;
    }
    if (*capacity > INT32_MAX / 2) {
        sg_fail(sinter_out_of_memory, "out of memory: too many items");
        return false;
    }
    int new_capacity = *capacity < 4 ? 8 : *capacity * 2;
    void *old, *grown = arena_alloc(arena, (size_t)new_capacity, size);
    if (grown == NULL) {
        return false;
    }
    memcpy(&old, items, sizeof old); /* items is the address of a pointer of any type */
    if (count > 0) {
        memcpy(grown, old, (size_t)count * size);
    }
    memcpy(items, &grown, sizeof grown);
    *capacity = new_capacity;
    return true;
}

/* ---- text ------------------------------------------------------------------------------------ */

void text_init(textbuf_t *buf, arena_t *arena)
{
    static char empty[1];
    *buf = (textbuf_t){arena, empty, 0, 0, false};
}

static bool text_reserve(textbuf_t *buf, size_t more)
{
    size_t need = buf->len + more + 1;
    if (need <= buf->cap) {
        return true;
    }
    size_t cap = buf->cap < 128 ? 256 : buf->cap * 2;
    cap = cap < need ? need : cap;
    char *grown = arena_alloc(buf->arena, cap, 1);
    if (grown == NULL) {
        buf->oom = true;
        return false;
    }
    memcpy(grown, buf->text, buf->len);
    buf->text = grown;
    buf->cap = cap;
    return true;
}

void text_add(textbuf_t *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (len < 0 || buf->oom || !text_reserve(buf, (size_t)len)) {
        return;
    }
    va_start(args, format);
    vsnprintf(buf->text + buf->len, (size_t)len + 1, format, args);
    va_end(args);
    buf->len += (size_t)len;
}
