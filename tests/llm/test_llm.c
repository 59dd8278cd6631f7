/* The engine of examples/llm against plain loops in double precision, over random models of two
 * layers. The loops take the numbers that the engine's weights and caches mean, so that only
 * rounding is left between the two; how far these numbers may be from those of the file follows
 * from the steps of their formats. */
#include "llm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "made.h"
#include "oracle.h"

/* The first has odd sizes and a last group that is short, in f32 without a weight of its own for
 * the output; the second all the types that the engine reads; the third heads that are not a part
 * of the hidden size, elements without a position, and positions that are scaled. */
enum { SHAPES = 3 };
static const made_sizes_t shapes[SHAPES] = {
    {78, 3, 1, 110, 131, 400, {0, 0, 0, 0, 0, 0, 0, 0, -1}, .rotated = 0},
    {96, 4, 2, 160, 67, 400, {2, 3, 8, 1, 3, 8, 30, 8, 3}, .rotated = 0},
    {80, 3, 1, 96, 71, 400, {0, 1, 30, 0, 1, 30, 0, 1, 0}, 32, 20, 3.0f, true, NULL, NULL, NULL},
};

/* The largest error of a format, as a part of the largest number of a group. Codes are half a step
 * off. A scale in f16 adds 2^-11. Scales of MX are rounded down to powers of two, so that the
 * largest numbers of a group may be cut off. */
static double error_of(const format_t *f)
{
    return f->kind == NULL             ? (f->type == sinter_f16 ? 0x1p-11 : 0.0)
           : f->type == sinter_s8      ? 0.5 / 127.0 + 0x1p-10
           : f->type == sinter_s4      ? 0.5 / 7.0 + 0x1p-10
           : f->type == sinter_f4_e2m1 ? 2.0 / 8.0
                                       : 64.0 / 512.0;
}

/* ---- what the engine has in memory ----------------------------------------------------------- */

/* The numbers of codes [n, k]; scales NULL: they are numbers. */
static double *numbers_of(const weight_t *w)
{
    const int64_t groups = (w->k + w->group - 1) / w->group;
    double *numbers = malloc((size_t)(w->n * w->k) * sizeof *numbers);
    for (int64_t i = 0; numbers != NULL && i < w->n * w->k; i++) {
        const int64_t at = i / w->k * groups + i % w->k / w->group;
        numbers[i] = orc_decode(w->type, w->codes, i);
        if (w->scales != NULL) {
            numbers[i] *= orc_decode(w->scale_type, w->scales, at);
        }
        if (w->minima != NULL) {
            numbers[i] += orc_decode(w->scale_type, w->minima, at);
        }
    }
    return numbers;
}

/* Numbers of a row against those that were stored, within the error of the format and `more`, both
 * relative to the largest number of each group. */
static void check_stored(const double *got, const double *want, int64_t n, const format_t *f,
                         double more)
{
    const int64_t group = f->kind != NULL ? f->group : n;
    for (int64_t first = 0; first < n; first += group) {
        const int64_t size = n - first < group ? n - first : group;
        double worst = 0.0, largest = 0.0;
        for (int64_t i = first; i < first + size; i++) {
            worst = fmax(worst, fabs(got[i] - want[i]));
            largest = fmax(largest, fabs(want[i]));
        }
        CHECK(worst <= (error_of(f) + more) * largest + 1e-7, "%s: %g of %g are lost", f->name,
              worst, largest);
    }
}

/* ---- plain loops ----------------------------------------------------------------------------- */

typedef struct plain {
    const made_t *made;
    const model_t *model;
    double *weights[MADE_LAYERS][WEIGHTS], *head;
    double tolerance; /* of what goes into the cache */
} plain_t;

/* The numbers of a weight of the engine, which must be those of the file but for the format. */
static double *take(const weight_t *w, const made_tensor_t *t, const format_t *f)
{
    double *got = numbers_of(w);
    for (int64_t row = 0; row < w->n; row++) {
        check_stored(got + row * w->k, t->numbers + row * w->k, w->k, f, 0.0);
    }
    return got;
}

