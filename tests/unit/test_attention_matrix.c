/* Attention against the oracle over covering designs: of every two properties below, every two
 * values meet in at least one case (where they fit together, and the case is not too large). One
 * design has all values, one those of decoding, one those of latent attention, one those of caches
 * that lie in tiles, one masks over these. SINTER_MATRIX=full
 * takes long caches in as well, SINTER_MATRIX_ONLY=N runs one case, SINTER_MATRIX_STEP=N every Nth
 * one, SINTER_MATRIX_FROM=N those from there on, SINTER_RANDOM_SEED makes other designs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../fuzz/fuzz.h"
#include "check.h"
#include "passive.h"

/* ---- properties ------------------------------------------------------------------------------ */

enum {
    T,
    S,
    D,
    DV,
    HEADS,
    K_TYPE,
    V_TYPE,
    K_GROUP,
    V_GROUP,
    SCALE,
    ZP,
    MASK,
    MODE,
    QUERY,
    STORED,
    DYNAMIC,
    Q_BATCH,
    K_BATCH,
    V_BATCH,
    MASK_BATCH, /* of an added mask */
    TILES,      /* what lies in tiles */
    NUMBERS,    /* which ones it meets */
    CELLS,      /* that an added mask leaves */
    N_PROPERTIES,
    MAX_VALUES = 16
};
/* Group sizes. Below 256: elements along the head; those that are no powers of two leave a short
 * last group in most heads. From 256 on: tokens, times 256. Or one scale for each channel, for each
 * token, for the whole tensor. */
enum { CHANNEL = -1, TOKEN = -2, TENSOR = -3 };
enum mask { NO_MASK, ADDED, DEAD_ROWS, CAUSAL, BOTTOM_RIGHT, LATE, WINDOW };
/* The last two are of latent attention: V is a part of each token of K, taken from what is
 * dequantised, or from codes, scales and zero points alike. */
enum stored { TOKEN_ROWS, TRANSPOSED_K, SIDE_BY_SIDE, ANY_LAYOUT, PART_OF_K, PART_OF_CODES };
enum { FLOAT_ZPS = 100, OFFSETS };
/* Batches of an operand, which broadcast to those of the others. Compile does not know open ones,
 * and other executes have others. */
enum { ONE, SEVERAL, OPEN_ONE, OPEN_SEVERAL, BATCHES = 2 };
/* Bits: K, V; compile chooses that they do. */
enum { NOTHING, ONLY_K, ONLY_V, BOTH, CHOSEN };
/* Queries that are near both ends of their type, NaN or infinite here and there; scales and zero
 * points whose values are. */
enum { USUAL, VAST_QUERIES, ODD_QUERIES, BRINK };

typedef struct property {
    const char *name;
    int n, full; /* values, and those that only the full design has, at the end */
    int64_t values[MAX_VALUES];
} property_t;

#define TYPES                                                                                   \
    sinter_s4, sinter_u4, sinter_s8, sinter_u8, sinter_f4_e2m1, sinter_f8_e4m3, sinter_f8_e5m2, \
        sinter_f16, sinter_bf16, sinter_f32
#define MODES                                                                   \
    sinter_fpmath_mode_strict, sinter_fpmath_mode_f16, sinter_fpmath_mode_bf16, \
        sinter_fpmath_mode_any, sinter_fpmath_mode_tf32, sinter_fpmath_mode_int8

#define ALL_BATCHES                                                          \
    [Q_BATCH] = {"Q batches", 4, 0, {ONE, SEVERAL, OPEN_ONE, OPEN_SEVERAL}}, \
    [K_BATCH] = {"K batches", 4, 0, {ONE, SEVERAL, OPEN_ONE, OPEN_SEVERAL}}, \
    [V_BATCH] = {"V batches", 4, 0, {ONE, SEVERAL, OPEN_ONE, OPEN_SEVERAL}}, \
    [MASK_BATCH] = {"mask batches", 4, 0, {ONE, SEVERAL, OPEN_ONE, OPEN_SEVERAL}}

static const property_t all_values[N_PROPERTIES] = {
    [T] = {"T", 10, 2, {0, 1, 31, 32, 33, 127, 128, 513, 4096, 16384}},
    [S] = {"S", 7, 0, {1, 2, 4, 5, 16, 128, 512}},
    [D] = {"D", 6, 0, {40, 64, 80, 96, 128, 256}},
    [DV] = {"Dv", 7, 0, {0, 40, 64, 80, 96, 128, 256}}, /* 0: as D */
    [HEADS] = {"heads", 4, 0, {14 << 8 | 2, 28 << 8 | 4, 9 << 8 | 3, 32 << 8 | 1}},
    [K_TYPE] = {"K", 13, 0, {TYPES, sinter_f6_e2m3, sinter_f6_e3m2, sinter_f8_e4m3fnuz}},
    [V_TYPE] = {"V", 13, 0, {TYPES, sinter_f6_e2m3, sinter_f6_e3m2, sinter_f8_e4m3fnuz}},
    [K_GROUP] = {"K groups",
                 14,
                 0,
                 {16, 32, 64, 128, 24, 40, 20, CHANNEL, TOKEN, TENSOR, 16 << 8, 32 << 8, 64 << 8,
                  128 << 8}},
    [V_GROUP] = {"V groups",
                 14,
                 0,
                 {16, 32, 64, 128, 56, 48, 12, CHANNEL, TOKEN, TENSOR, 16 << 8, 32 << 8, 64 << 8,
                  128 << 8}},
    [SCALE] = {"scales", 5, 0, {sinter_f16, sinter_f32, sinter_bf16, sinter_e8m0, sinter_f8_e4m3}},
    /* bits, signed as the codes; or floats */
    [ZP] = {"zero points", 6, 0, {0, 8, 4, 32, FLOAT_ZPS, OFFSETS}},
    [MASK] = {"mask", 7, 0, {NO_MASK, ADDED, DEAD_ROWS, CAUSAL, BOTTOM_RIGHT, LATE, WINDOW}},
    [MODE] = {"mode", 6, 0, {MODES}},
    [QUERY] = {"query", 3, 0, {sinter_f32, sinter_f16, sinter_bf16}},
    [STORED] = {"stored", 4, 0, {TOKEN_ROWS, TRANSPOSED_K, SIDE_BY_SIDE, ANY_LAYOUT}},
    [DYNAMIC] = {"dynamic", 2, 0, {0, 1}},
    ALL_BATCHES,
    [TILES] = {"tiles", 1, 0, {NOTHING}},
    [NUMBERS] = {"numbers", 1, 0, {USUAL}},
    [CELLS] = {"cells", 1, 0, {FZ_NO_CELLS}},
};

