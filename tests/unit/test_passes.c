/* Passes: one test for each, headed by the pass's line of algebra, that looks at the rewritten
 * graph as text. */
#define _POSIX_C_SOURCE 200809L

#include "check.h"
#include "mini_graph.h"
#include "passes/passes.h"

/* ---- graphs as text: "Kind(type[dims]{type[dims] of scales, of zero points}, ...) ->
 * type[dims]! | ..." */

static char text[4096];

static void put(const char *format, const char *arg)
{
    const size_t len = strlen(text);
    snprintf(text + len, sizeof(text) - len, format, arg);
}

static void put_value(const graph_t *g, int v)
{
    const lt_t *lt = &g->values[v].lt;
    put("%s[", sinter_data_type_name(lt->data_type));
    for (int d = 0; d < lt->ndims; d++) {
        char dim[24];
        snprintf(dim, sizeof(dim), "%lld", (long long)lt->dims[d]);
        put(d > 0 ? " %s" : "%s", lt->dims[d] == SINTER_UNKNOWN_DIM ? "?" : dim);
    }
    put("%s", "]");
    if (lt->layout_type == sinter_layout_type_opaque) {
        char id[24];
        snprintf(id, sizeof(id), "%llu", (unsigned long long)lt->layout_id);
        put("#%s", id);
    }
}

static const char *describe(const graph_t *g)
{
    text[0] = '\0';
    for (int t = 0; t < graph_n_live(g); t++) {
        const node_t *n = &g->nodes[g->topo[t]];
        put(t > 0 ? " | %s(" : "%s(", op_name(n->kind));
        for (int i = 0; i < n->n_in; i++) {
            const node_t *dq = n->in_dequant != NULL ? n->in_dequant[i] : NULL;
            put("%s", i > 0 ? ", " : "");
            put_value(g, n->in[i]);
            for (int k = 1; dq != NULL && k < dq->n_in; k++) {
                put("%s", k == 1 ? "{" : ", ");
                put_value(g, dq->in[k]);
            }
            put("%s", dq == NULL ? "" : dq->n_in > 1 ? "}" : "{}");
        }
        put("%s", ") -> ");
        put_value(g, n->out[0]);
        put("%s", g->values[n->out[0]].is_output ? "!" : "");
    }
    return text;
}

/* The lines of algebra that have been tested. */
static const char *tested[32];
static int n_tested;

/* Runs the one pass with this algebra, as the pipeline does, and dead code behind it. */
static void run(mini_t *m, const char *algebra, int line)
{
    sinter_status_t status = mini_end(m);
    check_at(status == sinter_success, line, "building: %s", sinter_last_error_message());
    for (int round = 0; round < 2 && status == sinter_success; round++) {
        bool found = false;
        for (int i = 0; i < sinter_n_passes && status == sinter_success; i++) {
            const pass_t *pass = &sinter_passes[i];
            if (strcmp(round == 0 ? pass->algebra : pass->name,
                       round == 0 ? algebra : "dead_code") == 0) {
                found = true;
                status = pass->run(&m->g);
                status = status == sinter_success ? graph_sort(&m->g) : status;
                status = status == sinter_success ? graph_verify(&m->g, pass->name) : status;
            }
        }
        check_at(found, line, "no pass says: %s", algebra);
    }
    check_at(status == sinter_success, line, "%s", sinter_last_error_message());
    tested[n_tested] = algebra;
    n_tested += n_tested == 0 || strcmp(tested[n_tested - 1], algebra) != 0;
}

static void expect(mini_t *m, const char *algebra, const char *expected, int line)
{
    run(m, algebra, line);
    check_at(strcmp(describe(&m->g), expected) == 0, line, "got:\n  %s\nexpected:\n  %s", text,
             expected);
    graph_free(&m->g);
}
#define EXPECT(m, expected) expect(m, algebra, expected, __LINE__)

#define RESHAPE(m, type, in, ...) \
    OPA(m, static_reshape, type, ATTRS(S64S(shape, __VA_ARGS__), BOOL(special_zero, false)), in)
#define TRANSPOSE(m, type, in, ...) \
    OPA(m, static_transpose, type, ATTRS(S64S(order, __VA_ARGS__)), in)

/* ---- op(x : dims) = op(x) : shape_rule(op, dims) --------------------------------------------- */

static void test_infer_shapes(sinter_engine_t *engine)
{
    const char *algebra = "op(x : dims) = op(x) : shape_rule(op, dims)";
    mini_t m;
    mini_begin(&m, engine);
    const lt_t x = IN(&m, f32, "2x?x16");
    OP(&m, relu, f32, OP(&m, matmul, f32, x, IN(&m, f32, "16x3")));
    CHECK(mini_end(&m) == sinter_success, "builds");
    /* What compile knows beyond the graph. */
    m.g.values[graph_find_value(&m.g, x.id)].lt.dims[1] = 7;
    EXPECT(&m, "MatMul(f32[2 7 16], f32[16 3]) -> f32[2 7 3] | ReLU(f32[2 7 3]) -> f32[2 7 3]!");
}

/* ---- MatMul(a[K], b) = reshape(MatMul(reshape(a, [1, K]), b)), and likewise for b[K] as [K, 1] */

static void test_matmul_2d(sinter_engine_t *engine)
{
    const char *algebra =
        "MatMul(a[K], b) = reshape(MatMul(reshape(a, [1, K]), b)), and likewise for b[K] as [K, 1]";
    mini_t m;
    mini_begin(&m, engine);
    OP(&m, matmul, f32, IN(&m, f32, "5"), IN(&m, f32, "4x5x3"));
    EXPECT(&m, "StaticReshape(f32[5]) -> f32[1 5] | MatMul(f32[1 5], f32[4 5 3]) -> f32[4 1 3] | "
               "StaticReshape(f32[4 1 3]) -> f32[4 3]!");
    mini_begin(&m, engine);
    OP(&m, matmul, f32, IN(&m, f32, "4x5"), IN(&m, f32, "5"));
    EXPECT(&m, "StaticReshape(f32[5]) -> f32[5 1] | MatMul(f32[4 5], f32[5 1]) -> f32[4 1] | "
               "StaticReshape(f32[4 1]) -> f32[4]!");
    mini_begin(&m, engine);
    OP(&m, matmul, f32, IN(&m, f32, "4x5"), IN(&m, f32, "5x3"));
    EXPECT(&m, "MatMul(f32[4 5], f32[5 3]) -> f32[4 3]!");
}

/* ---- Convolution(x, w) = Convolution(x, view(w)) --------------------------------------------- */

