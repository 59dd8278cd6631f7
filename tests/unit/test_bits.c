/* The same inputs give the same bits, whatever the number of threads: each case runs with 1, 2, 3
 * and 7 of them at each ISA level that the machine has, and every kernel must run some case. Where
 * a case has a dim for its items (sequences, rows), the first and the last item are run alone, too,
 * and prompts in chunks: docs/numerics.md says where these have the same bits, and so does this
 * test. The same runs with a deterministic engine, which promises more. --verbose prints what it
 * finds, also where nothing is promised; a word behind it runs the cases alone that have it.
 *
 * With AddressSanitizer, which looks at memory and not at bits, each case runs once, with the level
 * and the kind of engine whose turn it is, and besides where a kernel has not run yet. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter.h>

#include "backend_xsmm/exec/compiled.h"
#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/xsmm.h"
#include "base/cpu.h"
#include "check.h"
#include "passive.h"
#include "random.h"
#include "spec.h"

enum {
    MOST_ISA = sinter_isa_avx2_vnni > sinter_isa_avx512_vnni ? sinter_isa_avx2_vnni
                                                             : sinter_isa_avx512_vnni
};
enum { MOST_PORTS = 24, MOST_PARTS = 8, SPEC_BYTES = 4096 };
enum { ALONE_ANY, ALONE_ALWAYS, ALONE_IN_INTEGERS };

typedef struct bits_case {
    const char *what;
    const char *graph; /* @ stands for the number of items, the first dim of inputs and outputs */
    sinter_fpmath_mode_t mode;
    int items; /* 0: there is no @ */
    int alone; /* whether an item alone has the bits that it has among `items` */
} bits_case_t;

/* ---- the cases ------------------------------------------------------------------------------- */

/* Attention of @ sequences over K and V, whose ops come before. */
#define ATTENTION(heads, s, t, d, k, v)                                                           \
    "MatMul transpose_b=1 1:f32:@x" heads "x" s "x" d " " k " -> 3:f32:@x" heads "x" s "x" t "; " \
    "SoftMax axis=-1 3:f32:@x" heads "x" s "x" t " -> 4:f32:@x" heads "x" s "x" t "; "            \
    "MatMul 4:f32:@x" heads "x" s "x" t " " v " -> 6:f32:@x" heads "x" s "x" d
#define FLOATS(type, heads, s, t, d) \
    ATTENTION(heads, s, t, d, "2:" type ":@x" heads "x" t "x" d, "5:" type ":@x" heads "x" t "x" d)
/* Heads of 64 elements side by side, in 1300 tokens. */
#define SIDE_BY_SIDE(type, s)                                                 \
    ATTENTION("3", s, "1300", "64", "2:" type ":@x3x1300x64:249600x64x192x1", \
              "5:" type ":@x3x1300x64:249600x64x192x1")
#define CODES(type, heads, t, d, groups) CODES_OF("@", type, heads, t, d, groups)
#define CODES_OF(b, type, heads, t, d, groups)                                                    \
    "DynamicDequantize qtype=per_group group_shape=1,1,1,32 10:" type ":" b "x" heads "x" t "x" d \
    " 11:f16:" b "x" heads "x" t "x" groups " -> 2:f32:" b "x" heads "x" t "x" d "; "             \
    "DynamicDequantize qtype=per_group group_shape=1,1,1,32 12:" type ":" b "x" heads "x" t "x" d \
    " 13:f16:" b "x" heads "x" t "x" groups " -> 5:f32:" b "x" heads "x" t "x" d "; "
#define CODES_K_V(type, heads, s, t, d, groups) \
    CODES(type, heads, t, d, groups) FLOATS("f32", heads, s, t, d)
/* Row s sees the columns up to s + 1500; each head has a sink. The dims of Q, of scores, of K and
 * V, and the type of the latter. */
#define CAUSAL(q, s, kv, type)                                                              \
    "MatMul transpose_b=1 1:f32:" q " 2:" type ":" kv " -> 3:f32:" s "; "                   \
    "GenIndex axis=-2 3:f32:" s " -> 7:s32:" s "; GenIndex axis=-1 3:f32:" s " -> 8:s32:" s \
    "; Add 7:s32:" s " 15:s32:- -> 16:s32:" s "; GreaterEqual 16:s32:" s " 8:s32:" s        \
    " -> 9:boolean:" s "; Select 9:boolean:" s " 3:f32:" s " 17:f32:- -> 14:f32:" s         \
    "; SoftMax axis=-1 mode=inf_as_zero 14:f32:" s " 18:f32:2x1x1 -> 4:f32:" s "; "         \
    "MatMul 4:f32:" s " 5:" type ":" kv " -> 6:f32:" q
#define PROMPT_OF(type) CAUSAL("1x2x@x64", "1x2x@x2100", "1x2x2100x64", type)

/* The same for @ x 3 heads with 4 query heads each, of s tokens, with a mask in memory. */
#define MASKED(s, t, k, v, mask)                                                            \
    "MatMul transpose_b=1 1:f32:@x3x4x" s "x64 " k " -> 3:f32:@x3x4x" s "x" t "; "          \
    "Multiply 3:f32:@x3x4x" s "x" t " 19:f32:1 -> 7:f32:@x3x4x" s "x" t "; "                \
    "Add 7:f32:@x3x4x" s "x" t " " mask " -> 8:f32:@x3x4x" s "x" t "; "                     \
    "SoftMax axis=-1 mode=inf_as_zero 8:f32:@x3x4x" s "x" t " -> 4:f32:@x3x4x" s "x" t "; " \
    "MatMul 4:f32:@x3x4x" s "x" t " " v " -> 6:f32:@x3x4x" s "x64"
#define MASKED_FLOATS(type, s, t, mask) \
    MASKED(s, t, "2:" type ":@x3x1x" t "x64", "5:" type ":@x3x1x" t "x64", mask)
/* Heads side by side. */
#define MASKED_BESIDE(type, s, mask)                                 \
    MASKED(s, "1300", "2:" type ":@x3x1x1300x64:249600x64x64x192x1", \
           "5:" type ":@x3x1x1300x64:249600x64x64x192x1", mask)
#define MASKED_CODES(type, s, t, mask)                                                         \
    "DynamicDequantize qtype=per_group group_shape=1,1,1,1,32 10:" type ":@x3x1x" t "x64 "     \
    "11:f16:@x3x1x" t "x2 -> 2:f32:@x3x1x" t "x64; DynamicDequantize qtype=per_group "         \
    "group_shape=1,1,1,1,32 12:" type ":@x3x1x" t "x64 13:f16:@x3x1x" t "x2 -> 5:f32:@x3x1x" t \
    "x64; " MASKED_FLOATS("f32", s, t, mask)

