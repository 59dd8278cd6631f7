"""Follows the checklist for an op that no kind of step runs: the largest of all elements up to each
one, along the last dim, as a kind of step, a driver and a kernel of their own."""
import json

from kernel import case_of_test_selection

NAME, MOST = "An op on a new driver", 9
COUNTED = ("include/", "src/")
TESTS = ("test_schema", "test_selection", "test_kernels")
KERNEL = "cummax_rows_f32_generic"
STEP = """/* CumMax. */
#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/emit.h"

static sinter_status_t emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    const node_t *n = emit_heavy(e, cl);
    step->p.cummax = (cummax_params_t){.x = n->in[0]};
    return emit_result(e, n->out[0], 0);
}

static void visit(const step_t *step, step_see_t see, void *to)
{
    see(to, step->p.cummax.x, STEP_READS);
}

static double work(estimate_t *e, const problem_t *p)
{
    const double n = estimate_elements(p, p->step->p.cummax.x);
    estimate_ops(e, n, 8);
    return n;
}

const step_ops_t step_cummax = {
    .classes = OP_CUMMAX, .chains_once = true, .emit = emit, .visit = visit, .work = work};
"""
DRIVER = """/* CumMax, a row at a time. */
#include <math.h>

#include "backend_xsmm/kernel.h"
#include "base/status.h"

typedef struct cummax_state {
    chain_bound_t post;
    const bound_t *x;
    int64_t rows, n;
} cummax_state_t;

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    (void)self, (void)arena;
    out->state_bytes = sizeof(cummax_state_t);
    out->share_bytes = chain_scratch_bytes(p->step->post);
    return sinter_success;
}

static sinter_status_t choose(const kernel_t *self, const problem_t *p, const void *config,
                              void *state, choice_t *choice)
{
    cummax_state_t *st = state;
    (void)config, (void)choice;
    SG_TRY(chain_bind(p->step->post, p->frame, self->needs, &st->post));
    st->x = &p->frame->v[p->step->p.cummax.x];
    st->n = st->x->ndims > 0 ? st->x->dims[st->x->ndims - 1] : 1;
    st->rows = 1;
    for (int d = 0; d < st->x->ndims - 1; d++) {
        st->rows *= st->x->dims[d];
    }
    return sinter_success;
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const cummax_state_t *st = state;
    const bound_t *x = st->x;
    const int last = x->ndims > 0 ? x->ndims - 1 : 0;
    int64_t begin, end;
    (void)self, (void)p, (void)config;
    share(st->rows, w->tid, w->nth, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        int64_t idx[SINTER_MAX_NDIMS] = {0}, at = 0;
        double most = -INFINITY;
        for (int64_t d = last - 1, left = r; d >= 0; d--) {
            idx[d] = left % x->dims[d];
            left /= x->dims[d];
            at += idx[d] * x->strides[d];
        }
        for (int64_t i = 0, n; i < st->n; i += n) {
            const int64_t step = x->ndims > 0 ? x->strides[last] : 0;
            float y[CHAIN_BLOCK];
            double from[CHAIN_BLOCK];
            n = st->n - i < CHAIN_BLOCK ? st->n - i : CHAIN_BLOCK;
            dtype_traits(x->dtype)->codec.load_f64(x->data, at + i * step, step, n, from);
            for (int64_t e = 0; e < n; e++) {
                most = from[e] > most ? from[e] : most;
                y[e] = (float)most;
            }
            idx[last] = i;
            chain_run(&st->post, idx, (int)n, y, w->scratch);
        }
    }
}

const driver_t driver_cummax_rows = {.step = STEP_CUMMAX,
                                     .arithmetic = IN_F32,
                                     .phases = 1,
                                     .setup = setup,
                                     .choose = choose,
                                     .work = work};
"""
ORACLE = """/* The largest of the elements up to each one of the last dim. */
int oracle_cummax(orc_ctx_t *c)
{
    const orc_value_t *in = c->in[0];
    orc_value_t *out = c->out[0];
    const size_t n = in->lt.ndims > 0 ? (size_t)in->lt.dims[in->lt.ndims - 1] : 1;
    double most = 0, error = 0;
    if (orc_shape_like(c, 0, in) || orc_alloc(c, out, true)) {
        return -1;
    }
    for (size_t i = 0; i < in->n; i++) {
        const double e = in->b != NULL ? in->b[i] : 0;
        most = i % n == 0 || in->v[i] > most ? in->v[i] : most;
        error = i % n == 0 || e > error ? e : error;
        out->v[i] = most;
        out->b[i] = error;
    }
    return 0;
}

#define REDUCTION(name) """


def edit(todo):
    todo.add_op("cummax, CumMax, cummax, same, RUN")
    todo.edit("src/graph/op_schema.h", (
        "    OP_CLASSES = (1 << 21) - (1 << 8)",
        "    OP_CUMMAX = 1 << 21,\n    OP_CLASSES = (1 << 22) - (1 << 8)"))
    todo.edit("src/graph/op_schema.c", (
        "/* Sinter's own */\n",
        "/* Sinter's own */\n"
        "CARD card_cummax = {IN(1, 1, FLT32), OUT(1, 1, FLT32), .flags = OP_CUMMAX};\n"))
    todo.edit("src/backend_xsmm/plan.h", (
        "typedef struct top_k_params {",
        "typedef struct cummax_params {\n    int x;\n} cummax_params_t;\n\n"
        "typedef struct top_k_params {"), (
        "        top_k_params_t top_k;\n",
        "        top_k_params_t top_k;\n        cummax_params_t cummax;\n"))
    row = "SINTER_STEP(REDUCE, reduce, reduce_runs)\n"
    todo.edit("src/backend_xsmm/steps.def",
              (row, "SINTER_STEP(CUMMAX, cummax, cummax_rows)\n" + row))
    todo.write("src/backend_xsmm/steps/cummax.c", STEP)
    todo.write("src/backend_xsmm/drivers/rows/cummax.c", DRIVER)
    first = "SINTER_KERNEL(reduce_runs_f32_avx512, "
    todo.edit("src/backend_xsmm/kernels.def",
              (first, f"SINTER_KERNEL({KERNEL}, cummax_rows, NEEDS_NOTHING)\n{first}"))
    todo.edit("tests/oracle/reduce.c", ("#define REDUCTION(name) ", ORACLE))
    todo.edit("tests/unit/test_selection.c", case_of_test_selection(
        "the largest up to each element", "CumMax 1:f32:5x37 -> 2:f32:5x37", KERNEL))
    todo.edit("tools/graph_runner/op_notes.def", (
        "OP_NOTE(reduce_sum,",
        'OP_NOTE(cummax, "x", "y", "y[i] = the largest of x[0] to x[i]",\n'
        '    "Along the last dimension.")\nOP_NOTE(reduce_sum,'))


def graph(dtype, n):
    def tensor(number, of=dtype):
        return {"id": number, "dtype": of, "shape": [2, 3, n]}
    return json.dumps({"graph": [
        {"id": 0, "kind": "CumMax", "inputs": [tensor(0)], "outputs": [tensor(1)]},
        {"id": 1, "kind": "Tanh", "inputs": [tensor(1)], "outputs": [tensor(2)]}]})


def try_out(scratch, runner):
    for dtype, n in (("f32", 37), ("bf16", 3000)):
        path = scratch.case(f"new_driver_{dtype}.json", graph(dtype, n))
        for level in ("avx2", "generic"):
            runner("--mode=C", f"--case={path}", f"--max-cpu-isa={level}")
    assert KERNEL in runner("--mode=C", f"--case={path}", "--explain")
