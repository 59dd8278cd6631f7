/* The matmul kernels: selection, setup, geometry. The arithmetic is in matmul_work.c. */
#include "backend_xsmm/drivers/matmul/matmul.h"

#include <string.h>

#include "backend_xsmm/drivers/common/products.h"
#include "base/status.h"

/* Heights with JIT kernels; fewer rows are computed at the next height. */
const int matmul_ladder[MM_LADDER] = {1, 2, 3, 4, 6, 8, 12, 16, 18, 20, 24, 28, 32};
const int matmul_widths[MM_WIDTHS] = {16, 32, TAIL_MATMUL_STRIP};

/* ---- setup ----------------------------------------------------------------------------------- */

/* The product of all dims of a value but one; -1: not known. */
static int64_t dims_but(const problem_t *p, int value, int but)
{
    const int ndims = problem_ndims(p, value);
    int64_t n = ndims < 0 ? -1 : 1;
    for (int d = 0; d < ndims && n >= 0; d++) {
        const int64_t dim = problem_dim(p, value, ndims - d);
        n = d == but ? n : dim < 0 || !mul_i64(n, dim, &n) ? -1 : n;
    }
    return n;
}

/* Products in a sum; -1: not known. */
static int64_t sums_of(const problem_t *p)
{
    const matmul_params_t *m = &p->step->p.matmul;
    return m->conv == NULL ? problem_dim(p, m->a.data, m->trans_a ? 2 : 1)
                           : dims_but(p, m->b.data, problem_ndims(p, m->b.data) - 1);
}

int64_t matmul_tail_rows(const problem_t *p)
{
    const dynquant_params_t *tail = p->step->tail;
    const int ndims = tail != NULL ? problem_ndims(p, tail->in) : 0;
    return ndims >= 2 ? tail->out.group_size[ndims - 2] : 0;
}

/* The tail has groups of rows that do not divide those of a matrix (see matmul_bind_dims). */
static bool rows_apart(const problem_t *p, int64_t rows)
{
    const int64_t size = matmul_tail_rows(p);
    return size > 0 && size < rows && rows % size != 0;
}

int64_t matmul_rows_of(const problem_t *p)
{
    const matmul_params_t *m = &p->step->p.matmul;
    if (m->conv != NULL) {
        return dims_but(p, m->out_dims, m->conv->channel); /* results of one group */
    }
    const int ndims = problem_ndims(p, m->out_dims);
    int64_t rows = problem_dim(p, m->out_dims, 2);
    const bool experts = m->experts >= 0, apart = !experts && rows_apart(p, rows);
    for (int e = 3; e <= ndims && rows >= 0; e++) {
        /* Rows of all batches may meet one expert. */
        const int64_t own = experts ? 1 : problem_dim(p, m->b.data, e),
                      n = own == 1 ? problem_dim(p, m->out_dims, e) : own;
        if (n < 0 || (own == 1 && !apart && !mul_i64(rows, n, &rows))) {
            return -1;
        }
    }
    return ndims < 2 ? -1 : rows;
}

int64_t matmul_stride_of_b(const problem_t *p, int from_end)
{
    const matmul_params_t *m = &p->step->p.matmul;
    return problem_stride(p, m->b.data, m->trans_b ? 3 - from_end : from_end);
}

int matmul_lies_in_tiles(const problem_t *p)
{
    const int b = p->step->p.matmul.b.data;
    const plan_value_t *v = &p->plan->values[b];
    return p->frame != NULL        ? p->frame->v[b].tiled != NOT_TILED
           : v->tiled == NOT_TILED ? 0
           : v->kind == PV_INPUT   ? 1
                                   : (int)problem_answer(p, -1);
}

const char *matmul_refuse_layout(const problem_t *p)
{
    return matmul_lies_in_tiles(p) == 1 ? "B lies in tiles" : NULL;
}

const char *matmul_refuse_b(const problem_t *p, bool decoder, bool scaled)
{
    const operand_t *b = &p->step->p.matmul.b;
    const dtype_traits_t *zp = b->zp < 0 ? NULL : dtype_traits(problem_type(p, b->zp));
    const char *why = matmul_refuse_layout(p);
    if (why != NULL) {
        return why;
    }
    if (p->step->p.matmul.experts >= 0) {
        return "rows of A go to experts";
    }
    if (!decoder || b->split != sinter_data_type_undef) {
        return "no decoder for the data type of B";
    }
    return scaled != (b->scale >= 0) || (zp != NULL && zp->cls == DTYPE_INT && zp->bits > 8)
               ? "B has codes without scales, scales without codes, or integer zero points of more "
                 "than 8 bits"
               : NULL;
}

