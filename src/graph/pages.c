#include "graph/pages.h"

#include <string.h>

#include "graph/layout.h"
#include "graph/schema.h"
#include "graph/shape.h"

/* The dims of a value on the way from blocks to attention. */
typedef struct dims_of {
    int ndims;
    int64_t n[SINTER_MAX_NDIMS];
    int8_t of_blocks[SINTER_MAX_NDIMS], of_table[SINTER_MAX_NDIMS];
    /* By dim of blocks: the first index, and whether Slices have left some out. */
    int64_t start[SINTER_MAX_NDIMS];
    bool cut[SINTER_MAX_NDIMS];
} dims_of_t;

static bool is_view(const node_t *n)
{
    return n->kind == sinter_op_static_reshape || n->kind == sinter_op_static_transpose ||
           n->kind == sinter_op_slice;
}

static const node_t *maker_of(const graph_t *g, int value)
{
    const int p = g->values[value].producer;
    return p >= 0 ? &g->nodes[p] : NULL;
}

const node_t *graph_gather_shown(const graph_t *g, int value)
{
    const node_t *n = maker_of(g, value);
    while (n != NULL && is_view(n)) {
        n = maker_of(g, n->in[0]);
    }
    return n != NULL && n->kind == sinter_op_gather ? n : NULL;
}

/* ---- views ----------------------------------------------------------------------------------- */

static bool transpose(const node_t *n, dims_of_t *dims)
{
    const attr_t *order = node_attr(n, sinter_op_attr_order);
    const dims_of_t from = *dims;
    if (order == NULL || order->n != (size_t)dims->ndims) {
        return false;
    }
    for (int d = 0; d < dims->ndims; d++) {
        const int64_t of = order->s64[d] < 0 ? order->s64[d] + dims->ndims : order->s64[d];
        dims->n[d] = from.n[of];
        dims->of_blocks[d] = from.of_blocks[of];
        dims->of_table[d] = from.of_table[of];
    }
    return true;
}

/* How many dims from d on are not known to be 1. */
static int count_long(int ndims, const int64_t *n, int d)
{
    int count = 0;
    for (; d < ndims; d++) {
        count += n[d] != 1;
    }
    return count;
}

/* What a StaticReshape says of dim d of its output: the dim of the same place is copied. */
static bool is_copied(const node_t *n, int d)
{
    const attr_t *shape = node_attr(n, sinter_op_attr_shape);
    return node_bool(n, sinter_op_attr_special_zero, false) && (size_t)d < shape->n &&
           shape->s64[d] == 0;
}

/* A StaticReshape that adds or drops dims of 1, and may merge the last dim of the table with the
 * dim of blocks behind it. An unknown dim may be any number, so that all but one dim must be said:
 * then that one has the elements that are left. */
static bool reshape(const node_t *n, const lt_t *to, int last_of_table, dims_of_t *dims)
{
    dims_of_t out = *dims;
    int i = 0, n_unsaid = 0;
    out.ndims = to->ndims;
    for (int j = 0; j < to->ndims; j++) {
        out.n[j] = to->dims[j];
        out.of_blocks[j] = out.of_table[j] = -1;
        while (i < dims->ndims && dims->n[i] == 1 && to->dims[j] != 1) {
            i++;
        }
        if (i == dims->ndims || (to->dims[j] == 1 && dims->n[i] != 1)) {
            if (to->dims[j] != 1) {
                return false;
            }
            continue;
        }
        int end = i + 1;
        int64_t elements = dims->n[i];
        out.of_blocks[j] = dims->of_blocks[i];
        out.of_table[j] = dims->of_table[i];
        const bool merges =
            dims->n[i] != 1 && last_of_table >= 0 && dims->of_table[i] == last_of_table &&
            dims->of_blocks[i] < 0 &&
            count_long(dims->ndims, dims->n, i) > count_long(to->ndims, to->dims, j);
        if (merges) {
            while (end < dims->ndims && dims->n[end] == 1) {
                end++;
            }
            if (end == dims->ndims || dims->of_table[end] >= 0) {
                return false;
            }
            out.of_blocks[j] = dims->of_blocks[end];
            if (!dim_known(elements) || !dim_known(dims->n[end])) {
                elements = SINTER_UNKNOWN_DIM;
            } else if (!mul_i64(elements, dims->n[end], &elements)) {
                return false;
            }
            end++;
        }
        if (dim_known(elements) && dim_known(to->dims[j])) {
            if (elements != to->dims[j]) {
                return false;
            }
        } else if (!is_copied(n, j) || j != i || merges) {
            n_unsaid++;
        }
        i = end;
    }
    while (i < dims->ndims && dims->n[i] == 1) {
        i++;
    }
    const bool all = i == dims->ndims;
    *dims = out;
    return all && n_unsaid <= 1;
}

