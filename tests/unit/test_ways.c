/* Which way each step goes inside its kernel: each case is a graph with the ways that its last step
 * must take at each ISA level, as SINTER_VERBOSE=exec prints them. A fast path that is no longer
 * taken fails here by its name. Every row of every table of ways must be taken by some case at
 * every level where `roll` says that it can be, and at no other: a new row fails until it has a
 * line in `roll` and a case. Kernels only choose; nothing is executed, so the levels are tested on
 * every machine, but for the few ways that are chosen by code of their instruction set. */
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter.h>

#include "backend_xsmm/exec/compiled.h"
#include "backend_xsmm/ukernels/xsmm.h"
#include "base/cpu.h"
#include "check.h"
#include "spec.h"

enum { MOST_TABLES = 27, MOST_ROWS = 8 };

/* ---- where each way can be taken ------------------------------------------------------------- */

enum {
    GENERIC_CAP = 1 << sinter_isa_generic,
    AVX2_CAP = 1 << sinter_isa_avx2,
    AVX512_CAP = 1 << sinter_isa_avx512,
    VNNI_CAP = 1 << sinter_isa_avx512_vnni,
    AVX2_VNNI_CAP = 1 << sinter_isa_avx2_vnni,
    BYTE_CAPS = VNNI_CAP | AVX2_VNNI_CAP | AVX2_CAP, /* sums of products of bytes */
    AVX2_CAPS = AVX2_CAP | AVX2_VNNI_CAP,            /* vectors of 256 bits */
    AVX512_CAPS = AVX512_CAP | VNNI_CAP,             /* any AVX-512 */
    SIMD_CAPS = AVX2_CAP | AVX512_CAPS | BYTE_CAPS,  /* any vectors */
    ALL_CAPS = GENERIC_CAP | SIMD_CAPS,
    /* Not only the level counts: */
    WITH_F32 = 1 << 8,    /* libxsmm must multiply floats at this level, here */
    WITHOUT_F32 = 1 << 9, /* it must not */
    WITH_BF16 = 1 << 10,  /* libxsmm must multiply bf16 at this level, here */
    ON_MACHINE = 1 << 11  /* choosing runs code of this level */
};

#define EXACT_CODES "exact products of codes"
#define TWO_LIMBS "16-bit integers (two 8-bit limbs)"
#define ONE_LIMB "8-bit integers"
#define ON_TILES " on tiles"
#define FMA "f32 FMA on decoded registers"
#define UNPACKED "f32 FMA on unpacked tiles"

static const struct roll {
    const char *table, *way;
    unsigned caps;
} roll[] = {
    {"attention_operands", TWO_LIMBS, BYTE_CAPS},
    {"attention_operands", ONE_LIMB, BYTE_CAPS},
    {"attention_operands", FMA, SIMD_CAPS},
    {"attention_operands", "tiles of floats", SIMD_CAPS},
    {"attention_products", ONE_LIMB, BYTE_CAPS},
    {"attention_products", "bf16 brgemm", VNNI_CAP | WITH_BF16},
    {"attention_products", "f32 brgemm", SIMD_CAPS | WITH_F32},
    {"attention_products", "own f32 gemm", ALL_CAPS | WITHOUT_F32},
    {"attention_cache", TWO_LIMBS ON_TILES, BYTE_CAPS},
    {"attention_cache", ONE_LIMB ON_TILES, BYTE_CAPS},
    {"attention_cache", "f32 FMA" ON_TILES " of floats", SIMD_CAPS},
    {"attention_cache", "f32 FMA" ON_TILES, SIMD_CAPS},
    {"attention_heads", "pieces of the cache in turn", SIMD_CAPS},
    {"attention_masks", "lists of cells", ALL_CAPS},
    {"attention_masks", "terms of all scores", ALL_CAPS},
    {"decode_qk", "tiles of floats", AVX2_CAPS},
    {"decode_qk", "tokens in lanes", AVX512_CAPS},
    {"decode_qk", "twelve sums", AVX2_CAPS},
    {"decode_qk", "chunks of one scale", AVX2_CAPS},
    {"decode_qk", "chunks of any scales", SIMD_CAPS},
    {"decode_pv", "tiles of floats", AVX2_CAPS},
    {"decode_pv", "twelve sums", SIMD_CAPS},
    {"decode_pv", "rows of few scales", SIMD_CAPS},
    {"decode_pv", "rows of any scales", SIMD_CAPS},
    {"codes_qk", "transposed tokens", AVX2_CAP},
    {"codes_qk", "one chunk", BYTE_CAPS},
    {"codes_qk", "two chunks", BYTE_CAPS},
    {"codes_qk", "any chunks", BYTE_CAPS},
    {"codes_pv", "pairs of whole chunks", AVX2_CAP},
    {"codes_pv", "pairs of any chunks", AVX2_CAP},
    {"codes_pv", "words of whole chunks", AVX2_CAP},
    {"codes_pv", "words of any chunks", AVX2_CAP},
    {"codes_pv", "whole chunks", VNNI_CAP | AVX2_VNNI_CAP},
    {"codes_pv", "any chunks", VNNI_CAP | AVX2_VNNI_CAP},
    {"recurrence_states", "columns in place", ALL_CAPS},
    {"recurrence_states", "keys in place", ALL_CAPS},
    {"recurrence_states", "a copy by keys", ALL_CAPS},
    {"recurrence_states", "a copy by columns", ALL_CAPS},
    {"chain_tiles", "conversion past the caches", SIMD_CAPS | ON_MACHINE},
    {"chain_tiles", "transposed tiles", ALL_CAPS},
    {"chain_tiles", "conversion in one loop", ALL_CAPS},
    {"chain_tiles", "tiles past the caches", ALL_CAPS},
    {"chain_tiles", "square tiles", ALL_CAPS},
    {"chain_tiles", "elements one by one", ALL_CAPS},
    {"chain_tiles", "runs", ALL_CAPS},
    {"softmax_rows", "rows in cache", ALL_CAPS},
    {"softmax_rows", "rows in three passes", ALL_CAPS},
    {"softmax_rows", "columns", ALL_CAPS},
    {"rows", "rows past the caches", ALL_CAPS},
    {"rows", "rows in batches", ALL_CAPS},
    {"rows", "rows one by one", ALL_CAPS},
    {"norm_ends", "one pass that scales and stores", ALL_CAPS},
    {"norm_ends", "one pass that scales", ALL_CAPS},
    {"norm_ends", "passes of the chain", ALL_CAPS},
    {"gather_rows", "rows of tiles", ALL_CAPS},
    {"gather_rows", "elements", ALL_CAPS},
    {"gather_rows", "rows past the caches", ALL_CAPS},
    {"gather_rows", "rows", ALL_CAPS},
    {"scatter_rows", "tokens of tiles", ALL_CAPS},
    {"scatter_rows", "elements", ALL_CAPS},
    {"scatter_rows", "rows", ALL_CAPS},
    {"top_k_rows", "short rows at once", ALL_CAPS},
    {"top_k_rows", "sorting what is collected", ALL_CAPS},
    {"top_k_rows", "blocks of floats", ALL_CAPS},
    {"top_k_rows", "elements one by one", ALL_CAPS},
    {"dynquant_groups", "chunks of groups", SIMD_CAPS | ON_MACHINE},
    {"dynquant_groups", "slabs shared by all threads", ALL_CAPS | ON_MACHINE},
    {"dynquant_groups", "slabs of groups", ALL_CAPS | ON_MACHINE},
    {"dynquant_elements", "floats where they lie", ALL_CAPS | ON_MACHINE},
    {"dynquant_elements", "16 bits where they lie", SIMD_CAPS | ON_MACHINE},
    {"dynquant_elements", "conversion to floats", ALL_CAPS | ON_MACHINE},
    {"dynquant_codes", "registers", SIMD_CAPS | ON_MACHINE},
    {"dynquant_codes", "floats in memory", ALL_CAPS | ON_MACHINE},
    {"matmul_rows", EXACT_CODES, BYTE_CAPS},
    {"matmul_rows", TWO_LIMBS, BYTE_CAPS},
    {"matmul_rows", ONE_LIMB, BYTE_CAPS},
    {"matmul_rows", FMA, SIMD_CAPS},
    {"matmul_rows", "panels", SIMD_CAPS},
    {"matmul_tiles", EXACT_CODES ON_TILES, BYTE_CAPS},
    {"matmul_tiles", TWO_LIMBS ON_TILES, BYTE_CAPS},
    {"matmul_tiles", ONE_LIMB ON_TILES, BYTE_CAPS},
    {"matmul_tiles", "f32 FMA" ON_TILES " of floats", SIMD_CAPS},
    {"matmul_tiles", "f32 FMA" ON_TILES, SIMD_CAPS},
    {"matmul_columns", FMA, SIMD_CAPS},
    {"matmul_columns", "panels", SIMD_CAPS},
    {"matmul_scales", "nothing", SIMD_CAPS},
    {"matmul_scales", "sums of rows", SIMD_CAPS},
    {"matmul_scales", "chunks of codes", SIMD_CAPS},
    {"matmul_scales", "lanes of codes", SIMD_CAPS},
    {"matmul_products", EXACT_CODES, BYTE_CAPS},
    {"matmul_products", TWO_LIMBS, BYTE_CAPS},
    {"matmul_products", ONE_LIMB, BYTE_CAPS},
    {"matmul_products", UNPACKED, SIMD_CAPS},
    {"matmul_products", "bf16 brgemm", VNNI_CAP | WITH_BF16},
    {"matmul_products", "f32 brgemm", SIMD_CAPS | WITH_F32},
    {"matmul_products", "own f32 gemm", ALL_CAPS | WITHOUT_F32},
    {"matmul_activation", "what the step before made", BYTE_CAPS},
    {"one_thread", "one thread", ALL_CAPS},
};

