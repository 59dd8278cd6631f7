/* The kinds of computed quantisation, and what their formulas are made from. */
#ifndef SINTER_SRC_QUANT_FORMULA_H
#define SINTER_SRC_QUANT_FORMULA_H

#include <stdbool.h>

/* The numbers that codes of IQ4_NL are. */
#define QUANT_IQ4_NL_NUMBERS                                                     \
    {                                                                            \
        -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 \
    }
/* Groups of numbers that are all smaller become zeros in dynamic_iq4_nl. */
#define QUANT_IQ4_NL_LEAST 1e-15f

typedef enum quant_kind {
    QUANT_STATIC,
    QUANT_DYNAMIC_MX,
    QUANT_DYNAMIC_MX_RCEIL,
    QUANT_DYNAMIC_SYMMETRIC,
    QUANT_DYNAMIC_ASYMMETRIC,
    QUANT_DYNAMIC_NV,
    QUANT_DYNAMIC_SIGNED,
    QUANT_DYNAMIC_IQ4_NL
} quant_kind_t;

/* What dynamic_asymmetric makes beside its scales. Floats and offsets are for groups whose numbers
 * go from their least to their largest; with integers 0 is among them. */
typedef enum quant_zps { ZPS_INTEGERS, ZPS_FLOATS, ZPS_OFFSETS } quant_zps_t;

/* What computed scales are made from, and how. */
typedef struct quant_formula {
    quant_kind_t kind;
    float elem_max, elem_min; /* of the codes */
    bool clamps;              /* the codes' type has numbers beyond these */
    double scale_max;         /* of the scales' type */
    float tensor_scale;       /* dynamic_nv; else 1 */
    quant_zps_t zps;
    float zp_max; /* of the type of floats and offsets */
} quant_formula_t;

static inline bool quant_by_powers(quant_kind_t kind)
{
    return kind == QUANT_DYNAMIC_MX || kind == QUANT_DYNAMIC_MX_RCEIL;
}

/* Whether the scale has the sign of the element of largest magnitude, so that codes reach their
 * least number. */
static inline bool quant_by_sign(quant_kind_t kind)
{
    return kind == QUANT_DYNAMIC_SIGNED || kind == QUANT_DYNAMIC_IQ4_NL;
}

#endif
