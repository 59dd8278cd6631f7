/* From a partition to a compiled partition: copy the subgraph, merge what the caller knows about
 * ports, (run the passes,) lower, select and set up kernels, write the report. */
#include "backend_xsmm/plan/compile.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <sinter/sinter_graph.h>

#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/inplace.h"
#include "backend_xsmm/plan/lower.h"
#include "backend_xsmm/step.h"
#include "base/cpu.h"
#include "base/status.h"
#include "graph/layout.h"
#include "graph/schema.h"

/* ---- ports ----------------------------------------------------------------------------------- */

static bool is_port(const sinter_partition_t *part, const int *ports, int n, uint64_t id)
{
    for (int i = 0; i < n; i++) {
        if (part->sub.values[ports[i]].lt.id == id) {
            return true;
        }
    }
    return false;
}

/* Merges what the caller knows about a port now. Dims must agree where both sides know them; the
 * caller's layout wins. */
static sinter_status_t specialise(const sinter_partition_t *part, graph_t *sub, const lt_t *given,
                                  bool output)
{
    const bool ours = output ? is_port(part, part->outputs, part->n_outputs, given->id)
                             : is_port(part, part->inputs, part->n_inputs, given->id);
    const int v = ours ? graph_find_value(sub, given->id) : -1;
    if (v < 0) {
        return sg_fail(sinter_invalid_arguments, "partition %zu has no %s port with tensor id %llu",
                       part->id, output ? "output" : "input", (unsigned long long)given->id);
    }
    char where[64];
    snprintf(where, sizeof(where), "compile: tensor %llu", (unsigned long long)given->id);
    SG_TRY(lt_verify(given, output, where));
    lt_t *lt = &sub->values[v].lt;
    lt_t dims_only = *given;
    const char *what;
    dims_only.layout_type = sinter_layout_type_any;
    if (!lt_merge(lt, &dims_only, &what)) {
        return sg_fail(sinter_invalid_shape, "%s: %s differs from what the partition has", where,
                       what);
    }
    if (given->layout_type == sinter_layout_type_strided) {
        lt->layout_type = sinter_layout_type_strided;
        memcpy(lt->strides, given->strides, sizeof(lt->strides));
    }
    if (lt_is_opaque(given)) {
        lt->layout_type = sinter_layout_type_opaque;
        lt->layout_id = given->layout_id;
    }
    if (given->property != sinter_tensor_property_undef) {
        lt->property = given->property;
    }
    /* What another partition makes need not be there when this one is bound. */
    if (sub->values[v].made_before && lt->property == sinter_tensor_property_constant) {
        lt->property = sinter_tensor_property_variable;
    }
    return sinter_success;
}

/* Tensors without a layout become dense row-major; an input with dynamic dims brings its strides
 * at execute. */
static void settle_layouts(graph_t *sub)
{
    for (int v = 0; v < sub->n_values; v++) {
        lt_t *lt = &sub->values[v].lt;
        if (lt_is_opaque(lt)) {
            continue;
        }
        if (sub->values[v].producer < 0 && lt->layout_type != sinter_layout_type_strided &&
            lt->ndims >= 0 && !lt_dims_known(lt)) {
            lt->layout_type = sinter_layout_type_strided;
            for (int d = 0; d < lt->ndims; d++) {
                lt->strides[d] = SINTER_UNKNOWN_DIM;
            }
        } else if (lt->ndims >= 0 && (lt->layout_type != sinter_layout_type_strided ||
                                      (lt_dims_known(lt) && !lt_strides_known(lt)))) {
            lt_set_dense(lt);
        }
    }
}

static sinter_status_t find_ports(sinter_compiled_partition_t *cp, const sinter_partition_t *part)
{
    plan_t *plan = &cp->plan;
    cp->n_inputs = part->n_inputs;
    cp->n_outputs = part->n_outputs;
    cp->inputs = ARENA_NEW(&plan->arena, int, part->n_inputs + part->n_outputs + 1);
    if (cp->inputs == NULL) {
        return sinter_out_of_memory;
    }
    cp->outputs = cp->inputs + part->n_inputs;
    for (int i = 0; i < part->n_inputs + part->n_outputs; i++) {
        const int v = i < part->n_inputs ? part->inputs[i] : part->outputs[i - part->n_inputs];
        cp->inputs[i] = graph_find_value(&plan->sub, part->sub.values[v].lt.id);
    }
    return sinter_success;
}

