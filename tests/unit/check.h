/* Counting checks for a test program in one file: CHECK(condition, "what %d", ...) and at the end `return check_finish();`. */
#ifndef SINTER_TESTS_CHECK_H
#define SINTER_TESTS_CHECK_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static long check_passed, check_failed;

__attribute__((format(printf, 3, 4))) static inline void check_at(bool ok, int line, const char *format, ...)
{
    check_passed += ok;
    check_failed += !ok;
    if (ok || check_failed > 40) {
        return;
    }
    va_list args;
    va_start(args, format);
    printf("FAILED line %d: ", line);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

#define CHECK(ok, ...) check_at((ok), __LINE__, __VA_ARGS__)

static inline int check_finish(void)
{
    printf("%ld passed, %ld failed\n", check_passed, check_failed);
    return check_failed != 0 || check_passed == 0;
}

#endif
