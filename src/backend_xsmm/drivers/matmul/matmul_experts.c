/* Matmul with experts: each row of A meets one of several matrices B, which an index names. Rows
 * are sorted by expert. The weights of an expert are read once, however many rows it has; those of
 * an expert without rows are not read. */
#include "backend_xsmm/drivers/common/box.h"
#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/drivers/matmul/matmul.h"
#include "base/status.h"

/* Strides of the indices by the dims of rows: 0 along dims that the indices lack or broadcast. */
static void strides_of_rows(const matmul_state_t *st, int64_t *strides)
{
    const bound_t *ids = st->experts.ids;
    for (int k = 0; k < st->n_row; k++) {
        const int d = st->row_dim[k] - (st->nb - ids->ndims);
        strides[k] = d < 0 || d >= ids->ndims || ids->dims[d] == 1 ? 0 : ids->strides[d];
    }
}

/* The expert that an index names, which may count from the end; -1: it names none. */
static int64_t expert_at(const experts_t *e, int64_t place)
{
    const int64_t i = index_at(e->ids, place), from_0 = i < 0 ? i + e->n : i;
    return from_0 < 0 || from_0 >= e->n ? -1 : from_0;
}

int matmul_checked(const step_t *step, int i)
{
    return i == 0 ? step->p.matmul.experts : -1;
}

sinter_status_t matmul_check(const problem_t *p, const void *state)
{
    const matmul_state_t *st = state;
    const bound_t *ids = st->experts.ids;
    int64_t at[SINTER_MAX_NDIMS] = {0}, n = 1;
    for (int d = 0; ids != NULL && d < ids->ndims; d++) {
        n *= ids->dims[d];
    }
    for (int64_t i = 0; ids != NULL && i < n; i++, walk_next(ids->ndims, ids->dims, at)) {
        const int64_t place = walk_place(ids->ndims, at, ids->strides);
        if (expert_at(&st->experts, place) < 0) {
            return sg_fail(sinter_invalid_arguments,
                           "MatMul: tensor %llu: index %lld at position %lld names none of %lld "
                           "experts",
                           problem_id(p, p->step->p.matmul.experts),
                           (long long)index_at(ids, place), (long long)i, (long long)st->experts.n);
        }
    }
    return sinter_success;
}

void experts_bind(const problem_t *p, matmul_state_t *st)
{
    const int ids = p->step->p.matmul.experts;
    st->experts =
        (experts_t){.ids = ids < 0 ? NULL : &p->frame->v[ids], .n = ids < 0 ? 0 : st->b.dims[0]};
}

/* Once the dims of rows are known. */
static void count_rows_of_a(matmul_state_t *st)
{
    experts_t *e = &st->experts;
    e->rows_of_a = 1;
    for (int k = st->n_row - 1; k >= 0; k--) {
        const int d = st->row_dim[k] - (st->nb - (st->a.ndims - 2));
        const int64_t n = d < 0 || d > st->a.ndims - 2 ? 1 : st->a.dims[d];
        e->step[k] = n > 1 ? e->rows_of_a : 0;
        e->rows_of_a *= n; /* no more than all rows */
    }
}

int64_t experts_row_of_a(const matmul_state_t *st, int64_t r)
{
    int64_t at[SINTER_MAX_NDIMS];
    walk_seek(st->n_row, st->row_extent, r, at);
    return walk_place(st->n_row, at, st->experts.step);
}

static size_t carve_rows(const matmul_state_t *st, unsigned char *base, expert_rows_t *out)
{
    size_t at = 0;
    out->first = carve(base, &at, (size_t)st->experts.n + 1, sizeof(int64_t));
    out->block = carve(base, &at, (size_t)st->experts.n + 1, sizeof(int64_t));
    out->order = carve(base, &at, (size_t)st->rows, sizeof(int64_t));
    return at;
}

void experts_reserve(matmul_state_t *st, choice_t *choice)
{
    expert_rows_t rows;
    if (st->experts.ids != NULL) {
        count_rows_of_a(st);
        st->experts.at = scratch_round(choice->shared_bytes);
        choice->shared_bytes = st->experts.at + carve_rows(st, NULL, &rows);
    }
}

void experts_share(const matmul_state_t *first, matmul_state_t *st)
{
    count_rows_of_a(st);
    st->experts.at = first->experts.at;
}

expert_rows_t experts_rows(const matmul_state_t *st, const worker_t *w)
{
    expert_rows_t rows;
    carve_rows(st, (unsigned char *)w->shared + st->experts.at, &rows);
    return rows;
}

