/* docs/ops.md lists the data types of each port of each op: those that sinter_op_kind_input_takes
 * and sinter_op_kind_output_takes name. Each listed type compiles in some graph of one op, and
 * sinter_graph_add_op refuses every other one. */
#include "passive.h"
#include "spec_run.h"

enum { PORTS = 10 };

/* An op whose tensors have @ and the number of a port, inputs first, in place of id and type.
 * types: of these ports. Where one of them is tried with another type, so are all with its letter
 * in `together`. Several rows of an op add to one another. */
typedef struct row {
    const char *spec;
    const char *types, *together;
} row_t;

static const row_t rows[] = {
    {"Abs @0:4 -> @1:4", "f32 f32", "ab"},
    {"Add @0:4 @1:4 -> @2:4", "f32 f32 f32", "abc"},
    {"Add @0:4 @1:4 -> @2:4", "s32 s32 s32", "aaa"},
    {"AvgPool strides=1 pads_begin=0 pads_end=0 kernel=2 exclude_pad=1 @0:1x4x2 -> @1:1x3x2",
     "f32 f32", "ab"},
    {"BatchNormInference epsilon=0.1 @0:2x3 @1:3 @2:3 @3:3 @4:3 -> @5:2x3",
     "f32 f32 f32 f32 f32 f32", "abcdef"},
    {"BiasAdd @0:2x3 @1:3 -> @2:2x3", "f32 f32 f32", "abc"},
    {"Clamp min=0 max=1 @0:4 -> @1:4", "f32 f32", "ab"},
    {"Concat axis=0 @0:8 @1:8 @2:8 @3:8 @4:8 @5:8 @6:8 @7:8 @8:8 -> @9:72",
     "f32 f32 f32 f32 f32 f32 f32 f32 f32 f32", "aaaaaaaaaa"},
    {"Convolution strides=1 pads_begin=0 pads_end=0 dilations=1 @0:1x5x2 @1:3x2x4 @2:4 -> @3:1x3x4",
     "f32 f32 f32 f32", "abcd"},
    {"ConvTranspose strides=1 pads_begin=0 pads_end=0 dilations=1 @0:1x5x2 @1:3x4x2 @2:4 -> "
     "@3:1x7x4",
     "f32 f32 f32 f32", "abcd"},
    {"Dequantize scales=0.5 zps=0 @0:8 -> @1:8", "s8 f32", "ab"},
    {"Dequantize scales=0.5 split_type=f6_e3m2 @0:8 @1:8 -> @2:8", "u4 u2 f32", "abc"},
    {"Divide @0:4 @1:4 -> @2:4", "f32 f32 f32", "abc"},
    {"Divide @0:4 @1:4 -> @2:4", "s32 s32 s32", "aaa"},
    {"DynamicDequantize qtype=per_channel axis=0 @0:2x8 @1:2 -> @2:2x8", "s8 f32 f32", "abc"},
    {"DynamicDequantize qtype=per_channel axis=0 @0:2x8 @1:2 @2:2 -> @3:2x8", "s8 f32 s8 f32",
     "abcd"},
    {"DynamicDequantize qtype=per_channel axis=0 split_type=f6_e3m2 @0:2x8 @1:2 @2:2x8 -> @3:2x8",
     "u4 f32 u2 f32", "abcd"},
    {"DynamicQuantize qtype=per_channel axis=0 @0:2x8 @1:2 @2:2 -> @3:2x8", "f32 f32 s8 s8",
     "abcd"},
    {"DynamicQuantize quantization_kind=dynamic_symmetric qtype=per_channel axis=0 @0:2x8 -> "
     "@1:2x8 @2:2",
     "f32 s8 f32", "abc"},
    {"DynamicQuantize quantization_kind=dynamic_asymmetric qtype=per_channel axis=0 @0:2x8 -> "
     "@1:2x8 @2:2 @3:2",
     "f32 s8 f32 s8", "abcd"},
    {"DynamicQuantize quantization_kind=dynamic_mx split_type=f6_e3m2 @0:4x32 -> @1:4x32 @2:4x1 "
     "@3:4x32",
     "f32 u4 e8m0 u2", "abcd"},
    {"CumSum @0:4x8 -> @1:4x8", "f32 f32", "ab"},
    {"Elu alpha=1 @0:4 -> @1:4", "f32 f32", "ab"},
    {"Exp @0:4 -> @1:4", "f32 f32", "ab"},
    {"GELU @0:4 -> @1:4", "f32 f32", "ab"},
    {"HardSwish @0:4 -> @1:4", "f32 f32", "ab"},
    {"Interpolate mode=nearest sizes=4 @0:1x2x3 -> @1:1x4x3", "f32 f32", "ab"},
    {"LayerNorm @0:2x8 @1:8 @2:8 -> @3:2x8 @4:2 @5:2", "f32 f32 f32 f32 f32 f32", "abcdef"},
    {"LeakyReLU alpha=0.5 @0:4 -> @1:4", "f32 f32", "ab"},
    {"LinearAttention mode=gated_delta @0:2x3x1x4 @1:2x3x1x4 @2:2x3x1x5 @3:2x1x5x4 @4:2x3x1x1 "
     "@5:2x3x1x1 @6:2 @7:2 -> @8:2x3x1x5 @9:2x1x5x4",
     "f32 f32 f32 f32 f32 f32 s32 s32 f32 f32", "abcdefghid"},
    {"LinearAttention mode=gated_bonus @0:2x3x1x4 @1:2x3x1x4 @2:2x3x1x5 @3:2x1x5x4 @4:2x3x1x1 "
     "@5:1x4 @6:2 @7:2 -> @8:2x3x1x5 @9:2x1x5x4",
     "f32 f32 f32 f32 f32 f32 s32 s32 f32 f32", "abcdefghid"},
    {"LinearAttention mode=gated_low_rank @0:2x3x1x4 @1:2x3x1x4 @2:2x3x1x5 @3:2x1x5x4 @4:2x3x1x1 "
     "@5:2x3x1x4 @6:2x3x1x4 @7:2 @8:2 -> @9:2x3x1x5 @A:2x1x5x4",
     "f32 f32 f32 f32 f32 f32 f32 s32 s32 f32 f32", "abcdefghijd"},
    {"LinearAttention mode=linear @0:2x3x1x4 @1:2x3x1x4 @2:2x3x1x5 @3:2x1x5x4 @4:2 @5:2 -> "
     "@6:2x3x1x5 @7:2x1x5x4",
     "f32 f32 f32 f32 s32 s32 f32 f32", "abcdefgd"},
    {"Log @0:4 -> @1:4", "f32 f32", "ab"},
    {"LogSoftmax @0:2x4 -> @1:2x4", "f32 f32", "ab"},
    {"MatMul @0:2x8 @1:8x4 @2:4 -> @3:2x4", "f32 f32 f32 f32", "abcd"},
    {"Maximum @0:4 @1:4 -> @2:4", "f32 f32 f32", "abc"},
    {"Maximum @0:4 @1:4 -> @2:4", "s32 s32 s32", "aaa"},
    {"MaxPool strides=1 pads_begin=0 pads_end=0 kernel=2 @0:1x4x2 -> @1:1x3x2", "f32 f32", "ab"},
    {"Minimum @0:4 @1:4 -> @2:4", "f32 f32 f32", "abc"},
    {"Minimum @0:4 @1:4 -> @2:4", "s32 s32 s32", "aaa"},
    {"Mish @0:4 -> @1:4", "f32 f32", "ab"},
    {"Multiply @0:4 @1:4 -> @2:4", "f32 f32 f32", "abc"},
    {"Multiply @0:4 @1:4 -> @2:4", "s32 s32 s32", "aaa"},
    {"PReLU @0:2x3 @1:3 -> @2:2x3", "f32 f32 f32", "abc"},
    {"Quantize scales=0.5 zps=0 @0:8 -> @1:8", "f32 s8", "ab"},
    {"Reciprocal @0:4 -> @1:4", "f32 f32", "ab"},
    {"ReduceL1 axes=1 @0:2x4 -> @1:2", "f32 f32", "ab"},
    {"ReduceL2 axes=1 @0:2x4 -> @1:2", "f32 f32", "ab"},
    {"ReduceMax axes=1 @0:2x4 -> @1:2", "f32 f32", "ab"},
    {"ReduceMean axes=1 @0:2x4 -> @1:2", "f32 f32", "ab"},
    {"ReduceMin axes=1 @0:2x4 -> @1:2", "f32 f32", "ab"},
    {"ReduceProd axes=1 @0:2x4 -> @1:2", "f32 f32", "ab"},
    {"ReduceSum axes=1 @0:2x4 -> @1:2", "f32 f32", "ab"},
    {"ReLU @0:4 -> @1:4", "f32 f32", "ab"},
    {"Reorder @0:8 -> @1:8", "f32 f32", "aa"},
    {"Round @0:4 -> @1:4", "f32 f32", "ab"},
    {"Sigmoid @0:4 -> @1:4", "f32 f32", "ab"},
    {"SoftMax axis=1 @0:2x4 @1:2x1 -> @2:2x4 @3:2x1", "f32 f32 f32 f32", "abcd"},
    {"SoftPlus @0:4 -> @1:4", "f32 f32", "ab"},
    {"Sqrt @0:4 -> @1:4", "f32 f32", "ab"},
    {"Square @0:4 -> @1:4", "f32 f32", "ab"},
    {"SquaredDifference @0:4 @1:4 -> @2:4", "f32 f32 f32", "abc"},
    {"SquaredDifference @0:4 @1:4 -> @2:4", "s32 s32 s32", "aaa"},
    {"StaticReshape shape=16 special_zero=0 @0:2x8 -> @1:16", "f32 f32", "aa"},
    {"StaticTranspose order=1,0 @0:8x8 -> @1:8x8", "f32 f32", "aa"},
    {"Subtract @0:4 @1:4 -> @2:4", "f32 f32 f32", "abc"},
    {"Subtract @0:4 @1:4 -> @2:4", "s32 s32 s32", "aaa"},
    {"Tanh @0:4 -> @1:4", "f32 f32", "ab"},
    {"TypeCast @0:8 -> @1:8", "f32 f32", "ab"},
    {"HardSigmoid alpha=1 beta=1 @0:4 -> @1:4", "f32 f32", "ab"},
    {"Select @0:4 @1:4 @2:4 -> @3:4", "boolean f32 f32 f32", "abcd"},
    {"Select @0:4 @1:4 @2:4 -> @3:4", "boolean s32 s32 s32", "abbb"},
    {"Pow beta=2 @0:4 -> @1:4", "f32 f32", "ab"},
    {"GroupNorm groups=2 @0:2x3x4 @1:4 @2:4 -> @3:2x3x4 @4:2x2 @5:2x2", "f32 f32 f32 f32 f32 f32",
     "abcdef"},
    {"GenIndex axis=0 @0:8 -> @1:8", "f32 s32", "ab"},
    {"GreaterEqual @0:4 @1:4 -> @2:4", "f32 f32 boolean", "abc"},
    {"GreaterEqual @0:4 @1:4 -> @2:4", "s32 s32 boolean", "aab"},
    {"RMSNorm @0:2x8 @1:8 -> @2:2x8", "f32 f32 f32", "abc"},
    {"Dropout @0:4 @1:- @2:- @3:- -> @4:4", "f32 s64 s64 f32 f32", "abcda"},
    {"RotaryEmbedding @0:1x2x3x4 @1:3x2 @2:3x2 -> @3:1x2x3x4", "f32 f32 f32 f32", "abcd"},
    {"RotaryEmbedding @0:1x2x3x4 @1:9x2 @2:9x2 @3:1x3 -> @4:1x2x3x4", "f32 f32 f32 s32 f32",
     "abcde"},
    {"RotaryEmbedding @0:1x2x3x4 @1:2 @2:1x3 -> @3:1x2x3x4", "f32 f32 s32 f32", "abcd"},
    {"Gather @0:4x8 @1:3 -> @2:3x8", "f32 s32 f32", "aba"},
    {"ScatterRows @0:4x8 @1:3 @2:3x8 -> @3:4x8", "f32 s32 f32 f32", "abaa"},
    {"Slice starts=0 ends=1 @0:4x8 -> @1:1x8", "f32 f32", "aa"},
    {"TopK k=2 @0:2x8 -> @1:2x2 @2:2x2", "f32 f32 s32", "aab"},
    {"HadamardTransform @0:2x8 -> @1:2x8", "f32 f32", "ab"},
};
/* Such ops are checked, but not executed, as the notes of docs/ops.md say. */
static const row_t checked_rows[] = {
    {"End @0:8 ->", "f32", "a"},
    {"Dropout @0:4 @1:- @2:- @3:- -> @4:4 @5:4", "f32 s64 s64 f32 f32 u8", "abcdae"},
    {"Interpolate mode=nearest @0:1x2x3 @1:1 -> @2:1x4x3", "f32 s32 f32", "abc"},
    {"ReduceL1 @0:2x4 @1:1 -> @2:2", "f32 s32 f32", "abc"},
    {"ReduceL2 @0:2x4 @1:1 -> @2:2", "f32 s32 f32", "abc"},
    {"ReduceMax @0:2x4 @1:1 -> @2:2", "f32 s32 f32", "abc"},
    {"ReduceMean @0:2x4 @1:1 -> @2:2", "f32 s32 f32", "abc"},
    {"ReduceMin @0:2x4 @1:1 -> @2:2", "f32 s32 f32", "abc"},
    {"ReduceProd @0:2x4 @1:1 -> @2:2", "f32 s32 f32", "abc"},
    {"ReduceSum @0:2x4 @1:1 -> @2:2", "f32 s32 f32", "abc"},
};
enum { ROWS = sizeof rows / sizeof *rows, ALL = ROWS + sizeof checked_rows / sizeof *checked_rows };

