/* Ops of UNARY that take several ops of Sinter: comparisons, rounding, and what is made of exp. */
#include <float.h>

#include "special.h"

/* y = z where a >= c, else w. */
static bool choose_to(gs_builder_t *b, const lt_t *a, const lt_t *c, const lt_t *z, const lt_t *w,
                      const lt_t *y)
{
    const lt_t condition = gs_inner(b, sinter_boolean);
    return gs_add(b, sinter_op_greater_equal, sinter_in(a), sinter_in(c), sinter_out(&condition)) &&
           gs_add(b, sinter_op_select, sinter_in(&condition), sinter_in(z), sinter_in(w),
                  sinter_out(y));
}

static bool choose(gs_builder_t *b, const lt_t *a, const lt_t *c, const lt_t *z, const lt_t *w,
                   lt_t *y)
{
    *y = gs_inner(b, sinter_f32);
    return choose_to(b, a, c, z, w, y);
}

/* y = x + offset */
static bool plus(gs_builder_t *b, const lt_t *x, float offset, lt_t *y)
{
    lt_t o;
    return gs_scalar(b, offset, &o) && gs_binary(b, sinter_op_add, x, &o, y);
}

/* y = the nearest integer, of two the even one. */
static bool nearest(gs_builder_t *b, const lt_t *x, lt_t *y)
{
    *y = gs_inner(b, sinter_f32);
    return gs_add(b, sinter_op_round, sinter_in(x), sinter_out(y));
}

/* y = the nearest integer r, or r - 1 where r > x. */
static bool floor_of(gs_builder_t *b, const lt_t *x, lt_t *y)
{
    lt_t r, less;
    return nearest(b, x, &r) && plus(b, &r, -1, &less) && choose(b, x, &r, &r, &less, y);
}

/* y = the nearest integer r, or r + 1 where r < x. */
static bool ceil_of(gs_builder_t *b, const lt_t *x, lt_t *y)
{
    lt_t r, more;
    return nearest(b, x, &r) && plus(b, &r, 1, &more) && choose(b, &r, x, &r, &more, y);
}

bool gs_truncate(gs_builder_t *b, const lt_t *x, const lt_t *y)
{
    lt_t zero, below, above;
    return gs_scalar(b, 0, &zero) && floor_of(b, x, &below) && ceil_of(b, x, &above) &&
           choose_to(b, x, &zero, &below, &above, y);
}

/* y = the nearest integer to |x|, of two the greater one, with the sign of x. */
static bool round_of(gs_builder_t *b, const lt_t *x, const lt_t *zero, const lt_t *y)
{
    const lt_t a = gs_inner(b, sinter_f32);
    lt_t r, rest, half, more, m, minus;
    return gs_add(b, sinter_op_abs, sinter_in(x), sinter_out(&a)) && nearest(b, &a, &r) &&
           gs_binary(b, sinter_op_subtract, &a, &r, &rest) && plus(b, &r, 1, &more) &&
           gs_scalar(b, 0.5f, &half) && choose(b, &rest, &half, &more, &r, &m) &&
           gs_times(b, &m, -1, &minus) && choose_to(b, x, zero, &m, &minus, y);
}

/* y = 1 where x > 0, else `other`: the least number above 0 is the least denormal one. */
static bool step_of(gs_builder_t *b, const lt_t *x, const lt_t *other, const lt_t *y)
{
    lt_t least, one;
    return gs_scalar(b, FLT_TRUE_MIN, &least) && gs_scalar(b, 1, &one) &&
           choose_to(b, x, &least, &one, other, y);
}

/* y = -1 where x < 0, 1 where x > 0, else 0. */
static bool sign_of(gs_builder_t *b, const lt_t *x, const lt_t *zero, const lt_t *y)
{
    const lt_t above = gs_inner(b, sinter_f32);
    lt_t least, minus;
    return step_of(b, x, zero, &above) && gs_scalar(b, -FLT_TRUE_MIN, &least) &&
           gs_scalar(b, -1, &minus) && choose_to(b, &least, x, &minus, &above, y);
}

/* y = exp(x) - 1; near 0 the error is that of exp. */
static bool expm1_of(gs_builder_t *b, const lt_t *x, lt_t *y)
{
    const lt_t e = gs_inner(b, sinter_f32);
    return gs_add(b, sinter_op_exp, sinter_in(x), sinter_out(&e)) && plus(b, &e, -1, y);
}

/* y = p * x^2 + q * x where x > 0, else n * (expm1(min(x, e)) - x) + q * x */
static bool xielu_of(gs_builder_t *b, const tensor_t *t, const lt_t *x, const lt_t *y)
{
    const float n = gs_param(t, 1), p = gs_param(t, 2), q = gs_param(t, 3), e = gs_param(t, 4);
    lt_t line, square, above, most, low, power, curve, below, least;
    return gs_times(b, x, q, &line) && gs_binary(b, sinter_op_multiply, x, x, &square) &&
           gs_times(b, &square, p, &curve) && gs_binary(b, sinter_op_add, &curve, &line, &above) &&
           gs_scalar(b, e, &most) && gs_binary(b, sinter_op_minimum, x, &most, &low) &&
           expm1_of(b, &low, &power) && gs_binary(b, sinter_op_subtract, &power, x, &low) &&
           gs_times(b, &low, n, &curve) && gs_binary(b, sinter_op_add, &curve, &line, &below) &&
           gs_scalar(b, FLT_TRUE_MIN, &least) && choose_to(b, x, &least, &above, &below, y);
}

static bool to_result(gs_builder_t *b, const tensor_t *t, const lt_t *x, const lt_t *y)
{
    lt_t zero, z;
    if (!gs_scalar(b, 0, &zero)) {
        return false;
    }
    switch (gs_op(t)) {
    case GS_UNARY_STEP:
        return step_of(b, x, &zero, y);
    case GS_UNARY_SGN:
        return sign_of(b, x, &zero, y);
    case GS_UNARY_ROUND:
        return round_of(b, x, &zero, y);
    case GS_UNARY_XIELU:
        return xielu_of(b, t, x, y);
    case GS_UNARY_FLOOR:
        return floor_of(b, x, &z) && gs_convert(b, &z, y);
    case GS_UNARY_CEIL:
        return ceil_of(b, x, &z) && gs_convert(b, &z, y);
    case GS_UNARY_TRUNC:
        return gs_truncate(b, x, y);
    default:
        return expm1_of(b, x, &z) && gs_convert(b, &z, y);
    }
}

static bool translate(gs_builder_t *b, const tensor_t *t)
{
    const int rank = gs_rank(t);
    lt_t x;
    if (!gs_use_floats(b, t->src[0], rank, &x)) {
        return false;
    }
    const lt_t y = gs_result(b, rank, gs_plain_order(rank));
    return to_result(b, t, &x, &y) && gs_done(b, &y, rank, gs_plain_order(rank));
}

const gs_special_t gs_unary = {.translate = translate};
