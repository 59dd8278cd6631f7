/* Tiles against decoders of the test's own: every data type, layouts, group geometries, scale
 * and zero-point types, ISA levels. Operands end at an unreadable page, tiles lie between
 * sentinels. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter_graph.h>

#include "backend_xsmm/drivers/common/matrices.h"
#include "backend_xsmm/ukernels/tile.h"
#include "base/cpu.h"
#include "base/status.h"
#include "check.h"
#include "test_decode.h"

static size_t bytes_of(sinter_data_type_t type, int64_t elems)
{
    return (size_t)((elems * dtype_traits(type)->bits + 7) / 8);
}

/* ---- one operand, checked in full ------------------------------------------------------------ */

enum { ND = 3, B = 2 };

typedef struct geometry {
    sinter_data_type_t type, scale, zp; /* 0: none */
    int rows, cols, scale_gr, scale_gc, zp_gr, zp_gc;
    bool rows_inner; /* strides: rows are contiguous (a K cache [T][D] read as [D][T]) */
    int inner_stride, outer_gap;
    bool trans;
} geometry_t;

static void dense(bound_t *b, sinter_data_type_t type, const int64_t *dims)
{
    *b = (bound_t){.dtype = type, .ndims = ND};
    for (int64_t d = ND - 1, s = 1; d >= 0; s *= dims[d], d--) {
        b->dims[d] = dims[d];
        b->strides[d] = s;
    }
}

static int64_t extent(const bound_t *b)
{
    int64_t n = 1;
    for (int d = 0; d < b->ndims; d++) {
        n += (b->dims[d] - 1) * b->strides[d];
    }
    return n;
}

/* Moderate values, so that products stay finite: 8-bit scale codes near 1, floats in [0.5, 1).
 * Zero points over the type's whole range. */
static void fill_scales(const bound_t *b)
{
    const int64_t n = extent(b);
    for (int64_t i = 0; i < n; i++) {
        const float x = 0.5f + (float)(rnd() % 4096) / 8192;
        uint32_t u;
        memcpy(&u, &x, 4);
        const uint16_t half = (uint16_t)(0x3800 | (u >> 13 & 0x3ff)), bf = (uint16_t)(u >> 16);
        switch (b->dtype) {
        case sinter_f32:
            memcpy(b->data + 4 * i, &x, 4);
            break;
        case sinter_f16:
            memcpy(b->data + 2 * i, &half, 2);
            break;
        case sinter_bf16:
            memcpy(b->data + 2 * i, &bf, 2);
            break;
        case sinter_e8m0:
            b->data[i] = (unsigned char)(120 + rnd() % 12);
            break;
        default:
            b->data[i] = (unsigned char)(0x30 + rnd() % 16);
        }
    }
}

static int64_t scale_at(const bound_t *side, const bound_t *data, const int64_t *idx)
{
    int64_t at = 0;
    for (int d = 0; d < ND; d++) {
        at += idx[d] / (data->dims[d] / side->dims[d]) * side->strides[d];
    }
    return at;
}

static double expected(const bound_t *v, const geometry_t *g, int64_t b, int64_t r, int64_t c)
{
    const int64_t idx[ND] = {b, g->trans ? c : r, g->trans ? r : c};
    double x =
        decode(g->type, v[0].data,
               idx[0] * v[0].strides[0] + idx[1] * v[0].strides[1] + idx[2] * v[0].strides[2]);
    if (g->zp) {
        x -= decode(g->zp, v[2].data, scale_at(&v[2], &v[0], idx));
    }
    return g->scale ? x * decode(g->scale, v[1].data, scale_at(&v[1], &v[0], idx)) : x;
}

static bool same(float got, double want)
{
    const float w = (float)want;
    return (isnan(got) && isnan(w)) || got == w;
}

