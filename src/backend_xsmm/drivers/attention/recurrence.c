/* LinearAttention: a state for each head, which tokens read and change one after another.
 *
 * An item is a head, or some columns of its states, of all sequences. Chunks of tokens meet the
 * state in turn, while it stays in the caches (ukernels/linear_attention.h). A state whose columns
 * or whose elements of a key follow one another is read and written where it lies; others, and
 * those of which elements of a key follow one another where many tokens come, have a copy in
 * scratch memory, in which columns follow one another. */
#include "backend_xsmm/drivers/common/box.h"
#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "backend_xsmm/ukernels/linear_attention.h"
#include "backend_xsmm/ukernels/tile.h"
#include "base/status.h"

enum { GRAIN = 16 };        /* columns of an item are multiples of it */
enum { CHUNK_VECTORS = 5 }; /* of a token, which linear_chunk_t has */

typedef struct linear_state {
    const bound_t *q, *k, *v, *state, *decay, *beta, *bonus, *a, *b, *from, *to, *out, *next;
    int64_t batch, heads, tokens, keys, values;
    int64_t parts, columns; /* parts of a head, and columns of each */
    int64_t ld;             /* floats from one vector of a chunk to the next */
    bool interleaved, in_place;
    bool log_decay; /* the state is multiplied by exp(decay), not by decay itself */
    float scale;
    int way;
    box_t all; /* states that are copied, where those that are written are others */
    size_t share_bytes;
    const eltwise_table_t *fn;
    const linear_table_t *kernel;
    const tile_table_t *tile;
} linear_state_t;

/* Scratch of a share. */
typedef struct room {
    float *chunks;        /* the vectors of LINEAR_TOKENS tokens, CHUNK_VECTORS for each */
    float *decay;         /* [token][ld] */
    float *k, *q, *a, *b; /* the same, of tokens that are not read where they lie */
    float *bonus;
    float *v, *out;    /* [token][columns] */
    float *copy;       /* of columns of a state: [key][columns] */
    float *kept;       /* columns that were overwritten before they were read */
    bool *done;        /* by sequence */
    int64_t kept_slot; /* where they had been; -1: nowhere */
} room_t;

/* ---- ways ------------------------------------------------------------------------------------ */

enum { BY_COLUMNS, BY_KEYS, KEYS_COPIED, COPIED };

/* Floats at addresses of floats. */
static bool are_floats(const bound_t *t)
{
    return t->dtype == sinter_f32 && (uintptr_t)t->data % sizeof(float) == 0;
}

static bool lies_along(const linear_state_t *st, int dim)
{
    const bool both = st->state->strides[dim] == 1 && st->next->strides[dim] == 1;
    return both || st->state->dims[dim] == 1;
}

/* The order depends on dims and strides alone, as other orders round in other ways. */
static const char *refuse_state(int way, const void *config, void *state)
{
    const linear_state_t *st = state;
    const bool columns = lies_along(st, 2);
    (void)config;
    if (st->tokens == 0) {
        return "no tokens: states are copied";
    }
    if (way == BY_COLUMNS && !columns) {
        return "columns do not follow one another";
    }
    if (way != BY_COLUMNS && (columns || !lies_along(st, 3))) {
        return "elements of a key do not follow one another";
    }
    if (way != BY_COLUMNS && st->tokens > LINEAR_TOKENS) {
        return "many tokens are worth a copy in which columns follow one another";
    }
    return way == KEYS_COPIED || (are_floats(st->state) && are_floats(st->next))
               ? NULL
               : "states are not f32 at addresses of floats";
}

const way_row_t ways_recurrence_states[] = {{"columns in place", refuse_state, BY_COLUMNS},
                                            {"keys in place", refuse_state, BY_KEYS},
                                            {"a copy by keys", refuse_state, KEYS_COPIED},
                                            {"a copy by columns", NULL, COPIED}};

static bool is_by_keys(const linear_state_t *st)
{
    return st->way == BY_KEYS || st->way == KEYS_COPIED;
}

static bool is_copied(const linear_state_t *st)
{
    return st->way == COPIED || st->way == KEYS_COPIED;
}

/* ---- before the work ------------------------------------------------------------------------- */

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    (void)self, (void)p, (void)arena;
    out->state_bytes = sizeof(linear_state_t);
    out->note = p->plan->deterministic
                    ? "tokens one after another, in chunks of 4: other bits where a prompt is cut "
                      "otherwise"
                    : "tokens one after another, in chunks of 4";
    return sinter_success;
}

