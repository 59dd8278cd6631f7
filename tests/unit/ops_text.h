/* Graphs as the text of their ops. */
#ifndef SINTER_TESTS_OPS_TEXT_H
#define SINTER_TESTS_OPS_TEXT_H

#include <stdio.h>
#include <stdlib.h>

#include "e2e.h"

#define T(id, type, shape) "{\"id\": " #id ", \"dtype\": \"" #type "\", \"shape\": [" shape "]}"
#define OP(id, kind, attrs, in, out)                                                      \
    "{\"id\": " #id ", \"kind\": \"" #kind "\", \"attrs\": {" attrs "}, \"inputs\": [" in \
    "], \"outputs\": [" out "]}"
#define ATTR(name, type, value) "\"" name "\": {\"type\": \"" type "\", \"value\": " value "}"

/* ops: with commas between them. Ends the program with a message if they are no graph. */
static inline void load_text(model_t *model, const char *ops)
{
    enum { MOST = 4096 };
    char text[MOST];
    gr_error_t err = {{0}, 0};
    const int n = snprintf(text, sizeof text,
                           "{\"engine_kind\": \"cpu\", \"fpmath_mode\": "
                           "\"strict\", \"graph\": [%s]}",
                           ops);
    if (n >= MOST || model_load_text(model, "ops", text, (size_t)n, &err)) {
        fprintf(stderr, "%s\n%s\n", err.text, text);
        exit(1);
    }
}

#endif
