/* Which kernel runs a graph: each case is a graph with the kernels that it must get at each ISA
 * level, the reasons that better kernels were refused and the arithmetic that the report names. A
 * fast path that is no longer chosen fails here by its name. Every row of kernels.def must be
 * chosen by some case. Nothing is executed: an engine is told what features it has, so every level
 * is tested on every machine. */
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter.h>

#include "backend_xsmm/exec/compiled.h"
#include "check.h"
#include "spec.h"

enum { MOST_TEXTS = 4 };

typedef struct expected {
    const char *steps;             /* kernels of the steps in order, separated by spaces */
    const char *texts[MOST_TEXTS]; /* parts of the report, or of "KERNEL refused: REASON" for any
                                      kernel that is better than the one chosen */
} expected_t;

typedef struct selection_case {
    const char *what, *graph;
    sinter_fpmath_mode_t mode;
    bool apply_to_int;
    expected_t at[LEVELS];   /* by sinter_cpu_isa_t; no steps: the same as at avx2 */
    expected_t without_bf16; /* at avx512_vnni where CPU or libxsmm have no bf16 products; no steps:
                                the same as with them */
    bool products;           /* the report says whether libxsmm multiplies */
    const char *never;       /* what the report must not say; NULL: nothing in particular */
    bool tiles;              /* tensors 10 and 11, codes and scales, have opaque layouts */
    bool cache; /* K and V have opaque layouts: of tensors 10 to 13, or those of floats, 2 and 5 */
} selection_case_t;

/* ---- the graphs ------------------------------------------------------------------------------ */

#define ATTENTION(s, t, k, v)                                                  \
    "MatMul transpose_b=1 1:f32:1x4x" s "x64 " k " -> 3:f32:1x4x" s "x" t "; " \
    "SoftMax axis=-1 3:f32:1x4x" s "x" t " -> 4:f32:1x4x" s "x" t "; "         \
    "MatMul 4:f32:1x4x" s "x" t " " v " -> 6:f32:1x4x" s "x64"
#define FLOATS(s, t) ATTENTION(s, t, "2:f32:1x4x" t "x64", "5:f32:1x4x" t "x64")
/* K, or V, as codes with a scale for each 32 elements of a head. */
#define CODES_OF(type, t, codes, scales, to)                                           \
    "DynamicDequantize qtype=per_group group_shape=1,1,1,32 " codes ":" type ":1x4x" t \
    "x64 " scales ":f16:1x4x" t "x2 -> " to ":f32:1x4x" t "x64; "
#define CODES_IN(type, s, t) \
    CODES_OF(type, t, "10", "11", "2") CODES_OF(type, t, "12", "13", "5") FLOATS(s, t)
#define CODES(s, t) CODES_IN("s4", s, t)
/* One token of 128 heads that share a cache, whose first 512 of 576 elements are the values. */
#define LATENT(k)                                                                         \
    k "MatMul transpose_b=1 1:f32:1x128x1x576 2:f32:1x1x4096x576 -> 3:f32:1x128x1x4096; " \
      "SoftMax axis=-1 3:f32:1x128x1x4096 -> 4:f32:1x128x1x4096; "                        \
      "Slice starts=0 ends=512 axes=3 2:f32:1x1x4096x576 -> 5:f32:1x1x4096x512; "         \
      "MatMul 4:f32:1x128x1x4096 5:f32:1x1x4096x512 -> 6:f32:1x128x1x512"
#define LATENT_CODES                                                                    \
    LATENT("DynamicDequantize qtype=per_group group_shape=1,1,1,32 10:s4:1x1x4096x576 " \
           "11:f16:1x1x4096x18 -> 2:f32:1x1x4096x576; ")
/* K with the tokens contiguous. */
#define TURNED_K                                                                                  \
    "MatMul 1:f32:1x4x1x64 2:f32:1x4x64x96 -> 3:f32:1x4x1x96; SoftMax axis=-1 3:f32:1x4x1x96 -> " \
    "4:f32:1x4x1x96; "                                                                            \
    "MatMul 4:f32:1x4x1x96 5:f32:1x4x96x64 -> 6:f32:1x4x1x64"

/* Weights of s4 with a scale for each 32 elements of K, stored [N, K] or [K, N]. */
#define ALONG_K(m, a)                                                                   \
    "DynamicDequantize qtype=per_group group_shape=1,32 10:s4:160x128 11:f16:160x4 -> " \
    "2:f32:160x128; "                                                                   \
    "MatMul transpose_b=1 " a " 2:f32:160x128 -> 3:f32:" m "x160"
/* Codes that no product of integers and no decoder of few rows takes. */
#define ROW_OF_F6                                                                            \
    "DynamicDequantize qtype=per_group group_shape=1,32 10:f6_e2m3:160x128 11:f16:160x4 -> " \
    "2:f32:160x128; "                                                                        \
    "MatMul transpose_b=1 1:f32:1x128 2:f32:160x128 -> 3:f32:1x160"
#define ALONG_N(m)                                                                      \
    "DynamicDequantize qtype=per_group group_shape=32,1 10:s4:128x160 11:f16:4x160 -> " \
    "2:f32:128x160; "                                                                   \
    "MatMul 1:f32:" m "x128 2:f32:128x160 -> 3:f32:" m "x160"
#define OFFSETS_ALONG_K(a)                                                               \
    "DynamicDequantize qtype=per_group group_shape=1,32 zps_kind=offsets 10:u4:160x128 " \
    "11:f16:160x4 12:f16:160x4 -> 2:f32:160x128; "                                       \
    "MatMul transpose_b=1 " a " 2:f32:160x128 -> 3:f32:1x160"
#define OFFSETS_ALONG_N                                                                  \
    "DynamicDequantize qtype=per_group group_shape=32,1 zps_kind=offsets 10:u4:128x160 " \
    "11:f16:4x160 12:f16:4x160 -> 2:f32:128x160; "                                       \
    "MatMul 1:f32:1x128 2:f32:128x160 -> 3:f32:1x160"
#define FLOAT_A(m) "1:f32:" m "x128"
#define CODES_OF_A(m)                                                              \
    "DynamicDequantize qtype=per_group group_shape=1,32 20:u8:" m "x128 21:f32:" m \
    "x4 -> 1:f32:" m "x128; "
#define ROWS_OF_F4(m)                                                                   \
    "DynamicDequantize qtype=per_group group_shape=1,16 20:f4_e2m1:" m "x128 21:f32:" m \
    "x8 -> 1:f32:" m "x128; "
#define FLOAT_ZPS_OF_A                                                                         \
    "DynamicDequantize qtype=per_group group_shape=1,32 20:u8:1x128 21:f32:1x4 22:f32:1x4 -> " \
    "1:f32:1x128; "
#define CONSTANT(m)                                                                       \
    "DynamicDequantize qtype=per_group group_shape=1,32 10:s4!:160x128 11:f16!:160x4 -> " \
    "2:f32:160x128; MatMul transpose_b=1 1:f32:" m "x128 2:f32:160x128 -> 3:f32:" m "x160"
/* The same with a scale for each block of N and K. */
#define BLOCKS_OF_SCALES(type, m, block, scales)                                                   \
    "DynamicDequantize qtype=per_group group_shape=" block " 10:" type "!:160x128 11:f32!:" scales \
    " -> 2:f32:160x128; "                                                                          \
    "MatMul transpose_b=1 1:f32:" m "x128 2:f32:160x128 -> 3:f32:" m "x160"
#define DENSE(m) "MatMul " FLOAT_A(m) " 2:f32:128x160 -> 3:f32:" m "x160"
/* Constant weights of plain floats. */
#define PLAIN(m, type) "MatMul " FLOAT_A(m) " 2:" type "!:128x160 -> 3:f32:" m "x160"
#define PLAIN_ALONG_K(m, type) \
    "MatMul transpose_b=1 " FLOAT_A(m) " 10:" type "!:160x128 -> 3:f32:" m "x160"

/* Rows of two experts each, as s4 with a scale for each 32 elements of K. */
#define EXPERTS_OF(constant, codes, scales, n, k, groups, to)                                     \
    "Gather " codes ":s4" constant ":5x" n "x" k " 9:s32:3x2 -> " to "1:s4:3x2x" n "x" k "; "     \
    "Gather " scales ":f16" constant ":5x" n "x" groups " 9:s32:3x2 -> " to "2:f16:3x2x" n        \
    "x" groups "; DynamicDequantize qtype=per_group group_shape=1,1,1,32 " to "1:s4:3x2x" n "x" k \
    " " to "2:f16:3x2x" n "x" groups " -> " to "3:f32:3x2x" n "x" k "; "
/* The MLP of experts without a gate, whose results are summed over axis 1. */
#define EXPERTS_MLP(constant, axis, sums)                                                  \
    EXPERTS_OF(constant, "2", "3", "32", "64", "2", "2")                                   \
    EXPERTS_OF(constant, "4", "5", "48", "32", "1", "3")                                   \
    "MatMul transpose_b=1 1:f32:3x1x1x64 23:f32:3x2x32x64 -> 40:f32:3x2x1x32; "            \
    "ReLU 40:f32:3x2x1x32 -> 41:f32:3x2x1x32; Square 41:f32:3x2x1x32 -> 42:f32:3x2x1x32; " \
    "MatMul transpose_b=1 42:f32:3x2x1x32 33:f32:3x2x48x32 -> 43:f32:3x2x1x48; "           \
    "Multiply 43:f32:3x2x1x48 6:f32:3x2x1x1 -> 44:f32:3x2x1x48; "                          \
    "ReduceSum axes=" axis " 44:f32:3x2x1x48 -> 45:f32:" sums

/* With gate and up in one table, whose halves are slices from `starts` on. */
#define EXPERTS_HALVES(starts, ends)                                                     \
    EXPERTS_OF("!", "2", "3", "64", "64", "2", "2")                                      \
    EXPERTS_OF("!", "4", "5", "48", "32", "1", "3")                                      \
    "MatMul transpose_b=1 1:f32:3x1x1x64 23:f32:3x2x64x64 -> 40:f32:3x2x1x64; "          \
    "Slice starts=0 ends=32 axes=-1 40:f32:3x2x1x64 -> 41:f32:3x2x1x32; "                \
    "Slice starts=" starts " ends=" ends " axes=-1 40:f32:3x2x1x64 -> 42:f32:3x2x1x32; " \
    "Sigmoid 41:f32:3x2x1x32 -> 46:f32:3x2x1x32; "                                       \
    "Multiply 46:f32:3x2x1x32 42:f32:3x2x1x32 -> 47:f32:3x2x1x32; "                      \
    "MatMul transpose_b=1 47:f32:3x2x1x32 33:f32:3x2x48x32 -> 43:f32:3x2x1x48; "         \
    "ReduceSum axes=1 43:f32:3x2x1x48 -> 45:f32:3x1x48"