static void plain_open(plain_t *p, const made_t *made, const model_t *model, const format_t *head)
{
    char name[32];
    static const char *const names[WEIGHTS] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                               "ffn_gate", "ffn_up", "ffn_down"};
    p->made = made;
    p->model = model;
    for (int i = 0; i < MADE_LAYERS; i++) {
        for (int at = 0; at < WEIGHTS; at++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", i, names[at]);
            p->weights[i][at] =
                take(&model->layers[i].weights[at], made_find(made, name), model->weights);
        }
    }
    const bool separate = model->logits.codes != NULL;
    const made_tensor_t *output = made_find(made, "output.weight");
    output = output != NULL ? output : made_find(made, "token_embd.weight");
    p->head = take(separate ? &model->logits : &model->embedding, output, head);
}

static void plain_close(plain_t *p)
{
    for (int i = 0; i < MADE_LAYERS * WEIGHTS; i++) {
        free(p->weights[i / WEIGHTS][i % WEIGHTS]);
    }
    free(p->head);
}

static void product(const double *w, int n, int k, const double *x, double *y)
{
    for (int i = 0; i < n; i++) {
        y[i] = 0.0;
        for (int j = 0; j < k; j++) {
            y[i] += w[i * k + j] * x[j];
        }
    }
}

static void norm(const made_t *made, const char *name, const double *x, double *y)
{
    const made_tensor_t *gamma = made_find(made, name);
    double sum = 0.0;
    for (int i = 0; i < gamma->k; i++) {
        sum += x[i] * x[i];
    }
    for (int i = 0; i < gamma->k; i++) {
        y[i] = x[i] / sqrt(sum / gamma->k + 1e-5) * gamma->numbers[i];
    }
}

static void rotate(const made_t *made, double *x, int heads, int position)
{
    const int head = made_head(&made->sizes), rotated = made_rotated(&made->sizes);
    const made_tensor_t *divisors = made_find(made, "rope_freqs.weight");
    const double factor = made->sizes.scaling != 0.0f ? made->sizes.scaling : 1.0;
    for (int i = 0; i < heads * head; i += 2) {
        const int d = i % head;
        if (d >= rotated) {
            continue;
        }
        const double divisor = divisors != NULL ? divisors->numbers[d / 2] : 1.0;
        const double angle = position * pow(1000.0, -(double)d / rotated) / factor / divisor;
        const double a = x[i];
        x[i] = a * cos(angle) - x[i + 1] * sin(angle);
        x[i + 1] = x[i + 1] * cos(angle) + a * sin(angle);
    }
}

/* A row of a cache. part 0: K, 1: V */
static void recall(const plain_t *p, int layer, int part, int64_t row, double *numbers)
{
    const model_t *m = p->model;
    const format_t *f = m->cache;
    const int64_t head = m->sizes.head, group = f->kind != NULL ? f->group : head;
    const int64_t groups = (head + group - 1) / group;
    void *const *cache = m->layers[layer].cache + 2 * part;
    for (int64_t i = 0; i < head; i++) {
        numbers[i] = orc_decode(f->type, cache[0], row * head + i);
        if (f->kind != NULL) {
            numbers[i] *= orc_decode(f->scale_type, cache[1], row * groups + i / group);
        }
    }
}

/* Attention of one token over the engine's cache, whose newest row must be x's key and value. */
static void attend(const plain_t *p, int layer, int token, const double *q, double *const kv[2],
                   double *y)
{
    const sizes_t *s = &p->model->sizes;
    const int head = (int)s->head, queries = (int)(s->heads / s->kv_heads);
    double row[128], scores[512];
    for (int h = 0; h < s->heads; h++) {
        const int64_t first = h / queries * p->model->capacity;
        double most = -INFINITY, total = 0.0;
        for (int part = 0; part < 2 && h % queries == 0; part++) {
            recall(p, layer, part, first + token, row);
            check_stored(row, kv[part] + h / queries * head, head, p->model->cache, p->tolerance);
        }
        for (int t = 0; t <= token; t++) {
            recall(p, layer, 0, first + t, row);
            scores[t] = 0.0;
            for (int d = 0; d < head; d++) {
                scores[t] += q[h * head + d] * row[d] / sqrt(head);
            }
            most = fmax(most, scores[t]);
        }
        for (int t = 0; t <= token; t++) {
            total += scores[t] = exp(scores[t] - most);
        }
        for (int d = 0; d < head; d++) {
            y[h * head + d] = 0.0;
        }
        for (int t = 0; t <= token; t++) {
            recall(p, layer, 1, first + t, row);
            for (int d = 0; d < head; d++) {
                y[h * head + d] += scores[t] / total * row[d];
            }
        }
    }
}

