/* The contract between a plan and the code that runs its steps.
 *
 * A kernel is a row of kernels.def: a name, a driver and the CPU features that it needs. A driver
 * is a constant struct of functions for one kind of step. All its functions get the kernel that
 * they work for, so one driver serves several instruction sets and never asks which CPU it is on.
 *
 * Compile, for each step:
 *   1. refuse   is asked of the kernels in the order of kernels.def. It gives the reason why the
 *               kernel cannot run the step, or NULL. It is pure. It may ask the problem for dims
 *               and strides. The answer -1 means that only execute knows, and is no reason to
 *               refuse.
 *   2. setup    is called for each kernel that may run the step: the first one that does not
 *               refuse and, as long as a refuse asked for a dim that only execute knows, the next
 *               one that does not refuse. It generates code and chooses tile sizes from what is
 *               known. It may allocate from the plan's arena; no other function may allocate.
 *
 * Execute, in the calling thread:
 *   3. refuse   again, if several kernels were set up: now all dims are known. The first kernel
 *               that does not refuse runs the step.
 *   4. choose   does all geometry, once. It fills the kernel's state, and says how much memory the
 *               threads share and which ways the kernel takes. Dims, strides and data types are
 *               final. Data pointers may be kept in the state but not read. They are NULL if the
 *               caller only asks for the size of the scratch memory, or finds that it has too
 *               little of it; then choose is called again.
 *   5. start    reads the values that the work needs beforehand from inputs and constants: the
 *               scalars of masks, the scale of a tensor. No other value has its elements yet.
 *               Errors of choose and start stop the execute before anything is written.
 *
 * Execute, in the threads:
 *   6. work     for each phase of the driver, in each round, and for each share of the phase. Any
 *               thread may run any share, at once with others or one after the other. A barrier
 *               stands between phases and between steps.
 *
 * A kernel allocates nothing, starts no thread, keeps no global, reads no environment. */
#ifndef SINTER_SRC_KERNEL_H
#define SINTER_SRC_KERNEL_H

#include <stdatomic.h>

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/plan.h"
#include "base/constants.h"

/* ---- what a kernel is asked about ------------------------------------------------------------ */

/* A step with its tensors, as far as they are known. */
typedef struct problem {
    const plan_t *plan;
    const step_t *step;
    const frame_t *frame; /* NULL at compile */
    bool *open;           /* set where an answer is -1; NULL: the caller does not ask */
} problem_t;

static inline int64_t problem_answer(const problem_t *p, int64_t n)
{
    if (n < 0 && p->open != NULL) {
        *p->open = true;
    }
    return n < 0 ? -1 : n;
}

/* The id of a value's tensor, for messages. */
static inline unsigned long long problem_id(const problem_t *p, int value)
{
    return (unsigned long long)p->plan->values[value].lt.id;
}

/* The rank of a value; -1: not known. */
static inline int problem_ndims(const problem_t *p, int value)
{
    return (int)problem_answer(p, p->frame != NULL ? p->frame->v[value].ndims
                                                   : p->plan->values[value].lt.ndims);
}

/* A dim counted from the end, 1 if the value has fewer; -1: not known. */
static inline int64_t problem_dim(const problem_t *p, int value, int from_end)
{
    const int ndims = problem_ndims(p, value);
    const int64_t *dims =
        p->frame != NULL ? p->frame->v[value].dims : p->plan->values[value].lt.dims;
    return ndims < 0 ? -1 : ndims < from_end ? 1 : problem_answer(p, dims[ndims - from_end]);
}

/* The stride of a dim counted from the end; -1: not known, or of a constant that may be packed. */
int64_t problem_stride(const problem_t *p, int value, int from_end);

static inline sinter_data_type_t problem_type(const problem_t *p, int value)
{
    return p->plan->values[value].lt.data_type;
}

/* An operand lies in pages (graph/pages.h). */
static inline bool reads_pages(const problem_t *p, const operand_t *op)
{
    const plan_value_t *v = &p->plan->values[op->data];
    return v->kind == PV_VIEW && v->shows == IN_PAGES;
}

/* The tokens of a page of such an operand, which compile knows. */
static inline int64_t tokens_of_page(const problem_t *p, const operand_t *op)
{
    const pages_of_t *pages = p->plan->values[op->data].pages;
    return pages->within < 0 ? 1 : p->plan->values[pages->blocks].lt.dims[pages->within];
}

/* ---- what a kernel answers ------------------------------------------------------------------- */