static const sinter_data_type_t all_types[] = {
#define SINTER_DTYPE(value, name, ...) sinter_##name,
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
};
enum { TYPES = sizeof all_types / sizeof *all_types };

/* The number of a port: a digit, or A for 10. */
static int digit_of(char c)
{
    return c == 'A' ? 10 : c - '0';
}

/* The spec with ids and types; port `at` and its fellows have type t. */
static void write_spec(const row_t *row, int at, const char *t, char *out, size_t size)
{
    size_t n = 0;
    for (const char *c = row->spec; *c != '\0' && n + 40 < size; c++) {
        if (*c != '@') {
            out[n++] = *c;
            continue;
        }
        const int port = digit_of(*++c);
        char type[20];
        const char *from = row->types;
        for (int i = 0; i < port; i++) {
            from = strchr(from, ' ') + 1;
        }
        snprintf(type, sizeof type, "%.*s", (int)strcspn(from, " "), from);
        n += (size_t)sprintf(out + n, "%d:%s", port,
                             row->together[port] == row->together[at] ? t : type);
    }
    out[n] = '\0';
}

/* The number of input or output `port` of a row, -1: there is none. */
static int port_of(const row_t *row, bool output, int port)
{
    const char *arrow = strstr(row->spec, "->"), *c = output ? arrow : row->spec;
    while ((c = strchr(c, '@')) != NULL && (output || c < arrow)) {
        if (port-- == 0) {
            return digit_of(c[1]);
        }
        c++;
    }
    return -1;
}

