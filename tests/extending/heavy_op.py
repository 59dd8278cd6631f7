"""Follows the checklist for an op on a driver that exists: y = x / sqrt(sum(x^2) + epsilon) along
the last dim, on the driver of norms."""
import json

NAME, MOST = "An op on an existing driver", 7
TESTS = ("test_schema",)
ORACLE = """/* RMSNorm with epsilon / n, divided by sqrt(n). */
int oracle_l2_normalize(orc_ctx_t *c)
{
    const orc_value_t *in = c->in[0];
    const size_t n = (size_t)in->lt.dims[in->lt.ndims - 1], rows = n != 0 ? in->n / n : 0;
    const double epsilon = orc_attr_f32(c, sinter_op_attr_epsilon, 1e-5f), root = sqrt((double)n);
    const layout_t at = {.outer = 1, .n = n, .params = BROADCAST};
    if (alloc_all(c, 0, NULL)) {
        return -1;
    }
    double *scratch = orc_doubles(2 * n + 1);
    if (scratch == NULL) {
        return orc_fail(c, "out of memory");
    }
    for (size_t row = 0; row < rows; row++) {
        run_row(c, &at, row * n, row, false, epsilon / (double)n, scratch);
    }
    free(scratch);
    for (size_t i = 0; i < in->n; i++) {
        c->out[0]->v[i] /= root;
        c->out[0]->b[i] /= root;
    }
    return 0;
}

int oracle_group_norm(orc_ctx_t *c)"""


def edit(todo):
    todo.add_op("l2_normalize, L2Normalize, l2_normalize, same, RUN")
    todo.edit("src/graph/op_schema.c", (
        "/* Sinter's own */\n",
        "/* Sinter's own */\n"
        "CARD card_l2_normalize = {IN(1, 1, FLT32), OUT(1, 1, FLT32), ATTRS(NUM(epsilon, 1e-5)),\n"
        "                          .flags = OP_NORM};\n"))
    todo.edit("src/backend_xsmm/plan.h", (
        "    bool centered;\n",
        "    bool centered;\n"
        "    bool summed; /* L2Normalize: the sum of squares for the variance */\n"))
    todo.edit("src/backend_xsmm/steps/norm.c", (
        "    p->centered = n->kind != sinter_op_rms_norm;\n",
        "    p->summed = n->kind == sinter_op_l2_normalize;\n"
        "    p->centered = n->kind != sinter_op_rms_norm && !p->summed;\n"))
    todo.edit("src/backend_xsmm/drivers/rows/norm.c", (
        "const double variance = row->squares / row->count;",
        "const double variance = problem->step->p.norm.summed ? row->squares\n"
        "                                                     : row->squares / row->count;"))
    todo.edit("tests/oracle/norm.c", ("int oracle_group_norm(orc_ctx_t *c)", ORACLE))
    todo.edit("tools/graph_runner/op_notes.def", (
        "OP_NOTE(rms_norm,",
        'OP_NOTE(l2_normalize, "x", "y", "y = x / sqrt(sum(x^2) + epsilon)",\n'
        '    "The sum is over the last dimension.")\nOP_NOTE(rms_norm,'))


def graph(dtype):
    """A residual sum, the op, and a product: one step."""
    def tensor(number):
        return {"id": number, "dtype": dtype, "shape": [5, 3, 37]}
    return json.dumps({"graph": [
        {"id": 0, "kind": "Add", "inputs": [tensor(0), tensor(1)], "outputs": [tensor(2)]},
        {"id": 1, "kind": "L2Normalize", "attrs": {"epsilon": {"type": "f32", "value": 1e-6}},
         "inputs": [tensor(2)], "outputs": [tensor(3)]},
        {"id": 2, "kind": "Multiply", "inputs": [tensor(3), tensor(4)], "outputs": [tensor(5)]}]})


def try_out(scratch, runner):
    for dtype in ("f32", "bf16"):
        path = scratch.case(f"heavy_op_{dtype}.json", graph(dtype))
        for level in ("avx2", "generic"):
            runner("--mode=C", "--expected-n-partitions=1", f"--case={path}",
                   f"--max-cpu-isa={level}")
    assert "norm_rows_f32_avx2" in runner("--mode=C", f"--case={path}", "--explain")
