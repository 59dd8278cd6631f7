/* slice(f(x)) = f(slice(x)) where f is a TypeCast, a dequantisation or the bias of an expert
 *
 *   codes, scales -> DynamicDequantize -> Slice     becomes
 *   codes -> Slice, scales -> Slice -> DynamicDequantize
 *
 * so that a product reads the part where it lies, as codes. Multi-head latent attention has such a
 * slice: its values are the first elements of its keys.
 *
 *   product, bias -> Gather -> Add -> Slice     becomes
 *   product -> Slice, bias -> Slice -> Gather -> Add
 *
 * so that slices that are gate and up are those of the product, which makes them side by side. */
#include <string.h>

#include "graph/experts.h"
#include "graph/layout.h"
#include "graph/quant.h"
#include "graph/quant_view.h"
#include "graph/schema.h"
#include "graph/shape.h"
#include "numeric/dtype.h"
#include "passes/passes.h"

/* What a Slice takes of each dim of its input. */
typedef struct taken {
    int ndims;
    int64_t start[SINTER_MAX_NDIMS], step[SINTER_MAX_NDIMS], n[SINTER_MAX_NDIMS];
    bool all[SINTER_MAX_NDIMS]; /* the whole dim, known or not */
} taken_t;

static sinter_status_t taken_of(const graph_t *g, const node_t *slice, taken_t *taken)
{
    const lt_t *in = &g->values[slice->in[0]].lt;
    const attr_t *starts = node_attr(slice, sinter_op_attr_starts),
                 *axes = node_attr(slice, sinter_op_attr_axes);
    taken->ndims = in->ndims;
    for (int d = 0; d < in->ndims; d++) {
        SG_TRY(slice_of_dim(slice, in, d, &taken->start[d], &taken->step[d], &taken->n[d]));
        taken->all[d] = dim_known(in->dims[d]) && taken->n[d] == in->dims[d] && taken->step[d] == 1;
    }
    for (int d = 0; d < in->ndims; d++) { /* a dim that is not known is whole if no axis names it */
        bool named = false;
        for (size_t i = 0; i < starts->n; i++) {
            int axis;
            SG_TRY(shape_axis(slice, axes != NULL ? axes->s64[i] : (int64_t)i, in, &axis));
            named = named || axis == d;
        }
        taken->all[d] = taken->all[d] || !named;
    }
    return sinter_success;
}

/* Elements of dim d that share a scale or zero point; 0: not known, or their number varies. */
static int64_t group_of(const lt_t *data, const quant_dims_t *dims, int d)
{
    if (dims->size[d] > 0) {
        return dims->size[d];
    }
    return dims->n[d] > 0 && dim_known(data->dims[d]) && data->dims[d] % dims->n[d] == 0
               ? data->dims[d] / dims->n[d]
               : 0;
}

/* The part of scales or zero points, dims being their groups over `data`, that the taken elements
 * have: starts, ends and axes of a Slice of them. False: the part is not made of whole groups.
 * n_axes 0: they stay as they are. */
static bool part_of_scales(const lt_t *data, const quant_dims_t *dims, const taken_t *taken,
                           int64_t *starts, int64_t *ends, int64_t *axes, size_t *n_axes)
{
    *n_axes = 0;
    for (int d = 0; d < taken->ndims; d++) {
        const int64_t group = group_of(data, dims, d), start = taken->start[d], n = taken->n[d];
        if (taken->all[d] || dims->n[d] == 1) {
            continue;
        }
        if (group == 0 || taken->step[d] != 1 || !dim_known(n) || n == 0 || start % group != 0 ||
            (n % group != 0 && start + n != data->dims[d])) {
            return false;
        }
        starts[*n_axes] = start / group;
        ends[*n_axes] = (start + n + group - 1) / group;
        axes[(*n_axes)++] = d;
    }
    return true;
}

/* Appends Slice(in) with these lists, which it copies; *out becomes its result. steps NULL: all
 * are 1. */
