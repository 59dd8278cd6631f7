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

static bool is_view(const node_t *n)
{
    return n->kind == sinter_op_static_reshape || n->kind == sinter_op_static_transpose;
}

static bool unpacks(const graph_t *g, const node_t *n)
{
    return n->kind == sinter_op_reorder && lt_is_opaque(&g->values[n->in[0]].lt) &&
           !lt_is_opaque(&g->values[n->out[0]].lt);
}

/* What makes a value that nothing else reads; NULL: other values. */
static const node_t *maker_of(const graph_t *g, int value)
{
    const value_t *v = &g->values[value];
    return v->producer >= 0 && v->n_uses == 1 && !v->is_output ? &g->nodes[v->producer] : NULL;
}

/* The value that a Reorder unpacks for this one alone, which is all of it or views of it; -1: none
 * does. */
static int packed_of(const graph_t *g, int value)
{
    const node_t *n = maker_of(g, value);
    while (n != NULL && is_view(n)) {
        n = maker_of(g, n->in[0]);
    }
    return n != NULL && unpacks(g, n) ? n->in[0] : -1;
}

/* Tokens are the columns of coefficients: those of K are the columns of codes, those of V are
 * their K. */
uint64_t graph_cache_layout(const node_t *n, bool codes)
{
    return codes ? layout_id(is_v(n) ? TILED_BLOCKS : TILED_CODES, is_transposed(n))
                 : layout_id(TILED_VALUES, is_transposed(n) != is_v(n));
}

/* Where elements of `value` are in the tensor that it is unpacked from, if that were dense. The
 * number of tokens may be unknown, so that it stands for any. False: they are not evenly apart. */
typedef struct shown {
    int ndims;
    int64_t dims[SINTER_MAX_NDIMS], strides[SINTER_MAX_NDIMS];
    bool of_heads; /* of a cache [tokens, heads, head] */
} shown_t;

static void known_dims(const lt_t *lt, int64_t *dims)
{
    enum { SOME_TOKENS = 1 << 20 };
    for (int d = 0; d < lt->ndims; d++) {
        dims[d] = lt->dims[d] == SINTER_UNKNOWN_DIM ? SOME_TOKENS : lt->dims[d];
    }
}

static bool shown_by(const graph_t *g, int value, shown_t *s)
{
    const node_t *n = &g->nodes[g->values[value].producer];
    const lt_t *lt = &g->values[value].lt;
    shown_t of;
    s->ndims = lt->ndims;
    known_dims(lt, s->dims);
    if (!is_view(n)) {
        int64_t stride = 1;
        for (int d = lt->ndims - 1; d >= 0; stride *= s->dims[d--]) {
            s->strides[d] = stride;
        }
        return true;
    }
    if (!shown_by(g, n->in[0], &of)) {
        return false;
    }
    if (n->kind == sinter_op_static_reshape) {
        return view_reshape(of.ndims, of.dims, of.strides, s->ndims, s->dims, s->strides);
    }
    const attr_t *order = node_attr(n, sinter_op_attr_order);
    for (int d = 0; d < s->ndims; d++) {
        const int64_t from = order->s64[d] < 0 ? order->s64[d] + s->ndims : order->s64[d];
        s->strides[d] = of.strides[from];
    }
    return true;
}

/* Whether views show the heads of a cache [tokens, heads, head] as matrices of [tokens, head]. */
static bool shows_heads(const lt_t *cache, const shown_t *s)
{
    const int last = s->ndims - 1, of = cache->ndims - 1;
    int64_t dims[SINTER_MAX_NDIMS];
    known_dims(cache, dims);
    const int64_t head = dims[of], token = dims[of - 1] * head;
    bool shows = last >= 2 && s->dims[last] == head && s->dims[last - 1] == dims[of - 2] &&
                 (s->strides[last] == 1 || head == 1) &&
                 (s->strides[last - 1] == token || s->dims[last - 1] == 1);
    for (int d = 0; d < last - 1 && shows; d++) {
        shows = s->dims[d] == 1 || (s->strides[d] % head == 0 && s->strides[d] < token);
    }
    return shows;
}

/* Whether the value is unpacked from tiles as the product reads them: from a tensor of [.., tokens,
 * head], or as the heads of one of [tokens, heads, head]. */
static bool lies_so(const graph_t *g, const node_t *n, int value, bool codes, shown_t *s)
{
    const int packed = packed_of(g, value);
    const lt_t *lt = packed < 0 ? NULL : &g->values[packed].lt;
    const tiled_t heads = !codes ? TILED_VALUES : is_v(n) ? TILED_BLOCKS : TILED_CODES;
    if (lt == NULL || !shown_by(g, value, s)) {
        return false;
    }
    s->of_heads = lt->layout_id == layout_id_of_heads(heads);
    return s->of_heads ? is_transposed(n) != is_v(n) && shows_heads(lt, s)
                       : lt->layout_id == graph_cache_layout(n, codes) &&
                             !is_view(&g->nodes[g->values[value].producer]);
}

/* Coefficients lie as the codes do that they belong to: matrices one behind the other, or heads in
 * the same order. */
static bool lie_alike(const shown_t *codes, const shown_t *coefs)
{
    const int last = codes->ndims - 1;
    bool alike = codes->of_heads == coefs->of_heads;
    if (!codes->of_heads) {
        return alike;
    }
    for (int d = 0; d < last && alike; d++) {
        alike = codes->dims[d] == 1 ||
                codes->strides[d] * coefs->dims[last] == coefs->strides[d] * codes->dims[last];
    }
    return alike;
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

/* The same of a part of coefficients. */
static bool coefs_lie_so(const graph_t *g, const node_t *n, int value, const int8_t *dim_of,
                         const shown_t *codes)
{
    const lt_t *data = &g->values[n->in[1]].lt;
    const int last = data->ndims - 1, tokens = is_transposed(n) == is_v(n) ? last : last - 1;
    shown_t s;
    return lies_so(g, n, value, false, &s) &&
           are_of_tokens(&g->values[value].lt, data, dim_of, tokens) && lie_alike(codes, &s);
}

bool graph_reads_cache(const graph_t *g, const node_t *n)
{
    const node_t *dq = n->in_dequant != NULL ? n->in_dequant[1] : NULL;
    const lt_t *data = &g->values[n->in[1]].lt;
    shown_t codes;
    if (!graph_attends(n) || data->ndims < 2 || !lies_so(g, n, n->in[1], true, &codes)) {
        return false;
    }
    if (dq == NULL) {
        return tiles_take_floats(data->data_type);
    }
    const quant_t *q = dq->quant;
    if (q->split != sinter_data_type_undef || q->scale_input < 0 ||
        tiles_take_floats(data->data_type)) {
        return false;
    }
    return coefs_lie_so(g, n, dq->in[q->scale_input], q->geom.scale_dim, &codes) &&
           (q->zp_input < 0 || coefs_lie_so(g, n, dq->in[q->zp_input], q->geom.zp_dim, &codes));
}

bool graph_unpacks_cache(const graph_t *g, const node_t *n)
{
    int v = n->out[0];
    if (!unpacks(g, n) || maker_of(g, v) == NULL) {
        return false;
    }
    const node_t *reader = &g->nodes[g->uses[g->uses_begin[v]]];
    while (is_view(reader) && maker_of(g, reader->out[0]) != NULL) {
        reader = &g->nodes[g->uses[g->uses_begin[reader->out[0]]]];
    }
    return graph_reads_cache(g, reader);
}
