/* The shape rules run over a whole graph, on a list of logical tensors beside it (by value): for
 * the dims of an execute, and for representative dims at compile. Only the latter allocate. */
#include <string.h>

#include "base/status.h"
#include "graph/graph.h"
#include "graph/quant.h"
#include "graph/schema.h"

enum { MOST_PORTS = OP_MAX_PORTS };

/* Copies of what a node reads and makes, with the tensor ids that messages name. */
static sinter_status_t take_ports(const graph_t *g, const node_t *node, const lt_t *lts, lt_t *in,
                                  lt_t *out)
{
    if (node->n_in > MOST_PORTS || node->n_out > MOST_PORTS) {
        return sg_fail(sinter_unimplemented, "%s: too many ports", node_label(node));
    }
    for (int i = 0; i < node->n_in; i++) {
        in[i] = lts[node->in[i]];
        in[i].id = graph_message_id(g, node->in[i]);
    }
    for (int i = 0; i < node->n_out; i++) {
        out[i] = lts[node->out[i]];
        out[i].id = graph_message_id(g, node->out[i]);
    }
    return sinter_success;
}

/* Takes a copy back; true: it brought something new. */
static bool give_back(lt_t *lt, const lt_t *copy)
{
    const bool changed =
        lt->ndims != copy->ndims || memcmp(lt->dims, copy->dims, sizeof lt->dims) != 0;
    const uint64_t id = lt->id;
    *lt = *copy;
    lt->id = id;
    return changed;
}

sinter_status_t graph_infer_dims(const graph_t *g, lt_t *lts)
{
    for (int t = 0; t < graph_n_live(g); t++) {
        const node_t *node = &g->nodes[g->topo[t]];
        lt_t in[MOST_PORTS], out[MOST_PORTS];
        SG_TRY(take_ports(g, node, lts, in, out));
        SG_TRY(op_infer_shapes(node, in, out));
        for (int i = 0; i < node->n_out; i++) {
            if (!lt_dims_known(&out[i])) {
                return sg_fail(sinter_unimplemented,
                               "%s: dims of tensor %llu do not follow from the inputs",
                               node_label(node), (unsigned long long)out[i].id);
            }
            (void)give_back(&lts[node->out[i]], &out[i]);
        }
    }
    return sinter_success;
}

sinter_status_t graph_check_groups(const graph_t *g, const lt_t *lts, bool dead)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const node_t *node = &g->nodes[i];
        lt_t in[MOST_PORTS], out[MOST_PORTS];
        quant_geom_t geom;
        if (node->quant != NULL && node->dead == dead &&
            (!dead || (op_flags(node->kind) & OP_DEQUANT) != 0)) {
            SG_TRY(take_ports(g, node, lts, in, out));
            SG_TRY(quant_geometry(node, in, out, &geom));
        }
    }
    return sinter_success;
}

/* ---- representative dims --------------------------------------------------------------------- */

/* What a rule says about a node's ports, inputs included. A matmul also relates the tensors of the
 * dequantisations that ride on its operands. */
static sinter_status_t solve_node(const graph_t *g, const node_t *node, lt_t *lts, bool *changed)
{
    lt_t in[MOST_PORTS], out[MOST_PORTS];
    SG_TRY(take_ports(g, node, lts, in, out));
    SG_TRY(op_infer_shapes(node, in, out));
    for (int i = 0; i < node->n_in; i++) {
        *changed = give_back(&lts[node->in[i]], &in[i]) || *changed;
    }
    for (int i = 0; i < node->n_out; i++) {
        *changed = give_back(&lts[node->out[i]], &out[i]) || *changed;
    }
    for (int i = 0; node->in_dequant != NULL && i < node->n_in; i++) {
        if (node->in_dequant[i] != NULL) {
            SG_TRY(solve_node(g, node->in_dequant[i], lts, changed));
        }
    }
    return sinter_success;
}

/* Runs all rules, in both directions, until nothing changes. */
static sinter_status_t solve(const graph_t *g, lt_t *lts)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int t = 0, n = graph_n_live(g); t < 2 * n; t++) { /* down and up again */
            const int at = t < n ? t : 2 * n - 1 - t;
            SG_TRY(solve_node(g, &g->nodes[g->topo[at]], lts, &changed));
        }
    }
    return sinter_success;
}

/* For a dim that nothing known meets: unlike any usual dim, but divisible by usual group sizes and
 * by what reshapes usually split off, so that views and groups can be decided as for most dims. */
