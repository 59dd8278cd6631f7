#include "graph/layout.h"

#include <inttypes.h>

#include "base/status.h"
#include "numeric/tiles_bulk.h"

/* An id is the place of its row plus one. */
static const struct {
    tiled_t what;
    bool transposed;
} rows[] = {{TILED_CODES, true},   {TILED_CODES, false}, {TILED_VALUES, true},
            {TILED_VALUES, false}, {TILED_SIX, true},    {TILED_SIX, false}};
enum { LAYOUTS = sizeof rows / sizeof *rows };

uint64_t layout_id(tiled_t what, bool transposed)
{
    uint64_t id = 1;
    while (rows[id - 1].what != what || rows[id - 1].transposed != transposed) {
        id++;
    }
    return id;
}

layout_t layout_of(const sinter_logical_tensor_t *lt)
{
    const bool transposed = rows[lt->layout_id - 1].transposed;
    const int last = lt->ndims - 1;
    layout_t l = {.what = rows[lt->layout_id - 1].what,
                  .across = transposed && last > 0 ? last - 1 : last,
                  .along = last < 1     ? -1
                           : transposed ? last
                                        : last - 1};
    l.N = lt->dims[l.across];
    l.K = l.along < 0 ? 1 : lt->dims[l.along];
    return l;
}

bool layout_bytes(const sinter_logical_tensor_t *lt, int64_t *bytes)
{
    const layout_t l = layout_of(lt);
    return l.what == TILED_VALUES
               ? tiles_of_values(lt->data_type, l.K, l.N, bytes)
               : tiles_of_codes(tiles_bits(l.what, lt->data_type), l.K, l.N, bytes);
}

bool layout_may_not_fit(const sinter_logical_tensor_t *lt)
{
    const layout_t l = layout_of(lt);
    return l.what != TILED_VALUES &&
           tiles_bits(l.what, lt->data_type) < dtype_traits(lt->data_type)->bits;
}

static bool suits(tiled_t what, sinter_data_type_t type)
{
    const dtype_traits_t *t = dtype_traits(type);
    const bool number = t->cls == DTYPE_INT && t->bits <= 8;
    return what == TILED_SIX     ? number && t->bits == 8
           : what == TILED_CODES ? (number && t->bits >= 4) || type == sinter_f4_e2m1
                                 : number || type == sinter_f32 || type == sinter_f16 ||
                                       type == sinter_bf16 || type == sinter_e8m0;
}

sinter_status_t layout_verify(const sinter_logical_tensor_t *lt, const char *where)
{
    int64_t bytes;
    if (lt->layout_id < 1 || lt->layout_id > LAYOUTS) {
        return sg_fail(sinter_invalid_arguments,
                       "%s: tensor %" PRIu64 ": %" PRIu64 " is no id of an opaque layout", where,
                       lt->id, lt->layout_id);
    }
    if (lt->property == sinter_tensor_property_host_scalar) {
        return sg_fail(sinter_invalid_arguments,
                       "%s: tensor %" PRIu64 ": a host scalar has no opaque layout", where, lt->id);
    }
    const tiled_t what = rows[lt->layout_id - 1].what;
    const char *part = what == TILED_VALUES ? "scales or zero points"
                       : what == TILED_SIX  ? "codes that fit 6 bits"
                                            : "codes";
    if (!suits(what, lt->data_type)) {
        return sg_fail(sinter_invalid_data_type,
                       "%s: tensor %" PRIu64 ": an opaque layout of %s does not take %s", where,
                       lt->id, part, dtype_traits(lt->data_type)->name);
    }
    bool one = lt->ndims >= (what == TILED_VALUES ? 1 : 2);
    for (int d = 0; one && d < lt->ndims; d++) {
        one = lt->dims[d] != SINTER_UNKNOWN_DIM && (d >= lt->ndims - 2 || lt->dims[d] == 1);
    }
    if (!one) {
        return sg_fail(sinter_invalid_shape,
                       "%s: tensor %" PRIu64 ": an opaque layout of %s takes one matrix of known "
                       "dims",
                       where, lt->id, part);
    }
    if (!layout_bytes(lt, &bytes)) {
        return sg_fail(sinter_invalid_shape,
                       "%s: tensor %" PRIu64 ": the bytes of the opaque layout overflow", where,
                       lt->id);
    }
    return sinter_success;
}

/* A strided tensor as a matrix of K by N. */
static groups_t matrix_of(const layout_t *l, const sinter_logical_tensor_t *lt, const void *data)
{
    return (groups_t){.data = data,
                      .type = dtype_traits(lt->data_type),
                      .dtype = lt->data_type,
                      .row = {l->along < 0 ? 0 : lt->strides[l->along], 1},
                      .column = {lt->strides[l->across], 1}};
}

bool layout_pack(features_t features, const sinter_logical_tensor_t *from, const void *data,
                 const sinter_logical_tensor_t *to, void *to_data)
{
    const layout_t l = layout_of(to);
    const groups_t matrix = matrix_of(&l, from, data);
    if (l.what != TILED_VALUES) {
        return tiles_bulk_pack_codes(features, &matrix, l.what, l.K, l.N, to_data);
    }
    tiles_bulk_pack_values(features, &matrix, l.K, l.N, to_data);
    return true;
}

void layout_unpack(features_t features, const sinter_logical_tensor_t *from, const void *data,
                   const sinter_logical_tensor_t *to, void *to_data)
{
    const layout_t l = layout_of(from);
    const groups_t matrix = matrix_of(&l, to, to_data);
    if (l.what != TILED_VALUES) {
        tiles_bulk_unpack_codes(features, data, l.what, l.K, l.N, &matrix);
    } else {
        tiles_unpack_values(data, l.K, l.N, &matrix);
    }
}
