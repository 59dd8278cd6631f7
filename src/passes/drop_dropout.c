#include "base/status.h"
#include "passes/passes.h"

/* Dropout(x, seed, offset, 0) = cast(x)
 *
 * Dropout runs for inference alone, where its probability is 0. Execute checks that for the ops in
 * the list of dropouts. */
sinter_status_t pass_drop_dropout(graph_t *sub)
{
    for (int t = 0; t < graph_n_live(sub); t++) {
        const int node = sub->topo[t];
        if (sub->nodes[node].kind != sinter_op_dropout) {
            continue;
        }
        if (!arena_grow(&sub->arena, (void **)&sub->dropouts, &sub->cap_dropouts, sub->n_dropouts,
                        sizeof(int))) {
            return sinter_out_of_memory;
        }
        sub->dropouts[sub->n_dropouts++] = node;
        sub->nodes[node].dead = true;
        SG_TRY(pass_add_unary(sub, sinter_op_type_cast, sub->nodes[node].in[0],
                              sub->nodes[node].out[0], NULL, 0));
    }
    return sinter_success;
}
