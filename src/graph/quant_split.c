/* Codes of six bits in two planes, as the attribute split_type says: the low plane is the op's
 * data, the high plane its last input. */
#include <inttypes.h>

#include <sinter/sinter_graph.h>

#include "base/status.h"
#include "graph/op_rules.h"
#include "graph/quant.h"
#include "graph/shape.h"

#define FAIL_SPLIT(status, format, ...) \
    sg_fail(status, "%s: split_type %s: " format, node_label(node), type, __VA_ARGS__)

/* The planes of split codes have the same dims. */
sinter_status_t dims_planes(const node_t *node, lt_t *in, lt_t *out)
{
    (void)out;
    const char *type = sinter_data_type_name(node->quant->split);
    const int high_port = node->quant->high_port;
    lt_t *low = &in[0], *high = &in[high_port < 0 ? 0 : high_port];
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
        if (!dims_unify(&low->dims[i], &high->dims[i])) {
            return FAIL_SPLIT(sinter_invalid_shape,
                              "the high plane, tensor %" PRIu64 ", has %" PRId64
                              " elements along dimension %d, the low plane, tensor %" PRIu64
                              ", has %" PRId64,
                              high->id, high->dims[i], i, low->id, low->dims[i]);
        }
    }
    return sinter_success;
}

/* No high plane, and not more inputs than codes, scales and zero points. (quant_geometry counts
 * the outputs.) */
static sinter_status_t check_whole(const node_t *node, bool quantises, const lt_t *ports, int least)
{
    const int n = quantises ? node->n_out : node->n_in, most = least == 1 ? 1 : least + 1;
    if (n > 1 && ports[n - 1].data_type == sinter_u2) {
        return FAIL_OP(
            node,
            "%s %d, tensor %" PRIu64
            ", is u2, the high plane of split codes, but attribute split_type is missing",
            quantises ? "output" : "input", n - 1, ports[n - 1].id);
    }
    return quantises || n <= most
               ? sinter_success
               : FAIL_OP(node, "%d inputs given, %d expected where the codes are whole", n, most);
}

sinter_status_t quant_check_planes(const node_t *node, bool quantises, const lt_t *ports, int least)
{
    const int high = node->quant->high_port;
    const char *type = sinter_data_type_name(node->quant->split);
    const char *port = quantises ? "output" : "input";
    if (high < 0) {
        return check_whole(node, quantises, ports, least);
    }
    if (ports[0].data_type != sinter_u4) {
        return FAIL_SPLIT(sinter_invalid_data_type,
                          "the low plane, tensor %" PRIu64 ", must be u4, not %s", ports[0].id,
                          sinter_data_type_name(ports[0].data_type));
    }
    if (high < least) {
        return FAIL_SPLIT(sinter_invalid_graph_op,
                          "the high plane of tensor %" PRIu64
                          " is missing: it is the last %s, a u2 tensor",
                          ports[0].id, port);
    }
    if (ports[high].data_type != sinter_u2) {
        return FAIL_SPLIT(sinter_invalid_data_type,
                          "the last %s, tensor %" PRIu64 ", must be the high plane, u2, not %s",
                          port, ports[high].id, sinter_data_type_name(ports[high].data_type));
    }
    return sinter_success;
}
