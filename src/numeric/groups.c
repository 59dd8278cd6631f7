#include "numeric/groups.h"

void groups_load(const groups_t *g, features_t features, int64_t first, int64_t stride, int64_t n,
                 float *to)
{
    if (stride == 1 || n == 1) {
        dtype_bulk(g->dtype, features)->load(g->data, first, n, to);
    } else {
        g->type->codec.load_f32(g->data, first, stride, n, to);
    }
}
