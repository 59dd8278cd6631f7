/* The MLP of experts: one or two products of an activation, a chain, another product, a chain, and
 * the sum over the experts of a token. Every product takes its matrices by the same indices. */
#include "graph/experts.h"
#include "backend_xsmm/plan/emit.h"
#include "backend_xsmm/steps/product.h"
#include "graph/layout.h"
#include "graph/shape.h"

/* ---- which nodes ----------------------------------------------------------------------------- */

enum { SPINE_MID = 1, SPINE_WEIGH = 2, SPINE_TABLE = 4 };

/* The parts of the spine that a node reads, but for tables. */
static int spine_of(const lowering_t *lo, const node_t *n)
{
    int s = 0;
    for (int k = 0; node_read(n, k) >= 0; k++) {
        s |= lo->spine[node_read(n, k)];
    }
    return s & (SPINE_MID | SPINE_WEIGH);
}

static sinter_status_t give_up(lowering_t *lo, const char *why)
{
    lo->why_not = why;
    return sinter_unimplemented;
}

/* The indices of the first product with experts. */
static int indices_of(const lowering_t *lo)
{
    int ids = -1;
    for (int t = 0; t < graph_n_live(lo->g) && ids < 0; t++) {
        ids = graph_experts(lo->g, &lo->g->nodes[lo->g->topo[t]]);
    }
    return ids >= 0 && lo->g->values[ids].producer < 0 ? ids : -1;
}

/* A tensor from outside, or a Slice of one. */
static bool is_from_outside(const graph_t *g, int v)
{
    const int p = g->values[v].producer;
    return p < 0 ||
           (g->nodes[p].kind == sinter_op_slice && g->values[g->nodes[p].in[0]].producer < 0);
}

/* A Gather of a row for each expert, [experts, 1, N] or [experts, N]: a bias. */
static bool takes_rows(const lowering_t *lo, const node_t *n)
{
    const lt_t *table = &lo->g->values[n->in[0]].lt;
    const int64_t axis = n->kind == sinter_op_gather ? node_s64(n, sinter_op_attr_axis, 0) : -1;
    return n->kind == sinter_op_gather && n->in[1] == indices_of(lo) &&
           (axis == 0 || axis == -table->ndims) &&
           (table->ndims == 2 || (table->ndims == 3 && table->dims[1] == 1)) &&
           !lt_is_opaque(table) && is_from_outside(lo->g, n->in[0]) &&
           !lo->g->values[n->out[0]].is_output && lo->mlp.n_tables < MLP_TABLES;
}

static bool takes(const lowering_t *lo, int node)
{
    const node_t *n = &lo->g->nodes[node];
    return lo->family == FAMILY_EXPERTS &&
           (spine_of(lo, n) != 0 || takes_rows(lo, n) ||
            (n->kind == sinter_op_matmul && graph_experts(lo->g, n) >= 0));
}

static bool is_dequantised(const node_t *n, int port)
{
    return n->in_dequant != NULL && n->in_dequant[port] != NULL;
}

/* The value that reshapes show in other dims. */
static int shown_by(const lowering_t *lo, int v)
{
    const graph_t *g = lo->g;
    for (int p = g->values[v].producer; p >= 0 && g->nodes[p].kind == sinter_op_static_reshape;
         p = g->values[v].producer) {
        v = g->nodes[p].in[0];
    }
    return v;
}

/* What a product reads must be in memory, but for A, if that is made in the step. */
static sinter_status_t need_operands(lowering_t *lo, const node_t *n, bool with_a)
{
    for (int k = with_a ? 0 : 1; node_read(n, k) >= 0; k++) {
        SG_TRY(lower_need_memory(lo, node_read(n, k)));
    }
    return sinter_success;
}

