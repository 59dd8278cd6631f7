#!/usr/bin/env python3
"""Follows the checklist for an elementwise op in docs/extending.md on a copy of the tree: adds
y = x / (1 + |x|), runs it alone and behind a matmul, and compares with the oracle."""
import json
import sys

from scratch import Scratch, run


def graph(with_matmul):
    def tensor(number, shape):
        return {"id": number, "dtype": "f32", "shape": shape}
    softsign = {"id": 1, "kind": "Softsign", "inputs": [tensor(2, [5, 37])],
                "outputs": [tensor(3, [5, 37])]}
    matmul = {"id": 0, "kind": "MatMul", "inputs": [tensor(0, [5, 16]), tensor(1, [16, 37])],
              "outputs": [tensor(2, [5, 37])]}
    return json.dumps({"graph": [matmul, softsign] if with_matmul else [softsign]})


def main():
    with Scratch() as scratch:
        last = "SINTER_OP(87, dropout, Dropout, dropout, dropout, ACCEPT)\n"
        scratch.edit("include/sinter/ops.def",
                     (last, last + "SINTER_OP(88, softsign, Softsign, unary, same, RUN)\n"))
        scratch.edit("src/backend_xsmm/ukernels/eltwise.def",
                     ("ELTWISE(square,",
                      "ELTWISE(softsign, 1, 0, x / (1.0f + __builtin_fabsf(x)), "
                      "x / (1 + fabs(x)))\n"
                      "ELTWISE(square,"))
        scratch.edit("tests/oracle/unary.c", (
            "int oracle_sigmoid(orc_ctx_t *c)",
            "UNARY_F(softsign, x / (1 + fabs(x)))\n"
            "UNARY_E(softsign, 3 * fabs(v))\n"
            "int oracle_softsign(orc_ctx_t *c)\n{\n    return EVALUATED(softsign, false, 0);\n}\n"
            "int oracle_sigmoid(orc_ctx_t *c)"))
        scratch.edit("tools/graph_runner/op_notes.def", (
            "OP_NOTE(softplus,",
            'OP_NOTE(softsign, "x", "y", "y = x / (1 + |x|)", "")\nOP_NOTE(softplus,'))
        scratch.check_touched(4)
        runner = scratch.build()
        for name, with_matmul in (("alone.json", False), ("fused.json", True)):
            path = scratch.write(name, graph(with_matmul))
            for cap in ([], ["--max-cpu-isa=generic"]):
                print(run([runner, "--mode=C", "--expected-n-partitions=1", f"--case={path}",
                           *cap]).strip().splitlines()[-1])
        if "x / (1 + |x|)" not in run([runner, "--describe-op=Softsign"]):
            sys.exit("graph_runner does not describe the op")
    return 0


if __name__ == "__main__":
    sys.exit(main())
