/* Decoding attention in integers with AVX-512 VNNI. */
#include "backend_xsmm/ukernels/attention_codes.h"

#if defined(__x86_64__)

#include <math.h>
#include <string.h>

#include "numeric/dtype.h"

#include "backend_xsmm/ukernels/codes_vnni.h"

enum {
    ACCS = 16, /* sums of V in registers */
    BLOCKS = CODES_BLOCK / CODES_ROWS
};

/* ---- codes ----------------------------------------------------------------------------------- */

OP unpack_t unpack_rows(form_t form, const codes_rows_t *r)
{
    return unpack_of(form, r->flip, r->table);
}

/* What is known of rows where code is made for it: all else is looked up. */
typedef struct known {
    int chunks; /* 0: any number, and the last one may be short */
    bool near, shifted;
} known_t;

OP vi chunk_load(const known_t *is, const unsigned char *p, int left)
{
    return is->chunks || left >= CODES_CHUNK ? _mm512_loadu_si512(p)
                                             : _mm512_maskz_loadu_epi8((1ull << left) - 1, p);
}

OP int chunks_of(const known_t *is, const codes_rows_t *r)
{
    return is->chunks ? is->chunks : (r->bytes + CODES_CHUNK - 1) / CODES_CHUNK;
}

/* Four rows, of which n are there: the last of those stands in for the others. */
typedef struct four {
    const unsigned char *p[4];
} four_t;

OP four_t four_rows(const unsigned char *first, int64_t stride, int n)
{
    if (n >= 4) {
        return (four_t){{first, first + stride, first + 2 * stride, first + 3 * stride}};
    }
    return (four_t){{first, first + (n > 1) * stride, first + (n > 2 ? 2 : n - 1) * stride,
                     first + (n - 1) * stride}};
}

/* ---- coefficients ---------------------------------------------------------------------------- */

/* Of the four rows whose first one has coef. */
OP vf corners(const known_t *is, const int32_t *corner, const float *coef)
{
    const vi at = _mm512_loadu_si512(corner);
    return is->near ? _mm512_permutexvar_ps(at, _mm512_loadu_ps(coef))
                    : _mm512_i32gather_ps(at, coef, 4);
}

/* Of zero points, with the offset. */
OP vi shifts(const known_t *is, const int32_t *corner, const float *zp, vi offset)
{
    return is->shifted ? _mm512_add_epi32(offset, _mm512_cvtps_epi32(corners(is, corner, zp)))
                       : offset;
}

/* ---- q . k ----------------------------------------------------------------------------------- */

/* Scores of 16 rows from corners of four times four. */
OP void sum_quads(float (*part)[16], int fold, float *s)
{
    const vf a = _mm512_load_ps(part[0]), b = _mm512_load_ps(part[1]), c = _mm512_load_ps(part[2]),
             d = _mm512_load_ps(part[3]);
    const vf x = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    const vf y = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x88), _mm512_shuffle_f32x4(c, d, 0xdd));
    if (fold == 2) {
        const vi by_token = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
        _mm512_storeu_ps(s, _mm512_permutexvar_ps(by_token, x));
        _mm512_storeu_ps(s + 16, _mm512_permutexvar_ps(by_token, y));
    } else {
        _mm512_storeu_ps(
            s, _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd)));
    }
}

