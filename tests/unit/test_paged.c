/* Attention over caches in pages: K and V are what Gather takes of blocks by a table of each
 * sequence. A covering design runs against the oracle, which gathers and computes op by op: orders
 * of the blocks, page sizes, types, tables, lengths, several rows at once, and ragged batches, in
 * which each row is a token that names its sequence.
 *
 * The library reads no more than it must. Blocks that no table names, and tokens that no row sees,
 * are NaN. Where the partition of attention takes the Gathers in, entries of the table beyond a
 * length are anything, and the results have the bits of attention over the gathered tokens, with
 * any number of threads. Elsewhere those entries are -1, and a line at the end says so.
 *
 * SINTER_RANDOM_SEED=N runs one design, SINTER_MATRIX_ONLY=N one case of it; SINTER_PAGED_FUSED
 * makes it a failure where a Gather stays outside. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter.h>

#include "covering.h"
#include "node.h"
#include "passive.h"
#include "random.h"

/* ---- cases ----------------------------------------------------------------------------------- */

/* How blocks lie: heads before tokens; the same, K and V in one tensor, of which Slice takes one,
 * where StaticReshape drops the dim of 1 that is left, or Gather is along the next one; tokens
 * before heads; blocks of one token; codes, scales and zero points of a token side by side. */
typedef enum order {
    HEADS,
    HALVES,
    HALVES_KEPT,
    TOKENS,
    TOKEN_TABLE,
    SIDE_BY_SIDE,
    ORDERS
} order_t;

typedef struct stored {
    const char *name;
    sinter_data_type_t codes, scales, zps; /* undef: none */
    int64_t group;                         /* 0: one for each token */
} stored_t;

static const stored_t all_stored[] = {
    {"f32", sinter_f32, sinter_data_type_undef, sinter_data_type_undef, 0},
    {"f16", sinter_f16, sinter_data_type_undef, sinter_data_type_undef, 0},
    {"bf16", sinter_bf16, sinter_data_type_undef, sinter_data_type_undef, 0},
    {"s8 by token", sinter_s8, sinter_f16, sinter_data_type_undef, 0},
    {"s8", sinter_s8, sinter_f16, sinter_data_type_undef, 32},
    {"u8 with zero points", sinter_u8, sinter_f32, sinter_u8, 0},
    {"s4", sinter_s4, sinter_f16, sinter_data_type_undef, 32},
    {"u4 with zero points", sinter_u4, sinter_f16, sinter_u8, 32},
    {"mxfp4", sinter_f4_e2m1, sinter_e8m0, sinter_data_type_undef, 32},
};
/* Of K and of V: the same, then two pairs. */
static const struct {
    int k, v;
} pairs[] = {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5},
             {6, 6}, {7, 7}, {8, 8}, {4, 6}, {1, 7}};

/* What the entries of tables are; shared: the first pages of all sequences are the same. */
typedef enum table { PERMUTED, SHARED, CONSECUTIVE, ONE_BLOCK } table_t;

/* What lies between two blocks: nothing, room for a token, the same of V alone, of scales and zero
 * points alone, room for half a token. The last three are read in place or not. */
typedef enum gap { NO_GAP, TOKEN_GAP, GAP_OF_V, GAP_OF_SCALES, HALF_GAP, GAPS } gap_t;

/* What is between the scores and the probabilities, besides the mask. */
enum { SINKS_BIT = 1, WINDOW_BIT = 2, CAP_BIT = 4 };
static const int extras[] = {0, SINKS_BIT, WINDOW_BIT, CAP_BIT, SINKS_BIT | WINDOW_BIT | CAP_BIT};

enum { MOST_SEQUENCES = 6, MOST_TOKENS = 64 };
/* Rows of a draft and of a chunk. Windows let tokens be read from a multiple of GRAIN on. */
enum { DESIGNS = 3, DRAFT = 4, CHUNK = 33, GRAIN = 64 };

typedef struct paged_case {
    order_t order;
    int64_t page, kv_heads, per_kv, head;
    const stored_t *stored[2]; /* K, V */
    table_t table;
    gap_t gap;
    bool wide;   /* indices of s64 */
    int lengths; /* which ones */
    int64_t rows;
    bool ragged;   /* rows are tokens, each of which names its sequence */
    bool flat;     /* the queries of a head of K are the rows, and the graph has four dims */
    bool unmasked; /* all tokens are seen */
    bool is_short; /* tables have one page or a few */
    bool drops;    /* one row drops columns from its length on, instead of keeping those before */
    bool open;     /* compile knows no numbers of sequences, rows, pages and blocks */
    int extra, threads;
    sinter_fpmath_mode_t mode;
} paged_case_t;

/* ---- what a run reads and writes ------------------------------------------------------------- */

/* Codes, scales or zero points of K or V. Elements lie apart by these. */
typedef struct part {
    sinter_logical_tensor_t lt;
    int64_t bits, width, first, block, head, token;
    unsigned char *numbers, *guarded; /* for the oracle; NaN where nothing is to be read */
} part_t;

typedef struct run {
    const paged_case_t *c;
    int64_t sequences, pages, rows, tokens; /* tokens: of a table */
    int64_t blocks, items;                  /* items: sequences, or tokens of a ragged batch */
    int32_t lengths[MOST_SEQUENCES];
    int32_t sequence[MOST_TOKENS], position[MOST_TOKENS]; /* of a ragged batch */
    int64_t *table;                                       /* for the oracle */
    bool *needed;                                         /* tokens of blocks */
    part_t parts[2][3];
    unsigned char *buffers[12];
    int n_buffers;
    void *clean_table, *real_table, *items_sequence; /* as tensors have them */
    float *q, *y, sinks[64], scale, fill, cap, per_cap;
    int32_t window, before, one;
    size_t n_q, n_y;
} run_t;

static uint64_t seed = 1;

static int draw(int n)
{
    return random_below(&seed, n);
}

static void *take(size_t bytes)
{
    void *p = calloc(1, bytes > 0 ? bytes : 1);
    if (p == NULL) {
        abort();
    }
    return p;
}

static int64_t bits_of(sinter_data_type_t type)
{
    sinter_logical_tensor_t lt;
    const int64_t eight = 8;
    size_t bytes = 0;
    CHECK_THAT(sinter_logical_tensor_init(&lt, 0, type, 1, &eight, sinter_tensor_property_undef) ==
               sinter_success);
    CHECK_THAT(sinter_logical_tensor_get_bytes(&lt, &bytes) == sinter_success);
    return (int64_t)bytes;
}

static sinter_data_type_t part_type(const stored_t *s, int p)
{
    return p == 0 ? s->codes : p == 1 ? s->scales : s->zps;
}

static int n_parts(const stored_t *s)
{
    return 1 + (s->scales != sinter_data_type_undef) + (s->zps != sinter_data_type_undef);
}

