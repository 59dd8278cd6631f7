/* Random graphs: a seed becomes a graph, the graph runs fused and op by op, and both answer to the
 * oracle.
 *
 * A generator builds a fz_t: tensors and ops over them, where a dim may be a symbol whose size
 * is chosen later. From it come models: one with the sizes of a variant, and one in which
 * symbols are unknown dims, to be compiled once and run with each variant. */
#ifndef SINTER_TESTS_FUZZ_H
#define SINTER_TESTS_FUZZ_H

#include <sinter/sinter.h>

#include "fill.h"
#include "model.h"
#include "random.h"

enum {
    FZ_MAX_RANK = 6,
    FZ_MAX_TENSORS = 128,
    FZ_MAX_OPS = 64,
    FZ_MAX_PORTS = 9,
    FZ_MAX_ATTRS = 12,
    FZ_SOME_SYMBOLS = 16, /* for inputs; what they lead to needs others */
    FZ_MAX_SYMBOLS = 256,
    FZ_VARIANTS = 3
};

/* What a tensor's declaration keeps to itself, for the library to infer. */
typedef enum fz_declare { FZ_ALL, FZ_NO_LAYOUT, FZ_NO_DIMS, FZ_NO_RANK } fz_declare_t;

/* Scales near both ends of f32, and the zero points or offsets that bring codes back into range. */
typedef enum fz_brink { FZ_NO_BRINK, FZ_BRINK_SCALES, FZ_BRINK_ZPS, FZ_BRINK_OFFSETS } fz_brink_t;

/* Masks of 0 and -inf, the last two dims rows and columns: what they leave. Columns up to a length,
 * the same for all rows; every fourth column, or a fourth of all columns, to rows in turn; one
 * column; all; none; random ones; these with other numbers than 0, or with NaN here and there. But
 * for a length and all, some rows see nothing. */
typedef enum fz_cells {
    FZ_NO_CELLS,
    FZ_LENGTH,
    FZ_SLOTS,
    FZ_RUNS,
    FZ_ONE_CELL,
    FZ_ALL_CELLS,
    FZ_NONE,
    FZ_ANY,
    FZ_TERMS,
    FZ_NANS
} fz_cells_t;

typedef struct fz_tensor {
    sinter_data_type_t type;
    sinter_tensor_property_t property;
    int ndims, produced, keep; /* keep: a graph output even if it is consumed */
    int64_t dims[FZ_MAX_RANK]; /* sizes or symbols */
    int order[FZ_MAX_RANK], pad[FZ_MAX_RANK],
        repeat[FZ_MAX_RANK]; /* dims by falling stride; gaps in elements; stride 0 */
    /* 1 + the place in `order` from which on strides are doubled, so that another tensor fits
     * between; 0: none */
    int halves;
    int fixed; /* strides that hold for all variants, known at compile */
    fz_declare_t declare;
    int specials;  /* percent of NaN, Inf, -0, subnormal and huge values among its elements */
    int nonfinite; /* percent of NaN and Inf */
    /* runs of zeros, subnormals, huge values, powers of two and their neighbours, outliers,
     * specials */
    int wild;
    /* magnitudes from 2^-10 to 2^8, the same in runs; zeros; 2: and a NaN or an infinity here
     * and there */
    int spread;
    int vast; /* magnitudes near both ends of the type's range, the same in runs */
    /* far > 0: all lie around one value, far bits apart from it; scaled by 2^level. */
    int far, level;
    fz_brink_t brink;
    /* What they are for, a tensor; whether the scales are powers of two. */
    int codes, power;
    fz_cells_t cells;
    /* Of a cache in tiles: 1 + the mask, and the dim of its tokens. Tokens that this leaves to no
     * row are NaN, infinities and other odd numbers in the tiles, and usual ones for the oracle. */
    int hidden_by, token_dim;
    int dead_rows;       /* 1 + the axis whose rows are wholly -Inf here and there; 0: none */
    const double *value; /* for each variant: what all elements are; NULL: random */
    /* Elements are indices into a dim of this size, which may be a symbol; 0: they are not.
     * from_end: negative ones as well; skip: -1 here and there. */
    int64_t index_of;
    int from_end, skip;
    /* The library has it in tiles, and the oracle strided: 1 codes, 2 values, 3 codes in blocks; 0:
     * both strided. turned: for a MatMul with transpose_b. any: the library has it in these tiles
     * or strided, as compile chooses. kept: so many bits of each integer of 8 bits are enough and
     * lie in tiles; 0: all. */
    int tiles, turned, any, kept;
} fz_tensor_t;