const char *matmul_refuse_rows(const problem_t *p, int most)
{
    if (p->step->p.matmul.conv != NULL) {
        return "rows of A are patches of an image";
    }
    if (p->plan->deterministic) {
        return "the engine is deterministic, and many rows are added in another order";
    }
    if (p->step->p.matmul.experts >= 0) {
        return NULL; /* rows of an expert are taken in blocks */
    }
    const bool many = problem_dim(p, p->step->p.matmul.out_dims, 2) > most;
    return many || matmul_rows_of(p) > most ? "more than 16 rows share one B" : NULL;
}

static int widest_for(int64_t N)
{
    return N >= 0 && N <= matmul_widths[0] ? 0 : N >= 0 && N <= matmul_widths[1] ? 1 : 2;
}

static const char *make_kernel(matmul_config_t *c, int width, int height, features_t features)
{
    const int n = c->columns[width], ldb = c->bf16 ? MM_LDB : n;
    const char *why = NULL;
    const xs_shape_t shape = {.kind = c->bf16 ? XS_BF16F32 : XS_F32,
                              .m = matmul_ladder[height],
                              .n = n,
                              .k = MM_GRAIN,
                              .lda = MM_LDA,
                              .ldb = ldb,
                              .ldc = MM_PANEL,
                              .stride_a = MM_GRAIN,
                              .stride_b = (int64_t)MM_GRAIN * ldb,
                              .beta = true};
    c->kernel[width][height] = xs_dispatch(&shape, features, &why);
    return why;
}

/* What is left over of so many rows, or of blocks of them that are multiples of `unit`, has a
 * height. */
static bool is_left(int64_t rows, int unit, int height)
{
    bool is = false;
    for (int64_t rest = rows % unit; rest < MM_HEIGHT && rest <= rows; rest += unit) {
        is = is || (rest > 0 && matmul_height((int)rest) == height);
    }
    for (int rest = unit; rest < MM_HEIGHT && rest <= rows; rest += unit) {
        is = is || matmul_height(rest) == height;
    }
    return is;
}

/* Kernels for all heights that can occur: with the number of rows known that is the full one and
 * what is left over. NULL, or why there are none. */
static const char *make_kernels(matmul_config_t *c, int64_t rows, int unit, features_t features)
{
    const char *why = NULL;
    for (int h = 0; h < MM_LADDER && why == NULL; h++) {
        const bool full = matmul_ladder[h] == MM_HEIGHT && rows >= MM_HEIGHT;
        const bool occurs = rows < 0 ? matmul_ladder[h] <= c->rows : full || is_left(rows, unit, h);
        for (int w = c->widest; w >= 0 && w >= c->widest - 1 && why == NULL && occurs; w--) {
            why = make_kernel(c, w, h, features);
        }
    }
    return why;
}

const char *matmul_configure(const kernel_t *self, const problem_t *p, int most_rows, bool bf16,
                             bool integers, matmul_config_t *c)
{
    const matmul_params_t *m = &p->step->p.matmul;
    const int64_t N = problem_dim(p, m->conv != NULL ? m->b.data : m->out_dims, 1),
                  rows = matmul_rows_of(p), most = rows < 0 ? most_rows : at_most(rows, most_rows);
    c->tile = tile_table(self->needs);
    c->fn = eltwise_table(self->needs);
    c->quant = quant_rows(self->needs);
    c->bf16 = bf16;
    c->kind = integers ? p->step->permit.integers : NO_INTEGERS;
    c->blocks = integers ? blocks_table(self->needs) : NULL;
    c->words = c->blocks != NULL && blocks_in_words(p, c->blocks, c->kind);
    c->kind = c->words && c->kind == ONE_LIMB ? TWO_LIMBS : c->kind;
    c->image = c->blocks != NULL && m->conv != NULL && c->kind == EXACT_CODES;
    c->rows = most > MM_HEIGHT ? (int)((most + MM_HEIGHT - 1) / MM_HEIGHT * MM_HEIGHT)
                               : matmul_ladder[matmul_height((int)most)];
    c->widest = widest_for(N);
    c->chained = sums_of(p) < 0 || sums_of(p) > MM_CHAIN;
    for (int w = 0; w < MM_WIDTHS; w++) {
        c->columns[w] = (int)at_most(matmul_widths[w], product_columns(self->needs));
    }
    /* Each expert may have any number of rows. */
    const char *why =
        make_kernels(c, m->experts >= 0 ? -1 : rows, m->conv != NULL ? MM_UNIT : MM_HEIGHT,
                     products_features(self, p, bf16));
    /* libxsmm adds in another order where there are few rows. */
    const char *other =
        p->plan->deterministic && m->conv == NULL ? "the engine is deterministic" : NULL;
    why = why != NULL ? why : other;
    c->jit = why == NULL;
    c->tall = !c->jit ? MM_TALL : m->conv != NULL && !bf16 ? MM_TALLEST : MM_HEIGHT;
    return why;
}

