#!/bin/sh
# with_isa.sh LEVEL COMMAND...: runs the command with the instruction set capped at LEVEL. Exits
# with 77 (skipped) where the machine lacks that level, and where LEVEL is the highest one that the
# machine has, because the run without a cap tests that one. A machine counts as having no more than
# SINTER_MAX_CPU_ISA, if the environment has that.
level=$1
shift

# From the lowest on, as in src/base/features.def.
known="generic avx2 avx2_vnni avx512 avx512_vnni"

flags_of() { # level: the CPU flags that it needs
    case $1 in
    generic) ;;
    avx2) echo "avx2 fma f16c" ;;
    avx2_vnni) echo "$(flags_of avx2) avx_vnni" ;;
    avx512) echo "$(flags_of avx2) avx512f avx512bw avx512dq avx512vl" ;;
    avx512_vnni) echo "$(flags_of avx512) avx512_vnni" ;;
    esac
}

kept_by() { # cap: the levels that it leaves
    case $1 in
    avx2_vnni) echo "generic avx2 avx2_vnni" ;;
    avx512) echo "generic avx2 avx512" ;;
    generic) echo "generic" ;;
    avx2) echo "generic avx2" ;;
    *) echo "$known" ;;
    esac
}

has_all() { # flags
    for flag in "$@"; do
        grep -q -m 1 "^flags.* $flag\b" /proc/cpuinfo || return 1
    done
}

case " $known " in
*" $level "*) ;;
*) echo "unknown level $level, expected one of $known" >&2; exit 1 ;;
esac
levels="" highest=""
for next in $(kept_by "${SINTER_MAX_CPU_ISA:-}"); do
    if has_all $(flags_of $next); then
        levels="$levels $next" highest=$next
    fi
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