/* ---- the cases ------------------------------------------------------------------------------- */

typedef struct way_case {
    const char *what, *graph;
    sinter_fpmath_mode_t mode; /* applies to integers too */
    int threads;               /* 0: one */
    size_t cache_bytes;        /* 0: the machine's */
    bool no_copies;            /* the constant cache has no room */
    bool on_machine;           /* choosing runs code of the level */
    bool tiles;                /* the first input has the opaque layout of values, transpose_b */
    bool cache;                /* tensors lie in tiles as lay_cache says */
    /* By sinter_cpu_isa_t. NULL: as at avx512 where that is avx512_vnni, else as at avx2.
     * LIBXSMM stands for the best of bf16 brgemm, f32 brgemm and own f32 gemm that it allows. */
    const char *at[LEVELS];
} way_case_t;

#define GENERIC [sinter_isa_generic]
#define AVX2 [sinter_isa_avx2]
#define AVX2_VNNI [sinter_isa_avx2_vnni]
#define AVX512 [sinter_isa_avx512]
#define VNNI [sinter_isa_avx512_vnni]
#define EVERYWHERE(ways) .at[sinter_isa_generic] = ways, .at[sinter_isa_avx2] = ways

#define ATTENTION(s, k, v)                                                  \
    "MatMul transpose_b=1 1:f32:1x4x" s "x64 " k " -> 3:f32:1x4x" s "x96; " \
    "SoftMax axis=-1 3:f32:1x4x" s "x96 -> 4:f32:1x4x" s "x96; "            \
    "MatMul 4:f32:1x4x" s "x96 " v " -> 6:f32:1x4x" s "x64"
#define FLOAT_K_V(s) ATTENTION(s, "2:f32:1x4x96x64", "5:f32:1x4x96x64")
/* With a mask in memory, and with another tensor below it. */
#define MASKED(s, below)                                                                    \
    "MatMul transpose_b=1 1:f32:1x4x" s "x64 2:f32:1x4x96x64 -> 3:f32:1x4x" s "x96; " below \
    "Add 8:f32:1x4x" s "x96 7:f32:1x1x" s "x96 -> 9:f32:1x4x" s "x96; "                     \
    "SoftMax axis=-1 9:f32:1x4x" s "x96 -> 4:f32:1x4x" s "x96; "                            \
    "MatMul 4:f32:1x4x" s "x96 5:f32:1x4x96x64 -> 6:f32:1x4x" s "x64"
#define SCALED(s) "Multiply 3:f32:1x4x" s "x96 20:f32:1 -> 8:f32:1x4x" s "x96; "
#define BIASED(s) "Add 3:f32:1x4x" s "x96 20:f32:1x1x" s "x96 -> 8:f32:1x4x" s "x96; "
#define LISTS "the mask by lists of cells, "
#define TERMS "the mask by terms of all scores (scores have other terms for each key), "
/* K and V of s4 with one scale for each `group` elements of a head: `n` of them. */
#define CODES_K_V(s, group, n)                                                       \
    "DynamicDequantize qtype=per_group group_shape=1,1,1," group " 10:s4:1x4x96x64 " \
    "11:f16:1x4x96x" n " -> 2:f32:1x4x96x64; "                                       \
    "DynamicDequantize qtype=per_group group_shape=1,1,1," group " 12:s4:1x4x96x64 " \
    "13:f16:1x4x96x" n " -> 5:f32:1x4x96x64; " FLOAT_K_V(s)
#define CODES_OF_IMAGE(type) "Dequantize scales=0.5 zps=3 1:" type ":1x9x9x32 -> 2:f32:1x9x9x32; "
#define CODES_OF_KERNEL(type)                                                           \
    "Dequantize scales=0.5 3:" type ":3x3x32x48 -> 4:f32:3x3x32x48; "                   \
    "Convolution strides=1,1 pads_begin=1,1 pads_end=1,1 dilations=1,1 2:f32:1x9x9x32 " \
    "4:f32:3x3x32x48 -> 5:f32:1x9x9x48"
/* Heads of 96 in groups of 64: the last one has 32. */
#define SHORT_GROUP_OF(codes, scales, to)                                                   \
    "DynamicDequantize qtype=per_group group_shape=1,1,1,64 " codes ":s4:1x4x96x96 " scales \
    ":f16:1x4x96x2 -> " to ":f32:1x4x96x96; "
#define SHORT_K_V(s)                                                                  \
    SHORT_GROUP_OF("10", "11", "2")                                                   \
    SHORT_GROUP_OF("12", "13", "5")                                                   \
    "MatMul transpose_b=1 1:f32:1x4x" s "x96 2:f32:1x4x96x96 -> 3:f32:1x4x" s "x96; " \
    "SoftMax axis=-1 3:f32:1x4x" s "x96 -> 4:f32:1x4x" s "x96; "                      \
    "MatMul 4:f32:1x4x" s "x96 5:f32:1x4x96x96 -> 6:f32:1x4x" s "x96"
#define SHORT_BLOCKS " (groups along K are not made of blocks of 16 to 128 elements)"
#define K_AND_V(way) "K by " way ", V by " way
/* With their inner loops. */
#define LOOPS(qk, pv) ", q.k by " qk ", p.v by " pv
#define IN_FLOATS(qk, pv) K_AND_V(FMA) LOOPS(qk, pv)
#define ANY_SCALES "chunks of any scales"
#define FEW_SCALES "rows of few scales"
#define ONE_SCALE "chunks of one scale"
#define LANES "tokens in lanes"
#define SEVEN_FLOATS(rest)                                                     \
    K_AND_V(FMA)                                                               \
    ", q.k by " ANY_SCALES ", q.k of the rest by " rest ", p.v by " FEW_SCALES \
    ", p.v of the rest by twelve sums"
#define NOT_WHOLE " (a head is not a whole number of chunks)"
#define NOT_USUAL " (a head is not of one or two whole chunks, or has too many groups)"
/* K and V of s4, heads of 256 with four scales. */
#define LONG_CODES(codes, scales, to)                                                        \
    "DynamicDequantize qtype=per_group group_shape=1,1,1,64 " codes ":s4:1x4x96x256 " scales \
    ":f16:1x4x96x4 -> " to ":f32:1x4x96x256; "
#define LONG_K_V                                                                \
    LONG_CODES("10", "11", "2")                                                 \
    LONG_CODES("12", "13", "5")                                                 \
    "MatMul transpose_b=1 1:f32:1x4x1x256 2:f32:1x4x96x256 -> 3:f32:1x4x1x96; " \
    "SoftMax axis=-1 3:f32:1x4x1x96 -> 4:f32:1x4x1x96; "                        \
    "MatMul 4:f32:1x4x1x96 5:f32:1x4x96x256 -> 6:f32:1x4x1x256"

/* Weights of s4 stored [N, K] or [K, N]; n: groups along K, or the dims of the scales. */
#define ALONG_K(m, group, n, a)                                                             \
    "DynamicDequantize qtype=per_group group_shape=1," group " 10:s4:160x128 11:f16:160x" n \
    " -> 2:f32:160x128; MatMul transpose_b=1 " a " 2:f32:160x128 -> 3:f32:" m "x160"
/* The same with other weights, of the same A. */
#define OTHER_ALONG_K(m, group, n)                                                          \
    "DynamicDequantize qtype=per_group group_shape=1," group " 30:s4:160x128 31:f16:160x" n \
    " -> 32:f32:160x128; MatMul transpose_b=1 " FLOAT_A(m) " 32:f32:160x128 -> 33:f32:" m "x160"
