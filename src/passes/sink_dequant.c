/* Dequantisation moves down onto the matmul operand that it feeds, over the views in between, so
 * that kernels read the codes.
 *
 *     codes -> Dequantize -> StaticReshape -> StaticTranspose -> MatMul
 *       becomes
 *     codes  -> StaticReshape -> StaticTranspose -> MatMul{in_dequant}
 *     scales -> StaticReshape -> StaticTranspose ------^
 *
 * The two planes of split codes take the same way. Activations that are quantised inside the
 * partition are codes like any others. */
#include <string.h>

#include "base/status.h"
#include "graph/cache.h"
#include "graph/experts.h"
#include "graph/layout.h"
#include "graph/pages.h"
#include "graph/quant.h"
#include "graph/quant_view.h"
#include "graph/schema.h"
#include "graph/shape.h"
#include "passes/passes.h"

/* The nodes between an operand and its dequantisation. */
typedef struct path {
    int dequant;                /* node, -1: none */
    int views[QUANT_MAX_VIEWS]; /* nodes, the one next to the matmul first */
    int n_views;
} path_t;

/* Codes that a matmul may read: they come from outside, also by index or in pages, or a step before
 * it quantises into memory. Quantised probabilities stay elementwise work of the attention step. */
static bool codes_in_memory(const graph_t *g, const node_t *matmul, int codes)
{
    int p = g->values[codes].producer;
    while (p >= 0 && g->nodes[p].kind == sinter_op_slice) { /* a part of codes */
        p = g->values[g->nodes[p].in[0]].producer;
    }
    return p < 0 || graph_product_of_experts(g, &g->nodes[p]) != NULL ||
           (graph_attends(matmul) && graph_gather_shown(g, codes) != NULL) ||
           ((op_flags(g->nodes[p].kind) & OP_QUANT) != 0 && !node_has_role(matmul, "pv"));
}

static path_t find_path(const graph_t *g, int matmul, int port)
{
    path_t path = {.dequant = -1};
    const int v = g->nodes[matmul].in[port];
    for (int p = g->values[v].producer; p >= 0; p = g->values[g->nodes[p].in[0]].producer) {
        const node_t *n = &g->nodes[p];
        if ((op_flags(n->kind) & OP_DEQUANT) != 0) {
            path.dequant = codes_in_memory(g, &g->nodes[matmul], n->in[0]) ? p : -1;
            break;
        }
        if ((op_flags(n->kind) & OP_VIEW) == 0 || path.n_views == QUANT_MAX_VIEWS) {
            break;
        }
        path.views[path.n_views++] = p;
    }
    return path;
}

/* A StaticReshape copies a dim of the codes, and the groups along it stay as they are. */
static bool is_copied(const node_t *view, int d, const quant_dims_t *above,
                      const quant_dims_t *below)
{
    const attr_t *shape = node_attr(view, sinter_op_attr_shape);
    return node_bool(view, sinter_op_attr_special_zero, false) && shape->s64[d] == 0 &&
           above->n[d] == below->n[d];
}

/* The same view over another value. *value becomes its result. */
static sinter_status_t add_view(graph_t *g, const node_t *view, int ndims, const int64_t *dims,
                                int *value)
{
    const int in = *value, out = pass_value_like(g, in, ndims, dims);
    if (out < 0) {
        return sinter_out_of_memory;
    }
    *value = out;
    return pass_add_unary(g, view->kind, in, out, view->attrs, view->n_attrs);
}

/* A StaticReshape of scales from one number of groups to another one, of which one may be unknown
 * that `view`, a reshape of the codes, does not copy. NULL: it copies none. */
