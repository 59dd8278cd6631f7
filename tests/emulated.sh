#!/bin/sh
# emulated.sh [argument of ctest...]: the unit tests and lists at both levels of AVX-512, on a
# machine that has no more than AVX2. The build compiles the library's files for AVX-512 as they
# are, over C in place of the instructions (tests/emulated); what libxsmm generates is for AVX2.
# Without arguments: the tests of vectors; with any, the tests that ctest picks by them.
set -u
cd "$(dirname "$0")/.."

cmake -S . -B build/emulated -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE="-O2 -DNDEBUG" \
    -DSINTER_EMULATE_AVX512=ON && cmake --build build/emulated -j "$(nproc)" || exit 1

# The other variants are other levels, and what does not hold here.
variants='\.(generic|avx2|avx2_vnni|avx512|avx512_vnni|nojit|threads[0-9])$'
[ $# -gt 0 ] || set -- -R '^(unit|list)\.'
bad=0
for level in avx512 avx512_vnni; do
    echo "---- $level"
    SINTER_MAX_CPU_ISA=$level ctest --test-dir build/emulated -j "$(nproc)" --output-on-failure \
        -E "$variants" "$@" || bad=1
done
exit "$bad"
