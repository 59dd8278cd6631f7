/* The public functions at their edges: NULL for every pointer, calls in the wrong order,
 * destroying twice, names, tensors that do not fit, and an allocator that fails at every single
 * call. */
#include "check.h"
#include "spec.h"

#define BAD(call)                                                                         \
    do {                                                                                  \
        sinter_status_t bad_ = (call);                                                    \
        CHECK(bad_ == sinter_invalid_arguments && sinter_last_error_message()[0] != '\0', \
              "%s: %s", #call, sinter_status_name(bad_));                                 \
    } while (0)
#define GOOD(call)                                                                     \
    do {                                                                               \
        sinter_status_t good_ = (call);                                                \
        CHECK(good_ == sinter_success, "%s: %s: %s", #call, sinter_status_name(good_), \
              sinter_last_error_message());                                            \
    } while (0)

static const char matmul[] = "MatMul 1:f32:2x3 2:f32:3x4 -> 3:f32:*; ReLU 3:f32:* -> 4:f32:*";

/* ---- library and names ----------------------------------------------------------------------- */

static void check_names(void)
{
    sinter_data_type_t type = sinter_f16;
    sinter_op_kind_t kind = sinter_op_exp;
    sinter_op_attr_t attr = sinter_op_attr_axis;
    sinter_fpmath_mode_t mode = sinter_fpmath_mode_any;
    sinter_cpu_isa_t isa = sinter_isa_avx2;
    CHECK(sinter_version() ==
              SINTER_VERSION_MAJOR * 10000 + SINTER_VERSION_MINOR * 100 + SINTER_VERSION_PATCH,
          "version");
    CHECK(sinter_last_error_message() != NULL, "last message");
    CHECK(strcmp(sinter_status_name(sinter_invalid_shape), "invalid_shape") == 0 &&
              strcmp(sinter_status_name((sinter_status_t)99), "unknown") == 0,
          "status");
    CHECK(!sinter_data_type_parse(NULL, &type) && !sinter_data_type_parse("f32", NULL) &&
              !sinter_data_type_parse("f31", &type) && type == sinter_f16,
          "type");
    CHECK(!sinter_op_kind_parse(NULL, &kind) && !sinter_op_kind_parse("Exp", NULL) &&
              !sinter_op_kind_parse("Ex", &kind) && kind == sinter_op_exp,
          "kind");
    CHECK(!sinter_op_attr_parse(NULL, &attr) && !sinter_op_attr_parse("axis", NULL) &&
              !sinter_op_attr_parse("x", &attr) && attr == sinter_op_attr_axis,
          "attr");
    CHECK(!sinter_fpmath_mode_parse(NULL, &mode) && !sinter_fpmath_mode_parse("any", NULL) &&
              !sinter_fpmath_mode_parse("x", &mode),
          "mode");
    CHECK(!sinter_cpu_isa_parse(NULL, &isa) && !sinter_cpu_isa_parse("avx2", NULL) &&
              !sinter_cpu_isa_parse("x", &isa),
          "isa");
    CHECK(sinter_data_type_name((sinter_data_type_t)-5) == NULL &&
              sinter_op_kind_name((sinter_op_kind_t)1000) == NULL,
          "names outside");
    CHECK(sinter_op_attr_name((sinter_op_attr_t)1000) == NULL &&
              sinter_fpmath_mode_name((sinter_fpmath_mode_t)9) == NULL,
          "names outside");
    CHECK(sinter_cpu_isa_name((sinter_cpu_isa_t)9) == NULL, "names outside");
    CHECK(sinter_op_kind_is_executed(sinter_op_matmul) == 1 &&
              sinter_op_kind_is_executed(sinter_op_convolution_backward_data) == 0,
          "executed");
    CHECK(sinter_op_kind_is_executed((sinter_op_kind_t)-1) == 0, "executed outside");
    BAD(sinter_set_verbose(NULL));
    BAD(sinter_set_verbose("dispatch,loud"));
    BAD(sinter_set_graph_dump(NULL));
    BAD(sinter_set_graph_dump("graph,everything"));
    GOOD(sinter_set_graph_dump("none"));
}

/* ---- engine and stream ----------------------------------------------------------------------- */

static void *some_alloc(size_t bytes, size_t alignment, void *user)
{
    (void)alignment, (void)user;
    return malloc(bytes);
}

static void check_engine(void)
{
    sinter_engine_t *engine = NULL;
    sinter_stream_t *stream = NULL;
    sinter_engine_desc_t desc = {.size = sizeof desc};
    sinter_stream_desc_t threads = {.size = sizeof threads, .threads = 3};
    int n = 0;
    BAD(sinter_engine_create(NULL, NULL));
    BAD(sinter_engine_destroy(NULL));
    desc.allocator.alloc = some_alloc;
    BAD(sinter_engine_create(&engine, &desc));
    desc.allocator.alloc = NULL;
    desc.size = 0;
    BAD(sinter_engine_create(&engine, &desc));
    desc.size = sizeof desc;
    desc.max_isa = (sinter_cpu_isa_t)99;
    BAD(sinter_engine_create(&engine, &desc));
    CHECK(engine == NULL, "output untouched");
    desc.max_isa = sinter_isa_generic;
    GOOD(sinter_engine_create(&engine, &desc));
    CHECK(sinter_engine_get_isa(engine) == sinter_isa_generic &&
              sinter_engine_get_isa(NULL) >= sinter_isa_generic,
          "isa");
    BAD(sinter_stream_create(NULL, engine, NULL));
    threads.threads = -1;
    BAD(sinter_stream_create(&stream, engine, &threads));
    threads.threads = 3;
    threads.size = 0;
    BAD(sinter_stream_create(&stream, engine, &threads));
    threads.size = sizeof threads;
    CHECK(stream == NULL, "output untouched");
    GOOD(sinter_stream_create(&stream, engine, &threads));
    BAD(sinter_stream_get_threads(NULL, &n));
    BAD(sinter_stream_get_threads(stream, NULL));
    GOOD(sinter_stream_get_threads(stream, &n));
    CHECK(n == 3, "%d threads", n);
    /* in any order, twice */
    GOOD(sinter_engine_destroy(&engine));
    GOOD(sinter_engine_destroy(&engine));
    GOOD(sinter_stream_destroy(&stream));
    GOOD(sinter_stream_destroy(&stream));
    CHECK(engine == NULL && stream == NULL, "destroy sets the pointer to NULL");
    BAD(sinter_stream_destroy(NULL));
    GOOD(sinter_stream_create(&stream, NULL, NULL));
    GOOD(sinter_stream_get_threads(stream, &n));
    CHECK(n >= 1, "%d threads by default", n);
    GOOD(sinter_stream_destroy(&stream));
}

/* Callers whose headers have fewer fields than the library, or more. */
static void check_sizes(void)
{
    struct {
        sinter_engine_desc_t desc;
        uint64_t later[4];
    } engine_desc = {.desc = {.size = sizeof engine_desc, .max_isa = sinter_isa_generic}};
    struct {
        sinter_stream_desc_t desc;
        uint64_t later[4];
    } stream_desc = {.desc = {.size = sizeof stream_desc, .threads = 3}};
    struct {
        sinter_constant_cache_stats_t stats;
        unsigned char later[32];
    } stats;
    const sinter_stream_desc_t only_size = {.size = sizeof(size_t), .threads = 3};
    const sinter_stream_desc_t exact = {
        .size = offsetof(sinter_stream_desc_t, threads) + sizeof(int), .threads = 3};
    const sinter_stream_desc_t none = {.size = 0, .threads = 3},
                               less = {.size = sizeof(size_t) - 1, .threads = 3};
    sinter_engine_desc_t old_engine = {.size = offsetof(sinter_engine_desc_t, max_isa),
                                       .max_isa = (sinter_cpu_isa_t)99};
    sinter_engine_t *engine = NULL;
    sinter_stream_t *stream = NULL;
    int n = 0, by_default = 0;
    GOOD(sinter_engine_create(&engine, &old_engine));
    CHECK(sinter_engine_get_isa(engine) == sinter_engine_get_isa(NULL),
          "a field that the caller lacks is not read");
    GOOD(sinter_engine_destroy(&engine));
    GOOD(sinter_engine_create(&engine, &engine_desc.desc));
    CHECK(sinter_engine_get_isa(engine) == sinter_isa_generic, "a longer description of an engine");
    GOOD(sinter_stream_create(&stream, NULL, NULL));
    GOOD(sinter_stream_get_threads(stream, &by_default));
    GOOD(sinter_stream_destroy(&stream));
    GOOD(sinter_stream_create(&stream, engine, &only_size));
    GOOD(sinter_stream_get_threads(stream, &n));
    CHECK(n == by_default, "a stream's description without threads: %d threads", n);
    GOOD(sinter_stream_destroy(&stream));
    GOOD(sinter_stream_create(&stream, engine, &exact));
    GOOD(sinter_stream_get_threads(stream, &n));
    CHECK(n == 3, "a stream's description without padding: %d threads", n);
    GOOD(sinter_stream_destroy(&stream));
    GOOD(sinter_stream_create(&stream, engine, &stream_desc.desc));
    GOOD(sinter_stream_get_threads(stream, &n));
    CHECK(n == 3, "a longer description of a stream: %d threads", n);
    GOOD(sinter_stream_destroy(&stream));
    BAD(sinter_stream_create(&stream, engine, &none));
    CHECK(strstr(sinter_last_error_message(), "sinter_stream_desc_t") != NULL, "%s",
          sinter_last_error_message());
    BAD(sinter_stream_create(&stream, engine, &less));
    /* Statistics of an empty cache are zeros but for the budget. Bytes behind size stay. */
    const size_t sizes[] = {sizeof(size_t), offsetof(sinter_constant_cache_stats_t, bytes),
                            offsetof(sinter_constant_cache_stats_t, refused), sizeof stats.stats,
                            sizeof stats};
    GOOD(sinter_engine_set_constant_cache_budget(engine, 12345));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t end = sizes[i] < sizeof stats.stats ? sizes[i] : sizeof stats.stats;
        memset(&stats, 0x5A, sizeof stats);
        stats.stats.size = sizes[i];
        GOOD(sinter_engine_get_constant_cache_stats(engine, &stats.stats));
        CHECK(stats.stats.size == sizes[i], "size stays %zu", sizes[i]);
        CHECK(sizes[i] == sizeof(size_t) || stats.stats.budget == 12345, "size %zu: budget",
              sizes[i]);
        CHECK(sizes[i] < sizeof stats.stats ||
                  (stats.stats.refused == 0 && stats.stats.evicted == 0),
              "size %zu: counts", sizes[i]);
        for (size_t at = end; at < sizeof stats; at++) {
            CHECK(((const unsigned char *)&stats)[at] == 0x5A, "size %zu: byte %zu is written",
                  sizes[i], at);
        }
    }
    stats.stats.size = 0;
    BAD(sinter_engine_get_constant_cache_stats(engine, &stats.stats));
    GOOD(sinter_engine_destroy(&engine));
}

