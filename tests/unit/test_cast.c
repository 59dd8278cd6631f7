/* Conversions and narrow types end to end, through the public API: every ordered pair of types
 * by TypeCast, by all codes; Quantize and Dequantize of every code type; Reorder of every type;
 * arithmetic on 8-bit floats, fused and op by op, against the oracle; FNUZ by its literal
 * values. A caller's FTZ/DAZ changes nothing. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "../../tools/graph_runner/check.h"
#include "check.h"
#include "dtypes.h"
#include "exec.h"
#include "test_decode.h"

static const sinter_data_type_t types[] = {
#define SINTER_DTYPE(value, name, ...) sinter_##name,
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
};
enum { TYPES = sizeof types / sizeof *types, N = 1031 };

static const char *name_of(sinter_data_type_t type)
{
    return gr_dtype(type)->name;
}

static void set_flush(int on)
{
#if defined(__SSE__)
    _mm_setcsr(on ? _mm_getcsr() | 0x8040 : _mm_getcsr() & ~0x8040u);
#else
    (void)on;
#endif
}

/* ---- TypeCast -------------------------------------------------------------------------------- */

/* A tie of a format of few digits, or a neighbour: whoever rounds to more digits first rounds it to
 * the wrong side. */
static double near_tie(void)
{
    const double tie = ldexp((double)(2 * (rnd() % 4096) + 1), (int)(rnd() % 19));
    return (rnd() % 2 == 0 ? 1 : -1) * (tie + (double)(rnd() % 3) - 1);
}

/* All codes of the narrow types; numbers of all sizes, specials and subnormals of the wide ones.
 * s64 stays where a double is exact. */
static void fill_codes(sinter_data_type_t type, unsigned char *bytes)
{
    const int bits = gr_dtype(type)->bits;
    for (int i = 0; i < N * bits / 8 + 1; i++) {
        bytes[i] = (unsigned char)(bits == 8 ? i : (int)rnd());
    }
    static const double special[] = {0,        -0.0,      INFINITY, -INFINITY, NAN, 0x1p-127,
                                     0x1p-149, -0x1p-140, 1,        -1,        448, 464,
                                     465,      61440,     1e30,     0.5,       2.5};
    for (int i = 0; i < N && bits >= 32; i++) {
        const int exponent = (int)(rnd() % (i % 3 == 0 ? 280 : 40)) - (i % 3 == 0 ? 140 : 20),
                  n_special = sizeof special / sizeof *special;
        const double x = i < n_special ? special[i]
                         : i % 3 == 1  ? near_tie()
                                       : ldexp((double)rnd() / 0x1p31 * 2 - 1, exponent);
        orc_encode(type, bytes, i,
                   type == sinter_s64 ? fmax(-0x1p52, fmin(0x1p52, isnan(x) ? 0 : x)) : x);
    }
}

static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && !signbit(a) == !signbit(b);
}

static void check_pair(sinter_data_type_t from, sinter_data_type_t to)
{
    unsigned char src[N * 8 + 8], got[N * 8 + 8], flushed[N * 8 + 8], want[N * 8 + 8] = {0};
    const size_t bytes = ((size_t)N * (size_t)gr_dtype(to)->bits + 7) / 8;
    gr_error_t err = {{0}, 0};
    memset(got, 0, sizeof got);
    memset(flushed, 0, sizeof flushed);
    fill_codes(from, src);
    const int failed = gr_cast(from, src, to, got, N, &err);
    set_flush(1);
    const int failed_too = gr_cast(from, src, to, flushed, N, &err);
    set_flush(0);
    CHECK(!failed && !failed_too, "%s to %s: %s", name_of(from), name_of(to), err.text);
    CHECK(memcmp(got, flushed, bytes) == 0, "%s to %s changes with FTZ/DAZ", name_of(from),
          name_of(to));
    for (int64_t i = 0; i < N; i++) {
        orc_encode(to, want, i, orc_decode(from, src, i));
        const double w = orc_decode(to, want, i), g = orc_decode(to, got, i);
        CHECK(same(w, g), "%s to %s: %a becomes %a, not %a", name_of(from), name_of(to),
              orc_decode(from, src, i), g, w);
    }
}

/* ---- models in text -------------------------------------------------------------------------- */

