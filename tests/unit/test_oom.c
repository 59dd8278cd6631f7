/* The n-th allocation fails, for every n, in load, build, partition, compile and execute: each
 * reports out of memory or succeeds, and nothing leaks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "e2e.h"

static long budget, live;

static void *count_alloc(size_t bytes, size_t alignment)
{
    void *p = NULL;
    if (budget-- <= 0) {
        return NULL;
    }
    if (posix_memalign(&p, alignment < sizeof(void *) ? sizeof(void *) : alignment,
                       bytes ? bytes : 1)) {
        return NULL;
    }
    memset(p, 0xA5, bytes);
    live++;
    return p;
}

static void count_free(void *ptr)
{
    live -= ptr != NULL;
    free(ptr);
}

static void *lib_alloc(size_t bytes, size_t alignment, void *user)
{
    (void)user;
    return count_alloc(bytes, alignment);
}

static void lib_free(void *ptr, void *user)
{
    (void)user;
    count_free(ptr);
}

static void *tool_alloc(size_t bytes, void *user)
{
    (void)user;
    return count_alloc(bytes, 16);
}

static sinter_engine_t *engine;
static model_t model;
static sinter_graph_t *graph;
static sinter_partition_t *partition;
static sinter_compiled_partition_t *compiled;
static sinter_stream_t *stream;
static e2e_ports_t ports;

static sinter_status_t make_engine(void)
{
    const sinter_engine_desc_t desc = {.size = sizeof desc,
                                       .allocator = {lib_alloc, lib_free, NULL}};
    return sinter_engine_create(&engine, &desc);
}

/* One run of everything; the first status that is not success. */
static sinter_status_t run(const char *path)
{
    gr_error_t err = {{0}, 0};
    sinter_status_t status = make_engine();
    if (status) {
        return status;
    }
    if (model_load_file(&model, path, &err)) {
        return err.out_of_memory ? sinter_out_of_memory : sinter_runtime_error;
    }
    if (model_build(&model, engine, &graph, &err)) {
        return err.out_of_memory ? sinter_out_of_memory : sinter_runtime_error;
    }
    status = sinter_graph_filter(graph, sinter_partition_policy_fusion);
    if (!status) {
        status = sinter_graph_get_partitions(graph, 1, &partition);
    }
    if (!status) {
        status = sinter_partition_compile(partition, engine, 0, NULL, 0, NULL, &compiled);
    }
    if (!status) {
        const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = 2, .all_threads = 1};
        status = sinter_stream_create(&stream, engine, &desc);
    }
    if (!status) {
        e2e_ports_make(&ports, &model, NULL, 3, 0);
        status = e2e_execute(compiled, stream, &ports);
        e2e_ports_free(&ports);
    }
    return status;
}

static void clean(void)
{
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
    sinter_stream_destroy(&stream);
    model_free(&model);
    memset(&model, 0, sizeof model);
    sinter_engine_destroy(&engine);
}

static void test_model(const char *name)
{
    char path[1024];
    const gr_alloc_t tool = {tool_alloc, (void (*)(void *, void *))lib_free, NULL};
    snprintf(path, sizeof path, "%s/models/patterns/%s", SINTER_SOURCE_DIR, name);
    gr_alloc_set(&tool);
    sinter_status_t status = sinter_out_of_memory;
    long n = 0;
    for (; n < 100000 && status != sinter_success; n++) {
        budget = n;
        live = 0;
        status = run(path);
        if (status != sinter_success && status != sinter_out_of_memory) {
            fprintf(stderr, "%s: allocation %ld: %s: %s\n", name, n, sinter_status_name(status),
                    sinter_last_error_message());
        }
        CHECK_THAT(status == sinter_success || status == sinter_out_of_memory);
        clean();
        if (live != 0) {
            fprintf(stderr, "%s: allocation %ld: %ld blocks leaked\n", name, n, live);
        }
        CHECK_THAT(live == 0);
        if (status != sinter_success && status != sinter_out_of_memory) {
            break;
        }
    }
    CHECK_THAT(status == sinter_success && n > 20);
    gr_alloc_set(NULL);
}

int main(void)
{
    test_model("sdpa-int4-kv.json");
    test_model("sdpa-int8-static.json");
    test_model("../serving/decode-tiles-s8-g32.json");
    test_model("../serving/append-tiles-s8-g32.json");
    test_model("matmul-weight-int4.json");
    test_model("matmul-weight-int4-kn.json");
    test_model("gated-mlp-swish.json");
    test_model("eltwise-chain.json");
    test_model("shuffle.json");
    return check_finish();
}
