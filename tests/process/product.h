/* One compiled f32 MatMul of small integers, through the public API: its result is exact whatever
 * kernel computes it. */
#ifndef SINTER_TESTS_PRODUCT_H
#define SINTER_TESTS_PRODUCT_H

#include <stdbool.h>

#include <sinter/sinter.h>

enum { PRODUCT_M = 200, PRODUCT_N = 192, PRODUCT_K = 128 };

typedef struct product {
    sinter_graph_t *graph;
    sinter_partition_t *partition;
    sinter_compiled_partition_t *compiled;
    sinter_tensor_t *a, *b, *c;
    float a_data[PRODUCT_M * PRODUCT_K], b_data[PRODUCT_K * PRODUCT_N],
        c_data[PRODUCT_M * PRODUCT_N];
} product_t;

/* Builds and compiles. engine may be NULL. On failure false, and the message is printed. */
bool product_open(product_t *p, sinter_engine_t *engine);
/* Executes and compares each element with plain loops over integers. */
bool product_run(product_t *p, sinter_stream_t *stream);
/* The kernel report. */
const char *product_report(const product_t *p);
void product_close(product_t *p);

#endif
