/* The plan: what a compiled partition is. A list of steps over values, made once at compile;
 * execute only binds pointers and runs it.
 *
 *   partition subgraph --passes--> --lower--> plan (steps, values) --select--> kernels
 *   --setup--> JIT handles, scratch sizes
 *
 * Dims may be unknown until execute, so a plan does not depend on dims that only execute knows. At
 * execute a frame holds the data pointer, dims and strides of every value. They choose among the
 * kernels of a step where compile could not, and the kernel fills its state from the frame before
 * the threads start. */
#ifndef SINTER_SRC_PLAN_H
#define SINTER_SRC_PLAN_H

#include "base/alloc.h"
#include "graph/pages.h"
#include "graph/window.h"
#include "numeric/tiles.h"
#include "patterns/partition.h"

/* A value bound for one execute. Strides are in elements, for the dims that the reader sees: views
 * are applied. */
typedef struct bound {
    unsigned char *data;
    sinter_data_type_t dtype;
    int ndims;
    int64_t dims[SINTER_MAX_NDIMS], strides[SINTER_MAX_NDIMS];
    /* Elements of a block, and from one block to the next: the last dim lies in blocks, within
     * which its stride is 1. 0: no blocks. Only a MatMul's B does. */
    int64_t block, block_stride;
    /* If it lies in tiles, strides are those of the tensor that it was copied from, or those of a
     * dense tensor. */
    tiled_t tiled;
    int64_t heads; /* as groups_t has them; views of a cache keep them */
    /* Of a value in pages: where these are, how many there are, the tokens of one, and the elements
     * from one to the next. Dims are those of the value; the stride of the dim of tokens is the one
     * within a page, and those of dims of the table are 0. NULL: of another value. */
    const pages_of_t *pages;
    int64_t n_pages, page, page_stride;
} bound_t;

/* How far one page lies behind the one before, in steps from one token to the next within a page;
 * -1: no whole number of these. */
static inline int64_t pages_apart(const bound_t *b)
{
    const int64_t step = b->strides[b->pages->tokens];
    return b->page == 1                 ? 1
           : b->n_pages <= 1            ? 0
           : step == 0                  ? -1
           : b->page_stride % step == 0 ? b->page_stride / step
                                        : -1;
}

typedef struct frame {
    bound_t *v; /* by plan value */
    int shares; /* in choose: of the step */
} frame_t;

/* Factors of scales that are codes: the value, and how many scales along K share one. */
typedef struct factors_of_scales {
    int value;
    int64_t groups;
} factors_of_scales_t;

/* One matrix operand: codes and how they become numbers. data, scale, zp and high are values; -1:
 * none. scale_dim[d] is the dim of the scales that belongs to dim d of the data; -1: there is none.
 * group_size[d] is what group_shape says about d, 0: nothing. Then the groups along d have
 * dims[d] / scale dims[scale_dim[d]] elements; for -1 a group is all of the dim.
 * Static scales and zero points are constant values (f32, s32). split: data (u4) and high (u2) are
 * the low and the high plane of codes of that type. scale_by and zp_by: what scales, or offsets,
 * are multiplied with, NULL: nothing; only a MatMul's B in tiles has them. */
typedef struct operand {
    int data, scale, zp, high;
    sinter_data_type_t split; /* undef: data holds the codes, high is not used */
    bool offsets; /* zp has offsets: scale * code + offset, in the groups of the scales */
    int8_t scale_dim[SINTER_MAX_NDIMS], zp_dim[SINTER_MAX_NDIMS];
    int64_t group_size[SINTER_MAX_NDIMS];
    const factors_of_scales_t *scale_by, *zp_by;
} operand_t;

typedef enum step_kind {
#define SINTER_STEP(kind, name, driver) STEP_##kind,
#include "backend_xsmm/steps.def"
} step_kind_t;

enum {
    STEP_KINDS = 0
#define SINTER_STEP(kind, name, driver) +1
#include "backend_xsmm/steps.def"
};

/* A convolution: rows of A are patches of an image (drivers/matmul_patches.c). */
typedef struct conv_params {
    window_t dim[SINTER_MAX_NDIMS]; /* by spatial dim */
    int channel;                    /* the dim of channels of image and result: 1 or the last one */
    int64_t groups;
    bool transposed;
} conv_params_t;

