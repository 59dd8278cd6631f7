/* MatMul in double, and the error that f32 or reduced-precision arithmetic may make in it.
 *
 * With u the rounding unit, for each output element, a a row of A, b a column of B, K terms:
 *   accumulation   min(K, 2 sqrt(P) + 2) u |a|_2 |b|_2: rounding errors of a long sum behave
 *                  like a random walk, but a term that is added again to a sum of the same
 *                  exponent is rounded as it was before. So P counts the pairs of equal terms,
 *                  each with itself, too: K where all differ, K^2 where all are equal. It is
 *                  estimated as if a and b were independent. And K 2^-150 for products below
 *                  the normal numbers
 *   operands       an operand element off by e_k (roundings to the mode's precision, bounds of
 *                  earlier ops) adds sum e_k b_k.
 *                  Certainly no more than |e|_2 |b|_2 (Cauchy-Schwarz).
 *                  Independent errors stay below LAMBDA sqrt(sum e_k^2 b_k^2) <= LAMBDA |e|_4
 *                  |b|_4 (Hoeffding: beyond it with probability
 *                  2 exp(-LAMBDA^2 / 2) if all were extreme; 7 standard deviations of uniform
 *                  ones). Bounds that come from such a sum
 *                  already have LAMBDA in them (`walked`) and are not multiplied again. What all
 *                  errors of a row have in common is
 *                  relative to the result, (|e|_2 / |a|_2) |c|.
 *                  The smaller of the two bounds counts.
 *   limbs          where one operand B has small codes, b_kn = s_kn c_kn with integers c_kn
 *                  (code - zero point), every mode below strict lets
 *                  a kernel multiply the codes exactly with integers that stand for the other
 *                  operand: two int8 limbs in tf32, f16, bf16
 *                  and any, one in int8. Each element of A may then be off by LIMB times the
 *                  largest magnitude of its group:
 *                    - those of the row that share a scale of B along k (the query and K: groups
 *                      along D), or
 *                    - where every element along k has a scale of its own (K per channel, V per
 *                      token), and for probabilities with any
 *                      scales along k: the whole row, with the scale folded in before. What is
 *                      split is a_mk s_kn, and off by
 *                      LIMB max_k |a_mk s_kn|; the products c_kn come after. A kernel that takes
 *                      the maximum of a tile of k only, or
 *                      keeps the scale out, errs less. Columns n may share limbs only where they
 *                      share all scales s_kn.
 *                  This comes on top of the roundings of the mode. Sums of the integer products
 *                  are exact or in f32.
 * Where everything is a multiple of a power of two and no partial sum can leave 24 bits, strict
 * arithmetic is exact, as is the demand. */
#include <float.h>

#include "internal.h"

#define LAMBDA 4.0
/* A signed limb of 8 bits has 127 steps on either side, two have 2^15: twice the largest
 * rounding error of each. */
#define ONE_LIMB 0x1p-7
#define TWO_LIMBS 0x1p-15

typedef struct shape {
    int batch_dims;
    int64_t batch[SINTER_MAX_NDIMS], m, n, k, batches;
} shape_t;

/* 2- and 4-norms of a row's finite values, of their bounds, and of what the mode may do to them. */
typedef struct norms {
    double v2, v4, b2, b4, m2, m4;
    double same;   /* the share of pairs (i, j) of values, i = j included, of equal magnitude */
    bool unsure;   /* of the sign of some value, so that its product with an infinity is open */
    bool has_nan;  /* a certain one, which makes every sum with this row a certain NaN */
    double c1, c2; /* 1- and 2-norm of the codes, where scales are folded into the other operand */
} norms_t;

/* Operand as batches of matrices (row: m or n, col: k), with the batch strides that broadcasting
 * leaves. */
typedef struct operand {
    const orc_value_t *t;
    int k_dim, row_dim; /* of the tensor; row_dim -1: none */
    int64_t rows, row, col, own_batches;
    int64_t batch_stride[SINTER_MAX_NDIMS]; /* in matrices of the operand, 0 where broadcast */
    int64_t group; /* neighbours along k that share a quantisation group of the other operand */
    double mode_relative, mode_absolute, mode_group;
    struct norms *norms; /* for each row of each own matrix */
} operand_t;

