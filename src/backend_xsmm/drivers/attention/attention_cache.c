/* Attention over caches in tiles: products of rows with tiles, and unpacking for other kernels. */
#include "backend_xsmm/drivers/attention/attention_cache.h"

#include <math.h>
#include <string.h>

#include "backend_xsmm/ukernels/few_rows.h"
#include "base/fetch.h"
#include "numeric/tiles_bulk.h"

/* ---- binding --------------------------------------------------------------------------------- */

/* How far apart matrices and blocks of 256 tokens are: all blocks of a matrix follow one another,
 * or, where a block has the heads of its tokens, all its matrices do. some, all: bytes of a matrix
 * of up to 256 tokens, and of all of them. */
static void set_apart(int64_t heads, int64_t some, int64_t all, int64_t *matrix, int64_t *block)
{
    *matrix = heads > 0 ? some : all;
    *block = heads > 0 ? heads * some : some;
}

static int64_t of_block(int64_t tokens)
{
    return at_most(tokens, TILES_BLOCK);
}

static void bind_plane(const groups_t *g, int64_t tokens, int groups, cache_plane_t *to)
{
    int64_t some = 0, all = 0;
    *to = (cache_plane_t){.first = {.data = g->data, .by_lines = 1, .columns = 1}};
    if (g->type == NULL) {
        to->first.data = NULL;
        return;
    }
    tiled_values_type(g->dtype, 0, &to->first.type);
    if (g->type->cls == DTYPE_INT) { /* integers of any type are bytes */
        to->first.type = g->dtype == sinter_u8 ? TILES_U8 : TILES_S8;
    }
    to->size = g->type->cls == DTYPE_INT ? 1 : g->type->bits / 8;
    tiles_of_values(TILED_VALUES, g->dtype, groups, of_block(tokens), &some);
    tiles_of_values(TILED_VALUES, g->dtype, groups, tokens, &all);
    set_apart(g->heads, some, all, &to->matrix, &to->block);
}

/* The same of codes, and elements of the tensor from a matrix to the next one. */
static void codes_apart(const matrices_t *op, bool is_v, int64_t *matrix, int64_t *block,
                        int64_t *of_matrix)
{
    const groups_t *g = &op->base.codes;
    const int64_t rows = op->dims[op->ndims - 2], columns = op->dims[op->ndims - 1];
    const int bits = tiles_bits(g->tiled, g->dtype);
    int64_t some = 0, all = 0;
    tiles_of_codes(bits, is_v ? of_block(rows) : rows, is_v ? columns : of_block(columns), &some);
    tiles_of_codes(bits, rows, columns, &all);
    set_apart(g->heads, some, all, matrix, block);
    *of_matrix = g->heads == 0 ? rows * columns : is_v ? columns : rows;
}

void cache_bind(features_t features, const matrices_t *op, bool is_v, bool ints, cache_side_t *to)
{
    const int64_t rows = op->dims[op->ndims - 2], columns = op->dims[op->ndims - 1],
                  tokens = is_v ? rows : columns, head = is_v ? columns : rows;
    const matrix_t *m = &op->base;
    const axis_t *along = is_v ? &m->scale.column : &m->scale.row;
    const bool scaled = m->scale.type != NULL;
    matrix_t codes = *m;
    codes.zp.type = is_v ? NULL : codes.zp.type;
    *to = (cache_side_t){.head = (int)head, .groups = 1};
    if (is_v && scaled) { /* its scales go into the weights */
        codes.scale.row = (axis_t){0, 1};
    }
    const features_t floats = {features.bits & (NEEDS_AVX512)};
    to->ints = ints && scaled && codes_type(m->codes.dtype) != NULL;
    to->floats = tiles_table(floats);
    to->quant = quant_rows(floats);
    to->fn = eltwise_table(floats);
    tiled_bind(to->ints ? features : floats, &codes, rows, &to->b);
    codes_apart(op, is_v, &to->matrix, &to->block, &to->of_matrix);
    to->heads = at_least(m->codes.heads, 1);
    if (scaled) {
        to->groups = (int)axis_groups(along, head);
        to->size = (int)(to->groups == 1 ? head : along->group);
        to->checks_tiny = m->scale.type->digits >= 24 || m->scale.type->max >= 0x1p100f;
        bind_plane(&m->scale, tokens, to->groups, &to->scale);
    } else {
        to->size = (int)head;
    }
    bind_plane(&m->zp, tokens, to->groups, &to->zp);
    to->whole = !m->offsets && m->zp.type != NULL && m->zp.type->cls == DTYPE_INT;
    to->raises = to->whole && !to->ints && to->b.type->form == CODES_NIBBLES;
    for (int k = 0; k < TILES_K; k++) {
        to->less[0][k] = tiles_less(false, -to->b.values[0], k);
        to->less[1][k] = tiles_less(true, -to->b.values[0], k);
    }
    to->b.offsets = m->offsets;
    to->may_be_odd = !scaled || to->b.type->form == CODES_E5M2 || to->b.type->form == CODES_E4M3;
    for (int c = 0; c < TILES_COLUMNS; c++) {
        to->unit[c] = to->ints ? to->b.type->unit : 1;
    }
}

