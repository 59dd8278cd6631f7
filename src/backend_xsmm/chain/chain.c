/* Binding the operands of chains to tensors. */
#include "backend_xsmm/chain/chain.h"

#include <string.h>

#include "backend_xsmm/plan.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "backend_xsmm/ukernels/tile.h"
#include "base/status.h"
#include "numeric/quant_rows.h"

/* ---- binding --------------------------------------------------------------------------------- */

static sinter_status_t bad_dim(const chain_operand_t *op, int d, int64_t have, int64_t want)
{
    return sg_fail(sinter_invalid_shape,
                   "operand %d of an elementwise chain has %lld elements along dim %d of %lld",
                   op->value, (long long)have, d, (long long)want);
}

static sinter_status_t bind_operand(const chain_operand_t *op, const bound_t *v,
                                    const chain_bound_t *b, chain_ref_t *ref)
{
    bool mapped[SINTER_MAX_NDIMS] = {false};
    ref->data = v->data;
    /* Words move as floats do. */
    ref->dtype = b->chain->words && v->dtype == sinter_s32 ? sinter_f32 : v->dtype;
    ref->traits = dtype_traits(ref->dtype);
    ref->grouped = ref->stream = false;
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
        } else if (op->grouped && v->dims[m] > 1 &&
                   quant_group_size(b->dims[d], v->dims[m], op->group_size[d]) > 0) {
            ref->stride[d] = v->strides[m];
            ref->group[d] = quant_group_size(b->dims[d], v->dims[m], op->group_size[d]);
            ref->grouped = ref->grouped || ref->group[d] > 1;
        } else if (v->dims[m] != 1) {
            return bad_dim(op, d, v->dims[m], b->dims[d]);
        }
    }
    for (int m = 0; m < v->ndims && !op->row; m++) {
        if (!mapped[m] && v->dims[m] > 1) {
            return bad_dim(op, m, v->dims[m], 1);
        }
    }
    return sinter_success;
}

static sinter_status_t bind_index(const chain_index_t *index, const bound_t *v,
                                  const chain_bound_t *b, int8_t *at)
{
    const int m = index->dim - (b->ndims - v->ndims);
    const int64_t n = m < 0 ? 1 : v->dims[m], all = b->dims[index->dim];
    if (n != 1 && n != all) {
        return sg_fail(sinter_invalid_shape,
                       "an index of an elementwise chain counts %lld elements along dim %d of %lld",
                       (long long)n, index->dim, (long long)all);
    }
    *at = (int8_t)(n == 1 ? -1 : index->dim);
    return sinter_success;
}

sinter_status_t chain_bind_over(const chain_t *chain, const int64_t *dims,
                                const struct frame *frame, features_t features, chain_bound_t *out)
{
    out->chain = chain;
    out->fn = eltwise_table(features);
    out->op = chain->words ? out->fn->op_words : out->fn->op;
    out->f64 = eltwise_f64(features);
    out->tiles = tile_table(features);
    out->quant = quant_rows(features);
    out->features = features;
    out->ndims = chain->ndims;
    for (int d = 0; d < SINTER_MAX_NDIMS; d++) {
        out->dims[d] = d < out->ndims ? dims[d] : 1;
    }
    for (int i = 0; i < chain->n_operands; i++) {
        SG_TRY(bind_operand(&chain->operands[i], &frame->v[chain->operands[i].value], out,
                            &out->refs[i]));
    }
    for (int k = 0; k < chain->n_indices; k++) {
        const chain_index_t *index = &chain->indices[k];
        SG_TRY(bind_index(index, &frame->v[index->value], out, &out->at[k]));
    }
    /* Every element is written once: a store has all dims of the iteration space. */
    for (int i = 0; i < chain->n_instrs; i++) {
        for (int d = 0; d < out->ndims && chain->instrs[i].op == CHAIN_STORE; d++) {
            const chain_operand_t *op = &chain->operands[chain->instrs[i].operand];
            const int64_t have = op->map[d] < 0 ? 1 : frame->v[op->value].dims[op->map[d]];
            if (have != out->dims[d]) {
                return bad_dim(op, d, have, out->dims[d]);
            }
        }
    }
    return sinter_success;
}

sinter_status_t chain_bind(const chain_t *chain, const struct frame *frame, features_t features,
                           chain_bound_t *out)
{
    const bound_t *space = &frame->v[chain->dims_value];
    if (space->ndims != chain->ndims) {
        return sg_fail(sinter_invalid_shape,
                       "an elementwise chain over %d dims meets a tensor of %d", chain->ndims,
                       space->ndims);
    }
    return chain_bind_over(chain, space->dims, frame, features, out);
}

bool chain_converts_operands(const chain_bound_t *bound)
{
    bool any = false;
    for (int i = 0; i < bound->chain->n_operands; i++) {
        any = any || bound->refs[i].dtype != sinter_f32;
    }
    return any;
}

bool chain_is_store(const chain_t *chain, int *operand)
{
    if (chain->n_instrs != 1 || chain->instrs[0].op != CHAIN_STORE || chain->instrs[0].a != 0) {
        return false;
    }
    *operand = chain->instrs[0].operand;
    return true;
}

bool chain_touches_once(const chain_t *chain, int value)
{
    int n = 0;
    bool same = true;
    for (int i = 0; i < chain->n_operands; i++) {
        if (chain->operands[i].value == value) {
            n++;
            for (int d = 0; d < chain->ndims; d++) {
                same = same && chain->operands[i].map[d] == d;
            }
        }
    }
    return n == 1 && same;
}
