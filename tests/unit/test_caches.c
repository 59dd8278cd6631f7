/* ScatterRows writes tokens into caches that lie in tiles: each bit of the result is where packing
 * the strided result puts it, for every type, place in a tile, kind of slots and number of threads.
 * Gather takes tokens from them, and sinter_reorder the first ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter.h>

#include "model.h"
#include "node.h"
#include "random.h"
#include "spec.h"

enum { GUARD = 64, GUARD_BYTE = 0xA5, DATA = 1, SLOTS, UPDATES, OUT };

static uint64_t seed = 1;

static int draw(int n)
{
    return random_below(&seed, n);
}

static unsigned char *take(size_t bytes)
{
    unsigned char *p = malloc(bytes > 0 ? bytes : 1);
    if (p == NULL) {
        abort();
    }
    for (size_t i = 0; i < bytes; i++) {
        p[i] = (unsigned char)draw(256);
    }
    return p;
}

static size_t bytes_of(const sinter_logical_tensor_t *lt)
{
    size_t bytes = 0;
    CHECK_THAT(sinter_logical_tensor_get_bytes(lt, &bytes) == sinter_success);
    return bytes;
}

static sinter_logical_tensor_t dense(uint64_t id, sinter_data_type_t type, int ndims,
                                     const int64_t *dims)
{
    sinter_logical_tensor_t lt;
    CHECK_THAT(sinter_logical_tensor_init(&lt, id, type, ndims, dims,
                                          sinter_tensor_property_undef) == sinter_success);
    return lt;
}

static void reorder(const sinter_logical_tensor_t *from, const unsigned char *data,
                    const sinter_logical_tensor_t *to, unsigned char *to_data)
{
    sinter_tensor_t *a = NULL, *b = NULL;
    CHECK_THAT(sinter_tensor_create(&a, NULL, from, (void *)(uintptr_t)data, bytes_of(from)) ==
               sinter_success);
    CHECK_THAT(sinter_tensor_create(&b, NULL, to, to_data, bytes_of(to)) == sinter_success);
    CHECK_THAT(sinter_reorder(a, b) == sinter_success);
    sinter_tensor_destroy(&a);
    sinter_tensor_destroy(&b);
}

/* ---- one ScatterRows ------------------------------------------------------------------------- */

typedef struct cache_case {
    sinter_data_type_t type;
    sinter_weights_part_t part;
    int64_t batch, heads, T, width, tokens;
    int64_t axis;                                       /* 2, or -2 */
    bool in_place, per_batch, wide_slots, side_by_side; /* wide: slots of s64 */
    int threads;
} cache_case_t;

static sinter_compiled_partition_t *compile(const node_t *n)
{
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partition = NULL;
    sinter_compiled_partition_t *compiled = NULL;
    CHECK_THAT(sinter_graph_create(&graph, NULL, sinter_cpu) == sinter_success);
    node_add(graph, n, 0);
    CHECK_THAT(sinter_graph_finalize(graph) == sinter_success);
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partitions(graph, 1, &partition) == sinter_success);
    CHECK(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &compiled) == sinter_success,
          "%s", sinter_last_error_message());
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
    return compiled;
}

/* Of n tensors, the last of which is the output. */
static sinter_status_t execute(const sinter_compiled_partition_t *compiled, int threads, int n,
                               const orc_tensor_t *tensors)
{
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = threads, .all_threads = 1};
    sinter_stream_t *stream = NULL;
    sinter_tensor_t *t[4];
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    for (int i = 0; i < n; i++) {
        CHECK_THAT(sinter_tensor_create(&t[i], NULL, &tensors[i].lt,
                                        (void *)(uintptr_t)tensors[i].data,
                                        bytes_of(&tensors[i].lt)) == sinter_success);
    }
    const sinter_status_t status = sinter_compiled_partition_execute(
        compiled, stream, (size_t)n - 1, (const sinter_tensor_t *const *)t, 1, t + n - 1, NULL, 0);
    for (int i = 0; i < n; i++) {
        sinter_tensor_destroy(&t[i]);
    }
    sinter_stream_destroy(&stream);
    return status;
}

