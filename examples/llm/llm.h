/* A small engine for models of the llama family, on the public API of Sinter alone.
 * docs/integration.md walks through it.
 *
 *   gguf.c    reads a GGUF file, and takes its blocks of codes apart
 *   text.c    text to tokens and back
 *   graphs.c  the graphs: a layer, what stands before and behind the layers, conversion of weights
 *   model.c   memory of weights and caches; runs the graphs
 *   profile.c a step partition by partition
 *   main.c    the command line
 *
 * Functions that can fail return NULL, or a text that says why, which lives until the next call
 * that fails. */
#ifndef LLM_H
#define LLM_H

#include <sinter/sinter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes the text of an error, as printf does. */
__attribute__((format(printf, 1, 2))) const char *failure(const char *format, ...);

#define TRY(call)              \
    do {                       \
        const char *e_ = call; \
        if (e_ != NULL) {      \
            return e_;         \
        }                      \
    } while (0)

/* ---- gguf.c ---------------------------------------------------------------------------------- */

/* A weight [n, k]: numbers, or codes with scales and perhaps offsets for groups along k. */
typedef struct weight {
    sinter_data_type_t type, scale_type; /* scale_type undef: numbers */
    bool offsets;                        /* y = scale * code + offset; in the type of the scales */
    int64_t n, k, group;
    const void *codes, *scales, *minima;
    void *memory; /* where they lie, if not in the file */
} weight_t;

/* A file in memory, which stays the caller's. */
typedef struct gguf {
    const uint8_t *data;
    size_t bytes, fields_at, tensors_at, data_at;
    uint64_t n_fields, n_tensors, alignment;
} gguf_t;

/* A string, which does not end with a zero. */
typedef struct string {
    const char *text;
    size_t size;
} string_t;

const char *gguf_open(gguf_t *g, const void *data, size_t bytes);
/* A number of the file; where there is none with this key, *value stays as it is. */
const char *gguf_number(const gguf_t *g, const char *key, double *value);
/* A string of the file; where there is none with this key, *value stays as it is. */
const char *gguf_string(const gguf_t *g, const char *key, string_t *value);
/* An error with the name of the first field or tensor that is not known: a file may ask for more
 * than an engine does, and would be computed without it. */
const char *gguf_check_names(const gguf_t *g, bool (*known)(string_t name, bool tensor));
bool string_is(string_t s, const char *text);
bool string_begins(string_t s, const char *text);
/* A list of strings; the caller frees *list. */
const char *gguf_strings(const gguf_t *g, const char *key, string_t **list, size_t *count);
bool gguf_has_weight(const gguf_t *g, const char *name);
/* The weight with this name; a vector has n = 1. Free it with weight_free. */
const char *gguf_weight(const gguf_t *g, const char *name, weight_t *w);
void weight_free(weight_t *w);

/* ---- text.c ---------------------------------------------------------------------------------- */

typedef struct vocabulary {
    string_t *tokens; /* by id */
    int32_t *sorted;  /* ids, in the order of their strings */
    size_t count;
} vocabulary_t;

const char *vocabulary_open(vocabulary_t *v, const gguf_t *g);
void vocabulary_close(vocabulary_t *v);
/* The tokens of a text; tokens has room for one for each byte. Returns how many there are. */
size_t encode(const vocabulary_t *v, const char *text, int32_t *tokens);
/* Prints a token. */
void print_token(const vocabulary_t *v, int32_t token);
/* Whether this is the text of a token. */
bool is_token(const vocabulary_t *v, int32_t token, const char *text);

/* ---- graphs.c -------------------------------------------------------------------------------- */

/* How numbers are stored. With scales, `group` numbers along the last dim share one. */
typedef struct format {
    const char *name;
    sinter_data_type_t type, scale_type;
    int64_t group;
    const char *kind; /* the quantization_kind of DynamicQuantize */
} format_t;

enum { WEIGHT_FORMATS = 5, CACHE_FORMATS = 4 };
extern const format_t weight_formats[WEIGHT_FORMATS], cache_formats[CACHE_FORMATS];

typedef struct sizes {
    int64_t layers, hidden, heads, kv_heads, head, inner, vocabulary, context;
    int64_t rotated; /* elements of a head that have a position; the others stay as they are */
    float epsilon;
} sizes_t;

