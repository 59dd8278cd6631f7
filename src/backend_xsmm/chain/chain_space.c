/* The iteration space of a bound chain: which threads may split it, and an equivalent space with
 * fewer and longer dims. */
#include <string.h>

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/plan.h"

static bool splits_bytes(const chain_bound_t *b, const chain_ref_t *ref)
{
    const int packed = ref->traits->block_elems, last = b->ndims - 1;
    if (packed == 1 || b->ndims == 0) {
        return false;
    }
    for (int d = 0; d < last; d++) {
        if (b->dims[d] > 1 && ref->stride[d] % packed != 0) {
            return true;
        }
    }
    return b->dims[last] > 1 && ref->stride[last] != 1;
}

bool chain_shares_bytes(const chain_bound_t *b)
{
    for (int i = 0; i < b->chain->n_instrs; i++) {
        const chain_instr_t *in = &b->chain->instrs[i];
        if (in->op == CHAIN_STORE && splits_bytes(b, &b->refs[in->operand])) {
            return true;
        }
    }
    return false;
}

bool chain_stores_packed(const chain_bound_t *b)
{
    for (int i = 0; i < b->chain->n_instrs; i++) {
        const chain_instr_t *in = &b->chain->instrs[i];
        if (in->op == CHAIN_STORE && b->refs[in->operand].traits->block_elems > 1) {
            return true;
        }
    }
    return false;
}

/* ---- collapsing ------------------------------------------------------------------------------ */

enum { SHORT = 16 }; /* an inner dim below this is not worth a run of its own */

static bool indexed(const chain_bound_t *b, int d)
{
    for (int k = 0; k < b->chain->n_indices; k++) {
        if (b->at[k] == d) {
            return true;
        }
    }
    return false;
}

static void move_i64(int64_t *v, const int *to, int n)
{
    int64_t old[SINTER_MAX_NDIMS];
    memcpy(old, v, sizeof(old));
    for (int d = 0; d < n; d++) {
        if (to[d] >= 0) {
            v[to[d]] = old[d];
        }
    }
}

void chain_permute(chain_bound_t *b, const int *to)
{
    const int n = b->ndims;
    move_i64(b->dims, to, n);
    for (int i = 0; i < b->chain->n_operands; i++) {
        move_i64(b->refs[i].stride, to, n);
        move_i64(b->refs[i].group, to, n);
    }
    for (int k = 0; k < b->chain->n_indices; k++) {
        b->at[k] = (int8_t)(b->at[k] < 0 ? -1 : to[b->at[k]]);
    }
    for (int d = 0; d < n; d++) {
        b->ndims -= to[d] < 0;
    }
}

static void drop_ones(chain_bound_t *b)
{
    int to[SINTER_MAX_NDIMS] = {0}, n = 0;
    for (int d = 0; d < b->ndims; d++) {
        to[d] = b->dims[d] == 1 ? -1 : n++;
    }
    chain_permute(b, to);
}

static const chain_ref_t *first_store(const chain_bound_t *b)
{
    for (int i = 0; i < b->chain->n_instrs; i++) {
        if (b->chain->instrs[i].op == CHAIN_STORE) {
            return &b->refs[b->chain->instrs[i].operand];
        }
    }
    return NULL;
}

/* Largest stride outermost; equal ones stay in order. */
static void order_by_stride(chain_bound_t *b, const chain_ref_t *store)
{
    int to[SINTER_MAX_NDIMS] = {0};
    for (int d = 0; d < b->ndims; d++) {
        to[d] = 0;
        for (int e = 0; e < b->ndims; e++) {
            to[d] += store->stride[e] > store->stride[d] ||
                     (store->stride[e] == store->stride[d] && e < d);
        }
    }
    chain_permute(b, to);
}

/* True if one longer dim can replace d and d + 1: either d goes on where d + 1 ends, or nothing
 * changes along d + 1, whose elements then form a group. */
static bool merge_ref(const chain_ref_t *ref, int d, const int64_t *dims, int64_t *stride,
                      int64_t *group)
{
    const int64_t inner = dims[d + 1];
    if (dims[d] == 1 || inner == 1) {
        const int only = dims[d] == 1 ? d + 1 : d;
        *stride = ref->stride[only];
        *group = ref->group[only];
        return true;
    }
    if (ref->stride[d + 1] == 0) {
        *stride = ref->stride[d];
        *group = ref->stride[d] == 0 ? 1 : ref->group[d] * inner;
        return true;
    }
    *stride = ref->stride[d + 1];
    *group = ref->group[d + 1];
    return ref->group[d] == 1 && inner % ref->group[d + 1] == 0 &&
           ref->stride[d] == inner / ref->group[d + 1] * ref->stride[d + 1];
}

/* stride, group: of the longer dim, by operand. */
static bool merges(const chain_bound_t *b, int d, int64_t *stride, int64_t *group)
{
    if (indexed(b, d) || indexed(b, d + 1)) {
        return false;
    }
    for (int i = 0; i < b->chain->n_operands; i++) {
        if (!merge_ref(&b->refs[i], d, b->dims, &stride[i], &group[i])) {
            return false;
        }
    }
    return true;
}

