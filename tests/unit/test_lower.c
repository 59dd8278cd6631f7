/* The lowering: which steps a graph becomes, where its values live, why attention is given up;
 * random graphs are planned soundly and compute what the oracle says. test_lower ROUNDS runs
 * more of them. */
#define _POSIX_C_SOURCE 200809L
#if defined(_OPENMP)
#include <omp.h>
#endif

#include "check.h"
#include "plan_rig.h"
#include "random.h"

/* ---- random graphs --------------------------------------------------------------------------- */

static uint64_t seed = 1;

static int pick(int n)
{
    return random_below(&seed, n);
}

typedef struct tensor {
    lt_t lt; /* dims known */
    bool input;
} tensor_t;

/* A graph that is being built. Dims are small, so that many tensors fit each other. */
typedef struct maker {
    mini_t m;
    tensor_t t[96];
    int n;
    bool dynamic; /* dims of inputs are unknown to the graph */
    int64_t attr_ints[256];
    float attr_floats[256];
    int n_ints, n_floats;
} maker_t;

static lt_t with_dims(maker_t *k, sinter_data_type_t type, int ndims, const int64_t *dims,
                      bool input)
{
    lt_t lt = mini_tensor(&k->m, type, "");
    lt.ndims = ndims;
    memcpy(lt.dims, dims, sizeof(int64_t) * (size_t)ndims);
    lt_set_dense(&lt);
    k->t[k->n++] = (tensor_t){lt, input};
    return lt;
}

/* What the graph is told about it. */
static lt_t told(const maker_t *k, const lt_t *of, bool input)
{
    lt_t lt = *of;
    if (k->dynamic && input && lt.ndims > 0) {
        for (int d = 0; d < lt.ndims; d++) {
            lt.dims[d] = (of->id * 7 + (uint64_t)d) % 3 == 0 ? SINTER_UNKNOWN_DIM : lt.dims[d];
        }
        lt.layout_type = sinter_layout_type_any;
    }
    if (!input) { /* outputs: to be inferred */
        lt.ndims = SINTER_UNKNOWN_NDIMS;
        lt.layout_type = sinter_layout_type_any;
    }
    return lt;
}

static const tensor_t *find(const maker_t *k, uint64_t id)
{
    for (int i = 0; i < k->n; i++) {
        if (k->t[i].lt.id == id) {
            return &k->t[i];
        }
    }
    return NULL;
}

static void op(maker_t *k, sinter_op_kind_t kind, const lt_t *in, int n_in, lt_t out,
               const attr_t *attrs, int n_attrs)
{
    lt_t ins[4];
    for (int i = 0; i < n_in; i++) {
        ins[i] = told(k, &in[i], find(k, in[i].id)->input);
    }
    out = told(k, &out, false);
    mini_add(&k->m, kind, ins, n_in, &out, 1, attrs, n_attrs);
}

static bool is_f32(const lt_t *lt)
{
    return lt->data_type == sinter_f32;
}

/* A random f32 tensor of the graph, with preference for young ones. */
static lt_t any_float(const maker_t *k)
{
    for (;;) {
        const int i = pick(3) ? k->n - 1 - pick(k->n < 4 ? k->n : 4) : pick(k->n);
        if (is_f32(&k->t[i].lt)) {
            return k->t[i].lt;
        }
    }
}

/* An input that broadcasts to x; rank may be lower. */
static lt_t side_input(maker_t *k, const lt_t *x, sinter_data_type_t type)
{
    int64_t dims[SINTER_MAX_NDIMS];
    const int skip = pick(x->ndims + 1);
    for (int d = skip; d < x->ndims; d++) {
        dims[d - skip] = pick(3) ? x->dims[d] : 1;
    }
    return with_dims(k, type, x->ndims - skip, dims, true);
}

/* A tensor that already exists and broadcasts with x without enlarging it, else a new input. */
static lt_t partner(maker_t *k, const lt_t *x)
{
    for (int tries = 0; tries < 6; tries++) {
        const lt_t y = any_float(k);
        bool fits = y.ndims <= x->ndims;
        for (int d = 0; d < y.ndims && fits; d++) {
            const int64_t mine = x->dims[x->ndims - y.ndims + d];
            fits = y.dims[d] == mine || y.dims[d] == 1;
        }
        if (fits) {
            return y;
        }
    }
    return side_input(k, x, sinter_f32);
}

static void add_unary(maker_t *k)
{
    static const sinter_op_kind_t kinds[] = {sinter_op_relu, sinter_op_abs, sinter_op_sigmoid,
                                             sinter_op_tanh, sinter_op_hard_swish};
    const lt_t x = any_float(k);
    op(k, kinds[pick(5)], &x, 1, with_dims(k, sinter_f32, x.ndims, x.dims, false), NULL, 0);
}

static void add_binary(maker_t *k)
{
    static const sinter_op_kind_t kinds[] = {sinter_op_add, sinter_op_subtract, sinter_op_multiply,
                                             sinter_op_maximum, sinter_op_minimum};
    const lt_t x = any_float(k), y = partner(k, &x);
    const lt_t in[2] = {x, y}, swapped[2] = {y, x};
    op(k, kinds[pick(5)], pick(2) ? in : swapped, 2,
       with_dims(k, sinter_f32, x.ndims, x.dims, false), NULL, 0);
}

/* Some elements of one dim, forwards or backwards. */
static void add_slice(maker_t *k, const lt_t *x, int axis)
{
    int64_t dims[SINTER_MAX_NDIMS], *values = k->attr_ints + k->n_ints;
    const int64_t n = x->dims[axis], step = 1 + pick(2);
    const int64_t from = pick((int)n), to = from + 1 + pick((int)(n - from));
    const bool back = pick(2);
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = (to - from + step - 1) / step;
    values[0] = back ? to - 1 : from;
    values[1] = !back ? to : from > 0 ? from - 1 : -n - 1;
    values[2] = axis;
    values[3] = back ? -step : step;
    k->n_ints += 4;
    const attr_t attrs[4] = {{.id = sinter_op_attr_starts, .n = 1, .s64 = values},
                             {.id = sinter_op_attr_ends, .n = 1, .s64 = values + 1},
                             {.id = sinter_op_attr_axes, .n = 1, .s64 = values + 2},
                             {.id = sinter_op_attr_steps, .n = 1, .s64 = values + 3}};
    op(k, sinter_op_slice, x, 1, with_dims(k, sinter_f32, x->ndims, dims, false), attrs, 4);
}

static void add_view(maker_t *k)
{
    const lt_t x = any_float(k);
    const int axis = x.ndims > 0 ? pick(x.ndims) : -1;
    if (axis >= 0 && x.dims[axis] > 0 && pick(4) == 0) {
        add_slice(k, &x, axis);
        return;
    }
    int64_t dims[SINTER_MAX_NDIMS], *values = k->attr_ints + k->n_ints;
    int n = 0;
    if (pick(2) && x.ndims > 0) {
        int order[SINTER_MAX_NDIMS] = {0};
        for (int d = 0; d < x.ndims; d++) {
            const int at = pick(d + 1);
            order[d] = order[at];
            order[at] = d;
        }
        for (int d = 0; d < x.ndims; d++) {
            dims[d] = x.dims[order[d]];
            values[d] = pick(2) ? order[d] : order[d] - x.ndims;
        }
        k->n_ints += x.ndims;
        const attr_t attr = {.id = sinter_op_attr_order, .n = (size_t)x.ndims, .s64 = values};
        op(k, sinter_op_static_transpose, &x, 1, with_dims(k, sinter_f32, x.ndims, dims, false),
           &attr, 1);
        return;
    }
    int64_t rest = lt_elems(&x);
    while (n < 4 && rest > 1 && pick(4)) {
        const int64_t f = rest % 2 == 0 && pick(2)   ? 2
                          : rest % 3 == 0 && pick(2) ? 3
                          : pick(4) == 0             ? 1
                                                     : rest;
        dims[n++] = f;
        rest /= f;
    }
    if (rest > 1 || n == 0) {
        dims[n++] = rest;
    }
    const int open = lt_elems(&x) > 0 && (k->dynamic || pick(3) == 0) ? pick(n) : -1;
    for (int d = 0; d < n; d++) {
        values[d] = d == open ? -1 : dims[d];
    }
    k->n_ints += n;
    const attr_t attrs[2] = {{.id = sinter_op_attr_shape, .n = (size_t)n, .s64 = values},
                             {.id = sinter_op_attr_special_zero, .n = 1, .b = false}};
    op(k, sinter_op_static_reshape, &x, 1, with_dims(k, sinter_f32, n, dims, false), attrs, 2);
}

