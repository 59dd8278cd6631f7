/* The elementwise engine: operands are views (broadcast, one value per channel, one per group),
 * work goes chunk by chunk, and a chunk kernel sees plain arrays. */
#include "internal.h"

bool orc_view_broadcast(orc_view_t *view, const orc_value_t *src, int ndims, const int64_t *dims)
{
    int shift = ndims - src->lt.ndims;
    int64_t strides[SINTER_MAX_NDIMS];

    if (shift < 0) {
        return false;
    }
    view->src = src;
    orc_dense_strides(src->lt.ndims, src->lt.dims, strides);
    for (int d = 0; d < ndims; d++) {
        int64_t dim = d < shift ? 1 : src->lt.dims[d - shift];
        if (dim != 1 && dim != dims[d]) {
            return false;
        }
        view->div[d] = 1;
        view->stride[d] = dim == 1 ? 0 : strides[d - shift];
    }
    return true;
}

void orc_view_channel(orc_view_t *view, const orc_value_t *src, int dim)
{
    view->src = src;
    for (int d = 0; d < SINTER_MAX_NDIMS; d++) {
        view->div[d] = 1;
        view->stride[d] = d == dim;
    }
}

typedef struct layout {
    int ndims;
    int64_t dims[SINTER_MAX_NDIMS];
} layout_t;

static bool is_dense(const layout_t *to, const orc_view_t *view)
{
    int64_t strides[SINTER_MAX_NDIMS];
    orc_dense_strides(to->ndims, to->dims, strides);
    for (int d = 0; d < to->ndims; d++) {
        if (to->dims[d] != 1 && (view->div[d] != 1 || view->stride[d] != strides[d])) {
            return false;
        }
    }
    return true;
}

static void fill_run(const double *src, int64_t div, int64_t stride, int64_t from, int64_t n,
                     double *dst)
{
    if (stride == 0) {
        for (int64_t i = 0; i < n; i++) {
            dst[i] = src[0];
        }
    } else if (div == 1) {
        src += from * stride;
        for (int64_t i = 0; i < n; i++) {
            dst[i] = src[i * stride];
        }
    } else {
        int64_t group = from / div, left = div - from % div;
        for (int64_t i = 0; i < n; i++) {
            dst[i] = src[group * stride];
            if (--left == 0) {
                left = div;
                group++;
            }
        }
    }
}

static void fill(const layout_t *to, const orc_view_t *view, const double *src, size_t start,
                 size_t n, double *dst)
{
    int64_t index[SINTER_MAX_NDIMS];
    int last = to->ndims - 1;

    for (int d = last; d >= 0; d--) {
        index[d] = (int64_t)(start % (size_t)to->dims[d]);
        start /= (size_t)to->dims[d];
    }
    while (n) {
        int64_t base = 0, run = to->dims[last] - index[last];
        if ((size_t)run > n) {
            run = (int64_t)n;
        }
        for (int d = 0; d < last; d++) {
            base += index[d] / view->div[d] * view->stride[d];
        }
        fill_run(src + base, view->div[last], view->stride[last], index[last], run, dst);
        dst += run;
        n -= (size_t)run;
        index[last] = 0;
        for (int d = last - 1; d >= 0 && ++index[d] == to->dims[d]; d--) {
            index[d] = 0;
        }
    }
}

/* The output may live in the memory of an operand that is read once, element by element, and
 * needed no more. */
static bool reuse(orc_ctx_t *c, orc_value_t *out, size_t n_views, const orc_view_t *views,
                  const bool *dense, bool need_bound)
{
    for (size_t i = 0; i < n_views; i++) {
        for (size_t k = 0; k < c->n_in && dense[i]; k++) {
            orc_value_t *in = c->in[k];
            if (views[i].src != in || !c->dying[k] || in->n != out->n || (need_bound && !in->b)) {
                continue;
            }
            out->v = in->v;
            out->b = in->b;
            return true;
        }
    }
    return false;
}

/* What reuse lent is the output's now. */
static void forget_reused(orc_ctx_t *c, const orc_value_t *out)
{
    for (size_t k = 0; k < c->n_in; k++) {
        if (c->in[k]->v == out->v) {
            c->in[k]->v = c->in[k]->b = NULL;
        }
    }
}

/* An operand of which nothing is known leaves nothing known of the result; chunk kernels need
 * not see to that. The masks are taken before the output may overwrite an operand's bounds. */
static void find_loose(const orc_chunk_t *k, size_t n_views, bool *loose)
{
    memset(loose, 0, k->n * sizeof *loose);
    for (size_t view = 0; view < n_views; view++) {
        for (size_t i = 0; i < k->n; i++) {
            loose[i] = loose[i] || k->b[view][i] == INFINITY;
        }
    }
}

int orc_map(orc_ctx_t *c, orc_value_t *out, size_t n_views, const orc_view_t *views,
            orc_chunk_fn *fn, const void *args, bool inexact)
{
    static const double zero[ORC_CHUNK];
    layout_t to = {out->lt.ndims ? out->lt.ndims : 1, {1}};
    bool dense[ORC_MAX_VIEWS], reused;
    size_t chunks = (out->n + ORC_CHUNK - 1) / ORC_CHUNK;

    memcpy(to.dims, out->lt.ndims ? out->lt.dims : to.dims, sizeof to.dims);
    for (size_t i = 0; i < n_views; i++) {
        dense[i] = is_dense(&to, &views[i]);
        inexact = inexact || views[i].src->b;
    }
    reused = reuse(c, out, n_views, views, dense, inexact);
    if (!reused && orc_alloc(c, out, inexact)) {
        return -1;
    }
#pragma omp parallel for
    for (size_t chunk = 0; chunk < chunks; chunk++) {
        double buffer[2 * ORC_MAX_VIEWS][ORC_CHUNK];
        bool loose[ORC_CHUNK];
        size_t start = chunk * ORC_CHUNK,
               n = out->n - start < ORC_CHUNK ? out->n - start : ORC_CHUNK;
        orc_chunk_t k = {
            .n = n, .ov = out->v + start, .ob = out->b ? out->b + start : NULL, .args = args};
        for (size_t i = 0; i < n_views; i++) {
            const orc_value_t *src = views[i].src;
            k.v[i] = dense[i] ? src->v + start : buffer[2 * i];
            k.b[i] = !src->b ? zero : dense[i] ? src->b + start : buffer[2 * i + 1];
            if (!dense[i]) {
                fill(&to, &views[i], src->v, start, n, buffer[2 * i]);
            }
            if (!dense[i] && src->b) {
                fill(&to, &views[i], src->b, start, n, buffer[2 * i + 1]);
            }
        }
        if (k.ob) {
            find_loose(&k, n_views, loose);
        }
        fn(&k);
        for (size_t i = 0; k.ob && i < n; i++) {
            if (loose[i]) {
                k.ob[i] = INFINITY;
            }
        }
    }
    if (reused) {
        forget_reused(c, out);
    }
    return 0;
}