typedef struct precision {
    double a_relative, b_relative, absolute;
    double a_limbs, b_limbs; /* relative to the largest of a group; 0: no limbs */
    double flush;            /* products and sums below this may become zero */
    bool strict;
} precision_t;

/* What the fpmath mode allows to do to the operands. Integer operands are under the mode only
 * with apply_to_int. */
static precision_t precision_of(const orc_ctx_t *c)
{
    bool a_int = c->in[0]->from_int, b_int = c->in[1]->from_int;
    bool a_codes = c->in[0]->small_codes, b_codes = c->in[1]->small_codes;
    precision_t p = {0};
    double relative = 0, limbs = TWO_LIMBS;

    if ((a_int || b_int) && !c->apply_to_int) {
        p.strict = true;
        return p;
    }
    switch (c->mode) {
    case sinter_fpmath_mode_tf32:
        relative = 0x1p-11;
        break;
    case sinter_fpmath_mode_f16:
        relative = 0x1p-11;
        p.absolute = 0x1p-25; /* half the smallest f16 subnormal */
        break;
    case sinter_fpmath_mode_bf16:
    case sinter_fpmath_mode_any:
        relative = 0x1p-8;
        p.absolute = p.flush = 0x1p-126; /* the processors' bf16 instructions know no subnormals */
        break;
    case sinter_fpmath_mode_int8:
        limbs = ONE_LIMB;
        break;
    case sinter_fpmath_mode_strict:
        limbs = 0;
        break;
    }
    p.a_relative = p.b_relative = relative;
    p.a_limbs = b_codes && !a_codes ? limbs : 0; /* the side that has no codes, if the other has */
    p.b_limbs = a_codes && !b_codes ? limbs : 0;
    p.strict = relative == 0 && p.a_limbs == 0 && p.b_limbs == 0;
    return p;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static int matmul_shape(orc_ctx_t *c, shape_t *s, operand_t *a, operand_t *b)
{
    const sinter_logical_tensor_t *la = &c->in[0]->lt, *lb = &c->in[1]->lt;
    bool ta = orc_attr_bool(c, sinter_op_attr_transpose_a, false) && la->ndims > 1;
    bool tb = orc_attr_bool(c, sinter_op_attr_transpose_b, false) && lb->ndims > 1;
    int na = la->ndims > 1 ? la->ndims - 2 : 0, nb = lb->ndims > 1 ? lb->ndims - 2 : 0, ndims;
    int64_t kb, out[SINTER_MAX_NDIMS];

    if (la->ndims < 1 || lb->ndims < 1) {
        return orc_fail(c, "an operand is a scalar");
    }
    s->m = la->ndims == 1 ? 1 : la->dims[na + (ta ? 1 : 0)];
    s->k = la->ndims == 1 ? la->dims[0] : la->dims[na + (ta ? 0 : 1)];
    kb = lb->ndims == 1 ? lb->dims[0] : lb->dims[nb + (tb ? 1 : 0)];
    s->n = lb->ndims == 1 ? 1 : lb->dims[nb + (tb ? 0 : 1)];
    if (s->k != kb) {
        return orc_fail(c, "reduction lengths %lld and %lld differ", (long long)s->k,
                        (long long)kb);
    }
    s->batch_dims = na > nb ? na : nb;
    for (int d = 0; d < s->batch_dims; d++) {
        int64_t da = d < s->batch_dims - na ? 1 : la->dims[d - (s->batch_dims - na)];
        int64_t db = d < s->batch_dims - nb ? 1 : lb->dims[d - (s->batch_dims - nb)];
        if (da != db && da != 1 && db != 1) {
            return orc_fail(c, "batch dims do not broadcast");
        }
        out[d] = s->batch[d] = da == 1 ? db : da;
    }
    s->batches = (int64_t)orc_count(s->batch, s->batch_dims);
    ndims = s->batch_dims;
    if (la->ndims > 1) {
        out[ndims++] = s->m;
    }
    if (lb->ndims > 1) {
        out[ndims++] = s->n;
    }
    *a = (operand_t){.t = c->in[0],
                     .k_dim = la->ndims == 1 ? 0 : na + (ta ? 0 : 1),
                     .rows = s->m,
                     .row = ta ? 1 : s->k,
                     .col = ta ? s->m : 1};
    *b = (operand_t){.t = c->in[1],
                     .k_dim = lb->ndims == 1 ? 0 : nb + (tb ? 1 : 0),
                     .rows = s->n,
                     .row = tb ? s->k : 1,
                     .col = tb ? 1 : s->n};
    a->row_dim = la->ndims == 1 ? -1 : na + (ta ? 1 : 0);
    b->row_dim = lb->ndims == 1 ? -1 : nb + (tb ? 0 : 1);
    return orc_shape(c, 0, ndims, out);
}

static void batch_strides(operand_t *o, const shape_t *s)
{
    int own = o->t->lt.ndims > 1 ? o->t->lt.ndims - 2 : 0;
    int64_t step = 1;

    for (int d = s->batch_dims - 1; d >= 0; d--) {
        int64_t dim = d < s->batch_dims - own ? 1 : o->t->lt.dims[d - (s->batch_dims - own)];
        o->batch_stride[d] = dim == 1 ? 0 : step;
        step *= dim;
    }
    o->own_batches = step;
}

/* The operand's matrix number that batch number i of the output uses. */
static int64_t own_batch(const operand_t *o, const shape_t *s, int64_t i)
{
    int64_t own = 0;
    for (int d = s->batch_dims - 1; d >= 0; d--) {
        own += i % s->batch[d] * o->batch_stride[d];
        i /= s->batch[d];
    }
    return own;
}

/* Length of the quantisation groups of o along k; k itself if not known. */
static int64_t group_along_k(const operand_t *o, const shape_t *s)
{
    int64_t group = o->t->group[o->k_dim];
    return group > 0 && group < s->k ? group : s->k;
}

/* ---- norms ----------------------------------------------------------------------------------- */

enum { BLOCK = 16, GATHERED = 64 };

/* Of BLOCK rows at once: sums of the second and fourth powers of finite values, bounds, and
 * group maxima (each counted once per element). */
typedef struct power_sums {
    double v2[BLOCK], v4[BLOCK], b2[BLOCK], b4[BLOCK], g2[BLOCK], g4[BLOCK];
    double b2_max[BLOCK], unsure[BLOCK], nans[BLOCK];
    double least[BLOCK]; /* magnitude but 0, which stays what it is in every mode */
    double same[BLOCK];  /* see norms_t */
} power_sums_t;

/* Counts of the values of a row, by a hash of their magnitudes. */
enum { BUCKETS = 256 };
typedef uint32_t buckets_t[BUCKETS];

/* Columns of up to BLOCK rows with the rows side by side, and zeros for rows that do not exist.
 * Walking down a column whose stride is a power of two would leave only a few cache lines for it,
 * so rows are read along their memory. */
typedef double gathered_t[GATHERED][BLOCK];

static void gather(const double *p, int64_t row, int64_t col, int64_t rows, int64_t n,
                   gathered_t to)
{
    if (rows < BLOCK) {
        memset(to, 0, (size_t)n * sizeof to[0]);
    }
    if (col == 1) {
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t i = 0; i < n; i++) {
                to[i][r] = p[r * row + i];
            }
        }
    } else if (rows == BLOCK) {
        for (int64_t i = 0; i < n; i++) {
            for (int r = 0; r < BLOCK; r++) {
                to[i][r] = p[r * row + i * col];
            }
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            for (int64_t r = 0; r < rows; r++) {
                to[i][r] = p[r * row + i * col];
            }
        }
    }
}

