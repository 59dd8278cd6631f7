/* A plan bound to the tensors of one execute. The memory of a frame has a fixed size known at
 * compile; nothing here allocates. */
#ifndef SINTER_SRC_FRAME_H
#define SINTER_SRC_FRAME_H

#include "backend_xsmm/kernel.h"
#include "base/constants.h"

/* What runs a step in one execute. */
typedef struct taken {
    const candidate_t *candidate;
    choice_t choice;
} taken_t;

/* What execute places in front of the scratch memory. */
typedef struct frame_mem {
    frame_t frame;
    bound_t *v;                /* by plan value */
    lt_t *lts;                 /* by graph value: dims inferred for this execute */
    size_t *temp_offset;       /* by plan value */
    unsigned char **port_data; /* by plan value: data pointers of the ports */
    constant_t **constants;    /* by packed value: copies that this execute reads */
    taken_t *taken;            /* by step */
    unsigned char *state;      /* step states, at step->state_offset */
    size_t temp_bytes, shared_bytes;
} frame_mem_t;

/* Bytes for frame_mem_t and all its arrays; false on overflow. */
bool frame_bytes(const plan_t *plan, size_t *bytes);
/* Carves the arrays out of memory (64-byte aligned, frame_bytes long); lts are what compile
 * knew. */
frame_mem_t *frame_place(const plan_t *plan, void *memory);
/* Dims and strides of every value; the ports' entries of fm->lts must have been set to the
 * tensors' before. Data pointers stay NULL. */
sinter_status_t frame_shapes(const plan_t *plan, frame_mem_t *fm);
/* Places temporaries: *bytes of aligned memory, the frame included. After frame_shapes. */
sinter_status_t frame_temps(const plan_t *plan, frame_mem_t *fm, size_t *bytes);
/* Takes a kernel for each step, which fills its state; sums up the aligned memory that an
 * execute on so many threads takes, frame included. After frame_temps and frame_data. */
sinter_status_t frame_choose(const plan_t *plan, frame_mem_t *fm, int threads, size_t *total);
/* Data pointers: ports by value from data[] (indexed by graph value), temporaries in temps, or NULL
 * where temps is NULL. Views follow their bases; so do packed values, until frame_pack. */
void frame_data(const plan_t *plan, frame_mem_t *fm, unsigned char *const *data,
                unsigned char *temps);

/* frame_shapes for packed values, whose bases have their dims and strides. */
sinter_status_t frame_packed_shapes(const plan_t *plan, frame_mem_t *fm);
/* Takes packed values from the constant cache (the copies of owner, the compiled partition);
 * where it has no room they become their bases. To be followed by frame_unpack, even if it
 * fails. */
sinter_status_t frame_pack(const plan_t *plan, frame_mem_t *fm, const void *owner);
void frame_unpack(const plan_t *plan, frame_mem_t *fm);

/* Dims and strides of a view of (or, if inverse, under) base; false: strides cannot say it. */
bool view_strides(const node_t *op, bool inverse, const bound_t *base, int ndims,
                  const int64_t *dims, int64_t *strides);

enum { SCRATCH_ALIGN = 64 };
static inline size_t scratch_round(size_t bytes)
{
    return (bytes + SCRATCH_ALIGN - 1) & ~(size_t)(SCRATCH_ALIGN - 1);
}

#endif
