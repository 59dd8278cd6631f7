#include "graph/schema.h"
#include "passes/passes.h"

/* op(cast(x)) = op(x), both types wide floats
 *
 * Views over a dropped cast take over the type of x. */
sinter_status_t pass_drop_casts(graph_t *sub)
{
    bool *loose = pass_find_loose(sub);
    int *source =
        ARENA_NEW(&sub->arena, int,
                  sub->n_values + 1); /* by value: what to read instead, plus one; 0: itself */
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
        if ((op_flags(n->kind) & OP_VIEW) != 0) {
            out->lt.data_type = from;
        } else if (n->kind == sinter_op_type_cast && pass_is_f32_like(from) &&
                   pass_is_f32_like(out->lt.data_type) && loose[n->out[0]]) {
            source[n->out[0]] = n->in[0] + 1;
            n->dead = true;
            out->producer = -1;
        }
    }
    return sinter_success;
}