/* Few rows for each head of K and V, groups as caches have them. Nine heads over three have three
 * queries each, for which there are kernels of their own (dot_three, twelve sums). */
static const property_t decode_values[N_PROPERTIES] = {
    [T] = {"T", 10, 2, {0, 1, 31, 32, 33, 127, 257, 513, 4096, 16384}},
    [S] = {"S", 4, 0, {1, 2, 4, 5}},
    [D] = {"D", 6, 0, {40, 64, 80, 96, 128, 256}},
    [DV] = {"Dv", 4, 0, {0, 64, 96, 128}},
    [HEADS] = {"heads",
               6,
               0,
               {14 << 8 | 2, 28 << 8 | 4, 9 << 8 | 3, 4 << 8 | 4, 16 << 8 | 2, 6 << 8 | 3}},
    [K_TYPE] = {"K", 10, 0, {TYPES}},
    [V_TYPE] = {"V", 10, 0, {TYPES}},
    [K_GROUP] = {"K groups",
                 14,
                 0,
                 {16, 32, 64, 128, 24, 40, 48, 56, 12, 20, CHANNEL, TOKEN, TENSOR, 32 << 8}},
    [V_GROUP] = {"V groups",
                 14,
                 0,
                 {16, 32, 64, 128, 24, 40, 48, 56, 12, 20, CHANNEL, TOKEN, TENSOR, 32 << 8}},
    [SCALE] = {"scales", 4, 0, {sinter_f16, sinter_f32, sinter_bf16, sinter_e8m0}},
    [ZP] = {"zero points", 6, 0, {0, 8, 4, 32, FLOAT_ZPS, OFFSETS}},
    [MASK] = {"mask", 7, 0, {NO_MASK, ADDED, DEAD_ROWS, CAUSAL, BOTTOM_RIGHT, LATE, WINDOW}},
    [MODE] = {"mode", 6, 0, {MODES}},
    [QUERY] = {"query", 3, 0, {sinter_f32, sinter_f16, sinter_bf16}},
    [STORED] = {"stored", 3, 0, {TOKEN_ROWS, TRANSPOSED_K, SIDE_BY_SIDE}},
    [DYNAMIC] = {"dynamic", 2, 0, {0, 1}},
    ALL_BATCHES,
    [TILES] = {"tiles", 1, 0, {NOTHING}},
    [NUMBERS] = {"numbers", 1, 0, {USUAL}},
    [CELLS] = {"cells", 1, 0, {FZ_NO_CELLS}},
};
/* Heads that share one cache are rows, more than decoding has. */
static const property_t latent_values[N_PROPERTIES] = {
    [T] = {"T", 9, 1, {0, 1, 17, 32, 65, 257, 513, 1025, 4096}},
    [S] = {"S", 4, 0, {1, 2, 5, 9}},
    [D] = {"D", 5, 0, {576, 96, 40, 320, 600}},
    [DV] = {"Dv", 5, 0, {512, 32, 0, 24, 256}},
    [HEADS] = {"heads", 5, 0, {16 << 8 | 1, 20 << 8 | 1, 128 << 8 | 1, 6 << 8 | 2, 1 << 8 | 1}},
    [K_TYPE] = {"K", 13, 0, {TYPES, sinter_f6_e2m3, sinter_f6_e3m2, sinter_f8_e4m3fnuz}},
    [V_TYPE] = {"V", 1, 0, {sinter_f32}},
    [K_GROUP] = {"K groups", 9, 0, {32, 64, 128, 24, 88, CHANNEL, TOKEN, TENSOR, 32 << 8}},
    [V_GROUP] = {"V groups", 1, 0, {32}},
    [SCALE] = {"scales", 4, 0, {sinter_f16, sinter_f32, sinter_bf16, sinter_e8m0}},
    [ZP] = {"zero points", 6, 0, {0, 8, 4, 32, FLOAT_ZPS, OFFSETS}},
    [MASK] = {"mask", 7, 0, {NO_MASK, ADDED, DEAD_ROWS, CAUSAL, BOTTOM_RIGHT, LATE, WINDOW}},
    [MODE] = {"mode", 6, 0, {MODES}},
    [QUERY] = {"query", 3, 0, {sinter_f32, sinter_f16, sinter_bf16}},
    [STORED] = {"stored", 2, 0, {PART_OF_K, PART_OF_CODES}},
    [DYNAMIC] = {"dynamic", 2, 0, {0, 1}},
    [Q_BATCH] = {"Q batches", 4, 0, {ONE, SEVERAL, OPEN_ONE, OPEN_SEVERAL}},
    [K_BATCH] = {"K batches", 4, 0, {ONE, SEVERAL, OPEN_ONE, OPEN_SEVERAL}},
    [V_BATCH] = {"V batches", 1, 0, {ONE}},
    [MASK_BATCH] = {"mask batches", 4, 0, {ONE, SEVERAL, OPEN_ONE, OPEN_SEVERAL}},
    [TILES] = {"tiles", 1, 0, {NOTHING}},
    [NUMBERS] = {"numbers", 1, 0, {USUAL}},
    [CELLS] = {"cells", 1, 0, {FZ_NO_CELLS}},
};
/* Tokens that are no multiple of 16, and values whose head is none, take one matrix. Zero points of
 * 32 bits and scales of channels keep strides, so that all of the operand is unpacked. */
