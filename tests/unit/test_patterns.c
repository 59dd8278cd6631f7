/* Patterns, matcher, partitioner: every row is reached, near-misses split with a reason,
 * partitions never depend on each other in a circle, large graphs take near-linear time, and
 * running out of memory leaks nothing. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "mini_graph.h"
#include "model.h"
#include "patterns/joins.h"
#include "patterns/partition.h"
#include "patterns/tables.h"

/* ---- what a graph became --------------------------------------------------------------------- */

typedef struct result {
    partition_list_t list;
    char names[512]; /* "sdpa 5, single 1" in execution order */
} result_t;

static bool partition(mini_t *m, sinter_partition_policy_t policy, result_t *r)
{
    sinter_status_t status = mini_end(m);
    status = status == sinter_success ? partition_graph(&m->g, policy, &r->list) : status;
    CHECK(status == sinter_success, "partitioning: %s", sinter_last_error_message());
    r->names[0] = '\0';
    for (int i = 0; status == sinter_success && i < r->list.n; i++) {
        const size_t len = strlen(r->names);
        snprintf(r->names + len, sizeof(r->names) - len, "%s%s %d", i > 0 ? ", " : "",
                 r->list.items[i]->pattern, graph_n_live(&r->list.items[i]->sub));
    }
    return status == sinter_success;
}

/* By row: whether some graph became it. */
static bool reached[64];

static void note_reached(const result_t *r)
{
    for (int i = 0; i < r->list.n; i++) {
        for (int row = 0; row < sinter_n_patterns; row++) {
            reached[row] =
                reached[row] || strcmp(sinter_patterns[row]->name, r->list.items[i]->pattern) == 0;
        }
    }
}

/* Every op in one partition; every input of a partition comes from outside or from an earlier
 * one. */
static void check_order(const mini_t *m, const result_t *r)
{
    char *made = calloc((size_t)m->g.n_values + 1, 1);
    int n_ops = 0;
    for (int i = 0; i < r->list.n; i++) {
        const sinter_partition_t *p = r->list.items[i];
        n_ops += graph_n_live(&p->sub);
        for (int k = 0; k < p->n_inputs; k++) {
            const int v = graph_find_value(&m->g, p->sub.values[p->inputs[k]].lt.id);
            CHECK(m->g.values[v].producer < 0 || made[v],
                  "partition %d reads tensor %d before it is made", i, v);
        }
        for (int k = 0; k < p->n_outputs; k++) {
            made[graph_find_value(&m->g, p->sub.values[p->outputs[k]].lt.id)] = 1;
        }
        CHECK(p->id == (size_t)i, "partition %d has id %zu", i, p->id);
    }
    CHECK(n_ops == m->g.n_nodes, "%d ops in partitions, %d in the graph", n_ops, m->g.n_nodes);
    free(made);
}

/* Ends the graph: its partitions by name, and a text that some explanation must have (NULL: none
 * asked). */
static void expect(mini_t *m, const char *names, const char *reason, int line)
{
    result_t r;
    if (!partition(m, sinter_partition_policy_fusion, &r)) {
        graph_free(&m->g);
        return;
    }
    check_at(strcmp(r.names, names) == 0, line, "got \"%s\", expected \"%s\"", r.names, names);
    bool found = reason == NULL;
    for (int i = 0; i < r.list.n; i++) {
        found = found || strstr(r.list.items[i]->explain, reason) != NULL;
    }
    check_at(found, line, "no partition explains \"%s\"", reason != NULL ? reason : "");
    for (int i = 0; !found && i < r.list.n; i++) {
        printf("%s", r.list.items[i]->explain);
    }
    check_order(m, &r);
    note_reached(&r);
    partition_list_free(&r.list);
    graph_free(&m->g);
}
#define EXPECT(m, names) expect(m, names, NULL, __LINE__)
#define EXPECT_WHY(m, names, reason) expect(m, names, reason, __LINE__)

/* ---- attention ------------------------------------------------------------------------------- */

/* What differs from the plain form. */
typedef struct sdpa {
    int64_t axis; /* 0: the last */
    bool bias, transpose_a, output_score, output_prob, stats_feed_v, wide_v, shared_k;
    const char *k_group; /* dims of K's scales [2, 4, 16, 32]; NULL: K is f16 */
    bool k_split;        /* K arrives as [2, 64, 32] and is reshaped */
} sdpa_t;

static lt_t sdpa_key(mini_t *m, const sdpa_t *s)
{
    if (s->k_group == NULL) {
        return IN(m, f16, "2x4x16x32");
    }
    lt_t k = OPA(m, dynamic_dequantize, f16, ATTRS(STR(qtype, "per_group")),
                 IN(m, s8, s->k_split ? "2x64x32" : "2x4x16x32"), IN(m, f16, s->k_group));
    if (s->shared_k) {
        OP(m, abs, f16, k);
    }
    return s->k_split ? OPA(m, static_reshape, f16,
                            ATTRS(S64S(shape, 2, 4, 16, 32), BOOL(special_zero, false)), k)
                      : k;
}

static void sdpa_graph(mini_t *m, sdpa_t s)
{
    const lt_t q = IN(m, f16, "2x4x5x16"), k = sdpa_key(m, &s);
    lt_t score = s.bias ? OP(m, matmul, f32, q, k, IN(m, f16, "32")) : OP(m, matmul, f32, q, k);
    score = OP(m, divide, f32, score, IN(m, f32, ""));
    if (s.output_score) {
        mini_output(m, score);
    }
    score = OP(m, add, f32, score, IN(m, f32, "2x1x1x32"));
    const lt_t outs[2] = {mini_tensor(m, sinter_f16, "*"), mini_tensor(m, sinter_f32, "*")};
    const attr_t axis[] = {S64S(axis, s.axis == 0 ? -1 : s.axis)};
    mini_add(m, sinter_op_softmax, &score, 1, outs, s.stats_feed_v ? 2 : 1, axis, 1);
    if (s.output_prob) {
        mini_output(m, outs[0]);
    }
    lt_t v = IN(m, f16, s.wide_v ? "3x2x4x32x8" : s.transpose_a ? "2x4x5x8" : "2x4x32x8");
    if (s.stats_feed_v) {
        v = OP(m, add, f16, v,
               OPA(m, static_reshape, f32,
                   ATTRS(S64S(shape, 2, 4, 1, 5), BOOL(special_zero, false)), outs[1]));
    }
    OPA(m, matmul, f16, ATTRS(BOOL(transpose_a, s.transpose_a)), outs[0], v);
}

static void test_sdpa(sinter_engine_t *engine)
{
    mini_t m;
#define SDPA(...) (mini_begin(&m, engine), sdpa_graph(&m, (sdpa_t){__VA_ARGS__}), &m)
    EXPECT(SDPA(.axis = 3), "sdpa 5");
    EXPECT(SDPA(.k_group = "2x4x2x32"), "sdpa 6");
    /* [2, 64 in 8 groups of 8, 32] = [2, 4, 16 in 2 groups, 32] */
    EXPECT(SDPA(.k_group = "2x8x32", .k_split = true), "sdpa 7");
    EXPECT(SDPA(.k_group = "2x64x32", .k_split = true), "sdpa 7");
    EXPECT(SDPA(.k_group = "2x1x1", .k_split = true), "sdpa 7");
    /* Two groups of 32 lie across the four blocks of 16. */
    EXPECT(SDPA(.k_group = "2x2x32", .k_split = true), "sdpa 7");
    EXPECT_WHY(SDPA(.axis = 2), "matmul 3, single 1, single 1",
               "refused sdpa at op 0 (MatMul): op 3 (SoftMax) is not over the last axis");
    EXPECT_WHY(SDPA(.bias = true), "matmul 3, single 1, single 1", "op 0 (MatMul) has a bias");
    EXPECT_WHY(SDPA(.transpose_a = true), "matmul 3, single 1, single 1",
               "transposes the probabilities");
    EXPECT_WHY(SDPA(.output_score = true), "matmul 3, single 1, single 1", "it is a graph output");
    EXPECT_WHY(SDPA(.output_prob = true), "matmul 3, single 1, single 1",
               "its input is a graph output");
    EXPECT_WHY(SDPA(.wide_v = true), "matmul 3, single 1, single 1",
               "batch dims that the scores lack");
    EXPECT_WHY(SDPA(.k_group = "2x4x2x32", .shared_k = true), "single 1, single 1, sdpa 5",
               "its result has other uses");
#undef SDPA
}

