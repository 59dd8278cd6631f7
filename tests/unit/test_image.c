/* The micro-kernels of convolution in integers, by the tables that the library has for this
 * machine, beside plain C: rows of A from an image, products of long rows, and codes of results.
 * Nothing around what they write changes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend_xsmm/drivers/matmul/matmul.h"
#include "base/cpu.h"
#include "check.h"

enum { SENTINEL = 0x5a, ROWS = 40, LDC = 80, STRIPS = BLOCKS_STRIP / TILES_COLUMNS };

static int pick(int n)
{
    return (int)((unsigned)rand() % (unsigned)n);
}

/* ---- rows of A ------------------------------------------------------------------------------- */

/* Rows of up to ROWS runs of bytes. words: with which order of words is not 0, that of codes of
 * 8 bits is 2. */
static void check_gather(const blocks_table_t *table, int words)
{
    static uint8_t image[4096 + BLOCKS_VECTOR], to[ROWS * BLOCKS_LONG + BLOCKS_VECTOR];
    static int32_t sum[ROWS * BLOCKS_MOST];
    static const int pairs[] = {0, 2, 1, 3};
    const uint8_t *from[ROWS];
    int64_t run[BLOCKS_K];
    int length[BLOCKS_K], runs = 0, n = 0;
    const int rows = 1 + pick(ROWS), most = 1 + pick(BLOCKS_K), longest = 1 + pick(150),
              zero = pick(256);
    for (size_t i = 0; i < sizeof image; i++) {
        image[i] = (uint8_t)pick(256);
    }
    for (int r = 0; r < rows; r++) {
        from[r] = image + pick(1024);
    }
    for (; n < most; n += length[runs++]) {
        run[runs] = pick(2048);
        length[runs] = 1 + pick(longest < most - n ? longest : most - n);
    }
    const blocks_gather_t how = {.from = from,
                                 .run = run,
                                 .length = length,
                                 .rows = rows,
                                 .runs = runs,
                                 .n = n,
                                 .block = BLOCKS_LONGEST,
                                 .apart = pick(2) ? BLOCKS_LONG : BLOCKS_K * (words ? 2 : 1),
                                 .words = words != 0,
                                 .order = words == 2 ? blocks_order(8, true) : NULL,
                                 .zero = (uint8_t)zero,
                                 .sums = pick(2)};
    memset(to, SENTINEL, sizeof to);
    table->gather(&how, &(limb_rows_t){.byte = {to}, .sum = sum});
    bool same = true;
    for (int r = 0; r < rows; r++) {
        uint8_t byte[BLOCKS_K + 4];
        int at = 0;
        for (int i = 0; i < runs; at += length[i++]) {
            memcpy(byte + at, from[r] + run[i], (size_t)length[i]);
        }
        memset(byte + n, zero, 4);
        for (int k = 0; k < (n + 3) / 4 * 4; k++) {
            int16_t word;
            memcpy(&word, to + r * how.apart + 2 * (words == 2 ? k / 4 * 4 + pairs[k % 4] : k), 2);
            same = same && (words ? word == (int8_t)byte[k] - (int8_t)zero
                                  : to[r * how.apart + k] == byte[k]);
        }
        for (int k = 0; k < n && how.sums && !words; k += BLOCKS_LONGEST) {
            int32_t want = 0;
            for (int i = k; i < n && i < k + BLOCKS_LONGEST; i++) {
                want += byte[i] - zero;
            }
            same = same && sum[r * BLOCKS_MOST + k / BLOCKS_LONGEST] == want;
        }
    }
    const int end = (rows - 1) * how.apart + (words ? 2 : 1) * BLOCKS_K + BLOCKS_VECTOR;
    for (int i = end; i < (int)sizeof to; i++) {
        same = same && to[i] == SENTINEL;
    }
    CHECK(same, "%d rows of %d elements in %d runs, words %d", rows, n, runs, words);
}

/* ---- products of long rows ------------------------------------------------------------------- */

