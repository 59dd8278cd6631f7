/* The kernels of computed quantisation against the oracle: kinds, types of codes, scales and
 * zero points, geometries with loose strides, kinds of data; every kernel with 1, 2 and 3
 * threads must give the same bytes, and no two threads may write to one byte. */
#include <math.h>

#include "graph/quant.h"
#include "rig.h"

enum { MAX_DIMS = 3, THREADS = 3 };

static sinter_cpu_isa_t cap;

typedef struct geometry {
    int ndims;
    int64_t dims[MAX_DIMS], groups[MAX_DIMS];
} geometry_t;

typedef struct dynquant_case {
    quant_kind_t kind;
    int64_t code_bits;
    sinter_data_type_t in, code, scale, zp; /* zp undef: none */
    bool offsets;                           /* zp has offsets */
    const float *tensor_scale;              /* NULL: none */
    geometry_t g;
    int data;
    bool loose; /* strides */
} dynquant_case_t;

/* ---- data ------------------------------------------------------------------------------------ */

/* TINY: so small that f32 has the scale as 0. */
enum { RANDOM, SUBNORMAL, HUGE_VALUES, ZERO, OUTLIER, SPECIAL, EDGE, POSITIVE, TINY, DATA_KINDS };

static double uniform(void)
{
    return (double)(int32_t)rig_random() / 2147483648.0;
}

/* Magnitudes at which the exponent of a scale changes, powers of two and their multiples of
 * largest codes, and their neighbours. */
static double edge(void)
{
    static const double largest[] = {1, 6, 7.5, 28, 127, 240, 448, 57344};
    const double power = ldexp(largest[rig_pick(8)] * (rig_pick(2) ? 1 : -1), rig_pick(12) - 6);
    return power * (1 + (rig_pick(3) - 1) * ldexp(1, -1 - rig_pick(23)));
}

static double sample(int data, int64_t i)
{
    static const double specials[] = {NAN, INFINITY, -INFINITY};
    switch (data) {
    case SUBNORMAL:
        return rig_pick(4) ? uniform() * 0x1p-126 : uniform() * 0x1p-20;
    case HUGE_VALUES:
        return uniform() * 0x1p127 * 1.99;
    case ZERO:
        return rig_pick(2) ? 0.0 : -0.0;
    case OUTLIER:
        return i % 97 == 5 ? 1000 * uniform() : uniform() * 0x1p-10;
    case SPECIAL:
        return rig_pick(200) == 0 ? specials[rig_pick(3)] : uniform() * 8;
    case EDGE:
        return edge();
    case POSITIVE:
        return 3 + uniform();
    case TINY:
        return ldexp(rig_pick(127) - 63, -149);
    default:
        return uniform() * 8;
    }
}

/* ---- one case -------------------------------------------------------------------------------- */

static const char *kind_name(quant_kind_t kind)
{
    static const char *const names[] = {"static",
                                        "dynamic_mx",
                                        "dynamic_mx_rceil",
                                        "dynamic_symmetric",
                                        "dynamic_asymmetric",
                                        "dynamic_nv",
                                        "dynamic_signed",
                                        "dynamic_iq4_nl"};
    return names[kind];
}

static const char *case_text(const dynquant_case_t *c)
{
    static char text[256];
    int n =
        snprintf(text, sizeof text, "%s %s to %s, scales %s, %s %s, data %d%s,", kind_name(c->kind),
                 dtype_traits(c->in)->name, dtype_traits(c->code)->name,
                 dtype_traits(c->scale)->name, c->offsets ? "offsets" : "zero points",
                 c->zp ? dtype_traits(c->zp)->name : "none", c->data, c->loose ? ", loose" : "");
    for (int d = 0; d < c->g.ndims; d++) {
        n += snprintf(text + n, sizeof text - (size_t)n, " %lld/%lld", (long long)c->g.dims[d],
                      (long long)c->g.groups[d]);
    }
    return text;
}

static int add_value(rig_t *r, const dynquant_case_t *c, sinter_data_type_t type,
                     const int64_t *dims)
{
    int64_t strides[MAX_DIMS];
    rig_strides(c->g.ndims, dims, strides);
    return rig_value(r, type, c->g.ndims, dims, c->loose ? strides : NULL);
}

