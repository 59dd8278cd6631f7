/* f(x) = f(Reorder(x)), x in tiles that f does not read
 *
 * A MatMul reads the tensors of its second operand in tiles, a Gather takes rows, tokens or experts
 * from them, a ScatterRows writes tokens into them, and a Reorder unpacks them. For all other ops,
 * tiles are unpacked first, once for all of them. So they are for attention, but where it becomes
 * one step that reads the caches themselves, the Reorder is left out (graph/cache.h). */
#include "graph/cache.h"
#include "graph/experts.h"
#include "graph/layout.h"
#include "graph/quant.h"
#include "graph/schema.h"
#include "passes/passes.h"

/* ---- which ops read tiles -------------------------------------------------------------------- */

/* The tensor that has a part of B: the table of experts, if a Gather takes the part from one. */
static const lt_t *tensor_of(const graph_t *g, int value)
{
    const int p = g->values[value].producer;
    const bool taken = p >= 0 && graph_product_of_experts(g, &g->nodes[p]) != NULL;
    return &g->values[taken ? graph_table_of_experts(g, value) : value].lt;
}

/* Whether a part of B lies in tiles of codes, or of values, whose columns and K are these dims; -1:
 * it has one element along them. */
static bool lies_so(const lt_t *lt, bool codes, int across, int along, int64_t matrices)
{
    if (!lt_is_opaque(lt) || !lt_dims_known(lt)) {
        return false;
    }
    const layout_t l = layout_of(lt);
    return !tiles_are_values(l.what) == codes &&
           (l.across == across || (across < 0 && lt->dims[l.across] == 1)) &&
           (l.along == along || (along < 0 && lt->dims[l.along] == 1)) && l.matrices == matrices;
}

/* Scales or offsets of B, or what they are dequantised from: the factors have a value for each
 * column, as the codes do, and groups of them lie along one dim alone. */
static bool values_lie_so(const graph_t *g, const node_t *dq, int port, int across, int along,
                          int64_t matrices)
{
    const node_t *inner = dq->in_dequant != NULL ? dq->in_dequant[port] : NULL;
    if (inner == NULL) {
        return lies_so(tensor_of(g, dq->in[port]), false, across, along, matrices);
    }
    const lt_t *codes = tensor_of(g, inner->in[0]), *factors = tensor_of(g, inner->in[1]);
    const quant_geom_t *geom = &inner->quant->geom;
    int grouped = 0;
    for (int d = 0; d < geom->ndims; d++) {
        grouped += geom->scale_group[d] > 1;
    }
    return grouped <= 1 && across >= 0 && along >= 0 &&
           lies_so(codes, false, across, along, matrices) &&
           lies_so(factors, false, across, along, matrices) &&
           factors->dims[across] == codes->dims[across];
}

/* A MatMul reads B so if all parts of it have the layouts that belong to transpose_b, and groups
 * that tiles can have. Plain floats are the only part. */
static bool reads_b(const graph_t *g, const node_t *n)
{
    if (n->kind != sinter_op_matmul || graph_attends(n)) {
        return false;
    }
    const node_t *dq = n->in_dequant != NULL ? n->in_dequant[1] : NULL;
    const lt_t *b = tensor_of(g, n->in[1]);
    const bool experts = graph_experts(g, n) >= 0; /* all parts are tables of the same dims */
    const bool transposed = node_bool(n, sinter_op_attr_transpose_b, false);
    const int last = b->ndims - 1, across = transposed ? last - 1 : last,
              along = transposed ? last : last - 1;
    const int64_t matrices = last > 1 ? b->dims[last - 2] : 1;
    if (last < 1 || !lies_so(b, true, across, along, matrices)) {
        return false;
    }
    if (dq == NULL) {
        return true;
    }
    const quant_t *q = dq->quant;
    const quant_geom_t *geom = &q->geom;
    return q->split == sinter_data_type_undef && q->scale_input >= 0 &&
           values_lie_so(g, dq, q->scale_input, experts ? across : geom->scale_dim[across],
                         experts ? along : geom->scale_dim[along], matrices) &&
           (q->zp_input < 0 ||
            values_lie_so(g, dq, q->zp_input, experts ? across : geom->zp_dim[across],
                          experts ? along : geom->zp_dim[along], matrices));
}

/* A Gather takes rows of a table so, which are the columns of its tiles, and tokens of a cache,
 * which are that or elements of K in blocks. */
