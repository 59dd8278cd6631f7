/* ScatterRows writes tokens into caches that lie in tiles: each bit of the result is where packing
 * the strided result puts it, for every type, place in a tile, kind of slots and number of threads.
 * Gather takes tokens from them, and sinter_reorder the first ones. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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

/* sinter_reorder of the first tokens, which are dim `tokens`: out of the tiles, and into tiles that
 * have others. whole: all tokens, with strides. */
static void first_tokens(const char *what, const orc_tensor_t *tiles, int tokens,
                         const unsigned char *whole)
{
    const sinter_logical_tensor_t *lt = &tiles->lt;
    const int64_t bits = gr_dtype(lt->data_type)->bits, T = lt->dims[tokens], n = draw((int)T + 1);
    int64_t dims[SINTER_MAX_NDIMS], matrices = 1, token = 1, differ = 0;
    memcpy(dims, lt->dims, sizeof dims);
    dims[tokens] = n;
    for (int d = 0; d < lt->ndims; d++) {
        matrices *= d < tokens ? dims[d] : 1;
        token *= d > tokens ? dims[d] : 1;
    }
    const sinter_logical_tensor_t some = dense(UPDATES, lt->data_type, lt->ndims, dims),
                                  strided = dense(DATA, lt->data_type, lt->ndims, lt->dims);
    const size_t room = bytes_of(lt);
    unsigned char *to = take(bytes_of(&some)), *others = take(bytes_of(&strided)),
                  *want = take(room), *got = take(room);
    reorder(lt, tiles->data, &some, to);
    reorder(&strided, others, lt, got);
    for (int64_t i = 0; i < matrices * n * token; i++) {
        const int64_t at = i / (n * token) * T * token + i % (n * token);
        unsigned char x[8] = {0}, y[8] = {0};
        copy_bits(bits, whole, at, x, 0);
        copy_bits(bits, to, i, y, 0);
        differ += memcmp(x, y, sizeof x) != 0;
        copy_bits(bits, whole, at, others, at);
    }
    CHECK(differ == 0, "%s: the first %lld tokens: %lld elements differ", what, (long long)n,
          (long long)differ);
    reorder(&strided, others, lt, want);
    reorder(&some, to, lt, got);
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
    first_tokens(what, &(orc_tensor_t){data, to}, 2, whole);
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

/* ---- heads side by side ---------------------------------------------------------------------- */

static sinter_logical_tensor_t of_heads(sinter_logical_tensor_t lt, sinter_weights_part_t part)
{
    CHECK(sinter_logical_tensor_set_weights_layout(&lt, part, 0, 0) == sinter_success, "%s",
          sinter_last_error_message());
    return lt;
}

typedef struct heads_case {
    sinter_data_type_t type;
    sinter_weights_part_t part;
    int64_t T, heads, width, tokens;
    bool in_place;
    int threads;
} heads_case_t;

static void run_heads(const heads_case_t *c)
{
    const int64_t dims[3] = {c->T, c->heads, c->width}, some[3] = {c->tokens, c->heads, c->width},
                  axis = c->threads == 2 ? -3 : 0, bits = gr_dtype(c->type)->bits,
                  token = c->heads * c->width;
    const sinter_logical_tensor_t strided = dense(DATA, c->type, 3, dims),
                                  data = of_heads(strided, c->part),
                                  slots_lt = dense(SLOTS, sinter_s32, 1, &c->tokens),
                                  updates = dense(UPDATES, c->type, 3, some);
    sinter_logical_tensor_t out = data;
    out.id = OUT;
    const node_t n = {.kind = sinter_op_scatter_rows,
                      .n_in = 3,
                      .n_out = 1,
                      .n_attrs = 1,
                      .in = {data, slots_lt, updates},
                      .out = {out},
                      .attrs = {{.id = sinter_op_attr_axis, .n = 1, .s64 = &axis}}};
    sinter_compiled_partition_t *compiled = compile(&n);
    const size_t room = bytes_of(&data);
    unsigned char *whole = take(bytes_of(&strided)), *from = take(bytes_of(&updates)),
                  *tiles = take(room), *to = c->in_place ? tiles : take(room), *want = take(room),
                  *back = take(bytes_of(&strided));
    int32_t *slots = malloc(sizeof *slots * (size_t)c->tokens);
    if (slots == NULL) {
        abort();
    }
    memcpy(back, whole, bytes_of(&strided));
    reorder(&strided, whole, &data, tiles);
    for (int64_t i = 0; i < c->tokens; i++) {
        slots[i] = draw(5) == 0 ? -1 : draw((int)c->T);
        for (int64_t e = 0; e < token && slots[i] >= 0; e++) {
            copy_bits(bits, from, i * token + e, whole, slots[i] * token + e);
        }
    }
    reorder(&strided, whole, &data, want);
    const orc_tensor_t tensors[4] = {{data, tiles}, {slots_lt, slots}, {updates, from}, {out, to}};
    CHECK(execute(compiled, c->threads, 4, tensors) == sinter_success &&
              memcmp(to, want, room) == 0,
          "%s part %d [%lld %lld %lld]: tokens lie elsewhere (%s)", gr_dtype(c->type)->name,
          (int)c->part, (long long)c->T, (long long)c->heads, (long long)c->width,
          sinter_last_error_message());
    reorder(&data, to, &strided, back);
    CHECK(memcmp(back, whole, bytes_of(&strided)) == 0, "%s part %d: not the same again",
          gr_dtype(c->type)->name, (int)c->part);
    first_tokens("heads side by side", &(orc_tensor_t){data, to}, 0, whole);
    /* The first tokens lie as a smaller cache does. */
    if (c->T > 256) {
        const int64_t first[3] = {256, c->heads, c->width};
        const sinter_logical_tensor_t less = dense(DATA, c->type, 3, first),
                                      less_tiled = of_heads(less, c->part);
        reorder(&less, whole, &less_tiled, want);
        CHECK(memcmp(to, want, bytes_of(&less_tiled)) == 0, "%s part %d: the first tokens",
              gr_dtype(c->type)->name, (int)c->part);
    }
    sinter_compiled_partition_destroy(&compiled);
    if (!c->in_place) {
        free(to);
    }
    free(whole);
    free(from);
    free(tiles);
    free(want);
    free(back);
    free(slots);
}

static void test_scatter_heads(void)
{
    static const int64_t T[] = {1, 16, 100, 256, 512, 768}, heads[] = {1, 2, 3, 5},
                         width[] = {32, 64, 20, 80};
    for (int i = 0; i < 36; i++) {
        heads_case_t c = {.T = T[i % 6],
                          .heads = heads[i / 2 % 4],
                          .tokens = 1 + draw(40),
                          .in_place = i / 3 % 2,
                          .threads = 1 + i % 3};
        for (int t = 0; t < (int)(sizeof code_types / sizeof *code_types); t++) {
            c.type = code_types[t];
            c.width = width[(i + t) % 4];
            c.part = (i + t) / 5 % 2 ? sinter_weights_heads_v : sinter_weights_heads_k;
            run_heads(&c);
        }
        for (int t = 0; t < (int)(sizeof value_types / sizeof *value_types); t++) {
            c.type = value_types[t];
            c.width = 2 * (1 + (i + t) % 3);
            c.part = sinter_weights_heads_values;
            run_heads(&c);
        }
    }
}

/* ---- written and read in one graph, whose tokens are not known at compile -------------------- */

enum {
    HEADS = 3,
    GROUP = 2,
    HEAD = 64,
    MOST_TOKENS = 768,
    NEW = 3,
    K_SIDE = 10,
    V_SIDE = 20,
    QUERY = 30
};

typedef struct kv_type {
    sinter_data_type_t codes, scale; /* undef: plain floats */
} kv_type_t;

typedef struct kv_graph {
    sinter_compiled_graph_t *whole;
    uint64_t out;
} kv_graph_t;

static int64_t width_of(int part)
{
    return part == 0 ? HEAD : HEAD / 32;
}

static sinter_logical_tensor_t kv_part(const kv_type_t *type, bool is_v, int part, int64_t tokens,
                                       bool tiles)
{
    const int64_t dims[3] = {tokens, HEADS, width_of(part)};
    const sinter_data_type_t t = part == 0 ? type->codes : type->scale;
    const sinter_logical_tensor_t lt =
        dense((uint64_t)((is_v ? V_SIDE : K_SIDE) + part), t, 3, dims);
    return !tiles ? lt
                  : of_heads(lt, part > 0 ? sinter_weights_heads_values
                                 : is_v   ? sinter_weights_heads_v
                                          : sinter_weights_heads_k);
}

static sinter_logical_tensor_t within(uint64_t *ids, sinter_data_type_t type)
{
    sinter_logical_tensor_t lt;
    CHECK_THAT(!sinter_logical_tensor_init_unknown(&lt, ++*ids, type, SINTER_UNKNOWN_NDIMS,
                                                   sinter_tensor_property_undef));
    return lt;
}

/* K or V as [heads, 1, tokens, head], with new tokens in it. */
static sinter_logical_tensor_t add_side(sinter_graph_t *g, const kv_type_t *type, bool is_v,
                                        bool tiles, uint64_t *ids, uint64_t *outputs, size_t *n)
{
    static const int64_t groups[3] = {1, 1, 32}, order[3] = {1, 0, 2},
                         shape[4] = {HEADS, 1, -1, HEAD};
    const bool scaled = type->scale != sinter_data_type_undef;
    const sinter_data_type_t floats = scaled ? sinter_f32 : type->codes;
    const int64_t slots_dims[1] = {NEW};
    const sinter_logical_tensor_t slots = dense(SLOTS, sinter_s32, 1, slots_dims);
    sinter_logical_tensor_t after[2], x, y, z;
    for (int p = 0; p < 1 + scaled; p++) {
        sinter_logical_tensor_t before = kv_part(type, is_v, p, SINTER_UNKNOWN_DIM, tiles),
                                new = kv_part(type, is_v, p, NEW, false);
        if (!tiles) {
            before.layout_type = sinter_layout_type_any;
        }
        new.id += 5;
        after[p] = before;
        after[p].id = ++*ids;
        outputs[(*n)++] = after[p].id;
        CHECK(!sinter_graph_add(g, ++*ids, sinter_op_scatter_rows, sinter_in(&before),
                                sinter_in(&slots), sinter_in(&new), sinter_out(&after[p]),
                                sinter_attr_s64(sinter_op_attr_axis, 0)),
              "%s", sinter_last_error_message());
    }
    x = scaled ? within(ids, sinter_f32) : after[0];
    if (scaled) {
        CHECK_THAT(!sinter_graph_add(g, ++*ids, sinter_op_dynamic_dequantize, sinter_in(&after[0]),
                                     sinter_in(&after[1]), sinter_out(&x),
                                     sinter_attr_str(sinter_op_attr_qtype, "per_group"),
                                     sinter_attr_s64s(sinter_op_attr_group_shape, 3, groups)));
    }
    y = within(ids, floats);
    z = within(ids, floats);
    CHECK_THAT(!sinter_graph_add(g, ++*ids, sinter_op_static_transpose, sinter_in(&x),
                                 sinter_out(&y), sinter_attr_s64s(sinter_op_attr_order, 3, order)));
    CHECK_THAT(!sinter_graph_add(g, ++*ids, sinter_op_static_reshape, sinter_in(&y), sinter_out(&z),
                                 sinter_attr_s64s(sinter_op_attr_shape, 4, shape),
                                 sinter_attr_bool(sinter_op_attr_special_zero, 0)));
    return z;
}

static kv_graph_t kv_build(const kv_type_t *type, int64_t rows, bool tiles)
{
    const int64_t q_dims[4] = {HEADS, GROUP, rows, HEAD};
    const bool scaled = type->scale != sinter_data_type_undef;
    const sinter_data_type_t floats = scaled ? sinter_f32 : type->codes;
    uint64_t ids = 100, outputs[8];
    size_t n = 0;
    sinter_graph_t *g = NULL;
    kv_graph_t made = {NULL, 0};
    CHECK_THAT(!sinter_graph_create(&g, NULL, sinter_cpu));
    const sinter_logical_tensor_t q = dense(QUERY, floats, 4, q_dims),
                                  k = add_side(g, type, false, tiles, &ids, outputs, &n),
                                  v = add_side(g, type, true, tiles, &ids, outputs, &n),
                                  s = within(&ids, sinter_f32), p = within(&ids, floats),
                                  out = within(&ids, floats);
    CHECK_THAT(!sinter_graph_add(g, ++ids, sinter_op_matmul, sinter_in(&q), sinter_in(&k),
                                 sinter_out(&s), sinter_attr_bool(sinter_op_attr_transpose_b, 1)));
    CHECK_THAT(!sinter_graph_add(g, ++ids, sinter_op_softmax, sinter_in(&s), sinter_out(&p),
                                 sinter_attr_s64(sinter_op_attr_axis, -1)));
    CHECK_THAT(!sinter_graph_add(g, ++ids, sinter_op_matmul, sinter_in(&p), sinter_in(&v),
                                 sinter_out(&out)));
    outputs[n++] = made.out = out.id;
    CHECK(!sinter_graph_set_ports(g, 0, NULL, n, outputs) && !sinter_graph_finalize(g) &&
              !sinter_graph_compile(g, NULL, 0, NULL, &made.whole),
          "%s", sinter_last_error_message());
    sinter_graph_destroy(&g);
    return made;
}

/* Small numbers of a type. */
static void fill_small(sinter_data_type_t type, unsigned char *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        to[i] = (unsigned char)draw(256);
        if (type == sinter_f16 && i % 2 == 1) {
            to[i] = (unsigned char)((to[i] & 0x83) | 0x30);
        } else if (type == sinter_f32 && i % 4 == 3) {
            to[i] = (unsigned char)((to[i] & 0x80) | 0x3E);
        } else if (type == sinter_e8m0) {
            to[i] = (unsigned char)(124 + to[i] % 4);
        }
    }
}