/* ---- logical tensors and tensors ------------------------------------------------------------- */

static void check_logical_tensors(void)
{
    const int64_t dims[] = {2, 3}, negative[] = {2, -3}, strides[] = {1, 2};
    sinter_logical_tensor_t lt, other;
    const sinter_tensor_property_t none = sinter_tensor_property_undef;
    size_t bytes = 0;
    int equal = 0;
    BAD(sinter_logical_tensor_init(NULL, 1, sinter_f32, 2, dims, none));
    BAD(sinter_logical_tensor_init(&lt, 1, sinter_f32, 2, NULL, none));
    BAD(sinter_logical_tensor_init(&lt, 1, sinter_f32, 13, dims, none));
    BAD(sinter_logical_tensor_init(&lt, 1, sinter_f32, -1, dims, none));
    CHECK(sinter_logical_tensor_init(&lt, 1, sinter_f32, 2, negative, none) == sinter_invalid_shape,
          "negative dim");
    CHECK(sinter_logical_tensor_init(&lt, 1, (sinter_data_type_t)99, 2, dims, none) ==
              sinter_invalid_data_type,
          "data type");
    BAD(sinter_logical_tensor_init(&lt, 1, sinter_f32, 2, dims, (sinter_tensor_property_t)9));
    BAD(sinter_logical_tensor_init_with_strides(NULL, 1, sinter_f32, 2, dims, strides, none));
    BAD(sinter_logical_tensor_init_with_strides(&lt, 1, sinter_f32, 2, NULL, strides, none));
    BAD(sinter_logical_tensor_init_with_strides(&lt, 1, sinter_f32, 2, dims, NULL, none));
    BAD(sinter_logical_tensor_init_unknown(NULL, 1, sinter_f32, 2, none));
    CHECK(sinter_logical_tensor_init_unknown(&lt, 1, sinter_f32, 99, none) != sinter_success,
          "99 dims");
    GOOD(sinter_logical_tensor_init(&other, 1, sinter_f32, 0, NULL, none));
    GOOD(sinter_logical_tensor_init(&other, 1, sinter_f32, 2, dims, none));
    GOOD(sinter_logical_tensor_init_with_strides(&lt, 1, sinter_f32, 2, dims, strides, none));
    BAD(sinter_logical_tensor_get_bytes(NULL, &bytes));
    BAD(sinter_logical_tensor_get_bytes(&lt, NULL));
    GOOD(sinter_logical_tensor_get_bytes(&lt, &bytes));
    CHECK(bytes == 24, "%zu bytes", bytes);
    BAD(sinter_logical_tensor_is_equal(NULL, &lt, &equal));
    BAD(sinter_logical_tensor_is_equal(&lt, NULL, &equal));
    BAD(sinter_logical_tensor_is_equal(&lt, &lt, NULL));
    GOOD(sinter_logical_tensor_is_equal(&lt, &lt, &equal));
    CHECK(equal == 1, "equal to itself");
    GOOD(sinter_logical_tensor_is_equal(&lt, &other, &equal));
    CHECK(equal == 0, "other strides");
    GOOD(sinter_logical_tensor_init_unknown(&lt, 1, sinter_f32, 2, none));
    CHECK(sinter_logical_tensor_get_bytes(&lt, &bytes) == sinter_invalid_shape,
          "bytes of unknown dims");
}

