/* The knobs that change a graph before it is built. Each takes the text of its option and
 * indexes into the model; a message names the part of the text that is wrong. */
#ifndef GR_REWRITE_H
#define GR_REWRITE_H

#include "model.h"
#include "options.h"

/* All rewriting options, in the order: batch, shapes, data types, op attributes, graph fpmath
 * mode. */
int gr_rewrite(model_t *model, const gr_options_t *opt, gr_error_t *err);

/* --dynamic: makes dims of graph inputs unknown, and forgets the shapes that are computed from
 * them. */
int gr_rewrite_dynamic(model_t *model, const char *text, gr_error_t *err);

/* "MODE[:true|:false]" */
int gr_parse_fpmath(const char **p, sinter_fpmath_mode_t *mode, int *apply_to_int);

#endif
