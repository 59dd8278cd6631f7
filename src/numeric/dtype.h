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
 * 2i is the low nibble of byte i). A stride is in elements and may be 0. base has any alignment.
 * Only the bytes that hold the named elements are touched: a store keeps its neighbours' nibbles.
 *
 * Rounding is to nearest even with the saturation rules of plain casts. Where those say nothing:
 * NaN becomes the integer 0; e8m0 takes the nearest power of two (1.5 * 2^k goes to the even
 * code), values beyond its range clamp to 0x00 or 0xFE, zero and negative numbers become 0x00,
 * NaN becomes 0xFF; a boolean is 1 for anything but zero (NaN included), in stores and in loads.
 *
 * Safe under FTZ/DAZ. base and the floats must not overlap. Two threads must not store to one
 * byte at the same time. */
typedef struct dtype_codec {
    void (*load_f32)(const void *base, int64_t first, int64_t stride, int64_t n, float *dst);
    void (*store_f32)(void *base, int64_t first, int64_t stride, int64_t n, const float *src);
    /* Exact, except for s64 beyond 2^53. */
    void (*load_f64)(const void *base, int64_t first, int64_t stride, int64_t n, double *dst);
    void (*store_f64)(void *base, int64_t first, int64_t stride, int64_t n, const double *src);
    /* As store_f32, but overflow becomes the largest number with its sign. */
    void (*store_sat)(void *base, int64_t first, int64_t stride, int64_t n, const float *src);
} dtype_codec_t;

typedef struct dtype_traits {
    const char *name; /* NULL: no such type */
    dtype_class_t cls;
    int bits, block_elems, block_bytes, digits;
    double max, min; /* largest and lowest finite value */
    dtype_codec_t codec;
} dtype_traits_t;

/* How a number x meets its scale and zero point. */
typedef enum dtype_way {
    DTYPE_MULTIPLIED, /* x * scale */
    DTYPE_BOUNDED,    /* at least zp, which is no zero point here: max(x * scale, zp) */
    DTYPE_DIVIDED,    /* x / scale */
    DTYPE_SHIFTED,    /* round(x / scale) + zp, for integers */
    DTYPE_ADDED,      /* round(x / scale + zp) */
    DTYPE_LESS,       /* round((x - zp) / scale): zp is an offset */
    DTYPE_RESTORED,   /* the way back: (x - zp) * scale */
    DTYPE_OFFSET      /* the way back of an offset: x * scale + zp */
} dtype_way_t;

/* The scales and zero points of a run of elements: element i has those of group (phase + i) /
 * group. group and phase are multiples of DTYPE_GROUP, or group is 1 and phase 0. */
typedef struct dtype_scaled {
    const float *scale, *zp; /* a value for each group */
    bool zp_each;            /* false: zp[0] is for all groups */
    int64_t group, phase;
    /* The rest is for store_scaled only. */
    dtype_way_t way;         /* multiplied, divided or shifted */
    sinter_data_type_t from; /* the type of the source: f32, f16 or bf16 */
    int64_t ahead;           /* prefetch distance in bytes; prefetching past the end is harmless */
} dtype_scaled_t;
enum { DTYPE_GROUP = 16 };

/* What load_scaled does, with results converted as store does, to `to` past the caches: a fence
 * must follow before other threads may look. p is the byte that the first code begins in; n is a
 * multiple of DTYPE_STREAM, `to` aligned to cache lines. */
typedef void dtype_stream_t(const unsigned char *p, int64_t n, const dtype_scaled_t *how,
                            unsigned char *to);
enum { DTYPE_STREAM = 32 };

/* The arguments of quantise, in numeric/groups.h. */
typedef struct dtype_blocks dtype_blocks_t;

/* Runs of consecutive elements (stride 1), at the speed of the instruction set: the same results
 * as the codec, bit for bit. The last four may be NULL, the others never are. */
typedef struct dtype_bulk {
    void (*load)(const void *base, int64_t first, int64_t n, float *dst);
    void (*store)(void *base, int64_t first, int64_t n, const float *src);
    void (*store_sat)(void *base, int64_t first, int64_t n, const float *src);
    /* Scales a multiple of DTYPE_GROUP elements and does what store_sat does. All results are
     * finite, `first` begins a byte, and phase is 0. Multiplied elements saturate to the largest
     * number with either sign, even where the type has one more number below. */
    void (*store_scaled)(void *base, int64_t first, int64_t n, const void *src,
                         const dtype_scaled_t *how);
    /* load, then (x - zp) * scale as floats have it, in one pass; group is not 1. */
    void (*load_scaled)(const void *base, int64_t first, int64_t n, const dtype_scaled_t *how,
                        float *dst);
    /* The function for results of a type, NULL if there is none. native_bf16: it may use
     * AVX512_BF16. */
    dtype_stream_t *(*stream_scaled)(sinter_data_type_t type, bool native_bf16);
    /* Computes scales, zero points and codes of chunks. Returns how many chunks were done: it
     * stops at one whose extremes or scales are infinite, NaN or far from 1. -1: there is no
     * function for these types of scales or zero points. */
    int64_t (*quantise)(const dtype_blocks_t *b);
} dtype_bulk_t;

/* The best functions that these features allow, which the machine must have. type must be a data
 * type. */
const dtype_bulk_t *dtype_bulk(sinter_data_type_t type, features_t features);

/* Codes of six bits in two planes: the four low bits of each code lie in a u4 tensor, the two high
 * bits in a u2 tensor. */
typedef struct dtype_split {
    /* The values of n codes, from consecutive elements of each plane. */
    void (*load)(const void *low, int64_t low_first, const void *high, int64_t high_first,
                 int64_t n, float *dst);
    /* The same from planes that were loaded as numbers; dst may be low or high. */
    void (*join)(const float *low, const float *high, int64_t n, float *dst);
} dtype_split_t;
/* The best functions that these features allow for codes of this type; NULL if it is no type of
 * six bits. */
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
