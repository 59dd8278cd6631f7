#include "work.h"

#include <math.h>
#include <string.h>

/* Operands of a mask's expression, and how deep it may be; a deeper one counts as no mask. */
enum { MAX_OPERANDS = 3, MAX_DEPTH = 10, MAX_STEPS = 16 };

/* The scores of one SoftMax at one index of its batch dims: S rows of T columns. */
typedef struct scores {
    const gr_exec_t *x;
    int ndims;
    int64_t s, t, batch[SINTER_MAX_NDIMS];
    bool varies[SINTER_MAX_NDIMS]; /* batch dims that some mask differs along */
    double *stack;                 /* MAX_OPERANDS rows of t for each depth */
    unsigned char *keep, *seen;
    struct pages *pages; /* NULL: K and V do not lie in them */
} scores_t;

/* Blocks of which a table names some for each index of the first batch dim, or for each sequence,
 * which such an index then names. */
typedef struct pages {
    const gr_buffer_t *table, *sequence; /* NULL: of each index */
    int64_t blocks, tokens;              /* how many there are; of a block */
    unsigned char *seen;                 /* by token of all blocks */
} pages_t;

typedef struct seen {
    double products, tokens; /* shares of all */
    double in_pages;         /* of the tokens of all blocks; those that several name count once */
} seen_t;

static const model_op_t *producer(const gr_exec_t *x, uint64_t id)
{
    const model_tensor_t *t = model_find(x->model, id);

    return !t || t->producer == MODEL_NONE ? NULL : &x->model->ops[t->producer];
}

static int has_op(const gr_part_t *part, uint64_t id)
{
    for (size_t i = 0; i < part->n_ops; i++) {
        if (part->ops[i] == id) {
            return 1;
        }
    }
    return 0;
}

/* ---- ports ----------------------------------------------------------------------------------- */

/* The op that makes output `out` from a cache, which is its input *slot: a ScatterRows, or the
 * states of a LinearAttention. NULL: another op does. */
static const model_op_t *cache_writer(const gr_exec_t *x, const gr_part_t *part, size_t out,
                                      size_t *slot)
{
    const model_op_t *op = producer(x, part->out[out].id);
    const int scatters = op && op->kind == sinter_op_scatter_rows && op->n_inputs == 3,
              recurs = op && op->kind == sinter_op_linear_attention && op->n_inputs > 3 &&
                       op->n_outputs == 2 && op->outputs[1].id == part->out[out].id;

    *slot = recurs ? 3 : 0;
    return scatters || recurs ? op : NULL;
}

size_t gr_cache_port(const gr_exec_t *x, const gr_part_t *part, size_t out)
{
    size_t n = 0, slot;
    const model_op_t *op = cache_writer(x, part, out, &slot);
    const sinter_inplace_pair_t *pairs;

    if (!op || !part->compiled ||
        sinter_compiled_partition_get_inplace_ports(part->compiled, &n, &pairs)) {
        return part->n_in;
    }
    for (size_t k = 0; k < n; k++) {
        for (size_t i = 0; pairs[k].output_id == part->out[out].id && i < part->n_in; i++) {
            if (part->in[i].id == pairs[k].input_id && part->in[i].id == op->inputs[slot].id) {
                return i;
            }
        }
    }
    return part->n_in;
}

/* The largest share of a tensor that an op reads at input `slot`: of a table no more rows than
 * there are indices. */
static double share_read(const gr_exec_t *x, const model_op_t *op, size_t slot)
{
    const bool turns = op->kind == sinter_op_rotary_embedding && op->n_inputs == 4 &&
                       (slot == 1 || slot == 2),
               gathers = op->kind == sinter_op_gather && slot == 0;
    const orc_attr_t *axis = model_attr(op, sinter_op_attr_axis);
    sinter_logical_tensor_t table, indices;
    int64_t d = gathers && axis ? axis->s64[0] : 0;

    if (!turns && !gathers) {
        return 1;
    }
    gr_exec_lt(x, op->inputs[slot].id, &table);
    gr_exec_lt(x, op->inputs[turns ? 3 : 1].id, &indices);
    d += d < 0 ? table.ndims : 0;
    if (table.ndims < 1 || d < 0 || d >= table.ndims || table.dims[d] < 1 || indices.ndims < 0) {
        return 1;
    }
    return fmin(1, (double)gr_elements(&indices) / (double)table.dims[d]);
}

