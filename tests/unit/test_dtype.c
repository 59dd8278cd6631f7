/* Every number format: all codes, all midpoints and their neighbours, special values, strides
 * and offsets, against formulas of the test's own, literal values of the numeric contract, and
 * recorded vectors of ml_dtypes. All of it with FTZ/DAZ off and on, what one element shows also
 * through the bulk conversions of each ISA level. */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <sinter/sinter_graph.h>

#include "base/cpu.h"
#include "check.h"
#include "dtype_vectors.h"
#include "numeric/dtype.h"
#include "random.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static bool flush; /* run the codec under FTZ/DAZ */
static sinter_cpu_isa_t
    level; /* run through dtype_bulk of this level; sinter_isa_default: through the codec */

static unsigned enter_mode(void)
{
#if defined(__SSE__)
    unsigned csr = _mm_getcsr();
    _mm_setcsr(flush ? csr | 0x8040 : csr & ~0x8040u);
    return csr;
#else
    return 0;
#endif
}

static void leave_mode(unsigned csr)
{
#if defined(__SSE__)
    _mm_setcsr(csr);
#else
    (void)csr;
#endif
}

static const dtype_codec_t *codec(sinter_data_type_t type)
{
    return &dtype_traits(type)->codec;
}

static const char *name_of(sinter_data_type_t type)
{
    return dtype_traits(type)->name;
}

