/* The work of the attention kernels, from passes over T to results: see attention.h for the
 * algorithm. */
#include "backend_xsmm/drivers/attention/attention_task.h"

#include <math.h>
#include <string.h>

#include "base/fetch.h"

/* ---- results --------------------------------------------------------------------------------- */

/* Where V has more batches than the scores, or a chain on the probabilities more rows, the first of
 * them stores the statistics of all. */
static void store_stats(const task_t *t, const int64_t *idx, float m, float l)
{
    const bound_t *out = &t->frame->v[t->p->stats];
    const int skip = t->st->d.nb + 2 - out->ndims;
    int64_t at = 0;
    for (int d = -skip; d < out->ndims - 1; d++) {
        const int64_t i = idx[d + skip], n = d < 0 ? 1 : out->dims[d];
        if (i >= n) {
            return;
        }
        at += d < 0 ? 0 : i * out->strides[d];
    }
    const float x = m + logf(l); /* of a row of nothing: -inf */
    dtype_traits(out->dtype)->codec.store_f32(out->data, at, 1, 1, &x);
}

/* Row r of the block, whose sums are m, l and acc, to the outputs. */
static void finish_row(task_t *t, int r, float m, float l, float *acc)
{
    const int nb = t->st->d.nb;
    if (is_decoded(&t->st->v_side)) {
        decode_restore(&t->st->v_side, &t->b.decode, 1, acc, t->c->ld_v);
    }
    if (t->p->stats >= 0 && t->dv0 == 0) {
        store_stats(t, t->idx[r], m, l);
    }
    if (!t->p->prob) {
        /* l = 0: no column, or -inf in all of them. acc is then 0, or NaN where V has something
         * that 0 times is NaN. */
        const bool zero = l == 0 && (t->p->inf_as_zero || t->st->d.T == 0);
        t->c->fn->scale_row(acc, t->dv, zero ? 1 : l == 0 ? NAN : 1 / l);
    }
    for (int i = 0; i < t->dv; i += CHAIN_BLOCK) {
        t->idx[r][nb + 1] = t->dv0 + i;
        chain_run(&t->st->post, t->idx[r], t->dv - i < CHAIN_BLOCK ? t->dv - i : CHAIN_BLOCK,
                  acc + i, t->b.chain);
    }
    if (t->tail && t->dv > 0) {
        t->idx[r][nb + 1] = t->dv0;
        quant_tail_run(&t->st->tail, t->idx[r], 1, t->dv, acc, 0, t->b.tail);
    }
    t->idx[r][nb + 1] = 0;
}

static void finish_rows(task_t *t, attention_sums_t sums, int r0, int n)
{
    for (int r = r0; r < r0 + n; r++) {
        finish_row(t, r, sums.m[r], sums.l[r], sums.acc + (int64_t)r * t->c->ld_v);
    }
}

/* ---- sums of parts --------------------------------------------------------------------------- */

static attention_sums_t own_sums(const task_t *t)
{
    return (attention_sums_t){t->b.m, t->b.l, t->b.acc};
}

/* Whether a row's first column is in a part. A row that sees nothing begins with the first part. */
static bool begins_in(const task_t *t, int r, part_t part)
{
    const span_t sees = t->sees[r];
    return sees.begin < sees.end ? sees.begin >= part.span.begin && sees.begin < part.span.end
                                 : part.first;
}

/* Adds row r's sums of a part to those of the parts before it, which are copied there: what is done
 * depends on the columns of the row alone. Exact: the sums with the lower maximum are rescaled to
 * the higher one. */
static void add_part(const task_t *t, int r, part_t part, attention_sums_t from,
                     attention_sums_t to)
{
    const attention_config_t *c = t->c;
    const float m = from.m[r], old = to.m[r];
    float *acc = to.acc + (int64_t)r * c->ld_v, by = 1, old_by = 1;
    const float *more = from.acc + (int64_t)r * c->ld_v;
    if (begins_in(t, r, part)) {
        to.m[r] = m;
        to.l[r] = from.l[r];
        memcpy(acc, more, (size_t)c->dv * sizeof(float));
        return;
    }
    if (t->sees[r].begin >= part.span.begin || t->sees[r].end <= part.span.begin) {
        return;
    }
    if (m < old && m > -INFINITY) {
        c->fn->exp_sub_sum(&by, &m, 1, old);
    } else if (m > old && old > -INFINITY) {
        c->fn->exp_sub_sum(&old_by, &old, 1, m);
    }
    to.m[r] = m > old ? m : old;
    to.l[r] = to.l[r] * old_by + from.l[r] * by;
    c->fn->mix_row(acc, old_by, more, by, c->dv);
}

