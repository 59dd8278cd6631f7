/* Routers of mixtures of experts: scores, perhaps from a product, become probabilities, of which
 * TopK chooses the best for each token, perhaps by more than what weighs them, and perhaps of the
 * best groups alone. What stands in the way of fusing now and then is drawn too: other readers, and
 * rows of a table that the router does not know. */
#include "fuzz.h"

typedef struct router {
    int64_t tokens, n, k, groups, chosen; /* groups 0: none */
    sinter_data_type_t type;
} router_t;

static void choose(fz_t *f, router_t *r)
{
    r->tokens = fz_dim(f, FZ_ONE_OF(f, 1, 1, 2, 3, 7, 17, 40), 1);
    r->groups = fz_chance(f, 40) ? FZ_ONE_OF(f, 1, 2, 3, 4, 8) : 0;
    r->n = r->groups ? r->groups * FZ_ONE_OF(f, 1, 2, 3, 5, 16) : FZ_ONE_OF(f, 1, 2, 5, 16, 23, 40);
    r->chosen = r->groups ? fz_range(f, 1, (int)r->groups) : 0;
    const int64_t most = r->groups ? r->n / r->groups * r->chosen : r->n;
    r->k = fz_chance(f, 20) ? most : fz_range(f, 1, (int)(most < 8 ? most : 8));
    r->type = fz_chance(f, 80) ? sinter_f32 : fz_float(f);
}

/* Scores of each token. Rounded ones have many ties. */
static int scores_of(fz_t *f, const router_t *r)
{
    const int64_t K = FZ_ONE_OF(f, 1, 8, 31, 64), x[2] = {r->tokens, K}, out[2] = {r->tokens, r->n};
    if (fz_chance(f, 40)) {
        const int given = fz_input(f, r->type, 2, out);
        f->tensors[given].nonfinite = fz_chance(f, 20) ? 3 : 0;
        return fz_chance(f, 50) ? fz_unary(f, sinter_op_round, r->type, given) : given;
    }
    const int turned = fz_chance(f, 70);
    const int64_t gate[2] = {turned ? r->n : K, turned ? K : r->n};
    const int a = fz_input(f, r->type, 2, x), b = fz_input(f, r->type, 2, gate);
    if (fz_chance(f, 50)) {
        f->tensors[b].property = sinter_tensor_property_constant;
    }
    const int y = FZ_OP(f, matmul, r->type, 2, out, a, b);
    if (turned) {
        fz_bool(f, sinter_op_attr_transpose_b, 1);
    }
    return y;
}

/* With a bias of a number for each expert, now and then. */
static int biased(fz_t *f, const router_t *r, int x)
{
    return fz_chance(f, 40)
               ? fz_binary(f, sinter_op_add, r->type, x, fz_input(f, r->type, 1, &r->n))
               : x;
}

static int probabilities(fz_t *f, const router_t *r, int x)
{
    const int64_t axis = FZ_ONE_OF(f, -1, 1);
    switch (fz_pick(f, 4)) {
    case 0:
        x = fz_unary(f, sinter_op_softmax, r->type, x);
        fz_s64(f, sinter_op_attr_axis, 1, &axis);
        return x;
    case 1:
        return fz_unary(f, sinter_op_sigmoid, r->type, x);
    case 2:
        x = fz_unary(f, sinter_op_softplus, r->type, x);
        return fz_unary(f, sinter_op_sqrt, r->type, x);
    default:
        return x;
    }
}

/* The k best of the last dim. */
static int top_k(fz_t *f, const router_t *r, int x, int64_t k, int *ids)
{
    int64_t dims[FZ_MAX_RANK];
    const int ndims = f->tensors[x].ndims;
    for (int d = 0; d < ndims; d++) {
        dims[d] = d == ndims - 1 ? k : f->tensors[x].dims[d];
    }
    const int values = FZ_OP(f, top_k, r->type, ndims, dims, x);
    fz_s64(f, sinter_op_attr_k, 1, &k);
    *ids = fz_more_output(f, sinter_s32, ndims, dims);
    return values;
}

