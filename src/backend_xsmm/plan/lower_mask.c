/* Masks that leave each row a range of columns (causal, window, length), found in the scores so
 * that the kernel can skip the tiles outside:
 *
 *   mask   Select(keep, x, fill), Select(drop, fill, x) or Add(x, Select(keep, y, fill)); masks
 *          may stand on top of each other, with casts in between
 *   keep   GreaterEqual(a, b), or a Multiply or Minimum of several, cast to numbers and back
 *   drop   one GreaterEqual(a, b)
 *   a, b   sums and differences of GenIndex over rows, GenIndex over columns and terms: s32
 *          scalars, or a value for each sequence, [b.., 1, 1]
 *
 * A mask of another form is only computed: the score chain applies all masks.
 *
 * Below such masks, or without any, a tensor in memory that is added to the scores may be a mask:
 * attention looks for its elements of -inf before the products. */
#include "backend_xsmm/plan/lower.h"
#include "graph/schema.h"

enum { MAX_DEPTH = 16 };

/* row * r + col * c + the terms; row_of and column_of as in column_limit_t, -1: not met */
typedef struct affine {
    int row, col, row_of, column_of, n_terms;
    int term[LIMIT_TERMS], sign[LIMIT_TERMS];
} affine_t;

static const node_t *producer(const lowering_t *lo, int v)
{
    const int p = lo->g->values[v].producer;
    return p >= 0 ? &lo->g->nodes[p] : NULL;
}

/* The value is a scalar from outside, so it is known before the first step. */
static bool is_scalar(const lowering_t *lo, int v)
{
    return lo->g->values[v].producer < 0 && lt_elems(&lo->probe[v]) == 1;
}

/* Where the dims of a value before the first step are those of batches and broadcast to the scores.
 * Views are looked through. */
static bool is_term(const lowering_t *lo, int v)
{
    const lt_t *own = &lo->g->values[v].lt, *scores = &lo->probe[lo->g->nodes[lo->att.qk].out[0]];
    int base = v;
    for (const node_t *n = producer(lo, v); n != NULL; n = producer(lo, base)) {
        if (!lower_is_view(n)) {
            return false;
        }
        base = n->in[0];
    }
    if (own->data_type != sinter_s32 || own->ndims < 0 || own->ndims > scores->ndims ||
        (base != v && lo->plan->values[v].kind != PV_VIEW)) {
        return false;
    }
    for (int d = own->ndims - 1; d >= 0 && d >= own->ndims - 2; d--) {
        if (own->dims[d] != 1) {
            return false;
        }
    }
    return true;
}

static bool add_index(const lowering_t *lo, const node_t *n, int sign, affine_t *a)
{
    const lt_t *own = &lo->probe[n->out[0]], *scores = &lo->probe[lo->g->nodes[lo->att.qk].out[0]];
    const int64_t axis = node_s64(n, sinter_op_attr_axis, 0),
                  d = axis < 0 ? axis + own->ndims : axis;
    if (own->ndims != scores->ndims || d < scores->ndims - 2 || own->dims[d] != scores->dims[d]) {
        return false;
    }
    const bool column = d == scores->ndims - 1;
    int *of = column ? &a->column_of : &a->row_of;
    if (*of >= 0 && *of != n->out[0]) { /* one of them may turn out to count fewer than the other */
        return false;
    }
    *of = n->out[0];
    *(column ? &a->col : &a->row) += sign;
    return true;
}

static bool add_affine(const lowering_t *lo, int v, int sign, affine_t *a, int depth)
{
    const node_t *n = producer(lo, v);
    if (n == NULL || lower_is_view(n)) {
        if (!is_term(lo, v) || a->n_terms == LIMIT_TERMS) {
            return false;
        }
        a->term[a->n_terms] = v;
        a->sign[a->n_terms++] = sign;
        return true;
    }
    if (n->kind == sinter_op_gen_index) {
        return add_index(lo, n, sign, a);
    }
    if ((n->kind != sinter_op_add && n->kind != sinter_op_subtract) || depth == MAX_DEPTH) {
        return false;
    }
    return add_affine(lo, n->in[0], sign, a, depth + 1) &&
           add_affine(lo, n->in[1], n->kind == sinter_op_add ? sign : -sign, a, depth + 1);
}

static bool add_limit(attention_params_t *p, const column_limit_t *limit)
{
    if (p->n_limits == MASK_LIMITS) {
        return false;
    }
    p->limits[p->n_limits++] = *limit;
    return true;
}

/* The limit that a >= b sets, or (keep false) its opposite, a <= b - 1. False: it sets none. */
static bool compare(const lowering_t *lo, const node_t *ge, bool keep, int fill,
                    attention_params_t *p)
{
    affine_t a = {.row_of = -1, .column_of = -1};
    const int sign = keep ? 1 : -1;
    if (!add_affine(lo, ge->in[0], sign, &a, 0) || !add_affine(lo, ge->in[1], -sign, &a, 0)) {
        return false;
    }
    /* Now: a.row * r + a.col * c + shift + terms >= 0. */
    const int side = a.col == -1 ? 1 : -1;
    if ((a.col != 1 && a.col != -1) || (a.row != 0 && a.row != side)) {
        return false;
    }
    column_limit_t limit = {.lower = side < 0,
                            .moves = a.row != 0,
                            .shift = keep ? 0 : -side,
                            .n_terms = a.n_terms,
                            .fill = fill,
                            .row_of = a.row_of,
                            .column_of = a.column_of};
    for (int i = 0; i < a.n_terms; i++) {
        limit.term[i] = a.term[i];
        limit.sign[i] = side * a.sign[i];
    }
    return add_limit(p, &limit);
}

