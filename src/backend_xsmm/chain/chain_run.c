/* Running chains: the program interpreted block by block. A block is `rows` runs of `cols`
 * elements along the last dim, one after the other in a register. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/plan.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "backend_xsmm/ukernels/tile.h"
#include "base/fetch.h"
#include "numeric/quant_rows.h"

/* Buffers besides the registers: for ROUND_TO and stores, for values of groups that are spread
 * to elements, for scales, for zero points. */
enum { TMP, TMP_SCALE, TMP_ZP, N_TMP, TMP_HIGH = TMP_SCALE };
enum {
    CONVERTED = 512,
    CONVERTED_AHEAD = 4096
}; /* elements at once, and bytes from what is converted to what is fetched */
enum { RUNS_AHEAD = 16 }; /* from the run that is loaded to the one that is fetched */
/* Registers of tiles start at different cache sets. */
enum { TILE_STEP = CHAIN_TILE + 64, LONG_STEP = CHAIN_LONG + 64 };

static size_t register_bytes(const chain_t *chain)
{
    return chain->f64 ? sizeof(double) : sizeof(float);
}

size_t chain_scratch_bytes(const chain_t *chain)
{
    return ((size_t)chain->n_regs + N_TMP) * CHAIN_BLOCK * sizeof(double);
}

size_t chain_long_scratch_bytes(const chain_t *chain)
{
    return ((size_t)chain->n_regs + N_TMP) * LONG_STEP * register_bytes(chain);
}

size_t chain_tile_scratch_bytes(const chain_t *chain)
{
    return chain->f64 ? chain_long_scratch_bytes(chain)
                      : ((size_t)chain->n_regs + N_TMP) * TILE_STEP * sizeof(float);
}

/* ---- operands -------------------------------------------------------------------------------- */

typedef struct block {
    const int64_t *idx;
    int rows, cols;
} block_t;

#ifndef NDEBUG
/* The block lies in the dims that the chain is bound to: operands have no elements elsewhere. */
static bool is_inside(const chain_bound_t *b, const block_t *k)
{
    const int last = b->ndims - 1;
    bool inside = true;
    for (int d = 0; d <= last; d++) {
        const int64_t n = d == last ? k->cols : d == last - 1 ? k->rows : 1;
        inside = inside && k->idx[d] >= 0 && k->idx[d] + n <= b->dims[d];
    }
    return inside;
}
#endif

/* Where a run starts in an operand, and its steps along the inner dim. */
typedef struct run {
    int64_t first, stride, group,
        /* element; step; elements that share one value; how many of those lie before the run */
        phase;
} run_t;

static run_t run_of(const chain_bound_t *b, const chain_ref_t *ref, const int64_t *idx)
{
    run_t r = {0, 0, 1, 0};
    if (b->ndims == 0) {
        return r;
    }
    const int last = b->ndims - 1;
    for (int d = 0; d <= last; d++) {
        r.first += (ref->group[d] > 1 ? idx[d] / ref->group[d] : idx[d]) * ref->stride[d];
    }
    r.stride = ref->stride[last];
    if (ref->group[last] > 1) {
        r.group = ref->group[last];
        r.phase = idx[last] % r.group;
    }
    return r;
}

/* The element where row `row` of a block begins, if row 0 begins at `first`. */
static int64_t row_first(const chain_bound_t *b, const chain_ref_t *ref, const block_t *k,
                         int64_t first, int row)
{
    const int d = b->ndims - 2;
    if (row == 0 || ref->stride[d] == 0) {
        return first;
    }
    return first + (ref->group[d] > 1
                        ? (k->idx[d] + row) / ref->group[d] - k->idx[d] / ref->group[d]
                        : row) *
                       ref->stride[d];
}

/* All of the block is one run in memory. */
static bool is_dense(const chain_bound_t *b, const chain_ref_t *ref, const block_t *k,
                     const run_t *r)
{
    if (r->stride != 1 || r->group > 1) {
        return false;
    }
    return k->rows == 1 || (ref->stride[b->ndims - 2] == k->cols && ref->group[b->ndims - 2] == 1);
}

/* The runs are strided, but columns are runs. */
static bool is_transposed(const chain_bound_t *b, const chain_ref_t *ref, const block_t *k,
                          const run_t *r)
{
    return k->rows > 1 && r->stride != 0 && r->stride != 1 && r->group == 1 &&
           ref->stride[b->ndims - 2] == 1 && ref->group[b->ndims - 2] == 1;
}

/* All elements of the run have the same value. */
static bool is_one(const run_t *r, int n)
{
    return r->stride == 0 || (r->group > 1 && n <= r->group - r->phase);
}

/* Where an element of a type lies that fills whole bytes. */
static unsigned char *element(const chain_ref_t *ref, int64_t at)
{
    return ref->data + at * ref->traits->block_bytes;
}

static int n_groups(const run_t *r, int n)
{
    return (int)((r->phase + n - 1) / r->group) + 1;
}

static void load(const chain_bound_t *b, const chain_ref_t *ref, int64_t first, int64_t stride,
                 int n, float *dst)
{
    eltwise_load(b->fn, ref->dtype, ref->data, first, stride, n, dst);
}

static void fill(float *dst, int n, float x)
{
    for (int i = 0; i < n; i++) {
        dst[i] = x;
    }
}

static void load_run(const chain_bound_t *b, const chain_ref_t *ref, const run_t *r, int n,
                     float *dst, float *tmp)
{
    if (is_one(r, n)) {
        load(b, ref, r->first, 0, 1, tmp);
        fill(dst, n, *tmp);
    } else if (r->group > 1) {
        load(b, ref, r->first, r->stride, n_groups(r, n), tmp);
        b->quant->spread(tmp, n, r->group, r->phase, dst);
    } else {
        load(b, ref, r->first, r->stride, n, dst);
    }
}

