/* MatMul(y, dequant(x : any, s : any)) = MatMul(y, dequant(x : tiles, s : tiles))
 *
 * Inputs of layout any, of which compile chooses the layout: those that are all parts of a
 * product's second operand become tiles, also K and V of attention. Whether the kernels that will
 * run want them so, compile finds out when it has chosen these; then it may come here again. */
#include <inttypes.h>

#include "graph/cache.h"
#include "graph/experts.h"
#include "graph/layout.h"
#include "graph/quant.h"
#include "graph/schema.h"
#include "passes/passes.h"

enum { MOST_PARTS = 5 };

/* The tensors of a product's second operand; with experts, the tables of these. */
typedef struct parts {
    const graph_t *g;
    bool experts;
    int n, value[MOST_PARTS];
    bool codes[MOST_PARTS];
} parts_t;

static void add_part(parts_t *parts, int value, bool codes)
{
    parts->value[parts->n] = parts->experts ? graph_table_of_experts(parts->g, value) : value;
    parts->codes[parts->n++] = codes;
}

/* Scales or offsets, or what they are dequantised from. */
static void add_values(const graph_t *g, int value, parts_t *parts)
{
    const int p = g->values[value].producer;
    const node_t *inner = p >= 0 ? &g->nodes[p] : NULL;
    if (inner != NULL && inner->kind == sinter_op_dynamic_dequantize && inner->n_in == 2) {
        add_part(parts, inner->in[0], false);
        add_part(parts, inner->in[1], false);
    } else {
        add_part(parts, value, false);
    }
}

/* False: B is no tensor that a DynamicDequantize makes of whole codes. */
static bool find_parts(const graph_t *g, const node_t *matmul, parts_t *parts)
{
    const int p = g->values[matmul->in[1]].producer;
    const node_t *dq = p >= 0 ? &g->nodes[p] : NULL;
    *parts = (parts_t){.g = g, .experts = graph_experts(g, matmul) >= 0};
    if (p < 0 && graph_attends(matmul)) { /* a cache of plain floats */
        add_part(parts, matmul->in[1], true);
        return true;
    }
    if (dq == NULL || dq->kind != sinter_op_dynamic_dequantize ||
        quant_split_of(dq) != sinter_data_type_undef) {
        return false;
    }
    add_part(parts, dq->in[0], true);
    add_values(g, dq->in[dq->quant->scale_input], parts);
    if (dq->quant->zp_input >= 0) {
        add_values(g, dq->in[dq->quant->zp_input], parts);
    }
    return true;
}

static bool is_any(const value_t *v)
{
    return v->producer < 0 && !v->made_before && v->lt.layout_type == sinter_layout_type_any;
}

/* The tensor with the layout of its part of a product's second operand. */
static lt_t in_tiles(const lt_t *lt, const node_t *matmul, bool codes)
{
    lt_t tiles = *lt;
    tiles.layout_type = sinter_layout_type_opaque;
    tiles.layout_id = graph_attends(matmul)
                          ? graph_cache_layout(matmul, codes)
                          : layout_id(codes ? TILED_CODES : TILED_VALUES,
                                      node_bool(matmul, sinter_op_attr_transpose_b, false));
    return tiles;
}

/* Why a part does not lie in tiles, behind its name; NULL: it does, or can. */
static const char *refuse_part(const value_t *v, const node_t *matmul, bool codes)
{
    const lt_t tiles = in_tiles(&v->lt, matmul, codes);
    return lt_is_opaque(&v->lt)   ? NULL
           : v->producer >= 0     ? "is computed in the partition"
           : !is_any(v)           ? "has strides"
           : v->why_dense != NULL ? "does not"
           : layout_verify(&tiles, "") != sinter_success
               ? "is no matrix of known dims, or of another type"
               : NULL;
}

static sinter_status_t choose(graph_t *g, const node_t *matmul, const parts_t *parts)
{
    const char *why = NULL;
    int of = -1;
    for (int i = 0; i < parts->n && why == NULL; i++) {
        of = parts->value[i];
        why = refuse_part(&g->values[of], matmul, parts->codes[i]);
    }
    textbuf_t text;
    text_init(&text, &g->arena);
    if (why != NULL) {
        text_add(&text, "all tensors of its operand must lie in tiles, and tensor %" PRIu64 " %s",
                 graph_message_id(g, of), why);
    }
    for (int i = 0; i < parts->n; i++) {
        value_t *v = &g->values[parts->value[i]];
        if (!is_any(v) || v->why_dense != NULL) {
            continue;
        }
        if (text.len > 0) {
            v->why_dense = text.text;
        } else {
            v->lt = in_tiles(&v->lt, matmul, parts->codes[i]);
            v->chosen = true;
        }
    }
    return text.oom ? sinter_out_of_memory : sinter_success;
}

/* MatMul(y, dequant(x : any, s : any)) = MatMul(y, dequant(x : tiles, s : tiles)) */
sinter_status_t pass_choose_layouts(graph_t *sub)
{
    for (int t = 0; t < graph_n_live(sub); t++) {
        const node_t *n = &sub->nodes[sub->topo[t]];
        parts_t parts;
        if (n->kind == sinter_op_matmul && find_parts(sub, n, &parts)) {
            const sinter_status_t status = choose(sub, n, &parts);
            if (status != sinter_success) {
                return status;
            }
        }
    }
    return sinter_success;
}
