/* The MLP of experts as one step:
 *
 *   out[token] = sum over its experts e of weigh(down_e mid(gate_e x[token], up_e x[token]))
 *
 *   phase 0   rows, one for each expert of a token, are sorted by expert; rows of x become integers
 *   phase 1   gate and up: a share has a range of columns of some experts, all of whose rows it
 *             multiplies with both products side by side. What `mid` makes of them becomes a row
 *             of shared memory, and integers.
 *   phase 2   down: a share has a range of columns of all experts, and adds up the results of each
 *             token, so that no result of a single expert leaves a share
 *
 * Many tokens go through these phases in rounds, so that what `mid` makes takes bounded memory. In
 * a round an expert's weights are read once, and not at all if it has no rows. Shares of phase 1
 * are equal in what they read and in what they multiply, however rows are spread (experts_walk_t);
 * those of phase 2 are equal by themselves. Products take blocks of rows: of tiles as
 * matmul_tiles.c does, else by panels. */
#include <string.h>

#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/drivers/matmul/matmul_tiles.h"
#include "base/status.h"
#include "numeric/tiles.h"

enum {
    MOST_PRODUCTS = MLP_UPPER + 1,
    PANEL_ROWS = 128,        /* most rows of a block that is multiplied by panels */
    MOST_SUMS = 128 * 1024,  /* sums of a share in phase 2 */
    MOST_BLOCKS = 8,         /* of rows that a share has loaded at a time, */
    MOST_LOADED = 384 << 10, /* and the bytes of all but the first one */
    MOST_MID = 48 << 20      /* bytes of what `mid` makes in a round, as floats */
};

typedef struct experts_config {
    bool tiles; /* products read tiles with their codes; else panels are loaded */
    tiles_config_t product[MOST_PRODUCTS];
} experts_config_t;

typedef struct experts_state {
    matmul_state_t product[MOST_PRODUCTS];
    int n_upper;
    int64_t inner;                  /* columns of what `mid` makes */
    chain_bound_t mid, weigh, post; /* chain NULL: there is none */
    int64_t tokens, columns;        /* of the sums */
    int64_t each, chunk;            /* experts of a token; tokens of a round */
    int64_t sums;                   /* columns whose sums a share has at a time */
    size_t mid_at, sums_at;         /* in shared memory: what `mid` makes, and each share's sums */
    size_t sums_bytes;
    int blocks[2];          /* of rows that a share has loaded in phases 1 and 2, */
    size_t loaded_bytes[2]; /* and the bytes of one */
} experts_state_t;

/* What a share computes in. */
typedef struct experts_buffers {
    unsigned char *matmul; /* the buffers of a product */
    float *acc[MLP_UPPER]; /* [rows][MM_PANEL] */
    float *row;            /* of MM_PANEL floats */
    void *chain;
    chain_bound_t *mid, *weigh; /* whose tables and inner values are those of this share */
    matmul_state_t *down;       /* whose A is in shared memory */
} experts_buffers_t;

typedef struct experts_task {
    const experts_config_t *c;
    const experts_state_t *st;
    const mlp_params_t *p;
    const frame_t *frame;
    const worker_t *w;
    int64_t token0, tokens; /* of this round */
    experts_buffers_t buf;
    tiles_task_t product[MOST_PRODUCTS];
    /* Blocks of rows of an expert, loaded for all panels of columns, and whether they suit the
     * products. */
    tiles_buffers_t rows[MOST_BLOCKS];
    bool usable[MOST_BLOCKS];
} experts_task_t;

/* ---- selection ------------------------------------------------------------------------------- */

static problem_t problem_of(const problem_t *p, int product)
{
    return (problem_t){.plan = p->plan,
                       .step = p->step->p.mlp.product[product],
                       .frame = p->frame,
                       .open = p->open};
}

