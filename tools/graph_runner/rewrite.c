#include "rewrite.h"

#include <stdio.h>
#include <string.h>

/* ---- shapes ---------------------------------------------------------------------------------- */

static void set_everywhere(model_t *model, const model_tensor_t *t,
                           const sinter_logical_tensor_t *shape)
{
    for (size_t i = 0; i < t->n; i++) {
        sinter_logical_tensor_t *lt = model_at(model, &model->uses[t->first + i]);
        sinter_logical_tensor_t old = *lt;

        *lt = *shape;
        lt->data_type = old.data_type;
        lt->property = old.property;
    }
}

static void forget_shape(sinter_logical_tensor_t *lt)
{
    lt->ndims = SINTER_UNKNOWN_NDIMS;
    lt->layout_type = sinter_layout_type_any;
}

static bool is_opaque(const sinter_logical_tensor_t *lt)
{
    return lt->layout_type == sinter_layout_type_opaque;
}

/* The first tensor of an op that lies as `lt`, which is opaque, does: a cache that tokens are
 * written into. */
static const sinter_logical_tensor_t *lies_alike(const model_op_t *op,
                                                 const sinter_logical_tensor_t *lt)
{
    for (size_t i = 0; i < op->n_inputs; i++) {
        const sinter_logical_tensor_t *in = &op->inputs[i];

        if (is_opaque(in) && in->layout_id == lt->layout_id && in->ndims == lt->ndims) {
            return in;
        }
    }
    return NULL;
}

/* Marks the tensors computed from a tensor. Ops may stand in any order, so this repeats until
 * nothing changes. Opaque ones keep their layout, with the dims of what they are written into. */
static int forget_downstream(model_t *model, uint64_t id, gr_error_t *err)
{
    char *changed = gr_malloc(model->n_tensors);
    int more = 1;

    if (!changed) {
        return gr_fail_memory(err);
    }
    memset(changed, 0, model->n_tensors);
    changed[model_find(model, id) - model->tensors] = 1;
    while (more) {
        more = 0;
        for (size_t i = 0; i < model->n_ops; i++) {
            const model_op_t *op = &model->ops[i];
            int touched = 0;

            for (size_t j = 0; j < op->n_inputs; j++) {
                touched |= changed[model_find(model, op->inputs[j].id) - model->tensors];
            }
            for (size_t j = 0; j < op->n_outputs && touched; j++) {
                const model_tensor_t *t = model_find(model, op->outputs[j].id);
                const sinter_logical_tensor_t *lt = &op->outputs[j],
                                              *like = is_opaque(lt) ? lies_alike(op, lt) : NULL;
                char *c = &changed[t - model->tensors];

                if (like && memcmp(lt->dims, like->dims, sizeof lt->dims)) {
                    sinter_logical_tensor_t open = *lt;

                    memcpy(open.dims, like->dims, sizeof open.dims);
                    set_everywhere(model, t, &open);
                    more = 1;
                }
                more |= !*c;
                *c = 1;
            }
        }
    }
    for (size_t i = 0; i < model->n_uses; i++) {
        if (model->uses[i].id != id && !is_opaque(model_at(model, &model->uses[i])) &&
            changed[model_find(model, model->uses[i].id) - model->tensors]) {
            forget_shape(model_at(model, &model->uses[i]));
        }
    }
    gr_free(changed);
    return 0;
}

/* The order of dims, outermost first, that strides have: larger strides first, ties as they
 * stand. */
static void order_of(const sinter_logical_tensor_t *lt, int *order)
{
    for (int i = 0; i < lt->ndims; i++) {
        int j = i;

        for (; j > 0 && lt->strides[order[j - 1]] < lt->strides[i]; j--) {
            order[j] = order[j - 1];
        }
        order[j] = i;
    }
}

/* "abdc": the dims from the outermost to the innermost. */
static int parse_order(const char **p, int ndims, int *order)
{
    unsigned seen = 0;

    for (int i = 0; i < ndims; i++, ++*p) {
        int d = **p - 'a';

        if (d < 0 || d >= ndims || seen & 1u << d) {
            return -1;
        }
        seen |= 1u << d;
        order[i] = d;
    }
    return 0;
}

