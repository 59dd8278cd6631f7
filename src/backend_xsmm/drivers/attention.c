/* The attention kernels: selection, setup, geometry. The arithmetic begins in attention_work.c. */
#include "backend_xsmm/drivers/attention.h"

#include <math.h>
#include <string.h>

#include <sinter/sinter_graph.h>

#include "backend_xsmm/drivers/products.h"
#include "base/status.h"

/* Strip heights with JIT kernels; a shorter strip is computed at the next height, rows beyond it
 * are not looked at. */
static const int ladder[ATT_LADDER] = {1, 2, 4, 6, 8, 12, 16, ATT_STRIP};

static int round_up(int64_t n, int to)
{
    return (int)((n + to - 1) / to * to);
}

/* ---- selection ------------------------------------------------------------------------------- */

static const char *refuse_bf16(const plan_t *plan, const step_t *step)
{
    const attention_params_t *p = &step->p.attention;
    const char *why = refuse_bf16_products(plan, step);
    const int64_t D = known_dim(plan, p->q.data, p->trans_q ? 2 : 1),
                  Dv = known_dim(plan, p->v.data, p->trans_v ? 2 : 1);
    return why == NULL && (D < 1 || Dv < 1 || D > ATT_CHUNK)
               ? "needs head sizes known at compile, 1 to 512"
               : why;
}

/* ---- setup ----------------------------------------------------------------------------------- */

/* Query rows that share one K and V, -1 if not known, with the reason. K or V may lack leading dims
 * or have 1 there. */
static int64_t known_rows(const plan_t *plan, const attention_params_t *p, const char **why)
{
    const lt_t *out = &plan->values[p->out_dims].lt;
    const int operands[] = {p->k.data, p->v.data};
    *why = NULL;
    if (out->ndims < 2) {
        *why = "the rank of the result is unknown at compile";
        return -1;
    }
    int64_t rows = out->dims[out->ndims - 2];
    if (rows < 0) {
        *why = "the number of query rows, the last but one dim of Q, is unknown at compile";
    }
    for (int from_end = 3; from_end <= out->ndims && rows >= 0; from_end++) {
        const int64_t n = out->dims[out->ndims - from_end];
        bool shared = true;
        for (int i = 0; i < 2; i++) {
            const lt_t *lt = &plan->values[operands[i]].lt;
            if (lt->ndims < 0 || n < 0 ||
                (lt->ndims >= from_end && lt->dims[lt->ndims - from_end] < 0)) {
                *why = "a batch dim of Q, K or V is unknown at compile, and with it how many query "
                       "rows share one K and V";
                return -1;
            }
            shared = shared && (lt->ndims < from_end || lt->dims[lt->ndims - from_end] == 1);
        }
        if (shared && !mul_i64(rows, n, &rows)) {
            return -1;
        }
    }
    return rows < 0 ? -1 : rows;
}

/* True if a dim is known to be unable to stand at stride 1 where that of the head must. */
static bool head_strided(const plan_t *plan, int value, int from_end)
{
    const lt_t *lt = &plan->values[value].lt;
    if (lt->ndims < from_end || lt->layout_type != sinter_layout_type_strided) {
        return false;
    }
    const int64_t stride = lt->strides[lt->ndims - from_end];
    return stride >= 0 && stride != 1 && lt->dims[lt->ndims - from_end] != 1;
}