/* Loads the tile r0.., c0.. and compares every element, padding and sentinel. */
static bool tile_is_right(const tile_table_t *t, const matrix_t *src, const bound_t *v,
                          const geometry_t *g, int64_t b, int r0, int nr, int c0, int nc, int pad_r,
                          int pad_c)
{
    const int ld = pad_c + 3, size = ld * pad_r + 64;
    float *dst = malloc((size_t)size * sizeof(float));
    bool ok = dst != NULL;
    for (int i = 0; ok && i < size; i++) {
        dst[i] = 12345;
    }
    t->load(src, (rect_t){r0, nr, c0, nc}, dst + 32, ld, pad_r, pad_c);
    for (int i = 0; ok && i < size; i++) {
        const int at = i - 32, r = at / ld, c = at % ld;
        if (at < 0 || r >= pad_r || c >= pad_c) {
            ok = dst[i] == 12345;
        } else if (r >= nr || c >= nc) {
            ok = dst[i] == 0;
        } else {
            ok = same(dst[i], expected(v, g, b, r0 + r, c0 + c));
        }
        if (!ok && check_failed < 20) {
            printf("  tile (%d, %d): got %.9g, want %.9g\n", r, c, dst[i],
                   expected(v, g, b, r0 + r, c0 + c));
        }
    }
    free(dst);
    return ok;
}

static void run(const geometry_t *g, sinter_cpu_isa_t isa)
{
    const int m = g->trans ? g->cols : g->rows, n = g->trans ? g->rows : g->cols;
    const int64_t dims[ND] = {B, m, n};
    bound_t v[3];
    guarded_t mem[3] = {{0}};
    dense(&v[0], g->type, dims);
    if (g->rows_inner != g->trans) { /* the data's dim 1 is innermost */
        v[0].strides[1] = g->inner_stride;
        v[0].strides[2] = m * g->inner_stride + g->outer_gap;
        v[0].strides[0] = n * v[0].strides[2];
    } else {
        v[0].strides[2] = g->inner_stride;
        v[0].strides[1] = n * g->inner_stride + g->outer_gap;
        v[0].strides[0] = m * v[0].strides[1];
    }
    const int sr = g->trans ? g->scale_gc : g->scale_gr, sc = g->trans ? g->scale_gr : g->scale_gc;
    const int zr = g->trans ? g->zp_gc : g->zp_gr, zc = g->trans ? g->zp_gr : g->zp_gc;
    dense(&v[1], g->scale, (int64_t[]){B, m / sr, n / sc});
    dense(&v[2], g->zp, (int64_t[]){1, m / zr, n / zc});
    operand_t op = {.data = 0, .scale = g->scale ? 1 : -1, .zp = g->zp ? 2 : -1};
    for (int d = 0; d < ND; d++) {
        op.scale_dim[d] = op.zp_dim[d] = (int8_t)d;
    }
    for (int i = 0; i < 3; i++) {
        if (v[i].dtype) {
            mem[i] = guarded(bytes_of(v[i].dtype, extent(&v[i])));
            v[i].data = mem[i].data;
        }
    }
    if (g->scale) {
        fill_scales(&v[1]);
    }
    const frame_t frame = {.v = v, .shares = 1};
    matrices_t o;
    char what[200];
    snprintf(what, sizeof what,
             "%s %s scale %s zp %s %dx%d groups %dx%d %dx%d %s stride %d gap %d%s",
             sinter_cpu_isa_name(isa), dtype_traits(g->type)->name,
             g->scale ? dtype_traits(g->scale)->name : "-", g->zp ? dtype_traits(g->zp)->name : "-",
             g->rows, g->cols, g->scale_gr, g->scale_gc, g->zp_gr, g->zp_gc,
             g->rows_inner ? "rows inner" : "columns inner", g->inner_stride, g->outer_gap,
             g->trans ? " trans" : "");
    CHECK(matrices_bind(&op, g->trans, &frame, &o) == sinter_success, "%s: matrices_bind", what);
    const tile_table_t *t = tile_table(features_up_to(isa));
    for (int64_t b = 0; b < B; b++) {
        const matrix_t src = matrix_at(&o, &b, 1);
        CHECK(tile_is_right(t, &src, v, g, b, 0, g->rows, 0, g->cols, g->rows, g->cols),
              "%s: whole", what);
        CHECK(tile_is_right(t, &src, v, g, b, 0, g->rows, 0, g->cols, g->rows + 3, g->cols + 5),
              "%s: whole, padded", what);
        const int r0 = (int)(rnd() % (unsigned)g->rows), c0 = (int)(rnd() % (unsigned)g->cols);
        const int nr = 1 + (int)(rnd() % (unsigned)(g->rows - r0)),
                  nc = 1 + (int)(rnd() % (unsigned)(g->cols - c0));
        CHECK(tile_is_right(t, &src, v, g, b, r0, nr, c0, nc, nr + 1, nc + 16), "%s: part", what);
        CHECK(tile_is_right(t, &src, v, g, b, g->rows - 1, 1, g->cols / 2, g->cols - g->cols / 2, 1,
                            g->cols - g->cols / 2),
              "%s: last row", what);
    }
    for (int i = 0; i < 3; i++) {
        if (mem[i].map) {
            unguard(&mem[i]);
        }
    }
}

