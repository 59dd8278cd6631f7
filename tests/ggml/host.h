/* What the programs of this folder share: a model of llama.cpp on devices of ggml. */
#ifndef TESTS_GGML_HOST_H
#define TESTS_GGML_HOST_H

#include <stdbool.h>

#include "llama.h"

/* Prints what is wrong and ends the program. */
void fail(const char *what);

/* Loads the backends of ggml, among them the one of GGML_BACKEND_PATH, and the model. DEVICES is
 * "cpu", the name of a device, or addresses of rpc servers with commas between them, "rpc:" before
 * the first: the layers are split evenly over these. With "+cpu-moe" at the end the experts are the
 * CPU's, wherever the layers are. As many layers as are wanted go to the
 * devices, the last ones of the model.
 *
 * With `repack` the host may repack the weights of its own layers for faster kernels. They round in
 * another way, and the host has them only where a model is all its own, so tests of results do
 * without.
 *
 * read: the file is read instead of mapped. */
struct llama_model *open_model(const char *path, const char *devices, int layers, bool repack,
                               bool read);

enum { ALL_LAYERS = 999 };

typedef struct context_options {
    int tokens, threads;
    /* The name of a type; "K,V": two types; before either "plain:": without flash attention, where
     * V lies transposed in the cache. */
    const char *cache_type;
    bool cache_in_host; /* in memory of the host, which computes attention then */
    int sequences;      /* each with a cache for so many tokens; 0 is one */
    bool unified;       /* they share one cache of that size */
    int taken_back;     /* the most tokens that a sequence may take back */
} context_options_t;

struct llama_context *open_context(struct llama_model *model, const context_options_t *options);

/* The tokens of a text file, at least one; the caller frees them. */
int read_tokens(const struct llama_vocab *vocab, const char *path, llama_token **tokens);

#endif