static void test_conv_weights(sinter_engine_t *engine)
{
    const char *algebra =
        "Convolution(x, w) = Convolution(x, view(w)), weights as [groups, window, I, O]";
    mini_t m;
    mini_begin(&m, engine);
    OPA(&m, convolution, f32,
        ATTRS(S64S(strides, 1), S64S(dilations, 1), S64S(pads_begin, 0), S64S(pads_end, 0),
              S64S(groups, 2)),
        IN(&m, f32, "1x8x6"), IN(&m, f32, "3x3x10"));
    EXPECT(&m, "StaticReshape(f32[3 3 10]) -> f32[3 3 2 5] | StaticTranspose(f32[3 3 2 5]) -> "
               "f32[2 3 3 5] | Convolution(f32[1 8 6], f32[2 3 3 5]) -> f32[1 6 10]!");
    mini_begin(&m, engine);
    OPA(&m, conv_transpose, f32,
        ATTRS(S64S(strides, 1), S64S(dilations, 1), S64S(pads_begin, 0), S64S(pads_end, 0),
              S64S(groups, 2)),
        IN(&m, f32, "1x8x6"), IN(&m, f32, "3x5x6"));
    EXPECT(&m, "StaticReshape(f32[3 5 6]) -> f32[3 5 2 3] | StaticTranspose(f32[3 5 2 3]) -> "
               "f32[2 3 3 5] | ConvTranspose(f32[1 8 6], f32[2 3 3 5]) -> f32[1 10 10]!");
}

/* ---- MatMul(v, transpose(softmax(s))) = transpose(MatMul(softmax(s), transpose(v))),
 * ---- f(transpose(s)) = transpose(f(s)) ------------------------------------------------------ */

static void set_roles(mini_t *m, int qk, int softmax, int pv, int view)
{
    m->g.nodes[qk].role = "qk";
    m->g.nodes[softmax].role = "softmax";
    m->g.nodes[pv].role = "turned_pv";
    if (view >= 0) {
        m->g.nodes[view].role = "score_views";
    }
}

static void test_plain_attention(sinter_engine_t *engine)
{
    const char *algebra = "MatMul(v, transpose(softmax(s))) = transpose(MatMul(softmax(s), "
                          "transpose(v))), f(transpose(s)) = transpose(f(s))";
    mini_t m;
    lt_t s;
    /* Scores as [keys, queries], and a mask over queries. */
    mini_begin(&m, engine);
    s = OPA(&m, matmul, f32, ATTRS(BOOL(transpose_b, true)), IN(&m, f32, "2x7x16"),
            IN(&m, f32, "2x5x16"));
    s = OPA(&m, softmax, f32, ATTRS(S64S(axis, 1)), OP(&m, add, f32, s, IN(&m, f32, "5")));
    OPA(&m, matmul, f32, ATTRS(BOOL(transpose_a, true)), IN(&m, f32, "2x7x8"), s);
    set_roles(&m, 0, 2, 3, -1);
    EXPECT(&m, "MatMul(f32[2 5 16], f32[2 7 16]) -> f32[2 5 7] | StaticReshape(f32[5]) -> f32[5 1] "
               "| Add(f32[2 5 7], f32[5 1]) -> f32[2 5 7] | "
               "SoftMax(f32[2 5 7]) -> f32[2 5 7] | MatMul(f32[2 5 7], f32[2 7 8]) -> f32[2 5 8] | "
               "StaticTranspose(f32[2 5 8]) -> f32[2 8 5]!");
    /* Transposed probabilities. */
    mini_begin(&m, engine);
    s = OP(&m, matmul, f32, IN(&m, f32, "2x5x16"), IN(&m, f32, "2x16x7"));
    s = OPA(&m, static_transpose, f32, ATTRS(S64S(order, 0, 2, 1)),
            OPA(&m, softmax, f32, ATTRS(S64S(axis, -1)), s));
    OP(&m, matmul, f32, IN(&m, f32, "2x8x7"), OP(&m, reorder, f32, s));
    set_roles(&m, 0, 1, 4, -1);
    EXPECT(&m, "MatMul(f32[2 5 16], f32[2 16 7]) -> f32[2 5 7] | SoftMax(f32[2 5 7]) -> f32[2 5 7] "
               "| Reorder(f32[2 5 7]) -> f32[2 5 7] | "
               "MatMul(f32[2 5 7], f32[2 8 7]) -> f32[2 5 8] | StaticTranspose(f32[2 5 8]) -> "
               "f32[2 8 5]!");
    /* Transposed scores, and an index over them as they were. */
    mini_begin(&m, engine);
    s = OP(&m, matmul, f32, IN(&m, f32, "2x7x16"), IN(&m, f32, "2x16x5"));
    OPA(&m, gen_index, s32, ATTRS(S64S(axis, 1)), s);
    s = OPA(&m, softmax, f32, ATTRS(S64S(axis, 2)),
            OPA(&m, static_transpose, f32, ATTRS(S64S(order, 0, 2, 1)), s));
    OP(&m, matmul, f32, s, IN(&m, f32, "2x7x8"));
    set_roles(&m, 0, 3, 4, 2);
    EXPECT(&m, "MatMul(f32[2 16 5], f32[2 7 16]) -> f32[2 5 7] | SoftMax(f32[2 5 7]) -> f32[2 5 7] "
               "| MatMul(f32[2 5 7], f32[2 7 8]) -> f32[2 5 8]! | "
               "GenIndex(f32[2 5 7]) -> s32[2 5 7] | StaticTranspose(s32[2 5 7]) -> s32[2 7 5]!");
    /* Quantised probabilities keep their scale. */
    mini_begin(&m, engine);
    s = OPA(&m, matmul, f32, ATTRS(BOOL(transpose_b, true)), IN(&m, f32, "2x7x16"),
            IN(&m, f32, "2x5x16"));
    s = OPA(&m, softmax, f32, ATTRS(S64S(axis, 1)), s);
    s = OPA(&m, dequantize, f32, ATTRS(F32S(scales, 0.125f)),
            OPA(&m, quantize, u8, ATTRS(F32S(scales, 0.125f)), s));
    OPA(&m, matmul, f32, ATTRS(BOOL(transpose_a, true)), IN(&m, f32, "2x7x8"), s);
    set_roles(&m, 0, 1, 4, -1);
    EXPECT(&m, "MatMul(f32[2 5 16], f32[2 7 16]) -> f32[2 5 7] | SoftMax(f32[2 5 7]) -> f32[2 5 7] "
               "| Quantize(f32[2 5 7]) -> u8[2 5 7] | Dequantize(u8[2 5 7]) -> f32[2 5 7] | "
               "MatMul(f32[2 5 7], f32[2 7 8]) -> f32[2 5 8] | StaticTranspose(f32[2 5 8]) -> "
               "f32[2 8 5]!");
    /* No attention: nothing changes. */
    mini_begin(&m, engine);
    OP(&m, matmul, f32, IN(&m, f32, "2x8x7"),
       OPA(&m, static_transpose, f32, ATTRS(S64S(order, 0, 2, 1)), IN(&m, f32, "2x5x7")));
    EXPECT(&m, "StaticTranspose(f32[2 5 7]) -> f32[2 7 5] | MatMul(f32[2 8 7], f32[2 7 5]) -> "
               "f32[2 8 5]!");
}

/* ---- Dropout(x, seed, offset, 0) = cast(x) --------------------------------------------------- */