static uint32_t f32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint64_t f64_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float f32_from(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- one element through the codec under test ------------------------------------------------ */

/* Bulk conversions see the element often enough for whole vectors and a rest, at an odd place. */
enum { COPIES = 37, FIRST = 1 };

static uint64_t code_at(const unsigned char *bytes, int bits, int64_t i)
{
    uint64_t word = 0;
    memcpy(&word, bytes + i * bits / 8, (size_t)(bits + 15) / 8 > 8 ? 8 : (size_t)(bits + 15) / 8);
    return bits == 64 ? word : word >> i * bits % 8 & ((UINT64_C(1) << bits) - 1);
}

static void put_code(unsigned char *bytes, int bits, int64_t i, const unsigned char *code)
{
    for (int b = 0; b < bits; b++) {
        const int64_t to = i * bits + b;
        const unsigned mask = 1u << to % 8;
        bytes[to / 8] =
            (unsigned char)((bytes[to / 8] & ~mask) | (code[b / 8] >> b % 8 & 1 ? mask : 0));
    }
}

static float bulk_load(sinter_data_type_t type, const unsigned char *code)
{
    unsigned char bytes[(FIRST + COPIES) * 8] = {0};
    float x[COPIES];
    const int bits = dtype_traits(type)->bits;
    for (int64_t i = FIRST; i < FIRST + COPIES; i++) {
        if (bits % 8 == 0) {
            memcpy(bytes + i * bits / 8, code, (size_t)bits / 8);
        } else {
            put_code(bytes, bits, i, code);
        }
    }
    unsigned csr = enter_mode();
    dtype_bulk(type, features_up_to(level))->load(bytes, FIRST, COPIES, x);
    leave_mode(csr);
    CHECK(memcmp(x, x + 1, sizeof x - sizeof x[0]) == 0,
          "%s load of equal codes at level %d: elements differ", name_of(type), (int)level);
    return x[0];
}

static uint64_t bulk_store(bool saturate, sinter_data_type_t type, float x)
{
    unsigned char bytes[(FIRST + COPIES + 1) * 8] = {0};
    float src[COPIES];
    const dtype_bulk_t *bulk = dtype_bulk(type, features_up_to(level));
    const int bits = dtype_traits(type)->bits;
    for (int i = 0; i < COPIES; i++) {
        src[i] = x;
    }
    unsigned csr = enter_mode();
    (saturate ? bulk->store_sat : bulk->store)(bytes, FIRST, COPIES, src);
    leave_mode(csr);
    const uint64_t code = code_at(bytes, bits, FIRST);
    bool equal = true;
    for (int i = FIRST; i < FIRST + COPIES; i++) {
        equal = equal && code_at(bytes, bits, i) == code;
    }
    CHECK(equal, "%s store of equal floats at level %d: elements differ", name_of(type),
          (int)level);
    return code;
}

static float load32(sinter_data_type_t type, const void *base)
{
    float x;
    if (level != sinter_isa_default) {
        return bulk_load(type, base);
    }
    unsigned csr = enter_mode();
    codec(type)->load_f32(base, 0, 1, 1, &x);
    leave_mode(csr);
    return x;
}

static double load64(sinter_data_type_t type, const void *base)
{
    double x;
    unsigned csr = enter_mode();
    codec(type)->load_f64(base, 0, 1, 1, &x);
    leave_mode(csr);
    return x;
}

typedef enum store { STORE_F32, STORE_F64, STORE_SAT } store_t;
static const char *const store_names[] = {"store_f32", "store_f64", "store_sat"};

/* The code as an integer; the codec sees the value as float but for STORE_F64. */
static uint64_t store(store_t how, sinter_data_type_t type, double x)
{
    unsigned char bytes[8] = {0};
    float f = (float)x;
    uint64_t code;
    if (level != sinter_isa_default && how != STORE_F64) {
        return bulk_store(how == STORE_SAT, type, f);
    }
    unsigned csr = enter_mode();
    if (how == STORE_F64) {
        codec(type)->store_f64(bytes, 0, 1, 1, &x);
    } else if (how == STORE_F32) {
        codec(type)->store_f32(bytes, 0, 1, 1, &f);
    } else {
        codec(type)->store_sat(bytes, 0, 1, 1, &f);
    }
    leave_mode(csr);
    memcpy(&code, bytes, sizeof code);
    return code;
}

/* ---- the formats by definition: value = (-1)^s 2^(e - bias) (1 + m / 2^mbits), e = 0: 2^(1 -
 * bias) (m / 2^mbits) */

typedef enum top { IEEE, FN, FNUZ, FINITE } top_t;

typedef struct definition {
    sinter_data_type_t type;
    int ebits, mbits, bias;
    top_t top;
} definition_t;

static const definition_t definitions[] = {
    {sinter_f16, 5, 10, 15, IEEE},        {sinter_bf16, 8, 7, 127, IEEE},
    {sinter_f8_e5m2, 5, 2, 15, IEEE},     {sinter_f8_e4m3, 4, 3, 7, FN},
    {sinter_f8_e5m2fnuz, 5, 2, 16, FNUZ}, {sinter_f8_e4m3fnuz, 4, 3, 8, FNUZ},
    {sinter_f6_e3m2, 3, 2, 3, FINITE},    {sinter_f6_e2m3, 2, 3, 1, FINITE},
    {sinter_f4_e2m1, 2, 1, 1, FINITE},
};

static const definition_t *definition_of(sinter_data_type_t type)
{
    for (size_t i = 0; i < LENGTH(definitions); i++) {
        if (definitions[i].type == type) {
            return &definitions[i];
        }
    }
    return NULL;
}

static double magnitude_of(const definition_t *d, unsigned code)
{
    unsigned m = code & ((1u << d->mbits) - 1), e = code >> d->mbits;
    return e == 0 ? ldexp(m, 1 - d->bias - d->mbits)
                  : ldexp(m + (1u << d->mbits), (int)e - d->bias - d->mbits);
}

static unsigned sign_bit(const definition_t *d)
{
    return 1u << (d->ebits + d->mbits);
}

/* The first magnitude code that is no finite value. */
static unsigned end_of(const definition_t *d)
{
    return d->top == IEEE ? sign_bit(d) - (1u << d->mbits)
           : d->top == FN ? sign_bit(d) - 1
                          : sign_bit(d);
}

static double value_of(const definition_t *d, unsigned code)
{
    unsigned sign = code & sign_bit(d), low = code & (sign_bit(d) - 1);
    double value = low < end_of(d)                      ? magnitude_of(d, low)
                   : d->top == IEEE && low == end_of(d) ? INFINITY
                                                        : NAN;
    if (d->top == FNUZ && code == sign_bit(d)) {
        return NAN;
    }
    return sign ? -value : value;
}

/* The code that a store must give, found by bisection among the values. */
static unsigned code_of(const definition_t *d, double x, bool saturate)
{
    unsigned sign = signbit(x) ? sign_bit(d) : 0, end = end_of(d), low = 0, high = end;
    if (isnan(x)) {
        return d->top == FNUZ     ? sign_bit(d)
               : d->top == FINITE ? sign | (end - 1)
               : d->top == FN     ? sign | end
                                  : sign | end | 1u << (d->mbits - 1);
    }
    double a = fabs(x);
    /* Always value(low) <= a, and a < value(high) unless high is `end`, the code after the largest
     * one. */
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (magnitude_of(d, middle) <= a) {
            low = middle;
        } else {
            high = middle;
        }
    }
    double below = a - magnitude_of(d, low), above = magnitude_of(d, high) - a;
    unsigned code = below < above || (below == above && low % 2 == 0) ? low : high;
    if (code == end) {
        bool clamp = saturate || d->top == FINITE;
        return clamp ? sign | (end - 1) : d->top == FNUZ ? sign_bit(d) : sign | end;
    }
    return d->top == FNUZ && code == 0 ? 0 : sign | code;
}

/* Equal, or both NaN. */
static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static bool same_f32(double want, float got) /* compares bits: got may be subnormal */
{
    return isnan(want) ? isnan(got) : f32_bits((float)want) == f32_bits(got);
}

static void check_codes(const definition_t *d)
{
    for (unsigned code = 0; code < 2 * sign_bit(d); code++) {
        unsigned char bytes[8] = {(unsigned char)code, (unsigned char)(code >> 8)};
        double want = value_of(d, code);
        CHECK(same_f32(want, load32(d->type, bytes)), "%s code 0x%X loads as %a in f32, not %a",
              name_of(d->type), code, load32(d->type, bytes), want);
        CHECK(same(want, load64(d->type, bytes)), "%s code 0x%X loads as %a in f64, not %a",
              name_of(d->type), code, load64(d->type, bytes), want);
    }
}

