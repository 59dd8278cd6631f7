/* Functions over rows in the vectors of simd_<isa>.h, which eltwise_<isa>.c includes first. */
#ifndef SINTER_SRC_ELTWISE_ROWS_H
#define SINTER_SRC_ELTWISE_ROWS_H

enum { LINE = 64, LINE_LANES = LINE / sizeof(float), LINE_VECTORS = LINE_LANES / LANES };

#define EACH_OF_LINE \
    UNROLL           \
    for (int k = 0; k < LINE_VECTORS; k++)

/* Floats from dst to the next cache line, at most n; n where dst is not aligned to floats: then
 * nothing can go past the caches. */
static inline int before_line(const void *dst, int n)
{
    const size_t aside = -(uintptr_t)dst % LINE / sizeof(float);
    return (uintptr_t)dst % sizeof(float) != 0 || (size_t)n < aside ? n : (int)aside;
}

static void scale_past(unsigned char *dst, const float *src, int n, float f)
{
    const vf by = vf_set1(f);
    const int head = before_line(dst, n);
    int i = 0;
    for (; i < head; i += LANES) {
        vf_store_n(dst + (size_t)i * sizeof(float), vf_mul(vf_load_n(src + i, head - i), by),
                   head - i);
    }
    for (i = head; i + LINE_LANES <= n; i += LINE_LANES) {
        EACH_OF_LINE
        {
            vf_stream(dst + (size_t)(i + k * LANES) * sizeof(float),
                      vf_mul(vf_load(src + i + k * LANES), by));
        }
    }
    for (; i < n; i += LANES) {
        vf_store_n(dst + (size_t)i * sizeof(float), vf_mul(vf_load_n(src + i, n - i), by), n - i);
    }
}

/* ---- sums of a row --------------------------------------------------------------------------- */

/* A sum in double of which SUMS partial sums of few terms are made in f32 at a time. */
typedef struct total {
    vd half[2];
} total_t;

enum { SUMS = 4 };

static inline __attribute__((always_inline)) void add_up(total_t *to, const vf *sums)
{
    const vf all = vf_add(vf_add(sums[0], sums[1]), vf_add(sums[2], sums[3]));
    to->half[0] += vd_of(all, 0);
    to->half[1] += vd_of(all, 1);
}

static inline double total_of(const total_t *t)
{
    const vd both = t->half[0] + t->half[1];
    double lane[LANES / 2], sum = 0;
    memcpy(lane, &both, sizeof lane);
    for (int k = 0; k < LANES / 2; k++) {
        sum += lane[k];
    }
    return sum;
}

/* A lane of a block adds up to BLOCK * SUMS terms in f32, each of which is part of at most 12 sums
 * that are rounded. Several sums at a time: one would wait for the one before it. */
static inline __attribute__((always_inline)) double moments(const float *x, int n, float shift,
                                                            bool sums, double *sum)
{
    enum { BLOCK = 8 };
    const vf by = vf_set1(shift);
    total_t all[2] = {{{vd_set1(0), vd_set1(0)}}, {{vd_set1(0), vd_set1(0)}}};
    vf first[SUMS], second[SUMS];
    int i = 0;
    while (i < n) {
        UNROLL
        for (int k = 0; k < SUMS; k++) {
            first[k] = second[k] = vf_set1(0);
        }
        const int most = i + BLOCK * SUMS * LANES, end = most < n ? most : n;
        for (; i + SUMS * LANES <= end; i += SUMS * LANES) {
            UNROLL
            for (int k = 0; k < SUMS; k++) {
                const vf v = vf_load(x + i + k * LANES), d = sums ? vf_sub(v, by) : v;
                first[k] = sums ? vf_add(first[k], d) : first[k];
                second[k] = vf_fma(d, d, second[k]);
            }
        }
        for (; i < end; i += LANES) {
            const vf d = vf_first(vf_sub(vf_load_n(x + i, end - i), by), end - i);
            first[0] = vf_add(first[0], d);
            second[0] = vf_fma(d, d, second[0]);
        }
        if (sums) {
            add_up(&all[0], first);
        }
        add_up(&all[1], second);
    }
    if (sums) {
        *sum = total_of(&all[0]);
    }
    return total_of(&all[1]);
}

static double row_moments(const float *x, int n, float shift, double *sum)
{
    return moments(x, n, shift, true, sum);
}

static double row_squares(const float *x, int n)
{
    return moments(x, n, 0, false, NULL);
}

/* ---- norms ----------------------------------------------------------------------------------- */

typedef struct normed {
    vf shift, factor, offset, gamma, beta;
    ahead_t ahead;
} normed_t;

/* gamma and beta round as a chain behind the norm would, which has the same bits. */
static inline __attribute__((always_inline)) vf normed(const normed_t *c, vf x, vf gamma, vf beta)
{
    return vf_add(vf_mul(vf_fma(vf_sub(x, c->shift), c->factor, c->offset), gamma), beta);
}

/* Elements begin..end - 1, in parts of a vector. */
static inline __attribute__((always_inline)) void norm_part(float *dst, const float *src, int begin,
                                                            int end, const normed_t *c,
                                                            const float *gamma, const float *beta)
{
    for (int i = begin; i < end; i += LANES) {
        const int n = end - i;
        vf_store_n(dst + i,
                   normed(c, vf_load_n(src + i, n), gamma ? vf_load_n(gamma + i, n) : c->gamma,
                          beta ? vf_load_n(beta + i, n) : c->beta),
                   n);
    }
}

