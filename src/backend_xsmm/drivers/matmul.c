/* The matmul kernels: selection, setup, geometry. The arithmetic is in matmul_work.c. */
#include "backend_xsmm/drivers/matmul.h"

#include <string.h>

#include "backend_xsmm/drivers/products.h"
#include "base/status.h"

/* Heights with JIT kernels; fewer rows are computed at the next height. */
const int matmul_ladder[MM_LADDER] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
const int matmul_widths[MM_WIDTHS] = {16, 32, TAIL_MATMUL_STRIP};

/* ---- setup ----------------------------------------------------------------------------------- */

int64_t matmul_known_rows(const plan_t *plan, const step_t *step)
{
    const matmul_params_t *p = &step->p.matmul;
    const int ndims = plan->values[p->out_dims].lt.ndims;
    int64_t rows = known_dim(plan, p->out_dims, 2);
    for (int e = 3; e <= ndims && rows >= 0; e++) {
        const int64_t n = known_dim(plan, p->out_dims, e), own = known_dim(plan, p->b.data, e);
        if (n < 0 || own < 0 || (own == 1 && !mul_i64(rows, n, &rows))) {
            return -1;
        }
    }
    return ndims < 2 ? -1 : rows;
}

int64_t matmul_stride_of_b(const plan_t *plan, const step_t *step, int from_end)
{
    const plan_value_t *v = &plan->values[step->p.matmul.b.data];
    const bool known = v->kind != PV_VIEW && v->lt.ndims >= 2 && lt_strides_known(&v->lt);
    return known ? v->lt.strides[v->lt.ndims - (step->p.matmul.trans_b ? 3 - from_end : from_end)]
                 : -1;
}

const char *matmul_refuse_b(const plan_t *plan, const operand_t *b, bool decoder, bool scaled)
{
    const dtype_traits_t *zp = b->zp < 0 ? NULL : dtype_traits(plan->values[b->zp].lt.data_type);
    if (!decoder || b->split != sinter_data_type_undef) {
        return "no decoder for the data type of B";
    }
    return scaled != (b->scale >= 0) || (zp != NULL && (zp->cls != DTYPE_INT || zp->bits > 8))
               ? "B has codes without scales, scales without codes, or zero points of more than 8 "
                 "bits"
               : NULL;
}

static int height_for(int rows)
{
    int h = 0;
    while (matmul_ladder[h] < rows) {
        h++;
    }
    return h;
}

static const char *make_kernel(matmul_config_t *c, int width, int height, features_t features)
{
    const int n = matmul_widths[width];
    const char *why = NULL;
    const xs_shape_t shape = {.kind = c->bf16 ? XS_BF16F32 : XS_F32,
                              .m = matmul_ladder[height],
                              .n = n,
                              .k = MM_STEP,
                              .lda = MM_LDA,
                              .ldb = n,
                              .ldc = MM_PANEL,
                              .stride_a = MM_STEP,
                              .stride_b = (int64_t)MM_STEP * n,
                              .beta = true};
    c->kernel[width][height] = xs_dispatch(&shape, features, &why);
    return why;
}

/* Kernels for all heights that can occur: with the number of rows known that is the full one and
 * what is left over. NULL, or why there are none. */
static const char *make_kernels(matmul_config_t *c, int64_t rows, features_t features)
{
    const char *why = NULL;
    const int rest = rows < 0 || rows % MM_HEIGHT == 0 ? -1 : height_for((int)(rows % MM_HEIGHT));
    for (int h = 0; h < MM_LADDER && why == NULL; h++) {
        const bool full = matmul_ladder[h] == MM_HEIGHT && rows >= MM_HEIGHT;
        for (int w = c->widest;
             w >= 0 && w >= c->widest - 1 && why == NULL && (rows < 0 || full || h == rest); w--) {
            why = make_kernel(c, w, h, features);
        }
    }
    return why;
}

const char *matmul_configure(const plan_t *plan, const step_t *step, bool bf16, bool integers,
                             matmul_config_t *c)
{
    const features_t features = step->kernel->needs;
    const int64_t N = known_dim(plan, step->p.matmul.out_dims, 1),
                  rows = matmul_known_rows(plan, step);
    c->tile = tile_table(features);
    c->bf16 = bf16;
    c->codes = integers && blocks_of_codes(plan, step);
    c->limbs = c->codes ? 1 : limbs_of(step->mode);
    c->blocks = integers ? blocks_table(features) : NULL;
    c->rows = rows < 0 || rows > MM_ROWS ? MM_ROWS
              : rows > MM_HEIGHT         ? (int)((rows + MM_HEIGHT - 1) / MM_HEIGHT * MM_HEIGHT)
                                         : matmul_ladder[height_for((int)rows)];
    c->widest = N >= 0 && N <= matmul_widths[0] ? 0 : N >= 0 && N <= matmul_widths[1] ? 1 : 2;
    const char *why = make_kernels(c, rows, features);
    c->jit = why == NULL;
    return why;
}