/* The parts of a share's scratch; base NULL: only counts. Addresses, which may change the way, do
 * not change the size. */
static size_t carve_room(const linear_state_t *st, unsigned char *base, room_t *room)
{
    const size_t ld = (size_t)st->ld, columns = (size_t)st->columns + GRAIN,
                 block = columns * (size_t)st->keys, kept = st->from != NULL ? block : 0;
    size_t at = 0;
    room->chunks = carve(base, &at, CHUNK_VECTORS * LINEAR_TOKENS * ld, sizeof(float));
    room->decay = carve(base, &at, LINEAR_TOKENS * ld, sizeof(float));
    room->k = carve(base, &at, LINEAR_TOKENS * ld, sizeof(float));
    room->q = carve(base, &at, LINEAR_TOKENS * ld, sizeof(float));
    room->a = carve(base, &at, st->a != NULL ? LINEAR_TOKENS * ld : 0, sizeof(float));
    room->b = carve(base, &at, st->b != NULL ? LINEAR_TOKENS * ld : 0, sizeof(float));
    room->bonus = carve(base, &at, st->bonus != NULL ? ld : 0, sizeof(float));
    room->v = carve(base, &at, LINEAR_TOKENS * columns, sizeof(float));
    room->out = carve(base, &at, LINEAR_TOKENS * columns, sizeof(float));
    room->copy = carve(base, &at, block, sizeof(float));
    room->kept = carve(base, &at, kept, sizeof(float));
    room->done = carve(base, &at, (size_t)st->batch, sizeof(bool));
    room->kept_slot = -1;
    return at;
}

static const bound_t *bound_of(const problem_t *p, int value)
{
    return value >= 0 ? &p->frame->v[value] : NULL;
}

/* Heads are divided where there are few of them. */
static void divide(linear_state_t *st, int shares)
{
    const int64_t items = st->heads > 0 ? st->heads : 1, most = (st->values + GRAIN - 1) / GRAIN;
    int64_t parts = 1;
    while (parts * items < 2 * shares && parts < most) {
        parts *= 2;
    }
    parts = shares > 1 ? at_most(parts, at_least(most, 1)) : 1;
    st->columns = parts > 1 ? (st->values / parts + GRAIN - 1) / GRAIN * GRAIN : st->values;
    st->parts = st->columns > 0 ? (st->values + st->columns - 1) / st->columns : 1;
}

/* Whether there may be states that are not written, in memory other than that which is read. */
static bool copies_states(const linear_state_t *st)
{
    return st->to != NULL && !st->in_place && st->all.n > 0;
}

static sinter_status_t choose(const kernel_t *self, const problem_t *problem, const void *config,
                              void *state, choice_t *choice)
{
    const linear_attention_params_t *p = &problem->step->p.linear;
    linear_state_t *st = state;
    room_t room;
    (void)config;
    if (problem->step->post->n_instrs > 0) {
        return sg_fail(sinter_unimplemented, "nothing can follow LinearAttention in its step");
    }
    *st = (linear_state_t){.q = bound_of(problem, p->q),
                           .k = bound_of(problem, p->k),
                           .v = bound_of(problem, p->v),
                           .state = bound_of(problem, p->state),
                           .decay = bound_of(problem, p->decay),
                           .beta = bound_of(problem, p->beta),
                           .bonus = bound_of(problem, p->bonus),
                           .a = bound_of(problem, p->a),
                           .b = bound_of(problem, p->b),
                           .from = bound_of(problem, p->from),
                           .to = bound_of(problem, p->to),
                           .out = bound_of(problem, p->out),
                           .next = bound_of(problem, p->next),
                           .interleaved = p->interleaved,
                           .log_decay = p->log_decay,
                           .scale = p->scale,
                           .fn = eltwise_table(self->needs),
                           .kernel = linear_table(self->needs),
                           .tile = tile_table(self->needs)};
    st->batch = st->v->dims[0];
    st->tokens = st->v->dims[1];
    st->heads = st->v->dims[2];
    st->values = st->v->dims[3];
    st->keys = st->q->dims[3];
    st->ld = st->keys <= LINEAR_KEYS ? LINEAR_LD : (st->keys + GRAIN) / GRAIN * GRAIN;
    st->in_place = st->next->data == st->state->data;
    for (int d = 0; d < 4; d++) {
        st->all.dims[d] = st->state->dims[d];
        st->all.from[d] = st->state->strides[d];
        st->all.to[d] = st->next->strides[d];
    }
    box_prepare(st->state->dtype, 4, &st->all);
    divide(st, problem->frame->shares);
    st->way = take_way(ways_recurrence_states, NULL, NULL, st, choice);
    st->share_bytes = carve_room(st, NULL, &room);
    choice->shared_bytes = (size_t)problem->frame->shares * st->share_bytes;
    choice->first = copies_states(st) ? 0 : 1;
    return sinter_success;
}