#define QUANTISE(in, kind) "DynamicQuantize quantization_kind=" kind " qtype=per_group " in

/* Texts of the report that several cases expect. */
#define NO_INT8 " " MODE_HAS_NO_INTEGERS
#define NO_INT8_ATTENTION "attention_decode_int8_vnni" NO_INT8
#define NO_INT8_ATTENTION_AVX2 "attention_decode_int8_avxvnni" NO_INT8
#define MODE_HAS_NO_INTEGERS                                                            \
    "refused: the fpmath mode does not allow products of integers with floats, or rows" \
    " are of codes, not floats"
#define IDLE(mode, reason) "  fpmath " mode " changes nothing: " reason "\n"
#define BYTES_IN_FLOATS "without VNNI, codes of 8 bits are faster in floats"
#define NO_CODES "the data type has no codes that are small integers"
#define MODE_HAS_NO_BF16 "refused: the fpmath mode does not allow bf16 products"
#define LACKS(has, kernels) "  preferred, but this engine has only " has ": " kernels "\n"
#define NO_DECODER " refused: no decoder for the data type of B"
#define SHARING_COLUMNS                                                                       \
    " refused: columns of B share scales or zero points in groups that are not 2, 4, 8 or a " \
    "multiple of 16 of them"
#define FLOATS_OF_B " refused: B is made of floats"
#define COLUMNS_OF_E4M3                                                                         \
    " refused: for up to 4 rows of A, columns of f8_e4m3 are read where they lie: there is no " \
    "AVX-512, or groups of 16"
#define SHORT_GROUPS_OF_A " refused: groups of A along K are not whole tiles of 32 elements"
#define NO_INTEGERS_OF_A \
    " refused: A is not made of integers of 8 bits or fewer, or its zero points are no integers"
#define NO_BYTES "B is not made of integers of 8 bits or fewer"
#define MANY_QUERIES(kernel) kernel " refused: needs 1 to 8 query rows for each K and V"
#define DECODE_OR_FLASH(isa)                                                  \
    {                                                                         \
        "attention_decode_f32_" isa,                                          \
        {                                                                     \
            "  chosen at execute: attention_decode_f32_" isa                  \
            " (1 to 8 query rows for each K and V, 16 tokens or more), else " \
            "attention_flash_f32_" isa,                                       \
                "  attention_flash_f32_" isa ": scratch "                     \
        }                                                                     \
    }
#define QUANTISES(isa) "chain_runs_f32_" isa " refused: the step quantises its results"
#define MANY_ROWS(kernel) kernel " refused: more than 16 rows share one B"
#define TWO_LIMBS "16-bit integers (two 8-bit limbs)"
#define FLOAT_K_V "K by f32 FMA on decoded registers, V by f32 FMA on decoded registers"

#define GENERIC [sinter_isa_generic]
#define AVX2 [sinter_isa_avx2]
#define AVX512 [sinter_isa_avx512]
#define VNNI [sinter_isa_avx512_vnni]
#define AVX2_VNNI [sinter_isa_avx2_vnni]
/* One kernel for each instruction set, whatever the mode allows. */
#define BY_ISA(stem)                                                  \
    {                                                                 \
        GENERIC = {stem "_generic", {0}}, AVX2 = {stem "_avx2", {0}}, \
        AVX512 = {stem "_avx512", {0}}, VNNI = {                      \
            stem "_avx512",                                           \
            {0}                                                       \
        }                                                             \
    }
/* The same kernel on every machine. */
#define ANYWHERE(kernel)                                                                \
    {                                                                                   \
        GENERIC = {kernel, {0}}, AVX2 = {kernel, {0}}, AVX512 = {kernel, {0}}, VNNI = { \
            kernel,                                                                     \
            {0}                                                                         \
        }                                                                               \
    }

#define UNPACKS_CACHE(isa)                                                                       \
    {                                                                                            \
        "attention_flash_f32_" isa,                                                              \
        {                                                                                        \
            "unpacked from tiles, ", "reads tensor 10 in tiles, as it was given",                \
                "attention_cache_f32_" isa " refused: needs 1 to 16 query rows for each K and V" \
        }                                                                                        \
    }