/* The same, constant. */
#define CONSTANT(m)                                                                       \
    "DynamicDequantize qtype=per_group group_shape=1,32 10:s4!:160x128 11:f16!:160x4 -> " \
    "2:f32:160x128; MatMul transpose_b=1 1:f32:" m "x128 2:f32:160x128 -> 3:f32:" m "x160"
#define TWO_ALONG_K(m) ALONG_K(m, "32", "4", FLOAT_A(m)) "; " OTHER_ALONG_K(m, "32", "4")
#define SAME_A "A by what the step before made"
#define ALONG_N(m, group, scales)                                                          \
    "DynamicDequantize qtype=per_group group_shape=" group " 10:s4:128x256 11:f16:" scales \
    " -> 2:f32:128x256; MatMul 1:f32:" m "x128 2:f32:128x256 -> 3:f32:" m "x256"
#define FLOAT_A(m) "1:f32:" m "x128"
#define CODES_OF_A(m)                                                              \
    "DynamicDequantize qtype=per_group group_shape=1,32 20:u8:" m "x128 21:f32:" m \
    "x4 -> 1:f32:" m "x128; "

#define QUANTISE(kind, group, in, out)                                                     \
    "DynamicQuantize quantization_kind=" kind " qtype=per_group group_shape=" group " " in \
    " -> " out

#define PRODUCTS "products by LIBXSMM"
#define ONE_THREAD "by one thread (rows of an output share bytes)"
#define SERIAL ", " ONE_THREAD
#define SHORT_GROUPS "(groups of B along K are too short for the decoder)"
#define ODD_GROUPS "(groups are not of 16, 32, 64 or a multiple of 128 elements)"
#define SCATTERED "(groups do not lie one after the other in all tensors)"
#define SHARED_SLABS                                                                            \
    "by slabs shared by all threads (too few groups for the threads, or groups too tall for a " \
    "cache)"
#define IN_PLACE "elements by floats where they lie"
#define FAST_CODES "codes by registers"
#define SLOW_CODES "codes by floats in memory (no function for this type of codes)"

#define CONVOLUTION(weights)                                                                    \
    "Convolution strides=1,1 pads_begin=1,1 pads_end=1,1 dilations=1,1 1:f32:1x8x8x16 " weights \
    " -> 3:f32:1x8x8x40"

