/* Building chains: instructions over virtual registers, each assigned once, then coloured into
 * CHAIN_MAX_REGS by a linear scan. */
#include <string.h>

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/plan.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "base/op_slot.h"
#include "base/status.h"
#include "graph/op_schema.h"
#include "numeric/dtype.h"

enum { MAX_VIRTUAL = 4 * CHAIN_MAX_INSTRS };

void chain_begin(chain_builder_t *b, arena_t *arena, int ndims, int dims_value, bool with_input)
{
    *b = (chain_builder_t){
        .arena = arena,
        .chain = {.ndims = ndims, .dims_value = dims_value, .with_input = with_input},
        .n_virtual = with_input ? 1 : 0};
}

/* Appends an instruction and returns the register that it gets; a store gets none. -1: out of
 * memory. */
static int emit(chain_builder_t *b, chain_instr_t in)
{
    const bool store = in.op == CHAIN_STORE;
    if (!arena_grow(b->arena, (void **)&b->instrs, &b->cap_instrs, b->chain.n_instrs,
                    sizeof(chain_instr_t))) {
        return -1;
    }
    in.dst = store ? 0 : b->n_virtual++;
    b->instrs[b->chain.n_instrs++] = in;
    return in.dst;
}

/* The index of an operand in the list. An equal operand that is in the list already is used
 * again. sizes NULL: it has no groups. */
static int add_operand(chain_builder_t *b, int value, const int8_t *map, const int64_t *sizes)
{
    chain_operand_t op = {.value = value, .grouped = sizes != NULL};
    memset(op.map, -1, sizeof(op.map));
    memcpy(op.map, map, (size_t)b->chain.ndims * sizeof(*map));
    if (sizes != NULL) {
        memcpy(op.group_size, sizes, (size_t)b->chain.ndims * sizeof(*sizes));
    }
    for (int i = 0; i < b->chain.n_operands; i++) {
        const chain_operand_t *o = &b->operands[i];
        if (o->value == value && o->grouped == op.grouped &&
            memcmp(o->map, op.map, sizeof(op.map)) == 0 &&
            memcmp(o->group_size, op.group_size, sizeof(op.group_size)) == 0) {
            return i;
        }
    }
    if (!arena_grow(b->arena, (void **)&b->operands, &b->cap_operands, b->chain.n_operands,
                    sizeof(chain_operand_t))) {
        return -1;
    }
    b->operands[b->chain.n_operands] = op;
    return b->chain.n_operands++;
}

int chain_load_groups(chain_builder_t *b, int plan_value, const int8_t *map, const int64_t *sizes)
{
    const int operand = add_operand(b, plan_value, map, sizes);
    return operand < 0 ? -1 : emit(b, (chain_instr_t){.op = CHAIN_LOAD, .operand = operand});
}

int chain_load_mapped(chain_builder_t *b, int plan_value, const int8_t *map)
{
    return chain_load_groups(b, plan_value, map, NULL);
}

/* Dims aligned at the right; leading dims that the iteration space does not have must turn out
 * to be 1. */
static void right_aligned(const chain_builder_t *b, int value_ndims, int8_t *map)
{
    for (int d = 0; d < SINTER_MAX_NDIMS; d++) {
        const int m = d - (b->chain.ndims - value_ndims);
        map[d] = (int8_t)(m < 0 || d >= b->chain.ndims ? -1 : m);
    }
}

int chain_load(chain_builder_t *b, int plan_value, int value_ndims)
{
    int8_t map[SINTER_MAX_NDIMS];
    right_aligned(b, value_ndims, map);
    return chain_load_mapped(b, plan_value, map);
}

int chain_load_row(chain_builder_t *b, int plan_value, int value_ndims)
{
    int8_t map[SINTER_MAX_NDIMS];
    memset(map, -1, sizeof map);
    map[b->chain.ndims - 1] = (int8_t)(value_ndims - 1);
    const int reg = chain_load_mapped(b, plan_value, map);
    for (int i = 0; i < b->chain.n_operands; i++) {
        b->operands[i].row = b->operands[i].row || b->operands[i].value == plan_value;
    }
    return reg;
}