/* Groups that a reshape tears apart: refused when matched, not when compiled. */
static void test_sdpa_torn_groups(sinter_engine_t *engine)
{
    mini_t m;
    lt_t k;
    for (int ragged = 0; ragged < 2; ragged++) {
        mini_begin(&m, engine);
        const lt_t codes[2] = {IN(&m, s4, "2x4x48x16"), IN(&m, f16, "2x4x3x16")};
        const attr_t groups[] = {STR(qtype, "per_group"), S64S(group_shape, 1, 1, 20, 1)};
        k = mini_op(&m, sinter_op_dynamic_dequantize, sinter_f16, codes, 2, groups, 1 + ragged);
        /* 48 = 3 groups of 16, or of 20, 20 and 8, folded as 4 rows of 12: a group would end
         * inside a row. */
        k = OPA(&m, static_reshape, f16,
                ATTRS(S64S(shape, 2, 4, 4, 12, 16), BOOL(special_zero, false)), k);
        const lt_t score = OP(&m, matmul, f32, IN(&m, f16, "2x4x1x5x12"), k);
        const lt_t p = OPA(&m, softmax, f16, ATTRS(S64S(axis, -1)), score);
        OP(&m, matmul, f16, p, IN(&m, f16, "2x4x4x16x8"));
        EXPECT_WHY(&m, "matmul 3, single 1, single 1",
                   "groups of op 0 (DynamicDequantize) do not fit op 1 (StaticReshape)");
    }
    for (int split = 0; split < 2; split++) { /* the number of rows, or of sequences of two rows */
        mini_begin(&m, engine);
        k = OPA(&m, dynamic_dequantize, f16, ATTRS(STR(qtype, "per_group")), IN(&m, s4, "4x?x16"),
                IN(&m, f16, "4x?x2"));
        k = split ? OPA(&m, static_reshape, f16,
                        ATTRS(S64S(shape, 4, 2, -1, 16), BOOL(special_zero, false)), k)
                  : OPA(&m, static_reshape, f16,
                        ATTRS(S64S(shape, 4, -1, 2, 16), BOOL(special_zero, false)), k);
        const lt_t scores = OPA(&m, matmul, f32, ATTRS(BOOL(transpose_b, true)),
                                IN(&m, f16, split ? "4x2x5x16" : "4x?x5x16"), k);
        OP(&m, matmul, f16, OPA(&m, softmax, f16, ATTRS(S64S(axis, -1)), scores),
           IN(&m, f16, split ? "4x2x?x8" : "4x?x2x8"));
        EXPECT(&m, "sdpa 5");
    }
}

static void test_sdpa_cycle(sinter_engine_t *engine)
{
    mini_t m;
    mini_begin(&m, engine);
    /* V is made from the scores' own stats: fusing would need its result before it runs. */
    const lt_t score = OP(&m, matmul, f32, IN(&m, f32, "2x5x16"), IN(&m, f32, "2x16x5"));
    const lt_t outs[2] = {mini_tensor(&m, sinter_f32, "*"), mini_tensor(&m, sinter_f32, "*")};
    const attr_t axis[] = {S64S(axis, -1)};
    mini_add(&m, sinter_op_softmax, &score, 1, outs, 2, axis, 1);
    OP(&m, matmul, f32, outs[0], OP(&m, multiply, f32, IN(&m, f32, "2x5x8"), outs[1]));
    EXPECT_WHY(&m, "single 1, single 1, single 1, single 1", "would close a cycle");
}

static void test_sdpa_spellings(sinter_engine_t *engine)
{
    mini_t m;
    /* Implicit causal mask, bottom-right: index ops over the scores, offsets as scalars; dynamic
     * T. */
    mini_begin(&m, engine);
    lt_t s = OPA(&m, matmul, f32, ATTRS(BOOL(transpose_b, true)),
                 OP(&m, multiply, f16, IN(&m, f16, "1x8x5x16"), IN(&m, f16, "")),
                 IN(&m, f16, "1x8x?x16"));
    const lt_t row =
        OP(&m, subtract, s32,
           OP(&m, add, s32, OPA(&m, gen_index, s32, ATTRS(S64S(axis, -2)), s), IN(&m, s32, "")),
           IN(&m, s32, ""));
    const lt_t keep =
        OP(&m, greater_equal, boolean, row, OPA(&m, gen_index, s32, ATTRS(S64S(axis, -1)), s));
    s = OP(&m, select, f32, keep, s, IN(&m, f32, ""));
    s = OPA(&m, softmax, f32, ATTRS(S64S(axis, -1)), s);
    lt_t out = OP(&m, matmul, f16, OP(&m, type_cast, f16, s), IN(&m, f16, "1x8x?x16"));
    out = OPA(&m, static_transpose, f16, ATTRS(S64S(order, 0, 2, 1, 3)), out);
    OPA(&m, quantize, u8, ATTRS(F32S(scales, 0.5f), S64S(zps, 3)), OP(&m, type_cast, f32, out));
    EXPECT(&m, "sdpa 14");
    /* A quantised mask is dequantised on the fly; a mask from index ops over another tensor of
     * the scores' dims. */
    mini_begin(&m, engine);
    s = OP(&m, matmul, f32, IN(&m, f32, "2x5x16"), IN(&m, f32, "2x16x9"));
    s = OP(&m, add, f32, s,
           OPA(&m, dequantize, f32, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)), IN(&m, s8, "5x9")));
    lt_t other = IN(&m, f32, "5x9");
    s = OP(&m, select, f32,
           OP(&m, greater_equal, boolean, OPA(&m, gen_index, s32, ATTRS(S64S(axis, 0)), other),
              OPA(&m, gen_index, s32, ATTRS(S64S(axis, 1)), other)),
           s, IN(&m, f32, "1"));
    OP(&m, matmul, f32, OPA(&m, softmax, f32, ATTRS(S64S(axis, 2)), s), IN(&m, f32, "2x9x8"));
    EXPECT(&m, "sdpa 9");
    /* An index along a dim of 1 is no index along the scores' dim: it stays outside. */
    mini_begin(&m, engine);
    s = OP(&m, matmul, f32, IN(&m, f32, "2x5x16"), IN(&m, f32, "2x16x9"));
    s = OP(
        &m, add, f32, s,
        OP(&m, type_cast, f32, OPA(&m, gen_index, s32, ATTRS(S64S(axis, 0)), IN(&m, f32, "1x9"))));
    OP(&m, matmul, f32, OPA(&m, softmax, f32, ATTRS(S64S(axis, 2)), s), IN(&m, f32, "2x9x8"));
    EXPECT(&m, "single 1, sdpa 5");
    /* Probabilities through u8. */
    mini_begin(&m, engine);
    s = OPA(&m, softmax, f32, ATTRS(S64S(axis, -1)),
            OP(&m, matmul, f32, IN(&m, f32, "2x5x16"), IN(&m, f32, "2x16x9")));
    s = OPA(&m, quantize, u8, ATTRS(F32S(scales, 0.25f), S64S(zps, 0)), s);
    s = OPA(&m, dequantize, f32, ATTRS(F32S(scales, 0.25f), S64S(zps, 0)), s);
    OP(&m, matmul, f32, s,
       OPA(&m, dequantize, f32, ATTRS(F32S(scales, 0.25f)), IN(&m, f8_e4m3, "2x9x8")));
    EXPECT(&m, "sdpa 6");
}

/* What differs between caches in pages. */
typedef struct paged {
    bool codes, apart; /* with scales; whose Gather of V has a table of its own */
    bool plain_v, unread,
        joined;   /* V comes from no blocks; others read the Gather of K; K has heads
                                     and tokens in one dim */
    bool grouped; /* a dim for the queries that share K, behind the dequantisation */
} paged_t;

static lt_t in_pages(mini_t *m, sinter_data_type_t type, const char *blocks, int64_t elements,
                     lt_t table, const paged_t *c)
{
    lt_t in[] = {mini_tensor(m, type, blocks), table};
    lt_t x = mini_op(m, sinter_op_gather, type, in, 2, NULL, 0);
    if (c->unread) {
        mini_output(m, x);
    }
    if (!c->joined) {
        x = mini_op(m, sinter_op_static_transpose, type, &x, 1, ATTRS(S64S(order, 0, 2, 1, 3, 4)));
    }
    return mini_op(m, sinter_op_static_reshape, type, &x, 1,
                   ATTRS(S64S(shape, 0, 2, -1, elements), BOOL(special_zero, true)));
}

static lt_t paged_cache(mini_t *m, lt_t table, const paged_t *c)
{
    lt_t x = in_pages(m, c->codes ? sinter_s8 : sinter_f16, "?x2x4x16", 16, table, c);
    if (c->codes) {
        const lt_t of = c->apart ? mini_tensor(m, sinter_s32, "?x?") : table;
        x = OPA(m, dynamic_dequantize, f16,
                ATTRS(STR(qtype, "per_group"), S64S(group_shape, 1, 1, 1, 8)), x,
                in_pages(m, sinter_f16, "?x2x4x2", 2, of, &(paged_t){0}));
    }
    return c->grouped ? OPA(m, static_reshape, f16,
                            ATTRS(S64S(shape, 0, 0, 1, -1, 16), BOOL(special_zero, true)), x)
                      : x;
}

static mini_t *paged_graph(mini_t *m, sinter_engine_t *engine, const paged_t *c)
{
    mini_begin(m, engine);
    const paged_t of_v = {.codes = c->codes, .apart = c->apart, .grouped = c->grouped};
    const lt_t table = mini_tensor(m, sinter_s32, "?x?"),
               k = paged_cache(m, table,
                               &(paged_t){.codes = c->codes,
                                          .unread = c->unread,
                                          .joined = c->joined,
                                          .grouped = c->grouped}),
               v = c->plain_v ? mini_tensor(m, sinter_f16, "?x2x?x16")
                              : paged_cache(m, table, &of_v);
    lt_t s = OPA(m, matmul, f32, ATTRS(BOOL(transpose_b, true)),
                 mini_tensor(m, sinter_f16, c->grouped ? "?x2x3x5x16" : "?x2x5x16"), k);
    s = OPA(m, softmax, f16, ATTRS(S64S(axis, -1)), s);
    OP(m, matmul, f16, s, v);
    return m;
}

static void test_sdpa_paged(sinter_engine_t *engine)
{
    mini_t m;
#define PAGED(...) paged_graph(&m, engine, &(paged_t){__VA_ARGS__})
    EXPECT(PAGED(.codes = false), "sdpa-paged 9");
    EXPECT(PAGED(.codes = true), "sdpa-paged 17");
    EXPECT(PAGED(.codes = true, .grouped = true), "sdpa-paged 19");
    EXPECT_WHY(PAGED(.codes = true, .apart = true),
               "single 1, single 1, reorder 2, single 1, single 1, reorder 2, sdpa 9",
               "refused sdpa-paged at op 14 (MatMul): tensor 18 has a table or blocks of its own");
    EXPECT_WHY(PAGED(.plain_v = true), "single 1, sdpa 5", "tensor 5 is not taken from blocks");
    EXPECT_WHY(PAGED(.unread = true), "single 1, single 1, sdpa 7",
               "op 0 (Gather) is read by others, too, or depends on this");
    EXPECT_WHY(PAGED(.joined = true), "single 1, single 1, sdpa 6",
               "a view behind the Gather does more than joining the dim of blocks and the dim of "
               "their tokens");
#undef PAGED
}

