/* Quantising tails: what fits a step's blocks is quantised there, what does not is a step of its
 * own and says why; both give what the oracle gives, with any number of threads, and strict
 * products are never rounded to the type that the graph names for them. SINTER_RANDOM_SEED makes
 * other numbers. */
#define _POSIX_C_SOURCE 200809L

#include <math.h>

#include "check.h"
#include "plan_rig.h"
#include "random.h"

/* ---- graphs ---------------------------------------------------------------------------------- */

typedef enum maker {
    MATMUL,
    PLAIN,
    BATCHED,
    SHARED,
    CHAIN,
    KEPT,
    ATTENTION,
    GQA,
    MERGED,
    MLP
} maker_t;

typedef struct tail_case {
    maker_t maker;
    const char *out;  /* dims of the quantised value; ? is not known at compile */
    int unknown;      /* what ? turns out to be */
    const char *kind; /* quantization_kind */
    sinter_data_type_t code, scale, zp;
    bool tensor_scale;
    int group[2];             /* rows, columns */
    sinter_data_type_t named; /* of what is quantised */
    sinter_fpmath_mode_t mode;
    const char *steps, *reason; /* the plan; why the quantisation is a step of its own */
} tail_case_t;

static lt_t in_dims(mini_t *m, sinter_data_type_t type, int ndims, const int64_t *dims)
{
    lt_t lt = mini_tensor(m, type, "");
    lt.ndims = ndims;
    memcpy(lt.dims, dims, sizeof(int64_t) * (size_t)ndims);
    return lt;
}

/* a[.., rows, k] b[.., k, cols]; shared: b has no batch dims. */
static lt_t product(mini_t *m, const tail_case_t *c, const lt_t *out, int64_t k, bool shared)
{
    int64_t a[SINTER_MAX_NDIMS], b[SINTER_MAX_NDIMS];
    const int n = out->ndims;
    memcpy(a, out->dims, sizeof(a));
    memcpy(b, out->dims, sizeof(b));
    a[n - 1] = k;
    b[n - 2] = k;
    const lt_t x = in_dims(m, sinter_bf16, n, a),
               w = shared ? in_dims(m, sinter_f32, 2, b + n - 2) : in_dims(m, sinter_f32, n, b);
    return mini_op(m, sinter_op_matmul, c->named, (lt_t[]){x, w}, 2, NULL, 0);
}

enum { D = 24, T = 300 }; /* channels of a head, tokens */

/* Q K and V with `heads` of their own for each head of K and V. */
static lt_t attention(mini_t *m, const tail_case_t *c, const lt_t *out, bool gqa)
{
    const int n = out->ndims;
    int64_t q[SINTER_MAX_NDIMS], k[SINTER_MAX_NDIMS], v[SINTER_MAX_NDIMS];
    memcpy(q, out->dims, sizeof(q));
    memcpy(k, out->dims, sizeof(k));
    memcpy(v, out->dims, sizeof(v));
    q[n - 1] = k[n - 2] = D;
    k[n - 1] = v[n - 2] = T;
    k[n - 3] = v[n - 3] = gqa ? 1 : k[n - 3];
    const lt_t s = OP(m, matmul, f32, in_dims(m, sinter_f32, n, q), in_dims(m, sinter_f32, n, k));
    const lt_t scaled = OP(m, multiply, f32, s, IN(m, f32, "1"));
    const lt_t p = OPA(m, softmax, f32, ATTRS(S64S(axis, -1)), scaled);
    return mini_op(m, sinter_op_matmul, c->named, (lt_t[]){p, in_dims(m, sinter_bf16, n, v)}, 2,
                   NULL, 0);
}

/* Attention of three heads with the heads beside each other, out[batch, queries, 3 columns]; an
 * unknown number of queries stays where it is. */
static lt_t merged_heads(mini_t *m, const tail_case_t *c, const lt_t *out)
{
    lt_t heads = *out;
    heads.ndims = 4;
    heads.dims[1] = 3;
    heads.dims[2] = out->dims[1];
    heads.dims[3] = out->dims[2] / 3;
    const lt_t y = attention(m, c, &heads, false);
    const lt_t turned =
        mini_op(m, sinter_op_static_transpose, c->named, &y, 1, ATTRS(S64S(order, 0, 2, 1, 3)));
    return mini_op(m, sinter_op_static_reshape, c->named, &turned, 1,
                   ATTRS(S64S(shape, 0, 0, -1), BOOL(special_zero, true)));
}

