/* Memory from an allocator of the user's, with a message where there is none left. */
#ifndef SINTER_SRC_BASE_MEMORY_H
#define SINTER_SRC_BASE_MEMORY_H

#include <stddef.h>

#include <sinter/sinter_types.h>

/* NULL: out of memory, and the message says so. A request for 0 bytes gets one byte. The
 * alignment is at least that of a pointer. */
void *memory_take(const sinter_allocator_t *allocator, size_t bytes, size_t alignment);
/* memory may be NULL. */
void memory_give(const sinter_allocator_t *allocator, void *memory);

#endif
