"""Follows the checklist for an instruction set: AVX2 with BMI2, whose matmul of few rows is the one
of AVX2, compiled again."""
import json

NAME, MOST = "An instruction set", 8
COUNTED = ("include/", "src/", "cmake/")
TESTS = ("test_alloc", "test_kernels", "test_selection")
LEVEL, KERNEL = "avx2_bmi2", "matmul_rows_f32_bmi2"
UKERNELS = '''/* Matmul with few rows in floats with AVX2, FMA, F16C and BMI2. */
#include "backend_xsmm/ukernels/matmul_rows.h"

#if defined(__x86_64__)

#define TARGET __attribute__((target("avx2,fma,f16c,bmi2")))
#include "numeric/simd_avx2.h"

#include "backend_xsmm/ukernels/decoded.inc"

#define ROWS_TABLE rows_floats_bmi2
#include "backend_xsmm/ukernels/matmul_rows.inc"

#endif
'''


def edit(todo):
    neon = 'SINTER_FEATURE(NEON, "neon", HAS_NEON)\n'
    needs = "SINTER_SET(AVX2_VNNI, NEEDS_AVX2 | FEATURE_AVX_VNNI)\n"
    level = "SINTER_LEVEL(avx2_vnni, NEEDS_AVX2_VNNI, NEEDS_AVX2_VNNI)\n"
    todo.edit("src/base/features.def",
              (neon, neon + 'SINTER_FEATURE(BMI2, "bmi2", HAS("bmi2"))\n'),
              (needs, "SINTER_SET(AVX2_BMI2, NEEDS_AVX2 | FEATURE_BMI2)\n" + needs),
              (level, f"SINTER_LEVEL({LEVEL}, NEEDS_AVX2_BMI2, NEEDS_AVX2_BMI2)\n" + level))
    todo.edit("include/sinter/sinter_types.h", (
        "    sinter_isa_avx2_vnni = 5  ",
        f"    sinter_isa_{LEVEL} = 6,\n    sinter_isa_avx2_vnni = 5  "))
    last = "set(SINTER_FLAGS_avxvnni ${SINTER_FLAGS_avx2} -mavxvnni)\n"
    todo.edit("cmake/SinterFlags.cmake",
              (last, last + "set(SINTER_FLAGS_bmi2 ${SINTER_FLAGS_avx2} -mbmi2)\n"))
    todo.write("src/backend_xsmm/ukernels/matmul_rows_bmi2.c", UKERNELS)
    rows = "SINTER_UKERNELS(rows, AVX2, rows_floats_avx2)\n"
    todo.edit("src/backend_xsmm/ukernels/tables.def",
              (rows, "SINTER_UKERNELS(rows, AVX2_BMI2, rows_floats_bmi2)\n" + rows))
    kernel = "SINTER_KERNEL(matmul_rows_f32_avx2, "
    todo.edit("src/backend_xsmm/kernels.def",
              (kernel, f"SINTER_KERNEL({KERNEL}, matmul_rows, NEEDS_AVX2_BMI2)\n{kernel}"))
    # What the tests know of levels and kernels.
    todo.edit("tests/unit/test_kernels.c", ('"avxvnni"};', '"avxvnni", "bmi2"};'), (
        "[sinter_isa_avx2_vnni] = ", f'[sinter_isa_{LEVEL}] = "avx2", [sinter_isa_avx2_vnni] = '))
    todo.edit("tests/unit/test_alloc.c",
              ('"default, generic, avx2, avx2_vnni,"', f'"default, generic, avx2, {LEVEL},"'))
    todo.edit("tests/unit/test_selection.c", *(
        (old, f"[sinter_isa_{LEVEL}] = {{{texts}}}, {old}") for old, texts in (
            ('AVX2_VNNI = {"attention_decode_f32_avx2",\n                         {LACKS(',
             f'"attention_decode_f32_avx2", {{LACKS("{LEVEL}", "attention_decode_f32_avx512 '
             '(needs avx512)")}'),
            ('AVX2_VNNI = {"matmul_rows_f32_avx2",\n',
             f'"{KERNEL}", {{"K: f32 FMA on decoded registers"}}'))), (
                'LACKS("avx2", "matmul_rows_f32_avx512 (needs avx512)")',
                f'LACKS("avx2", "matmul_rows_f32_avx512 (needs avx512), {KERNEL} (needs bmi2)")'))
    rows = 'AVX2 = {"matmul_rows_f32_avx2", {'
    todo.edit("tests/unit/test_selection.c",
              (rows, f'[sinter_isa_{LEVEL}] = {{"{KERNEL}", {{0}}}}, {rows}'), places=-1)


def graph():
    """Three rows times weights of f16."""
    return json.dumps({"graph": [
        {"id": 0, "kind": "MatMul", "attrs": {"transpose_b": {"type": "bool", "value": 1}},
         "inputs": [{"id": 0, "dtype": "f32", "shape": [3, 128]},
                    {"id": 1, "dtype": "f16", "shape": [160, 128]}],
         "outputs": [{"id": 2, "dtype": "f32", "shape": [3, 160]}]}]})


def try_out(scratch, runner):
    path = scratch.case("isa.json", graph())
    for level, kernel in ((LEVEL, KERNEL), ("avx2", "matmul_rows_f32_avx2")):
        said = runner("--mode=C", f"--case={path}", "--explain", level=level)
        assert f"isa {level}," in said and f"step 0: {kernel}," in said, said
    said = runner("--mode=C", f"--case={path}", "--explain", "--max-cpu-isa=avx2", level=LEVEL)
    assert "isa avx2," in said, said
