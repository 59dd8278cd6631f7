/* Matmul: the work of one thread. */
#include <assert.h>
#include <string.h>

#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/drivers/matmul/matmul.h"

static int round_up(int n, int to)
{
    return (n + to - 1) / to * to;
}

/* The output index of a row. */
static void seek_row(matmul_task_t *t, int64_t row, int64_t *at)
{
    row = t->order != NULL ? t->order[row] : row;
    walk_seek(t->st->n_row, t->st->row_extent, row, at);
    for (int k = 0; k < t->st->n_row; k++) {
        t->idx[t->st->row_dim[k]] = at[k];
    }
}

int64_t matmul_seek_row(matmul_task_t *t, int r)
{
    int64_t at[SINTER_MAX_NDIMS];
    seek_row(t, t->row0 + r, at);
    return t->st->M - at[t->st->n_row - 1];
}

int matmul_stretch(matmul_task_t *t, int r, matrix_t *a, int64_t *m)
{
    int64_t at[SINTER_MAX_NDIMS];
    seek_row(t, t->row0 + r, at);
    *m = at[t->st->n_row - 1];
    *a = matrix_at(&t->st->a, t->idx, t->st->nb);
    return (int)at_most(t->st->M - *m, t->rows - r);
}

/* Zeros behind n rows of kn elements. */
static void clear_rest(float *a, int n, int kn, int rows, int elements)
{
    for (int r = 0; r < rows; r++) {
        const int from = r < n ? kn : 0;
        memset(a + (size_t)r * MM_LDA + from, 0, (size_t)(elements - from) * sizeof *a);
    }
}

/* A tile of B, by whatever B is. */
static void load_tile(const matmul_task_t *t, rect_t at, float *to, int64_t ld, int rows,
                      int columns)
{
    if (t->st->patches.on) {
        patches_load_b(t, PATCHES_VALUES, at, to, ld, rows, columns);
    } else {
        t->c->tile->load(&t->b, at, to, ld, rows, columns);
    }
}

/* n tiles of a strip of weights of a convolution, from tile `first` on: each column has one scale
 * and one zero point, which do not lie in tiles. */
static tiles_strip_t patches_coefs(const matmul_task_t *t, int64_t strip, int64_t first, int n,
                                   tiles_coefs_t *to)
{
    const tiled_b_t *b = &t->st->tiled;
    const int64_t column = strip * TILES_COLUMNS;
    const matmul_places_t one = {0, 1, 1},
                          columns = {column, (int)at_most(t->st->N - column, TILES_COLUMNS), 1};
    matmul_load_coefs(t, &t->b.scale, &one, &columns, to->scale, TILES_COLUMNS);
    if (t->b.zp.type != NULL) {
        matmul_load_coefs(t, &t->b.zp, &one, &columns, to->zp, TILES_COLUMNS);
    }
    return tiled_strip(b, t->b.codes.data + strip * b->strip + first * b->tile, first, n, to);
}

/* The same of a strip of tiles, with all of its columns: to[rows][TILES_COLUMNS]. */
static void load_strip(const matmul_task_t *t, rect_t at, float *to, int rows)
{
    const tiled_b_t *b = &t->st->tiled;
    const int64_t first = at.row / TILES_K;
    const int tiles = rows / TILES_K;
    if (at.row % TILES_K != 0) {
        t->c->tile->load(&t->b, at, to, TILES_COLUMNS, rows, TILES_COLUMNS);
        return;
    }
    if (b->plain != sinter_data_type_undef) {
        const unsigned char *own = t->b.codes.data + at.column / TILES_COLUMNS * b->strip;
        b->table->load_plain(own, b->plain, first, tiles, to);
    } else {
        tiles_coefs_t coefs;
        const tiles_strip_t some =
            t->st->patches.on ? patches_coefs(t, at.column / TILES_COLUMNS, first, tiles, &coefs)
                              : tiled_coefs(b, matmul_strip(t, at.column), first, tiles, 1, &coefs);
        b->table->load(&some, b->type, b->values, to);
    }
    memset(to + at.rows * TILES_COLUMNS, 0, (size_t)(rows - at.rows) * TILES_COLUMNS * sizeof *to);
}

