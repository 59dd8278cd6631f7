/* Elementwise programs. They are steps of their own, epilogues of matmul, softmax and attention,
 * and the score programs (scale, mask, soft-cap) inside attention. A program runs over runs of up
 * to CHAIN_BLOCK elements along the innermost iteration dim; as a step of its own it runs over
 * tiles of the last two dims. Registers are blocks of floats in scratch, or of doubles where an
 * s32, s64 or f64 tensor takes part; of 32-bit integers, where all tensors are s32 or boolean and
 * integers have an instruction for every op. */
#ifndef SINTER_SRC_CHAIN_H
#define SINTER_SRC_CHAIN_H

#include "backend_xsmm/ukernels/eltwise.h"
#include "graph/graph.h"
#include "graph/quant.h"
#include "numeric/dtype.h"

enum {
    CHAIN_BLOCK = 256,
    CHAIN_LONG = 1024,
    CHAIN_TILE = 4096,
    CHAIN_MAX_REGS = 16,
    CHAIN_MAX_OPERANDS = 48,
    CHAIN_MAX_INSTRS = 192,
    CHAIN_MAX_INDICES = 16
};

/* An opcode is the op_slot of a sinter_op_kind_t, for an op that is one elementwise function of its
 * inputs, or one of these. */
typedef enum chain_opcode {
    CHAIN_LOAD = 1000, /* dst = operand */
    CHAIN_LOAD_SPLIT, /* dst = codes of `dtype`, low bits in operand, high bits in operand `high` */
    CHAIN_STORE,      /* operand = a, converted as by a plain cast; a stays as it is */
    CHAIN_INDEX,      /* dst = the index that `index` names */
    CHAIN_COPY,       /* dst = a */
    CHAIN_ROUND_TO,   /* dst = a converted to `dtype` and back */
    CHAIN_CONST,      /* dst = p[0] */
    CHAIN_TRUNCATE,   /* dst = a without its fraction; only in chains of doubles */
    /* dst = (a - zp) * scale, where scale and zp are operands; zp -1: there is none. With offsets
     * dst = a * scale + zp. */
    CHAIN_DEQUANT,
    CHAIN_LOAD_DEQUANT, /* the same of the operand in place of a */
    /* dst = round(a / scale) + zp. Without zp the quotient is not rounded, since CHAIN_ROUND_TO or
     * CHAIN_STORE follows. */
    CHAIN_QUANT
} chain_opcode_t;

typedef struct chain_instr {
    int op;            /* chain_opcode_t, or an op_slot */
    int dst, a, b, c;  /* registers */
    int operand, high; /* LOAD, STORE */
    int scale, zp;     /* DEQUANT, QUANT: operands */
    bool offsets;      /* DEQUANT: zp has offsets */
    int index;         /* INDEX: which one of the chain's indices */
    /* LOAD: nothing is stored before the register is read last, so the tensor itself can stand for
     * the register. */
    bool early;
    sinter_data_type_t dtype; /* ROUND_TO, LOAD_SPLIT */
    float p[2];               /* the attributes u and v of eltwise.def */
    double pd[2];             /* the same in double */
} chain_instr_t;

/* A tensor as the iteration space sees it: iteration dim d walks dim map[d] of the value; -1:
 * broadcast. */
typedef struct chain_operand {
    int value; /* plan value */
    int8_t map[SINTER_MAX_NDIMS];
    /* Scales or zero points: where the value has fewer entries than the iteration dim, the index is
     * divided by the size of the groups. group_size: by iteration dim, what group_shape says; 0:
     * nothing. */
    bool grouped;
    int64_t group_size[SINTER_MAX_NDIMS];
    /* Only the last dim is walked: the step points the operand at a row, whatever dims the value
     * has besides. */
    bool row;
} chain_operand_t;

/* An index along an iteration dim. The op that gives it has dims of its own, those of plan value
 * `value`: where that has 1 element along the dim, the index is 0 however long the dim is. */
typedef struct chain_index {
    int dim, value;
} chain_index_t;

/* What a chain begins with where that is register 0 times one operand, plus another one: a norm's
 * gamma and beta. Its step may do that itself, and run what follows. */
typedef struct chain_affine {
    int gamma, beta; /* operands; -1: none */
    /* The first instruction that follows, and the register that it finds. 0: the chain begins with
     * something else. */
    int next, reg;
} chain_affine_t;

