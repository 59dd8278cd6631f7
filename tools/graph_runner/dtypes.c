/* --describe-dtype: the row of dtypes.def, and for everything about codes the library itself,
 * asked through TypeCasts of all codes to f32 and of telling numbers from f32. */
#include "dtypes.h"

#include <math.h>
#include <sinter/sinter.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- a cast through the library -------------------------------------------------------------- */

typedef struct cast {
    sinter_logical_tensor_t in, out;
    sinter_op_t *op;
    sinter_graph_t *graph;
    sinter_partition_t *partition;
    sinter_compiled_partition_t *compiled;
    sinter_stream_t *stream;
    sinter_tensor_t *from, *to;
} cast_t;

static sinter_status_t cast_compile(cast_t *c, sinter_data_type_t from, sinter_data_type_t to,
                                    int64_t n)
{
    sinter_status_t status;

    (void)((status =
                sinter_logical_tensor_init(&c->in, 0, from, 1, &n, sinter_tensor_property_undef)) ||
           (status =
                sinter_logical_tensor_init(&c->out, 1, to, 1, &n, sinter_tensor_property_undef)) ||
           (status = sinter_op_create(&c->op, NULL, 0, sinter_op_type_cast, NULL)) ||
           (status = sinter_op_add_input(c->op, &c->in)) ||
           (status = sinter_op_add_output(c->op, &c->out)) ||
           (status = sinter_graph_create(&c->graph, NULL, sinter_cpu)) ||
           (status = sinter_graph_add_op(c->graph, c->op)) ||
           (status = sinter_graph_finalize(c->graph)) ||
           (status = sinter_graph_filter(c->graph, sinter_partition_policy_fusion)) ||
           (status = sinter_graph_get_partitions(c->graph, 1, &c->partition)) ||
           (status =
                sinter_partition_compile(c->partition, NULL, 1, &c->in, 1, &c->out, &c->compiled)));
    return status;
}

static sinter_status_t cast_execute(cast_t *c, void *src, void *dst)
{
    const sinter_stream_desc_t one = {.size = sizeof one, .threads = 1};
    sinter_status_t status;

    (void)((status = sinter_stream_create(&c->stream, NULL, &one)) ||
           (status = sinter_tensor_create(&c->from, NULL, &c->in, src, SINTER_BYTES_TRUSTED)) ||
           (status = sinter_tensor_create(&c->to, NULL, &c->out, dst, SINTER_BYTES_TRUSTED)) ||
           (status = sinter_compiled_partition_execute(c->compiled, c->stream, 1,
                                                       (const sinter_tensor_t *const *)&c->from, 1,
                                                       &c->to, NULL, 0)));
    return status;
}

int gr_cast(sinter_data_type_t from, const void *src, sinter_data_type_t to, void *dst, int64_t n,
            gr_error_t *err)
{
    cast_t c;
    int failed = 0;

    memset(&c, 0, sizeof c);
    if (cast_compile(&c, from, to, n) || cast_execute(&c, (void *)(uintptr_t)src, dst)) {
        failed = gr_fail(err, "TypeCast of %s to %s: %s", gr_dtype(from)->name, gr_dtype(to)->name,
                         sinter_last_error_message());
    }
    sinter_tensor_destroy(&c.to);
    sinter_tensor_destroy(&c.from);
    sinter_stream_destroy(&c.stream);
    sinter_compiled_partition_destroy(&c.compiled);
    sinter_partition_destroy(&c.partition);
    sinter_graph_destroy(&c.graph);
    sinter_op_destroy(&c.op);
    return failed;
}

/* ---- text that grows ------------------------------------------------------------------------- */

enum { TEXT = 1 << 15 };

typedef struct text {
    char *s;
    size_t used;
} text_t;

