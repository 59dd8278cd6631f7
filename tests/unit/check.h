/* The checks of a test program, counted in one place for all of its files:
 * CHECK(condition, "what %d", ...), and at the end of main `return check_finish();`. A program that
 * made no check has failed, unless check_skip said why there was nothing to check. */
#ifndef SINTER_TESTS_CHECK_H
#define SINTER_TESTS_CHECK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

extern atomic_long check_passed, check_failed; /* threads may check, too */

/* Counts one check and prints a failure, at most 40 of them. line: in the program's file, or 0. */
__attribute__((format(printf, 3, 4))) void check_at(bool ok, int line, const char *format, ...);
/* Something that this machine or this build cannot test, and why. */
__attribute__((format(printf, 1, 2))) void check_skip(const char *format, ...);
/* Prints the count that test runners read. The exit status of the program: 0 passed, 1 failed or
 * nothing checked, 77 skipped. */
int check_finish(void);

#define CHECK(ok, ...) check_at((ok), __LINE__, __VA_ARGS__)

#endif