const char *matmul_configure_best(const kernel_t *self, const problem_t *p, int most_rows,
                                  matmul_config_t *c)
{
    const bool bf16 = refuse_bf16_products(p) == NULL, integers = blocks_refuse(self, p) == NULL;
    const char *why = matmul_configure(self, p, most_rows, bf16, integers, c);
    return bf16 && why != NULL ? matmul_configure(self, p, most_rows, false, integers, c) : why;
}

void matmul_note(textbuf_t *note, const kernel_t *self, const matmul_config_t *c, const char *why)
{
    text_add(note, "blocks of %d row%s, panels of up to %d columns, ", c->rows,
             c->rows == 1 ? "" : "s", MM_PANEL);
    if (c->blocks != NULL) {
        text_add(note, "%s where groups along K are made of blocks of %d to %d elements, else ",
                 integers_name(c->kind), BLOCKS_LEAST, BLOCKS_LONGEST);
    }
    note_products(note, c->bf16, self, why);
}

static const char *refuse_bf16(const kernel_t *self, const problem_t *p)
{
    (void)self;
    return p->step->p.matmul.experts >= 0 ? "rows of A go to experts"
           : p->plan->deterministic && p->step->p.matmul.conv == NULL
               ? "the engine is deterministic, and bf16 brgemm adds few rows in another order"
               : refuse_bf16_products(p);
}

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    matmul_config_t *c = ARENA_NEW(arena, matmul_config_t, 1);
    if (c == NULL) {
        return sinter_out_of_memory;
    }
    const arithmetic_t arithmetic = self->driver->arithmetic;
    const char *why =
        matmul_configure(self, p, MM_ROWS, arithmetic == IN_BF16, arithmetic == IN_INT8, c);
    if (c->bf16 && why != NULL) {
        return sg_fail(sinter_runtime_error, "bf16 matmul: %s", why);
    }
    textbuf_t note;
    text_init(&note, arena);
    matmul_note(&note, self, c, why);
    *out = (candidate_t){.config = c,
                         .state_bytes = sizeof(matmul_state_t),
                         .share_bytes = matmul_share_bytes(p, c),
                         .note = note.text};
    return note.oom ? sinter_out_of_memory : sinter_success;
}

/* ---- memory ---------------------------------------------------------------------------------- */

size_t matmul_buffers(const matmul_config_t *c, const step_t *step, unsigned char *scratch,
                      matmul_buffers_t *out)
{
    const size_t rows = (size_t)c->rows;
    size_t at = 0;
    *out = (matmul_buffers_t){0};
    const size_t tall = c->tall > MM_TALL ? (size_t)c->tall : MM_TALL,
                 loaded = rows < tall ? rows : tall;
    out->a = carve(scratch, &at, loaded * MM_LDA, sizeof(float));
    out->b = carve(scratch, &at, MM_K * MM_LDB, sizeof(float));
    out->acc = carve(scratch, &at, blocks_rows(c->rows) * MM_PANEL, sizeof(float));
    out->chains = carve(scratch, &at, c->chained ? rows * MM_PANEL : 0, sizeof(float));
    if (c->bf16) {
        out->a16 = carve(scratch, &at, loaded * MM_LDA, sizeof(uint16_t));
        out->b16 = carve(scratch, &at, MM_K * MM_LDB, sizeof(uint16_t));
    }
    if (c->blocks != NULL) {
        blocks_buffers(c, scratch, &at, &out->blocks);
    }
    out->chain = carve(scratch, &at,
                       step->p.matmul.conv != NULL ? chain_tile_scratch_bytes(step->post)
                                                   : chain_scratch_bytes(step->post),
                       1);
    out->tail = carve(scratch, &at, step->tail != NULL ? quant_tail_scratch() : 0, 1);
    return at;
}