static const char *refuse_decode(const plan_t *plan, const step_t *step)
{
    const attention_params_t *p = &step->p.attention;
    const decode_table_t *table = decode_table(step->kernel ? step->kernel->needs : plan->features);
    const char *rows_unknown;
    const int64_t rows = known_rows(plan, p, &rows_unknown),
                  T = known_dim(plan, p->v.data, p->trans_v ? 1 : 2);
    const int64_t D = known_dim(plan, p->q.data, p->trans_q ? 2 : 1),
                  Dv = known_dim(plan, p->v.data, p->trans_v ? 2 : 1);
    const int k = (int)plan->values[p->k.data].lt.data_type,
              v = (int)plan->values[p->v.data].lt.data_type;
    if (table == NULL) {
        return "no decoding kernels for this ISA";
    }
    if (rows_unknown != NULL) {
        return rows_unknown;
    }
    if (rows < 1 || rows > DECODE_ROWS || D < 1 || D > DECODE_HEAD || Dv < 1 || Dv > DECODE_HEAD) {
        return "needs 1 to 8 query rows for each K and V and heads of 1 to 256, known at compile";
    }
    if (T >= 0 && T < DECODE_LANES) {
        return "too few tokens";
    }
    if (p->k.split != sinter_data_type_undef || p->v.split != sinter_data_type_undef) {
        return "K or V is in two planes";
    }
    if (k >= table->n_ops || v >= table->n_ops || table->ops[k].layout.elems == 0 ||
        table->ops[v].layout.elems == 0 || D % table->ops[k].layout.multiple ||
        Dv % table->ops[v].layout.multiple) {
        return "no decoder for these data types and head sizes";
    }
    return head_strided(plan, p->k.data, p->trans_k ? 1 : 2) ||
                   head_strided(plan, p->v.data, p->trans_v ? 2 : 1)
               ? "a head is not contiguous"
               : NULL;
}

/* Groups along the head of an operand's scales or zero points; -1: not known. */
static int64_t known_groups(const plan_t *plan, int data, int coef, const int8_t *coef_dim,
                            int from_end)
{
    const int ndims = plan->values[data].lt.ndims;
    if (coef < 0) {
        return 1;
    }
    if (ndims < from_end || plan->values[coef].lt.ndims < 0) {
        return -1;
    }
    const int d = coef_dim[ndims - from_end];
    return d < 0 ? 1 : plan->values[coef].lt.dims[d];
}

/* Products in integers, if the mode allows them: of 16 bits where it rounds floats to 8 or 11,
 * of 8 bits for integer codes in mode int8. */
static decode_how_t how_of(const plan_t *plan, const step_t *step, const operand_t *o, int from_end,
                           int64_t head)
{
    const codes_table_t *table = codes_table(plan->features);
    const lt_t *lt = &plan->values[o->data].lt;
    const codes_type_t *codes = codes_type(lt->data_type);
    const int limbs = limbs_of(step->mode);
    const decode_how_t floats = {0};
    if (!table || !limbs || !codes ||
        (limbs == 1 && dtype_traits(lt->data_type)->cls != DTYPE_INT)) {
        return floats;
    }
    const int64_t s = known_groups(plan, o->data, o->scale, o->scale_dim, from_end);
    const int64_t z = known_groups(plan, o->data, o->zp, o->zp_dim, from_end), n = s > z ? s : z;
    if (s < 1 || z < 1 ||
        (n > 1 && (head % n != 0 || head / n % (codes->elems / CODES_QUADS) != 0))) {
        return floats;
    }
    if (o->zp >= 0 && dtype_traits(plan->values[o->zp].lt.data_type)->bits > 8) {
        return floats;
    }
    return (decode_how_t){codes, table, limbs};
}

static decode_how_t how_of_k(const plan_t *plan, const step_t *step)
{
    const attention_params_t *p = &step->p.attention;
    return how_of(plan, step, &p->k, p->trans_k ? 1 : 2,
                  known_dim(plan, p->k.data, p->trans_k ? 1 : 2));
}

static decode_how_t how_of_v(const plan_t *plan, const step_t *step)
{
    const attention_params_t *p = &step->p.attention;
    return how_of(plan, step, &p->v, p->trans_v ? 2 : 1,
                  known_dim(plan, p->v.data, p->trans_v ? 2 : 1));
}

static const char *refuse_codes(const plan_t *plan, const step_t *step)
{
    const char *why = refuse_decode(plan, step);
    return why != NULL || how_of_k(plan, step).codes || how_of_v(plan, step).codes
               ? why
               : "the fpmath mode, the types or the groups do not allow products of integers";
}

