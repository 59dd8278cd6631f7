/* The backend by itself, through ggml's interface: bad input, and memory that it must not touch.
 *
 *   backend            all of it
 *   backend products   products with quantised weights alone, in the mode of SINTER_GGML_FPMATH
 *
 * GGML_BACKEND_PATH names the library. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ggml-backend.h"
#include "ggml.h"

enum { NODES = 64, GRAPHS = 6 };

static int checks, wrong;
static ggml_backend_dev_t device;
static ggml_backend_t backend;

static void check(bool good, const char *what)
{
    checks++;
    if (!good) {
        wrong++;
        printf("backend: WRONG: %s\n", what);
    }
}

static void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "backend: %s\n", what);
        exit(1);
    }
}

/* A context whose tensors have no memory yet. */
static struct ggml_context *make_context(void)
{
    const struct ggml_init_params params = {.mem_size = NODES * ggml_tensor_overhead() +
                                                        GRAPHS * ggml_graph_overhead(),
                                            .no_alloc = true};
    struct ggml_context *context = ggml_init(params);
    must(context != NULL, "no context");
    return context;
}

static ggml_backend_buffer_t allocate(struct ggml_context *context)
{
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(context, backend);
    must(buffer != NULL, "no buffer");
    return buffer;
}

/* The same in memory of the host, where quantised tensors are blocks. */
static ggml_backend_buffer_t allocate_in_host(struct ggml_context *context)
{
    ggml_backend_buffer_t buffer =
        ggml_backend_alloc_ctx_tensors_from_buft(context, ggml_backend_cpu_buffer_type());
    must(buffer != NULL, "no buffer of the host");
    return buffer;
}

static enum ggml_status compute_all(struct ggml_context *context, int count,
                                    struct ggml_tensor *const *results)
{
    struct ggml_cgraph *graph = ggml_new_graph(context);
    for (int i = 0; i < count; i++) {
        ggml_build_forward_expand(graph, results[i]);
    }
    return ggml_backend_graph_compute(backend, graph);
}

static enum ggml_status compute(struct ggml_context *context, struct ggml_tensor *result)
{
    return compute_all(context, 1, &result);
}

static void fill(struct ggml_tensor *tensor, float first)
{
    const size_t count = (size_t)ggml_nelements(tensor);
    float *values = malloc(count * sizeof(*values));
    must(values != NULL, "no memory");
    for (size_t i = 0; i < count; i++) {
        values[i] = first + (float)i;
    }
    ggml_backend_tensor_set(tensor, values, 0, count * sizeof(*values));
    free(values);
}

/* true: the tensor is f32, and all of its elements are `value`. */
static bool holds(const struct ggml_tensor *tensor, float value)
{
    const size_t count = (size_t)ggml_nelements(tensor);
    float *got = malloc(count * sizeof(*got));
    must(got != NULL, "no memory");
    ggml_backend_tensor_get(tensor, got, 0, count * sizeof(*got));
    bool same = tensor->type == GGML_TYPE_F32;
    for (size_t i = 0; i < count && same; i++) {
        same = got[i] == value;
    }
    free(got);
    return same;
}

static void fill_with(struct ggml_tensor *tensor, float value)
{
    const size_t count = (size_t)ggml_nelements(tensor);
    float *values = malloc(count * sizeof(*values));
    must(values != NULL, "no memory");
    for (size_t i = 0; i < count; i++) {
        values[i] = value;
    }
    ggml_backend_tensor_set(tensor, values, 0, count * sizeof(*values));
    free(values);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* What is said on stderr between two calls. Reasons are said once: all that was heard is kept. */
typedef struct said {
    FILE *file;
    int kept;
    char text[1 << 14];
} said_t;

static char heard[1 << 18];

static void listen(said_t *said)
{
    fflush(stderr);
    said->file = tmpfile();
    said->kept = dup(STDERR_FILENO);
    must(said->file && said->kept >= 0 && dup2(fileno(said->file), STDERR_FILENO) >= 0,
         "no file for messages");
}

static void listened(said_t *said)
{
    fflush(stderr);
    dup2(said->kept, STDERR_FILENO);
    close(said->kept);
    rewind(said->file);
    said->text[fread(said->text, 1, sizeof(said->text) - 1, said->file)] = 0;
    fclose(said->file);
    const size_t used = strlen(heard);
    snprintf(heard + used, sizeof(heard) - used, "%s", said->text);
}

/* ---- allocations that fail ------------------------------------------------------------------- */

/* Allocations of the whole process until one fails; none does where this is negative. The names
 * below are those of glibc. */
static _Atomic long allocations_left = -1;

static bool fails(void)
{
    return allocations_left >= 0 && allocations_left-- == 0;
}

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    return fails() ? NULL : __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : __libc_memalign(alignment, size);
}

/* ---- plans that come again ------------------------------------------------------------------- */

/* rows x columns elements of a tensor whose rows are `pitch` apart, times two: right, whatever the
 * plans of earlier calls were. */
static bool twice(struct ggml_tensor *memory, int rows, int columns, int pitch)
{
    enum { MOST = 1024 };
    float got[MOST];
    struct ggml_context *context = make_context();
    struct ggml_tensor *view =
        ggml_view_2d(context, memory, columns, rows, (size_t)pitch * sizeof(float), 0);
    struct ggml_tensor *result = ggml_scale(context, view, 2.0f);
    ggml_backend_buffer_t buffer = allocate(context);
    bool good = rows * columns <= MOST && compute(context, result) == GGML_STATUS_SUCCESS;
    if (good) {
        ggml_backend_tensor_get(result, got, 0, (size_t)(rows * columns) * sizeof(float));
    }
    for (int i = 0; i < rows * columns && good; i++) {
        good = got[i] == 2.0f * (float)(i / columns * pitch + i % columns);
    }
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
    return good;
}

/* The second number of rows makes a plan whose rows are open. That serves calls with other strides
 * as well, which have to be bound again though neither data nor dims have changed. */
static void check_strides(void)
{
    struct ggml_context *context = make_context();
    struct ggml_tensor *memory = ggml_new_tensor_1d(context, GGML_TYPE_F32, 4096);
    ggml_backend_buffer_t buffer = allocate(context);
    fill(memory, 0);
    check(twice(memory, 3, 7, 16), "rows that are 16 apart");
    check(twice(memory, 5, 7, 16), "more rows");
    check(twice(memory, 5, 7, 24), "the same dims in rows that are 24 apart");
    check(twice(memory, 5, 7, 7), "the same dims in rows without gaps");
    check(twice(memory, 9, 7, 24), "more rows that are 24 apart");
    check(twice(memory, 5, 7, 16), "the first strides again");
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
}

/* More and more rows of memory, as of a cache: the second graph serves all of their numbers. */
static void check_growth(void)
{
    ggml_backend_t kept = backend;
    backend = ggml_backend_dev_init(device, NULL);
    struct ggml_context *context = make_context();
    struct ggml_tensor *memory = ggml_new_tensor_2d(context, GGML_TYPE_F32, 16, 32);
    ggml_backend_buffer_t buffer = allocate(context);
    fill(memory, 0);
    bool good = true;
    for (int rows = 2; rows < 10; rows++) {
        good = good && twice(memory, rows, 16, 16);
    }
    said_t said;
    listen(&said);
    ggml_backend_free(backend);
    listened(&said);
    check(good && strstr(said.text, " 2 graphs compiled"), "rows of memory that grow");
    backend = kept;
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
}

/* The elements of `columns` x `rows` in rows of another length, times a vector of ones. */
static bool sums_of_rows(int columns, int rows)
{
    enum { MOST = 128 };
    float got[MOST];
    struct ggml_context *context = make_context();
    struct ggml_tensor *x = ggml_new_tensor_2d(context, GGML_TYPE_F32, columns, rows);
    struct ggml_tensor *ones = ggml_new_tensor_2d(context, GGML_TYPE_F32, rows, 2);
    struct ggml_tensor *turned =
        ggml_reshape_2d(context, ggml_scale(context, x, 2.0f), rows, columns);
    struct ggml_tensor *result = ggml_mul_mat(context, turned, ones);
    ggml_backend_buffer_t buffer = allocate(context);
    fill(x, 0);
    fill_with(ones, 1);
    bool good = columns <= MOST && compute(context, result) == GGML_STATUS_SUCCESS;
    if (good) {
        ggml_backend_tensor_get(result, got, 0, (size_t)columns * sizeof(float));
    }
    for (int i = 0; i < columns && good; i++) {
        /* 2 (first + ... + last), of integers below 2^24 */
        const int first = i * rows, last = first + rows - 1;
        good = got[i] == (float)((first + last) * rows);
    }
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
    return good;
}

/* Dims that had one size in some runs are not taken for one in others: no graph is taken apart. */
static void check_open_dims(void)
{
    static const int orders[2][6][2] = {
        {{20, 30}, {100, 100}, {40, 70}, {70, 40}, {50, 50}, {20, 30}},
        {{100, 100}, {50, 50}, {40, 70}, {100, 100}, {70, 40}, {60, 60}}};
    for (int order = 0; order < 2; order++) {
        ggml_backend_t kept = backend;
        backend = ggml_backend_dev_init(device, NULL);
        for (int i = 0; i < 6; i++) {
            const int columns = orders[order][i][0], rows = orders[order][i][1];
            said_t said;
            listen(&said);
            const bool good = sums_of_rows(columns, rows);
            listened(&said);
            char what[64];
            snprintf(what, sizeof(what), "%d columns, %d rows", columns, rows);
            check(good && !strstr(said.text, "one by one"), what);
        }
        ggml_backend_free(backend);
        backend = kept;
    }
}

/* A view of a view is one of memory: as many elements as the other one has, which are others where
 * that one has gaps. llama.cpp keeps the last tokens of sequences so (arwkv7). */
static void check_view_of_view(int64_t tokens)
{
    enum { ELEMENTS = 4, SEQUENCES = 2 };
    struct ggml_context *c = make_context();
    struct ggml_tensor *x = ggml_new_tensor_3d(c, GGML_TYPE_F32, ELEMENTS, tokens, SEQUENCES),
                       *twice_x = ggml_scale(c, x, 2);
    struct ggml_tensor *last = ggml_view_3d(c, twice_x, ELEMENTS, 1, SEQUENCES, twice_x->nb[1],
                                            twice_x->nb[2], (size_t)(tokens - 1) * twice_x->nb[1]);
    struct ggml_tensor *y = ggml_scale(c, ggml_view_1d(c, last, ELEMENTS * SEQUENCES, 0), 1);
    ggml_backend_buffer_t buffer = allocate(c);
    float got[ELEMENTS * SEQUENCES];
    bool right = true;
    fill(x, 1);
    check(compute(c, y) == GGML_STATUS_SUCCESS, "a view of a view with gaps");
    ggml_backend_tensor_get(y, got, 0, sizeof(got));
    for (int i = 0; i < ELEMENTS * SEQUENCES; i++) {
        right = right && got[i] == 2 * (float)((tokens - 1) * ELEMENTS + i + 1);
    }
    check(right, "the elements of a view of a view with gaps");
    ggml_backend_buffer_free(buffer);
    ggml_free(c);
}

/* ---- ops that are refused -------------------------------------------------------------------- */

/* The backend refuses the op and says why on stderr. */
static void check_refused(const struct ggml_tensor *op, const char *why)
{
    said_t said;
    listen(&said);
    const bool taken = ggml_backend_dev_supports_op(device, op);
    listened(&said);
    char reason[256], what[512];
    snprintf(reason, sizeof(reason), "%s is left to the host: %s", ggml_op_desc(op), why);
    snprintf(what, sizeof(what), "%s, and it has never said \"%s\"", taken ? "taken" : "refused",
             reason);
    check(!taken && strstr(heard, reason), what);
}

/* A reason is said once, and how often it has occurred when a backend is freed. */
static void check_counts(void)
{
    enum { TIMES = 5 };
    struct ggml_context *context = make_context();
    struct ggml_tensor *x = ggml_new_tensor_2d(context, GGML_TYPE_F32, 4, 4);
    struct ggml_tensor *op = ggml_diag_mask_zero(context, x, 0);
    said_t said;
    listen(&said);
    for (int i = 0; i < TIMES; i++) {
        check(!ggml_backend_dev_supports_op(device, op), "an op that is taken");
    }
    ggml_backend_free(ggml_backend_dev_init(device, NULL));
    listened(&said);
    const char *reason = "DIAG_MASK_ZERO is left to the host: no such op here";
    const char *first = strstr(said.text, reason), *second = first ? strstr(first + 1, reason) : 0;
    check(second && !strstr(second + 1, reason) && strstr(said.text, "5 times: DIAG_MASK_ZERO"),
          "a reason that is said more than once, or without a count");
    ggml_free(context);
}

static void check_cache_types(void)
{
    static const struct {
        enum ggml_type type;
        bool taken;
    } caches[] = {{GGML_TYPE_F32, true},    {GGML_TYPE_F16, true},   {GGML_TYPE_BF16, true},
                  {GGML_TYPE_Q8_0, true},   {GGML_TYPE_Q4_0, true},  {GGML_TYPE_Q4_1, true},
                  {GGML_TYPE_Q5_0, true},   {GGML_TYPE_Q5_1, true},  {GGML_TYPE_MXFP4, true},
                  {GGML_TYPE_IQ4_NL, true}, {GGML_TYPE_TQ2_0, false}};
    for (size_t i = 0; i < sizeof(caches) / sizeof(caches[0]); i++) {
        struct ggml_context *context = make_context();
        struct ggml_tensor *q = ggml_new_tensor_4d(context, GGML_TYPE_F32, 256, 1, 4, 1);
        struct ggml_tensor *k = ggml_new_tensor_4d(context, caches[i].type, 256, 32, 2, 1);
        struct ggml_tensor *v = ggml_new_tensor_4d(context, caches[i].type, 256, 32, 2, 1);
        struct ggml_tensor *op = ggml_flash_attn_ext(context, q, k, v, NULL, 0.0625f, 0, 0);
        if (caches[i].taken) {
            check(ggml_backend_dev_supports_op(device, op), ggml_type_name(caches[i].type));
        } else {
            check_refused(op, "its data type");
        }
        ggml_free(context);
    }
}

