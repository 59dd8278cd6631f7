/* The kernel registry and its one selection rule: of the rows for a step, the first one whose CPU
 * features the plan has and that does not refuse. */
#include <sinter/sinter_graph.h>
#include <sinter/sinter_partition.h>

#include "backend_xsmm/kernel.h"

#define SINTER_KERNEL(id, of, features) extern const driver_t driver_##of;
#include "backend_xsmm/kernels.def"

const kernel_t sinter_kernels[] = {
#define SINTER_KERNEL(id, of, features) {#id, &driver_##of, {features}},
#include "backend_xsmm/kernels.def"
};
const int sinter_n_kernels = (int)(sizeof(sinter_kernels) / sizeof(sinter_kernels[0]));

const way_table_t sinter_way_tables[] = {
#define SINTER_WAYS(table) {#table, ways_##table},
#include "backend_xsmm/kernels.def"
};
const int sinter_n_way_tables = (int)(sizeof(sinter_way_tables) / sizeof(sinter_way_tables[0]));

const way_row_t ways_one_thread[] = {{"one thread", NULL, 0}};

const driver_t *const sinter_step_drivers[STEP_KINDS] = {
#define SINTER_STEP(kind, name, driver) [STEP_##kind] = &driver_##driver,
#include "backend_xsmm/steps.def"
};

static const char *ask(const kernel_t *k, const problem_t *problem)
{
    return k->driver->refuse != NULL ? k->driver->refuse(k, problem) : NULL;
}

/* A reason without words is none to tell: the kernel is for operands of another kind. */
static bool is_told(const char *reason)
{
    return reason == NULL || reason[0] != '\0';
}

static void add_refusal(selection_t *out, const refusal_t *refusal)
{
    if (is_told(refusal->features ? refusal->besides : refusal->reason) &&
        out->n_refusals < MOST_REFUSALS) {
        out->refusals[out->n_refusals++] = *refusal;
    }
}

/* The refusal of a kernel that needs features which the plan lacks. */
static refusal_t lacking(const kernel_t *k, const problem_t *problem, const char *feature)
{
    plan_t capable = *problem->plan;
    const problem_t p = {.plan = &capable, .step = problem->step};
    capable.features.bits |= k->needs.bits;
    return (refusal_t){k, feature, true, ask(k, &p)};
}

/* A driver with several kernels has the one for the widest vectors first; where dims make that one
 * refuse, its others do as well. */
static bool has_driver(const selection_t *s, const driver_t *driver)
{
    bool has = false;
    for (int i = 0; i < s->n_kernels; i++) {
        has = has || s->kernels[i]->driver == driver;
    }
    return has;
}

void kernel_select(const plan_t *plan, const step_t *step, selection_t *out)
{
    *out = (selection_t){.n_kernels = 0};
    for (int i = 0; i < sinter_n_kernels && !out->sure; i++) {
        const kernel_t *k = &sinter_kernels[i];
        bool open = false;
        const problem_t problem = {.plan = plan, .step = step, .open = &open};
        if (k->driver->step != step->kind || has_driver(out, k->driver)) {
            continue;
        }
        const char *feature = missing_feature(plan->features, k->needs.bits);
        if (feature != NULL) {
            const refusal_t lack = lacking(k, &problem, feature);
            add_refusal(out, &lack);
            continue;
        }
        const char *reason = ask(k, &problem);
        if (reason != NULL) {
            add_refusal(out, &(refusal_t){.kernel = k, .reason = reason});
        } else if (out->n_kernels < MOST_CANDIDATES) {
            out->kernels[out->n_kernels++] = k;
            out->sure = !open;
        }
    }
}

const candidate_t *kernel_for_frame(const plan_t *plan, const step_t *step, const frame_t *frame,
                                    const char **why)
{
    const problem_t problem = {.plan = plan, .step = step, .frame = frame};
    if (step->n_candidates == 1) {
        return &step->candidates[0];
    }
    for (int i = 0; i < step->n_candidates; i++) {
        const kernel_t *k = step->candidates[i].kernel;
        *why = ask(k, &problem);
        if (*why == NULL) {
            return &step->candidates[i];
        }
    }
    return NULL;
}

/* The stride of a dim of a value in pages, from the tensor that these lie in. A part of one has
 * strides of its own, which compile need not know. */
static int64_t stride_in_pages(const plan_t *plan, const plan_value_t *v, int d)
{
    const pages_of_t *pages = v->pages;
    const plan_value_t *blocks = &plan->values[v->base];
    const int of = d == pages->tokens && pages->within < 0 ? pages->axis : pages->of_blocks[d];
    return of < 0 ? 0 : blocks->kind != PV_INPUT ? -1 : blocks->lt.strides[of];
}

int64_t problem_stride(const problem_t *p, int value, int from_end)
{
    const plan_value_t *v = &p->plan->values[value];
    const int ndims = problem_ndims(p, value), d = ndims - from_end;
    if (ndims < from_end) {
        return ndims < 0 ? -1 : 0;
    }
    if (p->frame != NULL) {
        return p->frame->v[value].strides[d];
    }
    if (v->kind == PV_PACKED) { /* tiles have no strides, but there may be no room for them */
        return v->tiled != NOT_TILED ? problem_answer(p, -1) : d == v->along ? 1 : -1;
    }
    if (v->kind == PV_VIEW && v->shows == IN_PAGES) {
        return problem_answer(p, stride_in_pages(p->plan, v, d));
    }
    lt_t lt = v->lt;
    if (v->kind == PV_TEMP && lt_dims_known(&lt)) {
        lt_set_dense(&lt);
    }
    return problem_answer(p, lt.layout_type == sinter_layout_type_strided ? lt.strides[d] : -1);
}

const char *sinter_kernel_list(void)
{
    return
#define SINTER_KERNEL(id, of, features) #id "\n"
#include "backend_xsmm/kernels.def"
        "";
}
