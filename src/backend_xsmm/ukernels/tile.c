/* Binding of matrix operands, and loading of tiles. A tile is loaded line by line, lines running
 * along whichever of rows and columns is contiguous in memory:
 *
 *   codes --dtype_bulk--> f32 line --(x - zp) * scale--> dst row,     or 16 such lines
 *   --transpose--> 16 dst columns */
#include "backend_xsmm/ukernels/tile.h"

#include <math.h>
#include <string.h>

#include "backend_xsmm/ukernels/tile_isa.h"
#include "base/status.h"

/* ---- binding --------------------------------------------------------------------------------- */

/* Strides and group sizes of scales or zero points by data dim. A dim they do not have: one
 * group, stride 0. */
static sinter_status_t bind_groups(const char *what, const bound_t *data, const bound_t *side,
                                   const int8_t *dim, int64_t *stride, int64_t *group)
{
    for (int d = 0; d < data->ndims; d++) {
        const int64_t n = data->dims[d], groups = dim[d] < 0 ? 1 : side->dims[dim[d]];
        stride[d] = dim[d] < 0 ? 0 : side->strides[dim[d]];
        if (n == 0) {
            group[d] = 1;
            continue;
        }
        if (groups < 1 || n % groups != 0) {
            return sg_fail(sinter_invalid_shape,
                           "%s: dim %d of %lld elements does not divide into %lld groups", what, d,
                           (long long)n, (long long)groups);
        }
        group[d] = n / groups;
    }
    return sinter_success;
}

static void swap_i64(int64_t *v, int i, int j)
{
    int64_t t = v[i];
    v[i] = v[j];
    v[j] = t;
}

static sinter_status_t bind_high(const operand_t *op, const bound_t *data, const bound_t *high,
                                 tile_operand_t *out)
{
    if (high->ndims != data->ndims) {
        return sg_fail(sinter_invalid_shape,
                       "the high plane of split codes has %d dims, the low plane %d", high->ndims,
                       data->ndims);
    }
    for (int d = 0; d < data->ndims; d++) {
        if (high->dims[d] != data->dims[d]) {
            return sg_fail(
                sinter_invalid_shape,
                "the high plane of split codes has %lld elements along dim %d, the low plane %lld",
                (long long)high->dims[d], d, (long long)data->dims[d]);
        }
        out->high_stride[d] = high->strides[d];
    }
    out->base.high = high->data;
    out->base.split = op->split;
    return sinter_success;
}

sinter_status_t tile_bind(const operand_t *op, bool trans, const frame_t *frame,
                          tile_operand_t *out)
{
    const bound_t *data = &frame->v[op->data];
    const int n = data->ndims, r = n - 2, c = n - 1;
    if (n < 2) {
        return sg_fail(sinter_invalid_shape, "a matrix operand has %d dims, needs 2", n);
    }
    *out = (tile_operand_t){.ndims = n};
    for (int d = 0; d < n; d++) {
        out->dims[d] = data->dims[d];
        out->stride[d] = data->strides[d];
        out->scale_group[d] = out->zp_group[d] = 1;
    }
    tile_src_t *b = &out->base;
    b->data = data->data;
    b->dtype = data->dtype;
    b->type = dtype_traits(data->dtype);
    if (op->scale >= 0) {
        const bound_t *scale = &frame->v[op->scale];
        SG_TRY(
            bind_groups("scales", data, scale, op->scale_dim, out->scale_stride, out->scale_group));
        b->scale = scale->data;
        b->scale_dtype = scale->dtype;
        b->scale_type = dtype_traits(scale->dtype);
    }
    if (op->zp >= 0) {
        const bound_t *zp = &frame->v[op->zp];
        SG_TRY(bind_groups("zero points", data, zp, op->zp_dim, out->zp_stride, out->zp_group));
        b->zp = zp->data;
        b->zp_dtype = zp->dtype;
        b->zp_type = dtype_traits(zp->dtype);
    }
    if (op->split != sinter_data_type_undef) {
        SG_TRY(bind_high(op, data, &frame->v[op->high], out));
    }
    int64_t *const by_dim[] = {out->dims,         out->stride,    out->high_stride,
                               out->scale_stride, out->zp_stride, out->scale_group,
                               out->zp_group};
    for (size_t i = 0; trans && i < sizeof by_dim / sizeof by_dim[0]; i++) {
        swap_i64(by_dim[i], r, c);
    }
    b->rs = out->stride[r], b->cs = out->stride[c];
    b->high_rs = out->high_stride[r], b->high_cs = out->high_stride[c];
    b->scale_rs = out->scale_stride[r], b->scale_cs = out->scale_stride[c];
    b->zp_rs = out->zp_stride[r], b->zp_cs = out->zp_stride[c];
    b->scale_gr = out->scale_group[r], b->scale_gc = out->scale_group[c];
    b->zp_gr = out->zp_group[r], b->zp_gc = out->zp_group[c];
    return sinter_success;
}

