/* Attention: Q K^T, a chain, SoftMax, a chain, times V. */
#include "backend_xsmm/drivers/common/quant_tail.h"
#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/emit.h"
#include "graph/cache.h"

/* ---- which nodes ----------------------------------------------------------------------------- */

enum { SPINE_SCORE = 1, SPINE_PROB = 2 };

/* The parts of the spine that a node reads: SPINE_SCORE, SPINE_PROB or both. */
static int spine_of(const lowering_t *lo, const node_t *n)
{
    int s = 0;
    for (int k = 0; node_read(n, k) >= 0; k++) {
        s |= lo->spine[node_read(n, k)];
    }
    return s;
}

static sinter_status_t give_up(lowering_t *lo, const char *why)
{
    lo->why_not = why;
    return sinter_unimplemented;
}

static sinter_status_t score_matmul(lowering_t *lo, int node)
{
    const node_t *n = &lo->g->nodes[node];
    if (n->n_in > 2) {
        return give_up(lo, "the score matmul has a bias");
    }
    if (lo->att.qk >= 0) {
        return give_up(lo, "more than one score matmul");
    }
    SG_TRY(lower_need_operands(lo, n));
    lo->att.qk = node;
    lo->spine[n->out[0]] = SPINE_SCORE;
    return sinter_success;
}

static sinter_status_t score_softmax(lowering_t *lo, int node)
{
    const node_t *n = &lo->g->nodes[node];
    const int64_t axis = node_s64(n, sinter_op_attr_axis, 1);
    if (axis != -1 && axis != lo->probe[n->in[0]].ndims - 1) {
        return give_up(lo, "softmax is not over the last axis");
    }
    if (n->n_in > 1) {
        if (lo->spine[n->in[1]] != 0) {
            return give_up(lo, "the softmax's sinks depend on the scores");
        }
        SG_TRY(lower_need_memory(lo, n->in[1]));
    }
    if (n->n_out > 1) {
        if (lo->g->values[n->out[1]].n_uses > 0) {
            return give_up(lo, "the softmax statistics are used inside");
        }
        lo->stored[n->out[1]] = true;
    }
    lo->att.softmax = node;
    lo->spine[n->out[0]] = SPINE_PROB;
    return sinter_success;
}

static sinter_status_t value_matmul(lowering_t *lo, int node)
{
    const node_t *n = &lo->g->nodes[node];
    if (lo->att.pv >= 0 || n->n_in > 2 || lo->spine[n->in[0]] != SPINE_PROB ||
        lo->spine[n->in[1]] != 0 || node_bool(n, sinter_op_attr_transpose_a, false)) {
        return give_up(
            lo,
            "the probabilities do not go as they are, on the left, into one matmul without bias");
    }
    lo->att.pv = node;
    return lower_heavy(lo, node, STEP_ATTENTION);
}

/* Elementwise work on tiles of scores or probabilities. */
static sinter_status_t spine_eltwise(lowering_t *lo, int node, int spine)
{
    const node_t *n = &lo->g->nodes[node];
    const int scores = lo->g->nodes[lo->att.qk].out[0];
    bool fits;
    cluster_t *part = spine == SPINE_SCORE ? &lo->att.score : &lo->att.prob;
    SG_TRY(lower_need_vectors(lo, n));
    SG_TRY(lower_fits(lo, node, scores, &fits));
    if (!fits) {
        return give_up(lo, "an op between the two matmuls changes dims");
    }
    SG_TRY(lower_join(lo, part, -1, node));
    if (part->cost > lo->max_cost) {
        return give_up(lo, "too many elementwise ops between the two matmuls");
    }
    lo->spine[n->out[0]] = (char)spine;
    return sinter_success;
}

/* A GenIndex over the scores that only views read. It needs no score, only their dims, so it is a
 * chain of its own. */
static bool index_apart(const lowering_t *lo, const node_t *n)
{
    const graph_t *g = lo->g;
    const int v = n->out[0];
    bool apart = n->kind == sinter_op_gen_index;
    for (int u = g->uses_begin[v]; u < g->uses_begin[v + 1]; u++) {
        apart = apart && lower_is_view(&g->nodes[g->uses[u]]);
    }
    return apart;
}

/* The score MatMul, and all that reads a score or a probability. */
static bool takes(const lowering_t *lo, int node)
{
    const node_t *n = &lo->g->nodes[node];
    const bool qk = n->kind == sinter_op_matmul && node_has_role(n, "qk");
    return lo->family == FAMILY_ATTENTION && (qk || (spine_of(lo, n) != 0 && !index_apart(lo, n)));
}

