/* The geometry of quantisation: the one owner of per_tensor / per_channel / per_group, of axis +
 * groups and group_shape. Nobody else compares qtype strings. */
#ifndef SINTER_SRC_QUANT_H
#define SINTER_SRC_QUANT_H

#include "graph/graph.h"
#include "numeric/quant_formula.h"

/* How codes map to scales and zero points. Group sizes are in elements of the data tensor, one
 * for each of its dims: the dim itself where one value covers all, 1 where every index has its
 * own; SINTER_UNKNOWN_DIM where data or scale dim is not known yet. */
typedef struct quant_geom {
    quant_kind_t kind;
    int ndims;
    int64_t scale_group[SINTER_MAX_NDIMS], zp_group[SINTER_MAX_NDIMS];
    bool has_zp;         /* as a tensor or as the attribute zps */
    bool from_attrs;     /* scales and zps are attributes (Quantize, Dequantize) */
    const float *scales; /* from_attrs: n_scales values along axis (n_scales 1: per tensor) */
    const int64_t *zps;  /* from_attrs: n_scales values or NULL */
    int64_t n_scales;
    int axis;                  /* per_channel: the axis, normalised; else -1 */
    int scale_input, zp_input; /* input ports of the node, -1 if none */
    /* the input (of a quantising op, the output) that is the high plane of split codes; -1:
     * whole codes */
    int high_port;
    /* Rank-1 (per_channel) or scalar scale tensors have no dim for each data dim; this maps data
     * dim -> dim of the scales / zps tensor, -1: none. */
    int scale_dim[SINTER_MAX_NDIMS], zp_dim[SINTER_MAX_NDIMS];
} quant_geom_t;

/* Reads a Quantize, Dequantize, DynamicQuantize or DynamicDequantize node's geometry and checks
 * every rule. in[] are the input tensors (data, scales, zps, the high plane of split codes), for
 * dynamic kinds the outputs as well. Every broken rule has its own message, which starts with
 * `label`. */
sinter_status_t quant_geometry(const char *label, sinter_op_kind_t kind, const attr_t *attrs,
                               int n_attrs, const lt_t *in, int n_in, const lt_t *out, int n_out,
                               quant_geom_t *geom);

/* The type that attribute split_type names: codes whose planes are the first and the last input
 * (output). undef: the codes are whole. */
sinter_data_type_t quant_split_type(const attr_t *attrs, int n_attrs);
/* Checks the planes of split codes, or that there is no high plane, among the inputs (outputs,
 * if quantises): *n loses the high plane, *codes becomes split_type, *high the port. least: how
 * many ports there are with whole codes and without zero points. */
sinter_status_t quant_read_planes(const char *label, const attr_t *attrs, int n_attrs,
                                  bool quantises, const lt_t *ports, int least, int *n,
                                  sinter_data_type_t *codes, int *high);

/* Element offset of the scale (or zero point) of the element at index idx[], given the tensor's
 * own strides. */
int64_t quant_scale_index(const quant_geom_t *geom, const int64_t *idx,
                          const int64_t *scale_strides);
int64_t quant_zp_index(const quant_geom_t *geom, const int64_t *idx, const int64_t *zp_strides);

#endif
