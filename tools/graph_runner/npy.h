/* .npy files, version 1.0, little-endian, C order. */
#ifndef GR_NPY_H
#define GR_NPY_H

#include "base.h"

/* Writes <dir>/<name>.npy; a type that NumPy lacks as <name>.bin, the tensor's bytes as they
 * are, with a note <name>.json of type, shape and strides. */
int npy_write(const char *dir, const char *name, const sinter_logical_tensor_t *lt,
              const void *data, size_t bytes, gr_error_t *err);

/* Fills a tensor from a .npy file of the same shape, converting the element type if it is
 * another, or from a file of exactly its bytes. */
int npy_read(const char *path, const sinter_logical_tensor_t *lt, void *data, size_t bytes,
             gr_error_t *err);

#endif
