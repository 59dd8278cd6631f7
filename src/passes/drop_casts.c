#include "../graph/dtype.h"
#include "../graph/schema.h"
#include "passes.h"

static bool is_view(const node_t *n)
{
    return (op_flags(n->kind) & OP_VIEW) != 0;
}

/* Types whose roundings a fused partition leaves out, computed in f32. */
static bool is_f32_like(sinter_data_type_t type)
{
    return dtype_is_wide_float(type) && !dtype_needs_f64(type);
}

/* By value: its type may change, because the views over it may change theirs with it and none of them is an output. */
static bool *find_loose(const graph_t *sub, arena_t *arena)
{
    bool *loose = ARENA_NEW(arena, bool, sub->n_values + 1);
    for (int v = 0; loose != NULL && v < sub->n_values; v++) {
        loose[v] = !sub->values[v].is_output;
    }
    for (int t = graph_n_live(sub) - 1; loose != NULL && t >= 0; t--) {
        const node_t *n = &sub->nodes[sub->topo[t]];
        if (is_view(n) && !loose[n->out[0]]) {
            loose[n->in[0]] = false;
        }
    }
    return loose;
}

/* op(cast(x)) = op(x), both types wide floats
 *
 * Views over a dropped cast take over the type of x. */
sinter_status_t pass_drop_casts(graph_t *sub)
{
    bool *loose = find_loose(sub, &sub->arena);
    int *source = ARENA_NEW(&sub->arena, int, sub->n_values + 1); /* by value: what to read instead, plus one; 0: itself */
    if (loose == NULL || source == NULL) {
        return sinter_out_of_memory;
    }
    for (int t = 0; t < graph_n_live(sub); t++) {
        node_t *n = &sub->nodes[sub->topo[t]];
        for (int i = 0; i < n->n_in; i++) {
            n->in[i] = source[n->in[i]] > 0 ? source[n->in[i]] - 1 : n->in[i];
        }
        const sinter_data_type_t from = sub->values[n->in[0]].lt.data_type;
        value_t *out = &sub->values[n->out[0]];
        if (is_view(n)) {
            out->lt.data_type = from;
        } else if (n->kind == sinter_op_type_cast && is_f32_like(from) && is_f32_like(out->lt.data_type) && loose[n->out[0]]) {
            source[n->out[0]] = n->in[0] + 1;
            n->dead = true;
            out->producer = -1;
        }
    }
    return sinter_success;
}
