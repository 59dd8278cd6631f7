#include "patterns/predicates.h"

#include <string.h>

#include "graph/pages.h"
#include "graph/quant.h"
#include "graph/quant_view.h"
#include "graph/schema.h"
#include "graph/shape.h"
#include "numeric/dtype.h"

static const lt_t *lt_of(const match_t *m, int v)
{
    return &m->g->values[v].lt;
}

/* ---- limits ---------------------------------------------------------------------------------- */

const char *pat_within_limits(const match_t *m)
{
    for (int i = 0; i < m->n; i++) {
        const node_t *n = &m->g->nodes[m->node[i]];
        const char *why = op_limit(m->g, n);
        if (why != NULL) {
            return match_reason(m, "%s: %s", node_label(n), why);
        }
    }
    return NULL;
}

/* ---- attention ------------------------------------------------------------------------------- */

static const char *role_of(const match_t *m, int node)
{
    return m->at[node] >= 0 ? m->pattern->nodes[m->of[m->at[node]]].role : "";
}

/* The second matmul and the port at which the probabilities arrive; the other one has V. */
static const node_t *second_matmul(const match_t *m, int *port)
{
    const node_t *pv = match_role(m, "pv", 0), *turned = match_role(m, "turned_pv", 0);
    *port = 0;
    if (turned != NULL) {
        const int p = m->g->values[turned->in[1]].producer;
        *port = p >= 0 &&
                (strcmp(role_of(m, p), "p_post") == 0 || strcmp(role_of(m, p), "softmax") == 0);
    }
    return pv != NULL ? pv : turned;
}

const char *pat_plain_matmuls(const match_t *m)
{
    int port;
    const node_t *const matmuls[] = {match_role(m, "qk", 0), second_matmul(m, &port)};
    for (int r = 0; r < 2; r++) {
        const node_t *n = matmuls[r];
        if (n->n_in > 2) {
            return match_reason(m, "%s has a bias", node_label(n));
        }
        for (int i = 0; i < 2; i++) {
            const int ndims = lt_of(m, n->in[i])->ndims;
            if (ndims < 2) {
                return match_reason(m, "%s has an operand of %s", node_label(n),
                                    ndims < 0 ? "unknown rank" : "less than two dims");
            }
        }
    }
    return NULL;
}

const char *pat_plain_probabilities(const match_t *m)
{
    return node_bool(match_role(m, "pv", 0), sinter_op_attr_transpose_a, false)
               ? "the second matmul transposes the probabilities"
               : NULL;
}

const char *pat_softmax_over_keys(const match_t *m)
{
    const node_t *n = match_role(m, "softmax", 0);
    const int64_t axis = node_s64(n, sinter_op_attr_axis, 1);
    const int ndims = lt_of(m, n->in[0])->ndims;
    return axis == -1 || axis == ndims - 1
               ? NULL
               : match_reason(m, "%s is not over the last axis", node_label(n));
}

const char *pat_values_batch(const match_t *m)
{
    int port;
    const node_t *pv = second_matmul(m, &port);
    const lt_t *p = lt_of(m, pv->in[port]), *v = lt_of(m, pv->in[1 - port]);
    const int shift = p->ndims - v->ndims;
    for (int d = 0; d < v->ndims - 2; d++) {
        const int64_t b = shift + d >= 0 ? p->dims[shift + d] : 1, c = v->dims[d];
        if (b != c && c != 1 && b != SINTER_UNKNOWN_DIM && c != SINTER_UNKNOWN_DIM) {
            return match_reason(m, "tensor %llu has batch dims that the scores lack",
                                (unsigned long long)v->id);
        }
    }
    return NULL;
}

/* Walks up from an operand over views and casts of the match to a dequantisation; then its
 * scales' dims must come through the same views downwards. */
static const char *operand_geometry(const match_t *m, int v)
{
    const node_t *views[QUANT_MAX_VIEWS];
    int n_views = 0;
    for (int p = m->g->values[v].producer; p >= 0 && m->at[p] >= 0;
         p = m->g->values[m->g->nodes[p].in[0]].producer) {
        const node_t *n = &m->g->nodes[p];
        const unsigned classes = pat_classes(n);
        if (classes == PAT_VIEW) {
            if (n_views == QUANT_MAX_VIEWS) {
                return match_reason(m, "too many views above tensor %llu",
                                    (unsigned long long)lt_of(m, v)->id);
            }
            views[n_views++] = n;
        } else if (classes == PAT_DEQUANT) {
            for (int zero_points = 0; zero_points < 2; zero_points++) {
                quant_dims_t dims;
                if (!quant_full_dims(m->g, n, zero_points != 0, &dims)) {
                    continue;
                }
                for (int i = n_views - 1; i >= 0; i--) {
                    const char *why = quant_dims_through_view(views[i], lt_of(m, views[i]->in[0]),
                                                              lt_of(m, views[i]->out[0]), &dims);
                    if (why != NULL) {
                        return match_reason(m, "groups of %s do not fit %s: %s", node_label(n),
                                            node_label(views[i]), why);
                    }
                }
            }
            return NULL;
        } else if (classes != PAT_CAST) {
            return NULL;
        }
    }
    return NULL;
}

