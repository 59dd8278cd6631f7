/* Quantised tensors in our buffers. ggml mixes scales and codes in blocks. In a buffer of ours such
 * a tensor is planes instead: the codes of all rows, then the scales, the offsets, and what else
 * the way back needs. They are then ordinary tensors.
 *
 * Weights of MUL_MAT and MUL_MAT_ID, which are matrices in a buffer for weights, are in tiles:
 * codes, scales and offsets have the opaque layout that Sinter's MatMul reads fastest, in memory of
 * the same size but for rows up to a multiple of 16. Several matrices of a tensor (experts) are in
 * tiles as one with all of their rows, if each has a multiple of 16. Matrices of Q2_K, Q3_K, Q5_K,
 * Q6_K and IQ4_XS are in tiles in every buffer.
 *
 * Caches of attention are in planes until a graph reads their heads (heads.h). Their planes are
 * then tiles of [tokens, heads, head], in the same memory. */
#ifndef SINTER_GGML_LAYOUT_H
#define SINTER_GGML_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sinter/sinter.h>

#include "ggml-backend-impl.h"
#include "ggml-impl.h"

/* Of the data of a tensor and of its planes, in bytes. */
enum { GS_ALIGNMENT = 64 };

/* The last two: what scales and offsets, if these are codes, are multiplied with. */
enum { GS_CODES, GS_SCALES, GS_OFFSETS, GS_SCALE_SCALES, GS_OFFSET_SCALES, GS_PLANES };

/* In place of bits: codes are numbers of a table, of which tiles have the place, of four bits. */
enum { GS_NUMBERS = 7 };

typedef struct gs_plane {
    sinter_data_type_t type;
    int bytes; /* that a block of ggml has there */
    int kept;  /* bits of each integer of 8 that tiles have, 0: all; or GS_NUMBERS */
} gs_plane_t;

typedef struct gs_layout {
    enum ggml_type type;
    int elements, bytes; /* of a block of ggml */
    int group;           /* elements with one scale */
    gs_plane_t planes[GS_PLANES];
    void (*unpack)(const uint8_t *block, uint8_t *const *planes);
    void (*pack)(uint8_t *block, uint8_t *const *planes);
} gs_layout_t;

/* Gives a plane of a tensor in tiles its layout. false: Sinter has none. */
bool gs_tile_plane(const gs_layout_t *layout, int plane, sinter_logical_tensor_t *lt);
/* Elements with one number in a plane. */
int gs_plane_group(const gs_layout_t *layout, int plane);
/* The layout of a type, or NULL where its blocks stay as they are. */
const gs_layout_t *gs_layout_of(enum ggml_type type);
/* The offset of a plane in bytes from the data of a tensor that is not a view. */
size_t gs_plane_offset(const struct ggml_tensor *root, int plane);
/* Bytes of a tensor in a buffer of ours. */
size_t gs_tensor_bytes(const struct ggml_tensor *tensor);
/* Lets weights that are not a view lie in tiles if their shape suits that: before their bytes are
 * set. */
void gs_use_tiles(struct ggml_tensor *root);
/* Of a tensor in a buffer of ours, or one that has no place yet. */
bool gs_in_tiles(const struct ggml_tensor *root);
/* How a cache lies in tiles: as K or V, with heads of so many elements. */
typedef struct gs_heads {
    bool is_v;
    int64_t head; /* 0: it is in planes */
} gs_heads_t;

/* Of a tensor that is not a view. */
gs_heads_t gs_heads_of(const struct ggml_tensor *root);
/* NULL, or why a cache cannot lie so. */
const char *gs_refuses_heads(const struct ggml_tensor *root, gs_heads_t heads);
/* Lays a cache out anew. false: out of memory, and it lies as it did. */
bool gs_set_heads(const struct ggml_tensor *root, gs_heads_t heads);
/* Whether a cache that was in tiles has been refused them since this was asked last; else a graph
 * in two parts, of which one refuses them, would lay it out anew in each run. */
bool gs_heads_wait(const struct ggml_tensor *root, bool refused);
/* How often that has happened in this process. */
uint64_t gs_heads_changes(void);
/* Memory that is freed has no caches. */
void gs_forget_heads(const void *memory, size_t size);
/* Gives a plane of such a cache, [tokens, heads, elements or groups], its layout. false: Sinter has
 * none. */
bool gs_heads_plane(gs_heads_t heads, int plane, sinter_logical_tensor_t *lt);
/* Blocks of a tensor that is not a view, to planes or tiles and back. Several threads may do so at
 * once for other blocks. false: out of memory. */
bool gs_unpack_blocks(const struct ggml_tensor *root, size_t first, size_t count,
                      const uint8_t *blocks);
bool gs_pack_blocks(const struct ggml_tensor *root, size_t first, size_t count, uint8_t *blocks);

#endif
