#!/usr/bin/env python3
"""tools/graph_report.py: pages of an attention, a gated MLP and a graph of several partitions in
headless Chromium, the picture, and what it says about wrong input.

test_report.py GRAPH_RUNNER

Skipped without Graphviz. Without Chromium the pages are only made, and the test counts as
skipped."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import chromium

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MODELS = os.path.join(ROOT, "models")
RUNNER = os.path.abspath(sys.argv.pop(1))
LIMITS = "read:24+copy:31+fma:187+int8:330"
SKIPPED = 77
MISSING = []  # why something was not tested


def report(*arguments, environment=None):
    tool = os.path.join(ROOT, "tools", "graph_report.py")
    return subprocess.run([sys.executable, "-B", tool, *arguments], capture_output=True, text=True,
                          check=False, env=environment)


def document(case, *options):
    done = subprocess.run([RUNNER, "--json", "--mode=L", f"--limits={LIMITS}", f"--case={case}",
                           *options], capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


class Report(unittest.TestCase):
    browser = None

    @classmethod
    def setUpClass(cls):
        try:
            cls.browser = chromium.Browser()
        except chromium.Refused as refused:
            MISSING.append(str(refused))

    @classmethod
    def tearDownClass(cls):
        if cls.browser:
            cls.browser.close()

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.page = os.path.join(self.scratch.name, "report.html")
        self.svg = os.path.join(self.scratch.name, "graph.svg")

    def tearDown(self):
        self.scratch.cleanup()

    def write(self, name, text):
        path = os.path.join(self.scratch.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def make(self, case, *arguments):
        done = report(case, "-o", self.page, f"--runner={RUNNER}", *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""), case)
        with open(self.page, encoding="utf-8") as file:
            return file.read()

    def picture_of(self, name):
        done = report(os.path.join(MODELS, name + ".json"), "--picture", self.svg, "--folded",
                      f"--runner={RUNNER}", f"--limits={LIMITS}")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        with open(self.svg, encoding="utf-8") as file:
            return file.read()

    # ---- in the browser ----

    def text_of(self, selector):
        return self.browser.value(f"document.querySelector({json.dumps(selector)}).innerText")

    def click(self, selector):
        """In the middle of an element, with the mouse."""
        x, y = self.browser.value(
            "(() => { const e = document.querySelector(%s); e.scrollIntoView({block: 'center'});"
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; "
            "})()" % json.dumps(selector))
        self.browser.click(x, y)

    def shown(self):
        return self.browser.value(
            "Array.from(document.querySelectorAll('.detail')).filter(d => !d.hidden)"
            ".map(d => d.id)")

    def check_picture(self, dark):
        """Not blank: text, lines and the colours of partitions on a ground of its own."""
        pixels = chromium.pixels(self.browser.screenshot(scale=0.15))
        ground = max(set(pixels), key=pixels.count)
        self.assertEqual(sum(ground[:3]) < 3 * 64, dark, ground)
        self.assertGreater(len(set(pixels)), 100)
        self.assertGreater(sum(p != ground for p in pixels), len(pixels) // 50)

    def check_in_browser(self, parts):
        """Opens the page. parts: graph_runner's."""
        if not self.browser:
            return
        names = [f"part-{part['id']}" for part in parts]
        for dark in (False, True):
            self.browser.open(self.page, dark=dark)
            self.check_picture(dark)
        for view, name in (("folded", "fold"), ("with-ops", "unfold")):
            if self.text_of("#fold") == name:
                self.click("#fold")
            boxes = self.browser.value(
                "Array.from(document.querySelectorAll('.graph-frame .%s .partition')).map(g => {"
                "const r = g.querySelector('.area').getBoundingClientRect();"
                "return [g.dataset.part, r.width > 20 && r.height > 20]; })" % view)
            self.assertEqual(sorted(boxes), sorted([str(part["id"]), True] for part in parts))
        points = self.browser.value("document.querySelectorAll('#roofline .point').length")
        self.assertEqual(points, len(parts))
        self.assertEqual(self.shown(), names[:1])
        for part, name in list(zip(parts, names))[-2:]:
            # A click on the row, and one on the title of the box.
            self.click(f"tr[data-part='{part['id']}']")
            self.assertEqual(self.shown(), [name])
            self.click("tr[data-part]")
            self.click(f".with-ops .partition[data-part='{part['id']}'] text")
            self.assertEqual(self.shown(), [name])
            self.check_details(part, self.text_of("#" + name))
        self.assertEqual(self.browser.errors, [])

    def check_details(self, part, text):
        """Ops, kernels with their ways, bytes, products and ports."""
        for op in part["ops"]:
            self.assertIn(op["kind"], text)
        for step in part["steps"]:
            self.assertIn(step["kernel"], text)
        steps = [n for found in re.findall(r"^steps? (\d+)(?: to (\d+))?: ", text, re.M)
                 for n in range(int(found[0]), int(found[1] or found[0]) + 1)]
        self.assertEqual(steps, list(range(len(part["steps"]))))
        if any(op["kind"] == "MatMul" for op in part["ops"]):
            self.assertRegex(text, r"(?m)^way: \S")
        for refused in part["refused_kernels"]:
            self.assertIn(f"kernel {refused['kernel']} was not chosen: {refused['reason']}", text)
        self.assertEqual("FLOP" in text, part["work"]["flops"] > 0)
        for word in ("reads", "writes", "products", "roofline", "Inputs and outputs"):
            self.assertIn(word, text)

    def check_page(self, name, *options):
        case = os.path.join(MODELS, name)
        text = self.make(case, f"--limits={LIMITS}", "--", *options)
        for outside in ("http://", "https://", "src="):
            self.assertNotIn(outside, text.replace("http://www.w3.org/2000/svg", ""))
        self.assertIn("the model's bounds only", text)
        parts = document(case, *options)["partitions"]
        self.check_in_browser(parts)
        return parts

    def test_attention(self):
        self.check_page("llama3-8b-decode-int4.json")

    def test_gated_mlp(self):
        self.check_page("patterns/gated-mlp-clamped.json")

    def test_several_partitions(self):
        parts = self.check_page("patterns/gated-mlp-quantized.json", "--no-fuse")
        self.assertGreater(len(parts), 8)

    def test_layer(self):
        """All of it: a picture of the arena, too, and reasons why partitions were not joined."""
        name = "layers/gemma3-270m-decode-int4-kv8-small"
        parts = self.check_page(name + ".json", "--in=3:=9+4:=5")
        self.assertIn("Scratch arena", self.picture_of(name))
        with open(self.page, encoding="utf-8") as file:
            text = file.read()
        for item in (item for part in parts for item in part["not_joined"]):
            self.assertIn(f"not joined as {item['join']} with {item['with']}", text)

    def test_measured(self):
        text = self.make(os.path.join(MODELS, "patterns", "sdpa-int4-kv.json"), "--measure",
                         "--min-time=0.01", f"--limits={LIMITS}", "--", "--threads=1")
        self.assertNotIn("the model's bounds only", text)
        self.assertIn("measured (median)", text)
        self.assertIn("--mode=P", text)

    def test_measured_nothing(self):
        """Attention of which a mask leaves nothing has a time and no roofline."""
        path = os.path.join(MODELS, "patterns", "sdpa-int4-kv.json")
        found = document(path)
        part = found["partitions"][0]
        part["work"] |= {"flops": 0, "read_bytes": 0, "written_bytes": 0, "roofline_memory_us": 0,
                         "roofline_products_us": 0}
        times = {"us": 5.0, "flops_per_second": 0, "bytes_per_second": 0}
        part["performance"] = found["performance"] = {"runs": 3, "min": times, "median": times}
        text = self.make(self.write("document.json", json.dumps(found)), "--document")
        self.assertIn("median 5 µs, best 5 µs of 3 runs<", text)

    def test_arena_and_picture(self):
        """A bar for each tensor of the sequence; pictures have all of it, too."""
        found = document(os.path.join(MODELS, "patterns", "gated-mlp-quantized.json"), "--no-fuse")
        path = self.write("document.json", json.dumps(found))
        bars = len(found["sequence"]["tensors"])
        self.assertGreater(bars, 8)
        for folded in ([], ["--folded"]):
            self.make(path, "--document", "--picture", self.svg, *folded)
            drawn = xml.etree.ElementTree.parse(self.svg).getroot()
            classes = [e.get("class", "").split() for e in drawn.iter()]
            self.assertEqual(sum("bar" in c for c in classes), bars)
            self.assertEqual(sum("partition" in c for c in classes), len(found["partitions"]))
        if self.browser:
            self.browser.open(self.page)
            self.assertEqual(
                self.browser.value("document.querySelectorAll('#arena .bar').length"), bars)
            last = found["sequence"]["tensors"][-1]["first"]
            self.click("#arena .bar:last-of-type")
            self.assertEqual(self.shown(), [f"part-{found['sequence']['partitions'][last]}"])
            self.assertEqual(self.browser.errors, [])

    def test_folded(self):
        """A partition is one box with its ops by kind; its constants are summed up."""
        case = os.path.join(MODELS, "gated-mlp-int4.json")
        path = self.write("document.json", json.dumps(document(case)))
        done = report(path, "--document", "--picture", self.svg, "--folded")
        self.assertEqual(done.returncode, 0)
        texts = [e.text for e in xml.etree.ElementTree.parse(self.svg).getroot().iter()
                 if e.tag.endswith("text")]
        self.assertIn("3 × DynamicDequantize, 3 × MatMul, Sigmoid", texts)
        self.assertEqual(sum(text.startswith("9 constants, ") for text in texts), 1)
        self.assertFalse(os.path.exists(self.page))

    def test_unknown_arena(self):
        found = document(os.path.join(MODELS, "typecast.json"))
        found["sequence"] = {"partitions": [0]}
        text = self.make(self.write("document.json", json.dumps(found)), "--document")
        self.assertIn("The arena depends on dims that are unknown until execute.", text)

    def test_wrong_arena(self):
        found = document(os.path.join(MODELS, "typecast.json"))
        found["sequence"] = {"scratch_bytes": 64, "partitions": [found["partitions"][0]["id"]],
                             "tensors": [{"id": 7, "bytes": 65, "offset": 0, "first": 0,
                                          "last": 0}]}
        done = report(self.write("document.json", json.dumps(found)), "--document", "-o", self.page)
        self.assertEqual(done.returncode, 1)
        self.assertIn("tensor 7 ends beyond the arena", done.stderr)

    def test_unsupported(self):
        """A graph that does not run has a page that says why."""
        def tensor(ident):
            return {"id": ident, "dtype": "f32", "shape": [2, 8], "stride": [8, 1],
                    "layout_type": "strided", "property_type": "variable"}

        graph = {"version": "3.0.0", "engine_kind": "cpu", "fpmath_mode": "strict",
                 "input_ports": [0, 2], "output_ports": [1], "graph": [
                     {"id": 5, "name": "gradient", "kind": "AbsBackward", "attrs": {},
                      "inputs": [tensor(0), tensor(2)], "outputs": [tensor(1)]}]}
        case = self.write("gradient.json", json.dumps(graph))
        done = report(case, "-o", self.page, f"--runner={RUNNER}", f"--limits={LIMITS}")
        self.assertEqual(done.returncode, 0)
        self.assertIn("the graph does not run: partition 0: op 5 (AbsBackward)", done.stderr)
        with open(self.page, encoding="utf-8") as file:
            self.assertIn("The graph does not run: partition 0: op 5 (AbsBackward)", file.read())

    def test_wrong_input(self):
        good = os.path.join(MODELS, "typecast.json")
        for arguments, words in (
                ([self.write("a.json", "{\"graph\": [")], "a.json:1:"),
                ([os.path.join(self.scratch.name, "none.json")], "no such file"),
                ([good, "--limits=read:x"], "--limits: expected a rate"),
                ([good, "--", "--no-such-option"], "no such option"),
                ([good, "--document"], "not a document that graph_runner --json printed"),
                ([good, "-o", os.path.join(self.scratch.name, "no", "folder")], "No such file")):
            done = report(*arguments[:1], "-o", self.page, f"--runner={RUNNER}", *arguments[1:])
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn(words, done.stderr)
            self.assertNotIn("Traceback", done.stderr)
            self.assertFalse(os.path.exists(self.page), arguments)

    def test_missing_programs(self):
        """Without Graphviz or graph_runner it says what to do."""
        case = os.path.join(MODELS, "typecast.json")
        done = report(case, "-o", self.page, "--runner=no/such/program")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cmake --build --preset release", done.stderr)
        done = report(case, "-o", self.page, environment=os.environ | {"PATH": self.scratch.name})
        self.assertEqual(done.returncode, 1)
        self.assertIn("tools/install_deps.sh report", done.stderr)

    def test_help(self):
        done = report("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("graph_report.py models/gated-mlp-int4.json -o report.html", done.stdout)


def main():
    if not shutil.which("dot"):
        print("skipped: there is no Graphviz; tools/install_deps.sh report installs it")
        return SKIPPED
    program = unittest.main(exit=False)
    if MISSING and program.result.wasSuccessful():
        print("pages were not opened:", "; ".join(MISSING))
        return SKIPPED
    return 0 if program.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
