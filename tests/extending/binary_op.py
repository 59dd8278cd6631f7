"""Follows the checklist for an elementwise op with two inputs: y = (a + b) / 2, behind softmax."""
import json

NAME, MOST = "An elementwise op, with two inputs", 5
TESTS = ("test_schema", "test_eltwise")


def edit(todo):
    todo.add_op("average, Average, binary, broadcast, RUN")
    todo.edit("src/backend_xsmm/ukernels/eltwise.def",
              ("ELTWISE(squared_difference,",
               "ELTWISE(average, 2, 0, x * 0.5f + y * 0.5f, x * 0.5 + y * 0.5)\n"
               "ELTWISE(squared_difference,"))
    todo.edit("tests/oracle/binary.c", (
        "int oracle_greater_equal(orc_ctx_t *c)", """static void average_chunk(const orc_chunk_t *k)
{
    for (size_t i = 0; i < k->n; i++) {
        if (k->ob) {
            k->ob[i] = (k->b[0][i] + k->b[1][i]) / 2;
        }
        k->ov[i] = (k->v[0][i] + k->v[1][i]) / 2;
    }
}
int oracle_average(orc_ctx_t *c)
{
    return binary(c, average_chunk, true);
}
int oracle_greater_equal(orc_ctx_t *c)"""))
    todo.edit("tools/graph_runner/op_notes.def", (
        "OP_NOTE(squared_difference,",
        'OP_NOTE(average, "a, b", "y", "y = (a + b) / 2", "")\nOP_NOTE(squared_difference,'))


def try_out(scratch, runner):
    def tensor(number, shape):
        return {"id": number, "dtype": "f32", "shape": shape}
    path = scratch.case("binary_op.json", json.dumps({"graph": [
        {"id": 0, "kind": "SoftMax", "attrs": {"axis": {"type": "s64", "value": -1}},
         "inputs": [tensor(0, [5, 37])], "outputs": [tensor(1, [5, 37])]},
        {"id": 1, "kind": "Average", "inputs": [tensor(1, [5, 37]), tensor(2, [5, 1])],
         "outputs": [tensor(3, [5, 37])]}]}))
    for level in ("avx2", "generic"):
        runner("--mode=C", "--expected-n-partitions=1", f"--case={path}", f"--max-cpu-isa={level}")