static void test_drop_dropout(sinter_engine_t *engine)
{
    const char *algebra = "Dropout(x, seed, offset, 0) = cast(x)";
    mini_t m;
    mini_begin(&m, engine);
    OP(&m, relu, f16,
       OP(&m, dropout, f16, IN(&m, f16, "2x3"), IN(&m, s64, "1"), IN(&m, s64, "1"),
          IN(&m, f32, "1")));
    run(&m, algebra, __LINE__);
    CHECK_THAT(m.g.n_dropouts == 1 && m.g.nodes[m.g.dropouts[0]].kind == sinter_op_dropout);
    CHECK_THAT(strcmp(describe(&m.g), "TypeCast(f16[2 3]) -> f16[2 3] | ReLU(f16[2 3]) -> "
                                      "f16[2 3]!") == 0);
    graph_free(&m.g);
}

/* ---- op(cast(x)) = op(x), both types wide floats --------------------------------------------- */

static void test_drop_casts(sinter_engine_t *engine)
{
    const char *algebra = "op(cast(x)) = op(x), both types wide floats";
    mini_t m;
    lt_t x;
    mini_begin(&m, engine);
    OP(&m, exp, f16, OP(&m, type_cast, bf16, OP(&m, type_cast, f32, IN(&m, f16, "3"))));
    EXPECT(&m, "Exp(f16[3]) -> f16[3]!");
    /* The last cast rounds an output, the first one's codes are numbers of their own. */
    mini_begin(&m, engine);
    OP(&m, type_cast, bf16, OP(&m, type_cast, f32, OP(&m, type_cast, f8_e4m3, IN(&m, f32, "3"))));
    EXPECT(&m, "TypeCast(f32[3]) -> f8_e4m3[3] | TypeCast(f8_e4m3[3]) -> f32[3] | TypeCast(f32[3]) "
               "-> bf16[3]!");
    mini_begin(&m, engine);
    x = OP(&m, type_cast, f32, OP(&m, type_cast, s32, IN(&m, f32, "3")));
    mini_output(&m, x);
    OP(&m, abs, f32, x);
    EXPECT(&m, "TypeCast(f32[3]) -> s32[3] | TypeCast(s32[3]) -> f32[3]! | Abs(f32[3]) -> f32[3]!");
    /* A cast to double precision may not be left out as a rounding may. */
    mini_begin(&m, engine);
    OP(&m, type_cast, f32, OP(&m, type_cast, f64, IN(&m, f32, "3")));
    EXPECT(&m, "TypeCast(f32[3]) -> f64[3] | TypeCast(f64[3]) -> f32[3]!");
    /* Views show x itself. */
    mini_begin(&m, engine);
    OP(&m, abs, f32,
       TRANSPOSE(&m, bf16, RESHAPE(&m, bf16, OP(&m, type_cast, bf16, IN(&m, f32, "6")), 2, 3), 1,
                 0));
    EXPECT(&m, "StaticReshape(f32[6]) -> f32[2 3] | StaticTranspose(f32[2 3]) -> f32[3 2] | "
               "Abs(f32[3 2]) -> f32[3 2]!");
    /* Unless one of them is an output: views do not convert. */
    mini_begin(&m, engine);
    TRANSPOSE(&m, bf16, RESHAPE(&m, bf16, OP(&m, type_cast, bf16, IN(&m, f32, "6")), 2, 3), 1, 0);
    EXPECT(&m, "TypeCast(f32[6]) -> bf16[6] | StaticReshape(bf16[6]) -> bf16[2 3] | "
               "StaticTranspose(bf16[2 3]) -> bf16[3 2]!");
}

/* ---- y = op(x) : f16 = op(x) : f32, y inside, bf16 alike ------------------------------------- */

static void test_widen(sinter_engine_t *engine)
{
    const char *algebra = "y = op(x) : f16 = op(x) : f32, y inside, bf16 alike";
    mini_t m;
    lt_t x;
    mini_begin(&m, engine);
    OP(&m, abs, f16, OP(&m, exp, bf16, OP(&m, relu, f16, IN(&m, f16, "3"))));
    EXPECT(&m, "ReLU(f16[3]) -> f32[3] | Exp(f32[3]) -> f32[3] | Abs(f32[3]) -> f16[3]!");
    /* An output has its type, and so has what is its memory; double precision and codes keep
     * theirs. */
    mini_begin(&m, engine);
    x = OP(&m, relu, f16, IN(&m, f16, "6"));
    OP(&m, abs, f32, x);
    RESHAPE(&m, f16, x, 2, 3);
    EXPECT(&m,
           "ReLU(f16[6]) -> f16[6] | Abs(f16[6]) -> f32[6]! | StaticReshape(f16[6]) -> f16[2 3]!");
    mini_begin(&m, engine);
    OP(&m, type_cast, f16, OP(&m, type_cast, f64, OP(&m, type_cast, f8_e4m3, IN(&m, f16, "3"))));
    EXPECT(&m, "TypeCast(f16[3]) -> f8_e4m3[3] | TypeCast(f8_e4m3[3]) -> f64[3] | TypeCast(f64[3]) "
               "-> f16[3]!");
    /* Views of inputs show the input's type, others that of what they look at. */
    mini_begin(&m, engine);
    OP(&m, add, f16, RESHAPE(&m, f16, IN(&m, f16, "6"), 2, 3),
       RESHAPE(&m, f16, OP(&m, exp, f16, IN(&m, f16, "6")), 2, 3));
    EXPECT(&m, "StaticReshape(f16[6]) -> f16[2 3] | Exp(f16[6]) -> f32[6] | StaticReshape(f32[6]) "
               "-> f32[2 3] | "
               "Add(f16[2 3], f32[2 3]) -> f16[2 3]!");
}

/* ---- matmul(view(dequant(x, s, z)), y) = matmul{dequant(., view(s), view(z))}(view(x), y) ---- */

static lt_t dequant(mini_t *m, const char *qtype, const char *data, const char *scales,
                    const char *zps)
{
    const lt_t in[3] = {IN(m, s8, data), IN(m, f16, scales),
                        zps != NULL ? IN(m, u8, zps) : (lt_t){.id = 0}};
    const attr_t attrs[] = {STR(qtype, qtype), S64S(axis, 1)};
    return mini_op(m, sinter_op_dynamic_dequantize, sinter_f16, in, zps != NULL ? 3 : 2, attrs,
                   strcmp(qtype, "per_channel") == 0 ? 2 : 1);
}

/* Rows in groups of 7. */
static lt_t short_dequant(mini_t *m, const char *data, const char *scales)
{
    const lt_t in[2] = {IN(m, s8, data), IN(m, f16, scales)};
    const attr_t attrs[] = {STR(qtype, "per_group"), S64S(group_shape, 1, 7)};
    return mini_op(m, sinter_op_dynamic_dequantize, sinter_f16, in, 2, attrs, 2);
}

static lt_t static_dequant(mini_t *m, const char *data)
{
    return OPA(m, dequantize, f32,
               ATTRS(STR(qtype, "per_channel"), S64S(axis, 0), F32S(scales, 1, 2, 3, 4),
                     S64S(zps, 1, 2, 3, 4)),
               IN(m, s8, data));
}

