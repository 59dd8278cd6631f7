#!/bin/sh
# Builds Sinter and shows its main job on attention over an int4 KV cache: how the graph is
# partitioned and why, that the result is right, and how fast it is against this machine's limits.
set -eu
cd "$(dirname "$0")/.."
tools/install_deps.sh
echo "building graph_runner in build/release (minutes the first time) ..."
cmake --preset release >/dev/null
build() {
    cmake --build --preset release -j "$(nproc)" --target graph_runner
}
if [ -t 1 ]; then
    build
else # nobody watches: only what went wrong
    build >build/demo.log 2>&1 || { tail -n 30 build/demo.log; exit 1; }
fi

model=models/llama3-8b-decode-int4.json
run() {
    echo
    echo "\$ graph_runner $*"
    build/release/graph_runner "$@"
}
run --mode=L --explain --case=$model
run --mode=C --case=$model
run --mode=P --cold-cache --case=$model
