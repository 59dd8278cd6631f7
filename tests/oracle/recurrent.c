/* LinearAttention, a token at a time, in double.
 *
 * Errors of the library are not those of this order of operations: it may work off tokens in
 * chunks. So a column j of a state has one bound E_j of the length (2-norm) of its error, which
 * holds for either. size_j is what that rests on: no less than the lengths of all that is added up
 * to the column, without cancelling.
 *
 *   S' = (I - beta k k^T) D S + beta k v    the error is multiplied by (I - beta k k^T) D, whose
 *                                           norm is at most max(1, |1 - beta |k|^2|) max(D)
 *   S' = (D + b a^T) S + k v                the norm is at most max(D) + |a| |b|
 */
#include "internal.h"

static double bound_at(const orc_value_t *t, size_t i)
{
    return t->b != NULL ? t->b[i] : 0;
}

typedef struct shape {
    size_t batch, heads, tokens, keys, values;
    double scale;
    bool delta, interleaved, log_decay;
    const orc_value_t *decay, *beta, *bonus, *a, *b;
} shape_t;

/* Where the elements of a token of a head begin. */
static size_t place(const orc_value_t *t, size_t b, size_t head, size_t token)
{
    return ((b * (size_t)t->lt.dims[1] + token) * (size_t)t->lt.dims[2] + head) *
           (size_t)t->lt.dims[3];
}

static size_t head_of(const shape_t *s, const orc_value_t *t, size_t head)
{
    const size_t heads = (size_t)t->lt.dims[2];
    return s->interleaved ? head / (s->heads / heads) : head % heads;
}

static double length_of(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n && x != NULL; i++) {
        sum += x[i] * x[i];
    }
    return sqrt(sum);
}

/* n elements of t from `at` on: their length, and that of their errors. */
static void lengths_of(const orc_value_t *t, size_t at, size_t n, double *length, double *off)
{
    *length = length_of(t->v + at, n);
    *off = length_of(t->b ? t->b + at : NULL, n);
}

/* What a token gives of its own where the state before it is read: the sum of q u k. */
static double own_part(const shape_t *s, const orc_ctx_t *c, size_t h, size_t at_q, size_t at_k,
                       double rounding, double *off)
{
    double sum = 0;
    *off = 0;
    for (size_t i = 0; i < s->keys; i++) {
        const size_t at_u = h * s->keys + i;
        const double q = c->in[0]->v[at_q + i], k = c->in[1]->v[at_k + i], u = s->bonus->v[at_u],
                     most = (fabs(q) + bound_at(c->in[0], at_q + i)) *
                            (fabs(k) + bound_at(c->in[1], at_k + i)) *
                            (fabs(u) + bound_at(s->bonus, at_u));
        sum += q * u * k;
        *off += most - fabs(q * u * k) + rounding * most + ORC_TINY;
    }
    return sum;
}

/* One head of one sequence: its state [values][keys], the error and the size of each column. */
typedef struct head {
    double *state, *error, *size, *decay;
} head_t;

