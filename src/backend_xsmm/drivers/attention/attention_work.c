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

static void finish_rows(task_t *t, int r0, int n)
{
    for (int r = r0; r < r0 + n; r++) {
        finish_row(t, r, t->b.m[r], t->b.l[r], t->b.acc + (int64_t)r * t->c->ld_v);
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

/* n rows from r0 on; with_sink: in one part of T only. */
static void clear(task_t *t, int r0, int n, bool with_sink)
{
    for (int r = r0; r < r0 + n; r++) {
        const float sink = with_sink && t->p->sink >= 0 ? sink_of(t, r) : -INFINITY;
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

/* m and l, and acc unless a probability chain wants a second pass. finish: results as soon as a
 * strip has them, while they are in L1. */
static void online_pass(task_t *t, span_t span, bool with_sink, bool finish)
{
    const bool with_acc = !t->p->prob;
    for (int64_t t0 = span.begin, end; t0 < span.end; t0 = end) {
        end = attention_end_of_tile(t, t0, span.end);
        attention_load(t, t0, (int)(end - t0), with_acc);
        for (int r = 0; r < t->rows; r += t->c->strip) {
            const strip_t strip = attention_strip(t, r);
            if (t0 == span.begin && !t->resumes) {
                clear(t, strip.r0, strip.n, with_sink);
            }
            if (t0 == span.begin && !is_decoded(&t->st->k_side)) {
                attention_queries(t, strip.r0, strip.n);
                if (t->st->ints.on) {
                    ints_queries(t, &strip);
                }
                attention_fetch_queries(t, strip.r0 + strip.n);
            }
            if (end < span.end) {
                attention_fetch_tiles(t, r, end, span.end);
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
            if (finish && end == span.end) {
                finish_rows(t, strip.r0, strip.n);
            }
        }
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
        end = attention_end_of_tile(t, t0, span.end);
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

/* The sums of an item, or of its part. in_pieces: they stay in the order of decoding. */
static void passes(task_t *t, span_t span, bool with_sink, bool finish, bool in_pieces)
{
    if (span.begin >= span.end) {
        clear(t, 0, t->rows, with_sink);
    }
    online_pass(t, span, with_sink, finish);
    if (t->p->prob) {
        prob_pass(t, prob_columns(t, span));
    }
    if (is_decoded(&t->st->v_side) && !in_pieces) {
        decode_restore(&t->st->v_side, &t->b.decode, t->rows, t->b.acc, t->c->ld_v);
    }
}

/* ---- items and their parts ------------------------------------------------------------------- */

/* All of the item that t has taken up. */
static void whole_item(task_t *t)
{
    const span_t span = attention_columns(t, 0, t->rows);
    const bool finish = span.begin < span.end && !t->p->prob && !is_decoded(&t->st->v_side);
    passes(t, span, true, finish, false);
    if (!finish) {
        finish_rows(t, 0, t->rows);
    }
}

/* Items are divided into pieces of this many tiles, as fewer are not worth a merge. */
enum { PIECE_TILES = 2 };

/* The pieces from..to-1, of n, of an item. */
typedef struct part {
    int64_t from, to, n;
} part_t;

/* The part that weights begin..end of all items have of one that sees some columns. */
static part_t part_of(const task_t *t, const item_t *at, span_t columns, int64_t begin, int64_t end)
{
    const int64_t piece = PIECE_TILES * (int64_t)t->c->tk, tokens = columns.end - columns.begin,
                  n = t->p->prob ? 1 : at_least((tokens + piece - 1) / piece, 1),
                  a = at_least(begin - at->begin, 0), b = at_most(end - at->begin, at->weight);
    return (part_t){a * n / at->weight, b * n / at->weight, n};
}

static bool is_whole(part_t part)
{
    return part.from == 0 && part.to == part.n;
}

/* What a share leaves of an item in shared memory: m[rows], l[rows], acc[rows][dv]. By weight, a
 * share has at most one item of which it has the first part only, and at most one of which it has a
 * later part, so it has two places. By pieces, it has one for each item. */
static float *saved(const task_t *t, int64_t share, int64_t place)
{
    unsigned char *shared = t->worker->shared;
    float *base = (float *)(void *)(shared + (64 - (uintptr_t)shared % 64) % 64);
    const int64_t places = t->st->d.piece > 0 ? t->st->d.items : 2;
    return base + (places * share + place) * t->c->rows * (t->c->ld_v + 2);
}

static void save(const task_t *t, float *to)
{
    const size_t rows = (size_t)t->c->rows;
    memcpy(to, t->b.m, rows * sizeof(float));
    memcpy(to + rows, t->b.l, rows * sizeof(float));
    memcpy(to + 2 * rows, t->b.acc, (size_t)t->rows * (size_t)t->c->ld_v * sizeof(float));
}

/* What weights begin..end have of an item. An empty part is saved like others, unless one share
 * must have all of the item. */
static void part_of_item(task_t *t, const item_t *at, int64_t begin, int64_t end)
{
    attention_start(t, at->item);
    const span_t all = attention_columns(t, 0, t->rows);
    const part_t part = part_of(t, at, all, begin, end);
    const int64_t piece = PIECE_TILES * (int64_t)t->c->tk;
    const bool first = begin <= at->begin;
    if (is_whole(part)) {
        whole_item(t);
    } else if (part.n > 1) {
        passes(t,
               (span_t){at_most(all.begin + part.from * piece, all.end),
                        at_most(all.begin + part.to * piece, all.end)},
               first, false, false);
        save(t, saved(t, t->worker->tid, first));
    }
}

/* The place of part i of an item. */
static int64_t place_of(const task_t *t, int64_t item, int64_t i)
{
    return t->st->d.piece > 0 ? item : i == 0;
}

/* The sums of row r of an item from the parts of n shares, the one that has the first part and
 * those after it. Exact: each part is rescaled from its own maximum to the row's. */
static void merge_row(task_t *t, int64_t item, int64_t first, int64_t n, int r)
{
    const attention_config_t *c = t->c;
    float m = -INFINITY, l = 0, *acc = t->b.acc;
    for (int64_t i = 0; i < n; i++) {
        const float part_m = saved(t, first + i, place_of(t, item, i))[r];
        m = part_m > m ? part_m : m;
    }
    memset(acc, 0, (size_t)c->dv * sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        float *from = saved(t, first + i, place_of(t, item, i)),
              *part_acc = from + 2 * c->rows + (int64_t)r * c->ld_v, scale = 0;
        if (from[r] > -INFINITY) {
            c->fn->exp_sub_sum(&scale, &from[r], 1, m);
        }
        l += from[c->rows + r] * (from[r] > -INFINITY ? scale : 1);
        c->fn->scale_row(part_acc, c->dv, scale);
        c->fn->add_row(acc, part_acc, c->dv);
    }
    finish_row(t, r, m, l, acc);
}

/* ---- phases ---------------------------------------------------------------------------------- */

/* Items go to shares in turn, there and back: later blocks of a causal mask take longer. */
static void items_in_turn(task_t *t, int tid, int nth)
{
    const attention_dims_t *d = &t->st->d;
    for (int64_t i = 0; i < d->items; i += nth) {
        const int64_t item = i + (i / nth % 2 ? nth - 1 - tid : tid);
        if (item < d->items) {
            attention_start(t, item);
            whole_item(t);
        }
    }
}

/* Goes to the item in whose weights `weight` lies. */
static void skip_to(const attention_state_t *st, item_t *at, int64_t weight)
{
    while (at->begin + at->weight <= weight) {
        division_skip(st, at, at_most((weight - at->begin) / at->weight, at->equal));
    }
}

/* The items that a share's range of weights lies in. */
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
        part_of_item(t, &at, begin, end);
    }
}

/* Phase 1 for an item whose first part share `first` has; gives the number of shares that have
 * parts. *row counts the rows of all such items: they are merged by shares in turn. */
static int64_t merge_item(task_t *t, const item_t *at, int first, int64_t *row)
{
    const int tid = t->worker->tid, nth = t->worker->nth;
    const int64_t row0 = *row, rows = attention_rows(&t->st->d, at->item);
    int64_t begin, end, n = 0;
    bool whole = false;
    attention_take(t, at->item);
    const span_t all = attention_columns(t, 0, t->rows);
    for (; first + n < nth; n++) {
        share(t->st->weight, (int)(first + n), nth, &begin, &end);
        if (begin >= at->begin + at->weight) {
            break;
        }
        whole = whole || is_whole(part_of(t, at, all, begin, end));
    }
    for (int64_t r = (tid + nth - row0 % nth) % nth; r < rows && !whole; r += nth) {
        merge_row(t, at->item, first, n, (int)r);
    }
    *row += rows;
    return n;
}

static void merge_items(task_t *t, int nth)
{
    item_t at = division_first(t->st);
    int64_t begin, end, row = 0;
    for (int64_t i = 1; i < nth;) {
        share(t->st->weight, (int)i, nth, &begin, &end);
        skip_to(t->st, &at, begin);
        i += at.begin < begin ? merge_item(t, &at, (int)i - 1, &row) - 1 : 1;
    }
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* The columns that all items see, in pieces of the same size but for the last one. */
typedef struct pieces {
    span_t all;
    int64_t size, n;
} pieces_t;

/* Where items do not divide evenly among the shares, pieces are so short that each share gets some.
 * All items see the same columns, so any item that t stands at will do. */
static pieces_t pieces_of(const task_t *t, int nth)
{
    enum { LEAST = 8 * ATT_GRAIN };
    const attention_dims_t *d = &t->st->d;
    pieces_t p = {.all = attention_columns(t, 0, t->rows), .size = d->piece, .n = 1};
    const int64_t tokens = p.all.end - p.all.begin, share = tokens / nth / LEAST * LEAST;
    if (d->items % nth != 0 && share < p.size) {
        p.size = at_least(share, LEAST);
    }
    if (tokens > 0) {
        const int64_t n = (tokens + p.size - 1) / p.size;
        p.size = ((tokens + n - 1) / n + ATT_GRAIN - 1) / ATT_GRAIN * ATT_GRAIN;
        p.n = (tokens + p.size - 1) / p.size;
    }
    return p;
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

/* Brings items first..end-1 of a piece into the cache, K and then V, token by token. */
static void read_piece(task_t *t, const pieces_t *p, int64_t piece, int64_t first, int64_t end)
{
    const int64_t at = p->all.begin + piece * p->size, tokens = at_most(p->size, p->all.end - at);
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
            for (int64_t item = 0; item < end - first; item++) {
                read_lines(head[i][item] + token * stride[i], bytes[i]);
            }
        }
    }
}

/* Reads the first piece of each item of a share from end to end, as no earlier piece has prefetched
 * it. Read head by head, in strides, it would take several times as long. */
static void read_first(task_t *t, const pieces_t *p, int64_t begin, int64_t end)
{
    const int64_t items = t->st->d.items, piece = begin / items, item = begin % items,
                  next = at_most(end - (piece + 1) * items, item);
    read_piece(t, p, piece, item, at_most(items, item + end - begin));
    read_piece(t, p, piece + 1, 0, next);
}

/* Runs one piece of an item. first: it is the share's first piece of this item; last: the last. */
static void run_piece(task_t *t, const pieces_t *p, int64_t item, int64_t piece, bool first,
                      bool last)
{
    float *sums = saved(t, t->worker->tid, item);
    const int64_t at = p->all.begin + piece * p->size, next = last ? at : at + p->size;
    attention_start(t, item);
    const matrix_t k = matrix_transposed(&t->k);
    t->k_next = next_piece(&t->st->k, &k.codes, t->st->d.D, at, next, p->size);
    t->v_next = next_piece(&t->st->v, &t->v.codes, t->st->d.Dv, at, next, p->size);
    t->resumes = !first;
    if (t->resumes) { /* as save left them */
        const size_t rows = (size_t)t->c->rows;
        memcpy(t->b.m, sums, rows * sizeof(float));
        memcpy(t->b.l, sums + rows, rows * sizeof(float));
        memcpy(t->b.acc, sums + 2 * rows, (size_t)t->rows * (size_t)t->c->ld_v * sizeof(float));
    }
    passes(t, (span_t){at, at_most(at + p->size, p->all.end)}, piece == 0, false, true);
    if (last) {
        decode_restore(&t->st->v_side, &t->b.decode, t->rows, t->b.acc, t->c->ld_v);
    }
    save(t, sums);
}

/* Pieces of all items in turn. Where there is one piece, its items are whole. */
static void pieces_in_range(task_t *t, int tid, int nth)
{
    const int64_t items = t->st->d.items;
    int64_t begin, end;
    attention_take(t, 0);
    const pieces_t p = pieces_of(t, nth);
    share(p.n * items, tid, nth, &begin, &end);
    read_first(t, &p, begin, end);
    for (int64_t i = begin; i < end && p.n == 1; i++) {
        attention_start(t, i);
        whole_item(t);
    }
    for (int64_t i = begin; i < end && p.n > 1; i++) {
        run_piece(t, &p, i % items, i / items, i - begin < items, i + items >= end);
    }
    for (int64_t item = 0; item < items && p.n > 1; item++) {
        const bool has_some = (item - begin % items + items) % items < end - begin;
        if (!has_some) {
            clear(t, 0, t->rows, false);
            save(t, saved(t, tid, item));
        }
    }
}

/* Items are merged by shares in turn. */
static void merge_pieces(task_t *t, int tid, int nth)
{
    attention_take(t, 0);
    const bool whole = pieces_of(t, nth).n == 1;
    for (int64_t item = tid; item < t->st->d.items && !whole; item += nth) {
        attention_take(t, item);
        for (int r = 0; r < t->rows; r++) {
            merge_row(t, item, 0, nth, r);
        }
    }
}

void attention_work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                    const worker_t *w)
{
    const attention_state_t *st = state;
    task_t t;
    if (w->phase == 1 && !st->d.by_weight && st->d.piece == 0) {
        return;
    }
    (void)self;
    t.c = config;
    t.p = &p->step->p.attention;
    t.st = st;
    t.frame = p->frame;
    t.worker = w;
    t.tail = p->step->tail != NULL;
    t.resumes = false;
    t.k_next.at = t.v_next.at = NULL;
    attention_buffers(t.c, p->step, w->scratch, &t.b);
    if (st->d.piece > 0 && w->phase == 0) {
        pieces_in_range(&t, w->tid, w->nth);
    } else if (st->d.piece > 0) {
        merge_pieces(&t, w->tid, w->nth);
    } else if (w->phase == 1) {
        merge_items(&t, w->nth);
    } else if (st->d.by_weight) {
        items_in_range(&t, w->tid, w->nth);
    } else {
        items_in_turn(&t, w->tid, w->nth);
    }
}
