/* K and V in pages: where tokens lie, and whether tables name blocks that exist. */
#include "backend_xsmm/drivers/attention/attention_task.h"
#include "backend_xsmm/drivers/common/box.h"
#include "base/status.h"

/* ---- checks ---------------------------------------------------------------------------------- */

/* The table, and what limits are made of. */
int attention_checked(const step_t *step, int i)
{
    const attention_params_t *p = &step->p.attention;
    if (p->table < 0) {
        return -1;
    }
    for (int k = 0; k < p->n_limits; k++) {
        const column_limit_t *limit = &p->limits[k];
        if (i <= limit->n_terms) {
            return i == 0 ? limit->fill : limit->term[i - 1];
        }
        i -= limit->n_terms + 1;
    }
    return i == 0 ? p->table : i == 1 ? p->rows : -1;
}

/* Checks the entries of a table that lead to some columns of a batch. */
static sinter_status_t check_entries(const problem_t *problem, const pages_t *pages, int64_t table,
                                     span_t columns)
{
    for (int64_t i = columns.begin / pages->page; i * pages->page < columns.end; i++) {
        const int64_t at = table + i * pages->step, block = pages_block(pages, at);
        if (block < 0 || block >= pages->blocks) {
            return sg_fail(sinter_invalid_arguments,
                           "attention: tensor %llu: index %lld for block %lld of a sequence names "
                           "none of %lld blocks",
                           problem_id(problem, pages->id_value),
                           (long long)load_index(pages->table, at, pages->wide), (long long)i,
                           (long long)pages->blocks);
        }
    }
    return sinter_success;
}

bool attention_has_runs(const attention_state_t *st)
{
    const pages_t *p = &st->k.pages;
    const int64_t n = st->d.batch[st->d.row_dim];
    bool rises = true;
    for (int64_t i = 1; i < n; i++) {
        rises = rises && pages_sequence(p, i - 1) <= pages_sequence(p, i);
    }
    return rises;
}

/* Checks the sequences that tokens name. */
static sinter_status_t check_sequences(const problem_t *problem, const attention_state_t *st)
{
    const pages_t *p = &st->k.pages;
    const int64_t n = !p->named ? 0 : p->by < 0 ? 1 : st->k.dims[p->by];
    for (int64_t i = 0; i < n; i++) {
        const int64_t sequence = pages_sequence(p, i);
        if (sequence < 0 || sequence >= p->sequences) {
            return sg_fail(sinter_invalid_arguments,
                           "attention: tensor %llu: index %lld at position %lld names none of %lld "
                           "sequences",
                           problem_id(problem, p->rows_value),
                           (long long)load_index(p->rows, i * p->name_stride, p->rows_wide),
                           (long long)i, (long long)p->sequences);
        }
    }
    return sinter_success;
}

/* Checks all entries of tables that the work will read: those of columns between the first and the
 * last one that some row sees. */