static void check_shapes(void)
{
    struct ggml_context *c = make_context();
    struct ggml_tensor *x = ggml_new_tensor_4d(c, GGML_TYPE_F32, 64, 6, 4, 2);
    struct ggml_tensor *half = ggml_new_tensor_4d(c, GGML_TYPE_F32, 64, 3, 4, 2);
    struct ggml_tensor *slopes = ggml_new_tensor_2d(c, GGML_TYPE_F16, 64, 6);
    struct ggml_tensor *positions = ggml_new_tensor_1d(c, GGML_TYPE_I32, 16);
    struct ggml_tensor *q = ggml_new_tensor_4d(c, GGML_TYPE_F32, 64, 1, 4, 2);
    struct ggml_tensor *k = ggml_new_tensor_4d(c, GGML_TYPE_F16, 64, 32, 2, 2);
    struct ggml_tensor *mask = ggml_new_tensor_4d(c, GGML_TYPE_F16, 32, 1, 2, 1);
    struct ggml_tensor *experts = ggml_new_tensor_3d(c, GGML_TYPE_MXFP4, 64, 32, 8);
    struct ggml_tensor *experts2 = ggml_new_tensor_3d(c, GGML_TYPE_TQ2_0, 256, 32, 8);
    struct ggml_tensor *rows = ggml_new_tensor_3d(c, GGML_TYPE_F32, 64, 2, 3);
    struct ggml_tensor *rows2 = ggml_new_tensor_3d(c, GGML_TYPE_F32, 256, 2, 3);
    struct ggml_tensor *chosen = ggml_new_tensor_2d(c, GGML_TYPE_I32, 2, 3);
    struct ggml_tensor *chosen4 = ggml_new_tensor_2d(c, GGML_TYPE_I32, 4, 3);
    struct ggml_tensor *weights = ggml_new_tensor_2d(c, GGML_TYPE_TQ2_0, 256, 32);
    struct ggml_tensor *weights3 = ggml_new_tensor_4d(c, GGML_TYPE_F32, 64, 5, 4, 1);
    check(ggml_backend_dev_supports_op(device, ggml_mul_mat(c, weights3, x)), "weights of a batch");
    check_refused(ggml_mul_mat(c, weights, ggml_new_tensor_2d(c, GGML_TYPE_F32, 256, 1)),
                  "its data type");
    check(ggml_backend_dev_supports_op(device, ggml_mul_mat_id(c, experts, rows, chosen)),
          "experts");
    check_refused(ggml_mul_mat_id(c, experts2, rows2, chosen), "its data type");
    check_refused(ggml_mul_mat_id(c, experts, rows, chosen4), "rows that are repeated");
    check(ggml_backend_dev_supports_op(device, ggml_add(c, x, half)), "a source that is repeated");
    check(ggml_backend_dev_supports_op(device, ggml_soft_max_ext(c, x, slopes, 1.0f, 8.0f)),
          "ALiBi");
    check_refused(ggml_flash_attn_ext(c, q, k, k, mask, 0.1f, 0, 0), "a mask that is repeated");
    check(ggml_backend_dev_supports_op(device, ggml_get_rows(c, rows, chosen)), "several tables");
    check_refused(ggml_cast(c, half, GGML_TYPE_I64), "a copy of other types");
    ggml_free(c);
}

/* ---- integers -------------------------------------------------------------------------------- */

/* Integers beyond 2^24, which f32 does not hold, keep all of their bits: turned, in rows that are
 * taken, and joined. Numbers that become integers lose what is behind the point. */
static void check_integers(void)
{
    enum { COLUMNS = 7, ROWS = 5, COUNT = COLUMNS * ROWS };
    static const int32_t chosen[3] = {4, 0, 4};
    static const float numbers[COLUMNS] = {-2.75f, -0.5f, 0, 0.5f, 1.5f, 2.5f, 8388609.0f};
    static const int32_t whole[COLUMNS] = {-2, 0, 0, 0, 1, 2, 8388609};
    int32_t table[COUNT], turned[COUNT], taken[3 * COLUMNS], joined[COUNT + 3 * COLUMNS],
        got[COLUMNS];
    struct ggml_context *context = make_context();
    struct ggml_tensor *from = ggml_new_tensor_2d(context, GGML_TYPE_I32, COLUMNS, ROWS);
    struct ggml_tensor *ids = ggml_new_tensor_1d(context, GGML_TYPE_I32, 3);
    struct ggml_tensor *x = ggml_new_tensor_1d(context, GGML_TYPE_F32, COLUMNS);
    struct ggml_tensor *rows = ggml_get_rows(context, from, ids);
    struct ggml_tensor *results[4] = {ggml_cont(context, ggml_transpose(context, from)), rows,
                                      ggml_concat(context, rows, from, 1),
                                      ggml_cast(context, x, GGML_TYPE_I32)};
    ggml_set_output(rows);
    ggml_backend_buffer_t buffer = allocate(context);
    for (int i = 0; i < COUNT; i++) {
        table[i] = (i % 2 ? 1 : -1) * ((1 << 30) + 3 * i);
    }
    ggml_backend_tensor_set(from, table, 0, sizeof(table));
    ggml_backend_tensor_set(ids, chosen, 0, sizeof(chosen));
    ggml_backend_tensor_set(x, numbers, 0, sizeof(numbers));
    check(compute_all(context, 4, results) == GGML_STATUS_SUCCESS, "integers");
    ggml_backend_tensor_get(results[0], turned, 0, sizeof(turned));
    ggml_backend_tensor_get(results[1], taken, 0, sizeof(taken));
    ggml_backend_tensor_get(results[2], joined, 0, sizeof(joined));
    ggml_backend_tensor_get(results[3], got, 0, sizeof(got));
    bool same = true;
    for (int i = 0; i < COUNT; i++) {
        same = same && turned[i % COLUMNS * ROWS + i / COLUMNS] == table[i];
    }
    check(same, "integers that are turned");
    for (int i = 0; i < 3; i++) {
        const int32_t *row = table + chosen[i] * COLUMNS;
        check(!memcmp(taken + i * COLUMNS, row, COLUMNS * sizeof(*row)), "a row of integers");
    }
    check(!memcmp(joined, taken, sizeof(taken)) &&
              !memcmp(joined + 3 * COLUMNS, table, sizeof(table)),
          "integers that are joined");
    check(!memcmp(got, whole, sizeof(whole)), "numbers that become integers");
    const int32_t beyond[3] = {1, ROWS, 2};
    ggml_backend_tensor_set(ids, beyond, 0, sizeof(beyond));
    check(compute(context, results[1]) == GGML_STATUS_FAILED, "a row behind a table of integers");
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
}

/* ---- quantised tensors, which are planes in the backend's memory ----------------------------- */

static uint32_t next(uint32_t *state)
{
    return *state = *state * 1664525u + 1013904223u;
}

/* Blocks of random numbers: any bytes would hold NaN for scales, which need not come back. */
static void random_blocks(enum ggml_type type, uint8_t *blocks, int64_t elements, uint32_t *state)
{
    float *values = malloc((size_t)elements * sizeof(*values));
    must(values != NULL, "no memory");
    for (int64_t i = 0; i < elements; i++) {
        values[i] = (float)(next(state) >> 8) / (1 << 23) - 1.0f;
    }
    ggml_quantize_chunk(type, values, blocks, 0, 1, elements, NULL);
    free(values);
}

/* Bytes that are set in pieces of any size come back, and the tensors on both sides keep theirs.
 * weights: in a buffer for weights, where matrices are in tiles, and several of them if each has a
 * multiple of 16 rows. */
static void check_pieces_of(enum ggml_type type, int64_t columns, int64_t each, int64_t matrices,
                            bool weights)
{
    const int64_t rows = each * matrices;
    struct ggml_context *context = make_context();
    struct ggml_tensor *tensors[3];
    uint8_t *bytes[3], *got;
    uint32_t state = (uint32_t)type + 1;
    for (int i = 0; i < 3; i++) {
        tensors[i] = ggml_new_tensor_3d(context, type, columns, each, matrices);
    }
    const size_t size = ggml_nbytes(tensors[0]);
    ggml_backend_buffer_t buffer = allocate(context);
    if (weights) {
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    }
    got = malloc(size);
    must(got != NULL, "no memory");
    for (int i = 0; i < 3; i++) {
        bytes[i] = malloc(size);
        must(bytes[i] != NULL, "no memory");
        random_blocks(type, bytes[i], columns * rows, &state);
        for (size_t at = 0; at < size && i == 2; at++) { /* no matter what they are */
            bytes[i][at] = (uint8_t)(next(&state) >> 16);
        }
        ggml_backend_tensor_set(tensors[i], bytes[i], 0, size);
    }
    random_blocks(type, bytes[1], columns * rows, &state);
    for (size_t at = 0; at < size;) {
        const size_t left = size - at, piece = 1 + next(&state) % (2 * size / (size_t)rows);
        const size_t count = piece < left ? piece : left;
        ggml_backend_tensor_set(tensors[1], bytes[1] + at, at, count);
        at += count;
    }
    for (int i = 0; i < 3; i++) {
        ggml_backend_tensor_get(tensors[i], got, 0, size);
        check(!memcmp(got, bytes[i], size), ggml_type_name(type));
    }
    for (int i = 0; i < 20; i++) {
        const size_t at = next(&state) % size, count = 1 + next(&state) % (size - at);
        memset(got, 0xA5, size);
        ggml_backend_tensor_get(tensors[1], got, at, count);
        check(!memcmp(got, bytes[1] + at, count) && (count == size || got[count] == 0xA5),
              "a piece of a tensor");
    }
    for (int i = 0; i < 3; i++) {
        free(bytes[i]);
    }
    free(got);
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
}

static void check_pieces(enum ggml_type type, int64_t columns, int64_t rows, bool weights)
{
    check_pieces_of(type, columns, rows, 1, weights);
}

/* The precision hints of a product, and whether it must then be in f32; else it may quantise
 * activations to 8 bits. */
typedef struct hint {
    enum ggml_prec sums, activation;
    bool strict;
} hint_t;

/* Weights in a buffer for them: products with them, and rows of them, are those of the numbers that
 * ggml's own functions find in the blocks. The environment overrides hints.
 *
 * Bytes of uniform numbers from -1 to 1 have errors of 1 / (127 sqrt(12)) on average, which is
 * 0.4 % of the numbers' rms; products with weights that consist of a code and an offset may double
 * that. Codes cannot be the same as f32: where they are expected, the error must be there. */
static void check_weights(enum ggml_type type, int64_t columns, int64_t rows, int64_t tokens,
                          const hint_t *hint)
{
    const char *mode = getenv("SINTER_GGML_FPMATH");
    const bool is_strict = mode ? !strcmp(mode, "strict") : hint->strict;
    const double least_of_codes = 1e-4, most_of_codes = 0.016;
    struct ggml_context *home = make_context(), *c = make_context();
    struct ggml_tensor *w = ggml_new_tensor_2d(home, type, columns, rows);
    ggml_backend_buffer_t weights = allocate(home);
    ggml_backend_buffer_set_usage(weights, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    struct ggml_tensor *x = ggml_new_tensor_2d(c, GGML_TYPE_F32, columns, tokens);
    struct ggml_tensor *ids = ggml_new_tensor_1d(c, GGML_TYPE_I32, 1);
    struct ggml_tensor *product = ggml_mul_mat(c, w, x), *row = ggml_get_rows(c, w, ids);
    must(ggml_prec_set_acc(product, hint->sums) && ggml_prec_set_src(product, hint->activation, 1),
         "no such hints");
    ggml_backend_buffer_t buffer = allocate(c);
    const size_t size = ggml_nbytes(w);
    uint8_t *blocks = malloc(size);
    float *numbers = malloc((size_t)(columns * rows) * sizeof(float)),
          *in = malloc((size_t)(columns * tokens) * sizeof(float)),
          *out = malloc((size_t)(rows * tokens) * sizeof(float)),
          *one = malloc((size_t)columns * sizeof(float));
    must(blocks && numbers && in && out && one, "no memory");
    uint32_t state = (uint32_t)type + 7;
    random_blocks(type, blocks, columns * rows, &state);
    ggml_get_type_traits(type)->to_float(blocks, numbers, columns * rows);
    for (int64_t i = 0; i < columns * tokens; i++) {
        in[i] = (float)(next(&state) >> 8) / (1 << 23) - 1.0f;
    }
    const int32_t last = (int32_t)rows - 1;
    ggml_backend_tensor_set(w, blocks, 0, size);
    ggml_backend_tensor_set(x, in, 0, ggml_nbytes(x));
    ggml_backend_tensor_set(ids, &last, 0, sizeof(last));
    bool good =
        compute(c, product) == GGML_STATUS_SUCCESS && compute(c, row) == GGML_STATUS_SUCCESS;
    ggml_backend_tensor_get(product, out, 0, ggml_nbytes(product));
    ggml_backend_tensor_get(row, one, 0, ggml_nbytes(row));
    good = good && !memcmp(one, numbers + last * columns, (size_t)columns * sizeof(float));
    double errors = 0, all = 0;
    bool exact = true;
    for (int64_t i = 0; i < rows * tokens; i++) {
        double want = 0, most = 0;
        for (int64_t k = 0; k < columns; k++) {
            const double term =
                (double)numbers[i % rows * columns + k] * (double)in[i / rows * columns + k];
            want += term;
            most += fabs(term);
        }
        const double error = fabs((double)out[i] - want);
        exact &= error <= most * 1e-5;
        errors += error * error;
        all += want * want;
    }
    const double relative = sqrt(errors / all);
    good = good && (is_strict ? exact : relative >= least_of_codes && relative <= most_of_codes);
    char what[160];
    snprintf(what, sizeof(what),
             "weights of %s, %d columns, %d rows, %d tokens, hints %d and %d: "
             "error of %g",
             ggml_type_name(type), (int)columns, (int)rows, (int)tokens, (int)hint->sums,
             (int)hint->activation, relative);
    check(good, what);
    free(blocks);
    free(numbers);
    free(in);
    free(out);
    free(one);
    ggml_backend_buffer_free(buffer);
    ggml_backend_buffer_free(weights);
    ggml_free(c);
    ggml_free(home);
}

/* Products of a type of `unit` elements in a block. */
static void check_products(enum ggml_type type, int64_t unit)
{
    static const hint_t hints[] = {{GGML_PREC_UNDEFINED, GGML_PREC_UNDEFINED, false},
                                   {GGML_PREC_UNDEFINED, GGML_PREC_Q8, false},
                                   {GGML_PREC_UNDEFINED, GGML_PREC_F16, true},
                                   {GGML_PREC_UNDEFINED, GGML_PREC_F32, true},
                                   {GGML_PREC_F16, GGML_PREC_Q4, false},
                                   {GGML_PREC_F32, GGML_PREC_UNDEFINED, true}};
    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++) {
        check_weights(type, 3 * unit, 37, 1, &hints[i]);
        check_weights(type, 1024, 80, 5, &hints[i]);
        check_weights(type, 3 * unit, 37, 40, &hints[i]);
    }
}

/* ---- experts --------------------------------------------------------------------------------- */

enum { EXPERTS = 5, USED = 3 };

/* Which experts a token uses: one of them twice, and nobody uses the last one. */
static int32_t expert_of(int64_t token, int64_t i)
{
    return (int32_t)((token + i / 2 * 3) % (EXPERTS - 1));
}

static void random_floats(float *values, int64_t count, uint32_t *state)
{
    for (int64_t i = 0; i < count; i++) {
        values[i] = (float)(next(state) >> 8) / (1 << 23) - 1.0f;
    }
}

/* Products with experts, plus a vector of each: those of the numbers in the blocks. each: a token
 * has a row for each of its experts, else one for all. The ids are the first of longer rows.
 * weights: in a buffer for weights. The bounds are those of check_weights. */
