/* Decoder layers of real networks as compiled graphs: each is at most six partitions, is compiled
 * once for all numbers of tokens and of rows of the cache, updates its caches in place, and
 * allocates nothing once the largest numbers have been there. Cases are the lines of
 * tests/lists/layers.list that have --dynamic; the list itself compares them with the oracle. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "fill.h"
#include "options.h"
#include "passive.h"
#include "rewrite.h"

enum { MOST_WORDS = 32, MOST_SIZES = 8, MOST_INPUTS = 96, MOST_PARTS = 6 };

/* ---- allocations ----------------------------------------------------------------------------- */

static long calls, live;

static void *counted_alloc(size_t bytes, size_t alignment, void *user)
{
    void *p = NULL;
    (void)user;
    if (posix_memalign(&p, alignment < sizeof p ? sizeof p : alignment, bytes)) {
        return NULL;
    }
    calls++;
    live++;
    return p;
}

static void counted_free(void *p, void *user)
{
    (void)user;
    live -= p != NULL;
    free(p);
}

/* ---- the lines of a case --------------------------------------------------------------------- */

/* One line: numbers of tokens and of rows, with the inputs that belong to them. */
typedef struct size {
    char line[2048], words[2048]; /* opt points into words */
    gr_options_t opt;
    model_t model; /* with these numbers */
    unsigned char *data[MOST_INPUTS];
    sinter_logical_tensor_t lts[MOST_INPUTS];
} size_case_t;

typedef struct layer {
    char path[1024];
    sinter_engine_t *engine;
    sinter_compiled_graph_t *whole;
    size_t n_inputs, n_sizes;
    sinter_logical_tensor_t inputs[MOST_INPUTS];
    size_case_t sizes[MOST_SIZES];
} layer_t;

/* Numbers of --in=ID:=V,V.. instead of those that the filler makes. */
static void fill_given(const char *in, const sinter_logical_tensor_t *lt, unsigned char *data)
{
    char key[32];
    const char *at;
    int32_t value[16];
    int n = 0;
    snprintf(key, sizeof key, "%llu:=", (unsigned long long)lt->id);
    at = in != NULL ? strstr(in, key) : NULL;
    if (at == NULL || (at > in && at[-1] != '+') || lt->data_type != sinter_s32) {
        return;
    }
    for (at += strlen(key); n < 16; at++) {
        char *end;
        value[n++] = (int32_t)strtol(at, &end, 10);
        at = end;
        if (*at != ',') {
            break;
        }
    }
    for (int64_t i = 0; i < gr_elements(lt); i++) {
        memcpy(data + sizeof *value * (size_t)i, &value[i % n], sizeof *value);
    }
}

/* Constants are those of the first size: they do not change. */
static void fill_size(const layer_t *l, size_case_t *s)
{
    for (size_t i = 0; i < l->n_inputs; i++) {
        const model_tensor_t *t = model_find(&s->model, l->inputs[i].id);
        const bool first = s == &l->sizes[0];
        size_t bytes = 0;
        s->lts[i] = *model_lt(&s->model, t);
        CHECK_THAT(sinter_logical_tensor_get_bytes(&s->lts[i], &bytes) == sinter_success);
        if (!first && s->lts[i].property == sinter_tensor_property_constant) {
            continue;
        }
        s->data[i] = malloc(bytes + 1);
        fill_input(&s->model, t, &s->lts[i], (uint64_t)s->opt.seed, s->data[i]);
        fill_given(s->opt.in, &s->lts[i], s->data[i]);
    }
}

static void compile(layer_t *l)
{
    const sinter_engine_desc_t desc = {.size = sizeof desc,
                                       .allocator = {counted_alloc, counted_free, NULL}};
    sinter_graph_t *graph = NULL;
    model_t model;
    gr_error_t err = {{0}, 0};
    size_t n = 0, pairs = 0;
    const sinter_inplace_pair_t *list;
    CHECK_THAT(sinter_engine_create(&l->engine, &desc) == sinter_success);
    CHECK(!model_load_file(&model, l->path, &err) && !gr_rewrite(&model, &l->sizes[0].opt, &err) &&
              !gr_rewrite_dynamic(&model, l->sizes[0].opt.dynamic, &err) &&
              !model_build(&model, l->engine, &graph, &err),
          "%s: %s", l->path, err.text);
    model_free(&model);
    CHECK(sinter_graph_compile(graph, l->engine, 0, NULL, &l->whole) == sinter_success, "%s: %s",
          l->path, sinter_last_error_message());
    sinter_graph_destroy(&graph);
    CHECK_THAT(sinter_compiled_graph_get_partition_num(l->whole, &n) == sinter_success);
    CHECK(n <= MOST_PARTS, "%s: %zu partitions", l->path, n);
    CHECK_THAT(sinter_compiled_graph_get_inplace_ports(l->whole, &pairs, &list) == sinter_success);
    CHECK(pairs >= 4, "%s: %zu pairs, codes and scales of K and V are four", l->path, pairs);
    CHECK_THAT(sinter_compiled_graph_get_input_num(l->whole, &l->n_inputs) == sinter_success &&
               l->n_inputs <= MOST_INPUTS);
    CHECK_THAT(sinter_compiled_graph_get_inputs(l->whole, l->n_inputs, l->inputs) ==
               sinter_success);
}