typedef struct chain {
    int ndims;      /* of the iteration space */
    int dims_value; /* plan value whose dims are the iteration space */
    bool f64;
    bool words;      /* registers hold 32-bit integers, and booleans as the floats 0 and 1 */
    bool with_input; /* register 0 is given */
    int n_regs, n_instrs, n_operands, n_indices;
    /* The register whose value the kernel gets back: of score and probability chains, and of chains
     * with a tail. -1: none. */
    int result;
    chain_affine_t affine;
    const chain_instr_t *instrs;
    const chain_operand_t *operands;
    chain_index_t indices[CHAIN_MAX_INDICES];
} chain_t;

struct frame;

/* An operand bound for one execute. */
typedef struct chain_ref {
    unsigned char *data;
    const struct dtype_traits *traits;
    sinter_data_type_t dtype;
    /* By iteration dim; group is 1 unless the operand is grouped along that dim. */
    int64_t stride[SINTER_MAX_NDIMS], group[SINTER_MAX_NDIMS];
    bool grouped; /* some group is larger than 1 */
    /* Stores go past the caches. Set by the kernel, which then ends with quant->stream_end. */
    bool stream;
} chain_ref_t;

typedef struct chain_bound {
    const chain_t *chain;
    const struct eltwise_table *fn; /* functions for the plan's ISA */
    const eltwise_fn_t *op;         /* those of ops, for what registers of 32 bits hold */
    const eltwise_f64_t *f64;       /* those of doubles */
    const struct tile_table *tiles;
    const struct quant_rows *quant;
    features_t features;
    int ndims;
    int64_t dims[SINTER_MAX_NDIMS];
    int8_t at[CHAIN_MAX_INDICES]; /* index k of the chain is idx[at[k]]; -1: always 0 */
    /* Set by chain_find_transposition: the type that elements have while they are transposed, and
     * its bytes. 0: the chain transposes nothing. */
    sinter_data_type_t transposed_as;
    int transposed_bytes;
    chain_ref_t refs[CHAIN_MAX_OPERANDS];
} chain_bound_t;

/* Binds a chain to a frame, without allocating. sinter_invalid_shape with a message: the dims of an
 * operand do not broadcast to the iteration dims. */
sinter_status_t chain_bind(const chain_t *chain, const struct frame *frame, features_t features,
                           chain_bound_t *out);
/* The same for a kernel that runs over other dims than those of dims_value, which broadcast to
 * them. */
sinter_status_t chain_bind_over(const chain_t *chain, const int64_t *dims,
                                const struct frame *frame, features_t features, chain_bound_t *out);

/* Scratch bytes chain_run needs. */
size_t chain_scratch_bytes(const chain_t *chain);

/* Runs n <= CHAIN_BLOCK elements along the last dim from index idx[ndims] on. scratch is aligned to
 * 64 bytes. io is register 0, as floats in f64 chains too: it holds the block that the kernel hands
 * in, and on return the result, where the chain has one. NULL: registers start empty. */
void chain_run(const chain_bound_t *bound, const int64_t *idx, int n, float *io, void *scratch);

/* The same for n <= CHAIN_LONG elements, in f32 in less time for each. Returns where the result is:
 * in io, or where it lies in a tensor; io, where the chain has none. */
const float *chain_run_long(const chain_bound_t *bound, const int64_t *idx, int n, float *io,
                            void *scratch);
size_t chain_long_scratch_bytes(const chain_t *chain);

/* Runs rows x cols <= CHAIN_TILE elements of the last two dims from idx on, cols <= CHAIN_LONG. io
 * has register 0, row after row; what a chain with a result leaves there is lost. scratch: as
 * chain_tile_scratch_bytes says. */
void chain_run_rows(const chain_bound_t *bound, const int64_t *idx, int rows, int cols, float *io,
                    void *scratch);

/* For f32 chains with an input, whether they begin with a factor and a sum or not: what the step
 * takes over for a run of n <= CHAIN_LONG elements. */
typedef struct chain_affine_run {
    const float *gamma, *beta; /* NULL: none */
    bool each;                 /* they have a value for each element, else one for all */
    float *to;                 /* where all that follows is to store the result; NULL: it is more */
    bool nontemporal;          /* it goes there past the caches */
} chain_affine_run_t;
chain_affine_run_t chain_affine_run(const chain_bound_t *bound, const int64_t *idx, int n,
                                    void *scratch);
/* Whether `to` is given for runs of rows: nothing follows but a store of floats element by
 * element. */