static bool in_halves(const paged_case_t *c)
{
    return c->order == HALVES || c->order == HALVES_KEPT;
}

static int64_t group_of(const paged_case_t *c, int kv)
{
    const int64_t group = c->stored[kv]->group;
    return group == 0 ? c->head : group;
}

static int64_t part_width(const paged_case_t *c, int kv, int p)
{
    return p == 0 ? c->head : (c->head + group_of(c, kv) - 1) / group_of(c, kv);
}

/* Ids of tensors. */
enum {
    Q = 1,
    SCALE,
    FILL,
    LENGTHS,
    WINDOW,
    BEFORE,
    SINKS,
    CAP,
    PER_CAP,
    TABLE,
    SEQUENCE,
    K_PARTS,
    V_PARTS = K_PARTS + 3,
    OUT = V_PARTS + 3,
    FREE = 100 /* from here on, between ops */
};

static int64_t bytes_of_token(const paged_case_t *c, int kv, int before)
{
    int64_t bytes = 0;
    for (int p = 0; p < before; p++) {
        bytes += part_width(c, kv, p) * bits_of(part_type(c->stored[kv], p)) / 8;
    }
    return bytes;
}

/* In elements. */
static int64_t gap_of(const paged_case_t *c, int kv, int p, const part_t *part)
{
    const bool has = c->gap == GAP_OF_V ? kv == 1 : c->gap == GAP_OF_SCALES ? p > 0 : c->gap > 0;
    return !has ? 0 : c->gap == HALF_GAP ? part->token / 2 : part->token;
}

/* Strides of a part, which begins at the byte that it returns. */
static int64_t lay_out(const run_t *r, int kv, int p, part_t *part)
{
    const paged_case_t *c = r->c;
    const sinter_data_type_t type = part_type(c->stored[kv], p);
    const int64_t w = part_width(c, kv, p), bits = bits_of(type), heads = c->kv_heads,
                  row = c->order == SIDE_BY_SIDE
                            ? (bytes_of_token(c, kv, n_parts(c->stored[kv])) + 3) / 4 * 32 / bits
                            : w;
    const bool tokens_first = c->order == TOKENS, halves = in_halves(c);
    part->bits = bits;
    part->width = w;
    part->token = tokens_first ? heads * row : row;
    part->head = tokens_first || c->order == TOKEN_TABLE ? row : c->page * row;
    part->block = heads * c->page * row + gap_of(c, kv, p, part);
    part->first = halves ? kv * r->blocks * part->block : 0;
    const sinter_dim_t dims[5] = {2, r->blocks, tokens_first ? c->page : heads,
                                  tokens_first ? heads : c->page, w},
                       strides[5] = {r->blocks * part->block, part->block,
                                     tokens_first ? part->token : part->head,
                                     tokens_first ? part->head : part->token, 1};
    const sinter_dim_t flat_dims[3] = {r->blocks, heads, w};
    const int ndims = c->order == TOKEN_TABLE ? 3 : halves ? 5 : 4;
    const uint64_t id = (uint64_t)((kv == 0 || halves ? K_PARTS : V_PARTS) + p);
    CHECK_THAT(sinter_logical_tensor_init(&part->lt, id, type, ndims,
                                          ndims == 3 ? flat_dims : dims + 5 - ndims,
                                          sinter_tensor_property_undef) == sinter_success);
    if (ndims > 3) {
        memcpy(part->lt.strides, strides + 5 - ndims, sizeof *strides * (size_t)ndims);
    }
    return c->order == SIDE_BY_SIDE ? bytes_of_token(c, kv, p) : 0;
}

/* Floats are in [-1, 1), and scales bring codes there. */
static double number(const stored_t *s, int p)
{
    const double size = s->codes == sinter_s8 || s->codes == sinter_u8 ? 0x1p-8 : 0x1p-4,
                 x = random_signed(&seed);
    const bool is_byte = s->codes == sinter_s8 || s->codes == sinter_u8;
    const int middle = s->codes == sinter_u8 ? 128 : s->codes == sinter_u4 ? 8 : 0;
    if (p == 1) {
        return size * (1 + fabs(x));
    }
    if (n_parts(s) == 1) {
        return x;
    }
    return floor(x * (p == 2 ? 4 : is_byte ? 127 : 8)) + middle;
}

static unsigned char *element(const part_t *part, unsigned char *data, int64_t block, int64_t head,
                              int64_t token)
{
    const int64_t at = part->first + block * part->block + head * part->head + token * part->token;
    return data + at * part->bits / 8;
}

static void open_parts(run_t *r)
{
    const paged_case_t *c = r->c;
    for (int kv = 0; kv < 2; kv++) {
        for (int p = 0; p < n_parts(c->stored[kv]); p++) {
            part_t *part = &r->parts[kv][p];
            const int64_t begin = lay_out(r, kv, p, part), bits = bits_of(part->lt.data_type);
            const part_t *same = in_halves(c) && kv == 1             ? &r->parts[0][p]
                                 : c->order == SIDE_BY_SIDE && p > 0 ? &r->parts[kv][0]
                                                                     : NULL;
            if (same == NULL) {
                const int64_t halves = in_halves(c) ? 2 : 1;
                const size_t bytes = (size_t)(halves * r->blocks * part->block * bits / 8);
                part->numbers = r->buffers[r->n_buffers++] = take(bytes + 8);
                part->guarded = r->buffers[r->n_buffers++] = take(bytes + 8);
                memset(part->guarded, 0xFF, bytes + 8);
            } else {
                part->numbers = same->numbers + begin;
                part->guarded = same->guarded + begin;
            }
            const size_t bytes = (size_t)(part->width * bits / 8);
            for (int64_t i = 0; i < r->blocks * c->kv_heads * c->page; i++) {
                const int64_t token = i % c->page, head = i / c->page % c->kv_heads,
                              block = i / c->page / c->kv_heads;
                unsigned char *row = element(part, part->numbers, block, head, token);
                for (int64_t e = 0; e < part->width; e++) {
                    orc_encode(part->lt.data_type, row, e, number(c->stored[kv], p));
                }
                if (r->needed[block * c->page + token]) {
                    memcpy(element(part, part->guarded, block, head, token), row, bytes);
                }
            }
        }
    }
}

/* ---- sequences, tables ----------------------------------------------------------------------- */

