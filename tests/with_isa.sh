#!/bin/sh
# with_isa.sh LEVEL COMMAND...: runs the command with the instruction set capped at LEVEL. Exits
# with 77 (skipped) where the machine lacks that level, and where LEVEL is the highest one that the
# machine has, because the run without a cap tests that one. A machine counts as having no more than
# SINTER_MAX_CPU_ISA, if the environment has that.
level=$1
shift

flags_of() { # level: the CPU flags that it adds to the levels before it
    case $1 in
    generic) ;;
    avx2) echo "avx2 fma f16c" ;;
    avx512) echo "avx512f avx512bw avx512dq avx512vl" ;;
    avx512_vnni) echo "avx512_vnni" ;;
    esac
}

has_all() { # flags
    for flag in "$@"; do
        grep -q -m 1 "^flags.* $flag\b" /proc/cpuinfo || return 1
    done
}

known="generic avx2 avx512 avx512_vnni"
case " $known " in
*" $level "*) ;;
*) echo "unknown level $level, expected one of $known" >&2; exit 1 ;;
esac
levels="" highest=""
for next in $known; do
    has_all $(flags_of $next) || break
    levels="$levels $next" highest=$next
    [ "$next" != "${SINTER_MAX_CPU_ISA:-}" ] || break
done
case "$levels " in
*" $level "*) ;;
*) echo "no level $level here, only$levels"; exit 77 ;;
esac
[ "$level" != "$highest" ] || {
    echo "$level is the highest level here: the run without a cap tests it"
    exit 77
}
SINTER_MAX_CPU_ISA=$level exec "$@"
