#include "passes.h"

/* {y = op(x); } = {}, y unused
 *
 * Uses by the dequantisations that ride on matmul operands count: their scales are read. */
sinter_status_t pass_dead_code(graph_t *sub)
{
    bool *used = ARENA_NEW(&sub->arena, bool, sub->n_values + 1);
    if (used == NULL) {
        return sinter_out_of_memory;
    }
    for (int t = graph_n_live(sub) - 1; t >= 0; t--) {
        node_t *n = &sub->nodes[sub->topo[t]];
        n->dead = true;
        for (int o = 0; o < n->n_out; o++) {
            n->dead = n->dead && !used[n->out[o]] && !sub->values[n->out[o]].is_output;
        }
        for (int o = 0; o < n->n_out && n->dead; o++) {
            sub->values[n->out[o]].producer = -1;
        }
        for (int i = 0; i < n->n_in && !n->dead; i++) {
            const node_t *dq = n->in_dequant != NULL ? n->in_dequant[i] : NULL;
            used[n->in[i]] = true;
            for (int k = 0; dq != NULL && k < dq->n_in; k++) {
                used[dq->in[k]] = true;
            }
        }
    }
    return sinter_success;
}
