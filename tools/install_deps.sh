#!/bin/sh
# Makes sure that everything the build and the tests need is there: installs missing Debian or
# Ubuntu packages where it can (apt, and root or sudo), otherwise says exactly what is missing and
# fails. With the argument "clang": also clang and LLVM's OpenMP, for tests/tsan.sh. With "format"
# and "report": also clang-format; Graphviz and Chromium, if they can be had. The tests that need
# them are skipped without them. With "venv": what Python needs to make virtual environments.
set -u

wanted() { # argument
    case " $arguments " in *" $1 "*) return 0 ;; esac
    return 1
}
arguments=$*

compiles() { # header [library]
    printf '#include <stdio.h>\n#include <%s>\nint main(void) { return 0; }\n' "$1" |
        cc -x c - ${2:+-l"$2"} -o /dev/null 2>/dev/null
}

cmake_is_new_enough() { # 3.25
    command -v cmake >/dev/null || return 1
    found=$(cmake --version | sed -n 's/^cmake version //p')
    [ "$(printf '3.25\n%s\n' "$found" | sort -V | head -n 1)" = 3.25 ]
}

missing() {
    for program in cc c++ make; do
        command -v $program >/dev/null || { echo "build-essential"; break; }
    done
    cmake_is_new_enough || echo "cmake" # 3.25 or newer
    command -v pkg-config >/dev/null || echo "pkg-config"
    command -v python3 >/dev/null || echo "python3"
    wanted venv && for python in python3 /usr/bin/python3; do # tests/run.sh takes the second one
        ! command -v $python >/dev/null || $python -c "import ensurepip" 2>/dev/null ||
            { echo "python3-venv"; break; }
    done
    compiles libxsmm.h || echo "libxsmm-dev"
    compiles cjson/cJSON.h cjson || echo "libcjson-dev"
    if wanted clang; then
        command -v clang++ >/dev/null || echo "clang" # clang comes with it
        echo 'int main(void) { return 0; }' |
            clang -fsanitize=thread -x c - -o /dev/null 2>/dev/null || echo "libclang-rt-dev"
        # Archer comes with the OpenMP runtime of the same version.
        [ -e "$(clang -print-resource-dir 2>/dev/null)/../../libarcher.so" ] || echo "libomp-dev"
    fi
}

root=""
[ "$(id -u)" = 0 ] || root=sudo
export DEBIAN_FRONTEND=noninteractive

can_install() {
    command -v apt-get >/dev/null && { [ -z "$root" ] || command -v sudo >/dev/null; }
}

install() {
    echo "installing:" "$@"
    $root apt-get update -qq
    $root apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

packages=$(missing)
if [ -n "$packages" ]; then
    can_install && install $packages
    packages=$(missing)
fi
if [ -n "$packages" ]; then
    echo "missing, by Debian package name (cmake: 3.25 or newer):" $packages >&2
    exit 1
fi

optional() { # program package what-is-lost
    command -v "$1" >/dev/null && return
    can_install && install "$2"
    command -v "$1" >/dev/null || echo "no $1: $3"
}
if wanted format; then
    optional clang-format clang-format "the layout of C is not tested"
fi
if wanted report; then
    optional dot graphviz "tools/graph_report.py does not work"
    optional chromium chromium "the pages of tools/graph_report.py are not tested"
fi
exit 0
