/* Codes of six bits in two planes: the codec, every code in both formats, and whole graphs, in
 * which planes must give the bits that the same codes give in one tensor. */
#define _GNU_SOURCE
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter.h>

#include "base/cpu.h"
#include "check.h"
#include "numeric/dtype.h"
#include "spec.h"
#include "test_decode.h"

static const sinter_data_type_t formats[] = {sinter_f6_e3m2, sinter_f6_e2m3};

static void put_bits(unsigned char *p, int64_t at, int bits, unsigned code)
{
    for (int64_t k = 0; k < bits; k++) {
        const int64_t bit = at * bits + k;
        p[bit / 8] = (unsigned char)((p[bit / 8] & ~(1u << bit % 8)) | (code >> k & 1) << bit % 8);
    }
}

/* ---- u2 -------------------------------------------------------------------------------------- */

static void check_u2_loads(void)
{
    const dtype_codec_t *codec = &dtype_traits(sinter_u2)->codec;
    for (int first = 0; first < 9; first++) {
        for (int stride = 0; stride < 6; stride++) {
            const int n = 11;
            guarded_t g = guarded((size_t)(first + stride * (n - 1)) / 4 + 1);
            float x[11];
            double y[11];
            codec->load_f32(g.data, first, stride, n, x);
            codec->load_f64(g.data, first, stride, n, y);
            for (int i = 0; i < n; i++) {
                const int at = first + i * stride;
                const unsigned want = g.data[at / 4] >> 2 * (at % 4) & 3;
                CHECK(x[i] == (float)want && y[i] == (double)want, "u2 element %d: %g", at,
                      (double)x[i]);
            }
            unguard(&g);
        }
    }
}

static void check_u2_stores(void)
{
    static const struct {
        float x;
        unsigned code;
    } rows[] = {{0, 0},     {0.5f, 0},     {0x1.000002p-1f, 1}, {1.5f, 2}, {2.5f, 2},
                {2.75f, 3}, {3.5f, 3},     {1e30f, 3},          {-1, 0},   {-0.0f, 0},
                {NAN, 0},   {INFINITY, 3}, {-INFINITY, 0}};
    const dtype_codec_t *codec = &dtype_traits(sinter_u2)->codec;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double wide = (double)rows[i].x;
        for (int at = 0; at < 4; at++) {
            const unsigned keep = 0xA5u & ~(3u << 2 * at), want = keep | rows[i].code << 2 * at;
            unsigned char a = 0xA5, b = 0xA5, c = 0xA5;
            codec->store_f32(&a, at, 1, 1, &rows[i].x);
            codec->store_f64(&b, at, 1, 1, &wide);
            codec->store_sat(&c, at, 1, 1, &rows[i].x);
            CHECK(a == want && b == want && c == want, "u2 of %g at %d: %02x %02x %02x", wide, at,
                  a, b, c);
        }
    }
}

/* ---- the two planes -------------------------------------------------------------------------- */

static bool is_code(sinter_data_type_t type, float got, unsigned code)
{
    const unsigned char byte = (unsigned char)code;
    const double want = decode(type, &byte, 0);
    return (double)got == want && (signbit(got) != 0) == (signbit(want) != 0);
}

/* Every code, at every place in both bytes, as a run of one. */
static void check_codes(sinter_data_type_t type, const dtype_split_t *split)
{
    for (unsigned code = 0; code < 64; code++) {
        const float low = (float)(code & 15), high = (float)(code >> 4);
        float joined;
        split->join(&low, &high, 1, &joined);
        CHECK(is_code(type, joined, code), "join of %02x is %g", code, (double)joined);
        for (int at = 0; at < 8; at++) {
            unsigned char l = 0x5A, h = 0x6C;
            float x;
            put_bits(&l, at % 2, 4, code & 15);
            put_bits(&h, at / 2, 2, code >> 4);
            split->load(&l, at % 2, &h, at / 2, 1, &x);
            CHECK(is_code(type, x, code), "code %02x at %d is %g", code, at, (double)x);
        }
    }
}

/* Runs of all lengths and offsets up to a page that cannot be read, results between sentinels. */
static void check_run(sinter_data_type_t type, const dtype_split_t *split, int low_first,
                      int high_first, int n)
{
    enum { MOST = 200 };
    guarded_t l = guarded((size_t)(low_first + n + 1) / 2),
              h = guarded((size_t)(high_first + n + 3) / 4);
    float x[MOST + 2], low[MOST], high[MOST], joined[MOST];
    bool loads = true, joins = true;
    for (int i = 0; i < n + 2; i++) {
        x[i] = 99;
    }
    split->load(l.data, low_first, h.data, high_first, n, x + 1);
    for (int i = 0; i < n; i++) {
        low[i] = (float)bits_at(l.data, low_first + i, 4);
        high[i] = (float)bits_at(h.data, high_first + i, 2);
    }
    split->join(low, high, n, joined);
    split->join(low, high, n, low); /* in place */
    for (int i = 0; i < n; i++) {
        const unsigned code = (unsigned)bits_at(l.data, low_first + i, 4) |
                              (unsigned)bits_at(h.data, high_first + i, 2) << 4;
        loads = loads && is_code(type, x[i + 1], code);
        joins = joins && is_code(type, joined[i], code) && is_code(type, low[i], code);
    }
    CHECK(loads && x[0] == 99 && x[n + 1] == 99, "%s load of %d from %d and %d",
          dtype_traits(type)->name, n, low_first, high_first);
    CHECK(joins, "%s join of %d", dtype_traits(type)->name, n);
    unguard(&l), unguard(&h);
}

