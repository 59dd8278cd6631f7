/* The JSON reader of graph_runner: what it accepts, what bad input gets, and that it survives
 * having no memory. */
#include "check.h"
#include "json.h"
#include "model.h"
#include "random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A graph with every kind of key; the tests break it in one place each. */
static const char good[] =
    "{\n"
    "  \"version\": \"3.7.0\", \"engine_kind\": \"cpu\", \"fpmath_mode\": \"bf16\", "
    "\"fpmath_mode_apply_to_int\": \"true\",\n"
    "  \"input_ports\": [0, 1, 2], \"output_ports\": [4],\n"
    "  \"graph\": [\n"
    "    {\"id\": 7, \"name\": \"deq \\u00e9 \\ud83d\\ude00\", \"kind\": \"DynamicDequantize\",\n"
    "     \"attrs\": {\"qtype\": {\"type\": \"string\", \"value\": \"per_group\"}, "
    "\"group_shape\": {\"type\": \"s64[]\", \"value\": [32, "
    "1]},\n"
    "               \"axis\": {\"type\": \"s64\", \"value\": 0}},\n"
    "     \"inputs\": [{\"id\": 0, \"dtype\": \"s4\", \"shape\": [64, 16], \"stride\": [1, 64], "
    "\"layout_type\": \"strided\",\n"
    "                  \"property_type\": \"constant\"},\n"
    "                {\"id\": 1, \"dtype\": \"f16\", \"shape\": [2, 16], \"stride\": [16, 1]}],\n"
    "     \"outputs\": [{\"id\": 3, \"dtype\": \"f16\", \"shape\": [64, 16], \"stride\": [16, 1], "
    "\"layout_type\": \"strided\"}]},\n"
    "    {\"id\": 8, \"kind\": \"MatMul\", \"attrs\": {\"transpose_b\": {\"type\": \"bool\", "
    "\"value\": 0}},\n"
    "     \"inputs\": [{\"id\": 2, \"dtype\": \"f16\", \"shape\": [5, 64]}, {\"id\": 3, \"dtype\": "
    "\"f16\", \"shape\": [64, 16]}],\n"
    "     \"outputs\": [{\"id\": 4, \"dtype\": \"f16\", \"shape\": [-9223372036854775808], "
    "\"stride\": [-9223372036854775808]}]}\n"
    "  ]\n"
    "}";

static int load(model_t *model, const char *text, size_t size, gr_error_t *err)
{
    *err = (gr_error_t){0};
    return model_load_text(model, "t.json", text, size, err);
}

/* good with the first `from` replaced by `to`; the caller frees it. */
static char *replaced(const char *from, const char *to)
{
    const char *at = strstr(good, from);
    size_t before = at ? (size_t)(at - good) : 0, size = sizeof good + strlen(to);
    char *text = malloc(size);

    if (!at || !text) {
        printf("test_json.c: \"%s\" is not in the good graph\n", from);
        exit(1);
    }
    snprintf(text, size, "%.*s%s%s", (int)before, good, to, at + strlen(from));
    return text;
}

/* ---- what is read ---------------------------------------------------------------------------- */

static void test_good(void)
{
    gr_error_t err;
    model_t m;
    const orc_attr_t *attr;

    CHECK(!load(&m, good, strlen(good), &err), "%s", err.text);
    CHECK_THAT(m.n_ops == 2 && m.ops[0].id == 7 && m.ops[1].id == 8 && m.ops[1].line == 12);
    CHECK_THAT(m.mode == sinter_fpmath_mode_bf16 && m.apply_to_int == 1);
    CHECK_THAT(!strcmp(m.ops[0].name, "deq \xC3\xA9 \xF0\x9F\x98\x80"));
    CHECK_THAT(m.ops[0].kind == sinter_op_dynamic_dequantize && m.ops[1].kind == sinter_op_matmul);
    attr = model_attr(&m.ops[0], sinter_op_attr_group_shape);
    CHECK_THAT(attr && attr->n == 2 && attr->s64[0] == 32 && attr->s64[1] == 1);
    CHECK_THAT(m.ops[0].inputs[0].strides[0] == 1 && m.ops[0].inputs[0].strides[1] == 64);
    CHECK_THAT(m.ops[0].inputs[0].property == sinter_tensor_property_constant);
    CHECK_THAT(m.ops[1].inputs[0].layout_type == sinter_layout_type_strided &&
               m.ops[1].inputs[0].strides[0] == 64);
    CHECK_THAT(m.ops[1].outputs[0].ndims == SINTER_UNKNOWN_NDIMS &&
               m.ops[1].outputs[0].layout_type == sinter_layout_type_any);
    CHECK_THAT(m.n_tensors == 5 && model_find(&m, 3)->producer == 0 &&
               model_find(&m, 4)->is_output && !model_find(&m, 3)->is_output);
    model_free(&m);
}

