/* What the backend makes of a pattern. */
#ifndef SINTER_SRC_FAMILY_H
#define SINTER_SRC_FAMILY_H

/* FAMILY_GENERAL covers everything that runs as a list of steps with elementwise work attached to
 * them. */
typedef enum family { FAMILY_SINGLE, FAMILY_GENERAL, FAMILY_ATTENTION } family_t;

#endif
