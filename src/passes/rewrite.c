#include <string.h>

#include "graph/schema.h"
#include "numeric/dtype.h"
#include "passes/passes.h"

sinter_status_t pass_add_unary(graph_t *g, sinter_op_kind_t kind, int in, int out, attr_t *attrs,
                               int n_attrs)
{
    int *ports = ARENA_NEW(&g->arena, int, 2);
    if (ports == NULL ||
        !arena_grow(&g->arena, (void **)&g->nodes, &g->cap_nodes, g->n_nodes, sizeof(node_t))) {
        return sinter_out_of_memory;
    }
    ports[0] = in;
    ports[1] = out;
    const int index = g->n_nodes++;
    g->nodes[index] = (node_t){.id = (UINT64_C(1) << 63) + (uint64_t)index,
                               .name = "",
                               .kind = kind,
                               .n_in = 1,
                               .n_out = 1,
                               .in = ports,
                               .out = ports + 1,
                               .attrs = attrs,
                               .n_attrs = n_attrs};
    g->values[out].producer = index;
    g->values[out].producer_port = 0;
    return sinter_success;
}

sinter_status_t pass_add_reshape(graph_t *g, int in, int out)
{
    const lt_t *lt = &g->values[out].lt;
    int64_t *shape = ARENA_NEW(&g->arena, int64_t, lt->ndims + 1);
    for (int d = 0; d < lt->ndims && shape != NULL; d++) {
        shape[d] = lt->dims[d] == SINTER_UNKNOWN_DIM ? -1 : lt->dims[d];
    }
    return shape == NULL ? sinter_out_of_memory : pass_add_reshape_by(g, in, out, shape, false);
}

sinter_status_t pass_add_reshape_by(graph_t *g, int in, int out, const int64_t *shape,
                                    bool special_zero)
{
    const size_t n = (size_t)g->values[out].lt.ndims;
    attr_t *attrs = ARENA_NEW(&g->arena, attr_t, 2);
    if (attrs == NULL) {
        return sinter_out_of_memory;
    }
    attrs[0] = (attr_t){.id = sinter_op_attr_shape, .n = n, .s64 = shape};
    attrs[1] = (attr_t){.id = sinter_op_attr_special_zero, .n = 1, .b = special_zero};
    return pass_add_unary(g, sinter_op_static_reshape, in, out, attrs, 2);
}

static sinter_status_t set_attr(graph_t *g, int node, const attr_t *attr)
{
    node_t *n = &g->nodes[node];
    attr_t *attrs = ARENA_NEW(&g->arena, attr_t, n->n_attrs + 1);
    int i = 0;
    if (attrs == NULL) {
        return sinter_out_of_memory;
    }
    if (n->n_attrs > 0) {
        memcpy(attrs, n->attrs, sizeof(attr_t) * (size_t)n->n_attrs);
    }
    while (i < n->n_attrs && attrs[i].id != attr->id) {
        i++;
    }
    attrs[i] = *attr;
    n->attrs = attrs;
    n->n_attrs += i == n->n_attrs;
    return sinter_success;
}

sinter_status_t pass_set_bool(graph_t *g, int node, sinter_op_attr_t id, bool value)
{
    return set_attr(g, node, &(attr_t){.id = id, .n = 1, .b = value});
}

sinter_status_t pass_set_s64(graph_t *g, int node, sinter_op_attr_t id, int64_t value)
{
    int64_t *copy = ARENA_NEW(&g->arena, int64_t, 1);
    if (copy == NULL) {
        return sinter_out_of_memory;
    }
    *copy = value;
    return set_attr(g, node, &(attr_t){.id = id, .n = 1, .s64 = copy});
}

int pass_value_like(graph_t *g, int like, int ndims, const int64_t *dims)
{
    const lt_t *of = &g->values[like].lt;
    lt_t lt = {.id = of->id, .ndims = ndims, .data_type = of->data_type, .property = of->property};
    memcpy(lt.dims, dims, sizeof(int64_t) * (size_t)ndims);
    lt_set_dense(&lt);
    return graph_add_value(g, &lt);
}

bool pass_is_f32_like(sinter_data_type_t type)
{
    return dtype_is_wide_float(type) && !dtype_needs_f64(type);
}

bool *pass_find_loose(graph_t *sub)
{
    bool *loose = ARENA_NEW(&sub->arena, bool, sub->n_values + 1);
    for (int v = 0; loose != NULL && v < sub->n_values; v++) {
        loose[v] = !sub->values[v].is_output;
    }
    for (int t = graph_n_live(sub) - 1; loose != NULL && t >= 0; t--) {
        const node_t *n = &sub->nodes[sub->topo[t]];
        if ((op_flags(n->kind) & OP_VIEW) != 0 && !loose[n->out[0]]) {
            loose[n->in[0]] = false;
        }
        const bool moves = (op_flags(n->kind) & OP_MOVE) != 0;
        for (int i = 0; i < n->n_in && moves; i++) {
            loose[n->in[i]] = false;
        }
        for (int o = 0; o < n->n_out && moves; o++) {
            loose[n->out[o]] = false;
        }
    }
    return loose;
}