/* The sums of n rows from r0 on are those of the whole part. */
static void end_rows(task_t *t, int r0, int n)
{
    for (int r = r0; r < r0 + n && (t->sums_end == TO_TOTAL || t->sums_end == TOTAL_TO_RESULTS);
         r++) {
        add_part(t, r, t->part, own_sums(t), t->b.total);
    }
    if (t->sums_end == TO_RESULTS) {
        finish_rows(t, own_sums(t), r0, n);
    } else if (t->sums_end == TOTAL_TO_RESULTS) {
        finish_rows(t, t->b.total, r0, n);
    }
}

/* ---- passes over T --------------------------------------------------------------------------- */

static float sink_of(const task_t *t, int r)
{
    const bound_t *sink = &t->frame->v[t->p->sink];
    int64_t at = 0;
    float x;
    for (int d = 0; d <= t->st->d.nb; d++) {
        at += t->idx[r][d] * t->st->sink_stride[d];
    }
    dtype_traits(sink->dtype)->codec.load_f32(sink->data, at, 0, 1, &x);
    return x;
}

void attention_clear(task_t *t, int r0, int n)
{
    for (int r = r0; r < r0 + n; r++) {
        const bool with_sink = t->p->sink >= 0 && begins_in(t, r, t->part);
        const float sink = with_sink ? sink_of(t, r) : -INFINITY;
        t->b.m[r] = sink;
        t->b.l[r] = sink == -INFINITY ? 0 : sink - sink + 1; /* e^0, NaN for +inf and NaN */
    }
    memset(t->b.acc + (int64_t)r0 * t->c->ld_v, 0, (size_t)n * (size_t)t->c->ld_v * sizeof(float));
}

/* Scores of what a strip sees of the tile at t0, columns at..at+nt-1; gives nt, which may be 0. */
static int score_visible(task_t *t, const strip_t *strip, int64_t t0, int64_t end, int *at)
{
    *at = (int)(at_most(at_least(strip->columns.begin, t0), end) - t0);
    const int nt = (int)(at_most(strip->columns.end, end) - t0) - *at;
    if (nt <= 0) {
        return 0;
    }
    attention_scores(t, strip, t0, *at, nt);
    if (t->st->scored) {
        attention_chain(t, &t->st->score, strip, t0, *at, nt);
    }
    return nt;
}

/* The same columns, by groups of rows. A row that met an infinity or a NaN of cells that it does
 * not see is computed again, without those. */
static void pass_by_groups(task_t *t, span_t span)
{
    const bool mixed = attention_groups(t, 0, t->rows, span);
    for (int r = 0; r < t->rows && mixed; r++) {
        float *acc = t->b.acc + (int64_t)r * t->c->ld_v, *behind = acc + t->c->ld_v, sum = 0;
        /* Products of integers write to some rows behind. */
        const size_t kept = (size_t)at_most(t->rows - r - 1, BLOCKS_ROWS - 1) * (size_t)t->c->ld_v *
                            (t->st->ints.on ? sizeof(float) : 0);
        for (int i = 0; i < t->dv; i++) {
            sum += acc[i] - acc[i];
        }
        if (isnan(sum)) {
            memcpy(t->b.part, behind, kept);
            t->careful = true;
            attention_groups(t, r, 1, span);
            t->careful = false;
            memcpy(behind, t->b.part, kept);
        }
    }
}

/* m and l, and acc unless a probability chain wants a second pass. ends: the pass is over the last
 * columns of the part; what follows is done as soon as a strip has its sums, while they are in
 * L1. */
