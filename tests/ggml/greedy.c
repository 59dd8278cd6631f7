/* Decodes greedily with llama.cpp on one device, and prints for each token the two best logits:
 *
 *   greedy MODEL DEVICE THREADS TOKENS CACHE_TYPE PROMPT_FILE
 *
 * DEVICE is "cpu", or the name of a device that GGML_BACKEND_PATH loads. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-backend.h"
#include "llama.h"

static void fail(const char *what)
{
    fprintf(stderr, "greedy: %s\n", what);
    exit(1);
}

static void quiet(enum ggml_log_level level, const char *text, void *data)
{
    (void)data;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

static enum ggml_type cache_type(const char *name)
{
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        if (ggml_type_name((enum ggml_type)i) && !strcmp(ggml_type_name((enum ggml_type)i), name)) {
            return (enum ggml_type)i;
        }
    }
    fail("no such cache type");
    return GGML_TYPE_F16;
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    static char text[1 << 20];
    if (!file) {
        fail("cannot read the prompt");
    }
    text[fread(text, 1, sizeof(text) - 1, file)] = 0;
    fclose(file);
    return text;
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fail("six arguments are needed");
    }
    const int threads = atoi(argv[3]), tokens = atoi(argv[4]);
    llama_log_set(quiet, NULL);
    ggml_backend_load_all();
    llama_backend_init();
    ggml_backend_dev_t devices[2] = {NULL, NULL};
    if (strcmp(argv[2], "cpu") != 0 && !(devices[0] = ggml_backend_dev_by_name(argv[2]))) {
        fail("no such device");
    }
    struct llama_model_params model_params = llama_model_default_params();
    model_params.devices = devices;
    model_params.n_gpu_layers = devices[0] ? 999 : 0;
    struct llama_model *model = llama_model_load_from_file(argv[1], model_params);
    if (!model) {
        fail("the model cannot be loaded");
    }
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    const char *text = read_text(argv[6]);
    static llama_token list[1 << 16];
    int count = llama_tokenize(vocab, text, (int)strlen(text), list, 1 << 15, true, true);
    struct llama_context_params params = llama_context_default_params();
    params.no_perf = false;
    params.n_ctx = (uint32_t)(count + tokens + 8);
    params.n_batch = 512;
    params.n_threads = params.n_threads_batch = threads;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.type_k = params.type_v = cache_type(argv[5]);
    struct llama_context *context = llama_init_from_model(model, params);
    if (count <= 0 || !context) {
        fail("no context");
    }
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
    llama_free(context);
    llama_model_free(model);
    return 0;
}
