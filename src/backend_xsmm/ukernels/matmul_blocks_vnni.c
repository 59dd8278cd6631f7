/* Matmul of many rows in integers with AVX-512 VNNI. */
#include "backend_xsmm/ukernels/matmul_blocks.h"

#if defined(__x86_64__)

#include <string.h>

#include "backend_xsmm/ukernels/few_rows.h"
#include "numeric/ints_avx512.h"

#include "backend_xsmm/ukernels/limbs.inc"

enum {
    /* Rows of one and of two limbs that are worked off together: with HELD vectors of floats and of
     * integers for each, 24 registers. */
    ROWS_1 = 6,
    ROWS_2 = 4,
    ROWS = 8, /* most rows of bytes */
    HELD = 2,
    VECTORS = BLOCKS_STRIP / LANES
};

static inline int least(int a, int b)
{
    return a < b ? a : b;
}

/* ---- A --------------------------------------------------------------------------------------- */

/* The first n <= 16 bytes of 16 integers, n rounded up to a multiple of 4. */
OP void store_bytes(uint8_t *to, const vu *y, int n)
{
    bytes_store_n(to, low_bytes(y), (n + 3) / 4 * 4);
}

/* Up to a block of one row, zeros up to a multiple of 4 elements. */
OP bool quantise_block(const float *x, int n, int limbs, uint8_t *to, float *scale, int32_t *sum)
{
    vi bits = vi_set1(0);
    vu total = vu_set1(0);
    limbs_scale_t as;
    for (int i = 0; i < n; i += LANES) {
        bits = magnitude(bits, vf_load_n(x + i, n - i));
    }
    if (!limbs_scale(limbs, vi_largest(bits), &as)) {
        return false;
    }
    for (int i = 0; i < n; i += 16) {
        vu high[VECTORS_16], low[VECTORS_16];
        UNROLL
        for (int v = 0; v < VECTORS_16; v++) {
            const vu y =
                vf_to_int(vf_mul(vf_load_n(x + i + v * LANES, n - i - v * LANES), vf_set1(as.by)));
            total += y;
            high[v] = high_limb(limbs, y) + 128;
            low[v] = y + 128;
        }
        const int left = least(n - i, 16);
        store_bytes(to + i, high, left);
        if (limbs == 2) {
            store_bytes(to + BLOCKS_K + i, low, left);
        }
    }
    *scale = as.scale;
    *sum = vi_sum((vi)total);
    return true;
}

OP bool quantise_rows(const float *x, int64_t ldx, int rows, int n, int block, int limbs,
                      const blocks_a_t *to)
{
    bool ok = true;
    for (int r = 0; r < rows && ok; r++) {
        uint8_t *byte = to->byte + r * limbs * BLOCKS_K;
        for (int k = 0, b = 0; k < n && ok; k += block, b++) {
            const int at = r * BLOCKS_MOST + b;
            ok = quantise_block(x + r * ldx + k, least(block, n - k), limbs, byte + k,
                                to->scale + at, to->sum + at);
        }
    }
    return ok;
}

TARGET static bool quantise(const float *x, int64_t ldx, int rows, int n, int block, int limbs,
                            const blocks_a_t *to)
{
    return limbs == 2 ? quantise_rows(x, ldx, rows, n, block, 2, to)
                      : quantise_rows(x, ldx, rows, n, block, 1, to);
}

/* Up to a block of one row of codes; the sum of its bytes. */
OP int32_t encode_block(const float *x, int n, vf by, vf bias, uint8_t *to)
{
    vu total = vu_set1(0);
    for (int i = 0; i < n; i += 16) {
        vu y[VECTORS_16];
        UNROLL
        for (int v = 0; v < VECTORS_16; v++) {
            const int left = n - i - v * LANES;
            y[v] = vf_to_int(vf_fma(vf_load_n(x + i + v * LANES, left), by, bias));
            total += vu_select(lanes_below(left), y[v], vu_set1(0));
        }
        store_bytes(to + i, y, least(n - i, 16));
    }
    return vi_sum((vi)total);
}

