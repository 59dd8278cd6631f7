/* Work items of attention, their tiles of K and V, and the two products: see attention.h. */
#include "backend_xsmm/drivers/attention/attention_task.h"

#include "base/fetch.h"

/* ---- setting up an item ---------------------------------------------------------------------- */

static bool in_chunks(const task_t *t)
{
    return t->st->d.D > t->c->dk;
}

/* Spreads a linear index over the batch dims that are (not) grouped. */
static void spread(const attention_dims_t *d, bool grouped, int64_t i, int64_t *idx)
{
    for (int n = d->nb - 1; n >= 0; n--) {
        if (d->grouped[n] == grouped) {
            const int64_t rest = i < d->batch[n] ? 0 : i / d->batch[n]; /* divisions take long */
            idx[n] = i - rest * d->batch[n];
            i = rest;
        }
    }
}

/* The rows of Q of the head of row r of a block; *row: that row among them. */
static matrix_t queries_of(const task_t *t, int r, int64_t *row)
{
    const matrices_t *q = &t->st->q;
    const int nb = t->st->d.nb, dim = t->st->d.row_dim, at = dim - (nb + 2 - q->ndims);
    matrix_t m = matrix_at(q, t->idx[r], nb);
    *row = t->idx[r][nb];
    if (dim < nb) { /* row 0 is that of its own token */
        groups_t *const parts[] = {&m.codes, &m.scale, &m.zp};
        const int of[] = {IN_CODES, IN_SCALE, IN_ZP};
        for (int i = 0; i < 3; i++) {
            parts[i]->first += *row / parts[i]->row.group * parts[i]->row.stride;
            parts[i]->row = q->axis[at][of[i]];
        }
        *row = 0;
    }
    return m;
}

/* n rows of Q from r0 on as f32, columns d0..d0+n-1. Rows of one head are consecutive in Q and
 * group rows apart here. */
static void load_q(task_t *t, int r0, int rows, int64_t d0, int n)
{
    const attention_dims_t *d = &t->st->d;
    const int ld = t->c->ld_q, pad = n + n % 2, heads = (int)at_most(d->apart, rows);
    float *to = t->b.q + (int64_t)r0 * ld;
    for (int h = 0; h < heads; h++) {
        const int of_head = (rows - h + heads - 1) / heads;
        int64_t row;
        const matrix_t q = queries_of(t, r0 + h, &row);
        t->c->tile->load(&q, (rect_t){row, of_head, d0, n}, to + h * ld, (int64_t)heads * ld,
                         of_head, pad);
    }
    if (t->c->bf16) {
        t->c->tile->bf16_rows(to, ld, rows, pad, t->b.q16 + (int64_t)r0 * ld, ld);
    }
}

void attention_queries(task_t *t, int r0, int n)
{
    if (!in_chunks(t)) {
        load_q(t, r0, n, 0, (int)t->st->d.D);
    }
}

void attention_index(const attention_dims_t *d, int64_t kv, int64_t row, int64_t *idx)
{
    const int64_t first = row % d->apart;
    idx[d->nb] = first / d->group;
    idx[d->nb + 1] = 0;
    spread(d, false, kv, idx);
    spread(d, true, first % d->group, idx);
    idx[d->row_dim] += row / d->apart;
}

/* The first token from `low` on, and before `high`, whose sequence is not before a number: tokens
 * lie in the order of their sequences. */