/* An element of n bits. */
static void copy_bits(int64_t bits, const unsigned char *from, int64_t at, unsigned char *to,
                      int64_t to_at)
{
    for (int64_t i = 0; i < bits; i++) {
        const int64_t x = at * bits + i, y = to_at * bits + i;
        to[y / 8] =
            (unsigned char)((to[y / 8] & ~(1 << y % 8)) | (from[x / 8] >> x % 8 & 1) << y % 8);
    }
}

/* The same on the strided cache, one element after the other. */
static void scatter(const cache_case_t *c, const sinter_logical_tensor_t *updates,
                    const int64_t *slots, const unsigned char *from, unsigned char *to)
{
    const int64_t bits = gr_dtype(c->type)->bits;
    for (int64_t i = 0; i < c->batch * c->heads * c->tokens * c->width; i++) {
        const int64_t e = i % c->width, t = i / c->width % c->tokens,
                      h = i / c->width / c->tokens % c->heads,
                      b = i / c->width / c->tokens / c->heads,
                      slot = slots[c->per_batch ? b * c->tokens + t : t];
        if (slot >= 0) {
            copy_bits(bits, from,
                      b * updates->strides[0] + h * updates->strides[1] + t * updates->strides[2] +
                          e * updates->strides[3],
                      to, ((b * c->heads + h) * c->T + slot) * c->width + e);
        }
    }
}

static void describe(const cache_case_t *c, char *text, size_t size)
{
    snprintf(text, size,
             "%s part %d [%lld %lld %lld %lld] axis %lld, %lld tokens%s%s%s%s, %d threads",
             gr_dtype(c->type)->name, (int)c->part, (long long)c->batch, (long long)c->heads,
             (long long)c->T, (long long)c->width, (long long)c->axis, (long long)c->tokens,
             c->in_place ? ", in place" : "", c->per_batch ? ", slots of each batch" : "",
             c->wide_slots ? ", s64" : "", c->side_by_side ? ", side by side" : "", c->threads);
}

/* Gather takes tokens from the tiles as it does from the strided cache `whole`; -1 is the last one.
 */
static void gather(const cache_case_t *c, const char *what, const orc_tensor_t *tiles,
                   const orc_tensor_t *slots_tensor, const int64_t *slots,
                   const sinter_logical_tensor_t *like, const unsigned char *whole)
{
    const int64_t bits = gr_dtype(c->type)->bits, one = 1;
    sinter_logical_tensor_t out = *like;
    out.id = OUT;
    const node_t n = {.kind = sinter_op_gather,
                      .n_in = 2,
                      .n_out = 1,
                      .n_attrs = 1 + c->per_batch,
                      .in = {tiles->lt, slots_tensor->lt},
                      .out = {out},
                      .attrs = {{.id = sinter_op_attr_axis, .n = 1, .s64 = &c->axis},
                                {.id = sinter_op_attr_batch_dims, .n = 1, .s64 = &one}}};
    sinter_compiled_partition_t *compiled = compile(&n);
    unsigned char *to = take(bytes_of(&out)), *want = take(bytes_of(&out));
    memcpy(want, to, bytes_of(&out));
    for (int64_t i = 0; i < c->batch * c->heads * c->tokens * c->width; i++) {
        const int64_t e = i % c->width, t = i / c->width % c->tokens,
                      h = i / c->width / c->tokens % c->heads,
                      b = i / c->width / c->tokens / c->heads,
                      slot = slots[c->per_batch ? b * c->tokens + t : t],
                      from = slot < 0 ? slot + c->T : slot;
        copy_bits(bits, whole, ((b * c->heads + h) * c->T + from) * c->width + e, want,
                  b * out.strides[0] + h * out.strides[1] + t * out.strides[2] +
                      e * out.strides[3]);
    }
    CHECK(execute(compiled, c->threads, 3, (orc_tensor_t[]){*tiles, *slots_tensor, {out, to}}) ==
              sinter_success,
          "%s: Gather: %s", what, sinter_last_error_message());
    CHECK(memcmp(to, want, bytes_of(&out)) == 0, "%s: Gather takes others", what);
    sinter_compiled_partition_destroy(&compiled);
    free(to);
    free(want);
}

