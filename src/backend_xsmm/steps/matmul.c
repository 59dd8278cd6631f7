/* MatMul, Convolution and ConvTranspose. */
#include "backend_xsmm/drivers/matmul/matmul.h"
#include "backend_xsmm/drivers/common/quant_tail.h"
#include "backend_xsmm/drivers/matmul/matmul_blocks.h"
#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/emit.h"
#include "backend_xsmm/steps/product.h"
#include "graph/experts.h"
#include "graph/quant.h"
#include "graph/shape.h"

static sinter_status_t emit_matmul(emitter_t *e, const node_t *n)
{
    int sum = 0;
    if (n->n_in > 2) {
        const node_t add = {.kind = sinter_op_add, .n_in = 2};
        int regs[2] = {0, -1};
        SG_TRY(emit_reg(e, n->in[2], &regs[1]));
        sum = chain_op(&e->b, &add, regs, 2);
    }
    return emit_result(e, n->out[0], sum);
}

/* Weights are [groups, window, I, O] by now. The chain begins with the bias of each channel. */
static sinter_status_t emit_convolution(emitter_t *e, const node_t *n, matmul_params_t *p)
{
    lowering_t *lo = e->lo;
    const lt_t *image = &lo->probe[n->in[0]], *weights = &lo->probe[n->in[1]];
    conv_params_t *c = ARENA_NEW(&lo->plan->arena, conv_params_t, 1);
    int sum = 0;
    if (c == NULL) {
        return sinter_out_of_memory;
    }
    p->conv = c;
    c->channel = shape_channel_dim(n, image);
    c->groups = weights->dims[0];
    c->transposed = n->kind == sinter_op_conv_transpose;
    for (int i = 0; i < image->ndims - 2; i++) {
        SG_TRY(window_read(n, image->ndims - 2, i, weights->dims[1 + i], &c->dim[i]));
    }
    if (n->n_in > 2) {
        const node_t add = {.kind = sinter_op_add, .n_in = 2};
        int8_t map[SINTER_MAX_NDIMS];
        for (int d = 0; d < SINTER_MAX_NDIMS; d++) {
            map[d] = (int8_t)(d == c->channel ? 0 : -1);
        }
        emit_note_type(e, n->in[2]);
        const int bias = chain_load_mapped(&e->b, n->in[2], map);
        sum = bias < 0 ? -1 : chain_op(&e->b, &add, (int[]){0, bias}, 2);
    }
    return emit_result(e, n->out[0], sum);
}

/* Of an array by dims of the result of a Gather: what belongs to those of the table. */
static void shift_dims(int8_t *dim_of, int by)
{
    for (int d = 0; d + by < SINTER_MAX_NDIMS; d++) {
        const int8_t dim = dim_of[d + by];
        dim_of[d] = (int8_t)(dim < 0 ? -1 : dim - by);
    }
}

/* The factors of scales that are codes, in a table too. */
static sinter_status_t table_of_factors(lowering_t *lo, const factors_of_scales_t **by)
{
    if (*by == NULL) {
        return sinter_success;
    }
    factors_of_scales_t *table = ARENA_NEW(&lo->plan->arena, factors_of_scales_t, 1);
    if (table == NULL) {
        return sinter_out_of_memory;
    }
    *table = (factors_of_scales_t){graph_table_of_experts(lo->g, (*by)->value), (*by)->groups};
    *by = table;
    return sinter_success;
}

/* B becomes the table that experts are taken from. */
static sinter_status_t take_experts(lowering_t *lo, const node_t *n, matmul_params_t *p)
{
    operand_t *b = &p->b;
    const int ids = graph_experts(lo->g, n);
    p->experts = ids >= 0 && lo->g->values[ids].producer < 0 ? ids : -1;
    if (p->experts < 0) {
        return sinter_success;
    }
    const int by = lo->g->values[ids].lt.ndims - 1;
    b->data = graph_table_of_experts(lo->g, b->data);
    b->scale = b->scale < 0 ? -1 : graph_table_of_experts(lo->g, b->scale);
    b->zp = b->zp < 0 ? -1 : graph_table_of_experts(lo->g, b->zp);
    shift_dims(b->scale_dim, by);
    shift_dims(b->zp_dim, by);
    for (int d = 0; d + by < SINTER_MAX_NDIMS; d++) {
        b->group_size[d] = b->group_size[d + by];
    }
    SG_TRY(table_of_factors(lo, &b->scale_by));
    return table_of_factors(lo, &b->zp_by);
}

sinter_status_t product_describe(lowering_t *lo, const node_t *n, matmul_params_t *p)
{
    SG_TRY(emit_operand(lo, n, 0, &p->a));
    SG_TRY(emit_operand(lo, n, 1, &p->b));
    SG_TRY(take_experts(lo, n, p));
    p->trans_a = node_bool(n, sinter_op_attr_transpose_a, false);
    p->trans_b = node_bool(n, sinter_op_attr_transpose_b, false);
    p->out_dims = n->out[0];
    return sinter_success;
}

