/* The matmul kernels for few rows of A and weights in tiles (numeric/tiles.h), which the caller has
 * given or the constant cache has made. Rows of A are brought into the form that the micro-kernels
 * want; rows of codes become their codes less their zero points. Rows that do not suit integers,
 * or whose sums might leave the range of floats, are multiplied one by one with codes that are
 * dequantised first. */
#include <float.h>
#include <string.h>

#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/drivers/common/products.h"
#include "backend_xsmm/drivers/matmul/matmul_tiles.h"
#include "base/status.h"
#include "graph/tensor.h"
#include "numeric/tiles.h"

/* ---- selection ------------------------------------------------------------------------------- */

static bool are_scales(const plan_t *plan, int value, const factors_of_scales_t *by)
{
    tiles_values_t values;
    const sinter_data_type_t type = plan->values[value].lt.data_type;
    return tiled_values_type(type, 0, &values) &&
           (by != NULL || dtype_traits(type)->cls != DTYPE_INT) &&
           (by == NULL || are_scales(plan, by->value, NULL));
}

/* The type of whole codes. */
static sinter_data_type_t type_of_codes(const plan_t *plan, const operand_t *b)
{
    return b->split != sinter_data_type_undef ? b->split : plan->values[b->data].lt.data_type;
}

static bool are_zero_points(const plan_t *plan, const operand_t *b)
{
    const sinter_data_type_t codes = type_of_codes(plan, b);
    const plan_value_t *zp = &plan->values[b->zp];
    const dtype_traits_t *t = dtype_traits(zp->lt.data_type);
    return b->offsets ? are_scales(plan, b->zp, b->zp_by)
                      : tiles_kept(zp->tiled) == 0 && t->cls == DTYPE_INT && t->bits <= 8 &&
                            dtype_traits(codes)->cls == DTYPE_INT;
}

/* Why scales or zero points do not lie in tiles: they have one value for each group of whole tiles
 * of K, or but for zero points of halves of tiles. Columns of a strip have values of their own, or
 * share as many values as one load brings. */
static const char *refuse_values(const plan_t *plan, const operand_t *b, int value,
                                 const int8_t *dim_of, int across, int along, bool several)
{
    const bool halves = value == b->scale || b->offsets;
    const lt_t *lt = &plan->values[value].lt, *data = &plan->values[b->data].lt;
    const int64_t K = data->dims[along], N = data->dims[across];
    const int64_t values = dim_of[across] < 0 ? 1 : lt->dims[dim_of[across]],
                  columns = quant_group_size(N, values, b->group_size[across]);
    if (values > 1 && columns % TILES_COLUMNS != 0 && TILES_COLUMNS % columns != 0) {
        return "columns of B share scales or zero points in groups that are not 2, 4, 8 or a "
               "multiple of 16 of them";
    }
    const int of_matrix = several ? dim_of[data->ndims - 3] : -1;
    if (several &&
        (values != N || of_matrix < 0 || lt->dims[of_matrix] != data->dims[data->ndims - 3])) {
        return "matrices of B, or their columns, share scales or zero points";
    }
    const int64_t groups = dim_of[along] < 0 ? 1 : lt->dims[dim_of[along]];
    const int64_t group = groups > 1 ? quant_group_size(K, groups, b->group_size[along]) : TILES_K;
    return group % TILES_K != 0 && !(halves && group == TILES_K / 2 && K % TILES_K == 0)
               ? "groups of B along K are not whole tiles of 32 elements"
               : NULL;
}

/* Why scales or zero points of A change inside a tile, as far as is known. */
static const char *refuse_groups_of_a(const problem_t *p, int value, const int8_t *dim_of)
{
    const matmul_params_t *m = &p->step->p.matmul;
    const int ndims = problem_ndims(p, m->a.data), along = ndims - (m->trans_a ? 2 : 1),
              own = value < 0 || along < 0 ? -1 : dim_of[along];
    if (own < 0) {
        return NULL;
    }
    const int64_t K = problem_dim(p, m->b.data, m->trans_b ? 1 : 2),
                  groups = problem_dim(p, value, problem_ndims(p, value) - own);
    return groups > 1 && quant_group_size(K, groups, m->a.group_size[along]) % TILES_K != 0
               ? "groups of A along K are not whole tiles of 32 elements"
               : NULL;
}

