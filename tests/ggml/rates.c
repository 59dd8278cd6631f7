/* Measures a model of llama.cpp on one device, on demand, so that two processes can be measured in
 * turn:
 *
 *   rates MODEL DEVICE [read]
 *
 * For DEVICE see host.h. With "read" the file is read instead of mapped. Commands come on stdin,
 * one on a line; each has one line as its answer:
 *
 *   loaded                              seconds that loading has taken, and the most bytes that the
 *                                       process has had in memory until now
 *   weights                             how many bytes of weights a token reads, and how many of
 *                                       these belong to experts
 *   context CACHE_TYPE SEQUENCES DEPTH ROOM
 *                                       "ready": there is a new context, with DEPTH tokens of each
 *                                       sequence in the cache, and room for ROOM more
 *   run THREADS PROMPT STEPS            seconds for PROMPT more tokens of each sequence, in batches
 *                                       of one sequence, and then for STEPS batches of one token of
 *                                       each; the cache forgets them
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "ggml.h"
#include "gguf.h"
#include "host.h"

enum { BATCH = 512, MOST_SEQUENCES = 64 };

/* The number of experts, or of those that compute a token; 0 if the model has none. */
static uint32_t experts(const struct gguf_context *file, const char *which)
{
    char key[256];
    const int64_t name = gguf_find_key(file, "general.architecture");
    snprintf(key, sizeof(key), "%s.%s", name < 0 ? "" : gguf_get_val_str(file, name), which);
    const int64_t found = gguf_find_key(file, key);
    return found < 0 ? 0 : gguf_get_val_u32(file, found);
}

/* A token reads one row of the embedding, and all of it where it is the output as well. */
static void print_weights(const char *path)
{
    struct gguf_context *file = gguf_init_from_file(path, (struct gguf_init_params){true, NULL});
    if (!file) {
        fail("the file cannot be read");
    }
    const bool has_output = gguf_find_tensor(file, "output.weight") >= 0;
    size_t dense = 0, all_experts = 0;
    for (int64_t i = 0; i < gguf_get_n_tensors(file); i++) {
        const char *name = gguf_get_tensor_name(file, i);
        const size_t bytes = gguf_get_tensor_size(file, i);
        if (strstr(name, "_exps.")) {
            all_experts += bytes;
        } else if (!has_output || strcmp(name, "token_embd.weight") != 0) {
            dense += bytes;
        }
    }
    const uint32_t count = experts(file, "expert_count");
    const size_t used = count ? all_experts / count * experts(file, "expert_used_count") : 0;
    printf("%zu %zu\n", dense + used, used);
    gguf_free(file);
}

typedef struct state {
    struct llama_model *model;
    struct llama_context *context;
    struct llama_batch batch;
    int sequences, depth;
} state_t;

static void add_token(state_t *state, int sequence, int at, bool logits)
{
    struct llama_batch *batch = &state->batch;
    const int i = batch->n_tokens++;
    const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(state->model));
    batch->token[i] = (int)(((int64_t)at * 7919 + sequence * 31) % vocabulary);
    batch->pos[i] = at;
    batch->n_seq_id[i] = 1;
    batch->seq_id[i][0] = sequence;
    batch->logits[i] = logits;
}

static void decode(state_t *state)
{
    if (llama_decode(state->context, state->batch)) {
        fail("decode failed");
    }
    llama_synchronize(state->context);
    state->batch.n_tokens = 0;
}

/* Tokens from FIRST to behind LAST, of each sequence. */
static void decode_prompts(state_t *state, int first, int last)
{
    for (int s = 0; s < state->sequences; s++) {
        for (int at = first; at < last; at++) {
            add_token(state, s, at, at == last - 1);
            if (state->batch.n_tokens == BATCH || at == last - 1) {
                decode(state);
            }
        }
    }
}

static void check_logits(const state_t *state)
{
    const float *logits = llama_get_logits_ith(state->context, -1);
    const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(state->model));
    for (int t = 0; t < vocabulary; t++) {
        if (!isfinite(logits[t])) {
            fail("a logit is NaN or infinity");
        }
    }
}

static void run(state_t *state, int threads, int prompt, int steps)
{
    llama_set_n_threads(state->context, threads, threads);
    const int64_t start = ggml_time_us();
    decode_prompts(state, state->depth, state->depth + prompt);
    for (int step = 0; step < steps; step++) {
        for (int s = 0; s < state->sequences; s++) {
            add_token(state, s, state->depth + prompt + step, true);
        }
        decode(state);
    }
    const int64_t end = ggml_time_us();
    check_logits(state);
    for (int s = 0; s < state->sequences; s++) {
        llama_memory_seq_rm(llama_get_memory(state->context), s, state->depth, -1);
    }
    printf("%.6f\n", 1e-6 * (double)(end - start));
}

static void open_new_context(state_t *state, const char *cache_type, int room)
{
    llama_free(state->context);
    const context_options_t options = {.tokens = state->depth + room,
                                       .threads = 2,
                                       .cache_type = cache_type,
                                       .sequences = state->sequences};
    state->context = open_context(state->model, &options);
    decode_prompts(state, 0, state->depth);
    puts("ready");
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fail("two arguments are needed");
    }
    const bool read = argc > 3 && !strcmp(argv[3], "read");
    ggml_time_init();
    const int64_t start = ggml_time_us();
    state_t state = {.model = open_model(argv[1], argv[2], ALL_LAYERS, true, read),
                     .batch = llama_batch_init(BATCH, 0, 1)};
    const int64_t loaded = ggml_time_us() - start;
    char line[256], type[32];
    int room, threads, prompt, steps;
    while (fgets(line, sizeof(line), stdin)) {
        if (!strcmp(line, "loaded\n")) {
            struct rusage usage;
            getrusage(RUSAGE_SELF, &usage);
            printf("%.6f %ld\n", 1e-6 * (double)loaded, usage.ru_maxrss * 1024);
        } else if (!strcmp(line, "weights\n")) {
            print_weights(argv[1]);
        } else if (sscanf(line, "context %31s %d %d %d", type, &state.sequences, &state.depth,
                          &room) == 4 &&
                   state.sequences <= MOST_SEQUENCES) {
            open_new_context(&state, type, room);
        } else if (state.context && sscanf(line, "run %d %d %d", &threads, &prompt, &steps) == 3) {
            run(&state, threads, prompt, steps);
        } else {
            fail("no such command");
        }
        fflush(stdout);
    }
    llama_batch_free(state.batch);
    llama_free(state.context);
    llama_model_free(state.model);
    return 0;
}