static void open_sequences(run_t *r)
{
    const paged_case_t *c = r->c;
    const int64_t page = c->page, T = r->tokens;
    const int64_t kinds[3][4] = {{T, 0, 1, page - 1}, {page, T, page + 1, 1}, {T - 1, page, T, 0}};
    for (int64_t b = 0; b < r->sequences; b++) {
        const int64_t length = b < 4 ? kinds[c->lengths][b] : draw((int)T + 1);
        r->lengths[b] = (int32_t)(length > T || c->unmasked ? T : length);
    }
    r->items = r->sequences;
    if (!c->ragged) {
        return;
    }
    /* The last tokens of each sequence: of some one, of others a chunk. */
    const int64_t room = T * c->kv_heads * c->head > 60000 ? 14 : 40;
    r->items = 0;
    for (int64_t b = 0; b < r->sequences; b++) {
        const int chunk = (b + c->lengths) % 2 == 0 ? 1 : 2 + draw(39);
        for (int i = 0; i < chunk && i < r->lengths[b] && r->items < room; i++) {
            const int n = chunk < r->lengths[b] ? chunk : r->lengths[b];
            r->sequence[r->items] = (int32_t)b;
            r->position[r->items++] = c->unmasked ? (int32_t)T - 1 : r->lengths[b] - n + i;
        }
    }
}

/* The tokens that an item sees, from a whole grain on. */
static void columns_of(const run_t *r, int64_t item, int64_t *begin, int64_t *end)
{
    const paged_case_t *c = r->c;
    const int64_t length = c->ragged ? r->position[item] + 1 : r->lengths[item],
                  first = length - r->rows - r->window;
    *begin = (c->extra & WINDOW_BIT) != 0 && first > 0 ? first / GRAIN * GRAIN : 0;
    *end = length;
}

static int64_t sequence_of(const run_t *r, int64_t item)
{
    return r->c->ragged ? r->sequence[item] : item;
}

static void open_table(run_t *r)
{
    const paged_case_t *c = r->c;
    const int64_t n = r->sequences * r->pages;
    r->blocks = n + 2; /* the last one is never named */
    r->table = take((size_t)n * sizeof *r->table);
    for (int64_t i = 0; i < n; i++) {
        r->table[i] = c->table == ONE_BLOCK ? 1 : i;
    }
    for (int64_t i = n - 1; i > 0 && (c->table == PERMUTED || c->table == SHARED); i--) {
        const int64_t j = draw((int)i + 1), entry = r->table[i];
        r->table[i] = r->table[j];
        r->table[j] = entry;
    }
    for (int64_t b = 1; b < r->sequences && c->table == SHARED; b++) {
        memcpy(r->table + b * r->pages, r->table, (size_t)((r->pages + 1) / 2) * sizeof *r->table);
    }
    r->needed = take((size_t)(r->blocks * c->page));
    for (int64_t i = 0; i < r->items; i++) {
        int64_t begin, end;
        columns_of(r, i, &begin, &end);
        for (int64_t t = begin; t < end; t++) {
            const int64_t block = r->table[sequence_of(r, i) * r->pages + t / c->page];
            r->needed[block * c->page + t % c->page] = true;
        }
    }
}

static void put_index(const paged_case_t *c, void *data, int64_t i, int64_t value)
{
    if (c->wide) {
        ((int64_t *)data)[i] = value;
    } else {
        ((int32_t *)data)[i] = (int32_t)value;
    }
}

/* The table that the library gets. Entries before a window name a block of NaN. Those beyond a
 * length are -1, or anything where nothing reads them. Some others count from the end. */
static void write_tables(run_t *r, bool fused)
{
    static const int64_t anything[] = {-1, 1 << 30, 7, INT32_MIN, INT32_MAX};
    const paged_case_t *c = r->c;
    for (int64_t b = 0; b < r->sequences; b++) {
        int64_t first = r->tokens, last = 0;
        for (int64_t i = 0; i < r->items; i++) {
            int64_t begin, end;
            columns_of(r, i, &begin, &end);
            if (sequence_of(r, i) == b) {
                first = begin < first ? begin : first;
                last = end > last ? end : last;
            }
        }
        for (int64_t j = 0; j < r->pages; j++) {
            const int64_t i = b * r->pages + j, entry = r->table[i];
            put_index(c, r->clean_table, i, entry);
            put_index(c, r->real_table, i,
                      j * c->page >= last          ? (fused ? anything[draw(5)] : -1)
                      : (j + 1) * c->page <= first ? r->blocks - 1
                      : draw(4) == 0               ? entry - r->blocks
                                                   : entry);
        }
    }
}

enum { GUARD = 16 };

static void open_run(run_t *r, const paged_case_t *c, int64_t sequences, int64_t pages,
                     int64_t rows)
{
    memset(r, 0, sizeof *r);
    r->c = c;
    r->sequences = sequences;
    r->pages = pages;
    r->rows = c->ragged ? 1 : rows;
    r->tokens = pages * c->page;
    r->window = (int32_t)(r->tokens / 4 + 1);
    open_sequences(r);
    open_table(r);
    open_parts(r);
    r->clean_table = take((size_t)(sequences * pages) * 8);
    r->real_table = take((size_t)(sequences * pages) * 8);
    r->items_sequence = take(MOST_TOKENS * 8);
    for (int64_t i = 0; i < r->items; i++) {
        put_index(c, r->items_sequence, i, r->sequence[i]);
    }
    r->n_q = r->n_y = (size_t)(r->items * c->kv_heads * c->per_kv * r->rows * c->head);
    r->q = take(r->n_q * sizeof *r->q);
    r->y = take((r->n_y + GUARD) * sizeof *r->y);
    for (size_t i = 0; i < r->n_q; i++) {
        r->q[i] = (float)random_signed(&seed);
    }
    for (int i = 0; i < 64; i++) {
        r->sinks[i] = (float)random_signed(&seed);
    }
    r->scale = 1 / sqrtf((float)c->head);
    r->fill = -INFINITY;
    r->cap = 2;
    r->per_cap = 0.5f;
    r->before = (int32_t)r->rows;
}

static void close_run(run_t *r)
{
    for (int i = 0; i < r->n_buffers; i++) {
        free(r->buffers[i]);
    }
    free(r->table);
    free(r->needed);
    free(r->clean_table);
    free(r->real_table);
    free(r->items_sequence);
    free(r->q);
    free(r->y);
}

/* ---- the graph ------------------------------------------------------------------------------- */

enum { MOST_NODES = 64 };

/* Some nodes in their order. gathered: K and V are inputs, as the Gathers would give them. */
typedef struct graph {
    const run_t *r;
    bool open, gathered;
    node_t nodes[MOST_NODES];
    int n;
    int64_t numbers[MOST_NODES][SINTER_MAX_NDIMS]; /* of attributes */
    int n_numbers;
    sinter_logical_tensor_t table; /* of each item */
} graph_t;

static int64_t size(const graph_t *g, int64_t n)
{
    return g->open ? SINTER_UNKNOWN_DIM : n;
}

