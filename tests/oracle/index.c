/* Gather, ScatterRows, Slice, TopK, RotaryEmbedding and HadamardTransform. All but the last two
 * move elements, errors included. Which elements TopK takes is certain only where errors do not
 * change their order: two that may be equal within their bounds may stand for each other, so that a
 * value is as far off as the next ones that may take its place, and its index is then unknown. */
#include "internal.h"

static double bound_at(const orc_value_t *t, size_t i)
{
    return t->b != NULL ? t->b[i] : 0;
}

static void move(orc_value_t *out, size_t to, const orc_value_t *in, size_t from, size_t n)
{
    memcpy(out->v + to, in->v + from, n * sizeof(double));
    for (size_t i = 0; out->b != NULL && i < n; i++) {
        out->b[to + i] = bound_at(in, from + i);
    }
}

static void keep_origin(orc_ctx_t *c)
{
    c->out[0]->from_int = c->in[0]->from_int;
    c->out[0]->beyond = c->in[0]->beyond;
    c->out[0]->small_codes = c->in[0]->small_codes && c->in[0]->scale == NULL;
    c->out[0]->kept = c->out[0]->lt.data_type == c->in[0]->lt.data_type;
}

/* ---- rows by index --------------------------------------------------------------------------- */

/* The index is not certain: the row that was taken may be any other one. */
static void take_any_row(orc_value_t *out, size_t to, const orc_value_t *in, size_t from,
                         size_t rows, size_t inner)
{
    for (size_t i = 0; i < inner; i++) {
        for (size_t r = 0; r < rows; r++) {
            const size_t other = from + r * inner + i;
            const double off = in->v[other] == out->v[to + i]
                                   ? bound_at(in, other)
                                   : fabs(in->v[other] - out->v[to + i]) + bound_at(in, other);
            out->b[to + i] = isnan(off) ? INFINITY : fmax(out->b[to + i], off);
        }
    }
}

int oracle_gather(orc_ctx_t *c)
{
    const orc_value_t *in = c->in[0], *at = c->in[1];
    const int axis = orc_axis(c, 0, in->lt.ndims),
              batch = (int)orc_attr_s64(c, sinter_op_attr_batch_dims, 0);
    int64_t dims[SINTER_MAX_NDIMS];
    int n = 0;

    if (axis < batch || at->lt.ndims < batch ||
        in->lt.ndims - 1 + at->lt.ndims - batch > SINTER_MAX_NDIMS) {
        return orc_fail(c, "axis, batch_dims or rank out of range");
    }
    for (int d = 0; d < axis; d++) {
        dims[n++] = in->lt.dims[d];
    }
    for (int d = batch; d < at->lt.ndims; d++) {
        dims[n++] = at->lt.dims[d];
    }
    for (int d = axis + 1; d < in->lt.ndims; d++) {
        dims[n++] = in->lt.dims[d];
    }
    keep_origin(c);
    if (orc_shape(c, 0, n, dims) || orc_alloc(c, c->out[0], in->b != NULL || at->b != NULL)) {
        return -1;
    }
    const size_t outer = orc_count(in->lt.dims, axis), rows = (size_t)in->lt.dims[axis],
                 inner = orc_count(in->lt.dims + axis + 1, in->lt.ndims - axis - 1);
    const size_t each = orc_count(at->lt.dims + batch, at->lt.ndims - batch),
                 shared = orc_count(in->lt.dims + batch, axis - batch);
    for (size_t o = 0; o < outer; o++) {
        for (size_t i = 0; i < each; i++) {
            const double given = at->v[o / shared * each + i],
                         index = given < 0 ? given + (double)rows : given;
            if (!(index >= 0 && index < (double)rows)) {
                return orc_fail(c, "index %g is out of range", given);
            }
            const size_t to = (o * each + i) * inner;
            move(c->out[0], to, in, (o * rows + (size_t)index) * inner, inner);
            if (bound_at(at, o / shared * each + i) > 0) {
                take_any_row(c->out[0], to, in, o * rows * inner, rows, inner);
            }
        }
    }
    return 0;
}

