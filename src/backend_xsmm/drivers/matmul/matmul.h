/* Matmul, what setup (compile), choose (execute, all dims known) and work (threads) of its kernels
 * share.
 *
 * Rows are the M rows of all batches that share one B: a weight matrix meets the rows of every
 * batch at once. A work item is one matrix B, a panel of its columns and a block of rows:
 *
 *   acc[rows][panel] = 0
 *   for each K block:  B[K block][panel] is loaded;  for some rows at a time: A[some rows][K
 *   block] is loaded, acc += A B
 *   post chain, row by row; then the quantising tail, if any, over the rows of a group
 *
 * so that B lies in L2 and the rows of A in L1. Where all rows are loaded at a time, B is loaded
 * strip by strip instead, and lies in L1. Of B in tiles a strip has 16 columns, and few rows of A
 * are loaded once for all panels: then a strip is multiplied with all of K before the next one.
 *
 * Loading decodes, dequantises and transposes into f32 (then bf16 where that is the arithmetic);
 * a code of B is loaded once for each block of rows, a code of A once for each panel. */
#ifndef SINTER_SRC_KERNELS_MATMUL_H
#define SINTER_SRC_KERNELS_MATMUL_H

#include "backend_xsmm/drivers/common/matrices.h"
#include "backend_xsmm/drivers/common/products.h"
#include "backend_xsmm/drivers/common/quant_tail.h"
#include "backend_xsmm/drivers/common/tiled.h"
#include "backend_xsmm/drivers/matmul/matmul_blocks.h"
#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "backend_xsmm/ukernels/tile.h"
#include "backend_xsmm/ukernels/xsmm.h"
#include "numeric/quant_rows.h"

enum {
    MM_ROWS = 512,                  /* most rows of a block */
    MM_FEW = 16,                    /* the same of kernels for few rows */
    MM_UNIT = 8,                    /* rows that blocks of a convolution are multiples of */
    MM_HEIGHT = 32,                 /* most rows of one product */
    MM_PANEL = TAIL_MATMUL_COLUMNS, /* most columns of a panel */
    MM_TALL = 48,    /* most rows of A that are loaded: whole blocks of own products */
    MM_TALLEST = 96, /* the same of patches */
    MM_K = 256,      /* most K of a block */
    /* Products that are added one after the other. These sums are added to one another: were all
     * products one chain, the error would grow with K. */
    MM_CHAIN = 1024,
    MM_GRAIN = 32, /* K of one product; a block is a multiple of it, zero padded */
    MM_LDA = TILES_LDX,
    MM_LDB = MM_PANEL + 16,
    MM_LADDER = 13,      /* heights with JIT kernels */
    MM_STRIP = 64 * 128, /* most elements of a B strip: 32 KiB */
    MM_WIDTHS = 3,
    /* The largest zero point in integers: sums stay below 2^31, and those of codes and zero points
     * of both sides below 2^24. */
    MATMUL_ZP_MOST = 255
};

/* n places along one dim of a matrix, from one on, `step` apart. */
typedef struct matmul_places {
    int64_t from;
    int n, step;
} matmul_places_t;

typedef struct matmul_config {
    const tile_table_t *tile;
    const eltwise_table_t *fn;
    const quant_rows_t *quant;
    bool bf16, jit;
    const blocks_table_t *blocks; /* NULL: floats only */
    integers_t kind;              /* of products in integers */
    bool words;                   /* whose factors are words, else bytes */
    bool image;                   /* and rows of A are gathered from bytes */
    int rows;                     /* of the buffers, a multiple of a height */
    int tall;                     /* rows of A that are loaded at a time */
    bool chained;                 /* K may be longer than MM_CHAIN */
    int widest; /* the widest strip worth having for this N, an index into matmul_widths */
    xs_kernel_t kernel[MM_WIDTHS][MM_LADDER];
    int columns[MM_WIDTHS]; /* of one call of these kernels: a strip, or a part of it */
} matmul_config_t;