size_t matmul_share_bytes(const problem_t *p, const matmul_config_t *c)
{
    matmul_buffers_t b;
    return matmul_buffers(c, p->step, NULL, &b);
}

size_t matmul_shared(const matmul_config_t *c, const matmul_state_t *st)
{
    blocks_whole_t whole;
    if (st->whole) {
        const int64_t blocks = (st->K + st->k_block - 1) / st->k_block;
        return (size_t)(blocks * c->rows * MM_LDA) * sizeof(float);
    }
    return blocks_share(c, &st->blocks, NULL, &whole);
}

/* ---- choose ---------------------------------------------------------------------------------- */

static int64_t dim_from_end(const matrices_t *op, int from_end)
{
    return op->ndims < from_end ? 1 : op->dims[op->ndims - from_end];
}

sinter_status_t matmul_bind_dims(matmul_state_t *st, const bound_t *out)
{
    if (out->ndims < 2) {
        return sg_fail(sinter_invalid_shape, "matmul: the output has fewer than 2 dims");
    }
    st->nb = out->ndims - 2;
    st->M = dim_from_end(&st->a, 2);
    st->K = dim_from_end(&st->a, 1);
    st->N = dim_from_end(&st->b, 1);
    if (dim_from_end(&st->b, 2) != st->K || out->dims[st->nb] != st->M ||
        out->dims[st->nb + 1] != st->N) {
        return sg_fail(sinter_invalid_shape,
                       "matmul: dims of the operands and the output do not fit each other");
    }
    st->n_row = st->n_mat = 0;
    st->rows = st->M;
    st->mats = 1;
    const bool apart = st->M % st->tail.rows != 0;
    for (int d = 0; d < st->nb; d++) {
        const int64_t n = out->dims[d], an = dim_from_end(&st->a, out->ndims - d),
                      bn = dim_from_end(&st->b, out->ndims - d);
        if ((an != 1 && an != n) || (bn != 1 && bn != n && st->experts.ids == NULL)) {
            return sg_fail(sinter_invalid_shape, "matmul: batch dim %d does not broadcast", d);
        }
        const bool makes_rows = (bn == 1 && !apart) || st->experts.ids != NULL;
        if (makes_rows) {
            st->row_dim[st->n_row] = d;
            st->row_extent[st->n_row++] = n;
        } else {
            st->mat_dim[st->n_mat] = d;
            st->mat_extent[st->n_mat++] = n;
        }
        if (!mul_i64(makes_rows ? st->rows : st->mats, n, makes_rows ? &st->rows : &st->mats)) {
            return sg_fail(sinter_invalid_shape, "matmul: batch dims overflow");
        }
    }
    if (st->experts.ids != NULL) { /* that have rows, at most */
        st->mats = at_most(st->experts.n, st->rows);
    }
    st->row_dim[st->n_row] = st->nb;
    st->row_extent[st->n_row++] = st->M;
    return sinter_success;
}

/* Columns that a panel is a multiple of: whole strips and whole groups of the tail. */
static int panel_unit(const matmul_state_t *st, int group)
{
    int unit = st->strip;
    while (unit % group != 0) {
        unit += st->strip;
    }
    return unit;
}

/* Large tiles for few shares; smaller ones where there would be less than two items for each
 * share. Blocks hold whole groups of rows and of columns. */