static sinter_status_t gather(lowering_t *lo, int node)
{
    const node_t *n = &lo->g->nodes[node];
    const int spine = spine_of(lo, n);
    for (int i = 0; i < n->n_in; i++) {
        if (lower_from_memory(n, i) && lo->spine[n->in[i]] != 0) {
            return give_up(lo,
                           "scores are used as a vector beside other data, or as a plane of codes");
        }
    }
    if (spine == (SPINE_SCORE | SPINE_PROB)) {
        return give_up(lo, "scores are used beside the probabilities");
    }
    if (n->kind == sinter_op_matmul) {
        return spine == 0 ? score_matmul(lo, node) : value_matmul(lo, node);
    }
    if (n->kind == sinter_op_softmax && spine == SPINE_SCORE && lo->att.softmax < 0) {
        return score_softmax(lo, node);
    }
    return lower_is_eltwise(n->kind)
               ? spine_eltwise(lo, node, spine)
               : give_up(lo,
                         "an op between the two matmuls is neither elementwise nor the softmax");
}

/* Refuses attention whose scores or probabilities are needed as a whole: they exist in tiles
 * only. */
static sinter_status_t gathered(lowering_t *lo)
{
    if (lo->family != FAMILY_ATTENTION) {
        return sinter_success;
    }
    if (lo->att.pv < 0) {
        return give_up(lo, "no second matmul over the softmax");
    }
    for (int v = 0; v < lo->g->n_values; v++) {
        if (lo->spine[v] != 0 && lo->g->values[v].is_output) {
            return give_up(lo, "scores or probabilities are an output");
        }
    }
    return sinter_success;
}

/* ---- the step -------------------------------------------------------------------------------- */

static sinter_status_t emit_inner(emitter_t *e, step_t *step)
{
    lowering_t *lo = e->lo;
    const node_t *qk = &lo->g->nodes[lo->att.qk], *sm = &lo->g->nodes[lo->att.softmax],
                 *pv = &lo->g->nodes[lo->att.pv];
    attention_params_t *p = &step->p.attention;
    SG_TRY(emit_operand(lo, qk, 0, &p->q));
    SG_TRY(emit_operand(lo, qk, 1, &p->k));
    SG_TRY(emit_operand(lo, pv, 1, &p->v));
    p->trans_q = node_bool(qk, sinter_op_attr_transpose_a, false);
    p->trans_k = node_bool(qk, sinter_op_attr_transpose_b, false);
    p->trans_v = node_bool(pv, sinter_op_attr_transpose_b, false);
    SG_TRY(emit_part(e, &lo->att.score, qk->out[0], sm->in[0], sm->in[0], &p->score));
    SG_TRY(emit_part(e, &lo->att.prob, sm->out[0], pv->in[0], pv->in[0], &p->prob));
    p->table = lo->table;
    p->rows = lo->rows;
    p->runs = lo->rows >= 0 ? SHORT_RUNS : NO_RUNS;
    p->score_dims = sm->in[0];
    p->out_dims = pv->out[0];
    p->stats = sm->n_out > 1 ? sm->out[1] : -1;
    p->sink = softmax_sink(sm);
    p->inf_as_zero = softmax_inf_as_zero(sm);
    int under = -1;
    const int bare = lower_mask_limits(lo, p, &under);
    if (bare >= 0) {
        SG_TRY(emit_part(e, &lo->att.score, qk->out[0], bare, bare, &p->bare));
    }
    if (p->mask >= 0) {
        SG_TRY(emit_part(e, &lo->att.score, qk->out[0], under, under, &p->under));
    }
    const sinter_fpmath_mode_t k_mode = emit_mode(lo, qk), v_mode = emit_mode(lo, pv);
    step->permit = permit_of(k_mode == v_mode ? k_mode : sinter_fpmath_mode_strict, false);
    if (emit_is_of_codes(lo, qk, 0) || emit_is_of_codes(lo, pv, 0)) {
        step->permit.integers = NO_INTEGERS;
    }
    return sinter_success;
}

static sinter_status_t emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    (void)step;
    return emit_result(e, emit_heavy(e, cl)->out[0], 0);
}

/* Runs of tokens with few rows and those with many are best multiplied by different kernels. */
static bool divide(step_t *step, step_t *second)
{
    const bool divides = step->p.attention.runs != NO_RUNS;
    if (divides) {
        *second = *step;
        second->p.attention.runs = LONG_RUNS;
    }
    return divides;
}