/* sinter_reorder of the first tokens: out of the tiles, and into tiles that have others. */
static void first_tokens(const cache_case_t *c, const char *what, const orc_tensor_t *tiles,
                         const unsigned char *whole)
{
    const int64_t bits = gr_dtype(c->type)->bits, n = draw((int)c->T + 1),
                  dims[4] = {c->batch, c->heads, n, c->width},
                  all[4] = {c->batch, c->heads, c->T, c->width};
    const sinter_logical_tensor_t some = dense(UPDATES, c->type, 4, dims),
                                  strided = dense(DATA, c->type, 4, all);
    const size_t room = bytes_of(&tiles->lt);
    int64_t differ = 0;
    unsigned char *to = take(bytes_of(&some)), *others = take(bytes_of(&strided)),
                  *want = take(room), *got = take(room);
    reorder(&tiles->lt, tiles->data, &some, to);
    reorder(&strided, others, &tiles->lt, got);
    for (int64_t i = 0; i < c->batch * c->heads * n * c->width; i++) {
        const int64_t e = i % (n * c->width), m = i / (n * c->width), at = m * c->T * c->width + e;
        unsigned char x[8] = {0}, y[8] = {0};
        copy_bits(bits, whole, at, x, 0);
        copy_bits(bits, to, i, y, 0);
        differ += memcmp(x, y, sizeof x) != 0;
        copy_bits(bits, whole, at, others, at);
    }
    CHECK(differ == 0, "%s: the first %lld tokens: %lld elements differ", what, (long long)n,
          (long long)differ);
    reorder(&strided, others, &tiles->lt, want);
    reorder(&some, to, &tiles->lt, got);
    CHECK(memcmp(got, want, room) == 0, "%s: the first %lld tokens lie elsewhere", what,
          (long long)n);
    free(to);
    free(others);
    free(want);
    free(got);
}