static void choose_tiles(matmul_state_t *st, const matmul_config_t *c, int shares, int group_rows,
                         int group_cols)
{
    const int64_t mats = st->mats;
    st->width = c->widest;
    if (st->rows <= 8 && st->width > 0 && st->b.base.codes.row.stride == 1 && c->blocks == NULL) {
        st->width--; /* B is read along K: long, narrow strips */
    }
    st->strip = matmul_widths[st->width];
    st->block = c->rows;
    /* A is loaded once. Blocks of K say how sums are added: they must not depend on the shares. */
    const bool once = at_most(st->rows, st->block) <= c->tall;
    /* Strips of integers begin where the operands say, not the shares. */
    const int own = panel_unit(st, group_cols),
              unit = c->blocks != NULL && MM_PANEL % BLOCKS_STRIP == 0 && BLOCKS_STRIP % own == 0
                         ? BLOCKS_STRIP
                         : own;
    for (st->panel = unit < MM_PANEL ? MM_PANEL / unit * unit : MM_PANEL;;
         st->panel = st->panel / unit / 2 * unit) {
        st->n_panels = (st->N + st->panel - 1) / st->panel;
        st->n_blocks = (st->rows + st->block - 1) / st->block;
        if (st->panel < 2 * unit || mats * st->n_panels * st->n_blocks >= 2 * (int64_t)shares) {
            break;
        }
    }
    while (st->block > MM_HEIGHT && st->block / 2 % MM_HEIGHT == 0 &&
           st->block / 2 % group_rows == 0 && mats * st->n_panels * st->n_blocks < shares) {
        st->block /= 2;
        st->n_blocks = (st->rows + st->block - 1) / st->block;
    }
    st->piece = once ? st->strip : st->panel;
    st->k_block = once ? (int)at_most(MM_STRIP / st->strip, MM_K) : MM_K;
}

/* Of B in tiles, floats are multiplied by strips of tiles. Few rows of A are loaded once for all
 * panels. */
static void choose_strips_of_tiles(const matmul_config_t *c, matmul_state_t *st)
{
    const bool once = at_most(st->rows, st->block) <= c->tall; /* for each panel and K block */
    if (!matmul_is_unpacked(c, st)) {
        return;
    }
    st->strip = TILES_COLUMNS;
    st->piece = once ? st->strip : st->panel;
    st->k_block = MM_K;
    st->whole = once && st->blocks.block == 0 && st->mats == 1 && st->experts.ids == NULL &&
                st->n_blocks == 1 && st->n_panels > 1;
}

/* Of a convolution whose B lies in tiles: as even as possible for the shares, with accumulators
 * that fit the second cache beside A and B. What a share has to do grows by loading A and starting
 * the chain for each panel, and by fetching B for each block. Costs are in products, by element of
 * a row or a column of B. */
static void choose_tiles_of_patches(matmul_state_t *st, const matmul_config_t *c, int shares)
{
    enum { ACCUMULATORS = 32768, MORE_BLOCKS = 8 };
    const double of_b = 6, of_a = 6 + 4800 / (double)at_least(st->K, 1);
    double least = 0;
    st->width = c->widest;
    st->strip = matmul_widths[st->width];
    for (int panel = MM_PANEL; panel >= st->strip; panel /= 2) {
        const int64_t most = at_most(ACCUMULATORS / panel, c->rows) / MM_UNIT * MM_UNIT,
                      panels = (st->N + panel - 1) / panel,
                      fewest = (st->rows - 1) / at_least(most, MM_UNIT) + 1;
        for (int64_t blocks = fewest; blocks < fewest + MORE_BLOCKS; blocks++) {
            const int64_t block =
                at_most(((st->rows - 1) / blocks / MM_UNIT + 1) * MM_UNIT, c->rows);
            const int64_t n_blocks = (st->rows - 1) / block + 1,
                          items = (st->mats * panels * n_blocks - 1) / shares + 1;
            const double rows = (double)at_most(block, st->rows),
                         columns = (double)at_most(panel, st->N),
                         cost = (double)items * rows * columns * (1 + of_b / rows + of_a / columns);
            if (least == 0 || cost < least) {
                least = cost;
                st->panel = panel;
                st->block = (int)block;
                st->n_panels = panels;
                st->n_blocks = n_blocks;
            }
        }
    }
    st->piece = st->panel;
    st->k_block = MM_K;
}

/* The time of the share that has most to do, in columns. The last share has the last panel, which
 * may be short, and is the only one with a panel more where one is left over. */