static sinter_status_t add_slice(graph_t *g, int in, const int64_t *starts, const int64_t *ends,
                                 const int64_t *axes, const int64_t *steps, size_t n, int *out)
{
    static const sinter_op_attr_t ids[] = {sinter_op_attr_starts, sinter_op_attr_ends,
                                           sinter_op_attr_axes, sinter_op_attr_steps};
    const int64_t *const lists[] = {starts, ends, axes, steps};
    const int n_attrs = steps != NULL ? 4 : 3;
    attr_t *attrs = ARENA_NEW(&g->arena, attr_t, n_attrs);
    const lt_t from = g->values[in].lt;
    int64_t dims[SINTER_MAX_NDIMS];
    memcpy(dims, from.dims, sizeof dims);
    for (int i = 0; i < n_attrs && attrs != NULL; i++) {
        int64_t *copy = ARENA_NEW(&g->arena, int64_t, n);
        if (copy == NULL) {
            return sinter_out_of_memory;
        }
        memcpy(copy, lists[i], n * sizeof *copy);
        attrs[i] = (attr_t){.id = ids[i], .n = n, .s64 = copy};
    }
    for (size_t i = 0; i < n; i++) {
        const int64_t step = steps != NULL ? steps[i] : 1;
        dims[axes[i]] = (ends[i] - starts[i] + step - 1) / step;
    }
    *out = pass_value_like(g, in, from.ndims, dims);
    return attrs == NULL || *out < 0 ? sinter_out_of_memory
                                     : pass_add_unary(g, sinter_op_slice, in, *out, attrs, n_attrs);
}

/* slice(in), by the slice's own attributes. */
static sinter_status_t slice_of(graph_t *g, int slice, int in, int *out)
{
    const node_t s = g->nodes[slice];
    const lt_t to = g->values[s.out[0]].lt;
    *out = pass_value_like(g, in, to.ndims, to.dims);
    return *out < 0 ? sinter_out_of_memory
                    : pass_add_unary(g, sinter_op_slice, in, *out, s.attrs, s.n_attrs);
}

static void drop(graph_t *g, int node)
{
    g->nodes[node].dead = true;
    g->values[g->nodes[node].out[0]].producer = -1;
}

/* slice(cast(x)) = cast(slice(x)) */
static sinter_status_t over_cast(graph_t *g, int slice, int cast)
{
    int part;
    const node_t c = g->nodes[cast];
    const int out = g->nodes[slice].out[0];
    SG_TRY(slice_of(g, slice, c.in[0], &part));
    drop(g, slice);
    return pass_add_unary(g, c.kind, part, out, c.attrs, c.n_attrs);
}

/* Elements of less than a byte, of which n dims begin at `starts`, begin with a whole one. */
static bool begins_byte(const lt_t *lt, const int64_t *starts, size_t n)
{
    bool whole = true;
    for (size_t i = 0; i < n; i++) {
        whole = whole && starts[i] * dtype_traits(lt->data_type)->bits % 8 == 0;
    }
    return whole;
}