static void run(const cache_case_t *c)
{
    const int64_t dims[4] = {c->batch, c->heads, c->T, c->width},
                  some[4] = {c->batch, c->heads, c->tokens, c->width},
                  slot_dims[2] = {c->batch, c->tokens}, one = 1;
    const int n_slots = (int)(c->tokens * (c->per_batch ? c->batch : 1));
    const sinter_logical_tensor_t strided = dense(DATA, c->type, 4, dims),
                                  slots_lt = dense(SLOTS, c->wide_slots ? sinter_s64 : sinter_s32,
                                                   1 + c->per_batch, slot_dims + !c->per_batch);
    sinter_logical_tensor_t data = strided, out, updates = dense(UPDATES, c->type, 4, some);
    const int rows = c->part == sinter_weights_codes_blocks;
    char what[200];
    describe(c, what, sizeof what);
    if (c->side_by_side) { /* the heads of a token */
        updates.strides[1] = c->width;
        updates.strides[2] = c->heads * c->width;
    }
    CHECK(sinter_logical_tensor_set_weights_layout(&data, c->part, 0, !rows) == sinter_success,
          "%s: %s", what, sinter_last_error_message());
    out = data;
    out.id = OUT;
    node_t n = {.kind = sinter_op_scatter_rows,
                .n_in = 3,
                .n_out = 1,
                .n_attrs = 1 + c->per_batch,
                .in = {data, slots_lt, updates},
                .out = {out},
                .attrs = {{.id = sinter_op_attr_axis, .n = 1, .s64 = &c->axis},
                          {.id = sinter_op_attr_batch_dims, .n = 1, .s64 = &one}}};
    sinter_compiled_partition_t *compiled = compile(&n);
    const size_t room = bytes_of(&data);
    unsigned char *whole = take(bytes_of(&strided)), *from = take(bytes_of(&updates)),
                  *tiles = take(room), *to = c->in_place ? tiles : take(room + GUARD),
                  *want = take(room), *before = take(room);
    int64_t *slots = malloc(sizeof *slots * (size_t)(n_slots + 1));
    int32_t *narrow = malloc(sizeof *narrow * (size_t)(n_slots + 1));
    if (slots == NULL || narrow == NULL) {
        abort();
    }
    for (int i = 0; i < n_slots; i++) {
        slots[i] = i > 0 && draw(4) == 0 ? slots[draw(i)] : draw(5) == 0 ? -1 : draw((int)c->T);
        narrow[i] = (int32_t)slots[i];
    }
    reorder(&strided, whole, &data, tiles);
    memcpy(before, tiles, room);
    if (!c->in_place) {
        memset(to, GUARD_BYTE, room + GUARD);
    }
    const orc_tensor_t tensors[4] = {{data, tiles},
                                     {slots_lt, c->wide_slots ? (void *)slots : (void *)narrow},
                                     {updates, from},
                                     {out, to}};
    /* Whatever slot is bad, nothing is written. */
    const int bad = draw(n_slots);
    const int64_t good = slots[bad];
    slots[bad] = draw(2) ? c->T : -2;
    narrow[bad] = (int32_t)slots[bad];
    CHECK(execute(compiled, c->threads, 4, tensors) != sinter_success &&
              strstr(sinter_last_error_message(), "is outside a dimension of") != NULL,
          "%s: a bad slot is taken", what);
    CHECK(memcmp(tiles, before, room) == 0, "%s: a bad slot: the cache changes", what);
    size_t written = 0;
    for (size_t i = 0; i < room && !c->in_place; i++) {
        written += to[i] != GUARD_BYTE;
    }
    CHECK(written == 0, "%s: a bad slot: %zu bytes are written", what, written);
    slots[bad] = good;
    narrow[bad] = (int32_t)good;
    scatter(c, &updates, slots, from, whole);
    reorder(&strided, whole, &data, want);
    CHECK(execute(compiled, c->threads, 4, tensors) == sinter_success, "%s: %s", what,
          sinter_last_error_message());
    CHECK(memcmp(to, want, room) == 0, "%s: tokens lie elsewhere", what);
    gather(c, what, &(orc_tensor_t){data, to}, &tensors[1], slots, &updates, whole);
    first_tokens(c, what, &(orc_tensor_t){data, to}, whole);
    if (!c->in_place) {
        CHECK(memcmp(tiles, before, room) == 0, "%s: the data changes", what);
        CHECK(to[room] == GUARD_BYTE && to[room + GUARD - 1] == GUARD_BYTE,
              "%s: bytes behind the cache change", what);
        free(to);
    }
    sinter_compiled_partition_destroy(&compiled);
    free(whole);
    free(from);
    free(tiles);
    free(want);
    free(before);
    free(slots);
    free(narrow);
}

static const sinter_data_type_t code_types[] = {sinter_s4,      sinter_u4,      sinter_f4_e2m1,
                                                sinter_s8,      sinter_u8,      sinter_f8_e5m2,
                                                sinter_f8_e4m3, sinter_f6_e3m2, sinter_f6_e2m3,
                                                sinter_f16,     sinter_bf16,    sinter_f32},
                                value_types[] = {sinter_f32,  sinter_f16, sinter_bf16,
                                                 sinter_e8m0, sinter_s8,  sinter_u8,
                                                 sinter_s4,   sinter_u4,  sinter_f8_e4m3};

