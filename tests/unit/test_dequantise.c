/* Decoding by scales and zero points, encoding by given ones and plain conversion, as chains:
 * every element type, scale type, zero-point type, output type and geometry against the formula
 * in double with the oracle's codecs. Scales have so few bits that no step but the last rounds,
 * so that results equal; codes are all bit patterns. */
#include <math.h>

#include "backend_xsmm/chain/chain.h"
#include "base/status.h"
#include "rig.h"

static sinter_cpu_isa_t cap;

/* Elements along each dim that share a scale, a zero point. */
typedef struct geometry {
    int ndims;
    int64_t dims[4], scale[4], zp[4];
} geometry_t;

static const geometry_t geometries[] = {
    {1, {1}, {1}, {1}},
    {1, {257}, {257}, {1}},
    {1, {2500}, {50}, {25}},
    {1, {4100}, {1}, {4100}},
    {2, {5, 96}, {1, 32}, {1, 32}},
    {2, {3, 256}, {1, 128}, {1, 64}},
    {2, {3, 1536}, {1, 256}, {1, 16}},
    {2, {2, 2100}, {1, 3}, {1, 5}},
    {2, {3, 1040}, {1, 2}, {1, 8}},
    {2, {33, 7}, {1, 7}, {1, 7}},
    {2, {17, 130}, {17, 1}, {17, 130}},
    {2, {8, 1200}, {4, 4}, {2, 4}},
    {2, {64, 64}, {32, 32}, {64, 1}},
    {2, {40, 9}, {8, 1}, {40, 1}},
    {2, {1500, 2}, {1, 2}, {2, 1}},
    {2, {6, 250}, {2, 250}, {3, 125}},
    {2, {70, 90}, {1, 45}, {35, 90}},
    {3, {2, 32, 48}, {1, 32, 1}, {1, 16, 1}},
    {3, {3, 1, 130}, {3, 1, 13}, {1, 1, 26}},
    {4, {2, 3, 4, 80}, {1, 1, 1, 16}, {1, 3, 1, 8}},
    {1, {8256}, {48}, {48}},
    {1, {8256}, {48}, {96}},
    {2, {3, 4192}, {1, 16}, {1, 16}},
    {2, {35, 192}, {35, 1}, {35, 1}},
    {2, {40, 160}, {4, 4}, {8, 160}},
    {1, {6144}, {3072}, {3072}},
};
enum { N_GEOMETRIES = sizeof geometries / sizeof *geometries };

static const geometry_t past[] = {
    {2, {5, 96}, {1, 32}, {1, 32}}, {2, {3, 4192}, {1, 16}, {1, 16}}, {1, {8256}, {96}, {96}}};

static const sinter_data_type_t codes[] = {sinter_s8,          sinter_u8,          sinter_s4,
                                           sinter_u4,          sinter_f8_e5m2,     sinter_f8_e4m3,
                                           sinter_f8_e5m2fnuz, sinter_f8_e4m3fnuz, sinter_f6_e3m2,
                                           sinter_f6_e2m3,     sinter_f4_e2m1};
static const sinter_data_type_t scales[] = {sinter_f32, sinter_f16, sinter_bf16, sinter_e8m0,
                                            sinter_f8_e4m3};
static const sinter_data_type_t zps[] = {
    sinter_data_type_undef, sinter_s8, sinter_u8, sinter_s4, sinter_u4, sinter_s32};
static const sinter_data_type_t floats[] = {sinter_f32, sinter_f16, sinter_bf16};

