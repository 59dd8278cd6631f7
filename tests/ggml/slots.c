/* Decodes several sequences greedily, in one cache that they share and then each alone, and prints
 * how many of the tokens, and of the rows of logits, are not the same bit by bit:
 *
 *   slots MODEL DEVICE THREADS SEQUENCES TOKENS CACHE_TYPE
 *
 * Prompts have different lengths and are made by a formula. In the shared cache their tokens
 * alternate, in batches of 33. For DEVICE see host.h. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

enum { BATCH = 33, MOST_SEQUENCES = 8, MOST_TOKENS = 64, MOST_PROMPT = 200 };

/* What has become of a sequence. */
typedef struct slot {
    int prompt;
    llama_token made[MOST_TOKENS];
    float *logits[MOST_TOKENS]; /* which each of them was chosen from */
} slot_t;

static void add_token(struct llama_batch *batch, int sequence, llama_token token, int at)
{
    const int i = batch->n_tokens++;
    batch->token[i] = token;
    batch->pos[i] = at;
    batch->n_seq_id[i] = 1;
    batch->seq_id[i][0] = sequence;
    batch->logits[i] = true;
}

/* Keeps the logits of entry i of a batch, and the best token. */
static void take(struct llama_context *context, int i, int vocabulary, slot_t *slot, int n)
{
    const float *logits = llama_get_logits_ith(context, i);
    slot->logits[n] = malloc((size_t)vocabulary * sizeof(float));
    if (!logits || !slot->logits[n]) {
        fail("no logits");
    }
    memcpy(slot->logits[n], logits, (size_t)vocabulary * sizeof(float));
    slot->made[n] = 0;
    for (int t = 1; t < vocabulary; t++) {
        slot->made[n] = logits[t] > logits[slot->made[n]] ? t : slot->made[n];
    }
}

static void decode(struct llama_context *context, struct llama_batch *batch)
{
    if (batch->n_tokens > 0 && llama_decode(context, *batch)) {
        fail("decode failed");
    }
}

/* Sequences first..end - 1 together. */
static void run(struct llama_model *model, const context_options_t *options, int first, int end,
                int tokens, int vocabulary, slot_t *slots)
{
    struct llama_context *context = open_context(model, options);
    struct llama_batch batch = llama_batch_init(BATCH, 0, 1);
    batch.n_tokens = 0;
    for (int at = 0; at < MOST_PROMPT; at++) {
        for (int s = first; s < end; s++) {
            if (at >= slots[s].prompt) {
                continue;
            }
            add_token(&batch, s - first, (at * 7919 + at * at * 13 + s * 31) % vocabulary, at);
            if (batch.n_tokens < BATCH && at < slots[s].prompt - 1) {
                continue;
            }
            decode(context, &batch);
            if (at == slots[s].prompt - 1) {
                take(context, batch.n_tokens - 1, vocabulary, &slots[s], 0);
            }
            batch.n_tokens = 0;
        }
    }
    for (int n = 1; n < tokens; n++) {
        batch.n_tokens = 0;
        for (int s = first; s < end; s++) {
            add_token(&batch, s - first, slots[s].made[n - 1], slots[s].prompt + n - 1);
        }
        decode(context, &batch);
        for (int s = first; s < end; s++) {
            take(context, s - first, vocabulary, &slots[s], n);
        }
    }
    llama_batch_free(batch);
    llama_free(context);
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fail("six arguments are needed");
    }
    const int sequences = atoi(argv[4]), tokens = atoi(argv[5]);
    if (sequences < 1 || sequences > MOST_SEQUENCES || tokens < 1 || tokens > MOST_TOKENS) {
        fail("1 to 8 sequences of 1 to 64 tokens");
    }
    struct llama_model *model = open_model(argv[1], argv[2], ALL_LAYERS, false, false);
    const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
    slot_t shared[MOST_SEQUENCES], alone[MOST_SEQUENCES];
    context_options_t options = {.tokens = MOST_PROMPT + MOST_TOKENS,
                                 .threads = atoi(argv[3]),
                                 .cache_type = argv[6],
                                 .sequences = sequences,
                                 .unified = true};
    int other_tokens = 0, other_rows = 0;
    for (int s = 0; s < sequences; s++) {
        shared[s].prompt = alone[s].prompt = 20 + 23 * s;
    }
    run(model, &options, 0, sequences, tokens, vocabulary, shared);
    options.sequences = 1;
    for (int s = 0; s < sequences; s++) {
        run(model, &options, s, s + 1, tokens, vocabulary, alone);
        for (int n = 0; n < tokens; n++) {
            other_tokens += shared[s].made[n] != alone[s].made[n];
            other_rows += memcmp(shared[s].logits[n], alone[s].logits[n],
                                 (size_t)vocabulary * sizeof(float)) != 0;
            free(shared[s].logits[n]);
            free(alone[s].logits[n]);
        }
    }
    printf("%d tokens, %d others; %d rows of logits with other bits\n", sequences * tokens,
           other_tokens, other_rows);
    llama_model_free(model);
    return 0;
}