static cache_case_t some_case(int n)
{
    static const int64_t T[] = {16, 48, 64, 256, 512}, tokens[] = {1, 2, 5, 17, 40};
    return (cache_case_t){.batch = 1 + n % 2,
                          .heads = 1 + n / 2 % 3,
                          .T = T[n % 5],
                          .tokens = tokens[n / 3 % 5],
                          .axis = n % 3 == 0 ? -2 : 2,
                          .in_place = n / 2 % 2,
                          .per_batch = n / 4 % 2,
                          .wide_slots = n / 3 % 2,
                          .side_by_side = n / 5 % 2,
                          .threads = 1 + n % 3};
}

static void test_scatter(void)
{
    static const int64_t heads[] = {16, 32, 64, 80, 96, 256}, groups[] = {1, 2, 4, 3, 8};
    for (int t = 0; t < (int)(sizeof code_types / sizeof *code_types); t++) {
        for (int i = 0; i < 60; i++) {
            cache_case_t c = some_case(i + t);
            c.type = code_types[t];
            c.part = i / 7 % 2 ? sinter_weights_codes_blocks : sinter_weights_codes;
            c.width = heads[(i + i / 6) % 6];
            run(&c);
        }
    }
    for (int t = 0; t < (int)(sizeof value_types / sizeof *value_types); t++) {
        for (int i = 0; i < 30; i++) {
            cache_case_t c = some_case(i + t);
            c.type = value_types[t];
            c.part = sinter_weights_values;
            c.width = groups[i % 5];
            /* Elements of 4 bits begin bytes in each token. */
            c.width = gr_dtype(c.type)->bits < 8 ? 2 * c.width : c.width;
            run(&c);
        }
    }
    for (int i = 0; i < 24; i++) { /* one matrix with any number of tokens and elements */
        cache_case_t c = some_case(i);
        c.batch = c.heads = 1;
        c.T = (int64_t[]){1, 15, 17, 33, 100, 255}[i % 6];
        c.type = code_types[i % 12];
        c.part = i % 2 ? sinter_weights_codes_blocks : sinter_weights_codes;
        c.width = (int64_t[]){40, 20, 66}[i / 2 % 3];
        run(&c);
    }
}

/* Every slot of a tile and of the next ones, one token at a time. */
static void test_every_slot(void)
{
    for (int t = 0; t < (int)(sizeof code_types / sizeof *code_types); t++) {
        for (int part = 0; part < 2; part++) {
            cache_case_t c = some_case(t);
            c.type = code_types[t];
            c.part = part ? sinter_weights_codes_blocks : sinter_weights_codes;
            c.batch = 1;
            c.heads = 2;
            c.T = 64;
            c.width = 48;
            c.tokens = 64;
            c.per_batch = c.in_place = false;
            run(&c);
        }
    }
}

/* ---- tokens that move ------------------------------------------------------------------------ */

/* Gather and ScatterRows in one graph move tokens inside a cache: those behind the 5th one to its
 * begin, as a window slides, which overlap. */