/* ---- plan ------------------------------------------------------------------------------------ */

static bool has_unknown_dims(const graph_t *g)
{
    for (int t = 0; t < graph_n_live(g); t++) {
        const node_t *n = &g->nodes[g->topo[t]];
        for (int k = 0; node_read(n, k) >= 0; k++) {
            if (!lt_dims_known(&g->values[node_read(n, k)].lt)) {
                return true;
            }
        }
        for (int i = 0; i < n->n_out; i++) {
            if (!lt_dims_known(&g->values[n->out[i]].lt)) {
                return true;
            }
        }
    }
    return false;
}

/* Sets up the kernels that may run a step. */
static sinter_status_t set_up(plan_t *plan, step_t *step, const selection_t *s)
{
    const problem_t problem = {.plan = plan, .step = step};
    step->candidates = ARENA_NEW(&plan->arena, candidate_t, s->n_kernels);
    if (step->candidates == NULL) {
        return sinter_out_of_memory;
    }
    for (step->n_candidates = 0; step->n_candidates < s->n_kernels; step->n_candidates++) {
        const kernel_t *k = s->kernels[step->n_candidates];
        candidate_t *candidate = &step->candidates[step->n_candidates];
        SG_TRY(k->driver->setup(k, &problem, &plan->arena, candidate));
        candidate->kernel = k;
    }
    return sinter_success;
}

/* ---- fpmath modes that change nothing -------------------------------------------------------- */

/* A kernel whose products would be such as only a looser mode than strict allows. */
static bool uses_mode(const kernel_t *k, const permit_t *permit)
{
    return k->driver->arithmetic == IN_INT8 || (permit->bf16 && k->driver->arithmetic == IN_BF16);
}

/* Whether another refusal of the same driver says more: one for the step, or the first of those for
 * features. */
static bool is_told(const selection_t *s, int at)
{
    for (int i = 0; i < s->n_refusals; i++) {
        const refusal_t *other = &s->refusals[i], *r = &s->refusals[at];
        if (i != at && other->kernel->driver == r->kernel->driver &&
            other->features <= r->features && (other->features < r->features || i < at)) {
            return true;
        }
    }
    return false;
}

/* Sets step->idle_mode from what the kernels that would use the mode said. */
static sinter_status_t explain_idle_mode(plan_t *plan, step_t *step, const selection_t *s)
{
    const char *between = ": ";
    textbuf_t text;
    bool used = plan->mode == sinter_fpmath_mode_strict || !step_ops(step)->products;
    for (int i = 0; i < s->n_kernels; i++) {
        used = used || uses_mode(s->kernels[i], &step->permit);
    }
    if (used) {
        return sinter_success;
    }
    text_init(&text, &plan->arena);
    text_add(&text, "fpmath %s changes nothing", sinter_fpmath_mode_name(plan->mode));
    const bool strict = step->permit.mode == sinter_fpmath_mode_strict;
    if (strict) {
        text_add(&text, ": it does not apply to integers");
    }
    for (int i = 0; i < s->n_refusals && !strict; i++) {
        const refusal_t *r = &s->refusals[i];
        if (uses_mode(r->kernel, &step->permit) && !is_told(s, i)) {
            /* Whether libxsmm has bf16 products is a question of the CPU, too. */
            const bool bf16 = r->kernel->driver->arithmetic == IN_BF16,
                       lacks = r->features && (r->besides == NULL || bf16);
            text_add(&text, "%s%s%s (%s)", between, lacks ? "needs " : "",
                     r->features && !lacks ? r->besides : r->reason, r->kernel->name);
            between = "; ";
        }
    }
    step->idle_mode = text.text;
    return text.oom ? sinter_out_of_memory : sinter_success;
}

/* Kernels for every step. Where a step has none: sinter_unimplemented, and *missing is that step
 * (else -1), why has the reasons. */
