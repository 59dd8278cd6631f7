"""Follows the checklist for a data type in portable C: u6, an integer whose elements share
bytes."""
from dtype import dequantised_product, graph

NAME, MOST = "A data type, in portable C", 3
TESTS = ("test_dtype",)


def edit(todo):
    last = "SINTER_DTYPE(69, f8_e3m4, FLOAT, 8, 1, 1, 5, 15.5)\n"
    todo.edit("include/sinter/dtypes.def",
              (last, last + "SINTER_DTYPE(70, u6, INT, 6, 4, 3, 6, 63.0)\n"))
    todo.edit("src/numeric/dtype_codec_packed.c",
              ("INTEGER(u4, ", "INTEGER(u6, 0, 63, (float)(int)code)\nINTEGER(u4, "),
              ("CODEC(u4, 4)\n", "CODEC(u4, 4)\nCODEC(u6, 6)\n"))
    todo.edit("tests/oracle/codec.c",
              ("    case sinter_u4:\n", "    case sinter_u6:\n    case sinter_u4:\n"),
              ("    case sinter_boolean:\n    case sinter_e8m0:\n",
               "    case sinter_u6:\n    case sinter_boolean:\n    case sinter_e8m0:\n"),
              ("    case sinter_u4:\n        return round_int(0, 15, v);\n",
               "    case sinter_u4:\n        return round_int(0, 15, v);\n"
               "    case sinter_u6:\n        return round_int(0, 63, v);\n"),
              ("    case sinter_u4:\n    case sinter_u2:\n        return code;\n",
               "    case sinter_u4:\n    case sinter_u6:\n    case sinter_u2:\n"
               "        return code;\n"))


def try_out(scratch, runner):
    x, codes = (0, "f32", [5, 64]), (1, "u6", [5, 64])
    cases = {"integer_cast.json": graph([("TypeCast", {}, [x], [codes]),
                                         ("TypeCast", {}, [codes], [(3, "f32", [5, 64])])]),
             "integer_matmul.json": dequantised_product("u6")}
    for name, text in cases.items():
        path = scratch.case(name, text)
        for level in ("avx2", "generic"):
            runner("--mode=C", "--expected-n-partitions=1", f"--case={path}",
                   f"--max-cpu-isa={level}")
    assert "u6" in runner("--describe-dtype=u6")
