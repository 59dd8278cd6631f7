/* Many products of small matrices of floats: each is one call of the micro-kernel, on the matrices
 * where they lie. To prepare a panel would take longer than to multiply it. */
#include <string.h>

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/tile.h"
#include "base/status.h"

/* MOST, MOST_K: rows and columns of results, and elements of a sum. MANY: the least number of
 * products that are worth a kernel of their own. */
enum { MOST = 32, MOST_K = 64, MANY = 64 };

/* An operand: one matrix for each batch index, in steps of elements. */
typedef struct side {
    const unsigned char *data;
    int64_t batch[SINTER_MAX_NDIMS], row, column; /* batch: by batch dim of the output */
    bool in_place; /* the micro-kernel reads it where it lies, else from a copy */
    /* As in bound_t; by_row: the blocks are of rows, since the matrix is turned. */
    int64_t block, block_stride;
    bool by_row;
} side_t;

typedef struct small_state {
    chain_bound_t post;
    const tile_table_t *tile;
    int nb; /* batch dims */
    int M, N, K;
    int64_t products;
    side_t a, b;
    int store; /* the operand of the chain that gets results as they are; -1: the chain runs */
} small_state_t;

static bool is_plain(const problem_t *p, const operand_t *op)
{
    return op->scale < 0 && op->zp < 0 && op->high < 0 && problem_type(p, op->data) == sinter_f32;
}

static const char too_few_or_large[] =
    "not 64 and more products of matrices of at most 32 rows and columns, with sums of 64";

static const char *refuse(const kernel_t *self, const problem_t *p)
{
    const matmul_params_t *m = &p->step->p.matmul;
    const char *why = m->conv != NULL   ? "rows of A are patches of an image"
                      : m->experts >= 0 ? "rows of A go to experts"
                      : p->plan->deterministic
                          ? "the engine is deterministic, and larger products are added otherwise"
                          : matmul_refuse_layout(p);
    (void)self;
    if (why != NULL) {
        return why;
    }
    const int ndims = problem_ndims(p, m->out_dims);
    int64_t products = 1;
    bool known = ndims >= 0;
    for (int e = 3; e <= ndims; e++) {
        const int64_t n = problem_dim(p, m->b.data, e);
        known = known && n >= 0;
        products = n > MANY ? products * MANY : n > 0 ? products * n : products;
        products = products > MANY ? MANY : products;
    }
    const int64_t M = problem_dim(p, m->out_dims, 2), N = problem_dim(p, m->out_dims, 1),
                  K = problem_dim(p, m->a.data, m->trans_a ? 2 : 1);
    if ((known && products < MANY) || M > MOST || N > MOST || K > MOST_K) {
        return too_few_or_large;
    }
    return p->step->tail != NULL ? "the step quantises its results"
           : !is_plain(p, &m->a) || !is_plain(p, &m->b)
               ? "matrices are small, but not of f32 without scales"
               : NULL;
}

static size_t buffers(const step_t *step, unsigned char *scratch, float **a, float **b,
                      float **sums, void **chain)
{
    size_t at = 0;
    *a = carve(scratch, &at, (size_t)MOST * MOST_K, sizeof(float));
    *b = carve(scratch, &at, (size_t)MOST * MOST_K, sizeof(float));
    *sums = carve(scratch, &at, (size_t)MOST * MOST, sizeof(float));
    *chain = carve(scratch, &at, chain_scratch_bytes(step->post), 1);
    return at;
}

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    float *a, *b, *sums;
    void *chain;
    (void)self, (void)arena;
    out->state_bytes = sizeof(small_state_t);
    out->share_bytes = buffers(p->step, NULL, &a, &b, &sums, &chain);
    out->note = "64 products and more of at most 32 rows and columns and sums of 64";
    return sinter_success;
}

/* ---- choose ---------------------------------------------------------------------------------- */

static int64_t dim_of(const bound_t *v, int from_end)
{
    return v->ndims < from_end ? 1 : v->dims[v->ndims - from_end];
}

static sinter_status_t bind_side(const bound_t *v, bool turned, const bound_t *out, side_t *side)
{
    if (v->ndims < 2) {
        return sg_fail(sinter_invalid_shape, "a matrix operand has %d dims, needs 2", v->ndims);
    }
    const int row = v->ndims - (turned ? 1 : 2), column = v->ndims - (turned ? 2 : 1),
              nb = out->ndims - 2;
    side->data = v->data;
    side->row = v->strides[row];
    side->column = v->strides[column];
    side->block = v->block;
    side->block_stride = v->block_stride;
    side->by_row = turned;
    side->in_place =
        (side->column == 1 || v->dims[column] <= 1) && v->block == 0 && (uintptr_t)v->data % 4 == 0;
    for (int d = 0; d < nb; d++) {
        const int own = d - (out->ndims - v->ndims);
        const int64_t n = own < 0 ? 1 : v->dims[own];
        if (n != 1 && n != out->dims[d]) {
            return sg_fail(sinter_invalid_shape, "matmul: batch dim %d does not broadcast", d);
        }
        side->batch[d] = n == 1 ? 0 : v->strides[own];
    }
    return sinter_success;
}

