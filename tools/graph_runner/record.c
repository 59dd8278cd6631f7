#include "record.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMA = 2 };

/* ---- members --------------------------------------------------------------------------------- */

/* Puts item into parent, an object if there is a name, else an array. Returns item. */
static cJSON *put(gr_record_t *r, cJSON *parent, const char *name, cJSON *item)
{
    const bool done =
        item && parent &&
        (name ? cJSON_AddItemToObject(parent, name, item) : cJSON_AddItemToArray(parent, item));

    if (done) {
        return item;
    }
    r->failed = true;
    cJSON_Delete(item);
    return NULL;
}

static cJSON *put_object(gr_record_t *r, cJSON *parent, const char *name)
{
    return put(r, parent, name, cJSON_CreateObject());
}

static cJSON *put_array(gr_record_t *r, cJSON *parent, const char *name)
{
    return put(r, parent, name, cJSON_CreateArray());
}

/* Bytes of the UTF-8 character that begins here; 0 if none does. */
static size_t utf8_bytes(const char *text)
{
    const unsigned char c = (unsigned char)*text;
    const size_t n = c < 0x80                ? 1
                     : c >= 0xC2 && c < 0xE0 ? 2
                     : c >= 0xE0 && c < 0xF0 ? 3
                     : c >= 0xF0 && c < 0xF5 ? 4
                                             : 0;

    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)text[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    return n;
}

/* NULL becomes null. Messages may quote any bytes of a file; those that are not UTF-8 become '?'.
 */
static void put_text(gr_record_t *r, cJSON *parent, const char *name, const char *text)
{
    cJSON *item = put(r, parent, name, text ? cJSON_CreateString(text) : cJSON_CreateNull());
    size_t n;

    for (char *c = item && text ? item->valuestring : NULL; c && *c; c += n) {
        n = utf8_bytes(c);
        if (n == 0) {
            *c = '?';
            n = 1;
        }
    }
}

static void put_bool(gr_record_t *r, cJSON *parent, const char *name, bool value)
{
    put(r, parent, name, cJSON_CreateBool(value));
}

static void put_number(gr_record_t *r, cJSON *parent, const char *name, double value)
{
    put(r, parent, name, cJSON_CreateNumber(value));
}

/* A figure that is 0 where nothing was measured. */
static void put_measured(gr_record_t *r, cJSON *parent, const char *name, double value)
{
    if (value > 0) {
        put_number(r, parent, name, value);
    }
}

/* An integer with all of its digits, which a double may not have room for. */
static void put_u64(gr_record_t *r, cJSON *parent, const char *name, uint64_t value)
{
    char digits[32];

    snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    put(r, parent, name, cJSON_CreateRaw(digits));
}

/* Unknown dims become null. */
static void put_dims(gr_record_t *r, cJSON *parent, const char *name, int n, const int64_t *dims)
{
    cJSON *list = put_array(r, parent, name);
    char digits[32];

    for (int i = 0; i < n; i++) {
        snprintf(digits, sizeof digits, "%lld", (long long)dims[i]);
        put(r, list, NULL,
            dims[i] == SINTER_UNKNOWN_DIM ? cJSON_CreateNull() : cJSON_CreateRaw(digits));
    }
}

static cJSON *put_tensor(gr_record_t *r, cJSON *parent, const sinter_logical_tensor_t *lt)
{
    cJSON *port = put_object(r, parent, NULL);

    put_u64(r, port, "id", lt->id);
    put_text(r, port, "data_type", gr_dtype(lt->data_type)->name);
    if (lt->ndims >= 0) {
        put_dims(r, port, "dims", lt->ndims, lt->dims);
    } else {
        put_text(r, port, "dims", NULL);
    }
    if (gr_is_known(lt)) {
        put_dims(r, port, "strides", lt->ndims, lt->strides);
    }
    put_bool(r, port, "constant", lt->property == sinter_tensor_property_constant);
    put_bool(r, port, "host_scalar", lt->property == sinter_tensor_property_host_scalar);
    return port;
}

static void put_tensors(gr_record_t *r, cJSON *parent, const char *name, size_t n,
                        const sinter_logical_tensor_t *lts)
{
    cJSON *list = put_array(r, parent, name);

    for (size_t i = 0; i < n; i++) {
        put_tensor(r, list, &lts[i]);
    }
}

/* ---- the library's texts --------------------------------------------------------------------- */