static int64_t first_token(const pages_t *p, int64_t low, int64_t high, int64_t sequence)
{
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (pages_sequence(p, middle) < sequence) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The run of an item's token, counted from that token on. */
static span_t run_of(const attention_state_t *st, int64_t item)
{
    const attention_dims_t *d = &st->d;
    const pages_t *p = &st->k.pages;
    int64_t idx[SINTER_MAX_NDIMS];
    attention_index(d, item / d->n_chunks / d->n_blocks, 0, idx);
    const int64_t token = idx[d->row_dim], sequence = pages_sequence(p, token);
    if (!d->has_runs) {
        return (span_t){0, 1};
    }
    return (span_t){first_token(p, 0, token, sequence) - token,
                    first_token(p, token, d->batch[d->row_dim], sequence + 1) - token};
}

int64_t attention_rows(const attention_state_t *st, int64_t item)
{
    const attention_dims_t *d = &st->d;
    const int64_t block = item / d->n_chunks % d->n_blocks, most = d->block / d->apart,
                  of_token = at_most(d->rows - block * d->block, d->block);
    if (d->row_dim == d->nb) {
        return of_token;
    }
    const span_t run = run_of(st, item);
    const int64_t all = (run.end - run.begin) * d->apart;
    if (all < d->run_rows[0] || all > d->run_rows[1]) {
        return 0;
    }
    return most == 0               ? of_token /* a token has several blocks */
           : run.begin % most != 0 ? 0
                                   : at_most(run.end, most) * d->apart;
}

void attention_take(task_t *t, int64_t item)
{
    const attention_dims_t *d = &t->st->d;
    const int64_t chunk = item % d->n_chunks, block = item / d->n_chunks % d->n_blocks,
                  kv = item / d->n_chunks / d->n_blocks;
    t->dv0 = chunk * t->c->dv;
    t->dv = (int)(d->Dv - t->dv0 < t->c->dv ? d->Dv - t->dv0 : t->c->dv);
    t->row0 = block * d->block;
    t->rows = (int)attention_rows(t->st, item);
    t->all_rows = d->rows;
    if (d->row_dim < d->nb) {
        const span_t run = run_of(t->st, item);
        t->all_rows = (run.end - run.begin) * d->apart;
    }
    for (int r = 0; r < t->rows; r++) {
        const int64_t row = t->row0 + r;
        if (r >= d->apart) { /* the next position of the same head */
            memcpy(t->idx[r], t->idx[r - d->apart], sizeof(t->idx[r]));
            t->idx[r][d->row_dim]++;
            continue;
        }
        attention_index(d, kv, row, t->idx[r]);
    }
    for (int r = 0; r < t->rows; r++) {
        t->sees[r] = limits_columns(t->st, t->idx[r]);
    }
    t->k = matrix_at(&t->st->k, t->idx[0], d->nb);
    t->v = matrix_at(&t->st->v, t->idx[0], d->nb);
    t->k_first = t->k.codes.first;
    t->v_first = t->v.codes.first;
    if (t->c->pages) {
        t->k_pages = t->k;
        t->v_pages = t->v;
        t->pages = pages_row(&t->st->k, t->idx[0], d->nb);
        t->first = d->T;
        for (int r = 0; r < t->rows; r++) {
            t->first =
                t->sees[r].begin < t->sees[r].end ? at_most(t->first, t->sees[r].begin) : t->first;
        }
        t->first -= t->first % t->st->k.pages.page;
    }
}

/* ---- caches in tiles ------------------------------------------------------------------------- */

/* Tokens token..token+nt-1 of a cache in tiles, against some rows of queries. */
static cache_task_t cache_task(const task_t *t, const cache_side_t *side, int64_t token, int nt,
                               int rows)
{
    return (cache_task_t){.side = side,
                          .buffers = &t->b.cache,
                          .worker = t->worker,
                          .m = side == &t->st->v_cache ? t->v : t->k,
                          .limbs = limbs_of(t->c->kind),
                          .token = token,
                          .tokens = nt,
                          .seen = t->seen,
                          .careful = t->careful,
                          .copy = t->gathered ? &t->b.copies[side == &t->st->v_cache] : NULL,
                          .rows = rows};
}

/* The tiles of K or V that some columns are in. */
static cache_piece_t piece_of(const task_t *t, const cache_side_t *side, span_t span)
{
    const int n = (int)(span.end - span.begin);
    const cache_task_t task = cache_task(t, side, span.begin, n, 0);
    return cache_piece(&task, side == &t->st->v_cache);
}

void attention_read(task_t *t, span_t span)
{
    const attention_state_t *st = t->st;
    const span_t next = {span.end, at_most(2 * span.end - span.begin, t->until)};
    const cache_piece_t k = piece_of(t, &st->k_cache, span), v = piece_of(t, &st->v_cache, span);
    read_lines(k.at, k.end - k.at);
    read_lines(v.at, v.end - v.at);
    t->k_piece = t->v_piece = (cache_piece_t){k.at, k.at};
    if (next.begin < next.end) {
        t->k_piece = piece_of(t, &st->k_cache, next);
        t->v_piece = piece_of(t, &st->v_cache, next);
    }
}

void attention_gather(task_t *t, int n)
{
    const cache_task_t k = cache_task(t, &t->st->k_cache, 0, n, 0),
                       v = cache_task(t, &t->st->v_cache, 0, n, 0);
    cache_gather(&k, false, t->b.cell, n, &t->b.copies[0], &t->k_piece);
    cache_gather(&v, true, t->b.cell, n, &t->b.copies[1], &t->v_piece);
}

void attention_cache_queries(task_t *t, int r0, int n)
{
    cache_task_t task = cache_task(t, &t->st->k_cache, 0, 0, n);
    task.x = t->b.q + (int64_t)r0 * t->c->ld_q;
    task.ldx = t->c->ld_q;
    cache_queries(&task);
}

void attention_start(task_t *t, int64_t item)
{
    attention_take(t, item);
    if (is_decoded(&t->st->k_side)) {
        attention_queries(t, 0, t->rows);
        if (t->c->cache && !attention_by_groups(t)) {
            attention_cache_queries(t, 0, t->rows);
        } else if (!attention_by_groups(t)) {
            decode_query(&t->st->k_side, &t->b.decode, t->rows, t->b.q, t->c->ld_q);
        }
    }
}

span_t attention_columns(const task_t *t, int r0, int n)
{
    span_t all = {t->st->d.T, 0};
    for (int r = r0; r < r0 + n; r++) {
        const span_t sees = t->sees[r];
        if (sees.begin < sees.end) {
            all.begin = at_most(all.begin, sees.begin);
            all.end = at_least(all.end, sees.end);
        }
    }
    const int grain = attention_in_tiles(t->c) ? TILES_K : ATT_GRAIN;
    return all.begin < all.end ? (span_t){all.begin / grain * grain, all.end} : (span_t){0, 0};
}

/* Rows r0..r0+n-1, computed as so many. */
static strip_t strip_of_height(const task_t *t, int r0, int n, int height)
{
    strip_t s = {.r0 = r0, .n = n};
    for (int i = t->c->n_jit - 1; i >= 0 && t->c->jit[i].rows >= height; i--) {
        s.jit = &t->c->jit[i];
    }
    s.columns = attention_columns(t, r0, s.n);
    return s;
}

strip_t attention_strip(const task_t *t, int r0)
{
    const int n = (int)at_most(t->rows - r0, t->c->strip);
    return strip_of_height(t, r0, n, attention_height(t->c, t->all_rows, n));
}

strip_t attention_strip_of(const task_t *t, int r0, int n)
{
    n = (int)at_most(n, t->c->strip);
    return strip_of_height(t, r0, n, n);
}

/* ---- the two products ------------------------------------------------------------------------ */

/* Where a call of libxsmm begins to read: at column i of the tile of K, or at row `at` and column i
 * of the tile of V. */
static float *k_at(const task_t *t, int i)
{
    const attention_config_t *c = t->c;
    return c->by_call
               ? t->b.k + (int64_t)(i / c->qk_columns) * c->dk * c->qk_columns + i % c->qk_columns
               : t->b.k + i;
}

static float *v_at(const task_t *t, int at, int i)
{
    const attention_config_t *c = t->c;
    return c->by_call ? t->b.v + (int64_t)i * c->tk + (int64_t)at * c->pv_columns
                      : t->b.v + (int64_t)at * c->ld_v + i;
}

/* Rows of the tile of K from `to` on: elements d0..d0+n-1 of columns t0..t0+nt-1; zeros up to a
 * whole grain. */
static void load_k(task_t *t, int64_t t0, int nt, int64_t d0, int n, int to)
{
    const attention_config_t *c = t->c;
    const int pad = n + n % 2, columns = round_grain(nt);
    if (!c->by_call) {
        c->tile->load(&t->k, (rect_t){d0, n, t0, nt}, t->b.k + (int64_t)to * c->ld_k, c->ld_k, pad,
                      columns);
        return;
    }
    for (int i = 0; i < columns; i += c->qk_columns) {
        const int some = (int)at_most(columns - i, c->qk_columns);
        c->tile->load(&t->k, (rect_t){d0, n, t0 + i, (int)at_most(nt - i, some)},
                      k_at(t, i) + to * c->qk_columns, c->qk_columns, pad, some);
    }
}

/* The tile of K, whose first elements are in the tile of V. The tile of V may be wider than that of
 * K is high; an even number of rows counts. */
static void load_k_from_v(task_t *t, int64_t t0)
{
    const attention_config_t *c = t->c;
    const int columns = round_grain(t->tile), n = (int)(t->st->d.D - t->dv),
              rows = t->dv + (n == 0 ? t->dv % 2 : 0);
    if (!c->by_call) {
        c->tile->transpose(t->b.v, c->ld_v, columns, rows, t->b.k, c->ld_k);
    }
    for (int i = 0; i < columns && c->by_call; i += c->qk_columns) {
        const int some = (int)at_most(columns - i, c->qk_columns);
        for (int e = 0; e < rows; e += c->pv_columns) {
            c->tile->transpose(v_at(t, i, e), c->pv_columns, some,
                               (int)at_most(rows - e, c->pv_columns),
                               k_at(t, i) + e * c->qk_columns, c->qk_columns);
        }
    }
    if (n > 0) {
        load_k(t, t0, t->tile, t->dv, n, t->dv);
    }
}

/* All rows of a tile of V; zeros up to a whole grain. */
void attention_load_v(task_t *t, int64_t t0)
{
    const attention_config_t *c = t->c;
    const int nt = t->tile, rows = round_grain(nt);
    if (t->v_floats) {
        return;
    }
    t->v_floats = true;
    if (c->by_call) {
        for (int i = 0; i < c->dv; i += c->pv_columns) {
            const int some = t->dv > i ? (int)at_most(t->dv - i, c->pv_columns) : 0;
            c->tile->load(&t->v, (rect_t){t0, nt, t->dv0 + i, some}, v_at(t, 0, i), c->pv_columns,
                          rows, c->pv_columns);
        }
        return;
    }
    c->tile->load(&t->v, (rect_t){t0, nt, t->dv0, t->dv}, t->b.v, c->ld_v, rows, c->dv);
    if (c->bf16) {
        c->tile->bf16_pairs(t->b.v, c->ld_v, rows, c->dv, t->b.v16, c->ld_v);
    }
}

void attention_load_k(task_t *t, int64_t t0)
{
    const attention_config_t *c = t->c;
    const int D = (int)t->st->d.D;
    if (t->k_floats) {
        return;
    }
    t->k_floats = true;
    if (t->v_floats && t->st->of_keys) {
        load_k_from_v(t, t0);
    } else {
        load_k(t, t0, t->tile, 0, D, 0);
    }
    if (c->bf16) {
        c->tile->bf16_pairs(t->b.k, c->ld_k, D + D % 2, round_grain(t->tile), t->b.k16, c->ld_k);
    }
}

void attention_load(task_t *t, int64_t t0, int nt, bool with_v)
{
    const attention_config_t *c = t->c;
    if (c->pages && !t->st->cells.on) {
        attention_load_pages(t, t0, nt, with_v);
    }
    if (c->unpacks_k.bits > 0) {
        t->k.codes.first = t->k_first;
        cache_unpack(c->all, &t->st->k, false, t0, nt, t->seen, &t->b.k_unpacked, &t->k);
    }
    if (c->unpacks_v.bits > 0 && with_v) {
        t->v.codes.first = t->v_first;
        cache_unpack(c->all, &t->st->v, true, t0, nt, t->seen, &t->b.v_unpacked, &t->v);
    }
    t->tile = nt;
    t->k_floats = t->v_floats = false;
    if (t->st->ints.on) {
        ints_load(t, t0, nt);
        return;
    }
    if (!is_decoded(&t->st->v_side) && with_v && t->dv > 0) {
        attention_load_v(t, t0);
    }
    if (!is_decoded(&t->st->k_side) && !in_chunks(t)) {
        attention_load_k(t, t0);
    }
}

/* Q times n elements of K for a strip and the columns at..at+nt-1 of a tile. */
static void multiply_k(task_t *t, const strip_t *strip, int at, int nt, int n, bool add)
{
    const attention_config_t *c = t->c;
    const attention_buffers_t *b = &t->b;
    const int64_t q = (int64_t)strip->r0 * c->ld_q;
    if (!strip->jit) {
        c->tile->gemm(&(gemm_t){.m = strip->n,
                                .n = nt,
                                .k = n,
                                .a = b->q + q,
                                .lda = c->ld_q,
                                .b = b->k + at,
                                .ldb = c->ld_k,
                                .c = b->s + at,
                                .ldc = c->ld_s,
                                .add = add});
        return;
    }
    const bool wide = c->tk >= c->qk_columns;
    for (int i = at, step; i < at + nt; i += step) {
        const bool begins = !c->by_call || i % c->qk_columns == 0;
        step = wide && begins && at + nt - i >= c->qk_columns ? c->qk_columns : ATT_GRAIN;
        const xs_kernel_t kernel = step == ATT_GRAIN ? strip->jit->qk_step : strip->jit->qk;
        xs_call(kernel, c->bf16 ? (void *)(b->q16 + q) : b->q + q,
                c->bf16 ? (void *)(b->k16 + 2 * i) : k_at(t, i), b->s + i, 1);
    }
}

/* What is prefetched with the tokens from `token` on. */
static const unsigned char *meanwhile(const next_piece_t *next, int64_t token)
{
    return next->at == NULL ? NULL : next->at + (token - next->from) * next->bytes;
}

/* Tokens at..at+nt-1 of a tile for the decoder. */
static decode_task_t decode_task(const task_t *t, const decode_side_t *side, int rows,
                                 int64_t token, int nt)
{
    const bool is_v = side == &t->st->v_side;
    return (decode_task_t){.tile = t->c->tile,
                           .side = side,
                           .buffers = &t->b.decode,
                           .worker = t->worker,
                           .m = is_v ? t->v : matrix_transposed(&t->k),
                           .next = meanwhile(is_v ? &t->v_next : &t->k_next, token),
                           .next_bytes = is_v ? t->v_next.bytes : t->k_next.bytes,
                           .token = token,
                           .spaced = t->st->cells.on || t->c->pages,
                           .place = t->in_pages ? t->b.place + (token - t->place0) : NULL,
                           .page = t->c->pages ? (int)t->st->k.pages.page : 0,
                           .after = t->after,
                           .tokens = nt,
                           .rows = rows};
}

void attention_scores(task_t *t, const strip_t *strip, int64_t t0, int at, int nt)
{
    const attention_config_t *c = t->c;
    const int64_t D = t->st->d.D;
    count_products(t->worker, strip->n, nt, D);
    if (t->c->cache) {
        cache_task_t task = cache_task(t, &t->st->k_cache, t0 + at, nt, strip->n);
        task.out = t->b.s + at;
        task.ldo = c->ld_s;
        cache_scores(&task);
        return;
    }
    if (is_decoded(&t->st->k_side)) {
        decode_task_t task = decode_task(t, &t->st->k_side, strip->n, t0 + at, nt);
        task.x = t->b.q + (int64_t)strip->r0 * c->ld_q;
        task.ldx = c->ld_q;
        task.out = t->b.s + at;
        task.ldo = c->ld_s;
        decode_scores(&task);
        return;
    }
    if (t->st->ints.on) {
        if (ints_scores(t, strip, at, nt)) {
            return;
        }
        attention_load_k(t, t0);
    }
    if (!in_chunks(t)) {
        multiply_k(t, strip, at, round_grain(nt), (int)D, false);
        return;
    }
    for (int64_t d0 = 0; d0 < D; d0 += c->dk) {
        const int n = (int)at_most(D - d0, c->dk);
        load_q(t, strip->r0, strip->n, d0, n);
        load_k(t, t0, at + nt, d0, n, 0);
        multiply_k(t, strip, at, round_grain(nt), n, d0 > 0);
    }
}

/* acc += P V of a strip, rows at.. of a tile of V. A tile has a sum of its own: were each of its
 * tokens added to acc, the error would grow with the number of all tokens. */
static void multiply_v(task_t *t, const strip_t *strip, int at, int columns, float *acc)
{
    const attention_config_t *c = t->c;
    const attention_buffers_t *b = &t->b;
    const int64_t v = (int64_t)at * c->ld_v;
    if (!strip->jit) {
        c->tile->gemm(&(gemm_t){.m = strip->n,
                                .n = c->dv,
                                .k = columns,
                                .a = b->s + at,
                                .lda = c->ld_s,
                                .b = b->v + v,
                                .ldb = c->ld_v,
                                .c = b->part,
                                .ldc = c->ld_v});
    } else if (c->bf16) {
        c->tile->bf16_rows(b->s + at, c->ld_s, strip->n, columns, b->p16 + at, c->ld_s);
    }
    for (int i = 0; i < c->dv && strip->jit; i += c->pv_columns) {
        xs_call(strip->jit->pv, c->bf16 ? (void *)(b->p16 + at) : b->s + at,
                c->bf16 ? (void *)(b->v16 + v + 2 * i) : v_at(t, at, i), b->part + i,
                (uint64_t)(columns / ATT_GRAIN));
    }
    for (int r = 0; r < strip->n; r++) {
        c->fn->add_row(acc + (int64_t)r * c->ld_v, b->part + (int64_t)r * c->ld_v, c->dv);
    }
}

void attention_accumulate(task_t *t, const strip_t *strip, int64_t t0, int at, int nt)
{
    const attention_config_t *c = t->c;
    const attention_buffers_t *b = &t->b;
    if (t->dv == 0) {
        return;
    }
    count_products(t->worker, strip->n, t->dv, nt);
    if (c->cache) {
        const int skip = at % TILES_K, end = (at + nt + TILES_K - 1) / TILES_K * TILES_K;
        cache_task_t task = cache_task(t, &t->st->v_cache, t0 + at - skip, nt + skip, strip->n);
        for (int r = 0; r < strip->n; r++) {
            zero_columns(b->s + r * c->ld_s, at - skip, at);
            zero_columns(b->s + r * c->ld_s, at + nt, end);
        }
        task.x = b->s + at - skip;
        task.ldx = c->ld_s;
        task.skip = skip;
        task.out = b->acc + (int64_t)strip->r0 * c->ld_v;
        task.ldo = c->ld_v;
        cache_accumulate(&task);
    } else if (is_decoded(&t->st->v_side)) {
        decode_task_t task = decode_task(t, &t->st->v_side, strip->n, t0 + at, nt);
        task.x = b->s + at;
        task.ldx = c->ld_s;
        task.out = b->acc + (int64_t)strip->r0 * c->ld_v;
        task.ldo = c->ld_v;
        decode_accumulate(&task);
    } else if (t->st->ints.on) {
        ints_accumulate(t, strip, t0, at, nt);
    } else {
        multiply_v(t, strip, at, round_grain(nt), b->acc + (int64_t)strip->r0 * c->ld_v);
    }
}

/* ---- prefetching ----------------------------------------------------------------------------- */

static void fetch_bytes(const unsigned char *begin, const unsigned char *end)
{
    for (const unsigned char *p = begin; p < end; p += 64) {
        fetch_line(p);
    }
}

/* Columns of rows from..to-1, whose columns are consecutive. */
static void fetch_rows(const groups_t *codes, int64_t from, int64_t to, int64_t column,
                       int64_t columns)
{
    for (int64_t r = from; r < to; r++) {
        const int64_t first = codes_at(codes, r, column);
        fetch_bytes(groups_byte(codes, first), groups_byte(codes, first + columns));
    }
}

void attention_fetch_tiles(const task_t *t, int r0, int64_t t0, int64_t end)
{
    const int64_t n = at_most(end - t0, t->c->tk), from = t0 + n * r0 / t->rows,
                  to = t0 + n * at_most(r0 + t->c->strip, t->rows) / t->rows;
    if (t->c->cache) {
        cache_fetch(&t->st->k_cache, &t->k, t0);
        cache_fetch(&t->st->v_cache, &t->v, t0);
        return;
    }
    if (t->c->pages) {
        return;
    }
    if (!is_decoded(&t->st->k_side) && t->k.codes.row.stride == 1 && t->c->unpacks_k.bits == 0) {
        const groups_t tokens = groups_transposed(&t->k.codes);
        fetch_rows(&tokens, from, to, 0, t->st->d.D);
    }
    if (!is_decoded(&t->st->v_side) && !t->st->of_keys && t->v.codes.column.stride == 1 &&
        t->c->unpacks_v.bits == 0) {
        fetch_rows(&t->v.codes, from, to, t->dv0, t->dv);
    }
}

void attention_fetch_queries(const task_t *t, int r0)
{
    const attention_dims_t *d = &t->st->d;
    const int end = (int)at_most(r0 + t->c->strip, t->rows);
    for (int r = r0; r < end && r < r0 + d->apart; r++) {
        int64_t s;
        const groups_t q = queries_of(t, r, &s).codes;
        const int64_t of_head = (end - r + d->apart - 1) / d->apart;
        if (q.column.stride == 1) {
            fetch_rows(&q, s, s + of_head, 0, d->D);
        }
    }
}

void attention_fetch_results(const task_t *t, const strip_t *strip)
{
    const chain_ref_t *out = t->st->out;
    for (int r = strip->r0; out && r < strip->r0 + strip->n; r++) {
        int64_t at = t->dv0;
        for (int d = 0; d <= t->st->d.nb; d++) {
            at += t->idx[r][d] * out->stride[d];
        }
        fetch_bytes(out->data + at * out->traits->bits / 8,
                    out->data + (at + t->dv) * out->traits->bits / 8);
    }
}
