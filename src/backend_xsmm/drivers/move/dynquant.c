/* DynamicQuantize steps that compute scales (and zero points) from the data: which way they take.
 * quantiser.h has the formulas, dynquant.h the cut into slabs. */
#include "backend_xsmm/drivers/move/dynquant.h"

#include "base/status.h"
#include "graph/quant.h"

enum {
    NARROW = 16,          /* groups of fewer columns are taken column by column */
    FETCH_COLUMNS = 4096, /* how far ahead of short slabs memory is fetched */
    TALL_AHEAD = 8,       /* and of slabs beyond L2, in rows */
};

/* ---- ways ------------------------------------------------------------------------------------ */

dtype_blocks_t dynquant_blocks(const dynquant_state_t *st)
{
    return (dtype_blocks_t){.formula = &st->q.formula,
                            .from = st->s.in.dtype,
                            .size = st->s.column.n,
                            .to = st->q.out.base};
}

bool dynquant_is_chunk(const dtype_blocks_t *b, int64_t elements)
{
    const int zp_bits = b->to.zp.type != NULL ? b->to.zp.type->bits : 8;
    return elements >= DTYPE_BLOCK && elements >= b->size && elements / b->size * zp_bits % 8 == 0;
}

/* What no way in registers takes. */
static const char *refuse_quantiser(const quantiser_t *q)
{
    return quantiser_splits(q)              ? "split codes"
           : quantiser_is_open(q)           ? "zero points are floats or offsets"
           : quant_by_sign(q->formula.kind) ? "scales have the sign of the largest element"
           : q->formula.clamps              ? "codes have fewer bits than their type"
                                            : NULL;
}

/* Runs of groups that lie one after the other in all tensors, computed in registers. */
static const char *refuse_chunks(int way, const void *config, void *state)
{
    const dynquant_state_t *st = state;
    const quant_space_t *s = &st->s;
    const int64_t size = s->column.n;
    const sinter_data_type_t in = s->in.dtype;
    const dtype_blocks_t b = dynquant_blocks(st);
    const bool dense = s->column.in == 1 && s->column.to[IN_CODES] == 1 && s->group.in == size &&
                       s->group.to[IN_CODES] == size && s->group.to[IN_SCALE] == 1 &&
                       (st->q.zp == NULL || s->group.to[IN_ZP] == 1);
    bool alone = true;
    (void)way, (void)config;
    for (int a = 0; a < s->n_slab; a++) {
        alone = alone && s->item[a] == 1;
    }
    if (in != sinter_f32 && in != sinter_f16 && in != sinter_bf16) {
        return "elements are not f32, f16 or bf16";
    }
    if (refuse_quantiser(&st->q) != NULL) {
        return refuse_quantiser(&st->q);
    }
    if (s->by_pieces) {
        return "too few groups for the threads, or groups too tall for a cache";
    }
    if (!dense || s->rows != 1 || !alone) {
        return "groups do not lie one after the other in all tensors";
    }
    if (size != 16 && size != 32 && size != 64 && (size <= 0 || size % DTYPE_BLOCK != 0)) {
        return "groups are not of 16, 32, 64 or a multiple of 128 elements";
    }
    if (!dynquant_is_chunk(&b, dtype_chunk(size, in))) {
        return "zero points of a chunk are not whole bytes";
    }
    return st->q.codes->quantise == NULL || st->q.codes->quantise(&b) != 0
               ? "no function for these types"
               : NULL;
}

static const char *refuse_shared_slabs(int way, const void *config, void *state)
{
    const dynquant_state_t *st = state;
    (void)way, (void)config;
    return st->s.by_pieces ? NULL : "";
}

/* In the order of dynquant_way_t. */
const way_row_t ways_dynquant_groups[] = {
    {"chunks of groups", refuse_chunks, BY_CHUNKS},
    {"slabs shared by all threads", refuse_shared_slabs, BY_SHARED_SLABS},
    {"slabs of groups", NULL, BY_SLABS}};

/* Slabs: whether elements become codes in registers. */
static const char *refuse_registers(int way, const void *config, void *state)
{
    const dynquant_state_t *st = state;
    (void)way, (void)config;
    if (refuse_quantiser(&st->q) != NULL) {
        return refuse_quantiser(&st->q);
    }
    if (st->q.codes->store_scaled == NULL) {
        return "no function for this type of codes";
    }
    return st->s.column.to[IN_CODES] != 1 ? "codes of a row have gaps" : NULL;
}

const way_row_t ways_dynquant_codes[] = {{"registers", refuse_registers, 0},
                                         {"floats in memory", NULL, 0}};

/* Slabs: how elements are measured. */
static const char *refuse_floats(int way, const void *config, void *state)
{
    const dynquant_state_t *st = state;
    (void)way, (void)config;
    return dynquant_are_floats(&st->s) ? NULL : "";
}

static const char *refuse_16_bits(int way, const void *config, void *state)
{
    const dynquant_state_t *st = state;
    const quant_space_t *s = &st->s;
    if (quant_widen16(st->q.fn, s->in.dtype) == NULL) {
        return "no function measures elements of this type";
    }
    if (s->column.in != 1 || (uintptr_t)s->in.data % sizeof(uint16_t) != 0) {
        return "elements of a row have gaps, or odd addresses";
    }
    return s->column.n % DTYPE_GROUP != 0 ? "groups are not of a multiple of 16 columns"
                                          : refuse_registers(way, config, state);
}

