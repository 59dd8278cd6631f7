#!/bin/sh
# headers.sh INCLUDE_DIR...: each public header compiles alone, as C11 and as C++17, without a
# warning.
set -eu
cc=${CC:-cc} cxx=${CXX:-c++} flags="" found=0
warnings="-Wall -Wextra -pedantic -Werror"
for dir in "$@"; do
    flags="$flags -I$dir -I$dir/sinter"
done
for dir in "$@"; do
    for header in "$dir"/sinter/*.h; do
        name=$(basename "$header")
        source=$(printf '#include <sinter/%s>\nextern int not_empty;' "$name")
        echo "$source" | $cc -std=c11 $warnings $flags -x c -fsyntax-only -
        echo "$source" | $cxx -std=c++17 $warnings $flags -x c++ -fsyntax-only -
        found=$((found + 1))
    done
done
echo "$found headers"
[ "$found" -ge 5 ]