static void check_experts(enum ggml_type type, int64_t columns, int64_t rows, int64_t tokens,
                          bool each, bool weights)
{
    const char *mode = getenv("SINTER_GGML_FPMATH");
    const bool codes = ggml_is_quantized(type) && !(mode && !strcmp(mode, "strict"));
    const double most_of_codes = 0.016;
    const int64_t n_numbers = columns * rows * EXPERTS, of_token = each ? USED : 1;
    struct ggml_context *home = make_context(), *c = make_context();
    struct ggml_tensor *w = ggml_new_tensor_3d(home, type, columns, rows, EXPERTS);
    struct ggml_tensor *bias = ggml_new_tensor_2d(home, GGML_TYPE_F32, rows, EXPERTS);
    ggml_backend_buffer_t buffer_of_weights = allocate(home);
    if (weights) {
        ggml_backend_buffer_set_usage(buffer_of_weights, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    }
    struct ggml_tensor *x = ggml_new_tensor_3d(c, GGML_TYPE_F32, columns, of_token, tokens);
    struct ggml_tensor *all = ggml_new_tensor_2d(c, GGML_TYPE_I32, EXPERTS, tokens);
    struct ggml_tensor *ids = ggml_view_2d(c, all, USED, tokens, all->nb[1], 0);
    struct ggml_tensor *product = ggml_mul_mat_id(c, w, x, ids);
    struct ggml_tensor *sum = ggml_add_id(c, product, bias, ids);
    ggml_backend_buffer_t buffer = allocate(c);
    const size_t size = ggml_nbytes(w);
    uint8_t *blocks = malloc(size);
    float *numbers = malloc((size_t)n_numbers * sizeof(float)),
          *vectors = malloc((size_t)(rows * EXPERTS) * sizeof(float)),
          *in = malloc((size_t)(columns * of_token * tokens) * sizeof(float)),
          *out = malloc((size_t)(rows * USED * tokens) * sizeof(float));
    int32_t *list = calloc((size_t)(EXPERTS * tokens), sizeof(*list));
    must(blocks && numbers && vectors && in && out && list, "no memory");
    uint32_t state = (uint32_t)type + 11;
    random_blocks(type, blocks, n_numbers, &state);
    if (type == GGML_TYPE_F32) {
        memcpy(numbers, blocks, size);
    } else {
        ggml_get_type_traits(type)->to_float(blocks, numbers, n_numbers);
    }
    random_floats(vectors, rows * EXPERTS, &state);
    random_floats(in, columns * of_token * tokens, &state);
    for (int64_t i = 0; i < USED * tokens; i++) {
        list[i / USED * EXPERTS + i % USED] = expert_of(i / USED, i % USED);
    }
    ggml_backend_tensor_set(w, blocks, 0, size);
    ggml_backend_tensor_set(bias, vectors, 0, ggml_nbytes(bias));
    ggml_backend_tensor_set(x, in, 0, ggml_nbytes(x));
    ggml_backend_tensor_set(all, list, 0, ggml_nbytes(all));
    bool good = compute(c, sum) == GGML_STATUS_SUCCESS;
    ggml_backend_tensor_get(sum, out, 0, ggml_nbytes(sum));
    double errors = 0, norm = 0;
    bool exact = true;
    for (int64_t i = 0; i < rows * USED * tokens; i++) {
        const int64_t row = i % rows, used = i / rows % USED, token = i / rows / USED;
        const int32_t expert = expert_of(token, used);
        const float *matrix = numbers + (expert * rows + row) * columns,
                    *from = in + (token * of_token + (each ? used : 0)) * columns;
        double want = (double)vectors[expert * rows + row], most = fabs(want);
        for (int64_t k = 0; k < columns; k++) {
            const double term = (double)matrix[k] * (double)from[k];
            want += term;
            most += fabs(term);
        }
        const double error = fabs((double)out[i] - want);
        exact &= error <= most * 1e-5;
        errors += error * error;
        norm += want * want;
    }
    const double relative = sqrt(errors / norm);
    good = good && (codes ? relative <= most_of_codes : exact);
    char what[160];
    snprintf(what, sizeof(what), "experts of %s, %d columns, %d rows, %d tokens, %s%s: error of %g",
             ggml_type_name(type), (int)columns, (int)rows, (int)tokens,
             each ? "a row for each" : "one row", weights ? ", weights" : "", relative);
    check(good, what);
    list[0] = EXPERTS;
    ggml_backend_tensor_set(all, list, 0, ggml_nbytes(all));
    check(compute(c, product) != GGML_STATUS_SUCCESS, "an expert that there is not");
    free(blocks);
    free(numbers);
    free(vectors);
    free(in);
    free(out);
    free(list);
    ggml_backend_buffer_free(buffer);
    ggml_backend_buffer_free(buffer_of_weights);
    ggml_free(c);
    ggml_free(home);
}

static void check_experts_of(enum ggml_type type, int64_t unit)
{
    static const int64_t tokens[] = {1, 5, 40};
    for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++) {
        for (int kind = 0; kind < 4; kind++) {
            check_experts(type, 3 * unit, 48, tokens[i], kind & 1, kind & 2);
        }
        check_experts(type, unit, 21, tokens[i], true, true);
    }
}

/* A router and the sum of what its experts give, as llama.cpp builds them: one graph for any number
 * of tokens. An expert gives a vector that is its number plus one times 1, 2, 3 ... biased: experts
 * are chosen by more than their probability. */
static void check_router(int64_t tokens, bool biased)
{
    enum { WIDTH = 8, MANY = 7, MOST = 40 };
    struct ggml_context *c = make_context();
    struct ggml_tensor *x = ggml_new_tensor_2d(c, GGML_TYPE_F32, MANY, tokens);
    struct ggml_tensor *vectors = ggml_new_tensor_2d(c, GGML_TYPE_F32, WIDTH, MANY);
    struct ggml_tensor *zeros = ggml_new_tensor_3d(c, GGML_TYPE_F32, WIDTH, USED, tokens);
    struct ggml_tensor *probabilities = ggml_soft_max(c, x);
    struct ggml_tensor *bias = ggml_new_tensor_1d(c, GGML_TYPE_F32, MANY);
    struct ggml_tensor *ids =
        ggml_argsort_top_k(c, biased ? ggml_add(c, probabilities, bias) : probabilities, USED);
    struct ggml_tensor *rows = ggml_reshape_3d(c, probabilities, 1, MANY, tokens);
    struct ggml_tensor *chosen = ggml_reshape_2d(c, ggml_get_rows(c, rows, ids), USED, tokens);
    struct ggml_tensor *shares = ggml_div(c, chosen, ggml_sum_rows(c, chosen));
    struct ggml_tensor *given = ggml_mul(c, ggml_add_id(c, zeros, vectors, ids),
                                         ggml_reshape_3d(c, shares, 1, USED, tokens));
    struct ggml_tensor *sum = NULL;
    for (size_t i = 0; i < USED; i++) {
        struct ggml_tensor *part =
            ggml_view_2d(c, given, WIDTH, tokens, given->nb[2], i * given->nb[1]);
        sum = sum ? ggml_add(c, sum, part) : part;
    }
    ggml_backend_buffer_t buffer = allocate(c);
    float in[MANY * MOST], table[WIDTH * MANY], out[WIDTH * MOST];
    uint32_t state = (uint32_t)tokens;
    random_floats(in, MANY * tokens, &state);
    for (int i = 0; i < WIDTH * MANY; i++) {
        table[i] = (float)(1 + i / WIDTH) * (float)(1 + i % WIDTH);
    }
    ggml_backend_tensor_set(x, in, 0, ggml_nbytes(x));
    ggml_backend_tensor_set(vectors, table, 0, sizeof(table));
    fill_with(zeros, 0);
    fill(bias, 0); /* the last experts are chosen */
    said_t said;
    listen(&said);
    bool good = compute(c, sum) == GGML_STATUS_SUCCESS;
    listened(&said);
    ggml_backend_tensor_get(sum, out, 0, ggml_nbytes(sum));
    for (int64_t t = 0; t < tokens; t++) {
        double all = 0, weighted = 0;
        bool taken[MANY] = {0};
        for (int i = 0; i < USED; i++) {
            int best = -1;
            for (int e = 0; e < MANY; e++) {
                const bool better = best < 0 || biased || in[t * MANY + e] > in[t * MANY + best];
                best = !taken[e] && better ? e : best;
            }
            taken[best] = true;
            all += exp((double)in[t * MANY + best]);
            weighted += (1 + best) * exp((double)in[t * MANY + best]);
        }
        for (int i = 0; i < WIDTH; i++) {
            const double want = weighted / all * (1 + i);
            good = good && fabs((double)out[t * WIDTH + i] - want) <= 1e-5 * want;
        }
    }
    char what[96];
    snprintf(what, sizeof(what), "a router of %d tokens%s%s", (int)tokens, biased ? ", biased" : "",
             strstr(said.text, "a graph ends") ? ", in several graphs" : "");
    check(good && !strstr(said.text, "a graph ends"), what);
    ggml_backend_buffer_free(buffer);
    ggml_free(c);
}

/* The best experts of the best groups, as llama.cpp finds them for DeepSeek-V3: the scores of all
 * others become -infinity. */
static void check_groups(int64_t tokens)
{
    enum { EACH = 3, GROUPS = 4, GOOD = 2, MANY = EACH * GROUPS, MOST = 40 };
    struct ggml_context *c = make_context();
    struct ggml_tensor *x = ggml_new_tensor_2d(c, GGML_TYPE_F32, MANY, tokens);
    struct ggml_tensor *scores = ggml_scale(c, x, 2.0f);
    struct ggml_tensor *groups = ggml_reshape_3d(c, scores, EACH, GROUPS, tokens);
    struct ggml_tensor *two = ggml_get_rows(c, ggml_reshape_4d(c, groups, 1, EACH, GROUPS, tokens),
                                            ggml_argsort_top_k(c, groups, 2));
    struct ggml_tensor *sums = ggml_sum_rows(c, ggml_reshape_3d(c, two, 2, GROUPS, tokens));
    struct ggml_tensor *good =
        ggml_argsort_top_k(c, ggml_reshape_2d(c, sums, GROUPS, tokens), GOOD);
    struct ggml_tensor *kept = ggml_get_rows(c, groups, good);
    struct ggml_tensor *masked = ggml_set_rows(c, ggml_fill(c, groups, -INFINITY), kept, good);
    struct ggml_tensor *ids = ggml_argsort_top_k(c, ggml_reshape_2d(c, masked, MANY, tokens), USED);
    struct ggml_tensor *results[2] = {
        ggml_cont(c, ids), ggml_get_rows(c, ggml_reshape_3d(c, scores, 1, MANY, tokens), ids)};
    ggml_backend_buffer_t buffer = allocate(c);
    float in[MANY * MOST], out[USED * MOST];
    int32_t chosen[USED * MOST];
    uint32_t state = (uint32_t)tokens + 5;
    random_floats(in, MANY * tokens, &state);
    ggml_backend_tensor_set(x, in, 0, ggml_nbytes(x));
    said_t said;
    listen(&said);
    bool right = compute_all(c, 2, results) == GGML_STATUS_SUCCESS;
    listened(&said);
    ggml_backend_tensor_get(results[0], chosen, 0, ggml_nbytes(results[0]));
    ggml_backend_tensor_get(results[1], out, 0, ggml_nbytes(results[1]));
    for (int64_t t = 0; t < tokens; t++) {
        const float *of = in + MANY * t;
        float sum[GROUPS];
        for (int g = 0; g < GROUPS; g++) {
            const float *e = of + EACH * g;
            sum[g] = e[0] + e[1] + e[2] - fminf(e[0], fminf(e[1], e[2]));
        }
        for (int i = 0; i < USED; i++) {
            int better = 0, groups_before = 0;
            const int32_t id = chosen[USED * t + i];
            right = right && id >= 0 && id < MANY && out[USED * t + i] == 2 * of[id];
            for (int g = 0; g < GROUPS && right; g++) {
                groups_before += sum[g] > sum[id / EACH];
            }
            for (int e = 0; e < MANY && right; e++) {
                int before = 0;
                for (int g = 0; g < GROUPS; g++) {
                    before += sum[g] > sum[e / EACH];
                }
                better += before < GOOD && of[e] > of[id];
            }
            right = right && groups_before < GOOD && better == i;
        }
    }
    char what[96];
    snprintf(what, sizeof(what), "groups of experts, %d tokens", (int)tokens);
    check(right && !strstr(said.text, "a graph ends"), what);
    ggml_backend_buffer_free(buffer);
    ggml_free(c);
}

/* ---- indices outside of a tensor ------------------------------------------------------------- */

/* Rows written at `slot` of 8, by a graph: the neighbours in memory keep their numbers. */
static void check_slot(enum ggml_type type, int64_t slot)
{
    enum { COLUMNS = 64, ROWS = 8 };
    struct ggml_context *context = make_context();
    struct ggml_tensor *before = ggml_new_tensor_2d(context, GGML_TYPE_F32, COLUMNS, ROWS);
    struct ggml_tensor *cache = ggml_new_tensor_2d(context, type, COLUMNS, ROWS);
    struct ggml_tensor *after = ggml_new_tensor_2d(context, GGML_TYPE_F32, COLUMNS, ROWS);
    struct ggml_tensor *row = ggml_new_tensor_2d(context, GGML_TYPE_F32, COLUMNS, 1);
    struct ggml_tensor *slots = ggml_new_tensor_1d(context, GGML_TYPE_I64, 1);
    struct ggml_tensor *result = ggml_set_rows(context, cache, row, slots);
    ggml_backend_buffer_t buffer = allocate(context);
    float got[COLUMNS * ROWS];
    fill(before, 1);
    fill(after, 1);
    fill(row, 5000);
    ggml_backend_tensor_memset(cache, 0, 0, ggml_nbytes(cache));
    ggml_backend_tensor_set(slots, &slot, 0, sizeof(slot));
    const enum ggml_status status = compute(context, result);
    char what[64];
    snprintf(what, sizeof(what), "%s, slot %d", ggml_type_name(type), (int)slot);
    check((status == GGML_STATUS_SUCCESS) == (slot >= 0 && slot < ROWS), what);
    struct ggml_tensor *sides[2] = {before, after};
    for (int side = 0; side < 2; side++) {
        ggml_backend_tensor_get(sides[side], got, 0, sizeof(got));
        bool kept = true;
        for (int i = 0; i < COLUMNS * ROWS; i++) {
            kept &= got[i] == (float)(1 + i);
        }
        check(kept, what);
    }
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
}

static void check_lookup(enum ggml_type type, int32_t id)
{
    enum { COLUMNS = 64, ROWS = 8 };
    struct ggml_context *context = make_context();
    struct ggml_tensor *table = ggml_new_tensor_2d(context, type, COLUMNS, ROWS);
    struct ggml_tensor *ids = ggml_new_tensor_1d(context, GGML_TYPE_I32, 1);
    struct ggml_tensor *result = ggml_get_rows(context, table, ids);
    ggml_backend_buffer_t buffer = allocate(context);
    ggml_backend_tensor_memset(table, 0, 0, ggml_nbytes(table));
    ggml_backend_tensor_set(ids, &id, 0, sizeof(id));
    char what[64];
    snprintf(what, sizeof(what), "%s, row %d", ggml_type_name(type), (int)id);
    check((compute(context, result) == GGML_STATUS_SUCCESS) == (id >= 0 && id < ROWS), what);
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
}

/* ---- runs that fail -------------------------------------------------------------------------- */

/* A graph of three steps, of which the second is a loop of the backend's own. */
typedef struct steps {
    struct ggml_context *context;
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *table, *ids, *x, *results[2];
} steps_t;