tile_src_t tile_at(const tile_operand_t *op, const int64_t *idx, int nb)
{
    tile_src_t s = op->base;
    const int own = op->ndims - 2;
    for (int d = 0; d < own; d++) {
        const int from = nb - own + d;
        const int64_t i = from < 0 || op->dims[d] == 1 ? 0 : idx[from];
        s.first += i * op->stride[d];
        s.high_first += i * op->high_stride[d];
        s.scale_first += i / op->scale_group[d] * op->scale_stride[d];
        s.zp_first += i / op->zp_group[d] * op->zp_stride[d];
    }
    return s;
}

tile_src_t tile_coefs(const tile_src_t *src, bool zps)
{
    return (tile_src_t){.data = zps ? src->zp : src->scale,
                        .type = zps ? src->zp_type : src->scale_type,
                        .dtype = zps ? src->zp_dtype : src->scale_dtype,
                        .first = zps ? src->zp_first : src->scale_first,
                        .rs = zps ? src->zp_rs : src->scale_rs,
                        .cs = zps ? src->zp_cs : src->scale_cs,
                        .scale_gr = 1,
                        .scale_gc = 1,
                        .zp_gr = 1,
                        .zp_gc = 1};
}

/* ---- loading --------------------------------------------------------------------------------- */

/* A type with its conversion of consecutive elements, looked up once for each tile. */
typedef struct reader {
    const dtype_traits_t *type;
    const dtype_bulk_t *bulk;
} reader_t;

static reader_t reader_of(const tile_isa_t *isa, sinter_data_type_t type)
{
    return (reader_t){dtype_traits(type), dtype_bulk(type, isa->needs)};
}

static void read_elems(const reader_t *from, const unsigned char *base, int64_t first,
                       int64_t stride, int n, float *dst)
{
    if (stride == 1 || n == 1) {
        from->bulk->load(base, first, n, dst);
    } else {
        from->type->codec.load_f32(base, first, stride, n, dst);
    }
}

/* The scales or zero points that elements c0..c0+n-1 of any line have, and those of some lines. */
typedef struct param {
    reader_t from;
    const unsigned char *base; /* NULL: there are none */
    int64_t first, stride,
        line_stride;        /* of group 0 of line 0; from group to group; from line to line */
    int64_t g0;             /* the first group */
    int groups, head, size; /* how many groups; elements in the first and in the others */
    int64_t line, lines;    /* those that x is for */
    const float *now;       /* of the current line */
    float x[TILE_LINE];
} param_t;

/* Scales and zero points of one stretch of a line: one for each element, or one for each group
 * if all groups are wide. */
typedef struct coefs {
    bool wide;
    param_t s, z;
    bool f64; /* q - zp would not be exact in f32 */
} coefs_t;

static void param_begin(param_t *p, const tile_isa_t *isa, sinter_data_type_t type, int64_t group,
                        int64_t c0, int n)
{
    p->from = reader_of(isa, type);
    p->g0 = 0;
    p->groups = 1;
    p->head = p->size = n;
    p->lines = 0;
    if (p->stride) {
        const int64_t left = group - c0 % group;
        p->g0 = c0 / group;
        p->groups = (int)((c0 + n - 1) / group - p->g0) + 1;
        p->head = left < n ? (int)left : n;
        p->size = group < n ? (int)group : n;
    }
}

/* Values of the groups of lines, as many before `end` as have them at one stride. */
static void load_groups(param_t *p, int64_t line, int64_t end)
{
    const bool one = p->groups == 1, dense = p->stride == 1 && p->line_stride == p->groups;
    const int64_t most = one || dense ? TILE_LINE / p->groups : 1;
    p->lines = end - line < most ? end - line : most;
    read_elems(&p->from, p->base, p->first + line * p->line_stride + p->g0 * p->stride,
               one ? p->line_stride : p->stride, (int)p->lines * p->groups, p->x);
}

/* Those of one line, each value as often as its group has elements in the stretch. */
static void spread_groups(const tile_isa_t *isa, param_t *p, int64_t line, int n)
{
    float values[TILE_LINE];
    p->lines = 1;
    read_elems(&p->from, p->base, p->first + line * p->line_stride + p->g0 * p->stride, p->stride,
               p->groups, values);
    for (int g = 0, i = 0, left = p->head; g < p->groups; g++, left = p->size) {
        const int k = left < n - i ? left : n - i;
        if (k == 1) {
            p->x[i] = values[g];
        } else {
            isa->fill(p->x + i, values[g], k);
        }
        i += k;
    }
}