/* out[b.., M, N] = A[b.., M, K] * B[b.., K, N], numpy broadcast of b, then `post` over out's
 * dims with the product in register 0. At least 2-D each. */
typedef struct matmul_params {
    operand_t a, b;
    bool trans_a, trans_b; /* the last two dims of the operand are swapped */
    /* NULL: none. Else a is the image, b the weights [groups, window, I, O], and the output has the
     * image's format. */
    const conv_params_t *conv;
    /* The value of indices, each of which names the matrix of b, one of [experts, ..], that a row
     * of a meets; -1: none. */
    int experts;
    /* b lies in tiles that the micro-kernels of tiles take (numeric/tiles.h): the tensors that the
     * caller has given, or copies, if the constant cache has room for them. */
    bool tiled;
    const char *why_no_tiles; /* NULL: it does, or nobody has asked */
    /* A value whose dims are those of the output: the first stored one, or one without data. */
    int out_dims;
} matmul_params_t;

/* The MLP of experts: out = the sum over the experts of a token of weigh(down(mid(gate, up))).
 * Products are steps of kind MATMUL that the plan does not list: n_upper products of the
 * activation, then the one of what `mid` makes of their results. Where one table has gate and up,
 * both are the same product, of which the second one has the upper half of the columns, or the odd
 * ones. */
enum { MLP_UPPER = 2, MLP_TABLES = 8 };
typedef struct mlp_params {
    int n_upper;
    bool halves;  /* of one product */
    bool in_turn; /* halves are its even and its odd columns */
    struct step *product[MLP_UPPER + 1];
    /* Over the dims of A of the last product, with the result of the last of the n_upper ones in
     * register 0, and over those of its result with that in it. NULL: the value as it is. */
    const struct chain *mid, *weigh;
    const bool *is_first; /* by operand of `mid`: the result of the first of two, without memory */
    /* Values without memory of which each expert has a row, biases for one: where a chain reads
     * `value`, it means the row of `table` that belongs to the expert. */
    int n_tables;
    struct mlp_table {
        int value, table;
    } tables[MLP_TABLES];
    int out_dims; /* a value with the dims of the sums */
} mlp_params_t;

/* Softmax of `in` over `axis`, then `post` over the dims of `in` with the probability in
 * register 0. */
typedef struct softmax_params {
    int in, stats; /* stats -1: none; else f32 max + log(sum(exp)), axis dim 1 */
    /* One more logit for each row; broadcasts to the dims of stats. -1: none. */
    int sink;
    /* Counted from the front; where compile does not know the rank it is as given, and execute
     * counts it from the front. */
    int axis;
    bool inf_as_zero, log; /* log: LogSoftmax */
} softmax_params_t;

/* LayerNorm, RMSNorm and GroupNorm: y = (x - mean) / sqrt(variance + epsilon) for each row, then
 * `post` over the dims of x with y in register 0. A row is the dims from begin_axis on; where
 * channel is not 0, it is all dims but the first, and of the channels one group. RMSNorm takes 0
 * for the mean. */
typedef struct norm_params {
    int x;              /* a value with the dims of x; -1 for those below: none */
    int mean, variance; /* one for each row */
    int begin_axis;     /* negative: counted from the end */
    int channel;        /* the dim */
    int64_t groups;
    bool centered;
    double epsilon;
} norm_params_t;

/* ReduceSum and the like: `post` over the dims of the result, which is in register 0. */
typedef struct reduce_params {
    int x; /* a value with the dims of the input */
    sinter_op_kind_t kind;
    const int64_t *axes; /* negative ones: counted from the end */
    int n_axes;
    bool keep_dims;
} reduce_params_t;

/* MaxPool, AvgPool and Interpolate: `post` over the dims of the result, which is in register 0. */
typedef struct window_params {
    int x; /* a value with the dims of the image */
    sinter_op_kind_t kind;
    int channel;                    /* the dim of channels: 1 or the last one */
    window_t dim[SINTER_MAX_NDIMS]; /* pooling: by spatial dim */
    bool exclude_pad;               /* averages are over what is inside of the image */
    bool nearest, corners;          /* interpolation: not linear; align_corners */
} window_params_t;

/* RotaryEmbedding, HadamardTransform or the second behind the first, then `post` with the result in
 * register 0. Values; -1: none. Without sines, cosines are inverse frequencies; without cosines
 * nothing is turned. */