static void test_sink_dequant(sinter_engine_t *engine)
{
    const char *algebra =
        "matmul(view(dequant(x, s, z)), y) = matmul{dequant(., view(s), view(z))}(view(x), y)";
    mini_t m;
    lt_t k;
    mini_begin(&m, engine);
    OP(&m, matmul, f32, IN(&m, f16, "5x16"), dequant(&m, "per_group", "16x32", "2x32", "4x1"));
    EXPECT(&m, "MatMul(f16[5 16], s8[16 32]{f16[2 32], u8[4 1]}) -> f32[5 32]!");
    /* Groups of 8 along a merged dim of 64 = [4, 16 in 2 groups]; zero points with groups of
     * their own. */
    mini_begin(&m, engine);
    k = RESHAPE(&m, f16, dequant(&m, "per_group", "2x64x32", "2x8x32", "2x4x1"), 2, 4, 16, 32);
    OP(&m, matmul, f32, IN(&m, f16, "2x4x5x32"), TRANSPOSE(&m, f16, k, 0, 1, 3, 2));
    EXPECT(
        &m,
        "StaticReshape(f16[2 8 32]) -> f16[2 4 2 32] | StaticTranspose(f16[2 4 2 32]) -> f16[2 4 "
        "32 2] | "
        "StaticReshape(u8[2 4 1]) -> u8[2 4 1 1] | StaticTranspose(u8[2 4 1 1]) -> u8[2 4 1 1] | "
        "StaticReshape(s8[2 64 32]) -> s8[2 4 16 32] | StaticTranspose(s8[2 4 16 32]) -> s8[2 4 32 "
        "16] | "
        "MatMul(f16[2 4 5 32], s8[2 4 32 16]{f16[2 4 32 2], u8[2 4 1 1]}) -> f32[2 4 5 16]!");
    /* Scales in one dim get a dim for each of the data's first. */
    mini_begin(&m, engine);
    OP(&m, matmul, f32, IN(&m, f16, "5x6"),
       TRANSPOSE(&m, f16, dequant(&m, "per_channel", "9x6", "6", NULL), 1, 0));
    EXPECT(&m, "StaticReshape(f16[6]) -> f16[1 6] | StaticTranspose(f16[1 6]) -> f16[6 1] | "
               "StaticTranspose(s8[9 6]) -> s8[6 9] | "
               "MatMul(f16[5 6], s8[6 9]{f16[6 1]}) -> f32[5 9]!");
    /* A dim that is not known yet, and a unit dim for the heads of a group. */
    mini_begin(&m, engine);
    k = RESHAPE(&m, f16, dequant(&m, "per_group", "2x?x32", "2x?x4", NULL), 2, 1, -1, 32);
    OPA(&m, matmul, f32, ATTRS(BOOL(transpose_b, true)), IN(&m, f16, "2x3x5x32"), k);
    EXPECT(
        &m,
        "StaticReshape(f16[2 ? 4]) -> f16[2 1 ? 4] | StaticReshape(s8[2 ? 32]) -> s8[2 1 ? 32] | "
        "MatMul(f16[2 3 5 32], s8[2 1 ? 32]{f16[2 1 ? 4]}) -> f32[2 3 5 ?]!");
    /* Two such dims, of which the reshape copies one. */
    mini_begin(&m, engine);
    k = OPA(&m, static_reshape, f16, ATTRS(S64S(shape, 0, 0, 1, -1, 32), BOOL(special_zero, true)),
            dequant(&m, "per_group", "?x2x?x32", "?x2x?x4", NULL));
    OPA(&m, matmul, f32, ATTRS(BOOL(transpose_b, true)), IN(&m, f16, "?x2x3x5x32"), k);
    EXPECT(&m, "StaticReshape(f16[? 2 ? 4]) -> f16[? 2 1 ? 4] | "
               "StaticReshape(s8[? 2 ? 32]) -> s8[? 2 1 ? 32] | "
               "MatMul(f16[? 2 3 5 32], s8[? 2 1 ? 32]{f16[? 2 1 ? 4]}) -> f32[? 2 3 5 ?]!");
    /* Three groups of 16 over rows of 12 have no group shape: the dequantisation stays. */
    mini_begin(&m, engine);
    k = RESHAPE(&m, f16, dequant(&m, "per_group", "48x16", "3x16", NULL), 4, 12, 16);
    OP(&m, matmul, f32, IN(&m, f16, "5x12"), k);
    EXPECT(&m, "DynamicDequantize(s8[48 16], f16[3 16]) -> f16[48 16] | StaticReshape(f16[48 16]) "
               "-> f16[4 12 16] | "
               "MatMul(f16[5 12], f16[4 12 16]) -> f32[4 5 16]!");
    /* A short last group moves along, and stays where its dim is split. */
    mini_begin(&m, engine);
    OP(&m, matmul, f32, IN(&m, f16, "5x16"),
       TRANSPOSE(&m, f16, short_dequant(&m, "9x16", "9x3"), 1, 0));
    EXPECT(&m, "StaticTranspose(f16[9 3]) -> f16[3 9] | StaticTranspose(s8[9 16]) -> s8[16 9] | "
               "MatMul(f16[5 16], s8[16 9]{f16[3 9]}) -> f32[5 9]!");
    mini_begin(&m, engine);
    k = RESHAPE(&m, f16, short_dequant(&m, "9x16", "9x3"), 9, 8, 2);
    OP(&m, matmul, f32, IN(&m, f16, "5x8"), k);
    EXPECT(&m, "DynamicDequantize(s8[9 16], f16[9 3]) -> f16[9 16] | StaticReshape(f16[9 16]) -> "
               "f16[9 8 2] | MatMul(f16[5 8], f16[9 8 2]) -> f32[9 5 2]!");
    /* Scales in attributes: the axis moves along; in two dims it cannot. */
    mini_begin(&m, engine);
    OP(&m, matmul, f32, IN(&m, f32, "5x3"),
       TRANSPOSE(&m, f32, RESHAPE(&m, f32, static_dequant(&m, "4x3"), 4, 1, 3), 1, 2, 0));
    run(&m, algebra, __LINE__);
    const char *expected =
        "StaticReshape(s8[4 3]) -> s8[4 1 3] | StaticTranspose(s8[4 1 3]) -> s8[1 3 4] | "
        "MatMul(f32[5 3], s8[1 3 4]{}) -> f32[1 5 4]!";
    CHECK(strcmp(describe(&m.g), expected) == 0, "got:\n  %s\nexpected:\n  %s", text, expected);
    for (int i = 0; i < m.g.n_nodes; i++) {
        const node_t *n = &m.g.nodes[i];
        CHECK(n->in_dequant == NULL || (n->in_dequant[0] == NULL &&
                                        node_s64(n->in_dequant[1], sinter_op_attr_axis, -1) == 2),
              "the axis is 2 now");
        CHECK(n->in_dequant == NULL || node_attr(n->in_dequant[1], sinter_op_attr_scales)->n == 4,
              "the scales are kept");
    }
    graph_free(&m.g);
    mini_begin(&m, engine);
    OP(&m, matmul, f32, IN(&m, f32, "5x2"), RESHAPE(&m, f32, static_dequant(&m, "4x3"), 2, 2, 3));
    EXPECT(&m, "Dequantize(s8[4 3]) -> f32[4 3] | StaticReshape(f32[4 3]) -> f32[2 2 3] | "
               "MatMul(f32[5 2], f32[2 2 3]) -> f32[2 5 3]!");
    /* Two matmuls over one dequantised tensor, and a third use that keeps it alive. */
    mini_begin(&m, engine);
    k = dequant(&m, "per_group", "16x16", "2x16", NULL);
    OP(&m, matmul, f32, k, k);
    OP(&m, abs, f16, k);
    EXPECT(&m, "DynamicDequantize(s8[16 16], f16[2 16]) -> f16[16 16] | MatMul(s8[16 16]{f16[2 "
               "16]}, s8[16 16]{f16[2 16]}) -> f32[16 16]! | "
               "Abs(f16[16 16]) -> f16[16 16]!");
    /* Codes that the partition quantises itself are in memory; codes of another op stay
     * elementwise work. */
    mini_begin(&m, engine);
    k = OPA(&m, quantize, u8, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)),
            OP(&m, abs, f32, IN(&m, f32, "5x3")));
    OP(&m, matmul, f32, OPA(&m, dequantize, f32, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)), k),
       IN(&m, f32, "3x2"));
    EXPECT(&m, "Abs(f32[5 3]) -> f32[5 3] | Quantize(f32[5 3]) -> u8[5 3] | MatMul(u8[5 3]{}, "
               "f32[3 2]) -> f32[5 2]!");
    mini_begin(&m, engine);
    k = OP(&m, type_cast, u8, OP(&m, abs, f32, IN(&m, f32, "5x3")));
    OP(&m, matmul, f32, OPA(&m, dequantize, f32, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)), k),
       IN(&m, f32, "3x2"));
    EXPECT(&m, "Abs(f32[5 3]) -> f32[5 3] | TypeCast(f32[5 3]) -> u8[5 3] | Dequantize(u8[5 3]) -> "
               "f32[5 3] | "
               "MatMul(f32[5 3], f32[3 2]) -> f32[5 2]!");
}