/* Token `token` of head h of sequence b. */
static void step(const orc_ctx_t *c, const shape_t *s, const head_t *of, size_t b, size_t h,
                 size_t token)
{
    const orc_value_t *q = c->in[0], *k = c->in[1], *v = c->in[2];
    const size_t at_q = place(q, b, head_of(s, q, h), token),
                 at_k = place(k, b, head_of(s, k, h), token), at_v = place(v, b, h, token);
    const double *qs = q->v + at_q, *ks = k->v + at_k;
    /* Sums of products of a length, and what a chunk adds to them. */
    const double rounding = ORC_U * ((double)s->keys + 24);
    const size_t at_a = s->a ? place(s->a, b, head_of(s, s->a, h), token) : 0,
                 at_b = s->b ? place(s->b, b, head_of(s, s->b, h), token) : 0;
    double k_length, k_off, q_length, q_off, a_length = 0, a_off = 0, b_length = 0, b_off = 0;
    double own = 0, own_off = 0;
    lengths_of(k, at_k, s->keys, &k_length, &k_off);
    lengths_of(q, at_q, s->keys, &q_length, &q_off);
    if (s->a != NULL) {
        lengths_of(s->a, at_a, s->keys, &a_length, &a_off);
        lengths_of(s->b, at_b, s->keys, &b_length, &b_off);
    }
    if (s->bonus != NULL) {
        own = own_part(s, c, h, at_q, at_k, rounding, &own_off);
    }
    const double beta = s->beta ? s->beta->v[place(s->beta, b, h, token)] : 1,
                 beta_off = s->beta ? bound_at(s->beta, place(s->beta, b, h, token)) : 0;
    double most = 1, decay_off = 0;
    if (s->decay != NULL) {
        const bool each = s->decay->lt.dims[3] > 1;
        const size_t at = place(s->decay, b, h, token);
        most = 0;
        for (size_t i = 0; i < s->keys; i++) {
            const double off = bound_at(s->decay, at + (each ? i : 0));
            const double given = s->decay->v[at + (each ? i : 0)];
            of->decay[i] = s->log_decay ? exp(given) : given;
            most = fmax(most, fabs(of->decay[i]));
            decay_off = fmax(decay_off, !s->log_decay ? off
                                        : off < 1     ? of->decay[i] * expm1(off)
                                                      : INFINITY);
        }
        decay_off += 12 * ORC_U * most + ORC_TINY;
    }
    const double apart = fabs(beta) * k_length * k_length,
                 grows = s->delta ? fmax(1, fabs(1 - beta * k_length * k_length)) : 1;
    for (size_t j = 0; j < s->values; j++) {
        double met = 0, w = v->v[at_v + j], w_off = bound_at(v, at_v + j), out = 0, e = 0;
        const double size = of->size[j], error = of->error[j];
        for (size_t i = 0; i < s->keys; i++) {
            e += s->a ? s->a->v[at_a + i] * of->state[j * s->keys + i] : 0;
            out += s->bonus ? qs[i] * of->state[j * s->keys + i] : 0;
        }
        for (size_t i = 0; i < s->keys && s->decay != NULL; i++) {
            of->state[j * s->keys + i] *= of->decay[i];
        }
        const double before = of->size[j] * most;
        /* Of the state when the decay is applied, before the delta rule sees it. */
        double fresh = decay_off * (size + error) + 2 * ORC_U * before;
        if (s->delta) {
            for (size_t i = 0; i < s->keys; i++) {
                met += ks[i] * of->state[j * s->keys + i];
            }
            const double met_off =
                             k_off * (before + of->error[j] * most) + rounding * k_length * before,
                         less = fabs(w) + k_length * before;
            w_off = fabs(beta) * (w_off + met_off + 2 * ORC_U * less) + beta_off * less +
                    2 * ORC_U * fabs(beta) * less;
            fresh *= 1 + apart;
            w = beta * (w - met);
        }
        for (size_t i = 0; i < s->keys; i++) {
            of->state[j * s->keys + i] += ks[i] * w + (s->b ? s->b->v[at_b + i] * e : 0);
            out += s->bonus ? 0 : qs[i] * of->state[j * s->keys + i];
        }
        out += own * w;
        /* Of e, beside what the norm above has of the error of the state. */
        const double e_off = a_off * (size + error) + rounding * a_length * size;
        of->size[j] = before + k_length * fabs(w) + b_length * fabs(e);
        of->error[j] = error * (most * grows + a_length * b_length) + fresh +
                       (k_length + k_off) * w_off + k_off * fabs(w) + (b_length + b_off) * e_off +
                       b_off * (fabs(e) + a_length * error) + 4 * ORC_U * of->size[j] + ORC_TINY;
        const double seen = s->bonus ? size : of->size[j],
                     seen_error = s->bonus ? error : of->error[j];
        c->out[0]->v[at_v + j] = out * s->scale;
        c->out[0]->b[at_v + j] =
            fabs(s->scale) *
                ((q_length + q_off) * seen_error + q_off * seen + rounding * q_length * seen +
                 own_off * (fabs(w) + w_off) + fabs(own) * w_off +
                 4 * ORC_U * (fabs(own * w) + q_length * seen) + ORC_TINY) +
            2 * ORC_U * fabs(out * s->scale);
    }
}

/* All tokens of head h of sequence b, from the state of slot `from` on; -1: zeros. to: of slot
 * `to`; -1: nowhere. */