static void kv_bind(kv_graph_t *g, const sinter_logical_tensor_t *lt, unsigned char *data)
{
    CHECK(!sinter_compiled_graph_bind(g->whole, lt->id, lt->ndims, lt->dims,
                                      lt->layout_type == sinter_layout_type_opaque ? NULL
                                                                                   : lt->strides,
                                      data, bytes_of(lt)),
          "%s", sinter_last_error_message());
}

/* A cache in tiles against the same one with strides, of which both use the first tokens. */
static void check_kv(const kv_type_t *type, int64_t rows, int threads)
{
    static const int64_t some[] = {256, 768, 512, 256};
    const bool scaled = type->scale != sinter_data_type_undef;
    const sinter_data_type_t floats = scaled ? sinter_f32 : type->codes;
    const int64_t q_dims[4] = {HEADS, GROUP, rows, HEAD}, slots_dims[1] = {NEW};
    const sinter_logical_tensor_t q = dense(QUERY, floats, 4, q_dims),
                                  slots = dense(SLOTS, sinter_s32, 1, slots_dims);
    kv_graph_t graphs[2] = {kv_build(type, rows, false), kv_build(type, rows, true)};
    unsigned char *caches[2][4] = {0}, *news[4] = {0}, *queries = take(bytes_of(&q)), *results[2];
    int32_t places[NEW];
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = threads, .all_threads = 1};
    sinter_stream_t *stream = NULL;
    CHECK_THAT(!sinter_stream_create(&stream, NULL, &desc));
    fill_small(floats, queries, bytes_of(&q));
    for (int i = 0; i < 4; i += scaled ? 1 : 2) { /* codes and scales of K, then of V */
        const sinter_logical_tensor_t strided = kv_part(type, i / 2, i % 2, MOST_TOKENS, false),
                                      tiles = kv_part(type, i / 2, i % 2, MOST_TOKENS, true),
                                      new = kv_part(type, i / 2, i % 2, NEW, false);
        caches[0][i] = take(bytes_of(&strided));
        caches[1][i] = take(bytes_of(&tiles));
        news[i] = take(bytes_of(&new));
        fill_small(strided.data_type, caches[0][i], bytes_of(&strided));
        fill_small(new.data_type, news[i], bytes_of(&new));
        reorder(&strided, caches[0][i], &tiles, caches[1][i]);
    }
    for (int g = 0; g < 2; g++) {
        results[g] = take(bytes_of(&q));
    }
    for (int r = 0; r < 4; r++) {
        for (int i = 0; i < NEW; i++) {
            places[i] = draw((int)some[r]);
        }
        for (int g = 0; g < 2; g++) {
            for (int i = 0; i < 4; i += scaled ? 1 : 2) {
                const sinter_logical_tensor_t lt = kv_part(type, i / 2, i % 2, some[r], g == 1);
                sinter_logical_tensor_t new = kv_part(type, i / 2, i % 2, NEW, false);
                new.id += 5;
                kv_bind(&graphs[g], &lt, caches[g][i]);
                kv_bind(&graphs[g], &new, news[i]);
            }
            kv_bind(&graphs[g], &q, queries);
            kv_bind(&graphs[g], &slots, (unsigned char *)places);
            CHECK(!sinter_compiled_graph_bind(graphs[g].whole, graphs[g].out, 0, NULL, NULL,
                                              results[g], bytes_of(&q)) &&
                      !sinter_compiled_graph_execute(graphs[g].whole, stream),
                  "%s", sinter_last_error_message());
        }
        double most = 0, worst = 0;
        for (int64_t i = 0; i < HEADS * GROUP * rows * HEAD; i++) {
            const double x = orc_decode(floats, results[0], i),
                         y = orc_decode(floats, results[1], i);
            most = x > most ? x : -x > most ? -x : most;
            worst = x - y > worst ? x - y : y - x > worst ? y - x : worst;
        }
        /* A score adds up to 64 * .5 * 64 = 2048, of which the last bit is 2^-13, and e^score
         * differs by such a part. */
        CHECK(most > 0 && worst <= most * (floats == sinter_f32 ? 0x1p-13 : 2e-3),
              "%s, %lld rows, %lld tokens: %g apart of %g", gr_dtype(type->codes)->name,
              (long long)rows, (long long)some[r], worst, most);
    }
    for (int i = 0; i < 4; i += scaled ? 1 : 2) { /* both have the new tokens */
        const sinter_logical_tensor_t strided = kv_part(type, i / 2, i % 2, MOST_TOKENS, false),
                                      tiles = kv_part(type, i / 2, i % 2, MOST_TOKENS, true);
        unsigned char *back = take(bytes_of(&strided));
        reorder(&tiles, caches[1][i], &strided, back);
        CHECK(memcmp(back, caches[0][i], bytes_of(&strided)) == 0, "%s: other tokens",
              gr_dtype(type->codes)->name);
        free(back);
        free(caches[0][i]);
        free(caches[1][i]);
        free(news[i]);
    }
    for (int g = 0; g < 2; g++) {
        free(results[g]);
        sinter_compiled_graph_destroy(&graphs[g].whole);
    }
    free(queries);
    sinter_stream_destroy(&stream);
}