static const char *const accepted[] = {
    "{\"graph\": []}",
    "\xEF\xBB\xBF{\"graph\": []}",
    " \t\r\n{\"unknown\": {\"a\": [1.5e3, null, true, {}]}, \"graph\": [] }\n\n",
    "{\"graph\": [{\"kind\": \"ReLU\"}]}",
    "{\"gr\\u0061ph\": [{\"k\\u0069nd\": \"Re\\u004cU\"}]}",
    "{\"engine_kind\": \"cpu\", \"graph\": []}",
    "{\"engine_kind\": \"gpu\", \"graph\": []}",
    "{\"a\" : {\"graph\" : \"}]\\\"\"} , \"b\":[ ], \"c\":-1.5e-3,\"d\":null, \"graph\" : [ { "
    "\"kind\" : \"ReLU\" } ] }",
    "{\"graph\": [{\"kind\": \"ReLU\", \"future\": 1, \"inputs\": [{\"dtype\": \"f32\", \"id\": 1, "
    "\"shape\": [], \"stride\": [], \"x\": "
    "0}]}]}",
    "{\"graph\": [], \"fpmath_mode_apply_to_int\": true, \"fpmath_mode\": \"tf32\"}",
    "{\"graph\": [{\"kind\": \"Clamp\", \"attrs\": {\"min\": {\"type\": \"f32\", \"value\": "
    "\"-inf\"}, \"max\": {\"value\": 6, \"type\": "
    "\"f32\"}}}]}",
};

static void test_accepted(void)
{
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        gr_error_t err;
        model_t m;

        CHECK(!load(&m, accepted[i], strlen(accepted[i]), &err), "%s", err.text);
        model_free(&m);
    }
}

static void test_ids(void)
{
    static const char text[] =
        "{\"graph\": [{\"id\": 18446744073709551615, \"kind\": \"Add\", \"inputs\": ["
        "{\"id\": 9007199254740993, \"dtype\": \"f32\", \"shape\": [2]}, {\"id\": "
        "9007199254740992, \"dtype\": \"f32\", \"shape\": [2]}],"
        "\"outputs\": [{\"id\": 9007199254740994, \"dtype\": \"f32\", \"shape\": [2]}]}]}";
    gr_error_t err;
    model_t m;

    CHECK(!load(&m, text, strlen(text), &err), "%s", err.text);
    CHECK_THAT(m.ops[0].id == UINT64_MAX);
    CHECK_THAT(m.n_tensors == 3);
    CHECK_THAT(model_find(&m, 9007199254740993u) && model_find(&m, 9007199254740992u) &&
               model_find(&m, 9007199254740994u));
    model_free(&m);
}

/* ---- what is refused ------------------------------------------------------------------------- */

typedef struct bad {
    const char *from, *to, *message;
} bad_t;

