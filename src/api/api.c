/* The public functions of engines, streams, logical tensors and tensors. */
#include <stdio.h>
#include <string.h>

#include <sinter/sinter.h>

#include "api/bind.h"
#include "backend_xsmm/exec/exec.h"
#include "backend_xsmm/ukernels/xsmm.h"
#include "base/alloc.h"
#include "base/status.h"
#include "graph/attr.h"
#include "graph/layout.h"
#include "graph/objects.h"
#include "graph/schema.h"
#include "numeric/dtype.h"

int sinter_version(void)
{
    return SINTER_VERSION_MAJOR * 10000 + SINTER_VERSION_MINOR * 100 + SINTER_VERSION_PATCH;
}

/* ---- names ----------------------------------------------------------------------------------- */

const char *sinter_op_attr_name(sinter_op_attr_t attr)
{
    return attr_name(attr);
}

int sinter_op_attr_parse(const char *name, sinter_op_attr_t *out)
{
    for (int a = 1; name != NULL && out != NULL && a < sinter_op_attr_end; a++) {
        const char *known = attr_name((sinter_op_attr_t)a);
        if (known != NULL && strcmp(known, name) == 0) {
            *out = (sinter_op_attr_t)a;
            return 1;
        }
    }
    return 0;
}

/* ---- engine ---------------------------------------------------------------------------------- */

sinter_status_t sinter_engine_create(sinter_engine_t **engine, const sinter_engine_desc_t *desc)
{
    sinter_engine_desc_t d = {.size = sizeof(d)};

    SG_REQUIRE(engine != NULL);
    if (desc != NULL) {
        SG_TRY(sg_copy_sized(&d, desc, desc->size, sizeof(d), "sinter_engine_desc_t"));
    }
    if ((d.allocator.alloc == NULL) != (d.allocator.free == NULL)) {
        return sg_fail(sinter_invalid_arguments, "engine: alloc and free go together");
    }
    SG_TRY(engine_new(&d.allocator, d.max_isa, engine));
    (*engine)->deterministic = d.deterministic != 0;
    if ((*engine)->features.bits != 0) {
        xs_start();
    }
    return sinter_success;
}

sinter_status_t sinter_engine_destroy(sinter_engine_t **engine)
{
    SG_REQUIRE(engine != NULL);
    if (*engine != NULL) {
        engine_unref(*engine);
    }
    *engine = NULL;
    return sinter_success;
}

sinter_cpu_isa_t sinter_engine_get_isa(const sinter_engine_t *engine)
{
    if (engine != NULL) {
        return level_of_features(engine->features);
    }
    sinter_engine_t *fallback = engine_ref(NULL);
    const sinter_cpu_isa_t isa = level_of_features(fallback->features);
    engine_unref(fallback);
    return isa;
}

/* ---- constant cache -------------------------------------------------------------------------- */

sinter_status_t sinter_engine_set_constant_cache_budget(sinter_engine_t *engine, size_t bytes)
{
    sinter_engine_t *held = engine_ref(engine);
    constants_set_budget(&held->constants, bytes);
    engine_unref(held);
    return sinter_success;
}

sinter_status_t sinter_engine_get_constant_cache_stats(const sinter_engine_t *engine,
                                                       sinter_constant_cache_stats_t *stats)
{
    SG_REQUIRE(stats != NULL);
    sinter_engine_t *held = engine_ref(
        (sinter_engine_t *)(uintptr_t)engine); /* its lock and its count of references change */
    pthread_mutex_lock(&held->constants.lock);
    sinter_constant_cache_stats_t now = held->constants.stats;
    pthread_mutex_unlock(&held->constants.lock);
    engine_unref(held);
    now.size = stats->size;
    return sg_copy_sized(stats, &now, stats->size, sizeof(now), "sinter_constant_cache_stats_t");
}

