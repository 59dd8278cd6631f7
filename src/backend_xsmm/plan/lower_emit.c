/* Emission: clusters become steps, with chains built over plan values. */
#include <inttypes.h>
#include <string.h>

#include "backend_xsmm/plan/emit.h"
#include "backend_xsmm/plan/inplace.h"
#include "base/status.h"
#include "graph/schema.h"
#include "graph/shape.h"

void emit_set_reg(emitter_t *e, int v, int reg)
{
    e->reg[v] = reg;
    e->stamp[v] = e->now;
}

/* Notes the register that an op computed. Narrow float types are rounded at once, since the graph
 * asks for their values; wide ones are rounded when they are stored. */
sinter_status_t emit_result(emitter_t *e, int v, int reg)
{
    const sinter_data_type_t type = e->lo->g->values[v].lt.data_type;
    if (reg >= 0 && dtype_is_float(type) && !dtype_is_wide_float(type)) {
        reg = chain_round_to(&e->b, reg, type);
    }
    if (reg < 0) {
        return sinter_out_of_memory;
    }
    emit_set_reg(e, v, reg);
    return sinter_success;
}

static void begin(emitter_t *e, int dims_value, bool with_input)
{
    e->now++;
    e->f64 = false;
    chain_begin(&e->b, &e->lo->plan->arena, e->lo->probe[dims_value].ndims, dims_value, with_input);
}

/* Values of s32, s64 and f64 tensors need registers of doubles to be exact. */
void emit_note_type(emitter_t *e, int value)
{
    e->f64 = e->f64 || dtype_needs_f64(e->lo->plan->values[value].lt.data_type);
}

sinter_status_t emit_reg(emitter_t *e, int v, int *reg)
{
    if (e->stamp[v] != e->now) {
        emit_note_type(e, v);
        const int ndims = e->lo->probe[v].ndims;
        const bool row = e->lo->family == FAMILY_EXPERTS && e->lo->spine[v] != 0;
        const int r = row ? chain_load_row(&e->b, v, ndims) : chain_load(&e->b, v, ndims);
        if (r < 0) {
            return sinter_out_of_memory;
        }
        emit_set_reg(e, v, r);
    }
    *reg = e->reg[v];
    return sinter_success;
}

/* ---- constants ------------------------------------------------------------------------------- */

/* A constant of n elements as a plan value: f32 from f, or f32 or s32 from i. It has two dims, the
 * inner one of so many elements; inner 0 or less: one dim. -1: out of memory. */
static int const_value(lowering_t *lo, const float *f, const int64_t *i, int64_t n, int64_t inner,
                       sinter_data_type_t type)
{
    plan_t *plan = lo->plan;
    union {
        float *f;
        int32_t *s;
        void *v;
    } data = {.v = arena_alloc(&plan->arena, (size_t)(n > 0 ? n : 1), 4)};
    if (data.v == NULL || plan->n_values == lo->cap_values) {
        return -1;
    }
    for (int64_t k = 0; k < n; k++) {
        if (type == sinter_s32) {
            data.s[k] = (int32_t)i[k];
        } else {
            data.f[k] = f != NULL ? f[k] : (float)i[k];
        }
    }
    plan_value_t *pv = &plan->values[plan->n_values];
    *pv = (plan_value_t){.kind = PV_CONST, .base = -1, .data = data.v};
    pv->lt.data_type = type;
    pv->lt.ndims = inner > 0 ? 2 : 1;
    pv->lt.dims[0] = inner > 0 ? n / inner : n;
    pv->lt.dims[1] = inner > 0 ? inner : 0;
    lt_set_dense(&pv->lt);
    return plan->n_values++;
}

/* ---- quantisation ---------------------------------------------------------------------------- */

/* How dims of the data map to those of scales and zero points. */
static void map_groups(const quant_t *q, operand_t *op)
{
    memcpy(op->scale_dim, q->geom.scale_dim, sizeof op->scale_dim);
    memcpy(op->zp_dim, q->geom.zp_dim, sizeof op->zp_dim);
    for (int d = 0; d < SINTER_MAX_NDIMS; d++) {
        op->group_size[d] = d < q->geom.ndims ? quant_said_size(q, q->geom.ndims, d) : 0;
    }
}