static void check_encode(const definition_t *d, store_t how, double x)
{
    double seen = how == STORE_F64 ? x : (double)(float)x;
    uint64_t want = code_of(d, seen, how == STORE_SAT), got = store(how, d->type, x);
    CHECK(got == want, "%s %s of %a: code 0x%llX, not 0x%llX", name_of(d->type), store_names[how],
          seen, (unsigned long long)got, (unsigned long long)want);
}

/* x and the values next to it, in f32 and in f64, of both signs. */
static void check_around(const definition_t *d, double x)
{
    for (int sign = 1; sign >= -1; sign -= 2) {
        float f = (float)(sign * x);
        for (int how = STORE_F32; how <= STORE_SAT; how++) {
            check_encode(d, (store_t)how, (double)f);
            check_encode(d, (store_t)how, (double)nextafterf(f, INFINITY));
            check_encode(d, (store_t)how, (double)nextafterf(f, -INFINITY));
        }
        check_encode(d, STORE_F64, sign * x);
        check_encode(d, STORE_F64, nextafter(sign * x, INFINITY));
        check_encode(d, STORE_F64, nextafter(sign * x, -INFINITY));
    }
}

static void check_midpoints(const definition_t *d)
{
    unsigned step = sign_bit(d) > 0x1000 ? 7 : 1; /* 16 bits: every seventh, both parities */
    for (unsigned code = 0; code < end_of(d);
         code += code + 300 < end_of(d) && code > 300 ? step : 1) {
        double low = magnitude_of(d, code), high = magnitude_of(d, code + 1);
        check_around(d, low);
        check_around(d, (low + high) / 2);
    }
    static const double outside[] = {INFINITY,        NAN,       DBL_MAX,  DBL_MIN, 0x1p-1074,
                                     (double)FLT_MAX, 0x1p-149,  0x1p-126, 1e30,    0x1p128,
                                     0x1p-150,        0x1.8p-150};
    for (size_t i = 0; i < LENGTH(outside); i++) {
        check_encode(d, STORE_F64, outside[i]);
        check_encode(d, STORE_F64, -outside[i]);
        check_encode(d, STORE_F32, outside[i]);
        check_encode(d, STORE_F32, -outside[i]);
        check_encode(d, STORE_SAT, outside[i]);
        check_encode(d, STORE_SAT, -outside[i]);
    }
}

/* ---- literal values -------------------------------------------------------------------------- */

typedef struct literal {
    sinter_data_type_t type;
    double x;
    uint64_t code;
} literal_t;

