/* Whether two tensors have memory in common, element by element: the halves of a row lie between
 * one another, and share nothing.
 *
 * A tensor is runs of bytes that begin at the sums of one position of each of its steps. Two
 * tensors meet where a sum of positions of one, minus a sum of the other, is small enough that
 * their runs meet. Counted from the other end, a position that is subtracted is one that is added.
 * So the question is whether some sum of one position of each step of both lies in a window. */
#include "base/alloc.h"
#include "graph/layout.h"
#include "graph/tensor.h"
#include "numeric/dtype.h"

/* The positions 0, apart, .., most * apart. */
typedef struct step {
    int64_t apart, most;
} step_t;

enum { MOST_STEPS = 2 * SINTER_MAX_NDIMS, MOST_TRIES = 4096 };

typedef struct memory {
    int64_t run;    /* bytes of a run; 0: no elements */
    int64_t extent; /* from the first byte to behind the last one */
    bool whole;     /* all runs begin with a whole byte; else only run and extent are set */
    int n;
    step_t steps[SINTER_MAX_NDIMS];
} memory_t;

static int64_t bytes_of(int64_t bits)
{
    return bits / 8 + (bits % 8 != 0);
}

/* The dim along which elements of less than a byte lie side by side; -1: elements are whole bytes,
 * or there is one alone. */
static int packed_dim(const lt_t *lt, int64_t bits)
{
    for (int d = 0; d < lt->ndims && bits % 8 != 0; d++) {
        if (lt->dims[d] > 1 && lt->strides[d] == 1) {
            return d;
        }
    }
    return -1;
}

/* False: dims are unknown, or no memory is that large. */
static bool memory_of(const lt_t *lt, memory_t *m)
{
    const int64_t elems = lt_elems(lt), bits = dtype_traits(lt->data_type)->bits;
    lt_t dense;
    *m = (memory_t){.whole = true};
    if (elems <= 0) {
        return elems == 0;
    }
    if (lt_is_opaque(lt)) {
        m->extent = m->run = layout_bytes(lt, &m->run) ? m->run : INT64_MAX;
        return m->extent <= INT64_MAX / 4;
    }
    if (!lt_strides_known(lt)) {
        dense = *lt;
        lt_set_dense(&dense);
        lt = &dense;
    }
    const int along = packed_dim(lt, bits);
    int64_t run = bits, span;
    if (along >= 0 && !mul_i64(bits, lt->dims[along], &run)) {
        return false;
    }
    int64_t extent = run;
    for (int d = 0; d < lt->ndims; d++) {
        int64_t apart = 0;
        if (d == along || lt->dims[d] == 1 || lt->strides[d] == 0) {
            continue;
        }
        if (!mul_i64(lt->strides[d], bits, &apart) || !mul_i64(apart, lt->dims[d] - 1, &span) ||
            !add_i64(extent, span, &extent)) {
            return false;
        }
        m->whole = m->whole && apart % 8 == 0;
        m->steps[m->n++] = (step_t){apart / 8, lt->dims[d] - 1};
    }
    m->run = bytes_of(run);
    m->extent = bytes_of(extent);
    return extent <= INT64_MAX / 4;
}

/* ---- sums of positions ----------------------------------------------------------------------- */

typedef struct sums {
    int n, tries;
    step_t steps[MOST_STEPS]; /* by falling `apart`, of which each is there once */
    /* Of the steps from k on: their largest sum, and what all their sums are multiples of. */
    int64_t largest[MOST_STEPS + 1], unit[MOST_STEPS + 1];
} sums_t;

static void add_step(sums_t *s, step_t step)
{
    int at = s->n;
    while (at > 0 && s->steps[at - 1].apart < step.apart) {
        at--;
    }
    if (at > 0 && s->steps[at - 1].apart == step.apart) {
        s->steps[at - 1].most += step.most;
        return;
    }
    for (int i = s->n++; i > at; i--) {
        s->steps[i] = s->steps[i - 1];
    }
    s->steps[at] = step;
}

/* Some sum of the steps from k on lies in low..high. Also true where this takes too long to find
 * out, which layouts of tensors that do not overlap themselves hardly ever do. */
static bool some_sum(sums_t *s, int k, int64_t low, int64_t high)
{
    if (high < 0 || low > s->largest[k]) {
        return false;
    }
    if (low <= 0 || high >= s->largest[k]) {
        return true;
    }
    if (high / s->unit[k] * s->unit[k] < low) {
        return false;
    }
    if (s->tries-- == 0) {
        s->tries = 0;
        return true;
    }
    const step_t step = s->steps[k];
    const int64_t least = low - s->largest[k + 1], last = high / step.apart;
    int64_t i = least > 0 ? (least - 1) / step.apart + 1 : 0;
    for (; i <= last && i <= step.most; i++) {
        if (some_sum(s, k + 1, low - i * step.apart, high - i * step.apart)) {
            return true;
        }
    }
    return false;
}

/* distance: from the first byte of a to that of b. */
static bool runs_meet(const memory_t *a, const memory_t *b, int64_t distance)
{
    sums_t s = {.tries = MOST_TRIES};
    int64_t low = distance - a->run + 1, high = distance + b->run - 1;
    for (int i = 0; i < a->n; i++) {
        add_step(&s, a->steps[i]);
    }
    for (int i = 0; i < b->n; i++) {
        add_step(&s, b->steps[i]);
        low += b->steps[i].apart * b->steps[i].most;
        high += b->steps[i].apart * b->steps[i].most;
    }
    /* Windows that a step moves by no more than their width make one window. */
    while (s.n > 0 && s.steps[s.n - 1].apart <= high - low + 1) {
        s.n--;
        low -= s.steps[s.n].apart * s.steps[s.n].most;
    }
    for (int k = s.n - 1; k >= 0; k--) {
        s.largest[k] = s.largest[k + 1] + s.steps[k].apart * s.steps[k].most;
        s.unit[k] = common_divisor(s.steps[k].apart, s.unit[k + 1]);
    }
    return some_sum(&s, 0, low, high);
}

/* ---------------------------------------------------------------------------------------------- */

bool lt_overlap(const lt_t *a, const void *a_data, const lt_t *b, const void *b_data)
{
    const uintptr_t x = (uintptr_t)a_data, y = (uintptr_t)b_data;
    memory_t m, n;
    if (!memory_of(a, &m) || !memory_of(b, &n)) {
        return true;
    }
    const bool between = x <= y ? y - x < (uintptr_t)m.extent : x - y < (uintptr_t)n.extent;
    return m.run > 0 && n.run > 0 && between &&
           (!m.whole || !n.whole || runs_meet(&m, &n, (int64_t)(y - x)));
}
