#include "graph/shape.h"

#include <string.h>

sinter_status_t shape_put(const node_t *node, lt_t *out, int ndims, int64_t *dims)
{
    if (ndims < 0) {
        return sinter_success;
    }
    if (out->ndims < 0) {
        out->ndims = ndims;
        out->layout_type = out->layout_type == sinter_layout_type_strided ? sinter_layout_type_any
                                                                          : out->layout_type;
        for (int i = 0; i < SINTER_MAX_NDIMS; i++) {
            out->dims[i] = i < ndims ? dims[i] : 0;
            out->strides[i] = UNKNOWN;
        }
        return sinter_success;
    }
    if (out->ndims != ndims) {
        return FAIL_SHAPE(node,
                          "output tensor %" PRIu64 " has %d dimensions, its inputs lead to %d",
                          out->id, (int)out->ndims, ndims);
    }
    for (int i = 0; i < ndims; i++) {
        if (!dims_unify(&out->dims[i], &dims[i])) {
            return FAIL_SHAPE(node,
                              "output tensor %" PRIu64 ": dimension %d is %" PRId64
                              ", its inputs lead to %" PRId64,
                              out->id, i, out->dims[i], dims[i]);
        }
    }
    return sinter_success;
}

sinter_status_t shape_unify(const node_t *node, lt_t *lt, int d, int64_t *with)
{
    return dims_unify(&lt->dims[d], with)
               ? sinter_success
               : FAIL_SHAPE(node,
                            "dimension %d of tensor %" PRIu64 " is %" PRId64 ", expected %" PRId64,
                            d, lt->id, lt->dims[d], *with);
}

sinter_status_t shape_axis(const node_t *node, int64_t axis, const lt_t *lt, int *normal)
{
    if (axis < -lt->ndims || axis >= lt->ndims) {
        return FAIL_SHAPE(node, "axis %" PRId64 " is outside the %d dimensions of tensor %" PRIu64,
                          axis, (int)lt->ndims, lt->id);
    }
    *normal = (int)(axis < 0 ? axis + lt->ndims : axis);
    return sinter_success;
}

int shape_channel_dim(const node_t *node, const lt_t *lt)
{
    bool last = strcmp(node_str(node, sinter_op_attr_data_format, "NXC"), "NXC") == 0;
    return last || lt->ndims < 2 ? lt->ndims - 1 : 1;
}

sinter_status_t shape_put_channels(const node_t *node, lt_t *lt, lt_t *out)
{
    if (lt->ndims < 1) {
        return lt->ndims < 0
                   ? sinter_success
                   : FAIL_SHAPE(node, "tensor %" PRIu64 " is a scalar and has no channels", lt->id);
    }
    return shape_put(node, out, 1, &lt->dims[shape_channel_dim(node, lt)]);
}

bool shape_broadcasts_to(lt_t *lt, lt_t *to)
{
    if (lt->ndims < 0 || to->ndims < 0) {
        return true;
    }
    if (lt->ndims > to->ndims) {
        return false;
    }
    for (int i = 1; i <= lt->ndims; i++) {
        int64_t *dim = &lt->dims[lt->ndims - i];
        if (*dim != 1 && !dims_unify(dim, &to->dims[to->ndims - i])) {
            return false;
        }
    }
    return true;
}

/* ---- numpy broadcast ------------------------------------------------------------------------- */

/* An unknown dim next to a known one above 1 must be 1 or the same. */
static bool broadcast_dim(int64_t a, int64_t b, int64_t *out)
{
    if (a == 1 || b == 1) {
        *out = a == 1 ? b : a;
    } else {
        *out = dim_known(a) ? a : b;
    }
    return a == 1 || b == 1 || dims_may_equal(a, b);
}

bool broadcast_dims(const lt_t *a, const lt_t *b, lt_t *out)
{
    int64_t dims[SINTER_MAX_NDIMS];
    if (a->ndims < 0 || b->ndims < 0) {
        out->ndims = SINTER_UNKNOWN_NDIMS;
        return true;
    }
    int ndims = a->ndims > b->ndims ? a->ndims : b->ndims;
    for (int i = 1; i <= ndims; i++) {
        int64_t da = i <= a->ndims ? a->dims[a->ndims - i] : 1,
                db = i <= b->ndims ? b->dims[b->ndims - i] : 1;
        if (!broadcast_dim(da, db, &dims[ndims - i])) {
            return false;
        }
    }
    out->ndims = ndims;
    memcpy(out->dims, dims, sizeof dims[0] * (size_t)ndims);
    return true;
}