/* The operand of a chain that does nothing but store rows of floats where they lie. */
static int plain_store(const chain_bound_t *post)
{
    int operand;
    if (!chain_is_store(post->chain, &operand)) {
        return -1;
    }
    const chain_ref_t *to = &post->refs[operand];
    return to->dtype == sinter_f32 && to->stride[post->ndims - 1] == 1 &&
                   (uintptr_t)to->data % 4 == 0
               ? operand
               : -1;
}

static sinter_status_t choose(const kernel_t *self, const problem_t *p, const void *config,
                              void *state, choice_t *choice)
{
    const matmul_params_t *m = &p->step->p.matmul;
    const bound_t *a = &p->frame->v[m->a.data], *b = &p->frame->v[m->b.data],
                  *out = &p->frame->v[m->out_dims];
    small_state_t *st = state;
    (void)config;
    if (out->ndims < 2) {
        return sg_fail(sinter_invalid_shape, "matmul: the output has fewer than 2 dims");
    }
    SG_TRY(bind_side(a, m->trans_a, out, &st->a));
    SG_TRY(bind_side(b, m->trans_b, out, &st->b));
    const int64_t K = dim_of(a, m->trans_a ? 2 : 1);
    if (dim_of(a, m->trans_a ? 1 : 2) != out->dims[out->ndims - 2] ||
        dim_of(b, m->trans_b ? 1 : 2) != K ||
        dim_of(b, m->trans_b ? 2 : 1) != out->dims[out->ndims - 1]) {
        return sg_fail(sinter_invalid_shape,
                       "matmul: dims of the operands and the output do not fit each other");
    }
    SG_TRY(chain_bind(p->step->post, p->frame, self->needs, &st->post));
    st->tile = tile_table(self->needs);
    st->nb = out->ndims - 2;
    st->M = (int)out->dims[st->nb];
    st->N = (int)out->dims[st->nb + 1];
    st->K = (int)K;
    st->products = 1;
    for (int d = 0; d < st->nb; d++) {
        if (!mul_i64(st->products, out->dims[d], &st->products)) {
            return sg_fail(sinter_invalid_shape, "matmul: batch dims overflow");
        }
    }
    st->store = plain_store(&st->post);
    choice->shares_bytes = chain_shares_bytes(&st->post);
    return sinter_success;
}

/* ---- work ------------------------------------------------------------------------------------ */

static int64_t place(int n, const int64_t *idx, const int64_t *steps)
{
    int64_t at = 0;
    for (int d = 0; d < n; d++) {
        at += idx[d] * steps[d];
    }
    return at;
}

/* Where an element of a matrix lies, from its first one. */
static int64_t element_of(const side_t *side, int64_t row, int64_t column)
{
    const int64_t i = side->by_row ? row : column;
    if (side->block == 0) {
        return row * side->row + column * side->column;
    }
    return (side->by_row ? column * side->column : row * side->row) +
           i / side->block * side->block_stride + i % side->block;
}

/* A matrix that the micro-kernel can read, and the floats from one of its rows to the next. */
static const float *matrix_of(const side_t *side, int nb, const int64_t *idx, int rows, int columns,
                              float *copy, int64_t *ld)
{
    const unsigned char *from = side->data + place(nb, idx, side->batch) * (int64_t)sizeof(float);
    if (side->in_place) {
        *ld = side->row;
        return (const float *)(const void *)from;
    }
    *ld = columns;
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < columns; c++) {
            memcpy(copy + r * columns + c, from + element_of(side, r, c) * (int64_t)sizeof(float),
                   sizeof(float));
        }
    }
    return copy;
}

/* idx: the batch index, with room for the row and the column. */
static void one_product(const small_state_t *st, int64_t *idx, float *a, float *b, float *sums,
                        void *chain)
{
    gemm_t g = {.m = st->M, .n = st->N, .k = st->K, .c = sums, .ldc = st->N};
    g.a = matrix_of(&st->a, st->nb, idx, st->M, st->K, a, &g.lda);
    g.b = matrix_of(&st->b, st->nb, idx, st->K, st->N, b, &g.ldb);
    if (st->store >= 0) {
        const chain_ref_t *to = &st->post.refs[st->store];
        g.c = (float *)(void *)(to->data + place(st->nb, idx, to->stride) * (int64_t)sizeof(float));
        g.ldc = to->stride[st->nb];
    }
    st->tile->gemm(&g);
    for (int r = 0; r < st->M && st->store < 0; r++) {
        idx[st->nb] = r;
        idx[st->nb + 1] = 0;
        chain_run(&st->post, idx, st->N, sums + r * st->N, chain);
    }
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const small_state_t *st = state;
    int64_t begin, end, idx[SINTER_MAX_NDIMS] = {0};
    float *a, *b, *sums;
    void *chain;
    (void)self, (void)config;
    buffers(p->step, w->scratch, &a, &b, &sums, &chain);
    share(st->products, w->tid, w->nth, &begin, &end);
    if (begin >= end) {
        return;
    }
    walk_seek(st->nb, st->post.dims, begin, idx);
    for (int64_t i = begin; i < end; i++, walk_next(st->nb, st->post.dims, idx)) {
        one_product(st, idx, a, b, sums, chain);
        count_products(w, st->M, st->N, st->K);
    }
}

const driver_t driver_matmul_small = {.step = STEP_MATMUL,
                                      .arithmetic = IN_F32,
                                      .phases = 1,
                                      .takes = "many small matrices of f32",
                                      .refuse = refuse,
                                      .setup = setup,
                                      .choose = choose,
                                      .work = work};