typedef struct rotary_params {
    int x; /* a value with the dims of the input */
    int cosines, sines, positions;
    int dim, heads; /* attributes rotary_embedding_dim and num_heads; 0: not given */
    bool interleaved;
    double scale;
    bool hadamard; /* there is a HadamardTransform */
    int64_t block; /* its attribute block_size; 0: not given */
} rotary_params_t;

/* Gather (data, indices) or ScatterRows (data, slots as indices, updates) along an axis; negative:
 * counted from the end. batch: how many first dims data and indices share. */
typedef struct index_params {
    int data, indices, updates, out;
    int axis, batch;
    /* The indices are rows of the value `table` that the value `rows` names, and a step before
     * takes them. -1: the indices are something else. */
    int table, rows;
} index_params_t;

/* A Reorder between tiles and strides. */
typedef struct reorder_params {
    int in, out;
    const node_t *reader; /* inserted by pass unpack: an op that does not read tiles; else NULL */
    bool may_not_fit;     /* packs codes of which the layout keeps fewer bits */
} reorder_params_t;

typedef struct cumsum_params {
    int x;
    int axis; /* negative: counted from the end */
    bool exclusive, reverse;
} cumsum_params_t;

typedef struct top_k_params {
    int in, values, indices;
    int axis; /* negative: counted from the end */
    bool largest;
} top_k_params_t;

/* A mask by index. It leaves score (r, c) as it is where c <= s (lower: where c >= s), with
 * s = (moves ? r : 0) + shift + the sum of sign[i] * term[i], and puts the scalar `fill` elsewhere.
 * A term is a scalar or has values for batch indices: its dims broadcast to [b.., 1, 1]. none: the
 * mask has another form, and nothing is known of it. row_of and column_of: the values whose rows r
 * and whose columns c count. Where one has a single row or column, r or c is 0 for all scores. */
enum { MASK_LIMITS = 6, LIMIT_TERMS = 4 };
typedef struct column_limit {
    bool none, lower, moves;
    int shift, n_terms, term[LIMIT_TERMS], sign[LIMIT_TERMS];
    int fill, row_of, column_of;
} column_limit_t;

/* Tokens that name their sequences (pages_t) and follow one another make runs. Two steps share the
 * work: one has the runs with few rows, which are decoded, the other one the rest. */
typedef enum runs { NO_RUNS, SHORT_RUNS, LONG_RUNS } runs_t;

/* Rows of Q against K^T, score chain, softmax over T, probability chain, times V, `post` over
 * [b.., S, Dv] with the result in register 0. q [b.., S, D], k [b.., D, T], v [b.., T, Dv] after
 * trans flags; numpy broadcast of b: heads that share K and V are extra rows. Where dims are open,
 * a mask may turn out to have more rows than Q, or more columns than K, which then broadcast. */
typedef struct attention_params {
    operand_t q, k, v;
    bool trans_q, trans_k, trans_v;
    /* Over the last dims of [b.., S, T], as many as the softmax has, with the score in register 0
     * and the result in score->result; NULL: none. */
    const struct chain *score;
    /* The same on normalised probabilities: it quantises and dequantises them. NULL: none,
     * and one pass over K and V is enough. */
    const struct chain *prob;
    int table;      /* K and V lie in pages, which this value lists; -1: they do not */
    int rows;       /* the value that says which row of the table a token has; -1: none does */
    int score_dims; /* a value with the dims of the softmax, which broadcast to [b.., S, T] */
    int out_dims;   /* a value of dims [b.., S, Dv] */
    int stats;      /* f32 [b.., S, 1]; -1: none */
    /* One more logit for each row that belongs to no V; broadcasts to [b.., S, 1]. -1: none. */
    int sink;
    bool inf_as_zero;
    /* The masks that the score chain ends in, last one first. The chain still applies them. A tile
     * may be skipped where a mask, and all masks after it, fill in -inf. */
    int n_limits;
    column_limit_t limits[MASK_LIMITS];
    /* The first n_bare limits describe the last masks of the score chain completely: where they
     * fill in -inf, the chain `bare` followed by these limits gives the same as score. bare NULL:
     * the identity. */
    int n_bare;
    const struct chain *bare;
    /* A tensor [.., S, T] of f32, f16 or bf16 that is added to the scores right below these n_bare
     * masks, -1: none; and the chain below it, NULL: the identity. Where the tensor is -inf, it is
     * a mask. The chains score and bare add it, too. */
    int mask;
    const struct chain *under;
    runs_t runs;
} attention_params_t;