static const selection_case_t cases[] = {
    /* ---- attention --------------------------------------------------------------------------- */
    {.what = "decode, floats",
     .graph = FLOATS("1", "96"),
     .at = {GENERIC = {"attention_flash_f32_generic",
                       {LACKS("generic", "attention_decode_f32_avx512 (needs avx512), "
                                         "attention_decode_f32_avx2 (needs avx2), "
                                         "attention_flash_f32_avx512 (needs avx512), "
                                         "attention_flash_f32_avx2 (needs avx2)")}},
            AVX2 = {"attention_decode_f32_avx2",
                    {LACKS("avx2", "attention_decode_f32_avx512 (needs avx512)"), "1 query row,",
                     FLOAT_K_V}},
            AVX2_VNNI = {"attention_decode_f32_avx2",
                         {LACKS("avx2_vnni", "attention_decode_f32_avx512 (needs avx512)"),
                          NO_INT8_ATTENTION_AVX2, FLOAT_K_V}},
            AVX512 = {"attention_decode_f32_avx512", {"1 query row,", FLOAT_K_V}},
            VNNI = {"attention_decode_f32_avx512",
                    {NO_INT8_ATTENTION, "1 query row,", FLOAT_K_V}}}},
    {.what = "decode, codes, strict",
     .graph = CODES("1", "96"),
     .at = {GENERIC = {"attention_flash_f32_generic", {0}},
            AVX2 = {"attention_decode_f32_avx2", {FLOAT_K_V}},
            AVX512 = {"attention_decode_f32_avx512", {FLOAT_K_V}},
            VNNI = {"attention_decode_f32_avx512", {NO_INT8_ATTENTION, FLOAT_K_V}}}},
    {.what = "decode, codes, f16",
     .graph = CODES("1", "96"),
     .mode = sinter_fpmath_mode_f16,
     .apply_to_int = true,
     .at = {GENERIC = {"attention_flash_f32_generic", {0}},
            AVX2 = {"attention_decode_int8_avx2", {"K by " TWO_LIMBS, "V by " TWO_LIMBS}},
            AVX2_VNNI = {"attention_decode_int8_avxvnni", {"K by " TWO_LIMBS, "V by " TWO_LIMBS}},
            AVX512 = {"attention_decode_f32_avx512",
                      {LACKS("avx512", "attention_decode_int8_vnni (needs avx512_vnni)"),
                       FLOAT_K_V}},
            VNNI = {"attention_decode_int8_vnni", {"K by " TWO_LIMBS, "V by " TWO_LIMBS}}}},
    {.what = "decode of 8 rows, codes, int8",
     .graph = CODES("8", "96"),
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"attention_flash_f32_generic", {0}},
            AVX2 = {"attention_decode_int8_avx2",
                    {"8 query rows", "K by 8-bit integers", "V by 8-bit integers"}},
            AVX2_VNNI = {"attention_decode_int8_avxvnni",
                         {"8 query rows", "K by 8-bit integers", "V by 8-bit integers"}},
            AVX512 = {"attention_decode_f32_avx512", {0}},
            VNNI = {"attention_decode_int8_vnni",
                    {"8 query rows", "K by 8-bit integers", "V by 8-bit integers"}}}},
    {.what = "decode, codes of 4-bit floats, int8",
     .graph = CODES_IN("f4_e2m1", "4", "96"),
     .mode = sinter_fpmath_mode_int8,
     .at = {GENERIC = {"attention_flash_f32_generic", {0}},
            AVX2 = {"attention_decode_int8_avx2", {"K by 8-bit integers", "V by 8-bit integers"}},
            AVX2_VNNI = {"attention_decode_int8_avxvnni", {"K by 8-bit integers"}},
            AVX512 = {"attention_decode_f32_avx512", {0}},
            VNNI = {"attention_decode_int8_vnni", {"K by 8-bit integers"}}}},
    {.what = "decode, codes, int8, with queries that are codes, too",
     .graph = "DynamicDequantize qtype=per_group group_shape=1,1,1,64 20:s8:1x4x1x64 "
              "21:f32:1x4x1x1 -> 1:f32:1x4x1x64; " CODES("1", "96"),
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"attention_flash_f32_generic", {0}},
            AVX2 = {"attention_decode_f32_avx2", {"attention_decode_int8_avx2" NO_INT8}},
            AVX512 = {"attention_decode_f32_avx512", {0}},
            VNNI = {"attention_decode_f32_avx512", {NO_INT8_ATTENTION}}}},
    {.what = "decode, codes, a mode that does not apply to integers",
     .graph = CODES("1", "96"),
     .mode = sinter_fpmath_mode_f16,
     .at = {GENERIC = {"attention_flash_f32_generic", {0}},
            AVX2 = {"attention_decode_f32_avx2",
                    {"attention_decode_int8_avx2" NO_INT8,
                     IDLE("f16", "it does not apply to integers")}},
            AVX2_VNNI = {"attention_decode_f32_avx2", {NO_INT8_ATTENTION_AVX2}},
            AVX512 = {"attention_decode_f32_avx512", {0}},
            VNNI = {"attention_decode_f32_avx512", {NO_INT8_ATTENTION}}}},
    {.what = "decode, codes of 8 bits, int8",
     .graph = CODES_IN("s8", "1", "96"),
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"attention_flash_f32_generic", {0}},
            AVX2 = {"attention_decode_f32_avx2",
                    {"attention_decode_int8_avx2 refused: " BYTES_IN_FLOATS,
                     IDLE("int8", BYTES_IN_FLOATS " (attention_decode_int8_avx2)")}},
            AVX2_VNNI = {"attention_decode_int8_avxvnni", {"K by 8-bit integers"}},
            AVX512 = {"attention_decode_f32_avx512",
                      {IDLE("int8", "needs avx512_vnni (attention_decode_int8_vnni)")}},
            VNNI = {"attention_decode_int8_vnni", {"K by 8-bit integers"}}}},
    {.what = "decode, K in codes and V in floats, any",
     .graph = CODES_OF("s4", "96", "10", "11", "2") FLOATS("1", "96"),
     .mode = sinter_fpmath_mode_any,
     .apply_to_int = true,
     .at = {GENERIC = {"attention_flash_f32_generic", {0}},
            AVX2 = {"attention_decode_int8_avx2",
                    {"K by " TWO_LIMBS ", V by f32 FMA on decoded registers (" NO_CODES ")"}},
            AVX2_VNNI = {"attention_decode_int8_avxvnni", {"(" NO_CODES ")"}},
            AVX512 = {"attention_decode_f32_avx512", {0}},
            VNNI = {"attention_decode_int8_vnni", {"(" NO_CODES ")"}}}},
    {.what = "decode, codes in tiles, strict",
     .graph = CODES("4", "96"),
     .cache = true,
     .at = {GENERIC = {"attention_flash_f32_generic",
                       {"unpacked from tiles, ", "reads tensor 12 in tiles, as it was given"}},
            AVX2 = {"attention_cache_f32_avx2",
                    {"4 query rows, kv-tile ",
                     "rows times tiles of K and V: f32 FMA on decoded registers",
                     "reads tensor 10 in tiles, as it was given",
                     "reads tensor 12 in tiles, as it was given"}},
            AVX512 = {"attention_cache_f32_avx512", {"4 query rows, kv-tile "}},
            VNNI = {"attention_cache_f32_avx512", {"attention_cache_int8_vnni" NO_INT8}}}},
    {.what = "decode, codes of K with the tokens last in tiles, strict",
     .graph = "DynamicDequantize qtype=per_group group_shape=1,1,32,1 10:s4:1x4x64x96 "
              "11:f16:1x4x2x96 -> 2:f32:1x4x64x96; " CODES_OF("s4", "96", "12", "13", "5") TURNED_K,
     .cache = true,
     .at = {GENERIC = {"attention_flash_f32_generic", {0}},
            AVX2 = {"attention_cache_f32_avx2",
                    {"reads tensor 10 in tiles, as it was given",
                     "reads tensor 12 in tiles, as it was given"}},
            AVX512 = {"attention_cache_f32_avx512", {0}},
            VNNI = {"attention_cache_f32_avx512", {0}}}},
    {.what = "decode of 16 rows, codes in tiles, f16",
     .graph = CODES_IN("s8", "16", "96"),
     .mode = sinter_fpmath_mode_f16,
     .apply_to_int = true,
     .cache = true,
     .at = {GENERIC = {"attention_flash_f32_generic", {0}},
            AVX2 = {"attention_cache_int8_avx2", {"16 query rows", "tiles of K and V: " TWO_LIMBS}},
            AVX2_VNNI = {"attention_cache_int8_avxvnni", {"tiles of K and V: " TWO_LIMBS}},
            AVX512 = {"attention_cache_f32_avx512", {0}},
            VNNI = {"attention_cache_int8_vnni", {"tiles of K and V: " TWO_LIMBS}}}},
    {.what = "decode, floats in tiles, int8",
     .graph = FLOATS("1", "96"),
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .cache = true,
     .at = {GENERIC = {"attention_flash_f32_generic", {0}},
            AVX2 = {"attention_cache_f32_avx2",
                    {"attention_cache_int8_avx2 refused: the data types have no codes that are "
                     "small integers"}},
            AVX2_VNNI = {"attention_cache_f32_avx2", {0}},
            AVX512 = {"attention_cache_f32_avx512", {0}},
            VNNI = {"attention_cache_f32_avx512", {0}}}},
    {.what = "prefill, codes in tiles",
     .graph = CODES("64", "96"),
     .products = true,
     .cache = true,
     .at = {GENERIC = {"attention_flash_f32_generic", {"unpacked from tiles, "}},
            AVX2 = UNPACKS_CACHE("avx2"), AVX512 = UNPACKS_CACHE("avx512"),
            VNNI = UNPACKS_CACHE("avx512")}},
    {.what = "decode, K with the tokens contiguous",
     .graph = TURNED_K,
     .at = {GENERIC = {"attention_flash_f32_generic", {0}},
            AVX2 = {"attention_flash_f32_avx2",
                    {"attention_decode_f32_avx2 refused: a head is not contiguous"}},
            AVX512 = {"attention_flash_f32_avx512",
                      {"attention_decode_f32_avx512 refused: a head is not contiguous"}},
            VNNI = {"attention_flash_f32_avx512",
                    {"attention_decode_int8_vnni refused: a head is not contiguous"}}}},
    {.what = "prefill, floats",
     .graph = FLOATS("64", "96"),
     .products = true,
     .at = {GENERIC = {"attention_flash_f32_generic", {0}},
            AVX2 = {"attention_flash_f32_avx2", {MANY_QUERIES("attention_decode_f32_avx2")}},
            AVX512 = {"attention_flash_f32_avx512", {MANY_QUERIES("attention_decode_f32_avx512")}},
            VNNI = {"attention_flash_f32_avx512",
                    {MANY_QUERIES("attention_decode_int8_vnni"),
                     "attention_flash_bf16_avx512 " MODE_HAS_NO_BF16}}}},
    {.what = "prefill, floats, bf16",
     .graph = FLOATS("64", "96"),
     .mode = sinter_fpmath_mode_bf16,
     .products = true,
     .at = {GENERIC = {"attention_flash_f32_generic", {0}},
            AVX2 = {"attention_flash_f32_avx2", {0}}, AVX512 = {"attention_flash_f32_avx512", {0}},
            VNNI = {"attention_flash_bf16_avx512", {"bf16 brgemm libxsmm"}}},
     .without_bf16 = {"attention_flash_f32_avx512", {"attention_flash_bf16_avx512 refused: "}}},
    {.what = "prefill, codes, any",
     .graph = CODES("64", "96"),
     .mode = sinter_fpmath_mode_any,
     .apply_to_int = true,
     .at = {GENERIC = {"attention_flash_f32_generic", {0}},
            AVX2 = {"attention_flash_f32_avx2", {0}}, AVX512 = {"attention_flash_f32_avx512", {0}},
            VNNI = {"attention_flash_bf16_avx512", {"bf16 brgemm libxsmm"}}},
     .without_bf16 = {"attention_flash_f32_avx512", {"attention_flash_bf16_avx512 refused: "}}},
    {.what = "prefill, codes, int8",
     .graph = CODES("64", "96"),
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"attention_flash_f32_generic", {0}},
            AVX2 = {"attention_flash_int8_avx2", {"8-bit integers"}},
            AVX2_VNNI = {"attention_flash_int8_avxvnni", {"8-bit integers"}},
            AVX512 = {"attention_flash_f32_avx512", {0}},
            VNNI = {"attention_flash_int8_vnni", {"8-bit integers"}}}},
    {.what = "prefill, codes of 8 bits, int8",
     .graph = CODES_IN("s8", "64", "96"),
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"attention_flash_f32_generic", {0}},
            AVX2 = {"attention_flash_f32_avx2",
                    {"attention_flash_int8_avx2 refused: " BYTES_IN_FLOATS}},
            AVX2_VNNI = {"attention_flash_int8_avxvnni", {"8-bit integers"}},
            AVX512 = {"attention_flash_f32_avx512", {0}},
            VNNI = {"attention_flash_int8_vnni", {"8-bit integers"}}}},
    {.what = "latent attention, floats",
     .graph = LATENT(""),
     .products = true,
     .at = {GENERIC = {"attention_flash_f32_generic", {"q-block 144 in strips of 24"}},
            AVX2 = {"attention_flash_f32_avx2", {"q-block 144 in strips of 24, kv-tile 64"}},
            AVX512 = {"attention_flash_f32_avx512", {"q-block 144 in strips of 24, kv-tile 64"}},
            VNNI = {"attention_flash_f32_avx512", {"q-block 144 in strips of 24, kv-tile 64"}}}},
    {.what = "latent attention, codes, int8",
     .graph = LATENT_CODES,
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"attention_flash_f32_generic", {0}},
            AVX2 = {"attention_flash_int8_avx2", {"kv-tile 128, 8-bit integers"}},
            AVX2_VNNI = {"attention_flash_int8_avxvnni", {"kv-tile 128, 8-bit integers"}},
            AVX512 = {"attention_flash_f32_avx512", {0}},
            VNNI = {"attention_flash_int8_vnni", {"kv-tile 128, 8-bit integers"}}}},
    {.what = "prefill, a number of queries not known at compile",
     .graph = FLOATS("?", "96"),
     .at = {GENERIC = {"attention_flash_f32_generic", {0}}, AVX2 = DECODE_OR_FLASH("avx2"),
            AVX512 = DECODE_OR_FLASH("avx512"), VNNI = DECODE_OR_FLASH("avx512")}},

    /* ---- matmul ------------------------------------------------------------------------------ */
    {.what = "one row, codes along K, strict",
     .graph = ALONG_K("1", FLOAT_A("1")),
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_rows_f32_avx2",
                    {LACKS("avx2", "matmul_rows_f32_avx512 (needs avx512)"),
                     "K: f32 FMA on decoded registers"}},
            AVX2_VNNI = {"matmul_rows_f32_avx2",
                         {"matmul_rows_int8_avxvnni " MODE_HAS_NO_INTEGERS}},
            AVX512 = {"matmul_rows_f32_avx512", {"K: f32 FMA on decoded registers"}},
            VNNI = {"matmul_rows_f32_avx512",
                    {"matmul_rows_int8_vnni " MODE_HAS_NO_INTEGERS,
                     "K: f32 FMA on decoded registers"}}}},
    {.what = "one row, codes along K, bf16",
     .graph = ALONG_K("1", FLOAT_A("1")),
     .mode = sinter_fpmath_mode_bf16,
     .apply_to_int = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_rows_int8_avx2", {"K: " TWO_LIMBS}},
            AVX512 = {"matmul_rows_f32_avx512", {0}},
            VNNI = {"matmul_rows_int8_vnni", {"K: " TWO_LIMBS}},
            AVX2_VNNI = {"matmul_rows_int8_avxvnni", {"K: " TWO_LIMBS}}}},
    {.what = "16 rows, codes along K, int8",
     .graph = ALONG_K("16", FLOAT_A("16")),
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_rows_int8_avx2", {"K: 8-bit integers"}},
            AVX512 = {"matmul_rows_f32_avx512", {0}},
            VNNI = {"matmul_rows_int8_vnni", {"K: 8-bit integers"}},
            AVX2_VNNI = {"matmul_rows_int8_avxvnni", {"K: 8-bit integers"}}}},
    {.what = "rows not known at compile, codes along K, f16",
     .graph = ALONG_K("?", FLOAT_A("?")),
     .mode = sinter_fpmath_mode_f16,
     .apply_to_int = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_rows_int8_avx2", {"K: " TWO_LIMBS}},
            AVX512 = {"matmul_rows_f32_avx512", {0}},
            VNNI = {"matmul_rows_int8_vnni",
                    {"K: " TWO_LIMBS, TWO_LIMBS " where groups along K are made of blocks"}},
            AVX2_VNNI = {"matmul_rows_int8_avxvnni", {"K: " TWO_LIMBS}}}},
    {.what = "one row, constant codes along K, strict",
     .graph = CONSTANT("1"),
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_f32_avx2",
                    {"reads tensor 10, which is constant, in tiles", "tiles of B: f32 FMA"}},
            AVX512 = {"matmul_tiles_f32_avx512",
                      {"reads tensor 10, which is constant, in tiles", "tiles of B: f32 FMA"}},
            VNNI = {"matmul_tiles_f32_avx512",
                    {"matmul_tiles_int8_vnni " MODE_HAS_NO_INTEGERS,
                     "reads tensor 11, which is constant, in tiles"}}}},
    {.what = "one row, constant codes with a scale for each block of N and K, strict",
     .graph = BLOCKS_OF_SCALES("s8", "1", "32,64", "5x2"),
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_f32_avx2",
                    {"reads tensor 11, which is constant, in tiles", "tiles of B: f32 FMA"}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}},
            VNNI = {"matmul_tiles_f32_avx512", {"reads tensor 11, which is constant, in tiles"}}}},
    {.what = "4 rows, constant codes with a scale for each 4 columns, int8",
     .graph = BLOCKS_OF_SCALES("s4", "4", "4,128", "40x1"),
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}}, AVX2 = {"matmul_tiles_int8_avx2", {0}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}}, VNNI = {"matmul_tiles_int8_vnni", {0}},
            AVX2_VNNI = {"matmul_tiles_int8_avxvnni", {0}}}},
    {.what = "4 rows, constant codes with one scale, strict",
     .graph = "DynamicDequantize qtype=per_tensor 10:s8!:160x128 11:f32!:1 -> 2:f32:160x128; "
              "MatMul transpose_b=1 1:f32:4x128 2:f32:160x128 -> 3:f32:4x160",
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_f32_avx2",
                    {"reads tensor 11, which is constant, in tiles", "tiles of B: f32 FMA"}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}},
            VNNI = {"matmul_tiles_f32_avx512", {"reads tensor 11, which is constant, in tiles"}}}},
    {.what = "4 rows, constant codes with a scale for each 5 columns, strict",
     .graph = BLOCKS_OF_SCALES("s4", "4", "5,64", "32x2"),
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_rows_f32_avx2", {"matmul_tiles_f32_avx2" SHARING_COLUMNS}},
            AVX512 = {"matmul_rows_f32_avx512", {"matmul_tiles_f32_avx512" SHARING_COLUMNS}},
            VNNI = {"matmul_rows_f32_avx512", {"matmul_tiles_f32_avx512" SHARING_COLUMNS}}}},
    {.what = "4 rows, constant codes of f8_e5m2, int8",
     .graph = BLOCKS_OF_SCALES("f8_e5m2", "4", "1,32", "160x4"),
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_f32_avx2", {"matmul_tiles_int8_avx2" FLOATS_OF_B}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}},
            VNNI = {"matmul_tiles_f32_avx512", {"matmul_tiles_int8_vnni" FLOATS_OF_B}}}},
    {.what = "4 rows, constant codes of f8_e4m3 along K, strict",
     .graph = BLOCKS_OF_SCALES("f8_e4m3", "4", "1,32", "160x4"),
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_rows_f32_avx2", {"matmul_tiles_f32_avx2" COLUMNS_OF_E4M3}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}}, VNNI = {"matmul_tiles_f32_avx512", {0}}}},
    {.what = "4 rows, constant codes of f8_e4m3 along K in groups of 16, strict",
     .graph = BLOCKS_OF_SCALES("f8_e4m3", "4", "1,16", "160x8"),
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}}, AVX2 = {"matmul_rows_f32_avx2", {0}},
            AVX512 = {"matmul_rows_f32_avx512", {"matmul_tiles_f32_avx512" COLUMNS_OF_E4M3}},
            VNNI = {"matmul_rows_f32_avx512", {0}}}},
    {.what = "5 rows, constant codes of f8_e4m3 along K, strict",
     .graph = BLOCKS_OF_SCALES("f8_e4m3", "5", "1,16", "160x8"),
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_f32_avx2", {"reads tensor 10, which is constant, in tiles"}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}}, VNNI = {"matmul_tiles_f32_avx512", {0}}}},
    {.what = "rows not known at compile, constant codes of f8_e4m3 along K, strict",
     .graph = BLOCKS_OF_SCALES("f8_e4m3", "?", "1,32", "160x4"),
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}}, AVX2 = {"matmul_rows_f32_avx2", {0}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}}, VNNI = {"matmul_tiles_f32_avx512", {0}}}},
    {.what = "4 rows, constant codes of f8_e4m3 along N, strict",
     .graph = "DynamicDequantize qtype=per_group group_shape=32,1 10:f8_e4m3!:128x160 "
              "11:e8m0!:4x160 -> 2:f32:128x160; MatMul 1:f32:4x128 2:f32:128x160 -> 3:f32:4x160",
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_f32_avx2", {"reads tensor 10, which is constant, in tiles"}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}}, VNNI = {"matmul_tiles_f32_avx512", {0}}}},
    {.what = "4 rows, codes of f8_e4m3 given in tiles, strict",
     .graph = BLOCKS_OF_SCALES("f8_e4m3", "4", "1,32", "160x4"),
     .tiles = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_f32_avx2", {"reads tensor 10 in tiles, as it was given"}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}}, VNNI = {"matmul_tiles_f32_avx512", {0}}}},
    {.what = "4 rows, constant codes of f6_e3m2, int8",
     .graph = BLOCKS_OF_SCALES("f6_e3m2", "4", "1,32", "160x4"),
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_f32_avx2", {"matmul_tiles_int8_avx2" FLOATS_OF_B}},
            AVX512 = {"matmul_tiles_f32_avx512", {"reads tensor 10, which is constant, in tiles"}},
            VNNI = {"matmul_tiles_f32_avx512", {"matmul_tiles_int8_vnni" FLOATS_OF_B}}}},
    {.what = "1 row, codes of f6_e2m3 given in tiles, strict",
     .graph = BLOCKS_OF_SCALES("f6_e2m3", "1", "1,16", "160x8"),
     .tiles = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_f32_avx2", {"reads tensor 10 in tiles, as it was given"}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}}, VNNI = {"matmul_tiles_f32_avx512", {0}}}},
    {.what = "1 row, constant split codes of f6_e2m3, int8",
     .graph = "DynamicDequantize qtype=per_group group_shape=1,32 split_type=f6_e2m3 "
              "10:u4!:160x128 11:e8m0!:160x4 12:u2!:160x128 -> 2:f32:160x128; "
              "MatMul transpose_b=1 1:f32:1x128 2:f32:160x128 -> 3:f32:1x160",
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_f32_avx2", {"reads tensor 12, which is constant, in tiles"}},
            AVX512 = {"matmul_tiles_f32_avx512", {"reads tensor 10, which is constant, in tiles"}},
            VNNI = {"matmul_tiles_f32_avx512", {"matmul_tiles_int8_vnni" FLOATS_OF_B}}}},
    {.what = "16 rows, constant codes of 8 bits, int8",
     .graph = BLOCKS_OF_SCALES("s8", "16", "1,32", "160x4"),
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}}, AVX2 = {"matmul_tiles_int8_avx2", {0}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}}, VNNI = {"matmul_tiles_int8_vnni", {0}},
            AVX2_VNNI = {"matmul_tiles_int8_avxvnni", {0}}}},
    {.what = "one row, constant codes of 8 bits, f16",
     .graph = BLOCKS_OF_SCALES("s8", "1", "1,32", "160x4"),
     .mode = sinter_fpmath_mode_f16,
     .apply_to_int = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_f32_avx2", {BYTES_IN_FLOATS}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}}, VNNI = {"matmul_tiles_int8_vnni", {0}},
            AVX2_VNNI = {"matmul_tiles_int8_avxvnni", {0}}}},
    {.what = "one row, codes given in tiles, strict",
     .graph = CONSTANT("1"),
     .tiles = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {"reads tensor 10 in tiles, as it was given"}},
            AVX2 = {"matmul_tiles_f32_avx2",
                    {"matmul_tiles_int8_avx2 " MODE_HAS_NO_INTEGERS, "tiles of B: f32 FMA"}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}},
            VNNI = {"matmul_tiles_f32_avx512", {"reads tensor 11 in tiles, as it was given"}}}},
    {.what = "8 rows, codes given in tiles, strict",
     .graph = CONSTANT("8"),
     .tiles = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_f32_avx2", {"matmul_rows_int8_avx2 refused: B lies in tiles"}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}}, VNNI = {"matmul_tiles_f32_avx512", {0}}}},
    {.what = "17 rows, codes given in tiles, int8",
     .graph = CONSTANT("17"),
     .tiles = true,
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_blocks_int8_avx2",
                    {"matmul_tiles_int8_avx2 refused: more than 16 rows share one B"}},
            AVX512 = {"matmul_panel_f32_avx512", {0}}, VNNI = {"matmul_blocks_int8_vnni", {0}},
            AVX2_VNNI = {"matmul_blocks_int8_avxvnni", {0}}}},
    {.what = "64 rows, constant codes along K, int8",
     .graph = CONSTANT("64"),
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_blocks_int8_avx2",
                    {"reads tensor 10, which is constant, in tiles: a copy in the constant cache"}},
            AVX512 = {"matmul_panel_f32_avx512", {"reads tensor 11, which is constant, in tiles"}},
            VNNI = {"matmul_blocks_int8_vnni", {0}},
            AVX2_VNNI = {"matmul_blocks_int8_avxvnni", {0}}}},
    {.what = "16 rows, constant codes along K, int8",
     .graph = CONSTANT("16"),
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_int8_avx2",
                    {"  chosen at execute: matmul_tiles_int8_avx2 (up to 16 rows and B in tiles), "
                     "else matmul_rows_int8_avx2",
                     "tiles of B: 8-bit integers"}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}},
            VNNI = {"matmul_tiles_int8_vnni", {"tiles of B: 8-bit integers"}},
            AVX2_VNNI = {"matmul_tiles_int8_avxvnni", {"tiles of B: 8-bit integers"}}}},
    {.what = "rows not known at compile, constant codes along K, int8",
     .graph = CONSTANT("?"),
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_int8_avx2",
                    {"  chosen at execute: matmul_tiles_int8_avx2 (up to 16 rows and B in tiles), "
                     "else matmul_rows_int8_avx2 (up to 16 rows that share one B), else "}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}},
            VNNI = {"matmul_tiles_int8_vnni",
                    {"  chosen at execute: matmul_tiles_int8_vnni (up to 16 rows and B in tiles)"}},
            AVX2_VNNI = {"matmul_tiles_int8_avxvnni", {0}}}},
    {.what = "one row of codes, constant codes along K, strict",
     .graph = CODES_OF_A("1") CONSTANT("1"),
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_int8_avx2",
                    {"tiles of B: exact products of codes",
                     "reads tensor 10, which is constant, in tiles: a copy in the constant cache"}},
            AVX512 = {"matmul_tiles_f32_avx512", {"tiles of B: f32 FMA"}},
            VNNI = {"matmul_tiles_int8_vnni", {"tiles of B: exact products of codes"}},
            AVX2_VNNI = {"matmul_tiles_int8_avxvnni", {"tiles of B: exact products of codes"}}}},
    {.what = "16 rows of codes, codes given in tiles, strict",
     .graph = CODES_OF_A("16") CONSTANT("16"),
     .tiles = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_int8_avx2", {"reads tensor 10 in tiles, as it was given"}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}}, VNNI = {"matmul_tiles_int8_vnni", {0}},
            AVX2_VNNI = {"matmul_tiles_int8_avxvnni", {0}}}},
    {.what = "rows of codes, not known at compile, constant codes along K, int8",
     .graph = CODES_OF_A("?") CONSTANT("?"),
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_int8_avx2",
                    {"  chosen at execute: matmul_tiles_int8_avx2 (up to 16 rows and B in tiles), "
                     "else matmul_rows_int8_avx2 (up to 16 rows that share one B), else "}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}}, VNNI = {"matmul_tiles_int8_vnni", {0}},
            AVX2_VNNI = {"matmul_tiles_int8_avxvnni", {0}}}},
    {.what = "64 rows of codes, constant codes along K, strict",
     .graph = CODES_OF_A("64") CONSTANT("64"),
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_blocks_int8_avx2",
                    {"reads tensor 10, which is constant, in tiles: a copy in the constant cache",
                     "exact products of codes where groups along K are made of blocks"}},
            AVX512 = {"matmul_panel_f32_avx512", {"reads tensor 11, which is constant, in tiles"}},
            VNNI = {"matmul_blocks_int8_vnni", {"reads tensor 11, which is constant, in tiles"}},
            AVX2_VNNI = {"matmul_blocks_int8_avxvnni", {0}}}},
    {.what = "one row of codes in groups of 16, codes given in tiles, strict",
     .graph = ROWS_OF_F4("1") CONSTANT("1"),
     .tiles = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_f32_avx2", {"matmul_tiles_int8_avx2" SHORT_GROUPS_OF_A}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}},
            VNNI = {"matmul_tiles_f32_avx512", {"matmul_tiles_int8_vnni" SHORT_GROUPS_OF_A}},
            AVX2_VNNI = {"matmul_tiles_f32_avx2",
                         {"matmul_tiles_int8_avxvnni" SHORT_GROUPS_OF_A}}}},
    {.what = "5 rows of codes in groups of 16, codes given in tiles, strict",
     .graph = ROWS_OF_F4("5") CONSTANT("5"),
     .tiles = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_f32_avx2", {"matmul_tiles_int8_avx2" SHORT_GROUPS_OF_A}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}}, VNNI = {"matmul_tiles_f32_avx512", {0}}}},
    {.what = "one row of codes with zero points of floats, codes given in tiles, int8",
     .graph = FLOAT_ZPS_OF_A CONSTANT("1"),
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .tiles = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_f32_avx2", {"matmul_tiles_int8_avx2" NO_INTEGERS_OF_A}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}},
            VNNI = {"matmul_tiles_f32_avx512", {"matmul_tiles_int8_vnni" NO_INTEGERS_OF_A}},
            AVX2_VNNI = {"matmul_tiles_f32_avx2", {"matmul_tiles_int8_avxvnni" NO_INTEGERS_OF_A}}}},
    {.what = "one row, constant floats, strict",
     .graph = PLAIN("1", "f32"),
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_f32_avx2",
                    {"reads tensor 2, which is constant, in tiles: a copy in the constant cache",
                     "  chosen at execute: matmul_tiles_f32_avx2 (up to 16 rows and B in "
                     "tiles), else ",
                     "up to 16 rows of A times tiles of B: f32 FMA"}},
            AVX512 = {"matmul_tiles_f32_avx512",
                      {"reads tensor 2, which is constant, in tiles: a copy in the constant cache",
                       "up to 16 rows of A times tiles of B: f32 FMA"}},
            VNNI = {"matmul_tiles_f32_avx512",
                    {"matmul_tiles_int8_vnni refused: B is made of floats"}}}},
    {.what = "16 rows, constant f16 along K, int8",
     .graph = PLAIN_ALONG_K("16", "f16"),
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_f32_avx2",
                    {"  chosen at execute: matmul_tiles_f32_avx2 (up to 16 rows and B in "
                     "tiles), else matmul_rows_f32_"}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}}, VNNI = {"matmul_tiles_f32_avx512", {0}}}},
    {.what = "rows not known at compile, constant bf16, strict",
     .graph = PLAIN("?", "bf16"),
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_tiles_f32_avx2", {"reads tensor 2, which is constant, in tiles"}},
            AVX512 = {"matmul_tiles_f32_avx512", {"else matmul_panel_f32_avx512"}},
            VNNI = {"matmul_tiles_f32_avx512", {"else matmul_panel_f32_avx512"}}}},
    {.what = "64 rows, constant floats, strict",
     .graph = PLAIN("64", "f16"),
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_panel_f32_avx2",
                    {"matmul_tiles_f32_avx2 refused: more than 16 rows share one B",
                     "reads tensor 2, which is constant, in tiles: a copy in the constant cache"}},
            AVX512 = {"matmul_panel_f32_avx512", {"reads tensor 2, which is constant, in tiles"}},
            VNNI = {"matmul_panel_f32_avx512", {"reads tensor 2, which is constant, in tiles"}}}},
    {.what = "513 rows, constant floats, strict",
     .graph = PLAIN("513", "f16"),
     .never = "in tiles: a copy",
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_panel_f32_avx2",
                    {"matmul_tiles_f32_avx2 refused: for more than 512 rows of A, floats of B that "
                     "lie as they are serve as well"}},
            AVX512 = {"matmul_panel_f32_avx512", {0}}, VNNI = {"matmul_panel_f32_avx512", {0}}}},
    {.what = "one row, constant floats of a few columns, strict",
     .graph = "MatMul 1:f32:1x128 2:f32!:128x33 -> 3:f32:1x33",
     .never = "in tiles: a copy",
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_columns_f32_avx2",
                    {"matmul_tiles_f32_avx2 refused: more than an eighth of B's tiles would be "
                     "empty"}},
            AVX512 = {"matmul_columns_f32_avx512", {0}},
            VNNI = {"matmul_columns_f32_avx512", {0}}}},
    {.what = "one row, floats given in tiles, strict",
     .graph = PLAIN_ALONG_K("1", "bf16"),
     .tiles = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {"reads tensor 10 in tiles, as it was given"}},
            AVX2 = {"matmul_tiles_f32_avx2", {"reads tensor 10 in tiles, as it was given"}},
            AVX512 = {"matmul_tiles_f32_avx512", {0}}, VNNI = {"matmul_tiles_f32_avx512", {0}}}},
    {.what = "64 rows, floats given in tiles, strict",
     .graph = PLAIN_ALONG_K("64", "f16"),
     .tiles = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_panel_f32_avx2", {"reads tensor 10 in tiles, as it was given"}},
            AVX512 = {"matmul_panel_f32_avx512", {0}}, VNNI = {"matmul_panel_f32_avx512", {0}}}},
    {.what = "one row of codes, codes along K, strict",
     .graph = CODES_OF_A("1") ALONG_K("1", FLOAT_A("1")),
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_rows_int8_avx2", {"K: exact products of codes"}},
            AVX512 = {"matmul_rows_f32_avx512", {0}},
            VNNI = {"matmul_rows_int8_vnni", {"K: exact products of codes"}},
            AVX2_VNNI = {"matmul_rows_int8_avxvnni", {"K: exact products of codes"}}}},
    {.what = "one row, floats along K",
     .graph = "MatMul transpose_b=1 1:f32:1x128 2:f32:160x128 -> 3:f32:1x160",
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}}, AVX2 = {"matmul_rows_f32_avx2", {0}},
            AVX512 = {"matmul_rows_f32_avx512", {0}}, VNNI = {"matmul_rows_f32_avx512", {0}}}},
    {.what = "one row, codes of 6 bits, strict",
     .graph = ROW_OF_F6,
     .never = MODE_HAS_NO_INTEGERS,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_panel_f32_avx2",
                    {"matmul_rows_int8_avx2" NO_DECODER, "matmul_rows_f32_avx2" NO_DECODER,
                     "matmul_columns_f32_avx2" NO_DECODER,
                     "matmul_blocks_int8_avx2 refused: " NO_BYTES}},
            AVX2_VNNI = {"matmul_panel_f32_avx2",
                         {"matmul_rows_int8_avxvnni" NO_DECODER,
                          "matmul_blocks_int8_avxvnni refused: " NO_BYTES}},
            AVX512 = {"matmul_panel_f32_avx512",
                      {"matmul_rows_f32_avx512" NO_DECODER, "matmul_columns_f32_avx512" NO_DECODER,
                       "matmul_rows_int8_avx2" NO_DECODER}},
            VNNI = {"matmul_panel_f32_avx512",
                    {"matmul_rows_int8_vnni" NO_DECODER, "matmul_rows_f32_avx512" NO_DECODER,
                     "matmul_columns_f32_avx512" NO_DECODER,
                     "matmul_blocks_int8_vnni refused: " NO_BYTES}}}},
    {.what = "one row, codes of 6 bits, int8",
     .graph = ROW_OF_F6,
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .never = "nothing: needs",
     .at = {GENERIC = {"matmul_panel_f32_generic",
                       {IDLE("int8",
                             "B is not constant (matmul_tiles_int8_vnni); "
                             "no decoder for the data type of B (matmul_rows_int8_vnni); " NO_BYTES
                             " (matmul_blocks_int8_vnni)")}},
            AVX2 = {"matmul_panel_f32_avx2",
                    {IDLE("int8",
                          "B is not constant (matmul_tiles_int8_avx2); "
                          "no decoder for the data type of B (matmul_rows_int8_avx2); " NO_BYTES
                          " (matmul_blocks_int8_avx2)")}},
            AVX2_VNNI = {"matmul_panel_f32_avx2", {"matmul_rows_int8_avxvnni" NO_DECODER}},
            AVX512 = {"matmul_panel_f32_avx512",
                      {IDLE("int8",
                            "B is not constant (matmul_tiles_int8_avx2); "
                            "no decoder for the data type of B (matmul_rows_int8_avx2); " NO_BYTES
                            " (matmul_blocks_int8_vnni)")}},
            VNNI = {"matmul_panel_f32_avx512", {"matmul_rows_int8_vnni" NO_DECODER}}}},
    {.what = "one row, codes along N, strict",
     .graph = ALONG_N("1"),
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_columns_f32_avx2",
                    {"matmul_rows_f32_avx2 refused: B is not contiguous along K", "N: f32 FMA"}},
            AVX512 = {"matmul_columns_f32_avx512",
                      {"matmul_rows_f32_avx512 refused: B is not contiguous along K",
                       "N: f32 FMA"}},
            VNNI = {"matmul_columns_f32_avx512",
                    {"matmul_rows_int8_vnni " MODE_HAS_NO_INTEGERS, "N: f32 FMA"}}}},
    {.what = "one row, codes and offsets along N, strict",
     .graph = OFFSETS_ALONG_N,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_columns_f32_avx2", {"N: f32 FMA"}},
            AVX512 = {"matmul_columns_f32_avx512", {"N: f32 FMA"}},
            VNNI = {"matmul_columns_f32_avx512", {"N: f32 FMA"}}}},
    {.what = "one row of codes, codes and offsets along K, strict",
     .graph = CODES_OF_A("1") OFFSETS_ALONG_K(FLOAT_A("1")),
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_rows_int8_avx2", {"K: exact products of codes"}},
            AVX512 = {"matmul_rows_f32_avx512", {0}},
            VNNI = {"matmul_rows_int8_vnni", {"K: exact products of codes"}},
            AVX2_VNNI = {"matmul_rows_int8_avxvnni", {"K: exact products of codes"}}}},
    {.what = "one row, codes along N, f16",
     .graph = ALONG_N("1"),
     .mode = sinter_fpmath_mode_f16,
     .apply_to_int = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}}, AVX2 = {"matmul_columns_f32_avx2", {0}},
            AVX512 = {"matmul_columns_f32_avx512", {0}},
            VNNI = {"matmul_columns_f32_avx512",
                    {"matmul_rows_int8_vnni refused: B is not contiguous along K"}},
            AVX2_VNNI = {"matmul_columns_f32_avx2",
                         {"matmul_rows_int8_avxvnni refused: B is not contiguous along K"}}}},
    {.what = "64 rows, codes along K, strict",
     .graph = ALONG_K("64", FLOAT_A("64")),
     .products = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_panel_f32_avx2",
                    {MANY_ROWS("matmul_rows_f32_avx2"), MANY_ROWS("matmul_columns_f32_avx2")}},
            AVX512 = {"matmul_panel_f32_avx512",
                      {MANY_ROWS("matmul_rows_f32_avx512"),
                       MANY_ROWS("matmul_columns_f32_avx512")}},
            VNNI = {"matmul_panel_f32_avx512", {"matmul_blocks_int8_vnni " MODE_HAS_NO_INTEGERS}}}},
    {.what = "64 rows, codes along K, tf32",
     .graph = ALONG_K("64", FLOAT_A("64")),
     .mode = sinter_fpmath_mode_tf32,
     .apply_to_int = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_blocks_int8_avx2",
                    {MANY_ROWS("matmul_rows_int8_avx2"),
                     TWO_LIMBS " where groups along K are made of blocks"}},
            AVX2_VNNI = {"matmul_blocks_int8_avxvnni",
                         {TWO_LIMBS " where groups along K are made of blocks"}},
            AVX512 = {"matmul_panel_f32_avx512",
                      {LACKS("avx512", "matmul_blocks_int8_vnni (needs avx512_vnni)")}},
            VNNI = {"matmul_blocks_int8_vnni",
                    {MANY_ROWS("matmul_rows_int8_vnni"),
                     TWO_LIMBS " where groups along K are made of blocks"}}}},
    {.what = "64 rows of codes, codes along K, strict",
     .graph = CODES_OF_A("64") ALONG_K("64", FLOAT_A("64")),
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_blocks_int8_avx2",
                    {"exact products of codes where groups along K are made of blocks"}},
            AVX2_VNNI = {"matmul_blocks_int8_avxvnni",
                         {"exact products of codes where groups along K are made of blocks"}},
            AVX512 = {"matmul_panel_f32_avx512", {0}},
            VNNI = {"matmul_blocks_int8_vnni",
                    {"exact products of codes where groups along K are made of blocks"}}}},
    {.what = "64 rows, codes along K, bf16 for floats alone",
     .graph = ALONG_K("64", FLOAT_A("64")),
     .mode = sinter_fpmath_mode_bf16,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}}, AVX2 = {"matmul_panel_f32_avx2", {0}},
            AVX512 = {"matmul_panel_f32_avx512", {0}},
            VNNI = {"matmul_panel_f32_avx512", {"matmul_panel_bf16_avx512 " MODE_HAS_NO_BF16}}}},
    {.what = "64 rows, floats, strict",
     .graph = DENSE("64"),
     .products = true,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}}, AVX2 = {"matmul_panel_f32_avx2", {0}},
            AVX512 = {"matmul_panel_f32_avx512", {0}},
            VNNI = {"matmul_panel_f32_avx512", {"matmul_panel_bf16_avx512 " MODE_HAS_NO_BF16}}}},
    {.what = "64 rows, floats, bf16",
     .graph = DENSE("64"),
     .mode = sinter_fpmath_mode_bf16,
     .at = {GENERIC = {"matmul_panel_f32_generic", {0}},
            AVX2 = {"matmul_panel_f32_avx2",
                    {"needs avx512_vnni (matmul_panel_bf16_avx512)", "fpmath bf16 changes"}},
            AVX512 = {"matmul_panel_f32_avx512",
                      {"needs avx512_vnni (matmul_panel_bf16_avx512)", "fpmath bf16 changes"}},
            VNNI = {"matmul_panel_bf16_avx512", {"bf16 brgemm libxsmm"}}},
     .without_bf16 = {"matmul_panel_f32_avx512", {"matmul_panel_bf16_avx512 refused: "}}},
    {.what = "a product that is quantised in its panels",
     .graph = DENSE("64") "; " QUANTISE("group_shape=1,32 3:f32:64x160",
                                        "dynamic_mx") " -> 4:f8_e4m3:64x160 5:e8m0:64x5",
     .at = {GENERIC = {"matmul_panel_f32_generic",
                       {"quantises its result to f8_e4m3 before it leaves the step"}},
            AVX2 = {"matmul_panel_f32_avx2",
                    {"quantises its result to f8_e4m3 before it leaves the step"}},
            AVX512 = {"matmul_panel_f32_avx512",
                      {"quantises its result to f8_e4m3 before it leaves the step"}},
            VNNI = {"matmul_panel_f32_avx512",
                    {"quantises its result to f8_e4m3 before it leaves the step"}}}},
    {.what = "a product whose groups of rows divide no block",
     .graph = DENSE("96") "; " QUANTISE("group_shape=96,1 3:f32:96x160",
                                        "dynamic_symmetric") " -> 4:s8:96x160 5:f32:1x160",
     .at = {GENERIC = {"matmul_panel_f32_generic dynquant_groups_f32_generic",
                       {"groups of rows do not divide a block of rows"}},
            AVX2 = {"matmul_panel_f32_avx2 dynquant_groups_f32_avx2",
                    {"groups of rows do not divide a block of rows"}},
            AVX512 = {"matmul_panel_f32_avx512 dynquant_groups_f32_avx512",
                      {"groups of rows do not divide a block of rows"}},
            VNNI = {"matmul_panel_f32_avx512 dynquant_groups_f32_avx512",
                    {"groups of rows do not divide a block of rows"}}}},

    /* ---- all else ---------------------------------------------------------------------------- */
    {.what = "elementwise, floats",
     .graph = "Add 1:f32:8x96 2:f32:8x96 -> 3:f32:8x96; ReLU 3:f32:8x96 -> 4:bf16:8x96",
     .at = {GENERIC = {"chain_runs_f32_generic", {"elementwise in f32"}},
            AVX2 = {"chain_runs_f32_avx2", {"elementwise in f32"}},
            AVX512 = {"chain_runs_f32_avx512", {"elementwise in f32"}},
            VNNI = {"chain_runs_f32_avx512", {"elementwise in f32"}}}},
    {.what = "elementwise, integers of 32 bits",
     .graph = "Add 1:s32:8x96 2:s32:8x96 -> 3:s32:8x96; Maximum 3:s32:8x96 1:s32:8x96 -> "
              "4:s32:8x96",
     .at = {GENERIC = {"chain_runs_f32_generic", {"elementwise in s32"}},
            AVX2 = {"chain_runs_f32_avx2", {"elementwise in s32"}},
            AVX512 = {"chain_runs_f32_avx512", {"elementwise in s32"}},
            VNNI = {"chain_runs_f32_avx512", {"elementwise in s32"}}}},
    {.what = "a conversion from integers of 32 bits",
     .graph = "TypeCast 1:s32:8x96 -> 2:f32:8x96",
     .at = {GENERIC = {"chain_runs_f32_generic", {"elementwise in f32"}},
            AVX2 = {"chain_runs_f32_avx2", {"elementwise in f32"}},
            AVX512 = {"chain_runs_f32_avx512", {"elementwise in f32"}},
            VNNI = {"chain_runs_f32_avx512", {"elementwise in f32"}}}},
    {.what = "a conversion that would be rounded twice",
     .graph = "TypeCast 1:s32:8x96 -> 2:bf16:8x96",
     .at = BY_ISA("chain_runs_f64")},
    {.what = "elementwise in doubles",
     .graph = "Exp 1:f64:8x96 -> 2:f64:8x96; Multiply 2:f64:8x96 3:f32:96 -> 4:f64:8x96",
     .at = {GENERIC = {"chain_runs_f64_generic", {"elementwise in f64, runs of 1024\n"}},
            AVX2 = {"chain_runs_f64_avx2", {"elementwise in f64, runs of 1024\n"}},
            AVX512 = {"chain_runs_f64_avx512", {"elementwise in f64, runs of 1024\n"}},
            VNNI = {"chain_runs_f64_avx512", {"elementwise in f64, runs of 1024\n"}}}},
    {.what = "elementwise in doubles, a function of the C library",
     .graph = "GELU 1:f64:8x96 -> 2:f64:8x96",
     .at = {GENERIC = {"chain_runs_f64_generic", {"erf by the C library, element by element"}},
            AVX2 = {"chain_runs_f64_avx2", {"erf by the C library, element by element"}},
            AVX512 = {"chain_runs_f64_avx512", {"erf by the C library, element by element"}},
            VNNI = {"chain_runs_f64_avx512", {"erf by the C library, element by element"}}}},
    {.what = "elementwise in doubles, a power",
     .graph = "Pow beta=2.5 1:f64:8x96 -> 2:f64:8x96",
     .at = {GENERIC = {"chain_runs_f64_generic", {"pow by the C library, element by element"}},
            AVX2 = {"chain_runs_f64_avx2", {"elementwise in f64, runs of 1024\n"}},
            AVX512 = {"chain_runs_f64_avx512", {"elementwise in f64, runs of 1024\n"}},
            VNNI = {"chain_runs_f64_avx512", {"elementwise in f64, runs of 1024\n"}}}},
    {.what = "elementwise, quotients of integers",
     .graph = "Divide 1:s32:8x96 2:s32:8x96 -> 3:s32:8x96",
     .at =
         {GENERIC = {"chain_runs_f64_generic", {"elementwise in f64"}},
          AVX2 = {"chain_runs_f64_avx2",
                  {"chain_runs_f32_avx2 refused: a tensor of the chain needs double precision"}},
          AVX512 =
              {"chain_runs_f64_avx512",
               {"chain_runs_f32_avx512 refused: a tensor of the chain needs double precision"}},
          VNNI =
              {"chain_runs_f64_avx512",
               {"chain_runs_f32_avx512 refused: a tensor of the chain needs double precision"}}}},
    {.what = "elementwise, quantised",
     .graph = "GELU 1:f32:8x96 -> 2:f32:8x96; " QUANTISE(
         "group_shape=1,32 2:f32:8x96", "dynamic_mx") " -> 3:f8_e4m3:8x96 4:e8m0:8x3",
     .at = {GENERIC = {"chain_quantise_f32_generic", {QUANTISES("generic")}},
            AVX2 = {"chain_quantise_f32_avx2", {QUANTISES("avx2")}},
            AVX512 = {"chain_quantise_f32_avx512", {QUANTISES("avx512")}},
            VNNI = {"chain_quantise_f32_avx512", {QUANTISES("avx512")}}}},
    {.what = "elementwise, quantised in groups longer than a run",
     .graph = "GELU 1:f32:8x512 -> 2:f32:8x512; " QUANTISE(
         "group_shape=1,512 2:f32:8x512", "dynamic_symmetric") " -> 3:s8:8x512 4:f32:8x1",
     .at = {GENERIC = {"chain_runs_f32_generic dynquant_groups_f32_generic",
                       {"groups longer than a run of 256 elements"}},
            AVX2 = {"chain_runs_f32_avx2 dynquant_groups_f32_avx2",
                    {"groups longer than a run of 256 elements"}},
            AVX512 = {"chain_runs_f32_avx512 dynquant_groups_f32_avx512",
                      {"groups longer than a run of 256 elements"}},
            VNNI = {"chain_runs_f32_avx512 dynquant_groups_f32_avx512",
                    {"groups longer than a run of 256 elements"}}}},
    {.what = "quantised alone",
     .graph = QUANTISE("group_shape=1,32 1:f32:8x96",
                       "dynamic_asymmetric") " -> 2:u8:8x96 3:f32:8x3 4:u8:8x3",
     .at = BY_ISA("dynquant_groups_f32")},
    {.what = "a norm of a sum",
     .graph = "Add 1:f32:8x64 2:f32:8x64 -> 3:f32:8x64; "
              "RMSNorm 3:f32:8x64 4:f32:64 -> 5:f32:8x64",
     .at = BY_ISA("norm_rows_f32")},
    {.what = "a rotary embedding",
     .graph = "RotaryEmbedding 1:f32:2x4x8x64 2:f32:2x8x32 3:f32:2x8x32 -> 4:f32:2x4x8x64",
     .at = BY_ISA("rotary_rows_f32")},
    {.what = "a Hadamard transform",
     .graph = "HadamardTransform 1:f32:2x4x8x64 -> 2:f32:2x4x8x64",
     .at = BY_ISA("rotary_rows_f32")},
    {.what = "a gated delta net",
     .graph = "LinearAttention mode=gated_delta 1:f32:2x5x2x16 2:f32:2x5x2x16 3:f32:2x5x4x32 "
              "4:f32:2x4x32x16 5:f32:2x5x4x1 6:f32:2x5x4x1 -> 7:f32:2x5x4x32 8:f32:2x4x32x16",
     .at = BY_ISA("recurrence_heads_f32")},
    {.what = "sums up to each element",
     .graph = "CumSum 1:f32:8x64 -> 2:f32:8x64",
     .at = BY_ISA("cumsum_rows_f32")},
    {.what = "a reduction",
     .graph = "ReduceMean axes=1 1:f32:8x64 -> 2:f32:8",
     .at = BY_ISA("reduce_runs_f32")},
    {.what = "a convolution",
     .graph = "Convolution strides=1,1 pads_begin=1,1 pads_end=1,1 dilations=1,1 1:f32:1x8x8x16 "
              "2:f32:3x3x16x32 -> 3:f32:1x8x8x32",
     .at = BY_ISA("matmul_panel_f32")},
    {.what = "a depthwise convolution",
     .graph = "Convolution strides=1,1 pads_begin=1,1 pads_end=1,1 dilations=1,1 groups=16 "
              "1:f32:1x8x8x16 2:f32:3x3x1x16 -> 3:f32:1x8x8x16",
     .at = BY_ISA("matmul_depthwise_f32")},
    {.what = "many products of small matrices",
     .graph = "MatMul 1:f32:64x8x8 2:f32:64x8x8 -> 3:f32:64x8x8",
     .at = BY_ISA("matmul_small_f32")},
    {.what = "a convolution, quantised",
     .graph = "Convolution strides=1,1 pads_begin=1,1 pads_end=1,1 dilations=1,1 1:f32:1x8x8x16 "
              "2:f32:3x3x16x32 -> 3:f32:1x8x8x32; " QUANTISE(
                  "group_shape=1,1,1,32 3:f32:1x8x8x32",
                  "dynamic_symmetric") " -> 4:s8:1x8x8x32 5:f32:1x8x8x1",
     .at = BY_ISA("matmul_panel_f32")},
    {.what = "pooling",
     .graph = "MaxPool strides=2,2 kernel=3,3 pads_begin=1,1 pads_end=1,1 1:f32:1x8x8x16 -> "
              "2:f32:1x4x4x16",
     .at = BY_ISA("window_runs_f32")},
    {.what = "a gather of codes",
     .graph = "Gather 1:s4:100x64 2:s32:8 -> 3:s4:8x64",
     .at = ANYWHERE("gather_rows_any_generic")},
    {.what = "an append to a cache",
     .graph = "ScatterRows 1:s8:100x64 2:s32:8 3:s8:8x64 -> 4:s8:100x64",
     .at = ANYWHERE("scatter_rows_any_generic")},
    {.what = "the best experts",
     .graph = "TopK k=4 1:f32:8x64 -> 2:f32:8x4 3:s32:8x4",
     .at = ANYWHERE("topk_rows_f64_generic")},
    {.what = "the MLP of experts, whose weights lie as they are",
     .graph = EXPERTS_MLP("", "1", "3x1x48"),
     .at = BY_ISA("experts_panel_f32")},
    {.what = "the MLP of experts, constant weights",
     .graph = EXPERTS_MLP("!", "1", "3x1x48"),
     .at = {GENERIC = {"experts_panel_f32_generic", {0}},
            AVX2 = {"experts_tiles_f32_avx2",
                    {"  chosen at execute: experts_tiles_f32_avx2 (B in tiles), else "
                     "experts_panel_f32_avx2",
                     "reads tensor 4, which is constant, in tiles"}},
            AVX512 = {"experts_tiles_f32_avx512", {0}},
            VNNI = {"experts_tiles_f32_avx512", {"experts_tiles_int8_vnni" NO_INT8}}}},
    {.what = "the MLP of experts, constant weights, int8",
     .graph = EXPERTS_MLP("!", "1", "3x1x48"),
     .mode = sinter_fpmath_mode_int8,
     .apply_to_int = true,
     .at = {GENERIC = {"experts_panel_f32_generic", {0}},
            AVX2 = {"experts_tiles_int8_avx2", {"2 products"}},
            AVX512 = {"experts_tiles_f32_avx512", {0}}, VNNI = {"experts_tiles_int8_vnni", {0}},
            AVX2_VNNI = {"experts_tiles_int8_avxvnni", {0}}}},
    {.what = "the MLP of experts, gate and up in one table",
     .graph = EXPERTS_HALVES("32", "64"),
     .at = {GENERIC = {"experts_panel_f32_generic", {0}},
            AVX2 = {"experts_tiles_f32_avx2", {"3 products"}},
            AVX512 = {"experts_tiles_f32_avx512", {0}}, VNNI = {"experts_tiles_f32_avx512", {0}}}},
    {.what = "slices of experts' results that are no halves",
     .graph = EXPERTS_HALVES("16", "48"),
     .at = {GENERIC = {"matmul_panel_f32_generic chain_runs_f32_generic matmul_panel_f32_generic "
                       "reduce_runs_f32_generic",
                       {"experts kernel refused: a slice of the first product is not one of two "
                        "halves of its columns"}},
            AVX2 = {"matmul_tiles_f32_avx2 chain_runs_f32_avx2 matmul_tiles_f32_avx2 "
                    "reduce_runs_f32_avx2",
                    {0}},
            AVX512 = {"matmul_tiles_f32_avx512 chain_runs_f32_avx512 matmul_tiles_f32_avx512 "
                      "reduce_runs_f32_avx512",
                      {0}},
            VNNI = {"matmul_tiles_f32_avx512 chain_runs_f32_avx512 matmul_tiles_f32_avx512 "
                    "reduce_runs_f32_avx512",
                    {0}}}},
    {.what = "experts whose results are summed over something else",
     .graph = EXPERTS_MLP("!", "2", "3x2x48"),
     .at = {GENERIC = {"matmul_panel_f32_generic matmul_panel_f32_generic reduce_runs_f32_generic",
                       {"experts kernel refused: results are not summed over the experts of a "
                        "token"}},
            AVX2 = {"matmul_tiles_f32_avx2 matmul_tiles_f32_avx2 reduce_runs_f32_avx2", {0}},
            AVX512 = {"matmul_tiles_f32_avx512 matmul_tiles_f32_avx512 reduce_runs_f32_avx512",
                      {0}},
            VNNI = {"matmul_tiles_f32_avx512 matmul_tiles_f32_avx512 reduce_runs_f32_avx512",
                    {0}}}},
    {.what = "codes that are unpacked",
     .graph = "Reorder 10:s4:64x32 -> 2:s4:64x32",
     .tiles = true,
     .at = ANYWHERE("reorder_strips_any_generic")},
    {.what = "softmax",
     .graph = "SoftMax axis=-1 1:f32:8x96 -> 2:f32:8x96",
     .at = BY_ISA("softmax_rows_f32")},
};

