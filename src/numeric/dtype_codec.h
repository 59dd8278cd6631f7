/* The functions of every codec, declared by the table: a row of dtypes.def without its five
 * functions does not link. */
#ifndef SINTER_SRC_DTYPE_CODEC_H
#define SINTER_SRC_DTYPE_CODEC_H

#include <stdint.h>

#define SINTER_DTYPE(value, name, ...)                                                         \
    void sinter_codec_##name##_load_f32(const void *base, int64_t first, int64_t stride,       \
                                        int64_t n, float *dst);                                \
    void sinter_codec_##name##_load_f64(const void *base, int64_t first, int64_t stride,       \
                                        int64_t n, double *dst);                               \
    void sinter_codec_##name##_store_f32(void *base, int64_t first, int64_t stride, int64_t n, \
                                         const float *src);                                    \
    void sinter_codec_##name##_store_f64(void *base, int64_t first, int64_t stride, int64_t n, \
                                         const double *src);                                   \
    void sinter_codec_##name##_store_sat(void *base, int64_t first, int64_t stride, int64_t n, \
                                         const float *src);
#include <sinter/dtypes.def>
#undef SINTER_DTYPE

#endif
