#!/bin/sh
# Makes sure that everything the build and the tests need is there: installs missing Debian or Ubuntu packages where it can (apt, and root or sudo),
# otherwise says exactly what is missing and fails. With the argument "clang": also clang and LLVM's
# OpenMP, for tests/tsan.sh.
set -u
compilers=${1-}

compiles() { # header [library]
    printf '#include <stdio.h>\n#include <%s>\nint main(void) { return 0; }\n' "$1" | cc -x c - ${2:+-l"$2"} -o /dev/null 2>/dev/null
}

cmake_is_new_enough() {
    command -v cmake >/dev/null && [ "$(printf '3.25\n%s\n' "$(cmake --version | sed -n 's/^cmake version //p')" | sort -V | head -n 1)" = 3.25 ]
}

missing() {
    command -v cc >/dev/null && command -v c++ >/dev/null && command -v make >/dev/null || echo "build-essential"
    cmake_is_new_enough || echo "cmake" # 3.25 or newer
    command -v pkg-config >/dev/null || echo "pkg-config"
    command -v python3 >/dev/null || echo "python3"
    compiles libxsmm.h || echo "libxsmm-dev"
    compiles cjson/cJSON.h cjson || echo "libcjson-dev"
    if [ "$compilers" = clang ]; then
        command -v clang++ >/dev/null || echo "clang" # clang comes with it
        echo 'int main(void) { return 0; }' |
            clang -fsanitize=thread -x c - -o /dev/null 2>/dev/null || echo "libclang-rt-dev"
        # Archer comes with the OpenMP runtime of the same version.
        [ -e "$(clang -print-resource-dir 2>/dev/null)/../../libarcher.so" ] || echo "libomp-dev"
    fi
}

packages=$(missing)
[ -z "$packages" ] && exit 0
root=""
[ "$(id -u)" = 0 ] || root=sudo
if command -v apt-get >/dev/null && { [ -z "$root" ] || command -v sudo >/dev/null; }; then
    echo "installing:" $packages
    export DEBIAN_FRONTEND=noninteractive
    $root apt-get update -qq
    $root apt-get install -y -qq --no-install-recommends $packages >/dev/null
    packages=$(missing)
    [ -z "$packages" ] && exit 0
fi
echo "missing, by Debian package name (cmake: 3.25 or newer):" $packages >&2
exit 1
