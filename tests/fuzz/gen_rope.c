/* Rotary embeddings and Hadamard transforms of rows with what stands before and behind them: norms,
 * attention's scores, and caches to which rows are appended. */
#include "fuzz.h"

#include <string.h>

typedef struct tokens {
    int64_t batch, heads, n, head; /* head: elements */
} tokens_t;

static int norm_of_heads(fz_t *f, int x)
{
    const fz_tensor_t t = f->tensors[x];
    return FZ_OP(f, rms_norm, fz_float(f), t.ndims, t.dims, x,
                 fz_input(f, fz_float(f), 1, &t.dims[t.ndims - 1]));
}

/* Tables of cosines and sines of each token, or of each position; or inverse frequencies. */
static int angles(fz_t *f, const tokens_t *s, int64_t half, int *in)
{
    const int64_t most = FZ_ONE_OF(f, 1, 7, 40, 200), by_token[3] = {s->batch, s->n, half},
                  by_position[2] = {most, half}, positions[2] = {s->batch, s->n};
    const int how = fz_pick(f, 3);
    const sinter_data_type_t type = fz_chance(f, 70) ? sinter_f32 : fz_float(f);
    in[1] = how == 0   ? fz_input(f, type, 3, by_token)
            : how == 1 ? fz_input(f, type, 2, by_position)
                       : fz_input(f, type, 1, &half);
    if (how < 2) {
        in[2] = fz_input(f, type, how == 0 ? 3 : 2, how == 0 ? by_token : by_position);
    }
    if (how == 0) {
        return 3;
    }
    in[how == 1 ? 3 : 2] = fz_indices(f, 2, positions, how == 1 ? most : 5000);
    return how == 1 ? 4 : 3;
}

static int rotary(fz_t *f, int x, const tokens_t *s)
{
    const fz_tensor_t t = f->tensors[x];
    const int64_t part = s->head > 2 && fz_chance(f, 30) ? s->head / 4 * 2 : 0;
    int in[4] = {x};
    const int n = angles(f, s, (part ? part : s->head) / 2, in),
              y = fz_op(f, sinter_op_rotary_embedding, fz_chance(f, 70) ? t.type : fz_float(f),
                        t.ndims, t.dims, n, in);
    if (part) {
        fz_s64(f, sinter_op_attr_rotary_embedding_dim, 1, &part);
    }
    if (t.ndims == 3 || fz_chance(f, 20)) {
        fz_s64(f, sinter_op_attr_num_heads, 1, &s->heads);
    }
    if (fz_chance(f, 30)) {
        fz_bool(f, sinter_op_attr_interleaved, 1);
    }
    if (fz_chance(f, 20)) {
        fz_f32(f, sinter_op_attr_scale, 1, (const float[]){1.25F});
    }
    return y;
}

/* Blocks of any power of two that divides a row. */
static int transformed(fz_t *f, int x)
{
    const fz_tensor_t t = f->tensors[x];
    const int64_t last = t.dims[t.ndims - 1];
    int64_t block = 1;
    while (last % (2 * block) == 0 && fz_chance(f, 80)) {
        block *= 2;
    }
    x = FZ_OP(f, hadamard_transform, fz_chance(f, 70) ? t.type : fz_float(f), t.ndims, t.dims, x);
    if (block != last || fz_chance(f, 50)) {
        fz_s64(f, sinter_op_attr_block_size, 1, &block);
    }
    return x;
}

/* Rows of x go to slots of a cache of the same kind. */
static int append(fz_t *f, int x, int axis, int64_t length, int slots)
{
    const fz_tensor_t t = f->tensors[x];
    int64_t dims[FZ_MAX_RANK];
    memcpy(dims, t.dims, sizeof dims);
    dims[axis] = length;
    const int cache = fz_input(f, t.type, t.ndims, dims);
    if (gr_dtype(t.type)->bits % 8 != 0) {
        fz_no_gaps(f, cache);
    }
    x = FZ_OP(f, scatter_rows, t.type, t.ndims, dims, cache, slots, x);
    fz_s64(f, sinter_op_attr_axis, 1, &(int64_t){fz_chance(f, 50) ? axis : axis - t.ndims});
    return x;
}

static void into_caches(fz_t *f, int k, int v, int axis)
{
    const int64_t length = fz_dim(f, FZ_ONE_OF(f, 1, 5, 16, 33), 1);
    const int slots = fz_indices(f, 1, &f->tensors[k].dims[axis], length);
    f->tensors[slots].skip = fz_chance(f, 50);
    const int what = fz_pick(f, 3);
    const int tensors[2] = {k, v};
    for (int i = 0; i < 2 && tensors[i] >= 0; i++) {
        if (what == 0) {
            append(f, tensors[i], axis, length, slots);
            continue;
        }
        if (what == 1) {
            append(f, fz_cast(f, fz_code_type(f), tensors[i]), axis, length, slots);
            continue;
        }
        const fz_coded_t q = fz_computed(f, tensors[i], FZ_ONE_OF(f, 0, 16, 32));
        append(f, q.codes, axis, length, slots);
        if (f->tensors[q.scales].ndims == f->tensors[k].ndims &&
            f->tensors[q.scales].dims[axis] == f->tensors[k].dims[axis]) {
            append(f, q.scales, axis, length, slots);
        }
    }
}

/* q times the rows of another rotated tensor. */
static void scores(fz_t *f, int q, const tokens_t *s)
{
    const tokens_t keys = {s->batch, s->heads, FZ_ONE_OF(f, 1, 4, 17), s->head};
    const int64_t k_dims[4] = {keys.batch, keys.heads, keys.n, keys.head},
                  dims[4] = {s->batch, s->heads, s->n, keys.n};
    const int k = rotary(f, fz_input(f, fz_float(f), 4, k_dims), &keys);
    FZ_OP(f, matmul, fz_float(f), 4, dims, q, k);
    fz_bool(f, sinter_op_attr_transpose_b, 1);
}

void fz_gen_rope(fz_t *f)
{
    const tokens_t s = {fz_dim(f, FZ_ONE_OF(f, 1, 1, 2, 3), 1), FZ_ONE_OF(f, 1, 2, 3, 8),
                        fz_dim(f, FZ_ONE_OF(f, 1, 1, 3, 9), 1),
                        FZ_ONE_OF(f, 2, 4, 6, 16, 32, 64, 96)};
    const int flat = fz_chance(f, 30), axis = flat ? 1 : 2;
    const int64_t rows[4] = {s.batch, s.heads, s.n, s.head},
                  side[3] = {s.batch, s.n, s.heads * s.head};
    const int64_t *dims = flat ? side : rows;
    const int ndims = flat ? 3 : 4;
    int x = fz_rows(f, ndims, dims);
    if (fz_chance(f, 30)) {
        x = norm_of_heads(f, x);
    }
    for (int n = fz_chance(f, 20) ? 3 : fz_chance(f, 90); n > 0; n--) { /* of several positions */
        x = rotary(f, x, &s);
    }
    f->tensors[x].keep = fz_chance(f, 10);
    x = fz_chance(f, 25) ? transformed(f, x) : x;
    const int what = fz_pick(f, 5);
    if (what < 2) {
        int v = fz_chance(f, 60) ? fz_input(f, fz_float(f), ndims, dims) : -1;
        v = v >= 0 && fz_chance(f, 25) ? transformed(f, v) : v;
        into_caches(f, x, v, axis);
    } else if (what == 2 && !flat) {
        scores(f, x, &s);
    } else if (what == 3) {
        fz_quantized(f, fz_chance(f, 50) ? fz_post_op(f, x) : x);
    }
}