sinter_status_t sinter_engine_invalidate_constants(sinter_engine_t *engine, const void *data,
                                                   size_t bytes)
{
    SG_REQUIRE(data != NULL || bytes == 0);
    sinter_engine_t *held = engine_ref(engine);
    constants_invalidate(&held->constants, data, bytes);
    engine_unref(held);
    return sinter_success;
}

/* ---- stream ---------------------------------------------------------------------------------- */

sinter_status_t sinter_stream_create(sinter_stream_t **stream, sinter_engine_t *engine,
                                     const sinter_stream_desc_t *desc)
{
    sinter_stream_desc_t d = {.size = sizeof(d)};

    SG_REQUIRE(stream != NULL);
    if (desc != NULL) {
        SG_TRY(sg_copy_sized(&d, desc, desc->size, sizeof(d), "sinter_stream_desc_t"));
    }
    if (d.threads < 0 || d.threads > TEAM_MOST_THREADS) {
        return sg_fail(sinter_invalid_arguments, "stream: %d threads", d.threads);
    }
    if (d.parallel_for != NULL && d.threads == 0) {
        return sg_fail(sinter_invalid_arguments,
                       "stream: parallel_for without a number of threads: it must be 1 or more");
    }
    if (d.parallel_for == NULL && d.pool != NULL) {
        return sg_fail(sinter_invalid_arguments, "stream: a pool without parallel_for");
    }
    SG_TRY(engine_check(engine));
    sinter_stream_t *s = object_new(engine, sizeof(*s));
    if (s == NULL) {
        return sinter_out_of_memory;
    }
    s->threads = (threads_t){.most = d.parallel_for != NULL ? d.threads : team_take(d.threads),
                             .all = d.all_threads != 0,
                             .parallel_for = d.parallel_for,
                             .pool = d.pool,
                             .watch = d.watch,
                             .watch_user = d.watch_user};
    *stream = s;
    return sinter_success;
}

sinter_status_t sinter_stream_destroy(sinter_stream_t **stream)
{
    SG_REQUIRE(stream != NULL);
    if (*stream != NULL) {
        object_free(*stream);
    }
    *stream = NULL;
    return sinter_success;
}

sinter_status_t sinter_stream_get_threads(const sinter_stream_t *stream, int *threads)
{
    SG_REQUIRE_ALL(stream, threads);
    *threads = team_usable(&stream->threads);
    return sinter_success;
}

/* ---- logical tensors ------------------------------------------------------------------------- */

static sinter_status_t init(sinter_logical_tensor_t *lt, uint64_t id, sinter_data_type_t type,
                            int ndims, const sinter_dim_t *dims, const sinter_dim_t *strides,
                            sinter_tensor_property_t property)
{
    lt_t t = {.id = id, .ndims = ndims, .data_type = type, .property = property};
    if (ndims < 0 || ndims > SINTER_MAX_NDIMS) {
        return sg_fail(sinter_invalid_arguments, "tensor %llu: %d dims, at most %d",
                       (unsigned long long)id, ndims, SINTER_MAX_NDIMS);
    }
    SG_REQUIRE(ndims == 0 || dims != NULL);
    lt_set_dims(&t, dims, strides);
    SG_TRY(lt_verify(&t, false, "logical tensor"));
    *lt = t;
    return sinter_success;
}

sinter_status_t sinter_logical_tensor_init(sinter_logical_tensor_t *lt, uint64_t id,
                                           sinter_data_type_t type, int ndims,
                                           const sinter_dim_t *dims,
                                           sinter_tensor_property_t property)
{
    SG_REQUIRE(lt != NULL);
    return init(lt, id, type, ndims, dims, NULL, property);
}

sinter_status_t sinter_logical_tensor_init_with_strides(sinter_logical_tensor_t *lt, uint64_t id,
                                                        sinter_data_type_t type, int ndims,
                                                        const sinter_dim_t *dims,
                                                        const sinter_dim_t *strides,
                                                        sinter_tensor_property_t property)
{
    SG_REQUIRE(lt != NULL);
    SG_REQUIRE(ndims == 0 || strides != NULL);
    return init(lt, id, type, ndims, dims, strides, property);
}

