/* Ops that move or relabel elements. */
#include "internal.h"

static void keep_origin(orc_ctx_t *c)
{
    c->out[0]->from_int = c->in[0]->from_int;
    c->out[0]->small_codes = c->in[0]->small_codes;
    c->out[0]->beyond = c->in[0]->beyond;
    c->out[0]->kept = c->out[0]->lt.data_type == c->in[0]->lt.data_type;
    memcpy(c->out[0]->group, c->in[0]->group, sizeof c->in[0]->group);
}

int oracle_type_cast(orc_ctx_t *c)
{
    keep_origin(c);
    return orc_shape_like(c, 0, c->in[0]) ? -1 : orc_take(c, 0, c->out[0]);
}

/* Values are dense here, so a change of layout alone is nothing. */
int oracle_reorder(orc_ctx_t *c)
{
    return oracle_type_cast(c);
}

/* Group sizes survive in the trailing dims that a reshape leaves alone. */
static void reshaped_groups(orc_ctx_t *c, int ndims, const int64_t *dims)
{
    const sinter_logical_tensor_t *in = &c->in[0]->lt;
    memset(c->out[0]->group, 0, sizeof c->out[0]->group);
    for (int d = 1; d <= ndims && d <= in->ndims && dims[ndims - d] == in->dims[in->ndims - d];
         d++) {
        c->out[0]->group[ndims - d] = c->in[0]->group[in->ndims - d];
    }
}

int oracle_static_reshape(orc_ctx_t *c)
{
    const orc_attr_t *shape = orc_attr(c, sinter_op_attr_shape);
    bool special_zero = orc_attr_bool(c, sinter_op_attr_special_zero, false);
    int64_t dims[SINTER_MAX_NDIMS], rest = 1, have = 1;
    int ndims, open = -1;

    if (!shape || shape->n > SINTER_MAX_NDIMS) {
        return orc_fail(c, "shape attribute missing or too long");
    }
    ndims = (int)shape->n;
    for (int d = 0; d < ndims; d++) {
        dims[d] = shape->s64[d];
        if (dims[d] == 0 && special_zero && d < c->in[0]->lt.ndims) {
            dims[d] = c->in[0]->lt.dims[d];
            continue; /* stands on both sides */
        }
        have *= d < c->in[0]->lt.ndims ? c->in[0]->lt.dims[d] : 1;
        if (dims[d] == -1) {
            open = d;
        } else {
            rest *= dims[d];
        }
    }
    for (int d = ndims; d < c->in[0]->lt.ndims; d++) {
        have *= c->in[0]->lt.dims[d];
    }
    if (open >= 0) {
        dims[open] = rest ? have / rest : 1;
    }
    if (orc_count(dims, ndims) != c->in[0]->n) {
        return orc_fail(c, "shape does not have the input's number of elements");
    }
    if (orc_shape(c, 0, ndims, dims)) {
        return -1;
    }
    keep_origin(c);
    reshaped_groups(c, ndims, dims);
    return orc_take(c, 0, c->out[0]);
}

/* memmove: an identity permutation may run in place. */
static void copy_chunk(const orc_chunk_t *k)
{
    if (k->ob) {
        memmove(k->ob, k->b[0], k->n * sizeof(double));
    }
    memmove(k->ov, k->v[0], k->n * sizeof(double));
}

/* The scales of the elements go with them. */
static int move_scales(orc_ctx_t *c, orc_view_t view)
{
    orc_value_t from = {.lt = c->in[0]->lt, .n = c->in[0]->n, .v = c->in[0]->scale},
                to = {.lt = c->out[0]->lt, .n = c->out[0]->n};

    view.src = &from;
    if (from.v && orc_map(c, &to, 1, &view, copy_chunk, NULL, false)) {
        return -1;
    }
    c->out[0]->scale = to.v;
    return 0;
}

