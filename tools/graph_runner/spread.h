/* How far the values of tensors spread, and how much less the inputs must, so that results can be
 * checked. */
#ifndef GR_SPREAD_H
#define GR_SPREAD_H

#include "model.h"

/* Of the elements of a tensor, taken as independent. What masks a score counts as 0. */
typedef struct spread {
    double mean, variance;
    int known;
    int scalable;  /* an input whose values may be brought nearer to the centre */
    double centre; /* of codes their zero point, else 0 */
} spread_t;

/* Follows the inputs' values through the graph to each op for which values can be too large, and
 * scales the inputs that they come from down. An error of an operand of SoftMax or Exp is a
 * relative one of the result, so that they should spread by about 1; a Quantize whose operands lie
 * far outside of its codes makes the ends of its type alone.
 *
 * spread: those of the inputs, and room for the others; gain: what the distances of an input's
 * values from its centre are multiplied with. Both by index of the tensor. Where an op cannot be
 * followed, the inputs stay as they are. */
void spread_limit(const model_t *model, spread_t *spread, double *gain);

#endif