static sinter_status_t product(lowering_t *lo, int node, int spine)
{
    const node_t *n = &lo->g->nodes[node];
    mlp_parts_t *parts = &lo->mlp;
    const int indices = graph_experts(lo->g, n);
    if (indices < 0 || lo->g->values[indices].producer >= 0 || n->n_in > 2 ||
        is_dequantised(n, 0)) {
        return give_up(lo, "a product has a bias of its own, or takes rows of codes, or matrices "
                           "that are not those of experts");
    }
    if (indices != indices_of(lo)) {
        return give_up(lo, "products take experts by different indices");
    }
    if (spine == SPINE_WEIGH || (spine == SPINE_MID && parts->down >= 0)) {
        return give_up(lo, "more than one product follows the first ones");
    }
    SG_TRY(need_operands(lo, n, spine == 0));
    if (spine == SPINE_MID) {
        parts->down = node;
        lo->spine[n->out[0]] = SPINE_WEIGH;
        return sinter_success;
    }
    if (parts->n_upper == MLP_UPPER ||
        (parts->n_upper > 0 &&
         shown_by(lo, lo->g->nodes[parts->upper[0]].in[0]) != shown_by(lo, n->in[0]))) {
        return give_up(lo, "the first products are more than two, or take rows of different "
                           "tensors");
    }
    parts->upper[parts->n_upper++] = node;
    lo->spine[n->out[0]] = SPINE_MID;
    return sinter_success;
}

static sinter_status_t sum_of_experts(lowering_t *lo, int node)
{
    const node_t *n = &lo->g->nodes[node];
    const attr_t *axes = node_attr(n, sinter_op_attr_axes);
    const int dim = lo->g->values[lo->mlp.indices].lt.ndims - 1, x = n->in[0];
    if (n->n_in > 1 || axes->n != 1 ||
        axis_from_front((int)axes->s64[0], lo->probe[x].ndims) != dim) {
        return give_up(lo, "results are not summed over the experts of a token");
    }
    const int ci = lower_new_cluster(lo, STEP_EXPERTS, node, n->out[0], lo->n_clusters);
    if (ci < 0) {
        return sinter_out_of_memory;
    }
    lo->mlp.sum = node;
    lo->ready[n->out[0]] = lo->home[n->out[0]] = ci;
    return sinter_success;
}

/* The input of a node that is a result of a product, or made of one. */
static int spine_input(const lowering_t *lo, const node_t *n)
{
    int i = 0;
    while ((lo->spine[n->in[i]] & (SPINE_MID | SPINE_WEIGH)) == 0) {
        i++;
    }
    return n->in[i];
}

/* Two values have the same known dims, but that one has more of 1 before them. */
static bool same_but_for_ones(const lowering_t *lo, int a, int b)
{
    const lt_t *x = &lo->g->values[a].lt, *y = &lo->g->values[b].lt;
    bool same = true;
    for (int k = 1; k <= x->ndims || k <= y->ndims; k++) {
        const int64_t m = k <= x->ndims ? x->dims[x->ndims - k] : 1,
                      n = k <= y->ndims ? y->dims[y->ndims - k] : 1;
        same = same && m == n && m != SINTER_UNKNOWN_DIM;
    }
    return same;
}

/* All rows have it in common: a scalar or a vector, whatever dims of 1 stand before it. */
static bool is_common(const lt_t *lt)
{
    bool common = lt->ndims >= 0;
    for (int d = 0; d + 1 < lt->ndims; d++) {
        common = common && lt->dims[d] == 1;
    }
    return common;
}

/* Whether a node that is computed over other dims of the same rows is right all the same. */
static bool reads_rows(const lowering_t *lo, const node_t *n)
{
    bool rows = n->kind != sinter_op_gen_index;
    for (int i = 0; i < n->n_in; i++) {
        rows = rows && (lo->spine[n->in[i]] != 0 || is_common(&lo->g->values[n->in[i]].lt));
    }
    return rows;
}