static const literal_t literals[] = {
    /* overflow after rounding, smallest values, double rounding: the sentences of the contract */
    {sinter_f8_e5m2, 61440, 0x7C},
    {sinter_f8_e5m2, 61439, 0x7B},
    {sinter_f8_e5m2, -INFINITY, 0xFC},
    {sinter_f8_e5m2, 0x1p-17, 0},
    {sinter_f8_e4m3, 464, 0x7E},
    {sinter_f8_e4m3, 464.01, 0x7F},
    {sinter_f8_e4m3, INFINITY, 0x7F},
    {sinter_f8_e4m3, 0x1p-10, 0},
    {sinter_f8_e4m3, 1.0625 + 0x1p-20, 0x39},
    {sinter_f8_e4m3, 1.0625, 0x38},
    {sinter_f8_e4m3fnuz, -0.0, 0},
    {sinter_f8_e5m2fnuz, -0.0, 0},
    {sinter_f8_e4m3fnuz, 1e9, 0x80},
    {sinter_f8_e5m2fnuz, -INFINITY, 0x80},
    {sinter_f8_e4m3fnuz, -240, 0xFF},
    {sinter_f8_e5m2fnuz, 57344, 0x7F},
    {sinter_f4_e2m1, 5, 6},
    {sinter_f4_e2m1, 3.5, 6},
    {sinter_f4_e2m1, 2.5, 4},
    {sinter_f4_e2m1, 1.75, 4},
    {sinter_f4_e2m1, 1.25, 2},
    {sinter_f4_e2m1, 0.75, 2},
    {sinter_f4_e2m1, 0.25, 0},
    {sinter_f4_e2m1, -0.25, 8},
    {sinter_f4_e2m1, 1e9, 7},
    {sinter_f4_e2m1, -INFINITY, 15},
    {sinter_f6_e3m2, 1e9, 0x1F},
    {sinter_f6_e2m3, -1e9, 0x3F},
    {sinter_f6_e2m3, 7.5, 0x1F},
    {sinter_f6_e3m2, 0.0625, 1},
    {sinter_f16, 65519, 0x7BFF},
    {sinter_f16, 65520, 0x7C00},
    {sinter_bf16, 0x1p-133, 1},
    {sinter_bf16, 0x1p-134, 0},
    /* integers */
    {sinter_s8, 127.5, 0x7F},
    {sinter_s8, -128.5, 0x80},
    {sinter_s8, -1e30, 0x80},
    {sinter_s8, 0.5, 0},
    {sinter_s8, 1.5, 2},
    {sinter_s8, -2.5, 0xFE},
    {sinter_s8, NAN, 0},
    {sinter_s8, INFINITY, 0x7F},
    {sinter_s8, -INFINITY, 0x80},
    {sinter_u8, -0.5, 0},
    {sinter_u8, -3, 0},
    {sinter_u8, 255.5, 0xFF},
    {sinter_u8, 254.5, 0xFE},
    {sinter_u8, NAN, 0},
    {sinter_u8, INFINITY, 0xFF},
    {sinter_s4, 7.5, 7},
    {sinter_s4, -9, 8},
    {sinter_s4, -0.5, 0},
    {sinter_s4, -1, 15},
    {sinter_s4, 2.5, 2},
    {sinter_s4, NAN, 0},
    {sinter_u4, 15.5, 15},
    {sinter_u4, 14.5, 14},
    {sinter_u4, -1, 0},
    {sinter_u4, NAN, 0},
    {sinter_s32, 2147483648.0, 0x7FFFFFFF},
    {sinter_s32, -2147483648.0, 0x80000000},
    {sinter_s32, 3e9, 0x7FFFFFFF},
    {sinter_s32, -3e9, 0x80000000},
    {sinter_s32, NAN, 0},
    {sinter_s32, 2.5, 2},
    {sinter_s32, -3.5, 0xFFFFFFFC},
    {sinter_s32, 16777216, 16777216},
    {sinter_s64, 0x1p63, INT64_MAX},
    {sinter_s64, -0x1p63, 0x8000000000000000},
    {sinter_s64, INFINITY, INT64_MAX},
    {sinter_s64, NAN, 0},
    {sinter_s64, -INFINITY, 0x8000000000000000},
    {sinter_s64, 0x1p62, 0x4000000000000000},
    {sinter_s64, 0.5, 0},
    {sinter_s64, -1.5, 0xFFFFFFFFFFFFFFFE},
    /* boolean */
    {sinter_boolean, 0.0, 0},
    {sinter_boolean, -0.0, 0},
    {sinter_boolean, 0x1p-149, 1},
    {sinter_boolean, -3, 1},
    {sinter_boolean, NAN, 1},
    /* scales: nearest power of two, ties to the even code, clamped */
    {sinter_e8m0, 1, 127},
    {sinter_e8m0, 1.5, 128},
    {sinter_e8m0, 3, 128},
    {sinter_e8m0, 0x1.7FFFFEp0, 127},
    {sinter_e8m0, 0x1.800002p1, 129},
    {sinter_e8m0, 0, 0},
    {sinter_e8m0, -1, 0},
    {sinter_e8m0, -INFINITY, 0},
    {sinter_e8m0, INFINITY, 0xFE},
    {sinter_e8m0, 0x1.FFFFFEp127, 0xFE},
    {sinter_e8m0, NAN, 0xFF},
    {sinter_e8m0, -NAN, 0xFF},
    {sinter_e8m0, 0x1p-127, 0},
    {sinter_e8m0, 0x1p-126, 1},
    {sinter_e8m0, 0x1p-149, 0},
    {sinter_e8m0, 0x1.8p-127, 0},
    {sinter_e8m0, 0x1.80001p-127, 1},
    {sinter_e8m0, 0x1.8p-126, 2},
    {sinter_e8m0, 0x1.8p126, 254},
};

static void check_literals(void)
{
    for (size_t i = 0; i < LENGTH(literals); i++) {
        const literal_t *l = &literals[i];
        for (int how = STORE_F32; how <= STORE_F64; how++) {
            uint64_t got = store((store_t)how, l->type, l->x);
            CHECK(got == l->code, "%s %s of %a: code 0x%llX, not 0x%llX", name_of(l->type),
                  store_names[how], l->x, (unsigned long long)got, (unsigned long long)l->code);
        }
    }
    /* f64 only: what an f32 cannot hold; rounding through f32 would tie. */
    static const literal_t wide[] = {
        {sinter_s64, 0x1.0000000000001p52, 0x10000000000001},
        {sinter_s64, 0x1.0000000000001p51, 0x8000000000000},
        {sinter_s64, 4503599627370495.5, 0x10000000000000},
        {sinter_s64, -2251799813685249.5, 0xFFF7FFFFFFFFFFFE},
        {sinter_s32, 2147483646.5, 0x7FFFFFFE},
        {sinter_s32, -2147483647.5, 0x80000000},
        {sinter_f16, 1 + 0x1p-11 + 0x1p-40, 0x3C01},
        {sinter_f16, 1 + 0x1p-11, 0x3C00},
        {sinter_bf16, 1 + 0x1p-8 + 0x1p-40, 0x3F81},
        {sinter_f8_e4m3, 1.0625 + 0x1p-45, 0x39},
        {sinter_f4_e2m1, 2.5 + 0x1p-45, 5},
        {sinter_s8, 0.5 + 0x1p-40, 1},
        {sinter_e8m0, 1.5 - 0x1p-40, 127},
        {sinter_e8m0, 3 + 0x1p-40, 129},
        {sinter_boolean, 0x1p-1074, 1},
        {sinter_e8m0, 0x1p-1074, 0},
        {sinter_e8m0, 0x1p200, 0xFE},
    };
    for (size_t i = 0; i < LENGTH(wide); i++) {
        uint64_t got = store(STORE_F64, wide[i].type, wide[i].x);
        CHECK(got == wide[i].code, "%s store_f64 of %a: code 0x%llX, not 0x%llX",
              name_of(wide[i].type), wide[i].x, (unsigned long long)got,
              (unsigned long long)wide[i].code);
    }
}