/* Why products are not of integers. */
static const char *refuse_integers(const problem_t *p)
{
    const operand_t *a = &p->step->p.matmul.a;
    const integers_t kind = p->step->permit.integers;
    if (codes_type(type_of_codes(p->plan, &p->step->p.matmul.b)) == NULL) {
        return "B is made of floats";
    }
    if (kind == NO_INTEGERS) {
        return MODE_HAS_NO_INTEGERS;
    }
    if (kind != EXACT_CODES) {
        return a->scale >= 0 || dtype_traits(problem_type(p, a->data))->bits < 16
                   ? A_HAS_NO_INTEGERS
                   : NULL;
    }
    const char *why = refuse_groups_of_a(p, a->scale, a->scale_dim);
    return why != NULL ? why : refuse_groups_of_a(p, a->zp, a->zp_dim);
}

const char *matmul_refuse_tiles(const plan_t *plan, const step_t *step)
{
    const matmul_params_t *m = &step->p.matmul;
    const operand_t *b = &m->b;
    const lt_t *lt = &plan->values[b->data].lt,
               *scale = b->scale < 0 ? NULL : &plan->values[b->scale].lt,
               *zp = b->zp < 0 ? NULL : &plan->values[b->zp].lt;
    const int last = lt->ndims - 1, across = m->trans_b ? last - 1 : last,
              along = m->trans_b ? last : last - 1;
    if (tiles_table(plan->features) == NULL) {
        return "without AVX2, products read B where it lies";
    }
    if (last < 1 || !lt_dims_known(lt) || (scale != NULL && !lt_dims_known(scale)) ||
        (zp != NULL && !lt_dims_known(zp))) {
        return "dims of B are not known";
    }
    for (int d = 0; d <= last; d++) {
        if (d < last - 2 && m->conv == NULL ? lt->dims[d] != 1 : lt->dims[d] < 1) {
            return "matrices of B have several dims, or no elements";
        }
    }
    if (m->conv != NULL) {
        return patches_refuse_tiles(plan, step);
    }
    const bool several = last > 1 && (lt->dims[last - 2] > 1 || m->experts >= 0);
    if (several && lt->dims[across] % TILES_COLUMNS != 0) {
        return "several matrices of B have columns that are no multiple of 16";
    }
    if (matmul_b_is_plain(step)) {
        return tiles_take_floats(lt->data_type) ? NULL : "no tiles for the data types of B";
    }
    if (scale == NULL) {
        return "B has no scales";
    }
    if (tiles_type(type_of_codes(plan, b)) == NULL || !are_scales(plan, b->scale, b->scale_by) ||
        (zp != NULL && !are_zero_points(plan, b))) {
        return "no tiles for the data types of B";
    }
    const char *why = refuse_values(plan, b, b->scale, b->scale_dim, across, along, several);
    return why != NULL || b->zp < 0
               ? why
               : refuse_values(plan, b, b->zp, b->zp_dim, across, along, several);
}

/* Few rows of A, or an unknown number, times columns of f8_e4m3 that lie along K: the rows kernels
 * spend fewer shuffles on a code, as they take codes in the order in which they lie. With AVX-512,
 * tiles make up for it where no half of a tile has scales of its own. */
static const char *refuse_e4m3(const problem_t *p, int along)
{
    enum { FEW = 4 };
    const operand_t *b = &p->step->p.matmul.b;
    const lt_t *lt = &p->plan->values[b->data].lt, *scale = &p->plan->values[b->scale].lt;
    const int64_t K = lt->dims[along],
                  groups = b->scale_dim[along] < 0 ? 1 : scale->dims[b->scale_dim[along]];
    const bool columns = lt->layout_type == sinter_layout_type_strided && lt_strides_known(lt)
                             ? lt->strides[along] == 1
                             : p->step->p.matmul.trans_b,
               halves = groups > 1 && quant_group_size(K, groups, b->group_size[along]) < TILES_K;
    return columns && (halves || !has_features(p->plan->features, NEEDS_AVX512)) &&
                   matmul_rows_of(p) <= FEW
               ? "for up to 4 rows of A, columns of f8_e4m3 are read where they lie: there is no "
                 "AVX-512, or groups of 16"
               : NULL;
}

