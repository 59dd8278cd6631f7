/* What the programs of this folder share: a model of llama.cpp on devices of ggml. */
#ifndef TESTS_GGML_HOST_H
#define TESTS_GGML_HOST_H

#include "llama.h"

/* Prints what is wrong and ends the program. */
void fail(const char *what);

/* Loads the backends of ggml, among them the one of GGML_BACKEND_PATH, and the model. DEVICES is
 * "cpu", the name of a device, or addresses of rpc servers with commas between them, "rpc:" before
 * the first: the layers are split evenly over these. */
struct llama_model *open_model(const char *path, const char *devices);

/* A context for `tokens` tokens with flash attention and this type of cache. */
struct llama_context *open_context(struct llama_model *model, int tokens, int threads,
                                   const char *cache_type);

/* The tokens of a text file, at least one; the caller frees them. */
int read_tokens(const struct llama_vocab *vocab, const char *path, llama_token **tokens);

#endif
