/* Caches in pages (graph/pages.h). Attention reads them where the blocks lie if K and V, and their
 * scales and zero points that differ from token to token, come from blocks by one table. */
#include <string.h>

#include "backend_xsmm/plan/lower.h"
#include "base/status.h"
#include "graph/schema.h"

enum { PARTS = 3 };

/* The codes, scales and zero points of K or of V, and their dims of tokens; -1: there are none, or
 * no such dim. */
typedef struct parts {
    int value[PARTS], tokens[PARTS];
} parts_t;

static const node_t *product_of(const lowering_t *lo, const char *role)
{
    const node_t *found = NULL;
    for (int t = 0; t < graph_n_live(lo->g); t++) {
        const node_t *n = &lo->g->nodes[lo->g->topo[t]];
        found = n->kind == sinter_op_matmul && node_has_role(n, role) ? n : found;
    }
    return found;
}

static parts_t parts_of(const lowering_t *lo, const node_t *product)
{
    const bool is_k = node_has_role(product, "qk"),
               trans = node_bool(product, sinter_op_attr_transpose_b, false);
    const int last = lo->g->values[product->in[1]].lt.ndims - 1,
              tokens = trans == is_k ? last - 1 : last;
    parts_t parts = {{product->in[1], -1, -1}, {tokens, -1, -1}};
    const node_t *dq = product->in_dequant != NULL ? product->in_dequant[1] : NULL;
    for (int i = 1; i < PARTS && dq != NULL && tokens >= 0; i++) {
        const quant_t *q = dq->quant;
        const int port = i == 1 ? q->scale_input : q->zp_input;
        if (port >= 0) {
            parts.value[i] = dq->in[port];
            parts.tokens[i] = i == 1 ? q->geom.scale_dim[tokens] : q->geom.zp_dim[tokens];
        }
    }
    return parts;
}

/* A tensor from outside, or views and Slices of one, which are read where it lies. */
static bool lies_outside(const graph_t *g, int value)
{
    int p = g->values[value].producer;
    while (p >= 0 && lower_is_view(&g->nodes[p])) {
        p = g->values[g->nodes[p].in[0]].producer;
    }
    return p < 0;
}

/* Why a part does not lie in pages. */
static const char *refuse_part(const lowering_t *lo, const parts_t *parts, int i, pages_of_t *of)
{
    const graph_t *g = lo->g;
    const char *why;
    if (!graph_pages(g, parts->value[i], parts->tokens[i], of, &why)) {
        return why != NULL ? why : "some values of tokens are not taken from blocks";
    }
    return !lies_outside(g, of->blocks)  ? "blocks are computed in the same partition"
           : !lies_outside(g, of->table) ? "the table is computed in the same partition"
                                         : NULL;
}

/* A part with a value for each token. */
static bool has_tokens(const lowering_t *lo, const parts_t *parts, int i)
{
    return parts->value[i] >= 0 && parts->tokens[i] >= 0 &&
           (i == 0 || lo->g->values[parts->value[i]].lt.dims[parts->tokens[i]] != 1);
}

/* Marks what leads from blocks to a part, and what takes rows of its table. */
static void pass_over(lowering_t *lo, int value, const pages_of_t *of)
{
    const int table = lo->g->nodes[of->gather].in[1];
    if (of->rows >= 0) {
        lo->passed[lo->g->values[table].producer] = true;
    }
    for (int p = lo->g->values[value].producer;;
         p = lo->g->values[lo->g->nodes[p].in[0]].producer) {
        lo->passed[p] = true;
        if (lo->g->nodes[p].kind == sinter_op_gather) {
            break;
        }
    }
}

/* The pages of all parts of a product's operand; `first` are those of K's codes. */
static const char *find_pages(const lowering_t *lo, const node_t *const products[2], int s,
                              const pages_of_t *first, pages_of_t *of)
{
    const node_t *dq = products[s]->in_dequant != NULL ? products[s]->in_dequant[1] : NULL;
    const parts_t parts = parts_of(lo, products[s]);
    if (dq != NULL && quant_split_of(dq) != sinter_data_type_undef) {
        return "codes lie in two planes";
    }
    for (int i = 0; i < PARTS; i++) {
        of[i].gather = -1;
        if (!has_tokens(lo, &parts, i)) {
            continue;
        }
        const char *why = refuse_part(lo, &parts, i, &of[i]);
        if (why != NULL) {
            return why;
        }
        if (!graph_pages_alike(lo->g, first, &of[i])) {
            return "K, V, scales or zero points have tables or blocks of their own";
        }
        if (i > 0 && (parts.tokens[i] != parts.tokens[0] ||
                      memcmp(of[i].of_table, of[0].of_table, sizeof of->of_table) != 0)) {
            return "scales or zero points have other dims than their codes";
        }
    }
    return NULL;
}

