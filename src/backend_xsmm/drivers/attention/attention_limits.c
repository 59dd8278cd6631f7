/* Which columns masks leave to query rows, and work divided by that: see attention.h. */
#include "backend_xsmm/drivers/attention/attention_task.h"

#include <math.h>

/* ---- limits ---------------------------------------------------------------------------------- */

static double scalar(const frame_t *frame, int value)
{
    const bound_t *b = &frame->v[value];
    double x;
    dtype_traits(b->dtype)->codec.load_f64(b->data, 0, 0, 1, &x);
    return x;
}

/* A term of a limit that has a value of its own for each index of some batch dims. False: its dims
 * are not of that kind. */
static bool bind_term(const bound_t *b, const attention_dims_t *d, int sign, attention_term_t *out)
{
    const int shift = d->nb + 2 - b->ndims;
    *out = (attention_term_t){.data = b->data, .sign = sign};
    for (int i = 0; i < b->ndims; i++) {
        const int at = i + shift;
        if (b->dims[i] == 1) {
            continue;
        }
        if (at < 0 || at >= d->nb || b->dims[i] != d->batch[at]) {
            return false;
        }
        out->stride[at] = b->strides[i];
    }
    return true;
}

static bool has_several(const bound_t *b)
{
    for (int i = 0; i < b->ndims; i++) {
        if (b->dims[i] != 1) {
            return true;
        }
    }
    return false;
}

bool limits_vary(const attention_params_t *p, const frame_t *frame)
{
    for (int i = 0; i < p->n_limits; i++) {
        for (int k = 0; k < p->limits[i].n_terms; k++) {
            if (has_several(&frame->v[p->limits[i].term[k]])) {
                return true;
            }
        }
    }
    return false;
}

/* Rows (1) or columns (0) of a value: its last dim but so many. */
static int64_t counted(const frame_t *frame, int value, int from_end)
{
    const bound_t *b = &frame->v[value];
    return b->dims[b->ndims - 1 - from_end];
}

/* A limit with the values of its scalars. False: it is none, because the index of its columns is 0
 * for all of them, or some term has other dims than it may have. */
static bool bind_limit(const column_limit_t *limit, const frame_t *frame, const attention_dims_t *d,
                       attention_limit_t *out)
{
    if (counted(frame, limit->column_of, 0) != d->T) {
        return false;
    }
    *out = (attention_limit_t){.lower = limit->lower,
                               .moves = limit->moves && counted(frame, limit->row_of, 1) == d->S,
                               .at = limit->shift};
    for (int k = 0; k < limit->n_terms; k++) {
        const bound_t *b = &frame->v[limit->term[k]];
        if (!has_several(b)) {
            out->at += limit->sign[k] * (int64_t)scalar(frame, limit->term[k]);
        } else if (!bind_term(b, d, limit->sign[k], &out->term[out->n_terms++])) {
            return false;
        }
    }
    return true;
}

bool limits_bind(const attention_params_t *p, const frame_t *frame, attention_state_t *st)
{
    const int64_t far = (int64_t)1 << 60; /* a row index added to it does not overflow */
    int i = 0;
    st->first_all = st->first_row = -far;
    st->end_all = st->end_row = far;
    st->n_limits = 0;
    st->lists = NULL;
    for (; i < p->n_limits && scalar(frame, p->limits[i].fill) == -INFINITY; i++) {
        attention_limit_t *limit = &st->limits[st->n_limits];
        if (p->limits[i].none) {
            continue;
        }
        if (!bind_limit(&p->limits[i], frame, &st->d, limit)) {
            break;
        }
        if (limit->n_terms > 0) {
            st->n_limits++;
            continue;
        }
        int64_t *first = limit->moves ? &st->first_row : &st->first_all,
                *end = limit->moves ? &st->end_row : &st->end_all;
        if (limit->lower) {
            *first = at_least(*first, limit->at);
        } else {
            *end = at_most(*end, limit->at + 1);
        }
    }
    return p->n_bare > 0 && i >= p->n_bare;
}