/* ---- integers, boolean, scales: all codes ---------------------------------------------------- */

static void check_byte_codes(void)
{
    for (int code = 0; code < 256; code++) {
        unsigned char byte = (unsigned char)code;
        int nibble = code & 15;
        CHECK(load64(sinter_s8, &byte) == (code < 128 ? code : code - 256) &&
                  load32(sinter_s8, &byte) == (float)(code < 128 ? code : code - 256),
              "s8 %d", code);
        CHECK(load64(sinter_u8, &byte) == code && load32(sinter_u8, &byte) == (float)code, "u8 %d",
              code);
        CHECK(load64(sinter_s4, &byte) == (nibble < 8 ? nibble : nibble - 16) &&
                  load32(sinter_s4, &byte) == (float)(nibble < 8 ? nibble : nibble - 16),
              "s4 %d", code);
        CHECK(load64(sinter_u4, &byte) == nibble && load32(sinter_u4, &byte) == (float)nibble,
              "u4 %d", code);
        CHECK(load64(sinter_boolean, &byte) == (code != 0) &&
                  load32(sinter_boolean, &byte) == (float)(code != 0),
              "boolean %d", code);
        double scale = code == 255 ? NAN : ldexp(1, code - 127);
        CHECK(same(scale, load64(sinter_e8m0, &byte)) &&
                  same_f32(scale, load32(sinter_e8m0, &byte)),
              "e8m0 %d", code);
        if (code < 255) {
            CHECK(store(STORE_F32, sinter_e8m0, scale) == (uint64_t)code &&
                      store(STORE_F64, sinter_e8m0, scale) == (uint64_t)code,
                  "e8m0 %d back", code);
        }
    }
    for (int i = -1100; i <= 1100; i++) { /* quarters: every tie and what lies between */
        double x = i / 4.0, r = nearbyint(x);
        CHECK(store(STORE_F32, sinter_s8, x) == (uint8_t)(int8_t)fmax(-128, fmin(127, r)),
              "s8 of %g", x);
        CHECK(store(STORE_F64, sinter_u8, x) == (uint8_t)fmax(0, fmin(255, r)), "u8 of %g", x);
        CHECK(store(STORE_F32, sinter_u8, x) == (uint8_t)fmax(0, fmin(255, r)), "u8 of %g", x);
        CHECK(store(STORE_SAT, sinter_s4, x) == ((uint8_t)(int8_t)fmax(-8, fmin(7, r)) & 15),
              "s4 of %g", x);
        CHECK(store(STORE_F32, sinter_u4, x) == (uint8_t)fmax(0, fmin(15, r)), "u4 of %g", x);
        CHECK((int32_t)store(STORE_F32, sinter_s32, x) == (int32_t)r, "s32 of %g", x);
        CHECK((int64_t)store(STORE_F32, sinter_s64, x) == (int64_t)r, "s64 of %g", x);
    }
}

/* ---- f32, f64 -------------------------------------------------------------------------------- */

static uint64_t random_bits(void)
{
    static uint64_t state = 1;
    return random_next(&state);
}

static void check_wide(double x)
{
    float want = (float)x; /* the reference conversion runs without FTZ/DAZ */
    uint64_t got = store(STORE_F64, sinter_f32, x);
    CHECK(isnan(x) ? isnan(f32_from((uint32_t)got)) : got == f32_bits(want),
          "f32 store_f64 of %a: 0x%llX, not 0x%X", x, (unsigned long long)got, f32_bits(want));
    CHECK(isnan(x) ? isnan(load32(sinter_f64, &x))
                   : f32_bits(load32(sinter_f64, &x)) == f32_bits(want),
          "f64 load_f32 of %a", x);
    CHECK(f64_bits(load64(sinter_f64, &x)) == f64_bits(x) &&
              store(STORE_F64, sinter_f64, x) == f64_bits(x),
          "f64 %a itself", x);
}

