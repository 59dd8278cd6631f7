#include "product.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Prints the message of a call that failed. */
static bool done(sinter_status_t status, const char *what)
{
    if (status != sinter_success) {
        printf("%s: %s: %s\n", what, sinter_status_name(status), sinter_last_error_message());
    }
    return status == sinter_success;
}

static int a_of(int row, int k)
{
    return (row * 7 + k * 3) % 11 - 5;
}

static int b_of(int k, int column)
{
    return (k * 5 + column * 2) % 13 - 6;
}

static void fill(product_t *p)
{
    for (int i = 0; i < PRODUCT_M * PRODUCT_K; i++) {
        p->a_data[i] = (float)a_of(i / PRODUCT_K, i % PRODUCT_K);
    }
    for (int i = 0; i < PRODUCT_K * PRODUCT_N; i++) {
        p->b_data[i] = (float)b_of(i / PRODUCT_N, i % PRODUCT_N);
    }
}

static sinter_logical_tensor_t matrix(uint64_t id, int rows, int columns)
{
    const sinter_dim_t dims[2] = {rows, columns};
    sinter_logical_tensor_t lt;
    memset(&lt, 0, sizeof lt);
    done(sinter_logical_tensor_init(&lt, id, sinter_f32, 2, dims, sinter_tensor_property_undef),
         "tensor");
    return lt;
}

static bool build(product_t *p, sinter_engine_t *engine, const sinter_logical_tensor_t lt[3])
{
    sinter_op_t *op = NULL;
    size_t count = 0;
    bool ok = done(sinter_graph_create(&p->graph, engine, sinter_cpu), "graph") &&
              done(sinter_op_create(&op, engine, 1, sinter_op_matmul, NULL), "op") &&
              done(sinter_op_add_input(op, &lt[0]), "input") &&
              done(sinter_op_add_input(op, &lt[1]), "input") &&
              done(sinter_op_add_output(op, &lt[2]), "output") &&
              done(sinter_graph_add_op(p->graph, op), "add_op") &&
              done(sinter_graph_finalize(p->graph), "finalize") &&
              done(sinter_graph_filter(p->graph, sinter_partition_policy_fusion), "filter") &&
              done(sinter_graph_get_partition_num(p->graph, &count), "count");
    if (ok && count != 1) {
        printf("%zu partitions, expected 1\n", count);
        ok = false;
    }
    sinter_op_destroy(&op);
    return ok && done(sinter_graph_get_partitions(p->graph, 1, &p->partition), "partitions") &&
           done(sinter_partition_compile(p->partition, engine, 0, NULL, 0, NULL, &p->compiled),
                "compile");
}

bool product_open(product_t *p, sinter_engine_t *engine)
{
    const sinter_logical_tensor_t lt[3] = {matrix(1, PRODUCT_M, PRODUCT_K),
                                           matrix(2, PRODUCT_K, PRODUCT_N),
                                           matrix(3, PRODUCT_M, PRODUCT_N)};
    memset(p, 0, sizeof *p);
    fill(p);
    return build(p, engine, lt) &&
           done(sinter_tensor_create(&p->a, engine, &lt[0], p->a_data, sizeof p->a_data), "a") &&
           done(sinter_tensor_create(&p->b, engine, &lt[1], p->b_data, sizeof p->b_data), "b") &&
           done(sinter_tensor_create(&p->c, engine, &lt[2], p->c_data, sizeof p->c_data), "c");
}

static bool is_exact(const product_t *p)
{
    for (int i = 0; i < PRODUCT_M * PRODUCT_N; i++) {
        const int row = i / PRODUCT_N, column = i % PRODUCT_N;
        int want = 0;
        for (int k = 0; k < PRODUCT_K; k++) {
            want += a_of(row, k) * b_of(k, column);
        }
        if (p->c_data[i] != (float)want) {
            printf("C[%d][%d] is %g, expected %d\n", row, column, (double)p->c_data[i], want);
            return false;
        }
    }
    return true;
}

bool product_run(product_t *p, sinter_stream_t *stream)
{
    const sinter_tensor_t *const inputs[2] = {p->a, p->b};
    for (int i = 0; i < PRODUCT_M * PRODUCT_N; i++) {
        p->c_data[i] = NAN;
    }
    return done(
               sinter_compiled_partition_execute(p->compiled, stream, 2, inputs, 1, &p->c, NULL, 0),
               "execute") &&
           is_exact(p);
}

const char *product_report(const product_t *p)
{
    const char *text = "";
    return done(sinter_compiled_partition_report(p->compiled, &text), "report") ? text : "";
}

void product_close(product_t *p)
{
    sinter_tensor_destroy(&p->a);
    sinter_tensor_destroy(&p->b);
    sinter_tensor_destroy(&p->c);
    sinter_compiled_partition_destroy(&p->compiled);
    sinter_partition_destroy(&p->partition);
    sinter_graph_destroy(&p->graph);
}
