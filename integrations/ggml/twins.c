/* Twins of weights that lie in buffers of the host. */
#include "twins.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine.h"
#include "layout.h"
#include "load.h"

typedef struct twin {
    const void *data;         /* the host's blocks */
    ggml_backend_buffer_t of; /* where they are; NULL: it was freed, and there is no twin */
    tensor_t tensor;          /* without data until it is made */
    struct ggml_backend_buffer buffer; /* one of ours, of which the host does not know */
    bool writable;                     /* the host's memory */
    uint64_t sum;                      /* of the blocks, if it is */
} twin_t;

/* A buffer of the host, whose function that frees it is told to us first. */
typedef struct watched {
    ggml_backend_buffer_t buffer;
    void (*free_buffer)(ggml_backend_buffer_t buffer); /* the host's, or NULL */
} watched_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static twin_t **twins; /* by a hash of `data`; the room is a power of two, or 0 */
static size_t room, count, bytes_of_all;
static watched_t *buffers;
static int n_buffers, buffers_capacity;

/* ---- the table ------------------------------------------------------------------------------- */

/* The slot of these blocks, or the free one that they would get. There is one. */
static twin_t **slot_of(const void *data)
{
    size_t i = (size_t)gs_mix(0, (uint64_t)(uintptr_t)data) & (room - 1);
    while (twins[i] && twins[i]->data != data) {
        i = (i + 1) & (room - 1);
    }
    return &twins[i];
}

/* Doubles the table. false: out of memory. */
static bool grow(void)
{
    enum { FIRST = 64 };
    twin_t **old = twins, **fresh = calloc(room ? 2 * room : FIRST, sizeof(twin_t *));
    const size_t before = room;
    if (!fresh) {
        return false;
    }
    twins = fresh;
    room = before ? 2 * before : FIRST;
    for (size_t i = 0; i < before; i++) {
        if (old[i]) {
            *slot_of(old[i]->data) = old[i];
        }
    }
    free(old);
    return true;
}

/* ---- buffers of the host --------------------------------------------------------------------- */

static watched_t *watched_of(ggml_backend_buffer_t buffer)
{
    for (int i = 0; i < n_buffers; i++) {
        if (buffers[i].buffer == buffer) {
            return &buffers[i];
        }
    }
    return NULL;
}

static void unmake(twin_t *twin)
{
    if (twin->tensor.data) {
        gs_memory_free(twin->tensor.data, twin->buffer.size);
    }
    twin->tensor.data = twin->buffer.context = NULL;
}

/* The host frees a buffer: others may lie in its memory soon. */
static void free_watched(ggml_backend_buffer_t buffer)
{
    void (*free_buffer)(ggml_backend_buffer_t) = NULL;
    pthread_mutex_lock(&lock);
    watched_t *w = watched_of(buffer);
    if (w) {
        free_buffer = w->free_buffer;
        *w = buffers[--n_buffers];
    }
    for (size_t i = 0; i < room; i++) {
        if (twins[i] && twins[i]->of == buffer) {
            unmake(twins[i]);
            bytes_of_all -= twins[i]->buffer.size;
            *twins[i] = (twin_t){.data = twins[i]->data};
        }
    }
    pthread_mutex_unlock(&lock);
    if (free_buffer) {
        free_buffer(buffer);
    }
}

static bool watch(ggml_backend_buffer_t buffer)
{
    if (watched_of(buffer)) {
        return true;
    }
    watched_t *more = gs_grown(buffers, n_buffers, &buffers_capacity, sizeof(*more));
    if (!more) {
        return false;
    }
    buffers = more;
    buffers[n_buffers++] = (watched_t){buffer, buffer->iface.free_buffer};
    buffer->iface.free_buffer = free_watched;
    return true;
}

/* ---- twins ----------------------------------------------------------------------------------- */

/* A number that is another one where some byte is. Several chains, since a product takes some
 * cycles. */
static uint64_t sum_of(const uint8_t *bytes, size_t size)
{
    enum { CHAINS = 8, TURN = 29 };
    const uint64_t factor = 0x9E3779B97F4A7C15u;
    uint64_t chains[CHAINS] = {1, 2, 3, 4, 5, 6, 7, 8}, words[CHAINS], sum = size;
    for (size_t at = 0; at < size; at += sizeof(words)) {
        const size_t left = size - at;
        if (left < sizeof(words)) {
            memset(words, 0, sizeof(words));
        }
        memcpy(words, bytes + at, left < sizeof(words) ? left : sizeof(words));
        for (int i = 0; i < CHAINS; i++) {
            const uint64_t x = (chains[i] ^ words[i]) * factor;
            chains[i] = x << TURN | x >> (64 - TURN);
        }
    }
    for (int i = 0; i < CHAINS; i++) {
        sum = gs_mix(sum, chains[i]);
    }
    return sum;
}

/* Makes a twin, or makes it again where the host has other blocks now. */
static bool make(twin_t *twin)
{
    const size_t size = ggml_nbytes(&twin->tensor);
    const uint64_t sum = twin->writable ? sum_of(twin->data, size) : 0;
    if (twin->tensor.data && twin->sum == sum) {
        return true;
    }
    if (!twin->tensor.data) {
        twin->tensor.data = twin->buffer.context = gs_memory_create(twin->buffer.size);
    }
    if (!twin->tensor.data) {
        return false;
    }
    gs_forget_copies(&twin->tensor);
    twin->sum = sum;
    const size_t blocks = size / ggml_type_size(twin->tensor.type);
    if (!gs_load_blocks(&twin->tensor, 0, blocks, twin->data)) {
        unmake(twin);
        return false;
    }
    return true;
}

