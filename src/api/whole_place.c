/* Compiled graphs: dims of the tensors between partitions, and where all tensors lie.
 *
 * A tensor lives from the partition that writes it to the last one that reads it. Inputs of the
 * graph live from before the first partition, outputs until behind the last one. What lives at the
 * same time must not share memory, except where a partition writes its output over an input that
 * nobody needs afterwards, which it must have reported as an in-place pair. */
#include <string.h>

#include "api/bind.h"
#include "api/whole.h"
#include "base/status.h"

/* ---- dims ------------------------------------------------------------------------------------ */

void whole_renew(sinter_compiled_graph_t *w, const whole_tensor_t *t)
{
    for (int p = t->first < 0 ? 0 : t->first; p < w->n_parts && p <= t->last; p++) {
        whole_part_t *part = &w->parts[p];
        for (int i = 0; i < part->compiled->n_inputs + part->compiled->n_outputs; i++) {
            part->stale = part->stale || &w->tensors[part->ports[i]] == t;
        }
    }
    w->stale = true;
}

/* An output has the dims that the inputs lead to, and the strides that the caller gave for these
 * dims. Those given for other dims count for nothing: the caller may be about to bind it anew. */
static void settle(sinter_compiled_graph_t *w, whole_tensor_t *t, const lt_t *inferred)
{
    const lt_t *lt = t->given && lt_same_dims(&t->wanted, inferred) ? &t->wanted : inferred;
    if (!lt_same_shape(lt, &t->tensor.lt)) {
        t->tensor.lt = *lt;
        whole_renew(w, t);
    }
}

static sinter_status_t infer_part(sinter_compiled_graph_t *w, whole_part_t *part)
{
    const sinter_compiled_partition_t *cp = part->compiled;
    for (int i = 0; i < cp->n_inputs; i++) {
        const whole_tensor_t *t = &w->tensors[part->ports[i]];
        if (!lt_dims_known(&t->tensor.lt)) {
            return sg_fail(sinter_invalid_arguments,
                           "the dims of input tensor %llu are not known yet: "
                           "sinter_compiled_graph_bind",
                           (unsigned long long)t->port.id);
        }
    }
    SG_TRY(bind_infer(cp, w->frame, (size_t)cp->n_inputs, part->ins, w->inferred));
    for (int i = 0; i < cp->n_outputs; i++) {
        settle(w, &w->tensors[part->ports[cp->n_inputs + i]], &w->inferred[i]);
    }
    return sinter_success;
}

sinter_status_t whole_infer(sinter_compiled_graph_t *w)
{
    for (int p = 0; p < w->n_parts; p++) {
        if (w->parts[p].stale) {
            const sinter_status_t status = infer_part(w, &w->parts[p]);
            if (status != sinter_success) {
                return bind_fail(w->parts[p].compiled, p, status);
            }
            w->parts[p].stale = false;
        }
    }
    return sinter_success;
}

/* ---- in-place pairs -------------------------------------------------------------------------- */

/* Whether partition p may write output b over its input a: it reads each element before it writes
 * it, nobody needs a afterwards, and the two have the same dims and strides, so far as they are
 * known. */
static bool pairs_now(const sinter_compiled_graph_t *w, int p, int a, int b)
{
    const sinter_compiled_partition_t *cp = w->parts[p].compiled;
    const whole_tensor_t *in = &w->tensors[a], *out = &w->tensors[b];
    bool paired = false;
    for (size_t i = 0; i < cp->n_inplace && !paired; i++) {
        paired = cp->inplace[i].input_id == in->port.id && cp->inplace[i].output_id == out->port.id;
    }
    return paired && out->first == p && in->last == p &&
           lt_may_coincide(&in->tensor.lt, &out->tensor.lt);
}

static void step_to(sinter_compiled_graph_t *w, int tensor)
{
    w->path[w->n_path++] = (whole_hop_t){.tensor = tensor};
    w->tensors[tensor].search = w->searches;
}

/* data: the memory that an output is bound to; NULL: it is not bound. */
static bool may_lend(const whole_tensor_t *t, const void *data)
{
    return t->bound && !t->lent && t->data != t->tensor.scalar && (data == NULL || data == t->data);
}