static void add_matmul(maker_t *k)
{
    const lt_t a = any_float(k);
    if (a.ndims < 2) {
        add_unary(k);
        return;
    }
    const bool ta = pick(3) == 0, tb = pick(2), bias = pick(3) == 0, vector = pick(6) == 0;
    const int64_t kk = a.dims[a.ndims - (ta ? 2 : 1)], mm = a.dims[a.ndims - (ta ? 1 : 2)],
                  nn = 1 + pick(5);
    int64_t dims[SINTER_MAX_NDIMS];
    memcpy(dims, a.dims, sizeof(dims));
    int n = 0;
    int64_t b_dims[2] = {tb ? nn : kk, tb ? kk : nn};
    lt_t in[3] = {a, {0}, {0}};
    if (vector) {
        in[1] = with_dims(k, sinter_f32, 1, &kk, true);
    } else {
        in[1] = with_dims(k, sinter_f32, 2, b_dims, true);
    }
    n = a.ndims - 2;
    dims[n++] = mm;
    if (!vector) {
        dims[n++] = nn;
    }
    if (bias && !vector) {
        in[2] = with_dims(k, sinter_f32, 1, &nn, true);
    }
    const attr_t attrs[2] = {BOOL(transpose_a, ta), BOOL(transpose_b, tb && !vector)};
    op(k, sinter_op_matmul, in, bias && !vector ? 3 : 2, with_dims(k, sinter_f32, n, dims, false),
       attrs, 2);
}

static void add_softmax(maker_t *k)
{
    const lt_t x = any_float(k);
    if (x.ndims == 0) {
        return;
    }
    k->attr_ints[k->n_ints] = pick(2 * x.ndims) - x.ndims;
    const attr_t attr = {.id = sinter_op_attr_axis, .n = 1, .s64 = &k->attr_ints[k->n_ints++]};
    op(k, pick(3) ? sinter_op_softmax : sinter_op_log_softmax, &x, 1,
       with_dims(k, sinter_f32, x.ndims, x.dims, false), &attr, 1);
}

/* Quantised to s8 and back, or codes from outside. */
static void add_quant(maker_t *k)
{
    lt_t x = any_float(k);
    if (x.ndims == 0) {
        return;
    }
    const int axis = pick(x.ndims);
    const bool channel = pick(2) && x.dims[axis] > 0 && x.dims[axis] <= 16 && !k->dynamic;
    float *scales = k->attr_floats + k->n_floats;
    const int n = channel ? (int)x.dims[axis] : 1;
    if (k->n_floats + n > 256) {
        return;
    }
    for (int i = 0; i < n; i++) {
        scales[i] = (float)(1 << pick(3)) / 4;
    }
    k->n_floats += n;
    k->attr_ints[k->n_ints] = axis;
    k->attr_ints[k->n_ints + 1] = 0;
    const attr_t attrs[4] = {
        STR(qtype, channel ? "per_channel" : "per_tensor"),
        {.id = sinter_op_attr_axis, .n = 1, .s64 = &k->attr_ints[k->n_ints]},
        {.id = sinter_op_attr_scales, .n = (size_t)n, .f32 = scales},
        {.id = sinter_op_attr_zps, .n = 1, .s64 = &k->attr_ints[k->n_ints + 1]}};
    k->n_ints += 2;
    const lt_t codes = with_dims(k, sinter_s8, x.ndims, x.dims, pick(2));
    if (!k->t[k->n - 1].input) {
        op(k, sinter_op_quantize, &x, 1, codes, attrs, 3 + !channel);
    }
    op(k, sinter_op_dequantize, &codes, 1, with_dims(k, sinter_f32, x.ndims, x.dims, false), attrs,
       3 + !channel);
}

/* One plane of split codes, an input or computed. */
static lt_t plane(maker_t *k, sinter_data_type_t type, const lt_t *like)
{
    const bool input = pick(2) != 0;
    const lt_t codes = with_dims(k, type, like->ndims, like->dims, input);
    if (!input) {
        const lt_t from = with_dims(k, sinter_f32, like->ndims, like->dims, true);
        op(k, sinter_op_type_cast, &from, 1, codes, NULL, 0);
    }
    return codes;
}

/* Codes, perhaps in two planes, whose scales are an input or computed. */
static void add_dynamic_dequant(maker_t *k)
{
    const lt_t like = any_float(k);
    int64_t dims[SINTER_MAX_NDIMS];
    for (int d = 0; d < like.ndims; d++) {
        dims[d] = like.dims[d] % 2 == 0 && pick(2) ? like.dims[d] / 2 : pick(2) ? 1 : like.dims[d];
    }
    if (like.ndims == 0) {
        return;
    }
    const bool split = pick(3) == 0;
    lt_t in[3] = {split ? plane(k, sinter_u4, &like)
                        : with_dims(k, sinter_s8, like.ndims, like.dims, true),
                  with_dims(k, sinter_f32, like.ndims, dims, true)};
    if (pick(2)) {
        const lt_t from = in[1];
        op(k, sinter_op_abs, &from, 1, in[1] = with_dims(k, sinter_f32, like.ndims, dims, false),
           NULL, 0);
    }
    if (split) {
        in[2] = plane(k, sinter_u2, &like);
    }
    const attr_t attrs[2] = {STR(qtype, "per_group"), STR(split_type, "f6_e2m3")};
    op(k, sinter_op_dynamic_dequantize, in, 2 + split,
       with_dims(k, sinter_f32, like.ndims, like.dims, false), attrs, 1 + split);
}

/* Codes and scales computed from a tensor, and numbers again. */
static void add_computed(maker_t *k)
{
    const lt_t x = any_float(k);
    int64_t *shape = &k->attr_ints[k->n_ints], dims[SINTER_MAX_NDIMS];
    if (x.ndims == 0 || lt_elems(&x) == 0) {
        return;
    }
    for (int d = 0; d < x.ndims; d++) {
        shape[d] = d + 1 == x.ndims || (d + 2 == x.ndims && pick(2)) ? x.dims[d] : 1;
        dims[d] = x.dims[d] / shape[d];
    }
    k->n_ints += x.ndims;
    const attr_t attrs[3] = {STR(qtype, "per_group"),
                             {.id = sinter_op_attr_group_shape, .n = (size_t)x.ndims, .s64 = shape},
                             STR(quantization_kind, "dynamic_symmetric")};
    const lt_t in[2] = {with_dims(k, sinter_s8, x.ndims, x.dims, false),
                        with_dims(k, sinter_bf16, x.ndims, dims, false)};
    const lt_t from = told(k, &x, find(k, x.id)->input),
               outs[2] = {told(k, &in[0], false), told(k, &in[1], false)};
    mini_add(&k->m, sinter_op_dynamic_quantize, &from, 1, outs, 2, attrs, 3);
    op(k, sinter_op_dynamic_dequantize, in, 2, with_dims(k, sinter_f32, x.ndims, x.dims, false),
       attrs, 1);
}