const char *matmul_refuse_copy(const plan_t *plan, const step_t *step)
{
    const problem_t problem = {.plan = plan, .step = step};
    const matmul_params_t *m = &step->p.matmul;
    const lt_t *lt = &plan->values[m->b.data].lt;
    const int last = lt->ndims - 1;
    const int64_t N = lt->dims[m->trans_b ? last - 1 : last],
                  K = lt->dims[m->trans_b ? last : last - 1];
    if (!matmul_b_is_plain(step)) {
        return lt->data_type != sinter_f8_e4m3 || m->experts >= 0 || plan->deterministic
                   ? NULL
                   : refuse_e4m3(&problem, m->trans_b ? last : last - 1);
    }
    if (m->conv != NULL) { /* the image is what takes memory and time */
        return N < TILES_COLUMNS / 2 ? "more than half of B's tiles would be empty" : NULL;
    }
    if (plan->deterministic) { /* what is chosen for few rows must serve many of them */
        return NULL;
    }
    /* A block of a panel has at most as many rows, and B is unpacked again for each block. */
    enum { MOST = MM_ROWS };
    if (matmul_refuse_rows(&problem, MOST) != NULL) {
        return "for more than 512 rows of A, floats of B that lie as they are serve as well";
    }
    /* In doubles: dims of a tensor that is not there yet. */
    const double room = (double)tiles_strips(N) * TILES_COLUMNS * (double)tiles_along(K) * TILES_K;
    return room > 1.125 * (double)N * (double)K ? "more than an eighth of B's tiles would be empty"
                                                : NULL;
}

static const char *refuse_b(const problem_t *p)
{
    const matmul_params_t *m = &p->step->p.matmul;
    return !m->tiled ? m->why_no_tiles != NULL ? m->why_no_tiles : "B is not constant"
           : matmul_lies_in_tiles(p) == 0 ? "the constant cache has no room for tiles of B"
                                          : NULL;
}

/* A deterministic plan multiplies any number of rows, and so adds each of them in the same order.
 * Blocks of rows must not divide the groups of a tail. */
static const char *refuse_rows(const problem_t *p)
{
    const bool any = p->plan->deterministic && p->step->p.matmul.conv == NULL;
    return !p->step->p.matmul.tiled  ? NULL
           : !any                    ? matmul_refuse_rows(p, TILES_ROWS)
           : matmul_tail_rows(p) > 1 ? "groups of results have several rows"
                                     : NULL;
}

/* Floats of experts with many rows each are unpacked for larger blocks of rows. Integers are not:
 * blocks of them would quantise rows again for each panel. */
static const char *refuse_many_rows(const problem_t *p)
{
    const matmul_params_t *m = &p->step->p.matmul;
    const int64_t n = m->experts >= 0 ? problem_dim(p, m->b.data, 3) : 0;
    return n > 0 && !p->plan->deterministic && matmul_rows_of(p) / n >= TILES_ROWS
               ? "experts have 16 rows and more on average"
               : NULL;
}

/* Why products of floats take less time: without an instruction that sums products of bytes, codes
 * of 8 bits are two of four bits each, and two limbs take twice as many products. */
static const char *refuse_limbs(const kernel_t *self, const problem_t *p)
{
    const plan_value_t *b = &p->plan->values[p->step->p.matmul.b.data];
    const bool parts = codes_type(b->lt.data_type)->form == CODES_BYTES &&
                       tiles_kept(b->tiled) == 0 && !codes_table(self->needs)->sums_bytes;
    return parts && p->step->permit.integers == TWO_LIMBS ? BYTES_NEED_VNNI : NULL;
}

const char *tiles_refuse(const kernel_t *self, const problem_t *p, bool integers)
{
    const char *why = refuse_b(p);
    why = why != NULL || !integers ? why : refuse_integers(p);
    return why != NULL ? why : integers ? refuse_limbs(self, p) : refuse_many_rows(p);
}