static const way_case_t cases[] = {
    /* ---- caches in tiles --------------------------------------------------------------------- */
    {.what = "codes of a cache in tiles, strict",
     .graph = CODES_K_V("4", "32", "2"),
     .cache = true,
     .at = {GENERIC = PRODUCTS, AVX2 = K_AND_V("f32 FMA" ON_TILES)}},
    {.what = "codes of a cache in tiles, f16",
     .graph = CODES_K_V("4", "32", "2"),
     .mode = sinter_fpmath_mode_f16,
     .cache = true,
     .at = {GENERIC = PRODUCTS, AVX2 = K_AND_V(TWO_LIMBS ON_TILES),
            AVX512 = K_AND_V("f32 FMA" ON_TILES), VNNI = K_AND_V(TWO_LIMBS ON_TILES)}},
    {.what = "codes of a cache in tiles, int8",
     .graph = CODES_K_V("16", "32", "2"),
     .mode = sinter_fpmath_mode_int8,
     .cache = true,
     .at = {GENERIC = PRODUCTS, AVX2 = K_AND_V(ONE_LIMB ON_TILES),
            AVX512 = K_AND_V("f32 FMA" ON_TILES), VNNI = K_AND_V(ONE_LIMB ON_TILES)}},
    {.what = "floats of a cache in tiles",
     .graph = FLOAT_K_V("1"),
     .cache = true,
     .at = {GENERIC = PRODUCTS, AVX2 = K_AND_V("f32 FMA" ON_TILES " of floats")}},
    {.what = "a convolution with constant weights",
     .graph = CONVOLUTION("2:f32!:3x3x16x40"),
     .at = {GENERIC = PRODUCTS, AVX2 = "products by " UNPACKED}},
    {.what = "a convolution with weights that change",
     .graph = CONVOLUTION("2:f32:3x3x16x40"),
     EVERYWHERE(PRODUCTS)},
    {.what = "decoding, floats",
     .graph = FLOAT_K_V("1"),
     .at = {GENERIC = PRODUCTS, AVX2 = IN_FLOATS(ANY_SCALES, FEW_SCALES)}},
    {.what = "decoding, codes, f16",
     .graph = CODES_K_V("1", "32", "2"),
     .mode = sinter_fpmath_mode_f16,
     .at = {GENERIC = PRODUCTS,
            AVX2 = K_AND_V(TWO_LIMBS) LOOPS("one chunk", "words of whole chunks"),
            AVX2_VNNI = K_AND_V(TWO_LIMBS) LOOPS("one chunk", "whole chunks"),
            AVX512 = IN_FLOATS(ANY_SCALES, FEW_SCALES),
            VNNI = K_AND_V(TWO_LIMBS) LOOPS("one chunk", "whole chunks")}},
    {.what = "decoding, codes, int8",
     .graph = CODES_K_V("1", "32", "2"),
     .mode = sinter_fpmath_mode_int8,
     .at = {GENERIC = PRODUCTS,
            AVX2 = K_AND_V(ONE_LIMB) LOOPS("one chunk", "words of whole chunks"),
            AVX2_VNNI = K_AND_V(ONE_LIMB) LOOPS("one chunk", "whole chunks"),
            AVX512 = IN_FLOATS(ANY_SCALES, FEW_SCALES),
            VNNI = K_AND_V(ONE_LIMB) LOOPS("one chunk", "whole chunks")}},
    {.what = "decoding, floats, a token has all heads side by side",
     .graph = ATTENTION("1", "2:f32:1x4x96x64:24576x64x256x1", "5:f32:1x4x96x64:24576x64x256x1"),
     .at = {GENERIC = PRODUCTS,
            AVX2 = IN_FLOATS(ANY_SCALES, FEW_SCALES) ", heads by pieces of the cache in turn"}},
    {.what = "decoding, floats, a mask in memory",
     .graph = MASKED("4", SCALED("4")),
     .at = {GENERIC = LISTS PRODUCTS, AVX2 = LISTS IN_FLOATS(ANY_SCALES, FEW_SCALES)}},
    {.what = "decoding, floats, a mask in memory over a bias",
     .graph = MASKED("1", BIASED("1")),
     .at = {GENERIC = TERMS PRODUCTS, AVX2 = TERMS IN_FLOATS(ANY_SCALES, FEW_SCALES)}},
    {.what = "prefill, floats, a mask in memory",
     .graph = MASKED("64", SCALED("64")),
     EVERYWHERE(LISTS PRODUCTS)},
    {.what = "prefill, floats, a mask in memory over a bias",
     .graph = MASKED("64", BIASED("64")),
     EVERYWHERE(TERMS PRODUCTS)},
    {.what = "decoding of 4 rows, codes",
     .graph = CODES_K_V("4", "32", "2"),
     .at = {GENERIC = PRODUCTS, AVX2 = IN_FLOATS("tiles of floats", "tiles of floats"),
            AVX512 = IN_FLOATS(LANES, FEW_SCALES)}},
    {.what = "decoding of 4 rows, codes, int8",
     .graph = CODES_K_V("4", "32", "2"),
     .mode = sinter_fpmath_mode_int8,
     .at = {GENERIC = PRODUCTS,
            AVX2 = K_AND_V(ONE_LIMB) LOOPS("transposed tokens", "pairs of whole chunks"),
            AVX2_VNNI = K_AND_V(ONE_LIMB) LOOPS("one chunk", "whole chunks"),
            AVX512 = IN_FLOATS(LANES, FEW_SCALES),
            VNNI = K_AND_V(ONE_LIMB) LOOPS("one chunk", "whole chunks")}},
    {.what = "decoding of 7 rows, codes, a short last group, int8",
     .graph = SHORT_K_V("7"),
     .mode = sinter_fpmath_mode_int8,
     .at =
         {GENERIC = PRODUCTS,
          AVX2 = K_AND_V(ONE_LIMB) LOOPS(
              "transposed tokens",
              "pairs of any chunks" NOT_WHOLE) ", p.v of the rest by pairs of any chunks" NOT_WHOLE,
          AVX2_VNNI = K_AND_V(ONE_LIMB)
              LOOPS("any chunks" NOT_USUAL,
                    "any chunks" NOT_WHOLE) ", p.v of the rest by any chunks" NOT_WHOLE,
          AVX512 = K_AND_V(FMA) ", q.k by " LANES ", q.k of the rest by " LANES
                                ", p.v by " FEW_SCALES ", p.v of the rest by " FEW_SCALES,
          VNNI = K_AND_V(ONE_LIMB)
              LOOPS("any chunks" NOT_USUAL,
                    "any chunks" NOT_WHOLE) ", p.v of the rest by any chunks" NOT_WHOLE}},
    {.what = "decoding, codes, long heads, int8",
     .graph = LONG_K_V,
     .mode = sinter_fpmath_mode_int8,
     .at = {GENERIC = PRODUCTS,
            AVX2 = K_AND_V(ONE_LIMB) LOOPS("two chunks", "words of whole chunks"),
            AVX2_VNNI = K_AND_V(ONE_LIMB) LOOPS("two chunks", "whole chunks"),
            AVX512 = IN_FLOATS(ANY_SCALES, FEW_SCALES),
            VNNI = K_AND_V(ONE_LIMB) LOOPS("two chunks", "whole chunks")}},
    {.what = "decoding, groups of 8",
     .graph = CODES_K_V("1", "8", "8"),
     .at = {GENERIC = PRODUCTS,
            AVX2 = IN_FLOATS(ANY_SCALES " (scales change within chunks)",
                             "rows of any scales (scales change within chunks)"),
            AVX512 =
                IN_FLOATS(ANY_SCALES, "rows of any scales (a row has more than four scales)")}},
    {.what = "decoding, groups of 2",
     .graph = CODES_K_V("1", "2", "32"),
     .at = {GENERIC = PRODUCTS,
            AVX2 = K_AND_V(
                "tiles of floats (groups along the head do not fall on lanes)") ", " PRODUCTS}},
    {.what = "decoding, codes, a short last group",
     .graph = SHORT_K_V("1"),
     .at = {GENERIC = PRODUCTS, AVX2 = IN_FLOATS(ONE_SCALE, FEW_SCALES),
            AVX512 = IN_FLOATS(ANY_SCALES, FEW_SCALES)}},
    {.what = "decoding, codes, a short last group, int8",
     .graph = SHORT_K_V("1"),
     .mode = sinter_fpmath_mode_int8,
     .at = {GENERIC = PRODUCTS,
            AVX2 = K_AND_V(ONE_LIMB) LOOPS("any chunks" NOT_USUAL, "words of any chunks" NOT_WHOLE),
            AVX2_VNNI = K_AND_V(ONE_LIMB) LOOPS("any chunks" NOT_USUAL, "any chunks" NOT_WHOLE),
            AVX512 = IN_FLOATS(ANY_SCALES, FEW_SCALES),
            VNNI = K_AND_V(ONE_LIMB) LOOPS("any chunks" NOT_USUAL, "any chunks" NOT_WHOLE)}},
    {.what = "prefill, floats", .graph = FLOAT_K_V("64"), EVERYWHERE(PRODUCTS)},
    {.what = "prefill, floats, bf16",
     .graph = FLOAT_K_V("64"),
     .mode = sinter_fpmath_mode_bf16,
     EVERYWHERE(PRODUCTS)},
    {.what = "prefill, codes, int8",
     .graph = CODES_K_V("64", "32", "2"),
     .mode = sinter_fpmath_mode_int8,
     .at = {GENERIC = PRODUCTS, AVX2 = "products by " ONE_LIMB, AVX512 = PRODUCTS,
            VNNI = "products by " ONE_LIMB}},
    {.what = "prefill, codes, a short last group, int8",
     .graph = SHORT_K_V("64"),
     .mode = sinter_fpmath_mode_int8,
     .at = {GENERIC = PRODUCTS, AVX2 = "products by " ONE_LIMB, AVX512 = PRODUCTS,
            VNNI = "products by " ONE_LIMB}},
    {.what = "prefill, codes in groups of 8, int8",
     .graph = CODES_K_V("64", "8", "8"),
     .mode = sinter_fpmath_mode_int8,
     .at = {GENERIC = PRODUCTS,
            AVX2 = PRODUCTS " (groups of K are not made of blocks of 16 to 128 elements)",
            AVX512 = PRODUCTS,
            VNNI = PRODUCTS " (groups of K are not made of blocks of 16 to 128 elements)"}},
    {.what = "prefill, codes in groups of 16, int8",
     .graph = CODES_K_V("64", "16", "4"),
     .mode = sinter_fpmath_mode_int8,
     .at = {GENERIC = PRODUCTS,
            AVX2 = PRODUCTS " (groups of V are not made of ranges of 32 elements)",
            AVX512 = PRODUCTS,
            VNNI = PRODUCTS " (groups of V are not made of ranges of 32 elements)"}},
    {.what = "decoding, rows of the output share bytes",
     .graph = FLOAT_K_V("7") "; TypeCast 6:f32:1x4x7x64 -> 7:u4:1x4x7x64:1820x455x65x1",
     .at = {GENERIC = PRODUCTS SERIAL, AVX2 = SEVEN_FLOATS("twelve sums") SERIAL,
            AVX512 = SEVEN_FLOATS(ANY_SCALES) SERIAL}},
    {.what = "prefill, rows of the output share bytes",
     .graph = FLOAT_K_V("64") "; TypeCast 6:f32:1x4x64x64 -> 7:u4:1x4x64x64:16640x4160x65x1",
     EVERYWHERE(PRODUCTS SERIAL)},

    {.what = "one row, codes along K, strict",
     .graph = ALONG_K("1", "32", "4", FLOAT_A("1")),
     .at = {GENERIC = PRODUCTS, AVX2 = "by " FMA}},
    {.what = "one row, codes along K, f16",
     .graph = ALONG_K("1", "32", "4", FLOAT_A("1")),
     .mode = sinter_fpmath_mode_f16,
     .at = {GENERIC = PRODUCTS, AVX2 = "by " TWO_LIMBS, AVX512 = "by " FMA,
            VNNI = "by " TWO_LIMBS}},
    {.what = "one row, codes along K, int8",
     .graph = ALONG_K("1", "32", "4", FLOAT_A("1")),
     .mode = sinter_fpmath_mode_int8,
     .at = {GENERIC = PRODUCTS, AVX2 = "by " ONE_LIMB, AVX512 = "by " FMA, VNNI = "by " ONE_LIMB}},
    {.what = "one row of codes, codes along K",
     .graph = CODES_OF_A("1") ALONG_K("1", "32", "4", FLOAT_A("1")),
     .at = {GENERIC = PRODUCTS, AVX2 = "by " EXACT_CODES, AVX512 = "by " FMA,
            VNNI = "by " EXACT_CODES}},
    {.what = "one row, codes along K, a short last group, strict",
     .graph = ALONG_K("1", "96", "2", FLOAT_A("1")),
     .at = {GENERIC = PRODUCTS, AVX2 = "by " FMA}},
    {.what = "one row, codes along K, a short last group, int8",
     .graph = ALONG_K("1", "96", "2", FLOAT_A("1")),
     .mode = sinter_fpmath_mode_int8,
     .at = {GENERIC = PRODUCTS, AVX2 = "by " ONE_LIMB, AVX512 = "by " FMA, VNNI = "by " ONE_LIMB}},
    {.what = "64 rows, codes along K, a short last group, int8",
     .graph = ALONG_K("64", "96", "2", FLOAT_A("64")),
     .mode = sinter_fpmath_mode_int8,
     .at = {GENERIC = PRODUCTS, AVX2 = "products by " ONE_LIMB, AVX512 = PRODUCTS,
            VNNI = "products by " ONE_LIMB}},
    {.what = "one row of codes, constant codes, strict",
     .graph = CODES_OF_A("1") CONSTANT("1"),
     .at = {GENERIC = PRODUCTS, AVX2 = "by " EXACT_CODES ON_TILES, AVX512 = "by f32 FMA" ON_TILES,
            VNNI = "by " EXACT_CODES ON_TILES}},
    {.what = "64 rows of codes, constant codes, strict",
     .graph = CODES_OF_A("64") CONSTANT("64"),
     .at = {GENERIC = PRODUCTS, AVX2 = "products by " EXACT_CODES, AVX512 = "products by " UNPACKED,
            VNNI = "products by " EXACT_CODES}},
    {.what = "64 rows, constant codes, strict",
     .graph = CONSTANT("64"),
     .at = {GENERIC = PRODUCTS, AVX2 = "products by " UNPACKED}},
    {.what = "one row, constant floats",
     .graph = "MatMul 1:f32:1x128 2:f32!:128x160 -> 3:f32:1x160",
     .at = {GENERIC = PRODUCTS, AVX2 = "by f32 FMA" ON_TILES " of floats"}},
    {.what = "4 rows, constant bf16, a full constant cache",
     .graph = "MatMul transpose_b=1 1:f32:4x128 2:bf16!:160x128 -> 3:f32:4x160",
     .no_copies = true,
     .at = {GENERIC = PRODUCTS, AVX2 = "by " FMA}},
    {.what = "one row, constant codes, strict",
     .graph = CONSTANT("1"),
     .at = {GENERIC = PRODUCTS, AVX2 = "by f32 FMA" ON_TILES}},
    {.what = "one row, constant codes, f16",
     .graph = CONSTANT("1"),
     .mode = sinter_fpmath_mode_f16,
     .at = {GENERIC = PRODUCTS, AVX2 = "by " TWO_LIMBS ON_TILES, AVX512 = "by f32 FMA" ON_TILES,
            VNNI = "by " TWO_LIMBS ON_TILES}},
    {.what = "16 rows, constant codes, int8",
     .graph = CONSTANT("16"),
     .mode = sinter_fpmath_mode_int8,
     .at = {GENERIC = PRODUCTS, AVX2 = "by " ONE_LIMB ON_TILES, AVX512 = "by f32 FMA" ON_TILES,
            VNNI = "by " ONE_LIMB ON_TILES}},
    {.what = "16 rows, constant codes, a full constant cache",
     .graph = CONSTANT("16"),
     .mode = sinter_fpmath_mode_int8,
     .no_copies = true,
     .at = {GENERIC = PRODUCTS, AVX2 = "by " ONE_LIMB, AVX512 = "by " FMA, VNNI = "by " ONE_LIMB}},
    {.what = "one row, constant codes of 4 bits along N, a full constant cache",
     .graph = "DynamicDequantize qtype=per_group group_shape=32,1 10:u4!:128x160 11:f16!:4x160 -> "
              "2:f32:128x160; MatMul 1:f32:1x128 2:f32:128x160 -> 3:f32:1x160",
     .no_copies = true,
     .at = {GENERIC = PRODUCTS, AVX2 = "by " FMA ", scales by sums of rows"}},
    {.what = "one row, codes along N, a short last group of rows",
     .graph = ALONG_N("1", "48,1", "3x256"),
     .at = {GENERIC = PRODUCTS, AVX2 = "by " FMA ", scales by sums of rows"}},
    {.what = "one row, codes along N, a short last group of columns",
     .graph = ALONG_N("1", "1,96", "128x3"),
     .at = {GENERIC = PRODUCTS, AVX2 = "by " FMA ", scales by lanes of codes (groups along K are "
                                       "short and those along N are no whole chunks)"}},
    {.what = "one row, codes along K, groups of 2, strict",
     .graph = ALONG_K("1", "2", "64", FLOAT_A("1")),
     .at = {GENERIC = PRODUCTS, AVX2 = "by panels " SHORT_GROUPS ", " PRODUCTS}},
    {.what = "one row, codes along K, groups of 2, f16",
     .graph = ALONG_K("1", "2", "64", FLOAT_A("1")),
     .mode = sinter_fpmath_mode_f16,
     .at = {GENERIC = PRODUCTS, AVX2 = "by panels " SHORT_GROUPS ", " PRODUCTS SHORT_BLOCKS,
            AVX512 = "by panels " SHORT_GROUPS ", " PRODUCTS,
            VNNI = "by panels " SHORT_GROUPS ", " PRODUCTS SHORT_BLOCKS}},
    {.what = "one row, floats along N",
     .graph = "MatMul 1:f32:1x128 2:f32:128x256 -> 3:f32:1x256",
     .at = {GENERIC = PRODUCTS, AVX2 = "by " FMA ", scales by nothing"}},
    {.what = "one row, codes along N, groups of 32 rows",
     .graph = ALONG_N("1", "32,1", "4x256"),
     .at = {GENERIC = PRODUCTS, AVX2 = "by " FMA ", scales by sums of rows"}},
    {.what = "one row, codes along N, groups of 128 columns",
     .graph = ALONG_N("1", "1,128", "128x2"),
     .at = {GENERIC = PRODUCTS,
            AVX2 = "by " FMA ", scales by chunks of codes (groups along K are short)"}},
    {.what = "one row, codes along N, groups of 32 columns",
     .graph = ALONG_N("1", "1,32", "128x8"),
     .at = {GENERIC = PRODUCTS, AVX2 = "by " FMA ", scales by lanes of codes (groups along K are "
                                       "short and those along N are no whole chunks)"}},
    {.what = "one row, codes along N, groups of 4 columns",
     .graph = ALONG_N("1", "1,4", "128x64"),
     .at = {GENERIC = PRODUCTS, AVX2 = "by panels (groups along K are short and groups along N do "
                                       "not fall on lanes), " PRODUCTS}},
    {.what = "64 rows, floats",
     .graph = "MatMul 1:f32:64x128 2:f32:128x160 -> 3:f32:64x160",
     EVERYWHERE(PRODUCTS)},
    {.what = "64 rows, floats, bf16",
     .graph = "MatMul 1:f32:64x128 2:f32:128x160 -> 3:f32:64x160",
     .mode = sinter_fpmath_mode_bf16,
     EVERYWHERE(PRODUCTS)},
    {.what = "64 rows, codes along K, f16",
     .graph = ALONG_K("64", "32", "4", FLOAT_A("64")),
     .mode = sinter_fpmath_mode_f16,
     .at = {GENERIC = PRODUCTS, AVX2 = "products by " TWO_LIMBS, AVX512 = PRODUCTS,
            VNNI = "products by " TWO_LIMBS}},
    {.what = "64 rows, codes along K, int8",
     .graph = ALONG_K("64", "32", "4", FLOAT_A("64")),
     .mode = sinter_fpmath_mode_int8,
     .at = {GENERIC = PRODUCTS, AVX2 = "products by " ONE_LIMB, AVX512 = PRODUCTS,
            VNNI = "products by " ONE_LIMB}},
    {.what = "64 rows, codes of 8 bits along K, int8",
     .graph =
         "DynamicDequantize qtype=per_group group_shape=1,32 10:s8:160x128 11:f16:160x4"
         " -> 2:f32:160x128; MatMul transpose_b=1 " FLOAT_A("64") " 2:f32:160x128 -> 3:f32:64x160",
     .mode = sinter_fpmath_mode_int8,
     .at = {GENERIC = PRODUCTS,
            AVX2 = "products by " TWO_LIMBS, [sinter_isa_avx2_vnni] = "products by " ONE_LIMB,
            AVX512 = PRODUCTS, VNNI = "products by " ONE_LIMB}},
    {.what = "64 rows of codes, codes along K",
     .graph = CODES_OF_A("64") ALONG_K("64", "32", "4", FLOAT_A("64")),
     .at = {GENERIC = PRODUCTS, AVX2 = "products by " EXACT_CODES, AVX512 = PRODUCTS,
            VNNI = "products by " EXACT_CODES}},
    {.what = "a convolution of codes",
     .graph = CODES_OF_IMAGE("u8") CODES_OF_KERNEL("s8"),
     .at = {GENERIC = PRODUCTS, AVX2 = "products by " EXACT_CODES, AVX512 = PRODUCTS,
            VNNI = "products by " EXACT_CODES}},
    {.what = "a convolution of codes in groups, with a scale for each channel of results",
     .graph = CODES_OF_IMAGE("u8") "Dequantize qtype=per_channel axis=3 "
                                   "scales=0.5,1,2,3,0.25,4 3:s8:3x3x16x6 -> 4:f32:3x3x16x6; "
                                   "Convolution strides=1,1 pads_begin=1,1 pads_end=1,1 "
                                   "dilations=1,1 groups=2 2:f32:1x9x9x32 4:f32:3x3x16x6 -> "
                                   "5:f32:1x9x9x6",
     .at = {GENERIC = PRODUCTS, AVX2 = "products by " EXACT_CODES, AVX512 = PRODUCTS,
            VNNI = "products by " EXACT_CODES}},
    {.what = "a convolution of codes of 4 bits",
     .graph = CODES_OF_IMAGE("u4") CODES_OF_KERNEL("s4"),
     .at = {GENERIC = PRODUCTS, AVX2 = "products by " EXACT_CODES, AVX512 = PRODUCTS,
            VNNI = "products by " EXACT_CODES}},
    {.what = "one row, two projections of it, int8",
     .graph = TWO_ALONG_K("1"),
     .mode = sinter_fpmath_mode_int8,
     .at = {GENERIC = PRODUCTS, AVX2 = "by " ONE_LIMB ", " SAME_A, AVX512 = "by " FMA,
            VNNI = "by " ONE_LIMB ", " SAME_A}},
    {.what = "64 rows, two projections of them, int8",
     .graph = TWO_ALONG_K("64"),
     .mode = sinter_fpmath_mode_int8,
     .at = {GENERIC = PRODUCTS, AVX2 = "products by " ONE_LIMB ", " SAME_A, AVX512 = PRODUCTS,
            VNNI = "products by " ONE_LIMB ", " SAME_A}},
    {.what = "64 rows, two projections of them, groups of 32 and of 16, int8",
     .graph = ALONG_K("64", "32", "4", FLOAT_A("64")) "; " OTHER_ALONG_K("64", "16", "8"),
     .mode = sinter_fpmath_mode_int8,
     .at = {GENERIC = PRODUCTS, AVX2 = "products by " ONE_LIMB, AVX512 = PRODUCTS,
            VNNI = "products by " ONE_LIMB}},
    {.what = "64 rows, rows of the output share bytes",
     .graph = "MatMul 1:f32:64x128 2:f32:128x160 -> 3:f32:64x160; "
              "TypeCast 3:f32:64x160 -> 4:u4:64x160:161x1",
     EVERYWHERE(PRODUCTS SERIAL)},
    {.what = "two rows, codes along K, rows of the output share bytes",
     .graph = ALONG_K("2", "32", "4", FLOAT_A("2")) "; "
                                                    "TypeCast 3:f32:2x160 -> 4:u4:2x160:161x1",
     .at = {GENERIC = PRODUCTS SERIAL, AVX2 = "by " FMA SERIAL}},
    {.what = "two rows, codes along N, rows of the output share bytes",
     .graph = ALONG_N("2", "32,1", "4x256") "; TypeCast 3:f32:2x256 -> 4:u4:2x256:257x1",
     .at = {GENERIC = PRODUCTS SERIAL, AVX2 = "by " FMA ", scales by sums of rows" SERIAL}},

    {.what = "elementwise, small",
     .graph = "Add 1:f32:8x96 2:f32:8x96 -> 3:f32:8x96",
     EVERYWHERE("by runs (what is written may stay in the caches)")},
    {.what = "elementwise, transposed",
     .graph = "Add 1:f32:96x80 2:f32:96x80:1x96 -> 3:f32:96x80",
     EVERYWHERE("by square tiles (what is written may stay in the caches)")},
    {.what = "doubles, small",
     .graph = "Add 1:f64:8x96 2:f64:8x96 -> 3:f64:8x96",
     EVERYWHERE("by runs (what is written may stay in the caches)")},
    {.what = "doubles, transposed",
     .graph = "Add 1:f64:96x80 2:f64:96x80:1x96 -> 3:f64:96x80",
     EVERYWHERE("by elements one by one (registers hold doubles)")},
    {.what = "doubles to floats",
     .graph = "TypeCast 1:f64:8x96 -> 2:f32:8x96",
     EVERYWHERE("by conversion in one loop")},
    {.what = "integers of 32 bits to bytes",
     .graph = "TypeCast 1:s32:8x96 -> 2:s8:8x96",
     EVERYWHERE("by conversion in one loop")},
    {.what = "integers of 64 bits to integers of 32",
     .graph = "TypeCast 1:s64:8x96 -> 2:s32:8x96",
     EVERYWHERE("by conversion in one loop")},
    {.what = "doubles to halves, whose digits a float loses",
     .graph = "TypeCast 1:f64:8x96 -> 2:f16:8x96",
     EVERYWHERE("by runs (what is written may stay in the caches)")},
    {.what = "converted, transposed",
     .graph = "TypeCast 1:f32:96x80:1x96 -> 2:bf16:96x80",
     EVERYWHERE("by transposed tiles")},
    {.what = "elementwise, larger than the cache",
     .graph = "Add 1:f32:64x4096 2:f32:64x4096 -> 3:f32:64x4096",
     .cache_bytes = 4096,
     EVERYWHERE("by tiles past the caches")},
    {.what = "dequantised, larger than the cache",
     .graph = "DynamicDequantize qtype=per_group group_shape=1,32 1:s8:64x4096 2:f32:64x128 -> "
              "3:f32:64x4096",
     .cache_bytes = 4096,
     .on_machine = true,
     .at = {GENERIC = "by tiles past the caches", AVX2 = "by conversion past the caches"}},
    {.what = "elementwise, rows of the output share bytes",
     .graph = "Add 1:f32:8x96 2:f32:8x96 -> 3:f32:8x96; TypeCast 3:f32:8x96 -> 4:u4:8x96:97x1",
     EVERYWHERE("by runs (what is written may stay in the caches)" SERIAL)},
    {.what = "dequantised, larger than the cache, a short last group",
     .graph = "DynamicDequantize qtype=per_group group_shape=1,48 1:s8:64x4096 2:f32:64x86 -> "
              "3:f32:64x4096",
     .cache_bytes = 4096,
     .on_machine = true,
     .at = {GENERIC = "by tiles past the caches", AVX2 = "by conversion past the caches"}},
    {.what = "elementwise, quantised, rows of the output share bytes",
     .graph = "GELU 1:f32:8x96 -> 2:f32:8x96; " QUANTISE("dynamic_symmetric", "1,32", "2:f32:8x96",
                                                         "3:s4:8x96:97x1 4:f32:8x3"),
     EVERYWHERE(ONE_THREAD)},

    {.what = "softmax of 96",
     .graph = "SoftMax axis=-1 1:f32:8x96 -> 2:f32:8x96",
     EVERYWHERE("by rows in cache")},
    {.what = "softmax of 5000",
     .graph = "SoftMax axis=-1 1:f32:8x5000 -> 2:f32:8x5000",
     EVERYWHERE("by rows in three passes (rows of more than 4096 elements)")},
    {.what = "softmax of columns",
     .graph = "SoftMax axis=0 1:f32:40x96 -> 2:f32:40x96",
     EVERYWHERE("by columns (the axis is not contiguous)")},
    {.what = "softmax, rows of the output share bytes",
     .graph = "SoftMax axis=-1 1:f32:8x96 -> 2:f32:8x96; TypeCast 2:f32:8x96 -> 3:u4:8x96:97x1",
     EVERYWHERE("by rows in cache" SERIAL)},

    {.what = "a norm that memory gets",
     .graph = "RMSNorm 1:f32:8x4096 2:f32:4096 -> 3:f32:8x4096",
     .cache_bytes = 4096,
     EVERYWHERE("by rows past the caches, by one pass that scales and stores")},
    {.what = "norms of short rows",
     .graph = "RMSNorm 1:f32:40x64 2:f32:64 -> 3:f32:40x64",
     EVERYWHERE("by rows in batches, by passes of the chain")},
    {.what = "norms of long rows",
     .graph = "RMSNorm 1:f32:8x4096 2:f32:4096 -> 3:f32:8x4096",
     EVERYWHERE("by rows one by one, by one pass that scales and stores")},
    {.what = "norms of long rows of bf16",
     .graph = "LayerNorm keep_stats=0 1:bf16:8x4096 2:bf16:4096 3:bf16:4096 -> 4:bf16:8x4096",
     EVERYWHERE("by rows one by one, by one pass that scales")},
    {.what = "a rotary embedding of several heads at once",
     .graph = "RotaryEmbedding 1:f32:2x4x8x64 2:f32:2x8x32 3:f32:2x8x32 -> 4:f32:2x4x8x64",
     EVERYWHERE("by rows in batches")},
    {.what = "rows that memory gets",
     .graph = "Gather 1:s4:100x1024 2:s32:8 -> 3:s4:8x1024",
     .cache_bytes = 4096,
     EVERYWHERE("by rows past the caches")},
    {.what = "tokens of a cache in tiles",
     .graph = "ScatterRows 10:s8:100x64 1:s32:3 3:s8:3x64 -> 20:s8:100x64",
     .cache = true,
     EVERYWHERE("by tokens of tiles")},
    {.what = "rows of a table in tiles",
     .graph = "Gather 1:f16:100x64 2:s32:8 -> 3:f16:8x64",
     .tiles = true,
     EVERYWHERE("by rows of tiles")},
    {.what = "rows that stay in the caches",
     .graph = "Gather 1:f16:100x64 2:s32:8 -> 3:f16:8x64",
     EVERYWHERE("by rows (what is written may stay in the caches)")},
    {.what = "columns in another order",
     .graph = "Gather axis=1 1:f32:8x64 2:s32:64 -> 3:f32:8x64",
     EVERYWHERE("by elements")},
    {.what = "pairs of floats by indices of 64 bits",
     .graph = "Gather axis=1 1:f32:8x64x2 2:s64:2x3 -> 3:f32:8x2x3x2",
     EVERYWHERE("by elements")},
    {.what = "short rows that are no element",
     .graph = "Gather 1:f32:100x3 2:s32:8 -> 3:f32:8x3",
     EVERYWHERE("by rows (rows are not of 1, 2, 4, 8 or 16 bytes)")},
    {.what = "rows of elements that lie apart",
     .graph = "Gather 1:f32:100x2:4x2 2:s32:8 -> 3:f32:8x2",
     EVERYWHERE("by rows (elements of a row lie apart)")},
    {.what = "columns of codes of four bits",
     .graph = "Gather axis=1 1:u4:8x64 2:s32:64 -> 3:u4:8x64",
     EVERYWHERE("by rows (elements share bytes), by one thread (rows of an output share bytes)")},
    {.what = "columns of a transposed cache",
     .graph = "ScatterRows axis=1 1:f16:64x100 2:s32:3 3:f16:64x3 -> 4:f16:64x100",
     EVERYWHERE("by elements")},
    {.what = "rows of a cache",
     .graph = "ScatterRows 1:f16:100x64 2:s32:3 3:f16:3x64 -> 4:f16:100x64",
     EVERYWHERE("by rows")},
    {.what = "states in the order of keys, and many tokens",
     .graph = "LinearAttention mode=gated 1:f32:2x5x2x16 2:f32:2x5x2x16 3:f32:2x5x4x32 "
              "4:f32:2x4x32x16 5:f32:2x5x4x1 -> 7:f32:2x5x4x32 8:f32:2x4x32x16",
     EVERYWHERE("by a copy by columns (many tokens are worth a copy in which columns follow one "
                "another)")},
    {.what = "states in the order of keys, and one token",
     .graph = "LinearAttention mode=gated 1:f32:2x1x2x16 2:f32:2x1x2x16 3:f32:2x1x4x32 "
              "4:f32:2x4x32x16 5:f32:2x1x4x1 -> 7:f32:2x1x4x32 8:f32:2x4x32x16",
     EVERYWHERE("by keys in place (columns do not follow one another)")},
    {.what = "states of bf16 in the order of keys, and one token",
     .graph = "LinearAttention mode=gated 1:f32:2x1x2x16 2:f32:2x1x2x16 3:f32:2x1x4x32 "
              "4:bf16:2x4x32x16 5:f32:2x1x4x1 -> 7:f32:2x1x4x32 8:bf16:2x4x32x16",
     EVERYWHERE("by a copy by keys (states are not f32 at addresses of floats)")},
    {.what = "states whose columns follow one another",
     .graph = "LinearAttention mode=gated 1:f32:2x5x2x16 2:f32:2x5x2x16 3:f32:2x5x4x32 "
              "4:f32:2x4x32x16:2048x512x1x32 5:f32:2x5x4x1 -> 7:f32:2x5x4x32 "
              "8:f32:2x4x32x16:2048x512x1x32",
     EVERYWHERE("by columns in place")},
    {.what = "the best experts",
     .graph = "TopK k=4 1:f32:8x64 -> 2:f32:8x4 3:s32:8x4",
     EVERYWHERE("by short rows at once")},
    {.what = "the best of long rows",
     .graph = "TopK k=4 1:f32:8x264 -> 2:f32:8x4 3:s32:8x4",
     EVERYWHERE("by blocks of floats")},
    {.what = "many best of rows",
     .graph = "TopK k=49 1:f32:8x264 -> 2:f32:8x49 3:s32:8x49",
     EVERYWHERE("by sorting what is collected")},
    {.what = "many of the least integers",
     .graph = "TopK k=264 largest=0 1:s64:8x264 -> 2:s64:8x264 3:s32:8x264",
     EVERYWHERE("by sorting what is collected (the elements need double precision)")},
    {.what = "the largest integers",
     .graph = "TopK k=4 1:s32:8x64 -> 2:s32:8x4 3:s32:8x4",
     EVERYWHERE("by elements one by one (the elements need double precision)")},

    {.what = "quantised, groups of 32",
     .graph = QUANTISE("dynamic_symmetric", "1,32", "1:f32:8x256", "2:s8:8x256 3:f32:8x8"),
     .on_machine = true,
     .at = {GENERIC = "by slabs of groups (no function for these types), " IN_PLACE ", " SLOW_CODES,
            AVX2 = "by chunks of groups"}},
    {.what = "quantised, f16, groups of 320",
     .graph = QUANTISE("dynamic_symmetric", "1,320", "1:f16:5x320", "2:s8:5x320 3:f32:5x1"),
     .on_machine = true,
     .at = {GENERIC =
                "by slabs of groups " ODD_GROUPS ", elements by conversion to floats (no function "
                "measures elements of this type), " SLOW_CODES,
            AVX2 = "by slabs of groups " ODD_GROUPS
                   ", elements by 16 bits where they lie, " FAST_CODES}},
    {.what = "quantised, bf16, groups of 4 rows and 4 columns",
     .graph =
         QUANTISE("dynamic_asymmetric", "4,4", "1:bf16:8x64", "2:u4:8x64 3:f32:2x16 4:u4:2x16"),
     .on_machine = true,
     .at = {GENERIC =
                "by slabs of groups " SCATTERED ", elements by conversion to floats (no function "
                "measures elements of this type), " SLOW_CODES,
            AVX2 = "by slabs of groups " SCATTERED ", elements by conversion to floats (groups are "
                   "not of a multiple of 16 columns), " FAST_CODES}},
    {.what = "quantised, groups of 32, codes with gaps",
     .graph = QUANTISE("dynamic_symmetric", "1,32", "1:f32:8x256", "2:s8:8x256:512x2 3:f32:8x8"),
     .on_machine = true,
     .at = {GENERIC = "by slabs of groups " SCATTERED ", " IN_PLACE ", " SLOW_CODES,
            AVX2 = "by slabs of groups " SCATTERED ", " IN_PLACE
                   ", codes by floats in memory (codes of a row have gaps)"}},
    {.what = "quantised, a short last group",
     .graph = QUANTISE("dynamic_symmetric", "1,32", "1:f32:8x240", "2:s8:8x240 3:f32:8x8"),
     .on_machine = true,
     .at = {GENERIC = "by slabs of groups (no function for these types), " IN_PLACE ", " SLOW_CODES,
            AVX2 = "by chunks of groups"}},
    {.what = "quantised, a short last group that shares bytes",
     .graph = QUANTISE("dynamic_symmetric", "1,5", "1:f32:8x18", "2:s4:8x18 3:f32:8x4"),
     .threads = 2,
     .on_machine = true,
     .at = {GENERIC = "by slabs of groups " ODD_GROUPS ", " IN_PLACE ", " SLOW_CODES SERIAL,
            AVX2 = "by slabs of groups " ODD_GROUPS ", " IN_PLACE ", " FAST_CODES SERIAL}},
    {.what = "quantised by three threads, one group",
     .graph = QUANTISE("dynamic_mx", "1,40000", "1:f32:1x40000", "2:f8_e4m3:1x40000 3:e8m0:1x1"),
     .threads = 3,
     .on_machine = true,
     .at = {GENERIC = SHARED_SLABS ", " IN_PLACE ", " SLOW_CODES,
            AVX2 = SHARED_SLABS ", " IN_PLACE ", " FAST_CODES}},
};

