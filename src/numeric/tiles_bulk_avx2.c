/* Weights into tiles with AVX2. */
#include "numeric/tiles_bulk.h"

#if defined(__x86_64__)

#include "numeric/simd_avx2.h"

enum { HALF = TILES_LINE / 2 /* bytes of a line that 8 columns have */ };

/* 16 bytes of two columns. */
OP __m256i load_two(const unsigned char *low, const unsigned char *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load_16_bytes(low)), load_16_bytes(high),
                                   1);
}

OP void store_two(unsigned char *low, unsigned char *high, __m256i x)
{
    _mm_storeu_si128((__m128i *)low, _mm256_castsi256_si128(x));
    _mm_storeu_si128((__m128i *)high, _mm256_extracti128_si256(x, 1));
}

/* In each half: dword i of x[j] and dword j of x[i] change places. */
OP void transpose_dwords(__m256i x[4])
{
    const __m256i a = _mm256_unpacklo_epi32(x[0], x[1]), b = _mm256_unpackhi_epi32(x[0], x[1]),
                  c = _mm256_unpacklo_epi32(x[2], x[3]), d = _mm256_unpackhi_epi32(x[2], x[3]);
    x[0] = _mm256_unpacklo_epi64(a, c);
    x[1] = _mm256_unpackhi_epi64(a, c);
    x[2] = _mm256_unpacklo_epi64(b, d);
    x[3] = _mm256_unpackhi_epi64(b, d);
}

/* Four bytes of each of 16 columns, x[b] those of number b, in both halves: as dwords of 4 columns
 * each. */
OP void interleave_bytes(__m256i x[4])
{
    const __m256i a = _mm256_unpacklo_epi8(x[0], x[1]), b = _mm256_unpackhi_epi8(x[0], x[1]),
                  c = _mm256_unpacklo_epi8(x[2], x[3]), d = _mm256_unpackhi_epi8(x[2], x[3]);
    x[0] = _mm256_unpacklo_epi16(a, c);
    x[1] = _mm256_unpackhi_epi16(a, c);
    x[2] = _mm256_unpacklo_epi16(b, d);
    x[3] = _mm256_unpackhi_epi16(b, d);
}

/* ---- along K --------------------------------------------------------------------------------- */

/* Columns may be multiples of 4 KiB apart, and then share a set of the first cache. So 8 columns
 * use up their cache lines before the other 8 of the strip do. */
enum { CACHE_LINE = 64 };

/* Of each word, which has two codes of k and then two of k + 16, the middle two change places. */
OP __m256i swap_middle(__m256i x)
{
    const __m256i t =
        _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi16(x, 4)), _mm256_set1_epi16(0x00f0));
    return _mm256_xor_si256(x, _mm256_xor_si256(t, _mm256_slli_epi16(t, 4)));
}

