/* Writes the logits of tokens that are given, as raw floats, one row for each token:
 *
 *   logits MODEL DEVICE THREADS CACHE_TYPE TOKENS SINGLE FILE
 *
 * The tokens are made by a formula. All but the last SINGLE ones are decoded in batches of 33, the
 * others one by one. For DEVICE see host.h. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "host.h"

enum { BATCH = 33 };

int main(int argc, char **argv)
{
    if (argc != 8) {
        fail("seven arguments are needed");
    }
    const int tokens = atoi(argv[5]), single = atoi(argv[6]);
    struct llama_model *model = open_model(argv[1], argv[2]);
    struct llama_context *context = open_context(model, tokens, atoi(argv[3]), argv[4]);
    const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
    FILE *file = fopen(argv[7], "wb");
    struct llama_batch batch = llama_batch_init(BATCH, 0, 1);
    if (!file) {
        fail("cannot write the logits");
    }
    for (int first = 0; first < tokens; first += batch.n_tokens) {
        const int left = tokens - single - first;
        batch.n_tokens = left <= 0 ? 1 : left < BATCH ? left : BATCH;
        for (int i = 0; i < batch.n_tokens; i++) {
            const int at = first + i;
            batch.token[i] = (at * 7919 + at * at * 13) % vocabulary;
            batch.pos[i] = at;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = true;
        }
        if (llama_decode(context, batch)) {
            fail("decode failed");
        }
        for (int i = 0; i < batch.n_tokens; i++) {
            const float *logits = llama_get_logits_ith(context, i);
            if (!logits ||
                fwrite(logits, sizeof(*logits), (size_t)vocabulary, file) != (size_t)vocabulary) {
                fail("no logits");
            }
        }
    }
    llama_batch_free(batch);
    llama_free(context);
    llama_model_free(model);
    return fclose(file) == 0 ? 0 : 1;
}
