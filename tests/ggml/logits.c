/* Writes the logits of tokens that are given, as raw floats, one row for each token, and prints how
 * many a row has:
 *
 *   logits MODEL DEVICE LAYERS THREADS CACHE_TYPE SEQUENCES TOKENS SINGLE FILE
 *
 * For DEVICE see host.h. LAYERS is how many layers go to the device, "all", or "nkvo": all, and the
 * cache stays in memory of the host.
 *
 * The tokens of each sequence are made by a formula. All but the last SINGLE ones are decoded in
 * batches of 33 tokens of each sequence, the others in batches of one token of each, or, every
 * second time, of one token of the last sequence alone. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

enum { BATCH = 33, ROOM = 1024, MOST_SEQUENCES = 8 };

static void add_token(struct llama_batch *batch, int sequence, int at, int vocabulary)
{
    const int i = batch->n_tokens++;
    batch->token[i] = (at * 7919 + at * at * 13 + sequence * 31) % vocabulary;
    batch->pos[i] = at;
    batch->n_seq_id[i] = 1;
    batch->seq_id[i][0] = sequence;
    batch->logits[i] = true;
}

int main(int argc, char **argv)
{
    if (argc != 10) {
        fail("nine arguments are needed");
    }
    const bool in_host = !strcmp(argv[3], "nkvo");
    const int layers = in_host || !strcmp(argv[3], "all") ? ALL_LAYERS : atoi(argv[3]);
    const int sequences = atoi(argv[6]), tokens = atoi(argv[7]), single = atoi(argv[8]);
    if (sequences < 1 || sequences > MOST_SEQUENCES || tokens > ROOM) {
        fail("too many sequences or tokens");
    }
    struct llama_model *model = open_model(argv[1], argv[2], layers, false, false);
    const context_options_t options = {.tokens = ROOM,
                                       .threads = atoi(argv[4]),
                                       .cache_type = argv[5],
                                       .cache_in_host = in_host,
                                       .sequences = sequences};
    struct llama_context *context = open_context(model, &options);
    const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
    FILE *file = fopen(argv[9], "wb");
    struct llama_batch batch = llama_batch_init(BATCH * sequences, 0, 1);
    int done[MOST_SEQUENCES] = {0};
    if (!file) {
        fail("cannot write the logits");
    }
    for (int step = 0; done[0] < tokens; step++) {
        const int left = tokens - single - done[0];
        const int count = left <= 0 ? 1 : left < BATCH ? left : BATCH;
        batch.n_tokens = 0;
        for (int s = left <= 0 && step % 2 ? sequences - 1 : 0; s < sequences; s++) {
            for (int i = 0; i < count; i++) {
                add_token(&batch, s, done[s]++, vocabulary);
            }
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
    printf("%d logits\n", vocabulary);
    llama_batch_free(batch);
    llama_free(context);
    llama_model_free(model);
    return fclose(file) == 0 ? 0 : 1;
}