/* Caches in tiles, of 3 heads of 64 elements and 1536 tokens. */
#define TILED(type, s)                                                                   \
    "Reorder 40:" type ":@x3x1536x64 -> 10:" type "%1:@x3x1536x64; "                     \
    "Reorder 41:f16:@x3x1536x2 -> 11:f16%3:@x3x1536x2; "                                 \
    "Reorder 42:" type ":@x3x1536x64 -> 12:" type "%32:@x3x1536x64; "                    \
    "Reorder 43:f16:@x3x1536x2 -> 13:f16%3:@x3x1536x2; "                                 \
    "DynamicDequantize qtype=per_group group_shape=1,1,1,32 10:" type "%1:@x3x1536x64 "  \
    "11:f16%3:@x3x1536x2 -> 2:f32:@x3x1536x64; "                                         \
    "DynamicDequantize qtype=per_group group_shape=1,1,1,32 12:" type "%32:@x3x1536x64 " \
    "13:f16%3:@x3x1536x2 -> 5:f32:@x3x1536x64; " FLOATS("f32", "3", s, "1536", "64")
#define TILED_FLOATS(s)                                               \
    "Reorder 40:f16:@x3x1536x64 -> 2:f16%1:@x3x1536x64; "             \
    "Reorder 42:f16:@x3x1536x64 -> 5:f16%32:@x3x1536x64; " ATTENTION( \
        "3", s, "1536", "64", "2:f16%1:@x3x1536x64", "5:f16%32:@x3x1536x64")

#define MASKED_TILED(type, s, mask)                                                          \
    "Reorder 40:" type ":@x3x1x1536x64 -> 10:" type "%1:@x3x1x1536x64; "                     \
    "Reorder 41:f16:@x3x1x1536x2 -> 11:f16%3:@x3x1x1536x2; "                                 \
    "Reorder 42:" type ":@x3x1x1536x64 -> 12:" type "%32:@x3x1x1536x64; "                    \
    "Reorder 43:f16:@x3x1x1536x2 -> 13:f16%3:@x3x1x1536x2; "                                 \
    "DynamicDequantize qtype=per_group group_shape=1,1,1,1,32 10:" type "%1:@x3x1x1536x64 "  \
    "11:f16%3:@x3x1x1536x2 -> 2:f32:@x3x1x1536x64; "                                         \
    "DynamicDequantize qtype=per_group group_shape=1,1,1,1,32 12:" type "%32:@x3x1x1536x64 " \
    "13:f16%3:@x3x1x1536x2 -> 5:f32:@x3x1x1536x64; " MASKED_FLOATS("f32", s, "1536", mask)

#define WEIGHTS(mark, group, n)                                                                    \
    "DynamicDequantize qtype=per_group group_shape=1," group " 10:s4" mark ":160x2304 11:f16" mark \
    ":160x" n " -> 2:f32:160x2304; MatMul transpose_b=1 1:f32:@x2304 2:f32:160x2304 -> "           \
    "3:f32:@x160"
#define ROWS_OF_CODES                                                                 \
    "DynamicDequantize qtype=per_group group_shape=1,32 20:u8:@x2304 21:f32:@x72 -> " \
    "1:f32:@x2304; "
#define ALONG_N                                                                           \
    "DynamicDequantize qtype=per_group group_shape=32,1 10:s4:2304x160 11:f16:72x160 -> " \
    "2:f32:2304x160; MatMul 1:f32:@x2304 2:f32:2304x160 -> 3:f32:@x160"
#define FLOAT_WEIGHTS(mark) "MatMul 1:f32:@x2304 2:f32" mark ":2304x160 -> 3:f32:@x160"
#define EXPERTS                                                                         \
    "Gather axis=0 2:f32:5x48x64 1:s32:40x2 -> 5:f32:40x2x48x64; MatMul transpose_b=1 " \
    "0:f32:40x1x1x64 5:f32:40x2x48x64 -> 8:f32:40x2x1x48"
#define EXPERTS_OF_CODES(table, codes, scales, to)                                                 \
    "Gather axis=0 " table ":s4!:5x64x64 1:s32:40x2 -> " codes ":s4:40x2x64x64; Gather axis=0 "    \
    "1" table ":f16!:5x64x2 1:s32:40x2 -> " scales ":f16:40x2x64x2; DynamicDequantize "            \
    "qtype=per_group group_shape=1,1,1,32 " codes ":s4:40x2x64x64 " scales ":f16:40x2x64x2 -> " to \
    ":f32:40x2x64x64; "
#define TABLE(n, mark, experts, to) \
    "Gather axis=0 " n ":f32" mark ":" experts "x64x64 1:s32:40x2 -> " to ":f32:40x2x64x64; "
#define MLP                                                                                 \
    "MatMul transpose_b=1 0:f32:40x1x1x64 5:f32:40x2x64x64 -> 7:f32:40x2x1x64; "            \
    "ReLU 7:f32:40x2x1x64 -> 9:f32:40x2x1x64; Square 9:f32:40x2x1x64 -> 10:f32:40x2x1x64; " \
    "MatMul transpose_b=1 10:f32:40x2x1x64 6:f32:40x2x64x64 -> 14:f32:40x2x1x64; "          \
    "Multiply 14:f32:40x2x1x64 4:f32:40x2x1x1 -> 16:f32:40x2x1x64; "                        \
    "ReduceSum axes=1 16:f32:40x2x1x64 -> 8:f32:40x1x64"

#define STRICT sinter_fpmath_mode_strict
#define F16 sinter_fpmath_mode_f16
#define BF16 sinter_fpmath_mode_bf16
#define INT8 sinter_fpmath_mode_int8