/* The value is the tensor's own, whose memory the caller's variable never is. */
static void check_set_scalar(sinter_tensor_t *tensor, const sinter_logical_tensor_t *matrix)
{
    float value = 5, other[6] = {6};
    sinter_tensor_t *large = NULL;
    void *pointer = NULL;
    BAD(sinter_tensor_set_scalar(NULL, &value));
    BAD(sinter_tensor_set_scalar(tensor, NULL));
    GOOD(sinter_tensor_set_scalar(tensor, &value));
    value = 7;
    GOOD(sinter_tensor_get_data(tensor, &pointer));
    CHECK(*(float *)pointer == 5.0f && pointer != &value, "the scalar is copied");
    GOOD(sinter_tensor_set_data(tensor, other, sizeof other));
    GOOD(sinter_tensor_set_scalar(tensor, &value));
    GOOD(sinter_tensor_get_data(tensor, &pointer));
    CHECK(*(float *)pointer == 7.0f && other[0] == 6.0f, "the memory before is left alone");
    GOOD(sinter_tensor_create(&large, NULL, matrix, other, sizeof other));
    BAD(sinter_tensor_set_scalar(large, &value));
    GOOD(sinter_tensor_destroy(&large));
}

static void check_tensors(void)
{
    float data[6] = {1};
    const int64_t dims[] = {2, 3}, fewer[] = {1, 3}, more[] = {3, 3};
    sinter_logical_tensor_t lt, scalar, got;
    sinter_tensor_t *tensor = NULL;
    void *pointer = NULL;
    sinter_logical_tensor_init(&lt, 1, sinter_f32, 2, dims, sinter_tensor_property_undef);
    sinter_logical_tensor_init(&scalar, 2, sinter_f32, 0, NULL, sinter_tensor_property_host_scalar);
    BAD(sinter_tensor_create(NULL, NULL, &lt, data, sizeof data));
    BAD(sinter_tensor_create(&tensor, NULL, NULL, data, sizeof data));
    BAD(sinter_tensor_create(&tensor, NULL, &lt, data, sizeof data - 1));
    CHECK(tensor == NULL, "output untouched");
    GOOD(sinter_tensor_create(&tensor, NULL, &lt, data, sizeof data));
    BAD(sinter_tensor_set_data(NULL, data, sizeof data));
    BAD(sinter_tensor_set_data(tensor, data, 3));
    GOOD(sinter_tensor_set_data(tensor, data, SINTER_BYTES_TRUSTED));
    GOOD(sinter_tensor_set_data(tensor, NULL, 0));
    GOOD(sinter_tensor_set_data(tensor, data, sizeof data));
    BAD(sinter_tensor_set_dims(NULL, 2, fewer, NULL));
    BAD(sinter_tensor_set_dims(tensor, 2, NULL, NULL));
    BAD(sinter_tensor_set_dims(tensor, 2, more, NULL));
    BAD(sinter_tensor_set_dims(tensor, 1, fewer, NULL));
    BAD(sinter_tensor_set_dims(tensor, 3, (const int64_t[]){1, 1, 3}, NULL));
    GOOD(sinter_tensor_set_dims(tensor, 2, fewer, NULL));
    BAD(sinter_tensor_get_data(NULL, &pointer));
    BAD(sinter_tensor_get_data(tensor, NULL));
    GOOD(sinter_tensor_get_data(tensor, &pointer));
    BAD(sinter_tensor_get_logical_tensor(NULL, &got));
    BAD(sinter_tensor_get_logical_tensor(tensor, NULL));
    GOOD(sinter_tensor_get_logical_tensor(tensor, &got));
    CHECK(pointer == data && got.dims[0] == 1 && got.dims[1] == 3, "data and dims");
    GOOD(sinter_tensor_destroy(&tensor));
    GOOD(sinter_tensor_destroy(&tensor));
    BAD(sinter_tensor_destroy(NULL));
    BAD(sinter_tensor_create_scalar(NULL, NULL, &scalar, data));
    BAD(sinter_tensor_create_scalar(&tensor, NULL, NULL, data));
    BAD(sinter_tensor_create_scalar(&tensor, NULL, &scalar, NULL));
    BAD(sinter_tensor_create_scalar(&tensor, NULL, &lt, data));
    GOOD(sinter_tensor_create_scalar(&tensor, NULL, &scalar, data));
    data[0] = 2;
    GOOD(sinter_tensor_get_data(tensor, &pointer));
    CHECK(*(float *)pointer == 1.0f, "the scalar is copied");
    check_set_scalar(tensor, &lt);
    GOOD(sinter_tensor_destroy(&tensor));
}

