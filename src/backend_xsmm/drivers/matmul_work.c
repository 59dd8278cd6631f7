/* Matmul: the work of one thread. */
#include <string.h>

#include "backend_xsmm/drivers/chain_walk.h"
#include "backend_xsmm/drivers/matmul.h"

static int round_up(int n, int to)
{
    return (n + to - 1) / to * to;
}

static int height_for(int rows)
{
    int h = 0;
    while (matmul_ladder[h] < rows) {
        h++;
    }
    return h;
}

/* The output index of a row. */
static void seek_row(matmul_task_t *t, int64_t row, int64_t *at)
{
    walk_seek(t->st->n_row, t->st->row_extent, row, at);
    for (int k = 0; k < t->st->n_row; k++) {
        t->idx[t->st->row_dim[k]] = at[k];
    }
}

int matmul_stretch(matmul_task_t *t, int r, matrix_t *a, int64_t *m)
{
    int64_t at[SINTER_MAX_NDIMS];
    seek_row(t, t->row0 + r, at);
    *m = at[t->st->n_row - 1];
    *a = matrix_at(&t->st->a, t->idx, t->st->nb);
    return (int)at_most(t->st->M - *m, t->rows - r);
}

void matmul_load_a(matmul_task_t *t, int64_t k, int kn)
{
    const int k_pad = round_up(kn, MM_GRAIN), full = t->rows / MM_HEIGHT * MM_HEIGHT;
    const int padded = t->rows > full ? full + matmul_ladder[height_for(t->rows - full)] : full;
    for (int r = 0; r < t->rows;) {
        matrix_t a;
        int64_t m;
        const int n = matmul_stretch(t, r, &a, &m);
        t->c->tile->load(&a, (rect_t){m, n, k, kn}, t->buf.a + (size_t)r * MM_LDA, MM_LDA,
                         r + n == t->rows ? padded - r : n, k_pad);
        r += n;
    }
    if (t->c->bf16) {
        t->c->tile->bf16_rows(t->buf.a, MM_LDA, padded, k_pad, t->buf.a16, MM_LDA);
    }
}

/* acc[rows][strip at column c] += A B, over k_pad. */
static void product(const matmul_task_t *t, int c, int k_pad)
{
    const int strip = t->st->strip;
    for (int r = 0; r < t->rows; r += MM_HEIGHT) {
        const int h = height_for((int)at_most(t->rows - r, MM_HEIGHT));
        const size_t a = (size_t)r * MM_LDA;
        float *acc = t->buf.acc + (size_t)r * MM_PANEL + c;
        if (!t->c->jit) {
            t->c->tile->gemm(&(gemm_t){.m = (int)at_most(t->rows - r, MM_HEIGHT),
                                       .n = strip,
                                       .k = k_pad,
                                       .a = t->buf.a + a,
                                       .lda = MM_LDA,
                                       .b = t->buf.b,
                                       .ldb = strip,
                                       .c = acc,
                                       .ldc = MM_PANEL,
                                       .add = true});
        } else if (t->c->bf16) {
            xs_call(t->c->kernel[t->st->width][h], t->buf.a16 + a, t->buf.b16, acc,
                    (uint64_t)(k_pad / MM_GRAIN));
        } else {
            xs_call(t->c->kernel[t->st->width][h], t->buf.a + a, t->buf.b, acc,
                    (uint64_t)(k_pad / MM_GRAIN));
        }
    }
}

static void load_b(const matmul_task_t *t, int64_t k, int kn, int c)
{
    const int strip = t->st->strip, k_pad = round_up(kn, MM_GRAIN);
    const rect_t at = {k, kn, t->n0 + c, (int)at_most(t->cols - c, strip)};
    t->c->tile->load(&t->b, at, t->buf.b, strip, k_pad, strip);
    if (t->c->bf16) {
        t->c->tile->bf16_pairs(t->buf.b, strip, k_pad, strip, t->buf.b16, strip);
    }
}