int chain_load_split(chain_builder_t *b, int low, int high, int value_ndims,
                     sinter_data_type_t type)
{
    int8_t map[SINTER_MAX_NDIMS];
    right_aligned(b, value_ndims, map);
    const int l = add_operand(b, low, map, NULL), h = add_operand(b, high, map, NULL);
    return l < 0 || h < 0
               ? -1
               : emit(b, (chain_instr_t){
                             .op = CHAIN_LOAD_SPLIT, .operand = l, .high = h, .dtype = type});
}

sinter_status_t chain_store(chain_builder_t *b, int reg, int plan_value, const int8_t *map)
{
    int8_t same[SINTER_MAX_NDIMS];
    right_aligned(b, b->chain.ndims, same);
    const int operand = add_operand(b, plan_value, map != NULL ? map : same, NULL);
    if (reg < 0 || operand < 0 ||
        emit(b, (chain_instr_t){.op = CHAIN_STORE, .a = reg, .operand = operand}) < 0) {
        return sinter_out_of_memory;
    }
    return sinter_success;
}

/* ---- ops ------------------------------------------------------------------------------------- */

/* Channels are the last dim, or dim 1 where data_format says NCX. */
static int channel_dim(const chain_builder_t *b, const node_t *node)
{
    const bool ncx = strcmp(node_str(node, sinter_op_attr_data_format, "NXC"), "NCX") == 0;
    return ncx && b->chain.ndims > 1 ? 1 : b->chain.ndims - 1;
}

static const chain_instr_t *producer(const chain_builder_t *b, int reg)
{
    for (int i = b->chain.n_instrs - 1; i >= 0; i--) {
        const chain_instr_t *in = &b->instrs[i];
        if (in->dst == reg && in->op != CHAIN_STORE) {
            return in;
        }
    }
    return NULL;
}

/* Loads the vector in reg along the channel dim instead of the last dim. A tensor with more than
 * one dim, or with a single element, stays as it is. */
static int along_channels(chain_builder_t *b, const node_t *node, int reg)
{
    const int dim = channel_dim(b, node), last = b->chain.ndims - 1;
    const chain_instr_t *load = producer(b, reg);
    if (dim == last || reg < 0) {
        return reg;
    }
    if (load == NULL || load->op != CHAIN_LOAD) {
        b->reason = "a computed per-channel vector along dim 1 of an elementwise chain";
        return reg;
    }
    const chain_operand_t op = b->operands[load->operand];
    if (op.map[last] != 0) {
        return reg;
    }
    int8_t map[SINTER_MAX_NDIMS];
    memset(map, -1, sizeof(map));
    map[dim] = 0;
    return chain_load_mapped(b, op.value, map);
}

/* The attributes that the op's function takes as parameters. */
static void read_params(chain_instr_t *in, const node_t *node)
{
    for (int i = 0; i < CARD_PARAMS; i++) {
        in->p[i] = node_param(node, i);
        in->pd[i] = (double)in->p[i];
    }
}

static int gen_index(chain_builder_t *b, const node_t *node)
{
    const int64_t axis = node_s64(node, sinter_op_attr_axis, 0),
                  dim = axis < 0 ? axis + b->chain.ndims : axis;
    const chain_index_t index = {.dim = (int)dim, .value = node->out[0]};
    int k = 0;
    if (dim < 0 || dim >= b->chain.ndims) {
        b->reason = "GenIndex along an axis that the tensor does not have";
        return 0;
    }
    while (k < b->chain.n_indices &&
           (b->chain.indices[k].dim != index.dim || b->chain.indices[k].value != index.value)) {
        k++;
    }
    if (k == CHAIN_MAX_INDICES) {
        b->reason = "more indices than an elementwise chain can have";
        return 0;
    }
    b->chain.indices[k] = index;
    b->chain.n_indices += k == b->chain.n_indices;
    return emit(b, (chain_instr_t){.op = CHAIN_INDEX, .index = k});
}