/* The limits that hold wherever a condition, 0 or 1 of any type, is true (keep) or false. Returns
 * false if some part of the condition sets no limit. */
static bool condition(const lowering_t *lo, int v, bool keep, int fill, attention_params_t *p,
                      int depth)
{
    const node_t *n = producer(lo, v);
    if (n == NULL || depth == MAX_DEPTH) {
        return false;
    }
    if (n->kind == sinter_op_greater_equal) {
        return compare(lo, n, keep, fill, p);
    }
    if (n->kind == sinter_op_type_cast) {
        return condition(lo, n->in[0], keep, fill, p, depth + 1);
    }
    if (keep && (n->kind == sinter_op_multiply || n->kind == sinter_op_minimum)) {
        const bool first = condition(lo, n->in[0], keep, fill, p, depth + 1);
        return condition(lo, n->in[1], keep, fill, p, depth + 1) && first;
    }
    return false;
}

/* A mask to be added: Select(keep, scalar, fill). */
static const node_t *added_mask(const lowering_t *lo, int v)
{
    const node_t *n = producer(lo, v);
    return n != NULL && n->kind == sinter_op_select && is_scalar(lo, n->in[1]) &&
                   is_scalar(lo, n->in[2])
               ? n
               : NULL;
}

/* The value under the mask on top of value v; -1: there is no mask. *whole: the mask is a Select
 * that its limits describe completely. */
static int under_mask(const lowering_t *lo, int v, attention_params_t *p, bool *whole)
{
    const node_t *n = producer(lo, v), *mask = NULL;
    int port = 0, fill = -1;
    const bool keeps_inf = dtype_is_wide_float(lo->g->values[v].lt.data_type);
    if (n == NULL || lo->spine[v] == 0 || !keeps_inf) {
        return -1;
    }
    if (n->kind == sinter_op_type_cast) {
        return n->in[0];
    }
    if (n->kind == sinter_op_select) {
        port = is_scalar(lo, n->in[2]) ? 1 : 2;
        fill = n->in[3 - port];
        mask = is_scalar(lo, fill) ? n : NULL;
    } else if (n->kind == sinter_op_add) {
        port = added_mask(lo, n->in[0]) != NULL ? 1 : 0;
        mask = added_mask(lo, n->in[1 - port]);
        fill = mask != NULL ? mask->in[2] : -1;
    }
    if (mask == NULL) {
        return -1;
    }
    const int before = p->n_limits;
    *whole = condition(lo, mask->in[0], mask != n || port == 1, fill, p, 0) && mask == n;
    if (p->n_limits == before) { /* masks below skip tiles only where this one fills in -inf too */
        add_limit(p, &(column_limit_t){.none = true, .fill = fill});
    }
    return n->in[port];
}

/* The value in memory that v is, as it is there or, cast to f32, with the same numbers; -1: it is
 * computed. */
static int in_memory(const lowering_t *lo, int v)
{
    const node_t *n = producer(lo, v);
    const pv_kind_t kind = lo->plan->values[v].kind;
    if (n != NULL && n->kind == sinter_op_type_cast && !lo->stored[v]) {
        const sinter_data_type_t from = lo->g->values[n->in[0]].lt.data_type,
                                 to = lo->g->values[v].lt.data_type;
        const bool exact =
            dtype_is_wide_float(from) && dtype_traits(from)->bits < dtype_traits(to)->bits;
        return exact ? in_memory(lo, n->in[0]) : -1;
    }
    if (n != NULL && lower_is_view(n)) {
        return kind == PV_VIEW && in_memory(lo, n->in[0]) >= 0 ? v : -1;
    }
    return n == NULL || (lo->stored[v] && (kind == PV_TEMP || kind == PV_OUTPUT)) ? v : -1;
}

/* A tensor that is added to the scores, as in attention_params_t, by the node that makes v; -1:
 * there is none. *under: what it is added to. */
static int added_tensor(const lowering_t *lo, int v, int *under)
{
    const node_t *n = producer(lo, v);
    if (n == NULL || lo->spine[v] == 0 || lo->g->values[v].lt.data_type != sinter_f32) {
        return -1;
    }
    if (n->kind == sinter_op_type_cast) {
        return added_tensor(lo, n->in[0], under);
    }
    if (n->kind != sinter_op_add || (lo->spine[n->in[0]] != 0) == (lo->spine[n->in[1]] != 0)) {
        return -1;
    }
    const int port = lo->spine[n->in[0]] != 0 ? 1 : 0, memory = in_memory(lo, n->in[port]);
    *under = n->in[1 - port];
    if (memory < 0 || lo->g->values[*under].lt.data_type != sinter_f32) {
        return -1;
    }
    const lt_t *lt = &lo->g->values[memory].lt;
    return lt->ndims >= 2 && dtype_is_wide_float(lt->data_type) && lt->data_type != sinter_f64
               ? memory
               : -1;
}

int lower_mask_limits(const lowering_t *lo, attention_params_t *p, int *under)
{
    int bare = -1, top = lo->g->nodes[lo->att.softmax].in[0];
    bool whole = true;
    p->n_limits = p->n_bare = 0;
    for (int v = top; v >= 0 && p->n_limits < MASK_LIMITS;) {
        bool mask = true;
        v = under_mask(lo, v, p, &mask);
        whole = whole && mask;
        if (whole && v >= 0 && lo->spine[v] != 0 && p->n_limits > 0) {
            bare = v;
            p->n_bare = p->n_limits;
        }
    }
    p->mask = added_tensor(lo, bare >= 0 ? bare : top, under);
    return bare;
}