static void add_select(maker_t *k)
{
    const lt_t x = any_float(k);
    if (x.ndims < 1) {
        return;
    }
    lt_t keep, fill = side_input(k, &x, sinter_f32);
    if (pick(2) && x.ndims > 1) {
        k->attr_ints[k->n_ints] = 0;
        k->attr_ints[k->n_ints + 1] = -1;
        const attr_t row = {.id = sinter_op_attr_axis, .n = 1, .s64 = &k->attr_ints[k->n_ints]};
        const attr_t col = {.id = sinter_op_attr_axis, .n = 1, .s64 = &k->attr_ints[k->n_ints + 1]};
        k->n_ints += 2;
        lt_t in[2];
        op(k, sinter_op_gen_index, &x, 1, in[0] = with_dims(k, sinter_s32, x.ndims, x.dims, false),
           &row, 1);
        op(k, sinter_op_gen_index, &x, 1, in[1] = with_dims(k, sinter_s32, x.ndims, x.dims, false),
           &col, 1);
        op(k, sinter_op_greater_equal, in, 2,
           keep = with_dims(k, sinter_boolean, x.ndims, x.dims, false), NULL, 0);
    } else {
        keep = side_input(k, &x, sinter_boolean);
    }
    const lt_t in[3] = {keep, x, fill};
    op(k, sinter_op_select, in, 3, with_dims(k, sinter_f32, x.ndims, x.dims, false), NULL, 0);
}

static void add_bias(maker_t *k)
{
    const lt_t x = any_float(k);
    if (x.ndims < 2) {
        return;
    }
    const bool ncx = pick(2);
    const int64_t n = x.dims[ncx ? 1 : x.ndims - 1];
    lt_t in[2] = {x, with_dims(k, sinter_f32, 1, &n, true)};
    if (pick(2)) {
        const lt_t from = in[1];
        op(k, sinter_op_relu, &from, 1, in[1] = with_dims(k, sinter_f32, 1, &n, false), NULL, 0);
    }
    const attr_t attr = STR(data_format, ncx ? "NCX" : "NXC");
    op(k, sinter_op_bias_add, in, 2, with_dims(k, sinter_f32, x.ndims, x.dims, false), &attr, 1);
}

static void add_cast(maker_t *k)
{
    const lt_t x = any_float(k);
    if (pick(2)) {
        op(k, sinter_op_reorder, &x, 1, with_dims(k, sinter_f32, x.ndims, x.dims, false), NULL, 0);
        return;
    }
    const lt_t half = with_dims(k, sinter_bf16, x.ndims, x.dims, false);
    op(k, sinter_op_type_cast, &x, 1, half, NULL, 0);
    op(k, sinter_op_type_cast, &half, 1, with_dims(k, sinter_f32, x.ndims, x.dims, false), NULL, 0);
}

static void fill(plan_buffers_t *b, int i)
{
    const int64_t n = (int64_t)(b->bytes[i] * 8 / (size_t)dtype_traits(b->lt[i].data_type)->bits);
    for (int64_t e = 0; e < n; e++) {
        const double v = b->lt[i].data_type == sinter_boolean ? pick(2)
                         : b->lt[i].data_type == sinter_s8    ? pick(31) - 15
                                                              : (pick(33) - 16) / 8.0;
        orc_encode(b->lt[i].data_type, b->data[i] + PLAN_GUARD, e, v);
    }
}

/* The graph's inputs, with the dims they really have. */
static void make_inputs(const maker_t *k, const planned_t *p, plan_buffers_t *b)
{
    for (int i = 0; i < p->part.n_inputs; i++) {
        plan_buffer(b, &find(k, p->part.sub.values[p->in[i]].lt.id)->lt, 0x5A);
        fill(b, b->n - 1);
    }
}

static void compare(maker_t *k, planned_t *p, plan_buffers_t *in, const char *name, int round)
{
    plan_buffers_t out = {.n = 0};
    orc_result_t want[PLAN_PORTS];
    uint64_t ids[PLAN_PORTS];
    lt_t inferred[PLAN_PORTS];
    char err[256] = "";
    const size_t n_out = (size_t)p->part.n_outputs;
    const sinter_tensor_t *const *ins = (const sinter_tensor_t *const *)in->tensor;
    sinter_stream_t *stream = NULL;
    const sinter_stream_desc_t desc = {
        .size = sizeof(desc), .threads = round % 32 == 0 ? 3 : 1, .all_threads = 1};
    sinter_stream_create(&stream, NULL, &desc);
    sinter_status_t status =
        sinter_compiled_partition_infer_outputs(p->cp, (size_t)in->n, ins, n_out, inferred);
    for (size_t i = 0; i < n_out && status == sinter_success; i++) {
        ids[i] = inferred[i].id;
        plan_buffer(&out, &inferred[i], 0xA5);
    }
    if (status == sinter_success) {
        status = sinter_compiled_partition_execute(p->cp, stream, (size_t)in->n, ins, n_out,
                                                   out.tensor, NULL, 0);
    }
    CHECK(status == sinter_success, "%s %d: %s", name, round, sinter_last_error_message());
    CHECK(plan_guarded(in, 0x5A) && plan_guarded(&out, 0xA5), "%s %d: written outside", name,
          round);
    const int failed =
        status != sinter_success || plan_oracle(&k->m.g, sinter_fpmath_mode_strict, false, in,
                                                n_out, ids, want, err, sizeof(err));
    CHECK(!failed, "%s %d: oracle: %s", name, round, err);
    for (size_t i = 0; i < n_out && !failed; i++) {
        orc_diff_t diff = {0};
        const int bad = orc_compare(&want[i], &inferred[i], out.data[i] + PLAN_GUARD, &diff);
        CHECK(!bad, "%s %d: tensor %llu: %s", name, round, (unsigned long long)ids[i],
              orc_diff_text(&diff, err, sizeof(err)));
        orc_result_free(&want[i]);
    }
    sinter_stream_destroy(&stream);
    plan_buffers_free(&out);
}

/* ---- plans of random graphs ------------------------------------------------------------------ */

typedef struct refs {
    int v[160], n;
} refs_t;

static void refer(const plan_t *plan, refs_t *r, int v)
{
    while (v >= 0 && plan->values[v].kind == PV_VIEW) {
        v = plan->values[v].base;
    }
    if (v >= 0) {
        r->v[r->n++] = v;
    }
}

static void refer_chain(const plan_t *plan, const chain_t *c, refs_t *reads, refs_t *writes)
{
    for (int i = 0; c != NULL && i < c->n_instrs; i++) {
        const chain_instr_t *in = &c->instrs[i];
        const bool fused = in->op == CHAIN_LOAD_DEQUANT,
                   rescales = fused || in->op == CHAIN_DEQUANT || in->op == CHAIN_QUANT;
        if (in->op == CHAIN_LOAD || fused || in->op == CHAIN_LOAD_SPLIT) {
            refer(plan, reads, c->operands[in->operand].value);
        }
        if (in->op == CHAIN_LOAD_SPLIT) {
            refer(plan, reads, c->operands[in->high].value);
        }
        if (rescales) {
            refer(plan, reads, c->operands[in->scale].value);
        }
        if (rescales && in->zp >= 0) {
            refer(plan, reads, c->operands[in->zp].value);
        } else if (in->op == CHAIN_STORE) {
            refer(plan, writes, c->operands[in->operand].value);
        }
    }
}

static void refer_operand(const plan_t *plan, const operand_t *op, refs_t *to)
{
    refer(plan, to, op->data);
    refer(plan, to, op->scale);
    refer(plan, to, op->zp);
}

static void refer_quantised(const plan_t *plan, const dynquant_params_t *p, refs_t *reads,
                            refs_t *writes)
{
    refer(plan, reads, p->tensor_scale);
    refer_operand(plan, &p->out, writes);
}

