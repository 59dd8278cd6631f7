/* MatMul with all that rides on it in one partition, drawn at random, against the oracle: few
 * and many rows, odd N and K, groups of scales and of zero points along K, along N and along
 * both, every type on either side, activations quantised on the fly, transposed and batched
 * weights, up to four ops behind, all fpmath modes. SINTER_RANDOM_CASES, SINTER_RANDOM_SEED;
 * SINTER_MATRIX=full has large products too; SINTER_RANDOM_ONLY=SEED, in hex as a failure prints
 * it, runs one case. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../fuzz/fuzz.h"
#include "check.h"
#include "passive.h"

#if defined(__SANITIZE_ADDRESS__)
enum { CASES = 100 };
static int64_t most_work = 1 << 20;
#else
enum { CASES = 300 };
static int64_t most_work = 1 << 24; /* of a product: M N K, and four times N K */
#endif
static int full;

/* Cases that have failed before run first: offsets, and zero points that are floats, at the ends of
 * f32, op by op and in rows, panels and tiles of integers and of floats. */
static const uint64_t known[] = {0x68599867141d9658, 0x9056c3244fbe3f0e, 0x5924af9b9edf38d2,
                                 0xfcd599d00f281fe0, 0x18624de3f9c146dc, 0xf5da424fe8ca9568,
                                 0x3d9be5009975517d};

typedef struct product {
    int64_t m, n, k, group; /* elements along K that share a scale */
    int ragged;             /* the last group has fewer */
    int batch_dims;
    int64_t batch[2];
    int kept_codes; /* whether codes that are made on the fly are graph outputs too */
} product_t;

