/* Caches in pages: which graphs are read so (graph/pages.h), and where an operand's tokens lie. */
#include "check.h"
#include "plan_rig.h"

#include "backend_xsmm/drivers/common/matrices.h"
#include "backend_xsmm/exec/frame.h"
#include "graph/pages.h"

#define GATHER(m, type, at, ...) OPA(m, gather, type, ATTRS(S64S(axis, at)), __VA_ARGS__)
#define TRANSPOSE(m, type, in, ...) \
    OPA(m, static_transpose, type, ATTRS(S64S(order, __VA_ARGS__)), in)
/* 0: the dim of the same place of the input, -1: what is left */
#define RESHAPE(m, type, in, ...) \
    OPA(m, static_reshape, type, ATTRS(S64S(shape, __VA_ARGS__), BOOL(special_zero, true)), in)

/* ---- graph_pages ----------------------------------------------------------------------------- */

/* "t0 b1 t1+b2 b3, page b2": the dims of the table and of blocks that are dims of the value. */
static const char *describe(const pages_of_t *p, int ndims, char *text, size_t size)
{
    text[0] = '\0';
    for (int d = 0; d < ndims; d++) {
        const int t = p->of_table[d], b = p->of_blocks[d];
        const size_t len = strlen(text);
        if (t >= 0 && b >= 0) {
            snprintf(text + len, size - len, "%st%d+b%d", d > 0 ? " " : "", t, b);
        } else if (t >= 0 || b >= 0) {
            snprintf(text + len, size - len, "%s%c%d", d > 0 ? " " : "", t >= 0 ? 't' : 'b',
                     t >= 0 ? t : b);
        } else {
            snprintf(text + len, size - len, "%s1", d > 0 ? " " : "");
        }
    }
    const size_t len = strlen(text);
    if (p->within >= 0) {
        snprintf(text + len, size - len, ", page b%d", p->within);
    } else {
        snprintf(text + len, size - len, ", a token");
    }
    for (int d = 0; d < SINTER_MAX_NDIMS; d++) {
        const size_t end = strlen(text);
        if (p->start[d] != 0) {
            snprintf(text + end, size - end, ", from %d of b%d", (int)p->start[d], d);
        }
    }
    return text;
}

/* Ends the graph; want: how the value comes from blocks, or why it is not read so, "": from
 * none. */
static void expect(mini_t *m, lt_t value, int tokens, const char *want, int line)
{
    char text[200] = "";
    const char *why;
    pages_of_t pages;
    if (!check_at(mini_end(m) == sinter_success, line, "building")) {
        graph_free(&m->g);
        return;
    }
    const int v = graph_find_value(&m->g, value.id), ndims = m->g.values[v].lt.ndims;
    tokens += tokens < 0 ? ndims : 0;
    const char *got = graph_pages(&m->g, v, tokens, &pages, &why)
                          ? describe(&pages, ndims, text, sizeof text)
                      : why != NULL ? why
                                    : "";
    check_at(strcmp(got, want) == 0, line, "got \"%s\", expected \"%s\"", got, want);
    graph_free(&m->g);
}
#define EXPECT(m, value, tokens, want) expect(m, value, tokens, want, __LINE__)

static sinter_engine_t *engine;

static const char does_more[] =
    "a view behind the Gather does more than joining the dim of blocks and the dim of their tokens";