static sinter_logical_tensor_t make(int id, sinter_data_type_t type, int ndims,
                                    const sinter_dim_t *dims)
{
    sinter_logical_tensor_t lt;
    CHECK_THAT(sinter_logical_tensor_init(&lt, (uint64_t)id, type, ndims, dims,
                                          sinter_tensor_property_undef) == sinter_success);
    for (int d = 0; d < ndims; d++) {
        lt.layout_type = dims[d] == SINTER_UNKNOWN_DIM ? sinter_layout_type_any : lt.layout_type;
    }
    return lt;
}

static sinter_logical_tensor_t scalar(int id, sinter_data_type_t type)
{
    return make(id, type, 1, (const sinter_dim_t[]){1});
}

static sinter_logical_tensor_t add(graph_t *g, sinter_op_kind_t kind, int n_in,
                                   const sinter_logical_tensor_t *in, sinter_data_type_t type,
                                   int ndims, const sinter_dim_t *dims)
{
    node_t *n = &g->nodes[g->n];
    *n = (node_t){.kind = kind, .n_in = n_in, .n_out = 1};
    n->out[0] = make(FREE + g->n, type, ndims, dims);
    memcpy(n->in, in, (size_t)n_in * sizeof *in);
    g->n++;
    return n->out[0];
}

/* Of the dims of the first operand. */
static sinter_logical_tensor_t add2(graph_t *g, sinter_op_kind_t kind, sinter_logical_tensor_t a,
                                    sinter_logical_tensor_t b, sinter_data_type_t type)
{
    const sinter_logical_tensor_t in[2] = {a, b};
    return add(g, kind, 2, in, type, a.ndims, a.dims);
}

static void attr_s64(graph_t *g, sinter_op_attr_t id, size_t n, const int64_t *values)
{
    node_t *node = &g->nodes[g->n - 1];
    int64_t *kept = g->numbers[g->n_numbers++];
    memcpy(kept, values, n * sizeof *values);
    node->attrs[node->n_attrs++] = (orc_attr_t){.id = id, .n = n, .s64 = kept};
}

static void attr_str(graph_t *g, sinter_op_attr_t id, const char *value)
{
    node_t *node = &g->nodes[g->n - 1];
    node->attrs[node->n_attrs++] = (orc_attr_t){.id = id, .str = value};
}

static void attr_bool(graph_t *g, sinter_op_attr_t id, int value)
{
    node_t *node = &g->nodes[g->n - 1];
    node->attrs[node->n_attrs++] = (orc_attr_t){.id = id, .b = value};
}

static sinter_logical_tensor_t gather(graph_t *g, sinter_logical_tensor_t data,
                                      sinter_logical_tensor_t indices, int axis)
{
    const sinter_logical_tensor_t in[2] = {data, indices};
    sinter_dim_t dims[SINTER_MAX_NDIMS];
    int n = axis;
    memcpy(dims, data.dims, (size_t)axis * sizeof *dims);
    for (int d = 0; d < indices.ndims; d++) {
        dims[n++] = indices.dims[d];
    }
    for (int d = axis + 1; d < data.ndims; d++) {
        dims[n++] = data.dims[d];
    }
    sinter_logical_tensor_t y = add(g, sinter_op_gather, 2, in, data.data_type, n, dims);
    attr_s64(g, sinter_op_attr_axis, 1, (const int64_t[]){axis});
    return y;
}

static sinter_logical_tensor_t reshape(graph_t *g, sinter_logical_tensor_t x, int ndims,
                                       const sinter_dim_t *dims, const int64_t *shape, bool zero)
{
    x = add(g, sinter_op_static_reshape, 1, &x, x.data_type, ndims, dims);
    attr_s64(g, sinter_op_attr_shape, (size_t)ndims, shape);
    attr_bool(g, sinter_op_attr_special_zero, zero);
    return x;
}

static sinter_logical_tensor_t transpose(graph_t *g, sinter_logical_tensor_t x,
                                         const int64_t *order)
{
    sinter_dim_t dims[SINTER_MAX_NDIMS];
    for (int d = 0; d < x.ndims; d++) {
        dims[d] = x.dims[order[d]];
    }
    x = add(g, sinter_op_static_transpose, 1, &x, x.data_type, x.ndims, dims);
    attr_s64(g, sinter_op_attr_order, (size_t)x.ndims, order);
    return x;
}

/* Dims of tokens of K or V: [items, heads, 1, tokens, width], without the 1 in a flat graph. */
static int token_dims(const graph_t *g, int64_t width, sinter_dim_t *dims)
{
    const paged_case_t *c = g->r->c;
    int n = 0;
    dims[n++] = size(g, g->r->items);
    dims[n++] = c->kv_heads;
    if (!c->flat) {
        dims[n++] = 1;
    }
    dims[n++] = size(g, g->r->tokens);
    dims[n++] = width;
    return n;
}

/* A part of the tokens of all items. */
static sinter_logical_tensor_t paged(graph_t *g, int kv, int p)
{
    static const int64_t heads_first[] = {0, 2, 1, 3, 4}, tokens_first[] = {0, 3, 1, 2, 4},
                         behind_one[] = {1, 0, 3, 2, 4, 5};
    const run_t *r = g->r;
    const paged_case_t *c = r->c;
    const part_t *part = &r->parts[kv][p];
    const int64_t w = part->width, H = c->kv_heads;
    sinter_logical_tensor_t x = part->lt;
    sinter_dim_t dims[5];
    const int ndims = token_dims(g, w, dims);
    if (g->gathered) {
        return make((kv == 0 ? K_PARTS : V_PARTS) + p, part->lt.data_type, ndims, dims);
    }
    if (g->open) {
        x.dims[in_halves(c)] = SINTER_UNKNOWN_DIM;
        x.layout_type = sinter_layout_type_any;
    }
    if (in_halves(c)) {
        const sinter_dim_t half[5] = {1, size(g, r->blocks), H, c->page, w};
        x = add(g, sinter_op_slice, 1, &x, x.data_type, 5, half);
        attr_s64(g, sinter_op_attr_starts, 1, (const int64_t[]){kv});
        attr_s64(g, sinter_op_attr_ends, 1, (const int64_t[]){kv + 1});
        attr_s64(g, sinter_op_attr_axes, 1, (const int64_t[]){0});
        x = c->order == HALVES
                ? reshape(g, x, 4, half + 1, (const int64_t[]){-1, H, c->page, w}, false)
                : x;
    }
    x = transpose(g, gather(g, x, g->table, c->order == HALVES_KEPT),
                  c->order == TOKENS        ? tokens_first
                  : c->order == HALVES_KEPT ? behind_one
                                            : heads_first);
    if (c->flat) {
        return c->order == TOKEN_TABLE
                   ? x
                   : reshape(g, x, 4, dims, (const int64_t[]){0, H, -1, w}, true);
    }
    return reshape(g, x, 5, dims, (const int64_t[]){0, H, 1, -1, w}, true);
}