static const property_t tiles_values[N_PROPERTIES] = {
    [T] = {"T", 13, 0, {16, 32, 48, 240, 256, 512, 768, 1, 15, 17, 31, 33, 255}},
    [S] = {"S", 7, 0, {1, 2, 3, 4, 5, 8, 40}},
    [D] = {"D", 9, 0, {16, 40, 64, 80, 96, 128, 256, 512, 600}},
    [DV] = {"Dv", 9, 0, {0, 16, 40, 64, 80, 96, 128, 256, 512}},
    [HEADS] = {"heads",
               8,
               0,
               {1 << 8 | 1, 2 << 8 | 2, 4 << 8 | 1, 14 << 8 | 2, 12 << 8 | 4, 16 << 8 | 2,
                16 << 8 | 1, 17 << 8 | 1}},
    [K_TYPE] = {"K", 12, 0, {TYPES, sinter_f6_e2m3, sinter_f6_e3m2}},
    [V_TYPE] = {"V", 12, 0, {TYPES, sinter_f6_e2m3, sinter_f6_e3m2}},
    [K_GROUP] = {"K groups", 9, 0, {16, 32, 64, 128, 24, 48, TOKEN, CHANNEL, TENSOR}},
    [V_GROUP] = {"V groups", 9, 0, {16, 32, 64, 128, 24, 48, TOKEN, CHANNEL, TENSOR}},
    [SCALE] = {"scales", 5, 0, {sinter_f16, sinter_f32, sinter_bf16, sinter_e8m0, sinter_f8_e4m3}},
    [ZP] = {"zero points", 6, 0, {0, 8, 4, 32, FLOAT_ZPS, OFFSETS}},
    [MASK] = {"mask", 7, 0, {NO_MASK, ADDED, DEAD_ROWS, CAUSAL, BOTTOM_RIGHT, LATE, WINDOW}},
    [MODE] = {"mode", 6, 0, {MODES}},
    [QUERY] = {"query", 3, 0, {sinter_f32, sinter_f16, sinter_bf16}},
    [STORED] = {"stored", 4, 0, {TOKEN_ROWS, TRANSPOSED_K, SIDE_BY_SIDE, ANY_LAYOUT}},
    [DYNAMIC] = {"dynamic", 1, 0, {0}},
    [Q_BATCH] = {"Q batches", 4, 0, {ONE, SEVERAL, OPEN_ONE, OPEN_SEVERAL}},
    [K_BATCH] = {"K batches", 2, 0, {ONE, SEVERAL}},
    [V_BATCH] = {"V batches", 2, 0, {ONE, SEVERAL}},
    [MASK_BATCH] = {"mask batches", 4, 0, {ONE, SEVERAL, OPEN_ONE, OPEN_SEVERAL}},
    [TILES] = {"tiles", 4, 0, {ONLY_K, ONLY_V, BOTH, CHOSEN}},
    [NUMBERS] = {"numbers", 1, 0, {USUAL}},
    [CELLS] = {"cells", 1, 0, {FZ_NO_CELLS}},
};
/* Numbers that products of tiles do not take, for which they go other ways. */
static const property_t odd_values[N_PROPERTIES] = {
    [T] = {"T", 4, 0, {16, 48, 256, 512}},
    [S] = {"S", 3, 0, {1, 3, 40}},
    [D] = {"D", 2, 0, {64, 128}},
    [DV] = {"Dv", 2, 0, {0, 96}},
    [HEADS] = {"heads", 3, 0, {2 << 8 | 2, 8 << 8 | 2, 12 << 8 | 4}},
    [K_TYPE] = {"K",
                8,
                0,
                {sinter_s4, sinter_u4, sinter_s8, sinter_f4_e2m1, sinter_f8_e4m3, sinter_f8_e5m2,
                 sinter_f16, sinter_f32}},
    [V_TYPE] = {"V",
                8,
                0,
                {sinter_s4, sinter_u4, sinter_s8, sinter_f4_e2m1, sinter_f8_e4m3, sinter_f8_e5m2,
                 sinter_f16, sinter_f32}},
    [K_GROUP] = {"K groups", 3, 0, {16, 32, TOKEN}},
    [V_GROUP] = {"V groups", 3, 0, {16, 32, TOKEN}},
    [SCALE] = {"scales", 4, 0, {sinter_f16, sinter_f32, sinter_bf16, sinter_e8m0}},
    [ZP] = {"zero points", 4, 0, {0, 8, FLOAT_ZPS, OFFSETS}},
    [MASK] = {"mask", 4, 0, {NO_MASK, DEAD_ROWS, BOTTOM_RIGHT, WINDOW}},
    [MODE] = {"mode", 6, 0, {MODES}},
    [QUERY] = {"query", 3, 0, {sinter_f32, sinter_f16, sinter_bf16}},
    [STORED] = {"stored", 2, 0, {TOKEN_ROWS, TRANSPOSED_K}},
    [DYNAMIC] = {"dynamic", 1, 0, {0}},
    [Q_BATCH] = {"Q batches", 2, 0, {ONE, SEVERAL}},
    [K_BATCH] = {"K batches", 2, 0, {ONE, SEVERAL}},
    [V_BATCH] = {"V batches", 2, 0, {ONE, SEVERAL}},
    [MASK_BATCH] = {"mask batches", 2, 0, {ONE, SEVERAL}},
    [TILES] = {"tiles", 3, 0, {ONLY_K, ONLY_V, BOTH}},
    [NUMBERS] = {"numbers", 3, 0, {VAST_QUERIES, ODD_QUERIES, BRINK}},
    [CELLS] = {"cells", 1, 0, {FZ_NO_CELLS}},
};
/* Masks in memory over caches in tiles. Tokens that no row sees are odd numbers. */
static const property_t cells_values[N_PROPERTIES] = {
    [T] = {"T", 8, 0, {16, 48, 240, 256, 512, 768, 1, 33}},
    [S] = {"S", 8, 0, {1, 2, 3, 4, 5, 8, 16, 40}},
    [D] = {"D", 5, 0, {16, 64, 80, 128, 256}},
    [DV] = {"Dv", 5, 0, {0, 40, 64, 96, 128}},
    [HEADS] = {"heads",
               6,
               0,
               {1 << 8 | 1, 4 << 8 | 1, 8 << 8 | 2, 12 << 8 | 4, 16 << 8 | 2, 17 << 8 | 1}},
    [K_TYPE] = {"K", 10, 0, {TYPES}},
    [V_TYPE] = {"V", 10, 0, {TYPES}},
    [K_GROUP] = {"K groups", 5, 0, {16, 32, 64, TOKEN, 24}},
    [V_GROUP] = {"V groups", 5, 0, {16, 32, 64, TOKEN, 48}},
    [SCALE] = {"scales", 5, 0, {sinter_f16, sinter_f32, sinter_bf16, sinter_e8m0, sinter_f8_e4m3}},
    [ZP] = {"zero points", 5, 0, {0, 8, 4, FLOAT_ZPS, OFFSETS}},
    [MASK] = {"mask", 1, 0, {ADDED}},
    [MODE] = {"mode", 6, 0, {MODES}},
    [QUERY] = {"query", 3, 0, {sinter_f32, sinter_f16, sinter_bf16}},
    [STORED] = {"stored", 3, 0, {TOKEN_ROWS, TRANSPOSED_K, SIDE_BY_SIDE}},
    [DYNAMIC] = {"dynamic", 1, 0, {0}},
    [Q_BATCH] = {"Q batches", 2, 0, {ONE, SEVERAL}},
    [K_BATCH] = {"K batches", 2, 0, {ONE, SEVERAL}},
    [V_BATCH] = {"V batches", 2, 0, {ONE, SEVERAL}},
    [MASK_BATCH] = {"mask batches", 2, 0, {ONE, SEVERAL}},
    [TILES] = {"tiles", 2, 0, {BOTH, CHOSEN}},
    [NUMBERS] = {"numbers", 1, 0, {USUAL}},
    [CELLS] = {"cells",
               9,
               0,
               {FZ_LENGTH, FZ_SLOTS, FZ_RUNS, FZ_ONE_CELL, FZ_ALL_CELLS, FZ_NONE, FZ_ANY, FZ_TERMS,
                FZ_NANS}},
};
static const property_t *properties = all_values;
static int64_t most_rows; /* for each head of K and V */