static bool gathers_rows(const graph_t *g, const node_t *n)
{
    const lt_t *data = &g->values[n->in[0]].lt;
    if (n->kind != sinter_op_gather || !lt_is_opaque(data) || data->ndims < 2) {
        return false;
    }
    const layout_t l = layout_of(data);
    int64_t axis = node_s64(n, sinter_op_attr_axis, 0);
    axis = axis < 0 ? axis + data->ndims : axis;
    return axis == data->ndims - 2 && (axis == l.across ? l.blocks == 1 : l.what == TILED_BLOCKS);
}

/* A Gather takes experts so if the product reads all parts of them so. */
static bool gathers_experts(const graph_t *g, const node_t *n)
{
    const node_t *product = n->kind == sinter_op_gather && lt_is_opaque(&g->values[n->in[0]].lt)
                                ? graph_product_of_experts(g, n)
                                : NULL;
    return product != NULL && reads_b(g, product);
}

/* ScatterRows writes tokens into tiles so: its axis is the dim of these, which is that of the
 * columns or of K. Values have tokens as columns. Heads may stand between a token and its
 * elements. */
static bool scatters_tokens(const graph_t *g, const node_t *n)
{
    if (n->kind != sinter_op_scatter_rows || !lt_is_opaque(&g->values[n->in[0]].lt) ||
        !lt_is_opaque(&g->values[n->out[0]].lt)) {
        return false;
    }
    const lt_t *data = &g->values[n->in[0]].lt;
    const layout_t l = layout_of(data);
    int64_t axis = node_s64(n, sinter_op_attr_axis, 0);
    axis = axis < 0 ? axis + data->ndims : axis;
    return tiles_kept(l.what) == 0 && axis == data->ndims - (l.heads > 0 ? 3 : 2) &&
           (axis == l.across || !tiles_are_values(l.what));
}

int pass_tiled_port(const graph_t *g, const node_t *n)
{
    if (scatters_tokens(g, n)) {
        return 0;
    }
    return reads_b(g, n) ? 1 : gathers_rows(g, n) || gathers_experts(g, n) ? 0 : -1;
}

/* ---- unpacking ------------------------------------------------------------------------------- */

/* One float begins its tile as it is, so that it is read where it lies. Kernels may look at scalars
 * before any step runs. */
static bool lies_alone(const lt_t *lt)
{
    return layout_of(lt).what == TILED_VALUES && lt_elems(lt) == 1 &&
           dtype_traits(lt->data_type)->cls != DTYPE_INT;
}

/* Makes those of n inputs that lie in tiles their unpacked copies. copies: of each value, -1: not
 * yet. */
static sinter_status_t unpack(graph_t *g, int *copies, int *in, int n)
{
    for (int i = 0; i < n; i++) {
        const lt_t lt = g->values[in[i]].lt;
        if (!lt_is_opaque(&lt)) {
            continue;
        }
        int *copy = &copies[in[i]];
        if (*copy < 0) {
            *copy = pass_value_like(g, in[i], lt.ndims, lt.dims);
            const sinter_status_t status =
                *copy < 0         ? sinter_out_of_memory
                : lies_alone(&lt) ? pass_add_reshape(g, in[i], *copy)
                                  : pass_add_unary(g, sinter_op_reorder, in[i], *copy, NULL, 0);
            if (status != sinter_success) {
                return status;
            }
        }
        in[i] = *copy;
    }
    return sinter_success;
}

/* f(x) = f(Reorder(x)), x in tiles that f does not read */
sinter_status_t pass_unpack(graph_t *sub)
{
    const int n_values = sub->n_values;
    int *copies = ARENA_NEW(&sub->arena, int, n_values + 1);
    for (int v = 0; copies != NULL && v < n_values; v++) {
        copies[v] = -1;
    }
    for (int t = 0; t < graph_n_live(sub); t++) {
        const node_t n = sub->nodes[sub->topo[t]];
        const int tiled = pass_tiled_port(sub, &n);
        const bool unpacks =
            n.kind == sinter_op_reorder && !lt_is_opaque(&sub->values[n.out[0]].lt);
        if (copies == NULL) {
            return sinter_out_of_memory;
        }
        for (int i = 0; i < n.n_in && !unpacks && n.kind != sinter_op_end; i++) {
            node_t *dq = n.in_dequant != NULL ? n.in_dequant[i] : NULL;
            if (i == tiled) {
                continue;
            }
            SG_TRY(unpack(sub, copies, &n.in[i], 1));
            if (dq != NULL) {
                SG_TRY(unpack(sub, copies, dq->in, dq->n_in));
            }
        }
    }
    return sinter_success;
}