static void run_once(const char *json, int no_fuse, const char *what)
{
    gr_error_t err = {{0}, 0};
    gr_options_t opt = gr_default_options;
    model_t model = {0};
    gr_exec_t x;
    opt.no_fuse = no_fuse;
    opt.threads = 1;
    if (model_load_text(&model, "text", json, strlen(json), &err)) {
        CHECK(false, "%s: %s", what, err.text);
    } else {
        const int failed = gr_exec_open(&x, &model, &opt, &err) || gr_exec_compile(&x, &err) ||
                           gr_exec_inputs(&x, &err) || gr_exec_run(&x, &err) || gr_check(&x, &err);
        CHECK(!failed, "%s%s: %s", what, no_fuse ? ", op by op" : "", err.text);
        gr_exec_close(&x);
    }
    model_free(&model);
}

/* Runs the graph with types a and b in the places of @ and #. */
static void run_text(const char *format, const char *a, const char *b)
{
    char json[4096], what[128];
    size_t n = 0;
    for (const char *p = format; *p && n + 16 < sizeof json; p++) {
        n += (size_t)snprintf(json + n, sizeof json - n,
                              *p == '@'   ? "%s"
                              : *p == '#' ? "%s"
                                          : "%.1s",
                              *p == '@'   ? a
                              : *p == '#' ? b
                                          : p);
    }
    for (int no_fuse = 0; no_fuse < 2; no_fuse++) {
        snprintf(what, sizeof what, "%.60s... with %s, %s", format + 12, a, b);
        run_once(json, no_fuse, what);
    }
}

#define AND ", "
#define GRAPH(ops) "{\"graph\": [" ops "]}"
#define T(id, type, shape) "{\"id\": " #id ", \"dtype\": \"" type "\", \"shape\": " shape "}"
#define OP(id, kind, attrs, in, out)                                                     \
    "{\"kind\": \"" kind "\", \"id\": " #id ", \"attrs\": {" attrs "}, \"inputs\": [" in \
    "], \"outputs\": [" out "]}"
#define SCALES "\"scales\": {\"type\": \"f32[]\", \"value\": [0.25]}"
#define LAST "\"axis\": {\"type\": \"s64\", \"value\": -1}"

static const char quantize[] =
    GRAPH(OP(0, "Quantize", SCALES, T(0, "#", "[3, 37]"), T(1, "@", "[3, 37]")));
static const char dequantize[] =
    GRAPH(OP(0, "Dequantize", SCALES, T(0, "@", "[3, 37]"), T(1, "#", "[3, 37]")));
/* Rows that become columns, at an odd width. */
static const char reorder[] =
    GRAPH(OP(0, "Reorder", "", T(0, "@", "[5, 12]"), T(1, "@", "[5, 12], \"stride\": [1, 5]")));

/* What lies between two ops is rounded to the 8-bit type, fused or not. */
/* clang-format off */
static const char *const arithmetic[] = {
    GRAPH(OP(0, "Add", "", T(0, "@", "[4, 33]") AND T(1, "#", "[4, 33]"), T(2, "@", "[4, 33]"))
          AND OP(1, "Tanh", "", T(2, "@", "[4, 33]"), T(3, "#", "[4, 33]"))
          AND OP(2, "Multiply", "", T(3, "#", "[4, 33]") AND T(4, "@", "[33]"),
                 T(5, "f32", "[4, 33]"))),
    GRAPH(OP(0, "MatMul", "", T(0, "@", "[5, 24]") AND T(1, "#", "[24, 18]"), T(2, "@", "[5, 18]"))
          AND OP(1, "ReLU", "", T(2, "@", "[5, 18]"), T(3, "#", "[5, 18]"))),
    GRAPH(OP(0, "MatMul", "", T(0, "@", "[5, 24]") AND T(1, "@", "[24, 18]"), T(2, "#", "[5, 18]"))
          AND OP(1, "BiasAdd", "", T(2, "#", "[5, 18]") AND T(3, "f32", "[18]"),
                 T(4, "@", "[5, 18]"))
          AND OP(2, "TypeCast", "", T(4, "@", "[5, 18]"), T(5, "f32", "[5, 18]"))),
    GRAPH(OP(0, "MatMul", "", T(0, "@", "[2, 7, 16]") AND T(1, "@", "[2, 16, 9]"),
             T(2, "f32", "[2, 7, 9]"))
          AND OP(1, "Multiply", "", T(2, "f32", "[2, 7, 9]") AND T(3, "f32", "[1]"),
                 T(4, "f32", "[2, 7, 9]"))
          AND OP(2, "SoftMax", LAST, T(4, "f32", "[2, 7, 9]"), T(5, "f32", "[2, 7, 9]"))
          AND OP(3, "MatMul", "", T(5, "f32", "[2, 7, 9]") AND T(6, "#", "[2, 9, 16]"),
                 T(7, "@", "[2, 7, 16]"))),
    GRAPH(OP(0, "MatMul", "", T(0, "@", "[2, 7, 16]") AND T(1, "@", "[2, 16, 9]"),
             T(2, "#", "[2, 7, 9]"))
          AND OP(1, "Multiply", "", T(2, "#", "[2, 7, 9]") AND T(3, "f32", "[1]"),
                 T(4, "f32", "[2, 7, 9]"))
          AND OP(2, "SoftMax", LAST, T(4, "f32", "[2, 7, 9]"), T(5, "f32", "[2, 7, 9]"))
          AND OP(3, "MatMul", "", T(5, "f32", "[2, 7, 9]") AND T(6, "@", "[2, 9, 16]"),
                 T(7, "f32", "[2, 7, 16]"))),
};
/* clang-format on */

