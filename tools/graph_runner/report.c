#include "report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void print_indented(const char *text, int indent)
{
    while (*text) {
        size_t n = strcspn(text, "\n");

        gr_print("%*s%.*s\n", indent, "", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

static void print_port(const char *what, const sinter_logical_tensor_t *lt)
{
    char text[256];

    gr_print("        %-6s %llu %s\n", what, (unsigned long long)lt->id,
             gr_lt_text(lt, text, sizeof text));
}

static void print_partition(const gr_exec_t *x, const gr_part_t *p, int explain)
{
    const char *text;

    gr_print("    partition %zu %s: %zu ops, fpmath %s%s%s\n", p->id, p->pattern, p->n_ops,
             sinter_fpmath_mode_name(p->mode), p->apply_to_int ? " on integers too" : "",
             p->supported ? "" : ", not supported");
    for (size_t i = 0; i < p->n_ops; i++) {
        const model_op_t *op = model_find_op(x->model, p->ops[i]);

        gr_print("        op     %llu %s\n", (unsigned long long)p->ops[i],
                 op ? sinter_op_kind_name(op->kind) : "?");
    }
    for (size_t i = 0; i < p->n_in; i++) {
        print_port("input", &p->in[i]);
    }
    for (size_t i = 0; i < p->n_out; i++) {
        print_port("output", &p->out[i]);
    }
    if (p->compiled && !sinter_compiled_partition_report(p->compiled, &text)) {
        print_indented(text, 8);
    }
    if (explain && !sinter_partition_explain(p->partition, &text)) {
        print_indented(text, 8);
    }
}

void gr_report_partitions(const gr_exec_t *x, int explain)
{
    gr_print("    %zu ops in %zu partitions\n", x->model->n_ops, x->n_parts);
    for (size_t i = 0; i < x->n_parts; i++) {
        print_partition(x, &x->parts[i], explain);
    }
}

void gr_report_memory(const gr_exec_t *x)
{
    for (size_t i = 0; i < x->n_parts; i++) {
        const gr_part_t *p = &x->parts[i];

        if (p->dynamic && p->scratch == 0) {
            gr_print(
                "    partition %zu %s: scratch depends on dims that are unknown until execute\n",
                p->id, p->pattern);
            continue;
        }
        gr_print("    partition %zu %s: scratch %zu bytes, of which %zu for each of %d threads\n",
                 p->id, p->pattern, p->scratch, p->scratch_per_thread, x->threads);
    }
}

void gr_report_constants(const gr_exec_t *x)
{
    sinter_constant_cache_stats_t s = {.size = sizeof s};

    if (!sinter_engine_get_constant_cache_stats(x->engine, &s)) {
        gr_print("    constant cache: %zu tensors in %zu bytes, %llu packed, %llu found again, "
                 "%llu without room, %llu evicted\n",
                 s.entries, s.bytes, (unsigned long long)s.packed, (unsigned long long)s.hits,
                 (unsigned long long)s.refused, (unsigned long long)s.evicted);
    }
}

/* ---- Graphviz -------------------------------------------------------------------------------- */

static void dot_partition(FILE *f, const gr_exec_t *x, const gr_part_t *p)
{
    fprintf(f, "  subgraph cluster_%zu {\n    label=\"partition %zu: %s\";\n", p->id, p->id,
            p->pattern);
    for (size_t i = 0; i < p->n_ops; i++) {
        const model_op_t *op = model_find_op(x->model, p->ops[i]);

        fprintf(f, "    op%llu [label=\"%llu %s\"];\n", (unsigned long long)p->ops[i],
                (unsigned long long)p->ops[i], op ? sinter_op_kind_name(op->kind) : "?");
    }
    fprintf(f, "  }\n");
}

static void dot_tensor(FILE *f, const gr_exec_t *x, const model_tensor_t *t)
{
    const model_t *m = x->model;
    unsigned long long id = t->id;
    sinter_logical_tensor_t lt;
    char text[256], from[32];

    gr_exec_lt(x, t->id, &lt);
    gr_lt_text(&lt, text, sizeof text);
    snprintf(from, sizeof from, "t%llu", id);
    if (t->is_input || t->is_output) {
        fprintf(f, "  t%llu [shape=plaintext, label=\"%llu\"];\n", id, id);
    }
    if (t->producer != MODEL_NONE) {
        snprintf(from, sizeof from, "op%llu", (unsigned long long)m->ops[t->producer].id);
    }
    if (t->is_output) {
        fprintf(f, "  %s -> t%llu [label=\"%s\"];\n", from, id, text);
    }
    for (size_t i = 0; i < t->n; i++) {
        const model_use_t *use = &m->uses[t->first + i];

        if (!use->output) {
            fprintf(f, "  %s -> op%llu [label=\"%llu %s\"];\n", from,
                    (unsigned long long)m->ops[use->op].id, id, text);
        }
    }
}

int gr_write_dot(const gr_exec_t *x, const char *path, gr_error_t *err)
{
    FILE *f = fopen(path, "w");
    int bad;

    if (!f) {
        return gr_fail(err, "%s: %s", path, strerror(errno));
    }
    fprintf(f, "digraph sinter {\n  node [shape=box];\n");
    for (size_t i = 0; i < x->n_parts; i++) {
        dot_partition(f, x, &x->parts[i]);
    }
    for (size_t i = 0; i < x->model->n_tensors; i++) {
        dot_tensor(f, x, &x->model->tensors[i]);
    }
    fprintf(f, "}\n");
    bad = ferror(f);
    return fclose(f) || bad ? gr_fail(err, "%s: writing failed", path) : 0;
}

void gr_list_ops(void)
{
    for (int kind = 0; kind < (int)sinter_op_last_symbol; kind++) {
        const char *name = sinter_op_kind_name((sinter_op_kind_t)kind);
        if (name != NULL) {
            printf("%2d %-30s %s\n", kind, name,
                   sinter_op_kind_is_executed((sinter_op_kind_t)kind)
                       ? "executed"
                       : "checked and partitioned only");
        }
    }
}
