/* A model in memory: its weights in the form that was asked for, caches that grow, and compiled
 * graphs that are bound to both. */
#include "llm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *status_error(sinter_status_t status)
{
    return status == sinter_success ? NULL : failure("%s", sinter_last_error_message());
}

/* Binds a tensor with the dims that were compiled, or those that it had. */
static const char *bind(sinter_compiled_graph_t *c, uint64_t id, const void *data)
{
    return status_error(
        sinter_compiled_graph_bind(c, id, 0, NULL, NULL, (void *)data, SINTER_BYTES_TRUSTED));
}

static const char *bind_dims(sinter_compiled_graph_t *c, uint64_t id, int ndims,
                             const sinter_dim_t *dims, const void *data)
{
    return status_error(
        sinter_compiled_graph_bind(c, id, ndims, dims, NULL, (void *)data, SINTER_BYTES_TRUSTED));
}

static const char *bind_weight(sinter_compiled_graph_t *c, uint64_t id, const weight_t *w)
{
    TRY(bind(c, id, w->codes));
    if (w->scales != NULL) {
        TRY(bind(c, id + 1, w->scales));
    }
    return w->minima != NULL ? bind(c, id + 2, w->minima) : NULL;
}

/* ---- sizes and weights ----------------------------------------------------------------------- */

/* The names of weights of a layer, in the order of their ports; then its two norms. */
static const char *const names[WEIGHTS + 2] = {"attn_q",      "attn_k",    "attn_v",
                                               "attn_output", "ffn_gate",  "ffn_up",
                                               "ffn_down",    "attn_norm", "ffn_norm"};

/* Whether the engine does what a key or a tensor asks for, or it does not change results: of the
 * keys, only those of the architecture describe the computation. Those of the tokenizer are seen to
 * in vocabulary_open. */
static bool is_known(string_t name, bool tensor)
{
    static const char *const keys[] = {"llama.block_count",
                                       "llama.embedding_length",
                                       "llama.attention.head_count",
                                       "llama.attention.head_count_kv",
                                       "llama.attention.key_length",
                                       "llama.attention.value_length",
                                       "llama.attention.layer_norm_rms_epsilon",
                                       "llama.feed_forward_length",
                                       "llama.context_length",
                                       "llama.vocab_size", /* the embedding has as many rows */
                                       "llama.rope.freq_base",
                                       "llama.rope.dimension_count",
                                       "llama.rope.scaling.type",
                                       "llama.rope.scaling.factor"};
    static const char *const tensors[] = {"token_embd.weight", "output_norm.weight",
                                          "output.weight", "rope_freqs.weight"};
    const char *const *list = tensor ? tensors : keys;
    const size_t n = tensor ? sizeof tensors / sizeof *tensors : sizeof keys / sizeof *keys;
    for (size_t i = 0; i < n; i++) {
        if (string_is(name, list[i])) {
            return true;
        }
    }
    if (!tensor) {
        return !string_begins(name, "llama.");
    }
    if (!string_begins(name, "blk.")) {
        return false;
    }
    size_t at = 4;
    while (at < name.size && name.text[at] >= '0' && name.text[at] <= '9') {
        at++;
    }
    const string_t rest = {name.text + at, name.size - at};
    for (int i = 0; i < WEIGHTS + 2; i++) {
        char known[32];
        snprintf(known, sizeof known, ".%s.weight", names[i]);
        if (string_is(rest, known)) {
            return true;
        }
    }
    return false;
}

/* A number without a default where *value is 0. */
static const char *size_of(const gguf_t *g, const char *key, double most, int64_t *value)
{
    double number = (double)*value;
    TRY(gguf_number(g, key, &number));
    if (!(number >= 1.0 && number <= most)) {
        return failure("the file has no %s, or one beyond 1 to %g", key, most);
    }
    *value = (int64_t)number;
    return NULL;
}