static void put(text_t *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(text_t *t, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    const int n = vsnprintf(t->s + t->used, TEXT - t->used, format, args);
    va_end(args);
    t->used += n > 0 && t->used + (size_t)n < TEXT ? (size_t)n : 0;
}

/* ---- the description ------------------------------------------------------------------------- */

enum { MOST_CODES = 1 << 16, SHOWN = 8 };

typedef struct codes {
    sinter_data_type_t type;
    const gr_dtype_t *d;
    int n;        /* codes of the type; 0: too many to look at */
    float *value; /* by code */
    unsigned char *bytes;
} codes_t;

static unsigned code_at(const unsigned char *bytes, int bits, int64_t i)
{
    unsigned code = 0;

    for (int b = 0; b < bits; b++) {
        code |= (unsigned)(bytes[(i * bits + b) / 8] >> (i * bits + b) % 8 & 1) << b;
    }
    return code;
}

/* All codes in order, and their values. */
static int load_codes(codes_t *c, gr_error_t *err)
{
    if (c->d->bits > 16) {
        return 0;
    }
    c->n = 1 << c->d->bits;
    c->value = gr_malloc(MOST_CODES * sizeof(float));
    c->bytes = gr_malloc(MOST_CODES * 2);
    if (!c->value || !c->bytes) {
        return gr_fail_memory(err);
    }
    memset(c->bytes, 0, MOST_CODES * 2);
    for (int64_t bit = 0; bit < (int64_t)c->n * c->d->bits; bit++) {
        c->bytes[bit / 8] = (unsigned char)(c->bytes[bit / 8] |
                                            (bit / c->d->bits >> bit % c->d->bits & 1) << bit % 8);
    }
    return gr_cast(c->type, c->bytes, sinter_f32, c->value, c->n, err);
}

static int digits_of(const codes_t *c)
{
    return (c->d->bits + 3) / 4;
}

/* "Inf: 0x7C 0xFC"; nothing if no code is one. */
static void put_special(text_t *t, const codes_t *c, const char *what, int (*is)(float x))
{
    int n = 0;

    for (int code = 0; code < c->n; code++) {
        n += is(c->value[code]);
    }
    put(t, "%-12s", what);
    for (int code = 0, shown = 0; code < c->n && shown < SHOWN; code++) {
        if (is(c->value[code])) {
            put(t, " 0x%0*X", digits_of(c), (unsigned)code);
            shown++;
        }
    }
    put(t, n == 0 ? " none\n" : n > SHOWN ? " ... %d codes\n" : "\n", n);
}

static int is_inf(float x)
{
    return isinf(x) != 0;
}
static int is_nan(float x)
{
    return isnan(x) != 0;
}
static int is_zero(float x)
{
    return x == 0;
}

/* The least exponent of a normal value, from the smallest positive value; of wide types as IEEE
 * has it. */
static int least_exponent(const codes_t *c)
{
    float least = INFINITY;
    int exponent;

    if (c->n == 0) {
        frexp(c->d->max, &exponent);
        return 2 - exponent;
    }
    for (int code = 0; code < c->n; code++) {
        least = c->value[code] > 0 && c->value[code] < least ? c->value[code] : least;
    }
    frexpf(least, &exponent);
    return exponent - 1 + c->d->digits - 1;
}

static void put_range(text_t *t, const codes_t *c)
{
    const gr_dtype_t *d = c->d;

    if (d->class_ == GR_INT || d->class_ == GR_BOOL) {
        put(t, "range        %.17g to %.17g\n",
            d->class_ == GR_BOOL || d->digits == d->bits ? 0.0 : -d->max - 1, d->max);
        return;
    }
    const int emin = least_exponent(c), subnormal = d->digits > 1;
    int top;
    frexp(d->max, &top);
    put(t, "exponents    bias %d, emin %d, emax %d\n", subnormal ? 1 - emin : -emin, emin, top - 1);
    put(t, "digits       %d significant bits\n", d->digits);
    put(t, "max          %.17g\n", d->max);
    put(t, "min normal   %g = 2^%d\n", ldexp(1, emin), emin);
    if (subnormal) {
        put(t, "min subnorm. %g = 2^%d\n", ldexp(1, emin - d->digits + 1), emin - d->digits + 1);
    }
}

/* What becomes of telling numbers: the code where there is a table, and the value. */
static int put_casts(text_t *t, const codes_t *c, gr_error_t *err)
{
    static const char *const names[] = {"NaN", "Inf", "-Inf",       "-0",     "0.5",
                                        "1.5", "2.5", "beyond max", "-beyond"};
    enum { ALL = sizeof names / sizeof *names };
    const float twice = (float)fmin(c->d->max * 2, 0x1.FFFFFEp127),
                x[ALL] = {NAN, INFINITY, -INFINITY, -0.0f, 0.5f, 1.5f, 2.5f, twice, -twice};
    const int n = (double)twice > c->d->max ? ALL : ALL - 2;
    unsigned char bytes[ALL * 8] = {0};
    double back[ALL];

    if (gr_cast(sinter_f32, x, c->type, bytes, n, err) ||
        gr_cast(c->type, bytes, sinter_f64, back, n, err)) {
        return -1;
    }
    put(t, c->d->class_ == GR_BOOL ? "TypeCast from f32, anything but zero is 1:\n"
                                   : "TypeCast from f32, to the nearest value, ties to even:\n");
    for (int i = 0; i < n; i++) {
        put(t, "    %-10s", names[i]);
        if (c->n > 0) {
            put(t, " 0x%0*X", digits_of(c), code_at(bytes, c->d->bits, i));
        }
        put(t, " %.17g\n", back[i]);
    }
    return 0;
}

static void put_table(text_t *t, const codes_t *c)
{
    put(t, "codes\n");
    for (int code = 0; code < c->n; code++) {
        put(t, "    0x%0*X %.9g\n", digits_of(c), (unsigned)code, c->value[code]);
    }
}

static int describe(text_t *t, codes_t *c, gr_error_t *err)
{
    static const char *const classes[] = {"float", "integer", "scale, a power of two", "boolean"};
    const gr_dtype_t *d = c->d;
    int elems = 1;

    while (elems * d->bits % 8) {
        elems *= 2;
    }
    if (load_codes(c, err)) {
        return -1;
    }
    put(t, "%s: %s\n", d->name, classes[d->class_]);
    put(t, "bits         %d\n", d->bits);
    put(t, "storage      %d element%s in %d byte%s%s\n", elems, elems > 1 ? "s" : "",
        elems * d->bits / 8, elems * d->bits > 8 ? "s" : "",
        elems > 1 ? ", the first in the lowest bits" : "");
    put_range(t, c);
    if (c->n > 0 && d->class_ != GR_INT && d->class_ != GR_BOOL) {
        put_special(t, c, "Inf", is_inf);
        put_special(t, c, "NaN", is_nan);
        put_special(t, c, "zeros", is_zero);
    }
    if (put_casts(t, c, err)) {
        return -1;
    }
    if (d->bits <= 8 && (d->class_ == GR_FLOAT || d->class_ == GR_INT)) {
        put(t, "Quantisation that computes its scales saturates: what lies beyond the largest "
               "value becomes it.\n");
    }
    if (d->bits <= 8) {
        put_table(t, c);
    }
    return 0;
}

static int unknown(const char *name, gr_error_t *err)
{
    char names[512] = "";
    size_t used = 0;

#define SINTER_DTYPE(value, name_, ...) \
    used += (size_t)snprintf(names + used, sizeof names - used, " %s", #name_);
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
    return gr_fail(err, "--describe-dtype=%s: no such type; there are%s", name, names);
}

char *gr_describe_dtype(const char *name, gr_error_t *err)
{
    codes_t c;
    text_t t = {gr_malloc(TEXT), 0};
    int failed = t.s ? 0 : gr_fail_memory(err);

    memset(&c, 0, sizeof c);
    if (!failed && !sinter_data_type_parse(name, &c.type)) {
        failed = unknown(name, err);
    }
    c.d = gr_dtype(c.type);
    failed = failed || describe(&t, &c, err);
    gr_free(c.value);
    gr_free(c.bytes);
    if (!failed) {
        return t.s;
    }
    gr_free(t.s);
    return NULL;
}