static const bad_t bads[] = {
    /* grammar */
    {"{\n", "[\n", "',' or ']'"},
    {"\"version\"", "version", "t.json:2:3: expected a key in quotes, found 'version:'"},
    {"\"3.7.0\",", "\"3.7.0\"", "',' or '}'"},
    {"[0, 1, 2]", "[0, 1, 2,]", "expected a value"},
    {"[0, 1, 2]", "[0 1 2]", "t.json:3:21: expected ',' or ']', found '1'"},
    {"[0, 1, 2]", "[00, 1, 2]", "',' or ']'"},
    {"[0, 1, 2]", "[+1]", "expected a value"},
    {"[0, 1, 2]", "[.5]", "expected a value"},
    {"[0, 1, 2]", "[5.]", "expected a digit"},
    {"[0, 1, 2]", "[1e]", "expected a digit"},
    {"[0, 1, 2]", "[-]", "expected a digit"},
    {"[0, 1, 2]", "[nan]", "expected a value"},
    {"[0, 1, 2]", "[tru]", "expected a value"},
    {"[0, 1, 2]", "[1111111111111111111111111111111111111111111111111111111111111111]",
     "at most 63 characters"},
    {"\\u00e9", "\\u0000", "other than NUL"},
    {"\\u00e9", "\\uZZZZ", "escape"},
    {"\\u00e9", "\\x", "expected an escape sequence"},
    {"\\u00e9", "\n", "expected the end of a string"},
    {"\\ud83d\\ude00", "\\ud83d", "expected a surrogate pair"},
    {"\\ud83d\\ude00", "\\ude00", "escape"},
    {"  ]\n}", "  ]\n} x", "expected the end of the file, found 'x'"},
    /* the top level */
    {"\"graph\"", "\"grap\"", "t.json:1:1: expected an object with \"graph\""},
    {"\"engine_kind\": \"cpu\"", "\"engine_kind\": 1", "expected a string, found '1'"},
    {"\"engine_kind\": \"cpu\"", "\"engine_kind\": \"tpu\"",
     "t.json:2:38: expected the engine_kind \"cpu\" or \"gpu\", found '\"tpu\"'"},
    {"\"version\"", "\"gr\\u0061ph\": [], \"x\"", "each key only once"},
    {"\"bf16\"", "\"bf17\"", "t.json:2:60: expected an fpmath mode, found '\"bf17\"'"},
    {"\"bf16\"", "1", "expected a string"},
    {"\"true\"", "\"yes\"", "0, 1, true or false"},
    {"\"true\"", "2", "0, 1, true or false"},
    {"[0, 1, 2]", "{}", "array of tensor ids"},
    {"[0, 1, 2]", "[\"0\"]", "64-bit unsigned integer"},
    {"\"version\"", "\"graph\": [], \"x\"", "each key only once"},
    /* ids */
    {"\"id\": 7", "\"id\": -1", "64-bit unsigned integer, found '-1'"},
    {"\"id\": 7", "\"id\": 18446744073709551616", "64-bit unsigned integer"},
    {"\"id\": 7", "\"id\": 9007199254740993.0", "64-bit unsigned integer"},
    {"\"id\": 7", "\"id\": 1e3", "64-bit unsigned integer"},
    {"\"id\": 7", "\"id\": null", "64-bit unsigned integer"},
    /* ops and attributes */
    {"\"graph\": [\n", "\"graph\": [3,\n", "expected an op object"},
    {"\"MatMul\"", "\"Matmul\"", "t.json:12:23: expected an op kind, found '\"Matmul\"'"},
    {"\"MatMul\"", "39", "expected a string"},
    {"\"kind\": \"MatMul\"", "\"kin\": 0", "expected an object with \"kind\""},
    {"\"qtype\":", "\"qtyp\":", "known attribute instead of \"qtyp\""},
    {"\"s64[]\"", "\"s32[]\"", "one of bool, s64"},
    {"\"s64[]\"", "\"f32[]\"", "expected the type s64[] of attribute group_shape, found '\"f32["},
    {"{\"type\": \"bool\", \"value\": 0}", "{\"type\": \"s64\", \"value\": 0}",
     "expected the type bool of attribute transpose_b, found '\"s64\"'"},
    {"\"axis\": {\"type\": \"s64\"", "\"axis\": {\"type\": \"bool\"",
     "expected the type s64 or s64[] of attribute axis, found '\"bool\"'"},
    {"{\"type\": \"bool\", \"value\": 0}", "{\"type\": \"bool\"}",
     "expected an object with \"value\""},
    {"{\"type\": \"bool\", \"value\": 0}", "{\"value\": 0}", "expected an object with \"type\""},
    {"{\"type\": \"bool\", \"value\": 0}", "0", "attribute object"},
    {"[32, 1]", "[32, 1.5]", "64-bit integer, found '1.5'"},
    {"[32, 1]", "[9223372036854775808]", "64-bit integer"},
    {"[32, 1]", "32", "array of integers"},
    {"\"per_group\"", "7", "expected a string"},
    {"\"inputs\": [", "\"inputs\": [{}, ", "expected an object with \"id\""},
    {"\"inputs\": [", "\"inputs\": 1, \"y\": [", "array of tensors"},
    /* tensors */
    {"\"s4\"", "\"s3\"", "t.json:8:36: expected a data type, found '\"s3\"'"},
    {"\"s4\"", "4", "expected a string"},
    {"\"strided\"", "\"dense\"", "one of undef, any, strided, opaque"},
    {"\"constant\"", "\"const\"", "one of undef, variable"},
    {"[64, 16]", "[-64, 16]", "dims of at least 0"},
    {"[64, 16]", "[64, 16.0]", "64-bit integer"},
    {"[64, 16]", "[64, 18446744073709551616]", "64-bit integer"},
    {"[64, 16]", "\"64x16\"", "at most 12 integers"},
    {"[64, 16]", "[1,1,1,1,1,1,1,1,1,1,1,1,1]", "at most 12 integers"},
    {"[1, 64]", "[1, 64, 1]", "as many strides as dims"},
    {"[5, 64]", "[4294967296, 4294967296, 4294967296]", "product fits 64 bits"},
};