/* ---- ops ------------------------------------------------------------------------------------- */

static void check_ops(void)
{
    sinter_op_t *op = NULL;
    sinter_logical_tensor_t lt = spec_tensor("1:f32:2");
    const float f32 = 1;
    const int64_t s64[2] = {1, 2};
    uint64_t id = 0;
    sinter_op_kind_t kind;
    BAD(sinter_op_create(NULL, NULL, 1, sinter_op_abs, "x"));
    BAD(sinter_op_create(&op, NULL, 1, sinter_op_last_symbol, "x"));
    BAD(sinter_op_create(&op, NULL, 1, (sinter_op_kind_t)-1, "x"));
    CHECK(op == NULL, "output untouched");
    GOOD(sinter_op_create(&op, NULL, 5, sinter_op_softmax, NULL));
    BAD(sinter_op_add_input(NULL, &lt));
    BAD(sinter_op_add_input(op, NULL));
    BAD(sinter_op_add_output(NULL, &lt));
    BAD(sinter_op_add_output(op, NULL));
    BAD(sinter_op_set_attr_f32(NULL, sinter_op_attr_alpha, &f32, 1));
    BAD(sinter_op_set_attr_f32(op, sinter_op_attr_alpha, NULL, 1));
    BAD(sinter_op_set_attr_f32(op, sinter_op_attr_axis, &f32, 1));
    BAD(sinter_op_set_attr_f32(op, sinter_op_attr_alpha, &f32, 0));
    BAD(sinter_op_set_attr_s64(NULL, sinter_op_attr_axis, s64, 1));
    BAD(sinter_op_set_attr_s64(op, sinter_op_attr_axis, NULL, 1));
    BAD(sinter_op_set_attr_s64(op, sinter_op_attr_begin_norm_axis, s64, 2));
    BAD(sinter_op_set_attr_s64(op, sinter_op_attr_mode, s64, 1));
    BAD(sinter_op_set_attr_s64(op, (sinter_op_attr_t)0x33, s64, 1));
    BAD(sinter_op_set_attr_bool(NULL, sinter_op_attr_keep_dims, 1));
    BAD(sinter_op_set_attr_bool(op, sinter_op_attr_axis, 1));
    BAD(sinter_op_set_attr_str(NULL, sinter_op_attr_mode, "none"));
    BAD(sinter_op_set_attr_str(op, sinter_op_attr_mode, NULL));
    BAD(sinter_op_set_attr_str(op, sinter_op_attr_undef, "none"));
    BAD(sinter_op_get_id(NULL, &id));
    BAD(sinter_op_get_id(op, NULL));
    BAD(sinter_op_get_kind(NULL, &kind));
    BAD(sinter_op_get_kind(op, NULL));
    GOOD(sinter_op_get_id(op, &id));
    GOOD(sinter_op_get_kind(op, &kind));
    CHECK(id == 5 && kind == sinter_op_softmax, "id and kind");
    /* setting twice replaces: the first value alone would be refused */
    GOOD(sinter_op_set_attr_str(op, sinter_op_attr_mode, "bad"));
    GOOD(sinter_op_set_attr_str(op, sinter_op_attr_mode, "none"));
    GOOD(sinter_op_set_attr_s64(op, sinter_op_attr_axis, (const int64_t[]){0}, 1));
    GOOD(sinter_op_add_input(op, &lt));
    lt.id = 2;
    GOOD(sinter_op_add_output(op, &lt));
    sinter_graph_t *graph = NULL;
    GOOD(sinter_graph_create(&graph, NULL, sinter_cpu));
    GOOD(sinter_graph_add_op(graph, op));
    GOOD(sinter_op_destroy(&op)); /* the graph has its own copy */
    GOOD(sinter_op_destroy(&op));
    BAD(sinter_op_destroy(NULL));
    GOOD(sinter_graph_finalize(graph));
    GOOD(sinter_graph_destroy(&graph));
}

