/* Double-precision matrix product of one block: packed panels and a register tile. Every element is
 * the sum of its products in the order of k, each rounded on its own, whichever tile adds them. */
#include "internal.h"

enum { TILE_M = 4, TILE_N = 8 };

/* acc (TILE_M x TILE_N) = sum over k of a column of the a panel times a row of the b panel. */
typedef void tile_fn_t(int64_t k, const double *a, const double *b, double *acc);

static void tile_any(int64_t k, const double *a, const double *b, double *acc)
{
    memset(acc, 0, TILE_M * TILE_N * sizeof *acc);
    for (int64_t i = 0; i < k; i++, a += TILE_M, b += TILE_N) {
        for (int m = 0; m < TILE_M; m++) {
            for (int n = 0; n < TILE_N; n++) {
                acc[m * TILE_N + n] += a[m] * b[n];
            }
        }
    }
}

#if defined(__x86_64__)
/* No wider than the registers of the instruction set: GCC keeps wider vectors in memory. */
typedef double vec_t __attribute__((vector_size(32)));

__attribute__((target("avx2"))) static void tile_avx2(int64_t k, const double *a, const double *b,
                                                      double *acc)
{
    const vec_t *bv = (const vec_t *)(const void *)b;
    vec_t *out = (vec_t *)(void *)acc;
    vec_t c00 = {0}, c01 = {0}, c10 = {0}, c11 = {0}, c20 = {0}, c21 = {0}, c30 = {0}, c31 = {0};

    for (int64_t i = 0; i < k; i++, a += TILE_M, bv += 2) {
        vec_t b0 = bv[0], b1 = bv[1];
        c00 += a[0] * b0, c01 += a[0] * b1;
        c10 += a[1] * b0, c11 += a[1] * b1;
        c20 += a[2] * b0, c21 += a[2] * b1;
        c30 += a[3] * b0, c31 += a[3] * b1;
    }
    out[0] = c00, out[1] = c01, out[2] = c10, out[3] = c11;
    out[4] = c20, out[5] = c21, out[6] = c30, out[7] = c31;
}

static tile_fn_t *best_tile(void)
{
    return __builtin_cpu_supports("avx2") ? tile_avx2 : tile_any;
}
#else
static tile_fn_t *best_tile(void)
{
    return tile_any;
}
#endif

/* Panels of `width` rows, k-major, the last one filled up with zeros. */
static void pack(orc_matrix_t m, int64_t rows, int64_t k, int64_t width, double *to)
{
    for (int64_t r = 0; r < rows; r += width) {
        int64_t n = rows - r < width ? rows - r : width;
        const double *p = m.p + r * m.row;
        for (int64_t i = 0; i < k; i++, to += width) {
            for (int64_t j = 0; j < n; j++) {
                to[j] = p[j * m.row + i * m.col];
            }
            for (int64_t j = n; j < width; j++) {
                to[j] = 0;
            }
        }
    }
}

static void put_tile(const double *acc, int64_t m, int64_t n, bool first, double *c, int64_t ldc)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            c[i * ldc + j] = (first ? 0 : c[i * ldc + j]) + acc[i * TILE_N + j];
        }
    }
}

void orc_gemm_block(int64_t m, int64_t n, int64_t k, orc_matrix_t a, orc_matrix_t b, double *c,
                    int64_t ldc, double *scratch)
{
    double *bp = scratch, *ap = scratch + ORC_GEMM_N * ORC_GEMM_K;
    double acc[TILE_M * TILE_N] __attribute__((aligned(64)));
    orc_matrix_t bt = {b.p, b.col, b.row};
    tile_fn_t *tile = best_tile();

    for (int64_t i = 0; i < m && k == 0; i++) {
        memset(c + i * ldc, 0, (size_t)n * sizeof *c);
    }
    for (int64_t k0 = 0; k0 < k; k0 += ORC_GEMM_K) {
        int64_t kc = k - k0 < ORC_GEMM_K ? k - k0 : ORC_GEMM_K;
        pack((orc_matrix_t){bt.p + k0 * bt.col, bt.row, bt.col}, n, kc, TILE_N, bp);
        pack((orc_matrix_t){a.p + k0 * a.col, a.row, a.col}, m, kc, TILE_M, ap);
        for (int64_t j = 0; j < n; j += TILE_N) {
            for (int64_t i = 0; i < m; i += TILE_M) {
                tile(kc, ap + i * kc, bp + j * kc, acc);
                put_tile(acc, m - i < TILE_M ? m - i : TILE_M, n - j < TILE_N ? n - j : TILE_N,
                         k0 == 0, c + i * ldc + j, ldc);
            }
        }
    }
}