static void load_block(const chain_bound_t *b, const chain_ref_t *ref, const block_t *k, float *dst,
                       float *tmp)
{
    const int rows = k->rows, cols = k->cols;
    run_t r = run_of(b, ref, k->idx);
    const int64_t first = r.first;
    if (is_dense(b, ref, k, &r)) {
        load(b, ref, first, 1, rows * cols, dst);
    } else if (rows > 1 && r.stride == 1 && r.group == 1 && ref->stride[b->ndims - 2] == 0) {
        load(b, ref, first, 1, cols, dst);
        for (int i = 1; i < rows; i++) {
            memcpy(dst + (size_t)i * (size_t)cols, dst, (size_t)cols * sizeof *dst);
        }
    } else if (is_transposed(b, ref, k, &r)) {
        const int64_t bits = ref->traits->bits;
        /* Columns lie too far apart for the prefetchers of the hardware. */
        for (int c = 0; c < cols; c++) {
            if (c + RUNS_AHEAD < cols) {
                fetch_lines(ref->data + (first + (c + RUNS_AHEAD) * r.stride) * bits / 8,
                            rows * bits / 8);
            }
            load(b, ref, first + c * r.stride, 1, rows, tmp + c * rows);
        }
        b->tiles->transpose(tmp, rows, cols, rows, dst, cols);
    } else {
        for (int i = 0; i < rows; i++, dst += cols) {
            r.first = row_first(b, ref, k, first, i);
            load_run(b, ref, &r, cols, dst, tmp);
        }
    }
}

/* Planes that are both contiguous are joined while they are decoded, others afterwards. */
static void load_split(const chain_bound_t *b, const chain_instr_t *in, const block_t *k,
                       float *dst, void *const *tmp)
{
    const chain_ref_t *low = &b->refs[in->operand], *high = &b->refs[in->high];
    const dtype_split_t *split = dtype_split(in->dtype, b->features);
    const run_t l = run_of(b, low, k->idx), h = run_of(b, high, k->idx);
    if (l.stride != 1 || h.stride != 1 || l.group > 1 || h.group > 1) {
        load_block(b, low, k, dst, tmp[TMP]);
        load_block(b, high, k, tmp[TMP_HIGH], tmp[TMP]);
        split->join(dst, tmp[TMP_HIGH], k->rows * k->cols, dst);
        return;
    }
    for (int i = 0; i < k->rows; i++, dst += k->cols) {
        split->load(low->data, row_first(b, low, k, l.first, i), high->data,
                    row_first(b, high, k, h.first, i), k->cols, dst);
    }
}

/* Consecutive elements past the caches: converted in tmp, unless bytes are shared with
 * neighbours. */
static void store_stream(const chain_bound_t *b, const chain_ref_t *ref, int64_t first, int n,
                         const float *src, float *tmp)
{
    const dtype_traits_t *t = ref->traits;
    if (first % t->block_elems != 0 || n % t->block_elems != 0) {
        eltwise_store(b->fn, ref->dtype, ref->data, first, 1, n, src);
        return;
    }
    const unsigned char *from = (const unsigned char *)src;
    unsigned char *to = ref->data + first / t->block_elems * t->block_bytes;
    const size_t bytes = (size_t)(n / t->block_elems * t->block_bytes);
    if (ref->dtype != sinter_f32) {
        eltwise_store(b->fn, ref->dtype, (unsigned char *)tmp, 0, 1, n, src);
        from = (const unsigned char *)tmp;
    }
    b->quant->stream(to, from, bytes);
}

static void store_run(const chain_bound_t *b, const chain_ref_t *ref, int64_t first, int64_t stride,
                      int n, const float *src, float *tmp)
{
    if (ref->stream && stride == 1) {
        store_stream(b, ref, first, n, src, tmp);
    } else {
        eltwise_store(b->fn, ref->dtype, ref->data, first, stride, n, src);
    }
}

static void store_block(const chain_bound_t *b, const chain_ref_t *ref, const block_t *k,
                        const float *src, float *tmp)
{
    const int rows = k->rows, cols = k->cols;
    const run_t r = run_of(b, ref, k->idx);
    if (is_dense(b, ref, k, &r)) {
        store_run(b, ref, r.first, 1, rows * cols, src, tmp);
    } else if (is_transposed(b, ref, k, &r)) {
        b->tiles->transpose(src, cols, rows, cols, tmp, rows);
        for (int c = 0; c < cols; c++) {
            eltwise_store(b->fn, ref->dtype, ref->data, r.first + c * r.stride, 1, rows,
                          tmp + c * rows);
        }
    } else {
        for (int i = 0; i < rows; i++, src += cols) {
            store_run(b, ref, row_first(b, ref, k, r.first, i), r.stride, cols, src, tmp);
        }
    }
}

/* ---- scales and zero points ------------------------------------------------------------------ */

/* A parameter of the run r, which starts in a block at `first`. */
static quant_param_t load_param(const chain_bound_t *b, const chain_ref_t *ref, const run_t *r,
                                int n, float *x, float *tmp)
{
    if (is_one(r, n)) {
        load(b, ref, r->first, 0, 1, x);
        return (quant_param_t){x, QUANT_ONE, 0};
    }
    if (r->group > 1 && r->group % DTYPE_GROUP == 0 && r->phase % DTYPE_GROUP == 0) {
        load(b, ref, r->first, r->stride, n_groups(r, n), x);
        return (quant_param_t){x, r->group, r->phase};
    }
    load_run(b, ref, r, n, x, tmp);
    return (quant_param_t){x, 1, 0};
}

/* Both parameters' groups as load_scaled takes them; false: they differ, or vary from element to
 * element. */
static bool same_groups(const quant_param_t *scale, const quant_param_t *zp, dtype_scaled_t *g)
{
    static const float no_zp = 0;
    const bool one = zp == NULL || zp->group == QUANT_ONE;
    *g = (dtype_scaled_t){.scale = scale->x,
                          .zp = zp == NULL ? &no_zp : zp->x,
                          .zp_each = !one,
                          .group = scale->group,
                          .phase = scale->phase};
    return scale->group > 1 && (one || (zp->group == scale->group && zp->phase == scale->phase));
}

/* A parameter that changes within groups of the other: a value for each element. */
static quant_param_t load_each(const chain_bound_t *b, const chain_ref_t *ref, const run_t *r,
                               int n, float *x, float *tmp)
{
    load_run(b, ref, r, n, x, tmp);
    return (quant_param_t){x, 1, 0};
}