/* ---- cases ----------------------------------------------------------------------------------- */

static const sinter_data_type_t types[] = {
#define SINTER_DTYPE(value, name, ...) sinter_##name,
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
};
enum { N_TYPES = sizeof types / sizeof types[0] };

static void test_types(sinter_cpu_isa_t isa)
{
    for (int i = 0; i < N_TYPES; i++) {
        for (int layout = 0; layout < 8; layout++) {
            geometry_t g = {.type = types[i],
                            .rows = 33,
                            .cols = 67,
                            .rows_inner = layout & 1,
                            .inner_stride = layout & 2 ? 3 : 1,
                            .outer_gap = layout & 4 ? 5 : 0,
                            .scale_gr = 1,
                            .scale_gc = 1,
                            .zp_gr = 1,
                            .zp_gc = 1,
                            .trans = rnd() % 2};
            run(&g, isa);
        }
        run(&(geometry_t){.type = types[i],
                          .rows = 300,
                          .cols = 40,
                          .rows_inner = true,
                          .inner_stride = 1,
                          .scale_gr = 1,
                          .scale_gc = 1,
                          .zp_gr = 1,
                          .zp_gc = 1},
            isa);
        run(&(geometry_t){.type = types[i],
                          .rows = 5,
                          .cols = 530,
                          .inner_stride = 1,
                          .scale_gr = 1,
                          .scale_gc = 1,
                          .zp_gr = 1,
                          .zp_gc = 1},
            isa);
    }
}

static void test_quantised(sinter_cpu_isa_t isa)
{
    static const sinter_data_type_t data[] = {sinter_s4,      sinter_u4,      sinter_s8,
                                              sinter_u8,      sinter_f4_e2m1, sinter_f8_e4m3,
                                              sinter_f8_e5m2, sinter_f6_e3m2};
    static const sinter_data_type_t scales[] = {sinter_f32,  sinter_f16,     sinter_bf16,
                                                sinter_e8m0, sinter_f8_e4m3, 0};
    static const sinter_data_type_t zps[] = {0,         sinter_s8, sinter_u8,
                                             sinter_s4, sinter_u4, sinter_s32};
    static const int shapes[][6] = {/* rows, cols, scale group, zp group */
                                    {64, 32, 32, 1, 32, 1},  {64, 32, 1, 16, 1, 32},
                                    {96, 20, 32, 20, 96, 1}, {33, 65, 1, 1, 33, 65},
                                    {80, 48, 16, 3, 5, 48},  {300, 24, 300, 1, 100, 24},
                                    {6, 600, 2, 300, 3, 25}};
    for (int d = 0; d < 8; d++) {
        for (int s = 0; s < 6; s++) {
            for (int z = 0; z < 6; z++) {
                const int *shape = shapes[(d + s + z) % 7];
                const bool is_float = dtype_is_float(data[d]);
                for (int layout = 0; layout < 4; layout++) {
                    run(&(geometry_t){.type = data[d],
                                      .scale = scales[s],
                                      .zp = is_float ? 0 : zps[z],
                                      .rows = shape[0],
                                      .cols = shape[1],
                                      .scale_gr = shape[2],
                                      .scale_gc = shape[3],
                                      .zp_gr = shape[4],
                                      .zp_gc = shape[5],
                                      .rows_inner = layout & 1,
                                      .inner_stride = layout & 2 ? 3 : 1,
                                      .outer_gap = layout == 1 ? 7 : 0,
                                      .trans = rnd() % 2},
                        isa);
                }
            }
        }
    }
}