static sinter_status_t select_all(plan_t *plan, textbuf_t *why, int *missing)
{
    size_t state = 0;
    *missing = -1;
    for (int s = 0; s < plan->n_steps; s++) {
        step_t *step = &plan->steps[s];
        selection_t selection;
        size_t bytes = 0;
        kernel_select(plan, step, &selection);
        if (!selection.sure) {
            text_init(why, &plan->arena);
            for (int i = 0; i < selection.n_refusals; i++) {
                text_add(why, "  %s refused: %s%s\n", selection.refusals[i].kernel->name,
                         selection.refusals[i].features ? "needs " : "",
                         selection.refusals[i].reason);
            }
            *missing = s;
            return sinter_unimplemented;
        }
        SG_TRY(set_up(plan, step, &selection));
        SG_TRY(explain_idle_mode(plan, step, &selection));
        for (int i = 0; i < step->n_candidates; i++) {
            const candidate_t *c = &step->candidates[i];
            bytes = c->state_bytes > bytes ? c->state_bytes : bytes;
            plan->share_bytes =
                c->share_bytes > plan->share_bytes ? c->share_bytes : plan->share_bytes;
            plan->reserve_bytes =
                c->reserve_bytes > plan->reserve_bytes ? c->reserve_bytes : plan->reserve_bytes;
        }
        step->state_offset = state;
        state += scratch_round(bytes);
    }
    plan->state_bytes = state;
    plan->share_bytes = scratch_round(plan->share_bytes);
    plan->reserve_bytes = scratch_round(plan->reserve_bytes);
    return sinter_success;
}

static bool has_pages(const plan_t *plan)
{
    bool has = false;
    for (int v = 0; v < plan->n_values; v++) {
        has = has || (plan->values[v].kind == PV_VIEW && plan->values[v].shows == IN_PAGES);
    }
    return has;
}

/* notes: for the report, why attention does not run as one step. assumes: as in lower_plan. */
static sinter_status_t lower_and_select(plan_t *plan, family_t family, bool assumes,
                                        textbuf_t *notes)
{
    int missing;
    textbuf_t why;
    SG_TRY(lower_plan(plan, family, true, assumes, notes));
    sinter_status_t status = select_all(plan, &why, &missing);
    if (status == sinter_unimplemented && missing >= 0 && has_pages(plan)) {
        text_add(notes, "K and V are not read in pages, but copied: no attention kernel does:\n%s",
                 why.text);
        SG_TRY(lower_plan(plan, family, false, assumes, notes));
        status = select_all(plan, &why, &missing);
    }
    if (status == sinter_unimplemented && missing >= 0 && family == FAMILY_ATTENTION) {
        text_add(notes, "no attention kernel took the step, it runs as a list of steps:\n%s",
                 why.text);
        SG_TRY(lower_plan(plan, FAMILY_GENERAL, false, assumes, notes));
        status = select_all(plan, &why, &missing);
    }
    if (status == sinter_unimplemented && missing >= 0) {
        return sg_fail(status, "no kernel for step %d of the partition:\n%s", missing, why.text);
    }
    return status;
}

/* The plan for dims that the first one is wrong for. Its steps compute together only what surely
 * has the same dims. */
static sinter_status_t make_fallback(sinter_compiled_partition_t *cp)
{
    textbuf_t notes;
    plan_t *plan = ARENA_NEW(&cp->plan.arena, plan_t, 1);
    if (plan == NULL) {
        return sinter_out_of_memory;
    }
    *plan = (plan_t){.engine = cp->engine,
                     .sub = cp->plan.sub,
                     .features = cp->plan.features,
                     .mode = cp->plan.mode,
                     .apply_to_int = cp->plan.apply_to_int,
                     .dynamic = true,
                     .cache_bytes = cp->plan.cache_bytes};
    arena_init(&plan->arena, cp->engine);
    cp->fallback = plan;
    text_init(&notes, &plan->arena);
    return lower_and_select(plan, FAMILY_GENERAL, false, &notes);
}

/* ---- report ---------------------------------------------------------------------------------- */

/* The kernels that may run the step. If there are several, execute takes the first one that
 * accepts its dims. */
static void report_kernels(const step_t *step, textbuf_t *text)
{
    const int n = step->n_candidates;
    if (n < 2) {
        return;
    }
    text_add(text, "  chosen at execute:");
    for (int i = 0; i < n; i++) {
        const driver_t *driver = step->candidates[i].kernel->driver;
        text_add(text, "%s %s", i > 0 ? ", else" : "", step->candidates[i].kernel->name);
        if (i < n - 1) {
            text_add(text, " (%s)", driver->takes != NULL ? driver->takes : "if its dims allow it");
        }
    }
    text_add(text, "\n");
    for (int i = 1; i < n; i++) {
        const candidate_t *c = &step->candidates[i];
        text_add(text, "  %s: scratch %zu bytes per thread, %s\n", c->kernel->name, c->share_bytes,
                 c->note);
    }
}

