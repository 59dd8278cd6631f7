/* graph_runner's knobs, tensor files, inputs, dynamic dims, repeated runs and its JSON document. */
#include "../../tools/graph_runner/check.h" /* tests/unit has one too */
#include "check.h"
#include "dtypes.h"
#include "fill.h"
#include "npy.h"
#include "record.h"
#include "rewrite.h"
#include "runs.h"
#include "work.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Compressed K times Q, scaled, masked, softmax, behind a reshape: a place for every knob. */
static const char graph[] =
    "{\"graph\": ["
    "{\"id\": 10, \"kind\": \"DynamicDequantize\", \"attrs\": {\"qtype\": {\"type\": \"string\", "
    "\"value\": \"per_group\"},"
    " \"group_shape\": {\"type\": \"s64[]\", \"value\": [1, 1, 32, 1]}, \"axis\": {\"type\": "
    "\"s64\", \"value\": 2}},"
    " \"inputs\": [{\"id\": 0, \"dtype\": \"s4\", \"shape\": [1, 2, 64, 6], \"stride\": [768, 384, "
    "1, 64]},"
    "  {\"id\": 1, \"dtype\": \"f16\", \"shape\": [1, 2, 2, 6]}, {\"id\": 2, \"dtype\": \"s4\", "
    "\"shape\": [1, 2, 2, 6]}],"
    " \"outputs\": [{\"id\": 3, \"dtype\": \"f16\", \"shape\": [1, 2, 64, 6]}]},"
    "{\"id\": 11, \"kind\": \"MatMul\", \"inputs\": [{\"id\": 4, \"dtype\": \"f16\", \"shape\": "
    "[1, 2, 5, 64]}, {\"id\": 3, \"dtype\": "
    "\"f16\", \"shape\": [1, 2, 64, 6]}],"
    " \"outputs\": [{\"id\": 5, \"dtype\": \"f16\", \"shape\": [1, 2, 5, 6]}]},"
    "{\"id\": 12, \"kind\": \"Divide\", \"inputs\": [{\"id\": 5, \"dtype\": \"f16\", \"shape\": "
    "[1, 2, 5, 6]}, {\"id\": 6, \"dtype\": "
    "\"f16\", \"shape\": []}],"
    " \"outputs\": [{\"id\": 7, \"dtype\": \"f16\", \"shape\": [1, 2, 5, 6]}]},"
    "{\"id\": 13, \"kind\": \"Add\", \"inputs\": [{\"id\": 7, \"dtype\": \"f16\", \"shape\": [1, "
    "2, 5, 6]}, {\"id\": 8, \"dtype\": "
    "\"f16\", \"shape\": [1, 1, 5, 6]}],"
    " \"outputs\": [{\"id\": 9, \"dtype\": \"f16\", \"shape\": [1, 2, 5, 6]}]},"
    "{\"id\": 14, \"kind\": \"SoftMax\", \"attrs\": {\"axis\": {\"type\": \"s64\", \"value\": 3}, "
    "\"mode\": {\"type\": \"string\", "
    "\"value\": \"inf_as_zero\"}},"
    " \"inputs\": [{\"id\": 9, \"dtype\": \"f16\", \"shape\": [1, 2, 5, 6]}], \"outputs\": "
    "[{\"id\": 15, \"dtype\": \"f16\", \"shape\": "
    "[1, 2, 5, 6]}]},"
    "{\"id\": 15, \"kind\": \"StaticReshape\", \"attrs\": {\"shape\": {\"type\": \"s64[]\", "
    "\"value\": [1, 10, 6]}},"
    " \"inputs\": [{\"id\": 15, \"dtype\": \"f16\", \"shape\": [1, 2, 5, 6]}], \"outputs\": "
    "[{\"id\": 16, \"dtype\": \"f16\", \"shape\": "
    "[1, 10, 6]}]}]}";

static int rewrite(model_t *m, gr_options_t opt, gr_error_t *err)
{
    *err = (gr_error_t){0};
    if (model_load_text(m, "g.json", graph, strlen(graph), err)) {
        printf("%s\n", err->text);
        exit(1);
    }
    return gr_rewrite(m, &opt, err);
}

static const sinter_logical_tensor_t *lt_of(const model_t *m, uint64_t id)
{
    return model_lt(m, model_find(m, id));
}

