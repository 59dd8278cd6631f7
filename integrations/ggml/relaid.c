/* Copies of quantised caches in buffers of the host, as planes. */
#include "relaid.h"

#include <stdlib.h>

#include "layout.h"

/* Rows in dim 1 that a cache has from the view's first one on. */
static int64_t room_of(const tensor_t *t)
{
    const tensor_t *root = gs_root(t);
    const size_t offset = (size_t)((const char *)t->data - (const char *)root->data),
                 all = ggml_nbytes(root);
    const int64_t rows = t->nb[1] > 0 ? (int64_t)((all - offset + t->nb[1] - 1) / t->nb[1]) : 0;
    return rows > t->ne[1] ? rows : t->ne[1];
}

static size_t blocks_of(const gs_relaid_t *r)
{
    const int64_t elements = gs_layout_of(r->type)->elements;
    return (size_t)(r->ne[0] / elements * r->ne[1] * r->ne[2] * r->ne[3]);
}

static size_t plane_offset(const gs_relaid_t *r, int plane)
{
    size_t offset = 0;
    for (int p = 0; p < plane; p++) {
        const size_t bytes = blocks_of(r) * (size_t)gs_layout_of(r->type)->planes[p].bytes;
        offset += (bytes + GS_ALIGNMENT - 1) / GS_ALIGNMENT * GS_ALIGNMENT;
    }
    return offset;
}

gs_relaid_t *gs_relaid_of(gs_caches_t *caches, const tensor_t *t)
{
    const int64_t ne[GGML_MAX_DIMS] = {t->ne[0], room_of(t), t->ne[2], t->ne[3]};
    for (int i = 0; i < caches->count; i++) {
        gs_relaid_t *r = caches->list[i];
        if (r->data == t->data && r->type == t->type && !memcmp(r->ne, ne, sizeof(ne))) {
            return r;
        }
    }
    gs_relaid_t **list = gs_grown(caches->list, caches->count, &caches->capacity, sizeof(*list));
    gs_relaid_t *r = list ? calloc(1, sizeof(*r)) : NULL;
    caches->list = list ? list : caches->list;
    if (!r) {
        return NULL;
    }
    *r = (gs_relaid_t){.data = t->data, .type = t->type};
    memcpy(r->ne, ne, sizeof(ne));
    r->planes = aligned_alloc(GS_ALIGNMENT, plane_offset(r, GS_PLANES) + GS_ALIGNMENT);
    r->blocks = malloc(blocks_of(r) * (size_t)gs_layout_of(r->type)->bytes + 1);
    if (!r->planes || !r->blocks) {
        free(r->planes);
        free(r->blocks);
        free(r);
        return NULL;
    }
    return caches->list[caches->count++] = r;
}

void *gs_relaid_plane(const gs_relaid_t *r, int plane)
{
    return r->planes + plane_offset(r, plane);
}

int64_t gs_relaid_stride(const tensor_t *t, int plane, int dim)
{
    const int64_t row = t->ne[0] / gs_plane_group(gs_layout_of(t->type), plane),
                  table = row * room_of(t);
    return dim == 0 ? 1 : dim == 1 ? row : dim == 2 ? table : table * t->ne[2];
}

/* Row `row` of a table of t, which is all that differs in dims 2 and 3. */
static void refresh_row(gs_relaid_t *r, const tensor_t *t, int64_t row, int64_t table)
{
    const gs_layout_t *layout = gs_layout_of(t->type);
    const size_t blocks = (size_t)(t->ne[0] / layout->elements),
                 bytes = blocks * (size_t)layout->bytes;
    const uint8_t *from = (const uint8_t *)t->data + (size_t)row * t->nb[1] +
                          (size_t)(table % t->ne[2]) * t->nb[2] +
                          (size_t)(table / t->ne[2]) * t->nb[3];
    uint8_t *kept = r->blocks + (size_t)(row * t->ne[2] * t->ne[3] + table) * bytes, *to[GS_PLANES];
    if (row < r->known && !memcmp(kept, from, bytes)) {
        return;
    }
    memcpy(kept, from, bytes);
    for (int p = 0; p < GS_PLANES; p++) {
        to[p] = r->planes + plane_offset(r, p) +
                (size_t)(table * r->ne[1] + row) * blocks * (size_t)layout->planes[p].bytes;
    }
    for (size_t i = 0; i < blocks; i++) {
        layout->unpack(kept + i * (size_t)layout->bytes, to);
        for (int p = 0; p < GS_PLANES; p++) {
            to[p] += layout->planes[p].bytes;
        }
    }
}

/* One thread does it: reading what has not changed is quick, and others would compete with the
 * threads of the library, which wait for the next graph. */
void gs_relaid_refresh(gs_relaid_t *r, const tensor_t *t)
{
    /* Rows that are compared at once where they follow one another as the copy's do. */
    enum { ROWS = 64 };
    const int64_t tables = t->ne[2] * t->ne[3];
    const size_t bytes = ggml_row_size(t->type, t->ne[0]), all = bytes * (size_t)tables;
    const bool dense = (tables == 1 || (t->nb[2] == bytes && t->ne[3] == 1)) && t->nb[1] == all;
    for (int64_t first = 0; first < t->ne[1]; first += ROWS) {
        const int64_t end = first + ROWS < t->ne[1] ? first + ROWS : t->ne[1];
        if (dense && end <= r->known &&
            !memcmp(r->blocks + (size_t)first * all, (const char *)t->data + (size_t)first * all,
                    (size_t)(end - first) * all)) {
            continue;
        }
        for (int64_t row = first; row < end; row++) {
            for (int64_t table = 0; table < tables; table++) {
                refresh_row(r, t, row, table);
            }
        }
    }
    r->known = t->ne[1] > r->known ? t->ne[1] : r->known;
}

void gs_caches_free(gs_caches_t *caches)
{
    for (int i = 0; i < caches->count; i++) {
        free(caches->list[i]->planes);
        free(caches->list[i]->blocks);
        free(caches->list[i]);
    }
    free(caches->list);
    *caches = (gs_caches_t){0};
}
