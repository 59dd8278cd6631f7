#!/bin/sh
# exports.sh LIBRARY INCLUDE_DIR: the library exports every function of the headers and not one
# symbol besides; in particular nothing of libxsmm and none of its BLAS stubs.
library=$1 headers=$2
case $library in
*.a) dynamic="" ;;
*) dynamic=-D ;;
esac
exported=$(nm $dynamic --extern-only --defined-only "$library" | awk 'NF == 3 { print $3 }' | sort)
declared=$(cat "$headers"/*.h | tr '\n' ' ' |
    grep -oE 'SINTER_API [a-z_0-9 *]*sinter_[a-z0-9_]+\(' | sed 's/($//; s/.*[ *]//' | sort)
if [ -z "$declared" ]; then
    echo "no declarations found in $headers" >&2
    exit 1
fi
difference=$(printf '%s\n%s\n' "$exported" "$declared" | sort | uniq -u)
[ -z "$difference" ] && exit 0
echo "declared or exported, but not both:"
echo "$difference"
exit 1
