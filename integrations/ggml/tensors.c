/* The tensors of a run of nodes, and what can be asked of one of them. */
#include "tensors.h"

#include <stdlib.h>

#include "layout.h"

/* ---- one tensor ------------------------------------------------------------------------------ */

bool gs_is_view(const tensor_t *t)
{
    return gs_op(t) == GS_OP_NONE || gs_op(t) == GS_OP_RESHAPE || gs_op(t) == GS_OP_VIEW ||
           gs_op(t) == GS_OP_PERMUTE || gs_op(t) == GS_OP_TRANSPOSE;
}

bool gs_is_noop(const tensor_t *t)
{
    return gs_is_view(t) || ggml_is_empty(t);
}

bool gs_is_float(const tensor_t *t)
{
    return t->type == GGML_TYPE_F32 || t->type == GGML_TYPE_F16 || t->type == GGML_TYPE_BF16;
}

bool gs_is_integer(const tensor_t *t)
{
    return t->type == GGML_TYPE_I32 || t->type == GGML_TYPE_I64 || t->type == GGML_TYPE_I8;
}

bool gs_has_blocks(const tensor_t *t)
{
    const bool placed = gs_root(t)->buffer || gs_root(t)->data;
    return ggml_is_quantized(t->type) && (!gs_layout_of(t->type) || (placed && !gs_is_ours(t)));
}

const char *gs_broken_blocks(const tensor_t *t)
{
    const size_t block = ggml_type_size(t->type);
    const size_t offset = (size_t)((const char *)t->data - (const char *)gs_root(t)->data);
    if (t->nb[0] != block) {
        return "quantised data that is transposed";
    }
    bool whole = t->ne[0] % ggml_blck_size(t->type) == 0 && offset % block == 0;
    for (int i = 1; i < GGML_MAX_DIMS; i++) {
        whole &= t->nb[i] % block == 0;
    }
    return whole ? NULL : "quantised data that is not whole blocks";
}

/* NULL, or why the elements of a tensor do not lie at multiples of their size. */
static const char *broken_strides(const tensor_t *t)
{
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (t->nb[i] % ggml_type_size(t->type)) {
            return "strides that are not whole elements";
        }
    }
    return NULL;
}

const char *gs_unreadable(const tensor_t *t)
{
    if (gs_is_float(t)) {
        return broken_strides(t);
    }
    if (!gs_layout_of(t->type)) {
        return "its data type";
    }
    return gs_has_blocks(t)          ? "quantised data in a buffer of the host"
           : gs_in_tiles(gs_root(t)) ? "weights in tiles, which products alone read"
                                     : gs_broken_blocks(t);
}

const char *gs_unreadable_cache(const tensor_t *t)
{
    const bool copied = gs_layout_of(t->type) && gs_has_blocks(t) && !gs_in_tiles(gs_root(t));
    return copied ? gs_broken_blocks(t) : gs_unreadable(t);
}

const char *gs_unreadable_plain(const tensor_t *t)
{
    return gs_is_float(t) || gs_is_integer(t) ? broken_strides(t) : "its data type";
}

const char *gs_unreadable_floats(const tensor_t *t)
{
    return gs_is_float(t) ? gs_unreadable(t) : "a source that is not f32, f16 or bf16";
}

/* ---- a run of nodes -------------------------------------------------------------------------- */

void gs_tensors_free(gs_tensors_t *tensors)
{
    free(tensors->list);
    free(tensors->outer_uses);
    free(tensors->open);
    free(tensors->slots);
    free(tensors->src);
    free(tensors->twin);
    *tensors = (gs_tensors_t){0};
}

/* The slot of a tensor, or the free one that it would get. */
static int slot_of(const gs_tensors_t *tensors, const tensor_t *tensor)
{
    const uint64_t hash = gs_mix(0, (uint64_t)(uintptr_t)tensor);
    int i = (int)(hash % (uint64_t)tensors->n_slots);
    while (tensors->slots[i] >= 0 && tensors->list[tensors->slots[i]] != tensor) {
        i = (i + 1) % tensors->n_slots;
    }
    return i;
}

int gs_tensors_find(const gs_tensors_t *tensors, const tensor_t *tensor)
{
    return tensors->slots[slot_of(tensors, tensor)];
}

int gs_tensors_add(gs_tensors_t *tensors, const tensor_t *tensor)
{
    const int slot = slot_of(tensors, tensor);
    if (tensors->slots[slot] < 0) {
        tensors->list[tensors->count] = tensor;
        tensors->slots[slot] = tensors->count++;
    }
    return tensors->slots[slot];
}