static void online_pass(task_t *t, span_t span, bool ends)
{
    const bool with_acc = !t->p->prob;
    if (attention_by_groups(t) && span.begin < span.end) {
        pass_by_groups(t, span);
        if (ends) {
            end_rows(t, 0, t->rows);
        }
        return;
    }
    for (int64_t t0 = span.begin, end; t0 < span.end; t0 = end) {
        end = attention_tile_end(t, t0, span.end);
        attention_load(t, t0, (int)(end - t0), with_acc);
        for (int r = 0; r < t->rows; r += t->c->strip) {
            const strip_t strip = attention_strip(t, r);
            if (t0 == span.begin && !t->resumes) {
                attention_clear(t, strip.r0, strip.n);
            }
            if (!t->has_queries && !is_decoded(&t->st->k_side)) {
                attention_queries(t, strip.r0, strip.n);
                if (t->st->ints.on) {
                    ints_queries(t, &strip);
                }
                attention_fetch_queries(t, strip.r0 + strip.n);
            }
            if (end < t->until) {
                attention_fetch_tiles(t, r, end, t->until);
            } else {
                attention_fetch_results(t, &strip);
            }
            int at;
            const int nt = score_visible(t, &strip, t0, end, &at);
            if (nt > 0) {
                attention_update(t, &strip, t0, at, nt, with_acc);
            }
            if (nt > 0 && with_acc) {
                attention_accumulate(t, &strip, t0, at, nt);
            }
            if (ends && end == span.end) {
                end_rows(t, strip.r0, strip.n);
            }
        }
        t->has_queries = true;
    }
}

/* The columns that the second pass of a probability chain needs. Masks give zeros, which the chain
 * may map to other numbers, and a row whose sum is 0 has no zeros at all. */
static span_t prob_columns(task_t *t, span_t span)
{
    float zero = 0;
    bool sums = true;
    for (int r = 0; r < t->rows; r++) {
        sums = sums && (t->b.l[r] > 0 || (t->p->inf_as_zero && t->b.l[r] == 0));
    }
    if (!sums || !t->st->prob_steady || t->st->d.T == 0) {
        return (span_t){0, t->st->d.T};
    }
    chain_run(&t->st->prob, t->idx[0] + t->st->skip, 1, &zero, t->b.chain);
    return zero == 0 ? span : (span_t){0, t->st->d.T};
}

/* acc = chain(p) V. */
static void prob_pass(task_t *t, span_t span)
{
    for (int64_t t0 = span.begin, end; t0 < span.end; t0 = end) {
        end = attention_tile_end(t, t0, span.end);
        const int nt = (int)(end - t0);
        attention_load(t, t0, nt, true);
        for (int r = 0; r < t->rows; r += t->c->strip) {
            const strip_t strip = attention_strip(t, r);
            int at;
            const int seen = score_visible(t, &strip, t0, t0 + nt, &at);
            attention_normalise(t, &strip, t0, at, seen, nt);
            attention_chain(t, &t->st->prob, &strip, t0, 0, nt);
            for (int i = 0; i < strip.n; i++) {
                zero_columns(t->b.s + i * t->c->ld_s, nt,
                             is_decoded(&t->st->v_side) ? t->c->ld_s : round_grain(nt));
            }
            attention_accumulate(t, &strip, t0, 0, nt);
        }
    }
}

/* ---- items and their parts ------------------------------------------------------------------- */

/* The column of cell n of those that the item's rows see from a column on. */
static int64_t place_of(const task_t *t, int64_t begin, int64_t end, int64_t n)
{
    const cells_t *c = &t->st->cells;
    const int64_t list = cells_number(c, t->idx[0], t->st->d.nb + 2);
    return cells_place(cells_set(c, t->worker->shared, list), begin, end, n);
}

/* The parts of an item that sees some columns. */
static int64_t count_parts(const task_t *t, span_t all)
{
    if (t->st->cells.by_place) {
        int64_t n = 1;
        while (place_of(t, all.begin, all.end, n * t->st->d.part) < all.end) {
            n++;
        }
        return n;
    }
    return all.begin < all.end ? (all.end - 1) / t->st->d.part - all.begin / t->st->d.part + 1 : 1;
}

/* Parts `from` to to-1 of an item together. */
static part_t parts_of(const task_t *t, span_t all, int64_t from, int64_t to)
{
    const int64_t size = t->st->d.part, first = all.begin / size;
    if (t->st->cells.by_place) {
        return (part_t){
            .span = {from == 0 ? all.begin : place_of(t, all.begin, all.end, from * size),
                     place_of(t, all.begin, all.end, to * size)},
            .first = from == 0};
    }
    return (part_t){
        .span = {at_least((first + from) * size, all.begin), at_most((first + to) * size, all.end)},
        .first = from == 0};
}

