#include "base/status.h"
#include "passes/passes.h"

/* op(x : dims) = op(x) : shape_rule(op, dims)
 *
 * Behind it every tensor has a known number of dims, which all other passes and the lowering count
 * on. */
sinter_status_t pass_infer_shapes(graph_t *sub)
{
    SG_TRY(graph_infer_shapes(sub));
    for (int t = 0; t < graph_n_live(sub); t++) {
        const node_t *n = &sub->nodes[sub->topo[t]];
        for (int i = 0; i < n->n_in + n->n_out; i++) {
            const lt_t *lt = &sub->values[i < n->n_in ? n->in[i] : n->out[i - n->n_in]].lt;
            if (lt->ndims < 0) {
                return sg_fail(sinter_unimplemented,
                               "%s: tensor %llu: its number of dims must be known to compile",
                               node_label(n), (unsigned long long)lt->id);
            }
        }
    }
    return sinter_success;
}