bool chain_merges(const chain_bound_t *b, int d)
{
    int64_t stride[CHAIN_MAX_OPERANDS], group[CHAIN_MAX_OPERANDS];
    return merges(b, d, stride, group);
}

bool chain_merge(chain_bound_t *b, int d)
{
    int64_t stride[CHAIN_MAX_OPERANDS] = {0}, group[CHAIN_MAX_OPERANDS] = {0};
    if (!merges(b, d, stride, group)) {
        return false;
    }
    int to[SINTER_MAX_NDIMS] = {0};
    for (int e = 0; e < b->ndims; e++) {
        to[e] = e <= d ? e : e - 1;
    }
    to[d] = -1; /* d + 1 takes the place of d */
    const int64_t n = b->dims[d] * b->dims[d + 1];
    chain_permute(b, to);
    b->dims[d] = n;
    for (int i = 0; i < b->chain->n_operands; i++) {
        b->refs[i].stride[d] = stride[i];
        b->refs[i].group[d] = group[i];
        b->refs[i].grouped = b->refs[i].grouped || group[i] > 1;
    }
    return true;
}

/* The dim along which a transposed operand is contiguous goes next to the last one, so that
 * tiles hold runs of both. */
static void pair_transposed(chain_bound_t *b)
{
    const int last = b->ndims - 1;
    for (int i = 0; i < b->chain->n_operands; i++) {
        const chain_ref_t *ref = &b->refs[i];
        for (int d = 0; d < last - 1 && ref->stride[last] != 0 && ref->stride[last] != 1; d++) {
            if (ref->stride[d] == 1 && ref->group[d] == 1) {
                int to[SINTER_MAX_NDIMS] = {0};
                for (int e = 0; e <= last; e++) {
                    to[e] = e == d ? last - 1 : e > d && e < last ? e - 1 : e;
                }
                chain_permute(b, to);
                return;
            }
        }
    }
}

/* Rows of the stored tensor follow each other without gaps. */
static bool is_dense_2d(const chain_bound_t *b, const chain_ref_t *store)
{
    const int last = b->ndims - 1;
    return store != NULL && store->stride[last] == 1 && store->stride[last - 1] == b->dims[last];
}

/* If the last dim is short, runs go along the longest dim instead, unless a packed output must
 * keep its order. */
static void lengthen_inner(chain_bound_t *b)
{
    const int last = b->ndims - 1;
    int longest = last, to[SINTER_MAX_NDIMS] = {0};
    if (chain_stores_packed(b)) {
        return;
    }
    for (int d = 0; d <= last; d++) {
        longest = b->dims[d] > b->dims[longest] ? d : longest;
    }
    for (int d = 0; d <= last; d++) {
        to[d] = d == longest ? last : d > longest ? d - 1 : d;
    }
    chain_permute(b, to);
}

void chain_collapse(chain_bound_t *b)
{
    const chain_ref_t *store = first_store(b);
    for (int d = 0; d < b->ndims; d++) {
        if (b->dims[d] == 0) {
            return; /* there are no elements */
        }
    }
    drop_ones(b);
    if (store != NULL) {
        order_by_stride(b, store);
    }
    for (int d = b->ndims - 2; d >= 0; d--) {
        chain_merge(b, d);
    }
    if (b->ndims > 1 && b->dims[b->ndims - 1] < SHORT && !is_dense_2d(b, store)) {
        lengthen_inner(b);
    }
    pair_transposed(b);
}

/* ---- stores past the caches ------------------------------------------------------------------ */

static double element_bytes(const chain_ref_t *ref)
{
    return (double)ref->traits->block_bytes / ref->traits->block_elems;
}

static double touched_bytes(const chain_bound_t *b, const chain_ref_t *ref)
{
    double bytes = element_bytes(ref);
    for (int d = 0; d < b->ndims; d++) {
        bytes *= ref->stride[d] == 0 ? 1 : (double)b->dims[d] / (double)ref->group[d];
    }
    return bytes;
}

double chain_touched_bytes(const chain_bound_t *b)
{
    double touched = 0;
    for (int i = 0; i < b->chain->n_operands; i++) {
        touched += touched_bytes(b, &b->refs[i]);
    }
    return touched;
}

bool chain_choose_stores(chain_bound_t *b, int64_t rows, int64_t cols, double others,
                         size_t cache_bytes)
{
    enum { SHORTEST = 256 };
    const double cache = (double)cache_bytes, touched = chain_touched_bytes(b) + others;
    bool any = false;
    for (int i = 0; i < b->chain->n_instrs; i++) {
        chain_ref_t *ref = &b->refs[b->chain->instrs[i].operand];
        if (b->chain->instrs[i].op != CHAIN_STORE || b->ndims == 0 ||
            ref->stride[b->ndims - 1] != 1) {
            continue;
        }
        const bool dense = b->ndims > 1 && ref->stride[b->ndims - 2] == cols;
        const double run = element_bytes(ref) * (double)(cols * (dense ? rows : 1));
        ref->stream = cache > 0 &&
                      (touched_bytes(b, ref) > 0.75 * cache || touched >= 1.5 * cache) &&
                      run >= SHORTEST;
        any = any || ref->stream;
    }
    return any;
}