/* ---- running --------------------------------------------------------------------------------- */

/* taken[table][row]: the levels at which a case took it, as bits. */
typedef unsigned taken_levels_t[MOST_TABLES][MOST_ROWS];

static void mark_taken(const way_row_t *row, sinter_cpu_isa_t isa, const char *what,
                       taken_levels_t taken)
{
    bool listed = false;
    for (int t = 0; t < sinter_n_way_tables && !listed; t++) {
        const way_row_t *rows = sinter_way_tables[t].rows;
        int i = 0;
        while (&rows[i] != row && rows[i].refuse != NULL) {
            i++;
        }
        listed = &rows[i] == row;
        taken[t][i] |= listed ? 1u << isa : 0;
    }
    CHECK(listed, "%s: \"%s\" is a way of no table in kernels.def", what, row->name);
}

/* As SINTER_VERBOSE=exec prints them. */
static void print_ways(const choice_t *choice, char *text, size_t size)
{
    text[0] = '\0';
    for (int i = 0; i < choice->n_ways; i++) {
        const way_t *w = &choice->ways[i];
        const size_t at = strlen(text);
        snprintf(text + at, size - at, "%s%s%sby %s%s%s%s", i > 0 ? ", " : "",
                 w->of != NULL ? w->of : "", w->of != NULL ? " " : "", w->row->name,
                 w->why != NULL ? " (" : "", w->why != NULL ? w->why : "",
                 w->why != NULL ? ")" : "");
    }
}

