/* Matmul: codes of an operand without their scales and zero points, and those apart, for the
 * kernels that multiply integers. */
#include <math.h>
#include <string.h>

#include "backend_xsmm/drivers/matmul/matmul.h"

/* Products with sums of integers stay in range, like those of quantised floats. */
#define SCALE_MOST 0x1p100f

/* The groups that places along an axis are in: the first one, how many, and which one each is
 * in, unless it is one for each, in order (true). */
static bool find_groups(const matmul_places_t *p, const axis_t *axis, int64_t *first, int *count,
                        int16_t *of)
{
    const int64_t size = axis->stride == 0 ? INT64_MAX : axis->group;
    *first = p->from / size;
    *count = (int)((p->from + (int64_t)(p->n - 1) * p->step) / size - *first) + 1;
    if (*count == p->n) { /* groups are no smaller than steps */
        return true;
    }
    for (int i = 0; i < p->n; i++) {
        of[i] = (int16_t)((p->from + (int64_t)i * p->step) / size - *first);
    }
    return false;
}

void matmul_load_coefs(const matmul_task_t *t, const groups_t *of, const matmul_places_t *rows,
                       const matmul_places_t *columns, float *to, int ld)
{
    const matrix_t m = matrix_of_groups(of);
    int16_t row[MM_HEIGHT] = {0}, column[BLOCKS_STRIP] = {0};
    rect_t at;
    const bool all_rows = find_groups(rows, &of->row, &at.row, &at.rows, row);
    const bool all_columns = find_groups(columns, &of->column, &at.column, &at.columns, column);
    t->c->tile->load(&m, at, to, ld, at.rows, ld);
    for (int r = all_columns ? -1 : at.rows - 1; r >= 0; r--) {
        for (int i = columns->n - 1; i >= 0; i--) {
            to[r * ld + i] = to[r * ld + column[i]];
        }
    }
    for (int r = all_rows ? -1 : rows->n - 1; r >= 0; r--) {
        memmove(to + r * ld, to + row[r] * ld, (size_t)ld * sizeof *to);
    }
}

bool matmul_scale_fits(float scale)
{
    return fabsf(scale) <= SCALE_MOST;
}

bool matmul_within(const float *x, int n, float most)
{
    int beyond = 0;
    for (int i = 0; i < n; i++) {
        beyond |= !(fabsf(x[i]) <= most);
    }
    return beyond == 0;
}

bool matmul_sums_fit(const matmul_task_t *t)
{
    int32_t most = 0;
    for (int r = 0; r < t->rows; r++) {
        t->c->quant->widen(t->buf.acc + (size_t)r * MM_PANEL, t->cols, 1, &most, NULL);
    }
    return most < 0x7F800000;
}

bool matmul_load_codes(matmul_task_t *t, int64_t k, int kn, int step, float *scale, float *zp,
                       int ld)
{
    const matmul_places_t columns = {k, (kn + step - 1) / step, step};
    for (int r = 0, n; r < t->rows; r += n) {
        matrix_t a;
        int64_t m;
        n = matmul_stretch(t, r, &a, &m);
        const matmul_places_t rows = {m, n, 1};
        matmul_load_coefs(t, &a.scale, &rows, &columns, scale + r * ld, ld);
        if (a.zp.type != NULL) {
            matmul_load_coefs(t, &a.zp, &rows, &columns, zp + r * ld, ld);
        } else {
            memset(zp + r * ld, 0, (size_t)(n * ld) * sizeof *zp);
        }
        a = matrix_of_codes(&a);
        t->c->tile->load(&a, (rect_t){m, n, k, kn}, t->buf.a + r * MM_LDA, MM_LDA, n, kn);
    }
    return matmul_within(scale, t->rows * ld, SCALE_MOST) &&
           matmul_within(zp, t->rows * ld, MATMUL_ZP_MOST);
}

/* What codes less their zero points are within. */
typedef struct range {
    int least, most;
} range_t;

static range_t range_of(sinter_data_type_t type, int steps)
{
    const dtype_traits_t *t = dtype_traits(type);
    const bool is_signed = t->digits < t->bits;
    if (t->cls != DTYPE_INT) {
        return (range_t){-6 * steps, 6 * steps}; /* f4_e2m1 */
    }
    return t->bits > 8 ? (range_t){-MATMUL_ZP_MOST * steps, MATMUL_ZP_MOST * steps}
           : is_signed ? (range_t){-(steps << (t->bits - 1)), steps * ((1 << (t->bits - 1)) - 1)}
                       : (range_t){0, steps * ((1 << t->bits) - 1)};
}

int matmul_code_limbs(const problem_t *p)
{
    const operand_t *a = &p->step->p.matmul.a;
    const sinter_data_type_t type = problem_type(p, a->data);
    const int steps = (int)blocks_steps(type);
    const range_t code = range_of(type, steps), none = {0, 0},
                  zp = a->zp < 0 ? none : range_of(problem_type(p, a->zp), steps);
    return code.least - zp.most >= -128 && code.most - zp.least <= 127 ? 1 : 2;
}
