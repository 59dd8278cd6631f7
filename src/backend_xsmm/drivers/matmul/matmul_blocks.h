/* Matmul of many rows in integers: what surrounds the micro-kernels of
 * ukernels/matmul_blocks.h. The functions are in matmul_integers.c. */
#ifndef SINTER_SRC_KERNELS_MATMUL_BLOCKS_H
#define SINTER_SRC_KERNELS_MATMUL_BLOCKS_H

#include "backend_xsmm/drivers/common/products.h"
#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/matmul_blocks.h"
#include "backend_xsmm/ukernels/tile.h"

/* The image of a convolution as bytes, [batch][place]..[channel]: elements of A, and what stands in
 * for those that are missing. */
typedef struct blocks_image {
    bool on;
    uint8_t flip;                     /* what makes codes bytes as products want them */
    int64_t bytes;                    /* of all */
    int64_t least[SINTER_MAX_NDIMS];  /* by spatial dim: the element of place 0, */
    int64_t places[SINTER_MAX_NDIMS]; /* and how many there are */
    int64_t apart[SINTER_MAX_NDIMS];  /* bytes between places: batch, then spatial dims */
    int64_t run;                      /* elements of K that follow one another */
} blocks_image_t;

/* One execute. */
typedef struct blocks_state {
    /* Elements of a block, 0: not for integers; of blocks processed together; of those whose
     * coefficients are loaded together. */
    int block, k, span;
    const char *why;     /* why not for integers, where the kernel could have been; NULL */
    float steps, offset; /* w = value * steps - offset */
    bool words;          /* factors are words, else bytes */
    bool folded;         /* values are less their zero points: z is zero */
    bool shifted, floats, nibbles, six; /* as in blocks_b_t */
    bool direct; /* codes need no detour by floats: those of 4 bits become bytes by the table */
    int8_t table[16];
    const uint8_t *order; /* of the elements of A, as in blocks_form_t */
    bool codes, own;      /* A is codes; with zero points that are not one for all */
    float a_steps, a_bias;
    int64_t pieces, mats, rows; /* of K, each of st->k; rows of each matrix, whole heights */
    bool room;                  /* there is memory for all of A */
    bool once;                  /* A is quantised once, for all threads and panels */
    bool left;                  /* the step before has done so already, for the same A */
    blocks_image_t image;       /* A is gathered from it, */
    bool long_rows;             /* in long rows, */
    bool in_place;              /* which meet tiles where these lie */
    int strip;                  /* columns of B that are multiplied by one call */
} blocks_state_t;

/* All of A, or the image, in memory that threads share. */
typedef struct blocks_whole {
    limb_rows_t a; /* [piece][matrix][row]... */
    bool *usable;  /* [piece][matrix][row / MM_HEIGHT] */
    uint8_t *image;
} blocks_whole_t;

typedef struct blocks_buffers {
    limb_rows_t a;
    blocks_b_t b;
    float *zp;      /* as in memory, [strip][block][column], as all coefficients of b are */
    bool *fits;     /* [strip]: whether its coefficients are for integers */
    int32_t factor; /* for start */
} blocks_buffers_t;

struct matmul_config;
struct matmul_state;
struct matmul_task;

/* self may be NULL: why a step cannot have products of integers at all. */
const char *blocks_refuse(const kernel_t *self, const problem_t *p);
/* What a code is multiplied with to be an integer; 0: none of 8 bits. */
float blocks_steps(sinter_data_type_t type);
/* Whether A is codes of integers. */
bool blocks_of_codes(const problem_t *p);
/* Whether the factors of an arithmetic are words there, else bytes. */
bool blocks_in_words(const problem_t *p, const blocks_table_t *table, integers_t kind);
/* st->blocks, from the rest of the state. */
void blocks_bind(const struct matmul_config *c, struct matmul_state *st);
/* Bytes of a row of A. */
int blocks_row(const blocks_state_t *st);
/* What blocks_quantise makes of the A of two steps is the same, if A is. */
bool blocks_alike(const struct matmul_config *a, const blocks_state_t *a_blocks,
                  const struct matmul_config *b, const blocks_state_t *b_blocks);
/* Bytes of shared memory at base (NULL: only counts). */
size_t blocks_share(const struct matmul_config *c, const blocks_state_t *st, unsigned char *base,
                    blocks_whole_t *out);
/* This thread's part of A. */
void blocks_quantise(struct matmul_task *t, int tid, int nth);
/* Carves from base (NULL: only counts) on. */
void blocks_buffers(const struct matmul_config *c, unsigned char *base, size_t *at,
                    blocks_buffers_t *out);
/* Adds the product to the task's sums. */
void blocks_panel(struct matmul_task *t);

/* ---- convolution: matmul_image.c ------------------------------------------------------------- */

/* st->image, from the rest of the states, where A is codes. False: it is too large. */
bool image_bind(const struct matmul_config *c, const struct matmul_state *all, blocks_state_t *st);
/* The one scale and the one zero point of the image as bytes are. False: they are not for integers,
 * or no byte is the zero point. */
bool image_coefs(const struct matmul_task *t, float *scale, float *zp);
/* This thread's part of the image. */
void image_make(const struct matmul_task *t, int tid, int nth);
/* kn elements from k on of the task's rows, at most MM_HEIGHT of them. */
void image_gather(struct matmul_task *t, int64_t k, int kn, const limb_rows_t *to);

#endif