static void test_unknown_tokens(void)
{
    static const kv_type_t types[] = {{sinter_s8, sinter_f16},
                                      {sinter_s4, sinter_f16},
                                      {sinter_f4_e2m1, sinter_e8m0},
                                      {sinter_f16, sinter_data_type_undef},
                                      {sinter_f32, sinter_data_type_undef}};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        check_kv(&types[t], 1, 1 + (int)t % 3);
        check_kv(&types[t], 4, 2);
        check_kv(&types[t], 20, 2);
    }
}

/* ---- cells behind 2^31 columns --------------------------------------------------------------- */

/* Heads so many that they have 2^31 columns of all tokens, of which memory has what is touched. */
enum {
    MANY_HEADS = 2048,
    SHORT_HEAD = 32,
    SEQUENCES = 3,
    NEAR_TOKENS = 512,
    FAR_TOKENS = (1 << 20) + 2048
};

/* Memory of tokens of MANY_HEADS heads in tiles whose last 256 are `last`. NULL: there is none. */
static unsigned char *with_last(const sinter_logical_tensor_t *lt, const unsigned char *last,
                                size_t bytes)
{
    unsigned char *p = mmap(NULL, bytes_of(lt), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        return NULL;
    }
    memcpy(p + bytes_of(lt) - bytes, last, bytes);
    return p;
}