/* LIBXSMM becomes the name of the products of floats that libxsmm allows at this level. */
static void expected_ways(const way_case_t *c, sinter_cpu_isa_t isa, char *text, size_t size)
{
    static const char mark[] = "LIBXSMM";
    const features_t features = features_of_level(isa);
    const char *want = c->at[isa];
    want = want == NULL && isa == sinter_isa_avx512_vnni ? c->at[sinter_isa_avx512] : want;
    want = want == NULL ? c->at[sinter_isa_avx2] : want;
    const char *at = strstr(want, mark);
    const bool bf16 = c->mode == sinter_fpmath_mode_bf16 && isa == sinter_isa_avx512_vnni &&
                      xs_refuse(XS_BF16F32, features) == NULL;
    snprintf(text, size, "%.*s%s%s", at != NULL ? (int)(at - want) : (int)strlen(want), want,
             at == NULL                            ? ""
             : bf16                                ? "bf16 brgemm"
             : xs_refuse(XS_F32, features) == NULL ? "f32 brgemm"
                                                   : "own f32 gemm",
             at != NULL ? at + strlen(mark) : "");
}

/* Every step chooses, for tensors without memory. */
static void choose_all(const way_case_t *c, sinter_cpu_isa_t isa,
                       sinter_compiled_partition_t *compiled, taken_levels_t taken)
{
    plan_t *plan = &compiled->plan;
    unsigned char **data = calloc((size_t)plan->n_values, sizeof *data);
    void *memory = aligned_alloc(SCRATCH_ALIGN, scratch_round(compiled->plan.frame_bytes));
    char text[1024], want[1024];
    size_t total;
    if (!CHECK(data != NULL && memory != NULL, "out of memory")) {
        free(memory);
        free(data);
        return;
    }
    plan->cache_bytes = c->cache_bytes > 0 ? c->cache_bytes : plan->cache_bytes;
    frame_mem_t *fm = frame_place(plan, memory);
    const same_dims_t *broken;
    sinter_status_t status = frame_shapes(plan, fm, &broken);
    for (int i = plan->n_values - plan->n_packed; i < plan->n_values && c->no_copies; i++) {
        fm->v[i] = fm->v[plan->values[i].base];
    }
    if (status == sinter_success) {
        frame_data(plan, fm, data, NULL);
        status = frame_choose(
            plan, fm, (threads_t){.most = c->threads > 0 ? c->threads : 1, .all = true}, &total);
    }
    if (CHECK(status == sinter_success, "%s: %s", c->what, sinter_last_error_message())) {
        const taken_t *last = &fm->taken[plan->n_steps - 1];
        for (int i = 0; i < last->choice.n_ways; i++) {
            mark_taken(last->choice.ways[i].row, isa, c->what, taken);
        }
        print_ways(&last->choice, text, sizeof text);
        expected_ways(c, isa, want, sizeof want);
        CHECK(strcmp(text, want) == 0, "%s at %s: %s goes %s, expected %s", c->what,
              sinter_cpu_isa_name(isa), last->candidate->kernel->name, text, want);
    }
    free(memory);
    free(data);
}