/* Scales and zero points of the rows of a block. They are loaded again only where a row has
 * others than the row before. */
typedef struct row_params {
    const chain_ref_t *s, *z; /* z NULL: none */
    run_t sr, zr;
    int64_t s_first, z_first; /* of row 0 */
    bool loaded;
    quant_param_t scale, zp;
} row_params_t;

static row_params_t params_of(const chain_bound_t *b, const chain_instr_t *in, const int64_t *idx)
{
    row_params_t p = {.s = &b->refs[in->scale], .z = in->zp < 0 ? NULL : &b->refs[in->zp]};
    p.sr = run_of(b, p.s, idx);
    p.zr = p.z ? run_of(b, p.z, idx) : p.sr;
    p.s_first = p.sr.first;
    p.z_first = p.zr.first;
    return p;
}

/* Loads the scales and zero points of a row to tmp. False: they are there already. */
static bool load_row_params(const chain_bound_t *b, const block_t *k, int row, void *const *tmp,
                            row_params_t *p)
{
    const int64_t s_at = row_first(b, p->s, k, p->s_first, row),
                  z_at = p->z ? row_first(b, p->z, k, p->z_first, row) : 0;
    const bool scale = !p->loaded || s_at != p->sr.first,
               zp = p->z && (!p->loaded || z_at != p->zr.first);
    if (scale) {
        p->sr.first = s_at;
        p->scale = load_param(b, p->s, &p->sr, k->cols, tmp[TMP_SCALE], tmp[TMP]);
    }
    if (zp) {
        p->zr.first = z_at;
        p->zp = load_param(b, p->z, &p->zr, k->cols, tmp[TMP_ZP], tmp[TMP]);
    }
    p->loaded = true;
    return scale || zp;
}

/* The parameters of a row in groups of one size. */
static dtype_scaled_t join_groups(const chain_bound_t *b, int n, void *const *tmp, row_params_t *p)
{
    dtype_scaled_t g;
    const quant_param_t *zp = p->z ? &p->zp : NULL;
    if (!same_groups(&p->scale, zp, &g) && p->scale.group > 1) {
        p->scale = load_each(b, p->s, &p->sr, n, tmp[TMP_SCALE], tmp[TMP]);
    }
    if (zp != NULL && p->scale.group == 1 && zp->group != QUANT_ONE && zp->group > 1) {
        p->zp = load_each(b, p->z, &p->zr, n, tmp[TMP_ZP], tmp[TMP]);
    }
    (void)same_groups(&p->scale, zp, &g);
    return g;
}

static void rescale(const chain_bound_t *b, const chain_instr_t *in, const block_t *k, float *dst,
                    const float *src, void *const *tmp)
{
    const chain_ref_t *codes = in->op == CHAIN_LOAD_DEQUANT ? &b->refs[in->operand] : NULL;
    row_params_t params = params_of(b, in, k->idx);
    const quant_param_t *zp = params.z ? &params.zp : NULL;
    const run_t run = run_of(b, codes ? codes : params.s, k->idx);
    if (codes != NULL && (run.stride != 1 || run.group > 1)) {
        load_block(b, codes, k, dst, tmp[TMP]);
        src = dst;
        codes = NULL;
    }
    const dtype_bulk_t *bulk = codes ? dtype_bulk(codes->dtype, b->features) : NULL;
    for (int i = 0; i < k->rows; i++, dst += k->cols) {
        const float *x = codes ? dst : src + (size_t)i * (size_t)k->cols;
        (void)load_row_params(b, k, i, tmp, &params);
        if (codes != NULL) {
            const int64_t at = row_first(b, codes, k, run.first, i);
            dtype_scaled_t groups;
            if (bulk->load_scaled && !in->offsets && same_groups(&params.scale, zp, &groups)) {
                bulk->load_scaled(codes->data, at, k->cols, &groups, dst);
                continue;
            }
            bulk->load(codes->data, at, k->cols, dst);
        }
        (in->op == CHAIN_QUANT ? b->quant->quant_run
         : in->offsets         ? b->quant->offset_run
                               : b->quant->dequant_run)(x, k->cols, &params.scale, zp, dst);
    }
}

/* ---- codes to numbers past the caches -------------------------------------------------------- */

/* Rows of whole cache lines, and of whole bytes of codes. */
static bool streams_rows(const chain_bound_t *b, const chain_ref_t *to, const chain_ref_t *codes)
{
    const int last = b->ndims - 1;
    if ((uintptr_t)to->data % 64 != 0 || to->stride[last] != 1 || codes->stride[last] != 1 ||
        b->dims[last] % DTYPE_STREAM != 0) {
        return false;
    }
    for (int d = 0; d <= last; d++) {
        const bool whole = d == last || (to->stride[d] % DTYPE_STREAM == 0 &&
                                         codes->stride[d] % DTYPE_STREAM == 0);
        if (!whole || to->group[d] > 1 || codes->group[d] > 1) {
            return false;
        }
    }
    return true;
}

dtype_stream_t *chain_stream(const chain_bound_t *b, bool native_bf16)
{
    const chain_instr_t *in = b->chain->instrs;
    if (b->chain->n_instrs != 2 || in[0].op != CHAIN_LOAD_DEQUANT || in[0].offsets ||
        in[1].op != CHAIN_STORE || !b->refs[in[1].operand].stream) {
        return NULL;
    }
    const chain_ref_t *codes = &b->refs[in[0].operand], *to = &b->refs[in[1].operand];
    const dtype_bulk_t *bulk = dtype_bulk(codes->dtype, b->features);
    return bulk->stream_scaled != NULL && streams_rows(b, to, codes)
               ? bulk->stream_scaled(to->dtype, native_bf16)
               : NULL;
}