static const char *read_sizes(const gguf_t *g, sizes_t *s)
{
    double epsilon = 1e-5;
    string_t architecture = {NULL, 0};
    TRY(gguf_string(g, "general.architecture", &architecture));
    if (!string_is(architecture, "llama")) {
        return failure("general.architecture is not llama");
    }
    TRY(gguf_check_names(g, is_known));
    TRY(size_of(g, "llama.block_count", 1000, &s->layers));
    TRY(size_of(g, "llama.embedding_length", 1 << 20, &s->hidden));
    TRY(size_of(g, "llama.attention.head_count", 1 << 12, &s->heads));
    TRY(size_of(g, "llama.attention.head_count_kv", 1 << 12, &s->kv_heads));
    TRY(size_of(g, "llama.feed_forward_length", 1 << 20, &s->inner));
    TRY(size_of(g, "llama.context_length", 1 << 24, &s->context));
    TRY(gguf_number(g, "llama.attention.layer_norm_rms_epsilon", &epsilon));
    s->epsilon = (float)epsilon;
    char more[32];
    snprintf(more, sizeof more, "blk.%d.attn_q.weight", (int)s->layers);
    if (gguf_has_weight(g, more)) {
        return failure("the file has %s, a layer behind llama.block_count", more);
    }
    s->head = s->hidden % s->heads == 0 ? s->hidden / s->heads : 0;
    int64_t value = s->head;
    TRY(size_of(g, "llama.attention.key_length", 1 << 12, &s->head));
    TRY(size_of(g, "llama.attention.value_length", 1 << 12, &value));
    s->rotated = s->head;
    TRY(size_of(g, "llama.rope.dimension_count", (double)s->head, &s->rotated));
    if (value != s->head) {
        return failure("llama.attention.value_length is not key_length");
    }
    if (s->heads % s->kv_heads != 0 || s->rotated % 2 != 0 || !(epsilon >= 0.0)) {
        return failure("heads, or numbers of the file, do not fit together");
    }
    return NULL;
}

/* Reads a weight, whose dims must be these; n 0: any number of rows. */
static const char *read_weight(const gguf_t *g, const char *name, int64_t n, int64_t k, weight_t *w)
{
    TRY(gguf_weight(g, name, w));
    if (w->k != k || (n != 0 && w->n != n)) {
        return failure("%s is [%lld, %lld]", name, (long long)w->n, (long long)w->k);
    }
    return NULL;
}

static const char *read_norm(const gguf_t *g, const char *name, int64_t k, weight_t *w)
{
    TRY(read_weight(g, name, 1, k, w));
    return w->type == sinter_f32 ? NULL : failure("%s is not f32", name);
}

/* The angle of pair d at a position is position * base^(-2 d / rotated), divided by the factor of
 * linear scaling, and by a number for each pair if the file has them. */
static const char *read_frequencies(const gguf_t *g, model_t *m)
{
    const int64_t half = m->sizes.rotated / 2;
    double base = 10000.0, factor = 1.0;
    string_t scaling = {"linear", 6};
    TRY(gguf_number(g, "llama.rope.freq_base", &base));
    TRY(gguf_number(g, "llama.rope.scaling.factor", &factor));
    TRY(gguf_string(g, "llama.rope.scaling.type", &scaling));
    if (string_is(scaling, "none")) {
        factor = 1.0;
    } else if (!string_is(scaling, "linear")) {
        return failure("llama.rope.scaling.type is neither linear nor none");
    }
    if (!(base > 0.0) || !(factor > 0.0)) {
        return failure("llama.rope.freq_base or llama.rope.scaling.factor is not above 0");
    }
    weight_t divisors = {.codes = NULL};
    m->frequencies = malloc((size_t)half * sizeof *m->frequencies);
    const char *error = m->frequencies == NULL ? failure("no memory for frequencies") : NULL;
    if (error == NULL && gguf_has_weight(g, "rope_freqs.weight")) {
        error = read_norm(g, "rope_freqs.weight", half, &divisors);
    }
    for (int64_t d = 0; d < half && error == NULL; d++) {
        float divisor = 1.0f;
        if (divisors.codes != NULL) {
            memcpy(&divisor, (const char *)divisors.codes + 4 * d, sizeof divisor);
        }
        m->frequencies[d] = pow((double)(float)base, -(double)d / (double)half) / factor / divisor;
        if (!(divisor > 0.0f)) {
            error = failure("rope_freqs.weight has a number that is not above 0");
        }
    }
    weight_free(&divisors);
    return error;
}

