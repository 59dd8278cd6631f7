/* Reorder between tiles and strides: threads share the strips of columns, which lie one behind the
 * other in tiles. */
#include <string.h>

#include "backend_xsmm/kernel.h"
#include "base/status.h"
#include "graph/layout.h"

typedef struct reorder_state {
    lt_t tiles, strided; /* the whole tensor */
    unsigned char *tiles_data, *strided_data;
    layout_t layout;
    bool packs;
    int64_t strip; /* bytes in tiles */
} reorder_state_t;

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    (void)self, (void)p, (void)arena;
    *out = (candidate_t){.state_bytes = sizeof(reorder_state_t), .note = "strips of 16 columns"};
    return sinter_success;
}

/* Strips share a byte where their columns lie side by side and rows begin within one. */
static bool shares_bytes(const reorder_state_t *st)
{
    const layout_t *l = &st->layout;
    const int64_t bits = dtype_traits(st->strided.data_type)->bits,
                  row = l->along < 0 ? 0 : st->strided.strides[l->along];
    if (l->heads > 1 && !st->packs &&
        st->strided.strides[st->strided.ndims - 2] * bits % 8 != 0) { /* of two heads */
        return true;
    }
    return !st->packs && (l->N > TILES_COLUMNS || l->matrices > 1) && l->K > 1 &&
           st->strided.strides[l->across] == 1 && row * bits % 8 != 0;
}

static lt_t one_matrix(const layout_t *l, const lt_t *all)
{
    lt_t lt = *all;
    for (int d = 0; d < lt.ndims; d++) {
        lt.dims[d] = d == l->across ? l->N : d == l->along ? l->K : 1;
    }
    return lt;
}

static sinter_status_t choose(const kernel_t *self, const problem_t *p, const void *config,
                              void *state, choice_t *choice)
{
    reorder_state_t *st = state;
    const reorder_params_t *r = &p->step->p.reorder;
    (void)self, (void)config;
    st->packs = p->plan->values[r->out].tiled != NOT_TILED;
    const int tiled = st->packs ? r->out : r->in, strided = st->packs ? r->in : r->out;
    const bound_t *b = &p->frame->v[strided];
    st->tiles = p->plan->values[tiled].lt;
    memcpy(st->tiles.dims, b->dims, sizeof b->dims);
    st->strided = st->tiles;
    lt_set_dims(&st->strided, b->dims, b->strides);
    st->tiles_data = p->frame->v[tiled].data;
    st->strided_data = b->data;
    st->layout = layout_of(&st->tiles);
    lt_t strip = one_matrix(&st->layout, &st->tiles);
    strip.dims[st->layout.across] = TILES_COLUMNS;
    layout_bytes(&strip, &st->strip); /* no more than all of it, which layout_verify has checked */
    choice->shares_bytes = shares_bytes(st);
    return sinter_success;
}

/* Some columns of a matrix from a multiple of 16 on, which begin with a whole byte in both layouts:
 * as tensors of their own. */
typedef struct part {
    lt_t tiles, strided;
    unsigned char *tiles_data, *strided_data;
} part_t;

static part_t part_of(const reorder_state_t *st, int64_t matrix, int64_t column, int64_t columns)
{
    const layout_t *l = &st->layout;
    const int across = l->across;
    const int64_t bits = dtype_traits(st->strided.data_type)->bits,
                  strip = matrix * tiles_strips(l->N) + column / TILES_COLUMNS,
                  element =
                      layout_matrix(&st->strided, l, matrix) + column * st->strided.strides[across];
    part_t part = {one_matrix(l, &st->tiles), one_matrix(l, &st->strided),
                   st->tiles_data + strip * st->strip, st->strided_data + element * bits / 8};
    part.tiles.dims[across] = part.strided.dims[across] = columns;
    return part;
}

static int checked(const step_t *step, int i)
{
    return i == 0 && step->p.reorder.may_not_fit ? step->p.reorder.in : -1;
}

/* Codes that must fit fewer bits: they are packed tile by tile, for the answer alone. */
static sinter_status_t check(const problem_t *p, const void *state)
{
    enum { MOST_BYTES = TILES_COLUMNS * TILES_K };
    const reorder_state_t *st = state;
    const layout_t *l = &st->layout;
    if (!p->step->p.reorder.may_not_fit) {
        return sinter_success;
    }
    const int64_t bytes = dtype_traits(st->strided.data_type)->bits / 8;
    const int64_t strips = tiles_strips(l->N);
    for (int64_t s = 0; s < l->matrices * strips; s++) {
        const int64_t n = s % strips * TILES_COLUMNS;
        for (int64_t k = 0; k < l->K; k += TILES_K) {
            unsigned char tile[MOST_BYTES];
            part_t part = part_of(st, s / strips, n, at_most(l->N - n, TILES_COLUMNS));
            part.tiles.dims[l->along] = part.strided.dims[l->along] = at_most(l->K - k, TILES_K);
            part.strided_data += k * part.strided.strides[l->along] * bytes;
            if (!layout_pack(p->plan->features, &part.strided, part.strided_data, &part.tiles,
                             tile)) {
                return sg_fail(sinter_invalid_arguments,
                               "Reorder: tensor %llu has codes that do not fit the bits that the "
                               "layout of tensor %llu asks for",
                               problem_id(p, p->step->p.reorder.in),
                               problem_id(p, p->step->p.reorder.out));
            }
        }
    }
    return sinter_success;
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const reorder_state_t *st = state;
    const int64_t N = st->layout.N, strips = tiles_strips(N);
    int64_t begin, end;
    (void)self, (void)config;
    share(st->layout.matrices * strips, w->tid, w->nth, &begin, &end);
    for (int64_t s = begin, n; s < end; s += n) { /* of one matrix each */
        const int64_t column = s % strips * TILES_COLUMNS;
        n = at_most(end - s, strips - s % strips);
        const part_t part = part_of(st, s / strips, column, at_most(N - column, n * TILES_COLUMNS));
        if (st->packs) {
            (void)layout_pack(p->plan->features, &part.strided, part.strided_data, &part.tiles,
                              part.tiles_data);
        } else {
            layout_unpack(p->plan->features, &part.tiles, part.tiles_data, &part.strided,
                          part.strided_data);
        }
    }
}

const driver_t driver_reorder_strips = {.step = STEP_REORDER,
                                        .arithmetic = IN_ANY,
                                        .phases = 1,
                                        .setup = setup,
                                        .choose = choose,
                                        .check = check,
                                        .checked = checked,
                                        .work = work};
