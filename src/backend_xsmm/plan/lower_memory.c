/* Memory. Every stored value becomes a port, a temporary or a view. Where strides cannot express a
 * view, a copy is inserted. */
#include <string.h>

#include "backend_xsmm/exec/frame.h"
#include "backend_xsmm/plan/lower.h"
#include "backend_xsmm/step.h"
#include "base/status.h"
#include "graph/layout.h"
#include "graph/schema.h"
#include "graph/shape.h"

/* The output of the view that is the only user of a value; -1: there is none. */
static int only_view_of(const lowering_t *lo, int v)
{
    const value_t *value = &lo->g->values[v];
    if (value->n_uses != 1 || value->is_output) {
        return -1;
    }
    const node_t *n = &lo->g->nodes[lo->g->uses[lo->g->uses_begin[v]]];
    return lower_is_view(n) && n->in[0] == v ? n->out[0] : -1;
}

/* The strides that execute brings may leave gaps between any dims, and no view may rely on there
 * being none. These representative strides leave a gap everywhere. */
static void set_loose(lt_t *lt)
{
    int64_t stride = 1;
    for (int d = lt->ndims - 1; d >= 0; d--) {
        lt->strides[d] = stride;
        if (stride < 0 || !mul_i64(stride, lt->dims[d] > 1 ? lt->dims[d] : 1, &stride) ||
            !add_i64(stride, 1, &stride)) {
            stride = SINTER_UNKNOWN_DIM;
        }
    }
}

static void place(lowering_t *lo, int v, pv_kind_t kind, const lt_t *lt)
{
    bound_t *b = &lo->bound[v];
    lt_t probe = *lt;
    if (kind == PV_INPUT && probe.layout_type == sinter_layout_type_strided &&
        !lt_strides_known(&probe)) {
        set_loose(&probe);
    } else if (kind == PV_TEMP || probe.layout_type != sinter_layout_type_strided ||
               !lt_strides_known(&probe)) {
        lt_set_dense(&probe);
    }
    lo->plan->values[v].kind = kind;
    if (lt_is_opaque(&lo->g->values[v].lt)) {
        const layout_t layout = layout_of(&lo->g->values[v].lt);
        lo->plan->values[v].tiled = layout.what;
        lo->plan->values[v].across = layout.across;
        lo->plan->values[v].heads = layout.heads > 0;
        lo->plan->values[v].along = layout.along;
    }
    lo->placed[v] = true;
    *b = (bound_t){.dtype = lt->data_type, .ndims = lt->ndims};
    memcpy(b->dims, probe.dims, sizeof(b->dims));
    memcpy(b->strides, probe.strides, sizeof(b->strides));
}

/* Makes plan value v a view of base. False: strides cannot express it. like: the graph value whose
 * dims v has. */
static bool place_view(lowering_t *lo, int v, int like, int base, const node_t *op, shows_t shows)
{
    plan_value_t *pv = &lo->plan->values[v];
    const lt_t *lt = &lo->probe[like];
    bound_t b = {.dtype = lt->data_type, .ndims = lt->ndims};
    memcpy(b.dims, lt->dims, sizeof(b.dims));
    if (shows == IN_PAGES) {
        view_in_pages(lo->pages[v], &lo->bound[base], &b);
        pv->pages = lo->pages[v];
    } else if (!view_strides(op, shows, &lo->bound[base], &b)) {
        return false;
    }
    lo->bound[v] = b;
    lo->placed[v] = true;
    pv->kind = PV_VIEW;
    pv->base = base;
    pv->op = op;
    pv->shows = shows;
    pv->port = like;
    pv->tiled = lo->plan->values[base].tiled; /* a view of a cache, see graph/cache.h */
    pv->heads = lo->plan->values[base].heads;
    lo->plan->view_order[lo->plan->n_views++] = v;
    return true;
}

/* A plan value that is not a graph value; it has the dims and type of graph value `like`. */
static int extra_value(lowering_t *lo, int like)
{
    plan_t *plan = lo->plan;
    if (plan->n_values == lo->cap_values) {
        return -1; /* the arrays are sized for the worst case */
    }
    plan->values[plan->n_values] =
        (plan_value_t){.kind = PV_DIMS, .lt = lo->g->values[like].lt, .port = like, .base = -1};
    return plan->n_values++;
}

/* Decides where a step stores value v. If a row of views follows v, v is an inverse view of the
 * last one's memory, a port or a temporary. Where strides cannot express an inverse view, its input
 * becomes a temporary, and look_at places the views behind it later. */