/* The next line of text without its end, cut to the buffer; false behind the last one. */
static bool next_line(const char **text, char *line, size_t size)
{
    const size_t n = strcspn(*text, "\n");

    if (**text == 0) {
        return false;
    }
    snprintf(line, size, "%.*s", (int)n, *text);
    *text += n + ((*text)[n] == '\n');
    return true;
}

static void put_lines(gr_record_t *r, cJSON *parent, const char *name, const char *text)
{
    cJSON *list = put_array(r, parent, name);
    char line[1024];

    while (next_line(&text, line, sizeof line)) {
        put_text(r, list, NULL, line);
    }
}

/* Cuts line at the first `separator` and returns what stands behind it, or NULL. */
static char *cut(char *line, const char *separator)
{
    char *at = strstr(line, separator);

    if (at) {
        *at = 0;
    }
    return at ? at + strlen(separator) : NULL;
}

static void put_refused(gr_record_t *r, cJSON *refused, const char *kernel, const char *reason)
{
    cJSON *item = put_object(r, refused, NULL);

    put_text(r, item, "kernel", kernel);
    put_text(r, item, "reason", reason);
}

/* "KERNEL (REASON), KERNEL (REASON)". */
static void put_preferred(gr_record_t *r, cJSON *refused, char *kernel)
{
    for (char *next; kernel != NULL; kernel = next) {
        char *reason = cut(kernel, " (");

        next = reason ? cut(reason, "), ") : NULL;
        if (reason) {
            reason[strcspn(reason, ")")] = 0;
            put_refused(r, refused, kernel, reason);
        }
    }
}

/* "step N: KERNEL, DETAIL" lines; and "  KERNEL refused: REASON" and "  preferred, but this engine
 * has only LEVEL: KERNEL (REASON), KERNEL (REASON)" lines, which belong to all steps together. */
static void put_steps(gr_record_t *r, cJSON *parent, const char *report)
{
    cJSON *steps = put_array(r, parent, "steps"),
          *refused = put_array(r, parent, "refused_kernels");
    char line[1024];

    while (next_line(&report, line, sizeof line)) {
        char *kernel = !strncmp(line, "step ", 5) ? cut(line, ": ") : NULL, *detail;

        if (kernel) {
            cJSON *step = put_object(r, steps, NULL);

            detail = cut(kernel, ", ");
            put_text(r, step, "kernel", kernel);
            put_text(r, step, "detail", detail ? detail : "");
        } else if ((detail = cut(line, " refused: "))) {
            put_refused(r, refused, line + strspn(line, " "), detail);
        } else if (!strncmp(line, "  preferred, ", 13)) {
            put_preferred(r, refused, cut(line, ": "));
        }
    }
}

/* A line that names something, a place and a reason. */
static void put_reason(gr_record_t *r, cJSON *list, const char *const names[3],
                       const char *const texts[3])
{
    cJSON *item = put_object(r, list, NULL);

    for (int i = 0; i < 3; i++) {
        put_text(r, item, names[i], texts[i]);
    }
}

/* Why larger patterns did not match: "  refused PATTERN at OP: REASON" and "  stopped WHERE AND
 * WHY" lines; and why partitions were not joined: "  not joined (JOIN) with OP: REASON" lines. */
static void put_refusals(gr_record_t *r, cJSON *parent, const char *explain)
{
    static const char *const of_pattern[] = {"pattern", "at", "reason"}, *const of_join[] = {
                                                                             "join", "with",
                                                                             "reason"};
    cJSON *refused = put_array(r, parent, "refused_patterns"),
          *apart = put_array(r, parent, "not_joined"), *stopped = put_array(r, parent, "stopped");
    const char *reason = NULL;
    char line[1024], why[1024];

    while (next_line(&explain, line, sizeof line)) {
        char *text = line + strspn(line, " "), *at, *because;

        if (!strncmp(text, "stopped ", 8)) {
            put_text(r, stopped, NULL, text + 8);
        } else if (!strncmp(text, "not supported: ", 15)) {
            snprintf(why, sizeof why, "%s", text + 15);
            reason = why;
        } else if (!strncmp(text, "refused ", 8) && (at = cut(text, " at ")) &&
                   (because = cut(at, ": "))) {
            put_reason(r, refused, of_pattern, (const char *const[]){text + 8, at, because});
        } else if (!strncmp(text, "not joined (", 12) && (at = cut(text, ") with ")) &&
                   (because = cut(at, ": "))) {
            put_reason(r, apart, of_join, (const char *const[]){text + 12, at, because});
        }
    }
    put_text(r, parent, "reason", reason);
}