static int64_t time_of(const matmul_state_t *m, int64_t panel, int shares)
{
    enum { PANEL_COST = 8 }; /* what a panel takes besides its columns */
    const int64_t of_matrix = (m->N + panel - 1) / panel, all = of_matrix * m->mats,
                  most = (all + shares - 1) / shares,
                  missing = m->mats == 1 ? of_matrix * panel - m->N : 0;
    const int64_t columns = all % shares == 1 && shares > 1
                                ? at_least((most - 1) * panel, most * panel - missing)
                                : most * panel;
    return columns + most * PANEL_COST;
}

void matmul_choose_panel(matmul_state_t *m, int shares)
{
    int unit = 16;
    while (unit % m->tail.cols != 0 && unit < MM_PANEL) {
        unit += 16;
    }
    const int64_t most = unit < MM_PANEL ? MM_PANEL / unit * unit : MM_PANEL;
    m->panel = (int)most;
    for (int64_t panel = most - unit; panel >= unit; panel -= unit) {
        if (time_of(m, panel, shares) < time_of(m, m->panel, shares)) {
            m->panel = (int)panel;
        }
    }
    m->n_panels = (m->N + m->panel - 1) / m->panel;
    m->block = MM_FEW;
    m->n_blocks = 1;
}

sinter_status_t matmul_count(const step_t *step, matmul_state_t *st)
{
    /* Channels of results of two groups of a convolution may share a byte. */
    const bool meet = st->patches.on && st->mats > 1 && st->N % 4 != 0;
    st->shares_bytes = chain_shares_bytes(&st->post) || (meet && chain_stores_packed(&st->post)) ||
                       (step->tail != NULL && quant_tail_shares_bytes(&st->tail, st->panel));
    if (!mul_i64(st->mats, st->n_panels, &st->items) ||
        !mul_i64(st->items, st->n_blocks, &st->items)) {
        return sg_fail(sinter_invalid_shape, "matmul: dims overflow");
    }
    return sinter_success;
}

sinter_status_t matmul_bind(const kernel_t *self, const problem_t *p, const matmul_config_t *c,
                            matmul_state_t *st)
{
    const matmul_params_t *m = &p->step->p.matmul;
    st->patches.on = false;
    st->tail.rows = st->tail.cols = 1;
    if (p->step->tail != NULL) {
        SG_TRY(quant_tail_bind(p->step->tail, p->frame, self->needs, &st->tail));
    }
    SG_TRY(matrices_bind(&m->b, m->trans_b, p->frame, &st->b));
    experts_bind(p, st);
    if (m->conv == NULL) {
        SG_TRY(matrices_bind(&m->a, m->trans_a, p->frame, &st->a));
        SG_TRY(matmul_bind_dims(st, &p->frame->v[m->out_dims]));
    } else {
        SG_TRY(patches_bind(p, st));
    }
    SG_TRY(chain_bind(p->step->post, p->frame, self->needs, &st->post));
    if (m->conv != NULL) {
        patches_turn(m->conv, &st->post);
    }
    st->tiled.table = NULL;
    st->whole = st->left = false;
    if (m->conv != NULL && m->tiled && p->step->tail == NULL && st->rows > 0) {
        choose_tiles_of_patches(st, c, p->frame->shares);
    } else {
        choose_tiles(st, c, p->frame->shares, st->tail.rows, st->tail.cols);
    }
    blocks_bind(c, st);
    return matmul_count(p->step, st);
}

static const char *refuse_integers(int kind, const void *config, void *state)
{
    const matmul_config_t *c = config;
    const matmul_state_t *st = state;
    return st->blocks.block > 0 && c->kind == (integers_t)kind ? NULL
           : st->blocks.why != NULL                            ? st->blocks.why
                                                               : "";
}

static const char *refuse_brgemm(int bf16, const void *config, void *state)
{
    const matmul_config_t *c = config;
    (void)state;
    return c->jit && c->bf16 == (bf16 != 0) ? NULL : "";
}

static const char *refuse_unpacked(int kind, const void *config, void *state)
{
    const matmul_state_t *st = state;
    (void)kind;
    return matmul_is_unpacked(config, st) ? NULL : "";
}

/* How panels are multiplied. */
const way_row_t ways_matmul_products[] = {INTEGER_WAYS(refuse_integers),
                                          {"f32 FMA on unpacked tiles", refuse_unpacked, 0},
                                          {"bf16 brgemm", refuse_brgemm, 1},
                                          {"f32 brgemm", refuse_brgemm, 0},
                                          {"own f32 gemm", NULL, 0}};

