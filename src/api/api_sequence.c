/* The public functions of sequences. An element keeps its frame between executes; temporaries and
 * scratch memory are one block for all elements, which use it one after the other. */
#include <string.h>

#include <sinter/sinter.h>

#include "api/bind.h"
#include "backend_xsmm/exec/crew.h"
#include "backend_xsmm/plan/compile.h"
#include "base/status.h"

/* What an element's frame was made for. */
typedef struct seen {
    lt_t lt;
    void *data;
} seen_t;

typedef struct element {
    sinter_compiled_partition_t *compiled; /* held */
    void *memory;                          /* of this element alone: frame, seen and lists */
    tensors_t tensors;
    seen_t *seen; /* of the inputs, then of the outputs */
    size_t scratch;
    bool bound; /* the frame is that of `seen` */
} element_t;

struct sinter_sequence {
    sinter_engine_t *engine; /* held */
    int n, room;
    element_t *elements;
    exec_part_t *parts; /* their plans and frames */
    unsigned char *scratch;
    size_t scratch_bytes;
    threads_t threads; /* that the elements are bound for */
};

sinter_status_t sinter_sequence_create(sinter_sequence_t **sequence, sinter_engine_t *engine)
{
    SG_REQUIRE(sequence != NULL);
    SG_TRY(engine_check(engine));
    sinter_sequence_t *s = object_new(engine, sizeof(*s));
    if (s == NULL) {
        return sinter_out_of_memory;
    }
    *sequence = s;
    return sinter_success;
}

sinter_status_t sinter_sequence_destroy(sinter_sequence_t **sequence)
{
    SG_REQUIRE(sequence != NULL);
    sinter_sequence_t *s = *sequence;
    if (s != NULL) {
        sinter_engine_t *engine = s->engine;
        for (int i = 0; i < s->n; i++) {
            sg_free(engine, s->elements[i].memory);
            compiled_unref(s->elements[i].compiled);
        }
        sg_free(engine, s->elements);
        sg_free(engine, s->parts);
        sg_free(engine, s->scratch);
        object_free(s);
    }
    *sequence = NULL;
    return sinter_success;
}

/* ---- append ---------------------------------------------------------------------------------- */

static sinter_status_t check_ports(const sinter_compiled_partition_t *cp, const tensors_t *t)
{
    for (int i = 0; i < cp->n_inputs + cp->n_outputs; i++) {
        const bool in = i < cp->n_inputs;
        const uint64_t id = bind_port(cp, i)->id;
        const sinter_tensor_t *const *out = (const sinter_tensor_t *const *)t->out;
        if (find_tensor(id, in ? t->n_in : t->n_out, in ? t->in : out) == NULL) {
            return sg_fail(sinter_invalid_arguments, "no %s with tensor id %llu",
                           in ? "input" : "output", (unsigned long long)id);
        }
    }
    for (size_t i = 0; i < t->n_in + t->n_out; i++) {
        if ((i < t->n_in ? t->in[i] : t->out[i - t->n_in]) == NULL) {
            return sg_fail(sinter_invalid_arguments, "tensor %zu is NULL", i);
        }
    }
    return sinter_success;
}

/* A larger copy of an array; the old one is freed. NULL: out of memory, and the old one stays. */
static void *grow(const sinter_engine_t *engine, void *old, int count, int room, size_t size)
{
    void *larger = sg_alloc(engine, (size_t)room * size, SCRATCH_ALIGN);
    if (larger != NULL && count > 0) {
        memcpy(larger, old, (size_t)count * size);
    }
    if (larger != NULL) {
        sg_free(engine, old);
    }
    return larger;
}

static bool make_room(sinter_sequence_t *s)
{
    const int room = s->room > 0 ? 2 * s->room : 16;
    if (s->n < s->room) {
        return true;
    }
    element_t *elements = grow(s->engine, s->elements, s->n, room, sizeof(*elements));
    s->elements = elements != NULL ? elements : s->elements;
    exec_part_t *parts = grow(s->engine, s->parts, s->n, room, sizeof(*parts));
    s->parts = parts != NULL ? parts : s->parts;
    if (elements == NULL || parts == NULL) {
        return false;
    }
    s->room = room;
    return true;
}