#define EACH(type, list) \
    for (size_t type##_i = 0; type##_i < sizeof(list) / sizeof *(list); type##_i++)

/* ---- values ---------------------------------------------------------------------------------- */

static bool is_int(sinter_data_type_t type)
{
    return dtype_traits(type)->cls == DTYPE_INT;
}

/* Dense, or dims in any order with gaps. */
static int value_of(rig_t *r, sinter_data_type_t type, int ndims, const int64_t *dims)
{
    int64_t strides[SINTER_MAX_NDIMS];
    rig_strides(ndims, dims, strides);
    return rig_value(r, type, ndims, dims, rig_pick(2) ? strides : NULL);
}

static int grouped(rig_t *r, sinter_data_type_t type, const geometry_t *g, const int64_t *group)
{
    int64_t dims[4];
    for (int d = 0; d < g->ndims; d++) {
        dims[d] = g->dims[d] / group[d];
    }
    return value_of(r, type, g->ndims, dims);
}

static void fill_bits(rig_t *r, int v)
{
    for (size_t i = 0; i < r->bytes[v]; i++) {
        r->v[v].data[i] = (unsigned char)rig_random();
    }
}

/* Few bits: 7 where the type has them, exponents that keep results out of the subnormals of f32,
 * and now and then what is no number. */
static double random_scale(sinter_data_type_t type)
{
    static const double special[] = {0, -0.0, INFINITY, -INFINITY, NAN};
    const int range = type == sinter_f16 ? 10 : 90;
    if (rig_pick(40) == 0) {
        return special[rig_pick(5)];
    }
    return ldexp(rig_pick(2) ? 64 + rig_pick(64) : -1 - rig_pick(127),
                 rig_pick(2 * range) - range - 6);
}

static void fill_scales(rig_t *r, int v)
{
    int64_t idx[SINTER_MAX_NDIMS];
    const sinter_data_type_t type = r->v[v].dtype;
    if (dtype_traits(type)->bits == 8) {
        fill_bits(r, v);
        return;
    }
    for (int64_t i = 0; i < rig_count(&r->v[v]); i++) {
        rig_index(&r->v[v], i, idx);
        rig_set(r, v, idx, random_scale(type));
    }
}

static void fill_zps(rig_t *r, int v)
{
    if (r->v[v].dtype != sinter_s32) {
        fill_bits(r, v);
        return;
    }
    int64_t idx[SINTER_MAX_NDIMS];
    for (int64_t i = 0; i < rig_count(&r->v[v]); i++) {
        rig_index(&r->v[v], i, idx);
        rig_set(r, v, idx, rig_pick(8) ? rig_pick(600) - 300 : (double)(int32_t)rig_random());
    }
}

static double of_group(const rig_t *r, int v, int ndims, const int64_t *idx, const int64_t *group)
{
    int64_t own[SINTER_MAX_NDIMS];
    for (int d = 0; d < ndims; d++) {
        own[d] = idx[d] / group[d];
    }
    return rig_get(r, v, own);
}

/* ---- one case -------------------------------------------------------------------------------- */

typedef struct test_case {
    rig_t r;
    const geometry_t *g;
    int in, scale, zp, out;                               /* values; zp -1: none */
    enum { DEQUANTISE, RESTORE, QUANTISE, CONVERT } what; /* RESTORE: by offsets */
    step_t step;
    char name[160];
} test_case_t;

static int typed(sinter_data_type_t type)
{
    return type != sinter_data_type_undef;
}

static void open_case(test_case_t *t, const geometry_t *g, sinter_data_type_t in,
                      sinter_data_type_t scale, sinter_data_type_t zp, sinter_data_type_t out,
                      int what)
{
    const char *names[] = {dtype_traits(in)->name, dtype_traits(scale)->name,
                           typed(zp) ? dtype_traits(zp)->name : "none", dtype_traits(out)->name};
    *t = (test_case_t){.g = g, .what = what, .step = {.kind = STEP_CHAIN}};
    rig_init(&t->r, cap);
    t->r.plan.cache_bytes = (size_t)rig_pick(2); /* 1: everything is too large for it */
    t->in = value_of(&t->r, in, g->ndims, g->dims);
    t->scale = grouped(&t->r, scale, g, g->scale);
    t->zp = typed(zp) ? grouped(&t->r, zp, g, g->zp) : -1;
    t->out = value_of(&t->r, out, g->ndims, g->dims);
    snprintf(t->name, sizeof t->name, "%s scale %s zp %s to %s, %d dims, %d first, cache %d",
             names[0], names[1], names[2], names[3], g->ndims, (int)g->dims[0],
             (int)t->r.plan.cache_bytes);
}

static void build(test_case_t *t)
{
    static const int8_t same[SINTER_MAX_NDIMS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    static const int64_t exact[SINTER_MAX_NDIMS]; /* groups divide the dims */
    const sinter_data_type_t out = t->r.v[t->out].dtype;
    chain_builder_t b;
    chain_begin(&b, &t->r.plan.arena, t->g->ndims, t->out, false);
    const int x = chain_load(&b, t->in, t->g->ndims),
              s = chain_load_groups(&b, t->scale, same, exact),
              z = t->zp < 0 ? -1 : chain_load_groups(&b, t->zp, same, exact);
    const int y = t->what == QUANTISE     ? chain_unrounded(&b, chain_quant(&b, x, s, z, out), out)
                  : t->what == DEQUANTISE ? chain_dequant(&b, x, s, z)
                  : t->what == RESTORE    ? chain_dequant_offset(&b, x, s, z)
                                          : x;
    const bool f64 = t->zp >= 0 && dtype_needs_f64(t->r.v[t->zp].dtype);
    CHECK(chain_store(&b, y, t->out, NULL) == sinter_success &&
              chain_finish(&b, -1, f64, &t->step.post) == sinter_success,
          "%s: %s", t->name, sinter_last_error_message());
}

static double expected(const test_case_t *t, const int64_t *idx)
{
    const double x = rig_get(&t->r, t->in, idx),
                 s = of_group(&t->r, t->scale, t->g->ndims, idx, t->g->scale);
    const double z = t->zp < 0 ? 0 : of_group(&t->r, t->zp, t->g->ndims, idx, t->g->zp);
    if (t->what == CONVERT) {
        return x;
    }
    if (t->what == RESTORE) {
        return x * s + z;
    }
    if (t->what == DEQUANTISE) {
        return (t->zp < 0 ? x : x - z) * s;
    }
    return is_int(t->r.v[t->out].dtype) ? rint(x / s) + z : x / s;
}

/* The whole buffer as it should be. NaNs are taken as they were found: which one is not said. */
static void want(const test_case_t *t, unsigned char *buffer)
{
    const bound_t *out = &t->r.v[t->out];
    int64_t idx[SINTER_MAX_NDIMS];
    for (int64_t i = 0; i < rig_count(out); i++) {
        rig_index(out, i, idx);
        const int64_t at = rig_offset(out, idx);
        const double v = expected(t, idx), got = rig_get(&t->r, t->out, idx);
        orc_encode(out->dtype, buffer, at, v);
        if (isnan(got) && isnan(orc_decode(out->dtype, buffer, at))) {
            const size_t bytes = (size_t)dtype_traits(out->dtype)->block_bytes;
            memcpy(buffer + (size_t)at * bytes, out->data + (size_t)at * bytes, bytes);
        }
    }
}

static void close_case(test_case_t *t)
{
    rig_t *r = &t->r;
    unsigned char *buffer = malloc(r->bytes[t->out] + 1);
    const kernel_t *kernels[RIG_KERNELS];
    build(t);
    const int n_kernels = rig_kernels(r, &t->step, kernels);
    CHECK(n_kernels >= 1, "%s: no kernel accepts", t->name);
    for (int k = 0; k < n_kernels; k++) {
        const int threads = 1 + rig_pick(3);
        memset(r->v[t->out].data, RIG_FILL, r->bytes[t->out]);
        CHECK(rig_run(r, kernels[k], &t->step, threads) == sinter_success, "%s: %s", t->name,
              sinter_last_error_message());
        memset(buffer, RIG_FILL, r->bytes[t->out]);
        want(t, buffer);
        CHECK(memcmp(buffer, r->v[t->out].data, r->bytes[t->out]) == 0 && rig_guarded(r, t->out),
              "%s: %s", t->name, kernels[k]->name);
    }
    free(buffer);
    rig_free(r);
}

static void dequantise(const geometry_t *g, sinter_data_type_t type, sinter_data_type_t scale,
                       sinter_data_type_t zp, sinter_data_type_t out)
{
    test_case_t t;
    open_case(&t, g, type, scale, zp, out, DEQUANTISE);
    fill_bits(&t.r, t.in);
    fill_scales(&t.r, t.scale);
    if (t.zp >= 0) {
        fill_zps(&t.r, t.zp);
    }
    close_case(&t);
}

/* Offsets are scales times whole numbers, so that no sum has more digits than a float. Half of the
 * scales are so large that codes times these are beyond f32, where offsets make up for it. */
static void restore(const geometry_t *g, sinter_data_type_t type, sinter_data_type_t scale,
                    sinter_data_type_t offset, sinter_data_type_t out)
{
    geometry_t same = *g;
    int64_t idx[SINTER_MAX_NDIMS];
    test_case_t t;
    memcpy(same.zp, same.scale, sizeof same.zp);
    open_case(&t, &same, type, scale, offset, out, RESTORE);
    fill_bits(&t.r, t.in);
    fill_scales(&t.r, t.scale);
    for (int64_t i = 0; i < rig_count(&t.r.v[t.zp]); i++) {
        rig_index(&t.r.v[t.zp], i, idx);
        if (scale != sinter_f16 && scale != sinter_f8_e4m3 && rig_pick(2)) {
            rig_set(&t.r, t.scale, idx,
                    ldexp(scale == sinter_e8m0 ? 64 : 64 + rig_pick(64), 113 + rig_pick(5)));
        }
        const double s = rig_get(&t.r, t.scale, idx), most = fabs(0x1p127 / s);
        rig_set(&t.r, t.zp, idx, -s * (most < 256 ? rig_pick((int)most + 1) : rig_pick(256)));
    }
    close_case(&t);
}

/* Results go past the caches, and groups are a block, a pair of blocks, or several pairs. A
 * factor other than 1 gives scales so many digits that products must be rounded to 16 bits. */
static void dequantise_past(const geometry_t *g, sinter_data_type_t type, sinter_data_type_t scale,
                            sinter_data_type_t out, double factor)
{
    test_case_t t;
    int64_t idx[SINTER_MAX_NDIMS];
    open_case(&t, g, type, scale, sinter_data_type_undef, out, DEQUANTISE);
    t.r.plan.cache_bytes = 1;
    fill_bits(&t.r, t.in);
    fill_scales(&t.r, t.scale);
    for (int64_t i = 0; i < rig_count(&t.r.v[t.scale]) && factor != 1; i++) {
        rig_index(&t.r.v[t.scale], i, idx);
        rig_set(&t.r, t.scale, idx, rig_get(&t.r, t.scale, idx) * factor);
    }
    close_case(&t);
}

/* x is the scale times a quarter of a whole number: quotients are exact, halves among them. */
static void fill_multiples(test_case_t *t)
{
    int64_t idx[SINTER_MAX_NDIMS];
    for (int64_t i = 0; i < rig_count(&t->r.v[t->in]); i++) {
        rig_index(&t->r.v[t->in], i, idx);
        const double s = of_group(&t->r, t->scale, t->g->ndims, idx, t->g->scale);
        rig_set(&t->r, t->in, idx,
                s * (rig_pick(10) ? rig_pick(256) - 128 : 4 * (rig_pick(256) - 128)) / 4);
    }
}

/* What is no number, or beyond all codes: here and there among elements, and among scales. */
static void scatter(rig_t *r, int v, int one_in, const double *list, int n)
{
    int64_t idx[SINTER_MAX_NDIMS];
    for (int64_t i = 0; i < rig_count(&r->v[v]); i++) {
        if (rig_pick(one_in) == 0) {
            rig_index(&r->v[v], i, idx);
            rig_set(r, v, idx, list[rig_pick(n)]);
        }
    }
}

static void quantise(const geometry_t *g, sinter_data_type_t in, sinter_data_type_t scale,
                     sinter_data_type_t zp, sinter_data_type_t type)
{
    test_case_t t;
    int64_t idx[SINTER_MAX_NDIMS];
    open_case(&t, g, in, scale, zp, type, QUANTISE);
    for (int64_t i = 0; i < rig_count(&t.r.v[t.scale]); i++) {
        rig_index(&t.r.v[t.scale], i, idx);
        rig_set(&t.r, t.scale, idx, ldexp(1, rig_pick(9) - 6)); /* in the range of all types */
    }
    if (t.zp >= 0) {
        fill_zps(&t.r, t.zp);
    }
    fill_multiples(&t);
    if (rig_pick(2)) {
        static const double far[] = {NAN, INFINITY, -INFINITY, 60000, -60000, 0, -0.0};
        scatter(&t.r, t.in, 300, far, 7);
    }
    if (rig_pick(4) == 0) {
        static const double bad[] = {NAN, INFINITY, 0, -0.0, -1};
        scatter(&t.r, t.scale, 20, bad, 5);
    }
    close_case(&t);
}

static void convert(const geometry_t *g, sinter_data_type_t in, sinter_data_type_t out)
{
    test_case_t t;
    open_case(&t, g, in, sinter_f32, sinter_data_type_undef, out, CONVERT);
    fill_bits(&t.r, t.in);
    close_case(&t);
}

static const geometry_t *any_geometry(void)
{
    return &geometries[rig_pick(N_GEOMETRIES)];
}

int main(void)
{
    CHECK(cpu_isa_cap(sinter_isa_default, &cap) == sinter_success, "ISA: %s",
          sinter_last_error_message());
    EACH(c, codes)
    EACH(s, scales)
    EACH(z, zps)
    EACH(f, floats)
    {
        if (is_int(codes[c_i]) || !typed(zps[z_i])) {
            dequantise(any_geometry(), codes[c_i], scales[s_i], zps[z_i], floats[f_i]);
            quantise(any_geometry(), floats[f_i], scales[s_i], zps[z_i], codes[c_i]);
        }
    }
    EACH(c, codes)
    EACH(s, scales)
    EACH(z, floats)
    EACH(f, floats)
    {
        if (is_int(codes[c_i])) {
            restore(any_geometry(), codes[c_i], scales[s_i], floats[z_i], floats[f_i]);
        }
    }
    for (size_t g = 0; g < sizeof past / sizeof *past; g++) {
        EACH(c, codes)
        EACH(s, scales)
        EACH(f, floats)
        {
            dequantise_past(&past[g], codes[c_i], scales[s_i], floats[f_i], 1);
            dequantise_past(&past[g], codes[c_i], sinter_f32, floats[f_i], 1 + 0x1p-7);
        }
    }
    EACH(g, geometries)
    EACH(c, codes)
    EACH(f, floats)
    {
        convert(&geometries[g_i], floats[f_i], codes[c_i]);
        convert(&geometries[g_i], codes[c_i], floats[f_i]);
        convert(&geometries[g_i], floats[f_i], floats[rig_pick(3)]);
    }
    EACH(c, codes)
    EACH(g, geometries)
    EACH(f, floats)
    {
        const sinter_data_type_t zp =
            is_int(codes[c_i]) ? zps[rig_pick(6)] : sinter_data_type_undef;
        dequantise(&geometries[g_i], codes[c_i], scales[rig_pick(5)], zp, floats[f_i]);
        quantise(&geometries[g_i], floats[f_i], scales[rig_pick(5)], zp, codes[c_i]);
    }
    return check_finish();
}
