/* MatMul: numpy's matmul with transposes. */
#include <string.h>

#include "graph/shape.h"

/* An operand as batch dims and a matrix; a vector is one row (of a) or one column (of b), which
 * the output does not have. */
typedef struct side {
    int n_batch;
    int64_t *outer, *inner; /* rows of a or columns of b, NULL of a vector; the reduced dim */
} side_t;

static side_t read_side(lt_t *lt, bool is_a, bool transposed)
{
    int n = lt->ndims;
    if (n == 1) {
        return (side_t){0, NULL, &lt->dims[0]};
    }
    int64_t *row = &lt->dims[n - 2], *col = &lt->dims[n - 1];
    bool row_is_outer = is_a != transposed;
    return (side_t){n - 2, row_is_outer ? row : col, row_is_outer ? col : row};
}

static sinter_status_t put_batch(const node_t *node, const lt_t *a, const lt_t *b, const side_t *sa,
                                 const side_t *sb, lt_t *out)
{
    lt_t batch_a = *a, batch_b = *b;
    batch_a.ndims = sa->n_batch;
    batch_b.ndims = sb->n_batch;
    return broadcast_dims(&batch_a, &batch_b, out)
               ? sinter_success
               : FAIL_SHAPE(node,
                            "batch dims of tensors %" PRIu64 " and %" PRIu64 " do not broadcast",
                            a->id, b->id);
}

/* The batch dims of an operand broadcast to those of the product. */
static void batch_back(lt_t *lt, int n_batch, const lt_t *product, int n_outer)
{
    lt_t batch = *lt, to = *product;
    batch.ndims = n_batch;
    to.ndims = product->ndims - n_outer;
    (void)shape_broadcasts_to(&batch, &to); /* what does not has been reported */
    memcpy(lt->dims, batch.dims, sizeof lt->dims[0] * (size_t)n_batch);
}

sinter_status_t shape_matmul(const node_t *node, lt_t *in, lt_t *out)
{
    lt_t *a = &in[0], *b = &in[1];
    lt_t got;
    if (a->ndims < 0 || b->ndims < 0) {
        return sinter_success;
    }
    if (a->ndims == 0 || b->ndims == 0) {
        return FAIL_SHAPE(node, "tensor %" PRIu64 " is a scalar", a->ndims == 0 ? a->id : b->id);
    }
    side_t sa = read_side(a, true, node_bool(node, sinter_op_attr_transpose_a, false));
    side_t sb = read_side(b, false, node_bool(node, sinter_op_attr_transpose_b, false));
    if (!dims_unify(sa.inner, sb.inner)) {
        return FAIL_SHAPE(node,
                          "tensor %" PRIu64 " reduces over %" PRId64 " elements, tensor %" PRIu64
                          " over %" PRId64,
                          a->id, *sa.inner, b->id, *sb.inner);
    }
    SG_TRY(put_batch(node, a, b, &sa, &sb, &got));
    const int n_outer = (sa.outer != NULL) + (sb.outer != NULL);
    if (sa.outer != NULL) {
        got.dims[got.ndims++] = *sa.outer;
    }
    if (sb.outer != NULL) {
        got.dims[got.ndims++] = *sb.outer;
    }
    if (node->n_in > 2 && !shape_broadcasts_to(&in[2], &got)) {
        return FAIL_SHAPE(node, "bias, tensor %" PRIu64 ", does not broadcast to the product",
                          in[2].id);
    }
    /* Two vectors give a scalar, which may be declared as [1]. */
    if (got.ndims == 0 && out[0].ndims == 1) {
        return shape_put(node, &out[0], 1, (int64_t[]){1});
    }
    SG_TRY(shape_put(node, &out[0], got.ndims, got.dims));
    if (sb.outer != NULL) {
        *sb.outer = got.dims[got.ndims - 1];
    }
    if (sa.outer != NULL) {
        *sa.outer = got.dims[got.ndims - n_outer];
    }
    batch_back(a, sa.n_batch, &got, n_outer);
    batch_back(b, sb.n_batch, &got, n_outer);
    return sinter_success;
}