void chain_stream_tile(const chain_bound_t *b, dtype_stream_t *stream, const int64_t *idx, int rows,
                       int cols, void *scratch)
{
    const chain_instr_t *in = b->chain->instrs;
    const chain_ref_t *codes = &b->refs[in[0].operand], *to = &b->refs[in[1].operand];
    const block_t k = {idx, rows, cols};
    const int64_t from = run_of(b, codes, idx).first, first = run_of(b, to, idx).first;
    row_params_t params = params_of(b, &in[0], idx);
    dtype_scaled_t groups = {0};
    void *const tmp[N_TMP] = {scratch, (float *)scratch + TILE_STEP,
                              (float *)scratch + 2 * TILE_STEP};
    for (int i = 0; i < rows; i++) {
        if (load_row_params(b, &k, i, tmp, &params)) {
            groups = join_groups(b, cols, tmp, &params);
        }
        stream(codes->data + row_first(b, codes, &k, from, i) * codes->traits->bits / 8, cols,
               &groups, to->data + row_first(b, to, &k, first, i) * to->traits->block_bytes);
    }
}

/* ---- double ---------------------------------------------------------------------------------- */

static void widen(const chain_bound_t *b, const float *x, int n, double *dst)
{
    b->f64->convert[WIDE_f32][WIDE_f64]((const unsigned char *)x, (unsigned char *)dst, n);
}

/* Elements that follow each other. Shorter types than s32 fit floats. */
static void load_f64(const chain_bound_t *b, const chain_ref_t *ref, int64_t first, int n,
                     double *dst, double *tmp)
{
    eltwise_convert_t *convert = eltwise_convert(b->f64, ref->dtype, sinter_f64);
    if (convert != NULL) {
        convert(element(ref, first), (unsigned char *)dst, n);
    } else {
        float *x = (float *)(void *)tmp;
        load(b, ref, first, 1, n, x);
        widen(b, x, n, dst);
    }
}

static void load_run_f64(const chain_bound_t *b, const chain_ref_t *ref, const int64_t *idx, int n,
                         double *dst, double *tmp)
{
    const dtype_codec_t *codec = &ref->traits->codec;
    const run_t r = run_of(b, ref, idx);
    if (is_one(&r, n)) {
        double x;
        codec->load_f64(ref->data, r.first, 0, 1, &x);
        b->f64->fill(dst, n, x);
    } else if (r.group > 1) {
        codec->load_f64(ref->data, r.first, r.stride, n_groups(&r, n), tmp);
        for (int i = 0; i < n; i++) {
            dst[i] = tmp[(r.phase + i) / r.group];
        }
    } else if (r.stride == 1) {
        load_f64(b, ref, r.first, n, dst, tmp);
    } else {
        codec->load_f64(ref->data, r.first, r.stride, n, dst);
    }
}

static void store_run_f64(const chain_bound_t *b, const chain_ref_t *ref, const int64_t *idx, int n,
                          const double *src, double *tmp, int reg_size)
{
    const run_t r = run_of(b, ref, idx);
    eltwise_convert_t *convert = eltwise_convert(b->f64, sinter_f64, ref->dtype);
    if (r.stride != 1) {
        ref->traits->codec.store_f64(ref->data, r.first, r.stride, n, src);
    } else if (convert == NULL) {
        float *x = (float *)(void *)tmp;
        b->f64->to_sticky(x, src, n);
        store_run(b, ref, r.first, 1, n, x, x + reg_size);
    } else if (ref->stream) {
        const unsigned char *from = (const unsigned char *)src;
        if (ref->dtype != sinter_f64) {
            convert(from, (unsigned char *)tmp, n);
            from = (const unsigned char *)tmp;
        }
        b->quant->stream(element(ref, r.first), from, (size_t)n * (size_t)ref->traits->block_bytes);
    } else {
        convert((const unsigned char *)src, element(ref, r.first), n);
    }
}

static void rescale_f64(const chain_bound_t *b, const chain_instr_t *in, const block_t *k,
                        double *dst, const double *src, void *const *tmp)
{
    const double *s = tmp[TMP_SCALE], *z = tmp[TMP_ZP];
    const int n = k->cols;
    load_run_f64(b, &b->refs[in->scale], k->idx, n, tmp[TMP_SCALE], tmp[TMP]);
    if (in->op == CHAIN_LOAD_DEQUANT) {
        load_run_f64(b, &b->refs[in->operand], k->idx, n, dst, tmp[TMP]);
        src = dst;
    }
    if (in->zp >= 0) {
        load_run_f64(b, &b->refs[in->zp], k->idx, n, tmp[TMP_ZP], tmp[TMP]);
    }
    for (int i = 0; i < n; i++) {
        if (in->offsets) {
            dst[i] = src[i] * s[i] + z[i];
        } else if (in->op != CHAIN_QUANT) {
            dst[i] = (in->zp < 0 ? src[i] : src[i] - z[i]) * s[i];
        } else {
            dst[i] = in->zp < 0 ? src[i] / s[i] : rint(src[i] / s[i]) + z[i];
        }
    }
}

static void round_f32(const chain_bound_t *b, sinter_data_type_t type, int n, const float *src,
                      float *dst, float *tmp)
{
    eltwise_store(b->fn, type, (unsigned char *)tmp, 0, 1, n, src);
    eltwise_load(b->fn, type, (unsigned char *)tmp, 0, 1, n, dst);
}

static void round_f64(const chain_bound_t *b, sinter_data_type_t type, int n, const double *src,
                      double *dst, double *tmp, int reg_size)
{
    unsigned char *const codes = (unsigned char *)tmp;
    eltwise_convert_t *there = eltwise_convert(b->f64, sinter_f64, type),
                      *back = eltwise_convert(b->f64, type, sinter_f64);
    if (there != NULL) {
        there((const unsigned char *)src, codes, n);
        back(codes, (unsigned char *)dst, n);
    } else {
        float *x = (float *)(void *)tmp;
        b->f64->to_sticky(x, src, n);
        round_f32(b, type, n, x, x, x + reg_size);
        widen(b, x, n, dst);
    }
}

/* ---- the interpreter ------------------------------------------------------------------------- */

/* An index of the chain, and what it grows by from element to element and from row to row. */
static int64_t index_of(const chain_bound_t *b, const int64_t *idx, int index, int *step,
                        int *row_step)
{
    const int d = b->at[index];
    *step = d >= 0 && d == b->ndims - 1;
    *row_step = d >= 0 && d == b->ndims - 2;
    return d < 0 ? 0 : idx[d];
}