static steps_t make_steps(void)
{
    steps_t s = {.context = make_context()};
    s.table = ggml_new_tensor_2d(s.context, GGML_TYPE_F32, 64, 8);
    s.ids = ggml_new_tensor_1d(s.context, GGML_TYPE_I32, 2);
    s.x = ggml_new_tensor_2d(s.context, GGML_TYPE_F32, 64, 4);
    struct ggml_tensor *codes = ggml_new_tensor_2d(s.context, GGML_TYPE_Q8_0, 64, 2);
    s.results[0] = ggml_cpy(s.context, ggml_get_rows(s.context, s.table, s.ids), codes);
    s.results[1] = ggml_scale(s.context, s.x, 2.0f);
    s.buffer = allocate(s.context);
    fill(s.table, 1);
    return s;
}

static enum ggml_status run_steps(const steps_t *s, int32_t id, float x)
{
    const int32_t ids[2] = {0, id};
    fill_with(s->x, x);
    ggml_backend_tensor_set(s->ids, ids, 0, sizeof(ids));
    return compute_all(s->context, 2, s->results);
}

/* Where a run fails in its first step, the others are not bound to its memory: a later run binds
 * them, and does not write what an earlier run had bound. */
static void check_after_failure(bool free_first)
{
    steps_t a = make_steps(), b = make_steps();
    check(run_steps(&a, 3, 5) == GGML_STATUS_SUCCESS && holds(a.results[1], 10), "a right run");
    check(run_steps(&b, 99, 7) != GGML_STATUS_SUCCESS, "an index outside of the table");
    if (free_first) {
        ggml_backend_buffer_free(a.buffer);
    }
    check(run_steps(&b, 3, 7) == GGML_STATUS_SUCCESS && holds(b.results[1], 14),
          "a right run in the memory of one that has failed");
    if (!free_first) {
        check(holds(a.results[1], 10), "memory of a run before the one that has failed");
        check(run_steps(&a, 99, 1) != GGML_STATUS_SUCCESS, "an index outside of the table again");
        check(run_steps(&b, 4, 8) == GGML_STATUS_SUCCESS && holds(b.results[1], 16),
              "a run in other memory than one that has failed");
        ggml_backend_buffer_free(a.buffer);
    }
    ggml_backend_buffer_free(b.buffer);
    ggml_free(a.context);
    ggml_free(b.context);
}

/* A new backend, whose first run fails: the next one is right. */
static void check_first_failure(void)
{
    ggml_backend_t kept = backend;
    backend = ggml_backend_dev_init(device, NULL);
    steps_t s = make_steps();
    check(run_steps(&s, 99, 7) != GGML_STATUS_SUCCESS, "an index outside of the table at first");
    check(run_steps(&s, 3, 7) == GGML_STATUS_SUCCESS && holds(s.results[1], 14),
          "a right run after a first one that has failed");
    ggml_backend_free(backend);
    backend = kept;
    ggml_backend_buffer_free(s.buffer);
    ggml_free(s.context);
}

/* How many graphs a new backend compiles for three nodes that make up one graph: once with an index
 * outside of the table, and then `runs` times with a right one. */
static int graphs_after_failure(int runs)
{
    ggml_backend_t kept = backend;
    backend = ggml_backend_dev_init(device, NULL);
    steps_t s = make_steps();
    struct ggml_context *context = make_context();
    struct ggml_tensor *x = ggml_scale(context, s.x, 3.0f);
    struct ggml_tensor *rows = ggml_get_rows(context, s.table, s.ids);
    struct ggml_tensor *results[2] = {x, ggml_scale(context, rows, 0.0f)};
    ggml_backend_buffer_t buffer = allocate(context);
    fill_with(s.x, 7);
    for (int i = 0; i <= runs; i++) {
        const int32_t ids[2] = {0, i == 0 ? 100 : i};
        ggml_backend_tensor_set(s.ids, ids, 0, sizeof(ids));
        const bool good = compute_all(context, 2, results) == GGML_STATUS_SUCCESS;
        check(good == (i > 0), "three nodes, one with an index");
        check(!good || (holds(x, 21) && holds(results[1], 0)), "the results of three nodes");
    }
    said_t said;
    listen(&said);
    ggml_backend_free(backend);
    listened(&said);
    backend = kept;
    int graphs = -1;
    const char *at = strstr(said.text, " graphs compiled");
    while (at && at > said.text && at[-1] >= '0' && at[-1] <= '9') {
        at--;
    }
    check(at && sscanf(at, "%d graphs compiled", &graphs) == 1, "how many graphs");
    ggml_backend_buffer_free(buffer);
    ggml_backend_buffer_free(s.buffer);
    ggml_free(context);
    ggml_free(s.context);
    return graphs;
}

/* ---- views of quantised tensors -------------------------------------------------------------- */

/* A tensor of blocks, and a view of it: some columns of each row, or rows of another length. */
typedef struct viewed {
    int64_t columns, rows;           /* of the tensor */
    int64_t view_columns, view_rows; /* of the view */
    int64_t pitch, begin; /* from row to row of the view, and to its first; in elements */
} viewed_t;

static struct ggml_tensor *view_of(struct ggml_context *context, struct ggml_tensor *tensor,
                                   const viewed_t *v)
{
    return ggml_view_2d(context, tensor, v->view_columns, v->view_rows,
                        ggml_row_size(tensor->type, v->pitch),
                        ggml_row_size(tensor->type, v->begin));
}

/* Whether blocks are others only within a row that begins at element `at`, and lose no more of its
 * numbers there: codes may differ where a number lies near the middle of two. */
static bool as_good(enum ggml_type type, const uint8_t *got, const uint8_t *wanted, size_t size,
                    int64_t at, int64_t count, const float *values)
{
    const size_t begin = ggml_row_size(type, at), end = begin + ggml_row_size(type, count);
    float *mine = malloc((size_t)count * sizeof(*mine)),
          *ggmls = malloc((size_t)count * sizeof(*mine));
    must(mine && ggmls, "no memory");
    ggml_get_type_traits(type)->to_float(got + begin, mine, count);
    ggml_get_type_traits(type)->to_float(wanted + begin, ggmls, count);
    float most = 0, error = 0, bound = 0;
    for (int64_t i = 0; i < count; i++) {
        most = fmaxf(most, fabsf(values[i]));
        error = fmaxf(error, fabsf(mine[i] - values[i]));
        bound = fmaxf(bound, fabsf(ggmls[i] - values[i]));
    }
    free(mine);
    free(ggmls);
    return !memcmp(got, wanted, begin) && !memcmp(got + end, wanted + end, size - end) &&
           error <= 1.05f * bound + most / 512;
}

/* One row of the view is written by SET_ROWS, or all of them by a copy: the blocks of the whole
 * tensor are those that ggml's own functions make, but for codes of Sinter's own. */
static void check_written(enum ggml_type type, const viewed_t *v, bool in_host, bool by_copy)
{
    struct ggml_context *context = make_context(), *memory = make_context();
    struct ggml_tensor *tensor = ggml_new_tensor_2d(memory, type, v->columns, v->rows);
    struct ggml_tensor *rows =
        ggml_new_tensor_2d(context, GGML_TYPE_F32, v->view_columns, by_copy ? v->view_rows : 1);
    struct ggml_tensor *slot = ggml_new_tensor_1d(context, GGML_TYPE_I64, 1);
    ggml_backend_buffer_t home = in_host ? allocate_in_host(memory) : allocate(memory);
    struct ggml_tensor *view = view_of(context, tensor, v);
    struct ggml_tensor *result =
        by_copy ? ggml_cpy(context, rows, view) : ggml_set_rows(context, view, rows, slot);
    ggml_backend_buffer_t buffer = allocate(context);
    const size_t size = ggml_nbytes(tensor), count = (size_t)ggml_nelements(rows);
    uint8_t *bytes = malloc(size), *got = malloc(size);
    float *values = malloc(count * sizeof(*values));
    must(bytes && got && values, "no memory");
    uint32_t state = 9;
    random_blocks(type, bytes, v->columns * v->rows, &state);
    ggml_backend_tensor_set(tensor, bytes, 0, size);
    for (size_t i = 0; i < count; i++) {
        values[i] = 3.0f + (float)(i * i % 97) / 8.0f;
    }
    ggml_backend_tensor_set(rows, values, 0, count * sizeof(*values));
    const int64_t number = 1;
    ggml_backend_tensor_set(slot, &number, 0, sizeof(number));
    for (int64_t i = 0; i < rows->ne[1]; i++) {
        const int64_t at = v->begin + v->pitch * (by_copy ? i : number);
        ggml_get_type_traits(type)->from_float_ref(
            values + i * v->view_columns, bytes + ggml_row_size(type, at), v->view_columns);
    }
    const enum ggml_status status = compute(context, result);
    ggml_backend_tensor_get(tensor, got, 0, size);
    char what[160];
    snprintf(what, sizeof(what), "%s: %s %dx%d of %dx%d%s", ggml_type_name(type),
             by_copy ? "a copy to" : "SET_ROWS into", (int)v->view_columns, (int)v->view_rows,
             (int)v->columns, (int)v->rows, in_host ? " in a buffer of the host" : "");
    const bool same = !memcmp(got, bytes, size);
    check(status == GGML_STATUS_SUCCESS &&
              (same || (!by_copy && !in_host &&
                        as_good(type, got, bytes, size, v->begin + v->pitch * number,
                                v->view_columns, values))),
          what);
    free(bytes);
    free(got);
    free(values);
    ggml_backend_buffer_free(home);
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
    ggml_free(memory);
}

/* Rows of the view, looked up, are what ggml's own function decodes from the tensor's blocks. */
static void check_read(enum ggml_type type, const viewed_t *v)
{
    struct ggml_context *context = make_context();
    struct ggml_tensor *tensor = ggml_new_tensor_2d(context, type, v->columns, v->rows);
    struct ggml_tensor *ids = ggml_new_tensor_1d(context, GGML_TYPE_I32, 2);
    struct ggml_tensor *result = ggml_get_rows(context, view_of(context, tensor, v), ids);
    ggml_backend_buffer_t buffer = allocate(context);
    const size_t size = ggml_nbytes(tensor), count = (size_t)v->view_columns;
    uint8_t *bytes = malloc(size);
    float *expected = malloc(count * sizeof(*expected)), *got = malloc(count * sizeof(*got));
    must(bytes && expected && got, "no memory");
    uint32_t state = 5;
    const int32_t numbers[2] = {(int32_t)v->view_rows - 1, 1};
    random_blocks(type, bytes, v->columns * v->rows, &state);
    ggml_backend_tensor_set(tensor, bytes, 0, size);
    ggml_backend_tensor_set(ids, numbers, 0, sizeof(numbers));
    bool good = compute(context, result) == GGML_STATUS_SUCCESS;
    for (int i = 0; i < 2; i++) {
        const int64_t at = v->begin + v->pitch * numbers[i];
        ggml_get_type_traits(type)->to_float(bytes + ggml_row_size(type, at), expected,
                                             v->view_columns);
        ggml_backend_tensor_get(result, got, (size_t)i * count * sizeof(*got),
                                count * sizeof(*got));
        for (size_t k = 0; k < count; k++) {
            /* Rounded once or twice: at most a unit of the greatest number. */
            good &= fabsf(got[k] - expected[k]) <= 0x1p-22f;
        }
    }
    check(good, ggml_type_name(type));
    free(bytes);
    free(expected);
    free(got);
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
}

static void check_views(enum ggml_type type, int64_t unit)
{
    const viewed_t views[] = {
        {4 * unit, 6, 4 * unit, 6, 4 * unit, 0},        /* all */
        {4 * unit, 6, 2 * unit, 6, 4 * unit, 0},        /* the first half of each row */
        {4 * unit, 6, 2 * unit, 6, 4 * unit, 2 * unit}, /* the second half */
        {4 * unit, 6, unit, 5, 4 * unit, 7 * unit},     /* the last block, from row 1 on */
        {unit, 24, 4 * unit, 6, 4 * unit, 0},           /* four rows as one */
        {unit, 24, 4 * unit, 3, 8 * unit, 4 * unit},    /* four of each eight rows as one */
        {4 * unit, 6, unit, 24, unit, 0},               /* a row as four */
        {4 * unit, 6, 3 * unit, 8, 3 * unit, 0},        /* rows of another length */
    };
    for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++) {
        check_read(type, &views[i]);
        for (int way = 0; way < 4; way++) {
            check_written(type, &views[i], way & 1, way & 2);
        }
    }
}

/* ---- caches that a graph writes and reads ---------------------------------------------------- */

/* Rows are written in `written` of the cache's 16 from row `first` on, and `seen` rows are read
 * from row `from` on, in the same graph. With a copy to a quantised type between them, SET_ROWS is
 * a step by itself. */
static void check_cache(int64_t first, int64_t written, int64_t slot, int64_t from, int64_t seen,
                        bool alone)
{
    enum { WIDE = 64, ROWS = 16 };
    struct ggml_context *c = make_context();
    struct ggml_tensor *cache = ggml_new_tensor_2d(c, GGML_TYPE_F32, WIDE, ROWS);
    struct ggml_tensor *x = ggml_new_tensor_2d(c, GGML_TYPE_F32, WIDE, 1);
    struct ggml_tensor *slots = ggml_new_tensor_1d(c, GGML_TYPE_I64, 1);
    struct ggml_tensor *codes = ggml_new_tensor_2d(c, GGML_TYPE_Q8_0, WIDE, 1);
    struct ggml_tensor *to = written == ROWS ? cache
                                             : ggml_view_2d(c, cache, WIDE, written, cache->nb[1],
                                                            (size_t)first * cache->nb[1]);
    struct ggml_tensor *read =
        ggml_view_2d(c, cache, WIDE, seen, cache->nb[1], (size_t)from * cache->nb[1]);
    struct ggml_tensor *results[3] = {ggml_set_rows(c, to, x, slots),
                                      alone ? ggml_cpy(c, x, codes) : ggml_scale(c, x, 2),
                                      ggml_mul_mat(c, read, x)};
    ggml_backend_buffer_t buffer = allocate(c);
    float got[ROWS], row[WIDE];
    fill_with(cache, 1);
    fill_with(x, 3);
    ggml_backend_tensor_set(slots, &slot, 0, sizeof(slot));
    bool good = compute_all(c, 3, results) == GGML_STATUS_SUCCESS;
    ggml_backend_tensor_get(results[2], got, 0, (size_t)seen * sizeof(*got));
    for (int64_t i = 0; i < seen; i++) {
        good &= got[i] == (from + i == first + slot ? 9.0f : 3.0f) * WIDE;
    }
    for (int64_t i = 0; i < ROWS; i++) {
        ggml_backend_tensor_get(cache, row, (size_t)i * sizeof(row), sizeof(row));
        good &= row[0] == (i == first + slot ? 3.0f : 1.0f) && row[WIDE - 1] == row[0];
    }
    char what[160];
    snprintf(what, sizeof(what), "rows %d to %d of a cache are written, %d to %d are read",
             (int)first, (int)(first + written), (int)from, (int)(from + seen));
    check(good, what);
    ggml_backend_buffer_free(buffer);
    ggml_free(c);
}