/* Bytes of n numbers in a row of their own. */
static size_t row_bytes(sinter_data_type_t type, int64_t n)
{
    sinter_logical_tensor_t lt;
    size_t bytes = 0;
    sinter_logical_tensor_init(&lt, 1, type, 1, &n, sinter_tensor_property_undef);
    sinter_logical_tensor_get_bytes(&lt, &bytes);
    return bytes;
}

/* Compiles a graph and destroys it. */
static const char *compile(sinter_graph_t *graph, sinter_compiled_graph_t **compiled)
{
    const char *error = status_error(sinter_graph_compile(graph, NULL, 0, NULL, compiled));
    sinter_graph_destroy(&graph);
    return error;
}

/* Brings a weight into another format: a graph does it. */
static const char *convert(weight_t *w, const format_t *f, sinter_stream_t *stream)
{
    sinter_graph_t *graph = NULL;
    sinter_compiled_graph_t *c = NULL;
    weight_t to = {f->type, f->scale_type, false, w->n, w->k, f->kind != NULL ? f->group : 1,
                   NULL,    NULL,          NULL,  NULL};
    if (f->type == sinter_data_type_undef) {
        return NULL;
    }
    const size_t codes = row_bytes(to.type, to.k) * (size_t)to.n;
    const int64_t groups = (to.k + to.group - 1) / to.group;
    to.memory = malloc(codes + (size_t)groups * (size_t)to.n * 2);
    to.codes = to.memory;
    to.scales = f->kind != NULL ? (char *)to.memory + codes : NULL;
    if (to.memory == NULL) {
        return failure("no memory for a weight");
    }
    const char *error = graph_convert(&graph, w, &to, f);
    error = error != NULL ? error : compile(graph, &c);
    error = error != NULL ? error : bind_weight(c, PORT_WEIGHT, w);
    error = error != NULL ? error : bind_weight(c, PORT_WEIGHT + 3, &to);
    error = error != NULL ? error : status_error(sinter_compiled_graph_execute(c, stream));
    sinter_compiled_graph_destroy(&c);
    weight_free(w);
    *w = to;
    return error;
}

static const char *read_layer(const gguf_t *g, model_t *m, int64_t i)
{
    const sizes_t *s = &m->sizes;
    const int64_t kv = s->kv_heads * s->head, q = s->heads * s->head,
                  rows[WEIGHTS] = {q, kv, kv, s->hidden, s->inner, s->inner, s->hidden};
    char name[64];
    for (int at = 0; at < WEIGHTS + 2; at++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", (int)i, names[at]);
        if (at >= WEIGHTS) {
            TRY(read_norm(g, name, s->hidden, &m->layers[i].norms[at - WEIGHTS]));
            continue;
        }
        weight_t *w = &m->layers[i].weights[at];
        TRY(read_weight(g, name, rows[at], at == DOWN ? s->inner : at == OUT ? q : s->hidden, w));
        TRY(convert(w, m->weights, m->stream));
        if (i > 0 && (w->type != m->layers[0].weights[at].type ||
                      w->group != m->layers[0].weights[at].group)) {
            return failure("%s has another type than that of layer 0", name);
        }
    }
    return NULL;
}

/* ---- caches ---------------------------------------------------------------------------------- */

/* Part 0 of a cache is its codes, part 1 its scales. */
static int64_t cache_width(const model_t *m, int part)
{
    const int64_t head = m->sizes.head, group = m->cache->group;
    return part == 0 ? head : m->cache->kind == NULL ? 0 : (head + group - 1) / group;
}

