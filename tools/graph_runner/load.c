/* JSON to model. Everything that the format says is checked here with a position; what the ops
 * mean is the library's to check. */
#include "json.h"
#include "model.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef struct loader {
    json_doc_t doc;
    model_t *model;
    gr_error_t *err;
} loader_t;

static void *take(loader_t *l, size_t count, size_t size)
{
    void *ptr = gr_arena_alloc(&l->model->arena, count, size);

    if (!ptr) {
        gr_fail_memory(l->err);
    }
    return ptr;
}

static int get(loader_t *l, const json_node_t *obj, const char *key, json_node_t *member)
{
    return json_member(&l->doc, obj, key, member);
}

/* Notes something that is accepted and has no effect. */
static int warn(loader_t *l, const json_node_t *node, const char *text)
{
    model_t *m = l->model;
    int line, column;
    char *warning;
    size_t size;

    if (m->n_warnings == MODEL_MAX_WARNINGS) {
        return 0;
    }
    json_position(&l->doc, node, &line, &column);
    size = strlen(l->doc.file) + strlen(text) + 64;
    warning = take(l, size, 1);
    if (!warning) {
        return -1;
    }
    snprintf(warning, size, "%s:%d:%d: warning: %s", l->doc.file, line, column, text);
    m->warnings[m->n_warnings++] = warning;
    return 0;
}

/* Notes the members of an object that nothing reads. keys: those that are read. */
static int warn_unread(loader_t *l, const json_node_t *obj, const char *const *keys)
{
    json_node_t c;
    char text[256];

    for (bool more = json_first(&l->doc, obj, &c); more; more = json_next(&l->doc, &c)) {
        const char *key = json_key(&l->doc, &c);
        int at = 0;

        if (!key) {
            return -1;
        }
        while (keys[at] && strcmp(keys[at], key)) {
            at++;
        }
        if (keys[at]) {
            continue;
        }
        size_t n =
            (size_t)snprintf(text, sizeof text, "member \"%.64s\" is ignored; known are", key);
        for (int i = 0; keys[i] && n < sizeof text; i++) {
            n += (size_t)snprintf(text + n, sizeof text - n, " %s", keys[i]);
        }
        if (warn(l, &c, text)) {
            return -1;
        }
    }
    return 0;
}

/* The member must be there. */
static int need(loader_t *l, const json_node_t *obj, const char *key, json_node_t *member)
{
    char what[64];

    if (get(l, obj, key, member)) {
        return -1;
    }
    snprintf(what, sizeof what, "an object with \"%s\"", key);
    return member->at ? 0 : json_expected(&l->doc, obj, what);
}

static int string_member(loader_t *l, const json_node_t *obj, const char *key, const char **value)
{
    json_node_t node;

    *value = NULL;
    if (get(l, obj, key, &node)) {
        return -1;
    }
    return node.at ? json_string(&l->doc, &node, value) : 0;
}

static int s64_list(loader_t *l, const json_node_t *node, size_t *n, int64_t **values)
{
    json_node_t c;
    size_t i = 0;

    if (!json_is_array(&l->doc, node)) {
        return json_expected(&l->doc, node, "an array of integers");
    }
    *n = json_count(&l->doc, node);
    *values = take(l, *n, sizeof **values);
    if (!*values) {
        return -1;
    }
    for (bool more = json_first(&l->doc, node, &c); more; more = json_next(&l->doc, &c)) {
        if (json_s64(&l->doc, &c, &(*values)[i++])) {
            return -1;
        }
    }
    return 0;
}

static int f32_list(loader_t *l, const json_node_t *node, size_t *n, float **values)
{
    json_node_t c;
    size_t i = 0;

    if (!json_is_array(&l->doc, node)) {
        return json_expected(&l->doc, node, "an array of numbers");
    }
    *n = json_count(&l->doc, node);
    *values = take(l, *n, sizeof **values);
    if (!*values) {
        return -1;
    }
    for (bool more = json_first(&l->doc, node, &c); more; more = json_next(&l->doc, &c)) {
        if (json_f32(&l->doc, &c, &(*values)[i++])) {
            return -1;
        }
    }
    return 0;
}

