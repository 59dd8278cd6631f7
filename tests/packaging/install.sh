#!/bin/sh
# install.sh CMAKE BUILD_DIR SOURCE_DIR: installs into a fresh prefix; then the example builds and
# runs there with find_package (shared and static) and with pkg-config (shared and static).
set -eu
cmake=$1 build=$2 source=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
"$cmake" --install "$build" --prefix "$prefix" >"$work/install.log"
for file in sinter_version.h ops.def dtypes.def attrs.def; do
    test -f "$prefix/include/sinter/$file" || { echo "not installed: $file"; exit 1; }
done

"$cmake" -S "$source/tests/packaging/consumer" -B "$work/consumer" \
    -DCMAKE_PREFIX_PATH="$prefix" -DEXAMPLE="$source/examples/sdpa.c" >"$work/configure.log"
"$cmake" --build "$work/consumer"
for program in shared static; do
    "$work/consumer/$program" >"$work/out" || { cat "$work/out"; exit 1; }
    readelf -d "$work/consumer/$program" | grep NEEDED >"$work/needed"
    case $program in
    shared) grep -q 'libsinter\.so\.0' "$work/needed" ;;
    static) ! grep -q libsinter "$work/needed" ;;
    esac || { echo "$program: wrong library"; cat "$work/needed"; exit 1; }
done

PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name sinter.pc)")
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir sinter)
"${CC:-cc}" -std=c11 "$source/examples/sdpa.c" $(pkg-config --cflags --libs sinter) -lm \
    -o "$work/pc_shared"
LD_LIBRARY_PATH=$libdir "$work/pc_shared" >"$work/out" || { cat "$work/out"; exit 1; }
rm -f "$libdir"/libsinter.so*
"${CC:-cc}" -std=c11 -DSINTER_STATIC "$source/examples/sdpa.c" \
    $(pkg-config --cflags --libs --static sinter) -lm -o "$work/pc_static"
"$work/pc_static" >"$work/out" || { cat "$work/out"; exit 1; }
