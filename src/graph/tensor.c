#include "graph/tensor.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "graph/layout.h"
#include "numeric/dtype.h"

bool lt_dims_known(const lt_t *lt)
{
    for (int i = 0; i < lt->ndims; i++) {
        if (lt->dims[i] == SINTER_UNKNOWN_DIM) {
            return false;
        }
    }
    return lt->ndims >= 0;
}

bool lt_strides_known(const lt_t *lt)
{
    for (int i = 0; i < lt->ndims; i++) {
        if (lt->strides[i] == SINTER_UNKNOWN_DIM) {
            return false;
        }
    }
    return lt->ndims >= 0 && lt->layout_type == sinter_layout_type_strided;
}

/* The product of the known dims. */
static int64_t product(int ndims, const int64_t *dims)
{
    int64_t elems = 1;
    for (int i = 0; i < ndims; i++) {
        if (dims[i] == 0) {
            return 0;
        }
    }
    for (int i = 0; i < ndims; i++) {
        if (!mul_i64(elems, dims[i], &elems)) {
            return -1;
        }
    }
    return elems;
}

int64_t lt_elems(const lt_t *lt)
{
    return lt_dims_known(lt) ? product(lt->ndims, lt->dims) : -1;
}

/* Dims of size 0 count as 1, so that strides stay distinct. Strides that overflow are unknown:
 * lt_verify refuses such dims. */
static void dense_strides(int ndims, const int64_t *dims, int64_t *strides)
{
    int64_t stride = 1;
    for (int i = ndims - 1; i >= 0; i--) {
        strides[i] = stride;
        bool known = stride != SINTER_UNKNOWN_DIM && dims[i] != SINTER_UNKNOWN_DIM;
        if (!known || !mul_i64(stride, dims[i] > 1 ? dims[i] : 1, &stride)) {
            stride = SINTER_UNKNOWN_DIM;
        }
    }
}

void lt_set_dense(lt_t *lt)
{
    lt->layout_type = lt->ndims >= 0 ? sinter_layout_type_strided : sinter_layout_type_any;
    dense_strides(lt->ndims, lt->dims, lt->strides);
}

void lt_set_dims(lt_t *lt, const int64_t *dims, const int64_t *strides)
{
    lt->layout_type = sinter_layout_type_strided;
    for (int d = 0; d < lt->ndims; d++) {
        lt->dims[d] = dims[d];
        lt->strides[d] = strides != NULL ? strides[d] : 0;
    }
    if (strides == NULL) {
        lt_set_dense(lt);
    }
}