/* The role of an op in its pattern, from the line "  ROLE op ID (KIND)"; NULL if there is none. */
static const char *role_of(const char *explain, uint64_t id, char *line, size_t size)
{
    char key[32];

    snprintf(key, sizeof key, " op %llu (", (unsigned long long)id);
    while (next_line(&explain, line, size)) {
        char *role = line + strspn(line, " ");

        if (role > line && role[strcspn(role, " ")]) {
            char *rest = role + strcspn(role, " ");

            if (!strncmp(rest + strspn(rest, " ") - 1, key, strlen(key))) {
                *rest = 0;
                return role;
            }
        }
    }
    return NULL;
}

/* ---- graph and partitions -------------------------------------------------------------------- */

static void put_ids(gr_record_t *r, cJSON *parent, const char *name, size_t n,
                    const sinter_logical_tensor_t *lts)
{
    cJSON *list = put_array(r, parent, name);

    for (size_t i = 0; i < n; i++) {
        put_u64(r, list, NULL, lts[i].id);
    }
}

static void put_op(gr_record_t *r, cJSON *list, const gr_exec_t *x, uint64_t id,
                   const char *explain)
{
    const model_op_t *op = model_find_op(x->model, id);
    cJSON *item = put_object(r, list, NULL);
    char line[1024];

    put_u64(r, item, "id", id);
    put_text(r, item, "kind", op ? sinter_op_kind_name(op->kind) : NULL);
    if (op && op->name) {
        put_text(r, item, "name", op->name);
    }
    put_text(r, item, "role", role_of(explain, id, line, sizeof line));
    if (op) {
        put_ids(r, item, "inputs", op->n_inputs, op->inputs);
        put_ids(r, item, "outputs", op->n_outputs, op->outputs);
    }
}

/* Every tensor of the graph. */
static void put_all_tensors(gr_record_t *r, const gr_exec_t *x)
{
    cJSON *list = put_array(r, r->root, "tensors"), *item;

    for (size_t i = 0; i < x->model->n_tensors; i++) {
        sinter_logical_tensor_t lt;
        size_t bytes;

        gr_exec_lt(x, x->model->tensors[i].id, &lt);
        item = put_tensor(r, list, &lt);
        if (!sinter_logical_tensor_get_bytes(&lt, &bytes)) {
            put_number(r, item, "bytes", (double)bytes);
        }
    }
}

static void put_partition(gr_record_t *r, const gr_exec_t *x, const gr_part_t *p)
{
    cJSON *item = put_object(r, r->partitions, NULL), *ops;
    const char *explain = "", *report = "";

    sinter_partition_explain(p->partition, &explain);
    if (p->compiled) {
        sinter_compiled_partition_report(p->compiled, &report);
    }
    put_number(r, item, "id", (double)p->id);
    put_text(r, item, "pattern", p->pattern);
    put_text(r, item, "fpmath_mode", sinter_fpmath_mode_name(p->mode));
    put_bool(r, item, "apply_to_int", p->apply_to_int);
    put_bool(r, item, "supported", p->supported);
    put_bool(r, item, "compiled", p->compiled != NULL);
    put_refusals(r, item, explain);
    ops = put_array(r, item, "ops");
    for (size_t i = 0; i < p->n_ops; i++) {
        put_op(r, ops, x, p->ops[i], explain);
    }
    put_tensors(r, item, "inputs", p->n_in, p->in);
    put_tensors(r, item, "outputs", p->n_out, p->out);
    put_steps(r, item, report);
    put_lines(r, item, "explain", explain);
    put_lines(r, item, "report", report);
}

void gr_record_graph(gr_record_t *r, const gr_exec_t *x)
{
    cJSON *graph, *in, *out;

    if (!r) {
        return;
    }
    graph = put_object(r, r->root, "graph");
    put_number(r, graph, "ops", (double)x->model->n_ops);
    put_number(r, graph, "tensors", (double)x->model->n_tensors);
    put_text(r, graph, "fpmath_mode", sinter_fpmath_mode_name(x->model->mode));
    put_bool(r, graph, "apply_to_int", x->model->apply_to_int);
    in = put_array(r, graph, "inputs");
    out = put_array(r, graph, "outputs");
    for (size_t i = 0; i < x->model->n_tensors; i++) {
        const model_tensor_t *t = &x->model->tensors[i];
        sinter_logical_tensor_t lt;

        gr_exec_lt(x, t->id, &lt);
        if (t->is_input || t->is_output) {
            put_tensor(r, t->is_input ? in : out, &lt);
        }
    }
    put_all_tensors(r, x);
    put_number(r, r->root, "threads", x->threads);
    r->partitions = put_array(r, r->root, "partitions");
    for (size_t i = 0; i < x->n_parts; i++) {
        put_partition(r, x, &x->parts[i]);
    }
}