static const char *refuse(const kernel_t *self, const problem_t *p)
{
    const char *why = NULL;
    for (int i = 0; i <= p->step->p.mlp.n_upper && why == NULL; i++) {
        const problem_t product = problem_of(p, i);
        why = tiles_refuse(self, &product, self->driver->arithmetic == IN_INT8);
    }
    return why;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int rows_of_block(const experts_config_t *c)
{
    return c->product[0].panel.rows;
}

static size_t chain_bytes(const chain_t *chain)
{
    return chain != NULL ? chain_scratch_bytes(chain) : 0;
}

static size_t most_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t carve_buffers(const experts_config_t *c, const step_t *step, unsigned char *base,
                            experts_buffers_t *out)
{
    const mlp_params_t *p = &step->p.mlp;
    const size_t rows = (size_t)rows_of_block(c);
    size_t at = 0, bytes = 0;
    matmul_buffers_t unused;
    for (int i = 0; i <= p->n_upper; i++) {
        bytes = most_of(bytes, matmul_buffers(&c->product[i].panel, p->product[i], NULL, &unused));
    }
    out->matmul = carve(base, &at, bytes, 1);
    for (int i = 0; i < MLP_UPPER; i++) {
        out->acc[i] = carve(base, &at, i < p->n_upper ? rows * MM_PANEL : 0, sizeof(float));
    }
    out->row = carve(base, &at, MM_PANEL, sizeof(float));
    out->chain = carve(
        base, &at,
        most_of(chain_bytes(step->post), most_of(chain_bytes(p->mid), chain_bytes(p->weigh))), 1);
    out->mid = carve(base, &at, 1, sizeof *out->mid);
    out->weigh = carve(base, &at, 1, sizeof *out->weigh);
    out->down = carve(base, &at, 1, sizeof *out->down);
    return at;
}

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    experts_config_t *c = ARENA_NEW(arena, experts_config_t, 1);
    experts_buffers_t buffers;
    textbuf_t note;
    if (c == NULL) {
        return sinter_out_of_memory;
    }
    const char *why = NULL;
    c->tiles = self->driver->refuse != NULL;
    for (int i = 0; i <= p->step->p.mlp.n_upper; i++) {
        const problem_t product = problem_of(p, i);
        if (c->tiles) {
            tiles_configure(self, &product, &c->product[i]);
        } else {
            why = matmul_configure(self, &product, PANEL_ROWS, false, false, &c->product[i].panel);
        }
    }
    text_init(&note, arena);
    text_add(&note, "%d products, blocks of up to %d rows of an expert, ",
             p->step->p.mlp.n_upper + 1, rows_of_block(c));
    if (c->tiles) {
        const integers_t kind = c->product[0].kind;
        text_add(&note, "tiles: %s", kind != NO_INTEGERS ? integers_name(kind) : DECODED_FMA);
    } else {
        note_products(&note, false, self, why);
    }
    *out = (candidate_t){.config = c,
                         .state_bytes = sizeof(experts_state_t),
                         .share_bytes = carve_buffers(c, p->step, NULL, &buffers),
                         .note = note.text};
    return note.oom ? sinter_out_of_memory : sinter_success;
}

/* ---- choose ---------------------------------------------------------------------------------- */

/* A product's state. What `mid` makes is read from shared memory, as floats whatever its type. */
static sinter_status_t bind_product(const kernel_t *self, const problem_t *p, int i,
                                    const experts_config_t *c, experts_state_t *st,
                                    choice_t *choice)
{
    const problem_t product = problem_of(p, i);
    const matmul_params_t *m = &product.step->p.matmul;
    matmul_state_t *own = &st->product[i];
    if (i == p->step->p.mlp.n_upper) {
        p->frame->v[m->a.data].dtype = sinter_f32;
    }
    SG_TRY(matmul_bind(self, &product, &c->product[i].panel, own));
    if (c->tiles) {
        tiled_bind(self->needs, &own->b.base, own->K, &own->tiled);
        own->blocks = (blocks_state_t){0};
    } else {
        matmul_bind_strips(self, &product, &c->product[i].panel, own);
    }
    own->whole = false;
    own->piece = own->piece == own->strip ? own->strip : MM_PANEL;
    own->panel = MM_PANEL;
    own->block = rows_of_block(c);
    if (i == 0) {
        experts_reserve(own, choice);
        return sinter_success;
    }
    if (i < p->step->p.mlp.n_upper) { /* both find the same rows */
        own->k_block = st->product[0].k_block;
    }
    const experts_t *first = &st->product[0].experts;
    if (own->rows != st->product[0].rows || own->n_row != st->product[0].n_row ||
        own->experts.n != first->n) {
        return sg_fail(sinter_invalid_shape,
                       "MatMul: products of experts have different rows, or tables of different "
                       "numbers of experts");
    }
    experts_share(&st->product[0], own);
    return sinter_success;
}