static void test_orders(void)
{
    mini_t m;
    lt_t x;
    /* [nb, heads, tokens of a block, D] */
    mini_begin(&m, engine);
    x = GATHER(&m, f16, 0, IN(&m, f16, "9x2x4x16"), IN(&m, s32, "3x5"));
    x = RESHAPE(&m, f16, TRANSPOSE(&m, f16, x, 0, 2, 1, 3, 4), 3, 2, 20, 16);
    EXPECT(&m, x, -2, "t0 b1 t1+b2 b3, page b2");
    /* the same with open dims, and K as [D, T] */
    mini_begin(&m, engine);
    x = GATHER(&m, f16, 0, IN(&m, f16, "?x2x4x16"), IN(&m, s64, "?x?"));
    x = RESHAPE(&m, f16, TRANSPOSE(&m, f16, x, 0, 2, 1, 3, 4), 0, 0, -1, 16);
    x = TRANSPOSE(&m, f16, x, 0, 1, 3, 2);
    EXPECT(&m, x, -1, "t0 b1 b3 t1+b2, page b2");
    /* [nb, tokens of a block, heads, D]: reshape and transpose, in either order */
    mini_begin(&m, engine);
    x = GATHER(&m, s8, 0, IN(&m, s8, "?x4x2x16"), IN(&m, s32, "?x?"));
    x = TRANSPOSE(&m, s8, RESHAPE(&m, s8, x, 0, -1, 2, 16), 0, 2, 1, 3);
    EXPECT(&m, x, -2, "t0 b2 t1+b1 b3, page b1");
    mini_begin(&m, engine);
    x = GATHER(&m, s8, 0, IN(&m, s8, "?x4x2x16"), IN(&m, s32, "?x?"));
    x = RESHAPE(&m, s8, TRANSPOSE(&m, s8, x, 0, 3, 1, 2, 4), 0, 0, -1, 16);
    EXPECT(&m, x, -2, "t0 b2 t1+b1 b3, page b1");
    /* a half of [2, nb, ..]: dims of 1 before the axis */
    mini_begin(&m, engine);
    x = OPA(&m, slice, f16, ATTRS(S64S(starts, 1), S64S(ends, 2), S64S(axes, 0)),
            IN(&m, f16, "2x9x2x4x16"));
    x = GATHER(&m, f16, 1, x, IN(&m, s32, "3x5"));
    x = RESHAPE(&m, f16, TRANSPOSE(&m, f16, x, 0, 1, 3, 2, 4, 5), 3, 2, 20, 16);
    EXPECT(&m, x, -2, "t0 b2 t1+b3 b4, page b3");
    /* and dropped before it */
    mini_begin(&m, engine);
    x = OPA(&m, slice, f16, ATTRS(S64S(starts, 1), S64S(ends, 2), S64S(axes, 0)),
            IN(&m, f16, "2x?x2x4x16"));
    x = GATHER(&m, f16, 0, RESHAPE(&m, f16, x, -1, 2, 4, 16), IN(&m, s32, "?x?"));
    x = RESHAPE(&m, f16, TRANSPOSE(&m, f16, x, 0, 2, 1, 3, 4), 0, 0, -1, 16);
    EXPECT(&m, x, -2, "t0 b1 t1+b2 b3, page b2");
    /* blocks of one token */
    mini_begin(&m, engine);
    x = GATHER(&m, f16, 0, IN(&m, f16, "?x2x16"), IN(&m, s32, "?x?"));
    x = TRANSPOSE(&m, f16, x, 0, 2, 1, 3);
    EXPECT(&m, x, -2, "t0 b1 t1 b2, a token");
    mini_begin(&m, engine);
    x = GATHER(&m, f16, 0, IN(&m, f16, "?x2x1x16"), IN(&m, s32, "?x?"));
    x = RESHAPE(&m, f16, TRANSPOSE(&m, f16, x, 0, 2, 1, 3, 4), 0, 0, -1, 16);
    EXPECT(&m, x, -2, "t0 b1 t1 b3, a token");
    /* further dims of 1: heads of queries that share K */
    mini_begin(&m, engine);
    x = GATHER(&m, f16, 0, IN(&m, f16, "?x2x4x16"), IN(&m, s32, "?x?"));
    x = RESHAPE(&m, f16, TRANSPOSE(&m, f16, x, 0, 2, 1, 3, 4), 0, 0, 1, -1, 16);
    EXPECT(&m, x, -2, "t0 b1 1 t1+b2 b3, page b2");
    mini_begin(&m, engine);
    x = GATHER(&m, f16, 0, IN(&m, f16, "?x2x16"), IN(&m, s32, "?x?"));
    x = RESHAPE(&m, f16, TRANSPOSE(&m, f16, x, 0, 2, 1, 3), 0, 0, 1, -1, 16);
    EXPECT(&m, x, -2, "t0 b1 1 t1 b2, a token");
    /* one sequence, a table of one dim; one head, no dim of heads */
    mini_begin(&m, engine);
    x = GATHER(&m, f16, 0, IN(&m, f16, "?x4x16"), IN(&m, s32, "?"));
    x = RESHAPE(&m, f16, x, -1, 16);
    EXPECT(&m, x, -2, "t0+b1 b2, page b1");
    mini_begin(&m, engine);
    x = GATHER(&m, f16, 0, IN(&m, f16, "?x4x16"), IN(&m, s32, "?x?"));
    x = RESHAPE(&m, f16, x, 0, 1, -1, 16);
    EXPECT(&m, x, -2, "t0 1 t1+b1 b2, page b1");
    /* heads before the blocks */
    mini_begin(&m, engine);
    x = GATHER(&m, f16, 1, IN(&m, f16, "2x?x4x16"), IN(&m, s32, "3x?"));
    x = RESHAPE(&m, f16, TRANSPOSE(&m, f16, x, 1, 0, 2, 3, 4), 3, 2, -1, 16);
    EXPECT(&m, x, -2, "t0 b0 t1+b2 b3, page b2");
    /* a part of each token, before and behind the reshape */
    mini_begin(&m, engine);
    x = TRANSPOSE(&m, f16, GATHER(&m, f16, 0, IN(&m, f16, "?x2x4x16"), IN(&m, s32, "?x?")), 0, 2, 1,
                  3, 4);
    x = OPA(&m, slice, f16, ATTRS(S64S(starts, 4), S64S(ends, 16), S64S(axes, -1)), x);
    x = RESHAPE(&m, f16, x, 0, 0, -1, 12);
    x = OPA(&m, slice, f16, ATTRS(S64S(starts, 1, 2), S64S(ends, 2, 8), S64S(axes, 1, 3)), x);
    EXPECT(&m, x, -2, "t0 b1 t1+b2 b3, page b2, from 1 of b1, from 6 of b3");
    /* one block for each sequence: the table says nothing of the dim of tokens */
    mini_begin(&m, engine);
    x = GATHER(&m, f16, 0, IN(&m, f16, "9x2x4x16"), IN(&m, s32, "3x1"));
    x = RESHAPE(&m, f16, TRANSPOSE(&m, f16, x, 0, 2, 1, 3, 4), 3, 2, 4, 16);
    EXPECT(&m, x, -2, "t0 b1 t1+b2 b3, page b2");
    mini_begin(&m, engine);
    x = GATHER(&m, f16, 0, IN(&m, f16, "9x2x16"), IN(&m, s32, "1x1"));
    x = TRANSPOSE(&m, f16, x, 0, 2, 1, 3);
    EXPECT(&m, x, -2, "1 b1 t1 b2, a token");
}