/* A Slice of dims that are dims of blocks alone. */
static bool slice(const node_t *n, const lt_t *from, const lt_t *to, dims_of_t *dims)
{
    const attr_t *starts = node_attr(n, sinter_op_attr_starts),
                 *axes = node_attr(n, sinter_op_attr_axes);
    for (size_t i = 0; i < starts->n; i++) {
        const int64_t axis = axes != NULL ? axes->s64[i] : (int64_t)i,
                      d = axis < 0 ? axis + from->ndims : axis;
        int64_t start, step, left;
        if (d < 0 || d >= from->ndims || !dim_known(from->dims[d]) || !dim_known(to->dims[d]) ||
            slice_of_dim(n, from, (int)d, &start, &step, &left) != sinter_success || step != 1) {
            return false;
        }
        const int of = dims->of_blocks[d];
        if (left != from->dims[d] && (of < 0 || dims->of_table[d] >= 0)) {
            return false;
        }
        if (left != from->dims[d]) {
            dims->n[d] = left;
            dims->start[of] += start;
            dims->cut[of] = true;
        }
    }
    return true;
}

static bool show(const graph_t *g, const node_t *view, int last_of_table, dims_of_t *dims)
{
    const lt_t *from = &g->values[view->in[0]].lt, *to = &g->values[view->out[0]].lt;
    return to->ndims >= 0 &&
           (view->kind == sinter_op_static_transpose ? transpose(view, dims)
            : view->kind == sinter_op_slice          ? slice(view, from, to, dims)
                                                     : reshape(view, to, last_of_table, dims));
}

int graph_dim_above(const graph_t *g, const node_t *view, int dim)
{
    const lt_t *from = &g->values[view->in[0]].lt;
    dims_of_t dims = {.ndims = from->ndims};
    if (!is_view(view) || from->ndims < 0) {
        return -1;
    }
    for (int d = 0; d < from->ndims; d++) {
        dims.n[d] = from->dims[d];
        dims.of_blocks[d] = (int8_t)d;
        dims.of_table[d] = -1;
    }
    return show(g, view, -1, &dims) && dim < dims.ndims ? dims.of_blocks[dim] : -1;
}

/* ---- from blocks to attention ---------------------------------------------------------------- */

/* What a Gather makes: the dims of blocks before the axis, those of the table, and those of blocks
 * behind the axis. */
static void gathered(const graph_t *g, const node_t *gather, int axis, dims_of_t *dims)
{
    const lt_t *blocks = &g->values[gather->in[0]].lt, *table = &g->values[gather->in[1]].lt;
    *dims = (dims_of_t){.ndims = blocks->ndims - 1 + table->ndims};
    for (int d = 0; d < dims->ndims; d++) {
        const bool of_table = d >= axis && d < axis + table->ndims;
        const int of_blocks = d < axis ? d : d - table->ndims + 1;
        dims->of_table[d] = (int8_t)(of_table ? d - axis : -1);
        dims->of_blocks[d] = (int8_t)(of_table ? -1 : of_blocks);
        dims->n[d] = of_table ? table->dims[d - axis] : blocks->dims[of_blocks];
    }
}

/* The views from the value that a Gather makes down to `value`. */
static const char *follow(const graph_t *g, const node_t *n, int value, int last_of_table,
                          dims_of_t *dims)
{
    enum { MOST_VIEWS = 16 };
    const node_t *views[MOST_VIEWS];
    int n_views = 0;
    for (const node_t *v = maker_of(g, value); v != n; v = maker_of(g, v->in[0])) {
        if (n_views == MOST_VIEWS) {
            return "too many views follow the Gather";
        }
        views[n_views++] = v;
    }
    while (n_views > 0) {
        if (!show(g, views[--n_views], last_of_table, dims)) {
            return "a view behind the Gather does more than joining the dim of blocks and the dim "
                   "of their tokens";
        }
    }
    return NULL;
}