enum { USUAL_DIM = 256 * 3 * 5 * 7, MOST_DIM = 1 << 24 };

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t divisor = a, rest = b;
    while (rest != 0) {
        const int64_t next = divisor % rest;
        divisor = rest;
        rest = next;
    }
    return a / divisor * b;
}

/* The same, divisible by what the reshapes of this graph split off. */
static int64_t divisible_dim(const graph_t *g)
{
    int64_t dim = USUAL_DIM;
    for (int t = 0; t < graph_n_live(g); t++) {
        const node_t *node = &g->nodes[g->topo[t]];
        const attr_t *shape =
            node->kind == sinter_op_static_reshape ? node_attr(node, sinter_op_attr_shape) : NULL;
        for (size_t i = 0; shape != NULL && i < shape->n; i++) {
            const bool counts = shape->s64[i] > 0 && shape->s64[i] <= MOST_DIM;
            const int64_t more = counts ? common_multiple(dim, shape->s64[i]) : dim;
            dim = more <= MOST_DIM ? more : dim;
        }
    }
    return dim;
}

/* How unknown dims get their numbers: all at once; or one by one, where each decides others. The
 * latter matters where a result has the dims of a window over an unknown dim, and a dim of an input
 * must be the same, or where one unknown dim is a multiple of another, as rows of a cache are of
 * the number of sequences. SMALLEST: small numbers first, so that the product of several can be a
 * known dim. */
typedef enum represent { AT_ONCE, ONE_BY_ONE, SMALLEST } represent_t;

/* Chooses a number for an unknown dim, and lets the rules say which others it decides. Where a
 * known dim follows from this one, as from the dim that a window slides over, the first number that
 * leads to it is taken. Multiples of the usual number come first: the rows of all sequences are one
 * of the rows of a sequence. 1 comes last, as it has properties that other numbers lack. before:
 * room for a copy of lts. */
static sinter_status_t choose_dim(const graph_t *g, lt_t *lts, int v, int d, int64_t usual,
                                  represent_t how, lt_t *before)
{
    enum { MULTIPLES = 16, MOST = 4096 };
    sinter_status_t status = sinter_invalid_shape;
    memcpy(before, lts, sizeof(lt_t) * (size_t)g->n_values);
    for (int64_t n = how == SMALLEST ? MULTIPLES + 1 : 1;
         n <= MULTIPLES + MOST && status == sinter_invalid_shape; n++) {
        const int64_t small = n - MULTIPLES + 1;
        memcpy(lts, before, sizeof(lt_t) * (size_t)g->n_values);
        lts[v].dims[d] = n <= MULTIPLES ? n * usual : small <= MOST ? small : 1;
        status = solve(g, lts);
    }
    return status;
}

/* usual: the number to begin with. before: room for a copy of lts, where it is not AT_ONCE. */
static sinter_status_t represent(const graph_t *g, lt_t *lts, int64_t usual, represent_t how,
                                 lt_t *before)
{
    for (int v = 0; v < g->n_values; v++) {
        lts[v] = g->values[v].lt;
    }
    SG_TRY(solve(g, lts));
    for (int v = 0; v < g->n_values; v++) {
        for (int d = 0; d < lts[v].ndims && g->values[v].producer < 0; d++) {
            if (lts[v].dims[d] == SINTER_UNKNOWN_DIM && how != AT_ONCE) {
                SG_TRY(choose_dim(g, lts, v, d, usual, how, before));
            } else if (lts[v].dims[d] == SINTER_UNKNOWN_DIM) {
                lts[v].dims[d] = usual;
            }
        }
    }
    for (int v = 0; v < g->n_values; v++) {
        /* Dims that the inputs lead to: what was only likely shows here if it is wrong. */
        if (g->values[v].producer >= 0) {
            lts[v] = g->values[v].lt;
        }
    }
    return graph_infer_dims(g, lts);
}

sinter_status_t graph_representative_dims(const graph_t *g, lt_t *lts)
{
    const int64_t divisible = divisible_dim(g);
    if (represent(g, lts, USUAL_DIM, AT_ONCE, NULL) == sinter_success ||
        represent(g, lts, divisible, AT_ONCE, NULL) == sinter_success) {
        return sinter_success;
    }
    lt_t *before = sg_alloc(g->engine, sizeof(lt_t) * ((size_t)g->n_values + 1), _Alignof(lt_t));
    if (before == NULL) {
        return sinter_out_of_memory;
    }
    sinter_status_t status = represent(g, lts, divisible, ONE_BY_ONE, before);
    status = status == sinter_success ? status : represent(g, lts, divisible, SMALLEST, before);
    sg_free(g->engine, before);
    return status;
}