static void visit(const step_t *step, step_see_t see, void *to)
{
    const attention_params_t *p = &step->p.attention;
    see_operand(&p->q, STEP_READS, see, to);
    see_operand(&p->k, STEP_READS, see, to);
    see_operand(&p->v, STEP_READS, see, to);
    see_chain(p->score, see, to);
    see_chain(p->prob, see, to);
    see(to, p->table, STEP_READS);
    see(to, p->rows, STEP_READS);
    see(to, p->stats, STEP_WRITES);
    see(to, p->sink, STEP_READS);
}

static double work(estimate_t *e, const problem_t *p)
{
    const attention_params_t *a = &p->step->p.attention;
    const double scores = estimate_elements(p, a->score_dims);
    const int64_t d = problem_dim(p, a->q.data, a->trans_q ? 2 : 1),
                  dv = problem_dim(p, a->out_dims, 1);
    estimate_t operands = {0};
    estimate_operand(&operands, p, &a->q);
    estimate_operand(&operands, p, &a->k);
    estimate_operand(&operands, p, &a->v);
    estimate_products(e, scores, d < 0 || dv < 0 ? -1 : (double)(d + dv), operands);
    estimate_exps(e, scores);
    estimate_chain(e, p, a->score, scores);
    estimate_chain(e, p, a->prob, scores);
    return estimate_elements(p, a->out_dims);
}

/* What a value is a view of; else the value. */
static int shown_value(const plan_t *plan, int value)
{
    while (plan->values[value].kind == PV_VIEW) {
        value = plan->values[value].base;
    }
    return value;
}

typedef struct sought {
    const plan_t *plan;
    int value;
    bool found;
} sought_t;

static void find_value(void *to, int value, unsigned access)
{
    sought_t *s = to;
    (void)access;
    s->found = s->found || (value >= 0 && shown_value(s->plan, value) == s->value);
}

/* Kernels that unpack a cache first gain nothing from tiles. */
static void refuse_tiles(const plan_t *plan, const step_t *step, int value, textbuf_t *why)
{
    const attention_params_t *p = &step->p.attention;
    sought_t sought = {plan, value, false};
    bool read = false;
    see_operand(&p->k, STEP_READS, find_value, &sought);
    see_operand(&p->v, STEP_READS, find_value, &sought);
    for (int i = 0; i < step->n_candidates; i++) {
        read = read || step->candidates[i].kernel->driver->reads_cache;
    }
    if (sought.found && !read) {
        text_add(why, "%s unpacks it", step->candidates[0].kernel->name);
    }
}

/* Caches that kernels read in tiles, or in pages. */
static void report(const plan_t *plan, const step_t *step, textbuf_t *text)
{
    const operand_t *const of[] = {&step->p.attention.k, &step->p.attention.v};
    for (int i = 0; i < 2; i++) {
        const plan_value_t *v = &plan->values[shown_value(plan, of[i]->data)];
        if (v->tiled != NOT_TILED) {
            text_add(text, "  reads tensor %llu in tiles, as it was given\n",
                     (unsigned long long)v->lt.id);
        }
    }
    if (step->p.attention.table >= 0) {
        const int64_t page = tokens_of_page(&(problem_t){.plan = plan, .step = step}, of[0]);
        text_add(text, "  reads K and V in pages of %lld token%s, through tensor %llu",
                 (long long)page, page == 1 ? "" : "s",
                 (unsigned long long)plan->values[step->p.attention.table].lt.id);
        if (step->p.attention.rows >= 0) {
            text_add(text, "; %s tokens of a sequence, as tensor %llu says",
                     step->p.attention.runs == SHORT_RUNS ? "few" : "many",
                     (unsigned long long)plan->values[step->p.attention.rows].lt.id);
        }
        text_add(text, "\n");
    }
}

static const char *refuse_tail(const tail_groups_t *t)
{
    const int64_t chunk = TAIL_ATTENTION_COLUMNS, n = t->data->dims[t->data->ndims - 1];
    return t->rows > 1 ? "rows of attention are computed in an order of their own"
           : (n >= 0 && n <= chunk) || chunk % t->columns == 0
               ? NULL
               : "groups of columns reach over chunks of the head";
}

const step_ops_t step_attention = {.takes = takes,
                                   .gather = gather,
                                   .gathered = gathered,
                                   .chains_once = true,
                                   .products = true,
                                   .emit = emit,
                                   .emit_inner = emit_inner,
                                   .divide = divide,
                                   .visit = visit,
                                   .work = work,
                                   .refuse_tail = refuse_tail,
                                   .refuse_tiles = refuse_tiles,
                                   .report = report};