typedef struct product {
    int rows, columns, k;
    uint8_t a[ROWS][BLOCKS_LONG];
    _Alignas(64) int8_t tiles[STRIPS][BLOCKS_LONG * TILES_COLUMNS];
    int8_t b[BLOCKS_STRIP * BLOCKS_LONG];
    int32_t start[BLOCKS_STRIP];
    float scale[BLOCKS_STRIP], c[ROWS * LDC], before[ROWS * LDC];
} product_t;

static int weight_of(const product_t *p, int k, int column)
{
    const int8_t *strip = p->tiles[column / TILES_COLUMNS];
    return strip[k / 4 * TILES_LINE + column % TILES_COLUMNS * 4 + k % 4];
}

/* What element k of a row is, less its zero point, which is that of a byte. */
static int value_of(const product_t *p, bool words, int r, int k, int zero)
{
    const int at = k / 4 * 4 + (k % 4 == 1 ? 2 : k % 4 == 2 ? 1 : k % 4);
    int16_t word;
    memcpy(&word, p->a[r] + 2 * at, sizeof word);
    return words ? word : p->a[r][k] - zero;
}

/* in_place: bytes of B are read from tiles. */
static void check_product(product_t *p, const blocks_table_t *table, bool words, bool in_place)
{
    const int zero = words ? 0 : pick(256), most = BLOCKS_LONG / (words ? 2 : 1);
    const float scale_a = 0.5f;
    p->rows = 1 + pick(ROWS - BLOCKS_ROWS);
    p->columns = in_place ? (1 + pick(2)) * table->together : 1 + pick(BLOCKS_STRIP);
    p->columns = p->columns > BLOCKS_STRIP ? BLOCKS_STRIP : p->columns;
    p->k = (1 + pick(most / TILES_K)) * TILES_K;
    for (int r = 0; r < ROWS; r++) {
        for (int k = 0; k < most; k++) {
            const int16_t word = (int16_t)(pick(511) - 255);
            if (words) {
                memcpy(p->a[r] + 2 * k, &word, sizeof word);
            } else {
                p->a[r][k] = (uint8_t)pick(256);
            }
        }
    }
    for (size_t i = 0; i < sizeof p->tiles; i++) {
        ((int8_t *)p->tiles)[i] = (int8_t)(pick(256) - 128);
    }
    for (int i = 0; i < BLOCKS_STRIP; i++) {
        p->scale[i] = (float)(1 + pick(16)) / 16;
    }
    for (int i = 0; i < ROWS * LDC; i++) {
        p->c[i] = p->before[i] = (float)pick(1000);
    }
    const int64_t apart = p->k / (words ? 2 : 4) * TILES_LINE;
    const blocks_codes_t codes = {.data = (const unsigned char *)p->tiles,
                                  .stride = (int64_t)sizeof p->tiles[0],
                                  .apart = apart,
                                  .columns = p->columns,
                                  .n = p->k,
                                  .block = p->k,
                                  .bits = 8,
                                  .table = p->b,
                                  .factor = -zero};
    if (in_place) {
        table->sum_tiles(&codes, p->start);
    } else {
        table->pack_tiles(&codes, words, p->b, p->start);
    }
    const bool first = pick(2);
    const limb_rows_t a = {.byte = {p->a[0]}, .scale = (float *)(uintptr_t)&scale_a};
    const blocks_b_t b = {.byte = in_place ? p->tiles[0] : p->b,
                          .apart = in_place ? (int64_t)sizeof p->tiles[0] : apart,
                          .scale = p->scale,
                          .start = p->start,
                          .zp = p->start};
    table->product(&(blocks_product_t){.rows = p->rows,
                                       .n = p->k,
                                       .block = p->k,
                                       .columns = p->columns,
                                       .words = words,
                                       .long_rows = true,
                                       .first = first,
                                       .a = &a,
                                       .b = &b,
                                       .c = p->c,
                                       .ldc = LDC});
    for (int r = 0; r < p->rows; r++) {
        for (int c = 0; c < p->columns; c++) {
            double sum = 0;
            for (int k = 0; k < p->k; k++) {
                sum += value_of(p, words, r, k, zero) * weight_of(p, k, c);
            }
            const double y = (double)(float)sum * 0.5 * (double)p->scale[c],
                         want = y + (first ? 0 : (double)p->before[r * LDC + c]),
                         got = (double)p->c[r * LDC + c];
            CHECK(fabs(got - want) <= 0x1p-22 * (fabs(y) + 1000),
                  "%d x %d x %d, words %d, in place %d: row %d, column %d is %g, not %g", p->rows,
                  p->k, p->columns, words, in_place, r, c, got, want);
        }
    }
    const int below = (p->rows + BLOCKS_ROWS - 1) / BLOCKS_ROWS * BLOCKS_ROWS;
    bool same = true;
    for (int i = 0; i < ROWS * LDC; i++) {
        same = same && ((i % LDC < BLOCKS_STRIP && i / LDC < below) || p->c[i] == p->before[i]);
    }
    CHECK(same, "%d x %d: something around the results has changed", p->rows, p->columns);
}

