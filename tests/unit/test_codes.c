/* Products of codes in integers, by the tables that the library has for this machine, and by one
 * more: the templates over vectors of 256 bits with the exact products of AVX2, which run on most
 * machines. Results lie as near to those of plain C as rounding activations to limbs allows, also
 * where all sums are as large as they can be. */
#define _POSIX_C_SOURCE 200809L

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter_graph.h>

#include "base/cpu.h"
#include "check.h"

#if defined(__x86_64__)
#include "numeric/dtype.h"
#include "numeric/ints_avx2.h"

extern const struct codes_table codes_table_test;
#define TABLE codes_table_test
#include "backend_xsmm/ukernels/codes.inc"

/* A row of codes is 80 bytes: a whole chunk, and one of a single quad. */
enum { TOKENS = 70, BYTES = 80, CHUNKS = 2, MOST = 160, GROUPS = 5, OUT = 96, ACC = 256 };

static const codes_table_t *table_used;
static const unsigned char table[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

typedef struct problem {
    const codes_type_t *type;
    int elems, limbs; /* elems: of a row of codes */
    code_rows_t rows;
    unsigned char data[TOKENS * BYTES];
    float scale[(TOKENS + 2) * GROUPS + 16], zp[(TOKENS + 2) * GROUPS + 16];
    float x[CODES_QUERIES][CHUNKS * 128], p[CODES_BATCH][TOKENS + 16];
    int32_t corner[CHUNKS * 16];
} problem_t;

static double value_of(const problem_t *p, int token, int e)
{
    const unsigned char *row = p->data + token * BYTES;
    const int code = p->type->form == CODES_BYTES ? row[e] : row[e / 2] >> e % 2 * 4 & 15,
              flip = p->type->flip & (p->type->form == CODES_BYTES ? 255 : 15),
              g = token * GROUPS + e * GROUPS / p->elems,
              byte = p->type->form == CODES_TABLE ? table[code] : code ^ flip;
    const double zp = p->rows.zp.at ? p->zp[g] : 0;
    return (double)p->scale[g] * p->type->unit * (byte - p->type->offset - zp);
}

static void fill(problem_t *p, sinter_data_type_t type, int limbs, bool shifted)
{
    memset(p, 0, sizeof *p);
    p->type = codes_type(type);
    p->elems = p->type->elems * BYTES / CODES_CHUNK;
    p->limbs = limbs;
    for (size_t i = 0; i < sizeof p->data; i++) {
        p->data[i] = (unsigned char)(rand() >> 7);
    }
    for (int i = 0; i < TOKENS * GROUPS; i++) {
        p->scale[i] = 1 + (float)(rand() % 100) / 100;
        p->zp[i] = (float)(rand() % 8);
    }
    for (int i = 0; i < CODES_QUERIES * p->elems; i++) {
        p->x[i / p->elems][i % p->elems] = (float)(rand() % 2001 - 1000) / 1000;
    }
    for (int i = 0; i < CODES_BATCH * TOKENS; i++) {
        p->p[i / TOKENS][i % TOKENS] = (float)(rand() % 1000) / 1000;
    }
    for (int i = 0; i < CHUNKS * 16; i++) { /* a group is a quad */
        p->corner[i] = i % 4 * GROUPS + (i / 4 < GROUPS ? i / 4 : 0);
    }
    p->rows =
        (code_rows_t){.data = p->data,
                      .stride = BYTES,
                      .bytes = BYTES,
                      .rows = TOKENS,
                      .tokens = 1,
                      .scale = {.at = p->scale, .ld = GROUPS, .pick = p->corner},
                      .zp = {.at = shifted ? p->zp : NULL, .ld = GROUPS},
                      .ints = {.type = p->type, .table = table, .half_stride = CODES_CHUNK / 2}};
}

/* What sums of products are largest for: all codes are `code`, and all limbs are as large as they
 * become, or low ones as small. */
static void fill_worst(problem_t *p, sinter_data_type_t type, int limbs, int which)
{
    static const unsigned char codes[] = {0x00, 0x77, 0x88, 0xff};
    const float sign = which / 4 % 2 ? -1 : 1, most = 127 * 257,
                least = which / 8 ? (127 * 256 - 128) / most : 1;
    fill(p, type, limbs, false);
    memset(p->data, codes[which % 4], sizeof p->data);
    for (int i = 0; i < CODES_QUERIES * p->elems; i++) { /* a quad has 16 elements or 32 */
        p->x[i / p->elems][i % p->elems] = sign * (i % p->elems % 16 ? least : 1);
    }
    for (int i = 0; i < CODES_BATCH * TOKENS; i++) {
        p->p[i / TOKENS][i % TOKENS] = sign * (i % TOKENS ? least : 1);
    }
    for (int i = 0; i < TOKENS * GROUPS; i++) {
        p->scale[i] = 1;
    }
}

static double step_of(const problem_t *p)
{
    return p->limbs == 2 ? 0.51 / (127 * 257) : 0.51 / 127;
}

/* Whether qk and pv take such codes. */
static bool takes_heads(const problem_t *p)
{
    return p->type->form != CODES_BYTES || table_used->sums_bytes;
}

static void test_qk(const problem_t *p, int queries)
{
    static codes_query_t q;
    static float s[CODES_QUERIES * OUT];
    bool usable = true;
    if (!takes_heads(p)) {
        return;
    }
    for (int i = 0; i < CHUNKS * queries; i++) {
        const float *x = p->x[i / CHUNKS] + i % CHUNKS * p->type->elems;
        usable =
            table_used->quantise(p->type, x, 0, 1, p->limbs, &q.chunk[i % CHUNKS][i / CHUNKS]) &&
            usable;
    }
    CHECK_THAT(usable);
    /* Rows are not of whole chunks. */
    for (int loop = 0; loop < CODES_QK_LOOPS; loop++) {
        const codes_qk_t qk =
            table_used->qk[loop][p->type->form][p->limbs - 1][p->rows.zp.at != NULL];
        if (qk == NULL || loop == CODES_QK_ONE_CHUNK || loop == CODES_QK_TWO_CHUNKS) {
            CHECK(loop != CODES_QK_ANY, "a loop for any rows");
            continue;
        }
        memset(s, 0, sizeof s);
        qk(&p->rows, queries, &q, s, OUT);
        for (int i = 0; i < queries * TOKENS; i++) {
            const int r = i / TOKENS, t = i % TOKENS;
            double sum = 0, bound = 0;
            for (int e = 0; e < p->elems; e++) {
                sum += p->x[r][e] * value_of(p, t, e);
                bound += (step_of(p) + 1e-6) * fabs(value_of(p, t, e));
            }
            CHECK(fabs(s[r * OUT + t] - sum) <= bound,
                  "loop %d: q k of query %d and token %d: %g, not %g", loop, r, t,
                  (double)s[r * OUT + t], sum);
        }
    }
}

static void test_pv(const problem_t *p, int queries)
{
    static codes_weights_t w[CHUNKS];
    static float acc[CODES_BATCH * ACC];
    if (!takes_heads(p)) {
        return;
    }
    /* The loop for such rows, which are not of whole chunks. */
    const int loop = table_used->sums_bytes ? CODES_PV_ANY
                     : queries > 1          ? CODES_PV_PAIRS
                                            : CODES_PV_WORDS;
    memset(acc, 0, sizeof acc);
    CHECK_THAT(table_used->weigh(queries, p->limbs, &p->rows, p->p[0], TOKENS + 16, w));
    for (int c = 0; c < CHUNKS; c++) {
        table_used->pv[loop][p->type->form][p->limbs - 1][queries - 1](&p->rows, c, &w[c], acc,
                                                                       ACC);
    }
    for (int i = 0; i < queries * CHUNKS * p->type->elems; i++) {
        const int r = i / (CHUNKS * p->type->elems), at = i % (CHUNKS * p->type->elems),
                  e = at / p->type->elems * p->type->elems + p->type->element(at % p->type->elems);
        double sum = 0, bound = 0;
        for (int t = 0; t < TOKENS && e < p->elems; t++) {
            const double scale = p->scale[t * GROUPS + e * GROUPS / p->elems];
            sum += p->p[r][t] * value_of(p, t, e);
            bound += 2 * (step_of(p) + 1e-6) * fabs(value_of(p, t, e)) / scale;
        }
        CHECK(e >= p->elems || fabs(acc[r * ACC + at] - sum) <= bound,
              "p v of query %d and element %d: %g, not %g", r, e, (double)acc[r * ACC + at], sum);
    }
}

static void test_lines(const problem_t *p, int rows)
{
    static limbs_t a[CHUNKS * CODES_QUERIES];
    static float out[CODES_QUERIES * 4], scale[16 * CODES_ROWS];
    for (int c = 0; c < CHUNKS; c++) {
        CHECK_THAT(table_used->quantise(p->type, p->x[0] + c * p->type->elems, CHUNKS * 128, rows,
                                        p->limbs, a + c * rows));
    }
    codes_units_t units = {.type = sinter_f32, .n = GROUPS};
    for (int i = 0; i < CODES_ROWS; i++) {
        units.line[i] = (const unsigned char *)(p->scale + i * GROUPS);
    }
    table_used->by_unit(&units, scale);
    code_rows_t w = p->rows;
    w.rows = CODES_ROWS;
    w.scale = (code_coefs_t){.at = scale, .step = 16};
    table_used->lines(&w, rows, p->limbs, a, out, 4);
    for (int i = 0; i < rows * 4; i++) {
        double sum = 0, bound = 0;
        for (int e = 0; e < p->elems; e++) {
            sum += p->x[i / 4][e] * value_of(p, i % 4, e);
            bound += (step_of(p) + 1e-6) * fabs(value_of(p, i % 4, e));
        }
        CHECK(fabs(out[i] - sum) <= bound, "row %d by line %d: %g, not %g", i / 4, i % 4,
              (double)out[i], sum);
    }
}

/* Coefficients of every length and type of four lines, which end with their memory, become fours,
 * and are multiplied with sums. All numbers are small integers: nothing is rounded. */
static void test_units(void)
{
    static const sinter_data_type_t types[] = {sinter_f32, sinter_f16, sinter_bf16};
    enum { MOST_UNITS = 70, ROWS = 3 };
    for (int i = 0; i < 3 * MOST_UNITS; i++) {
        const int n = 1 + i / 3, bytes = i % 3 == 0 ? 4 : 2;
        if (n < table_used->lanes && types[i % 3] != sinter_f32) {
            continue;
        }
        const int room = n < table_used->lanes ? table_used->lanes : n;
        float value[CODES_ROWS][MOST_UNITS],
            sums[ROWS][MOST_UNITS + 16] = {{0}}, out[ROWS][CODES_ROWS] = {{0}},
                                    fours[(MOST_UNITS + 16) * CODES_ROWS];
        int32_t whole[(MOST_UNITS + 16) * CODES_ROWS];
        codes_units_t x = {.type = types[i % 3], .n = n};
        unsigned char *lines[CODES_ROWS];
        for (int l = 0; l < CODES_ROWS; l++) {
            lines[l] = calloc((size_t)room, (size_t)bytes);
            CHECK_THAT(lines[l] != NULL);
            x.line[l] = lines[l];
            for (int u = 0; u < n; u++) {
                value[l][u] = (float)(rand() % 201 - 100);
                dtype_traits(x.type)->codec.store_f32(lines[l], u, 1, 1, &value[l][u]);
            }
        }
        for (int j = 0; j < ROWS * n; j++) {
            sums[j / n][j % n] = (float)(rand() % 2001 - 1000);
        }
        table_used->by_unit(&x, fours);
        if (x.type == sinter_f32) {
            table_used->by_unit_s32(&x, 8, whole);
        }
        table_used->add_units(&x, sums[0], MOST_UNITS + 16, ROWS, out[0], CODES_ROWS);
        for (int j = 0; j < (n + 3) / 4 * 4 * CODES_ROWS; j++) {
            const int u = j / CODES_ROWS, l = j % CODES_ROWS;
            CHECK(fours[j] == (u < n ? value[l][u] : 0), "%d units: unit %d of line %d", n, u, l);
            CHECK(x.type != sinter_f32 || whole[j] == (u < n ? (int32_t)value[l][u] + 8 : 0),
                  "%d units: unit %d of line %d as an integer", n, u, l);
        }
        for (int j = 0; j < ROWS * CODES_ROWS; j++) {
            double sum = 0;
            for (int u = 0; u < n; u++) {
                sum += (double)value[j % CODES_ROWS][u] * sums[j / CODES_ROWS][u];
            }
            CHECK(out[j / CODES_ROWS][j % CODES_ROWS] == sum, "%d units: row %d by line %d", n,
                  j / CODES_ROWS, j % CODES_ROWS);
        }
        const float bad = i % 2 ? INFINITY : NAN;
        dtype_traits(x.type)->codec.store_f32(lines[i % CODES_ROWS], rand() % n, 1, 1, &bad);
        for (int u = 0; u < n; u++) {
            sums[1][u] = 1;
        }
        table_used->add_units(&x, sums[0], MOST_UNITS + 16, 2, out[0], CODES_ROWS);
        CHECK(!isfinite(out[1][i % CODES_ROWS]), "%d units: %g among them", n, (double)bad);
        for (int l = 0; l < CODES_ROWS; l++) {
            free(lines[l]);
        }
    }
}

/* One zero point for all codes is in the offset: near the values of the type, or far from them. */
static void test_offsets(problem_t *p, sinter_data_type_t type)
{
    static const int moved[] = {-128, -4, 3, 7, 127};
    for (int i = 0; i < 5 * 2; i++) {
        fill(p, type, 1 + i % 2, false);
        codes_type_t other = *p->type;
        other.offset += moved[i / 2];
        p->type = p->rows.ints.type = &other;
        test_qk(p, CODES_QUERIES);
        test_pv(p, CODES_BATCH);
    }
}

static void test_table(const codes_table_t *used)
{
    static const sinter_data_type_t types[] = {sinter_s4, sinter_u4, sinter_f4_e2m1, sinter_s8,
                                               sinter_u8};
    static problem_t p;
    table_used = used;
    test_units();
    for (int i = 0; i < 5 * 4; i++) {
        fill(&p, types[i / 4], 1 + i % 2, i % 4 >= 2 && types[i / 4] != sinter_f4_e2m1);
        test_qk(&p, 1 + i % CODES_QUERIES);
        test_pv(&p, 1 << i % 3);
        if (!p.rows.zp.at) {
            test_lines(&p, 1 + i % CODES_QUERIES);
        }
    }
    for (int i = 0; i < 3; i++) { /* types of 4 bits */
        test_offsets(&p, types[i]);
    }
    for (int i = 0; i < 5 * 2 * 16; i++) {
        fill_worst(&p, types[i / 32], 1 + i / 16 % 2, i % 16);
        test_qk(&p, 1);
        test_qk(&p, CODES_BATCH);
        test_pv(&p, 1);
        test_pv(&p, 2);
        test_pv(&p, 4);
        test_lines(&p, 1);
    }
}

int main(void)
{
    if (!has_features(cpu_features(), NEEDS_AVX2)) {
        check_skip("no AVX2");
        return check_finish();
    }
    test_table(&codes_table_test);
    for (int level = sinter_isa_generic; level < LEVELS; level++) {
        const char *name = sinter_cpu_isa_name((sinter_cpu_isa_t)level);
        const features_t has = features_of_level((sinter_cpu_isa_t)level);
        if (codes_table(has) == NULL) {
            printf("%s: no table\n", name);
        } else if (level_of_features(features_up_to((sinter_cpu_isa_t)level)) !=
                   (sinter_cpu_isa_t)level) {
            check_skip("%s: this machine has no such instructions", name);
        } else {
            test_table(codes_table(has));
        }
    }
    return check_finish();
}
#else
int main(void)
{
    check_skip("no AVX2");
    return check_finish();
}
#endif