static const char *jit_rows(attention_config_t *c, int rows, int D, features_t features)
{
    const char *why = NULL;
    attention_jit_t *j = &c->jit[c->n_jit];
    const xs_kind_t kind = c->bf16 ? XS_BF16F32 : XS_F32;
    xs_shape_t qk = {.kind = kind,
                     .m = rows,
                     .n = ATT_STEP,
                     .k = c->bf16 ? round_up(D, 2) : D,
                     .lda = c->ld_q,
                     .ldb = c->ld_k,
                     .ldc = c->ld_s};
    const xs_shape_t pv = {.kind = kind,
                           .m = rows,
                           .n = c->dv,
                           .k = ATT_STEP,
                           .lda = c->ld_s,
                           .ldb = c->ld_v,
                           .ldc = c->ld_v,
                           .stride_a = ATT_STEP,
                           .stride_b = (int64_t)ATT_STEP * c->ld_v,
                           .beta = true};
    j->rows = rows;
    j->qk = j->qk_step = xs_dispatch(&qk, features, &why);
    if (!why && c->tk >= ATT_QK) {
        qk.n = ATT_QK;
        j->qk = xs_dispatch(&qk, features, &why);
    }
    if (!why) {
        j->pv = xs_dispatch(&pv, features, &why);
    }
    c->n_jit += !why;
    return why;
}

/* JIT kernels for all heights that can occur: with the number of rows known that is the full
 * strip and what is left over. */
static const char *jit(attention_config_t *c, int64_t rows, int64_t D, int64_t Dv,
                       features_t features)
{
    const char *why = NULL;
    if (D < 1 || Dv < 1 || D > ATT_CHUNK) {
        return D > ATT_CHUNK ? "head size above 512" : "head size not known at compile or 0";
    }
    const int rest = rows > 0 ? (int)(rows % c->strip) : 0;
    for (int i = 0; i < ATT_LADDER && !why && ladder[i] <= c->strip; i++) {
        const bool covers_rest = rest && ladder[i] >= rest && (i == 0 || ladder[i - 1] < rest);
        if (rows < 0 || ladder[i] == c->strip || covers_rest) {
            why = jit_rows(c, ladder[i], (int)D, features);
        }
    }
    if (why) {
        c->n_jit = 0;
    }
    return why;
}

/* Tile and block sizes. Wider heads get fewer rows and columns, for a block and its tiles to
 * stay in L2; those that are worked off in chunks load K for one strip at a time. */
static void size_blocks(attention_config_t *c, int64_t rows, int64_t T, int64_t D, int64_t Dv)
{
    const bool decode = c->decode != NULL, chunks = D < 0 || D > ATT_CHUNK;
    c->dk = D >= 0 && D < ATT_CHUNK ? round_up(D ? D : 1, 16) : ATT_CHUNK;
    c->dv = Dv >= 0 && Dv < ATT_CHUNK ? round_up(Dv ? Dv : 1, decode ? 128 : 16)
                                      : ATT_CHUNK; /* decoding order: up to 128 elements */
    const int wide = c->dk > c->dv ? c->dk : c->dv, part = wide <= 128 ? 1 : wide <= 256 ? 2 : 4;
    const int tk = decode ? DECODE_TOKENS : ATT_TK / part;
    c->tk = T >= 0 && T < tk ? round_up(T ? T : 1, decode ? 2 * DECODE_LANES : 16) : tk;
    c->rows = chunks ? ATT_STRIP : round_up(ATT_ROWS / part, ATT_STRIP);
    if (rows >= 0 && rows < c->rows) {
        c->rows = round_up(rows ? rows : 1, ATT_STRIP);
    }
    for (int i = ATT_LADDER - 1; i >= 0 && rows >= 0 && ladder[i] >= rows; i--) {
        c->rows = ladder[i];
    }
    c->strip = c->rows < ATT_STRIP ? c->rows : ATT_STRIP;
    const int pad = decode ? 0 : 16;
    c->ld_q = c->dk + pad;
    c->ld_k = c->ld_s = c->tk + pad;
    c->ld_v = c->dv + pad;
}

static const char *how_name(const decode_how_t *how)
{
    return how->codes ? limbs_name(how->limbs) : DECODED_FMA;
}