/* Ops with the attribute data_format have a second operand with one element for each channel.
 * PReLU may switch that off. */
static bool has_channel_operand(const node_t *node)
{
    return op_attr_rule(node->kind, sinter_op_attr_data_format) != NULL &&
           node_bool(node, sinter_op_attr_per_channel_broadcast, true);
}

static int binary(chain_builder_t *b, sinter_op_kind_t kind, int x, int y)
{
    return x < 0 || y < 0 ? -1 : emit(b, (chain_instr_t){.op = op_slot(kind), .a = x, .b = y});
}

/* y = (x - mean) * (gamma / sqrt(variance + epsilon)) + beta: without gamma the quotient may be
 * beyond f32. */
static int batch_norm(chain_builder_t *b, const node_t *node, const int *regs)
{
    enum { X, GAMMA, BETA, MEAN, VARIANCE, N };
    const float epsilon = node_f32(node, sinter_op_attr_epsilon, 0);
    int r[N] = {regs[X]};
    for (int i = GAMMA; i < N; i++) {
        r[i] = along_channels(b, node, regs[i]);
    }
    const int least = emit(b, (chain_instr_t){.op = CHAIN_CONST, .p = {epsilon}, .pd = {epsilon}}),
              square = binary(b, sinter_op_add, r[VARIANCE], least),
              root = square < 0
                         ? -1
                         : emit(b, (chain_instr_t){.op = op_slot(sinter_op_sqrt), .a = square}),
              factor = binary(b, sinter_op_divide, r[GAMMA], root),
              apart = binary(b, sinter_op_subtract, r[X], r[MEAN]);
    return binary(b, sinter_op_add, binary(b, sinter_op_multiply, apart, factor), r[BETA]);
}

int chain_op(chain_builder_t *b, const node_t *node, const int *regs, int n_regs)
{
    chain_instr_t in = {.op = op_slot(node->kind)};
    int r[3] = {0, 0, 0};
    for (int i = 0; i < n_regs && i < 3; i++) {
        r[i] = regs[i];
    }
    if (node->kind == sinter_op_gen_index) {
        return gen_index(b, node);
    }
    if (node->kind == sinter_op_batch_norm_inference) {
        return batch_norm(b, node, regs);
    }
    if (node->kind == sinter_op_type_cast || node->kind == sinter_op_reorder) {
        in.op = CHAIN_COPY;
    } else if (op_slot(node->kind) < 0 || eltwise_f64_generic.op[op_slot(node->kind)] == NULL) {
        b->reason = "an op that is no elementwise function";
    } else if (has_channel_operand(node)) {
        r[1] = along_channels(b, node, r[1]);
    }
    in.a = r[0], in.b = r[1], in.c = r[2];
    read_params(&in, node);
    return in.a < 0 || in.b < 0 || in.c < 0 ? -1 : emit(b, in);
}

/* The operand that a register was loaded from; -1: it was computed. */
static int loaded_from(const chain_builder_t *b, int reg)
{
    const chain_instr_t *in = reg < 0 ? NULL : producer(b, reg);
    return in != NULL && in->op == CHAIN_LOAD ? in->operand : -1;
}

/* One instruction of a dequantisation or quantisation, whose scale and zero point are loaded (when
 * decoding, the codes may be too). Their loads are then not needed. */
static int rescale(chain_builder_t *b, chain_instr_t in, int scale, int zp)
{
    in.scale = loaded_from(b, scale);
    in.zp = loaded_from(b, zp);
    if (in.a < 0 || in.scale < 0 || (zp >= 0 && in.zp < 0)) {
        return -1;
    }
    const int codes = in.op == CHAIN_DEQUANT ? loaded_from(b, in.a) : -1;
    if (codes >= 0) {
        in.op = CHAIN_LOAD_DEQUANT;
        in.operand = codes;
        in.a = 0;
    }
    return emit(b, in);
}

int chain_dequant(chain_builder_t *b, int x, int scale, int zp)
{
    return rescale(b, (chain_instr_t){.op = CHAIN_DEQUANT, .a = x}, scale, zp);
}

