/* What makes programs short: an op in one call, a tensor for a port of a compiled partition, the
 * value of a host scalar, the dims of a tensor with their number. */
#include <stdbool.h>
#include <string.h>

#include "check.h"
#include "spec.h"

static void check_message(sinter_status_t got, sinter_status_t want, const char *text)
{
    CHECK(got == want && strstr(sinter_last_error_message(), text) != NULL,
          "%s: \"%s\", expected \"%s\"", sinter_status_name(got), sinter_last_error_message(),
          text);
}

static sinter_graph_t *new_graph(void)
{
    sinter_graph_t *graph = NULL;
    CHECK_THAT(sinter_graph_create(&graph, NULL, sinter_cpu) == sinter_success);
    return graph;
}

/* A bare partition, from nothing to its result. */
static void test_partition(void)
{
    const int8_t codes[2][4] = {{1, 2, 3, 4}, {-1, 0, 1, 0}};
    const float scales[2] = {0.5f, 2}, x[4] = {1, 1, 2, 1};
    float y[2] = {0}, factor = 10;
    const sinter_logical_tensor_t in = spec_tensor("0:f32:?x4"), w = spec_tensor("1:s8:2x4"),
                                  s = spec_tensor("2:f32:2x1"), f = spec_tensor("3:f32:-"),
                                  weight = spec_tensor("4:f32:2x4"),
                                  product = spec_tensor("5:f32:?x2"),
                                  out = spec_tensor("6:f32:?x2");
    sinter_graph_t *graph = new_graph();
    CHECK_THAT(sinter_graph_add(graph, 1, sinter_op_dynamic_dequantize, sinter_in(&w),
                                sinter_in(&s), sinter_out(&weight),
                                sinter_attr_str(sinter_op_attr_qtype, "per_group")) ==
               sinter_success);
    CHECK_THAT(sinter_graph_add(graph, 2, sinter_op_matmul, sinter_name("project"), sinter_in(&in),
                                sinter_in(&weight), sinter_out(&product),
                                sinter_attr_bool(sinter_op_attr_transpose_b, 1)) == sinter_success);
    CHECK_THAT(sinter_graph_add(graph, 3, sinter_op_multiply, sinter_in(&product), sinter_in(&f),
                                sinter_out(&out)) == sinter_success);
    CHECK_THAT(sinter_graph_finalize(graph) == sinter_success);
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    sinter_partition_t *partition = NULL;
    sinter_compiled_partition_t *compiled = NULL;
    sinter_stream_t *stream = NULL;
    sinter_tensor_t *tensors[5] = {NULL};
    const sinter_dim_t rows[2] = {1, 4}, columns[2] = {1, 2};
    CHECK_THAT(sinter_graph_get_partitions(graph, 1, &partition) == sinter_success);
    CHECK_THAT(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &compiled) ==
               sinter_success);
    CHECK_THAT(sinter_stream_create(&stream, NULL, NULL) == sinter_success);
    const struct {
        uint64_t id;
        const sinter_dim_t *dims;
        const void *data;
    } ports[5] = {
        {0, rows, x}, {1, NULL, codes}, {2, NULL, scales}, {3, NULL, &factor}, {6, columns, y}};
    for (int i = 0; i < 5; i++) {
        void *data = (void *)(uintptr_t)ports[i].data;
        CHECK(sinter_compiled_partition_create_tensor(compiled, ports[i].id, ports[i].dims ? 2 : 0,
                                                      ports[i].dims, data, SINTER_BYTES_TRUSTED,
                                                      &tensors[i]) == sinter_success,
              "tensor %d", i);
    }
    CHECK_THAT(sinter_compiled_partition_execute(compiled, stream, 4,
                                                 (const sinter_tensor_t *const *)tensors, 1,
                                                 &tensors[4], NULL, 0) == sinter_success);
    CHECK_THAT(y[0] == 65 && y[1] == 20);
    float other = 2;
    CHECK_THAT(sinter_tensor_set_scalar(tensors[3], &other) == sinter_success);
    other = 99; /* the tensor has its own copy, and the variable before keeps its value */
    CHECK_THAT(sinter_compiled_partition_execute(compiled, stream, 4,
                                                 (const sinter_tensor_t *const *)tensors, 1,
                                                 &tensors[4], NULL, 0) == sinter_success);
    CHECK_THAT(y[0] == 13 && y[1] == 4 && factor == 10);
    for (int i = 0; i < 5; i++) {
        sinter_tensor_destroy(&tensors[i]);
    }
    sinter_stream_destroy(&stream);
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
}

/* Every kind of attribute; the graph is as one that is made op by op. */
static void test_parts(void)
{
    const sinter_logical_tensor_t a = spec_tensor("0:f32:2x6"), b = spec_tensor("1:f32:3x4"),
                                  q = spec_tensor("2:u8:3x4"), y = spec_tensor("3:f32:3x4"),
                                  z = spec_tensor("4:f32:3x4"), p = spec_tensor("5:f32:3x4");
    const int64_t shape[2] = {3, 4}, zps[1] = {3};
    const float scales[1] = {0.5f};
    int finalized = 0;
    sinter_graph_t *graph = new_graph();
    CHECK_THAT(sinter_graph_add(graph, 1, sinter_op_static_reshape, sinter_in(&a), sinter_out(&b),
                                sinter_attr_s64s(sinter_op_attr_shape, 2, shape),
                                sinter_attr_bool(sinter_op_attr_special_zero, 0)) ==
               sinter_success);
    CHECK_THAT(sinter_graph_add(graph, 2, sinter_op_quantize, sinter_in(&b), sinter_out(&q),
                                sinter_attr_f32s(sinter_op_attr_scales, 1, scales),
                                sinter_attr_s64s(sinter_op_attr_zps, 1, zps)) == sinter_success);
    CHECK_THAT(sinter_graph_add(graph, 3, sinter_op_dequantize, sinter_in(&q), sinter_out(&y),
                                sinter_attr_f32(sinter_op_attr_scales, 0.5f),
                                sinter_attr_s64(sinter_op_attr_zps, 3)) == sinter_success);
    CHECK_THAT(sinter_graph_add(graph, 4, sinter_op_elu, sinter_in(&y), sinter_out(&z),
                                sinter_attr_f32(sinter_op_attr_alpha, 1)) == sinter_success);
    CHECK_THAT(sinter_graph_add(graph, 5, sinter_op_softmax, sinter_in(&z), sinter_out(&p),
                                sinter_attr_s64(sinter_op_attr_axis, -1),
                                sinter_attr_str(sinter_op_attr_mode, "inf_as_zero")) ==
               sinter_success);
    CHECK_THAT(sinter_graph_finalize(graph) == sinter_success);
    CHECK_THAT(sinter_graph_is_finalized(graph, &finalized) == sinter_success && finalized);
    sinter_graph_destroy(&graph);
}

