/* Values: shapes, memory, and what ops ask about their attributes. */
#define _DEFAULT_SOURCE /* madvise */
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

#include "internal.h"

static const char *const op_spelling[] = {
#define SINTER_OP(value, name, spelling, ...) [value] = #spelling,
#include <sinter/ops.def>
#undef SINTER_OP
};

int orc_fail(orc_ctx_t *c, const char *format, ...)
{
    va_list args;
    int n = 0;

    if (!c->err_size) {
        return -1;
    }
    if (c->op) {
        n = snprintf(c->err, c->err_size, "oracle: op %llu (%s): ", (unsigned long long)c->op->id,
                     (size_t)c->op->kind < sizeof op_spelling / sizeof *op_spelling
                         ? op_spelling[c->op->kind]
                         : "?");
    }
    if (n < 0 || (size_t)n >= c->err_size) {
        return -1;
    }
    va_start(args, format);
    vsnprintf(c->err + n, c->err_size - (size_t)n, format, args);
    va_end(args);
    return -1;
}

const orc_attr_t *orc_attr(const orc_ctx_t *c, sinter_op_attr_t id)
{
    for (size_t i = 0; i < c->op->n_attrs; i++) {
        if (c->op->attrs[i].id == id) {
            return &c->op->attrs[i];
        }
    }
    return NULL;
}

int64_t orc_attr_s64(const orc_ctx_t *c, sinter_op_attr_t id, int64_t missing)
{
    const orc_attr_t *a = orc_attr(c, id);
    return a && a->n ? a->s64[0] : missing;
}

double orc_attr_f32(const orc_ctx_t *c, sinter_op_attr_t id, double missing)
{
    const orc_attr_t *a = orc_attr(c, id);
    return a && a->n ? (double)a->f32[0] : missing;
}

bool orc_attr_bool(const orc_ctx_t *c, sinter_op_attr_t id, bool missing)
{
    const orc_attr_t *a = orc_attr(c, id);
    return a ? a->b != 0 : missing;
}

const char *orc_attr_str(const orc_ctx_t *c, sinter_op_attr_t id, const char *missing)
{
    const orc_attr_t *a = orc_attr(c, id);
    return a && a->str ? a->str : missing;
}

int orc_axis(orc_ctx_t *c, int64_t missing, int ndims)
{
    int64_t axis = orc_attr_s64(c, sinter_op_attr_axis, missing);
    if (axis < 0) {
        axis += ndims;
    }
    if (axis < 0 || axis >= ndims) {
        return orc_fail(c, "axis is out of range for %d dims", ndims);
    }
    return (int)axis;
}

size_t orc_count(const int64_t *dims, int n)
{
    size_t count = 1;
    for (int d = 0; d < n; d++) {
        count *= (size_t)dims[d];
    }
    return count;
}

void orc_dense_strides(int ndims, const int64_t *dims, int64_t *strides)
{
    int64_t step = 1;
    for (int d = ndims - 1; d >= 0; d--) {
        strides[d] = step;
        step *= dims[d];
    }
}

int orc_shape(orc_ctx_t *c, size_t i, int ndims, const int64_t *dims)
{
    orc_value_t *t = c->out[i];
    double count = 1;

    for (int d = 0; d < ndims; d++) {
        count *= (double)dims[d];
    }
    if (count > 0x1p40) {
        return orc_fail(c, "output %zu has too many elements", i);
    }
    if (t->lt.ndims >= 0 && t->lt.ndims != ndims) {
        return orc_fail(c, "output %zu has %d dims, the graph says %d", i, ndims, (int)t->lt.ndims);
    }
    for (int d = 0; d < t->lt.ndims; d++) {
        if (t->lt.dims[d] >= 0 && t->lt.dims[d] != dims[d]) {
            return orc_fail(c, "dim %d of output %zu is %lld, the graph says %lld", d, i,
                            (long long)dims[d], (long long)t->lt.dims[d]);
        }
    }
    t->lt.ndims = ndims;
    for (int d = 0; d < ndims; d++) {
        t->lt.dims[d] = dims[d];
    }
    t->lt.layout_type = sinter_layout_type_strided;
    orc_dense_strides(ndims, dims, t->lt.strides);
    t->n = orc_count(dims, ndims);
    return 0;
}