/* The values with memory that a step reads and writes. */
static void refer_step(const plan_t *plan, const step_t *s, refs_t *reads, refs_t *writes)
{
    reads->n = writes->n = 0;
    refer_chain(plan, s->pre, reads, writes);
    refer_chain(plan, s->post, reads, writes);
    if (s->tail != NULL) {
        refer_quantised(plan, s->tail, reads, writes);
    }
    switch (s->kind) {
    case STEP_MATMUL:
        refer_operand(plan, &s->p.matmul.a, reads);
        refer_operand(plan, &s->p.matmul.b, reads);
        refer(plan, reads, s->p.matmul.experts);
        break;
    case STEP_EXPERTS:
        for (int i = 0; i <= s->p.mlp.n_upper; i++) {
            const matmul_params_t *m = &s->p.mlp.product[i]->p.matmul;
            refer_operand(plan, &m->b, reads);
            refer(plan, reads, m->experts);
            if (i < s->p.mlp.n_upper) {
                refer_operand(plan, &m->a, reads);
            }
        }
        for (int i = 0; i < s->p.mlp.n_tables; i++) {
            refer(plan, reads, s->p.mlp.tables[i].table);
        }
        break;
    case STEP_SOFTMAX:
        refer(plan, reads, s->p.softmax.in);
        refer(plan, writes, s->p.softmax.stats);
        break;
    case STEP_ATTENTION:
        refer_operand(plan, &s->p.attention.q, reads);
        refer_operand(plan, &s->p.attention.k, reads);
        refer_operand(plan, &s->p.attention.v, reads);
        refer_chain(plan, s->p.attention.score, reads, reads);
        refer_chain(plan, s->p.attention.prob, reads, reads);
        refer(plan, writes, s->p.attention.stats);
        break;
    case STEP_RECURRENCE:
        refer(plan, reads, s->p.linear.q);
        refer(plan, reads, s->p.linear.k);
        refer(plan, reads, s->p.linear.v);
        refer(plan, reads, s->p.linear.state);
        refer(plan, reads, s->p.linear.decay);
        refer(plan, reads, s->p.linear.beta);
        refer(plan, reads, s->p.linear.bonus);
        refer(plan, reads, s->p.linear.a);
        refer(plan, reads, s->p.linear.b);
        refer(plan, reads, s->p.linear.from);
        refer(plan, reads, s->p.linear.to);
        refer(plan, writes, s->p.linear.out);
        refer(plan, writes, s->p.linear.next);
        break;
    case STEP_CUMSUM:
        refer(plan, reads, s->p.cumsum.x);
        break;
    case STEP_DYNQUANT:
        refer(plan, reads, s->p.dynquant.in);
        refer_quantised(plan, &s->p.dynquant, reads, writes);
        break;
    case STEP_NORM:
        refer(plan, reads, s->p.norm.x);
        refer(plan, writes, s->p.norm.mean);
        refer(plan, writes, s->p.norm.variance);
        break;
    case STEP_ROTARY:
        refer(plan, reads, s->p.rotary.cosines);
        refer(plan, reads, s->p.rotary.sines);
        refer(plan, reads, s->p.rotary.positions);
        break;
    case STEP_WINDOW:
    case STEP_REDUCE:
        break;
    case STEP_GATHER:
    case STEP_SCATTER:
        refer(plan, reads, s->p.index.data);
        refer(plan, reads, s->p.index.indices);
        refer(plan, reads, s->p.index.updates);
        refer(plan, writes, s->p.index.out);
        break;
    case STEP_TOP_K:
        refer(plan, reads, s->p.top_k.in);
        refer(plan, writes, s->p.top_k.values);
        refer(plan, writes, s->p.top_k.indices);
        break;
    case STEP_REORDER:
        refer(plan, reads, s->p.reorder.in);
        refer(plan, writes, s->p.reorder.out);
        break;
    case STEP_CHAIN:
        break;
    }
}

/* Every read finds what an earlier step has written, every output is written, and temporaries
 * are alive from the first to the last step that touches them. */
static void check_order(const plan_t *plan, const char *name, int round)
{
    refs_t reads, writes;
    bool *written = calloc((size_t)plan->n_values + 1, sizeof(bool));
    for (int s = 0; s < plan->n_steps; s++) {
        refer_step(plan, &plan->steps[s], &reads, &writes);
        for (int i = 0; i < reads.n; i++) {
            const plan_value_t *pv = &plan->values[reads.v[i]];
            CHECK(pv->kind == PV_INPUT || pv->kind == PV_CONST || written[reads.v[i]],
                  "%s %d: step %d reads value %d before it is written", name, round, s, reads.v[i]);
            CHECK(pv->kind != PV_TEMP || (pv->first <= s && s <= pv->last),
                  "%s %d: step %d reads a dead temporary", name, round, s);
        }
        for (int i = 0; i < writes.n; i++) {
            const plan_value_t *pv = &plan->values[writes.v[i]];
            written[writes.v[i]] = true;
            CHECK(pv->kind == PV_OUTPUT || pv->kind == PV_TEMP,
                  "%s %d: step %d writes value %d of kind %d", name, round, s, writes.v[i],
                  pv->kind);
            CHECK(pv->kind != PV_TEMP || (pv->first <= s && s <= pv->last),
                  "%s %d: step %d writes a dead temporary", name, round, s);
        }
    }
    for (int v = 0; v < plan->sub.n_values; v++) {
        CHECK(plan->values[v].kind != PV_OUTPUT || written[v], "%s %d: output %d is not written",
              name, round, v);
    }
    free(written);
}

/* Temporaries that took over the memory of another one in the step that reads that one last. */
static int heirs;

/* Temporaries that are alive in one step share no byte, or all: a chain writes one over another.
 * Returns how many temporaries share bytes at different steps. */
static int check_temps(const sinter_compiled_partition_t *cp, const plan_buffers_t *in,
                       const char *name, int round)
{
    const plan_t *plan;
    void *memory = aligned_alloc(64, (cp->plan.frame_bytes + 63) / 64 * 64);
    frame_mem_t *fm;
    const same_dims_t *broken = NULL;
    size_t total;
    int shared = 0;
    do {
        plan = broken == NULL ? &cp->plan : cp->fallback;
        fm = frame_place(plan, memory);
        for (int i = 0; i < in->n; i++) {
            fm->lts[graph_find_value(&plan->sub, in->lt[i].id)] = in->lt[i];
        }
        CHECK(frame_shapes(plan, fm, &broken) == sinter_success, "%s %d: frame", name, round);
    } while (broken != NULL);
    CHECK(frame_temps(plan, fm, &total) == sinter_success, "%s %d: frame", name, round);
    frame_data(plan, fm, fm->port_data, NULL); /* before there is memory for temporaries */
    for (int i = 0; i < plan->n_values; i++) {
        CHECK(plan->values[i].kind != PV_TEMP || fm->v[i].data == NULL,
              "%s %d: temporary %d has an address", name, round, i);
    }
    for (int i = 0; i < plan->n_values; i++) {
        for (int j = 0; j < i; j++) {
            const plan_value_t *a = &plan->values[i], *b = &plan->values[j];
            if (a->kind != PV_TEMP || b->kind != PV_TEMP) {
                continue;
            }
            int64_t bytes[2] = {0, 0};
            bool together = false;
            for (int s = 0; s < plan->n_steps; s++) {
                together =
                    together || (a->first <= s && s <= a->last && b->first <= s && s <= b->last);
            }
            for (int k = 0; k < 2; k++) {
                const bound_t *v = &fm->v[k == 0 ? i : j];
                int64_t n = 1;
                for (int d = 0; d < v->ndims; d++) {
                    n *= v->dims[d];
                }
                dtype_bytes(v->dtype, n, &bytes[k]);
                CHECK(fm->temp_offset[k == 0 ? i : j] + (size_t)bytes[k] <= fm->temp_bytes,
                      "%s %d: temporary beyond the end", name, round);
            }
            const size_t at = fm->temp_offset[i], other = fm->temp_offset[j];
            const bool apart = at + (size_t)bytes[0] <= other || other + (size_t)bytes[1] <= at;
            const bool taken_over = at == other && ((a->heir == j && a->last == b->first) ||
                                                    (b->heir == i && b->last == a->first));
            heirs += together && taken_over;
            CHECK(apart || !together || taken_over, "%s %d: temporaries %d and %d overlap", name,
                  round, i, j);
            shared += !apart;
        }
    }
    free(memory);
    return shared;
}