const char *matmul_configure_best(const plan_t *plan, const step_t *step, matmul_config_t *c)
{
    const bool bf16 = refuse_bf16_products(plan, step) == NULL,
               integers = blocks_refuse(plan, step) == NULL;
    const char *why = matmul_configure(plan, step, bf16, integers, c);
    return bf16 && why != NULL ? matmul_configure(plan, step, false, integers, c) : why;
}

void matmul_note(textbuf_t *note, const step_t *step, const matmul_config_t *c, const char *why)
{
    text_add(note, "blocks of %d rows, panels of up to %d columns, ", c->rows, MM_PANEL);
    if (c->blocks != NULL) {
        text_add(note, "%s where groups along K are made of blocks of %d to %d elements, else ",
                 integers_name(c->codes, c->limbs), BLOCKS_LEAST, BLOCKS_LONGEST);
    }
    note_products(note, c->bf16, step->kernel, why);
}

static sinter_status_t setup(plan_t *plan, step_t *step)
{
    matmul_config_t *c = ARENA_NEW(&plan->arena, matmul_config_t, 1);
    if (c == NULL) {
        return sinter_out_of_memory;
    }
    const char *why =
        matmul_configure(plan, step, step->kernel->bf16, step->kernel->refuse == blocks_refuse, c);
    if (c->bf16 && why != NULL) {
        return sg_fail(sinter_runtime_error, "bf16 matmul: %s", why);
    }
    textbuf_t note;
    text_init(&note, &plan->arena);
    matmul_note(&note, step, c, why);
    step->jit = c;
    step->state_bytes = sizeof(matmul_state_t);
    step->note = note.text;
    return note.oom ? sinter_out_of_memory : sinter_success;
}

/* ---- memory ---------------------------------------------------------------------------------- */

size_t matmul_buffers(const matmul_config_t *c, const step_t *step, unsigned char *scratch,
                      matmul_buffers_t *out)
{
    const size_t rows = (size_t)c->rows;
    size_t at = 0;
    *out = (matmul_buffers_t){0};
    out->a = carve(scratch, &at, rows * MM_LDA, sizeof(float));
    out->b = carve(scratch, &at, MM_STRIP, sizeof(float));
    out->acc = carve(scratch, &at, rows * MM_PANEL, sizeof(float));
    if (c->bf16) {
        out->a16 = carve(scratch, &at, rows * MM_LDA, sizeof(uint16_t));
        out->b16 = carve(scratch, &at, MM_STRIP, sizeof(uint16_t));
    }
    if (c->blocks != NULL) {
        blocks_buffers(c, scratch, &at, &out->blocks);
    }
    out->chain = carve(scratch, &at, chain_scratch_bytes(step->post), 1);
    out->tail = carve(scratch, &at, step->tail != NULL ? quant_tail_scratch() : 0, 1);
    return at;
}

size_t matmul_thread_bytes(const plan_t *plan, const step_t *step)
{
    matmul_buffers_t b;
    (void)plan;
    return matmul_buffers(step->jit, step, NULL, &b);
}

/* ---- prepare --------------------------------------------------------------------------------- */

static int64_t dim_from_end(const matrices_t *op, int from_end)
{
    return op->ndims < from_end ? 1 : op->dims[op->ndims - from_end];
}