static void test_bad(void)
{
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        char *text = replaced(bads[i].from, bads[i].to), detail[1400];
        gr_error_t err;
        model_t m;
        int status = load(&m, text, strlen(text), &err);

        snprintf(detail, sizeof detail, "%s -> %s: got \"%s\", expected \"%s\"", bads[i].from,
                 bads[i].to, err.text, bads[i].message);
        CHECK(status && strstr(err.text, bads[i].message) && !strncmp(err.text, "t.json:", 7) &&
                  !err.out_of_memory,
              "%s", detail);
        model_free(&m);
        free(text);
    }
}

/* In a buffer of exactly that size, so that a sanitizer sees reads behind the end. */
static void test_truncated(void)
{
    int bad = 0;

    for (size_t n = 0; n < strlen(good); n++) {
        char *text = malloc(n ? n : 1);
        gr_error_t err;
        model_t m;

        if (!text) {
            exit(1);
        }
        memcpy(text, good, n);
        bad += !load(&m, text, n, &err) || strncmp(err.text, "t.json:", 7) || err.out_of_memory;
        model_free(&m);
        free(text);
    }
    CHECK_THAT(bad == 0);
}

static void test_deep(void)
{
    static const char *const units[] = {"[", "{\"a\":", "[[{\"graph\":"};
    const size_t depth = 1000000;

    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = strlen(units[i]);
        char *text = malloc(n * depth);
        gr_error_t err;
        model_t m;

        if (!text) {
            exit(1);
        }
        for (size_t k = 0; k < depth; k++) {
            memcpy(text + k * n, units[i], n);
        }
        CHECK_THAT(load(&m, text, n * depth, &err) == -1);
        CHECK(strstr(err.text, "at most 64 levels of nesting"), "%s", err.text);
        model_free(&m);
        free(text);
    }
}

/* Bytes changed at random: the reader must either accept the text or refuse it with a message. */
static void test_mutated(void)
{
    static const char spice[] = "{}[]\",:-+.eE0123456789ntfu\\ \n\x01\xff";
    uint64_t state = 12345;
    int silent = 0;

    for (int round = 0; round < 20000; round++) {
        char text[sizeof good];
        gr_error_t err;
        model_t m;

        memcpy(text, good, sizeof good);
        for (int k = 0; k < 1 + round % 3; k++) {
            const int at = random_below(&state, sizeof good - 1);
            text[at] = spice[random_below(&state, sizeof spice - 1)];
        }
        if (load(&m, text, sizeof good - 1, &err)) {
            silent += err.text[0] == 0;
        }
        model_free(&m);
    }
    CHECK_THAT(silent == 0);
}

/* ---- many ops -------------------------------------------------------------------------------- */

/* A chain of n ReLUs; reversed if backwards. */
static char *chain(int n, int backwards, size_t *size)
{
    char *text = malloc(64 + (size_t)n * 160);
    size_t used;

    if (!text) {
        exit(1);
    }
    used = (size_t)sprintf(text, "{\"graph\": [");
    for (int k = 0; k < n; k++) {
        int i = backwards ? n - 1 - k : k;

        used += (size_t)sprintf(text + used,
                                "%s{\"id\": %d, \"kind\": \"ReLU\", \"inputs\": [{\"id\": %d, "
                                "\"dtype\": \"f32\", \"shape\": [4]}], "
                                "\"outputs\": [{\"id\": %d, \"dtype\": \"f32\", \"shape\": [4]}]}",
                                k ? "," : "", i, i, i + 1);
    }
    used += (size_t)sprintf(text + used, "]}");
    *size = used;
    return text;
}