static int sum(fz_t *f, const router_t *r, int x, int keep)
{
    const int64_t axis = -1, dims[2] = {r->tokens, keep ? 1 : f->tensors[x].dims[1]};
    const int y = FZ_OP(f, reduce_sum, r->type, 2, dims, x);
    fz_s64(f, sinter_op_attr_axes, 1, &axis);
    fz_bool(f, sinter_op_attr_keep_dims, keep);
    return y;
}

/* What the indices [tokens, k] take of each row of x. */
static int taken(fz_t *f, const router_t *r, int x, int ids)
{
    const int64_t one = 1, dims[3] = {r->tokens, f->tensors[ids].dims[1],
                                      f->tensors[x].ndims > 2 ? f->tensors[x].dims[2] : 1};
    const int y = FZ_OP(f, gather, r->type, f->tensors[x].ndims, dims, x, ids);
    fz_s64(f, sinter_op_attr_axis, 1, &one);
    fz_s64(f, sinter_op_attr_batch_dims, 1, &one);
    return y;
}

/* Scores of other groups than the best become a number that is never chosen. */
static int best_groups(fz_t *f, const router_t *r, int x)
{
    const float never = -1e30f;
    const int64_t each = r->n / r->groups, one = 1, all[2] = {r->tokens, r->n},
                  split[3] = {r->tokens, r->groups, each};
    int ids;
    const int groups = fz_reshape(f, x, 3, split);
    const int two = top_k(f, r, groups, each < 2 ? each : 2, &ids);
    top_k(f, r, sum(f, r, two, 0), r->chosen, &ids);
    const int kept = taken(f, r, groups, ids), none = fz_unary(f, sinter_op_clamp, r->type, groups);
    fz_f32(f, sinter_op_attr_min, 1, &never);
    fz_f32(f, sinter_op_attr_max, 1, &never);
    const int y = FZ_OP(f, scatter_rows, r->type, 3, split, none, ids, kept);
    fz_s64(f, sinter_op_attr_axis, 1, &one);
    fz_s64(f, sinter_op_attr_batch_dims, 1, &one);
    return fz_reshape(f, y, 2, all);
}

static int weighed(fz_t *f, const router_t *r, int x)
{
    const float least = 6e-5f, most = 1e30f;
    const int64_t axis = -1;
    const int how = fz_pick(f, 3);
    if (how == 0) {
        x = fz_unary(f, sinter_op_softmax, r->type, x);
        fz_s64(f, sinter_op_attr_axis, 1, &axis);
    } else if (how == 1) {
        int total = sum(f, r, x, 1);
        if (fz_chance(f, 50)) {
            total = fz_unary(f, sinter_op_clamp, r->type, total);
            fz_f32(f, sinter_op_attr_min, 1, &least);
            fz_f32(f, sinter_op_attr_max, 1, &most);
        }
        x = fz_binary(f, sinter_op_divide, r->type, x, total);
    }
    return fz_chance(f, 40) ? fz_binary(f, sinter_op_multiply, r->type, x, fz_scalar(f, r->type, 1))
                            : x;
}

void fz_gen_router(fz_t *f)
{
    router_t r;
    int ids;
    choose(f, &r);
    const int scores = scores_of(f, &r), p = probabilities(f, &r, biased(f, &r, scores)),
              own = biased(f, &r, p), chosen = r.groups ? best_groups(f, &r, own) : own,
              values = top_k(f, &r, chosen, r.k, &ids);
    f->tensors[ids].keep = fz_chance(f, 80);
    f->tensors[p].keep = f->tensors[p].produced && fz_chance(f, 10);
    int x = chosen == p && fz_chance(f, 50) ? values : taken(f, &r, p, ids);
    x = weighed(f, &r, x);
    if (fz_chance(f, 10)) { /* rows of a table that the router does not know */
        const int64_t table[2] = {r.n, 3}, dims[3] = {r.tokens, r.k, 3};
        FZ_OP(f, gather, r.type, 3, dims, fz_input(f, r.type, 2, table), ids);
    }
    if (fz_chance(f, 30)) {
        fz_post_op(f, x);
    }
}