lt_t lt_strided(const lt_t *lt)
{
    lt_t strided = *lt;
    if (lt->layout_type != sinter_layout_type_strided) {
        lt_set_dense(&strided);
    }
    return strided;
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* The number of elements from the first one to the last one, with gaps; unknown dims and strides
 * count as 1. False: it overflows. */
static bool extent(const lt_t *lt, int64_t *elems)
{
    *elems = 1;
    for (int i = 0; i < lt->ndims; i++) {
        int64_t span;
        if (lt->dims[i] == 0) {
            *elems = 0;
            return true;
        }
        if (lt->dims[i] == SINTER_UNKNOWN_DIM || lt->strides[i] == SINTER_UNKNOWN_DIM) {
            continue;
        }
        if (!mul_i64(lt->dims[i] - 1, lt->strides[i], &span) || !add_i64(*elems, span, elems)) {
            return false;
        }
    }
    return true;
}

static sinter_status_t verify_dims(const lt_t *lt, const char *where)
{
    if (lt->ndims < SINTER_UNKNOWN_NDIMS || lt->ndims > SINTER_MAX_NDIMS) {
        return sg_fail(sinter_invalid_shape,
                       "%s: tensor %" PRIu64 ": rank %d is not between 0 and %d", where, lt->id,
                       (int)lt->ndims, SINTER_MAX_NDIMS);
    }
    int64_t elems = 1, bytes;
    for (int i = 0; i < lt->ndims; i++) {
        if (lt->dims[i] == SINTER_UNKNOWN_DIM) {
            continue;
        }
        if (lt->dims[i] < 0) {
            return sg_fail(sinter_invalid_shape,
                           "%s: tensor %" PRIu64 ": dimension %d is negative (%" PRId64 ")", where,
                           lt->id, i, lt->dims[i]);
        }
        if (!mul_i64(elems, lt->dims[i] > 1 ? lt->dims[i] : 1, &elems)) {
            return sg_fail(sinter_invalid_shape,
                           "%s: tensor %" PRIu64
                           ": the number of elements overflows at dimension %d",
                           where, lt->id, i);
        }
    }
    if (!dtype_bytes(lt->data_type, elems, &bytes)) {
        return sg_fail(sinter_invalid_shape,
                       "%s: tensor %" PRIu64 ": the size of %" PRId64
                       " elements overflows in bytes",
                       where, lt->id, elems);
    }
    return sinter_success;
}

/* A packed type keeps several elements in one byte, so one dim must have stride 1. That dim may
 * have one element only, as dynamic dims sometimes do. */
static bool packed_dim_ok(const lt_t *lt)
{
    bool single = true;
    for (int i = 0; i < lt->ndims; i++) {
        if (lt->dims[i] == 0 || lt->strides[i] == SINTER_UNKNOWN_DIM || lt->strides[i] == 1) {
            return true;
        }
        single = single && lt->dims[i] == 1;
    }
    return single;
}

/* For tensors with known dims and elements. Taken by rising stride, each dim must step over the
 * whole extent of the dims before it. This also refuses some interleaved layouts whose elements do
 * not overlap, which nobody uses. */
static bool elements_apart(const lt_t *lt)
{
    int order[SINTER_MAX_NDIMS], n = 0;
    for (int i = 0; i < lt->ndims; i++) {
        if (lt->dims[i] == 1) {
            continue;
        }
        int at = n++;
        for (; at > 0 && lt->strides[order[at - 1]] > lt->strides[i]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    int64_t reach = 1;
    for (int k = 0; k < n; k++) {
        int64_t stride = lt->strides[order[k]];
        if (stride < reach) {
            return false;
        }
        reach += (lt->dims[order[k]] - 1) * stride; /* extent() has checked for overflow */
    }
    return true;
}

static sinter_status_t verify_strides(const lt_t *lt, bool is_output, const char *where)
{
    int64_t elems, bytes;
    for (int i = 0; i < lt->ndims; i++) {
        if (lt->strides[i] < 0 && lt->strides[i] != SINTER_UNKNOWN_DIM) {
            return sg_fail(sinter_invalid_shape,
                           "%s: tensor %" PRIu64 ": stride %d is negative (%" PRId64 ")", where,
                           lt->id, i, lt->strides[i]);
        }
    }
    if (!extent(lt, &elems)) {
        return sg_fail(sinter_invalid_shape,
                       "%s: tensor %" PRIu64 ": the offset of the last element overflows", where,
                       lt->id);
    }
    if (!dtype_bytes(lt->data_type, elems, &bytes)) {
        return sg_fail(sinter_invalid_shape,
                       "%s: tensor %" PRIu64 ": the offset of the last element overflows in bytes",
                       where, lt->id);
    }
    if (dtype_is_packed(lt->data_type) && !packed_dim_ok(lt)) {
        return sg_fail(sinter_invalid_shape,
                       "%s: tensor %" PRIu64 ": packed type %s needs a dimension of stride 1",
                       where, lt->id, dtype_traits(lt->data_type)->name);
    }
    if (is_output && elems > 0 && lt_dims_known(lt) && lt_strides_known(lt) &&
        !elements_apart(lt)) {
        return sg_fail(sinter_invalid_shape,
                       "%s: tensor %" PRIu64 ": strides of an output let elements overlap", where,
                       lt->id);
    }
    return sinter_success;
}

sinter_status_t lt_verify(const lt_t *lt, bool is_output, const char *where)
{
    if (dtype_traits(lt->data_type) == NULL) {
        return sg_fail(sinter_invalid_data_type, "%s: tensor %" PRIu64 ": unknown data type %d",
                       where, lt->id, (int)lt->data_type);
    }
    SG_TRY(verify_dims(lt, where));
    if ((unsigned)lt->property > sinter_tensor_property_host_scalar) {
        return sg_fail(sinter_invalid_arguments, "%s: tensor %" PRIu64 ": unknown property %d",
                       where, lt->id, (int)lt->property);
    }
    if (lt->property == sinter_tensor_property_host_scalar && lt_dims_known(lt) &&
        lt_elems(lt) != 1) {
        return sg_fail(sinter_invalid_shape,
                       "%s: tensor %" PRIu64 ": a host scalar has one element, not %" PRId64, where,
                       lt->id, lt_elems(lt));
    }
    switch (lt->layout_type) {
    case sinter_layout_type_undef:
    case sinter_layout_type_any:
        return sinter_success;
    case sinter_layout_type_strided:
        return verify_strides(lt, is_output, where);
    case sinter_layout_type_opaque:
        return layout_verify(lt, where);
    }
    return sg_fail(sinter_invalid_arguments, "%s: tensor %" PRIu64 ": unknown layout type %d",
                   where, lt->id, (int)lt->layout_type);
}

sinter_status_t lt_bytes(const lt_t *lt, size_t *bytes)
{
    int64_t elems, size;
    SG_TRY(lt_verify(lt, false, "size"));
    if (!lt_dims_known(lt)) {
        return sg_fail(sinter_invalid_shape,
                       "size: tensor %" PRIu64 ": dimensions are not known yet", lt->id);
    }
    if (lt_is_opaque(lt)) {
        layout_bytes(lt, &size); /* lt_verify has seen that it fits */
        *bytes = (size_t)size;
        return sinter_success;
    }
    const lt_t strided = lt_strided(lt);
    if (!lt_strides_known(&strided)) {
        return sg_fail(sinter_invalid_shape, "size: tensor %" PRIu64 ": strides are not known yet",
                       lt->id);
    }
    if (!extent(&strided, &elems) || !dtype_bytes(lt->data_type, elems, &size)) {
        return sg_fail(sinter_invalid_shape, "size: tensor %" PRIu64 ": the size overflows",
                       lt->id);
    }
    *bytes = (size_t)size;
    return sinter_success;
}

/* ---- merging --------------------------------------------------------------------------------- */

/* Fills *into from `from` if it is unknown. False: both are known and differ. */
static bool merge_value(int64_t *into, int64_t from)
{
    return dims_unify(into, &from);
}

static bool merge_dims(lt_t *into, const lt_t *from)
{
    if (from->ndims == SINTER_UNKNOWN_NDIMS) {
        return true;
    }
    if (into->ndims == SINTER_UNKNOWN_NDIMS) {
        into->ndims = from->ndims;
        memcpy(into->dims, from->dims, sizeof into->dims);
        for (int i = 0; i < SINTER_MAX_NDIMS; i++) {
            into->strides[i] = SINTER_UNKNOWN_DIM;
        }
        return true;
    }
    for (int i = 0; i < into->ndims; i++) {
        if (!merge_value(&into->dims[i], from->dims[i])) {
            return false;
        }
    }
    return true;
}

/* The stride of a dimension of size 1 means nothing: the first one stays. An opaque layout must be
 * the same on both sides that say one. */
static bool merge_layout(lt_t *into, const lt_t *from)
{
    if (lt_is_opaque(into) || lt_is_opaque(from)) {
        const bool said = into->layout_type == sinter_layout_type_strided || lt_is_opaque(into);
        if (!said) {
            into->layout_type = from->layout_type;
            into->layout_id = from->layout_id;
        }
        return !said || from->layout_type < sinter_layout_type_strided ||
               (from->layout_type == into->layout_type && from->layout_id == into->layout_id);
    }
    if (from->layout_type != sinter_layout_type_strided || from->ndims == SINTER_UNKNOWN_NDIMS) {
        return true;
    }
    if (into->layout_type != sinter_layout_type_strided) {
        into->layout_type = sinter_layout_type_strided;
        memcpy(into->strides, from->strides, sizeof into->strides);
        return true;
    }
    for (int i = 0; i < into->ndims; i++) {
        if (!merge_value(&into->strides[i], from->strides[i]) && into->dims[i] != 1) {
            return false;
        }
    }
    return true;
}

bool lt_merge(lt_t *into, const lt_t *from, const char **what)
{
    lt_t merged = *into;
    *what = NULL;
    if (merged.data_type == sinter_data_type_undef) {
        merged.data_type = from->data_type;
    }
    if (merged.property == sinter_tensor_property_undef) {
        merged.property = from->property;
    }
    bool ranks_agree = into->ndims == from->ndims || into->ndims == SINTER_UNKNOWN_NDIMS ||
                       from->ndims == SINTER_UNKNOWN_NDIMS;
    if (from->data_type != sinter_data_type_undef && merged.data_type != from->data_type) {
        *what = "data type";
    } else if (!ranks_agree) {
        *what = "rank";
    } else if (!merge_dims(&merged, from)) {
        *what = "dims";
    } else if (!merge_layout(&merged, from)) {
        *what = lt_is_opaque(into) || lt_is_opaque(from) ? "layout" : "strides";
    } else {
        *into = merged;
    }
    return *what == NULL;
}

/* ---- views ----------------------------------------------------------------------------------- */

/* Drops dims of size 1. */
static int squeeze(int ndims, const int64_t *dims, const int64_t *strides, int64_t *out_dims,
                   int64_t *out_strides)
{
    int n = 0;
    for (int i = 0; i < ndims; i++) {
        if (dims[i] != 1) {
            out_dims[n] = dims[i];
            out_strides[n++] = strides[i];
        }
    }
    return n;
}

/* Gives each dim of size 1 the stride of a dense tensor there. */
static void fill_unit_strides(int ndims, const int64_t *dims, int64_t *strides)
{
    int64_t next = 1;
    for (int i = ndims - 1; i >= 0; i--) {
        if (dims[i] == 1) {
            strides[i] = next;
        } else if (!mul_i64(strides[i], dims[i], &next)) {
            next = strides[i];
        }
    }
}

static bool all_known(int n, const int64_t *values)
{
    for (int i = 0; i < n; i++) {
        if (values[i] < 0) {
            return false;
        }
    }
    return true;
}

/* Finds strides for to_dims, where neither list has dims of size 1 and both have the same product.
 * It pairs the shortest runs of old dims from..from_end and new dims to..to_end with the same
 * product. The old dims of a run must be dense among each other; the new ones divide their elements
 * anew. */
static bool map_runs(int n, const int64_t *dims, const int64_t *strides, const int64_t *to_dims,
                     int64_t *to_strides)
{
    for (int from = 0, from_end, to = 0, to_end; from < n; from = from_end, to = to_end) {
        int64_t old = dims[from], new = 1, span;
        from_end = from + 1;
        to_end = to;
        while (old != new) {
            if (old > new) {
                new *= to_dims[to_end++];
                continue;
            }
            if (!mul_i64(strides[from_end], dims[from_end], &span) ||
                strides[from_end - 1] != span) {
                return false;
            }
            old *= dims[from_end++];
        }
        int64_t stride = strides[from_end - 1];
        for (int i = to_end - 1; i >= to; i--) {
            to_strides[i] = stride;
            if (!mul_i64(stride, to_dims[i], &stride)) {
                return false;
            }
        }
    }
    return true;
}

bool view_reshape(int ndims, const int64_t *dims, const int64_t *strides, int to_ndims,
                  const int64_t *to_dims, int64_t *to_strides)
{
    int64_t from_dims[SINTER_MAX_NDIMS] = {0}, from_strides[SINTER_MAX_NDIMS] = {0};
    if (!all_known(ndims, dims) || !all_known(ndims, strides) || !all_known(to_ndims, to_dims)) {
        return false;
    }
    int64_t elems = product(ndims, dims);
    if (elems < 0 || elems != product(to_ndims, to_dims)) {
        return false;
    }
    if (elems == 0) {
        dense_strides(to_ndims, to_dims, to_strides);
        return true;
    }
    int n = squeeze(ndims, dims, strides, from_dims, from_strides);
    if (!map_runs(n, from_dims, from_strides, to_dims, to_strides)) {
        return false;
    }
    fill_unit_strides(to_ndims, to_dims, to_strides);
    return true;
}

bool lt_same_dims(const lt_t *a, const lt_t *b)
{
    return a->ndims == b->ndims &&
           (a->ndims <= 0 || memcmp(a->dims, b->dims, (size_t)a->ndims * sizeof a->dims[0]) == 0);
}

bool lt_same_shape(const lt_t *a, const lt_t *b)
{
    const size_t n = (size_t)a->ndims * sizeof(a->dims[0]);
    return a->ndims == b->ndims && a->data_type == b->data_type &&
           memcmp(a->dims, b->dims, n) == 0 && memcmp(a->strides, b->strides, n) == 0;
}

bool lt_dims_may_equal(const lt_t *a, const lt_t *b)
{
    bool same = a->ndims == b->ndims || a->ndims < 0 || b->ndims < 0;
    for (int d = 0; same && d < a->ndims && d < b->ndims; d++) {
        same = dims_may_equal(a->dims[d], b->dims[d]);
    }
    return same;
}

bool lt_may_coincide(const lt_t *a, const lt_t *b)
{
    bool same = a->data_type == b->data_type && a->ndims == b->ndims && lt_same_layout(a, b);
    for (int d = 0; d < a->ndims && same; d++) {
        same = dims_may_equal(a->dims[d], b->dims[d]) &&
               (a->dims[d] == 1 || lt_is_opaque(a) || dims_may_equal(a->strides[d], b->strides[d]));
    }
    return same;
}