/* What the Gathers and the views behind them make is read by one another and by the products, in
 * pages, alone. */
static bool others_read(const lowering_t *lo, const node_t *const products[2])
{
    const graph_t *g = lo->g;
    bool others = false;
    for (int t = 0; t < graph_n_live(g); t++) {
        const int node = g->topo[t], v = g->nodes[node].out[0];
        others = others || (lo->passed[node] && g->values[v].is_output);
        for (int u = g->uses_begin[v]; u < g->uses_begin[v + 1] && lo->passed[node]; u++) {
            const node_t *n = &g->nodes[g->uses[u]];
            const bool product = (n == products[0] || n == products[1]) && n->in[0] != v;
            others = others || !(lo->passed[g->uses[u]] || (product && lo->pages[v] != NULL));
        }
    }
    return others;
}

sinter_status_t lower_pages(lowering_t *lo)
{
    const node_t *const products[2] = {product_of(lo, "qk"), product_of(lo, "pv")};
    const node_t *taken[2] = {NULL, NULL};
    pages_of_t *all = ARENA_NEW(&lo->plan->arena, pages_of_t, 2 * PARTS);
    if (all == NULL) {
        return sinter_out_of_memory;
    }
    for (int s = 0; s < 2; s++) {
        taken[s] = products[s] != NULL ? graph_gather_shown(lo->g, products[s]->in[1]) : NULL;
    }
    if (taken[0] == NULL || taken[1] == NULL) {
        return sinter_success;
    }
    lo->table = taken[0]->in[1]; /* a reason to try without pages */
    for (int s = 0; s < 2; s++) {
        const parts_t parts = parts_of(lo, products[s]);
        pages_of_t *of = all + s * PARTS;
        lo->why_not = find_pages(lo, products, s, all, of);
        if (lo->why_not != NULL) {
            return sinter_unimplemented;
        }
        for (int i = 0; i < PARTS; i++) {
            if (of[i].gather >= 0) {
                lo->pages[parts.value[i]] = &of[i];
                pass_over(lo, parts.value[i], &of[i]);
            }
        }
    }
    lo->table = all[0].table;
    lo->rows = all[0].rows;
    lo->why_not = others_read(lo, products) ? "others read what the Gathers take, too" : NULL;
    return lo->why_not == NULL ? sinter_success : sinter_unimplemented;
}

/* Strides of the tensor that the pages lie in are known to compile. */
static bool strides_known(const lowering_t *lo, int value)
{
    return lt_strides_known(&lo->g->values[plan_memory_of(lo->plan, value)].lt);
}

static sinter_status_t assume(lowering_t *lo, int value, int as)
{
    plan_t *plan = lo->plan;
    if (!arena_grow(&plan->arena, (void **)&plan->assumed, &plan->cap_assumed, plan->n_assumed,
                    sizeof(same_dims_t))) {
        return sinter_out_of_memory;
    }
    plan->assumed[plan->n_assumed++] = (same_dims_t){value, as, true};
    return sinter_success;
}

sinter_status_t lower_pages_alike(lowering_t *lo)
{
    const char *const roles[] = {"qk", "pv"};
    for (int s = 0; s < 2; s++) {
        const parts_t parts = parts_of(lo, product_of(lo, roles[s]));
        const int codes = parts.value[0];
        for (int i = 0; i < PARTS; i++) {
            const int v = parts.value[i];
            if (v < 0 || lo->pages[v] == NULL) {
                continue;
            }
            if (lo->plan->values[plan_memory_of(lo->plan, v)].kind != PV_INPUT) {
                lo->why_not = "no strides show the blocks in the tensor that they lie in";
                return sinter_unimplemented;
            }
            if (!strides_known(lo, v) || !strides_known(lo, codes)) {
                SG_TRY(assume(lo, v, codes));
                continue;
            }
            const int64_t apart = pages_apart(&lo->bound[v]);
            if (apart < 0 || apart != pages_apart(&lo->bound[codes])) {
                lo->why_not = apart < 0 ? "blocks are no whole number of tokens apart"
                                        : "blocks of scales or zero points are another number of "
                                          "tokens apart than those of their codes";
                return sinter_unimplemented;
            }
        }
    }
    return sinter_success;
}
