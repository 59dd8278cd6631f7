/* Which caches lie in tiles. */
#include "heads.h"

#include <stdlib.h>

#include "engine.h"
#include "layout.h"
#include "ops.h"

/* How the nodes of a graph read a cache. */
typedef struct use {
    gs_heads_t heads;
    bool is_read;    /* by attention */
    const char *why; /* it cannot lie in tiles; NULL: it can */
    const tensor_t *node;
} use_t;

static void refuse(use_t *use, const tensor_t *node, const char *why)
{
    if (!use->why) {
        use->why = why;
        use->node = node;
    }
}

/* FLASH_ATTN_EXT reads t, a view of the cache, as K or V. */
static void read_by_attention(use_t *use, const tensor_t *node, const tensor_t *t, bool is_v)
{
    const tensor_t *root = gs_root(t);
    const gs_heads_t heads = {is_v, t->ne[0]};
    gs_rows_t rows;
    int64_t tokens = 0;
    const char *why = gs_view_of_rows(t, &rows);
    if (why || rows.start != 0 || rows.heads * t->ne[0] != root->ne[0] || t->data != root->data) {
        refuse(use, node, "attention reads other parts of it than its heads");
        return;
    }
    for (int d = 1; d < GGML_MAX_DIMS; d++) {
        tokens = rows.perm[d] == 2 ? t->ne[d] : tokens;
    }
    why = gs_refuses_heads(root, heads);
    if (why) {
        refuse(use, node, why);
    } else if (tokens % 256 != 0 && tokens != root->ne[1]) {
        refuse(use, node, "attention reads tokens that are no multiple of 256");
    } else if (use->is_read && (use->heads.is_v != is_v || use->heads.head != heads.head)) {
        refuse(use, node, "it is K and V, or has heads of two sizes");
    }
    use->heads = heads;
    use->is_read = true;
}

/* What a node does with source s, or, where s is GGML_MAX_SRC, with its own memory. */
static void note_use(use_t *use, const tensor_t *node, int s)
{
    const bool attends = gs_op(node) == GS_OP_FLASH_ATTN_EXT,
               writes = gs_op(node) == GS_OP_SET_ROWS;
    if (attends && (s == 1 || s == 2)) {
        read_by_attention(use, node, node->src[s], s == 2);
    } else if (!writes || gs_loop_of(node) || s < 2 || node->ne[0] != gs_root(node)->ne[0] ||
               node->data != gs_root(node)->data) {
        refuse(use, node, "an op reads or writes it that does not go with tiles");
    }
}

/* Whether a tensor may be a cache: what no op makes, in memory that no scheduler gives to several
 * tensors. */
static bool may_be_cache(const tensor_t *root)
{
    return gs_is_ours(root) && root->buffer->usage == GGML_BACKEND_BUFFER_USAGE_ANY &&
           gs_layout_of(root->type) && gs_op(root) == GS_OP_NONE;
}

bool gs_arrange_heads(const gs_tensors_t *tensors)
{
    if (gs_is_deterministic()) { /* sums over tiles depend on where a cache has a token */
        return true;
    }
    use_t *uses = calloc((size_t)tensors->count + 1, sizeof(*uses));
    bool ok = uses != NULL;
    for (int n = 0; n < tensors->n_nodes && ok; n++) {
        const tensor_t *node = tensors->list[n];
        for (int s = 0; s <= GGML_MAX_SRC && !gs_is_view(node); s++) {
            const tensor_t *t = s < GGML_MAX_SRC ? node->src[s] : node;
            if (t && may_be_cache(gs_root(t))) {
                note_use(&uses[gs_tensors_find(tensors, gs_root(t))], node, s);
            }
        }
    }
    for (int i = 0; i < tensors->count && ok; i++) {
        const tensor_t *root = tensors->list[i];
        const use_t *use = &uses[i];
        if (!use->is_read && !use->why) {
            continue;
        }
        const gs_heads_t now = gs_heads_of(root),
                         heads = use->why ? (gs_heads_t){false, 0} : use->heads;
        const bool waits = gs_heads_wait(root, use->why != NULL);
        if (!use->why && waits) {
            continue; /* the next graph may */
        }
        if (use->is_read && use->why) {
            gs_say_reason(root->name, "a cache is in planes: %s (%s)", use->why,
                          ggml_op_name(use->node->op));
        }
        if (heads.head != now.head || (now.head > 0 && heads.is_v != now.is_v)) {
            ok = gs_set_heads(root, heads) || !use->why; /* else attention reads planes */
        }
    }
    free(uses);
    return ok;
}