extern const int matmul_ladder[MM_LADDER], matmul_widths[MM_WIDTHS];

/* Which height of the ladder up to MM_HEIGHT rows are computed at. */
static inline int matmul_height(int rows)
{
    int h = 0;
    while (matmul_ladder[h] < rows) {
        h++;
    }
    return h;
}

/* Along a spatial dim, tap `tap` of result o meets element (o * times + tap * step + base) / over
 * of the image, if that is an integer. */
typedef struct patch_dim {
    int64_t in, kernel, times, over, step, base;
} patch_dim_t;

/* Of a convolution: where patches lie in the image. */
typedef struct patches {
    bool on;                /* this is one */
    int n, first, channel;  /* spatial dims of the image, the first one, the dim of channels */
    int64_t taps, channels; /* of a window; of a group */
    int64_t kernel[SINTER_MAX_NDIMS];
    patch_dim_t dim[SINTER_MAX_NDIMS];
} patches_t;

/* Rows that go to experts: matmul_experts.c. */
typedef struct experts {
    const bound_t *ids; /* of the expert of each row; NULL: a matrix B is for all rows of it */
    int64_t n;          /* experts */
    size_t at;          /* where shared memory has expert_rows_t */
    /* How many rows A has, each of which may go to several experts; how much the number of a row
     * grows with each step along a dim of rows. */
    int64_t rows_of_a, step[SINTER_MAX_NDIMS];
    /* Rows of A become integers once, in shared memory from here on; 0 bytes: they do not. */
    size_t row_bytes, integers_at;
    int64_t first_row; /* which lies there first */
} experts_t;

/* Rows by expert. */
typedef struct expert_rows {
    int64_t *first; /* place in `order` of the first row of each expert, and of the end of all */
    int64_t *block; /* blocks of rows that experts before it have, and all have */
    int64_t *order;
} expert_rows_t;

/* A share's part of the experts. Each expert's columns are so many units. Of the experts with one
 * row each it has as many units as any other share, of those with two rows, too, and so on: then
 * all read as much and multiply as much, whatever the one takes in comparison with the other. */
typedef struct experts_walk {
    expert_rows_t rows;
    int64_t experts, units;
    int64_t of_rows;    /* the rows of each expert at hand; 0: none yet */
    int64_t begin, end; /* the share's units of these experts, */
    int64_t before;     /* and those of the experts before the next one */
    int64_t more;       /* the first share that is to have a unit more where they are not even */
    int64_t next;       /* the expert to look at */
    int64_t expert, from, to; /* what experts_next has found: units of an expert */
} experts_walk_t;

typedef struct matmul_state {
    matrices_t a, b;
    tiled_b_t tiled;
    patches_t patches;
    experts_t experts;
    chain_bound_t post;
    quant_tail_t tail; /* if the step has one */
    int nb;            /* batch dims */
    int64_t M, N, K, rows;
    int n_row, row_dim[SINTER_MAX_NDIMS]; /* output dims that make rows, M last */
    int64_t row_extent[SINTER_MAX_NDIMS];
    int n_mat, mat_dim[SINTER_MAX_NDIMS]; /* batch dims that B has */
    int64_t mat_extent[SINTER_MAX_NDIMS];
    int width, strip;          /* index of the strip's width in matmul_widths, and the width */
    int piece;                 /* columns of B that are loaded at a time: a strip or a panel */
    int panel, block, k_block; /* columns of a panel; rows of a block of A, and of B */
    bool whole;                /* A is loaded once, into shared memory */
    bool left;                 /* and the step before has done that */
    int64_t n_panels, n_blocks, mats, items;
    blocks_state_t blocks;
    bool shares_bytes; /* results of several shares may lie in one byte */
} matmul_state_t;

