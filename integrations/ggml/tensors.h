/* The tensors of a run of nodes, and what can be asked of one of them. */
#ifndef SINTER_GGML_TENSORS_H
#define SINTER_GGML_TENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "buffer.h"
#include "host.h"

typedef struct ggml_tensor tensor_t;

/* The tensors of a range of nodes: the nodes first, then all others that they read. */
typedef struct gs_tensors {
    int n_nodes, count;
    const tensor_t **list;
    int *outer_uses;            /* of a node: by nodes outside of the range */
    int (*open)[GGML_MAX_DIMS]; /* 0, or the class of a dim that may change, see plan.c */
    int *slots, n_slots;        /* from pointer to index */
    int (*src)[GGML_MAX_SRC];
    int *twin; /* of a node: the twin of its weights, see twins.h, or -1 */
} gs_tensors_t;

/* Takes the nodes before one that comes again, which a host that measures has, or all. graph: the
 * whole graph of the host, which knows who else uses the nodes, or NULL. false: out of memory. */
bool gs_tensors_collect(gs_tensors_t *tensors, tensor_t *const *nodes, int n_nodes,
                        const struct ggml_cgraph *graph);
void gs_tensors_free(gs_tensors_t *tensors);
/* Takes one more tensor, of which each node has room for one; its index. */
int gs_tensors_add(gs_tensors_t *tensors, const tensor_t *tensor);
/* The index of a tensor, or -1. */
int gs_tensors_find(const gs_tensors_t *tensors, const tensor_t *tensor);

/* A leaf or a view: no op computes it. */
bool gs_is_view(const tensor_t *t);
/* The same, or a result without elements. */
bool gs_is_noop(const tensor_t *t);
bool gs_is_float(const tensor_t *t); /* f32, f16 or bf16 */
/* Integers that Sinter has a type for. */
bool gs_is_integer(const tensor_t *t); /* i32, i64 or i8 */
/* Whether a quantised tensor lies in ggml's blocks instead of planes: it is in memory of the host,
 * or its type has no planes. A tensor without memory is expected to get a buffer of ours. */
bool gs_has_blocks(const tensor_t *t);
/* NULL, or why a quantised tensor does not consist of rows of whole blocks. */
const char *gs_broken_blocks(const tensor_t *t);
/* NULL, or why Sinter cannot read the memory of a tensor: plain elements, or planes in a buffer of
 * ours. */
const char *gs_unreadable(const tensor_t *t);
/* The same of a cache, of which blocks of the host are copied to planes. */
const char *gs_unreadable_cache(const tensor_t *t);
/* The same where it has to be floats or integers that Sinter moves as they are. */
const char *gs_unreadable_plain(const tensor_t *t);
/* The same where it has to be floats. */
const char *gs_unreadable_floats(const tensor_t *t);

/* Parameter number i of a node, of those that are floats. */
static inline float gs_param(const tensor_t *t, int i)
{
    float value;
    memcpy(&value, &t->op_params[i], sizeof(value));
    return value;
}

/* Mixes a value into a hash. */
static inline uint64_t gs_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

/* The list with room for one more element, or NULL: out of memory, and the list is as it was. */
void *gs_grown(void *list, int count, int *capacity, size_t size);

#endif
