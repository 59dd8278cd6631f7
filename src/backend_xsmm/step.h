/* The contract between lowering and the kinds of step. A kind is a row of steps.def and a constant
 * struct of functions in steps/<name>.c. What it says here is true of every kernel that runs it.
 * Lowering and the executor name no kind: they ask. */
#ifndef SINTER_SRC_STEP_H
#define SINTER_SRC_STEP_H

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/kernel.h"
#include "graph/op_schema.h"
#include "graph/quant.h"

struct emitter;
struct estimate;
struct lowering;
struct cluster;

/* How a step accesses a value other than by its chains. */
typedef enum step_access {
    STEP_READS = 1,
    STEP_WRITES = 2,
    /* Read: each element in the thread that writes the element of the result at the same place, and
     * before it writes there. Written: in place, where the element lies that was read so. */
    STEP_IN_PLACE = 4
} step_access_t;

/* What step_visit calls for each value; -1 stands for a value that the step does not have. */
typedef void (*step_see_t)(void *to, int value, unsigned access);

/* Groups of results that a DynamicQuantize behind the step quantises. */
typedef struct tail_groups {
    const graph_t *g;
    const node_t *heavy; /* the node of the step that is not elementwise; NULL: none */
    const lt_t *data;    /* what is quantised */
    const quant_geom_t *geom;
    int64_t rows, columns; /* of a group, along the last two dims */
} tail_groups_t;

typedef struct step_ops {
    /* Classes of the ops that run as this kind, as in graph/op_schema.h; 0: none does. */
    unsigned classes;
    /* It computes its data by a chain of its own: step->pre. */
    bool takes_chain;
    /* Its results are in memory when the step ends: no chain follows that has them in registers. */
    bool to_memory;
    /* Its chains run once for each element, in runs of elements: a run is read completely before it
     * is written, and no other thread reads or writes its elements. */
    bool chains_once;
    bool products;     /* it multiplies matrices, so fpmath modes may matter */
    int packed_values; /* layouts makes at most so many values */
    /* Whether a node runs as this kind. NULL: its class says so. */
    bool (*takes)(const struct lowering *lo, int node);
    /* Puts a node that it takes into a step. NULL: each makes a step of its own (lower_heavy). */
    sinter_status_t (*gather)(struct lowering *lo, int node);
    /* When every node is in a step: whether steps of this kind can be. NULL: they can. */
    sinter_status_t (*gathered)(struct lowering *lo);
    /* Makes the step's parameters and the beginning of its chain. */
    sinter_status_t (*emit)(struct emitter *e, const struct cluster *cl, step_t *step);
    /* Before emit: chains of the step beside step->pre and step->post. NULL: it has none. */
    sinter_status_t (*emit_inner)(struct emitter *e, step_t *step);
    /* Leaves some of the work of a step that is emitted to a second one, which it makes. False:
     * there is none. NULL: there never is. */
    bool (*divide)(step_t *step, step_t *second);
    /* Sees each value that the step accesses other than by chains whose accesses are once for each
     * element. NULL: there is none. */
    void (*visit)(const step_t *step, step_see_t see, void *to);
    /* Adds the work of the step without its epilogue. Returns the number of elements, in thousands,
     * that the epilogue runs over. */
    double (*work)(struct estimate *e, const problem_t *p);
    /* Why the kernels of this kind cannot quantise such groups of their results; NULL: they can.
     * Itself NULL: they never can. */
    const char *(*refuse_tail)(const tail_groups_t *groups);
    /* Lets the step read copies of constants that lie as its kernels want them. NULL: none. */
    void (*layouts)(plan_t *plan, step_t *step);
    /* Says why the step wants an input, which it reads in tiles, with strides. Nothing: it wants
     * tiles, or does not read it. NULL: it reads no tiles. */
    void (*refuse_tiles)(const plan_t *plan, const step_t *step, int value, textbuf_t *why);
    /* Lines of the report about layouts. NULL: none. */
    void (*report)(const plan_t *plan, const step_t *step, textbuf_t *text);
} step_ops_t;

/* By step_kind_t. */
extern const step_ops_t *const sinter_steps[];

/* refuse_tail of steps that take rows one by one. */
const char *refuse_tail_of_rows(const tail_groups_t *t);

static inline const step_ops_t *step_ops(const step_t *step)
{
    return sinter_steps[step->kind];
}

/* For the report: when a copy is made. */
static inline const char *step_when_copied(const step_t *step)
{
    return step->copy_at >= 0 ? "it is constant, so once, into the constant cache"
                              : "at every execute, because it is not constant";
}

/* Sees each value that a step, or its quantising tail, accesses other than by chains whose accesses
 * are once for each element. */
void step_visit(const step_t *step, step_see_t see, void *to);

static inline void see_operand(const operand_t *op, unsigned access, step_see_t see, void *to)
{
    see(to, op->data, access);
    see(to, op->scale, access);
    see(to, op->zp, access);
    see(to, op->high, access);
    see(to, op->scale_by != NULL ? op->scale_by->value : -1, access);
    see(to, op->zp_by != NULL ? op->zp_by->value : -1, access);
}

static inline void see_dynquant(const dynquant_params_t *p, step_see_t see, void *to)
{
    see(to, p->in, STEP_READS);
    see(to, p->tensor_scale, STEP_READS);
    see_operand(&p->out, STEP_WRITES, see, to);
}

static inline void see_chain(const struct chain *c, step_see_t see, void *to)
{
    for (int i = 0; c != NULL && i < c->n_operands; i++) {
        see(to, c->operands[i].value, STEP_READS | STEP_WRITES);
    }
}

#endif