static sinter_logical_tensor_t stored_tokens(graph_t *g, int kv)
{
    const paged_case_t *c = g->r->c;
    const stored_t *s = c->stored[kv];
    sinter_logical_tensor_t in[3];
    sinter_dim_t dims[5];
    const int64_t groups[5] = {1, 1, 1, 1, group_of(c, kv)};
    const int n = n_parts(s), ndims = token_dims(g, c->head, dims);
    for (int p = 0; p < n; p++) {
        in[p] = paged(g, kv, p);
    }
    if (n == 1) {
        return in[0];
    }
    const sinter_logical_tensor_t y =
        add(g, sinter_op_dynamic_dequantize, n, in, sinter_f32, ndims, dims);
    attr_str(g, sinter_op_attr_qtype, "per_group");
    attr_s64(g, sinter_op_attr_group_shape, (size_t)ndims, groups + 5 - ndims);
    return y;
}

/* [items, heads of K, queries, rows, last], or with queries as rows. */
static int row_dims(const graph_t *g, int64_t last, sinter_dim_t *dims)
{
    const paged_case_t *c = g->r->c;
    int n = 0;
    dims[n++] = size(g, g->r->items);
    dims[n++] = c->kv_heads;
    dims[n++] = c->per_kv;
    if (!c->flat) {
        dims[n++] = c->ragged ? 1 : size(g, g->r->rows);
    }
    dims[n++] = last;
    return n;
}

/* s32, one for each item. */
static sinter_logical_tensor_t lengths_tensor(const graph_t *g)
{
    const sinter_dim_t dims[5] = {size(g, g->r->items), 1, 1, 1, 1};
    return make(LENGTHS, sinter_s32, g->r->c->flat ? 4 : 5, dims);
}

static sinter_logical_tensor_t choose(graph_t *g, sinter_logical_tensor_t condition, bool keeps,
                                      sinter_logical_tensor_t x)
{
    const sinter_logical_tensor_t value = scalar(FILL, sinter_f32),
                                  in[3] = {condition, keeps ? x : value, keeps ? value : x};
    return add(g, sinter_op_select, 3, in, sinter_f32, x.ndims, x.dims);
}

static sinter_logical_tensor_t index_along(graph_t *g, sinter_logical_tensor_t x, int64_t axis)
{
    const sinter_logical_tensor_t y =
        add(g, sinter_op_gen_index, 1, &x, sinter_s32, x.ndims, x.dims);
    attr_s64(g, sinter_op_attr_axis, 1, &axis);
    return y;
}

static sinter_logical_tensor_t masked(graph_t *g, sinter_logical_tensor_t x)
{
    const paged_case_t *c = g->r->c;
    const sinter_logical_tensor_t column = index_along(g, x, -1);
    const bool drops = c->drops && !c->ragged && c->rows == 1;
    sinter_logical_tensor_t last = lengths_tensor(g); /* that a row sees */
    if (!c->ragged && !drops) {
        last = add2(g, sinter_op_subtract, last, scalar(BEFORE, sinter_s32), sinter_s32);
    }
    if (c->rows > 1) {
        last = add2(g, sinter_op_add, index_along(g, x, -2), last, sinter_s32);
    }
    const sinter_logical_tensor_t a = drops ? column : last, b = drops ? last : column,
                                  in[2] = {a, b};
    x = choose(g, add(g, sinter_op_greater_equal, 2, in, sinter_boolean, x.ndims, x.dims), !drops,
               x);
    if ((c->extra & WINDOW_BIT) != 0) {
        last = add2(g, sinter_op_subtract, last, scalar(WINDOW, sinter_s32), sinter_s32);
        x = choose(g, add2(g, sinter_op_greater_equal, column, last, sinter_boolean), true, x);
    }
    return x;
}

static void build(graph_t *g, const run_t *r, bool open, bool gathered)
{
    const paged_case_t *c = r->c;
    const sinter_data_type_t index = c->wide ? sinter_s64 : sinter_s32;
    sinter_dim_t dims[5];
    memset(g, 0, sizeof *g);
    g->r = r;
    g->open = open;
    g->gathered = gathered;
    g->table =
        make(TABLE, index, 2, (const sinter_dim_t[]){size(g, r->sequences), size(g, r->pages)});
    if (c->ragged && !gathered) {
        g->table = gather(g, g->table,
                          make(SEQUENCE, index, 1, (const sinter_dim_t[]){size(g, r->items)}), 0);
    }
    int n = row_dims(g, c->head, dims);
    const sinter_logical_tensor_t product[2] = {make(Q, sinter_f32, n, dims), stored_tokens(g, 0)};
    n = row_dims(g, size(g, r->tokens), dims);
    sinter_logical_tensor_t x = add(g, sinter_op_matmul, 2, product, sinter_f32, n, dims);
    attr_bool(g, sinter_op_attr_transpose_b, 1);
    x = add2(g, sinter_op_multiply, x, scalar(SCALE, sinter_f32), sinter_f32);
    if ((c->extra & CAP_BIT) != 0) {
        x = add2(g, sinter_op_multiply, x, scalar(PER_CAP, sinter_f32), sinter_f32);
        x = add(g, sinter_op_tanh, 1, &x, sinter_f32, n, dims);
        x = add2(g, sinter_op_multiply, x, scalar(CAP, sinter_f32), sinter_f32);
    }
    x = c->unmasked ? x : masked(g, x);
    const sinter_dim_t of_sinks[5] = {1, c->kv_heads, c->per_kv, 1, 1};
    const sinter_logical_tensor_t softmax[2] = {x, make(SINKS, sinter_f32, n, of_sinks)};
    x = add(g, sinter_op_softmax, 1 + ((c->extra & SINKS_BIT) != 0), softmax, sinter_f32, n, dims);
    attr_s64(g, sinter_op_attr_axis, 1, (const int64_t[]){-1});
    attr_str(g, sinter_op_attr_mode, "inf_as_zero");
    const sinter_logical_tensor_t outer[2] = {x, stored_tokens(g, 1)};
    n = row_dims(g, c->head, dims);
    add(g, sinter_op_matmul, 2, outer, sinter_f32, n, dims);
    g->nodes[g->n - 1].out[0].id = OUT;
}

/* ---- running --------------------------------------------------------------------------------- */

enum { MOST_INPUTS = 20 };

/* What the graph of a run reads, as the library and as the oracle do. */
typedef struct inputs {
    orc_tensor_t real[MOST_INPUTS], clean[MOST_INPUTS];
    int n;
} inputs_t;

static void give(inputs_t *in, sinter_logical_tensor_t lt, const void *real, const void *clean)
{
    in->real[in->n] = (orc_tensor_t){lt, real};
    in->clean[in->n++] = (orc_tensor_t){lt, clean};
}

