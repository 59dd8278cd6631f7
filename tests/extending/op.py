"""Follows the checklist for an elementwise op: y = x / (1 + |x|), alone and behind a matmul."""
import json

NAME, MOST = "An elementwise op", 5
TESTS = ("test_schema", "test_eltwise")


def edit(todo):
    todo.add_op("softsign, Softsign, unary, same, RUN")
    todo.edit("src/backend_xsmm/ukernels/eltwise.def",
              ("ELTWISE(square,",
               "ELTWISE(softsign, 1, 0, x / (1.0f + __builtin_fabsf(x)), x / (1 + fabs(x)))\n"
               "ELTWISE(square,"))
    todo.edit("tests/oracle/unary.c", (
        "int oracle_sigmoid(orc_ctx_t *c)",
        "UNARY_F(softsign, x / (1 + fabs(x)))\n"
        "UNARY_E(softsign, 3 * fabs(v))\n"
        "int oracle_softsign(orc_ctx_t *c)\n{\n    return EVALUATED(softsign, false, 0);\n}\n"
        "int oracle_sigmoid(orc_ctx_t *c)"))
    todo.edit("tools/graph_runner/op_notes.def", (
        "OP_NOTE(softplus,",
        'OP_NOTE(softsign, "x", "y", "y = x / (1 + |x|)", "")\nOP_NOTE(softplus,'))


def graph(with_matmul):
    def tensor(number, shape):
        return {"id": number, "dtype": "f32", "shape": shape}
    softsign = {"id": 1, "kind": "Softsign", "inputs": [tensor(2, [5, 37])],
                "outputs": [tensor(3, [5, 37])]}
    matmul = {"id": 0, "kind": "MatMul", "inputs": [tensor(0, [5, 16]), tensor(1, [16, 37])],
              "outputs": [tensor(2, [5, 37])]}
    return json.dumps({"graph": [matmul, softsign] if with_matmul else [softsign]})


def try_out(scratch, runner):
    for name, with_matmul in (("op_alone.json", False), ("op_fused.json", True)):
        path = scratch.case(name, graph(with_matmul))
        runner("--mode=C", "--expected-n-partitions=1", f"--case={path}")
        runner("--mode=C", "--expected-n-partitions=1", f"--case={path}", "--max-cpu-isa=generic")
    assert "x / (1 + |x|)" in runner("--describe-op=Softsign")