/* ---- graph and partitions -------------------------------------------------------------------- */

static void check_graph_nulls(sinter_graph_t *graph)
{
    sinter_fpmath_mode_t mode;
    sinter_logical_tensor_t lt;
    sinter_op_t *op = NULL;
    uint64_t id = 1;
    size_t count = 0;
    int flag = 0;
    BAD(sinter_graph_create(NULL, NULL, sinter_cpu));
    BAD(sinter_graph_create_with_fpmath_mode(NULL, NULL, sinter_cpu, sinter_fpmath_mode_any, 0));
    BAD(sinter_graph_destroy(NULL));
    BAD(sinter_graph_set_fpmath_mode(NULL, sinter_fpmath_mode_any, 0));
    BAD(sinter_graph_set_fpmath_mode(graph, (sinter_fpmath_mode_t)77, 0));
    BAD(sinter_graph_get_fpmath_mode(NULL, &mode, &flag));
    BAD(sinter_graph_get_fpmath_mode(graph, NULL, &flag));
    BAD(sinter_graph_get_fpmath_mode(graph, &mode, NULL));
    GOOD(sinter_op_create(&op, NULL, 1, sinter_op_abs, NULL));
    BAD(sinter_graph_add_op(NULL, op));
    BAD(sinter_graph_add_op(graph, NULL));
    GOOD(sinter_op_destroy(&op));
    BAD(sinter_graph_set_ports(NULL, 0, NULL, 0, NULL));
    BAD(sinter_graph_set_ports(graph, 1, NULL, 1, &id));
    BAD(sinter_graph_set_ports(graph, 1, &id, 1, NULL));
    BAD(sinter_graph_finalize(NULL));
    BAD(sinter_graph_is_finalized(NULL, &flag));
    BAD(sinter_graph_is_finalized(graph, NULL));
    BAD(sinter_graph_filter(NULL, sinter_partition_policy_fusion));
    BAD(sinter_graph_get_partition_num(NULL, &count));
    BAD(sinter_graph_get_partition_num(graph, NULL));
    BAD(sinter_graph_get_partitions(NULL, 0, NULL));
    BAD(sinter_graph_query_logical_tensor(NULL, 1, &lt));
    BAD(sinter_graph_query_logical_tensor(graph, 1, NULL));
    BAD(sinter_graph_dump(NULL, "x"));
    BAD(sinter_graph_dump(graph, NULL));
}