static void add_powers(const double *x, double *sum2, double *sum4, double *amax)
{
#pragma omp simd
    for (int r = 0; r < BLOCK; r++) {
        double x2 = x[r] * x[r], finite = x2 <= DBL_MAX ? x2 : 0;
        sum2[r] += finite;
        sum4[r] += finite * finite;
        amax[r] = x2 > amax[r] ? x2 : amax[r];
    }
}

static void add_unsure(const double *v, const double *b, double *unsure)
{
#pragma omp simd
    for (int r = 0; r < BLOCK; r++) {
        unsure[r] += b[r] > 0 && fabs(v[r]) <= b[r] ? 1 : 0;
    }
}

static void count_magnitudes(const double *v, int64_t rows, buckets_t *count)
{
    for (int64_t r = 0; r < rows; r++) {
        uint64_t bits;
        memcpy(&bits, &v[r], sizeof bits);
        count[r][(bits & INT64_MAX) * 0x9E3779B97F4A7C15u >> 56]++;
    }
}

/* The share of pairs of equal values among all k^2 pairs. Different values that share a bucket by
 * chance are taken off. */
static double share_of_equal_pairs(const uint32_t *count, double k)
{
    double pairs = 0;
    for (int i = 0; i < BUCKETS; i++) {
        pairs += (double)count[i] * count[i];
    }
    pairs = (pairs - k * k / BUCKETS) * BUCKETS / (BUCKETS - 1);
    return fmin(1, fmax(1 / k, pairs / (k * k)));
}