/* The share of an input that the op of a partition reads which reads most of it. */
static double share_of_input(const gr_exec_t *x, const gr_part_t *part, uint64_t id)
{
    double share = 0;

    for (size_t i = 0; i < part->n_ops; i++) {
        const model_op_t *op = model_find_op(x->model, part->ops[i]);

        for (size_t k = 0; op && k < op->n_inputs; k++) {
            share = op->inputs[k].id == id ? fmax(share, share_read(x, op, k)) : share;
        }
    }
    return share;
}

/* What an op writes of a cache: the rows of a ScatterRows, a state for each sequence. */
static double cache_bytes(const gr_exec_t *x, const model_op_t *op)
{
    const int recurs = op->kind == sinter_op_linear_attention;
    sinter_logical_tensor_t rows, values;
    size_t bytes = 0;

    gr_exec_lt(x, op->inputs[recurs ? 3 : 2].id, &rows);
    gr_exec_lt(x, op->inputs[2].id, &values);
    sinter_logical_tensor_get_bytes(&rows, &bytes);
    return recurs && rows.ndims > 0 && values.ndims > 0 && rows.dims[0] > 0
               ? (double)bytes * (double)values.dims[0] / (double)rows.dims[0]
               : (double)bytes;
}

double gr_port_bytes(const gr_exec_t *x, const gr_part_t *part, size_t i)
{
    const bool in = i < part->n_in;
    size_t bytes = 0, slot;

    if (!in && gr_cache_port(x, part, i - part->n_in) < part->n_in) {
        return cache_bytes(x, cache_writer(x, part, i - part->n_in, &slot));
    }
    for (size_t out = 0; in && out < part->n_out; out++) {
        if (gr_cache_port(x, part, out) == i) {
            const model_op_t *op = cache_writer(x, part, out, &slot);
            return op->kind == sinter_op_linear_attention ? cache_bytes(x, op)
                                                          : 0; /* nobody reads it */
        }
    }
    sinter_logical_tensor_get_bytes(gr_exec_port(x, in ? &part->in[i] : &part->out[i - part->n_in]),
                                    &bytes);
    return (double)bytes * (in ? share_of_input(x, part, part->in[i].id) : 1);
}

/* Products of a convolution: those of a result with the window and the channels of its group; of a
 * transposed one, those of an element of the image. */
static double convolution_flops(const gr_exec_t *x, const model_op_t *op)
{
    const orc_attr_t *format = model_attr(op, sinter_op_attr_data_format);
    const bool first = format && format->str && strcmp(format->str, "NCX") == 0;
    sinter_logical_tensor_t met, weights;
    int64_t channels;

    gr_exec_lt(x, op->kind == sinter_op_convolution ? op->outputs[0].id : op->inputs[0].id, &met);
    gr_exec_lt(x, op->inputs[1].id, &weights);
    if (met.ndims < 3 || gr_elements(&met) < 1 || gr_elements(&weights) < 1) {
        return 0;
    }
    channels = met.dims[first ? 1 : met.ndims - 1];
    return 2.0 * (double)gr_elements(&met) * (double)gr_elements(&weights) / (double)channels;
}

static double matmul_flops(const gr_exec_t *x, const model_op_t *op)
{
    const orc_attr_t *transpose = model_attr(op, sinter_op_attr_transpose_a);
    sinter_logical_tensor_t a, c;
    int64_t k;

    gr_exec_lt(x, op->inputs[0].id, &a);
    gr_exec_lt(x, op->outputs[0].id, &c);
    if (a.ndims < 1 || c.ndims < 0) {
        return 0;
    }
    k = transpose && transpose->b && a.ndims > 1 ? a.dims[a.ndims - 2] : a.dims[a.ndims - 1];
    return k > 0 && gr_elements(&c) > 0 ? 2.0 * (double)gr_elements(&c) * (double)k : 0;
}