sinter_status_t sinter_logical_tensor_init_unknown(sinter_logical_tensor_t *lt, uint64_t id,
                                                   sinter_data_type_t type, int ndims,
                                                   sinter_tensor_property_t property)
{
    SG_REQUIRE(lt != NULL);
    lt_t t = {.id = id,
              .ndims = ndims,
              .data_type = type,
              .property = property,
              .layout_type = sinter_layout_type_any};
    for (int d = 0; d < SINTER_MAX_NDIMS; d++) {
        t.dims[d] = t.strides[d] = SINTER_UNKNOWN_DIM;
    }
    SG_TRY(lt_verify(&t, false, "logical tensor"));
    *lt = t;
    return sinter_success;
}

sinter_status_t sinter_logical_tensor_get_bytes(const sinter_logical_tensor_t *lt, size_t *bytes)
{
    SG_REQUIRE_ALL(lt, bytes);
    SG_TRY(lt_verify(lt, false, "logical tensor"));
    return lt_bytes(lt, bytes);
}

sinter_status_t sinter_logical_tensor_is_equal(const sinter_logical_tensor_t *a,
                                               const sinter_logical_tensor_t *b, int *equal)
{
    SG_REQUIRE_ALL(a, b, equal);
    const size_t n =
        a->ndims > 0 && a->ndims <= SINTER_MAX_NDIMS ? (size_t)a->ndims * sizeof(sinter_dim_t) : 0;
    *equal =
        a->id == b->id && a->ndims == b->ndims && a->data_type == b->data_type &&
        a->layout_type == b->layout_type && memcmp(a->dims, b->dims, n) == 0 &&
        (a->layout_type != sinter_layout_type_strided || memcmp(a->strides, b->strides, n) == 0) &&
        (!lt_is_opaque(a) || a->layout_id == b->layout_id);
    return sinter_success;
}