static const char *refuse(const kernel_t *self, const problem_t *p)
{
    const char *why = refuse_rows(p);
    return why != NULL ? why : tiles_refuse(self, p, self->driver->arithmetic == IN_INT8);
}

/* ---- memory ---------------------------------------------------------------------------------- */

size_t tiles_buffers(const tiles_config_t *c, int64_t K, int rows, unsigned char *base,
                     tiles_buffers_t *out)
{
    const bool integers = c->kind != NO_INTEGERS;
    const size_t tiles = (size_t)tiles_along(K), all = tiles * (size_t)tiles_rows(rows),
                 ints = integers ? all : 0, floats = integers ? tiles : all;
    size_t at = 0;
    out->ints = carve_limbs(base, &at, ints * TILES_K, c->limbs == 2 ? ints * TILES_K : 0, ints, 0);
    out->ints.first = carve(base, &at, ints, sizeof(int32_t));
    out->x = carve(base, &at, floats * TILES_K, sizeof(float));
    out->sums = carve(base, &at, 2 * floats, sizeof(float));
    return at;
}

/* A row of A as integers of its own, [tile], and whether it is for integers. */
static size_t carve_row_of_a(const tiles_config_t *c, int64_t K, unsigned char *base,
                             limb_rows_t *out, bool **usable)
{
    const size_t tiles = (size_t)tiles_along(K), bytes = tiles * TILES_K;
    size_t at = 0;
    *out = carve_limbs(base, &at, bytes, c->limbs == 2 ? bytes : 0, tiles, 0);
    out->first = carve(base, &at, tiles, sizeof(int32_t));
    *usable = carve(base, &at, 1, sizeof(bool));
    return at;
}

void tiles_reserve_rows(const tiles_config_t *c, matmul_state_t *st, choice_t *choice)
{
    enum { MOST_BYTES = 64 << 20 };
    experts_t *e = &st->experts;
    limb_rows_t row;
    bool *usable;
    if (e->ids == NULL || c->kind == NO_INTEGERS || e->rows_of_a < 1) {
        return;
    }
    const size_t bytes = carve_row_of_a(c, st->K, NULL, &row, &usable);
    if (bytes > 0 && (size_t)e->rows_of_a <= MOST_BYTES / bytes) {
        e->row_bytes = bytes;
        e->integers_at = scratch_round(choice->shared_bytes);
        choice->shared_bytes = e->integers_at + (size_t)e->rows_of_a * bytes;
    }
}

/* ---- setup ----------------------------------------------------------------------------------- */

void tiles_configure(const kernel_t *self, const problem_t *p, tiles_config_t *c)
{
    matmul_configure(self, p, TILES_ROWS, false, false, &c->panel);
    c->kind = self->driver->arithmetic == IN_INT8 ? p->step->permit.integers : NO_INTEGERS;
    c->limbs = c->kind == EXACT_CODES ? matmul_code_limbs(p) : limbs_of(c->kind);
}

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    const matmul_params_t *m = &p->step->p.matmul;
    tiles_config_t *c = ARENA_NEW(arena, tiles_config_t, 1);
    tiles_buffers_t buffers;
    textbuf_t note;
    if (c == NULL) {
        return sinter_out_of_memory;
    }
    tiles_configure(self, p, c);
    text_init(&note, arena);
    text_add(&note, "up to %d rows of A times tiles of B: %s", TILES_ROWS,
             c->kind != NO_INTEGERS       ? integers_name(c->kind)
             : matmul_b_is_plain(p->step) ? "f32 FMA"
                                          : DECODED_FMA);
    const bool open = matmul_rows_of(p) < 0;
    const int64_t K = problem_dim(p, m->b.data, m->trans_b ? 1 : 2);
    *out =
        (candidate_t){.config = c,
                      .state_bytes = sizeof(matmul_state_t),
                      .share_bytes = matmul_share_bytes(p, &c->panel),
                      .reserve_bytes = open ? tiles_buffers(c, K, TILES_ROWS, NULL, &buffers) : 0,
                      .note = note.text};
    return note.oom ? sinter_out_of_memory : sinter_success;
}

