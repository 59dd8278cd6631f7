/* Data types: the traits table and the codec. Nothing outside src/numeric knows what a type's
 * bits mean. dtype.c defines the public sinter_data_type_name and sinter_data_type_parse. */
#ifndef SINTER_SRC_DTYPE_H
#define SINTER_SRC_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

#include <sinter/sinter_types.h>

#include "base/features.h"

typedef enum dtype_class { DTYPE_FLOAT, DTYPE_INT, DTYPE_SCALE, DTYPE_BOOL } dtype_class_t;

/* How values convert. Element offsets count elements from base, packed types included (element
 * 2i is the low nibble of byte i); base has any alignment; only the bytes that hold the named
 * elements are touched (a store keeps its neighbours' nibbles). Rounding is to nearest even with
 * the saturation rules of plain casts, with choices where those say nothing: NaN of an integer
 * is 0; e8m0 takes the nearest power of two (1.5 * 2^k goes to the even code), what lies outside
 * clamps to 0x00 or 0xFE, zero and negatives to 0x00, NaN is 0xFF; a boolean is 1 for anything
 * but zero (NaN included), in stores and in loads. Safe under FTZ/DAZ. base and the floats must
 * not overlap. Two threads may not store to one byte at once. */
typedef struct dtype_codec {
    void (*load_f32)(const void *base, int64_t first, int64_t stride, int64_t n,
                     float *dst); /* stride in elements, 0 allowed */
    void (*store_f32)(void *base, int64_t first, int64_t stride, int64_t n, const float *src);
    void (*load_f64)(const void *base, int64_t first, int64_t stride, int64_t n,
                     double *dst); /* exact but for s64 beyond 2^53 */
    void (*store_f64)(void *base, int64_t first, int64_t stride, int64_t n, const double *src);
    void (*store_sat)(void *base, int64_t first, int64_t stride, int64_t n,
                      const float *src); /* overflow becomes +-max */
} dtype_codec_t;

typedef struct dtype_traits {
    const char *name; /* NULL: no such type */
    dtype_class_t cls;
    int bits, block_elems, block_bytes, digits;
    double max, min; /* largest and lowest finite value */
    dtype_codec_t codec;
} dtype_traits_t;

/* Groups of floats of 16 or 32 bits on their way to scaled elements. */
typedef enum dtype_way { DTYPE_MULTIPLIED, DTYPE_DIVIDED, DTYPE_SHIFTED } dtype_way_t;
typedef struct dtype_scaled {
    dtype_way_t way;      /* x * by, x / by, round(x / by) + zp; the last for integers only */
    int size, n_groups;   /* groups of a multiple of 16 elements; size 1: a multiple of 16 groups */
    const float *by, *zp; /* a value for each group; zp NULL: none */
    sinter_data_type_t from; /* of the source: f32, f16 or bf16 */
    int64_t
        /* bytes so far ahead of the source are fetched into the cache; may lie outside of memory */
        ahead;
} dtype_scaled_t;

/* Scales and zero points, integers, of a run of codes: element i has those of group (phase + i)
 * / group, both multiples of DTYPE_GROUP. */
typedef struct dtype_groups {
    const float *scale, *zp;
    int zp_step; /* 1: one zero point for each group, 0: for all */
    int64_t group, phase;
} dtype_groups_t;
enum { DTYPE_GROUP = 16 };

/* What load_scaled does, with results converted as store does, to `to` past the caches; a fence
 * before other threads may look. p is the byte that the first code begins; n is a multiple of
 * DTYPE_STREAM, `to` aligned to cache lines. Group 1, a scale for each element, is allowed too. */
typedef void dtype_stream_t(const unsigned char *p, int64_t n, const dtype_groups_t *groups,
                            unsigned char *to);
enum { DTYPE_STREAM = 32 };

/* Consecutive elements on their way to codes with scales of their own: chunks of whole groups. */
typedef struct dtype_blocks {
    const struct quant_formula *formula; /* not static */
    sinter_data_type_t from;             /* of the source: f32, f16 or bf16 */
    int64_t size;                        /* of a group: 16, 32, 64 or a multiple of 128 */
    const unsigned char *x;
    unsigned char *codes;
    bool
        /* codes are aligned to cache lines and go past the caches: a fence before other threads
         * may look */
        past;
    sinter_data_type_t scale_type, zp_type;
    int scale_bytes, zp_bits;
    unsigned char *scale,
        *zp; /* one for each group; zp: of dynamic_asymmetric, those of a chunk whole bytes */
    float zp_min, zp_max;
    int64_t
        /* elements: dtype_chunk, or half of that and so on, at least DTYPE_BLOCK and a group */
        chunk;
    int64_t n; /* chunks */
} dtype_blocks_t;
enum { DTYPE_BLOCK = 128, DTYPE_CHUNK_BYTES = 2048 };
/* Elements of the largest chunk, whole blocks of DTYPE_BLOCK: so many bytes of the source, or
 * one group that has more than a block. */
