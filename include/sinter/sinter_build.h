/* Building graphs: one call for an op. Read the manners in sinter.h first. */
#ifndef SINTER_BUILD_H
#define SINTER_BUILD_H

#include "sinter_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An op with all that belongs to it, made and added to a graph in one call:
 *
 *     sinter_graph_add(graph, 7, sinter_op_matmul, sinter_in(&x), sinter_in(&w), sinter_out(&y),
 *                      sinter_attr_bool(sinter_op_attr_transpose_b, 1));
 *
 * It does what sinter_op_create, sinter_op_add_input, ... and sinter_graph_add_op do one by one.
 * The functions below make the parts of an op. Inputs and outputs come in the order that
 * docs/ops.md names; the order is free otherwise. */

/* What a part is. */
typedef enum sinter_op_part_kind {
    sinter_op_part_input = 1,
    sinter_op_part_output = 2,
    sinter_op_part_f32 = 3,
    sinter_op_part_s64 = 4,
    sinter_op_part_bool = 5,
    sinter_op_part_str = 6,
    sinter_op_part_name = 7
} sinter_op_part_kind_t;

/* A part of an op. What it points to must live until the call that takes it returns. */
typedef struct sinter_op_part {
    sinter_op_part_kind_t kind;
    sinter_op_attr_t attr;                 /* of the attributes */
    const sinter_logical_tensor_t *tensor; /* input, output */
    const float *f32s;                     /* count values; NULL: the value is f32 */
    const int64_t *s64s;                   /* count values; NULL: the value is s64, bool too */
    const char *text;                      /* str, name */
    int64_t s64;
    float f32;
    size_t count;
} sinter_op_part_t;

/* The next input. */
static inline sinter_op_part_t sinter_in(const sinter_logical_tensor_t *tensor)
{
    const sinter_op_part_t part = {
        sinter_op_part_input, sinter_op_attr_undef, tensor, 0, 0, 0, 0, 0.0f, 1};
    return part;
}

/* The next output. */
static inline sinter_op_part_t sinter_out(const sinter_logical_tensor_t *tensor)
{
    const sinter_op_part_t part = {
        sinter_op_part_output, sinter_op_attr_undef, tensor, 0, 0, 0, 0, 0.0f, 1};
    return part;
}

/* An attribute of kind f32, or one value of an f32[]. */
static inline sinter_op_part_t sinter_attr_f32(sinter_op_attr_t attr, float value)
{
    const sinter_op_part_t part = {sinter_op_part_f32, attr, 0, 0, 0, 0, 0, value, 1};
    return part;
}

/* An attribute of kind f32[]. */
static inline sinter_op_part_t sinter_attr_f32s(sinter_op_attr_t attr, size_t count,
                                                const float *values)
{
    const sinter_op_part_t part = {sinter_op_part_f32, attr, 0, values, 0, 0, 0, 0.0f, count};
    return part;
}

/* An attribute of kind s64, or one value of an s64[]. */
static inline sinter_op_part_t sinter_attr_s64(sinter_op_attr_t attr, int64_t value)
{
    const sinter_op_part_t part = {sinter_op_part_s64, attr, 0, 0, 0, 0, value, 0.0f, 1};
    return part;
}

/* An attribute of kind s64[]. */
static inline sinter_op_part_t sinter_attr_s64s(sinter_op_attr_t attr, size_t count,
                                                const int64_t *values)
{
    const sinter_op_part_t part = {sinter_op_part_s64, attr, 0, 0, values, 0, 0, 0.0f, count};
    return part;
}

/* An attribute of kind bool; any value but 0 is true. */
static inline sinter_op_part_t sinter_attr_bool(sinter_op_attr_t attr, int value)
{
    const sinter_op_part_t part = {sinter_op_part_bool, attr, 0, 0, 0, 0, value, 0.0f, 1};
    return part;
}

/* An attribute of kind string. */
static inline sinter_op_part_t sinter_attr_str(sinter_op_attr_t attr, const char *value)
{
    const sinter_op_part_t part = {sinter_op_part_str, attr, 0, 0, 0, value, 0, 0.0f, 1};
    return part;
}

/* The name of the op, for messages and JSON. */
static inline sinter_op_part_t sinter_name(const char *name)
{
    const sinter_op_part_t part = {
        sinter_op_part_name, sinter_op_attr_undef, 0, 0, 0, name, 0, 0.0f, 1};
    return part;
}

/* Makes an op of count parts and adds it to the graph. Errors are those of sinter_op_create, of the
 * setters of attributes, and of sinter_graph_add_op; an input or output that is NULL is
 * sinter_invalid_arguments. After an error the graph is as it was. For lists of parts that a
 * program makes; sinter_graph_add takes them one by one. */
SINTER_API sinter_status_t sinter_graph_add_parts(sinter_graph_t *graph, uint64_t id,
                                                  sinter_op_kind_t kind, size_t count,
                                                  const sinter_op_part_t *parts);

#ifdef __cplusplus
} /* extern "C" */

/* sinter_graph_add_parts with the parts as arguments. */
template <typename... Parts>
inline sinter_status_t sinter_graph_add(sinter_graph_t *graph, uint64_t id, sinter_op_kind_t kind,
                                        const Parts &...parts)
{
    const sinter_op_part_t list[] = {parts...};
    return sinter_graph_add_parts(graph, id, kind, sizeof...(parts), list);
}
#else
/* sinter_graph_add_parts with the parts as arguments. */
#define sinter_graph_add(graph, id, kind, ...)                               \
    sinter_graph_add_parts(graph, id, kind,                                  \
                           sizeof((const sinter_op_part_t[]){__VA_ARGS__}) / \
                               sizeof(sinter_op_part_t),                     \
                           (const sinter_op_part_t[]){__VA_ARGS__})
#endif

#endif
