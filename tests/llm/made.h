/* Models that a test makes: GGUF files of random numbers, in memory. */
#ifndef SINTER_TESTS_LLM_MADE_H
#define SINTER_TESTS_LLM_MADE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MADE_LAYERS = 2, MADE_TENSORS = 5 + 9 * MADE_LAYERS, MADE_TOKENS = 300 };

typedef struct made_sizes {
    int hidden, heads, kv_heads, inner, vocabulary, context;
    int types[9]; /* of GGUF: weights of a layer in the engine's order, embedding, output */
    /* Keys that a file may lack, where these are not 0. */
    int head, rotated;      /* key_length, rope.dimension_count */
    float scaling;          /* rope.scaling.factor */
    bool divisors;          /* rope_freqs.weight */
    const char *key, *text; /* a field more: a string, or 1 where text is NULL */
    const char *tensor;     /* a vector more */
} made_sizes_t;

/* A tensor with the numbers that its bytes mean. */
typedef struct made_tensor {
    char name[32];
    int n, k, type;
    double *numbers;
    size_t at; /* of its type in the file, behind the dims */
} made_tensor_t;

typedef struct made {
    made_sizes_t sizes;
    made_tensor_t tensors[MADE_TENSORS];
    size_t n_tensors;
    uint8_t *file;
    size_t bytes, head; /* of all; of what stands before the data */
} made_t;

/* The size of a head, and how many of its elements are rotated. */
int made_head(const made_sizes_t *sizes);
int made_rotated(const made_sizes_t *sizes);
/* Makes a model. Free it with made_free. */
void made_model(made_t *made, const made_sizes_t *sizes, uint64_t seed);
void made_free(made_t *made);
const made_tensor_t *made_find(const made_t *made, const char *name);

#endif