int chain_dequant_offset(chain_builder_t *b, int x, int scale, int offset)
{
    return rescale(b, (chain_instr_t){.op = CHAIN_DEQUANT, .a = x, .offsets = true}, scale, offset);
}

int chain_quant(chain_builder_t *b, int x, int scale, int zp, sinter_data_type_t dtype)
{
    const int q = rescale(b, (chain_instr_t){.op = CHAIN_QUANT, .a = x}, scale, zp);
    return chain_round_to(b, q, dtype);
}

int chain_unrounded(const chain_builder_t *b, int reg, sinter_data_type_t dtype)
{
    const chain_instr_t *in = producer(b, reg);
    return in != NULL && in->op == CHAIN_ROUND_TO && in->dtype == dtype ? in->a : reg;
}

int chain_truncate(chain_builder_t *b, int x)
{
    return x < 0 ? -1 : emit(b, (chain_instr_t){.op = CHAIN_TRUNCATE, .a = x});
}

int chain_round_to(chain_builder_t *b, int x, sinter_data_type_t dtype)
{
    return x < 0 ? -1 : emit(b, (chain_instr_t){.op = CHAIN_ROUND_TO, .a = x, .dtype = dtype});
}

/* ---- registers ------------------------------------------------------------------------------- */

/* How many of the registers a, b, c an instruction reads. An op reads as many as its card has
 * inputs. */
static int n_sources(const chain_instr_t *in)
{
    if (in->op < CHAIN_LOAD) {
        return op_card(op_of_slot(in->op))->max_in;
    }
    switch ((chain_opcode_t)in->op) {
    case CHAIN_LOAD:
    case CHAIN_LOAD_SPLIT:
    case CHAIN_LOAD_DEQUANT:
    case CHAIN_INDEX:
    case CHAIN_CONST:
        return 0;
    case CHAIN_STORE:
    case CHAIN_COPY:
    case CHAIN_ROUND_TO:
    case CHAIN_TRUNCATE:
    case CHAIN_DEQUANT:
    case CHAIN_QUANT:
        return 1;
    }
    return 0; /* no other opcode exists */
}

/* last[v]: the last instruction that reads v, n_instrs for the result, -1 for none. Instructions
 * whose result nobody reads read nothing themselves. */
static void last_uses(const chain_builder_t *b, int result, int *last)
{
    for (int v = 0; v < b->n_virtual; v++) {
        last[v] = -1;
    }
    if (result >= 0) {
        last[result] = b->chain.n_instrs;
    }
    for (int i = b->chain.n_instrs - 1; i >= 0; i--) {
        const chain_instr_t *in = &b->instrs[i];
        const bool store = in->op == CHAIN_STORE;
        const int src[3] = {in->a, in->b, in->c};
        for (int s = 0; s < 3 && s < n_sources(in) && (store || last[in->dst] >= 0); s++) {
            last[src[s]] = last[src[s]] < 0 ? i : last[src[s]];
        }
    }
}

typedef struct colouring {
    int reg[MAX_VIRTUAL], last[MAX_VIRTUAL];
    bool busy[CHAIN_MAX_REGS];
    int used;
} colouring_t;

static bool take(colouring_t *k, int v)
{
    for (int r = 0; r < CHAIN_MAX_REGS; r++) {
        if (!k->busy[r]) {
            k->busy[r] = true;
            k->reg[v] = r;
            k->used = r + 1 > k->used ? r + 1 : k->used;
            return true;
        }
    }
    return false;
}

/* Renames registers in place and drops instructions without effect. An instruction may write to
 * a register that it is the last to read. False: too few registers. */
