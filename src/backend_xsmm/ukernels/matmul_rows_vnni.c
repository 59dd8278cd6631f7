/* Matmul with few rows in integers with AVX-512 VNNI. */
#include "backend_xsmm/ukernels/matmul_rows.h"

#if defined(__x86_64__)

#include "backend_xsmm/ukernels/codes_vnni.h"

/* ---- the product ----------------------------------------------------------------------------- */

OP vf scales_at(const code_coefs_t *c, int64_t chunk)
{
    const float *p = c->at + (chunk >> c->shift) * c->step;
    if (c->step == 16) {
        return _mm512_loadu_ps(p);
    }
    if (c->step == 8) {
        const vf halves = _mm512_castps256_ps512(_mm256_loadu_ps(p));
        return _mm512_shuffle_f32x4(halves, halves, 0x50);
    }
    return _mm512_broadcast_f32x4(_mm_loadu_ps(p));
}

/* The sum over a quad of q (zp + offset). */
OP vi shift_at(const rows_four_t *w, int64_t chunk, const rows_codes_t *q)
{
    if (!w->zp.at) {
        return _mm512_mullo_epi32(_mm512_load_si512(q->sum), _mm512_set1_epi32(w->offset));
    }
    return _mm512_mullo_epi32(_mm512_load_si512(q->sum),
                              _mm512_castps_si512(scales_at(&w->zp, chunk)));
}

/* Chunk c, of which `some` bytes are there. */
OP void chunk_of(form_t form, int limbs, int nq, bool whole, __mmask64 some, const rows_four_t *w,
                 const unpack_t *un, int64_t c, const rows_codes_t *q, vf *acc)
{
    const int halves = form == BYTES ? 1 : 2;
    vi u[ROWS_LINES * 2];
    UNROLL
    for (int i = 0; i < ROWS_LINES; i++) {
        const unsigned char *p = w->line[i] + c * ROWS_CHUNK;
        const vi x = whole ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi8(some, p);
        _mm_prefetch((const char *)p + w->ahead, _MM_HINT_T0);
        UNROLL
        for (int h = 0; h < halves; h++) {
            u[i * halves + h] = bytes_of(form, un, x, h);
        }
    }
    const vf by = scales_at(&w->scale, c);
    UNROLL
    for (int r = 0; r < nq; r++) {
        const vi x = _mm512_sub_epi32(dots(halves, limbs, u, q[r].byte), shift_at(w, c, &q[r]));
        acc[r] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(x), _mm512_load_ps(q[r].scale)),
                                 by, acc[r]);
    }
}

OP void lines_of(form_t form, int limbs, int nq, const rows_four_t *four, const rows_codes_t *q,
                 int ldq, float *out, int64_t ldo)
{
    const rows_four_t w = *four; /* a copy that no store can alias */
    const unpack_t un = unpack_of(form, w.flip, w.table);
    const int64_t whole = w.bytes / ROWS_CHUNK;
    const int rest = (int)(w.bytes % ROWS_CHUNK);
    vf acc[4];
    UNROLL
    for (int r = 0; r < nq; r++) {
        acc[r] = _mm512_setzero_ps();
    }
    for (int64_t c = 0; c < whole; c++, q += ldq) {
        chunk_of(form, limbs, nq, true, 0, &w, &un, c, q, acc);
    }
    if (rest) {
        chunk_of(form, limbs, nq, false, (1ull << rest) - 1, &w, &un, whole, q, acc);
    }
    UNROLL
    for (int r = 0; r < nq; r++) {
        const __m256 half =
            _mm256_add_ps(_mm512_castps512_ps256(acc[r]), _mm512_extractf32x8_ps(acc[r], 1));
        _mm_storeu_ps(out + r * ldo,
                      _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
    }
}

#define LINES(name, form, limbs, nq)                                                           \
    TARGET static void lines_##name##_##limbs##nq(const rows_four_t *w, const rows_codes_t *q, \
                                                  int ldq, float *out, int64_t ldo)            \
    {                                                                                          \
        lines_of(form, limbs, nq, w, q, ldq, out, ldo);                                        \
    }
typedef void (*lines_t)(const rows_four_t *w, const rows_codes_t *q, int ldq, float *out,
                        int64_t ldo);

static void run(const lines_t *fn, const rows_four_t *w, int rows, const rows_codes_t *q,
                float *out, int64_t ldo)
{
    for (int r = 0, n; r < rows; r += n) {
        n = rows_batch(rows - r);
        fn[n / 2](w, q + r, rows, out + r * ldo, ldo);
    }
}

/* ---- rows of A ------------------------------------------------------------------------------- */

OP bool quantise(form_t form, float unit, const float *x, int64_t ldx, int rows, int limbs,
                 rows_codes_t *q)
{
    bool usable = true;
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < ROWS_QUADS; i++) {
            const float *quad = x + r * ldx + i * (form == BYTES ? 16 : 32);
            usable = quantise_quad(form, unit, quad, limbs, i, q[r].byte, q[r].scale, q[r].sum) &&
                     usable;
        }
    }
    return usable;
}