/* Elementwise work on results of products, over the dims of the first one of its inputs. */
static sinter_status_t spine_eltwise(lowering_t *lo, int node, int spine)
{
    const node_t *n = &lo->g->nodes[node];
    const bool mid = spine == SPINE_MID;
    cluster_t *part = mid ? &lo->mlp.mid : &lo->mlp.weigh;
    int *space = mid ? &lo->mlp.mid_space : &lo->mlp.weigh_space;
    bool fits;
    const int own = spine_input(lo, n);
    *space = *space < 0 ? own : *space;
    SG_TRY(lower_need_vectors(lo, n));
    SG_TRY(lower_fits(lo, node, *space, &fits));
    if (!fits && (same_but_for_ones(lo, own, *space) || reads_rows(lo, n))) {
        SG_TRY(lower_fits(lo, node, own, &fits));
    }
    if (!fits) {
        return give_up(lo, "an op on the results of a product changes dims");
    }
    SG_TRY(lower_join(lo, part, -1, node));
    if (part->cost > lo->max_cost) {
        return give_up(lo, "too many elementwise ops on the results of a product");
    }
    lo->spine[n->out[0]] = (char)spine;
    return sinter_success;
}

/* Dims but those of 1. */
static int long_dims(const lt_t *lt, int64_t *dims)
{
    int n = 0;
    for (int d = 0; d < lt->ndims; d++) {
        if (lt->dims[d] != 1) {
            dims[n++] = lt->dims[d];
        }
    }
    return n;
}

/* A reshape that leaves rows as they are: it adds or drops dims of 1. */
static sinter_status_t spine_view(lowering_t *lo, int node, int spine)
{
    const node_t *n = &lo->g->nodes[node];
    const lt_t *from = &lo->probe[n->in[0]], *to = &lo->probe[n->out[0]];
    int64_t dims[2][SINTER_MAX_NDIMS];
    const int n_from = long_dims(from, dims[0]), n_to = long_dims(to, dims[1]);
    if (n->kind != sinter_op_static_reshape || from->ndims < 1 || to->ndims < 1 || n_from != n_to ||
        memcmp(dims[0], dims[1], sizeof(int64_t) * (size_t)n_to) != 0 ||
        from->dims[from->ndims - 1] != to->dims[to->ndims - 1]) {
        return give_up(lo, "a view of the results of a product changes more than dims of 1");
    }
    lo->spine[n->out[0]] = (char)spine;
    return lower_join(lo, spine == SPINE_MID ? &lo->mlp.mid : &lo->mlp.weigh, -1, node);
}

/* One half of the columns of the only first product, or every other one: gate and up of one
 * table. */
static sinter_status_t spine_half(lowering_t *lo, int node)
{
    const node_t *n = &lo->g->nodes[node];
    const lt_t *from = &lo->probe[n->in[0]], *known = &lo->g->values[n->in[0]].lt;
    bool half = lo->mlp.n_upper == 1 && from->ndims > 0 && known->ndims == from->ndims &&
                known->dims[known->ndims - 1] != SINTER_UNKNOWN_DIM &&
                shown_by(lo, n->in[0]) == lo->g->nodes[lo->mlp.upper[0]].out[0];
    int which = 0;
    bool in_turn = false;
    for (int d = 0; d < from->ndims && half; d++) {
        int64_t start, step, count;
        SG_TRY(slice_of_dim(n, from, d, &start, &step, &count));
        if (d < from->ndims - 1) {
            half = step == 1 && start == 0 && count == from->dims[d];
            continue;
        }
        in_turn = step == 2;
        half = 2 * count == from->dims[d] && (in_turn ? start <= 1
                                                      : step == 1 && count % TILES_COLUMNS == 0 &&
                                                            (start == 0 || start == count));
        which = start > 0;
    }
    const bool other = lo->mlp.half[1 - which] >= 0;
    if (!half || lo->mlp.half[which] >= 0 || (other && lo->mlp.in_turn != in_turn)) {
        return give_up(lo, "a slice of the first product is not one of two halves of its columns, "
                           "each a multiple of 16, nor every other column");
    }
    lo->mlp.half[which] = n->out[0];
    lo->mlp.in_turn = in_turn;
    lo->spine[n->out[0]] = SPINE_MID;
    return sinter_success;
}