static void plain_layer(const plain_t *p, int layer, int token, double *x)
{
    const made_sizes_t *s = &p->made->sizes;
    double *const *w = p->weights[layer];
    const int hidden = s->hidden, all = made_head(s) * s->heads, kv = made_head(s) * s->kv_heads;
    double h[128], q[128], k[128], v[128], y[128], gate[256], up[256];
    char name[40];
    snprintf(name, sizeof name, "blk.%d.attn_norm.weight", layer);
    norm(p->made, name, x, h);
    product(w[Q], all, hidden, h, q);
    product(w[K], kv, hidden, h, k);
    product(w[V], kv, hidden, h, v);
    rotate(p->made, q, s->heads, token);
    rotate(p->made, k, s->kv_heads, token);
    attend(p, layer, token, q, (double *const[2]){k, v}, y);
    product(w[OUT], hidden, all, y, h);
    for (int i = 0; i < hidden; i++) {
        x[i] += h[i];
    }
    snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", layer);
    norm(p->made, name, x, h);
    product(w[GATE], s->inner, hidden, h, gate);
    product(w[UP], s->inner, hidden, h, up);
    for (int i = 0; i < s->inner; i++) {
        gate[i] = gate[i] / (1.0 + exp(-gate[i])) * up[i];
    }
    product(w[DOWN], hidden, s->inner, gate, h);
    for (int i = 0; i < hidden; i++) {
        x[i] += h[i];
    }
}

static void plain_logits(const plain_t *p, int token, int32_t id, double *logits)
{
    const made_sizes_t *s = &p->made->sizes;
    const made_tensor_t *embedding = made_find(p->made, "token_embd.weight");
    double x[128], y[128];
    memcpy(x, embedding->numbers + id * s->hidden, (size_t)s->hidden * sizeof x[0]);
    for (int i = 0; i < MADE_LAYERS; i++) {
        plain_layer(p, i, token, x);
    }
    norm(p->made, "output_norm.weight", x, y);
    product(p->head, s->vocabulary, s->hidden, y, logits);
}

/* ---- comparisons ----------------------------------------------------------------------------- */

typedef struct way {
    sinter_fpmath_mode_t mode;
    int threads, n_steps;
    int steps[6];     /* tokens of each */
    double tolerance; /* of logits, as a part of the largest one */
} way_t;

/* The logits of each step, and all that went into the cache before. */
static void compare(const made_t *made, const model_desc_t *desc, const way_t *way)
{
    static int32_t tokens[512];
    static float got[512];
    static double want[512];
    gguf_t file;
    model_t m;
    plain_t p = {.tolerance = way->tolerance};
    const char *error = gguf_open(&file, made->file, made->bytes);
    error = error != NULL ? error : model_open(&m, &file, desc);
    if (!CHECK(error == NULL, "%s", error)) {
        return;
    }
    plain_open(&p, made, &m, desc->head);
    int past = 0;
    for (int step = 0; step < way->n_steps; step++) {
        const int n = way->steps[step];
        double worst = 0.0, largest = 0.0;
        for (int i = 0; i < n; i++) {
            tokens[i] = (past + i) * 37 % made->sizes.vocabulary;
        }
        error = model_step(&m, (size_t)n, tokens, got);
        if (!CHECK(error == NULL, "%s", error)) {
            break;
        }
        for (int i = 0; i < n; i++) {
            plain_logits(&p, past + i, tokens[i], want);
        }
        past += n;
        for (int i = 0; i < made->sizes.vocabulary; i++) {
            worst = fmax(worst, fabs(got[i] - want[i]));
            largest = fmax(largest, fabs(want[i]));
        }
        CHECK(worst <= way->tolerance * largest,
              "weights %s, cache %s, mode %s, %d of %d tokens: logits are %g of %g off",
              desc->weights->name, desc->cache->name, sinter_fpmath_mode_name(desc->mode), n, past,
              worst, largest);
    }
    plain_close(&p);
    model_close(&m);
}

/* In strict mode sums of f32. In mode int8 each of the 13 products that follow one another (six in
 * a layer, and the last one) takes an activation whose codes are half a step off, 0.5 / 127 of the
 * largest number of a group. Results are smaller than such numbers times all weights, because
 * terms cancel: twice as much. */