#if defined(__SANITIZE_ADDRESS__)
static double most_flops = 2e7; /* of a case */
#else
static double most_flops = 4e8;
#endif
static int full;

static int n_values(int p)
{
    return properties[p].n - (full ? 0 : properties[p].full);
}

/* ---- the covering design: one greedy row after the other ------------------------------------- */

typedef struct design {
    unsigned char met[N_PROPERTIES][MAX_VALUES][N_PROPERTIES][MAX_VALUES];
    long left, dropped;
    uint64_t state;
} design_t;

static int pick(design_t *d, int n)
{
    return random_below(&d->state, n);
}

static int has(const signed char *row, int p, int64_t value)
{
    return row[p] >= 0 && properties[p].values[(int)row[p]] == value;
}

/* Scores that are known to have fewer batches than the mask or than V make other patterns. */
static int batches_fit(const signed char *row)
{
    const int64_t mask = row[MASK] < 0 ? ADDED : properties[MASK].values[(int)row[MASK]];
    const int one = has(row, Q_BATCH, ONE) && has(row, K_BATCH, ONE);

    return !(one && has(row, MASK_BATCH, SEVERAL)) &&
           !(one && has(row, V_BATCH, SEVERAL) &&
             (has(row, MASK_BATCH, ONE) || (mask != ADDED && mask != DEAD_ROWS)));
}

/* Several matrices in tiles have columns of multiples of 16, and so has a long V. */
static int tiles_fit(const signed char *row)
{
    const int64_t t = row[T] < 0 ? 16 : properties[T].values[(int)row[T]],
                  d = row[D] < 0 ? 16 : properties[D].values[(int)row[D]],
                  dv = row[DV] < 0 ? 16 : properties[DV].values[(int)row[DV]];
    const int several =
        (row[HEADS] >= 0 && (properties[HEADS].values[(int)row[HEADS]] & 255) > 1) ||
        has(row, K_BATCH, SEVERAL) || has(row, V_BATCH, SEVERAL);

    return (t % 16 == 0 || !several) && ((dv > 0       ? dv
                                          : row[D] < 0 ? 16
                                                       : d) %
                                                 16 ==
                                             0 ||
                                         (!several && t <= 256));
}

/* The least value of a property, but for 0, which has a meaning of its own. */
static int64_t least(int p)
{
    int64_t v = INT64_MAX;

    for (int i = 0; i < n_values(p); i++) {
        const int64_t other = properties[p].values[i];
        v = other > 0 && other < v ? other : v;
    }
    return v;
}

/* The least work of any case that has the values of a row, in which some are still open (-1). */
static int is_feasible(const signed char *row)
{
    int64_t v[N_PROPERTIES];
    double head, batches = 1;

    for (int p = 0; p < N_PROPERTIES; p++) {
        v[p] = row[p] < 0 ? 0 : properties[p].values[(int)row[p]];
    }
    if ((properties == tiles_values || properties == odd_values || properties == cells_values) &&
        !tiles_fit(row)) {
        return 0;
    }
    /* What lists of cells leave out is no NaN, whatever the queries are. */
    if (has(row, NUMBERS, ODD_QUERIES) && has(row, MASK, DEAD_ROWS)) {
        return 0;
    }
    v[D] = row[D] < 0 ? least(D) : v[D];
    v[S] = row[S] < 0 ? least(S) : v[S];
    v[HEADS] = row[HEADS] < 0 ? least(HEADS) : v[HEADS];
    if (properties == latent_values && row[DV] >= 0 && row[D] >= 0 && v[DV] > v[D]) {
        return 0;
    }
    /* Codes that are all positive make scores so large that 8 bits of q leave nothing to check. */
    if (properties == latent_values && has(row, MODE, sinter_fpmath_mode_int8) && has(row, ZP, 0) &&
        (has(row, K_TYPE, sinter_u4) || has(row, K_TYPE, sinter_u8))) {
        return 0;
    }
    head = (double)(v[D] + (v[DV] ? v[DV] : row[DV] < 0 ? least(DV) : v[D]));
    if (row[HEADS] >= 0 && row[S] >= 0 && (v[HEADS] >> 8) / (v[HEADS] & 255) * v[S] > most_rows) {
        return 0;
    }
    for (int p = Q_BATCH; p <= MASK_BATCH; p++) {
        batches = has(row, p, SEVERAL) || has(row, p, OPEN_SEVERAL) ? BATCHES : batches;
    }
    return batches_fit(row) &&
           2.0 * batches * (double)(v[HEADS] >> 8) * (double)v[S] * (double)v[T] * head <=
               most_flops;
}

