#!/bin/bash
# soak.sh [--minutes=60] [--seed=N] [--only=graphs|designs|damaged]: long runs of the tests that
# draw their cases, under AddressSanitizer and UndefinedBehaviorSanitizer, at every cap of the
# instruction set. Each kind of test gets that many minutes of one processor, divided over the caps;
# all processors work. What this machine lacks of AVX-512 runs over tests/emulated. Prints a line
# for each kind and cap, and where a run failed the command that repeats it; ends with the counts.
set -u
cd "$(dirname "$0")/.."
minutes=60 seed=$(date +%s) only=""
for argument in "$@"; do
    case $argument in
    --minutes=*) minutes=${argument#*=} ;;
    --seed=*) seed=${argument#*=} ;;
    --only=*) only=${argument#*=} ;;
    *) sed -n '2,6s/^# //p' "$0"; exit 2 ;;
    esac
done

declare -A programs=(
    [graphs]="test_random"
    [designs]="test_attention_matrix test_conv_matrix test_matmul_random test_matmul_rows
        test_quant_tail"
    [damaged]="test_random_json"
)
kinds=${only:-graphs designs damaged}
for kind in $kinds; do
    if [ -z "${programs[$kind]-}" ]; then
        echo "unknown kind $kind, expected one of ${!programs[*]}"
        exit 2
    fi
done
caps=$(sed -n 's/^SINTER_LEVEL(\([a-z0-9_]*\),.*/\1/p' src/base/features.def)
targets=${programs[*]}
signs="runtime error|ERROR: AddressSanitizer|Assertion|^FAILED|^[0-9a-f]{16} " # of what failed

build() { # folder [option...]
    cmake -S . -B "$@" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="-O1 -g1" \
        -DSINTER_SANITIZE=ON >/dev/null &&
        cmake --build "$1" -j "$(nproc)" --target $targets >/dev/null
}
echo "building"
tools/install_deps.sh && build build/debug || exit 1
grep -q -m 1 '^flags.* avx512_vnni\b' /proc/cpuinfo ||
    build build/emulated-debug -DSINTER_EMULATE_AVX512=ON || exit 1

# Runs the programs of a kind at a cap in turn, each time with the next seed, until time is up.
soak() { # kind cap seconds
    local kind=$1 cap=$2 until=$((SECONDS + $3)) next=$seed runs=0 checks=0 bad=0 folder=build/debug
    local level log program count
    # A level that the machine has runs natively. One of AVX-512 that it lacks runs emulated.
    level=$(tests/with_isa.sh "$cap" true 2>&1)
    if [[ $level == no\ level* ]]; then
        [[ $cap == avx512* ]] || { echo "$kind $cap: skipped, $level"; return 0; }
        folder=build/emulated-debug
    fi
    log=$(mktemp -d)
    while [ $SECONDS -lt "$until" ]; do
        for program in ${programs[$kind]}; do
            [ $SECONDS -lt "$until" ] || break
            runs=$((runs + 1))
            export SINTER_MAX_CPU_ISA=$cap SINTER_RANDOM_SEED=$next OMP_WAIT_POLICY=passive
            if ! (cd "$log" && timeout 3600 "$OLDPWD/$folder/tests/$program" >out 2>&1); then
                bad=$((bad + 1))
                echo "FAILED: SINTER_MAX_CPU_ISA=$cap SINTER_RANDOM_SEED=$next" \
                    "$folder/tests/$program"
                grep -m 5 -E "$signs" "$log/out"
            fi
            count=$(sed -n 's/^\([0-9]*\) passed.*/\1/p' "$log/out" | tail -n 1)
            checks=$((checks + ${count:-0}))
        done
        next=$((next + 1))
    done
    rm -r "$log"
    echo "$kind $cap: $runs runs from seed $seed on, $checks checks passed, $bad runs failed"
    [ "$bad" -eq 0 ]
}

result=$(mktemp)
seconds=$((minutes * 60 / $(echo $caps | wc -w)))
for kind in $kinds; do
    for cap in $caps; do
        while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do
            wait -n
        done
        { soak "$kind" "$cap" "$seconds" || echo "$kind $cap" >>"$result"; } &
    done
done
wait
bad=$(wc -l <"$result")
rm "$result"
echo "$bad of the runs above found something"
[ "$bad" -eq 0 ]
