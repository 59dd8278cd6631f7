/* Unary ops: a function of one number, and how far f32 code may be from it. */
#include "internal.h"

typedef struct unary {
    double (*f)(double x, const double *p);
    /* Evaluation error in units of ORC_U beyond one rounding of the result; NULL: none. Besides
     * the result it knows the largest number that a usual formula subtracts from: 1 - 2 / (e^2x
     * + 1) for tanh loses units of 1, not of tanh(x). */
    double (*units)(double x, double v, const double *p);
    bool argument; /* the argument may be scaled by one rounding first, as in e^x = 2^(x log2 e) */
    bool pole;     /* at 0: end points of an interval around it say nothing */
    double p[2];
    /* Where the function has a minimum that is below both ends of an interval around it; 0: it has
     * none. */
    double dip;
} unary_t;

static void unary_chunk(const orc_chunk_t *k)
{
    const unary_t *u = k->args;

    for (size_t i = 0; i < k->n; i++) {
        double x = k->v[0][i], v = u->f(x, u->p);
        if (k->ob) {
            double units = u->units ? u->units(x, v, u->p) : 0, xb = k->b[0][i], bound = 0;
            if (units > 0 && u->argument && isfinite(x)) {
                xb += fabs(x) * ORC_U;
            }
            if (xb > 0) {
                double up = orc_distance(u->f(x + xb, u->p), v),
                       down = orc_distance(u->f(x - xb, u->p), v);
                bound = up >= down ? up : down;
                if (u->dip != 0 && fabs(x - u->dip) < xb) {
                    bound = fmax(bound, orc_distance(u->f(u->dip, u->p), v));
                }
                const bool outside = isnan(v) && isfinite(x) && isnan(u->f(x + xb, u->p)) &&
                                     isnan(u->f(x - xb, u->p));
                if (outside) {
                    bound = 0; /* the whole interval is outside of the domain: a root below 0 */
                } else if (isnan(up) || isnan(down) || (u->pole && fabs(x) <= xb)) {
                    bound = INFINITY;
                } else if (v == 0 && bound == 0 && fabs(x) <= xb) {
                    bound = ORC_ZERO_SIGN;
                }
            }
            k->ob[i] = units > 0 && isfinite(v) ? bound + units * ORC_U + ORC_TINY : bound;
        }
        k->ov[i] = v;
    }
}

static int run(orc_ctx_t *c, const unary_t *u)
{
    orc_view_t view;

    if (orc_shape_like(c, 0, c->in[0]) ||
        !orc_view_broadcast(&view, c->in[0], c->in[0]->lt.ndims, c->in[0]->lt.dims)) {
        return -1;
    }
    return orc_map(c, c->out[0], 1, &view, unary_chunk, u, u->units != NULL);
}

#define UNARY_F(name, expr)                           \
    static double f_##name(double x, const double *p) \
    {                                                 \
        (void)p;                                      \
        return expr;                                  \
    }
#define UNARY_E(name, expr)                                     \
    static double e_##name(double x, double v, const double *p) \
    {                                                           \
        (void)x, (void)v, (void)p;                              \
        return expr;                                            \
    }

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}
static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}
/* GELU, Mish and HardSwish have the limit -0 at -infinity. sqrt(2 / pi), sqrt(1 / 2) */
#define GELU_TANH_SCALE 0.79788456080286535588
#define SQRT_HALF 0.70710678118654752440

UNARY_F(abs, fabs(x))
UNARY_F(clamp, clamp(x, p[0], p[1]))
UNARY_F(relu, x < 0 ? 0 : x)
UNARY_F(leaky_relu, x < 0 ? p[0] * x : x)
UNARY_F(round, rint(x))
UNARY_F(square, (x)*x)

UNARY_F(sqrt, sqrt(x))
UNARY_E(sqrt, 2 * v)
UNARY_F(exp, exp(x))
UNARY_E(exp, 4 * v)
UNARY_F(log, log(x))
UNARY_E(log, 4 * fabs(v))
UNARY_F(pow, pow(x, p[0]))
UNARY_E(pow, v == 0 || x == 0 ? 0 : (4 + fabs(p[0] * log(fabs(x)))) * fabs(v))
UNARY_F(tanh, tanh(x))
UNARY_E(tanh, 4 * fabs(v) + 2)
UNARY_F(sigmoid, 1 / (1 + exp(-x)))
UNARY_E(sigmoid, 6 * v)
UNARY_F(elu, x < 0 ? p[0] * expm1(x) : x)
UNARY_E(elu, x < 0 ? 4 * fabs(v) + 2 * fabs(p[0]) : 0)
UNARY_F(gelu_erf, x == -INFINITY ? -0.0 : 0.5 * x * erfc(-x * SQRT_HALF))
UNARY_F(gelu_tanh,
        x == -INFINITY
            ? -0.0
            : x / (1 + exp(-2 * GELU_TANH_SCALE *
                           (x + 0.044715 * x * x * x)))) /* (1 + tanh z) / 2 = 1 / (1 + e^-2z) */
