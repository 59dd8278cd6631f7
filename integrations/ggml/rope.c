/* ROPE and ROPE_BACK. */
#include <math.h>

#include "special.h"

enum { POSITIONS = 4 };

/* Elements of a row: which of them are rotated, and how. */
typedef struct rope {
    int pairs;       /* that are rotated */
    int64_t begin;   /* of the elements that they are, which follow one another */
    bool neighbours; /* a pair is two elements side by side; else of either half */
    bool back;       /* by the negative angle */
    int sections;    /* how many positions a row has: 1 or 4 */
} rope_t;

static rope_t rope_of(const tensor_t *t)
{
    const int mode = t->op_params[2], pairs = t->op_params[1] / 2;
    return (rope_t){.pairs = mode == GGML_ROPE_TYPE_VISION ? 2 * pairs : pairs,
                    .begin = t->op_params[15],
                    .neighbours = mode == GGML_ROPE_TYPE_NORMAL,
                    .back = gs_op(t) == GS_OP_ROPE_BACK,
                    .sections = mode & GGML_ROPE_TYPE_MROPE ? POSITIONS : 1};
}

static const char *refuse(const tensor_t *t)
{
    const int mode = t->op_params[2];
    if (mode != GGML_ROPE_TYPE_NORMAL && mode != GGML_ROPE_TYPE_NEOX &&
        mode != GGML_ROPE_TYPE_MROPE && mode != GGML_ROPE_TYPE_IMROPE &&
        mode != GGML_ROPE_TYPE_VISION) {
        return "an unknown order of pairs";
    }
    if (t->src[2] && t->src[2]->type != GGML_TYPE_F32) {
        return "factors that are not f32";
    }
    if (t->src[1]->type != GGML_TYPE_I32) {
        return "positions that are not i32";
    }
    return gs_unreadable_floats(t->src[0]);
}

/* Which of the positions of a row turns a pair: time, height, width, and one more. *step is the
 * pair's number among those whose frequencies fall from 1 on. */
static int section_of(const tensor_t *t, int pair, int *step)
{
    const int mode = t->op_params[2], *sizes = &t->op_params[11];
    *step = pair;
    if (!(mode & GGML_ROPE_TYPE_MROPE)) {
        return 0;
    }
    const int all = sizes[0] + sizes[1] + sizes[2] + sizes[3], sector = pair % all;
    if (mode == GGML_ROPE_TYPE_IMROPE) {
        const int section = sector % 3;
        return sector < 3 * sizes[section] ? section : 3;
    }
    int section = 0, begin = 0;
    while (section < 3 && sector >= begin + sizes[section]) {
        begin += sizes[section++];
    }
    if (mode == GGML_ROPE_TYPE_VISION) {
        *step = sector - begin;
    }
    return section;
}

/* The angle of a pair is its frequency times the position, with the stretching of YaRN as well.
 * Pairs of other sections have the frequency 0, which leaves them as they are. *any: there are some
 * of this one. */
static bool frequencies(gs_builder_t *b, const tensor_t *t, int section, bool *any, lt_t *lt)
{
    enum { MOST = 1024 };
    const rope_t rope = rope_of(t);
    const double base = gs_param(t, 5), stretch = gs_param(t, 6), extrapolate = gs_param(t, 7);
    const tensor_t *divisors = t->src[2];
    float ends[2], values[MOST];
    if (rope.pairs > MOST) {
        return gs_fail(b, "more than %d pairs", MOST);
    }
    ggml_rope_yarn_corr_dims(t->op_params[1], t->op_params[4], gs_param(t, 5), gs_param(t, 9),
                             gs_param(t, 10), ends);
    *any = false;
    for (int i = 0; i < rope.pairs; i++) {
        const double width = fmax(0.001, (double)ends[1] - ends[0]);
        const double ramp = 1 - fmin(1, fmax(0, (i - (double)ends[0]) / width));
        const double mix = extrapolate == 0 ? 0 : ramp * extrapolate;
        int step;
        const bool here = section_of(t, i, &step) == section;
        const double frequency =
            (stretch * (1 - mix) + mix) * pow(base, -2.0 * step / t->op_params[1]);
        values[i] = !here ? 0 : (float)(rope.back ? -frequency : frequency);
        *any |= here;
    }
    if (!*any) {
        return true;
    }
    if (!divisors) {
        return gs_constants(b, values, rope.pairs, lt);
    }
    lt_t own, all, some;
    if (!gs_constants(b, values, rope.pairs, &own) || !gs_use_plain(b, divisors, 1, &all)) {
        return false;
    }
    if (divisors->ne[0] == rope.pairs) {
        some = all;
    } else if (!gs_slice(b, &all, 0, 0, rope.pairs, &some)) {
        return false;
    }
    return gs_binary(b, sinter_op_divide, &own, &some, lt);
}

