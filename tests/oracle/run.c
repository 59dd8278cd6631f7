/* Runs a graph: each op once its inputs are there, each tensor's memory until its last consumer
 * ran. */
#include <stdio.h>

#include "internal.h"

static orc_fn_t *const oracles[] = {
#define SINTER_OP(value, name, spelling, schema, shape, run) ORC_ENTRY_##run(name)
#define ORC_ENTRY_RUN(name) [sinter_op_##name] = oracle_##name,
#define ORC_ENTRY_ACCEPT(name)
#include <sinter/ops.def>
#undef SINTER_OP
#undef ORC_ENTRY_RUN
#undef ORC_ENTRY_ACCEPT
};

typedef struct run {
    const orc_graph_t *graph;
    size_t n_values;
    orc_value_t *values; /* sorted by id */
    size_t n_results;
    const uint64_t *ids;
    orc_result_t *results;
    orc_ctx_t ctx; /* messages; no op yet */
} run_t;

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const orc_value_t *)a)->lt.id, y = ((const orc_value_t *)b)->lt.id;
    return x < y ? -1 : x > y;
}

static orc_value_t *find(const run_t *r, uint64_t id)
{
    orc_value_t key = {.lt.id = id};
    return r->n_values ? bsearch(&key, r->values, r->n_values, sizeof key, by_id) : NULL;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static int collect_values(run_t *r, size_t n_inputs, const orc_tensor_t *inputs)
{
    size_t room = n_inputs, n = 0;

    for (size_t i = 0; i < r->graph->n_ops; i++) {
        room += r->graph->ops[i].n_inputs + r->graph->ops[i].n_outputs;
    }
    r->values = calloc(room + 1, sizeof *r->values);
    if (!r->values) {
        return orc_fail(&r->ctx, "out of memory");
    }
    for (size_t i = 0; i < n_inputs; i++) {
        r->values[n++].lt = inputs[i].lt;
    }
    for (size_t i = 0; i < r->graph->n_ops; i++) {
        const orc_op_t *op = &r->graph->ops[i];
        for (size_t k = 0; k < op->n_inputs; k++) {
            r->values[n++].lt = op->inputs[k];
        }
        for (size_t k = 0; k < op->n_outputs; k++) {
            r->values[n++].lt = op->outputs[k];
        }
    }
    qsort(r->values, n, sizeof *r->values, by_id);
    for (size_t i = 0; i < n; i++) {
        if (!r->n_values || r->values[r->n_values - 1].lt.id != r->values[i].lt.id) {
            r->values[r->n_values++] = r->values[i];
        }
    }
    return 0;
}

/* What the graph declares for an output: the producer's word counts, consumers may know less. */
static int link_values(run_t *r, size_t n_inputs, const orc_tensor_t *inputs)
{
    for (size_t i = 0; i < r->graph->n_ops; i++) {
        const orc_op_t *op = &r->graph->ops[i];
        for (size_t k = 0; k < op->n_inputs; k++) {
            find(r, op->inputs[k].id)->uses++;
        }
        for (size_t k = 0; k < op->n_outputs; k++) {
            orc_value_t *t = find(r, op->outputs[k].id);
            if (t->produced) {
                return orc_fail(&r->ctx, "tensor %llu is produced twice",
                                (unsigned long long)t->lt.id);
            }
            t->produced = true;
            t->lt = op->outputs[k];
        }
    }
    for (size_t i = 0; i < n_inputs; i++) {
        orc_value_t *t = find(r, inputs[i].lt.id);
        if (t->produced) {
            return orc_fail(&r->ctx, "tensor %llu is both given and produced",
                            (unsigned long long)t->lt.id);
        }
        t->source = &inputs[i];
        t->lt = inputs[i].lt;
    }
    for (size_t i = 0; i < r->n_results; i++) {
        orc_value_t *t = find(r, r->ids[i]);
        if (!t) {
            return orc_fail(&r->ctx, "no tensor %llu", (unsigned long long)r->ids[i]);
        }
        t->wanted = true;
    }
    return 0;
}

static int decode(orc_ctx_t *c, orc_value_t *t)
{
    const sinter_logical_tensor_t lt = t->lt;
    double table[256];
    size_t chunks;

    if (lt.ndims < 0 || lt.ndims > SINTER_MAX_NDIMS || !orc_type_name(lt.data_type)) {
        return orc_fail(c, "input %llu has no rank or no data type", (unsigned long long)lt.id);
    }
    for (int d = 0; d < lt.ndims; d++) {
        if (lt.dims[d] < 0) {
            return orc_fail(c, "input %llu has an unknown dim", (unsigned long long)lt.id);
        }
    }
    t->n = orc_count(lt.dims, lt.ndims);
    if (t->n && !t->source->data) {
        return orc_fail(c, "input %llu has no data", (unsigned long long)lt.id);
    }
    if (orc_alloc(c, t, false)) {
        return -1;
    }
    orc_decode_table(lt.data_type, table);
    chunks = (t->n + ORC_CHUNK - 1) / ORC_CHUNK;
#pragma omp parallel for
    for (size_t i = 0; i < chunks; i++) {
        size_t start = i * ORC_CHUNK, n = t->n - start < ORC_CHUNK ? t->n - start : ORC_CHUNK;
        orc_decode_span(&lt, t->source->data, table, start, n, t->v + start);
    }
    t->ready = true;
    return 0;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Before the rounding to the declared type, which orc_compare makes. Moves the memory to the
 * last taker if no op needs it. */
static int deliver(run_t *r, orc_value_t *t)
{
    for (size_t i = 0; i < r->n_results; i++) {
        orc_result_t *to = &r->results[i];
        if (r->ids[i] != t->lt.id) {
            continue;
        }
        to->lt = t->lt;
        to->n = t->n;
        to->saturates = t->saturates;
        to->value = orc_doubles(t->n);
        to->bound = orc_doubles(t->n);
        if (!to->value || !to->bound) {
            return orc_fail(&r->ctx, "out of memory for a result");
        }
        memcpy(to->value, t->v, t->n * sizeof(double));
        if (t->b) {
            memcpy(to->bound, t->b, t->n * sizeof(double));
        } else {
            memset(to->bound, 0, t->n * sizeof(double));
        }
        for (size_t k = 0; k < t->n; k++) { /* a bound that cannot be told */
            if (isnan(to->bound[k])) {
                to->bound[k] = isfinite(to->value[k]) ? INFINITY : 0;
            }
        }
    }
    t->wanted = false;
    return 0;
}

static int finish_output(run_t *r, orc_ctx_t *c, orc_value_t *t)
{
    t->ready = true;
    if ((!t->kept && orc_finish(c, t)) || (t->wanted && deliver(r, t))) {
        return -1;
    }
    if (t->uses) {
        return t->kept ? 0 : orc_finish_stored(c, t);
    }
    orc_value_clear(t);
    return 0;
}

/* ---- ops ------------------------------------------------------------------------------------- */

static bool is_ready(const run_t *r, const orc_op_t *op)
{
    for (size_t k = 0; k < op->n_inputs; k++) {
        const orc_value_t *t = find(r, op->inputs[k].id);
        if (!t->ready && !t->source) {
            return false;
        }
    }
    return true;
}

static int gather_ports(run_t *r, const orc_op_t *op, orc_ctx_t *c)
{
    if (op->n_inputs > ORC_MAX_PORTS || op->n_outputs > ORC_MAX_PORTS ||
        (op->n_outputs < 1 && op->kind != sinter_op_end)) {
        return orc_fail(c, "%zu inputs and %zu outputs", op->n_inputs, op->n_outputs);
    }
    c->n_in = op->n_inputs;
    c->n_out = op->n_outputs;
    for (size_t k = 0; k < op->n_inputs; k++) {
        c->in[k] = find(r, op->inputs[k].id);
        if (!c->in[k]->ready && decode(c, c->in[k])) {
            return -1;
        }
        if (c->in[k]->wanted && deliver(r, c->in[k])) { /* an input asked back */
            return -1;
        }
        c->in[k]->uses--;
    }
    for (size_t k = 0; k < op->n_inputs; k++) {
        c->dying[k] = c->in[k]->uses == 0;
    }
    for (size_t k = 0; k < op->n_outputs; k++) {
        c->out[k] = find(r, op->outputs[k].id);
    }
    return 0;
}

static bool has_bounds(const orc_value_t *t)
{
    for (size_t i = 0; t->b && i < t->n; i++) {
        if (t->b[i] > 0) {
            return true;
        }
    }
    return false;
}

static bool is_product(sinter_op_kind_t kind)
{
    return kind == sinter_op_matmul || kind == sinter_op_convolution ||
           kind == sinter_op_conv_transpose;
}

/* Likely errors that meet certain ones of another input are no longer all likely. A product looks
 * at its operands one by one. */
static bool hands_on_walked(const orc_ctx_t *c)
{
    bool walked = false, certain = false;

    for (size_t k = 0; k < c->n_in; k++) {
        walked = walked || c->in[k]->walked;
    }
    for (size_t k = 0; walked && k < c->n_in; k++) {
        certain = certain || (!c->in[k]->walked && has_bounds(c->in[k]));
    }
    return walked && (!certain || is_product(c->op->kind));
}

static int run_op(run_t *r, const orc_op_t *op)
{
    orc_ctx_t c = r->ctx;
    bool walked;

    c.op = op;
    c.mode = r->graph->mode;
    c.apply_to_int = r->graph->apply_to_int;
    if ((size_t)op->kind >= sizeof oracles / sizeof *oracles || !oracles[op->kind]) {
        return orc_fail(&c, "the oracle has no such op");
    }
    if (gather_ports(r, op, &c)) {
        return -1;
    }
    walked = hands_on_walked(&c);
    if (oracles[op->kind](&c)) {
        return -1;
    }
    for (size_t i = 0; i < c.n_out; i++) {
        c.out[i]->walked = c.out[i]->walked || walked;
        for (size_t k = 0; k < c.n_in && !is_product(op->kind); k++) {
            c.out[i]->probabilities = c.out[i]->probabilities || c.in[k]->probabilities;
        }
    }
    for (size_t k = 0; k < c.n_in; k++) {
        if (c.dying[k]) {
            orc_value_clear(c.in[k]);
        }
    }
    for (size_t k = 0; k < c.n_out; k++) {
        if (finish_output(r, &c, c.out[k])) {
            return -1;
        }
    }
    return 0;
}

static int run_ops(run_t *r)
{
    size_t left = r->graph->n_ops;
    unsigned char *done = calloc(left + 1, 1);
    int failed = done ? 0 : orc_fail(&r->ctx, "out of memory");

    while (!failed && left) {
        size_t before = left;
        for (size_t i = 0; i < r->graph->n_ops && !failed; i++) {
            if (!done[i] && is_ready(r, &r->graph->ops[i])) {
                failed = run_op(r, &r->graph->ops[i]);
                done[i] = 1;
                left--;
            }
        }
        if (!failed && left == before) {
            failed = orc_fail(&r->ctx, "%zu ops never get all their inputs", left);
        }
    }
    free(done);
    return failed;
}

int orc_run(const orc_graph_t *graph, size_t n_inputs, const orc_tensor_t *inputs, size_t n_outputs,
            const uint64_t *ids, orc_result_t *results, char *err, size_t err_size)
{
    run_t r = {.graph = graph,
               .n_results = n_outputs,
               .ids = ids,
               .results = results,
               .ctx = {.graph = graph, .err = err, .err_size = err_size}};
    int failed;

    memset(results, 0, n_outputs * sizeof *results);
    for (size_t i = 0; i < graph->n_ops; i++) {
        for (size_t k = 0; k < graph->ops[i].n_inputs; k++) {
            r.ctx.doubles =
                r.ctx.doubles || orc_type_digits(graph->ops[i].inputs[k].data_type) > 24;
        }
        for (size_t k = 0; k < graph->ops[i].n_outputs; k++) {
            r.ctx.doubles =
                r.ctx.doubles || orc_type_digits(graph->ops[i].outputs[k].data_type) > 24;
        }
    }
    failed =
        collect_values(&r, n_inputs, inputs) || link_values(&r, n_inputs, inputs) || run_ops(&r);
    for (size_t i = 0; i < r.n_values; i++) {
        orc_value_t *t = &r.values[i];
        if (!failed && t->wanted) {
            failed = !t->source ? orc_fail(&r.ctx, "tensor %llu has no producer",
                                           (unsigned long long)t->lt.id)
                                : decode(&r.ctx, t) || deliver(&r, t);
        }
        orc_value_clear(t);
    }
    free(r.values);
    for (size_t i = 0; failed && i < n_outputs; i++) {
        orc_result_free(&results[i]);
    }
    return failed ? -1 : 0;
}

void orc_result_free(orc_result_t *result)
{
    free(result->value);
    free(result->bound);
    memset(result, 0, sizeof *result);
}