/* Scales or offsets that are codes themselves: *value becomes these, *by their factors. */
static sinter_status_t factors_of(lowering_t *lo, const node_t *n, int port, int *value,
                                  const factors_of_scales_t **by)
{
    const node_t *inner = n->in_dequant != NULL && port >= 0 ? n->in_dequant[port] : NULL;
    if (inner == NULL) {
        return sinter_success;
    }
    const quant_geom_t *geom = &inner->quant->geom;
    factors_of_scales_t *factors = ARENA_NEW(&lo->plan->arena, factors_of_scales_t, 1);
    if (factors == NULL) {
        return sinter_out_of_memory;
    }
    *factors = (factors_of_scales_t){inner->in[1], 1};
    for (int d = 0; d < geom->ndims; d++) {
        factors->groups = geom->scale_group[d] > 1 ? geom->scale_group[d] : factors->groups;
    }
    *value = inner->in[0];
    *by = factors;
    return sinter_success;
}

/* The scales and zero points of a quantising node, and how dims of the data map to theirs. int_zps:
 * constant zero points become s32. */
static sinter_status_t quant_values(lowering_t *lo, const node_t *n, bool int_zps, operand_t *op)
{
    const quant_t *q = n->quant;
    const quant_geom_t *geom = &q->geom;
    const lt_t *data = &lo->g->values[n->in[0]].lt;
    if (q->n_readers > 0 && q->readers[0].groups > 1 && geom->axis >= 0 &&
        data->dims[geom->axis] == SINTER_UNKNOWN_DIM) {
        return sg_fail(
            sinter_unimplemented,
            "%s: dimension %d of tensor %" PRIu64 " must be known at compile: op %" PRIu64
            " (ConvTranspose) reads it as weights in groups",
            node_label(n), geom->axis, graph_message_id(lo->g, n->in[0]), q->readers[0].op);
    }
    map_groups(q, op);
    op->scale = op->zp = op->high = -1;
    op->scale_by = op->zp_by = NULL;
    op->offsets = q->offsets;
    if (q->high_port >= 0) {
        op->high = n->in[q->high_port];
        op->split = q->split;
    }
    if (q->scales == NULL) {
        op->scale = q->scale_input >= 0 ? n->in[q->scale_input] : -1;
        op->zp = q->zp_input >= 0 ? n->in[q->zp_input] : -1;
        SG_TRY(factors_of(lo, n, q->scale_input, &op->scale, &op->scale_by));
        return factors_of(lo, n, q->zp_input, &op->zp, &op->zp_by);
    }
    /* A floating node is emitted once for each cluster that needs it, but needs its constants
     * once. */
    for (const_pair_t *c = lo->consts; c != NULL; c = c->next) {
        if (c->node == n && c->int_zps == int_zps) {
            op->scale = c->scale;
            op->zp = c->zp;
            return sinter_success;
        }
    }
    const_pair_t *pair = ARENA_NEW(&lo->plan->arena, const_pair_t, 1);
    if (pair == NULL) {
        return sinter_out_of_memory;
    }
    const int64_t inner = geom->inner_axis >= 0 ? data->dims[geom->inner_axis] : -1;
    op->scale = const_value(lo, q->scales, NULL, (int64_t)q->n_scales, inner, sinter_f32);
    bool zero = true;
    for (size_t k = 0; k < q->zps.n; k++) {
        zero = zero && q->zps.v[k] == 0;
    }
    if (q->float_zps != NULL) {
        zero = false;
        op->zp = const_value(lo, q->float_zps, NULL, (int64_t)q->n_scales, inner, sinter_f32);
    } else if (!zero) {
        op->zp = const_value(lo, NULL, q->zps.v, (int64_t)q->zps.n, inner,
                             int_zps ? sinter_s32 : sinter_f32);
    }
    *pair = (const_pair_t){
        .node = n, .int_zps = int_zps, .scale = op->scale, .zp = op->zp, .next = lo->consts};
    lo->consts = pair;
    return op->scale < 0 || (!zero && op->zp < 0) ? sinter_out_of_memory : sinter_success;
}

/* Loads the scales or zero points of a node whose data is aligned at the right of the chain's
 * dims. */
static sinter_status_t load_quant(emitter_t *e, const operand_t *op, bool zero_points,
                                  int data_ndims, int *reg)
{
    int8_t map[SINTER_MAX_NDIMS];
    int64_t sizes[SINTER_MAX_NDIMS];
    const int value = zero_points ? op->zp : op->scale;
    const int8_t *dim_of = zero_points ? op->zp_dim : op->scale_dim;
    const int shift = e->b.chain.ndims - data_ndims;
    for (int d = 0; d < SINTER_MAX_NDIMS; d++) {
        const bool own = d >= shift && d < e->b.chain.ndims;
        map[d] = own ? dim_of[d - shift] : -1;
        sizes[d] = own ? op->group_size[d - shift] : 0;
    }
    emit_note_type(e, value);
    *reg = chain_load_groups(&e->b, value, map, sizes);
    return *reg < 0 ? sinter_out_of_memory : sinter_success;
}

