#!/usr/bin/env python3
"""graph_runner as a program: what it prints in each mode, the options of its runs, its warnings.

test_cli.py GRAPH_RUNNER"""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
RUNNER = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from graph_json import Graph  # noqa: E402

INT4 = os.path.join(ROOT, "models", "patterns", "matmul-weight-int4-kn.json")
SDPA = os.path.join(ROOT, "models", "patterns", "sdpa-int4-kv.json")
# Every dim of SDPA that follows from the number of tokens, 9.
UNKNOWN_TOKENS = "1:1x3x16x?+2:1x3x2x?+3:1x3x2x?+8:1x1x5x?+11:1x3x?x16+12:1x3x?x2+13:1x3x?x2"
NEW_OPTIONS = ("--runs", "--same-bits", "--dynamic", "--json", "--dump-tensor-ids", "--limits")


# AddressSanitizer would end the process where malloc refuses.
ENVIRONMENT = os.environ | {
    "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":allocator_may_return_null=1"
}


def run(*arguments):
    return subprocess.run(
        [RUNNER, *arguments], capture_output=True, text=True, check=False, env=ENVIRONMENT
    )


def document(*arguments, status=0):
    """The only line of stdout, as JSON."""
    done = run(*arguments, "--json")
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    lines = done.stdout.splitlines()
    assert len(lines) == 1, lines
    return json.loads(lines[0])