static void check_partition(sinter_partition_t *p)
{
    sinter_logical_tensor_t ports[4];
    sinter_fpmath_mode_t mode;
    uint64_t ids[4];
    size_t n = 0, id = 9;
    int flag = 0;
    const char *text = NULL;
    BAD(sinter_partition_destroy(NULL));
    BAD(sinter_partition_get_id(NULL, &id));
    BAD(sinter_partition_get_id(p, NULL));
    BAD(sinter_partition_get_op_num(NULL, &n));
    BAD(sinter_partition_get_op_num(p, NULL));
    BAD(sinter_partition_get_ops(NULL, 2, ids));
    BAD(sinter_partition_get_ops(p, 2, NULL));
    BAD(sinter_partition_get_ops(p, 4, ids));
    BAD(sinter_partition_get_input_num(NULL, &n));
    BAD(sinter_partition_get_input_num(p, NULL));
    BAD(sinter_partition_get_output_num(NULL, &n));
    BAD(sinter_partition_get_output_num(p, NULL));
    BAD(sinter_partition_get_inputs(NULL, 2, ports));
    BAD(sinter_partition_get_inputs(p, 2, NULL));
    BAD(sinter_partition_get_inputs(p, 1, ports));
    BAD(sinter_partition_get_outputs(NULL, 1, ports));
    BAD(sinter_partition_get_outputs(p, 1, NULL));
    BAD(sinter_partition_get_outputs(p, 2, ports));
    BAD(sinter_partition_is_supported(NULL, &flag));
    BAD(sinter_partition_is_supported(p, NULL));
    BAD(sinter_partition_set_fpmath_mode(NULL, sinter_fpmath_mode_any, 0));
    BAD(sinter_partition_set_fpmath_mode(p, (sinter_fpmath_mode_t)77, 0));
    BAD(sinter_partition_get_fpmath_mode(NULL, &mode, &flag));
    BAD(sinter_partition_get_fpmath_mode(p, NULL, &flag));
    BAD(sinter_partition_get_fpmath_mode(p, &mode, NULL));
    BAD(sinter_partition_explain(NULL, &text));
    BAD(sinter_partition_explain(p, NULL));
    BAD(sinter_partition_get_pattern(NULL, &text));
    BAD(sinter_partition_get_pattern(p, NULL));
    BAD(sinter_partition_dump(NULL, "x"));
    BAD(sinter_partition_dump(p, NULL));
    GOOD(sinter_partition_get_id(p, &id));
    GOOD(sinter_partition_get_op_num(p, &n));
    CHECK(id == 0 && n == 2, "partition %zu has %zu ops", id, n);
    GOOD(sinter_partition_get_ops(p, 2, ids));
    GOOD(sinter_partition_get_inputs(p, 2, ports));
    CHECK(ids[0] == 100 && ids[1] == 101 && ports[0].id + ports[1].id == 3, "ops and inputs");
    GOOD(sinter_partition_get_outputs(p, 1, ports));
    CHECK(ports[0].id == 4 && strcmp(spec_text(&ports[0]), "2x4") == 0, "output %s",
          spec_text(&ports[0]));
    GOOD(sinter_partition_get_fpmath_mode(p, &mode, &flag));
    CHECK(mode == sinter_fpmath_mode_bf16 && flag == 1, "the graph's mode");
    GOOD(sinter_partition_set_fpmath_mode(p, sinter_fpmath_mode_int8, 0));
    GOOD(sinter_partition_get_fpmath_mode(p, &mode, &flag));
    CHECK(mode == sinter_fpmath_mode_int8 && flag == 0, "its own mode");
    GOOD(sinter_partition_is_supported(p, &flag));
    GOOD(sinter_partition_explain(p, &text));
    CHECK(flag == 1 && text[0] != '\0', "supported and explained");
    GOOD(sinter_partition_get_pattern(p, &text));
    CHECK(strcmp(text, "matmul") == 0, "pattern %s", text);
}