#define STRICT 2e-5
#define INTEGERS (2 * 13 * 0.5 / 127.0)

/* The prompt in one go, in chunks, and in integers. */
static void test_formats(void)
{
    static const way_t ways[3] = {
        {sinter_fpmath_mode_strict, 1, 3, {7, 1, 1}, STRICT},
        {sinter_fpmath_mode_strict, 2, 4, {3, 4, 1, 2}, STRICT},
        {sinter_fpmath_mode_int8, 2, 3, {6, 1, 1}, INTEGERS},
    };
    for (int i = 0; i < SHAPES * WEIGHT_FORMATS * CACHE_FORMATS; i++) {
        const int w = i % WEIGHT_FORMATS, c = i / WEIGHT_FORMATS % CACHE_FORMATS;
        made_t made;
        made_model(&made, &shapes[i / WEIGHT_FORMATS / CACHE_FORMATS], 11);
        for (int way = 0; way < 3; way++) {
            const model_desc_t desc = {
                .weights = &weight_formats[w],
                .head = &weight_formats[(w + c + way) % WEIGHT_FORMATS],
                .cache = &cache_formats[c],
                .mode = ways[way].mode,
                .threads = ways[way].threads,
            };
            compare(&made, &desc, &ways[way]);
        }
        made_free(&made);
    }
}

/* The least that may stand for an engine's own threads. */
static void one_by_one(void *pool, int workers, void (*run)(void *task, int worker), void *task)
{
    ++*(int *)pool;
    for (int i = 0; i < workers; i++) {
        run(task, i);
    }
}

/* Caches begin with room for 256 tokens. */
static void test_growing(void)
{
    static const way_t way = {sinter_fpmath_mode_strict, 2, 4, {254, 1, 9, 1}, STRICT};
    made_t made;
    made_model(&made, &shapes[0], 12);
    for (int c = 0; c < CACHE_FORMATS; c++) {
        int loops = 0;
        const model_desc_t desc = {&weight_formats[2],
                                   &weight_formats[0],
                                   &cache_formats[c],
                                   way.mode,
                                   way.threads,
                                   one_by_one,
                                   &loops};
        compare(&made, &desc, &way);
        CHECK_THAT(loops > 0);
    }
    made_free(&made);
}

/* Steps that are refused leave the model as it was. */
static void test_errors(void)
{
    const model_desc_t desc = {.weights = &weight_formats[0],
                               .head = &weight_formats[0],
                               .cache = &cache_formats[1],
                               .threads = 1};
    static int32_t tokens[401];
    float before[131], after[131];
    made_t made;
    gguf_t file;
    model_t m;
    made_model(&made, &shapes[0], 14);
    CHECK_THAT(gguf_open(&file, made.file, made.bytes) == NULL);
    CHECK_THAT(model_open(&m, &file, &desc) == NULL);
    CHECK_THAT(model_step(&m, 3, tokens, before) == NULL && m.past == 3);
    CHECK_THAT(model_step(&m, 0, tokens, after) != NULL);
    CHECK_THAT(model_step(&m, 398, tokens, after) != NULL); /* the model's context is 400 */
    tokens[1] = 131;
    CHECK_THAT(model_step(&m, 2, tokens, after) != NULL);
    CHECK_THAT(m.past == 3);
    m.past = 0;
    CHECK_THAT(model_step(&m, 3, (const int32_t[3]){0, 0, 0}, after) == NULL);
    CHECK_THAT(memcmp(before, after, sizeof before) == 0);
    model_close(&m);
    made_free(&made);
}