/* Random codes parted into planes with gaps; every bit of both planes, neighbours included. */
static void check_part(int n, int low_first, int high_first, int low_stride, int high_stride)
{
    enum { MOST = 400 };
    guarded_t codes = guarded((size_t)(n * 6 + 7) / 8),
              l = guarded((size_t)(low_first + n * low_stride) / 2 + 1),
              h = guarded((size_t)(high_first + n * high_stride) / 4 + 1);
    unsigned char low[MOST], high[MOST];
    memcpy(low, l.data, (size_t)(low_first + n * low_stride) / 2 + 1);
    memcpy(high, h.data, (size_t)(high_first + n * high_stride) / 4 + 1);
    for (int i = 0; i < n; i++) {
        put_bits(low, low_first + i * low_stride, 4, bits_at(codes.data, i, 6) & 15);
        put_bits(high, high_first + i * high_stride, 2, bits_at(codes.data, i, 6) >> 4);
    }
    dtype_part(codes.data, n, l.data, low_first, low_stride, h.data, high_first, high_stride);
    CHECK(memcmp(low, l.data, (size_t)(low_first + n * low_stride) / 2 + 1) == 0 &&
              memcmp(high, h.data, (size_t)(high_first + n * high_stride) / 4 + 1) == 0,
          "part %d at %d and %d, strides %d and %d", n, low_first, high_first, low_stride,
          high_stride);
    unguard(&codes), unguard(&l), unguard(&h);
}

static void check_parts(void)
{
    for (int n = 0; n < 80; n += n < 20 ? 1 : 7) {
        for (int first = 0; first < 8; first++) {
            check_part(n, first, first, 1, 1);
            check_part(n, first, 8 - first, 1, 1);
            check_part(n, first, first, 1, 3);
            check_part(n, first, first, 5, 1);
        }
    }
}

static void check_codec(sinter_data_type_t type, sinter_cpu_isa_t isa)
{
    static const int lengths[] = {0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 71, 200};
    const dtype_split_t *split = dtype_split(type, features_up_to(isa));
    CHECK(split != NULL, "%s has no planes at %s", dtype_traits(type)->name,
          sinter_cpu_isa_name(isa));
    if (split == NULL) {
        return;
    }
    check_codes(type, split);
    for (int low = 0; low < 4; low++) {
        for (int high = 0; high < 8; high++) {
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
                check_run(type, split, low, high, lengths[i]);
            }
        }
    }
}