static int same(const int64_t *a, size_t n, const int64_t *b)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}
#define SAME(a, ...) \
    same(a, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

/* ---- knobs ----------------------------------------------------------------------------------- */

static void test_shapes(void)
{
    static const uint64_t computed[] = {3, 5, 7, 9, 15, 16};
    gr_error_t err;
    model_t m;

    /* the order of K's strides is kept; what follows from it is unknown; the rest stays */
    CHECK(!rewrite(&m, (gr_options_t){.in_shapes = "0:1x2x64x100+8:1x1x5x100"}, &err), "%s",
          err.text);
    CHECK_THAT(SAME(lt_of(&m, 0)->dims, 1, 2, 64, 100) &&
               SAME(lt_of(&m, 0)->strides, 12800, 6400, 1, 64));
    CHECK_THAT(SAME(lt_of(&m, 8)->strides, 500, 500, 100, 1));
    for (size_t i = 0; i < sizeof computed / sizeof *computed; i++) {
        CHECK_THAT(lt_of(&m, computed[i])->ndims == SINTER_UNKNOWN_NDIMS &&
                   lt_of(&m, computed[i])->layout_type == sinter_layout_type_any);
    }
    CHECK_THAT(lt_of(&m, 4)->ndims == 4 && lt_of(&m, 1)->ndims == 4);
    CHECK_THAT(m.ops[1].inputs[1].ndims == SINTER_UNKNOWN_NDIMS); /* every place of tensor 3 */
    model_free(&m);

    CHECK(!rewrite(&m, (gr_options_t){.in_shapes = "0:1x2x1x64x100*abced+4:*64x4x2x1+6:+8:2x3*3x1"},
                   &err),
          "%s", err.text);
    CHECK_THAT(lt_of(&m, 0)->ndims == 5 && SAME(lt_of(&m, 0)->strides, 12800, 6400, 6400, 1, 64));
    CHECK_THAT(SAME(lt_of(&m, 4)->dims, 1, 2, 5, 64) && SAME(lt_of(&m, 4)->strides, 64, 4, 2, 1));
    CHECK_THAT(lt_of(&m, 6)->ndims == 0 && lt_of(&m, 8)->ndims == 2 &&
               lt_of(&m, 8)->layout_type == sinter_layout_type_strided);
    model_free(&m);
}

static void test_types_and_attrs(void)
{
    gr_error_t err;
    model_t m;

    CHECK(!rewrite(&m, (gr_options_t){.dt = "u8"}, &err), "%s", err.text);
    CHECK_THAT(lt_of(&m, 0)->data_type == sinter_u8 && lt_of(&m, 2)->data_type == sinter_u8 &&
               lt_of(&m, 1)->data_type == sinter_f16);
    model_free(&m);
    CHECK(!rewrite(&m, (gr_options_t){.dt = "bf16+1:e8m0"}, &err), "%s", err.text);
    CHECK_THAT(lt_of(&m, 1)->data_type == sinter_e8m0 && lt_of(&m, 3)->data_type == sinter_bf16 &&
               m.ops[1].inputs[1].data_type == sinter_bf16);
    CHECK_THAT(lt_of(&m, 0)->data_type == sinter_s4);
    model_free(&m);
    CHECK(!rewrite(&m,
                   (gr_options_t){
                       .op_attrs = "10:group_shape:1x1x64x1*axis:-2+11:transpose_b:1+14:mode:none"},
                   &err),
          "%s", err.text);
    CHECK_THAT(SAME(model_attr(&m.ops[0], sinter_op_attr_group_shape)->s64, 1, 1, 64, 1));
    CHECK_THAT(SAME(model_attr(&m.ops[0], sinter_op_attr_axis)->s64, -2) && m.ops[0].n_attrs == 3);
    CHECK_THAT(m.ops[1].n_attrs == 1 && model_attr(&m.ops[1], sinter_op_attr_transpose_b)->b == 1);
    CHECK_THAT(!strcmp(model_attr(&m.ops[4], sinter_op_attr_mode)->str, "none"));
    model_free(&m);
    CHECK(!rewrite(&m, (gr_options_t){.attr_fpmath = "bf16:true"}, &err), "%s", err.text);
    CHECK_THAT(m.mode == sinter_fpmath_mode_bf16 && m.apply_to_int);
    model_free(&m);
    CHECK(!rewrite(&m, (gr_options_t){.mb = 3}, &err), "%s", err.text);
    CHECK_THAT(SAME(lt_of(&m, 0)->dims, 3, 2, 64, 6) &&
               SAME(lt_of(&m, 0)->strides, 768, 384, 1, 64) &&
               SAME(lt_of(&m, 8)->dims, 3, 1, 5, 6));
    CHECK_THAT(lt_of(&m, 6)->ndims == 0 &&
               SAME(model_attr(&m.ops[5], sinter_op_attr_shape)->s64, 3, 10, 6));
    model_free(&m);
}

static void test_bad_knobs(void)
{
    static const struct {
        gr_options_t opt;
        const char *message;
    } bads[] = {
        {{.in_shapes = "0"}, "expected ID: at \"0\""},
        {{.in_shapes = "99:1x2"}, "the graph has no tensor 99"},
        {{.in_shapes = "3:1x2"}, "tensor 3 is computed by the graph"},
        {{.in_shapes = "0:1x2x"}, "expected ID:DIMS[*STRIDES] at \"0:1x2x\""},
        {{.in_shapes = "0:1x-2"}, "expected ID:DIMS"},
        {{.in_shapes = "0:1x2*1"}, "expected ID:DIMS"},
        {{.in_shapes = "0:1x2*aa"}, "expected ID:DIMS"},
        {{.in_shapes = "0:1x2*abc"}, "expected ID:DIMS"},
        {{.in_shapes = "0:1x2+"}, "expected ID:"},
        {{.in_shapes = "0:9223372036854775807x9223372036854775807"}, "expected ID:DIMS"},
        {{.in_shapes = "0:1x1x1x1x1x1x1x1x1x1x1x1x1"}, "expected ID:DIMS"},
        {{.in_shapes = "99999999999999999999:1"}, "expected ID:"},
        {{.dt = "s3"}, "expected [ID:]TYPE at \"s3\""},
        {{.dt = "e8m0"}, "e8m0 needs an ID"},
        {{.dt = "77:s8"}, "the graph has no tensor 77"},
        {{.op_attrs = "10:axis"}, "expected NAME:VALUE"},
        {{.op_attrs = "10:axi:1"}, "expected NAME:VALUE"},
        {{.op_attrs = "10:axis:x"}, "expected a value of axis"},
        {{.op_attrs = "11:transpose_a:2"}, "expected a value of transpose_a"},
        {{.op_attrs = "77:axis:1"}, "the graph has no op 77"},
        {{.op_attrs = "10:axis:1;"}, "expected '+' or the end"},
        {{.attr_fpmath = "f15"}, "expected MODE[:true]"},
        {{.attr_fpmath = "f16:maybe"}, "expected MODE[:true]"},
    };

    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        gr_error_t err;
        model_t m;

        CHECK_THAT(rewrite(&m, bads[i].opt, &err) == -1);
        CHECK(strstr(err.text, bads[i].message), "%s", err.text);
        model_free(&m);
    }
}

