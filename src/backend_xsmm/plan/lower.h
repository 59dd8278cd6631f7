/* From a rewritten subgraph to steps. Four stages, a file each, and one that looks at masks. They
 * decide on representative dims (graph_representative_dims); a plan depends on none of them.
 *   lower_group.c   which nodes run together: heavy nodes (MatMul, SoftMax, attention) with the
 *                   elementwise work that can ride on them
 *   lower_memory.c  which values live where: ports, temporaries, views, and the copies no view
 *   can replace
 *   lower_emit.c    chains and kernel parameters
 *   lower_constants.c  which constant weights are read from the constant cache
 *   lower_mask.c    which columns the masks of an attention group leave to each row */
#ifndef SINTER_SRC_LOWER_H
#define SINTER_SRC_LOWER_H

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/plan.h"
#include "graph/quant.h"

/* Nodes that become one step. */
typedef struct group {
    step_kind_t kind;
    /* node: MatMul, SoftMax, LogSoftmax, DynamicQuantize; the PV MatMul for attention; -1 for a
     * chain or a copy */
    int heavy;
    int dims_value; /* graph value whose dims are the iteration space of the chain */
    int *nodes;     /* elementwise nodes in evaluation order */
    int n_nodes, cap_nodes;
    int tail;          /* node: a DynamicQuantize run on the results of this step; -1: none */
    const char *apart; /* of a DynamicQuantize: why it is a step of its own */
    int cost;          /* estimate of chain instructions */
    int pos;           /* main groups: their index; copies: the group they follow */
    /* A copy: reads plan value `copy_from`, writes `copy_to`, both in the dims of dims_value. */
    bool copy;
    int copy_from, copy_to;
} group_t;

/* The parts of an attention group. */
typedef struct attention_parts {
    int qk, softmax, pv; /* nodes; -1 until met */
    group_t score, prob; /* only nodes and counts are used */
} attention_parts_t;

/* Attribute scales and zero points that have become constant values. */
typedef struct const_pair {
    const node_t *node;
    bool int_zps;
    int scale, zp;
    struct const_pair *next;
} const_pair_t;

typedef struct lowering {
    plan_t *plan;
    graph_t *g;          /* &plan->sub */
    bool attention;      /* lower as FAMILY_ATTENTION */
    int max_cost;        /* of a group's chain */
    const char *why_not; /* why attention was given up */
    /* By graph value: the tensor with representative numbers for unknown dims, by which views and
     * joins are decided. */
    lt_t *probe;
    group_t *groups;
    int n_groups, cap_groups;
    int *home;  /* by graph value: group that has it in a register; -1 */
    int *ready; /* by graph value: group after which it can be in memory; -1: from the start */
    /* By node: elementwise over tensors from outside only, computed in each group that needs it. */
    bool *floating;
    bool *stored; /* by graph value: must be in memory */
    char *spine;  /* by graph value inside attention: score or probability, else 0 */
    attention_parts_t att;
    bound_t *bound; /* by plan value: probe dims and strides, once placed */
    bool *placed;   /* by plan value */
    int cap_values;
    const_pair_t *consts;
} lowering_t;

bool lower_is_eltwise(sinter_op_kind_t kind);
bool lower_is_view(const node_t *node);
bool lower_same_dims(const lt_t *a, const lt_t *b);
sinter_status_t lower_group(lowering_t *lo);
int lower_new_group(lowering_t *lo, step_kind_t kind, int heavy, int dims_value,
                    int pos); /* -1: out of memory */
sinter_status_t lower_memory(lowering_t *lo);
sinter_status_t lower_emit(lowering_t *lo);
void lower_constants(plan_t *plan);
/* The limits, and the graph value under the masks of which all is known (n_bare limits); -1:
 * there is none. */
int lower_mask_limits(const lowering_t *lo, attention_params_t *p);
/* Of a quantising node; unknown dims stay unknown. */
sinter_status_t lower_quant_geometry(const lowering_t *lo, const node_t *n, quant_geom_t *geom);

/* The whole: plan->sub to plan->values, plan->steps. Kernels are not chosen yet. Notes for the
 * report go to why. */
sinter_status_t lower_plan(plan_t *plan, family_t family, textbuf_t *why);

#endif