/* Corners of the scores of four rows, of which n are there. */
OP void qk_four(form_t form, int limbs, const known_t *is, const codes_rows_t *k,
                const unpack_t *un, four_t four, const float *scale, const float *zp, int nq,
                const codes_query_t *q, float (*part)[4][16])
{
    const int halves = form == BYTES ? 1 : 2, chunks = chunks_of(is, k);
    const vi offset = _mm512_set1_epi32(k->offset);
    UNROLL
    for (int c = 0; c < chunks; c++) {
        vi u[4 * 2];
        UNROLL
        for (int i = 0; i < 4; i++) {
            const unsigned char *p = four.p[i] + c * CODES_CHUNK;
            const vi x = chunk_load(is, p, k->bytes - c * CODES_CHUNK);
            _mm_prefetch((const char *)p + READ_AHEAD, _MM_HINT_T0);
            UNROLL
            for (int h = 0; h < halves; h++) {
                u[i * halves + h] = bytes_of(form, un, x, h);
            }
        }
        const vf by = corners(is, k->corner + c * 16, scale);
        const vi shift = shifts(is, k->corner + c * 16, zp, offset);
        for (int r = 0; r < nq; r++) {
            const vi x =
                _mm512_sub_epi32(dots(halves, limbs, u, q->byte[c][r]),
                                 _mm512_mullo_epi32(shift, _mm512_load_si512(q->sum[c][r])));
            const vf y = _mm512_mul_ps(_mm512_cvtepi32_ps(x), _mm512_load_ps(q->scale[c][r]));
            _mm512_store_ps(part[r][0], c ? _mm512_fmadd_ps(y, by, _mm512_load_ps(part[r][0]))
                                          : _mm512_mul_ps(y, by));
        }
    }
}

OP void qk_rows(form_t form, int limbs, known_t is, const codes_rows_t *rows, int nq,
                const codes_query_t *q, float *s, int64_t lds)
{
    const codes_rows_t k = *rows; /* a copy that no store can alias */
    const unpack_t un = unpack_rows(form, &k);
    const unsigned char *p = k.data;
    const float *scale = k.scale, *zp = k.zp;
    const int64_t step = CODES_ROWS * k.fold * k.groups;
    _Alignas(64) float part[CODES_MOST_QUERIES][4][16];
    memset(part, 0, sizeof part);
    for (int t = 0; t < k.rows; t += 16) {
        for (int b = 0; b < 4 && t + b * CODES_ROWS < k.rows;
             b++, p += CODES_ROWS * k.stride, scale += step, zp += is.shifted ? step : 0) {
            const four_t four = four_rows(p, k.stride, k.rows - t - b * CODES_ROWS);
            qk_four(form, limbs, &is, &k, &un, four, scale, zp, nq, q,
                    (float(*)[4][16])(void *)part[0][b]);
        }
        for (int r = 0; r < nq; r++) {
            sum_quads(part[r], k.fold, s + r * lds + t * k.fold);
        }
    }
}

/* ---- p v ------------------------------------------------------------------------------------- */

/* The largest or the sum of each quad, in all its lanes. */
OP vi quad_max(vi x)
{
    x = _mm512_max_epi32(x, _mm512_shuffle_epi32(x, 0x4e));
    return _mm512_max_epi32(x, _mm512_shuffle_epi32(x, 0xb1));
}
OP vi quad_sum(vi x)
{
    x = _mm512_add_epi32(x, _mm512_shuffle_epi32(x, 0x4e));
    return _mm512_add_epi32(x, _mm512_shuffle_epi32(x, 0xb1));
}

/* Byte `i` of each lane of a quad, all four of them in every lane. */
OP vi quad_bytes(vi x, int i)
{
    const vi at = _mm512_set1_epi32(0x0c080400 + 0x01010101 * i);
    return _mm512_shuffle_epi8(x, at);
}

/* Coefficients of all rows for one chunk, by corner. */
typedef struct coefs {
    float scale[BLOCKS][16];
    int32_t shift[BLOCKS][16];
} coefs_t;

OP void coefs_of_chunk(const codes_rows_t *v, int chunk, coefs_t *to)
{
    const known_t is = {0, v->near, v->zp != NULL};
    const int step = CODES_ROWS * v->fold * v->groups;
    const int32_t *corner = v->corner + chunk * 16;
    const vi offset = _mm512_set1_epi32(v->offset);
    for (int b = 0; b * CODES_ROWS < v->rows; b++) {
        _mm512_store_ps(to->scale[b], corners(&is, corner, v->scale + b * step));
        _mm512_store_si512(to->shift[b],
                           shifts(&is, corner, is.shifted ? v->zp + b * step : NULL, offset));
    }
}