static bool colour(chain_builder_t *b, colouring_t *k)
{
    int n = 0;
    if (b->chain.with_input && !take(k, 0)) {
        return false;
    }
    if (b->chain.with_input && k->last[0] < 0) {
        k->busy[0] = false;
    }
    for (int i = 0; i < b->chain.n_instrs; i++) {
        chain_instr_t in = b->instrs[i];
        const bool store = in.op == CHAIN_STORE;
        int *const src[3] = {&in.a, &in.b, &in.c};
        if (!store && k->last[in.dst] < 0) {
            continue;
        }
        for (int s = 0; s < 3; s++) {
            const int v = *src[s];
            *src[s] = s < n_sources(&in) ? k->reg[v] : 0;
            if (s < n_sources(&in) && k->last[v] == i) {
                k->busy[k->reg[v]] = false;
            }
        }
        if (!store && !take(k, in.dst)) {
            return false;
        }
        in.dst = store ? 0 : k->reg[in.dst];
        b->instrs[n++] = in;
    }
    b->chain.n_instrs = n;
    return true;
}

static bool rename_field(int *field, bool has, int o, int to)
{
    const bool same = has && *field == o;
    *field = same ? to : *field;
    return same;
}

/* Renumbers operand o of an instruction if it has it. */
static bool rename_operand(chain_instr_t *in, int o, int to)
{
    const bool split = in->op == CHAIN_LOAD_SPLIT, fused = in->op == CHAIN_LOAD_DEQUANT;
    const bool rescales = fused || in->op == CHAIN_DEQUANT || in->op == CHAIN_QUANT;
    const bool moves = fused || split || in->op == CHAIN_LOAD || in->op == CHAIN_STORE;
    return rename_field(&in->operand, moves, o, to) + rename_field(&in->high, split, o, to) +
               rename_field(&in->scale, rescales, o, to) + rename_field(&in->zp, rescales, o, to) >
           0;
}

/* Removes the operands, and the indices, that only dropped instructions had: they need not fit the
 * iteration space. */
static void drop_operands(chain_builder_t *b)
{
    int n = 0;
    for (int o = 0; o < b->chain.n_operands; o++) {
        bool used = false;
        for (int i = 0; i < b->chain.n_instrs; i++) {
            used = rename_operand(&b->instrs[i], o, n) || used;
        }
        b->operands[n] = b->operands[o];
        n += used;
    }
    b->chain.n_operands = n;
}

static void drop_indices(chain_builder_t *b)
{
    int n = 0;
    for (int k = 0; k < b->chain.n_indices; k++) {
        bool used = false;
        for (int i = 0; i < b->chain.n_instrs; i++) {
            used = rename_field(&b->instrs[i].index, b->instrs[i].op == CHAIN_INDEX, k, n) || used;
        }
        b->chain.indices[n] = b->chain.indices[k];
        n += used;
    }
    b->chain.n_indices = n;
}

static sinter_status_t too_big(const char *what, int n, int most)
{
    return sg_fail(sinter_unimplemented, "an elementwise chain needs %d %s, the most is %d", n,
                   what, most);
}

static bool reads(const chain_instr_t *in, int reg)
{
    const int n = n_sources(in);
    return (n > 0 && in->a == reg) || (n > 1 && in->b == reg) || (n > 2 && in->c == reg);
}

/* Whether instructions from `next` on, or the caller, read a register before it is written. */
static bool is_read(const chain_t *c, int next, int reg)
{
    for (int i = next; i < c->n_instrs; i++) {
        if (reads(&c->instrs[i], reg)) {
            return true;
        }
        if (c->instrs[i].op != CHAIN_STORE && c->instrs[i].dst == reg) {
            return false;
        }
    }
    return c->result == reg;
}

/* Whether the register of a load is read by a store, or after one, or is the result of a chain that
 * stores. */
static bool outlives_stores(const chain_t *c, int load)
{
    const int reg = c->instrs[load].dst;
    for (int i = load + 1; i < c->n_instrs; i++) {
        if (c->instrs[i].op == CHAIN_STORE) {
            return is_read(c, i, reg);
        }
        if (c->instrs[i].dst == reg) {
            return false;
        }
    }
    return false;
}

/* Takes the load of an operand and the op that combines it with the register that affine has.
 * Returns the operand; -1: the next instructions are others. */