static int checked(const step_t *step, int i)
{
    return i == 0 ? step->p.linear.from : i == 1 ? step->p.linear.to : -1;
}

static int64_t slot_at(const bound_t *slots, int64_t b)
{
    return slots != NULL ? index_at(slots, b * slots->strides[0]) : b;
}

/* Slots are those of states that exist; -1 reads zeros, and writes nothing. No state is written
 * twice. */
static sinter_status_t check(const problem_t *p, const void *state)
{
    const linear_state_t *st = state;
    const int64_t n = st->state->dims[0];
    for (int i = 0; i < 2; i++) {
        const bound_t *slots = i == 0 ? st->from : st->to;
        for (int64_t b = 0; slots != NULL && b < st->batch; b++) {
            const int64_t slot = slot_at(slots, b);
            if (slot < -1 || slot >= n) {
                return sg_fail(
                    sinter_invalid_arguments,
                    "LinearAttention: tensor %llu: slot %lld of sequence %lld is "
                    "outside a dimension of %lld",
                    problem_id(p, i == 0 ? p->step->p.linear.from : p->step->p.linear.to),
                    (long long)slot, (long long)b, (long long)n);
            }
        }
    }
    for (int64_t b = 1; st->to != NULL && b < st->batch; b++) {
        for (int64_t before = 0; before < b; before++) {
            if (slot_at(st->to, b) >= 0 && slot_at(st->to, b) == slot_at(st->to, before)) {
                return sg_fail(sinter_invalid_arguments,
                               "LinearAttention: tensor %llu: sequences %lld and %lld both write "
                               "slot %lld",
                               problem_id(p, p->step->p.linear.to), (long long)before, (long long)b,
                               (long long)slot_at(st->to, b));
            }
        }
    }
    return sinter_success;
}

/* ---- the tokens of a chunk ------------------------------------------------------------------- */

/* What a share works on: columns of one head, of one sequence. */
typedef struct part {
    int64_t b, head, column;
    int columns;
} part_t;

/* n elements along the last dim of t: where they lie, or a copy of them. */
static const float *load_row(const linear_state_t *st, const bound_t *t, int64_t at, int n,
                             float *room)
{
    const int64_t step = t->strides[t->ndims - 1];
    if (are_floats(t) && (step == 1 || n == 1)) {
        return (const float *)(const void *)t->data + at;
    }
    eltwise_load(st->fn, t->dtype, t->data, at, step, n, room);
    return room;
}

static int64_t place_of(const bound_t *t, int64_t b, int64_t head, int64_t token)
{
    return b * t->strides[0] + token * t->strides[1] + head * t->strides[2];
}

/* The head of q or k that a head reads. */
static int64_t head_of(const linear_state_t *st, const bound_t *t, int64_t head)
{
    const int64_t heads = t->dims[2];
    return st->interleaved ? head / (st->heads / heads) : head % heads;
}

/* What multiplies the state, of n tokens, [token][ld]: 1 without decays, and behind the last
 * element. */
static void load_decays(const linear_state_t *st, const part_t *part, int64_t token, int n,
                        float *decay)
{
    const eltwise_fn_t exp_of = st->fn->op[op_slot(sinter_op_exp)];
    const bool each = st->decay != NULL && st->decay->dims[3] > 1;
    float one[LINEAR_TOKENS] = {1, 1, 1, 1};
    if (st->decay != NULL && !each) {
        eltwise_load(st->fn, st->decay->dtype, st->decay->data,
                     place_of(st->decay, part->b, part->head, token), st->decay->strides[1], n,
                     one);
        if (st->log_decay) {
            exp_of(one, one, NULL, NULL, n, NULL);
        }
    }
    for (int t = 0; t < n; t++) {
        float *row = decay + t * st->ld;
        if (each) {
            const float *from =
                load_row(st, st->decay, place_of(st->decay, part->b, part->head, token + t),
                         (int)st->keys, row);
            if (st->log_decay) {
                exp_of(row, from, NULL, NULL, (int)st->keys, NULL);
            } else if (from != row) {
                memcpy(row, from, (size_t)st->keys * sizeof *row);
            }
        }
        for (int64_t i = each ? st->keys : 0; i < st->ld; i++) {
            row[i] = each ? 1 : one[t];
        }
    }
}