size_t cache_buffers(int rows, int64_t head, unsigned char *scratch, cache_buffers_t *out)
{
    const size_t room = (size_t)tiles_rows(rows), q = room * (size_t)tiles_along(head),
                 p = room * CACHE_TILES,
                 coefs = (size_t)CACHE_TOKENS * (size_t)tiles_strips(head); /* groups of 16 */
    size_t at = 0;
    out->q = carve_limbs(scratch, &at, q * TILES_K, q * TILES_K, q, 0);
    out->q.first = carve(scratch, &at, q, sizeof(int32_t));
    out->p = carve_limbs(scratch, &at, p * TILES_K, p * TILES_K, p, 0);
    out->p.first = carve(scratch, &at, p, sizeof(int32_t));
    out->q_floats = carve(scratch, &at, q * TILES_K, sizeof(float));
    out->q_sums = carve(scratch, &at, 2 * q, sizeof(float));
    out->p_floats = carve(scratch, &at, p * TILES_K, sizeof(float));
    out->scale = carve(scratch, &at, coefs, sizeof(float));
    out->zp = carve(scratch, &at, coefs, sizeof(float));
    out->by_group[0] = carve(scratch, &at, coefs, sizeof(float));
    out->by_group[1] = carve(scratch, &at, coefs, sizeof(float));
    out->add = carve(scratch, &at, room, sizeof(float));
    out->part = carve(scratch, &at, room * TILES_COLUMNS, sizeof(float));
    out->ragged = carve(scratch, &at, TILES_K * TILES_LINE, 1);
    out->usable = carve(scratch, &at, room, sizeof(bool));
    return at;
}

/* ---- where things are ------------------------------------------------------------------------ */

/* The number of the matrix that the item reads. */
static int64_t matrix_of(const cache_task_t *task)
{
    return task->side->of_matrix > 0 ? task->m.codes.first / task->side->of_matrix : 0;
}

/* Where the codes of the task's tokens begin. */
static const unsigned char *codes_of(const cache_task_t *task, bool is_v)
{
    const cache_side_t *side = task->side;
    const unsigned char *matrix =
        task->copy != NULL ? task->copy->codes : side->b.data + matrix_of(task) * side->matrix;
    const int64_t in_block = task->token % TILES_BLOCK;
    return matrix + task->token / TILES_BLOCK * side->block +
           (is_v ? in_block / TILES_K * side->b.tile : in_block / TILES_COLUMNS * side->b.strip);
}

/* Scales or zero points of the task's tokens; zeros for those of a strip that the cache lacks. */
static void load_plane(const cache_task_t *task, const cache_plane_t *plane, float unit, float *to)
{
    const cache_side_t *side = task->side;
    tiles_plane_t from = plane->first;
    const int64_t strip = task->token % TILES_BLOCK / TILES_COLUMNS,
                  lines = tiles_strips(task->tokens);
    if (from.data == NULL) {
        return;
    }
    if (task->copy != NULL) {
        from.data = plane == &side->scale ? task->copy->scale : task->copy->zp;
    } else {
        from.data += matrix_of(task) * plane->matrix + task->token / TILES_BLOCK * plane->block;
    }
    side->b.table->values(&from, strip * side->groups, (int)lines * side->groups, unit, to);
}

