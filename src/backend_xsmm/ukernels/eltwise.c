/* Elements of tensors as floats, and what doubles convert to and from. */
#include "backend_xsmm/ukernels/eltwise.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "numeric/dtype.h"

void eltwise_load(const eltwise_table_t *fn, sinter_data_type_t type, const unsigned char *base,
                  int64_t first, int64_t stride, int n, float *dst)
{
    if (stride == 1) {
        dtype_bulk(type, fn->needs)->load(base, first, n, dst);
    } else {
        dtype_traits(type)->codec.load_f32(base, first, stride, n, dst);
    }
}

void eltwise_store(const eltwise_table_t *fn, sinter_data_type_t type, unsigned char *base,
                   int64_t first, int64_t stride, int n, const float *src)
{
    if (stride == 1) {
        dtype_bulk(type, fn->needs)->store(base, first, n, src);
    } else {
        dtype_traits(type)->codec.store_f32(base, first, stride, n, src);
    }
}

/* ---- double ---------------------------------------------------------------------------------- */

eltwise_convert_t *eltwise_convert(const eltwise_f64_t *fn, sinter_data_type_t from,
                                   sinter_data_type_t to)
{
    static const int8_t after[] = {[sinter_f64] = 1 + WIDE_f64,        [sinter_s64] = 1 + WIDE_s64,
                                   [sinter_s32] = 1 + WIDE_s32,        [sinter_f32] = 1 + WIDE_f32,
                                   [sinter_s8] = 1 + WIDE_s8,          [sinter_u8] = 1 + WIDE_u8,
                                   [sinter_boolean] = 1 + WIDE_boolean};
    const size_t f = (size_t)from, t = (size_t)to, n = sizeof after;
    return f < n && t < n && after[f] > 0 && after[t] > 0 ? fn->convert[after[f] - 1][after[t] - 1]
                                                          : NULL;
}

const char *eltwise_f64_by_element(const eltwise_f64_t *fn, sinter_op_kind_t kind, double u)
{
    const bool whole = u >= -16 && u <= 16 && u == (double)(int)u;
    return kind == sinter_op_gelu && u == 0                                          ? "erf"
           : kind == sinter_op_pow && !whole && !(fn->has_pow && fabs(u) <= DBL_MAX) ? "pow"
                                                                                     : NULL;
}