typedef struct fz_op {
    sinter_op_kind_t kind;
    int n_in, n_out, n_attrs;
    int in[FZ_MAX_PORTS], out[FZ_MAX_PORTS];
    orc_attr_t attrs[FZ_MAX_ATTRS];
} fz_op_t;

typedef struct fz {
    uint64_t seed, state;
    const char *generator;
    gr_arena_t arena; /* arrays of attributes */
    int n_tensors, n_ops;
    fz_tensor_t tensors[FZ_MAX_TENSORS];
    fz_op_t ops[FZ_MAX_OPS];
    int dynamic, n_symbols;
    int64_t sizes[FZ_MAX_SYMBOLS][FZ_VARIANTS];
    sinter_fpmath_mode_t mode;
    int apply_to_int;
    int fused_only;      /* not op by op as well */
    int lacks_ranks;     /* the graph is built without some inputs' numbers of dims */
    int rank_comes_late; /* some inputs have no number of dims before compile; 2: nor then */
    int interleave;      /* outputs go between the elements of inputs, where they fit */
    int compute_scales;  /* of tensors, for dynamic_nv: these ops are partitions of their own */
    int one_space;       /* all values broadcast to the same dims, which no side input enlarges */
} fz_t;

/* ---- build.c: numbers ------------------------------------------------------------------------ */

void fz_init(fz_t *f, uint64_t seed);
void fz_free(fz_t *f);
int fz_pick(fz_t *f, int n);              /* 0 .. n - 1 */
int fz_range(fz_t *f, int low, int high); /* both included */
int fz_chance(fz_t *f, int percent);
#define FZ_ONE_OF(f, ...) \
    ((int64_t[]){         \
        __VA_ARGS__})[fz_pick(f, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))]

/* ---- build.c: dims --------------------------------------------------------------------------- */

/* value, or in a dynamic case perhaps a symbol with value as its first size; all sizes are
 * multiples of `multiple`. */
int64_t fz_dim(fz_t *f, int64_t value, int64_t multiple);
int64_t fz_symbol(fz_t *f, int64_t first, int64_t second, int64_t third);
int fz_is_symbol(int64_t dim);
/* dim / by, of symbols too (whose sizes must all be multiples of it). */
int64_t fz_divide(int64_t dim, int64_t by);
int64_t fz_size(const fz_t *f, int64_t dim, int variant);
int fz_may_be_empty(const fz_t *f, int64_t dim); /* in some variant */
/* A divisor of all sizes of dim. */
int64_t fz_divisor(fz_t *f, int64_t dim);
/* dim itself, or in a dynamic case perhaps a symbol that has its size in every variant. */
int64_t fz_hidden(fz_t *f, int64_t dim);
/* What broadcasts to dim: 1, dim itself, or in a dynamic case a symbol that is either. */
int64_t fz_part(fz_t *f, int64_t dim, int percent_smaller);
/* The dim that two broadcast to. */
int64_t fz_joined(fz_t *f, int64_t a, int64_t b);
/* The same of two shapes; gives the rank. */
int fz_joined_dims(fz_t *f, int n_a, const int64_t *a, int n_b, const int64_t *b, int64_t *dims);

/* ---- build.c: tensors and ops ---------------------------------------------------------------- */

/* Both with random layouts. Give an index. */
int fz_input(fz_t *f, sinter_data_type_t type, int ndims, const int64_t *dims);
/* One element, in memory or by value; a higher rank than that of the other operand would raise
 * the result's. */