static void move(sinter_data_type_t type, sinter_weights_part_t part, int64_t width)
{
    enum { MOVED = 30, TOKENS = 48, BY = 5, TAKEN = 5 };
    const int64_t dims[4] = {2, 3, TOKENS, width}, some[4] = {2, 3, MOVED, width}, n = MOVED,
                  axis = 2, bits = gr_dtype(type)->bits;
    const sinter_logical_tensor_t strided = dense(DATA, type, 4, dims),
                                  from_lt = dense(SLOTS, sinter_s32, 1, &n),
                                  to_lt = dense(UPDATES, sinter_s32, 1, &n),
                                  taken = dense(TAKEN, type, 4, some);
    sinter_logical_tensor_t cache = strided, out;
    CHECK_THAT(!sinter_logical_tensor_set_weights_layout(&cache, part, 0,
                                                         part != sinter_weights_codes_blocks));
    out = cache;
    out.id = OUT;
    const node_t nodes[2] = {{.kind = sinter_op_gather,
                              .n_in = 2,
                              .n_out = 1,
                              .n_attrs = 1,
                              .in = {cache, from_lt},
                              .out = {taken},
                              .attrs = {{.id = sinter_op_attr_axis, .n = 1, .s64 = &axis}}},
                             {.kind = sinter_op_scatter_rows,
                              .n_in = 3,
                              .n_out = 1,
                              .n_attrs = 1,
                              .in = {cache, to_lt, taken},
                              .out = {out},
                              .attrs = {{.id = sinter_op_attr_axis, .n = 1, .s64 = &axis}}}};
    sinter_graph_t *graph = NULL;
    sinter_compiled_graph_t *compiled = NULL;
    sinter_stream_t *stream = NULL;
    int32_t from[MOVED], to[MOVED];
    unsigned char *whole = take(bytes_of(&strided)), *tiles = take(bytes_of(&cache)),
                  *want = take(bytes_of(&cache));
    reorder(&strided, whole, &cache, tiles);
    for (int i = 0; i < MOVED; i++) {
        from[i] = i + BY;
        to[i] = i;
        for (int m = 0; m < 6; m++) {
            for (int64_t e = 0; e < width; e++) {
                copy_bits(bits, whole, (m * TOKENS + i + BY) * width + e, whole,
                          (m * TOKENS + i) * width + e);
            }
        }
    }
    reorder(&strided, whole, &cache, want);
    CHECK_THAT(sinter_graph_create(&graph, NULL, sinter_cpu) == sinter_success);
    node_add(graph, &nodes[0], 0);
    node_add(graph, &nodes[1], 1);
    CHECK_THAT(sinter_graph_finalize(graph) == sinter_success);
    sinter_status_t status = sinter_graph_compile(graph, NULL, 0, NULL, &compiled);
    void *const data[] = {[DATA] = tiles, [SLOTS] = from, [UPDATES] = to, [OUT] = tiles};
    for (uint64_t id = DATA; id <= OUT; id++) {
        status = status ? status
                        : sinter_compiled_graph_bind(compiled, id, 0, NULL, NULL, data[id],
                                                     SINTER_BYTES_TRUSTED);
    }
    CHECK_THAT(sinter_stream_create(&stream, NULL, NULL) == sinter_success);
    status = status ? status : sinter_compiled_graph_execute(compiled, stream);
    CHECK(status == sinter_success, "%s part %d: %s", gr_dtype(type)->name, (int)part,
          sinter_last_error_message());
    CHECK(memcmp(tiles, want, bytes_of(&cache)) == 0, "%s part %d: tokens move elsewhere",
          gr_dtype(type)->name, (int)part);
    sinter_stream_destroy(&stream);
    sinter_compiled_graph_destroy(&compiled);
    sinter_graph_destroy(&graph);
    free(whole);
    free(tiles);
    free(want);
}

static void test_moves(void)
{
    for (int t = 0; t < (int)(sizeof code_types / sizeof *code_types); t++) {
        move(code_types[t], sinter_weights_codes, 48);
        move(code_types[t], sinter_weights_codes_blocks, 48);
    }
    for (int t = 0; t < (int)(sizeof value_types / sizeof *value_types); t++) {
        move(value_types[t], sinter_weights_values, 6);
    }
}

/* Fewer tokens are an error where tiles keep some bits of each code: others share their bytes. */
static void test_fewer_tokens(void)
{
    const int64_t dims[2] = {32, 64}, some[2] = {20, 64}, more[2] = {48, 64}, narrow[2] = {20, 32};
    const struct {
        const int64_t *dims;
        int bits;
    } rows[] = {{some, 5}, {more, 0}, {narrow, 0}};
    unsigned char data[48 * 64] = {0}, tiles[32 * 64];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sinter_logical_tensor_t cache = dense(DATA, sinter_s8, 2, dims),
                                strided = dense(UPDATES, sinter_s8, 2, rows[i].dims);
        sinter_tensor_t *a = NULL, *b = NULL;
        CHECK_THAT(!sinter_logical_tensor_set_weights_layout(&cache, sinter_weights_codes,
                                                             rows[i].bits, 1));
        CHECK_THAT(!sinter_tensor_create(&a, NULL, &strided, data, sizeof data));
        CHECK_THAT(!sinter_tensor_create(&b, NULL, &cache, tiles, sizeof tiles));
        CHECK(sinter_reorder(a, b) == sinter_invalid_arguments &&
                  strcmp(sinter_last_error_message(),
                         "reorder: tensors 3 and 1 have other data types or dims; only tokens of a "
                         "cache whose tiles keep all bits may be fewer") == 0,
              "case %zu: %s", i, sinter_last_error_message());
        CHECK_THAT(sinter_reorder(b, a) == sinter_invalid_arguments);
        sinter_tensor_destroy(&a);
        sinter_tensor_destroy(&b);
    }
}

