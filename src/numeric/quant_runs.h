/* A part of quant_loops.h: runs of elements whose scales and zero points may have groups of
 * different sizes. The templates are inlined for constant `how`, `each` and sizes. */
#ifndef SINTER_SRC_NUMERIC_QUANT_RUNS_H
#define SINTER_SRC_NUMERIC_QUANT_RUNS_H

/* Where a run stands in a parameter. */
typedef struct cursor {
    const float *x;
    int64_t left, group;
} cursor_t;

OP cursor_t cursor_of(const quant_param_t *p, int at)
{
    const int64_t i = p->phase + at;
    return p->group == 1 ? (cursor_t){p->x + i, INT64_MAX, 1}
                         : (cursor_t){p->x + i / p->group, p->group - i % p->group, p->group};
}

OP int cursor_most(const cursor_t *c, int n)
{
    return c->left < n ? (int)c->left : n;
}

OP void cursor_move(cursor_t *c, int n)
{
    c->left -= n;
    if (c->left == 0) {
        c->left = c->group;
        c->x++;
    }
}

/* From element i on; each: element by element. */
OP void segments(dtype_way_t how, const float *x, int i, int n, const quant_param_t *scale,
                 const quant_param_t *zp, float *to)
{
    const bool s_each = scale->group == 1, z_each = zp->group == 1;
    cursor_t s = cursor_of(scale, i), z = cursor_of(zp, i);
    const int from = i;
    for (int k; i < n; i += k) {
        k = cursor_most(&s, cursor_most(&z, n - i));
        const float *by = s_each ? s.x + i - from : s.x, *zero = z_each ? z.x + i - from : z.x;
        if (s_each && z_each) {
            segment(how, x + i, k, by, zero, true, true, to + i);
        } else if (s_each) {
            segment(how, x + i, k, by, zero, true, false, to + i);
        } else if (z_each) {
            segment(how, x + i, k, by, zero, false, true, to + i);
        } else {
            segment(how, x + i, k, by, zero, false, false, to + i);
        }
        cursor_move(&s, k);
        cursor_move(&z, k);
    }
}

OP int groups_of(dtype_way_t how, int size, const float *x, int n, const float *s, const float *z,
                 int z_step, float *to)
{
    int i = 0;
    for (; i + size <= n; i += size, s++, z += z_step) {
        const vf s0 = vf_set1(*s), z0 = vf_set1(*z);
        for (int k = 0; k < size; k += LANES) {
            vf_store(to + i + k, rescaled(how, vf_load(x + i + k), s0, z0));
        }
    }
    return i;
}

/* The usual case, whole groups of a usual size: a broadcast or two for vectors of a known
 * number. Returns how many elements that did. */
OP int usual_groups(dtype_way_t how, const float *x, int n, const quant_param_t *scale,
                    const quant_param_t *zp, float *to)
{
    const int z_step = zp->group == scale->group;
    if (scale->phase != 0 || zp->phase != 0 || (!z_step && zp->group != QUANT_ONE)) {
        return 0;
    }
    switch (scale->group) {
    case 16:
        return groups_of(how, 16, x, n, scale->x, zp->x, z_step, to);
    case 32:
        return groups_of(how, 32, x, n, scale->x, zp->x, z_step, to);
    case 64:
        return groups_of(how, 64, x, n, scale->x, zp->x, z_step, to);
    case 128:
        return groups_of(how, 128, x, n, scale->x, zp->x, z_step, to);
    default:
        return 0;
    }
}

OP void run(dtype_way_t how, const float *x, int n, const quant_param_t *scale,
            const quant_param_t *zp, float *to)
{
    segments(how, x, usual_groups(how, x, n, scale, zp, to), n, scale, zp, to);
}

static const float no_zp = 0;
static const quant_param_t no_zps = {&no_zp, QUANT_ONE, 0};

TARGET static void dequant_run(const float *x, int n, const quant_param_t *scale,
                               const quant_param_t *zp, float *to)
{
    run(DTYPE_RESTORED, x, n, scale, zp != NULL ? zp : &no_zps, to);
}

TARGET static void offset_run(const float *x, int n, const quant_param_t *scale,
                              const quant_param_t *offset, float *to)
{
    run(DTYPE_OFFSET, x, n, scale, offset, to);
}

TARGET static void quant_run(const float *x, int n, const quant_param_t *scale,
                             const quant_param_t *zp, float *to)
{
    if (zp != NULL) {
        run(DTYPE_SHIFTED, x, n, scale, zp, to);
    } else {
        run(DTYPE_DIVIDED, x, n, scale, &no_zps, to);
    }
}

OP int spread_groups(const float *x, int n, int group, float *to)
{
    int i = 0;
    for (; i + group <= n; i += group, x++) {
        for (int k = 0; k < group; k++) {
            to[i + k] = *x;
        }
    }
    return i;
}

TARGET static void spread(const float *x, int n, int64_t group, int64_t phase, float *to)
{
    int i = 0;
    if (phase == 0) {
        i = group == 2   ? spread_groups(x, n, 2, to)
            : group == 4 ? spread_groups(x, n, 4, to)
            : group == 8 ? spread_groups(x, n, 8, to)
                         : 0;
        x += i / group;
    }
    for (int64_t left = group - phase; i < n; left = group, x++) {
        const int end = left < n - i ? i + (int)left : n;
        for (; i < end; i++) {
            to[i] = *x;
        }
    }
}

#endif