/* ---- choose ---------------------------------------------------------------------------------- */

static const char *refuse_way(int kind, const void *config, void *state)
{
    const tiles_config_t *c = config;
    (void)state;
    return c->kind == (integers_t)kind ? NULL : "";
}

static const char *refuse_plain(int kind, const void *config, void *state)
{
    const matmul_state_t *st = state;
    (void)kind, (void)config;
    return st->tiled.plain != sinter_data_type_undef ? NULL : "";
}

const way_row_t ways_matmul_tiles[] = {{EXACT_CODES_NAME " on tiles", refuse_way, EXACT_CODES},
                                       {TWO_LIMBS_NAME " on tiles", refuse_way, TWO_LIMBS},
                                       {ONE_LIMB_NAME " on tiles", refuse_way, ONE_LIMB},
                                       {"f32 FMA on tiles of floats", refuse_plain, 0},
                                       {"f32 FMA on tiles", NULL, 0}};

static int rows_at_once(const matmul_state_t *st)
{
    return (int)at_most(st->rows, TILES_ROWS);
}

/* Blocks of TILES_ROWS rows that a share has loaded at a time. */
enum { MOST_BLOCKS = 2 };

static int blocks_at_once(const matmul_state_t *st)
{
    return (int)((at_most(st->rows, st->block) + TILES_ROWS - 1) / TILES_ROWS);
}

static sinter_status_t choose(const kernel_t *self, const problem_t *p, const void *config,
                              void *state, choice_t *choice)
{
    const tiles_config_t *c = config;
    matmul_state_t *st = state;
    tiles_buffers_t buffers;
    SG_TRY(matmul_bind(self, p, &c->panel, st));
    tiled_bind(self->needs, &st->b.base, st->K, &st->tiled);
    take_way(ways_matmul_tiles, NULL, c, st, choice);
    st->blocks = (blocks_state_t){0};
    matmul_choose_panel(st, p->frame->shares);
    if (st->rows > TILES_ROWS && st->experts.ids == NULL) {
        st->block = MOST_BLOCKS * TILES_ROWS;
        st->n_blocks = (st->rows + st->block - 1) / st->block;
    }
    choice->shared_bytes = (size_t)p->frame->shares *
                           tiles_buffers(c, st->K, rows_at_once(st), NULL, &buffers) *
                           (size_t)at_least(blocks_at_once(st), 1);
    experts_reserve(st, choice);
    tiles_reserve_rows(c, st, choice);
    SG_TRY(matmul_count(p->step, st));
    choice->shares_bytes = st->shares_bytes;
    choice->first = st->experts.ids != NULL ? 0 : 1;
    return sinter_success;
}

/* ---- work ------------------------------------------------------------------------------------ */

/* One tile of one row of floats, and the sums of its halves; gives the bits of its largest
 * magnitude. */
static uint32_t place_row(const float *from, float *to, float *sums)
{
    uint32_t most = 0;
    sums[0] = sums[1] = 0;
    for (int i = 0; i < TILES_K; i++) {
        uint32_t bits;
        memcpy(&bits, from + i, sizeof bits);
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
        to[i] = from[i];
        sums[i / (TILES_K / 2)] += from[i];
    }
    return most;
}

/* Codes of A less their zero points. False: their scales or zero points are not for integers. */
static bool load_codes(tiles_task_t *w)
{
    enum { IN_BLOCK = MM_K / TILES_K };
    const int64_t K = w->st->K;
    const int rows = w->t.rows, room = tiles_rows(rows);
    const float steps = blocks_steps(w->st->a.base.codes.dtype);
    float scale[TILES_ROWS * IN_BLOCK], zp[TILES_ROWS * IN_BLOCK];
    for (int64_t k = 0; k < K; k += MM_K) {
        const int kn = (int)at_most(K - k, MM_K);
        if (!matmul_load_codes(&w->t, k, kn, TILES_K, scale, zp, IN_BLOCK)) {
            return false;
        }
        for (int e = 0; e < kn; e += TILES_K) {
            const int64_t tile = (k + e) / TILES_K * room;
            const codes_raw_t raw = {.x = w->t.buf.a + e,
                                     .scale = scale + e / TILES_K,
                                     .zp = zp + e / TILES_K,
                                     .ldx = MM_LDA,
                                     .ld = IN_BLOCK,
                                     .n = (int)at_most(kn - e, TILES_K),
                                     .factor = steps};
            const limb_rows_t to = limb_rows_from(&w->buf.ints, tile * TILES_K, tile);
            w->st->tiled.table->encode(&raw, rows, w->c->limbs, &to);
        }
    }
    return true;
}