static void give_side(inputs_t *in, sinter_logical_tensor_t lt, const void *data)
{
    give(in, lt, data, data);
}

/* All but K, V and the table. */
static void give_sides(inputs_t *in, const graph_t *g)
{
    const run_t *r = g->r;
    const paged_case_t *c = r->c;
    const bool drops = c->drops && c->rows == 1;
    sinter_dim_t dims[5];
    const int n = row_dims(g, c->head, dims);
    give_side(in, make(Q, sinter_f32, n, dims), r->q);
    give_side(in, scalar(SCALE, sinter_f32), &r->scale);
    if (!c->unmasked) {
        give_side(in, scalar(FILL, sinter_f32), &r->fill);
        give_side(in, lengths_tensor(g), c->ragged ? r->position : r->lengths);
    }
    if (!c->unmasked && !c->ragged && !drops) {
        give_side(in, scalar(BEFORE, sinter_s32), &r->before);
    }
    if ((c->extra & WINDOW_BIT) != 0) {
        give_side(in, scalar(WINDOW, sinter_s32), &r->window);
    }
    if ((c->extra & SINKS_BIT) != 0) {
        const sinter_dim_t of_sinks[5] = {1, c->kv_heads, c->per_kv, 1, 1};
        give_side(in, make(SINKS, sinter_f32, n, of_sinks), r->sinks);
    }
    if ((c->extra & CAP_BIT) != 0) {
        give_side(in, scalar(CAP, sinter_f32), &r->cap);
        give_side(in, scalar(PER_CAP, sinter_f32), &r->per_cap);
    }
}

static void give_pages(inputs_t *in, const graph_t *g)
{
    const run_t *r = g->r;
    const paged_case_t *c = r->c;
    const sinter_data_type_t index = c->wide ? sinter_s64 : sinter_s32;
    for (int kv = 0; kv < (in_halves(c) ? 1 : 2); kv++) {
        for (int p = 0; p < n_parts(c->stored[kv]); p++) {
            const part_t *part = &r->parts[kv][p];
            give(in, part->lt, part->guarded, part->numbers);
        }
    }
    give(in, make(TABLE, index, 2, (const sinter_dim_t[]){r->sequences, r->pages}), r->real_table,
         r->clean_table);
    if (c->ragged) {
        give_side(in, make(SEQUENCE, index, 1, (const sinter_dim_t[]){r->items}),
                  r->items_sequence);
    }
}

/* Tokens of all items, one after the other, as the tables name them. */
static unsigned char *gathered_part(const run_t *r, int kv, int p)
{
    const paged_case_t *c = r->c;
    const part_t *part = &r->parts[kv][p];
    const size_t bytes = (size_t)(part->width * bits_of(part->lt.data_type) / 8);
    unsigned char *data = take((size_t)(r->items * c->kv_heads * r->tokens) * bytes + 8),
                  *to = data;
    for (int64_t i = 0; i < r->items * c->kv_heads * r->tokens; i++, to += bytes) {
        const int64_t t = i % r->tokens, head = i / r->tokens % c->kv_heads,
                      item = i / r->tokens / c->kv_heads,
                      block = r->table[sequence_of(r, item) * r->pages + t / c->page];
        memcpy(to, element(part, part->guarded, block, head, t % c->page), bytes);
    }
    return data;
}

static bool takes_blocks(const node_t *n)
{
    return n->kind == sinter_op_gather && n->in[0].id != TABLE;
}

/* Whether a partition has the softmax and all Gathers of blocks. */
static bool has_all(const graph_t *g, const sinter_partition_t *partition)
{
    uint64_t ids[MOST_NODES];
    size_t n = 0;
    bool has[MOST_NODES] = {false}, all = true;
    CHECK_THAT(sinter_partition_get_op_num(partition, &n) == sinter_success);
    CHECK_THAT(sinter_partition_get_ops(partition, n, ids) == sinter_success);
    for (size_t i = 0; i < n; i++) {
        has[ids[i]] = true;
    }
    for (int i = 0; i < g->n; i++) {
        const node_t *node = &g->nodes[i];
        all = all && (has[i] || (node->kind != sinter_op_softmax && !takes_blocks(node)));
    }
    return all;
}

/* Half of the ragged batches have an engine whose bits do not depend on how tokens are grouped. */
static bool is_deterministic(const paged_case_t *c)
{
    return c->ragged && c->threads > 1;
}

static sinter_compiled_graph_t *compile(const graph_t *g, const char *what, bool *fused)
{
    enum { MOST_PARTITIONS = MOST_NODES };
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partitions[MOST_PARTITIONS];
    sinter_compiled_graph_t *whole = NULL;
    size_t n = 0;
    const sinter_engine_desc_t desc = {.size = sizeof desc,
                                       .deterministic = is_deterministic(g->r->c)};
    sinter_engine_t *engine = NULL;
    CHECK_THAT(sinter_engine_create(&engine, &desc) == sinter_success);
    CHECK_THAT(sinter_graph_create(&graph, engine, sinter_cpu) == sinter_success);
    for (int i = 0; i < g->n; i++) {
        node_add(graph, &g->nodes[i], (uint64_t)i);
    }
    sinter_status_t status = sinter_graph_finalize(graph);
    status = status ? status : sinter_graph_filter(graph, sinter_partition_policy_fusion);
    status = status ? status : sinter_graph_get_partition_num(graph, &n);
    status = status ? status : sinter_graph_get_partitions(graph, n, partitions);
    for (size_t i = 0; i < n && !status; i++) {
        status = sinter_partition_set_fpmath_mode(partitions[i], g->r->c->mode, 1);
    }
    status = status ? status : sinter_graph_compile(graph, engine, n, partitions, &whole);
    CHECK(status == sinter_success, "%s: %s", what, sinter_last_error_message());
    *fused = false;
    for (size_t i = 0; i < n; i++) {
        *fused = *fused || has_all(g, partitions[i]);
        sinter_partition_destroy(&partitions[i]);
    }
    sinter_graph_destroy(&graph);
    sinter_engine_destroy(&engine);
    return whole;
}

static sinter_status_t execute(sinter_compiled_graph_t *whole, const inputs_t *in, run_t *r,
                               int threads)
{
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = threads, .all_threads = 1};
    sinter_stream_t *stream = NULL;
    sinter_status_t status = sinter_success;
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    memset(r->y, 0xA5, (r->n_y + GUARD) * sizeof *r->y);
    for (int i = 0; i < in->n && !status; i++) {
        const sinter_logical_tensor_t *lt = &in->real[i].lt;
        status =
            sinter_compiled_graph_bind(whole, lt->id, lt->ndims, lt->dims, lt->strides,
                                       (void *)(uintptr_t)in->real[i].data, SINTER_BYTES_TRUSTED);
    }
    status =
        status ? status
               : sinter_compiled_graph_bind(whole, OUT, 0, NULL, NULL, r->y, r->n_y * sizeof *r->y);
    status = status ? status : sinter_compiled_graph_execute(whole, stream);
    sinter_stream_destroy(&stream);
    return status;
}