UNARY_E(gelu, isinf(x) ? 0 : 4 * (fabs(v) + fabs(x)))
UNARY_F(softplus, softplus(p[0] * x) / p[0])
UNARY_E(softplus, 4 * fabs(v) + 2 / fabs(p[0]))
UNARY_F(mish, x == -INFINITY ? -0.0 : (x)*tanh(softplus(x)))
UNARY_E(mish, isinf(x) ? 0 : 4 * (fabs(v) + fabs(x)))
UNARY_F(hard_sigmoid, clamp(p[0] * x + p[1], 0, 1))
UNARY_E(hard_sigmoid, v == 0 || v == 1 ? 0 : 2 * (fabs(p[0] * x) + fabs(p[1])))
UNARY_F(hard_swish, x == -INFINITY ? -0.0 : (x)*clamp(x / 6 + 0.5, 0, 1))
UNARY_E(hard_swish, v == 0 || v == x ? 0 : 4 * fabs(x) * (fabs(x) / 6 + 0.5))

#define EXACT(name, ...) run(c, &(unary_t){f_##name, NULL, false, false, {__VA_ARGS__}, 0})
#define EVALUATED(name, argument, ...) \
    run(c, &(unary_t){f_##name, e_##name, argument, false, {__VA_ARGS__}, 0})
#define DIPPING(name, argument, at) run(c, &(unary_t){f_##name, e_##name, argument, false, {0}, at})

int oracle_abs(orc_ctx_t *c)
{
    return EXACT(abs, 0);
}
int oracle_relu(orc_ctx_t *c)
{
    return EXACT(relu, 0);
}
int oracle_leaky_relu(orc_ctx_t *c)
{
    return EXACT(leaky_relu, orc_attr_f32(c, sinter_op_attr_alpha, 0));
}
int oracle_round(orc_ctx_t *c)
{
    return EXACT(round, 0);
}
int oracle_square(orc_ctx_t *c)
{
    return EXACT(square, 0);
}
int oracle_clamp(orc_ctx_t *c)
{
    return EXACT(clamp, orc_attr_f32(c, sinter_op_attr_min, -INFINITY),
                 orc_attr_f32(c, sinter_op_attr_max, INFINITY));
}

int oracle_sqrt(orc_ctx_t *c)
{
    return EVALUATED(sqrt, false, 0);
}
int oracle_exp(orc_ctx_t *c)
{
    return EVALUATED(exp, true, 0);
}
int oracle_log(orc_ctx_t *c)
{
    return EVALUATED(log, true, 0);
}
int oracle_tanh(orc_ctx_t *c)
{
    return EVALUATED(tanh, true, 0);
}
int oracle_sigmoid(orc_ctx_t *c)
{
    return EVALUATED(sigmoid, true, 0);
}
int oracle_mish(orc_ctx_t *c)
{
    return DIPPING(mish, true, -1.1924311818572);
}
int oracle_hard_swish(orc_ctx_t *c)
{
    return DIPPING(hard_swish, false, -1.5);
}
int oracle_elu(orc_ctx_t *c)
{
    return EVALUATED(elu, true, orc_attr_f32(c, sinter_op_attr_alpha, 1));
}
int oracle_softplus(orc_ctx_t *c)
{
    return EVALUATED(softplus, true, orc_attr_f32(c, sinter_op_attr_beta, 1));
}
int oracle_hard_sigmoid(orc_ctx_t *c)
{
    return EVALUATED(hard_sigmoid, false, orc_attr_f32(c, sinter_op_attr_alpha, 0),
                     orc_attr_f32(c, sinter_op_attr_beta, 0));
}

int oracle_gelu(orc_ctx_t *c)
{
    bool by_tanh = strcmp(orc_attr_str(c, sinter_op_attr_mode, "gelu_erf"), "gelu_tanh") == 0;
    return run(c, &(unary_t){by_tanh ? f_gelu_tanh : f_gelu_erf,
                             e_gelu,
                             true,
                             false,
                             {0},
                             by_tanh ? -0.7524614261796 : -0.7517915226835});
}

/* Squares and first powers are plain arithmetic. */
int oracle_pow(orc_ctx_t *c)
{
    double beta = orc_attr_f32(c, sinter_op_attr_beta, 1);
    return beta == 1 || beta == 2 ? EXACT(pow, beta)
                                  : run(c, &(unary_t){f_pow, e_pow, true, beta < 0, {beta}, 0});
}

/* Not by end points: the interval may hold the pole. */
static void reciprocal_chunk(const orc_chunk_t *k)
{
    for (size_t i = 0; i < k->n; i++) {
        double x = k->v[0][i], v = 1 / x, xb = k->b[0][i];
        if (xb > 0) {
            k->ob[i] = fabs(x) > xb ? fabs(v) * (xb / (fabs(x) - xb) + 2 * ORC_U) : INFINITY;
        } else {
            k->ob[i] = orc_is_pow2(x) || !isfinite(v) ? 0 : 2 * ORC_U * fabs(v);
        }
        k->ov[i] = v;
    }
}

int oracle_reciprocal(orc_ctx_t *c)
{
    orc_view_t view;
    if (orc_shape_like(c, 0, c->in[0]) ||
        !orc_view_broadcast(&view, c->in[0], c->in[0]->lt.ndims, c->in[0]->lt.dims)) {
        return -1;
    }
    return orc_map(c, c->out[0], 1, &view, reciprocal_chunk, NULL, true);
}