/* ---- codes of results ------------------------------------------------------------------------ */

static int code_of(const blocks_codes_of_t *how, float x, float bias)
{
    const float sum = how->bias != NULL ? x + bias : x, y = how->relu && sum < 0 ? 0 : sum,
                code = rintf(y / how->scale) + how->zp;
    const float low = how->is_signed ? -128 : 0, high = how->is_signed ? 127 : 255;
    return isnan(code) ? 0 : (int)(code < low ? low : code > high ? high : code);
}

static void check_store(const blocks_table_t *table)
{
    static const float scales[] = {1, 0.05f, -0.3f, 3e-4f, 7e20f, 0x1p-120f, 0x1p110f, 0};
    static const float special[] = {NAN, INFINITY, -INFINITY, -0.0f, 3e38f, 0x1p-140f};
    for (int round = 0; round < 4000; round++) {
        float x[2 * BLOCKS_STRIP], bias[65];
        unsigned char to[65];
        const int n = 1 + pick(64);
        const blocks_codes_of_t how = {.bias = pick(2) ? bias : NULL,
                                       .relu = pick(2),
                                       .is_signed = pick(2),
                                       .scale = scales[pick(8)],
                                       .zp = (float)(pick(8) == 0 ? 100000 : pick(256) - 128)};
        for (int i = 0; i < 2 * BLOCKS_STRIP; i++) {
            const float unit = how.scale == 0 || fabsf(how.scale) > 1e30f ? 1 : how.scale;
            x[i] = pick(20) == 0 ? special[pick(6)] : (float)(pick(1200) - 600) * unit / 2;
        }
        for (int i = 0; i < n; i++) {
            bias[i] = pick(40) == 0 ? special[pick(6)] : (float)(pick(64) - 32) * how.scale;
        }
        memset(to, SENTINEL, sizeof to);
        table->store(&how, x, n, to);
        bool same = to[n] == SENTINEL;
        for (int i = 0; i < n && same; i++) {
            const int want = code_of(&how, x[i], bias[i]);
            same = to[i] == (unsigned char)want;
            CHECK(same, "%g by %g: %d, not %d", (double)x[i], (double)how.scale, to[i], want & 255);
        }
        CHECK(same, "%d codes by %g", n, (double)how.scale);
    }
}

int main(void)
{
    static product_t p;
    sinter_cpu_isa_t top;
    if (cpu_isa_cap(sinter_isa_default, &top) != sinter_success) {
        return 1;
    }
    const blocks_table_t *seen = NULL;
    for (int isa = sinter_isa_generic; isa <= (int)top; isa++) {
        const blocks_table_t *table = blocks_table(features_up_to((sinter_cpu_isa_t)isa));
        if (table == NULL || table == seen) {
            continue;
        }
        seen = table;
        for (int i = 0; i < 300; i++) {
            check_gather(table, i % 3);
        }
        for (int i = 0; i < 60; i++) {
            check_product(&p, table, true, false);
            if (table->sums_bytes) {
                check_product(&p, table, false, i % 2);
            }
        }
        check_store(table);
    }
    if (seen == NULL) {
        check_skip("no instruction set here or below has products of integers");
    }
    return check_finish();
}