/* The vectors of n tokens of t, which is q, k, a or b. */
static void load_vectors(const linear_state_t *st, const part_t *part, const bound_t *t,
                         int64_t token, int n, float *room, const float **to)
{
    const int64_t head = head_of(st, t, part->head);
    for (int i = 0; i < n; i++) {
        to[i] = load_row(st, t, place_of(t, part->b, head, token + i), (int)st->keys,
                         room + i * st->ld);
    }
}

/* Fills the chunk of n tokens from `token` on. */
static void prepare(const linear_state_t *st, const part_t *part, int64_t token, int n,
                    const room_t *room, linear_chunk_t *c)
{
    linear_tokens_t in = {.decay = room->decay, .scale = st->scale};
    c->tokens = n;
    c->keys = (int)st->keys;
    c->kind = st->beta != NULL    ? LINEAR_DELTA
              : st->bonus != NULL ? LINEAR_BONUS
              : st->b != NULL     ? LINEAR_LOW_RANK
                                  : LINEAR_PLAIN;
    c->ld = st->ld;
    load_vectors(st, part, st->k, token, n, room->k, in.k);
    load_vectors(st, part, st->q, token, n, room->q, in.q);
    if (c->kind == LINEAR_LOW_RANK) {
        load_vectors(st, part, st->a, token, n, room->a, in.a);
        load_vectors(st, part, st->b, token, n, room->b, in.b);
    }
    if (c->kind == LINEAR_BONUS) {
        in.bonus =
            load_row(st, st->bonus, part->head * st->bonus->strides[0], c->keys, room->bonus);
    }
    if (c->kind == LINEAR_DELTA) {
        eltwise_load(st->fn, st->beta->dtype, st->beta->data,
                     place_of(st->beta, part->b, part->head, token), st->beta->strides[1], n,
                     c->beta);
    }
    load_decays(st, part, token, n, room->decay);
    st->kernel->prepare(c, &in);
}

/* Memory for the vectors of a chunk; *at moves behind it. */
static void place_chunk(const linear_state_t *st, int tokens, float **at, linear_chunk_t *c)
{
    c->decayed_keys = *at;
    c->decayed_queries = *at + tokens * st->ld;
    c->last_keys = *at + 2 * tokens * st->ld;
    c->last_b = *at + 3 * tokens * st->ld;
    c->last_decay = *at + 4 * tokens * st->ld;
    *at += CHUNK_VECTORS * tokens * st->ld;
}

/* The values of n tokens, and where their results go. */
static void take_values(const linear_state_t *st, const part_t *part, int64_t token, int n,
                        const room_t *room, linear_block_t *block)
{
    const int64_t at = place_of(st->v, part->b, part->head, token) +
                       part->column * st->v->strides[3],
                  to = place_of(st->out, part->b, part->head, token) +
                       part->column * st->out->strides[3];
    const bool there = are_floats(st->out) && st->out->strides[3] == 1;
    block->columns = part->columns;
    block->v = load_row(st, st->v, at, part->columns, room->v);
    block->v_ld = block->v == room->v ? st->columns : st->v->strides[1];
    for (int t = 1; t < n && block->v == room->v; t++) {
        load_row(st, st->v, at + t * st->v->strides[1], part->columns, room->v + t * st->columns);
    }
    block->out = there ? (float *)(void *)st->out->data + to : room->out;
    block->out_ld = there ? st->out->strides[1] : st->columns;
}

static void put_results(const linear_state_t *st, const part_t *part, int64_t token, int n,
                        const room_t *room, const linear_block_t *block)
{
    const int64_t to =
        place_of(st->out, part->b, part->head, token) + part->column * st->out->strides[3];
    for (int t = 0; t < n && block->out == room->out; t++) {
        eltwise_store(st->fn, st->out->dtype, st->out->data, to + t * st->out->strides[1],
                      st->out->strides[3], part->columns, room->out + t * st->columns);
    }
}

/* ---- a state --------------------------------------------------------------------------------- */

/* Where columns of a state begin, in elements. */
static int64_t state_place(const bound_t *t, int64_t slot, const part_t *part)
{
    return slot * t->strides[0] + part->head * t->strides[1] + part->column * t->strides[2];
}