static sinter_status_t setup(plan_t *plan, step_t *step)
{
    const features_t features = step->kernel->needs;
    const attention_params_t *p = &step->p.attention;
    attention_config_t *c = ARENA_NEW(&plan->arena, attention_config_t, 1);
    if (!c) {
        return sinter_out_of_memory;
    }
    const int64_t D = known_dim(plan, p->q.data, p->trans_q ? 2 : 1),
                  Dv = known_dim(plan, p->v.data, p->trans_v ? 2 : 1);
    const char *rows_unknown;
    const int64_t T = known_dim(plan, p->v.data, p->trans_v ? 1 : 2),
                  rows = known_rows(plan, p, &rows_unknown);
    c->tile = tile_table(features);
    c->fn = eltwise_table(features);
    c->bf16 = step->kernel->bf16;
    const bool codes = step->kernel->refuse == refuse_codes;
    c->decode = codes || step->kernel->refuse == refuse_decode ? decode_table(features) : NULL;
    c->k_how = codes ? how_of_k(plan, step) : (decode_how_t){0};
    c->v_how = codes ? how_of_v(plan, step) : (decode_how_t){0};
    size_blocks(c, rows, T, D, Dv);
    const char *why = jit(c, rows, D, Dv, features);
    if (c->bf16 && why) {
        return sg_fail(sinter_runtime_error, "bf16 attention: %s", why);
    }
    textbuf_t note;
    text_init(&note, &plan->arena);
    if (c->decode) {
        text_add(&note, "%d query rows, kv-tile %d, K by %s, V by %s", c->rows, c->tk,
                 how_name(&c->k_how), how_name(&c->v_how));
    } else {
        text_add(&note, "q-block %d in strips of %d, kv-tile %d, ", c->rows, c->strip, c->tk);
        note_products(&note, c->bf16, step->kernel, why);
    }
    step->jit = c;
    step->state_bytes = sizeof(attention_state_t);
    step->note = note.text;
    return note.oom ? sinter_out_of_memory : sinter_success;
}

/* ---- memory ---------------------------------------------------------------------------------- */

size_t attention_buffers(const attention_config_t *c, const step_t *step, unsigned char *scratch,
                         attention_buffers_t *out)
{
    /* Scratch has any alignment; vectors are happier on 64 bytes. */
    unsigned char *base = scratch ? scratch + (64 - (uintptr_t)scratch % 64) % 64 : NULL;
    const size_t q = (size_t)c->rows * (size_t)c->ld_q, k = (size_t)c->dk * (size_t)c->ld_k,
                 v = (size_t)c->tk * (size_t)c->ld_v;
    const size_t s = (size_t)c->strip * (size_t)c->ld_s, acc = (size_t)c->rows * (size_t)c->ld_v,
                 rows = (size_t)c->rows;
    const chain_t *const chains[] = {step->p.attention.score, step->p.attention.bare,
                                     step->p.attention.prob, step->post};
    size_t at = 0, chain = 0;
    for (int i = 0; i < 4; i++) {
        const size_t bytes = chains[i] ? chain_scratch_bytes(chains[i]) : 0;
        chain = bytes > chain ? bytes : chain;
    }
    *out = (attention_buffers_t){0};
    out->q = carve(base, &at, q, sizeof(float));
    out->k = carve(base, &at, k, sizeof(float));
    out->v = carve(base, &at, v, sizeof(float));
    out->s = carve(base, &at, s, sizeof(float));
    out->acc = carve(base, &at, acc, sizeof(float));
    out->m = carve(base, &at, rows, sizeof(float));
    out->l = carve(base, &at, rows, sizeof(float));
    if (c->bf16) {
        out->q16 = carve(base, &at, q, sizeof(uint16_t));
        out->k16 = carve(base, &at, k, sizeof(uint16_t));
        out->v16 = carve(base, &at, v, sizeof(uint16_t));
        out->p16 = carve(base, &at, s, sizeof(uint16_t));
    }
    if (c->decode) {
        const size_t from = at;
        at = from + decode_buffers(c->rows, c->k_how.codes || c->v_how.codes,
                                   base ? base + from : NULL, &out->decode);
    }
    out->chain = carve(base, &at, chain, 1);
    out->tail = carve(base, &at, step->tail != NULL ? quant_tail_scratch() : 0, 1);
    return at + 64;
}

static size_t thread_bytes(const plan_t *plan, const step_t *step)
{
    attention_buffers_t b;
    (void)plan;
    return attention_buffers(step->jit, step, NULL, &b);
}

/* ---- geometry -------------------------------------------------------------------------------- */

