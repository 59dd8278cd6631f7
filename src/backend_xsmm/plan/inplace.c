/* A step runs its chain once for each element of its output, in runs of elements: a run is read
 * completely before it is written, and no other thread reads or writes its elements. This holds for
 * chains by themselves and behind every heavy kernel: products, attention and softmax are complete
 * before their elements go through the chain, also where several threads make parts of them.
 *
 *     y[i] = f(..., x[i], ...)      x and y may be one buffer
 *
 * What else a step reads (operands, masks, scales), it reads at other indices, too. */
#include "backend_xsmm/plan/inplace.h"

#include "backend_xsmm/chain/chain.h"
#include "graph/tensor.h"

static int memory_of(const plan_t *plan, int v)
{
    while (v >= 0 && plan->values[v].kind == PV_VIEW) {
        v = plan->values[v].base;
    }
    return v;
}

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

/* The only operand of a chain that lies in the memory of v; -1: there is none, or several. */
static int operand_in(const plan_t *plan, const chain_t *chain, int v)
{
    int found = -1;
    for (int i = 0; i < chain->n_operands; i++) {
        if (memory_of(plan, chain->operands[i].value) == v) {
            if (found >= 0) {
                return -1;
            }
            found = i;
        }
    }
    return found;
}

bool inplace_in_chain(const plan_t *plan, int v, int s)
{
    const chain_t *chain = plan->steps[s].post;
    const int at = operand_in(plan, chain, v);
    if (at < 0 || plan->values[v].beside == s) {
        return false;
    }
    const int seen = chain->operands[at].value;
    return plan->values[seen].lt.ndims == chain->ndims && is_in_order(plan, seen) &&
           chain_touches_once(chain, seen, chain->ndims);
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

bool inplace_reads_first(const plan_t *plan, int s, int from, int to)
{
    const chain_t *chain = plan->steps[s].post;
    const int x = operand_in(plan, chain, from), y = operand_in(plan, chain, to);
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

/* Softmax reads a row, or a block of columns, in the thread that writes it: the last time just
 * before it writes. */
static bool is_softmax_of(const plan_t *plan, int s, int v)
{
    const step_t *step = &plan->steps[s];
    const softmax_params_t *p = &step->p.softmax;
    return step->kind == STEP_SOFTMAX && p->in == v && p->sink != v && p->stats != v &&
           operand_in(plan, step->post, v) < 0;
}

/* Nothing reads input `in` once step s writes output `out` for the first time, except that step
 * itself, element by element. */
static bool may_share(const plan_t *plan, int in, int out)
{
    const plan_value_t *x = &plan->values[in], *y = &plan->values[out];
    const int s = y->first;
    if (x->kind != PV_INPUT || y->kind != PV_OUTPUT || s < 0 || x->last > s ||
        x->lt.property == sinter_tensor_property_constant ||
        x->lt.property == sinter_tensor_property_host_scalar || !lt_may_coincide(&x->lt, &y->lt)) {
        return false;
    }
    return x->last < s || (inplace_in_chain(plan, out, s) &&
                           (is_softmax_of(plan, s, in) || (inplace_in_chain(plan, in, s) &&
                                                           inplace_reads_first(plan, s, in, out))));
}

sinter_status_t inplace_find_pairs(sinter_compiled_partition_t *cp)
{
    const size_t most = (size_t)cp->n_inputs * (size_t)cp->n_outputs;
    cp->inplace = ARENA_NEW(&cp->plan.arena, sinter_inplace_pair_t, most + 1);
    if (cp->inplace == NULL) {
        return sinter_out_of_memory;
    }
    for (int o = 0; o < cp->n_outputs; o++) {
        for (int i = 0; i < cp->n_inputs; i++) {
            if (may_share(&cp->plan, cp->inputs[i], cp->outputs[o])) {
                cp->inplace[cp->n_inplace++] =
                    (sinter_inplace_pair_t){cp->plan.sub.values[cp->inputs[i]].lt.id,
                                            cp->plan.sub.values[cp->outputs[o]].lt.id};
            }
        }
    }
    return sinter_success;
}