/* The distance of what does not follow one another. */
static int64_t state_ld(const linear_state_t *st, const bound_t *t)
{
    return t->strides[is_by_keys(st) ? 2 : 3];
}

/* Columns of a state as floats of a copy: [key][columns], or [column][keys] BY_KEYS. */
static void load_state(const linear_state_t *st, const part_t *part, int64_t slot, float *copy)
{
    const bound_t *t = st->state;
    const int64_t at = state_place(t, slot, part);
    const int keys = (int)st->keys;
    if (!is_by_keys(st) && are_floats(t) && t->strides[3] == 1) {
        st->tile->transpose((const float *)(const void *)t->data + at, t->strides[2], part->columns,
                            keys, copy, st->columns);
        return;
    }
    for (int i = 0; !is_by_keys(st) && i < keys; i++) {
        eltwise_load(st->fn, t->dtype, t->data, at + i * t->strides[3], t->strides[2],
                     part->columns, copy + i * st->columns);
    }
    for (int j = 0; is_by_keys(st) && j < part->columns; j++) {
        eltwise_load(st->fn, t->dtype, t->data, at + j * t->strides[2], 1, keys, copy + j * keys);
    }
}

static void store_state(const linear_state_t *st, const part_t *part, int64_t slot,
                        const float *copy)
{
    const bound_t *t = st->next;
    const int64_t at = state_place(t, slot, part);
    const int keys = (int)st->keys;
    if (!is_by_keys(st) && are_floats(t) && t->strides[3] == 1) {
        st->tile->transpose(copy, st->columns, keys, part->columns, (float *)(void *)t->data + at,
                            t->strides[2]);
        return;
    }
    for (int i = 0; !is_by_keys(st) && i < keys; i++) {
        eltwise_store(st->fn, t->dtype, t->data, at + i * t->strides[3], t->strides[2],
                      part->columns, copy + i * st->columns);
    }
    for (int j = 0; is_by_keys(st) && j < part->columns; j++) {
        eltwise_store(st->fn, t->dtype, t->data, at + j * t->strides[2], 1, keys, copy + j * keys);
    }
}

/* The tokens of a sequence by chunks, over columns in lanes. */
static void run_columns(const linear_state_t *st, const part_t *part, const room_t *room,
                        linear_block_t *block)
{
    linear_chunk_t c;
    float *at = room->chunks;
    place_chunk(st, LINEAR_TOKENS, &at, &c);
    for (int64_t token = 0; token < st->tokens; token += LINEAR_TOKENS) {
        const int n = (int)at_most(st->tokens - token, LINEAR_TOKENS);
        prepare(st, part, token, n, room, &c);
        take_values(st, part, token, n, room, block);
        st->kernel->columns(&c, block);
        put_results(st, part, token, n, room, block);
        block->from = block->to;
        block->from_ld = block->to_ld;
    }
}

/* A few tokens, one after another, over a few columns at a time. */
static void run_keys(const linear_state_t *st, const part_t *part, const room_t *room,
                     linear_block_t *block)
{
    enum { COLUMNS = 16 };
    linear_chunk_t c[LINEAR_TOKENS];
    const int n = (int)st->tokens;
    float *at = room->chunks;
    for (int t = 0; t < n; t++) {
        place_chunk(st, 1, &at, &c[t]);
        prepare(st, part, t, 1, room, &c[t]);
    }
    take_values(st, part, 0, n, room, block);
    for (int j = 0; j < part->columns; j += COLUMNS) {
        linear_block_t some = *block;
        some.columns = (int)at_most(part->columns - j, COLUMNS);
        some.from += j * block->from_ld;
        some.to += j * block->to_ld;
        for (int t = 0; t < n; t++) {
            some.v = block->v + t * block->v_ld + j;
            some.out = block->out + t * block->out_ld + j;
            st->kernel->rows(&c[t], &some);
            some.from = some.to;
            some.from_ld = some.to_ld;
        }
    }
    put_results(st, part, 0, n, room, block);
}