bool chain_affine_stores(const chain_bound_t *bound);
/* As chain_run_long, of what follows: io has the result of the step. */
const float *chain_run_behind(const chain_bound_t *bound, const int64_t *idx, int n, float *io,
                              void *scratch);

/* What a chain does that adds at most a bias, applies at most a ReLU and stores codes of 8 bits:
 *   to[i] = saturate(round(f(x[i] + bias[i]) / scale) + zp) */
typedef struct chain_codes_run {
    const float *bias; /* NULL: none */
    bool relu, is_signed;
    float scale, zp;
    unsigned char *to;
} chain_codes_run_t;
/* Whether a chain with an input does that and nothing else. */
bool chain_stores_codes(const chain_bound_t *bound);
/* For such a chain and n <= CHAIN_BLOCK elements from idx on. */
chain_codes_run_t chain_codes_run(const chain_bound_t *bound, const int64_t *idx, int n,
                                  void *scratch);
/* Where such a chain stores from idx on. */
unsigned char *chain_codes_to(const chain_bound_t *bound, const int64_t *idx);
/* Whether what it computes with is the same wherever the run is but for the last dim. */
bool chain_codes_repeat(const chain_bound_t *bound);

/* The chain does nothing but load one tensor, whole bytes that follow the last dim element by
 * element; and where it does so from idx on. */
bool chain_is_load(const chain_bound_t *bound);
ahead_t chain_ahead(const chain_bound_t *bound, const int64_t *idx);

/* Prefetches what chain_run_long would load of tensors that follow the last dim element by
 * element. */
void chain_fetch(const chain_bound_t *bound, const int64_t *idx, int n);

/* Decides which stores of tiles of rows x cols elements go past the caches. Outputs that do not fit
 * the last-level cache, or of which what is read leaves little there (others: bytes that others
 * read at the same time), would only push other data out of it, and be read from memory before they
 * are written. False: none does; else the kernel ends with quant->stream_end. */
bool chain_choose_stores(chain_bound_t *bound, int64_t rows, int64_t cols, double others,
                         size_t cache_bytes);
/* Bytes that the chain touches, without those that all indices of a dim or of a group share. */
double chain_touched_bytes(const chain_bound_t *bound);

/* Runs a tile of the last two dims, rows x cols <= CHAIN_TILE elements from idx on. Registers start
 * empty. rows is 1 where the space has one dim. The interpreter of f64 chains takes one row of
 * CHAIN_LONG elements at most. */
typedef void chain_run_t(const chain_bound_t *bound, const int64_t *idx, int rows, int cols,
                         void *scratch);
/* The fastest function for this chain: the interpreter, or one that converts or quantises rows in
 * one pass where the chain does nothing else. */
chain_run_t *chain_runner(const chain_bound_t *bound);
/* One of them: a conversion for which there is a loop from one type to the other. */
chain_run_t chain_convert_tile;
size_t chain_tile_scratch_bytes(const chain_t *chain);

/* The chain loads a tensor and stores it, perhaps as another type, and does nothing else. */
bool chain_converts(const chain_t *chain);
/* Whether such a chain transposes its tensor, and how. Call it after chain_collapse. */
void chain_find_transposition(chain_bound_t *bound);
/* As a chain_run_t, for chains that do. rows <= CHAIN_TRANSPOSE_ROWS; the cols elements have up to
 * CHAIN_TRANSPOSE_RUN bytes while they are transposed. */
enum { CHAIN_TRANSPOSE_ROWS = 256, CHAIN_TRANSPOSE_RUN = 512 };
void chain_transpose_tile(const chain_bound_t *bound, const int64_t *idx, int rows, int cols,
                          void *scratch);
size_t chain_transpose_scratch_bytes(void);

/* For chains that do nothing but rescale codes into a tensor that streams: the function that does
 * that for a row. NULL: there is none for these types and strides, or the chain does more.
 * native_bf16: as in dtype_bulk_t. */
dtype_stream_t *chain_stream(const chain_bound_t *bound, bool native_bf16);
/* As a chain_run_t, with such a function. rows is any number; cols <= CHAIN_TILE and the column
 * where the tile begins are multiples of DTYPE_STREAM. */
void chain_stream_tile(const chain_bound_t *bound, dtype_stream_t *stream, const int64_t *idx,
                       int rows, int cols, void *scratch);

/* Some operand is not of floats. */
bool chain_converts_operands(const chain_bound_t *bound);

