/* Running chains: binding operands to tensors and interpreting the program block by block. */
#include "chain.h"

#include <string.h>

#include "../graph/status.h"
#include "eltwise.h"
#include "plan.h"

/* ---- binding ------------------------------------------------------------------------------------------------------------------- */

static bool is_store(const chain_instr_t *in)
{
    return in->op == CHAIN_STORE || in->op == CHAIN_STORE_SAT;
}

static sinter_status_t bad_dim(const chain_operand_t *op, int d, int64_t have, int64_t want)
{
    return sg_fail(sinter_invalid_shape, "operand %d of an elementwise chain has %lld elements along dim %d of %lld", op->value,
                   (long long)have, d, (long long)want);
}

static sinter_status_t bind_operand(const chain_operand_t *op, const bound_t *v, const chain_bound_t *b, chain_ref_t *ref)
{
    bool mapped[SINTER_MAX_NDIMS] = {false};
    ref->data = v->data;
    ref->dtype = v->dtype;
    ref->traits = dtype_traits(v->dtype);
    ref->grouped = false;
    for (int d = 0; d < b->ndims; d++) {
        const int m = op->map[d];
        ref->stride[d] = 0;
        ref->group[d] = 1;
        if (m < 0) {
            continue;
        }
        if (m >= v->ndims) {
            return bad_dim(op, d, 0, b->dims[d]);
        }
        mapped[m] = true;
        if (v->dims[m] == b->dims[d]) {
            ref->stride[d] = v->strides[m];
        } else if (op->grouped && v->dims[m] > 1 && b->dims[d] % v->dims[m] == 0) {
            ref->stride[d] = v->strides[m];
            ref->group[d] = b->dims[d] / v->dims[m];
            ref->grouped = ref->grouped || ref->group[d] > 1;
        } else if (v->dims[m] != 1) {
            return bad_dim(op, d, v->dims[m], b->dims[d]);
        }
    }
    for (int m = 0; m < v->ndims; m++) {
        if (!mapped[m] && v->dims[m] > 1) {
            return bad_dim(op, m, v->dims[m], 1);
        }
    }
    return sinter_success;
}

/* Does any instruction depend on where along dim d it runs? */
static bool varies_along(const chain_bound_t *b, int d)
{
    for (int i = 0; i < b->chain->n_operands; i++) {
        if (b->refs[i].stride[d] != 0 && b->dims[d] > 1) {
            return true;
        }
    }
    for (int i = 0; i < b->chain->n_instrs; i++) {
        if (b->chain->instrs[i].op == CHAIN_INDEX && b->chain->instrs[i].dim == d) {
            return true;
        }
    }
    return false;
}

sinter_status_t chain_bind(const chain_t *chain, const struct frame *frame, sinter_cpu_isa_t isa, chain_bound_t *out)
{
    const bound_t *space = &frame->v[chain->dims_value];
    out->chain = chain;
    out->fn = eltwise_table(isa);
    out->isa = isa;
    out->ndims = chain->ndims;
    if (space->ndims != chain->ndims) {
        return sg_fail(sinter_invalid_shape, "an elementwise chain over %d dims meets a tensor of %d", chain->ndims, space->ndims);
    }
    for (int d = 0; d < SINTER_MAX_NDIMS; d++) {
        out->dims[d] = d < out->ndims ? space->dims[d] : 1;
        out->at[d] = (int8_t)d;
    }
    for (int i = 0; i < chain->n_operands; i++) {
        SG_TRY(bind_operand(&chain->operands[i], &frame->v[chain->operands[i].value], out, &out->refs[i]));
    }
    /* Every element is written once: a store has all dims of the iteration space. */
    for (int i = 0; i < chain->n_instrs; i++) {
        for (int d = 0; d < out->ndims && is_store(&chain->instrs[i]); d++) {
            const chain_operand_t *op = &chain->operands[chain->instrs[i].operand];
            const int64_t have = op->map[d] < 0 ? 1 : frame->v[op->value].dims[op->map[d]];
            if (have != out->dims[d]) {
                return bad_dim(op, d, have, out->dims[d]);
            }
        }
    }
    out->inner_scalar_only = out->ndims == 0 || !varies_along(out, out->ndims - 1);
    return sinter_success;
}