int oracle_scatter_rows(orc_ctx_t *c)
{
    const orc_value_t *in = c->in[0], *slots = c->in[1], *updates = c->in[2];
    const int axis = orc_axis(c, 0, in->lt.ndims),
              batch = (int)orc_attr_s64(c, sinter_op_attr_batch_dims, 0);

    if (axis < batch || slots->lt.ndims != batch + 1 || orc_shape_like(c, 0, in) ||
        orc_alloc(c, c->out[0], in->b != NULL || updates->b != NULL || slots->b != NULL)) {
        return -1;
    }
    const size_t outer = orc_count(in->lt.dims, axis), rows = (size_t)in->lt.dims[axis],
                 inner = orc_count(in->lt.dims + axis + 1, in->lt.ndims - axis - 1),
                 each = (size_t)slots->lt.dims[batch],
                 shared = orc_count(in->lt.dims + batch, axis - batch);
    move(c->out[0], 0, in, 0, in->n);
    c->out[0]->saturates = updates->saturates && (in->b == NULL || in->saturates);
    for (size_t o = 0; o < outer; o++) {
        bool sure = true;
        for (size_t i = 0; i < each; i++) {
            const size_t at = o / shared * each + i;
            sure = sure && bound_at(slots, at) == 0;
            if (slots->v[at] == -1) {
                continue;
            }
            if (!(slots->v[at] >= 0 && slots->v[at] < (double)rows)) {
                return orc_fail(c, "slot %g is out of range", slots->v[at]);
            }
            move(c->out[0], (o * rows + (size_t)slots->v[at]) * inner, updates,
                 (o * each + i) * inner, inner);
        }
        for (size_t e = 0; e < rows * inner && !sure; e++) {
            c->out[0]->b[o * rows * inner + e] = INFINITY;
        }
    }
    return 0;
}

int oracle_slice(orc_ctx_t *c)
{
    const orc_value_t *in = c->in[0];
    const orc_attr_t *starts = orc_attr(c, sinter_op_attr_starts),
                     *ends = orc_attr(c, sinter_op_attr_ends),
                     *axes = orc_attr(c, sinter_op_attr_axes),
                     *steps = orc_attr(c, sinter_op_attr_steps);
    const int ndims = in->lt.ndims;
    int64_t dims[SINTER_MAX_NDIMS], first[SINTER_MAX_NDIMS] = {0}, step[SINTER_MAX_NDIMS];

    for (int d = 0; d < ndims; d++) {
        dims[d] = in->lt.dims[d];
        step[d] = 1;
    }
    for (size_t i = 0; starts && ends && i < starts->n; i++) {
        int64_t d = axes ? axes->s64[i] : (int64_t)i, ends_at[2] = {starts->s64[i], ends->s64[i]};
        d += d < 0 ? ndims : 0;
        if (d < 0 || d >= ndims) {
            return orc_fail(c, "axis out of range");
        }
        step[d] = steps ? steps->s64[i] : 1;
        for (int k = 0; k < 2; k++) {
            const int64_t n = in->lt.dims[d], back = step[d] < 0;
            const int64_t least = back && k == 1 ? -1 : 0, most = back ? n - 1 : n;
            ends_at[k] += ends_at[k] < 0 ? n : 0;
            ends_at[k] = ends_at[k] > most ? most : ends_at[k];
            ends_at[k] = ends_at[k] < least ? least : ends_at[k];
        }
        first[d] = ends_at[0];
        dims[d] = 0;
        for (int64_t at = ends_at[0];
             at < in->lt.dims[d] && (step[d] < 0 ? at > ends_at[1] : at < ends_at[1]);
             at += step[d]) {
            dims[d]++;
        }
    }
    keep_origin(c);
    if (orc_shape(c, 0, ndims, dims) || orc_alloc(c, c->out[0], in->b != NULL)) {
        return -1;
    }
    for (size_t i = 0; i < c->out[0]->n; i++) {
        size_t rest = i, from = 0, stride = 1;
        for (int d = ndims - 1; d >= 0; d--) {
            const size_t at = rest % (size_t)dims[d];
            from += ((size_t)first[d] + at * (size_t)step[d]) * stride;
            rest /= (size_t)dims[d];
            stride *= (size_t)in->lt.dims[d];
        }
        move(c->out[0], i, in, from, 1);
    }
    return 0;
}

/* ---- top k ----------------------------------------------------------------------------------- */

/* Whether element a of a row comes before element b. */
static bool before(const double *x, size_t a, size_t b, double sign)
{
    const bool nan_a = isnan(x[a]), nan_b = isnan(x[b]);
    if (nan_a != nan_b) {
        return nan_a == (sign > 0);
    }
    if (!nan_a && x[a] != x[b]) {
        return sign * x[a] > sign * x[b];
    }
    return a < b;
}