static void index_block(const chain_bound_t *b, const block_t *k, int index, void *dst)
{
    int step, row_step;
    const int64_t at = index_of(b, k->idx, index, &step, &row_step);
    const bool f64 = b->chain->f64;
    for (int r = 0, n = 0; r < k->rows; r++) {
        for (int i = 0; i < k->cols; i++, n++) {
            const int64_t x = at + r * row_step + i * step;
            if (f64) {
                ((double *)dst)[n] = (double)x;
            } else {
                ((float *)dst)[n] = (float)x;
            }
        }
    }
}

/* The elements of a block where they lie, if they are of the registers' type and follow each other;
 * else NULL. */
static void *in_memory(const chain_bound_t *b, const chain_ref_t *ref, const block_t *k)
{
    const run_t r = run_of(b, ref, k->idx);
    const bool same = ref->dtype == (b->chain->f64 ? sinter_f64 : sinter_f32) &&
                      (uintptr_t)ref->data % register_bytes(b->chain) == 0;
    return same && is_dense(b, ref, k, &r) ? element(ref, r.first) : NULL;
}

/* Where the result of instruction p goes. An elementwise function whose result is stored next as
 * elements of the registers' type that follow each other writes them there itself. */
static void *target(const chain_bound_t *b, const block_t *k, int p, void *reg)
{
    const chain_instr_t *in = &b->chain->instrs[p], *next = in + 1;
    if (p + 1 == b->chain->n_instrs || next->op != CHAIN_STORE || next->a != in->dst) {
        return reg;
    }
    const chain_ref_t *ref = &b->refs[next->operand];
    void *at = ref->stream ? NULL : in_memory(b, ref, k);
    return at != NULL ? at : reg;
}

/* A register that is given, and the instruction that finds it. */
typedef struct given {
    int next, reg;
    float *io; /* its memory, and that of the result where next is 0; NULL: none is given */
} given_t;

/* Blocks have one row where registers are doubles. Returns where the result is as floats: in its
 * register, in io, or where it lies in a tensor; NULL: there is none. */
static const float *run_from(const chain_bound_t *b, const block_t *k, given_t given, void *scratch,
                             int reg_size)
{
    const chain_t *c = b->chain;
    const bool f64 = c->f64;
    const int n = k->rows * k->cols;
    const size_t reg_bytes = (size_t)reg_size * register_bytes(c);
    void *r[CHAIN_MAX_REGS], *tmp[N_TMP];
    /* What the registers hold: themselves, or a tensor's elements. */
    const void *x[CHAIN_MAX_REGS];
    assert(is_inside(b, k));
    for (int i = 0; i < N_TMP; i++) {
        tmp[i] = (unsigned char *)scratch + (size_t)i * reg_bytes;
    }
    for (int i = 0; i < c->n_regs; i++) {
        r[i] = (unsigned char *)scratch + (size_t)(i + N_TMP) * reg_bytes;
    }
    if (given.io != NULL && f64) {
        widen(b, given.io, n, r[0]);
    } else if (given.io != NULL) {
        r[given.reg] = given.io;
    }
    for (int i = 0; i < c->n_regs; i++) {
        x[i] = r[i];
    }
    for (int p = given.next; p < c->n_instrs; p++) {
        const chain_instr_t *in = &c->instrs[p];
        const chain_ref_t *ref = &b->refs[in->operand];
        void *dst = r[in->dst];
        if (in->op < CHAIN_LOAD) {
            dst = target(b, k, p, dst);
            if (f64) {
                b->f64->op[in->op](dst, x[in->a], x[in->b], x[in->c], n, in->pd);
            } else {
                b->op[in->op](dst, x[in->a], x[in->b], x[in->c], n, in->p);
            }
            x[in->dst] = dst;
            continue;
        }
        const void *from = x[in->a];
        if (in->op != CHAIN_STORE) {
            x[in->dst] = dst;
        }
        switch ((chain_opcode_t)in->op) {
        case CHAIN_LOAD:
            from = in->early ? in_memory(b, ref, k) : NULL;
            if (from != NULL) {
                x[in->dst] = from;
            } else if (f64) {
                load_run_f64(b, ref, k->idx, n, dst, tmp[TMP]);
            } else {
                load_block(b, ref, k, dst, tmp[TMP]);
            }
            break;
        case CHAIN_LOAD_SPLIT:
            if (f64) {
                load_split(b, in, k, tmp[TMP_ZP], tmp);
                widen(b, tmp[TMP_ZP], n, dst);
            } else {
                load_split(b, in, k, dst, tmp);
            }
            break;
        case CHAIN_STORE:
            if (from == in_memory(b, ref, k)) {
                break;
            }
            if (f64) {
                store_run_f64(b, ref, k->idx, n, from, tmp[TMP], reg_size);
            } else {
                store_block(b, ref, k, from, tmp[TMP]);
            }
            break;
        case CHAIN_DEQUANT:
        case CHAIN_LOAD_DEQUANT:
        case CHAIN_QUANT:
            if (f64) {
                rescale_f64(b, in, k, dst, from, tmp);
            } else {
                rescale(b, in, k, dst, from, tmp);
            }
            break;
        case CHAIN_INDEX:
            index_block(b, k, in->index, dst);
            break;
        case CHAIN_COPY:
            memmove(dst, from, (size_t)n * register_bytes(c));
            break;
        case CHAIN_ROUND_TO:
            if (f64) {
                round_f64(b, in->dtype, n, from, dst, tmp[TMP], reg_size);
            } else {
                round_f32(b, in->dtype, n, from, dst, tmp[TMP]);
            }
            break;
        case CHAIN_CONST:
            if (f64) {
                b->f64->fill(dst, n, in->pd[0]);
            } else {
                fill(dst, n, in->p[0]);
            }
            break;
        case CHAIN_TRUNCATE:
            b->f64->truncate(dst, from, n);
            break;
        }
    }
    if (c->result < 0 || !f64) {
        return c->result < 0 ? NULL : x[c->result];
    }
    for (int i = 0; given.io != NULL && i < n; i++) {
        given.io[i] = (float)((const double *)x[c->result])[i];
    }
    return given.io;
}

