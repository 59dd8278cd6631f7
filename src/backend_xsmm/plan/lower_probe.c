/* Representative dims. The lowering decides about views and joins on a graph without unknown
 * dims: an unknown dim that meets a known one takes its value, the others become
 * LOWER_PROBE_DIM. */
#include <string.h>

#include <sinter/sinter_graph.h>

#include "backend_xsmm/exec/frame.h"
#include "backend_xsmm/plan/lower.h"
#include "base/status.h"
#include "graph/quant.h"
#include "graph/schema.h"

/* Two dims that are equal. */
static bool equate(int64_t *a, int64_t *b)
{
    if ((*a == SINTER_UNKNOWN_DIM) == (*b == SINTER_UNKNOWN_DIM)) {
        return false;
    }
    *a = *a == SINTER_UNKNOWN_DIM ? *b : *a;
    *b = *a;
    return true;
}

/* Dims that broadcast to those of a result, aligned at the right, but for the last `skip` ones.
 * A 1 says nothing about the result, and an unknown dim is taken to be the same. */
static bool broadcasts_to(lt_t *in, lt_t *out, int skip)
{
    bool changed = false;
    for (int k = skip + 1; k <= in->ndims && k <= out->ndims; k++) {
        int64_t *x = &in->dims[in->ndims - k];
        changed = (*x != 1 && equate(x, &out->dims[out->ndims - k])) || changed;
    }
    return changed;
}

/* The planes of split codes have the same dims. */
static bool relate_planes(const node_t *dequant, lt_t *lts)
{
    if (quant_split_of(dequant) == sinter_data_type_undef) {
        return false;
    }
    lt_t *low = &lts[dequant->in[0]], *high = &lts[dequant->in[dequant->n_in - 1]];
    bool changed = false;
    for (int d = 0; d < low->ndims && d < high->ndims; d++) {
        changed = equate(&low->dims[d], &high->dims[d]) || changed;
    }
    return changed;
}

static bool relate_matmul(const node_t *n, lt_t *lts)
{
    lt_t *a = &lts[n->in[0]], *b = &lts[n->in[1]], *out = &lts[n->out[0]];
    const int ta = node_bool(n, sinter_op_attr_transpose_a, false),
              tb = node_bool(n, sinter_op_attr_transpose_b, false);
    if (a->ndims < 2 || b->ndims < 2 || out->ndims < 2) {
        return false;
    }
    int64_t *am = a->dims + a->ndims - 2, *bm = b->dims + b->ndims - 2,
            *om = out->dims + out->ndims - 2;
    bool changed = equate(&am[!ta], &bm[tb]);
    for (int i = 0; i < 2 && n->in_dequant != NULL; i++) {
        changed = (n->in_dequant[i] != NULL && relate_planes(n->in_dequant[i], lts)) || changed;
    }
    changed = equate(&am[ta], &om[0]) || changed;
    changed = equate(&bm[!tb], &om[1]) || changed;
    changed = broadcasts_to(a, out, 2) || changed;
    changed = broadcasts_to(b, out, 2) || changed;
    return (n->n_in > 2 && broadcasts_to(&lts[n->in[2]], out, 0)) || changed;
}

static bool relate_transpose(const node_t *n, lt_t *in, lt_t *out)
{
    const attr_t *order = node_attr(n, sinter_op_attr_order);
    bool changed = false;
    for (int d = 0; d < out->ndims && in->ndims == out->ndims; d++) {
        const int64_t from = order->s64[d] < 0 ? order->s64[d] + in->ndims : order->s64[d];
        changed = equate(&in->dims[from], &out->dims[d]) || changed;
    }
    return changed;
}

/* A channel vector along dim 1 or the last dim of the data. */
static bool relate_channels(const node_t *n, lt_t *data, lt_t *vector)
{
    const bool ncx = strcmp(node_str(n, sinter_op_attr_data_format, "NXC"), "NCX") == 0;
    return vector->ndims == 1 && data->ndims > 1 &&
           equate(&data->dims[ncx ? 1 : data->ndims - 1], &vector->dims[0]);
}

/* One slope for each channel, or a slope that broadcasts as any operand does. */
static bool relate_slope(const node_t *n, lt_t *data, lt_t *slope, lt_t *out)
{
    const bool channels = slope->ndims == 1 && slope->dims[0] != 1 &&
                          node_bool(n, sinter_op_attr_per_channel_broadcast, true);
    return channels ? relate_channels(n, data, slope) : broadcasts_to(slope, out, 0);
}

static bool relate_node(const node_t *n, lt_t *lts)
{
    lt_t *a = &lts[n->in[0]], *out = &lts[n->out[0]];
    bool changed = false;
    switch (n->kind) {
    case sinter_op_matmul:
        return relate_matmul(n, lts);
    case sinter_op_static_transpose:
        return relate_transpose(n, a, out);
    case sinter_op_static_reshape:
        return false;
    case sinter_op_bias_add:
        changed = relate_channels(n, a, &lts[n->in[1]]);
        break;
    case sinter_op_prelu:
        changed = relate_slope(n, a, &lts[n->in[1]], out);
        break;
    default:
        break;
    }
    changed = ((op_flags(n->kind) & OP_DEQUANT) != 0 && relate_planes(n, lts)) || changed;
    const bool broadcasts = n->kind == sinter_op_select || (op_flags(n->kind) & OP_BINARY) != 0;
    for (int i = 0; i < n->n_in && broadcasts; i++) {
        changed = broadcasts_to(&lts[n->in[i]], out, 0) || changed;
    }
    for (int d = 0; d < a->ndims && a->ndims == out->ndims && !broadcasts; d++) {
        changed = equate(&a->dims[d], &out->dims[d]) || changed;
    }
    return changed;
}

sinter_status_t lower_probe(const graph_t *g, lt_t *probe)
{
    for (int v = 0; v < g->n_values; v++) {
        probe[v] = g->values[v].lt;
        if (probe[v].ndims < 0 && g->values[v].producer < 0) {
            return sg_fail(sinter_unimplemented,
                           "tensor %llu: its number of dims must be known to compile",
                           (unsigned long long)probe[v].id);
        }
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (int t = 0, n = graph_n_live(g); t < 2 * n; t++) { /* down and up again */
            changed = relate_node(&g->nodes[g->topo[t < n ? t : 2 * n - 1 - t]], probe) || changed;
        }
    }
    for (int v = 0; v < g->n_values; v++) {
        for (int d = 0; d < probe[v].ndims; d++) {
            if (g->values[v].producer >= 0) {
                probe[v].dims[d] = g->values[v].lt.dims[d];
            } else if (probe[v].dims[d] == SINTER_UNKNOWN_DIM) {
                probe[v].dims[d] = LOWER_PROBE_DIM;
            }
        }
    }
    return frame_infer(g, probe);
}