static sinter_status_t emit_quant(emitter_t *e, const node_t *n, int x, int *reg)
{
    operand_t op = {.split = sinter_data_type_undef};
    int scale, zp = -1;
    const int ndims = e->lo->probe[n->in[0]].ndims;
    SG_TRY(quant_values(e->lo, n, false, &op));
    if (op.scale < 0) {
        return sg_fail(sinter_unimplemented, "%s: no scales", node_label(n));
    }
    if (op.split != sinter_data_type_undef) {
        x = chain_load_split(&e->b, n->in[0], op.high, ndims, op.split);
    }
    SG_TRY(load_quant(e, &op, false, ndims, &scale));
    if (op.zp >= 0) {
        SG_TRY(load_quant(e, &op, true, ndims, &zp));
    }
    const sinter_data_type_t type = e->lo->g->values[n->out[0]].lt.data_type;
    *reg = (op_flags(n->kind) & OP_QUANT) ? chain_quant(&e->b, x, scale, zp, type)
           : op.offsets                   ? chain_dequant_offset(&e->b, x, scale, zp)
                                          : chain_dequant(&e->b, x, scale, zp);
    return *reg < 0 ? sinter_out_of_memory : sinter_success;
}

/* ---- chains ---------------------------------------------------------------------------------- */

/* s32 arithmetic: exact in doubles; a quotient is truncated, and each result saturates, as op by op
 * (in a chain that stores the result, the store does that). */
static int emit_s32(emitter_t *e, const node_t *n, int reg)
{
    e->f64 = true;
    if (n->kind == sinter_op_divide) {
        reg = chain_truncate(&e->b, reg);
    }
    return chain_round_to(&e->b, reg, sinter_s32);
}

/* The same elements in other dims. Where they are in no register yet, they are loaded in the dims
 * of the result, which are those of the chain. */
static sinter_status_t emit_view(emitter_t *e, const node_t *n)
{
    int reg;
    const bool in_register = e->stamp[n->in[0]] == e->now;
    SG_TRY(emit_reg(e, in_register ? n->in[0] : n->out[0], &reg));
    emit_set_reg(e, n->out[0], reg);
    return sinter_success;
}

static sinter_status_t emit_node(emitter_t *e, const node_t *n)
{
    enum { MOST = 5 };
    if (lower_is_view(n)) {
        return emit_view(e, n);
    }
    int regs[MOST] = {-1, -1, -1, -1, -1}, reg = -1;
    const bool quant = (op_flags(n->kind) & (OP_QUANT | OP_DEQUANT)) != 0;
    const bool index_only = n->kind == sinter_op_gen_index;
    const sinter_data_type_t type = e->lo->g->values[n->out[0]].lt.data_type;
    const int n_regs = quant ? quant_split_of(n) == sinter_data_type_undef : MOST;
    for (int i = 0; i < n->n_in && i < n_regs && !index_only; i++) {
        SG_TRY(emit_reg(e, n->in[i], &regs[i]));
    }
    if (quant) {
        SG_TRY(emit_quant(e, n, regs[0], &reg));
    } else if (n->kind == sinter_op_reorder || n->kind == sinter_op_type_cast) {
        reg = dtype_is_wide_float(type) ? regs[0] : chain_round_to(&e->b, regs[0], type);
    } else {
        reg = chain_op(&e->b, n, regs, n->n_in);
        e->f64 = e->f64 || type == sinter_f64;
        reg = type == sinter_s32 && !index_only ? emit_s32(e, n, reg) : reg;
        return emit_result(e, n->out[0], reg);
    }
    if (reg < 0) {
        return sinter_out_of_memory;
    }
    emit_set_reg(e, n->out[0], reg);
    return sinter_success;
}

static sinter_status_t emit_nodes(emitter_t *e, const cluster_t *cl)
{
    for (int i = 0; i < cl->n_nodes; i++) {
        SG_TRY(emit_node(e, &e->lo->g->nodes[cl->nodes[i]]));
    }
    return sinter_success;
}

static sinter_status_t store(emitter_t *e, int v)
{
    emit_note_type(e, v);
    return chain_store(
        &e->b, chain_unrounded(&e->b, e->reg[v], e->lo->plan->values[v].lt.data_type), v, NULL);
}