const char *pat_key_geometry(const match_t *m)
{
    int port;
    const node_t *qk = match_role(m, "qk", 0), *pv = second_matmul(m, &port);
    const int operands[] = {qk->in[0], qk->in[1], pv->in[1 - port]};
    for (int i = 0; i < 3; i++) {
        const char *why = operand_geometry(m, operands[i]);
        if (why != NULL) {
            return why;
        }
    }
    return NULL;
}

/* ---- caches in pages ------------------------------------------------------------------------- */

/* The dim of tokens of the second operand of a product of attention. */
static int dim_of_tokens(const match_t *m, const node_t *product, bool is_k)
{
    const int last = lt_of(m, product->in[1])->ndims - 1;
    return node_bool(product, sinter_op_attr_transpose_b, false) == is_k ? last - 1 : last;
}

/* How a value of the match comes from blocks; `first` has no node yet, or is what it must be like.
 * *any: a Gather is there. */
static const char *part_in_pages(const match_t *m, int v, int tokens, pages_of_t *first, bool *any)
{
    pages_of_t of;
    const char *why;
    const node_t *gather = graph_gather_shown(m->g, v);
    const unsigned long long id = lt_of(m, v)->id;
    *any = *any || gather != NULL;
    if (!graph_pages(m->g, v, tokens, &of, &why)) {
        return why != NULL ? match_reason(m, "tensor %llu is not read in pages: %s", id, why)
                           : match_reason(m, "tensor %llu is not taken from blocks", id);
    }
    if (m->at[of.gather] < 0) {
        return match_reason(m, "%s is read by others, too, or depends on this", node_label(gather));
    }
    if (first->table < 0) {
        *first = of;
    }
    return graph_pages_alike(m->g, first, &of)
               ? NULL
               : match_reason(m, "tensor %llu has a table or blocks of its own", id);
}

/* The same of an operand, which may be dequantised. */
static const char *operand_in_pages(const match_t *m, const node_t *product, bool is_k,
                                    pages_of_t *first, bool *any)
{
    int v = product->in[1], tokens = dim_of_tokens(m, product, is_k);
    const node_t *n = NULL;
    for (int p = m->g->values[v].producer; p >= 0 && m->at[p] >= 0 && tokens >= 0;
         p = m->g->values[v].producer) {
        n = &m->g->nodes[p];
        const unsigned classes = pat_classes(n);
        const bool view = classes == PAT_VIEW || classes == PAT_SLICE;
        if (!(view || classes == PAT_CAST) || (view && graph_gather_shown(m->g, v) != NULL)) {
            break;
        }
        tokens = view ? graph_dim_above(m->g, n, tokens) : tokens;
        v = n->in[0];
    }
    if (n == NULL || pat_classes(n) != PAT_DEQUANT) {
        return tokens < 0 ? "" : part_in_pages(m, v, tokens, first, any);
    }
    const char *why = tokens < 0 ? "" : part_in_pages(m, n->in[0], tokens, first, any);
    const quant_t *q = n->quant;
    const int ports[] = {q->scale_input, q->zp_input};
    for (int i = 0; i < 2 && why == NULL; i++) {
        const int side = ports[i] < 0 ? -1 : n->in[ports[i]],
                  dim = i == 0 ? q->geom.scale_dim[tokens] : q->geom.zp_dim[tokens];
        if (side >= 0 && dim >= 0 && lt_of(m, side)->dims[dim] != 1) {
            why = part_in_pages(m, side, dim, first, any);
        }
    }
    return why == NULL && quant_split_of(n) != sinter_data_type_undef
               ? match_reason(m, "%s reads codes in two planes", node_label(n))
               : why;
}

