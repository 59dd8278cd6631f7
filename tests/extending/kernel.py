"""Follows the checklist for a kernel: a driver of its own for softmax over rows of 37 numbers."""
import json

NAME, MOST = "A kernel", 3
TESTS = ("test_selection", "test_kernels")
KERNEL = "softmax_narrow_f32_generic"
DRIVER = '''/* SoftMax over rows of 37 numbers. */
#include <math.h>

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/kernel.h"
#include "base/status.h"

enum { N = 37 };

typedef struct narrow_state {
    chain_bound_t post;
    const float *in;
    int64_t rows, down, step;
} narrow_state_t;

static const char *refuse(const kernel_t *self, const problem_t *p)
{
    const softmax_params_t *s = &p->step->p.softmax;
    (void)self;
    if (problem_type(p, s->in) != sinter_f32 || s->log || s->sink >= 0 || s->stats >= 0) {
        return "the step is more than a softmax in f32";
    }
    return problem_ndims(p, s->in) != 2 || problem_dim(p, s->in, 1) != N ||
                   (s->axis != -1 && s->axis != 1)
               ? "takes rows of 37 numbers"
               : NULL;
}

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    (void)self, (void)arena;
    out->state_bytes = sizeof(narrow_state_t);
    out->share_bytes = chain_scratch_bytes(p->step->post);
    return sinter_success;
}

static sinter_status_t choose(const kernel_t *self, const problem_t *p, const void *config,
                              void *state, choice_t *choice)
{
    const bound_t *in = &p->frame->v[p->step->p.softmax.in];
    narrow_state_t *st = state;
    (void)config, (void)choice;
    SG_TRY(chain_bind(p->step->post, p->frame, self->needs, &st->post));
    st->in = in->data;
    st->rows = in->dims[0];
    st->down = in->strides[0];
    st->step = in->strides[1];
    return sinter_success;
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const narrow_state_t *st = state;
    int64_t begin, end;
    (void)self, (void)p, (void)config;
    share(st->rows, w->tid, w->nth, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        const int64_t idx[SINTER_MAX_NDIMS] = {r, 0};
        float y[CHAIN_BLOCK], most = -INFINITY, sum = 0;
        for (int i = 0; i < N; i++) {
            most = fmaxf(most, st->in[r * st->down + i * st->step]);
        }
        for (int i = 0; i < N; i++) {
            y[i] = expf(st->in[r * st->down + i * st->step] - most);
            sum += y[i];
        }
        for (int i = 0; i < N; i++) {
            y[i] /= sum;
        }
        chain_run(&st->post, idx, N, y, w->scratch);
    }
}

const driver_t driver_softmax_narrow = {.step = STEP_SOFTMAX,
                                        .arithmetic = IN_F32,
                                        .phases = 1,
                                        .refuse = refuse,
                                        .setup = setup,
                                        .choose = choose,
                                        .work = work};
'''


def case_of_test_selection(what, graph, kernel):
    """A replacement in test_selection.c: a graph that gets the kernel at every level."""
    levels = ", ".join(f'{level} = {{"{kernel}", {{0}}}}'
                       for level in ("GENERIC", "AVX2", "AVX512", "VNNI"))
    first = '    {.what = "softmax",\n'
    return first, f'    {{.what = "{what}", .graph = "{graph}", .at = {{{levels}}}}},\n{first}'


def edit(todo):
    first = "SINTER_KERNEL(softmax_rows_f32_avx512, "
    todo.edit("src/backend_xsmm/kernels.def",
              (first, f"SINTER_KERNEL({KERNEL}, softmax_narrow, NEEDS_NOTHING)\n{first}"))
    todo.write("src/backend_xsmm/drivers/rows/softmax_narrow.c", DRIVER)
    todo.edit("tests/unit/test_selection.c", case_of_test_selection(
        "softmax over rows of 37", "SoftMax axis=-1 1:f32:5x37 -> 2:f32:5x37", KERNEL))


def try_out(scratch, runner):
    graph = json.dumps({"graph": [{
        "id": 0, "kind": "SoftMax", "attrs": {"axis": {"type": "s64", "value": -1}},
        "inputs": [{"id": 0, "dtype": "f32", "shape": [5, 37]}],
        "outputs": [{"id": 1, "dtype": "f32", "shape": [5, 37]}]}]})
    path = scratch.case("kernel.json", graph)
    assert KERNEL in runner("--mode=C", f"--case={path}", "--explain")
    assert KERNEL in runner("--list-kernels")