static void run(const orc_ctx_t *c, const shape_t *s, const head_t *of, size_t b, size_t h,
                int64_t from, int64_t to)
{
    const orc_value_t *state = c->in[3];
    orc_value_t *next = c->out[1];
    const size_t n = s->keys * s->values;
    for (size_t j = 0; j < s->values; j++) {
        double error = 0, size = 0;
        for (size_t i = 0; i < s->keys; i++) {
            const size_t at = ((size_t)(from < 0 ? 0 : from) * s->heads + h) * n + j * s->keys + i;
            const double x = from < 0 ? 0 : state->v[at], off = from < 0 ? 0 : bound_at(state, at);
            of->state[j * s->keys + i] = x;
            error += off * off;
            size += x * x;
        }
        of->error[j] = sqrt(error);
        of->size[j] = sqrt(size) + of->error[j];
    }
    for (size_t t = 0; t < s->tokens; t++) {
        step(c, s, of, b, h, t);
    }
    for (size_t i = 0; to >= 0 && i < n; i++) {
        const size_t at = ((size_t)to * s->heads + h) * n + i;
        next->v[at] = of->state[i];
        next->b[at] = s->tokens > 0 ? of->error[i / s->keys]
                      : from < 0    ? 0
                                    : bound_at(state, ((size_t)from * s->heads + h) * n + i);
    }
}

int oracle_linear_attention(orc_ctx_t *c)
{
    const char *mode = orc_attr_str(c, sinter_op_attr_mode, "");
    const bool gated = strncmp(mode, "gated", 5) == 0, delta = strstr(mode, "delta") != NULL,
               bonus = strstr(mode, "bonus") != NULL, low_rank = strstr(mode, "low_rank") != NULL;
    const size_t least = 4 + (size_t)gated + (size_t)delta + (size_t)bonus + 2 * (size_t)low_rank;
    const orc_value_t *q = c->in[0], *v = c->in[2], *state = c->in[3],
                      *from = c->n_in > least ? c->in[least] : NULL,
                      *to = c->n_in > least + 1 ? c->in[least + 1] : NULL;
    int64_t dims[4];

    if (q->lt.ndims != 4 || v->lt.ndims != 4 || state->lt.ndims != 4) {
        return orc_fail(c, "LinearAttention wants four dims");
    }
    const shape_t s = {.batch = (size_t)v->lt.dims[0],
                       .tokens = (size_t)v->lt.dims[1],
                       .heads = (size_t)v->lt.dims[2],
                       .keys = (size_t)q->lt.dims[3],
                       .values = (size_t)v->lt.dims[3],
                       .scale = orc_attr_f32(c, sinter_op_attr_scale, 1),
                       .delta = delta,
                       .interleaved = orc_attr_bool(c, sinter_op_attr_interleaved, true),
                       .log_decay = orc_attr_bool(c, sinter_op_attr_log_decay, true),
                       .decay = gated ? c->in[4] : NULL,
                       .beta = delta ? c->in[4 + gated] : NULL,
                       .bonus = bonus ? c->in[5] : NULL,
                       .a = low_rank ? c->in[5] : NULL,
                       .b = low_rank ? c->in[6] : NULL};
    memcpy(dims, state->lt.dims, sizeof dims);
    dims[0] = to ? dims[0] : v->lt.dims[0];
    if (orc_shape_like(c, 0, v) || orc_alloc(c, c->out[0], true) || orc_shape(c, 1, 4, dims) ||
        orc_alloc(c, c->out[1], true)) {
        return -1;
    }
    for (size_t i = 0; to && i < state->n; i++) {
        c->out[1]->v[i] = state->v[i];
        c->out[1]->b[i] = bound_at(state, i);
    }
    const head_t of = {.state = orc_doubles(s.keys * s.values + 1),
                       .error = orc_doubles(s.values + 1),
                       .size = orc_doubles(s.values + 1),
                       .decay = orc_doubles(s.keys + 1)};
    const bool room = of.state && of.error && of.size && of.decay;
    for (size_t i = 0; room && i < s.batch * s.heads; i++) {
        const size_t b = i / s.heads;
        run(c, &s, &of, b, i % s.heads, from ? (int64_t)from->v[b] : (int64_t)b,
            to ? (int64_t)to->v[b] : (int64_t)b);
    }
    free(of.state);
    free(of.error);
    free(of.size);
    free(of.decay);
    return room ? 0 : orc_fail(c, "out of memory");
}
