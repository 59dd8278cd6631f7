/* The micro-kernels of convolution in integers, by the tables that the library has for this
 * machine, in words and in bytes: sums of integers are exact, so results are those of plain C.
 * Nothing around what they write changes. Their codes of results are those of the formula. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend_xsmm/drivers/matmul/matmul.h"
#include "base/cpu.h"
#include "check.h"

enum {
    SENTINEL = 0x5a,
    ADDRESSES = TAPS_ROWS + TAPS_GRAIN,
    MOST_K = 96,
    MOST_COLUMNS = 2 * TAPS_CODES,
    PIECES = 3,
    LDC = 160
};

static int pick(int n)
{
    return (int)((unsigned)rand() % (unsigned)n);
}

/* ---- codes of the image ---------------------------------------------------------------------- */

static void check_encode(const taps_table_t *table, bool words)
{
    for (int n = 0; n < 150; n++) {
        unsigned char code[150];
        uint8_t to[2 * 150 + 1];
        const int zp = pick(511) - 255, flip = pick(2) * 128, wide = words ? 2 : 1;
        for (int i = 0; i < n; i++) {
            code[i] = (unsigned char)pick(256);
        }
        memset(to, SENTINEL, sizeof to);
        table->encode(words, code, n, (uint8_t)flip, zp, to);
        bool same = to[n * wide] == SENTINEL;
        for (int i = 0; i < n; i++) {
            int16_t word;
            memcpy(&word, to + 2 * i, sizeof word);
            same =
                same && (words ? word == (int8_t)(code[i] ^ flip) - zp : to[i] == (code[i] ^ flip));
        }
        CHECK(same, "%d codes as %s, zero point %d", n, words ? "words" : "bytes", zp);
    }
}

/* ---- products -------------------------------------------------------------------------------- */

typedef struct product {
    bool words, shifted, add;
    int rows, columns, pieces, k[PIECES];
    int32_t zp[MOST_COLUMNS];
    unsigned char w[PIECES][MOST_K][MOST_COLUMNS];
    uint8_t a[PIECES][TAPS_ROWS][2 * MOST_K + 4];
    int8_t *b;
    int32_t sum[MOST_COLUMNS];
    float scale[MOST_COLUMNS + TAPS_CODES], c[ADDRESSES * LDC], before[ADDRESSES * LDC];
} product_t;

static int dwords_of(const product_t *p, int piece)
{
    const int each = p->words ? 2 : 4;
    return (p->k[piece] + each - 1) / each;
}

/* Codes of A are words or bytes of up to the largest size; what lies behind a row is anything. */
static void fill(product_t *p, bool words)
{
    *p = (product_t){.words = words,
                     .shifted = words && pick(2),
                     .add = pick(2),
                     .rows = 1 + pick(TAPS_ROWS),
                     .columns = 1 + pick(MOST_COLUMNS),
                     .pieces = 1 + pick(PIECES)};
    for (int i = 0; i < p->pieces; i++) {
        p->k[i] = 1 + pick(MOST_K);
        for (int r = 0; r < TAPS_ROWS; r++) {
            for (int k = 0; k < MOST_K; k++) {
                const int16_t word = (int16_t)(pick(1021) - 510);
                p->a[i][r][k] = (uint8_t)pick(256);
                if (words) {
                    memcpy(&p->a[i][r][2 * k], &word, sizeof word);
                }
            }
        }
        for (int k = 0; k < MOST_K; k++) {
            for (int c = 0; c < MOST_COLUMNS; c++) {
                p->w[i][k][c] = (unsigned char)pick(256);
            }
        }
    }
    for (int i = 0; i < MOST_COLUMNS; i++) {
        p->zp[i] = pick(511) - 255;
        p->scale[i] = (float)(1 + pick(16)) / 16;
    }
    for (int i = 0; i < ADDRESSES * LDC; i++) {
        p->c[i] = p->before[i] = (float)pick(1000);
    }
}

static void pack(product_t *p, const taps_table_t *table, int64_t apart)
{
    for (int c = 0; c < p->columns; c += table->codes) {
        int at = 0;
        for (int i = 0; i < p->pieces; i++) {
            const taps_codes_t codes = {.data = &p->w[i][0][c],
                                        .stride = MOST_COLUMNS,
                                        .rows = p->k[i],
                                        .columns = p->columns - c < table->codes ? p->columns - c
                                                                                 : table->codes,
                                        .zp = p->shifted ? p->zp + c : NULL};
            table->pack(p->words, &codes, p->b + c / table->strip * apart + at, apart, p->sum + c);
            at += dwords_of(p, i) * 4 * table->strip;
        }
    }
}