TARGET static void encode(const float *x, int64_t ldx, int rows, int n, int block, float by,
                          float bias, const blocks_a_t *to)
{
    for (int r = 0; r < rows; r++) {
        for (int k = 0, b = r * BLOCKS_MOST; k < n; k += block, b++) {
            const int some = least(block, n - k);
            to->sum[b] = encode_block(x + r * ldx + k, some, vf_set1(by), vf_set1(bias),
                                      to->byte + r * BLOCKS_K + k) -
                         some * (int32_t)to->offset[b];
        }
    }
}

/* ---- B --------------------------------------------------------------------------------------- */

TARGET static void pack(const float *x, int n, float by, float offset, int32_t times, int8_t *byte,
                        int32_t *start)
{
    const vi by_column =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const vf factor = _mm512_set1_ps(by);
    vi sum[VECTORS];
    UNROLL
    for (int v = 0; v < VECTORS; v++) {
        sum[v] = _mm512_setzero_si512();
    }
    for (int k = 0; k < n; k += 4, byte += 4 * BLOCKS_STRIP) {
        UNROLL
        for (int v = 0; v < VECTORS; v++) {
            vi w[4];
            UNROLL
            for (int i = 0; i < 4; i++) {
                const vf less = _mm512_set1_ps(k + i < n ? offset : 0);
                w[i] = _mm512_cvtps_epi32(_mm512_fmsub_ps(
                    _mm512_loadu_ps(x + (k + i) * BLOCKS_STRIP + v * 16), factor, less));
            }
            const vi rows =
                _mm512_packs_epi16(_mm512_packs_epi32(w[0], w[1]), _mm512_packs_epi32(w[2], w[3]));
            const vi columns = _mm512_shuffle_epi8(rows, by_column);
            _mm512_store_si512(byte + v * 64, columns);
            sum[v] = _mm512_dpbusd_epi32(sum[v], _mm512_set1_epi8(1), columns);
        }
    }
    UNROLL
    for (int v = 0; v < VECTORS; v++) {
        _mm512_store_si512(start + v * 16, _mm512_mullo_epi32(sum[v], _mm512_set1_epi32(times)));
    }
}

/* Eight codes of each of sixteen columns. */
OP vi pack_dword(vi x, vi table, vi zp, __mmask64 there, vi sum, int8_t *byte)
{
    const vi low = _mm512_set1_epi8(15);
    const vi even = _mm512_shuffle_epi8(table, _mm512_and_si512(x, low));
    const vi odd = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(x, 4), low));
    const vf ab = _mm512_castsi512_ps(_mm512_unpacklo_epi8(even, odd)),
             cd = _mm512_castsi512_ps(_mm512_unpackhi_epi8(even, odd));
    const vi first =
        _mm512_maskz_sub_epi8(there, _mm512_castps_si512(_mm512_shuffle_ps(ab, cd, 0x88)), zp);
    const vi last =
        _mm512_maskz_sub_epi8(there, _mm512_castps_si512(_mm512_shuffle_ps(ab, cd, 0xdd)), zp);
    const vi ones = _mm512_set1_epi8(1);
    _mm512_store_si512(byte, first);
    _mm512_store_si512(byte + 4 * BLOCKS_STRIP, last);
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, ones, first), ones, last);
}

OP vi zp_bytes(const float *zp)
{
    const vi z = _mm512_and_si512(_mm512_cvtps_epi32(_mm512_loadu_ps(zp)), _mm512_set1_epi32(255));
    return _mm512_mullo_epi32(z, _mm512_set1_epi32(0x01010101));
}

/* Sixteen columns, in whole cache lines: where lines are some power of two apart, few of them
 * stay in the first cache at once. */
