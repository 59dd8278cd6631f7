/* What the backend makes of a pattern. */
#ifndef SINTER_SRC_FAMILY_H
#define SINTER_SRC_FAMILY_H

/* FAMILY_GENERAL covers everything that runs as a list of steps with elementwise work attached to
 * them. Attention and the MLP of experts are one step each, if they can be. */
typedef enum family { FAMILY_SINGLE, FAMILY_GENERAL, FAMILY_ATTENTION, FAMILY_EXPERTS } family_t;

#endif
