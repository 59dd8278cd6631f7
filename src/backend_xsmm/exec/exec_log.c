/* The lines that SINTER_VERBOSE=exec prints: for a sequence one with its threads and time, and one
 * for each element without them; for each other execute
 *
 *   exec partition 0 (sdpa), 2 threads, 35.1 us: 0:f16[8,1,128] 1:s8[8,384,128] -> 9:f16[8,1,128];
 *   step 0: attention_decode_f32_avx2, K by f32 FMA on decoded registers,
 *   V by tiles of floats (the head is not contiguous)
 *
 * A step has its kernel, the ways that the kernel chose for these tensors, and in parentheses why
 * it did not choose a faster one. Where values sent some of the work a slower way, that way and its
 * reason follow, and where masks leave out some of the work, how much they leave. Where work
 * decides about threads, its estimate follows. Where the execute used fewer threads than the stream
 * has, the reason stands behind their number. Where dims are not those that the plan assumes, the
 * steps are those of its fallback, and the reason stands before them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend_xsmm/exec/crew.h"
#include "backend_xsmm/exec/exec.h"
#include "base/status.h"
#include "numeric/dtype.h"

enum { LINE_BYTES = 4096 };

typedef struct line {
    char text[LINE_BYTES];
    size_t len;
} line_t;

__attribute__((format(printf, 2, 3))) static void add(line_t *l, const char *format, ...)
{
    static const char cut[] = "...";
    const size_t room = LINE_BYTES - l->len;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(l->text + l->len, room, format, args);
    va_end(args);
    l->len += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
    if (n >= 0 && (size_t)n >= room) {
        memcpy(l->text + LINE_BYTES - sizeof cut, cut, sizeof cut);
    }
}

static void add_ports(line_t *l, const frame_mem_t *fm, const int *ports, int n)
{
    for (int i = 0; i < n; i++) {
        const lt_t *lt = &fm->lts[ports[i]];
        add(l, " %llu:%s[", (unsigned long long)lt->id, dtype_traits(lt->data_type)->name);
        for (int d = 0; d < lt->ndims; d++) {
            add(l, "%s%lld", d > 0 ? "," : "", (long long)lt->dims[d]);
        }
        add(l, "]");
    }
}

static void add_step(line_t *l, const taken_t *taken, const void *state)
{
    char told[TELL_BYTES] = "";
    add(l, "%s", taken->candidate->kernel->name);
    for (int i = 0; i < taken->choice.n_ways; i++) {
        const way_t *w = &taken->choice.ways[i];
        add(l, ", %s%sby %s", w->of != NULL ? w->of : "", w->of != NULL ? " " : "", w->row->name);
        if (w->why != NULL) {
            add(l, " (%s)", w->why);
        }
    }
    const char *detour = atomic_load_explicit(&taken->detour, memory_order_relaxed);
    if (detour != NULL) {
        add(l, ", %s", detour);
    }
    if (taken->candidate->kernel->driver->tell != NULL) {
        taken->candidate->kernel->driver->tell(state, told);
        add(l, "%s%s", *told != '\0' ? ", " : "", told);
    }
}

/* "2 threads, 35.1 us", and why not more. */
static void add_threads(line_t *l, const exec_run_t *run, int64_t begin)
{
    const long long tenths = (crew_clock() - begin) / 100;
    add(l, "%d thread%s", run->used, run->used == 1 ? "" : "s");
    if (run->why != NULL) {
        add(l, " of %d (%s)", run->threads.most, run->why);
    }
    add(l, ", %lld.%lld us", tenths / 10, tenths % 10);
}

void exec_log_sequence(const exec_run_t *run, int64_t begin)
{
    line_t l = {.len = 0};
    add(&l, "exec sequence of %d partitions, ", run->n_parts);
    add_threads(&l, run, begin);
    sg_log(SG_VERBOSE_EXEC, "%s", l.text);
}

/* ": 0:f16[8,1,128] -> 9:f16[8,1,128]; step 0: ..." */
static void add_part(line_t *l, const sinter_compiled_partition_t *cp, const exec_run_t *run,
                     const frame_mem_t *fm)
{
    add(l, ":");
    add_ports(l, fm, cp->inputs, cp->n_inputs);
    add(l, " ->");
    add_ports(l, fm, cp->outputs, cp->n_outputs);
    if (fm->broken != NULL) {
        add(l, "; fallback, because tensor %llu has not the %s of tensor %llu",
            (unsigned long long)graph_message_id(&cp->plan.sub, fm->broken->value),
            fm->broken->pages ? "pages" : "dims",
            (unsigned long long)graph_message_id(&cp->plan.sub, fm->broken->as));
    }
    for (int s = 0; s < fm->plan->n_steps; s++) {
        add(l, "; step %d: ", s);
        if (frame_has_copy(fm->plan, fm, &fm->plan->steps[s])) {
            add(l, "not run, its copy is in the constant cache");
            continue;
        }
        add_step(l, &fm->taken[s], fm->state + fm->plan->steps[s].state_offset);
        if (!run->threads.all && run->threads.most > 1) {
            add(l, ", %.1f us of work in %d share%s", fm->taken[s].work, fm->taken[s].shares,
                fm->taken[s].shares == 1 ? "" : "s");
        }
    }
}

void exec_log_element(const sinter_compiled_partition_t *cp, const exec_run_t *run, int element)
{
    line_t l = {.len = 0};
    add(&l, "exec partition %zu (%s), element %d", cp->id, cp->pattern, element);
    add_part(&l, cp, run, run->parts[element].fm);
    sg_log(SG_VERBOSE_EXEC, "%s", l.text);
}

void exec_log(const sinter_compiled_partition_t *cp, const exec_run_t *run, int64_t begin)
{
    line_t l = {.len = 0};
    add(&l, "exec partition %zu (%s), ", cp->id, cp->pattern);
    add_threads(&l, run, begin);
    add_part(&l, cp, run, run->parts[0].fm);
    sg_log(SG_VERBOSE_EXEC, "%s", l.text);
}
