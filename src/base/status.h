/* Failing: one status, one message. The message is the calling thread's, what
 * sinter_last_error_message() returns. status.c defines the public sinter_last_error_message,
 * sinter_status_name and sinter_set_verbose. */
#ifndef SINTER_SRC_STATUS_H
#define SINTER_SRC_STATUS_H

#include <stddef.h>

#include <sinter/sinter_types.h>

/* Formats the message, prints it under SINTER_VERBOSE=error, and returns status: `return
 * sg_fail(sinter_invalid_shape, "...", ...)`. Never allocates. */
sinter_status_t sg_fail(sinter_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define SG_TRY(expr)                             \
    do {                                         \
        sinter_status_t sg_try_status_ = (expr); \
        if (sg_try_status_ != sinter_success) {  \
            return sg_try_status_;               \
        }                                        \
    } while (0)

/* NULL arguments of public functions. */
#define SG_REQUIRE(cond)                                                                        \
    do {                                                                                        \
        if (!(cond)) {                                                                          \
            return sg_fail(sinter_invalid_arguments, "%s: argument check failed: %s", __func__, \
                           #cond);                                                              \
        }                                                                                       \
    } while (0)

/* The same for several pointers that must not be NULL: their names, in order. */
#define SG_REQUIRE_ALL(...)                                                       \
    SG_TRY(sg_require(__func__, #__VA_ARGS__, (const void *const[]){__VA_ARGS__}, \
                      sizeof((const void *const[]){__VA_ARGS__}) / sizeof(void *)))
sinter_status_t sg_require(const char *function, const char *names, const void *const *pointers,
                           size_t n);

/* Copies a public struct between the caller and the library. The caller's headers may be older or
 * newer than the library, so its struct may be shorter or longer than ours: the fields that both
 * have are copied, the others are left alone. size: the caller's. */
sinter_status_t sg_copy_sized(void *to, const void *from, size_t size, size_t ours,
                              const char *name);

/* Verbose classes, from SINTER_VERBOSE or sinter_set_verbose. */
enum { SG_VERBOSE_ERROR = 1, SG_VERBOSE_DISPATCH = 2, SG_VERBOSE_COMPILE = 4, SG_VERBOSE_EXEC = 8 };
int sg_verbose(void);
/* One line on stderr if the class is on; the newline is added. */
void sg_log(int verbose_class, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