double gr_product_flops(const gr_exec_t *x, const model_op_t *op)
{
    if (op->n_inputs < 2 || op->n_outputs < 1) {
        return 0;
    }
    return op->kind == sinter_op_matmul ? matmul_flops(x, op)
           : op->kind == sinter_op_convolution || op->kind == sinter_op_conv_transpose
               ? convolution_flops(x, op)
               : 0;
}

/* ---- masks of row and column indices --------------------------------------------------------- */

/* The value of an input of the graph at the batch index of the scores; -1 if it has rows or columns
 * of its own. */
static int batch_value(scores_t *s, uint64_t id, double *value)
{
    const gr_buffer_t *b = gr_exec_buffer(s->x, id);
    int64_t at = 0;

    if (!b || !b->base || gr_elements(&b->lt) < 1) {
        return -1;
    }
    for (int d = 0; d < b->lt.ndims; d++) {
        const int from = d + s->ndims - b->lt.ndims;

        if (b->lt.dims[d] != 1 && (from < 0 || from >= s->ndims - 2)) {
            return -1;
        }
        if (b->lt.dims[d] != 1) {
            s->varies[from] = true;
            at += s->batch[from] * b->lt.strides[d];
        }
    }
    *value = orc_decode(b->lt.data_type, b->data, at);
    return 0;
}

/* The only value of an input of the graph; -1 if it has several. */
static int single_value(const gr_exec_t *x, uint64_t id, double *value)
{
    const gr_buffer_t *b = gr_exec_buffer(x, id);

    if (!b || !b->base || gr_elements(&b->lt) != 1) {
        return -1;
    }
    *value = orc_decode(b->lt.data_type, b->data, 0);
    return 0;
}

/* One element of an op that masks by index are made of; false: not such an op. */
static bool index_op(sinter_op_kind_t kind, double a, double b, double c, double *out)
{
    switch (kind) {
    case sinter_op_add:
        *out = a + b;
        return true;
    case sinter_op_subtract:
        *out = a - b;
        return true;
    case sinter_op_multiply:
        *out = a * b;
        return true;
    case sinter_op_greater_equal:
        *out = a >= b;
        return true;
    case sinter_op_select:
        *out = a != 0 ? b : c;
        return true;
    case sinter_op_type_cast:
        *out = a;
        return true;
    default:
        return false;
    }
}

/* A tensor's values in one row of the scores; -1 if it is not made of indices and values for
 * batches. */
static int evaluate(scores_t *s, uint64_t id, int64_t row, int depth, double *out)
{
    const model_op_t *op = producer(s->x, id);
    double *in[MAX_OPERANDS], value;

    if (!op) {
        if (batch_value(s, id, &value)) {
            return -1;
        }
        for (int64_t i = 0; i < s->t; i++) {
            out[i] = value;
        }
        return 0;
    }
    if (op->kind == sinter_op_gen_index) {
        const orc_attr_t *axis = model_attr(op, sinter_op_attr_axis);
        int64_t dim = axis && axis->n ? axis->s64[0] : 0;

        dim -= dim < 0 ? 0 : s->ndims;
        for (int64_t i = 0; i < s->t; i++) {
            out[i] = (double)(dim == -1 ? i : row);
        }
        return dim == -1 || dim == -2 ? 0 : -1;
    }
    if (!index_op(op->kind, 0, 0, 0, &value) || op->n_inputs > MAX_OPERANDS || depth == MAX_DEPTH) {
        return -1;
    }
    for (size_t k = 0; k < MAX_OPERANDS; k++) {
        in[k] = s->stack + (depth * MAX_OPERANDS + (int64_t)k) * s->t;
        if (k < op->n_inputs && evaluate(s, op->inputs[k].id, row, depth + 1, in[k])) {
            return -1;
        }
    }
    for (int64_t i = 0; i < s->t; i++) {
        (void)index_op(op->kind, in[0][i], in[1][i], in[2][i], &out[i]);
    }
    return 0;
}

static int is_lowest(const gr_exec_t *x, uint64_t id)
{
    double value = 0;

    return !producer(x, id) && !single_value(x, id, &value) && value == -INFINITY;
}