/* An op that is refused leaves the graph as it was, and its id free. */
static void test_errors(void)
{
    const sinter_logical_tensor_t x = spec_tensor("0:f32:4"), y = spec_tensor("1:f32:4");
    sinter_op_part_t part = sinter_in(&x);
    sinter_graph_t *graph = new_graph();
    check_message(sinter_graph_add(NULL, 1, sinter_op_abs, sinter_in(&x)), sinter_invalid_arguments,
                  "graph != NULL");
    check_message(sinter_graph_add_parts(graph, 1, sinter_op_abs, 1, NULL),
                  sinter_invalid_arguments, "parts != NULL");
    check_message(sinter_graph_add(graph, 1, sinter_op_abs, sinter_in(NULL), sinter_out(&y)),
                  sinter_invalid_arguments, "lt != NULL");
    check_message(sinter_graph_add(graph, 7, sinter_op_abs, sinter_in(&x), sinter_out(&y),
                                   sinter_attr_f32(sinter_op_attr_axis, 1)),
                  sinter_invalid_arguments, "op 7 (Abs): attribute axis is of kind");
    check_message(sinter_graph_add(graph, 7, sinter_op_abs, sinter_in(&x)), sinter_invalid_graph_op,
                  "op 7");
    part.kind = (sinter_op_part_kind_t)99;
    check_message(sinter_graph_add_parts(graph, 7, sinter_op_abs, 1, &part),
                  sinter_invalid_arguments, "op 7: 99 is no kind of part");
    CHECK_THAT(sinter_graph_add(graph, 7, sinter_op_abs, sinter_in(&x), sinter_out(&y)) ==
               sinter_success);
    CHECK_THAT(sinter_graph_finalize(graph) == sinter_success);
    sinter_graph_destroy(&graph);
}

/* Tensors for ports: strides as compiled, dims checked. */
static void test_ports(void)
{
    const sinter_status_t bad = sinter_invalid_arguments;
    float data[64] = {0};
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partition = NULL;
    sinter_compiled_partition_t *compiled = NULL;
    sinter_tensor_t *tensor = NULL;
    sinter_logical_tensor_t lt;
    const sinter_dim_t dims[2] = {5, 4}, wrong[2] = {5, 5};
    CHECK_THAT(spec_graph(&graph, NULL, "Abs 0:f32:?x4:8x1 -> 1:f32:?x4") == sinter_success);
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partitions(graph, 1, &partition) == sinter_success);
    CHECK_THAT(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &compiled) ==
               sinter_success);
    check_message(sinter_compiled_partition_create_tensor(NULL, 0, 2, dims, data, 4, &tensor), bad,
                  "compiled != NULL");
    check_message(sinter_compiled_partition_create_tensor(compiled, 0, 2, NULL, data, 4, &tensor),
                  bad, "dims != NULL");
    check_message(sinter_compiled_partition_create_tensor(compiled, 9, 2, dims, data, 4, &tensor),
                  bad, "no port with tensor id 9");
    check_message(sinter_compiled_partition_create_tensor(compiled, 0, 1, dims, data, 4, &tensor),
                  bad, "tensor 0 has 1 dims, compiled for 2");
    check_message(sinter_compiled_partition_create_tensor(compiled, 0, 2, wrong, data, 4, &tensor),
                  bad, "tensor 0: dim 1 is 5, compiled for 4");
    check_message(sinter_compiled_partition_create_tensor(compiled, 0, 0, NULL, data, 4, &tensor),
                  bad, "tensor 0: dim 0 is dynamic");
    check_message(
        sinter_compiled_partition_create_tensor(compiled, 0, 2, dims, data, 4 * 35, &tensor), bad,
        "tensor 0: 140 bytes given, 144 needed");
    CHECK_THAT(tensor == NULL);
    CHECK_THAT(sinter_compiled_partition_create_tensor(compiled, 0, 2, dims, data, sizeof data,
                                                       &tensor) == sinter_success);
    sinter_compiled_partition_destroy(&compiled); /* the tensor does not need it */
    CHECK_THAT(sinter_tensor_get_logical_tensor(tensor, &lt) == sinter_success);
    CHECK_THAT(lt.id == 0 && lt.dims[0] == 5 && lt.strides[0] == 8 && lt.strides[1] == 1);
    check_message(sinter_tensor_set_dims(tensor, 1, dims, NULL), bad, "tensor 0 has 2 dims, not 1");
    sinter_tensor_destroy(&tensor);
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
}

int main(void)
{
    test_partition();
    test_parts();
    test_errors();
    test_ports();
    return check_finish();
}