/* The step has its result in register 0 of the chain that follows it. */
static bool hands_on(const cluster_t *cl)
{
    return cl->heavy >= 0 && !sinter_steps[cl->kind]->to_memory;
}

/* Stores all values that this cluster has in registers and that must be in memory. */
static sinter_status_t emit_stores(emitter_t *e, int ci)
{
    lowering_t *lo = e->lo;
    const cluster_t *cl = &lo->clusters[ci];
    if (hands_on(cl) && lo->stored[lo->g->nodes[cl->heavy].out[0]]) {
        SG_TRY(store(e, lo->g->nodes[cl->heavy].out[0]));
    }
    for (int i = 0; i < cl->n_nodes; i++) {
        const int v = lo->g->nodes[cl->nodes[i]].out[0];
        if (lo->home[v] == ci && lo->stored[v]) {
            SG_TRY(store(e, v));
        }
    }
    return sinter_success;
}

/* ---- heavy steps ----------------------------------------------------------------------------- */

sinter_status_t emit_operand(lowering_t *lo, const node_t *n, int port, operand_t *op)
{
    *op = (operand_t){.data = n->in[port], .scale = -1, .zp = -1, .high = -1};
    memset(op->scale_dim, -1, sizeof(op->scale_dim));
    memset(op->zp_dim, -1, sizeof(op->zp_dim));
    if (n->in_dequant != NULL && n->in_dequant[port] != NULL) {
        SG_TRY(quant_values(lo, n->in_dequant[port], true, op));
    }
    const sinter_data_type_t type = lo->g->values[op->data].lt.data_type;
    if (dtype_needs_f64(type)) {
        return sg_fail(sinter_unimplemented, "%s: tensor %llu is %s; matmul runs in f32",
                       node_label(n), (unsigned long long)lo->g->values[op->data].lt.id,
                       dtype_traits(type)->name);
    }
    if (lo->probe[op->data].ndims < 2) {
        return sg_fail(sinter_unimplemented, "%s: operand of less than two dims", node_label(n));
    }
    return sinter_success;
}

static bool codes_are_int(const graph_t *g, const node_t *dequant, int codes)
{
    const bool split = quant_split_of(dequant) != sinter_data_type_undef;
    return !split && dtype_traits(g->values[codes].lt.data_type)->cls == DTYPE_INT;
}

const node_t *emit_dequant_before(const lowering_t *lo, int v)
{
    const graph_t *g = lo->g;
    for (int p = g->values[v].producer; p >= 0; p = g->values[g->nodes[p].in[0]].producer) {
        const node_t *n = &g->nodes[p];
        if ((op_flags(n->kind) & OP_DEQUANT) != 0) {
            return n;
        }
        if (n->kind != sinter_op_type_cast && (op_flags(n->kind) & OP_VIEW) == 0) {
            break;
        }
    }
    return NULL;
}

bool emit_is_of_codes(const lowering_t *lo, const node_t *product, int port)
{
    return (product->in_dequant != NULL && product->in_dequant[port] != NULL) ||
           emit_dequant_before(lo, product->in[port]) != NULL;
}

/* The operand is dequantised from integers, by this step or by an earlier one. */
static bool from_int(const lowering_t *lo, const node_t *n, int port)
{
    const graph_t *g = lo->g;
    if (n->in_dequant != NULL && n->in_dequant[port] != NULL) {
        return codes_are_int(g, n->in_dequant[port], n->in[port]);
    }
    const node_t *before = emit_dequant_before(lo, n->in[port]);
    return before != NULL && codes_are_int(g, before, before->in[0]);
}

sinter_fpmath_mode_t emit_mode(const lowering_t *lo, const node_t *matmul)
{
    const bool integer = from_int(lo, matmul, 0) || from_int(lo, matmul, 1);
    return integer && !lo->plan->apply_to_int ? sinter_fpmath_mode_strict : lo->plan->mode;
}

/* The chain that computes the data of a norm, a reduction or a window, and stores it where
 * others need it. */
static sinter_status_t emit_pre(emitter_t *e, const cluster_t *cl, const chain_t **chain)
{
    lowering_t *lo = e->lo;
    const int x = lo->g->nodes[cl->turn >= 0 ? cl->turn : cl->heavy].in[0];
    int reg;
    begin(e, x, false);
    SG_TRY(emit_nodes(e, cl->pre));
    SG_TRY(emit_reg(e, x, &reg));
    if (cluster_has(cl->pre, lo->g->values[x].producer) && lo->stored[x]) {
        SG_TRY(store(e, x));
    }
    return chain_finish(&e->b, reg, e->f64, chain);
}