/* Columns of the state of one sequence. Slot -1: the state is zero before, or lost behind. */
static void run(const linear_state_t *st, const part_t *part, const room_t *room, int64_t from,
                int64_t to)
{
    linear_block_t block = {.columns = part->columns};
    const int64_t dense = is_by_keys(st) ? st->keys : st->columns;
    float *copy = room->copy;
    if (from >= 0 && from == room->kept_slot) {
        block.from = room->kept;
        block.from_ld = dense;
    } else if (from >= 0 && !is_copied(st)) {
        block.from =
            (const float *)(const void *)st->state->data + state_place(st->state, from, part);
        block.from_ld = state_ld(st, st->state);
    } else {
        block.from = copy;
        block.from_ld = dense;
        if (from >= 0) {
            load_state(st, part, from, copy);
        } else {
            memset(copy, 0,
                   (size_t)(is_by_keys(st) ? part->columns : st->keys) * (size_t)dense *
                       sizeof(float));
        }
    }
    if (to >= 0 && !is_copied(st)) {
        block.to = (float *)(void *)st->next->data + state_place(st->next, to, part);
        block.to_ld = state_ld(st, st->next);
    } else {
        block.to = copy;
        block.to_ld = dense;
    }
    if (is_by_keys(st)) {
        run_keys(st, part, room, &block);
    } else {
        run_columns(st, part, room, &block);
    }
    if (to >= 0 && is_copied(st)) {
        if (st->tokens == 0 && block.from == room->kept) {
            memcpy(copy, room->kept, (size_t)(st->keys * dense) * sizeof(float));
        }
        store_state(st, part, to, copy);
    }
}

/* ---- the work -------------------------------------------------------------------------------- */

/* Another sequence that has not run yet reads slot `to` of the memory that is written. */
static bool is_awaited(const linear_state_t *st, const room_t *room, int64_t b, int64_t to)
{
    for (int64_t other = 0; other < st->batch; other++) {
        if (other != b && !room->done[other] && slot_at(st->from, other) == to) {
            return true;
        }
    }
    return false;
}

/* All sequences in an order in which no state is written before it is read. Where each waits for
 * another, what the first one overwrites is kept. */
static void run_in_order(const linear_state_t *st, part_t *part, room_t *room)
{
    memset(room->done, 0, (size_t)st->batch);
    for (int64_t left = st->batch; left > 0; left--) {
        int64_t first = -1, free = -1;
        for (int64_t b = 0; b < st->batch && free < 0; b++) {
            const int64_t to = slot_at(st->to, b);
            if (!room->done[b]) {
                first = first < 0 ? b : first;
                free = to < 0 || to == room->kept_slot || !is_awaited(st, room, b, to) ? b : -1;
            }
        }
        if (free < 0) {
            free = first;
            room->kept_slot = slot_at(st->to, first);
            load_state(st, part, room->kept_slot, room->kept);
        }
        part->b = free;
        room->done[free] = true;
        run(st, part, room, slot_at(st->from, free), slot_at(st->to, free));
    }
    room->kept_slot = -1;
}

/* States that are not written, where the memory is not that of those which are read. */
static void copy_states(const linear_state_t *st, int tid, int nth)
{
    box_t part = st->all;
    int64_t begin, end;
    if (!copies_states(st)) {
        return;
    }
    share(part.ndims > 0 ? part.dims[0] : 1, tid, nth, &begin, &end);
    if (begin < end) {
        const int64_t from = part.ndims > 0 ? begin * part.from[0] : 0,
                      to = part.ndims > 0 ? begin * part.to[0] : 0;
        if (part.ndims > 0) {
            part.dims[0] = end - begin;
        }
        box_move(&part, st->state->data, from, st->next->data, to);
    }
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const linear_state_t *st = state;
    room_t room;
    int64_t begin, end;
    (void)self, (void)p, (void)config;
    if (w->phase == 0) {
        copy_states(st, w->tid, w->nth);
        return;
    }
    carve_room(st, (unsigned char *)w->shared + (size_t)w->tid * st->share_bytes, &room);
    share(st->heads * st->parts, w->tid, w->nth, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        part_t part = {.head = item / st->parts, .column = item % st->parts * st->columns};
        part.columns = (int)at_most(st->values - part.column, st->columns);
        if (st->in_place && st->from != NULL) {
            run_in_order(st, &part, &room);
            continue;
        }
        for (part.b = 0; part.b < st->batch; part.b++) {
            run(st, &part, &room, slot_at(st->from, part.b), slot_at(st->to, part.b));
        }
    }
}

const driver_t driver_recurrence_heads = {.step = STEP_RECURRENCE,
                                          .arithmetic = IN_F32,
                                          .phases = 2,
                                          .setup = setup,
                                          .choose = choose,
                                          .check = check,
                                          .checked = checked,
                                          .work = work};