sinter_status_t sinter_logical_tensor_set_weights_layout(sinter_logical_tensor_t *lt,
                                                         sinter_weights_part_t part, int bits,
                                                         int transpose_b)
{
    SG_REQUIRE(lt != NULL);
    static const tiled_t parts[] = {
        [sinter_weights_codes] = TILED_CODES,          [sinter_weights_values] = TILED_VALUES,
        [sinter_weights_codes_iq4_nl] = TILED_NUMBERS, [sinter_weights_codes_blocks] = TILED_BLOCKS,
        [sinter_weights_heads_k] = TILED_CODES,        [sinter_weights_heads_v] = TILED_BLOCKS,
        [sinter_weights_heads_values] = TILED_VALUES};
    SG_REQUIRE((unsigned)part < sizeof parts / sizeof *parts);
    const bool heads = part >= sinter_weights_heads_k, all = heads ||
                                                             part == sinter_weights_codes_iq4_nl ||
                                                             part == sinter_weights_codes_blocks;
    if (bits < 0 || bits > (all ? 0 : 6)) {
        return sg_fail(sinter_invalid_arguments,
                       "tensor %llu: an opaque layout does not keep %d bits",
                       (unsigned long long)lt->id, bits);
    }
    lt_t t = *lt;
    t.layout_type = sinter_layout_type_opaque;
    t.layout_id = heads ? layout_id_of_heads(parts[part])
                        : layout_id((tiled_t)((int)parts[part] + bits), transpose_b != 0);
    SG_TRY(lt_verify(&t, false, "logical tensor"));
    *lt = t;
    return sinter_success;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static sinter_status_t check_buffer(const lt_t *lt, const void *data, size_t bytes)
{
    if (!lt_dims_known(lt)) {
        return sg_fail(sinter_invalid_shape, "tensor %llu: dims must be known",
                       (unsigned long long)lt->id);
    }
    return bind_check_bytes(lt, data, bytes);
}

static sinter_status_t new_tensor(sinter_tensor_t **tensor, sinter_engine_t *engine, const lt_t *lt)
{
    SG_TRY(engine_check(engine));
    sinter_tensor_t *t = object_new(engine, sizeof(*t));
    if (t == NULL) {
        return sinter_out_of_memory;
    }
    t->lt = *lt;
    *tensor = t;
    return sinter_success;
}

sinter_status_t sinter_tensor_create(sinter_tensor_t **tensor, sinter_engine_t *engine,
                                     const sinter_logical_tensor_t *lt, void *data, size_t bytes)
{
    SG_REQUIRE_ALL(tensor, lt);
    SG_TRY(lt_verify(lt, false, "tensor"));
    const lt_t settled = lt_is_opaque(lt) ? *lt : lt_strided(lt);
    SG_TRY(check_buffer(&settled, data, bytes));
    SG_TRY(new_tensor(tensor, engine, &settled));
    (*tensor)->data = data;
    (*tensor)->bytes = bytes;
    return sinter_success;
}

/* The bytes of the only element of a tensor. */
static sinter_status_t scalar_bytes(const lt_t *lt, size_t *bytes)
{
    int64_t n = 0;

    if (!lt_dims_known(lt) || lt_elems(lt) != 1 || !dtype_bytes(lt->data_type, 1, &n)) {
        return sg_fail(sinter_invalid_arguments, "tensor %llu: a host scalar has one element",
                       (unsigned long long)lt->id);
    }
    if (lt_is_opaque(lt)) {
        return sg_fail(sinter_invalid_arguments, "tensor %llu: a host scalar has no opaque layout",
                       (unsigned long long)lt->id);
    }
    *bytes = (size_t)n;
    return sinter_success;
}

static void put_scalar(sinter_tensor_t *tensor, const void *value, size_t bytes)
{
    memmove(tensor->scalar, value, bytes);
    tensor->data = tensor->scalar;
    tensor->bytes = bytes;
}

sinter_status_t sinter_tensor_create_scalar(sinter_tensor_t **tensor, sinter_engine_t *engine,
                                            const sinter_logical_tensor_t *lt, const void *value)
{
    size_t bytes = 0;

    SG_REQUIRE_ALL(tensor, lt, value);
    SG_TRY(lt_verify(lt, false, "tensor"));
    const lt_t strided = lt_strided(lt);
    SG_TRY(scalar_bytes(lt, &bytes));
    SG_TRY(new_tensor(tensor, engine, &strided));
    put_scalar(*tensor, value, bytes);
    return sinter_success;
}

sinter_status_t sinter_tensor_set_scalar(sinter_tensor_t *tensor, const void *value)
{
    size_t bytes = 0;

    SG_REQUIRE_ALL(tensor, value);
    SG_TRY(scalar_bytes(&tensor->lt, &bytes));
    put_scalar(tensor, value, bytes);
    return sinter_success;
}

sinter_status_t sinter_tensor_destroy(sinter_tensor_t **tensor)
{
    SG_REQUIRE(tensor != NULL);
    if (*tensor != NULL) {
        object_free(*tensor);
    }
    *tensor = NULL;
    return sinter_success;
}

sinter_status_t sinter_tensor_set_data(sinter_tensor_t *tensor, void *data, size_t bytes)
{
    SG_REQUIRE(tensor != NULL);
    SG_TRY(check_buffer(&tensor->lt, data, bytes));
    tensor->data = data;
    tensor->bytes = bytes;
    return sinter_success;
}

sinter_status_t sinter_tensor_set_dims(sinter_tensor_t *tensor, int ndims, const sinter_dim_t *dims,
                                       const sinter_dim_t *strides)
{
    SG_REQUIRE(tensor != NULL);
    SG_REQUIRE(ndims == 0 || dims != NULL);
    if (ndims != tensor->lt.ndims) {
        return sg_fail(sinter_invalid_arguments, "tensor %llu has %d dims, not %d",
                       (unsigned long long)tensor->lt.id, (int)tensor->lt.ndims, ndims);
    }
    if (lt_is_opaque(&tensor->lt)) {
        return sg_fail(sinter_invalid_arguments,
                       "tensor %llu has an opaque layout, which is of its dims alone",
                       (unsigned long long)tensor->lt.id);
    }
    lt_t t = tensor->lt;
    lt_set_dims(&t, dims, strides);
    SG_TRY(lt_verify(&t, false, "tensor"));
    SG_TRY(check_buffer(&t, tensor->data, tensor->bytes));
    tensor->lt = t;
    return sinter_success;
}

/* One is a cache in tiles that keep all bits, the other has strides and some of its tokens. */
static bool has_first_tokens(const lt_t *a, const lt_t *b)
{
    const lt_t *cache = lt_is_opaque(a) ? a : b, *some = lt_is_opaque(a) ? b : a;
    if (!lt_is_opaque(cache) || lt_is_opaque(some) || some->ndims != cache->ndims) {
        return false;
    }
    const layout_t l = layout_of(cache);
    lt_t as_cache = *some;
    as_cache.dims[layout_tokens(&l)] = cache->dims[layout_tokens(&l)];
    return tiles_kept(l.what) == 0 && lt_same_dims(&as_cache, cache) &&
           some->dims[layout_tokens(&l)] <= cache->dims[layout_tokens(&l)];
}

sinter_status_t sinter_reorder(const sinter_tensor_t *from, sinter_tensor_t *to)
{
    SG_REQUIRE_ALL(from, to);
    const lt_t *a = &from->lt, *b = &to->lt;
    const unsigned long long from_id = (unsigned long long)a->id, to_id = (unsigned long long)b->id;
    if (a->data_type != b->data_type || (!lt_same_dims(a, b) && !has_first_tokens(a, b))) {
        return sg_fail(sinter_invalid_arguments,
                       "reorder: tensors %llu and %llu have other data types or dims; only tokens "
                       "of a cache whose tiles keep all bits may be fewer",
                       from_id, to_id);
    }
    if (lt_is_opaque(a) == lt_is_opaque(b)) {
        return sg_fail(sinter_invalid_arguments,
                       "reorder: one of tensors %llu and %llu has an opaque layout, the other one "
                       "strides",
                       from_id, to_id);
    }
    if (lt_elems(a) > 0 && (from->data == NULL || to->data == NULL)) {
        return sg_fail(sinter_invalid_arguments, "reorder: tensor %llu has no data",
                       from->data == NULL ? from_id : to_id);
    }
    if (!lt_is_opaque(b)) {
        SG_TRY(lt_verify(b, true, "reorder"));
        layout_unpack(from->engine->features, a, from->data, b, to->data);
        return sinter_success;
    }
    if (layout_pack(to->engine->features, a, from->data, b, to->data)) {
        return sinter_success;
    }
    const tiled_t what = layout_of(b).what;
    char bits[32];
    snprintf(bits, sizeof bits, "the %d bits", tiles_kept(what));
    return sg_fail(
        sinter_invalid_arguments,
        "reorder: tensor %llu has integers that do not fit %s of the layout of tensor %llu",
        from_id, what == TILED_NUMBERS ? "the numbers" : bits, to_id);
}

sinter_status_t sinter_tensor_get_data(const sinter_tensor_t *tensor, void **data)
{
    SG_REQUIRE_ALL(tensor, data);
    *data = tensor->data;
    return sinter_success;
}

sinter_status_t sinter_tensor_get_logical_tensor(const sinter_tensor_t *tensor,
                                                 sinter_logical_tensor_t *lt)
{
    SG_REQUIRE_ALL(tensor, lt);
    *lt = tensor->lt;
    return sinter_success;
}
