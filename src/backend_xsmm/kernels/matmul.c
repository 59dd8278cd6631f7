/* Matmul: tiles of A and B become f32 (decoded, dequantised, transposed) in cache and go through BRGEMM; the product of a whole K stays in f32 and leaves through the
 * post chain.
 *
 * A work item is one batch, a block of up to MM_ROWS rows and a panel of MM_COLS columns:
 *
 *   acc[rows][cols] = 0;  for each K block: acc += A[rows][MM_K] B[MM_K][cols];  post chain row by row
 *
 * Items that share a panel of B follow each other, so that its codes are still in cache when the next block of rows decodes them again. */
#include <string.h>

#include <sinter/sinter_graph.h>

#include "../../graph/status.h"
#include "../eltwise.h"
#include "../kernel.h"
#include "../tile.h"
#include "../xsmm.h"

enum {
    MM_ROWS = 64,   /* most rows of a block */
    MM_COLS = 64,   /* columns of a panel */
    MM_K = 64,      /* a tile of B stays within 16 KiB, which decodes at L1 speed */
    MM_LADDER = 11, /* block heights with JIT kernels */
    MM_ALIGN = 64
};

static const int ladder[MM_LADDER] = {1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64};

typedef struct matmul_config {
    const tile_table_t *tile;
    bool bf16, jit;
    int rows, cols;                /* of the buffers */
    xs_kernel_t kernel[MM_LADDER]; /* by ladder step, where jit */
} matmul_config_t;

typedef struct matmul_state {
    tile_operand_t a, b;
    chain_bound_t post;
    int nb;                             /* batch dims */
    int64_t batch[SINTER_MAX_NDIMS];
    int64_t M, N, K, blocks, panels, items;
    bool serial;                        /* outputs share bytes between rows: one thread writes them all */
} matmul_state_t;

/* ---- selection and setup --------------------------------------------------------------------------------------------------------- */

static int64_t known_dim(const plan_t *plan, int value, int from_end) {
    const lt_t *lt = &plan->values[value].lt;
    const int64_t n = lt->ndims < from_end ? -1 : lt->dims[lt->ndims - from_end];
    return n == SINTER_UNKNOWN_DIM ? -1 : n;
}

static const char *refuse_bf16(const plan_t *plan, const step_t *step) {
    if (step->mode != sinter_fpmath_mode_bf16 && step->mode != sinter_fpmath_mode_any) {
        return "the fpmath mode does not allow bf16 products";
    }
    return xs_refuse(XS_BF16F32, plan->isa);
}

static int buffer_rows(int64_t M) {
    for (int i = 0; i < MM_LADDER && M >= 0; i++) {
        if (ladder[i] >= M) {
            return ladder[i];
        }
    }
    return MM_ROWS;
}

/* Kernels for every block height up to c->rows; why there are none. */
static const char *make_kernels(matmul_config_t *c, sinter_cpu_isa_t cap) {
    const char *why = NULL;
    const xs_kind_t kind = c->bf16 ? XS_BF16F32 : XS_F32;
    for (int i = 0; i < MM_LADDER && ladder[i] <= c->rows && why == NULL; i++) {
        const xs_shape_t shape = {.kind = kind, .m = ladder[i], .n = c->cols, .k = MM_K, .lda = MM_K, .ldb = c->cols, .ldc = c->cols, .beta = true};
        c->kernel[i] = xs_dispatch(&shape, cap, &why);
    }
    c->jit = why == NULL;
    return why;
}

static sinter_status_t setup(plan_t *plan, step_t *step, sinter_cpu_isa_t isa, bool bf16) {
    matmul_config_t *c = ARENA_NEW(&plan->arena, matmul_config_t, 1);
    if (c == NULL) {
        return sinter_out_of_memory;
    }
    const int64_t M = known_dim(plan, step->p.matmul.out_dims, 2), N = known_dim(plan, step->p.matmul.out_dims, 1);
    c->tile = tile_table(isa);
    c->bf16 = bf16;
    c->rows = buffer_rows(M);
    c->cols = N >= 0 && N < MM_COLS ? (int)((N > 0 ? N : 1) + 15) / 16 * 16 : MM_COLS;
    const char *why = make_kernels(c, isa);
    if (bf16 && why != NULL) {
        return sg_fail(sinter_runtime_error, "bf16 matmul: %s", why);
    }
    textbuf_t note;
    text_init(&note, &plan->arena);
    text_add(&note, "tile %dx%dx%d, ", c->rows, c->cols, MM_K);
    if (why != NULL) {
        text_add(&note, "own %s f32 gemm (no brgemm: %s)", sinter_cpu_isa_name(isa), why);
    } else {
        text_add(&note, "%s brgemm libxsmm %s", bf16 ? "bf16" : "f32", xs_version());
    }
    step->jit = c;
    step->state_bytes = sizeof(matmul_state_t);
    step->note = note.text;
    return note.oom ? sinter_out_of_memory : sinter_success;
}

