/* Recurrent layers: GATED_DELTA_NET, SSM_SCAN, SSM_CONV and L2_NORM. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "special.h"

/* ---- states ---------------------------------------------------------------------------------- */

/* What an op of ggml gives is one tensor: o and, behind it, the states of all sequences. llama.cpp
 * copies these into a cache that has a state for each slot, from which it has taken the ones before.
 * Where that is so, the op reads and writes the cache itself. */
typedef struct states {
    gs_input_t cache;    /* in four dims: slots, heads, values, keys */
    const tensor_t *ids; /* which slots are read; NULL: the op reads no cache, but `before` */
    const tensor_t *before;
    int copy; /* the node that copies to slots from `first` on; -1: there is none */
    int32_t first;
    int64_t sequences;
} states_t;

/* The node has the memory of t, or a part of it, as a source. */
static bool reads(const tensor_t *node, const tensor_t *root)
{
    bool found = false;
    for (int s = 0; s < GGML_MAX_SRC && !found; s++) {
        found = node->src[s] && gs_root(node->src[s]) == root;
    }
    return found;
}

/* Whether t is no more than o. */
static bool is_in_o(const tensor_t *t, const tensor_t *node, int64_t o_elements)
{
    const size_t offset = (size_t)((const char *)t->data - (const char *)node->data);
    return offset + ggml_nbytes(t) <= (size_t)o_elements * sizeof(float);
}

/* Whether node number n copies all states, which lie behind o_elements, into slots of the cache. */
static bool copies_states(const gs_builder_t *b, int n, const tensor_t *t, int64_t o_elements,
                          const tensor_t *cache, states_t *st)
{
    const tensor_t *copy = b->tensors->list[n], *from = copy->src[0];
    if (copy->op != GGML_OP_CPY || gs_root(from) != t || gs_root(copy) != gs_root(cache) ||
        copy->type != GGML_TYPE_F32 || !ggml_is_contiguous(from) || !ggml_is_contiguous(copy)) {
        return false;
    }
    const int64_t each =
        cache->ne[0] * (cache->ne[3] > 1 || cache->ne[2] > 1 ? cache->ne[1] * cache->ne[2] : 1);
    const size_t bytes = (size_t)each * sizeof(float);
    const ptrdiff_t at = (const char *)copy->data - (const char *)cache->data;
    st->first = (int32_t)(at / (ptrdiff_t)bytes);
    return (const char *)from->data == (const char *)t->data + (size_t)o_elements * sizeof(float) &&
           ggml_nelements(from) == st->sequences * each && at >= 0 && at % (ptrdiff_t)bytes == 0;
}

/* Finds the node that copies the states into the cache, if nothing else reads them, and nothing
 * reads the cache before that. */
static void find_copy(const gs_builder_t *b, const tensor_t *t, int64_t o_elements,
                      const tensor_t *cache, states_t *st)
{
    int copy = -1;
    st->copy = -1;
    if (gs_output_of(b, b->node)) {
        return;
    }
    for (int n = b->node + 1; n < b->tensors->n_nodes; n++) {
        const tensor_t *node = b->tensors->list[n];
        if (gs_is_noop(node)) {
            continue;
        }
        if (copy < 0 && n < b->end && copies_states(b, n, t, o_elements, cache, st)) {
            copy = n;
            continue;
        }
        for (int s = 0; s < GGML_MAX_SRC; s++) {
            const tensor_t *src = node->src[s];
            if (src && gs_root(src) == t && !is_in_o(src, t, o_elements)) {
                return;
            }
        }
        if (copy < 0 && reads(node, gs_root(cache))) {
            return;
        }
    }
    st->copy = copy;
}

