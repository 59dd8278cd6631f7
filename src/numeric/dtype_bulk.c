/* Choice of the bulk conversions, and the portable ones: the codec with stride 1. */
#include "numeric/dtype_bulk.h"

#include "numeric/dtype_codec.h"

#define SINTER_DTYPE(value, name, ...)                                               \
    static void name##_load(const void *base, int64_t first, int64_t n, float *dst)  \
    {                                                                                \
        sinter_codec_##name##_load_f32(base, first, 1, n, dst);                      \
    }                                                                                \
    static void name##_store(void *base, int64_t first, int64_t n, const float *src) \
    {                                                                                \
        sinter_codec_##name##_store_f32(base, first, 1, n, src);                     \
    }                                                                                \
    static void name##_sat(void *base, int64_t first, int64_t n, const float *src)   \
    {                                                                                \
        sinter_codec_##name##_store_sat(base, first, 1, n, src);                     \
    }
#include <sinter/dtypes.def>
#undef SINTER_DTYPE

static const dtype_bulk_t portable[DTYPE_BULK_ROWS] = {
#define SINTER_DTYPE(value, name, ...) \
    [value] = {.load = name##_load, .store = name##_store, .store_sat = name##_sat},
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
};

const dtype_bulk_t *dtype_bulk(sinter_data_type_t type, features_t features)
{
    static const struct {
        features_t needs;
        const dtype_bulk_t *rows;
    } tables[] = {
#if defined(__x86_64__)
        {{NEEDS_AVX512}, dtype_bulk_avx512},
        {{NEEDS_AVX2}, dtype_bulk_avx2},
#endif
        {{NEEDS_NOTHING}, portable},
    };
    size_t i = 0;
    while (!has_features(features, tables[i].needs.bits) || tables[i].rows[type].load == NULL) {
        i++; /* ends at the portable table, which needs nothing and has all types */
    }
    return &tables[i].rows[type];
}
