/* How well a model on one device predicts a text, as llama.cpp's own program for perplexity does,
 * but with any cache type:
 *
 *   perplexity MODEL DEVICE THREADS CACHE_TYPE TEXT_FILE CHUNKS
 *
 * The text is cut into chunks of 512 tokens. Each begins with the model's first token where it has
 * one. Printed is, for each token in the second half of each chunk, -log of its probability: the
 * mean is the log of the perplexity. For DEVICE see host.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "host.h"

enum { CHUNK = 512 };

/* -log of the probability of a token. */
static double surprise(const float *logits, int vocabulary, llama_token token)
{
    double most = logits[0], sum = 0;
    for (int i = 1; i < vocabulary; i++) {
        most = logits[i] > most ? logits[i] : most;
    }
    for (int i = 0; i < vocabulary; i++) {
        sum += exp(logits[i] - most);
    }
    return log(sum) + most - logits[token];
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fail("six arguments are needed");
    }
    struct llama_model *model = open_model(argv[1], argv[2], ALL_LAYERS, false, false);
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    const int vocabulary = llama_vocab_n_tokens(vocab), chunks = atoi(argv[6]);
    llama_token *text;
    if (read_tokens(vocab, argv[5], &text) < chunks * CHUNK) {
        fail("the text is too short");
    }
    const context_options_t options = {
        .tokens = CHUNK, .threads = atoi(argv[3]), .cache_type = argv[4]};
    struct llama_context *context = open_context(model, &options);
    struct llama_batch batch = llama_batch_init(CHUNK, 0, 1);
    for (const llama_token *chunk = text; chunk < text + chunks * CHUNK; chunk += CHUNK) {
        llama_memory_clear(llama_get_memory(context), true);
        batch.n_tokens = CHUNK;
        for (int i = 0; i < CHUNK; i++) {
            batch.token[i] = i == 0 && llama_vocab_get_add_bos(vocab) ? text[0] : chunk[i];
            batch.pos[i] = i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = i >= CHUNK / 2;
        }
        if (llama_decode(context, batch)) {
            fail("decode failed");
        }
        for (int i = CHUNK / 2; i < CHUNK - 1; i++) {
            printf("%.6f\n", surprise(llama_get_logits_ith(context, i), vocabulary, chunk[i + 1]));
        }
    }
    llama_batch_free(batch);
    free(text);
    llama_free(context);
    llama_model_free(model);
    return 0;
}