/* Magnitudes that a product may take for infinite, or not: those that bf16 cannot hold, and
 * infinities of an operand that is `beyond` (internal.h). */
static void add_open(const operand_t *o, const double *v, double *b2_max)
{
    const double least = o->mode_relative >= 0x1p-8 ? 0x1.FFp127 : INFINITY,
                 most = o->t->beyond ? INFINITY : DBL_MAX;
#pragma omp simd
    for (int r = 0; r < BLOCK; r++) {
        b2_max[r] = fabs(v[r]) >= least && fabs(v[r]) <= most ? INFINITY : b2_max[r];
    }
}

/* b NULL: every value is certain. */
static void add_nans(const double *v, const double *b, double *nans, double *least)
{
#pragma omp simd
    for (int r = 0; r < BLOCK; r++) {
        const double x = fabs(v[r]);
        nans[r] += isnan(x) && (b == NULL || b[r] != INFINITY) ? 1 : 0;
        least[r] = x > 0 && x < least[r] ? x : least[r];
    }
}

static power_sums_t block_sums(const operand_t *o, int64_t at, int64_t rows, int64_t k)
{
    power_sums_t s = {.v2 = {0}};
    double amax[BLOCK] = {0};
    gathered_t values, bounds;
    buckets_t buckets[BLOCK] = {{0}};
    for (int r = 0; r < BLOCK; r++) {
        s.least[r] = INFINITY;
    }

    for (int64_t i = 0; i < k; i++) {
        const int64_t in = i % GATHERED, n = k - i < GATHERED ? k - i : GATHERED;
        if (in == 0) {
            gather(o->t->v + at + i * o->col, o->row, o->col, rows, n, values);
        }
        if (in == 0 && o->t->b) {
            gather(o->t->b + at + i * o->col, o->row, o->col, rows, n, bounds);
        }
        add_powers(values[in], s.v2, s.v4, amax);
        count_magnitudes(values[in], rows, buckets);
        add_nans(values[in], o->t->b ? bounds[in] : NULL, s.nans, s.least);
        if (o->t->b) {
            add_powers(bounds[in], s.b2, s.b4, s.b2_max);
            add_unsure(values[in], bounds[in], s.unsure);
        }
        if (o->t->beyond || o->mode_relative >= 0x1p-8) {
            add_open(o, values[in], s.b2_max);
        }
        if (o->mode_group > 0 && ((i + 1) % o->group == 0 || i + 1 == k)) {
            double count = (double)(i % o->group + 1);
            for (int r = 0; r < BLOCK; r++) {
                s.g2[r] += count * amax[r];
                s.g4[r] += count * amax[r] * amax[r];
                amax[r] = 0;
            }
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        s.same[r] = share_of_equal_pairs(buckets[r], (double)k);
    }
    return s;
}

static double fourth_root(double x)
{
    return sqrt(sqrt(x));
}

static int operand_norms(orc_ctx_t *c, operand_t *o, int64_t k)
{
    double root2 = sqrt((double)k), root4 = sqrt(root2);
    int64_t blocks = (o->rows + BLOCK - 1) / BLOCK;

    o->norms = malloc((size_t)(o->own_batches * o->rows + 1) * sizeof *o->norms);
    if (!o->norms) {
        return orc_fail(c, "out of memory for norms");
    }
#pragma omp parallel for
    for (int64_t block = 0; block < o->own_batches * blocks; block++) {
        int64_t batch = block / blocks, row = block % blocks * BLOCK,
                rows = o->rows - row < BLOCK ? o->rows - row : BLOCK;
        power_sums_t s = block_sums(o, batch * o->rows * k + row * o->row, rows, k);
        for (int64_t r = 0; r < rows; r++) {
            norms_t *n = &o->norms[batch * o->rows + row + r];
            *n = (norms_t){
                .v2 = sqrt(s.v2[r]), .v4 = fourth_root(s.v4[r]), .b4 = fourth_root(s.b4[r])};
            n->b2 = isinf(s.b2_max[r]) ? INFINITY : sqrt(s.b2[r]);
            n->same = s.same[r];
            n->has_nan = s.nans[r] > 0;
            n->unsure = s.unsure[r] > 0 || s.least[r] <= o->mode_absolute || o->mode_group > 0;
            n->m2 =
                o->mode_relative * n->v2 + o->mode_group * sqrt(s.g2[r]) + o->mode_absolute * root2;
            n->m4 = o->mode_relative * n->v4 + o->mode_group * fourth_root(s.g4[r]) +
                    o->mode_absolute * root4;
        }
    }
    return 0;
}

/* Exponent of the largest power of two that divides every value; INT_MAX for all zeros, INT_MIN
 * if there is none worth using. */
static int grid_exponent(const orc_value_t *t)
{
    int least = INT32_MAX;
#pragma omp parallel for reduction(min : least)
    for (size_t i = 0; i < t->n; i++) {
        uint64_t bits, man;
        int exp, e;
        memcpy(&bits, &t->v[i], sizeof bits);
        exp = (int)(bits >> 52 & 2047);
        man = bits & 0xFFFFFFFFFFFFF;
        if (exp == 0 && man == 0) {
            continue;
        }
        e = exp == 0 || exp == 2047 ? INT32_MIN / 4
                                    : exp - 1075 + __builtin_ctzll(man | 1ull << 52);
        least = e < least ? e : least;
    }
    return least;
}

/* Sums of magnitude up to this are exact in f32; 0 if there is no such promise. */
static double exact_limit(const operand_t *a, const operand_t *b, bool strict)
{
    int ga, gb;

    if (!strict) {
        return 0;
    }
    ga = grid_exponent(a->t);
    gb = grid_exponent(b->t);
    if (ga == INT32_MAX || gb == INT32_MAX) {
        return INFINITY;
    }
    if (ga < -500 || gb < -500 || ga + gb < -149) {
        return 0;
    }
    return ldexp(0x1p24, ga + gb);
}

/* ---- the product ----------------------------------------------------------------------------- */

static int multiply(orc_ctx_t *c, const shape_t *s, const operand_t *a, const operand_t *b,
                    double *out)
{
    int64_t mb = (s->m + ORC_GEMM_M - 1) / ORC_GEMM_M, nb = (s->n + ORC_GEMM_N - 1) / ORC_GEMM_N,
            tasks = s->batches * mb * nb;
    int failed = 0;

#pragma omp parallel
    {
        double *scratch = aligned_alloc(64, ORC_GEMM_SCRATCH * sizeof(double));
        if (!scratch) {
#pragma omp atomic write
            failed = 1;
        }
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < tasks; task++) {
            int64_t batch = task / (mb * nb), i = task / nb % mb * ORC_GEMM_M,
                    j = task % nb * ORC_GEMM_N;
            int64_t m = s->m - i < ORC_GEMM_M ? s->m - i : ORC_GEMM_M,
                    n = s->n - j < ORC_GEMM_N ? s->n - j : ORC_GEMM_N;
            orc_matrix_t ma = {a->t->v + own_batch(a, s, batch) * s->m * s->k + i * a->row, a->row,
                               a->col};
            orc_matrix_t mbt = {b->t->v + own_batch(b, s, batch) * s->n * s->k + j * b->row, b->col,
                                b->row};
            if (scratch) {
                orc_gemm_block(m, n, s->k, ma, mbt, out + (batch * s->m + i) * s->n + j, s->n,
                               scratch);
            }
        }
        free(scratch);
    }
    return failed ? orc_fail(c, "out of memory for packing") : 0;
}

