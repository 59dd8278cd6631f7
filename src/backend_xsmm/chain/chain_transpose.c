/* Chains that do nothing but convert a transposed tensor. Elements are transposed as bytes, words
 * or dwords, in the narrower of the two types: before the conversion where it widens, after it
 * where it narrows. Lines of the source are gathered side by side first: in memory they often lie
 * at distances that map them to few sets of a cache. */
#include <string.h>

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "backend_xsmm/ukernels/tile.h"
#include "base/fetch.h"
#include "numeric/quant_rows.h"

enum {
    CACHE_LINE = 64,
    LINES_AHEAD = 32, /* from the line that is gathered to the one that is fetched */
    SOME_ROWS = 64,   /* rows that are transposed and written at a time */
    /* The most bytes of the gathered lines and of the transposed rows, with a cache line behind
     * each: they start at different cache sets. */
    LINES_BYTES = CHAIN_TRANSPOSE_ROWS * CHAIN_TRANSPOSE_RUN + CHAIN_TRANSPOSE_RUN * CACHE_LINE,
    ROWS_BYTES = SOME_ROWS * (CHAIN_TRANSPOSE_RUN + CACHE_LINE),
};

bool chain_converts(const chain_t *chain)
{
    return !chain->f64 && chain->n_instrs == 2 && chain->instrs[0].op == CHAIN_LOAD &&
           chain->instrs[1].op == CHAIN_STORE;
}

/* The tensor that such a chain loads, and the one that it stores. */
static const chain_ref_t *loaded(const chain_bound_t *b)
{
    return &b->refs[b->chain->instrs[0].operand];
}

static const chain_ref_t *stored(const chain_bound_t *b)
{
    return &b->refs[b->chain->instrs[1].operand];
}

/* Elements of one type keep their bits, but any nonzero boolean becomes 1. */
static bool transposes(const chain_bound_t *b)
{
    const int last = b->ndims - 1;
    if (last < 1 || !chain_converts(b->chain)) {
        return false;
    }
    const chain_ref_t *x = loaded(b), *to = stored(b);
    return x->stride[last] > 1 && x->stride[last - 1] == 1 && to->stride[last] == 1 &&
           !x->grouped && !to->grouped && to->traits->block_elems == 1 &&
           x->dtype != sinter_boolean;
}

void chain_find_transposition(chain_bound_t *b)
{
    b->transposed_bytes = 0;
    if (transposes(b)) {
        const chain_ref_t *x = loaded(b), *to = stored(b);
        const bool widens =
            x->traits->block_elems == 1 && x->traits->block_bytes <= to->traits->block_bytes;
        b->transposed_as = widens ? x->dtype : to->dtype;
        b->transposed_bytes = dtype_traits(b->transposed_as)->block_bytes;
    }
}

size_t chain_transpose_scratch_bytes(void)
{
    return LINES_BYTES + ROWS_BYTES + CHAIN_TRANSPOSE_RUN * sizeof(float);
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

/* n elements of the source, from element `first` on. */
static void gather(const chain_bound_t *b, int64_t first, int n, unsigned char *line, float *tmp)
{
    const chain_ref_t *x = loaded(b);
    const sinter_data_type_t as = b->transposed_as;
    const int bytes = b->transposed_bytes;
    if (as == x->dtype) {
        copy(line, x->data + first * bytes, (int64_t)n * bytes);
    } else if (as == sinter_f32) {
        eltwise_load(b->fn, x->dtype, x->data, first, 1, n, (float *)(void *)line);
    } else {
        eltwise_load(b->fn, x->dtype, x->data, first, 1, n, tmp);
        eltwise_store(b->fn, as, line, 0, 1, n, tmp);
    }
}

/* n elements to the result, from element `first` on. */
static void put(const chain_bound_t *b, const unsigned char *line, int n, int64_t first, float *tmp)
{
    static const float one = 1, zero = 0;
    static const dtype_scaled_t plain = {.scale = &one, .zp = &zero, .group = QUANT_ONE};
    const chain_ref_t *to = stored(b);
    const int64_t bytes = (int64_t)n * to->traits->block_bytes;
    unsigned char *out = to->data + first * to->traits->block_bytes;
    const dtype_bulk_t *bulk = dtype_bulk(b->transposed_as, b->features);
    if (b->transposed_as == to->dtype) {
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

void chain_transpose_tile(const chain_bound_t *b, const int64_t *idx, int rows, int cols,
                          void *scratch)
{
    const chain_ref_t *x = loaded(b), *to = stored(b);
    unsigned char *const lines = scratch, *const transposed = lines + LINES_BYTES;
    float *const tmp = (float *)(void *)(transposed + ROWS_BYTES);
    const int last = b->ndims - 1, bits = x->traits->bits, bytes = b->transposed_bytes,
              gap = CACHE_LINE / bytes;
    const int64_t from = first_of(b, x, idx), step = x->stride[last], first = first_of(b, to, idx);
    /* Whole blocks are transposed. What is behind the lines and the elements of a tile is not
     * read. */
    const int length = up_to(rows, TILE_TRANSPOSE_ELEMENTS),
              width = up_to(cols, TILE_TRANSPOSE_LINES);
    for (int c = 0; c < cols; c++) {
        const int64_t at = from + c * step;
        fetch_lines(x->data + (at + LINES_AHEAD * step) * bits / 8, ((int64_t)rows * bits + 7) / 8);
        gather(b, at, rows, lines + (int64_t)c * (length + gap) * bytes, tmp);
    }
    for (int r = 0; r < rows; r += SOME_ROWS) {
        const int n = rows - r < SOME_ROWS ? rows - r : SOME_ROWS;
        const tile_transpose_t k = {bytes, up_to(n, TILE_TRANSPOSE_ELEMENTS), width, length + gap,
                                    width + gap};
        b->tiles->transpose_bytes(&k, lines + r * bytes, transposed);
        for (int i = 0; i < n; i++) {
            put(b, transposed + (int64_t)i * (width + gap) * bytes, cols,
                first + (r + i) * to->stride[last - 1], tmp);
        }
    }
}
