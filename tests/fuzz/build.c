#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers --------------------------------------------------------------------------------- */

int fz_pick(fz_t *f, int n)
{
    return random_below(&f->state, n);
}

int fz_range(fz_t *f, int low, int high)
{
    return low + fz_pick(f, high - low + 1);
}

int fz_chance(fz_t *f, int percent)
{
    return fz_pick(f, 100) < percent;
}

void fz_init(fz_t *f, uint64_t seed)
{
    static const sinter_fpmath_mode_t modes[] = {
        sinter_fpmath_mode_strict, sinter_fpmath_mode_strict, sinter_fpmath_mode_bf16,
        sinter_fpmath_mode_f16,    sinter_fpmath_mode_any,    sinter_fpmath_mode_tf32,
        sinter_fpmath_mode_int8};
    memset(f, 0, sizeof *f);
    f->seed = f->state = seed;
    f->mode = modes[fz_pick(f, 7)];
    f->apply_to_int = fz_chance(f, 50);
}

void fz_free(fz_t *f)
{
    gr_arena_free(&f->arena);
}

/* ---- dims ------------------------------------------------------------------------------------ */

/* A symbol is SYMBOL + slot * SLOT + divisor. */
enum { SLOT = 1 << 20 };
static const int64_t SYMBOL = INT64_C(1) << 40;

int fz_is_symbol(int64_t dim)
{
    return dim >= SYMBOL;
}

int64_t fz_symbol(fz_t *f, int64_t first, int64_t second, int64_t third)
{
    int64_t *sizes = f->sizes[f->n_symbols];

    if (f->n_symbols == FZ_MAX_SYMBOLS) {
        abort();
    }
    sizes[0] = first;
    sizes[1] = second;
    sizes[2] = third;
    return SYMBOL + (int64_t)f->n_symbols++ * SLOT + 1;
}

int64_t fz_dim(fz_t *f, int64_t value, int64_t multiple)
{
    if (!f->dynamic || f->n_symbols >= FZ_SOME_SYMBOLS || !fz_chance(f, 50)) {
        return value;
    }
    return fz_symbol(f, value, multiple * fz_range(f, 1, 3), multiple * FZ_ONE_OF(f, 1, 5, 9, 17));
}

int64_t fz_divide(int64_t dim, int64_t by)
{
    if (!fz_is_symbol(dim)) {
        return dim / by + (dim % by != 0);
    }
    return dim - dim % SLOT + dim % SLOT * by;
}

int64_t fz_size(const fz_t *f, int64_t dim, int variant)
{
    if (!fz_is_symbol(dim)) {
        return dim;
    }
    const int64_t size = f->sizes[(dim - SYMBOL) / SLOT][variant], by = dim % SLOT;
    return size / by + (size % by != 0);
}

int fz_may_be_empty(const fz_t *f, int64_t dim)
{
    int empty = 0;

    for (int v = 0; v < FZ_VARIANTS; v++) {
        empty = empty || fz_size(f, dim, v) == 0;
    }
    return empty;
}

static int64_t gcd(int64_t a, int64_t b)
{
    return b ? gcd(b, a % b) : a;
}

int64_t fz_divisor(fz_t *f, int64_t dim)
{
    int64_t common = fz_size(f, dim, 0), divisor;

    for (int v = 1; v < FZ_VARIANTS; v++) {
        common = gcd(common, fz_size(f, dim, v));
    }
    do {
        divisor = FZ_ONE_OF(f, 1, 2, 3, 4, 8, 16, 32, 64, 128, common);
    } while (divisor == 0 || common % divisor);
    return divisor;
}

int64_t fz_hidden(fz_t *f, int64_t dim)
{
    if (!f->dynamic || f->n_symbols >= FZ_SOME_SYMBOLS || !fz_chance(f, 20)) {
        return dim;
    }
    return fz_symbol(f, fz_size(f, dim, 0), fz_size(f, dim, 1), fz_size(f, dim, 2));
}

int64_t fz_part(fz_t *f, int64_t dim, int percent_smaller)
{
    int64_t sizes[FZ_VARIANTS];

    if (!f->dynamic || f->n_symbols >= FZ_SOME_SYMBOLS || dim == 1 || !fz_chance(f, 40)) {
        return fz_chance(f, percent_smaller) ? 1 : dim;
    }
    for (int v = 0; v < FZ_VARIANTS; v++) {
        sizes[v] = fz_chance(f, percent_smaller) ? 1 : fz_size(f, dim, v);
    }
    return fz_symbol(f, sizes[0], sizes[1], sizes[2]);
}