static lt_t make(mini_t *m, const tail_case_t *c)
{
    const lt_t out = mini_tensor(m, c->named, c->out);
    lt_t x, y;
    switch (c->maker) {
    case MATMUL:
        x = product(m, c, &out, 65, false);
        x = OP(m, add, f32, x, in_dims(m, sinter_f32, 1, out.dims + out.ndims - 1));
        return mini_op(m, sinter_op_abs, c->named, &x, 1, NULL, 0);
    case PLAIN:
    case BATCHED:
        return product(m, c, &out, 130, false);
    case SHARED:
        return product(m, c, &out, 40, true);
    case CHAIN:
    case KEPT:
        x = in_dims(m, sinter_bf16, out.ndims, out.dims);
        y = OP(m, sigmoid, f32, x);
        x = mini_op(m, sinter_op_multiply, c->named, (lt_t[]){x, y}, 2, NULL, 0);
        if (c->maker == KEPT) {
            mini_output(m, x);
        }
        return x;
    case MERGED:
        return merged_heads(m, c, &out);
    case ATTENTION:
    case GQA:
        return attention(m, c, &out, c->maker == GQA);
    default:
        x = OP(m, sigmoid, f32, product(m, c, &out, 48, true));
        return mini_op(m, sinter_op_multiply, c->named, (lt_t[]){x, product(m, c, &out, 48, true)},
                       2, NULL, 0);
    }
}

/* Signed integers of the mx kinds get numbers of which the largest, 127.5 times their scale, would
 * round to 128. */
static lt_t bounded(mini_t *m, const tail_case_t *c, lt_t x)
{
    const bool mx = strncmp(c->kind, "dynamic_mx", strlen("dynamic_mx")) == 0;
    const attr_t ends[] = {F32S(min, -1.9921875f), F32S(max, 1.9921875f)};
    return mx && c->code == sinter_s8 ? mini_op(m, sinter_op_clamp, c->named, &x, 1, ends, 2) : x;
}

static void quantise(mini_t *m, const tail_case_t *c, lt_t x)
{
    x = bounded(m, c, x);
    const lt_t outs[3] = {mini_tensor(m, c->code, "*"), mini_tensor(m, c->scale, "*"),
                          mini_tensor(m, c->zp, "*")};
    const bool zp = c->zp != sinter_data_type_undef;
    int64_t shape[SINTER_MAX_NDIMS];
    const lt_t out = mini_tensor(m, c->named, c->out);
    for (int d = 0; d < out.ndims; d++) {
        shape[d] = d == out.ndims - 1 ? c->group[1] : d == out.ndims - 2 ? c->group[0] : 1;
    }
    const attr_t attrs[] = {
        {.id = sinter_op_attr_quantization_kind, .n = 1, .str = c->kind},
        STR(qtype, "per_group"),
        {.id = sinter_op_attr_group_shape, .n = (size_t)out.ndims, .s64 = shape}};
    const lt_t ins[2] = {x, mini_tensor(m, sinter_f32, "")};
    mini_add(m, sinter_op_dynamic_quantize, ins, c->tensor_scale ? 2 : 1, outs, zp ? 3 : 2, attrs,
             3);
}

/* ---- running --------------------------------------------------------------------------------- */

static uint64_t state;

static double uniform(void)
{
    return random_signed(&state);
}

static bool attends(const tail_case_t *c)
{
    return c->maker == ATTENTION || c->maker == GQA || c->maker == MERGED;
}

/* Bounds of codes must check something whatever the random numbers are. Scores of some hundred that
 * are rounded to bf16 leave softmax open: queries are small. A sum that cancels to nearly nothing
 * has a bound larger than itself, and where it is a group of its own, its scale is open: then no
 * number is negative. */
static double number_for(const tail_case_t *c, const lt_t *lt)
{
    const int n = lt->ndims;
    const bool queries = attends(c) && n > 1 && lt->dims[n - 1] == D && lt->dims[n - 2] != T;
    const double x = uniform();
    return queries ? x / 16 : c->group[0] * c->group[1] == 1 ? fabs(x) : x;
}

/* Some rows are larger than others by powers of two, so that scales differ. A scalar is the scale
 * of the tensor, a special one is 0. */