/* The kernels above the chosen one that this engine could run and that refused the step, a line for
 * each driver; and, in one line, those that would run it on another machine or without a cap. */
static void report_refusals(const plan_t *plan, const step_t *step, textbuf_t *text)
{
    selection_t s;
    int lacking = 0;
    kernel_select(plan, step, &s);
    for (int i = 0; i < s.n_refusals; i++) {
        if (!s.refusals[i].features && !is_told(&s, i)) {
            text_add(text, "  %s refused: %s\n", s.refusals[i].kernel->name, s.refusals[i].reason);
        }
    }
    for (int i = 0; i < s.n_refusals; i++) {
        const refusal_t *r = &s.refusals[i];
        if (r->features && r->besides == NULL) {
            if (lacking++ == 0) {
                text_add(text, "  preferred, but this engine has only %s: ",
                         sinter_cpu_isa_name(level_of_features(plan->features)));
            }
            text_add(text, "%s%s (needs %s)", lacking > 1 ? ", " : "", r->kernel->name, r->reason);
        }
    }
    text_add(text, "%s", lacking > 0 ? "\n" : "");
}

static void report_tail(const plan_t *plan, const step_t *step, textbuf_t *text)
{
    if (step->tail != NULL) {
        const bool split = step->tail->out.split != sinter_data_type_undef;
        text_add(text, "  quantises its result to %s%s before it leaves the step\n",
                 dtype_traits(split ? step->tail->out.split
                                    : plan->values[step->tail->out.data].lt.data_type)
                     ->name,
                 split ? " in two planes" : "");
    }
    if (step->why_separate != NULL) {
        text_add(text, "  not part of the step that makes its data: %s\n", step->why_separate);
    }
}

/* Where compile knows the dims: the work that decides how many threads run the step. */
static void report_work(const plan_t *plan, const step_t *step, textbuf_t *text)
{
    const double work = step_work(&(problem_t){.plan = plan, .step = step});
    const int shares = work_shares(work, INT_MAX);
    if (work >= 0) {
        text_add(text, "  %.1f us of work by estimate: one thread", work);
        if (shares > 1) {
            text_add(text, " for each %.1f us, as far as there are threads", work / shares);
        }
        text_add(text, "\n");
    }
}

/* The step with the kernel that runs it, or the first of those that may run it. */
static void report_step(const plan_t *plan, int s, textbuf_t *text)
{
    const step_t *step = &plan->steps[s];
    const candidate_t *first = &step->candidates[0];
    const int n_instrs = step->post ? step->post->n_instrs : 0;
    text_add(text, "step %d: %s, mode %s, %d elementwise instruction%s, ", s, first->kernel->name,
             sinter_fpmath_mode_name(step->permit.mode), n_instrs, n_instrs == 1 ? "" : "s");
    text_add(text, "scratch %zu bytes per thread, %s\n", first->share_bytes, first->note);
    report_kernels(step, text);
}

static void report_fallback(const sinter_compiled_partition_t *cp, textbuf_t *text)
{
    const plan_t *plan = &cp->plan;
    const char *const begins[] = {"assumes of unknown dims that",
                                  "assumes of tokens of a page and from page to page that"};
    for (int i = 0; i < plan->n_assumed; i++) {
        const same_dims_t *both = &plan->assumed[i];
        const bool other = i > 0 && plan->assumed[i - 1].pages != both->pages;
        text_add(text, "%s%s tensor %llu has those of tensor %llu", other ? "; " : "",
                 i == 0 || other ? begins[both->pages] : ",",
                 (unsigned long long)graph_message_id(&plan->sub, both->value),
                 (unsigned long long)graph_message_id(&plan->sub, both->as));
    }
    text_add(text, "; where they differ, %d other step%s run%s:\n", cp->fallback->n_steps,
             cp->fallback->n_steps == 1 ? "" : "s", cp->fallback->n_steps == 1 ? "s" : "");
    for (int s = 0; s < cp->fallback->n_steps; s++) {
        text_add(text, "fallback ");
        report_step(cp->fallback, s, text);
    }
}