static void test_random(sinter_engine_t *engine, int rounds, bool dynamic)
{
    static void (*const add[])(maker_t *) = {
        add_unary,  add_unary, add_binary, add_binary,  add_binary, add_view,
        add_view,   add_view,  add_matmul, add_softmax, add_quant,  add_dynamic_dequant,
        add_select, add_bias,  add_cast,   add_computed};
    static maker_t k;
    const char *name = dynamic ? "dynamic" : "static";
    int refused = 0, shared = 0;
    for (int round = 0; round < rounds; round++) {
        seed = (uint64_t)round * 2654435761u + 12345 + dynamic;
        k.n = k.n_ints = k.n_floats = 0;
        k.dynamic = dynamic;
        mini_begin(&k.m, engine);
        const int64_t dims[4] = {round % 16 == 7 ? 0 : 1 + pick(3), 2, 1 + pick(6),
                                 4}; /* some tensors are empty */
        const int skip = pick(3);
        with_dims(&k, sinter_f32, 4 - skip, dims + skip, true);
        const int n = 1 + pick(12);
        for (int i = 0; i < n; i++) {
            add[pick(MINI_N(add))](&k);
        }
        planned_t p;
        sinter_status_t status = mini_end(&k.m);
        for (int v = 0; v < k.m.g.n_values; v++) {
            k.m.g.values[v].is_output =
                k.m.g.values[v].producer >= 0 && (k.m.g.values[v].n_uses == 0 || pick(6) == 0);
        }
        planned_part(&p, &k.m, FAMILY_GENERAL, sinter_fpmath_mode_strict, false);
        if (p.part.n_inputs <= PLAN_PORTS && p.part.n_outputs <= PLAN_PORTS && k.m.g.n_nodes > 0) {
            status = status == sinter_success ? planned_compile(&p, &(compile_ports_t){0}) : status;
            refused += status != sinter_success;
            CHECK(status == sinter_success || dynamic, "%s %d: %s", name, round,
                  sinter_last_error_message());
            if (status == sinter_success) {
                plan_buffers_t in = {.n = 0};
                make_inputs(&k, &p, &in);
                check_order(&p.cp->plan, name, round);
                if (p.cp->fallback != NULL) {
                    check_order(p.cp->fallback, name, round);
                }
                shared += check_temps(p.cp, &in, name, round);
                compare(&k, &p, &in, name, round);
                plan_buffers_free(&in);
            }
        }
        planned_free(&p);
    }
    /* Which dims broadcast after a reshape of unknown dims cannot be told in advance. */
    CHECK(refused <= rounds / 12, "%s: %d of %d refused", name, refused, rounds);
    CHECK(shared > 0 && heirs > 0,
          "%s: no temporaries ever share memory, or none takes over another's", name);
    heirs = 0;
}

/* ---- which steps ----------------------------------------------------------------------------- */

/* Compiles the graph; its steps, a text the report must have ("" if none), and how many values
 * are views. -1: any number. */
static void expect(mini_t *m, family_t family, const char *steps, const char *report, int n_views,
                   int line)
{
    planned_t p;
    char got[512];
    const sinter_status_t status = planned(&p, m, family);
    check_at(status == sinter_success, line, "compile: %s", sinter_last_error_message());
    planned_steps(&p, got, sizeof(got));
    check_at(strcmp(got, steps) == 0, line, "got \"%s\", expected \"%s\"", got, steps);
    if (p.cp != NULL) {
        check_at(strstr(p.cp->report, report) != NULL, line, "\"%s\" is not in the report:\n%s",
                 report, p.cp->report);
        check_at(n_views < 0 || p.cp->plan.n_views == n_views, line, "%d views, expected %d",
                 p.cp->plan.n_views, n_views);
        check_order(&p.cp->plan, "line", line);
        if (p.cp->fallback != NULL) {
            check_order(p.cp->fallback, "fallback, line", line);
        }
    }
    planned_free(&p);
}
#define EXPECT(m, steps) expect(m, FAMILY_GENERAL, steps, "", -1, __LINE__)
#define EXPECT_VIEWS(m, steps, n_views) expect(m, FAMILY_GENERAL, steps, "", n_views, __LINE__)

#define RESHAPE(m, x, ...) \
    OPA(m, static_reshape, f32, ATTRS(S64S(shape, __VA_ARGS__), BOOL(special_zero, false)), x)
#define TRANSPOSE(m, x, ...) OPA(m, static_transpose, f32, ATTRS(S64S(order, __VA_ARGS__)), x)

static void test_joins(sinter_engine_t *engine)
{
    mini_t m;
    lt_t x, y;
    mini_begin(&m, engine);
    y = OP(&m, add, f32, OP(&m, relu, f32, IN(&m, f32, "4x8")), IN(&m, f32, "8"));
    OP(&m, sigmoid, f32, y);
    EXPECT(&m, "chain");

    /* Bias, activation, residual and a dequantised residual, which floats, run on the product's
     * registers. */
    mini_begin(&m, engine);
    x = OP(&m, matmul, f32, IN(&m, f32, "4x16"), IN(&m, f32, "16x8"), IN(&m, f32, "8"));
    y = OPA(&m, dequantize, f32, ATTRS(F32S(scales, 0.5F), S64S(zps, 3)), IN(&m, u8, "4x8"));
    OP(&m, add, f32, OP(&m, gelu, f32, x), y);
    EXPECT(&m, "matmul");

    /* A floating node is computed in each cluster that needs it. */
    mini_begin(&m, engine);
    y = OP(&m, tanh, f32, IN(&m, f32, "8"));
    OP(&m, add, f32, OP(&m, matmul, f32, IN(&m, f32, "4x16"), IN(&m, f32, "16x8")), y);
    OP(&m, multiply, f32, OP(&m, matmul, f32, IN(&m, f32, "6x16"), IN(&m, f32, "16x8")), y);
    EXPECT(&m, "matmul matmul");

    /* A floating node's value is in memory if a matmul reads it, or if it is an output; no other
     * step waits for such an output. */
    mini_begin(&m, engine);
    OP(&m, matmul, f32, OP(&m, relu, f32, IN(&m, f32, "4x16")), IN(&m, f32, "16x8"));
    EXPECT(&m, "chain matmul");
    mini_begin(&m, engine);
    y = OP(&m, tanh, f32, IN(&m, f32, "8"));
    OP(&m, add, f32, OP(&m, matmul, f32, IN(&m, f32, "4x16"), IN(&m, f32, "16x8")), y);
    mini_output(&m, y);
    EXPECT(&m, "matmul chain");

    /* Larger dims than the product's do not fit its registers. */
    mini_begin(&m, engine);
    OP(&m, add, f32, OP(&m, matmul, f32, IN(&m, f32, "1x16"), IN(&m, f32, "16x8")),
       IN(&m, f32, "4x8"));
    EXPECT(&m, "matmul chain");

    /* An operand from another step is read from memory; the node joins the later one. */
    mini_begin(&m, engine);
    x = OP(&m, matmul, f32, IN(&m, f32, "4x16"), IN(&m, f32, "16x8"));
    y = OP(&m, matmul, f32, IN(&m, f32, "4x16"), IN(&m, f32, "16x8"));
    y = OP(&m, multiply, f32, OP(&m, hard_swish, f32, x), y);
    OP(&m, matmul, f32, y, IN(&m, f32, "8x3"));
    EXPECT(&m, "matmul matmul matmul");

    mini_begin(&m, engine);
    x = OPA(&m, softmax, f32, ATTRS(S64S(axis, -1)), IN(&m, f32, "4x8"));
    OP(&m, multiply, f32, x, IN(&m, f32, "4x1"));
    EXPECT(&m, "softmax");
}

/* Scales, zero points and channel vectors are read from memory even where a step could compute
 * them. */