static lt_t mqa(mini_t *m, bool transposed)
{
    lt_t s = OP(m, matmul, f32, IN(m, f32, "2x6x8"), IN(m, f32, "2x8x15"));
    s = OPA(m, static_reshape, f32, ATTRS(S64S(shape, 2, 6, 3, 5), BOOL(special_zero, false)), s);
    s = OPA(m, static_transpose, f32, ATTRS(S64S(order, 0, 2, 1, 3)), s);
    s = OPA(m, softmax, f32, ATTRS(S64S(axis, 3)), OP(m, add, f32, s, IN(m, f32, "2x3x6x5")));
    s = OPA(m, static_transpose, f32, ATTRS(S64S(order, 0, 2, 1, 3)), s);
    s = OPA(m, static_reshape, f32, ATTRS(S64S(shape, 2, 6, 15), BOOL(special_zero, false)), s);
    return transposed ? OPA(m, matmul, f32, ATTRS(BOOL(transpose_b, true)), s, IN(m, f32, "2x8x15"))
                      : OP(m, matmul, f32, IN(m, f32, "2x8x6"), s);
}

static void test_sdpa_mqa(sinter_engine_t *engine)
{
    mini_t m;
    mini_begin(&m, engine);
    mqa(&m, false);
    EXPECT(&m, "sdpa-mqa 8");
    mini_begin(&m, engine);
    mqa(&m, true); /* the probabilities on the left */
    EXPECT_WHY(&m, "matmul 4, softmax 3, single 1", "arrives at another port");
}

/* ---- attention with transposed scores or probabilities --------------------------------------- */

/* What differs from MatMul(V, transpose(SoftMax(MatMul(Q, K)))). */
typedef struct turned {
    bool keys_queries; /* scores as [keys, queries] */
    int64_t axis;      /* of the softmax; 0: that of the keys */
    bool left;         /* P on the left of the second matmul */
    bool bias_add, stats, twice, quantise;
} turned_t;

static void turned_graph(mini_t *m, turned_t o)
{
    const lt_t q = IN(m, f32, "2x3x5x16"), k = IN(m, f32, "2x3x7x16"), v = IN(m, f32, "2x3x7x8");
    lt_t s = OPA(m, matmul, f32, ATTRS(BOOL(transpose_b, true)), o.keys_queries ? k : q,
                 o.keys_queries ? q : k);
    s = OP(m, multiply, f32, s, IN(m, f32, ""));
    s = o.bias_add ? OP(m, bias_add, f32, s, IN(m, f32, o.keys_queries ? "5" : "7")) : s;
    const lt_t outs[2] = {mini_tensor(m, sinter_f32, "*"), mini_tensor(m, sinter_f32, "*")};
    const attr_t axis[] = {S64S(axis, o.axis != 0 ? o.axis : o.keys_queries ? 2 : 3)};
    mini_add(m, sinter_op_softmax, &s, 1, outs, o.stats ? 2 : 1, axis, 1);
    lt_t p = outs[0];
    for (int i = 0; i < (o.twice ? 3 : !o.keys_queries); i++) {
        p = OPA(m, static_transpose, f32, ATTRS(S64S(order, 0, 1, 3, 2)), p);
    }
    if (o.quantise) {
        const float scales[] = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f};
        const int64_t zps[] = {0, 0, 0, 0, 0, 0, 0}, two[] = {2};
        const attr_t attrs[] = {STR(qtype, "per_channel"),
                                {.id = sinter_op_attr_axis, .n = 1, .s64 = two},
                                {.id = sinter_op_attr_scales, .n = 7, .f32 = scales},
                                {.id = sinter_op_attr_zps, .n = 7, .s64 = zps}};
        p = mini_op(m, sinter_op_quantize, sinter_u8, &p, 1, attrs, 4);
        p = mini_op(m, sinter_op_dequantize, sinter_f32, &p, 1, attrs, 4);
    }
    if (o.left) {
        OPA(m, matmul, f32, ATTRS(BOOL(transpose_a, true)), p, v);
    } else {
        OPA(m, matmul, f32, ATTRS(BOOL(transpose_a, true)), v, p);
    }
}

static void test_sdpa_transposed(sinter_engine_t *engine)
{
    mini_t m;
#define TURNED(...) (mini_begin(&m, engine), turned_graph(&m, (turned_t){__VA_ARGS__}), &m)
    EXPECT(TURNED(.left = false), "sdpa-transposed 5");
    EXPECT(TURNED(.keys_queries = true), "sdpa-transposed 4");
    EXPECT(TURNED(.keys_queries = true, .left = true), "sdpa-transposed 4");
    EXPECT(TURNED(.left = true), "sdpa-transposed 5");
    EXPECT(TURNED(.twice = true), "sdpa-transposed 7");
    /* The softmax over the axis that the second matmul keeps. */
    EXPECT_WHY(TURNED(.axis = 2), "matmul 2, softmax 2, single 1",
               "op 2 (SoftMax) is not over the axis that op 4 (MatMul) reduces");
    EXPECT_WHY(TURNED(.keys_queries = true, .axis = 3), "matmul 2, single 1, single 1",
               "is not over the axis that op 3 (MatMul) reduces");
    EXPECT_WHY(TURNED(.keys_queries = true, .axis = 1), "matmul 2, single 1, single 1",
               "is not over the axis that op 3 (MatMul) reduces");
    EXPECT_WHY(TURNED(.bias_add = true), "matmul 3, softmax 2, single 1",
               "op 2 (BiasAdd) works on channels");
    EXPECT_WHY(TURNED(.stats = true), "matmul 2, softmax 2, single 1",
               "op 2 (SoftMax) has statistics");
    EXPECT_WHY(TURNED(.quantise = true), "matmul 2, softmax 3, matmul 2",
               "op 4 (Quantize) has more than one scale");
#undef TURNED
    mini_begin(&m, engine); /* heads and queries change places */
    lt_t s = OPA(&m, matmul, f32, ATTRS(BOOL(transpose_b, true)), IN(&m, f32, "2x3x5x16"),
                 IN(&m, f32, "2x3x7x16"));
    s = OPA(&m, softmax, f32, ATTRS(S64S(axis, -1)),
            OPA(&m, static_transpose, f32, ATTRS(S64S(order, 0, 2, 1, 3)), s));
    OP(&m, matmul, f32, s, IN(&m, f32, "2x5x7x8"));
    EXPECT_WHY(&m, "matmul 2, single 1, single 1",
               "op 1 (StaticTranspose) moves more than the last two dims of the scores");
}

/* ---- indices that nobody reads --------------------------------------------------------------- */

/* An index over the scores at every place; kind: what reads them instead. */
static void idle_graph(mini_t *m, int place, sinter_op_kind_t kind)
{
    const attr_t axis[] = {S64S(axis, 3)};
    lt_t values[5];
    values[0] = OPA(m, matmul, f32, ATTRS(BOOL(transpose_b, true)), IN(m, f32, "2x3x5x16"),
                    IN(m, f32, "2x3x7x16"));
    values[1] = OP(m, multiply, f32, values[0], IN(m, f32, ""));
    values[2] = OP(m, add, f32, values[1], IN(m, f32, "2x1x1x7"));
    values[3] = OPA(m, softmax, f32, ATTRS(S64S(axis, -1)), values[2]);
    values[4] = OP(m, matmul, f32, values[3], IN(m, f32, "2x3x7x8"));
    const lt_t out = mini_tensor(m, kind == sinter_op_gen_index ? sinter_s32 : sinter_f32, "*");
    mini_add(m, kind, &values[place], 1, &out, 1, axis, kind == sinter_op_gen_index);
}

static void test_idle(sinter_engine_t *engine)
{
    mini_t m;
    for (int place = 0; place < 5; place++) {
        mini_begin(&m, engine);
        idle_graph(&m, place, sinter_op_gen_index);
        EXPECT_WHY(&m, "sdpa 6", "idle         op 5 (GenIndex)");
    }
    /* An op that needs the data of the scores prevents the fusion. */
    mini_begin(&m, engine);
    idle_graph(&m, 2, sinter_op_abs);
    EXPECT_WHY(&m, "matmul 3, single 1, single 1, single 1", "no softmax below op 2 (Add)");
    /* An index over an input is a partition of its own. */
    mini_begin(&m, engine);
    const lt_t x = IN(&m, f32, "4x7"), y = OP(&m, matmul, f32, x, IN(&m, f32, "7x7"));
    OPA(&m, gen_index, s32, ATTRS(S64S(axis, 0)), x);
    OPA(&m, gen_index, s32, ATTRS(S64S(axis, 0)), OP(&m, relu, f32, y));
    OPA(&m, gen_index, s32, ATTRS(S64S(axis, 1)), y);
    EXPECT(&m, "matmul 4, single 1");
}

/* ---- gated MLP ------------------------------------------------------------------------------- */

typedef struct mlp {
    bool add_join, other_input, no_down, output_hidden, up_first, cast;
} mlp_t;

