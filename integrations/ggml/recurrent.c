/* Recurrent layers: GATED_DELTA_NET, SSM_SCAN, SSM_CONV and L2_NORM. */
#include <math.h>

#include "special.h"

/* ---- results that hold states too ------------------------------------------------------------ */

/* What an op of ggml gives is one tensor: o and, behind it, the states. rank: of the result. */
static bool done_with_states(gs_builder_t *b, const tensor_t *t, int rank, const lt_t *o,
                             const lt_t *next)
{
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

static bool translate_delta(gs_builder_t *b, const tensor_t *t)
{
    const tensor_t *v = t->src[2];
    lt_t in[6];
    for (int i = 0; i < 6; i++) {
        if (!gs_use_plain(b, t->src[i], 4, &in[i])) {
            return false;
        }
    }
    const lt_t o = gs_inner(b, sinter_f32), next = gs_inner(b, sinter_f32);
    return gs_add(b, sinter_op_linear_attention, sinter_in(&in[0]), sinter_in(&in[1]),
                  sinter_in(&in[2]), sinter_in(&in[5]), sinter_in(&in[3]), sinter_in(&in[4]),
                  sinter_out(&o), sinter_out(&next),
                  sinter_attr_str(sinter_op_attr_mode, "gated_delta"),
                  sinter_attr_f32(sinter_op_attr_scale, 1 / sqrtf((float)v->ne[0])),
                  sinter_attr_bool(sinter_op_attr_interleaved, 0)) &&
           done_with_states(b, t, 2, &o, &next);
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
    lt_t s, x, three, four, a, keys, queries, ids, decay, values;
    if (!gs_use_plain(b, t->src[SCAN_S], 4, &s) || !gs_use_plain(b, t->src[SCAN_X], 4, &x) ||
        !gs_use_plain(b, dt, 3, &three) || !gs_reshape(b, &three, from, 3, to, 4, &four) ||
        !gs_use_plain(b, t->src[SCAN_A], 2, &a) || !gs_use_plain(b, t->src[SCAN_B], 4, &keys) ||
        !gs_use_plain(b, t->src[SCAN_C], 4, &queries) ||
        !gs_use_plain(b, t->src[SCAN_IDS], 1, &ids)) {
        return false;
    }
    const lt_t d = gs_inner(b, sinter_f32), o = gs_inner(b, sinter_f32),
               next = gs_inner(b, sinter_f32);
    return gs_add(b, sinter_op_softplus, sinter_in(&four), sinter_out(&d)) &&
           gs_binary(b, sinter_op_multiply, &d, &a, &decay) &&
           gs_binary(b, sinter_op_multiply, &x, &d, &values) &&
           gs_add(b, sinter_op_linear_attention, sinter_in(&queries), sinter_in(&keys),
                  sinter_in(&values), sinter_in(&s), sinter_in(&decay), sinter_in(&ids),
                  sinter_out(&o), sinter_out(&next), sinter_attr_str(sinter_op_attr_mode, "gated"),
                  sinter_attr_bool(sinter_op_attr_interleaved, 1)) &&
           done_with_states(b, t, 1, &o, &next);
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