/* All K of a block of rows, as panels want it. */
static size_t bytes_of_rows(const experts_config_t *c, const matmul_state_t *st)
{
    const int64_t blocks = (st->K + st->k_block - 1) / st->k_block;
    return (size_t)(blocks * rows_of_block(c) * MM_LDA) * sizeof(float);
}

/* How many blocks of rows a share has loaded at a time, in both phases. Gives the bytes. */
static size_t choose_blocks(const experts_config_t *c, const mlp_params_t *m, experts_state_t *st)
{
    size_t bytes = 0;
    for (int phase = 0; phase < 2; phase++) {
        tiles_buffers_t buffers;
        const int i = phase == 0 ? 0 : m->n_upper;
        const matmul_state_t *own = &st->product[i];
        const size_t one = c->tiles
                               ? tiles_buffers(&c->product[i], own->K, TILES_ROWS, NULL, &buffers)
                               : bytes_of_rows(c, own);
        const int64_t more = c->tiles ? at_most((int64_t)(MOST_LOADED / one), MOST_BLOCKS - 1) : 0,
                      all = (own->rows + TILES_ROWS - 1) / TILES_ROWS;
        st->loaded_bytes[phase] = one;
        st->blocks[phase] = (int)at_least(at_most(all, 1 + more), 1);
        bytes = most_of(bytes, one * (size_t)st->blocks[phase]);
    }
    return bytes;
}

static sinter_status_t choose(const kernel_t *self, const problem_t *p, const void *config,
                              void *state, choice_t *choice)
{
    const experts_config_t *c = config;
    const mlp_params_t *m = &p->step->p.mlp;
    experts_state_t *st = state;
    st->n_upper = m->n_upper;
    matmul_state_t *first = &st->product[0], *down = &st->product[m->n_upper];
    for (int i = 0; i <= m->n_upper; i++) {
        SG_TRY(bind_product(self, p, i, c, st, choice));
    }
    st->inner = down->K;
    if (first->N != st->inner * (m->halves ? 2 : 1)) {
        return sg_fail(sinter_invalid_shape,
                       "MatMul: the last product of experts has rows of another length than the "
                       "results of the first ones");
    }
    const size_t bytes = choose_blocks(c, m, st);
    st->mid.chain = st->weigh.chain = NULL;
    if (m->mid != NULL) {
        SG_TRY(chain_bind(m->mid, p->frame, self->needs, &st->mid));
    }
    if (m->weigh != NULL) {
        SG_TRY(chain_bind(m->weigh, p->frame, self->needs, &st->weigh));
    }
    SG_TRY(chain_bind(p->step->post, p->frame, self->needs, &st->post));
    const bound_t *out = &p->frame->v[m->out_dims];
    st->tokens = 1;
    for (int d = 0; d + 1 < out->ndims; d++) {
        st->tokens *= out->dims[d];
    }
    st->columns = out->dims[out->ndims - 1];
    st->each = down->rows / at_least(st->tokens, 1);
    const int64_t row_bytes = st->inner * (int64_t)sizeof(float);
    st->chunk =
        at_most(at_least(MOST_MID / at_least(row_bytes * st->each, 1), 1), at_least(st->tokens, 1));
    choice->rounds = (int)((st->tokens + st->chunk - 1) / st->chunk);
    if (c->tiles) {
        tiles_reserve_rows(&c->product[0], first, choice);
        down->experts.rows_of_a = st->chunk * st->each;
        tiles_reserve_rows(&c->product[m->n_upper], down, choice);
        for (int i = 1; i < m->n_upper; i++) {
            st->product[i].experts = first->experts;
        }
    }
    st->mid_at = scratch_round(choice->shared_bytes);
    const int64_t most = at_least(MOST_SUMS / st->chunk, 1) / TILES_COLUMNS;
    st->sums = at_least(most, 1) * TILES_COLUMNS;
    st->sums = at_most(st->sums, (st->columns + TILES_COLUMNS - 1) / TILES_COLUMNS * TILES_COLUMNS);
    st->sums_bytes =
        scratch_round((size_t)(st->chunk * st->sums) * sizeof(float)) + scratch_round(bytes);
    st->sums_at = st->mid_at + scratch_round((size_t)(st->chunk * st->each * row_bytes));
    choice->shared_bytes = st->sums_at + (size_t)p->frame->shares * st->sums_bytes;
    choice->shares_bytes = chain_shares_bytes(&st->post);
    if (c->tiles) {
        take_way(ways_matmul_tiles, "gate and up", &c->product[0], first, choice);
        take_way(ways_matmul_tiles, "down", &c->product[m->n_upper], down, choice);
    } else {
        matmul_add_ways(&c->product[0].panel, first, choice);
    }
    return sinter_success;
}