/* Places the frame, what it was made for, and copies of the lists in one block. */
static bool place(const sinter_engine_t *engine, element_t *e, const tensors_t *t)
{
    const size_t n = t->n_in + t->n_out, frame = scratch_round(e->compiled->plan.frame_bytes),
                 lists = frame + n * sizeof(seen_t);
    if (n > (SIZE_MAX / 2 - frame) / (sizeof(seen_t) + sizeof(void *))) {
        return false;
    }
    unsigned char *memory = sg_alloc(engine, lists + n * sizeof(void *), SCRATCH_ALIGN);
    if (memory == NULL) {
        return false;
    }
    e->memory = memory;
    e->seen = (seen_t *)(void *)(memory + frame);
    const sinter_tensor_t **in = (const sinter_tensor_t **)(void *)(memory + lists);
    sinter_tensor_t **out = (sinter_tensor_t **)(void *)(in + t->n_in);
    for (size_t i = 0; i < t->n_in; i++) {
        in[i] = t->in[i];
    }
    for (size_t i = 0; i < t->n_out; i++) {
        out[i] = t->out[i];
    }
    e->tensors = (tensors_t){t->n_in, t->n_out, in, out};
    return true;
}

sinter_status_t sinter_sequence_append(sinter_sequence_t *sequence,
                                       const sinter_compiled_partition_t *compiled, size_t n_inputs,
                                       const sinter_tensor_t *const *inputs, size_t n_outputs,
                                       sinter_tensor_t *const *outputs)
{
    SG_REQUIRE_ALL(sequence, compiled);
    SG_REQUIRE(n_inputs == 0 || inputs != NULL);
    SG_REQUIRE(n_outputs == 0 || outputs != NULL);
    const tensors_t tensors = {n_inputs, n_outputs, inputs, outputs};
    SG_TRY(check_ports(compiled, &tensors));
    /* Its count of references changes, and nothing else. */
    element_t e = {.compiled = (sinter_compiled_partition_t *)(uintptr_t)compiled};
    if (!make_room(sequence) || !place(sequence->engine, &e, &tensors)) {
        return sinter_out_of_memory;
    }
    atomic_fetch_add(&e.compiled->refs, 1);
    sequence->elements[sequence->n] = e;
    sequence->parts[sequence->n++] =
        (exec_part_t){.plan = &compiled->plan, .fm = frame_place(&compiled->plan, e.memory)};
    return sinter_success;
}

/* ---- execute --------------------------------------------------------------------------------- */

static const sinter_tensor_t *tensor_of(const element_t *e, size_t i)
{
    return i < e->tensors.n_in ? e->tensors.in[i] : e->tensors.out[i - e->tensors.n_in];
}

/* Copies of constants may go between executes; then the frame is made anew. */
static bool still_bound(const element_t *e, const exec_part_t *part)
{
    bool same = e->bound;
    for (size_t i = 0; i < e->tensors.n_in + e->tensors.n_out && same; i++) {
        const sinter_tensor_t *t = tensor_of(e, i);
        same = e->seen[i].data == t->data && e->seen[i].lt.layout_type == t->lt.layout_type &&
               lt_same_shape(&e->seen[i].lt, &t->lt);
    }
    return same && frame_hold(part->plan, part->fm);
}

/* Makes the frame of an element. Its temporaries get their addresses only if there is room. */
static sinter_status_t bind(sinter_sequence_t *s, int i)
{
    element_t *e = &s->elements[i];
    exec_part_t *part = &s->parts[i];
    sinter_compiled_partition_t *cp = e->compiled;
    size_t bytes, total;
    e->bound = false;
    const sinter_status_t status = bind_all(cp, e->memory, &e->tensors, &part->fm);
    part->plan = part->fm->plan;
    SG_TRY(status);
    SG_TRY(frame_temps(part->plan, part->fm, &bytes));
    if (part->fm->temp_bytes <= s->scratch_bytes) {
        frame_data(part->plan, part->fm, part->fm->port_data, s->scratch);
    }
    SG_TRY(exec_choose(part->plan, part->fm, cp, s->threads, &total));
    for (size_t k = 0; k < e->tensors.n_in + e->tensors.n_out; k++) {
        const sinter_tensor_t *t = tensor_of(e, k);
        e->seen[k] = (seen_t){t->lt, t->data};
    }
    e->scratch = total - scratch_round(cp->plan.frame_bytes);
    e->bound = true;
    return sinter_success;
}

