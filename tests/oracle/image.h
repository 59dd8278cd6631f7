/* Images: what convolutions, pooling and interpolation share in the oracle. */
#ifndef SINTER_TESTS_ORACLE_IMAGE_H
#define SINTER_TESTS_ORACLE_IMAGE_H

#include "internal.h"

/* A tensor of batch, channels and `n` spatial dims. */
typedef struct image {
    int ndims, n, channel, first; /* first: of the spatial dims */
} image_t;

/* The window along a spatial dim: element i of position p is p * stride - before + i * dilation. */
typedef struct slider {
    int64_t kernel, stride, dilation, before, positions;
} slider_t;

/* Fails where the tensor has no spatial dim. */
int orc_image(orc_ctx_t *c, const orc_value_t *t, image_t *image);
/* The window along spatial dim i over `size` elements, from the attributes; -1 with a message. */
int orc_slider(orc_ctx_t *c, const image_t *image, int i, int64_t kernel, int64_t size,
               slider_t *s);
/* at[] of element i of dims. */
void orc_index(const int64_t *dims, int n, size_t i, int64_t *at);

#endif