static const bits_case_t cases[] = {
    {"decoding, f16", FLOATS("f16", "3", "1", "1300", "64"), STRICT, 3, ALONE_ALWAYS},
    {"decoding, one long cache", FLOATS("f16", "1", "4", "5000", "128"), STRICT, 1, ALONE_ALWAYS},
    {"decoding, heads side by side", SIDE_BY_SIDE("f16", "4"), STRICT, 3, ALONE_ALWAYS},
    {"decoding, heads side by side, int8", SIDE_BY_SIDE("f16", "1"), INT8, 3, ALONE_ALWAYS},
    {"decoding, s4, strict", CODES_K_V("s4", "3", "4", "1300", "64", "2"), STRICT, 3, ALONE_ALWAYS},
    {"decoding, s4, f16", CODES_K_V("s4", "3", "1", "1300", "64", "2"), F16, 3, ALONE_ALWAYS},
    {"decoding, s4, int8", CODES_K_V("s4", "3", "7", "1300", "64", "2"), INT8, 3, ALONE_ALWAYS},
    {"decoding, s8, int8", CODES_K_V("s8", "2", "4", "1300", "128", "4"), INT8, 3, ALONE_ALWAYS},
    {"decoding, a mask of indices and sinks",
     CAUSAL("@x2x4x64", "@x2x4x1700", "@x2x1700x64", "f16"), STRICT, 3, ALONE_ALWAYS},
    {"decoding, tiles of f16", TILED_FLOATS("4"), STRICT, 3, ALONE_ALWAYS},
    {"decoding, tiles of s4", TILED("s4", "5"), STRICT, 3, ALONE_ALWAYS},
    {"decoding, tiles of s4, int8", TILED("s4", "4"), INT8, 3, ALONE_ALWAYS},
    {"decoding, tiles of s8, f16", TILED("s8", "1"), F16, 3, ALONE_ALWAYS},
    {"a prompt, tiles of s4", TILED("s4", "100"), STRICT, 3, ALONE_ALWAYS},
    {"a prompt, tiles of s8, int8", TILED("s8", "100"), INT8, 3, ALONE_ALWAYS},
    {"a prompt, f16", FLOATS("f16", "2", "100", "1300", "64"), STRICT, 3, ALONE_ALWAYS},
    {"a prompt, few rows, a long cache", FLOATS("f16", "1", "30", "3000", "64"), STRICT, 2,
     ALONE_ALWAYS},
    {"a prompt, bf16", FLOATS("f16", "2", "100", "1300", "64"), BF16, 3, ALONE_ALWAYS},
    {"a prompt, s4, int8", CODES_K_V("s4", "2", "100", "1300", "64", "2"), INT8, 3, ALONE_ALWAYS},
    {"a prompt, a mask of indices and sinks",
     CAUSAL("@x2x600x64", "@x2x600x2100", "@x2x2100x64", "f16"), STRICT, 3, ALONE_ALWAYS},
    {"a prompt, heads of 600", FLOATS("f32", "1", "60", "1300", "600"), STRICT, 2, ALONE_ALWAYS},

    {"decoding, a mask of slots", MASKED_FLOATS("f16", "8", "1300", "30:f32:8x1300"), STRICT, 3,
     ALONE_ALWAYS},
    {"decoding, a mask of slots, heads side by side", MASKED_BESIDE("f16", "4", "30:f32:4x1300"),
     STRICT, 3, ALONE_ALWAYS},
    {"decoding, a mask of one slot, heads side by side", MASKED_BESIDE("f16", "1", "31:f32:1x1300"),
     STRICT, 3, ALONE_ALWAYS},
    {"decoding, a mask of slots, s8, int8", MASKED_CODES("s8", "5", "1300", "30:f32:5x1300"), INT8,
     3, ALONE_ALWAYS},
    {"decoding, a mask of slots, s4, f16", MASKED_CODES("s4", "5", "1300", "30:f32:5x1300"), F16, 3,
     ALONE_ALWAYS},
    {"decoding, a mask of any cells", MASKED_FLOATS("f16", "4", "1300", "31:f32:4x1300"), STRICT, 3,
     ALONE_ALWAYS},
    {"decoding, a mask of any cells and numbers", MASKED_CODES("s4", "4", "1300", "32:f32:4x1300"),
     STRICT, 3, ALONE_ALWAYS},
    {"decoding, a mask of slots over tiles of s8, int8", MASKED_TILED("s8", "8", "30:f32:8x1536"),
     INT8, 3, ALONE_ALWAYS},
    {"decoding, a mask of any cells over tiles of s4", MASKED_TILED("s4", "4", "31:f32:4x1536"),
     STRICT, 3, ALONE_ALWAYS},
    {"a prompt, a mask of any cells and numbers over tiles of s4",
     MASKED_TILED("s4", "50", "32:f32:50x1536"), STRICT, 2, ALONE_ALWAYS},
    {"decoding, masks of lengths", MASKED_FLOATS("f16", "1", "1300", "35:f32:@x1x1x1x1300"), STRICT,
     3, ALONE_ALWAYS},
    {"decoding, masks of lengths, s8, int8", MASKED_CODES("s8", "2", "1300", "35:f32:@x1x1x1x1300"),
     INT8, 5, ALONE_ALWAYS},
    {"decoding, masks of lengths over tiles of s4", MASKED_TILED("s4", "1", "35:f32:@x1x1x1x1536"),
     STRICT, 3, ALONE_ALWAYS},
    {"a prompt, masks of lengths", MASKED_FLOATS("f16", "70", "1300", "35:f32:@x1x1x1x1300"),
     STRICT, 3, ALONE_ALWAYS},
    {"a prompt, a mask of slots", MASKED_FLOATS("f16", "70", "2100", "30:f32:70x2100"), STRICT, 2,
     ALONE_ALWAYS},
    {"a prompt, a mask of any cells", MASKED_FLOATS("f32", "150", "1300", "31:f32:150x1300"),
     STRICT, 2, ALONE_ALWAYS},
    {"a prompt, a mask of any cells and numbers, bf16",
     MASKED_FLOATS("bf16", "70", "1300", "32:f32:70x1300"), BF16, 2, ALONE_ALWAYS},
    {"a prompt, a mask of earlier columns", MASKED_FLOATS("f16", "300", "1300", "33:f32:300x1300"),
     STRICT, 2, ALONE_ALWAYS},
    {"a prompt, a mask of earlier columns, s4, int8",
     MASKED_CODES("s4", "300", "1300", "33:f32:300x1300"), INT8, 2, ALONE_ALWAYS},

    {"rows, weights of s4", WEIGHTS("", "32", "72"), STRICT, 7, ALONE_ALWAYS},
    {"rows, weights of s4, f16", WEIGHTS("", "32", "72"), F16, 7, ALONE_ALWAYS},
    {"rows, weights of s4, int8", WEIGHTS("", "32", "72"), INT8, 7, ALONE_ALWAYS},
    {"rows of codes, weights of s4", ROWS_OF_CODES WEIGHTS("", "32", "72"), STRICT, 7,
     ALONE_ALWAYS},
    {"rows, constant weights of s4", WEIGHTS("!", "32", "72"), STRICT, 5, ALONE_ANY},
    {"rows, constant weights of s4, int8", WEIGHTS("!", "32", "72"), INT8, 7, ALONE_IN_INTEGERS},
    {"rows of codes, constant weights of s4", ROWS_OF_CODES WEIGHTS("!", "32", "72"), STRICT, 7,
     ALONE_IN_INTEGERS},
    {"rows, weights along N", ALONG_N, STRICT, 7, ALONE_ALWAYS},
    {"rows, floats", FLOAT_WEIGHTS(""), STRICT, 7, ALONE_ALWAYS},
    {"rows, constant floats", FLOAT_WEIGHTS("!"), STRICT, 5, ALONE_ANY},
    {"16 rows, weights of s4", WEIGHTS("", "32", "72"), STRICT, 16, ALONE_ALWAYS},
    {"16 rows, weights of s4, int8", WEIGHTS("", "32", "72"), INT8, 16, ALONE_ALWAYS},
    {"40 rows, weights of s4", WEIGHTS("", "32", "72"), STRICT, 40, ALONE_ANY},
    {"100 rows, weights of s4", WEIGHTS("", "32", "72"), STRICT, 100, ALONE_ANY},
    {"100 rows, weights of s4, int8", WEIGHTS("", "32", "72"), INT8, 100, ALONE_ANY},
    {"100 rows of codes, weights of s4", ROWS_OF_CODES WEIGHTS("", "32", "72"), STRICT, 100,
     ALONE_ANY},
    {"100 rows, constant weights of s4", WEIGHTS("!", "32", "72"), STRICT, 100, ALONE_ANY},
    {"100 rows, constant weights of s4, int8", WEIGHTS("!", "32", "72"), INT8, 100, ALONE_ANY},
    {"100 rows, constant weights of s4, f16", WEIGHTS("!", "32", "72"), F16, 100, ALONE_ANY},
    {"100 rows of codes, constant weights of s4", ROWS_OF_CODES WEIGHTS("!", "32", "72"), STRICT,
     100, ALONE_ANY},
    {"100 rows, floats", FLOAT_WEIGHTS(""), STRICT, 100, ALONE_ANY},
    {"64 rows, floats", FLOAT_WEIGHTS(""), STRICT, 64, ALONE_ANY},
    {"100 rows, floats, bf16", FLOAT_WEIGHTS(""), BF16, 100, ALONE_ANY},
    {"100 rows, constant floats", FLOAT_WEIGHTS("!"), STRICT, 100, ALONE_ANY},
    {"many small products", "MatMul 1:f32:@x3x5 2:f32:@x5x4 -> 3:f32:@x3x4", STRICT, 300,
     ALONE_ANY},
    {"a convolution",
     "Convolution strides=1,1 pads_begin=1,1 pads_end=1,1 dilations=1,1 1:f32:@x20x20x48 "
     "2:f32!:3x3x48x40 -> 3:f32:@x20x20x40",
     STRICT, 5, ALONE_ALWAYS},
    {"a convolution, weights that change",
     "Convolution strides=1,1 pads_begin=1,1 pads_end=1,1 dilations=1,1 1:f32:@x20x20x48 "
     "2:f32:3x3x48x40 -> 3:f32:@x20x20x40",
     STRICT, 5, ALONE_ALWAYS},
    {"a convolution of codes",
     "Dequantize scales=0.5 zps=3 1:u8:@x9x9x32 -> 2:f32:@x9x9x32; Dequantize scales=0.5 "
     "3:s8:3x3x32x48 -> 4:f32:3x3x32x48; Convolution strides=1,1 pads_begin=1,1 pads_end=1,1 "
     "dilations=1,1 2:f32:@x9x9x32 4:f32:3x3x32x48 -> 5:f32:@x9x9x48",
     STRICT, 5, ALONE_ALWAYS},
    {"a depthwise convolution",
     "Convolution strides=1,1 pads_begin=1,1 pads_end=1,1 dilations=1,1 groups=32 "
     "1:f32:@x20x20x32 2:f32:3x3x1x32 -> 3:f32:@x20x20x32",
     STRICT, 5, ALONE_ALWAYS},
    {"experts", EXPERTS, STRICT, 0, 0},
    {"an MLP of experts", TABLE("2", "", "5", "5") TABLE("3", "", "5", "6") MLP, STRICT, 0, 0},
    {"an MLP of constant experts", TABLE("2", "!", "9", "5") TABLE("3", "!", "9", "6") MLP, STRICT,
     0, 0},
    {"an MLP of constant experts of codes, int8",
     EXPERTS_OF_CODES("2", "22", "23", "5") EXPERTS_OF_CODES("3", "24", "25", "6") MLP, INT8, 0, 0},

    {"linear attention",
     "LinearAttention mode=gated 1:f32:@x50x2x16 2:f32:@x50x2x16 3:f32:@x50x4x96 "
     "4:f32:@x4x96x16 5:f32:@x50x4x1 -> 7:f32:@x50x4x96 8:f32:@x4x96x16",
     STRICT, 3, ALONE_ALWAYS},
    {"elementwise",
     "GELU 1:f32:@x4099 -> 2:f32:@x4099; Add 2:f32:@x4099 3:f32:4099 -> 4:f32:@x4099", STRICT, 7,
     ALONE_ALWAYS},
    {"running sums", "CumSum axis=-1 1:f32:@x3000 -> 2:f32:@x3000", STRICT, 5, ALONE_ALWAYS},
    {"doubles", "Add 1:f64:@x96 2:f64:@x96 -> 3:f64:@x96", STRICT, 7, ALONE_ALWAYS},
    {"elementwise, quantised",
     "GELU 1:f32:@x96 -> 2:f32:@x96; DynamicQuantize quantization_kind=dynamic_symmetric "
     "qtype=per_group group_shape=1,32 2:f32:@x96 -> 3:s8:@x96 4:f32:@x3",
     STRICT, 7, ALONE_ALWAYS},
    {"softmax of 96", "SoftMax axis=-1 1:f32:@x96 -> 2:f32:@x96", STRICT, 7, ALONE_ALWAYS},
    {"softmax of 9000", "SoftMax axis=-1 1:f32:@x9000 -> 2:f32:@x9000", STRICT, 3, ALONE_ALWAYS},
    {"softmax of columns", "SoftMax axis=1 1:f32:@x40x96 -> 2:f32:@x40x96", STRICT, 3,
     ALONE_ALWAYS},
    {"norms of short rows", "LayerNorm keep_stats=0 1:f32:@x300 2:f32:300 3:f32:300 -> 4:f32:@x300",
     STRICT, 23, ALONE_ALWAYS},
    {"norms of long rows",
     "LayerNorm keep_stats=0 1:f32:@x4100 2:f32:4100 3:f32:4100 -> 4:f32:@x4100", STRICT, 5,
     ALONE_ALWAYS},
    {"norms, quantised",
     "RMSNorm 1:f32:@x480 2:f32:480 -> 3:f32:@x480; DynamicQuantize "
     "quantization_kind=dynamic_symmetric qtype=per_group group_shape=1,48 3:f32:@x480 -> "
     "4:s8:@x480 5:f32:@x10",
     STRICT, 23, ALONE_ALWAYS},
    {"a rotary embedding",
     "RotaryEmbedding 1:f32:@x4x8x64 2:f32:@x8x32 3:f32:@x8x32 -> 4:f32:@x4x8x64", STRICT, 3,
     ALONE_ALWAYS},
    {"rows by index", "Gather 1:f32:100x64 2:s32:@ -> 3:f32:@x64", STRICT, 8, ALONE_ALWAYS},
    {"rows of a cache", "ScatterRows 1:f16:100x64 2:s32:1 3:f16:1x64 -> 4:f16:100x64", STRICT, 0,
     0},
    {"the best", "TopK k=4 1:f32:@x264 -> 2:f32:@x4 3:s32:@x4", STRICT, 8, ALONE_ALWAYS},
    {"sums of long rows", "ReduceSum axes=1 1:f32:@x20000 -> 2:f32:@", STRICT, 2, ALONE_ALWAYS},
    {"the sum of everything", "ReduceMean axes=0,1 1:f32:300x2000 -> 2:f32:-", STRICT, 0, 0},
    {"sums of columns", "ReduceL2 axes=0 1:f32:5000x5 -> 2:f32:5", STRICT, 0, 0},
    {"sums of many columns", "ReduceProd axes=1 1:f32:@x600x500 -> 2:f32:@x500", STRICT, 3,
     ALONE_ALWAYS},
    {"pooling",
     "AvgPool kernel=3,3 strides=1,1 pads_begin=0,0 pads_end=0,0 exclude_pad=1 "
     "1:f32:@x20x20x24 -> 2:f32:@x18x18x24",
     STRICT, 3, ALONE_ALWAYS},
    {"quantised with computed scales",
     "DynamicQuantize quantization_kind=dynamic_asymmetric qtype=per_group group_shape=1,32 "
     "1:f32:@x256 -> 2:u8:@x256 3:f32:@x8 4:u8:@x8",
     STRICT, 8, ALONE_ALWAYS},
    {"one large group",
     "DynamicQuantize quantization_kind=dynamic_mx qtype=per_group group_shape=1,40000 "
     "1:f32:1x40000 -> 2:f8_e4m3:1x40000 3:e8m0:1x1",
     STRICT, 0, 0},
};

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct port {
    sinter_logical_tensor_t lt;
    unsigned char *data;
    size_t bytes;
} port_t;