static int take_operand(const chain_t *c, sinter_op_kind_t kind, chain_affine_t *affine)
{
    const int next = affine->next + 2;
    if (next > c->n_instrs) {
        return -1;
    }
    const chain_instr_t *load = &c->instrs[affine->next], *op = load + 1;
    if (load->op != CHAIN_LOAD || op->op != OP_SLOT(kind) || load->dst == affine->reg) {
        return -1;
    }
    const bool both = (op->a == affine->reg && op->b == load->dst) ||
                      (op->b == affine->reg && op->a == load->dst);
    if (!both || (op->dst != affine->reg && is_read(c, next, affine->reg)) ||
        (op->dst != load->dst && is_read(c, next, load->dst))) {
        return -1;
    }
    affine->next = next;
    affine->reg = op->dst;
    return load->operand;
}

static chain_affine_t find_affine(const chain_t *c)
{
    chain_affine_t affine = {-1, -1, 0, 0};
    if (!c->f64 && c->with_input) {
        affine.gamma = take_operand(c, sinter_op_multiply, &affine);
        affine.beta = take_operand(c, sinter_op_add, &affine);
    }
    return affine;
}

/* ---- chains that do without doubles ---------------------------------------------------------- */

static sinter_data_type_t type_of(const chain_builder_t *b, int operand)
{
    return b->values[b->operands[operand].value].lt.data_type;
}

/* What a virtual register of a chain of words holds. SUM: a result that is still to saturate. */
typedef enum word { WORD_NONE, WORD_BOOLEAN, WORD_S32, WORD_SUM } word_t;

/* The result of an op on words; WORD_NONE: there is no such op. */
static word_t word_op(const chain_instr_t *in, const word_t *word)
{
    const bool both = word[in->a] == WORD_S32 && word[in->b] == WORD_S32;
    switch (op_of_slot(in->op)) {
    case sinter_op_add:
    case sinter_op_subtract:
    case sinter_op_multiply:
    case sinter_op_squared_difference:
        return both ? WORD_SUM : WORD_NONE;
    case sinter_op_maximum:
    case sinter_op_minimum:
        return both ? WORD_S32 : WORD_NONE;
    case sinter_op_greater_equal:
        return both ? WORD_BOOLEAN : WORD_NONE;
    case sinter_op_select:
        return word[in->a] == WORD_BOOLEAN && word[in->b] == WORD_S32 && word[in->c] == WORD_S32
                   ? WORD_S32
                   : WORD_NONE;
    default:
        return WORD_NONE;
    }
}

/* What an instruction leaves in its register; of a store, what it has stored. */
static word_t word_of(const chain_builder_t *b, const chain_instr_t *in, const word_t *word)
{
    const word_t from = n_sources(in) > 0 ? word[in->a] : WORD_NONE;
    if (in->op < CHAIN_LOAD) {
        return word_op(in, word);
    }
    if (in->op == CHAIN_LOAD && !b->operands[in->operand].grouped) {
        const sinter_data_type_t type = type_of(b, in->operand);
        return type == sinter_s32 ? WORD_S32 : type == sinter_boolean ? WORD_BOOLEAN : WORD_NONE;
    }
    if (in->op == CHAIN_STORE) {
        const sinter_data_type_t type = type_of(b, in->operand);
        const bool fits = type == sinter_s32 ? from == WORD_S32 || from == WORD_SUM
                                             : type == sinter_boolean && from == WORD_BOOLEAN;
        return fits ? from : WORD_NONE;
    }
    if (in->op == CHAIN_ROUND_TO && in->dtype == sinter_s32) {
        return from == WORD_SUM ? WORD_S32 : from == WORD_S32 ? from : WORD_NONE;
    }
    return in->op == CHAIN_COPY && from != WORD_SUM ? from : WORD_NONE;
}

/* Whether 32-bit integers can hold all that a chain computes: each sum saturates at once. */
static bool fits_words(chain_builder_t *b, int result, word_t *word)
{
    if (b->values == NULL || b->chain.with_input || result >= 0) {
        return false;
    }
    for (int i = 0; i < b->chain.n_instrs; i++) {
        const chain_instr_t *in = &b->instrs[i];
        const word_t now = word_of(b, in, word);
        if (now == WORD_NONE) {
            return false;
        }
        if (in->op != CHAIN_STORE) {
            word[in->dst] = now;
        }
    }
    return true;
}

