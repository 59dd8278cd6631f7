#!/bin/sh
# limit_cpu.sh SECONDS COMMAND...: runs the command and ends it after that much processor time. A
# limit of wall time would fail on a machine that is busy with something else.
ulimit -S -t "$1" || exit 1
seconds=$1
shift
"$@"
status=$?
[ "$status" != 152 ] || # 128 + SIGXCPU
    echo "ended: it used more than $seconds seconds of processor time" >&2
exit "$status"
