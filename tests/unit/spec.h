/* Graphs as text, so that a test's table shows the graph itself. Ops are separated by ';':
 *
 *   [#id] Kind attr=value[,value..] id:dtype:dims[:strides].. -> id:dtype:dims[:strides]..
 *
 * A data type with an exclamation mark is that of a constant: 2:f32!:3x3; with a percent sign and
 * an id that of a tensor of such an opaque layout: 2:s4%1:3x3. dims are 2x3, with ? for
 * an unknown one; - is a scalar, * an unknown number of dims. Without strides a tensor is dense, or
 * of layout any if it has unknown dims. Ops without #id are numbered from 100. "ports 1,2 -> 7"
 * lists input and output ports. */
#ifndef SINTER_TESTS_SPEC_H
#define SINTER_TESTS_SPEC_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter.h>

static inline void spec_die(const char *what, const char *token)
{
    fprintf(stderr, "spec: %s: \"%s\"\n", what, token);
    exit(2);
}

/* "2x?x3" into values; returns how many. */
static inline int spec_dims(const char *text, int64_t *values)
{
    int n = 0;
    for (const char *p = text; *p != '\0'; n++) {
        char *end = (char *)p + 1;
        if (n == SINTER_MAX_NDIMS) {
            spec_die("too many dims", text);
        }
        values[n] = *p == '?' ? SINTER_UNKNOWN_DIM : (int64_t)strtoll(p, &end, 10);
        if (end == p || (*end != 'x' && *end != '\0')) {
            spec_die("bad dims", text);
        }
        p = end + (*end == 'x');
    }
    return n;
}

static inline sinter_logical_tensor_t spec_tensor(const char *token)
{
    sinter_logical_tensor_t lt;
    char dtype[32] = "", dims[256] = "", strides[256] = "";
    unsigned long long id;
    memset(&lt, 0, sizeof lt);
    if (sscanf(token, "%llu:%31[^:]:%255[^:]:%255s", &id, dtype, dims, strides) < 3) {
        spec_die("bad tensor", token);
    }
    lt.id = id;
    char *mark = strchr(dtype, '!');
    if (mark != NULL) {
        *mark = '\0';
        lt.property = sinter_tensor_property_constant;
    }
    mark = strchr(dtype, '%');
    if (mark != NULL) {
        *mark = '\0';
        lt.layout_id = strtoull(mark + 1, NULL, 10);
    }
    if (!sinter_data_type_parse(dtype, &lt.data_type)) {
        spec_die("bad data type", token);
    }
    lt.layout_type = sinter_layout_type_strided;
    if (mark != NULL) {
        lt.layout_type = sinter_layout_type_opaque;
        lt.ndims = spec_dims(dims, lt.dims);
        return lt;
    }
    if (strcmp(dims, "*") == 0) {
        lt.ndims = SINTER_UNKNOWN_NDIMS;
        lt.layout_type = sinter_layout_type_any;
    } else if (strcmp(dims, "-") != 0) {
        lt.ndims = spec_dims(dims, lt.dims);
    }
    if (strides[0] != '\0') {
        spec_dims(strides, lt.strides);
        return lt;
    }
    int64_t stride = 1;
    for (int i = lt.ndims - 1; i >= 0; i--) {
        lt.strides[i] = stride;
        if (lt.dims[i] == SINTER_UNKNOWN_DIM) {
            lt.layout_type = sinter_layout_type_any;
        } else if (lt.dims[i] > 0 && stride <= INT64_MAX / lt.dims[i]) {
            stride *= lt.dims[i];
        }
    }
    return lt;
}

static inline int spec_is(const char *kind, const char *of)
{
    return strcmp(kind, of) == 0;
}

/* The kind column of attrs.def. */
static inline const char *spec_attr_kind(sinter_op_attr_t attr)
{
    static const char *const kinds[sinter_op_attr_end] = {
#define SINTER_ATTR(value, name, kind) [value] = #kind,
#include <sinter/attrs.def>
#undef SINTER_ATTR
    };
    return kinds[attr];
}

static inline sinter_status_t spec_attr(sinter_op_t *op, const char *name, const char *value)
{
    enum { MOST = 64 };
    sinter_op_attr_t attr;
    float f32[MOST];
    int64_t s64[MOST];
    size_t n = 0;
    if (!sinter_op_attr_parse(name, &attr)) {
        spec_die("bad attribute", name);
    }
    const char *kind = spec_attr_kind(attr);
    if (spec_is(kind, "STR")) {
        return sinter_op_set_attr_str(op, attr, value);
    }
    for (const char *p = value; *p != '\0' && n < MOST; n++) {
        char *end;
        f32[n] = strtof(p, &end);
        s64[n] = (int64_t)strtoll(p, NULL, 10);
        if (end == p) {
            spec_die("bad value", value);
        }
        p = end + (*end == ',');
    }
    if (spec_is(kind, "BOOL")) {
        return sinter_op_set_attr_bool(op, attr, (int)s64[0]);
    }
    return kind[0] == 'F' ? sinter_op_set_attr_f32(op, attr, f32, n)
                          : sinter_op_set_attr_s64(op, attr, s64, n);
}

