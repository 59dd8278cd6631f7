#!/bin/sh
# Shows what llama.cpp gains: the same prompt for SmolLM2-135M-Instruct on the CPU backend of a
# prebuilt llama.cpp, and on Sinter, loaded into the same llama.cpp as a backend. Prints both texts,
# tokens/s, and where the time goes. The model, llama.cpp and its headers come from PyPI, into
# build/llm-demo. Arguments: tools/llm_demo.py --help.
set -eu
cd "$(dirname "$0")/.."
tools/install_deps.sh venv
exec python3 -B tools/llm_demo.py "$@"
