#!/usr/bin/env python3
"""The mirrors of the C API in sinter/_abi.py are what the headers say: sizes and offsets of structs
and values of constants by way of the compiler, prototypes by the headers' text.

test_abi.py CC INCLUDE_DIR..."""
import ctypes
import glob
import os
import re
import subprocess
import sys
import unittest

import python_case

python_case.enter()

from sinter import _abi

CC, *INCLUDES = sys.argv[1:]
del sys.argv[1:]
PLAIN = {"int": ctypes.c_int, "size_t": ctypes.c_size_t, "uint64_t": ctypes.c_uint64,
         "int64_t": ctypes.c_int64, "sinter_dim_t": ctypes.c_int64, "float": ctypes.c_float,
         "double": ctypes.c_double}


def headers():
    """Texts of the public headers, without comments."""
    for path in glob.glob(os.path.join(python_case.ROOT, "include", "sinter", "*.h")):
        with open(path, encoding="utf-8") as f:
            yield re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)


def program(lines):
    """What a C program prints that includes the headers."""
    text = ("#include <sinter/sinter.h>\n#include <stddef.h>\n#include <stdio.h>\n"
            "int main(void)\n{\n" + "".join(f"    {line}\n" for line in lines) + "}\n")
    with open("abi.c", "w", encoding="ascii") as f:
        f.write(text)
    subprocess.run([CC, "-std=c11", *(f"-I{folder}" for folder in INCLUDES), "abi.c", "-o", "abi"],
                   check=True)
    return subprocess.run(["./abi"], check=True, capture_output=True, text=True).stdout.split()


# Functions that the package has another way for: dims, ports and attributes are told with the
# object that has them, scalars are arrays, and graphs are written as a whole.
LEFT = {"compiled_graph_bind_scalar", "compiled_graph_create", "compiled_partition_create_tensor",
        "graph_add_parts", "graph_create", "graph_get_fpmath_mode", "graph_is_finalized",
        "graph_set_fpmath_mode", "logical_tensor_init", "logical_tensor_init_unknown",
        "logical_tensor_init_with_strides", "logical_tensor_is_equal", "op_get_id", "op_get_kind",
        "partition_dump", "set_graph_dump", "tensor_create_scalar", "tensor_get_data",
        "tensor_get_logical_tensor", "tensor_set_scalar"}


class Abi(unittest.TestCase):
    def test_structs(self):
        lines, expected = [], []
        for name, (mirror, sized) in _abi.STRUCTS.items():
            fields = [field for field, *_ in mirror._fields_]
            # A struct with a size may have more behind the last field.
            end = (f"offsetof({name}, {fields[-1]}) + sizeof((({name} *)0)->{fields[-1]})"
                   if sized else f"sizeof({name})")
            last = getattr(mirror, fields[-1])
            lines.append(f'printf("{name}:%zu\\n", (size_t)({end}));')
            expected.append(f"{name}:"
                            f"{last.offset + last.size if sized else ctypes.sizeof(mirror)}")
            for field in fields:
                at = getattr(mirror, field)
                lines.append(f'printf("{name}.{field}:%zu+%zu\\n", offsetof({name}, {field}), '
                             f"sizeof((({name} *)0)->{field}));")
                expected.append(f"{name}.{field}:{at.offset}+{at.size}")
        self.assertEqual(program(lines), expected)

    def test_constants(self):
        self.assertEqual(
            program([f'printf("{name}:%lld\\n", (long long){name});' for name in _abi.CONSTANTS] +
                    ['printf("trusted:%zu\\n", SINTER_BYTES_TRUSTED);']),
            [f"{name}:{value}" for name, value in _abi.CONSTANTS.items()] +
            [f"trusted:{_abi.BYTES_TRUSTED}"])
        # No row of an enumeration that the package has words for is missing.
        text = "\n".join(headers())
        for prefix in ("layout_type", "tensor_property", "weights", "partition_policy"):
            rows = re.findall(rf"\bsinter_{prefix}_\w+(?= =)", text)
            self.assertEqual(set(rows), {name for name in _abi.CONSTANTS
                                         if name.startswith(f"sinter_{prefix}_")})

    def test_prototypes(self):
        text = "\n".join(headers())
        objects = set(re.findall(r"typedef struct (sinter_\w+) \1_t;", text))
        enums = re.findall(r"\} (sinter_\w+_t);", "".join(
            re.findall(r"typedef enum.*?\} sinter_\w+_t;", text, re.S)))
        self.assertEqual(program([f'printf("%zu\\n", sizeof({name}));' for name in enums]),
                         [str(ctypes.sizeof(ctypes.c_int))] * len(enums))

        def of(spelling, named):
            words = re.findall(r"\w+|\*", re.sub(r"\bconst\b", " ", spelling))
            stars = words.count("*")
            words = [word for word in words if word != "*"]
            base = words[0]
            self.assertEqual(len(words), 2 if named else 1, spelling)
            if base == "char":
                made, stars = ctypes.c_char_p, stars - 1
            elif base == "void" or base.removesuffix("_t") in objects:
                made, stars = ctypes.c_void_p, stars - 1
            elif base in _abi.STRUCTS:
                made = _abi.STRUCTS[base][0]
            else:
                made = ctypes.c_int if base in enums else PLAIN[base]
            for _ in range(stars):
                made = ctypes.POINTER(made)
            return made

        declared = {name: (result, arguments) for result, name, arguments in re.findall(
            r"SINTER_API\s+([^;(]*?)\bsinter_(\w+)\(([^;]*?)\);", text)}
        mirrors = {name: (ctypes.c_int, arguments) for name, arguments in _abi.CALLS.items()}
        self.assertFalse(mirrors.keys() & _abi.QUERIES.keys())
        self.assertEqual(declared.keys() - mirrors.keys() - _abi.QUERIES.keys(), LEFT)
        for name, (result, arguments) in {**mirrors, **_abi.QUERIES}.items():
            self.assertIn(name, declared)
            said = declared[name]
            self.assertEqual(name in _abi.CALLS, said[0].strip() == "sinter_status_t", name)
            self.assertEqual(of(said[0], False), result, name)
            listed = [] if said[1].strip() == "void" else said[1].split(",")
            self.assertEqual([of(argument, True) for argument in listed], list(arguments), name)


if __name__ == "__main__":
    unittest.main()