typedef struct operand_error {
    double certain, random2, common; /* random: squared; common: relative to the result */
} operand_error_t;

/* sum e_k x_k for the errors e of one side, see the head of the file. */
static operand_error_t error_of(const norms_t *e, bool walked, const norms_t *x)
{
    double random_b = (walked ? 1 : LAMBDA) * e->b4 * x->v4, random_m = LAMBDA * e->m4 * x->v4;
    double common = e->b2 / (walked ? LAMBDA : 1) + e->m2;
    return (operand_error_t){(e->b2 + e->m2) * x->v2, random_b * random_b + random_m * random_m,
                             e->v2 > 0 ? common / e->v2 : 0};
}

/* Errors times errors. */
static double second_order(const norms_t *a, const norms_t *b)
{
    double certain = (a->b2 + a->m2) * (b->b2 + b->m2),
           random = LAMBDA * (a->b4 + a->m4) * (b->b4 + b->m4);
    return random < certain ? random : certain;
}

/* Whether an order of summation in f32 may overflow that another does not, or to the other side.
 * most: what the magnitudes of the finite terms add up to at most. */
static bool may_overflow(double v, double bound, double most)
{
    if (!(most > FLT_MAX) || isnan(v)) {
        return false;
    }
    return isinf(v) || (most - fabs(v)) / 2 > FLT_MAX || !(fabs(v) - bound >= 0x1.FFFFFFp127);
}

