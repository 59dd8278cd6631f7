/* A step runs its chains once for each element, in runs of elements: a run is read completely
 * before it is written, and no other thread reads or writes its elements. This holds for chains by
 * themselves and behind every heavy kernel: products, attention and softmax are complete before
 * their elements go through the chain, also where several threads make parts of them. Norms and
 * rotary embedding run the chain that computes their input over a whole row before the chain that
 * stores it.
 *
 *     y[i] = f(..., x[i], ...)      x and y may be one buffer
 *
 * What else a step reads (operands, masks, scales), it reads at other indices, too. */
#include "backend_xsmm/plan/inplace.h"

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/step.h"
#include "graph/layout.h"
#include "graph/tensor.h"

/* A value whose elements follow one another as those of its memory do. Two such values of the same
 * dims have the same elements in the same places if their memories have the same dims and
 * strides. */
static bool is_in_order(const plan_t *plan, int v)
{
    while (plan->values[v].kind == PV_VIEW) {
        if (plan->values[v].op->kind != sinter_op_static_reshape) {
            return false;
        }
        v = plan->values[v].base;
    }
    return true;
}

/* ---- chains ---------------------------------------------------------------------------------- */

/* An operand of a chain. */
typedef struct access {
    const chain_t *chain;
    int operand;
} access_t;

/* Counts the operands of a chain that lie in the memory of v; *found: one of them. */
static int count_in(const plan_t *plan, const chain_t *chain, int v, access_t *found)
{
    int n = 0;
    for (int i = 0; chain != NULL && i < chain->n_operands; i++) {
        if (plan_memory_of(plan, chain->operands[i].value) == v) {
            *found = (access_t){chain, i};
            n++;
        }
    }
    return n;
}

/* The only access of step s to the memory of v, by a chain and at the index of its iteration
 * space. */
static bool find_access(const plan_t *plan, int v, int s, access_t *found)
{
    const step_t *step = &plan->steps[s];
    *found = (access_t){NULL, -1};
    const int n = count_in(plan, step->pre, v, found) + count_in(plan, step->post, v, found);
    if (n != 1 || plan->values[v].beside == s) {
        return false;
    }
    const int seen = found->chain->operands[found->operand].value;
    return plan->values[seen].lt.ndims == found->chain->ndims && is_in_order(plan, seen) &&
           chain_touches_once(found->chain, seen);
}

static bool reads(const chain_instr_t *in, int operand)
{
    switch (in->op) {
    case CHAIN_LOAD:
        return in->operand == operand;
    case CHAIN_LOAD_SPLIT:
        return in->operand == operand || in->high == operand;
    case CHAIN_LOAD_DEQUANT:
        return in->operand == operand || in->scale == operand || in->zp == operand;
    case CHAIN_DEQUANT:
    case CHAIN_QUANT:
        return in->scale == operand || in->zp == operand;
    default:
        return false;
    }
}

/* Every instruction that reads x stands before those that write y. */
static bool reads_first(const chain_t *chain, int x, int y)
{
    bool written = false;
    for (int i = 0; i < chain->n_instrs; i++) {
        const chain_instr_t *in = &chain->instrs[i];
        if (written && reads(in, x)) {
            return false;
        }
        written = written || (in->op == CHAIN_STORE && in->operand == y);
    }
    return true;
}

