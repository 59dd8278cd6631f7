#include "backend_xsmm/exec/frame.h"

#include <string.h>

#include "backend_xsmm/exec/work.h"
#include "base/status.h"
#include "graph/shape.h"

/* Lays the arrays out in memory; NULL: only counts the bytes. */
static frame_mem_t *lay_out(const plan_t *plan, unsigned char *base, size_t *bytes)
{
    const size_t n = (size_t)plan->n_values;
    frame_mem_t m = {.plan = plan};
    size_t at = 0;
    frame_mem_t *fm = carve(base, &at, 1, sizeof *fm);
    m.frame.v = m.v = carve(base, &at, n, sizeof *m.v);
    m.lts = carve(base, &at, (size_t)plan->sub.n_values, sizeof *m.lts);
    /* Most of it is filled in before it is read, and clearing it would be felt in small executes:
     * v by frame_shapes, lts by frame_place, states by choose. */
    const size_t cleared = at;
    m.temp_offset = carve(base, &at, n, sizeof *m.temp_offset);
    m.port_data = carve(base, &at, n, sizeof *m.port_data);
    m.constants =
        carve(base, &at, (size_t)plan->n_packed + (size_t)plan->n_copies, sizeof(constant_t *));
    m.taken = carve(base, &at, (size_t)plan->n_steps, sizeof *m.taken);
    if (base != NULL) {
        memset(base + cleared, 0, at - cleared);
    }
    m.state = carve(base, &at, 1, plan->state_bytes);
    if (fm != NULL) {
        *fm = m;
    }
    *bytes = at;
    return fm;
}

size_t frame_bytes(const plan_t *plan)
{
    size_t bytes;
    (void)lay_out(plan, NULL, &bytes);
    return bytes;
}

frame_mem_t *frame_place(const plan_t *plan, void *memory)
{
    size_t bytes;
    frame_mem_t *fm = lay_out(plan, memory, &bytes);
    for (int i = 0; i < plan->n_values; i++) {
        fm->v[i].data = NULL;
    }
    for (int i = 0; i < plan->sub.n_values; i++) {
        fm->lts[i] = plan->sub.values[i].lt;
    }
    return fm;
}

/* ---- views ----------------------------------------------------------------------------------- */

static void transpose_order(const node_t *op, int ndims, int *order)
{
    const attr_t *a = node_attr(op, sinter_op_attr_order);
    for (int i = 0; i < ndims; i++) {
        const int64_t axis = a && (size_t)i < a->n ? a->s64[i] : i;
        order[i] = (int)(axis < 0 ? axis + ndims : axis);
    }
}

/* Where the input `part` of a Concat lies in its output, in elements. */
static int64_t part_offset(const plan_value_t *pv, const bound_t *base, const lt_t *lts)
{
    int64_t axis = node_s64(pv->op, sinter_op_attr_axis, 0), before = 0;
    axis += axis < 0 ? base->ndims : 0;
    for (int k = 0; k < pv->part; k++) {
        before += lts[pv->op->in[k]].dims[axis];
    }
    return before * base->strides[axis];
}

/* A Slice takes from dim d of base n elements from *start on, *step apart. */
static void slice_dim(const node_t *slice, const bound_t *base, int d, int64_t *start,
                      int64_t *step)
{
    lt_t lt = {.ndims = base->ndims};
    int64_t n;
    memcpy(lt.dims, base->dims, sizeof lt.dims);
    (void)slice_of_dim(slice, &lt, d, start, step, &n); /* the shape rule has checked the axes */
}

static int64_t slice_offset(const node_t *slice, const bound_t *base)
{
    int64_t offset = 0, start, step;
    for (int d = 0; d < base->ndims; d++) {
        slice_dim(slice, base, d, &start, &step);
        offset += start * base->strides[d];
    }
    return offset;
}

/* Where the first page begins. */
static int64_t pages_offset(const pages_of_t *pages, const bound_t *base)
{
    int64_t offset = 0;
    for (int d = 0; d < base->ndims; d++) {
        offset += pages->start[d] * base->strides[d];
    }
    return offset;
}