/* p * scale of four rows, by corner. */
OP vf weights_of(int fold, const coefs_t *coefs, const float *p, int b)
{
    const vi by_token = _mm512_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6, 1, 3, 5, 7, 1, 3, 5, 7);
    const vf here = fold == 2
                        ? _mm512_permutexvar_ps(by_token, _mm512_loadu_ps(p + b * CODES_ROWS * 2))
                        : _mm512_broadcast_f32x4(_mm_loadu_ps(p + b * CODES_ROWS));
    return _mm512_mul_ps(here, _mm512_load_ps(coefs->scale[b]));
}

/* Weights of one query for one chunk. False: not all are numbers, or they are too small for
 * their reciprocals. */
OP bool weigh(int limbs, int fold, int n, const coefs_t *coefs, const float *p, int chunk, int r,
              float unit, codes_weights_t *w)
{
    vi most = _mm512_setzero_si512(), shift = _mm512_setzero_si512();
    for (int b = 0; b < n; b++) {
        const vi y = _mm512_castps_si512(weights_of(fold, coefs, p, b));
        most = _mm512_max_epi32(most, _mm512_and_si512(y, _mm512_set1_epi32(INT32_MAX)));
    }
    most = quad_max(most);
    if (_mm512_cmpge_epi32_mask(most, _mm512_set1_epi32(0x7f800000))) {
        return false;
    }
    /* A power of two lifts small numbers, whose reciprocals would be infinite. */
    const vf amax = _mm512_castsi512_ps(most),
             most_int = _mm512_set1_ps(limbs == 2 ? MOST_2 : MOST_1);
    const __mmask16 some = _mm512_test_epi32_mask(most, most);
    const bool small =
        _mm512_mask_cmp_ps_mask(some, amax, _mm512_set1_ps(0x1p-60f), _CMP_LT_OQ) != 0;
    const vf lift = _mm512_set1_ps(small ? 0x1p64f : 1),
             by = _mm512_maskz_div_ps(some, most_int, _mm512_mul_ps(amax, lift));
    for (int b = 0; b < n; b++) {
        const vf x = weights_of(fold, coefs, p, b);
        const vi y = _mm512_cvtps_epi32(_mm512_mul_ps(small ? _mm512_mul_ps(x, lift) : x, by));
        shift = _mm512_add_epi32(shift, _mm512_mullo_epi32(y, _mm512_load_si512(coefs->shift[b])));
        if (limbs == 2) {
            _mm512_store_si512(w->byte[chunk][b][r][0],
                               quad_bytes(_mm512_add_epi32(y, _mm512_set1_epi32(128)), 1));
            _mm512_store_si512(w->byte[chunk][b][r][1], quad_bytes(y, 0));
        } else {
            _mm512_store_si512(w->byte[chunk][b][r][0], quad_bytes(y, 0));
        }
    }
    _mm512_store_ps(w->scale[chunk][r],
                    _mm512_mul_ps(_mm512_div_ps(amax, most_int), _mm512_set1_ps(unit)));
    _mm512_store_si512(w->shift[chunk][r], quad_sum(shift));
    return true;
}

/* The same of all queries and chunks. */
OP bool weigh_all(int limbs, int nq, float unit, const codes_rows_t *rows, const float *p,
                  int64_t ldp, codes_weights_t *w)
{
    const codes_rows_t v = *rows;
    const int chunks = (v.bytes + CODES_CHUNK - 1) / CODES_CHUNK,
              n = (v.rows + CODES_ROWS - 1) / CODES_ROWS;
    _Alignas(64) coefs_t coefs;
    for (int c = 0; c < chunks; c++) {
        coefs_of_chunk(&v, c, &coefs);
        for (int r = 0; r < nq; r++) {
            if (!(v.fold == 2 ? weigh(limbs, 2, n, &coefs, p + r * ldp, c, r, unit, w)
                              : weigh(limbs, 1, n, &coefs, p + r * ldp, c, r, unit, w))) {
                return false;
            }
        }
    }
    return true;
}
TARGET static bool weigh_1(int nq, float unit, const codes_rows_t *v, const float *p, int64_t ldp,
                           codes_weights_t *w)
{
    return weigh_all(1, nq, unit, v, p, ldp, w);
}
TARGET static bool weigh_2(int nq, float unit, const codes_rows_t *v, const float *p, int64_t ldp,
                           codes_weights_t *w)
{
    return weigh_all(2, nq, unit, v, p, ldp, w);
}

