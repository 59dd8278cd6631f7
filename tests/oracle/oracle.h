/* The double-precision reference. It shares with the library the .def tables and the public structs
 * only: it decodes packed bytes, infers shapes, dequantises and computes with its own code, op by
 * op, in double.
 *
 * Every value travels with a bound: how far a correct implementation may be from it under the
 * graph's fpmath mode, because of f32 arithmetic, of roundings that an unfused execution makes
 * at declared intermediate types, and of what earlier bounds do to later ops (running error
 * analysis). A result is right if |got - value| <= bound + half a unit of the output type there.
 * There is no other tolerance anywhere. */
#ifndef SINTER_TESTS_ORACLE_H
#define SINTER_TESTS_ORACLE_H

#include <sinter/sinter_types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct orc_attr {
    sinter_op_attr_t id;
    size_t n;           /* elements of s64 / f32 */
    const int64_t *s64; /* S64, S64S */
    const float *f32;   /* F32, F32S */
    const char *str;    /* STR */
    int b;              /* BOOL */
} orc_attr_t;

typedef struct orc_op {
    uint64_t id;
    sinter_op_kind_t kind;
    size_t n_attrs, n_inputs, n_outputs;
    const orc_attr_t *attrs;
    const sinter_logical_tensor_t *inputs, *outputs; /* dims of outputs may be unknown */
} orc_op_t;

typedef struct orc_graph {
    size_t n_ops;
    const orc_op_t *ops; /* in any order */
    sinter_fpmath_mode_t mode;
    int apply_to_int;
} orc_graph_t;

/* Packed bytes as a caller of the library would hold them. */
typedef struct orc_tensor {
    sinter_logical_tensor_t lt; /* known dims and strides */
    const void *data;
} orc_tensor_t;

/* A computed tensor, dense row-major. value and bound are owned by the result. */
typedef struct orc_result {
    sinter_logical_tensor_t lt; /* dims inferred by the oracle */
    size_t n;
    double *value, *bound;
    /* no result lies beyond the largest number of the type, even where value and bound together
     * do */
    int saturates;
} orc_result_t;

/* Runs the graph on inputs (every tensor without producer) and fills results[i] for ids[i]. 0,
 * or -1 with a message in err. Uses OpenMP. */
int orc_run(const orc_graph_t *graph, size_t n_inputs, const orc_tensor_t *inputs, size_t n_outputs,
            const uint64_t *ids, orc_result_t *results, char *err, size_t err_size);
void orc_result_free(orc_result_t *result);

typedef struct orc_diff {
    size_t n, bad;   /* elements compared, elements out of bound */
    size_t loose;    /* elements with a bound that checks nothing: compare.c says which are */
    size_t loose_at; /* linear index of the first of them, its value and its bound */
    double loose_want, loose_bound;
    /* Elements that are not the value rounded. Where they are not bad, a boundary of rounding lies
     * inside their bound. */
    size_t differ;
    size_t open;        /* elements for which the bound leaves more than one result */
    size_t worst;       /* linear index of the largest |got - value| / tolerance */
    double worst_ratio; /* that ratio: <= 1 passes */
    double got, want, tolerance;
    /* ||got - value|| / ||value|| over finite elements: it shows systematic errors. */
    double rel_l2;
} orc_diff_t;

/* Compares packed bytes laid out as lt against a result; NaN equals NaN, Inf equals Inf of the same
 * sign. Returns 0 if nothing is bad, nothing is loose and the dims agree. */
int orc_compare(const orc_result_t *want, const sinter_logical_tensor_t *lt, const void *data,
                orc_diff_t *diff);
/* The same where a share of the elements may be loose: the caller says why. */
int orc_compare_loosely(const orc_result_t *want, const sinter_logical_tensor_t *lt,
                        const void *data, double max_loose, orc_diff_t *diff);
/* What is wrong, by linear index; returns text. */
const char *orc_diff_text(const orc_diff_t *diff, char *text, size_t size);

/* One element of packed bytes at an element offset (not logical index) as double. */
double orc_decode(sinter_data_type_t type, const void *data, int64_t element);
/* Stores the value of type nearest to v (ties to even, saturating as NUMERICS.md says for casts)
 * at an element offset. */
void orc_encode(sinter_data_type_t type, void *data, int64_t element, double v);

#ifdef __cplusplus
}
#endif
#endif
