/* A plan bound to the tensors of one execute. The memory of a frame has a fixed size known at
 * compile; nothing here allocates. */
#ifndef SINTER_SRC_FRAME_H
#define SINTER_SRC_FRAME_H

#include "backend_xsmm/exec/team.h"
#include "backend_xsmm/kernel.h"
#include "base/constants.h"

/* What runs a step in one execute. */
typedef struct taken {
    const candidate_t *candidate;
    choice_t choice;
    double work; /* by estimate, microseconds of one thread */
    int shares;  /* parts that each phase is divided into; any thread may run any of them */
    detour_t detour;
} taken_t;

/* What execute keeps at the start of its scratch memory. */
typedef struct frame_mem {
    const plan_t *plan;
    const same_dims_t *broken; /* why the plan is a fallback: what another one assumed; else NULL */
    frame_t frame;
    bound_t *v;                /* by plan value */
    lt_t *lts;                 /* by graph value: dims inferred for this execute */
    size_t *temp_offset;       /* by plan value */
    unsigned char **port_data; /* by plan value: data pointers of the ports */
    constant_t **constants; /* by packed value, then by copy_at: copies that this execute reads */
    uint64_t drops;         /* of copies, before these were taken */
    bool held, refused;     /* this frame holds them; the cache had no room for one */
    taken_t *taken;         /* by step */
    unsigned char *state;   /* step states, at step->state_offset */
    size_t temp_bytes, shared_bytes;
    int shares;       /* the most of any step */
    double divisible; /* the work of the steps that have several shares */
} frame_mem_t;

/* Bytes for frame_mem_t and all its arrays. */
size_t frame_bytes(const plan_t *plan);
/* Places the arrays in memory, which is frame_bytes long and aligned to 64 bytes. lts begin with
 * what compile knew. */
frame_mem_t *frame_place(const plan_t *plan, void *memory);
/* Sets dims and strides of every value. The caller has set the entries of ports in fm->lts to
 * those of their tensors. Data pointers stay NULL. *broken: what the plan assumes and these dims
 * break, so that the frame is of no use; NULL: nothing. */
sinter_status_t frame_shapes(const plan_t *plan, frame_mem_t *fm, const same_dims_t **broken);
/* Places temporaries. *bytes: the aligned memory that they and the frame need. Call it after
 * frame_shapes. */
sinter_status_t frame_temps(const plan_t *plan, frame_mem_t *fm, size_t *bytes);
/* Divides each step into shares, takes a kernel for it, and the kernel fills its state. Shares
 * depend on dims and `threads` alone, so results do not depend on who runs them. *total: the
 * aligned memory that the execute needs, with the frame. Call it after frame_temps and
 * frame_data. */
sinter_status_t frame_choose(const plan_t *plan, frame_mem_t *fm, threads_t threads, size_t *total);
/* Sets data pointers: of ports from data[], by graph value; of temporaries to their places in
 * temps, or to NULL if temps is NULL; of views to those of their bases. Packed values have those
 * of their bases until frame_pack. */
void frame_data(const plan_t *plan, frame_mem_t *fm, unsigned char *const *data,
                unsigned char *temps);

/* The data pointers of views, from those of their bases. */
void frame_views(const plan_t *plan, frame_mem_t *fm);
/* frame_shapes for packed values alone. Their bases must have dims and strides. */
sinter_status_t frame_packed_shapes(const plan_t *plan, frame_mem_t *fm);
/* Takes the copies of packed values from the constant cache; owner: the compiled partition. A
 * value for which the cache has no room is read from its base. Copies that are to be made and large
 * are made by all threads. frame_unpack must follow, even if this fails. */
sinter_status_t frame_pack(const plan_t *plan, frame_mem_t *fm, const void *owner,
                           threads_t threads);
void frame_unpack(const plan_t *plan, frame_mem_t *fm);
/* After frame_unpack: takes the same copies again. False: some may be gone, or there may be room
 * for one more now, so that the frame must be made anew. */
bool frame_hold(const plan_t *plan, frame_mem_t *fm);

/* The constant cache has what this step would make, so that it does not run. */
static inline bool frame_has_copy(const plan_t *plan, const frame_mem_t *fm, const step_t *step)
{
    return step->copy_at >= 0 && fm->constants[plan->n_packed + step->copy_at] != NULL;
}

/* The strides of a view of base, whose dims are set. False: they cannot express it. IN_BLOCKS: its
 * dims are those of base, whose last stride is 1, with the last two merged. */
bool view_strides(const node_t *op, shows_t shows, const bound_t *base, bound_t *view);
/* The same of a value in pages, whose blocks base is. */
void view_in_pages(const pages_of_t *pages, const bound_t *base, bound_t *view);

/* An error if a part of a Concat, or what a Slice takes, would not begin with a whole byte of base.
 * lts: the dims of graph values. */
sinter_status_t view_begins_byte(const plan_value_t *pv, const bound_t *base, const lt_t *lts);

#endif
