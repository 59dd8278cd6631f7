/* Inputs that exercise a graph: values follow from what the tensor is used for. */
#ifndef GR_FILL_H
#define GR_FILL_H

#include "model.h"

/* Fills the elements of a graph input. A value depends on seed, tensor id and logical index
 * only, so that another layout or thread count gets the same numbers. */
void fill_input(const model_t *model, const model_tensor_t *tensor,
                const sinter_logical_tensor_t *lt, uint64_t seed, void *data);

/* The same for a run that is timed and not checked: the values of a large tensor repeat after a
 * million elements, in the order of memory, which takes a fraction of the time. bytes: of data. */
void fill_for_timing(const model_t *model, const model_tensor_t *tensor,
                     const sinter_logical_tensor_t *lt, uint64_t seed, void *data, size_t bytes);

#endif