static void fill(const tail_case_t *c, plan_buffers_t *b, int i, bool special)
{
    const lt_t *lt = &b->lt[i];
    const int64_t n = lt_elems(lt), cols = lt->ndims > 0 ? lt->dims[lt->ndims - 1] : 1;
    for (int64_t e = 0; e < n; e++) {
        const double v =
            lt->ndims == 0 ? (special ? 0 : 0.375)
                           : number_for(c, lt) * ldexp(1, (int)(e / (cols > 0 ? cols : 1) % 5) - 2);
        orc_encode(lt->data_type, b->data[i] + PLAN_GUARD, e, v);
    }
    if (special && i == 0 && n > 2) {
        orc_encode(lt->data_type, b->data[i] + PLAN_GUARD, n / 2, NAN);
        orc_encode(lt->data_type, b->data[i] + PLAN_GUARD, n - 1, INFINITY);
    }
}

static void make_inputs(const tail_case_t *c, const planned_t *p, plan_buffers_t *in, bool special)
{
    for (int i = 0; i < p->part.n_inputs; i++) {
        lt_t lt = p->part.sub.values[p->in[i]].lt;
        for (int d = 0; d < lt.ndims; d++) {
            lt.dims[d] = lt.dims[d] == SINTER_UNKNOWN_DIM ? c->unknown : lt.dims[d];
        }
        lt.layout_type = sinter_layout_type_strided;
        lt_set_dense(&lt);
        plan_buffer(in, &lt, 0x5A);
        fill(c, in, in->n - 1, special);
    }
}

static void check_output(const tail_case_t *c, const orc_result_t *want, const lt_t *lt,
                         const unsigned char *data, bool special, int line)
{
    orc_diff_t diff = {0};
    const int bad = orc_compare(want, lt, data, &diff);
    char text[300];
    check_at(!bad, line, "tensor %llu: %s", (unsigned long long)lt->id,
             orc_diff_text(&diff, text, sizeof text));
    /* A rounding to bf16 would change one code in thirty. */
    check_at(lt->data_type != c->code || c->mode != sinter_fpmath_mode_strict || special ||
                 diff.differ <= diff.n / 400 + 2,
             line, "%zu of %zu codes differ", diff.differ, diff.n);
}

/* Executes on `threads` threads, in scratch memory of the size that was asked for, and compares
 * with the oracle's results. */
static void execute(const tail_case_t *c, planned_t *p, plan_buffers_t *in,
                    const orc_result_t *want, int threads, bool special, int line)
{
    plan_buffers_t out = {.n = 0};
    lt_t inferred[PLAN_PORTS];
    const size_t n_out = (size_t)p->part.n_outputs;
    sinter_stream_t *stream = NULL;
    const sinter_stream_desc_t desc = {.size = sizeof(desc), .threads = threads, .all_threads = 1};
    const sinter_tensor_t *const *ins = (const sinter_tensor_t *const *)in->tensor;
    size_t bytes = 0;
    sinter_stream_create(&stream, NULL, &desc);
    sinter_status_t status = sinter_compiled_partition_get_scratchpad_bytes(
        p->cp, stream, (size_t)in->n, ins, &bytes, NULL);
    check_at(status == sinter_success, line, "%s", sinter_last_error_message());
    unsigned char *scratch = malloc(bytes);
    status = sinter_compiled_partition_infer_outputs(p->cp, (size_t)in->n, ins, n_out, inferred);
    for (size_t i = 0; i < n_out && status == sinter_success; i++) {
        plan_buffer(&out, &inferred[i], 0xA5);
    }
    status = status == sinter_success
                 ? sinter_compiled_partition_execute(p->cp, stream, (size_t)in->n, ins, n_out,
                                                     out.tensor, scratch, bytes)
                 : status;
    check_at(status == sinter_success, line, "%s", sinter_last_error_message());
    free(scratch);
    check_at(plan_guarded(in, 0x5A) && plan_guarded(&out, 0xA5), line, "written outside");
    for (size_t i = 0; i < n_out && status == sinter_success; i++) {
        check_output(c, &want[i], &inferred[i], out.data[i] + PLAN_GUARD, special, line);
    }
    sinter_stream_destroy(&stream);
    plan_buffers_free(&out);
}

