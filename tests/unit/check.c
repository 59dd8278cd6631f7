#include "check.h"

#include <stdarg.h>
#include <stdio.h>

enum { MOST_PRINTED = 40, SKIPPED = 77 };

atomic_long check_passed, check_failed;
static atomic_long skipped;

void check_at(bool ok, int line, const char *format, ...)
{
    check_passed += ok;
    check_failed += !ok;
    if (ok || check_failed > MOST_PRINTED) {
        return;
    }
    printf("FAILED ");
    if (line > 0) {
        printf("line %d: ", line);
    }
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

void check_skip(const char *format, ...)
{
    skipped++;
    printf("not tested: ");
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

int check_finish(void)
{
    printf("%ld passed, %ld failed\n", check_passed, check_failed);
    if (check_passed + check_failed > 0) {
        return check_failed != 0;
    }
    if (skipped > 0) {
        return SKIPPED;
    }
    printf("FAILED: no checks made\n");
    return 1;
}
