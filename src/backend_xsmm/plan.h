/* The plan: what a compiled partition is. A list of steps over values, made once at compile;
 * execute only binds pointers and runs it.
 *
 *   partition subgraph --passes--> --lower--> plan (steps, values) --select--> kernels
 *   --setup--> JIT handles, scratch sizes
 *
 * Dims may be unknown until execute, so nothing in a plan depends on dims that execute may
 * bring: at execute a frame holds every value's data pointer, dims and strides; they choose among a
 * step's kernels where compile could not, and the kernel fills its own state from the frame before
 * the threads start. */
#ifndef SINTER_SRC_PLAN_H
#define SINTER_SRC_PLAN_H

#include "base/alloc.h"
#include "numeric/dtype.h"
#include "patterns/partition.h"

/* A value bound for one execute. Strides in elements of dtype, for the dims as the reader sees
 * them (views applied). */
typedef struct bound {
    unsigned char *data;
    sinter_data_type_t dtype;
    int ndims;
    int64_t dims[SINTER_MAX_NDIMS], strides[SINTER_MAX_NDIMS];
} bound_t;

typedef struct frame {
    bound_t *v; /* by plan value */
    int threads;
} frame_t;

/* One matrix operand: codes and how they become numbers. All value indices; -1: none.
 * scale_dim[d] is the dim of the scale value that belongs to data dim d, -1 if it has none. The
 * group size along d is dims[d] / scale dims[scale_dim[d]] (whole dim if -1). Static scales and
 * zps are constant values (f32, s32). split: data (u4) and high (u2) hold the low and the high
 * bits of codes of that type. */
typedef struct operand {
    int data, scale, zp, high;
    sinter_data_type_t split; /* undef: data holds the codes, high is not used */
    int8_t scale_dim[SINTER_MAX_NDIMS], zp_dim[SINTER_MAX_NDIMS];
} operand_t;

typedef enum step_kind {
#define SINTER_STEP(kind, name, driver) STEP_##kind,
#include "backend_xsmm/kernels.def"
} step_kind_t;

enum {
    STEP_KINDS = 0
#define SINTER_STEP(kind, name, driver) +1
#include "backend_xsmm/kernels.def"
};

/* out[b.., M, N] = A[b.., M, K] * B[b.., K, N], numpy broadcast of b, then `post` over out's
 * dims with the product in register 0. At least 2-D each. */
typedef struct matmul_params {
    operand_t a, b;
    bool trans_a, trans_b; /* the last two dims of the operand are swapped */
    /* a value whose dims are the output's (the first stored one, or one without data) */
    int out_dims;
} matmul_params_t;

/* Softmax over axis of in; `post` over in's dims with the probability in register 0. */
typedef struct softmax_params {
    int in, stats; /* stats -1: none; else f32 max + log(sum(exp)), axis dim 1 */
    /* -1: none; else one more logit for each row, which broadcasts to the dims of stats */
    int sink;
    /* normalised; if the rank is unknown at compile it is kept as given and normalised at
     * prepare */
    int axis;
    bool inf_as_zero, log; /* log: LogSoftmax */
} softmax_params_t;

/* Where a mask leaves score (r, c) as it is:  c <= s, or c >= s if lower, with s = (moves ? r :
 * 0) + shift + sum of sign[i] * scalar term[i]. Elsewhere it puts the scalar `fill`. none:
 * nothing is known of where. */
enum { MASK_LIMITS = 6, LIMIT_TERMS = 4 };
typedef struct column_limit {
    bool none, lower, moves;
    int shift, n_terms, term[LIMIT_TERMS], sign[LIMIT_TERMS];
    int fill;
} column_limit_t;

/* Rows of Q against K^T, score chain, softmax over T, probability chain, times V, `post` over
 * [b.., S, Dv] with the result in register 0. q [b.., S, D], k [b.., D, T], v [b.., T, Dv] after
 * trans flags; numpy broadcast of b: heads that share K and V are extra rows. */