/* *lt = states for the op, and *to = the slots that it writes, if there are any. */
static bool use_states(gs_builder_t *b, states_t *st, lt_t *lt, lt_t *from, lt_t *to)
{
    if (!st->ids) {
        return gs_use_plain(b, st->before, 4, lt);
    }
    if (!gs_add_input(b, st->cache, lt) || !gs_use_plain(b, st->ids, 1, from)) {
        return false;
    }
    if (st->copy < 0) {
        return true;
    }
    int32_t *slots = malloc((size_t)st->sequences * sizeof(*slots));
    for (int64_t i = 0; i < st->sequences && slots; i++) {
        slots[i] = st->first + (int32_t)i;
    }
    const bool ok =
        slots ? gs_integers(b, slots, (int)st->sequences, to) : gs_fail(b, "out of memory");
    free(slots);
    return ok;
}

/* o, [sequences, tokens, heads, values], is what views see that begin where the present node does
 * and have as many elements. like: a tensor with the dims of o. */
static bool give_views(gs_builder_t *b, const lt_t *o, const tensor_t *like)
{
    const int node = b->node;
    const tensor_t *t = b->tensors->list[node];
    sinter_dim_t from[4], to[4];
    bool ok = true;
    for (int i = 0; i < 4; i++) {
        from[i] = gs_dim(b, like, 3 - i);
    }
    for (int n = node + 1; n < b->end && ok; n++) {
        const tensor_t *view = b->tensors->list[n];
        if (view->op != GGML_OP_VIEW || view->src[0] != t || view->data != t->data ||
            !ggml_is_contiguous(view) || ggml_nelements(view) != ggml_nelements(like)) {
            continue;
        }
        const int rank = gs_rank(view);
        lt_t y;
        for (int i = 0; i < rank; i++) {
            to[i] = gs_dim(b, view, rank - 1 - i);
        }
        ok = gs_reshape(b, o, from, 4, to, rank, &y);
        b->node = n;
        ok = ok && gs_done(b, &y, rank, gs_plain_order(rank));
        b->node = node;
    }
    return ok;
}

/* The result of the node: the copy of the states is done, or o and the states behind it, as rows if
 * the rank is 2. */
static bool done_with_states(gs_builder_t *b, const tensor_t *t, int rank, const lt_t *o,
                             const lt_t *next, const states_t *st)
{
    if (st->copy >= 0) {
        gs_output_t *output = gs_output_of(b, st->copy);
        const int root = gs_tensors_find(b->tensors, gs_root(b->tensors->list[st->copy]));
        if (output) {
            output->id = next->id;
            output->tensor = -1;
        }
        b->values[st->copy] = (gs_value_t){.known = true};
        b->versions[root] = (gs_value_t){.known = true};
        return true;
    }
    const int64_t shape[2] = {-1, t->ne[0]};
    const lt_t o_flat = gs_inner(b, sinter_f32), next_flat = gs_inner(b, sinter_f32);
    const lt_t y = gs_result(b, rank, gs_plain_order(rank));
    const size_t n = rank > 1 ? 2 : 1;
    return gs_add(b, sinter_op_static_reshape, sinter_in(o), sinter_out(&o_flat),
                  sinter_attr_s64s(sinter_op_attr_shape, n, shape),
                  sinter_attr_bool(sinter_op_attr_special_zero, 0)) &&
           gs_add(b, sinter_op_static_reshape, sinter_in(next), sinter_out(&next_flat),
                  sinter_attr_s64s(sinter_op_attr_shape, n, shape),
                  sinter_attr_bool(sinter_op_attr_special_zero, 0)) &&
           gs_add(b, sinter_op_concat, sinter_in(&o_flat), sinter_in(&next_flat), sinter_out(&y),
                  sinter_attr_s64(sinter_op_attr_axis, 0)) &&
           gs_done(b, &y, rank, gs_plain_order(rank));
}

/* Adds a LinearAttention with n parts, which lack the indices and the results. like: a
 * tensor with the dims of o. */
