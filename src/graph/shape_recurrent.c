/* Check and shape rule of LinearAttention. */
#include <string.h>

#include "graph/linear_attention.h"
#include "graph/schema.h"
#include "graph/shape.h"

sinter_status_t check_linear_attention(const node_t *node, const lt_t *in, const lt_t *out)
{
    const linear_ports_t p = linear_ports(node);
    if (node->n_in < p.least || node->n_in > p.least + 2) {
        return FAIL_OP(node,
                       "mode %s takes %d inputs, and perhaps one or two tensors of indices; %d "
                       "inputs are given",
                       node_str(node, sinter_op_attr_mode, ""), p.least, node->n_in);
    }
    for (int i = 4; i < node->n_in; i++) {
        const bool index = in[i].data_type == sinter_s32 || in[i].data_type == sinter_s64;
        if (index != (i >= p.least)) {
            return FAIL_TYPE(node, "tensor %" PRIu64 " is %s, %s expected in mode %s", in[i].id,
                             sinter_data_type_name(in[i].data_type),
                             index ? "a float is" : "indices of s32 or s64 are",
                             node_str(node, sinter_op_attr_mode, ""));
        }
    }
    return in[3].data_type == out[1].data_type
               ? sinter_success
               : FAIL_TYPE(node,
                           "tensor %" PRIu64 " is %s and tensor %" PRIu64
                           " is %s, but a state keeps its type",
                           in[3].id, sinter_data_type_name(in[3].data_type), out[1].id,
                           sinter_data_type_name(out[1].data_type));
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static sinter_status_t check_rank(const node_t *node, const lt_t *lt, const char *what, int rank)
{
    return lt->ndims < 0 || lt->ndims == rank
               ? sinter_success
               : FAIL_SHAPE(node, "%s, tensor %" PRIu64 ", has %d dimensions, %d are expected",
                            what, lt->id, (int)lt->ndims, rank);
}

/* Batch, sequence and heads of decay or beta, whose last dim is 1 or, if it may be, `columns`. */
static sinter_status_t unify_gate(const node_t *node, lt_t *gate, lt_t *v, int64_t columns)
{
    if (gate->ndims < 0) {
        return sinter_success;
    }
    for (int d = 0; d < 3; d++) {
        SG_TRY(shape_unify(node, gate, d, &v->dims[d]));
    }
    const int64_t last = gate->dims[3];
    return !dim_known(last) || last == 1 || last == columns || columns == UNKNOWN
               ? sinter_success
               : FAIL_SHAPE(node,
                            "dimension 3 of tensor %" PRIu64 " is %" PRId64
                            ", expected 1 or the %" PRId64 " elements of a key",
                            gate->id, last, columns);
}

/* Heads of q or k divide those of v. */
static sinter_status_t check_heads(const node_t *node, const lt_t *few, const lt_t *v)
{
    return !dim_known(few->dims[2]) || !dim_known(v->dims[2]) ||
                   (few->dims[2] > 0 ? v->dims[2] % few->dims[2] == 0 : v->dims[2] == 0)
               ? sinter_success
               : FAIL_SHAPE(node,
                            "%" PRId64 " heads of tensor %" PRIu64 " do not divide the %" PRId64
                            " heads of tensor %" PRIu64,
                            few->dims[2], few->id, v->dims[2], v->id);
}

/* q, k, a or b: a vector of the elements of a key for each token, and for a number of heads that
 * divides that of v. */
static sinter_status_t unify_vectors(const node_t *node, lt_t *few, lt_t *v, int64_t *keys)
{
    if (few->ndims < 0) {
        return sinter_success;
    }
    SG_TRY(shape_unify(node, few, 0, &v->dims[0]));
    SG_TRY(shape_unify(node, few, 1, &v->dims[1]));
    SG_TRY(check_heads(node, few, v));
    return shape_unify(node, few, 3, keys);
}

/* q and k are [batch, sequence, heads of q and k, Dk], v [batch, sequence, heads, Dv], the state
 * [batch or slots, heads, Dv, Dk]. */
sinter_status_t shape_linear_attention(const node_t *node, lt_t *in, lt_t *out)
{
    static const char *const names[] = {"q", "k", "v", "the state"};
    const linear_ports_t p = linear_ports(node);
    lt_t *q = &in[0], *k = &in[1], *v = &in[2], *state = &in[3];
    for (int i = 0; i < 4; i++) {
        SG_TRY(check_rank(node, &in[i], names[i], 4));
    }
    if (p.decay >= 0) {
        SG_TRY(check_rank(node, &in[p.decay], "the decay", 4));
    }
    if (p.beta >= 0) {
        SG_TRY(check_rank(node, &in[p.beta], "beta", 4));
    }
    if (p.bonus >= 0) {
        SG_TRY(check_rank(node, &in[p.bonus], "the bonus", 2));
    }
    if (p.a >= 0) {
        SG_TRY(check_rank(node, &in[p.a], "a", 4));
        SG_TRY(check_rank(node, &in[p.b], "b", 4));
    }
    if (q->ndims < 0 || k->ndims < 0 || v->ndims < 0 || state->ndims < 0) {
        return sinter_success;
    }
    SG_TRY(unify_vectors(node, q, v, &q->dims[3]));
    SG_TRY(unify_vectors(node, k, v, &q->dims[3]));
    SG_TRY(shape_unify(node, state, 1, &v->dims[2]));
    SG_TRY(shape_unify(node, state, 2, &v->dims[3]));
    SG_TRY(shape_unify(node, state, 3, &q->dims[3]));
    if (p.decay >= 0) {
        SG_TRY(unify_gate(node, &in[p.decay], v, q->dims[3]));
    }
    if (p.beta >= 0) {
        SG_TRY(unify_gate(node, &in[p.beta], v, 1));
    }
    if (p.bonus >= 0 && in[p.bonus].ndims >= 0) {
        SG_TRY(shape_unify(node, &in[p.bonus], 0, &v->dims[2]));
        SG_TRY(shape_unify(node, &in[p.bonus], 1, &q->dims[3]));
    }
    if (p.a >= 0) {
        SG_TRY(unify_vectors(node, &in[p.a], v, &q->dims[3]));
        SG_TRY(unify_vectors(node, &in[p.b], v, &q->dims[3]));
    }
    for (int i = p.least; i < node->n_in; i++) {
        SG_TRY(check_rank(node, &in[i], "an index tensor", 1));
        if (in[i].ndims >= 0) {
            SG_TRY(shape_unify(node, &in[i], 0, &v->dims[0]));
        }
    }
    if (p.from < 0) {
        SG_TRY(shape_unify(node, state, 0, &v->dims[0]));
    }
    SG_TRY(shape_put(node, &out[0], 4, v->dims));
    int64_t next[4];
    memcpy(next, state->dims, sizeof next);
    if (p.to < 0) {
        next[0] = v->dims[0];
    }
    return shape_put(node, &out[1], 4, next);
}
