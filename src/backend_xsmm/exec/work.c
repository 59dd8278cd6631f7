#include "backend_xsmm/exec/work.h"

/* Rates of one thread with vectors, in thousands for a microsecond. They are middle values: types
 * and kernels differ by a factor of two either way, and so do the limits below. */
static const double bytes_rate = 10, products_rate = 16, elements_rate = 10, exp_rate = 2;
/* How much slower portable code is. */
static const double portable = 8;

/* Microseconds. A barrier costs about a half, so a share should be some. To wake sleeping threads
 * takes 10 to 20, which two threads have saved after 40. */
static const double least_share = 2.5, least_region = 40;

/* Thousands of elements, as the rates are. */
static double elements(const problem_t *p, int value)
{
    const int ndims = problem_ndims(p, value);
    double n = ndims < 0 ? -1 : 1e-3;
    for (int d = 1; d <= ndims && n >= 0; d++) {
        const int64_t dim = problem_dim(p, value, d);
        n = dim < 0 ? -1 : n * (double)dim;
    }
    return n;
}

/* A sum of work, of which a part may be unknown. */
typedef struct sum {
    double n;
    bool open;
} sum_t;

static void add(sum_t *s, double n, double each)
{
    s->open = s->open || n < 0;
    s->n += n * each;
}

static void add_bytes(sum_t *s, const problem_t *p, int value)
{
    if (value >= 0) {
        add(s, elements(p, value), dtype_traits(problem_type(p, value))->bits / 8.0 / bytes_rate);
    }
}

static void add_operand(sum_t *s, const problem_t *p, const operand_t *o)
{
    add_bytes(s, p, o->data);
    add_bytes(s, p, o->high);
    add_bytes(s, p, o->scale);
    add_bytes(s, p, o->zp);
}

/* n: elements of the iteration space. */
static void add_chain(sum_t *s, const problem_t *p, const chain_t *chain, double n)
{
    if (chain == NULL) {
        return;
    }
    add(s, n, chain->n_instrs * (chain->f64 ? 4 : 1) / elements_rate);
    for (int i = 0; i < chain->n_operands; i++) {
        add_bytes(s, p, chain->operands[i].value);
    }
}

static void add_dynquant(sum_t *s, const problem_t *p, const dynquant_params_t *q, double n)
{
    add(s, n, 2 / elements_rate);
    add_operand(s, p, &q->out);
}

/* The products of `n` results of length k, or their operands where these take longer: the
 * processor fetches while it multiplies. */
static void add_products(sum_t *s, double n, double k, sum_t bytes)
{
    sum_t products = {0, bytes.open};
    add(&products, n < 0 || k < 0 ? -1 : n * k, 1 / products_rate);
    s->open = s->open || products.open;
    s->n += products.n > bytes.n ? products.n : bytes.n;
}

static double add_matmul(sum_t *s, const problem_t *p)
{
    const matmul_params_t *m = &p->step->p.matmul;
    const double n = elements(p, m->out_dims);
    sum_t bytes = {0};
    add_operand(&bytes, p, &m->a);
    add_operand(&bytes, p, &m->b);
    if (m->conv != NULL) { /* each weight meets the results of its channel */
        const double weights = elements(p, m->b.data) * 1e3,
                     channels = (double)problem_dim(p, m->b.data, 1) * (double)m->conv->groups;
        add_products(s, n, weights < 0 || channels < 1 ? -1 : weights / channels, bytes);
        return n;
    }
    add_products(s, n, (double)problem_dim(p, m->a.data, m->trans_a ? 2 : 1), bytes);
    return n;
}

static double add_attention(sum_t *s, const problem_t *p)
{
    const attention_params_t *a = &p->step->p.attention;
    const double scores = elements(p, a->score_dims);
    const int64_t d = problem_dim(p, a->q.data, a->trans_q ? 2 : 1),
                  dv = problem_dim(p, a->out_dims, 1);
    sum_t bytes = {0};
    add_operand(&bytes, p, &a->q);
    add_operand(&bytes, p, &a->k);
    add_operand(&bytes, p, &a->v);
    add_products(s, scores, d < 0 || dv < 0 ? -1 : (double)(d + dv), bytes);
    add(s, scores, 1 / exp_rate);
    add_chain(s, p, a->score, scores);
    add_chain(s, p, a->prob, scores);
    return elements(p, a->out_dims);
}

/* Elements that a result of pooling or interpolation takes. */
static double window_taps(const window_params_t *w)
{
    double n = w->kind == sinter_op_interpolate && !w->nearest ? 4 : 1;
    for (int i = 0; i < SINTER_MAX_NDIMS && w->dim[i].kernel > 0; i++) {
        n *= (double)w->dim[i].kernel;
    }
    return n;
}

double step_work(const problem_t *p)
{
    const step_t *step = p->step;
    sum_t s = {0};
    double n = 0; /* elements that the epilogue runs over */
    switch (step->kind) {
    case STEP_MATMUL:
        n = add_matmul(&s, p);
        break;
    case STEP_ATTENTION:
        n = add_attention(&s, p);
        break;
    case STEP_SOFTMAX:
        n = elements(p, step->p.softmax.in);
        add(&s, n, 1 / exp_rate);
        add_bytes(&s, p, step->p.softmax.in);
        break;
    case STEP_REDUCE:
        n = elements(p, step->p.reduce.x);
        add(&s, n, 1 / elements_rate);
        add_chain(&s, p, step->p.reduce.pre, n);
        n = elements(p, step->post->dims_value);
        break;
    case STEP_WINDOW:
        n = elements(p, step->p.window.x);
        add_chain(&s, p, step->p.window.pre, n);
        n = elements(p, step->post->dims_value);
        add(&s, n, window_taps(&step->p.window) / elements_rate);
        break;
    case STEP_ROTARY:
        n = elements(p, step->p.rotary.x);
        add(&s, n, (step->p.rotary.hadamard ? 6 : 3) / elements_rate);
        add_chain(&s, p, step->p.rotary.pre, n);
        break;
    case STEP_GATHER:
        add_bytes(&s, p, step->p.index.out);
        add_bytes(&s, p, step->p.index.out);
        break;
    case STEP_SCATTER: /* in place, as it should be */
        add_bytes(&s, p, step->p.index.updates);
        add_bytes(&s, p, step->p.index.updates);
        break;
    case STEP_TOP_K:
        add(&s, elements(p, step->p.top_k.in), 5 / elements_rate);
        add(&s, elements(p, step->p.top_k.values), 100 / elements_rate); /* many are sorted */
        break;
    case STEP_NORM:
        n = elements(p, step->p.norm.x);
        add(&s, n, 3 / elements_rate);
        add_chain(&s, p, step->p.norm.pre, n);
        break;
    case STEP_DYNQUANT:
        n = elements(p, step->p.dynquant.in);
        add_dynquant(&s, p, &step->p.dynquant, n);
        add_bytes(&s, p, step->p.dynquant.in);
        break;
    case STEP_CHAIN:
        n = elements(p, step->post->dims_value);
        break;
    }
    add_chain(&s, p, step->post, n);
    if (step->tail != NULL) {
        add_dynquant(&s, p, step->tail, n);
    }
    return s.open ? -1 : s.n * (p->plan->features.bits == NEEDS_NOTHING ? portable : 1);
}

int work_shares(double work, int most)
{
    const double shares = work / least_share;
    return shares >= most ? most : shares > 1 ? (int)shares : 1;
}

bool work_pays_region(double divisible)
{
    return divisible >= least_region;
}