/* The task's rows of A, loaded: as integers or floats. False: some rows are not for them. Plain
 * floats take all. */
static bool place_rows(tiles_task_t *w)
{
    const int64_t K = w->st->K;
    const int rows = w->t.rows, room = tiles_rows(rows);
    uint32_t most[TILES_ROWS] = {0};
    bool usable = true;
    if (w->c->kind == EXACT_CODES) {
        return load_codes(w);
    }
    for (int64_t k = 0; k < K; k += MM_K) {
        const int kn = (int)at_most(K - k, MM_K);
        matmul_load_a(&w->t, k, kn);
        for (int e = 0; e < kn; e += TILES_K) {
            const int64_t tile = (k + e) / TILES_K * room;
            const float *from = w->t.buf.a + e;
            const limb_rows_t to = limb_rows_from(&w->buf.ints, tile * TILES_K, tile);
            if (w->c->kind != NO_INTEGERS) {
                usable =
                    w->st->tiled.table->quantise(from, MM_LDA, rows, w->c->limbs, &to) && usable;
                continue;
            }
            for (int r = 0; r < rows; r++) {
                const float *row = from + (size_t)r * MM_LDA;
                float *placed = w->buf.x + (tile + r) * TILES_K;
                if (w->st->tiled.plain != sinter_data_type_undef) {
                    memcpy(placed, row, TILES_K * sizeof *row);
                    continue;
                }
                const uint32_t bits = place_row(row, placed, w->buf.sums + 2 * (tile + r));
                most[r] = bits > most[r] ? bits : most[r];
            }
        }
    }
    for (int r = 0; r < rows; r++) {
        usable = usable && is_in_product_range((int32_t)most[r]);
    }
    return usable;
}

limb_rows_t tiles_row_of_a(const tiles_task_t *w, int64_t row, bool **usable)
{
    const experts_t *e = &w->st->experts;
    limb_rows_t found;
    carve_row_of_a(w->c, w->st->K,
                   (unsigned char *)w->t.worker->shared + e->integers_at +
                       (size_t)(row - e->first_row) * e->row_bytes,
                   &found, usable);
    return found;
}

void tiles_make_rows(tiles_task_t *w, int tid, int nth)
{
    const matmul_state_t *st = w->st;
    int64_t begin, end, at[SINTER_MAX_NDIMS] = {0};
    share(st->experts.rows_of_a, tid, nth, &begin, &end);
    w->t.order = NULL;
    for (int64_t r = 0; r < st->rows; r++, walk_next(st->n_row, st->row_extent, at)) {
        const int64_t row = walk_place(st->n_row, at, st->experts.step);
        bool first = row >= begin && row < end, *usable; /* of the rows that are this row of A */
        for (int k = 0; k < st->n_row; k++) {
            first = first && (st->experts.step[k] > 0 || at[k] == 0);
        }
        if (first) {
            w->buf.ints = tiles_row_of_a(w, row, &usable);
            matmul_seek_rows(&w->t, 0, r, 1);
            *usable = place_rows(w);
        }
    }
}

