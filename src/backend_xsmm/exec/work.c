#include "backend_xsmm/exec/work.h"

/* Rates of one thread with vectors, in thousands for a microsecond. They are middle values: types
 * and kernels differ by a factor of two either way, and so do the limits below. */
static const double bytes_rate = 10, products_rate = 16, elements_rate = 10, exp_rate = 2;
/* How much slower portable code is. */
static const double portable = 8;

/* Microseconds. A barrier costs about a half, so a share should be some. To wake sleeping threads
 * takes 10 to 20, which two threads have saved after 40. */
static const double least_share = 2.5, least_region = 40;

double estimate_elements(const problem_t *p, int value)
{
    const int ndims = problem_ndims(p, value);
    double n = ndims < 0 ? -1 : 1e-3;
    for (int d = 1; d <= ndims && n >= 0; d++) {
        const int64_t dim = problem_dim(p, value, d);
        n = dim < 0 ? -1 : n * (double)dim;
    }
    return n;
}

static void add(estimate_t *e, double n, double each)
{
    e->open = e->open || n < 0;
    e->us += n * each;
}

void estimate_ops(estimate_t *e, double n, double each)
{
    add(e, n, each / elements_rate);
}

void estimate_exps(estimate_t *e, double n)
{
    add(e, n, 1 / exp_rate);
}

void estimate_bytes(estimate_t *e, const problem_t *p, int value)
{
    if (value >= 0) {
        add(e, estimate_elements(p, value),
            dtype_traits(problem_type(p, value))->bits / 8.0 / bytes_rate);
    }
}

void estimate_operand(estimate_t *e, const problem_t *p, const operand_t *o)
{
    estimate_bytes(e, p, o->data);
    estimate_bytes(e, p, o->high);
    estimate_bytes(e, p, o->scale);
    estimate_bytes(e, p, o->zp);
}

void estimate_chain(estimate_t *e, const problem_t *p, const chain_t *chain, double n)
{
    if (chain == NULL) {
        return;
    }
    estimate_ops(e, n, chain->n_instrs * (chain->f64 ? 4 : 1));
    for (int i = 0; i < chain->n_operands; i++) {
        estimate_bytes(e, p, chain->operands[i].value);
    }
}

void estimate_dynquant(estimate_t *e, const problem_t *p, const dynquant_params_t *q, double n)
{
    estimate_ops(e, n, 2);
    estimate_operand(e, p, &q->out);
}

void estimate_products(estimate_t *e, double n, double k, estimate_t operands)
{
    estimate_t products = {.open = operands.open};
    add(&products, n < 0 || k < 0 ? -1 : n * k, 1 / products_rate);
    e->open = e->open || products.open;
    e->us += products.us > operands.us ? products.us : operands.us;
}

double step_work(const problem_t *p)
{
    const step_t *step = p->step;
    estimate_t e = {0};
    const double n = step_ops(step)->work(&e, p);
    estimate_chain(&e, p, step->post, n);
    if (step->tail != NULL) {
        estimate_dynquant(&e, p, step->tail, n);
    }
    return e.open ? -1 : e.us * (p->plan->features.bits == NEEDS_NOTHING ? portable : 1);
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