bool inplace_overwrites(const plan_t *plan, int s, int from, int to)
{
    access_t x, y;
    if (!step_ops(&plan->steps[s])->chains_once || !find_access(plan, from, s, &x) ||
        !find_access(plan, to, s, &y)) {
        return false;
    }
    return x.chain == y.chain ? reads_first(x.chain, x.operand, y.operand)
                              : y.chain == plan->steps[s].post;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* The accesses of a step other than by chains to the memory of a value. */
typedef struct accesses {
    const plan_t *plan;
    int memory;
    int n, value; /* how many there are, and the value of the last one */
    unsigned how;
} accesses_t;

static void see(void *to, int value, unsigned access)
{
    accesses_t *a = to;
    if (plan_memory_of(a->plan, value) == a->memory) {
        *a = (accesses_t){a->plan, a->memory, a->n + 1, value, access};
    }
}

/* The kernel of step s itself, and no chain, reads each element of `in` before it or a chain writes
 * that of `out` in the same thread. */
static bool kernel_overwrites(const plan_t *plan, int s, int in, int out)
{
    const step_t *step = &plan->steps[s];
    accesses_t r = {.plan = plan, .memory = in}, w = {.plan = plan, .memory = out};
    access_t found;
    step_visit(step, see, &r);
    step_visit(step, see, &w);
    const bool reads = r.n == 1 && r.value == in && (r.how & STEP_IN_PLACE) != 0 &&
                       count_in(plan, step->pre, in, &found) == 0 &&
                       count_in(plan, step->post, in, &found) == 0;
    return reads && (w.n == 0 ? step_ops(step)->chains_once && find_access(plan, out, s, &found)
                              : w.n == 1 && w.value == out && (w.how & STEP_IN_PLACE) != 0 &&
                                    count_in(plan, step->post, out, &found) == 0);
}

/* Step s reads input `in` element by element before it writes output `out`. */
static bool reads_before(const plan_t *plan, int s, int in, int out)
{
    return inplace_overwrites(plan, s, in, out) || kernel_overwrites(plan, s, in, out);
}

/* Output `out` is made from input `in` element by element, step after step, each of which may write
 * over what the one before has made. made: room for a flag of each value. */
static bool is_made_from(const plan_t *plan, int in, int out, bool *made)
{
    for (int v = 0; v < plan->n_values; v++) {
        made[v] = v == in;
    }
    for (int s = 0; s < plan->n_steps; s++) {
        for (int y = 0; y < plan->n_values; y++) {
            const bool stored =
                plan->values[y].kind == PV_TEMP || plan->values[y].kind == PV_OUTPUT;
            for (int x = 0; x < plan->n_values && stored && plan->values[y].first == s; x++) {
                made[y] = made[y] || (made[x] && reads_before(plan, s, x, y));
            }
        }
    }
    return made[out];
}

/* No step reads input `in` behind the first step that writes output `out`. That step reads it
 * element by element, or earlier ones alone read it and the output is made from it: one that is not
 * made from it could be written over it, too, but would take its buffer from an output that is. */
static bool may_share(const plan_t *plan, int in, int out, bool *made)
{
    const plan_value_t *x = &plan->values[in], *y = &plan->values[out];
    const int s = y->first;
    if (x->kind != PV_INPUT || y->kind != PV_OUTPUT || s < 0 || x->last > s ||
        !lt_same_layout(&x->lt, &y->lt) || x->lt.property == sinter_tensor_property_constant ||
        x->lt.property == sinter_tensor_property_host_scalar || !lt_may_coincide(&x->lt, &y->lt)) {
        return false;
    }
    return x->last == s ? reads_before(plan, s, in, out) : is_made_from(plan, in, out, made);
}

/* The pair of another plan is right in its fallback too. */
static bool tolerates(const plan_t *fallback, int in, int out)
{
    const int last = fallback->values[in].last, first = fallback->values[out].first;
    return last < first || (last == first && reads_before(fallback, first, in, out));
}

sinter_status_t inplace_find_pairs(sinter_compiled_partition_t *cp)
{
    const size_t most = (size_t)cp->n_inputs * (size_t)cp->n_outputs;
    bool *made = ARENA_NEW(&cp->plan.arena, bool, cp->plan.n_values + 1);
    cp->inplace = ARENA_NEW(&cp->plan.arena, sinter_inplace_pair_t, most + 1);
    if (cp->inplace == NULL || made == NULL) {
        return sinter_out_of_memory;
    }
    for (int o = 0; o < cp->n_outputs; o++) {
        for (int i = 0; i < cp->n_inputs; i++) {
            if (may_share(&cp->plan, cp->inputs[i], cp->outputs[o], made) &&
                (cp->fallback == NULL || tolerates(cp->fallback, cp->inputs[i], cp->outputs[o]))) {
                cp->inplace[cp->n_inplace++] =
                    (sinter_inplace_pair_t){cp->plan.sub.values[cp->inputs[i]].lt.id,
                                            cp->plan.sub.values[cp->outputs[o]].lt.id};
            }
        }
    }
    return sinter_success;
}