static inline int64_t dtype_chunk(int64_t size, sinter_data_type_t from)
{
    return size > DTYPE_BLOCK ? size : DTYPE_CHUNK_BYTES / (from == sinter_f32 ? 4 : 2);
}

/* Runs of consecutive elements (stride 1), at the speed of the ISA: the same results as the
 * codec, bit for bit. */
typedef struct dtype_bulk {
    void (*load)(const void *base, int64_t first, int64_t n, float *dst);
    void (*store)(void *base, int64_t first, int64_t n, const float *src);
    void (*store_sat)(void *base, int64_t first, int64_t n, const float *src);
    /* Scales and does what store_sat does, where all results are finite and `first` begins a byte.
     * Multiplied elements saturate to the largest number with either sign, even where the type has
     * one more number below. May be NULL. */
    void (*store_scaled)(void *base, int64_t first, const void *src, const dtype_scaled_t *how);
    /* load, then (x - zp) * scale as floats have it, in one pass. May be NULL. */
    void (*load_scaled)(const void *base, int64_t first, int64_t n, const dtype_groups_t *groups,
                        float *dst);
    /* The function for results of a type; NULL if there is none. native_bf16: it may use
     * AVX512_BF16. May be NULL. */
    dtype_stream_t *(*stream_scaled)(sinter_data_type_t type, bool native_bf16);
    /* Scales, zero points and codes of chunks. Returns how many were done: it stops at one whose
     * extremes or scales are infinite, NaN or far from 1; -1: no such scales or zero points. May
     * be NULL. */
    int64_t (*quantise)(const dtype_blocks_t *b);
} dtype_bulk_t;
/* The best functions at or below isa, which the machine must have. Never NULL for a data type,
 * nor are functions but the scaled ones. */
const dtype_bulk_t *dtype_bulk(sinter_data_type_t type, features_t features);

/* Codes of six bits in two planes: the four low bits of each in a u4 tensor, the two high bits
 * in a u2 tensor. */
typedef struct dtype_split {
    /* The values of n codes. Runs of consecutive elements, each plane from an element of its
     * own. */
    void (*load)(const void *low, int64_t low_first, const void *high, int64_t high_first,
                 int64_t n, float *dst);
    /* The same of planes that were loaded as numbers; dst may be low or high. */
    void (*join)(const float *low, const float *high, int64_t n, float *dst);
} dtype_split_t;
/* The best functions at or below isa for codes of this type; NULL if it is no type of six bits. */
const dtype_split_t *dtype_split(sinter_data_type_t type, features_t features);
/* n packed codes of six bits, from element 0, into elements first, first + stride ... of each
 * plane; neighbours keep their bits. */
void dtype_part(const void *codes, int64_t n, void *low, int64_t low_first, int64_t low_stride,
                void *high, int64_t high_first, int64_t high_stride);

/* The values of all codes of a type of four bits. */
static inline void dtype_nibble_values(const dtype_codec_t *codec, float values[16])
{
    static const unsigned char codes[8] = {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe};
    codec->load_f32(codes, 0, 1, 16, values);
}

/* NULL for a value that is no data type. */
const dtype_traits_t *dtype_traits(sinter_data_type_t type);
static inline bool dtype_is_float(sinter_data_type_t type)
{
    return dtype_traits(type)->cls == DTYPE_FLOAT;
}
/* f32, f16, bf16, f64: types whose roundings a fused partition may leave out. */
bool dtype_is_wide_float(sinter_data_type_t type);
/* Needs the double-precision path: f64, s32, s64. */
bool dtype_needs_f64(sinter_data_type_t type);
/* Bytes for n elements of this type, rounded up; false on overflow. */
bool dtype_bytes(sinter_data_type_t type, int64_t n, int64_t *bytes);
/* True if the type packs several elements into a byte or a block. */
static inline bool dtype_is_packed(sinter_data_type_t type)
{
    return dtype_traits(type)->block_elems > 1;
}

#endif
