/* Rows of an item by groups: rows that see the same cells, or cells of which most are the same,
 * read these together. See attention_cells.h for the lists, and attention.h for the algorithm. */
#include "backend_xsmm/drivers/attention/attention_task.h"

#include <math.h>

/* Rows r0..r0+n-1 of a block, and the cells that they see. */
typedef struct row_group {
    int r0, n;
    bool mixed; /* some see cells that others do not */
    bool whole; /* whole tiles of a cache in tiles are multiplied, else single tokens */
    bool masks; /* mixed or whole: not all that is multiplied is seen by all */
    cell_walk_t walk;
} row_group_t;

/* Some tokens of a group: a tile of K and V. */
typedef struct token_tile {
    int64_t t0; /* the first one, where they follow each other; 0 where t->b.cell has them */
    int n;
    int64_t step; /* in t->b.cell, as cells_next says */
} token_tile_t;

/* ---- groups ---------------------------------------------------------------------------------- */

static int64_t number_of(const task_t *t, int r)
{
    return cells_number(&t->st->cells, t->idx[r], t->st->d.nb + 2);
}

static const cell_list_t *list_of(const task_t *t, int r)
{
    return cells_list(&t->st->cells, t->worker->shared, number_of(t, r));
}

/* How many rows from r0 on, before `end`, see what r0 does. */
static int equal_rows(const task_t *t, int r0, int end)
{
    const span_t sees = t->sees[r0];
    const int64_t number = number_of(t, r0);
    int r = r0 + 1;
    while (r < end && t->sees[r].begin == sees.begin && t->sees[r].end == sees.end &&
           cells_equal(&t->st->cells, t->worker->shared, number, number_of(t, r))) {
        r++;
    }
    return r - r0;
}

/* The columns that row r sees. */
static const uint64_t *set_of(const task_t *t, int r)
{
    return cells_set(&t->st->cells, t->worker->shared, number_of(t, r));
}

/* The set of this share. */
static uint64_t *own_set(const task_t *t)
{
    const cells_t *c = &t->st->cells;
    return cells_set(c, t->worker->shared, c->lists + t->worker->tid);
}

/* The same without columns of a span. */
static uint64_t *empty_set(const task_t *t, span_t span)
{
    const int64_t from = span.begin / CELLS_WORD, to = (span.end - 1) / CELLS_WORD + 1;
    uint64_t *set = own_set(t);
    memset(set + from, 0, (size_t)(to - from) * sizeof *set);
    return set;
}

const uint64_t *attention_seen(task_t *t, span_t span)
{
    const cells_t *c = &t->st->cells;
    uint64_t *set = empty_set(t, span);
    for (int64_t i = 0; i < c->lists; i++) {
        cells_join(set, cells_set(c, t->worker->shared, i), span.begin, span.end);
    }
    return set;
}

bool attention_sees_few(const task_t *t)
{
    const cells_t *c = &t->st->cells;
    return c->on && c->lists == 1 &&
           cells_list(c, t->worker->shared, 0)->cells < c->columns / 4 * 3;
}

/* Puts what row r sees of a span into the set of this share. */
static void join_row(const task_t *t, int r, span_t span)
{
    const span_t sees = t->sees[r];
    cells_join(own_set(t), set_of(t, r), at_least(span.begin, sees.begin),
               at_most(span.end, sees.end));
}

/* Lets rows before `end` join a group as long as reading their cells of a span together is less
 * work than reading those of each on their own. To load a tile, or to decode tokens, takes as long
 * as some rows of products with it. The set of this share becomes what the group sees. */
static void join_rows(task_t *t, row_group_t *group, bool decoded, int end, span_t span)
{
    const int loading = decoded ? 8 : 16;
    const bool in_tiles = attention_in_tiles(t->c) && !t->c->cache;
    const int64_t a = span.begin, z = span.end;
    uint64_t *set = empty_set(t, span);
    join_row(t, group->r0, span);
    int64_t cells = cells_count(set, set, a, z, in_tiles);
    for (int more; group->r0 + group->n < end; group->n += more) {
        const int r = group->r0 + group->n;
        const uint64_t *other = set_of(t, r);
        const int64_t own = cells_count(other, other, a, z, in_tiles),
                      both = cells_count(set, other, a, z, in_tiles);
        more = equal_rows(t, r, end);
        if ((loading + group->n + more) * both >
            (loading + group->n) * cells + (loading + more) * own) {
            return;
        }
        join_row(t, r, span);
        cells = both;
        group->mixed = true;
    }
}

/* Whether whole tiles of the columns that the set of this share has are rather multiplied than
 * copies of these. To copy a token takes about as long as to multiply it with some rows. If all
 * rows see the same, tiles are read for them alone, and reading takes as long as multiplying. */