/* ---- FNUZ by its literal values -------------------------------------------------------------- */

static void check_fnuz(void)
{
    static const float want[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 10, 12, 12, 12, 14, 16};
    float x[16], back[16] = {0};
    unsigned char codes[16];
    gr_error_t err = {{0}, 0};
    for (int i = 0; i < 16; i++) {
        x[i] = (float)i;
    }
    CHECK(!gr_cast(sinter_f32, x, sinter_f8_e5m2fnuz, codes, 16, &err) &&
              !gr_cast(sinter_f8_e5m2fnuz, codes, sinter_f32, back, 16, &err),
          "%s", err.text);
    CHECK(memcmp(back, want, sizeof want) == 0, "0..15 as f8_e5m2fnuz: %g %g %g %g ...", back[0],
          back[9], back[11], back[13]);
}

/* MatMul of the row and the column of those numbers, cast inside the graph. */
static void check_fnuz_matmul(int no_fuse)
{
    char path[1024];
    gr_error_t err = {{0}, 0};
    gr_options_t opt = gr_default_options;
    model_t model = {0};
    gr_exec_t x;
    snprintf(path, sizeof path, "%s/models/fnuz-square.json", SINTER_SOURCE_DIR);
    opt.no_fuse = no_fuse;
    if (model_load_file(&model, path, &err)) {
        CHECK(false, "%s", err.text);
        return;
    }
    int failed = gr_exec_open(&x, &model, &opt, &err) || gr_exec_compile(&x, &err) ||
                 gr_exec_inputs(&x, &err);
    for (uint64_t id = 0; !failed && id <= 2; id += 2) {
        for (int i = 0; i < 16; i++) {
            const float value = (float)i;
            memcpy(gr_exec_buffer(&x, id)->data + 4 * i, &value, sizeof value);
        }
    }
    failed = failed || gr_exec_run(&x, &err) || gr_check(&x, &err);
    CHECK(!failed, "%s", err.text);
    const double y = failed ? NAN : orc_decode(sinter_f8_e5m2fnuz, gr_exec_buffer(&x, 4)->data, 0);
    CHECK(y == 1280, "MatMul(x, x) in f8_e5m2fnuz is %g, not 1280", y); /* from 1252 */
    gr_exec_close(&x);
    model_free(&model);
}

int main(void)
{
    gr_alloc_set(NULL);
    for (int i = 0; i < TYPES; i++) {
        for (int k = 0; k < TYPES; k++) {
            check_pair(types[i], types[k]);
        }
        run_text(reorder, name_of(types[i]), "");
    }
    static const char *const codes[] = {"s8",      "u8",      "s4",          "u4",
                                        "f8_e5m2", "f8_e4m3", "f8_e5m2fnuz", "f8_e4m3fnuz",
                                        "f6_e3m2", "f6_e2m3", "f4_e2m1"},
                             *const reals[] = {"f32", "f16", "bf16", "f64"},
                             *const f8[] = {"f8_e5m2", "f8_e4m3", "f8_e5m2fnuz", "f8_e4m3fnuz"};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        for (size_t k = 0; k < sizeof reals / sizeof *reals; k++) {
            run_text(quantize, codes[i], reals[k]);
            run_text(dequantize, codes[i], reals[k]);
        }
    }
    for (size_t i = 0; i < sizeof f8 / sizeof *f8; i++) {
        for (size_t k = 0; k < sizeof arithmetic / sizeof *arithmetic; k++) {
            run_text(arithmetic[k], f8[i], f8[(i + k) % 4]);
        }
    }
    check_fnuz();
    check_fnuz_matmul(0);
    check_fnuz_matmul(1);
    gr_check_forget();
    return check_finish();
}