static void bound_row(const shape_t *s, const operand_t *oa, const norms_t *a, const operand_t *ob,
                      const norms_t *b, double limit, const double *v, double *bound)
{
    double terms = (double)s->k;

    for (int64_t j = 0; j < s->n; j++, b++) {
        double walk = 2 * terms * sqrt(fmax(1 / terms, a->same * b->same)) + 2;
        double gamma = fmin(walk, terms) * ORC_U;
        double ea = a->b2 + a->m2, eb = b->b2 + b->m2, certain, random;
        operand_error_t of_a, of_b;
        if (a->has_nan || b->has_nan) {
            bound[j] = 0;
            continue;
        }
        if (isinf(a->b2) || isinf(b->b2)) {
            bound[j] = INFINITY;
            continue;
        }
        if (ea == 0 && eb == 0) {
            bound[j] = a->v2 * b->v2 <= limit ? 0 : gamma * a->v2 * b->v2 + terms * ORC_UNDERFLOW;
        } else {
            of_a = error_of(a, oa->t->walked, b);
            of_b = error_of(b, ob->t->walked, a);
            certain = of_a.certain + of_b.certain;
            random = sqrt(of_a.random2 + of_b.random2) + (of_a.common + of_b.common) * fabs(v[j]);
            bound[j] = gamma * (a->v2 + ea) * (b->v2 + eb) + (random < certain ? random : certain) +
                       second_order(a, b) + terms * ORC_UNDERFLOW;
        }
        /* Attention adds products with exp(x - max), where x may be above the maximum in use by 4,
         * and divides at the end. */
        const double of_values = oa->t->probabilities   ? b->v2 + eb
                                 : ob->t->probabilities ? a->v2 + ea
                                                        : 0,
                     most = fmax((a->v2 + ea) * (b->v2 + eb), exp(4) * sqrt(terms) * of_values);
        if (may_overflow(v[j], bound[j], most) || (!isfinite(v[j]) && (a->unsure || b->unsure))) {
            bound[j] = INFINITY;
        }
    }
}

/* ---- limbs with folded scales ---------------------------------------------------------------- */

/* Whether the scales of codes are folded into x before it is split: see the head of the file. */
static bool folds(const operand_t *x, const operand_t *codes, const shape_t *s)
{
    int64_t group = group_along_k(codes, s);
    return codes->t->scale && group < s->k && (group == 1 || x->t->probabilities);
}