const char *pat_reads_pages(const match_t *m)
{
    pages_of_t first = {.table = -1};
    bool any = false;
    const char *why = operand_in_pages(m, match_role(m, "qk", 0), true, &first, &any);
    if (why == NULL) {
        why = operand_in_pages(m, match_role(m, "pv", 0), false, &first, &any);
    } else { /* where V is in pages, K must be told about, too */
        const bool told = any;
        (void)operand_in_pages(m, match_role(m, "pv", 0), false, &first, &any);
        why = told || !any ? why : "K is not taken from blocks";
    }
    return any ? why : why != NULL ? "" : NULL;
}

/* Why a view between the matmuls is none that the operands can take over. */
static const char *refuse_score_view(const match_t *m, const node_t *n)
{
    if (n->kind == sinter_op_static_reshape) {
        return match_reason(m, "%s reshapes the scores", node_label(n));
    }
    return n->kind == sinter_op_static_transpose &&
                   node_swaps_matrix(n, lt_of(m, n->in[0])->ndims) < 0
               ? match_reason(m, "%s moves more than the last two dims of the scores",
                              node_label(n))
               : NULL;
}

/* Why an op between the matmuls, or one beside them, cannot be moved over a transpose. */
static const char *refuse_to_turn(const match_t *m, int i)
{
    const node_t *n = &m->g->nodes[m->node[i]];
    const char *role = role_of(m, m->node[i]);
    const bool post = strcmp(role, "p_post") == 0;
    if (strcmp(role, "score_views") == 0 || (post && pat_classes(n) == PAT_VIEW)) {
        return refuse_score_view(m, n);
    }
    if (!post && strcmp(role, "score") != 0 && strcmp(role, "softmax") != 0) {
        return NULL;
    }
    if (op_by_channels(n->kind)) {
        return match_reason(m, "%s works on channels", node_label(n));
    }
    if (post && (pat_classes(n) & (PAT_QUANT | PAT_DEQUANT)) != 0 &&
        (n->n_in > 1 || n->quant->type != QUANT_PER_TENSOR)) {
        return match_reason(m, "%s has more than one scale", node_label(n));
    }
    return n->kind == sinter_op_softmax && n->n_out > 1
               ? match_reason(m, "%s has statistics", node_label(n))
               : NULL;
}

const char *pat_turns_to_plain(const match_t *m)
{
    enum { MAX_OPS = 256 }; /* the pass calls itself for each op above another one */
    int port;
    const node_t *pv = second_matmul(m, &port), *softmax = match_role(m, "softmax", 0);
    if (m->n > MAX_OPS) {
        return "too many ops to move over a transpose";
    }
    if (pv->in[0] == pv->in[1]) {
        return match_reason(m, "%s multiplies the probabilities with themselves", node_label(pv));
    }
    for (int i = 0; i < m->n; i++) {
        const char *why = refuse_to_turn(m, i);
        if (why != NULL) {
            return why;
        }
    }
    bool turned = node_bool(pv, port == 0 ? sinter_op_attr_transpose_a : sinter_op_attr_transpose_b,
                            false) == (port == 0);
    for (const node_t *n = pv; n != softmax;) {
        const int v = n->in[n == pv ? port : 0];
        n = &m->g->nodes[m->g->values[v].producer];
        turned = turned != (n->kind == sinter_op_static_transpose &&
                            node_swaps_matrix(n, lt_of(m, v)->ndims) == 1);
    }
    const int ndims = lt_of(m, softmax->in[0])->ndims;
    const int64_t axis = node_s64(softmax, sinter_op_attr_axis, 1);
    return (axis < 0 ? axis + ndims : axis) == ndims - (turned ? 2 : 1)
               ? NULL
               : match_reason(m, "%s is not over the axis that %s reduces", node_label(softmax),
                              node_label(pv));
}

/* ---- gated MLP ------------------------------------------------------------------------------- */

/* What an operand is before the casts, views, quantisations and dequantisations of the match. */
static int origin(const match_t *m, int v)
{
    const unsigned pass = PAT_CAST | PAT_VIEW | PAT_QUANT | PAT_DYNQUANT | PAT_DEQUANT;
    int p = m->g->values[v].producer;
    while (p >= 0 && m->at[p] >= 0 && (pat_classes(&m->g->nodes[p]) & pass) != 0) {
        v = m->g->nodes[p].in[0];
        p = m->g->values[v].producer;
    }
    return v;
}

const char *pat_same_input(const match_t *m)
{
    const node_t *gate = match_role(m, "gate", 0), *up = match_role(m, "up", 0);
    return origin(m, gate->in[0]) == origin(m, up->in[0])
               ? NULL
               : match_reason(m, "%s and %s project different tensors", node_label(gate),
                              node_label(up));
}

enum { FROM_FIRST = 1, FROM_SECOND = 2, MAX_JOIN_OPS = 256 };