int oracle_top_k(orc_ctx_t *c)
{
    const orc_value_t *in = c->in[0];
    const int axis = orc_axis(c, -1, in->lt.ndims);
    const int64_t k = orc_attr_s64(c, sinter_op_attr_k, 0);
    const double sign = orc_attr_bool(c, sinter_op_attr_largest, true) ? 1 : -1;
    int64_t dims[SINTER_MAX_NDIMS];

    if (axis < 0 || k < 0 || k > in->lt.dims[axis]) {
        return orc_fail(c, "axis or k out of range");
    }
    memcpy(dims, in->lt.dims, sizeof dims);
    dims[axis] = k;
    if (orc_shape(c, 0, in->lt.ndims, dims) || orc_shape(c, 1, in->lt.ndims, dims) ||
        orc_alloc(c, c->out[0], in->b != NULL) || orc_alloc(c, c->out[1], in->b != NULL)) {
        return -1;
    }
    const size_t outer = orc_count(in->lt.dims, axis), n = (size_t)in->lt.dims[axis],
                 inner = orc_count(in->lt.dims + axis + 1, in->lt.ndims - axis - 1);
    double *x = orc_doubles(2 * n + 1), *bound = x + n;
    bool *taken = calloc(n + 1, sizeof *taken);
    if (!x || !taken) {
        free(x);
        free(taken);
        return orc_fail(c, "out of memory");
    }
    for (size_t row = 0; row < outer * inner; row++) {
        const size_t o = row / inner, i = row % inner;
        for (size_t e = 0; e < n; e++) {
            x[e] = in->v[(o * n + e) * inner + i];
            bound[e] = bound_at(in, (o * n + e) * inner + i);
            taken[e] = false;
        }
        for (int64_t r = 0; r < k; r++) {
            size_t best = n;
            for (size_t e = 0; e < n; e++) {
                best = !taken[e] && (best == n || before(x, e, best, sign)) ? e : best;
            }
            taken[best] = true;
            const size_t to = (o * (size_t)k + (size_t)r) * inner + i;
            c->out[0]->v[to] = x[best];
            c->out[1]->v[to] = (double)best;
            if (c->out[0]->b == NULL) {
                continue;
            }
            double reach = bound[best];
            bool sure = true;
            for (size_t e = 0; e < n; e++) {
                const double gap = fabs(x[e] - x[best]), room = bound[e] + bound[best];
                if (e != best && room > 0 && gap <= room) {
                    sure = false;
                    reach = gap + bound[e] > reach ? gap + bound[e] : reach;
                }
            }
            c->out[0]->b[to] = reach;
            c->out[1]->b[to] = sure ? 0 : (double)n;
        }
    }
    free(x);
    free(taken);
    return 0;
}

/* ---- rotary embedding ------------------------------------------------------------------------ */

/* The cosine and the sine of one pair of one token, with their errors. */
typedef struct angle {
    double cosine, sine, cosine_bound, sine_bound;
} angle_t;

static angle_t angle_of(const orc_ctx_t *c, size_t token, size_t pair, size_t half, double scale)
{
    const bool frequencies = orc_class(c->in[2]->lt.data_type) == ORC_INT;
    const orc_value_t *positions = frequencies ? c->in[2] : c->n_in > 3 ? c->in[3] : NULL;
    const double position = positions != NULL ? positions->v[token] : 0;
    angle_t a;
    if (frequencies) {
        const double angle = position * c->in[1]->v[pair],
                     off = fabs(position) * bound_at(c->in[1], pair);
        a = (angle_t){scale * cos(angle), scale * sin(angle), fabs(scale) * off, fabs(scale) * off};
    } else {
        const size_t row = positions != NULL ? (size_t)position : token, at = row * half + pair;
        a = (angle_t){scale * c->in[1]->v[at], scale * c->in[2]->v[at],
                      fabs(scale) * bound_at(c->in[1], at), fabs(scale) * bound_at(c->in[2], at)};
    }
    a.cosine_bound += 2 * ORC_U * fabs(a.cosine) + ORC_UNDERFLOW;
    a.sine_bound += 2 * ORC_U * fabs(a.sine) + ORC_UNDERFLOW;
    return a;
}