static void check_graph(void)
{
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partitions[4] = {NULL};
    sinter_logical_tensor_t lt;
    sinter_fpmath_mode_t mode;
    size_t n = 0;
    int flag = 0;
    CHECK(sinter_graph_create(&graph, NULL, sinter_gpu) == sinter_unimplemented && graph == NULL,
          "gpu");
    BAD(sinter_graph_create_with_fpmath_mode(&graph, NULL, sinter_cpu, (sinter_fpmath_mode_t)5, 0));
    GOOD(sinter_graph_create_with_fpmath_mode(&graph, NULL, sinter_any_engine,
                                              sinter_fpmath_mode_bf16, 1));
    GOOD(sinter_graph_get_fpmath_mode(graph, &mode, &flag));
    CHECK(mode == sinter_fpmath_mode_bf16 && flag == 1, "mode");
    GOOD(spec_add(graph, NULL, matmul));
    /* before finalize */
    BAD(sinter_graph_filter(graph, sinter_partition_policy_fusion));
    BAD(sinter_graph_get_partition_num(graph, &n));
    BAD(sinter_graph_get_partitions(graph, 4, partitions));
    BAD(sinter_graph_query_logical_tensor(graph, 1, &lt));
    GOOD(sinter_graph_is_finalized(graph, &flag));
    CHECK(flag == 0, "not finalized");
    GOOD(sinter_graph_finalize(graph));
    GOOD(sinter_graph_is_finalized(graph, &flag));
    CHECK(flag == 1, "finalized");
    check_graph_nulls(graph);
    /* after finalize, before filter */
    CHECK(spec_add(graph, NULL, "#9 Abs 4:f32:2x4 -> 5:f32:2x4") == sinter_invalid_arguments,
          "add_op after finalize");
    BAD(sinter_graph_set_ports(graph, 0, NULL, 0, NULL));
    BAD(sinter_graph_get_partition_num(graph, &n));
    BAD(sinter_graph_get_partitions(graph, 4, partitions));
    BAD(sinter_graph_filter(graph, (sinter_partition_policy_t)0));
    BAD(sinter_graph_query_logical_tensor(graph, 77, &lt));
    GOOD(sinter_graph_query_logical_tensor(graph, 3, &lt));
    CHECK(strcmp(spec_text(&lt), "2x4") == 0, "inferred %s", spec_text(&lt));
    /* another policy partitions anew; partitions outlive the graph */
    GOOD(sinter_graph_filter(graph, sinter_partition_policy_debug));
    GOOD(sinter_graph_get_partition_num(graph, &n));
    CHECK(n == 2, "%zu partitions in debug", n);
    GOOD(sinter_graph_get_partitions(graph, 2, partitions));
    GOOD(sinter_graph_filter(graph, sinter_partition_policy_fusion));
    GOOD(sinter_graph_get_partition_num(graph, &n));
    CHECK(n == 1, "%zu partitions fused", n);
    BAD(sinter_graph_get_partitions(graph, 0, partitions));
    BAD(sinter_graph_get_partitions(graph, 1, NULL));
    GOOD(sinter_graph_get_partitions(graph, 1, partitions + 2));
    GOOD(sinter_graph_destroy(&graph));
    GOOD(sinter_graph_destroy(&graph));
    CHECK(graph == NULL, "destroy sets the pointer to NULL");
    check_partition(partitions[2]);
    for (int i = 0; i < 3; i++) {
        GOOD(sinter_partition_destroy(&partitions[i]));
        GOOD(sinter_partition_destroy(&partitions[i]));
        CHECK(partitions[i] == NULL, "destroy sets the pointer to NULL");
    }
}

/* An empty graph is a graph. */
static void check_empty(void)
{
    sinter_graph_t *graph = NULL;
    size_t n = 9;
    GOOD(spec_graph(&graph, NULL, ""));
    GOOD(sinter_graph_filter(graph, sinter_partition_policy_fusion));
    GOOD(sinter_graph_get_partition_num(graph, &n));
    CHECK(n == 0, "%zu partitions", n);
    sinter_graph_destroy(&graph);
}

/* ---- a failing allocator --------------------------------------------------------------------- */

typedef struct memory {
    long calls, live, fail_at; /* fail_at: the call that gets NULL, and all after it if sticky */
    bool sticky;
} memory_t;

static void *counting_alloc(size_t bytes, size_t alignment, void *user)
{
    memory_t *m = user;
    m->calls++;
    if (m->calls == m->fail_at || (m->sticky && m->calls > m->fail_at && m->fail_at > 0)) {
        return NULL;
    }
    size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void *p = aligned_alloc(alignment, rounded);
    m->live += p != NULL;
    return p;
}

static void counting_free(void *ptr, void *user)
{
    memory_t *m = user;
    m->live -= ptr != NULL;
    free(ptr);
}

