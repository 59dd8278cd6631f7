/* The space of a DynamicQuantize step, cut into slabs.
 *
 * A slab is a whole number of groups: `rows` rows of consecutive columns, each row being
 * groups_per_row groups (fewer at the end) of column.n columns. It is walked twice: once for the
 * extremes of its groups, once to quantise its elements; its size is such that the second walk
 * finds it in the caches.
 *
 *   groups of 32 along the last dim         one row, groups side by side
 *   groups of 32 along another dim          32 rows, every column a group
 *   tiles of 4 x 4                          4 rows, groups of 4 columns side by side
 *   one scale for a long row                one row, one group, read in pieces */
#ifndef SINTER_SRC_KERNELS_DYNQUANT_H
#define SINTER_SRC_KERNELS_DYNQUANT_H

#include "backend_xsmm/drivers/common/quantiser.h"
#include "backend_xsmm/kernel.h"

/* Columns of a slab, or of a piece of one group that is longer. */
enum { QUANT_COLUMNS = 2048 };

typedef struct quant_space {
    bound_t in;
    quant_span_t begin;  /* where the elements are that it has */
    quant_span_t column; /* of a group */
    quant_span_t group;  /* of a row of a slab; n: of the whole row */
    quant_span_t row[SINTER_MAX_NDIMS];
    int64_t row_n[SINTER_MAX_NDIMS]; /* row[].n */
    /* Where slabs lie; the last axis goes along a row. */
    quant_span_t slab[SINTER_MAX_NDIMS + 1];
    int64_t slab_n[SINTER_MAX_NDIMS + 1]; /* slab[].n */
    int n_row, n_slab;
    int64_t rows, groups_per_row; /* of a slab */
    int64_t pieces;               /* of a row of a slab */
    /* Threads share items: boxes of slabs, cut so that no two touch one byte of a packed output. */
    int64_t item[SINTER_MAX_NDIMS + 1], n_items;
    /* All shares work on each slab, first on extremes, then on elements: there are too few slabs
     * for the shares, or they are too tall for a cache. */
    bool by_pieces;
    bool exceeds_l2; /* slabs outgrow the second-level cache: the second walk fetches them again */
    bool stream;     /* the output is too large to be kept in a cache */
} quant_space_t;

/* out: bound to the same frame. */
void quant_space_bind(const bound_t *in, const matrices_t *out, const int64_t *groups, int shares,
                      quant_space_t *space);

/* Where last groups are short, the data is cut into boxes that have groups of one size: along each
 * such dim, bit by bit of `box`, one has the whole groups and the next one the short group. Box 0
 * has whole groups only; there are 2^n for n such dims. */
typedef struct quant_box {
    bound_t in;
    int64_t groups[SINTER_MAX_NDIMS];
    quant_span_t begin;
} quant_box_t;
int quant_short_dims(const matrices_t *out);
void quant_box_bind(const bound_t *in, const matrices_t *out, const int64_t *groups, unsigned box,
                    quant_box_t *part);
/* Whether boxes share a byte of an output: then one thread must write them all. */
bool quant_boxes_share_bytes(const matrices_t *out);

static inline int64_t quant_slabs(const quant_space_t *s)
{
    int64_t n = 1;
    for (int a = 0; a < s->n_slab; a++) {
        n *= s->slab[a].n;
    }
    return n;
}

/* The ways of dynquant.c, the fastest first. */
typedef enum dynquant_way { BY_CHUNKS, BY_SHARED_SLABS, BY_SLABS } dynquant_way_t;

typedef struct dynquant_state {
    quant_space_t s;
    /* All of the data: s is box 0. Other boxes are bound by the work. */
    bound_t data;
    int64_t groups[SINTER_MAX_NDIMS];
    int n_short; /* dims whose last group is short */
    quantiser_t q;
    const dtype_bulk_t *in;
    dynquant_way_t way;
    bool column_groups; /* groups have few columns and are measured column by column */
    /* Measures elements of 16 bits where they lie; NULL: they are or become floats first. */
    quant_widen16_t *measure_16;
    bool registers; /* elements can become codes in registers */
    int64_t ahead;  /* from a column of a slab to that of the next one */
} dynquant_state_t;

/* A thread's memory: a row of elements, their quotients, and what is known about their groups, or
 * their columns where groups have few columns. */
typedef struct dynquant_scratch {
    float *x, *y;
    const float *row; /* the last one that was measured */
    group_values_t m;
} dynquant_scratch_t;
size_t dynquant_carve(unsigned char *base, const quantiser_t *q, dynquant_scratch_t *m);

/* Extremes that a slab has: `at` says where it lies, at->n how many groups a row of it has. */
int64_t dynquant_extremes(const dynquant_state_t *st, const quant_span_t *at);
/* The first walk over pieces begin..end - 1 of a slab, the scales, and the second walk. */
void dynquant_measure(const dynquant_state_t *st, const quant_span_t *at, int64_t begin,
                      int64_t end, dynquant_scratch_t *m);
void dynquant_derive(const dynquant_state_t *st, const quant_span_t *at, bool store,
                     dynquant_scratch_t *m);
/* After the second walk: the scales of groups that are made from their codes. */
void dynquant_refit(const dynquant_state_t *st, const quant_span_t *at, dynquant_scratch_t *m);
void dynquant_encode(const dynquant_state_t *st, const quant_span_t *at, int64_t begin, int64_t end,
                     dynquant_scratch_t *m);

/* The state for another box than the first one. */
void dynquant_bind_box(const dynquant_state_t *all, unsigned box, dynquant_state_t *part);

/* The arguments of dtype_bulk_t.quantise that stay the same in an execute. */
dtype_blocks_t dynquant_blocks(const dynquant_state_t *st);
/* True if `elements` elements can be a chunk: they are whole blocks of whole groups, and the zero
 * points of those are whole bytes. */
bool dynquant_is_chunk(const dtype_blocks_t *b, int64_t elements);

/* Whether a row is floats in memory. */
static inline bool dynquant_are_floats(const quant_space_t *s)
{
    return s->in.dtype == sinter_f32 && s->column.in == 1 &&
           (uintptr_t)s->in.data % sizeof(float) == 0;
}

void dynquant_work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                   const worker_t *w);

#endif