static sinter_status_t gather(lowering_t *lo, int node)
{
    const node_t *n = &lo->g->nodes[node];
    const int spine = spine_of(lo, n);
    if (lo->mlp.indices < 0) {
        lo->mlp.indices = indices_of(lo);
    }
    if (n->kind == sinter_op_gather && spine == 0) {
        lo->mlp.tables[lo->mlp.n_tables++] = (struct mlp_table){n->out[0], n->in[0]};
        lo->spine[n->out[0]] = SPINE_TABLE;
        return sinter_success;
    }
    for (int i = 0; i < n->n_in; i++) {
        if (lower_from_memory(n, i) && lo->spine[n->in[i]] != 0) {
            return give_up(lo, "results of products are used as a vector beside other data");
        }
    }
    if (spine == (SPINE_MID | SPINE_WEIGH)) {
        return give_up(lo, "results of the first products are used beside those of the last one");
    }
    if (n->kind == sinter_op_matmul) {
        return product(lo, node, spine);
    }
    if (n->kind == sinter_op_reduce_sum && spine == SPINE_WEIGH && lo->mlp.sum < 0) {
        return sum_of_experts(lo, node);
    }
    if (n->kind == sinter_op_slice && spine == SPINE_MID) {
        return spine_half(lo, node);
    }
    return lower_is_view(n) ? spine_view(lo, node, spine)
           : lower_is_eltwise(n->kind)
               ? spine_eltwise(lo, node, spine)
               : give_up(lo, "an op on the results of a product is neither elementwise nor the sum "
                             "over the experts of a token");
}

/* Refuses an MLP whose inner results are needed as a whole: they exist in parts only. */
static sinter_status_t gathered(lowering_t *lo)
{
    if (lo->family != FAMILY_EXPERTS) {
        return sinter_success;
    }
    if (lo->mlp.down < 0 || lo->mlp.sum < 0) {
        return give_up(lo, lo->mlp.down < 0 ? "no product follows the first ones"
                                            : "results are not summed over the experts of a token");
    }
    if ((lo->mlp.half[0] < 0) != (lo->mlp.half[1] < 0)) {
        return give_up(lo, "only one half of the first product is used");
    }
    for (int v = 0; v < lo->g->n_values; v++) {
        if (lo->spine[v] != 0 && (lo->g->values[v].is_output || lo->stored[v])) {
            return give_up(lo, "results of a product are an output, or read by another step");
        }
    }
    return sinter_success;
}

/* ---- the step -------------------------------------------------------------------------------- */

/* A product as a step of its own, without an epilogue. */
static sinter_status_t emit_product(emitter_t *e, int node, step_t **out)
{
    lowering_t *lo = e->lo;
    const node_t *n = &lo->g->nodes[node];
    step_t *step = ARENA_NEW(&lo->plan->arena, step_t, 1);
    if (step == NULL) {
        return sinter_out_of_memory;
    }
    step->kind = STEP_MATMUL;
    step->copied = step->copy = step->copy_at = -1;
    SG_TRY(product_describe(lo, n, &step->p.matmul));
    chain_begin(&e->b, &lo->plan->arena, lo->probe[n->out[0]].ndims, n->out[0], true);
    *out = step;
    return chain_finish(&e->b, -1, false, &step->post);
}

/* Which operands of `mid` are the result `v` of the first of two products, whatever dims they show
 * it in. */
static sinter_status_t find_first(const lowering_t *lo, int v, mlp_params_t *p)
{
    const int n = p->mid != NULL ? p->mid->n_operands : 0;
    bool *is_first = ARENA_NEW(&lo->plan->arena, bool, n + 1);
    for (int k = 0; k < n && is_first != NULL; k++) {
        is_first[k] = p->n_upper > 1 && shown_by(lo, p->mid->operands[k].value) == v;
    }
    p->is_first = is_first;
    return is_first != NULL ? sinter_success : sinter_out_of_memory;
}

