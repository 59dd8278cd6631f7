#include "graph/schema.h"
#include "passes/passes.h"

/* y = op(x) : f16 = op(x) : f32, y inside, bf16 alike
 *
 * Values inside a partition are not rounded to the type that the graph names, in registers or in
 * memory. A view takes over the type of the value that it shows. */
sinter_status_t pass_widen(graph_t *sub)
{
    const bool *loose = pass_find_loose(sub);
    if (loose == NULL) {
        return sinter_out_of_memory;
    }
    for (int t = 0; t < graph_n_live(sub); t++) {
        const node_t *n = &sub->nodes[sub->topo[t]];
        value_t *out = &sub->values[n->out[0]];
        if ((op_flags(n->kind) & OP_VIEW) != 0) {
            out->lt.data_type = sub->values[n->in[0]].lt.data_type;
        } else if (loose[n->out[0]] && pass_is_f32_like(out->lt.data_type)) {
            out->lt.data_type = sinter_f32;
        }
    }
    return sinter_success;
}