/* 1- and 2-norms of up to BLOCK columns of codes. */
static void code_norms(const operand_t *codes, int64_t at, int64_t rows, int64_t k, norms_t *norms)
{
    double sum[BLOCK] = {0}, sum2[BLOCK] = {0};
    gathered_t values, scales;

    for (int64_t i = 0; i < k; i++) {
        const int64_t in = i % GATHERED, n = k - i < GATHERED ? k - i : GATHERED;
        if (in == 0) {
            const int64_t from = at + i * codes->col;
            gather(codes->t->v + from, codes->row, codes->col, rows, n, values);
            gather(codes->t->scale + from, codes->row, codes->col, rows, n, scales);
        }
#pragma omp simd
        for (int r = 0; r < BLOCK; r++) {
            double scale = scales[in][r], c = scale != 0 ? fabs(values[in][r] / scale) : 0;
            sum[r] += c;
            sum2[r] += c * c;
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        norms[r].c1 = sum[r];
        norms[r].c2 = sqrt(sum2[r]);
    }
}

/* The largest |x s| of up to BLOCK rows of x from x_at on and up to BLOCK columns of scales, `step`
 * apart. */
static void folded_max(const operand_t *x, int64_t x_at, int64_t rows, const operand_t *codes,
                       int64_t at, int64_t step, int64_t columns, int64_t k,
                       double most[BLOCK][BLOCK])
{
    gathered_t scales, values, bounds = {{0}};

    memset(most, 0, BLOCK * sizeof most[0]);
    for (int64_t i = 0; i < k; i++) {
        const int64_t in = i % GATHERED, n = k - i < GATHERED ? k - i : GATHERED;
        if (in == 0) {
            gather(codes->t->scale + at + i * codes->col, step, codes->col, columns, n, scales);
            gather(x->t->v + x_at + i * x->col, x->row, x->col, rows, n, values);
        }
        if (in == 0 && x->t->b) {
            gather(x->t->b + x_at + i * x->col, x->row, x->col, rows, n, bounds);
        }
        for (int64_t r = 0; r < rows; r++) {
            const double v = fabs(values[in][r]) + bounds[in][r];
#pragma omp simd
            for (int c = 0; c < BLOCK; c++) {
                const double w = v * fabs(scales[in][c]);
                most[r][c] = w > most[r][c] ? w : most[r][c];
            }
        }
    }
}

/* One matrix: adds the error of row r of x and column j of codes to bound[r * x_step + j *
 * code_step]. */
static void add_folded(double limbs, int64_t k, const operand_t *x, int64_t x_at,
                       const operand_t *codes, int64_t code_at, double *bound, int64_t x_step,
                       int64_t code_step)
{
    const int64_t group = codes->row_dim >= 0 ? codes->t->group[codes->row_dim] : 1;
    const int64_t shared = group > 0 ? group : 1; /* neighbouring columns with the same scales */
    const int64_t groups = (codes->rows + shared - 1) / shared, step = shared * codes->row;
    const norms_t *norms = codes->norms + code_at / (codes->rows * k) * codes->rows;

#pragma omp parallel for collapse(2)
    for (int64_t g0 = 0; g0 < groups; g0 += BLOCK) {
        for (int64_t r0 = 0; r0 < x->rows; r0 += BLOCK) {
            const int64_t columns = groups - g0 < BLOCK ? groups - g0 : BLOCK;
            const int64_t rows = x->rows - r0 < BLOCK ? x->rows - r0 : BLOCK;
            double most[BLOCK][BLOCK];
            folded_max(x, x_at + r0 * x->row, rows, codes, code_at + g0 * step, step, columns, k,
                       most);
            for (int64_t j = g0 * shared; j < (g0 + columns) * shared && j < codes->rows; j++) {
                for (int64_t r = 0; r < rows; r++) {
                    const double e = limbs * most[r][j / shared - g0];
                    const double random = LAMBDA * e * norms[j].c2, certain = e * norms[j].c1;
                    bound[(r0 + r) * x_step + j * code_step] += random < certain ? random : certain;
                }
            }
        }
    }
}

static void bound_folded(const shape_t *s, const operand_t *a, const operand_t *b,
                         const precision_t *p, double *bound)
{
    const operand_t *codes = p->a_limbs > 0 ? b : a;
    const int64_t blocks = (codes->rows + BLOCK - 1) / BLOCK;

    if (s->k == 0 || codes->rows == 0) {
        return;
    }
#pragma omp parallel for
    for (int64_t i = 0; i < codes->own_batches * blocks; i++) {
        const int64_t batch = i / blocks, row = i % blocks * BLOCK;
        code_norms(codes, batch * codes->rows * s->k + row * codes->row,
                   codes->rows - row < BLOCK ? codes->rows - row : BLOCK, s->k,
                   &codes->norms[batch * codes->rows + row]);
    }
    for (int64_t i = 0; i < s->batches; i++) {
        int64_t at_a = own_batch(a, s, i) * s->m * s->k, at_b = own_batch(b, s, i) * s->n * s->k;
        if (codes == b) {
            add_folded(p->a_limbs, s->k, a, at_a, b, at_b, bound + i * s->m * s->n, s->n, 1);
        } else {
            add_folded(p->b_limbs, s->k, b, at_b, a, at_a, bound + i * s->m * s->n, 1, s->n);
        }
    }
}

static int bound_product(orc_ctx_t *c, const shape_t *s, operand_t *a, operand_t *b,
                         const precision_t *p, orc_value_t *out)
{
    double limit;
    int64_t rows = s->batches * s->m;
    bool folded = (p->a_limbs > 0 && folds(a, b, s)) || (p->b_limbs > 0 && folds(b, a, s));

    a->group = group_along_k(b, s);
    b->group = group_along_k(a, s);
    a->mode_relative = p->a_relative;
    b->mode_relative = p->b_relative;
    a->mode_group = folded ? 0 : p->a_limbs;
    b->mode_group = folded ? 0 : p->b_limbs;
    a->mode_absolute = b->mode_absolute = p->absolute;
    if (operand_norms(c, a, s->k) || operand_norms(c, b, s->k)) {
        return -1;
    }
    limit = exact_limit(a, b, p->strict);
#pragma omp parallel for
    for (int64_t r = 0; r < rows; r++) {
        int64_t batch = r / s->m;
        const norms_t *na = a->norms + own_batch(a, s, batch) * s->m + r % s->m,
                      *nb = b->norms + own_batch(b, s, batch) * s->n;
        bound_row(s, a, na, b, nb, limit, out->v + r * s->n, out->b + r * s->n);
    }
    if (folded) {
        bound_folded(s, a, b, p, out->b);
    }
    for (int64_t i = 0; p->flush > 0 && i < rows * s->n; i++) {
        out->b[i] += (double)s->k * p->flush;
    }
    for (int64_t i = 0; c->doubles && i < rows * s->n; i++) {
        if (fabs(out->v[i]) > FLT_MAX && isfinite(out->v[i])) { /* not for arithmetic in double */
            out->b[i] = INFINITY;
        }
    }
    out->walked = s->k >= 16; /* short sums have certain bounds */
    return 0;
}

static void bias_chunk(const orc_chunk_t *k)
{
    for (size_t i = 0; i < k->n; i++) {
        double v = k->v[0][i], b = k->b[0][i];
        if (k->ob) { /* the product is rounded before the bias is added */
            k->ob[i] = b + orc_f32_error(v, b) + k->b[1][i];
        }
        k->ov[i] = v + k->v[1][i];
    }
}

static int add_bias(orc_ctx_t *c, orc_value_t *out)
{
    orc_value_t product = *out;
    orc_view_t views[2];
    int failed;

    if (!orc_view_broadcast(&views[1], c->in[2], out->lt.ndims, out->lt.dims)) {
        return orc_fail(c, "bias does not broadcast to the product");
    }
    orc_view_broadcast(&views[0], &product, out->lt.ndims, out->lt.dims);
    out->v = out->b = NULL;
    failed = orc_map(c, out, 2, views, bias_chunk, NULL, true);
    orc_value_clear(&product);
    return failed;
}

int oracle_matmul(orc_ctx_t *c)
{
    orc_value_t *out = c->out[0];
    precision_t precision = precision_of(c);
    operand_t a, b;
    shape_t s;
    int failed;

    if (matmul_shape(c, &s, &a, &b)) {
        return -1;
    }
    batch_strides(&a, &s);
    batch_strides(&b, &s);
    if (orc_alloc(c, out, true)) {
        return -1;
    }
    failed = multiply(c, &s, &a, &b, out->v) || bound_product(c, &s, &a, &b, &precision, out);
    free(a.norms);
    free(b.norms);
    if (failed) {
        return -1;
    }
    return c->n_in > 2 ? add_bias(c, out) : 0;
}