/* ---- slice(f(x)) = f(slice(x)) where f is a TypeCast, a dequantisation or the bias of an expert
 * ------------------------------------------------------------------------------------------ */

/* Elements from..to-1 along an axis. */
static lt_t slice(mini_t *m, sinter_data_type_t type, lt_t x, int64_t axis, int64_t from,
                  int64_t to)
{
    return mini_op(m, sinter_op_slice, type, &x, 1,
                   ATTRS(S64S(starts, from), S64S(ends, to), S64S(axes, axis)));
}

/* A part of the result of a product with 8 experts and their biases. */
static void slices_of_biased(mini_t *m, lt_t ids, const attr_t *attrs, int n_attrs)
{
    const lt_t x = mini_tensor(m, sinter_f32, ids.dims[0] < 0 ? "?x1x1x48" : "4x1x1x48"),
               w = OPA(m, gather, f32, ATTRS(S64S(axis, 0)), IN(m, f32, "8x96x48"), ids),
               y = OPA(m, matmul, f32, ATTRS(BOOL(transpose_b, true)), x, w),
               bias = OPA(m, gather, f32, ATTRS(S64S(axis, 0)), IN(m, f32, "8x1x96"), ids),
               sum = OP(m, add, f32, y, bias);
    mini_op(m, sinter_op_slice, sinter_f32, &sum, 1, attrs, n_attrs);
}

static void test_raise_slices(sinter_engine_t *engine)
{
    const char *algebra = "slice(f(x)) = f(slice(x)) where f is a TypeCast, a dequantisation or "
                          "the bias of an expert";
    mini_t m;
    lt_t k;
    /* The values of latent attention: the other reader keeps all of the keys. */
    mini_begin(&m, engine);
    k = dequant(&m, "per_group", "2x?x64", "2x?x4", NULL);
    OP(&m, abs, f16, k);
    slice(&m, sinter_f16, k, -1, 16, 48);
    EXPECT(&m, "DynamicDequantize(s8[2 ? 64], f16[2 ? 4]) -> f16[2 ? 64] | "
               "Abs(f16[2 ? 64]) -> f16[2 ? 64]! | Slice(f16[2 ? 4]) -> f16[2 ? 2] | "
               "Slice(s8[2 ? 64]) -> s8[2 ? 32] | "
               "DynamicDequantize(s8[2 ? 32], f16[2 ? 2]) -> f16[2 ? 32]!");
    /* Casts on the way; scales and zero points that all elements share. */
    mini_begin(&m, engine);
    slice(&m, sinter_f32, OP(&m, type_cast, f32, dequant(&m, "per_tensor", "5x8", "1", "1")), 0, 1,
          3);
    EXPECT(&m, "Slice(s8[5 8]) -> s8[2 8] | "
               "DynamicDequantize(s8[2 8], f16[1], u8[1]) -> f16[2 8] | "
               "TypeCast(f16[2 8]) -> f32[2 8]!");
    mini_begin(&m, engine);
    slice(&m, sinter_f16, dequant(&m, "per_group", "5x8", "5x1", NULL), 1, 2, 7);
    EXPECT(&m, "Slice(s8[5 8]) -> s8[5 5] | "
               "DynamicDequantize(s8[5 5], f16[5 1]) -> f16[5 5]!");
    mini_begin(&m, engine);
    slice(&m, sinter_f16, dequant(&m, "per_channel", "5x8", "8", NULL), 0, 0, 2);
    EXPECT(&m, "Slice(s8[5 8]) -> s8[2 8] | DynamicDequantize(s8[2 8], f16[8]) -> f16[2 8]!");
    /* The last group is short in all of the codes, and in their part. */
    mini_begin(&m, engine);
    slice(&m, sinter_f16, short_dequant(&m, "9x16", "9x3"), 1, 7, 16);
    EXPECT(&m, "Slice(f16[9 3]) -> f16[9 2] | Slice(s8[9 16]) -> s8[9 9] | "
               "DynamicDequantize(s8[9 9], f16[9 2]) -> f16[9 9]!");
    /* Zero points of 4 bits, of which the part begins within a byte; and at a whole one. */
    for (int from = 16; from <= 32; from += 16) {
        mini_begin(&m, engine);
        const lt_t codes = IN(&m, s8, "5x64"), scales = IN(&m, f16, "5x4"), zps = IN(&m, u4, "5x4");
        slice(&m, sinter_f16,
              OPA(&m, dynamic_dequantize, f16, ATTRS(STR(qtype, "per_group")), codes, scales, zps),
              1, from, from + 16);
        if (from == 16) {
            EXPECT(&m, "DynamicDequantize(s8[5 64], f16[5 4], u4[5 4]) -> f16[5 64] | "
                       "Slice(f16[5 64]) -> f16[5 16]!");
        } else {
            EXPECT(&m, "Slice(f16[5 4]) -> f16[5 1] | Slice(u4[5 4]) -> u4[5 1] | "
                       "Slice(s8[5 64]) -> s8[5 16] | "
                       "DynamicDequantize(s8[5 16], f16[5 1], u4[5 1]) -> f16[5 16]!");
        }
    }
    /* A part that is not made of whole groups, or of channels. */
    mini_begin(&m, engine);
    slice(&m, sinter_f16, dequant(&m, "per_group", "5x64", "5x4", NULL), 1, 8, 32);
    EXPECT(&m, "DynamicDequantize(s8[5 64], f16[5 4]) -> f16[5 64] | "
               "Slice(f16[5 64]) -> f16[5 24]!");
    mini_begin(&m, engine);
    slice(&m, sinter_f16, dequant(&m, "per_channel", "5x8", "8", NULL), 1, 0, 2);
    EXPECT(&m, "DynamicDequantize(s8[5 8], f16[8]) -> f16[5 8] | Slice(f16[5 8]) -> f16[5 2]!");
    mini_begin(&m, engine);
    slice(&m, sinter_f32, static_dequant(&m, "4x3"), 0, 0, 2);
    EXPECT(&m, "Dequantize(s8[4 3]) -> f32[4 3] | Slice(f32[4 3]) -> f32[2 3]!");
    /* Every other column of the biased result of a product with experts; a part of its rows, and of
     * another product. */
    mini_begin(&m, engine);
    slices_of_biased(&m, IN(&m, s32, "?x2"),
                     ATTRS(S64S(starts, 1), S64S(ends, 96), S64S(axes, -1), S64S(steps, 2)));
    EXPECT(&m, "Gather(f32[8 96 48], s32[? 2]) -> f32[? 2 96 48] | "
               "MatMul(f32[? 1 1 48], f32[? 2 96 48]) -> f32[? 2 1 96] | "
               "Slice(f32[? 2 1 96]) -> f32[? 2 1 48] | Slice(f32[8 1 96]) -> f32[8 1 48] | "
               "Gather(f32[8 1 48], s32[? 2]) -> f32[? 2 1 48] | "
               "Add(f32[? 2 1 48], f32[? 2 1 48]) -> f32[? 2 1 48]!");
    mini_begin(&m, engine);
    slices_of_biased(&m, IN(&m, s32, "4x2"), ATTRS(S64S(starts, 0), S64S(ends, 1), S64S(axes, 1)));
    EXPECT(&m, "Gather(f32[8 96 48], s32[4 2]) -> f32[4 2 96 48] | "
               "MatMul(f32[4 1 1 48], f32[4 2 96 48]) -> f32[4 2 1 96] | "
               "Gather(f32[8 1 96], s32[4 2]) -> f32[4 2 1 96] | "
               "Add(f32[4 2 1 96], f32[4 2 1 96]) -> f32[4 2 1 96] | "
               "Slice(f32[4 2 1 96]) -> f32[4 1 1 96]!");
    mini_begin(&m, engine);
    slice(&m, sinter_f32,
          OP(&m, add, f32, OP(&m, matmul, f32, IN(&m, f32, "5x3"), IN(&m, f32, "3x4")),
             OPA(&m, gather, f32, ATTRS(S64S(axis, 0)), IN(&m, f32, "8x4"), IN(&m, s32, "5"))),
          -1, 0, 2);
    EXPECT(&m, "MatMul(f32[5 3], f32[3 4]) -> f32[5 4] | Gather(f32[8 4], s32[5]) -> f32[5 4] | "
               "Add(f32[5 4], f32[5 4]) -> f32[5 4] | Slice(f32[5 4]) -> f32[5 2]!");
}