static lt_t mlp_graph(mini_t *m, mlp_t o)
{
    const lt_t x = IN(m, f32, "3x24");
    const attr_t deq[] = {STR(qtype, "per_group")};
    const lt_t codes[2] = {IN(m, u4, "24x40"), IN(m, f16, "3x40")};
    const lt_t xs[2] = {x, o.other_input ? IN(m, f32, "3x24") : x};
    lt_t up = o.up_first ? OP(m, matmul, f32, xs[1], IN(m, f32, "24x40")) : x;
    const lt_t gate = OP(m, matmul, f32, xs[0],
                         mini_op(m, sinter_op_dynamic_dequantize, sinter_f32, codes, 2, deq, 1));
    if (!o.up_first) {
        up = OP(m, matmul, f32, xs[1], IN(m, f32, "24x40"));
    }
    const lt_t act = OP(m, multiply, f32, gate, OP(m, sigmoid, f32, gate));
    lt_t h = o.add_join ? OP(m, add, f32, act, up) : OP(m, multiply, f32, up, act);
    if (o.output_hidden) {
        mini_output(m, h);
    }
    if (o.cast) {
        h = OPA(m, dequantize, f32, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)),
                OPA(m, quantize, s8, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)), h));
    }
    return o.no_down ? h : OP(m, matmul, f32, h, IN(m, f32, "40x24"));
}

static void test_mlp(sinter_engine_t *engine)
{
    mini_t m;
#define MLP(...) (mini_begin(&m, engine), mlp_graph(&m, (mlp_t){__VA_ARGS__}), &m)
    EXPECT(MLP(.cast = false), "gated-mlp 7");
    EXPECT(MLP(.up_first = true), "gated-mlp 7");
    EXPECT(MLP(.cast = true), "gated-mlp 9");
    EXPECT(MLP(.no_down = true), "gated-mlp-up 6");
    EXPECT_WHY(MLP(.output_hidden = true), "gated-mlp-up 6, single 1", "is a graph output");
    EXPECT_WHY(MLP(.add_join = true), "projections 6, single 1",
               "op 5 (Add) joins the two products, not a Multiply");
    EXPECT_WHY(MLP(.other_input = true), "single 1, matmul 5, single 1",
               "project different tensors");
#undef MLP
    /* One dequantised activation for both projections: it is inside, because all its users are. */
    mini_begin(&m, engine);
    const lt_t x =
        OPA(&m, dequantize, f32, ATTRS(F32S(scales, 0.5f), S64S(zps, 1)), IN(&m, u8, "3x24"));
    const lt_t gate = OP(&m, relu, f32, OP(&m, matmul, f32, x, IN(&m, f32, "24x40")));
    OP(&m, matmul, f32, OP(&m, multiply, f32, gate, OP(&m, matmul, f32, x, IN(&m, f32, "24x40"))),
       IN(&m, f32, "40x24"));
    EXPECT(&m, "gated-mlp 6");
}

/* ---- matmul ---------------------------------------------------------------------------------- */

static void test_matmul(sinter_engine_t *engine)
{
    mini_t m;
    lt_t y;
    /* Everything at once: multiplies and a cast before, swish (a DAG), a dequantised residual, a
     * cast, a quantise and a view behind. */
    mini_begin(&m, engine);
    y = OP(&m, type_cast, bf16,
           OP(&m, multiply, f32, OP(&m, multiply, f32, IN(&m, bf16, "4x7x9"), IN(&m, bf16, "7x9")),
              IN(&m, f32, "")));
    const lt_t w =
        OPA(&m, dequantize, f32, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)), IN(&m, s8, "6x9"));
    y = OPA(&m, matmul, f32, ATTRS(BOOL(transpose_b, true)), y, OP(&m, type_cast, bf16, w));
    y = OP(&m, bias_add, f32, y, IN(&m, f32, "6"));
    y = OP(&m, multiply, f32, y, OP(&m, sigmoid, f32, y));
    y = OP(&m, add, f32, y,
           OPA(&m, dequantize, f32, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)), IN(&m, s8, "4x7x6")));
    y = OPA(&m, quantize, s8, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)), y);
    OPA(&m, static_transpose, s8, ATTRS(S64S(order, 1, 0, 2)), y);
    EXPECT(&m, "matmul 13");
    /* The dequantise behind a quantise is the next op's. */
    mini_begin(&m, engine);
    y = OPA(&m, quantize, s8, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)),
            OP(&m, relu, f32, OP(&m, matmul, f32, IN(&m, f32, "7x9"), IN(&m, f32, "9x6"))));
    OP(&m, matmul, f32, OPA(&m, dequantize, f32, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)), y),
       IN(&m, f32, "6x4"));
    EXPECT(&m, "matmul 3, matmul 2");
    /* A graph output inside stays inside and is written. */
    mini_begin(&m, engine);
    y = OP(&m, relu, f32, OP(&m, matmul, f32, IN(&m, f32, "7x9"), IN(&m, f32, "9x6")));
    mini_output(&m, y);
    OP(&m, exp, f32, y);
    EXPECT(&m, "matmul 3");
    /* A value used outside ends the region. */
    mini_begin(&m, engine);
    y = OP(&m, relu, f32, OP(&m, matmul, f32, IN(&m, f32, "7x9"), IN(&m, f32, "9x6")));
    OP(&m, tanh, f32, OP(&m, exp, f32, y));
    OPA(&m, softmax, f32, ATTRS(S64S(axis, 1)), y);
    EXPECT_WHY(&m, "matmul 2, eltwise 2, single 1", "uses it too");
    /* A residual that broadcasts the product is no post-op. */
    mini_begin(&m, engine);
    OP(&m, add, f32, OP(&m, matmul, f32, IN(&m, f32, "7x9"), IN(&m, f32, "9x6")),
       IN(&m, f32, "3x7x6"));
    EXPECT_WHY(&m, "single 1, single 1", "broadcasts the region to larger dims");
    /* A residual that needs the product through another op. */
    mini_begin(&m, engine);
    y = OP(&m, exp, f32, OP(&m, matmul, f32, IN(&m, f32, "7x9"), IN(&m, f32, "9x9")));
    OP(&m, add, f32, OP(&m, abs, f32, y),
       OP(&m, matmul, f32, OP(&m, tanh, f32, y), IN(&m, f32, "9x9")));
    EXPECT_WHY(&m, "matmul 4, matmul 2",
               "it also needs something that the region leads to through other ops");
}

/* x through codes with computed scales. */
static lt_t on_the_fly(mini_t *m, lt_t x, bool output)
{
    const lt_t made[2] = {mini_tensor(m, sinter_s8, "*"), mini_tensor(m, sinter_e8m0, "*")};
    const attr_t kind[] = {STR(quantization_kind, "dynamic_mx")},
                 qtype[] = {STR(qtype, "per_group")};
    mini_add(m, sinter_op_dynamic_quantize, &x, 1, made, 2, kind, 1);
    if (output) {
        mini_output(m, made[0]);
    }
    return mini_op(m, sinter_op_dynamic_dequantize, sinter_f32, made, 2, qtype, 1);
}

/* An activation that is quantised for one product belongs to it, unless another product makes
 * it. */
static void test_quantised_activation(sinter_engine_t *engine)
{
    mini_t m;
    lt_t x, y;
    mini_begin(&m, engine);
    OP(&m, matmul, f32, on_the_fly(&m, OP(&m, exp, f32, IN(&m, f32, "7x64")), false),
       IN(&m, f32, "64x6"));
    EXPECT(&m, "matmul 4");
    mini_begin(&m, engine); /* written as well */
    OP(&m, matmul, f32, on_the_fly(&m, IN(&m, f32, "7x64"), true), IN(&m, f32, "64x6"));
    EXPECT(&m, "matmul 3");
    mini_begin(&m, engine); /* for two products */
    x = on_the_fly(&m, IN(&m, f32, "7x64"), false);
    OP(&m, relu, f32, OP(&m, matmul, f32, x, IN(&m, f32, "64x6")));
    OP(&m, relu, f32, OP(&m, matmul, f32, x, IN(&m, f32, "64x5")));
    EXPECT_WHY(&m, "projections 6", "its result has other uses");
    /* Given scales, by attribute. */
    mini_begin(&m, engine);
    x = OPA(&m, quantize, u8, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)), IN(&m, f32, "7x64"));
    OP(&m, matmul, f32, OPA(&m, dequantize, f32, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)), x),
       IN(&m, f32, "64x4"));
    EXPECT(&m, "matmul 3");
    /* The gated MLP leaves the quantisation to the product before it, which cannot quantise a
     * value with other uses. */
    for (int other_use = 0; other_use < 2; other_use++) {
        mini_begin(&m, engine);
        y = OP(&m, type_cast, f32,
               OP(&m, matmul, bf16, IN(&m, bf16, "3x32"), IN(&m, bf16, "32x64")));
        x = on_the_fly(&m, y, false);
        if (other_use) {
            x = OP(&m, matmul, f32, x, IN(&m, f32, "64x64"));
            OPA(&m, softmax, f32, ATTRS(S64S(axis, 1)), y);
        } else {
            const lt_t gate = OP(&m, relu, f32, OP(&m, matmul, f32, x, IN(&m, f32, "64x40")));
            OP(&m, matmul, f32,
               OP(&m, multiply, f32, gate, OP(&m, matmul, f32, x, IN(&m, f32, "64x40"))),
               IN(&m, f32, "40x24"));
        }
        EXPECT(&m, other_use ? "matmul 2, matmul 3, single 1" : "matmul 3, gated-mlp 6");
    }
}

typedef struct sums {
    bool add, swapped, as_many, plain, first;
} sums_t;