static int gain(const design_t *d, const signed char *row, int p, int value)
{
    int n = 0;

    for (int q = 0; q < N_PROPERTIES; q++) {
        n += q != p && row[q] >= 0 && !d->met[p][value][q][(int)row[q]];
    }
    return n;
}

/* False: the values that were taken first leave none for another property. */
static bool fill_row(design_t *d, signed char *row)
{
    int order[N_PROPERTIES];

    for (int p = 0; p < N_PROPERTIES; p++) {
        order[p] = p;
    }
    for (int i = N_PROPERTIES - 1; i > 0; i--) {
        int j = pick(d, i + 1), p = order[i];

        order[i] = order[j];
        order[j] = p;
    }
    for (int i = 0; i < N_PROPERTIES; i++) {
        int p = order[i], best = -1, most = -1, first = pick(d, n_values(p));

        for (int k = 0; row[p] < 0 && k < n_values(p); k++) {
            int value = (first + k) % n_values(p), won;

            row[p] = (signed char)value;
            won = is_feasible(row) ? gain(d, row, p, value) : -1;
            row[p] = -1;
            if (won > most) {
                most = won;
                best = value;
            }
        }
        if (best >= 0) {
            row[p] = (signed char)best;
        }
        if (row[p] < 0) {
            return false;
        }
    }
    return true;
}

static void mark(design_t *d, const signed char *row)
{
    for (int p = 0; p < N_PROPERTIES; p++) {
        for (int q = 0; q < N_PROPERTIES; q++) {
            if (p != q && !d->met[p][(int)row[p]][q][(int)row[q]]) {
                d->met[p][(int)row[p]][q][(int)row[q]] = 1;
                d->left--;
            }
        }
    }
}

/* The next two values that have not met; marks those that never can. */
static int next_pair(design_t *d, signed char *row)
{
    for (int p = 0; p < N_PROPERTIES; p++) {
        for (int a = 0; a < n_values(p); a++) {
            for (int q = p + 1; q < N_PROPERTIES; q++) {
                for (int b = 0; b < n_values(q); b++) {
                    if (d->met[p][a][q][b]) {
                        continue;
                    }
                    memset(row, -1, N_PROPERTIES);
                    row[p] = (signed char)a;
                    row[q] = (signed char)b;
                    if (is_feasible(row)) {
                        return 1;
                    }
                    d->met[p][a][q][b] = d->met[q][b][p][a] = 1;
                    d->left -= 2;
                    d->dropped++;
                }
            }
        }
    }
    return 0;
}

static int next_row(design_t *d, signed char *row)
{
    enum { TRIES = 12, MOST_TRIES = 1000 };
    signed char start[N_PROPERTIES], best[N_PROPERTIES] = {0};
    int most = -1;

    if (!next_pair(d, start)) {
        return 0;
    }
    for (int i = 0; i < TRIES || (most < 0 && i < MOST_TRIES); i++) {
        signed char tried[N_PROPERTIES];
        int won = 0;

        memcpy(tried, start, sizeof tried);
        if (!fill_row(d, tried)) {
            continue;
        }
        for (int p = 0; p < N_PROPERTIES; p++) {
            won += gain(d, tried, p, tried[p]);
        }
        if (won > most) {
            most = won;
            memcpy(best, tried, sizeof best);
        }
    }
    if (most < 0) {
        CHECK(false, "no case has the next two values");
    }
    memcpy(row, best, sizeof best);
    mark(d, row);
    return most >= 0;
}

static void open_design(design_t *d, uint64_t seed)
{
    long all = 0, same = 0;

    memset(d, 0, sizeof *d);
    d->state = seed;
    for (int p = 0; p < N_PROPERTIES; p++) {
        all += n_values(p);
        same += (long)n_values(p) * n_values(p);
    }
    d->left = all * all - same;
}

/* ---- a case as a graph ----------------------------------------------------------------------- */

typedef struct matrix_case {
    int64_t v[N_PROPERTIES];
    int64_t kv_heads, per_kv, t;                   /* t: T or a symbol */
    int64_t batch[N_PROPERTIES];                   /* of Q_BATCH and the others: or symbols */
    double past[FZ_VARIANTS], window[FZ_VARIANTS]; /* of masks that need them */
    int mask;                                      /* the tensor of an added one */
} matrix_case_t;

static int64_t gcd(int64_t a, int64_t b)
{
    return b ? gcd(b, a % b) : a;
}

/* Elements that share a scale along the head and along tokens. ragged: they need not divide the
 * dims, so that the last groups are short; sizes that are no powers of two never need to. */
static void group_sizes(const matrix_case_t *c, int64_t group, int ragged, int64_t head,
                        int64_t *along_head, int64_t *along_t)
{
    *along_head = group == TOKEN || group == TENSOR      ? head
                  : group == CHANNEL || group >= 256     ? 1
                  : ragged || (group & (group - 1)) != 0 ? group
                                                         : gcd(head, group);
    *along_t = 1;
    if (group == CHANNEL || group == TENSOR) {
        *along_t = 0; /* all */
    } else if (group >= 256 && c->v[T] > 0) {
        *along_t = ragged ? group >> 8 : fz_is_symbol(c->t) ? 1 : gcd(c->v[T], group >> 8);
    }
}