int fz_scalar(fz_t *f, sinter_data_type_t type, int max_ndims);
/* An op with one output; more can be added to the last op. */
int fz_op(fz_t *f, sinter_op_kind_t kind, sinter_data_type_t type, int ndims, const int64_t *dims,
          int n_in, const int *in);
#define FZ_OP(f, kind, type, ndims, dims, ...)    \
    fz_op(f, sinter_op_##kind, type, ndims, dims, \
          (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]){__VA_ARGS__})
int fz_more_output(fz_t *f, sinter_data_type_t type, int ndims, const int64_t *dims);
void fz_s64(fz_t *f, sinter_op_attr_t attr, size_t n, const int64_t *values);
void fz_f32(fz_t *f, sinter_op_attr_t attr, size_t n, const float *values);
void fz_str(fz_t *f, sinter_op_attr_t attr, const char *value);
void fz_bool(fz_t *f, sinter_op_attr_t attr, int value);
void fz_no_gaps(fz_t *f, int tensor); /* dense row-major */
/* Leaves room for another tensor of that layout between the elements or the rows. */
void fz_interleave(fz_t *f, int tensor);

/* The output has the input's dims. */
int fz_unary(fz_t *f, sinter_op_kind_t kind, sinter_data_type_t type, int x);
/* The output has the dims of both, broadcast. */
int fz_binary(fz_t *f, sinter_op_kind_t kind, sinter_data_type_t type, int a, int b);
int fz_cast(fz_t *f, sinter_data_type_t type, int x);
int fz_transpose(fz_t *f, int x, const int64_t *order);
/* -1: symbols stand where the attribute cannot say it. */
int fz_reshape(fz_t *f, int x, int ndims, const int64_t *dims);

/* ---- gen_common.c ---------------------------------------------------------------------------- */

sinter_data_type_t fz_float(fz_t *f);
/* Dims that broadcast to those of x without enlarging it. */
int fz_side_dims(fz_t *f, int x, int64_t *dims);
/* The same, but that unknown dims of x may be enlarged where they are 1. */
int fz_other_dims(fz_t *f, int x, int64_t *dims);
sinter_op_kind_t fz_binary_kind(fz_t *f);
int fz_random_unary(fz_t *f, int x, sinter_data_type_t type);
/* One of: unary, binary with a side input, BiasAdd, PReLU, TypeCast, Dropout. */
int fz_post_op(fz_t *f, int x);
/* Indices into a dim, s32 or s64. */
int fz_indices(fz_t *f, int ndims, const int64_t *dims, int64_t index_of);
/* Dims of at most `room` elements, of the sizes that norms and moves are tried with. */
int fz_some_dims(fz_t *f, int least, int most, int64_t room, int64_t *dims);
/* Rows of an input, or what dequantisation, a cast or a sum makes of one. */
int fz_rows(fz_t *f, int ndims, const int64_t *dims);

/* ---- gen_quant.c ----------------------------------------------------------------------------- */

/* How one tensor of scales or zero points divides the data. */
typedef struct fz_geometry {
    const char *qtype;
    int offsets; /* zero points are offsets */
    int ragged;  /* only group_shape says the groups: some last ones may be short */
    int untold;  /* the attributes do not say how many groups there are */
    int64_t axis;
    int64_t group[FZ_MAX_RANK]; /* 0: the whole dim */
    int ndims;
    int64_t dims[FZ_MAX_RANK];
} fz_geometry_t;

/* What a DynamicQuantize that computes its scales made. zps: -1 without. */
typedef struct fz_coded {
    int codes, scales, zps;
    fz_geometry_t geometry;
    int high; /* the high plane of split codes, else -1 */
    sinter_data_type_t split;
} fz_coded_t;

sinter_data_type_t fz_code_type(fz_t *f);
/* Codes of a random type with scales and perhaps zero points, dequantised; codes: an existing
 * tensor, or -1 for a new input. */
