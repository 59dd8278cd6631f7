/* A host without OpenMP: its streams have one thread, or those of a pool of its own. */
#include <stdio.h>

#include "pool.h"
#include "product.h"

enum { THREADS = 3 };

int main(void)
{
    static product_t product;
    pool_t *pool = pool_create(THREADS);
    const sinter_stream_desc_t ours = {.size = sizeof ours,
                                       .threads = THREADS,
                                       .all_threads = 1,
                                       .parallel_for = pool_for,
                                       .pool = pool},
                               plain = {.size = sizeof plain, .threads = THREADS};
    sinter_stream_t *in_pool = NULL, *alone = NULL;
    int n_pool = 0, n_alone = 0;
    const bool ok = pool != NULL && sinter_stream_create(&in_pool, NULL, &ours) == sinter_success &&
                    sinter_stream_create(&alone, NULL, &plain) == sinter_success &&
                    sinter_stream_get_threads(in_pool, &n_pool) == sinter_success &&
                    sinter_stream_get_threads(alone, &n_alone) == sinter_success &&
                    product_open(&product, NULL) && product_run(&product, in_pool) &&
                    pool_loops(pool) == 1 && product_run(&product, alone) && pool_loops(pool) == 1;
    printf("%s: %d threads in the pool, %d without\n", ok ? "right" : "wrong", n_pool, n_alone);
    product_close(&product);
    sinter_stream_destroy(&in_pool);
    sinter_stream_destroy(&alone);
    pool_destroy(pool);
    return ok && n_pool == THREADS && n_alone == 1 ? 0 : 1;
}