bool chain_is_store(const chain_t *chain, int *operand)
{
    if (chain->n_instrs != 1 || chain->instrs[0].op != CHAIN_STORE || chain->instrs[0].a != 0) {
        return false;
    }
    *operand = chain->instrs[0].operand;
    return true;
}

size_t chain_scratch_bytes(const chain_t *chain)
{
    /* One block more than registers: the codes on their way through ROUND_TO, and group values on their way to elements. */
    return ((size_t)chain->n_regs + 1) * CHAIN_BLOCK * sizeof(double);
}

/* ---- operands --------------------------------------------------------------------------------------------------------------------- */

/* Where a run starts in an operand, and how it goes on along the inner dim. */
typedef struct run {
    int64_t first, stride, group, phase; /* element; step; elements that share one value; how many of those lie before the run */
} run_t;

static run_t run_of(const chain_bound_t *b, int operand, const int64_t *idx)
{
    const chain_ref_t *ref = &b->refs[operand];
    run_t r = {0, 0, 1, 0};
    if (b->ndims == 0) {
        return r;
    }
    const int last = b->ndims - 1;
    for (int d = 0; d <= last; d++) {
        r.first += (ref->grouped ? idx[d] / ref->group[d] : idx[d]) * ref->stride[d];
    }
    r.stride = ref->stride[last];
    if (ref->group[last] > 1) {
        r.group = ref->group[last];
        r.phase = idx[last] % r.group;
    }
    return r;
}

/* A run in one precision: a value for all, a value for each group, or a value for each element. */
#define LOAD_RUN(name, real, plain)                                                                                                        \
    static void name(const chain_bound_t *b, const chain_ref_t *ref, const run_t *r, int n, real *dst, real *tmp)                          \
    {                                                                                                                                      \
        if (r->stride == 0) {                                                                                                              \
            plain(b, ref, r->first, 0, 1, dst);                                                                                            \
            const real x = dst[0];                                                                                                         \
            for (int i = 1; i < n; i++) {                                                                                                  \
                dst[i] = x;                                                                                                                \
            }                                                                                                                              \
        } else if (r->group > 1) {                                                                                                         \
            plain(b, ref, r->first, r->stride, (int)((r->phase + n - 1) / r->group) + 1, tmp);                                             \
            int64_t left = r->group - r->phase;                                                                                            \
            for (int i = 0; i < n; left = r->group, tmp++) {                                                                               \
                const int end = left < n - i ? i + (int)left : n;                                                                          \
                for (; i < end; i++) {                                                                                                     \
                    dst[i] = *tmp;                                                                                                         \
                }                                                                                                                          \
            }                                                                                                                              \
        } else {                                                                                                                           \
            plain(b, ref, r->first, r->stride, n, dst);                                                                                    \
        }                                                                                                                                  \
    }

static void load_f32(const chain_bound_t *b, const chain_ref_t *ref, int64_t first, int64_t stride, int n, float *dst)
{
    eltwise_load(b->fn, ref->dtype, ref->data, first, stride, n, dst);
}

static void load_f64(const chain_bound_t *b, const chain_ref_t *ref, int64_t first, int64_t stride, int n, double *dst)
{
    (void)b;
    ref->traits->codec.load_f64(ref->data, first, stride, n, dst);
}

LOAD_RUN(load_run_f32, float, load_f32)
LOAD_RUN(load_run_f64, double, load_f64)