static void check_results(const tail_case_t *c, planned_t *p, bool special, int line)
{
    plan_buffers_t in = {.n = 0};
    orc_result_t want[PLAN_PORTS];
    uint64_t ids[PLAN_PORTS];
    char err[256] = "";
    const size_t n_out = (size_t)p->part.n_outputs;
    make_inputs(c, p, &in, special);
    for (size_t i = 0; i < n_out; i++) {
        ids[i] = p->part.sub.values[p->out[i]].lt.id;
    }
    const int failed =
        plan_oracle(&p->m->g, c->mode, false, &in, n_out, ids, want, err, sizeof(err));
    check_at(!failed, line, "oracle: %s", err);
    for (int threads = 1; threads <= 3 && !failed; threads += 2) {
        execute(c, p, &in, want, threads, special, line);
    }
    for (size_t i = 0; i < n_out && !failed; i++) {
        orc_result_free(&want[i]);
    }
    plan_buffers_free(&in);
}

static void run(const tail_case_t *c, sinter_engine_t *engine, int line)
{
    mini_t m;
    planned_t p;
    char steps[256];
    mini_begin(&m, engine);
    quantise(&m, c, make(&m, c));
    sinter_status_t status = mini_end(&m);
    planned_part(&p, &m,
                 c->maker >= ATTENTION && c->maker <= MERGED ? FAMILY_ATTENTION : FAMILY_GENERAL,
                 c->mode, false);
    for (int i = 0; i < m.g.n_nodes; i++) { /* the first product is the scores */
        m.g.nodes[i].role = i == 0 ? "qk" : "";
    }
    status = status == sinter_success ? planned_compile(&p, &(compile_ports_t){0}) : status;
    check_at(status == sinter_success, line, "%s", sinter_last_error_message());
    if (status == sinter_success) {
        check_at(strcmp(planned_steps(&p, steps, sizeof(steps)), c->steps) == 0, line,
                 "steps \"%s\", not \"%s\"", steps, c->steps);
        const char *report = p.cp->report,
                   *why = strstr(report, "not part of the step that makes its data: ");
        check_at((c->reason == NULL) == (why == NULL) &&
                     (why == NULL || strstr(why, c->reason) != NULL),
                 line, "report:\n%s", report);
        check_at((strstr(report, "quantises its result to") != NULL) == (c->reason == NULL), line,
                 "report:\n%s", report);
        check_results(c, &p, false, line);
        check_results(c, &p, true, line);
    }
    planned_free(&p);
}

/* ---- into a cache ---------------------------------------------------------------------------- */

/* Three tokens of a cache with room for CAPACITY, dims [batch, token, width]. */
enum { CAPACITY = 9 };

static lt_t slice(const lt_t *dense)
{
    lt_t lt = *dense;
    lt.layout_type = sinter_layout_type_strided;
    lt.strides[2] = 1;
    lt.strides[1] = lt.dims[2];
    lt.strides[0] = CAPACITY * lt.dims[2];
    return lt;
}

static void run_slice(planned_t *p, plan_buffers_t *in, const lt_t *lts, plan_buffers_t *out,
                      int threads, unsigned char poison, int line)
{
    sinter_stream_t *stream = NULL;
    const sinter_stream_desc_t desc = {.size = sizeof(desc), .threads = threads, .all_threads = 1};
    const sinter_tensor_t *const *ins = (const sinter_tensor_t *const *)in->tensor;
    for (int i = 0; i < p->part.n_outputs; i++) {
        plan_buffer(out, &lts[i], poison);
    }
    sinter_stream_create(&stream, NULL, &desc);
    const sinter_status_t status = sinter_compiled_partition_execute(
        p->cp, stream, (size_t)in->n, ins, (size_t)p->part.n_outputs, out->tensor, NULL, 0);
    check_at(status == sinter_success && plan_guarded(out, poison), line, "%s",
             sinter_last_error_message());
    sinter_stream_destroy(&stream);
}

/* A projection into a slice of a cache: codes, scales and zero points are what the oracle says,
 * all other bytes stay. */
