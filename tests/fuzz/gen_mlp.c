/* Feed-forward blocks: compressed weights, gates, biases, residuals, activations that are
 * quantised between the layers. */
#include "fuzz.h"

typedef struct mlp {
    int64_t rows, inner, outer;
    sinter_data_type_t type;
} mlp_t;

static sinter_data_type_t type_near(fz_t *f, const mlp_t *m)
{
    return fz_chance(f, 80) ? m->type : fz_float(f);
}

static int linear(fz_t *f, const mlp_t *m, int x, int64_t from, int64_t to)
{
    const int turned = fz_chance(f, 50), bias = fz_chance(f, 30);
    const int64_t w_dims[2] = {turned ? to : from, turned ? from : to}, dims[2] = {m->rows, to};
    int in[3] = {x}, n = 2;

    in[1] = fz_chance(f, 75) ? fz_dequantized(f, type_near(f, m), 2, w_dims, -1)
                             : fz_input(f, type_near(f, m), 2, w_dims);
    fz_perhaps_in_tiles(f, in[1], turned, 10);
    if (bias) {
        in[n++] = fz_input(f, type_near(f, m), 1, &to);
    }
    x = fz_op(f, sinter_op_matmul, type_near(f, m), 2, dims, n, in);
    if (turned) {
        fz_bool(f, sinter_op_attr_transpose_b, 1);
    }
    return x;
}

/* Of gpt-oss: min(x, 7) sigmoid(1.702 min(x, 7)), with factors that are inputs here. */
static int clamped_swish(fz_t *f, const mlp_t *m, int x)
{
    const int y =
        fz_binary(f, sinter_op_minimum, type_near(f, m), x, fz_scalar(f, type_near(f, m), 2));
    const int z =
        fz_binary(f, sinter_op_multiply, type_near(f, m), y, fz_scalar(f, type_near(f, m), 2));

    return fz_binary(f, sinter_op_multiply, type_near(f, m), y,
                     fz_unary(f, sinter_op_sigmoid, type_near(f, m), z));
}

static int clamped_up(fz_t *f, const mlp_t *m, int x)
{
    const float limit = 0.5f * (float)fz_range(f, 1, 4), lower = -limit;

    x = fz_unary(f, sinter_op_clamp, type_near(f, m), x);
    fz_f32(f, sinter_op_attr_min, 1, &lower);
    fz_f32(f, sinter_op_attr_max, 1, &limit);
    return fz_binary(f, sinter_op_add, type_near(f, m), x, fz_scalar(f, type_near(f, m), 2));
}

static int activation(fz_t *f, const mlp_t *m, int x)
{
    if (fz_chance(f, 20)) {
        return clamped_swish(f, m, x);
    }
    const sinter_op_kind_t kind = (sinter_op_kind_t)FZ_ONE_OF(
        f, sinter_op_gelu, sinter_op_relu, sinter_op_tanh, sinter_op_hard_swish, sinter_op_sigmoid);
    const int y = fz_unary(f, kind, type_near(f, m), x);

    return kind == sinter_op_sigmoid && fz_chance(f, 70)
               ? fz_binary(f, sinter_op_multiply, type_near(f, m), y, x)
               : y; /* swish */
}

/* Through codes and back, as engines do between layers. */
static int squeezed(fz_t *f, const mlp_t *m, int x)
{
    fz_coded_t q = fz_computed(f, x, FZ_ONE_OF(f, 16, 32, 32, 0));

    return fz_recovered(f, type_near(f, m), &q);
}

void fz_gen_mlp(fz_t *f)
{
    mlp_t m = {fz_dim(f, FZ_ONE_OF(f, 1, 1, 3, 16, 33), 1), FZ_ONE_OF(f, 32, 64, 96, 130),
               FZ_ONE_OF(f, 16, 32, 64, 96), fz_float(f)};
    const int64_t dims[2] = {m.rows, m.outer};
    int x = fz_input(f, type_near(f, &m), 2, dims), first = x, up, gate;

    f->tensors[x].vast = fz_chance(f, 10);
    if (fz_chance(f, 30)) {
        x = squeezed(f, &m, x);
    }
    up = linear(f, &m, x, m.outer, m.inner);
    if (fz_chance(f, 60)) {
        gate = activation(f, &m, linear(f, &m, x, m.outer, m.inner));
        if (fz_chance(f, 25)) {
            up = clamped_up(f, &m, up);
        }
        up = fz_chance(f, 50) ? fz_binary(f, sinter_op_multiply, type_near(f, &m), gate, up)
                              : fz_binary(f, sinter_op_multiply, type_near(f, &m), up, gate);
    } else {
        up = activation(f, &m, up);
    }
    if (fz_chance(f, 10)) {
        up = fz_cast(f, fz_float(f), up);
    }
    if (fz_chance(f, 40)) {
        up = squeezed(f, &m, up);
    }
    x = linear(f, &m, up, m.inner, m.outer);
    if (fz_chance(f, 50)) { /* a residual sum, of rows of their own where they are not known */
        int64_t other[FZ_MAX_RANK];
        const int n = fz_is_symbol(m.rows) && fz_chance(f, 50) ? fz_other_dims(f, x, other) : 0,
                  y = n > 0 ? fz_input(f, type_near(f, &m), n, other) : first;
        x = fz_binary(f, sinter_op_add, type_near(f, &m), x, y);
    }
    if (fz_chance(f, 20)) {
        x = fz_post_op(f, x);
    }
    if (fz_chance(f, 40)) {
        fz_quantized(f, x);
    }
}
