/* Writing a graph: as JSON that any reader of the format loads, and as text for
 * SINTER_DUMP_AFTER. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter_graph.h>
#include <sinter/sinter_version.h>

#include "base/status.h"
#include "graph/attr.h"
#include "graph/graph.h"
#include "graph/layout.h"
#include "graph/schema.h"
#include "numeric/dtype.h"

static void write_string(FILE *f, const char *text)
{
    fputc('"', f);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\') {
            fprintf(f, "\\%c", *p);
        } else if (*p < 0x20) {
            fprintf(f, "\\u%04x", *p);
        } else {
            fputc(*p, f);
        }
    }
    fputc('"', f);
}

/* What is neither a digit nor a sign nor the exponent is the locale's decimal point, of one byte or
 * several. */
static void write_number(FILE *f, const char *text)
{
    while (*text != '\0') {
        const size_t point = strcspn(text, "0123456789+-e");
        fputc(point > 0 ? '.' : *text, f);
        text += point > 0 ? point : 1;
    }
}

/* The shortest text that reads back as x. JSON has no number for Inf. */
static void write_f32(FILE *f, float x)
{
    char text[64];
    if (!isfinite(x)) {
        fputs(isnan(x) ? "\"nan\"" : x > 0 ? "\"inf\"" : "\"-inf\"", f);
        return;
    }
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x) {
            break;
        }
    }
    write_number(f, text);
}

static void write_s64s(FILE *f, const int64_t *values, size_t n)
{
    fputc('[', f);
    for (size_t i = 0; i < n; i++) {
        fprintf(f, "%s%lld", i ? ", " : "", (long long)values[i]);
    }
    fputc(']', f);
}

static void write_attr(FILE *f, const attr_t *a)
{
    const attr_kind_t kind = attr_kind(a->id);
    const bool vector =
        kind == ATTR_F32S || kind == ATTR_S64S || (kind == ATTR_S64_OR_S64S && a->n != 1);

    fprintf(f, "        \"%s\": {\"type\": \"", attr_name(a->id));
    if (attr_kind_is_s64(kind)) {
        fprintf(f, "s64%s\", \"value\": ", vector ? "[]" : "");
        if (vector) {
            write_s64s(f, a->s64, a->n);
        } else {
            fprintf(f, "%lld", (long long)a->s64[0]);
        }
    } else if (attr_kind_is_f32(kind)) {
        fprintf(f, "f32%s\", \"value\": %s", vector ? "[]" : "", vector ? "[" : "");
        for (size_t i = 0; i < a->n; i++) {
            fputs(i ? ", " : "", f);
            write_f32(f, a->f32[i]);
        }
        fputs(vector ? "]" : "", f);
    } else if (kind == ATTR_BOOL) {
        fprintf(f, "bool\", \"value\": %d", a->b);
    } else {
        fputs("string\", \"value\": ", f);
        write_string(f, a->str);
    }
    fputc('}', f);
}

/* Unknown rank is written as one unknown dim. */
static void write_tensor(FILE *f, const lt_t *lt)
{
    static const char *const layouts[] = {"undef", "any", "strided", "opaque"};
    static const char *const properties[] = {"undef", "variable", "constant", "host_scalar"};
    const int64_t unknown = SINTER_UNKNOWN_DIM;
    const bool strided = lt->layout_type == sinter_layout_type_strided;

    fprintf(f, "        {\"id\": %llu, \"dtype\": \"%s\", \"shape\": ", (unsigned long long)lt->id,
            dtype_traits(lt->data_type)->name);
    write_s64s(f, lt->ndims < 0 ? &unknown : lt->dims, lt->ndims < 0 ? 1 : (size_t)lt->ndims);
    fputs(", \"stride\": ", f);
    if (strided || lt->ndims == 0) {
        write_s64s(f, lt->strides, (size_t)lt->ndims);
    } else {
        fputc('[', f);
        for (int d = 0; d < (lt->ndims < 0 ? 1 : lt->ndims); d++) {
            fprintf(f, "%s%lld", d ? ", " : "", (long long)unknown);
        }
        fputc(']', f);
    }
    fprintf(f, ", \"layout_type\": \"%s\"", layouts[lt->layout_type]);
    if (lt_is_opaque(lt)) {
        fprintf(f, ", \"layout_id\": %llu", (unsigned long long)lt->layout_id);
    }
    fprintf(f, ", \"property_type\": \"%s\"}", properties[lt->property]);
}

static void write_tensors(FILE *f, const graph_t *g, const char *key, const int *values, int n)
{
    fprintf(f, "      \"%s\": [", key);
    for (int i = 0; i < n; i++) {
        fputs(i ? ",\n" : "\n", f);
        write_tensor(f, &g->values[values[i]].lt);
    }
    fputs(n ? "\n      ]" : "]", f);
}

