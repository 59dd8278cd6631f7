#include "check.h"

#include "npy.h"
#include "record.h"
#include "work.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the kept oracle result ------------------------------------------------------------------ */

typedef struct kept {
    uint64_t key;
    size_t n;
    uint64_t *ids;
    orc_result_t *results;
} kept_t;

static kept_t kept;

void gr_check_forget(void)
{
    for (size_t i = 0; i < kept.n; i++) {
        orc_result_free(&kept.results[i]);
    }
    gr_free(kept.ids);
    gr_free(kept.results);
    kept = (kept_t){0};
}

/* FNV-1a over 8 bytes at a time. */
static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t word;

    for (; bytes >= 8; bytes -= 8, p += 8) {
        memcpy(&word, p, 8);
        h = (h ^ word) * 0x100000001B3u;
        h ^= h >> 29;
    }
    for (; bytes; bytes--) {
        h = (h ^ *p++) * 0x100000001B3u;
    }
    return h;
}

static uint64_t hash_tensors(uint64_t h, const sinter_logical_tensor_t *lts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        h = hash(h, &lts[i].id, sizeof lts[i].id);
        h = hash(h, &lts[i].ndims, sizeof lts[i].ndims);
        h = hash(h, &lts[i].data_type, sizeof lts[i].data_type);
        h = hash(h, lts[i].dims,
                 (size_t)(lts[i].ndims > 0 ? lts[i].ndims : 0) * sizeof *lts[i].dims);
    }
    return h;
}

static uint64_t hash_op(uint64_t h, const orc_op_t *op)
{
    h = hash(h, &op->kind, sizeof op->kind);
    for (size_t i = 0; i < op->n_attrs; i++) {
        const orc_attr_t *a = &op->attrs[i];

        h = hash(h, &a->id, sizeof a->id);
        h = hash(h, &a->b, sizeof a->b);
        if (a->s64) {
            h = hash(h, a->s64, a->n * sizeof *a->s64);
        }
        if (a->f32) {
            h = hash(h, a->f32, a->n * sizeof *a->f32);
        }
        if (a->str) {
            h = hash(h, a->str, strlen(a->str) + 1);
        }
    }
    return hash_tensors(hash_tensors(h, op->inputs, op->n_inputs), op->outputs, op->n_outputs);
}

/* Everything that the oracle's result depends on. */
static uint64_t key_of(const gr_exec_t *x, const orc_graph_t *graph)
{
    uint64_t h = hash(0xCBF29CE484222325u, &graph->mode, sizeof graph->mode);

    h = hash(h, &graph->apply_to_int, sizeof graph->apply_to_int);
    for (size_t i = 0; i < graph->n_ops; i++) {
        h = hash_op(h, &graph->ops[i]);
    }
    for (size_t i = 0; i < x->model->n_tensors; i++) {
        const gr_buffer_t *b = &x->buffers[i];

        h = hash(h, &x->model->tensors[i].is_output, sizeof x->model->tensors[i].is_output);
        if (!x->model->tensors[i].is_input) {
            continue;
        }
        h = hash_tensors(h, &b->lt, 1);
        h = hash(h, b->lt.strides, (size_t)b->lt.ndims * sizeof *b->lt.strides);
        h = hash(h, b->data, b->bytes);
    }
    return h;
}