/* Zero points of 32 bits may be so large that f32 does not hold them, or not their difference to
 * a code. */
static bool needs_f64(const float *zp, int64_t n)
{
    bool large = false;
    for (int64_t i = 0; i < n; i++) {
        large |= fabsf(zp[i]) > 0x1p22f;
    }
    return large;
}

/* Makes p->now those of a line; those before end may be loaded with it. True if any were. */
static bool param_at(const tile_isa_t *isa, param_t *p, bool wide, int64_t line, int64_t end, int n)
{
    const int each = wide ? p->groups : n;
    const bool load = p->lines == 0 || line < p->line || line >= p->line + p->lines;
    if (load && wide) {
        load_groups(p, line, end);
    } else if (load) {
        spread_groups(isa, p, line, n);
    }
    p->line = load ? line : p->line;
    p->now = p->x + (line - p->line) * each;
    return load;
}

static void update_coefs(const tile_isa_t *isa, coefs_t *k, const tile_src_t *s, int64_t line,
                         int64_t end, int n)
{
    if (s->scale) {
        const int64_t g = s->scale_gr;
        param_at(isa, &k->s, k->wide, g == 1 ? line : line / g, g == 1 ? end : (end - 1) / g + 1,
                 n);
    }
    if (s->zp) {
        const int64_t g = s->zp_gr;
        if (param_at(isa, &k->z, k->wide, g == 1 ? line : line / g,
                     g == 1 ? end : (end - 1) / g + 1, n)) {
            k->f64 = s->type->digits > 24 ||
                     (s->zp_type->digits > 24 &&
                      needs_f64(k->z.x, k->z.lines * (k->wide ? k->z.groups : n)));
        }
    }
}