static void write_node(FILE *f, const graph_t *g, const node_t *n)
{
    fprintf(f, "    {\n      \"id\": %llu,\n      \"name\": ", (unsigned long long)n->id);
    write_string(f, n->name ? n->name : "");
    fprintf(f, ",\n      \"kind\": \"%s\",\n      \"attrs\": {", op_name(n->kind));
    for (int i = 0; i < n->n_attrs; i++) {
        fputs(i ? ",\n" : "\n", f);
        write_attr(f, &n->attrs[i]);
    }
    fputs(n->n_attrs ? "\n      },\n" : "},\n", f);
    write_tensors(f, g, "inputs", n->in, n->n_in);
    fputs(",\n", f);
    write_tensors(f, g, "outputs", n->out, n->n_out);
    fputs("\n    }", f);
}

/* By value: ops that are left out read and make values, too. */
enum { VALUE_READ = 1, VALUE_MADE = 2 };

static void write_ports(FILE *f, const graph_t *g, const char *key, bool outputs,
                        const unsigned char *touched)
{
    const char *between = "";

    fprintf(f, "  \"%s\": [", key);
    for (int v = 0; v < g->n_values; v++) {
        const value_t *value = &g->values[v];
        bool is_output = value->is_output || (value->producer >= 0 && value->n_uses == 0);
        if (outputs ? is_output : touched[v] == VALUE_READ) {
            fprintf(f, "%s%llu", between, (unsigned long long)value->lt.id);
            between = ", ";
        }
    }
    fputs("],\n", f);
}

/* In execution order, then those that are left out. A graph still being built has no order. */
static void write_nodes(FILE *f, const graph_t *g)
{
    const bool sorted = g->n_topo > 0;
    const char *between = "\n";

    for (int t = 0; t < g->n_topo; t++) {
        fputs(between, f);
        write_node(f, g, &g->nodes[g->topo[t]]);
        between = ",\n";
    }
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].dead || !sorted) {
            fputs(between, f);
            write_node(f, g, &g->nodes[i]);
            between = ",\n";
        }
    }
}

sinter_status_t graph_write_json(const graph_t *g, sinter_fpmath_mode_t mode, bool apply_to_int,
                                 const char *path)
{
    unsigned char *touched = sg_alloc(g->engine, (size_t)g->n_values + 1, 1);

    if (touched == NULL) {
        return sinter_out_of_memory;
    }
    memset(touched, 0, (size_t)g->n_values + 1);
    for (int i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i].n_in; k++) {
            touched[g->nodes[i].in[k]] |= VALUE_READ;
        }
        for (int k = 0; k < g->nodes[i].n_out; k++) {
            touched[g->nodes[i].out[k]] |= VALUE_MADE;
        }
    }
    FILE *f = fopen(path, "w");

    if (f == NULL) {
        sg_free(g->engine, touched);
        return sg_fail(sinter_runtime_error, "%s: cannot be written", path);
    }
    fprintf(f,
            "{\n  \"version\": \"%s\",\n  \"engine_kind\": \"cpu\",\n  \"fpmath_mode\": \"%s\",\n",
            SINTER_VERSION_STRING, sinter_fpmath_mode_name(mode));
    fprintf(f, "  \"fpmath_mode_apply_to_int\": \"%s\",\n", apply_to_int ? "true" : "false");
    write_ports(f, g, "input_ports", false, touched);
    write_ports(f, g, "output_ports", true, touched);
    sg_free(g->engine, touched);
    fputs("  \"graph\": [", f);
    write_nodes(f, g);
    fputs("\n  ]\n}\n", f);
    const bool bad = ferror(f) != 0;
    if (fclose(f) != 0 || bad) {
        remove(path);
        return sg_fail(sinter_runtime_error, "%s: cannot be written", path);
    }
    return sinter_success;
}

static void print_value(const graph_t *g, int v)
{
    const lt_t *lt = &g->values[v].lt;

    fprintf(stderr, " %llu:%s[", (unsigned long long)lt->id, dtype_traits(lt->data_type)->name);
    for (int d = 0; d < lt->ndims; d++) {
        if (lt->dims[d] == SINTER_UNKNOWN_DIM) {
            fprintf(stderr, "%s?", d ? "," : "");
        } else {
            fprintf(stderr, "%s%lld", d ? "," : "", (long long)lt->dims[d]);
        }
    }
    fprintf(stderr, "%s]%s", lt->ndims < 0 ? "?" : "", g->values[v].is_output ? "!" : "");
}

void graph_print(const graph_t *g, const char *title)
{
    fprintf(stderr, "-- %s\n", title);
    for (int t = 0; t < graph_n_live(g); t++) {
        const node_t *n = &g->nodes[g->topo[t]];
        fprintf(stderr, "  %s%s%s:", node_label(n), n->role ? " " : "", n->role ? n->role : "");
        for (int i = 0; i < n->n_in; i++) {
            const node_t *dq = n->in_dequant ? n->in_dequant[i] : NULL;
            print_value(g, n->in[i]);
            for (int k = 1; dq != NULL && k < dq->n_in; k++) {
                print_value(g, dq->in[k]);
            }
            fputs(dq != NULL ? " (dequantised)" : "", stderr);
        }
        fputs(" ->", stderr);
        for (int o = 0; o < n->n_out; o++) {
            print_value(g, n->out[o]);
        }
        fputc('\n', stderr);
    }
}