static void test_options(void)
{
    char *good[] = {"--case=a.json", "--mode=P", "--no-fuse", "--threads=3", "--min-time=0.25"};
    char *repeated[] = {"--case=a.json",        "--dynamic=0:?x4", "--runs=3",
                        "--same-bits",          "--json",          "--dump-tensors=d",
                        "--dump-tensor-ids=1+2"};
    static const char printed[] = "graph_runner --mode=C --case=a.json --dynamic='0:?x4' --runs=3 "
                                  "--same-bits --json --dump-tensors=d "
                                  "--dump-tensor-ids=1+2";
    char *bad[] = {
        "--no-such=1",  "case=a",      "--mode=Q",    "--threads=x", "--threads",
        "--threads=-1", "--case=",     "--no-fuse=7", "--",          "",
        "--runs=0",     "--same-bits", "--json=1",    "--dynamic=",  "--dump-tensor-ids=1"};
    gr_options_t opt = gr_default_options;
    gr_error_t err = {0};
    char *text = NULL;
    size_t size;
    FILE *f;

    CHECK_THAT(!gr_options_parse(&opt, 5, good, &err) && opt.threads == 3 && opt.no_fuse &&
               opt.min_time == 0.25 && *opt.mode == 'P');
    opt = gr_default_options;
    CHECK_THAT(!gr_options_parse(&opt, sizeof repeated / sizeof *repeated, repeated, &err) &&
               opt.runs == 3 && opt.same_bits && opt.json);
    f = open_memstream(&text, &size);
    if (f) {
        gr_options_print(f, &opt);
        fclose(f);
    }
    CHECK(text && !strcmp(text, printed), "%s", text ? text : "");
    free(text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        opt = gr_default_options;
        err = (gr_error_t){0};
        CHECK(gr_options_parse(&opt, 1, &bad[i], &err) == -1 && err.text[0], "%s", bad[i]);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static sinter_logical_tensor_t make_lt(sinter_data_type_t type, int64_t rows, int64_t columns,
                                       int64_t row_stride, int64_t column_stride)
{
    return (sinter_logical_tensor_t){.id = 7,
                                     .ndims = 2,
                                     .dims = {rows, columns},
                                     .data_type = type,
                                     .layout_type = sinter_layout_type_strided,
                                     .strides = {row_stride, column_stride}};
}

/* Written from one layout, read into another. */
static void test_npy(void)
{
    static const sinter_data_type_t types[] = {sinter_f16, sinter_f32, sinter_f64, sinter_s8,
                                               sinter_u8,  sinter_s32, sinter_s64, sinter_boolean};

    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        sinter_logical_tensor_t from = make_lt(types[t], 3, 5, 1, 4),
                                to = make_lt(types[t], 3, 5, 8, 1);
        unsigned char a[256] = {0}, b[256] = {0};
        gr_error_t err = {0};
        int wrong = 0;

        for (int64_t i = 0; i < 15; i++) {
            orc_encode(types[t], a, gr_offset(&from, i),
                       types[t] == sinter_boolean ? (double)(i & 1) : (double)i);
        }
        CHECK(!npy_write(".", "test_runner", &from, a, 160, &err), "%s", err.text);
        CHECK(!npy_read("./test_runner.npy", &to, b, 192, &err), "%s", err.text);
        for (int64_t i = 0; i < 15; i++) {
            wrong += orc_decode(types[t], a, gr_offset(&from, i)) !=
                     orc_decode(types[t], b, gr_offset(&to, i));
        }
        CHECK(wrong == 0, "%s", gr_dtype(types[t])->name);
    }
}

static void test_npy_conversion(void)
{
    sinter_logical_tensor_t f32 = make_lt(sinter_f32, 2, 2, 2, 1),
                            s4 = make_lt(sinter_s4, 2, 2, 2, 1),
                            other = make_lt(sinter_f32, 2, 3, 3, 1);
    float values[4] = {-8, 7, 1, -1};
    unsigned char packed[2] = {0}, back[2] = {0};
    gr_error_t err = {0};

    CHECK_THAT(!npy_write(".", "test_runner", &f32, values, sizeof values, &err));
    CHECK(!npy_read("test_runner.npy", &s4, packed, 2, &err), "%s", err.text);
    CHECK_THAT(packed[0] == 0x78 && packed[1] == 0xF1);
    CHECK_THAT(!npy_write(".", "test_runner", &s4, packed, 2, &err)); /* raw bytes and a note */
    CHECK(!npy_read("test_runner.bin", &s4, back, 2, &err) && !memcmp(packed, back, 2), "%s",
          err.text);
    CHECK_THAT(npy_read("test_runner.npy", &other, values, sizeof values, &err) == -1 &&
               strstr(err.text, "expected 2 dims"));
    err = (gr_error_t){0};
    CHECK_THAT(npy_read("test_runner.bin", &f32, values, sizeof values, &err) == -1 &&
               strstr(err.text, "exactly 16 bytes"));
    err = (gr_error_t){0};
    CHECK_THAT(npy_read("no-such-file.npy", &f32, values, sizeof values, &err) == -1);
}

/* Every cut of a .npy file is refused. */
static void test_npy_truncated(void)
{
    sinter_logical_tensor_t lt = make_lt(sinter_f64, 2, 2, 2, 1);
    double values[4] = {1, 2, 3, 4};
    char file[512];
    size_t size;
    int accepted = 0;
    gr_error_t err = {0};
    FILE *f;

    CHECK_THAT(!npy_write(".", "test_runner", &lt, values, sizeof values, &err));
    f = fopen("test_runner.npy", "rb");
    size = f ? fread(file, 1, sizeof file, f) : 0;
    if (f) {
        fclose(f);
    }
    CHECK_THAT(size > 64 && (size - sizeof values) % 64 == 0);
    for (size_t n = 0; n < size; n++) {
        f = fopen("test_runner.npy", "wb");
        if (!f) {
            break;
        }
        fwrite(file, 1, n, f);
        fclose(f);
        err = (gr_error_t){0};
        accepted +=
            n != sizeof values && !npy_read("test_runner.npy", &lt, values, sizeof values, &err);
    }
    CHECK_THAT(accepted == 0);
    remove("test_runner.npy");
    remove("test_runner.bin");
    remove("test_runner.json");
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static double value(const model_t *m, uint64_t id, const void *data, int64_t index)
{
    return orc_decode(lt_of(m, id)->data_type, data, gr_offset(lt_of(m, id), index));
}

static void test_fill(void)
{
    unsigned char data[4096], again[4096];
    gr_error_t err;
    model_t m;
    int lo = 0, hi = 0, bad = 0, masked = 0;

    rewrite(&m, (gr_options_t){0}, &err);
    fill_input(&m, model_find(&m, 0), lt_of(&m, 0), 1, data);
    for (int64_t i = 0; i < 768; i++) {
        lo += value(&m, 0, data, i) == -8;
        hi += value(&m, 0, data, i) == 7;
    }
    CHECK_THAT(lo > 20 && hi > 20); /* all of s4 */
    fill_input(&m, model_find(&m, 0), lt_of(&m, 0), 1, again);
    CHECK_THAT(!memcmp(data, again, 384));
    fill_input(&m, model_find(&m, 0), lt_of(&m, 0), 2, again);
    CHECK_THAT(memcmp(data, again, 384));
    fill_input(&m, model_find(&m, 1), lt_of(&m, 1), 1, data);
    for (int64_t i = 0; i < 24; i++) {
        bad += !(value(&m, 1, data, i) > 0.05 && value(&m, 1, data, i) < 0.25);
    }
    fill_input(&m, model_find(&m, 2), lt_of(&m, 2), 1, data);
    for (int64_t i = 0; i < 24; i++) {
        bad += fabs(value(&m, 2, data, i)) > 2;
    }
    CHECK_THAT(bad == 0);
    fill_input(&m, model_find(&m, 6), lt_of(&m, 6), 1, data);
    CHECK_THAT(value(&m, 6, data, 0) == 8); /* the root of the head size */
    fill_input(&m, model_find(&m, 8), lt_of(&m, 8), 1, data);
    for (int64_t i = 0; i < 30; i++) {
        masked += isinf(value(&m, 8, data, i)) != 0;
        bad += i % 6 == 0 && value(&m, 8, data, i) != 0; /* no row is masked wholly */
    }
    CHECK_THAT(masked > 0 && masked < 20 && bad == 0);
    model_free(&m);
}

/* The table of the numeric contract, and the casts that it names. */
static void test_describe(void)
{
    static const struct {
        const char *name, *lines[12];
    } rows[] = {
        {"f8_e5m2",
         {"bits         8\n", "bias 15, emin -14, emax 15\n", "max          57344\n", "= 2^-14\n",
          "= 2^-16\n", "Inf          0x7C 0xFC\n", "NaN          0x7D 0x7E 0x7F 0xFD 0xFE 0xFF\n",
          "zeros        0x00 0x80\n", "    beyond max 0x7C inf\n", "    0x3D 1.25\n",
          "    0xFB -57344\n"}},
        {"f8_e4m3",
         {"bias 7, emin -6, emax 8\n", "max          448\n", "= 2^-6\n", "= 2^-9\n",
          "Inf          none\n", "NaN          0x7F 0xFF\n", "    Inf        0x7F nan\n",
          "    0x7E 448\n", "    0x80 -0\n"}},
        {"f8_e5m2fnuz",
         {"bias 16, emin -15, emax 15\n", "max          57344\n", "= 2^-15\n", "= 2^-17\n",
          "Inf          none\n", "NaN          0x80\n", "zeros        0x00\n",
          "    -0         0x00 0\n", "    -beyond    0x80 nan\n", "    0x7F 57344\n"}},
        {"f8_e4m3fnuz",
         {"bias 8, emin -7, emax 7\n", "max          240\n", "= 2^-7\n", "= 2^-10\n",
          "NaN          0x80\n", "    0xFF -240\n"}},
        {"f6_e3m2",
         {"bits         6\n", "4 elements in 3 bytes", "bias 3, emin -2, emax 4\n",
          "max          28\n", "0.25 = 2^-2\n", "0.0625 = 2^-4\n", "NaN          none\n",
          "    NaN        0x1F 28\n", "    0x3F -28\n"}},
        {"f6_e2m3",
         {"bias 1, emin 0, emax 2\n", "max          7.5\n", "1 = 2^0\n", "0.125 = 2^-3\n",
          "    -Inf       0x3F -7.5\n"}},
        {"f4_e2m1",
         {"2 elements in 1 byte", "bias 1, emin 0, emax 2\n", "max          6\n", "0.5 = 2^-1\n",
          "    2.5        0x4 2\n", "    0x3 1.5\n", "    0x8 -0\n"}},
        {"e8m0",
         {"bias 127, emin -127, emax 127\n", "NaN          0xFF\n", "zeros        none\n",
          "    0x7F 1\n", "    0x80 2\n", "    0xFF nan\n"}},
        {"f16",
         {"bits         16\n", "bias 15, emin -14, emax 15\n", "max          65504\n", "= 2^-24\n",
          "Inf          0x7C00 0xFC00\n"}},
        {"f64", {"bias 1023, emin -1022, emax 1023\n", "digits       53"}},
        {"s4",
         {"range        -8 to 7\n", "    NaN        0x0 0\n", "    1.5        0x2 2\n",
          "    0xF -1\n"}},
        {"u8", {"range        0 to 255\n", "    beyond max 0xFF 255\n", "    0x80 128\n"}},
        {"boolean", {"    0.5        0x01 1\n"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gr_error_t err = {0};
        char *text = gr_describe_dtype(rows[i].name, &err);
        CHECK(text != NULL, "%s", err.text);
        for (int k = 0; text && k < 12 && rows[i].lines[k]; k++) {
            CHECK(strstr(text, rows[i].lines[k]) != NULL, "%s: %s", rows[i].name, rows[i].lines[k]);
        }
        gr_free(text);
    }
    gr_error_t err = {0};
    CHECK_THAT(!gr_describe_dtype("f17", &err) && strstr(err.text, "f17") &&
               strstr(err.text, " f8_e5m2fnuz "));
#define SINTER_DTYPE(value, name, ...)                    \
    {                                                     \
        gr_error_t why = {0};                             \
        char *text = gr_describe_dtype(#name, &why);      \
        CHECK(text &&strlen(text) > 100, "%s", why.text); \
        gr_free(text);                                    \
    }
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
}

/* ---- work ------------------------------------------------------------------------------------ */

/* Three query heads for each of two s8 KV heads, 5 queries, 6 tokens, head sizes 64 and 32;
 * masked where not row + a >= column, and, with the second Select, where not column + b >= row +
 * a. */
static const char attention[] =
    "{\"graph\": ["
    "{\"id\": 0, \"kind\": \"DynamicDequantize\", \"attrs\": {\"qtype\": {\"type\": \"string\", "
    "\"value\": \"per_group\"},"
    " \"group_shape\": {\"type\": \"s64[]\", \"value\": [1, 1, 1, 32, 1]}},"
    " \"inputs\": [{\"id\": 0, \"dtype\": \"s8\", \"shape\": [1, 2, 1, 64, 6]}, {\"id\": 1, "
    "\"dtype\": \"f32\", \"shape\": [1, 2, 1, 2, 6]}],"
    " \"outputs\": [{\"id\": 2, \"dtype\": \"f32\"}]},"
    "{\"id\": 1, \"kind\": \"MatMul\", \"inputs\": [{\"id\": 3, \"dtype\": \"f32\", \"shape\": [1, "
    "2, 3, 5, 64]}, {\"id\": 2, \"dtype\": \"f32\"}],"
    " \"outputs\": [{\"id\": 4, \"dtype\": \"f32\"}]},"
    "{\"id\": 2, \"kind\": \"GenIndex\", \"attrs\": {\"axis\": {\"type\": \"s64\", \"value\": 3}}, "
    "\"inputs\": [{\"id\": 4, \"dtype\": \"f32\"}],"
    " \"outputs\": [{\"id\": 5, \"dtype\": \"s32\"}]},"
    "{\"id\": 3, \"kind\": \"GenIndex\", \"attrs\": {\"axis\": {\"type\": \"s64\", \"value\": "
    "-1}}, \"inputs\": [{\"id\": 4, \"dtype\": \"f32\"}],"
    " \"outputs\": [{\"id\": 6, \"dtype\": \"s32\"}]},"
    "{\"id\": 4, \"kind\": \"Add\", \"inputs\": [{\"id\": 5, \"dtype\": \"s32\"}, {\"id\": 7, "
    "\"dtype\": \"s32\", \"shape\": [], \"property_type\": "
    "\"host_scalar\"}], \"outputs\": [{\"id\": 8, \"dtype\": \"s32\"}]},"
    "{\"id\": 5, \"kind\": \"GreaterEqual\", \"inputs\": [{\"id\": 8, \"dtype\": \"s32\"}, "
    "{\"id\": 6, \"dtype\": \"s32\"}],"
    " \"outputs\": [{\"id\": 9, \"dtype\": \"boolean\"}]},"
    "{\"id\": 6, \"kind\": \"Select\", \"inputs\": [{\"id\": 9, \"dtype\": \"boolean\"}, {\"id\": "
    "4, \"dtype\": \"f32\"}, {\"id\": 10, \"dtype\": "
    "\"f32\", \"shape\": [1]}], \"outputs\": [{\"id\": 11, \"dtype\": \"f32\"}]},"
    "{\"id\": 7, \"kind\": \"Add\", \"inputs\": [{\"id\": 6, \"dtype\": \"s32\"}, {\"id\": 12, "
    "\"dtype\": \"s32\", \"shape\": [], \"property_type\": "
    "\"host_scalar\"}], \"outputs\": [{\"id\": 13, \"dtype\": \"s32\"}]},"
    "{\"id\": 8, \"kind\": \"GreaterEqual\", \"inputs\": [{\"id\": 13, \"dtype\": \"s32\"}, "
    "{\"id\": 8, \"dtype\": \"s32\"}],"
    " \"outputs\": [{\"id\": 14, \"dtype\": \"boolean\"}]},"
    "{\"id\": 9, \"kind\": \"Select\", \"inputs\": [{\"id\": 14, \"dtype\": \"boolean\"}, {\"id\": "
    "11, \"dtype\": \"f32\"}, {\"id\": 10, \"dtype\": "
    "\"f32\", \"shape\": [1]}], \"outputs\": [{\"id\": 15, \"dtype\": \"f32\"}]},"
    "{\"id\": 10, \"kind\": \"SoftMax\", \"attrs\": {\"axis\": {\"type\": \"s64\", \"value\": -1}, "
    "\"mode\": {\"type\": \"string\", \"value\": "
    "\"inf_as_zero\"}}, \"inputs\": [{\"id\": 15, \"dtype\": \"f32\"}], \"outputs\": [{\"id\": 16, "
    "\"dtype\": \"f32\"}]},"
    "{\"id\": 11, \"kind\": \"MatMul\", \"inputs\": [{\"id\": 16, \"dtype\": \"f32\"}, {\"id\": "
    "17, \"dtype\": \"f16\", \"shape\": [1, 2, 1, 6, 32]}],"
    " \"outputs\": [{\"id\": 18, \"dtype\": \"f32\"}]}]}";

/* a and b as --in takes them; visible: pairs of a query and a token it sees; tokens: that some
 * query sees. */
static void test_work_of(const char *in, double visible, double tokens)
{
    gr_options_t opt = gr_default_options;
    gr_error_t err = {0};
    gr_work_t work;
    gr_exec_t x;
    model_t m;

    opt.in = in;
    CHECK(!model_load_text(&m, "attention.json", attention, strlen(attention), &err), "%s",
          err.text);
    CHECK(!gr_exec_open(&x, &m, &opt, &err) && x.n_parts == 1 && !gr_exec_compile(&x, &err) &&
              !gr_exec_inputs(&x, &err),
          "%s", err.text);
    CHECK(x.n_parts && !gr_part_work(&x, &x.parts[0], &work, &err), "%s", err.text);
    CHECK_THAT(work.attention &&
               llround(1000 * work.flops) == llround(1000 * 2 * visible * (2 * 3) * (64 + 32)));
    CHECK_THAT(llround(1000 * work.bytes) ==
               llround(1000 * tokens * 2 *
                       (64 + 2 * 4 + 32 * 2))); /* codes and two scales of K, f16 of V */
    /* With queries, two indices and what masked scores become; without tokens that nobody sees. */
    CHECK_THAT(llround(1000 * work.read) ==
               llround(1000 * (work.bytes + 2 * 3 * 5 * 64 * 4 + 2 * 4 + 4)));
    CHECK_THAT(work.written == 2 * 3 * 5 * 32 * 4);
    gr_exec_close(&x);
    model_free(&m);
}

/* A ragged batch over caches in pages: three tokens of two sequences that share their first block.
 * The first one sees six tokens, the others see one and two, which are among those. */
static void test_work_in_pages(void)
{
    gr_options_t opt = gr_default_options;
    gr_error_t err = {0};
    gr_work_t work;
    gr_exec_t x;
    model_t m;
    char path[1024];

    snprintf(path, sizeof path, "%s/models/serving/ragged-f16.json", SINTER_SOURCE_DIR);
    opt.in_shapes = "0:3x8x4x1x128+1:3x1x1x1x1+2:2x3+3:3+5:5x8x4x128+17:5x8x4x128";
    opt.in = "1:=5,0,1+2:=0,1,2,-5,3,4+3:=1,0,0";
    CHECK(!model_load_file(&m, path, &err) && !gr_rewrite(&m, &opt, &err) &&
              !gr_exec_open(&x, &m, &opt, &err) && !gr_exec_compile(&x, &err) &&
              !gr_exec_inputs(&x, &err),
          "%s", err.text);
    CHECK(x.n_parts == 1 && !gr_part_work(&x, &x.parts[0], &work, &err), "%s", err.text);
    CHECK_THAT(work.attention && work.flops == 2. * (6 + 1 + 2) * (8 * 4) * (2 * 128));
    CHECK_THAT(work.bytes == 6. * 2 * (8 * 128) * 2);
    /* With queries, the table, sequences and positions, and what masked scores become. */
    CHECK(llround(1000 * work.read) ==
              llround(1000 * (work.bytes + 3 * 8 * 4 * 128 * 4 + 6 * 4 + 3 * 4 + 3 * 4 + 2 * 4)),
          "%g", work.read);
    gr_exec_close(&x);
    model_free(&m);
}

/* Of the attention's two products those with K meet codes of 8 bits, those with V floats. */
static void test_limbs(const char *fpmath, int limbs_of_k, bool bf16)
{
    gr_options_t opt = gr_default_options;
    gr_error_t err = {0};
    gr_work_t work;
    gr_exec_t x;
    model_t m;

    opt.in = "7:=100+12:=200"; /* no mask */
    opt.attr_fpmath = fpmath;
    CHECK(!model_load_text(&m, "attention.json", attention, strlen(attention), &err) &&
              !gr_rewrite(&m, &opt, &err),
          "%s", err.text);
    CHECK(!gr_exec_open(&x, &m, &opt, &err) && x.n_parts == 1 && !gr_exec_compile(&x, &err) &&
              !gr_exec_inputs(&x, &err) && !gr_part_work(&x, &x.parts[0], &work, &err),
          "%s", err.text);
    for (int limbs = 0; limbs < GR_LIMBS; limbs++) {
        const double k = limbs == limbs_of_k ? 64 : 0, v = limbs == GR_IN_FLOATS ? 32 : 0;

        CHECK(work.by_limbs[limbs] == 2 * (2 * 3) * 5 * 6 * (k + v), "%s, %d limbs: %g", fpmath,
              limbs, work.by_limbs[limbs]);
    }
    CHECK_THAT(work.bf16 == bf16);
    gr_exec_close(&x);
    model_free(&m);
}

static int is_about(double a, double b)
{
    return fabs(a - b) < 1e-12 * b;
}

/* Each product takes the fastest instruction that its mode allows. */
static void test_roofline(void)
{
    const gr_limits_t limits = {.copy_bytes = 5, .fma_flops = 10, .int8_ops = 40, .bf16_flops = 20},
                      floats = {.copy_bytes = 5, .fma_flops = 10};
    const gr_work_t copy = {.read = 30, .written = 10, .bytes = 40};
    gr_work_t work = {
        .flops = 300, .read = 30, .written = 10, .bytes = 40, .by_limbs = {[GR_IN_FLOATS] = 100}};

    CHECK_THAT(is_about(gr_roofline(&work, &limits, 15).memory, 30. / 15 + 10. / 5));
    CHECK_THAT(is_about(gr_roofline(&work, &limits, 15).products, 10));
    work.bf16 = true;
    CHECK_THAT(is_about(gr_roofline(&work, &limits, 15).products, 5));
    work.by_limbs[GR_ONE_LIMB] = 100;
    work.by_limbs[GR_TWO_LIMBS] = 100;
    CHECK_THAT(is_about(gr_roofline(&work, &limits, 15).products, 5 + 2.5 + 5));
    work.bf16 = false;
    CHECK_THAT(is_about(gr_roofline(&work, &floats, 15).products, 30));
    CHECK_THAT(gr_roofline(&work, &floats, 0).memory == 10. / 5); /* reading was not measured */
    CHECK_THAT(is_about(gr_roofline(&copy, &limits, 8).memory, 40. / 8)); /* held against copies */
    CHECK_THAT(gr_roofline(&copy, &limits, 8).products == 0);

    test_limbs("strict:true", GR_IN_FLOATS, false);
    test_limbs("f16:true", GR_TWO_LIMBS, false);
    test_limbs("bf16:true", GR_TWO_LIMBS, true);
    test_limbs("any:true", GR_TWO_LIMBS, true);
    test_limbs("int8:true", GR_ONE_LIMB, false);
    test_limbs("int8", GR_IN_FLOATS, false); /* the mode does not cover integers */
}

/* A level measures all that its instruction set has, and nothing of the next one. */
static void test_limits(void)
{
    const sinter_cpu_isa_t best = sinter_engine_get_isa(NULL);
    const gr_limits_t *l = gr_limits(best, 1), *generic = gr_limits(sinter_isa_generic, 1);

    CHECK_THAT(!strcmp(l->isa, sinter_cpu_isa_name(best)) && l->threads == 1);
    CHECK_THAT(l->read_bytes > 0 && l->copy_bytes > 0 && l->fma_flops > 0);
    CHECK_THAT((l->int8_ops > 0) == (best != sinter_isa_generic) && !l->int8_ops == !l->int8_by);
    CHECK_THAT(!strcmp(generic->isa, "generic") && generic->fma_flops > 0 &&
               generic->int8_ops == 0 && generic->bf16_flops == 0);
    CHECK_THAT(gr_limits(best, 1) == l); /* kept */
}

static void test_work(void)
{
    test_work_of("7:=100+12:=200", 5 * 6, 6);           /* everything */
    test_work_of("7:=0+12:=200", 1 + 2 + 3 + 4 + 5, 5); /* causal: the last token stays unseen */
    test_work_of("7:=1+12:=200", 2 + 3 + 4 + 5 + 6, 6); /* bottom-right */
    test_work_of("7:=1+12:=2", 2 + 3 + 3 + 3 + 3, 6);   /* a window of three */
    test_work_of("7:=5+12:=1", 2 + 1 + 0 + 0 + 0,
                 2); /* the first query is token 5 and sees two tokens, the third sees none */
    test_work_in_pages();
}

/* ---- one graph, executed --------------------------------------------------------------------- */

/* "attention" above with options; the caller closes it. 0, or -1 where opening it or compiling it
 * fails. */
static int open_attention(gr_exec_t *x, model_t *m, const gr_options_t *opt, gr_error_t *err)
{
    *err = (gr_error_t){0};
    CHECK(!model_load_text(m, "attention.json", attention, strlen(attention), err), "%s",
          err->text);
    return gr_exec_open(x, m, opt, err) || gr_exec_compile(x, err) ? -1 : 0;
}

static void close_attention(gr_exec_t *x, model_t *m)
{
    gr_exec_close(x);
    model_free(m);
}

/* 5 queries and 6 tokens that compile does not know: the library must see unknown dims, execute
 * with the real ones and be right. */
static void test_dynamic(void)
{
    gr_options_t opt = gr_default_options;
    sinter_logical_tensor_t lt, real;
    gr_error_t err;
    gr_work_t work;
    gr_exec_t x;
    model_t m;

    opt.in = "7:=0+12:=200";
    opt.dynamic = "0:1x2x1x64x?+1:1x2x1x2x?+3:1x2x3x?x64+17:1x2x1x?x32";
    CHECK(!open_attention(&x, &m, &opt, &err) && x.n_parts == 1, "%s", err.text);
    CHECK_THAT(!sinter_graph_query_logical_tensor(x.graph, 0, &lt) &&
               lt.dims[4] == SINTER_UNKNOWN_DIM && lt.dims[3] == 64);
    CHECK_THAT(!sinter_graph_query_logical_tensor(x.graph, 18, &lt) && lt.ndims == 5 &&
               lt.dims[3] == SINTER_UNKNOWN_DIM);
    CHECK_THAT(x.parts[0].dynamic && x.parts[0].out[0].dims[3] == SINTER_UNKNOWN_DIM &&
               x.parts[0].out[0].dims[4] == 32);
    gr_exec_lt(&x, 18, &real); /* before the run from the inputs' dims, after it from the buffer */
    CHECK_THAT(SAME(real.dims, 1, 2, 3, 5, 32) && SAME(lt_of(&m, 0)->dims, 1, 2, 1, 64, 6));
    CHECK(!gr_exec_inputs(&x, &err) && !gr_exec_run(&x, &err) && !gr_check(&x, &err), "%s",
          err.text);
    CHECK_THAT(gr_exec_buffer(&x, 18) && SAME(gr_exec_buffer(&x, 18)->lt.dims, 1, 2, 3, 5, 32));
    CHECK_THAT(x.parts[0].scratch > 0 && x.parts[0].out[0].dims[3] == SINTER_UNKNOWN_DIM);
    CHECK(!gr_part_work(&x, &x.parts[0], &work, &err), "%s", err.text);
    /* As in test_work: causal. */
    CHECK_THAT(work.attention);
    CHECK_THAT(llround(work.flops) == 2 * (1 + 2 + 3 + 4 + 5) * (2 * 3) * (64 + 32));
    CHECK_THAT(llround(work.bytes) == 5 * 2 * (64 + 2 * 4 + 32 * 2));
    close_attention(&x, &m);
    gr_check_forget();

    opt.max_scratch = 1; /* a limit holds for dynamic dims too: at execute */
    CHECK(!open_attention(&x, &m, &opt, &err) && !gr_exec_inputs(&x, &err), "%s", err.text);
    CHECK(gr_exec_run(&x, &err) == -1 &&
              strstr(err.text, "bytes of scratch memory per thread, more than 1"),
          "%s", err.text);
    close_attention(&x, &m);
}

static void test_bad_dynamic(void)
{
    static const struct {
        const char *dynamic, *message;
    } bads[] = {
        {"0", "--dynamic: expected ID: at \"0\""},
        {"99:?", "--dynamic: the graph has no tensor 99"},
        {"2:1x2x1x64x?", "--dynamic: tensor 2 is computed by the graph"},
        {"0:1x2x1x64x6", "with a '?' for each unknown dim at \"0:1x2x1x64x6\""},
        {"0:1x2x1x64x?x", "with a '?' for each unknown dim"},
        {"0:1x2x1x64x?,3:?", "with a '?' for each unknown dim"},
        {"0:1x2x1x64x?+", "--dynamic: expected ID: at \"\""},
        {"0:1x2x1x63x?",
         "--dynamic: tensor 0 is s8[1x2x1x64x6], which differs at dim 3 from \"0:1x2x1x63x?\""},
        {"0:1x2x1x?", "differs at dim 4"},
        {"0:1x2x1x64x6x?", "differs at dim 5"},
        {"7:?", "tensor 7 is s32[], which differs at dim 0"},
    };

    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        gr_options_t opt = gr_default_options;
        gr_error_t err;
        gr_exec_t x;
        model_t m;

        opt.dynamic = bads[i].dynamic;
        CHECK_THAT(open_attention(&x, &m, &opt, &err) == -1);
        CHECK(strstr(err.text, bads[i].message), "%s", err.text);
        CHECK_THAT(lt_of(&m, 0)->dims[4] == 6); /* the model stays as it was */
        close_attention(&x, &m);
    }
}

/* A run with one bit changed, in any element of any type, is told from the first. */
static void test_same_bits(void)
{
    gr_options_t opt = gr_default_options;
    gr_kept_t kept = {0};
    gr_error_t err;
    gr_buffer_t *b;
    gr_exec_t x;
    model_t m;

    opt.runs = 3;
    opt.same_bits = 1;
    opt.no_fuse = 1; /* twelve partitions: tensors between them are compared as well */
    CHECK(!open_attention(&x, &m, &opt, &err) && !gr_exec_inputs(&x, &err) && !gr_run_all(&x, &err),
          "%s", err.text);
    CHECK(!gr_keep(&x, &kept, &err) && !gr_compare_kept(&x, &kept, 2, &err), "%s", err.text);
    CHECK_THAT(kept.tensors == 12 && kept.bytes > 0);
    b = gr_exec_buffer(&x, 18);
    if (b) {
        b->data[4 * 100 + 1] ^= 0x20; /* f32 [1,2,3,5,32] */
    }
    CHECK_THAT(gr_compare_kept(&x, &kept, 2, &err) == -1);
    CHECK(strstr(err.text, "run 2: tensor 18 has other bits than in the first run in 1 of "
                           "960 elements, first at [0,0,0,3,4]: 0x"),
          "%s", err.text);
    err = (gr_error_t){0};
    if (b) {
        b->data[4 * 100 + 1] ^= 0x20;
    }
    b = gr_exec_buffer(&x, 9); /* boolean */
    if (b) {
        b->data[7] ^= 1;
    }
    CHECK_THAT(gr_compare_kept(&x, &kept, 5, &err) == -1 &&
               strstr(err.text, "run 5: tensor 9 has other bits"));
    gr_kept_free(&kept);
    close_attention(&x, &m);
}

/* Packed elements: the message names the element whose bits differ, not its byte. */
static void test_same_bits_packed(void)
{
    static const char text[] =
        "{\"graph\": [{\"id\": 0, \"kind\": \"TypeCast\", \"inputs\": [{\"id\": 0, \"dtype\": "
        "\"f32\", \"shape\": [3, 8]}],"
        " \"outputs\": [{\"id\": 1, \"dtype\": \"f6_e2m3\", \"shape\": [3, 8]}]}]}";
    gr_options_t opt = gr_default_options;
    gr_kept_t kept = {0};
    gr_error_t err = {0};
    gr_buffer_t *b;
    gr_exec_t x;
    model_t m;

    CHECK(!model_load_text(&m, "cast.json", text, strlen(text), &err) &&
              !gr_exec_open(&x, &m, &opt, &err),
          "%s", err.text);
    CHECK(!gr_exec_compile(&x, &err) && !gr_exec_inputs(&x, &err) && !gr_exec_run(&x, &err) &&
              !gr_keep(&x, &kept, &err),
          "%s", err.text);
    b = gr_exec_buffer(&x, 1);
    if (b) {
        b->data[7] ^= 0x10; /* bit 60 is the lowest of element 10: row 1, column 2 */
    }
    CHECK(gr_compare_kept(&x, &kept, 2, &err) == -1 &&
              strstr(err.text, "in 1 of 24 elements, first at [1,2]"),
          "%s", err.text);
    gr_kept_free(&kept);
    close_attention(&x, &m);
}

/* Allocations of a certain size fail. */
static void *picky_alloc(size_t bytes, void *user)
{
    return bytes >= *(const size_t *)user ? NULL : malloc(bytes ? bytes : 1);
}

static void plain_free(void *ptr, void *user)
{
    (void)user;
    free(ptr);
}

static void test_no_memory_for_tensor(void)
{
    size_t most = 1u << 20;
    gr_alloc_t alloc = {picky_alloc, plain_free, &most};
    gr_options_t opt = gr_default_options;
    gr_error_t err = {0};
    gr_exec_t x;
    model_t m;

    gr_alloc_set(&alloc);
    opt.in_shapes = "3:1x2x3x5000x64";
    CHECK_THAT(!model_load_text(&m, "attention.json", attention, strlen(attention), &err) &&
               !gr_rewrite(&m, &opt, &err));
    CHECK(!gr_exec_open(&x, &m, &opt, &err) && !gr_exec_compile(&x, &err), "%s", err.text);
    CHECK_THAT(gr_exec_inputs(&x, &err) == -1 && err.out_of_memory);
    CHECK(!strcmp(err.text, "tensor 3 f32[1x2x3x5000x64]: out of memory for its 7680000 bytes"),
          "%s", err.text);
    close_attention(&x, &m);
    gr_alloc_set(NULL);
}

static bool exists(const char *path)
{
    FILE *f = fopen(path, "rb");

    if (f) {
        fclose(f);
    }
    return f != NULL;
}

static void test_dump(void)
{
    gr_options_t opt = gr_default_options;
    gr_error_t err;
    gr_exec_t x;
    model_t m;

    opt.mode = "X";
    opt.no_fuse = 1;
    opt.dump_tensors = ".";
    CHECK(!open_attention(&x, &m, &opt, &err) && !gr_exec_inputs(&x, &err) &&
              !gr_exec_run(&x, &err),
          "%s", err.text);
    CHECK(!gr_dump_tensors(&x, &err), "%s", err.text);
    CHECK_THAT(exists("3.npy") && exists("18.npy") && !exists("4.npy") &&
               !exists("16.npy")); /* inputs and outputs */
    remove("18.npy");
    x.opt = &opt;
    opt.dump_tensor_ids = "4+16";
    CHECK(!gr_dump_tensors(&x, &err), "%s", err.text);
    CHECK_THAT(exists("4.npy") && exists("16.npy") && !exists("18.npy"));
    opt.dump_tensor_ids = "all";
    CHECK(!gr_dump_tensors(&x, &err), "%s", err.text);
    CHECK_THAT(exists("18.npy") && exists("5.npy"));
    opt.dump_tensor_ids = "4+77";
    CHECK_THAT(gr_dump_tensors(&x, &err) == -1 && strstr(err.text, "the graph has no tensor 77"));
    err = (gr_error_t){0};
    opt.dump_tensor_ids = "4;5";
    CHECK_THAT(gr_dump_tensors(&x, &err) == -1 && strstr(err.text, "expected ID+ID... or all"));
    close_attention(&x, &m);
    for (int id = 0; id <= 18; id++) {
        char name[32];

        snprintf(name, sizeof name, "%d.npy", id);
        remove(name);
    }

    opt.no_fuse = 0;
    opt.dump_tensor_ids = "4";
    CHECK(!open_attention(&x, &m, &opt, &err) && !gr_exec_inputs(&x, &err) &&
              !gr_exec_run(&x, &err),
          "%s", err.text);
    CHECK_THAT(gr_dump_tensors(&x, &err) == -1 &&
               strstr(err.text, "tensor 4 is inside a partition"));
    close_attention(&x, &m);
}

/* ---- the JSON document ----------------------------------------------------------------------- */

/* A document with everything of mode C in it; NULL without memory. The caller frees it. */
static char *document_of(gr_exec_t *x, const gr_options_t *opt, const char *message)
{
    gr_record_t r;
    char *text;

    gr_record_open(&r);
    gr_record_graph(&r, x);
    gr_record_output(&r, &gr_exec_buffer(x, 18)->lt, &(orc_diff_t){.n = 960, .worst_ratio = 0.5},
                     1);
    gr_record_memory(&r, x);
    gr_record_warnings(&r, x->model);
    text = gr_record_text(&r, opt, "PASSED", 1.5, message);
    gr_record_close(&r);
    return text;
}

static const char *text_at(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    return cJSON_IsString(item) ? item->valuestring : "";
}

typedef struct counted {
    long left, live;
} counted_t;

static void *counted_alloc(size_t bytes, void *user)
{
    counted_t *c = user;
    void *ptr = c->left-- > 0 ? malloc(bytes ? bytes : 1) : NULL;

    c->live += ptr != NULL;
    return ptr;
}

static void counted_free(void *ptr, void *user)
{
    counted_t *c = user;

    c->live--;
    free(ptr);
}

static void test_document(void)
{
    gr_options_t opt = gr_default_options;
    counted_t counted = {.left = 0};
    gr_alloc_t alloc = {counted_alloc, counted_free, &counted};
    cJSON *root, *part, *op;
    gr_error_t err;
    gr_exec_t x;
    model_t m;
    char *text, *whole = NULL;
    long n = 0;
    int wrong = 0;

    opt.case_file = "attention.json";
    CHECK(!open_attention(&x, &m, &opt, &err) && !gr_exec_inputs(&x, &err) &&
              !gr_exec_run(&x, &err),
          "%s", err.text);
    text = document_of(&x, &opt, "a \"quoted\" byte \xC3 and \xC3\xA9");
    root = text ? cJSON_Parse(text) : NULL;
    CHECK_THAT(root && !strchr(text, '\n'));
    CHECK_THAT(!strcmp(text_at(root, "message"), "a \"quoted\" byte ? and \xC3\xA9") &&
               !strcmp(text_at(root, "verdict"), "PASSED"));
    CHECK_THAT(!strcmp(text_at(root, "command"), "graph_runner --mode=C --case=attention.json"));
    part = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(root, "partitions"), 0);
    CHECK_THAT(!strcmp(text_at(part, "pattern"), "sdpa"));
    op = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(part, "ops"), 10);
    CHECK_THAT(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(part, "ops")) == 12 &&
               strlen(text_at(op, "kind")) > 0);
    for (int i = 0; i < 12; i++) {
        wrong +=
            strlen(text_at(cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(part, "ops"), i),
                           "role")) == 0;
    }
    CHECK_THAT(wrong == 0); /* every op of the pattern has its role */
    CHECK_THAT(
        strlen(text_at(cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(part, "steps"), 0),
                       "kernel")) > 0);
    CHECK_THAT(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(part, "report")) > 1);
    cJSON_Delete(root);
    cJSON_free(text);

    /* without memory for some of it there is no document rather than half of one */
    gr_alloc_set(&alloc);
    for (n = 0; !whole && n < 100000; n++) {
        counted = (counted_t){.left = n};
        whole = document_of(&x, &opt, NULL);
        gr_free(whole);
        CHECK_THAT(counted.live == 0);
    }
    gr_alloc_set(NULL);
    CHECK_THAT(n > 200 && n < 100000);
    close_attention(&x, &m);
}

int main(void)
{
    gr_alloc_set(NULL);
    test_dynamic();
    test_bad_dynamic();
    test_same_bits();
    test_same_bits_packed();
    test_no_memory_for_tensor();
    test_dump();
    test_document();
    test_work();
    test_roofline();
    test_limits();
    test_shapes();
    test_types_and_attrs();
    test_bad_knobs();
    test_options();
    test_npy();
    test_npy_conversion();
    test_npy_truncated();
    test_fill();
    test_describe();
    return check_finish();
}