static void test_refused(void)
{
    mini_t m;
    lt_t x;
    /* no Gather */
    mini_begin(&m, engine);
    x = RESHAPE(&m, f16, IN(&m, f16, "3x2x5x4x16"), 3, 2, 20, 16);
    EXPECT(&m, x, -2, "");
    /* tokens of a block are no neighbours of the blocks: the order of elements is another one */
    mini_begin(&m, engine);
    x = GATHER(&m, f16, 0, IN(&m, f16, "9x4x4x16"), IN(&m, s32, "3x4"));
    x = RESHAPE(&m, f16, TRANSPOSE(&m, f16, x, 0, 2, 3, 1, 4), 3, 4, 16, 16);
    EXPECT(&m, x, -2, does_more);
    /* heads and tokens in one dim; a part of the tokens apart */
    mini_begin(&m, engine);
    x = GATHER(&m, f16, 0, IN(&m, f16, "9x2x4x16"), IN(&m, s32, "3x5"));
    EXPECT(&m, RESHAPE(&m, f16, x, 3, 40, 16), -2, does_more);
    mini_begin(&m, engine);
    x = GATHER(&m, f16, 0, IN(&m, f16, "9x2x4x16"), IN(&m, s32, "3x5"));
    x = RESHAPE(&m, f16, TRANSPOSE(&m, f16, x, 0, 2, 1, 3, 4), 3, 2, 10, 2, 16);
    EXPECT(&m, x, 2, does_more);
    /* open dims of which a reshape says too little */
    mini_begin(&m, engine);
    x = GATHER(&m, f16, 0, IN(&m, f16, "?x2x4x16"), IN(&m, s32, "?x?"));
    x = RESHAPE(&m, f16, TRANSPOSE(&m, f16, x, 0, 2, 1, 3, 4), -1, 2, 20, 16);
    EXPECT(&m, x, -2, does_more);
    /* blocks are sequences, or heads; the table gives the elements of a token */
    mini_begin(&m, engine);
    x = GATHER(&m, f16, 0, IN(&m, f16, "9x2x4x16"), IN(&m, s32, "3x5"));
    EXPECT(&m, x, -2, "blocks are not those of tokens");
    mini_begin(&m, engine);
    x = GATHER(&m, f16, 2, IN(&m, f16, "2x4x9"), IN(&m, s32, "5"));
    EXPECT(&m, x, -2, "blocks are not those of tokens");
    mini_begin(&m, engine);
    x = TRANSPOSE(&m, f16, GATHER(&m, f16, 0, IN(&m, f16, "9x2"), IN(&m, s32, "3x5")), 2, 1, 0);
    EXPECT(&m, x, -2, "the table has a dim that is none of sequences");
    /* what compile does not know */
    mini_begin(&m, engine);
    x = GATHER(&m, f16, 0, IN(&m, f16, "?x2x?x16"), IN(&m, s32, "?x?"));
    x = RESHAPE(&m, f16, TRANSPOSE(&m, f16, x, 0, 2, 1, 3, 4), 0, 0, -1, 16);
    EXPECT(&m, x, -2, "compile does not know how many tokens a block has");
    /* a part of the tokens of each block, or of all tokens */
    mini_begin(&m, engine);
    x = TRANSPOSE(&m, f16, GATHER(&m, f16, 0, IN(&m, f16, "9x2x4x16"), IN(&m, s32, "3x5")), 0, 2, 1,
                  3, 4);
    x = OPA(&m, slice, f16, ATTRS(S64S(starts, 0), S64S(ends, 2), S64S(axes, 3)), x);
    EXPECT(&m, RESHAPE(&m, f16, x, 3, 2, 10, 16), -2, "a Slice takes some tokens of a block");
    mini_begin(&m, engine);
    x = TRANSPOSE(&m, f16, GATHER(&m, f16, 0, IN(&m, f16, "9x2x4x16"), IN(&m, s32, "3x5")), 0, 2, 1,
                  3, 4);
    x = RESHAPE(&m, f16, x, 3, 2, 20, 16);
    x = OPA(&m, slice, f16, ATTRS(S64S(starts, 0), S64S(ends, 10), S64S(axes, 2)), x);
    EXPECT(&m, x, -2, does_more);
    /* tables of their own for each batch */
    mini_begin(&m, engine);
    x = OPA(&m, gather, f16, ATTRS(S64S(axis, 1), S64S(batch_dims, 1)), IN(&m, f16, "3x9x4x16"),
            IN(&m, s32, "3x5"));
    EXPECT(&m, RESHAPE(&m, f16, x, 3, 20, 16), -2, "the Gather has batch_dims");
}

