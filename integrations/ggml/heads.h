/* Caches of attention lie in tiles where all that reads them in a graph reads heads: attention of
 * few rows then takes about two thirds of the time. Which one is K and how long its heads are, only
 * a graph says, so that a cache begins in planes; and where another graph reads it in another way
 * (a shift of its positions, attention without FLASH_ATTN_EXT), it becomes planes again. */
#ifndef SINTER_GGML_HEADS_H
#define SINTER_GGML_HEADS_H

#include "tensors.h"

/* Lays the caches of these nodes out as the nodes read them. false: out of memory. */
bool gs_arrange_heads(const gs_tensors_t *tensors);

#endif
