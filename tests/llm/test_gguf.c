/* Damaged GGUF files: every length, and bytes that were changed at random. Each must be read or
 * refused with a reason; AddressSanitizer sees any byte that is read beyond the file. */
#include "llm.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "made.h"
#include "random.h"

static const made_sizes_t sizes = {64,          4, 2, 96, 40, 100, {2, 3, 8, 1, 3, 8, 30, 8, 3},
                                   .rotated = 0};

static long opened;

/* Reads all that a file has. The bytes are copied, so that they end where an allocation ends. */
static const char *read_all(const made_t *made, const uint8_t *bytes, size_t size)
{
    uint8_t *file = malloc(size + !size);
    string_t *list = NULL;
    size_t count = 0;
    double number = 0.0;
    gguf_t g;
    memcpy(file, bytes, size);
    const char *error = gguf_open(&g, file, size);
    if (error == NULL) {
        error = gguf_number(&g, "llama.rope.freq_base", &number);
    }
    if (error == NULL) {
        error = gguf_strings(&g, "tokenizer.ggml.tokens", &list, &count);
        free(list);
    }
    for (size_t i = 0; i < made->n_tensors && error == NULL; i++) {
        weight_t w;
        error = gguf_weight(&g, made->tensors[i].name, &w);
        if (error == NULL) {
            volatile uint8_t last = ((const uint8_t *)w.codes)[0];
            (void)last;
            weight_free(&w);
        }
    }
    free(file);
    CHECK(error == NULL || error[0] != 0, "an error without a reason");
    return error;
}

/* Opens a model and runs it. */
static const char *run(const uint8_t *bytes, size_t size)
{
    const model_desc_t desc = {.weights = &weight_formats[0],
                               .head = &weight_formats[0],
                               .cache = &cache_formats[0],
                               .threads = 1};
    const int32_t tokens[4] = {1, 0, 39, 7};
    uint8_t *file = malloc(size + !size);
    gguf_t g;
    vocabulary_t v = {NULL};
    model_t m = {.stream = NULL};
    float *logits = NULL;
    memcpy(file, bytes, size);
    const char *error = gguf_open(&g, file, size);
    error = error != NULL ? error : vocabulary_open(&v, &g);
    error = error != NULL ? error : model_open(&m, &g, &desc);
    if (error == NULL) {
        opened++;
        logits = malloc((size_t)m.sizes.vocabulary * sizeof *logits);
        error = model_step(&m, 4, tokens, logits);
    }
    CHECK(error == NULL || error[0] != 0, "an error without a reason");
    free(logits);
    model_close(&m);
    vocabulary_close(&v);
    free(file);
    return error;
}

static void test_lengths(const made_t *made)
{
    for (size_t size = 0; size < made->head; size++) {
        CHECK(read_all(made, made->file, size) != NULL, "%zu bytes are read", size);
    }
    for (size_t size = made->head; size < made->bytes; size += 97) {
        CHECK(read_all(made, made->file, size) != NULL, "%zu bytes are read", size);
    }
    CHECK_THAT(read_all(made, made->file, made->bytes) == NULL);
    CHECK_THAT(run(made->file, made->bytes) == NULL);
}

/* Changes one to four places of the lists, to numbers that are likely to do harm. */
static void change(uint8_t *file, size_t size, uint64_t *state)
{
    static const uint64_t numbers[] = {0,          1,          UINT64_MAX,      INT64_MAX,
                                       0x7FFFFFFF, 0xFFFFFFFF, UINT64_MAX >> 3, 1ull << 40};
    for (int n = random_below(state, 4); n >= 0; n--) {
        const size_t at = (size_t)random_below(state, (int)size - 8);
        const uint64_t number = numbers[random_below(state, 8)];
        if (random_below(state, 2)) {
            file[at] = (uint8_t)(file[at] ^ (1 << random_below(state, 8)));
        } else {
            memcpy(file + at, &number, (size_t)(1 << random_below(state, 4)));
        }
    }
}

static void test_changes(const made_t *made, int cases, bool whole)
{
    uint8_t *file = malloc(made->bytes);
    for (int i = 0; i < cases; i++) {
        uint64_t state = (uint64_t)i * 2 + whole;
        memcpy(file, made->file, made->bytes);
        change(file, made->head, &state);
        if (whole) {
            run(file, made->bytes);
        } else {
            read_all(made, file, made->bytes);
        }
    }
    free(file);
}

/* Dims and types of each tensor that its bytes in the file do not have. */
static void test_lies(const made_t *made)
{
    uint8_t *file = malloc(made->bytes);
    for (size_t i = 0; i < made->n_tensors; i++) {
        const made_tensor_t *t = &made->tensors[i];
        const size_t dims = t->at - (t->n > 1 ? 16 : 8);
        const struct {
            size_t at, bytes;
            uint64_t value;
        } lies[] = {
            {dims, 8, 0},
            {dims, 8, (uint64_t)t->k * 2},
            {dims, 8, 1ull << 62},
            {dims, 8, (uint64_t)t->k - 1},
            {t->at, 4, 77},
            {t->at + 4, 8, made->bytes},
            {t->at + 4, 8, UINT64_MAX},
            {dims - 4, 4, 3},
            {t->at, 4, 8}, /* of norms alone: blocks instead of numbers */
        };
        const size_t n = sizeof lies / sizeof lies[0] - (t->n > 1);
        for (size_t k = 0; k < n; k++) {
            memcpy(file, made->file, made->bytes);
            memcpy(file + lies[k].at, &lies[k].value, lies[k].bytes);
            CHECK(run(file, made->bytes) != NULL, "%s: lie %zu is believed", t->name, k);
        }
    }
    free(file);
}

int main(void)
{
    made_t made;
    made_model(&made, &sizes, 21);
    test_lengths(&made);
    test_lies(&made);
    test_changes(&made, 20000, false);
    test_changes(&made, 400, true);
    CHECK(opened > 20, "%ld changed files were opened", opened);
    made_free(&made);
    return check_finish();
}