/* Ids of the tensors that the engine binds. */
enum port {
    PORT_X = 1, /* f32 [n, hidden] */
    PORT_Y,     /* f32 [n, hidden]; of the last graph [n, vocabulary] */
    PORT_TOKENS,
    PORT_COSINES, /* f32 [1, n, rotated / 2], as the sines */
    PORT_SINES,
    PORT_SLOTS, /* s32 [n]: the rows of the cache for these tokens */
    PORT_PAST,  /* s32: tokens before these */
    PORT_SCALE,
    PORT_MASKED,
    PORT_NORM,                  /* 2: before attention, before the MLP */
    PORT_CACHE = PORT_NORM + 2, /* 4: codes and scales of K, of V */
    PORT_AFTER = PORT_CACHE + 4,
    PORT_WEIGHT = PORT_AFTER + 4, /* codes, scales, offsets of each weight */
    PORT_INNER = PORT_WEIGHT + 21 /* tensors between ops */
};

/* The weights of a layer, in the order of their ports. */
enum { Q, K, V, OUT, GATE, UP, DOWN, WEIGHTS };

/* Each returns a graph that is finalized. Dims that change are left open. */
const char *graph_embedding(sinter_graph_t **graph, const sizes_t *s, const weight_t *w);
const char *graph_layer(sinter_graph_t **graph, const sizes_t *s, const weight_t *weights,
                        const format_t *cache, sinter_fpmath_mode_t mode);
const char *graph_logits(sinter_graph_t **graph, const sizes_t *s, const weight_t *w,
                         sinter_fpmath_mode_t mode);
/* From the form of one weight, at PORT_WEIGHT, to that of another, at PORT_WEIGHT + 3. */
const char *graph_convert(sinter_graph_t **graph, const weight_t *from, const weight_t *to,
                          const format_t *format);

/* ---- model.c --------------------------------------------------------------------------------- */

typedef struct layer {
    weight_t weights[WEIGHTS];
    weight_t norms[2];
    void *cache[4];
    sinter_compiled_graph_t *graph; /* everything that stays is bound to it */
} layer_t;

enum { MOST_PARTS = 16 };

typedef struct model {
    sizes_t sizes;
    const format_t *weights, *cache;
    layer_t *layers;
    weight_t embedding, logits, norm;
    sinter_compiled_graph_t *first, *last, *prompt; /* prompt: a layer, bound to each in turn */
    sinter_partition_t *parts[MOST_PARTS];          /* of a layer */
    size_t n_parts;
    sinter_stream_t *stream;
    int64_t capacity, past; /* tokens that the caches have room for; that are in them */
    float scale, masked;
    int64_t most;        /* tokens of a step that there is memory for */
    double *frequencies; /* radians for each token, of the pairs of a head */
    float *x, *cosines, *sines;
    int32_t *slots, past32;
} model_t;

/* What a model is opened with. */
typedef struct model_desc {
    const format_t *weights, *head, *cache; /* head: of the product that gives the logits */
    sinter_fpmath_mode_t mode;
    int threads;
    sinter_parallel_for_t parallel_for; /* threads of the engine's own; NULL: OpenMP's */
    void *pool;                         /* its first argument */
} model_desc_t;

/* The file must stay in memory until model_close, which is also called after an error. */
const char *model_open(model_t *m, const gguf_t *g, const model_desc_t *desc);
void model_close(model_t *m);
/* Appends n tokens; logits [vocabulary] are those of what follows the last one. A step that does
 * not fit, or a token that does not exist, leaves the model as it was; where memory is missing, it
 * can only be closed. */
const char *model_step(model_t *m, size_t n, const int32_t *tokens, float *logits);
/* The parts of a step. bind_step binds what changes with each step to a layer's graph. */
const char *begin_step(model_t *m, size_t n, const int32_t *tokens);
const char *bind_step(const model_t *m, sinter_compiled_graph_t *c, int64_t n);
const char *end_step(model_t *m, size_t n, float *logits);
/* The error of a call of the library, or NULL. */
const char *status_error(sinter_status_t status);

/* ---- profile.c ------------------------------------------------------------------------------- */

/* As a step of one token, partition by partition. Adds to seconds [n_parts + 2] those of the first
 * graph, of each partition of all layers, and of the last graph. */
const char *model_profile(model_t *m, int32_t token, float *logits, double *seconds);

#endif
