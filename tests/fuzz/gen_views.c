/* Chains of reshapes, transposes and reorders with other elementwise work between them. */
#include "fuzz.h"

static int turn(fz_t *f, int x)
{
    int64_t order[FZ_MAX_RANK];
    int n = f->tensors[x].ndims;

    for (int d = 0; d < n; d++) {
        order[d] = d;
    }
    for (int d = n - 1; d > 0; d--) {
        int other = fz_pick(f, d + 1);
        int64_t t = order[d];

        order[d] = order[other];
        order[other] = t;
    }
    return fz_transpose(f, x, order);
}

/* Splits a dim, merges two neighbours, adds or drops a dim of size 1, or flattens. */
static int reshape(fz_t *f, int x)
{
    const fz_tensor_t *t = &f->tensors[x];
    int64_t dims[FZ_MAX_RANK];
    int n = 0, d = t->ndims ? fz_pick(f, t->ndims) : 0, what = fz_pick(f, 5), y;

    if (what == 0 && t->ndims && t->ndims < FZ_MAX_RANK && !fz_is_symbol(t->dims[d]) &&
        t->dims[d] > 0) {
        int64_t by = fz_divisor(f, t->dims[d]);

        for (int i = 0; i < t->ndims; i++) {
            dims[n++] = i == d ? by : t->dims[i];
            if (i == d) {
                dims[n++] = t->dims[i] / by;
            }
        }
    } else if (what == 1 && d + 1 < t->ndims &&
               (!fz_is_symbol(t->dims[d]) && !fz_is_symbol(t->dims[d + 1]))) {
        for (int i = 0; i < t->ndims; i++) {
            dims[n++] = i == d ? t->dims[i] * t->dims[i + 1] : t->dims[i];
            i += i == d;
        }
    } else if (what == 2 && t->ndims < FZ_MAX_RANK) {
        for (int i = 0; i <= t->ndims; i++) {
            if (i == d) {
                dims[n++] = 1;
            }
            if (i < t->ndims) {
                dims[n++] = t->dims[i];
            }
        }
    } else if (what == 3) {
        for (int i = 0; i < t->ndims; i++) {
            if (t->dims[i] != 1) {
                dims[n++] = t->dims[i];
            }
        }
    } else {
        dims[n] = 1;
        for (int i = 0; i < t->ndims; i++) {
            if (fz_is_symbol(t->dims[i])) {
                return x;
            }
            dims[n] *= t->dims[i];
        }
        n++;
    }
    y = fz_reshape(f, x, n, dims);
    return y < 0 ? x : y;
}

static int reorder(fz_t *f, int x)
{
    return fz_unary(f, sinter_op_reorder, f->tensors[x].type, x);
}

static int is_float(const fz_t *f, int x)
{
    sinter_data_type_t type = f->tensors[x].type;

    return type == sinter_f32 || type == sinter_f16 || type == sinter_bf16;
}

void fz_gen_views(fz_t *f)
{
    int64_t dims[FZ_MAX_RANK], room = 5000;
    int ndims = fz_range(f, 1, 5), steps = fz_range(f, 2, 8),
        interleaved = fz_chance(f, 50) && !f->dynamic, x;

    for (int d = 0; d < ndims; d++) {
        int64_t size = fz_chance(f, 1) ? 0 : FZ_ONE_OF(f, 1, 2, 3, 4, 6, 8, 12, 16, 17, 32);

        while (size > room) {
            size /= 2;
        }
        room = size ? room / size : room;
        dims[d] = size ? fz_dim(f, size, 1) : 0;
    }
    f->interleave = interleaved;
    if (fz_chance(f, 25)) {
        x = fz_dequantized(f, fz_float(f), ndims, dims, -1);
    } else {
        x = fz_input(f, fz_chance(f, 80) ? fz_float(f) : fz_code_type(f), ndims, dims);
    }
    for (int i = 0; i < steps || f->n_ops == 0; i++) {
        int what = fz_pick(f, 10);

        f->tensors[x].keep = f->tensors[x].produced && fz_chance(f, 6);
        if (interleaved) {
            fz_interleave(f, x);
        }
        if (what < 3) {
            x = reshape(f, x);
        } else if (what < 6) {
            x = turn(f, x);
        } else if (what == 6) {
            x = reorder(f, x);
        } else if (is_float(f, x)) {
            x = what == 7 && fz_chance(f, 40) ? fz_quantized(f, x) : fz_post_op(f, x);
        } else if (f->tensors[x].type != sinter_boolean) {
            x = fz_dequantized(f, fz_float(f), f->tensors[x].ndims, f->tensors[x].dims, x);
        }
    }
    if (interleaved) {
        fz_interleave(f, x);
    }
}