/* The sums of the part that t has taken up, and what follows them. */
static void run_part(task_t *t)
{
    const span_t span = t->part.span;
    const bool ends = span.begin < span.end && !t->p->prob;
    if (span.begin >= span.end) {
        attention_clear(t, 0, t->rows);
    }
    online_pass(t, span, ends);
    if (t->p->prob) {
        prob_pass(t, prob_columns(t, span));
    }
    if (!ends) {
        end_rows(t, 0, t->rows);
    }
}

/* Where the sums of a part lie in shared memory. Each group of places has as many as an item has
 * parts. */
static attention_sums_t saved(const task_t *t, int64_t group, int64_t part)
{
    const attention_dims_t *d = &t->st->d;
    const int64_t rows = d->most_rows;
    float *base = (float *)t->worker->shared + (group * d->parts + part) * rows * (t->c->ld_v + 2);
    return (attention_sums_t){base, base + rows, base + 2 * rows};
}

static void copy_sums(const task_t *t, attention_sums_t from, attention_sums_t to)
{
    memcpy(to.m, from.m, (size_t)t->rows * sizeof(float));
    memcpy(to.l, from.l, (size_t)t->rows * sizeof(float));
    memcpy(to.acc, from.acc, (size_t)t->rows * (size_t)t->c->ld_v * sizeof(float));
}

/* Parts `from` to to-1 of an item that sees columns `all` and has n parts. Where others have the
 * rest, sums go to a group of places: those of the first parts together to place 0, others to
 * places of their own. */
static void run_parts(task_t *t, span_t all, int64_t n, int64_t from, int64_t to, int64_t group)
{
    t->has_queries = false;
    t->until = parts_of(t, all, from, to).span.end;
    for (int64_t k = from; k < to; k++) {
        t->part = parts_of(t, all, k, k + 1);
        t->sums_end = n == 1       ? TO_RESULTS
                      : from > 0   ? STAY
                      : k == n - 1 ? TOTAL_TO_RESULTS
                                   : TO_TOTAL;
        run_part(t);
        if (from > 0) {
            copy_sums(t, own_sums(t), saved(t, group, k));
        }
    }
    if (from == 0 && to > from && to < n) {
        copy_sums(t, t->b.total, saved(t, group, 0));
    }
}

static void whole_item(task_t *t, int64_t item)
{
    attention_start(t, item);
    const span_t all = attention_columns(t, 0, t->rows);
    const int64_t n = count_parts(t, all);
    run_parts(t, all, n, 0, n, 0);
}

/* The sums of row r of an item from those that others have left: the first `together` parts in one
 * place, the others each in its own. */
static void merge_row(task_t *t, span_t all, int64_t n, int64_t together, int64_t group, int r)
{
    const attention_sums_t to = own_sums(t);
    add_part(t, r, parts_of(t, all, 0, together), saved(t, group, 0), to);
    for (int64_t k = together; k < n; k++) {
        add_part(t, r, parts_of(t, all, k, k + 1), saved(t, group, k), to);
    }
    finish_rows(t, to, r, 1);
}

/* ---- shares of weight ------------------------------------------------------------------------ */

/* Goes to the item in whose weights `weight` lies; behind all items, if there is none. */
static void skip_to(const attention_state_t *st, item_t *at, int64_t weight)
{
    while (at->item < st->d.items && at->begin + at->weight <= weight) {
        const int64_t n = at->weight > 0 ? (weight - at->begin) / at->weight : at->equal;
        division_skip(st, at, at_most(n, at->equal));
    }
}

/* How many of the n parts of an item have their middle before a weight; all or none where items are
 * not divided. */
static int64_t parts_before(const task_t *t, const item_t *at, span_t all, int64_t n,
                            int64_t weight)
{
    const int64_t more = weight - at->begin;
    if (more <= 0 || more >= at->weight || !t->st->d.divides) {
        return more > at->weight / 2 ? n : 0;
    }
    const int64_t column = at_least(all.begin, at->column) + more / t->rows;
    for (int64_t k = 0; k < n; k++) {
        const span_t part = parts_of(t, all, k, k + 1).span;
        if (part.begin + (part.end - part.begin) / 2 >= column) {
            return k;
        }
    }
    return n;
}