static void check_caches(void)
{
    for (int alone = 0; alone < 2; alone++) {
        check_cache(0, 16, 3, 0, 4, alone);
        check_cache(0, 16, 12, 0, 4, alone); /* behind the rows that are read */
        check_cache(0, 16, 12, 8, 8, alone);
        check_cache(4, 12, 1, 0, 12, alone); /* as many rows, but others */
        check_cache(4, 4, 1, 0, 8, alone);
        check_cache(4, 4, 1, 4, 8, alone);
    }
}

/* A cache with parts for two sequences, of which each gets a token: at slots that count through all
 * parts. columns: each element has its cells side by side. A slot from outside is an error that
 * names it, and nothing is written; one of another part is right, if not in one graph. */
static void check_parts(enum ggml_type type, bool columns, const int64_t *cells, bool fits,
                        bool in_one)
{
    enum { WIDE = 8, HEADS = 2, HEAD = 4, ROWS = 16, PARTS = 2, SEEN = 12, ALL = WIDE * ROWS };
    struct ggml_context *c = make_context();
    struct ggml_tensor *cache = ggml_new_tensor_3d(c, GGML_TYPE_F32, WIDE, ROWS, PARTS);
    const int64_t each = columns ? WIDE : 1, width = WIDE / each;
    struct ggml_tensor *x = ggml_new_tensor_2d(c, GGML_TYPE_F32, width, PARTS * each);
    struct ggml_tensor *slots = ggml_new_tensor_1d(c, type, PARTS * each);
    const size_t row = (columns ? ROWS : WIDE) * sizeof(float);
    struct ggml_tensor *read =
        columns ? ggml_view_4d(c, cache, SEEN, HEADS, HEAD, PARTS, HEAD * row, row, cache->nb[2], 0)
                : ggml_view_4d(c, cache, WIDE, SEEN, 1, PARTS, row, row, cache->nb[2], 0);
    struct ggml_tensor *y =
        ggml_new_tensor_4d(c, GGML_TYPE_F32, read->ne[0], 1, read->ne[2], PARTS);
    struct ggml_tensor *results[2] = {
        ggml_set_rows(c, ggml_reshape_2d(c, cache, width, PARTS * ROWS * each), x, slots),
        ggml_mul_mat(c, read, y)};
    ggml_backend_buffer_t buffer = allocate(c);
    float got[PARTS * ALL], want[PARTS * ALL], product[PARTS * ROWS];
    int64_t list[PARTS * WIDE];
    int32_t narrow[PARTS * WIDE];
    for (int i = 0; i < PARTS * ALL; i++) {
        want[i] = 1;
    }
    for (int i = 0; i < PARTS * (int)each; i++) {
        const int64_t cell = cells[i / each];
        const bool is_one = cell >= 0 && cell < PARTS * ROWS;
        list[i] = columns && is_one ? cell / ROWS * ALL + i % WIDE * ROWS + cell % ROWS
                  : columns && cell == PARTS * ROWS ? PARTS * ALL
                                                    : cell;
        narrow[i] = (int32_t)list[i];
        for (int e = 0; fits && e < WIDE / each; e++) {
            want[columns ? list[i] : list[i] * WIDE + e] = 3;
        }
    }
    fill_with(cache, 1);
    fill_with(x, 3);
    fill_with(y, 1);
    ggml_backend_tensor_set(slots, type == GGML_TYPE_I64 ? (void *)list : narrow, 0,
                            ggml_nbytes(slots));
    said_t said;
    listen(&said);
    bool good = (compute_all(c, 2, results) == GGML_STATUS_SUCCESS) == fits;
    listened(&said);
    ggml_backend_tensor_get(cache, got, 0, sizeof(got));
    good &= !memcmp(got, want, sizeof(got));
    char what[160], value[40];
    ggml_backend_tensor_get(results[1], product, 0, ggml_nbytes(results[1]));
    const int64_t lines = read->ne[1] * read->ne[2];
    for (int64_t i = 0; fits && i < PARTS * lines; i++) {
        const int64_t at = i % lines, line = columns ? at % HEADS * HEAD + at / HEADS : at;
        float sum = 0;
        for (int64_t e = 0; e < read->ne[0]; e++) {
            sum += want[i / lines * ALL + line * (columns ? ROWS : WIDE) + e];
        }
        good &= product[i] == sum;
    }
    snprintf(value, sizeof(value), " %lld ", (long long)list[0]);
    good &= fits || strstr(said.text, value) != NULL;
    good &= !in_one || strstr(said.text, "one by one") == NULL;
    snprintf(what, sizeof(what), "slots %lld and %lld of %s in parts%s: %s", (long long)cells[0],
             (long long)cells[1], ggml_type_name(type), columns ? " of columns" : "", said.text);
    check(good, what);
    ggml_backend_buffer_free(buffer);
    ggml_free(c);
}

static void check_all_parts(void)
{
    /* Once nodes have run one by one with success, a plan keeps to that: such cases come last. */
    static const struct {
        int64_t cells[2];
        bool fits, in_one;
    } cases[] = {
        {{3, 16 + 2}, true, true},
        {{11, 16}, true, true},
        {{32, 16}, false, false}, /* of no part */
        {{INT32_MAX, 16}, false, false},
        {{-2, 16}, false, false},
        {{INT32_MIN, 16}, false, false},
        {{(INT64_C(1) << 32) + 3, 16}, false, false}, /* whose lower half is a slot */
        {{(INT64_C(-1) << 32) + 3, 16}, false, false},
        {{INT64_MAX, 16}, false, false},
        {{INT64_MIN, 16}, false, false},
        {{3, 15}, true, false},  /* just before its part */
        {{15, 16}, true, false}, /* behind the cells that are read */
        {{16, 4}, true, false},  /* each in the other part */
    };
    for (int way = 0; way < 4; way++) {
        const bool columns = way & 1, wide = way & 2;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            if (wide || cases[i].cells[0] == (int32_t)cases[i].cells[0]) {
                check_parts(wide ? GGML_TYPE_I64 : GGML_TYPE_I32, columns, cases[i].cells,
                            cases[i].fits, cases[i].in_one);
            }
        }
    }
}

/* ---- latent attention ------------------------------------------------------------------------ */

/* The graph writes rows of the cache, which are the keys of all heads and whose first elements are
 * the values, and reads them: one graph, with the result of attention over what the cache holds
 * then. flash: as one op; else as products and a softmax. */
static void check_latent(enum ggml_type type, bool flash)
{
    enum { KEY = 96, VALUE = 64, HEADS = 5, TOKENS = 3, ROWS = 48, SEEN = 32 };
    const float scale = 0.25f;
    const char *mode = getenv("SINTER_GGML_FPMATH");
    const bool codes = ggml_is_quantized(type) && !(mode && !strcmp(mode, "strict"));
    struct ggml_context *c = make_context();
    struct ggml_tensor *cache = ggml_new_tensor_2d(c, type, KEY, ROWS);
    struct ggml_tensor *x = ggml_new_tensor_2d(c, GGML_TYPE_F32, KEY, SEEN);
    struct ggml_tensor *slots = ggml_new_tensor_1d(c, GGML_TYPE_I64, SEEN);
    struct ggml_tensor *q = ggml_new_tensor_4d(c, GGML_TYPE_F32, KEY, HEADS, TOKENS, 1);
    const size_t row = cache->nb[1];
    struct ggml_tensor *k = ggml_permute(
        c, ggml_view_4d(c, cache, KEY, 1, SEEN, 1, row, row, row * ROWS, 0), 0, 2, 1, 3);
    struct ggml_tensor *v = ggml_permute(
        c, ggml_view_4d(c, cache, VALUE, 1, SEEN, 1, row, row, row * ROWS, 0), 0, 2, 1, 3);
    struct ggml_tensor *queries = ggml_permute(c, q, 0, 2, 1, 3);
    struct ggml_tensor *results[2] = {ggml_set_rows(c, cache, x, slots), NULL};
    if (flash) {
        results[1] = ggml_flash_attn_ext(c, queries, k, v, NULL, scale, 0, 0);
    } else {
        struct ggml_tensor *p = ggml_soft_max_ext(c, ggml_mul_mat(c, k, queries), NULL, scale, 0);
        results[1] = ggml_cont(
            c, ggml_permute(c, ggml_mul_mat(c, ggml_cont(c, ggml_transpose(c, v)), p), 0, 2, 1, 3));
    }
    ggml_backend_buffer_t buffer = allocate(c);
    float in[KEY * SEEN], from[KEY * HEADS * TOKENS], out[VALUE * HEADS * TOKENS], kept[KEY * SEEN];
    int64_t list[SEEN];
    uint8_t blocks[KEY * SEEN * sizeof(float)];
    uint32_t state = (uint32_t)type + 5;
    random_floats(in, KEY * SEEN, &state);
    random_floats(from, KEY * HEADS * TOKENS, &state);
    for (int64_t i = 0; i < SEEN; i++) {
        list[i] = (i * 7 + 3) % SEEN;
    }
    ggml_backend_buffer_clear(buffer, 0);
    ggml_backend_tensor_set(x, in, 0, ggml_nbytes(x));
    ggml_backend_tensor_set(q, from, 0, ggml_nbytes(q));
    ggml_backend_tensor_set(slots, list, 0, sizeof(list));
    said_t said;
    listen(&said);
    bool good = compute_all(c, 2, results) == GGML_STATUS_SUCCESS;
    listened(&said);
    const bool whole = strstr(said.text, "a graph ends before") == NULL;
    ggml_backend_tensor_get(results[1], out, 0, ggml_nbytes(results[1]));
    ggml_backend_tensor_get(cache, blocks, 0, row * SEEN);
    if (type == GGML_TYPE_F32) {
        memcpy(kept, blocks, sizeof(kept));
    } else {
        ggml_get_type_traits(type)->to_float(blocks, kept, KEY * SEEN);
    }
    double errors = 0, norm = 0;
    for (int i = 0; i < HEADS * TOKENS; i++) { /* of a token, one head after the other */
        double weights[SEEN], sum = 0;
        for (int t = 0; t < SEEN; t++) {
            double score = 0;
            for (int e = 0; e < KEY; e++) {
                score += (double)from[i * KEY + e] * (double)kept[t * KEY + e];
            }
            weights[t] = exp(score * (double)scale);
            sum += weights[t];
        }
        for (int e = 0; e < VALUE; e++) {
            double want = 0;
            for (int t = 0; t < SEEN; t++) {
                want += weights[t] / sum * (double)kept[t * KEY + e];
            }
            errors += (out[i * VALUE + e] - want) * (out[i * VALUE + e] - want);
            norm += want * want;
        }
    }
    const double relative = sqrt(errors / norm);
    good = good && relative <= (codes ? 0.05 : 1e-5);
    char what[160];
    snprintf(what, sizeof(what), "latent attention of %s%s: error of %g%s", ggml_type_name(type),
             flash ? ", one op" : "", relative, whole ? "" : ", in several graphs");
    check(good && whole, what);
    ggml_backend_buffer_free(buffer);
    ggml_free(c);
}

/* ---- caches whose heads lie in tiles --------------------------------------------------------- */

enum { KV_HEADS = 3, KV_GROUP = 2, KV_ROOM = 768, KV_NEW = 5 };

/* K and V of a layer with their bytes as ggml has them, which what the backend has must equal. */
typedef struct layer {
    int64_t head, row; /* elements; bytes of a token */
    struct ggml_tensor *cache[2];
    uint8_t *blocks[2];
} layer_t;

static bool same_bytes(const layer_t *l)
{
    bool same = true;
    uint8_t *now = malloc((size_t)(l->row * KV_ROOM));
    must(now != NULL, "no memory");
    for (int i = 0; i < 2; i++) {
        ggml_backend_tensor_get(l->cache[i], now, 0, (size_t)(l->row * KV_ROOM));
        same = same && !memcmp(now, l->blocks[i], (size_t)(l->row * KV_ROOM));
    }
    free(now);
    return same;
}

/* The heads of the first `seen` tokens, as llama.cpp shows them to attention. */
static struct ggml_tensor *heads_of(struct ggml_context *c, const layer_t *l, int i, int64_t seen)
{
    const size_t head = ggml_row_size(l->cache[i]->type, l->head), row = (size_t)l->row;
    return ggml_permute(
        c, ggml_view_4d(c, l->cache[i], l->head, KV_HEADS, seen, 1, head, row, row * KV_ROOM, 0), 0,
        2, 1, 3);
}

static double part_of(const layer_t *l, int i, int64_t token, int64_t at)
{
    float row[KV_HEADS * 128];
    ggml_get_type_traits(l->cache[i]->type)
        ->to_float(l->blocks[i] + token * l->row, row, KV_HEADS * l->head);
    return row[at];
}

/* A graph writes new tokens of K and V and attends to `seen` tokens, of which a mask leaves out
 * those from `length` on. Afterwards the bytes are those of ggml again. */
static void attend(layer_t *l, int64_t tokens, int64_t seen, int64_t length, uint32_t *state)
{
    const int64_t width = KV_HEADS * l->head, queries = KV_HEADS * KV_GROUP;
    const enum ggml_type type = l->cache[0]->type;
    const char *mode = getenv("SINTER_GGML_FPMATH");
    const bool codes = !(mode && !strcmp(mode, "strict"));
    struct ggml_context *c = make_context();
    struct ggml_tensor *x[2], *results[3];
    struct ggml_tensor *slots = ggml_new_tensor_1d(c, GGML_TYPE_I64, KV_NEW);
    struct ggml_tensor *q = ggml_new_tensor_4d(c, GGML_TYPE_F32, l->head, tokens, queries, 1);
    struct ggml_tensor *mask = ggml_new_tensor_4d(c, GGML_TYPE_F16, seen, tokens, 1, 1);
    for (int i = 0; i < 2; i++) {
        x[i] = ggml_new_tensor_2d(c, GGML_TYPE_F32, width, KV_NEW);
        results[i] = ggml_set_rows(c, l->cache[i], x[i], slots);
    }
    results[2] = ggml_flash_attn_ext(c, q, heads_of(c, l, 0, seen), heads_of(c, l, 1, seen), mask,
                                     0.25f, 0, 0);
    ggml_backend_buffer_t buffer = allocate(c);
    float *news[2], *from = malloc(ggml_nbytes(q)), *out = malloc(ggml_nbytes(results[2]));
    ggml_fp16_t *numbers = malloc(ggml_nbytes(mask));
    must(from && out && numbers, "no memory");
    int64_t list[KV_NEW];
    for (int i = 0; i < KV_NEW; i++) {
        list[i] = (i * 53 + 11) % length;
    }
    for (int i = 0; i < 2; i++) {
        news[i] = malloc(ggml_nbytes(x[i]));
        must(news[i] != NULL, "no memory");
        random_floats(news[i], width * KV_NEW, state);
        ggml_backend_tensor_set(x[i], news[i], 0, ggml_nbytes(x[i]));
    }
    random_floats(from, l->head * tokens * queries, state);
    for (int64_t i = 0; i < seen * tokens; i++) {
        numbers[i] = ggml_fp32_to_fp16(i % seen < length ? 0 : -INFINITY);
    }
    ggml_backend_tensor_set(q, from, 0, ggml_nbytes(q));
    ggml_backend_tensor_set(slots, list, 0, sizeof(list));
    ggml_backend_tensor_set(mask, numbers, 0, ggml_nbytes(mask));
    bool good = compute_all(c, 3, results) == GGML_STATUS_SUCCESS;
    ggml_backend_tensor_get(results[2], out, 0, ggml_nbytes(results[2]));
    /* New rows are what the backend says; all others are as they were. */
    for (int i = 0; i < 2; i++) {
        for (int n = 0; n < KV_NEW; n++) {
            const size_t at = (size_t)(list[n] * l->row);
            float row[KV_HEADS * 128];
            ggml_backend_tensor_get(l->cache[i], l->blocks[i] + at, at, (size_t)l->row);
            ggml_get_type_traits(type)->to_float(l->blocks[i] + at, row, width);
            for (int64_t e = 0; e < width; e++) {
                good = good && fabsf(row[e] - news[i][n * width + e]) < 0.5f;
            }
        }
    }
    good = good && same_bytes(l);
    double errors = 0, norm = 0, *weights = malloc((size_t)length * sizeof(*weights));
    must(weights != NULL, "no memory");
    for (int64_t i = 0; i < queries * tokens; i += 1 + tokens / 3) {
        const int64_t h = i / tokens / KV_GROUP, t0 = i % tokens;
        double sum = 0;
        for (int64_t t = 0; t < length; t++) {
            double score = 0;
            for (int64_t e = 0; e < l->head; e++) {
                score += (double)from[i * l->head + e] * part_of(l, 0, t, h * l->head + e);
            }
            weights[t] = exp(score * 0.25);
            sum += weights[t];
        }
        for (int64_t e = 0; e < l->head; e += 7) {
            double want = 0;
            for (int64_t t = 0; t < length; t++) {
                want += weights[t] / sum * part_of(l, 1, t, h * l->head + e);
            }
            const double got = out[(t0 * queries + i / tokens) * l->head + e];
            errors += (got - want) * (got - want);
            norm += want * want;
        }
    }
    char what[160];
    snprintf(what, sizeof(what), "%s, heads of %d, %d queries, %d of %d tokens: error of %g",
             ggml_type_name(type), (int)l->head, (int)tokens, (int)length, (int)seen,
             sqrt(errors / norm));
    check(good && sqrt(errors / norm) <= (codes ? 0.08 : 1e-4), what);
    for (int i = 0; i < 2; i++) {
        free(news[i]);
    }
    free(from);
    free(out);
    free(numbers);
    free(weights);
    ggml_backend_buffer_free(buffer);
    ggml_free(c);
}

