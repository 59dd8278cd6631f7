/* From a rewritten subgraph to steps, in five stages. Where dims are unknown the stages decide by
 * representative ones (graph_representative_dims), and the plan depends on none of those.
 *   lower_pages.c      whether attention reads K and V where a table says
 *   lower_cluster.c    which nodes become one step: a heavy node (MatMul, SoftMax, attention) with
 *                      the elementwise nodes that can ride on it
 *   lower_memory.c     where each value lives: ports, temporaries, views, and copies where strides
 *                      cannot express a view
 *   lower_emit.c       the chains and parameters of the steps; for attention it asks
 *                      lower_mask.c which columns the masks leave to each row
 *   lower_constants.c  which constant weights are read from the constant cache */
#ifndef SINTER_SRC_LOWER_H
#define SINTER_SRC_LOWER_H

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/plan.h"
#include "graph/quant.h"

/* Nodes that become one step. */
typedef struct cluster {
    step_kind_t kind;
    /* The node that is not elementwise; for attention the second MatMul; -1 for a chain or a
     * copy. */
    int heavy;
    int dims_value; /* graph value whose dims are the iteration space of the chain */
    int *nodes;     /* elementwise nodes in evaluation order */
    int n_nodes, cap_nodes;
    int tail; /* node: a DynamicQuantize run on the results of this step; -1: none */
    const char *why_separate; /* of a DynamicQuantize: why it is not a tail */
    /* Of a norm, a rotary embedding, a reduction or a window: the nodes that compute its input.
     * NULL: of another kind. */
    struct cluster *pre;
    int turn; /* of a HadamardTransform: the RotaryEmbedding before it in the step; -1: none */
    int cost; /* an estimate of the chain's instructions */
    int pos;  /* its index; of a copy: the cluster that it follows */
    /* A copy: reads plan value `copy_from`, writes `copy_to`, both in the dims of dims_value. */
    bool copy;
    int copy_from, copy_to;
} cluster_t;

static inline bool cluster_has(const cluster_t *cl, int node)
{
    for (int i = 0; i < cl->n_nodes; i++) {
        if (cl->nodes[i] == node) {
            return true;
        }
    }
    return false;
}

/* The parts of an attention cluster. */
typedef struct attention_parts {
    int qk, softmax, pv;   /* nodes; -1 until met */
    cluster_t score, prob; /* only nodes and counts are used */
} attention_parts_t;

/* The parts of a cluster that is the MLP of experts. */
typedef struct mlp_parts {
    int indices; /* the value of the experts' indices; -1: not looked for yet */
    int n_upper, upper[MLP_UPPER], down, sum; /* nodes; -1 until met */
    int half[2];                              /* values: slices of one product; -1 until met */
    bool in_turn;                             /* they are its even and its odd columns */
    cluster_t mid, weigh;                     /* only nodes and counts are used */
    int mid_space, weigh_space;               /* values with their dims; -1 until met */
    int n_tables;
    struct mlp_table tables[MLP_TABLES];
} mlp_parts_t;

/* Attribute scales and zero points that have become constant values. */
typedef struct const_pair {
    const node_t *node;
    bool int_zps;
    int scale, zp;
    struct const_pair *next;
} const_pair_t;

typedef struct lowering {
    plan_t *plan;
    graph_t *g;   /* &plan->sub */
    bool assumes; /* unknown dims may be taken for the same: plan->assumed */
    family_t family;
    int max_cost;        /* of a cluster's chain */
    const char *why_not; /* why the step of the family was given up */
    /* By graph value: the tensor with representative dims for unknown ones. */
    lt_t *probe;
    /* By graph value: a value that has the same dims at every execute, the first one of those that
     * have, or are assumed to have. */
    int *alike;
    cluster_t *clusters;
    int n_clusters, cap_clusters;
    int *home;  /* by graph value: cluster that has it in a register; -1 */
    int *ready; /* by graph value: cluster after which it can be in memory; -1: from the start */
    /* By node: it reads only tensors from outside, and each cluster that needs it computes it. */
    bool *floating;
    bool *stored; /* by graph value: must be in memory */
    /* By graph value: which part of attention, or of the MLP of experts, has it; 0: none. */
    char *spine;
    attention_parts_t att;
    mlp_parts_t mlp;
    /* By graph value: the pages that attention reads it in, NULL: none. By node: a Gather or a view
     * that these come through, which no step runs. The value that lists them, and the one that
     * names its rows; -1: none. */
    const pages_of_t **pages;
    bool *passed;
    int table, rows;
    bound_t *bound; /* by plan value: probe dims and strides, once placed */
    bool *placed;   /* by plan value */
    int cap_values;
    const_pair_t *consts;
} lowering_t;