/* Uses of a node in all of the host's graph, but by itself: ggml_cast names its result as a source.
 * A node that nobody uses is what the host wants, and one that the graph does not know may be. */
static int uses_of(const struct ggml_cgraph *graph, const tensor_t *node)
{
    if (!graph || !graph->use_counts || !graph->visited_hash_set.keys) {
        return INT32_MAX;
    }
    const size_t at = ggml_hash_find(&graph->visited_hash_set, node);
    if (at == GGML_HASHSET_FULL || !ggml_bitset_get(graph->visited_hash_set.used, at) ||
        graph->visited_hash_set.keys[at] != node) {
        return INT32_MAX;
    }
    int uses = graph->use_counts[at];
    for (int s = 0; s < GGML_MAX_SRC; s++) {
        uses -= node->src[s] == node;
    }
    return uses > 0 ? uses : INT32_MAX;
}

/* No other tensor of the list lies where this node does. */
static bool has_own_memory(const gs_tensors_t *tensors, const tensor_t *node)
{
    const char *begin = node->data, *end = begin + ggml_nbytes(node);
    bool own = begin != NULL && !node->view_src;
    for (int i = 0; i < tensors->count && own; i++) {
        const tensor_t *t = tensors->list[i];
        const char *other = t->data;
        own = gs_root(t) == node || !other || other >= end || other + ggml_nbytes(t) <= begin;
    }
    return own;
}

/* Schedulers let nodes share memory. A host that gives each node its own may look at which experts
 * were chosen, though only other nodes read that: ggml's test-backend-ops does. Such graphs are
 * small. */
static void keep_choices(gs_tensors_t *tensors)
{
    enum { FEW_NODES = 64 };
    for (int n = 0; n < tensors->n_nodes && tensors->n_nodes <= FEW_NODES; n++) {
        const bool chooses = gs_op(tensors->list[n]) == GS_OP_ARGSORT;
        if (chooses && tensors->outer_uses[n] == 0 && has_own_memory(tensors, tensors->list[n])) {
            tensors->outer_uses[n] = 1;
        }
    }
}

bool gs_tensors_collect(gs_tensors_t *tensors, tensor_t *const *nodes, int n_nodes,
                        const struct ggml_cgraph *graph)
{
    *tensors = (gs_tensors_t){.n_nodes = n_nodes};
    int most = 64;
    for (int n = 0; n < n_nodes; n++) {
        most += 3;
        for (int s = 0; s < GGML_MAX_SRC; s++) {
            most += nodes[n]->src[s] ? 2 : 0;
        }
    }
    tensors->n_slots = 2 * most;
    tensors->list = malloc((size_t)most * sizeof(*tensors->list));
    tensors->slots = malloc((size_t)tensors->n_slots * sizeof(*tensors->slots));
    tensors->src = malloc((size_t)(n_nodes + 1) * sizeof(*tensors->src));
    tensors->twin = malloc((size_t)(n_nodes + 1) * sizeof(*tensors->twin));
    tensors->outer_uses = calloc((size_t)n_nodes + 1, sizeof(*tensors->outer_uses));
    if (!tensors->list || !tensors->slots || !tensors->src || !tensors->twin ||
        !tensors->outer_uses) {
        gs_tensors_free(tensors);
        return false;
    }
    memset(tensors->slots, 0xFF, (size_t)tensors->n_slots * sizeof(*tensors->slots));
    for (int n = 0; n < tensors->n_nodes; n++) {
        if (gs_tensors_add(tensors, nodes[n]) != n) {
            tensors->n_nodes = n;
            break;
        }
        tensors->outer_uses[n] = uses_of(graph, nodes[n]);
    }
    for (int n = 0; n < tensors->n_nodes; n++) {
        for (int s = 0; s < GGML_MAX_SRC; s++) {
            const tensor_t *t = nodes[n]->src[s];
            const int src = tensors->src[n][s] = t ? gs_tensors_add(tensors, t) : -1;
            if (t) {
                gs_tensors_add(tensors, gs_root(t));
            }
            if (src >= 0 && src < tensors->n_nodes && src != n &&
                tensors->outer_uses[src] != INT32_MAX) {
                tensors->outer_uses[src]--;
            }
        }
        gs_tensors_add(tensors, gs_root(nodes[n]));
        tensors->twin[n] = -1;
    }
    keep_choices(tensors);
    return true;
}

void *gs_grown(void *list, int count, int *capacity, size_t size)
{
    if (count < *capacity) {
        return list;
    }
    const int more = *capacity ? 2 * *capacity : 32;
    void *larger = realloc(list, (size_t)more * size);
    if (larger) {
        *capacity = more;
    }
    return larger;
}