static bool is_untouched(const float *y, size_t n)
{
    const unsigned char *bytes = (const unsigned char *)y;
    for (size_t i = 0; i < n * sizeof *y; i++) {
        if (bytes[i] != 0xA5) {
            return false;
        }
    }
    return true;
}

static void same_bits(const char *what, sinter_compiled_graph_t *whole, const inputs_t *in,
                      run_t *r, const float *want)
{
    static const int threads[] = {1, 2, 3, 7};
    for (int i = 0; i < 4; i++) {
        const sinter_status_t status = execute(whole, in, r, threads[i]);
        CHECK(status == sinter_success, "%s: %s", what, sinter_last_error_message());
        CHECK(memcmp(r->y, want, r->n_y * sizeof *want) == 0, "%s: other bits with %d threads",
              what, threads[i]);
    }
}

/* With any number of threads the bits are those of y; so they are over the gathered tokens, where
 * the Gathers are a part of attention's partition: elsewhere these dequantise. */
static void compare_bits(const char *what, sinter_compiled_graph_t *whole, const inputs_t *in,
                         run_t *r, bool fused)
{
    const size_t bytes = r->n_y * sizeof *r->y;
    float *y = take(bytes);
    graph_t twin;
    inputs_t of_twin = {.n = 0};
    char of_gathered[450];
    memcpy(y, r->y, bytes);
    same_bits(what, whole, in, r, y);
    if (fused && (!r->c->ragged || is_deterministic(r->c))) {
        snprintf(of_gathered, sizeof of_gathered, "gathered tokens of %s", what);
        build(&twin, r, r->c->open, true);
        sinter_compiled_graph_t *contiguous = compile(&twin, what, &fused);
        build(&twin, r, false, true);
        give_sides(&of_twin, &twin);
        const int first = of_twin.n;
        for (int kv = 0; kv < 2; kv++) {
            for (int p = 0; p < n_parts(r->c->stored[kv]); p++) {
                const unsigned char *data = gathered_part(r, kv, p);
                give(&of_twin, paged(&twin, kv, p), data, data);
            }
        }
        same_bits(of_gathered, contiguous, &of_twin, r, y);
        for (int i = first; i < of_twin.n; i++) {
            free((void *)(uintptr_t)of_twin.real[i].data);
        }
        sinter_compiled_graph_destroy(&contiguous);
    }
    free(y);
}

static const char *const order_names[] = {
    "heads first",  "K and V in one", "K and V in one, a dim of 1 kept",
    "tokens first", "token table",    "side by side"};

static void describe(const paged_case_t *c, char *text, size_t size)
{
    static const char *const tables[] = {"permuted", "shared", "consecutive", "one block"};
    snprintf(text, size,
             "%s, %s and %s, gap %d, pages of %lld, table %s%s, lengths %d, %lld rows%s%s%s%s%s%s, "
             "%lldx%lld "
             "heads of %lld, extra %d, mode %d, %d threads",
             order_names[c->order], c->stored[0]->name, c->stored[1]->name, (int)c->gap,
             (long long)c->page, tables[c->table], c->wide ? " of s64" : "", c->lengths,
             (long long)c->rows, c->ragged ? ", ragged" : "", c->flat ? ", flat" : "",
             c->drops ? ", drops" : "", c->is_short ? ", short" : "",
             c->unmasked ? ", unmasked" : "", c->open ? ", open" : "", (long long)c->kv_heads,
             (long long)c->per_kv, (long long)c->head, c->extra, (int)c->mode, c->threads);
}

/* Cases in all, and those whose Gathers are a part of the partition of attention. */
static int n_run, n_fused;

static void run_sizes(const char *what, const paged_case_t *c, sinter_compiled_graph_t *whole,
                      bool fused, run_t *r)
{
    graph_t g;
    inputs_t in = {.n = 0};
    build(&g, r, false, false);
    write_tables(r, fused);
    give_sides(&in, &g);
    give_pages(&in, &g);
    const sinter_status_t status = execute(whole, &in, r, c->threads);
    if (!CHECK(status == sinter_success, "%s: %s", what, sinter_last_error_message())) {
        return;
    }
    CHECK(is_untouched(r->y + r->n_y, GUARD), "%s: bytes behind the output change", what);
    const orc_tensor_t result = {g.nodes[g.n - 1].out[0], r->y};
    const node_case_t expected = {.nodes = g.nodes,
                                  .n = g.n,
                                  .mode = c->mode,
                                  .in = in.clean,
                                  .out = &result,
                                  .n_in = (size_t)in.n,
                                  .n_out = 1};
    node_compare_case(what, &expected);
    compare_bits(what, whole, &in, r, fused);
}

static int64_t pages_of(const paged_case_t *c)
{
    if (c->is_short) {
        return c->page == 1 ? 3 : 1;
    }
    return c->page == 1    ? 70
           : c->page == 8  ? 12
           : c->page == 16 ? 7
           : c->page == 32 ? 5
           : c->page == 64 ? 3
                           : 2;
}

static void run(const paged_case_t *c)
{
    const int64_t pages = pages_of(c), rows = c->rows;
    const struct {
        int64_t sequences, pages, rows;
    } sizes[] = {{4, pages, rows},
                 {1, pages + 1, rows > 1 ? 1 : rows},
                 {5, pages > 2 ? pages - 2 : 1, rows > 1 ? 2 * rows : rows}};
    char what[400];
    graph_t g;
    run_t r;
    bool fused = false;
    describe(c, what, sizeof what);
    open_run(&r, c, sizes[0].sequences, sizes[0].pages, sizes[0].rows);
    build(&g, &r, c->open, false);
    sinter_compiled_graph_t *whole = compile(&g, what, &fused);
    n_run++;
    n_fused += fused;
    CHECK(fused || getenv("SINTER_PAGED_FUSED") == NULL, "%s: a Gather stays outside", what);
    fused = fused && !(c->open && c->gap > TOKEN_GAP); /* else only execute knows whether it is */
    for (int i = 0; i < (c->open ? 3 : 1); i++) {
        if (i > 0) {
            close_run(&r);
            open_run(&r, c, sizes[i].sequences, sizes[i].pages, sizes[i].rows);
        }
        run_sizes(what, c, whole, fused, &r);
    }
    close_run(&r);
    sinter_compiled_graph_destroy(&whole);
}

/* ---- tests ----------------------------------------------------------------------------------- */