static sinter_status_t check(const problem_t *p, const void *state)
{
    const experts_state_t *st = state;
    const problem_t product = problem_of(p, 0);
    return matmul_check(&product, &st->product[0]);
}

static int checked(const step_t *step, int i)
{
    return matmul_checked(step->p.mlp.product[0], i);
}

/* ---- work ------------------------------------------------------------------------------------ */

static float *mid_of(const experts_task_t *t)
{
    unsigned char *shared = t->w->shared;
    return (float *)(void *)(shared + t->st->mid_at);
}

/* The index of a row's element in a chain, whose last dim is that of columns. */
static void seek_index(const chain_bound_t *chain, int64_t row, int64_t column, int64_t *idx)
{
    walk_seek(chain->ndims - 1, chain->dims, row, idx);
    idx[chain->ndims - 1] = column;
}

/* Points a chain's operands at the expert's rows of tables. */
static void seek_tables(const experts_task_t *t, chain_bound_t *chain, int64_t expert)
{
    for (int k = 0; k < chain->chain->n_operands; k++) {
        for (int i = 0; i < t->p->n_tables; i++) {
            const bound_t *table = &t->frame->v[t->p->tables[i].table];
            chain_ref_t *ref = &chain->refs[k];
            if (chain->chain->operands[k].value != t->p->tables[i].value) {
                continue;
            }
            memset(ref->stride, 0, sizeof ref->stride);
            const int last = table->ndims - 1;
            ref->stride[chain->ndims - 1] = table->dims[last] > 1 ? table->strides[last] : 0;
            ref->data =
                table->data + expert * table->strides[0] * dtype_traits(table->dtype)->bits / 8;
        }
    }
}

/* Points the operands of `mid` that are results of the first product at row r of its accumulators,
 * as if the column n0 stood there first. */
static void seek_results(const experts_task_t *t, int r, int64_t n0)
{
    chain_bound_t *chain = t->buf.mid;
    for (int k = 0; k < chain->chain->n_operands; k++) {
        chain_ref_t *ref = &chain->refs[k];
        if (t->p->is_first[k]) {
            memset(ref->stride, 0, sizeof ref->stride);
            ref->stride[chain->ndims - 1] = 1;
            ref->dtype = sinter_f32;
            ref->traits = dtype_traits(sinter_f32);
            ref->data = (unsigned char *)(t->buf.acc[0] + (int64_t)r * MM_PANEL - n0);
        }
    }
}

/* The product of block k of rows with the columns at hand. */
static void multiply(experts_task_t *t, tiles_task_t *product, int k)
{
    count_products(t->w, product->t.rows, product->t.cols, product->st->K);
    if (!t->c->tiles) {
        matmul_panel(&product->t);
    } else if (!tiles_run_panel(product, t->usable[k])) {
        t->usable[k] = tiles_load_rows(product); /* single rows were in their place */
    }
}

/* Points products from `from` to `to` at block k of rows of an expert. */
static void seek_block(experts_task_t *t, int from, int to, int64_t expert, int64_t row0,
                       int64_t end, int k)
{
    for (int i = from; i < to; i++) {
        const matmul_state_t *st = t->product[i].st;
        const int64_t first = row0 + k * st->block;
        experts_seek_rows(&t->product[i].t, expert, first, end);
        t->product[i].buf = t->rows[k];
    }
}

