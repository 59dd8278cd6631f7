/* Number formats, written from their definitions: a small float is (exponent bits, mantissa
 * bits, bias, what the top codes mean). */
#include "internal.h"

typedef enum top_codes { TOP_IEEE, TOP_FN, TOP_FNUZ, TOP_FINITE } top_codes_t;

typedef struct format {
    int exp_bits, man_bits, bias;
    top_codes_t top;
} format_t;

orc_class_t orc_class(sinter_data_type_t type)
{
    switch (type) {
    case sinter_f64:
    case sinter_f32:
    case sinter_f16:
    case sinter_bf16:
        return ORC_WIDE;
    case sinter_s64:
    case sinter_s32:
    case sinter_s8:
    case sinter_u8:
    case sinter_s4:
    case sinter_u4:
    case sinter_u2:
        return ORC_INT;
    case sinter_boolean:
        return ORC_BOOL;
    case sinter_f8_e5m2:
    case sinter_f8_e4m3:
    case sinter_f8_e5m2fnuz:
    case sinter_f8_e4m3fnuz:
    case sinter_f6_e3m2:
    case sinter_f6_e2m3:
    case sinter_f4_e2m1:
    case sinter_e8m0:
    case sinter_data_type_undef:
        return ORC_NARROW;
    }
    return ORC_NARROW; /* there is no other type */
}

const char *orc_type_name(sinter_data_type_t type)
{
    switch (type) {
#define SINTER_DTYPE(value, name, ...) \
    case sinter_##name:                \
        return #name;
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
    default:
        return NULL;
    }
}