static const float ones[TILES_COLUMNS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

void cache_fetch(const cache_side_t *side, const matrix_t *m, int64_t token)
{
    enum { MOST = 1024 }; /* bytes, behind which the hardware finds the lines */
    const int64_t matrix = side->of_matrix > 0 ? m->codes.first / side->of_matrix : 0,
                  block = token / TILES_BLOCK;
    const cache_plane_t *const planes[] = {&side->scale, &side->zp};
    fetch_lines(side->b.data + matrix * side->matrix + block * side->block,
                at_most(side->block, MOST));
    for (int i = 0; i < 2; i++) {
        const cache_plane_t *p = planes[i];
        if (p->first.data != NULL) {
            fetch_lines(p->first.data + matrix * p->matrix + block * p->block,
                        at_most(at_most(p->matrix, p->block), MOST));
        }
    }
}

/* n tiles from `codes` on, without coefficients. */
static tiles_strip_t strip_of(const cache_side_t *side, const unsigned char *codes, int n)
{
    return (tiles_strip_t){.codes = codes,
                           .kept = side->b.kept,
                           .zero = side->b.zero,
                           .tiles = n,
                           .scale = side->unit,
                           .group = n,
                           .left = n,
                           .zp_group = n,
                           .zp_left = n};
}

/* ---- the queries ----------------------------------------------------------------------------- */

/* Whether a tile of a row is of a size that codes may be multiplied with. */
static bool place_floats(const float *x, int n, float *to, float *sums)
{
    int32_t most = 0;
    sums[0] = sums[1] = 0;
    for (int i = 0; i < TILES_K; i++) {
        const float v = i < n ? x[i] : 0;
        int32_t bits;
        memcpy(&bits, &v, sizeof bits);
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
        to[i] = v;
        sums[i / (TILES_K / 2)] += v;
    }
    return most < PRODUCT_RANGE_BEYOND;
}

void cache_queries(const cache_task_t *task)
{
    const cache_side_t *k = task->side;
    const cache_buffers_t *b = task->buffers;
    const int room = tiles_rows(task->rows), tiles = (int)tiles_along(k->head);
    for (int r = 0; r < task->rows; r++) {
        b->usable[r] = true;
    }
    if (task->rows < room) { /* rows that are multiplied for nothing */
        memset(b->q_floats, 0, (size_t)(room * tiles * TILES_K) * sizeof(float));
        memset(b->q.byte[0], 0, (size_t)(room * tiles * TILES_K));
        memset(b->q.byte[1], 0, (size_t)(room * tiles * TILES_K));
        memset(b->q.scale, 0, (size_t)(room * tiles) * sizeof(float));
        memset(b->q.sum, 0, (size_t)(room * tiles) * sizeof(int32_t));
        memset(b->q.first, 0, (size_t)(room * tiles) * sizeof(int32_t));
    }
    for (int t = 0; t < tiles; t++) {
        const int e = t * TILES_K, n = k->head - e < TILES_K ? k->head - e : TILES_K;
        float whole[TILES_ROWS * TILES_K];
        for (int r = 0; r < task->rows; r++) {
            const int at = t * room + r;
            b->usable[r] = place_floats(task->x + r * task->ldx + e, n, b->q_floats + at * TILES_K,
                                        b->q_sums + 2 * at) &&
                           b->usable[r];
            memcpy(whole + r * TILES_K, b->q_floats + at * TILES_K, sizeof(float) * TILES_K);
        }
        if (k->ints) {
            const limb_rows_t to = limb_rows_from(&b->q, t * room * TILES_K, t * room);
            const bool all = k->b.table->quantise(whole, TILES_K, task->rows, task->limbs, &to);
            for (int r = 0; r < task->rows && !all; r++) { /* some are: which ones? */
                const int64_t at = t * room + r;
                const limb_rows_t own = limb_rows_from(&b->q, at * TILES_K, at);
                b->usable[r] =
                    k->b.table->quantise(whole + r * TILES_K, TILES_K, 1, task->limbs, &own) &&
                    b->usable[r];
            }
        }
    }
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* Row r alone as the products of single rows want it. */
static void place_alone(const cache_task_t *task, int r, float *x, float *sums)
{
    const int room = tiles_rows(task->rows), tiles = (int)tiles_along(task->side->head);
    for (int t = 0; t < tiles; t++) {
        memcpy(x + t * TILES_K, task->buffers->q_floats + (t * room + r) * TILES_K,
               TILES_K * sizeof(float));
        memcpy(sums + 2 * t, task->buffers->q_sums + 2 * (t * room + r), 2 * sizeof(float));
    }
}

static void next_strip(tiles_strip_t *strip)
{
    strip->codes += strip->codes_apart;
    strip->scale += strip->coefs_apart;
    strip->zp = strip->zp != NULL ? strip->zp + strip->coefs_apart : NULL;
    strip->offset = strip->offset != NULL ? strip->offset + strip->coefs_apart : NULL;
}

/* A row that does not suit the products is multiplied alone; others do not notice. */
void cache_scores(const cache_task_t *task)
{
    const cache_side_t *k = task->side;
    const cache_buffers_t *b = task->buffers;
    const tiled_b_t *in = &k->b;
    const int rows = task->rows, tiles = (int)tiles_along(k->head),
              strips = (int)tiles_strips(task->tokens);
    const unsigned char *codes = codes_of(task, false);
    if (in->plain != sinter_data_type_undef) {
        for (int s = 0; s < strips; s++, codes += in->strip) {
            in->table->plain(codes, in->plain, tiles, b->q_floats, rows,
                             task->out + s * TILES_COLUMNS, task->ldo);
        }
        return;
    }
    bool usable = true;
    for (int r = 0; r < rows; r++) {
        usable = usable && b->usable[r];
    }
    load_plane(task, &k->scale, k->ints ? in->type->unit : 1, b->scale);
    load_plane(task, &k->zp, 1, b->zp);
    for (int r = 0; r < rows; r++) {
        memset(task->out + r * task->ldo, 0, (size_t)(strips * TILES_COLUMNS) * sizeof(*task->out));
    }
    if (!usable) {
        report_detour(task->worker, "some row by row (a query is not finite, too small or too "
                                    "large)");
    }
    const bool zps = k->zp.first.data != NULL;
    tiles_strip_t strip = strip_of(k, codes, tiles);
    strip.scale = b->scale;
    strip.zp = zps && !in->offsets ? b->zp : NULL;
    strip.offset = zps && in->offsets ? b->zp : NULL;
    strip.group = strip.left = in->scale.group;
    strip.zp_group = strip.zp_left = in->zp.group;
    strip.halves = in->scale.halves;
    strip.offset_halves = zps && in->offsets && in->zp.halves;
    strip.codes_apart = in->strip;
    strip.coefs_apart = k->groups * TILES_COLUMNS;
    const tiles_strip_t first = strip;
    if (k->ints) {
        strip.more = strips - 1;
        in->table->ints(&strip, in->type, in->bytes, &b->q, rows, task->limbs, task->out,
                        task->ldo);
        strip.more = 0;
    }
    for (int s = 0; s < strips && !k->ints; s++) {
        in->table->floats(&strip, in->type, in->values, b->q_floats, b->q_sums, rows, false,
                          task->out + s * TILES_COLUMNS, task->ldo);
        next_strip(&strip);
    }
    if (!usable) {
        strip = first;
        load_plane(task, &k->scale, 1, b->scale);
    }
    for (int s = 0; s < strips && !usable; s++) {
        for (int r = 0; r < rows; r++) {
            float x[CACHE_HEAD], sums[2 * CACHE_HEAD / TILES_K],
                *out = task->out + r * task->ldo + s * TILES_COLUMNS;
            if (!b->usable[r]) {
                memset(out, 0, TILES_COLUMNS * sizeof *out);
                place_alone(task, r, x, sums);
                in->table->floats(&strip, in->type, in->values, x, sums, 1, true, out, task->ldo);
            }
        }
        next_strip(&strip);
    }
}

/* ---- results --------------------------------------------------------------------------------- */

/* Which tokens of a tile need not be cleared: a bit for each. first: the tile's first token,
 * counted from that of the task. */
static uint32_t seen_of(const cache_task_t *task, int first)
{
    uint32_t seen = UINT32_MAX;
    if (first < task->skip) {
        seen &= task->skip - first < TILES_K ? UINT32_MAX << (task->skip - first) : 0;
    }
    if (first + TILES_K > task->tokens) {
        seen &= ((uint32_t)1 << (task->tokens - first)) - 1;
    }
    return task->seen != NULL && task->careful
               ? seen & cells_of_tile(task->seen, task->token + first)
               : seen;
}

/* Tokens of a tile that may not be read become zeros; the other bits stay as they are. */
static void clear_unseen(unsigned char *tile, int bits, uint32_t seen)
{
    const int in_dword = 32 / bits;
    for (int line = 0; line < bits; line++) {
        uint32_t keep = 0;
        for (int i = 0; i < in_dword; i++) {
            const uint32_t all = bits == 32 ? UINT32_MAX : (1u << bits) - 1;
            keep |= (seen >> (line * in_dword + i) & 1) != 0 ? all << i * bits : 0;
        }
        for (int c = 0; c < TILES_COLUMNS; c++) {
            uint32_t x;
            memcpy(&x, tile + line * TILES_LINE + 4 * c, sizeof x);
            x &= keep;
            memcpy(tile + line * TILES_LINE + 4 * c, &x, sizeof x);
        }
    }
}

/* out += the product of n tiles of weights, from tile `first` of the task on, with those of some
 * strips of V, which begin at `codes`. less: what is taken off codes before, token by token. */
static void multiply(const cache_task_t *task, const unsigned char *codes, int strips, int first,
                     int n, const float *less, float *out)
{
    const cache_side_t *v = task->side;
    const cache_buffers_t *b = task->buffers;
    const tiled_b_t *in = &v->b;
    const int at = first * tiles_rows(task->rows);
    tiles_strip_t strip = strip_of(v, codes, n);
    strip.less = less != NULL ? less + first * TILES_K : NULL;
    strip.whole = v->raises;
    if (v->ints) {
        const limb_rows_t p = limb_rows_from(&b->p, at * TILES_K, at);
        strip.more = strips - 1;
        strip.codes_apart = in->strip;
        in->table->ints(&strip, in->type, in->bytes, &p, task->rows, task->limbs, out, task->ldo);
        return;
    }
    for (int s = 0; s < strips; s++, strip.codes += in->strip, out += TILES_COLUMNS) {
        if (in->plain == sinter_data_type_undef) {
            in->table->floats(&strip, in->type, in->values, b->p_floats + at * TILES_K, NULL,
                              task->rows, false, out, task->ldo);
            continue;
        }
        in->table->plain(strip.codes, in->plain, n, b->p_floats + at * TILES_K, task->rows, b->part,
                         TILES_COLUMNS);
        for (int r = 0; r < task->rows; r++) {
            for (int c = 0; c < TILES_COLUMNS; c++) {
                out[r * task->ldo + c] += b->part[r * TILES_COLUMNS + c];
            }
        }
    }
}

/* Values first, then weights, element by element, for strips from..to-1: numbers that the products
 * cannot take. */
static void slow_values(const cache_task_t *task, const unsigned char *codes, int from, int to)
{
    const cache_side_t *v = task->side;
    const cache_buffers_t *b = task->buffers;
    const tiled_b_t *in = &v->b;
    const int tiles = (int)tiles_along(task->tokens);
    float tile[TILES_K][TILES_COLUMNS];
    for (int i = from * tiles; i < to * tiles; i++) {
        const int e = i / tiles * TILES_COLUMNS, t = i % tiles,
                  columns = v->head - e < TILES_COLUMNS ? v->head - e : TILES_COLUMNS;
        tiles_strip_t strip = strip_of(v, codes + i / tiles * in->strip + t * in->tile, 1);
        strip.scale = ones;
        v->floats->load(&strip, in->type, in->values, tile[0]);
        for (int k = t * TILES_K; k < (t + 1) * TILES_K && k < task->tokens; k++) {
            for (int c = 0; c < columns && k >= task->skip; c++) {
                const int at = (k / TILES_COLUMNS * v->groups + (e + c) / v->size) * TILES_COLUMNS +
                               k % TILES_COLUMNS;
                const float code = tile[k % TILES_K][c], scale = b->scale[at],
                            zp = v->zp.first.data != NULL ? b->zp[at] : 0,
                            value = in->offsets ? code * scale + zp : (code - zp) * scale;
                for (int r = 0; r < task->rows; r++) {
                    const float p = task->x[r * task->ldx + k];
                    task->out[r * task->ldo + e + c] += p != 0 ? p * value : 0;
                }
            }
        }
    }
}

/* Coefficients of the task's tokens, [strip][group][token], as [group][token] and plus one of
 * TILES_K numbers; zeros for tokens that must not be read, and for those that a group has beyond
 * the task's. */
static void order_by_group(const cache_task_t *task, const float *from, const float *plus,
                           float *to)
{
    const cache_side_t *v = task->side;
    const int strips = (int)tiles_strips(task->tokens),
              end = (int)tiles_along(task->tokens) * TILES_K;
    for (int g = 0; g < v->groups; g++, to += CACHE_TOKENS) {
        v->floats->of_group(from + g * TILES_COLUMNS, v->groups, strips, plus, to);
        memset(to, 0, (size_t)task->skip * sizeof *to);
        memset(to + task->tokens, 0, (size_t)(CACHE_TOKENS - task->tokens) * sizeof *to);
        if (task->seen != NULL) {
            v->fn->keep_row(to, task->seen, task->token, end, 0);
        }
    }
}

/* The coefficients of V by group. False: offsets do not suit products of integers, in which they
 * are zero points, so that an error of a weight meets the value and not the code. */
static bool load_v(const cache_task_t *task)
{
    static const float none[TILES_K];
    const cache_side_t *v = task->side;
    const cache_buffers_t *b = task->buffers;
    const int n = v->groups * CACHE_TOKENS;
    if (v->b.plain != sinter_data_type_undef) {
        return true;
    }
    load_plane(task, &v->scale, 1, b->scale);
    order_by_group(task, b->scale, none, b->by_group[0]);
    if (v->zp.first.data == NULL) {
        return true;
    }
    load_plane(task, &v->zp, 1, b->zp);
    order_by_group(task, b->zp, v->raises ? v->less[task->rows <= v->floats->raised_rows] : none,
                   b->by_group[1]);
    if (v->b.offsets && v->ints) {
        float most = 0;
        v->quant->zps_of_offsets(b->by_group[0], b->by_group[1], n);
        for (int i = 0; i < n; i++) {
            const float x = b->by_group[1][i];
            most = x == x && x < most && -x < most ? most : x == x ? x < 0 ? -x : x : INFINITY;
        }
        return most < ZP_FLOAT_MOST;
    }
    return true;
}

/* A tile of a strip without tokens that must not be read. */
static const unsigned char *without_unseen(const cache_task_t *task, const unsigned char *tile,
                                           uint32_t seen)
{
    const int bytes = task->side->b.tile;
    unsigned char *to = task->buffers->ragged;
    memcpy(to, tile, (size_t)bytes);
    clear_unseen(to, bytes / TILES_LINE, seen);
    return to;
}

/* Some strips of V, which begin at `codes`: tiles of which all tokens may be read together, and
 * where codes may be infinite or NaN, each other one without those that may not. */
static void add_strips(const cache_task_t *task, const unsigned char *codes, int strips,
                       const float *less, float *out)
{
    const cache_side_t *v = task->side;
    const int tiles = (int)tiles_along(task->tokens);
    for (int t = 0, end; t < tiles; t = end) {
        uint32_t seen = v->may_be_odd ? seen_of(task, t * TILES_K) : UINT32_MAX;
        end = t + 1;
        if (seen == UINT32_MAX) {
            while (end < tiles && (!v->may_be_odd || seen_of(task, end * TILES_K) == UINT32_MAX)) {
                end++;
            }
            multiply(task, codes + t * v->b.tile, strips, t, end - t, less, out);
            continue;
        }
        const unsigned char *tile = codes + t * v->b.tile;
        for (int s = 0; s < strips; s++, tile += v->b.strip) {
            multiply(task, without_unseen(task, tile, seen), 1, t, 1, less,
                     out + s * TILES_COLUMNS);
        }
    }
}

/* Strips of group g of the head. Where weights of several rows do not suit the products, each row
 * finds out for itself. */
static void accumulate_group(const cache_task_t *task, const unsigned char *codes, int g,
                             bool suits)
{
    const cache_side_t *v = task->side;
    const cache_buffers_t *b = task->buffers;
    const tiled_b_t *in = &v->b;
    const bool zps = v->zp.first.data != NULL;
    const int strip = g * v->size / TILES_COLUMNS, end = g + 1 < v->groups
                                                             ? (g + 1) * v->size / TILES_COLUMNS
                                                             : (int)tiles_strips(v->head);
    const float *zp = zps ? b->by_group[1] + g * CACHE_TOKENS : NULL;
    const tiles_weights_t weights = {
        .p = task->x,
        .ldp = task->ldx,
        .scale = in->plain == sinter_data_type_undef ? b->by_group[0] + g * CACHE_TOKENS : NULL,
        .less = v->ints ? zp : NULL,
        .whole = v->whole,
        .plus = in->offsets && !v->ints ? zp : NULL,
        .tiles = (int)tiles_along(task->tokens),
        .checks_tiny = v->checks_tiny};
    const char *why = suits ? in->table->weigh(&weights, task->rows, v->ints ? task->limbs : 0,
                                               &b->p, b->p_floats, b->add)
                            : "offsets are too far from the codes";
    for (int r = 0; r < task->rows && why != NULL && task->rows > 1; r++) {
        cache_task_t one = *task;
        one.rows = 1;
        one.x += r * task->ldx;
        one.out += r * task->ldo;
        if (v->raises && r == 0) { /* those in use may be for more rows than one */
            (void)load_v(&one);
        }
        accumulate_group(&one, codes, g, suits);
    }
    if (why != NULL && task->rows > 1) {
        if (v->raises) {
            (void)load_v(task);
        }
        return;
    }
    if (why != NULL) {
        report_detour(task->worker, why);
        slow_values(task, codes, strip, end);
        return;
    }
    float *out = task->out + strip * TILES_COLUMNS;
    add_strips(task, codes + strip * in->strip, end - strip, v->ints || in->offsets ? NULL : zp,
               out);
    for (int r = 0; r < task->rows && (weights.less != NULL || weights.plus != NULL); r++) {
        for (int c = 0; c < (end - strip) * TILES_COLUMNS; c++) {
            out[r * task->ldo + c] += b->add[r];
        }
    }
}

void cache_accumulate(const cache_task_t *task)
{
    const cache_side_t *v = task->side;
    const unsigned char *codes = codes_of(task, true);
    const bool suits = load_v(task);
    for (int g = 0; g < v->groups; g++) {
        accumulate_group(task, codes, g, suits);
    }
}

/* ---- copies of tokens ------------------------------------------------------------------------ */

size_t cache_copies(int bits, int64_t head, unsigned char *scratch, cache_copy_t *out)
{
    const size_t coefs = (size_t)CACHE_TOKENS * (size_t)tiles_strips(head) * sizeof(float);
    size_t at = 0;
    out->codes = carve(scratch, &at,
                       (size_t)(tiles_along(head) * TILES_K) * CACHE_TOKENS * (size_t)bits / 8, 1);
    out->scale = carve(scratch, &at, coefs, 1);
    out->zp = carve(scratch, &at, coefs, 1);
    return at;
}

/* Columns of strips: a strip of 16 columns has so many lines of 16 values each. */
static inline __attribute__((always_inline)) void gather_columns(const unsigned char *from,
                                                                 int64_t lines, int size,
                                                                 const int64_t *column, int n,
                                                                 unsigned char *to)
{
    const int64_t line = (int64_t)TILES_COLUMNS * size, strip = lines * line;
    for (int i = 0; i < n; i += TILES_COLUMNS, to += strip) {
        const int some = n - i < TILES_COLUMNS ? n - i : TILES_COLUMNS;
        const unsigned char *at[TILES_COLUMNS];
        for (int c = 0; c < TILES_COLUMNS; c++) {
            const int64_t of = column[i + (c < some ? c : some - 1)];
            at[c] = from + of / TILES_COLUMNS * strip + of % TILES_COLUMNS * size;
        }
        for (int64_t l = 0; l < lines; l++) {
            for (int c = 0; c < TILES_COLUMNS; c++) {
                memcpy(to + l * line + c * size, at[c] + l * line, (size_t)size);
            }
        }
    }
}

/* Where element k of a column lies in a plane of so many bits: in which line, and from which bit of
 * a dword on. */
static unsigned line_of(unsigned bits, unsigned k)
{
    return bits == 4 ? k % 16 / 4 : k * bits / 32;
}

static unsigned shift_of(unsigned bits, unsigned k)
{
    return bits >= 8 ? k * bits % 32 : k % 4 * 8 + (bits == 4 ? k / 16 * 4 : k / 4 % 4 * 2);
}

/* A plane of a tile of V: n tokens `cell` are its elements, and the last one again where it has
 * more. */
static void gather_tile(const cache_side_t *v, const unsigned char *from, unsigned first_line,
                        unsigned bits, const int32_t *cell, int n, unsigned char *to,
                        const unsigned char *next)
{
    tiles_move_t moves[TILES_K];
    unsigned char placed[TILES_K] = {0};
    for (unsigned i = 0; i < TILES_K; i++) {
        const uint32_t token = (uint32_t)cell[(int)i < n ? (int)i : n - 1], k = token % TILES_K,
                       at = line_of(bits, i), tile = token % TILES_BLOCK / TILES_K;
        moves[at * (32 / bits) + placed[at]++] = (tiles_move_t){
            .line = (int64_t)(token / TILES_BLOCK) * v->block + (int32_t)tile * v->b.tile +
                    (int32_t)((first_line + line_of(bits, k)) * TILES_LINE),
            .down = (int)shift_of(bits, k),
            .up = (int)shift_of(bits, i)};
    }
    v->floats->copy_elements(from, (int)bits, moves, (int)tiles_strips(v->head), v->b.strip,
                             to + first_line * TILES_LINE, next);
}

cache_piece_t cache_piece(const cache_task_t *task, bool is_v)
{
    const cache_side_t *side = task->side;
    const int64_t columns = is_v ? TILES_BLOCK : TILES_COLUMNS,
                  bytes = is_v ? side->block : side->b.strip, first = task->token / columns,
                  end = (task->token + task->tokens + columns - 1) / columns;
    const unsigned char *matrix = side->b.data + matrix_of(task) * side->matrix;
    return side->heads > 1 ? (cache_piece_t){matrix, matrix}
                           : (cache_piece_t){matrix + first * bytes, matrix + end * bytes};
}

/* Where the next lines of a piece are, so many of which are taken. */
static const unsigned char *lines_of_piece(cache_piece_t *piece, int64_t bytes)
{
    const unsigned char *at = piece->at;
    piece->at = piece->end - at > bytes ? at + bytes : piece->end;
    return at;
}

void cache_gather(const cache_task_t *task, bool is_v, const int32_t *cell, int n,
                  const cache_copy_t *to, cache_piece_t *next)
{
    const cache_side_t *side = task->side;
    const unsigned char *codes = side->b.data + matrix_of(task) * side->matrix;
    const int bits = side->b.tile / TILES_LINE;
    int64_t column[CACHE_TOKENS]; /* of strips, which other heads have some of between blocks */
    for (int i = 0; i < n; i++) {
        column[i] = cell[i] + (side->heads - 1) * (cell[i] / TILES_BLOCK * TILES_BLOCK);
    }
    const cache_plane_t *const planes[] = {&side->scale, &side->zp};
    unsigned char *const coefs[] = {to->scale, to->zp};
    for (int i = 0; i < 2; i++) {
        const unsigned char *from = planes[i]->first.data;
        if (from == NULL) {
            continue;
        }
        from += matrix_of(task) * planes[i]->matrix;
        if (planes[i]->size == 1) {
            gather_columns(from, side->groups, 1, column, n, coefs[i]);
        } else if (planes[i]->size == 2) {
            gather_columns(from, side->groups, 2, column, n, coefs[i]);
        } else {
            gather_columns(from, side->groups, 4, column, n, coefs[i]);
        }
    }
    if (!is_v) {
        unsigned char *strip = to->codes;
        for (int i = 0; i < n; i += TILES_COLUMNS, strip += side->b.strip) {
            const int some = n - i < TILES_COLUMNS ? n - i : TILES_COLUMNS;
            side->floats->copy_columns(codes, side->b.strip / TILES_LINE, column + i, some, strip,
                                       lines_of_piece(next, side->b.strip));
        }
        return;
    }
    unsigned char *tile = to->codes;
    for (int i = 0; i < n; i += TILES_K, tile += side->b.tile) {
        const int some = n - i < TILES_K ? n - i : TILES_K, first = bits == 6 ? 4 : bits;
        gather_tile(side, codes, 0, (unsigned)first, cell + i, some, tile,
                    lines_of_piece(next, tiles_strips(side->head) * first * TILES_LINE));
        if (bits == 6) {
            gather_tile(side, codes, 4, 2, cell + i, some, tile,
                        lines_of_piece(next, tiles_strips(side->head) * 2 * TILES_LINE));
        }
    }
}

/* ---- unpacking ------------------------------------------------------------------------------- */

size_t cache_unpacked(const cache_sizes_t *of, unsigned char *scratch, cache_unpacked_t *out)
{
    const size_t coefs = (size_t)of->groups * CACHE_TOKENS * sizeof(float); /* the widest */
    size_t at = 0;
    out->codes = carve(scratch, &at, (size_t)of->head * CACHE_TOKENS * (size_t)of->bits / 8, 1);
    out->scale = carve(scratch, &at, coefs, 1);
    out->zp = carve(scratch, &at, coefs, 1);
    return at;
}

void cache_will_unpack(matrices_t *op, bool is_v)
{
    groups_t *const coefs[] = {&op->base.scale, &op->base.zp};
    axis_t *along = is_v ? &op->base.codes.column : &op->base.codes.row,
           *tokens = is_v ? &op->base.codes.row : &op->base.codes.column;
    along->stride = is_v ? CACHE_TOKENS : 1;
    tokens->stride = is_v ? 1 : op->dims[op->ndims - 2];
    for (int i = 0; i < 2; i++) {
        along = is_v ? &coefs[i]->column : &coefs[i]->row;
        tokens = is_v ? &coefs[i]->row : &coefs[i]->column;
        along->stride = along->stride == 0 ? 0 : CACHE_TOKENS;
        tokens->stride = tokens->stride == 0 ? 0 : 1;
    }
}

/* Rows of CACHE_TOKENS elements of so many bytes: those of n tokens from `token` on that are not in
 * a set become zeros. */
static void clear_rows(unsigned char *rows, int64_t n_rows, int bytes, const uint64_t *seen,
                       int64_t token, int n)
{
    unsigned char keep[CACHE_TOKENS * sizeof(float)];
    for (int i = 0; i < n; i++) {
        const bool is_seen = (cells_of_tile(seen, token + i) & 1) != 0;
        memset(keep + i * bytes, is_seen ? UINT8_MAX : 0, (size_t)bytes);
    }
    for (int64_t r = 0; r < n_rows; r++, rows += (size_t)CACHE_TOKENS * (size_t)bytes) {
        for (int i = 0; i < n * bytes; i++) {
            rows[i] &= keep[i];
        }
    }
}

/* Whether a set has all of n tokens from `token` on, a multiple of 32. */
static bool has_all(const uint64_t *seen, int64_t token, int n)
{
    bool all = true;
    for (int i = 0; i < n; i += TILES_K) {
        const uint32_t most = n - i < TILES_K ? ((uint32_t)1 << (n - i)) - 1 : UINT32_MAX;
        all = all && (cells_of_tile(seen, token + i) & most) == most;
    }
    return all;
}

/* Coefficients of n tokens; g describes where they go. */
static void unpack_coefs(const groups_t *g, int64_t head, int64_t tokens, int64_t matrix, bool is_v,
                         int64_t token, int n, const uint64_t *seen, unsigned char *to, groups_t *m)
{
    cache_plane_t plane;
    int64_t strip = 0;
    if (g->type == NULL) {
        return;
    }
    const axis_t *along = is_v ? &g->column : &g->row;
    const int64_t groups = axis_groups(along, head);
    groups_t out = *g;
    bind_plane(g, tokens, (int)groups, &plane);
    tiles_of_values(g->tiled, g->dtype, groups, TILES_COLUMNS, &strip);
    out.data = to;
    out.first = 0;
    out.row = (axis_t){CACHE_TOKENS, 1};
    out.column = (axis_t){1, 1};
    tiles_unpack_values(g->data + matrix * plane.matrix + token / TILES_BLOCK * plane.block +
                            token % TILES_BLOCK / TILES_COLUMNS * strip,
                        g->tiled, groups, n, &out);
    if (seen != NULL) {
        clear_rows(to, groups, g->type->bits / 8, seen, token, n);
    }
    m->data = to;
    m->first = -token;
    m->tiled = NOT_TILED;
}

void cache_unpack(features_t features, const matrices_t *op, bool is_v, int64_t token, int n,
                  const uint64_t *seen, const cache_unpacked_t *to, matrix_t *m)
{
    const groups_t *codes = &op->base.codes;
    int64_t apart, block, of_matrix;
    codes_apart(op, is_v, &apart, &block, &of_matrix);
    const int64_t rows = op->dims[op->ndims - 2], columns = op->dims[op->ndims - 1],
                  tokens = is_v ? rows : columns, head = is_v ? columns : rows,
                  matrix = of_matrix > 0 ? m->codes.first / of_matrix : 0;
    const unsigned char *from = codes->data + matrix * apart + token / TILES_BLOCK * block;
    groups_t out = *codes;
    out.data = to->codes;
    out.first = 0;
    if (!is_v) {
        out.row = (axis_t){1, 1};
        out.column = (axis_t){head, 1};
        tiles_bulk_unpack_codes(features, from + token % TILES_BLOCK / TILES_COLUMNS * codes->strip,
                                TILED_CODES, head, n, &out);
    }
    from += token % TILES_BLOCK / TILES_K * tiles_bytes(codes->type->bits);
    for (int64_t e = 0; e < head && is_v; e += TILES_COLUMNS, from += codes->strip) {
        const int some = head - e < TILES_COLUMNS ? (int)(head - e) : TILES_COLUMNS;
        out.first = e * CACHE_TOKENS;
        out.row = (axis_t){1, 1};
        out.column = (axis_t){CACHE_TOKENS, 1};
        tiles_bulk_unpack_codes(features, from, TILED_CODES, n, some, &out);
    }
    seen = seen != NULL && !has_all(seen, token, n) ? seen : NULL;
    if (is_v && seen != NULL && codes->type->cls == DTYPE_FLOAT && codes->type->bits % 8 == 0) {
        clear_rows(to->codes, head, codes->type->bits / 8, seen, token, n);
    }
    m->codes.data = to->codes;
    m->codes.first = -token * (is_v ? 1 : head);
    m->codes.tiled = NOT_TILED;
    unpack_coefs(&op->base.scale, head, tokens, matrix, is_v, token, n, seen, to->scale, &m->scale);
    unpack_coefs(&op->base.zp, head, tokens, matrix, is_v, token, n, seen, to->zp, &m->zp);
}