int whole_find_root(sinter_compiled_graph_t *w, int b, bool bound)
{
    w->searches++;
    w->n_path = 0;
    step_to(w, b);
    while (w->n_path > 0) {
        whole_hop_t *hop = &w->path[w->n_path - 1];
        const int p = w->tensors[hop->tensor].first;
        if (p < 0 || hop->next == w->parts[p].compiled->n_inputs) {
            w->n_path--;
            continue;
        }
        const int a = w->parts[p].ports[hop->next++];
        const whole_tensor_t *from = &w->tensors[a];
        if (from->search == w->searches || !pairs_now(w, p, a, hop->tensor)) {
            continue;
        }
        if (from->first < 0 && from->port.property != sinter_tensor_property_constant &&
            (!bound || may_lend(from, w->tensors[b].data))) {
            return a;
        }
        if (from->first >= 0 && !from->bound) {
            step_to(w, a);
        }
    }
    return -1;
}

/* Lets output b, and all tensors between it and an input of the graph to which pairs lead, lie in
 * that input's buffer, if there is one that may be written over. */
static void lie_in_input(sinter_compiled_graph_t *w, int b)
{
    const int root = whole_find_root(w, b, true);
    for (int i = 0; i < w->n_path && root >= 0; i++) {
        whole_tensor_t *t = &w->tensors[w->path[i].tensor];
        if (!t->bound) {
            t->place = PLACE_INPUT;
            t->tensor.data = w->tensors[root].tensor.data;
            t->tensor.bytes = w->tensors[root].tensor.bytes;
        }
    }
    if (root >= 0) {
        w->tensors[root].lent = true;
    }
}

/* ---- the block ------------------------------------------------------------------------------- */

/* Takes tensors out of the live ones that nobody needs from partition p on. */
static int drop_dead(sinter_compiled_graph_t *w, int n, int p)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (w->tensors[w->live[i]].last >= p) {
            w->live[kept++] = w->live[i];
        }
    }
    return kept;
}

/* Gives tensor b the place of a live one over which its partition writes it. */
static bool take_over(sinter_compiled_graph_t *w, int n, int b)
{
    for (int i = 0; i < n; i++) {
        const whole_tensor_t *a = &w->tensors[w->live[i]];
        if (pairs_now(w, w->tensors[b].first, w->live[i], b)) {
            w->tensors[b].offset = a->offset;
            w->live[i] = b;
            return true;
        }
    }
    return false;
}

/* The first gap between live tensors that is large enough; the live ones stay sorted by offset. */
static sinter_status_t find_gap(sinter_compiled_graph_t *w, int n, int b)
{
    whole_tensor_t *t = &w->tensors[b];
    size_t end;
    int at = 0;
    t->offset = 0;
    while (at < n && w->tensors[w->live[at]].offset - t->offset < t->room) {
        t->offset = w->tensors[w->live[at]].offset + w->tensors[w->live[at]].room;
        at++;
    }
    if (!add_size(t->offset, t->room, &end) || end > SIZE_MAX / 2) {
        return sg_fail(sinter_invalid_shape, "tensor %llu: memory between partitions overflows",
                       (unsigned long long)t->port.id);
    }
    memmove(&w->live[at + 1], &w->live[at], (size_t)(n - at) * sizeof(*w->live));
    w->live[at] = b;
    return sinter_success;
}

/* Tensors come in order of their first partition. */
static sinter_status_t place_in_block(sinter_compiled_graph_t *w)
{
    int n = 0;
    w->n_placed = 0;
    w->placed_bytes = 0;
    for (int b = 0; b < w->n_tensors; b++) {
        whole_tensor_t *t = &w->tensors[b];
        size_t bytes;
        if (t->place != PLACE_ARENA) {
            continue;
        }
        SG_TRY(lt_bytes(&t->tensor.lt, &bytes));
        if (bytes > SIZE_MAX / 2) {
            return sg_fail(sinter_invalid_shape, "tensor %llu: size overflows",
                           (unsigned long long)t->port.id);
        }
        t->room = scratch_round(bytes);
        t->tensor.bytes = bytes;
        n = drop_dead(w, n, t->first);
        if (!take_over(w, n, b)) {
            SG_TRY(find_gap(w, n++, b));
        }
        w->placed[w->n_placed++] = (sinter_arena_tensor_t){t->port.id, bytes, t->offset,
                                                           (size_t)t->first, (size_t)t->last};
        w->placed_bytes =
            t->offset + t->room > w->placed_bytes ? t->offset + t->room : w->placed_bytes;
    }
    return sinter_success;
}