/* The share in whose weights an item begins, at or before share tid. */
static int begins_with(const attention_state_t *st, const item_t *at, int tid, int nth)
{
    int64_t begin, end;
    share(st->weight, tid, nth, &begin, &end);
    while (begin > at->begin) {
        share(st->weight, --tid, nth, &begin, &end);
    }
    return tid;
}

/* The places of a divided item: in the weights of a share at most one begins. */
static int64_t group_of(const attention_state_t *st, const item_t *at, int share_of, int nth)
{
    return st->d.items < nth ? at->item : share_of;
}

/* The parts whose middles a share's range of weights has. */
static void items_in_range(task_t *t, int tid, int nth)
{
    const attention_state_t *st = t->st;
    int64_t begin, end;
    share(st->weight, tid, nth, &begin, &end);
    if (begin == end) {
        return;
    }
    item_t at = division_first(st);
    for (skip_to(st, &at, begin); at.item < st->d.items && at.begin < end;
         division_skip(st, &at, 1)) {
        if (at.weight == 0) {
            continue;
        }
        attention_start(t, at.item);
        const span_t all = attention_columns(t, 0, t->rows);
        const int64_t n = count_parts(t, all), from = parts_before(t, &at, all, n, begin),
                      to = parts_before(t, &at, all, n, end);
        run_parts(t, all, n, from, to, group_of(st, &at, begins_with(st, &at, tid, nth), nth));
    }
}

/* Merges an item that begins in the weights of a share and ends behind them, if it was divided.
 * *row counts the rows of such items: they are merged by shares in turn. */
static void merge_item(task_t *t, const item_t *at, int share_of, int64_t *row)
{
    const int tid = t->worker->tid, nth = t->worker->nth;
    int64_t begin, end, together = 0;
    attention_take(t, at->item);
    const span_t all = attention_columns(t, 0, t->rows);
    const int64_t n = count_parts(t, all), group = group_of(t->st, at, share_of, nth);
    for (int i = share_of; together == 0; i++) {
        share(t->st->weight, i, nth, &begin, &end);
        together = parts_before(t, at, all, n, end);
    }
    for (int64_t r = (tid + nth - *row % nth) % nth; r < t->rows && together < n; r += nth) {
        merge_row(t, all, n, together, group, (int)r);
    }
    *row += t->rows;
}

