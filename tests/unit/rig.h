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

/* All threads of one execute, one after the other. */
static inline sinter_status_t rig_run(rig_t *r, const kernel_t *k, step_t *step, int nth)
{
    const frame_t frame = {.v = r->v, .threads = nth};
    step->kernel = k;
    if (k->setup) {
        const sinter_status_t status = k->setup(&r->plan, step);
        if (status != sinter_success) {
            return status;
        }
    }
    void *state = rig_alloc(step->state_bytes);
    sinter_status_t status =
        k->prepare ? k->prepare(&r->plan, step, &frame, state) : sinter_success;
    if (status == sinter_success) {
        void *scratch = rig_alloc(k->thread_bytes ? k->thread_bytes(&r->plan, step) : 0);
        void *shared = rig_alloc(k->shared_bytes ? k->shared_bytes(&r->plan, step, &frame) : 0);
        for (int p = 0; p < k->phases; p++) {
            for (int tid = 0; tid < nth; tid++) {
                k->work(&r->plan, step, &frame, state, p, tid, nth, scratch, shared);
            }
        }
        free(scratch);
        free(shared);
    }
    free(state);
    return status;
}

enum { RIG_KERNELS = 16 };

/* The kernels that accept the step at the plan's ISA, at most RIG_KERNELS; returns how many. */
static inline int rig_kernels(const rig_t *r, const step_t *step, const kernel_t **out)
{
    int n = 0;
    for (int i = 0; i < sinter_n_kernels; i++) {
        const kernel_t *k = sinter_kernels[i];
        if (k->step == step->kind && has_features(r->plan.features, k->needs.bits) &&
            (k->refuse == NULL || k->refuse(&r->plan, step) == NULL)) {
            if (n == RIG_KERNELS) {
                abort();
            }
            out[n++] = k;
        }
    }
    return n;
}

#endif