/* Codes or floats of K, or of what becomes it, are 2, 10 and 20, those of V 5 and 12, scales 11 and
 * 13. Tokens are columns, but of codes of V. */
static sinter_status_t lay_cache(sinter_logical_tensor_t *lt)
{
    const bool k = lt->id == 2 || lt->id == 10 || lt->id == 20, v = lt->id == 5 || lt->id == 12;
    return !k && !v && lt->id != 11 && lt->id != 13
               ? sinter_success
               : sinter_logical_tensor_set_weights_layout(lt,
                                                          k   ? sinter_weights_codes
                                                          : v ? sinter_weights_codes_blocks
                                                              : sinter_weights_values,
                                                          0, !v);
}

static void run(const way_case_t *c, sinter_engine_t *engine, sinter_cpu_isa_t isa,
                taken_levels_t taken)
{
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partition = NULL;
    sinter_compiled_partition_t *compiled = NULL;
    size_t n = 0;
    sinter_status_t status = spec_graph(&graph, engine, c->graph);
    status = status == sinter_success ? sinter_graph_filter(graph, sinter_partition_policy_fusion)
                                      : status;
    status = status == sinter_success ? sinter_graph_get_partition_num(graph, &n) : status;
    CHECK(status == sinter_success && n == 1, "%s: %zu partitions: %s", c->what, n,
          sinter_last_error_message());
    if (status == sinter_success && n == 1) {
        status = sinter_graph_get_partitions(graph, 1, &partition);
        status = status == sinter_success
                     ? sinter_partition_set_fpmath_mode(partition, c->mode, true)
                     : status;
        sinter_logical_tensor_t in[5], out[1];
        size_t n_in = c->tiles ? 2 : 0, n_out = 0;
        if (c->cache && status == sinter_success) {
            n_out = 1;
            status = sinter_partition_get_input_num(partition, &n_in);
            status = status == sinter_success ? sinter_partition_get_inputs(partition, n_in, in)
                                              : status;
            status =
                status == sinter_success ? sinter_partition_get_outputs(partition, 1, out) : status;
            for (size_t i = 0; i <= n_in && status == sinter_success; i++) {
                status = lay_cache(i < n_in ? &in[i] : &out[0]);
            }
        }
        if (c->tiles && status == sinter_success) {
            status = sinter_partition_get_inputs(partition, 2, in);
            status =
                status == sinter_success
                    ? sinter_logical_tensor_set_weights_layout(&in[0], sinter_weights_values, 0, 1)
                    : status;
        }
        status = status == sinter_success
                     ? sinter_partition_compile(partition, engine, n_in, in, n_out, out, &compiled)
                     : status;
        CHECK(status == sinter_success, "%s: %s", c->what, sinter_last_error_message());
    }
    if (compiled != NULL) {
        choose_all(c, isa, compiled, taken);
    }
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
}

