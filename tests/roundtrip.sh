#!/bin/sh
# A graph that the library dumps loads again, gives the same partitions, and dumps to the same text.
# roundtrip.sh GRAPH_RUNNER GRAPH.json...
set -u
runner=$1
shift
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

# Partitions with ops, ports, patterns and kernels; not the line that repeats the command.
listing() {
    "$runner" --mode=L --explain --case="$1" 2>/dev/null | grep -v -e "^PASSED" -e "^FAILED"
}

dump() { "$runner" --mode=L --case="$1" --dump-graph="$2" >/dev/null; }

for graph in "$@"; do
    before=$(listing "$graph")
    if dump "$graph" "$dir/a.json" && dump "$dir/a.json" "$dir/b.json" &&
        cmp -s "$dir/a.json" "$dir/b.json" &&
        [ -n "$before" ] && [ "$before" = "$(listing "$dir/a.json")" ]; then
        passed=$((passed + 1))
    else
        echo "not the same again: $graph"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