static void check_f32_values(void)
{
    static const uint32_t special[] = {0,          1,          2,          0x007FFFFF,
                                       0x00800000, 0x00400000, 0x7F7FFFFF, 0x7F800000,
                                       0x7FC00000, 0x7F800001, 0x7FFFFFFF, 0x3F800000};
    for (int i = 0; i < 20000; i++) {
        uint32_t bits = i < 2 * (int)LENGTH(special) ? special[i / 2] | (uint32_t)(i % 2) << 31
                                                     : (uint32_t)random_bits();
        bits = i % 4 == 3 ? bits & 0x807FFFFF : bits; /* subnormals */
        float x = f32_from(bits);
        double want = (double)x;
        float back = load32(sinter_f32, &x);
        CHECK(f32_bits(back) == bits, "f32 0x%08X loads as 0x%08X", bits, f32_bits(back));
        CHECK(isnan(x) ? isnan(load64(sinter_f32, &x))
                       : f64_bits(load64(sinter_f32, &x)) == f64_bits(want),
              "f32 0x%08X load_f64", bits);
        if (!isnan(x)) {
            CHECK(store(STORE_F32, sinter_f32, want) == bits &&
                      store(STORE_F32, sinter_f64, want) == f64_bits(want),
                  "f32 0x%08X stores", bits);
            float clamped = isinf(x) ? copysignf(FLT_MAX, x) : x;
            CHECK(store(STORE_SAT, sinter_f32, want) == f32_bits(clamped), "f32 0x%08X saturates",
                  bits);
        }
        uint64_t wide = random_bits();
        double d;
        memcpy(&d, &wide, sizeof d);
        check_wide(d);
        check_wide(want + (i % 2 ? 0x1p-150 : ldexp(want, -24))); /* at and near the ties of f32 */
    }
}

static void check_nan_payloads(void)
{
    for (uint32_t payload = 1; payload < 0x800000; payload = payload * 2 + payload % 3) {
        for (size_t i = 0; i < LENGTH(definitions); i++) {
            const definition_t *d = &definitions[i];
            float nan32 = f32_from(0x7F800000 | payload);
            uint64_t wide = UINT64_C(0x7FF0000000000000) | payload;
            double nan64;
            memcpy(&nan64, &wide, sizeof nan64);
            unsigned char bytes[8] = {0}, wide_bytes[8] = {0};
            unsigned csr = enter_mode();
            codec(d->type)->store_f32(bytes, 0, 1, 1, &nan32);
            codec(d->type)->store_f64(wide_bytes, 0, 1, 1, &nan64);
            leave_mode(csr);
            float got = load32(d->type, bytes), got_wide = load32(d->type, wide_bytes);
            double max = d->top == FINITE ? dtype_traits(d->type)->max : NAN;
            CHECK(same(max, got) && same(max, got_wide), "%s of a NaN with payload 0x%X",
                  name_of(d->type), payload);
        }
    }
}

/* ---- recorded vectors ------------------------------------------------------------------------ */

#define VECTORS(name)                                                                          \
    {                                                                                          \
        sinter_##name, vector_codes_##name, vector_values_##name, LENGTH(vector_values_##name) \
    }
static const struct {
    sinter_data_type_t type;
    const uint16_t *codes;
    const uint32_t *values;
    size_t n_values;
} vectors[] = {
    VECTORS(f8_e5m2),
    VECTORS(f8_e4m3),
    VECTORS(f8_e5m2fnuz),
    VECTORS(f8_e4m3fnuz),
    VECTORS(f6_e3m2),
    VECTORS(f6_e2m3),
    VECTORS(f4_e2m1),
    {sinter_f16, vector_codes_f16, NULL, 0},
    {sinter_bf16, vector_codes_bf16, NULL, 0},
};

static void check_values(sinter_data_type_t type, const uint32_t *values, size_t n)
{
    for (size_t code = 0; code < n; code++) {
        unsigned char bytes[8] = {(unsigned char)code};
        float want = f32_from(values[code]), got = load32(type, bytes);
        CHECK(isnan(want) ? isnan(got) : f32_bits(got) == values[code],
              "%s vector: code 0x%zX is 0x%08X, not 0x%08X", name_of(type), code, f32_bits(got),
              values[code]);
    }
}

static void check_vectors(void)
{
    for (size_t v = 0; v < LENGTH(vectors); v++) {
        check_values(vectors[v].type, vectors[v].values, vectors[v].n_values);
        for (size_t i = 0; i < LENGTH(vector_inputs); i++) {
            uint64_t got = store(STORE_F32, vectors[v].type, (double)f32_from(vector_inputs[i]));
            CHECK(got == vectors[v].codes[i], "%s vector: 0x%08X gives 0x%llX, not 0x%X",
                  name_of(vectors[v].type), vector_inputs[i], (unsigned long long)got,
                  vectors[v].codes[i]);
        }
    }
    check_values(sinter_e8m0, vector_values_e8m0, LENGTH(vector_values_e8m0));
    for (size_t i = 0; i < LENGTH(vector_scale_inputs); i++) {
        CHECK(store(STORE_F32, sinter_e8m0, (double)f32_from(vector_scale_inputs[i])) ==
                  vector_codes_e8m0[i],
              "e8m0 vector 0x%08X", vector_scale_inputs[i]);
    }
}

/* Where the numeric contract differs from the recorded implementations: both results are as
 * recorded, and they do differ. */
static void check_differences(void)
{
    for (size_t i = 0; i < LENGTH(vector_differences); i++) {
        const vector_difference_t *d = &vector_differences[i];
        const float x = f32_from(d->input);
        unsigned char bytes[8] = {0};
        unsigned csr = enter_mode();
        codec(d->type)->store_f32(bytes, 0, 1, 1, &x);
        leave_mode(csr);
        const uint64_t got = code_at(bytes, dtype_traits(d->type)->bits, 0),
                       bulk = bulk_store(false, d->type, x);
        CHECK(got == d->ours && bulk == d->ours && d->ours != d->theirs,
              "%s of 0x%08X: 0x%llX (bulk 0x%llX), not 0x%X: %s", name_of(d->type), d->input,
              (unsigned long long)got, (unsigned long long)bulk, d->ours, vector_rules[d->rule]);
    }
}