/* The partitions as they run as one, with the memory of the tensors between them. */
static void put_sequence(gr_record_t *r, const gr_exec_t *x)
{
    const gr_sequence_t *s = &x->sequence;
    cJSON *item, *list;

    if (!x->whole) {
        return;
    }
    item = put_object(r, r->root, "sequence");
    list = put_array(r, item, "partitions");
    for (size_t i = 0; i < x->n_parts; i++) {
        put(r, list, NULL, cJSON_CreateNumber((double)x->parts[i].id));
    }
    put_measured(r, item, "min_us", 1e6 * s->min);
    put_measured(r, item, "median_us", 1e6 * s->median);
    put_measured(r, item, "min_of_roofline", s->min_of_roofline);
    put_measured(r, item, "median_of_roofline", s->median_of_roofline);
    if (!s->known) {
        return;
    }
    put_number(r, item, "scratch_bytes", (double)s->bytes);
    list = put_array(r, item, "tensors");
    for (size_t i = 0; i < s->n; i++) {
        cJSON *tensor = put_object(r, list, NULL);

        put_u64(r, tensor, "id", s->tensors[i].id);
        put_number(r, tensor, "bytes", (double)s->tensors[i].bytes);
        put_number(r, tensor, "offset", (double)s->tensors[i].offset);
        put_number(r, tensor, "first", (double)s->tensors[i].first);
        put_number(r, tensor, "last", (double)s->tensors[i].last);
    }
}

void gr_record_memory(gr_record_t *r, const gr_exec_t *x)
{
    sinter_constant_cache_stats_t s = {.size = sizeof s};
    const gr_part_t *p = x->parts;
    cJSON *cache, *item;

    if (!r) {
        return;
    }
    put_sequence(r, x);
    cJSON_ArrayForEach(item, r->partitions)
    {
        put_number(r, item, "scratch_bytes", (double)p->scratch);
        put_number(r, item, "scratch_bytes_per_thread", (double)p->scratch_per_thread);
        p++;
    }
    if (sinter_engine_get_constant_cache_stats(x->engine, &s)) {
        return;
    }
    cache = put_object(r, r->root, "constant_cache");
    put_number(r, cache, "tensors", (double)s.entries);
    put_number(r, cache, "bytes", (double)s.bytes);
    put_u64(r, cache, "packed", s.packed);
    put_u64(r, cache, "found_again", s.hits);
    put_u64(r, cache, "without_room", s.refused);
    put_u64(r, cache, "evicted", s.evicted);
}

void gr_record_warnings(gr_record_t *r, const model_t *model)
{
    cJSON *list;

    if (!r) {
        return;
    }
    list = put_array(r, r->root, "warnings");
    for (size_t i = 0; i < model->n_warnings; i++) {
        put_text(r, list, NULL, model->warnings[i]);
    }
}

/* ---- what was run ---------------------------------------------------------------------------- */

void gr_record_runs(gr_record_t *r, const gr_exec_t *x, size_t tensors, size_t bytes)
{
    cJSON *runs;

    if (!r) {
        return;
    }
    runs = put_object(r, r->root, "runs");
    put_number(r, runs, "count", (double)x->opt->runs);
    if (x->opt->same_bits) {
        put_bool(r, runs, "same_bits", true);
        put_number(r, runs, "tensors", (double)tensors);
        put_number(r, runs, "bytes", (double)bytes);
    }
}

void gr_record_output(gr_record_t *r, const sinter_logical_tensor_t *lt, const orc_diff_t *d,
                      bool passed)
{
    cJSON *list, *item;

    if (!r) {
        return;
    }
    list = cJSON_GetObjectItemCaseSensitive(r->root, "outputs");
    list = list ? list : put_array(r, r->root, "outputs");
    item = put_object(r, list, NULL);
    put_u64(r, item, "id", lt->id);
    put_text(r, item, "data_type", gr_dtype(lt->data_type)->name);
    put_dims(r, item, "dims", lt->ndims, lt->dims);
    put_bool(r, item, "passed", passed);
    put_number(r, item, "elements", (double)d->n);
    put_number(r, item, "out_of_tolerance", (double)d->bad);
    put_number(r, item, "not_the_rounded_value", (double)d->differ);
    put_number(r, item, "several_allowed", (double)d->open);
    put_number(r, item, "unbounded", (double)d->loose);
    put_number(r, item, "worst_error_over_tolerance", d->worst_ratio);
    put_number(r, item, "rel_l2", d->rel_l2);
}

