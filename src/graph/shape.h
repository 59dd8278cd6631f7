/* What the shape rules share. A rule states how the dims of a node's ports are related. It is used
 * in both directions: unknown dims of outputs are filled from inputs, and (for the ops that run)
 * unknown dims of inputs from each other and from outputs. One filled dim is only likely: an
 * unknown dim of an operand that broadcasts becomes that of the result, though it may also be 1.
 * So whoever infers, or checks what an execute brings, throws away what became of the inputs. */
#ifndef SINTER_SRC_SHAPE_H
#define SINTER_SRC_SHAPE_H

#include "graph/fail.h"
#include "graph/op_rules.h"

#define UNKNOWN SINTER_UNKNOWN_DIM

/* The dims of an output are these: what one side does not know it takes from the other; a
 * contradiction is an error. ndims < 0: nothing is known. */
sinter_status_t shape_put(const node_t *node, lt_t *out, int ndims, int64_t *dims);

/* Dim d of a tensor is *with: what one side does not know it takes from the other; a contradiction
 * is an error. */
sinter_status_t shape_unify(const node_t *node, lt_t *lt, int d, int64_t *with);

/* a: an axis given as -ndims..ndims-1. */
sinter_status_t shape_axis(const node_t *node, int64_t axis, const lt_t *lt, int *normal);

/* The dim of channels by data_format; lt has at least one dim. */
int shape_channel_dim(const node_t *node, const lt_t *lt);

/* A vector of C values, C being the channels of lt. */
sinter_status_t shape_put_channels(const node_t *node, lt_t *lt, lt_t *out);

/* True if every dim of lt, aligned right, is 1 or the dim of `to`. Unknown dims on either side
 * become what stands on the other, but that a 1 says nothing about `to`. */
bool shape_broadcasts_to(lt_t *lt, lt_t *to);

/* What a Slice takes of a dim of its input: n elements from start on, `step` apart. Where the dim
 * is unknown, so is n. */
sinter_status_t slice_of_dim(const node_t *node, const lt_t *in, int dim, int64_t *start,
                             int64_t *step, int64_t *n);
bool slice_goes_back(const node_t *node); /* some step of it is negative */

/* numpy broadcast of dims; unknown dims allowed. False: they do not broadcast. */
bool broadcast_dims(const lt_t *a, const lt_t *b, lt_t *out);

#endif
