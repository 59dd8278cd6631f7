/* From a partition to a compiled partition: copy, specialise, (passes,) lower, select, set up,
 * report. */
#include "backend_xsmm/plan/compile.h"

#include <stdio.h>
#include <string.h>

#include <sinter/sinter_graph.h>

#include "backend_xsmm/plan/lower.h"
#include "base/cpu.h"
#include "base/status.h"
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

/* What the caller knows about a port now: dims must agree where both know them, the layout given
 * wins. */
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
    if (given->property != sinter_tensor_property_undef) {
        lt->property = given->property;
    }
    return sinter_success;
}

/* Tensors without a layout become dense row-major; an input with dynamic dims brings its strides
 * at execute. */
static void settle_layouts(graph_t *sub)
{
    for (int v = 0; v < sub->n_values; v++) {
        lt_t *lt = &sub->values[v].lt;
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
    cp->inputs = ARENA_NEW(&plan->arena, int, part->n_inputs + 1);
    cp->outputs = ARENA_NEW(&plan->arena, int, part->n_outputs + 1);
    if (cp->inputs == NULL || cp->outputs == NULL) {
        return sinter_out_of_memory;
    }
    for (int i = 0; i < part->n_inputs; i++) {
        cp->inputs[i] = graph_find_value(&plan->sub, part->sub.values[part->inputs[i]].lt.id);
    }
    for (int i = 0; i < part->n_outputs; i++) {
        cp->outputs[i] = graph_find_value(&plan->sub, part->sub.values[part->outputs[i]].lt.id);
    }
    return sinter_success;
}

/* ---- plan ------------------------------------------------------------------------------------ */

static bool has_unknown_dims(const graph_t *g)
{
    for (int t = 0; t < graph_n_live(g); t++) {
        const node_t *n = &g->nodes[g->topo[t]];
        for (int i = 0; i < n->n_in; i++) {
            if (!lt_dims_known(&g->values[n->in[i]].lt)) {
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

/* A kernel for every step. Where a step has none: sinter_unimplemented, and *missing is that
 * step (else -1), why has the reasons. */
static sinter_status_t select_all(plan_t *plan, textbuf_t *why, int *missing)
{
    size_t state = 0;
    *missing = -1;
    for (int s = 0; s < plan->n_steps; s++) {
        step_t *step = &plan->steps[s];
        text_init(why, &plan->arena);
        step->kernel = kernel_select(plan, step, why);
        if (step->kernel == NULL) {
            *missing = s;
            return sinter_unimplemented;
        }
        if (step->kernel->setup) {
            SG_TRY(step->kernel->setup(plan, step));
        }
        step->state_offset = state;
        state += scratch_round(step->state_bytes);
    }
    return sinter_success;
}

/* notes: what the report says about attention that is not run as such. */
static sinter_status_t lower_and_select(plan_t *plan, family_t family, textbuf_t *notes)
{
    int missing;
    textbuf_t why;
    SG_TRY(lower_plan(plan, family, notes));
    sinter_status_t status = select_all(plan, &why, &missing);
    if (status == sinter_unimplemented && missing >= 0 && family == FAMILY_ATTENTION) {
        text_add(notes, "no attention kernel took the step, it runs as a list of steps:\n%s",
                 why.text);
        SG_TRY(lower_plan(plan, FAMILY_GENERAL, notes));
        status = select_all(plan, &why, &missing);
    }
    if (status == sinter_unimplemented && missing >= 0) {
        return sg_fail(status, "no kernel for step %d of the partition:\n%s", missing, why.text);
    }
    return status;
}

/* ---- in-place -------------------------------------------------------------------------------- */

static bool views_port(const plan_t *plan, int value)
{
    for (int k = 0; k < plan->n_views; k++) {
        if (plan->values[plan->view_order[k]].base == value) {
            return true;
        }
    }
    return false;
}

/* One elementwise step reads each element of an input once, before it writes the same element of
 * the output. */
static sinter_status_t find_inplace(sinter_compiled_partition_t *cp)
{
    const plan_t *plan = &cp->plan;
    cp->inplace = ARENA_NEW(&cp->plan.arena, sinter_inplace_pair_t, cp->n_inputs + 1);
    if (cp->inplace == NULL) {
        return sinter_out_of_memory;
    }
    if (plan->n_steps != 1 || plan->steps[0].kind != STEP_CHAIN || plan->steps[0].tail != NULL ||
        cp->n_outputs != 1 || plan->dynamic || plan->values[cp->outputs[0]].kind != PV_OUTPUT) {
        return sinter_success;
    }
    const lt_t *out = &plan->sub.values[cp->outputs[0]].lt;
    for (int i = 0; i < cp->n_inputs; i++) {
        const lt_t *in = &plan->sub.values[cp->inputs[i]].lt;
        if (in->data_type == out->data_type && in->ndims == out->ndims &&
            memcmp(in->dims, out->dims, sizeof(int64_t) * (size_t)in->ndims) == 0 &&
            memcmp(in->strides, out->strides, sizeof(int64_t) * (size_t)in->ndims) == 0 &&
            chain_touches_once(plan->steps[0].post, cp->inputs[i], in->ndims) &&
            !views_port(plan, cp->inputs[i]) && !views_port(plan, cp->outputs[0])) {
            cp->inplace[cp->n_inplace++] = (sinter_inplace_pair_t){in->id, out->id};
        }
    }
    return sinter_success;
}

/* ---- report ---------------------------------------------------------------------------------- */

/* Operands that are read from the constant cache. */
static void report_packed(const plan_t *plan, const step_t *step, textbuf_t *text)
{
    const operand_t *b = step->kind == STEP_MATMUL ? &step->p.matmul.b : NULL;
    for (int i = 0; i < 3 && b != NULL; i++) {
        const int value = i == 0 ? b->data : i == 1 ? b->scale : b->zp;
        if (value >= 0 && plan->values[value].kind == PV_PACKED) {
            text_add(text,
                     "  reads tensor %llu, which is constant, with dim %d contiguous: a copy in "
                     "the constant cache\n",
                     (unsigned long long)plan->values[value].lt.id, plan->values[value].along);
        }
    }
}

/* One line for each step, with a line behind it for each kernel that refused it. */
static sinter_status_t write_report(sinter_compiled_partition_t *cp, const textbuf_t *notes)
{
    plan_t *plan = &cp->plan;
    textbuf_t text;
    text_init(&text, &plan->arena);
    text_add(&text, "fpmath %s%s, isa %s, %d step%s%s\n", sinter_fpmath_mode_name(plan->mode),
             plan->apply_to_int ? " (applied to int)" : "",
             sinter_cpu_isa_name(level_of_features(plan->features)), plan->n_steps,
             plan->n_steps == 1 ? "" : "s", plan->dynamic ? ", dynamic dims" : "");
    for (int s = 0; s < plan->n_steps; s++) {
        const step_t *step = &plan->steps[s];
        const size_t bytes =
            step->kernel->thread_bytes ? step->kernel->thread_bytes(plan, step) : 0;
        text_add(
            &text,
            "step %d: %s, mode %s, %d elementwise instructions, scratch %zu bytes per thread%s%s\n",
            s, step->kernel->name, sinter_fpmath_mode_name(step->mode),
            step->post ? step->post->n_instrs : 0, bytes, step->note ? ", " : "",
            step->note ? step->note : "");
        report_packed(plan, step, &text);
        if (step->tail != NULL) {
            const bool split = step->tail->out.split != sinter_data_type_undef;
            text_add(
                &text, "  quantises its result to %s%s before it leaves the step\n",
                dtype_traits(split ? step->tail->out.split : plan->values[step->tail->out.data].lt.data_type)
                    ->name,
                split ? " in two planes" : "");
        }
        if (step->apart != NULL) {
            text_add(&text, "  no part of the step that makes its data: %s\n", step->apart);
        }
        (void)kernel_select(plan, step, &text);
    }
    text_add(&text, "%s", notes->text);
    cp->report = text.text;
    if (text.oom || notes->oom) {
        return sinter_out_of_memory;
    }
    sg_log(SG_VERBOSE_DISPATCH | SG_VERBOSE_COMPILE, "%s", cp->report);
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
                             const sinter_logical_tensor_t *out,
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
    cp->id = part->id;
    cp->pattern = part->pattern;
    cp->engine = plan->engine = engine_ref(engine);
    arena_init(&plan->arena, cp->engine);
    graph_init(&plan->sub, cp->engine);
    plan->features = cp->engine->features;
    plan->cache_bytes = cpu_last_level_cache();
    partition_get_fpmath(part, &plan->mode, &plan->apply_to_int);
    *compiled = cp;
    return copy_and_specialise(plan, part, n_in, in, n_out, out);
}

sinter_status_t compile_finish(sinter_compiled_partition_t *cp, const sinter_partition_t *part)
{
    plan_t *plan = &cp->plan;
    textbuf_t notes;
    text_init(&notes, &plan->arena);
    settle_layouts(&plan->sub);
    SG_TRY(find_ports(cp, part));
    plan->dynamic = has_unknown_dims(&plan->sub);
    SG_TRY(lower_and_select(plan, part->family, &notes));
    if (!frame_bytes(plan, &cp->frame_bytes)) {
        return sg_fail(sinter_invalid_shape, "frame size overflows");
    }
    SG_TRY(find_inplace(cp));
    return write_report(cp, &notes);
}

void compiled_free(sinter_compiled_partition_t *cp)
{
    sinter_engine_t *engine = cp->engine;
    constants_disown(engine, cp);
    while (cp->idle != NULL) {
        scratch_block_t *next = cp->idle->next;
        sg_free(engine, cp->idle->memory);
        sg_free(engine, cp->idle);
        cp->idle = next;
    }
    graph_free(&cp->plan.sub);
    arena_free(&cp->plan.arena);
    pthread_mutex_destroy(&cp->lock);
    sg_free(engine, cp);
    engine_unref(engine);
}

/* ---- scratch --------------------------------------------------------------------------------- */

bool scratch_grow(sinter_compiled_partition_t *cp, scratch_block_t *block, size_t bytes)
{
    if (block->bytes >= bytes) {
        return true;
    }
    sg_free(cp->engine, block->memory);
    block->memory = sg_alloc(cp->engine, bytes, SCRATCH_ALIGN);
    block->bytes = block->memory != NULL ? bytes : 0;
    return block->memory != NULL;
}

scratch_block_t *scratch_take(sinter_compiled_partition_t *cp, size_t bytes)
{
    pthread_mutex_lock(&cp->lock);
    scratch_block_t *block = cp->idle;
    if (block != NULL) {
        cp->idle = block->next;
    }
    pthread_mutex_unlock(&cp->lock);
    if (block == NULL) {
        block = sg_alloc(cp->engine, sizeof(*block), SCRATCH_ALIGN);
        if (block == NULL) {
            return NULL;
        }
        memset(block, 0, sizeof(*block));
    }
    if (!scratch_grow(cp, block, bytes)) {
        scratch_give(cp, block);
        return NULL;
    }
    return block;
}

void scratch_give(sinter_compiled_partition_t *cp, scratch_block_t *block)
{
    pthread_mutex_lock(&cp->lock);
    block->next = cp->idle;
    cp->idle = block;
    pthread_mutex_unlock(&cp->lock);
}