static const float *run(const chain_bound_t *b, const block_t *k, float *io, void *scratch,
                        int reg_size)
{
    const chain_t *c = b->chain;
    const int reg = c->with_input || c->result < 0 ? 0 : c->result;
    return run_from(b, k, (given_t){.reg = reg, .io = io}, scratch, reg_size);
}

/* ---- gamma and beta -------------------------------------------------------------------------- */

/* An operand's values for a run: where they lie, or in dst. */
static const float *affine_values(const chain_bound_t *b, int operand, const block_t *k, bool each,
                                  float *dst, float *tmp)
{
    if (operand < 0) {
        return NULL;
    }
    const float *at = each ? in_memory(b, &b->refs[operand], k) : NULL;
    if (at == NULL) {
        load_block(b, &b->refs[operand], &(block_t){k->idx, 1, each ? k->cols : 1}, dst, tmp);
        at = dst;
    }
    return at;
}

bool chain_affine_stores(const chain_bound_t *b)
{
    const chain_affine_t *affine = &b->chain->affine;
    if (b->chain->f64 || affine->next + 1 != b->chain->n_instrs || b->chain->result >= 0 ||
        b->ndims == 0) {
        return false;
    }
    const chain_instr_t *in = &b->chain->instrs[affine->next];
    if (in->op != CHAIN_STORE || in->a != affine->reg) {
        return false;
    }
    const chain_ref_t *to = &b->refs[in->operand];
    return to->dtype == sinter_f32 && to->stride[b->ndims - 1] == 1 &&
           (uintptr_t)to->data % sizeof(float) == 0;
}

chain_affine_run_t chain_affine_run(const chain_bound_t *b, const int64_t *idx, int n,
                                    void *scratch)
{
    const chain_affine_t *affine = &b->chain->affine;
    const block_t k = {idx, 1, n};
    const int operands[2] = {affine->gamma, affine->beta};
    float *const tmp = (float *)scratch + TMP * LONG_STEP;
    chain_affine_run_t run = {0};
    for (int i = 0; i < 2 && b->ndims > 0; i++) {
        if (operands[i] >= 0) {
            const run_t r = run_of(b, &b->refs[operands[i]], idx);
            run.each = run.each || !is_one(&r, n);
        }
    }
    run.gamma = affine_values(b, affine->gamma, &k, run.each,
                              (float *)scratch + TMP_SCALE * LONG_STEP, tmp);
    run.beta =
        affine_values(b, affine->beta, &k, run.each, (float *)scratch + TMP_ZP * LONG_STEP, tmp);
    if (chain_affine_stores(b)) {
        const chain_ref_t *to = &b->refs[b->chain->instrs[affine->next].operand];
        run.nontemporal = to->stream;
        run.to = (float *)(void *)(to->data + run_of(b, to, idx).first * (int64_t)sizeof(float));
    }
    return run;
}

const float *chain_run_behind(const chain_bound_t *b, const int64_t *idx, int n, float *io,
                              void *scratch)
{
    const given_t given = {b->chain->affine.next, b->chain->affine.reg, io};
    const float *x = run_from(b, &(block_t){idx, 1, n}, given, scratch, LONG_STEP);
    return x != NULL ? x : io;
}

/* ---- a bias, ReLU and codes ------------------------------------------------------------------ */

/* An operand, if there is one, is the same along the first n dims. */
static bool repeats(const chain_bound_t *b, int operand, int n)
{
    bool same = true;
    for (int d = 0; d < n && operand >= 0; d++) {
        same = same && b->refs[operand].stride[d] == 0;
    }
    return same;
}

/* The instruction that quantises; *relu: the one before is a ReLU. */
static int quantising(const chain_t *c, bool *relu)
{
    const int at = c->affine.next;
    *relu = at < c->n_instrs && c->instrs[at].op == OP_SLOT(sinter_op_relu);
    return at + *relu;
}

bool chain_stores_codes(const chain_bound_t *b)
{
    const chain_t *c = b->chain;
    bool relu;
    const int at = quantising(c, &relu);
    if (c->f64 || !c->with_input || b->ndims < 1 || c->affine.gamma >= 0 || c->result >= 0 ||
        at + 2 != c->n_instrs) {
        return false;
    }
    const chain_instr_t *first = &c->instrs[c->affine.next], *quant = &c->instrs[at],
                        *store = quant + 1;
    const chain_ref_t *to = &b->refs[store->operand];
    return first->a == c->affine.reg && (!relu || quant->a == first->dst) &&
           quant->op == CHAIN_QUANT && store->op == CHAIN_STORE && store->a == quant->dst &&
           (to->dtype == sinter_u8 || to->dtype == sinter_s8) && to->stride[b->ndims - 1] == 1 &&
           !to->grouped && repeats(b, quant->scale, b->ndims) && repeats(b, quant->zp, b->ndims);
}

chain_codes_run_t chain_codes_run(const chain_bound_t *b, const int64_t *idx, int n, void *scratch)
{
    const chain_t *c = b->chain;
    const block_t k = {idx, 1, n};
    chain_codes_run_t run = {0};
    const chain_instr_t *quant = &c->instrs[quantising(c, &run.relu)];
    float *const values = scratch, *const tmp = values + CHAIN_BLOCK;
    run.bias = affine_values(b, c->affine.beta, &k, true, values, tmp);
    load(b, &b->refs[quant->scale], run_of(b, &b->refs[quant->scale], idx).first, 0, 1, &run.scale);
    if (quant->zp >= 0) {
        load(b, &b->refs[quant->zp], run_of(b, &b->refs[quant->zp], idx).first, 0, 1, &run.zp);
    }
    run.is_signed = b->refs[quant[1].operand].dtype == sinter_s8;
    run.to = chain_codes_to(b, idx);
    return run;
}

unsigned char *chain_codes_to(const chain_bound_t *b, const int64_t *idx)
{
    const chain_ref_t *to = &b->refs[b->chain->instrs[b->chain->n_instrs - 1].operand];
    return to->data + run_of(b, to, idx).first;
}

bool chain_codes_repeat(const chain_bound_t *b)
{
    return repeats(b, b->chain->affine.beta, b->ndims - 1);
}

/* ---- running --------------------------------------------------------------------------------- */