/* From one tensor of a layer's caches to the next: without scales, two. */
static int cache_step(const model_t *m)
{
    return m->cache->kind == NULL ? 2 : 1;
}

static size_t cache_row(const model_t *m, int part)
{
    return row_bytes(part == 0 ? m->cache->type : m->cache->scale_type, cache_width(m, part));
}

/* Gives the caches of a layer room for more tokens. Each head has its tokens one after the
 * other, so that heads move. */
static const char *grow_layer(model_t *m, layer_t *l, int64_t capacity)
{
    const size_t heads = (size_t)m->sizes.kv_heads;
    for (int i = 0; i < 4; i += cache_step(m)) {
        const size_t row = cache_row(m, i % 2), size = row * (size_t)capacity;
        char *cache = calloc(heads, size);
        if (cache == NULL) {
            return failure("no memory for a cache of %lld tokens", (long long)capacity);
        }
        for (size_t h = 0; h < heads && m->past > 0; h++) {
            memcpy(cache + h * size, (char *)l->cache[i] + h * row * (size_t)m->capacity,
                   row * (size_t)m->past);
        }
        free(l->cache[i]);
        l->cache[i] = cache;
    }
    return NULL;
}

/* Binds what stays until the caches grow. The outputs of ScatterRows are not bound: they take the
 * buffers of the caches. */
static const char *bind_layer(const model_t *m, const layer_t *l, int64_t capacity,
                              sinter_compiled_graph_t *c)
{
    for (int i = 0; i < 4; i += cache_step(m)) {
        const sinter_dim_t dims[4] = {1, m->sizes.kv_heads, capacity, cache_width(m, i % 2)};
        TRY(bind_dims(c, PORT_CACHE + (uint64_t)i, 4, dims, l->cache[i]));
    }
    for (uint64_t i = 0; i < WEIGHTS; i++) {
        TRY(bind_weight(c, PORT_WEIGHT + 3 * i, &l->weights[i]));
    }
    TRY(bind(c, PORT_NORM, l->norms[0].codes));
    TRY(bind(c, PORT_NORM + 1, l->norms[1].codes));
    TRY(bind(c, PORT_SCALE, &m->scale));
    TRY(bind(c, PORT_MASKED, &m->masked));
    return bind(c, PORT_PAST, &m->past32);
}

static const char *reserve_caches(model_t *m, int64_t tokens)
{
    int64_t capacity = m->capacity > 0 ? m->capacity : 256;
    while (capacity < tokens) {
        capacity *= 2;
    }
    for (int64_t i = 0; i < m->sizes.layers && capacity != m->capacity; i++) {
        TRY(grow_layer(m, &m->layers[i], capacity));
        TRY(bind_layer(m, &m->layers[i], capacity, m->layers[i].graph));
    }
    m->capacity = capacity;
    return NULL;
}