int oracle_static_transpose(orc_ctx_t *c)
{
    const orc_attr_t *order = orc_attr(c, sinter_op_attr_order);
    const sinter_logical_tensor_t *in = &c->in[0]->lt;
    int64_t dims[SINTER_MAX_NDIMS], strides[SINTER_MAX_NDIMS];
    orc_view_t view = {.src = c->in[0]};
    int ndims = in->ndims;
    unsigned seen = 0;

    if (!order || order->n != (size_t)ndims) {
        return orc_fail(c, "order does not have one entry for each dim");
    }
    orc_dense_strides(ndims, in->dims, strides);
    for (int d = 0; d < ndims; d++) {
        int64_t from = order->s64[d] < 0 ? order->s64[d] + ndims : order->s64[d];
        if (from < 0 || from >= ndims || seen >> from & 1) {
            return orc_fail(c, "order is no permutation");
        }
        seen |= 1u << from;
        dims[d] = in->dims[from];
        view.div[d] = 1;
        view.stride[d] = strides[from];
    }
    keep_origin(c);
    for (int d = 0; d < ndims; d++) {
        c->out[0]->group[d] =
            c->in[0]->group[order->s64[d] < 0 ? order->s64[d] + ndims : order->s64[d]];
    }
    if (orc_shape(c, 0, ndims, dims) || move_scales(c, view)) {
        return -1;
    }
    return orc_map(c, c->out[0], 1, &view, copy_chunk, NULL, false);
}

int oracle_gen_index(orc_ctx_t *c)
{
    const sinter_logical_tensor_t *in = &c->in[0]->lt;
    orc_value_t *out = c->out[0];
    int axis = orc_axis(c, 0, in->ndims);
    size_t inner, dim;

    if (axis < 0 || orc_shape_like(c, 0, c->in[0]) || orc_alloc(c, out, false)) {
        return -1;
    }
    dim = (size_t)in->dims[axis];
    inner = orc_count(in->dims + axis + 1, in->ndims - axis - 1);
#pragma omp parallel for
    for (size_t i = 0; i < out->n; i++) {
        out->v[i] = (double)(i / inner % dim);
    }
    return 0;
}

int oracle_concat(orc_ctx_t *c)
{
    const int ndims = c->in[0]->lt.ndims, axis = orc_axis(c, 0, ndims);
    int64_t dims[SINTER_MAX_NDIMS];
    bool bounds = false;
    size_t at = 0;

    if (axis < 0) {
        return -1;
    }
    memcpy(dims, c->in[0]->lt.dims, sizeof dims);
    dims[axis] = 0;
    c->out[0]->from_int = c->out[0]->small_codes = c->out[0]->kept = true;
    for (size_t i = 0; i < c->n_in; i++) {
        const orc_value_t *in = c->in[i];
        for (int d = 0; d < ndims; d++) {
            if (in->lt.ndims != ndims || (d != axis && in->lt.dims[d] != dims[d])) {
                return orc_fail(c, "input %zu has other dims", i);
            }
        }
        dims[axis] += in->lt.dims[axis];
        bounds = bounds || in->b != NULL;
        c->out[0]->from_int = c->out[0]->from_int && in->from_int;
        c->out[0]->small_codes = c->out[0]->small_codes && in->small_codes;
        c->out[0]->beyond = c->out[0]->beyond || in->beyond;
        c->out[0]->kept = c->out[0]->kept && in->lt.data_type == c->out[0]->lt.data_type;
    }
    if (orc_shape(c, 0, ndims, dims) || orc_alloc(c, c->out[0], bounds)) {
        return -1;
    }
    const size_t outer = orc_count(dims, axis),
                 inner = orc_count(dims + axis + 1, ndims - axis - 1);
    for (size_t o = 0; o < outer; o++) {
        for (size_t i = 0; i < c->n_in; i++) {
            const orc_value_t *in = c->in[i];
            const size_t n = (size_t)in->lt.dims[axis] * inner;
            memcpy(c->out[0]->v + at, in->v + o * n, n * sizeof(double));
            for (size_t k = 0; bounds && k < n; k++) {
                c->out[0]->b[at + k] = in->b != NULL ? in->b[o * n + k] : 0;
            }
            at += n;
        }
    }
    return 0;
}

/* For inference: with another probability elements would be drawn. */
int oracle_dropout(orc_ctx_t *c)
{
    if (c->in[3]->n != 1 || c->in[3]->v[0] != 0) {
        return orc_fail(c, "the probability is not 0");
    }
    return c->n_out != 1 ? orc_fail(c, "a mask") : oracle_type_cast(c);
}

/* It has no output. */
int oracle_end(orc_ctx_t *c)
{
    (void)c;
    return 0;
}