TARGET static void nibbles_along_k(const unsigned char *from, int64_t apart, int64_t tiles,
                                   uint8_t flip, unsigned char *to)
{
    enum { COLUMN = TILES_K / 2, SOME = CACHE_LINE / COLUMN, TILE = TILES_COLUMNS * COLUMN };
    const __m256i flips = _mm256_set1_epi8((char)flip),
                  order = _mm256_broadcastsi128_si256(
                      _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    for (int64_t t = 0; t < tiles; t += SOME) {
        const int64_t end = tiles - t < SOME ? tiles : t + SOME;
        for (int half = 0; half < 2; half++) {
            const unsigned char *columns = from + 8 * half * apart;
            for (int64_t i = t; i < end; i++) {
                __m256i x[4];
                for (int c = 0; c < 4; c++) {
                    const unsigned char *low = columns + c * apart + i * COLUMN;
                    x[c] = swap_middle(_mm256_shuffle_epi8(load_two(low, low + 4 * apart), order));
                }
                transpose_dwords(x);
                for (int j = 0; j < 4; j++) {
                    vi_store(to + i * TILE + j * TILES_LINE + half * HALF,
                             _mm256_xor_si256(x[j], flips));
                }
            }
        }
    }
}

TARGET static void dwords_along_k(const unsigned char *from, int64_t apart, int64_t n,
                                  unsigned char *to)
{
    enum { COLUMN = 32, SOME = CACHE_LINE / COLUMN, TILE = TILES_COLUMNS * COLUMN };
    for (int64_t t = 0; t < n; t += SOME) {
        const int64_t end = n - t < SOME ? n : t + SOME;
        for (int half = 0; half < 2; half++) {
            const unsigned char *columns = from + 8 * half * apart;
            for (int64_t i = t; i < end; i++) {
                for (int part = 0; part < 2; part++) {
                    __m256i x[4];
                    for (int c = 0; c < 4; c++) {
                        const unsigned char *low = columns + c * apart + i * COLUMN + 16 * part;
                        x[c] = load_two(low, low + 4 * apart);
                    }
                    transpose_dwords(x);
                    for (int j = 0; j < 4; j++) {
                        vi_store(to + i * TILE + (4 * part + j) * TILES_LINE + half * HALF, x[j]);
                    }
                }
            }
        }
    }
}

/* Columns c and c + 8 are the halves of x[c]. Each step puts the elements of columns that are half
 * as far apart next to each other. */
TARGET static void words_along_k(const unsigned char *from, int64_t apart, int64_t n,
                                 unsigned char *to)
{
    for (; n > 0; n--, from += 16, to += 256) {
        __m256i x[8], y[8];
        for (int c = 0; c < 8; c++) {
            x[c] = load_two(from + c * apart, from + (c + 8) * apart);
        }
        for (int c = 0; c < 4; c++) {
            y[2 * c] = _mm256_unpacklo_epi16(x[c], x[c + 4]);
            y[2 * c + 1] = _mm256_unpackhi_epi16(x[c], x[c + 4]);
        }
        for (int c = 0; c < 2; c++) { /* y[2 c], y[2 c + 4] are of columns c and c + 2 */
            for (int k = 0; k < 2; k++) {
                x[4 * c + 2 * k] = _mm256_unpacklo_epi16(y[2 * c + k], y[2 * c + 4 + k]);
                x[4 * c + 2 * k + 1] = _mm256_unpackhi_epi16(y[2 * c + k], y[2 * c + 4 + k]);
            }
        }
        for (int k = 0; k < 4; k++) {
            vi_store(to + 64 * k, _mm256_unpacklo_epi16(x[k], x[k + 4]));
            vi_store(to + 64 * k + 32, _mm256_unpackhi_epi16(x[k], x[k + 4]));
        }
    }
}

TARGET static void bytes_along_k(const unsigned char *from, int64_t apart, int64_t n, uint8_t flip,
                                 unsigned char *to)
{
    const __m128i flips = _mm_set1_epi8((char)flip);
    for (; n > 0; n--, from += 8, to += 128) {
        __m128i x[8], y[8];
        for (int c = 0; c < 8; c++) {
            x[c] = _mm_unpacklo_epi8(load_8_bytes(from + c * apart),
                                     load_8_bytes(from + (c + 8) * apart));
        }
        for (int c = 0; c < 4; c++) {
            y[2 * c] = _mm_unpacklo_epi8(x[c], x[c + 4]);
            y[2 * c + 1] = _mm_unpackhi_epi8(x[c], x[c + 4]);
        }
        for (int c = 0; c < 2; c++) {
            for (int k = 0; k < 2; k++) {
                x[4 * c + 2 * k] = _mm_unpacklo_epi8(y[2 * c + k], y[2 * c + 4 + k]);
                x[4 * c + 2 * k + 1] = _mm_unpackhi_epi8(y[2 * c + k], y[2 * c + 4 + k]);
            }
        }
        for (int k = 0; k < 4; k++) {
            const __m128i low = _mm_unpacklo_epi8(x[k], x[k + 4]),
                          high = _mm_unpackhi_epi8(x[k], x[k + 4]);
            _mm_storeu_si128((__m128i *)(to + 32 * k), _mm_xor_si128(low, flips));
            _mm_storeu_si128((__m128i *)(to + 32 * k + 16), _mm_xor_si128(high, flips));
        }
    }
}

/* ---- along N --------------------------------------------------------------------------------- */

/* A line of four strips, from rows 4 j ... 4 j + 3 and 16 + 4 j ... of 64 columns. */
OP void line_of_nibbles(const unsigned char *from, int64_t apart, __m256i flips, unsigned char *to,
                        int64_t next)
{
    const __m256i low = _mm256_set1_epi8(0x0f);
    __m256i x[4], y[4]; /* strips 0 and 2, 1 and 3 */
    for (int b = 0; b < 4; b++) {
        const __m256i first = vi_load(from + b * apart), second = vi_load(from + (16 + b) * apart);
        const __m256i even = _mm256_or_si256(
            _mm256_and_si256(first, low), _mm256_andnot_si256(low, _mm256_slli_epi16(second, 4)));
        const __m256i odd = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(first, 4), low),
                                            _mm256_andnot_si256(low, second));
        x[b] = _mm256_xor_si256(_mm256_unpacklo_epi8(even, odd), flips);
        y[b] = _mm256_xor_si256(_mm256_unpackhi_epi8(even, odd), flips);
    }
    interleave_bytes(x);
    interleave_bytes(y);
    for (int i = 0; i < 4; i++) {
        store_two(to + 16 * i, to + 2 * next + 16 * i, x[i]);
        store_two(to + next + 16 * i, to + 3 * next + 16 * i, y[i]);
    }
}