/* ---- what does not lie so -------------------------------------------------------------------- */

/* Tiles whose rows ScatterRows does not write are an error with a reason. */
static void test_other_axes(void)
{
    static const struct {
        sinter_weights_part_t part;
        int transposed;
        int64_t axis;
        bool other_out;
    } rows[] = {{sinter_weights_codes, 1, 3, false},
                {sinter_weights_codes, 1, 1, false},
                {sinter_weights_values, 0, 2, false},
                {sinter_weights_values, 1, 0, false},
                {sinter_weights_codes, 1, 2, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int64_t dims[4] = {2, 3, 32, 48}, one = 1;
        int64_t some[4] = {2, 3, 32, 48};
        some[rows[i].axis] = 1;
        sinter_logical_tensor_t data = dense(DATA, sinter_s8, 4, dims), out = data;
        CHECK_THAT(
            !sinter_logical_tensor_set_weights_layout(&data, rows[i].part, 0, rows[i].transposed));
        CHECK_THAT(!sinter_logical_tensor_set_weights_layout(
            &out, rows[i].part, 0, rows[i].transposed != (int)rows[i].other_out));
        out.id = OUT;
        const node_t n = {
            .kind = sinter_op_scatter_rows,
            .n_in = 3,
            .n_out = 1,
            .n_attrs = 1,
            .in = {data, dense(SLOTS, sinter_s32, 1, &one), dense(UPDATES, sinter_s8, 4, some)},
            .out = {out},
            .attrs = {{.id = sinter_op_attr_axis, .n = 1, .s64 = &rows[i].axis}}};
        sinter_graph_t *graph = NULL;
        sinter_op_t *op = NULL;
        CHECK_THAT(sinter_graph_create(&graph, NULL, sinter_cpu) == sinter_success);
        CHECK_THAT(sinter_op_create(&op, NULL, 0, n.kind, NULL) == sinter_success);
        for (int k = 0; k < 3; k++) {
            CHECK_THAT(sinter_op_add_input(op, &n.in[k]) == sinter_success);
        }
        CHECK_THAT(sinter_op_add_output(op, &n.out[0]) == sinter_success);
        CHECK_THAT(sinter_op_set_attr_s64(op, sinter_op_attr_axis, &rows[i].axis, 1) ==
                   sinter_success);
        sinter_status_t status = sinter_graph_add_op(graph, op);
        sinter_compiled_graph_t *whole = NULL;
        status = status ? status : sinter_graph_finalize(graph);
        status = status ? status : sinter_graph_compile(graph, NULL, 0, NULL, &whole);
        CHECK(status == sinter_unimplemented &&
                  strstr(sinter_last_error_message(),
                         "tensor 4: only a Reorder makes an opaque layout, or a ScatterRows along "
                         "the tokens of data of the same layout") != NULL,
              "case %zu: %s: %s", i, sinter_status_name(status), sinter_last_error_message());
        sinter_compiled_graph_destroy(&whole);
        sinter_op_destroy(&op);
        sinter_graph_destroy(&graph);
    }
}

int main(void)
{
    test_scatter();
    test_every_slot();
    test_moves();
    test_fewer_tokens();
    test_other_axes();
    return check_finish();
}