/* Dims that make rows and dims that choose B; counts both. */
static sinter_status_t bind_dims(matmul_state_t *st, const bound_t *out)
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
    for (int d = 0; d < st->nb; d++) {
        const int64_t n = out->dims[d], an = dim_from_end(&st->a, out->ndims - d),
                      bn = dim_from_end(&st->b, out->ndims - d);
        if ((an != 1 && an != n) || (bn != 1 && bn != n)) {
            return sg_fail(sinter_invalid_shape, "matmul: batch dim %d does not broadcast", d);
        }
        if (bn == 1) {
            st->row_dim[st->n_row] = d;
            st->row_extent[st->n_row++] = n;
        } else {
            st->mat_dim[st->n_mat] = d;
            st->mat_extent[st->n_mat++] = n;
        }
        if (!mul_i64(bn == 1 ? st->rows : st->mats, n, bn == 1 ? &st->rows : &st->mats)) {
            return sg_fail(sinter_invalid_shape, "matmul: batch dims overflow");
        }
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

/* Large tiles for few threads; smaller ones where there would be less than two items for each
 * thread. Blocks hold whole groups of rows and of columns. */
static void choose_tiles(matmul_state_t *st, const matmul_config_t *c, int threads, int group_rows,
                         int group_cols)
{
    const int64_t mats = st->mats;
    st->width = c->widest;
    if (st->rows <= 8 && st->width > 0 && st->b.base.codes.row.stride == 1) {
        st->width--; /* B is read along K: long, narrow strips */
    }
    st->strip = matmul_widths[st->width];
    st->k_block = MM_STRIP / st->strip < MM_K ? MM_STRIP / st->strip : MM_K;
    st->block = c->rows;
    const int unit = panel_unit(st, group_cols);
    for (st->panel = unit < MM_PANEL ? MM_PANEL / unit * unit : MM_PANEL;;
         st->panel = st->panel / unit / 2 * unit) {
        st->n_panels = (st->N + st->panel - 1) / st->panel;
        st->n_blocks = (st->rows + st->block - 1) / st->block;
        if (st->panel < 2 * unit || mats * st->n_panels * st->n_blocks >= 2 * (int64_t)threads) {
            break;
        }
    }
    while (st->block > MM_HEIGHT && st->block / 2 % MM_HEIGHT == 0 &&
           st->block / 2 % group_rows == 0 && mats * st->n_panels * st->n_blocks < threads) {
        st->block /= 2;
        st->n_blocks = (st->rows + st->block - 1) / st->block;
    }
}

sinter_status_t matmul_bind(const step_t *step, const frame_t *frame, matmul_state_t *st)
{
    const matmul_params_t *p = &step->p.matmul;
    SG_TRY(matrices_bind(&p->a, p->trans_a, frame, &st->a));
    SG_TRY(matrices_bind(&p->b, p->trans_b, frame, &st->b));
    return bind_dims(st, &frame->v[p->out_dims]);
}

sinter_status_t matmul_count(const step_t *step, matmul_state_t *st)
{
    st->serial = chain_shares_bytes(&st->post) ||
                 (step->tail != NULL && quant_tail_shares_bytes(&st->tail, st->panel));
    if (!mul_i64(st->mats, st->n_panels, &st->items) ||
        !mul_i64(st->items, st->n_blocks, &st->items)) {
        return sg_fail(sinter_invalid_shape, "matmul: dims overflow");
    }
    return sinter_success;
}

sinter_status_t matmul_prepare(const plan_t *plan, const step_t *step, const frame_t *frame,
                               void *state)
{
    matmul_state_t *st = state;
    (void)plan;
    SG_TRY(matmul_bind(step, frame, st));
    SG_TRY(chain_bind(step->post, frame, step->kernel->needs, &st->post));
    st->tail.rows = st->tail.cols = 1;
    if (step->tail != NULL) {
        SG_TRY(quant_tail_bind(step->tail, frame, step->kernel->needs, &st->tail));
    }
    choose_tiles(st, step->jit, frame->threads, st->tail.rows, st->tail.cols);
    blocks_bind(step->jit, st);
    return matmul_count(step, st);
}

int matmul_ways(const step_t *step, const void *state, way_t *ways)
{
    const matmul_config_t *c = step->jit;
    const matmul_state_t *st = state;
    int n = 0;
    if (st->blocks.block > 0) {
        ways[n++] = (way_t){.name = integers_name(c->codes, c->limbs)};
    } else if (st->blocks.why != NULL) {
        ways[n++] = (way_t){.name = "panels of floats", .why = st->blocks.why};
    }
    return n + serial_way(st->serial, &ways[n]);
}

size_t matmul_shared_of(const matmul_config_t *c, matmul_state_t *st)
{
    blocks_whole_t whole;
    st->n_panels = 2; /* as if there were more than one */
    blocks_bind(c, st);
    return blocks_share(c, &st->blocks, NULL, &whole);
}

static size_t shared_bytes(const plan_t *plan, const step_t *step, const frame_t *frame)
{
    matmul_state_t st;
    (void)plan;
    return matmul_bind(step, frame, &st) == sinter_success ? matmul_shared_of(step->jit, &st)
                                                           : 0; /* prepare says what is wrong */
}

/* ---- the kernels ----------------------------------------------------------------------------- */

#define MATMUL                                                                    \
    .step = STEP_MATMUL, .setup = setup, .thread_bytes = matmul_thread_bytes,     \
    .shared_bytes = shared_bytes, .prepare = matmul_prepare, .work = matmul_work, \
    .ways = matmul_ways, .phases = 2
KERNEL(matmul_panel_f32_generic, MATMUL, .needs = {NEEDS_NOTHING}, .cost = 400)
KERNEL(matmul_panel_f32_avx2, MATMUL, .needs = {NEEDS_AVX2}, .cost = 300)
KERNEL(matmul_panel_f32_avx512, MATMUL, .needs = {NEEDS_AVX512}, .cost = 200)
KERNEL(matmul_blocks_int8_vnni, MATMUL, .needs = {NEEDS_AVX512_VNNI}, .cost = 80,
       .refuse = blocks_refuse)
/* Every CPU with bf16 products has VNNI, and a plan capped below that must not use them. */
KERNEL(matmul_panel_bf16_avx512, MATMUL, .needs = {NEEDS_AVX512_VNNI}, .cost = 100,
       .refuse = refuse_bf16_products, .bf16 = true)
