/* ROPE. */
#include <math.h>

#include "special.h"

static const char *refuse(const tensor_t *t)
{
    const int mode = t->op_params[2];
    if (mode != GGML_ROPE_TYPE_NORMAL && mode != GGML_ROPE_TYPE_NEOX) {
        return "positions of several dims";
    }
    if (t->op_params[15] != 0) {
        return "a rotation that does not begin with the row";
    }
    if (t->src[2] && t->src[2]->type != GGML_TYPE_F32) {
        return "factors that are not f32";
    }
    if (t->src[1]->type != GGML_TYPE_I32) {
        return "positions that are not i32";
    }
    return gs_unreadable_floats(t->src[0]);
}

/* The angle of a pair is its frequency times the position, with the stretching of YaRN as well. */
static bool frequencies(gs_builder_t *b, const tensor_t *t, lt_t *lt)
{
    enum { MOST = 1024 };
    const int pairs = t->op_params[1] / 2;
    const double base = gs_param(t, 5), stretch = gs_param(t, 6), extrapolate = gs_param(t, 7);
    const tensor_t *divisors = t->src[2];
    float ends[2], values[MOST];
    if (pairs > MOST) {
        return gs_fail(b, "more than %d pairs", MOST);
    }
    ggml_rope_yarn_corr_dims(2 * pairs, t->op_params[4], gs_param(t, 5), gs_param(t, 9),
                             gs_param(t, 10), ends);
    for (int i = 0; i < pairs; i++) {
        const double width = fmax(0.001, (double)ends[1] - ends[0]);
        const double ramp = 1 - fmin(1, fmax(0, (i - (double)ends[0]) / width));
        const double mix = extrapolate == 0 ? 0 : ramp * extrapolate;
        values[i] = (float)((stretch * (1 - mix) + mix) * pow(base, -(double)i / pairs));
    }
    if (!divisors) {
        return gs_constants(b, values, pairs, lt);
    }
    lt_t own, all, some;
    if (!gs_constants(b, values, pairs, &own) || !gs_use_plain(b, divisors, 1, &all)) {
        return false;
    }
    if (divisors->ne[0] == pairs) {
        some = all;
    } else if (!gs_slice(b, &all, 0, 0, pairs, &some)) {
        return false;
    }
    return gs_binary(b, sinter_op_divide, &own, &some, lt);
}

/* Positions [batch, sequence]: the same for all of the batch. */
static bool positions_of(gs_builder_t *b, const tensor_t *t, lt_t *lt)
{
    static const int order[2] = {-1, 0};
    const tensor_t *positions = t->src[1];
    if (gs_in_graph(b, positions) || gs_version_of(b, positions)) {
        return gs_fail(b, "positions that are computed");
    }
    gs_input_t in = gs_input_in_order(b, positions, -1, 2, order);
    if (t->ne[3] != 1) {
        in.size_of[0] = b->node;
        in.size_dim[0] = 3;
    }
    return gs_add_input(b, in, lt);
}

static bool translate(gs_builder_t *b, const tensor_t *t)
{
    const float stretch = gs_param(t, 6);
    const float scale = gs_param(t, 8) * (gs_param(t, 7) != 0 ? 1 + 0.1f * logf(1 / stretch) : 1);
    lt_t x, f, p;
    if (!gs_use(b, t->src[0], 4, gs_heads_first, &x) || !frequencies(b, t, &f) ||
        !positions_of(b, t, &p)) {
        return false;
    }
    const lt_t y = gs_result(b, 4, gs_heads_first);
    return gs_add(b, sinter_op_rotary_embedding, sinter_in(&x), sinter_in(&f), sinter_in(&p),
                  sinter_out(&y),
                  sinter_attr_bool(sinter_op_attr_interleaved,
                                   t->op_params[2] == GGML_ROPE_TYPE_NORMAL),
                  sinter_attr_s64(sinter_op_attr_rotary_embedding_dim, t->op_params[1]),
                  sinter_attr_f32(sinter_op_attr_scale, scale)) &&
           gs_done(b, &y, 4, gs_heads_first);
}

const gs_special_t gs_rope = {.translate = translate, .refuse = refuse};
