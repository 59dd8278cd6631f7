/* DAGs of elementwise ops over broadcasting operands, with several outputs. */
#include "fuzz.h"

#include <string.h>

typedef struct pool {
    int n, values[FZ_MAX_TENSORS];
} pool_t;

/* Values by what they can feed. */
typedef struct dag {
    pool_t floats, ints, bools, codes;
    int ndims;
    int64_t dims[FZ_MAX_RANK];
} dag_t;

static void put(pool_t *p, int value)
{
    p->values[p->n++] = value;
}

/* Late values are likelier, so that graphs become deep. */
static int any_of(fz_t *f, const pool_t *p)
{
    int back = fz_chance(f, 60) ? fz_pick(f, p->n < 2 ? p->n : 2) : fz_pick(f, p->n);

    return p->values[p->n - 1 - back];
}

static void base_dims(fz_t *f, dag_t *d)
{
    int64_t room = 6000;

    d->ndims = fz_range(f, 1, FZ_MAX_RANK);
    for (int i = 0; i < d->ndims; i++) {
        int64_t size = fz_chance(f, 1) ? 0 : FZ_ONE_OF(f, 1, 2, 3, 5, 7, 8, 9, 16, 17, 33, 67, 257);

        while (size > room) {
            size /= 2;
        }
        room = size ? room / size : room;
        d->dims[i] = size ? fz_dim(f, size, 1) : 0;
    }
}

/* Arithmetic takes f8, too. */
static sinter_data_type_t arith(fz_t *f)
{
    if (fz_chance(f, 90)) {
        return fz_float(f);
    }
    return (sinter_data_type_t)FZ_ONE_OF(f, sinter_f8_e4m3, sinter_f8_e5m2, sinter_f8_e4m3fnuz,
                                         sinter_f8_e5m2fnuz);
}

static int new_input(fz_t *f, const dag_t *d, sinter_data_type_t type)
{
    int64_t dims[FZ_MAX_RANK];
    int drop = fz_chance(f, 25) ? fz_pick(f, d->ndims + 1) : 0, whole = fz_chance(f, 50), t;

    for (int i = drop; i < d->ndims; i++) {
        dims[i - drop] = fz_part(f, d->dims[i], whole ? 0 : 30);
    }
    t = fz_input(f, type, d->ndims - drop, dims);
    if (gr_dtype(type)->class_ == GR_FLOAT && fz_chance(f, 10)) {
        f->tensors[t].specials = fz_range(f, 1, 30);
    }
    f->tensors[t].wild = type == sinter_s32 && fz_chance(f, 40);
    return t;
}

static int float_operand(fz_t *f, const dag_t *d)
{
    if (fz_chance(f, 20)) {
        return fz_scalar(f, arith(f), d->ndims);
    }
    return fz_chance(f, 50) ? new_input(f, d, arith(f)) : any_of(f, &d->floats);
}

static int int_operand(fz_t *f, dag_t *d)
{
    if (d->ints.n == 0 || fz_chance(f, 30)) {
        const int x = any_of(f, &d->floats);
        const fz_tensor_t t = f->tensors[x];
        int index;

        if (t.ndims == 0 || fz_chance(f, 40)) {
            return new_input(f, d, sinter_s32);
        }
        index = FZ_OP(f, gen_index, sinter_s32, t.ndims, t.dims, x);
        fz_s64(f, sinter_op_attr_axis, 1, &(int64_t){fz_range(f, -t.ndims, t.ndims - 1)});
        put(&d->ints, index);
        return index;
    }
    return any_of(f, &d->ints);
}

static int condition(fz_t *f, dag_t *d)
{
    int value;

    if (d->bools.n && fz_chance(f, 50)) {
        return any_of(f, &d->bools);
    }
    if (fz_chance(f, 40)) {
        return new_input(f, d, sinter_boolean);
    }
    if (fz_chance(f, 50)) {
        value = fz_binary(f, sinter_op_greater_equal, sinter_boolean, any_of(f, &d->floats),
                          float_operand(f, d));
    } else {
        value = fz_binary(f, sinter_op_greater_equal, sinter_boolean, int_operand(f, d),
                          int_operand(f, d));
    }
    put(&d->bools, value);
    return value;
}

