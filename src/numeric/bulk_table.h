/* The instances of the bulk conversions for each type, and the table of them. The including file
 * defines BULK_TABLE and has included a bulk_quantise_<isa>.h. */
#ifndef SINTER_SRC_NUMERIC_BULK_TABLE_H
#define SINTER_SRC_NUMERIC_BULK_TABLE_H

#include "numeric/bulk.h"
#include "numeric/bulk_stream.h"

/* clang-format off: a function on each line */
#define LOAD_AND_STORE(name)                                                                \
    NOT_INLINED void name##_load(const void *base, int64_t first, int64_t n, float *dst)    \
    {                                                                                       \
        load(&code_##name, base, first, n, dst);                                            \
    }                                                                                       \
    TARGET static void name##_store(void *base, int64_t first, int64_t n, const float *src) \
    {                                                                                       \
        store(&code_##name, PLAIN, base, first, n, src);                                    \
    }
#define STORE_SATURATED(name)                                                                   \
    TARGET static void name##_store_sat(void *base, int64_t first, int64_t n, const float *src) \
    {                                                                                           \
        store(&code_##name, SATURATED, base, first, n, src);                                    \
    }
#define STREAM(name, type, result)                                                  \
    TARGET static void name##_to_##type(const unsigned char *p, int64_t n,          \
                                        const dtype_scaled_t *g, unsigned char *to) \
    {                                                                               \
        stream(&code_##name, result, name##_load_scaled, p, n, g, to);              \
    }
#define SCALED(name)                                                                              \
    TARGET static void name##_load_scaled(const void *base, int64_t first, int64_t n,             \
                                          const dtype_scaled_t *g, float *dst)                    \
    {                                                                                             \
        load_scaled(&code_##name, name##_load, base, first, n, g, dst);                           \
    }                                                                                             \
    TARGET static void name##_store_scaled(void *base, int64_t first, int64_t n, const void *src, \
                                           const dtype_scaled_t *how)                             \
    {                                                                                             \
        store_scaled(&code_##name, base, first, n, src, how);                                     \
    }                                                                                             \
    STREAM(name, f32, RESULT_F32)                                                                 \
    STREAM(name, f16, RESULT_F16)                                                                 \
    STREAM(name, bf16, RESULT_BF16)
#define STREAMS(name)                                                                 \
    TARGET static void name##_to_native(const unsigned char *p, int64_t n,            \
                                        const dtype_scaled_t *g, unsigned char *to)   \
    {                                                                                 \
        stream_native(&code_##name, name##_to_bf16, name##_load_scaled, p, n, g, to); \
    }                                                                                 \
    static dtype_stream_t *name##_stream(sinter_data_type_t to, bool native)          \
    {                                                                                 \
        const bool by_hardware = HAS_NATIVE_BF16 && native;                           \
        return to == sinter_f32    ? name##_to_f32                                    \
               : to == sinter_f16  ? name##_to_f16                                    \
               : to == sinter_bf16 ? by_hardware ? name##_to_native : name##_to_bf16  \
                                   : NULL;                                            \
    }
/* clang-format on */

LOAD_AND_STORE(f16)
LOAD_AND_STORE(bf16)
LOAD_AND_STORE(f8_e5m2)
LOAD_AND_STORE(f8_e4m3)
LOAD_AND_STORE(f8_e5m2fnuz)
LOAD_AND_STORE(f8_e4m3fnuz)
LOAD_AND_STORE(f6_e3m2)
LOAD_AND_STORE(f6_e2m3)
LOAD_AND_STORE(f4_e2m1)
LOAD_AND_STORE(s8)
LOAD_AND_STORE(u8)
LOAD_AND_STORE(s4)
LOAD_AND_STORE(u4)
LOAD_AND_STORE(u2)
LOAD_AND_STORE(e8m0)
LOAD_AND_STORE(boolean)

/* Of the other types the plain store saturates as well. */
STORE_SATURATED(f16)
STORE_SATURATED(bf16)
STORE_SATURATED(f8_e5m2)
STORE_SATURATED(f8_e4m3)
STORE_SATURATED(f8_e5m2fnuz)
STORE_SATURATED(f8_e4m3fnuz)

#define SCALED_AND_STREAMED(name) SCALED(name) STREAMS(name)
SCALED_AND_STREAMED(f8_e5m2)
SCALED_AND_STREAMED(f8_e4m3)
SCALED_AND_STREAMED(f8_e5m2fnuz)
SCALED_AND_STREAMED(f8_e4m3fnuz)
SCALED_AND_STREAMED(f6_e3m2)
SCALED_AND_STREAMED(f6_e2m3)
SCALED_AND_STREAMED(f4_e2m1)
SCALED_AND_STREAMED(s8)
SCALED_AND_STREAMED(u8)
SCALED_AND_STREAMED(s4)
SCALED_AND_STREAMED(u4)

static void f32_load(const void *base, int64_t first, int64_t n, float *dst)
{
    memcpy(dst, (const unsigned char *)base + first * 4, (size_t)n * 4);
}
static void f32_store(void *base, int64_t first, int64_t n, const float *src)
{
    memcpy((unsigned char *)base + first * 4, src, (size_t)n * 4);
}
TARGET static void f32_store_sat(void *base, int64_t first, int64_t n, const float *src)
{
    change_dwords(SATURATE_F32, (unsigned char *)base + first * 4, src, n);
}
TARGET static void s32_load(const void *base, int64_t first, int64_t n, float *dst)
{
    change_dwords(F32_OF_S32, dst, (const unsigned char *)base + first * 4, n);
}
TARGET static void s32_store(void *base, int64_t first, int64_t n, const float *src)
{
    change_dwords(S32_OF_F32, (unsigned char *)base + first * 4, src, n);
}

#define ROW(name) \
    [sinter_##name] = {.load = name##_load, .store = name##_store, .store_sat = name##_store}
#define ROW_SAT(name) \
    [sinter_##name] = {.load = name##_load, .store = name##_store, .store_sat = name##_store_sat}
#define ROW_SCALED(name, sat)                               \
    [sinter_##name] = {.load = name##_load,                 \
                       .store = name##_store,               \
                       .store_sat = name##_##sat,           \
                       .store_scaled = name##_store_scaled, \
                       .load_scaled = name##_load_scaled,   \
                       .stream_scaled = name##_stream,      \
                       .quantise = name##_quantise}
const dtype_bulk_t BULK_TABLE[DTYPE_BULK_ROWS] = {
    ROW_SAT(f32),
    ROW_SAT(f16),
    ROW_SAT(bf16),
    ROW_SCALED(f8_e5m2, store_sat),
    ROW_SCALED(f8_e4m3, store_sat),
    ROW_SCALED(f8_e5m2fnuz, store_sat),
    ROW_SCALED(f8_e4m3fnuz, store_sat),
    ROW_SCALED(f6_e3m2, store),
    ROW_SCALED(f6_e2m3, store),
    ROW_SCALED(f4_e2m1, store),
    ROW_SCALED(s8, store),
    ROW_SCALED(u8, store),
    ROW_SCALED(s4, store),
    ROW_SCALED(u4, store),
    ROW(u2),
    ROW(s32),
    ROW(e8m0),
    ROW(boolean),
};

#endif
