/* Chains that do nothing but convert a transposed tensor. Elements are turned as bytes, words or
 * dwords, in the narrower of the two types: before the conversion where it widens, after it where
 * it narrows. Lines of the source are gathered side by side first: in memory they often lie at
 * distances that map them to few sets of a cache. */
#include <string.h>

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "backend_xsmm/ukernels/tile.h"
#include "numeric/quant_rows.h"

enum {
    CACHE_LINE = 64,
    LINES_AHEAD = 32, /* from the line that is gathered to the one that is fetched */
    TURNED_ROWS = 64, /* rows that are turned and written at a time */
    /* The most bytes of the gathered lines and of the turned rows, with a cache line behind each:
     * they start at different cache sets. */
    LINES_BYTES = CHAIN_TURN_ROWS * CHAIN_TURN_RUN + CHAIN_TURN_RUN * CACHE_LINE,
    TURNED_BYTES = TURNED_ROWS * (CHAIN_TURN_RUN + CACHE_LINE),
};

/* What such a chain does: it converts elements of x to the type `as`, transposes them, and converts
 * them to the type of `to`. */
typedef struct turn {
    const chain_ref_t *x, *to;
    sinter_data_type_t as;
    int bytes; /* of an element of that type */
} turn_t;

bool chain_converts(const chain_t *chain)
{
    return !chain->f64 && chain->n_instrs == 2 && chain->instrs[0].op == CHAIN_LOAD &&
           chain->instrs[1].op == CHAIN_STORE;
}

/* Elements of one type keep their bits, but any nonzero boolean becomes 1. */
static bool turn_of(const chain_bound_t *b, turn_t *t)
{
    const chain_instr_t *in = b->chain->instrs;
    const int last = b->ndims - 1;
    if (last < 1 || !chain_converts(b->chain)) {
        return false;
    }
    const chain_ref_t *x = &b->refs[in[0].operand], *to = &b->refs[in[1].operand];
    const bool widens =
        x->traits->block_elems == 1 && x->traits->block_bytes <= to->traits->block_bytes;
    t->x = x;
    t->to = to;
    t->as = widens ? x->dtype : to->dtype;
    t->bytes = dtype_traits(t->as)->block_bytes;
    return x->stride[last] > 1 && x->stride[last - 1] == 1 && to->stride[last] == 1 &&
           !x->grouped && !to->grouped && to->traits->block_elems == 1 &&
           x->dtype != sinter_boolean;
}

int chain_turn_bytes(const chain_bound_t *b)
{
    turn_t t;
    return turn_of(b, &t) ? t.bytes : 0;
}

size_t chain_turn_scratch_bytes(void)
{
    return LINES_BYTES + TURNED_BYTES + CHAIN_TURN_RUN * sizeof(float);
}

static int64_t first_of(const chain_bound_t *b, const chain_ref_t *ref, const int64_t *idx)
{
    int64_t first = 0;
    for (int d = 0; d < b->ndims; d++) {
        first += idx[d] * ref->stride[d];
    }
    return first;
}

static void copy(unsigned char *to, const unsigned char *from, int64_t bytes)
{
    for (; bytes >= CACHE_LINE; bytes -= CACHE_LINE, to += CACHE_LINE, from += CACHE_LINE) {
        memcpy(to, from, CACHE_LINE);
    }
    if (bytes > 0) {
        memcpy(to, from, (size_t)bytes);
    }
}

static void fetch(const unsigned char *p, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += CACHE_LINE) {
        __builtin_prefetch(p + i);
    }
}

/* n elements of the source, from element `first` on. */
static void gather(const chain_bound_t *b, const turn_t *t, int64_t first, int n,
                   unsigned char *line, float *tmp)
{
    if (t->as == t->x->dtype) {
        copy(line, t->x->data + first * t->bytes, (int64_t)n * t->bytes);
    } else if (t->as == sinter_f32) {
        eltwise_load(b->fn, t->x->dtype, t->x->data, first, 1, n, (float *)(void *)line);
    } else {
        eltwise_load(b->fn, t->x->dtype, t->x->data, first, 1, n, tmp);
        eltwise_store(b->fn, t->as, line, 0, 1, n, tmp);
    }
}

/* n elements to the result, from element `first` on. */
static void put(const chain_bound_t *b, const turn_t *t, const unsigned char *line, int n,
                int64_t first, float *tmp)
{
    static const float one = 1, zero = 0;
    static const dtype_scaled_t plain = {.scale = &one, .zp = &zero, .group = QUANT_ONE};
    const chain_ref_t *to = t->to;
    const int64_t bytes = (int64_t)n * to->traits->block_bytes;
    unsigned char *out = to->data + first * to->traits->block_bytes;
    const dtype_bulk_t *bulk = dtype_bulk(t->as, b->features);
    if (t->as == to->dtype) {
        if (to->stream) {
            b->quant->stream(out, line, (size_t)bytes);
        } else {
            copy(out, line, bytes);
        }
    } else if (to->stream && bulk->stream_scaled != NULL && n % DTYPE_STREAM == 0 &&
               (uintptr_t)out % CACHE_LINE == 0 && bulk->stream_scaled(to->dtype, false) != NULL) {
        bulk->stream_scaled(to->dtype, false)(line, n, &plain, out);
    } else {
        bulk->load(line, 0, n, tmp);
        eltwise_store(b->fn, to->dtype, to->data, first, 1, n, tmp);
    }
}

static int up_to(int n, int unit)
{
    return (n + unit - 1) / unit * unit;
}

void chain_turn_tile(const chain_bound_t *b, const int64_t *idx, int rows, int cols, void *scratch)
{
    turn_t t = {0};
    unsigned char *const lines = scratch, *const turned = lines + LINES_BYTES;
    float *const tmp = (float *)(void *)(turned + TURNED_BYTES);
    if (!turn_of(b, &t)) {
        return;
    }
    const int last = b->ndims - 1, bits = t.x->traits->bits, gap = CACHE_LINE / t.bytes;
    const int64_t from = first_of(b, t.x, idx), step = t.x->stride[last],
                  first = first_of(b, t.to, idx);
    /* Whole blocks are turned. What is behind the lines and the elements of a tile is not read. */
    const int length = up_to(rows, TILE_TURN_ELEMENTS), width = up_to(cols, TILE_TURN_LINES);
    for (int c = 0; c < cols; c++) {
        const int64_t at = from + c * step;
        fetch(t.x->data + (at + LINES_AHEAD * step) * bits / 8, ((int64_t)rows * bits + 7) / 8);
        gather(b, &t, at, rows, lines + (int64_t)c * (length + gap) * t.bytes, tmp);
    }
    for (int r = 0; r < rows; r += TURNED_ROWS) {
        const int n = rows - r < TURNED_ROWS ? rows - r : TURNED_ROWS;
        const tile_turn_t k = {t.bytes, up_to(n, TILE_TURN_ELEMENTS), width, length + gap,
                               width + gap};
        b->tiles->turn(&k, lines + r * t.bytes, turned);
        for (int i = 0; i < n; i++) {
            put(b, &t, turned + (int64_t)i * (width + gap) * t.bytes, cols,
                first + (r + i) * t.to->stride[last - 1], tmp);
        }
    }
}
