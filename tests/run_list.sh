#!/bin/sh
# run_list.sh GRAPH_RUNNER LIST [OPTION...]: runs a list of graph_runner command lines; 77 (skipped) if its graphs live beside the project and are not there.
runner=$1 list=$2
shift 2
first=$(sed -n 's/^[^#]*--case=\([^ ]*\).*/\1/p' "$list" | head -n 1)
if [ -z "$first" ]; then
    echo "$list names no graph" >&2
    exit 1
fi
case $first in
../../../*) [ -e "$(dirname "$list")/$first" ] || { echo "$first is not there"; exit 77; } ;;
esac
exec "$runner" "$@" --batch="$list"
