/* One MatMul: batch broadcasting, transposes, bias, compressed operands, and what rides on it. */
#include "fuzz.h"

#include <string.h>

typedef struct product {
    int batch_dims;
    int64_t batch[FZ_MAX_RANK], m, n, k;
} product_t;

/* Dims of one operand: its own part of the batch, then rows and columns, swapped where
 * transposed. */
static int operand_dims(fz_t *f, const product_t *p, int64_t rows, int64_t cols, int transposed,
                        int64_t *dims)
{
    int drop = fz_chance(f, 25) ? fz_pick(f, p->batch_dims + 1) : 0, n = 0;

    for (int d = drop; d < p->batch_dims; d++) {
        dims[n++] = fz_part(f, p->batch[d], 20);
    }
    dims[n++] = transposed ? cols : rows;
    dims[n++] = transposed ? rows : cols;
    return n;
}

static int float_operand(fz_t *f, int ndims, const int64_t *dims)
{
    int x = fz_input(f, fz_float(f), ndims, dims);

    f->tensors[x].vast = fz_chance(f, 10);
    if (fz_chance(f, 10)) {
        x = fz_cast(f, fz_float(f), x);
    } else if (fz_chance(f, 10)) {
        x = fz_binary(f, sinter_op_multiply, fz_float(f), x, fz_scalar(f, fz_float(f), ndims));
    } else if (fz_chance(f, 5)) {
        x = fz_random_unary(f, x, fz_float(f));
    }
    return x;
}

/* The last dim in blocks, between which a loose stride leaves something else. */
static int in_blocks(fz_t *f, int ndims, const int64_t *dims, int64_t block)
{
    int64_t apart[FZ_MAX_RANK + 1];

    memcpy(apart, dims, sizeof(int64_t) * (size_t)(ndims - 1));
    apart[ndims - 1] = dims[ndims - 1] / block;
    apart[ndims] = block;
    const int x = fz_chance(f, 70) ? fz_dequantized(f, fz_float(f), ndims + 1, apart, -1)
                                   : fz_input(f, fz_float(f), ndims + 1, apart);
    return fz_reshape(f, x, ndims, dims);
}

/* Compressed, perhaps stored as the transpose and turned by an op. */
static int compressed_operand(fz_t *f, int ndims, const int64_t *dims)
{
    int64_t turned[FZ_MAX_RANK], order[FZ_MAX_RANK];
    int turn = ndims > 1 && fz_chance(f, 15), x;
    const int64_t last = dims[ndims - 1], block = FZ_ONE_OF(f, 1, 4, 8, 32, 32);

    if (ndims > 1 && ndims < FZ_MAX_RANK && last > 0 && last % block == 0 && fz_chance(f, 15)) {
        return in_blocks(f, ndims, dims, block);
    }

    for (int d = 0; d < ndims; d++) {
        order[d] = turn && d >= ndims - 2 ? 2 * ndims - 3 - d : d;
        turned[d] = dims[order[d]];
    }
    x = fz_dequantized(f, fz_float(f), ndims, turned, -1);
    if (turn) {
        x = fz_transpose(f, x, order);
    }
    return fz_chance(f, 10) ? fz_cast(f, fz_float(f), x) : x;
}

static int operand(fz_t *f, int ndims, const int64_t *dims, int percent_compressed)
{
    static const sinter_data_type_t f8[] = {sinter_f8_e4m3, sinter_f8_e5m2, sinter_f8_e4m3fnuz,
                                            sinter_f8_e5m2fnuz};

    if (fz_chance(f, 3)) {
        return fz_input(f, f8[fz_pick(f, 4)], ndims, dims);
    }
    return fz_chance(f, percent_compressed) ? compressed_operand(f, ndims, dims)
                                            : float_operand(f, ndims, dims);
}

static int64_t some_dim(fz_t *f)
{
    return fz_dim(f, FZ_ONE_OF(f, 1, 1, 2, 3, 5, 7, 16, 17, 24, 33, 65), 1);
}

static void choose_product(fz_t *f, product_t *p)
{
    int64_t room = 24;

    p->batch_dims = fz_chance(f, 50) ? 0 : fz_range(f, 1, 4);
    for (int d = 0; d < p->batch_dims; d++) {
        int64_t size = fz_range(f, 1, 4);

        while (size > room) {
            size--;
        }
        room /= size;
        p->batch[d] = fz_dim(f, size, 1);
    }
    p->m = some_dim(f);
    p->n = some_dim(f);
    p->k = fz_chance(f, 2) ? 0
                           : fz_dim(f, FZ_ONE_OF(f, 1, 3, 8, 16, 31, 32, 33, 48, 64, 96, 128, 130),
                                    FZ_ONE_OF(f, 1, 8, 32));
}

/* The last op's operands; 1-D ones lose their dim of the result. */
static int multiply(fz_t *f, const product_t *p)
{
    int64_t a_dims[FZ_MAX_RANK], b_dims[FZ_MAX_RANK], dims[FZ_MAX_RANK];
    int ta = fz_chance(f, 25), tb = fz_chance(f, 30), a_vector = fz_chance(f, 4),
        b_vector = fz_chance(f, 4);
    int na = a_vector ? 1 : operand_dims(f, p, p->m, p->k, ta, a_dims);
    int nb = b_vector ? 1 : operand_dims(f, p, p->k, p->n, tb, b_dims);
    int percent = fz_chance(f, 65) ? 100 : 0, n, in[3], n_in = 2;
    sinter_data_type_t type =
        fz_chance(f, 95) ? fz_float(f)
                         : (sinter_data_type_t)FZ_ONE_OF(f, sinter_f8_e4m3, sinter_f8_e5m2fnuz);

    if (a_vector) {
        a_dims[0] = p->k;
    }
    if (b_vector) {
        b_dims[0] = p->k;
    }
    in[0] = operand(f, na, a_dims, percent / 3);
    in[1] = operand(f, nb, b_dims, percent);
    fz_perhaps_in_tiles(f, in[1], tb, 10);
    n = fz_joined_dims(f, na < 2 ? 0 : na - 2, a_dims, nb < 2 ? 0 : nb - 2, b_dims, dims);
    if (!a_vector) {
        dims[n++] = p->m;
    }
    if (!b_vector) {
        dims[n++] = p->n;
    }
    if (!b_vector && fz_chance(f, 25)) {
        in[n_in++] = fz_input(f, fz_float(f), 1, &p->n);
    }
    n = fz_op(f, sinter_op_matmul, type, n, dims, n_in, in);
    if (ta || fz_chance(f, 20)) {
        fz_bool(f, sinter_op_attr_transpose_a, ta);
    }
    if (tb || fz_chance(f, 20)) {
        fz_bool(f, sinter_op_attr_transpose_b, tb);
    }
    return n;
}

void fz_gen_matmul(fz_t *f)
{
    product_t p;
    int x, posts = fz_chance(f, 50) ? fz_range(f, 1, 4) : 0;

    choose_product(f, &p);
    x = multiply(f, &p);
    for (int i = 0; i < posts; i++) {
        f->tensors[x].keep = fz_chance(f, 5);
        x = fz_post_op(f, x);
    }
    if (fz_chance(f, 12)) {
        fz_quantized(f, gr_dtype(f->tensors[x].type)->bits > 8 ? x : fz_cast(f, fz_float(f), x));
    }
}
