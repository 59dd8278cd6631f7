/* Buffers in host memory whose quantised tensors are planes (layout.c). */
#include "buffer.h"

#include "engine.h"
#include "host.h"
#include "layout.h"
#include "load.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A token reads all weights and the cache. Looking up pages of 4 KB takes a part of that time, so
 * that buffers ask for large pages. */
enum { HUGE_PAGE = 1 << 21 };

const struct ggml_tensor *gs_root(const struct ggml_tensor *tensor)
{
    return tensor->view_src ? tensor->view_src : tensor;
}

bool gs_is_ours(const struct ggml_tensor *tensor)
{
    const ggml_backend_buffer_t buffer = gs_root(tensor)->buffer;
    return buffer && buffer->buft == gs_buffer_type();
}

bool gs_is_constant(const struct ggml_tensor *tensor)
{
    return gs_is_ours(tensor) &&
           gs_root(tensor)->buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

void *gs_memory_create(size_t size)
{
    const size_t unit = size < HUGE_PAGE ? GS_ALIGNMENT : HUGE_PAGE;
    if (size > SIZE_MAX - unit) {
        return NULL;
    }
    const size_t bytes = (size + unit) / unit * unit;
    void *memory = aligned_alloc(unit, bytes);
    if (memory && unit == HUGE_PAGE) {
        madvise(memory, bytes, MADV_HUGEPAGE);
    }
    return memory;
}

void gs_memory_free(void *memory, size_t size)
{
    sinter_engine_invalidate_constants(gs_engine(), memory, size);
    free(memory);
}

static void free_buffer(ggml_backend_buffer_t buffer)
{
    gs_forget_heads(buffer->context, buffer->size);
    gs_memory_free(buffer->context, buffer->size);
}

static void *get_base(ggml_backend_buffer_t buffer)
{
    return buffer->context;
}

/* Copies of these bytes in the constant cache are stale from now on. */
static void forget_copies(ggml_backend_buffer_t buffer, const void *data, size_t bytes)
{
    if (buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS) {
        sinter_engine_invalidate_constants(gs_engine(), data, bytes);
    }
}

void gs_forget_copies(const struct ggml_tensor *tensor)
{
    const struct ggml_tensor *root = gs_root(tensor);
    forget_copies(root->buffer, root->data, gs_tensor_bytes(root));
}

/* The bytes of ggml's blocks that lie in planes, in pieces: as many whole blocks as follow one
 * another, or a part of one block. */
typedef struct piece {
    const struct ggml_tensor *root;
    size_t block_bytes, first, count; /* blocks of the root */
    size_t begin, size;               /* in the first block; of the piece */
} piece_t;

static piece_t piece_at(const struct ggml_tensor *tensor, size_t offset, size_t size)
{
    piece_t p = {.root = gs_root(tensor), .block_bytes = ggml_type_size(tensor->type)};
    const size_t at = (size_t)((uint8_t *)tensor->data - (uint8_t *)p.root->data) + offset;
    p.first = at / p.block_bytes;
    p.begin = at % p.block_bytes;
    p.count = p.begin == 0 && size >= p.block_bytes ? size / p.block_bytes : 1;
    const size_t room = p.count * p.block_bytes - p.begin;
    p.size = room < size ? room : size;
    return p;
}

static bool is_whole(const piece_t *p)
{
    return p->size == p->count * p->block_bytes;
}

enum { MOST_BLOCK_BYTES = 256 }; /* Q6_K has 210 */

/* set_tensor and get_tensor return nothing, so that the log has to tell of an error. */
static void lost(const struct ggml_tensor *tensor)
{
    GGML_LOG_ERROR("Sinter: out of memory, bytes of %s are lost\n", tensor->name);
}

static void set_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data,
                       size_t offset, size_t size)
{
    (void)buffer;
    const uint8_t *bytes = data;
    uint8_t block[MOST_BLOCK_BYTES];
    gs_forget_copies(tensor);
    if (!gs_layout_of(tensor->type)) {
        memcpy((uint8_t *)tensor->data + offset, bytes, size);
        return;
    }
    if (gs_is_constant(tensor)) {
        gs_use_tiles((struct ggml_tensor *)(uintptr_t)gs_root(tensor));
    }
    for (size_t at = 0; at < size;) {
        const piece_t p = piece_at(tensor, offset + at, size - at);
        bool ok = true;
        if (is_whole(&p)) {
            ok = gs_load_blocks(p.root, p.first, p.count, bytes + at);
        } else {
            ok = gs_pack_blocks(p.root, p.first, 1, block);
            memcpy(block + p.begin, bytes + at, p.size);
            ok = ok && gs_unpack_blocks(p.root, p.first, 1, block);
        }
        if (!ok) {
            lost(tensor);
        }
        at += p.size;
    }
}