void gr_record_limits(gr_record_t *r, const gr_limits_t *limits)
{
    cJSON *item;

    if (!r) {
        return;
    }
    item = put_object(r, r->root, "limits");
    put_text(r, item, "isa", limits->isa);
    put_measured(r, item, "read_bytes_per_second", limits->read_bytes);
    put_measured(r, item, "copy_bytes_per_second", limits->copy_bytes);
    put_measured(r, item, "fma_flops_per_second", limits->fma_flops);
    put_measured(r, item, "int8_ops_per_second", limits->int8_ops);
    put_measured(r, item, "bf16_flops_per_second", limits->bf16_flops);
}

void gr_record_work(gr_record_t *r, int part, const gr_work_t *work, const gr_roofline_t *bound)
{
    cJSON *item;

    if (!r) {
        return;
    }
    item = put_object(r, cJSON_GetArrayItem(r->partitions, part), "work");
    put_number(r, item, "flops", work->flops);
    put_number(r, item, "flops_one_limb", work->by_limbs[GR_ONE_LIMB]);
    put_number(r, item, "flops_two_limbs", work->by_limbs[GR_TWO_LIMBS]);
    put_number(r, item, "read_bytes", work->read);
    put_number(r, item, "written_bytes", work->written);
    put_number(r, item, "roofline_memory_us", 1e6 * bound->memory);
    put_number(r, item, "roofline_products_us", 1e6 * bound->products);
}

static void put_rate(gr_record_t *r, cJSON *parent, const char *name, const gr_rate_t *rate)
{
    cJSON *item = put_object(r, parent, name);

    put_number(r, item, "us", 1e6 * rate->seconds);
    put_number(r, item, "flops_per_second", rate->flops);
    put_number(r, item, "bytes_per_second", rate->bytes);
    put_measured(r, item, "of_fma_peak", rate->of_fma);
    put_measured(r, item, "of_int8_peak", rate->of_int8);
    put_measured(r, item, "of_read_bandwidth", rate->of_read);
    put_measured(r, item, "of_copy_bandwidth", rate->of_copy);
    put_measured(r, item, "of_read_and_write_limit", rate->of_mixed);
    put_measured(r, item, "of_roofline", rate->of_roofline);
}

void gr_record_figures(gr_record_t *r, int part, const gr_figures_t *f)
{
    cJSON *item;

    if (!r) {
        return;
    }
    item =
        put_object(r, part < 0 ? r->root : cJSON_GetArrayItem(r->partitions, part), "performance");
    put_measured(r, item, "runs", (double)f->runs);
    put_number(r, item, "flops", f->flops);
    put_number(r, item, "bytes", f->bytes);
    put_text(r, item, "bytes_of", f->attention ? "k_and_v" : "ports");
    put_number(r, item, "compile_us", 1e6 * f->compile_seconds);
    put_measured(r, item, "roofline_memory_us", 1e6 * f->roofline.memory);
    put_measured(r, item, "roofline_products_us", 1e6 * f->roofline.products);
    put_rate(r, item, "min", &f->min);
    put_rate(r, item, "median", &f->median);
}

/* ---- document -------------------------------------------------------------------------------- */

void gr_record_open(gr_record_t *r)
{
    *r = (gr_record_t){.root = cJSON_CreateObject()};
    put_number(r, r->root, "schema", SCHEMA);
}

void gr_record_close(gr_record_t *r)
{
    cJSON_Delete(r->root);
    *r = (gr_record_t){0};
}

/* The command line of opt; NULL without memory. Ends in free(). */
static char *command_of(const gr_options_t *opt)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    if (!f) {
        return NULL;
    }
    gr_options_print(f, opt);
    return fclose(f) ? NULL : text;
}

char *gr_record_text(gr_record_t *r, const gr_options_t *opt, const char *verdict, double seconds,
                     const char *message)
{
    char *command = command_of(opt), *text;

    put_text(r, r->root, "command", command);
    put_text(r, r->root, "case", opt->case_file);
    put_text(r, r->root, "mode", opt->mode);
    put_text(r, r->root, "verdict", verdict);
    put_text(r, r->root, "message", message);
    put_number(r, r->root, "seconds", seconds);
    text = r->failed || !command ? NULL : cJSON_PrintUnformatted(r->root);
    free(command);
    return text;
}