/* Vectors v0..v0+np-1 of one chunk of four rows, for nq queries; w: the weights of these rows. */
OP void pv_four(form_t form, int limbs, const known_t *is, int v0, int np, int nq,
                const unpack_t *un, four_t four, int left, const int8_t (*w)[2][CODES_CHUNK],
                vi *sum)
{
    const int halves = form == BYTES ? 1 : 2;
    vi x[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        x[i] = chunk_load(is, four.p[i], left);
        if (v0 == 0) {
            _mm_prefetch((const char *)four.p[i] + READ_AHEAD, _MM_HINT_T0);
        }
    }
    UNROLL
    for (int j = v0 / halves; j < (v0 + np + halves - 1) / halves;
         j++) { /* lane i: bytes 4 j + i of its quad of the four rows */
        const vi ab = j < 2 ? _mm512_unpacklo_epi8(x[0], x[1]) : _mm512_unpackhi_epi8(x[0], x[1]);
        const vi cd = j < 2 ? _mm512_unpacklo_epi8(x[2], x[3]) : _mm512_unpackhi_epi8(x[2], x[3]);
        const vi y = j % 2 ? _mm512_unpackhi_epi16(ab, cd) : _mm512_unpacklo_epi16(ab, cd);
        vi u[2];
        UNROLL
        for (int h = 0; h < halves; h++) {
            u[h] = bytes_of(form, un, y, h);
        }
        UNROLL
        for (int i = 0; i < nq * limbs; i++) {
            const vi weight = _mm512_load_si512(w[i / limbs][i % limbs]);
            UNROLL
            for (int h = 0; h < halves; h++) {
                const int at = j * halves + h - v0;
                if (at >= 0 && at < np) {
                    sum[at * nq * limbs + i] = dp_of(sum[at * nq * limbs + i], u[h], weight);
                }
            }
        }
    }
}

/* The same of all rows, added to acc. */
OP void pv_vectors(form_t form, int limbs, const known_t *is, int v0, int np, int nq,
                   const codes_rows_t *v, int c, const codes_weights_t *w, float *acc,
                   int64_t ldacc)
{
    const int vectors = form == BYTES ? 4 : 8, left = v->bytes - c * CODES_CHUNK;
    const unpack_t un = unpack_rows(form, v);
    const unsigned char *p = v->data + c * CODES_CHUNK;
    vi sum[ACCS];
    UNROLL
    for (int i = 0; i < np * nq * limbs; i++) {
        sum[i] = _mm512_setzero_si512();
    }
    const int8_t(*bytes)[CODES_QUERIES][2][CODES_CHUNK] = w->byte[c];
    int t = v->rows;
    for (; t >= CODES_ROWS; t -= CODES_ROWS, p += CODES_ROWS * v->stride, bytes++) {
        pv_four(form, limbs, is, v0, np, nq, &un, four_rows(p, v->stride, CODES_ROWS), left, *bytes,
                sum);
    }
    if (t > 0) {
        pv_four(form, limbs, is, v0, np, nq, &un, four_rows(p, v->stride, t), left, *bytes, sum);
    }
    UNROLL
    for (int r = 0; r < nq; r++) {
        const vi shift = _mm512_load_si512(w->shift[c][r]);
        const vf scale = _mm512_load_ps(w->scale[c][r]);
        UNROLL
        for (int at = 0; at < np; at++) {
            const vi *s = &sum[(at * nq + r) * limbs];
            const vi x = _mm512_sub_epi32(
                limbs == 2 ? _mm512_add_epi32(_mm512_slli_epi32(s[0], 8), s[1]) : s[0], shift);
            float *to = acc + r * ldacc + (c * vectors + v0 + at) * 16;
            _mm512_storeu_ps(to,
                             _mm512_fmadd_ps(_mm512_cvtepi32_ps(x), scale, _mm512_loadu_ps(to)));
        }
    }
}

