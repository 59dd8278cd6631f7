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

static inline double vf_sum_in_double(vf x)
{
    double part[LANES], sum = 0;
    float lane[LANES];
    vf_store(lane, x);
    for (int k = 0; k < LANES; k++) {
        part[k] = lane[k];
    }
    for (int k = 0; k < LANES; k++) {
        sum += part[k];
    }
    return sum;
}

/* Four sums at a time: one would wait for the one before it. */
static inline __attribute__((always_inline)) double moments(const float *x, int n, float shift,
                                                            bool sums, double *sum)
{
    enum { SUMS = 4 };
    const vf by = vf_set1(shift);
    vf first[SUMS], second[SUMS];
    UNROLL
    for (int k = 0; k < SUMS; k++) {
        first[k] = second[k] = vf_set1(0);
    }
    int i = 0;
    for (; i + SUMS * LANES <= n; i += SUMS * LANES) {
        UNROLL
        for (int k = 0; k < SUMS; k++) {
            const vf d = sums ? vf_sub(vf_load(x + i + k * LANES), by) : vf_load(x + i + k * LANES);
            first[k] = sums ? vf_add(first[k], d) : first[k];
            second[k] = vf_fma(d, d, second[k]);
        }
    }
    for (; i < n; i += LANES) {
        const vf d = vf_first(vf_sub(vf_load_n(x + i, n - i), by), n - i);
        first[0] = vf_add(first[0], d);
        second[0] = vf_fma(d, d, second[0]);
    }
    if (sums) {
        *sum = vf_sum_in_double(vf_add(vf_add(first[0], first[1]), vf_add(first[2], first[3])));
    }
    return vf_sum_in_double(vf_add(vf_add(second[0], second[1]), vf_add(second[2], second[3])));
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
    vf shift, factor, gamma, beta;
    ahead_t ahead;
} normed_t;

static inline __attribute__((always_inline)) vf normed(const normed_t *c, vf x, vf gamma, vf beta)
{
    return vf_fma(vf_mul(vf_sub(x, c->shift), c->factor), gamma, beta);
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
    const normed_t c = {vf_set1(how->shift), vf_set1(how->factor),
                        vf_set1(how->gamma != NULL ? *how->gamma : 1),
                        vf_set1(how->beta != NULL ? *how->beta : -0.0f), how->ahead};
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
    if (how->past) {
        norm_by(dst, src, n, how, true);
    } else {
        norm_by(dst, src, n, how, false);
    }
}

#endif