static sinter_status_t reshape_groups(graph_t *g, const node_t *view, const quant_dims_t *above,
                                      const quant_dims_t *below, int ndims, int *value)
{
    const int in = *value, out = pass_value_like(g, in, ndims, below->n);
    int64_t *shape = ARENA_NEW(&g->arena, int64_t, ndims + 1);
    bool copies = false;
    if (out < 0 || shape == NULL) {
        return sinter_out_of_memory;
    }
    for (int d = 0; d < ndims; d++) {
        const bool copied =
            !dim_known(below->n[d]) && view != NULL && is_copied(view, d, above, below);
        shape[d] = copied ? 0 : dim_known(below->n[d]) ? below->n[d] : -1;
        copies = copies || copied;
    }
    *value = out;
    return pass_add_reshape_by(g, in, out, shape, copies);
}

static bool same_shape(const lt_t *lt, int ndims, const int64_t *dims)
{
    return lt->ndims == ndims && memcmp(lt->dims, dims, sizeof(int64_t) * (size_t)ndims) == 0;
}

/* view(codes) */
static sinter_status_t view_codes(graph_t *g, const path_t *path, int *value)
{
    for (int i = path->n_views - 1; i >= 0; i--) {
        const node_t view = g->nodes[path->views[i]];
        const lt_t to = g->values[view.out[0]].lt;
        SG_TRY(add_view(g, &view, to.ndims, to.dims, value));
    }
    return sinter_success;
}

/* view(scales), dims being the groups over the codes. */
static sinter_status_t view_scales(graph_t *g, const path_t *path, quant_dims_t *dims, int *value)
{
    const int ndims = g->values[g->nodes[path->dequant].in[0]].lt.ndims;
    if (!same_shape(&g->values[*value].lt, ndims, dims->n)) {
        SG_TRY(reshape_groups(g, NULL, dims, dims, ndims, value));
    }
    for (int i = path->n_views - 1; i >= 0; i--) {
        const node_t view = g->nodes[path->views[i]];
        const lt_t from = g->values[view.in[0]].lt, to = g->values[view.out[0]].lt;
        const quant_dims_t above = *dims;
        quant_dims_through_view(&view, &from, &to, dims);
        if (view.kind == sinter_op_static_transpose) {
            SG_TRY(add_view(g, &view, to.ndims, dims->n, value));
        } else if (!same_shape(&g->values[*value].lt, to.ndims, dims->n)) {
            SG_TRY(reshape_groups(g, view.kind == sinter_op_static_reshape ? &view : NULL, &above,
                                  dims, to.ndims, value));
        }
    }
    return sinter_success;
}

/* The groups of the scales or zero points at the matmul. False: the views have none for them, or
 * more than one is unknown, which no reshape can express. */
static bool dims_at_matmul(const graph_t *g, const path_t *path, quant_dims_t *dims)
{
    for (int i = path->n_views - 1; i >= 0; i--) {
        const node_t *view = &g->nodes[path->views[i]];
        const lt_t *to = &g->values[view->out[0]].lt;
        const bool reshapes = view->kind == sinter_op_static_reshape;
        const quant_dims_t above = *dims;
        int n_unknown = 0;
        if (quant_dims_through_view(view, &g->values[view->in[0]].lt, to, dims) != NULL) {
            return false;
        }
        for (int d = 0; d < to->ndims; d++) {
            n_unknown +=
                dims->n[d] == SINTER_UNKNOWN_DIM && !(reshapes && is_copied(view, d, &above, dims));
        }
        if (reshapes && n_unknown > 1) {
            return false;
        }
    }
    return true;
}

static const s64_list_t none = {0, NULL};

/* Whether a reshape made two dims of one axis, the views that follow keeping their order: those
 * of the weights of a convolution in groups. */
static bool splits_axis(const graph_t *g, const path_t *path, int matmul)
{
    return op_class(g->nodes[matmul].kind) == OP_CONVOLUTION && path->n_views == 2 &&
           g->nodes[path->views[1]].kind == sinter_op_static_reshape;
}

/* Scales in attributes: only the axis of per_channel moves. False: there is no such axis behind the
 * views. split: it may have become two. */