static sinter_logical_tensor_t many_heads(const kv_type_t *type, bool is_v, int part,
                                          int64_t tokens)
{
    const int64_t dims[3] = {tokens, MANY_HEADS, part == 0 ? SHORT_HEAD : 1};
    return of_heads(dense((uint64_t)((is_v ? V_SIDE : K_SIDE) + part),
                          part == 0 ? type->codes : type->scale, 3, dims),
                    part > 0 ? sinter_weights_heads_values
                    : is_v   ? sinter_weights_heads_v
                             : sinter_weights_heads_k);
}

static sinter_logical_tensor_t add_many(sinter_graph_t *g, const kv_type_t *type, bool is_v,
                                        int64_t tokens, uint64_t *ids)
{
    static const int64_t groups[3] = {1, 1, SHORT_HEAD}, order[3] = {1, 0, 2},
                         shape[4] = {MANY_HEADS, 1, -1, SHORT_HEAD};
    const bool scaled = type->scale != sinter_data_type_undef;
    const sinter_data_type_t floats = scaled ? sinter_f32 : type->codes;
    const sinter_logical_tensor_t codes = many_heads(type, is_v, 0, tokens),
                                  x = scaled ? within(ids, floats) : codes, y = within(ids, floats),
                                  z = within(ids, floats);
    if (scaled) {
        const sinter_logical_tensor_t scales = many_heads(type, is_v, 1, tokens);
        CHECK_THAT(!sinter_graph_add(g, ++*ids, sinter_op_dynamic_dequantize, sinter_in(&codes),
                                     sinter_in(&scales), sinter_out(&x),
                                     sinter_attr_str(sinter_op_attr_qtype, "per_group"),
                                     sinter_attr_s64s(sinter_op_attr_group_shape, 3, groups)));
    }
    CHECK_THAT(!sinter_graph_add(g, ++*ids, sinter_op_static_transpose, sinter_in(&x),
                                 sinter_out(&y), sinter_attr_s64s(sinter_op_attr_order, 3, order)));
    CHECK_THAT(!sinter_graph_add(g, ++*ids, sinter_op_static_reshape, sinter_in(&y), sinter_out(&z),
                                 sinter_attr_s64s(sinter_op_attr_shape, 4, shape),
                                 sinter_attr_bool(sinter_op_attr_special_zero, 0)));
    return z;
}