static int64_t batch_dim(const bound_t *b, int from_end)
{
    return b->ndims < from_end ? 1 : b->dims[b->ndims - from_end];
}

static sinter_status_t check_dims(const attention_params_t *p, const frame_t *frame,
                                  attention_dims_t *d)
{
    const bound_t *q = &frame->v[p->q.data], *k = &frame->v[p->k.data], *v = &frame->v[p->v.data],
                  *out = &frame->v[p->out_dims];
    if (q->ndims < 2 || k->ndims < 2 || v->ndims < 2 || out->ndims < 2) {
        return sg_fail(sinter_invalid_shape, "attention: an operand has fewer than 2 dims");
    }
    d->nb = out->ndims - 2;
    d->S = batch_dim(q, p->trans_q ? 1 : 2);
    d->D = batch_dim(q, p->trans_q ? 2 : 1);
    d->T = batch_dim(k, p->trans_k ? 2 : 1);
    d->Dv = batch_dim(v, p->trans_v ? 2 : 1);
    if (batch_dim(k, p->trans_k ? 1 : 2) != d->D || batch_dim(v, p->trans_v ? 1 : 2) != d->T ||
        batch_dim(out, 2) != d->S || batch_dim(out, 1) != d->Dv) {
        return sg_fail(sinter_invalid_shape,
                       "attention: dims of Q, K, V and the output do not fit each other");
    }
    for (int i = 0; i < d->nb; i++) {
        const int from_end = out->ndims - i;
        const int64_t n = d->batch[i] = out->dims[i], qd = batch_dim(q, from_end),
                      kd = batch_dim(k, from_end), vd = batch_dim(v, from_end);
        if ((qd != 1 && qd != n) || (kd != 1 && kd != n) || (vd != 1 && vd != n)) {
            return sg_fail(sinter_invalid_shape, "attention: batch dim %d does not broadcast", i);
        }
        d->grouped[i] = kd == 1 && vd == 1 && n != 1;
    }
    return sinter_success;
}

/* Only dims and the thread count go in: scratch is sized from this before there is data. */
static sinter_status_t geometry(const step_t *step, const frame_t *frame, attention_dims_t *d)
{
    const attention_params_t *p = &step->p.attention;
    const attention_config_t *c = step->jit;
    *d = (attention_dims_t){0};
    SG_TRY(check_dims(p, frame, d));
    d->group = d->n_kv = 1;
    for (int i = 0; i < d->nb; i++) {
        int64_t *n = d->grouped[i] ? &d->group : &d->n_kv;
        if (!mul_i64(*n, d->batch[i], n)) {
            return sg_fail(sinter_invalid_shape, "attention: batch dims overflow");
        }
    }
    d->rows = d->S * d->group;
    d->n_chunks = (d->Dv + c->dv - 1) / c->dv;
    if (d->n_chunks == 0 && p->stats >= 0) {
        d->n_chunks = 1; /* no output element, but the statistics are still due */
    }
    d->block = c->rows;
    d->n_blocks = (d->rows + d->block - 1) / d->block;
    while (frame->threads > 1 && d->block > c->strip &&
           d->n_kv * d->n_blocks * d->n_chunks < ATT_ITEMS * frame->threads) {
        d->block = round_up(d->block / 2, c->strip);
        d->n_blocks = (d->rows + d->block - 1) / d->block;
    }
    d->items = d->n_kv * d->n_blocks * d->n_chunks;
    const int64_t tiles = (d->T + c->tk - 1) / c->tk;
    /* A part of T is worth a merge from two tiles on. The second pass of a probability chain
     * needs the whole row's sum, so it is not split. */
    int64_t splits = d->items && !p->prob ? frame->threads / d->items : 1;
    splits = splits > tiles / 2 ? tiles / 2 : splits;
    d->splits = splits > 1 ? splits : 1;
    return sinter_success;
}

static size_t shared_bytes(const plan_t *plan, const step_t *step, const frame_t *frame)
{
    attention_dims_t d;
    const attention_config_t *c = step->jit;
    (void)plan;
    if (geometry(step, frame, &d) != sinter_success || d.splits < 2) {
        return 0;
    }
    return (size_t)(d.items * d.splits) * (size_t)c->rows * ((size_t)c->ld_v + 2) * sizeof(float) +
           64;
}