/* ---- strides, offsets, neighbours ------------------------------------------------------------ */

static bool get_bit(const unsigned char *bytes, int64_t bit)
{
    return bytes[bit / 8] >> bit % 8 & 1;
}

/* Element i of a type of this many bits starts at bit i * bits, for all types. */
static bool copy_is_right(const unsigned char *before, const unsigned char *after, size_t size,
                          int bits, int64_t first, int64_t stride, int64_t n,
                          const unsigned char *codes)
{
    unsigned char want[1024];
    memcpy(want, before, size);
    for (int64_t i = 0; i < n; i++) {
        for (int b = 0; b < bits; b++) {
            int64_t to = (first + i * stride) * bits + b;
            unsigned mask = 1u << to % 8;
            want[to / 8] =
                (unsigned char)((want[to / 8] & ~mask) | (get_bit(codes, i * 64 + b) ? mask : 0));
        }
    }
    return memcmp(want, after, size) == 0;
}

enum { MAX_N = 19 };

static void check_layout(sinter_data_type_t type, int64_t first, int64_t stride, int64_t n,
                         size_t shift)
{
    int bits = dtype_traits(type)->bits;
    unsigned char before[1024], after[1024], codes[MAX_N * 8 + 8] = {0};
    float values[MAX_N + 2], loaded[MAX_N + 2];
    double wide[MAX_N + 2], wide_loaded[MAX_N + 2];
    for (size_t i = 0; i < sizeof before; i++) {
        before[i] = (unsigned char)random_bits();
    }
    for (int64_t i = 0; i < n; i++) {
        values[i] = (float)((int)(random_bits() % 15) - 7) / 2;
        wide[i] = (double)values[i];
        codec(type)->store_f32(codes + i * 8, 0, 1, 1, &values[i]);
    }
    const char *name = name_of(type);
    unsigned csr = enter_mode();
    memcpy(after, before, sizeof after);
    codec(type)->store_f32(after + shift, first, stride, n, values);
    CHECK(copy_is_right(before + shift, after + shift, sizeof after - shift, bits, first, stride, n,
                        codes) &&
              after[0] == (shift ? before[0] : after[0]),
          "%s store_f32 first %d stride %d n %d", name, (int)first, (int)stride, (int)n);
    memcpy(after, before, sizeof after);
    codec(type)->store_sat(after + shift, first, stride, n, values);
    CHECK(copy_is_right(before + shift, after + shift, sizeof after - shift, bits, first, stride, n,
                        codes),
          "%s store_sat first %d stride %d n %d", name, (int)first, (int)stride, (int)n);
    memcpy(after, before, sizeof after);
    codec(type)->store_f64(after + shift, first, stride, n, wide);
    CHECK(copy_is_right(before + shift, after + shift, sizeof after - shift, bits, first, stride, n,
                        codes),
          "%s store_f64 first %d stride %d n %d", name, (int)first, (int)stride, (int)n);
    loaded[n] = 1234;
    wide_loaded[n] = 1234;
    codec(type)->load_f32(after + shift, first, stride, n, loaded);
    codec(type)->load_f64(after + shift, first, stride, n, wide_loaded);
    leave_mode(csr);
    CHECK(loaded[n] == 1234 && wide_loaded[n] == 1234, "%s load writes beyond n", name);
    for (int64_t i = 0; i < n; i++) {
        float want = load32(type, codes + i * 8);
        CHECK(loaded[i] == want && wide_loaded[i] == (double)want,
              "%s load first %d stride %d: element %d is %g, not %g", name, (int)first, (int)stride,
              (int)i, loaded[i], want);
    }
}