static int is_code(sinter_data_type_t type)
{
    return type != sinter_f32 && type != sinter_f16 && type != sinter_bf16;
}

static sinter_data_type_t zp_type(sinter_data_type_t code, int64_t bits)
{
    const int is_signed = gr_dtype(code)->digits != gr_dtype(code)->bits;

    if (gr_dtype(code)->class_ != GR_INT || bits == 0) {
        return sinter_data_type_undef;
    }
    return bits >= FLOAT_ZPS ? sinter_f16
           : bits == 32      ? sinter_s32
           : bits == 8       ? (is_signed ? sinter_s8 : sinter_u8)
           : is_signed       ? sinter_s4
                             : sinter_u4;
}

/* An input over rows of the head in memory, one for each token, whichever of the dims that is. Side
 * by side: a token has the rows of all heads. */
static int input(fz_t *f, const matrix_case_t *c, sinter_data_type_t type, const int64_t *dims,
                 int head_dim)
{
    const int x = fz_input(f, type, 5, dims);
    fz_tensor_t *t = &f->tensors[x];

    memset(t->repeat, 0, sizeof t->repeat);
    if (c->v[STORED] == ANY_LAYOUT) {
        return x;
    }
    fz_no_gaps(f, x);
    t->fixed = 1;
    if (c->v[STORED] == SIDE_BY_SIDE) {
        t->order[1] = 7 - head_dim;
        t->order[2] = 1;
        t->order[3] = 2;
        t->order[4] = head_dim;
        return x;
    }
    t->order[3] = 7 - head_dim;
    t->order[4] = head_dim;
    return x;
}

/* K or V in memory: codes, scales and zero points, or floats alone. */
typedef struct cache {
    int in[3], n;
    int head_dim; /* 3 or 4; the other one counts tokens */
    int64_t along_head, along_t;
} cache_t;

static cache_t cache(fz_t *f, const matrix_case_t *c, int64_t batch, sinter_data_type_t type,
                     int64_t group, int64_t head, int head_dim)
{
    const int token_dim = 7 - head_dim;
    const sinter_data_type_t zp = zp_type(type, c->v[ZP]);
    int64_t dims[5] = {batch, c->kv_heads, 1}, sides[5] = {batch, c->kv_heads, 1};
    cache_t x = {.n = 1, .head_dim = head_dim};

    dims[head_dim] = head;
    dims[token_dim] = c->t;
    x.in[0] = input(f, c, type, dims, head_dim);
    if (!is_code(type)) {
        return x;
    }
    group_sizes(c, group, fz_chance(f, 50), head, &x.along_head, &x.along_t);
    sides[head_dim] = fz_divide(head, x.along_head);
    sides[token_dim] = x.along_t ? fz_divide(c->t, x.along_t) : 1;
    x.in[x.n++] = input(f, c, (sinter_data_type_t)c->v[SCALE], sides, head_dim);
    if (zp) {
        x.in[x.n++] = input(f, c, zp, sides, head_dim);
    }
    if (c->v[NUMBERS] == BRINK) {
        fz_perhaps_at_brink(f, x.in[0], x.in[1], zp ? x.in[2] : -1, zp && c->v[ZP] == OFFSETS, 100);
    }
    return x;
}

/* A cache as floats. */
static int dequantised(fz_t *f, const matrix_case_t *c, const cache_t *x)
{
    const fz_tensor_t codes = f->tensors[x->in[0]];
    int64_t shape[5] = {1, 1, 1};

    if (x->n == 1) {
        return x->in[0];
    }
    const int y = fz_op(f, sinter_op_dynamic_dequantize, sinter_f32, 5, codes.dims, x->n, x->in);
    fz_str(f, sinter_op_attr_qtype, "per_group");
    if (x->n > 2 && c->v[ZP] == OFFSETS) {
        fz_str(f, sinter_op_attr_zps_kind, "offsets");
    }
    if (x->along_t) { /* an unknown dim has no group shape; the shape of the scales is enough */
        shape[x->head_dim] = x->along_head;
        shape[7 - x->head_dim] = x->along_t;
        fz_s64(f, sinter_op_attr_group_shape, 5, shape);
    }
    return y;
}

/* n elements from `start` on of each token, whose elements are the last dim. */
static int part(fz_t *f, int x, int64_t start, int64_t n)
{
    const fz_tensor_t t = f->tensors[x];
    const int64_t end = start + n, last = fz_chance(f, 50) ? 4 : -1;
    int64_t dims[FZ_MAX_RANK];

    memcpy(dims, t.dims, sizeof dims);
    dims[4] = n;
    x = FZ_OP(f, slice, t.type, 5, dims, x);
    fz_s64(f, sinter_op_attr_starts, 1, &start);
    fz_s64(f, sinter_op_attr_ends, 1, &end);
    fz_s64(f, sinter_op_attr_axes, 1, &last);
    return x;
}

/* The values of latent attention: mostly the first elements of the keys k, as stored in `x`. */
static int part_of_keys(fz_t *f, const matrix_case_t *c, const cache_t *x, int k)
{
    const int64_t n = c->v[DV];
    cache_t of = *x;

    if (c->v[STORED] == PART_OF_K || x->n == 1) {
        return part(f, k, fz_chance(f, 75) ? 0 : c->v[D] - n, n);
    }
    of.in[0] = part(f, x->in[0], 0, n);
    for (int i = 1; i < x->n; i++) {
        if (f->tensors[x->in[i]].dims[4] > 1) {
            of.in[i] = part(f, x->in[i], 0, fz_divide(n, x->along_head));
        }
    }
    of.along_head = x->along_head < n ? x->along_head : n;
    return dequantised(f, c, &of);
}

static int scalar(fz_t *f, sinter_data_type_t type, const double *values)
{
    const int x = fz_scalar(f, type, 5);
    f->tensors[x].value = values;
    return x;
}

