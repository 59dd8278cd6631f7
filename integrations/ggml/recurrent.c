/* Recurrent layers: GATED_DELTA_NET, SSM_SCAN, RWKV_WKV6, RWKV_WKV7, GATED_LINEAR_ATTN, SSM_CONV
 * and L2_NORM. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "special.h"

/* ---- states ---------------------------------------------------------------------------------- */

/* What an op of ggml gives is one tensor: o and, behind it, the states of all sequences. llama.cpp
 * copies these into a cache that has a state for each slot, from which it has taken the ones
 * before. Where that is so, the op reads and writes the cache itself. */
enum { MOST_STATES = 16 };
typedef struct states {
    gs_input_t cache;    /* in four dims: slots, heads, values, keys */
    const tensor_t *ids; /* which slots are read; NULL: the op reads no cache, but `before` */
    const tensor_t *before;
    /* Of states that lie one after another, in whatever dims `before` has: heads, and elements of a
     * key and of a value. size 0: `before` has the dims of the states. */
    int64_t heads, size;
    bool turned;   /* the elements of a value follow one another */
    bool in_graph; /* `before` has all slots, and a node of this graph has made them */
    int copy;      /* the node that copies to slots from `first` on; -1: there is none */
    int32_t first;
    int64_t sequences;
    int64_t each; /* elements of the state of a sequence */
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
    if (gs_op(copy) != GS_OP_CPY || gs_root(from) != t || gs_root(copy) != gs_root(cache) ||
        copy->type != GGML_TYPE_F32 || !ggml_is_contiguous(from) || !ggml_is_contiguous(copy)) {
        return false;
    }
    const size_t bytes = (size_t)st->each * sizeof(float);
    const ptrdiff_t at = (const char *)copy->data - (const char *)cache->data;
    st->first = (int32_t)(at / (ptrdiff_t)bytes);
    return (const char *)from->data == (const char *)t->data + (size_t)o_elements * sizeof(float) &&
           ggml_nelements(from) == st->sequences * st->each && at >= 0 &&
           at % (ptrdiff_t)bytes == 0;
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

/* *y = states of four dims, whose last two have been or become those of ggml. */
static bool turn(gs_builder_t *b, const states_t *st, const lt_t *x, lt_t *y)
{
    static const int64_t order[4] = {0, 1, 3, 2};
    *y = st->turned ? gs_inner(b, sinter_f32) : *x;
    return !st->turned || gs_add(b, sinter_op_static_transpose, sinter_in(x), sinter_out(y),
                                 sinter_attr_s64s(sinter_op_attr_order, 4, order));
}

/* *lt = the states that the op of ggml reads. */
static bool use_before(gs_builder_t *b, const states_t *st, lt_t *lt)
{
    const tensor_t *t = st->before;
    const int rank = gs_rank(t);
    const sinter_dim_t to[4] = {gs_dim(b, t, 1), st->heads, st->size, st->size};
    sinter_dim_t from[4];
    lt_t given, four;
    if (st->size == 0) {
        return gs_use_plain(b, t, 4, lt);
    }
    for (int i = 0; i < rank; i++) {
        from[i] = gs_dim(b, t, rank - 1 - i);
    }
    return gs_use_plain(b, t, rank, &given) && gs_reshape(b, &given, from, rank, to, 4, &four) &&
           turn(b, st, &four, lt);
}

/* *lt = states for the op, and *to = the slots that it writes, if there are any. */
static bool use_states(gs_builder_t *b, states_t *st, lt_t *lt, lt_t *from, lt_t *to)
{
    if (!st->ids) {
        return use_before(b, st, lt);
    }
    if (!(st->in_graph ? gs_use_plain(b, st->before, 4, lt) : gs_add_input(b, st->cache, lt)) ||
        !gs_use_plain(b, st->ids, 1, from)) {
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

/* o, whose dims are `from`, is what views see that begin where the present node does and have as
 * many elements. */
static bool give_views(gs_builder_t *b, const lt_t *o, const sinter_dim_t *from, int64_t elements)
{
    const int node = b->node;
    const tensor_t *t = b->tensors->list[node];
    sinter_dim_t to[4];
    bool ok = true;
    for (int n = node + 1; n < b->end && ok; n++) {
        const tensor_t *view = b->tensors->list[n];
        if (gs_op(view) != GS_OP_VIEW || view->src[0] != t || view->data != t->data ||
            !ggml_is_contiguous(view) || ggml_nelements(view) != elements) {
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

/* A LinearAttention of ggml's: what it reads beside the states. */
typedef struct recurrence {
    const char *mode;
    float scale;
    bool interleaved, log_decay;
    lt_t q, k, v, decay, more[2]; /* what the mode wants beside the decay */
    int n_more;
    sinter_dim_t
        dims[4];      /* of v and of o: sequences, tokens, heads, elements; as gs_dim has them */
    int64_t elements; /* of o */
    int64_t kept;     /* how many states it gives: after the last token, and earlier ones */
} recurrence_t;

/* The dims of a tensor with the dims of o. */
static void set_dims(const gs_builder_t *b, recurrence_t *r, const tensor_t *like)
{
    for (int i = 0; i < 4; i++) {
        r->dims[i] = gs_dim(b, like, 3 - i);
    }
    r->elements = ggml_nelements(like);
}

/* from, to: slots of states, or NULL. */
static bool add_op(gs_builder_t *b, const recurrence_t *r, const lt_t *state, const lt_t *from,
                   const lt_t *to, const lt_t *o, const lt_t *next)
{
    sinter_op_part_t parts[16] = {sinter_in(&r->q),
                                  sinter_in(&r->k),
                                  sinter_in(&r->v),
                                  sinter_in(state),
                                  sinter_in(&r->decay),
                                  sinter_out(o),
                                  sinter_out(next),
                                  sinter_attr_str(sinter_op_attr_mode, r->mode),
                                  sinter_attr_f32(sinter_op_attr_scale, r->scale),
                                  sinter_attr_bool(sinter_op_attr_interleaved, r->interleaved),
                                  sinter_attr_bool(sinter_op_attr_log_decay, r->log_decay)};
    int n = 11;
    for (int i = 0; i < r->n_more; i++) {
        parts[n++] = sinter_in(&r->more[i]);
    }
    if (from) {
        parts[n++] = sinter_in(from);
    }
    if (to) {
        parts[n++] = sinter_in(to);
    }
    return gs_add_parts(b, sinter_op_linear_attention, n, parts);
}

/* The same for some of the tokens. */
static bool part_of(gs_builder_t *b, const recurrence_t *r, int64_t start, int64_t count,
                    recurrence_t *part)
{
    *part = *r;
    bool ok = gs_slice(b, &r->q, 1, start, count, &part->q) &&
              gs_slice(b, &r->k, 1, start, count, &part->k) &&
              gs_slice(b, &r->v, 1, start, count, &part->v) &&
              gs_slice(b, &r->decay, 1, start, count, &part->decay);
    for (int i = 0; i < r->n_more; i++) {
        ok = ok && gs_slice(b, &r->more[i], 1, start, count, &part->more[i]);
    }
    return ok;
}

/* The result: o and, behind it, n states. Each becomes rows of the result, or, where that has one
 * dim, a row. */
static bool behind_each_other(gs_builder_t *b, const tensor_t *t, int rank, const lt_t *o, int n,
                              const lt_t *states)
{
    const int64_t shape[2] = {-1, t->ne[0]};
    const size_t dims = rank > 1 ? 2 : 1;
    sinter_op_part_t parts[MOST_STATES + 3];
    lt_t flat[MOST_STATES + 1];
    for (int i = 0; i <= n; i++) {
        flat[i] = gs_inner(b, sinter_f32);
        parts[i] = sinter_in(&flat[i]);
        if (!gs_add(b, sinter_op_static_reshape, sinter_in(i == 0 ? o : &states[i - 1]),
                    sinter_out(&flat[i]), sinter_attr_s64s(sinter_op_attr_shape, dims, shape),
                    sinter_attr_bool(sinter_op_attr_special_zero, 0))) {
            return false;
        }
    }
    const lt_t y = gs_result(b, rank, gs_plain_order(rank));
    parts[n + 1] = sinter_out(&y);
    parts[n + 2] = sinter_attr_s64(sinter_op_attr_axis, 0);
    return gs_add_parts(b, sinter_op_concat, n + 3, parts) &&
           gs_done(b, &y, rank, gs_plain_order(rank));
}

/* In place: the copy of the states, a later node, is done. */
static bool add_in_place(gs_builder_t *b, const recurrence_t *r, const states_t *st,
                         const lt_t *state, const lt_t *from, const lt_t *to, const lt_t *o)
{
    gs_output_t *output = gs_output_of(b, st->copy);
    const int root = gs_tensors_find(b->tensors, gs_root(b->tensors->list[st->copy]));
    lt_t next = *state;
    next.id = ++b->ids;
    next.property = sinter_tensor_property_undef;
    if (output) {
        output->id = next.id;
        output->tensor = -1;
    }
    b->values[st->copy] = (gs_value_t){.known = true};
    b->versions[root] = (gs_value_t){.known = true};
    return add_op(b, r, state, from, to, o, &next) && give_views(b, o, r->dims, r->elements);
}

/* The last tokens one by one, as the state behind each is kept, the last one first. Where there are
 * fewer tokens than states, the other states are nobody's. */
static bool add_one_by_one(gs_builder_t *b, const tensor_t *t, int rank, const recurrence_t *r,
                           const states_t *st, const lt_t *state, const lt_t *from)
{
    const int64_t tokens = r->dims[1];
    const int kept = (int)r->kept, found = tokens < kept ? (int)tokens : kept;
    lt_t states[MOST_STATES], o[MOST_STATES], all = gs_inner(b, sinter_f32);
    sinter_op_part_t parts[MOST_STATES + 2];
    if (tokens < 0) {
        return gs_fail(b, "earlier states of tokens whose number changes");
    }
    for (int i = 0; i < found; i++) {
        const int64_t start = i == 0 ? 0 : tokens - found + i,
                      count = i == 0 ? tokens - found + 1 : 1;
        const int at = found - 1 - i;
        recurrence_t part;
        o[i] = gs_inner(b, sinter_f32);
        states[at] = gs_inner(b, sinter_f32);
        parts[i] = sinter_in(&o[i]);
        if (!part_of(b, r, start, count, &part) ||
            !add_op(b, &part, i == 0 ? state : &states[at + 1], i == 0 && st->ids ? from : NULL,
                    NULL, &o[i], &states[at])) {
            return false;
        }
    }
    for (int i = found; i < kept; i++) {
        states[i] = states[0];
    }
    parts[found] = sinter_out(&all);
    parts[found + 1] = sinter_attr_s64(sinter_op_attr_axis, 1);
    return gs_add_parts(b, sinter_op_concat, found + 2, parts) &&
           behind_each_other(b, t, rank, &all, kept, states) &&
           give_views(b, &all, r->dims, r->elements);
}

/* The op of node t, whose result has this rank. */
static bool add_recurrence(gs_builder_t *b, const tensor_t *t, int rank, const recurrence_t *r,
                           states_t *st)
{
    const lt_t o = gs_inner(b, sinter_f32), next = gs_inner(b, sinter_f32);
    lt_t state, from, to, last;
    if (!use_states(b, st, &state, &from, &to)) {
        return false;
    }
    if (r->kept > 1) {
        return add_one_by_one(b, t, rank, r, st, &state, &from);
    }
    if (st->copy >= 0) {
        return add_in_place(b, r, st, &state, &from, &to, &o);
    }
    return add_op(b, r, &state, st->ids ? &from : NULL, NULL, &o, &next) &&
           turn(b, st, &next, &last) && behind_each_other(b, t, rank, &o, 1, &last) &&
           give_views(b, &o, r->dims, r->elements);
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
    return t->op_params[0] > MOST_STATES ? "very many earlier states"
           : t->src[0]->ne[3] != v->ne[3] || t->src[1]->ne[3] != v->ne[3]
               ? "sequences that share queries or keys"
           : v->ne[2] == 0 || v->ne[3] == 0 ? "no tokens"
                                            : NULL;
}

/* The states are rows of a cache of floats that ids name, and memory holds the cache as it was.
 * Returns the cache, or NULL. */
static const tensor_t *find_cache(const gs_builder_t *b, states_t *st)
{
    const tensor_t *rows = gs_op(st->before) == GS_OP_RESHAPE ? st->before->src[0] : st->before;
    const tensor_t *cache = gs_op(rows) == GS_OP_GET_ROWS ? rows->src[0] : NULL;
    if (!cache || !gs_in_graph(b, rows) || cache->type != GGML_TYPE_F32 ||
        gs_op(gs_root(cache)) != GS_OP_NONE || gs_version_of(b, cache) ||
        !ggml_is_contiguous(cache) || cache->ne[2] != 1 || cache->ne[3] != 1 ||
        cache->ne[0] != st->each || rows->src[1]->ne[0] != st->sequences ||
        ggml_nrows(rows->src[1]) != 1) {
        return NULL;
    }
    st->ids = rows->src[1];
    st->cache = gs_input_in_order(b, cache, -1, 4, gs_plain_order(4));
    st->cache.size_dim[0] = 1;
    return cache;
}

static bool translate_delta(gs_builder_t *b, const tensor_t *t)
{
    const tensor_t *v = t->src[2];
    const tensor_t *before = t->src[5];
    recurrence_t r = {.mode = "gated_delta",
                      .scale = 1 / sqrtf((float)v->ne[0]),
                      .log_decay = true,
                      .n_more = 1,
                      .kept = t->op_params[0]};
    states_t st = {.before = before,
                   .copy = -1,
                   .sequences = before->ne[3],
                   .each = before->ne[0] * before->ne[1] * before->ne[2]};
    const tensor_t *cache = find_cache(b, &st);
    if (cache) {
        st.cache.strides_of = gs_tensors_find(b->tensors, before);
        for (int i = 1; i < 4; i++) {
            st.cache.size_of[i] = st.cache.strides_of;
        }
    }
    if (cache && gs_dim(b, before, 3) >= 0 && r.kept == 1) {
        find_copy(b, t, ggml_nelements(v), cache, &st);
    }
    set_dims(b, &r, v);
    return gs_use_plain(b, t->src[0], 4, &r.q) && gs_use_plain(b, t->src[1], 4, &r.k) &&
           gs_use_plain(b, v, 4, &r.v) && gs_use_plain(b, t->src[3], 4, &r.decay) &&
           gs_use_plain(b, t->src[4], 4, &r.more[0]) && add_recurrence(b, t, 2, &r, &st);
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
    return t->op_params[0] > MOST_STATES                              ? "very many earlier states"
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
    const tensor_t *cache = t->src[SCAN_S], *x = t->src[SCAN_X];
    states_t st = {.ids = t->src[SCAN_IDS],
                   .before = cache,
                   .copy = -1,
                   .sequences = x->ne[3],
                   .each = cache->ne[0] * cache->ne[1] * cache->ne[2]};
    recurrence_t r = {.mode = "gated",
                      .scale = 1,
                      .interleaved = true,
                      .log_decay = true,
                      .kept = t->op_params[0]};
    lt_t three, four, a, given;
    set_dims(b, &r, x);
    st.in_graph = gs_in_graph(b, cache) || gs_version_of(b, cache);
    if (!st.in_graph) {
        st.cache = gs_input_in_order(b, cache, -1, 4, gs_plain_order(4));
    }
    if (!st.in_graph && gs_op(gs_root(cache)) == GS_OP_NONE && gs_dim(b, x, 3) >= 0 &&
        r.kept == 1) {
        find_copy(b, t, ggml_nelements(x), cache, &st);
    }
    if (!gs_use_plain(b, x, 4, &given) || !gs_use_plain(b, dt, 3, &three) ||
        !gs_reshape(b, &three, from, 3, to, 4, &four) || !gs_use_plain(b, t->src[SCAN_A], 2, &a) ||
        !gs_use_plain(b, t->src[SCAN_B], 4, &r.k) || !gs_use_plain(b, t->src[SCAN_C], 4, &r.q)) {
        return false;
    }
    const lt_t d = gs_inner(b, sinter_f32);
    return gs_add(b, sinter_op_softplus, sinter_in(&four), sinter_out(&d)) &&
           gs_binary(b, sinter_op_multiply, &d, &a, &r.decay) &&
           gs_binary(b, sinter_op_multiply, &given, &d, &r.v) && add_recurrence(b, t, 1, &r, &st);
}

const gs_special_t gs_ssm_scan = {.translate = translate_scan, .refuse = refuse_scan};

/* ---- RWKV_WKV6, RWKV_WKV7, GATED_LINEAR_ATTN ------------------------------------------------- */

/* All of them have tokens of all sequences in one dim, [tokens, heads, elements], decays that are
 * factors, and states that are rows. Numbers of sources; more: what the mode wants beside the
 * decay. */
typedef struct state_rows {
    gs_op_t op;
    const char *mode;
    int q, k, v, decay, more[2], n_more, state;
    bool turned, scaled; /* see states_t; parameter 0 is the scale */
} state_rows_t;

static const state_rows_t *state_rows_of(const tensor_t *t)
{
    static const state_rows_t rows[] = {
        {GS_OP_RWKV_WKV6, "gated_bonus", 2, 0, 1, 4, {3}, 1, 5, true, false},
        {GS_OP_RWKV_WKV7, "gated_low_rank", 0, 2, 3, 1, {4, 5}, 2, 6, false, false},
        {GS_OP_GATED_LINEAR_ATTN, "gated", 2, 0, 1, 3, {0}, 0, 4, true, true}};
    int i = 0;
    while (rows[i].op != gs_op(t)) {
        i++;
    }
    return &rows[i];
}

static const char *refuse_state_rows(const tensor_t *t)
{
    const state_rows_t *row = state_rows_of(t);
    const tensor_t *v = t->src[row->v], *state = t->src[row->state];
    for (int i = 0; i <= row->state; i++) {
        const char *why = gs_unreadable_floats(t->src[i]);
        if (why) {
            return why;
        }
    }
    return v->ne[2] == 0 || state->ne[1] == 0 ? "no tokens"
           : ggml_nelements(state) != v->ne[0] * v->ne[0] * v->ne[1] * state->ne[1] ||
                   !ggml_is_contiguous(state)
               ? "states that do not lie one after another"
               : NULL;
}

/* Tokens as [sequences, tokens, heads, elements]. */
static bool use_tokens(gs_builder_t *b, const tensor_t *t, const sinter_dim_t *dims, lt_t *y)
{
    const sinter_dim_t from[3] = {gs_dim(b, t, 2), t->ne[1], t->ne[0]};
    lt_t x;
    return gs_use_plain(b, t, 3, &x) && gs_reshape(b, &x, from, 3, dims, 4, y);
}

static bool translate_state_rows(gs_builder_t *b, const tensor_t *t)
{
    const state_rows_t *row = state_rows_of(t);
    const tensor_t *v = t->src[row->v], *before = t->src[row->state];
    const sinter_dim_t tokens = gs_dim(b, v, 2), sequences = gs_dim(b, before, 1);
    const int64_t size = v->ne[0], heads = v->ne[1];
    recurrence_t r = {.mode = row->mode,
                      .scale = row->scaled ? gs_param(t, 0) : 1,
                      .interleaved = true,
                      .n_more = row->n_more,
                      .dims = {sequences, tokens, heads, size},
                      .elements = ggml_nelements(v),
                      .kept = 1};
    states_t st = {.before = before,
                   .heads = heads,
                   .size = size,
                   .turned = row->turned,
                   .copy = -1,
                   .sequences = before->ne[1],
                   .each = size * size * heads};
    if (tokens == sequences) { /* also where their number changes */
        r.dims[1] = 1;
    } else if (tokens >= 0) {
        r.dims[1] = sequences < 0 ? sequences : tokens / sequences;
    }
    const tensor_t *cache = find_cache(b, &st);
    if (cache) {
        const int like = gs_tensors_find(b->tensors, v);
        st.cache.size_of[1] = st.cache.size_of[2] = st.cache.size_of[3] = like;
        st.cache.size_dim[1] = 1;
        st.cache.size_dim[2] = st.cache.size_dim[3] = 0;
        st.cache.stride_dim[0] = 1;
        for (int i = 1; i < 4; i++) {
            st.cache.stride_dim[i] = -1;
        }
        st.cache.stride[1] = size * size;
        st.cache.stride[2] = row->turned ? 1 : size;
        st.cache.stride[3] = row->turned ? size : 1;
    }
    if (cache && sequences >= 0) {
        find_copy(b, t, r.elements, cache, &st);
    }
    bool ok = use_tokens(b, t->src[row->q], r.dims, &r.q) &&
              use_tokens(b, t->src[row->k], r.dims, &r.k) && use_tokens(b, v, r.dims, &r.v) &&
              use_tokens(b, t->src[row->decay], r.dims, &r.decay);
    for (int i = 0; i < row->n_more; i++) {
        const tensor_t *more = t->src[row->more[i]];
        ok = ok && (row->op == GS_OP_RWKV_WKV6 ? gs_use_plain(b, more, 2, &r.more[i])
                                               : use_tokens(b, more, r.dims, &r.more[i]));
    }
    return ok && add_recurrence(b, t, 2, &r, &st);
}

const gs_special_t gs_state_rows = {.translate = translate_state_rows, .refuse = refuse_state_rows};

/* ---- SSM_CONV -------------------------------------------------------------------------------- */

/* Tokens of a convolution as [sequences, tokens, channels]. */
static const int channels_last[3] = {2, 0, 1};

bool gs_joins_tokens(const tensor_t *t)
{
    return t->op_params[0] == 0 && gs_op(t->src[1]) == GS_OP_TRANSPOSE && t->ne[3] == 1;
}

/* Channels stay the last dim, as in what has computed the new tokens. So do they in parts along the
 * tokens, which llama.cpp keeps for the next tokens. */
bool gs_join_tokens(gs_builder_t *b, const tensor_t *t)
{
    const int node = b->node;
    lt_t kept, tokens;
    if (!gs_use(b, t->src[0], 3, channels_last, &kept) ||
        !gs_use(b, t->src[1], 3, channels_last, &tokens)) {
        return false;
    }
    const lt_t y = gs_result(b, 3, channels_last);
    if (!gs_add(b, sinter_op_concat, sinter_in(&kept), sinter_in(&tokens), sinter_out(&y),
                sinter_attr_s64(sinter_op_attr_axis, 1)) ||
        !gs_done(b, &y, 3, channels_last)) {
        return false;
    }
    bool ok = true;
    for (int n = node + 1; n < b->end && ok; n++) {
        const tensor_t *view = b->tensors->list[n];
        int dim;
        int64_t start, count;
        if (gs_op(view) == GS_OP_VIEW && view->src[0] == t && view->ne[1] == t->ne[1] &&
            gs_part_of(view, &dim, &start, &count) == GS_PART_OF_DIM && dim == 0 &&
            view->ne[0] == count) {
            lt_t part;
            ok = gs_slice(b, &y, 1, start, count, &part);
            b->node = n;
            ok = ok && gs_done(b, &part, 3, channels_last);
            b->node = node;
        }
    }
    return ok;
}

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
