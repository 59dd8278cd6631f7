#include "numeric/dtype.h"

#include <string.h>

#include <sinter/sinter_graph.h>

#include "numeric/dtype_codec.h"

/* The lowest finite value, by class. */
#define LOWEST_FLOAT(bits, digits, max) (-(max))
#define LOWEST_INT(bits, digits, max) ((digits) == (bits) ? 0.0 : -(max)-1.0)
#define LOWEST_SCALE(bits, digits, max) (1.0 / (max))
#define LOWEST_BOOL(bits, digits, max) 0.0

static const dtype_traits_t traits[] = {
#define SINTER_DTYPE(value, name_, class_, bits_, block_elems_, block_bytes_, digits_, max_) \
    [value] = {                                                                              \
        .name = #name_,                                                                      \
        .cls = DTYPE_##class_,                                                               \
        .bits = bits_,                                                                       \
        .block_elems = block_elems_,                                                         \
        .block_bytes = block_bytes_,                                                         \
        .digits = digits_,                                                                   \
        .max = max_,                                                                         \
        .min = LOWEST_##class_(bits_, digits_, max_),                                        \
        .codec = {sinter_codec_##name_##_load_f32, sinter_codec_##name_##_store_f32,         \
                  sinter_codec_##name_##_load_f64, sinter_codec_##name_##_store_f64,         \
                  sinter_codec_##name_##_store_sat},                                         \
    },
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
};

enum { N_TYPES = sizeof traits / sizeof *traits };

const dtype_traits_t *dtype_traits(sinter_data_type_t type)
{
    size_t i = (size_t)type;
    return i < N_TYPES && traits[i].name != NULL ? &traits[i] : NULL;
}

bool dtype_is_wide_float(sinter_data_type_t type)
{
    return dtype_is_float(type) && dtype_traits(type)->bits >= 16;
}

bool dtype_needs_f64(sinter_data_type_t type)
{
    const dtype_traits_t *t = dtype_traits(type);
    return t->digits > 24;
}

bool dtype_bytes(sinter_data_type_t type, int64_t n, int64_t *bytes)
{
    const dtype_traits_t *t = dtype_traits(type);
    int64_t full;
    if (__builtin_mul_overflow(n / t->block_elems, t->block_bytes, &full)) {
        return false;
    }
    int64_t rest_bits = n % t->block_elems * t->bits;
    return !__builtin_add_overflow(full, (rest_bits + 7) / 8, bytes);
}

const char *sinter_data_type_name(sinter_data_type_t type)
{
    const dtype_traits_t *t = dtype_traits(type);
    return t != NULL ? t->name : NULL;
}

int sinter_data_type_parse(const char *name, sinter_data_type_t *out)
{
    for (size_t i = 0; name != NULL && out != NULL && i < N_TYPES; i++) {
        if (traits[i].name != NULL && strcmp(traits[i].name, name) == 0) {
            *out = (sinter_data_type_t)i;
            return 1;
        }
    }
    return 0;
}
