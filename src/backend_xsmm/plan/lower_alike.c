/* Which values have the same dims, where compile does not know all of them. A step computes its
 * elementwise nodes in registers over one iteration space, which is right only if their results
 * have its dims. An unknown dim may turn out to be 1 and broadcast:
 *
 *     y[?, N] = MatMul(x[?, K], w) + r[?, N]      x may have one row, and r and y five
 *
 * So some dims are surely the same, and others are assumed to be. A plan says what it assumes, and
 * runs only where that holds. */
#include "backend_xsmm/plan/lower.h"
#include "graph/schema.h"

/* Value v broadcasts to value w without changing w's dims, whatever the unknown dims are: one next
 * to a known dim other than 1 is 1 or the same. */
static bool surely_broadcasts(const lowering_t *lo, int v, int w)
{
    const lt_t *a = &lo->g->values[v].lt, *b = &lo->g->values[w].lt;
    bool sure = a->ndims >= 0 && a->ndims <= b->ndims;
    for (int d = 1; d <= a->ndims && sure; d++) {
        const int64_t x = a->dims[a->ndims - d], y = b->dims[b->ndims - d];
        sure = x == 1 || (y != 1 && y != SINTER_UNKNOWN_DIM);
    }
    return sure || lo->alike[v] == lo->alike[w];
}

/* The input that surely has the dims of output 0; -1: none has. */
static int input_alike(const lowering_t *lo, const node_t *n)
{
    const unsigned by_data =
        OP_QUANT | OP_DEQUANT | OP_NORM | OP_SOFTMAX | OP_LOG_SOFTMAX | OP_ROTARY;
    if ((op_flags(n->kind) & by_data) != 0 || op_by_channels(n->kind) ||
        n->kind == sinter_op_gen_index) {
        return n->in[0];
    }
    for (int i = 0; i < n->n_in && lower_is_eltwise(n->kind); i++) {
        bool all = true;
        for (int k = 0; k < n->n_in; k++) {
            all = all && surely_broadcasts(lo, n->in[k], n->in[i]);
        }
        if (all) {
            return n->in[i];
        }
    }
    return -1;
}

void lower_alike(lowering_t *lo)
{
    const graph_t *g = lo->g;
    for (int v = 0; v < g->n_values; v++) {
        lo->alike[v] = v;
    }
    for (int t = 0; t < graph_n_live(g); t++) {
        const node_t *n = &g->nodes[g->topo[t]];
        const int like = n->n_in > 0 && n->n_out > 0 ? input_alike(lo, n) : -1;
        if (like >= 0) {
            lo->alike[n->out[0]] = lo->alike[like];
        }
    }
}

sinter_status_t lower_same_space(lowering_t *lo, int value, int as, bool *same)
{
    plan_t *plan = lo->plan;
    const int from = lo->alike[value], to = lo->alike[as];
    const lt_t *a = &lo->g->values[value].lt, *b = &lo->g->values[as].lt;
    const bool sure = from == to || (lt_dims_known(a) && lt_dims_known(b));
    *same = lt_same_dims(&lo->probe[value], &lo->probe[as]) && (sure || lo->assumes);
    if (sure || !*same) {
        return sinter_success;
    }
    if (!arena_grow(&plan->arena, (void **)&plan->assumed, &plan->cap_assumed, plan->n_assumed,
                    sizeof(same_dims_t))) {
        return sinter_out_of_memory;
    }
    plan->assumed[plan->n_assumed++] = (same_dims_t){value, as, false};
    for (int v = 0; v < lo->g->n_values; v++) {
        lo->alike[v] = lo->alike[v] == from ? to : lo->alike[v];
    }
    return sinter_success;
}