/* Codes less their zero points. */
OP void encode(form_t form, float unit, const rows_raw_t *a, int rows, int limbs, rows_codes_t *q)
{
    const int elems = form == BYTES ? 16 : 32;
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < ROWS_QUADS; i++) {
            const float *x = a->x + r * a->ldx + i * elems, zp = a->zp[r * a->ld + i],
                        scale = a->scale[r * a->ld + i];
            const vf by = _mm512_set1_ps(a->by), less = _mm512_set1_ps(zp * a->by);
            vi y[2];
            UNROLL
            for (int v = 0; v < elems / 16; v++) {
                const int left = a->n - i * elems - v * 16;
                const __mmask16 there = left >= 16  ? 0xffff
                                        : left <= 0 ? 0
                                                    : (__mmask16)((1u << left) - 1);
                y[v] = _mm512_maskz_cvtps_epi32(
                    there, _mm512_fmsub_ps(_mm512_maskz_loadu_ps(there, x + v * 16), by, less));
            }
            place_quad(form, y, limbs, i, q[r].byte, scale / a->by * unit, q[r].scale, q[r].sum);
        }
    }
}

/* ---- coefficients ---------------------------------------------------------------------------- */

/* 16 units of four lines. */
OP void transpose_units(const vf *line, vf *out)
{
    const vf a = _mm512_unpacklo_ps(line[0], line[1]), b = _mm512_unpackhi_ps(line[0], line[1]);
    const vf c = _mm512_unpacklo_ps(line[2], line[3]), d = _mm512_unpackhi_ps(line[2], line[3]);
    /* 128-bit lane i of x[j]: unit 4 i + j */
    const vf x[4] = {_mm512_shuffle_ps(a, c, 0x44), _mm512_shuffle_ps(a, c, 0xee),
                     _mm512_shuffle_ps(b, d, 0x44), _mm512_shuffle_ps(b, d, 0xee)};
    const vf low_01 = _mm512_shuffle_f32x4(x[0], x[1], 0x44),
             high_01 = _mm512_shuffle_f32x4(x[0], x[1], 0xee);
    const vf low_23 = _mm512_shuffle_f32x4(x[2], x[3], 0x44),
             high_23 = _mm512_shuffle_f32x4(x[2], x[3], 0xee);
    out[0] = _mm512_shuffle_f32x4(low_01, low_23, 0x88);
    out[1] = _mm512_shuffle_f32x4(low_01, low_23, 0xdd);
    out[2] = _mm512_shuffle_f32x4(high_01, high_23, 0x88);
    out[3] = _mm512_shuffle_f32x4(high_01, high_23, 0xdd);
}

OP void load_units(const float *x, int64_t ld, int left, vf *out)
{
    const __mmask16 some = left >= 16 ? 0xffff : (__mmask16)((1u << left) - 1);
    vf line[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        line[i] = _mm512_maskz_loadu_ps(some, x + i * ld);
    }
    transpose_units(line, out);
}

TARGET static void by_unit(const float *x, int64_t ld, int n, float *out)
{
    for (int u = 0; u < n; u += 16) {
        vf y[4];
        load_units(x + u, ld, n - u, y);
        UNROLL
        for (int i = 0; i < 4; i++) {
            _mm512_store_ps(out + u * 4 + i * 16, y[i]);
        }
    }
}

TARGET static void by_unit_s32(const float *x, int64_t ld, int n, int32_t shift, int32_t *out)
{
    for (int u = 0; u < n; u += 16) {
        vf y[4];
        load_units(x + u, ld, n - u, y);
        UNROLL
        for (int i = 0; i < 4; i++) {
            _mm512_store_si512(out + u * 4 + i * 16, _mm512_add_epi32(_mm512_cvtps_epi32(y[i]),
                                                                      _mm512_set1_epi32(shift)));
        }
    }
}

/* ---- the types ------------------------------------------------------------------------------- */

#define FORM(name, form, unit)                                                                  \
    LINES(name, form, 1, 1)                                                                     \
    LINES(name, form, 1, 2)                                                                     \
    LINES(name, form, 1, 4)                                                                     \
    LINES(name, form, 2, 1)                                                                     \
    LINES(name, form, 2, 2)                                                                     \
    LINES(name, form, 2, 4)                                                                     \
    static void run_##name(const rows_four_t *w, int rows, int limbs, const rows_codes_t *q,    \
                           float *out, int64_t ldo)                                             \
    {                                                                                           \
        static const lines_t fn[2][3] = {                                                       \
            {lines_##name##_11, lines_##name##_12, lines_##name##_14},                          \
            {lines_##name##_21, lines_##name##_22, lines_##name##_24}};                         \
        run(fn[limbs - 1], w, rows, q, out, ldo);                                               \
    }                                                                                           \
    TARGET static bool quantise_##name(const float *x, int64_t ldx, int rows, int limbs,        \
                                       rows_codes_t *q)                                         \
    {                                                                                           \
        return quantise(form, unit, x, ldx, rows, limbs, q);                                    \
    }                                                                                           \
    TARGET static void encode_##name(const rows_raw_t *a, int rows, int limbs, rows_codes_t *q) \
    {                                                                                           \
        encode(form, unit, a, rows, limbs, q);                                                  \
    }

FORM(nibbles, NIBBLES, 1)
FORM(f4, TABLE, 0.5f)
FORM(bytes, BYTES, 1)

static const rows_ops_t ops[] = {
    [sinter_s4] = {128, 8, 8, false, 1, quantise_nibbles, encode_nibbles, run_nibbles},
    [sinter_u4] = {128, 0, 0, false, 1, quantise_nibbles, encode_nibbles, run_nibbles},
    [sinter_f4_e2m1] = {128, 0, 12, true, 0.5f, quantise_f4, encode_f4, run_f4},
    [sinter_s8] = {64, 0x80, 128, false, 1, quantise_bytes, encode_bytes, run_bytes},
    [sinter_u8] = {64, 0, 0, false, 1, quantise_bytes, encode_bytes, run_bytes},
};

const rows_table_t rows_table_avx512_vnni = {sizeof ops / sizeof *ops, ops, by_unit, by_unit_s32};

#endif