/* Codes times scales are beyond f32, and offsets bring them back: one scale for all, groups along
 * the line, and one for each element. */
static void test_offsets(sinter_cpu_isa_t isa)
{
    enum { N = 48 };
    unsigned char codes[N], scale[N];
    float offset[N], dst[N];
    for (int i = 0; i < N; i++) {
        codes[i] = (unsigned char)(100 + i * 3);
        scale[i] = (unsigned char)(127 + 121 + i % 2);
        offset[i] = -ldexpf(i % 2 ? 60 : 120, 121 + i % 2);
    }
    for (int group = 1; group <= N; group += group == 1 ? 15 : 32) {
        const axis_t along = {group == N ? 0 : 1, group};
        const matrix_t src = {.codes = {.data = codes,
                                        .type = dtype_traits(sinter_u8),
                                        .dtype = sinter_u8,
                                        .row = {N, 1},
                                        .column = {1, 1}},
                              .scale = {.data = scale,
                                        .type = dtype_traits(sinter_e8m0),
                                        .dtype = sinter_e8m0,
                                        .row = {0, 1},
                                        .column = along},
                              .zp = {.data = (const unsigned char *)offset,
                                     .type = dtype_traits(sinter_f32),
                                     .dtype = sinter_f32,
                                     .row = {0, 1},
                                     .column = along},
                              .offsets = true};
        tile_table(features_up_to(isa))->load(&src, (rect_t){0, 1, 0, N}, dst, N, 1, N);
        for (int i = 0; i < N; i++) {
            const int g = group == N ? 0 : i / group;
            const double want = ldexp(codes[i], scale[g] - 127) + (double)offset[g];
            CHECK(same(dst[i], want), "offsets in groups of %d, %s: element %d is %a, not %a",
                  group, sinter_cpu_isa_name(isa), i, (double)dst[i], want);
        }
    }
}

/* Scale byte 0 of e8m0 is 2^-127, subnormal in f32, and so are some products with it: kernels
 * run with gradual underflow. */
static void test_tiny_scale(sinter_cpu_isa_t isa)
{
    unsigned char codes[16], scale = 0;
    for (int i = 0; i < 16; i++) {
        codes[i] = (unsigned char)(i < 2 ? i : i * 17);
    }
    const matrix_t src = {.codes = {.data = codes,
                                    .type = dtype_traits(sinter_u8),
                                    .dtype = sinter_u8,
                                    .row = {16, 1},
                                    .column = {1, 1}},
                          .scale = {.data = &scale,
                                    .type = dtype_traits(sinter_e8m0),
                                    .dtype = sinter_e8m0,
                                    .row = {0, 1},
                                    .column = {0, 16}}};
    float dst[16];
    tile_table(features_up_to(isa))->load(&src, (rect_t){0, 1, 0, 16}, dst, 16, 1, 16);
    bool ok = true;
    for (int i = 0; i < 16; i++) {
        ok = ok && dst[i] == (float)ldexp(codes[i], -127);
    }
    CHECK(ok, "e8m0 byte 0: %s", sinter_cpu_isa_name(isa));
}