/* A[first..first + n)[k..k + kn) into buf.a, with zeros as matmul_load_a has them. */
static void load_rows(matmul_task_t *t, int first, int n, int64_t k, int kn)
{
    const int k_pad = round_up(kn, MM_GRAIN), full = n / MM_HEIGHT * MM_HEIGHT;
    const int padded = n > full ? full + matmul_ladder[matmul_height(n - full)] : full;
    if (t->st->patches.on) {
        patches_load(t, first, n, k, kn);
        clear_rest(t->buf.a, n, kn, padded, k_pad);
    }
    for (int r = t->st->patches.on ? n : 0; r < n;) {
        matrix_t a;
        int64_t m;
        const int some = (int)at_most(matmul_stretch(t, first + r, &a, &m), n - r);
        t->c->tile->load(&a, (rect_t){m, some, k, kn}, t->buf.a + (size_t)r * MM_LDA, MM_LDA,
                         r + some == n ? padded - r : some, k_pad);
        r += some;
    }
    if (t->c->bf16) {
        t->c->tile->bf16_rows(t->buf.a, MM_LDA, padded, k_pad, t->buf.a16, MM_LDA);
    }
}

/* Where memory has A from K block k on. */
static float *find_whole(const matmul_task_t *t, int64_t k)
{
    return t->buf.whole_a + k / t->st->k_block * t->c->rows * MM_LDA;
}

void matmul_load_a(matmul_task_t *t, int64_t k, int kn)
{
    load_rows(t, 0, t->rows, k, kn);
}

void matmul_load_whole(matmul_task_t *t, int tid, int nth)
{
    const matmul_state_t *st = t->st;
    int64_t begin, end;
    share((st->K + st->k_block - 1) / st->k_block, tid, nth, &begin, &end);
    for (int64_t k = begin * st->k_block; k < end * st->k_block; k += st->k_block) {
        t->buf.a = find_whole(t, k);
        matmul_load_a(t, k, (int)at_most(st->K - k, st->k_block));
    }
}

/* Whether tiles that products of floats take need not be unpacked. */
static bool is_direct(const matmul_task_t *t)
{
    return matmul_is_unpacked(t->c, t->st) && t->st->tiled.plain == sinter_f32;
}

/* Rows k.. of the tiles of columns c.. of the panel. */
static const unsigned char *tiles_at(const matmul_task_t *t, int64_t k, int c)
{
    const tiled_b_t *b = &t->st->tiled;
    return t->b.codes.data + (t->n0 + c) / TILES_COLUMNS * b->strip + k / TILES_K * b->tile;
}

/* Where the tiles lie that are unpacked after those of K block k and column c of the panel: in
 * the same strip, or, at its end, in the next strip or the next panel. */
static const unsigned char *tiles_after(const matmul_task_t *t, int64_t k, int c)
{
    const bool next_panel = k + t->st->k_block >= t->st->K && !t->st->whole;
    return tiles_at(t, next_panel ? 0 : k + t->st->k_block, c + (next_panel ? t->st->panel : 0));
}

/* acc[r..r + n)[columns c..c + columns) += A B over k_pad elements from k on, of what buf.a has and
 * buf.b: strips of tiles. Tiles of f32 are multiplied where they lie. */
static void product_of_tiles(const matmul_task_t *t, int r, int n, int c, int columns, int64_t k,
                             int k_pad)
{
    const tiled_b_t *b = &t->st->tiled;
    const bool direct = is_direct(t);
    for (int i = 0; i < columns; i += TILES_COLUMNS) {
        b->table->multiply(&(tiles_product_t){
            .b = direct ? (const float *)(const void *)tiles_at(t, k, c + i) : t->buf.b + i * MM_K,
            .k = k_pad,
            .rows = n,
            .x = t->buf.a,
            .out = t->buf.acc + (size_t)r * MM_PANEL + c + i,
            .ldo = MM_PANEL,
            .next = tiles_after(t, k, c + i),
            .bytes = r == 0 ? k_pad / TILES_K * b->tile : 0});
    }
}

/* acc[r..r + n)[columns c..c + columns) += A B over k_pad elements of what buf.a and buf.b have. */
static void product(const matmul_task_t *t, int r, int n, int c, int columns, int k_pad)
{
    float *acc = t->buf.acc + (size_t)r * MM_PANEL + c;
    const int step = t->c->columns[t->st->width];
    for (int i = 0; i < columns; i += step) {
        const float *b = t->buf.b + i * MM_K;
        if (!t->c->jit) {
            t->c->tile->gemm(&(gemm_t){.m = n,
                                       .n = step,
                                       .k = k_pad,
                                       .a = t->buf.a,
                                       .lda = MM_LDA,
                                       .b = b,
                                       .ldb = step,
                                       .c = acc + i,
                                       .ldc = MM_PANEL,
                                       .add = true});
            continue;
        }
        for (int at = 0; at < n; at += MM_HEIGHT) {
            const xs_kernel_t kernel =
                t->c->kernel[t->st->width][matmul_height((int)at_most(n - at, MM_HEIGHT))];
            xs_call(kernel,
                    t->c->bf16 ? (void *)(t->buf.a16 + at * MM_LDA)
                               : (void *)(t->buf.a + at * MM_LDA),
                    t->c->bf16 ? (const void *)(t->buf.b16 + 2 * i) : (const void *)b,
                    acc + at * MM_PANEL + i, (uint64_t)(k_pad / MM_GRAIN));
        }
    }
}