/* Inputs of layout any that are parts of weights. */
static void report_layouts(const graph_t *sub, textbuf_t *text)
{
    for (int v = 0; v < sub->n_values; v++) {
        const value_t *value = &sub->values[v];
        if (value->chosen) {
            text_add(text, "wants tensor %llu, whose layout may be any, in tiles: layout %llu\n",
                     (unsigned long long)value->lt.id, (unsigned long long)value->lt.layout_id);
        } else if (value->why_dense != NULL && !lt_is_opaque(&value->lt)) {
            text_add(text, "wants tensor %llu, whose layout may be any, with strides: %s\n",
                     (unsigned long long)value->lt.id, value->why_dense);
        }
    }
}

/* One line for each step. Each further fact about the step has a line of its own. */
static sinter_status_t write_report(sinter_compiled_partition_t *cp, const textbuf_t *notes)
{
    plan_t *plan = &cp->plan;
    textbuf_t text;
    text_init(&text, &plan->arena);
    text_add(&text, "fpmath %s%s, isa %s%s, %d step%s%s\n", sinter_fpmath_mode_name(plan->mode),
             plan->apply_to_int ? " (applied to int)" : "",
             sinter_cpu_isa_name(level_of_features(plan->features)),
             plan->deterministic ? ", deterministic" : "", plan->n_steps,
             plan->n_steps == 1 ? "" : "s", plan->dynamic ? ", dynamic dims" : "");
    for (int s = 0; s < plan->n_steps; s++) {
        const step_t *step = &plan->steps[s];
        report_step(plan, s, &text);
        report_work(plan, step, &text);
        if (step_ops(step)->report != NULL) {
            step_ops(step)->report(plan, step, &text);
        }
        report_tail(plan, step, &text);
        if (step->idle_mode != NULL) {
            text_add(&text, "  %s\n", step->idle_mode);
        }
        report_refusals(plan, step, &text);
    }
    if (cp->fallback != NULL) {
        report_fallback(cp, &text);
    }
    report_layouts(&plan->sub, &text);
    text_add(&text, "%s", notes->text);
    cp->report = text.text;
    if (text.oom || notes->oom) {
        return sinter_out_of_memory;
    }
    sg_log(SG_VERBOSE_DISPATCH | SG_VERBOSE_COMPILE, "%s", cp->report);
    return sinter_success;
}

/* ---- inputs of layout any -------------------------------------------------------------------- */

bool strided_inputs_add(strided_inputs_t *list, uint64_t id, const char *why)
{
    strided_input_t *input = ARENA_NEW(list->arena, strided_input_t, 1);
    const char *copy = arena_strdup(list->arena, why);
    if (input == NULL || copy == NULL) {
        return false;
    }
    *input = (strided_input_t){id, copy, list->first};
    list->first = input;
    return true;
}

static void keep_strided(graph_t *sub, const strided_inputs_t *strided)
{
    for (const strided_input_t *s = strided->first; s != NULL; s = s->next) {
        const int v = graph_find_value(sub, s->id);
        if (v >= 0 && sub->values[v].producer < 0) {
            sub->values[v].why_dense = s->why;
        }
    }
}

/* Asks the steps about the layouts that were chosen. */
static sinter_status_t check_chosen(const plan_t *plan, strided_inputs_t *strided, bool *again)
{
    for (int v = 0; v < plan->sub.n_values; v++) {
        textbuf_t why;
        text_init(&why, strided->arena);
        for (int s = 0; s < plan->n_steps && why.len == 0 && plan->sub.values[v].chosen; s++) {
            const step_ops_t *ops = step_ops(&plan->steps[s]);
            if (ops->refuse_tiles != NULL) {
                ops->refuse_tiles(plan, &plan->steps[s], v, &why);
            }
        }
        if (why.oom ||
            (why.len > 0 && !strided_inputs_add(strided, plan->sub.values[v].lt.id, why.text))) {
            return sinter_out_of_memory;
        }
        *again = *again || why.len > 0;
    }
    return sinter_success;
}

/* ---- all ------------------------------------------------------------------------------------- */