/* What stands behind the '*' of --in-shapes. */
static int parse_strides(const char **p, sinter_logical_tensor_t *lt)
{
    int order[SINTER_MAX_NDIMS], n;

    if (**p >= 'a' && **p <= 'z') {
        return parse_order(p, lt->ndims, order) || gr_set_dense(lt, order) ? -1 : 0;
    }
    lt->layout_type = sinter_layout_type_strided;
    return gr_parse_dims(p, SINTER_MAX_NDIMS, lt->strides, &n) || n != lt->ndims ? -1 : 0;
}

/* Dense strides in this order of dims (NULL: as they stand); a tensor in an opaque layout keeps
 * that. -1 where the product of the dims is too large. */
static int set_layout(sinter_logical_tensor_t *lt, const int *order)
{
    const bool opaque = is_opaque(lt);
    const uint64_t id = opaque ? lt->layout_id : 0;

    if (gr_set_dense(lt, order)) {
        return -1;
    }
    if (opaque) {
        memset(lt->strides, 0, sizeof lt->strides);
        lt->layout_type = sinter_layout_type_opaque;
        lt->layout_id = id;
    }
    return 0;
}

/* "DIMS[*STRIDES]" or "*STRIDES" onto lt. */
static int parse_shape(const char **p, sinter_logical_tensor_t *lt)
{
    int order[SINTER_MAX_NDIMS], n, keep = 0;
    int64_t dims[SINTER_MAX_NDIMS];

    if (**p != '*') {
        if (**p == '+' || !**p) {
            n = 0; /* a scalar */
        } else if (gr_parse_dims(p, SINTER_MAX_NDIMS, dims, &n)) {
            return -1;
        }
        for (int i = 0; i < n; i++) {
            if (dims[i] < 0) {
                return -1;
            }
        }
        keep = n == lt->ndims && gr_is_known(lt);
        if (keep) {
            order_of(lt, order);
        }
        lt->ndims = n;
        memcpy(lt->dims, dims, (size_t)n * sizeof *dims);
        if (set_layout(lt, keep ? order : NULL)) {
            return -1;
        }
    }
    if (**p != '*') {
        return 0;
    }
    ++*p;
    return lt->ndims < 0 ? -1 : parse_strides(p, lt);
}

static int parse_input_id(model_t *model, const char **p, const char *option, model_tensor_t **t,
                          gr_error_t *err)
{
    const char *start = *p;
    uint64_t id;

    if (gr_parse_u64(p, &id) || **p != ':') {
        return gr_fail(err, "--%s: expected ID: at \"%s\"", option, start);
    }
    ++*p;
    *t = model_find(model, id);
    return *t ? 0
              : gr_fail(err, "--%s: the graph has no tensor %llu", option, (unsigned long long)id);
}

static int rewrite_shapes(model_t *model, const char *p, gr_error_t *err)
{
    for (;; p++) {
        const char *start = p;
        sinter_logical_tensor_t lt;
        model_tensor_t *t = NULL;

        if (parse_input_id(model, &p, "in-shapes", &t, err) || !t) {
            return -1;
        }
        if (!t->is_input) {
            return gr_fail(err, "--in-shapes: tensor %llu is computed by the graph",
                           (unsigned long long)t->id);
        }
        lt = *model_lt(model, t);
        if (parse_shape(&p, &lt) || (*p && *p != '+')) {
            return gr_fail(err, "--in-shapes: expected ID:DIMS[*STRIDES] at \"%s\"", start);
        }
        set_everywhere(model, t, &lt);
        if (forget_downstream(model, t->id, err)) {
            return -1;
        }
        if (!*p) {
            return 0;
        }
    }
}

/* "1x?x128" onto lt: '?' makes a dim unknown, a number must be the dim. -1 if the text is no such
 * list. *wrong: the first dim that differs, or the number of dims where they are more or fewer,
 * else -1. */
