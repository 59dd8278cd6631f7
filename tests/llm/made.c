#include "made.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"
#include "random.h"

enum { F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q8_0 = 8, BF16 = 30, MOST_BYTES = 4 << 20 };

/* ---- bytes ----------------------------------------------------------------------------------- */

static void put(made_t *m, const void *data, size_t bytes)
{
    if (bytes > MOST_BYTES - m->bytes) {
        fprintf(stderr, "made.c: the file is too large\n");
        exit(1);
    }
    memcpy(m->file + m->bytes, data, bytes);
    m->bytes += bytes;
}

static void put_number(made_t *m, uint64_t n, size_t bytes)
{
    uint8_t little[8];
    for (size_t i = 0; i < bytes; i++) {
        little[i] = (uint8_t)(n >> (8 * i));
    }
    put(m, little, bytes);
}

static void put_string(made_t *m, const char *text, size_t size)
{
    put_number(m, size, 8);
    put(m, text, size);
}

static void put_key(made_t *m, const char *key, unsigned type)
{
    put_string(m, key, strlen(key));
    put_number(m, type, 4);
}

static void put_count(made_t *m, const char *key, int n)
{
    put_key(m, key, 4);
    put_number(m, (uint64_t)n, 4);
}

static void put_text(made_t *m, const char *key, const char *text)
{
    put_key(m, key, 8);
    put_string(m, text, strlen(text));
}

static void put_float(made_t *m, const char *key, float x)
{
    put_key(m, key, 6);
    put(m, &x, sizeof x);
}

