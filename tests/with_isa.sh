#!/bin/sh
# with_isa.sh LEVEL COMMAND...: runs the command capped at that level; 77 (skipped) if the machine does not have it.
level=$1
shift
case $level in
generic) needs="" ;;
avx2) needs="avx2 fma f16c" ;;
avx512) needs="avx2 fma f16c avx512f avx512bw avx512dq avx512vl" ;;
avx512_vnni) needs="avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512_vnni" ;;
*) echo "unknown level $level" >&2; exit 1 ;;
esac
flags=" $(grep -m 1 '^flags' /proc/cpuinfo) "
for flag in $needs; do
    case $flags in
    *" $flag "*) ;;
    *) echo "this machine has no $flag"; exit 77 ;;
    esac
done
SINTER_MAX_CPU_ISA=$level exec "$@"