static void sums_graph(mini_t *m, sums_t o)
{
    const attr_t deq[] = {STR(qtype, "per_group")};
    const char *groups = o.as_many ? "64x6" : "4x6";
    const lt_t scales = IN(m, f16, "2x6"), codes[2] = {IN(m, s8, "64x6"), scales},
               zps[2] = {IN(m, s8, groups), scales};
    const lt_t z = o.plain ? IN(m, f32, groups)
                           : mini_op(m, sinter_op_dynamic_dequantize, sinter_f32, zps, 2, deq, 1);
    const lt_t sums = OP(m, type_cast, f32, o.as_many ? IN(m, s32, "7x64") : IN(m, s32, "7x4")),
               w_in = IN(m, f32, "7x64");
    lt_t first = o.first ? OP(m, matmul, f32, sums, z) : z, y;
    const lt_t product = OP(m, matmul, f32, w_in,
                            mini_op(m, sinter_op_dynamic_dequantize, sinter_f32, codes, 2, deq, 1));
    first = o.first ? first : OP(m, matmul, f32, sums, z);
    first = OP(m, multiply, f32, first, IN(m, f32, "7x1"));
    y = o.add       ? OP(m, add, f32, product, first)
        : o.swapped ? OP(m, subtract, f32, first, product)
                    : OP(m, subtract, f32, product, first);
    OP(m, relu, f32, y);
}

static void test_sums(sinter_engine_t *engine)
{
    mini_t m;
#define SUMS(...) (mini_begin(&m, engine), sums_graph(&m, (sums_t){__VA_ARGS__}), &m)
    EXPECT(SUMS(.add = false), "matmul-sums 8");
    EXPECT(SUMS(.first = true), "matmul-sums 8");
    EXPECT_WHY(SUMS(.add = true), "matmul 3, matmul 5",
               "(Add) does not subtract the product of sums");
    EXPECT_WHY(SUMS(.swapped = true), "matmul 3, matmul 5",
               "(Subtract) does not subtract the product of sums");
    EXPECT_WHY(SUMS(.as_many = true), "matmul 3, matmul 5",
               "does not reduce one element for each group");
    EXPECT_WHY(SUMS(.plain = true), "matmul 2, matmul 5", "has no dequantised zero points");
#undef SUMS
}

/* ---- partitions that become one -------------------------------------------------------------- */

static lt_t rms(mini_t *m, lt_t x)
{
    return OPA(m, rms_norm, f32, ATTRS(BOOL(use_affine, false)), x);
}

/* The sum in front of a norm is stored for later and computed in the norm's pass; what follows the
 * norm belongs to it too. */
static void test_norms(sinter_engine_t *engine)
{
    mini_t m;
    lt_t sum;
    mini_begin(&m, engine);
    sum = OP(&m, add, f32, IN(&m, f32, "4x8"), IN(&m, f32, "4x8"));
    OPA(&m, quantize, s8, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)),
        OP(&m, multiply, f32, rms(&m, sum), IN(&m, f32, "8")));
    OPA(&m, softmax, f32, ATTRS(S64S(axis, 1)), sum);
    EXPECT(&m, "norm 4, single 1");
    mini_begin(&m, engine); /* the norm of a branch, and that of the sum */
    sum = OP(&m, add, f32, rms(&m, IN(&m, f32, "4x8")), IN(&m, f32, "4x8"));
    OP(&m, relu, f32, rms(&m, sum));
    EXPECT(&m, "norm 4");
    mini_begin(&m, engine); /* something else lies between the sum and the norm */
    sum = OP(&m, add, f32, IN(&m, f32, "4x8"), IN(&m, f32, "4x8"));
    rms(&m, OPA(&m, softmax, f32, ATTRS(S64S(axis, 1)), sum));
    EXPECT(&m, "single 1, single 1, single 1");
    mini_begin(&m, engine); /* the other operand of a later op depends on the sum too */
    sum = OP(&m, add, f32, IN(&m, f32, "4x8"), IN(&m, f32, "4x8"));
    OP(&m, multiply, f32, rms(&m, sum), OPA(&m, softmax, f32, ATTRS(S64S(axis, 1)), sum));
    EXPECT_WHY(&m, "single 1, single 1, norm 2", "would close a cycle");
    mini_begin(&m, engine);
    OP(&m, exp, f32,
       OPA(&m, reduce_mean, f32, ATTRS(S64S(axes, 1)), OP(&m, abs, f32, IN(&m, f32, "4x8"))));
    EXPECT(&m, "reduction 3");
    mini_begin(&m, engine); /* others read what is reduced */
    sum = OP(&m, abs, f32, IN(&m, f32, "4x8"));
    OPA(&m, reduce_mean, f32, ATTRS(S64S(axes, 1)), sum);
    OPA(&m, softmax, f32, ATTRS(S64S(axis, 1)), sum);
    EXPECT(&m, "single 1, single 1, single 1");
}

/* Products of one activation, and the norm that makes it. */
static void test_projections(sinter_engine_t *engine)
{
    mini_t m;
    lt_t x, y;
    for (int others = 0; others < 2; others++) {
        mini_begin(&m, engine);
        x = rms(&m, IN(&m, f32, "4x8"));
        OP(&m, matmul, f32, x, IN(&m, f32, "8x6"));
        OP(&m, matmul, f32, x, IN(&m, f32, "8x5"), IN(&m, f32, "5"));
        OP(&m, relu, f32, OP(&m, matmul, f32, x, IN(&m, f32, "8x4")));
        if (others) {
            OPA(&m, softmax, f32, ATTRS(S64S(axis, 1)), x);
            EXPECT_WHY(&m, "single 1, projections 4, single 1", "others read its result too");
        } else {
            EXPECT(&m, "projections 5");
        }
    }
    mini_begin(&m, engine); /* others read the sum in front of the norm, as a residual */
    x = OP(&m, add, f32, IN(&m, f32, "4x8"), IN(&m, f32, "4x8"));
    y = rms(&m, x);
    OP(&m, matmul, f32, y, IN(&m, f32, "8x6"));
    OP(&m, matmul, f32, y, IN(&m, f32, "8x4"));
    OPA(&m, softmax, f32, ATTRS(S64S(axis, 1)), x);
    EXPECT(&m, "projections 4, single 1");
    mini_begin(&m, engine); /* a gated MLP keeps its name */
    x = rms(&m, IN(&m, f32, "4x8"));
    y = OP(&m, multiply, f32, OP(&m, sigmoid, f32, OP(&m, matmul, f32, x, IN(&m, f32, "8x6"))),
           OP(&m, matmul, f32, x, IN(&m, f32, "8x6")));
    OP(&m, matmul, f32, y, IN(&m, f32, "6x8"));
    EXPECT(&m, "gated-mlp 6");
    mini_begin(&m, engine); /* one product needs another one by way of a softmax */
    x = IN(&m, f32, "4x8");
    y = OPA(&m, softmax, f32, ATTRS(S64S(axis, 1)), OP(&m, matmul, f32, x, IN(&m, f32, "8x6")));
    OP(&m, matmul, f32, x,
       OPA(&m, matmul, f32, ATTRS(BOOL(transpose_a, true)), IN(&m, f32, "4x8"), y));
    EXPECT_WHY(&m, "single 1, single 1, single 1, single 1", "would close a cycle");
    mini_begin(&m, engine); /* one is the weight of the other */
    x = IN(&m, f32, "8x8");
    OP(&m, matmul, f32, IN(&m, f32, "8x8"), x);
    OP(&m, matmul, f32, x, IN(&m, f32, "8x8"));
    EXPECT(&m, "single 1, single 1");
}

typedef struct append {
    bool two_slots, reads_codes, turns, norms, transforms;
} append_t;

/* x -> RotaryEmbedding -> DynamicQuantize -> two ScatterRows, as K and V of a cache. */
static void append_graph(mini_t *m, append_t o)
{
    const lt_t slots = IN(m, s32, "3"), cos = IN(m, f32, "1x3x16"), sin = IN(m, f32, "1x3x16");
    for (int i = 0; i < 2; i++) {
        lt_t x = IN(m, f32, "1x2x3x32");
        x = o.norms && i == 0 ? rms(m, x) : x;
        if (o.turns || i == 0) {
            x = OP(m, rotary_embedding, f32, x, cos, sin);
        }
        x = o.transforms ? OP(m, hadamard_transform, f32, x) : x;
        const lt_t into = i == 1 && o.two_slots ? IN(m, s32, "3") : slots,
                   codes = mini_tensor(m, sinter_s8, "*"), scales = mini_tensor(m, sinter_f32, "*"),
                   made[2] = {codes, scales};
        const attr_t how[] = {STR(quantization_kind, "dynamic_symmetric"), STR(qtype, "per_group"),
                              S64S(group_shape, 1, 1, 1, 32)};
        mini_add(m, sinter_op_dynamic_quantize, &x, 1, made, 2, how, 3);
        OPA(m, scatter_rows, s8, ATTRS(S64S(axis, 2)), IN(m, s8, "1x2x9x32"), into, codes);
        OPA(m, scatter_rows, f32, ATTRS(S64S(axis, 2)), IN(m, f32, "1x2x9x1"), into, scales);
        if (o.reads_codes && i == 0) {
            OP(m, type_cast, f32, codes);
        }
    }
}

static void test_appends(sinter_engine_t *engine)
{
    mini_t m;
#define APPEND(...) (mini_begin(&m, engine), append_graph(&m, (append_t){__VA_ARGS__}), &m)
    EXPECT(APPEND(.turns = false), "append 7");
    EXPECT(APPEND(.turns = true, .norms = true), "append 9");
    EXPECT(APPEND(.transforms = true), "append 9");
    EXPECT(APPEND(.two_slots = true), "append 4, append 3");
    EXPECT_WHY(APPEND(.reads_codes = true), "rotary 2, append 5, single 1",
               "others read its result too");
#undef APPEND
}

