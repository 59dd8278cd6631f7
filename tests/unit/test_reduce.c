/* Reductions with an empty list of axes are the identity, bit by bit: alone, between other ops and
 * op by op. Without any list they are refused. */
#include <math.h>

#include "passive.h"
#include "spec_run.h"

static const char *const kinds[] = {"L1", "L2", "Max", "Mean", "Min", "Prod", "Sum"};
enum { KINDS = sizeof kinds / sizeof *kinds, N = 300 };

static const float ends[] = {-0.0f, 0.0f,     1e-45f,  -1e-45f,     INFINITY, -INFINITY,
                             NAN,   -3.4e38f, 3.4e38f, 1.1754e-38f, -7.0f,    0.1f};

/* One graph: what 1 has, f32, f16 or bf16, comes out of 2. */
static void check_same(const char *spec, int policy, void *x, void *y, size_t size)
{
    float one = 1;
    const spec_port_t ports[] = {{1, x}, {2, y}, {3, &one}, {0, NULL}};
    const bool scaled = strstr(spec, "3:f32") != NULL;
    memset(y, 0x5A, N * size);
    const sinter_status_t status =
        spec_run(spec, (sinter_partition_policy_t)policy,
                 scaled ? ports : (const spec_port_t[]){{1, x}, {2, y}, {0, NULL}});
    CHECK(status == sinter_success, "%s: %s", spec, sinter_last_error_message());
    for (int i = 0; i < N; i++) {
        const char *from = (char *)x + (size_t)i * size, *to = (char *)y + (size_t)i * size;
        CHECK(memcmp(from, to, size) == 0, "%s: element %d differs", spec, i);
    }
}

static void test_identity(void)
{
    static const char *const shapes[] = {"300", "3x100", "25x12x1", "2x150x1"};
    static float x[N], y[N];
    static uint16_t half[N], half_out[N];
    for (int i = 0; i < N; i++) {
        x[i] = i < 60 ? ends[i % 12] : (float)(i - 150) * 0.37f;
        half[i] = (uint16_t)(i * 1111);
        half[i] = (half[i] & 0x7C00) == 0x7C00 ? 0x8000 : half[i]; /* no NaN of either type */
    }
    for (int i = 0; i < KINDS * 4 * 2; i++) {
        const char *kind = kinds[i % KINDS], *dims = shapes[i / KINDS % 4];
        const int keep = i / KINDS / 4;
        char alone[200], between[400];
        snprintf(between, sizeof between,
                 "Multiply 1:f32:%s 3:f32:- -> 4:f32:%s;"
                 "Reduce%s axes= keep_dims=%d 4:f32:%s -> 5:f32:%s;"
                 "Multiply 5:f32:%s 3:f32:- -> 2:f32:%s",
                 dims, dims, kind, keep, dims, dims, dims, dims);
        for (int policy = sinter_partition_policy_fusion; policy <= sinter_partition_policy_debug;
             policy++) {
            for (int type = 0; type < 3; type++) {
                static const char *const types[] = {"f32", "f16", "bf16"};
                snprintf(alone, sizeof alone, "Reduce%s axes= keep_dims=%d 1:%s:%s -> 2:%s:%s",
                         kind, keep, types[type], dims, types[type], dims);
                check_same(alone, policy, type == 0 ? (void *)x : half,
                           type == 0 ? (void *)y : half_out, type == 0 ? 4 : 2);
            }
            check_same(between, policy, x, y, 4);
        }
    }
}

/* A list of no values may come without an address, and through a list of parts. Without a list the
 * message names the op and the rule. */
static void test_lists(void)
{
    static const int64_t dims[] = {4}, none[1];
    sinter_logical_tensor_t x, y;
    sinter_logical_tensor_init(&x, 0, sinter_f32, 1, dims, sinter_tensor_property_undef);
    sinter_logical_tensor_init(&y, 1, sinter_f32, 1, dims, sinter_tensor_property_undef);
    for (int k = 0; k < KINDS; k++) {
        const sinter_op_kind_t kind = (sinter_op_kind_t)(sinter_op_reduce_l1 + k);
        for (int way = 0; way < 4; way++) {
            sinter_graph_t *graph = NULL;
            sinter_op_t *op = NULL;
            CHECK_THAT(sinter_graph_create(&graph, NULL, sinter_cpu) == sinter_success);
            CHECK_THAT(sinter_op_create(&op, NULL, 7, kind, "") == sinter_success);
            CHECK_THAT(sinter_op_add_input(op, &x) == sinter_success);
            CHECK_THAT(sinter_op_add_output(op, &y) == sinter_success);
            if (way < 2) {
                CHECK_THAT(sinter_op_set_attr_s64(op, sinter_op_attr_axes, way == 0 ? NULL : none,
                                                  0) == sinter_success);
            }
            const sinter_status_t status =
                way == 2 ? sinter_graph_add(graph, 7, kind, sinter_in(&x), sinter_out(&y),
                                            sinter_attr_s64s(sinter_op_attr_axes, 0, NULL))
                         : sinter_graph_add_op(graph, op);
            char want[120];
            snprintf(want, sizeof want,
                     "op 7 (Reduce%s): axes are given nowhere: either the attribute or input 1 has "
                     "them",
                     kinds[k]);
            CHECK(status == (way < 3 ? sinter_success : sinter_invalid_graph_op),
                  "Reduce%s, way %d", kinds[k], way);
            CHECK(way < 3 || strcmp(sinter_last_error_message(), want) == 0, "%s",
                  sinter_last_error_message());
            sinter_op_destroy(&op);
            sinter_graph_destroy(&graph);
        }
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    wait_passively(argv);
    test_identity();
    test_lists();
    return check_finish();
}
