/* Attention where each of Q, K, a third tensor among the scores, and V has one batch or several,
 * known to compile or not: all 256 combinations, in six graphs that read batches in different
 * places, against the oracle. Each is compiled once and runs with three sets of batches.
 * SINTER_BATCHES_ONLY=N runs one combination. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../fuzz/fuzz.h"
#include "check.h"
#include "passive.h"

enum { SEVERAL = 3, HEADS = 2, KEYS = 40, HEAD = 16 };
enum operand { Q, K, SIDE, V, OPERANDS };

/* What the third tensor is. */
typedef enum kind {
    MASK,    /* added to the scores */
    DECODED, /* the same, with one row of Q, and codes of K and V */
    INDICES, /* the same behind a causal mask and an index along the batches */
    LENGTHS, /* the last token of each sequence */
    SINKS,   /* added, and sinks; the statistics of the softmax are an output */
    WEIGHTS, /* multiplied with the probabilities, which are codes before that */
    KINDS
} kind_t;

/* The batch dim of an operand: bit 0 of form: it has several; bit 1: compile does not know. Then
 * other executes have others. */
static int64_t batches(fz_t *f, int form, int may_be_empty)
{
    const int64_t n = form & 1 ? SEVERAL : 1;

    if (!(form & 2)) {
        return n;
    }
    return fz_symbol(f, n, FZ_ONE_OF(f, 1, SEVERAL), may_be_empty ? 0 : FZ_ONE_OF(f, 1, SEVERAL));
}

static int product(fz_t *f, int x, int y, int turned)
{
    const fz_tensor_t tx = f->tensors[x], ty = f->tensors[y];
    int64_t dims[4];

    fz_joined_dims(f, 2, tx.dims, 2, ty.dims, dims);
    dims[2] = tx.dims[2];
    dims[3] = ty.dims[turned ? 2 : 3];
    x = FZ_OP(f, matmul, sinter_f32, 4, dims, x, y);
    fz_bool(f, sinter_op_attr_transpose_b, turned);
    return x;
}

/* K or V: rows of the head, one for each token. */
static int cache(fz_t *f, int64_t batch, int64_t heads, int coded)
{
    const int64_t dims[4] = {batch, heads, KEYS, HEAD}, shape[4] = {1, 1, 1, HEAD},
                  sides[4] = {batch, heads, KEYS, 1};
    int in[2], x = fz_input(f, coded ? sinter_s8 : sinter_f32, 4, dims);

    fz_no_gaps(f, x);
    if (!coded) {
        return x;
    }
    in[0] = x;
    in[1] = fz_input(f, sinter_f16, 4, sides);
    x = fz_op(f, sinter_op_dynamic_dequantize, sinter_f32, 4, dims, 2, in);
    fz_str(f, sinter_op_attr_qtype, "per_group");
    fz_s64(f, sinter_op_attr_group_shape, 4, shape);
    return x;
}

static int index_along(fz_t *f, int x, int64_t axis)
{
    const int index = fz_unary(f, sinter_op_gen_index, sinter_s32, x);

    fz_s64(f, sinter_op_attr_axis, 1, &axis);
    return index;
}

static int keep_where(fz_t *f, int a, int b, int x)
{
    static const double lowest[FZ_VARIANTS] = {-INFINITY, -INFINITY, -INFINITY};
    const int keep = fz_binary(f, sinter_op_greater_equal, sinter_boolean, a, b),
              fill = fz_scalar(f, sinter_f32, 4);
    const fz_tensor_t tk = f->tensors[keep], tx = f->tensors[x];
    int64_t dims[4];

    f->tensors[fill].value = lowest;
    fz_joined_dims(f, 4, tk.dims, 4, tx.dims, dims);
    return FZ_OP(f, select, sinter_f32, 4, dims, keep, x, fill);
}

static int add(fz_t *f, int x, int y)
{
    return fz_binary(f, sinter_op_add, sinter_f32, x, y);
}