/* Finds out what the dim of tokens is. Dims of the table must be batch dims. */
static const char *find_tokens(const graph_t *g, const dims_of_t *dims, pages_of_t *p)
{
    const lt_t *blocks = &g->values[p->blocks].lt, *table = &g->values[p->table].lt;
    const int t = p->tokens, last = table->ndims - 1;
    for (int d = 0; d < dims->ndims; d++) {
        if (d != t && dims->of_table[d] == last && dims->n[d] != 1) {
            return "blocks are not those of tokens";
        }
        if (d >= dims->ndims - 2 && d != t && dims->of_table[d] >= 0 && dims->n[d] != 1) {
            return "the table has a dim that is none of sequences";
        }
        p->of_table[d] = dims->n[d] == 1 && d != t ? -1 : dims->of_table[d];
        p->of_blocks[d] = dims->of_blocks[d];
    }
    memcpy(p->start, dims->start, sizeof p->start);
    if (p->of_table[t] >= 0 && p->of_table[t] != last && dims->n[t] != 1) {
        return "blocks are not those of tokens";
    }
    if (p->of_table[t] != last && table->dims[last] != 1) {
        return "blocks are not those of tokens";
    }
    p->of_table[t] = (int8_t)last;
    p->within = p->of_blocks[t];
    return p->within < 0          ? NULL
           : dims->cut[p->within] ? "a Slice takes some tokens of a block"
           : !dim_known(blocks->dims[p->within])
               ? "compile does not know how many tokens a block has"
               : NULL;
}

const node_t *graph_gather_of_rows(const graph_t *g, int table)
{
    const node_t *n = maker_of(g, table);
    if (n == NULL || n->kind != sinter_op_gather || g->values[table].is_output) {
        return NULL;
    }
    const lt_t *from = &g->values[n->in[0]].lt, *rows = &g->values[n->in[1]].lt;
    const int64_t axis = node_s64(n, sinter_op_attr_axis, 0);
    bool taken = from->ndims == 2 && rows->ndims == 1 && (axis == 0 || axis == -2) &&
                 node_s64(n, sinter_op_attr_batch_dims, 0) == 0 && maker_of(g, n->in[0]) == NULL &&
                 maker_of(g, n->in[1]) == NULL;
    for (int u = g->uses_begin[table]; u < g->uses_begin[table + 1]; u++) {
        const node_t *reader = &g->nodes[g->uses[u]];
        taken = taken && reader->kind == sinter_op_gather && reader->in[0] != table;
    }
    return taken ? n : NULL;
}

bool graph_pages(const graph_t *g, int value, int tokens, pages_of_t *out, const char **why)
{
    const node_t *n = graph_gather_shown(g, value);
    dims_of_t dims;
    *why = NULL;
    if (n == NULL) {
        return false;
    }
    const lt_t *blocks = &g->values[n->in[0]].lt, *table = &g->values[n->in[1]].lt;
    const int64_t axis = node_s64(n, sinter_op_attr_axis, 0);
    if (blocks->ndims < 1 || table->ndims < 1 || g->values[value].lt.ndims < 2) {
        *why = "compile does not know how many dims blocks and table have";
    } else if (node_s64(n, sinter_op_attr_batch_dims, 0) != 0) {
        *why = "the Gather has batch_dims";
    } else if (lt_is_opaque(blocks)) {
        *why = "blocks lie in tiles";
    } else {
        *out = (pages_of_t){.gather = (int)(n - g->nodes),
                            .blocks = n->in[0],
                            .table = n->in[1],
                            .rows = -1,
                            .axis = (int)(axis < 0 ? axis + blocks->ndims : axis),
                            .tokens = tokens};
        gathered(g, n, out->axis, &dims);
        *why = follow(g, n, value, table->ndims - 1, &dims);
        *why = *why == NULL ? find_tokens(g, &dims, out) : *why;
        const node_t *of_rows = graph_gather_of_rows(g, out->table);
        if (of_rows != NULL) { /* both tables have two dims */
            out->table = of_rows->in[0];
            out->rows = of_rows->in[1];
        }
    }
    return *why == NULL;
}

bool graph_pages_alike(const graph_t *g, const pages_of_t *a, const pages_of_t *b)
{
    const int64_t page_a = a->within < 0 ? 1 : g->values[a->blocks].lt.dims[a->within],
                  page_b = b->within < 0 ? 1 : g->values[b->blocks].lt.dims[b->within];
    return a->table == b->table && a->rows == b->rows && page_a == page_b;
}