OP void pack_lanes(const blocks_codes_t *codes, int v, vi table, int8_t *byte, int32_t *start)
{
    const unsigned char *p = codes->data + v * 16 * codes->stride;
    const int64_t stride = codes->stride;
    const int columns = least(codes->columns - v * 16, 16), n = codes->n, block = codes->block;
    const int32_t times = codes->times;
    const float *zp = codes->zp + v * 16;
    const __mmask64 there = _mm512_movepi8_mask(_mm512_movm_epi32(lanes_below(columns)));
    int end = least(block, n);
    vi sum = _mm512_setzero_si512(), z = zp_bytes(zp);
    for (int line = 0; line < n; line += 128) {
        const int left = least(n - line, 128);
        const __mmask64 some = left == 128 ? ~0ull : (1ull << left / 2) - 1;
        vi row[16], x[16];
        UNROLL
        for (int i = 0; i < 16; i++) {
            row[i] = _mm512_maskz_loadu_epi8(i < columns ? some : 0,
                                             p + (i < columns ? i : 0) * stride + line / 2);
        }
        vi_transpose(row, x);
        for (int k = line; k < line + left; k += 8, byte += 8 * BLOCKS_STRIP) {
            sum = pack_dword(x[(k - line) / 8], table, z, there, sum, byte);
            if (k + 8 == end) {
                _mm512_store_si512(start, _mm512_mullo_epi32(sum, _mm512_set1_epi32(times)));
                sum = _mm512_setzero_si512();
                start += BLOCKS_STRIP;
                zp += BLOCKS_STRIP;
                z = end < n ? zp_bytes(zp) : z;
                end = least(end + block, n);
            }
        }
    }
}

TARGET static void pack_codes(const blocks_codes_t *codes, int8_t *byte, int32_t *start)
{
    const vi values =
        _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)codes->table));
    for (int v = 0; v < VECTORS; v++) {
        pack_lanes(codes, v, values, byte + v * 64, start + v * 16);
    }
}

/* ---- A B ------------------------------------------------------------------------------------- */

/* What a micro-kernel is compiled for. */
typedef struct variant {
    int limbs;
    bool shifted, own;
} variant_t;

/* n rows of A from some element on, and columns of B. */
typedef struct factors {
    const uint8_t *a;
    const float *scale_a, *offset_a;
    const int32_t *sum_a;
    const int8_t *w;
    const int32_t *start, *zp;
    const float *scale;
} factors_t;

/* sum += one block of n rows of one or two rows of bytes each. */
OP void block_of(variant_t is, int n, int length, const factors_t *f, vf sum[][HELD])
{
    const int bytes = n * is.limbs;
    const int8_t *w = f->w;
    vi acc[ROWS][HELD];
    UNROLL
    for (int v = 0; v < HELD; v++) {
        const vi start = is.own ? _mm512_setzero_si512() : _mm512_load_si512(f->start + v * 16);
        UNROLL
        for (int r = 0; r < bytes; r++) {
            acc[r][v] = start;
        }
    }
    for (int k = 0; k < length; k += 4, w += 4 * BLOCKS_STRIP) {
        vi y[HELD];
        UNROLL
        for (int v = 0; v < HELD; v++) {
            y[v] = _mm512_load_si512(w + v * 64);
        }
        UNROLL
        for (int r = 0; r < bytes; r++) {
            int32_t x;
            memcpy(&x, f->a + r * BLOCKS_K + k, sizeof x);
            const vi u = _mm512_set1_epi32(x);
            UNROLL
            for (int v = 0; v < HELD; v++) {
                acc[r][v] = vi_dot(false, acc[r][v], u, y[v]);
            }
        }
    }
    UNROLL
    for (int v = 0; v < HELD; v++) {
        const vf scale = _mm512_load_ps(f->scale + v * 16);
        UNROLL
        for (int r = 0; r < n; r++) {
            vi x = is.limbs == 2
                       ? _mm512_add_epi32(_mm512_slli_epi32(acc[2 * r][v], 8), acc[2 * r + 1][v])
                       : acc[r][v];
            if (is.shifted) {
                const vi zp = _mm512_load_si512(f->zp + v * 16);
                x = _mm512_sub_epi32(
                    x, _mm512_mullo_epi32(zp, _mm512_set1_epi32(f->sum_a[r * BLOCKS_MOST])));
            }
            vf y = _mm512_cvtepi32_ps(x);
            if (is.own) { /* a product of integers below 2^24 */
                y = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(f->start + v * 16)),
                                     _mm512_set1_ps(f->offset_a[r * BLOCKS_MOST]), y);
            }
            sum[r][v] = _mm512_fmadd_ps(
                _mm512_mul_ps(y, _mm512_set1_ps(f->scale_a[r * BLOCKS_MOST])), scale, sum[r][v]);
        }
    }
}