/* One after the other, the layers of a model write codes, scales and offsets of a cache at the same
 * slots: those of one layer are one partition, however many there are. The product before makes the
 * codes. */
static void test_appends_of_layers(sinter_engine_t *engine)
{
    enum { LAYERS = 24 };
    static char want[LAYERS * 24] = "append 4";
    mini_t m;
    mini_begin(&m, engine);
    const lt_t slots = IN(&m, s32, "9");
    lt_t x = IN(&m, f32, "1x2x9x32");
    for (int i = 0; i < LAYERS; i++) {
        const lt_t made[3] = {mini_tensor(&m, sinter_u4, "*"), mini_tensor(&m, sinter_f32, "*"),
                              mini_tensor(&m, sinter_f32, "*")};
        const attr_t how[] = {STR(quantization_kind, "dynamic_asymmetric"), STR(qtype, "per_group"),
                              S64S(group_shape, 1, 1, 1, 32), STR(zps_kind, "offsets")};
        mini_add(&m, sinter_op_dynamic_quantize, &x, 1, made, 3, how, 4);
        OPA(&m, scatter_rows, u4, ATTRS(S64S(axis, 2)), IN(&m, u4, "1x2x9x32"), slots, made[0]);
        OPA(&m, scatter_rows, f32, ATTRS(S64S(axis, 2)), IN(&m, f32, "1x2x9x1"), slots, made[1]);
        const lt_t offsets = OPA(&m, scatter_rows, f32, ATTRS(S64S(axis, 2)),
                                 IN(&m, f32, "1x2x9x1"), slots, made[2]);
        x = OP(&m, matmul, f32, offsets, IN(&m, f32, "1x32"));
        strcat(want, i < LAYERS - 1 ? ", matmul 2, append 3" : ", single 1");
    }
    EXPECT(&m, want);
}

/* Q turned in front of attention, rows of a quantised table, and the choice of experts. */
static void test_turned_queries(sinter_engine_t *engine)
{
    mini_t m;
    lt_t x;
    for (int others = 0; others < 2; others++) {
        mini_begin(&m, engine);
        x = OP(&m, rotary_embedding, f32, IN(&m, f32, "1x2x3x16"), IN(&m, f32, "1x3x8"),
               IN(&m, f32, "1x3x8"));
        const lt_t scores =
            OPA(&m, matmul, f32, ATTRS(BOOL(transpose_b, true)), x, IN(&m, f32, "1x2x9x16"));
        OP(&m, matmul, f32, OPA(&m, softmax, f32, ATTRS(S64S(axis, -1)), scores),
           IN(&m, f32, "1x2x9x16"));
        if (others) {
            OPA(&m, reduce_mean, f32, ATTRS(S64S(axes, 1)), x);
            EXPECT_WHY(&m, "single 1, sdpa 3, single 1", "others read its result too");
        } else {
            EXPECT(&m, "attention 4");
        }
    }
}

static void test_tables_and_routers(sinter_engine_t *engine)
{
    const attr_t groups[] = {STR(qtype, "per_group"), S64S(group_shape, 1, 32)};
    mini_t m;
    mini_begin(&m, engine);
    const lt_t ids = IN(&m, s32, "5"), rows[2] = {OP(&m, gather, s4, IN(&m, s4, "100x64"), ids),
                                                  OP(&m, gather, f16, IN(&m, f16, "100x2"), ids)};
    mini_op(&m, sinter_op_dynamic_dequantize, sinter_f32, rows, 2, groups, 2);
    EXPECT(&m, "embedding 3");
    for (int order = 0; order < 2; order++) {
        mini_begin(&m, engine);
        lt_t x = OP(&m, matmul, f32, IN(&m, f32, "4x8"), IN(&m, f32, "8x16"));
        x = order ? x : OPA(&m, softmax, f32, ATTRS(S64S(axis, -1)), x);
        const attr_t k = S64S(k, 4);
        const lt_t best[2] = {mini_tensor(&m, sinter_f32, "*"), mini_tensor(&m, sinter_s32, "*")};
        mini_add(&m, sinter_op_top_k, &x, 1, best, 2, &k, 1);
        if (order) {
            OPA(&m, softmax, f32, ATTRS(S64S(axis, -1)), best[0]);
        }
        EXPECT(&m, "moe-router 3");
    }
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void test_small(sinter_engine_t *engine)
{
    mini_t m;
    lt_t x, y;
    mini_begin(&m, engine);
    x = OPA(&m, log_softmax, f32, ATTRS(S64S(axis, 1)), IN(&m, f32, "3x5"));
    OPA(&m, quantize, u8, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)),
        OP(&m, multiply, f32, x, IN(&m, f32, "5")));
    EXPECT(&m, "softmax 3");
    mini_begin(&m, engine);
    x = OP(&m, reorder, f32,
           OPA(&m, dequantize, f32, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)), IN(&m, u8, "3x5")));
    OPA(&m, quantize, u8, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)), x);
    EXPECT(&m, "reorder 3");
    mini_begin(&m, engine);
    x = OPA(&m, static_reshape, f32, ATTRS(S64S(shape, 2, 3, 5), BOOL(special_zero, false)),
            IN(&m, f32, "6x5"));
    x = OPA(&m, static_reshape, f32, ATTRS(S64S(shape, 6, 5), BOOL(special_zero, false)),
            OPA(&m, static_transpose, f32, ATTRS(S64S(order, 1, 0, 2)), x));
    mini_output(&m, x);
    OP(&m, reorder, f32, x);
    EXPECT_WHY(&m, "reorder 3, single 1", "its input is a graph output");
    /* A DAG of elementwise ops over two tensors, with a select, a dequantised side and a cast. */
    mini_begin(&m, engine);
    x = OP(&m, exp, f32, IN(&m, f32, "3x5"));
    y = OP(&m, abs, f32, IN(&m, f32, "3x5"));
    x = OP(&m, select, f32, OP(&m, greater_equal, boolean, x, y), x, y);
    x = OP(&m, maximum, f32, x,
           OPA(&m, dequantize, f32, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)), IN(&m, u8, "5")));
    OP(&m, type_cast, bf16, x);
    EXPECT(&m, "eltwise 7");
    /* The scales of a quantise depend on the chain. */
    mini_begin(&m, engine);
    x = OP(&m, exp, f32, IN(&m, f32, "5"));
    OPA(&m, dynamic_quantize, u8, ATTRS(STR(qtype, "per_channel"), S64S(axis, 0)),
        OP(&m, abs, f32, IN(&m, f32, "5")), x);
    EXPECT_WHY(&m, "single 1, eltwise 2", "its scales depend on the region");
}

/* x -> DynamicQuantize that computes scales. */
static void quantise(mini_t *m, lt_t x)
{
    const lt_t outs[2] = {mini_tensor(m, sinter_s8, "*"), mini_tensor(m, sinter_e8m0, "*")};
    const attr_t kind[] = {STR(quantization_kind, "dynamic_mx")};
    mini_add(m, sinter_op_dynamic_quantize, &x, 1, outs, 2, kind, 1);
}

/* A DynamicQuantize that computes its scales ends every pattern. */
static void test_dynamic_quantize(sinter_engine_t *engine)
{
    mini_t m;
    lt_t x, y;
    mini_begin(&m, engine);
    quantise(&m, OP(&m, exp, f32, IN(&m, f32, "4x64")));
    EXPECT(&m, "dynamic-quantize 2");
    mini_begin(&m, engine);
    quantise(&m, IN(&m, f32, "4x64"));
    EXPECT(&m, "single 1");
    /* A DAG and views, all of it used here only. */
    mini_begin(&m, engine);
    x = OP(&m, exp, bf16, IN(&m, bf16, "4x64"));
    x = OP(&m, multiply, bf16, x, OP(&m, sigmoid, bf16, x));
    quantise(&m, OPA(&m, static_reshape, bf16,
                     ATTRS(S64S(shape, 2, 128), BOOL(special_zero, false)), x));
    EXPECT(&m, "dynamic-quantize 5");
    mini_begin(&m, engine);
    x = OP(&m, type_cast, f32, OP(&m, matmul, bf16, IN(&m, bf16, "4x64"), IN(&m, bf16, "64x64")));
    quantise(&m, x);
    EXPECT(&m, "matmul 3");
    /* The product leaves as numbers and as codes. */
    mini_begin(&m, engine);
    x = OP(&m, matmul, f32, IN(&m, bf16, "4x64"), IN(&m, bf16, "64x64"));
    mini_output(&m, x);
    quantise(&m, x);
    EXPECT(&m, "matmul 2");
    /* Two quantisations of one product: the product is a matrix in memory. */
    mini_begin(&m, engine);
    x = OP(&m, matmul, f32, IN(&m, bf16, "4x64"), IN(&m, bf16, "64x64"));
    quantise(&m, x);
    quantise(&m, x);
    EXPECT_WHY(&m, "single 1, single 1, single 1", "its input has other uses");
    /* Codes and scales both go on into the next product, whose activation they are. */
    mini_begin(&m, engine);
    x = OP(&m, matmul, f32, IN(&m, bf16, "4x64"), IN(&m, bf16, "64x64"));
    const lt_t outs[2] = {mini_tensor(&m, sinter_f8_e4m3, "*"), mini_tensor(&m, sinter_e8m0, "*")};
    const attr_t kind[] = {STR(quantization_kind, "dynamic_mx")};
    mini_add(&m, sinter_op_dynamic_quantize, &x, 1, outs, 2, kind, 1);
    y = OPA(&m, dynamic_dequantize, bf16,
            ATTRS(STR(qtype, "per_group"), S64S(axis, 1), S64S(groups, 2)), outs[0], outs[1]);
    OP(&m, matmul, bf16, y, IN(&m, bf16, "64x64"));
    EXPECT(&m, "matmul 2, matmul 2");
}