/* A code path of a driver: a row of one of its tables, which kernels.def lists. The fastest way
 * stands first; the last one takes everything and has no refuse. */
typedef struct way_row {
    const char *name;
    /* Why the step cannot go this way in this execute; NULL: it can; "": it cannot, and the reason
     * was already reported at compile. It may fill the state for this way. */
    const char *(*refuse)(int kind, const void *config, void *state);
    int kind; /* for rows that share one refuse */
} way_row_t;

#define SINTER_WAYS(table) extern const way_row_t ways_##table[];
#include "backend_xsmm/kernels.def"

/* The rows of kernels.def for ways, in their order. */
typedef struct way_table {
    const char *name;
    const way_row_t *rows;
} way_table_t;
extern const way_table_t sinter_way_tables[];
extern const int sinter_n_way_tables;

/* A way that choose took; static texts. */
typedef struct way {
    const char *of; /* the operand or the part of the work that it is about; NULL: the whole step */
    const way_row_t *row;
    /* Why not a faster one; NULL: there is none, or its reason was already reported at compile. */
    const char *why;
} way_t;

enum { KERNEL_WAYS = 10 };

typedef struct choice {
    size_t shared_bytes; /* for all threads together, until the end of the step's last phase */
    int rounds;          /* how many times the phases run; 0: once */
    int phases;          /* in place of the driver's; 0: those */
    int first;           /* the first phase that has something to do: no barrier for those before */
    /* Results of several shares may lie in one byte: one share does all the work. */
    bool shares_bytes;
    int n_ways;
    way_t ways[KERNEL_WAYS];
} choice_t;

static inline void add_way(choice_t *choice, const char *of, const way_row_t *row, const char *why)
{
    choice->ways[choice->n_ways++] = (way_t){.of = of, .row = row, .why = why};
}