static void test_dim_above(void)
{
    mini_t m;
    mini_begin(&m, engine);
    const lt_t x = IN(&m, f16, "?x2x?x16"), y = TRANSPOSE(&m, f16, x, 0, 1, 3, 2),
               z = RESHAPE(&m, f16, x, 0, 0, 1, -1, 16), w = RESHAPE(&m, f16, x, -1, 16);
    CHECK_THAT(mini_end(&m) == sinter_success);
    const lt_t *const of[] = {&y, &z, &w};
    static const int want[][5] = {{0, 1, 3, 2, -1}, {0, 1, -1, 2, 3}, {-1, -1, -1, -1, -1}};
    for (int i = 0; i < 3; i++) {
        const node_t *view = &m.g.nodes[m.g.values[graph_find_value(&m.g, of[i]->id)].producer];
        for (int d = 0; d < m.g.values[view->out[0]].lt.ndims; d++) {
            CHECK(graph_dim_above(&m.g, view, d) == want[i][d], "view %d, dim %d: got %d", i, d,
                  graph_dim_above(&m.g, view, d));
        }
    }
    graph_free(&m.g);
}

/* ---- where tokens lie ------------------------------------------------------------------------ */

/* K or V [b, H, T, elements] from blocks; D and G elements of codes and of scales. */
enum { B = 3, H = 2, N = 5, NB = 9, D = 6, G = 3, DATA = 0, SCALE, TABLE, VALUES };

typedef struct order {
    const char *name;
    int64_t size; /* tokens of a block */
    pages_of_t pages;
    int64_t stride[2][4]; /* of blocks of codes and of scales */
    bool alike;
} order_t;