int fz_dequantized(fz_t *f, sinter_data_type_t type, int ndims, const int64_t *dims, int codes);
/* Static, with given scales or with computed ones; the output's type is a code type. */
int fz_quantized(fz_t *f, int x);
/* Computed scales of a random kind. group: 0, or how many elements of the last dim share one. */
fz_coded_t fz_computed(fz_t *f, int x, int64_t group);
/* Dequantised with what fz_computed gave. */
int fz_recovered(fz_t *f, sinter_data_type_t type, const fz_coded_t *q);
/* Perhaps scales near both ends of f32, with zero points or offsets (zps -1: none) that make up for
 * it. */
void fz_perhaps_at_brink(fz_t *f, int codes, int scales, int zps, int offsets, int percent);
/* Lays all that the last op dequantises to x in tiles, now and then, if it can lie so, or leaves
 * that to compile. x is the second operand of the MatMul that follows. */
void fz_perhaps_in_tiles(fz_t *f, int x, int transpose_b, int percent);
/* Lays K or V of attention in tiles: what the last op dequantises to x, or the floats x. Parts that
 * cannot lie so keep strides; any: compile chooses. */
void fz_cache_in_tiles(fz_t *f, int x, int transpose_b, int is_v, int any);
/* Lays inputs of all ops in tiles, now and then. */
void fz_some_in_tiles(fz_t *f, int percent);

/* ---- generators ------------------------------------------------------------------------------ */

void fz_gen_eltwise(fz_t *f);
void fz_gen_matmul(fz_t *f);
void fz_gen_attention(fz_t *f);
void fz_gen_turned_attention(fz_t *f);
void fz_gen_paged_attention(fz_t *f);
void fz_gen_softmax(fz_t *f);
void fz_gen_views(fz_t *f);
void fz_gen_dynquant(fz_t *f);
void fz_gen_mlp(fz_t *f);
void fz_gen_norm(fz_t *f);
void fz_gen_rope(fz_t *f);
void fz_gen_gather(fz_t *f);
void fz_gen_recurrent(fz_t *f);
void fz_gen_experts(fz_t *f);
void fz_gen_experts_mlp(fz_t *f);
void fz_gen_router(fz_t *f);
void fz_gen_image(fz_t *f);
void fz_gen_conv(fz_t *f);

/* ---- emit.c ---------------------------------------------------------------------------------- */

/* The model with the sizes of a variant; unknown: with symbols as unknown dims instead. */
int fz_emit(const fz_t *f, int variant, int unknown, model_t *model, gr_error_t *err);
/* A tensor as that model has it, but with its dims, unless they are symbols. */
void fz_with_dims(const fz_t *f, int tensor, sinter_logical_tensor_t *lt);
/* A tensor as the library has it; 1: it is in tiles, of which lt has the layout now. */
int fz_tiled(const fz_t *f, int tensor, sinter_logical_tensor_t *lt);
/* The graph as one line per op. */
void fz_print(const fz_t *f);

/* ---- run.c ----------------------------------------------------------------------------------- */

typedef enum fz_outcome { FZ_PASSED, FZ_UNSUPPORTED, FZ_FAILED } fz_outcome_t;
/* Runs all variants fused and op by op. text: the reason of a refusal or failure. */
fz_outcome_t fz_run(fz_t *f, char *text, size_t size);

/* Cases, fused partitions and ops, for the summary. */
typedef struct fz_tally {
    long cases[3], partitions, ops;
    long outputs;     /* compared */
    long interleaved; /* outputs that lay between the elements of an input */
    long tiled;       /* tensors that lay in tiles */
    double loose;     /* the sum of their shares of elements with a bound that checks nothing */
    struct {
        char name[32];
        long n;
    } patterns[64];
    struct {
        char text[160];
        long n;
    } refusals[64];
} fz_tally_t;
extern fz_tally_t fz_tally;
/* Prints what share of an output's elements was loose, on average; more than `most` is a failed
 * check, but for runs of a few cases, whose share says nothing. */
void fz_check_loose(double most);

#endif