OP void pv_part(form_t form, int limbs, bool whole, int nq, const codes_rows_t *rows, int c,
                const codes_weights_t *w, float *acc, int64_t ldacc)
{
    const codes_rows_t v = *rows;
    const known_t is = {whole, false, false};
    const int vectors = form == BYTES ? 4 : 8,
              np = ACCS / (limbs * nq) < vectors ? ACCS / (limbs * nq) : vectors;
    UNROLL
    for (int v0 = 0; v0 < vectors; v0 += np) {
        pv_vectors(form, limbs, &is, v0, np, nq, &v, c, w, acc, ldacc);
    }
}

typedef void (*pv_part_t)(const codes_rows_t *v, int c, const codes_weights_t *w, float *acc,
                          int64_t ldacc);

static bool pv_rows(const pv_part_t *parts, int limbs, int nq, float unit, const codes_rows_t *v,
                    const float *p, int64_t ldp, codes_weights_t *w, float *acc, int64_t ldacc)
{
    const int chunks = (v->bytes + CODES_CHUNK - 1) / CODES_CHUNK;
    const pv_part_t part = parts[v->bytes % CODES_CHUNK == 0 ? nq / 2 : 3 + nq / 2];
    if (!(limbs == 2 ? weigh_2(nq, unit, v, p, ldp, w) : weigh_1(nq, unit, v, p, ldp, w))) {
        return false;
    }
    for (int c = 0; c < chunks; c++) {
        part(v, c, w, acc, ldacc);
    }
    return true;
}

/* ---- queries --------------------------------------------------------------------------------- */

OP bool quantise(form_t form, float unit, const float *x, int limbs, int query, int chunk,
                 codes_query_t *q)
{
    bool usable = true;
    for (int i = 0; i < 4; i++) {
        const float *quad = x + i * (form == BYTES ? 16 : 32);
        usable = quantise_quad(form, unit, quad, limbs, i, q->byte[chunk][query],
                               q->scale[chunk][query], q->sum[chunk][query]) &&
                 usable;
    }
    return usable;
}

/* ---- the types ------------------------------------------------------------------------------- */

/* Code is made for heads of one and of two whole chunks, which are usual, and for all others. */
#define QK(name, form, limbs, n, is_near, shifted)                                    \
    TARGET static void qk_##name##_##limbs##n##shifted(                               \
        const codes_rows_t *k, int nq, const codes_query_t *q, float *s, int64_t lds) \
    {                                                                                 \
        qk_rows(form, limbs, (known_t){n, is_near, shifted}, k, nq, q, s, lds);       \
    }
#define PV(name, form, limbs, whole, nq)                                                   \
    TARGET static void pv_##name##_##limbs##whole##nq(                                     \
        const codes_rows_t *v, int c, const codes_weights_t *w, float *acc, int64_t ldacc) \
    {                                                                                      \
        pv_part(form, limbs, whole, nq, v, c, w, acc, ldacc);                              \
    }