/* Planes that both run on from element to element are joined as they are decoded, others after. */
static void load_split_f32(const chain_bound_t *b, const chain_instr_t *in, const int64_t *idx, int n, float *dst, float *tmp)
{
    const chain_ref_t *low = &b->refs[in->operand], *high = &b->refs[in->high];
    const dtype_split_t *split = dtype_split(in->dtype, b->isa);
    const run_t l = run_of(b, in->operand, idx), h = run_of(b, in->high, idx);
    if (l.stride == 1 && h.stride == 1 && l.group == 1 && h.group == 1) {
        split->load(low->data, l.first, high->data, h.first, n, dst);
        return;
    }
    float bits[CHAIN_BLOCK];
    load_run_f32(b, low, &l, n, dst, tmp);
    load_run_f32(b, high, &h, n, bits, tmp);
    split->join(dst, bits, n, dst);
}

static void load_split_f64(const chain_bound_t *b, const chain_instr_t *in, const int64_t *idx, int n, double *dst, float *tmp)
{
    load_split_f32(b, in, idx, n, tmp, tmp + CHAIN_BLOCK); /* a block of doubles has room for two of floats */
    for (int i = 0; i < n; i++) {
        dst[i] = (double)tmp[i];
    }
}

static void store_run_f32(const chain_bound_t *b, const chain_ref_t *ref, const run_t *r, int n, const float *src, bool saturate)
{
    if (saturate) {
        ref->traits->codec.store_sat(ref->data, r->first, r->stride, n, src);
    } else {
        eltwise_store(b->fn, ref->dtype, ref->data, r->first, r->stride, n, src);
    }
}

static void store_run_f64(const chain_ref_t *ref, const run_t *r, int n, const double *src, bool saturate, float *tmp)
{
    if (!saturate) {
        ref->traits->codec.store_f64(ref->data, r->first, r->stride, n, src);
        return;
    }
    for (int i = 0; i < n; i++) {
        tmp[i] = (float)src[i];
    }
    ref->traits->codec.store_sat(ref->data, r->first, r->stride, n, tmp);
}

static void round_f32(const chain_bound_t *b, sinter_data_type_t type, int n, const float *src, float *dst, void *tmp)
{
    if (b->fn->load[type] && b->fn->store[type]) {
        b->fn->store[type](tmp, src, n);
        b->fn->load[type](dst, tmp, n);
    } else {
        const dtype_codec_t *codec = &dtype_traits(type)->codec;
        codec->store_f32(tmp, 0, 1, n, src);
        codec->load_f32(tmp, 0, 1, n, dst);
    }
}

static void round_f64(sinter_data_type_t type, int n, const double *src, double *dst, void *tmp)
{
    const dtype_codec_t *codec = &dtype_traits(type)->codec;
    codec->store_f64(tmp, 0, 1, n, src);
    codec->load_f64(tmp, 0, 1, n, dst);
}

/* ---- the interpreter -------------------------------------------------------------------------------------------------------------- */

/* Index along the chain's dim, and what it grows by from element to element. */
static int64_t index_of(const chain_bound_t *b, const int64_t *idx, int dim, int *step)
{
    const int d = b->at[dim];
    *step = d >= 0 && d == b->ndims - 1;
    return d < 0 ? 0 : idx[d];
}