static int64_t common(int64_t a, int64_t b)
{
    return b ? common(b, a % b) : a;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* K in groups of 16 ... K, or without a common factor with any of them. */
static void choose_k(fz_t *f, product_t *p)
{
    static const int64_t loose[] = {1, 3, 7, 17, 31, 33, 63, 65, 127, 129, 255, 301};

    p->group = FZ_ONE_OF(f, 0, 16, 32, 32, 64, 128, 128, 12, 20, 24, 40, 48, 56);
    p->k = p->group ? p->group * FZ_ONE_OF(f, 1, 1, 2, 3, 4, 5, 7) : loose[fz_pick(f, 12)];
    if (p->group == 0 && p->k % 3 == 0 && fz_chance(f, 30)) {
        p->group = p->k / 3;
    }
    p->group = p->group && fz_chance(f, 85) ? p->group : p->k;
    p->ragged = p->group >= 12 && fz_chance(f, 30);
    if (p->ragged) { /* a last group of 1 to group - 1 */
        p->k -= FZ_ONE_OF(f, 1, p->group / 2, p->group / 2, p->group - 1);
    }
}

static void choose_batch(fz_t *f, product_t *p)
{
    p->batch_dims = fz_chance(f, 60) ? 0 : fz_range(f, 1, 2);
    for (int d = 0; d < p->batch_dims; d++) {
        p->batch[d] = fz_range(f, 1, 3);
    }
}

static void choose_sizes(fz_t *f, product_t *p)
{
    static const int64_t rows[] = {1, 2, 3, 4, 8, 15, 16, 17, 32, 128, 512};
    int64_t m, batch;

    do {
        m = rows[fz_pick(f, 11)];
        p->n = FZ_ONE_OF(f, 1, 3, 7, 9, 16, 17, 31, 33, 47, 64, 65, 96, 127, 129, 192, 255, 256,
                         257, 301, 320, 513);
        choose_k(f, p);
        if (full && fz_chance(f, 30)) {
            p->n = FZ_ONE_OF(f, 576, 896, 2880, 4864);
            p->k *= FZ_ONE_OF(f, 3, 5, 9);
        }
        choose_batch(f, p);
        batch = 1;
        for (int d = 0; d < p->batch_dims; d++) {
            batch *= p->batch[d];
        }
    } while (batch * m * p->n * p->k > most_work || batch * p->n * p->k > most_work / 4);
    p->m = fz_chance(f, 20) ? fz_symbol(f, m, fz_range(f, 1, 5), fz_range(f, 6, 40)) : m;
}

/* ---- operands -------------------------------------------------------------------------------- */

static int is_int(sinter_data_type_t type)
{
    return gr_dtype(type)->class_ == GR_INT;
}

static sinter_data_type_t zp_type(fz_t *f, sinter_data_type_t code)
{
    const int is_signed = gr_dtype(code)->digits != gr_dtype(code)->bits;

    if (fz_chance(f, 30)) {
        return (sinter_data_type_t)FZ_ONE_OF(f, sinter_f16, sinter_bf16, sinter_f32);
    }
    return is_signed ? (sinter_data_type_t)FZ_ONE_OF(f, sinter_s8, sinter_s4, sinter_s32)
                     : (sinter_data_type_t)FZ_ONE_OF(f, sinter_u8, sinter_u4, sinter_s32);
}

/* Mostly f16; not drawn, so that seeds name the same cases as before. */
static sinter_data_type_t offset_type(const fz_t *f)
{
    const uint64_t h = random_mix(f->seed) % 4;

    return h < 2 ? sinter_f16 : h == 2 ? sinter_bf16 : sinter_f32;
}

/* Groups along K (dim k_dim) and sometimes along the other dim; a scale for each matrix of the
 * batch, or one for all. */
static void scale_dims(fz_t *f, int ndims, const int64_t *dims, int k_dim, int64_t group,
                       int64_t *to)
{
    const int other = 2 * ndims - 3 - k_dim;
    const int64_t along[] = {1, 1, 1, 1, 2, 4, 8, 16};

    for (int d = 0; d < ndims - 2; d++) {
        to[d] = fz_chance(f, 15) ? 1 : dims[d];
    }
    to[k_dim] = fz_divide(dims[k_dim], group);
    if (fz_is_symbol(dims[other])) {
        to[other] = fz_chance(f, 20) ? 1 : dims[other];
    } else {
        to[other] = fz_chance(f, 10) ? 1 : dims[other] / common(dims[other], along[fz_pick(f, 8)]);
    }
}

/* Zero points of groups of their own: some as the scales', some finer (64 under 128) or coarser. */
static void zp_dims(fz_t *f, int ndims, const int64_t *dims, const int64_t *scales, int k_dim,
                    int64_t group, int64_t *to)
{
    memcpy(to, scales, (size_t)ndims * sizeof *to);
    if (dims[k_dim] % group == 0 && fz_chance(f, 35)) {
        to[k_dim] = dims[k_dim] / (group % 2 == 0 && fz_chance(f, 60) ? group / 2 : dims[k_dim]);
    }
    if (fz_chance(f, 15)) {
        to[2 * ndims - 3 - k_dim] = 1;
    }
}

/* Weights are usually as engines store them. */
static int stored(fz_t *f, sinter_data_type_t type, int ndims, const int64_t *dims)
{
    const int x = fz_input(f, type, ndims, dims);

    if (fz_chance(f, 60) && !fz_is_symbol(dims[ndims - 1])) {
        fz_no_gaps(f, x);
        f->tensors[x].fixed = 1;
        f->tensors[x].property = sinter_tensor_property_constant;
    }
    return x;
}

/* Where the groups do not divide K, the sizes of groups must be given. A size larger than its dim
 * says that all of the dim is one group. */
static void say_sizes(fz_t *f, int ndims, const int64_t *dims, int k_dim, int64_t group,
                      const int64_t *scales)
{
    int64_t sizes[FZ_MAX_RANK];

    for (int d = 0; d < ndims; d++) {
        sizes[d] = d == k_dim              ? group
                   : scales[d] == dims[d]  ? 1
                   : fz_is_symbol(dims[d]) ? 1 << 20
                                           : dims[d] / scales[d];
    }
    fz_s64(f, sinter_op_attr_group_shape, (size_t)ndims, sizes);
}

/* Codes of a type with scales and perhaps zero points. A type of six bits may come in two
 * planes. */
static int coded(fz_t *f, sinter_data_type_t code, int ndims, const int64_t *dims, int k_dim,
                 int64_t group)
{
    const int split = gr_dtype(code)->bits == 6 && fz_chance(f, 50);
    int64_t scales[FZ_MAX_RANK], zps[FZ_MAX_RANK];
    int in[4], n = 1, x, offsets = 0;

    in[0] = stored(f, split ? sinter_u4 : code, ndims, dims);
    scale_dims(f, ndims, dims, k_dim, group, scales);
    in[n++] = stored(f,
                     (sinter_data_type_t)FZ_ONE_OF(f, sinter_f16, sinter_f16, sinter_f32,
                                                   sinter_bf16, sinter_e8m0, sinter_f8_e4m3),
                     ndims, scales);
    if (is_int(code) && fz_chance(f, 60)) {
        offsets = fz_chance(f, 25);
        zp_dims(f, ndims, dims, scales, k_dim, group, zps);
        in[n++] = offsets ? stored(f, offset_type(f), ndims, scales)
                          : stored(f, zp_type(f, code), ndims, zps);
    }
    fz_perhaps_at_brink(f, in[0], in[1], n > 2 ? in[2] : -1, offsets, offsets ? 60 : 20);
    if (split) {
        in[n++] = stored(f, sinter_u2, ndims, dims);
    }
    x = fz_op(f, sinter_op_dynamic_dequantize, fz_float(f), ndims, dims, n, in);
    fz_str(f, sinter_op_attr_qtype, "per_group");
    if (dims[k_dim] % group) {
        say_sizes(f, ndims, dims, k_dim, group, scales);
    }
    if (offsets) {
        fz_str(f, sinter_op_attr_zps_kind, "offsets");
    }
    if (split) {
        fz_str(f, sinter_op_attr_split_type, gr_dtype(code)->name);
    }
    return x;
}

/* Scales in attributes, for the whole tensor or for each column (row, if transposed). */
static int coded_static(fz_t *f, sinter_data_type_t code, int ndims, const int64_t *dims, int k_dim)
{
    enum { MOST = 600 };
    float scales[MOST];
    int64_t zps[MOST];
    const int other = 2 * ndims - 3 - k_dim, channel = dims[other] <= MOST && fz_chance(f, 60);
    const size_t n = channel ? (size_t)dims[other] : 1;
    const int zp = is_int(code) && fz_chance(f, 50);
    int x = fz_input(f, code, ndims, dims);

    for (size_t i = 0; i < n; i++) {
        scales[i] = (float)fz_range(f, 1, 40) / 256;
        zps[i] = zp ? fz_range(f, 0, 7) : 0;
    }
    x = fz_unary(f, sinter_op_dequantize, sinter_f32, x);
    fz_f32(f, sinter_op_attr_scales, n, scales);
    if (is_int(code)) {
        fz_s64(f, sinter_op_attr_zps, n, zps);
    }
    fz_str(f, sinter_op_attr_qtype, channel ? "per_channel" : "per_tensor");
    fz_s64(f, sinter_op_attr_axis, 1, &(int64_t){channel ? other : 0});
    return x;
}

/* A float activation through codes whose scales are computed, or given by attribute. */
static int on_the_fly(fz_t *f, product_t *p, int x)
{
    fz_coded_t q;

    if (fz_chance(f, 25)) {
        const float scale = (float)fz_range(f, 1, 8) / 64;

        x = fz_unary(f, sinter_op_quantize, (sinter_data_type_t)FZ_ONE_OF(f, sinter_s8, sinter_u8),
                     x);
        fz_f32(f, sinter_op_attr_scales, 1, &scale);
        x = fz_unary(f, sinter_op_dequantize, sinter_f32, x);
        fz_f32(f, sinter_op_attr_scales, 1, &scale);
        return x;
    }
    q = fz_computed(f, x, FZ_ONE_OF(f, 0, 16, 32, 32, 64));
    if (!p->kept_codes) {
        f->tensors[q.codes].keep = f->tensors[q.scales].keep = 0;
    }
    if (!p->kept_codes && q.zps >= 0) {
        f->tensors[q.zps].keep = 0;
    }
    if (!p->kept_codes && q.high >= 0) {
        f->tensors[q.high].keep = 0;
    }
    return fz_recovered(f, fz_float(f), &q);
}

/* Numbers of many magnitudes, some of them NaN or infinite. */
static int numbers(fz_t *f, int ndims, const int64_t *dims)
{
    const int x = fz_input(f, fz_float(f), ndims, dims);

    f->tensors[x].spread = fz_chance(f, 30) ? fz_range(f, 1, 2) : 0;
    f->tensors[x].vast = fz_chance(f, 10);
    return x;
}

static int activation(fz_t *f, product_t *p, int ndims, const int64_t *dims, int k_dim)
{
    const int what = fz_pick(f, 10);

    if (what == 0) {
        return coded_static(f, fz_code_type(f), ndims, dims, k_dim);
    }
    if (what == 1 || what == 2) {
        return coded(f, fz_code_type(f), ndims, dims, k_dim, fz_chance(f, 50) ? p->group : p->k);
    }
    if (what == 3) {
        return on_the_fly(f, p, numbers(f, ndims, dims));
    }
    return numbers(f, ndims, dims);
}

static int weight(fz_t *f, const product_t *p, int ndims, const int64_t *dims, int k_dim)
{
    const int what = fz_pick(f, 10);

    if (what == 0) {
        return fz_input(f, fz_float(f), ndims, dims);
    }
    if (what == 1) {
        return coded_static(f, fz_code_type(f), ndims, dims, k_dim);
    }
    return coded(f, fz_code_type(f), ndims, dims, k_dim, p->group);
}

/* Dims of an operand: its own part of the batch, then rows and columns. Returns the rank. */
static int operand_dims(fz_t *f, const product_t *p, int64_t rows, int64_t columns, int turned,
                        int64_t *dims)
{
    const int drop = fz_chance(f, 40) ? fz_pick(f, p->batch_dims + 1) : 0;
    int n = 0;

    for (int d = drop; d < p->batch_dims; d++) {
        dims[n++] = fz_chance(f, 25) ? 1 : p->batch[d];
    }
    dims[n++] = turned ? columns : rows;
    dims[n++] = turned ? rows : columns;
    return n;
}

/* ---- what stands behind ---------------------------------------------------------------------- */

static int selected(fz_t *f, int x)
{
    const fz_tensor_t t = f->tensors[x];
    int64_t dims[FZ_MAX_RANK];
    const int n = fz_side_dims(f, x, dims), keep = fz_input(f, sinter_boolean, n, dims),
              other = fz_scalar(f, t.type, t.ndims), first = fz_chance(f, 70);

    return FZ_OP(f, select, t.type, t.ndims, t.dims, keep, first ? x : other, first ? other : x);
}

static void posts(fz_t *f, int x)
{
    const int n = fz_range(f, 0, 4);

    for (int i = 0; i < n; i++) {
        x = fz_chance(f, 12) ? selected(f, x) : fz_post_op(f, x);
    }
    if (fz_chance(f, 20)) {
        fz_quantized(f, gr_dtype(f->tensors[x].type)->bits > 8 ? x : fz_cast(f, fz_float(f), x));
    }
}

/* Makes plain activations small where the weights have scales near the ends of f32: most sums then
 * fit. */
static void temper(fz_t *f, int a)
{
    for (int i = 0; i < f->n_tensors && !f->tensors[a].produced; i++) {
        if (f->tensors[i].brink == FZ_BRINK_SCALES) {
            f->tensors[a].level = -(int)(random_mix(f->seed + 1) % 32);
            f->tensors[a].vast = f->tensors[a].spread = 0;
        }
    }
}

static void build(fz_t *f)
{
    static const sinter_fpmath_mode_t modes[] = {
        sinter_fpmath_mode_strict, sinter_fpmath_mode_tf32, sinter_fpmath_mode_f16,
        sinter_fpmath_mode_bf16,   sinter_fpmath_mode_any,  sinter_fpmath_mode_int8};
    int64_t a[FZ_MAX_RANK], b[FZ_MAX_RANK], dims[FZ_MAX_RANK];
    int in[3], na, nb, n = 0, x, n_in = 2;
    product_t p = {.kept_codes = fz_chance(f, 30)};

    f->mode = modes[fz_pick(f, 6)];
    f->apply_to_int = fz_chance(f, 80);
    f->fused_only = fz_chance(f, 75);
    choose_sizes(f, &p);
    const int ta = fz_chance(f, 10), tb = fz_chance(f, 60);
    na = operand_dims(f, &p, p.m, p.k, ta, a);
    nb = operand_dims(f, &p, p.k, p.n, tb, b);
    in[0] = activation(f, &p, na, a, ta ? na - 2 : na - 1);
    in[1] = weight(f, &p, nb, b, tb ? nb - 1 : nb - 2);
    temper(f, in[0]);
    fz_perhaps_in_tiles(f, in[1], tb, 60);
    for (int d = na > nb ? na : nb; d > 2; d--) {
        const int64_t da = d > na ? 1 : a[na - d], db = d > nb ? 1 : b[nb - d];

        dims[n++] = da == 1 ? db : da;
    }
    dims[n++] = p.m;
    dims[n++] = p.n;
    if (fz_chance(f, 20)) {
        in[n_in++] = fz_input(f, fz_float(f), 1, &p.n);
    }
    x = fz_op(f, sinter_op_matmul, fz_float(f), n, dims, n_in, in);
    if (ta) {
        fz_bool(f, sinter_op_attr_transpose_a, 1);
    }
    if (tb) {
        fz_bool(f, sinter_op_attr_transpose_b, 1);
    }
    posts(f, x);
}

/* ---- running --------------------------------------------------------------------------------- */

static void run_case(uint64_t seed, int verbose)
{
    const long before = fz_tally.partitions;
    char text[1024] = "";
    fz_outcome_t outcome;
    fz_t f;

    fz_init(&f, seed);
    f.generator = "product";
    build(&f);
    if (verbose) {
        fprintf(stderr, "%016llx\n", (unsigned long long)seed);
        fz_print(&f);
    }
    outcome = fz_run(&f, text, sizeof text);
    const bool ok = outcome == FZ_PASSED && fz_tally.partitions == before + 1;
    CHECK(ok, "%016llx %s, in %ld partitions: %s", (unsigned long long)seed,
          outcome == FZ_PASSED   ? "passed"
          : outcome == FZ_FAILED ? "failed"
                                 : "is unsupported",
          fz_tally.partitions - before, text);
    if (!ok) {
        fz_print(&f);
    }
    fz_free(&f);
}

int main(int argc, char **argv)
{
    (void)argc;
    wait_passively(argv);
    const char *only = getenv("SINTER_RANDOM_ONLY"), *cases = getenv("SINTER_RANDOM_CASES"),
               *seed = getenv("SINTER_RANDOM_SEED");
    const long count = only ? 1 : cases ? strtol(cases, NULL, 0) : CASES;
    const char *what = getenv("SINTER_MATRIX");
    uint64_t seeds = seed ? strtoull(seed, NULL, 0) : 1;

    full = what && strcmp(what, "full") == 0;
    most_work = full ? INT64_C(1) << 27 : most_work;
    for (size_t i = 0; only == NULL && count > 0 && i < sizeof known / sizeof *known; i++) {
        run_case(known[i], getenv("SINTER_RANDOM_VERBOSE") != NULL);
    }
    /* These are at the ends of f32 on purpose: the share of loose bounds is that of the others. */
    fz_tally.loose = 0;
    fz_tally.outputs = 0;
    for (long i = 0; i < count && check_failed < 10; i++) {
        const uint64_t next = random_next(&seeds);

        run_case(only ? strtoull(only, NULL, 16) : next, getenv("SINTER_RANDOM_VERBOSE") != NULL);
    }
    printf("%ld ops in %ld partitions, %ld tensors in tiles\n", fz_tally.ops, fz_tally.partitions,
           fz_tally.tiled);
    /* Activations near the ends of f32: sums may overflow or not; 4 to 10 % of 300 cases. */
    fz_check_loose(0.14);
    return check_finish();
}