/* Takes the first way of a table that does not refuse, and gives its index. */
static inline int take_way(const way_row_t *rows, const char *of, const void *config, void *state,
                           choice_t *choice)
{
    const char *why = NULL;
    int at = 0;
    for (; rows[at].refuse != NULL; at++) {
        const char *no = rows[at].refuse(rows[at].kind, config, state);
        if (no == NULL) {
            break;
        }
        why = *no != '\0' ? no : why;
    }
    add_way(choice, of, &rows[at], why);
    return at;
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* The first detour that the work of a step took: a slower path for some of it, because of values
 * that choose cannot know. A static text like "some by panels (rows of A are not finite)". NULL:
 * the work took no detour. */
typedef _Atomic(const char *) detour_t;

/* Share tid of nth in one phase. Each share has its own scratch, of the size that setup asked
 * for; all have `shared` in common, of the size that choose asked for. Both are aligned to 64
 * bytes. */
typedef struct worker {
    int phase, round, tid, nth;
    void *scratch, *shared;
    detour_t *detour;   /* of all shares */
    uint64_t *products; /* of this share */
} worker_t;

/* Work calls this for the products of two elements that it sums, as the graph has them: not for
 * those with rows or columns that a micro-kernel adds to fill its registers. */
static inline void count_products(const worker_t *w, int64_t rows, int64_t columns, int64_t k)
{
    *w->products += (uint64_t)(rows * columns * k);
}

/* Work calls this for every detour that it takes, so that none is silent. */
static inline void report_detour(const worker_t *w, const char *text)
{
    if (atomic_load_explicit(w->detour, memory_order_relaxed) == NULL) {
        atomic_store_explicit(w->detour, text, memory_order_relaxed);
    }
}

typedef struct kernel kernel_t;

enum { TELL_BYTES = 80 };

/* IN_ANY: it computes nothing, elements move as they are. */
typedef enum arithmetic { IN_F32, IN_F64, IN_BF16, IN_INT8, IN_ANY } arithmetic_t;

/* The step before, in the same execute. */
typedef struct before {
    const step_t *step;
    const void *config, *state;
    int shares;
} before_t;

typedef struct driver {
    step_kind_t step;
    arithmetic_t arithmetic; /* of its products, as in the names of its kernels */
    int phases;
    bool reads_cache;  /* of attention: K and V in tiles */
    const char *takes; /* for the report: what the dims must be; NULL: anything */
    /* NULL: never refuses. The reason may be empty: reports then leave the kernel out. */
    const char *(*refuse)(const kernel_t *self, const problem_t *p);
    /* Fills all of `out` but the kernel. */
    sinter_status_t (*setup)(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out);
    /* state is not cleared, choice is. config: what setup left. */
    sinter_status_t (*choose)(const kernel_t *self, const problem_t *p, const void *config,
                              void *state, choice_t *choice);
    /* After choose, where the same driver runs the step before: what that one leaves in shared
     * memory stays there until this step's first phase, which may use it instead of making the same
     * again. NULL: it never does. */
    void (*follow)(const problem_t *p, const before_t *before, const void *config, void *state,
                   choice_t *choice);
    /* Checks the elements of a value that only execute knows, such as indices. It comes before
     * start, and may come before the steps of other plans. NULL: there is nothing to check. */
    sinter_status_t (*check)(const problem_t *p, const void *state);
    /* Value number i of those that check reads; -1: there are no more. */
    int (*checked)(const step_t *step, int i);
    /* NULL: the step reads nothing beforehand. */
    sinter_status_t (*start)(const kernel_t *self, const problem_t *p, const void *config,
                             void *state);
    void (*work)(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w);
    /* For the log of an execute: what the values that start read mean for the work, as words of a
     * list; empty: nothing. NULL: never anything. text: room for TELL_BYTES. */
    void (*tell)(const void *state, char *text);
} driver_t;

struct kernel {
    const char *name; /* <step>_<algorithm>_<arithmetic>_<isa> */
    const driver_t *driver;
    features_t needs;
};

/* The rows of kernels.def, in their order. */
extern const kernel_t sinter_kernels[];
extern const int sinter_n_kernels;

/* For each step_kind_t the driver that runs every step of that kind. */
extern const driver_t *const sinter_step_drivers[];

/* ---- selection ------------------------------------------------------------------------------- */

/* Why a kernel for this kind of step is not among the candidates. */
typedef struct refusal {
    const kernel_t *kernel;
    const char *reason;
    bool features; /* the plan lacks features that the kernel needs: reason is the name of one */
    /* Why the kernel would refuse the step even with these features; NULL: only they are missing */
    const char *besides;
} refusal_t;

enum {
    MOST_CANDIDATES = 12,
    MOST_REFUSALS = 0
#define SINTER_KERNEL(name, driver, needs) +1
#include "backend_xsmm/kernels.def"
};

typedef struct selection {
    const kernel_t *kernels[MOST_CANDIDATES];
    int n_kernels;
    bool sure; /* the last one takes whatever dims execute brings */
    refusal_t refusals[MOST_REFUSALS];
    int n_refusals;
} selection_t;

/* The kernels that may run a step, in order of preference, and the reasons why kernels before
 * the last of these refuse it; if no kernel may run it, the reasons of all. Pure. */
void kernel_select(const plan_t *plan, const step_t *step, selection_t *out);

/* The candidate of a step that runs it with the dims of this frame. NULL: none, with the reason
 * of the last one. */
const candidate_t *kernel_for_frame(const plan_t *plan, const step_t *step, const frame_t *frame,
                                    const char **why);

/* The dim of B that the step's kernels want to be contiguous where B is constant; -1: they take
 * it as it is. */
int matmul_packs_along(const plan_t *plan, const step_t *step);

/* Why the step's kernels do not read B in tiles (numeric/tiles.h), if it is constant or given in
 * tiles; NULL: they should. */
const char *matmul_refuse_tiles(const plan_t *plan, const step_t *step);
/* Why B, of known dims, is better read where it lies than in tiles of the library's own choice: in
 * a copy, where it is constant, or as its layout, if that may be any. */
const char *matmul_refuse_copy(const plan_t *plan, const step_t *step);
/* Why a kernel that reads B by its strides does not. */
const char *matmul_refuse_layout(const problem_t *p);

/* ---- helpers --------------------------------------------------------------------------------- */

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

static inline int64_t at_least(int64_t n, int64_t least)
{
    return n > least ? n : least;
}

/* An axis that may be counted from the end, counted from the front. */
static inline int axis_from_front(int axis, int ndims)
{
    return axis < 0 ? axis + ndims : axis;
}

/* Every part of scratch begins on a cache line. */
enum { SCRATCH_ALIGN = 64 };
static inline size_t scratch_round(size_t bytes)
{
    return (bytes + SCRATCH_ALIGN - 1) & ~(size_t)(SCRATCH_ALIGN - 1);
}

/* The next count * size bytes of the memory at base, aligned to 64 bytes. base NULL: only
 * counts. */
static inline void *carve(unsigned char *base, size_t *at, size_t count, size_t size)
{
    void *p = base != NULL ? base + *at : NULL;
    *at = scratch_round(*at + count * size);
    return p;
}

#endif