typedef struct run {
    sinter_graph_t *graph;
    sinter_compiled_graph_t *whole;
    sinter_partition_t *parts[MOST_PARTS];
    sinter_compiled_partition_t *compiled[MOST_PARTS];
    size_t n_parts, n_in, n_out;
    port_t in[MOST_PORTS], out[MOST_PORTS];
} run_t;

/* Numbers near 0 of either sign, small positive scales, indices of at most 5 rows. */
static double draw(const sinter_logical_tensor_t *lt, uint64_t *seed)
{
    const dtype_traits_t *type = dtype_traits(lt->data_type);
    const double x = random_below(seed, 4001) / 2000.0 - 1;
    if (lt->data_type == sinter_s32) {
        return lt->ndims == 0 ? 1500 : random_below(seed, 5);
    }
    if (lt->id == 17) { /* the fill of a mask */
        return -INFINITY;
    }
    if (lt->id == 19) { /* the scale of scores */
        return 0.125;
    }
    if (lt->id == 21 ||
        (lt->data_type == sinter_f16 &&
         ((lt->id >= 11 && lt->id <= 13) || lt->id == 41 || lt->id == 43))) { /* scales */
        return 0.01 * (1.5 + x);
    }
    return type->cls == DTYPE_INT ? (double)random_below(seed, 1 << (type->bits - 1)) +
                                        (type->min < 0 ? type->min / 2 : 0)
                                  : x;
}