static inline sinter_status_t spec_token(sinter_op_t *op, char *token, int *outputs)
{
    char *equals = strchr(token, '=');
    if (spec_is(token, "->")) {
        *outputs = 1;
        return sinter_success;
    }
    if (equals != NULL) {
        *equals = '\0';
        return spec_attr(op, token, equals + 1);
    }
    sinter_logical_tensor_t lt = spec_tensor(token);
    return *outputs ? sinter_op_add_output(op, &lt) : sinter_op_add_input(op, &lt);
}

static inline sinter_status_t spec_ports(sinter_graph_t *graph, char *text)
{
    uint64_t in[16], out[16];
    size_t n_in = 0, n_out = 0;
    char *arrow = strstr(text, "->");
    for (char *p = text; *p != '\0'; p++) {
        if (*p >= '0' && *p <= '9') {
            int is_out = arrow != NULL && p > arrow;
            *(is_out ? &out[n_out++] : &in[n_in++]) = strtoull(p, &p, 10);
            p--;
        }
    }
    return sinter_graph_set_ports(graph, n_in, in, n_out, out);
}

static inline sinter_status_t spec_op(sinter_graph_t *graph, sinter_engine_t *engine, char *text,
                                      uint64_t id)
{
    sinter_op_t *op = NULL;
    sinter_op_kind_t kind;
    int outputs = 0;
    char *save, *token = strtok_r(text, " ", &save);
    if (token[0] == '#') {
        id = strtoull(token + 1, NULL, 10);
        token = strtok_r(NULL, " ", &save);
    }
    if (!sinter_op_kind_parse(token, &kind)) {
        spec_die("bad op kind", token);
    }
    sinter_status_t status = sinter_op_create(&op, engine, id, kind, token);
    while (status == sinter_success && (token = strtok_r(NULL, " ", &save)) != NULL) {
        status = spec_token(op, token, &outputs);
    }
    status = status == sinter_success ? sinter_graph_add_op(graph, op) : status;
    sinter_op_destroy(&op);
    return status;
}

/* Adds the ops of a spec to a graph, stops at the first that fails. */
static inline sinter_status_t spec_add(sinter_graph_t *graph, sinter_engine_t *engine,
                                       const char *spec)
{
    char text[4096], *save = NULL;
    uint64_t id = 100;
    sinter_status_t status = sinter_success;
    if (strlen(spec) >= sizeof text) {
        spec_die("too long", spec);
    }
    strcpy(text, spec);
    for (char *op = strtok_r(text, ";", &save); op != NULL && status == sinter_success;
         op = strtok_r(NULL, ";", &save)) {
        op += strspn(op, " ");
        status = strncmp(op, "ports", 5) == 0 ? spec_ports(graph, op + 5)
                                              : spec_op(graph, engine, op, id++);
    }
    return status;
}

/* A finalized graph; on failure *graph is NULL. */
static inline sinter_status_t spec_graph(sinter_graph_t **graph, sinter_engine_t *engine,
                                         const char *spec)
{
    *graph = NULL;
    sinter_status_t status = sinter_graph_create(graph, engine, sinter_cpu);
    status = status == sinter_success ? spec_add(*graph, engine, spec) : status;
    status = status == sinter_success ? sinter_graph_finalize(*graph) : status;
    if (status != sinter_success) {
        sinter_graph_destroy(graph);
    }
    return status;
}

/* "2x?x3" of a logical tensor; four texts live at once. */
static inline const char *spec_text(const sinter_logical_tensor_t *lt)
{
    static char ring[4][256];
    static int next;
    char *text = ring[next++ % 4], *p = text;
    strcpy(text, lt->ndims < 0 ? "*" : lt->ndims == 0 ? "-" : "");
    for (int i = 0; i < lt->ndims; i++) {
        p += lt->dims[i] == SINTER_UNKNOWN_DIM
                 ? sprintf(p, "%s?", i ? "x" : "")
                 : sprintf(p, "%s%lld", i ? "x" : "", (long long)lt->dims[i]);
    }
    return text;
}

#endif
