/* Large tensors of blocks on their way into a buffer. */
#ifndef SINTER_GGML_LOAD_H
#define SINTER_GGML_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ggml.h"

/* As gs_unpack_blocks. What is large is divided among some threads, and pages of a file that they
 * have read are given back to the system, so that the file and the weights made from it are not
 * both in memory. */
bool gs_load_blocks(const struct ggml_tensor *root, size_t first, size_t count,
                    const uint8_t *blocks);

/* Whether nobody can write this memory as it is mapped now. */
bool gs_is_read_only(const void *memory, size_t bytes);

#endif