/* Columns c..c + columns) of the panel, in whole strips; products of bf16 want pairs, side by side,
 * for which all columns are loaded at once where they can be. */
static void load_b(const matmul_task_t *t, int64_t k, int kn, int c, int columns)
{
    const bool tiles = t->st->tiled.table != NULL, bf16 = t->c->bf16;
    const int k_pad = round_up(kn, MM_GRAIN),
              step = tiles  ? TILES_COLUMNS
                     : bf16 ? columns
                            : t->c->columns[t->st->width],
              ld = bf16 && !tiles ? MM_LDB : step;
    for (int i = 0; i < columns; i += step) {
        const rect_t at = {k, kn, t->n0 + c + i, (int)at_least(at_most(t->cols - c - i, step), 0)};
        float *to = t->buf.b + i * MM_K;
        if (tiles && at.columns > 0) {
            load_strip(t, at, to, k_pad);
        } else {
            load_tile(t, at, to, ld, k_pad, step);
        }
        if (bf16) {
            t->c->tile->bf16_pairs(to, ld, k_pad, step, t->buf.b16 + 2 * i, MM_LDB);
        }
    }
}

/* The rows of one group of the tail, or one row, through the post chain and to the outputs. */
static void finish_rows(matmul_task_t *t, int r, int n)
{
    const matmul_state_t *st = t->st;
    float *acc = t->buf.acc + (size_t)r * MM_PANEL;
    int64_t at[SINTER_MAX_NDIMS];
    for (int k = 0; k < n; k++) {
        seek_row(t, t->row0 + r + k, at);
        chain_run(&st->post, t->idx, t->cols, acc + (size_t)k * MM_PANEL, t->buf.chain);
    }
    if (t->tail) {
        seek_row(t, t->row0 + r, at);
        quant_tail_run(&st->tail, t->idx, n, t->cols, acc, MM_PANEL, t->buf.tail);
    }
}

/* All rows of the panel with what buf.b holds: columns c..c + columns) from K block k on, which
 * has kn elements. first: A is not in buf.a from another piece. */
static void multiply_rows(matmul_task_t *t, int64_t k, int kn, int c, int columns, bool first)
{
    const int tall = t->c->tall;
    for (int r = 0; r < t->rows; r += tall) {
        const int n = (int)at_most(t->rows - r, tall);
        if (t->buf.whole_a != NULL) {
            t->buf.a = find_whole(t, k) + (size_t)r * MM_LDA;
        } else if (first || t->rows > tall) {
            load_rows(t, r, n, k, kn);
        }
        if (matmul_is_unpacked(t->c, t->st)) {
            product_of_tiles(t, r, n, c, columns, k, round_up(kn, MM_GRAIN));
        } else {
            product(t, r, n, c, columns, round_up(kn, MM_GRAIN));
        }
    }
}

void matmul_add(matmul_task_t *t, int64_t k, int64_t kn, int c, int n)
{
    const matmul_state_t *st = t->st;
    for (int64_t at = 0; at < kn; at += st->k_block) {
        const int some = (int)at_most(kn - at, st->k_block);
        for (int i = c; i < c + n; i += st->piece) {
            const int columns = round_up((int)at_most(c + n - i, st->piece), st->strip);
            if (!is_direct(t)) {
                load_b(t, k + at, some, i, columns);
            }
            multiply_rows(t, k + at, some, i, columns, i == c);
        }
    }
}

static void clear_sums(const matmul_task_t *t)
{
    const int full = t->rows / MM_HEIGHT * MM_HEIGHT;
    const int padded = t->rows > full ? full + matmul_ladder[matmul_height(t->rows - full)] : full;
    memset(t->buf.acc, 0, (size_t)padded * MM_PANEL * sizeof(float));
}