/* gamma, beta: NULL where there is one for all, which c has. */
static inline __attribute__((always_inline)) void norm_lines(float *dst, const float *src, int n,
                                                             const normed_t *c, const float *gamma,
                                                             const float *beta, bool past)
{
    int i = past ? before_line(dst, n) : 0;
    norm_part(dst, src, 0, i, c, gamma, beta);
    for (; i + LINE_LANES <= n; i += LINE_LANES) {
        if (c->ahead.at != NULL) {
            prefetch(c->ahead.at + (int64_t)i * c->ahead.step);
        }
        EACH_OF_LINE
        {
            const int at = i + k * LANES;
            const vf y = normed(c, vf_load(src + at), gamma ? vf_load(gamma + at) : c->gamma,
                                beta ? vf_load(beta + at) : c->beta);
            if (past) {
                vf_stream(dst + at, y);
            } else {
                vf_store(dst + at, y);
            }
        }
    }
    norm_part(dst, src, i, n, c, gamma, beta);
}

static inline __attribute__((always_inline)) void norm_by(float *dst, const float *src, int n,
                                                          const eltwise_norm_t *how, bool past)
{
    const float *gamma = how->each ? how->gamma : NULL, *beta = how->each ? how->beta : NULL;
    const normed_t c = {vf_set1(how->shift),
                        vf_set1(how->factor),
                        vf_set1(how->offset),
                        vf_set1(how->gamma != NULL ? *how->gamma : 1),
                        vf_set1(how->beta != NULL ? *how->beta : -0.0f),
                        how->ahead};
    if (gamma == NULL && beta == NULL) {
        norm_lines(dst, src, n, &c, NULL, NULL, past);
    } else if (beta == NULL) {
        norm_lines(dst, src, n, &c, gamma, NULL, past);
    } else if (gamma == NULL) {
        norm_lines(dst, src, n, &c, NULL, beta, past);
    } else {
        norm_lines(dst, src, n, &c, gamma, beta, past);
    }
}

static void norm_row(float *dst, const float *src, int n, const eltwise_norm_t *how)
{
    if (how->nontemporal) {
        norm_by(dst, src, n, how, true);
    } else {
        norm_by(dst, src, n, how, false);
    }
}

/* ---- the best of a short row ----------------------------------------------------------------- */

/* A number that at least k elements are not below, and that not many more reach: the largest of
 * each 16th element are TOP_MOST numbers, of which it is the k-th. */
static inline int32_t bar_of(const int32_t *key, int n, int k)
{
    enum { EIGHT = 8 };
    __m256i most[2] = {load_32_bytes(key), load_32_bytes(key + EIGHT)},
            above[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (int i = TOP_MOST; i < n; i += TOP_MOST) {
        most[0] = _mm256_max_epi32(most[0], load_32_bytes(key + i));
        most[1] = _mm256_max_epi32(most[1], load_32_bytes(key + i + EIGHT));
    }
    UNROLL
    for (int j = 0; j < TOP_MOST; j++) {
        const __m256i one =
            _mm256_permutevar8x32_epi32(most[j / EIGHT], _mm256_set1_epi32(j % EIGHT));
        above[0] = _mm256_sub_epi32(above[0], _mm256_cmpgt_epi32(one, most[0]));
        above[1] = _mm256_sub_epi32(above[1], _mm256_cmpgt_epi32(one, most[1]));
    }
    const __m256i places = _mm256_set1_epi32(k), none = _mm256_set1_epi32(INT32_MAX);
    for (int h = 0; h < 2; h++) {
        most[h] = _mm256_blendv_epi8(none, most[h], _mm256_cmpgt_epi32(places, above[h]));
    }
    int32_t lane[EIGHT], bar = INT32_MAX;
    _mm256_storeu_si256((__m256i *)(void *)lane, _mm256_min_epi32(most[0], most[1]));
    for (int l = 0; l < EIGHT; l++) {
        bar = lane[l] < bar ? lane[l] : bar;
    }
    return bar;
}

/* How many of `quads` times 4 numbers are larger than one. */
static inline int count_above(const int64_t *x, int quads, int64_t one)
{
    const __m256i than = _mm256_set1_epi64x(one);
    int above = 0;
    for (int q = 0; q < quads; q++) {
        const __m256i larger = _mm256_cmpgt_epi64(load_32_bytes(x + 4 * q), than);
        above += __builtin_popcount((unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(larger)));
    }
    return above;
}

/* Elements that reach the bar are gathered, and each goes to the place that the number of larger
 * ones gives. */
static bool top_row(int64_t *best, int32_t *key, int n, int k)
{
    enum { REACH = 48, EIGHT = 8, WORD = 64, QUAD = 4 };
    int64_t reach[REACH + QUAD];
    int found = 0;
    for (int i = n; i < TOP_ROW && i < n + TOP_MOST; i++) {
        key[i] = INT32_MIN;
    }
    const __m256i bar = _mm256_set1_epi32(bar_of(key, n, k));
    for (int i = 0; i < n; i += WORD) {
        uint64_t bits = 0;
        for (int b = 0; b < WORD && i + b < n; b += EIGHT) {
            const __m256i below = _mm256_cmpgt_epi32(bar, load_32_bytes(key + i + b));
            const unsigned mask = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(below));
            bits |= (uint64_t)(~mask & 0xFF) << b;
        }
        bits &= n - i < WORD ? (UINT64_C(1) << (n - i)) - 1 : UINT64_MAX;
        if (found + __builtin_popcountll(bits) > REACH) {
            return false;
        }
        for (; bits != 0; bits &= bits - 1) {
            const int at = i + __builtin_ctzll(bits);
            reach[found++] = top_rank(key[at], at);
        }
    }
    for (int i = 0; i < QUAD; i++) {
        reach[found + i] = INT64_MIN;
    }
    for (int i = 0; i < found; i++) {
        const int above = count_above(reach, (found + QUAD - 1) / QUAD, reach[i]);
        if (above < k) {
            best[above] = reach[i];
        }
    }
    return true;
}

#endif