class Cli(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = self.scratch.name

    def tearDown(self):
        self.scratch.cleanup()

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def test_graph_that_contradicts_itself(self):
        """A graph that gives a tensor two shapes is refused, and the message says so."""
        graphs = os.environ.get("ONEDNN_GRAPHS") or os.path.join(
            ROOT, "..", "shared", "onednn_graphs"
        )
        case = os.path.join(graphs, "pattern", "int8", "int8_maxpool_add_mul_fusion.json")
        if not os.path.exists(case):
            self.skipTest("oneDNN's graphs are not there: set ONEDNN_GRAPHS")
        for more in ([], ["--no-fuse"]):
            done = run("--mode=C", f"--case={case}", *more)
            self.assertEqual(done.returncode, 1)
            self.assertIn(
                "op 4098 (Multiply): tensor 4257 was given before with different dims", done.stdout
            )

    def test_help_and_documents(self):
        help_text = run("--help").stdout
        texts = {"--help": help_text}
        for name in ("docs/graph_runner.md",):
            with open(os.path.join(ROOT, name), encoding="utf-8") as file:
                texts[name] = file.read()
        for name, text in texts.items():
            for option in NEW_OPTIONS:
                self.assertTrue(option in text, f"{option} is not in {name}")

    def test_verbose(self):
        """The option wins over the environment, which counts without it."""
        for option, wanted in (([], True), (["--verbose=none"], False)):
            done = subprocess.run(
                [RUNNER, "--mode=X", f"--case={SDPA}", *option],
                capture_output=True, text=True, check=False,
                env=ENVIRONMENT | {"SINTER_VERBOSE": "exec"},
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("sinter: exec partition 0 (sdpa)" in done.stderr, wanted, done.stderr)

    def test_idle_mode(self):
        """The report says that no kernel uses the fpmath mode."""
        options = ["--max-cpu-isa=generic", "--attr-fpmath=int8:true"]
        idle = "fpmath int8 changes nothing"
        (part,) = document("--mode=L", f"--case={SDPA}", *options)["partitions"]
        self.assertEqual(sum(line.startswith("  " + idle) for line in part["report"]), 1, part)

    def test_explain(self):
        found = document("--mode=L", f"--case={SDPA}")
        self.assertEqual(
            (found["schema"], found["verdict"], found["mode"], found["message"]),
            (2, "PASSED", "L", None),
        )
        self.assertIn("--mode=L", found["command"])
        self.assertEqual(
            (found["graph"]["ops"], found["graph"]["fpmath_mode"], found["graph"]["apply_to_int"]),
            (7, "f16", True),
        )
        self.assertEqual(
            [port["id"] for port in found["graph"]["inputs"]], [0, 1, 2, 3, 6, 8, 11, 12, 13]
        )
        (part,) = found["partitions"]
        self.assertEqual(
            (part["id"], part["pattern"], part["supported"], part["compiled"], part["reason"]),
            (0, "sdpa", True, True, None),
        )
        self.assertEqual(
            [(op["id"], op["kind"], op["role"]) for op in part["ops"]],
            [
                (0, "DynamicDequantize", "k_pre"),
                (1, "MatMul", "qk"),
                (2, "Divide", "score"),
                (3, "Add", "score"),
                (4, "SoftMax", "softmax"),
                (5, "DynamicDequantize", "v_pre"),
                (6, "MatMul", "pv"),
            ],
        )
        (key,) = [port for port in part["inputs"] if port["id"] == 1]
        self.assertEqual(
            (key["data_type"], key["dims"], key["strides"]),
            ("s4", [1, 3, 16, 9], [432, 144, 1, 16]),
        )
        kernels = {
            name for name in run("--list-kernels").stdout.split() if name.startswith("attention")
        }
        self.assertEqual(len(part["steps"]), 1)
        self.assertIn(part["steps"][0]["kernel"], kernels)
        self.assertGreater(part["scratch_bytes"], 0)
        # The same lines as the text has.
        text = run("--mode=L", "--explain", f"--case={SDPA}").stdout
        for line in part["explain"] + part["report"]:
            self.assertIn(line, text)
        for refused in part["refused_kernels"]:
            kernel, reason = refused["kernel"], refused["reason"]
            # Features that the engine lacks stand together in one line.
            lacks = f"{kernel} ({reason})" in text
            self.assertTrue(lacks or f"{kernel} refused: {reason}" in text, refused)

    def test_refused_patterns(self):
        """Of graphs that only look like a pattern, the document says why it refused them."""
        refused = 0
        for path in glob.glob(os.path.join(ROOT, "models", "patterns", "sdpa*.nomatch.json")):
            text = run("--mode=L", "--explain", f"--case={path}").stdout
            for part in document("--mode=L", f"--case={path}")["partitions"]:
                for item in part["refused_patterns"]:
                    refused += 1
                    self.assertIn(
                        f"  refused {item['pattern']} at {item['at']}: {item['reason']}", text
                    )
        self.assertGreater(refused, 0)

    def test_not_joined(self):
        """The document says why neighbours stayed partitions of their own."""
        found = 0
        for path in glob.glob(os.path.join(ROOT, "models/patterns/projections*.nomatch.json")):
            for part in document("--mode=L", f"--case={path}")["partitions"]:
                for item in part["not_joined"]:
                    found += 1
                    line = f"  not joined ({item['join']}) with {item['with']}: {item['reason']}"
                    self.assertIn(line, part["explain"])
        self.assertGreater(found, 0)

    def test_not_supported(self):
        graph = {
            "graph": [
                {
                    "id": 0,
                    "kind": "SoftMaxBackward",
                    "attrs": {"axis": {"type": "s64", "value": 0}},
                    "inputs": [
                        {"id": 0, "dtype": "f32", "shape": [2, 4]},
                        {"id": 1, "dtype": "f32", "shape": [2, 4]},
                    ],
                    "outputs": [{"id": 2, "dtype": "f32", "shape": [2, 4]}],
                }
            ]
        }
        found = document(
            "--mode=L", "--case=" + self.write("backward.json", json.dumps(graph)), status=1
        )
        (part,) = found["partitions"]
        self.assertEqual(
            (found["verdict"], part["supported"], part["compiled"], part["steps"]),
            ("FAILED", False, False, []),
        )
        self.assertTrue(part["reason"])
        self.assertIn(part["reason"], found["message"])

    def test_correctness(self):
        found = document("--mode=C", f"--case={SDPA}", "--runs=3", "--same-bits")
        self.assertEqual(
            (found["runs"]["count"], found["runs"]["same_bits"], found["runs"]["tensors"]),
            (3, True, 1),
        )
        (output,) = found["outputs"]
        self.assertEqual(
            (output["id"], output["data_type"], output["dims"], output["elements"]),
            (15, "f16", [1, 3, 5, 16], 240),
        )
        self.assertTrue(
            output["passed"]
            and output["out_of_tolerance"] == 0
            and 0 <= output["worst_error_over_tolerance"] <= 1
        )
        failed = document("--mode=C", f"--case={SDPA}", "--expected-n-partitions=9", status=1)
        self.assertEqual(failed["verdict"], "FAILED")
        self.assertIn("expected 9 partitions, got 1: sdpa", failed["message"])

    def test_verdict_of_outputs(self):
        """With --max-ambiguous=0 an output passes if all of its codes are the rounded values."""
        path = os.path.join(ROOT, "models", "patterns", "sdpa-dynamic-quantize.json")
        options = (f"--case={path}", "--attr-fpmath=bf16:true", "--max-ambiguous=0", "--json")
        done = run("--mode=C", *options)
        found = json.loads(done.stdout)
        self.assertEqual([output["id"] for output in found["outputs"]], [8, 9])
        right = [output["not_the_rounded_value"] == 0 for output in found["outputs"]]
        self.assertEqual([output["passed"] for output in found["outputs"]], right)
        self.assertEqual(found["verdict"], "PASSED" if all(right) else "FAILED")
        self.assertEqual(done.returncode, 0 if all(right) else 1)

    def test_performance(self):
        found = document("--mode=P", f"--case={SDPA}", "--no-fuse", "--repeat=3")
        parts = found["partitions"]
        self.assertEqual(len(parts), 7)
        for part in parts:
            figures = part["performance"]
            self.assertEqual(figures["runs"], 3)
            self.assertTrue(0 < figures["min"]["us"] <= figures["median"]["us"])
            fraction = "of_fma_peak" if part["ops"][0]["kind"] == "MatMul" else "of_copy_bandwidth"
            self.assertGreater(figures["median"][fraction], 0)
        for which in ("min", "median"):
            together = sum(part["performance"][which]["us"] for part in parts)
            self.assertAlmostEqual(
                found["performance"][which]["us"], together, delta=1e-6 * together
            )
        self.assertEqual(parts[1]["performance"]["flops"], 2 * 3 * 5 * 16 * 9)
        self.assertGreater(found["limits"]["read_bytes_per_second"], 0)

    def test_roofline(self):
        """Limits are those of the cap, and every partition says what it is of its roofline."""
        for cap, peak in (("generic", None), ("avx2", "vpmaddubsw"), ("avx512_vnni", "VNNI")):
            options = ["--mode=P", f"--case={SDPA}", "--repeat=3", f"--max-cpu-isa={cap}"]
            found = document(*options)
            if found["limits"]["isa"] != cap:
                continue  # this machine does not have it, or the environment has a lower cap
            text = run(*options).stdout
            self.assertRegex(text, rf"limits of \d+ threads \({cap}\): read .*FMA f32")
            self.assertEqual(f"({peak})" in text, peak is not None, text)
            self.assertEqual("int8_ops_per_second" in found["limits"], peak is not None)
            figures = found["performance"]
            self.assertGreater(figures["roofline_memory_us"], 0)
            self.assertGreater(figures["roofline_products_us"], 0)
            self.assertGreater(figures["min"]["of_roofline"], 0)
            self.assertGreater(figures["median"]["of_roofline"], 0)
            self.assertEqual(text.count(" of roofline"), 2)

    def test_above_one(self):
        """Fractions above 1 are explained."""
        case = ("--mode=P", "--min-time=0.01", f"--case={SDPA}")
        fast, slow = (run(*case, f"--limits={limits}").stdout
                      for limits in ("read:1e6+fma:1e6", "read:1e-6+fma:1e-6"))
        self.assertNotIn("above 1:", fast)
        self.assertIn("above 1: the caches held", slow)

    def test_limits(self):
        """Given limits make the roofline in every mode, and nothing is measured."""
        given = "--limits=read:10+copy:20+fma:100+int8:400"
        found = document("--mode=X", f"--case={SDPA}", given, "--attr-fpmath=int8:true")
        self.assertEqual(
            found["limits"],
            {"isa": "given", "read_bytes_per_second": 1e10, "copy_bytes_per_second": 2e10,
             "fma_flops_per_second": 1e11, "int8_ops_per_second": 4e11},
        )
        work = found["partitions"][0]["work"]
        sizes = {t["id"]: t["bytes"] for t in found["tensors"]}
        read = sum(sizes[t["id"]] for t in found["graph"]["inputs"])
        self.assertEqual((work["read_bytes"], work["written_bytes"]), (read, 2 * 3 * 5 * 16))
        flops = 2 * 2 * 3 * 5 * 16 * 9
        self.assertEqual((work["flops"], work["flops_one_limb"]), (flops, flops))
        self.assertAlmostEqual(work["roofline_memory_us"], 1e6 * (read / 1e10 + 480 / 2e10))
        self.assertAlmostEqual(work["roofline_products_us"], 1e6 * flops / 4e11)
        parts = document("--mode=L", f"--case={SDPA}", given, "--no-fuse")["partitions"]
        copied = parts[0]["work"]
        self.assertEqual(copied["flops"], 0)
        self.assertAlmostEqual(
            copied["roofline_memory_us"],
            1e6 * (copied["read_bytes"] + copied["written_bytes"]) / 2e10,
        )
        timed = document("--mode=P", f"--case={SDPA}", given, "--repeat=3")
        self.assertEqual(timed["limits"]["isa"], "given")
        for wrong, why in (
            ("read:10", "read and fma must be given"),
            ("fma:10+read", "expected read, copy, fma, int8 or bf16"),
            ("read:-1+fma:1", "expected a rate"),
        ):
            done = run(f"--limits={wrong}", f"--case={SDPA}")
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"--limits: {why}", done.stderr)

    def simulated(self, columns, threads, *more):
        """Phases of a product of one row and 4096 x columns codes, as (shares, MB, their spread,
        millions of products, their spread, MB from other nodes, the same if one wrote all)."""
        weights = os.path.join(ROOT, "models", "weight-q4_0.json")
        done = run("--mode=X", f"--case={weights}", "--partition-fpmath=0:int8:true",
                   f"--in-shapes=0:1x4096+1:{columns}x4096+2:{columns}x128",
                   f"--simulate-threads={threads}", *more)
        if "expected Linux on x86-64" in done.stdout:
            self.skipTest("needs Linux on x86-64")
        self.assertEqual(done.returncode, 0, done.stdout)
        phases = re.findall(
            r" (\d+) shares, (\S+) MB \(largest (\S+) of the mean\), (\S+) M products "
            r"\((\S+)\), from other nodes (\S+) MB \((\S+)\)", done.stdout)
        return [[float(x) for x in phase] for phase in phases if float(phase[3]) > 0]

    def test_simulated_threads(self):
        """The sums of all shares are the whole work, and what is uneven is shown."""
        whole = 2048 * 4096 / 2 + 2048 * 128 * 2
        for threads in (1, 8, 64):
            shares, read, bytes_over, products, products_over, far, _ = (
                self.simulated(2048, threads)[0])
            self.assertEqual((shares, products, far), (threads, round(2048 * 4096 / 1e6, 3), 0))
            self.assertAlmostEqual(1e6 * read / whole, 1, delta=0.03)
            self.assertLessEqual(max(bytes_over, products_over), 1.05)
        # 65 strips of 16 columns for 64 shares
        shares, _, bytes_over, products, products_over, _, _ = self.simulated(1040, 64)[0]
        self.assertEqual((shares, products), (64, round(1040 * 4096 / 1e6, 3)))
        self.assertAlmostEqual(products_over, 2 * 64 / 65, delta=0.01)
        self.assertAlmostEqual(bytes_over, 2 * 64 / 65, delta=0.1)

    def test_simulated_nodes(self):
        """By first touch weights are read where they lie; if one thread wrote them, 3 of 4 nodes
        read them from another one."""
        _, read, _, _, _, far, of_one = self.simulated(2048, 64, "--simulate-nodes=4")[0]
        self.assertLess(far, 0.1 * read)
        self.assertAlmostEqual(of_one / read, 0.75, delta=0.05)
        for words, why in ((("--mode=P",), "expected --mode=X or C"),
                           (("--threads=2",), "and no --threads"),
                           (("--simulate-nodes=9",), "1 to 8")):
            done = run(f"--case={INT4}", "--mode=X", "--simulate-threads=8", *words)
            self.assertEqual(done.returncode, 1)
            self.assertIn(why, done.stderr)

    def test_appends(self):
        """Of a cache only new rows are written, of tables only rows with an index are read."""
        layer = os.path.join(ROOT, "models", "layers", "llama3-8b-decode-int4-kv8-small.json")
        options = ("--limits=read:10+copy:20+fma:100+int8:400", "--in=3:=30", "--repeat=3")
        found = document("--mode=P", f"--case={layer}", *options)
        work = next(p["work"] for p in found["partitions"] if p["pattern"] == "append")
        rows = 2 * (32 + 2)  # codes and scales of two heads
        read = 4 * 2 * 32 + 2 * 4 * 16 + 4 + 4 + rows  # K, cosines and sines, position, slot, V
        self.assertEqual((work["read_bytes"], work["written_bytes"]), (read, 2 * rows))

    def test_sequence(self):
        """The graph as a whole: partitions in order, and memory that tensors share."""
        found = document("--mode=L", f"--case={SDPA}", "--no-fuse")
        sequence, sizes = found["sequence"], {t["id"]: t["bytes"] for t in found["tensors"]}
        self.assertEqual(sequence["partitions"], [p["id"] for p in found["partitions"]])
        tensors = sequence["tensors"]
        self.assertEqual(len(tensors), len(sequence["partitions"]) - 1)
        for t in tensors:
            writer = found["partitions"][t["first"]]["outputs"]
            readers = found["partitions"][t["last"]]["inputs"]
            self.assertIn(t["id"], [port["id"] for port in writer])
            self.assertIn(t["id"], [port["id"] for port in readers])
            self.assertEqual(t["bytes"], sizes[t["id"]])
            self.assertLessEqual(t["offset"] + t["bytes"], sequence["scratch_bytes"])
        self.assertLess(sequence["scratch_bytes"], sum(t["bytes"] for t in tensors))
        for t in tensors:  # what lives at the same time lies apart, but for a partition in place
            for other in tensors:
                if t["first"] < other["first"] < t["last"]:
                    apart = (t["offset"] >= other["offset"] + other["bytes"]
                             or other["offset"] >= t["offset"] + t["bytes"])
                    self.assertTrue(apart, (t, other))
        timed = document("--mode=P", f"--case={SDPA}", "--no-fuse", "--repeat=3")["sequence"]
        self.assertEqual(timed["tensors"], tensors)
        self.assertTrue(0 < timed["min_us"] <= timed["median_us"])
        self.assertIn("as a whole: min", run("--mode=P", f"--case={SDPA}", "--no-fuse",
                                             "--repeat=3").stdout)

    def test_tensors_and_ops(self):
        """The document has the whole graph: tensors, and the ids of each op's tensors."""
        found = document("--mode=L", f"--case={SDPA}")
        with open(SDPA, encoding="utf-8") as file:
            graph = json.load(file)["graph"]
        ports = {
            op["id"]: [[t["id"] for t in op[side]] for side in ("inputs", "outputs")]
            for op in graph
        }
        ops = found["partitions"][0]["ops"]
        self.assertEqual({op["id"]: [op["inputs"], op["outputs"]] for op in ops}, ports)
        ids = sorted({t for sides in ports.values() for side in sides for t in side})
        self.assertEqual([t["id"] for t in found["tensors"]], ids)
        (key,) = [t for t in found["tensors"] if t["id"] == 1]
        self.assertEqual((key["data_type"], key["bytes"]), ("s4", 3 * 16 * 9 // 2))

    def test_refused_kernels(self):
        """A better kernel that needs other instructions is a refused one, with what it needs."""
        (part,) = document("--mode=L", f"--case={SDPA}", "--max-cpu-isa=generic")["partitions"]
        self.assertIn(
            {"kernel": "attention_flash_f32_avx2", "reason": "needs avx2"},
            part["refused_kernels"],
        )

    def test_batch(self):
        """One document a line, in the order of the list; the count is not among them."""
        self.write(
            "x.list",
            f"--mode=X --case={SDPA}\n--no-such-option\n"
            f"--mode=L --case={SDPA}\n--case=nowhere.json\n",
        )
        done = run("--json", "--batch=" + os.path.join(self.folder, "x.list"))
        found = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(
            [(d["verdict"], d["mode"]) for d in found],
            [("PASSED", "X"), ("FAILED", "C"), ("PASSED", "L"), ("FAILED", "C")],
        )
        self.assertIn("line 2: --no-such-option", found[1]["message"])
        self.assertIn("2 passed, 2 failed, 0 skipped", done.stderr)
        self.assertEqual(done.returncode, 1)

    def test_batch_quotes(self):
        """A line of a batch may be one that graph_runner printed, whatever the name of the file."""
        with open(SDPA, encoding="utf-8") as file:
            path = self.write("a 'b' #1 \"$c\" \\.json", file.read())
        printed = run("--mode=X", f"--case={path}").stdout.strip()
        line = printed[printed.index("graph_runner"):]
        self.assertNotIn(path, line)
        self.write("x.list", f'{line} # a comment\n--mode=X "--case={SDPA}"\n--case=\'open\n')
        found = run("--batch=" + os.path.join(self.folder, "x.list")).stdout.splitlines()
        self.assertTrue(found[0].endswith(line), found)
        self.assertIn("PASSED", found[0])
        self.assertIn("PASSED", found[1])
        self.assertIn("line 3: a quote ' is not closed", found[2])
        self.assertEqual(found[-1], "2 passed, 1 failed, 0 skipped")

    def test_dynamic(self):
        found = document(
            "--mode=C", f"--case={SDPA}", f"--dynamic={UNKNOWN_TOKENS}", "--runs=2", "--same-bits"
        )
        (part,) = found["partitions"]
        (key,) = [port for port in part["inputs"] if port["id"] == 1]
        self.assertEqual(key["dims"], [1, 3, 16, None])
        self.assertNotIn("strides", key)
        self.assertIn(f"--dynamic='{UNKNOWN_TOKENS}'", found["command"])
        self.assertTrue(found["outputs"][0]["passed"] and part["scratch_bytes"] > 0)
        measured = document(
            "--mode=P", f"--case={SDPA}", f"--dynamic={UNKNOWN_TOKENS}", "--repeat=1"
        )
        self.assertEqual(measured["performance"]["flops"], 2 * 2 * 3 * 5 * 16 * 9)
        wrong = run(f"--case={SDPA}", "--dynamic=1:1x3x17x?")
        self.assertEqual(wrong.returncode, 1)
        self.assertIn(
            "--dynamic: tensor 1 is s4[1x3x16x9]*432x144x1x16, which differs at dim 2", wrong.stdout
        )

    def test_dump(self):
        folder = os.path.join(self.folder, "dump")
        self.assertEqual(
            run("--mode=C", f"--case={SDPA}", f"--dump-tensors={folder}", "--no-fuse").returncode, 0
        )
        self.assertEqual(
            sorted(name for name in os.listdir(folder) if name.endswith(".npy")),
            sorted(["0.npy", "2.npy", "6.npy", "8.npy", "12.npy", "15.npy", "15.expected.npy"]),
        )
        os.rename(folder, folder + "-1")
        self.assertEqual(
            run(
                "--mode=X",
                f"--case={SDPA}",
                f"--dump-tensors={folder}",
                "--no-fuse",
                "--dump-tensor-ids=5+9",
            ).returncode,
            0,
        )
        self.assertEqual(sorted(os.listdir(folder)), ["5.npy", "9.npy"])

    def test_opaque_layouts(self):
        """Weights that a graph has in tiles are filled strided and packed; a dump has them too."""
        with open(INT4, encoding="utf-8") as file:
            graph = json.load(file)
        for tensor, layout in zip(graph["graph"][0]["inputs"], (2, 4, 4)):
            del tensor["stride"]
            tensor |= {"layout_type": "opaque", "layout_id": layout}
        case, dump = self.write("tiles.json", json.dumps(graph)), os.path.join(self.folder, "d")
        for arguments in (
            ["--mode=C", "--dump-graph=" + dump],
            ["--mode=C", "--dynamic=4:?x160"],
            ["--mode=P", "--min-time=0.01"],
        ):
            done = run(*arguments, "--case=" + case)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(done.stderr.count("warning"), 0, done.stderr)
        with open(dump, encoding="utf-8") as file:
            inputs = json.load(file)["graph"][0]["inputs"]
        self.assertEqual([t["layout_id"] for t in inputs], [2, 4, 4])
        done = run("--mode=C", "--case=" + dump)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # The op that dequantises them, alone, has them unpacked.
        done = run("--mode=C", "--no-fuse", "--case=" + case)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        found = document("--mode=C", "--no-fuse", "--case=" + case)
        self.assertIn("unpacks tensor 0 from tiles", str(found))

    def test_opaque_layouts_with_new_dims(self):
        """--in-shapes leaves weights in tiles, and random integers fit the bits that tiles keep."""
        case = os.path.join(ROOT, "models", "weight-q6_k-tiles.json")
        shapes = "--in-shapes=1:33x512+2:33x32+3:33x2+0:3x512"
        found = str(document("--mode=C", "--case=" + case, shapes))
        self.assertNotIn("unpacks", found)
        if "isa generic" not in found:
            self.assertIn("reads tensor 1 in tiles, as it was given", found)
        dump = os.path.join(self.folder, "d")
        done = run("--mode=L", "--case=" + case, shapes, "--dump-graph=" + dump)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(dump, encoding="utf-8") as file:
            graph = json.load(file)
        tensors = [t for op in graph["graph"] for t in op["inputs"] if t["id"] in (1, 2, 3)]
        self.assertEqual({t["id"]: (t["shape"], t.get("layout_id")) for t in tensors},
                         {1: ([33, 512], 5), 2: ([33, 32], 3), 3: ([33, 2], 3)})
        # Strides in the option are a layout of their own.
        strided = "--in-shapes=1:96x256*256x1+2:96x16*16x1+3:96x1*ab"
        done = run("--mode=C", "--case=" + case, strided)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_opaque_layouts_of_unknown_dims(self):
        """--dynamic leaves caches in tiles, and what a graph has written into them."""
        case = os.path.join(ROOT, "models", "serving", "step-heads-s4-g32.json")
        shapes = ("--in-shapes=0:2x3x1x64+1:1+2:512x2x64+3:512x2x2+4:1x2x64+16:512x2x64+"
                  "17:512x2x2+18:1x2x64")
        arguments = ["--case=" + case, shapes, "--op-attrs=5:shape:2x1x-1x64+14:shape:2x1x-1x64",
                     "--dynamic=2:?x2x64+3:?x2x2+16:?x2x64+17:?x2x2"]
        found = str(document("--mode=C", *arguments))
        self.assertNotIn("unpacks", found)
        if "isa generic" not in found:
            self.assertIn("reads tensor 7 in tiles, as it was given", found)
        dump = os.path.join(self.folder, "d")
        done = run("--mode=L", *arguments, "--dump-graph=" + dump)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(dump, encoding="utf-8") as file:
            graph = json.load(file)
        tensors = {t["id"]: t for op in graph["graph"] for t in op["inputs"] + op["outputs"]}
        opaque = [t["shape"] for t in tensors.values() if t.get("layout_type") == "opaque"]
        self.assertEqual(len(opaque), 8)
        self.assertEqual({dims[0] for dims in opaque}, {-(2**63)})
        done = run("--mode=P", "--min-time=0.01", *arguments)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_layout_any(self):
        """The runner packs inputs of layout any as compile has chosen."""
        with open(INT4, encoding="utf-8") as file:
            graph = json.load(file)
        for tensor in graph["graph"][0]["inputs"]:
            del tensor["stride"]
            tensor["layout_type"] = "any"
        case = self.write("any.json", json.dumps(graph))
        for arguments in (
            ["--mode=C"],
            ["--mode=C", "--no-fuse"],
            ["--mode=C", "--dynamic=4:?x160"],
            ["--mode=P", "--min-time=0.01"],
        ):
            done = run(*arguments, "--case=" + case)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        found = str(document("--mode=C", "--case=" + case))
        if "isa generic" not in found:
            self.assertIn("reads tensor 0 in tiles, as it was given", found)
        self.assertNotIn("unpacks", found)

    def test_reorder_of_layouts(self):
        """A graph packs a tensor, reads it, and has another one packed as an output."""
        shape = {"dtype": "f32", "shape": [20, 33]}
        tiles = {"layout_type": "opaque", "layout_id": 4}
        graph = {
            "engine_kind": "cpu",
            "fpmath_mode": "strict",
            "graph": [
                {
                    "id": 0,
                    "kind": "Reorder",
                    "attrs": {},
                    "inputs": [{"id": 0} | shape],
                    "outputs": [{"id": 1} | shape | tiles],
                },
                {
                    "id": 1,
                    "kind": "ReLU",
                    "attrs": {},
                    "inputs": [{"id": 1} | shape | tiles],
                    "outputs": [{"id": 2} | shape],
                },
                {
                    "id": 2,
                    "kind": "Reorder",
                    "attrs": {},
                    "inputs": [{"id": 2} | shape],
                    "outputs": [{"id": 3} | shape | tiles],
                },
            ],
        }
        case = self.write("reorder.json", json.dumps(graph))
        for arguments in (["--mode=C"], ["--mode=C", "--no-fuse"], ["--mode=P", "--min-time=0.01"]):
            done = run(*arguments, "--case=" + case)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_warnings(self):
        with open(SDPA, encoding="utf-8") as file:
            graph = json.load(file)
        graph |= {"engine_kind": "gpu", "input_ports": [0, 77], "output_ports": [15]}
        done = run("--mode=L", "--case=" + self.write("g.json", json.dumps(graph)))
        self.assertEqual(done.returncode, 0)
        self.assertIn('warning: the graph was made for engine_kind "gpu"', done.stderr)
        self.assertIn(
            "input_ports names tensor 77, which the graph does not have; the port is ignored",
            done.stderr,
        )
        self.assertNotIn("tensor 0", done.stderr)
        found = document("--mode=L", "--case=" + os.path.join(self.folder, "g.json"))
        self.assertEqual(len(found["warnings"]), 2)
        graph["engine_kind"] = "npu"
        refused = run("--mode=L", "--case=" + self.write("g.json", json.dumps(graph, indent=1)))
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(
            refused.stdout,
            r'g\.json:\d+:\d+: expected the engine_kind "cpu" or "gpu", found \'"npu"\'',
        )

    def test_too_large(self):
        """A tensor that no machine has memory for is named."""
        tensor = {"dtype": "f32", "shape": [1 << 20, 1 << 20, 1 << 10]}
        graph = {
            "graph": [
                {
                    "id": 0,
                    "kind": "ReLU",
                    "inputs": [{"id": 7} | tensor],
                    "outputs": [{"id": 8} | tensor],
                }
            ]
        }
        failed = run("--mode=X", "--case=" + self.write("large.json", json.dumps(graph)))
        self.assertEqual(failed.returncode, 1)
        self.assertIn(
            "tensor 7 f32[1048576x1048576x1024]: out of memory for its 4503599627370496 bytes",
            failed.stdout,
        )


    def int8_scores(self, code, scale, head, prefix):
        """Scores of codes without a scale, as some exporters write them: their spread is that of
        the codes. prefix: of DynamicDequantize, with scales as inputs; else attributes."""
        g = Graph()
        q, k = (g.input(code, [1, 2, 48, head]) for _ in range(2))
        if prefix:
            sides = [g.input("f32", [1]) for _ in range(2)]
            q, k = (
                g.op("DynamicDequantize", [t, s], "f32", qtype="per_tensor")
                for t, s in zip((q, k), sides)
            )
        else:
            zp = 128 if code == "u8" else 0
            q, k = (
                g.op("Dequantize", [t], "f32", qtype="per_tensor", scales=[scale], zps=[zp])
                for t in (q, k)
            )
        q, k = (g.op("TypeCast", [t], "bf16") for t in (q, k))
        return g, g.op("MatMul", [q, k], "bf16", transpose_b=True)

    def probability_codes(self, g, x):
        x = g.op("TypeCast", [x], "f32")
        x = g.op("Quantize", [x], "u8", qtype="per_tensor", scales=[1 / 255], zps=[0])
        return g.op("Dequantize", [x], "f32", qtype="per_tensor", scales=[1 / 255], zps=[0])

    def checked(self, g, *arguments):
        """Passes, and each bound says something."""
        case = self.write("spread.json", g.text())
        d = document("--mode=C", f"--case={case}", *arguments)
        self.assertEqual(d["verdict"], "PASSED", d["message"])
        for output in d["outputs"]:
            self.assertEqual(output["unbounded"], 0, d["command"])
        return case

    def test_inputs_can_be_checked(self):
        """Inputs are such that scores and exponents spread moderately, whatever lies before."""
        for code, scale, head, prefix in (
            ("u8", 0.064, 64, False), ("s8", 0.25, 64, False), ("s8", 1.0, 80, False),
            ("u8", 0.01, 128, False), ("s8", 0, 256, True),
        ):
            with self.subTest(code=code, scale=scale, head=head, prefix=prefix):
                g, x = self.int8_scores(code, scale, head, prefix)
                x = g.op("SoftMax", [x], "bf16", axis=-1)
                v = g.input("s8", [1, 2, 48, head])
                v = g.op("Dequantize", [v], "f32", qtype="per_tensor", scales=[0.04], zps=[0])
                x = g.op("MatMul", [self.probability_codes(g, x), v], "f32")
                g.output(g.op("Quantize", [x], "s8", qtype="per_tensor", scales=[0.04], zps=[0]))
                self.checked(g)
        with self.subTest("Exp"):
            g, x = self.int8_scores("s8", 0.25, 64, False)
            g.output(g.op("Exp", [x], "bf16"))
            self.checked(g)
        with self.subTest("floats: products behind a norm, and a mask"):
            g = Graph()
            x = g.op("RMSNorm", [g.input("bf16", [2, 9, 64]), g.input("bf16", [64])], "bf16")
            x = g.op("MatMul", [x, g.input("bf16", [2, 64, 512])], "bf16")
            x = g.op("MatMul", [x, g.input("bf16", [2, 512, 40])], "bf16")
            g.output(g.op("SoftMax", [g.op("Add", [x, g.input("bf16", [9, 40])], "bf16")], "bf16",
                          axis=-1))
            self.checked(g)

    def bytes_of(self, case, tensor, *arguments):
        self.assertEqual(run("--mode=C", f"--case={case}", f"--dump-tensors={self.folder}/dump",
                             *arguments).returncode, 0)
        with open(os.path.join(self.folder, "dump", f"{tensor}.npy"), "rb") as file:
            data = file.read()
        assert data[6] == 1  # the version: two bytes of length behind it
        return data[10 + int.from_bytes(data[8:10], "little"):]

    def test_inputs_stay_inside_of_codes(self):
        """A product of codes with scales of 1 is quantised to more than the ends of the type. The
        same seed gives the same inputs, and those that the caller gives are taken."""
        g = Graph()
        x, w = g.input("u8", [1, 16, 9, 9]), g.input("s8", [24, 16, 3, 3])
        one = {"qtype": "per_tensor", "scales": [1.0], "zps": [0]}
        y = g.op_to(
            "Convolution",
            [g.op("Dequantize", [t], "f32", **one) for t in (x, w)],
            [g.tensor("f32", [1, 24, 7, 7])],
            strides=[1, 1], pads_begin=[0, 0], pads_end=[0, 0], dilations=[1, 1],
            data_format="NCX", weights_format="OIX",
        )[0]
        y = g.op("Quantize", [y], "s8", **one)
        case = self.checked(g.output(y))
        codes = self.bytes_of(case, y["id"])
        inside = sum(byte not in (127, 128) for byte in codes)
        self.assertGreater(inside, len(codes) // 2)
        self.assertEqual(codes, self.bytes_of(case, y["id"]))
        self.assertNotEqual(codes, self.bytes_of(case, y["id"], "--seed=2"))
        given = self.bytes_of(case, w["id"], f"--in={w['id']}:=100,-100")
        self.assertEqual(given, bytes([100, 156]) * (len(given) // 2))
        given = self.bytes_of(case, w["id"], f"--in={w['id']}:=7*3,-1")
        self.assertEqual(given, bytes([7, 7, 7, 255]) * (len(given) // 4))
        for wrong in ("7*0", "7*", "7*x", "7*999999999", "7,*2"):
            done = run("--mode=C", "--case=" + case, f"--in={w['id']}:={wrong}")
            self.assertEqual(done.returncode, 1, wrong)
            self.assertIn("--in: ", done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