static void test_many_ops(void)
{
    for (int backwards = 0; backwards < 2; backwards++) {
        sinter_graph_t *graph = NULL;
        gr_error_t err;
        model_t m;
        size_t size;
        char *text = chain(100000, backwards, &size);
        const clock_t start = clock(); /* processor time: the machine may be busy */

        CHECK(!load(&m, text, size, &err), "%s", err.text);
        CHECK_THAT(m.n_ops == 100000 && m.n_tensors == 100001);
        CHECK_THAT(model_find(&m, 0)->is_input && model_find(&m, 100000)->is_output);
        CHECK_THAT(clock() - start < 20 * CLOCKS_PER_SEC);
        CHECK(!model_build(&m, NULL, &graph, &err), "%s", err.text);
        sinter_graph_destroy(&graph);
        model_free(&m);
        free(text);
    }
}

/* ---- no memory ------------------------------------------------------------------------------- */

typedef struct meter {
    long left, live; /* allocations that still succeed; blocks not freed */
} meter_t;

static void *metered_alloc(size_t bytes, void *user)
{
    meter_t *m = user;
    void *ptr = m->left-- > 0 ? malloc(bytes ? bytes : 1) : NULL;

    m->live += ptr != NULL;
    return ptr;
}

static void metered_free(void *ptr, void *user)
{
    meter_t *m = user;

    m->live--;
    free(ptr);
}

static void test_no_memory(void)
{
    meter_t meter = {0};
    gr_alloc_t alloc = {metered_alloc, metered_free, &meter};
    int wrong = 0, leaks = 0;
    long n = 0;

    gr_alloc_set(&alloc);
    for (int done = 0; !done && n < 100000; n++) {
        gr_error_t err;
        model_t m;

        meter = (meter_t){.left = n};
        done = load(&m, good, strlen(good), &err) == 0;
        wrong += !done && (!err.out_of_memory || strcmp(err.text, "out of memory"));
        model_free(&m);
        leaks += meter.live != 0;
    }
    gr_alloc_set(NULL);
    CHECK_THAT(n >= 5 && n < 100000); /* the model, a name with escapes, what cJSON takes for it */
    CHECK_THAT(wrong == 0);
    CHECK_THAT(leaks == 0);
}

/* ---- how much memory a file takes ------------------------------------------------------------ */

/* Bytes in use and at most in use; each block begins with its size. */
typedef struct tide {
    size_t live, most;
} tide_t;

enum { HEADER = 64 };

static void *tidal_alloc(size_t bytes, void *user)
{
    tide_t *t = user;
    char *block = malloc(bytes + HEADER);

    if (!block) {
        return NULL;
    }
    memcpy(block, &bytes, sizeof bytes);
    t->live += bytes;
    t->most = t->live > t->most ? t->live : t->most;
    return block + HEADER;
}

static void tidal_free(void *ptr, void *user)
{
    tide_t *t = user;
    size_t bytes;

    memcpy(&bytes, (char *)ptr - HEADER, sizeof bytes);
    t->live -= bytes;
    free((char *)ptr - HEADER);
}

/* A million values of two bytes in the place of each list of the format, and where the format
 * has no list. Reading takes at most five times the size of the file, and a refusal names its
 * place. */