static void quantise_scaled(mini_t *m, lt_t x, lt_t scale)
{
    const lt_t outs[2] = {mini_tensor(m, sinter_f4_e2m1, "*"), mini_tensor(m, sinter_f8_e4m3, "*")};
    const attr_t kind[] = {STR(quantization_kind, "dynamic_nv")};
    mini_add(m, sinter_op_dynamic_quantize, (lt_t[]){x, scale}, 2, outs, 2, kind, 1);
}

/* Steps read the scale of a tensor before any of them runs. */
static void test_tensor_scale(sinter_engine_t *engine)
{
    mini_t m;
    mini_begin(&m, engine); /* it comes from the product */
    const lt_t x = OP(&m, matmul, f32, IN(&m, f32, "16"), IN(&m, f32, "16x16"));
    quantise_scaled(&m, x, OP(&m, matmul, f32, x, IN(&m, f32, "16x1")));
    EXPECT_WHY(&m, "single 1, single 1, single 1", "its input has other uses");
    mini_begin(&m, engine); /* from an op that makes the data, too */
    lt_t s = OP(&m, exp, f32, IN(&m, f32, "1"));
    quantise_scaled(&m, OP(&m, multiply, f32, IN(&m, f32, "4x64"), s), s);
    EXPECT(&m, "single 1, dynamic-quantize 2");
    mini_begin(&m, engine); /* from one that makes an operand of the product */
    s = OP(&m, exp, f32, IN(&m, f32, "1x1"));
    quantise_scaled(&m, OP(&m, matmul, f32, s, IN(&m, f32, "1x16")), s);
    EXPECT(&m, "single 1, matmul 2");
}

/* Two regions that would wait for each other: each is fine alone, only one may be fused as a
 * whole. */
static void test_mutual(sinter_engine_t *engine)
{
    mini_t m;
    mini_begin(&m, engine);
    const lt_t a = OP(&m, exp, f32, IN(&m, f32, "4x4")), b = OP(&m, abs, f32, IN(&m, f32, "4x4"));
    const lt_t sa =
        OPA(&m, softmax, f32, ATTRS(S64S(axis, 1)), OP(&m, tanh, f32, IN(&m, f32, "4x4")));
    OP(&m, add, f32, a, sa);
    OP(&m, add, f32, b, sa);
    EXPECT(&m, "single 1, softmax 5");
    /* MatMul 1 feeds the post-op of MatMul 2 and the other way round. */
    mini_begin(&m, engine);
    const lt_t p = OP(&m, matmul, f32, IN(&m, f32, "4x4"), IN(&m, f32, "4x4"));
    const lt_t q = OP(&m, matmul, f32, IN(&m, f32, "4x4"), IN(&m, f32, "4x4"));
    mini_output(&m, p);
    mini_output(&m, q);
    OP(&m, add, f32, p, OPA(&m, softmax, f32, ATTRS(S64S(axis, 0)), q));
    OP(&m, add, f32, q, OPA(&m, softmax, f32, ATTRS(S64S(axis, 0)), p));
    result_t r;
    if (partition(&m, sinter_partition_policy_fusion, &r)) {
        check_order(&m, &r);
        partition_list_free(&r.list);
    }
    graph_free(&m.g);
}

/* Random graphs in which everything fits everything: whatever is fused, no partition may wait
 * for itself. */
static void test_random(sinter_engine_t *engine)
{
    enum { GRAPHS = 2000, OPS = 40 };
    unsigned seed = 1;
    int n_fused = 0;
#define DRAW(n) ((int)((seed = seed * 1664525u + 1013904223u) >> 8) % (n))
    for (int i = 0; i < GRAPHS; i++) {
        mini_t m;
        result_t r;
        lt_t x[OPS + 2];
        mini_begin(&m, engine);
        x[0] = IN(&m, f32, "4x4");
        x[1] = IN(&m, f32, "4x4");
        const int back = 2 + DRAW(20); /* how far back inputs lie */
        for (int k = 2; k < OPS + 2; k++) {
            const int oldest = k > back ? k - back : 0;
            const lt_t a = x[oldest + DRAW(k - oldest)], b = x[oldest + DRAW(k - oldest)];
            switch (DRAW(10)) {
            case 0:
                x[k] = OP(&m, matmul, f32, a, b);
                break;
            case 1:
                x[k] = OPA(&m, softmax, f32, ATTRS(S64S(axis, 1)), a);
                break;
            case 2:
                x[k] = OPA(&m, static_transpose, f32, ATTRS(S64S(order, 1, 0)), a);
                break;
            case 3:
                x[k] = OPA(&m, rms_norm, f32, ATTRS(BOOL(use_affine, false)), a);
                break;
            case 4:
                x[k] = OP(&m, exp, f32, a);
                break;
            case 5:
                x[k] = OP(&m, type_cast, f32, a);
                break;
            case 6:
                x[k] = OP(&m, select, f32, OP(&m, greater_equal, boolean, a, b), b, a);
                break;
            case 7:
                x[k] = OP(&m, multiply, f32, a, b);
                break;
            default:
                x[k] = OP(&m, add, f32, a, b);
                break;
            }
            if (DRAW(30) == 0) {
                mini_output(&m, x[k]);
            }
        }
        if (partition(&m, sinter_partition_policy_fusion, &r)) {
            check_order(&m, &r);
            n_fused += m.g.n_nodes - r.list.n;
            partition_list_free(&r.list);
        }
        graph_free(&m.g);
    }
#undef DRAW
    CHECK(n_fused > 5 * GRAPHS, "only %d ops were fused", n_fused);
}

static void test_unsupported_and_debug(sinter_engine_t *engine)
{
    mini_t m;
    result_t r;
    mini_begin(&m, engine);
    const lt_t x = OPA(&m, softmax_backward, f32, ATTRS(S64S(axis, 1)), IN(&m, f32, "5x5"),
                       IN(&m, f32, "5x5"));
    OP(&m, exp, f32, OP(&m, relu, f32, x));
    m.g.mode = sinter_fpmath_mode_bf16;
    m.g.apply_to_int = true;
    if (partition(&m, sinter_partition_policy_fusion, &r)) {
        CHECK(strcmp(r.names, "single 1, eltwise 2") == 0, "%s", r.names);
        const sinter_partition_t *backward = r.list.items[0], *chain = r.list.items[1];
        CHECK(!backward->supported &&
                  strcmp(backward->reason,
                         "op 0 (SoftMaxBackward): checked, but not executed by this library") == 0,
              "a training op is refused with a reason");
        CHECK(strstr(backward->explain, "not supported") != NULL, "and explains it");
        CHECK(backward->family == FAMILY_SINGLE && chain->supported && chain->reason == NULL &&
                  chain->family == FAMILY_GENERAL,
              "families");
        sinter_fpmath_mode_t mode;
        bool apply_to_int;
        partition_get_fpmath(chain, &mode, &apply_to_int);
        CHECK(mode == sinter_fpmath_mode_bf16 && apply_to_int, "the graph's mode is handed on");
        CHECK(chain->n_inputs == 1 && chain->n_outputs == 1 &&
                  strcmp(chain->sub.nodes[0].role, "eltwise") == 0,
              "ports and roles");
        partition_list_free(&r.list);
    }
    graph_free(&m.g);
    /* A matmul computes in f32, but its results may be f64. */
    mini_begin(&m, engine);
    OP(&m, exp, f64, OP(&m, abs, f64, OP(&m, matmul, f64, IN(&m, f32, "3x4"), IN(&m, f32, "4x5"))));
    if (partition(&m, sinter_partition_policy_fusion, &r)) {
        CHECK(strcmp(r.names, "matmul 3") == 0 && r.list.items[0]->supported, "%s", r.names);
        partition_list_free(&r.list);
    }
    graph_free(&m.g);
    mini_begin(&m, engine);
    sdpa_graph(&m, (sdpa_t){.axis = 3});
    if (partition(&m, sinter_partition_policy_debug, &r)) {
        CHECK(strcmp(r.names, "single 1, single 1, single 1, single 1, single 1") == 0, "%s",
              r.names);
        check_order(&m, &r);
        partition_list_free(&r.list);
    }
    graph_free(&m.g);
}

/* A partition outlives its list and its graph. */
static void test_references(sinter_engine_t *engine)
{
    mini_t m;
    result_t r;
    mini_begin(&m, engine);
    sdpa_graph(&m, (sdpa_t){.axis = 3});
    if (!partition(&m, sinter_partition_policy_fusion, &r)) {
        return;
    }
    sinter_partition_t *p = partition_ref(r.list.items[0]);
    partition_list_free(&r.list);
    graph_free(&m.g);
    CHECK(strcmp(p->pattern, "sdpa") == 0 && p->n_inputs == 5 && p->n_outputs == 1 &&
              strstr(p->explain, "softmax") != NULL,
          "kept alive");
    partition_unref(p);
}

static void test_rows(void)
{
    for (int i = 0; i < sinter_n_patterns; i++) {
        const pattern_t *p = sinter_patterns[i];
        CHECK(p->n_nodes >= 2 && p->n_nodes <= PAT_MAX_NODES && p->nodes[0].edge == PAT_ANCHOR,
              "%s: size and anchor", p->name);
        for (int k = 1; k < p->n_nodes; k++) {
            const pat_node_t *n = &p->nodes[k];
            CHECK(n->of < k && n->min <= n->max && n->max > 0 && n->edge != PAT_ANCHOR &&
                      n->ops != 0,
                  "%s: node %d (%s)", p->name, k, n->role);
        }
        for (int k = 0; k < i; k++) {
            CHECK(strcmp(sinter_patterns[k]->name, p->name) != 0, "%s is there twice", p->name);
        }
    }
}