void emit_dynquant(const lowering_t *lo, int node, dynquant_params_t *p)
{
    const node_t *n = &lo->g->nodes[node];
    const quant_t *q = n->quant;
    const bool scaled_twice = q->kind == QUANT_DYNAMIC_NV && n->n_in > 1;
    *p = (dynquant_params_t){.in = n->in[0],
                             .out = {.data = n->out[0],
                                     .scale = n->n_out > 1 ? n->out[1] : -1,
                                     .zp = q->has_zp ? n->out[2] : -1,
                                     .high = q->high_port >= 0 ? n->out[q->high_port] : -1,
                                     .split = q->split,
                                     .offsets = q->offsets},
                             .kind = (int)q->kind,
                             .code_bits = q->code_bits,
                             .tensor_scale = scaled_twice ? n->in[1] : -1};
    map_groups(q, &p->out);
}

/* Ends the chain of a cluster. The value that a tail quantises stays in its register. */
static sinter_status_t finish(emitter_t *e, const cluster_t *cl, step_t *step)
{
    int result = -1;
    if (cl->tail >= 0) {
        dynquant_params_t *tail = ARENA_NEW(&e->lo->plan->arena, dynquant_params_t, 1);
        if (tail == NULL) {
            return sinter_out_of_memory;
        }
        emit_dynquant(e->lo, cl->tail, tail);
        SG_TRY(emit_reg(e, tail->in, &result));
        step->tail = tail;
    }
    return chain_finish(&e->b, result, e->f64, &step->post);
}

/* The nodes of a part that value `to` depends on, in their order. */
static sinter_status_t needed(lowering_t *lo, const cluster_t *part, int to, cluster_t *out)
{
    bool *need = ARENA_NEW(&lo->plan->arena, bool, lo->g->n_values + 1);
    *out = (cluster_t){.nodes = ARENA_NEW(&lo->plan->arena, int, part->n_nodes + 1)};
    if (need == NULL || out->nodes == NULL) {
        return sinter_out_of_memory;
    }
    need[to] = true;
    for (int i = part->n_nodes - 1; i >= 0; i--) {
        const node_t *n = &lo->g->nodes[part->nodes[i]];
        for (int k = 0; need[n->out[0]] && k < n->n_in; k++) {
            need[n->in[k]] = true;
        }
    }
    for (int i = 0; i < part->n_nodes; i++) {
        if (need[lo->g->nodes[part->nodes[i]].out[0]]) {
            out->nodes[out->n_nodes++] = part->nodes[i];
        }
    }
    return sinter_success;
}

/* The chain that computes value `to` from value `from`, which the kernel hands in; NULL if they are
 * the same. It runs over the dims that the kernel has in the end, which are those of `space` or
 * more: where dims are open, an operand may have more of them than `from`, and V more than both. */
sinter_status_t emit_part(emitter_t *e, const cluster_t *all, int from, int to, int space,
                          const chain_t **chain)
{
    int reg, n = 0;
    cluster_t part;
    *chain = NULL;
    SG_TRY(needed(e->lo, all, to, &part));
    for (int i = 0; i < part.n_nodes; i++) {
        n += !lower_is_view(&e->lo->g->nodes[part.nodes[i]]);
    }
    if (n == 0) {
        return sinter_success;
    }
    begin(e, space, true);
    SG_TRY(emit_result(e, from, 0));
    SG_TRY(emit_nodes(e, &part));
    SG_TRY(emit_reg(e, to, &reg));
    return chain_finish(&e->b, reg, e->f64, chain);
}

static sinter_status_t emit_cluster(emitter_t *e, int ci, step_t *step)
{
    const cluster_t *cl = &e->lo->clusters[ci];
    step->kind = cl->kind;
    step->why_separate = cl->why_separate;
    step->copied = step->copy = step->copy_at = -1;
    /* Through a reshape seen backwards, all of a temporary is written in the order of elements. */
    const plan_value_t *to = cl->copy ? &e->lo->plan->values[cl->copy_to] : NULL;
    if (to != NULL && to->kind == PV_VIEW && to->shows == BACKWARDS &&
        to->op->kind == sinter_op_static_reshape && e->lo->plan->values[to->base].kind == PV_TEMP) {
        step->copied = cl->copy_from;
        step->copy = to->base;
    }
    if (step_ops(step)->emit_inner != NULL) {
        SG_TRY(step_ops(step)->emit_inner(e, step));
    }
    if (cl->pre != NULL) {
        SG_TRY(emit_pre(e, cl, &step->pre));
    }
    begin(e, cl->dims_value, hands_on(cl));
    SG_TRY(step_ops(step)->emit(e, cl, step));
    SG_TRY(emit_nodes(e, cl));
    SG_TRY(emit_stores(e, ci));
    return finish(e, cl, step);
}