/* ---- f(view(x)) = view(f(x)) for elementwise f of one tensor --------------------------------- */

static void test_sink_views(sinter_engine_t *engine)
{
    const char *algebra = "f(view(x)) = view(f(x)) for elementwise f of one tensor";
    mini_t m;
    lt_t x;
    mini_begin(&m, engine);
    x = TRANSPOSE(&m, f32, OP(&m, matmul, f32, IN(&m, f32, "5x3"), IN(&m, f32, "3x2")), 1, 0);
    OPA(&m, quantize, u8, ATTRS(F32S(scales, 0.5f), S64S(zps, 0)), OP(&m, relu, f32, x));
    EXPECT(&m, "MatMul(f32[5 3], f32[3 2]) -> f32[5 2] | ReLU(f32[5 2]) -> f32[5 2] | "
               "Quantize(f32[5 2]) -> u8[5 2] | "
               "StaticTranspose(u8[5 2]) -> u8[2 5]!");
    /* An op that depends on the index does not commute; nor does a view with another reader. */
    mini_begin(&m, engine);
    x = TRANSPOSE(&m, f32, OP(&m, matmul, f32, IN(&m, f32, "5x3"), IN(&m, f32, "3x2")), 1, 0);
    OP(&m, add, f32, x, IN(&m, f32, "5"));
    EXPECT(&m, "MatMul(f32[5 3], f32[3 2]) -> f32[5 2] | StaticTranspose(f32[5 2]) -> f32[2 5] | "
               "Add(f32[2 5], f32[5]) -> f32[2 5]!");
    mini_begin(&m, engine);
    x = TRANSPOSE(&m, f32, OP(&m, matmul, f32, IN(&m, f32, "5x3"), IN(&m, f32, "3x2")), 1, 0);
    mini_output(&m, x);
    OP(&m, relu, f32, x);
    EXPECT(&m, "MatMul(f32[5 3], f32[3 2]) -> f32[5 2] | StaticTranspose(f32[5 2]) -> f32[2 5]! | "
               "ReLU(f32[2 5]) -> f32[2 5]!");
}

/* ---- {q, s} = quantise(view(x)) = {view(q'), view(s')}, {q', s'} = quantise(x), where quantise
 * computes its scales */

/* x -> DynamicQuantize in groups of 1 x .. x 32 or of all, zero points too. */
static void computed(mini_t *m, lt_t x, const char *kind, bool groups)
{
    const lt_t outs[3] = {
        mini_tensor(m, sinter_s8, "*"),
        mini_tensor(m, strcmp(kind, "dynamic_mx") == 0 ? sinter_e8m0 : sinter_f32, "*"),
        mini_tensor(m, sinter_s8, "*")};
    const attr_t attrs[] = {{.id = sinter_op_attr_quantization_kind, .n = 1, .str = kind},
                            STR(qtype, groups ? "per_group" : "per_tensor")};
    mini_add(m, sinter_op_dynamic_quantize, &x, 1, outs,
             strcmp(kind, "dynamic_asymmetric") == 0 ? 3 : 2, attrs, 2);
}