/* Letters of all bytes in the order of GPT-2, then pairs, then a special token. */
static void put_tokens(made_t *m)
{
    static const char *const joined[] = {"he", "ll",  "hell",          "hello",        "\xC4\xA0w",
                                         "or", "orl", "\xC4\xA0world", "\xC4\xA0worl", "<|end|>"};
    put_key(m, "tokenizer.ggml.tokens", 9);
    put_number(m, 8, 4);
    put_number(m, MADE_TOKENS, 8);
    for (unsigned i = 0, other = 0; i < 256; i++) {
        const bool own = (i >= 33 && i <= 126) || (i >= 161 && i != 173);
        const unsigned letter = own ? i : 256 + other++;
        const char text[2] = {(char)(0xC0 | letter >> 6), (char)(0x80 | (letter & 0x3F))};
        const char ascii = (char)letter;
        put_string(m, letter < 128 ? &ascii : text, letter < 128 ? 1 : 2);
    }
    for (int i = 256; i < MADE_TOKENS; i++) {
        char text[16];
        snprintf(text, sizeof text, "%s", i < 266 ? joined[i - 256] : "");
        if (i >= 266) {
            snprintf(text, sizeof text, "unused%d", i);
        }
        put_string(m, text, strlen(text));
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

static int block_bytes(int type)
{
    return type == Q4_0 ? 18 : type == Q4_1 ? 20 : type == Q8_0 ? 34 : type == F32 ? 4 : 2;
}

static bool in_blocks(int type)
{
    return type == Q4_0 || type == Q4_1 || type == Q8_0;
}

/* A block of 32 random codes. */
static void put_block(made_t *m, int type, double size, uint64_t *state, double *numbers)
{
    const int codes = type == Q8_0 ? 256 : 16, at = type == Q4_1 ? 4 : 2;
    uint8_t block[34] = {0};
    orc_encode(sinter_f16, block, 0, size * (1.5 + random_signed(state)) / codes);
    const double scale = orc_decode(sinter_f16, block, 0);
    double offset = -8.0 * scale;
    if (type == Q4_1) {
        orc_encode(sinter_f16, block, 1, size * (random_signed(state) - 0.7));
        offset = orc_decode(sinter_f16, block, 1);
    }
    for (int i = 0; i < 32; i++) {
        const int code = random_below(state, codes);
        if (type == Q8_0) {
            block[at + i] = (uint8_t)(code - 128);
            numbers[i] = scale * (code - 128);
        } else {
            block[at + i % 16] |= (uint8_t)(code << (i < 16 ? 0 : 4));
            numbers[i] = scale * code + offset;
        }
    }
    put(m, block, (size_t)block_bytes(type));
}

static void put_numbers(made_t *m, made_tensor_t *t, uint64_t *state)
{
    const bool norm = t->n == 1;
    const double size = 1.7 / sqrt(t->k);
    const sinter_data_type_t type = t->type == F32   ? sinter_f32
                                    : t->type == F16 ? sinter_f16
                                                     : sinter_bf16;
    for (int i = 0; i < t->n * t->k; i++) {
        uint8_t bytes[4];
        if (in_blocks(t->type)) {
            put_block(m, t->type, size, state, &t->numbers[i]);
            i += 31;
            continue;
        }
        orc_encode(type, bytes, 0,
                   norm ? 1.0 + 0.2 * random_signed(state) : size * random_signed(state));
        t->numbers[i] = orc_decode(type, bytes, 0);
        put(m, bytes, (size_t)block_bytes(t->type));
    }
}

static void add_tensor(made_t *m, const char *name, int n, int k, int type)
{
    made_tensor_t *t = &m->tensors[m->n_tensors++];
    *t = (made_tensor_t){.n = n, .k = k, .type = type};
    snprintf(t->name, sizeof t->name, "%s", name);
    t->numbers = malloc((size_t)(n * k) * sizeof *t->numbers);
    if (t->numbers == NULL) {
        exit(1);
    }
}

int made_head(const made_sizes_t *s)
{
    return s->head != 0 ? s->head : s->hidden / s->heads;
}

int made_rotated(const made_sizes_t *s)
{
    return s->rotated != 0 ? s->rotated : made_head(s);
}

/* The fields that not every file has. Returns how many. */
static int put_more(made_t *m)
{
    const made_sizes_t *s = &m->sizes;
    if (s->head != 0) {
        put_count(m, "llama.attention.key_length", s->head);
        put_count(m, "llama.attention.value_length", s->head);
    }
    if (s->rotated != 0) {
        put_count(m, "llama.rope.dimension_count", s->rotated);
    }
    if (s->scaling != 0.0f) {
        put_text(m, "llama.rope.scaling.type", "linear");
        put_float(m, "llama.rope.scaling.factor", s->scaling);
    }
    if (s->key != NULL && s->text != NULL) {
        put_text(m, s->key, s->text);
    } else if (s->key != NULL) {
        put_float(m, s->key, 1.0f);
    }
    return 2 * (s->head != 0) + (s->rotated != 0) + 2 * (s->scaling != 0.0f) + (s->key != NULL);
}

static void list_tensors(made_t *m)
{
    static const char *const weights[7] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                           "ffn_gate", "ffn_up", "ffn_down"};
    const made_sizes_t *s = &m->sizes;
    const int q = made_head(s) * s->heads, kv = made_head(s) * s->kv_heads;
    const int rows[7] = {q, kv, kv, s->hidden, s->inner, s->inner, s->hidden};
    char name[48];
    add_tensor(m, "token_embd.weight", s->vocabulary, s->hidden, s->types[7]);
    for (int i = 0; i < MADE_LAYERS; i++) {
        for (int at = 0; at < 7; at++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", i, weights[at]);
            add_tensor(m, name, rows[at],
                       at == 6   ? s->inner
                       : at == 3 ? q
                                 : s->hidden,
                       s->types[at]);
        }
        snprintf(name, sizeof name, "blk.%d.attn_norm.weight", i);
        add_tensor(m, name, 1, s->hidden, F32);
        snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", i);
        add_tensor(m, name, 1, s->hidden, F32);
    }
    add_tensor(m, "output_norm.weight", 1, s->hidden, F32);
    if (s->types[8] >= 0) {
        add_tensor(m, "output.weight", s->vocabulary, s->hidden, s->types[8]);
    }
    if (s->divisors) {
        add_tensor(m, "rope_freqs.weight", 1, made_rotated(s) / 2, F32);
    }
    if (s->tensor != NULL) {
        add_tensor(m, s->tensor, 1, s->hidden, F32);
    }
}

static size_t tensor_bytes(const made_tensor_t *t)
{
    return (size_t)(t->n * t->k / (in_blocks(t->type) ? 32 : 1) * block_bytes(t->type));
}

void made_model(made_t *m, const made_sizes_t *sizes, uint64_t seed)
{
    *m = (made_t){.sizes = *sizes, .file = malloc(MOST_BYTES)};
    if (m->file == NULL) {
        exit(1);
    }
    list_tensors(m);
    put(m, "GGUF", 4);
    put_number(m, 3, 4);
    put_number(m, m->n_tensors, 8);
    const size_t count_at = m->bytes;
    put_number(m, 9, 8);
    put_text(m, "general.architecture", "llama");
    put_tokens(m);
    put_count(m, "llama.block_count", MADE_LAYERS);
    put_count(m, "llama.context_length", sizes->context);
    put_count(m, "llama.embedding_length", sizes->hidden);
    put_count(m, "llama.feed_forward_length", sizes->inner);
    put_count(m, "llama.attention.head_count", sizes->heads);
    put_count(m, "llama.attention.head_count_kv", sizes->kv_heads);
    put_float(m, "llama.rope.freq_base", 1000.0f);
    m->file[count_at] = (uint8_t)(m->file[count_at] + put_more(m));
    size_t offset = 0;
    for (size_t i = 0; i < m->n_tensors; i++) {
        made_tensor_t *t = &m->tensors[i];
        put_string(m, t->name, strlen(t->name));
        put_number(m, t->n == 1 ? 1 : 2, 4);
        put_number(m, (uint64_t)t->k, 8);
        if (t->n > 1) {
            put_number(m, (uint64_t)t->n, 8);
        }
        t->at = m->bytes;
        put_number(m, (uint64_t)t->type, 4);
        put_number(m, offset, 8);
        offset += (tensor_bytes(t) + 31) / 32 * 32;
    }
    m->head = m->bytes;
    for (size_t i = 0; i < m->n_tensors; i++) {
        put(m, (const uint8_t[32]){0}, (32 - m->bytes % 32) % 32);
        put_numbers(m, &m->tensors[i], &seed);
    }
}

void made_free(made_t *m)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        free(m->tensors[i].numbers);
    }
    free(m->file);
}

const made_tensor_t *made_find(const made_t *m, const char *name)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        if (strcmp(m->tensors[i].name, name) == 0) {
            return &m->tensors[i];
        }
    }
    return NULL;
}