/* Another graph reads the first tokens of K as they lie side by side: a shift of positions does. */
static void read_rows(const layer_t *l, const char *what)
{
    const int64_t width = KV_HEADS * l->head;
    struct ggml_context *c = make_context();
    struct ggml_tensor *all =
        ggml_view_3d(c, l->cache[0], l->head, KV_HEADS, 300,
                     ggml_row_size(l->cache[0]->type, l->head), (size_t)l->row, 0);
    struct ggml_tensor *floats = ggml_cast(c, all, GGML_TYPE_F32);
    ggml_backend_buffer_t buffer = allocate(c);
    float *got = malloc(ggml_nbytes(floats));
    must(got != NULL, "no memory");
    bool good = compute(c, floats) == GGML_STATUS_SUCCESS;
    ggml_backend_tensor_get(floats, got, 0, ggml_nbytes(floats));
    for (int64_t i = 0; i < 300 * width; i += 17) {
        good = good && got[i] == (float)part_of(l, 0, i / width, i % width);
    }
    check(good && same_bytes(l), what);
    free(got);
    ggml_backend_buffer_free(buffer);
    ggml_free(c);
}

static void check_heads(enum ggml_type type, int64_t head)
{
    struct ggml_context *c = make_context();
    layer_t l = {.head = head, .row = (int64_t)ggml_row_size(type, KV_HEADS * head)};
    const size_t bytes = (size_t)(l.row * KV_ROOM);
    uint32_t state = (uint32_t)type + 7;
    for (int i = 0; i < 2; i++) {
        l.cache[i] = ggml_new_tensor_2d(c, type, KV_HEADS * head, KV_ROOM);
        l.blocks[i] = malloc(bytes);
        must(l.blocks[i] != NULL, "no memory");
    }
    ggml_backend_buffer_t buffer = allocate(c);
    for (int i = 0; i < 2; i++) { /* of floats, so that all scales are numbers */
        float *x = malloc((size_t)(KV_HEADS * head) * KV_ROOM * sizeof(*x));
        must(x != NULL, "no memory");
        random_floats(x, KV_HEADS * head * KV_ROOM, &state);
        ggml_quantize_chunk(type, x, l.blocks[i], 0, KV_ROOM, KV_HEADS * head, NULL);
        ggml_backend_tensor_set(l.cache[i], l.blocks[i], 0, bytes);
        free(x);
    }
    said_t said;
    listen(&said);
    attend(&l, 1, 256, 200, &state);
    listened(&said);
    check(strstr(said.text, "a cache is in planes") == NULL &&
              strstr(said.text, "a graph ends before") == NULL,
          "heads lie in tiles, in one graph");
    for (int i = 0; i < 2; i++) { /* some bytes from the middle of a block to that of another one */
        const size_t at = (size_t)(l.row * 255) - 5, some = (size_t)l.row + 9;
        uint8_t *moved = l.blocks[i] + 3 * (size_t)l.row + l.row - 5;
        memmove(l.blocks[i] + at, moved, some);
        ggml_backend_tensor_set(l.cache[i], l.blocks[i] + at, at, some);
    }
    check(same_bytes(&l), "parts of caches in tiles are written");
    attend(&l, 4, 768, 600, &state);
    attend(&l, 1, 512, 511, &state);
    read_rows(&l, "rows of a cache that was in tiles");
    attend(&l, 1, 256, 33, &state); /* in planes still */
    attend(&l, 40, 256, 77, &state);
    ggml_backend_tensor_memset(l.cache[1], 0, (size_t)l.row * 2, (size_t)l.row * 300);
    memset(l.blocks[1] + l.row * 2, 0, (size_t)l.row * 300);
    check(same_bytes(&l), "a part of a cache in tiles is cleared");
    attend(&l, 2, 768, 768, &state);
    ggml_backend_buffer_free(buffer);
    for (int i = 0; i < 2; i++) {
        free(l.blocks[i]);
    }
    ggml_free(c);
}

/* ---- states that are rows -------------------------------------------------------------------- */

typedef enum recurrence { WKV6, WKV7, GLA, RECURRENCES } recurrence_t;
enum { STATE_SLOTS = 5, FIRST_WRITTEN = 1 };

/* An op and the values of its sources, [tokens][heads][size]; of the bonus [heads][size]. */
typedef struct stateful {
    recurrence_t op;
    int64_t size, heads, tokens, sequences; /* tokens: of each sequence */
    struct ggml_tensor *tensor[6];
    float *q, *k, *v, *decay, *a, *b; /* a: the bonus where the op has one */
} stateful_t;

static struct ggml_tensor *add_stateful(struct ggml_context *c, stateful_t *s,
                                        struct ggml_tensor *state)
{
    struct ggml_tensor **x = s->tensor;
    for (int i = 0; i < 6; i++) {
        x[i] = i == 4 && s->op == WKV6 ? ggml_new_tensor_2d(c, GGML_TYPE_F32, s->size, s->heads)
                                       : ggml_new_tensor_3d(c, GGML_TYPE_F32, s->size, s->heads,
                                                            s->tokens * s->sequences);
    }
    return s->op == WKV6   ? ggml_rwkv_wkv6(c, x[1], x[2], x[0], x[4], x[3], state)
           : s->op == WKV7 ? ggml_rwkv_wkv7(c, x[0], x[3], x[1], x[2], x[4], x[5], state)
                           : ggml_gated_linear_attn(c, x[1], x[2], x[0], x[3], state, 0.5f);
}

/* Values for the tensors, which have memory: of a and b small ones, of decays from 0 to 1. */
static void fill_stateful(stateful_t *s, uint32_t *state)
{
    float **const values[6] = {&s->q, &s->k, &s->v, &s->decay, &s->a, &s->b};
    for (int i = 0; i < 6; i++) {
        const int64_t count = ggml_nelements(s->tensor[i]);
        float *x = *values[i] = malloc((size_t)count * sizeof(*x));
        must(x != NULL, "no memory");
        random_floats(x, count, state);
        for (int64_t e = 0; e < count && i >= 3; e++) {
            x[e] = i == 3 ? fabsf(x[e]) / (1 + fabsf(x[e])) : s->op == WKV6 ? x[e] : 0.1f * x[e];
        }
        if (s->tensor[i]->data) { /* else no op reads it */
            ggml_backend_tensor_set(s->tensor[i], x, 0, (size_t)count * sizeof(*x));
        }
    }
}

/* All tokens of a sequence by the formulas of ggml: state [heads][size][size], o [tokens][heads]
 * [size]. */
static void run_stateful(const stateful_t *s, int64_t sequence, double *state, double *o)
{
    const int64_t n = s->size;
    for (int64_t i = 0; i < s->tokens * s->heads; i++) {
        const int64_t h = i % s->heads, at = (sequence * s->tokens * s->heads + i) * n;
        for (int64_t j = 0; j < n; j++) {
            double e = 0, sum = 0;
            for (int64_t x = 0; x < n && s->op == WKV7; x++) {
                e += s->a[at + x] * state[(h * n + j) * n + x];
            }
            for (int64_t x = 0; x < n; x++) {
                double *in = &state[s->op == WKV7 ? (h * n + j) * n + x : (h * n + x) * n + j];
                const double kv = (double)s->k[at + x] * s->v[at + j], before = *in;
                *in = before * s->decay[at + x] + kv;
                *in += s->op == WKV7 ? e * s->b[at + x] : 0;
                sum += s->q[at + x] * (s->op == WKV6 ? before + s->a[h * n + x] * kv : *in);
            }
            o[i * n + j] = s->op == GLA ? 0.5 * sum : sum;
        }
    }
}

static bool is_near(const float *got, const double *expected, int64_t count)
{
    bool near = true;
    for (int64_t i = 0; i < count; i++) {
        near = near && fabs(got[i] - expected[i]) <= 1e-4 * (1 + fabs(expected[i]));
    }
    return near;
}

/* In a cache: rows of it are the states before, and those behind are copied to others, as llama.cpp
 * does. Otherwise the result is read, o and the states behind it. */
static void check_states(recurrence_t op, int64_t size, int64_t heads, int64_t tokens,
                         int64_t sequences, bool in_cache)
{
    stateful_t s = {op, size, heads, tokens, sequences, {0}, NULL, NULL, NULL, NULL, NULL, NULL};
    const int64_t each = size * size * heads, slots = in_cache ? STATE_SLOTS : sequences,
                  count = tokens * sequences * heads * size;
    uint32_t seed = (uint32_t)(op + 10 * tokens + 100 * sequences);
    struct ggml_context *c = make_context();
    struct ggml_tensor *memory = ggml_new_tensor_2d(c, GGML_TYPE_F32, each, slots),
                       *ids = ggml_new_tensor_1d(c, GGML_TYPE_I32, sequences),
                       *y = add_stateful(c, &s, in_cache ? ggml_get_rows(c, memory, ids) : memory),
                       *results[2] = {y, NULL};
    if (in_cache) {
        struct ggml_tensor *o = ggml_view_1d(c, y, count, 0),
                           *behind = ggml_view_1d(c, y, each * sequences, (size_t)count * 4);
        results[0] =
            ggml_cpy(c, behind,
                     ggml_view_1d(c, memory, each * sequences, (size_t)(FIRST_WRITTEN * each) * 4));
        results[1] = ggml_scale(c, ggml_reshape_2d(c, o, size * heads, tokens * sequences), 2);
    }
    ggml_backend_buffer_t buffer = allocate(c);
    float *before = malloc((size_t)(slots * each) * sizeof(*before)),
          *after = malloc((size_t)(slots * each) * sizeof(*after)),
          *o = malloc((size_t)count * sizeof(*o));
    double *states = malloc((size_t)(slots * each) * sizeof(*states)),
           *state = malloc((size_t)each * sizeof(*state)),
           *expected = malloc((size_t)count * sizeof(*expected));
    must(before && after && o && states && state && expected, "no memory");
    random_floats(before, slots * each, &seed);
    ggml_backend_tensor_set(memory, before, 0, (size_t)(slots * each) * sizeof(*before));
    fill_stateful(&s, &seed);
    for (int64_t i = 0; i < slots * each; i++) {
        states[i] = before[i];
    }
    for (int64_t b = 0; b < sequences; b++) {
        const int32_t from = in_cache ? (int32_t)((2 * b + 1) % STATE_SLOTS) : (int32_t)b;
        const int64_t to = in_cache ? FIRST_WRITTEN + b : b;
        ggml_backend_tensor_set(ids, &from, (size_t)b * sizeof(from), sizeof(from));
        for (int64_t i = 0; i < each; i++) {
            state[i] = before[from * each + i];
        }
        run_stateful(&s, b, state, expected + b * tokens * heads * size);
        memcpy(states + to * each, state, (size_t)each * sizeof(*state));
    }
    for (int64_t i = 0; i < count && in_cache; i++) {
        expected[i] *= 2;
    }
    check(compute_all(c, in_cache ? 2 : 1, results) == GGML_STATUS_SUCCESS, "states that are rows");
    ggml_backend_tensor_get(in_cache ? results[1] : y, o, 0, (size_t)count * sizeof(*o));
    ggml_backend_tensor_get(in_cache ? memory : y, after, in_cache ? 0 : (size_t)count * 4,
                            (size_t)(slots * each) * sizeof(*after));
    check(is_near(o, expected, count), "what states that are rows give");
    check(is_near(after, states, slots * each), "states that are rows, behind the last token");
    free(before);
    free(after);
    free(o);
    free(states);
    free(state);
    free(expected);
    free(s.q);
    free(s.k);
    free(s.v);
    free(s.decay);
    free(s.a);
    free(s.b);
    ggml_backend_buffer_free(buffer);
    ggml_free(c);
}

/* Single tokens and prompts of any length, of one and of several sequences. */
static void check_recurrences(void)
{
    for (int op = 0; op < RECURRENCES; op++) {
        for (int in_cache = 0; in_cache < 2; in_cache++) {
            check_states((recurrence_t)op, 16, 3, 1, 1, in_cache);
            check_states((recurrence_t)op, 16, 3, 7, 1, in_cache);
            check_states((recurrence_t)op, 16, 3, 2, 1, in_cache);
            check_states((recurrence_t)op, 16, 3, 1, 3, in_cache);
            check_states((recurrence_t)op, 16, 3, 1, 2, in_cache);
            check_states((recurrence_t)op, 16, 3, 5, 3, in_cache);
            check_states((recurrence_t)op, 16, 3, 6, 3, in_cache);
            check_states((recurrence_t)op, 21, 2, 9, 2, in_cache);
        }
    }
}

/* ---- weights that change --------------------------------------------------------------------- */