static int parse_unknown_dims(const char **p, sinter_logical_tensor_t *lt, int *wrong)
{
    int n = 0, unknown = 0;

    *wrong = -1;
    for (;; ++*p, n++) {
        int64_t dim = SINTER_UNKNOWN_DIM;

        if (**p == '?') {
            ++*p;
            unknown++;
        } else if (gr_parse_s64(p, &dim) || dim < 0) {
            return -1;
        }
        if (n < lt->ndims && dim == SINTER_UNKNOWN_DIM) {
            lt->dims[n] = dim;
        } else if (*wrong < 0 && (n >= lt->ndims || lt->dims[n] != dim)) {
            *wrong = n;
        }
        if (**p != 'x') {
            break;
        }
    }
    if (*wrong < 0 && n + 1 < lt->ndims) {
        *wrong = n + 1;
    }
    if (!is_opaque(lt)) {
        lt->layout_type = sinter_layout_type_any;
    }
    return unknown ? 0 : -1;
}

int gr_rewrite_dynamic(model_t *model, const char *p, gr_error_t *err)
{
    for (;; p++) {
        const char *start = p;
        sinter_logical_tensor_t lt;
        model_tensor_t *t = NULL;
        char text[256];
        int wrong;

        if (parse_input_id(model, &p, "dynamic", &t, err) || !t) {
            return -1;
        }
        if (!t->is_input) {
            return gr_fail(err, "--dynamic: tensor %llu is computed by the graph",
                           (unsigned long long)t->id);
        }
        lt = *model_lt(model, t);
        gr_lt_text(&lt, text, sizeof text);
        if (parse_unknown_dims(&p, &lt, &wrong) || (*p && *p != '+')) {
            return gr_fail(err,
                           "--dynamic: expected ID:DIMS with a '?' for each unknown dim at \"%s\"",
                           start);
        }
        if (wrong >= 0) {
            return gr_fail(err, "--dynamic: tensor %llu is %s, which differs at dim %d from \"%s\"",
                           (unsigned long long)t->id, text, wrong, start);
        }
        set_everywhere(model, t, &lt);
        if (forget_downstream(model, t->id, err)) {
            return -1;
        }
        if (!*p) {
            return 0;
        }
    }
}

/* ---- batch ----------------------------------------------------------------------------------- */

static const sinter_logical_tensor_t *first_input(const model_t *model)
{
    for (size_t i = 0; i < model->n_ops; i++) {
        for (size_t j = 0; j < model->ops[i].n_inputs; j++) {
            if (model_find(model, model->ops[i].inputs[j].id)->is_input &&
                model->ops[i].inputs[j].ndims > 0) {
                return &model->ops[i].inputs[j];
            }
        }
    }
    return NULL;
}

/* A reshape whose shape leads with the old batch follows the new one. */
static int rebatch_reshapes(model_t *model, int64_t old, int64_t mb, gr_error_t *err)
{
    for (size_t i = 0; i < model->n_ops; i++) {
        model_op_t *op = &model->ops[i];
        const orc_attr_t *attr =
            op->kind == sinter_op_static_reshape ? model_attr(op, sinter_op_attr_shape) : NULL;
        orc_attr_t changed;
        int64_t *shape;

        if (!attr || attr->n == 0 || attr->s64[0] != old) {
            continue;
        }
        shape = gr_arena_alloc(&model->arena, attr->n, sizeof *shape);
        if (!shape) {
            return gr_fail_memory(err);
        }
        memcpy(shape, attr->s64, attr->n * sizeof *shape);
        shape[0] = mb;
        changed = *attr;
        changed.s64 = shape;
        if (model_set_attr(model, op, &changed, err)) {
            return -1;
        }
    }
    return 0;
}

