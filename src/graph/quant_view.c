#include "graph/quant_view.h"

#include <string.h>

#include "graph/quant.h"
#include "graph/shape.h"

bool quant_full_dims(const graph_t *g, const node_t *node, bool zero_points, quant_dims_t *dims)
{
    const quant_t *q = node->quant;
    const quant_geom_t *geom = &q->geom;
    const lt_t *data = &g->values[node->in[0]].lt;
    const int port = zero_points ? q->zp_input : q->scale_input;
    if (data->ndims < 0 || (zero_points ? !q->has_zp : q->scales == NULL && port < 0)) {
        return false;
    }
    const int8_t *dim_of = zero_points ? geom->zp_dim : geom->scale_dim;
    const int64_t *group = zero_points ? geom->zp_group : geom->scale_group;
    for (int d = 0; d < data->ndims; d++) {
        const int64_t said = quant_said_size(q, data->ndims, d);
        dims->n[d] = 1;
        dims->size[d] = said > 0 && dim_known(group[d]) ? group[d] : said;
        if (q->scales != NULL) {
            const int64_t inner = geom->inner_axis >= 0 ? data->dims[geom->inner_axis] : 1;
            dims->n[d] = d != geom->axis ? (d == geom->inner_axis ? inner : 1)
                         : inner > 0     ? (int64_t)q->n_scales / inner
                                         : data->dims[d];
        } else if (dim_of[d] >= 0) {
            dims->n[d] = g->values[node->in[port]].lt.dims[dim_of[d]];
        }
    }
    return true;
}

/* The last group of a dim of n elements may be shorter than `size`, what a group_shape says. */
static bool may_be_ragged(int64_t n, int64_t size)
{
    return dim_known(n) ? size > 0 && size < n && n % size != 0 : size > 1 && size != INT64_MAX;
}

bool quant_dims_ragged(const lt_t *data, const quant_dims_t *dims)
{
    bool ragged = false;
    for (int d = 0; d < data->ndims; d++) {
        ragged = ragged || may_be_ragged(data->dims[d], dims->size[d]);
    }
    return ragged;
}

static const char *through_transpose(const node_t *view, int ndims, quant_dims_t *dims)
{
    const attr_t *order = node_attr(view, sinter_op_attr_order);
    const quant_dims_t old = *dims;
    if (order == NULL || order->n != (size_t)ndims) {
        return "a transpose of another rank lies between the codes and the matmul";
    }
    for (int d = 0; d < ndims; d++) {
        const int64_t from = order->s64[d] < 0 ? order->s64[d] + ndims : order->s64[d];
        dims->n[d] = old.n[from];
        dims->size[d] = old.size[from];
    }
    return NULL;
}

/* The length of the runs of neighbours that share a scale, over the dims [0, n) together; -1 if
 * the groups are no such runs: from the right, whole dims, then at most one partly grouped dim,
 * then dims with a scale for each index. */
static int64_t run_length(int n, const int64_t *data, const int64_t *scales)
{
    int64_t run = 1;
    bool ended = false;
    for (int d = n - 1; d >= 0; d--) {
        if (data[d] == 1) {
            continue;
        }
        if (scales[d] <= 0 || data[d] % scales[d] != 0 || (ended && scales[d] != data[d])) {
            return -1;
        }
        run *= data[d] / scales[d];
        ended = ended || scales[d] != 1;
    }
    return run;
}

/* The scale dims over [0, n) that say runs of this length; false if none do. */
static bool say_runs(int n, const int64_t *data, int64_t run, int64_t *scales)
{
    for (int d = n - 1; d >= 0; d--) {
        int64_t group = run;
        if (data[d] > 0 && run % data[d] == 0) {
            group = data[d];
        } else if (data[d] == 0 || data[d] % run != 0) {
            return false;
        }
        scales[d] = data[d] / group;
        run /= group;
    }
    return run == 1;
}

/* The first of the last dims of out that are together the dims of in behind i; -1: there are none,
 * or it is not known. */
static int end_of_split(const lt_t *in, const lt_t *out, int i, int j)
{
    int64_t want = 1, have = 1;
    int end = out->ndims;
    for (int d = i + 1; d < in->ndims; d++) {
        if (!dim_known(in->dims[d]) || !mul_i64(want, in->dims[d], &want)) {
            return -1;
        }
    }
    while (end > j && have < want) {
        if (!dim_known(out->dims[--end]) || !mul_i64(have, out->dims[end], &have)) {
            return -1;
        }
    }
    return have == want ? end : -1;
}