static void merge_items(task_t *t, int nth)
{
    item_t at = division_first(t->st);
    int64_t begin, end, row = 0, last = -1;
    for (int i = 1; i < nth; i++) {
        share(t->st->weight, i, nth, &begin, &end);
        skip_to(t->st, &at, begin);
        if (at.begin < begin && at.item != last) {
            merge_item(t, &at, i - 1, &row);
            last = at.item;
        }
    }
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* The columns that all items see, and their parts. */
typedef struct columns {
    span_t all;
    int64_t n;
} columns_t;

/* Units are parts times items, the items of a part in a row; their weight is their columns. How
 * many have their middle before a weight. */
static int64_t units_before(const task_t *t, const columns_t *c, int64_t weight)
{
    const int64_t items = t->st->d.items;
    for (int64_t k = 0; k < c->n; k++) {
        const span_t part = parts_of(t, c->all, k, k + 1).span;
        const int64_t columns = part.end - part.begin,
                      more = weight - (part.begin - c->all.begin) * items;
        if (more < columns * items) {
            return k * items + (2 * more + columns - 1) / (2 * columns);
        }
    }
    return c->n * items;
}

/* The heads of a piece prefetch the next piece together, each an equal part of it. After the last
 * piece of a share they prefetch that piece again, which is in the cache and costs no bandwidth. */
static next_piece_t next_piece(const matrices_t *op, const groups_t *codes, int64_t head_size,
                               int64_t from, int64_t to, int64_t size)
{
    /* Elements of a token before this head. */
    const int64_t before = (codes->first - op->base.codes.first) % codes->row.stride,
                  bits = codes->type->bits;
    const unsigned char *token = groups_byte(codes, codes_at(codes, to, 0) - before);
    return (next_piece_t){token + before * bits / 8 * size, from, head_size * bits / 8};
}

/* Brings items first..end-1 of a piece into the cache, K and then V, token by token: from end to
 * end, as no earlier piece has prefetched it. Read head by head, in strides, it would take several
 * times as long. */
static void read_piece(task_t *t, span_t piece, int64_t first, int64_t end)
{
    const int64_t at = piece.begin, tokens = piece.end - piece.begin;
    const uint64_t *seen = t->st->cells.on ? attention_seen(t, piece) : NULL;
    const unsigned char *head[2][ATT_PIECE_ITEMS]; /* the first token of each item */
    int64_t stride[2], bytes[2];                   /* from token to token; of a head */
    for (int64_t item = first; item < end; item++) {
        attention_take(t, item);
        const groups_t codes[2] = {matrix_transposed(&t->k).codes, t->v.codes};
        for (int i = 0; i < 2; i++) {
            head[i][item - first] = groups_byte(&codes[i], codes_at(&codes[i], at, 0));
            stride[i] = codes[i].row.stride * codes[i].type->bits / 8;
            bytes[i] = (i == 0 ? t->st->d.D : t->st->d.Dv) * codes[i].type->bits / 8;
        }
    }
    for (int i = 0; i < 2 && first < end; i++) {
        for (int64_t token = 0; token < tokens; token++) {
            const bool reads = seen == NULL || (cells_of_tile(seen, at + token) & 1) != 0;
            for (int64_t item = 0; item < end - first && reads; item++) {
                read_lines(head[i][item] + token * stride[i], bytes[i]);
            }
        }
    }
}

/* The piece of a part that begins at a column. */
static span_t piece_at(const task_t *t, span_t part, int64_t at)
{
    const int64_t size = t->piece;
    if (t->st->cells.by_place) {
        return (span_t){at, place_of(t, at, part.end, size)};
    }
    return (span_t){at, at_most((at / size + 1) * size, part.end)};
}

/* Runs one piece of the part of an item that t->part is. next: where the share's next piece of this
 * item begins; at the last one, where this piece does. The part has its sums at `sums`. */
static void run_piece(task_t *t, span_t piece, int64_t next, int64_t item, attention_sums_t sums)
{
    attention_start(t, item);
    const int64_t size = t->piece;
    const matrix_t k = matrix_transposed(&t->k);
    if (t->st->d.prefetches) {
        t->k_next = next_piece(&t->st->k, &k.codes, t->st->d.D, piece.begin, next, size);
        t->v_next = next_piece(&t->st->v, &t->v.codes, t->st->d.Dv, piece.begin, next, size);
    }
    t->resumes = piece.begin > t->part.span.begin;
    t->until = piece.end;
    t->sums_end = STAY;
    if (t->resumes) {
        copy_sums(t, sums, own_sums(t));
    }
    online_pass(t, piece, true);
}

/* A share's units. */
typedef struct units {
    int64_t begin, end;
} units_t;

/* Those of part k, piece by piece. Where the share has an item from its first part on, its sums are
 * added up in place 0, and place 1 has those of the part meanwhile: fewer places are faster. */
static void run_units(task_t *t, const columns_t *c, int64_t k, units_t own)
{
    const int64_t items = t->st->d.items, first = k * items, begin = at_least(own.begin, first),
                  end = at_most(own.end, first + items);
    t->part = parts_of(t, c->all, k, k + 1);
    const span_t part = t->part.span;
    for (int64_t at = part.begin; at < part.end;) {
        const span_t piece = piece_at(t, part, at);
        for (int64_t i = begin; i < end; i++) {
            const int64_t item = i - first;
            const bool from_first = item >= own.begin,
                       follows = piece.end < part.end || i + items < own.end;
            const attention_sums_t sums = saved(t, item, from_first ? at_most(k, 1) : k);
            run_piece(t, piece, follows ? piece.end : piece.begin, item, sums);
            if (piece.end < part.end || !from_first || k == 0) {
                copy_sums(t, own_sums(t), sums);
                continue;
            }
            for (int r = 0; r < t->rows; r++) {
                add_part(t, r, t->part, own_sums(t), saved(t, item, 0));
            }
        }
        at = piece.end;
    }
}

static columns_t columns_of_all(task_t *t)
{
    attention_take(t, 0);
    const span_t all = attention_columns(t, 0, t->rows);
    return (columns_t){all, count_parts(t, all)};
}

static units_t units_of(const task_t *t, const columns_t *c, int tid, int nth)
{
    int64_t from, to;
    share((c->all.end - c->all.begin) * t->st->d.items, tid, nth, &from, &to);
    return (units_t){units_before(t, c, from), units_before(t, c, to)};
}

/* Whether there is one piece. */
static bool is_one_piece(const task_t *t, const columns_t *c)
{
    return c->n == 1 && piece_at(t, c->all, c->all.begin).end == c->all.end;
}

/* Pieces of all items in turn. Where there is one piece, its items are whole. */
static void pieces_in_range(task_t *t, int tid, int nth)
{
    const columns_t c = columns_of_all(t);
    const int64_t items = t->st->d.items;
    if (is_one_piece(t, &c)) {
        int64_t from, to;
        share(items, tid, nth, &from, &to);
        read_piece(t, c.all, from, to);
        for (int64_t item = from; item < to; item++) {
            whole_item(t, item);
        }
        return;
    }
    const units_t own = units_of(t, &c, tid, nth);
    for (int64_t k = own.begin / items; k * items < own.end; k++) {
        const int64_t first = k * items, begin = at_least(own.begin, first),
                      end = at_most(own.end, first + items),
                      /* no piece of this share has prefetched the units before */
            unread = first <= own.begin ? end : at_most(own.begin + items, end);
        const span_t part = parts_of(t, c.all, k, k + 1).span;
        read_piece(t, piece_at(t, part, part.begin), begin - first,
                   at_least(unread, begin) - first);
        run_units(t, &c, k, own);
    }
}

/* Rows of items are merged by shares in turn. */
static void merge_pieces(task_t *t, int tid, int nth)
{
    const columns_t c = columns_of_all(t);
    const int64_t items = t->st->d.items, rows = t->rows;
    for (int64_t item = 0; item < items && !is_one_piece(t, &c); item++) {
        const int64_t first = (tid + nth - item * rows % nth) % nth;
        if (first >= rows) {
            continue;
        }
        int i = 0;
        while (units_of(t, &c, i, nth).end <= item) {
            i++;
        }
        const int64_t together = (units_of(t, &c, i, nth).end - 1 - item) / items + 1;
        attention_take(t, item);
        for (int64_t r = first; r < rows; r += nth) {
            merge_row(t, c.all, c.n, together, item, (int)r);
        }
    }
}

void attention_work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                    const worker_t *w)
{
    const attention_state_t *st = state;
    const int phase = st->scans ? w->phase - 1 : w->phase;
    attention_state_t by_lists;
    task_t t;
    if (phase < 0) {
        cells_scan(&st->cells, w->shared, w->tid, w->nth);
        return;
    }
    if (phase == 1 && !st->d.divides && st->d.piece == 0) {
        return;
    }
    if (st->d.weighs && st->cells.on && st->cells.lists > 1) { /* which are there now */
        by_lists = *st;
        by_lists.lists = w->shared;
        division_bind(&by_lists);
        st = &by_lists;
    }
    (void)self;
    t.c = config;
    t.p = &p->step->p.attention;
    t.st = st;
    t.frame = p->frame;
    t.worker = w;
    t.tail = p->step->tail != NULL;
    t.scale = st->scale;
    t.resumes = t.has_queries = false;
    t.k_next.at = t.v_next.at = NULL;
    t.seen = NULL;
    t.gathered = t.careful = false;
    t.in_pages = false;
    t.after = 0;
    t.place0 = 0;
    t.k_piece = t.v_piece = (cache_piece_t){NULL, NULL};
    attention_buffers(t.c, p->step, w->scratch, &t.b);
    t.piece = attention_sees_few(&t) ? st->d.part : st->d.piece;
    if (st->d.piece > 0 && phase == 0) {
        pieces_in_range(&t, w->tid, w->nth);
    } else if (st->d.piece > 0) {
        merge_pieces(&t, w->tid, w->nth);
    } else if (phase == 1) {
        merge_items(&t, w->nth);
    } else if (st->d.weighs) {
        items_in_range(&t, w->tid, w->nth);
    } else {
        for (int64_t item = 0; item < st->d.items; item++) {
            if (attention_rows(st, item) > 0) {
                whole_item(&t, item);
            }
        }
    }
}