const way_row_t ways_dynquant_elements[] = {{"floats where they lie", refuse_floats, 0},
                                            {"16 bits where they lie", refuse_16_bits, 0},
                                            {"conversion to floats", NULL, 0}};

static void choose_ways(dynquant_state_t *st, choice_t *choice)
{
    const bool measures_16 = refuse_16_bits(0, NULL, st) == NULL;
    st->measure_16 = measures_16 ? quant_widen16(st->q.fn, st->s.in.dtype) : NULL;
    st->registers = refuse_registers(0, NULL, st) == NULL;
    st->way = (dynquant_way_t)take_way(ways_dynquant_groups, NULL, NULL, st, choice);
    if (st->way != BY_CHUNKS) { /* the few groups that are left over do not count */
        take_way(ways_dynquant_elements, "elements", NULL, st, choice);
        take_way(ways_dynquant_codes, "codes", NULL, st, choice);
    }
}

/* ---- choose ---------------------------------------------------------------------------------- */

/* Columns from what is being encoded to what is fetched meanwhile: the next row where rows are
 * read once more, else the next slab, or one further on if slabs are short. */
static int64_t fetch_ahead(const quant_space_t *s)
{
    const int64_t columns = s->groups_per_row * s->column.n;
    if (s->by_pieces && s->n_row > 0) {
        return s->row[s->n_row - 1].in;
    }
    if (s->exceeds_l2) {
        return s->n_row > 0 ? TALL_AHEAD * s->row[s->n_row - 1].in : 0;
    }
    return s->rows == 1 && columns > 0 ? (FETCH_COLUMNS + columns - 1) / columns * columns
                                       : columns;
}

/* What follows from the space of a state. */
static void bind_space(const quant_box_t *box, int shares, dynquant_state_t *st)
{
    quant_space_bind(&box->in, &st->q.out, box->groups, shares, &st->s);
    st->s.begin = box->begin;
    st->column_groups = st->s.column.n < NARROW;
    st->ahead = fetch_ahead(&st->s);
}

void dynquant_bind_box(const dynquant_state_t *all, unsigned box, dynquant_state_t *part)
{
    quant_box_t space;
    choice_t untold = {0};
    *part = *all;
    quant_box_bind(&all->data, &all->q.out, all->groups, box, &space);
    bind_space(&space, 1, part);
    part->s.by_pieces = false;
    choose_ways(part, &untold);
}

static sinter_status_t choose(const kernel_t *self, const problem_t *problem, const void *config,
                              void *state, choice_t *choice)
{
    const dynquant_params_t *p = &problem->step->p.dynquant;
    const frame_t *frame = problem->frame;
    const bound_t *in = &frame->v[p->in];
    dynquant_state_t *st = state;
    quant_box_t box;
    (void)config;
    SG_TRY(quantiser_bind(p, frame, self->needs, &st->q));
    for (int d = 0; d < in->ndims; d++) {
        const int dim = p->out.scale_dim[d];
        st->groups[d] = dim < 0 ? 1 : frame->v[p->out.scale].dims[dim];
    }
    st->data = *in;
    st->in = dtype_bulk(in->dtype, self->needs);
    st->n_short = quant_short_dims(&st->q.out);
    choice->shares_bytes = st->n_short > 0 && quant_boxes_share_bytes(&st->q.out);
    quant_box_bind(in, &st->q.out, st->groups, 0, &box);
    bind_space(&box, choice->shares_bytes ? 1 : frame->shares, st);
    st->s.by_pieces = st->s.by_pieces && !choice->shares_bytes && !quantiser_refits(&st->q);
    choose_ways(st, choice);
    choice->phases = st->s.by_pieces ? 2 : 1;
    if (st->s.by_pieces) {
        choice->shared_bytes = (size_t)quant_slabs(&st->s) * (size_t)frame->shares * 2 *
                               QUANT_COLUMNS * sizeof(int32_t);
    }
    return sinter_success;
}

static sinter_status_t start(const kernel_t *self, const problem_t *problem, const void *config,
                             void *state)
{
    dynquant_state_t *st = state;
    (void)self, (void)config;
    quantiser_start(&problem->step->p.dynquant, problem->frame, &st->q);
    return sinter_success;
}

/* ---- the kernels ----------------------------------------------------------------------------- */

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    dynquant_scratch_t m;
    (void)self, (void)p, (void)arena;
    out->state_bytes = sizeof(dynquant_state_t);
    out->share_bytes = dynquant_carve(NULL, NULL, &m);
    out->note = "slabs that stay in a cache, walked twice";
    return sinter_success;
}

static const char *refuse(const kernel_t *self, const problem_t *p)
{
    (void)self;
    return dtype_needs_f64(problem_type(p, p->step->p.dynquant.in))
               ? "the input needs double precision"
               : NULL;
}

const driver_t driver_dynquant_groups = {.step = STEP_DYNQUANT,
                                         .arithmetic = IN_F32,
                                         .phases = 2,
                                         .refuse = refuse,
                                         .setup = setup,
                                         .choose = choose,
                                         .start = start,
                                         .work = dynquant_work};