static void store_target(lowering_t *lo, int v)
{
    const node_t *made_by = &lo->g->nodes[lo->g->values[v].producer];
    int y = v;
    for (int next = graph_repacks(lo->g, made_by) ? -1 : only_view_of(lo, y); next >= 0;
         next = only_view_of(lo, y)) {
        y = next;
    }
    place(lo, y, lo->g->values[y].is_output ? PV_OUTPUT : PV_TEMP, &lo->probe[y]);
    while (y != v) {
        const node_t *view = &lo->g->nodes[lo->g->values[y].producer];
        const int x = view->in[0];
        if (!place_view(lo, x, x, y, view, BACKWARDS)) {
            for (int w = y; w >= 0 && lo->placed[w]; w = only_view_of(lo, w)) {
                lo->placed[w] = false;
                lo->plan->n_views -= lo->plan->values[w].kind == PV_VIEW;
            }
            place(lo, x, PV_TEMP, &lo->probe[x]);
        }
        y = x;
    }
}

static sinter_status_t copy_step(lowering_t *lo, int pos, int dims_value, int from, int to)
{
    const int ci = lower_new_chain(lo, dims_value, pos);
    if (ci < 0) {
        return sinter_out_of_memory;
    }
    lo->clusters[ci].copy = true;
    lo->clusters[ci].copy_from = from;
    lo->clusters[ci].copy_to = to;
    return sinter_success;
}

/* Parts of bytes are refused at compile where dims and strides are known, otherwise at execute. */
static sinter_status_t check_begin(const lowering_t *lo, int v)
{
    const plan_value_t *pv = &lo->plan->values[v], *base = &lo->plan->values[pv->base];
    const lt_t *shown = &lo->g->values[pv->base].lt;
    const bool port = base->kind == PV_INPUT || base->kind == PV_OUTPUT;
    bool known =
        lt_dims_known(shown) && base->kind != PV_VIEW &&
        (!port || shown->layout_type != sinter_layout_type_strided || lt_strides_known(shown));
    for (int i = 0; i < pv->op->n_in; i++) {
        known = known && lt_dims_known(&lo->g->values[pv->op->in[i]].lt);
    }
    return known ? view_begins_byte(pv, &lo->bound[pv->base], lo->probe) : sinter_success;
}

/* Only MatMuls read v, as a B that runs along K with its last dim. */
static bool only_as_b(const lowering_t *lo, int v)
{
    const graph_t *g = lo->g;
    bool only = !g->values[v].is_output && g->values[v].n_uses > 0;
    for (int u = g->uses_begin[v]; u < g->uses_begin[v + 1]; u++) {
        const node_t *n = &g->nodes[g->uses[u]];
        only = only && n->kind == sinter_op_matmul && n->in[1] == v && n->in[0] != v &&
               node_bool(n, sinter_op_attr_transpose_b, false) &&
               (n->in_dequant == NULL || n->in_dequant[1] == NULL ||
                quant_split_of(n->in_dequant[1]) == sinter_data_type_undef);
    }
    return only;
}

/* A weight whose blocks of codes have something else between them (scales, in files of GGUF) is
 * read where it lies. Constants are copied once instead, since dense codes are read faster. */
static bool place_in_blocks(lowering_t *lo, const node_t *view)
{
    const int x = view->in[0], y = view->out[0], last = lo->probe[y].ndims - 1;
    const lt_t *port = &lo->g->values[x].lt;
    bool blocks = lo->family != FAMILY_ATTENTION && view->kind == sinter_op_static_reshape &&
                  lo->plan->values[x].kind == PV_INPUT && last >= 1 &&
                  lo->probe[x].ndims == last + 2 &&
                  port->property != sinter_tensor_property_constant && lt_strides_known(port) &&
                  port->dims[last + 1] != SINTER_UNKNOWN_DIM && port->strides[last + 1] == 1 &&
                  dtype_traits(port->data_type)->bits % 8 == 0 && only_as_b(lo, y);
    return blocks && place_view(lo, y, y, x, view, IN_BLOCKS);
}

/* Places y = view(x) where x is in memory already. */
static sinter_status_t look_at(lowering_t *lo, const node_t *view)
{
    const int x = view->in[0], y = view->out[0], pos = lo->ready[x];
    const bool output = lo->g->values[y].is_output;
    /* Kernels expect strides of 0 or more; a chain can copy what others have. */
    const bool copied = output || (view->kind == sinter_op_slice && slice_goes_back(view));
    if (!copied && place_view(lo, y, y, x, view, FORWARDS)) {
        return check_begin(lo, y);
    }
    if (!copied && place_in_blocks(lo, view)) {
        return sinter_success;
    }
    const int hidden = extra_value(lo, y);
    if (hidden < 0) {
        return sinter_out_of_memory;
    }
    if (copied && place_view(lo, hidden, y, x, view, FORWARDS)) {
        place(lo, y, output ? PV_OUTPUT : PV_TEMP, &lo->probe[y]);
        SG_TRY(check_begin(lo, hidden));
        return copy_step(lo, pos, y, hidden, y);
    }
    /* Strides cannot express y as a view of x, so x's elements are written to y's memory through
     * the inverse view. A dense y always has one. */
    place(lo, y, output ? PV_OUTPUT : PV_TEMP, &lo->probe[y]);
    lo->plan->values[hidden].port = x;
    if (place_view(lo, hidden, x, y, view, BACKWARDS)) {
        return copy_step(lo, pos, x, x, hidden);
    }
    const int temp = extra_value(lo, y);
    if (temp < 0) {
        return sinter_out_of_memory;
    }
    place(lo, temp, PV_TEMP, &lo->probe[y]);
    if (!place_view(lo, hidden, x, temp, view, BACKWARDS)) {
        /* Dense memory can be seen in any dims, unless strides overflow with the representative
         * dims. */
        return sg_fail(sinter_unimplemented, "%s: more unknown dims than a view can be planned for",
                       node_label(view));
    }
    SG_TRY(copy_step(lo, pos, x, x, hidden));
    return copy_step(lo, pos, y, temp, y);
}