void chain_run(const chain_bound_t *bound, const int64_t *idx, int n, float *io, void *scratch)
{
    const float *x = run(bound, &(block_t){idx, 1, n}, io, scratch, CHAIN_BLOCK);
    if (io != NULL && x != NULL && x != io) {
        memcpy(io, x, (size_t)n * sizeof *io);
    }
}

const float *chain_run_long(const chain_bound_t *bound, const int64_t *idx, int n, float *io,
                            void *scratch)
{
    const float *x = run(bound, &(block_t){idx, 1, n}, io, scratch, LONG_STEP);
    return x != NULL ? x : io;
}

void chain_run_rows(const chain_bound_t *bound, const int64_t *idx, int rows, int cols, float *io,
                    void *scratch)
{
    int64_t at[SINTER_MAX_NDIMS];
    if (!bound->chain->f64) {
        (void)run(bound, &(block_t){idx, rows, cols}, io, scratch, TILE_STEP);
        return;
    }
    memcpy(at, idx, sizeof(int64_t) * (size_t)bound->ndims);
    for (int r = 0; r < rows; r++, at[bound->ndims - 2]++) {
        (void)chain_run_long(bound, at, cols, io + (size_t)r * (size_t)cols, scratch);
    }
}

void chain_fetch(const chain_bound_t *bound, const int64_t *idx, int n)
{
    for (int i = 0; i < bound->chain->n_instrs; i++) {
        const chain_instr_t *in = &bound->chain->instrs[i];
        const chain_ref_t *ref = &bound->refs[in->operand];
        const bool loads = in->op == CHAIN_LOAD || in->op == CHAIN_LOAD_DEQUANT;
        if (loads && bound->ndims > 0 && ref->stride[bound->ndims - 1] == 1) {
            const run_t r = run_of(bound, ref, idx);
            fetch_lines(ref->data + r.first * ref->traits->bits / 8,
                        (int64_t)n / r.group * ref->traits->bits / 8);
        }
    }
}

bool chain_is_load(const chain_bound_t *bound)
{
    const chain_instr_t *in = bound->chain->instrs;
    const chain_ref_t *ref = &bound->refs[in->operand];
    return bound->chain->n_instrs == 1 && in->op == CHAIN_LOAD && bound->ndims > 0 &&
           ref->stride[bound->ndims - 1] == 1 && !ref->grouped && ref->traits->bits % 8 == 0;
}

ahead_t chain_ahead(const chain_bound_t *bound, const int64_t *idx)
{
    const chain_ref_t *ref = &bound->refs[bound->chain->instrs[0].operand];
    const int bytes = ref->traits->bits / 8;
    return (ahead_t){ref->data + run_of(bound, ref, idx).first * bytes, bytes};
}

/* One tensor is read and results go past the caches: the hardware then does not keep up with
 * fetching. It does with two tensors, and would be disturbed. */
static bool needs_fetching(const chain_bound_t *b)
{
    int loads = 0;
    bool streams = false;
    for (int i = 0; i < b->chain->n_operands; i++) {
        streams = streams || b->refs[i].stream;
    }
    for (int i = 0; i < b->chain->n_instrs; i++) {
        loads += b->chain->instrs[i].op == CHAIN_LOAD;
    }
    return streams && loads == 1 && b->ndims > 0;
}

static void run_tile(const chain_bound_t *bound, const int64_t *idx, int rows, int cols,
                     void *scratch)
{
    if (bound->chain->f64) {
        enum { AHEAD = CONVERTED_AHEAD / sizeof(double) };
        const bool fetches = needs_fetching(bound);
        const int most = fetches ? CHAIN_BLOCK : CHAIN_LONG;
        int64_t at[SINTER_MAX_NDIMS] = {0}, *last = &at[bound->ndims > 0 ? bound->ndims - 1 : 0];
        memcpy(at, idx, sizeof(int64_t) * (size_t)bound->ndims);
        for (int c = 0, n; c < cols; c += n, *last += n) {
            n = cols - c < most ? cols - c : most;
            if (fetches) {
                *last += AHEAD;
                chain_fetch(bound, at, n);
                *last -= AHEAD;
            }
            (void)run(bound, &(block_t){at, 1, n}, NULL, scratch, LONG_STEP);
        }
    } else {
        (void)run(bound, &(block_t){idx, rows, cols}, NULL, scratch, TILE_STEP);
    }
}

/* ---- rows at once: floats to codes by given scales ------------------------------------------- */

/* Neither Inf nor NaN among n elements, a multiple of DTYPE_GROUP. */
static bool all_finite(const chain_bound_t *b, sinter_data_type_t type, const void *x, int n)
{
    int32_t top = 0;
    if (type == sinter_f32) {
        b->quant->widen(x, n, 1, &top, NULL);
    } else {
        quant_widen16(b->quant, type)(x, n, 1, &top, NULL);
    }
    return top < 0x7F800000;
}

/* Makes `how` fit store_scaled for n elements; false: store_scaled cannot quantise them. */
static bool fits_store(dtype_scaled_t *how, int n)
{
    const int64_t size = how->group < n ? how->group : n;
    bool divides = true; /* finite elements divided by such scales are no NaNs */
    for (int64_t i = 0; i < n / size; i++) {
        divides &= fabsf(how->scale[i]) > 0 && fabsf(how->scale[i]) <= FLT_MAX;
    }
    const bool begins = how->phase == 0 || how->phase + n <= how->group;
    how->group = size;
    how->phase = 0;
    return divides && begins && n % DTYPE_GROUP == 0 && n % size == 0;
}