/* A counting sort; rows of an expert keep their order. */
void experts_sort(const matmul_state_t *st, const worker_t *w, int64_t row0, int64_t end)
{
    const int64_t n = st->experts.n;
    const expert_rows_t rows = experts_rows(st, w);
    int64_t begin[SINTER_MAX_NDIMS] = {0}, at[SINTER_MAX_NDIMS], strides[SINTER_MAX_NDIMS], sum = 0;
    if (row0 < end) { /* else dims may be 0 */
        walk_seek(st->n_row, st->row_extent, row0, begin);
    }
    strides_of_rows(st, strides);
    memset(rows.first, 0, (size_t)(n + 1) * sizeof *rows.first);
    memcpy(at, begin, sizeof at);
    for (int64_t r = row0; r < end; r++, walk_next(st->n_row, st->row_extent, at)) {
        rows.first[expert_at(&st->experts, walk_place(st->n_row, at, strides))]++;
    }
    rows.block[0] = 0;
    for (int64_t e = 0; e <= n; e++) {
        const int64_t own = e < n ? rows.first[e] : 0;
        rows.first[e] = sum;
        sum += own;
        if (e < n) {
            rows.block[e + 1] = rows.block[e] + (own + st->block - 1) / st->block;
        }
    }
    memcpy(at, begin, sizeof at);
    for (int64_t r = row0; r < end; r++, walk_next(st->n_row, st->row_extent, at)) {
        const int64_t e = expert_at(&st->experts, walk_place(st->n_row, at, strides));
        rows.order[rows.first[e]++] = r;
    }
    for (int64_t e = n; e > 0; e--) { /* each has become that of the next one */
        rows.first[e] = rows.first[e - 1];
    }
    rows.first[0] = 0;
}

experts_walk_t experts_begin(const matmul_state_t *st, const worker_t *w, int64_t units)
{
    return (experts_walk_t){.rows = experts_rows(st, w),
                            .experts = st->experts.n,
                            .units = units,
                            .next = st->experts.n};
}

static int64_t rows_of_expert(const experts_walk_t *walk, int64_t e)
{
    return walk->rows.first[e + 1] - walk->rows.first[e];
}

/* Goes to the experts that have the next larger number of rows. False: there are none. */
static bool next_rows(experts_walk_t *walk, const worker_t *w)
{
    int64_t rows = INT64_MAX, experts = 0;
    for (int64_t e = 0; e < walk->experts; e++) {
        const int64_t n = rows_of_expert(walk, e);
        if (n > walk->of_rows && n <= rows) {
            experts = n < rows ? 1 : experts + 1;
            rows = n;
        }
    }
    const int64_t units = experts * walk->units, each = units / w->nth, left = units % w->nth,
                  place = (w->tid - walk->more + w->nth) % w->nth;
    walk->of_rows = rows;
    walk->begin = place * each + at_most(place, left);
    walk->end = walk->begin + each + (place < left ? 1 : 0);
    walk->more = (walk->more + left) % w->nth;
    walk->before = walk->next = 0;
    return experts > 0;
}

bool experts_next(experts_walk_t *walk, const worker_t *w)
{
    do {
        for (; walk->next < walk->experts && walk->before < walk->end; walk->next++) {
            if (rows_of_expert(walk, walk->next) != walk->of_rows) {
                continue;
            }
            walk->expert = walk->next;
            walk->from = at_least(walk->begin - walk->before, 0);
            walk->to = at_most(walk->end - walk->before, walk->units);
            walk->before += walk->units;
            if (walk->from < walk->to) {
                walk->next++;
                return true;
            }
        }
    } while (next_rows(walk, w));
    return false;
}

void experts_seek_rows(matmul_task_t *t, int64_t expert, int64_t row0, int64_t end)
{
    t->mat = expert;
    t->order = experts_rows(t->st, t->worker).order;
    t->row0 = row0;
    t->rows = (int)at_most(end - row0, t->st->block);
    t->b = matrix_at(&t->st->b, &expert, 1);
    matmul_seek_tiles(t);
}

void experts_seek(matmul_task_t *t, int64_t i)
{
    const matmul_state_t *st = t->st;
    const expert_rows_t rows = experts_rows(st, t->worker);
    const int64_t block = i / st->n_panels;
    int64_t e = 0, end = st->experts.n; /* the last expert that begins at or before the block */
    while (end - e > 1) {
        const int64_t middle = e + (end - e) / 2;
        *(rows.block[middle] <= block ? &e : &end) = middle;
    }
    experts_seek_rows(t, e, rows.first[e] + (block - rows.block[e]) * st->block, rows.first[e + 1]);
    t->n0 = i % st->n_panels * st->panel;
    t->cols = (int)at_most(st->N - t->n0, st->panel);
}
