/* --describe-op: what an op may look like. */
#ifndef GR_OPS_H
#define GR_OPS_H

#include "base.h"

/* Prints the schema of one op kind, by its JSON name, or of all ("all"), as text or as the markdown
 * of docs/ops.md. -1 with a message if there is no such kind. */
int gr_describe_op(const char *name, int markdown, gr_error_t *err);

#endif