/* Whatever a file has is used, changes nothing, or is refused by its name. */
static void test_names(void)
{
    static const struct {
        const char *key, *text, *tensor, *refused;
    } cases[] = {
        {"general.name", "a model", NULL, NULL},
        {"quantize.imatrix.file", "notes", NULL, NULL},
        {"tokenizer.chat_template", "{{ messages }}", NULL, NULL},
        {"tokenizer.ggml.pre", "smollm", NULL, NULL},
        {"llama.rope.scaling.type", "none", NULL, NULL},
        {"llama.attention.layer_norm_rms_epsilon", NULL, NULL, NULL},
        {"llama.rope.scaling.type", "yarn", NULL, "llama.rope.scaling.type"},
        {"llama.rope.scaling.original_context_length", NULL, NULL, "original_context_length"},
        {"llama.rope.scale_linear", NULL, NULL, "key llama.rope.scale_linear"},
        {"llama.attention.key_length", NULL, NULL, "llama.attention.value_length"},
        {"llama.rope.scaling.factor", "4", NULL, "llama.rope.scaling.factor is no number"},
        {"llama.expert_count", NULL, NULL, "key llama.expert_count"},
        {"llama.attention.sliding_window", NULL, NULL, "key llama.attention.sliding_window"},
        {"tokenizer.ggml.pre", "llama-bpe", NULL, "tokenizer.ggml.pre"},
        {"tokenizer.ggml.model", "llama", NULL, "tokenizer.ggml.model"},
        {"tokenizer.ggml.add_bos_token", NULL, NULL, "tokenizer.ggml.add_bos_token"},
        {NULL, NULL, "blk.0.attn_q.bias", "tensor blk.0.attn_q.bias"},
        {NULL, NULL, "blk.1.ffn_gate_inp.weight", "tensor blk.1.ffn_gate_inp.weight"},
        {NULL, NULL, "blk.2.attn_q.weight", "blk.2.attn_q.weight"},
        {NULL, NULL, "rope_factors_long.weight", "tensor rope_factors_long.weight"},
        {NULL, NULL, "rope_freqs.weight", "rope_freqs.weight"}, /* of another size */
    };
    const model_desc_t desc = {.weights = &weight_formats[0],
                               .head = &weight_formats[0],
                               .cache = &cache_formats[0],
                               .threads = 1};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        made_sizes_t sizes = shapes[0];
        made_t made;
        gguf_t file;
        vocabulary_t v = {NULL};
        model_t m = {.stream = NULL};
        sizes.key = cases[i].key;
        sizes.text = cases[i].text;
        sizes.tensor = cases[i].tensor;
        made_model(&made, &sizes, 15);
        const char *error = gguf_open(&file, made.file, made.bytes);
        error = error != NULL ? error : vocabulary_open(&v, &file);
        error = error != NULL ? error : model_open(&m, &file, &desc);
        const char *name = cases[i].key != NULL ? cases[i].key : cases[i].tensor;
        if (cases[i].refused == NULL) {
            CHECK(error == NULL, "%s: %s", name, error);
        } else {
            CHECK(error != NULL && strstr(error, cases[i].refused) != NULL, "%s: %s", name,
                  error != NULL ? error : "no error");
        }
        model_close(&m);
        vocabulary_close(&v);
        made_free(&made);
    }
}

static void test_text(void)
{
    made_t made;
    gguf_t file;
    vocabulary_t v;
    int32_t tokens[32];
    made_model(&made, &shapes[0], 13);
    CHECK_THAT(gguf_open(&file, made.file, made.bytes) == NULL);
    CHECK_THAT(vocabulary_open(&v, &file) == NULL && v.count == MADE_TOKENS);
    /* A byte is the token of its number. Of two pairs, the one that is first in the list is joined:
     * " worl" is made of " w" and "orl". A digit is a word of its own. */
    static const struct {
        const char *text;
        size_t n;
        int32_t tokens[8];
    } cases[] = {
        {"", 0, {0}},
        {"hello", 1, {259}},
        {"hell", 1, {258}},
        {"hello worl 42<|end|>!", 7, {259, 264, ' ', '4', '2', 265, '!'}},
        {"a  4", 4, {'a', ' ', ' ', '4'}},
        {"a  hell\n", 5, {'a', ' ', ' ', 258, '\n'}},
        {"<|he's", 5, {'<', '|', 256, '\'', 's'}},
        {"\xC3\xA9 ", 3, {0xC3, 0xA9, ' '}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const size_t n = encode(&v, cases[i].text, tokens);
        CHECK(n == cases[i].n && memcmp(tokens, cases[i].tokens, n * sizeof tokens[0]) == 0,
              "\"%s\": %zu tokens", cases[i].text, n);
    }
    CHECK_THAT(is_token(&v, 265, "<|end|>") && !is_token(&v, 264, "<|end|>"));
    vocabulary_close(&v);
    made_free(&made);
}

int main(void)
{
    test_text();
    test_formats();
    test_growing();
    test_errors();
    test_names();
    return check_finish();
}