/* x * a + y * b, with errors xb and so on. */
static double rotated(double x, double xb, double a, double ab, double y, double yb, double b,
                      double bb, double *bound)
{
    *bound = xb * (fabs(a) + ab) + fabs(x) * ab + yb * (fabs(b) + bb) + fabs(y) * bb +
             2 * ORC_U * (fabs(x * a) + fabs(y * b)) + 2 * ORC_UNDERFLOW;
    return x * a + y * b;
}

int oracle_rotary_embedding(orc_ctx_t *c)
{
    const orc_value_t *x = c->in[0];
    orc_value_t *y = c->out[0];
    const int64_t given = orc_attr_s64(c, sinter_op_attr_rotary_embedding_dim, 0),
                  n_heads = orc_attr_s64(c, sinter_op_attr_num_heads, 0);
    const bool pairs = orc_attr_bool(c, sinter_op_attr_interleaved, false), flat = x->lt.ndims == 3;
    const double scale = orc_attr_f32(c, sinter_op_attr_scale, 1);

    if ((!flat && x->lt.ndims != 4) || (flat && n_heads < 1)) {
        return orc_fail(c, "x has %d dims", (int)x->lt.ndims);
    }
    const size_t batch = (size_t)x->lt.dims[0], heads = (size_t)(flat ? n_heads : x->lt.dims[1]),
                 tokens = (size_t)x->lt.dims[flat ? 1 : 2],
                 head = (size_t)(flat ? x->lt.dims[2] / n_heads : x->lt.dims[3]),
                 half = (given > 0 ? (size_t)given : head) / 2;
    if (orc_shape_like(c, 0, x) || orc_alloc(c, y, true)) {
        return -1;
    }
    move(y, 0, x, 0, x->n);
    for (size_t i = 0; i < batch * heads * tokens; i++) {
        const size_t b = i / (heads * tokens), h = i / tokens % heads, s = i % tokens,
                     at = flat ? ((b * tokens + s) * heads + h) * head : i * head;
        for (size_t p = 0; p < half; p++) {
            const size_t k = at + (pairs ? 2 * p : p), l = at + (pairs ? 2 * p + 1 : p + half);
            const angle_t a = angle_of(c, b * tokens + s, p, half, scale);
            y->v[k] = rotated(x->v[k], bound_at(x, k), a.cosine, a.cosine_bound, x->v[l],
                              bound_at(x, l), -a.sine, a.sine_bound, &y->b[k]);
            y->v[l] = rotated(x->v[l], bound_at(x, l), a.cosine, a.cosine_bound, x->v[k],
                              bound_at(x, k), a.sine, a.sine_bound, &y->b[l]);
        }
    }
    return 0;
}

/* ---- Hadamard transform ---------------------------------------------------------------------- */

/* Element i of H x is the sum of x[j], negative where i and j share an odd number of bits. The
 * error is that of a tree of sums, one level for each bit, and of the factor. */
int oracle_hadamard_transform(orc_ctx_t *c)
{
    const orc_value_t *x = c->in[0];
    orc_value_t *y = c->out[0];
    const int64_t given = orc_attr_s64(c, sinter_op_attr_block_size, 0);
    const size_t last = x->lt.ndims > 0 ? (size_t)x->lt.dims[x->lt.ndims - 1] : 0,
                 block = given > 0 ? (size_t)given : last;
    const double factor = 1 / sqrt((double)block), levels = log2((double)block) + 3;

    if (x->lt.ndims < 1 || (block > 0 && ((block & (block - 1)) != 0 || last % block != 0))) {
        return orc_fail(c, "blocks of %d in rows of %d", (int)block, (int)last);
    }
    if (orc_shape_like(c, 0, x) || orc_alloc(c, y, true)) {
        return -1;
    }
    for (size_t at = 0; at < x->n; at++) {
        const size_t i = at % block, begin = at - i;
        double sum = 0, bound = 0, size = 0;
        for (size_t j = 0; j < block; j++) {
            const double v = x->v[begin + j];
            sum += __builtin_parityll(i & j) ? -v : v;
            bound += bound_at(x, begin + j);
            size += fabs(v);
        }
        y->v[at] = sum * factor;
        y->b[at] = (bound + levels * ORC_U * size) * factor + levels * ORC_UNDERFLOW;
    }
    return 0;
}