#define LIMBS(name, form, limbs)                                                   \
    QK(name, form, limbs, 0, k->near, 0)                                           \
    QK(name, form, limbs, 0, k->near, 1)                                           \
    QK(name, form, limbs, 1, true, 0)                                              \
    QK(name, form, limbs, 1, true, 1)                                              \
    QK(name, form, limbs, 2, true, 0)                                              \
    QK(name, form, limbs, 2, true, 1)                                              \
    PV(name, form, limbs, 1, 1)                                                    \
    PV(name, form, limbs, 1, 2)                                                    \
    PV(name, form, limbs, 1, 4)                                                    \
    PV(name, form, limbs, 0, 1)                                                    \
    PV(name, form, limbs, 0, 2)                                                    \
    PV(name, form, limbs, 0, 4)                                                    \
    static const qk_t qk_##name##_##limbs[3][2] = {                                \
        {qk_##name##_##limbs##00, qk_##name##_##limbs##01},                        \
        {qk_##name##_##limbs##10, qk_##name##_##limbs##11},                        \
        {qk_##name##_##limbs##20, qk_##name##_##limbs##21}};                       \
    static const pv_part_t pv_##name##_##limbs[] = {                               \
        pv_##name##_##limbs##11, pv_##name##_##limbs##12, pv_##name##_##limbs##14, \
        pv_##name##_##limbs##01, pv_##name##_##limbs##02, pv_##name##_##limbs##04};

typedef void (*qk_t)(const codes_rows_t *k, int nq, const codes_query_t *q, float *s, int64_t lds);

static qk_t qk_for(const qk_t (*fn)[2], const codes_rows_t *k)
{
    const int chunks = k->bytes / CODES_CHUNK;
    return fn[k->near && chunks <= 2 && k->bytes % CODES_CHUNK == 0 ? chunks : 0][k->zp != NULL];
}

#define FORM(name, form, unit)                                                                    \
    LIMBS(name, form, 1)                                                                          \
    LIMBS(name, form, 2)                                                                          \
    static void qk_##name(const codes_rows_t *k, int nq, int limbs, const codes_query_t *q,       \
                          float *s, int64_t lds)                                                  \
    {                                                                                             \
        qk_for(limbs == 2 ? qk_##name##_2 : qk_##name##_1, k)(k, nq, q, s, lds);                  \
    }                                                                                             \
    static bool pv_##name(const codes_rows_t *v, int nq, int limbs, const float *p, int64_t ldp,  \
                          codes_weights_t *w, float *acc, int64_t ldacc)                          \
    {                                                                                             \
        return pv_rows(limbs == 2 ? pv_##name##_2 : pv_##name##_1, limbs, nq, unit, v, p, ldp, w, \
                       acc, ldacc);                                                               \
    }                                                                                             \
    TARGET static bool quantise_##name(const float *x, int limbs, int query, int chunk,           \
                                       codes_query_t *q)                                          \
    {                                                                                             \
        return quantise(form, unit, x, limbs, query, chunk, q);                                   \
    }

FORM(nibbles, NIBBLES, 1)
FORM(f4, TABLE, 0.5f)
FORM(bytes, BYTES, 1)

/* As pv_part leaves them: vector 2 j + h, lane 4 l + k is half h of byte 16 l + 4 j + k. */
static int nibble_at(int at)
{
    const int v = at / 16, l = at % 16 / 4, k = at % 4;
    return 2 * (16 * l + 4 * (v / 2) + k) + v % 2;
}
static int byte_at(int at)
{
    return 16 * (at % 16 / 4) + 4 * (at / 16) + at % 4;
}

static const codes_ops_t ops[] = {
    [sinter_s4] = {128, 32, 8, 8, false, 1, nibble_at, quantise_nibbles, qk_nibbles, pv_nibbles},
    [sinter_u4] = {128, 32, 0, 0, false, 1, nibble_at, quantise_nibbles, qk_nibbles, pv_nibbles},
    [sinter_f4_e2m1] = {128, 32, 0, 12, true, 0.5f, nibble_at, quantise_f4, qk_f4, pv_f4},
    [sinter_s8] = {64, 16, 0x80, 128, false, 1, byte_at, quantise_bytes, qk_bytes, pv_bytes},
    [sinter_u8] = {64, 16, 0, 0, false, 1, byte_at, quantise_bytes, qk_bytes, pv_bytes},
};

const codes_table_t codes_table_avx512_vnni = {sizeof ops / sizeof *ops, ops};

#endif