static int run_oracle(gr_exec_t *x, orc_graph_t *graph, uint64_t key, gr_error_t *err)
{
    model_t *m = x->model;
    orc_tensor_t *inputs = gr_arena_alloc(&m->arena, m->n_tensors, sizeof *inputs);
    size_t n_in = 0;
    double flops = 0;
    char text[512] = "";

    gr_check_forget();
    kept.ids = gr_malloc((m->n_tensors + 1) * sizeof *kept.ids);
    kept.results = gr_malloc((m->n_tensors + 1) * sizeof *kept.results);
    if (!inputs || !kept.ids || !kept.results) {
        return gr_fail_memory(err);
    }
    memset(kept.results, 0, (m->n_tensors + 1) * sizeof *kept.results);
    for (size_t i = 0; i < m->n_ops; i++) {
        flops += gr_product_flops(x, &m->ops[i]);
    }
    for (size_t i = 0; i < m->n_tensors; i++) {
        if (m->tensors[i].is_input) {
            inputs[n_in++] = (orc_tensor_t){x->buffers[i].lt, x->buffers[i].data};
        }
        if (m->tensors[i].is_output) {
            kept.ids[kept.n++] = m->tensors[i].id;
        }
    }
    if (flops > 2e9) {
        gr_progress("oracle: %.1f GFLOP in double", flops * 1e-9);
    }
    if (orc_run(graph, n_in, inputs, kept.n, kept.ids, kept.results, text, sizeof text)) {
        gr_check_forget();
        return gr_fail(err, "oracle: %s", text);
    }
    kept.key = key;
    return 0;
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* Codes: how many are those of the oracle's value, how many are others that its bound allows as
 * well, and how many might have been others. */
static int compare_codes(const gr_exec_t *x, uint64_t id, const orc_diff_t *d, gr_error_t *err)
{
    double share = d->n ? (double)(d->differ - d->bad) / (double)d->n : 0;

    gr_print("    output %llu: %zu of %zu equal, %zu (%.4f %%) on the other side of a rounding "
             "boundary within the error bound, which %zu (%.4f %%) "
             "reach over\n",
             (unsigned long long)id, d->n - d->differ, d->n, d->differ - d->bad, 100 * share,
             d->open, d->n ? 100 * (double)d->open / (double)d->n : 0);
    if (share > x->opt->max_ambiguous) {
        return gr_fail(
            err, "output %llu: %.4f %% of the codes differ from the oracle's, the most is %.4f %%",
            (unsigned long long)id, 100 * share, 100 * x->opt->max_ambiguous);
    }
    return 0;
}

static int compare_output(const gr_exec_t *x, const orc_result_t *want, uint64_t id,
                          gr_error_t *err)
{
    const gr_dtype_t *type;
    const gr_buffer_t *b = gr_exec_buffer(x, id);
    orc_diff_t d = {0};
    char at[256], shape[256], expected[256];
    int bad, too_many = 0;

    if (!b) {
        return gr_fail(err, "output %llu was not computed", (unsigned long long)id);
    }
    bad = orc_compare_loosely(want, &b->lt, b->data, x->opt->max_loose, &d);
    gr_print("    output %llu %s: worst error / tolerance %.3g, rel_l2 %.3g, %zu elements\n",
             (unsigned long long)id, gr_lt_text(&b->lt, shape, sizeof shape), d.worst_ratio,
             d.rel_l2, d.n);
    if (d.loose > 0) {
        gr_print("    output %llu: %zu of %zu elements (%.4f %%) have an error bound that checks "
                 "nothing\n",
                 (unsigned long long)id, d.loose, d.n, 100 * (double)d.loose / (double)d.n);
    }
    type = gr_dtype(b->lt.data_type);
    if (type && type->bits <= 8 && type->class_ != GR_BOOL) {
        too_many = compare_codes(x, id, &d, err);
    }
    gr_record_output(x->record, &b->lt, &d, !bad && !too_many);
    if (!bad) {
        return 0;
    }
    if (d.bad == 0 && d.loose > 0) {
        gr_index_text(&b->lt, (int64_t)d.loose_at, at, sizeof at);
        return gr_fail(err,
                       "output %llu: %zu of %zu elements have an error bound that checks nothing, "
                       "the first at [%s]: expected %.9g "
                       "within %.3g (--max-loose allows a share)",
                       (unsigned long long)id, d.loose, d.n, at, d.loose_want, d.loose_bound);
    }
    if (d.bad == 0) {
        return gr_fail(err, "output %llu is %s, expected %s", (unsigned long long)id, shape,
                       gr_lt_text(&want->lt, expected, sizeof expected));
    }
    gr_index_text(&b->lt, (int64_t)d.worst, at, sizeof at);
    return gr_fail(err,
                   "output %llu: %zu of %zu elements out of tolerance, worst at [%s]: got %.9g, "
                   "expected %.9g within %.3g",
                   (unsigned long long)id, d.bad, d.n, at, d.got, d.want, d.tolerance);
}

int gr_check(gr_exec_t *x, gr_error_t *err)
{
    orc_graph_t graph;
    uint64_t key;

    if (model_to_oracle(x->model, &graph, err)) {
        return -1;
    }
    gr_exec_loosest_mode(x, &graph.mode, &graph.apply_to_int);
    key = key_of(x, &graph);
    if ((!kept.n || kept.key != key) && run_oracle(x, &graph, key, err)) {
        return -1;
    }
    if (kept.n == 0) {
        return gr_fail(err, "the graph has no output to check");
    }
    for (size_t i = 0; i < kept.n; i++) {
        compare_output(x, &kept.results[i], kept.ids[i], err);
    }
    return err->text[0] ? -1 : 0;
}

/* ---- dump ------------------------------------------------------------------------------------ */

/* --dump-tensor-ids=ID+ID or all; without it the graph's inputs and outputs. */
static bool is_chosen(const gr_exec_t *x, const model_tensor_t *t)
{
    const char *p = x->opt->dump_tensor_ids;
    uint64_t id;

    if (!p) {
        return t->is_input || t->is_output;
    }
    if (!strcmp(p, "all")) {
        return true;
    }
    for (; !gr_parse_u64(&p, &id); p += *p == '+') {
        if (id == t->id) {
            return true;
        }
    }
    return false;
}

/* Every id that was asked for must be a tensor that execution leaves in memory. */
static int check_chosen(const gr_exec_t *x, gr_error_t *err)
{
    const char *p = x->opt->dump_tensor_ids;
    uint64_t id;

    if (!p || !strcmp(p, "all")) {
        return 0;
    }
    for (;; p++) {
        if (gr_parse_u64(&p, &id) || (*p && *p != '+')) {
            return gr_fail(err, "--dump-tensor-ids=%s: expected ID+ID... or all",
                           x->opt->dump_tensor_ids);
        }
        if (!model_find(x->model, id)) {
            return gr_fail(err, "--dump-tensor-ids: the graph has no tensor %llu",
                           (unsigned long long)id);
        }
        if (!gr_exec_buffer(x, id)) {
            return gr_fail(err,
                           "--dump-tensor-ids: tensor %llu is inside a partition and in no memory; "
                           "see --no-fuse",
                           (unsigned long long)id);
        }
        if (!*p) {
            return 0;
        }
    }
}

int gr_dump_tensors(const gr_exec_t *x, gr_error_t *err)
{
    const char *dir = x->opt->dump_tensors;
    char name[64];

    if (check_chosen(x, err)) {
        return -1;
    }
    if (mkdir(dir, 0777) && errno != EEXIST) {
        return gr_fail(err, "%s: %s", dir, strerror(errno));
    }
    for (size_t i = 0; i < x->model->n_tensors; i++) {
        const gr_buffer_t *b = &x->buffers[i];

        if (!b->base || !is_chosen(x, &x->model->tensors[i])) {
            continue;
        }
        snprintf(name, sizeof name, "%llu", (unsigned long long)b->lt.id);
        if (npy_write(dir, name, &b->lt, b->data, b->bytes, err)) {
            return -1;
        }
    }
    for (size_t i = 0; *x->opt->mode == 'C' && i < kept.n; i++) {
        sinter_logical_tensor_t lt = kept.results[i].lt;

        if (!is_chosen(x, model_find(x->model, kept.ids[i]))) {
            continue;
        }
        lt.data_type = sinter_f64;
        gr_set_dense(&lt, NULL);
        snprintf(name, sizeof name, "%llu.expected", (unsigned long long)kept.ids[i]);
        if (npy_write(dir, name, &lt, kept.results[i].value, kept.results[i].n * sizeof(double),
                      err)) {
            return -1;
        }
    }
    return 0;
}
