/* Writes the logits of tokens that are given, as raw floats, one row for each token, and prints how
 * many a row has:
 *
 *   logits MODEL DEVICE LAYERS THREADS CACHE_TYPE SEQUENCES TOKENS SINGLE STATE FILE
 *
 * For DEVICE see host.h. LAYERS is how many layers go to the device, "all", or "nkvo": all, and the
 * cache stays in memory of the host.
 *
 * The tokens of each sequence are made by a formula. All but the last SINGLE ones are decoded in
 * batches of 33 tokens of each sequence, the others in batches of one token of each, or, every
 * second time, of one token of the last sequence alone.
 *
 * STATE is what happens to the sequences before the first of their single tokens: "kept": nothing;
 * "restored": each is saved, all are removed, and they come back; "rolled-back": each goes on with
 * two other tokens, which are then taken back. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

enum { BATCH = 33, ROOM = 1024, MOST_SEQUENCES = 8, TAKEN_BACK = 2 };

static void add_token(struct llama_batch *batch, int sequence, int at, int vocabulary, bool other)
{
    const int i = batch->n_tokens++;
    batch->token[i] = (at * 7919 + at * at * 13 + sequence * 31 + other) % vocabulary;
    batch->pos[i] = at;
    batch->n_seq_id[i] = 1;
    batch->seq_id[i][0] = sequence;
    batch->logits[i] = true;
}

static void save_and_restore(struct llama_context *context, int sequences)
{
    uint8_t *states[MOST_SEQUENCES];
    size_t sizes[MOST_SEQUENCES];
    for (int s = 0; s < sequences; s++) {
        sizes[s] = llama_state_seq_get_size(context, s);
        states[s] = malloc(sizes[s]);
        if (!states[s] || llama_state_seq_get_data(context, states[s], sizes[s], s) != sizes[s]) {
            fail("a sequence cannot be saved");
        }
    }
    llama_memory_clear(llama_get_memory(context), true);
    for (int s = sequences - 1; s >= 0; s--) {
        if (llama_state_seq_set_data(context, states[s], sizes[s], s) != sizes[s]) {
            fail("a sequence cannot be restored");
        }
        free(states[s]);
    }
}

static void roll_back(struct llama_context *context, struct llama_batch *batch, int sequences,
                      const int *done, int vocabulary)
{
    batch->n_tokens = 0;
    for (int s = 0; s < sequences; s++) {
        for (int i = 0; i < TAKEN_BACK; i++) {
            add_token(batch, s, done[s] + i, vocabulary, true);
        }
    }
    if (llama_decode(context, *batch)) {
        fail("decode failed");
    }
    for (int s = 0; s < sequences; s++) {
        if (!llama_memory_seq_rm(llama_get_memory(context), s, done[s], -1)) {
            fail("tokens cannot be taken back");
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 11) {
        fail("ten arguments are needed");
    }
    const bool in_host = !strcmp(argv[3], "nkvo");
    const int layers = in_host || !strcmp(argv[3], "all") ? ALL_LAYERS : atoi(argv[3]);
    const int sequences = atoi(argv[6]), tokens = atoi(argv[7]), single = atoi(argv[8]);
    if (sequences < 1 || sequences > MOST_SEQUENCES || tokens > ROOM) {
        fail("too many sequences or tokens");
    }
    const char *state = argv[9];
    struct llama_model *model = open_model(argv[1], argv[2], layers, false, false);
    const context_options_t options = {.tokens = ROOM,
                                       .threads = atoi(argv[4]),
                                       .cache_type = argv[5],
                                       .cache_in_host = in_host,
                                       .sequences = sequences,
                                       .taken_back = strcmp(state, "kept") ? TAKEN_BACK : 0};
    struct llama_context *context = open_context(model, &options);
    const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
    FILE *file = fopen(argv[10], "wb");
    struct llama_batch batch = llama_batch_init(BATCH * sequences, 0, 1);
    int done[MOST_SEQUENCES] = {0};
    if (!file) {
        fail("cannot write the logits");
    }
    for (int step = 0; done[0] < tokens; step++) {
        const int left = tokens - single - done[0];
        const int count = left <= 0 ? 1 : left < BATCH ? left : BATCH;
        if (left == 0 && !strcmp(state, "restored")) {
            save_and_restore(context, sequences);
        } else if (left == 0 && !strcmp(state, "rolled-back")) {
            roll_back(context, &batch, sequences, done, vocabulary);
        }
        batch.n_tokens = 0;
        for (int s = left <= 0 && step % 2 ? sequences - 1 : 0; s < sequences; s++) {
            for (int i = 0; i < count; i++) {
                add_token(&batch, s, done[s]++, vocabulary, false);
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