static double value_of(const product_t *p, int r, int c, int times)
{
    double sum = 0;
    for (int i = 0; i < p->pieces; i++) {
        for (int k = 0; k < p->k[i]; k++) {
            const int w = (int8_t)p->w[i][k][c] - (p->shifted ? p->zp[c] : 0);
            int16_t word;
            memcpy(&word, &p->a[i][r][2 * k], sizeof word);
            sum += w * (p->words ? word : p->a[i][r][k] + times);
        }
    }
    return sum;
}

static void check_product(product_t *p, const taps_table_t *table)
{
    const uint8_t *at[PIECES * ADDRESSES];
    int dwords[PIECES], all = 0;
    const int times = p->words ? 0 : -pick(256);
    for (int i = 0; i < p->pieces; i++) {
        dwords[i] = dwords_of(p, i);
        all += dwords[i];
        for (int r = 0; r < ADDRESSES; r++) {
            at[i * ADDRESSES + r] = p->a[i][r < p->rows ? r : 0];
        }
    }
    const int64_t apart = (int64_t)all * 4 * table->strip;
    p->b = calloc((size_t)apart, (size_t)(MOST_COLUMNS / table->strip + 2));
    CHECK(p->b != NULL, "memory");
    if (p->b == NULL) {
        return;
    }
    pack(p, table, apart);
    table->product(&(taps_product_t){.rows = p->rows,
                                     .columns = p->columns,
                                     .pieces = p->pieces,
                                     .words = p->words,
                                     .a = at,
                                     .dwords = dwords,
                                     .b = p->b,
                                     .apart = apart,
                                     .sum = p->sum,
                                     .times = times,
                                     .scale_a = 0.5f,
                                     .scale = p->scale,
                                     .add = p->add,
                                     .c = p->c,
                                     .ldc = LDC});
    free(p->b);
    for (int r = 0; r < p->rows; r++) {
        for (int c = 0; c < p->columns; c++) {
            const double y = (double)(float)value_of(p, r, c, times) * 0.5 * (double)p->scale[c],
                         want = y + (p->add ? (double)p->before[r * LDC + c] : 0),
                         got = (double)p->c[r * LDC + c];
            CHECK(fabs(got - want) <= 0x1p-22 * (fabs(y) + 1000),
                  "%d x %d, %d pieces of %d..: row %d, column %d is %g, not %g", p->rows,
                  p->columns, p->pieces, p->k[0], r, c, got, want);
        }
    }
    const int end = (p->columns + table->strip - 1) / table->strip * table->strip,
              below = (p->rows + TAPS_GRAIN - 1) / TAPS_GRAIN * TAPS_GRAIN;
    bool same = true;
    for (int i = 0; i < ADDRESSES * LDC; i++) {
        same = same && (i % LDC < end && i / LDC < below ? true : p->c[i] == p->before[i]);
    }
    CHECK(same, "%d x %d: something around the results has changed", p->rows, p->columns);
}

/* ---- codes of results ------------------------------------------------------------------------ */

static int code_of(const taps_codes_of_t *how, float x, float bias)
{
    const float sum = how->bias != NULL ? x + bias : x, y = how->relu && sum < 0 ? 0 : sum,
                code = rintf(y / how->scale) + how->zp;
    const float low = how->is_signed ? -128 : 0, high = how->is_signed ? 127 : 255;
    return isnan(code) ? 0 : (int)(code < low ? low : code > high ? high : code);
}

static void check_store(const taps_table_t *table)
{
    static const float scales[] = {1, 0.05f, -0.3f, 3e-4f, 7e20f, 0x1p-120f, 0x1p110f, 0};
    static const float special[] = {NAN, INFINITY, -INFINITY, -0.0f, 3e38f, 0x1p-140f};
    for (int round = 0; round < 4000; round++) {
        float x[2 * TAPS_CODES], bias[65];
        unsigned char to[65];
        const int n = 1 + pick(64);
        const taps_codes_of_t how = {.bias = pick(2) ? bias : NULL,
                                     .relu = pick(2),
                                     .is_signed = pick(2),
                                     .scale = scales[pick(8)],
                                     .zp = (float)(pick(8) == 0 ? 100000 : pick(256) - 128)};
        for (int i = 0; i < 2 * TAPS_CODES; i++) {
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
    const taps_table_t *seen = NULL;
    for (int isa = sinter_isa_generic; isa <= (int)top; isa++) {
        const taps_table_t *table = taps_table(features_up_to((sinter_cpu_isa_t)isa));
        if (table == NULL || table == seen) {
            continue;
        }
        seen = table;
        for (int words = 0; words < 2; words++) {
            check_encode(table, words != 0);
            for (int i = 0; i < 60; i++) {
                fill(&p, words != 0);
                check_product(&p, table);
            }
        }
        check_store(table);
    }
    if (seen == NULL) {
        check_skip("no instruction set here or below has products tap by tap");
    }
    return check_finish();
}
