/* The recurrence of LinearAttention for some tokens of one head at a time.
 *
 * The state S has a row for each element of a key and a column for each element of a value. With
 * the decay D_c = diag(exp(decay)) of token c, a key k_c and a value v_c:
 *
 *   w_c = v_c, or with the delta rule beta_c (v_c - k_c D_c S_{c-1})
 *   S_c = D_c S_{c-1} + k_c w_c        o_c = scale q_c S_c
 *
 * With a bonus u, the result is that of the state before the token, and of the token by itself;
 * with vectors a and b, a part of rank 1 is added to the decay:
 *
 *   o_c = scale (q_c S_{c-1} + (q_c diag(u) k_c) w_c)
 *   e_c = a_c S_{c-1}                  S_c = D_c S_{c-1} + b_c e_c + k_c w_c
 *
 * A chunk of tokens meets the state S at its beginning once. G_c is the product of the decays up to
 * token c, and k_{m,c} is k_m with the decays of the tokens behind m up to c:
 *
 *   w_c = beta_c (v_c - (G_c k_c) S - sum over m < c of  (k_{m,c} k_c) w_m)
 *   o_c = scale ((G_c q_c) S + sum over m <= c of  (k_{m,c} q_c) w_m)
 *   S'  = G_last S + sum over m of  k_{m,last} w_m
 *
 * A bonus changes which decays q_c meets, to those before token c, and k_{c,c} in o_c to diag(u)
 * k_c. With a and b, each sum over m has the terms of b_m e_m beside those of k_m w_m, and
 *
 *   e_c = (G_{c-1} a_c) S + sum over m < c of  (k_{m,c-1} a_c) w_m + (b_{m,c-1} a_c) e_m
 *
 * (Yang et al., "Gated Delta Networks", 2024, have the same with longer chunks and products of
 * matrices.) So the state is read twice and written once for all tokens of a chunk, and nothing of
 * it is divided by a decay. */
#ifndef SINTER_SRC_UKERNELS_LINEAR_ATTENTION_H
#define SINTER_SRC_UKERNELS_LINEAR_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/features.h"

enum { LINEAR_TOKENS = 4 }; /* of a chunk, at most */
/* Rows of a chunk's vectors of up to LINEAR_KEYS elements are LINEAR_LD floats apart, which does
 * not divide the size of a cache's way. Longer ones are as far apart as the chunk says. */
enum { LINEAR_KEYS = 256, LINEAR_LD = 272 };

typedef enum linear_kind {
    LINEAR_PLAIN,
    LINEAR_BONUS,
    LINEAR_DELTA,
    LINEAR_LOW_RANK /* a and b */
} linear_kind_t;

/* The vectors of the tokens of a chunk. */
typedef struct linear_tokens {
    const float *k[LINEAR_TOKENS], *q[LINEAR_TOKENS];
    const float *a[LINEAR_TOKENS], *b[LINEAR_TOKENS]; /* with LINEAR_LOW_RANK */
    const float *bonus;                               /* with LINEAR_BONUS */
    const float *decay;                               /* what multiplies the state: [token][ld] */
    float scale;
} linear_tokens_t;

/* What a chunk does to every column of the state. Vectors over the elements of a key, `ld` floats
 * apart, which are zero behind the last element up to the next multiple of 16. */
typedef struct linear_chunk {
    int tokens, keys; /* keys: elements of a key */
    linear_kind_t kind;
    int64_t ld;
    float *decayed_keys;    /* G_c k_c, or G_{c-1} a_c */
    float *decayed_queries; /* scale G_c q_c, or with a bonus scale G_{c-1} q_c */
    float *last_keys;       /* k_{c,last} */
    float *last_b;          /* b_{c,last} */
    float *last_decay;      /* G_last */
    float beta[LINEAR_TOKENS];
    float keys_met[LINEAR_TOKENS][LINEAR_TOKENS];    /* [c][m]: k_{m,c} k_c, or k_{m,c-1} a_c */
    float queries_met[LINEAR_TOKENS][LINEAR_TOKENS]; /* [c][m]: scale k_{m,c} q_c */
    float b_met[LINEAR_TOKENS][LINEAR_TOKENS];       /* [c][m]: b_{m,c-1} a_c */
    float b_queried[LINEAR_TOKENS][LINEAR_TOKENS];   /* [c][m]: scale b_{m,c} q_c */
} linear_chunk_t;

/* Columns of the state, before and after the chunk, in memory that is the same or apart, and their
 * values and results for each token. */
typedef struct linear_block {
    int columns;
    const float *from;
    float *to;
    /* From key to key for the columns kernel, from column to column for the rows kernel. */
    int64_t from_ld, to_ld;
    const float *v;
    float *out;
    int64_t v_ld, out_ld; /* from token to token */
} linear_block_t;

typedef struct linear_table {
    /* Fills the vectors and the products of the chunk, whose other fields are set. */
    void (*prepare)(linear_chunk_t *c, const linear_tokens_t *in);
    /* Columns follow one another: element (key i, column j) is from[i * from_ld + j]. */
    void (*columns)(const linear_chunk_t *c, const linear_block_t *b);
    /* Elements of a column follow one another: from[j * from_ld + i]. One token. */
    void (*rows)(const linear_chunk_t *c, const linear_block_t *b);
} linear_table_t;
/* `rows` with AVX2. */
void linear_rows_avx2(const linear_chunk_t *c, const linear_block_t *b);
/* The best table for a set of features. */
const linear_table_t *linear_table(features_t features);

#endif
