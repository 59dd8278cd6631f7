#include "backend_xsmm/drivers/common/tiled.h"

#include "backend_xsmm/kernel.h"

bool tiled_values_type(sinter_data_type_t type, int kept, tiles_values_t *values)
{
    static const struct {
        sinter_data_type_t type;
        tiles_values_t values;
    } rows[] = {{sinter_f32, TILES_F32},     {sinter_f16, TILES_F16}, {sinter_bf16, TILES_BF16},
                {sinter_e8m0, TILES_E8M0},   {sinter_s8, TILES_S8},   {sinter_u8, TILES_U8},
                {sinter_f8_e4m3, TILES_E4M3}};
    bool found = false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !found; i++) {
        *values = rows[i].values;
        found = rows[i].type == type;
    }
    if (kept > 0) {
        *values = (tiles_values_t)((type == sinter_s8 ? TILES_KEPT_S8 : TILES_KEPT_U8) + kept);
    }
    return found;
}

static void bind_plane(const groups_t *g, const groups_t *by, int64_t K, tiled_plane_t *to)
{
    const bool one = axis_groups(&g->row, K) == 1;
    *to = (tiled_plane_t){.first = {.data = g->data, .by_lines = 1, .columns = g->column.group},
                          .strip = g->strip,
                          .group = one                      ? tiles_along(K)
                                   : g->row.group < TILES_K ? 1
                                                            : g->row.group / TILES_K,
                          .halves = !one && g->row.group < TILES_K};
    tiled_values_type(g->dtype, tiles_kept(g->tiled), &to->first.type);
    if (by->type != NULL) {
        to->first.by = by->data;
        to->first.by_lines = by->row.group / g->row.group;
        to->by_strip = by->strip;
        tiled_values_type(by->dtype, tiles_kept(by->tiled), &to->first.by_type);
    }
}

void tiled_bind(features_t features, const matrix_t *b, int64_t K, tiled_b_t *to)
{
    const groups_t *codes = &b->codes;
    const int kept = tiles_kept(codes->tiled);
    *to = (tiled_b_t){.table = tiles_table(features),
                      .plain = b->scale.type == NULL ? codes->dtype : sinter_data_type_undef,
                      .type = tiles_type(b->high.type != NULL ? b->split : codes->dtype),
                      .data = codes->data,
                      .high = b->high.type != NULL ? b->high.data : NULL,
                      .strip = codes->strip,
                      .tiles = tiles_along(K),
                      .tile = tiles_bytes(tiles_bits(codes->tiled, codes->dtype)),
                      .kept = kept,
                      .zero = tiles_zero(kept, codes->dtype),
                      .offsets = b->offsets,
                      .zp = {.group = tiles_along(K)}};
    if (to->plain != sinter_data_type_undef) {
        return;
    }
    bind_plane(&b->scale, &b->scale_scale, K, &to->scale);
    if (b->zp.type != NULL) {
        bind_plane(&b->zp, &b->zp_scale, K, &to->zp);
        if (!b->offsets) { /* integers of any type are bytes */
            to->zp.first.type = b->zp.dtype == sinter_u8 ? TILES_U8 : TILES_S8;
        }
    }
    if (codes->type->bits == 4 && b->high.type == NULL) {
        float value[16];
        dtype_nibble_values(&codes->type->codec, value);
        for (int i = 0; i < 16; i++) {
            to->values[i] = value[i ^ tiles_flip(codes->dtype)];
            to->bytes[i] = (unsigned char)(value[i] / to->type->unit + (float)to->type->offset);
        }
    }
}

/* Of n tiles from tile t on, those up to the last end of a group; all of them if no group ends. */
static int to_end_of_group(int64_t group, int64_t t, int n)
{
    const int64_t left = group - t % group;
    return (int)(left < n ? left + (n - left) / group * group : n);
}

/* Micro-kernels add products in chains, which end with a group, or after a number of tiles that
 * divides TILES_PIECE. So a piece ends where a chain does. */
int tiled_piece(const tiled_b_t *b, int64_t t)
{
    const int n = (int)at_most(b->tiles - t, TILES_PIECE);
    return n == b->tiles - t
               ? n
               : to_end_of_group(b->zp.group, t, to_end_of_group(b->scale.group, t, n));
}

void tiled_values(const tiled_b_t *b, const tiled_plane_t *from, int64_t strip, int64_t first,
                  int lines, float unit, float *to)
{
    tiles_plane_t plane = from->first;
    const int64_t value = strip * TILES_COLUMNS / plane.columns, own = value / TILES_COLUMNS;
    plane.value = (int)(value % TILES_COLUMNS);
    plane.data += own * from->strip;
    plane.by = plane.by != NULL ? plane.by + own * from->by_strip : NULL;
    b->table->values(&plane, first, lines, unit, to);
}

/* The lines of n tiles of a strip from tile t on. */
static void load_plane(const tiled_b_t *b, const tiled_plane_t *from, int64_t strip, int64_t t,
                       int n, float unit, float *to)
{
    const int64_t first = t / from->group, end = (t + n - 1) / from->group + 1;
    tiled_values(b, from, strip, first << from->halves, (int)(end - first) << from->halves, unit,
                 to);
}

tiles_strip_t tiled_strip(const tiled_b_t *b, const unsigned char *codes, int64_t t, int n,
                          const tiles_coefs_t *values)
{
    const bool zps = b->zp.first.data != NULL;
    return (tiles_strip_t){.codes = codes,
                           .high = b->high != NULL ? b->high + (codes - b->data) / 2 : NULL,
                           .kept = b->kept,
                           .zero = b->zero,
                           .tiles = n,
                           .scale = values->scale,
                           .zp = zps && !b->offsets ? values->zp : NULL,
                           .offset = zps && b->offsets ? values->zp : NULL,
                           .group = b->scale.group,
                           .left = b->scale.group - t % b->scale.group,
                           .zp_group = b->zp.group,
                           .zp_left = b->zp.group - t % b->zp.group,
                           .halves = b->scale.halves,
                           .offset_halves = b->offsets && b->zp.halves};
}

tiles_strip_t tiled_coefs(const tiled_b_t *b, int64_t strip, int64_t t, int n, float unit,
                          tiles_coefs_t *to)
{
    load_plane(b, &b->scale, strip, t, n, unit, to->scale);
    if (b->zp.first.data != NULL) {
        load_plane(b, &b->zp, strip, t, n, 1, to->zp);
    }
    return tiled_strip(b, b->data + strip * b->strip + t * b->tile, t, n, to);
}