static bool load_rows(const experts_task_t *t, tiles_task_t *product)
{
    if (t->c->tiles) {
        return tiles_load_rows(product);
    }
    matmul_load_whole(&product->t, 0, 1);
    return true;
}

/* Loads blocks of rows row0.. of an expert for the product, as many as there is room for; gives
 * the row behind them. */
static int64_t load_blocks(experts_task_t *t, int product, int64_t expert, int64_t row0,
                           int64_t end)
{
    const int most = t->st->blocks[product > 0];
    int k = 0;
    for (; k < most && row0 + k * t->product[product].st->block < end; k++) {
        seek_block(t, product, product + 1, expert, row0, end, k);
        t->usable[k] = load_rows(t, &t->product[product]);
    }
    return at_most(row0 + k * (int64_t)t->product[product].st->block, end);
}

/* Row r of the block, as `mid` has made it, to shared memory, and as integers. */
static void keep_row(const experts_task_t *t, int64_t row, int64_t n0, int cols, float *values)
{
    const tiles_task_t *down = &t->product[t->p->n_upper];
    memcpy(mid_of(t) + (row - t->token0 * t->st->each) * t->st->inner + n0, values,
           (size_t)cols * sizeof *values);
    if (!t->c->tiles || down->st->experts.row_bytes == 0) {
        return;
    }
    bool *usable;
    const limb_rows_t to = tiles_row_of_a(down, row, &usable);
    const int whole = (cols + TILES_K - 1) / TILES_K * TILES_K;
    memset(values + cols, 0, (size_t)(whole - cols) * sizeof *values);
    for (int c = 0; c < whole; c += TILES_K) {
        const int64_t tile = (n0 + c) / TILES_K;
        const limb_rows_t at = limb_rows_from(&to, tile * TILES_K, tile);
        if (!down->st->tiled.table->quantise(values + c, MM_PANEL, 1, down->c->limbs, &at)) {
            __atomic_store_n(usable, false, __ATOMIC_RELAXED); /* shares may do so at once */
        }
    }
}

/* Two rows of accumulators, which have the columns of gate and up in turn, become a row of each. */
static void part_columns(float *gate, float *up, int cols)
{
    float both[2 * MM_PANEL];
    memcpy(both, gate, MM_PANEL * sizeof *both);
    memcpy(both + MM_PANEL, up, MM_PANEL * sizeof *both);
    for (int c = 0; c < cols; c++) {
        gate[c] = both[2 * c];
        up[c] = both[2 * c + 1];
    }
}

/* Gate and up of block k of rows and one panel of columns. Where these are in turn, they are two
 * panels of one product. */
static void multiply_upper(experts_task_t *t, int64_t n0, int cols, int k)
{
    const int n = t->p->n_upper;
    for (int i = 0; i < n; i++) {
        tiles_task_t *product = &t->product[i];
        product->t.n0 = t->p->in_turn  ? 2 * n0 + i * MM_PANEL
                        : t->p->halves ? n0 + i * t->st->inner
                                       : n0;
        product->t.cols = t->p->in_turn ? (int)at_most(2 * cols - i * MM_PANEL, MM_PANEL) : cols;
        product->t.buf.acc = t->buf.acc[i];
        if (product->t.cols > 0) {
            multiply(t, product, k);
        }
    }
    for (int r = 0; t->p->in_turn && r < t->product[0].t.rows; r++) {
        part_columns(t->buf.acc[0] + (size_t)r * MM_PANEL, t->buf.acc[1] + (size_t)r * MM_PANEL,
                     cols);
    }
    matmul_task_t *last = &t->product[n - 1].t;
    for (int r = 0; r < last->rows; r++) {
        const int64_t row = last->order[last->row0 + r];
        float *values = t->buf.acc[n - 1] + (size_t)r * MM_PANEL;
        memcpy(t->buf.row, values, (size_t)cols * sizeof *values);
        if (t->st->mid.chain != NULL) {
            int64_t idx[SINTER_MAX_NDIMS];
            seek_index(t->buf.mid, row, n0, idx);
            seek_results(t, r, n0);
            chain_run(t->buf.mid, idx, cols, t->buf.row, t->buf.chain);
        }
        keep_row(t, row, n0, cols, t->buf.row);
    }
}

