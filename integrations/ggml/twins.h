/* Quantised weights in buffers of the host, as layers on the CPU have them: blocks that Sinter does
 * not read. The twin of such a tensor is the same tensor in a buffer of ours, made once, and
 * dropped when the host frees its buffer.
 *
 * Whether the host changes weights is not told to anybody, since its memory may be written through
 * pointers. Memory that cannot be written, as a mapped file, needs no look; else the blocks are
 * looked at in each run, which is worth it where a product has many rows. */
#ifndef SINTER_GGML_TWINS_H
#define SINTER_GGML_TWINS_H

#include "tensors.h"

/* The weights of a node that need a twin: of MUL_MAT or MUL_MAT_ID. NULL: it has none. */
const tensor_t *gs_needs_twin(const tensor_t *node);
/* NULL, or why the weights of such a node cannot have a twin. Otherwise there is room for it. */
const char *gs_refuses_twin(const tensor_t *node);
/* Takes the twins of all nodes into the list. false: out of memory. */
bool gs_twins_collect(gs_tensors_t *tensors);
/* Makes those again whose weights the host has changed. false: out of memory. */
bool gs_twins_renew(const gs_tensors_t *tensors);
/* Where SINTER_VERBOSE lists dispatch: how much memory all twins take. */
void gs_twins_say(void);

#endif