int orc_shape_like(orc_ctx_t *c, size_t i, const orc_value_t *like)
{
    return orc_shape(c, i, like->lt.ndims, like->lt.dims);
}

double *orc_doubles(size_t n)
{
    const size_t page = (size_t)2 << 20, bytes = (n * sizeof(double) + page) / page * page;
    double *p;

    if (bytes < 2 * page) {
        return malloc((n + 1) * sizeof(double));
    }
    p = aligned_alloc(page, bytes);
#ifdef MADV_HUGEPAGE
    if (p) {
        madvise(p, bytes, MADV_HUGEPAGE);
    }
#endif
    return p;
}

int orc_alloc(orc_ctx_t *c, orc_value_t *value, bool with_bound)
{
    value->v = orc_doubles(value->n);
    value->b = with_bound ? orc_doubles(value->n) : NULL;
    if (!value->v || (with_bound && !value->b)) {
        return orc_fail(c, "out of memory for %zu elements", value->n);
    }
    return 0;
}

int orc_take(orc_ctx_t *c, size_t i, orc_value_t *value)
{
    orc_value_t *from = c->in[i];

    value->saturates = from->saturates && value->lt.data_type == from->lt.data_type;
    if (c->dying[i]) {
        value->v = from->v;
        value->b = from->b;
        value->scale = from->scale;
        from->v = from->b = from->scale = NULL;
        return 0;
    }
    if (orc_alloc(c, value, from->b != NULL)) {
        return -1;
    }
    if (from->scale) {
        value->scale = orc_doubles(from->n);
        if (!value->scale) {
            return orc_fail(c, "out of memory for scales");
        }
        memcpy(value->scale, from->scale, from->n * sizeof(double));
    }
    memcpy(value->v, from->v, from->n * sizeof(double));
    if (from->b) {
        memcpy(value->b, from->b, from->n * sizeof(double));
    }
    return 0;
}

void orc_value_clear(orc_value_t *value)
{
    free(value->v);
    free(value->b);
    free(value->scale);
    value->v = value->b = value->scale = NULL;
}

int orc_broadcast_shape(orc_ctx_t *c, size_t first, size_t n)
{
    bool numpy = strcmp(orc_attr_str(c, sinter_op_attr_auto_broadcast, "numpy"), "numpy") == 0;
    int64_t dims[SINTER_MAX_NDIMS];
    int ndims = 0;

    for (size_t i = first; i < first + n; i++) {
        if (c->in[i]->lt.ndims > ndims) {
            ndims = c->in[i]->lt.ndims;
        }
    }
    for (int d = 0; d < ndims; d++) {
        dims[d] = 1;
    }
    for (size_t i = first; i < first + n; i++) {
        const sinter_logical_tensor_t *lt = &c->in[i]->lt;
        for (int d = 0; d < lt->ndims; d++) {
            int64_t *to = &dims[d + ndims - lt->ndims];
            if (lt->dims[d] != 1 && *to != 1 && lt->dims[d] != *to) {
                return orc_fail(c, "inputs do not broadcast");
            }
            if (*to == 1) {
                *to = lt->dims[d];
            }
        }
    }
    if (orc_shape(c, 0, ndims, dims)) {
        return -1;
    }
    for (size_t i = first; i < first + n && !numpy; i++) {
        if (c->in[i]->lt.ndims != ndims || c->in[i]->n != c->out[0]->n) {
            return orc_fail(c, "inputs differ in shape and auto_broadcast is none");
        }
    }
    return 0;
}