/* Clears keep[] where one Select puts -inf for a row; where the scores come from otherwise. */
static void mask_row(scores_t *s, const model_op_t *select, int64_t row)
{
    const int keeps =
        is_lowest(s->x, select->inputs[2].id); /* else the condition says what to mask */
    double *condition = s->stack + (int64_t)MAX_OPERANDS * MAX_DEPTH * s->t;

    if (evaluate(s, select->inputs[0].id, row, 0, condition)) {
        return;
    }
    for (int64_t i = 0; i < s->t; i++) {
        s->keep[i] &= (condition[i] != 0) == keeps;
    }
}

/* The Selects between a SoftMax and its MatMul that put -inf. Returns the MatMul, or NULL. */
static const model_op_t *find_masks(const gr_exec_t *x, const model_op_t *softmax,
                                    const model_op_t **selects, int *n)
{
    uint64_t id = softmax->inputs[0].id;

    *n = 0;
    for (int step = 0; step < MAX_STEPS; step++) {
        const model_op_t *op = producer(x, id);
        size_t next = 0;

        if (!op || op->kind == sinter_op_matmul || op->n_inputs == 0) {
            return op && op->kind == sinter_op_matmul ? op : NULL;
        }
        if (op->kind == sinter_op_select && op->n_inputs == 3) {
            next = is_lowest(x, op->inputs[1].id) ? 2 : 1;
            if (next == 2 || is_lowest(x, op->inputs[2].id)) {
                selects[(*n)++] = op;
            }
        } else {
            while (next + 1 < op->n_inputs && !producer(x, op->inputs[next].id)) {
                next++;
            }
        }
        id = op->inputs[next].id;
    }
    return NULL;
}

static seen_t count_batch(scores_t *s, const model_op_t *const *selects, int n)
{
    double products = 0, tokens = 0;

    memset(s->seen, 0, (size_t)s->t);
    for (int64_t row = 0; row < s->s; row++) {
        memset(s->keep, 1, (size_t)s->t);
        for (int i = 0; i < n; i++) {
            mask_row(s, selects[i], row);
        }
        for (int64_t i = 0; i < s->t; i++) {
            products += s->keep[i];
            s->seen[i] |= s->keep[i];
        }
    }
    for (int64_t i = 0; i < s->t; i++) {
        tokens += s->seen[i];
    }
    return (seen_t){products / ((double)s->s * (double)s->t), tokens / (double)s->t, 0};
}

/* Goes to the next batch index along the dims that masks differ along; false: there is none. */
static bool next_batch(scores_t *s, const sinter_logical_tensor_t *lt)
{
    for (int d = s->ndims - 3; d >= 0; d--) {
        if (s->varies[d] && ++s->batch[d] < lt->dims[d]) {
            return true;
        }
        s->batch[d] = 0;
    }
    return false;
}

/* ---- pages ----------------------------------------------------------------------------------- */

static int moves_data(sinter_op_kind_t kind)
{
    return kind == sinter_op_dynamic_dequantize || kind == sinter_op_dequantize ||
           kind == sinter_op_type_cast || kind == sinter_op_static_reshape ||
           kind == sinter_op_static_transpose || kind == sinter_op_reorder;
}

static const gr_buffer_t *filled(const gr_exec_t *x, uint64_t id)
{
    const gr_buffer_t *b = gr_exec_buffer(x, id);

    return b && b->base ? b : NULL;
}

/* The pages that a Gather of the partition takes K from. False: there are none, or only execute
 * knows the table. */