/* One thread's buffers inside its scratch; bf16 ones only for the bf16 kernel. */
typedef struct matmul_buffers {
    float *a, *acc;
    /* [MM_K][columns of a call], for one call after the other; strips of tiles in the same way;
     * where it becomes pairs of bf16, [MM_K][MM_LDB]. */
    float *b;
    float *whole_a; /* NULL, or all of A's rows: [K block][rows of buffers][MM_LDA] */
    float *chains;  /* as acc: the sums of complete chains (MM_CHAIN) */
    uint16_t *a16, *b16;
    blocks_buffers_t blocks;
    blocks_whole_t whole;
    void *chain, *tail;
} matmul_buffers_t;

/* Carves scratch (NULL: only counts); returns the bytes. */
size_t matmul_buffers(const matmul_config_t *c, const step_t *step, unsigned char *scratch,
                      matmul_buffers_t *out);

/* What a work item is, and what it is computed in. */
typedef struct matmul_task {
    const matmul_config_t *c;
    const matmul_state_t *st;
    const worker_t *worker;
    matmul_buffers_t buf;
    matrix_t b;
    int64_t idx[SINTER_MAX_NDIMS]; /* of the output; dims that choose B are set for all of it */
    int64_t mat, row0, n0;
    const int64_t *order; /* of rows, which row0 counts in; NULL: as they are */
    int rows, cols;
    bool tail;
} matmul_task_t;

/* Which of several matrices that lie in tiles is the task's B. */
static inline int64_t matmul_matrix(const matmul_task_t *t)
{
    const matrices_t *b = &t->st->b;
    return t->st->experts.ids != NULL                  ? t->mat
           : b->ndims > 2 && b->dims[b->ndims - 3] > 1 ? t->idx[t->st->nb - 1]
                                                       : 0;
}

/* The strip that a column of it lies in; but of weights of a convolution. */
static inline int64_t matmul_strip(const matmul_task_t *t, int64_t column)
{
    return matmul_matrix(t) * (t->st->N / TILES_COLUMNS) + column / TILES_COLUMNS;
}

/* For kernels that have other ways besides panels; their states begin with a matmul_state_t, their
 * configs with a matmul_config_t. */
/* most_rows: what the kernel takes if their number is not known. integers: allowed
 * (blocks_refuse still decides). NULL, or why there is no JIT kernel. */
const char *matmul_configure(const kernel_t *self, const problem_t *p, int most_rows, bool bf16,
                             bool integers, matmul_config_t *c);
/* With bf16 products where the mode allows them and there is a kernel, and integers where they
 * are not refused. */
const char *matmul_configure_best(const kernel_t *self, const problem_t *p, int most_rows,
                                  matmul_config_t *c);
/* For the report, with what matmul_configure returned. */
void matmul_note(textbuf_t *note, const kernel_t *self, const matmul_config_t *c, const char *why);
/* Scratch of each thread for panels. */
size_t matmul_share_bytes(const problem_t *p, const matmul_config_t *c);
/* Whether products of floats take B from tiles, and multiply it strip by strip. */
static inline bool matmul_is_unpacked(const matmul_config_t *c, const matmul_state_t *st)
{
    return st->tiled.table != NULL && !c->bf16;
}

/* Dims that make rows and dims that choose B; counts both. Operands, experts and the tail are
 * bound. Where the last group of rows of the tail is short, each matrix has its own: then all batch
 * dims choose B. */
sinter_status_t matmul_bind_dims(matmul_state_t *st, const bound_t *out);
/* All of st, for panels. */
sinter_status_t matmul_bind(const kernel_t *self, const problem_t *p, const matmul_config_t *c,
                            matmul_state_t *st);
/* Where B lies in tiles, panels are loaded strip by strip. After matmul_bind. */
void matmul_bind_strips(const kernel_t *self, const problem_t *p, const matmul_config_t *c,
                        matmul_state_t *st);
/* Shared memory at most, whatever the layout of B turns out to be. */
size_t matmul_shared(const matmul_config_t *c, const matmul_state_t *st);
/* The first phase of matmul_work that has something to do, as in choice_t. */
int matmul_first_phase(const matmul_state_t *st);
/* Whether this step multiplies the same rows of the same A with one matrix as the step before. */
bool matmul_same_rows(const problem_t *p, const before_t *before, const matmul_state_t *st);
/* The driver's follow, for panels. */
void matmul_follow(const problem_t *p, const before_t *before, const void *config, void *state,
                   choice_t *choice);