/* The inputs of a Concat are copied to their places in its output. */
static sinter_status_t join_parts(lowering_t *lo, const node_t *concat)
{
    const int out = concat->out[0];
    for (int i = 0; i < concat->n_in; i++) {
        const int x = concat->in[i], part = extra_value(lo, x);
        if (part < 0) {
            return sinter_out_of_memory;
        }
        lo->plan->values[part].part = i;
        place_view(lo, part, x, out, concat, FORWARDS);
        SG_TRY(check_begin(lo, part));
        SG_TRY(copy_step(lo, lo->ready[out], x, x, part));
    }
    return sinter_success;
}

sinter_status_t lower_memory(lowering_t *lo)
{
    graph_t *g = lo->g;
    plan_t *plan = lo->plan;
    plan->n_values = g->n_values;
    lo->cap_values = g->n_values;
    /* At most two hidden values for each view, four constants for each quantising node (two, once
     * as floats and once as integers), and the packed values of steps. */
    for (int i = 0; i < g->n_nodes; i++) {
        lo->cap_values += lower_is_view(&g->nodes[i])                              ? 2
                          : (op_flags(g->nodes[i].kind) & (OP_QUANT | OP_DEQUANT)) ? 4
                          : g->nodes[i].kind == sinter_op_concat ? g->nodes[i].n_in
                                                                 : 0;
    }
    for (int i = 0; i < lo->n_clusters; i++) {
        lo->cap_values += sinter_steps[lo->clusters[i].kind]->packed_values;
    }
    plan->values = ARENA_NEW(&plan->arena, plan_value_t, lo->cap_values);
    plan->view_order = ARENA_NEW(&plan->arena, int, lo->cap_values);
    lo->bound = ARENA_NEW(&plan->arena, bound_t, lo->cap_values);
    lo->placed = ARENA_NEW(&plan->arena, bool, lo->cap_values);
    if (!plan->values || !plan->view_order || !lo->bound || !lo->placed) {
        return sinter_out_of_memory;
    }
    plan->n_views = 0;
    for (int v = 0; v < g->n_values; v++) {
        plan->values[v] = (plan_value_t){.kind = PV_DIMS, .lt = g->values[v].lt, .base = -1};
        if (g->values[v].producer < 0) {
            place(lo, v, PV_INPUT, &lo->probe[v]);
        }
    }
    for (int t = 0; t < graph_n_live(g); t++) {
        const node_t *n = &g->nodes[g->topo[t]];
        for (int o = 0; o < n->n_out && !lower_is_view(n) && !lower_reads_itself(lo, n); o++) {
            if (lo->stored[n->out[o]]) {
                store_target(lo, n->out[o]);
            }
        }
    }
    for (int t = 0; t < graph_n_live(g); t++) {
        const node_t *n = &g->nodes[g->topo[t]];
        if (n->kind == sinter_op_reorder && lower_reads_itself(lo, n)) { /* a cache as it lies */
            place_view(lo, n->out[0], n->out[0], n->in[0], n, FORWARDS);
        } else if (lower_is_view(n) && !lo->placed[n->out[0]] && lo->spine[n->out[0]] == 0 &&
                   !lower_reads_itself(lo, n) &&
                   (g->values[n->out[0]].n_uses > 0 || g->values[n->out[0]].is_output)) {
            SG_TRY(look_at(lo, n));
        } else if (n->kind == sinter_op_concat) {
            SG_TRY(join_parts(lo, n));
        }
    }
    for (int v = 0; v < g->n_values; v++) {
        if (lo->pages[v] != NULL) {
            const pages_of_t *p = lo->pages[v];
            place_view(lo, v, v, p->blocks, &g->nodes[p->gather], IN_PAGES);
            SG_TRY(check_begin(lo, v));
        }
    }
    return sinter_success;
}
