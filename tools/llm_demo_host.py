#!/usr/bin/env python3
"""A part of llm_demo.py: loads a model with llama.cpp as the package llama-cpp-py-sync has it,
continues a prompt greedily on one device, prints the text as it comes, and writes what it measured
as JSON. With --profile it sums up times by op instead."""
import argparse
import collections
import ctypes
import json
import os
import sys
import time

import numpy as np
from llama_cpp_py_sync import _cffi_bindings as bindings

FOLDER = os.path.dirname(bindings.__file__)
for argument in sys.argv:
    if argument.startswith("--shim="):
        # What the host's libraries miss in this C library.
        ctypes.CDLL(argument.partition("=")[2], mode=ctypes.RTLD_GLOBAL)
# A backend that the host loads takes ggml's functions from the process.
BASE = ctypes.CDLL(os.path.join(FOLDER, "libggml-base.so.0"), mode=ctypes.RTLD_GLOBAL)
ffi, lib = bindings.get_ffi(), bindings.get_lib()
BATCH = 512


def say(text, end="\n"):
    print(text, end=end, file=sys.stderr, flush=True)


def load_backends():
    """Those that the host has, and the one that GGML_BACKEND_PATH names."""
    ctypes.CDLL(os.path.join(FOLDER, "libggml.so.0")).ggml_backend_load_all()
    BASE.ggml_version.restype = BASE.ggml_op_desc.restype = ctypes.c_char_p
    BASE.ggml_op_desc.argtypes = [ctypes.c_void_p]


class Times:
    """Seconds by op. The scheduler asks before each node and tells when it is computed, so nodes
    are computed one by one."""

    def __init__(self):
        self.start = 0.0
        self.seconds = collections.Counter()
        self.callback = ffi.callback("ggml_backend_sched_eval_callback", self.node)

    def node(self, tensor, ask, _):
        if ask:
            self.start = time.perf_counter()
        else:
            name = BASE.ggml_op_desc(int(ffi.cast("uintptr_t", tensor))).decode()
            self.seconds[name] += time.perf_counter() - self.start
        return True


class Host:
    """A model and its context on one device."""

    def __init__(self, options, times):
        say(f"loading {os.path.basename(options.model)} ... ", end="")
        start = time.perf_counter()
        self.silent = ffi.callback("ggml_log_callback", lambda *_: None)
        if not os.environ.get("SINTER_VERBOSE"):
            lib.llama_log_set(self.silent, ffi.NULL)
        lib.llama_backend_init()
        device = bindings.get_backend_lib().ggml_backend_dev_by_name(options.device.encode())
        if device == ffi.NULL:
            sys.exit(f"llama.cpp has no device {options.device}: the backend was not loaded")
        self.devices = ffi.new("ggml_backend_dev_t[]", [device, ffi.NULL])
        params = lib.llama_model_default_params()
        if options.device == "CPU":
            params.n_gpu_layers = 0
        else:
            params.devices, params.n_gpu_layers = self.devices, 999
        self.model = lib.llama_model_load_from_file(options.model.encode(), params)
        if self.model == ffi.NULL:
            sys.exit(f"{options.model} cannot be loaded")
        self.vocabulary = lib.llama_model_get_vocab(self.model)
        with open(options.prompt, encoding="utf-8") as file:
            self.prompt = self.tokens(file.read())
        params = lib.llama_context_default_params()
        params.n_ctx = len(self.prompt) + options.tokens + 8
        params.n_batch = params.n_ubatch = BATCH
        params.n_threads = params.n_threads_batch = options.threads
        params.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_ENABLED
        params.type_k = params.type_v = getattr(lib, f"GGML_TYPE_{options.cache.upper()}")
        params.offload_kqv = params.op_offload = options.device != "CPU"
        if times:
            params.cb_eval = times.callback
        self.context = lib.llama_init_from_model(self.model, params)
        if self.context == ffi.NULL:
            sys.exit("llama.cpp makes no context of these parameters")
        self.load = time.perf_counter() - start
        say(f"{self.load:.1f} s")

    def tokens(self, text):
        raw = text.encode()
        found = ffi.new("llama_token[]", len(raw) + 16)
        n = lib.llama_tokenize(self.vocabulary, raw, len(raw), found, len(found), True, True)
        return list(found[0:n])

    def text(self, token):
        piece = ffi.new("char[]", 256)
        n = lib.llama_token_to_piece(self.vocabulary, token, piece, 256, 0, False)
        return ffi.buffer(piece, max(n, 0))[:]

    def decode(self, tokens):
        """Appends tokens; the logits behind the last one."""
        for at in range(0, len(tokens), BATCH):
            part = ffi.new("llama_token[]", tokens[at:at + BATCH])
            if lib.llama_decode(self.context, lib.llama_batch_get_one(part, len(part))):
                sys.exit("llama_decode failed")
        n = lib.llama_vocab_n_tokens(self.vocabulary)
        logits = lib.llama_get_logits_ith(self.context, -1)
        return np.frombuffer(ffi.buffer(logits, 4 * n), np.float32)

    def forget(self):
        lib.llama_memory_clear(lib.llama_get_memory(self.context), True)


def continued(host, options, show):
    """The prompt and the tokens behind it, with times of the parts in seconds."""
    start = time.perf_counter()
    logits = host.decode(host.prompt)
    parts, rows = {"prompt": time.perf_counter() - start, "decode": 0.0, "choose": 0.0}, []
    while len(rows) < options.tokens:
        start = time.perf_counter()
        two = np.argpartition(logits, -2)[-2:]
        two = two[np.argsort(-logits[two])]
        rows.append([[int(token), float(logits[token])] for token in two])
        parts["choose"] += time.perf_counter() - start
        show(host.text(rows[-1][0][0]))
        if lib.llama_vocab_is_eog(host.vocabulary, rows[-1][0][0]) or len(rows) == options.tokens:
            break
        start = time.perf_counter()
        logits = host.decode([rows[-1][0][0]])
        parts["decode"] += time.perf_counter() - start
    return rows, parts


def show(piece):
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "prompt", "device", "cache", "result"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--shim", help="a library to load before the host's")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    load_backends()
    times = Times() if options.profile and options.device == "CPU" else None
    host = Host(options, times)
    result = {"version": BASE.ggml_version().decode(), "load": host.load,
              "system": ffi.string(lib.llama_print_system_info()).decode()}
    # The first run compiles graphs, or makes other copies of weights: it is measured by itself.
    say("first run ... ", end="")
    start = time.perf_counter()
    host.decode(host.prompt)
    host.decode(host.prompt[-1:])
    result["first"] = time.perf_counter() - start
    say(f"{result['first']:.1f} s")
    host.forget()
    if options.profile:
        host.decode(host.prompt)
        if times:
            times.seconds.clear()
        say("decoding begins")
        start = time.perf_counter()
        for token in host.prompt[:options.tokens]:
            host.decode([token])
        result["seconds"] = time.perf_counter() - start
        say("decoding ends")
        result["ops"] = times.seconds if times else {}
    else:
        rows, result["parts"] = continued(host, options, show)
        result |= {"rows": rows, "prompt": len(host.prompt)}
    with open(options.result, "w", encoding="utf-8") as file:
        json.dump(result, file)
    # The library's threads and the model go with the process.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