static void test_sink_quantise(sinter_engine_t *engine)
{
    const char *algebra = "{q, s} = quantise(view(x)) = {view(q'), view(s')}, {q', s'} = "
                          "quantise(x), where quantise computes its scales";
    mini_t m;
    lt_t x;
    /* Heads beside each other behind attention; groups of 32 stay inside a head. */
    mini_begin(&m, engine);
    x = OP(&m, matmul, f32, IN(&m, f32, "2x3x5x7"), IN(&m, f32, "2x3x7x64"));
    computed(&m, RESHAPE(&m, f32, TRANSPOSE(&m, f32, x, 0, 2, 1, 3), 2, 5, 192), "dynamic_mx",
             true);
    EXPECT(&m, "MatMul(f32[2 3 5 7], f32[2 3 7 64]) -> f32[2 3 5 64] | DynamicQuantize(f32[2 3 5 "
               "64]) -> s8[2 3 5 64] | "
               "StaticTranspose(s8[2 3 5 64]) -> s8[2 5 3 64] | StaticReshape(s8[2 5 3 64]) -> "
               "s8[2 5 192]! | "
               "StaticTranspose(e8m0[2 3 5 2]) -> e8m0[2 5 3 2] | StaticReshape(e8m0[2 5 3 2]) -> "
               "e8m0[2 5 6]!");
    /* A dim that is not known yet. */
    mini_begin(&m, engine);
    x = OP(&m, matmul, f32, IN(&m, f32, "3x?x7"), IN(&m, f32, "3x7x64"));
    computed(&m, TRANSPOSE(&m, f32, x, 1, 0, 2), "dynamic_mx", true);
    EXPECT(&m, "MatMul(f32[3 ? 7], f32[3 7 64]) -> f32[3 ? 64] | DynamicQuantize(f32[3 ? 64]) -> "
               "s8[3 ? 64] | "
               "StaticTranspose(s8[3 ? 64]) -> s8[? 3 64]! | StaticTranspose(e8m0[3 ? 2]) -> "
               "e8m0[? 3 2]!");
    /* Groups of 32 across heads of 16. */
    mini_begin(&m, engine);
    x = OP(&m, matmul, f32, IN(&m, f32, "5x3x7"), IN(&m, f32, "5x7x16"));
    computed(
        &m,
        RESHAPE(&m, f32, OP(&m, matmul, f32, IN(&m, f32, "5x4x7"), IN(&m, f32, "5x7x16")), 5, 64),
        "dynamic_mx", true);
    EXPECT(&m, "MatMul(f32[5 3 7], f32[5 7 16]) -> f32[5 3 16]! | MatMul(f32[5 4 7], f32[5 7 16]) "
               "-> f32[5 4 16] | "
               "DynamicQuantize(f32[5 4 16]) -> s8[5 4 16] | StaticReshape(s8[5 4 16]) -> s8[5 "
               "64]! | StaticReshape(e8m0[5 2 1]) -> e8m0[5 2]!");
    /* A scalar has no dims to look through, the last dim stays where it is, a split may not be
     * seen in the output's strides, an input needs no kernel. */
    mini_begin(&m, engine);
    x = OP(&m, matmul, f32, IN(&m, f32, "3x7"), IN(&m, f32, "7x64"));
    computed(&m, RESHAPE(&m, f32, x, 192), "dynamic_symmetric", false);
    EXPECT(&m, "MatMul(f32[3 7], f32[7 64]) -> f32[3 64] | StaticReshape(f32[3 64]) -> f32[192] | "
               "DynamicQuantize(f32[192]) -> s8[192]!");
    mini_begin(&m, engine);
    x = OP(&m, matmul, f32, IN(&m, f32, "32x7"), IN(&m, f32, "7x64"));
    computed(&m, TRANSPOSE(&m, f32, x, 1, 0), "dynamic_mx", true);
    EXPECT(&m, "MatMul(f32[32 7], f32[7 64]) -> f32[32 64] | StaticTranspose(f32[32 64]) -> f32[64 "
               "32] | DynamicQuantize(f32[64 32]) -> s8[64 32]!");
    mini_begin(&m, engine);
    x = OP(&m, matmul, f32, IN(&m, f32, "3x7"), IN(&m, f32, "7x64"));
    computed(&m, RESHAPE(&m, f32, x, 3, 2, 32), "dynamic_mx", true);
    EXPECT(&m, "MatMul(f32[3 7], f32[7 64]) -> f32[3 64] | StaticReshape(f32[3 64]) -> f32[3 2 32] "
               "| DynamicQuantize(f32[3 2 32]) -> s8[3 2 32]!");
    mini_begin(&m, engine);
    computed(&m, TRANSPOSE(&m, f32, IN(&m, f32, "3x2x32"), 1, 0, 2), "dynamic_mx", true);
    EXPECT(&m, "StaticTranspose(f32[3 2 32]) -> f32[2 3 32] | DynamicQuantize(f32[2 3 32]) -> s8[2 "
               "3 32]!");
    /* No elements have one scale, which is no view of the scales of none. */
    mini_begin(&m, engine);
    x = RESHAPE(&m, f32, OP(&m, matmul, f32, IN(&m, f32, "7"), IN(&m, f32, "7x0")), 0);
    const lt_t outs[2] = {mini_tensor(&m, sinter_s8, "*"), mini_tensor(&m, sinter_f32, "1")};
    const attr_t attrs[] = {STR(quantization_kind, "dynamic_symmetric"), STR(qtype, "per_tensor")};
    mini_add(&m, sinter_op_dynamic_quantize, &x, 1, outs, 2, attrs, 2);
    EXPECT(&m, "MatMul(f32[7], f32[7 0]) -> f32[0] | StaticReshape(f32[0]) -> f32[0] | "
               "DynamicQuantize(f32[0]) -> s8[0]!");
}

/* ---- {y = op(x); } = {}, y unused ------------------------------------------------------------ */

static void test_dead_code(sinter_engine_t *engine)
{
    const char *algebra = "{y = op(x); } = {}, y unused";
    mini_t m;
    mini_begin(&m, engine);
    const lt_t x = IN(&m, f32, "3"), y = OP(&m, exp, f32, OP(&m, abs, f32, x));
    OP(&m, relu, f32, x);
    CHECK(mini_end(&m) == sinter_success, "builds");
    m.g.values[graph_find_value(&m.g, y.id)].is_output =
        false; /* and its op below it has no other use */
    sinter_status_t status = graph_prune(&m.g);
    status = status == sinter_success ? graph_sort(&m.g) : status;
    status = status == sinter_success ? graph_verify(&m.g, "dead_code") : status;
    CHECK(status == sinter_success, "%s", sinter_last_error_message());
    CHECK(strcmp(describe(&m.g), "ReLU(f32[3]) -> f32[3]!") == 0, "got: %s", text);
    tested[n_tested++] = algebra;
    graph_free(&m.g);
}

/* ---- all ------------------------------------------------------------------------------------- */

static void build_all(mini_t *m)
{
    const lt_t q =
        OP(m, type_cast, f16,
           OPA(m, dequantize, f32, ATTRS(F32S(scales, 0.5f), S64S(zps, 3)), IN(m, u8, "2x4x5x32")));
    lt_t k = RESHAPE(m, f16, dequant(m, "per_group", "2x64x32", "2x8x32", "2x4x1"), 2, 4, 16, 32);
    k = TRANSPOSE(m, f16, k, 0, 1, 3, 2);
    const lt_t p = OPA(m, softmax, f16, ATTRS(S64S(axis, -1)), OP(m, matmul, f32, q, k));
    const lt_t out = OP(m, matmul, f16, p, dequant(m, "per_group", "2x4x16x8", "2x4x16x1", NULL));
    OP(m, type_cast, f32, TRANSPOSE(m, f16, out, 0, 2, 1, 3));
}