static int rewrite_batch(model_t *model, int64_t mb, gr_error_t *err)
{
    const sinter_logical_tensor_t *first = first_input(model);
    int64_t old;
    int rank;

    if (!first) {
        return gr_fail(err, "--mb: the graph has no input with dims");
    }
    old = first->dims[0];
    rank = first->ndims;
    if (rebatch_reshapes(model, old, mb, err)) {
        return -1;
    }
    for (size_t i = 0; i < model->n_tensors; i++) {
        model_tensor_t *t = &model->tensors[i];
        sinter_logical_tensor_t lt = *model_lt(model, t);
        int order[SINTER_MAX_NDIMS];

        if (!t->is_input || lt.property == sinter_tensor_property_constant || lt.ndims != rank ||
            lt.dims[0] != old || !gr_is_known(&lt)) {
            continue;
        }
        order_of(&lt, order);
        lt.dims[0] = mb;
        if (gr_set_dense(&lt, order)) {
            return gr_fail(err, "--mb: tensor %llu gets too large", (unsigned long long)t->id);
        }
        set_everywhere(model, t, &lt);
        if (forget_downstream(model, t->id, err)) {
            return -1;
        }
    }
    return 0;
}

/* ---- data types ------------------------------------------------------------------------------ */

/* 1: the wide floats, 2: the narrow integers, 0: changed only by id. */
static int type_family(sinter_data_type_t type)
{
    const gr_dtype_t *t = gr_dtype(type);

    if (t->class_ == GR_FLOAT && (t->bits == 16 || t->bits == 32)) {
        return 1;
    }
    return t->class_ == GR_INT && t->bits <= 8 ? 2 : 0;
}

static int parse_word(const char **p, char *word, size_t size)
{
    size_t n = strcspn(*p, "+:*");

    if (n == 0 || n >= size) {
        return -1;
    }
    memcpy(word, *p, n);
    word[n] = 0;
    *p += n;
    return 0;
}

static int rewrite_types(model_t *model, const char *p, gr_error_t *err)
{
    for (;; p++) {
        const char *start = p;
        model_tensor_t *t = NULL;
        sinter_data_type_t type;
        char word[32];

        if (strchr(p, ':') && *p >= '0' && *p <= '9' && parse_input_id(model, &p, "dt", &t, err)) {
            return -1;
        }
        if (parse_word(&p, word, sizeof word) || !sinter_data_type_parse(word, &type) ||
            (*p && *p != '+')) {
            return gr_fail(err, "--dt: expected [ID:]TYPE at \"%s\"", start);
        }
        if (!t && !type_family(type)) {
            return gr_fail(err, "--dt: %s needs an ID", word);
        }
        for (size_t i = 0; i < model->n_uses; i++) {
            sinter_logical_tensor_t *lt = model_at(model, &model->uses[i]);

            if (t ? lt->id == t->id : type_family(lt->data_type) == type_family(type)) {
                lt->data_type = type;
            }
        }
        if (!*p) {
            return 0;
        }
    }
}

/* ---- attributes ------------------------------------------------------------------------------ */

static int parse_s64_attr(model_t *model, const char **p, orc_attr_t *attr)
{
    int64_t values[64], *copy;
    int n;

    if (gr_parse_dims(p, 64, values, &n)) {
        return -1;
    }
    copy = gr_arena_alloc(&model->arena, (size_t)n, sizeof *copy);
    if (copy) {
        memcpy(copy, values, (size_t)n * sizeof *copy);
    }
    attr->s64 = copy;
    attr->n = (size_t)n;
    return copy ? 0 : -1;
}

static int parse_f32_attr(model_t *model, const char **p, orc_attr_t *attr)
{
    float values[64], *copy;
    size_t n = 0;

    for (;; ++*p) {
        double v;

        if (n == 64 || gr_parse_double(p, &v)) {
            return -1;
        }
        values[n++] = (float)v;
        if (**p != 'x') {
            break;
        }
    }
    copy = gr_arena_alloc(&model->arena, n, sizeof *copy);
    if (copy) {
        memcpy(copy, values, n * sizeof *copy);
    }
    attr->f32 = copy;
    attr->n = n;
    return copy ? 0 : -1;
}

static int parse_bool_attr(const char **p, orc_attr_t *attr)
{
    char word[8];

    if (parse_word(p, word, sizeof word)) {
        return -1;
    }
    attr->n = 1;
    attr->b = !strcmp(word, "1") || !strcmp(word, "true");
    return attr->b || !strcmp(word, "0") || !strcmp(word, "false") ? 0 : -1;
}