/* Memory for a step of n tokens. */
static const char *reserve_step(model_t *m, int64_t n)
{
    if (n <= m->most) {
        return NULL;
    }
    const size_t count = (size_t)n, half = (size_t)m->sizes.rotated / 2;
    free(m->x);
    free(m->slots);
    m->most = 0;
    m->x = malloc(count * ((size_t)m->sizes.hidden + 2 * half) * sizeof *m->x);
    m->slots = malloc(count * sizeof *m->slots);
    if (m->x == NULL || m->slots == NULL) {
        return failure("no memory for a step of %lld tokens", (long long)n);
    }
    m->cosines = m->x + count * (size_t)m->sizes.hidden;
    m->sines = m->cosines + count * half;
    m->most = n;
    return NULL;
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* One compile for all layers: a compiled partition knows shapes, not data. */
static const char *compile_layers(model_t *m, sinter_fpmath_mode_t mode)
{
    sinter_graph_t *graph = NULL;
    sinter_compiled_partition_t *parts[MOST_PARTS];
    size_t n = 0;
    TRY(graph_layer(&graph, &m->sizes, m->layers[0].weights, m->cache, mode));
    const char *error = status_error(sinter_graph_compile(graph, NULL, 0, NULL, &m->prompt));
    if (error == NULL) {
        error = status_error(sinter_compiled_graph_get_partition_num(m->prompt, &n));
    }
    if (error == NULL && n > MOST_PARTS) {
        error = failure("a layer of %zu partitions", n);
    }
    if (error == NULL) {
        error = status_error(sinter_compiled_graph_get_partitions(m->prompt, n, NULL, parts));
    }
    if (error == NULL) {
        error = status_error(sinter_graph_get_partitions(graph, n, m->parts));
        m->n_parts = n;
    }
    for (int64_t i = 0; i < m->sizes.layers && error == NULL; i++) {
        error =
            status_error(sinter_compiled_graph_create(&m->layers[i].graph, NULL, graph, n, parts));
    }
    sinter_graph_destroy(&graph);
    return error;
}

static const char *open_ends(model_t *m, const gguf_t *g, const model_desc_t *desc)
{
    sizes_t *s = &m->sizes;
    sinter_graph_t *graph = NULL;
    weight_t *w = &m->logits;
    TRY(read_weight(g, "token_embd.weight", 0, s->hidden, &m->embedding));
    s->vocabulary = m->embedding.n;
    const bool separate = gguf_has_weight(g, "output.weight");
    if (separate || desc->head->type != sinter_data_type_undef) {
        const char *name = separate ? "output.weight" : "token_embd.weight";
        TRY(read_weight(g, name, s->vocabulary, s->hidden, w));
        TRY(convert(w, desc->head, m->stream));
    } else {
        w = &m->embedding; /* one weight for both */
    }
    TRY(read_norm(g, "output_norm.weight", s->hidden, &m->norm));
    TRY(graph_embedding(&graph, s, &m->embedding));
    TRY(compile(graph, &m->first));
    TRY(bind_weight(m->first, PORT_WEIGHT, &m->embedding));
    TRY(graph_logits(&graph, s, w, desc->mode));
    TRY(compile(graph, &m->last));
    TRY(bind(m->last, PORT_NORM, m->norm.codes));
    return bind_weight(m->last, PORT_WEIGHT, w);
}

const char *model_open(model_t *m, const gguf_t *g, const model_desc_t *desc)
{
    const sinter_stream_desc_t stream = {.size = sizeof stream,
                                         .threads = desc->threads,
                                         .parallel_for = desc->parallel_for,
                                         .pool = desc->pool};
    *m = (model_t){.weights = desc->weights, .cache = desc->cache, .masked = -INFINITY};
    TRY(read_sizes(g, &m->sizes));
    TRY(read_frequencies(g, m));
    TRY(status_error(sinter_stream_create(&m->stream, NULL, &stream)));
    m->scale = 1.0f / sqrtf((float)m->sizes.head);
    m->layers = calloc((size_t)m->sizes.layers, sizeof *m->layers);
    if (m->layers == NULL) {
        return failure("no memory for the layers");
    }
    for (int64_t i = 0; i < m->sizes.layers; i++) {
        TRY(read_layer(g, m, i));
    }
    TRY(open_ends(m, g, desc));
    return compile_layers(m, desc->mode);
}

void model_close(model_t *m)
{
    for (int64_t i = 0; m->layers != NULL && i < m->sizes.layers; i++) {
        layer_t *l = &m->layers[i];
        sinter_compiled_graph_destroy(&l->graph);
        for (int at = 0; at < WEIGHTS; at++) {
            weight_free(&l->weights[at]);
        }
        weight_free(&l->norms[0]);
        weight_free(&l->norms[1]);
        for (int at = 0; at < 4; at++) {
            free(l->cache[at]);
        }
    }
    for (size_t i = 0; i < m->n_parts; i++) {
        sinter_partition_destroy(&m->parts[i]);
    }
    sinter_compiled_graph_destroy(&m->first);
    sinter_compiled_graph_destroy(&m->last);
    sinter_compiled_graph_destroy(&m->prompt);
    sinter_stream_destroy(&m->stream);
    weight_free(&m->embedding);
    weight_free(&m->logits);
    weight_free(&m->norm);
    free(m->frequencies);
    free(m->layers);
    free(m->x);
    free(m->slots);
    *m = (model_t){.stream = NULL};
}

/* ---- running --------------------------------------------------------------------------------- */

/* What all layers of a step share: rows of the cache, and angles. */
static void prepare(model_t *m, int64_t n)
{
    const int64_t half = m->sizes.rotated / 2;
    m->past32 = (int32_t)m->past;
    for (int64_t i = 0; i < n; i++) {
        m->slots[i] = (int32_t)(m->past + i);
        for (int64_t d = 0; d < half; d++) {
            const double angle = (double)m->slots[i] * m->frequencies[d];
            m->cosines[i * half + d] = (float)cos(angle);
            m->sines[i * half + d] = (float)sin(angle);
        }
    }
}

/* Binds what changes with each step; x is updated in place. */
const char *bind_step(const model_t *m, sinter_compiled_graph_t *c, int64_t n)
{
    const sinter_dim_t rows[2] = {n, m->sizes.hidden}, angles[3] = {1, n, m->sizes.rotated / 2};
    TRY(bind_dims(c, PORT_X, 2, rows, m->x));
    TRY(bind_dims(c, PORT_Y, 2, rows, m->x));
    TRY(bind_dims(c, PORT_COSINES, 3, angles, m->cosines));
    TRY(bind_dims(c, PORT_SINES, 3, angles, m->sines));
    return bind_dims(c, PORT_SLOTS, 1, &n, m->slots);
}

static const char *embed(model_t *m, size_t n, const int32_t *tokens)
{
    const sinter_dim_t rows[2] = {(sinter_dim_t)n, m->sizes.hidden};
    TRY(bind_dims(m->first, PORT_TOKENS, 1, rows, tokens));
    TRY(bind_dims(m->first, PORT_Y, 2, rows, m->x));
    return status_error(sinter_compiled_graph_execute(m->first, m->stream));
}

const char *begin_step(model_t *m, size_t n, const int32_t *tokens)
{
    if (n < 1 || (int64_t)n > m->sizes.context - m->past) {
        return failure("%zu tokens do not fit: %lld of %lld are there", n, (long long)m->past,
                       (long long)m->sizes.context);
    }
    TRY(reserve_caches(m, m->past + (int64_t)n));
    TRY(reserve_step(m, (int64_t)n));
    prepare(m, (int64_t)n);
    return embed(m, n, tokens);
}

const char *end_step(model_t *m, size_t n, float *logits)
{
    m->past += (int64_t)n;
    TRY(bind(m->last, PORT_X, m->x + (int64_t)(n - 1) * m->sizes.hidden));
    TRY(bind(m->last, PORT_Y, logits));
    return status_error(sinter_compiled_graph_execute(m->last, m->stream));
}

/* A single token runs the graphs that stay bound. Many tokens need much memory between
 * partitions, so that one graph is bound to each layer in turn. */
const char *model_step(model_t *m, size_t n, const int32_t *tokens, float *logits)
{
    TRY(begin_step(m, n, tokens));
    for (int64_t i = 0; i < m->sizes.layers; i++) {
        sinter_compiled_graph_t *c = n == 1 ? m->layers[i].graph : m->prompt;
        if (n > 1) {
            TRY(bind_layer(m, &m->layers[i], m->capacity, c));
        }
        TRY(bind_step(m, c, (int64_t)n));
        TRY(status_error(sinter_compiled_graph_execute(c, m->stream)));
    }
    return end_step(m, n, logits);
}
