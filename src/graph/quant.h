/* How a quantising or dequantising op maps between codes and numbers. The descriptor on the node is
 * read from the attributes once, when the op is added to a graph; from then on everybody reads the
 * descriptor, and passes edit it. Group sizes follow from the descriptor and the tensors' dims:
 * whoever checks the node in its graph leaves them in the descriptor. */
#ifndef SINTER_SRC_QUANT_H
#define SINTER_SRC_QUANT_H

#include "graph/node.h"
#include "numeric/quant_formula.h"

typedef enum quant_type { QUANT_PER_TENSOR, QUANT_PER_CHANNEL, QUANT_PER_GROUP } quant_type_t;

/* The values of an attribute; v NULL: it is not given, or the op's quant_type does not use it. */
typedef struct s64_list {
    size_t n;
    const int64_t *v;
} s64_list_t;

/* A ConvTranspose that reads dequantised numbers as its weights. Their dim of output channels has
 * those of one group only, while scales may be one for each output channel of all groups. */
typedef struct weights_reader {
    uint64_t op;
    int64_t groups;
    int in_axis, out_axis; /* dims of the channels; from the end if negative */
} weights_reader_t;

/* The descriptor applied to tensors. Group sizes are in elements of the data tensor, one for each
 * of its dims: the dim itself where one value covers all, 1 where every index has its own;
 * SINTER_UNKNOWN_DIM where the dim of the data or of the scales is not known yet. A size need not
 * divide its dim: then the last group is shorter. */
typedef struct quant_geom {
    int ndims;
    int axis; /* per_channel: the axis, counted from the first dim; else -1 */
    /* Of scales in attributes: their inner axis, where a pass or a reader in groups has given them
     * two; else -1. Then axis, the outer one, is divided into groups. */
    int inner_axis;
    int64_t scale_group[SINTER_MAX_NDIMS], zp_group[SINTER_MAX_NDIMS];
    /* Scales with one dim (per_channel) or none have no dim for each data dim. These map a data
     * dim to the dim of the scales or zero points, -1: none. */
    int8_t scale_dim[SINTER_MAX_NDIMS], zp_dim[SINTER_MAX_NDIMS];
} quant_geom_t;

/* The descriptor: everything that attributes and the number of ports say, and of scales in
 * attributes also the ops that read the numbers. */
typedef struct quant {
    quant_kind_t kind; /* QUANT_STATIC: scales are given; else the op computes them */
    quant_type_t type;
    /* Codes whose bits lie in two tensors of the same dims: the type that low and high bits make
     * up together. undef: one tensor holds the whole codes. */
    sinter_data_type_t split;
    /* The input (of a quantising op: output) with the high bits; -1: whole codes. */
    int high_port;
    s64_list_t axes;   /* as given: may count from the end */
    s64_list_t groups; /* number of groups along each of axes */
    /* The size of a group along each dim of the data. The last group of a dim may be shorter. */
    s64_list_t group_shape;
    /* Scales and zero points as attributes (Quantize, Dequantize). scales NULL: as tensors. */
    const float *scales;
    size_t n_scales;        /* 1, or one for each index of the axis, or of both (quant_geom_t) */
    s64_list_t zps;         /* n_scales values */
    const float *float_zps; /* n_scales values in place of zps; NULL: not given */
    bool has_zp;
    bool offsets;  /* the zero points are offsets: x = scale * code + offset */
    int code_bits; /* of computed integer codes; 0: all that their type has */
    /* Input ports of scales and zero points, -1 if none. An op that computes its scales has them
     * as output 1 and its zero points as output 2. */
    int scale_input, zp_input;
    /* Of scales in attributes: those that read the numbers in different ways, of which two are
     * enough to refuse. n_readers is -1 before finalize finds them. */
    int n_readers;
    weights_reader_t readers[2];
    /* Over the tensors of the node's graph, as of the last check. */
    quant_geom_t geom;
} quant_t;

/* Reads the attributes of a Quantize, Dequantize, DynamicQuantize or DynamicDequantize node, which
 * have passed the schema check. The lists stay in the attributes. Every broken rule has its own
 * message. */
sinter_status_t quant_read(const node_t *node, quant_t *quant);
/* A copy with lists of its own; NULL: out of memory. */
quant_t *quant_copy(arena_t *arena, const quant_t *from);
/* For passes: gives the node a descriptor with these groups (axes only for QUANT_PER_CHANNEL,
 * group_shape only for QUANT_PER_GROUP, which without it goes by the dims of the scales), and
 * attributes that say the same. Lists are copied. Scales in attributes may get two axes: those that
 * a view has made of one, the outer one first. */
sinter_status_t quant_regroup(arena_t *arena, node_t *node, quant_type_t type, s64_list_t axes,
                              s64_list_t group_shape);

/* undef: not a quantising op, or whole codes. */
static inline sinter_data_type_t quant_split_of(const node_t *node)
{
    return node->quant != NULL ? node->quant->split : sinter_data_type_undef;
}

/* How many groups of `size` elements a dim of n elements has: the last one may be shorter. */
static inline int64_t quant_n_groups(int64_t n, int64_t size)
{
    return n / size + (n % size != 0);
}

/* Elements of a group along a dim of n > 0 elements that has `groups` groups. said: the size that
 * group_shape gives, 0 if it does not. Where the number of groups is that of groups of the said
 * size, that is the size, else the groups divide the dim. 0: they do not. */
static inline int64_t quant_group_size(int64_t n, int64_t groups, int64_t said)
{
    if (said > 0 && groups == quant_n_groups(n, said)) {
        return said < n ? said : n;
    }
    return groups > 0 && n % groups == 0 ? n / groups : 0;
}

/* What group_shape says about dim d of data of ndims dims; 0: nothing. */
static inline int64_t quant_said_size(const quant_t *q, int ndims, int d)
{
    return q->group_shape.v != NULL && q->group_shape.n == (size_t)ndims ? q->group_shape.v[d] : 0;
}

/* Checks every rule about the tensors of a node that has a descriptor, and finds the groups. in[]
 * are data, scales, zero points and the high plane of split codes; out[] the outputs. Reads no
 * attribute and allocates nothing. Every broken rule has its own message. */
sinter_status_t quant_geometry(const node_t *node, const lt_t *in, const lt_t *out,
                               quant_geom_t *geom);

/* For quant_geometry: the types of both planes of split codes, or that there is one plane. ports:
 * inputs, or the outputs of an op that quantises; least: how many there are with whole codes and
 * without zero points. */
sinter_status_t quant_check_planes(const node_t *node, bool quantises, const lt_t *ports,
                                   int least);

#endif