static const order_t orders[] = {
    {"blocks [nb, H, bs, D]",
     4,
     {.within = 2, .tokens = 2, .of_blocks = {-1, 1, 2, 3}, .of_table = {0, -1, 1, -1}},
     {{H * 4 * D, 4 * D, D, 1}, {H * 4 * G, 4 * G, G, 1}},
     true},
    {"blocks [nb, bs, H, D]",
     4,
     {.within = 1, .tokens = 2, .of_blocks = {-1, 2, 1, 3}, .of_table = {0, -1, 1, -1}},
     {{4 * H * D, H *D, D, 1}, {4 * H * G, H *G, G, 1}},
     true},
    {"scales behind the codes of each token",
     4,
     {.within = 2, .tokens = 2, .of_blocks = {-1, 1, 2, 3}, .of_table = {0, -1, 1, -1}},
     {{H * 4 * 12, 4 * 12, 12, 1}, {H * 4 * 6, 4 * 6, 6, 1}},
     true},
    {"blocks of one token, each [H, D]",
     1,
     {.within = -1, .tokens = 2, .of_blocks = {-1, 1, -1, 2}, .of_table = {0, -1, 1, -1}},
     {{H * D + 2, D + 1, 1, 0}, {H * G, G, 1, 0}},
     true},
    {"room behind each block of codes alone",
     4,
     {.within = 2, .tokens = 2, .of_blocks = {-1, 1, 2, 3}, .of_table = {0, -1, 1, -1}},
     {{H * 4 * D + D, 4 * D, D, 1}, {H * 4 * G, 4 * G, G, 1}},
     false},
    {"blocks that are no whole number of tokens apart",
     4,
     {.within = 2, .tokens = 2, .of_blocks = {-1, 1, 2, 3}, .of_table = {0, -1, 1, -1}},
     {{H * 4 * D + 1, 4 * D, D, 1}, {H * 4 * G, 4 * G, G, 1}},
     false},
};

/* A part of the operand, seen in pages. */
static bound_t part_of(const order_t *o, int part, int64_t elements)
{
    bound_t blocks = {.dtype = sinter_f32, .ndims = 4}, view = {.dtype = sinter_f32, .ndims = 4};
    const int64_t dims[] = {B, H, N * o->size, elements};
    memcpy(view.dims, dims, sizeof dims);
    for (int d = 0; d < 4; d++) {
        blocks.strides[d] = o->stride[part][d];
        blocks.dims[d] = d == 0 ? NB : d == o->pages.within ? o->size : 1;
    }
    view_in_pages(&o->pages, &blocks, &view);
    return view;
}

/* Where the graph says that an element lies. */
static int64_t place_of(const order_t *o, int part, int64_t block, const int64_t *idx)
{
    int64_t at = block * o->stride[part][0];
    for (int d = 0; d < 4; d++) {
        const int from = o->pages.of_blocks[d];
        at += from < 0 ? 0 : (d == 2 ? idx[d] % o->size : idx[d]) * o->stride[part][from];
    }
    return at;
}