static void test_gemm(sinter_cpu_isa_t isa)
{
    static const int sizes[] = {1, 2, 5, 6, 7, 13, 16, 17, 32, 33, 64, 79, 128, 0};
    const tile_table_t *t = tile_table(features_up_to(isa));
    for (int round = 0; round < 150; round++) {
        const int m = sizes[rnd() % 14], n = sizes[rnd() % 14], k = sizes[rnd() % 14];
        const int lda = k + (int)(rnd() % 4), ldb = n + (int)(rnd() % 4),
                  ldc = n + (int)(rnd() % 4);
        const bool beta = rnd() % 2;
        guarded_t a = guarded((size_t)(m * lda) * 4 + 4), b = guarded((size_t)(k * ldb) * 4 + 4),
                  c = guarded((size_t)(m * ldc) * 4 + 4);
        float *fa = (float *)(void *)a.data, *fb = (float *)(void *)b.data,
              *fc = (float *)(void *)c.data;
        for (int i = 0; i <= m * lda; i++) {
            fa[i] = (float)(rnd() % 17) - 8;
        }
        for (int i = 0; i <= k * ldb; i++) {
            fb[i] = (float)(rnd() % 17) - 8;
        }
        for (int i = 0; i <= m * ldc; i++) {
            fc[i] = 3;
        }
        /* The last row ends where its elements end, at the guard page. */
        t->gemm(&(gemm_t){.m = m,
                          .n = n,
                          .k = k,
                          .a = m ? fa + 1 + lda - k : fa,
                          .lda = lda,
                          .b = k ? fb + 1 + ldb - n : fb,
                          .ldb = ldb,
                          .c = m ? fc + 1 + ldc - n : fc,
                          .ldc = ldc,
                          .add = beta});
        bool ok = true;
        for (int i = 0; i < m; i++) {
            const float *row = fc + 1 + ldc - n + i * ldc;
            for (int j = 0; j < n; j++) {
                double want = beta ? 3 : 0;
                for (int p = 0; p < k; p++) {
                    want += (double)fa[1 + lda - k + i * lda + p] * fb[1 + ldb - n + p * ldb + j];
                }
                ok = ok && row[j] == want;
            }
            for (int j = n; j < ldc && i + 1 < m; j++) {
                ok = ok && row[j] == 3;
            }
        }
        char what[120];
        snprintf(what, sizeof what, "gemm %s m %d n %d k %d beta %d", sinter_cpu_isa_name(isa), m,
                 n, k, beta);
        CHECK(ok, "%s: differs from the exact sum of small integers", what);
        unguard(&a), unguard(&b), unguard(&c);
    }
    const float zero[2] = {0, 1}, nan[2] = {NAN, 2};
    float c = 0;
    t->gemm(&(gemm_t){
        .m = 1, .n = 1, .k = 2, .a = zero, .lda = 2, .b = nan, .ldb = 1, .c = &c, .ldc = 1});
    CHECK(isnan(c), "gemm: 0 times NaN is NaN: %s", sinter_cpu_isa_name(isa));
}

/* Nearest even, by comparing with both bf16 neighbours in double. */
static bool is_bf16_of(uint16_t got, float x)
{
    const uint32_t u = (uint32_t)got << 16;
    float g;
    memcpy(&g, &u, 4);
    if (isnan(x) || isinf(x)) {
        return isnan(x) ? isnan(g) : g == x;
    }
    const uint32_t down = u - 0x10000, up = u + 0x10000;
    float fd, fu;
    memcpy(&fd, &down, 4);
    memcpy(&fu, &up, 4);
    if (isinf(g)) {
        return fabs((double)x) >= 0x1.ffp127;
    }
    const double here = fabs((double)x - g),
                 other = fmin(isnan(fd) ? INFINITY : fabs((double)x - fd),
                              isnan(fu) ? INFINITY : fabs((double)x - fu));
    return here < other || (here == other && got % 2 == 0) || g == x;
}

static void test_bf16(sinter_cpu_isa_t isa)
{
    enum { ROWS = 6, COLS = 37, LD = 41 };
    float src[ROWS * LD];
    uint16_t rows[ROWS * LD], pairs[ROWS * LD];
    bool ok_rows = true, ok_pairs = true;
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < ROWS * LD; i++) {
            uint32_t u = rnd() << 1 ^ rnd();
            u = i % 3 == 0 ? (u & 0xffff0000u) | 0x8000 : u; /* ties */
            memcpy(&src[i], &u, 4);
        }
        memset(rows, 0x11, sizeof rows);
        memset(pairs, 0x11, sizeof pairs);
        tile_table(features_up_to(isa))->bf16_rows(src, LD, ROWS, COLS, rows, LD);
        tile_table(features_up_to(isa))->bf16_pairs(src, LD, ROWS, COLS, pairs, LD);
        for (int r = 0; r < ROWS; r++) {
            for (int c = 0; c < LD; c++) {
                const uint16_t a = rows[r * LD + c], b = pairs[r / 2 * LD * 2 + c * 2 + r % 2];
                ok_rows = ok_rows && (c < COLS ? is_bf16_of(a, src[r * LD + c]) : a == 0x1111);
                ok_pairs = ok_pairs && (c < COLS ? is_bf16_of(b, src[r * LD + c]) : b == 0x1111);
            }
        }
    }
    CHECK(ok_rows, "bf16_rows: %s", sinter_cpu_isa_name(isa));
    CHECK(ok_pairs, "bf16_pairs: %s", sinter_cpu_isa_name(isa));
}