static void get_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data,
                       size_t offset, size_t size)
{
    (void)buffer;
    uint8_t *bytes = data, block[MOST_BLOCK_BYTES];
    if (!gs_layout_of(tensor->type)) {
        memcpy(bytes, (const uint8_t *)tensor->data + offset, size);
        return;
    }
    for (size_t at = 0; at < size;) {
        const piece_t p = piece_at(tensor, offset + at, size - at);
        const bool whole = is_whole(&p);
        if (!gs_pack_blocks(p.root, p.first, p.count, whole ? bytes + at : block)) {
            lost(tensor);
        } else if (!whole) {
            memcpy(bytes + at, block + p.begin, p.size);
        }
        at += p.size;
    }
}

static void memset_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value,
                          size_t offset, size_t size)
{
    uint8_t bytes[1024];
    if (!gs_layout_of(tensor->type)) {
        gs_forget_copies(tensor);
        memset((uint8_t *)tensor->data + offset, value, size);
        return;
    }
    memset(bytes, value, sizeof(bytes));
    for (size_t at = 0, piece; at < size; at += piece) {
        piece = size - at < sizeof(bytes) ? size - at : sizeof(bytes);
        set_tensor(buffer, tensor, bytes, offset + at, piece);
    }
}

static void clear(ggml_backend_buffer_t buffer, uint8_t value)
{
    forget_copies(buffer, buffer->context, buffer->size);
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
    void *memory = gs_memory_create(size);
    return memory ? ggml_backend_buffer_init(type, interface, memory, size) : NULL;
}

static size_t get_alignment(ggml_backend_buffer_type_t type)
{
    (void)type;
    return GS_ALIGNMENT;
}

static size_t get_alloc_size(ggml_backend_buffer_type_t type, const struct ggml_tensor *tensor)
{
    (void)type;
    return gs_tensor_bytes(tensor);
}

/* Another backend must not read planes as blocks. */
static bool is_host(ggml_backend_buffer_type_t type)
{
    (void)type;
    return false;
}

/* The table of a buffer type in versions 2 and 3 of the interface, whatever headers the library was
 * built with. Version 3 has two optional functions more, which are NULL here. */
typedef struct buffer_type_2 {
    const char *(*get_name)(ggml_backend_buffer_type_t type);
    ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_buffer_type_t type, size_t size);
    size_t (*get_alignment)(ggml_backend_buffer_type_t type);
    size_t (*get_max_size)(ggml_backend_buffer_type_t type);
    size_t (*get_alloc_size)(ggml_backend_buffer_type_t type, const struct ggml_tensor *tensor);
    bool (*is_host)(ggml_backend_buffer_type_t type);
    ggml_backend_dev_t device;
    void *context;
} buffer_type_2_t;

typedef struct buffer_type_3 {
    const char *(*get_name)(ggml_backend_buffer_type_t type);
    ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_buffer_type_t type, size_t size);
    void *alloc_buffer_n;
    size_t (*get_alignment)(ggml_backend_buffer_type_t type);
    size_t (*get_max_size)(ggml_backend_buffer_type_t type);
    size_t (*get_alloc_size)(ggml_backend_buffer_type_t type, const struct ggml_tensor *tensor);
    void *get_alloc_size_n;
    bool (*is_host)(ggml_backend_buffer_type_t type);
    ggml_backend_dev_t device;
    void *context;
} buffer_type_3_t;

static union {
    buffer_type_2_t two;
    buffer_type_3_t three;
} buffer_type;

ggml_backend_buffer_type_t gs_buffer_type(void)
{
    return (ggml_backend_buffer_type_t)(void *)&buffer_type;
}

void gs_buffer_type_fill(ggml_backend_dev_t device)
{
    if (gs_host_version() == 3) {
        buffer_type.three = (buffer_type_3_t){.get_name = type_name,
                                              .alloc_buffer = alloc_buffer,
                                              .get_alignment = get_alignment,
                                              .get_alloc_size = get_alloc_size,
                                              .is_host = is_host,
                                              .device = device};
    } else {
        buffer_type.two = (buffer_type_2_t){.get_name = type_name,
                                            .alloc_buffer = alloc_buffer,
                                            .get_alignment = get_alignment,
                                            .get_alloc_size = get_alloc_size,
                                            .is_host = is_host,
                                            .device = device};
    }
}
