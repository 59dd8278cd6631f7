/* Runs one kernel on one step without a graph: values with memory between sentinels, their
 * elements read and written by the oracle's codecs. */
#ifndef SINTER_TESTS_RIG_H
#define SINTER_TESTS_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter_graph.h>

#include "backend_xsmm/kernel.h"
#include "base/cpu.h"
#include "check.h"
#include "oracle.h"
#include "random.h"

enum { RIG_VALUES = 24, RIG_GUARD = 64, RIG_FILL = 0xA5 };

static uint64_t rig_seed = 1;
static inline uint32_t rig_random(void)
{
    return (uint32_t)(random_next(&rig_seed) >> 32);
}
static inline int rig_pick(int n)
{
    return random_below(&rig_seed, n);
}

typedef struct rig {
    plan_t plan;
    plan_value_t values[RIG_VALUES];
    bound_t v[RIG_VALUES];
    unsigned char *mem[RIG_VALUES];
    size_t bytes[RIG_VALUES];
    int n;
    const char *note; /* what the last kernel's setup said */
} rig_t;

static inline void rig_init(rig_t *r, sinter_cpu_isa_t isa)
{
    memset(r, 0, sizeof *r);
    arena_init(&r->plan.arena, engine_ref(NULL));
    r->plan.values = r->values;
    r->plan.features = features_up_to(isa);
}

static inline void rig_free(rig_t *r)
{
    for (int i = 0; i < r->n; i++) {
        free(r->mem[i]);
    }
    arena_free(&r->plan.arena);
}

/* strides NULL: dense. Memory is filled with RIG_FILL. */
static inline int rig_value(rig_t *r, sinter_data_type_t type, int ndims, const int64_t *dims,
                            const int64_t *strides)
{
    bound_t *b = &r->v[r->n];
    int64_t last = 0, n = 1;
    *b = (bound_t){.dtype = type, .ndims = ndims};
    for (int d = ndims - 1; d >= 0; d--) {
        b->dims[d] = dims[d];
        b->strides[d] = strides ? strides[d] : n;
        n *= dims[d];
    }
    for (int d = 0; d < ndims; d++) {
        last += (dims[d] - 1) * b->strides[d];
    }
    r->bytes[r->n] = n == 0 ? 0 : (size_t)(((last + 1) * dtype_traits(type)->bits + 7) / 8);
    r->mem[r->n] = malloc(r->bytes[r->n] + 2 * RIG_GUARD);
    memset(r->mem[r->n], RIG_FILL, r->bytes[r->n] + 2 * RIG_GUARD);
    b->data = r->mem[r->n] + RIG_GUARD;
    r->values[r->n].lt.data_type = type;
    r->values[r->n].lt.ndims = ndims;
    memcpy(r->values[r->n].lt.dims, b->dims, sizeof b->dims);
    return r->n++;
}

static inline int64_t rig_count(const bound_t *b)
{
    int64_t n = 1;
    for (int d = 0; d < b->ndims; d++) {
        n *= b->dims[d];
    }
    return n;
}

static inline void rig_index(const bound_t *b, int64_t linear, int64_t *idx)
{
    for (int d = b->ndims - 1; d >= 0; d--) {
        idx[d] = linear % b->dims[d];
        linear /= b->dims[d];
    }
}

static inline int64_t rig_offset(const bound_t *b, const int64_t *idx)
{
    int64_t at = 0;
    for (int d = 0; d < b->ndims; d++) {
        at += idx[d] * b->strides[d];
    }
    return at;
}

static inline double rig_get(const rig_t *r, int v, const int64_t *idx)
{
    return orc_decode(r->v[v].dtype, r->v[v].data, rig_offset(&r->v[v], idx));
}
static inline void rig_set(rig_t *r, int v, const int64_t *idx, double x)
{
    orc_encode(r->v[v].dtype, r->v[v].data, rig_offset(&r->v[v], idx), x);
}

/* Whole numbers in lo..hi. */
static inline void rig_fill(rig_t *r, int v, int lo, int hi)
{
    int64_t idx[SINTER_MAX_NDIMS];
    for (int64_t i = 0; i < rig_count(&r->v[v]); i++) {
        rig_index(&r->v[v], i, idx);
        rig_set(r, v, idx, lo + rig_pick(hi - lo + 1));
    }
}

/* Strides over a random order of the dims, at times with gaps. */
static inline void rig_strides(int ndims, const int64_t *dims, int64_t *strides)
{
    int order[SINTER_MAX_NDIMS];
    int64_t at = 1;
    for (int d = 0; d < ndims; d++) {
        order[d] = d;
    }
    for (int d = ndims - 1; d > 0 && rig_pick(2); d--) {
        const int e = rig_pick(d + 1), t = order[d];
        order[d] = order[e];
        order[e] = t;
    }
    for (int k = ndims - 1; k >= 0; k--) {
        strides[order[k]] = at;
        at = at * dims[order[k]] + (rig_pick(4) == 0 ? rig_pick(4) : 0);
    }
}

