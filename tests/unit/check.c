#include "check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_PRINTED = 40, SKIPPED = 77 };

atomic_long check_passed, check_failed;
static atomic_long skipped;

/* Weak: the oracle's own test runs without the library. */
__attribute__((weak)) const char *sinter_last_error_message(void);

/* The library's last error, if it is another one than at this thread's check before. */
static const char *new_error(void)
{
    static _Thread_local char before[1024];
    const char *error = sinter_last_error_message != NULL ? sinter_last_error_message() : "";
    if (strncmp(error, before, sizeof before - 1) == 0) {
        return "";
    }
    snprintf(before, sizeof before, "%s", error);
    return error;
}

bool check_at(bool ok, int line, const char *format, ...)
{
    const char *error = new_error();
    check_passed += ok;
    check_failed += !ok;
    if (ok || check_failed > MOST_PRINTED) {
        return ok;
    }
    char message[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    printf(error[0] != '\0' ? "FAILED line %d: %s (last error: %s)\n" : "FAILED line %d: %s\n",
           line, message, error);
    return ok;
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