/* Several blocks in each direction, between lines and rows that must stay as they are. */
static void test_transpose_bytes(sinter_cpu_isa_t isa)
{
    enum {
        LINES = 2 * TILE_TRANSPOSE_LINES,
        ELEMENTS = 3 * TILE_TRANSPOSE_ELEMENTS,
        GAP = 5,
        MOST = 70
    };
    unsigned char src[MOST * MOST * 4], dst[MOST * MOST * 4];
    for (int bytes = 1; bytes <= 4; bytes *= 2) {
        const tile_transpose_t t = {bytes, ELEMENTS, LINES, ELEMENTS + GAP, LINES + GAP};
        bool ok = true;
        for (int i = 0; i < (int)sizeof src; i++) {
            src[i] = (unsigned char)rnd();
        }
        memset(dst, 0x11, sizeof dst);
        tile_table(features_up_to(isa))->transpose_bytes(&t, src, dst);
        for (int e = 0; e <= ELEMENTS; e++) {
            for (int l = 0; l < LINES + GAP; l++) {
                const unsigned char *to = dst + (e * t.ldd + l) * bytes;
                const bool inside = e < ELEMENTS && l < LINES;
                ok = ok && memcmp(to,
                                  inside ? src + (l * t.lds + e) * bytes
                                         : (const unsigned char *)"\x11\x11\x11\x11",
                                  (size_t)bytes) == 0;
            }
        }
        CHECK(ok, "transpose_bytes, %d bytes: %s", bytes, sinter_cpu_isa_name(isa));
    }
}

static void test_bad_groups(void)
{
    bound_t v[2];
    dense(&v[0], sinter_s8, (int64_t[]){2, 6, 8});
    dense(&v[1], sinter_f32, (int64_t[]){2, 4, 1});
    const frame_t frame = {.v = v, .shares = 1};
    operand_t op = {.data = 0, .scale = 1, .zp = -1, .scale_dim = {0, 1, 2}};
    matrices_t o;
    CHECK(matrices_bind(&op, false, &frame, &o) == sinter_invalid_shape,
          "6 rows in 4 groups: must be refused");
    v[1].dims[1] = 3;
    CHECK(matrices_bind(&op, false, &frame, &o) == sinter_success,
          "6 rows in 3 groups: must be accepted");
    op.scale_dim[1] = -1;
    CHECK(matrices_bind(&op, false, &frame, &o) == sinter_success && o.base.scale.row.stride == 0,
          "no scale dim for the rows: must broadcast");
    v[0].ndims = 1;
    CHECK(matrices_bind(&op, false, &frame, &o) == sinter_invalid_shape,
          "one dim: must be refused");
}

int main(void)
{
    sinter_cpu_isa_t top;
    if (cpu_isa_cap(sinter_isa_default, &top) != sinter_success) {
        return 1;
    }
    for (int isa = sinter_isa_generic; isa <= (int)top && isa <= sinter_isa_avx512; isa++) {
        test_types((sinter_cpu_isa_t)isa);
        test_quantised((sinter_cpu_isa_t)isa);
        test_tiny_scale((sinter_cpu_isa_t)isa);
        test_offsets((sinter_cpu_isa_t)isa);
        test_gemm((sinter_cpu_isa_t)isa);
        test_bf16((sinter_cpu_isa_t)isa);
        test_transpose_bytes((sinter_cpu_isa_t)isa);
    }
    test_bad_groups();
    return check_finish();
}