/* Whole cache lines of a row are used up before the next rows. */
TARGET static void nibbles_along_n(const unsigned char *from, int64_t apart, int64_t strips,
                                   uint8_t flip, unsigned char *to, int64_t next)
{
    enum { FOUR = 2 * TILES_PAIR };
    const __m256i flips = _mm256_set1_epi8((char)flip);
    for (int64_t s = 0; s < strips; s += 2 * FOUR) {
        const int64_t end = strips - s < 2 * FOUR ? strips : s + 2 * FOUR;
        for (int j = 0; j < 4; j++) {
            for (int64_t i = s; i < end; i += FOUR) {
                line_of_nibbles(from + 4 * j * apart + i * TILES_COLUMNS / 2, apart, flips,
                                to + i * next + j * TILES_LINE, next);
            }
        }
    }
}

TARGET static void bytes_along_n(const unsigned char *from, int64_t apart, int64_t strips,
                                 unsigned char *to, int64_t next)
{
    for (int64_t s = 0; s < strips; s += 2 * TILES_PAIR) {
        const int64_t end = strips - s < 2 * TILES_PAIR ? strips : s + 2 * TILES_PAIR;
        for (int j = 0; j < 8; j++) {
            for (int64_t i = s; i < end; i += TILES_PAIR) {
                unsigned char *line = to + i * next + j * TILES_LINE;
                __m256i x[4];
                for (int b = 0; b < 4; b++) {
                    x[b] = vi_load(from + (4 * j + b) * apart + i * TILES_COLUMNS);
                }
                interleave_bytes(x);
                for (int q = 0; q < 4; q++) {
                    store_two(line + 16 * q, line + next + 16 * q, x[q]);
                }
            }
        }
    }
}

/* A line of each strip from two rows: words of the two rows in turn. */
TARGET static void words_along_n(const unsigned char *from, int64_t apart, int64_t strips,
                                 unsigned char *to, int64_t next)
{
    for (int j = 0; j < TILES_K / 2; j++, from += 2 * apart, to += TILES_LINE) {
        for (int64_t s = 0; s < strips; s++) {
            const unsigned char *row = from + s * HALF;
            const __m256i even = vi_load(row), odd = vi_load(row + apart),
                          low = _mm256_unpacklo_epi16(even, odd),
                          high = _mm256_unpackhi_epi16(even, odd);
            unsigned char *line = to + s * next;
            vi_store(line, _mm256_permute2x128_si256(low, high, 0x20));
            vi_store(line + HALF, _mm256_permute2x128_si256(low, high, 0x31));
        }
    }
}

TARGET static void floats_along_n(const unsigned char *from, int64_t apart, int64_t strips,
                                  unsigned char *to, int64_t next)
{
    for (int k = 0; k < TILES_K; k++, from += apart, to += TILES_LINE) {
        for (int64_t s = 0; s < strips; s++) {
            memcpy(to + s * next, from + s * TILES_LINE, TILES_LINE);
        }
    }
}

/* ---- bits that are kept ---------------------------------------------------------------------- */

/* A plane of so many bits of each code, from bit `done` on. Lines of 4 bits have every fourth dword
 * of K, those of fewer bits neighbours. Returns where the plane ends. */
OP unsigned char *put_plane(const __m256i dwords[8], int bits, int done, unsigned char *plane)
{
    const __m256i mask = _mm256_set1_epi8((char)((1 << bits) - 1));
    UNROLL
    for (int j = 0; j < bits; j++) {
        __m256i line = _mm256_setzero_si256();
        UNROLL
        for (int i = 0; i < 8 / bits; i++) {
            const __m256i x = dwords[bits == 4 ? 4 * i + j : 8 / bits * j + i];
            const __m256i part = _mm256_and_si256(_mm256_srli_epi16(x, done), mask);
            line = _mm256_or_si256(line, _mm256_slli_epi16(part, bits * i));
        }
        vi_store(plane + j * TILES_LINE, line);
    }
    return plane + bits * TILES_LINE;
}

TARGET static bool keep(const unsigned char *tile, int n, uint8_t zero, unsigned char *to)
{
    const __m256i more = _mm256_set1_epi8((char)zero), lost = _mm256_set1_epi8((char)(0xff << n));
    __m256i x[8], all = _mm256_setzero_si256();
    for (int half = 0; half < 2; half++) {
        UNROLL
        for (int i = 0; i < 8; i++) {
            x[i] = _mm256_add_epi8(vi_load(tile + i * TILES_LINE + half * HALF), more);
            all = _mm256_or_si256(all, x[i]);
        }
        unsigned char *plane = to + half * HALF;
        plane = n & 4 ? put_plane(x, 4, 0, plane) : plane;
        plane = n & 2 ? put_plane(x, 2, n & 4, plane) : plane;
        plane = n & 1 ? put_plane(x, 1, n & 6, plane) : plane;
    }
    return _mm256_testz_si256(all, lost) != 0;
}