/* Masks in memory: columns in turn for each row, 8 of them; two of three columns, whichever; the
 * same with other numbers than 0; columns up to one behind another for each row; all; the first
 * ones, more for each item. */
enum { MASK_SLOTS = 30, MASK_ANY, MASK_NUMBERS, MASK_EARLIER, MASK_NOTHING, MASK_LENGTHS };

static bool is_mask(const sinter_logical_tensor_t *lt)
{
    return lt->id >= MASK_SLOTS && lt->id <= MASK_LENGTHS;
}

static double mask_at(const sinter_logical_tensor_t *lt, int64_t i, double x)
{
    const int64_t rows = lt->dims[0], columns = lt->dims[lt->ndims - 1], row = i / columns,
                  t = i % columns;
    const bool some = ((uint64_t)i * 2654435761u >> 16) % 3 != 0,
               sees = lt->id == MASK_SLOTS     ? t % 8 == row % 8
                      : lt->id == MASK_NOTHING ? true
                      : lt->id == MASK_LENGTHS ? t < 40 + columns * row / rows
                      : lt->id == MASK_EARLIER ? t <= columns - rows + row
                                               : some;
    return !sees ? -INFINITY : lt->id == MASK_NUMBERS ? x : 0;
}

static void make_port(port_t *p, const sinter_logical_tensor_t *lt, uint64_t seed)
{
    const dtype_traits_t *type = dtype_traits(lt->data_type);
    int64_t n = 1;
    for (int d = 0; d < lt->ndims; d++) {
        n *= lt->dims[d];
    }
    seed += lt->id * 7919;
    *p = (port_t){.lt = *lt, .bytes = (size_t)(n * type->bits + 7) / 8};
    p->data = calloc(1, p->bytes + 64);
    for (int64_t i = 0; i < n; i++) {
        const double drawn = draw(lt, &seed), x = is_mask(lt) ? mask_at(lt, i, drawn) : drawn;
        type->codec.store_f64(p->data, i, 1, 1, &x);
    }
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void put_items(const char *graph, int items, char *to)
{
    for (; *graph != '\0'; graph++) {
        to += *graph == '@' ? sprintf(to, "%d", items) : sprintf(to, "%c", *graph);
    }
}

static bool compile_run(run_t *r, const bits_case_t *c, int items, sinter_engine_t *engine)
{
    char text[SPEC_BYTES];
    memset(r, 0, sizeof *r);
    put_items(c->graph, items, text);
    sinter_status_t status = spec_graph(&r->graph, engine, text);
    status = status ? status : sinter_graph_filter(r->graph, sinter_partition_policy_fusion);
    status = status ? status : sinter_graph_get_partition_num(r->graph, &r->n_parts);
    status = status ? status : sinter_graph_get_partitions(r->graph, r->n_parts, r->parts);
    for (size_t i = 0; i < r->n_parts && !status; i++) {
        status = sinter_partition_set_fpmath_mode(r->parts[i], c->mode, true);
        status = status ? status
                        : sinter_partition_compile(r->parts[i], engine, 0, NULL, 0, NULL,
                                                   &r->compiled[i]);
    }
    status =
        status ? status
               : sinter_compiled_graph_create(&r->whole, engine, r->graph, r->n_parts, r->compiled);
    return CHECK(status == sinter_success, "%s: %s", c->what, sinter_last_error_message());
}

/* Inputs with numbers, and outputs. */
static bool make_ports(run_t *r, const bits_case_t *c)
{
    sinter_logical_tensor_t lt[MOST_PORTS];
    sinter_status_t status = sinter_compiled_graph_get_input_num(r->whole, &r->n_in);
    status = status ? status : sinter_compiled_graph_get_output_num(r->whole, &r->n_out);
    status = status ? status : sinter_compiled_graph_get_inputs(r->whole, r->n_in, lt);
    for (size_t i = 0; i < r->n_in && !status; i++) {
        make_port(&r->in[i], &lt[i], 1);
    }
    status = status ? status : sinter_compiled_graph_get_outputs(r->whole, r->n_out, lt);
    for (size_t i = 0; i < r->n_out && !status; i++) {
        make_port(&r->out[i], &lt[i], 2);
    }
    return CHECK(status == sinter_success, "%s: %s", c->what, sinter_last_error_message());
}

static bool open_run(run_t *r, const bits_case_t *c, int items, sinter_engine_t *engine)
{
    return compile_run(r, c, items, engine) && make_ports(r, c);
}

static void close_run(run_t *r, sinter_engine_t *engine)
{
    for (size_t i = 0; i < r->n_in; i++) { /* another constant may come to lie there */
        sinter_engine_invalidate_constants(engine, r->in[i].data, r->in[i].bytes);
        free(r->in[i].data);
    }
    for (size_t i = 0; i < r->n_out; i++) {
        free(r->out[i].data);
    }
    sinter_compiled_graph_destroy(&r->whole);
    for (size_t i = 0; i < r->n_parts; i++) {
        sinter_compiled_partition_destroy(&r->compiled[i]);
        sinter_partition_destroy(&r->parts[i]);
    }
    sinter_graph_destroy(&r->graph);
}

static bool execute(run_t *r, const bits_case_t *c, sinter_stream_t *stream)
{
    sinter_status_t status = sinter_success;
    for (size_t i = 0; i < r->n_in + r->n_out && !status; i++) {
        const port_t *p = i < r->n_in ? &r->in[i] : &r->out[i - r->n_in];
        status = sinter_compiled_graph_bind(r->whole, p->lt.id, 0, NULL, NULL, p->data,
                                            SINTER_BYTES_TRUSTED);
    }
    status = status ? status : sinter_compiled_graph_execute(r->whole, stream);
    return CHECK(status == sinter_success, "%s: %s", c->what, sinter_last_error_message());
}

/* ---- what is compared ------------------------------------------------------------------------ */

enum { STREAMS = 4 };
static const int threads[STREAMS] = {1, 2, 3, 7};
static sinter_stream_t *streams[STREAMS];
static bool ran[MOST_REFUSALS]; /* by kernel */
static bool verbose;
static const char *only = ""; /* cases whose name has this */

/* Whether one of its kernels had not run before. */
static bool mark_kernels(const run_t *r)
{
    bool news = false;
    for (size_t i = 0; i < r->n_parts; i++) {
        const plan_t *plan = &r->compiled[i]->plan;
        for (int s = 0; s < plan->n_steps; s++) {
            bool *now = &ran[plan->steps[s].candidates[0].kernel - sinter_kernels];
            news = news || !*now;
            *now = true;
        }
    }
    return news;
}

/* Whether a kernel that these features suffice for should run, and has not. */
static bool lacks(int kernel, features_t features)
{
    const kernel_t *k = &sinter_kernels[kernel];
    const bool no_bf16 = k->driver->arithmetic == IN_BF16 &&
                         xs_refuse(XS_BF16F32, features) != NULL; /* needs generated code */
    return !ran[kernel] && k->driver->arithmetic != IN_ANY && !no_bf16 &&
           has_features(features, k->needs.bits);
}

static bool lacks_some(features_t features)
{
    bool some = false;
    for (int k = 0; k < sinter_n_kernels; k++) {
        some = some || lacks(k, features);
    }
    return some;
}

/* Rounds are the levels, each with both kinds of engine. 1: all cases run in each. */
static int round_of_all, rounds = 1;

static bool is_turn(size_t number)
{
    return (int)(number % (size_t)rounds) == round_of_all % rounds;
}

/* By each of the streams from first_stream on, in steps of that number. */
static bool by_threads(run_t *r, const bits_case_t *c, int first_stream, const char *level)
{
    unsigned char *first[MOST_PORTS];
    bool ok = execute(r, c, streams[0]);
    for (size_t i = 0; i < r->n_out; i++) {
        first[i] = malloc(r->out[i].bytes + 1);
        memcpy(first[i], r->out[i].data, r->out[i].bytes);
    }
    for (int t = first_stream; t < STREAMS && ok; t += first_stream) {
        for (size_t i = 0; i < r->n_out; i++) {
            memset(r->out[i].data, 0xA5, r->out[i].bytes);
        }
        ok = execute(r, c, streams[t]);
        for (size_t i = 0; i < r->n_out && ok; i++) {
            CHECK(memcmp(first[i], r->out[i].data, r->out[i].bytes) == 0,
                  "%s at %s: %d threads give other bits of tensor %d than one", c->what, level,
                  threads[t], (int)r->out[i].lt.id);
        }
    }
    for (size_t i = 0; i < r->n_out; i++) {
        free(first[i]);
    }
    return ok;
}

static bool has_items(const port_t *p, int items)
{
    return p->lt.ndims > 0 && p->lt.dims[0] == items;
}

/* Whether an item alone gives the bits that it has among others, in `all`. */
static bool same_alone(const run_t *all, const bits_case_t *c, int item, sinter_engine_t *engine)
{
    run_t one;
    bool same = open_run(&one, c, 1, engine);
    for (size_t i = 0; i < one.n_in && same; i++) {
        const bool own = has_items(&all->in[i], c->items);
        memcpy(one.in[i].data, all->in[i].data + (own ? (size_t)item * one.in[i].bytes : 0),
               one.in[i].bytes);
    }
    same = same && execute(&one, c, streams[1]);
    for (size_t i = 0; i < one.n_out && same; i++) {
        same = memcmp(one.out[i].data, all->out[i].data + (size_t)item * one.out[i].bytes,
                      one.out[i].bytes) == 0;
    }
    close_run(&one, engine);
    return same;
}

/* Whether items of `all` have the same bits where the constant cache has no room and, if there are
 * several, one in the middle has an infinity. */
static bool same_otherwise(const run_t *all, const bits_case_t *c, sinter_engine_t *engine)
{
    run_t r;
    sinter_engine_set_constant_cache_budget(engine, 0);
    bool same = open_run(&r, c, c->items, engine);
    for (size_t i = 0; i < r.n_in && same && c->items > 2; i++) {
        port_t *p = &r.in[i];
        const double odd = INFINITY;
        if (p->lt.id == 1 && p->lt.data_type == sinter_f32 && has_items(p, c->items)) {
            const int64_t of_item = (int64_t)(p->bytes / sizeof(float)) / c->items;
            dtype_traits(sinter_f32)->codec.store_f64(p->data, c->items / 2 * of_item, 1, 1, &odd);
        }
    }
    same = same && execute(&r, c, streams[1]);
    for (size_t i = 0; i < r.n_out && same; i++) {
        const size_t of_item = r.out[i].bytes / (size_t)(c->items > 0 ? c->items : 1),
                     last = r.out[i].bytes - of_item;
        same = memcmp(r.out[i].data, all->out[i].data, of_item) == 0 &&
               memcmp(r.out[i].data + last, all->out[i].data + last, of_item) == 0;
    }
    close_run(&r, engine);
    sinter_engine_set_constant_cache_budget(engine, SIZE_MAX);
    return same;
}

static void run_case(const bits_case_t *c, bool in_turn, sinter_engine_t *engine, const char *level)
{
    run_t r;
    if (!in_turn && !lacks_some(engine->features)) {
        return;
    }
    if (compile_run(&r, c, c->items, engine) && (mark_kernels(&r) || in_turn) &&
        make_ports(&r, c)) {
        const bool ok = by_threads(&r, c, engine->deterministic ? 2 : 1, level);
        const kernel_t *kernel = r.compiled[r.n_parts - 1]->plan.steps[0].candidates[0].kernel;
        const bool promised =
            engine->deterministic || c->alone == ALONE_ALWAYS ||
            (c->alone == ALONE_IN_INTEGERS && kernel->driver->arithmetic == IN_INT8);
        if (ok && engine->deterministic) {
            CHECK(same_otherwise(&r, c, engine),
                  "%s at %s: other bits beside an infinity, or without copies of constants",
                  c->what, level);
        }
        if (ok && c->items > 1 && (promised || verbose)) {
            const bool same =
                same_alone(&r, c, 0, engine) && same_alone(&r, c, c->items - 1, engine);
            CHECK(same || !promised, "%s at %s: an item alone has other bits", c->what, level);
            if (verbose) {
                printf("%-45s %-12s %-30s %s\n", c->what, level, kernel->name,
                       same ? "alone: same" : "alone: other");
            }
        }
    }
    close_run(&r, engine);
}

/* ---- heads side by side ---------------------------------------------------------------------- */

/* The same cache with its heads one after the other and side by side. */
static void run_heads(const char *queries, sinter_fpmath_mode_t mode, sinter_engine_t *engine,
                      const char *level)
{
    enum { TOKENS = 1300, SEVERAL = 3, BYTES = 64 * 2 };
    static const bits_case_t of[2][2] = {
        {{"heads one after the other", FLOATS("f16", "3", "1", "1300", "64"), STRICT, 0, ALONE_ANY},
         {"heads side by side", SIDE_BY_SIDE("f16", "1"), STRICT, 0, ALONE_ANY}},
        {{"heads one after the other", FLOATS("f16", "3", "4", "1300", "64"), STRICT, 0, ALONE_ANY},
         {"heads side by side", SIDE_BY_SIDE("f16", "4"), STRICT, 0, ALONE_ANY}}};
    bits_case_t c[2] = {of[queries[0] == '4'][0], of[queries[0] == '4'][1]};
    run_t runs[2];
    bool ok = true;
    for (int k = 0; k < 2; k++) {
        c[k].mode = mode;
        ok = open_run(&runs[k], &c[k], 1, engine) && ok;
    }
    for (size_t i = 0; i < runs[0].n_in && ok; i++) {
        const port_t *from = &runs[0].in[i], *to = &runs[1].in[i];
        for (size_t r = 0; r < SEVERAL * TOKENS && from->lt.id != 1; r++) {
            memcpy(to->data + (r % TOKENS * SEVERAL + r / TOKENS) * BYTES, from->data + r * BYTES,
                   BYTES);
        }
    }
    ok = ok && execute(&runs[0], &c[0], streams[1]) && execute(&runs[1], &c[1], streams[2]);
    CHECK(ok && memcmp(runs[0].out[0].data, runs[1].out[0].data, runs[0].out[0].bytes) == 0,
          "heads side by side at %s, %s rows: other bits", level, queries);
    close_run(&runs[0], engine);
    close_run(&runs[1], engine);
}

/* ---- a prompt in chunks ---------------------------------------------------------------------- */

enum { PROMPT = 600, HEADS = 2, HEAD = 64, LEAST_CHUNK = 9 };

/* Rows of a prompt at once and `chunk` at a time, with a cache of the same capacity. */
static void run_chunks(const bits_case_t *c, int chunk, sinter_engine_t *engine, const char *level)
{
    const size_t row = HEAD * sizeof(float);
    run_t all, some;
    bool same = true;
    if (!open_run(&all, c, PROMPT, engine) || !execute(&all, c, streams[1])) {
        return;
    }
    enum { MOST = 5 }; /* chunks at either end */
    for (int at = 0; at < PROMPT && same; at += chunk) {
        if (at >= MOST * chunk && at < PROMPT - MOST * chunk) {
            continue;
        }
        if (!open_run(&some, c, chunk, engine)) {
            break;
        }
        for (size_t i = 0; i < some.n_in; i++) {
            const port_t *from = &all.in[i], *to = &some.in[i];
            for (size_t h = 0; h < HEADS && to->lt.id == 1; h++) {
                memcpy(to->data + h * (size_t)chunk * row,
                       from->data + (h * PROMPT + (size_t)at) * row, (size_t)chunk * row);
            }
            if (to->lt.id == 15) {
                const int32_t shift = 1500 + at;
                memcpy(to->data, &shift, sizeof shift);
            }
        }
        same = execute(&some, c, streams[2]);
        for (size_t h = 0; h < HEADS && same; h++) {
            same =
                memcmp(some.out[0].data + h * (size_t)chunk * row,
                       all.out[0].data + (h * PROMPT + (size_t)at) * row, (size_t)chunk * row) == 0;
        }
        close_run(&some, engine);
    }
    close_run(&all, engine);
    if (verbose) {
        printf("%-45s %-12s chunks of %d: %s\n", c->what, level, chunk, same ? "same" : "other");
    }
    CHECK(same || (chunk < LEAST_CHUNK && !engine->deterministic),
          "%s at %s: chunks of %d give other bits", c->what, level, chunk);
}

/* ---- a cache that sequences share ------------------------------------------------------------ */

enum { SLOTS = 8, CELLS = 1200 };

/* One token of each of SLOTS sequences whose cells alternate in one cache, and the first and the
 * last of them in a cache of its own. */
static void run_shared(const bits_case_t *shared, const bits_case_t *own, sinter_engine_t *engine,
                       const char *level)
{
    run_t all, one;
    bool same = open_run(&all, shared, 1, engine) && execute(&all, shared, streams[2]);
    for (int slot = 0; slot < SLOTS && same; slot += SLOTS - 1) {
        same = open_run(&one, own, 1, engine);
        for (size_t i = 0; i < one.n_in && same; i++) {
            const port_t *from = &all.in[i], *to = &one.in[i];
            const int n = to->lt.ndims;
            if (to->lt.id == 1) { /* [1, heads, query heads, token, 64] */
                const size_t row = 64 * sizeof(float);
                for (size_t h = 0; h * row < to->bytes; h++) {
                    memcpy(to->data + h * row, from->data + (h * SLOTS + (size_t)slot) * row, row);
                }
            } else if (!is_mask(&to->lt) && n == 5) { /* [1, heads, 1, tokens, ..] */
                const size_t token = to->bytes / 3 / CELLS;
                for (size_t t = 0; t < 3 * (size_t)CELLS; t++) {
                    memcpy(to->data + t * token, from->data + (t * SLOTS + (size_t)slot) * token,
                           token);
                }
            } else if (!is_mask(&to->lt)) {
                memcpy(to->data, from->data, to->bytes);
            }
        }
        same = same && execute(&one, own, streams[1]);
        for (size_t h = 0; h < 12 && same; h++) {
            const size_t row = 64 * sizeof(float);
            same = memcmp(one.out[0].data + h * row,
                          all.out[0].data + (h * SLOTS + (size_t)slot) * row, row) == 0;
        }
        close_run(&one, engine);
    }
    close_run(&all, engine);
    CHECK(same, "%s at %s: a sequence alone has other bits", shared->what, level);
}

static void run_level(sinter_cpu_isa_t isa, bool deterministic)
{
    static const struct {
        const char *what, *graph;
        sinter_fpmath_mode_t mode;
    } prompts[] = {
        {"f16 in chunks", PROMPT_OF("f16"), STRICT},
        {"f16 in chunks, bf16", PROMPT_OF("f16"), BF16},
        {"s4 in chunks", CODES_OF("1", "s4", "2", "2100", "64", "2") PROMPT_OF("f32"), STRICT},
        {"s4 in chunks, int8", CODES_OF("1", "s4", "2", "2100", "64", "2") PROMPT_OF("f32"), INT8},
    };
    const char *level = sinter_cpu_isa_name(isa);
    sinter_engine_t *engine = NULL;
    static const bits_case_t sharing[][2] = {
        {{"a cache of slots", MASKED_FLOATS("f16", "8", "9600", "30:f32:8x9600"), STRICT, 0, 0},
         {"a slot", MASKED_FLOATS("f16", "1", "1200", "34:f32:1x1200"), STRICT, 0, 0}},
        {{"a cache of slots, s8, int8", MASKED_CODES("s8", "8", "9600", "30:f32:8x9600"), INT8, 0,
          0},
         {"a slot, s8, int8", MASKED_CODES("s8", "1", "1200", "34:f32:1x1200"), INT8, 0, 0}},
        {{"a cache of slots, s4", MASKED_CODES("s4", "8", "9600", "30:f32:8x9600"), STRICT, 0, 0},
         {"a slot, s4", MASKED_CODES("s4", "1", "1200", "34:f32:1x1200"), STRICT, 0, 0}},
    };
    const sinter_engine_desc_t desc = {.size = sizeof desc, .deterministic = deterministic};
    CHECK_THAT(sinter_engine_create(&engine, &desc) == sinter_success);
    engine->features = features_of_level(isa);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strstr(cases[i].what, only) != NULL) {
            run_case(&cases[i], is_turn(i), engine, level);
        }
    }
    /* Odd rounds are those of deterministic engines. */
    for (size_t i = 0; i < sizeof sharing / sizeof *sharing && deterministic; i++) {
        if (is_turn(2 * i + 1)) {
            run_shared(&sharing[i][0], &sharing[i][1], engine, level);
        }
    }
    for (size_t i = 0; i < 3; i++) {
        if (is_turn(i)) {
            run_heads(i == 0 ? "1" : "4", i == 2 ? INT8 : STRICT, engine, level);
        }
    }
    static const int chunks[] = {200, 100, 30, 25, 10, 4, 1};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        for (size_t k = 0; k < sizeof prompts / sizeof *prompts; k++) {
            const bits_case_t c = {prompts[k].what, prompts[k].graph, prompts[k].mode, 0,
                                   ALONE_ANY};
            const bool most = chunks[i] >= LEAST_CHUNK || verbose;
            if ((most || deterministic) && is_turn(most ? i + 3 * k : 2 * (i + k) + 1)) {
                run_chunks(&c, chunks[i], engine, level);
            }
        }
    }
    sinter_engine_destroy(&engine);
}