enum {
    P_ORDER,
    P_PAGE,
    P_PAIR,
    P_TABLE,
    P_WIDE,
    P_LENGTHS,
    P_ROWS,
    P_PER_KV,
    P_HEAD,
    P_EXTRA,
    P_MODE,
    P_OPEN,
    P_THREADS,
    P_FLAT,
    P_DROPS,
    P_GAP,
    P_SHORT,
    P_UNMASKED,
    PROPERTIES
};

/* Rows: one, those of a draft, a chunk of a prompt, tokens of a ragged batch. */
static paged_case_t case_of(const int *row)
{
    static const int64_t pages[] = {1, 8, 16, 32, 64, 256}, rows[] = {1, DRAFT, CHUNK, 1},
                         per_kv[] = {1, 4, 8}, heads[] = {64, 128, 80};
    static const sinter_fpmath_mode_t modes[] = {sinter_fpmath_mode_strict, sinter_fpmath_mode_f16,
                                                 sinter_fpmath_mode_int8};
    paged_case_t c = {
        .order = (order_t)row[P_ORDER],
        .page = pages[row[P_PAGE]],
        .kv_heads = 2,
        .per_kv = per_kv[row[P_PER_KV]],
        .head = heads[row[P_HEAD]],
        .stored = {&all_stored[pairs[row[P_PAIR]].k], &all_stored[pairs[row[P_PAIR]].v]},
        .table = (table_t)row[P_TABLE],
        .wide = row[P_WIDE],
        .lengths = row[P_LENGTHS],
        .rows = rows[row[P_ROWS]],
        .ragged = row[P_ROWS] == 3,
        .flat = row[P_FLAT] && rows[row[P_ROWS]] == 1,
        .drops = row[P_DROPS],
        .open = row[P_OPEN],
        .extra = extras[row[P_EXTRA]],
        .threads = 1 + row[P_THREADS],
        .mode = modes[row[P_MODE]]};
    if (c.order == TOKEN_TABLE) {
        c.page = 1;
    }
    if (c.unmasked) {
        c.extra &= ~WINDOW_BIT;
    }
    if (c.gap > TOKEN_GAP && (in_halves(&c) || c.order == SIDE_BY_SIDE)) { /* parts share memory */
        c.gap = TOKEN_GAP;
    }
    if (in_halves(&c)) {
        c.stored[1] = c.stored[0];
    }
    if (c.page == 256 && c.ragged) {
        c.kv_heads = 1;
    }
    return c;
}

static void test_design(uint64_t number)
{
    static const int sizes[PROPERTIES] = {
        ORDERS, 6, sizeof pairs / sizeof *pairs, 4, 2, 3, 4, 3, 3, 5, 3, 2, 3, 2, 2, GAPS, 2, 2};
    static covering_t design;
    const char *only = getenv("SINTER_MATRIX_ONLY");
    int row[COVERING_PROPERTIES];
    covering_begin(&design, PROPERTIES, sizes, number);
    for (int i = 0; covering_next(&design, row); i++) {
        const paged_case_t c = case_of(row);
        const int failed = check_failed;
        seed = number * 1000 + (uint64_t)i;
        if (only == NULL || strtol(only, NULL, 0) == i) {
            run(&c);
        }
        if (check_failed > failed) {
            printf("SINTER_RANDOM_SEED=%llu SINTER_MATRIX_ONLY=%d\n", (unsigned long long)number,
                   i);
        }
    }
}

/* Entries that no block has, at tokens that some row sees: nothing is written. */
static void test_bad_entries(void)
{
    static const int row[PROPERTIES] = {[P_PAGE] = 1, [P_LENGTHS] = 1, [P_PAIR] = 4};
    for (int i = 0; i < 20; i++) {
        paged_case_t c = case_of(row);
        c.order = (order_t)(i % ORDERS);
        c.page = c.order == TOKEN_TABLE ? 1 : c.page;
        c.wide = i % 2 == 0;
        c.ragged = i % 4 == 3;
        c.threads = 1 + i % 3;
        graph_t g;
        run_t r;
        inputs_t in = {.n = 0};
        char what[400], number[80];
        bool fused;
        describe(&c, what, sizeof what);
        open_run(&r, &c, 4, pages_of(&c), 1);
        build(&g, &r, false, false);
        sinter_compiled_graph_t *whole = compile(&g, what, &fused);
        write_tables(&r, fused);
        give_sides(&in, &g);
        give_pages(&in, &g);
        /* Sequence 1 is full. Of a ragged batch only the entries of its tokens must be right. */
        const int64_t bad = i % 3 == 0   ? r.blocks
                            : i % 3 == 1 ? -r.blocks - 1
                                         : 1 << 30,
                      page = i % 2 == 0 ? 0 : r.pages - 1;
        int64_t item = 1;
        while (c.ragged && item < r.items && r.sequence[item] != 1) {
            item++;
        }
        put_index(&c, r.real_table, r.pages + page, bad);
        const sinter_status_t status = execute(whole, &in, &r, c.threads);
        const char *message = sinter_last_error_message();
        snprintf(number, sizeof number, "index %lld", (long long)bad);
        CHECK(status == sinter_invalid_arguments, "%s: a bad entry is taken", what);
        CHECK(strstr(message, number) != NULL, "%s: %s", what, message);
        snprintf(number, sizeof number, "position %lld ", (long long)(item * r.pages + page));
        CHECK(strstr(message, number) != NULL || fused, "%s: %s, not %s", what, message, number);
        CHECK(strstr(message, "tensor ") != NULL, "%s: %s", what, message);
        CHECK(is_untouched(r.y, r.n_y + GUARD), "%s: a bad entry: the output changes", what);
        if (c.ragged) { /* and a sequence that the table does not have */
            write_tables(&r, fused);
            put_index(&c, r.items_sequence, r.items - 1, r.sequences);
            CHECK(execute(whole, &in, &r, c.threads) == sinter_invalid_arguments,
                  "%s: a bad sequence is taken", what);
            snprintf(number, sizeof number, "index %lld at position %lld", (long long)r.sequences,
                     (long long)r.items - 1);
            CHECK(strstr(sinter_last_error_message(), number) != NULL, "%s: %s", what,
                  sinter_last_error_message());
            CHECK(is_untouched(r.y, r.n_y + GUARD), "%s: a bad sequence: the output changes", what);
        }
        sinter_compiled_graph_destroy(&whole);
        close_run(&r);
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    wait_passively(argv);
    const char *number = getenv("SINTER_RANDOM_SEED");
    for (uint64_t i = 1; i <= (number == NULL ? DESIGNS : 1); i++) {
        test_design(number == NULL ? i : strtoull(number, NULL, 0));
    }
    test_bad_entries();
    printf("%d of %d cases have the Gathers in attention's partition%s\n", n_fused, n_run,
           n_fused < n_run ? "; elsewhere entries beyond a length are -1, and "
                             "bits are not those of gathered tokens"
                           : "");
    return check_finish();
}
