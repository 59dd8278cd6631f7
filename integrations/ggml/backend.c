/* The registry, the device and the backend that ggml asks for. */
#include "buffer.h"
#include "engine.h"
#include "host.h"
#include "ops.h"
#include "plan.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- backend --------------------------------------------------------------------------------- */

enum { MAX_STREAMS = 8 };

/* The host names the number of threads before each graph: one stream for each number. */
typedef struct context {
    gs_plans_t *plans;
    int threads;
    int n_streams;
    int stream_threads[MAX_STREAMS];
    sinter_stream_t *streams[MAX_STREAMS];
} context_t;

static const char *backend_name(ggml_backend_t backend)
{
    (void)backend;
    return "Sinter";
}

static void backend_free(ggml_backend_t backend)
{
    context_t *context = backend->context;
    gs_plans_destroy(context->plans);
    for (int i = 0; i < context->n_streams; i++) {
        sinter_stream_destroy(&context->streams[i]);
    }
    free(context);
    free(backend);
}

static sinter_stream_t *stream_of(context_t *context)
{
    for (int i = 0; i < context->n_streams; i++) {
        if (context->stream_threads[i] == context->threads) {
            return context->streams[i];
        }
    }
    if (context->n_streams == MAX_STREAMS) {
        sinter_stream_destroy(&context->streams[--context->n_streams]);
    }
    const sinter_stream_desc_t desc = {.size = sizeof(desc), .threads = context->threads};
    sinter_stream_t *stream = NULL;
    if (sinter_stream_create(&stream, gs_engine(), &desc) != sinter_success) {
        return NULL;
    }
    context->stream_threads[context->n_streams] = context->threads;
    return context->streams[context->n_streams++] = stream;
}

static enum ggml_status graph_compute(ggml_backend_t backend, struct ggml_cgraph *graph)
{
    context_t *context = backend->context;
    sinter_stream_t *stream = stream_of(context);
    if (!stream) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    return gs_plans_compute(context->plans, stream, graph);
}

static ggml_guid_t guid(void)
{
    static ggml_guid id = {0x73, 0x69, 0x6e, 0x74, 0x65, 0x72, 0x2d, 0x67,
                           0x67, 0x6d, 0x6c, 0x2d, 0x30, 0x30, 0x30, 0x31};
    return &id;
}

static ggml_backend_t init_backend(ggml_backend_dev_t device, const char *params)
{
    (void)params;
    context_t *context = calloc(1, sizeof(*context));
    ggml_backend_t backend = calloc(1, sizeof(*backend));
    gs_plans_t *plans = gs_plans_create();
    if (!context || !backend || !plans) {
        free(context);
        free(backend);
        gs_plans_destroy(plans);
        return NULL;
    }
    context->plans = plans;
    backend->guid = guid();
    backend->iface.get_name = backend_name;
    backend->iface.free = backend_free;
    backend->iface.graph_compute = graph_compute;
    backend->device = device;
    backend->context = context;
    return backend;
}

static void set_n_threads(ggml_backend_t backend, int threads)
{
    context_t *context = backend->context;
    context->threads = threads > 0 ? threads : 0;
}

/* Where `mmap_support` lies in `caps`, of which earlier headers have the first four flags. The
 * struct has the same size in either case. */
enum { MMAP_SUPPORT = 4 * sizeof(bool) };
_Static_assert(sizeof(struct ggml_backend_dev_props) >=
                   offsetof(struct ggml_backend_dev_props, caps) + MMAP_SUPPORT + sizeof(bool),
               "there must be room for mmap_support");

/* ---- device ---------------------------------------------------------------------------------- */

static const char *device_name(ggml_backend_dev_t device)
{
    (void)device;
    return "Sinter";
}

static const char *device_description(ggml_backend_dev_t device)
{
    (void)device;
    return "Sinter: fused graphs on the CPU";
}

