/* Elementwise programs. One program serves everywhere: as a step of its own, as the epilogue of
 * matmul, softmax and attention, and as the score program (scale, mask, soft-cap) inside the
 * attention kernel. It runs over runs of up to CHAIN_BLOCK elements along the innermost
 * iteration dim, as a step of its own over tiles of the last two; registers are blocks of floats
 * in scratch, or of doubles where an s32, s64 or f64 tensor takes part. */
#ifndef SINTER_SRC_CHAIN_H
#define SINTER_SRC_CHAIN_H

#include "graph/graph.h"
#include "graph/quant.h"
#include "numeric/dtype.h"

enum {
    CHAIN_BLOCK = 256,
    CHAIN_TILE = 4096,
    CHAIN_MAX_REGS = 16,
    CHAIN_MAX_OPERANDS = 48,
    CHAIN_MAX_INSTRS = 192
};

/* Opcodes are sinter_op_kind_t for ops that are one elementwise function of their inputs, and
 * these. */
typedef enum chain_opcode {
    CHAIN_LOAD = 1000, /* dst = operand */
    CHAIN_LOAD_SPLIT, /* dst = codes of `dtype`, low bits in operand, high bits in operand `high` */
    CHAIN_STORE,      /* operand = a, converted as a plain cast; a stays as it is */
    CHAIN_INDEX,      /* dst = index along iteration dim `dim` */
    CHAIN_COPY,       /* dst = a */
    /* dst = a rounded through data type `dtype` (a quantising TypeCast or an inner quantised
     * value) */
    CHAIN_ROUND_TO,
    CHAIN_CONST, /* dst = p[0] */
    /* dst = (a - zp) * scale; the operands scale and zp (-1: none) are read here, group by group */
    CHAIN_DEQUANT,
    CHAIN_LOAD_DEQUANT, /* dst = (operand - zp) * scale */
    /* dst = round(a / scale) + zp; not rounded where there is no zp, since ROUND_TO or STORE
     * follow */
    CHAIN_QUANT
} chain_opcode_t;

typedef struct chain_instr {
    int op;                   /* chain_opcode_t or sinter_op_kind_t */
    int dst, a, b, c;         /* registers */
    int operand, high;        /* LOAD, STORE */
    int scale, zp;            /* DEQUANT, QUANT: operands */
    int dim;                  /* INDEX */
    sinter_data_type_t dtype; /* ROUND_TO, LOAD_SPLIT */
    float p[2];   /* attributes: alpha, beta, min, max; p[0] selects GELU's form (0 erf, 1 tanh) */
    double pd[2]; /* the same in double */
} chain_instr_t;

/* A tensor as the iteration space sees it: iteration dim d walks dim map[d] of the value (-1:
 * broadcast), index divided by the group size where the value has fewer entries than the
 * iteration dim (scales, zero points; grouped[d]). */
typedef struct chain_operand {
    int value; /* plan value */
    int8_t map[SINTER_MAX_NDIMS];
    bool grouped;
} chain_operand_t;

typedef struct chain {
    int ndims;      /* of the iteration space */
    int dims_value; /* plan value whose dims are the iteration space */
    bool f64;
    int n_regs, n_instrs, n_operands;
    /* register that holds the value handed back to the kernel (score and prob chains, chains
     * with a quantising tail); -1 if none */
    int result;
    const chain_instr_t *instrs;
    const chain_operand_t *operands;
} chain_t;

struct frame;

/* An operand bound for one execute. */
typedef struct chain_ref {
    unsigned char *data;
    const struct dtype_traits *traits;
    sinter_data_type_t dtype;
    int64_t stride[SINTER_MAX_NDIMS],
        group[SINTER_MAX_NDIMS]; /* by iteration dim; group 1 unless the operand is grouped there */
    bool grouped;                /* some group is larger than 1 */
    bool
        /* stores go past the caches; set by the kernel, which then ends with quant->stream_end */
        stream;
} chain_ref_t;

typedef struct chain_bound {
    const chain_t *chain;
    const struct eltwise_table *fn; /* functions for the plan's ISA */
    const struct tile_table *tiles;
    const struct quant_rows *quant;
    features_t features;
    int ndims;
    int64_t dims[SINTER_MAX_NDIMS];
    bool
        /* nothing varies along the innermost dim: the program is a function of the register
         * alone */
        inner_scalar_only;
    int8_t at
        /* INDEX along chain dim k reads idx[at[k]], -1: always 0; the identity as chain_bind
         * leaves it */
        [SINTER_MAX_NDIMS];
    chain_ref_t refs[CHAIN_MAX_OPERANDS];
} chain_bound_t;

/* Binds a chain to a frame; sinter_invalid_shape with a message if an operand's dims do not
 * broadcast to the iteration dims. No allocation. */
sinter_status_t chain_bind(const chain_t *chain, const struct frame *frame, features_t features,
                           chain_bound_t *out);

/* Scratch bytes chain_run needs. */
size_t chain_scratch_bytes(const chain_t *chain);