/* All tokens, as rows or (trans) as columns, by tables of both types and of any strides. */
static void test_places(const order_t *o, bool trans, bool wide)
{
    int32_t narrow[B * 16];
    int64_t table[B * 16];
    bound_t v[VALUES] = {[DATA] = part_of(o, 0, D), [SCALE] = part_of(o, 1, G)};
    v[TABLE] = (bound_t){.data = wide ? (unsigned char *)table : (unsigned char *)narrow,
                         .dtype = wide ? sinter_s64 : sinter_s32,
                         .ndims = 2,
                         .dims = {B, N},
                         .strides = {16, 3}};
    for (int i = 0; i < B * 16; i++) {
        table[i] = narrow[i] = i * 7 % NB - (i % 4 == 0 ? NB : 0);
    }
    pages_of_t pages = o->pages;
    pages.table = TABLE;
    pages.rows = -1;
    v[DATA].pages = v[SCALE].pages = &pages;
    const operand_t op = {.data = DATA,
                          .scale = SCALE,
                          .zp = -1,
                          .high = -1,
                          .split = sinter_data_type_undef,
                          .scale_dim = {0, 1, 2, 3},
                          .zp_dim = {-1, -1, -1, -1}};
    matrices_t m;
    const sinter_status_t status = matrices_bind(&op, trans, &(frame_t){.v = v}, &m);
    if (!CHECK(status == (o->alike ? sinter_success : sinter_unimplemented), "%s: status %d",
               o->name, status) ||
        !o->alike) {
        return;
    }
    CHECK(m.pages.page == o->size && m.pages.blocks == NB && m.pages.id_value == TABLE,
          "%s: pages of %lld", o->name, (long long)m.pages.page);
    for (int64_t b = 0; b < B; b++) {
        for (int64_t h = 0; h < H; h++) {
            const int64_t batch[] = {b, h}, row = pages_row(&m, batch, 2);
            const matrix_t x = matrix_at(&m, batch, 2);
            for (int64_t t = 0; t < N * o->size; t++) {
                const int64_t at = row + t / o->size * m.pages.step,
                              cell = pages_block(&m.pages, at) * m.pages.cells + t % o->size,
                              listed = table[b * 16 + t / o->size * 3],
                              block = listed < 0 ? listed + NB : listed;
                for (int64_t d = 0; d < D; d++) {
                    const int64_t idx[] = {b, h, t, d}, of_scale[] = {b, h, t, d / (D / G)};
                    const int64_t codes = trans ? groups_at(&x.codes, d, cell)
                                                : groups_at(&x.codes, cell, d),
                                  scales = trans ? groups_at(&x.scale, d, cell)
                                                 : groups_at(&x.scale, cell, d);
                    CHECK(codes == place_of(o, 0, block, idx) &&
                              scales == place_of(o, 1, block, of_scale),
                          "%s: batch %lld, head %lld, token %lld, element %lld", o->name,
                          (long long)b, (long long)h, (long long)t, (long long)d);
                }
            }
        }
    }
}

/* ---- what compile makes of it ---------------------------------------------------------------- */

typedef struct cache {
    const char *blocks, *scales, *table; /* dims; of the scales NULL: floats */
    bool halves;                         /* K and V are the halves of [2, ..] */
    bool apart;                          /* V has a table of its own */
    bool whole;                          /* scales have one value for all tokens */
    int64_t strides[2][4];               /* of codes and of scales; 0: none are said */
    const char *steps, *report;          /* wanted: kinds of steps, and a text of the report */
} cache_t;

static lt_t shown(mini_t *m, sinter_data_type_t type, lt_t blocks, lt_t table, int64_t elements)
{
    lt_t in[] = {blocks, table};
    lt_t x = mini_op(m, sinter_op_gather, type, in, 2, ATTRS(S64S(axis, 0)));
    x = mini_op(m, sinter_op_static_transpose, type, &x, 1, ATTRS(S64S(order, 0, 2, 1, 3, 4)));
    return mini_op(m, sinter_op_static_reshape, type, &x, 1,
                   ATTRS(S64S(shape, 0, 0, -1, elements), BOOL(special_zero, true)));
}

static void set_strides(lt_t *lt, const int64_t *strides)
{
    if (strides[0] != 0) {
        lt->layout_type = sinter_layout_type_strided;
        memcpy(lt->strides, strides, sizeof(int64_t) * 4);
    }
}

static lt_t cache_graph(mini_t *m, const cache_t *c, int half, lt_t *both, lt_t table)
{
    const sinter_data_type_t type = c->scales != NULL ? sinter_s8 : sinter_f16;
    lt_t blocks = c->halves ? *both : mini_tensor(m, type, c->blocks);
    set_strides(&blocks, c->strides[0]);
    if (c->halves) {
        blocks = OPA(m, slice, f16, ATTRS(S64S(starts, half), S64S(ends, half + 1), S64S(axes, 0)),
                     blocks);
        blocks = RESHAPE(m, f16, blocks, -1, 2, 4, 16);
    }
    lt_t x = shown(m, type, blocks, table, 16);
    if (c->scales == NULL) {
        return x;
    }
    lt_t scales = mini_tensor(m, sinter_f32, c->scales);
    set_strides(&scales, c->strides[1]);
    scales = c->whole ? scales : shown(m, sinter_f32, scales, table, 2);
    return OPA(m, dynamic_dequantize, f32,
               ATTRS(STR(qtype, "per_group"), S64S(group_shape, 1, 1, c->whole ? 20 : 1, 8)), x,
               scales);
}