/* Dims of three operands, broadcast. */
static int choose(fz_t *f, int c, int a, int b, sinter_data_type_t type)
{
    int64_t dims[FZ_MAX_RANK];
    const int in[3] = {c, a, b};
    int ndims = 0;

    for (int i = 0; i < 3; i++) {
        int64_t both[FZ_MAX_RANK];

        ndims =
            fz_joined_dims(f, ndims, dims, f->tensors[in[i]].ndims, f->tensors[in[i]].dims, both);
        memcpy(dims, both, sizeof both);
    }
    return fz_op(f, sinter_op_select, type, ndims, dims, 3, in);
}

static void add_select(fz_t *f, dag_t *d)
{
    if (d->ints.n && fz_chance(f, 20)) {
        int c = condition(f, d), a = any_of(f, &d->ints), b = int_operand(f, d);

        put(&d->ints, choose(f, c, a, b, sinter_s32));
    } else {
        int c = condition(f, d), a = float_operand(f, d), b = any_of(f, &d->floats),
            swap = fz_chance(f, 50);

        put(&d->floats, choose(f, c, swap ? b : a, swap ? a : b, arith(f)));
    }
}

static void add_cast(fz_t *f, dag_t *d)
{
    int from = fz_pick(f, 10);

    if (from < 2 && d->ints.n) {
        put(&d->floats, fz_cast(f, fz_float(f), any_of(f, &d->ints)));
    } else if (from < 4 && d->bools.n) {
        put(&d->floats, fz_cast(f, fz_float(f), any_of(f, &d->bools)));
    } else if (from == 4) {
        put(&d->ints, fz_cast(f, sinter_s32, any_of(f, &d->floats)));
    } else if (from == 5) {
        put(&d->codes, fz_cast(f, fz_code_type(f), any_of(f, &d->floats)));
    } else if (from == 6 && d->codes.n) {
        put(&d->floats, fz_cast(f, fz_float(f), any_of(f, &d->codes)));
    } else if (from == 7) {
        put(&d->bools, fz_cast(f, sinter_boolean, any_of(f, &d->floats)));
    } else {
        put(&d->floats, fz_cast(f, fz_float(f), any_of(f, &d->floats)));
    }
}

static void add_quantisation(fz_t *f, dag_t *d)
{
    if (d->codes.n && fz_chance(f, 60)) {
        int codes = any_of(f, &d->codes);
        const fz_tensor_t t = f->tensors[codes];

        put(&d->floats, fz_dequantized(f, fz_float(f), t.ndims, t.dims, codes));
    } else if (fz_chance(f, 50)) {
        put(&d->floats, fz_dequantized(f, fz_float(f), d->ndims, d->dims, -1));
    } else {
        int x = any_of(f, &d->floats);

        put(&d->codes,
            fz_quantized(f,
                         gr_dtype(f->tensors[x].type)->bits > 8 ? x : fz_cast(f, fz_float(f), x)));
    }
}

static void add_op(fz_t *f, dag_t *d)
{
    int what = fz_pick(f, 20), x = any_of(f, &d->floats);

    if (what < 6) {
        put(&d->floats, fz_random_unary(f, x, fz_chance(f, 60) ? f->tensors[x].type : arith(f)));
    } else if (what < 10) {
        int y = float_operand(f, d), swap = fz_chance(f, 40);

        put(&d->floats, fz_binary(f, fz_binary_kind(f), arith(f), swap ? y : x, swap ? x : y));
    } else if (what < 12) {
        put(&d->floats, fz_post_op(f, x));
    } else if (what < 14) {
        add_select(f, d);
    } else if (what == 14) {
        int a = int_operand(f, d), b = int_operand(f, d);

        put(&d->ints, fz_binary(f,
                                (sinter_op_kind_t)FZ_ONE_OF(
                                    f, sinter_op_add, sinter_op_subtract, sinter_op_multiply,
                                    sinter_op_divide, sinter_op_divide, sinter_op_maximum,
                                    sinter_op_minimum, sinter_op_squared_difference),
                                sinter_s32, a, b));
    } else if (what < 17) {
        add_cast(f, d);
    } else {
        add_quantisation(f, d);
    }
}

void fz_gen_eltwise(fz_t *f)
{
    dag_t d = {0};
    int n = fz_range(f, 2, 12);

    base_dims(f, &d);
    f->one_space = 1;
    put(&d.floats, new_input(f, &d, arith(f)));
    while (f->n_ops < n && f->n_tensors < FZ_MAX_TENSORS - 16) {
        add_op(f, &d);
    }
    for (int i = 0; i < f->n_tensors; i++) {
        f->tensors[i].keep = f->tensors[i].produced && fz_chance(f, 12);
    }
}