static void test_reached(void)
{
    for (int row = 0; row < sinter_n_patterns; row++) {
        CHECK(reached[row], "pattern %s is never reached", sinter_patterns[row]->name);
    }
}

/* ---- the matching models --------------------------------------------------------------------- */

/* The row that a graph of models/patterns was written for: the longest name of a pattern that its
 * name begins with, but for these. */
static const char *row_of_model(const char *model)
{
    static const char *const others[][2] = {
        {"sdpa-jax", "sdpa-transposed"},
        {"sdpa-keys-queries", "sdpa-transposed"},
        {"sdpa-keys-queries-int4", "sdpa-transposed"},
        {"sdpa-transposed-tail", "sdpa"},
        {"gated-mlp-dynamic-quantize", "gated-mlp-up"},
        {"quantize-chain", "eltwise"},
        {"eltwise-dynamic-quantize", "dynamic-quantize"},
        {"shuffle", "reorder"},
    };
    const char *found = "";
    for (int i = 0; i < MINI_N(others); i++) {
        if (strcmp(model, others[i][0]) == 0) {
            return others[i][1];
        }
    }
    for (int row = 0; row < sinter_n_patterns; row++) {
        const char *name = sinter_patterns[row]->name;
        if (strncmp(model, name, strlen(name)) == 0 && strlen(name) > strlen(found)) {
            found = name;
        }
    }
    for (int row = 0; row < sinter_n_joins; row++) {
        const char *name = sinter_joins[row];
        if (strncmp(model, name, strlen(name)) == 0 && strlen(name) > strlen(found)) {
            found = name;
        }
    }
    return found;
}

/* A graph through the public API: it is one partition, of the row that it was written for. */
static void test_model(sinter_engine_t *engine, const char *file)
{
    char path[1024], model_name[256];
    model_t model = {0};
    gr_error_t err = {{0}, 0};
    sinter_graph_t *graph = NULL;
    sinter_partition_t *p = NULL;
    size_t n = 0;
    const char *name = "";
    snprintf(path, sizeof(path), "%s/models/patterns/%s", SINTER_SOURCE_DIR, file);
    snprintf(model_name, sizeof(model_name), "%.*s", (int)strcspn(file, "."), file);
    const char *want = row_of_model(model_name);
    const bool built =
        model_load_file(&model, path, &err) == 0 && model_build(&model, engine, &graph, &err) == 0;
    CHECK(built, "%s does not load", path);
    if (built && sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success &&
        sinter_graph_get_partition_num(graph, &n) == sinter_success && n == 1 &&
        sinter_graph_get_partitions(graph, 1, &p) == sinter_success) {
        sinter_partition_get_pattern(p, &name);
    }
    CHECK(n == 1 && strcmp(name, want) == 0, "%s: %zu partitions, the first is %s, not %s", file, n,
          name, want);
    for (int row = 0; row < sinter_n_patterns; row++) {
        reached[row] = reached[row] || strcmp(sinter_patterns[row]->name, name) == 0;
    }
    sinter_partition_destroy(&p);
    sinter_graph_destroy(&graph);
    model_free(&model);
}

/* Each graph of models/patterns that matches has a near-miss beside it. */
static void test_models(sinter_engine_t *engine)
{
    struct dirent **list = NULL;
    const int n = scandir(SINTER_SOURCE_DIR "/models/patterns", &list, NULL, alphasort);
    CHECK(n > 2, "models/patterns");
    for (int i = 0; i < n; i++) {
        const char *file = list[i]->d_name, *end = strchr(file, '.');
        if (end != NULL && strcmp(end, ".json") == 0) {
            char miss[1024];
            snprintf(miss, sizeof(miss), "%s/models/patterns/%.*s.nomatch.json", SINTER_SOURCE_DIR,
                     (int)(end - file), file);
            test_model(engine, file);
            CHECK(access(miss, R_OK) == 0, "%s has no near-miss", file);
        }
        free(list[i]);
    }
    free(list);
}

/* ---- large graphs ---------------------------------------------------------------------------- */

enum { LARGE = 100000 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The number of partitions of 10^5 ops. Times are printed, not judged; quadratic time would be
 * minutes, which the limit of the test ends. */
static void expect_large(mini_t *m, const char *what, int min_parts, int max_parts)
{
    result_t r = {.names = ""};
    const double build_end = seconds();
    sinter_status_t status = mini_end(m);
    const double begin = seconds();
    status = status == sinter_success
                 ? partition_graph(&m->g, sinter_partition_policy_fusion, &r.list)
                 : status;
    const double time = seconds() - begin;
    CHECK(status == sinter_success, "%s: %s", what, sinter_last_error_message());
    if (status == sinter_success) {
        printf("%s: %d ops, %d partitions, sorted in %.2f s, partitioned in %.2f s\n", what,
               m->g.n_nodes, r.list.n, begin - build_end, time);
        CHECK(r.list.n >= min_parts && r.list.n <= max_parts, "%s: %d partitions", what, r.list.n);
        check_order(m, &r);
        partition_list_free(&r.list);
    }
    graph_free(&m->g);
}

static void test_large(sinter_engine_t *engine)
{
    mini_t m;
    lt_t x;
    mini_begin(&m, engine);
    x = IN(&m, f32, "4x8");
    for (int i = 0; i < LARGE; i++) {
        x = i % 2 ? OP(&m, relu, f32, x) : OP(&m, add, f32, x, IN(&m, f32, "8"));
    }
    expect_large(&m, "one chain", 1, 1);

    mini_begin(&m, engine);
    x = IN(&m, f32, "4x8");
    for (int i = 0; i < LARGE; i++) {
        x = OP(&m, type_cast, f32, x); /* tried as a chain of moves first */
    }
    expect_large(&m, "casts", 1, 1);

    /* Every value is used by its neighbour and far below, where it also meets an op on the end
     * of the chain. */
    mini_begin(&m, engine);
    lt_t *kept = calloc(LARGE / 4, sizeof(lt_t));
    x = IN(&m, f32, "8x8");
    for (int i = 0; i < LARGE / 4; i++) {
        kept[i] = x = OP(&m, relu, f32, x);
    }
    x = OPA(&m, softmax_backward, f32, ATTRS(S64S(axis, 1)), x, x); /* in no pattern */
    for (int i = 0; i < LARGE / 4; i++) {
        OP(&m, add, f32, kept[i], x);
    }
    free(kept);
    expect_large(&m, "far uses of a closed chain", 1, LARGE);

    /* A sum of products, each of which could grow over the whole of it. */
    mini_begin(&m, engine);
    x = IN(&m, f32, "8x8");
    for (int i = 0; i < LARGE / 10; i++) {
        x = OP(&m, add, f32, OP(&m, matmul, f32, IN(&m, f32, "8x8"), IN(&m, f32, "8x8")), x);
    }
    expect_large(&m, "sum of products", 1, LARGE);

    /* Transformer-like: products with post-ops in a row. */
    mini_begin(&m, engine);
    x = IN(&m, f32, "8x8");
    for (int i = 0; i < 8000; i++) {
        x = OP(&m, add, f32, x,
               OP(&m, tanh, f32,
                  OP(&m, matmul, f32, OPA(&m, softmax, f32, ATTRS(S64S(axis, 1)), x),
                     IN(&m, f32, "8x8"))));
    }
    expect_large(&m, "residual layers", 8000, 16000);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void test_out_of_memory(void)
{
    mini_heap_t heap = {.budget = -1};
    sinter_engine_t engine = {.refs = 1,
                              .allocator = {mini_heap_alloc, mini_heap_free, &heap},
                              .features = {NEEDS_NOTHING}};
    bool done = false;
    for (long n = 0; n < 10000 && !done; n++) {
        mini_t m;
        partition_list_t list;
        mini_begin(&m, &engine);
        mlp_graph(&m, (mlp_t){.cast = true});
        sdpa_graph(&m, (sdpa_t){.axis = 2});
        const bool made = mini_end(&m) == sinter_success;
        heap.budget = n;
        const sinter_status_t status = partition_graph(&m.g, sinter_partition_policy_fusion, &list);
        heap.budget = -1;
        CHECK(made && (status == sinter_success || status == sinter_out_of_memory),
              "allocation %ld: status %d", n, (int)status);
        done = status == sinter_success;
        if (done) {
            partition_list_free(&list);
        }
        graph_free(&m.g);
        CHECK(heap.live == 0, "allocation %ld: %ld blocks leaked", n, heap.live);
        CHECK(engine.refs == 1, "allocation %ld: the engine is held %d times", n, (int)engine.refs);
    }
    CHECK(done, "partitioning never succeeded");
}

int main(void)
{
    sinter_engine_t *engine = engine_ref(NULL);
    test_rows();
    test_sdpa(engine);
    test_sdpa_torn_groups(engine);
    test_sdpa_cycle(engine);
    test_sdpa_spellings(engine);
    test_sdpa_mqa(engine);
    test_sdpa_paged(engine);
    test_sdpa_transposed(engine);
    test_idle(engine);
    test_mlp(engine);
    test_matmul(engine);
    test_quantised_activation(engine);
    test_sums(engine);
    test_norms(engine);
    test_projections(engine);
    test_appends(engine);
    test_appends_of_layers(engine);
    test_turned_queries(engine);
    test_tables_and_routers(engine);
    test_small(engine);
    test_dynamic_quantize(engine);
    test_tensor_scale(engine);
    test_mutual(engine);
    test_random(engine);
    test_models(engine);
    test_reached();
    test_unsupported_and_debug(engine);
    test_references(engine);
    test_large(engine);
    test_out_of_memory();
    engine_unref(engine);
    return check_finish();
}