/* The chain does nothing but store register 0 to one operand, whose index it gives. */
bool chain_is_store(const chain_t *chain, int *operand);

/* A packed tensor is stored in which two runs share a byte: runs at different outer indices, or
 * runs that begin at different multiples of 4 along the last dim. Then only one thread may run the
 * chain. */
bool chain_shares_bytes(const chain_bound_t *bound);
/* A tensor is stored whose elements share bytes. */
bool chain_stores_packed(const chain_bound_t *bound);

/* The chain accesses a value once, at the index of the iteration space. */
bool chain_touches_once(const chain_t *chain, int value);

/* Moves dim d to dim to[d]. to[d] = -1 drops dim d; only dims of size 1 and merged dims may be
 * dropped. */
void chain_permute(chain_bound_t *bound, const int *to);

/* Makes one dim of d and d + 1 if that changes nothing for any operand; else returns false.
 * chain_merges only asks. */
bool chain_merge(chain_bound_t *bound, int d);
bool chain_merges(const chain_bound_t *bound, int d);

/* Rewrites the iteration space into an equivalent one that is faster to run. Dims of size 1 are
 * dropped; dims are ordered by the strides of the first stored tensor; neighbours are merged where
 * every operand allows it; the dim along which a transposed operand is contiguous becomes the last
 * but one. For callers that walk the whole space and hand in no block. */
void chain_collapse(chain_bound_t *bound);

/* ---- building, at lowering ------------------------------------------------------------------- */

typedef struct chain_builder {
    arena_t *arena;
    chain_t chain;
    chain_instr_t *instrs;
    chain_operand_t *operands;
    int cap_instrs, cap_operands;
    int n_virtual; /* virtual registers; chain_finish maps them to at most CHAIN_MAX_REGS */
    /* NULL, or the plan's values: chain_finish may then find that a chain which needs doubles for
     * its types can do without. */
    const struct plan_value *values;
    const char *reason; /* why the program cannot be built: chain_finish fails with it */
} chain_builder_t;

/* with_input: virtual register 0 holds the block that the kernel hands in. */
void chain_begin(chain_builder_t *b, arena_t *arena, int ndims, int dims_value, bool with_input);
/* These return the virtual register of the result; -1: out of memory. */

/* Loads a value whose dims are aligned at the right, as in numpy. */
int chain_load(chain_builder_t *b, int plan_value, int value_ndims);
/* Loads a row that the step points at. */
int chain_load_row(chain_builder_t *b, int plan_value, int value_ndims);
/* The same with a map as in chain_operand_t. */
int chain_load_mapped(chain_builder_t *b, int plan_value, const int8_t *map);
/* Loads scales or zero points; sizes are the group_size of chain_operand_t. */
int chain_load_groups(chain_builder_t *b, int plan_value, const int8_t *map, const int64_t *sizes);
/* Loads codes from two planes, both aligned at the right, as numbers. */
int chain_load_split(chain_builder_t *b, int low, int high, int value_ndims,
                     sinter_data_type_t type);
/* Any node that is elementwise (OP_ELTWISE), or a Reorder, over registers. */
int chain_op(chain_builder_t *b, const node_t *node, const int *regs, int n_regs);
/* From codes in register x to numbers, (x - zp) * scale, and back, round(x / scale) + zp converted
 * to `dtype`. scale and zp are registers; zp -1: none. */
int chain_dequant(chain_builder_t *b, int x, int scale, int zp);
int chain_dequant_offset(chain_builder_t *b, int x, int scale, int offset); /* x * scale + offset */
int chain_quant(chain_builder_t *b, int x, int scale, int zp, sinter_data_type_t dtype);
int chain_truncate(chain_builder_t *b, int x);
int chain_round_to(chain_builder_t *b, int x, sinter_data_type_t dtype);
/* The register to store as dtype in place of reg: the one that chain_round_to(.., dtype) made reg
 * from, since storing rounds too; else reg. */
int chain_unrounded(const chain_builder_t *b, int reg, sinter_data_type_t dtype);
/* map NULL: the value has the dims of the iteration space. */
sinter_status_t chain_store(chain_builder_t *b, int reg, int plan_value, const int8_t *map);
/* Maps virtual registers to real ones. result: the virtual register that the kernel gets back; -1:
 * none. sinter_unimplemented with a reason: the program needs too many registers, operands or
 * instructions, and lowering splits it. */
sinter_status_t chain_finish(chain_builder_t *b, int result, bool f64, const chain_t **out);

#endif