bool lower_is_eltwise(sinter_op_kind_t kind);
bool lower_is_view(const node_t *node);
/* No step runs it, as what its result is for reads where it comes from: a Gather of experts, whose
 * product reads the table, a Reorder that unpacks a cache of attention, or what takes such a cache
 * from its pages. */
bool lower_reads_itself(const lowering_t *lo, const node_t *node);
/* Finds out which values surely have the same dims. */
void lower_alike(lowering_t *lo);
/* Two values have the same dims at every execute, or that may be assumed, which is then noted. */
sinter_status_t lower_same_space(lowering_t *lo, int value, int as, bool *same);
/* That holds for the result of an elementwise node and `space`, and what the node's floating
 * producers make broadcasts to those dims: all may be computed over them. */
sinter_status_t lower_fits(lowering_t *lo, int node, int space, bool *fits);
/* Finds out whether attention reads K and V in pages. sinter_unimplemented: it cannot, though both
 * are taken from blocks, and lo->why_not says why. */
sinter_status_t lower_pages(lowering_t *lo);
/* Where all values have their places: whether tokens of all parts of K, and of V, lie alike. What
 * only execute knows, the plan assumes. */
sinter_status_t lower_pages_alike(lowering_t *lo);
sinter_status_t lower_cluster(lowering_t *lo);
sinter_status_t lower_memory(lowering_t *lo);
sinter_status_t lower_emit(lowering_t *lo);
void lower_constants(plan_t *plan);

/* ---- for the kinds of step ------------------------------------------------------------------- */

/* A cluster, or a chain, without nodes; -1: out of memory. */
int lower_new_cluster(lowering_t *lo, step_kind_t kind, int heavy, int dims_value, int pos);
int lower_new_chain(lowering_t *lo, int dims_value, int pos);
/* Makes a step of this kind of a node that is not elementwise: the last cluster. */
sinter_status_t lower_heavy(lowering_t *lo, int node, step_kind_t kind);
/* Lets an elementwise node float, join a cluster, or open a chain. force: it must not float. */
sinter_status_t lower_place(lowering_t *lo, int node, bool force);
/* Adds an elementwise node to a cluster, its floating producers first, and puts into memory what
 * they read and cluster ci does not have in registers. ci -1: a part of attention, whose registers
 * are the spine, or what computes the data of a step. */
sinter_status_t lower_join(lowering_t *lo, cluster_t *cl, int ci, int node);
/* Vectors beside the data (scales, zero points, biases) have dims of their own, so they are read
 * from memory and not from a register. Both planes of split codes are, too. */
bool lower_from_memory(const node_t *n, int port);
/* Inputs that are read from memory are placed first, so that their cluster runs first. */
sinter_status_t lower_need_vectors(lowering_t *lo, const node_t *n);
/* Some reader needs the value in memory, not in a register. */
sinter_status_t lower_need_memory(lowering_t *lo, int value);
/* The same for all that a node reads, with scales and zero points of its operands. */
sinter_status_t lower_need_operands(lowering_t *lo, const node_t *n);
/* For the layouts of a kind of step, which makes at most packed_values of these: */
bool lower_is_constant(const plan_t *plan, int value);
/* The value packed along dim, with lines that begin at multiples of `line` elements; or the value
 * itself, if it is not constant or is contiguous along dim already. */
int lower_pack(plan_t *plan, int value, int dim, int line);
/* As tiles: dims and set as in plan_value_t. The value must be constant. */
int lower_pack_tiles(plan_t *plan, int value, tiled_t what, int across, int along, int set);
/* Finds the limits of the masks (column_limit_t). Returns the graph value under the masks that the
 * first n_bare limits describe completely; -1: there is none. And p->mask, with the graph value
 * that it is added to. */
int lower_mask_limits(const lowering_t *lo, attention_params_t *p, int *under);

/* Makes plan->values and plan->steps from plan->sub. Kernels are chosen later. Notes for the report
 * go to why. assumes: unknown dims that are most likely the same are taken to be the same, and
 * plan->assumed lists them; else the plan is right for all dims. pages: attention may read K and V
 * in pages. */
sinter_status_t lower_plan(plan_t *plan, family_t family, bool pages, bool assumes, textbuf_t *why);

#endif