/* ---- running it ------------------------------------------------------------------------------ */

static bool in_pair(const layer_t *l, uint64_t output)
{
    const sinter_inplace_pair_t *pairs = NULL;
    size_t n = 0;
    CHECK_THAT(sinter_compiled_graph_get_inplace_ports(l->whole, &n, &pairs) == sinter_success);
    for (size_t i = 0; i < n; i++) {
        if (pairs[i].output_id == output) {
            return true;
        }
    }
    return false;
}

/* Outputs that are in no pair, and the hidden state, get memory of the test. */
static void run_size(const layer_t *l, size_t at, sinter_stream_t *stream, unsigned char *memory)
{
    const size_case_t *s = &l->sizes[at];
    sinter_logical_tensor_t out[16];
    size_t n = 0;
    for (size_t i = 0; i < l->n_inputs; i++) {
        const sinter_logical_tensor_t *lt = &s->lts[i];
        if (s->data[i] == NULL) {
            continue; /* a constant, which stays bound */
        }
        CHECK(sinter_compiled_graph_bind(l->whole, lt->id, lt->ndims, lt->dims, NULL, s->data[i],
                                         SINTER_BYTES_TRUSTED) == sinter_success,
              "%s: %s", l->path, sinter_last_error_message());
    }
    CHECK_THAT(sinter_compiled_graph_get_output_num(l->whole, &n) == sinter_success && n <= 16);
    CHECK_THAT(sinter_compiled_graph_get_outputs(l->whole, n, out) == sinter_success);
    for (size_t i = 0; i < n; i++) {
        CHECK_THAT(in_pair(l, out[i].id) ||
                   sinter_compiled_graph_bind(l->whole, out[i].id, 0, NULL, NULL, memory,
                                              SINTER_BYTES_TRUSTED) == sinter_success);
    }
    CHECK(sinter_compiled_graph_execute(l->whole, stream) == sinter_success, "%s: %s", s->line,
          sinter_last_error_message());
}

static void run_layer(layer_t *l)
{
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = 2};
    static unsigned char memory[1 << 22];
    sinter_stream_t *stream = NULL;
    compile(l);
    CHECK_THAT(sinter_stream_create(&stream, l->engine, &desc) == sinter_success);
    for (size_t i = 0; i < l->n_sizes; i++) {
        fill_size(l, &l->sizes[i]);
    }
    for (size_t i = 0; i < l->n_sizes; i++) {
        run_size(l, i, stream, memory);
    }
    const long before = calls;
    for (size_t i = 0; i < 3 * l->n_sizes; i++) {
        run_size(l, i % l->n_sizes, stream, memory);
    }
    CHECK(calls == before, "%s: %ld allocations in steady state", l->path, calls - before);
    sinter_compiled_graph_destroy(&l->whole);
    sinter_stream_destroy(&stream);
    sinter_engine_destroy(&l->engine);
    CHECK(live == 0, "%s: %ld allocations are left", l->path, live);
}

static void close_layer(layer_t *l)
{
    for (size_t i = 0; i < l->n_sizes; i++) {
        for (size_t k = 0; k < MOST_INPUTS; k++) {
            free(l->sizes[i].data[k]);
        }
        model_free(&l->sizes[i].model);
    }
    *l = (layer_t){.n_sizes = 0};
}

/* Adds a line to the layer. A line of another layer comes after this one has run. */
static void take_line(layer_t *l, const char *line)
{
    size_case_t *s = &l->sizes[l->n_sizes];
    gr_error_t err = {{0}, 0};
    char *words[MOST_WORDS], path[1024];
    int n = 0;
    *s = (size_case_t){.opt = gr_default_options};
    snprintf(s->line, sizeof s->line, "%s", line);
    snprintf(s->words, sizeof s->words, "%s", line);
    const bool parsed = !gr_options_split(s->words, words, MOST_WORDS, &n, &err) &&
                        !gr_options_parse(&s->opt, n, words, &err);
    CHECK(parsed, "%s: %s", line, err.text);
    if (!parsed || s->opt.dynamic == NULL || s->opt.no_fuse) {
        return;
    }
    snprintf(path, sizeof path, "%s/tests/lists/%s", SINTER_SOURCE_DIR, s->opt.case_file);
    if (l->n_sizes > 0 && strcmp(path, l->path) != 0) {
        run_layer(l);
        close_layer(l);
        take_line(l, line);
        return;
    }
    snprintf(l->path, sizeof l->path, "%s", path);
    CHECK(!model_load_file(&s->model, path, &err) && !gr_rewrite(&s->model, &s->opt, &err),
          "%s: %s", line, err.text);
    l->n_sizes++;
    CHECK_THAT(l->n_sizes < MOST_SIZES);
}

int main(int argc, char **argv)
{
    static layer_t layer;
    char line[2048];
    FILE *f = fopen(SINTER_SOURCE_DIR "/tests/lists/layers.list", "r");
    (void)argc;
    wait_passively(argv);
    gr_alloc_set(NULL);
    CHECK_THAT(f != NULL);
    while (f != NULL && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "--", 2) == 0) {
            take_line(&layer, line);
        }
    }
    if (layer.n_sizes > 0) {
        run_layer(&layer);
        close_layer(&layer);
    }
    if (f != NULL) {
        fclose(f);
    }
    return check_finish();
}
