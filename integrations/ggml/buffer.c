/* Buffers in host memory whose quantised tensors are planes (layout.c). */
#include "sinter_ggml.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A token reads all weights and the cache. Looking up pages of 4 KB takes a part of that time, so
 * that buffers ask for large pages. */
enum { ALIGNMENT = 64, HUGE_PAGE = 1 << 21 };

const struct ggml_tensor *sg_root(const struct ggml_tensor *tensor)
{
    return tensor->view_src ? tensor->view_src : tensor;
}

bool sg_is_ours(const struct ggml_tensor *tensor)
{
    const ggml_backend_buffer_t buffer = sg_root(tensor)->buffer;
    return buffer && buffer->buft == sg_buffer_type();
}

static void free_buffer(ggml_backend_buffer_t buffer)
{
    sinter_engine_invalidate_constants(sg_engine(), buffer->context, buffer->size);
    free(buffer->context);
}

static void *get_base(ggml_backend_buffer_t buffer)
{
    return buffer->context;
}

/* Some bytes of a tensor in planes. They need not be whole rows: rows are packed to blocks of ggml
 * first, and taken apart again where they are written. */
typedef struct span {
    const struct ggml_tensor *root;
    int64_t first, rows;
    size_t row_bytes, begin, size; /* of ggml's rows; of the span in the first row; of the span */
    uint8_t *blocks;               /* rows * row_bytes */
} span_t;

/* Large tensors are moved in pieces, so that no more memory is needed than one row takes, or this
 * many bytes. ggml has no way to say that there is none. */
enum { PIECE = 1 << 16 };

/* Opens a span of as many of the bytes as go into a piece. */
static void span_open(span_t *span, const struct ggml_tensor *tensor, size_t offset, size_t size)
{
    const struct ggml_tensor *root = sg_root(tensor);
    span->root = root;
    span->row_bytes = ggml_row_size(root->type, root->ne[0]);
    const size_t begin = (size_t)((uint8_t *)tensor->data - (uint8_t *)root->data) + offset;
    const size_t most = span->row_bytes < PIECE ? PIECE / span->row_bytes : 1;
    span->first = (int64_t)(begin / span->row_bytes);
    span->begin = begin % span->row_bytes;
    const size_t rows = (span->begin + size + span->row_bytes - 1) / span->row_bytes;
    span->rows = (int64_t)(rows < most ? rows : most);
    const size_t room = (size_t)span->rows * span->row_bytes;
    span->size = room - span->begin < size ? room - span->begin : size;
    span->blocks = malloc(room);
    GGML_ASSERT(span->blocks);
}

static void set_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data,
                       size_t offset, size_t size)
{
    if (buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS) {
        const struct ggml_tensor *root = sg_root(tensor);
        sinter_engine_invalidate_constants(sg_engine(), root->data, sg_tensor_bytes(root));
    }
    if (!sg_layout_of(tensor->type)) {
        memcpy((uint8_t *)tensor->data + offset, data, size);
        return;
    }
    span_t span;
    for (size_t at = 0; at < size; at += span.size) {
        span_open(&span, tensor, offset + at, size - at);
        if (span.size < (size_t)span.rows * span.row_bytes) {
            sg_pack_rows(span.root, span.first, span.rows, span.blocks);
        }
        memcpy(span.blocks + span.begin, (const uint8_t *)data + at, span.size);
        sg_unpack_rows(span.root, span.first, span.rows, span.blocks);
        free(span.blocks);
    }
}

static void get_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data,
                       size_t offset, size_t size)
{
    (void)buffer;
    if (!sg_layout_of(tensor->type)) {
        memcpy(data, (const uint8_t *)tensor->data + offset, size);
        return;
    }
    span_t span;
    for (size_t at = 0; at < size; at += span.size) {
        span_open(&span, tensor, offset + at, size - at);
        sg_pack_rows(span.root, span.first, span.rows, span.blocks);
        memcpy((uint8_t *)data + at, span.blocks + span.begin, span.size);
        free(span.blocks);
    }
}

static void memset_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value,
                          size_t offset, size_t size)
{
    if (!sg_layout_of(tensor->type)) {
        memset((uint8_t *)tensor->data + offset, value, size);
        return;
    }
    uint8_t bytes[1024];
    memset(bytes, value, sizeof(bytes));
    for (size_t at = 0, piece; at < size; at += piece) {
        piece = size - at < sizeof(bytes) ? size - at : sizeof(bytes);
        set_tensor(buffer, tensor, bytes, offset + at, piece);
    }
}

static void clear(ggml_backend_buffer_t buffer, uint8_t value)
{
    memset(buffer->context, value, buffer->size);
}

static const char *type_name(ggml_backend_buffer_type_t type)
{
    (void)type;
    return "Sinter";
}

static ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size)
{
    const struct ggml_backend_buffer_i interface = {
        .free_buffer = free_buffer,
        .get_base = get_base,
        .memset_tensor = memset_tensor,
        .set_tensor = set_tensor,
        .get_tensor = get_tensor,
        .clear = clear,
    };
    const size_t unit = size < HUGE_PAGE ? ALIGNMENT : HUGE_PAGE;
    if (size > SIZE_MAX - unit) {
        return NULL;
    }
    const size_t bytes = (size + unit) / unit * unit;
    void *memory = aligned_alloc(unit, bytes);
    if (memory && unit == HUGE_PAGE) {
        madvise(memory, bytes, MADV_HUGEPAGE);
    }
    return memory ? ggml_backend_buffer_init(type, interface, memory, size) : NULL;
}

static size_t get_alignment(ggml_backend_buffer_type_t type)
{
    (void)type;
    return ALIGNMENT;
}

static size_t get_alloc_size(ggml_backend_buffer_type_t type, const struct ggml_tensor *tensor)
{
    (void)type;
    return sg_tensor_bytes(tensor);
}

/* Another backend must not read planes as blocks. */
static bool is_host(ggml_backend_buffer_type_t type)
{
    (void)type;
    return false;
}

extern struct ggml_backend_device sg_device;

ggml_backend_buffer_type_t sg_buffer_type(void)
{
    static struct ggml_backend_buffer_type type = {
        .iface = {.get_name = type_name,
                  .alloc_buffer = alloc_buffer,
                  .get_alignment = get_alignment,
                  .get_alloc_size = get_alloc_size,
                  .is_host = is_host},
        .device = &sg_device,
    };
    return &type;
}
