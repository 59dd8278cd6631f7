#!/bin/sh
# A graph that the library dumps loads again, gives the same partitions, and dumps to the same text.   roundtrip.sh GRAPH_RUNNER GRAPH.json...
set -u
runner=$1
shift
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

# Partitions with ops, ports, patterns and kernels; not the line that repeats the command.
listing() { "$runner" --mode=L --explain --case="$1" 2>/dev/null | grep -v -e "^PASSED" -e "^FAILED"; }

for graph in "$@"; do
    if "$runner" --mode=L --case="$graph" --dump-graph="$dir/a.json" >/dev/null && "$runner" --mode=L --case="$dir/a.json" --dump-graph="$dir/b.json" >/dev/null &&
        cmp -s "$dir/a.json" "$dir/b.json" && [ -n "$(listing "$graph")" ] && [ "$(listing "$graph")" = "$(listing "$dir/a.json")" ]; then
        passed=$((passed + 1))
    else
        echo "not the same again: $graph"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