/* A dim that is not known yet becomes known dims and one that is not: in->dims[i] is out->dims[j]
 * and some behind it, [rows] -> [4, rows / 4] or [rows / 40, 40]. Returns how many they are; 0: the
 * dim is no such dim. A scale for all of the dim stays one. Else each part has scales of its own:
 * should a group reach over two parts, then the reshape of the scales, which are too few, is an
 * error at execute. */
static int split_unknown(const lt_t *in, const lt_t *out, int i, int j, const quant_dims_t *dims,
                         quant_dims_t *parts)
{
    int unknown = 0, end = end_of_split(in, out, i, j);
    if (end < 0) { /* other dims are unknown, too: the parts end with the first one */
        end = j;
        while (end < out->ndims && dim_known(out->dims[end])) {
            end++;
        }
        end++;
    }
    for (int k = j; k < end && k < out->ndims; k++) {
        unknown += !dim_known(out->dims[k]);
    }
    if (dim_known(in->dims[i]) || unknown != 1 || (dim_known(dims->n[i]) && dims->n[i] != 1) ||
        may_be_ragged(in->dims[i], dims->size[i])) {
        return 0;
    }
    for (int k = j; k < end; k++) {
        parts->n[k] = dims->n[i] == 1 ? 1 : out->dims[k];
        parts->size[k] = dims->size[i] == 0 ? 0 : dims->n[i] == 1 ? INT64_MAX : 1;
    }
    return end - j;
}

/* The groups of the dims [i, end) of the data as groups of runs of the dims [j, out_end) behind the
 * view. False: there are none. */
static bool regroup_block(const lt_t *in, int i, int end, const lt_t *out, int j, int out_end,
                          const quant_dims_t *dims, quant_dims_t *made)
{
    bool said = false;
    for (int d = i; d < end; d++) {
        if (may_be_ragged(in->dims[d], dims->size[d])) {
            return false;
        }
        said = said || dims->size[d] > 0;
    }
    const int64_t run = run_length(end - i, in->dims + i, dims->n + i);
    if (run < 0 || !say_runs(out_end - j, out->dims + j, run, made->n + j)) {
        return false;
    }
    for (int d = j; d < out_end; d++) {
        made->size[d] = said ? out->dims[d] / made->n[d] : 0;
    }
    return true;
}

/* Both dim lists fall into blocks of equal products, as short as can be; unit dims stick to the
 * block on their left or, at the start, right. */
static const char *through_reshape(const lt_t *in, const lt_t *out, quant_dims_t *dims)
{
    static const char *const unsaid =
        "a reshape splits or merges dims whose groups the new dims cannot say";
    quant_dims_t made = {{0}, {0}};
    int i = 0, j = 0;
    while (i < in->ndims || j < out->ndims) {
        const int i0 = i, j0 = j;
        int64_t a = 1, b = 1;
        const int parts = i < in->ndims ? split_unknown(in, out, i, j, dims, &made) : 0;
        if (parts <= 1 && i < in->ndims && j < out->ndims &&
            in->dims[i] == out->dims[j]) { /* an untouched dim, known or not */
            made.n[j] = dims->n[i];
            made.size[j++] = dims->size[i++];
            continue;
        }
        if (i < in->ndims && in->dims[i] == 1) {
            i++;
            continue;
        }
        if (j < out->ndims && out->dims[j] == 1) {
            made.size[j] = 1;
            made.n[j++] = 1;
            continue;
        }
        if (parts > 0) {
            i++;
            j += parts;
            continue;
        }
        do {
            const bool left = a <= b && i < in->ndims;
            if (!left && j == out->ndims) {
                return unsaid;
            }
            const int64_t dim = left ? in->dims[i++] : out->dims[j++];
            if (dim <= 0 || !mul_i64(left ? a : b, dim, left ? &a : &b)) {
                return "a reshape of dims that are not known yet";
            }
        } while (a != b || i == i0 || j == j0);
        if (!regroup_block(in, i0, i, out, j0, j, dims, &made)) {
            return unsaid;
        }
    }
    *dims = made;
    return NULL;
}

const char *quant_dims_through_view(const node_t *view, const lt_t *in, const lt_t *out,
                                    quant_dims_t *dims)
{
    if (in->ndims < 0 || out->ndims < 0) {
        return "a view between the codes and the matmul has an unknown rank";
    }
    if (view->kind == sinter_op_static_transpose) {
        return through_transpose(view, in->ndims, dims);
    }
    return view->kind == sinter_op_static_reshape ? through_reshape(in, out, dims) : NULL;
}