static sinter_status_t setup_f32_generic(plan_t *plan, step_t *step) { return setup(plan, step, sinter_isa_generic, false); }
static sinter_status_t setup_f32_avx2(plan_t *plan, step_t *step) { return setup(plan, step, sinter_isa_avx2, false); }
static sinter_status_t setup_f32_avx512(plan_t *plan, step_t *step) { return setup(plan, step, sinter_isa_avx512, false); }
static sinter_status_t setup_bf16_avx512(plan_t *plan, step_t *step) { return setup(plan, step, sinter_isa_avx512_vnni, true); }

/* ---- memory ------------------------------------------------------------------------------------------------------------------------ */

typedef struct buffers {
    float *a, *b, *acc;
    uint16_t *a16, *b16;
    void *chain;
} buffers_t;

static void *carve(unsigned char *base, size_t *at, size_t bytes) {
    void *p = base != NULL ? base + *at : NULL;
    *at = (*at + bytes + MM_ALIGN - 1) & ~(size_t)(MM_ALIGN - 1);
    return p;
}

/* Carves scratch (NULL: only counts); returns the bytes. */
static size_t carve_buffers(const matmul_config_t *c, const chain_t *post, unsigned char *scratch, buffers_t *out) {
    const size_t rows = (size_t)c->rows, cols = (size_t)c->cols;
    size_t at = 0;
    *out = (buffers_t){0};
    out->a = carve(scratch, &at, rows * MM_K * sizeof(float));
    out->b = carve(scratch, &at, MM_K * cols * sizeof(float));
    out->acc = carve(scratch, &at, rows * cols * sizeof(float));
    if (c->bf16) {
        out->a16 = carve(scratch, &at, rows * MM_K * sizeof(uint16_t));
        out->b16 = carve(scratch, &at, MM_K * cols * sizeof(uint16_t));
    }
    out->chain = carve(scratch, &at, chain_scratch_bytes(post));
    return at;
}

static size_t thread_bytes(const plan_t *plan, const step_t *step) {
    buffers_t b;
    (void)plan;
    return carve_buffers(step->jit, step->post, NULL, &b);
}

/* ---- prepare ------------------------------------------------------------------------------------------------------------------------- */

static int64_t batch_dim(const tile_operand_t *op, int from_end) { return op->ndims < from_end ? 1 : op->dims[op->ndims - from_end]; }

static sinter_status_t check_dims(matmul_state_t *st, const bound_t *out) {
    const tile_operand_t *a = &st->a, *b = &st->b;
    if (out->ndims < 2) {
        return sg_fail(sinter_invalid_shape, "matmul: the output has fewer than 2 dims");
    }
    st->nb = out->ndims - 2;
    st->M = batch_dim(a, 2);
    st->K = batch_dim(a, 1);
    st->N = batch_dim(b, 1);
    if (batch_dim(b, 2) != st->K || out->dims[out->ndims - 2] != st->M || out->dims[out->ndims - 1] != st->N) {
        return sg_fail(sinter_invalid_shape, "matmul: dims of the operands and the output do not fit each other");
    }
    for (int i = 0; i < st->nb; i++) {
        const int64_t n = st->batch[i] = out->dims[i], an = batch_dim(a, out->ndims - i), bn = batch_dim(b, out->ndims - i);
        if ((an != 1 && an != n) || (bn != 1 && bn != n)) {
            return sg_fail(sinter_invalid_shape, "matmul: batch dim %d does not broadcast", i);
        }
    }
    return sinter_success;
}

static sinter_status_t prepare(const plan_t *plan, const step_t *step, const frame_t *frame, void *state) {
    const matmul_params_t *p = &step->p.matmul;
    const matmul_config_t *c = step->jit;
    matmul_state_t *st = state;
    SG_TRY(tile_bind(&p->a, p->trans_a, frame, &st->a));
    SG_TRY(tile_bind(&p->b, p->trans_b, frame, &st->b));
    SG_TRY(check_dims(st, &frame->v[p->out_dims]));
    SG_TRY(chain_bind(step->post, frame, plan->isa, &st->post));
    st->serial = chain_shares_bytes(&st->post);
    st->blocks = (st->M + c->rows - 1) / c->rows;
    st->panels = (st->N + c->cols - 1) / c->cols;
    st->items = st->blocks * st->panels;
    for (int i = 0; i < st->nb; i++) {
        if (!mul_i64(st->items, st->batch[i], &st->items)) {
            return sg_fail(sinter_invalid_shape, "matmul: batch dims overflow");
        }
    }
    return sinter_success;
}