static int64_t view_offset(const plan_value_t *pv, const bound_t *base, const lt_t *lts)
{
    const int64_t elements = pv->shows == IN_PAGES              ? pages_offset(pv->pages, base)
                             : pv->op->kind == sinter_op_concat ? part_offset(pv, base, lts)
                             : pv->op->kind == sinter_op_slice  ? slice_offset(pv->op, base)
                                                                : 0;
    return elements * dtype_traits(base->dtype)->bits;
}

sinter_status_t view_begins_byte(const plan_value_t *pv, const bound_t *base, const lt_t *lts)
{
    const node_t *op = pv->op;
    if (view_offset(pv, base, lts) % 8 == 0) {
        return sinter_success;
    }
    return op->kind == sinter_op_concat
               ? sg_fail(sinter_unimplemented,
                         "%s: tensor %llu, its input %d, would not begin with a whole byte in the "
                         "output",
                         node_label(op), (unsigned long long)lts[op->in[pv->part]].id, pv->part)
               : sg_fail(sinter_unimplemented,
                         "%s: what it takes of tensor %llu does not begin with a whole byte",
                         node_label(op), (unsigned long long)lts[op->in[0]].id);
}

/* False: the dims before the merged ones are not the same. */
static bool strides_in_blocks(const bound_t *base, bound_t *b)
{
    const int last = b->ndims - 1;
    if (memcmp(b->dims, base->dims, sizeof(int64_t) * (size_t)last) != 0) {
        return false;
    }
    b->block = base->dims[last + 1];
    b->block_stride = base->strides[last];
    memcpy(b->strides, base->strides, sizeof(int64_t) * (size_t)last);
    b->strides[last] = 1;
    return true;
}

bool view_strides(const node_t *op, shows_t shows, const bound_t *base, bound_t *view)
{
    int64_t *strides = view->strides;
    const bool inverse = shows == BACKWARDS;
    if (shows == IN_BLOCKS) {
        return strides_in_blocks(base, view);
    }
    if (op->kind == sinter_op_static_transpose) {
        int order[SINTER_MAX_NDIMS];
        transpose_order(op, view->ndims, order);
        for (int i = 0; i < view->ndims; i++) {
            strides[inverse ? order[i] : i] = base->strides[inverse ? i : order[i]];
        }
        return true;
    }
    if (op->kind == sinter_op_slice) {
        for (int d = 0; d < view->ndims && !inverse; d++) {
            int64_t start, step;
            slice_dim(op, base, d, &start, &step);
            strides[d] = base->strides[d] * step;
        }
        return !inverse;
    }
    if (op->kind == sinter_op_concat) {
        memcpy(strides, base->strides, sizeof(int64_t) * (size_t)view->ndims);
        return true;
    }
    return view_reshape(base->ndims, base->dims, base->strides, view->ndims, view->dims, strides);
}