/* slice(dequant(x, s, z)) = dequant(slice(x), slice(s), slice(z)), if whole groups are taken. */
static sinter_status_t over_dequant(graph_t *g, int slice, int dequant)
{
    const node_t dq = g->nodes[dequant];
    const lt_t data = g->values[dq.in[0]].lt;
    const int ports[2] = {dq.quant->scale_input, dq.quant->zp_input};
    int64_t starts[2][SINTER_MAX_NDIMS], ends[2][SINTER_MAX_NDIMS], axes[2][SINTER_MAX_NDIMS];
    size_t n_axes[2] = {0, 0};
    quant_dims_t dims[2];
    taken_t taken;
    SG_TRY(taken_of(g, &g->nodes[slice], &taken));
    if (lt_is_opaque(&data) || !begins_byte(&data, taken.start, (size_t)taken.ndims) ||
        dq.quant->high_port >= 0) {
        return sinter_success;
    }
    for (int i = 0; i < 2; i++) {
        if (i == 1 && !dq.quant->has_zp) {
            continue;
        }
        const bool known = quant_full_dims(g, &dq, i == 1, &dims[i]);
        const lt_t *lt = ports[i] < 0 ? NULL : &g->values[dq.in[ports[i]]].lt;
        if (!known ||
            !part_of_scales(&data, &dims[i], &taken, starts[i], ends[i], axes[i], &n_axes[i]) ||
            (n_axes[i] > 0 && (lt == NULL || lt->ndims != data.ndims || lt_is_opaque(lt) ||
                               !begins_byte(lt, starts[i], n_axes[i])))) {
            return sinter_success;
        }
    }
    int *in = ARENA_NEW(&g->arena, int, dq.n_in + 1);
    if (in == NULL) {
        return sinter_out_of_memory;
    }
    memcpy(in, dq.in, sizeof(int) * (size_t)dq.n_in);
    for (int i = 0; i < 2; i++) {
        if (n_axes[i] > 0) {
            SG_TRY(add_slice(g, dq.in[ports[i]], starts[i], ends[i], axes[i], NULL, n_axes[i],
                             &in[ports[i]]));
        }
    }
    SG_TRY(slice_of(g, slice, dq.in[0], &in[0]));
    /* The Slice's place in the graph becomes that of the dequantisation of the part. */
    node_t *part = &g->nodes[slice];
    const int out = part->out[0];
    *part = dq;
    part->in = in;
    part->out = in + dq.n_in;
    part->out[0] = out;
    if (dq.quant->type == QUANT_PER_GROUP) {
        const lt_t *taken_codes = &g->values[in[0]].lt;
        const s64_list_t none = {0, NULL}, sizes = {(size_t)data.ndims, dims[0].size};
        for (int d = 0; d < data.ndims; d++) {
            const int64_t n = taken.n[d];
            dims[0].size[d] =
                dims[0].n[d] == 1 && dims[0].size[d] > 0 && dim_known(n) ? n : dims[0].size[d];
        }
        SG_TRY(quant_regroup(&g->arena, part, QUANT_PER_GROUP, none,
                             quant_dims_ragged(taken_codes, &dims[0]) ? sizes : none));
    } else {
        part->quant = quant_copy(&g->arena, part->quant);
        if (part->quant == NULL) {
            return sinter_out_of_memory;
        }
    }
    return graph_find_groups(g, part);
}

/* The slice takes a part of the last dim and all of the others. */
static sinter_status_t takes_columns(const graph_t *g, const node_t *slice, taken_t *taken,
                                     bool *columns)
{
    SG_TRY(taken_of(g, slice, taken));
    *columns =
        taken->ndims > 0 && taken->n[taken->ndims - 1] > 0 && taken->step[taken->ndims - 1] > 0;
    for (int d = 0; d < taken->ndims - 1; d++) {
        *columns = *columns && taken->all[d];
    }
    return sinter_success;
}

/* v is the result of a product with experts, in whatever dims reshapes show it. */
static bool is_of_experts(const graph_t *g, int v)
{
    int p = g->values[v].producer;
    while (p >= 0 && g->nodes[p].kind == sinter_op_static_reshape) {
        p = g->values[g->nodes[p].in[0]].producer;
    }
    return p >= 0 && g->nodes[p].kind == sinter_op_matmul && graph_experts(g, &g->nodes[p]) >= 0;
}

