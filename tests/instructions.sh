#!/bin/sh
# instructions.sh OBJECT...: objects of files for AVX2 and AVX-VNNI have no instruction that only
# CPUs with AVX-512 run (in 64-bit code these, and no others, begin with the byte 62), and what is
# there for products of integers uses vpdpbusd with vectors of its width. Exits with 77 (skipped)
# where there is no objdump, or where the machine that this is built for has no such files.
command -v objdump > /dev/null || { echo "no objdump"; exit 77; }

text=$(mktemp)
trap 'rm -f "$text"' EXIT
checked=0 failed=0

fail() { # message
    echo "$object: $1"
    failed=1
}

for object in "$@"; do
    name=$(basename "$object")
    name=${name%%.*}
    case $name in
    *_avx2) dot="" evex=no ;;
    *_avxvnni) dot=ymm evex=no ;;
    codes_vnni) dot=zmm evex=yes ;;
    *) continue ;;
    esac
    # -w: an instruction on one line, so that the rest of a long one is not taken for another.
    objdump -d -w "$object" > "$text" || exit 1
    grep -q "^[0-9a-f]* <" "$text" || continue # another machine's: an empty file
    checked=$((checked + 1))
    if [ $evex = no ] && grep -m 3 "^ *[0-9a-f]*:[[:space:]]*62 " "$text"; then
        fail "has instructions of AVX-512"
    fi
    if [ -z "$dot" ] && grep -m 3 "vpdpbusd" "$text"; then
        fail "has instructions of VNNI"
    fi
    if [ -n "$dot" ] && ! grep -q "vpdpbusd.*%$dot.*%$dot.*%$dot" "$text"; then
        fail "has no vpdpbusd of $dot registers"
    fi
done
[ $failed = 0 ] || exit 1
[ $checked -gt 0 ] || { echo "no objects for AVX2"; exit 77; }
echo "$checked objects checked"