/* ---- running --------------------------------------------------------------------------------- */

static bool jit_is_off(void)
{
    const char *target = getenv("LIBXSMM_TARGET");
    return target != NULL && (strcmp(target, "none") == 0 || strcmp(target, "0") == 0);
}

/* By CPU and by the target that libxsmm was given; it finds the CPU's own where it was given none.
 */
static bool has_bf16(void)
{
#if defined(__x86_64__)
    const char *target = getenv("LIBXSMM_TARGET");
    const bool allowed = target == NULL || strcmp(target, "cpx") == 0 || strcmp(target, "spr") == 0;
    return allowed && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

/* Names of the kernels in the lines "step N: NAME, ..." of a report. */
static const char *kernels_of(const char *report, char *names, size_t size)
{
    names[0] = '\0';
    for (const char *at = report; at != NULL; at = strchr(at, '\n')) {
        char name[64];
        at += *at == '\n';
        if (sscanf(at, "step %*d: %63[a-z0-9_]", name) == 1) {
            const size_t len = strlen(names);
            snprintf(names + len, size - len, "%s%s", len > 0 ? " " : "", name);
        }
    }
    return names;
}

static void mark_chosen(const char *names, bool *chosen)
{
    for (int i = 0; i < sinter_n_kernels; i++) {
        const char *name = sinter_kernels[i].name, *at = strstr(names, name);
        const char end = at != NULL ? at[strlen(name)] : '?';
        chosen[i] = chosen[i] || end == ' ' || end == '\0';
    }
}

/* At the machine's own level libxsmm makes the products of floats, unless its code generation is
 * off. */
static void check_products(const char *report, const char *what, const char *level)
{
    const char *text =
        jit_is_off() ? "no brgemm: libxsmm's JIT is off (LIBXSMM_TARGET)" : "brgemm libxsmm";
    CHECK(strstr(report, text) != NULL, "%s at %s: the report does not say \"%s\":\n%s", what,
          level, text, report);
}

/* The report says it, or it is why a better kernel refused some step; the report names only the
 * best of those. */
static bool is_said(const sinter_compiled_partition_t *compiled, const char *report,
                    const char *text)
{
    bool said = strstr(report, text) != NULL;
    for (int s = 0; s < compiled->plan.n_steps && !said; s++) {
        selection_t selection;
        kernel_select(&compiled->plan, &compiled->plan.steps[s], &selection);
        for (int i = 0; i < selection.n_refusals && !said; i++) {
            const refusal_t *r = &selection.refusals[i];
            char line[256];
            snprintf(line, sizeof line, "%s refused: %s", r->kernel->name, r->reason);
            said = !r->features && strstr(line, text) != NULL;
        }
    }
    return said;
}

/* The report names every better kernel that this engine could run, or one of the same driver, with
 * its reason. */
static void check_refusals(const char *what, const sinter_compiled_partition_t *compiled,
                           const char *report)
{
    for (int s = 0; s < compiled->plan.n_steps; s++) {
        selection_t selection;
        kernel_select(&compiled->plan, &compiled->plan.steps[s], &selection);
        for (int i = 0; i < selection.n_refusals; i++) {
            bool named = selection.refusals[i].features;
            for (int j = 0; j < selection.n_refusals && !named; j++) {
                const refusal_t *r = &selection.refusals[j];
                char line[256];
                snprintf(line, sizeof line, "  %s refused: %s\n", r->kernel->name, r->reason);
                named = r->kernel->driver == selection.refusals[i].kernel->driver &&
                        strstr(report, line) != NULL;
            }
            CHECK(named, "%s: the report does not name %s:\n%s", what,
                  selection.refusals[i].kernel->name, report);
        }
    }
}

/* No mode changes nothing where the kernel has products that strict does not allow. */
static void check_idle_mode(const selection_case_t *c, const char *names, const char *report)
{
    const bool idle = strstr(report, "changes nothing") != NULL;
    CHECK(!idle || (c->mode != sinter_fpmath_mode_strict && strstr(names, "_int8_") == NULL &&
                    strstr(names, "_bf16_") == NULL),
          "%s: the report says that the mode changes nothing:\n%s", c->what, report);
}

static void check_report(const selection_case_t *c, const expected_t *want,
                         const sinter_compiled_partition_t *compiled, const char *report, bool own,
                         bool *chosen)
{
    const sinter_cpu_isa_t isa = level_of_features(compiled->plan.features);
    const char *level = sinter_cpu_isa_name(isa);
    char names[256];
    kernels_of(report, names, sizeof names);
    CHECK(strcmp(names, want->steps) == 0, "%s at %s: %s was chosen, expected %s; the report:\n%s",
          c->what, level, names, want->steps, report);
    for (int i = 0; i < MOST_TEXTS && want->texts[i] != NULL; i++) {
        CHECK(is_said(compiled, report, want->texts[i]),
              "%s at %s: the report does not say \"%s\":\n%s", c->what, level, want->texts[i],
              report);
    }
    if (c->products && own && isa > sinter_isa_generic) {
        check_products(report, c->what, level);
    }
    CHECK(c->never == NULL || strstr(report, c->never) == NULL,
          "%s at %s: the report says \"%s\":\n%s", c->what, level, c->never != NULL ? c->never : "",
          report);
    check_refusals(c->what, compiled, report);
    check_idle_mode(c, names, report);
    mark_chosen(names, chosen);
}

/* Tokens are columns, but of codes of V. They are the dim before the last one, unless that is
 * shorter. */
static sinter_status_t lay_cache(sinter_logical_tensor_t *lt)
{
    const bool turned = lt->dims[2] < lt->dims[3];
    const bool k = lt->id == 2 || lt->id == 10, v = lt->id == 5 || lt->id == 12;
    return lt->id == 1 ? sinter_success
                       : sinter_logical_tensor_set_weights_layout(lt,
                                                                  k   ? sinter_weights_codes
                                                                  : v ? sinter_weights_codes_blocks
                                                                      : sinter_weights_values,
                                                                  0, !v && !turned);
}

/* own: this is the machine's own level, not a cap. */
static void run(const selection_case_t *c, sinter_engine_t *engine, bool own, bool *chosen)
{
    const sinter_cpu_isa_t isa = sinter_engine_get_isa(engine);
    const bool other =
        isa == sinter_isa_avx512_vnni && c->without_bf16.steps != NULL && !has_bf16();
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partition = NULL;
    sinter_compiled_partition_t *compiled = NULL;
    const char *report = NULL;
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
                     ? sinter_partition_set_fpmath_mode(partition, c->mode, c->apply_to_int)
                     : status;
        sinter_logical_tensor_t tiles[5];
        size_t n_tiles = 0;
        if (c->tiles || c->cache) {
            status = status == sinter_success ? sinter_partition_get_input_num(partition, &n_tiles)
                                              : status;
            status = status == sinter_success
                         ? sinter_partition_get_inputs(partition, n_tiles, tiles)
                         : status;
        }
        for (size_t i = 0; i < n_tiles && status == sinter_success; i++) {
            status =
                c->cache ? lay_cache(&tiles[i])
                : tiles[i].id < 10 || tiles[i].id >= 20
                    ? status
                    : sinter_logical_tensor_set_weights_layout(
                          &tiles[i],
                          tiles[i].id == 10 ? sinter_weights_codes : sinter_weights_values, 0, 1);
        }
        status = status == sinter_success ? sinter_partition_compile(partition, engine, n_tiles,
                                                                     tiles, 0, NULL, &compiled)
                                          : status;
        status =
            status == sinter_success ? sinter_compiled_partition_report(compiled, &report) : status;
        CHECK(status == sinter_success, "%s: %s", c->what, sinter_last_error_message());
    }
    if (report != NULL) {
        const bool as_avx2 = c->at[isa].steps == NULL;
        check_report(c, other ? &c->without_bf16 : &c->at[as_avx2 ? sinter_isa_avx2 : isa],
                     compiled, report, own, chosen);
    }
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
}