/* Adds the sums of a complete chain to those of the chains before it. */
static void end_chain(const matmul_task_t *t, int columns, bool first)
{
    for (int r = 0; r < t->rows; r++) {
        const size_t at = (size_t)r * MM_PANEL;
        if (first) {
            memcpy(t->buf.chains + at, t->buf.acc + at, (size_t)columns * sizeof(float));
        } else {
            t->c->fn->add_row(t->buf.chains + at, t->buf.acc + at, columns);
        }
    }
}

/* buf.acc = the product, in floats. */
static void multiply_floats(matmul_task_t *t)
{
    const matmul_state_t *st = t->st;
    const int columns = round_up(t->cols, st->strip);
    /* Products with strips of tiles are chains of a K block each. */
    const bool chained = st->K > MM_CHAIN && !matmul_is_unpacked(t->c, t->st);
    assert(t->c->chained || !chained);
    clear_sums(t);
    /* Tiles are read in order of addresses. */
    for (int c = 0; c < t->cols && st->whole; c += TILES_COLUMNS) {
        matmul_add(t, 0, st->K, c, (int)at_most(t->cols - c, TILES_COLUMNS));
    }
    for (int64_t k = 0; k < st->K && !st->whole; k += st->k_block) {
        if (chained && k > 0 && k % MM_CHAIN == 0) {
            end_chain(t, columns, k == MM_CHAIN);
            clear_sums(t);
        }
        matmul_add(t, k, (int)at_most(st->K - k, st->k_block), 0, t->cols);
    }
    for (int r = 0; r < t->rows && chained; r++) {
        const size_t at = (size_t)r * MM_PANEL;
        t->c->fn->add_row(t->buf.acc + at, t->buf.chains + at, columns);
    }
}

void matmul_panel(matmul_task_t *t)
{
    if (t->st->blocks.block == 0) {
        multiply_floats(t);
        return;
    }
    if (!t->st->blocks.long_rows) {
        clear_sums(t);
    }
    blocks_panel(t);
}

/* Rows of a convolution from r on that follow one another along the last spatial dim, as many as go
 * through the chain at once: it is started for each time. Returns how many. */
static int finish_stretch(matmul_task_t *t, int r)
{
    const int room = t->c->rows < MM_TALL ? t->c->rows : MM_TALL, most = CHAIN_TILE / t->cols,
              stretch = (int)at_most(matmul_seek_row(t, r), t->rows - r),
              rows = (int)at_most(stretch, room < most ? room : most);
    float *acc = t->buf.acc + (size_t)r * MM_PANEL;
    if (t->cols < MM_PANEL) {
        for (int i = 0; i < rows; i++) {
            memcpy(t->buf.a + (size_t)i * (size_t)t->cols, acc + (size_t)i * MM_PANEL,
                   (size_t)t->cols * sizeof *acc);
        }
        acc = t->buf.a;
    }
    chain_run_rows(&t->st->post, t->idx, rows, t->cols, acc, t->buf.chain);
    return rows;
}

/* The same where the chain is no more than a micro-kernel does. */
static void finish_codes(matmul_task_t *t)
{
    const matmul_state_t *st = t->st;
    const int row = st->row_dim[st->n_row - 1];
    const bool repeat = chain_codes_repeat(&st->post);
    blocks_codes_of_t how;
    for (int r = 0, some; r < t->rows; r += some) {
        some = (int)at_most(matmul_seek_row(t, r), t->rows - r);
        for (int i = 0; i < some; i++, t->idx[row]++) {
            if ((r == 0 && i == 0) || !repeat) {
                const chain_codes_run_t run =
                    chain_codes_run(&st->post, t->idx, t->cols, t->buf.chain);
                how = (blocks_codes_of_t){run.bias, run.relu, run.is_signed, run.scale, run.zp};
            }
            t->c->blocks->store(&how, t->buf.acc + (size_t)(r + i) * MM_PANEL, t->cols,
                                chain_codes_to(&st->post, t->idx));
        }
    }
}

void matmul_finish(matmul_task_t *t)
{
    const matmul_state_t *st = t->st;
    t->idx[st->nb + 1] = t->n0 + (st->patches.on ? t->mat * st->N : 0);
    if (st->blocks.image.on && !t->tail && chain_stores_codes(&st->post)) {
        finish_codes(t);
        return;
    }
    const bool tiles = st->patches.on && !t->tail && st->post.chain->result < 0;
    for (int r = 0; r < t->rows && tiles;) {
        r += finish_stretch(t, r);
    }
    for (int r = 0; r < t->rows && !tiles; r += st->tail.rows) {
        finish_rows(t, r, (int)at_most(t->rows - r, st->tail.rows));
    }
}