typedef struct attention_params {
    operand_t q, k, v;
    bool trans_q, trans_k, trans_v;
    const struct chain
        *score; /* over [b.., S, T], score in register 0 and result in score->result; NULL: none */
    const struct chain *
        /* over [b.., S, T] on normalised probabilities (quantise, dequantise); NULL: none, which
         * allows one pass */
        prob;
    int score_dims; /* a dims-only value of dims [b.., S, T] */
    int out_dims;   /* a value of dims [b.., S, Dv] */
    int stats;      /* f32 [b.., S, 1]; -1: none */
    /* one more logit for each row, without a value: broadcasts to [b.., S, 1]; -1: none */
    int sink;
    bool inf_as_zero;
    /* The masks that score ends in, last one first. score still holds the complete program;
     * tiles may be skipped where a mask fills in -inf, and all masks after it do. */
    int n_limits;
    column_limit_t limits[MASK_LIMITS];
    /* The first n_bare limits are all there is to the masks that score ends in: where those fill
     * in -inf, bare with the limits gives what score gives. bare NULL: the identity. */
    int n_bare;
    const struct chain *bare;
} attention_params_t;

/* DynamicQuantize that computes its scales: a step that reads `in`, or the tail of the step that
 * makes it. */
typedef struct dynquant_params {
    int in;
    operand_t out;    /* codes, scales and zero points that the step makes */
    int tensor_scale; /* dynamic_nv: the scale of all scales, an input; -1: 1 */
    int kind;         /* quant_kind_t */
} dynquant_params_t;

/* A kernel that may run a step, and what its setup left. */
typedef struct candidate {
    const struct kernel *kernel;
    const void *config; /* generated code, tile sizes; in the plan's arena */
    size_t state_bytes;
    size_t thread_bytes; /* scratch of each thread */
    /* Shared memory for each thread that is taken whichever kernel runs, so that an engine which
     * calls with other dims later does not have to allocate again. */
    size_t reserve_bytes;
    const char *note; /* for the report: tile sizes, arithmetic */
} candidate_t;

typedef struct step {
    step_kind_t kind;
    /* The chain of STEP_CHAIN (registers start empty, iteration dims are those of
     * post->dims_value) or the epilogue; never NULL. */
    const struct chain *post;
    const dynquant_params_t
        *tail; /* quantises post->result where it is made (quant_tail.h); NULL: none */
    const char
        *apart; /* STEP_DYNQUANT: why it is no tail of the step before; NULL: nothing to say */
    union {
        matmul_params_t matmul;
        softmax_params_t softmax;
        attention_params_t attention;
        dynquant_params_t dynquant;
    } p;
    sinter_fpmath_mode_t
        /* what the arithmetic of this step may use: strict where apply_to_int is off and an
         * operand is integer */
        mode;
    /* In order of preference; more than one where dims that only execute knows decide. */
    candidate_t *candidates;
    int n_candidates;
    size_t state_offset; /* of the kernel's state in the frame memory */
} step_t;

/* PV_PACKED: a constant input, or a view of one, with dim `along` contiguous: itself where it
 * is, else a copy from the engine's constant cache. */
typedef enum pv_kind {
    PV_INPUT,
    PV_OUTPUT,
    PV_TEMP,
    PV_CONST,
    PV_VIEW,
    PV_PACKED,
    PV_DIMS
} pv_kind_t;

typedef struct plan_value {
    pv_kind_t kind;
    lt_t lt;         /* what is known at compile */
    int port;        /* VIEW that is no graph value: the graph value whose dims it has */
    int base;        /* VIEW, PACKED: the value looked at */
    int along, line; /* PACKED: lines along that dim begin at multiples of so many elements */
    const node_t *
        /* VIEW: StaticReshape or StaticTranspose that made this from base, or base from this if
         * inverse */
        op;
    bool inverse;
    const void *data; /* CONST */
    int first, last;  /* TEMP: live steps */
    /* TEMP: one that may have the same memory if its dims are the same, though both live in step
     * `last`; -1 */
    int heir;
} plan_value_t;

typedef struct plan {
    arena_t arena;
    sinter_engine_t *engine; /* held by the compiled partition */
    graph_t
        /* the rewritten subgraph: node attributes live here, shape rules run over it for dynamic
         * dims */
        sub;
    plan_value_t *values;
    step_t *steps;
    int n_values, n_steps;
    int n_packed;             /* PV_PACKED values, the last ones */
    int *view_order, n_views; /* PV_VIEW values, bases first */
    features_t features;
    sinter_fpmath_mode_t mode;
    bool apply_to_int;
    bool dynamic;                       /* some dim is unknown */
    size_t cache_bytes;                 /* of the last-level cache; 0: not known */
    size_t state_bytes;                 /* of all steps */
    size_t thread_bytes, reserve_bytes; /* the most that a kernel has */
} plan_t;

#endif