bool orc_find_type(const char *name, sinter_data_type_t *type)
{
#define SINTER_DTYPE(value, name_, ...) \
    if (strcmp(name, #name_) == 0) {    \
        *type = sinter_##name_;         \
        return true;                    \
    }
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
    return false;
}

int orc_type_bits(sinter_data_type_t type)
{
    switch (type) {
#define SINTER_DTYPE(value, name, cls, bits, ...) \
    case sinter_##name:                           \
        return bits;
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
    default:
        return 0;
    }
}

double orc_type_max(sinter_data_type_t type)
{
    switch (type) {
#define SINTER_DTYPE(value, name, cls, bits, block_elems, block_bytes, digits, max) \
    case sinter_##name:                                                             \
        return max;
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
    default:
        return 0;
    }
}

int orc_type_digits(sinter_data_type_t type)
{
    switch (type) {
#define SINTER_DTYPE(value, name, cls, bits, block_elems, block_bytes, digits, max) \
    case sinter_##name:                                                             \
        return digits;
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
    default:
        return 0;
    }
}

/* The formats below f32 that have a sign. False for all others. */
static bool small_float(sinter_data_type_t type, format_t *f)
{
    switch (type) {
    case sinter_f16:
        *f = (format_t){5, 10, 15, TOP_IEEE};
        return true;
    case sinter_bf16:
        *f = (format_t){8, 7, 127, TOP_IEEE};
        return true;
    case sinter_f8_e5m2:
        *f = (format_t){5, 2, 15, TOP_IEEE};
        return true;
    case sinter_f8_e4m3:
        *f = (format_t){4, 3, 7, TOP_FN};
        return true;
    case sinter_f8_e5m2fnuz:
        *f = (format_t){5, 2, 16, TOP_FNUZ};
        return true;
    case sinter_f8_e4m3fnuz:
        *f = (format_t){4, 3, 8, TOP_FNUZ};
        return true;
    case sinter_f6_e3m2:
        *f = (format_t){3, 2, 3, TOP_FINITE};
        return true;
    case sinter_f6_e2m3:
        *f = (format_t){2, 3, 1, TOP_FINITE};
        return true;
    case sinter_f4_e2m1:
        *f = (format_t){2, 1, 1, TOP_FINITE};
        return true;
    case sinter_f64:
    case sinter_f32:
    case sinter_s64:
    case sinter_s32:
    case sinter_s8:
    case sinter_u8:
    case sinter_s4:
    case sinter_u4:
    case sinter_u2:
    case sinter_boolean:
    case sinter_e8m0:
    case sinter_data_type_undef:
        return false;
    }
    return false; /* there is no other type */
}

static double two_to(int e) /* -1022 <= e <= 1023 */
{
    uint64_t bits = (uint64_t)(e + 1023) << 52;
    double r;
    memcpy(&r, &bits, sizeof r);
    return r;
}

/* floor(log2(a)) of a finite a > 0; -1023 for doubles below the smallest normal, which every
 * format here rounds the same way. */
static int exponent_of(double a)
{
    uint64_t bits;
    memcpy(&bits, &a, sizeof bits);
    return (int)(bits >> 52) - 1023;
}

/* ---- codes ----------------------------------------------------------------------------------- */

static double decode_small(const format_t *f, unsigned code)
{
    unsigned man_mask = (1u << f->man_bits) - 1, exp_mask = (1u << f->exp_bits) - 1;
    unsigned man = code & man_mask, exp = code >> f->man_bits & exp_mask,
             sign = code >> (f->man_bits + f->exp_bits) & 1;
    double magnitude;

    if (f->top == TOP_FNUZ && sign && !man && !exp) {
        return NAN;
    }
    if (f->top == TOP_FN && exp == exp_mask && man == man_mask) {
        magnitude = NAN;
    } else if (f->top == TOP_IEEE && exp == exp_mask) {
        magnitude = man ? NAN : INFINITY;
    } else if (exp == 0) {
        magnitude = man * two_to(1 - f->bias - f->man_bits);
    } else {
        magnitude = (man + man_mask + 1) * two_to((int)exp - f->bias - f->man_bits);
    }
    return sign ? -magnitude : magnitude;
}

/* Code of a value that round_small gave. */
static unsigned code_of_small(const format_t *f, double v)
{
    unsigned exp_mask = (1u << f->exp_bits) - 1, sign = (unsigned)(signbit(v) != 0)
                                                        << (f->exp_bits + f->man_bits);
    double a = fabs(v);
    int e;

    if (isnan(v)) {
        if (f->top == TOP_FNUZ) {
            return 1u << (f->exp_bits + f->man_bits);
        }
        return sign | exp_mask << f->man_bits |
               (f->top == TOP_FN ? (1u << f->man_bits) - 1 : 1u << (f->man_bits - 1));
    }
    if (isinf(v)) {
        return sign | exp_mask << f->man_bits;
    }
    if (a < two_to(1 - f->bias)) {
        return sign | (unsigned)(a * two_to(f->bias - 1 + f->man_bits));
    }
    e = exponent_of(a);
    return sign | (unsigned)(e + f->bias) << f->man_bits |
           (unsigned)((a * two_to(-e) - 1) * (1u << f->man_bits));
}

static double round_small(const format_t *f, double max, double v)
{
    double a = fabs(v), r;

    if (f->top == TOP_FINITE) {
        if (isnan(v) || a >= max) {
            return copysign(max, v);
        }
    } else if (isnan(v) || isinf(v)) {
        return f->top == TOP_IEEE ? v : NAN;
    }
    if (a >= 2 * max) {
        r = INFINITY;
    } else {
        int e = exponent_of(a), least = 1 - f->bias;
        double unit = two_to((e > least ? e : least) - f->man_bits);
        r = rint(a / unit) * unit; /* exact but for rint, which ties to even */
    }
    if (r > max) {
        r = f->top == TOP_IEEE ? INFINITY : f->top == TOP_FINITE ? max : NAN;
    }
    if (f->top == TOP_FNUZ && r == 0) {
        return 0;
    }
    return copysign(r, v);
}

/* Powers of two without sign: a tie goes to the even code. The contract is silent about what has
 * no code; it saturates here. */
static double round_e8m0(double v)
{
    double r;

    if (isnan(v)) {
        return NAN;
    }
    if (!(v > 0x1p-127)) {
        return 0x1p-127;
    }
    if (v >= 0x1p127) {
        return 0x1p127;
    }
    r = two_to(exponent_of(v));
    return v > 1.5 * r || (v == 1.5 * r && (exponent_of(v) + 127) % 2 != 0) ? 2 * r : r;
}

static double round_int(double lowest, double max, double v)
{
    if (isnan(v)) {
        return 0;
    }
    v = rint(v);
    return v < lowest ? lowest : v > max ? max : v + 0.0; /* + 0.0: no negative zero */
}

double orc_round(sinter_data_type_t type, double v)
{
    format_t f;

    switch (type) {
    case sinter_f64:
        return v;
    case sinter_f32:
        return (double)(float)v;
    case sinter_boolean:
        return v != 0;
    case sinter_e8m0:
        return round_e8m0(v);
    case sinter_u8:
        return round_int(0, 255, v);
    case sinter_u4:
        return round_int(0, 15, v);
    case sinter_u2:
        return round_int(0, 3, v);
    case sinter_s8:
        return round_int(-128, 127, v);
    case sinter_s4:
        return round_int(-8, 7, v);
    case sinter_s32:
        return round_int(-0x1p31, 0x1p31 - 1, v);
    case sinter_s64:
        return round_int(-0x1p63, 0x1p63, v);
    default:
        return small_float(type, &f) ? round_small(&f, orc_type_max(type), v) : NAN;
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* The code of a type of at most 16 bits. */
static unsigned load_code(int bits, const unsigned char *p, int64_t i)
{
    if (bits == 2) {
        return p[i / 4] >> i % 4 * 2 & 3;
    }
    if (bits == 4) {
        return p[i / 2] >> i % 2 * 4 & 15;
    }
    if (bits == 6) {
        const unsigned char *q = p + i / 4 * 3;
        unsigned shift = (unsigned)(i % 4 * 6), low = q[shift / 8];
        return (low | (shift % 8 > 2 ? (unsigned)q[shift / 8 + 1] << 8 : 0)) >> shift % 8 & 63;
    }
    return bits == 8 ? p[i] : p[2 * i] | (unsigned)p[2 * i + 1] << 8;
}

static void store_code(int bits, unsigned char *p, int64_t i, unsigned code)
{
    int64_t bit = i * bits;

    if (bits >= 8) {
        for (int k = 0; k < bits / 8; k++) {
            p[i * (bits / 8) + k] = (unsigned char)(code >> 8 * k);
        }
        return;
    }
    if (bits != 6) { /* within one byte */
        const unsigned mask = ((1u << bits) - 1) << bit % 8;
        p[bit / 8] = (unsigned char)((p[bit / 8] & ~mask) | (code << bit % 8 & mask));
        return;
    }
    for (int k = 0; k < bits; k++, bit++) {
        const unsigned mask = 1u << bit % 8;
        p[bit / 8] = (unsigned char)((p[bit / 8] & ~mask) | (code >> k & 1 ? mask : 0));
    }
}

static double decode_code(sinter_data_type_t type, unsigned code)
{
    format_t f;

    switch (type) {
    case sinter_u8:
    case sinter_u4:
    case sinter_u2:
        return code;
    case sinter_s8:
        return (double)(int)(code ^ 128) - 128;
    case sinter_s4:
        return (double)(int)(code ^ 8) - 8;
    case sinter_boolean:
        return code != 0;
    case sinter_e8m0:
        return code == 255 ? NAN : two_to((int)code - 127);
    default:
        return small_float(type, &f) ? decode_small(&f, code) : NAN;
    }
}

double orc_decode(sinter_data_type_t type, const void *data, int64_t element)
{
    const unsigned char *p = data;
    int bits = orc_type_bits(type);

    if (bits <= 16) {
        return decode_code(type, load_code(bits, p, element));
    }
    p += element * (bits / 8);
    switch (type) {
    case sinter_f32: {
        float x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    case sinter_f64: {
        double x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    case sinter_s32: {
        int32_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    default: {
        int64_t x;
        memcpy(&x, p, sizeof x);
        return (double)x;
    }
    }
}

void orc_encode(sinter_data_type_t type, void *data, int64_t element, double v)
{
    unsigned char *p = data;
    int bits;
    format_t f;

    if (type == sinter_f32) { /* the most frequent one */
        float x = (float)v;
        memcpy(p + element * 4, &x, sizeof x);
        return;
    }
    bits = orc_type_bits(type);
    v = orc_round(type, v);
    if (small_float(type, &f)) {
        store_code(bits, p, element, code_of_small(&f, v));
        return;
    }
    switch (type) {
    case sinter_f64:
        memcpy(p + element * 8, &v, sizeof v);
        return;
    case sinter_s64: {
        int64_t x = v >= 0x1p63 ? INT64_MAX : (int64_t)v;
        memcpy(p + element * 8, &x, sizeof x);
        return;
    }
    case sinter_e8m0:
        p[element] = isnan(v) ? 255 : (unsigned char)(exponent_of(v) + 127);
        return;
    default:
        store_code(bits, p, element, (unsigned)(int64_t)v);
    }
}

void orc_decode_table(sinter_data_type_t type, double *table)
{
    if (orc_type_bits(type) <= 8) {
        for (unsigned code = 0; code < 256; code++) {
            table[code] = decode_code(type, code & ((1u << orc_type_bits(type)) - 1));
        }
    }
}

/* n elements from an element offset on, stride elements apart. */
static void decode_run(sinter_data_type_t type, const unsigned char *p, const double *table,
                       int64_t offset, int64_t stride, size_t n, double *out)
{
    int bits = orc_type_bits(type);

    if (bits < 8) {
        for (size_t i = 0; i < n; i++, offset += stride) {
            out[i] = table[load_code(bits, p, offset)];
        }
    } else if (bits == 8) {
        for (size_t i = 0; i < n; i++, offset += stride) {
            out[i] = table[p[offset]];
        }
    } else if (type == sinter_f32) {
        for (size_t i = 0; i < n; i++, offset += stride) {
            float x;
            memcpy(&x, p + offset * 4, sizeof x);
            out[i] = x;
        }
    } else {
        for (size_t i = 0; i < n; i++, offset += stride) {
            out[i] = orc_decode(type, p, offset);
        }
    }
}

void orc_decode_span(const sinter_logical_tensor_t *lt, const void *data, const double *table,
                     size_t first, size_t n, double *out)
{
    int64_t index[SINTER_MAX_NDIMS] = {0}, dense[SINTER_MAX_NDIMS];
    const int64_t *strides = lt->strides;
    int last = lt->ndims - 1;

    if (last < 0) {
        out[0] = orc_decode(lt->data_type, data, 0);
        return;
    }
    if (lt->layout_type != sinter_layout_type_strided) {
        orc_dense_strides(lt->ndims, lt->dims, dense);
        strides = dense;
    }
    for (int d = last; d >= 0; d--) {
        index[d] = (int64_t)(first % (size_t)lt->dims[d]);
        first /= (size_t)lt->dims[d];
    }
    while (n) {
        int64_t offset = 0;
        size_t run = (size_t)(lt->dims[last] - index[last]);
        if (run > n) {
            run = n;
        }
        for (int d = 0; d <= last; d++) {
            offset += index[d] * strides[d];
        }
        decode_run(lt->data_type, data, table, offset, strides[last], run, out);
        out += run;
        n -= run;
        index[last] = 0;
        for (int d = last - 1; d >= 0 && ++index[d] == lt->dims[d]; d--) {
            index[d] = 0;
        }
    }
}