/* ---- prepare --------------------------------------------------------------------------------- */

/* True if the program does nothing but multiply by one positive number. */
static bool is_scale(const chain_bound_t *b, float *scale)
{
    const chain_instr_t *load = b->chain->instrs, *mul = load + 1;
    if (b->chain->f64 || b->chain->n_instrs != 2 || load->op != CHAIN_LOAD ||
        mul->op != sinter_op_multiply || b->chain->result != mul->dst || load->dst == 0 ||
        !((mul->a == 0 && mul->b == load->dst) || (mul->a == load->dst && mul->b == 0))) {
        return false;
    }
    const chain_ref_t *ref = &b->refs[load->operand];
    for (int d = 0; d < b->ndims; d++) {
        if (ref->stride[d] != 0 && b->dims[d] != 1) {
            return false;
        }
    }
    ref->traits->codec.load_f32(ref->data, 0, 0, 1, scale);
    return *scale > 0 && *scale < INFINITY;
}

/* True if rows of a stored packed tensor may share bytes: threads would then write each other's
 * elements. */
static bool stores_share_bytes(const chain_bound_t *b)
{
    for (int i = 0; i < b->chain->n_instrs; i++) {
        const chain_instr_t *in = &b->chain->instrs[i];
        if (in->op != CHAIN_STORE) {
            continue;
        }
        const chain_ref_t *ref = &b->refs[in->operand];
        for (int d = 0; d + 1 < b->ndims; d++) {
            if (b->dims[d] > 1 && ref->stride[d] % ref->traits->block_elems != 0) {
                return true;
            }
        }
        if (ref->traits->block_elems > 1 && ref->stride[b->ndims - 1] != 1) {
            return true;
        }
    }
    return false;
}

static sinter_status_t bind_sink(const bound_t *sink, attention_state_t *st)
{
    const attention_dims_t *d = &st->d;
    const int shift = d->nb + 2 - sink->ndims;
    memset(st->sink_stride, 0, sizeof(st->sink_stride));
    for (int i = 0; i < sink->ndims; i++) {
        const int at = i + shift;
        const int64_t n = at < 0 ? 0 : at < d->nb ? d->batch[at] : at == d->nb ? d->S : 1;
        if (at < 0 || (sink->dims[i] != 1 && sink->dims[i] != n)) {
            return sg_fail(sinter_invalid_shape,
                           "attention: sinks do not broadcast to one value for each row");
        }
        st->sink_stride[at] = sink->dims[i] == 1 ? 0 : sink->strides[i];
    }
    return sinter_success;
}

static double scalar(const frame_t *frame, int value)
{
    const bound_t *b = &frame->v[value];
    double x;
    dtype_traits(b->dtype)->codec.load_f64(b->data, 0, 0, 1, &x);
    return x;
}

/* True if the limits are the masks. */
static bool bind_limits(const attention_params_t *p, const frame_t *frame, attention_state_t *st)
{
    const int64_t far = (int64_t)1 << 60; /* a row index added to it does not overflow */
    st->first_all = st->first_row = -far;
    st->end_all = st->end_row = far;
    int i = 0;
    for (; i < p->n_limits && scalar(frame, p->limits[i].fill) == -INFINITY; i++) {
        const column_limit_t *limit = &p->limits[i];
        int64_t s = limit->shift, *first = limit->moves ? &st->first_row : &st->first_all,
                *end = limit->moves ? &st->end_row : &st->end_all;
        for (int k = 0; k < limit->n_terms; k++) {
            s += limit->sign[k] * (int64_t)scalar(frame, limit->term[k]);
        }
        if (limit->none) {
            continue;
        }
        if (limit->lower) {
            *first = s > *first ? s : *first;
        } else {
            *end = s + 1 < *end ? s + 1 : *end;
        }
    }
    return p->n_bare > 0 && i >= p->n_bare;
}