static bool add_recurrence(gs_builder_t *b, const tensor_t *t, int rank, int n,
                           sinter_op_part_t *parts, const states_t *st, const lt_t *state,
                           const lt_t *from, const lt_t *to, const tensor_t *like)
{
    const lt_t o = gs_inner(b, sinter_f32);
    lt_t next = gs_inner(b, sinter_f32);
    if (st->copy >= 0) { /* in place */
        const uint64_t id = next.id;
        next = *state;
        next.id = id;
        next.property = sinter_tensor_property_undef;
    }
    if (st->ids) {
        parts[n++] = sinter_in(from);
    }
    if (st->copy >= 0) {
        parts[n++] = sinter_in(to);
    }
    parts[n++] = sinter_out(&o);
    parts[n++] = sinter_out(&next);
    return gs_add_parts(b, sinter_op_linear_attention, n, parts) &&
           done_with_states(b, t, rank, &o, &next, st) && give_views(b, &o, like);
}

/* ---- GATED_DELTA_NET ------------------------------------------------------------------------- */

static const char *refuse_delta(const tensor_t *t)
{
    const tensor_t *v = t->src[2];
    for (int i = 0; i < 6; i++) {
        const char *why = gs_unreadable_floats(t->src[i]);
        if (why) {
            return why;
        }
    }
    return t->op_params[0] != 1 ? "earlier states"
           : t->src[0]->ne[3] != v->ne[3] || t->src[1]->ne[3] != v->ne[3]
               ? "sequences that share queries or keys"
           : v->ne[2] == 0 || v->ne[3] == 0 ? "no tokens"
                                            : NULL;
}

/* The states are rows of a cache of floats that ids name, and memory holds the cache as it was. */
static void find_cache(const gs_builder_t *b, const tensor_t *t, const tensor_t *before,
                       states_t *st)
{
    const tensor_t *rows = before->op == GGML_OP_RESHAPE ? before->src[0] : NULL;
    const tensor_t *cache = rows && rows->op == GGML_OP_GET_ROWS ? rows->src[0] : NULL;
    *st = (states_t){.before = before, .copy = -1, .sequences = before->ne[3]};
    if (!cache || !gs_in_graph(b, rows) || cache->type != GGML_TYPE_F32 ||
        gs_root(cache)->op != GGML_OP_NONE || gs_version_of(b, cache) ||
        !ggml_is_contiguous(cache) || cache->ne[2] != 1 || cache->ne[3] != 1 ||
        cache->ne[0] * (int64_t)sizeof(float) != (int64_t)before->nb[3] ||
        rows->src[1]->ne[0] != before->ne[3] || ggml_nrows(rows->src[1]) != 1) {
        return;
    }
    st->ids = rows->src[1];
    st->cache = gs_input_in_order(b, cache, -1, 4, gs_plain_order(4));
    st->cache.strides_of = gs_tensors_find(b->tensors, before);
    for (int i = 1; i < 4; i++) {
        st->cache.size_of[i] = st->cache.strides_of;
    }
    st->cache.size_dim[0] = 1;
    if (gs_dim(b, before, 3) >= 0) {
        find_copy(b, t, ggml_nelements(t->src[2]), cache, st);
    }
}

static bool translate_delta(gs_builder_t *b, const tensor_t *t)
{
    const tensor_t *v = t->src[2];
    states_t st;
    lt_t in[5], state, from, to;
    find_cache(b, t, t->src[5], &st);
    for (int i = 0; i < 5; i++) {
        if (!gs_use_plain(b, t->src[i], 4, &in[i])) {
            return false;
        }
    }
    if (!use_states(b, &st, &state, &from, &to)) {
        return false;
    }
    sinter_op_part_t parts[16] = {sinter_in(&in[0]),
                                  sinter_in(&in[1]),
                                  sinter_in(&in[2]),
                                  sinter_in(&state),
                                  sinter_in(&in[3]),
                                  sinter_in(&in[4]),
                                  sinter_attr_str(sinter_op_attr_mode, "gated_delta"),
                                  sinter_attr_f32(sinter_op_attr_scale, 1 / sqrtf((float)v->ne[0])),
                                  sinter_attr_bool(sinter_op_attr_interleaved, 0)};
    return add_recurrence(b, t, 2, 9, parts, &st, &state, &from, &to, v);
}