static bool find_pages(const gr_exec_t *x, const gr_part_t *part, uint64_t k,
                       const sinter_logical_tensor_t *scores, pages_t *p)
{
    const model_op_t *op = producer(x, k);
    sinter_logical_tensor_t blocks;

    while (op && moves_data(op->kind) && has_op(part, op->id)) {
        op = producer(x, op->inputs[0].id);
    }
    if (!op || op->kind != sinter_op_gather || !has_op(part, op->id)) {
        return false;
    }
    const orc_attr_t *axis = model_attr(op, sinter_op_attr_axis);
    const model_op_t *own = producer(x, op->inputs[1].id);
    const bool by_sequence = own && own->kind == sinter_op_gather;

    gr_exec_lt(x, op->inputs[0].id, &blocks);
    *p = (pages_t){.table = filled(x, by_sequence ? own->inputs[0].id : op->inputs[1].id),
                   .sequence = by_sequence ? filled(x, own->inputs[1].id) : NULL};
    const int64_t d = !axis              ? 0
                      : axis->s64[0] < 0 ? axis->s64[0] + blocks.ndims
                                         : axis->s64[0],
                  T = scores->dims[scores->ndims - 1];
    if (!p->table || p->table->lt.ndims != 2 || (by_sequence && !p->sequence) || d < 0 ||
        d >= blocks.ndims || p->table->lt.dims[1] < 1 || T % p->table->lt.dims[1] != 0 ||
        (by_sequence ? p->sequence : p->table)->lt.dims[0] != scores->dims[0]) {
        return false;
    }
    p->blocks = blocks.dims[d];
    p->tokens = T / p->table->lt.dims[1];
    return p->blocks > 0;
}

static int64_t index_at(const gr_buffer_t *b, int64_t at)
{
    return (int64_t)orc_decode(b->lt.data_type, b->data, at);
}

static void mark_pages(const scores_t *s)
{
    const pages_t *p = s->pages;
    const int64_t *strides = p->table->lt.strides, item = s->batch[0],
                  row =
                      p->sequence ? index_at(p->sequence, item * p->sequence->lt.strides[0]) : item;

    for (int64_t t = 0; t < s->t && row >= 0 && row < p->table->lt.dims[0]; t++) {
        if (s->seen[t]) {
            int64_t block = index_at(p->table, row * strides[0] + t / p->tokens * strides[1]);
            block += block < 0 ? p->blocks : 0;
            if (block >= 0 && block < p->blocks) {
                p->seen[block * p->tokens + t % p->tokens] = 1;
            }
        }
    }
}

/* The mean over all batches. */
static seen_t count(scores_t *s, const sinter_logical_tensor_t *lt,
                    const model_op_t *const *selects, int n)
{
    seen_t sum = {0};
    int batches = 0;

    s->varies[0] = s->varies[0] || s->pages;
    do {
        const seen_t seen = count_batch(s, selects, n);

        if (s->pages) {
            mark_pages(s);
        }
        sum.products += seen.products;
        sum.tokens += seen.tokens;
        batches++;
    } while (next_batch(s, lt));
    sum = (seen_t){sum.products / batches, sum.tokens / batches, 0};
    for (int64_t i = 0; s->pages && i < s->pages->blocks * s->pages->tokens; i++) {
        sum.in_pages += s->pages->seen[i];
    }
    sum.in_pages /= s->pages ? (double)(s->pages->blocks * s->pages->tokens) : 1;
    return sum;
}

static int count_seen(const gr_exec_t *x, const gr_part_t *part, const model_op_t *softmax,
                      uint64_t k, const model_op_t *const *selects, int n, seen_t *seen,
                      gr_error_t *err)
{
    scores_t s = {.x = x};
    pages_t pages = {0};
    sinter_logical_tensor_t lt;
    int failed;

    *seen = (seen_t){1, 1, 1};
    gr_exec_lt(x, softmax->inputs[0].id, &lt);
    if (lt.ndims < 2 || gr_elements(&lt) <= 0) {
        return 0;
    }
    s.pages = lt.ndims > 2 && find_pages(x, part, k, &lt, &pages) ? &pages : NULL;
    if (n == 0 && !s.pages) {
        return 0;
    }
    s.ndims = lt.ndims;
    s.s = lt.dims[lt.ndims - 2];
    s.t = lt.dims[lt.ndims - 1];
    s.stack = gr_malloc((size_t)s.t * (MAX_OPERANDS * MAX_DEPTH + 1) * sizeof *s.stack);
    s.keep = gr_malloc((size_t)s.t);
    s.seen = gr_malloc((size_t)s.t);
    pages.seen = s.pages ? gr_malloc((size_t)(pages.blocks * pages.tokens)) : NULL;
    failed = !s.stack || !s.keep || !s.seen || (s.pages && !pages.seen);
    if (!failed) {
        if (s.pages) {
            memset(pages.seen, 0, (size_t)(pages.blocks * pages.tokens));
        }
        *seen = count(&s, &lt, selects, n);
        seen->in_pages = s.pages ? seen->in_pages : 1;
    }
    gr_free(s.stack);
    gr_free(s.keep);
    gr_free(s.seen);
    gr_free(pages.seen);
    return failed ? gr_fail_memory(err) : 0;
}

