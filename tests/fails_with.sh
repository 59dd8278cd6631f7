#!/bin/sh
# fails_with.sh TEXT COMMAND...: passes if the command prints the text and fails with exit status 1.
text=$1
shift
output=$("$@" 2>&1)
status=$?
echo "$output"
if [ $status -ne 1 ]; then
    echo "exit status $status, expected 1"
    exit 1
fi
case $output in
*"$text"*) ;;
*) echo "expected \"$text\""; exit 1 ;;
esac