/* LinearAttention. Values; -1: none. */
typedef struct linear_attention_params {
    int q, k, v, state, decay, beta, bonus, a, b, from, to, out, next;
    bool interleaved, log_decay;
    float scale;
} linear_attention_params_t;

/* DynamicQuantize that computes its scales: a step that reads `in`, or the tail of the step that
 * makes it. */
typedef struct dynquant_params {
    int in;
    operand_t out;    /* codes, scales and zero points that the step makes */
    int tensor_scale; /* dynamic_nv: the scale of all scales, an input; -1: 1 */
    int kind;         /* quant_kind_t */
    int code_bits;    /* of integer codes; 0: all that their type has */
} dynquant_params_t;

/* What is multiplied in integers; EXACT_CODES: both operands are codes. */
typedef enum integers { NO_INTEGERS, ONE_LIMB, TWO_LIMBS, EXACT_CODES } integers_t;

/* What the products of a step may do besides f32. It is made once, from the fpmath mode, what that
 * applies to, and the types of the operands; kernels ask nothing else. */
typedef struct permit {
    sinter_fpmath_mode_t mode; /* its name, for the report */
    bool bf16;                 /* operands may be rounded to bf16 */
    integers_t integers;
} permit_t;

/* Floats become two limbs where the mode rounds them to 8 or 11 bits, one in mode int8. codes: the
 * operands are codes whose products are exact. */
static inline permit_t permit_of(sinter_fpmath_mode_t mode, bool codes)
{
    const bool bf16 = mode == sinter_fpmath_mode_bf16 || mode == sinter_fpmath_mode_any,
               two = bf16 || mode == sinter_fpmath_mode_tf32 || mode == sinter_fpmath_mode_f16;
    return (permit_t){.mode = mode,
                      .bf16 = bf16,
                      .integers = codes                             ? EXACT_CODES
                                  : two                             ? TWO_LIMBS
                                  : mode == sinter_fpmath_mode_int8 ? ONE_LIMB
                                                                    : NO_INTEGERS};
}

/* A kernel that may run a step, and what its setup left. */
typedef struct candidate {
    const struct kernel *kernel;
    const void *config; /* generated code, tile sizes; in the plan's arena */
    size_t state_bytes;
    size_t share_bytes; /* scratch of each share */
    /* Shared memory for each share. It is reserved whichever kernel runs, so that a later execute
     * with other dims need not allocate. */
    size_t reserve_bytes;
    const char *note; /* for the report: tile sizes, arithmetic */
} candidate_t;

typedef struct step {
    step_kind_t kind;
    /* Computes what a norm, a rotary embedding, a reduction or a window reads, and stores what the
     * graph needs of it. NULL: a step of another kind. */
    const struct chain *pre;
    /* The epilogue, or all of a step of elementwise ops, whose registers start empty and whose
     * iteration dims are those of post->dims_value. Never NULL. */
    const struct chain *post;
    /* Quantises post->result where it is made (quant_tail.h); NULL: none. */
    const dynquant_params_t *tail;
    /* Of a DynamicQuantize: why it is not a tail of the step before; NULL: no such step. */
    const char *why_separate;
    union {
        matmul_params_t matmul;
        mlp_params_t mlp;
        softmax_params_t softmax;
        norm_params_t norm;
        reduce_params_t reduce;
        window_params_t window;
        rotary_params_t rotary;
        index_params_t index;
        top_k_params_t top_k;
        cumsum_params_t cumsum;
        reorder_params_t reorder;
        attention_params_t attention;
        linear_attention_params_t linear;
        dynquant_params_t dynquant;
    } p;
    permit_t permit;
    /* Why the partition's fpmath mode changes nothing for the products of this step, as a line of
     * the report without its end; NULL: it does, or there is nothing that it could change. */
    const char *idle_mode;
    /* In order of preference; more than one where dims that only execute knows decide. */
    candidate_t *candidates;
    int n_candidates;
    /* A step that only copies a tensor because no strides show it in other dims, or because it lies
     * in tiles: the value that it copies, the value that the copy is, and, if the tensor is
     * constant, the place of the copy among those of the constant cache. Where that has the copy,
     * the step does not run. -1: no such step, no such place. */
    int copied, copy, copy_at;
    size_t state_offset; /* of the kernel's state in the frame memory */
} step_t;