/* The graph of one op: added, and, unless that is all, compiled. *added: what adding said. */
static sinter_status_t try_spec(const char *spec, bool compile, sinter_status_t *added)
{
    sinter_graph_t *graph = NULL;
    sinter_partition_t *part = NULL;
    sinter_compiled_partition_t *compiled = NULL;
    CHECK_THAT(sinter_graph_create(&graph, NULL, sinter_cpu) == sinter_success);
    sinter_status_t status = *added = spec_add(graph, NULL, spec);
    if (compile && status == sinter_success) {
        size_t n = 0;
        status = sinter_graph_finalize(graph);
        status = status ? status : sinter_graph_filter(graph, sinter_partition_policy_fusion);
        status = status ? status : sinter_graph_get_partition_num(graph, &n);
        CHECK(n == 1, "%s: %zu partitions", spec, n);
        status = status ? status : sinter_graph_get_partitions(graph, 1, &part);
        status =
            status ? status : sinter_partition_compile(part, NULL, 0, NULL, 0, NULL, &compiled);
    }
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&part);
    sinter_graph_destroy(&graph);
    return status;
}

static void check_port(sinter_op_kind_t kind, bool output, int port)
{
    const char *name = sinter_op_kind_name(kind), *side = output ? "output" : "input";
    for (int t = 0; t < TYPES; t++) {
        const char *type = sinter_data_type_name(all_types[t]);
        const bool listed = output ? sinter_op_kind_output_takes(kind, port, all_types[t])
                                   : sinter_op_kind_input_takes(kind, port, all_types[t]);
        bool there = false, runs = false;
        char why[300] = "";
        for (int r = 0; r < ALL; r++) {
            const row_t *row = r < ROWS ? &rows[r] : &checked_rows[r - ROWS];
            const size_t length = strcspn(row->spec, " ");
            if (strncmp(row->spec, name, length) != 0 || name[length] != '\0') {
                continue;
            }
            const int at = port_of(row, output, port);
            if (at < 0) {
                continue;
            }
            char spec[400];
            sinter_status_t added;
            write_spec(row, at, type, spec, sizeof spec);
            const sinter_status_t status = try_spec(spec, r < ROWS, &added);
            there = true;
            runs = runs || status == sinter_success;
            if (status != sinter_success) {
                snprintf(why, sizeof why, "%s", sinter_last_error_message());
            }
            CHECK(listed || added == sinter_invalid_data_type,
                  "%s is not listed for %s %d of %s, and add_op of %s does not say so: %s", type,
                  side, port, name, spec, why);
        }
        CHECK(there, "%s %d of %s has no row here", side, port, name);
        CHECK(runs == listed, "%s, %s %d of %s: listed %d, runs %d: %s", type, side, port, name,
              listed, runs, why);
    }
}

int main(int argc, char **argv)
{
    static const sinter_op_kind_t kinds[] = {
#define SINTER_OP(value, name, ...) sinter_op_##name,
#include <sinter/ops.def>
#undef SINTER_OP
    };
    (void)argc;
    wait_passively(argv);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        sinter_op_schema_t schema = {.size = sizeof schema};
        CHECK_THAT(sinter_op_kind_get_schema(kinds[k], &schema) == sinter_success);
        if (!sinter_op_kind_is_executed(kinds[k])) {
            continue;
        }
        for (int i = 0; i < schema.max_inputs && i < PORTS - 1; i++) {
            check_port(kinds[k], false, i);
        }
        for (int i = 0; i < schema.max_outputs; i++) {
            check_port(kinds[k], true, i);
        }
    }
    return check_finish();
}