/* What stands between the scores and the softmax. */
static int masked(fz_t *f, kind_t kind, int64_t batch, int x)
{
    const int64_t rows = f->tensors[x].dims[2], dims[4] = {batch, 1, rows, KEYS},
                  each[4] = {batch, 1, 1, 1};

    x = fz_binary(f, sinter_op_multiply, sinter_f32, x, fz_scalar(f, sinter_f32, 4));
    if (kind == INDICES) {
        x = add(f, x, fz_cast(f, sinter_f32, index_along(f, x, 0)));
        x = keep_where(f, index_along(f, x, -2), index_along(f, x, -1), x);
    }
    if (kind == LENGTHS) {
        const int last = fz_input(f, sinter_s32, 4, each);
        f->tensors[last].index_of = KEYS;
        return keep_where(f, last, index_along(f, x, 3), x);
    }
    return kind <= INDICES ? add(f, x, fz_input(f, sinter_f32, 4, dims)) : x;
}

static int softmax(fz_t *f, kind_t kind, int64_t batch, int x)
{
    const fz_tensor_t t = f->tensors[x];
    const int64_t last = 3, each[4] = {t.dims[0], t.dims[1], t.dims[2], 1},
                  sinks[4] = {batch, HEADS, 1, 1};
    const float scale = 1.0f / 128;

    x = kind == SINKS
            ? FZ_OP(f, softmax, sinter_f32, 4, t.dims, x, fz_input(f, sinter_f32, 4, sinks))
            : fz_unary(f, sinter_op_softmax, sinter_f32, x);
    fz_s64(f, sinter_op_attr_axis, 1, &last);
    fz_str(f, sinter_op_attr_mode, "inf_as_zero");
    if (kind == SINKS) {
        fz_more_output(f, sinter_f32, 4, each);
    }
    if (kind == WEIGHTS) {
        const int64_t dims[4] = {batch, 1, each[2], KEYS};
        x = fz_unary(f, sinter_op_quantize, sinter_u8, x);
        fz_f32(f, sinter_op_attr_scales, 1, &scale);
        x = fz_unary(f, sinter_op_dequantize, sinter_f32, x);
        fz_f32(f, sinter_op_attr_scales, 1, &scale);
        x = fz_binary(f, sinter_op_multiply, sinter_f32, x, fz_input(f, sinter_f32, 4, dims));
    }
    return x;
}

/* forms: two bits for each operand, Q first. */
static void build(fz_t *f, kind_t kind, int forms)
{
    /* V may have no batches at all, where the others have one. */
    const int empty = kind == SINKS && forms == 0xFF;
    const int64_t q_heads = HEADS, heads = kind % 2 ? 1 : HEADS, rows = kind == DECODED ? 1 : 5;
    int64_t batch[OPERANDS];
    int x, y;

    f->dynamic = 1;
    for (int i = 0; i < OPERANDS; i++) {
        batch[i] = empty && i < V ? fz_symbol(f, SEVERAL, 1, 1)
                                  : batches(f, forms >> 2 * i & 3, empty && i == V);
    }
    x = fz_input(f, sinter_f32, 4, (int64_t[]){batch[Q], q_heads, rows, HEAD});
    y = cache(f, batch[K], heads, kind == DECODED);
    x = masked(f, kind, batch[SIDE], product(f, x, y, 1));
    if (kind == SINKS) { /* the scores must have as many batches as their sinks */
        x = add(f, x, fz_input(f, sinter_f32, 4, (int64_t[]){batch[SIDE], 1, 1, 1}));
    }
    x = softmax(f, kind, batch[SIDE], x);
    product(f, x, cache(f, batch[V], heads, kind == DECODED), 0);
}

int main(int argc, char **argv)
{
    (void)argc;
    wait_passively(argv);
    const char *only = getenv("SINTER_BATCHES_ONLY");

    for (int i = 0; i < KINDS * 256; i++) {
        char text[1024] = "";
        fz_t f;
        fz_outcome_t outcome;

        if (only != NULL && strtol(only, NULL, 0) != i) {
            continue;
        }
        fz_init(&f, (uint64_t)i + 1);
        f.generator = "batches";
        f.mode = sinter_fpmath_mode_strict;
        f.fused_only = 1;
        build(&f, (kind_t)(i >> 8), i & 0xFF);
        outcome = fz_run(&f, text, sizeof text);
        if (!CHECK(outcome == FZ_PASSED, "combination %d: %s", i, text)) {
            fz_print(&f);
        }
        fz_free(&f);
    }
    fz_check_loose(0);
    return check_finish();
}