static sinter_status_t move_static(graph_t *g, const path_t *path, node_t *dq, bool split,
                                   bool *done)
{
    quant_dims_t dims;
    int64_t axes[2];
    size_t n_axes = 0;
    *done = true;
    if (!quant_full_dims(g, dq, false, &dims)) {
        *done = false;
        return sinter_success;
    }
    bool single = true;
    for (int d = 0; d < g->values[dq->in[0]].lt.ndims; d++) {
        single = single && dims.n[d] == 1;
    }
    if (path->n_views == 0) {
        return sinter_success;
    }
    if (single) { /* per_channel over one channel is per_tensor, which asks for no axis */
        return quant_regroup(&g->arena, dq, QUANT_PER_TENSOR, none, none);
    }
    *done = dims_at_matmul(g, path, &dims);
    const lt_t *operand = &g->values[g->nodes[path->views[0]].out[0]].lt;
    for (int d = 0; d < operand->ndims && *done; d++) {
        if (dims.n[d] != 1) { /* attributes know channels, not groups */
            *done = n_axes < (split ? 2 : 1) && dims.n[d] == operand->dims[d];
            axes[*done ? n_axes++ : 0] = d;
        }
    }
    return *done ? quant_regroup(&g->arena, dq, QUANT_PER_CHANNEL, (s64_list_t){n_axes, axes}, none)
                 : sinter_success;
}

/* Scales and zero points in tensors follow the codes through the views. */
static sinter_status_t move_dynamic(graph_t *g, const path_t *path, node_t *dq, bool *done)
{
    quant_dims_t dims[2], at_matmul[2];
    bool moves[2];
    *done = true;
    if (path->n_views == 0) {
        return sinter_success;
    }
    for (int i = 0; i < 2; i++) {
        moves[i] = quant_full_dims(g, dq, i == 1, &dims[i]);
        at_matmul[i] = dims[i];
        *done = *done && (moves[i] ? dims_at_matmul(g, path, &at_matmul[i])
                                   : i == 1 && dq->quant->zp_input < 0);
    }
    const lt_t *operand = &g->values[g->nodes[path->views[0]].out[0]].lt;
    const s64_list_t sizes = {(size_t)operand->ndims, at_matmul[0].size};
    const bool ragged = *done && quant_dims_ragged(operand, &at_matmul[0]);
    for (int i = 0; i < 2 && *done; i++) {
        if (moves[i]) {
            SG_TRY(view_scales(g, path, &dims[i], &dq->in[1 + i]));
        }
    }
    /* Removes groups, so that the dims of the scales alone decide, unless they cannot. */
    return *done ? quant_regroup(&g->arena, dq, QUANT_PER_GROUP, none, ragged ? sizes : none)
                 : sinter_success;
}

static bool takes_codes(sinter_op_kind_t kind)
{
    return (op_class(kind) & (OP_MATMUL | OP_CONVOLUTION)) != 0;
}

/* Whether scales or zero points of an image depend on more than the channel. */
static bool varies_in_image(const graph_t *g, const node_t *conv, const path_t *path)
{
    const node_t *dq = &g->nodes[path->dequant];
    const lt_t *image = &g->values[conv->in[0]].lt;
    const int channel = shape_channel_dim(conv, image);
    for (int zero_points = 0; zero_points < 2; zero_points++) {
        quant_dims_t dims;
        if (!quant_full_dims(g, dq, zero_points != 0, &dims)) {
            if (zero_points == 0 || dq->quant->zp_input >= 0) {
                return true;
            }
            continue;
        }
        for (int d = 0; d < image->ndims; d++) {
            if (d != channel && dims.n[d] != 1) {
                return true;
            }
        }
    }
    return path->n_views > 0;
}

/* In tiles, or taken by index from a table in tiles, for a product with experts. */
static bool lies_in_tiles(const graph_t *g, int value)
{
    const int p = g->values[value].producer;
    const bool taken = p >= 0 && graph_product_of_experts(g, &g->nodes[p]) != NULL;
    return lt_is_opaque(&g->values[taken ? graph_table_of_experts(g, value) : value].lt);
}