static bool has_shape_of(const twin_t *twin, const tensor_t *weights)
{
    return twin->tensor.type == weights->type && ggml_are_same_shape(&twin->tensor, weights) &&
           twin->of == weights->buffer;
}

/* The twin of these weights, with memory that is counted as its own. NULL, and *why: there is
 * none. */
static twin_t *twin_for(const tensor_t *weights, const char **why)
{
    twin_t *twin = room > 0 ? *slot_of(weights->data) : NULL;
    if (twin && twin->of) {
        *why = "weights in a buffer of the host where others lie";
        return has_shape_of(twin, weights) ? twin : NULL;
    }
    tensor_t tensor = *weights;
    tensor.buffer = NULL;
    tensor.data = NULL;
    tensor.extra = NULL;
    const size_t bytes = gs_tensor_bytes(&tensor), most = gs_most_copies();
    if (bytes > most || bytes_of_all > most - bytes) {
        *why = "weights in a buffer of the host, whose copies would take too much memory";
        return NULL;
    }
    *why = "out of memory";
    if (!watch(weights->buffer) || (2 * (count + 1) > room && !grow())) {
        return NULL;
    }
    twin_t **slot = slot_of(weights->data);
    if (!*slot) {
        *slot = calloc(1, sizeof(**slot));
        count += *slot != NULL;
    }
    twin = *slot;
    if (!twin) {
        return NULL;
    }
    *twin = (twin_t){.data = weights->data,
                     .of = weights->buffer,
                     .tensor = tensor,
                     .buffer = {.buft = gs_buffer_type(),
                                .size = bytes,
                                .usage = GGML_BACKEND_BUFFER_USAGE_WEIGHTS},
                     .writable = !gs_is_read_only(weights->data, ggml_nbytes(weights))};
    twin->tensor.buffer = &twin->buffer;
    gs_use_tiles(&twin->tensor);
    bytes_of_all += bytes;
    return twin;
}

const tensor_t *gs_needs_twin(const tensor_t *node)
{
    const bool product = gs_op(node) == GS_OP_MUL_MAT || gs_op(node) == GS_OP_MUL_MAT_ID;
    const tensor_t *weights = product ? node->src[0] : NULL;
    const ggml_backend_buffer_t buffer = weights ? gs_root(weights)->buffer : NULL;
    const bool needs = buffer && buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS &&
                       gs_layout_of(weights->type) && gs_has_blocks(weights);
    return needs ? weights : NULL;
}

const char *gs_refuses_twin(const tensor_t *node)
{
    enum { MANY_ROWS = 64 }; /* less are left to the host, which reads the weights only once */
    const tensor_t *weights = gs_needs_twin(node), *x = node->src[1];
    const char *why = NULL;
    if (weights->view_src || !ggml_is_contiguous(weights)) {
        return "a part of weights in a buffer of the host";
    }
    if (!ggml_backend_buft_is_host(weights->buffer->buft) || !weights->data) {
        return "weights in a buffer that is not the host's memory";
    }
    pthread_mutex_lock(&lock);
    const twin_t *twin = twin_for(weights, &why);
    if (twin && twin->writable && ggml_nrows(x) < MANY_ROWS) {
        why = "few rows, and weights in a buffer of the host that may be written unseen";
    } else if (twin) {
        why = NULL;
    }
    pthread_mutex_unlock(&lock);
    return why;
}

/* The twin with what the host has now. NULL: out of memory. */
static const tensor_t *twin_of(const tensor_t *weights)
{
    const char *why;
    pthread_mutex_lock(&lock);
    twin_t *twin = twin_for(weights, &why);
    const bool made = twin && make(twin);
    pthread_mutex_unlock(&lock);
    return made ? &twin->tensor : NULL;
}

bool gs_twins_collect(gs_tensors_t *tensors)
{
    bool ok = true;
    for (int n = 0; n < tensors->n_nodes && ok; n++) {
        const tensor_t *weights = gs_needs_twin(tensors->list[n]),
                       *twin = weights ? twin_of(weights) : NULL;
        tensors->twin[n] = twin ? gs_tensors_add(tensors, twin) : -1;
        ok = !weights || twin;
    }
    return ok;
}

bool gs_twins_renew(const gs_tensors_t *tensors)
{
    bool ok = true;
    for (int n = 0; n < tensors->n_nodes && ok; n++) {
        ok = tensors->twin[n] < 0 || twin_of(tensors->list[n]->src[0]);
    }
    return ok;
}

void gs_twins_say(void)
{
    pthread_mutex_lock(&lock);
    size_t made = 0, bytes = 0;
    for (size_t i = 0; i < room; i++) {
        if (twins[i] && twins[i]->tensor.data) {
            made++;
            bytes += twins[i]->buffer.size;
        }
    }
    pthread_mutex_unlock(&lock);
    if (gs_is_verbose() && made > 0) {
        fprintf(stderr, "sinter: ggml: %zu weights in buffers of the host have copies of %zu MB\n",
                made, (bytes + (1 << 20) - 1) >> 20);
    }
}