/* ---- work ------------------------------------------------------------------------------------------------------------------------------ */

static void product(const matmul_config_t *c, const buffers_t *buf, int step, int rows) {
    if (!c->jit) {
        c->tile->gemm(rows, c->cols, MM_K, buf->a, MM_K, buf->b, c->cols, buf->acc, c->cols, true);
    } else if (c->bf16) {
        c->tile->bf16_rows(buf->a, MM_K, rows, MM_K, buf->a16, MM_K);
        c->tile->bf16_pairs(buf->b, c->cols, MM_K, c->cols, buf->b16, c->cols);
        xs_call(c->kernel[step], buf->a16, buf->b16, buf->acc, 1);
    } else {
        xs_call(c->kernel[step], buf->a, buf->b, buf->acc, 1);
    }
}

/* idx: the batch, then row and column of the item's corner. */
static void item(const matmul_config_t *c, const matmul_state_t *st, const buffers_t *buf, int64_t *idx) {
    const tile_src_t a = tile_at(&st->a, idx, st->nb), b = tile_at(&st->b, idx, st->nb);
    const int64_t m0 = idx[st->nb], n0 = idx[st->nb + 1];
    const int rows = (int)(st->M - m0 < c->rows ? st->M - m0 : c->rows), cols = (int)(st->N - n0 < c->cols ? st->N - n0 : c->cols);
    int step = 0;
    while (ladder[step] < rows) {
        step++;
    }
    memset(buf->acc, 0, (size_t)ladder[step] * (size_t)c->cols * sizeof(float));
    for (int64_t k = 0; k < st->K; k += MM_K) {
        const int kn = (int)(st->K - k < MM_K ? st->K - k : MM_K);
        c->tile->load(&b, k, kn, n0, cols, buf->b, c->cols, MM_K, c->cols);
        c->tile->load(&a, m0, rows, k, kn, buf->a, MM_K, ladder[step], MM_K);
        product(c, buf, step, ladder[step]);
    }
    for (int r = 0; r < rows; r++) {
        idx[st->nb] = m0 + r;
        chain_run(&st->post, idx, cols, buf->acc + (size_t)r * (size_t)c->cols, buf->chain);
    }
}

static void work(const plan_t *plan, const step_t *step, const frame_t *frame, const void *state, int phase, int tid, int nth, void *scratch, void *shared) {
    const matmul_config_t *c = step->jit;
    const matmul_state_t *st = state;
    buffers_t buf;
    int64_t begin, end;
    (void)plan, (void)frame, (void)phase, (void)shared;
    if (st->serial && tid > 0) {
        return;
    }
    carve_buffers(c, step->post, scratch, &buf);
    share(st->items, tid, st->serial ? 1 : nth, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t idx[SINTER_MAX_NDIMS], rest = i;
        idx[st->nb] = rest % st->blocks * c->rows;
        rest /= st->blocks;
        idx[st->nb + 1] = rest % st->panels * c->cols;
        rest /= st->panels;
        for (int d = st->nb - 1; d >= 0; d--) {
            idx[d] = rest % st->batch[d];
            rest /= st->batch[d];
        }
        item(c, st, &buf, idx);
    }
}

/* ---- the kernels -------------------------------------------------------------------------------------------------------------------------- */

#define MATMUL_KERNEL(id, least_isa, its_cost, refuse_fn)                                                                                        \
    extern const kernel_t kernel_matmul_panel_##id;                                                                                              \
    const kernel_t kernel_matmul_panel_##id = {.name = "matmul_panel_" #id, .step = STEP_MATMUL, .isa = (least_isa), .cost = (its_cost),         \
                                               .refuse = (refuse_fn), .setup = setup_##id, .thread_bytes = thread_bytes, .prepare = prepare,     \
                                               .work = work, .phases = 1};
MATMUL_KERNEL(f32_generic, sinter_isa_generic, 400, NULL)
MATMUL_KERNEL(f32_avx2, sinter_isa_avx2, 300, NULL)
MATMUL_KERNEL(f32_avx512, sinter_isa_avx512, 200, NULL)
/* Every CPU with bf16 products has VNNI, and a plan capped below that must not use them. */
MATMUL_KERNEL(bf16_avx512, sinter_isa_avx512_vnni, 100, refuse_bf16)