/* ---- attributes ------------------------------------------------------------------------------ */

typedef struct attr_form {
    const char *type;
    unsigned kinds; /* a bit for each model_attr_kind_t that it can stand for */
} attr_form_t;

/* What an attribute can look like in JSON. */
typedef enum form { FORM_BOOL, FORM_S64, FORM_S64S, FORM_F32, FORM_F32S, FORM_STR } form_t;
enum { FORMS = FORM_STR + 1 };

static const attr_form_t attr_forms[FORMS] = {
    [FORM_BOOL] = {"bool", 1u << MODEL_BOOL},
    [FORM_S64] = {"s64", 1u << MODEL_S64 | 1u << MODEL_S64_OR_S64S},
    [FORM_S64S] = {"s64[]", 1u << MODEL_S64S | 1u << MODEL_S64_OR_S64S},
    [FORM_F32] = {"f32", 1u << MODEL_F32},
    [FORM_F32S] = {"f32[]", 1u << MODEL_F32S},
    [FORM_STR] = {"string", 1u << MODEL_STR},
};

static int attr_value(loader_t *l, form_t form, const json_node_t *node, orc_attr_t *attr)
{
    int64_t *s64 = NULL;
    float *f32 = NULL;
    const char *str;
    int status = -1;

    attr->n = 1;
    switch (form) {
    case FORM_BOOL:
        return json_bool(&l->doc, node, &attr->b);
    case FORM_S64:
        s64 = take(l, 1, sizeof *s64);
        status = s64 ? json_s64(&l->doc, node, s64) : -1;
        break;
    case FORM_S64S:
        status = s64_list(l, node, &attr->n, &s64);
        break;
    case FORM_F32:
        f32 = take(l, 1, sizeof *f32);
        status = f32 ? json_f32(&l->doc, node, f32) : -1;
        break;
    case FORM_F32S:
        status = f32_list(l, node, &attr->n, &f32);
        break;
    case FORM_STR:
        if (json_string(&l->doc, node, &str)) {
            return -1;
        }
        attr->str = gr_arena_strdup(&l->model->arena, str);
        return attr->str ? 0 : gr_fail_memory(l->err);
    }
    attr->s64 = s64;
    attr->f32 = f32;
    return status;
}

/* "the type s64 or s64[] of attribute axis" */
static void expected_form(sinter_op_attr_t id, char *text, size_t size)
{
    size_t len = (size_t)snprintf(text, size, "the type");
    const char *between = " ";

    for (int form = 0; form < FORMS; form++) {
        if (attr_forms[form].kinds & 1u << model_attr_kind(id)) {
            len += (size_t)snprintf(text + len, size - len, "%s%s", between, attr_forms[form].type);
            between = " or ";
        }
    }
    snprintf(text + len, size - len, " of attribute %s", sinter_op_attr_name(id));
}

static int load_attr(loader_t *l, const json_node_t *node, orc_attr_t *attr)
{
    const char *name, *key = json_key(&l->doc, node);
    json_node_t type, value;
    int form = 0;

    if (!key) {
        return -1;
    }
    if (!sinter_op_attr_parse(key, &attr->id)) {
        char what[128];

        snprintf(what, sizeof what, "a known attribute instead of \"%.40s\"", key);
        return json_expected(&l->doc, node, what);
    }
    if (!json_is_object(&l->doc, node)) {
        return json_expected(&l->doc, node, "an attribute object with \"type\" and \"value\"");
    }
    if (need(l, node, "type", &type) || need(l, node, "value", &value) ||
        json_string(&l->doc, &type, &name)) {
        return -1;
    }
    while (form < FORMS && strcmp(attr_forms[form].type, name)) {
        form++;
    }
    if (form == FORMS) {
        return json_expected(&l->doc, &type, "one of bool, s64, s64[], f32, f32[], string");
    }
    if (!(attr_forms[form].kinds & 1u << model_attr_kind(attr->id))) {
        char what[128];

        expected_form(attr->id, what, sizeof what);
        return json_expected(&l->doc, &type, what);
    }
    return attr_value(l, form, &value, attr);
}

