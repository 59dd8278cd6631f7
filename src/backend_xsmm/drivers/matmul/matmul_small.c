/* Many products of small matrices of floats: each is one call of the micro-kernel, on the matrices
 * where they lie. To prepare a panel would take longer than to multiply it. */
#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/drivers/matmul/matmul.h"
#include "base/status.h"

/* MOST, MOST_K: rows and columns of results, and elements of a sum. MANY: the least number of
 * products that are worth a kernel of their own. */
enum { MOST = 32, MOST_K = 64, MANY = 64 };

typedef struct small_state {
    matmul_state_t m; /* dims, operands and the post chain */
    const tile_table_t *tile;
    int64_t products;
    int64_t batch_a[SINTER_MAX_NDIMS]; /* elements from matrix to matrix, by batch dim */
    int64_t batch_b[SINTER_MAX_NDIMS];
    bool a_in_place, b_in_place; /* the micro-kernel reads it where it lies, else from a copy */
    int store; /* the operand of the chain that gets results as they are; -1: the chain runs */
} small_state_t;

/* An operand, for one thread. */
typedef struct side {
    matrix_t m; /* at the batch index that was loaded last */
    const int64_t *batch;
    int rows, columns;
    float *copy; /* NULL: it is read where it lies */
} side_t;

typedef struct small_task {
    const small_state_t *st;
    side_t a, b;
    float *sums;
    void *chain;
} small_task_t;

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

static size_t buffers(const step_t *step, unsigned char *scratch, small_task_t *t)
{
    size_t at = 0;
    t->a.copy = carve(scratch, &at, (size_t)MOST * MOST_K, sizeof(float));
    t->b.copy = carve(scratch, &at, (size_t)MOST * MOST_K, sizeof(float));
    t->sums = carve(scratch, &at, (size_t)MOST * MOST, sizeof(float));
    t->chain = carve(scratch, &at, chain_scratch_bytes(step->post), 1);
    return at;
}

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    small_task_t t;
    (void)self, (void)arena;
    out->state_bytes = sizeof(small_state_t);
    out->share_bytes = buffers(p->step, NULL, &t);
    out->note = "64 products and more of at most 32 rows and columns and sums of 64";
    return sinter_success;
}

/* ---- choose ---------------------------------------------------------------------------------- */

/* Whether the micro-kernel can read the matrices of an operand where they lie. */
static bool bind_side(const matrices_t *x, int nb, int64_t *batch)
{
    const groups_t *codes = &x->base.codes;
    for (int d = 0; d < nb; d++) {
        const int own = d - (nb + 2 - x->ndims);
        batch[d] = own < 0 || x->dims[own] == 1 ? 0 : x->axis[own][IN_CODES].stride;
    }
    return (codes->column.stride == 1 || x->dims[x->ndims - 1] <= 1) && codes->block == 0 &&
           (uintptr_t)codes->data % 4 == 0;
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
    const matmul_params_t *params = &p->step->p.matmul;
    const bound_t *out = &p->frame->v[params->out_dims];
    small_state_t *st = state;
    matmul_state_t *m = &st->m;
    (void)config;
    *m = (matmul_state_t){.tail = {.rows = 1, .cols = 1}};
    SG_TRY(matrices_bind(&params->a, params->trans_a, p->frame, &m->a));
    SG_TRY(matrices_bind(&params->b, params->trans_b, p->frame, &m->b));
    SG_TRY(matmul_bind_dims(m, out));
    SG_TRY(chain_bind(p->step->post, p->frame, self->needs, &m->post));
    st->tile = tile_table(self->needs);
    st->a_in_place = bind_side(&m->a, m->nb, st->batch_a);
    st->b_in_place = bind_side(&m->b, m->nb, st->batch_b);
    st->products = 1;
    for (int d = 0; d < m->nb; d++) {
        if (!mul_i64(st->products, out->dims[d], &st->products)) {
            return sg_fail(sinter_invalid_shape, "matmul: batch dims overflow");
        }
    }
    st->store = plain_store(&m->post);
    choice->shares_bytes = chain_shares_bytes(&m->post);
    return sinter_success;
}

/* ---- work ------------------------------------------------------------------------------------ */

/* A matrix that the micro-kernel can read, and the floats from one of its rows to the next. */
static const float *matrix_of(const small_state_t *st, side_t *side, const int64_t *idx,
                              int64_t *ld)
{
    groups_t *codes = &side->m.codes;
    const int64_t first = walk_place(st->m.nb, idx, side->batch);
    if (side->copy == NULL) {
        *ld = codes->row.stride;
        return (const float *)(const void *)codes->data + first;
    }
    *ld = side->columns;
    if (codes->row.stride == 1 && codes->block == 0 && (uintptr_t)codes->data % 4 == 0) {
        st->tile->transpose((const float *)(const void *)codes->data + first, codes->column.stride,
                            side->columns, side->rows, side->copy, *ld);
        return side->copy;
    }
    codes->first = first;
    st->tile->load(&side->m, (rect_t){0, side->rows, 0, side->columns}, side->copy, *ld, side->rows,
                   side->columns);
    return side->copy;
}

/* idx: the batch index, with room for the row and the column. */
static void one_product(small_task_t *t, int64_t *idx)
{
    const small_state_t *st = t->st;
    const matmul_state_t *m = &st->m;
    gemm_t g = {.m = t->a.rows, .n = t->b.columns, .k = t->b.rows, .c = t->sums, .ldc = m->N};
    g.a = matrix_of(st, &t->a, idx, &g.lda);
    g.b = matrix_of(st, &t->b, idx, &g.ldb);
    if (st->store >= 0) {
        const chain_ref_t *to = &m->post.refs[st->store];
        g.c = (float *)(void *)to->data + walk_place(m->nb, idx, to->stride);
        g.ldc = to->stride[m->nb];
    }
    st->tile->gemm(&g);
    for (int r = 0; r < g.m && st->store < 0; r++) {
        idx[m->nb] = r;
        idx[m->nb + 1] = 0;
        chain_run(&m->post, idx, g.n, t->sums + r * m->N, t->chain);
    }
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const small_state_t *st = state;
    const matmul_state_t *m = &st->m;
    int64_t begin, end, idx[SINTER_MAX_NDIMS] = {0};
    (void)self, (void)config;
    small_task_t t = {.st = st,
                      .a = {m->a.base, st->batch_a, (int)m->M, (int)m->K, NULL},
                      .b = {m->b.base, st->batch_b, (int)m->K, (int)m->N, NULL}};
    buffers(p->step, w->scratch, &t);
    t.a.copy = st->a_in_place ? NULL : t.a.copy;
    t.b.copy = st->b_in_place ? NULL : t.b.copy;
    share(st->products, w->tid, w->nth, &begin, &end);
    if (begin >= end) {
        return;
    }
    walk_seek(m->nb, m->post.dims, begin, idx);
    for (int64_t i = begin; i < end; i++, walk_next(m->nb, m->post.dims, idx)) {
        one_product(&t, idx);
        count_products(w, m->M, m->N, m->K);
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