int64_t fz_joined(fz_t *f, int64_t a, int64_t b)
{
    int64_t sizes[FZ_VARIANTS];
    int is_a = 1, is_b = 1;

    if (a == 1 || b == 1) {
        return a == 1 ? b : a;
    }
    for (int v = 0; v < FZ_VARIANTS; v++) {
        const int64_t x = fz_size(f, a, v), y = fz_size(f, b, v);

        if (x != y && x != 1 && y != 1) {
            abort();
        }
        sizes[v] = x == 1 ? y : x;
        is_a = is_a && sizes[v] == x;
        is_b = is_b && sizes[v] == y;
    }
    /* A known dim above 1 makes that of the result known. */
    return is_a && !fz_is_symbol(a)   ? a
           : is_b && !fz_is_symbol(b) ? b
           : is_a                     ? a
           : is_b                     ? b
                                      : fz_symbol(f, sizes[0], sizes[1], sizes[2]);
}

int fz_joined_dims(fz_t *f, int n_a, const int64_t *a, int n_b, const int64_t *b, int64_t *dims)
{
    const int n = n_a > n_b ? n_a : n_b;

    for (int d = 0; d < n; d++) {
        const int at = d - (n - n_a), bt = d - (n - n_b);

        dims[d] = fz_joined(f, at < 0 ? 1 : a[at], bt < 0 ? 1 : b[bt]);
    }
    return n;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void shuffle(fz_t *f, int n, int *order)
{
    for (int i = n - 1; i > 0; i--) {
        int j = fz_pick(f, i + 1), t = order[i];

        order[i] = order[j];
        order[j] = t;
    }
}

static int is_packed(sinter_data_type_t type)
{
    return gr_dtype(type)->bits % 8 != 0;
}

static void choose_layout(fz_t *f, fz_tensor_t *t)
{
    for (int d = 0; d < t->ndims; d++) {
        t->order[d] = d;
    }
    if (fz_chance(f, 40)) {
        shuffle(f, t->ndims, t->order);
    }
    for (int d = 0; d < t->ndims; d++) {
        if (fz_chance(f, 25)) {
            t->pad[d] = is_packed(t->type) ? 2 * fz_pick(f, 5) + fz_chance(f, 20) : fz_pick(f, 9);
        }
        t->repeat[d] = !t->produced && fz_chance(f, 3);
    }
    t->fixed = fz_chance(f, 30);
    if (is_packed(t->type) && t->ndims > 0) { /* one dim has stride 1 */
        t->repeat[t->order[t->ndims - 1]] = 0;
    }
}

static int add_tensor(fz_t *f, sinter_data_type_t type, int ndims, const int64_t *dims,
                      int produced)
{
    fz_tensor_t *t = &f->tensors[f->n_tensors];

    if (f->n_tensors == FZ_MAX_TENSORS || ndims > FZ_MAX_RANK) {
        abort();
    }
    *t = (fz_tensor_t){.type = type,
                       .property = sinter_tensor_property_variable,
                       .ndims = ndims,
                       .produced = produced};
    for (int d = 0; d < ndims; d++) {
        t->dims[d] = dims[d];
    }
    choose_layout(f, t);
    t->declare =
        produced && fz_chance(f, 30) ? (fz_declare_t)fz_range(f, FZ_NO_LAYOUT, FZ_NO_RANK) : FZ_ALL;
    if (!produced && fz_chance(f, 10)) {
        t->property = sinter_tensor_property_constant;
    }
    if (!produced && f->lacks_ranks && random_mix(f->seed + (uint64_t)f->n_tensors) % 40 == 0) {
        t->declare = FZ_NO_RANK; /* not drawn: seeds name the same cases as before */
        f->rank_comes_late = f->seed % 4 == 0 ? 2 : 1;
    }
    return f->n_tensors++;
}

int fz_input(fz_t *f, sinter_data_type_t type, int ndims, const int64_t *dims)
{
    return add_tensor(f, type, ndims, dims, 0);
}

int fz_scalar(fz_t *f, sinter_data_type_t type, int max_ndims)
{
    const int64_t ones[FZ_MAX_RANK] = {1, 1, 1, 1, 1, 1};
    int t = add_tensor(f, type, fz_chance(f, 50) ? 0 : fz_range(f, 0, max_ndims), ones, 0);

    if (fz_chance(f, 40)) {
        f->tensors[t].property = sinter_tensor_property_host_scalar;
    }
    return t;
}

void fz_no_gaps(fz_t *f, int tensor)
{
    fz_tensor_t *t = &f->tensors[tensor];

    for (int d = 0; d < t->ndims; d++) {
        t->order[d] = d;
        t->pad[d] = t->repeat[d] = 0;
    }
}

void fz_interleave(fz_t *f, int tensor)
{
    fz_tensor_t *t = &f->tensors[tensor];

    for (int d = 0; d < t->ndims; d++) {
        t->pad[d] = t->repeat[d] = 0;
    }
    if (t->ndims > 0) { /* elements of less than a byte stay side by side */
        t->halves = 1 + fz_pick(f, is_packed(t->type) ? t->ndims - 1 + (t->ndims == 1) : t->ndims);
    }
}

/* ---- ops ------------------------------------------------------------------------------------- */

int fz_op(fz_t *f, sinter_op_kind_t kind, sinter_data_type_t type, int ndims, const int64_t *dims,
          int n_in, const int *in)
{
    fz_op_t *op = &f->ops[f->n_ops++];

    if (f->n_ops > FZ_MAX_OPS || n_in > FZ_MAX_PORTS) {
        abort();
    }
    *op = (fz_op_t){.kind = kind, .n_in = n_in, .n_out = 1};
    memcpy(op->in, in, (size_t)n_in * sizeof *in);
    op->out[0] = add_tensor(f, type, ndims, dims, 1);
    return op->out[0];
}

int fz_more_output(fz_t *f, sinter_data_type_t type, int ndims, const int64_t *dims)
{
    fz_op_t *op = &f->ops[f->n_ops - 1];

    return op->out[op->n_out++] = add_tensor(f, type, ndims, dims, 1);
}

static orc_attr_t *attr(fz_t *f, sinter_op_attr_t id)
{
    fz_op_t *op = &f->ops[f->n_ops - 1];

    if (op->n_attrs == FZ_MAX_ATTRS) {
        abort();
    }
    op->attrs[op->n_attrs] = (orc_attr_t){.id = id};
    return &op->attrs[op->n_attrs++];
}

static void *copy(fz_t *f, size_t n, size_t size, const void *values)
{
    void *to = gr_arena_alloc(&f->arena, n + 1, size);

    if (!to) {
        abort();
    }
    return memcpy(to, values, n * size);
}

void fz_s64(fz_t *f, sinter_op_attr_t id, size_t n, const int64_t *values)
{
    orc_attr_t *a = attr(f, id);

    a->s64 = copy(f, n, sizeof *values, values);
    a->n = n;
}

void fz_f32(fz_t *f, sinter_op_attr_t id, size_t n, const float *values)
{
    orc_attr_t *a = attr(f, id);

    a->f32 = copy(f, n, sizeof *values, values);
    a->n = n;
}

void fz_str(fz_t *f, sinter_op_attr_t id, const char *value)
{
    attr(f, id)->str = value;
}

void fz_bool(fz_t *f, sinter_op_attr_t id, int value)
{
    attr(f, id)->b = value;
}

int fz_unary(fz_t *f, sinter_op_kind_t kind, sinter_data_type_t type, int x)
{
    const fz_tensor_t t = f->tensors[x];

    return fz_op(f, kind, type, t.ndims, t.dims, 1, &x);
}

int fz_cast(fz_t *f, sinter_data_type_t type, int x)
{
    return fz_unary(f, sinter_op_type_cast, type, x);
}

int fz_binary(fz_t *f, sinter_op_kind_t kind, sinter_data_type_t type, int a, int b)
{
    const fz_tensor_t ta = f->tensors[a], tb = f->tensors[b];
    int64_t dims[FZ_MAX_RANK];
    const int ndims = fz_joined_dims(f, ta.ndims, ta.dims, tb.ndims, tb.dims, dims);

    a = FZ_OP(f, add, type, ndims, dims, a, b);
    f->ops[f->n_ops - 1].kind = kind;
    if (fz_chance(f, 10)) {
        fz_str(f, sinter_op_attr_auto_broadcast, "numpy");
    }
    return a;
}

int fz_transpose(fz_t *f, int x, const int64_t *order)
{
    const fz_tensor_t t = f->tensors[x];
    int64_t dims[FZ_MAX_RANK], given[FZ_MAX_RANK];

    for (int d = 0; d < t.ndims; d++) {
        dims[d] = t.dims[order[d]];
        given[d] = fz_chance(f, 10) ? order[d] - t.ndims : order[d];
    }
    x = FZ_OP(f, static_transpose, t.type, t.ndims, dims, x);
    fz_s64(f, sinter_op_attr_order, (size_t)t.ndims, given);
    return x;
}

int fz_reshape(fz_t *f, int x, int ndims, const int64_t *dims)
{
    const fz_tensor_t t = f->tensors[x];
    int64_t shape[FZ_MAX_RANK];
    int open = 0, zero = 0, empty = 0;

    for (int d = 0; d < t.ndims; d++) {
        empty |= fz_may_be_empty(f, t.dims[d]);
    }
    for (int d = 0; d < ndims; d++) {
        int symbol = fz_is_symbol(dims[d]), same = d < t.ndims && dims[d] == t.dims[d];

        shape[d] = dims[d];
        if (same && dims[d] != 0 && (symbol || fz_chance(f, 20))) {
            shape[d] = 0;
        } else if (!open && !empty && (symbol || fz_chance(f, 15))) {
            shape[d] = -1;
        } else if (symbol) {
            return -1;
        }
        zero |= shape[d] == 0 && dims[d] != 0;
        open |= shape[d] == -1;
    }
    for (int d = 0; zero && d < ndims; d++) {
        if (dims[d] == 0 && (d >= t.ndims || t.dims[d] != 0)) {
            return -1;
        }
    }
    x = FZ_OP(f, static_reshape, t.type, ndims, dims, x);
    fz_s64(f, sinter_op_attr_shape, (size_t)ndims, shape);
    fz_bool(f, sinter_op_attr_special_zero, zero);
    return x;
}