/* 12 bytes in each half. Each dword takes 3 of them, c0 | c1 << 6 | c2 << 12 | c3 << 18. */
TARGET static void widen_6(const unsigned char *from, int64_t apart, int n, unsigned char *to)
{
    const __m256i threes = _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1, 4,
                                            5, 6, -1, 7, 8, 9, -1, 10, 11, 12, -1, 13, 14, 15, -1);
    for (int i = 0; i < n; i++, from += apart, to += TILES_K) {
        const vu x = (vu)_mm256_shuffle_epi8(load_two(from, from + 8), threes);
        vi_store(
            to, (vi)((x & 0x3f) | (x << 2 & 0x3f00) | (x << 4 & 0x3f0000) | (x << 6 & 0x3f000000)));
    }
}

/* ---- back ------------------------------------------------------------------------------------ */

TARGET static void to_nibbles_along_k(const unsigned char *from, int64_t tiles, uint8_t flip,
                                      unsigned char *to, int64_t apart)
{
    enum { COLUMN = TILES_K / 2, TILE = TILES_COLUMNS * COLUMN };
    const __m256i flips = _mm256_set1_epi8((char)flip),
                  order = _mm256_broadcastsi128_si256(
                      _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    for (int64_t t = 0; t < tiles; t++, from += TILE, to += COLUMN) {
        for (int half = 0; half < 2; half++) {
            __m256i x[4];
            for (int j = 0; j < 4; j++) {
                x[j] = vi_load(from + j * TILES_LINE + half * HALF);
            }
            transpose_dwords(x);
            for (int c = 0; c < 4; c++) {
                unsigned char *low = to + (8 * half + c) * apart;
                const __m256i codes = swap_middle(_mm256_xor_si256(x[c], flips));
                store_two(low, low + 4 * apart, _mm256_shuffle_epi8(codes, order));
            }
        }
    }
}

TARGET static void to_bytes_along_k(const unsigned char *from, int64_t tiles, unsigned char *to,
                                    int64_t apart)
{
    enum { COLUMN = TILES_K, TILE = TILES_COLUMNS * COLUMN };
    for (int64_t t = 0; t < tiles; t++, from += TILE, to += COLUMN) {
        for (int half = 0; half < 2; half++) {
            for (int part = 0; part < 2; part++) {
                __m256i x[4];
                for (int j = 0; j < 4; j++) {
                    x[j] = vi_load(from + (4 * part + j) * TILES_LINE + half * HALF);
                }
                transpose_dwords(x);
                for (int c = 0; c < 4; c++) {
                    unsigned char *low = to + (8 * half + c) * apart + 16 * part;
                    store_two(low, low + 4 * apart, x[c]);
                }
            }
        }
    }
}

TARGET static void to_words_along_n(const unsigned char *from, int64_t next, int64_t strips,
                                    unsigned char *to, int64_t apart)
{
    const __m256i low = _mm256_set1_epi32(0xffff);
    for (int j = 0; j < TILES_K / 2; j++, from += TILES_LINE, to += 2 * apart) {
        for (int64_t s = 0; s < strips; s++) {
            const __m256i a = vi_load(from + s * next), b = vi_load(from + s * next + HALF);
            const __m256i even =
                _mm256_packus_epi32(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
            const __m256i odd =
                _mm256_packus_epi32(_mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16));
            vi_store(to + s * HALF, _mm256_permute4x64_epi64(even, 0xd8));
            vi_store(to + apart + s * HALF, _mm256_permute4x64_epi64(odd, 0xd8));
        }
    }
}

TARGET static void to_floats_along_n(const unsigned char *from, int64_t next, int64_t strips,
                                     unsigned char *to, int64_t apart)
{
    for (int k = 0; k < TILES_K; k++, from += TILES_LINE, to += apart) {
        for (int64_t s = 0; s < strips; s++) {
            memcpy(to + s * TILES_LINE, from + s * next, TILES_LINE);
        }
    }
}

const tiles_vectors_t tiles_avx2 = {
    .nibbles_along_k = nibbles_along_k,
    .dwords_along_k = dwords_along_k,
    .words_along_k = words_along_k,
    .bytes_along_k = bytes_along_k,
    .nibbles_along_n = nibbles_along_n,
    .bytes_along_n = bytes_along_n,
    .words_along_n = words_along_n,
    .floats_along_n = floats_along_n,
    .keep = keep,
    .widen_6 = widen_6,
    .to_nibbles_along_k = to_nibbles_along_k,
    .to_bytes_along_k = to_bytes_along_k,
    .to_words_along_n = to_words_along_n,
    .to_floats_along_n = to_floats_along_n,
};

#endif