static sinter_status_t prepare(const plan_t *plan, const step_t *step, const frame_t *frame,
                               void *state)
{
    const attention_params_t *p = &step->p.attention;
    attention_state_t *st = state;
    SG_TRY(geometry(step, frame, &st->d));
    SG_TRY(matrices_bind(&p->q, p->trans_q, frame, &st->q));
    SG_TRY(matrices_bind(&p->k, p->trans_k, frame, &st->k));
    SG_TRY(matrices_bind(&p->v, p->trans_v, frame, &st->v));
    st->masked = bind_limits(p, frame, st);
    const chain_t *score = st->masked ? p->bare : p->score;
    st->scored = score != NULL;
    st->scale = 1;
    if (score) {
        float scale;
        SG_TRY(chain_bind(score, frame, plan->features, &st->score));
        if (is_scale(&st->score, &scale)) {
            st->scored = false;
            st->scale = scale;
        }
    }
    if (p->prob) {
        SG_TRY(chain_bind(p->prob, frame, plan->features, &st->prob));
    }
    SG_TRY(chain_bind(step->post, frame, plan->features, &st->post));
    st->serial = stores_share_bytes(&st->post);
    int out;
    st->out = chain_is_store(step->post, &out) && st->post.refs[out].stride[st->post.ndims - 1] == 1
                  ? &st->post.refs[out]
                  : NULL;
    if (step->tail != NULL) {
        SG_TRY(quant_tail_bind(step->tail, frame, plan->features, &st->tail));
        st->serial = st->serial || quant_tail_shares_bytes(
                                       &st->tail, ((const attention_config_t *)step->jit)->dv);
    }
    st->k_side.ops = st->v_side.ops = NULL;
    const attention_config_t *c = step->jit;
    if (c->decode) {
        st->k_why = decode_bind(c->decode, &c->k_how, &st->k, false, &st->k_side);
        st->v_why = decode_bind(c->decode, &c->v_how, &st->v, true, &st->v_side);
        st->v_side.any_weight = p->prob != NULL;
    }
    if (p->sink >= 0) {
        SG_TRY(bind_sink(&frame->v[p->sink], st));
    }
    return sinter_success;
}

static way_t way_of(const char *of, const decode_how_t *how, const decode_side_t *side,
                    const char *why)
{
    const char *name = side->ops == NULL     ? "tiles of floats"
                       : side->codes != NULL ? how_name(how)
                                             : DECODED_FMA;
    if (side->ops != NULL && how->codes != NULL && side->codes == NULL) {
        why = "groups or zero points do not allow products of integers";
    }
    return (way_t){.of = of, .name = name, .why = why};
}

static int ways(const step_t *step, const void *state, way_t *out)
{
    const attention_config_t *c = step->jit;
    const attention_state_t *st = state;
    int n = 0;
    if (c->decode != NULL) {
        out[n++] = way_of("K", &c->k_how, &st->k_side, st->k_why);
        out[n++] = way_of("V", &c->v_how, &st->v_side, st->v_why);
    }
    return n + serial_way(st->serial, &out[n]);
}

/* ---- the kernels ----------------------------------------------------------------------------- */

#define ATTENTION                                                                           \
    .step = STEP_ATTENTION, .setup = setup, .thread_bytes = thread_bytes,                   \
    .shared_bytes = shared_bytes, .prepare = prepare, .work = attention_work, .ways = ways, \
    .phases = 2
KERNEL(attention_flash_f32_generic, ATTENTION, .needs = {NEEDS_NOTHING}, .cost = 400)
KERNEL(attention_flash_f32_avx2, ATTENTION, .needs = {NEEDS_AVX2}, .cost = 300)
KERNEL(attention_flash_f32_avx512, ATTENTION, .needs = {NEEDS_AVX512}, .cost = 200)
KERNEL(attention_decode_f32_avx2, ATTENTION, .needs = {NEEDS_AVX2}, .cost = 90,
       .refuse = refuse_decode)
KERNEL(attention_decode_f32_avx512, ATTENTION, .needs = {NEEDS_AVX512}, .cost = 80,
       .refuse = refuse_decode)
KERNEL(attention_decode_int8_vnni, ATTENTION, .needs = {NEEDS_AVX512_VNNI}, .cost = 70,
       .refuse = refuse_codes)
/* Every CPU with bf16 products has VNNI, and a plan capped below that must not use them. */
KERNEL(attention_flash_bf16_avx512, ATTENTION, .needs = {NEEDS_AVX512_VNNI}, .cost = 100,
       .refuse = refuse_bf16, .bf16 = true)