static void check_layouts(void)
{
#define SINTER_DTYPE(value, name, ...)                                        \
    for (int64_t first = 0; first < 6; first++) {                             \
        for (int64_t stride = 1; stride < 6; stride++) {                      \
            for (int64_t n = 0; n <= MAX_N; n++) {                            \
                check_layout(sinter_##name, first, stride, n, (size_t)n % 3); \
            }                                                                 \
        }                                                                     \
    }
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
    unsigned char bytes[64];
    memset(bytes, 0x12, sizeof bytes);
#define SINTER_DTYPE(value, name, ...)                                                        \
    {                                                                                         \
        float one, many[3];                                                                   \
        codec(sinter_##name)->load_f32(bytes, 3, 1, 1, &one);                                 \
        codec(sinter_##name)->load_f32(bytes, 3, 0, 3, many);                                 \
        CHECK(many[0] == one && many[1] == one && many[2] == one, "%s with stride 0", #name); \
    }
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
}

/* The last elements of a buffer: no byte behind them is touched (run under ASan, heap blocks end
 * where they end). */
static void check_ends(void)
{
#define SINTER_DTYPE(value, name, ...)                                                    \
    for (int64_t n = 1; n < 10; n++) {                                                    \
        int64_t size = 0;                                                                 \
        float values[10] = {0};                                                           \
        CHECK(dtype_bytes(sinter_##name, n, &size), "%s size", #name);                    \
        CHECK(size == (n * dtype_traits(sinter_##name)->bits + 7) / 8, "%s size", #name); \
        void *heap = calloc(1, (size_t)size);                                             \
        codec(sinter_##name)->store_f32(heap, 0, 1, n, values);                           \
        codec(sinter_##name)->load_f32(heap, 0, 1, n, values);                            \
        codec(sinter_##name)->store_f32(heap, n - 1, 1, 1, values);                       \
        codec(sinter_##name)->load_f32(heap, n - 1, 1, 1, values);                        \
        free(heap);                                                                       \
    }
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
}

/* ---- traits ---------------------------------------------------------------------------------- */

static void check_traits(void)
{
    int64_t bytes;
    sinter_data_type_t type = sinter_data_type_undef;
#define SINTER_DTYPE(value, name_, cls_, bits_, block_elems_, block_bytes_, digits_, max_)      \
    CHECK(dtype_traits(value) != NULL && strcmp(dtype_traits(value)->name, #name_) == 0,        \
          "name of %s", #name_);                                                                \
    CHECK(sinter_data_type_parse(#name_, &type) == 1 && type == sinter_##name_, "parse %s",     \
          #name_);                                                                              \
    CHECK(strcmp(sinter_data_type_name(sinter_##name_), #name_) == 0, "name %s", #name_);       \
    CHECK((block_bytes_)*8 == (block_elems_) * (bits_), "block of %s", #name_);                 \
    CHECK(dtype_is_packed(sinter_##name_) == ((bits_) < 8), "packed %s", #name_);               \
    CHECK(!dtype_bytes(sinter_##name_, INT64_MAX, &bytes) == ((block_bytes_) > (block_elems_)), \
          "overflow %s", #name_);
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
    static const int none[] = {-1, 0, 15, 17, 63, 1000};
    for (size_t i = 0; i < LENGTH(none); i++) {
        CHECK(dtype_traits((sinter_data_type_t)none[i]) == NULL &&
                  sinter_data_type_name((sinter_data_type_t)none[i]) == NULL,
              "%d is no type", none[i]);
    }
    type = sinter_f16;
    CHECK(sinter_data_type_parse("f17", &type) == 0 && type == sinter_f16,
          "unknown name leaves the output alone");
    CHECK(sinter_data_type_parse(NULL, &type) == 0 && sinter_data_type_parse("f32", NULL) == 0,
          "NULL");
    CHECK(dtype_is_wide_float(sinter_bf16) && dtype_is_wide_float(sinter_f64) &&
              !dtype_is_wide_float(sinter_f8_e5m2),
          "wide floats");
    CHECK(dtype_needs_f64(sinter_s32) && dtype_needs_f64(sinter_s64) && dtype_needs_f64(sinter_f64),
          "f64 path");
    CHECK(!dtype_needs_f64(sinter_f32) && !dtype_needs_f64(sinter_u8), "f32 path");
#define SINTER_DTYPE(value, name_, cls_, bits_, ...)         \
    CHECK(!dtype_is_float(sinter_##name_) || (bits_) > 16 || \
              definition_of(sinter_##name_) != NULL,         \
          "%s has no row in definitions", #name_);
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
    for (size_t i = 0; i < LENGTH(definitions); i++) {
        const definition_t *d = &definitions[i];
        CHECK(dtype_traits(d->type)->max == magnitude_of(d, end_of(d) - 1), "max of %s",
              name_of(d->type));
        CHECK(dtype_traits(d->type)->min == -dtype_traits(d->type)->max &&
                  dtype_traits(d->type)->digits == d->mbits + 1,
              "min of %s", name_of(d->type));
    }
    CHECK(dtype_traits(sinter_s8)->min == -128 && dtype_traits(sinter_u4)->min == 0 &&
              dtype_traits(sinter_s4)->min == -8,
          "int ranges");
    CHECK(dtype_traits(sinter_s64)->min == -0x1p63 && dtype_traits(sinter_e8m0)->min == 0x1p-127 &&
              dtype_traits(sinter_boolean)->min == 0,
          "lowest");
}

static void check_elements(void)
{
    for (size_t i = 0; i < LENGTH(definitions); i++) {
        check_codes(&definitions[i]);
        check_midpoints(&definitions[i]);
    }
    check_literals();
    check_byte_codes();
    check_f32_values();
    check_nan_payloads();
    check_vectors();
    check_differences();
}

int main(void)
{
    check_traits();
    sinter_cpu_isa_t top;
    if (cpu_isa_cap(sinter_isa_default, &top) != sinter_success) {
        return 1;
    }
    for (int i = 0; i < 2 * ((int)top + 1); i++) {
        flush = i % 2 != 0;
        level = (sinter_cpu_isa_t)(i / 2);
        check_elements();
        if (level == sinter_isa_default) {
            check_layouts();
            check_ends();
        }
    }
    return check_finish();
}
