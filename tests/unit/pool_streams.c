/* SINTER_TEST_POOL=1 puts every stream that a test creates onto a pool of threads of the test: the
 * linker leads calls of sinter_stream_create here. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <threads.h>

#include <sinter/sinter.h>

#include "pool.h"

enum { THREADS = 3 };

sinter_status_t __real_sinter_stream_create(sinter_stream_t **stream, sinter_engine_t *engine,
                                            const sinter_stream_desc_t *desc);
sinter_status_t __wrap_sinter_stream_create(sinter_stream_t **stream, sinter_engine_t *engine,
                                            const sinter_stream_desc_t *desc);

static pool_t *pool; /* lives as long as the process */

static void say_loops(void)
{
    printf("%lu loops in the pool\n", pool_loops(pool));
}

static void start(void)
{
    pool = pool_create(THREADS);
    if (pool == NULL) {
        fprintf(stderr, "no threads for a pool\n");
        exit(1);
    }
    atexit(say_loops);
}

sinter_status_t __wrap_sinter_stream_create(sinter_stream_t **stream, sinter_engine_t *engine,
                                            const sinter_stream_desc_t *desc)
{
    static once_flag once = ONCE_FLAG_INIT;
    const bool whole = desc != NULL && desc->size == sizeof *desc;
    if (getenv("SINTER_TEST_POOL") == NULL || (desc != NULL && !whole) ||
        (whole && (desc->parallel_for != NULL || desc->threads < 0))) {
        return __real_sinter_stream_create(stream, engine, desc);
    }
    call_once(&once, start);
    sinter_stream_desc_t ours = {.size = sizeof ours};
    if (desc != NULL) {
        ours = *desc;
    }
    ours.threads = ours.threads > 0 ? ours.threads : THREADS;
    ours.parallel_for = pool_for;
    ours.pool = pool;
    return __real_sinter_stream_create(stream, engine, &ours);
}