void matmul_add_ways(const matmul_config_t *c, matmul_state_t *st, choice_t *choice);
sinter_status_t matmul_start(const kernel_t *self, const problem_t *p, const void *config,
                             void *state);
/* The stride of B along its dim from_end as it is multiplied (1: N, 2: K), -1 if it is not
 * known. */
int64_t matmul_stride_of_b(const problem_t *p, int from_end);
/* Why a kernel that reads B straight from its codes does not: whether it has a decoder for the
 * type, and whether that is for codes with scales. */
const char *matmul_refuse_b(const problem_t *p, bool decoder, bool scaled);
/* Why a kernel for few rows does not. */
const char *matmul_refuse_rows(const problem_t *p, int most);
/* That share one B, or may do so, where they go to experts; -1: not known. */
int64_t matmul_rows_of(const problem_t *p);
/* Rows of a group of the tail, as its attribute says; 0: it says nothing, or there is no tail. */
int64_t matmul_tail_rows(const problem_t *p);
/* Whether B lies in tiles: 1 or 0; -1: only execute knows whether the constant cache has room. */
int matmul_lies_in_tiles(const problem_t *p);
/* B has neither scales nor zero points: of a step whose B lies in tiles, plain floats. */
static inline bool matmul_b_is_plain(const step_t *step)
{
    const operand_t *b = &step->p.matmul.b;
    return b->scale < 0 && b->zp < 0;
}
/* For kernels of few rows: panels of whole groups of the tail, so that shares end at the same time,
 * and one block of rows. */
void matmul_choose_panel(matmul_state_t *st, int shares);
/* Counts the items and finds out whether one thread must do them all, once the panel is chosen. */
sinter_status_t matmul_count(const step_t *step, matmul_state_t *st);
/* n rows from row0 on of matrix mat. */
void matmul_seek_rows(matmul_task_t *t, int64_t mat, int64_t row0, int n);
/* t->b, as far as it lies in tiles, becomes the matrix that matmul_matrix says. */
void matmul_seek_tiles(matmul_task_t *t);
/* The items of a phase, and item i. */
/* The items of a share. */
typedef struct matmul_items {
    int64_t next, end;   /* items; of experts those of a part of one expert, */
    int64_t first;       /* whose first block of rows this is */
    experts_walk_t walk; /* of experts */
} matmul_items_t;

matmul_items_t matmul_items(const matmul_task_t *t);
/* The number of the share's next item, for matmul_seek; false: there is none. */
bool matmul_next(const matmul_task_t *t, matmul_items_t *items, int64_t *item);
void matmul_seek(matmul_task_t *t, int64_t i);
/* The matrix that row r of the task is row m of; returns how many more of the task's rows, with
 * it, are. */
int matmul_stretch(matmul_task_t *t, int r, matrix_t *a, int64_t *m);
/* Puts the index of row r of the task, and gives how many rows from it on differ in M alone. */
int64_t matmul_seek_row(matmul_task_t *t, int r);
/* A[rows][k..k + kn) into buf.a, at most MM_TALL rows. Rows up to the next height and columns up to
 * MM_GRAIN are zero. */
void matmul_load_a(matmul_task_t *t, int64_t k, int kn);
/* The task's rows of A into the memory for all of A, a share of the K blocks. */
void matmul_load_whole(matmul_task_t *t, int tid, int nth);
/* The scales or the zero points at a grid of elements of an operand, in rows of ld floats, of
 * which those behind the last column become zero. Groups are no smaller than steps; at most
 * MM_HEIGHT rows, BLOCKS_STRIP columns. */
void matmul_load_coefs(const matmul_task_t *t, const groups_t *of, const matmul_places_t *rows,
                       const matmul_places_t *columns, float *to, int ld);