/* With everything that the process has, where that is this level, and else with what a cap at this
 * level would leave of a machine that has everything. */
static void run_all(sinter_cpu_isa_t isa, bool *chosen)
{
    const bool own = isa == sinter_engine_get_isa(NULL) && getenv("SINTER_MAX_CPU_ISA") == NULL;
    sinter_engine_t *engine = NULL;
    CHECK(sinter_engine_create(&engine, NULL) == sinter_success, "engine: %s",
          sinter_last_error_message());
    for (size_t i = 0; i < sizeof cases / sizeof *cases && engine != NULL; i++) {
        if (!own) {
            engine->features = features_of_level(isa);
        }
        run(&cases[i], engine, own, chosen);
    }
    sinter_engine_destroy(&engine);
}

int main(void)
{
    bool *chosen = calloc((size_t)sinter_n_kernels, sizeof *chosen);
    if (chosen == NULL) {
        return 1;
    }
    for (int isa = sinter_isa_generic; isa < LEVELS; isa++) {
        run_all((sinter_cpu_isa_t)isa, chosen);
    }
    for (int i = 0; i < sinter_n_kernels; i++) {
        const kernel_t *k = &sinter_kernels[i];
        if (k->driver->arithmetic == IN_BF16 && !has_bf16()) {
            check_skip("%s: no bf16 products here", k->name);
        } else {
            CHECK(chosen[i], "%s: no case chooses it", k->name);
        }
    }
    free(chosen);
    return check_finish();
}