static void give_copies(sinter_sequence_t *s)
{
    for (int i = 0; i < s->n; i++) {
        frame_unpack(s->parts[i].plan, s->parts[i].fm);
    }
}

/* Binds what has changed. *failed: the element whose error it is. */
static sinter_status_t bind_changed(sinter_sequence_t *s, size_t *scratch, int *failed)
{
    bool changed = false;
    *scratch = 0;
    for (int i = 0; i < s->n; i++) {
        *failed = i;
        if (!still_bound(&s->elements[i], &s->parts[i])) {
            SG_TRY(bind(s, i));
            changed = true;
        }
        *scratch = s->elements[i].scratch > *scratch ? s->elements[i].scratch : *scratch;
    }
    for (int i = 0; i < s->n && changed; i++) {
        s->parts[i].checked = exec_may_check_first(s->parts, i + 1);
    }
    return sinter_success;
}

/* Checks what is there before the first element runs, so that an error leaves nothing written. */
static sinter_status_t check_first(const sinter_sequence_t *s, int *failed)
{
    for (int i = 0; i < s->n; i++) {
        *failed = i;
        SG_TRY(s->parts[i].checked ? exec_check(s->parts[i].plan, s->parts[i].fm) : sinter_success);
    }
    return sinter_success;
}

/* The error of an element that did not start. The thread that it failed in may be another: only
 * its repetition leaves a message here. */
static sinter_status_t fail_again(const exec_part_t *part)
{
    SG_TRY(part->checked ? sinter_success : exec_check(part->plan, part->fm));
    return exec_start(part->plan, part->fm);
}

static void unbind_all(sinter_sequence_t *s)
{
    give_copies(s);
    for (int i = 0; i < s->n; i++) {
        s->elements[i].bound = false;
    }
}

/* Binds what has changed; where the scratch memory is too small, takes more and binds all again. */
static sinter_status_t bind_elements(sinter_sequence_t *s, int *failed)
{
    size_t scratch;
    const size_t crew = SCRATCH_ALIGN + exec_run_bytes(s->threads.most); /* never nothing */
    SG_TRY(bind_changed(s, &scratch, failed));
    if (scratch + crew <= s->scratch_bytes) {
        return sinter_success;
    }
    unbind_all(s);
    sg_free(s->engine, s->scratch);
    s->scratch = sg_alloc(s->engine, scratch + crew, SCRATCH_ALIGN);
    s->scratch_bytes = s->scratch != NULL ? scratch + crew : 0;
    return s->scratch == NULL ? sinter_out_of_memory : bind_changed(s, &scratch, failed);
}

sinter_status_t sinter_sequence_execute(sinter_sequence_t *sequence, sinter_stream_t *stream)
{
    SG_REQUIRE_ALL(sequence, stream);
    sinter_sequence_t *s = sequence;
    const threads_t threads = stream->threads;
    const bool logged = (sg_verbose() & SG_VERBOSE_EXEC) != 0;
    const int64_t begin = logged ? crew_clock() : 0;
    exec_run_t run = {.parts = s->parts, .n_parts = s->n, .threads = threads};
    int failed = 0;
    if (s->n == 0) {
        return sinter_success;
    }
    if (threads.most != s->threads.most || threads.all != s->threads.all) {
        unbind_all(s);
        s->threads = threads;
    }
    sinter_status_t status = bind_elements(s, &failed);
    status = status == sinter_success ? check_first(s, &failed) : status;
    if (status == sinter_success) {
        for (int i = 0; i < s->n; i++) {
            exec_part_t *part = &s->parts[i];
            part->shared = s->scratch + scratch_round(part->fm->temp_bytes);
            part->scratch = part->shared + part->fm->shared_bytes;
        }
        exec_run(&run, s->scratch + s->scratch_bytes - exec_run_bytes(threads.most));
        failed = run.failed;
        status = failed < 0 ? status : fail_again(&s->parts[failed]);
    }
    if (logged && status == sinter_success) {
        exec_log_sequence(&run, begin);
    }
    for (int i = 0; i < s->n && logged && status == sinter_success; i++) {
        exec_log_element(s->elements[i].compiled, &run, i);
    }
    give_copies(s);
    return status == sinter_success ? status
                                    : bind_fail(s->elements[failed].compiled, failed, status);
}
