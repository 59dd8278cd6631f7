#!/bin/sh
# no_checks.sh COMMAND...: passes if the command, told to check nothing, says so and fails with exit status 1.
output=$("$@")
status=$?
echo "$output"
if [ $status -ne 1 ]; then
    echo "exit status $status, expected 1"
    exit 1
fi
case $output in
*"no checks made"*) ;;
*) echo 'expected "no checks made"'; exit 1 ;;
esac