void matmul_add_ways(const matmul_config_t *c, matmul_state_t *st, choice_t *choice)
{
    take_way(ways_matmul_products, "products", c, st, choice);
    choice->shares_bytes = st->shares_bytes;
}

void matmul_bind_strips(const kernel_t *self, const problem_t *p, const matmul_config_t *c,
                        matmul_state_t *st)
{
    if (p->step->p.matmul.tiled && matmul_lies_in_tiles(p) == 1) {
        /* Without VNNI: the tables of integers load no floats. */
        tiled_bind((features_t){self->needs.bits & (NEEDS_AVX512)}, &st->b.base, st->K, &st->tiled);
        choose_strips_of_tiles(c, st);
    }
}

int matmul_first_phase(const matmul_state_t *st)
{
    const bool prepares = st->experts.ids != NULL || st->blocks.image.on ||
                          (st->whole && !st->left) || (st->blocks.once && !st->blocks.left);
    return prepares ? 0 : 1;
}

static sinter_status_t choose(const kernel_t *self, const problem_t *p, const void *config,
                              void *state, choice_t *choice)
{
    SG_TRY(matmul_bind(self, p, config, state));
    matmul_bind_strips(self, p, config, state);
    choice->shared_bytes = matmul_shared(config, state);
    experts_reserve(state, choice);
    matmul_add_ways(config, state, choice);
    choice->first = matmul_first_phase(state);
    return sinter_success;
}

/* ---- the step before ------------------------------------------------------------------------- */

/* A second product of one activation finds it in shared memory. */
const way_row_t ways_matmul_activation[] = {{"what the step before made", NULL, 0}};

bool matmul_same_rows(const problem_t *p, const before_t *before, const matmul_state_t *st)
{
    const matmul_state_t *last = before->state;
    const matmul_params_t *a = &before->step->p.matmul, *b = &p->step->p.matmul;
    return a->conv == NULL && b->conv == NULL && a->a.data == b->a.data &&
           a->a.scale == b->a.scale && a->a.zp == b->a.zp && a->trans_a == b->trans_a &&
           before->step->permit.integers == p->step->permit.integers && last->mats == 1 &&
           st->mats == 1 && st->experts.ids == NULL && last->experts.ids == NULL &&
           last->K == st->K && last->rows == st->rows && last->n_row == st->n_row &&
           memcmp(last->row_dim, st->row_dim, sizeof(int) * (size_t)st->n_row) == 0 &&
           memcmp(last->row_extent, st->row_extent, sizeof(int64_t) * (size_t)st->n_row) == 0;
}

void matmul_follow(const problem_t *p, const before_t *before, const void *config, void *state,
                   choice_t *choice)
{
    const matmul_config_t *c = config;
    const matmul_state_t *last = before->state;
    matmul_state_t *st = state;
    const bool same = matmul_same_rows(p, before, st);
    st->blocks.left = same && blocks_alike(before->config, &last->blocks, config, &st->blocks);
    st->left = same && last->whole && st->whole &&
               ((const matmul_config_t *)before->config)->rows == c->rows;
    if (st->blocks.left || st->left) {
        add_way(choice, "A", ways_matmul_activation, NULL);
    }
    choice->first = matmul_first_phase(st);
}

sinter_status_t matmul_start(const kernel_t *self, const problem_t *p, const void *config,
                             void *state)
{
    matmul_state_t *st = state;
    (void)self, (void)config;
    if (p->step->tail != NULL) {
        quant_tail_start(p->step->tail, p->frame, &st->tail);
    }
    return sinter_success;
}

/* ---- the drivers ----------------------------------------------------------------------------- */

#define MATMUL                                                                                 \
    .step = STEP_MATMUL, .phases = 2, .setup = setup, .choose = choose, .start = matmul_start, \
    .follow = matmul_follow, .check = matmul_check, .checked = matmul_checked, .work = matmul_work
const driver_t driver_matmul_panel = {MATMUL, .arithmetic = IN_F32};
const driver_t driver_matmul_panel_bf16 = {MATMUL, .arithmetic = IN_BF16, .refuse = refuse_bf16};
const driver_t driver_matmul_blocks = {MATMUL, .arithmetic = IN_INT8, .refuse = blocks_refuse};
