/* Kernels and their registry. Kernels allocate nothing (but for setup, from the plan's arena),
 * start no threads, keep no globals, read no environment. */
#ifndef SINTER_SRC_KERNEL_H
#define SINTER_SRC_KERNEL_H

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/plan.h"

/* A code path that prepare chose for one execute. All texts are static. */
typedef struct way {
    const char *of; /* the operand that it is about; NULL: the whole step */
    const char *name;
    const char *why; /* why not a faster one; NULL: there is none, or setup ruled it out */
} way_t;

enum { KERNEL_WAYS = 3 };

typedef struct kernel {
    const char *name; /* <step>_<algorithm>_<arithmetic>_<isa> */
    step_kind_t step;
    features_t needs;
    int cost; /* among the kernels that accept a step the lowest cost wins; ties: earlier row */
    /* NULL if it can run the step, else the reason (static text). Must not depend on dims that
     * may change at execute. */
    const char *(*refuse)(const plan_t *plan, const step_t *step);
    /* Compile time, with step->kernel set: JIT, tile sizes; fills step->jit, step->state_bytes,
     * step->note. NULL: nothing to do. */
    sinter_status_t (*setup)(plan_t *plan, step_t *step);
    /* Scratch for each thread / for all threads together, for this frame, whose data pointers
     * are not set (shared memory lives from prepare to the end of the step's last phase). NULL:
     * none. */
    size_t (*thread_bytes)(const plan_t *plan, const step_t *step);
    size_t (*shared_bytes)(const plan_t *plan, const step_t *step, const frame_t *frame);
    /* Execute, one thread, before any step runs: all dims are known, data pointers are set, but
     * only inputs and constants have their elements. Fills state, which is not cleared. Errors
     * stop the execute before anything is written. */
    sinter_status_t (*prepare)(const plan_t *plan, const step_t *step, const frame_t *frame,
                               void *state);
    /* Phase p in 0..phases-1 on thread tid of nth; a barrier stands between phases and between
     * steps. */
    void (*work)(const plan_t *plan, const step_t *step, const frame_t *frame, const void *state,
                 int phase, int tid, int nth, void *scratch, void *shared);
    /* The ways that prepare chose, from its state: at most KERNEL_WAYS of them; returns how many.
     * NULL: there is only one way. */
    int (*ways)(const step_t *step, const void *state, way_t *ways);
    int phases;
    bool bf16; /* multiplies in bf16 */
} kernel_t;

/* Defines kernel_<id> for a row of kernels.def from designated initialisers. */
#define KERNEL(id, ...)                \
    extern const kernel_t kernel_##id; \
    const kernel_t kernel_##id = {.name = #id, __VA_ARGS__};

/* The rows of kernels.def. */
extern const kernel_t *const sinter_kernels[];
extern const int sinter_n_kernels;

/* Pure: the cheapest kernel with isa <= plan->features that does not refuse; appends every
 * refusal to why. NULL: none. */
const kernel_t *kernel_select(const plan_t *plan, const step_t *step, textbuf_t *why);

/* The dim of B that the step's kernels want to be contiguous where B is constant; -1: they take
 * it as it is. */
int matmul_packs_along(const plan_t *plan, const step_t *step);

/* An even share of n items: thread tid of nth gets [*begin, *end). */
static inline void share(int64_t n, int tid, int nth, int64_t *begin, int64_t *end)
{
    *begin = n * tid / nth;
    *end = n * (tid + 1) / nth;
}

static inline int64_t at_most(int64_t n, int64_t most)
{
    return n < most ? n : most;
}

/* For kernel_t.ways: one thread does all the work where outputs share bytes. Returns 1 then. */
static inline int serial_way(bool serial, way_t *way)
{
    if (serial) {
        *way = (way_t){.name = "one thread", .why = "rows of an output share bytes"};
    }
    return serial;
}

/* The next count * size bytes, 64-byte aligned, of memory at base (NULL: only counts). */
static inline void *carve(unsigned char *base, size_t *at, size_t count, size_t size)
{
    void *p = base != NULL ? base + *at : NULL;
    *at = (*at + count * size + 63) & ~(size_t)63;
    return p;
}

#endif