/* Ops on words saturate, so nothing is left to round: who reads a rounded register reads what it
 * was made from. */
static void drop_roundings(chain_builder_t *b)
{
    for (int i = 0; i < b->chain.n_instrs; i++) {
        const chain_instr_t *in = &b->instrs[i];
        for (int k = i + 1; k < b->chain.n_instrs && in->op == CHAIN_ROUND_TO; k++) {
            chain_instr_t *user = &b->instrs[k];
            int *const src[3] = {&user->a, &user->b, &user->c};
            for (int s = 0; s < 3 && s < n_sources(user); s++) {
                *src[s] = *src[s] == in->dst ? in->a : *src[s];
            }
        }
    }
}

/* An s32 that becomes a float on its way to this type is rounded as it would be in one step: f32
 * is reached by that step alone, and the others either hold no number beyond 2^24, up to which
 * floats are exact, or make the same of all of them. */
static bool takes_s32_by_float(sinter_data_type_t type)
{
    return !dtype_needs_f64(type) && type != sinter_bf16 && type != sinter_e8m0;
}

/* Whether a finished chain does nothing but convert between s32 and a type that floats hold. */
static bool converts_by_float(const chain_builder_t *b)
{
    const chain_instr_t *in = b->instrs;
    if (b->values == NULL || b->chain.with_input || b->chain.n_instrs != 2 ||
        in[0].op != CHAIN_LOAD || in[1].op != CHAIN_STORE || b->operands[in[0].operand].grouped) {
        return false;
    }
    const sinter_data_type_t from = type_of(b, in[0].operand), to = type_of(b, in[1].operand);
    return from == sinter_s32 ? takes_s32_by_float(to) : to == sinter_s32 && !dtype_needs_f64(from);
}

sinter_status_t chain_finish(chain_builder_t *b, int result, bool f64, const chain_t **out)
{
    if (b->reason != NULL) {
        return sg_fail(sinter_unimplemented, "%s", b->reason);
    }
    if (b->n_virtual > MAX_VIRTUAL) {
        return too_big("instructions", b->chain.n_instrs, CHAIN_MAX_INSTRS);
    }
    colouring_t *k = ARENA_NEW(b->arena, colouring_t, 1);
    chain_t *chain = ARENA_NEW(b->arena, chain_t, 1);
    word_t *word = ARENA_NEW(b->arena, word_t, b->n_virtual + 1);
    if (k == NULL || chain == NULL || word == NULL) {
        return sinter_out_of_memory;
    }
    const bool words = f64 && fits_words(b, result, word);
    if (words) {
        drop_roundings(b);
    }
    last_uses(b, result, k->last);
    if (!colour(b, k)) {
        return too_big("registers at once, more", CHAIN_MAX_REGS + 1, CHAIN_MAX_REGS);
    }
    drop_operands(b);
    drop_indices(b);
    if (b->chain.n_instrs > CHAIN_MAX_INSTRS) {
        return too_big("instructions", b->chain.n_instrs, CHAIN_MAX_INSTRS);
    }
    if (b->chain.n_operands > CHAIN_MAX_OPERANDS) {
        return too_big("operands", b->chain.n_operands, CHAIN_MAX_OPERANDS);
    }
    *chain = b->chain;
    chain->words = words;
    chain->f64 = f64 && !words && !(result < 0 && converts_by_float(b));
    chain->n_regs = k->used > 0 ? k->used : 1;
    chain->result = result < 0 ? -1 : k->reg[result];
    chain->instrs = b->instrs;
    chain->operands = b->operands;
    for (int i = 0; i < chain->n_instrs; i++) {
        b->instrs[i].early = b->instrs[i].op == CHAIN_LOAD && !outlives_stores(chain, i);
    }
    chain->affine = find_affine(chain);
    *out = chain;
    return sinter_success;
}