/* The rows of one group of the tail, or one row, through the post chain and to the outputs. */
static void finish_rows(matmul_task_t *t, int r)
{
    const matmul_state_t *st = t->st;
    float *acc = t->buf.acc + (size_t)r * MM_PANEL;
    int64_t at[SINTER_MAX_NDIMS];
    for (int k = 0; k < st->tail.rows; k++) {
        seek_row(t, t->row0 + r + k, at);
        chain_run(&st->post, t->idx, t->cols, acc + (size_t)k * MM_PANEL, t->buf.chain);
    }
    if (t->tail) {
        seek_row(t, t->row0 + r, at);
        quant_tail_run(&st->tail, t->idx, t->cols, acc, MM_PANEL, t->buf.tail);
    }
}

/* Part `part` of `parts` of the rows of A, from element k on: the products leave memory idle
 * otherwise. */
static void fetch_a(const matmul_task_t *t, int64_t k, int part, int parts)
{
    const matmul_state_t *st = t->st;
    const groups_t a = matrix_at(&st->a, t->idx, st->nb).codes;
    if (a.column.stride != 1 || st->n_row != 1) {
        return;
    }
    const int64_t bytes = at_most(st->K - k, st->k_block) * a.type->bits / 8;
    for (int r = t->rows * part / parts; r < t->rows * (part + 1) / parts; r++) {
        const unsigned char *p = groups_byte(&a, codes_at(&a, t->row0 + r, k));
        for (int64_t i = 0; i < bytes; i += 64) {
            __builtin_prefetch(p + i);
        }
    }
}

void matmul_add(matmul_task_t *t, int64_t k, int kn, int c, int n)
{
    const matmul_state_t *st = t->st;
    for (int at = 0; at < kn; at += st->k_block) {
        const int some = (int)at_most(kn - at, st->k_block);
        matmul_load_a(t, k + at, some);
        for (int i = c; i < c + n; i += st->strip) {
            load_b(t, k + at, some, i);
            if (k + at + some < st->K) {
                fetch_a(t, k + at + some, (i - c) / st->strip, (n + st->strip - 1) / st->strip);
            }
            product(t, i, round_up(some, MM_GRAIN));
        }
    }
}

void matmul_panel(matmul_task_t *t)
{
    const matmul_state_t *st = t->st;
    const int full = t->rows / MM_HEIGHT * MM_HEIGHT;
    const int padded = t->rows > full ? full + matmul_ladder[height_for(t->rows - full)] : full;
    memset(t->buf.acc, 0, (size_t)padded * MM_PANEL * sizeof(float));
    if (st->blocks.block > 0) {
        blocks_panel(t);
        return;
    }
    for (int64_t k = 0; k < st->K; k += st->k_block) {
        matmul_add(t, k, (int)at_most(st->K - k, st->k_block), 0, t->cols);
    }
}

void matmul_finish(matmul_task_t *t)
{
    const matmul_state_t *st = t->st;
    t->idx[st->nb + 1] = t->n0;
    for (int r = 0; r < t->rows; r += st->tail.rows) {
        finish_rows(t, r);
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

void matmul_seek(matmul_task_t *t, int64_t i)
{
    const matmul_state_t *st = t->st;
    const int64_t row0 = i % st->n_blocks * st->block, panel = i / st->n_blocks % st->n_panels;
    matmul_seek_rows(t, i / st->n_blocks / st->n_panels, row0,
                     (int)at_most(st->rows - row0, st->block));
    t->n0 = panel * st->panel;
    t->cols = (int)at_most(st->N - t->n0, st->panel);
    t->b = matrix_at(&st->b, t->idx, st->nb);
}

static void items(matmul_task_t *t, int tid, int nth)
{
    const matmul_state_t *st = t->st;
    int64_t begin, end;
    share(st->items, st->serial ? 0 : tid, st->serial ? 1 : nth, &begin, &end);
    for (int64_t i = begin; i < end && (!st->serial || tid == 0); i++) {
        matmul_seek(t, i);
        matmul_panel(t);
        matmul_finish(t);
    }
}

void matmul_work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const matmul_state_t *st = state;
    matmul_task_t t = {.c = config, .st = st, .tail = p->step->tail != NULL};
    (void)self;
    matmul_buffers(t.c, p->step, w->scratch, &t.buf);
    blocks_share(t.c, &st->blocks, w->shared, &t.buf.whole);
    if (w->phase == 1) {
        items(&t, w->tid, w->nth);
    } else if (st->blocks.once) {
        blocks_quantise(&t, w->tid, w->nth);
    }
}