static void test_vectors(sinter_engine_t *engine)
{
    mini_t m;
    lt_t x, s;
    mini_begin(&m, engine);
    s = OP(&m, abs, f32, IN(&m, f32, "4x2"));
    OPA(&m, dynamic_dequantize, f32, ATTRS(STR(qtype, "per_group")), IN(&m, s8, "4x8"), s);
    EXPECT(&m, "chain chain");
    mini_begin(&m, engine);
    s = OP(&m, abs, f32, IN(&m, f32, "16x2"));
    x = OPA(&m, dynamic_dequantize, f32, ATTRS(STR(qtype, "per_group")), IN(&m, s8, "16x8"), s);
    OP(&m, matmul, f32, IN(&m, f32, "4x16"), x);
    EXPECT(&m, "chain matmul");
    /* So are both planes of split codes. */
    mini_begin(&m, engine);
    x = OP(&m, type_cast, u4, IN(&m, f32, "4x8"));
    OPA(&m, dequantize, f32, ATTRS(F32S(scales, 1), STR(split_type, "f6_e3m2")), x,
        IN(&m, u2, "4x8"));
    EXPECT(&m, "chain chain");
    mini_begin(&m, engine);
    s = OP(&m, type_cast, u2, IN(&m, f32, "16x8"));
    x = OPA(&m, dequantize, f32, ATTRS(F32S(scales, 1), STR(split_type, "f6_e3m2")),
            IN(&m, u4, "16x8"), s);
    OP(&m, matmul, f32, IN(&m, f32, "4x16"), x);
    EXPECT(&m, "chain matmul");
    mini_begin(&m, engine);
    s = OP(&m, relu, f32, IN(&m, f32, "8"));
    OPA(&m, bias_add, f32, ATTRS(STR(data_format, "NCX")), IN(&m, f32, "2x8x3"), s);
    EXPECT(&m, "chain chain");
    /* The codes and the scales from one step. */
    mini_begin(&m, engine);
    const lt_t outs[2] = {mini_tensor(&m, sinter_s8, "*"), mini_tensor(&m, sinter_f32, "*")},
               in = IN(&m, f32, "4x32");
    const attr_t attrs[] = {STR(quantization_kind, "dynamic_symmetric"), STR(qtype, "per_group"),
                            S64S(group_shape, 1, 16)};
    mini_add(&m, sinter_op_dynamic_quantize, &in, 1, outs, 2, attrs, 3);
    x = OPA(&m, dynamic_dequantize, f32, ATTRS(STR(qtype, "per_group")), outs[0], outs[1]);
    OP(&m, relu, f32, x);
    EXPECT(&m, "dynquant chain");
}

static void test_views(sinter_engine_t *engine)
{
    mini_t m;
    lt_t x;
    mini_begin(&m, engine);
    OP(&m, relu, f32, TRANSPOSE(&m, IN(&m, f32, "4x6"), 1, 0));
    EXPECT_VIEWS(&m, "chain", 1);

    /* The product is written through both views into the output; no strides would say the second
     * transposition's reshape. */
    mini_begin(&m, engine);
    x = OP(&m, matmul, f32, IN(&m, f32, "2x3x4x5"), IN(&m, f32, "5x6"));
    RESHAPE(&m, TRANSPOSE(&m, x, 0, 2, 1, 3), 2, 4, 18);
    EXPECT_VIEWS(&m, "matmul", 2);
    mini_begin(&m, engine);
    x = OP(&m, matmul, f32, IN(&m, f32, "3x5"), IN(&m, f32, "5x6"));
    RESHAPE(&m, TRANSPOSE(&m, x, 1, 0), 2, 9);
    EXPECT_VIEWS(&m, "matmul", 2);
    mini_begin(&m, engine);
    x = OP(&m, matmul, f32, IN(&m, f32, "3x5"), IN(&m, f32, "5x6"));
    TRANSPOSE(&m, RESHAPE(&m, TRANSPOSE(&m, x, 1, 0), 9, 2), 1, 0);
    EXPECT(&m, "matmul chain");

    /* Elementwise work below a view moves above it. */
    mini_begin(&m, engine);
    x = OP(&m, matmul, f32, IN(&m, f32, "3x5"), IN(&m, f32, "5x6"));
    OPA(&m, quantize, u8, ATTRS(F32S(scales, 0.5F)), OP(&m, relu, f32, TRANSPOSE(&m, x, 1, 0)));
    EXPECT_VIEWS(&m, "matmul", 1);
    /* ... but not if that would give it more dims. */
    mini_begin(&m, engine);
    x = OP(&m, matmul, f32, IN(&m, f32, "3x5"), IN(&m, f32, "5x6"));
    OP(&m, add, f32, RESHAPE(&m, x, 18), IN(&m, f32, "1x1"));
    EXPECT(&m, "matmul chain");

    /* A view from port to port, and of an output, is a copy; a view that several read is none. */
    mini_begin(&m, engine);
    TRANSPOSE(&m, IN(&m, f32, "4x6"), 1, 0);
    EXPECT_VIEWS(&m, "chain", 1);
    mini_begin(&m, engine);
    x = OP(&m, relu, f32, IN(&m, f32, "4x6"));
    mini_output(&m, x);
    RESHAPE(&m, x, 24);
    EXPECT(&m, "chain chain");
    mini_begin(&m, engine);
    x = TRANSPOSE(&m, OPA(&m, softmax, f32, ATTRS(S64S(axis, -1)), IN(&m, f32, "4x6")), 1, 0);
    OP(&m, matmul, f32, x, IN(&m, f32, "4x2"));
    OP(&m, matmul, f32, x, IN(&m, f32, "4x3"));
    EXPECT_VIEWS(&m, "softmax matmul matmul", 1);

    /* Reshape of a transposed input: written to a temporary through the inverse view. */
    mini_begin(&m, engine);
    OP(&m, matmul, f32, RESHAPE(&m, TRANSPOSE(&m, IN(&m, f32, "4x6"), 1, 0), 3, 8),
       IN(&m, f32, "8x2"));
    EXPECT(&m, "chain matmul");
}

/* Chains are cut where they grow too long, and neither long nor branching ones take long. */
static void test_limits(sinter_engine_t *engine)
{
    mini_t m;
    lt_t x;
    /* A unary op costs 2 of at most 120. */
    for (int n = 59; n <= 61; n++) {
        mini_begin(&m, engine);
        x = IN(&m, f32, "4x6");
        for (int i = 0; i < n; i++) {
            x = OP(&m, relu, f32, x);
        }
        EXPECT(&m, n <= 60 ? "chain" : "chain chain");
    }
    mini_begin(&m, engine);
    x = OP(&m, matmul, f32, IN(&m, f32, "3x5"), IN(&m, f32, "5x6"));
    for (int i = 0; i < 61; i++) {
        x = OP(&m, relu, f32, x);
    }
    EXPECT(&m, "matmul chain");
    /* 2^48 paths. */
    mini_begin(&m, engine);
    x = IN(&m, f32, "4x6");
    for (int i = 0; i < 48; i++) {
        x = OP(&m, add, f32, x, x);
    }
    EXPECT(&m, "chain chain");
    /* More values alive at once than a program has registers: the chain is cut. */
    mini_begin(&m, engine);
    lt_t live[20];
    x = OP(&m, matmul, f32, IN(&m, f32, "3x5"), IN(&m, f32, "5x6"));
    for (int i = 0; i < 20; i++) {
        live[i] = x = OP(&m, tanh, f32, x);
    }
    for (int i = 0; i < 20; i++) {
        x = OP(&m, add, f32, x, live[i]);
    }
    planned_t p;
    CHECK(planned(&p, &m, FAMILY_GENERAL) == sinter_success && p.cp->plan.n_steps > 1,
          "20 values alive: %s", sinter_last_error_message());
    planned_free(&p);
    /* Views one behind the other, deeper than any stack. */
    mini_begin(&m, engine);
    x = OP(&m, relu, f32, IN(&m, f32, "4x6"));
    for (int i = 0; i < 50000; i++) {
        x = TRANSPOSE(&m, x, 1, 0);
    }
    EXPECT_VIEWS(&m, "chain", 50000);
}

/* ---- attention ------------------------------------------------------------------------------- */