int main(int argc, char **argv)
{
    wait_passively(argv);
    verbose = argc > 1 && strcmp(argv[1], "--verbose") == 0;
    only = argc > 2 ? argv[2] : only;
    const features_t machine = features_up_to(sinter_isa_avx512_vnni);
    for (int t = 0; t < STREAMS; t++) {
        const sinter_stream_desc_t desc = {
            .size = sizeof desc, .threads = threads[t], .all_threads = 1};
        CHECK_THAT(sinter_stream_create(&streams[t], NULL, &desc) == sinter_success);
    }
    sinter_cpu_isa_t levels[MOST_ISA + 1];
    int n = 0;
    for (int isa = sinter_isa_generic; isa <= MOST_ISA; isa++) {
        if (level_of_features(features_up_to((sinter_cpu_isa_t)isa)) == (sinter_cpu_isa_t)isa) {
            levels[n++] = (sinter_cpu_isa_t)isa;
        }
    }
#if defined(__SANITIZE_ADDRESS__)
    rounds = 2 * n;
#endif
    for (int i = 0; i < 2 * n; i++) {
        round_of_all = i;
        run_level(levels[i / 2], i % 2);
    }
    for (int k = 0; k < sinter_n_kernels; k++) {
        CHECK(!lacks(k, machine), "no case runs %s", sinter_kernels[k].name);
    }
    for (int t = 0; t < STREAMS; t++) {
        sinter_stream_destroy(&streams[t]);
    }
    return check_finish();
}