/* PV_PACKED: a constant input, or a view of one, seen as a tensor whose dim `along` is
 * contiguous. If it is contiguous already, this is the input itself, else a copy from the
 * engine's constant cache. */
typedef enum pv_kind {
    PV_INPUT,
    PV_OUTPUT,
    PV_TEMP,
    PV_CONST,
    PV_VIEW,
    PV_PACKED,
    PV_DIMS
} pv_kind_t;

/* How a view shows its base: as its op makes it, the other way round, (a StaticReshape that no
 * strides express) in blocks as in bound_t, or in pages, which its op, a Gather, takes from it. */
typedef enum shows { FORWARDS, BACKWARDS, IN_BLOCKS, IN_PAGES } shows_t;

typedef struct plan_value {
    pv_kind_t kind;
    lt_t lt;         /* what is known at compile */
    int port;        /* VIEW that is not a graph value: the graph value whose dims it has */
    int base;        /* VIEW, PACKED: the value that it shows */
    int along, line; /* PACKED: lines along that dim begin at multiples of `line` elements */
    /* PACKED, and graph values with an opaque layout: one matrix as tiles, whose columns are the
     * dim `across` and whose K is the dim `along`, -1 where one value is for all of them. window:
     * weights of a convolution. Each index of the first dim has a matrix, whose K is all dims from
     * there to `along`; they follow one another. */
    tiled_t tiled;
    int across;
    bool heads; /* tiles are those of heads, which the dim before the last one has */
    bool window;
    int set; /* PACKED, tiled: the first part of the same operand; parts follow one another */
    /* VIEW: the StaticReshape, StaticTranspose or Slice that makes this from base; BACKWARDS: base
     * from this. Or the Concat that makes base; this is then the place of its input `part`. */
    const node_t *op;
    shows_t shows;
    int part;
    const pages_of_t *pages; /* VIEW that shows IN_PAGES */
    const void *data;        /* CONST */
    /* TEMP: live steps. INPUT, OUTPUT: the first and the last step that access it. -1: none. */
    int first, last;
    int beside; /* the last step that accesses it other than by chains */
    /* TEMP: the value that may take over this one's memory in step `last`, if its dims are the
     * same; -1: none. */
    int heir;
} plan_value_t;

/* Two graph values that have the same dims if a plan is to run; only execute knows them. Or, of an
 * operand in pages, two parts of it whose pages lie as many tokens apart. */
typedef struct same_dims {
    int value, as;
    bool pages;
} same_dims_t;

typedef struct plan {
    arena_t arena;
    sinter_engine_t *engine; /* the compiled partition holds it */
    /* The rewritten subgraph. It holds the nodes' attributes, and shape rules run over it where
     * dims are dynamic. */
    graph_t sub;
    plan_value_t *values;
    step_t *steps;
    int n_values, n_steps;
    int n_packed;             /* PV_PACKED values, the last ones */
    int n_copies;             /* steps with a copy_at, from 0 on */
    int *view_order, n_views; /* PV_VIEW values, bases first */
    features_t features;
    sinter_fpmath_mode_t mode;
    bool apply_to_int;
    bool deterministic;   /* as the engine: bits of a row do not depend on other rows */
    bool dynamic;         /* some dim is unknown */
    size_t frame_bytes;   /* room for a frame of any plan of the partition */
    same_dims_t *assumed; /* what makes the plan right for the dims of an execute */
    int n_assumed, cap_assumed;
    size_t cache_bytes;                /* of the last-level cache; 0: not known */
    size_t state_bytes;                /* of all steps */
    size_t share_bytes, reserve_bytes; /* the largest of any kernel */
} plan_t;

/* The value whose memory a value shows: itself, if it is no view. */
static inline int plan_memory_of(const plan_t *plan, int v)
{
    while (v >= 0 && plan->values[v].kind == PV_VIEW) {
        v = plan->values[v].base;
    }
    return v;
}

#endif