static int load_attrs(loader_t *l, const json_node_t *obj, model_op_t *op)
{
    json_node_t attrs, c;
    size_t i = 0;

    if (get(l, obj, "attrs", &attrs)) {
        return -1;
    }
    if (!attrs.at) {
        return 0;
    }
    if (!json_is_object(&l->doc, &attrs)) {
        return json_expected(&l->doc, &attrs, "an object of attributes");
    }
    op->n_attrs = json_count(&l->doc, &attrs);
    op->attrs = take(l, op->n_attrs, sizeof *op->attrs);
    if (!op->attrs) {
        return -1;
    }
    for (bool more = json_first(&l->doc, &attrs, &c); more; more = json_next(&l->doc, &c), i++) {
        if (load_attr(l, &c, &op->attrs[i])) {
            return -1;
        }
        for (size_t j = 0; j < i; j++) {
            if (op->attrs[j].id == op->attrs[i].id) {
                return json_expected(&l->doc, &c, "each attribute only once");
            }
        }
    }
    return 0;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static const char *const layouts[] = {"undef", "any", "strided", "opaque"};
static const char *const properties[] = {"undef", "variable", "constant", "host_scalar"};

/* The index of an optional string member in a list; leaves *value alone without it. */
static int word_member(loader_t *l, const json_node_t *obj, const char *key,
                       const char *const *words, const char *what, int *value)
{
    json_node_t node;
    const char *text;

    if (get(l, obj, key, &node)) {
        return -1;
    }
    if (!node.at) {
        return 0;
    }
    text = json_text(&l->doc, &node);
    for (int i = 0; text && i < 4; i++) {
        if (!strcmp(text, words[i])) {
            *value = i;
            return 0;
        }
    }
    return json_expected(&l->doc, &node, what);
}

/* An array of at most SINTER_MAX_NDIMS integers; *n = -1 without it. */
static int dims_member(loader_t *l, const json_node_t *obj, const char *key, int64_t *dims, int *n,
                       json_node_t *node)
{
    json_node_t c;

    *n = -1;
    if (get(l, obj, key, node)) {
        return -1;
    }
    if (!node->at) {
        return 0;
    }
    if (!json_is_array(&l->doc, node)) {
        return json_expected(&l->doc, node, "an array of at most 12 integers");
    }
    *n = 0;
    for (bool more = json_first(&l->doc, node, &c); more; more = json_next(&l->doc, &c)) {
        if (*n == SINTER_MAX_NDIMS) {
            return json_expected(&l->doc, node, "an array of at most 12 integers");
        }
        if (json_s64(&l->doc, &c, &dims[(*n)++])) {
            return -1;
        }
    }
    return 0;
}

static int load_shape(loader_t *l, const json_node_t *obj, sinter_logical_tensor_t *lt)
{
    json_node_t node;
    int n;

    if (dims_member(l, obj, "shape", lt->dims, &n, &node)) {
        return -1;
    }
    /* A single unknown dimension is how the format writes an unknown number of them. */
    lt->ndims = n == 1 && lt->dims[0] == SINTER_UNKNOWN_DIM ? SINTER_UNKNOWN_NDIMS : n;
    for (int i = 0; i < lt->ndims; i++) {
        if (lt->dims[i] < 0 && lt->dims[i] != SINTER_UNKNOWN_DIM) {
            return json_expected(&l->doc, &node, "dims of at least 0");
        }
    }
    return 0;
}

/* Strides as given; without them dense ones if the dims are known, else layout any. */
static int load_strides(loader_t *l, const json_node_t *obj, sinter_logical_tensor_t *lt)
{
    json_node_t node;
    int n, known = lt->ndims >= 0, unknown_stride = 0;

    for (int i = 0; i < lt->ndims; i++) {
        known &= lt->dims[i] != SINTER_UNKNOWN_DIM;
    }
    if (dims_member(l, obj, "stride", lt->strides, &n, &node)) {
        return -1;
    }
    for (int i = 0; i < n; i++) {
        unknown_stride |= lt->strides[i] == SINTER_UNKNOWN_DIM;
    }
    if (lt->layout_type == sinter_layout_type_any || lt->layout_type == sinter_layout_type_opaque) {
        return 0;
    }
    if (lt->ndims < 0 || unknown_stride || (n <= 0 && !known)) {
        lt->layout_type = sinter_layout_type_any;
        return 0;
    }
    if (n < 0 || (n == 0 && lt->ndims > 0)) {
        return gr_set_dense(lt, NULL)
                   ? json_expected(&l->doc, obj, "dims whose product fits 64 bits")
                   : 0;
    }
    lt->layout_type = sinter_layout_type_strided;
    return n == lt->ndims ? 0 : json_expected(&l->doc, &node, "as many strides as dims");
}

/* Without an id there is none of 0, as the library says. Strides mean nothing. */
static int load_layout_id(loader_t *l, const json_node_t *obj, sinter_logical_tensor_t *lt)
{
    json_node_t node;

    memset(lt->strides, 0, sizeof lt->strides);
    return get(l, obj, "layout_id", &node) || (node.at && json_u64(&l->doc, &node, &lt->layout_id));
}

static int load_tensor(loader_t *l, const json_node_t *obj, sinter_logical_tensor_t *lt)
{
    static const char *const keys[] = {"id",          "dtype",         "shape", "stride",
                                       "layout_type", "property_type", NULL},
                             *const opaque_keys[] = {
                                 "id",          "dtype",     "shape",         "stride",
                                 "layout_type", "layout_id", "property_type", NULL};
    json_node_t id, dtype;
    int layout = sinter_layout_type_undef, property = sinter_tensor_property_undef;
    const char *name;

    *lt = (sinter_logical_tensor_t){0};
    if (!json_is_object(&l->doc, obj)) {
        return json_expected(&l->doc, obj, "a tensor object");
    }
    if (need(l, obj, "id", &id) || json_u64(&l->doc, &id, &lt->id) ||
        need(l, obj, "dtype", &dtype) || json_string(&l->doc, &dtype, &name)) {
        return -1;
    }
    if (!sinter_data_type_parse(name, &lt->data_type)) {
        return json_expected(&l->doc, &dtype, "a data type");
    }
    if (word_member(l, obj, "layout_type", layouts, "one of undef, any, strided, opaque",
                    &layout) ||
        word_member(l, obj, "property_type", properties,
                    "one of undef, variable, constant, host_scalar", &property)) {
        return -1;
    }
    lt->layout_type = (sinter_layout_type_t)layout;
    lt->property = (sinter_tensor_property_t)property;
    if (load_shape(l, obj, lt) || load_strides(l, obj, lt)) {
        return -1;
    }
    return lt->layout_type == sinter_layout_type_opaque
               ? load_layout_id(l, obj, lt) || warn_unread(l, obj, opaque_keys)
               : warn_unread(l, obj, keys);
}

static int load_tensors(loader_t *l, const json_node_t *obj, const char *key, size_t *n,
                        sinter_logical_tensor_t **tensors)
{
    json_node_t list, c, member;
    size_t i = 0;

    if (get(l, obj, key, &list)) {
        return -1;
    }
    if (!list.at) {
        return 0;
    }
    if (!json_is_array(&l->doc, &list)) {
        return json_expected(&l->doc, &list, "an array of tensors");
    }
    /* Elements that are no tensors are refused before there is memory for a tensor in place of
     * each. */
    for (bool more = json_first(&l->doc, &list, &c); more; more = json_next(&l->doc, &c), ++*n) {
        if (!json_is_object(&l->doc, &c) || need(l, &c, "id", &member) ||
            need(l, &c, "dtype", &member)) {
            return json_expected(&l->doc, &c, "a tensor object");
        }
    }
    *tensors = take(l, *n, sizeof **tensors);
    if (!*tensors) {
        return -1;
    }
    for (bool more = json_first(&l->doc, &list, &c); more; more = json_next(&l->doc, &c)) {
        if (load_tensor(l, &c, &(*tensors)[i++])) {
            return -1;
        }
    }
    return 0;
}

/* ---- ops and the top level ------------------------------------------------------------------- */

/* Lines of the ops are counted on, not from the start each time. */
typedef struct line_counter {
    size_t at;
    int line;
} line_counter_t;

static int line_of(const json_doc_t *doc, const json_node_t *node, line_counter_t *counter)
{
    for (; counter->at < node->at; counter->at++) {
        counter->line += doc->text[counter->at] == '\n';
    }
    return counter->line;
}

static int load_op(loader_t *l, const json_node_t *obj, size_t index, line_counter_t *counter,
                   model_op_t *op)
{
    static const char *const keys[] = {"id", "name", "kind", "attrs", "inputs", "outputs", NULL};
    json_node_t node;
    const char *kind, *name;

    if (!json_is_object(&l->doc, obj)) {
        return json_expected(&l->doc, obj, "an op object");
    }
    if (warn_unread(l, obj, keys)) {
        return -1;
    }
    op->line = line_of(&l->doc, obj, counter);
    op->id = index;
    if (get(l, obj, "id", &node) || (node.at && json_u64(&l->doc, &node, &op->id))) {
        return -1;
    }
    if (string_member(l, obj, "name", &name)) {
        return -1;
    }
    op->name = name ? gr_arena_strdup(&l->model->arena, name) : NULL;
    if (name && !op->name) {
        return gr_fail_memory(l->err);
    }
    if (need(l, obj, "kind", &node) || json_string(&l->doc, &node, &kind)) {
        return -1;
    }
    if (!sinter_op_kind_parse(kind, &op->kind)) {
        return json_expected(&l->doc, &node, "an op kind");
    }
    return load_attrs(l, obj, op) || load_tensors(l, obj, "inputs", &op->n_inputs, &op->inputs) ||
                   load_tensors(l, obj, "outputs", &op->n_outputs, &op->outputs)
               ? -1
               : 0;
}

static int load_ports(loader_t *l, const json_node_t *root, const char *key, size_t *n,
                      uint64_t **ids)
{
    json_node_t list, c;
    size_t i = 0;

    if (get(l, root, key, &list)) {
        return -1;
    }
    if (!list.at) {
        return 0;
    }
    if (!json_is_array(&l->doc, &list)) {
        return json_expected(&l->doc, &list, "an array of tensor ids");
    }
    *n = json_count(&l->doc, &list);
    *ids = take(l, *n, sizeof **ids);
    if (!*ids) {
        return -1;
    }
    for (bool more = json_first(&l->doc, &list, &c); more; more = json_next(&l->doc, &c)) {
        if (json_u64(&l->doc, &c, &(*ids)[i++])) {
            return -1;
        }
    }
    return 0;
}

/* Dumps of graphs that were made for a GPU are loaded as well: the ops are the same. */
static int load_engine_kind(loader_t *l, const json_node_t *root)
{
    json_node_t node;
    const char *kind;

    if (get(l, root, "engine_kind", &node) || (node.at && json_string(&l->doc, &node, &kind))) {
        return -1;
    }
    if (!node.at || !strcmp(kind, "cpu")) {
        return 0;
    }
    if (strcmp(kind, "gpu")) {
        return json_expected(&l->doc, &node, "the engine_kind \"cpu\" or \"gpu\"");
    }
    return warn(l, &node, "the graph was made for engine_kind \"gpu\", it runs on the CPU");
}

static int load_header(loader_t *l, const json_node_t *root)
{
    json_node_t mode, apply;
    const char *text;

    if (string_member(l, root, "version", &text) || load_engine_kind(l, root)) {
        return -1;
    }
    if (get(l, root, "fpmath_mode", &mode) || get(l, root, "fpmath_mode_apply_to_int", &apply)) {
        return -1;
    }
    if (mode.at && json_string(&l->doc, &mode, &text)) {
        return -1;
    }
    if (mode.at && !sinter_fpmath_mode_parse(text, &l->model->mode)) {
        return json_expected(&l->doc, &mode, "an fpmath mode");
    }
    if (apply.at && json_bool(&l->doc, &apply, &l->model->apply_to_int)) {
        return -1;
    }
    return load_ports(l, root, "input_ports", &l->model->n_in_ports, &l->model->in_ports) ||
                   load_ports(l, root, "output_ports", &l->model->n_out_ports, &l->model->out_ports)
               ? -1
               : 0;
}

/* Listed ports that the graph does not have are ignored, and the user is told so. */
static int check_ports(loader_t *l, const char *key, bool inputs)
{
    enum { MOST_WARNINGS = 6 };
    size_t ignored = 0;
    json_node_t list, c;
    char text[160];
    uint64_t id;

    if (get(l, &l->doc.root, key, &list)) {
        return -1;
    }
    if (!list.at) {
        return 0;
    }
    for (bool more = json_first(&l->doc, &list, &c); more; more = json_next(&l->doc, &c)) {
        const model_tensor_t *t;

        if (json_u64(&l->doc, &c, &id)) {
            return -1;
        }
        t = model_find(l->model, id);
        if ((t && t->is_input == inputs) || ignored++ >= MOST_WARNINGS) {
            continue;
        }
        snprintf(text, sizeof text, "%s names tensor %llu, which %s; the port is ignored", key,
                 (unsigned long long)id,
                 !t       ? "the graph does not have"
                 : inputs ? "an op of the graph computes"
                          : "no op of the graph computes");
        if (warn(l, &c, text)) {
            return -1;
        }
    }
    if (ignored > MOST_WARNINGS) {
        snprintf(text, sizeof text, "%s: %zu more ports are ignored", key, ignored - MOST_WARNINGS);
        return warn(l, &list, text);
    }
    return 0;
}

static int load_root(loader_t *l)
{
    static const char *const keys[] = {
        "version",     "engine_kind",  "fpmath_mode", "fpmath_mode_apply_to_int",
        "input_ports", "output_ports", "graph",       NULL};
    const json_node_t *root = &l->doc.root;
    json_node_t list, c, member;
    line_counter_t counter = {0, 1};
    size_t i = 0;

    if (!json_is_object(&l->doc, root)) {
        return json_expected(&l->doc, root, "an object");
    }
    if (load_header(l, root) || need(l, root, "graph", &list) || warn_unread(l, root, keys)) {
        return -1;
    }
    if (!json_is_array(&l->doc, &list)) {
        return json_expected(&l->doc, &list, "an array of ops");
    }
    /* Elements that are no ops are refused before there is memory for an op in place of each. */
    for (bool more = json_first(&l->doc, &list, &c); more;
         more = json_next(&l->doc, &c), l->model->n_ops++) {
        if (!json_is_object(&l->doc, &c) || need(l, &c, "kind", &member)) {
            return json_expected(&l->doc, &c, "an op object");
        }
    }
    l->model->ops = take(l, l->model->n_ops, sizeof *l->model->ops);
    if (!l->model->ops) {
        return -1;
    }
    for (bool more = json_first(&l->doc, &list, &c); more; more = json_next(&l->doc, &c), i++) {
        if (load_op(l, &c, i, &counter, &l->model->ops[i])) {
            return -1;
        }
    }
    return model_index(l->model, l->err) || check_ports(l, "input_ports", true) ||
                   check_ports(l, "output_ports", false)
               ? -1
               : 0;
}

int model_load_text(model_t *model, const char *file, const char *text, size_t size,
                    gr_error_t *err)
{
    loader_t l = {.model = model, .err = err};
    int status;

    *model = (model_t){0};
    model->file = gr_arena_strdup(&model->arena, file);
    if (!model->file) {
        return gr_fail_memory(err);
    }
    status = json_open(&l.doc, file, text, size, err);
    if (!status) {
        status = load_root(&l);
    }
    json_close(&l.doc);
    return status;
}

int model_load_file(model_t *model, const char *path, gr_error_t *err)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    long size = -1;
    int status;

    *model = (model_t){0};
    if (!f) {
        return gr_fail(err, "%s: %s", path, strerror(errno));
    }
    if (!fseek(f, 0, SEEK_END)) {
        size = ftell(f);
    }
    rewind(f);
    if (size >= 0) {
        text = gr_malloc((size_t)size + 1);
    }
    if (!text) {
        status = size < 0 ? gr_fail(err, "%s: not a readable file", path) : gr_fail_memory(err);
    } else if (fread(text, 1, (size_t)size, f) != (size_t)size) {
        status = gr_fail(err, "%s: not a readable file", path);
    } else {
        status = model_load_text(model, path, text, (size_t)size, err);
    }
    fclose(f);
    gr_free(text);
    return status;
}