/* Positions [batch, sequence] of a section, the same for all of the batch: a node has those of all
 * sections one behind the other. */
static bool positions_of(gs_builder_t *b, const tensor_t *t, int section, lt_t *lt)
{
    static const int order[2] = {-1, 0};
    enum { MOST_BATCH = 64 };
    const tensor_t *positions = t->src[1];
    const bool computed = gs_in_graph(b, positions) || gs_version_of(b, positions);
    const int sections = rope_of(t).sections;
    if (!computed && sections == 1) {
        gs_input_t in = gs_input_in_order(b, positions, -1, 2, order);
        if (t->ne[3] != 1) {
            in.size_of[0] = b->node;
            in.size_dim[0] = 3;
        }
        return gs_add_input(b, in, lt);
    }
    const sinter_dim_t from[1] = {gs_dim(b, positions, 0)},
                       to[2] = {sections, sections == 1 ? from[0] : gs_dim(b, t, 2)};
    int32_t batch[MOST_BATCH];
    lt_t all, table, which;
    if (gs_dim(b, t, 3) < 0 || t->ne[3] > MOST_BATCH) {
        return gs_fail(b, "positions of a batch that changes");
    }
    for (int64_t i = 0; i < t->ne[3]; i++) {
        batch[i] = section;
    }
    if (!gs_use_plain(b, positions, 1, &all) || !gs_reshape(b, &all, from, 1, to, 2, &table) ||
        !gs_integers(b, batch, (int)t->ne[3], &which)) {
        return false;
    }
    *lt = gs_inner(b, sinter_s32);
    return gs_add(b, sinter_op_gather, sinter_in(&table), sinter_in(&which), sinter_out(lt),
                  sinter_attr_s64(sinter_op_attr_axis, 0));
}

/* y = x, whose rows begin with the pairs, after one rotation for each section that has some. */
static bool rotate(gs_builder_t *b, const tensor_t *t, lt_t x, const lt_t *y)
{
    const rope_t rope = rope_of(t);
    const float stretch = gs_param(t, 6);
    const float scale = gs_param(t, 8) * (gs_param(t, 7) != 0 ? 1 + 0.1f * logf(1 / stretch) : 1);
    lt_t f[POSITIONS], p[POSITIONS];
    int n = 0;
    for (int section = 0; section < rope.sections; section++) {
        bool any;
        if (!frequencies(b, t, section, &any, &f[n]) ||
            (any && !positions_of(b, t, section, &p[n]))) {
            return false;
        }
        n += any;
    }
    for (int i = 0; i < n; i++) {
        const lt_t z = i + 1 < n ? gs_inner(b, x.data_type) : *y;
        if (!gs_add(b, sinter_op_rotary_embedding, sinter_in(&x), sinter_in(&f[i]),
                    sinter_in(&p[i]), sinter_out(&z),
                    sinter_attr_bool(sinter_op_attr_interleaved, rope.neighbours),
                    sinter_attr_s64(sinter_op_attr_rotary_embedding_dim, 2 * rope.pairs),
                    sinter_attr_f32(sinter_op_attr_scale, i + 1 < n ? 1 : scale))) {
            return false;
        }
        x = z;
    }
    return true;
}

static bool translate(gs_builder_t *b, const tensor_t *t)
{
    const rope_t rope = rope_of(t);
    lt_t x, before, rest;
    if (!gs_use(b, t->src[0], 4, gs_heads_first, &x)) {
        return false;
    }
    /* Rotations may write over what they read, but a Concat may not. */
    const bool over_source = t->view_src && rope.begin > 0;
    const lt_t y = over_source ? gs_inner(b, x.data_type) : gs_result(b, 4, gs_heads_first);
    if (rope.begin == 0) {
        return rotate(b, t, x, &y) && gs_done(b, &y, 4, gs_heads_first);
    }
    /* What is before the pairs stays as it is. */
    const lt_t z = gs_inner(b, x.data_type);
    return gs_slice(b, &x, 3, 0, rope.begin, &before) &&
           gs_slice(b, &x, 3, rope.begin, t->ne[0] - rope.begin, &rest) && rotate(b, t, rest, &z) &&
           gs_add(b, sinter_op_concat, sinter_in(&before), sinter_in(&z), sinter_out(&y),
                  sinter_attr_s64(sinter_op_attr_axis, 3)) &&
           gs_done(b, &y, 4, gs_heads_first);
}

const gs_special_t gs_rope = {.translate = translate, .refuse = refuse};
