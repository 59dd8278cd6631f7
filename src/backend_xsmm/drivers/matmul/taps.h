/* Convolution in integers: what surrounds the micro-kernels of ukernels/matmul_taps.h. The
 * functions are in matmul_taps.c. */
#ifndef SINTER_SRC_KERNELS_TAPS_H
#define SINTER_SRC_KERNELS_TAPS_H

#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/matmul_taps.h"

/* One execute. K is cut into `parts` pieces for each tap, and processed in `blocks` blocks, each
 * of per_block pieces. */
typedef struct taps_state {
    bool on;
    const char *why;                 /* why not, where the kernel could have been; NULL */
    int wide, each;                  /* bytes of an element, elements of a dword */
    uint8_t flip_a, flip_w;          /* what makes codes bytes */
    float bias;                      /* of unsigned bytes of A: a' = a + bias */
    int64_t pixels, pixel;           /* of the image: how many, and bytes of one */
    int64_t apart[SINTER_MAX_NDIMS]; /* pixels from element to element of a dim of the image */
    int64_t tap, part;               /* dwords of a tap and of one of its pieces */
    int64_t parts, pieces, per_block, blocks;
    int64_t units, columns; /* of B: packed together, and columns of all of them */
    int rows;               /* processed together */
    bool codes;             /* the micro-kernel stores the results' codes */
    bool packed;            /* the constant cache has B and its sums, */
    unsigned char *given;   /* here; NULL while the caller asks for sizes */
} taps_state_t;

/* What threads share. */
typedef struct taps_shared {
    uint8_t *padding, *image; /* a pixel outside of the image; [pixel] */
    int8_t *b;                /* [group][strip][dword][column][4] */
    int32_t *sum;             /* of bytes, [group][block][column] */
    bool *usable;             /* [group][unit] */
} taps_shared_t;

typedef struct taps_buffers {
    const uint8_t **at; /* addresses, as in taps_product_t */
    int64_t *pixel;     /* of the rows of one tap */
    float *scale;       /* of the columns of a panel */
} taps_buffers_t;

struct matmul_config;
struct matmul_state;
struct matmul_task;

/* Whether factors are words. */
bool taps_in_words(const problem_t *p, bool sums_bytes);
/* st->taps, from the rest of the state. packed: the weights of the constant cache, if there they
 * are; NULL: none. */
void taps_bind(const struct matmul_config *c, const bound_t *packed, int shares,
               struct matmul_state *st);
/* Bytes of shared memory at base (NULL: only counts). */
size_t taps_share(const struct matmul_config *c, const struct matmul_state *st, unsigned char *base,
                  taps_shared_t *out);
/* Carves from base (NULL: only counts) on. */
void taps_buffers(unsigned char *base, size_t *at, taps_buffers_t *out);
/* A share of both phases: encoding and packing, then products. */
void taps_work(struct matmul_task *t);

#endif