static void append(const tail_case_t *c, sinter_engine_t *engine, int threads, int line)
{
    mini_t m;
    planned_t p;
    plan_buffers_t in = {.n = 0}, out[2] = {{.n = 0}, {.n = 0}};
    orc_result_t want[PLAN_PORTS];
    uint64_t ids[PLAN_PORTS];
    lt_t lts[PLAN_PORTS];
    char err[256] = "", steps[64];
    mini_begin(&m, engine);
    quantise(&m, c, make(&m, c));
    sinter_status_t status = mini_end(&m);
    planned_part(&p, &m, FAMILY_GENERAL, c->mode, false);
    const size_t n = (size_t)p.part.n_outputs;
    for (size_t i = 0; i < n; i++) {
        lts[i] = slice(&m.g.values[p.out[i]].lt);
        ids[i] = lts[i].id;
    }
    status = status == sinter_success
                 ? planned_compile(&p, &(compile_ports_t){.n_out = n, .out = lts})
                 : status;
    check_at(status == sinter_success &&
                 strcmp(planned_steps(&p, steps, sizeof(steps)), c->steps) == 0,
             line, "%s", sinter_last_error_message());
    make_inputs(c, &p, &in, false);
    run_slice(&p, &in, lts, &out[0], threads, 0xA5, line);
    run_slice(&p, &in, lts, &out[1], threads, 0x5A, line);
    const int failed = plan_oracle(&m.g, c->mode, false, &in, n, ids, want, err, sizeof(err));
    check_at(!failed, line, "oracle: %s", err);
    for (size_t i = 0; i < n && !failed; i++) {
        lt_t dense = m.g.values[p.out[i]].lt;
        size_t bytes = 0, written = 0;
        lt_set_dense(&dense);
        lt_bytes(&dense, &bytes);
        for (size_t k = 0; k < out[0].bytes[i]; k++) { /* what is not written differs */
            written += out[0].data[i][PLAN_GUARD + k] == out[1].data[i][PLAN_GUARD + k];
        }
        check_at(written == bytes, line, "%zu of %zu bytes written", written, bytes);
        check_output(c, &want[i], &lts[i], out[0].data[i] + PLAN_GUARD, false, line);
        orc_result_free(&want[i]);
    }
    plan_buffers_free(&in);
    plan_buffers_free(&out[0]);
    plan_buffers_free(&out[1]);
    planned_free(&p);
}

/* ---- cases ----------------------------------------------------------------------------------- */

#define MX "dynamic_mx", sinter_f8_e4m3, sinter_e8m0, 0, false
#define MX4 "dynamic_mx", sinter_f4_e2m1, sinter_e8m0, 0, false
#define MX8 "dynamic_mx", sinter_s8, sinter_e8m0, 0, false
#define RCEIL "dynamic_mx_rceil", sinter_f8_e5m2, sinter_e8m0, 0, false
#define SYM "dynamic_symmetric", sinter_s8, sinter_f32, 0, false
#define SYM6 "dynamic_symmetric", sinter_f6_e2m3, sinter_bf16, 0, false
#define ASYM "dynamic_asymmetric", sinter_u4, sinter_f16, sinter_u4, false
#define ASYM8 "dynamic_asymmetric", sinter_u8, sinter_f32, sinter_s32, false
#define NV "dynamic_nv", sinter_f4_e2m1, sinter_f8_e4m3, 0, false
#define NV_SCALED "dynamic_nv", sinter_f4_e2m1, sinter_f8_e4m3, 0, true
#define STRICT sinter_f32, sinter_fpmath_mode_strict
#define NAMED sinter_bf16, sinter_fpmath_mode_strict
#define BF16 sinter_bf16, sinter_fpmath_mode_bf16

