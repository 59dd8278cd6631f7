#include "base/memory.h"

#include "base/status.h"

void *memory_take(const sinter_allocator_t *allocator, size_t bytes, size_t alignment)
{
    const size_t at_least = alignment < sizeof(void *) ? sizeof(void *) : alignment;
    void *memory = allocator->alloc(bytes > 0 ? bytes : 1, at_least, allocator->user);
    if (memory == NULL) {
        sg_fail(sinter_out_of_memory, "out of memory: %zu bytes", bytes);
    }
    return memory;
}

void memory_give(const sinter_allocator_t *allocator, void *memory)
{
    if (memory != NULL) {
        allocator->free(memory, allocator->user);
    }
}