/* The task's rows, from there. */
static bool gather_rows(tiles_task_t *w)
{
    const int rows = w->t.rows, room = tiles_rows(rows);
    const limb_rows_t *to = &w->buf.ints;
    for (int r = 0; r < rows; r++) {
        bool *usable;
        const int64_t row = experts_row_of_a(w->st, w->t.order[w->t.row0 + r]);
        const limb_rows_t from = tiles_row_of_a(w, row, &usable);
        if (!*usable) {
            return false;
        }
        for (int64_t t = 0, at = r; t < w->st->tiled.tiles; t++, at += room) {
            memcpy(to->byte[0] + at * TILES_K, from.byte[0] + t * TILES_K, TILES_K);
            if (w->c->limbs == 2) {
                memcpy(to->byte[1] + at * TILES_K, from.byte[1] + t * TILES_K, TILES_K);
            }
            to->scale[at] = from.scale[t];
            to->sum[at] = from.sum[t];
            to->first[at] = from.first[t];
        }
    }
    return true;
}

bool tiles_load_rows(tiles_task_t *w)
{
    return w->st->experts.row_bytes > 0 ? gather_rows(w) : place_rows(w);
}

/* Row r of the task alone, as floats. */
static void load_row(tiles_task_t *w, int r)
{
    matmul_task_t one = w->t;
    one.row0 += r;
    one.rows = 1;
    for (int64_t k = 0; k < w->st->K; k += MM_K) {
        const int kn = (int)at_most(w->st->K - k, MM_K);
        matmul_load_a(&one, k, kn);
        for (int e = 0; e < kn; e += TILES_K) {
            const int64_t tile = (k + e) / TILES_K;
            place_row(w->t.buf.a + e, w->buf.x + tile * TILES_K, w->buf.sums + 2 * tile);
        }
    }
}

/* acc = the product of `rows` rows with the strip at column c of the panel. */
static void multiply_strip(const tiles_task_t *w, int rows, bool each, int c, float *acc)
{
    const tiled_b_t *tiled = &w->st->tiled;
    const bool floats = w->c->kind == NO_INTEGERS || each;
    const int room = tiles_rows(rows);
    const int64_t strip = matmul_strip(&w->t, w->t.n0 + c);
    int n;
    if (tiled->plain != sinter_data_type_undef) {
        tiled->table->plain(tiled->data + strip * tiled->strip, tiled->plain, tiled->tiles,
                            w->buf.x, rows, acc + c, MM_PANEL);
        return;
    }
    for (int r = 0; r < rows; r++) {
        memset(acc + (size_t)r * MM_PANEL + c, 0, TILES_COLUMNS * sizeof *acc);
    }
    for (int64_t t = 0; t < tiled->tiles; t += n) {
        tiles_coefs_t coefs;
        n = tiled_piece(tiled, t);
        const tiles_strip_t b =
            tiled_coefs(tiled, strip, t, n, floats ? 1 : tiled->type->unit, &coefs);
        const int64_t block = t * room;
        if (floats) {
            tiled->table->floats(&b, tiled->type, tiled->values, w->buf.x + block * TILES_K,
                                 w->buf.sums + 2 * block, rows, each, acc + c, MM_PANEL);
        } else {
            const limb_rows_t a = limb_rows_from(&w->buf.ints, block * TILES_K, block);
            tiled->table->ints(&b, tiled->type, tiled->bytes, &a, rows, w->c->limbs, acc + c,
                               MM_PANEL);
        }
    }
}

/* Whether the sums of row r and the strip at column c are finite. */
static bool strip_fits(const tiles_task_t *w, int r, int c)
{
    return matmul_within(w->t.buf.acc + (size_t)r * MM_PANEL + c,
                         (int)at_most(w->t.cols - c, TILES_COLUMNS), FLT_MAX);
}

/* Sums of codes meet scales and offsets later: where they are not finite, the numbers themselves
 * may add up to something that is. What is computed so, by dequantised codes, depends on a row and
 * a strip alone, so that neither other rows nor the division of work change it. False: A must be
 * loaded again, as single rows were in its place. */
