#!/bin/sh
# Installs what is missing, builds the optimised and the sanitizer build, runs every test through
# ctest, and ends with one line that counts them.
set -u
cd "$(dirname "$0")/.."
passed=0 failed=0 skipped=0

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

build_and_test() { # preset
    step cmake --preset "$1"
    step cmake --build --preset "$1" -j "$(nproc)"
    report=$PWD/build/$1/tests.xml
    rm -f "$report"
    ctest --preset "$1" -j "$(nproc)" --output-junit "$report"
    step test -s "$report"
    total=$(count tests "$report") bad=$(count failures "$report")
    not_run=$(count skipped "$report")
    step test "$total" -gt 0
    passed=$((passed + total - bad - not_run))
    failed=$((failed + bad))
    skipped=$((skipped + not_run))
}

step tools/install_deps.sh format report
build_and_test release
build_and_test debug
finish
