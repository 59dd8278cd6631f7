#!/bin/sh
# run.sh [--all] [option of CMake...]: installs what is missing, builds the optimised and the
# sanitizer build, runs the tests through ctest, and ends with the skipped tests by reason, the
# slowest ones, and one line that counts all. Slow tests (label slow: other projects are compiled,
# real layers and the checklists of docs/extending.md are run, every level takes the long designs)
# are left out without --all. The options go to both builds: tests/run.sh -DSINTER_WERROR=ON.
set -u
cd "$(dirname "$0")/.."
passed=0 failed=0 skipped=0
# The distribution's interpreter, whatever comes first in PATH: scripts must run with it.
python=/usr/bin/python3
left_out="-LE slow"
if [ "${1-}" = --all ]; then
    left_out=""
    shift
fi

finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
}

step() { # command that must succeed for anything after it to make sense
    "$@" && return
    echo "failed: $*" >&2
    failed=$((failed + 1))
    finish
}

count() { # attribute of the testsuite element in a JUnit report
    sed -n "s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" "$2" | head -n 1
}

build_and_test() { # preset, options of CMake
    preset=$1
    shift
    step cmake --preset "$preset" "-DPython3_EXECUTABLE=$python" "$@"
    step cmake --build --preset "$preset" -j "$(nproc)"
    report=$PWD/build/$preset/tests.xml
    rm -f "$report"
    ctest --preset "$preset" -j "$(nproc)" $left_out --output-junit "$report"
    step test -s "$report"
    total=$(count tests "$report") bad=$(count failures "$report")
    not_run=$(count skipped "$report")
    step test "$total" -gt 0
    passed=$((passed + total - bad - not_run))
    failed=$((failed + bad))
    skipped=$((skipped + not_run))
}

step tools/install_deps.sh format report venv
[ -x $python ] || python=$(command -v python3)
build_and_test release "$@"
build_and_test debug "$@"
"$python" -B tests/summary.py build/release/tests.xml build/debug/tests.xml
finish