/* All blocks of n rows from row r on. */
OP void rows_of(variant_t is, int n, int r, int column, const blocks_product_t *p)
{
    const blocks_a_t *a = p->a;
    const blocks_b_t *b = p->b;
    const int length = p->n, block = p->block;
    const int64_t ldc = p->ldc;
    float *c = p->c + r * ldc + column;
    vf held[ROWS][HELD];
    factors_t f = {.a = a->byte + r * is.limbs * BLOCKS_K,
                   .scale_a = a->scale + r * BLOCKS_MOST,
                   .offset_a = is.own ? a->offset + r * BLOCKS_MOST : NULL,
                   .sum_a = a->sum + r * BLOCKS_MOST,
                   .w = b->byte + column * 4,
                   .start = b->start + column,
                   .zp = b->zp + column,
                   .scale = b->scale + column};
    UNROLL
    for (int i = 0; i < n * HELD; i++) {
        held[i / HELD][i % HELD] = _mm512_loadu_ps(c + i / HELD * ldc + i % HELD * 16);
    }
    for (int k = 0; k < length; k += block) {
        block_of(is, n, least(block, length - k), &f, held);
        f.a += block, f.scale_a++, f.offset_a += is.own, f.sum_a++;
        f.w += block * BLOCKS_STRIP, f.start += BLOCKS_STRIP, f.zp += BLOCKS_STRIP,
            f.scale += BLOCKS_STRIP;
    }
    UNROLL
    for (int i = 0; i < n * HELD; i++) {
        _mm512_storeu_ps(c + i / HELD * ldc + i % HELD * 16, held[i / HELD][i % HELD]);
    }
}

OP void product_of(variant_t is, const blocks_product_t *p)
{
    const int step = is.limbs == 2 ? ROWS_2 : ROWS_1;
    for (int v = 0; v < BLOCKS_STRIP; v += HELD * 16) {
        for (int r = 0, n; r < p->rows; r += n) {
            n = p->rows - r >= step ? step : p->rows - r >= 2 ? 2 : 1;
            if (n == step) {
                rows_of(is, step, r, v, p);
            } else if (n == 2) {
                rows_of(is, 2, r, v, p);
            } else {
                rows_of(is, 1, r, v, p);
            }
        }
    }
}

#define PRODUCT(limbs, shifted, own)                                            \
    TARGET static void product_##limbs##shifted##own(const blocks_product_t *p) \
    {                                                                           \
        product_of((variant_t){limbs, shifted, own}, p);                        \
    }
PRODUCT(1, 0, 0)
PRODUCT(1, 1, 0)
PRODUCT(1, 0, 1)
PRODUCT(1, 1, 1)
PRODUCT(2, 0, 0)
PRODUCT(2, 1, 0)

static void product(const blocks_product_t *p)
{
    typedef void (*product_t)(const blocks_product_t *);
    static const product_t one[2][2] = {{product_100, product_101}, {product_110, product_111}},
                           two[2] = {product_200, product_210};
    (p->limbs == 1 ? one[p->b->shifted][p->b->own] : two[p->b->shifted])(p);
}

const blocks_table_t blocks_table_avx512_vnni = {quantise, encode, pack, pack_codes, product};

#endif