static int parse_attr_value(model_t *model, const char **p, orc_attr_t *attr)
{
    model_attr_kind_t kind = model_attr_kind(attr->id);
    char word[64];

    if (kind == MODEL_F32 || kind == MODEL_F32S) {
        return parse_f32_attr(model, p, attr);
    }
    if (kind == MODEL_S64 || kind == MODEL_S64S || kind == MODEL_S64_OR_S64S) {
        return parse_s64_attr(model, p, attr);
    }
    if (kind == MODEL_BOOL) {
        return parse_bool_attr(p, attr);
    }
    attr->n = 1;
    if (parse_word(p, word, sizeof word)) {
        return -1;
    }
    attr->str = gr_arena_strdup(&model->arena, word);
    return attr->str ? 0 : -1;
}

/* NAME:VALUE[*NAME:VALUE]... of one op. */
static int rewrite_op_attrs(model_t *model, const char **p, model_op_t *op, gr_error_t *err)
{
    for (;; ++*p) {
        const char *start = *p;
        orc_attr_t attr = {0};
        char name[64];

        if (parse_word(p, name, sizeof name) || !sinter_op_attr_parse(name, &attr.id) ||
            **p != ':') {
            return gr_fail(err, "--op-attrs: expected NAME:VALUE at \"%s\"", start);
        }
        ++*p;
        if (parse_attr_value(model, p, &attr)) {
            return gr_fail(err, "--op-attrs: expected a value of %s at \"%s\"", name, start);
        }
        if (model_set_attr(model, op, &attr, err)) {
            return -1;
        }
        if (**p != '*') {
            return 0;
        }
    }
}

static int rewrite_attrs(model_t *model, const char *p, gr_error_t *err)
{
    for (;; p++) {
        const char *start = p;
        model_op_t *op;
        uint64_t id;

        if (gr_parse_u64(&p, &id) || *p++ != ':') {
            return gr_fail(err, "--op-attrs: expected ID: at \"%s\"", start);
        }
        op = model_find_op(model, id);
        if (!op) {
            return gr_fail(err, "--op-attrs: the graph has no op %llu", (unsigned long long)id);
        }
        if (rewrite_op_attrs(model, &p, op, err)) {
            return -1;
        }
        if (!*p) {
            return 0;
        }
        if (*p != '+') {
            return gr_fail(err, "--op-attrs: expected '+' or the end at \"%s\"", p);
        }
    }
}

/* ---- fpmath ---------------------------------------------------------------------------------- */

int gr_parse_fpmath(const char **p, sinter_fpmath_mode_t *mode, int *apply_to_int)
{
    char word[32];

    if (parse_word(p, word, sizeof word) || !sinter_fpmath_mode_parse(word, mode)) {
        return -1;
    }
    *apply_to_int = 0;
    if (**p != ':') {
        return 0;
    }
    ++*p;
    if (parse_word(p, word, sizeof word)) {
        return -1;
    }
    *apply_to_int = !strcmp(word, "true");
    return *apply_to_int || !strcmp(word, "false") ? 0 : -1;
}

int gr_rewrite(model_t *model, const gr_options_t *opt, gr_error_t *err)
{
    const char *mode = opt->attr_fpmath;

    if (opt->mb > 0 && rewrite_batch(model, opt->mb, err)) {
        return -1;
    }
    if (opt->in_shapes && rewrite_shapes(model, opt->in_shapes, err)) {
        return -1;
    }
    if (opt->dt && rewrite_types(model, opt->dt, err)) {
        return -1;
    }
    if (opt->op_attrs && rewrite_attrs(model, opt->op_attrs, err)) {
        return -1;
    }
    if (mode && (gr_parse_fpmath(&mode, &model->mode, &model->apply_to_int) || *mode)) {
        return gr_fail(err, "--attr-fpmath=%s: expected MODE[:true]", opt->attr_fpmath);
    }
    return 0;
}