static int indices(fz_t *f, int x, int64_t axis)
{
    const int index = fz_unary(f, sinter_op_gen_index, sinter_s32, x);
    fz_s64(f, sinter_op_attr_axis, 1, &axis);
    return index;
}

static int keep_where(fz_t *f, int a, int b, int x)
{
    static const double lowest[FZ_VARIANTS] = {-INFINITY, -INFINITY, -INFINITY};
    const fz_tensor_t t = f->tensors[x];
    const int keep = fz_binary(f, sinter_op_greater_equal, sinter_boolean, a, b);

    return FZ_OP(f, select, sinter_f32, t.ndims, t.dims, keep, x, scalar(f, sinter_f32, lowest));
}

static int masked(fz_t *f, matrix_case_t *c, int x)
{
    const int64_t dims[5] = {c->batch[MASK_BATCH], 1, 1, c->v[S], c->t};
    int row, column;

    if (c->v[MASK] == NO_MASK) {
        return x;
    }
    if (c->v[MASK] == ADDED || c->v[MASK] == DEAD_ROWS) {
        const int mask = fz_input(f, (sinter_data_type_t)c->v[QUERY], 5, dims);
        f->tensors[mask].dead_rows = c->v[MASK] == DEAD_ROWS ? 5 : 0;
        f->tensors[mask].cells = (fz_cells_t)c->v[CELLS];
        if (c->v[CELLS] != FZ_NO_CELLS) { /* lists of cells are made of contiguous columns */
            fz_no_gaps(f, mask);
            memset(f->tensors[mask].repeat, 0, sizeof f->tensors[mask].repeat);
            for (int d = 0; d < 5; d++) {
                f->tensors[mask].order[d] = d;
            }
        }
        c->mask = mask;
        return fz_binary(f, sinter_op_add, sinter_f32, x, mask);
    }
    row = indices(f, x, 3);
    column = indices(f, x, 4);
    if (c->v[MASK] != CAUSAL) {
        row = fz_binary(f, sinter_op_add, sinter_s32, row, scalar(f, sinter_s32, c->past));
    }
    if (c->v[MASK] == WINDOW) {
        x = keep_where(
            f, column,
            fz_binary(f, sinter_op_subtract, sinter_s32, row, scalar(f, sinter_s32, c->window)), x);
    }
    return keep_where(f, row, column, x);
}

/* Tokens of a cache that the mask leaves to no row become odd numbers, where there surely are lists
 * of cells. */
static void hide(fz_t *f, const matrix_case_t *c, const cache_t *x)
{
    for (int i = 0; i < x->n && c->v[CELLS] != FZ_NO_CELLS && c->v[TILES] == BOTH; i++) {
        f->tensors[x->in[i]].hidden_by = c->mask + 1;
        f->tensors[x->in[i]].token_dim = 7 - x->head_dim;
    }
}

static int64_t batches(fz_t *f, int64_t value)
{
    const int64_t n = value == SEVERAL || value == OPEN_SEVERAL ? BATCHES : 1;

    return value < OPEN_ONE ? n : fz_symbol(f, n, BATCHES + 1 - n, FZ_ONE_OF(f, 1, BATCHES));
}

static void settle(fz_t *f, matrix_case_t *c)
{
    static const int64_t others[][2] = {{1, 65}, {33, 0}, {127, 32}};

    c->kv_heads = c->v[HEADS] & 255;
    c->per_kv = (c->v[HEADS] >> 8) / c->kv_heads;
    c->v[DV] = c->v[DV] ? c->v[DV] : c->v[D];
    c->t = c->v[T];
    f->mode = (sinter_fpmath_mode_t)c->v[MODE];
    f->apply_to_int = 1;
    f->fused_only = 1;
    if (c->v[DYNAMIC]) {
        const int64_t *other = others[fz_pick(f, 3)];
        c->t = fz_symbol(f, c->v[T], other[0], other[1]);
    }
    for (int p = Q_BATCH; p <= MASK_BATCH; p++) {
        c->batch[p] = batches(f, c->v[p]);
    }
    for (int i = 0; i < FZ_VARIANTS; i++) {
        c->past[i] = c->v[MASK] == LATE
                         ? -3
                         : (double)(fz_size(f, c->t, i) -
                                    /* the mask leaves the first rows nothing, and the last row
                                     * everything */
                                    c->v[S]);
        c->window[i] = 40;
    }
}