static bool is_wide(int64_t stride, int64_t group)
{
    return stride == 0 || group >= TILE_WIDE_GROUP;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* x = (x - zp) * scale, over stretches of one scale and one zero point. */
static void dequant_wide(const tile_isa_t *isa, const tile_src_t *s, const coefs_t *k, int n,
                         float *x)
{
    const float none[2] = {1, 0}, *scale = s->scale ? k->s.now : &none[0],
                *zp = s->zp ? k->z.now : &none[1];
    int scale_left = s->scale ? k->s.head : n, zp_left = s->zp ? k->z.head : n;
    for (int i = 0, len; i < n; i += len) {
        len = least(least(scale_left, zp_left), n - i);
        isa->dequant_group(x + i, *zp, *scale, len);
        scale_left -= len;
        zp_left -= len;
        if (i + len < n && scale_left == 0) {
            scale++;
            scale_left = k->s.size;
        }
        if (i + len < n && zp_left == 0) {
            zp++;
            zp_left = k->z.size;
        }
    }
}

/* Elements c0..c0+n-1 of a line of split codes. */
static void split_line(const dtype_split_t *split, const tile_src_t *s, int64_t line, int64_t c0,
                       int n, float *dst)
{
    const int64_t low_at = s->first + line * s->rs + c0 * s->cs,
                  high_at = s->high_first + line * s->high_rs + c0 * s->high_cs;
    if (s->cs == 1 && s->high_cs == 1) {
        split->load(s->data, low_at, s->high, high_at, n, dst);
        return;
    }
    float high[TILE_LINE];
    s->type->codec.load_f32(s->data, low_at, s->cs, n, dst);
    dtype_traits(sinter_u2)->codec.load_f32(s->high, high_at, s->high_cs, n, high);
    split->join(dst, high, n, dst);
}

/* The slow exact path, straight from the codecs in double. */
static void line_f64(const tile_src_t *s, int64_t line, int64_t c0, int n, float *dst)
{
    for (int i = 0; i < n; i++) {
        const int64_t c = c0 + i;
        double q, zp = 0, scale = 1;
        if (s->high) {
            float x;
            split_line(dtype_split(s->split, (features_t){NEEDS_NOTHING}), s, line, c, 1, &x);
            q = (double)x;
        } else {
            s->type->codec.load_f64(s->data, s->first + line * s->rs + c * s->cs, 0, 1, &q);
        }
        if (s->zp) {
            s->zp_type->codec.load_f64(
                s->zp, s->zp_first + line / s->zp_gr * s->zp_rs + c / s->zp_gc * s->zp_cs, 0, 1,
                &zp);
        }
        if (s->scale) {
            s->scale_type->codec.load_f64(s->scale,
                                          s->scale_first + line / s->scale_gr * s->scale_rs +
                                              c / s->scale_gc * s->scale_cs,
                                          0, 1, &scale);
        }
        dst[i] = (float)((q - zp) * scale);
    }
}

static void coefs_begin(coefs_t *k, const tile_isa_t *isa, const tile_src_t *s, int64_t c0, int n)
{
    k->f64 = s->type->digits > 24;
    k->s.base = s->scale, k->s.first = s->scale_first, k->s.stride = s->scale_cs,
    k->s.line_stride = s->scale_rs;
    k->z.base = s->zp, k->z.first = s->zp_first, k->z.stride = s->zp_cs,
    k->z.line_stride = s->zp_rs;
    if (s->scale) {
        param_begin(&k->s, isa, s->scale_dtype, s->scale_gc, c0, n);
    }
    if (s->zp) {
        param_begin(&k->z, isa, s->zp_dtype, s->zp_gc, c0, n);
    }
    k->wide =
        (!s->scale || is_wide(s->scale_cs, s->scale_gc)) && (!s->zp || is_wide(s->zp_cs, s->zp_gc));
}

/* The groups of a stretch as load_scaled takes them; false: scales and zero points differ in
 * them, or there are no scales. */
static bool same_groups(const tile_src_t *s, const coefs_t *k, int n, dtype_groups_t *g)
{
    const bool zps = s->zp && k->z.groups > 1, one = k->s.groups == 1;
    if (!s->scale || !k->wide ||
        (zps && (k->z.groups != k->s.groups || k->z.head != k->s.head || k->z.size != k->s.size))) {
        return false;
    }
    g->zp_step = zps;
    g->group = one ? (n + DTYPE_GROUP - 1) / DTYPE_GROUP * DTYPE_GROUP : k->s.size;
    g->phase = one ? 0 : k->s.size - k->s.head;
    return g->group % DTYPE_GROUP == 0 && g->phase % DTYPE_GROUP == 0;
}

/* Lines l0..l0+nl-1, elements c0..c0+n-1 of each (n <= TILE_LINE), lines being the rows of s. */
static void load_lines(const tile_isa_t *isa, const tile_src_t *s, int64_t l0, int nl, int64_t c0,
                       int n, float *dst, int64_t ld)
{
    static const float no_zp = 0;
    const dtype_split_t *split = s->high ? dtype_split(s->split, isa->needs) : NULL;
    const bool quantised = s->scale || s->zp;
    const reader_t data = reader_of(isa, s->dtype);
    coefs_t k;
    dtype_groups_t groups;
    coefs_begin(&k, isa, s, c0, n);
    const bool scaled =
        !split && s->cs == 1 && data.bulk->load_scaled && same_groups(s, &k, n, &groups);
    for (int l = 0; l < nl; l++, dst += ld) {
        const int64_t line = l0 + l, at = s->first + line * s->rs + c0 * s->cs;
        if (quantised) {
            update_coefs(isa, &k, s, line, l0 + nl, n);
            if (k.f64) {
                line_f64(s, line, c0, n, dst);
                continue;
            }
        }
        if (scaled) {
            groups.scale = k.s.now;
            groups.zp = s->zp ? k.z.now : &no_zp;
            data.bulk->load_scaled(s->data, at, n, &groups, dst);
            continue;
        }
        if (split) {
            split_line(split, s, line, c0, n, dst);
        } else {
            read_elems(&data, s->data, at, s->cs, n, dst);
        }
        if (quantised && k.wide) {
            dequant_wide(isa, s, &k, n, dst);
        } else if (s->scale) {
            isa->dequant(dst, s->zp ? k.z.now : NULL, k.s.now, n);
        } else if (s->zp) {
            for (int i = 0; i < n; i++) {
                dst[i] -= k.z.now[i];
            }
        }
    }
}

static tile_src_t transposed(const tile_src_t *s)
{
    tile_src_t t = *s;
    t.rs = s->cs, t.cs = s->rs;
    t.high_rs = s->high_cs, t.high_cs = s->high_rs;
    t.scale_rs = s->scale_cs, t.scale_cs = s->scale_rs;
    t.zp_rs = s->zp_cs, t.zp_cs = s->zp_rs;
    t.scale_gr = s->scale_gc, t.scale_gc = s->scale_gr;
    t.zp_gr = s->zp_gc, t.zp_gc = s->zp_gr;
    return t;
}

static void load_transposed(const tile_isa_t *isa, const tile_src_t *src, int64_t r0, int nr,
                            int64_t c0, int nc, float *dst, int64_t ld)
{
    const tile_src_t t = transposed(src);
    enum { LD = TILE_LINE + TILE_LANES }; /* lines do not meet in the same cache sets */
    _Alignas(64) float lines[TILE_LANES * LD];
    for (int r = 0; r < nr; r += TILE_LINE) {
        const int n = nr - r < TILE_LINE ? nr - r : TILE_LINE;
        for (int c = 0; c < nc; c += TILE_LANES) {
            const int nl = nc - c < TILE_LANES ? nc - c : TILE_LANES;
            load_lines(isa, &t, c0 + c, nl, r0 + r, n, lines, LD);
            isa->transpose(lines, LD, nl, n, dst + r * ld + c, ld);
        }
    }
}

void tile_load(const tile_isa_t *isa, const tile_src_t *src, int64_t r0, int nr, int64_t c0, int nc,
               float *dst, int64_t ld, int pad_nr, int pad_nc)
{
    if (src->cs != 1 && src->rs == 1) {
        load_transposed(isa, src, r0, nr, c0, nc, dst, ld);
    } else {
        for (int c = 0; c < nc; c += TILE_LINE) {
            load_lines(isa, src, r0, nr, c0 + c, nc - c < TILE_LINE ? nc - c : TILE_LINE, dst + c,
                       ld);
        }
    }
    for (int r = 0; r < nr && pad_nc > nc; r++) {
        memset(dst + r * ld + nc, 0, (size_t)(pad_nc - nc) * sizeof(float));
    }
    for (int r = nr; r < pad_nr; r++) {
        memset(dst + r * ld, 0, (size_t)(pad_nc > nc ? pad_nc : nc) * sizeof(float));
    }
}

/* ---- portable versions ----------------------------------------------------------------------- */

static void dequant_c(float *x, const float *zp, const float *scale, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] = (zp ? x[i] - zp[i] : x[i]) * scale[i];
    }
}