static sinter_status_t emit_inner(emitter_t *e, step_t *step)
{
    lowering_t *lo = e->lo;
    const mlp_parts_t *parts = &lo->mlp;
    mlp_params_t *p = &step->p.mlp;
    const node_t *down = &lo->g->nodes[parts->down];
    sinter_fpmath_mode_t mode = emit_mode(lo, down);
    int result[MLP_UPPER];
    bool of_codes = false;
    p->halves = parts->half[0] >= 0;
    p->in_turn = parts->in_turn;
    p->n_upper = p->halves ? 2 : parts->n_upper;
    for (int i = 0; i < p->n_upper; i++) {
        const int upper = parts->upper[p->halves ? 0 : i];
        const node_t *n = &lo->g->nodes[upper];
        result[i] = p->halves ? parts->half[i] : n->out[0];
        mode = emit_mode(lo, n) == mode ? mode : sinter_fpmath_mode_strict;
        of_codes = of_codes || emit_is_of_codes(lo, n, 0);
        if (i > 0 && p->halves) {
            p->product[i] = p->product[0];
        } else {
            SG_TRY(emit_product(e, upper, &p->product[i]));
        }
    }
    SG_TRY(emit_product(e, parts->down, &p->product[p->n_upper]));
    p->n_tables = parts->n_tables;
    memcpy(p->tables, parts->tables, sizeof p->tables);
    p->out_dims = lo->g->nodes[parts->sum].out[0];
    step->permit = permit_of(mode, false);
    if (of_codes || emit_is_of_codes(lo, down, 0)) {
        step->permit.integers = NO_INTEGERS;
    }
    for (int i = 0; i <= p->n_upper; i++) {
        p->product[i]->permit = step->permit;
    }
    SG_TRY(
        emit_part(e, &parts->mid, result[p->n_upper - 1], down->in[0], parts->mid_space, &p->mid));
    SG_TRY(find_first(lo, result[0], p));
    return emit_part(e, &parts->weigh, down->out[0], lo->g->nodes[parts->sum].in[0],
                     parts->weigh_space, &p->weigh);
}

static sinter_status_t emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    (void)step;
    return emit_result(e, emit_heavy(e, cl)->out[0], 0);
}

/* Product i is another one than the product before it. */
static bool is_another(const mlp_params_t *p, int i)
{
    return i == 0 || p->product[i] != p->product[i - 1];
}

static void visit(const step_t *step, step_see_t see, void *to)
{
    const mlp_params_t *p = &step->p.mlp;
    for (int i = 0; i <= p->n_upper; i++) {
        product_visit(p->product[i], see, to);
    }
    for (int i = 0; i < p->n_tables; i++) {
        see(to, p->tables[i].table, STEP_READS);
    }
    see_chain(p->mid, see, to);
    see_chain(p->weigh, see, to);
}

static double work(estimate_t *e, const problem_t *p)
{
    const mlp_params_t *m = &p->step->p.mlp;
    for (int i = 0; i <= m->n_upper; i++) {
        const problem_t product = {.plan = p->plan, .step = m->product[i], .frame = p->frame};
        if (is_another(m, i)) {
            const double n = product_work(e, &product);
            estimate_chain(e, p, i == 0 ? m->mid : i == m->n_upper ? m->weigh : NULL, n);
        }
    }
    return estimate_elements(p, m->out_dims);
}

static void layouts(plan_t *plan, step_t *step)
{
    for (int i = 0; i <= step->p.mlp.n_upper; i++) {
        if (is_another(&step->p.mlp, i)) {
            product_layouts(plan, step->p.mlp.product[i]);
        }
    }
}

static void refuse_tiles(const plan_t *plan, const step_t *step, int value, textbuf_t *why)
{
    for (int i = 0; i <= step->p.mlp.n_upper && why->len == 0; i++) {
        product_refuse_tiles(plan, step->p.mlp.product[i], value, why);
    }
}

static void report(const plan_t *plan, const step_t *step, textbuf_t *text)
{
    for (int i = 0; i <= step->p.mlp.n_upper; i++) {
        if (is_another(&step->p.mlp, i)) {
            product_report(plan, step->p.mlp.product[i], text);
        }
    }
}

const step_ops_t step_experts = {.takes = takes,
                                 .gather = gather,
                                 .gathered = gathered,
                                 .products = true,
                                 .packed_values = (MLP_UPPER + 1) * PRODUCT_PACKED_VALUES,
                                 .emit = emit,
                                 .emit_inner = emit_inner,
                                 .visit = visit,
                                 .work = work,
                                 .layouts = layouts,
                                 .refuse_tiles = refuse_tiles,
                                 .report = report};