static void test_pipeline(sinter_engine_t *engine)
{
    mini_t m;
    mini_begin(&m, engine);
    build_all(&m);
    sinter_status_t status = mini_end(&m);
    status = status == sinter_success ? passes_run(&m.g) : status;
    CHECK(status == sinter_success, "%s", sinter_last_error_message());
    const char *end = "MatMul(u8[2 4 5 32]{}, s8[2 4 32 16]{f16[2 4 32 2], u8[2 4 1 1]}) -> f32[2 "
                      "4 5 16] | SoftMax(f32[2 4 5 16]) -> f32[2 4 5 16] | "
                      "MatMul(f32[2 4 5 16], s8[2 4 16 8]{f16[2 4 16 1]}) -> f32[2 4 5 8] | "
                      "TypeCast(f32[2 4 5 8]) -> f32[2 4 5 8] | "
                      "StaticTranspose(f32[2 4 5 8]) -> f32[2 5 4 8]!";
    const char *got = describe(&m.g);
    CHECK(strlen(got) > strlen(end) && strcmp(got + strlen(got) - strlen(end), end) == 0,
          "got:\n  %s\nexpected at its end:\n  %s", got, end);
    /* A second run finds nothing to do. */
    char before[sizeof(text)];
    strcpy(before, got);
    CHECK(passes_run(&m.g) == sinter_success && strcmp(describe(&m.g), before) == 0,
          "not stable: %s", text);
    graph_free(&m.g);
}

static void test_out_of_memory(void)
{
    mini_heap_t heap = {.budget = -1};
    sinter_engine_t engine = {.refs = 1,
                              .allocator = {mini_heap_alloc, mini_heap_free, &heap},
                              .features = {NEEDS_NOTHING}};
    bool done = false;
    long n = 0;
    for (; n < 1000 && !done; n++) {
        mini_t m;
        mini_begin(&m, &engine);
        for (int i = 0; i < 20; i++) { /* more than fits into the blocks that are there already */
            build_all(&m);
        }
        const bool made = mini_end(&m) == sinter_success;
        heap.budget = n;
        const sinter_status_t status = passes_run(&m.g);
        heap.budget = -1;
        CHECK(made && (status == sinter_success || status == sinter_out_of_memory),
              "allocation %ld: status %d: %s", n, (int)status, sinter_last_error_message());
        done = status == sinter_success;
        graph_free(&m.g);
        CHECK(heap.live == 0, "allocation %ld: %ld blocks leaked", n, heap.live);
    }
    CHECK(done && n > 3, "passes allocated %ld times", n);
}

/* ---- f(x) = f(Reorder(x)), x in tiles that f does not read ----------------------------------- */

static lt_t in_tiles(lt_t lt, sinter_weights_part_t part)
{
    CHECK_THAT(sinter_logical_tensor_set_weights_layout(&lt, part, 0, 0) == sinter_success);
    return lt;
}

static void test_unpack(sinter_engine_t *engine)
{
    const char *algebra = "f(x) = f(Reorder(x)), x in tiles that f does not read";
    mini_t m;
    mini_begin(&m, engine);
    const lt_t x = in_tiles(IN(&m, f32, "32x16"), sinter_weights_values);
    OP(&m, add, f32, x, x);
    OP(&m, square, f32, x);
    EXPECT(&m, "Reorder(f32[32 16]#4) -> f32[32 16] | Add(f32[32 16], f32[32 16]) -> f32[32 16]! | "
               "Square(f32[32 16]) -> f32[32 16]!");
    /* A Reorder unpacks by itself. */
    mini_begin(&m, engine);
    OP(&m, square, f32, OP(&m, reorder, f32, in_tiles(IN(&m, f32, "16"), sinter_weights_values)));
    EXPECT(&m, "Reorder(f32[16]#4) -> f32[16] | Square(f32[16]) -> f32[16]!");
}

/* ---- MatMul(y, dequant(x : any, s : any)) = MatMul(y, dequant(x : tiles, s : tiles)) --------- */

static lt_t with_strides(lt_t lt)
{
    lt_set_dense(&lt);
    return lt;
}

static void test_choose_layouts(sinter_engine_t *engine)
{
    const char *algebra =
        "MatMul(y, dequant(x : any, s : any)) = MatMul(y, dequant(x : tiles, s : tiles))";
    mini_t m;
    mini_begin(&m, engine);
    OP(&m, matmul, f32, IN(&m, f16, "5x16"), dequant(&m, "per_group", "16x32", "2x32", "4x32"));
    EXPECT(&m, "DynamicDequantize(s8[16 32]#2, f16[2 32]#4, u8[4 32]#4) -> f16[16 32] | "
               "MatMul(f16[5 16], f16[16 32]) -> f32[5 32]!");
    mini_begin(&m, engine);
    OPA(&m, matmul, f32, ATTRS(BOOL(transpose_b, true)), IN(&m, f16, "5x32"),
        dequant(&m, "per_group", "16x32", "16x1", NULL));
    EXPECT(&m, "DynamicDequantize(s8[16 32]#1, f16[16 1]#3) -> f16[16 32] | "
               "MatMul(f16[5 32], f16[16 32]) -> f32[5 16]!");
    mini_begin(&m, engine);
    OP(&m, matmul, f32, IN(&m, f16, "2x5x16"), dequant(&m, "per_group", "2x16x32", "2x2x32", NULL));
    EXPECT(&m, "DynamicDequantize(s8[2 16 32]#2, f16[2 2 32]#4) -> f16[2 16 32] | "
               "MatMul(f16[2 5 16], f16[2 16 32]) -> f32[2 5 32]!");
    /* All parts or none: one has strides, or several dims of matrices; and the first operand. */
    mini_begin(&m, engine);
    const lt_t strided[] = {IN(&m, s8, "16x32"), with_strides(IN(&m, f16, "2x32"))};
    OP(&m, matmul, f32, IN(&m, f16, "5x16"),
       mini_op(&m, sinter_op_dynamic_dequantize, sinter_f16, strided, 2,
               ATTRS(STR(qtype, "per_group"))));
    EXPECT(&m, "DynamicDequantize(s8[16 32], f16[2 32]) -> f16[16 32] | "
               "MatMul(f16[5 16], f16[16 32]) -> f32[5 32]!");
    mini_begin(&m, engine);
    OP(&m, matmul, f32, dequant(&m, "per_group", "16x32", "2x32", NULL), IN(&m, f16, "32x5"));
    EXPECT(&m, "DynamicDequantize(s8[16 32], f16[2 32]) -> f16[16 32] | "
               "MatMul(f16[16 32], f16[32 5]) -> f32[16 5]!");
}

static void test_all_tested(void)
{
    for (int i = 0; i < sinter_n_passes; i++) {
        bool found = false;
        for (int k = 0; k < n_tested; k++) {
            found = found || strcmp(tested[k], sinter_passes[i].algebra) == 0;
        }
        CHECK(found, "pass %s has no test headed by its algebra", sinter_passes[i].name);
    }
}

int main(void)
{
    sinter_engine_t *engine = engine_ref(NULL);
    test_infer_shapes(engine);
    test_matmul_2d(engine);
    test_drop_dropout(engine);
    test_conv_weights(engine);
    test_plain_attention(engine);
    test_drop_casts(engine);
    test_widen(engine);
    test_raise_slices(engine);
    test_sink_dequant(engine);
    test_sink_views(engine);
    test_sink_quantise(engine);
    test_dead_code(engine);
    test_unpack(engine);
    test_choose_layouts(engine);
    test_all_tested();
    test_pipeline(engine);
    test_out_of_memory();
    engine_unref(engine);
    return check_finish();
}