void matmul_seek_rows(matmul_task_t *t, int64_t mat, int64_t row0, int n)
{
    int64_t at[SINTER_MAX_NDIMS];
    walk_seek(t->st->n_mat, t->st->mat_extent, mat, at);
    for (int k = 0; k < t->st->n_mat; k++) {
        t->idx[t->st->mat_dim[k]] = at[k];
    }
    t->mat = mat;
    t->row0 = row0;
    t->rows = n;
}

void matmul_seek_tiles(matmul_task_t *t)
{
    const matrix_t *base = &t->st->b.base;
    const int64_t columns = matmul_matrix(t) * t->st->N;
    groups_t *parts[] = {&t->b.codes, &t->b.high,        &t->b.scale,
                         &t->b.zp,    &t->b.scale_scale, &t->b.zp_scale};
    const groups_t *of[] = {&base->codes, &base->high,        &base->scale,
                            &base->zp,    &base->scale_scale, &base->zp_scale};
    for (int i = 0; i < 6; i++) {
        if (of[i]->type != NULL && of[i]->tiled != NOT_TILED) {
            *parts[i] = *of[i];
            parts[i]->data += columns / of[i]->column.group / TILES_COLUMNS * of[i]->strip;
        }
    }
}

matmul_items_t matmul_items(const matmul_task_t *t)
{
    const matmul_state_t *st = t->st;
    matmul_items_t items = {0};
    if (st->experts.ids != NULL) {
        items.walk = experts_begin(st, t->worker, st->n_panels);
    } else {
        share(st->items, t->worker->tid, t->worker->nth, &items.next, &items.end);
    }
    return items;
}

bool matmul_next(const matmul_task_t *t, matmul_items_t *items, int64_t *item)
{
    experts_walk_t *walk = &items->walk;
    while (items->next == items->end && t->st->experts.ids != NULL) {
        if (!experts_next(walk, t->worker)) {
            return false;
        }
        items->first = walk->rows.block[walk->expert];
        items->next = 0;
        items->end = (walk->to - walk->from) * (walk->rows.block[walk->expert + 1] - items->first);
    }
    const int64_t i = items->next++, panels = walk->to - walk->from;
    *item = t->st->experts.ids != NULL
                ? (items->first + i / panels) * t->st->n_panels + walk->from + i % panels
                : i;
    return i < items->end;
}

void matmul_seek(matmul_task_t *t, int64_t i)
{
    const matmul_state_t *st = t->st;
    if (st->experts.ids != NULL) {
        experts_seek(t, i);
        count_products(t->worker, t->rows, t->cols, st->K);
        return;
    }
    const int64_t row0 = i % st->n_blocks * st->block, panel = i / st->n_blocks % st->n_panels;
    matmul_seek_rows(t, i / st->n_blocks / st->n_panels, row0,
                     (int)at_most(st->rows - row0, st->block));
    t->n0 = panel * st->panel;
    t->cols = (int)at_most(st->N - t->n0, st->panel);
    count_products(t->worker, t->rows, t->cols, st->K);
    t->b = st->patches.on ? patches_weights(st, t->mat, 0) : matrix_at(&st->b, t->idx, st->nb);
    if (!st->patches.on) {
        matmul_seek_tiles(t);
    }
}

static void run_items(matmul_task_t *t)
{
    matmul_items_t items = matmul_items(t);
    int64_t i;
    while (matmul_next(t, &items, &i)) {
        matmul_seek(t, i);
        matmul_panel(t);
        matmul_finish(t);
    }
}

void matmul_work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const matmul_state_t *st = state;
    matmul_task_t t = {.c = config, .st = st, .worker = w, .tail = p->step->tail != NULL};
    (void)self;
    matmul_buffers(t.c, p->step, w->scratch, &t.buf);
    blocks_share(t.c, &st->blocks, w->shared, &t.buf.whole);
    t.buf.whole_a = st->whole ? w->shared : NULL;
    if (w->phase == 1) {
        run_items(&t);
    } else if (st->experts.ids != NULL && w->tid == 0) {
        experts_sort(st, w, 0, st->rows);
    } else if (st->blocks.image.on) {
        image_make(&t, w->tid, w->nth);
    } else if (st->whole && !st->left) {
        matmul_seek_rows(&t, 0, 0, (int)st->rows);
        matmul_load_whole(&t, w->tid, w->nth);
    } else if (st->blocks.once && !st->blocks.left) {
        blocks_quantise(&t, w->tid, w->nth);
    }
}