static void encode_tile(const chain_bound_t *b, const int64_t *idx, int rows, int cols,
                        void *scratch)
{
    const chain_instr_t *in = b->chain->instrs;
    const chain_ref_t *x = &b->refs[in[0].operand], *to = &b->refs[in[2].operand];
    const dtype_bulk_t *bulk = dtype_bulk(to->dtype, b->features);
    const block_t k = {idx, rows, cols};
    const int64_t from = run_of(b, x, idx).first, first = run_of(b, to, idx).first;
    const int per_byte = to->traits->block_elems, width = x->traits->block_bytes;
    row_params_t params = params_of(b, &in[1], idx);
    dtype_scaled_t how = {0};
    bool fits = false;
    void *const tmp[N_TMP] = {scratch, (float *)scratch + TILE_STEP,
                              (float *)scratch + 2 * TILE_STEP};
    unsigned char *const codes =
        (unsigned char *)((float *)scratch + N_TMP * TILE_STEP); /* the first register */
    for (int i = 0, n; i < rows; i += n) {
        const int64_t at = row_first(b, to, &k, first, i);
        const unsigned char *row = x->data + row_first(b, x, &k, from, i) * width;
        if (load_row_params(b, &k, i, tmp, &params)) {
            how = join_groups(b, cols, tmp, &params);
            how.way = params.z != NULL ? DTYPE_SHIFTED : DTYPE_DIVIDED;
            how.from = x->dtype;
            how.ahead = (int64_t)cols * width;
            fits = fits_store(&how, cols) && cols % per_byte == 0;
        }
        n = fits ? 1 : rows - i;
        if (!fits || at % per_byte != 0 || !all_finite(b, x->dtype, row, cols)) {
            int64_t row_idx[SINTER_MAX_NDIMS];
            memcpy(row_idx, idx, (size_t)b->ndims * sizeof *idx);
            row_idx[b->ndims > 1 ? b->ndims - 2 : 0] += i;
            (void)run(b, &(block_t){row_idx, n, cols}, NULL, scratch, TILE_STEP);
            params.loaded = false; /* the run loads other values to the same place */
            continue;
        }
        unsigned char *const out = to->data + at / per_byte * to->traits->block_bytes;
        bulk->store_scaled(to->stream ? codes : out, 0, cols, row, &how);
        if (to->stream) {
            b->quant->stream(out, codes, (size_t)(cols / per_byte * to->traits->block_bytes));
        }
    }
}

/* ---- rows at once: conversion ---------------------------------------------------------------- */

static void convert_tile(const chain_bound_t *b, const int64_t *idx, int rows, int cols,
                         void *scratch)
{
    const chain_instr_t *in = b->chain->instrs;
    const chain_ref_t *x = &b->refs[in[0].operand], *to = &b->refs[in[1].operand];
    const block_t k = {idx, rows, cols};
    const int64_t from = run_of(b, x, idx).first, first = run_of(b, to, idx).first;
    const bool floats = x->dtype == sinter_f32 && (uintptr_t)x->data % sizeof(float) == 0;
    float *const loaded = scratch, *const tmp = loaded + TILE_STEP;
    for (int i = 0; i < rows; i++) {
        const int64_t row = row_first(b, x, &k, from, i), at = row_first(b, to, &k, first, i);
        for (int c = 0, n; c < cols; c += n) {
            const unsigned char *p = x->data + (row + c) * x->traits->bits / 8;
            n = cols - c < CONVERTED ? cols - c : CONVERTED;
            fetch_lines(p + CONVERTED_AHEAD, (int64_t)n * x->traits->bits / 8);
            if (!floats) {
                load(b, x, row + c, 1, n, loaded);
            }
            store_run(b, to, at + c, 1, n, floats ? (const float *)(const void *)p : loaded, tmp);
        }
    }
}

void chain_convert_tile(const chain_bound_t *b, const int64_t *idx, int rows, int cols,
                        void *scratch)
{
    const chain_instr_t *in = b->chain->instrs;
    const chain_ref_t *x = &b->refs[in[0].operand], *to = &b->refs[in[1].operand];
    const block_t k = {idx, rows, cols};
    const int64_t from = run_of(b, x, idx).first, first = run_of(b, to, idx).first;
    eltwise_convert_t *convert = eltwise_convert(b->f64, x->dtype, to->dtype);
    for (int i = 0; i < rows; i++) {
        const unsigned char *src = element(x, row_first(b, x, &k, from, i));
        unsigned char *dst = element(to, row_first(b, to, &k, first, i));
        for (int c = 0, n; c < cols; c += n) {
            n = cols - c < CONVERTED ? cols - c : CONVERTED;
            const size_t bytes = (size_t)n * (size_t)to->traits->block_bytes;
            fetch_lines(src + CONVERTED_AHEAD, (int64_t)n * x->traits->block_bytes);
            convert(src, to->stream ? scratch : dst, n);
            if (to->stream) {
                b->quant->stream(dst, scratch, bytes);
            }
            src += (size_t)n * (size_t)x->traits->block_bytes;
            dst += bytes;
        }
    }
}

/* ---------------------------------------------------------------------------------------------- */

/* Rows follow each other in memory element by element. */
static bool runs_on(const chain_bound_t *b, const chain_ref_t *ref)
{
    return ref->stride[b->ndims - 1] == 1 && !ref->grouped;
}

static bool encodes(const chain_bound_t *b, const chain_ref_t *x, const chain_ref_t *to)
{
    const dtype_bulk_t *bulk = dtype_bulk(to->dtype, b->features);
    const bool saturates = bulk->store_sat == bulk->store; /* as store_scaled does */
    const bool measured = x->dtype == sinter_f32 || quant_widen16(b->quant, x->dtype) != NULL;
    return saturates && measured && (uintptr_t)x->data % (size_t)x->traits->block_bytes == 0 &&
           bulk->store_scaled != NULL;
}

chain_run_t *chain_runner(const chain_bound_t *b)
{
    const chain_instr_t *in = b->chain->instrs;
    const int n = b->chain->n_instrs;
    if (b->ndims == 0 || n < 2 || in[0].op != CHAIN_LOAD || in[n - 1].op != CHAIN_STORE) {
        return run_tile;
    }
    const chain_ref_t *x = &b->refs[in[0].operand], *to = &b->refs[in[n - 1].operand];
    if (!runs_on(b, x) || !runs_on(b, to)) {
        return run_tile;
    }
    if (n == 2 && eltwise_convert(b->f64, x->dtype, to->dtype) != NULL) {
        return chain_convert_tile;
    }
    return b->chain->f64                                            ? run_tile
           : n == 2                                                 ? convert_tile
           : n == 3 && in[1].op == CHAIN_QUANT && encodes(b, x, to) ? encode_tile
                                                                    : run_tile;
}