/* Whether a scale of A leaves products with sums of integers in range. */
bool matmul_scale_fits(float scale);
/* Whether all are numbers of at most this magnitude. */
bool matmul_within(const float *x, int n, float most);
/* Whether all sums of the panel are finite. */
bool matmul_sums_fit(const matmul_task_t *t);
/* Codes of A[rows][k..k + kn) into buf.a, at most MM_HEIGHT rows, and their scales and zero
 * points (0 if there are none) for every `step` of them, in rows of ld floats. False: those are
 * not for integers. */
bool matmul_load_codes(matmul_task_t *t, int64_t k, int kn, int step, float *scale, float *zp,
                       int ld);
/* Bytes that a code of A less its zero point takes as a signed integer, 1 or 2. */
int matmul_code_limbs(const problem_t *p);
/* The product of kn elements of K and n columns of the panel from c on, in floats, is added to
 * buf.acc. buf.a and buf.b are overwritten. */
void matmul_add(matmul_task_t *t, int64_t k, int64_t kn, int c, int n);
/* buf.acc = the product, by panels. */
void matmul_panel(matmul_task_t *t);
/* buf.acc through the post chain and the tail to the outputs. */
void matmul_finish(matmul_task_t *t);
void matmul_work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w);

/* ---- experts: matmul_experts.c --------------------------------------------------------------- */

/* The driver's check and checked. */
sinter_status_t matmul_check(const problem_t *p, const void *state);
int matmul_checked(const step_t *step, int i);
/* st->experts, once B is bound. */
void experts_bind(const problem_t *p, matmul_state_t *st);
/* Adds what sorting needs to the shared memory. */
void experts_reserve(matmul_state_t *st, choice_t *choice);
/* Instead of it, for a step with the same rows and experts as `first`, which sorts them. */
void experts_share(const matmul_state_t *first, matmul_state_t *st);
/* Phase 0, of one share: rows from row0 to end. */
void experts_sort(const matmul_state_t *st, const worker_t *w, int64_t row0, int64_t end);
expert_rows_t experts_rows(const matmul_state_t *st, const worker_t *w);
experts_walk_t experts_begin(const matmul_state_t *st, const worker_t *w, int64_t units);
/* False: the share has all its part behind it. */
bool experts_next(experts_walk_t *walk, const worker_t *w);
/* The number of the row of A that is row r of the rows by number (not by expert). */
int64_t experts_row_of_a(const matmul_state_t *st, int64_t r);
/* A block of the expert's rows, from row0 of the sorted ones on, before `end`. */
void experts_seek_rows(matmul_task_t *t, int64_t expert, int64_t row0, int64_t end);
/* As matmul_seek. Panels of one block of rows follow one another. */
void experts_seek(matmul_task_t *t, int64_t i);

/* ---- convolution: matmul_patches.c ----------------------------------------------------------- */

/* What weights are loaded as: values, codes, or codes less their zero points. */
typedef enum patches_load { PATCHES_VALUES, PATCHES_CODES, PATCHES_LESS_ZPS } patches_load_t;

/* Dims, and all of A. B is bound. */
sinter_status_t patches_bind(const problem_t *problem, matmul_state_t *st);
/* Makes the channels the last dim of a chain over the output. */
void patches_turn(const conv_params_t *c, chain_bound_t *chain);
/* A[first..first + n)[k..k + kn) into buf.a. */
void patches_load(matmul_task_t *t, int first, int n, int64_t k, int kn);
/* The matrix [channels of the group, results' channels] of one tap. */
matrix_t patches_weights(const matmul_state_t *st, int64_t group, int64_t tap);
/* Rows at.row.. of K by columns of the task's group, as tile_table's load does. */
void patches_load_b(const matmul_task_t *t, patches_load_t what, rect_t at, float *to, int64_t ld,
                    int pad_rows, int pad_columns);
/* Why weights of a convolution are not one matrix in tiles. */
const char *patches_refuse_tiles(const plan_t *plan, const step_t *step);
/* Why exact products of codes are not for this convolution. */
const char *patches_refuse_integers(const matmul_state_t *st);

#endif
