/* Quantisation with computed scales: alone, behind all that may produce its input, and
 * dequantised again in front of what consumes it. */
#include "fuzz.h"

#include <string.h>

/* Rows of K against a matrix: X is transposed at random, and either side may be compressed. */
static int times_matrix(fz_t *f, int x, int64_t n)
{
    const fz_tensor_t t = f->tensors[x];
    const int64_t k = t.dims[t.ndims - 1], turned = fz_chance(f, 40),
                  w_dims[2] = {turned ? n : k, turned ? k : n};
    int64_t dims[FZ_MAX_RANK];
    int w = fz_chance(f, 60) ? fz_dequantized(f, fz_float(f), 2, w_dims, -1)
                             : fz_input(f, fz_float(f), 2, w_dims),
        y;

    memcpy(dims, t.dims, sizeof dims);
    dims[t.ndims - 1] = n;
    y = FZ_OP(f, matmul, fz_float(f), t.ndims, dims, x, w);
    if (turned) {
        fz_bool(f, sinter_op_attr_transpose_b, 1);
    }
    return y;
}

/* A matrix X times the rows that were compressed: attention scores, or a product with weights. */
static int times_rows(fz_t *f, int x, int64_t m)
{
    const fz_tensor_t t = f->tensors[x];
    const int64_t a_dims[2] = {m, t.dims[t.ndims - 1]};
    int64_t dims[FZ_MAX_RANK];
    int a = fz_input(f, fz_float(f), 2, a_dims), y;

    memcpy(dims, t.dims, sizeof dims);
    dims[t.ndims - 2] = m;
    dims[t.ndims - 1] = t.dims[t.ndims - 2];
    y = FZ_OP(f, matmul, fz_float(f), t.ndims, dims, a, x);
    fz_bool(f, sinter_op_attr_transpose_b, 1);
    return y;
}

static int softmax(fz_t *f, int x)
{
    const int n = f->tensors[x].ndims;

    x = fz_unary(f, sinter_op_softmax, fz_float(f), x);
    fz_s64(f, sinter_op_attr_axis, 1, &(int64_t){n - 1});
    return x;
}

static int some_dims(fz_t *f, int64_t *dims)
{
    int n = fz_range(f, 1, 4);
    int64_t room = 6000;

    for (int d = n - 1; d >= 0; d--) {
        int64_t size =
            fz_chance(f, 1) ? 0 : FZ_ONE_OF(f, 1, 2, 3, 4, 8, 16, 32, 48, 64, 96, 128, 256, 260);

        while (size > room) {
            size /= 2;
        }
        room = size ? room / size : room;
        dims[d] = size > 16 ? fz_dim(f, size, 16) : size;
    }
    return n;
}

static int wild_input(fz_t *f, int ndims, const int64_t *dims)
{
    int x = fz_input(f, fz_float(f), ndims, dims);

    f->tensors[x].wild = fz_chance(f, 60);
    return x;
}

static int source(fz_t *f)
{
    int64_t dims[FZ_MAX_RANK];
    const int n = some_dims(f, dims), what = fz_pick(f, 10);
    int x;

    if (what == 0) {
        return fz_dequantized(f, fz_float(f), n, dims, -1);
    }
    x = what < 5 ? wild_input(f, n, dims) : fz_input(f, fz_float(f), n, dims);
    if (what == 5 || what == 6) {
        for (int i = fz_range(f, 1, 3); i > 0; i--) {
            x = fz_post_op(f, x);
        }
    }
    if (what == 7) {
        x = softmax(f, x);
    }
    if (what > 7) {
        x = times_matrix(f, x, fz_dim(f, FZ_ONE_OF(f, 1, 16, 32, 33, 64, 96), 32));
    }
    if (what > 7 && fz_chance(f, 40)) {
        x = fz_post_op(f, x);
    }
    return x;
}

static int turned(fz_t *f, int x)
{
    const int n = f->tensors[x].ndims;
    int64_t order[FZ_MAX_RANK];

    for (int d = 0; d < n; d++) {
        order[d] = d < n - 2 ? d : 2 * n - 3 - d;
    }
    return n > 1 ? fz_transpose(f, x, order) : x;
}

static int consumed(fz_t *f, int x)
{
    const int what = fz_pick(f, 6);

    if (what == 0) {
        return turned(f, x);
    }
    if (what == 1 && f->tensors[x].ndims > 1) {
        return times_rows(f, x, fz_dim(f, FZ_ONE_OF(f, 1, 4, 17, 64), 1));
    }
    if (what == 2) {
        return softmax(f, x);
    }
    return what < 5 ? times_matrix(f, x, fz_dim(f, FZ_ONE_OF(f, 1, 16, 33, 64), 1))
                    : fz_post_op(f, x);
}

void fz_gen_dynquant(fz_t *f)
{
    int x = source(f), rounds = fz_range(f, 1, 3);

    f->compute_scales = 1;
    if (fz_chance(f, 10)) {
        x = turned(f, x);
    }
    while (rounds-- > 0) {
        fz_coded_t q = fz_computed(f, x, FZ_ONE_OF(f, 0, 0, 16, 32, 64, 128));

        if (rounds == 0 && fz_chance(f, 60)) {
            return;
        }
        x = consumed(f, fz_recovered(f, fz_float(f), &q));
    }
}