/* Some sequences share the cache, and each has some of the last 256 tokens, which are copied.
 * parts: those of codes and scales of K and V. */
static void attend_last(const kv_type_t *type, int64_t tokens, unsigned char *const *parts,
                        unsigned char *queries, unsigned char *result)
{
    enum { MASK = 40 };
    static const int seen[] = {7, 60, 61, 130, 255};
    const bool scaled = type->scale != sinter_data_type_undef;
    const sinter_data_type_t floats = scaled ? sinter_f32 : type->codes;
    const int64_t q_dims[4] = {MANY_HEADS, 1, SEQUENCES, SHORT_HEAD},
                  mask_dims[2] = {SEQUENCES, tokens};
    const sinter_logical_tensor_t q = dense(QUERY, floats, 4, q_dims),
                                  mask = dense(MASK, sinter_f16, 2, mask_dims);
    uint64_t ids = 100;
    sinter_graph_t *g = NULL;
    kv_graph_t made = {NULL, 0};
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = 1};
    sinter_stream_t *stream = NULL;
    CHECK_THAT(!sinter_stream_create(&stream, NULL, &desc));
    uint16_t *terms = malloc((size_t)tokens * SEQUENCES * sizeof *terms);
    CHECK_THAT(terms != NULL && !sinter_graph_create(&g, NULL, sinter_cpu));
    for (int64_t i = 0; i < tokens * SEQUENCES; i++) {
        terms[i] = 0xFC00; /* -infinity */
    }
    for (int r = 0; r < SEQUENCES; r++) {
        for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
            terms[(r + 1) * tokens - 256 + seen[i] - 3 * r] = 0;
        }
    }
    const sinter_logical_tensor_t k = add_many(g, type, false, tokens, &ids),
                                  v = add_many(g, type, true, tokens, &ids),
                                  s = within(&ids, sinter_f32), m = within(&ids, sinter_f32),
                                  p = within(&ids, floats), out = within(&ids, floats);
    CHECK_THAT(!sinter_graph_add(g, ++ids, sinter_op_matmul, sinter_in(&q), sinter_in(&k),
                                 sinter_out(&s), sinter_attr_bool(sinter_op_attr_transpose_b, 1)));
    CHECK_THAT(!sinter_graph_add(g, ++ids, sinter_op_add, sinter_in(&s), sinter_in(&mask),
                                 sinter_out(&m)));
    CHECK_THAT(!sinter_graph_add(g, ++ids, sinter_op_softmax, sinter_in(&m), sinter_out(&p),
                                 sinter_attr_s64(sinter_op_attr_axis, -1)));
    CHECK_THAT(!sinter_graph_add(g, ++ids, sinter_op_matmul, sinter_in(&p), sinter_in(&v),
                                 sinter_out(&out)));
    CHECK(!sinter_graph_finalize(g) && !sinter_graph_compile(g, NULL, 0, NULL, &made.whole), "%s",
          sinter_last_error_message());
    for (int i = 0; i < 4; i += scaled ? 1 : 2) {
        const sinter_logical_tensor_t lt = many_heads(type, i / 2, i % 2, tokens);
        kv_bind(&made, &lt, parts[i]);
    }
    kv_bind(&made, &q, queries);
    kv_bind(&made, &mask, (unsigned char *)terms);
    CHECK(!sinter_compiled_graph_bind(made.whole, out.id, 0, NULL, NULL, result, bytes_of(&q)) &&
              !sinter_compiled_graph_execute(made.whole, stream),
          "%s", sinter_last_error_message());
    sinter_compiled_graph_destroy(&made.whole);
    sinter_graph_destroy(&g);
    sinter_stream_destroy(&stream);
    free(terms);
}