static void test_dense_lists(void)
{
    static const struct {
        const char *before, *value, *after, *message; /* message "": accepted */
    } cases[] = {
        {"{\"graph\":\n [{\"kind\": \"ReLU\", \"inputs\": [{\"id\": 0, \"dtype\": \"f32\", "
         "\"shape\": [",
         "1", "]}]}]}", "t.json:2:66: expected an array of at most 12 integers"},
        {"{\"graph\":\n [{\"kind\": \"ReLU\", \"inputs\": [{\"id\": 0, \"dtype\": \"f32\", "
         "\"shape\": [1], \"stride\": [",
         "1", "]}]}]}", "t.json:2:81: expected an array of at most 12 integers"},
        {"{\"graph\":\n [", "0", "]}", "t.json:2:3: expected an op object"},
        {"{\"graph\":\n [{\"kind\": \"ReLU\"}, ", "0", "]}", "t.json:2:21: expected an op object"},
        {"{\"graph\": [{\"kind\": \"ReLU\",\n \"inputs\": [", "0", "]}]}",
         "t.json:2:13: expected a tensor object"},
        {"{\"graph\": [{\"kind\": \"ReLU\",\n \"attrs\": {\"axis\": [", "0", "]}}]}",
         "t.json:2:20: expected an attribute object"},
        {"{\"graph\": [{\"kind\": \"StaticReshape\", \"attrs\": {\"shape\": {\"type\": \"s64[]\", "
         "\"value\": [",
         "1", "]}}}]}", ""},
        {"{\"graph\": [{\"kind\": \"Quantize\", \"attrs\": {\"scales\": {\"type\": \"f32[]\", "
         "\"value\": [",
         "1", "]}}}]}", ""},
        {"{\"graph\": [], \"input_ports\": [", "7", "]}", ""},
        {"{\"graph\": [], \"future\": [", "7", "]}", ""},
    };
    enum { N = 1000000 };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t before = strlen(cases[i].before),
                     size = before + 2 * N - 1 + strlen(cases[i].after);
        tide_t tide = {0};
        gr_alloc_t alloc = {tidal_alloc, tidal_free, &tide};
        char *text = malloc(size + 1), detail[1400];
        gr_error_t err;
        model_t m;
        int status;

        if (!text) {
            exit(1);
        }
        memcpy(text, cases[i].before, before);
        for (size_t k = 0; k < N; k++) {
            text[before + 2 * k] = *cases[i].value;
            text[before + 2 * k + 1] = ',';
        }
        strcpy(text + before + 2 * N - 1, cases[i].after);
        gr_alloc_set(&alloc);
        status = load(&m, text, size, &err);
        model_free(&m);
        gr_alloc_set(NULL);
        snprintf(detail, sizeof detail, "list %zu: got \"%s\", expected \"%s\"", i, err.text,
                 cases[i].message);
        CHECK((status != 0) == (*cases[i].message != 0) && strstr(err.text, cases[i].message), "%s",
              detail);
        snprintf(detail, sizeof detail, "list %zu: %zu bytes for a text of %zu", i, tide.most,
                 size);
        CHECK(tide.most <= 5 * size && tide.live == 0, "%s", detail);
        free(text);
    }
}

/* ---- what is accepted with a warning --------------------------------------------------------- */

static void check_warning(const char *from, const char *to, const char *message)
{
    char *text = replaced(from, to), detail[1400];
    gr_error_t err;
    model_t m;

    CHECK(!load(&m, text, strlen(text), &err), "%s", err.text);
    snprintf(detail, sizeof detail, "%s -> %s: got \"%s\", expected \"%s\"", from, to,
             m.n_warnings ? m.warnings[0] : "", message);
    CHECK(m.n_warnings == (*message != 0) && (!*message || !strcmp(m.warnings[0], message)), "%s",
          detail);
    model_free(&m);
    free(text);
}