static void dequant_group_c(float *x, float zp, float scale, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] = (x[i] - zp) * scale;
    }
}

static void fill_c(float *x, float value, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] = value;
    }
}

void tile_transpose_c(const float *src, int64_t lds, int rows, int cols, float *dst, int64_t ldd)
{
    for (int c = 0; c < cols; c++) {
        for (int r = 0; r < rows; r++) {
            dst[c * ldd + r] = src[r * lds + c];
        }
    }
}

static uint16_t bf16_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(u >> 16 | 0x40);
    }
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

void tile_bf16_rows_c(const float *src, int64_t ld, int rows, int cols, uint16_t *dst, int64_t ldd)
{
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols; c++) {
            dst[r * ldd + c] = bf16_of(src[r * ld + c]);
        }
    }
}

void tile_bf16_pairs_c(const float *src, int64_t ld, int rows, int cols, uint16_t *dst, int64_t ldd)
{
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols; c++) {
            dst[r / 2 * ldd * 2 + c * 2 + r % 2] = bf16_of(src[r * ld + c]);
        }
    }
}

static void gemm_c(int m, int n, int k, const float *a, int64_t lda, const float *b, int64_t ldb,
                   float *c, int64_t ldc, bool beta)
{
    for (int i = 0; i < m; i++, a += lda, c += ldc) {
        if (!beta) {
            memset(c, 0, (size_t)n * sizeof(float));
        }
        for (int p = 0; p < k; p++) {
            const float x = a[p], *row = b + p * ldb;
            for (int j = 0; j < n; j++) {
                c[j] += x * row[j];
            }
        }
    }
}

static const tile_isa_t isa_c = {.needs = {NEEDS_NOTHING},
                                 .dequant = dequant_c,
                                 .dequant_group = dequant_group_c,
                                 .fill = fill_c,
                                 .transpose = tile_transpose_c};

static void load_c(const tile_src_t *src, int64_t r0, int nr, int64_t c0, int nc, float *dst,
                   int64_t ld, int pad_nr, int pad_nc)
{
    tile_load(&isa_c, src, r0, nr, c0, nc, dst, ld, pad_nr, pad_nc);
}

static const tile_table_t table_c = {load_c, gemm_c, tile_bf16_rows_c, tile_bf16_pairs_c,
                                     tile_transpose_c};

const tile_table_t *tile_table(features_t features)
{
#if defined(__x86_64__)
    if (has_features(features, NEEDS_AVX512)) {
        return &tile_table_avx512;
    }
    if (has_features(features, NEEDS_AVX2)) {
        return &tile_table_avx2;
    }
#endif
    (void)features;
    return &table_c;
}
