#include "graph/cache.h"

#include "graph/layout.h"
#include "graph/quant.h"
#include "graph/schema.h"

static bool is_v(const node_t *n)
{
    return node_has_role(n, "pv");
}

static bool is_transposed(const node_t *n)
{
    return node_bool(n, sinter_op_attr_transpose_b, false);
}

bool graph_attends(const node_t *n)
{
    return n->kind == sinter_op_matmul && n->role != NULL && (node_has_role(n, "qk") || is_v(n));
}

int graph_packed_of(const graph_t *g, int value)
{
    const int p = g->values[value].producer;
    const node_t *n = p >= 0 ? &g->nodes[p] : NULL;
    return n != NULL && n->kind == sinter_op_reorder && lt_is_opaque(&g->values[n->in[0]].lt) &&
                   !lt_is_opaque(&g->values[value].lt)
               ? n->in[0]
               : value;
}

/* Tokens are the columns of coefficients: those of K are the columns of codes, those of V are
 * their K. */
uint64_t graph_cache_layout(const node_t *n, bool codes)
{
    return codes ? layout_id(is_v(n) ? TILED_BLOCKS : TILED_CODES, is_transposed(n))
                 : layout_id(TILED_VALUES, is_transposed(n) != is_v(n));
}

static bool lies_so(const graph_t *g, const node_t *n, int value, bool codes)
{
    const lt_t *lt = &g->values[graph_packed_of(g, value)].lt;
    return lt_is_opaque(lt) && lt->layout_id == graph_cache_layout(n, codes);
}

/* Coefficients with a value for each token and for groups of the head. */
static bool are_of_tokens(const lt_t *lt, const lt_t *data, const int8_t *dim_of, int tokens)
{
    bool all = lt->ndims == data->ndims;
    for (int d = 0; d < data->ndims && all; d++) {
        all = dim_of[d] == d &&
              (d == tokens || d < data->ndims - 2 ? lt->dims[d] == data->dims[d] : true);
    }
    return all;
}

bool graph_reads_cache(const graph_t *g, const node_t *n)
{
    const node_t *dq = n->in_dequant != NULL ? n->in_dequant[1] : NULL;
    const lt_t *data = &g->values[n->in[1]].lt;
    if (!graph_attends(n) || data->ndims < 2 || !lies_so(g, n, n->in[1], true)) {
        return false;
    }
    if (dq == NULL) {
        return tiles_take_floats(data->data_type);
    }
    const quant_t *q = dq->quant;
    const int last = data->ndims - 1, tokens = is_transposed(n) == is_v(n) ? last : last - 1;
    if (q->split != sinter_data_type_undef || q->scale_input < 0 ||
        tiles_take_floats(data->data_type)) {
        return false;
    }
    const int scale = dq->in[q->scale_input], zp = q->zp_input < 0 ? -1 : dq->in[q->zp_input];
    return lies_so(g, n, scale, false) &&
           are_of_tokens(&g->values[scale].lt, data, q->geom.scale_dim, tokens) &&
           (zp < 0 || (lies_so(g, n, zp, false) &&
                       are_of_tokens(&g->values[zp].lt, data, q->geom.zp_dim, tokens)));
}

bool graph_unpacks_cache(const graph_t *g, const node_t *n)
{
    const int v = n->out[0];
    bool alone = n->kind == sinter_op_reorder && graph_packed_of(g, v) != v &&
                 !g->values[v].is_output && g->values[v].n_uses > 0;
    for (int u = g->uses_begin[v]; u < g->uses_begin[v + 1] && alone; u++) {
        alone = graph_reads_cache(g, &g->nodes[g->uses[u]]);
    }
    return alone;
}
