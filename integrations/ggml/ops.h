/* The ops that are taken. */
#ifndef SINTER_GGML_OPS_H
#define SINTER_GGML_OPS_H

#include "special.h"

/* NULL, or why the backend does not take this op. */
const char *gs_refuses(const tensor_t *op);
/* Translates node number `node`. false: b->why says why it does not fit into this graph. */
bool gs_translate(gs_builder_t *b, int node);
/* The loop that computes a node; NULL where Sinter does. */
gs_loop_t gs_loop_of(const tensor_t *node);
/* The dim that the translation of a node needs to know, or 0. */
int64_t gs_fixed_dim(const tensor_t *node);

#endif