/* Weights of ones become zeros while copies of them may be kept: products see it. */
static void check_new_weights(enum ggml_type type, int64_t rows)
{
    enum { DEPTH = 1024, COLUMNS = 1024, WAYS = 6 };
    static const char *const ways[WAYS] = {"a new tensor", "a memset", "a cleared buffer",
                                           "a copy",       "SET_ROWS", "a copy in the same graph"};
    for (int way = 0; way < WAYS; way++) {
        struct ggml_context *home = make_context(), *c = make_context();
        struct ggml_tensor *w = ggml_new_tensor_2d(home, type, DEPTH, COLUMNS);
        ggml_backend_buffer_t weights = allocate(home);
        ggml_backend_buffer_set_usage(weights, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        struct ggml_tensor *x = ggml_new_tensor_2d(c, GGML_TYPE_F32, DEPTH, rows);
        struct ggml_tensor *zeros = ggml_new_tensor_2d(c, GGML_TYPE_F32, DEPTH, COLUMNS);
        struct ggml_tensor *ids = ggml_new_tensor_1d(c, GGML_TYPE_I64, COLUMNS);
        struct ggml_tensor *product = ggml_mul_mat(c, w, x), *again = ggml_mul_mat(c, w, x);
        struct ggml_tensor *copy = ggml_cpy(c, zeros, w);
        struct ggml_tensor *set = ggml_set_rows(c, w, zeros, ids);
        struct ggml_tensor *one_graph[3] = {product, copy, again};
        ggml_backend_buffer_t buffer = allocate(c);
        const size_t size = ggml_nbytes(w);
        float *ones = malloc(DEPTH * COLUMNS * sizeof(*ones));
        uint8_t *bytes = malloc(size);
        int64_t numbers[COLUMNS];
        must(ones && bytes, "no memory");
        for (int i = 0; i < DEPTH * COLUMNS; i++) {
            ones[i] = 1;
        }
        for (int i = 0; i < COLUMNS; i++) {
            numbers[i] = i;
        }
        if (type == GGML_TYPE_F32) {
            memcpy(bytes, ones, size);
        } else {
            ggml_quantize_chunk(type, ones, bytes, 0, COLUMNS, DEPTH, NULL);
        }
        ggml_backend_tensor_set(w, bytes, 0, size);
        ggml_backend_tensor_set(ids, numbers, 0, sizeof(numbers));
        fill_with(x, 1);
        fill_with(zeros, 0);
        bool good = compute(c, product) == GGML_STATUS_SUCCESS;
        float before = 0, between = DEPTH, after;
        ggml_backend_tensor_get(product, &before, 0, sizeof(before));
        memset(bytes, 0, size);
        if (way == 0) {
            ggml_backend_tensor_set(w, bytes, 0, size);
        } else if (way == 1) {
            ggml_backend_tensor_memset(w, 0, 0, size);
        } else if (way == 2) {
            ggml_backend_buffer_clear(weights, 0);
        } else if (way == 3) {
            good &= compute(c, copy) == GGML_STATUS_SUCCESS;
        } else if (way == 4) {
            good &= compute(c, set) == GGML_STATUS_SUCCESS;
        } else {
            good &= compute_all(c, 3, one_graph) == GGML_STATUS_SUCCESS;
            ggml_backend_tensor_get(product, &between, 0, sizeof(between));
        }
        if (way < 5) {
            good &= compute(c, again) == GGML_STATUS_SUCCESS;
        }
        ggml_backend_tensor_get(again, &after, 0, sizeof(after));
        char what[160];
        snprintf(what, sizeof(what), "%s weights, %s: %g, then %g, then %g", ggml_type_name(type),
                 ways[way], before, between, after);
        /* Codes of 4 bits have no exact one. */
        check(good && fabsf(before / DEPTH - 1) < 0.1f && fabsf(between / DEPTH - 1) < 0.1f &&
                  after == 0,
              what);
        free(ones);
        free(bytes);
        ggml_backend_buffer_free(buffer);
        ggml_backend_buffer_free(weights);
        ggml_free(c);
        ggml_free(home);
    }
}

/* ---- quantised data in memory of the host ---------------------------------------------------- */

/* All rows of a tensor become blocks of the same numbers, as the host writes them. */
static void set_in_host(struct ggml_tensor *w, float value)
{
    const size_t row = ggml_row_size(w->type, w->ne[0]);
    float *x = malloc((size_t)w->ne[0] * sizeof(*x));
    must(x != NULL, "no memory");
    for (int64_t i = 0; i < w->ne[0]; i++) {
        x[i] = value * (float)(1 + i % 5);
    }
    for (int64_t i = 0; i < w->ne[1]; i++) {
        ggml_quantize_chunk(w->type, x, (char *)w->data + (size_t)i * row, 0, 1, w->ne[0], NULL);
    }
    free(x);
}

/* The attention of one query to rows that are all the same: these rows. */
static bool gives_rows(struct ggml_context *c, struct ggml_tensor *result, struct ggml_tensor *w)
{
    enum { WIDTH = 256 };
    float got[WIDTH], expected[WIDTH];
    bool good = compute(c, result) == GGML_STATUS_SUCCESS;
    ggml_get_type_traits(w->type)->to_float(w->data, expected, WIDTH);
    ggml_backend_tensor_get(result, got, 0, sizeof(got));
    for (int i = 0; i < WIDTH && good; i++) {
        good = fabsf(got[i] - expected[i]) <= 0.02f * fabsf(expected[i]) + 1e-6f;
    }
    return good;
}

/* Products of ones with these rows: the sums of their elements. */
static bool gives_sums(struct ggml_context *c, struct ggml_tensor *result, struct ggml_tensor *w)
{
    enum { WIDTH = 256, ROWS = 2 };
    float got[ROWS], row[WIDTH], sum = 0;
    bool good = compute(c, result) == GGML_STATUS_SUCCESS;
    ggml_get_type_traits(w->type)->to_float(w->data, row, WIDTH);
    for (int i = 0; i < WIDTH; i++) {
        sum += row[i];
    }
    ggml_backend_tensor_get(result, got, 0, sizeof(got));
    for (int i = 0; i < ROWS && good; i++) {
        good = fabsf(got[i] - sum) <= 0.02f * fabsf(sum);
    }
    return good;
}

/* Attention and products read a cache there, also after the host has changed it, whose type may be
 * in planes. The device refuses to read all else, and a graph that has it all the same is an
 * error. */
static void check_host_blocks(enum ggml_type type)
{
    struct ggml_context *home = make_context(), *c = make_context();
    struct ggml_tensor *w = ggml_new_tensor_4d(home, type, 256, 2, 1, 1);
    ggml_backend_buffer_t weights = allocate_in_host(home);
    struct ggml_tensor *x = ggml_new_tensor_4d(c, GGML_TYPE_F32, 256, 1, 1, 1);
    struct ggml_tensor *results[3] = {ggml_mul_mat(c, w, x),
                                      ggml_flash_attn_ext(c, x, w, w, NULL, 0.0625f, 0, 0),
                                      ggml_mul_mat(c, ggml_view_2d(c, w, 256, 2, w->nb[1], 0), x)};
    ggml_backend_buffer_t buffer = allocate(c);
    fill_with(x, 1);
    set_in_host(w, 0.5f);
    const bool tiles_only = type == GGML_TYPE_Q2_K || type == GGML_TYPE_Q3_K ||
                            type == GGML_TYPE_Q5_K || type == GGML_TYPE_Q6_K ||
                            type == GGML_TYPE_IQ4_XS,
               cache = !tiles_only;
    if (cache) {
        check(ggml_backend_dev_supports_op(device, results[1]) && gives_rows(c, results[1], w),
              ggml_type_name(type));
        set_in_host(w, -2.0f);
        check(gives_rows(c, results[1], w), "a cache that the host has changed");
        check(ggml_backend_dev_supports_op(device, results[2]) && gives_sums(c, results[2], w),
              "a product with a cache");
        set_in_host(w, 0.25f);
        check(gives_sums(c, results[2], w), "a product with a cache that the host has changed");
    }
    for (int i = 0; i < (cache ? 1 : 3); i++) {
        check_refused(results[i], "quantised data in a buffer of the host");
        said_t said;
        listen(&said);
        const enum ggml_status status = compute(c, results[i]);
        listened(&said);
        check(status != GGML_STATUS_SUCCESS && strstr(said.text, "a buffer of the host"),
              ggml_type_name(type));
    }
    ggml_backend_buffer_free(buffer);
    ggml_backend_buffer_free(weights);
    ggml_free(c);
    ggml_free(home);
}

/* ---- weights in memory of the host ----------------------------------------------------------- */

enum { COPIES_MB = 16, FEW = 3, MANY = 64 };

/* Memory of the host with a tensor of weights in it, which may not be written while it is there. */
typedef struct home {
    void *memory;
    size_t size;
    struct ggml_context *context;
    struct ggml_tensor *w;
    ggml_backend_buffer_t buffer;
} home_t;

static void home_open(home_t *home, struct ggml_tensor *(*make)(struct ggml_context *, int64_t),
                      int64_t rows, const void *blocks, bool read_only)
{
    home->context = make_context();
    home->w = make(home->context, rows);
    const size_t size = ggml_nbytes(home->w);
    if (!home->memory) {
        home->size = size;
        home->memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(home->memory != MAP_FAILED, "no memory");
    }
    must(size <= home->size && !mprotect(home->memory, home->size, PROT_READ | PROT_WRITE),
         "no such memory");
    if (blocks) {
        memcpy(home->memory, blocks, size);
    }
    must(!read_only || !mprotect(home->memory, home->size, PROT_READ), "no such memory");
    home->buffer = ggml_backend_cpu_buffer_from_ptr(home->memory, home->size);
    ggml_backend_buffer_set_usage(home->buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_tensor_alloc(home->buffer, home->w, home->memory);
}

static void home_close(home_t *home)
{
    ggml_backend_buffer_free(home->buffer);
    ggml_free(home->context);
}

static enum ggml_type type_at_home;

static struct ggml_tensor *make_matrix(struct ggml_context *c, int64_t rows)
{
    return ggml_new_tensor_2d(c, type_at_home, 256, rows);
}

static struct ggml_tensor *make_experts(struct ggml_context *c, int64_t rows)
{
    return ggml_new_tensor_3d(c, type_at_home, 256, rows, 3);
}

/* The product of the weights with some tokens, each of which uses one expert if there are some.
 * false: it is refused, or fails. The values go to `out`. */
static bool product_with(struct ggml_tensor *w, int64_t tokens, float *out)
{
    struct ggml_context *c = make_context();
    const bool experts = w->ne[2] > 1;
    struct ggml_tensor *x =
        ggml_new_tensor_3d(c, GGML_TYPE_F32, 256, experts ? 1 : tokens, experts ? tokens : 1);
    struct ggml_tensor *ids = ggml_new_tensor_2d(c, GGML_TYPE_I32, 1, tokens);
    struct ggml_tensor *y = experts ? ggml_mul_mat_id(c, w, x, ids) : ggml_mul_mat(c, w, x);
    ggml_backend_buffer_t buffer = allocate(c);
    float in[MANY * 256];
    int32_t chosen[MANY];
    uint32_t state = 11;
    random_floats(in, tokens * 256, &state);
    for (int64_t i = 0; i < tokens; i++) {
        chosen[i] = (int32_t)(i % 3);
    }
    ggml_backend_tensor_set(x, in, 0, ggml_nbytes(x));
    ggml_backend_tensor_set(ids, chosen, 0, ggml_nbytes(ids));
    const bool good =
        ggml_backend_dev_supports_op(device, y) && compute(c, y) == GGML_STATUS_SUCCESS;
    ggml_backend_tensor_get(y, out, 0, ggml_nbytes(y));
    ggml_backend_buffer_free(buffer);
    ggml_free(c);
    return good;
}

/* The same with these blocks in a buffer of the backend. */
static void product_here(struct ggml_tensor *(*make)(struct ggml_context *, int64_t), int64_t rows,
                         const void *blocks, int64_t tokens, float *out)
{
    struct ggml_context *c = make_context();
    struct ggml_tensor *w = make(c, rows);
    ggml_backend_buffer_t buffer = allocate(c);
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_tensor_set(w, blocks, 0, ggml_nbytes(w));
    must(product_with(w, tokens, out), "no product");
    ggml_backend_buffer_free(buffer);
    ggml_free(c);
}

/* Weights in memory of the host give the bits that they give in a buffer of the backend: those that
 * may not be written, with any number of tokens, also if other ones lie there after the buffer was
 * freed; and those that the host may write, with many tokens, also after it has done so. */
static void check_host_weights(enum ggml_type type, bool experts, int64_t rows)
{
    struct ggml_tensor *(*make)(struct ggml_context *, int64_t) =
        experts ? make_experts : make_matrix;
    const int64_t elements = 256 * rows * (experts ? 3 : 1);
    const size_t size = ggml_row_size(type, elements);
    uint8_t *blocks[2] = {malloc(size), malloc(size)};
    float *expected = malloc((size_t)(rows * MANY) * sizeof(float)),
          *got = malloc((size_t)(rows * MANY) * sizeof(float));
    must(blocks[0] && blocks[1] && expected && got, "no memory");
    home_t home = {0};
    uint32_t state = (uint32_t)type + 3;
    type_at_home = type;
    for (int i = 0; i < 4; i++) {
        const int64_t tokens = i == 0 ? FEW : MANY, few = (int64_t)(rows * FEW * sizeof(float));
        const size_t bytes = (size_t)(rows * tokens) * sizeof(float);
        random_blocks(type, blocks[i % 2], elements, &state);
        home_open(&home, make, rows, blocks[i % 2], i < 3);
        product_here(make, rows, blocks[i % 2], tokens, expected);
        for (int again = 0; again < 2; again++) {
            check(product_with(home.w, tokens, got) && !memcmp(got, expected, bytes),
                  i < 3 ? "weights in memory that may not be written"
                        : "many tokens, and weights that the host may write");
        }
        if (i == 3) {
            check(!product_with(home.w, FEW, got), "few tokens, and weights that may be written");
            random_blocks(type, home.memory, elements, &state);
            product_here(make, rows, home.memory, MANY, expected);
            check(product_with(home.w, MANY, got) && !memcmp(got, expected, bytes),
                  "weights that the host has written");
        } else {
            check(product_with(home.w, FEW, got) && (i > 0 || !memcmp(got, expected, (size_t)few)),
                  "few tokens");
        }
        home_close(&home);
    }
    munmap(home.memory, home.size);
    free(blocks[0]);
    free(blocks[1]);
    free(expected);
    free(got);
}

/* Why a product with weights in memory of the host is refused. */
static void check_host_refusals(void)
{
    struct ggml_context *c = make_context();
    home_t home = {0};
    type_at_home = GGML_TYPE_Q8_0;
    home_open(&home, make_matrix, 32, NULL, false);
    struct ggml_tensor *few = ggml_new_tensor_2d(c, GGML_TYPE_F32, 256, MANY - 1);
    struct ggml_tensor *many = ggml_new_tensor_2d(c, GGML_TYPE_F32, 256, MANY);
    struct ggml_tensor *part = ggml_view_2d(c, home.w, 256, 16, home.w->nb[1], 0);
    check_refused(ggml_mul_mat(c, home.w, few),
                  "few rows, and weights in a buffer of the host that may be written unseen");
    check_refused(ggml_mul_mat(c, part, many), "a part of weights in a buffer of the host");
    check(ggml_backend_dev_supports_op(device, ggml_mul_mat(c, home.w, many)),
          "weights that the host may write");
    home_close(&home);
    munmap(home.memory, home.size);
    /* More than copies may take; and as much again and again where buffers were freed. */
    const int64_t rows = (COPIES_MB << 20) / 256;
    home = (home_t){0};
    home_open(&home, make_matrix, rows, NULL, true);
    check_refused(ggml_mul_mat(c, home.w, many),
                  "weights in a buffer of the host, whose copies would take too much memory");
    home_close(&home);
    for (int i = 0; i < 4; i++) {
        home_open(&home, make_matrix, rows / 2, NULL, true);
        check(ggml_backend_dev_supports_op(device, ggml_mul_mat(c, home.w, many)),
              "room for copies of weights");
        home_close(&home);
    }
    munmap(home.memory, home.size);
    ggml_free(c);
}

/* Whichever allocation fails: a right result, or an error. */
static void check_host_allocations(void)
{
    enum { ROWS = 32 };
    uint8_t blocks[ROWS * 272];
    float expected[ROWS * FEW], got[ROWS * FEW];
    uint32_t state = 5;
    type_at_home = GGML_TYPE_Q8_0;
    random_blocks(type_at_home, blocks, ROWS * 256, &state);
    product_here(make_matrix, ROWS, blocks, FEW, expected);
    struct ggml_context *c = make_context();
    struct ggml_tensor *x = ggml_new_tensor_2d(c, GGML_TYPE_F32, 256, FEW);
    ggml_backend_buffer_t buffer = allocate(c);
    float in[FEW * 256];
    state = 11;
    random_floats(in, FEW * 256, &state);
    ggml_backend_tensor_set(x, in, 0, sizeof(in));
    bool failed = true, wrong_one = false;
    home_t home = {0};
    for (long n = 0; failed && n < 2000; n++) {
        struct ggml_context *products = make_context();
        home_open(&home, make_matrix, ROWS, blocks, true);
        struct ggml_tensor *y = ggml_mul_mat(products, home.w, x);
        ggml_backend_buffer_t result = allocate(products);
        struct ggml_cgraph *graph = ggml_new_graph(products);
        ggml_build_forward_expand(graph, y);
        allocations_left = n;
        const enum ggml_status status = ggml_backend_graph_compute(backend, graph);
        failed = allocations_left < 0;
        allocations_left = -1;
        ggml_backend_tensor_get(y, got, 0, sizeof(got));
        wrong_one |= failed ? status == GGML_STATUS_SUCCESS && memcmp(got, expected, sizeof(got))
                            : status != GGML_STATUS_SUCCESS || memcmp(got, expected, sizeof(got));
        ggml_backend_buffer_free(result);
        ggml_free(products);
        home_close(&home);
    }
    check(!failed && !wrong_one, "weights in memory of the host where an allocation fails");
    munmap(home.memory, home.size);
    ggml_backend_buffer_free(buffer);
    ggml_free(c);
}

/* ---- no memory ------------------------------------------------------------------------------- */

static void check_memory(void)
{
    ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(device);
    size_t available = 0, total = 0;
    ggml_backend_dev_memory(device, &available, &total);
    check(available > 0 && available <= total, "the device's memory");
    check(!ggml_backend_buft_alloc_buffer(type, SIZE_MAX), "a buffer of all sizes");
    check(!ggml_backend_buft_alloc_buffer(type, SIZE_MAX / 2), "a buffer of half of that");
    check(!ggml_backend_buft_alloc_buffer(type, SIZE_MAX - 63), "a size that overflows");
}

/* A tensor can be set and read where little memory is left: that takes none of its size. It is
 * larger than what the C library may have put by. */
static void check_set_without_memory(void)
{
    enum { COLUMNS = 4096, ROWS = 16384 };
    struct ggml_context *context = make_context();
    struct ggml_tensor *tensor = ggml_new_tensor_2d(context, GGML_TYPE_Q8_0, COLUMNS, ROWS);
    ggml_backend_buffer_t buffer = allocate(context);
    const size_t size = ggml_nbytes(tensor);
    uint8_t *bytes = calloc(1, size), *got = calloc(1, size);
    must(bytes && got, "no memory");
    for (size_t i = 0; i < size; i++) {
        bytes[i] = i % 34 < 2 ? 0x3C : (uint8_t)(i * 7);
    }
    struct rlimit limit, small;
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld", &pages) == 1 && !getrlimit(RLIMIT_AS, &limit)) {
        small = limit;
        small.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (4 << 20);
        setrlimit(RLIMIT_AS, &small);
        ggml_backend_tensor_set(tensor, bytes, 0, size);
        ggml_backend_tensor_set(tensor, bytes, 5, size - 9);
        ggml_backend_tensor_get(tensor, got, 3, size - 7);
        check(!ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(device), size),
              "a buffer beyond the limit");
        setrlimit(RLIMIT_AS, &limit);
        ggml_backend_tensor_get(tensor, got, 0, size);
        memmove(bytes + 5, bytes, size - 9);
        check(!memcmp(got, bytes, size), "a tensor that was set without memory to spare");
    }
    if (file) {
        fclose(file);
    }
    free(bytes);
    free(got);
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
}