const gs_special_t gs_gated_delta_net = {.translate = translate_delta, .refuse = refuse_delta};

/* ---- SSM_SCAN -------------------------------------------------------------------------------- */

/* s: states [slots, heads, values, keys]; x: [sequences, tokens, heads, values]; dt: [sequences,
 * tokens, heads]; a: [heads, 1 or keys]; b, c: [sequences, tokens, groups, keys]; ids. */
enum { SCAN_S, SCAN_X, SCAN_DT, SCAN_A, SCAN_B, SCAN_C, SCAN_IDS };

static const char *refuse_scan(const tensor_t *t)
{
    for (int i = 0; i < SCAN_IDS; i++) {
        const char *why = gs_unreadable_floats(t->src[i]);
        if (why) {
            return why;
        }
    }
    return t->op_params[0] != 1                                       ? "earlier states"
           : t->src[SCAN_X]->ne[2] == 0 || t->src[SCAN_X]->ne[3] == 0 ? "no tokens"
                                                                      : NULL;
}

/* With d = softplus(dt):  S' = exp(d a) S + (d x) b,  y = S' c  (Dao, Gu: Transformers are SSMs,
 * 2024, equation 1 with scalars for a). */
static bool translate_scan(gs_builder_t *b, const tensor_t *t)
{
    const tensor_t *dt = t->src[SCAN_DT];
    const sinter_dim_t from[3] = {gs_dim(b, dt, 2), gs_dim(b, dt, 1), gs_dim(b, dt, 0)},
                       to[4] = {from[0], from[1], from[2], 1};
    states_t st = {.ids = t->src[SCAN_IDS], .copy = -1, .sequences = t->src[SCAN_X]->ne[3]};
    const tensor_t *cache = t->src[SCAN_S];
    lt_t s, x, three, four, a, keys, queries, from_slots, to_slots, decay, values;
    if (gs_in_graph(b, cache) || gs_version_of(b, cache)) {
        if (!gs_use_plain(b, cache, 4, &s) || !gs_use_plain(b, st.ids, 1, &from_slots)) {
            return false;
        }
    } else {
        st.cache = gs_input_in_order(b, cache, -1, 4, gs_plain_order(4));
        if (gs_root(cache)->op == GGML_OP_NONE && gs_dim(b, t->src[SCAN_X], 3) >= 0) {
            find_copy(b, t, ggml_nelements(t->src[SCAN_X]), cache, &st);
        }
        if (!use_states(b, &st, &s, &from_slots, &to_slots)) {
            return false;
        }
    }
    if (!gs_use_plain(b, t->src[SCAN_X], 4, &x) || !gs_use_plain(b, dt, 3, &three) ||
        !gs_reshape(b, &three, from, 3, to, 4, &four) || !gs_use_plain(b, t->src[SCAN_A], 2, &a) ||
        !gs_use_plain(b, t->src[SCAN_B], 4, &keys) ||
        !gs_use_plain(b, t->src[SCAN_C], 4, &queries)) {
        return false;
    }
    const lt_t d = gs_inner(b, sinter_f32);
    if (!gs_add(b, sinter_op_softplus, sinter_in(&four), sinter_out(&d)) ||
        !gs_binary(b, sinter_op_multiply, &d, &a, &decay) ||
        !gs_binary(b, sinter_op_multiply, &x, &d, &values)) {
        return false;
    }
    sinter_op_part_t parts[16] = {sinter_in(&queries),
                                  sinter_in(&keys),
                                  sinter_in(&values),
                                  sinter_in(&s),
                                  sinter_in(&decay),
                                  sinter_attr_str(sinter_op_attr_mode, "gated"),
                                  sinter_attr_bool(sinter_op_attr_interleaved, 1)};
    return add_recurrence(b, t, 1, 7, parts, &st, &s, &from_slots, &to_slots, t->src[SCAN_X]);
}