static void device_memory(ggml_backend_dev_t device, size_t *available, size_t *total)
{
    (void)device;
    const size_t page = (size_t)sysconf(_SC_PAGE_SIZE), known = gs_available_memory();
    *total = (size_t)sysconf(_SC_PHYS_PAGES) * page;
    *available = known > 0 ? known : (size_t)sysconf(_SC_AVPHYS_PAGES) * page;
}

/* llama.cpp gives whole layers, with their caches, to devices of type GPU alone. Beside a real one
 * the device is an accelerator: the layers and experts that are left to the CPU come to it. */
static enum ggml_backend_dev_type device_type(ggml_backend_dev_t device)
{
    const gs_role_t asked = gs_asked_role();
    const bool gpu = asked == GS_ROLE_BY_HOST ? !gs_host_has_gpu(device) : asked == GS_ROLE_GPU;
    return gpu ? GGML_BACKEND_DEVICE_TYPE_GPU : GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

/* The host has cleared the struct, to the end that its version gives it. */
static void device_props(ggml_backend_dev_t device, struct ggml_backend_dev_props *props)
{
    props->name = device_name(device);
    props->description = device_description(device);
    props->type = device_type(device);
    device_memory(device, &props->memory_free, &props->memory_total);
    /* Weights are made from the mapped file. Without this word, the last one of the struct, a host
     * would read the file into memory of its own, to copy it from there. Earlier hosts map files
     * without being told; they have padding in its place. */
    const bool yes = true;
    memcpy((char *)&props->caps + MMAP_SUPPORT, &yes, sizeof(yes));
}

static ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t device)
{
    (void)device;
    return gs_buffer_type();
}

static bool supports_op(ggml_backend_dev_t device, const struct ggml_tensor *op)
{
    (void)device;
    const char *why = gs_refuses(op);
    if (why) {
        gs_say_reason(op->name, "%s is left to the host: %s", ggml_op_desc(op), why);
    }
    return !why;
}

/* Buffers in host memory are read where they lie. */
static bool supports_buft(ggml_backend_dev_t device, ggml_backend_buffer_type_t type)
{
    (void)device;
    return type == gs_buffer_type() || ggml_backend_buft_is_host(type);
}

/* ---- registry -------------------------------------------------------------------------------- */

static const char *registry_name(ggml_backend_reg_t registry)
{
    (void)registry;
    return "Sinter";
}

static size_t device_count(ggml_backend_reg_t registry)
{
    (void)registry;
    return 1;
}

static struct ggml_backend_device device;

static ggml_backend_dev_t get_device(ggml_backend_reg_t registry, size_t index)
{
    (void)registry;
    return index == 0 ? &device : NULL;
}

static void *get_proc_address(ggml_backend_reg_t registry, const char *name)
{
    (void)registry;
    const ggml_backend_set_n_threads_t function = set_n_threads;
    void *address = NULL;
    if (strcmp(name, "ggml_backend_set_n_threads") == 0) {
        memcpy(&address, &function, sizeof(address));
    }
    return address;
}

static struct ggml_backend_reg registry = {
    .iface = {.get_name = registry_name,
              .get_device_count = device_count,
              .get_device = get_device,
              .get_proc_address = get_proc_address},
};

static struct ggml_backend_device device = {
    .iface = {.get_name = device_name,
              .get_description = device_description,
              .get_memory = device_memory,
              .get_type = device_type,
              .get_props = device_props,
              .init_backend = init_backend,
              .get_buffer_type = device_buffer_type,
              .supports_op = supports_op,
              .supports_buft = supports_buft},
    .reg = &registry,
};

/* What the host looks up in the library. */
__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void);

ggml_backend_reg_t ggml_backend_init(void)
{
    registry.api_version = gs_host_version();
    gs_buffer_type_fill(&device);
    const char *misfit = gs_engine() ? gs_host_misfit(&registry) : "there is no memory";
    if (misfit) {
        GGML_LOG_ERROR("sinter: the backend cannot serve this version of ggml: %s\n", misfit);
    }
    return misfit ? NULL : &registry;
}