static sinter_status_t emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    lowering_t *lo = e->lo;
    const node_t *n = emit_heavy(e, cl);
    const bool convolution = op_class(n->kind) == OP_CONVOLUTION;
    matmul_params_t *p = &step->p.matmul;
    SG_TRY(product_describe(lo, n, p));
    step->permit =
        permit_of(emit_mode(lo, n), blocks_of_codes(&(problem_t){.plan = lo->plan, .step = step}));
    if (p->a.scale < 0 && emit_is_of_codes(lo, n, 0)) { /* they are floats now */
        step->permit.integers = NO_INTEGERS;
    }
    return convolution ? emit_convolution(e, n, p) : emit_matmul(e, n);
}

void product_visit(const step_t *step, step_see_t see, void *to)
{
    see_operand(&step->p.matmul.a, STEP_READS, see, to);
    see_operand(&step->p.matmul.b, STEP_READS, see, to);
    see(to, step->p.matmul.experts, STEP_READS);
}

/* The table of B: of experts no more than there are rows, as the weights of one without rows are
 * not read. */
static void estimate_b(estimate_t *e, const problem_t *p)
{
    const matmul_params_t *m = &p->step->p.matmul;
    estimate_t table = {0};
    double part = 1;
    estimate_operand(&table, p, &m->b);
    if (m->experts >= 0) {
        const double rows = estimate_elements(p, m->experts) * 1e3,
                     experts = (double)problem_dim(p, m->b.data, 3);
        e->open = e->open || rows < 0 || experts < 0;
        part = rows < experts ? rows / experts : 1;
    }
    e->open = e->open || table.open;
    e->us += table.us * part;
}

double product_work(estimate_t *e, const problem_t *p)
{
    const matmul_params_t *m = &p->step->p.matmul;
    const double n = estimate_elements(p, m->out_dims);
    double k = (double)problem_dim(p, m->a.data, m->trans_a ? 2 : 1);
    estimate_t operands = {0};
    estimate_operand(&operands, p, &m->a);
    estimate_b(&operands, p);
    if (m->conv != NULL) { /* each weight meets the results of its channel */
        const double weights = estimate_elements(p, m->b.data) * 1e3,
                     channels = (double)problem_dim(p, m->b.data, 1) * (double)m->conv->groups;
        k = weights < 0 || channels < 1 ? -1 : weights / channels;
    }
    estimate_products(e, n, k, operands);
    return n;
}

/* A block is all columns if those are few, else as many as fit `most` and are a multiple of
 * `unit`. */
static bool columns_fit(int64_t n, int64_t group, int64_t unit, int64_t most)
{
    return (n >= 0 && n <= most) || group / common_divisor(group, unit) * unit <= most;
}

/* Why rows of channels of a convolution do not hold whole groups. */
static const char *refuse_channels(const tail_groups_t *t)
{
    const lt_t *image = &t->g->values[t->heavy->in[0]].lt, *to = &t->g->values[t->heavy->out[0]].lt;
    const int line = to->ndims - 2;
    return shape_channel_dim(t->heavy, image) != image->ndims - 1
               ? "results of convolution with channels first are computed channels last"
           : node_s64(t->heavy, sinter_op_attr_groups, 1) > 1
               ? "rows of results are computed group by group of their channels"
           : t->geom->ndims != to->ndims || (to->dims[line] != 1 && t->geom->scale_group[line] != 1)
               ? "groups of several rows of a convolution"
               : NULL;
}

static const char *refuse_tail(const tail_groups_t *t)
{
    const char *why = op_class(t->heavy->kind) == OP_CONVOLUTION ? refuse_channels(t) : NULL;
    return why != NULL ? why
           : t->rows > 1 && graph_experts(t->g, t->heavy) >= 0
               ? "groups of several rows, which may go to different experts"
           : TAIL_MATMUL_ROWS % t->rows != 0 ? "groups of rows do not divide a block of rows"
           : !columns_fit(t->data->dims[t->data->ndims - 1], t->columns, TAIL_MATMUL_STRIP,
                          TAIL_MATMUL_COLUMNS)
               ? "groups of columns reach over panels"
               : NULL;
}

/* Makes B tiles where kernels read them: they are given, or become copies of constants. Where the
 * library may choose, matmul_refuse_copy says whether tiles are worth it. Scales and zero points of
 * a convolution stay as they are. */
