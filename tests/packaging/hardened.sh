#!/bin/sh
# hardened.sh LIBRARY: symbols are bound at load and their table is read-only then; the code around
# the kernels has canaries and checked copies.
library=$1
missing=""
readelf -dW "$library" | grep -qE 'BIND_NOW|FLAGS_1.*NOW' || missing="$missing BIND_NOW"
readelf -lW "$library" | grep -q GNU_RELRO || missing="$missing GNU_RELRO"
imported=$(nm -D --undefined-only "$library")
for name in __stack_chk_fail __vsnprintf_chk; do
    echo "$imported" | grep -q "$name" || missing="$missing $name"
done
[ -z "$missing" ] && exit 0
echo "$library lacks:$missing"
exit 1