static const tail_case_t cases[] = {
    /* groups along the columns: several panels, and rows of several blocks */
    {MATMUL, "9x320", 0, MX, {1, 32}, STRICT, "matmul", NULL},
    {MATMUL, "150x96", 0, MX4, {1, 32}, NAMED, "matmul", NULL},
    {MATMUL, "33x576", 0, RCEIL, {1, 64}, NAMED, "matmul", NULL},
    {PLAIN, "40x768", 0, SYM, {1, 128}, NAMED, "matmul", NULL},
    {PLAIN, "5x512", 0, ASYM, {1, 16}, BF16, "matmul", NULL},
    {PLAIN, "12x384", 0, NV, {1, 16}, NAMED, "matmul", NULL},
    {PLAIN, "12x768", 0, SYM6, {1, 192}, NAMED, "matmul", NULL},
    {MATMUL, "7x96", 0, ASYM8, {1, 48}, BF16, "matmul", NULL},
    {PLAIN,
     "6x45",
     0,
     ASYM,
     {1, 15},
     NAMED,
     "matmul",
     NULL}, /* nibbles shared by rows and by groups */
    {PLAIN, "30x250", 0, MX4, {1, 125}, NAMED, "matmul", NULL},
    {PLAIN, "4x200", 0, SYM, {1, 200}, NAMED, "matmul", NULL}, /* a token of few columns */
    {PLAIN, "70x33", 0, SYM, {1, 1}, NAMED, "matmul", NULL},
    /* with a scale of the tensor, which is read once there is data: few rows, many, elementwise,
     * attention */
    {PLAIN, "3x512", 0, NV_SCALED, {1, 16}, NAMED, "matmul", NULL},
    {PLAIN, "40x384", 0, NV_SCALED, {1, 16}, NAMED, "matmul", NULL},
    {CHAIN, "5x64", 0, NV_SCALED, {1, 16}, NAMED, "chain", NULL},
    {ATTENTION, "1x2x5x48", 0, NV_SCALED, {1, 16}, NAMED, "attention", NULL},
    /* groups of several rows */
    {PLAIN, "64x96", 0, SYM, {4, 4}, NAMED, "matmul", NULL},
    {PLAIN, "160x80", 0, MX, {32, 1}, NAMED, "matmul", NULL},
    {MATMUL, "256x64", 0, ASYM, {128, 2}, NAMED, "matmul", NULL},
    {BATCHED, "3x8x64", 0, MX, {8, 32}, NAMED, "matmul", NULL},
    {SHARED,
     "5x16x64",
     0,
     SYM,
     {16, 16},
     NAMED,
     "matmul",
     NULL}, /* rows of all batches in one block */
    {SHARED, "2x3x70x64", 0, MX, {1, 32}, NAMED, "matmul", NULL},
    /* dims that only execute knows */
    {PLAIN, "?x320", 17, MX, {1, 32}, NAMED, "matmul", NULL},
    {SHARED, "3x?x64", 40, SYM, {8, 32}, NAMED, "matmul", NULL},
    {PLAIN, "6x?", 640, MX, {1, 32}, NAMED, "matmul", NULL},
    {MATMUL, "?x64", 0, MX, {1, 32}, NAMED, "matmul", NULL},
    /* what does not fit */
    {PLAIN,
     "4x640",
     0,
     SYM,
     {1, 640},
     NAMED,
     "matmul dynquant",
     "groups of columns reach over panels"},
    {PLAIN,
     "48x64",
     0,
     SYM,
     {48, 1},
     NAMED,
     "matmul dynquant",
     "groups of rows do not divide a block of rows"},
    {PLAIN,
     "256x64",
     0,
     MX,
     {256, 32},
     NAMED,
     "matmul dynquant",
     "groups of rows do not divide a block of rows"},
    /* elementwise */
    {CHAIN, "9x320", 0, MX, {1, 32}, NAMED, "chain", NULL},
    {CHAIN, "2x3x4x32", 0, MX4, {1, 32}, NAMED, "chain", NULL},
    {CHAIN, "70x45", 0, ASYM, {1, 9}, NAMED, "chain", NULL},
    {CHAIN, "16x12", 0, SYM6, {4, 4}, NAMED, "chain", NULL},
    {CHAIN, "3x128x7", 0, SYM, {64, 1}, NAMED, "chain", NULL},
    {CHAIN, "1000", 0, SYM, {1, 250}, NAMED, "chain", NULL},
    {CHAIN, "?x64", 50, NV, {1, 16}, NAMED, "chain", NULL},
    {KEPT, "6x96", 0, RCEIL, {1, 32}, NAMED, "chain", NULL},
    {CHAIN,
     "4x512",
     0,
     SYM,
     {1, 512},
     NAMED,
     "chain dynquant",
     "groups longer than a run of 256 elements"},
    {CHAIN, "256x8", 0, SYM, {128, 4}, NAMED, "chain dynquant", "groups of more than 64 rows"},
    /* attention */
    {ATTENTION, "2x3x70x64", 0, MX, {1, 32}, NAMED, "attention", NULL},
    {ATTENTION,
     "1x2x1x96",
     0,
     SYM,
     {1, 32},
     NAMED,
     "attention",
     NULL}, /* keys are split among threads */
    {ATTENTION, "1x2x5x48", 0, SYM, {1, 48}, BF16, "attention", NULL},
    {GQA, "1x4x9x64", 0, MX4, {1, 32}, NAMED, "attention", NULL},
    {GQA, "1x4x?x64", 3, ASYM, {1, 16}, NAMED, "attention", NULL},
    {ATTENTION, "1x1x2x1024", 0, MX, {1, 32}, NAMED, "attention", NULL}, /* the head in chunks */
    {ATTENTION,
     "1x2x4x64",
     0,
     SYM,
     {4, 32},
     NAMED,
     "attention dynquant",
     "rows of attention are computed in an order of their own"},
    {ATTENTION,
     "1x1x2x1024",
     0,
     SYM,
     {1, 1024},
     NAMED,
     "attention dynquant",
     "groups of columns reach over chunks of the head"},
    /* heads beside each other */
    {MERGED, "2x5x192", 0, MX, {1, 32}, NAMED, "attention", NULL},
    {MERGED, "2x1x96", 0, ASYM, {1, 16}, NAMED, "attention", NULL},
    {MERGED, "1x?x144", 6, SYM6, {1, 48}, NAMED, "attention", NULL},
    {MERGED, "2x7x144", 0, NV, {1, 16}, BF16, "attention", NULL},
    {MERGED,
     "2x7x96",
     0,
     SYM,
     {1, 96},
     NAMED,
     "attention dynquant",
     "groups lie across other dims than the last two"},
    {MERGED, "2x7x96", 0, MX, {1, 12}, NAMED, "attention dynquant", "its data is a view"},
    /* as MX: integers whose least code is not their type's */
    {MATMUL, "9x320", 0, MX8, {1, 32}, STRICT, "matmul", NULL},
    {PLAIN, "64x96", 0, MX8, {4, 8}, STRICT, "matmul", NULL},
    {PLAIN,
     "48x640",
     0,
     MX8,
     {48, 1},
     STRICT,
     "matmul dynquant",
     "groups of rows do not divide a block of rows"},
    {CHAIN, "9x320", 0, MX8, {1, 32}, STRICT, "chain", NULL},
    {CHAIN, "70x45", 0, MX8, {1, 9}, STRICT, "chain", NULL},
    {ATTENTION, "2x3x70x64", 0, MX8, {1, 32}, STRICT, "attention", NULL},
    {GQA, "1x4x1x64", 0, MX8, {1, 16}, STRICT, "attention", NULL},
    /* two products, the second with the gate's result beside it */
    {MLP, "7x96", 0, MX, {1, 32}, NAMED, "matmul matmul", NULL},
    {MLP, "130x64", 0, SYM, {1, 64}, BF16, "matmul matmul", NULL},
};

