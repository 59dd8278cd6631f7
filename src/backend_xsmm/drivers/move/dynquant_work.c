/* The work of one thread of a DynamicQuantize step: which slabs, or pieces of slabs, it takes. */
#include <string.h>

#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/drivers/move/dynquant.h"

enum { CACHE_LINE = 64 };

/* The slab with these indexes, and how many groups its rows have. */
static quant_span_t slab_at(const quant_space_t *s, const int64_t *index)
{
    quant_span_t at = s->begin;
    for (int a = 0; a < s->n_slab; a++) {
        span_move(&at, &s->slab[a], index[a]);
    }
    const int64_t rest = s->group.n - index[s->n_slab - 1] * s->groups_per_row;
    at.n = rest < s->groups_per_row ? rest : s->groups_per_row;
    return at;
}

/* Groups from `first` on of a slab's row. */
static quant_span_t groups_from(const quant_space_t *s, const quant_span_t *slab, int64_t first,
                                int64_t n)
{
    quant_span_t at = *slab;
    span_move(&at, &s->group, first);
    at.n = n;
    return at;
}

static void one_slab(const dynquant_state_t *st, const quant_span_t *at, dynquant_scratch_t *m)
{
    dynquant_measure(st, at, 0, st->s.rows * st->s.pieces, m);
    dynquant_derive(st, at, true, m);
    dynquant_encode(st, at, 0, st->s.rows * st->s.pieces, m);
    dynquant_refit(st, at, m);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* Where the elements and results of a run of groups lie. */
static void place_blocks(const dynquant_state_t *st, const quant_span_t *at, dtype_blocks_t *b)
{
    matrix_t *to = &b->to;
    to->codes.first = at->to[IN_CODES];
    to->scale.first = at->to[IN_SCALE];
    to->zp.first = at->to[IN_ZP];
    b->x = st->s.in.data + at->in * dtype_traits(st->s.in.dtype)->block_bytes;
    b->nontemporal =
        st->s.stream && (uintptr_t)groups_byte(&to->codes, to->codes.first) % CACHE_LINE == 0;
}

/* A run of groups by chunks. A chunk with a NaN or an infinity, and groups that do not fill a
 * chunk, are taken as slabs. */
static void run_by_chunks(const dynquant_state_t *st, const quant_span_t *run,
                          dynquant_scratch_t *m)
{
    const quant_space_t *s = &st->s;
    const matrix_t *out = &st->q.out.base;
    dtype_blocks_t b = dynquant_blocks(st);
    const bool whole = run->to[IN_CODES] % out->codes.type->block_elems == 0 &&
                       (st->q.zp == NULL || run->to[IN_ZP] * out->zp.type->bits % 8 == 0);
    int64_t done = 0;
    for (b.chunk = dtype_chunk(b.size, b.from); whole && dynquant_is_chunk(&b, b.chunk);
         b.chunk /= 2) {
        const int64_t each = b.chunk / b.size;
        while ((b.n = (run->n - done) / each) > 0) {
            const quant_span_t at = groups_from(s, run, done, each);
            place_blocks(st, &at, &b);
            const int64_t n = st->q.codes->quantise(&b);
            done += n * each;
            if (n < b.n) {
                const quant_span_t special = groups_from(s, run, done, each);
                one_slab(st, &special, m);
                done += each;
            }
        }
    }
    for (int64_t g = done; g < run->n; g += s->groups_per_row) {
        const quant_span_t rest = groups_from(s, run, g, at_most(run->n - g, s->groups_per_row));
        one_slab(st, &rest, m);
    }
}

/* Slabs begin..end - 1; neighbours are one run. */
static void runs_by_chunks(const dynquant_state_t *st, int64_t begin, int64_t end,
                           dynquant_scratch_t *m)
{
    const quant_space_t *s = &st->s;
    const int last = s->n_slab - 1;
    int64_t index[SINTER_MAX_NDIMS + 1], slabs;
    for (int64_t i = begin; i < end; i += slabs) {
        walk_seek(s->n_slab, s->slab_n, i, index);
        quant_span_t run = slab_at(s, index);
        slabs = at_most(s->slab_n[last] - index[last], end - i);
        run.n = at_most(slabs * s->groups_per_row, s->group.n - index[last] * s->groups_per_row);
        run_by_chunks(st, &run, m);
    }
}

/* ---- slabs ----------------------------------------------------------------------------------- */

/* A box of slabs. */
static void one_item(const dynquant_state_t *st, const int64_t *item, dynquant_scratch_t *m)
{
    const quant_space_t *s = &st->s;
    int64_t extent[SINTER_MAX_NDIMS + 1], index[SINTER_MAX_NDIMS + 1],
        within[SINTER_MAX_NDIMS + 1] = {0}, n = 1;
    for (int a = 0; a < s->n_slab; a++) {
        extent[a] = at_most(s->slab[a].n - item[a] * s->item[a], s->item[a]);
        n *= extent[a];
    }
    for (int64_t i = 0; i < n; i++, walk_next(s->n_slab, extent, within)) {
        for (int a = 0; a < s->n_slab; a++) {
            index[a] = item[a] * s->item[a] + within[a];
        }
        const quant_span_t at = slab_at(s, index);
        one_slab(st, &at, m);
    }
}

static void work_items(const dynquant_state_t *st, int tid, int nth, dynquant_scratch_t *m)
{
    const quant_space_t *s = &st->s;
    int64_t begin, end, n[SINTER_MAX_NDIMS + 1], item[SINTER_MAX_NDIMS + 1];
    share(s->n_items, tid, nth, &begin, &end);
    if (begin >= end) {
        return;
    }
    if (st->way == BY_CHUNKS) {
        runs_by_chunks(st, begin, end, m);
        return;
    }
    for (int a = 0; a < s->n_slab; a++) {
        n[a] = (s->slab[a].n + s->item[a] - 1) / s->item[a];
    }
    walk_seek(s->n_slab, n, begin, item);
    for (int64_t i = begin; i < end; i++, walk_next(s->n_slab, n, item)) {
        one_item(st, item, m);
    }
}

/* ---- slabs that all threads share ------------------------------------------------------------ */

/* Each thread puts the extremes of its pieces into shared memory. A later phase merges the extremes
 * of all threads. */
static void work_pieces(const dynquant_state_t *st, const worker_t *w, dynquant_scratch_t *m)
{
    const quant_space_t *s = &st->s;
    const int64_t n_slabs = quant_slabs(s), slot = 2 * QUANT_COLUMNS;
    int64_t begin, end, index[SINTER_MAX_NDIMS + 1] = {0};
    share(s->rows * s->pieces, w->tid, w->nth, &begin, &end);
    for (int64_t i = 0; i < n_slabs; i++, walk_next(s->n_slab, s->slab_n, index)) {
        const quant_span_t at = slab_at(s, index);
        const int n = (int)dynquant_extremes(st, &at);
        int32_t *slots = (int32_t *)w->shared + i * w->nth * slot;
        if (w->phase == 0) {
            int32_t *mine = slots + w->tid * slot;
            dynquant_measure(st, &at, begin, end, m);
            memcpy(mine, m->m.top, (size_t)n * sizeof *mine);
            if (m->m.bottom != NULL) {
                memcpy(mine + QUANT_COLUMNS, m->m.bottom, (size_t)n * sizeof *mine);
            }
            continue;
        }
        group_values_clear(&m->m, n);
        for (int t = 0; t < w->nth; t++) {
            st->q.fn->merge(m->m.top, slots + t * slot, n);
            if (m->m.bottom != NULL) {
                st->q.fn->merge(m->m.bottom, slots + t * slot + QUANT_COLUMNS, n);
            }
        }
        dynquant_derive(st, &at, w->tid == 0, m);
        dynquant_encode(st, &at, begin, end, m);
    }
}

void dynquant_work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                   const worker_t *w)
{
    const dynquant_state_t *st = state;
    const int tid = w->tid, nth = w->nth;
    dynquant_scratch_t m;
    (void)self, (void)p, (void)config;
    if (quant_slabs(&st->s) == 0) {
        return;
    }
    dynquant_carve(w->scratch, &st->q, &m);
    if (st->s.by_pieces) {
        work_pieces(st, w, &m);
    } else if (w->phase == 0) {
        work_items(st, tid, nth, &m);
    }
    for (unsigned box = 1; w->phase == 0 && box < 1u << st->n_short; box++) {
        dynquant_state_t part;
        dynquant_bind_box(st, box, &part);
        work_items(&part, tid, nth, &m);
    }
    if (st->s.stream) {
        st->q.fn->stream_end();
    }
}