static bool machine_has(sinter_cpu_isa_t isa)
{
    return level_of_features(features_up_to(isa)) == isa;
}

static void run_all(sinter_cpu_isa_t isa, taken_levels_t taken)
{
    sinter_engine_t *engine = NULL;
    CHECK(sinter_engine_create(&engine, NULL) == sinter_success, "engine: %s",
          sinter_last_error_message());
    for (size_t i = 0; i < sizeof cases / sizeof *cases && engine != NULL; i++) {
        engine->features = features_of_level(isa);
        if (machine_has(isa) || !cases[i].on_machine) {
            run(&cases[i], engine, isa, taken);
        }
    }
    sinter_engine_destroy(&engine);
}

/* ---- nothing is forgotten -------------------------------------------------------------------- */

static bool can_be_taken(unsigned caps, sinter_cpu_isa_t isa)
{
    const features_t features = features_of_level(isa);
    const bool f32 = xs_refuse(XS_F32, features) == NULL,
               bf16 = xs_refuse(XS_BF16F32, features) == NULL;
    return (caps & 1u << isa) != 0 && ((caps & WITH_F32) == 0 || f32) &&
           ((caps & WITHOUT_F32) == 0 || !f32) && ((caps & WITH_BF16) == 0 || bf16) &&
           ((caps & ON_MACHINE) == 0 || machine_has(isa));
}

static const struct roll *find(const char *table, const char *way)
{
    for (size_t i = 0; i < sizeof roll / sizeof *roll; i++) {
        if (strcmp(roll[i].table, table) == 0 && strcmp(roll[i].way, way) == 0) {
            return &roll[i];
        }
    }
    return NULL;
}

static int check_row(const char *table, const char *way, unsigned taken)
{
    const struct roll *r = find(table, way);
    if (!CHECK(r != NULL, "%s, \"%s\": roll does not say at which levels", table, way)) {
        return 0;
    }
    for (int isa = sinter_isa_generic; isa < LEVELS; isa++) {
        const bool can = can_be_taken(r->caps, (sinter_cpu_isa_t)isa),
                   is = (taken & 1u << isa) != 0;
        CHECK(can == is, "%s, \"%s\" at %s: %s", table, way,
              sinter_cpu_isa_name((sinter_cpu_isa_t)isa),
              can ? "no case takes it" : "a case takes it, but roll says that none can");
    }
    return 1;
}

static void check_rows(taken_levels_t taken)
{
    int found = 0;
    for (int t = 0; t < sinter_n_way_tables; t++) {
        const way_row_t *row = sinter_way_tables[t].rows;
        for (int i = 0; i == 0 || row[i - 1].refuse != NULL; i++) {
            found += check_row(sinter_way_tables[t].name, row[i].name, taken[t][i]);
        }
    }
    CHECK(found == (int)(sizeof roll / sizeof *roll), "roll has ways that no table has");
}

int main(void)
{
    static taken_levels_t taken;
    if (!CHECK(sinter_n_way_tables <= MOST_TABLES, "MOST_TABLES is too small")) {
        return 1;
    }
    for (int isa = sinter_isa_generic; isa < LEVELS; isa++) {
        run_all((sinter_cpu_isa_t)isa, taken);
    }
    check_rows(taken);
    return check_finish();
}
