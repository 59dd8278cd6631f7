/* What Gather and ScatterRows have in common: rows of a tensor that indices name. */
#ifndef SINTER_SRC_INDEXED_H
#define SINTER_SRC_INDEXED_H

#include "backend_xsmm/plan/emit.h"

static inline sinter_status_t indexed_emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    const node_t *n = emit_heavy(e, cl);
    const node_t *of_rows =
        n->kind == sinter_op_gather ? graph_gather_of_rows(e->lo->g, n->in[1]) : NULL;
    step->p.index = (index_params_t){.data = n->in[0],
                                     .indices = n->in[1],
                                     .updates = n->n_in > 2 ? n->in[2] : -1,
                                     .out = n->out[0],
                                     .axis = (int)node_s64(n, sinter_op_attr_axis, 0),
                                     .batch = (int)node_s64(n, sinter_op_attr_batch_dims, 0),
                                     .table = of_rows != NULL ? of_rows->in[0] : -1,
                                     .rows = of_rows != NULL ? of_rows->in[1] : -1};
    return sinter_success;
}

#endif
