#!/bin/sh
# Builds with clang's ThreadSanitizer and UndefinedBehaviorSanitizer, installs what is missing for
# that, runs the tests that use threads, and says whether they are clean. LLVM's OpenMP and its tool
# Archer tell ThreadSanitizer what OpenMP synchronises; without Archer every parallel region would
# look like a race.
set -u
cd "$(dirname "$0")/.."
tests="test_races test_constants test_execute test_threads test_sequence test_whole test_inplace
    test_projections test_experts test_router test_recurrence"
export SINTER_RANDOM_CASES=60 # graphs of each kind: they run ten times as long

tools/install_deps.sh clang || exit 1
cmake --preset tsan && cmake --build --preset tsan -j "$(nproc)" --target $tests || exit 1

archer=$(clang -print-resource-dir)/../../libarcher.so
export OMP_TOOL_LIBRARIES="$archer" ARCHER_OPTIONS="verbose=1"
# libxsmm and the OpenMP runtime are not instrumented: what happens inside them is not looked at.
options="ignore_noninstrumented_modules=1 exitcode=66 ${TSAN_OPTIONS-}"
export UBSAN_OPTIONS="print_stacktrace=1 ${UBSAN_OPTIONS-}"
bad=0
for test in $tests; do
    mkdir -p "build/tsan/tests/work/tsan.$test"
    log=$PWD/build/tsan/tests/work/tsan.$test/log
    rm -f "$log".report.*
    # Reports go to files: a test may catch what is written to stderr.
    (cd "build/tsan/tests/work/tsan.$test" &&
        TSAN_OPTIONS="$options log_path=$log.report" ../../"$test") >"$log" 2>&1
    status=$?
    cat "$log".report.* >>"$log" 2>/dev/null
    if [ "$status" -ne 0 ] || grep -q -E "WARNING: ThreadSanitizer|runtime error:" "$log"; then
        tail -n 100 "$log"
        echo "$test: NOT clean (exit status $status), all of it in $log"
        bad=1
    elif ! grep -q "Archer detected OpenMP application with TSan" "$log"; then
        echo "$test: Archer was not loaded from $archer"
        bad=1
    else
        echo "$test: clean ($(tail -n 1 "$log"))"
    fi
done
[ "$bad" -eq 0 ] && echo "ThreadSanitizer and UndefinedBehaviorSanitizer: clean"
exit "$bad"