sinter_status_t attention_check(const problem_t *problem, const void *state)
{
    const attention_params_t *p = &problem->step->p.attention;
    const attention_state_t *st = state;
    const pages_t *pages = &st->k.pages;
    int64_t idx[SINTER_MAX_NDIMS], last = -1;
    span_t seen = {0, 0}; /* of the table row `last`: checked before */
    if (pages->page == 0 || st->d.items == 0) {
        return sinter_success;
    }
    attention_state_t limits = *st; /* with what `start` will read */
    SG_TRY(check_sequences(problem, st));
    limits_bind(p, problem->frame, &limits);
    for (int64_t kv = 0; kv < st->d.n_kv && st->d.rows > 0; kv++) {
        span_t all = {st->d.T, 0};
        for (int64_t row = 0; row < st->d.rows; row++) {
            attention_index(&st->d, kv, row, idx);
            const span_t sees =
                p->prob != NULL ? (span_t){0, st->d.T} : limits_columns(&limits, idx);
            if (sees.begin < sees.end) {
                all.begin = at_most(all.begin, sees.begin);
                all.end = at_least(all.end, sees.end);
            }
        }
        const int64_t table = pages_row(&st->k, idx, st->d.nb);
        if (table != last || all.begin < seen.begin || all.begin > seen.end) {
            seen = (span_t){all.begin, all.begin};
        }
        SG_TRY(check_entries(problem, pages, table, (span_t){seen.end, all.end}));
        SG_TRY(check_entries(problem, &st->v.pages, table, (span_t){seen.end, all.end}));
        seen.end = at_least(seen.end, all.end);
        last = table;
    }
    return sinter_success;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

int64_t attention_places(task_t *t, const pages_t *p, int n)
{
    const int32_t *cell = t->b.cell;
    int32_t *place = t->b.place;
    int64_t entry = -1, end = 0, base = 0; /* of the table; the columns of its block end at `end` */
    for (int i = 0; i < n; i++) {
        const int64_t column = at_least(cell[i], t->first);
        if (column >= end) {
            entry = column == end ? entry + 1 : column / p->page;
            end = (entry + 1) * p->page;
            base = pages_block(p, t->pages + entry * p->step) * p->cells - entry * p->page;
        }
        place[i] = (int32_t)(base + column);
    }
    const int64_t step = n > 1 ? place[1] - place[0] : 1;
    for (int i = 2; i < n; i++) {
        if (place[i] - place[i - 1] != step) {
            return 0;
        }
    }
    return at_least(step, 0);
}

/* Whether the codes of a tile can be read where they lie: pages are whole blocks of both decoders,
 * counted from the first column that rows see of the tile. Then bits are those of tokens that
 * follow one another. */
static bool reads_in_place(const task_t *t, int64_t t0)
{
    const attention_state_t *st = t->st;
    if (!is_decoded(&st->k_side) || !is_decoded(&st->v_side) || attention_by_groups(t)) {
        return false;
    }
    const int64_t page = st->k.pages.page,
                  first = at_least(attention_columns(t, 0, t->rows).begin, t0);
    const groups_t *const codes[] = {&t->k_pages.codes, &t->v_pages.codes};
    const decode_side_t *const sides[] = {&st->k_side, &st->v_side};
    const int64_t heads[] = {st->d.D, st->d.Dv};
    bool whole = true;
    for (int i = 0; i < 2; i++) {
        const int block = decode_block(sides[i]);
        const int64_t stride = i == 0 ? codes[i]->column.stride : codes[i]->row.stride;
        whole = whole && page % block == 0 && first % block == 0 &&
                (sides[i]->like.tokens == 1 || stride == heads[i]);
    }
    return whole;
}

/* Tokens t0.. of K or V, whose rows are tokens, which t->b.place has: where they lie, if each one
 * follows the one before as decoders want it, or copied. Of pages that are read in place only
 * scales and zero points are copied. */
static matrix_t take_pages(const task_t *t, const decode_side_t *side, const matrix_t *m,
                           int64_t head, int64_t t0, int n, int64_t step, unsigned char *buffer)
{
    if (t->in_pages) {
        const matrix_t of = cells_with_coefs(m, head, t->b.place, n, buffer);
        return cells_spaced_coefs(&of, (int32_t)-t0, 1);
    }
    const bool in_place =
        step == 1 && (!is_decoded(side) || side->like.tokens == 1 || m->codes.row.stride == head);
    const matrix_t of = in_place ? cells_spaced(m, t->b.place[0], 1)
                                 : cells_gathered(m, head, t->b.place, n, buffer);
    return cells_spaced(&of, (int32_t)-t0, 1);
}

void attention_load_pages(task_t *t, int64_t t0, int n, bool with_v)
{
    const attention_state_t *st = t->st;
    /* One token more, which is prefetched. */
    const int more = t0 + n < t->until ? 1 : 0;
    for (int i = 0; i < n + more; i++) {
        t->b.cell[i] = (int32_t)t0 + i;
    }
    const bool alike =
        st->k.pages.cells == st->v.pages.cells && st->k.pages.blocks == st->v.pages.blocks;
    int64_t step = attention_places(t, &st->k.pages, n + more);
    t->after = t->b.place[n + more - 1];
    t->place0 = t0;
    t->in_pages = step != 1 && alike && reads_in_place(t, t0);
    const matrix_t keys = matrix_transposed(&t->k_pages),
                   of = take_pages(t, &st->k_side, &keys, st->d.D, t0, n, step, t->b.cells[0]);
    t->k = matrix_transposed(&of);
    if (with_v) {
        step = alike ? step : attention_places(t, &st->v.pages, n);
        t->v = take_pages(t, &st->v_side, &t->v_pages, st->d.Dv, t0, n, step, t->b.cells[1]);
    }
}
