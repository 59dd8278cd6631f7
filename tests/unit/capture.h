/* What a process writes to stderr, as text: for tests of messages. Needs _POSIX_C_SOURCE 200809. */
#ifndef SINTER_TESTS_CAPTURE_H
#define SINTER_TESTS_CAPTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct capture {
    FILE *file;
    int saved; /* the stderr that was */
} capture_t;

/* From here on stderr goes to a temporary file. */
static inline void capture_begin(capture_t *c)
{
    fflush(stderr);
    c->file = tmpfile();
    c->saved = dup(STDERR_FILENO);
    if (c->file == NULL || c->saved < 0 || dup2(fileno(c->file), STDERR_FILENO) < 0) {
        perror("capture");
        exit(1);
    }
}

/* The stderr that was; what was written meanwhile is in text, ended by a 0. */
static inline void capture_end(capture_t *c, char *text, size_t size)
{
    fflush(stderr);
    dup2(c->saved, STDERR_FILENO);
    close(c->saved);
    rewind(c->file);
    text[fread(text, 1, size - 1, c->file)] = '\0';
    fclose(c->file);
}

#endif
