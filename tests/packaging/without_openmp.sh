#!/bin/sh
# without_openmp.sh CMAKE SOURCE_DIR: the library built without OpenMP needs none, and runs on one
# thread or on the caller's.
set -eu
cmake=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run() {
    "$@" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
}
run "$cmake" -S "$source" -B "$work/build" -DSINTER_OPENMP=OFF -DBUILD_TESTING=OFF \
    -DSINTER_BUILD_TOOLS=OFF -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O1
run "$cmake" --build "$work/build" -j "$(nproc)" --target sinter_shared example_sdpa
readelf -d "$work/build/libsinter.so" | grep NEEDED >"$work/needed"
if grep -E 'lib(gomp|omp|iomp)' "$work/needed"; then
    echo "the library links OpenMP"
    exit 1
fi
run "$work/build/examples/example_sdpa"
"${CC:-cc}" -std=c11 -D_POSIX_C_SOURCE=200809L -o "$work/program" \
    "$source/tests/process/pool_program.c" "$source/tests/process/product.c" \
    "$source/tests/unit/pool.c" -I"$source/tests/process" -I"$source/tests/unit" \
    -I"$source/include" -I"$work/build/include" -I"$work/build/include/sinter" \
    -L"$work/build" -lsinter -Wl,-rpath,"$work/build" -pthread -lm
"$work/program"