/* Phase 1 of a share. */
static void run_upper(experts_task_t *t)
{
    const matmul_state_t *st = &t->st->product[0];
    experts_walk_t walk = experts_begin(st, t->w, (t->st->inner + TILES_K - 1) / TILES_K);
    while (experts_next(&walk, t->w)) {
        const int64_t e = walk.expert, first = walk.rows.first[e], end = walk.rows.first[e + 1],
                      last = at_most(walk.to * TILES_K, t->st->inner);
        if (t->st->mid.chain != NULL) {
            seek_tables(t, t->buf.mid, e);
        }
        for (int64_t row0 = first, next; row0 < end; row0 = next) {
            next = load_blocks(t, 0, e, row0, end);
            for (int64_t n0 = walk.from * TILES_K; n0 < last; n0 += MM_PANEL) {
                for (int k = 0; row0 + k * st->block < next; k++) {
                    seek_block(t, 0, t->p->n_upper, e, row0, next, k);
                    multiply_upper(t, n0, (int)at_most(last - n0, MM_PANEL), k);
                }
            }
        }
    }
}

/* Adds the results of a block of rows and a panel of columns to the sums of their tokens. */
static void add_to_sums(experts_task_t *t, float *sums, int64_t from)
{
    matmul_task_t *down = &t->product[t->p->n_upper].t;
    for (int r = 0; r < down->rows; r++) {
        float *values = down->buf.acc + (size_t)r * MM_PANEL,
              *sum = sums + (down->order[down->row0 + r] / t->st->each - t->token0) * t->st->sums +
                     down->n0 - from;
        if (t->st->weigh.chain != NULL) {
            int64_t idx[SINTER_MAX_NDIMS];
            seek_index(t->buf.weigh, down->order[down->row0 + r], down->n0, idx);
            chain_run(t->buf.weigh, idx, down->cols, values, t->buf.chain);
        }
        for (int c = 0; c < down->cols; c++) {
            sum[c] += values[c];
        }
    }
}

/* The sums through the post chain. */
static void store_sums(experts_task_t *t, float *sums, int64_t from, int64_t n)
{
    const chain_bound_t *post = &t->st->post;
    for (int64_t token = 0; token < t->tokens; token++) {
        for (int64_t c = 0; c < n; c += CHAIN_BLOCK) {
            int64_t idx[SINTER_MAX_NDIMS];
            seek_index(post, t->token0 + token, from + c, idx);
            chain_run(post, idx, (int)at_most(n - c, CHAIN_BLOCK), sums + token * t->st->sums + c,
                      t->buf.chain);
        }
    }
}