static sinter_status_t copy_and_specialise(plan_t *plan, const sinter_partition_t *part,
                                           size_t n_in, const lt_t *in, size_t n_out,
                                           const lt_t *out)
{
    SG_TRY(graph_extract(&part->sub, part->sub.topo, graph_n_live(&part->sub), &plan->sub));
    for (size_t i = 0; i < n_in; i++) {
        SG_TRY(specialise(part, &plan->sub, &in[i], false));
    }
    for (size_t i = 0; i < n_out; i++) {
        SG_TRY(specialise(part, &plan->sub, &out[i], true));
    }
    return sinter_success;
}

sinter_status_t compile_open(const sinter_partition_t *part, sinter_engine_t *engine, size_t n_in,
                             const sinter_logical_tensor_t *in, size_t n_out,
                             const sinter_logical_tensor_t *out, const strided_inputs_t *strided,
                             sinter_compiled_partition_t **compiled)
{
    if (!part->supported) {
        return sg_fail(sinter_unimplemented, "partition %zu is not supported: %s", part->id,
                       part->reason ? part->reason : "");
    }
    sinter_compiled_partition_t *cp = sg_alloc(engine, sizeof(*cp), SCRATCH_ALIGN);
    if (cp == NULL) {
        return sinter_out_of_memory;
    }
    memset(cp, 0, sizeof(*cp));
    if (pthread_mutex_init(&cp->lock, NULL) != 0) {
        sg_free(engine, cp);
        return sg_fail(sinter_runtime_error, "no mutex");
    }
    plan_t *plan = &cp->plan;
    atomic_init(&cp->refs, 1);
    cp->id = part->id;
    cp->pattern = part->pattern;
    cp->engine = plan->engine = engine_ref(engine);
    arena_init(&plan->arena, cp->engine);
    graph_init(&plan->sub, cp->engine);
    plan->features = cp->engine->features;
    plan->deterministic = cp->engine->deterministic;
    plan->cache_bytes = cpu_last_level_cache();
    partition_get_fpmath(part, &plan->mode, &plan->apply_to_int);
    *compiled = cp;
    SG_TRY(copy_and_specialise(plan, part, n_in, in, n_out, out));
    keep_strided(&plan->sub, strided);
    return sinter_success;
}

static void measure_frames(sinter_compiled_partition_t *cp)
{
    cp->plan.frame_bytes = frame_bytes(&cp->plan);
    if (cp->fallback != NULL) {
        const size_t other = frame_bytes(cp->fallback);
        cp->plan.frame_bytes = other > cp->plan.frame_bytes ? other : cp->plan.frame_bytes;
        cp->fallback->frame_bytes = cp->plan.frame_bytes;
    }
}

sinter_status_t compile_finish(sinter_compiled_partition_t *cp, const sinter_partition_t *part,
                               strided_inputs_t *strided, bool *again)
{
    plan_t *plan = &cp->plan;
    textbuf_t notes;
    text_init(&notes, &plan->arena);
    settle_layouts(&plan->sub);
    SG_TRY(find_ports(cp, part));
    plan->dynamic = has_unknown_dims(&plan->sub);
    SG_TRY(lower_and_select(plan, part->family, true, &notes));
    *again = false;
    SG_TRY(check_chosen(plan, strided, again));
    if (*again) {
        return sinter_success;
    }
    if (plan->n_assumed > 0) {
        SG_TRY(make_fallback(cp));
    }
    measure_frames(cp);
    SG_TRY(inplace_find_pairs(cp));
    return write_report(cp, &notes);
}

void compiled_unref(sinter_compiled_partition_t *cp)
{
    if (atomic_fetch_sub(&cp->refs, 1) > 1) {
        return;
    }
    sinter_engine_t *engine = cp->engine;
    constants_disown(&engine->constants, cp);
    while (cp->idle != NULL) {
        scratch_block_t *next = cp->idle->next;
        sg_free(engine, cp->idle->memory);
        sg_free(engine, cp->idle);
        cp->idle = next;
    }
    if (cp->fallback != NULL) {
        arena_free(&cp->fallback->arena);
    }
    graph_free(&cp->plan.sub);
    arena_free(&cp->plan.arena);
    pthread_mutex_destroy(&cp->lock);
    sg_free(engine, cp);
    engine_unref(engine);
}