/* Runs n <= CHAIN_BLOCK elements starting at index idx[ndims], going along the last dim. scratch
 * is 64-byte aligned. io, which serves as register 0 and is overwritten: for epilogues the input
 * block on entry (register 0); the result on return, where the chain has one. NULL where
 * registers start empty. For f64 chains io is still float (converted). */
void chain_run(const chain_bound_t *bound, const int64_t *idx, int n, float *io, void *scratch);

/* Runs a tile of the last two dims, rows x cols <= CHAIN_TILE elements from idx on, registers
 * empty at the start. rows is 1 where the space has one dim. For f64 chains rows is 1 and cols
 * <= CHAIN_BLOCK. */
typedef void chain_run_t(const chain_bound_t *bound, const int64_t *idx, int rows, int cols,
                         void *scratch);
/* The best for this chain: one that goes instruction by instruction, or, where it does no more
 * than convert or quantise rows, at once. */
chain_run_t *chain_runner(const chain_bound_t *bound);
size_t chain_tile_scratch_bytes(const chain_t *chain);

/* For chains that do nothing but rescale codes into a tensor that streams: the function that
 * does so for a row, if there is one (NULL) for these types and strides. native_bf16: as
 * dtype_bulk_t has it. */
dtype_stream_t *chain_stream(const chain_bound_t *bound, bool native_bf16);
/* As a chain_run_t with such a function: any number of rows, cols a multiple of DTYPE_STREAM up
 * to CHAIN_TILE, as is where they begin. */
void chain_stream_tile(const chain_bound_t *bound, dtype_stream_t *stream, const int64_t *idx,
                       int rows, int cols, void *scratch);

/* True if chain does nothing but store register 0 to one operand (a plain epilogue), giving that
 * operand's index. */
bool chain_is_store(const chain_t *chain, int *operand);

/* True if a stored packed tensor has bytes that runs at different outer indices, or runs that
 * start at a multiple of 4 elements along the last dim, share: only one thread may then run the
 * chain. */
bool chain_shares_bytes(const chain_bound_t *bound);

/* The one access to a value is at the index of the iteration space. */
bool chain_touches_once(const chain_t *chain, int value, int ndims);

/* Dim d becomes dim to[d]; -1 drops it, which is for dims of size 1 (or merged ones). */
void chain_permute(chain_bound_t *bound, const int *to);

/* Makes one dim of d and d + 1 if no operand tells the difference; false: nothing was changed. */
bool chain_merge(chain_bound_t *bound, int d);

/* Rewrites the iteration space into an equivalent one that is faster to run: dims of size 1
 * dropped, dims ordered by the first stored tensor's strides, neighbours merged where every
 * operand allows it, next to the last dim the one along which a transposed operand is
 * contiguous. For callers that walk the whole space and have no block of their own (io). */
void chain_collapse(chain_bound_t *bound);

/* ---- building, at lowering ------------------------------------------------------------------- */

typedef struct chain_builder {
    arena_t *arena;
    chain_t chain;
    chain_instr_t *instrs;
    chain_operand_t *operands;
    int cap_instrs, cap_operands;
    int n_virtual; /* virtual registers so far; the finish step colours them into CHAIN_MAX_REGS */
    bool with_input;
    const char *reason; /* why the program cannot be built; reported by chain_finish */
} chain_builder_t;

/* with_input: virtual register 0 holds the kernel's block. */
void chain_begin(chain_builder_t *b, arena_t *arena, int ndims, int dims_value, bool with_input);
/* A right-aligned (numpy) operand of `ndims` dims; returns the virtual register, -1 on out of
 * memory. */
int chain_load(chain_builder_t *b, int plan_value, int value_ndims);
/* map as in chain_operand_t. */
int chain_load_mapped(chain_builder_t *b, int plan_value, const int8_t *map, bool grouped);
/* Two planes of split codes, both right-aligned, as the values of the codes. */
int chain_load_split(chain_builder_t *b, int low, int high, int value_ndims,
                     sinter_data_type_t type);
/* One elementwise node over registers; reads its attributes. Handles every OP_ELTWISE kind but
 * the quantising ones, GenIndex included. */
int chain_op(chain_builder_t *b, const node_t *node, const int *regs, int n_regs);
/* Codes in register x to numbers and back: (x - zp) * scale, round(x / scale) + zp rounded
 * through `dtype`; scale, zp are registers, zp -1: none. */
int chain_dequant(chain_builder_t *b, int x, int scale, int zp);
int chain_quant(chain_builder_t *b, int x, int scale, int zp, sinter_data_type_t dtype);
int chain_round_to(chain_builder_t *b, int x, sinter_data_type_t dtype);
/* The register to store as dtype instead of reg: what chain_round_to(.., dtype) made reg from,
 * else reg. */
int chain_unrounded(const chain_builder_t *b, int reg, sinter_data_type_t dtype);
sinter_status_t chain_store(chain_builder_t *b, int reg, int plan_value,
                            const int8_t *map); /* map NULL: same rank, same dims */
/* Colours registers, copies into the arena. result: virtual register to hand back, -1: none.
 * sinter_unimplemented with a reason if the program does not fit (registers, operands,
 * instructions): the lowering then splits it. */
sinter_status_t chain_finish(chain_builder_t *b, int result, bool f64, const chain_t **out);

#endif