static bool takes_whole_tiles(const task_t *t, int rows, span_t span)
{
    const uint64_t *set = own_set(t);
    return !t->c->cache || rows == t->rows ||
           2 * cells_count(set, set, span.begin, span.end, false) >=
               cells_count(set, set, span.begin, span.end, true);
}

/* Whether tokens are copied out of most tiles of a span: then these are read from end to end. */
static bool reads_all(const task_t *t, const row_group_t *group, span_t span)
{
    if (!t->st->cells.on || !t->c->cache || group->whole) {
        return false;
    }
    const uint64_t *set = own_set(t);
    return 4 * cells_count(set, set, span.begin, span.end, true) >= 3 * (span.end - span.begin);
}

/* The group of row r0; rows from `end` on are not in it. */
static row_group_t group_of(task_t *t, int r0, int end, span_t span)
{
    const bool decoded = is_decoded(&t->st->k_side) || is_decoded(&t->st->v_side);
    const cells_t *c = &t->st->cells;
    row_group_t group = {.r0 = r0};
    end = decoded ? (int)at_most(end, r0 + attention_most_rows(t->c)) : end;
    group.n = c->on ? equal_rows(t, r0, end) : end - r0;
    if (c->on) {
        join_rows(t, &group, decoded, end, span);
    }
    group.whole = c->on && attention_in_tiles(t->c) && takes_whole_tiles(t, group.n, span);
    group.masks = group.mixed || group.whole;
    const span_t sees = attention_columns(t, r0, group.n);
    group.walk = (cell_walk_t){
        .set = !c->on        ? NULL
               : group.masks ? own_set(t)
                             : set_of(t, r0),
        .next = at_least(span.begin, c->on && !group.masks ? t->sees[r0].begin : sees.begin),
        .end = at_most(span.end, sees.end),
        .by_place = c->by_place};
    return group;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* What tiles of an item are taken from. */
typedef struct next_tokens {
    matrix_t k, v;
    next_piece_t k_next, v_next;
    int64_t before; /* tokens of earlier tiles */
    bool covered;   /* rows, which have one list, see most columns */
} next_tokens_t;

/* Whether tokens of K or V that are so far apart can be read where they lie. A CPU has few places
 * in its first cache for lines that are a large power of two apart, so that what is prefetched
 * there is lost before it is used. Copying short tokens takes less time than that. */
static bool in_place(const task_t *t, const decode_side_t *side, const groups_t *tokens,
                     int64_t step)
{
    enum { ALIASED = 2048, SHORT = 128 };
    const int64_t stride = tokens->row.stride * step;
    if (is_decoded(side)) { /* pages: decoders take two tokens for one row as copies have them */
        const bool as_rows =
            !t->c->pages || side->like.tokens == 1 || tokens->row.stride == side->head;
        return (step == 1 && as_rows) ||
               ((side->like.tokens == 1 || side->way != BY_DECODING) &&
                (stride * tokens->type->bits / 8 % ALIASED != 0 || side->like.bytes > SHORT));
    }
    return !t->st->ints.direct || stride < INT32_MAX / 16;
}

/* Some tokens of K and V: where they lie, and from each one to the next; 0: they are not evenly
 * spaced. */
typedef struct token_places {
    const int32_t *at;
    int n;
    int64_t step;
} token_places_t;

/* Tokens of K or V, whose rows are tokens: where they lie, or gathered in a buffer. Of those that
 * are evenly spaced *next is where the next ones are. */
static matrix_t take_tokens(task_t *t, const decode_side_t *side, const matrix_t *m, int64_t head,
                            const token_places_t *of, unsigned char *buffer, next_piece_t *next)
{
    const groups_t *codes = &m->codes;
    if (of->step > 0 && in_place(t, side, codes, of->step)) {
        return cells_spaced(m, of->at[0], of->step);
    }
    if (of->step > 0 && next->at == NULL && !t->c->pages) {
        const int64_t token = of->at[0] + of->n * of->step;
        *next = (next_piece_t){groups_byte(codes, codes_at(codes, token, 0)), 0,
                               of->step * codes->row.stride * codes->type->bits / 8};
    }
    return cells_gathered(m, head, of->at, of->n, buffer);
}

/* The tokens of a piece prefetch the next piece from end to end, in whatever order they come. Where
 * rows see a part of the columns only, tokens prefetch those of their group. */
static void prefetch_meanwhile(task_t *t, next_tokens_t *next, int n)
{
    const bool all = next->covered && next->before < t->piece;
    t->k_next = (next_piece_t){all ? next->k_next.at : NULL, -next->before, next->k_next.bytes};
    t->v_next = (next_piece_t){all ? next->v_next.at : NULL, -next->before, next->v_next.bytes};
    next->before += n;
}

/* t->k and t->v become those of the next tokens of a group. False: there are none. */
static bool next_tile(task_t *t, row_group_t *group, next_tokens_t *next, token_tile_t *tile)
{
    cell_walk_t *w = &group->walk;
    const attention_state_t *st = t->st;
    if (!st->cells.on) {
        const int64_t end = attention_tile_end(t, w->next, w->end);
        *tile = (token_tile_t){w->next, (int)at_least(end - w->next, 0), 0};
        w->next += tile->n;
        return tile->n > 0;
    }
    if (group->whole) {
        tile->n = cells_next_tiles(w, t->c->tk, &tile->t0);
        return tile->n > 0;
    }
    tile->t0 = 0;
    tile->n = cells_next(w, t->c->tk, t->b.cell, &tile->step);
    if (tile->n == 0) {
        return false;
    }
    if (t->c->cache) {
        attention_gather(t, tile->n);
        return true;
    }
    prefetch_meanwhile(t, next, tile->n);
    token_places_t places = {t->b.cell, tile->n, tile->step};
    if (t->c->pages) {
        places.step = attention_places(t, &st->k.pages, tile->n);
        places.at = t->b.place;
    }
    const matrix_t keys = matrix_transposed(t->c->pages ? &t->k_pages : &next->k),
                   of = take_tokens(t, &st->k_side, &keys, st->d.D, &places, t->b.cells[0],
                                    &t->k_next);
    t->k = matrix_transposed(&of);
    if (t->c->pages) {
        places.step = attention_places(t, &st->v.pages, tile->n);
    }
    t->v = take_tokens(t, &st->v_side, t->c->pages ? &t->v_pages : &next->v, st->d.Dv, &places,
                       t->b.cells[1], &t->v_next);
    return true;
}

/* The first of the cells of a tile that is not before `column`. */
static int place_of(const task_t *t, const token_tile_t *tile, bool whole, int64_t column)
{
    if (whole) {
        return (int)at_most(at_least(column - tile->t0, 0), tile->n);
    }
    int low = 0, high = tile->n;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (t->b.cell[middle] < column) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The columns of a tile that some row of a strip sees, from a whole grain on. */
static span_t columns_of(const task_t *t, const row_group_t *group, const strip_t *strip,
                         const token_tile_t *tile)
{
    int64_t begin = INT32_MAX, end = 0;
    if (!group->masks) {
        return (span_t){0, tile->n};
    }
    for (int r = strip->r0; r < strip->r0 + strip->n; r++) {
        const cell_list_t *list = list_of(t, r);
        begin = at_most(begin, at_least(list->begin, t->sees[r].begin));
        end = at_least(end, at_most(list->end, t->sees[r].end));
    }
    const int grain = attention_in_tiles(t->c) ? TILES_K : ATT_GRAIN;
    return (span_t){place_of(t, tile, group->whole, begin) / grain * grain,
                    place_of(t, tile, group->whole, end)};
}

/* ---- masks ----------------------------------------------------------------------------------- */

static void hide(float *x, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) {
        x[i] = -INFINITY;
    }
}

/* Whether a row sees all cells of its list's range. */
static bool is_range(const task_t *t, int r)
{
    const cell_list_t *list = list_of(t, r);
    return !list->terms && list->cells == list->end - list->begin;
}

/* What the mask of row r has at the tokens of a tile. */
static void load_terms(const task_t *t, int r, const token_tile_t *tile, bool whole)
{
    const int32_t first = (int32_t)tile->t0;
    cells_terms(&t->st->cells, t->idx[r], t->st->d.nb + 2, whole ? &first : t->b.cell, tile->n,
                whole ? 1 : tile->step, t->b.mask, t->b.terms);
}

/* What the mask says about the columns of a tile: of cells that a row does not see scores become
 * -inf, whatever they are; others are added to. */
static void apply_mask(task_t *t, const row_group_t *group, const strip_t *strip,
                       const token_tile_t *tile, span_t columns)
{
    bool terms = false;
    t->scale = t->st->scale;
    for (int r = strip->r0; r < strip->r0 + strip->n; r++) {
        terms = terms || list_of(t, r)->terms;
    }
    if (terms) { /* they meet scores that are scaled */
        for (int i = 0; i < strip->n; i++) {
            t->c->fn->scale_row(t->b.s + i * t->c->ld_s + columns.begin,
                                (int)(columns.end - columns.begin), t->scale);
        }
        t->scale = 1;
    }
    int64_t loaded = -1;
    for (int i = 0; i < strip->n && (terms || group->masks); i++) {
        const int r = strip->r0 + i;
        const cell_list_t *list = list_of(t, r);
        span_t sees = t->sees[r];
        float *x = t->b.s + i * t->c->ld_s;
        if (is_range(t, r)) {
            sees = (span_t){at_least(sees.begin, list->begin), at_most(sees.end, list->end)};
        } else if (group->whole && !list->terms) {
            t->c->fn->keep_row(x + columns.begin, set_of(t, r), tile->t0 + columns.begin,
                               (int)(columns.end - columns.begin), -INFINITY);
        } else if (group->masks || list->terms) {
            if (number_of(t, r) != loaded) {
                loaded = number_of(t, r);
                load_terms(t, r, tile, group->whole);
            }
            const float *term = t->b.terms;
            for (int64_t k = columns.begin; k < columns.end; k++) {
                x[k] = term[k] == -INFINITY ? -INFINITY : x[k] + term[k];
            }
        }
        if (group->masks) {
            hide(x, columns.begin,
                 at_most(place_of(t, tile, group->whole, sees.begin), columns.end));
            hide(x, at_least(place_of(t, tile, group->whole, sees.end), columns.begin),
                 columns.end);
        }
    }
}

/* ---- passes ---------------------------------------------------------------------------------- */

static void load_queries(task_t *t, const row_group_t *group)
{
    if (t->c->cache) {
        attention_cache_queries(t, group->r0, group->n);
        return;
    }
    if (is_decoded(&t->st->k_side)) {
        decode_query(&t->st->k_side, &t->b.decode, group->n,
                     t->b.q + (int64_t)group->r0 * t->c->ld_q, t->c->ld_q);
        return;
    }
    for (int r = 0; r < group->n; r += t->c->strip) {
        const strip_t strip = attention_strip_of(t, group->r0 + r, group->n - r);
        attention_queries(t, strip.r0, strip.n);
        if (t->st->ints.on) {
            ints_queries(t, &strip);
        }
    }
}

/* A strip of a group and a tile. */
static void run_strip(task_t *t, const row_group_t *group, const strip_t *strip,
                      const token_tile_t *tile)
{
    const span_t columns = columns_of(t, group, strip, tile);
    const int at = (int)columns.begin, nt = (int)(columns.end - columns.begin);
    if (nt <= 0) {
        return;
    }
    attention_scores(t, strip, tile->t0, at, nt);
    if (t->st->scored) {
        attention_chain(t, &t->st->score, strip, tile->t0, at, nt);
    }
    if (t->st->cells.on) {
        apply_mask(t, group, strip, tile, columns);
    }
    attention_update(t, strip, tile->t0, at, nt, true);
    attention_accumulate(t, strip, tile->t0, at, nt);
}

/* The next columns of a group, up to the end of its walk. */
static void run_group(task_t *t, row_group_t *group, next_tokens_t *next)
{
    token_tile_t tile;
    bool loaded = false;
    while (next_tile(t, group, next, &tile)) {
        if (!loaded) {
            load_queries(t, group);
            loaded = true;
        }
        t->seen = group->whole ? group->walk.set : NULL;
        t->gathered = t->st->cells.on && t->c->cache && !group->whole;
        attention_load(t, tile.t0, tile.n, true);
        for (int i = 0; i < group->n; i += t->c->strip) {
            const strip_t strip = attention_strip_of(t, group->r0 + i, group->n - i);
            run_strip(t, group, &strip, &tile);
        }
    }
}

bool attention_groups(task_t *t, int r0, int n, span_t span)
{
    next_tokens_t next = {t->k, t->v, t->k_next, t->v_next, 0, false};
    const int end = r0 + n;
    bool mixed = false;
    next.covered =
        t->st->cells.on && t->k_next.at != NULL && list_of(t, r0)->cells >= t->st->d.T / 4 * 3;
    for (int r = r0; r < end;) {
        row_group_t group = group_of(t, r, end, span);
        if (r == r0 && reads_all(t, &group, span)) {
            attention_read(t, span);
        }
        if (!t->resumes) { /* not earlier: products of integers write to some rows behind */
            attention_clear(t, r, group.n);
        }
        run_group(t, &group, &next);
        mixed = mixed || group.mixed ||
                (group.whole && t->c->cache && t->st->v_cache.may_be_odd && !t->careful);
        r += group.n;
    }
    t->k = next.k;
    t->v = next.v;
    t->k_next = next.k_next;
    t->v_next = next.v_next;
    t->scale = t->st->scale;
    t->seen = NULL;
    t->gathered = t->in_pages = false;
    return mixed;
}
