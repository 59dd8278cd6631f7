/* One execute of the matmul kernels for few rows: what selection and geometry (matmul_rows.c)
 * leave to the work (matmul_rows_work.c). */
#ifndef SINTER_SRC_KERNELS_MATMUL_ROWS_TASK_H
#define SINTER_SRC_KERNELS_MATMUL_ROWS_TASK_H

#include "backend_xsmm/drivers/matmul/matmul.h"
#include "backend_xsmm/ukernels/codes.h"
#include "backend_xsmm/ukernels/matmul_rows.h"

enum { ROWS_COEFS = MM_K / 16 }; /* most quads in MM_K elements */

typedef struct rows_config {
    matmul_config_t panel;    /* first: see matmul.h */
    const codes_type_t *type; /* of B; NULL: not in integers */
    const codes_table_t *ints;
    integers_t kind; /* of products in integers */
    int limbs;
    const rows_floats_t *floats; /* NULL: not */
    features_t features;
} rows_config_t;

/* The ways of an execute. */
typedef enum rows_way { IN_EXACT, IN_TWO_LIMBS, IN_ONE_LIMB, IN_FLOATS, BY_PANELS } rows_way_t;

static inline bool in_integers(rows_way_t way)
{
    return way < IN_FLOATS;
}

/* How scales or zero points of B reach the micro-kernels. */
typedef struct rows_units {
    int64_t groups, times;      /* of a line; units that the value of each becomes */
    int64_t units;              /* of a line: the last group may become fewer */
    int step, shift;            /* as in code_coefs_t */
    bool in_place;              /* in integers: the micro-kernels read the values where they lie */
    int64_t next_step;          /* as in code_coefs_t; 0: the values of all lines are not one run */
    int32_t pick[WIDEST_CHUNK]; /* in floats: [class][lane] */
} rows_units_t;

/* Offsets of B, [line][group]: a matrix of floats of its own, which is multiplied with the sums of
 * A's rows over the groups of K. In integers rows_state_t.zp says how they are read. */
typedef struct rows_offsets {
    int64_t groups, group;       /* of a line, 0: B has no offsets; elements of one */
    const rows_floats_t *floats; /* decodes them, in floats */
    bool copied;                 /* they are copied as f32 first */
    int64_t chunks;              /* of a line, for `floats` */
} rows_offsets_t;

typedef struct rows_state {
    matmul_state_t panel; /* first: see matmul.h */
    rows_way_t way;
    int elems;                  /* of a chunk */
    int64_t chunks, bytes;      /* of a line */
    int64_t units;              /* room for the units of a line */
    int64_t ahead, ahead_lines; /* bytes, and lines that they are */
    bool in_order;              /* as in int_codes_t */
    int64_t gathered;           /* bytes of a line copied from its blocks; 0: read in place */
    rows_units_t scale, zp;
    rows_offsets_t plus;
    /* What the step before has left: those of its shares that had items have the same A as integers
     * in the same place. 0 shares: nothing. */
    int left_shares;
    int64_t left_items;
    unsigned char table[16]; /* of 4-bit types: bytes of codes */
    float values[16];        /* and what they stand for */
} rows_state_t;

/* One thread's: A as the micro-kernels want it, and coefficients of four lines. */
typedef struct rows_buffers {
    limbs_t *codes;      /* [chunk][row] */
    float *q;            /* see rows_floats_t */
    float *raw, *raw_zp; /* [line][units] */
    float *scale;        /* [unit][line] */
    int32_t *zp;
    unsigned char *lines; /* of codes that lie in blocks: four */
    bool *usable;         /* what load_rows has found: codes or q are of use */
    float *sums;          /* [row][units]: of A, by group of the offsets */
    float *q_sums;        /* the same as the decoder of offsets wants it */
} rows_buffers_t;

/* Carves base (NULL: only counts); returns the bytes. */
size_t rows_buffers(const rows_state_t *st, unsigned char *base, rows_buffers_t *out);

void matmul_rows_work(const kernel_t *self, const problem_t *p, const void *config,
                      const void *state, const worker_t *w);

#endif