span_t limits_columns(const attention_state_t *st, const int64_t *idx)
{
    const int nb = st->d.nb;
    const int64_t row = idx[nb];
    int64_t begin = at_least(at_least(st->first_all, row + st->first_row), 0),
            end = at_most(at_most(st->end_all, row + st->end_row), st->d.T);
    for (int i = 0; i < st->n_limits; i++) {
        const attention_limit_t *limit = &st->limits[i];
        int64_t at = limit->at + (limit->moves ? row : 0);
        for (int k = 0; k < limit->n_terms; k++) {
            const attention_term_t *term = &limit->term[k];
            int64_t element = 0;
            int32_t x;
            for (int d = 0; d < nb; d++) {
                element += idx[d] * term->stride[d];
            }
            memcpy(&x, term->data + element * (int64_t)sizeof x, sizeof x);
            at += term->sign * (int64_t)x;
        }
        if (limit->lower) {
            begin = at_least(begin, at);
        } else {
            end = at_most(end, at + 1);
        }
    }
    return begin < end ? (span_t){begin, end} : (span_t){0, 0};
}

/* What a row of a batch of K and V sees: what limits leave, and from the first of its cells to the
 * last one, where lists of them are there. */
static span_t columns_of_row(const attention_state_t *st, int64_t kv, int64_t row)
{
    int64_t idx[SINTER_MAX_NDIMS];
    attention_index(&st->d, kv, row, idx);
    span_t span = limits_columns(st, idx);
    if (st->lists != NULL) {
        const int64_t number = cells_number(&st->cells, idx, st->d.nb + 2);
        const cell_list_t *list = cells_list(&st->cells, st->lists, number);
        span = (span_t){at_least(span.begin, list->begin), at_most(span.end, list->end)};
    }
    return span;
}

/* Columns from the first one that row `first` of a batch of K and V sees to the last one that row
 * `last` sees. */
static span_t columns_of(const attention_state_t *st, int64_t kv, int64_t first, int64_t last)
{
    const int64_t begin = columns_of_row(st, kv, first).begin;
    return (span_t){begin, at_least(columns_of_row(st, kv, last).end, begin)};
}

int64_t limits_tokens(const attention_state_t *st)
{
    int64_t n = 0;
    for (int64_t kv = 0; kv < st->d.n_kv && st->d.rows > 0; kv++) {
        const span_t columns = columns_of(st, kv, 0, st->d.rows - 1);
        n += columns.end - columns.begin;
    }
    return n;
}

/* ---- weights of items ------------------------------------------------------------------------ */

/* An item costs as much as this many columns in addition to its own. */
enum { ITEM_COLUMNS = 32 };

/* Batches of K and V in a row whose limits, and lists of cells, are the same, of one token where
 * tokens are batches. */
static int64_t same_limits(const attention_state_t *st)
{
    const attention_dims_t *d = &st->d;
    int64_t n = 1;
    for (int i = d->nb - 1; i >= 0 && i != d->row_dim; i--) {
        for (int k = 0; k < st->n_limits; k++) {
            for (int j = 0; j < st->limits[k].n_terms; j++) {
                if (st->limits[k].term[j].stride[i] != 0) {
                    return n;
                }
            }
        }
        if (st->lists != NULL && st->cells.list[i] != 0) {
            return n;
        }
        n *= d->grouped[i] ? 1 : d->batch[i];
    }
    return n;
}

/* The weight of an item: columns times rows, by the columns of its first and its last row. */
static void weigh_item(const attention_state_t *st, int64_t item, item_t *out)
{
    const attention_dims_t *d = &st->d;
    const int64_t block = item / d->n_chunks % d->n_blocks, kv = item / d->n_chunks / d->n_blocks,
                  row0 = block * d->block, rows = attention_rows(st, item);
    const span_t columns = columns_of(st, kv, row0, row0 + at_least(rows - 1, 0));
    out->weight = rows == 0 ? 0 : (columns.end - columns.begin + ITEM_COLUMNS) * rows;
    out->column = st->lists != NULL ? columns.begin : 0;
}

/* How many items from this one on have its weight. */
static int64_t equal_items(const attention_state_t *st, int64_t item)
{
    const attention_dims_t *d = &st->d;
    const int64_t run = d->n_chunks * (d->n_blocks > 1 ? 1 : st->same_limits);
    return run - item % run;
}

item_t division_first(const attention_state_t *st)
{
    item_t at = {.equal = equal_items(st, 0)};
    weigh_item(st, 0, &at);
    return at;
}

void division_skip(const attention_state_t *st, item_t *at, int64_t n)
{
    at->item += n;
    at->begin += n * at->weight;
    at->equal -= n;
    if (at->equal == 0 && at->item < st->d.items) {
        weigh_item(st, at->item, at);
        at->equal = equal_items(st, at->item);
    }
}

void division_bind(attention_state_t *st)
{
    st->same_limits = same_limits(st);
    item_t at = division_first(st);
    while (at.item < st->d.items) {
        division_skip(st, &at, at.equal);
    }
    st->weight = at.begin;
}