typedef struct sdpa {
    bool two_qk, bias, two_pv, prob_and_score, view_between, score_out, used_stats, right,
        long_score, larger;
    int64_t axis;
    int rows, cols; /* axes of the causal mask's indices; 0: no mask */
    const char *fill;
} sdpa_t;

static void sdpa(mini_t *m, sdpa_t s)
{
    const lt_t q = IN(m, f32, "2x4x5x16"), k = IN(m, f32, "2x4x16x7"),
               v = IN(m, f32, s.right ? "2x4x8x5" : "2x4x7x8");
    lt_t x = s.bias ? OP(m, matmul, f32, q, k, IN(m, f32, "7")) : OP(m, matmul, f32, q, k);
    m->g.nodes[m->g.n_nodes - 1].role = "qk";
    if (s.two_qk) {
        x = OP(m, add, f32, x, OP(m, matmul, f32, q, k));
        m->g.nodes[m->g.n_nodes - 2].role = "qk";
    }
    x = OP(m, divide, f32, x, IN(m, f32, ""));
    if (s.score_out) {
        mini_output(m, x);
    }
    if (s.view_between) {
        x = RESHAPE(m, RESHAPE(m, x, 8, 5, 7), 2, 4, 5, 7);
    }
    if (s.larger) {
        x = OP(m, add, f32, x, IN(m, f32, "3x1x1x1x1"));
    }
    for (int i = 0; s.long_score && i < 61; i++) {
        x = OP(m, tanh, f32, x);
    }
    if (s.rows != 0) {
        const lt_t row = OPA(m, gen_index, s32, ATTRS(S64S(axis, s.rows)), x),
                   col = OPA(m, gen_index, s32, ATTRS(S64S(axis, s.cols)), x);
        x = OP(m, select, f32, OP(m, greater_equal, boolean, row, col), x, IN(m, f32, s.fill));
    }
    lt_t p[2] = {mini_tensor(m, sinter_f32, "*"), mini_tensor(m, sinter_f32, "*")};
    const attr_t axis[] = {S64S(axis, s.axis == 0 ? -1 : s.axis)};
    mini_add(m, sinter_op_softmax, &x, 1, p, s.used_stats ? 2 : 1, axis, 1);
    if (s.used_stats) {
        OP(m, exp, f32, p[1]);
    }
    if (s.prob_and_score) {
        p[0] = OP(m, multiply, f32, p[0], x);
    }
    if (s.right) {
        OP(m, matmul, f32, v, p[0]);
        return;
    }
    OP(m, matmul, f32, p[0], v);
    if (s.two_pv) {
        OP(m, matmul, f32, p[0], IN(m, f32, "2x4x7x9"));
    }
}

static void test_give_up(sinter_engine_t *engine)
{
    mini_t m;
#define SDPA(steps, text, ...)                                \
    (mini_begin(&m, engine), sdpa(&m, (sdpa_t){__VA_ARGS__}), \
     expect(&m, FAMILY_ATTENTION, steps, text, -1, __LINE__))
    SDPA("attention", "attention_flash", .two_qk = false);
    SDPA("matmul softmax matmul", "attention kernel refused: the score matmul has a bias",
         .bias = true);
    SDPA("matmul matmul softmax matmul", "more than one score matmul", .two_qk = true);
    SDPA("matmul softmax matmul matmul", "into one matmul", .two_pv = true);
    SDPA("matmul softmax matmul", "on the left", .right = true);
    SDPA("matmul softmax matmul", "scores are used beside the probabilities",
         .prob_and_score = true);
    SDPA("matmul softmax matmul", "neither elementwise nor the softmax", .view_between = true);
    SDPA("matmul softmax matmul", "scores or probabilities are an output", .score_out = true);
    SDPA("matmul softmax chain matmul", "the softmax statistics are used inside",
         .used_stats = true);
    SDPA("matmul softmax matmul", "softmax is not over the last axis", .axis = 2);
    SDPA("matmul chain softmax matmul", "changes dims", .larger = true);
    SDPA("matmul chain softmax matmul", "too many elementwise ops", .long_score = true);
#undef SDPA
}

