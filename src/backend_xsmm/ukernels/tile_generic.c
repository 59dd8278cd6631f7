/* Tile functions in portable C, and the choice of the table for a machine. */
#include "backend_xsmm/ukernels/tile_isa.h"

#include <string.h>

static void dequant_c(float *x, const float *zp, const float *scale, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] = (zp ? x[i] - zp[i] : x[i]) * scale[i];
    }
}

/* The product alone may be beyond f32 where the sum is not. */
static void restore_c(float *x, const float *offset, const float *scale, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] = (float)((double)x[i] * (double)scale[i] + (double)offset[i]);
    }
}

static void restore_group_c(float *x, float offset, float scale, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] = (float)((double)x[i] * (double)scale + (double)offset);
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

static void copy_c(const unsigned char *src, int64_t lds, int rows, int cols, float *dst,
                   int64_t ldd)
{
    for (int r = 0; r < rows; r++) {
        memcpy(dst + r * ldd, src + (size_t)(r * lds) * sizeof *dst, (size_t)cols * sizeof *dst);
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

static void gemm_c(const gemm_t *g)
{
    for (int i = 0; i < g->m; i++) {
        float *c = g->c + i * g->ldc;
        if (!g->add) {
            memset(c, 0, (size_t)g->n * sizeof(float));
        }
        for (int p = 0; p < g->k; p++) {
            const float x = g->a[i * g->lda + p], *row = g->b + p * g->ldb;
            for (int j = 0; j < g->n; j++) {
                c[j] += x * row[j];
            }
        }
    }
}

static const tile_isa_t isa_c = {.needs = {NEEDS_NOTHING},
                                 .dequant = dequant_c,
                                 .dequant_group = dequant_group_c,
                                 .restore = restore_c,
                                 .restore_group = restore_group_c,
                                 .fill = fill_c,
                                 .copy = copy_c,
                                 .transpose = tile_transpose_c};

static void load_c(const matrix_t *m, rect_t at, float *dst, int64_t ld, int pad_rows,
                   int pad_columns)
{
    tile_load(&isa_c, m, at, dst, ld, pad_rows, pad_columns);
}

static void transpose_bytes_c(const tile_transpose_t *t, const unsigned char *src,
                              unsigned char *dst)
{
    for (int l = 0; l < t->lines; l++) {
        for (int e = 0; e < t->elements; e++) {
            memcpy(dst + (e * t->ldd + l) * t->bytes, src + (l * t->lds + e) * t->bytes,
                   (size_t)t->bytes);
        }
    }
}

static void add_taps_c(const tile_taps_t *t)
{
    for (int r = 0; r < t->results; r++) {
        float *to = t->to + r * t->ld;
        if (!t->add) {
            memset(to, 0, (size_t)t->channels * sizeof *to);
        }
        for (int i = 0; i < t->n; i++) {
            const float *x = t->x[i] + r * t->apart, *w = t->w[i];
            for (int c = 0; c < t->channels; c++) {
                float image; /* at any address */
                memcpy(&image, x + c, sizeof image);
                to[c] += image * w[c];
            }
        }
    }
}

const tile_table_t tile_table_generic = {
    load_c,    gemm_c, tile_bf16_rows_c, tile_bf16_pairs_c, tile_transpose_c, transpose_bytes_c,
    add_taps_c};