void view_in_pages(const pages_of_t *pages, const bound_t *base, bound_t *view)
{
    view->pages = pages;
    view->n_pages = base->dims[pages->axis];
    view->page = pages->within < 0 ? 1 : base->dims[pages->within];
    view->page_stride = base->strides[pages->axis];
    for (int d = 0; d < view->ndims; d++) {
        view->strides[d] = pages->of_blocks[d] < 0 ? 0 : base->strides[pages->of_blocks[d]];
    }
    if (view->page == 1) {
        view->strides[pages->tokens] = view->page_stride;
    }
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static void bound_from_lt(bound_t *b, const lt_t *lt)
{
    b->dtype = lt->data_type;
    b->tiled = NOT_TILED;
    b->block = b->block_stride = b->heads = 0;
    b->pages = NULL;
    b->ndims = lt->ndims < 0 ? 0 : lt->ndims;
    memcpy(b->dims, lt->dims, sizeof(b->dims));
    memcpy(b->strides, lt->strides, sizeof(b->strides));
}

static sinter_status_t resolve_value(const plan_t *plan, frame_mem_t *fm, int i)
{
    const plan_value_t *pv = &plan->values[i];
    bound_t *b = &fm->v[i];
    /* A value that is no graph value has the dims of one, or is a constant. */
    lt_t lt = i < plan->sub.n_values ? fm->lts[i]
              : pv->kind == PV_CONST ? pv->lt
                                     : fm->lts[pv->port];
    /* Only ports bring strides; a query has no outputs yet. */
    if ((pv->kind != PV_INPUT && pv->kind != PV_OUTPUT) || !lt_strides_known(&lt)) {
        lt_set_dense(&lt);
    }
    bound_from_lt(b, &lt);
    b->tiled = pv->tiled;
    if (pv->heads) {
        b->heads = pv->kind == PV_VIEW ? fm->v[pv->base].heads : b->dims[b->ndims - 2];
    }
    if (pv->kind == PV_VIEW && pv->shows == IN_PAGES) {
        view_in_pages(pv->pages, &fm->v[pv->base], b);
    } else if (pv->kind == PV_VIEW && !view_strides(pv->op, pv->shows, &fm->v[pv->base], b)) {
        return sg_fail(
            sinter_unimplemented,
            "tensor %llu: strides of its buffer cannot be seen in the dims of tensor %llu",
            (unsigned long long)plan->values[pv->base].lt.id, (unsigned long long)lt.id);
    }
    return pv->kind == PV_VIEW ? view_begins_byte(pv, &fm->v[pv->base], fm->lts) : sinter_success;
}

static bool same_pages(const bound_t *a, const bound_t *b)
{
    const int64_t apart = pages_apart(a);
    return apart >= 0 && apart == pages_apart(b) && a->n_pages == b->n_pages;
}

sinter_status_t frame_shapes(const plan_t *plan, frame_mem_t *fm, const same_dims_t **broken)
{
    *broken = NULL;
    if (plan->dynamic) {
        SG_TRY(graph_check_groups(&plan->sub, fm->lts, true));
        SG_TRY(graph_infer_dims(&plan->sub, fm->lts));
        SG_TRY(graph_check_groups(&plan->sub, fm->lts, false));
    }
    for (int i = 0; i < plan->n_assumed && *broken == NULL; i++) {
        const same_dims_t *both = &plan->assumed[i];
        *broken =
            both->pages || lt_same_dims(&fm->lts[both->value], &fm->lts[both->as]) ? NULL : both;
    }
    if (*broken != NULL) {
        return sinter_success;
    }
    /* Bases come before their views in plan->view_order; everything else stands alone. */
    for (int i = 0; i < plan->n_values - plan->n_packed; i++) {
        if (plan->values[i].kind != PV_VIEW) {
            SG_TRY(resolve_value(plan, fm, i));
        }
    }
    for (int k = 0; k < plan->n_views; k++) {
        SG_TRY(resolve_value(plan, fm, plan->view_order[k]));
    }
    for (int i = 0; i < plan->n_assumed && *broken == NULL; i++) {
        const same_dims_t *both = &plan->assumed[i];
        *broken = !both->pages || same_pages(&fm->v[both->value], &fm->v[both->as]) ? NULL : both;
    }
    return frame_packed_shapes(plan, fm);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static bool overlap(const plan_value_t *a, const plan_value_t *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static bool temp_size(const frame_mem_t *fm, int i, size_t *bytes)
{
    int64_t n = 1, b;
    for (int d = 0; d < fm->v[i].ndims; d++) {
        if (!mul_i64(n, fm->v[i].dims[d], &n)) {
            return false;
        }
    }
    if (!dtype_bytes(fm->v[i].dtype, n, &b) || b < 0 ||
        (uint64_t)b > SIZE_MAX - 2 * SCRATCH_ALIGN) {
        return false;
    }
    *bytes = scratch_round((size_t)b);
    return true;
}

static bool same_memory(const plan_t *plan, const frame_mem_t *fm, int i, int j)
{
    const bound_t *a = &fm->v[i], *b = &fm->v[j];
    return (plan->values[i].heir == j || plan->values[j].heir == i) && a->ndims == b->ndims &&
           memcmp(a->dims, b->dims, sizeof(int64_t) * (size_t)a->ndims) == 0;
}

/* True if temporary i fits at *at: no temporary before it, except `beside`, has bytes there and
 * lives at the same time. Otherwise *at moves behind those that do. */
static bool fits_at(const plan_t *plan, const frame_mem_t *fm, int i, size_t bytes, int beside,
                    size_t *at)
{
    const size_t from = *at;
    for (int j = 0; j < i; j++) {
        size_t other;
        if (j == beside || plan->values[j].kind != PV_TEMP ||
            !overlap(&plan->values[i], &plan->values[j]) || !temp_size(fm, j, &other)) {
            continue;
        }
        if (*at < fm->temp_offset[j] + other && fm->temp_offset[j] < *at + bytes) {
            *at = fm->temp_offset[j] + other;
        }
    }
    return *at == from;
}

/* Finds memory for temporary i: that of the temporary whose heir it is, or that is its heir;
 * else the first that fits. There are few temporaries, so quadratic time is fine. */
static size_t find_place(const plan_t *plan, const frame_mem_t *fm, int i, size_t bytes)
{
    size_t at = 0;
    for (int j = 0; j < i; j++) {
        at = fm->temp_offset[j];
        if (same_memory(plan, fm, i, j) && fits_at(plan, fm, i, bytes, j, &at)) {
            return at;
        }
    }
    at = 0;
    while (!fits_at(plan, fm, i, bytes, -1, &at)) {
    }
    return at;
}

static sinter_status_t place_temps(const plan_t *plan, frame_mem_t *fm)
{
    fm->temp_bytes = 0;
    for (int i = 0; i < plan->n_values; i++) {
        size_t bytes, end;
        if (plan->values[i].kind != PV_TEMP || plan->values[i].first < 0) { /* no step stores it */
            fm->temp_offset[i] = 0;
            continue;
        }
        if (!temp_size(fm, i, &bytes)) {
            return sg_fail(sinter_invalid_shape, "tensor %llu: size of the temporary overflows",
                           (unsigned long long)plan->values[i].lt.id);
        }
        fm->temp_offset[i] = find_place(plan, fm, i, bytes);
        if (!add_size(fm->temp_offset[i], bytes, &end)) {
            return sg_fail(sinter_invalid_shape, "temporaries overflow");
        }
        fm->temp_bytes = end > fm->temp_bytes ? end : fm->temp_bytes;
    }
    return sinter_success;
}

sinter_status_t frame_temps(const plan_t *plan, frame_mem_t *fm, size_t *bytes)
{
    SG_TRY(place_temps(plan, fm));
    if (!add_size(scratch_round(plan->frame_bytes), fm->temp_bytes, bytes)) {
        return sg_fail(sinter_invalid_shape, "scratch size overflows");
    }
    return sinter_success;
}

static sinter_status_t choose(const plan_t *plan, frame_mem_t *fm, threads_t threads,
                              const step_t *step, taken_t *taken)
{
    const problem_t problem = {.plan = plan, .step = step, .frame = &fm->frame};
    const char *why;
    *taken = (taken_t){.candidate = kernel_for_frame(plan, step, &fm->frame, &why),
                       .work = step_work(&problem)};
    taken->shares = threads.all ? threads.most : work_shares(taken->work, threads.most);
    fm->frame.shares = taken->shares;
    if (taken->candidate == NULL) {
        return sg_fail(sinter_unimplemented, "no kernel takes these dims: %s", why);
    }
    const kernel_t *k = taken->candidate->kernel;
    SG_TRY(k->driver->choose(k, &problem, taken->candidate->config, fm->state + step->state_offset,
                             &taken->choice));
    /* Memory is for the shares that the work is worth: sizes must not depend on strides. */
    fm->shares = taken->shares > fm->shares ? taken->shares : fm->shares;
    if (taken->choice.shares_bytes) {
        add_way(&taken->choice, NULL, ways_one_thread, "rows of an output share bytes");
        taken->shares = 1;
    }
    return sinter_success;
}

/* Lets a step use what the step before leaves in shared memory. */
static void follow(const plan_t *plan, frame_mem_t *fm, int s)
{
    const step_t *step = &plan->steps[s];
    const candidate_t *now = fm->taken[s].candidate, *last = fm->taken[s - 1].candidate;
    const problem_t problem = {.plan = plan, .step = step, .frame = &fm->frame};
    const before_t before = {.step = step - 1,
                             .config = last->config,
                             .state = fm->state + step[-1].state_offset,
                             .shares = fm->taken[s - 1].shares};
    if (now->kernel->driver == last->kernel->driver && now->kernel->driver->follow != NULL) {
        now->kernel->driver->follow(&problem, &before, now->config, fm->state + step->state_offset,
                                    &fm->taken[s].choice);
    }
}

sinter_status_t frame_choose(const plan_t *plan, frame_mem_t *fm, threads_t threads, size_t *total)
{
    size_t all, rest, reserve;
    fm->shared_bytes = 0;
    fm->shares = 1;
    fm->divisible = 0;
    for (int s = 0; s < plan->n_steps; s++) {
        const taken_t *taken = &fm->taken[s];
        SG_TRY(choose(plan, fm, threads, &plan->steps[s], &fm->taken[s]));
        if (s > 0) {
            follow(plan, fm, s);
        }
        const size_t shared = scratch_round(taken->choice.shared_bytes);
        fm->shared_bytes = shared > fm->shared_bytes ? shared : fm->shared_bytes;
        fm->divisible += taken->shares > 1 ? taken->work : 0;
    }
    if (!mul_size(plan->reserve_bytes, (size_t)fm->shares, &reserve)) {
        return sg_fail(sinter_invalid_shape, "scratch size overflows");
    }
    fm->shared_bytes = reserve > fm->shared_bytes ? reserve : fm->shared_bytes;
    SG_TRY(frame_temps(plan, fm, &rest));
    if (!mul_size(plan->share_bytes, (size_t)fm->shares, &all) ||
        !add_size(all, fm->shared_bytes, &all) || !add_size(all, rest, &all)) {
        return sg_fail(sinter_invalid_shape, "scratch size overflows");
    }
    *total = all;
    return sinter_success;
}

void frame_views(const plan_t *plan, frame_mem_t *fm)
{
    for (int k = 0; k < plan->n_views; k++) {
        const int i = plan->view_order[k];
        const bound_t *shown = &fm->v[plan->values[i].base];
        unsigned char *base = shown->data;
        const int64_t offset = view_offset(&plan->values[i], shown, fm->lts); /* in bits */
        fm->v[i].data = base != NULL ? base + offset / 8 : NULL;
    }
}

void frame_data(const plan_t *plan, frame_mem_t *fm, unsigned char *const *data,
                unsigned char *temps)
{
    for (int i = 0; i < plan->n_values; i++) {
        const plan_value_t *pv = &plan->values[i];
        if (pv->kind == PV_INPUT || pv->kind == PV_OUTPUT) {
            fm->v[i].data = data[i];
        } else if (pv->kind == PV_TEMP) {
            fm->v[i].data = temps != NULL ? temps + fm->temp_offset[i] : NULL;
        } else if (pv->kind == PV_CONST) {
            /* Kernels take non-const pointers for all values and only read this one. */
            memcpy(&fm->v[i].data, &pv->data, sizeof(pv->data));
        }
    }
    frame_views(plan, fm);
    for (int i = plan->n_values - plan->n_packed; i < plan->n_values; i++) {
        fm->v[i].data = fm->v[plan->values[i].base].data;
    }
}