static void build(fz_t *f, matrix_case_t *c)
{
    const sinter_data_type_t query = (sinter_data_type_t)c->v[QUERY];
    const int64_t last = -1;
    const bool latent = c->v[STORED] >= PART_OF_K;
    int q, k, v, x;

    settle(f, c);
    const int64_t q_dims[5] = {c->batch[Q_BATCH], c->kv_heads, c->per_kv, c->v[S], c->v[D]},
                  scores[5] = {fz_joined(f, c->batch[Q_BATCH], c->batch[K_BATCH]), c->kv_heads,
                               c->per_kv, c->v[S], c->t};
    q = fz_input(f, query, 5, q_dims);
    f->tensors[q].vast = c->v[NUMBERS] == VAST_QUERIES;
    f->tensors[q].nonfinite = c->v[NUMBERS] == ODD_QUERIES ? 1 : 0;
    const bool token_rows = c->v[STORED] == TRANSPOSED_K || latent;
    const cache_t keys = cache(f, c, c->batch[K_BATCH], (sinter_data_type_t)c->v[K_TYPE],
                               c->v[K_GROUP], c->v[D], token_rows ? 4 : 3);
    k = dequantised(f, c, &keys);
    if (c->v[TILES] == CHOSEN || (c->v[TILES] & ONLY_K) != 0) {
        fz_cache_in_tiles(f, k, token_rows, 0, c->v[TILES] == CHOSEN);
    }
    v = latent && fz_chance(f, 50) ? part_of_keys(f, c, &keys, k) : -1;
    if (f->tensors[q].type != f->tensors[k].type) { /* MatMul wants one type */
        q = query == sinter_f32 ? q : fz_cast(f, sinter_f32, q);
        k = f->tensors[k].type == sinter_f32 ? k : fz_cast(f, sinter_f32, k);
    }
    x = FZ_OP(f, matmul, sinter_f32, 5, scores, q, k);
    if (token_rows) {
        fz_bool(f, sinter_op_attr_transpose_b, 1);
    }
    x = masked(f, c, fz_binary(f, sinter_op_multiply, sinter_f32, x, fz_scalar(f, sinter_f32, 5)));
    hide(f, c, &keys);
    x = fz_unary(f, sinter_op_softmax, sinter_f32, x);
    fz_s64(f, sinter_op_attr_axis, 1, &last);
    fz_str(f, sinter_op_attr_mode, "inf_as_zero");
    if (v < 0 && latent) { /* perhaps with a cast above it */
        v = part_of_keys(f, c, &keys, k);
    } else if (v < 0) {
        const cache_t values = cache(f, c, c->batch[V_BATCH], (sinter_data_type_t)c->v[V_TYPE],
                                     c->v[V_GROUP], c->v[DV], 4);
        v = dequantised(f, c, &values);
        hide(f, c, &values);
        if (c->v[TILES] == CHOSEN || (c->v[TILES] & ONLY_V) != 0) {
            fz_cache_in_tiles(f, v, 0, 1, c->v[TILES] == CHOSEN);
        }
    }
    if (f->tensors[v].type != sinter_f32) {
        x = fz_cast(f, f->tensors[v].type, x);
    }
    const int64_t out[5] = {
        fz_joined(f, f->tensors[x].dims[0], c->batch[latent ? K_BATCH : V_BATCH]), c->kv_heads,
        c->per_kv, c->v[S], c->v[DV]};
    x = FZ_OP(f, matmul, f->tensors[v].type, 5, out, x, v);
    if (f->tensors[x].type != query) {
        fz_cast(f, query, x);
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static void print_case(const signed char *row, int number)
{
    printf("case %d:", number);
    for (int p = 0; p < N_PROPERTIES; p++) {
        const int64_t value = properties[p].values[(int)row[p]];
        const int is_type = p == K_TYPE || p == V_TYPE || p == SCALE || p == QUERY;

        if (is_type) {
            printf(" %s %s", properties[p].name, sinter_data_type_name((sinter_data_type_t)value));
        } else if (p == MODE) {
            printf(" %s %s", properties[p].name,
                   sinter_fpmath_mode_name((sinter_fpmath_mode_t)value));
        } else if (p == HEADS) {
            printf(" %s %d/%d", properties[p].name, (int)(value >> 8), (int)(value & 255));
        } else {
            printf(" %s %lld", properties[p].name, (long long)value);
        }
    }
    printf("\n");
}

static fz_outcome_t run_case(const signed char *row, uint64_t seed, char *text, size_t size)
{
    matrix_case_t c = {{0}, 0, 0, 0, {0}, {0}, {0}, 0};
    fz_outcome_t outcome;
    fz_t f;

    fz_init(&f, seed);
    f.generator = "matrix";
    for (int p = 0; p < N_PROPERTIES; p++) {
        c.v[p] = properties[p].values[(int)row[p]];
    }
    build(&f, &c);
    outcome = fz_run(&f, text, size);
    if (outcome == FZ_FAILED) {
        fz_print(&f);
    }
    fz_free(&f);
    return outcome;
}

/* Cases are numbered through all designs. */
typedef struct totals {
    int cases;
    long only; /* 0: all */
    long step; /* 1: all */
    long from;
} totals_t;

static void run_design(const property_t *values, int64_t rows, uint64_t seed, totals_t *n)
{
    static design_t design;
    signed char row[N_PROPERTIES];

    properties = values;
    most_rows = rows;
    open_design(&design, seed);
    while (next_row(&design, row)) {
        char text[1024] = "";
        const long before = fz_tally.partitions;
        fz_outcome_t outcome;

        n->cases++;
        if ((n->only && n->only != n->cases) || n->cases % n->step != 0 || n->cases < n->from) {
            continue;
        }
        outcome = run_case(row, seed * 1000 + (uint64_t)n->cases, text, sizeof text);
        const bool ok = outcome == FZ_PASSED && fz_tally.partitions == before + 1;
        CHECK(ok, "case %d", n->cases);
        if (!ok || n->only) {
            printf("%s %s %ld partitions, ",
                   outcome == FZ_PASSED   ? "passed"
                   : outcome == FZ_FAILED ? "FAILED"
                                          : "UNSUPPORTED",
                   text, fz_tally.partitions - before);
            print_case(row, n->cases);
        }
        fflush(stdout);
    }
    printf("every pair of values but %ld that do not fit together\n", design.dropped);
    if (!n->only) {
        CHECK(design.left == 0, "%ld pairs of values are in no case", (long)design.left);
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    wait_passively(argv);
    const char *what = getenv("SINTER_MATRIX"), *only = getenv("SINTER_MATRIX_ONLY"),
               *step = getenv("SINTER_MATRIX_STEP"), *from = getenv("SINTER_MATRIX_FROM"),
               *seed_text = getenv("SINTER_RANDOM_SEED");
    const uint64_t seed = seed_text ? strtoull(seed_text, NULL, 0) : 1;
    totals_t n = {.only = only ? strtol(only, NULL, 0) : 0,
                  .from = from ? strtol(from, NULL, 0) : 0,
                  .step = step && strtol(step, NULL, 0) > 1 ? strtol(step, NULL, 0) : 1};

    full = what && strcmp(what, "full") == 0;
    most_flops = full ? 3e10 : most_flops;
    run_design(all_values, INT64_MAX, seed, &n);
    run_design(decode_values, 8, seed, &n);
    run_design(latent_values, INT64_MAX, seed, &n);
    run_design(tiles_values, INT64_MAX, seed, &n);
    run_design(cells_values, INT64_MAX, seed, &n);
    fz_check_loose(0);
    run_design(odd_values, INT64_MAX, seed, &n);
    printf("%d cases\n", n.cases);
    return check_finish();
}