sinter_status_t whole_place_all(sinter_compiled_graph_t *w)
{
    SG_TRY(whole_infer(w));
    if (!w->stale) {
        return sinter_success;
    }
    for (int i = 0; i < w->n_tensors; i++) {
        whole_tensor_t *t = &w->tensors[i];
        t->place = t->bound                                ? PLACE_BOUND
                   : t->first < 0 || t->last == w->n_parts ? PLACE_NONE
                                                           : PLACE_ARENA;
        t->tensor.data = t->bound ? t->data : NULL;
        t->lent = false;
    }
    /* Outputs that the caller has bound to buffers of inputs go first. */
    for (int i = 0; i < 2 * w->n_outputs; i++) {
        const int at = w->outputs[i % w->n_outputs];
        const whole_tensor_t *t = &w->tensors[at];
        if (t->bound == (i < w->n_outputs) && (!t->bound || t->data != NULL)) {
            lie_in_input(w, at);
        }
    }
    return place_in_block(w);
}

/* ---- checks before an execute ---------------------------------------------------------------- */

/* The dims that the caller gave for an output are those that the inputs lead to. */
static sinter_status_t check_given(const sinter_compiled_graph_t *w, const whole_tensor_t *t)
{
    int d = 0;
    if (!t->given || lt_same_dims(&t->wanted, &t->tensor.lt)) {
        return sinter_success;
    }
    while (t->wanted.dims[d] == t->tensor.lt.dims[d]) {
        d++;
    }
    return bind_fail(w->parts[t->first].compiled, t->first,
                     sg_fail(sinter_invalid_arguments,
                             "tensor %llu: dim %d is %lld, the inputs lead to %lld",
                             (unsigned long long)t->port.id, d, (long long)t->wanted.dims[d],
                             (long long)t->tensor.lt.dims[d]));
}

static sinter_status_t check_bound(const whole_tensor_t *t)
{
    size_t bytes;
    const unsigned long long id = (unsigned long long)t->port.id;
    SG_TRY(lt_bytes(&t->tensor.lt, &bytes));
    if (t->place == PLACE_NONE && bytes > 0) {
        return sg_fail(sinter_invalid_arguments, "%s tensor %llu is not bound",
                       t->first < 0 ? "input" : "output", id);
    }
    if (t->place != PLACE_NONE && t->tensor.bytes < bytes) {
        return sg_fail(sinter_invalid_arguments, "tensor %llu: %zu bytes given, %zu needed", id,
                       t->tensor.bytes, bytes);
    }
    return sinter_success;
}

/* Memory outside of the block. That a partition writes over an input of its own only in a pair is
 * checked when its element is bound. */
static sinter_status_t check_overlaps(const sinter_compiled_graph_t *w, const whole_tensor_t *b)
{
    for (int i = 0; i < w->n_tensors && b->first >= 0; i++) {
        const whole_tensor_t *a = &w->tensors[i];
        const bool outside = a->place == PLACE_BOUND || a->place == PLACE_INPUT;
        if (outside && a->first < b->first && a->last > b->first &&
            lt_overlap(&a->tensor.lt, a->tensor.data, &b->tensor.lt, b->tensor.data)) {
            const sinter_compiled_partition_t *cp = w->parts[b->first].compiled;
            return sg_fail(
                sinter_invalid_arguments,
                "element %d, partition %zu (%s) writes tensor %llu over tensor %llu, which %s",
                b->first, cp->id, cp->pattern, (unsigned long long)b->port.id,
                (unsigned long long)a->port.id,
                a->last >= w->n_parts ? "is an output of the graph" : "a later partition reads");
        }
    }
    return sinter_success;
}

sinter_status_t whole_prepare(sinter_compiled_graph_t *w)
{
    SG_TRY(whole_place_all(w));
    if (!w->stale) {
        return sinter_success;
    }
    for (int i = 0; i < w->n_tensors; i++) {
        const whole_tensor_t *t = &w->tensors[i];
        SG_TRY(check_given(w, t));
        if (t->place != PLACE_ARENA) {
            SG_TRY(check_bound(t));
        }
        if (t->place == PLACE_BOUND || t->place == PLACE_INPUT) {
            SG_TRY(check_overlaps(w, t));
        }
    }
    if (w->placed_bytes > w->memory_bytes) {
        sg_free(w->engine, w->memory);
        w->memory_bytes = 0;
        w->memory = sg_alloc(w->engine, w->placed_bytes, SCRATCH_ALIGN);
        if (w->memory == NULL) {
            return sinter_out_of_memory;
        }
        w->memory_bytes = w->placed_bytes;
    }
    for (int i = 0; i < w->n_tensors; i++) {
        whole_tensor_t *t = &w->tensors[i];
        if (t->place == PLACE_ARENA) {
            t->tensor.data = w->memory != NULL ? w->memory + t->offset : NULL;
        }
    }
    w->stale = false;
    return sinter_success;
}