/* Which of two products each op of the match is computed from, until nothing changes. */
static void trace_products(const match_t *m, const node_t *first, const node_t *second,
                           unsigned char *from)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int k = 0; k < m->n; k++) {
            const node_t *n = &m->g->nodes[m->node[k]];
            unsigned char now = n == first ? FROM_FIRST : n == second ? FROM_SECOND : 0;
            for (int i = 0; i < n->n_in && (pat_classes(n) & OP_MATMUL) == 0; i++) {
                const int p = m->g->values[n->in[i]].producer;
                now |= p >= 0 && m->at[p] >= 0 ? from[m->at[p]] : 0;
            }
            changed = changed || now != from[k];
            from[k] = now;
        }
    }
}

/* The ports at which an op takes something made from one product alone, -1: none. */
typedef struct join {
    int first, second;
} join_t;

static join_t ports_of(const match_t *m, const node_t *n, const unsigned char *from)
{
    join_t join = {-1, -1};
    for (int i = 0; i < n->n_in && (pat_classes(n) & OP_MATMUL) == 0; i++) {
        const int p = m->g->values[n->in[i]].producer;
        const unsigned char source = p >= 0 && m->at[p] >= 0 ? from[m->at[p]] : 0;
        join.first = source == FROM_FIRST ? i : join.first;
        join.second = source == FROM_SECOND ? i : join.second;
    }
    return join;
}

/* The op where the products of two roles meet, NULL with *why if there is none. */
static const node_t *joining_op(const match_t *m, const char *first, const char *second,
                                join_t *join, const char **why)
{
    unsigned char from[MAX_JOIN_OPS] = {0};
    *why = "too many ops to see where the two products meet";
    if (m->n > MAX_JOIN_OPS) {
        return NULL;
    }
    trace_products(m, match_role(m, first, 0), match_role(m, second, 0), from);
    for (int k = 0; k < m->n; k++) {
        const node_t *n = &m->g->nodes[m->node[k]];
        *join = ports_of(m, n, from);
        if (join->first >= 0 && join->second >= 0) {
            return n;
        }
    }
    *why = "no op joins the two products";
    return NULL;
}

const char *pat_joined_by_multiply(const match_t *m)
{
    const char *why;
    join_t join;
    const node_t *n = joining_op(m, "gate", "up", &join, &why);
    if (n == NULL) {
        return why;
    }
    return n->kind == sinter_op_multiply
               ? NULL
               : match_reason(m, "%s joins the two products, not a Multiply", node_label(n));
}

/* ---- zero points apart ----------------------------------------------------------------------- */

static int64_t reduced(const match_t *m, const node_t *matmul)
{
    const lt_t *a = lt_of(m, matmul->in[0]);
    const int from_end =
        node_bool(matmul, sinter_op_attr_transpose_a, false) && a->ndims > 1 ? 2 : 1;
    return a->ndims < 1 ? SINTER_UNKNOWN_DIM : a->dims[a->ndims - from_end];
}

const char *pat_sums_of_groups(const match_t *m)
{
    const node_t *matmul = match_role(m, "matmul", 0), *sums = match_role(m, "sums", 0);
    const int64_t k = reduced(m, matmul), groups = reduced(m, sums);
    if (k <= 0 || groups <= 0 || groups >= k || k % groups != 0) {
        return match_reason(m, "%s does not reduce one element for each group of those of %s",
                            node_label(sums), node_label(matmul));
    }
    for (int v = sums->in[1], p = m->g->values[v].producer; p >= 0 && m->at[p] >= 0;
         p = m->g->values[m->g->nodes[p].in[0]].producer) {
        if ((pat_classes(&m->g->nodes[p]) & PAT_DEQUANT) != 0) {
            return NULL;
        }
    }
    return match_reason(m, "%s has no dequantised zero points", node_label(sums));
}

const char *pat_subtracts_sums(const match_t *m)
{
    const char *why;
    join_t join;
    const node_t *n = joining_op(m, "matmul", "sums", &join, &why);
    if (n == NULL) {
        return why;
    }
    const bool subtracts = n->kind == sinter_op_subtract && join.second == 1;
    return subtracts ? NULL
                     : match_reason(m, "%s does not subtract the product of sums", node_label(n));
}

/* ---- chains ---------------------------------------------------------------------------------- */

const char *pat_moves_elements(const match_t *m)
{
    for (int i = 0; i < m->n; i++) {
        if ((pat_classes(&m->g->nodes[m->node[i]]) & PAT_VIEW) != 0) {
            return NULL;
        }
    }
    return "no view among its ops";
}