static void take_tiles(plan_t *plan, const step_t *step, matmul_params_t *m)
{
    operand_t *b = &m->b;
    const bool given = plan->values[b->data].tiled != NOT_TILED, values = m->conv == NULL,
               chosen = given && plan->sub.values[b->data].chosen;
    m->why_no_tiles = !given && (!lower_is_constant(plan, b->data) ||
                                 (values && b->scale >= 0 && !lower_is_constant(plan, b->scale)) ||
                                 (values && b->zp >= 0 && !lower_is_constant(plan, b->zp)) ||
                                 (b->high >= 0 && !lower_is_constant(plan, b->high)))
                          ? "B is not constant"
                          : matmul_refuse_tiles(plan, step);
    if (m->why_no_tiles == NULL && (!given || chosen)) {
        m->why_no_tiles = matmul_refuse_copy(plan, step);
    }
    m->tiled = m->why_no_tiles == NULL;
    if (m->tiled && !given) {
        const int last = plan->values[b->data].lt.ndims - 1, across = m->trans_b ? last - 1 : last,
                  along = m->trans_b ? last : last - 1, set = plan->n_values;
        b->data = lower_pack_tiles(plan, b->data, TILED_CODES, across, along, set);
        plan->values[set].window = !values;
        if (!values) {
            return;
        }
        b->high =
            b->high < 0 ? -1 : lower_pack_tiles(plan, b->high, TILED_CODES, across, along, set);
        b->scale = b->scale < 0 ? -1
                                : lower_pack_tiles(plan, b->scale, TILED_VALUES,
                                                   b->scale_dim[across], b->scale_dim[along], set);
        b->zp = b->zp < 0 ? -1
                          : lower_pack_tiles(plan, b->zp, TILED_VALUES, b->zp_dim[across],
                                             b->zp_dim[along], set);
    }
}

void product_layouts(plan_t *plan, step_t *step)
{
    const int dim = matmul_packs_along(plan, step);
    operand_t *b = &step->p.matmul.b;
    take_tiles(plan, step, &step->p.matmul);
    if (plan->values[b->data].tiled == NOT_TILED && dim >= 0) {
        b->data = lower_pack(plan, b->data, dim,
                             64 * 8 / dtype_traits(plan->values[b->data].lt.data_type)->bits);
        b->scale = lower_pack(plan, b->scale, b->scale_dim[dim], 1);
        b->zp = b->zp < 0 ? b->zp : lower_pack(plan, b->zp, b->zp_dim[dim], 1);
    }
}

/* A part of the operand at hand. */
typedef struct part {
    int value;
    bool found;
} part_t;

static void find_part(void *to, int value, unsigned access)
{
    part_t *part = to;
    (void)access;
    part->found = part->found || value == part->value;
}

void product_refuse_tiles(const plan_t *plan, const step_t *step, int value, textbuf_t *why)
{
    const matmul_params_t *m = &step->p.matmul;
    part_t part = {.value = value};
    (void)plan;
    see_operand(&m->b, STEP_READS, find_part, &part);
    if (part.found && !m->tiled && m->why_no_tiles != NULL) {
        text_add(why, "%s", m->why_no_tiles);
    }
}

/* Operands that are read from the constant cache, or in blocks. */
void product_report(const plan_t *plan, const step_t *step, textbuf_t *text)
{
    const matmul_params_t *m = &step->p.matmul;
    const int packed[] = {m->b.data, m->b.high, m->b.scale, m->b.zp};
    if (plan->values[m->b.data].shows == IN_BLOCKS) {
        text_add(text, "  reads tensor %llu in place, in the blocks that its dims say\n",
                 (unsigned long long)plan->values[plan->values[m->b.data].base].lt.id);
    }
    for (int i = 0; i < 4; i++) {
        const plan_value_t *v = packed[i] >= 0 ? &plan->values[packed[i]] : NULL;
        if (v != NULL && v->kind == PV_INPUT && v->tiled != NOT_TILED) {
            text_add(text, "  reads tensor %llu in tiles, as it was given\n",
                     (unsigned long long)v->lt.id);
        }
        if (v == NULL || v->kind != PV_PACKED) {
            continue;
        }
        text_add(text, "  reads tensor %llu, which is constant, ", (unsigned long long)v->lt.id);
        if (v->tiled != NOT_TILED) {
            text_add(text, "in tiles: a copy in the constant cache\n");
        } else {
            text_add(text, "with dim %d contiguous: a copy in the constant cache\n", v->along);
        }
    }
}

const step_ops_t step_matmul = {.classes = OP_MATMUL | OP_CONVOLUTION,
                                .chains_once = true,
                                .products = true,
                                .packed_values = PRODUCT_PACKED_VALUES,
                                .emit = emit,
                                .visit = product_visit,
                                .work = product_work,
                                .refuse_tail = refuse_tail,
                                .layouts = product_layouts,
                                .refuse_tiles = product_refuse_tiles,
                                .report = product_report};