static void attention_graph(mini_t *m, const cache_t *c)
{
    mini_begin(m, engine);
    const lt_t table = mini_tensor(m, sinter_s32, c->table);
    lt_t both = mini_tensor(m, sinter_f16, c->blocks);
    const lt_t k = cache_graph(m, c, 0, &both, table),
               of_v = c->apart ? mini_tensor(m, sinter_s32, c->table) : table,
               v = cache_graph(m, c, 1, &both, of_v);
    lt_t s = OPA(m, matmul, f32, ATTRS(BOOL(transpose_b, true)), IN(m, f32, "3x2x4x16"), k);
    s = OPA(m, softmax, f32, ATTRS(S64S(axis, -1)), s);
    OP(m, matmul, f32, s, v);
}

/* The roles that the pattern gives. */
static void set_roles(graph_t *g)
{
    bool first = true;
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].kind == sinter_op_matmul) {
            g->nodes[i].role = first ? "qk" : "pv";
            first = false;
        }
    }
}

static void test_compiled(const cache_t *c, int line)
{
    mini_t m;
    planned_t p;
    char steps[400];
    attention_graph(&m, c);
    set_roles(&m.g);
    check_at(planned(&p, &m, FAMILY_ATTENTION) == sinter_success, line, "compile");
    check_at(strcmp(planned_steps(&p, steps, sizeof steps), c->steps) == 0, line,
             "got \"%s\", expected \"%s\"", steps, c->steps);
    check_at(p.cp != NULL && strstr(p.cp->report, c->report) != NULL, line, "report has no \"%s\"",
             c->report);
    if (p.cp != NULL && strstr(p.cp->report, c->report) == NULL) {
        printf("%s", p.cp->report);
    }
    planned_free(&p);
}
#define COMPILED(...) test_compiled(&(cache_t){__VA_ARGS__}, __LINE__)

static void test_plans(void)
{
    static const char in_pages[] = "reads K and V in pages of 4 tokens, through tensor 0";
    COMPILED(.blocks = "9x2x4x16", .table = "3x5", .steps = "attention", .report = in_pages);
    COMPILED(.blocks = "9x2x4x16", .scales = "9x2x4x2", .table = "3x5", .steps = "attention",
             .report = in_pages);
    COMPILED(.blocks = "9x2x4x16", .scales = "3x2x1x2", .whole = true, .table = "3x5",
             .steps = "attention", .report = in_pages);
    COMPILED(.blocks = "2x9x2x4x16", .halves = true, .table = "3x5", .steps = "attention",
             .report = in_pages);
    /* scales behind the codes of each token */
    COMPILED(.blocks = "9x2x4x16", .scales = "9x2x4x2", .table = "3x5",
             .strides = {{192, 96, 24, 1}, {48, 24, 6, 1}}, .steps = "attention",
             .report = in_pages);
    /* strides that only execute knows */
    COMPILED(.blocks = "?x2x4x16", .scales = "?x2x4x2", .table = "?x?",
             .steps = "attention, else gather gather gather gather matmul softmax matmul",
             .report = in_pages);
    COMPILED(.blocks = "2x?x2x4x16", .halves = true, .table = "?x?",
             .steps = "attention, else gather gather matmul softmax matmul", .report = in_pages);
    /* what cannot be read so */
    COMPILED(.blocks = "9x2x4x16", .scales = "9x2x4x2", .table = "3x5",
             .strides = {{136, 64, 16, 1}, {0}}, .steps = "gather gather gather gather attention",
             .report = "K and V are not read in pages, but copied: blocks are no whole number of "
                       "tokens apart");
    COMPILED(.blocks = "9x2x4x16", .scales = "9x2x4x2", .table = "3x5",
             .strides = {{144, 64, 16, 1}, {0}}, .steps = "gather gather gather gather attention",
             .report = "blocks of scales or zero points are another number of tokens apart than "
                       "those of their codes");
    COMPILED(.blocks = "9x2x4x16", .table = "3x5", .apart = true,
             .steps = "gather gather attention",
             .report = "K, V, scales or zero points have tables or blocks of their own");
}

int main(void)
{
    CHECK_THAT(sinter_engine_create(&engine, NULL) == sinter_success);
    test_orders();
    test_refused();
    test_dim_above();
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        for (int way = 0; way < 4; way++) {
            test_places(&orders[i], way / 2 == 1, way % 2 == 1);
        }
    }
    test_plans();
    sinter_engine_destroy(&engine);
    return check_finish();
}