static void check_codecs(void)
{
    sinter_cpu_isa_t top;
    if (cpu_isa_cap(sinter_isa_default, &top) != sinter_success) {
        exit(1);
    }
    for (int f = 0; f < 2; f++) {
        for (int isa = sinter_isa_generic; isa <= (int)top; isa++) {
            check_codec(formats[f], (sinter_cpu_isa_t)isa);
        }
    }
#define SINTER_DTYPE(value, name, cls, bits, ...)                                             \
    CHECK((dtype_split(sinter_##name, (features_t){NEEDS_NOTHING}) != NULL) == ((bits) == 6), \
          "only types of six bits split: " #name);
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
}

/* ---- graphs ---------------------------------------------------------------------------------- */

/* A dequantising op whose codes come whole or in two planes; the high plane is tensor codes +
 * HIGH. */
typedef struct dequant {
    const char *op; /* with attributes */
    int codes;
    const char *dims, *strides, *high_strides, *scales, *out;
} dequant_t;

typedef struct graph_case {
    const char *pattern;
    dequant_t dq[2];
    const char *rest; /* the ops behind them */
    int64_t unknown;  /* dims of this size are left open at compile; 0: none */
} graph_case_t;

enum { HIGH = 50, MAX_ID = 100, MAX_PORTS = 8 };

#define GROUPS(shape) "DynamicDequantize qtype=per_group group_shape=" shape
#define STATIC "Dequantize qtype=per_tensor scales=0.25"

static const graph_case_t cases[] = {
    /* alone: dense, gaps, the planes' inner dims differ, odd sizes */
    {"single", {{GROUPS("1,32"), 1, "24x64", "64x1", "64x1", "2:e8m0:24x2", "9:f32:24x64"}}, "", 0},
    {"single",
     {{GROUPS("1,32"), 1, "24x64", "64x1", "64x1", "2:e8m0:24x2", "9:bf16:24x64"}},
     "",
     24},
    {"single", {{GROUPS("1,32"), 1, "24x64", "64x1", "64x1", "2:e8m0:24x2", "9:f64:24x64"}}, "", 0},
    {"single",
     {{GROUPS("1,1,7"), 1, "3x5x21", "230x45x1", "111x22x1", "2:f32:3x5x3", "9:f32:3x5x21"}},
     "",
     0},
    {"single", {{GROUPS("4,1"), 1, "12x33", "1x12", "33x1", "2:f16:3x33", "9:f32:12x33"}}, "", 0},
    {"single", {{GROUPS("4,1"), 1, "12x33", "33x1", "1x13", "2:f16:3x33", "9:f16:12x33"}}, "", 0},
    {"single",
     {{GROUPS("1,300"), 1, "1x300", "300x1", "300x1", "2:bf16:1x1", "9:f32:1x300"}},
     "",
     0},
    {"single", {{STATIC, 1, "7x19", "19x1", "19x1", "", "9:f32:7x19"}}, "", 0},
    {"single", {{STATIC, 1, "1", "1", "1", "", "9:f32:1"}}, "", 0},
    {"single",
     {{"Dequantize qtype=per_channel axis=0 scales=0.5,2,-1", 1, "3x19", "20x1", "24x1", "",
       "9:f32:3x19"}},
     "",
     0},
    /* in chains, and where the chain broadcasts them */
    {"eltwise",
     {{STATIC, 1, "5x33", "33x1", "40x1", "", "9:f32:5x33"}},
     "Multiply 9:f32:5x33 10:f32:33 -> 11:f32:5x33; ReLU 11:f32:5x33 -> 12:bf16:5x33",
     0},
    {"eltwise",
     {{STATIC, 1, "1x33", "33x1", "33x1", "", "9:f32:1x33"}},
     "Add 9:f32:1x33 10:f32:4x33 -> 11:f32:4x33",
     0},
    {"eltwise",
     {{STATIC, 1, "4x1", "1x1", "1x1", "", "9:f32:4x1"}},
     "Add 10:f32:4x33 9:f32:4x1 -> 11:f32:4x33",
     0},
    {"eltwise",
     {{GROUPS("1,32"), 1, "5x32", "32x1", "32x1", "2:e8m0:5x1", "9:f32:5x32"},
      {GROUPS("1,32"), 3, "5x32", "32x1", "32x1", "4:e8m0:5x1", "10:f32:5x32"}},
     "Subtract 9:f32:5x32 10:f32:5x32 -> 11:f32:5x32",
     5},
    /* weights: K in groups of 32, K contiguous or not */
    {"matmul",
     {{GROUPS("1,32"), 1, "19x96", "96x1", "96x1", "2:e8m0:19x3", "9:f32:19x96"}},
     "MatMul transpose_b=1 10:f32:5x96 9:f32:19x96 -> 11:f32:5x19",
     0},
    {"matmul",
     {{GROUPS("32,1"), 1, "96x19", "19x1", "24x1", "2:e8m0:3x19", "9:f32:96x19"}},
     "MatMul 10:f32:40x96 9:f32:96x19 -> 11:f32:40x19",
     40},
    {"matmul",
     {{GROUPS("32,1"), 1, "96x19", "1x100", "1x96", "2:e8m0:3x19", "9:f32:96x19"}},
     "MatMul 10:f32:1x96 9:f32:96x19 -> 11:f32:1x19",
     0},
    {"matmul",
     {{GROUPS("32,1"), 1, "64x70", "1x64", "70x1", "2:e8m0:2x70", "9:f32:64x70"}},
     "MatMul 10:f32:33x64 9:f32:64x70 -> 11:f32:33x70",
     0},
    {"matmul",
     {{GROUPS("32,1"), 1, "64x70", "75x1", "1x77", "2:e8m0:2x70", "9:bf16:64x70"}},
     "MatMul 10:bf16:3x64 9:bf16:64x70 -> 11:bf16:3x70",
     0},
    {"matmul",
     {{GROUPS("1,32"), 1, "7x64", "64x1", "64x1", "2:e8m0:7x2", "9:f32:7x64"},
      {GROUPS("32,1"), 3, "64x11", "11x1", "11x1", "4:e8m0:2x11", "10:f32:64x11"}},
     "MatMul 9:f32:7x64 10:f32:64x11 -> 11:f32:7x11",
     7},
    {"matmul",
     {{STATIC, 1, "5x33x9", "297x9x1", "400x12x1", "", "9:f32:5x33x9"}},
     "MatMul 10:f32:5x4x33 9:f32:5x33x9 -> 11:f32:5x4x9; ReLU 11:f32:5x4x9 -> 12:f32:5x4x9",
     0},
    /* views between codes and matmul: both planes go through them */
    {"matmul",
     {{GROUPS("1,32"), 1, "19x64", "64x1", "64x1", "2:e8m0:19x2", "9:f32:19x64"}},
     "StaticTranspose order=1,0 9:f32:19x64 -> 10:f32:64x19; MatMul 11:f32:3x64 10:f32:64x19 -> "
     "12:f32:3x19",
     0},
    {"matmul",
     {{GROUPS("1,1,32"), 1, "4x6x32", "192x32x1", "192x32x1", "2:e8m0:4x6x1", "9:f32:4x6x32"}},
     "StaticReshape shape=24,32 special_zero=0 9:f32:4x6x32 -> 10:f32:24x32; MatMul transpose_b=1 "
     "11:f32:3x32 10:f32:24x32 -> 12:f32:3x24",
     0},
    {"matmul",
     {{STATIC, 1, "6x20", "20x1", "20x1", "", "9:f32:6x20"}},
     "StaticTranspose order=1,0 9:f32:6x20 -> 10:f32:20x6; MatMul 11:f32:3x20 10:f32:20x6 -> "
     "12:f32:3x6",
     0},
    /* attention: K and V in planes, in strided caches, the number of keys open */
    {"sdpa",
     {{GROUPS("1,1,1,32"), 1, "2x2x37x64", "6400x3200x64x1", "4736x2368x64x1", "2:e8m0:2x2x37x2",
       "9:f32:2x2x37x64"},
      {GROUPS("1,1,1,32"), 3, "2x2x37x32", "2368x1184x32x1", "3000x1500x32x1", "4:e8m0:2x2x37x1",
       "10:f32:2x2x37x32"}},
     "MatMul transpose_b=1 11:f32:2x2x5x64 9:f32:2x2x37x64 -> 12:f32:2x2x5x37; Multiply "
     "12:f32:2x2x5x37 13:f32:1 -> 14:f32:2x2x5x37; "
     "SoftMax axis=-1 14:f32:2x2x5x37 -> 15:f32:2x2x5x37; MatMul 15:f32:2x2x5x37 10:f32:2x2x37x32 "
     "-> 16:f32:2x2x5x32",
     37},
    {"sdpa",
     {{GROUPS("1,1,32,1"), 1, "1x3x64x9", "576x192x1x64", "576x192x1x64", "2:e8m0:1x3x2x9",
       "9:f16:1x3x64x9"},
      {GROUPS("1,1,3,1"), 3, "1x3x9x16", "432x144x16x1", "432x144x1x9", "4:f16:1x3x3x16",
       "10:f16:1x3x9x16"}},
     "MatMul 11:f16:1x3x1x64 9:f16:1x3x64x9 -> 12:f16:1x3x1x9; SoftMax axis=3 12:f16:1x3x1x9 -> "
     "15:f16:1x3x1x9; "
     "MatMul 15:f16:1x3x1x9 10:f16:1x3x9x16 -> 16:f16:1x3x1x16",
     0},
};

static void append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void append(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

static void write_spec(const graph_case_t *c, const char *type, bool split, char *text, size_t size)
{
    text[0] = '\0';
    for (int i = 0; i < 2 && c->dq[i].op != NULL; i++) {
        const dequant_t *d = &c->dq[i];
        append(text, size, "%s%s", i > 0 ? "; " : "", d->op);
        if (split) {
            append(text, size, " split_type=%s %d:u4:%s:%s %s %d:u2:%s:%s", type, d->codes, d->dims,
                   d->strides, d->scales, d->codes + HIGH, d->dims, d->high_strides);
        } else {
            append(text, size, " %d:%s:%s:%s %s", d->codes, type, d->dims, d->strides, d->scales);
        }
        append(text, size, " -> %s", d->out);
    }
    append(text, size, "%s%s", c->rest[0] != '\0' ? "; " : "", c->rest);
}

/* One buffer for each tensor id, filled when first asked for, ending where nothing can be read. */
typedef struct buffers {
    guarded_t mem[MAX_ID];
    size_t bytes[MAX_ID];
    sinter_logical_tensor_t lt[MAX_ID];
} buffers_t;

static void fill(sinter_data_type_t type, unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (type == sinter_e8m0) {
            data[i] = (unsigned char)(120 + rnd() % 12);
        }
    }
    for (size_t i = 0; type == sinter_f32 && i < bytes / 4; i++) {
        const float x = (float)(rnd() % 4097) / 2048 - 1;
        memcpy(data + 4 * i, &x, 4);
    }
    for (size_t i = 0; (type == sinter_f16 || type == sinter_bf16) && i < bytes / 2; i++) {
        const unsigned one = type == sinter_f16 ? 0x3800 : 0x3f00,
                       x = one | rnd() % 0x400 | (rnd() % 2) << 15;
        data[2 * i] = (unsigned char)x;
        data[2 * i + 1] = (unsigned char)(x >> 8);
    }
}

static unsigned char *buffer(buffers_t *b, const sinter_logical_tensor_t *lt)
{
    guarded_t *mem = &b->mem[lt->id];
    if (mem->map == NULL) {
        size_t bytes = 0;
        CHECK(sinter_logical_tensor_get_bytes(lt, &bytes) == sinter_success, "%s",
              sinter_last_error_message());
        *mem = guarded(bytes);
        fill(lt->data_type, mem->data, bytes);
        b->bytes[lt->id] = bytes;
        b->lt[lt->id] = *lt;
    }
    return mem->data;
}

static void buffers_free(buffers_t *b)
{
    for (int i = 0; i < MAX_ID; i++) {
        if (b->mem[i].map != NULL) {
            unguard(&b->mem[i]);
        }
    }
}

/* The codes of both planes into one tensor, which lies in memory as the low plane does. */
static void pack_codes(const buffers_t *planes, int codes, sinter_data_type_t type,
                       buffers_t *whole)
{
    const sinter_logical_tensor_t *low = &planes->lt[codes], *high = &planes->lt[codes + HIGH];
    sinter_logical_tensor_t lt = *low;
    int64_t n = 1;
    lt.data_type = type;
    unsigned char *to = buffer(whole, &lt);
    for (int d = 0; d < lt.ndims; d++) {
        n *= lt.dims[d];
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t l = 0, h = 0, rest = i;
        for (int d = lt.ndims - 1; d >= 0; rest /= lt.dims[d], d--) {
            l += rest % lt.dims[d] * low->strides[d];
            h += rest % lt.dims[d] * high->strides[d];
        }
        put_bits(to, l, 6,
                 (unsigned)bits_at(planes->mem[codes].data, l, 4) |
                     (unsigned)bits_at(planes->mem[codes + HIGH].data, h, 2) << 4);
    }
}

typedef struct ports {
    size_t n;
    sinter_logical_tensor_t lt[MAX_PORTS];
    sinter_tensor_t *tensor[MAX_PORTS];
} ports_t;

static void make_tensors(ports_t *p, buffers_t *b)
{
    for (size_t i = 0; i < p->n; i++) {
        const unsigned char *data = buffer(b, &p->lt[i]);
        CHECK(sinter_tensor_create(&p->tensor[i], NULL, &p->lt[i], (void *)data,
                                   SINTER_BYTES_TRUSTED) == sinter_success,
              "%s", sinter_last_error_message());
    }
}

static void destroy_tensors(ports_t *p)
{
    for (size_t i = 0; i < p->n; i++) {
        sinter_tensor_destroy(&p->tensor[i]);
    }
}

static void leave_open(ports_t *p, int64_t size)
{
    for (size_t i = 0; i < p->n; i++) {
        for (int d = 0; d < p->lt[i].ndims; d++) {
            if (size > 0 && p->lt[i].dims[d] == size) {
                p->lt[i].dims[d] = SINTER_UNKNOWN_DIM;
                p->lt[i].layout_type = sinter_layout_type_any;
            }
        }
    }
}

/* The one partition, compiled with dims of size `unknown` left open, over the buffers. */
static void execute(const char *want, sinter_partition_t *partition, int64_t unknown,
                    sinter_fpmath_mode_t mode, buffers_t *b)
{
    sinter_compiled_partition_t *compiled = NULL;
    sinter_stream_t *stream = NULL;
    ports_t in = {0}, out = {0};
    const char *pattern = "";
    sinter_partition_get_pattern(partition, &pattern);
    CHECK(strcmp(pattern, want) == 0, "pattern %s, not %s", pattern, want);
    sinter_partition_get_input_num(partition, &in.n);
    sinter_partition_get_output_num(partition, &out.n);
    sinter_partition_get_inputs(partition, in.n, in.lt);
    sinter_partition_get_outputs(partition, out.n, out.lt);
    make_tensors(&in, b);
    make_tensors(&out, b);
    for (size_t i = 0; i < out.n; i++) {
        memset(b->mem[out.lt[i].id].data, 0xEE, b->bytes[out.lt[i].id]); /* gaps count too */
    }
    leave_open(&in, unknown);
    leave_open(&out, unknown);
    sinter_partition_set_fpmath_mode(partition, mode, 0);
    CHECK(sinter_partition_compile(partition, NULL, in.n, in.lt, out.n, out.lt, &compiled) ==
              sinter_success,
          "%s: %s", want, sinter_last_error_message());
    CHECK(sinter_stream_create(&stream, NULL,
                               &(sinter_stream_desc_t){.size = sizeof(sinter_stream_desc_t),
                                                       .threads = 2,
                                                       .all_threads = 1}) == sinter_success,
          "stream");
    if (compiled != NULL) {
        CHECK(sinter_compiled_partition_execute(compiled, stream, in.n,
                                                (const sinter_tensor_t *const *)in.tensor, out.n,
                                                out.tensor, NULL, 0) == sinter_success,
              "%s", sinter_last_error_message());
    }
    destroy_tensors(&in);
    destroy_tensors(&out);
    sinter_stream_destroy(&stream);
    sinter_compiled_partition_destroy(&compiled);
}

static void run_graph(const char *pattern, const char *spec, int64_t unknown,
                      sinter_fpmath_mode_t mode, buffers_t *b)
{
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partition = NULL;
    size_t n = 0;
    const sinter_status_t status = spec_graph(&graph, NULL, spec);
    CHECK(status == sinter_success, "%s: %s", spec, sinter_last_error_message());
    if (status == sinter_success &&
        sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success) {
        sinter_graph_get_partition_num(graph, &n);
        CHECK(n == 1, "%s: %zu partitions", spec, n);
    }
    if (n == 1 && sinter_graph_get_partitions(graph, 1, &partition) == sinter_success) {
        execute(pattern, partition, unknown, mode, b);
        sinter_partition_destroy(&partition);
    }
    sinter_graph_destroy(&graph);
}

/* Scales and activations are the same in both graphs. */
static void copy_shared(const buffers_t *from, buffers_t *to)
{
    for (int id = 0; id < HIGH; id++) {
        if (from->mem[id].map != NULL && to->mem[id].map == NULL) {
            memcpy(buffer(to, &from->lt[id]), from->mem[id].data, from->bytes[id]);
        }
    }
}

static void check_graph(const graph_case_t *c, sinter_data_type_t type, int64_t unknown,
                        sinter_fpmath_mode_t mode)
{
    static buffers_t planes, whole;
    char spec[1024];
    planes = whole = (buffers_t){0};
    write_spec(c, dtype_traits(type)->name, true, spec, sizeof spec);
    run_graph(c->pattern, spec, unknown, mode, &planes);
    if (planes.mem[c->dq[0].codes].map == NULL) {
        return; /* did not run, which has been counted */
    }
    for (int i = 0; i < 2 && c->dq[i].op != NULL; i++) {
        pack_codes(&planes, c->dq[i].codes, type, &whole);
    }
    copy_shared(&planes, &whole);
    write_spec(c, dtype_traits(type)->name, false, spec, sizeof spec);
    run_graph(c->pattern, spec, unknown, mode, &whole);
    for (int id = 0; id < HIGH; id++) {
        const bool codes = id == c->dq[0].codes || id == c->dq[1].codes;
        if (planes.mem[id].map != NULL && !codes) {
            CHECK(memcmp(planes.mem[id].data, whole.mem[id].data, planes.bytes[id]) == 0,
                  "tensor %d of %s", id, spec);
        }
    }
    buffers_free(&planes);
    buffers_free(&whole);
}

static void check_graphs(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int f = 0; f < 2; f++) {
            check_graph(&cases[i], formats[f], 0, sinter_fpmath_mode_strict);
            check_graph(&cases[i], formats[f], 0, sinter_fpmath_mode_bf16);
            if (cases[i].unknown > 0) {
                check_graph(&cases[i], formats[f], cases[i].unknown, sinter_fpmath_mode_strict);
            }
        }
    }
}

/* ---- quantising into planes ------------------------------------------------------------------ */

typedef struct quant_case {
    const char *pattern, *before; /* the ops above */
    const char *op, *in;
    const char *dims, *strides, *high_strides,
        *scales; /* low plane 1, high plane 1 + HIGH, whole codes 3 */
    int64_t unknown;
} quant_case_t;

#define MX "DynamicQuantize quantization_kind=dynamic_mx "

static const quant_case_t quant_cases[] = {
    {"single", "", MX, "8:f32:24x64", "24x64", "64x1", "64x1", "2:e8m0:24x2", 24},
    {"single", "", MX, "8:bf16:24x64", "24x64", "66x1", "68x1", "2:e8m0:24x2", 0},
    {"single", "", MX, "8:f32:24x64", "24x64", "67x1", "65x1", "2:e8m0:24x2", 0},
    {"single", "", MX, "8:f32:24x64", "24x64", "1x24", "64x1", "2:e8m0:24x2", 0},
    {"single", "", MX, "8:f32:24x64", "24x64", "64x1", "1x25", "2:e8m0:24x2", 0},
    {"single", "", MX "qtype=per_group axis=0 groups=3", "8:f16:96x35", "96x35", "35x1", "36x1",
     "2:e8m0:3x35", 0},
    {"single", "", MX "qtype=per_group group_shape=4,4", "8:f32:12x20", "12x20", "20x1", "20x1",
     "2:e8m0:3x5", 0},
    {"single", "", "DynamicQuantize quantization_kind=dynamic_mx_rceil", "8:f32:3x5x32", "3x5x32",
     "200x40x1", "160x32x1", "2:e8m0:3x5x1", 5},
    {"single", "", "DynamicQuantize quantization_kind=dynamic_symmetric", "8:f32:5x33", "5x33",
     "33x1", "33x1", "2:f32:1", 0},
    {"single", "", "DynamicQuantize quantization_kind=dynamic_symmetric", "8:f32:70001", "70001",
     "1", "1", "2:f16:1", 0},
    {"single", "", "DynamicQuantize quantization_kind=dynamic_symmetric", "8:f32:250x402",
     "250x402", "403x1", "402x1", "2:f16:1", 0},
    {"single", "", "DynamicQuantize quantization_kind=dynamic_symmetric qtype=per_channel axis=0",
     "8:f32:7x2050", "7x2050", "2050x1", "2050x1", "2:bf16:7", 7},
    {"matmul", "MatMul 9:f32:7x40 10:f32:40x96 -> 8:f32:7x96; ", MX, "8:f32:7x96", "7x96", "96x1",
     "100x1", "2:e8m0:7x3", 7},
    {"matmul", "MatMul 9:f32:7x40 10:f32:40x96 -> 8:f32:7x96; ", MX, "8:f32:7x96", "7x96", "97x1",
     "99x1", "2:e8m0:7x3", 0},
    {"matmul", "MatMul 9:f32:64x40 10:f32:40x96 -> 8:f32:64x96; ",
     MX "qtype=per_group axis=0 groups=2", "8:f32:64x96", "64x96", "1x64", "96x1", "2:e8m0:2x96",
     0},
    {"dynamic-quantize",
     "Add 9:f32:3x5x64 10:f32:64 -> 11:f32:3x5x64; ReLU 11:f32:3x5x64 -> 8:f32:3x5x64; ", MX,
     "8:f32:3x5x64", "3x5x64", "320x64x1", "320x64x1", "2:e8m0:3x5x2", 5},
    {"dynamic-quantize",
     "Add 9:f32:3x5x64 10:f32:64 -> 11:f32:3x5x64; ReLU 11:f32:3x5x64 -> 8:f32:3x5x64; ", MX,
     "8:f32:3x5x64", "3x5x64", "330x66x1", "345x69x1", "2:e8m0:3x5x2", 0},
    {"sdpa",
     "MatMul transpose_b=1 9:f32:2x5x16 10:f32:2x9x16 -> 11:f32:2x5x9; SoftMax axis=-1 "
     "11:f32:2x5x9 -> 12:f32:2x5x9; "
     "MatMul 12:f32:2x5x9 13:f32:2x9x64 -> 8:f32:2x5x64; ",
     MX, "8:f32:2x5x64", "2x5x64", "400x70x1", "320x64x1", "2:e8m0:2x5x2", 5},
};

/* Every bit of a plane: what its gaps had before, and the codes of the whole tensor. */
static bool plane_holds(const buffers_t *b, int id, int shift, int bits, const buffers_t *whole)
{
    const sinter_logical_tensor_t *lt = &b->lt[id], *codes = &whole->lt[3];
    unsigned char *want = malloc(b->bytes[id]);
    int64_t n = 1;
    memset(want, 0xEE, b->bytes[id]);
    for (int d = 0; d < lt->ndims; d++) {
        n *= lt->dims[d];
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, from = 0, rest = i;
        for (int d = lt->ndims - 1; d >= 0; rest /= lt->dims[d], d--) {
            at += rest % lt->dims[d] * lt->strides[d];
            from += rest % lt->dims[d] * codes->strides[d];
        }
        put_bits(want, at, bits,
                 bits_at(whole->mem[3].data, from, 6) >> shift & ((1u << bits) - 1));
    }
    const bool same = memcmp(want, b->mem[id].data, b->bytes[id]) == 0;
    free(want);
    return same;
}

static void check_quantised(const quant_case_t *c, sinter_data_type_t type, int64_t unknown)
{
    static buffers_t planes, whole;
    const char *name = dtype_traits(type)->name;
    char spec[1024];
    planes = whole = (buffers_t){0};
    snprintf(spec, sizeof spec, "%s%s split_type=%s %s -> 1:u4:%s:%s %s %d:u2:%s:%s", c->before,
             c->op, name, c->in, c->dims, c->strides, c->scales, 1 + HIGH, c->dims,
             c->high_strides);
    run_graph(c->pattern, spec, unknown, sinter_fpmath_mode_strict, &planes);
    if (planes.mem[1].map == NULL) {
        return; /* did not run, which has been counted */
    }
    for (int id = 8; id <= 13; id++) {
        if (planes.mem[id].map != NULL) {
            memcpy(buffer(&whole, &planes.lt[id]), planes.mem[id].data, planes.bytes[id]);
        }
    }
    snprintf(spec, sizeof spec, "%s%s %s -> 3:%s:%s %s", c->before, c->op, c->in, name, c->dims,
             c->scales);
    run_graph(c->pattern, spec, unknown, sinter_fpmath_mode_strict, &whole);
    CHECK(planes.bytes[2] == whole.bytes[2] &&
              memcmp(planes.mem[2].data, whole.mem[2].data, whole.bytes[2]) == 0,
          "scales of %s", spec);
    CHECK(plane_holds(&planes, 1, 0, 4, &whole), "low plane of %s, strides %s", spec, c->strides);
    CHECK(plane_holds(&planes, 1 + HIGH, 4, 2, &whole), "high plane of %s, strides %s", spec,
          c->high_strides);
    buffers_free(&planes);
    buffers_free(&whole);
}

static void check_quantising(void)
{
    for (size_t i = 0; i < sizeof quant_cases / sizeof *quant_cases; i++) {
        for (int f = 0; f < 2; f++) {
            check_quantised(&quant_cases[i], formats[f], 0);
            if (quant_cases[i].unknown > 0) {
                check_quantised(&quant_cases[i], formats[f], quant_cases[i].unknown);
            }
        }
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void check_refusals(void)
{
    static const struct {
        const char *spec;
        sinter_status_t status;
        const char *message; /* a part of it */
    } rows[] = {
        {"Dequantize scales=1 split_type=f6_e3m2 1:u4:4x8 2:u2:4x8 -> 3:f32:4x8", sinter_success,
         ""},
        {"Dequantize scales=1 split_type=f6_e3m2 1:u4:?x8 2:u2:4x? -> 3:f32:*", sinter_success, ""},
        {"Dequantize scales=1 split_type=f6_e3m2 1:u4:* 2:u2:4x8 -> 3:f32:*", sinter_success, ""},
        {"DynamicDequantize split_type=f6_e2m3 1:u4:4x8 2:f32:1 3:u2:4x8 -> 4:f32:4x8",
         sinter_success, ""},
        /* the word */
        {"Dequantize scales=1 split_type=f6 1:u4:4x8 2:u2:4x8 -> 3:f32:4x8",
         sinter_invalid_graph_op,
         "op 100 (Dequantize): attribute split_type is \"f6\", allowed are f6_e3m2|f6_e2m3"},
        {"DynamicDequantize split_type=f8_e4m3 1:u4:4x8 2:f32:1 3:u2:4x8 -> 4:f32:4x8",
         sinter_invalid_graph_op,
         "op 100 (DynamicDequantize): attribute split_type is \"f8_e4m3\", allowed are "
         "f6_e3m2|f6_e2m3"},
        {"Quantize scales=1 split_type=f6_e3m2 1:f32:4x8 -> 3:f6_e3m2:4x8", sinter_invalid_graph_op,
         "attribute split_type is unknown to this op"},
        {"TypeCast split_type=f6_e3m2 1:u4:4x8 -> 3:f32:4x8", sinter_invalid_graph_op,
         "attribute split_type is unknown to this op"},
        {"DynamicQuantize quantization_kind=dynamic_mx split_type=f6_e3m2 1:f32:4x32 -> 2:u4:4x32 "
         "3:e8m0:4x1 4:u2:4x32",
         sinter_success, ""},
        {"DynamicQuantize quantization_kind=dynamic_mx split_type=f6_e3m2 1:f32:4x32 -> 2:u4:4x32 "
         "3:e8m0:4x1",
         sinter_invalid_graph_op,
         "op 100 (DynamicQuantize): split_type f6_e3m2: the high plane of tensor 2 is missing: it "
         "is the last output, a u2 tensor"},
        {"DynamicQuantize quantization_kind=dynamic_mx 1:f32:4x32 -> 2:u4:4x32 3:e8m0:4x1 "
         "4:u2:4x32",
         sinter_invalid_graph_op,
         "op 100 (DynamicQuantize): output 2, tensor 4, is u2, the high plane of split codes, but "
         "attribute split_type is missing"},
        {"DynamicQuantize quantization_kind=dynamic_mx split_type=f6_e3m2 1:f32:4x32 -> 2:s8:4x32 "
         "3:e8m0:4x1 4:u2:4x32",
         sinter_invalid_data_type,
         "split_type f6_e3m2: the low plane, tensor 2, must be u4, not s8"},
        {"DynamicQuantize quantization_kind=dynamic_mx split_type=f6_e3m2 1:f32:4x32 -> 2:u4:4x32 "
         "3:e8m0:4x1 4:u2:4x31",
         sinter_invalid_shape, "tensor 4"},
        {"DynamicQuantize quantization_kind=dynamic_asymmetric split_type=f6_e3m2 1:f32:4x32 -> "
         "2:u4:4x32 3:f32:1 4:u2:4x32",
         sinter_invalid_graph_op,
         "quantization_kind dynamic_asymmetric needs an output for its zero points"},
        {"DynamicQuantize quantization_kind=dynamic_nv split_type=f6_e3m2 1:f32:4x32 -> 2:u4:4x32 "
         "3:f8_e4m3:4x2 4:u2:4x32",
         sinter_invalid_data_type,
         "quantization_kind dynamic_nv does not make f6_e3m2, the type of tensor 2"},
        {"DynamicQuantize split_type=f6_e3m2 1:f32:4x32 5:f32:1 -> 2:u4:4x32 3:f32:1 4:u2:4x32",
         sinter_invalid_graph_op,
         "op 100 (DynamicQuantize): split_type f6_e3m2 needs a quantization_kind that computes its "
         "scales"},
        /* one without the other */
        {"Dequantize scales=1 split_type=f6_e3m2 1:u4:4x8 -> 3:f32:4x8", sinter_invalid_graph_op,
         "op 100 (Dequantize): split_type f6_e3m2: the high plane of tensor 1 is missing: it is "
         "the last input, a u2 tensor"},
        {"DynamicDequantize split_type=f6_e3m2 1:u4:4x8 2:f32:1 -> 4:f32:4x8",
         sinter_invalid_graph_op,
         "op 100 (DynamicDequantize): split_type f6_e3m2: the high plane of tensor 1 is missing"},
        {"Dequantize scales=1 1:u4:4x8 2:u2:4x8 -> 3:f32:4x8", sinter_invalid_graph_op,
         "op 100 (Dequantize): input 1, tensor 2, is u2, the high plane of split codes, but "
         "attribute split_type is missing"},
        {"DynamicDequantize 1:u4:4x8 2:f32:1 3:u2:4x8 -> 4:f32:4x8", sinter_invalid_graph_op,
         "op 100 (DynamicDequantize): input 2, tensor 3, is u2, the high plane of split codes, but "
         "attribute split_type is missing"},
        /* types */
        {"Dequantize scales=1 split_type=f6_e3m2 1:s4:4x8 2:u2:4x8 -> 3:f32:4x8",
         sinter_invalid_data_type,
         "op 100 (Dequantize): split_type f6_e3m2: the low plane, tensor 1, must be u4, not s4"},
        {"Dequantize scales=1 split_type=f6_e3m2 1:f6_e3m2:4x8 2:u2:4x8 -> 3:f32:4x8",
         sinter_invalid_data_type, "must be u4, not f6_e3m2"},
        {"Dequantize scales=1 split_type=f6_e3m2 1:u4:4x8 2:u8:4x8 -> 3:f32:4x8",
         sinter_invalid_data_type,
         "op 100 (Dequantize): input 1, tensor 2: data type u8 is not allowed here"},
        {"DynamicDequantize split_type=f6_e3m2 1:u4:4x8 2:f32:1 3:u4:4x8 -> 4:f32:4x8",
         sinter_invalid_data_type,
         "op 100 (DynamicDequantize): split_type f6_e3m2: the last input, tensor 3, must be the "
         "high plane, u2, not u4"},
        {"DynamicDequantize split_type=f6_e3m2 1:u4:4x8 2:f32:1 3:u4:1 4:u2:4x8 -> 5:f32:4x8",
         sinter_invalid_graph_op, "op 100 (DynamicDequantize): 4 inputs given, 2 to 3 expected"},
        {"Dequantize scales=1 zps=1 split_type=f6_e3m2 1:u4:4x8 2:u2:4x8 -> 3:f32:4x8",
         sinter_invalid_graph_op, "zero points need integer data and tensor 1 is f6_e3m2"},
        {"Dequantize scales=1 1:u2:4x8 -> 3:f32:4x8", sinter_invalid_data_type,
         "input 0, tensor 1: data type u2 is not allowed here"},
        {"DynamicDequantize 1:u4:4x8 2:f32:1 3:u2:1 -> 4:f32:4x8", sinter_invalid_graph_op,
         "attribute split_type is missing"},
        {"DynamicQuantize 1:f32:4x8 2:f32:1 3:u2:1 -> 4:u4:4x8", sinter_invalid_data_type,
         "input 2, tensor 3: data type u2 is not allowed here"},
        /* shapes and counts */
        {"Dequantize scales=1 split_type=f6_e3m2 1:u4:4x8 2:u2:4x9 -> 3:f32:4x8",
         sinter_invalid_shape,
         "op 100 (Dequantize): split_type f6_e3m2: the high plane, tensor 2, has 9 elements along "
         "dimension 1, the low plane, tensor 1, "
         "has 8"},
        {"Dequantize scales=1 split_type=f6_e3m2 1:u4:4x8 2:u2:1x8 -> 3:f32:4x8",
         sinter_invalid_shape, "has 1 elements along dimension 0"},
        {"Dequantize scales=1 split_type=f6_e3m2 1:u4:4x8 2:u2:32 -> 3:f32:4x8",
         sinter_invalid_shape,
         "op 100 (Dequantize): split_type f6_e3m2: the high plane, tensor 2, has 1 dimensions, the "
         "low plane, tensor 1, has 2"},
        {"Dequantize scales=1 split_type=f6_e3m2 1:u4:4x8 2:u2:4x8:16x2 -> 3:f32:4x8",
         sinter_invalid_shape, "tensor 2: packed type u2 needs a dimension of stride 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sinter_graph_t *graph;
        const sinter_status_t status = spec_graph(&graph, NULL, rows[i].spec);
        const char *message = status == sinter_success ? "" : sinter_last_error_message();
        CHECK(status == rows[i].status && strstr(message, rows[i].message) != NULL,
              "%s: status %d, %s", rows[i].spec, (int)status, message);
        sinter_graph_destroy(&graph);
    }
}

/* ---- planes that turn out to differ ---------------------------------------------------------- */

static void set_rows(sinter_logical_tensor_t *lt, int64_t rows)
{
    lt->layout_type =
        rows == SINTER_UNKNOWN_DIM ? sinter_layout_type_any : sinter_layout_type_strided;
    lt->dims[0] = rows;
    lt->strides[0] = lt->ndims == 2 ? lt->dims[1] : 1;
    lt->strides[1] = 1;
}

/* The number of rows is open at compile; what the tensors have then differs: 4 in all, but
 * high_rows in the high plane. */
static sinter_status_t execute_rows(const char *spec, int64_t high_rows)
{
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partition = NULL;
    sinter_compiled_partition_t *compiled = NULL;
    sinter_stream_t *stream = NULL;
    buffers_t b = {0};
    ports_t in = {0}, out = {0};
    CHECK(spec_graph(&graph, NULL, spec) == sinter_success &&
              sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success &&
              sinter_graph_get_partitions(graph, 1, &partition) == sinter_success,
          "%s", sinter_last_error_message());
    sinter_partition_get_input_num(partition, &in.n);
    sinter_partition_get_output_num(partition, &out.n);
    sinter_partition_get_inputs(partition, in.n, in.lt);
    sinter_partition_get_outputs(partition, out.n, out.lt);
    CHECK(sinter_partition_compile(partition, NULL, in.n, in.lt, out.n, out.lt, &compiled) ==
              sinter_success,
          "%s", sinter_last_error_message());
    for (size_t i = 0; i < in.n; i++) {
        if (in.lt[i].dims[0] == SINTER_UNKNOWN_DIM) {
            set_rows(&in.lt[i], in.lt[i].data_type == sinter_u2 ? high_rows : 4);
        }
    }
    out.lt[0].ndims = 2;
    out.lt[0].dims[1] = 64;
    set_rows(&out.lt[0], 4);
    make_tensors(&in, &b);
    make_tensors(&out, &b);
    CHECK(sinter_stream_create(&stream, NULL, NULL) == sinter_success, "stream");
    const sinter_status_t status = sinter_compiled_partition_execute(
        compiled, stream, in.n, (const sinter_tensor_t *const *)in.tensor, out.n, out.tensor, NULL,
        0);
    destroy_tensors(&in);
    destroy_tensors(&out);
    buffers_free(&b);
    sinter_stream_destroy(&stream);
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
    return status;
}

static void check_late_rows(void)
{
    static const char *const specs[] = {
        "Dequantize scales=1 split_type=f6_e3m2 1:u4:?x64 2:u2:?x64 -> 3:f32:?x64",
        "Dequantize scales=1 split_type=f6_e3m2 1:u4:?x64 2:u2:?x64 -> 3:f32:?x64; MatMul "
        "3:f32:?x64 4:f32:64x64 -> 5:f32:?x64"};
    for (int i = 0; i < 2; i++) {
        CHECK(execute_rows(specs[i], 4) == sinter_success, "%s: %s", specs[i],
              sinter_last_error_message());
        const int64_t wrong[] = {1, 3, 5};
        for (int k = 0; k < 3; k++) {
            CHECK(execute_rows(specs[i], wrong[k]) == sinter_invalid_shape &&
                      strstr(sinter_last_error_message(), "high plane") != NULL,
                  "%lld rows: %s", (long long)wrong[k], sinter_last_error_message());
        }
    }
}

int main(void)
{
    check_late_rows();
    check_refusals();
    check_u2_loads();
    check_u2_stores();
    check_codecs();
    check_parts();
    check_graphs();
    check_quantising();
    return check_finish();
}