bool tiles_run_panel(tiles_task_t *w, bool usable)
{
    const bool plain = w->st->tiled.plain != sinter_data_type_undef;
    bool kept = true;
    for (int c = 0; c < w->t.cols && usable; c += TILES_COLUMNS) {
        multiply_strip(w, w->t.rows, false, c, w->t.buf.acc);
    }
    if (usable && (plain || matmul_sums_fit(&w->t))) {
        return true;
    }
    report_detour(w->t.worker,
                  usable ? "some row by row (scales or offsets of B are not finite or too large)"
                  : w->c->kind == EXACT_CODES
                      ? "some row by row (scales or zero points of A do not suit integers)"
                      : "some row by row (rows of A are not finite, too small or too large)");
    for (int r = 0; r < w->t.rows; r++) {
        tiles_task_t one = *w;
        one.t.row0 += r;
        one.t.rows = 1;
        one.t.buf.acc += (size_t)r * MM_PANEL;
        const bool own = usable || tiles_load_rows(&one);
        bool floats = false; /* whether the row is loaded as floats that are dequantised for */
        kept = kept && usable;
        for (int c = 0; c < w->t.cols; c += TILES_COLUMNS) {
            if (!usable && own) {
                multiply_strip(&one, 1, false, c, one.t.buf.acc);
            }
            if (own && strip_fits(&one, 0, c)) {
                continue;
            }
            if (!floats) {
                load_row(&one, 0);
            }
            multiply_strip(&one, 1, true, c, one.t.buf.acc);
            kept = kept && w->c->kind != NO_INTEGERS;
            floats = true;
            if (!usable && own && w->c->kind == NO_INTEGERS) { /* the next strip wants sums, too */
                floats = false;
                tiles_load_rows(&one);
            }
        }
    }
    return kept;
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const tiles_config_t *c = config;
    const matmul_state_t *m = state;
    tiles_task_t t = {.t = {.c = &c->panel, .st = m, .worker = w, .tail = p->step->tail != NULL},
                      .c = c,
                      .st = m};
    int64_t i, block = -1;
    bool usable[MOST_BLOCKS] = {false}, loaded[MOST_BLOCKS] = {false};
    (void)self;
    matmul_buffers(&c->panel, p->step, w->scratch, &t.t.buf);
    if (w->phase == 0) {
        if (m->experts.ids != NULL && w->tid == 0) {
            experts_sort(m, w, 0, m->rows);
        }
        if (m->experts.row_bytes > 0) {
            tiles_make_rows(&t, w->tid, w->nth);
        }
        return;
    }
    matmul_items_t items = matmul_items(&t.t);
    const size_t own = tiles_buffers(c, m->K, rows_at_once(m), NULL, &t.buf);
    unsigned char *buffers =
        (unsigned char *)w->shared + own * (size_t)blocks_at_once(m) * (size_t)w->tid;
    while (matmul_next(&t.t, &items, &i)) { /* panels of a block of rows follow one another */
        const int64_t of_block = m->experts.ids != NULL ? 1 : m->n_blocks, at = i / m->n_panels;
        matmul_seek(&t.t, m->experts.ids != NULL
                              ? i
                              : (at / of_block * m->n_panels + i % m->n_panels) * of_block +
                                    at % of_block);
        const int64_t row0 = t.t.row0, rows = t.t.rows;
        for (int64_t r = 0, b = 0; r < rows; r += TILES_ROWS, b++) {
            unsigned char *of_rows = buffers + own * (size_t)b;
            t.t.row0 = row0 + r;
            t.t.rows = (int)at_most(rows - r, TILES_ROWS);
            tiles_buffers(c, m->K, rows_at_once(m), of_rows, &t.buf);
            if (at != block || !loaded[b]) {
                if (t.t.rows < tiles_rows(t.t.rows) && at != block) {
                    memset(of_rows, 0, own); /* rows that are missing */
                }
                usable[b] = tiles_load_rows(&t);
            }
            loaded[b] = tiles_run_panel(&t, usable[b]);
            matmul_finish(&t.t);
        }
        block = at;
    }
}

#define TILES                                                                                    \
    .step = STEP_MATMUL, .phases = 2, .takes = "up to 16 rows and B in tiles", .refuse = refuse, \
    .setup = setup, .choose = choose, .start = matmul_start, .check = matmul_check,              \
    .checked = matmul_checked, .work = work
const driver_t driver_matmul_tiles = {TILES, .arithmetic = IN_F32};
const driver_t driver_matmul_tiles_int8 = {TILES, .arithmetic = IN_INT8};