/* Phase 2 of a share. */
static void run_down(experts_task_t *t, float *sums)
{
    const experts_state_t *st = t->st;
    tiles_task_t *down = &t->product[t->p->n_upper];
    const matmul_state_t *own = down->st;
    const expert_rows_t rows = experts_rows(own, t->w);
    int64_t begin, end;
    share((st->columns + TILES_COLUMNS - 1) / TILES_COLUMNS, t->w->tid, t->w->nth, &begin, &end);
    begin *= TILES_COLUMNS;
    end = at_most(end * TILES_COLUMNS, st->columns);
    for (int64_t from = begin; from < end; from += st->sums) {
        const int64_t to = at_most(from + st->sums, end);
        memset(sums, 0, (size_t)(t->tokens * st->sums) * sizeof *sums);
        for (int64_t e = 0; e < own->experts.n; e++) {
            const int64_t first = rows.first[e], n = rows.first[e + 1] - first;
            if (n > 0 && st->weigh.chain != NULL) {
                seek_tables(t, t->buf.weigh, e);
            }
            for (int64_t row0 = first, next; row0 < first + n; row0 = next) {
                next = load_blocks(t, t->p->n_upper, e, row0, first + n);
                for (int64_t n0 = from; n0 < to; n0 += MM_PANEL) {
                    for (int k = 0; row0 + k * own->block < next; k++) {
                        seek_block(t, t->p->n_upper, t->p->n_upper + 1, e, row0, next, k);
                        down->t.n0 = n0;
                        down->t.cols = (int)at_most(to - n0, MM_PANEL);
                        multiply(t, down, k);
                        add_to_sums(t, sums, from);
                    }
                }
            }
        }
        store_sums(t, sums, from, to - from);
    }
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const experts_config_t *c = config;
    const experts_state_t *st = state;
    const mlp_params_t *m = &p->step->p.mlp;
    experts_task_t t = {.c = c, .st = st, .p = m, .frame = p->frame, .w = w};
    const int n = m->n_upper;
    t.token0 = w->round * st->chunk;
    t.tokens = at_most(st->tokens - t.token0, st->chunk);
    const int64_t row0 = t.token0 * st->each, rows = t.tokens * st->each;
    (void)self;
    carve_buffers(c, p->step, w->scratch, &t.buf);
    for (int i = 0; i <= n; i++) {
        t.product[i].c = &c->product[i];
        t.product[i].st = &st->product[i];
        t.product[i].t =
            (matmul_task_t){.c = &c->product[i].panel, .st = &st->product[i], .worker = w};
        matmul_buffers(&c->product[i].panel, m->product[i], t.buf.matmul, &t.product[i].t.buf);
    }
    /* What it reads lies in shared memory, as if the rows of other rounds lay before it. */
    *t.buf.down = st->product[n];
    t.buf.down->experts.first_row = row0;
    t.buf.down->a.base.codes.data = (unsigned char *)(mid_of(&t) - row0 * st->inner);
    t.product[n].st = t.product[n].t.st = t.buf.down;
    if (w->phase == 0) {
        if (w->tid == 0) {
            experts_sort(&st->product[0], w, row0, row0 + rows);
        }
        if (c->tiles && st->product[0].experts.row_bytes > 0 && w->round == 0) {
            tiles_make_rows(&t.product[0], w->tid, w->nth);
        }
        if (c->tiles && st->product[n].experts.row_bytes > 0) {
            int64_t begin, end;
            share(rows, w->tid, w->nth, &begin, &end);
            for (int64_t r = begin; r < end; r++) {
                bool *usable;
                (void)tiles_row_of_a(&t.product[n], row0 + r, &usable);
                *usable = true;
            }
        }
        return;
    }
    unsigned char *own = (unsigned char *)w->shared + st->sums_at + (size_t)w->tid * st->sums_bytes;
    unsigned char *buffers = own + scratch_round((size_t)(st->chunk * st->sums) * sizeof(float));
    for (int i = 0; i <= n && !c->tiles; i++) {
        t.product[i].t.buf.whole_a = (float *)(void *)buffers;
    }
    for (int k = 0; c->tiles && k < st->blocks[w->phase - 1]; k++) {
        const int i = w->phase == 1 ? 0 : n;
        unsigned char *block = buffers + (size_t)k * st->loaded_bytes[w->phase - 1];
        tiles_buffers(&c->product[i], st->product[i].K, TILES_ROWS, block, &t.rows[k]);
        if (st->product[0].rows > 1) { /* micro-kernels read rows that are missing */
            memset(block, 0, st->loaded_bytes[w->phase - 1]);
        }
    }
    if (w->phase == 1) {
        if (st->mid.chain != NULL) {
            *t.buf.mid = st->mid;
        }
        run_upper(&t);
        return;
    }
    if (st->weigh.chain != NULL) {
        *t.buf.weigh = st->weigh;
    }
    run_down(&t, (float *)(void *)own);
}

#define EXPERTS                                                                          \
    .step = STEP_EXPERTS, .phases = 3, .setup = setup, .choose = choose, .check = check, \
    .checked = checked, .work = work
const driver_t driver_experts_tiles = {EXPERTS, .arithmetic = IN_F32, .refuse = refuse,
                                       .takes = "B in tiles"};
const driver_t driver_experts_tiles_int8 = {EXPERTS, .arithmetic = IN_INT8, .refuse = refuse,
                                            .takes = "B in tiles"};
const driver_t driver_experts_panel = {EXPERTS, .arithmetic = IN_F32};