/* ---- lifetimes ------------------------------------------------------------------------------- */

static void touch(plan_t *plan, int v, int step)
{
    v = plan_memory_of(plan, v);
    if (v >= 0 && (plan->values[v].kind == PV_TEMP || plan->values[v].kind == PV_INPUT ||
                   plan->values[v].kind == PV_OUTPUT)) {
        plan_value_t *pv = &plan->values[v];
        pv->first = pv->first < 0 || step < pv->first ? step : pv->first;
        pv->last = step > pv->last ? step : pv->last;
    }
}

/* A step of the plan that is being looked at. */
typedef struct toucher {
    plan_t *plan;
    int step;
} toucher_t;

static void see(void *to, int value, unsigned access)
{
    const toucher_t *t = to;
    (void)access;
    touch(t->plan, value, t->step);
}

static void lifetimes(plan_t *plan)
{
    for (int i = 0; i < plan->n_values; i++) {
        plan->values[i].first = plan->values[i].last = plan->values[i].heir = -1;
        plan->values[i].beside = -1;
    }
    for (int s = 0; s < plan->n_steps; s++) {
        const step_t *step = &plan->steps[s];
        toucher_t toucher = {plan, s};
        step_visit(step, see, &toucher);
        for (int i = 0; i < plan->n_values; i++) {
            plan->values[i].beside = plan->values[i].last == s ? s : plan->values[i].beside;
        }
        see_chain(step->pre, see, &toucher);
        see_chain(step->post, see, &toucher);
    }
}

/* A temporary that a chain writes may take over the memory of one that it is the last to read. */
static void find_heirs(plan_t *plan)
{
    for (int i = 0; i < plan->n_values; i++) {
        const int s = plan->values[i].first;
        for (int j = 0; j < plan->n_values && s >= 0 && plan->values[i].kind == PV_TEMP; j++) {
            plan_value_t *dies = &plan->values[j];
            if (dies->kind == PV_TEMP && dies->last == s && dies->first >= 0 && dies->first < s &&
                dies->heir < 0 && dies->lt.data_type == plan->values[i].lt.data_type &&
                inplace_overwrites(plan, s, j, i)) {
                dies->heir = i;
                break;
            }
        }
    }
}

/* The next cluster in order of pos; copies come after the cluster that they follow, in the order in
 * which they were made. */
static int next_cluster(const lowering_t *lo, const bool *done)
{
    int best = -1;
    for (int i = 0; i < lo->n_clusters; i++) {
        if (!done[i] && (best < 0 || lo->clusters[i].pos < lo->clusters[best].pos ||
                         (lo->clusters[i].pos == lo->clusters[best].pos &&
                          lo->clusters[best].copy && !lo->clusters[i].copy))) {
            best = i;
        }
    }
    return best;
}

sinter_status_t lower_emit(lowering_t *lo)
{
    plan_t *plan = lo->plan;
    emitter_t e = {.lo = lo, .now = 0};
    e.reg = ARENA_NEW(&plan->arena, int, lo->g->n_values + 1);
    e.stamp = ARENA_NEW(&plan->arena, int, lo->g->n_values + 1);
    bool *done = ARENA_NEW(&plan->arena, bool, lo->n_clusters + 1);
    plan->steps = ARENA_NEW(&plan->arena, step_t, lo->n_clusters + 2);
    if (e.reg == NULL || e.stamp == NULL || done == NULL || plan->steps == NULL) {
        return sinter_out_of_memory;
    }
    plan->n_steps = 0;
    for (int k = 0; k < lo->n_clusters; k++) {
        const int ci = next_cluster(lo, done);
        done[ci] = true;
        step_t *step = &plan->steps[plan->n_steps++];
        SG_TRY(emit_cluster(&e, ci, step));
        plan->n_steps += step_ops(step)->divide != NULL && step_ops(step)->divide(step, step + 1);
    }
    lifetimes(plan);
    find_heirs(plan);
    return sinter_success;
}