/* Kilobytes of files that the process has in memory. */
static long resident_files(void)
{
    char line[256];
    long files = 0, shared = 0;
    FILE *status = fopen("/proc/self/status", "r");
    must(status != NULL, "no /proc/self/status");
    while (fgets(line, sizeof(line), status)) {
        sscanf(line, "RssFile: %ld", &files);
        sscanf(line, "RssShmem: %ld", &shared);
    }
    fclose(status);
    return files + shared;
}

/* A tensor that is large enough for several threads, from memory and from a file. Pages of the file
 * are given back; memory that is not a file's keeps its bytes. */
static void check_large(void)
{
    enum { COLUMNS = 4096, ROWS = 8200 };
    struct ggml_context *context = make_context();
    struct ggml_tensor *w = ggml_new_tensor_2d(context, GGML_TYPE_Q4_0, COLUMNS, ROWS);
    ggml_backend_buffer_t buffer = allocate(context);
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    const size_t size = ggml_nbytes(w);
    uint8_t *bytes = malloc(size), *kept = malloc(size), *got = malloc(size);
    FILE *file = tmpfile();
    must(bytes && kept && got && file, "no memory, or no file");
    for (size_t i = 0; i < size; i++) {
        bytes[i] = i % 18 < 2 ? 0x3C : (uint8_t)(i * 2654435761u >> 11);
    }
    memcpy(kept, bytes, size);
    must(fwrite(bytes, 1, size, file) == size && !fflush(file), "a file that cannot be written");
    ggml_backend_tensor_set(w, bytes, 0, size);
    ggml_backend_tensor_get(w, got, 0, size);
    check(!memcmp(got, kept, size) && !memcmp(bytes, kept, size), "a large tensor from memory");
    ggml_backend_tensor_memset(w, 0, 0, size);
    for (int shared = 0; shared < 2; shared++) {
        /* A private mapping may have pages that differ from the file's: this one does. */
        uint8_t *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE,
                               (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_POPULATE, fileno(file), 0);
        must(mapped != MAP_FAILED, "a file that cannot be mapped");
        mapped[size / 2] ^= 0x55;
        const long before = resident_files();
        ggml_backend_tensor_set(w, mapped, 0, size);
        const long dropped = resident_files() - before;
        kept[size / 2] = bytes[size / 2] ^ 0x55;
        ggml_backend_tensor_get(w, got, 0, size);
        check(!memcmp(got, kept, size) && !memcmp(mapped, kept, size),
              shared ? "a large tensor from a shared file"
                     : "a large tensor from a private mapping");
        check(!shared || dropped < -(long)(size / 1024 / 2), "pages of a file that stay in memory");
        munmap(mapped, size);
    }
    fclose(file);
    free(bytes);
    free(kept);
    free(got);
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
}

enum { WIDTH = 64, TOKENS = 5 };

/* A graph on a new backend, of whose allocations one fails. */
static enum ggml_status run_short(long allocations, float result[TOKENS * WIDTH], bool *failed)
{
    struct ggml_context *context = make_context();
    struct ggml_tensor *x = ggml_new_tensor_2d(context, GGML_TYPE_F32, WIDTH, TOKENS);
    struct ggml_tensor *w = ggml_new_tensor_2d(context, GGML_TYPE_Q8_0, WIDTH, WIDTH);
    struct ggml_tensor *y = ggml_mul_mat(context, w, ggml_rms_norm(context, x, 1e-5f));
    struct ggml_tensor *z = ggml_soft_max(context, ggml_add(context, y, x));
    struct ggml_cgraph *graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, z);
    ggml_backend_buffer_t buffer = allocate(context);
    uint8_t blocks[WIDTH * WIDTH / 32 * 34];
    uint32_t state = 1;
    must(ggml_nbytes(w) == sizeof(blocks), "other blocks");
    random_blocks(GGML_TYPE_Q8_0, blocks, WIDTH * WIDTH, &state);
    ggml_backend_tensor_set(w, blocks, 0, sizeof(blocks));
    fill(x, -20);
    allocations_left = allocations;
    ggml_backend_t other = ggml_backend_dev_init(device, NULL);
    const enum ggml_status status =
        other ? ggml_backend_graph_compute(other, graph) : GGML_STATUS_ALLOC_FAILED;
    *failed = allocations >= 0 && allocations_left < 0;
    allocations_left = -1;
    ggml_backend_tensor_get(z, result, 0, TOKENS * WIDTH * sizeof(*result));
    ggml_backend_free(other);
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
    return status;
}

/* Whichever allocation fails: a right result, or an error. */
static void check_allocations(void)
{
    float expected[TOKENS * WIDTH], result[TOKENS * WIDTH];
    bool failed;
    check(run_short(-1, expected, &failed) == GGML_STATUS_SUCCESS && !failed, "memory enough");
    int errors = 0;
    failed = true;
    for (long at = 0; failed; at += 1 + at / 32) {
        const enum ggml_status status = run_short(at, result, &failed);
        errors += status != GGML_STATUS_SUCCESS;
        check(status != GGML_STATUS_SUCCESS || !memcmp(result, expected, sizeof(result)),
              "a wrong result where an allocation fails");
    }
    check(errors > 10, "errors where an allocation fails");
    check(run_short(-1, result, &failed) == GGML_STATUS_SUCCESS &&
              !memcmp(result, expected, sizeof(result)),
          "memory enough again");
}

/* A type with planes, of `unit` elements in a block. */
static void check_quantised(enum ggml_type type, int64_t unit)
{
    check_pieces(type, unit, 1, false);
    check_pieces(type, 3 * unit, 5, false);
    check_pieces(type, 3 * unit, 7, false);
    check_pieces(type, 3 * unit, 37, true);
    check_pieces_of(type, unit, 16, 3, false);
    check_pieces_of(type, unit, 16, 3, true);
    check_pieces_of(type, unit, 5, 3, true);
    check_products(type, unit);
    check_experts_of(type, unit);
    check_views(type, unit);
    check_host_blocks(type);
    check_host_weights(type, false, 37);
    check_host_weights(type, true, 32);
    check_host_weights(type, true, 5);
}

static int end(void)
{
    ggml_backend_free(backend);
    printf("backend: %d checks, %d wrong\n", checks, wrong);
    return wrong ? 1 : 0;
}

int main(int argc, char **argv)
{
    static const enum ggml_type types[] = {
        GGML_TYPE_F32,  GGML_TYPE_F16,  GGML_TYPE_BF16, GGML_TYPE_Q8_0,   GGML_TYPE_Q4_0,
        GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_IQ4_NL, GGML_TYPE_MXFP4};
    static const enum ggml_type large[] = {GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, GGML_TYPE_Q4_K,
                                           GGML_TYPE_Q5_K, GGML_TYPE_Q6_K, GGML_TYPE_IQ4_XS};
    static const enum ggml_type without_planes[] = {GGML_TYPE_TQ2_0};
    char copies[16];
    setenv("SINTER_VERBOSE", "dispatch", 1);
    snprintf(copies, sizeof(copies), "%d", COPIES_MB);
    setenv("SINTER_GGML_COPIES", copies, 1);
    ggml_backend_load_all();
    device = ggml_backend_dev_by_name("Sinter");
    must(device != NULL, "GGML_BACKEND_PATH names no library of Sinter");
    backend = ggml_backend_dev_init(device, NULL);
    must(backend != NULL, "no backend");
    if (argc > 1 && !strcmp(argv[1], "products")) {
        for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
            if (ggml_is_quantized(types[i])) {
                check_products(types[i], 32);
            }
            check_experts_of(types[i], 32);
        }
        for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
            check_products(large[i], 256);
            check_experts_of(large[i], 256);
        }
        return end();
    }
    check_strides();
    check_growth();
    check_open_dims();
    check_view_of_view(1);
    check_view_of_view(5);
    check_after_failure(false);
    check_after_failure(true);
    check_first_failure();
    check(graphs_after_failure(0) == graphs_after_failure(3),
          "a graph is taken apart for good where an index was wrong once");
    check_caches();
    check_all_parts();
    for (int flash = 0; flash < 2; flash++) {
        check_latent(GGML_TYPE_F32, flash);
        check_latent(GGML_TYPE_F16, flash);
        check_latent(GGML_TYPE_BF16, flash);
    }
    check_latent(GGML_TYPE_Q8_0, true);
    check_latent(GGML_TYPE_MXFP4, true);
    check_heads(GGML_TYPE_Q8_0, 64);
    check_heads(GGML_TYPE_Q8_0, 128);
    check_heads(GGML_TYPE_MXFP4, 32);
    check_recurrences();
    check_counts();
    check_cache_types();
    check_shapes();
    check_integers();
    check_host_refusals(); /* before others that are refused: a reason is said once */
    check_groups(1);
    check_groups(5);
    check_groups(40);
    for (int biased = 0; biased < 2; biased++) {
        check_router(1, biased);
        check_router(5, biased);
        check_router(40, biased);
    }
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (ggml_is_quantized(types[i])) {
            check_pieces(types[i], 32, 1, false);
            check_pieces(types[i], 96, 7, false);
            check_pieces(types[i], 96, 37, true);
            check_pieces_of(types[i], 96, 32, 3, true);
            check_pieces_of(types[i], 96, 5, 3, true);
            check_products(types[i], 32);
            check_views(types[i], 32);
            check_host_blocks(types[i]);
            check_host_weights(types[i], false, 37);
            check_host_weights(types[i], true, 32);
        }
        if (types[i] != GGML_TYPE_F16 && types[i] != GGML_TYPE_BF16) {
            check_new_weights(types[i], 1);
            check_new_weights(types[i], 64);
        }
        check_experts_of(types[i], 32);
        for (int slot = 0; slot < 4; slot++) {
            static const int64_t slots[] = {7, 8, -9, INT32_MAX};
            check_slot(types[i], slots[slot]);
            check_lookup(types[i], (int32_t)slots[slot]);
        }
    }
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        check_quantised(large[i], 256);
        check_new_weights(large[i], 1);
    }
    for (size_t i = 0; i < sizeof(without_planes) / sizeof(without_planes[0]); i++) {
        check_views(without_planes[i], 256);
    }
    check_host_allocations();
    check_allocations();
    check_memory();
    check_set_without_memory();
    check_large();
    return end();
}
