/* The backend by itself, through ggml's interface: bad input, and memory that it must not touch.
 *
 *   backend
 *
 * GGML_BACKEND_PATH names the library. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ggml-backend.h"
#include "ggml.h"

enum { NODES = 64 };

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
    const struct ggml_init_params params = {
        .mem_size = NODES * ggml_tensor_overhead() + ggml_graph_overhead(), .no_alloc = true};
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

static enum ggml_status compute(struct ggml_context *context, struct ggml_tensor *result)
{
    struct ggml_cgraph *graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, result);
    return ggml_backend_graph_compute(backend, graph);
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

/* ---- ops that are refused -------------------------------------------------------------------- */

/* The backend refuses the op and says why on stderr. */
static void check_refused(const struct ggml_tensor *op, const char *why)
{
    char said[1024] = "";
    FILE *file = tmpfile();
    const int kept = dup(STDERR_FILENO);
    must(file && kept >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0, "no file for messages");
    const bool taken = ggml_backend_dev_supports_op(device, op);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = 0;
    fclose(file);
    char what[1200];
    snprintf(what, sizeof(what), "%s is %s, and it says \"%s\", not \"%s\"", ggml_op_desc(op),
             taken ? "taken" : "refused", said, why);
    check(!taken && strstr(said, "is left to the host") && strstr(said, why), what);
}

static void check_cache_types(void)
{
    static const struct {
        enum ggml_type type;
        bool taken;
    } caches[] = {{GGML_TYPE_F32, true},     {GGML_TYPE_F16, true},   {GGML_TYPE_BF16, true},
                  {GGML_TYPE_Q8_0, true},    {GGML_TYPE_Q4_0, true},  {GGML_TYPE_Q4_1, true},
                  {GGML_TYPE_Q5_0, true},    {GGML_TYPE_MXFP4, true}, {GGML_TYPE_Q5_1, false},
                  {GGML_TYPE_IQ4_NL, false}, {GGML_TYPE_Q3_K, false}, {GGML_TYPE_TQ2_0, false}};
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
    struct ggml_tensor *rows = ggml_new_tensor_3d(c, GGML_TYPE_F32, 64, 2, 3);
    struct ggml_tensor *chosen = ggml_new_tensor_2d(c, GGML_TYPE_I32, 2, 3);
    struct ggml_tensor *weights = ggml_new_tensor_2d(c, GGML_TYPE_IQ4_NL, 64, 32);
    struct ggml_tensor *weights3 = ggml_new_tensor_4d(c, GGML_TYPE_F32, 64, 5, 4, 1);
    check(ggml_backend_dev_supports_op(device, ggml_mul_mat(c, weights3, x)), "weights of a batch");
    check_refused(ggml_mul_mat(c, weights, x), "its data type");
    check_refused(ggml_mul_mat_id(c, experts, rows, chosen), "no such op here");
    check_refused(ggml_add(c, x, half), "a source that is repeated");
    check_refused(ggml_soft_max_ext(c, x, slopes, 1.0f, 8.0f), "ALiBi");
    check_refused(ggml_flash_attn_ext(c, q, k, k, mask, 0.1f, 8.0f, 0), "ALiBi");
    check_refused(ggml_flash_attn_ext(c, q, k, k, mask, 0.1f, 0, 0), "a mask that is repeated");
    check_refused(ggml_get_rows(c, rows, chosen), "several tables");
    check_refused(ggml_cast(c, x, GGML_TYPE_I32), "a copy of other types");
    check_refused(ggml_argsort(c, x, GGML_SORT_ORDER_ASC), "no such op here");
    int sections[4] = {8, 8, 8, 8};
    check_refused(ggml_rope_multi(c, q, positions, NULL, 64, sections, GGML_ROPE_TYPE_MROPE, 512,
                                  10000, 1, 0, 1, 32, 1),
                  "positions of several dims");
    ggml_free(c);
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

/* Bytes that are set in pieces of any size come back, and the tensors on both sides keep theirs. */
static void check_pieces(enum ggml_type type, int64_t columns, int64_t rows)
{
    struct ggml_context *context = make_context();
    struct ggml_tensor *tensors[3];
    uint8_t *bytes[3], *got;
    uint32_t state = (uint32_t)type + 1;
    for (int i = 0; i < 3; i++) {
        tensors[i] = ggml_new_tensor_2d(context, type, columns, rows);
    }
    const size_t size = ggml_nbytes(tensors[0]);
    ggml_backend_buffer_t buffer = allocate(context);
    got = malloc(size);
    must(got != NULL, "no memory");
    for (int i = 0; i < 3; i++) {
        bytes[i] = malloc(size);
        must(bytes[i] != NULL, "no memory");
        random_blocks(type, bytes[i], columns * rows, &state);
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

/* ---- no memory ------------------------------------------------------------------------------- */

static void check_memory(void)
{
    ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(device);
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

int main(void)
{
    static const enum ggml_type types[] = {GGML_TYPE_F32,  GGML_TYPE_F16,  GGML_TYPE_BF16,
                                           GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1,
                                           GGML_TYPE_Q5_0, GGML_TYPE_MXFP4};
    static const enum ggml_type large[] = {GGML_TYPE_Q4_K, GGML_TYPE_Q6_K};
    setenv("SINTER_VERBOSE", "dispatch", 1);
    ggml_backend_load_all();
    device = ggml_backend_dev_by_name("Sinter");
    must(device != NULL, "GGML_BACKEND_PATH names no library of Sinter");
    backend = ggml_backend_dev_init(device, NULL);
    must(backend != NULL, "no backend");
    check_strides();
    check_cache_types();
    check_shapes();
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (ggml_is_quantized(types[i])) {
            check_pieces(types[i], 32, 1);
            check_pieces(types[i], 96, 7);
        }
        for (int slot = 0; slot < 4; slot++) {
            static const int64_t slots[] = {7, 8, -9, INT32_MAX};
            check_slot(types[i], slots[slot]);
            check_lookup(types[i], (int32_t)slots[slot]);
        }
    }
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        check_pieces(large[i], 256, 1);
        check_pieces(large[i], 768, 5);
    }
    check_allocations();
    check_memory();
    check_set_without_memory();
    ggml_backend_free(backend);
    printf("backend: %d checks, %d wrong\n", checks, wrong);
    return wrong ? 1 : 0;
}