static void run_f32(const chain_bound_t *b, const int64_t *idx, int n, float *io, float *scratch)
{
    const chain_t *c = b->chain;
    float *r[CHAIN_MAX_REGS] = {NULL}, *tmp = scratch;
    for (int i = 0; i < c->n_regs; i++) {
        r[i] = scratch + (i + 1) * CHAIN_BLOCK;
    }
    if (io != NULL) {
        r[0] = io;
    }
    for (int k = 0; k < c->n_instrs; k++) {
        const chain_instr_t *in = &c->instrs[k];
        const chain_ref_t *ref = &b->refs[in->operand];
        float *dst = r[in->dst];
        run_t run;
        int step;
        int64_t at;
        switch (in->op) {
        case CHAIN_LOAD:
            run = run_of(b, in->operand, idx);
            load_run_f32(b, ref, &run, n, dst, tmp);
            break;
        case CHAIN_LOAD_SPLIT:
            load_split_f32(b, in, idx, n, dst, tmp);
            break;
        case CHAIN_STORE:
        case CHAIN_STORE_SAT:
            run = run_of(b, in->operand, idx);
            store_run_f32(b, ref, &run, n, r[in->a], in->op == CHAIN_STORE_SAT);
            break;
        case CHAIN_INDEX:
            at = index_of(b, idx, in->dim, &step);
            for (int i = 0; i < n; i++) {
                dst[i] = (float)(at + i * step);
            }
            break;
        case CHAIN_COPY:
            memmove(dst, r[in->a], (size_t)n * sizeof *dst);
            break;
        case CHAIN_ROUND_TO:
            round_f32(b, in->dtype, n, r[in->a], dst, tmp);
            break;
        case CHAIN_CONST:
            for (int i = 0; i < n; i++) {
                dst[i] = in->p[0];
            }
            break;
        default:
            b->fn->op[in->op](dst, r[in->a], r[in->b], r[in->c], n, in->p);
        }
    }
    if (io != NULL && c->result >= 0 && r[c->result] != io) {
        memcpy(io, r[c->result], (size_t)n * sizeof *io);
    }
}

static void run_f64(const chain_bound_t *b, const int64_t *idx, int n, float *io, double *scratch)
{
    const chain_t *c = b->chain;
    double *r[CHAIN_MAX_REGS] = {NULL}, *tmp = scratch;
    for (int i = 0; i < c->n_regs; i++) {
        r[i] = scratch + (i + 1) * CHAIN_BLOCK;
    }
    for (int i = 0; io != NULL && r[0] != NULL && i < n; i++) {
        r[0][i] = io[i];
    }
    for (int k = 0; k < c->n_instrs; k++) {
        const chain_instr_t *in = &c->instrs[k];
        const chain_ref_t *ref = &b->refs[in->operand];
        double *dst = r[in->dst];
        run_t run;
        int step;
        int64_t at;
        switch (in->op) {
        case CHAIN_LOAD:
            run = run_of(b, in->operand, idx);
            load_run_f64(b, ref, &run, n, dst, tmp);
            break;
        case CHAIN_LOAD_SPLIT:
            load_split_f64(b, in, idx, n, dst, (float *)(void *)tmp);
            break;
        case CHAIN_STORE:
        case CHAIN_STORE_SAT:
            run = run_of(b, in->operand, idx);
            store_run_f64(ref, &run, n, r[in->a], in->op == CHAIN_STORE_SAT, (float *)(void *)tmp);
            break;
        case CHAIN_INDEX:
            at = index_of(b, idx, in->dim, &step);
            for (int i = 0; i < n; i++) {
                dst[i] = (double)(at + i * step);
            }
            break;
        case CHAIN_COPY:
            memmove(dst, r[in->a], (size_t)n * sizeof *dst);
            break;
        case CHAIN_ROUND_TO:
            round_f64(in->dtype, n, r[in->a], dst, tmp);
            break;
        case CHAIN_CONST:
            for (int i = 0; i < n; i++) {
                dst[i] = in->pd[0];
            }
            break;
        default:
            eltwise_f64[in->op](dst, r[in->a], r[in->b], r[in->c], n, in->pd);
        }
    }
    for (int i = 0; io != NULL && c->result >= 0 && i < n; i++) {
        io[i] = (float)r[c->result][i];
    }
}

void chain_run(const chain_bound_t *bound, const int64_t *idx, int n, float *io, void *scratch)
{
    if (bound->chain->f64) {
        run_f64(bound, idx, n, io, scratch);
    } else {
        run_f32(bound, idx, n, io, scratch);
    }
}