/* v is Gather(table, i), by rows of a table with as many columns. */
static bool is_row_of_table(const graph_t *g, int v, int64_t columns)
{
    const int p = g->values[v].producer;
    const node_t *n = p >= 0 ? &g->nodes[p] : NULL;
    if (n == NULL || n->kind != sinter_op_gather) {
        return false;
    }
    const lt_t *table = &g->values[n->in[0]].lt, *rows = &g->values[v].lt;
    const int64_t axis = node_s64(n, sinter_op_attr_axis, 0);
    return !lt_is_opaque(table) && table->ndims > 1 && (axis == 0 || axis == -table->ndims) &&
           rows->ndims > 0 && rows->dims[rows->ndims - 1] == columns &&
           table->dims[table->ndims - 1] == columns;
}

/* slice(add(x, gather(b, i))) = add(slice(x), gather(slice(b), i)), if x is the result of a product
 * with experts, and a part of the columns is taken. */
static sinter_status_t over_bias(graph_t *g, int slice, int add)
{
    const node_t a = g->nodes[add];
    const lt_t sum = g->values[a.out[0]].lt;
    const int64_t columns = sum.dims[sum.ndims - 1];
    taken_t taken;
    bool of_columns;
    const int x = is_of_experts(g, a.in[0]) ? 0 : 1;
    SG_TRY(takes_columns(g, &g->nodes[slice], &taken, &of_columns));
    if (!of_columns || !is_of_experts(g, a.in[x]) || !is_row_of_table(g, a.in[1 - x], columns) ||
        g->values[a.in[x]].lt.ndims != sum.ndims ||
        g->values[a.in[x]].lt.dims[sum.ndims - 1] != columns) {
        return sinter_success;
    }
    const node_t of = g->nodes[g->values[a.in[1 - x]].producer];
    const int64_t last = g->values[of.in[0]].lt.ndims - 1, n = taken.n[taken.ndims - 1],
                  start = taken.start[taken.ndims - 1], step = taken.step[taken.ndims - 1],
                  end = start + (n - 1) * step + 1;
    lt_t rows = g->values[a.in[1 - x]].lt;
    int *ports = ARENA_NEW(&g->arena, int, 6), part, table;
    if (ports == NULL) {
        return sinter_out_of_memory;
    }
    rows.dims[rows.ndims - 1] = n;
    SG_TRY(slice_of(g, slice, a.in[x], &part));
    SG_TRY(add_slice(g, of.in[0], &start, &end, &last, &step, 1, &table));
    const int bias = pass_value_like(g, a.in[1 - x], rows.ndims, rows.dims);
    if (bias < 0) {
        return sinter_out_of_memory;
    }
    SG_TRY(pass_add_unary(g, of.kind, table, bias, of.attrs, of.n_attrs));
    node_t *gather = &g->nodes[g->n_nodes - 1], *half = &g->nodes[slice];
    const int out = half->out[0];
    memcpy(ports, (int[]){table, of.in[1], bias, x == 0 ? part : bias, x == 0 ? bias : part, out},
           sizeof(int) * 6);
    gather->n_in = 2;
    gather->in = ports;
    gather->out = ports + 2;
    *half = a; /* the Slice's place in the graph becomes that of the sum of the part */
    half->in = ports + 3;
    half->out = ports + 5;
    return sinter_success;
}

/* slice(f(x)) = f(slice(x)) where f is a TypeCast, a dequantisation or the bias of an expert */
sinter_status_t pass_raise_slices(graph_t *sub)
{
    for (int i = 0; i < sub->n_nodes; i++) {
        const node_t *n = &sub->nodes[i];
        const int p = n->kind == sinter_op_slice && !n->dead ? sub->values[n->in[0]].producer : -1;
        if (p < 0 || sub->values[n->in[0]].lt.ndims < 0) {
            continue;
        }
        if (sub->nodes[p].kind == sinter_op_type_cast) {
            SG_TRY(over_cast(sub, i, p));
        } else if ((op_flags(sub->nodes[p].kind) & OP_DEQUANT) != 0) {
            SG_TRY(over_dequant(sub, i, p));
        } else if (sub->nodes[p].kind == sinter_op_add) {
            SG_TRY(over_bias(sub, i, p));
        }
    }
    return sinter_success;
}