/* Attention over a compressed K with a scale, a mask and everything the builder can allocate. */
static const char attention[] =
    "DynamicDequantize qtype=per_group group_shape=1,1,8,1 1:s4:1x2x8x16 2:f16:1x2x1x16 "
    "3:s4:1x2x1x16 -> 4:f16:*; "
    "MatMul 5:f16:1x2x4x8 4:f16:* -> 6:f16:*; Divide 6:f16:* 7:f16:- -> 8:f16:*; Add 8:f16:* "
    "9:f16:1x1x4x16 -> 10:f16:*; "
    "SoftMax axis=-1 mode=inf_as_zero 10:f16:* -> 11:f16:*; MatMul 11:f16:* 12:f16:1x2x16x8 -> "
    "13:f16:*; "
    "Quantize scales=0.5 zps=3 13:f16:* -> 14:u8:*; ports 1,2,3,5,7,9,12 -> 13,14";

static sinter_status_t build_all(memory_t *m)
{
    sinter_engine_desc_t desc = {.size = sizeof desc,
                                 .allocator = {counting_alloc, counting_free, m}};
    sinter_engine_t *engine = NULL;
    sinter_graph_t *graph = NULL;
    sinter_stream_t *stream = NULL;
    sinter_partition_t *partitions[16] = {NULL};
    size_t n = 0;
    sinter_status_t status = sinter_engine_create(&engine, &desc);
    status = status == sinter_success ? sinter_stream_create(&stream, engine, NULL) : status;
    status = status == sinter_success ? spec_graph(&graph, engine, attention) : status;
    status = status == sinter_success ? sinter_graph_filter(graph, sinter_partition_policy_fusion)
                                      : status;
    status = status == sinter_success ? sinter_graph_get_partition_num(graph, &n) : status;
    status = status == sinter_success ? sinter_graph_get_partitions(graph, 16, partitions) : status;
    CHECK(status != sinter_success || (n >= 1 && n <= 16), "%zu partitions", n);
    sinter_engine_destroy(&engine);
    sinter_graph_destroy(&graph);
    sinter_stream_destroy(&stream);
    for (size_t i = 0; i < n && status == sinter_success; i++) {
        sinter_partition_destroy(&partitions[i]);
    }
    return status;
}

static void check_failing_allocator(void)
{
    memory_t m = {0};
    GOOD(build_all(&m));
    long all = m.calls;
    CHECK(m.live == 0 && all > 10, "%ld blocks leak of %ld", m.live, all);
    for (long n = 1; n <= all; n++) {
        for (int sticky = 0; sticky < 2; sticky++) {
            m = (memory_t){.fail_at = n, .sticky = sticky};
            sinter_status_t status = build_all(&m);
            CHECK(status == sinter_out_of_memory, "allocation %ld of %ld fails: %s", n, all,
                  sinter_status_name(status));
            CHECK(m.live == 0, "allocation %ld of %ld fails: %ld blocks leak", n, all, m.live);
            CHECK(strstr(sinter_last_error_message(), "out of memory") != NULL, "message \"%s\"",
                  sinter_last_error_message());
        }
    }
    printf("%ld allocations failed one by one\n", all);
}

/* A graph whose add_op ran out of memory goes on as if that op had not been tried. */
static void check_oom_is_atomic(void)
{
    memory_t m = {0};
    sinter_engine_desc_t desc = {.size = sizeof desc,
                                 .allocator = {counting_alloc, counting_free, &m}};
    sinter_engine_t *engine = NULL;
    sinter_graph_t *graph = NULL;
    GOOD(sinter_engine_create(&engine, &desc));
    GOOD(sinter_graph_create(&graph, engine, sinter_cpu));
    int refused = 0;
    for (int i = 0; i < 300; i++) {
        char spec[128];
        snprintf(spec, sizeof spec, "#%d Add %d:f32:2x3 %d:f32:3 -> %d:f32:2x3", i, 3 * i,
                 3 * i + 1, 3 * i + 3);
        for (int again = 1;; again++) {
            m.fail_at = m.calls + again;
            sinter_status_t status =
                spec_add(graph, NULL, spec); /* the op itself from the default engine */
            m.fail_at = 0;
            if (status == sinter_success) {
                break;
            }
            refused++;
            CHECK(status == sinter_out_of_memory, "op %d: %s: %s", i, sinter_status_name(status),
                  sinter_last_error_message());
            if (status != sinter_out_of_memory) {
                break;
            }
        }
    }
    CHECK(refused > 3, "only %d allocations were made to fail", refused);
    GOOD(sinter_graph_finalize(graph));
    sinter_logical_tensor_t lt;
    GOOD(sinter_graph_query_logical_tensor(graph, 900, &lt));
    sinter_graph_destroy(&graph);
    sinter_engine_destroy(&engine);
    CHECK(m.live == 0, "%ld blocks leak", m.live);
}

int main(void)
{
    check_names();
    check_engine();
    check_sizes();
    check_logical_tensors();
    check_tensors();
    check_ops();
    check_graph();
    check_empty();
    check_failing_allocator();
    check_oom_is_atomic();
    return check_finish();
}
