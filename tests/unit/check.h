/* The checks of a test program, counted in one place for all of its files and threads:
 *
 *     CHECK(got == want, "%s: got %d, want %d", name, got, want);
 *     CHECK_THAT(sinter_engine_create(&engine, NULL) == sinter_success);
 *
 * and main ends in `return check_finish();`. A program that made no check has failed, unless
 * check_skip said why there was nothing to check. */
#ifndef SINTER_TESTS_CHECK_H
#define SINTER_TESTS_CHECK_H

#include <stdatomic.h>
#include <stdbool.h>

/* Checks a condition, and is its value. A failure prints the line, the message and, if there is
 * one since the check before, the library's error. */
#define CHECK(condition, ...) check_at((condition), __LINE__, __VA_ARGS__)
/* The same where the condition is its own message. */
#define CHECK_THAT(condition) CHECK((condition), "%s", #condition)

extern atomic_long check_passed, check_failed;

/* CHECK with the line of a caller. At most 40 failures are printed. */
__attribute__((format(printf, 3, 4))) bool check_at(bool ok, int line, const char *format, ...);
/* Says what this machine or this build cannot test, and why. */
__attribute__((format(printf, 1, 2))) void check_skip(const char *format, ...);
/* Prints the count that test runners read. The exit status of the program: 0 passed, 1 failed or
 * nothing checked, 77 skipped. */
int check_finish(void);

#endif