const gs_special_t gs_ssm_scan = {.translate = translate_scan, .refuse = refuse_scan};

/* ---- SSM_CONV -------------------------------------------------------------------------------- */

static const char *refuse_conv(const tensor_t *t)
{
    const char *why = gs_unreadable_floats(t->src[0]);
    return why ? why : gs_unreadable_floats(t->src[1]);
}

static int64_t channels_of_conv(const tensor_t *t)
{
    return t->ne[0];
}

/* A filter for each channel: a convolution over tokens with as many groups as there are channels.
 * src[0] is [sequences, channels, tokens], src[1] [channels, taps]; the result [sequences, results,
 * channels]. */
static bool translate_conv(gs_builder_t *b, const tensor_t *t)
{
    static const int channels_last[3] = {2, 0, 1};
    static const int64_t one = 1, none = 0;
    const tensor_t *taps = t->src[1];
    lt_t x, w, filter;
    if (gs_dim(b, t, 0) < 0) {
        return gs_fail(b, "channels whose number changes");
    }
    const sinter_dim_t two[2] = {taps->ne[1], taps->ne[0]},
                       three[3] = {taps->ne[1], 1, taps->ne[0]};
    if (!gs_use(b, t->src[0], 3, channels_last, &x) || !gs_use_plain(b, taps, 2, &w) ||
        !gs_reshape(b, &w, two, 2, three, 3, &filter)) {
        return false;
    }
    const lt_t y = gs_result(b, 3, gs_plain_order(3));
    return gs_add(b, sinter_op_convolution, sinter_in(&x), sinter_in(&filter), sinter_out(&y),
                  sinter_attr_s64s(sinter_op_attr_strides, 1, &one),
                  sinter_attr_s64s(sinter_op_attr_pads_begin, 1, &none),
                  sinter_attr_s64s(sinter_op_attr_pads_end, 1, &none),
                  sinter_attr_s64s(sinter_op_attr_dilations, 1, &one),
                  sinter_attr_s64(sinter_op_attr_groups, t->ne[0]),
                  sinter_attr_str(sinter_op_attr_data_format, "NXC"),
                  sinter_attr_str(sinter_op_attr_weights_format, "OIX")) &&
           gs_done(b, &y, 3, gs_plain_order(3));
}

const gs_special_t gs_ssm_conv = {
    .translate = translate_conv, .refuse = refuse_conv, .fixed = channels_of_conv};

/* ---- L2_NORM --------------------------------------------------------------------------------- */

/* y = x / max(|x|, epsilon) */
static bool translate_l2(gs_builder_t *b, const tensor_t *t)
{
    const int rank = gs_rank(t);
    lt_t x, least, divisor;
    if (!gs_use_plain(b, t->src[0], rank, &x) || !gs_scalar(b, gs_param(t, 0), &least)) {
        return false;
    }
    const lt_t length = gs_inner(b, sinter_f32);
    if (!gs_add(b, sinter_op_reduce_l2, sinter_in(&x), sinter_out(&length),
                sinter_attr_s64(sinter_op_attr_axes, -1),
                sinter_attr_bool(sinter_op_attr_keep_dims, 1)) ||
        !gs_binary(b, sinter_op_maximum, &length, &least, &divisor)) {
        return false;
    }
    const lt_t y = gs_result(b, rank, gs_plain_order(rank));
    return gs_add(b, sinter_op_divide, sinter_in(&x), sinter_in(&divisor), sinter_out(&y)) &&
           gs_done(b, &y, rank, gs_plain_order(rank));
}

static const char *refuse_l2(const tensor_t *t)
{
    return gs_unreadable_floats(t->src[0]);
}

const gs_special_t gs_l2_norm = {.translate = translate_l2, .refuse = refuse_l2};
