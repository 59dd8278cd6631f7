/* The small public objects that more than one file of src/ looks into. */
#ifndef SINTER_SRC_OBJECTS_H
#define SINTER_SRC_OBJECTS_H

#include "base/alloc.h"
#include "graph/tensor.h"

struct sinter_tensor {
    sinter_engine_t *engine; /* held */
    lt_t lt;                 /* dims known; strides known or layout any, which is dense row-major */
    void *data;              /* of a host scalar: &scalar */
    size_t bytes;            /* readable from data; SINTER_BYTES_TRUSTED if the caller vouches */
    _Alignas(16) unsigned char scalar[16];
};

#endif