/* The last tokens of a cache of 2^31 columns give the bits of those of a short one. */
static void test_many_columns(void)
{
    enum { PERIOD = 4 * 4093 }; /* of the numbers */
    static const kv_type_t types[] = {
        {sinter_s4, sinter_f16}, {sinter_s8, sinter_f32}, {sinter_f16, sinter_data_type_undef}};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const kv_type_t *type = &types[t];
        const bool scaled = type->scale != sinter_data_type_undef;
        const sinter_data_type_t floats = scaled ? sinter_f32 : type->codes;
        const int64_t tokens[2] = {NEAR_TOKENS, FAR_TOKENS},
                      q_dims[4] = {MANY_HEADS, 1, SEQUENCES, SHORT_HEAD};
        const sinter_logical_tensor_t q = dense(QUERY, floats, 4, q_dims);
        unsigned char *parts[2][4] = {{0}}, *queries = take(bytes_of(&q)), *results[2];
        bool room = true;
        fill_small(floats, queries, bytes_of(&q));
        for (int i = 0; i < 4; i += scaled ? 1 : 2) {
            const sinter_logical_tensor_t of_block = many_heads(type, i / 2, i % 2, 256);
            const size_t bytes = bytes_of(&of_block);
            unsigned char *last = malloc(bytes);
            CHECK_THAT(last != NULL);
            fill_small(of_block.data_type, last, PERIOD);
            for (size_t at = PERIOD; at < bytes; at++) {
                last[at] = last[at - PERIOD];
            }
            for (int n = 0; n < 2; n++) {
                const sinter_logical_tensor_t lt = many_heads(type, i / 2, i % 2, tokens[n]);
                parts[n][i] = with_last(&lt, last, bytes);
                room = room && parts[n][i] != NULL;
            }
            free(last);
        }
        for (int n = 0; n < 2; n++) {
            results[n] = take(bytes_of(&q));
            if (room) {
                attend_last(type, tokens[n], parts[n], queries, results[n]);
            }
        }
        CHECK(!room || !memcmp(results[0], results[1], bytes_of(&q)), "%s: cells behind 2^31",
              gr_dtype(type->codes)->name);
        if (!room) {
            printf("no address space for many columns of %s\n", gr_dtype(type->codes)->name);
        }
        for (int i = 0; i < 8; i++) {
            const sinter_logical_tensor_t lt =
                many_heads(type, i % 4 / 2, scaled ? i % 2 : 0, tokens[i / 4]);
            if (parts[i / 4][i % 4] != NULL) {
                munmap(parts[i / 4][i % 4], bytes_of(&lt));
            }
        }
        free(queries);
        free(results[0]);
        free(results[1]);
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
    test_scatter_heads();
    test_unknown_tokens();
    test_many_columns();
    test_other_axes();
    return check_finish();
}
