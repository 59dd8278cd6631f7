"""Follows the checklist for a data type at the speed of vectors: f8_e3m4, a float of 8 bits with
another exponent than those there are."""
import json
import os

from scratch import run

NAME, MOST = "A data type", 8
TESTS = ("test_dtype",)
VECTORS = "src/numeric/dtype_bulk_avx2.c"


def edit(todo):
    last = "SINTER_DTYPE(68, u2, INT, 2, 4, 1, 2, 3.0)\n"
    todo.edit("include/sinter/dtypes.def",
              (last, last + "SINTER_DTYPE(69, f8_e3m4, FLOAT, 8, 1, 1, 5, 15.5)\n"))
    todo.edit("src/numeric/dtype_bits.h", (
        "static const format_t format_f6_e3m2",
        "static const format_t format_f8_e3m4 = "
        "{5, -2, 0x80, 0x6F, 0x70, 0x78, 0, true, false};\n"
        "static const format_t format_f6_e3m2"))
    todo.edit("src/numeric/dtype_codec.c", (
        "FORMAT_CODEC(f8_e4m3, uint8_t)\n",
        "FORMAT_CODEC(f8_e4m3, uint8_t)\nFORMAT_CODEC(f8_e3m4, uint8_t)\n"))
    todo.edit("src/numeric/bulk.h", (
        "CODE(f8_e5m2fnuz,",
        "CODE(f8_e3m4, FLOAT_8, 8, 1, .format = &format_f8_e3m4)\nCODE(f8_e5m2fnuz,"))
    todo.edit("src/numeric/bulk_table.h", *(
        (f"{old}(f8_e4m3{rest})", f"{old}(f8_e4m3{rest}){end} {old}(f8_e3m4{rest})")
        for old, rest, end in (("LOAD_AND_STORE", "", ""), ("STORE_SATURATED", "", ""),
                               ("SCALED_AND_STREAMED", "", ""),
                               ("ROW_SCALED", ", store_sat", ","))))
    row = "SINTER_QUANTISED_FLOAT(f8_e4m3)\n"
    todo.edit("src/numeric/quantised.def", (row, row + row.replace("e4m3", "e3m4")))
    todo.edit("tests/oracle/codec.c", (
        "    case sinter_f8_e5m2fnuz:\n",
        "    case sinter_f8_e3m4:\n    case sinter_f8_e5m2fnuz:\n"), (
        "    case sinter_f8_e5m2fnuz:\n        *f =",
        "    case sinter_f8_e3m4:\n        *f = (format_t){3, 4, 3, TOP_IEEE};\n"
        "        return true;\n    case sinter_f8_e5m2fnuz:\n        *f ="))
    todo.edit("tests/unit/test_dtype.c", (
        "{sinter_f8_e5m2fnuz, 5, 2, 16, FNUZ},",
        "{sinter_f8_e3m4, 3, 4, 3, IEEE}, {sinter_f8_e5m2fnuz, 5, 2, 16, FNUZ},"))


def graph(ops):
    """Ops as (kind, attributes, inputs, outputs), tensors as (id, data type, shape)."""
    def tensors(rows):
        return [{"id": number, "dtype": dtype, "shape": shape} for number, dtype, shape in rows]
    return json.dumps({"graph": [{"id": i, "kind": kind, "attrs": attrs, "inputs": tensors(inputs),
                                  "outputs": tensors(outputs)}
                                 for i, (kind, attrs, inputs, outputs) in enumerate(ops)]})


def group_shape(*dims):
    return {"qtype": {"type": "string", "value": "per_group"},
            "group_shape": {"type": "s64[]", "value": list(dims)}}


def dequantised_product(dtype):
    """Floats times codes with a scale for each 32 of a line."""
    x, codes, scales, weights = ((0, "f32", [5, 64]), (1, dtype, [64, 64]), (2, "f16", [64, 2]),
                                 (4, "f32", [64, 64]))
    return graph([
        ("DynamicDequantize", group_shape(1, 32), [codes, scales], [weights]),
        ("MatMul", {"transpose_b": {"type": "bool", "value": 1}}, [x, weights],
         [(3, "f32", [5, 64])])])


def try_out(scratch, runner):
    x, codes = (0, "f32", [5, 64]), (1, "f8_e3m4", [5, 64])
    cases = {"dtype_cast.json": graph([("TypeCast", {}, [x], [codes]),
                                       ("TypeCast", {}, [codes], [(3, "f32", [5, 64])])]),
             "dtype_matmul.json": dequantised_product("f8_e3m4")}
    for name, text in cases.items():
        path = scratch.case(name, text)
        for level in ("avx2", "generic"):
            runner("--mode=C", "--expected-n-partitions=1", f"--case={path}",
                   f"--max-cpu-isa={level}")
    assert "f8_e3m4" in runner("--describe-dtype=f8_e3m4")
    functions = run(["nm", scratch.object_of(VECTORS)])
    assert "f8_e3m4_load_scaled" in functions, os.path.basename(VECTORS)