/* ---- K and V --------------------------------------------------------------------------------- */

/* Adds the bytes of the partition's inputs that a tensor is decoded from: what their ports count,
 * and what is read of them. seen: the share of tokens. */
static void add_behind(const gr_exec_t *x, const gr_part_t *part, uint64_t id, double seen,
                       const seen_t *all, double *of_ports, double *read)
{
    const model_op_t *op = producer(x, id);

    for (size_t i = 0; i < part->n_in; i++) {
        size_t bytes = 0;

        if (part->in[i].id == id) {
            if (!sinter_logical_tensor_get_bytes(gr_exec_port(x, &part->in[i]), &bytes)) {
                *of_ports += gr_port_bytes(x, part, i);
                *read += seen * (double)bytes;
            }
            return;
        }
    }
    if (op && op->kind == sinter_op_gather && has_op(part, op->id)) {
        add_behind(x, part, op->inputs[0].id, all->in_pages, all, of_ports, read);
    }
    for (size_t i = 0; op && moves_data(op->kind) && i < op->n_inputs; i++) {
        add_behind(x, part, op->inputs[i].id, seen, all, of_ports, read);
    }
}

/* The MatMul that a SoftMax's probabilities go to, through elementwise steps; NULL: none in the
 * partition. */
static const model_op_t *next_matmul(const gr_exec_t *x, const gr_part_t *part,
                                     const model_op_t *softmax)
{
    uint64_t id = softmax->outputs[0].id;

    for (int step = 0; step < MAX_STEPS; step++) {
        const model_tensor_t *t = model_find(x->model, id);
        const model_use_t *use = &x->model->uses[t->first + t->n - 1];
        const model_op_t *op = &x->model->ops[use->op];

        if (use->output || op->n_outputs == 0 || !has_op(part, op->id)) {
            return NULL;
        }
        if (op->kind == sinter_op_matmul) {
            return use->slot == 0 ? op : NULL;
        }
        id = op->outputs[0].id;
    }
    return NULL;
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

/* Codes that are small integers, or such times a power of two; none: not such codes. */
typedef struct codes {
    bool any;
    bool exact;   /* two such operands may be multiplied as integers in every mode */
    bool integer; /* a mode covers them with apply_to_int only */
} codes_t;

static codes_t codes_of_type(sinter_data_type_t type)
{
    const gr_dtype_t *t = gr_dtype(type);
    const bool integer = t->class_ == GR_INT && t->bits <= 8,
               exact = integer || type == sinter_f4_e2m1;

    return (codes_t){exact || type == sinter_f6_e2m3, exact, integer};
}

static bool is_port(const gr_part_t *part, uint64_t id)
{
    for (size_t i = 0; i < part->n_in; i++) {
        if (part->in[i].id == id) {
            return true;
        }
    }
    return false;
}

/* What an operand of a MatMul is decoded from inside of the partition. */
static codes_t codes_behind(const gr_exec_t *x, const gr_part_t *part, uint64_t id)
{
    const codes_t none = {0};

    for (int step = 0; step < MAX_STEPS; step++) {
        const model_op_t *op = producer(x, id);
        const orc_attr_t *split = op ? model_attr(op, sinter_op_attr_split_type) : NULL;
        sinter_data_type_t type;
        sinter_logical_tensor_t lt;

        gr_exec_lt(x, id, &lt);
        if (codes_of_type(lt.data_type).any || is_port(part, id)) {
            return codes_of_type(lt.data_type);
        }
        if (!op || !moves_data(op->kind) || op->n_inputs == 0) {
            return none;
        }
        if (split && sinter_data_type_parse(split->str, &type)) {
            return codes_of_type(type);
        }
        id = op->inputs[0].id;
    }
    return none;
}

static int limbs_of(const gr_exec_t *x, const gr_part_t *part, const model_op_t *op)
{
    const codes_t a = codes_behind(x, part, op->inputs[0].id),
                  b = codes_behind(x, part, op->inputs[1].id);

    if (a.exact && b.exact) {
        return GR_ONE_LIMB;
    }
    if ((!a.any && !b.any) || part->mode == sinter_fpmath_mode_strict ||
        ((a.integer || b.integer) && !part->apply_to_int)) {
        return GR_IN_FLOATS;
    }
    return part->mode == sinter_fpmath_mode_int8 ? GR_ONE_LIMB : GR_TWO_LIMBS;
}

/* Counts a share of the products of an op; a negative one takes them back. */
static void add_products(const gr_exec_t *x, const gr_part_t *part, const model_op_t *op,
                         double share, gr_work_t *work)
{
    const double flops = share * gr_product_flops(x, op);

    if (flops != 0) {
        work->flops += flops;
        work->by_limbs[limbs_of(x, part, op)] += flops;
    }
}

static double seconds_at(double amount, double rate)
{
    return rate > 0 ? amount / rate : 0;
}

static double least(double a, double b)
{
    return b > 0 && b < a ? b : a;
}

gr_roofline_t gr_roofline(const gr_work_t *work, const gr_limits_t *limits, double rate)
{
    const bool copies = work->flops == 0;
    gr_roofline_t r = {.memory = copies ? seconds_at(work->bytes, rate)
                                        : seconds_at(work->read, rate) +
                                              seconds_at(work->written, limits->copy_bytes)};

    for (int limbs = 0; limbs < GR_LIMBS; limbs++) {
        const double flops = work->by_limbs[limbs];
        double seconds = seconds_at(flops, limits->fma_flops);

        if (work->bf16) {
            seconds = least(seconds, seconds_at(flops, limits->bf16_flops));
        }
        r.products += least(seconds, seconds_at(flops * limbs, limits->int8_ops));
    }
    return r;
}

/* ---- partitions ------------------------------------------------------------------------------ */

static int add_attention(const gr_exec_t *x, const gr_part_t *part, const model_op_t *softmax,
                         gr_work_t *work, gr_error_t *err)
{
    const model_op_t *selects[MAX_STEPS];
    int n;
    const model_op_t *first = find_masks(x, softmax, selects, &n),
                     *second = next_matmul(x, part, softmax);
    seen_t seen;
    double of_ports = 0, read = 0;

    if (!first || !second || !has_op(part, first->id)) {
        return 0;
    }
    if (count_seen(x, part, softmax, first->inputs[1].id, selects, n, &seen, err)) {
        return -1;
    }
    add_products(x, part, first, seen.products - 1, work);
    add_products(x, part, second, seen.products - 1, work);
    add_behind(x, part, first->inputs[1].id, seen.tokens, &seen, &of_ports, &read);
    add_behind(x, part, second->inputs[1].id, seen.tokens, &seen, &of_ports, &read);
    work->bytes = (work->attention ? work->bytes : 0) + read;
    work->read += read - of_ports;
    work->attention = true;
    return 0;
}

int gr_part_work(const gr_exec_t *x, const gr_part_t *part, gr_work_t *work, gr_error_t *err)
{
    *work = (gr_work_t){.bf16 = part->mode == sinter_fpmath_mode_bf16 ||
                                part->mode == sinter_fpmath_mode_any};
    for (size_t i = 0; i < part->n_in + part->n_out; i++) {
        *(i < part->n_in ? &work->read : &work->written) += gr_port_bytes(x, part, i);
    }
    work->bytes = work->read + work->written;
    for (size_t i = 0; i < part->n_ops; i++) {
        const model_op_t *op = model_find_op(x->model, part->ops[i]);

        if (op) {
            add_products(x, part, op, 1, work);
        }
    }
    for (size_t i = 0; i < part->n_ops; i++) {
        const model_op_t *op = model_find_op(x->model, part->ops[i]);

        if (op && op->kind == sinter_op_softmax && add_attention(x, part, op, work, err)) {
            return -1;
        }
    }
    return 0;
}
