/* Decodes greedily with llama.cpp on one device, and prints for each token the two best logits:
 *
 *   greedy MODEL DEVICE THREADS TOKENS CACHE_TYPE PROMPT_FILE
 *
 * For DEVICE see host.h. */
#include <stdio.h>
#include <stdlib.h>

#include "host.h"

int main(int argc, char **argv)
{
    if (argc != 7) {
        fail("six arguments are needed");
    }
    const int threads = atoi(argv[3]), tokens = atoi(argv[4]);
    struct llama_model *model = open_model(argv[1], argv[2], ALL_LAYERS, false, false);
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    llama_token *list;
    const int count = read_tokens(vocab, argv[6], &list);
    const context_options_t options = {
        .tokens = count + tokens, .threads = threads, .cache_type = argv[5]};
    struct llama_context *context = open_context(model, &options);
    for (int i = 0; i < count; i += 512) {
        const int n = count - i < 512 ? count - i : 512;
        if (llama_decode(context, llama_batch_get_one(list + i, n))) {
            fail("decode failed");
        }
    }
    for (int i = 0; i < tokens; i++) {
        const float *logits = llama_get_logits_ith(context, -1);
        llama_token best = 0, second = 1;
        for (llama_token t = 1; t < llama_vocab_n_tokens(vocab); t++) {
            if (logits[t] > logits[best]) {
                second = best;
                best = t;
            } else if (logits[t] > logits[second] || second == best) {
                second = t;
            }
        }
        char piece[64] = "";
        llama_token_to_piece(vocab, best, piece, sizeof(piece) - 1, 0, true);
        printf("%d %.5f %d %.5f\n", best, logits[best], second, logits[second]);
        if (llama_decode(context, llama_batch_get_one(&best, 1))) {
            fail("decode failed");
        }
    }
    const struct llama_perf_context_data perf = llama_perf_context(context);
    fprintf(stderr, "%s: prompt %.1f tokens/s (%d), decode %.1f tokens/s (%d)\n", argv[2],
            1000 * perf.n_p_eval / perf.t_p_eval_ms, perf.n_p_eval,
            1000 * perf.n_eval / perf.t_eval_ms, perf.n_eval);
    free(list);
    llama_free(context);
    llama_model_free(model);
    return 0;
}