/* The guards around a value. */
static inline int rig_guarded(const rig_t *r, int v)
{
    for (int i = 0; i < RIG_GUARD; i++) {
        if (r->mem[v][i] != RIG_FILL ||
            r->mem[v][RIG_GUARD + r->bytes[v] + (size_t)i] != RIG_FILL) {
            return 0;
        }
    }
    return 1;
}

static inline void *rig_alloc(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    memset(p, 0xFF, bytes); /* NaN */
    return p;
}

/* One execute of one kernel, as far as its threads: set up, bound and started. */
typedef struct rig_execute {
    const kernel_t *kernel;
    candidate_t with;
    frame_t frame;
    problem_t problem;
    choice_t choice;
    void *state, *scratch, *shared;
} rig_execute_t;

static inline sinter_status_t rig_begin(rig_execute_t *e, rig_t *r, const kernel_t *k,
                                        const step_t *step, int nth)
{
    const driver_t *driver = k->driver;
    *e = (rig_execute_t){.kernel = k, .frame = {.v = r->v, .shares = nth}};
    e->problem = (problem_t){.plan = &r->plan, .step = step};
    sinter_status_t status = driver->setup(k, &e->problem, &r->plan.arena, &e->with);
    if (status != sinter_success) {
        return status;
    }
    e->problem.frame = &e->frame;
    e->state = rig_alloc(e->with.state_bytes);
    status = driver->choose(k, &e->problem, e->with.config, e->state, &e->choice);
    if (status == sinter_success && driver->start != NULL) {
        status = driver->start(k, &e->problem, e->with.config, e->state);
    }
    e->scratch = rig_alloc(e->with.share_bytes);
    e->shared = rig_alloc(e->choice.shared_bytes);
    return status;
}

static inline void rig_work(const rig_execute_t *e, int phase, int tid)
{
    detour_t detour = NULL;
    uint64_t products = 0;
    if (e->choice.shares_bytes && tid > 0) {
        return;
    }
    const worker_t w = {.phase = phase,
                        .tid = tid,
                        .nth = e->choice.shares_bytes ? 1 : e->frame.shares,
                        .scratch = e->scratch,
                        .shared = e->shared,
                        .detour = &detour,
                        .products = &products};
    e->kernel->driver->work(e->kernel, &e->problem, e->with.config, e->state, &w);
}

static inline void rig_end(rig_execute_t *e)
{
    free(e->state);
    free(e->scratch);
    free(e->shared);
}

/* All threads of one execute, one after the other. */
static inline sinter_status_t rig_run(rig_t *r, const kernel_t *k, const step_t *step, int nth)
{
    rig_execute_t e;
    const sinter_status_t status = rig_begin(&e, r, k, step, nth);
    for (int p = 0; status == sinter_success && p < k->driver->phases; p++) {
        for (int tid = 0; tid < nth; tid++) {
            rig_work(&e, p, tid);
        }
    }
    r->note = e.with.note;
    rig_end(&e);
    return status;
}

enum { RIG_KERNELS = 16 };

/* The kernels that accept the step at the plan's ISA, at compile and at execute, at most
 * RIG_KERNELS; returns how many. */
static inline int rig_kernels(rig_t *r, const step_t *step, const kernel_t **out)
{
    const frame_t frame = {.v = r->v, .shares = 1};
    int n = 0;
    for (int i = 0; i < sinter_n_kernels; i++) {
        const kernel_t *k = &sinter_kernels[i];
        const problem_t compile = {.plan = &r->plan, .step = step},
                        execute = {.plan = &r->plan, .step = step, .frame = &frame};
        if (k->driver->step == step->kind && has_features(r->plan.features, k->needs.bits) &&
            (k->driver->refuse == NULL ||
             (k->driver->refuse(k, &compile) == NULL && k->driver->refuse(k, &execute) == NULL))) {
            if (n == RIG_KERNELS) {
                abort();
            }
            out[n++] = k;
        }
    }
    return n;
}

/* The kernel that runs the step with what compile knows, and what the better ones were refused for,
 * as lines in why. */
static inline const kernel_t *rig_select(rig_t *r, const step_t *step, textbuf_t *why)
{
    selection_t s;
    kernel_select(&r->plan, step, &s);
    text_init(why, &r->plan.arena);
    text_add(why, "%s", "");
    for (int i = 0; i < s.n_refusals; i++) {
        text_add(why, "  %s refused: %s%s\n", s.refusals[i].kernel->name,
                 s.refusals[i].features ? "needs " : "", s.refusals[i].reason);
    }
    return s.n_kernels > 0 ? s.kernels[0] : NULL;
}

#endif
