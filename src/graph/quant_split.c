/* Codes of six bits in two planes, as the attribute split_type says: the low plane is the op's
 * data, the high plane its last input. */
#include <inttypes.h>

#include <sinter/sinter_graph.h>

#include "base/status.h"
#include "graph/attr.h"
#include "graph/op_schema.h"
#include "graph/quant.h"
#include "numeric/dtype.h"

#define FAIL(status, format, ...) sg_fail(status, "%s: " format, label, __VA_ARGS__)
#define FAIL_SPLIT(status, format, ...) \
    sg_fail(status, "%s: split_type %s: " format, label, type, __VA_ARGS__)

sinter_data_type_t quant_split_type(const attr_t *attrs, int n_attrs)
{
    const attr_t *attr = attr_find(attrs, n_attrs, sinter_op_attr_split_type);
    sinter_data_type_t type;
    const bool split = attr != NULL && sinter_data_type_parse(attr->str, &type) &&
                       dtype_split(type, (features_t){NEEDS_NOTHING}) != NULL;
    return split ? type : sinter_data_type_undef;
}

static sinter_status_t same_dims(const char *label, const char *type, const lt_t *low,
                                 const lt_t *high)
{
    if (low->ndims < 0 || high->ndims < 0) {
        return sinter_success;
    }
    if (low->ndims != high->ndims) {
        return FAIL_SPLIT(sinter_invalid_shape,
                          "the high plane, tensor %" PRIu64
                          ", has %d dimensions, the low plane, tensor %" PRIu64 ", has %d",
                          high->id, (int)high->ndims, low->id, (int)low->ndims);
    }
    for (int i = 0; i < low->ndims; i++) {
        const int64_t l = low->dims[i], h = high->dims[i];
        if (l != h && l != SINTER_UNKNOWN_DIM && h != SINTER_UNKNOWN_DIM) {
            return FAIL_SPLIT(sinter_invalid_shape,
                              "the high plane, tensor %" PRIu64 ", has %" PRId64
                              " elements along dimension %d, the low plane, tensor %" PRIu64
                              ", has %" PRId64,
                              high->id, h, i, low->id, l);
        }
    }
    return sinter_success;
}

sinter_status_t dims_planes(const node_t *node, const lt_t *in, const lt_t *out)
{
    (void)out;
    const attr_t *type = node_attr(node, sinter_op_attr_split_type);
    return type != NULL ? same_dims(node_label(node), type->str, &in[0], &in[node->n_in - 1])
                        : sinter_success;
}

/* No high plane, and not more inputs than codes, scales and zero points. (quant_geometry counts
 * the outputs.) */
static sinter_status_t whole_codes(const char *label, bool quantises, const lt_t *ports, int least,
                                   int n)
{
    const int most = least == 1 ? 1 : least + 1;
    if (n > 1 && ports[n - 1].data_type == sinter_u2) {
        return FAIL(sinter_invalid_graph_op,
                    "%s %d, tensor %" PRIu64
                    ", is u2, the high plane of split codes, but attribute split_type is missing",
                    quantises ? "output" : "input", n - 1, ports[n - 1].id);
    }
    return quantises || n <= most
               ? sinter_success
               : FAIL(sinter_invalid_graph_op,
                      "%d inputs given, %d expected where the codes are whole", n, most);
}

sinter_status_t quant_read_planes(const char *label, const attr_t *attrs, int n_attrs,
                                  bool quantises, const lt_t *ports, int least, int *n,
                                  sinter_data_type_t *codes, int *high)
{
    const attr_t *attr = attr_find(attrs, n_attrs, sinter_op_attr_split_type);
    const lt_t *low = &ports[0], *last = &ports[*n - 1];
    const char *port = quantises ? "output" : "input";
    if (attr == NULL) {
        return whole_codes(label, quantises, ports, least, *n);
    }
    const char *type = attr->str;
    *codes = quant_split_type(attrs, n_attrs);
    if (*codes == sinter_data_type_undef) {
        return FAIL(sinter_invalid_graph_op, "split_type \"%s\" is no type of six bits", type);
    }
    if (low->data_type != sinter_u4) {
        return FAIL_SPLIT(sinter_invalid_data_type,
                          "the low plane, tensor %" PRIu64 ", must be u4, not %s", low->id,
                          sinter_data_type_name(low->data_type));
    }
    if (*n <= least) {
        return FAIL_SPLIT(sinter_invalid_graph_op,
                          "the high plane of tensor %" PRIu64
                          " is missing: it is the last %s, a u2 tensor",
                          low->id, port);
    }
    if (last->data_type != sinter_u2) {
        return FAIL_SPLIT(sinter_invalid_data_type,
                          "the last %s, tensor %" PRIu64 ", must be the high plane, u2, not %s",
                          port, last->id, sinter_data_type_name(last->data_type));
    }
    *high = --*n;
    return sinter_success;
}