static void test_causal(sinter_engine_t *engine)
{
    static const struct {
        int rows, cols;
        const char *fill;
        bool causal;
    } cases[] = {{-2, -1, "", true},  {2, 3, "1", true},   {-1, -2, "", false},
                 {-2, -2, "", false}, {-3, -1, "", false}, {-2, -1, "7", false},
                 {0, 0, "", false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        mini_t m;
        planned_t p;
        mini_begin(&m, engine);
        sdpa(&m, (sdpa_t){.rows = cases[i].rows, .cols = cases[i].cols, .fill = cases[i].fill});
        CHECK(planned(&p, &m, FAMILY_ATTENTION) == sinter_success, "causal %zu: %s", i,
              sinter_last_error_message());
        if (p.cp != NULL && p.cp->plan.n_steps == 1) {
            const attention_params_t *a = &p.cp->plan.steps[0].p.attention;
            const bool found =
                a->n_limits == 1 && !a->limits[0].none && !a->limits[0].lower && a->limits[0].moves;
            CHECK(found == cases[i].causal, "causal %zu: detected %d", i, found);
            CHECK(a->score != NULL && a->prob == NULL && a->stats == -1, "causal %zu: programs", i);
            CHECK(!found ||
                      p.cp->plan.values[a->limits[0].fill].lt.ndims == (int)strlen(cases[i].fill),
                  "causal %zu: fill", i);
        } else {
            CHECK(false, "causal %zu: no attention step", i);
        }
        planned_free(&p);
    }
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* The parts that a mask is made of, over scores [2 4 5 7]. */
typedef struct mask_parts {
    mini_t *m;
    lt_t score, row, col, shift, other, fill, zero;
} mask_parts_t;

static lt_t ge(const mask_parts_t *k, lt_t a, lt_t b)
{
    return OP(k->m, greater_equal, boolean, a, b);
}

static lt_t plus(const mask_parts_t *k, lt_t a, lt_t b)
{
    return OP(k->m, add, s32, a, b);
}

static lt_t minus(const mask_parts_t *k, lt_t a, lt_t b)
{
    return OP(k->m, subtract, s32, a, b);
}

static lt_t keep(const mask_parts_t *k, lt_t condition, lt_t x)
{
    return OP(k->m, select, f32, condition, x, k->fill);
}

static lt_t drop(const mask_parts_t *k, lt_t condition, lt_t x)
{
    return OP(k->m, select, f32, condition, k->fill, x);
}

static lt_t mask_nested(const mask_parts_t *k)
{
    return keep(k, ge(k, k->row, k->col),
                keep(k, ge(k, plus(k, k->col, k->shift), k->row), k->score));
}

static lt_t mask_bottom_right(const mask_parts_t *k)
{
    const lt_t row = minus(k, plus(k, k->row, k->shift), k->other);
    return keep(k, ge(k, row, k->col), drop(k, ge(k, minus(k, row, k->shift), k->col), k->score));
}

static lt_t mask_product(const mask_parts_t *k)
{
    const lt_t a = OP(k->m, type_cast, f32, ge(k, k->row, k->col)),
               b = OP(k->m, type_cast, f32, ge(k, k->col, minus(k, k->row, k->shift)));
    return keep(k, OP(k->m, type_cast, boolean, OP(k->m, multiply, f32, a, b)), k->score);
}

static lt_t mask_distance(const mask_parts_t *k)
{
    const lt_t d = minus(k, k->row, k->col);
    return keep(k, ge(k, d, k->other), keep(k, ge(k, k->shift, d), k->score));
}

static lt_t mask_added(const mask_parts_t *k)
{
    return OP(k->m, add, f32, k->score,
              OP(k->m, select, f32, ge(k, k->row, k->col), k->zero, k->fill));
}

static lt_t mask_length(const mask_parts_t *k)
{
    return keep(k, ge(k, k->shift, k->col), drop(k, ge(k, k->other, k->col), k->score));
}

static lt_t mask_unknown_on_top(const mask_parts_t *k)
{
    return keep(k, IN(k->m, boolean, "5x7"), keep(k, ge(k, k->row, k->col), k->score));
}

/* A length for each sequence, which has fewer dims, or is a view. */
static lt_t mask_lengths(const mask_parts_t *k)
{
    const lt_t length =
        OPA(k->m, static_reshape, s32, ATTRS(S64S(shape, 2, 1, 1, 1), BOOL(special_zero, 0)),
            IN(k->m, s32, "2"));
    return keep(k, ge(k, minus(k, IN(k->m, s32, "2x1x1x1"), k->other), k->col),
                drop(k, ge(k, k->col, plus(k, length, IN(k->m, s32, "4x1x1"))), k->score));
}

/* Not these: the row counts twice; the mask's result is changed afterwards; lengths for rows, or
 * that differ along the columns; or of several conditions. */
static lt_t mask_twice(const mask_parts_t *k)
{
    return keep(k, ge(k, plus(k, k->row, k->row), k->col), k->score);
}

static lt_t mask_not_last(const mask_parts_t *k)
{
    return OP(k->m, tanh, f32, keep(k, ge(k, k->row, k->col), k->score));
}

static lt_t mask_vector(const mask_parts_t *k)
{
    return keep(k, ge(k, IN(k->m, s32, "2x1x5x1"), k->col), k->score);
}

static lt_t mask_columns(const mask_parts_t *k)
{
    return keep(k, ge(k, IN(k->m, s32, "7"), k->col), k->score);
}

static lt_t mask_or(const mask_parts_t *k)
{
    const lt_t a = OP(k->m, type_cast, f32, ge(k, k->row, k->col)),
               b = OP(k->m, type_cast, f32, ge(k, k->col, k->shift));
    return keep(k, OP(k->m, type_cast, boolean, OP(k->m, maximum, f32, a, b)), k->score);
}

/* The second mask's second condition is of rows alone. */
static lt_t mask_partly(const mask_parts_t *k)
{
    const lt_t a = OP(k->m, type_cast, f32, ge(k, plus(k, k->row, k->shift), k->col)),
               b = OP(k->m, type_cast, f32, ge(k, k->row, k->other));
    return keep(k, ge(k, k->row, k->col),
                keep(k, OP(k->m, type_cast, boolean, OP(k->m, minimum, f32, a, b)), k->score));
}

/* What limits there are, last mask first: c <= or c >=, r if they move, the shift, + and - for
 * terms. */
static void text_of_limits(const attention_params_t *a, char *text, size_t size)
{
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; i < a->n_limits && at < size; i++) {
        const column_limit_t *l = &a->limits[i];
        at += (size_t)snprintf(text + at, size - at, l->none ? "?" : "%s%s%+d",
                               l->lower ? ">=" : "<=", l->moves ? "r" : "", l->shift);
        for (int k = 0; k < l->n_terms && at < size; k++) {
            at += (size_t)snprintf(text + at, size - at, l->sign[k] > 0 ? "+" : "-");
        }
        at += at < size ? (size_t)snprintf(text + at, size - at, " ") : 0;
    }
}

static void test_masks(sinter_engine_t *engine)
{
    static const struct {
        lt_t (*mask)(const mask_parts_t *);
        const char *limits;
        bool no_rows;
        int bare; /* of them */
    } cases[] = {{mask_nested, "<=r+0 >=r+0- ", false, 2},
                 {mask_bottom_right, "<=r+0+- >=r+1+-- ", false, 2},
                 {mask_product, "<=r+0 >=r+0- ", false, 2},
                 {mask_distance, "<=r+0- >=r+0- ", false, 2},
                 {mask_added, "<=r+0 ", false, 0},
                 {mask_length, "<=+0+ >=+1+ ", true, 2},
                 {mask_twice, "? ", false, 0},
                 {mask_unknown_on_top, "? <=r+0 ", false, 0},
                 {mask_not_last, "", false, 0},
                 {mask_lengths, "<=+0+- <=-1++ ", true, 2},
                 {mask_vector, "? ", true, 0},
                 {mask_columns, "? ", true, 0},
                 {mask_or, "? ", false, 0},
                 {mask_partly, "<=r+0 <=r+0+ ", false, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        mini_t m;
        planned_t p;
        char text[200];
        mini_begin(&m, engine);
        mask_parts_t k = {.m = &m};
        k.score = OP(&m, matmul, f32, IN(&m, f32, "2x4x5x16"), IN(&m, f32, "2x4x16x7"));
        m.g.nodes[m.g.n_nodes - 1].role = "qk";
        k.row =
            cases[i].no_rows ? k.score : OPA(&m, gen_index, s32, ATTRS(S64S(axis, -2)), k.score),
        k.col = OPA(&m, gen_index, s32, ATTRS(S64S(axis, 3)), k.score);
        k.shift = IN(&m, s32, ""), k.other = IN(&m, s32, "1"), k.fill = IN(&m, f32, "1"),
        k.zero = IN(&m, f32, "");
        OP(&m, matmul, f32, OPA(&m, softmax, f32, ATTRS(S64S(axis, -1)), cases[i].mask(&k)),
           IN(&m, f32, "2x4x7x8"));
        CHECK(planned(&p, &m, FAMILY_ATTENTION) == sinter_success, "mask %zu: %s", i,
              sinter_last_error_message());
        if (p.cp != NULL && p.cp->plan.n_steps == 1) {
            const attention_params_t *a = &p.cp->plan.steps[0].p.attention;
            text_of_limits(a, text, sizeof text);
            CHECK(a->n_bare == cases[i].bare && a->sink == -1, "mask %zu: %d limits are the masks",
                  i, a->n_bare);
            CHECK(a->n_bare == 0 || (a->bare == NULL) == (a->n_bare == a->n_limits),
                  "mask %zu: what is left without them", i);
            CHECK(strcmp(text, cases[i].limits) == 0, "mask %zu: %s, not %s", i, text,
                  cases[i].limits);
        } else {
            CHECK(false, "mask %zu: no attention step", i);
        }
        planned_free(&p);
    }
}

/* ---- dims known late ------------------------------------------------------------------------- */

/* Unknown dims become the dims that they are broadcast with; a reshape may split off a part of
 * one. */
static void test_unknown_dims(sinter_engine_t *engine)
{
    mini_t m;
    mini_begin(&m, engine);
    OP(&m, add, f32, OP(&m, matmul, f32, IN(&m, f32, "?x?"), IN(&m, f32, "16x8")),
       IN(&m, f32, "?"));
    EXPECT(&m, "matmul");
    mini_begin(&m, engine);
    RESHAPE(&m, OP(&m, matmul, f32, IN(&m, f32, "?x16"), IN(&m, f32, "16x8")), -1, 32);
    EXPECT_VIEWS(&m, "matmul", 1);
    /* The product's dim may turn out to be 1 where the other one is 4. */
    mini_begin(&m, engine);
    OP(&m, add, f32, OP(&m, matmul, f32, IN(&m, f32, "?x16"), IN(&m, f32, "16x8")),
       IN(&m, f32, "4x8"));
    EXPECT(&m, "matmul, else matmul chain");
    mini_begin(&m, engine);
    OP(&m, relu, f32, IN(&m, f32, "*"));
    planned_t p;
    CHECK(planned(&p, &m, FAMILY_GENERAL) == sinter_unimplemented &&
              strstr(sinter_last_error_message(), "number of dims") != NULL,
          "unknown rank: %s", sinter_last_error_message());
    planned_free(&p);
}

int main(int argc, char **argv)
{
#if defined(_OPENMP)
    omp_set_num_threads(1); /* the oracle's: teams cost more than these small graphs */
#endif
    sinter_engine_t *engine = engine_ref(NULL);
    const int rounds = argc > 1 ? atoi(argv[1]) : 200;
    test_joins(engine);
    test_vectors(engine);
    test_views(engine);
    test_limits(engine);
    test_give_up(engine);
    test_causal(engine);
    test_masks(engine);
    test_unknown_dims(engine);
    test_random(engine, rounds, false);
    test_random(engine, rounds, true);
    return check_finish();
}