static const tail_case_t appends[] = {
    {SHARED, "2x3x64", 0, MX, {1, 32}, NAMED, "matmul", NULL},
    {SHARED, "2x3x64", 0, MX4, {1, 32}, NAMED, "matmul", NULL},
    {SHARED, "2x3x64", 0, SYM6, {1, 32}, NAMED, "matmul", NULL},
    {SHARED, "2x3x64", 0, ASYM, {1, 16}, NAMED, "matmul", NULL},
    {SHARED, "2x3x64", 0, NV, {1, 16}, BF16, "matmul", NULL},
    {CHAIN, "2x3x64", 0, SYM, {1, 64}, NAMED, "chain", NULL},
    {CHAIN, "2x3x64", 0, ASYM, {1, 32}, NAMED, "chain", NULL},
    {CHAIN, "2x3x64", 0, MX4, {1, 32}, NAMED, "chain", NULL},
};

int main(int argc, char **argv)
{
    (void)argc;
    wait_passively(argv);
    sinter_engine_t *engine = engine_ref(NULL);
    const char *seed = getenv("SINTER_RANDOM_SEED");
    const uint64_t start = seed != NULL ? strtoull(seed, NULL, 0) * 1000 : 1000;
    for (int i = 0; i < MINI_N(cases); i++) {
        state = start + (uint64_t)i;
        run(&cases[i], engine, i);
    }
    for (int i = 0; i < MINI_N(appends); i++) {
        append(&appends[i], engine, 1, i);
        append(&appends[i], engine, 3, i);
    }
    engine_unref(engine);
    return check_finish();
}
