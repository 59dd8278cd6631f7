/* Buffers of the backend. */
#ifndef SINTER_GGML_BUFFER_H
#define SINTER_GGML_BUFFER_H

#include <stdbool.h>

#include "ggml-backend-impl.h"
#include "ggml-impl.h"

ggml_backend_buffer_type_t gs_buffer_type(void);
/* Fills it as the host's version of the interface has it. */
void gs_buffer_type_fill(ggml_backend_dev_t device);
bool gs_is_ours(const struct ggml_tensor *tensor);
/* The tensor that owns the memory. */
const struct ggml_tensor *gs_root(const struct ggml_tensor *tensor);
/* Weights in our buffers, of which Sinter may keep copies. Those of the host may be freed without
 * our knowledge. */
bool gs_is_constant(const struct ggml_tensor *tensor);
/* Memory as a buffer of ours has it, on large pages where the system gives them. NULL: there is
 * none. */
void *gs_memory_create(size_t size);
/* Drops copies in the constant cache, too. */
void gs_memory_free(void *memory, size_t size);
/* Bytes of a tensor in a buffer of ours have changed: copies in the constant cache are stale. */
void gs_forget_copies(const struct ggml_tensor *tensor);

#endif