static void test_warnings(void)
{
    gr_error_t err;
    model_t m;
    char *text;

    check_warning("\"cpu\"", "\"cpu\"", "");
    check_warning(
        "\"cpu\"", "\"gpu\"",
        "t.json:2:38: warning: the graph was made for engine_kind \"gpu\", it runs on the CPU");
    check_warning("[0, 1, 2]", "[0, 1, 6]",
                  "t.json:3:25: warning: input_ports names tensor 6, which the graph does not "
                  "have; the port is ignored");
    check_warning("[0, 1, 2]", "[0, 1, 3]",
                  "t.json:3:25: warning: input_ports names tensor 3, which an op of the graph "
                  "computes; the port is ignored");
    check_warning("[4]", "[4,\n 5]",
                  "t.json:4:2: warning: output_ports names tensor 5, which the graph does not "
                  "have; the port is ignored");
    check_warning("[4]", "[2]",
                  "t.json:3:46: warning: output_ports names tensor 2, which no op of the graph "
                  "computes; the port is ignored");
    check_warning(
        "\"engine_kind\"", "\"engine\"",
        "t.json:2:33: warning: member \"engine\" is ignored; known are version engine_kind "
        "fpmath_mode fpmath_mode_apply_to_int input_ports output_ports graph");
    check_warning("[2, 16], \"stride\"", "[2, 16], \"strides\"",
                  "t.json:10:72: warning: member \"strides\" is ignored; known are id dtype shape "
                  "stride layout_type property_type");
    check_warning("\"name\": \"deq", "\"label\": \"deq",
                  "t.json:5:24: warning: member \"label\" is ignored; known are id name kind attrs "
                  "inputs outputs");
    check_warning("[4]", "[3]", ""); /* a tensor that an op reads as well may be an output */
    text = replaced("[0, 1, 2]", "[20, 21, 22, 23, 24, 25, 26, 27]");
    CHECK(!load(&m, text, strlen(text), &err), "%s", err.text);
    CHECK_THAT(
        m.n_warnings == 7 &&
        !strcmp(m.warnings[6], "t.json:3:18: warning: input_ports: 2 more ports are ignored"));
    model_free(&m);
    free(text);
}

/* ---- what the library refuses keeps its place ------------------------------------------------ */

static void check_refused(const char *from, const char *to, const char *message)
{
    char *text = replaced(from, to), detail[1400];
    sinter_graph_t *graph = NULL;
    gr_error_t err;
    model_t m;

    CHECK(!load(&m, text, strlen(text), &err), "%s", err.text);
    CHECK_THAT(model_build(&m, NULL, &graph, &err) == -1 && !graph);
    snprintf(detail, sizeof detail, "%s -> %s: got \"%s\", expected \"%s\"", from, to, err.text,
             message);
    CHECK(strstr(err.text, message), "%s", detail);
    sinter_graph_destroy(&graph);
    model_free(&m);
    free(text);
}

static void test_library_refusals(void)
{
    sinter_graph_t *graph = NULL;
    gr_error_t err;
    model_t m;

    CHECK(!load(&m, good, strlen(good), &err), "%s", err.text);
    CHECK(!model_build(&m, NULL, &graph, &err), "%s", err.text);
    sinter_graph_destroy(&graph);
    model_free(&m);
    check_refused("[32, 1]", "[7, 1]", "t.json:5: op 7 (DynamicDequantize): ");
    check_refused("[32, 1]", "[0, 1]", "t.json:5: op 7 (DynamicDequantize): ");
    check_refused("\"shape\": [2, 16]", "\"shape\": [3, 16]",
                  "t.json:5: op 7 (DynamicDequantize): ");
    check_refused("\"per_group\"", "\"per_grop\"", "op 7 (DynamicDequantize): invalid_graph_op: ");
    check_refused("[5, 64]", "[5, 65]", "op 8");
    check_refused("[64, 16], \"stride\": [1, 64]", "[4611686018427387904, 16], \"stride\": [1, 64]",
                  "op 7 (DynamicDequantize): ");
    check_refused("[64, 16], \"stride\": [1, 64]", "[64, 16], \"stride\": [1, 9223372036854775807]",
                  "op 7 (DynamicDequantize): ");
    check_refused("\"id\": 8", "\"id\": 7", "t.json:12: op 7 (MatMul): ");
    check_refused("{\"id\": 2, ", "{\"id\": 4, ", "invalid_graph"); /* a cycle */
    check_refused("{\"id\": 4, ", "{\"id\": 3, ", "invalid_graph"); /* two producers */
    check_refused("\"layout_type\": \"strided\",\n", "\"layout_type\": \"opaque\",\n",
                  "op 7 (DynamicDequantize): invalid_arguments: ");
    check_refused("\"layout_type\": \"strided\",\n",
                  "\"layout_type\": \"opaque\", \"layout_id\": 18446744073709551615,\n",
                  "18446744073709551615 is no id of an opaque layout");
}

int main(void)
{
    gr_alloc_set(NULL);
    test_good();
    test_accepted();
    test_ids();
    test_bad();
    test_truncated();
    test_deep();
    test_mutated();
    test_many_ops();
    test_no_memory();
    test_dense_lists();
    test_warnings();
    test_library_refusals();
    return check_finish();
}