static sinter_logical_tensor_t tensor_of(const bound_t *b, uint64_t id)
{
    sinter_logical_tensor_t lt = {.id = id,
                                  .ndims = b->ndims,
                                  .data_type = b->dtype,
                                  .layout_type = sinter_layout_type_strided};
    memcpy(lt.dims, b->dims, sizeof lt.dims);
    memcpy(lt.strides, b->strides, sizeof lt.strides);
    return lt;
}

static void check_by_oracle(const dynquant_case_t *c, const rig_t *r, const dynquant_params_t *p)
{
    const int outs[] = {p->out.data, p->out.scale, p->out.zp}, n_out = p->out.zp >= 0 ? 3 : 2,
              n_in = p->tensor_scale >= 0 ? 2 : 1;
    const orc_attr_t attrs[] = {
        {.id = sinter_op_attr_quantization_kind, .str = kind_name(c->kind)},
        {.id = sinter_op_attr_qtype, .str = "per_group"},
        {.id = sinter_op_attr_zps_kind, .str = c->offsets ? "offsets" : "zero_points"},
        {.id = sinter_op_attr_code_bits, .n = 1, .s64 = &c->code_bits}};
    sinter_logical_tensor_t in[2], out[3];
    orc_tensor_t tensors[2];
    orc_result_t want[3];
    uint64_t ids[3];
    char err[256];
    for (int i = 0; i < n_in; i++) {
        const bound_t *b = &r->v[i == 0 ? p->in : p->tensor_scale];
        in[i] = tensor_of(b, (uint64_t)i);
        tensors[i] = (orc_tensor_t){in[i], b->data};
    }
    for (int i = 0; i < n_out; i++) {
        ids[i] = (uint64_t)i + 10;
        out[i] = tensor_of(&r->v[outs[i]], ids[i]);
    }
    const orc_op_t op = {.kind = sinter_op_dynamic_quantize,
                         .n_attrs = c->code_bits > 0 ? 4 : 3,
                         .n_inputs = (size_t)n_in,
                         .n_outputs = (size_t)n_out,
                         .attrs = attrs,
                         .inputs = in,
                         .outputs = out};
    const orc_graph_t graph = {.n_ops = 1, .ops = &op, .mode = sinter_fpmath_mode_strict};
    if (orc_run(&graph, (size_t)n_in, tensors, (size_t)n_out, ids, want, err, sizeof err)) {
        CHECK(0, "%s: %s", case_text(c), err);
        return;
    }
    for (int i = 0; i < n_out; i++) {
        orc_diff_t diff;
        char found[300], text[340];
        const int differs = orc_compare(&want[i], &out[i], r->v[outs[i]].data, &diff);
        snprintf(text, sizeof text, "output %d: %s", i, orc_diff_text(&diff, found, sizeof found));
        CHECK(!differs, "%s: %s", case_text(c), text);
        orc_result_free(&want[i]);
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { N_OUTPUTS = 3 };

typedef struct outputs {
    int value[N_OUTPUTS], n;
    unsigned char *before[N_OUTPUTS],
        *owner[N_OUTPUTS]; /* owner: 1 + the thread that changed the byte */
} outputs_t;

static void open_outputs(outputs_t *o, const rig_t *r, const dynquant_params_t *p)
{
    const int values[N_OUTPUTS] = {p->out.data, p->out.scale, p->out.zp};
    o->n = p->out.zp >= 0 ? 3 : 2;
    for (int i = 0; i < o->n; i++) {
        o->value[i] = values[i];
        o->before[i] = malloc(r->bytes[values[i]] + 1);
        o->owner[i] = malloc(r->bytes[values[i]] + 1);
    }
}

static void close_outputs(outputs_t *o)
{
    for (int i = 0; i < o->n; i++) {
        free(o->before[i]);
        free(o->owner[i]);
    }
}

static void refill(outputs_t *o, const rig_t *r, int fill)
{
    for (int i = 0; i < o->n; i++) {
        memset(r->v[o->value[i]].data, fill, r->bytes[o->value[i]]);
        memset(o->owner[i], 0, r->bytes[o->value[i]]);
    }
}

static int take_ownership(outputs_t *o, const rig_t *r, int tid)
{
    int shared = 0;
    for (int i = 0; i < o->n; i++) {
        const unsigned char *now = r->v[o->value[i]].data;
        for (size_t k = 0; k < r->bytes[o->value[i]]; k++) {
            if (now[k] != o->before[i][k]) {
                shared += o->owner[i][k] != 0 && o->owner[i][k] != 1 + tid;
                o->owner[i][k] = (unsigned char)(1 + tid);
            }
        }
    }
    return shared;
}

/* One thread after the other; returns how many bytes two of them changed, -1 on failure. */
static int run_threads(rig_t *r, outputs_t *o, const kernel_t *k, step_t *step, int nth, int fill)
{
    rig_execute_t e;
    int shared = 0;
    refill(o, r, fill);
    if (rig_begin(&e, r, k, step, nth) != sinter_success) {
        shared = -1;
    }
    for (int item = 0; shared >= 0 && item < k->driver->phases * nth; item++) {
        for (int i = 0; i < o->n; i++) {
            memcpy(o->before[i], r->v[o->value[i]].data, r->bytes[o->value[i]]);
        }
        rig_work(&e, item / nth, item % nth);
        shared += take_ownership(o, r, item % nth);
    }
    rig_end(&e);
    return shared;
}

static bool guarded(const rig_t *r)
{
    bool ok = true;
    for (int i = 0; i < r->n; i++) {
        ok = ok && rig_guarded(r, i);
    }
    return ok;
}

/* The tensors of a case and a step over them. */
static void make_step(rig_t *r, const dynquant_case_t *c, step_t *step)
{
    rig_init(r, cap);
    const int in = add_value(r, c, c->in, c->g.dims), out = add_value(r, c, c->code, c->g.dims);
    const int scale = add_value(r, c, c->scale, c->g.groups),
              zp = c->zp ? add_value(r, c, c->zp, c->g.groups) : -1;
    const int t = c->tensor_scale ? rig_value(r, sinter_f32, 0, NULL, NULL) : -1;
    int64_t idx[SINTER_MAX_NDIMS];
    if (t >= 0) {
        rig_set(r, t, NULL, *c->tensor_scale);
    }
    for (int64_t i = 0; i < rig_count(&r->v[in]); i++) {
        rig_index(&r->v[in], i, idx);
        rig_set(r, in, idx, sample(c->data, i));
    }
    *step = (step_t){.kind = STEP_DYNQUANT};
    step->p.dynquant = (dynquant_params_t){.in = in,
                                           .out = {.data = out,
                                                   .scale = scale,
                                                   .zp = zp,
                                                   .high = -1,
                                                   .offsets = c->offsets,
                                                   .scale_dim = {0, 1, 2},
                                                   .zp_dim = {0, 1, 2}},
                                           .tensor_scale = t,
                                           .kind = (int)c->kind,
                                           .code_bits = (int)c->code_bits};
}

static void run_case(const dynquant_case_t *c)
{
    rig_t r;
    step_t step;
    make_step(&r, c, &step);
    const kernel_t *kernels[RIG_KERNELS];
    const int n_kernels = rig_kernels(&r, &step, kernels);
    unsigned char *first[N_OUTPUTS] = {NULL};
    outputs_t o;
    open_outputs(&o, &r, &step.p.dynquant);
    CHECK(n_kernels >= 1, "%s: no kernel", case_text(c));
    for (int run = 0; run < n_kernels * THREADS; run++) {
        const kernel_t *k = kernels[run / THREADS];
        CHECK(run_threads(&r, &o, k, &step, 1 + run % THREADS, 0x5A) == 0,
              "%s: two threads in one byte", case_text(c));
        CHECK(run_threads(&r, &o, k, &step, 1 + run % THREADS, RIG_FILL) == 0,
              "%s: two threads in one byte", case_text(c));
        CHECK(guarded(&r), "%s: %s", case_text(c), k->name);
        if (run == 0) {
            check_by_oracle(c, &r, &step.p.dynquant);
        }
        for (int i = 0; i < o.n; i++) {
            const size_t bytes = r.bytes[o.value[i]];
            if (run == 0) {
                first[i] = malloc(bytes + 1);
                memcpy(first[i], r.v[o.value[i]].data, bytes);
            }
            CHECK(memcmp(first[i], r.v[o.value[i]].data, bytes) == 0, "%s: %s", case_text(c),
                  k->name);
        }
    }
    for (int i = 0; i < o.n; i++) {
        free(first[i]);
    }
    close_outputs(&o);
    rig_free(&r);
}

/* ---- the matrix ------------------------------------------------------------------------------ */

static const geometry_t geometries[] = {
    {2, {7, 96}, {7, 3}},       /* 32 along the last dim */
    {2, {5, 320}, {5, 1}},      /* per token */
    {2, {3, 48}, {3, 3}},       /* 16 */
    {1, {256}, {1}},            /* one group of 256 */
    {2, {9, 35}, {3, 7}},       /* tiles of 3 x 5 */
    {2, {8, 64}, {2, 16}},      /* tiles of 4 x 4 */
    {2, {33, 5}, {3, 5}},       /* 11 along dim 0 */
    {2, {64, 70}, {2, 70}},     /* 32 along dim 0 */
    {3, {2, 6, 32}, {2, 3, 2}}, /* 2 x 16 inside */
    {3, {4, 5, 6}, {1, 5, 1}},  /* per channel in the middle */
    {2, {70, 3}, {1, 3}},       /* per channel, more rows than columns */
    {2, {5, 37}, {5, 37}},      /* every element a group */
    {2, {3, 35}, {3, 1}},       /* rows of odd length */
    {3, {3, 5, 7}, {3, 5, 1}},  /* the same, with two dims outside */
    {2, {2, 600}, {2, 3}},      /* groups of 200 */
    {0, {0}, {0}},              /* a scalar */
};

static const geometry_t large[] = {
    {2, {3, 4099}, {3, 1}},                            /* rows in pieces, the last one short */
    {2, {1, 40000}, {1, 1}},                           /* one group for all threads */
    {2, {130, 260}, {1, 1}}, {2, {17000, 2}, {1, 2}},  /* columns for all threads */
    {2, {260, 520}, {1, 2}}, {2, {6, 4160}, {6, 130}}, /* several slabs in a row */
};

static const sinter_data_type_t inputs[] = {sinter_f32, sinter_f16, sinter_bf16};
static const sinter_data_type_t mx_codes[] = {
    sinter_f8_e5m2, sinter_f8_e4m3, sinter_f8_e5m2fnuz, sinter_f8_e4m3fnuz,
    sinter_f6_e3m2, sinter_f6_e2m3, sinter_f4_e2m1,     sinter_s8};
static const sinter_data_type_t symmetric_codes[] = {
    sinter_s8,          sinter_s4,      sinter_f8_e5m2, sinter_f8_e4m3, sinter_f8_e5m2fnuz,
    sinter_f8_e4m3fnuz, sinter_f6_e3m2, sinter_f6_e2m3, sinter_f4_e2m1};
static const sinter_data_type_t asymmetric_codes[] = {sinter_u8, sinter_s8, sinter_u4, sinter_s4};
static const sinter_data_type_t scales[] = {sinter_f32, sinter_f16, sinter_bf16, sinter_e8m0,
                                            sinter_f8_e4m3};
static const float tensor_scales[] = {0.0375f, 0, NAN, -0.0f}; /* the first one is usual */
static const sinter_data_type_t zero_points[] = {sinter_u8, sinter_s8, sinter_u4, sinter_s4,
                                                 sinter_s32};
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* Everything that the kind, the codes and the scales leave open, from a counter, so that all
 * values meet. */
static void run_one(dynquant_case_t c, const geometry_t *g)
{
    static int count;
    c.g = *g;
    c.in = inputs[count % COUNT(inputs)];
    c.data = count % DATA_KINDS;
    c.loose = count / 3 % 2;
    count++;
    run_case(&c);
}

static void run_types(const geometry_t *g)
{
    for (int i = 0; i < COUNT(mx_codes); i++) {
        run_one(
            (dynquant_case_t){.kind = QUANT_DYNAMIC_MX, .code = mx_codes[i], .scale = sinter_e8m0},
            g);
        run_one((dynquant_case_t){.kind = QUANT_DYNAMIC_MX_RCEIL,
                                  .code = mx_codes[i],
                                  .scale = sinter_e8m0},
                g);
    }
    for (int i = 0; i < COUNT(symmetric_codes); i++) {
        run_one((dynquant_case_t){.kind = QUANT_DYNAMIC_SYMMETRIC,
                                  .code = symmetric_codes[i],
                                  .scale = scales[rig_pick(COUNT(scales))]},
                g);
    }
    for (int i = 0; i < COUNT(asymmetric_codes); i++) {
        run_one((dynquant_case_t){.kind = QUANT_DYNAMIC_ASYMMETRIC,
                                  .code = asymmetric_codes[i],
                                  .scale = scales[rig_pick(COUNT(scales))],
                                  .zp = zero_points[rig_pick(COUNT(zero_points))]},
                g);
    }
    for (int i = -1; i < COUNT(tensor_scales); i++) {
        run_one((dynquant_case_t){.kind = QUANT_DYNAMIC_NV,
                                  .code = sinter_f4_e2m1,
                                  .scale = sinter_f8_e4m3,
                                  .tensor_scale = i < 0 ? NULL : &tensor_scales[i]},
                g);
    }
}

/* The kinds of the formats of GGUF, and codes of fewer bits than their type. */
static void run_gguf(const geometry_t *g)
{
    for (int i = 0; i < 3; i++) { /* types that have a sign: f32, f16, bf16 */
        run_one((dynquant_case_t){.kind = QUANT_DYNAMIC_SIGNED,
                                  .code = i == 0 ? sinter_s4 : sinter_s8,
                                  .code_bits = i == 1 ? 5 : 0,
                                  .scale = scales[rig_pick(3)]},
                g);
        run_one((dynquant_case_t){.kind = QUANT_DYNAMIC_IQ4_NL,
                                  .code = sinter_s8,
                                  .scale = scales[rig_pick(3)]},
                g);
        run_one((dynquant_case_t){.kind = QUANT_DYNAMIC_ASYMMETRIC,
                                  .code = i == 0 ? sinter_u8 : sinter_s8,
                                  .code_bits = 5 + i,
                                  .scale = scales[rig_pick(3)],
                                  .zp = zero_points[rig_pick(COUNT(zero_points))]},
                g);
    }
}

/* All scale types with all codes and all data, over one small geometry. */
static void run_scales(void)
{
    static const geometry_t g = {2, {3, 64}, {3, 2}}, across = {2, {64, 35}, {2, 35}};
    for (int s = 0; s < COUNT(scales); s++) {
        for (int data = 0; data < DATA_KINDS; data++) {
            for (int i = 0; i < COUNT(symmetric_codes); i++) {
                run_case(&(dynquant_case_t){.kind = QUANT_DYNAMIC_SYMMETRIC,
                                            .in = sinter_f32,
                                            .code = symmetric_codes[i],
                                            .scale = scales[s],
                                            .g = g,
                                            .data = data});
            }
            for (int i = 0; i < COUNT(asymmetric_codes); i++) {
                run_case(&(dynquant_case_t){.kind = QUANT_DYNAMIC_ASYMMETRIC,
                                            .in = sinter_f32,
                                            .code = asymmetric_codes[i],
                                            .scale = scales[s],
                                            .zp = zero_points[(i + s) % COUNT(zero_points)],
                                            .g = g,
                                            .data = data});
            }
            for (int i = 0; i < COUNT(asymmetric_codes) * COUNT(inputs) * 2; i++) {
                run_case(
                    &(dynquant_case_t){.kind = QUANT_DYNAMIC_ASYMMETRIC,
                                       .in = inputs[(i + s) % COUNT(inputs)],
                                       .code = asymmetric_codes[i / 2 % COUNT(asymmetric_codes)],
                                       .scale = scales[s],
                                       .zp = inputs[i / 2 / COUNT(asymmetric_codes)],
                                       .offsets = i % 2,
                                       .g = i % 3 ? g : across,
                                       .data = data});
            }
        }
    }
}

static void run_sizes(void)
{
    for (int64_t size = 1; size <= 256; size++) {
        const geometry_t g = {2, {3, 2 * size}, {3, 2}};
        run_one((dynquant_case_t){.kind = QUANT_DYNAMIC_MX,
                                  .code = mx_codes[size % COUNT(mx_codes)],
                                  .scale = sinter_e8m0},
                &g);
        run_one((dynquant_case_t){.kind = QUANT_DYNAMIC_ASYMMETRIC,
                                  .code = asymmetric_codes[size % COUNT(asymmetric_codes)],
                                  .scale = sinter_f16,
                                  .zp = sinter_s32},
                &g);
    }
}

/* Too large for all codes: one of each class. */
static void run_large(const geometry_t *g)
{
    run_one(
        (dynquant_case_t){.kind = QUANT_DYNAMIC_MX, .code = sinter_f6_e3m2, .scale = sinter_e8m0},
        g);
    run_one(
        (dynquant_case_t){.kind = QUANT_DYNAMIC_SYMMETRIC, .code = sinter_s8, .scale = sinter_f32},
        g);
    run_one((dynquant_case_t){.kind = QUANT_DYNAMIC_ASYMMETRIC,
                              .code = sinter_u4,
                              .scale = sinter_f16,
                              .zp = sinter_u4},
            g);
}

/* ---- ways ------------------------------------------------------------------------------------ */

typedef struct way_case {
    dynquant_case_t c;
    int threads;
    const char *portable, *vectors; /* the ways of these kernels */
} way_case_t;

#define SLOW_CODES "codes floats in memory (no function for this type of codes)"
#define ODD_GROUPS "(groups are not of 16, 32, 64 or a multiple of 128 elements)"
#define SHARED                                                                               \
    "slabs shared by all threads (too few groups for the threads, or groups too tall for a " \
    "cache); elements floats where they lie; "

static const way_case_t way_cases[] = {
    {{.kind = QUANT_DYNAMIC_SYMMETRIC,
      .in = sinter_f32,
      .code = sinter_s8,
      .scale = sinter_f32,
      .g = {2, {8, 256}, {8, 8}}},
     1,
     "slabs of groups (no function for these types); elements floats where they lie; " SLOW_CODES,
     "chunks of groups"},
    {{.kind = QUANT_DYNAMIC_SYMMETRIC,
      .in = sinter_f16,
      .code = sinter_s8,
      .scale = sinter_f32,
      .g = {2, {5, 320}, {5, 1}}},
     1,
     "slabs of groups " ODD_GROUPS
     "; elements conversion to floats (no function measures elements of this type); " SLOW_CODES,
     "slabs of groups " ODD_GROUPS "; elements 16 bits where they lie; codes registers"},
    {{.kind = QUANT_DYNAMIC_ASYMMETRIC,
      .in = sinter_bf16,
      .code = sinter_u4,
      .scale = sinter_f32,
      .zp = sinter_u4,
      .g = {2, {8, 64}, {2, 16}}},
     1,
     "slabs of groups (groups do not lie one after the other in all tensors); elements conversion "
     "to floats (no function measures elements of this type); " SLOW_CODES,
     "slabs of groups (groups do not lie one after the other in all tensors); elements conversion "
     "to floats (groups are not of a multiple of 16 columns); codes registers"},
    {{.kind = QUANT_DYNAMIC_MX,
      .in = sinter_f32,
      .code = sinter_f8_e4m3,
      .scale = sinter_e8m0,
      .g = {2, {1, 40000}, {1, 1}}},
     3,
     SHARED SLOW_CODES,
     SHARED "codes registers"},
};

/* Every kernel up to the cap takes the ways that are made for it, and says why not a faster one. */
static void run_ways(const way_case_t *w)
{
    rig_t r;
    step_t step;
    rig_execute_t e;
    const kernel_t *kernels[RIG_KERNELS];
    make_step(&r, &w->c, &step);
    const int n = rig_kernels(&r, &step, kernels);
    for (int k = 0; k < n; k++) {
        char text[512] = "";
        const char *want = has_features(kernels[k]->needs, NEEDS_AVX2) ? w->vectors : w->portable;
        CHECK_THAT(rig_begin(&e, &r, kernels[k], &step, w->threads) == sinter_success);
        for (int i = 0; i < e.choice.n_ways; i++) {
            const way_t *way = &e.choice.ways[i];
            const size_t at = strlen(text);
            snprintf(text + at, sizeof text - at, "%s%s%s%s%s%s%s", i > 0 ? "; " : "",
                     way->of != NULL ? way->of : "", way->of != NULL ? " " : "", way->row->name,
                     way->why != NULL ? " (" : "", way->why != NULL ? way->why : "",
                     way->why != NULL ? ")" : "");
        }
        CHECK(strcmp(text, want) == 0, "%s: %s goes by %s, expected %s", case_text(&w->c),
              kernels[k]->name, text, want);
        rig_end(&e);
    }
    rig_free(&r);
}

int main(void)
{
    if (cpu_isa_cap(sinter_isa_default, &cap) != sinter_success) {
        return 1;
    }
    for (int i = 0; i < COUNT(geometries); i++) {
        run_types(&geometries[i]);
    }
    run_scales();
    run_sizes();
    for (int i = 0; i < COUNT(large); i++) {
        run_large(&large[i]);
    }
    for (int i = 0; i < COUNT(geometries); i++) {
        run_gguf(&geometries[i]);
    }
    for (int i = 0; i < COUNT(way_cases); i++) {
        run_ways(&way_cases[i]);
    }
    return check_finish();
}