/* Scales, or offsets, of codes in tiles that are codes times scales themselves: the kernels of a
 * MatMul that reads all of them in tiles read both. */
static sinter_status_t nest(graph_t *g, const node_t *matmul, node_t *dq)
{
    const int ports[] = {dq->quant->scale_input, dq->quant->offsets ? dq->quant->zp_input : -1};
    for (int i = 0; i < 2 && lies_in_tiles(g, dq->in[0]); i++) {
        const int p = ports[i] < 0 ? -1 : g->values[dq->in[ports[i]]].producer;
        const node_t *inner = p < 0 ? NULL : &g->nodes[p];
        if (inner == NULL || inner->kind != sinter_op_dynamic_dequantize || inner->n_in != 2 ||
            !lies_in_tiles(g, inner->in[0]) || !lies_in_tiles(g, inner->in[1])) {
            continue;
        }
        node_t *copy = ARENA_NEW(&g->arena, node_t, 1);
        dq->in_dequant =
            dq->in_dequant != NULL ? dq->in_dequant : ARENA_NEW(&g->arena, node_t *, dq->n_in);
        if (copy == NULL || dq->in_dequant == NULL) {
            return sinter_out_of_memory;
        }
        *copy = *inner;
        dq->in_dequant[ports[i]] = copy;
    }
    if (pass_tiled_port(g, matmul) != 1) {
        dq->in_dequant = NULL;
    }
    return sinter_success;
}

static sinter_status_t sink(graph_t *g, int matmul, int port)
{
    const int v = g->nodes[matmul].in[port];
    const path_t path = find_path(g, matmul, port);
    if (path.dequant >= 0 && port == 0 && op_class(g->nodes[matmul].kind) == OP_CONVOLUTION &&
        varies_in_image(g, &g->nodes[matmul], &path)) {
        return sinter_success;
    }
    if (path.dequant < 0 || g->values[v].lt.ndims < 0) {
        return sinter_success;
    }
    node_t *dq = ARENA_NEW(&g->arena, node_t, 1);
    int *ports = ARENA_NEW(&g->arena, int, g->nodes[path.dequant].n_in + 1);
    node_t **in_dequant = ARENA_NEW(&g->arena, node_t *, g->nodes[matmul].n_in);
    if (dq == NULL || ports == NULL || in_dequant == NULL) {
        return sinter_out_of_memory;
    }
    *dq = g->nodes[path.dequant];
    memcpy(ports, dq->in, sizeof(int) * (size_t)dq->n_in);
    dq->in = ports;
    bool done;
    SG_TRY(dq->kind == sinter_op_dequantize
               ? move_static(g, &path, dq, splits_axis(g, &path, matmul), &done)
               : move_dynamic(g, &path, dq, &done));
    if (!done) {
        return sinter_success;
    }
    SG_TRY(view_codes(g, &path, &dq->in[0]));
    if (dq->quant->high_port >= 0) {
        SG_TRY(view_codes(g, &path, &dq->in[dq->quant->high_port]));
    }
    /* Nothing is produced there any more; the value keeps type and dims of the operand. */
    dq->out = ports + dq->n_in;
    dq->out[0] = v;
    node_t *mm = &g->nodes[matmul];
    mm->in_dequant = mm->in_dequant != NULL ? mm->in_dequant : in_dequant;
    mm->in_dequant[port] = dq;
    mm->in[port] = dq->in[0];
    SG_TRY(graph_find_groups(g, dq));
    return port == 1 ? nest(g, mm, dq) : sinter_success;
}

/* matmul(view(dequant(x, s, z)), y) = matmul{dequant(., view(s), view(z))}(view(x), y) */
sinter_status_t pass_sink_dequant(graph_t *sub)
{
    for (int i = 0, n = sub->n_nodes; i < n; i++) {
        for (int port = 0; port < 2 && takes_codes(sub->nodes[i].kind) && !sub->nodes[i].dead;
             port++) {
            SG_TRY(sink(sub, i, port));
        }
    }
    return sinter_success;
}
