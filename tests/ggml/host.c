#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-backend.h"

enum { MOST_DEVICES = 4 };

void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void quiet(enum ggml_log_level level, const char *text, void *data)
{
    (void)data;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

static ggml_backend_dev_t rpc_device(const char *address)
{
    typedef ggml_backend_reg_t (*add_server_t)(const char *address);
    const ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
    void *found = rpc ? ggml_backend_reg_get_proc_address(rpc, "ggml_backend_rpc_add_server") : 0;
    add_server_t add_server;
    memcpy(&add_server, &found, sizeof(add_server));
    const ggml_backend_reg_t server = found ? add_server(address) : NULL;
    if (!server || ggml_backend_reg_dev_count(server) != 1) {
        fail("no such rpc server");
    }
    ggml_backend_register(server);
    return ggml_backend_reg_dev_get(server, 0);
}

struct llama_model *open_model(const char *path, const char *devices, int layers, bool repack,
                               bool read)
{
    /* As --cpu-moe has it. */
    struct llama_model_tensor_buft_override experts[2] = {{NULL, NULL}, {NULL, NULL}};
    ggml_backend_dev_t list[MOST_DEVICES + 1] = {NULL};
    char names[256];
    snprintf(names, sizeof(names), "%s", devices);
    char *rest = strstr(names, "+cpu-moe");
    if (rest) {
        *rest = '\0';
    }
    float split[128] = {1, 1, 1, 1};
    llama_log_set(quiet, NULL);
    ggml_backend_load_all();
    llama_backend_init();
    if (!strncmp(names, "rpc:", 4)) {
        int count = 0;
        for (char *at = strtok(names + 4, ","); at && count < MOST_DEVICES;
             at = strtok(NULL, ",")) {
            list[count++] = rpc_device(at);
        }
    } else if (strcmp(names, "cpu") != 0) {
        list[0] = ggml_backend_dev_by_name(names);
        if (!list[0]) {
            fail("no such device");
        }
    }
    struct llama_model_params params = llama_model_default_params();
    params.devices = list;
    params.n_gpu_layers = list[0] ? layers : 0;
    params.tensor_split = split;
    params.use_extra_bufts = repack;
    params.load_mode = read ? LLAMA_LOAD_MODE_NONE : LLAMA_LOAD_MODE_AUTO;
    if (rest) {
        const ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
        experts[0].pattern = "\\.ffn_(up|down|gate|gate_up)_(ch|)exps";
        experts[0].buft = ggml_backend_dev_buffer_type(cpu);
        params.tensor_buft_overrides = experts;
    }
    struct llama_model *model = llama_model_load_from_file(path, params);
    if (!model) {
        fail("the model cannot be loaded");
    }
    return model;
}

static enum ggml_type type_of(const char *name, size_t length)
{
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        const char *other = ggml_type_name((enum ggml_type)i);
        if (other && strlen(other) == length && !strncmp(other, name, length)) {
            return (enum ggml_type)i;
        }
    }
    fail("no such cache type");
    return GGML_TYPE_F16;
}

struct llama_context *open_context(struct llama_model *model, const context_options_t *options)
{
    struct llama_context_params params = llama_context_default_params();
    const int sequences = options->sequences > 0 ? options->sequences : 1;
    params.no_perf = false;
    params.n_ctx = (uint32_t)((options->tokens + 8) * sequences);
    params.n_batch = 512;
    params.n_seq_max = (uint32_t)sequences;
    params.n_rs_seq = (uint32_t)options->taken_back;
    params.kv_unified = options->unified;
    params.offload_kqv = !options->cache_in_host;
    params.n_threads = params.n_threads_batch = options->threads;
    const bool plain = !strncmp(options->cache_type, "plain:", 6);
    const char *k = options->cache_type + (plain ? 6 : 0), *comma = strchr(k, ','),
               *v = comma ? comma + 1 : k;
    params.flash_attn_type = plain ? LLAMA_FLASH_ATTN_TYPE_DISABLED : LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.type_k = type_of(k, comma ? (size_t)(comma - k) : strlen(k));
    params.type_v = type_of(v, strlen(v));
    struct llama_context *context = llama_init_from_model(model, params);
    if (!context) {
        fail("no context");
    }
    return context;
}

int read_tokens(const struct llama_vocab *vocab, const char *path, llama_token **tokens)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "rb");
    if (!file) {
        fail("cannot read the text");
    }
    const size_t length = fread(text, 1, sizeof(text), file);
    fclose(file);
    /* No token is shorter than a byte, but for the one that the model may put first. */
    *tokens = malloc((length + 8) * sizeof(**tokens));
    if (!*tokens) {
        fail("no memory");
    }
    const int room = (int)length + 8;
    const int count = llama_tokenize(vocab, text, (int)length, *tokens, room, true, true);
    if (count <= 0) {
        fail("no tokens");
    }
    return count;
}
