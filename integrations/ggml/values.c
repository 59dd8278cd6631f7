/* What tensors of ggml are in the graph that is being built. */
#include "values.h"

#include "layout.h"

const int gs_heads_first[GGML_MAX_DIMS] = {3, 1, 2, 0};

int gs_rank(const tensor_t *t)
{
    int rank = GGML_MAX_DIMS;
    while (rank > 2 && t->ne[rank - 1] == 1) {
        rank--;
    }
    return rank;
}

const int *gs_plain_order(int rank)
{
    static const int order[GGML_MAX_DIMS] = {3, 2, 1, 0};
    return order + GGML_MAX_DIMS - rank;
}

bool gs_in_graph(const gs_builder_t *b, const tensor_t *t)
{
    const int index = gs_tensors_find(b->tensors, t);
    if (index < b->first || index >= b->node) {
        return false;
    }
    return !gs_is_view(t) || (t->src[0] && gs_in_graph(b, t->src[0]));
}

gs_value_t *gs_version_of(const gs_builder_t *b, const tensor_t *t)
{
    const int index = gs_tensors_find(b->tensors, gs_root(t));
    return index >= 0 && b->versions[index].known ? &b->versions[index] : NULL;
}

/* ---- other dims ------------------------------------------------------------------------------ */

bool gs_reshape(gs_builder_t *b, const lt_t *x, const sinter_dim_t *from, int from_rank,
                const sinter_dim_t *to, int rank, lt_t *y)
{
    if (from_rank == rank && !memcmp(from, to, (size_t)rank * sizeof(*to))) {
        *y = *x;
        return true;
    }
    int64_t shape[GS_MAX_RANK];
    int open = 0;
    bool keep = false;
    for (int i = 0; i < rank; i++) {
        shape[i] = to[i];
        if (to[i] < 0 && i < from_rank && from[i] == to[i] && open > 0) {
            shape[i] = 0;
            keep = true;
        } else if (to[i] < 0) {
            shape[i] = -1;
            open++;
        }
    }
    if (open > 1) {
        return gs_fail(b, "a view of several dims that change");
    }
    *y = gs_inner(b, x->data_type);
    return gs_add(b, sinter_op_static_reshape, sinter_in(x), sinter_out(y),
                  sinter_attr_s64s(sinter_op_attr_shape, (size_t)rank, shape),
                  sinter_attr_bool(sinter_op_attr_special_zero, keep));
}

bool gs_slice(gs_builder_t *b, const lt_t *x, int axis, int64_t start, int64_t count, lt_t *y)
{
    *y = gs_inner(b, x->data_type);
    return gs_add(b, sinter_op_slice, sinter_in(x), sinter_out(y),
                  sinter_attr_s64(sinter_op_attr_starts, start),
                  sinter_attr_s64(sinter_op_attr_ends, start + count),
                  sinter_attr_s64(sinter_op_attr_axes, axis));
}

/* The tensor of a value with the dims of t in an order. Dims that the order leaves out are 1. */
static bool arrange(gs_builder_t *b, const gs_value_t *v, int rank, const int *order, lt_t *y)
{
    int base[GGML_MAX_DIMS], last = GGML_MAX_DIMS, n = 0;
    bool sorted = true, used[GGML_MAX_DIMS] = {0};
    sinter_dim_t dims[GGML_MAX_DIMS];
    for (int i = 0; i < rank; i++) {
        const int d = v->perm[order[i]];
        base[i] = d;
        dims[i] = v->ne[d];
        used[d] = true;
        if (dims[i] != 1) {
            sorted &= d < last;
            last = d;
        }
    }
    lt_t x;
    sinter_logical_tensor_init_unknown(&x, v->id, v->type, SINTER_UNKNOWN_NDIMS,
                                       sinter_tensor_property_undef);
    if (sorted) {
        return gs_reshape(b, &x, v->dims, v->rank, dims, rank, y);
    }
    /* All four dims in ggml's order, transposed, and without the dims of size 1 again. */
    const sinter_dim_t all[4] = {v->ne[3], v->ne[2], v->ne[1], v->ne[0]};
    int64_t turn[4];
    sinter_dim_t turned[4];
    for (int d = GGML_MAX_DIMS - 1; d >= 0; d--) {
        if (!used[d]) {
            turn[n++] = 3 - d;
        }
    }
    for (int i = 0; i < rank; i++) {
        turn[n++] = 3 - base[i];
    }
    for (int i = 0; i < 4; i++) {
        turned[i] = all[turn[i]];
    }
    lt_t four, z;
    if (!gs_reshape(b, &x, v->dims, v->rank, all, 4, &four)) {
        return false;
    }
    z = gs_inner(b, v->type);
    return gs_add(b, sinter_op_static_transpose, sinter_in(&four), sinter_out(&z),
                  sinter_attr_s64s(sinter_op_attr_order, 4, turn)) &&
           gs_reshape(b, &z, turned, 4, dims, rank, y);
}

/* The value of a tensor whose dims in Sinter are those of t in this order. */
static gs_value_t value_in_order(const gs_builder_t *b, const tensor_t *t, const lt_t *lt, int rank,
                                 const int *order)
{
    gs_value_t v = {.known = true, .id = lt->id, .type = lt->data_type, .rank = rank};
    bool used[GGML_MAX_DIMS] = {0};
    for (int i = 0; i < rank; i++) {
        const int base = rank - 1 - i;
        v.dims[i] = v.ne[base] = gs_dim(b, t, order[i]);
        v.perm[order[i]] = base;
        used[order[i]] = true;
    }
    for (int i = 0, base = rank; i < GGML_MAX_DIMS; i++) {
        if (!used[i] && base < GGML_MAX_DIMS) {
            v.perm[i] = base;
            v.ne[base++] = 1;
        }
    }
    return v;
}

/* ---- quantised tensors ----------------------------------------------------------------------- */

/* *x becomes the numbers of a plane, multiplied with those of the plane `by` if the type has
 * that. */
static bool scale_plane(gs_builder_t *b, const gs_layout_t *layout, int rank, const int *order,
                        int plane, int by, const lt_t *planes, lt_t *x)
{
    int64_t groups[GGML_MAX_DIMS];
    *x = planes[plane];
    if (layout->planes[by].type == sinter_data_type_undef) {
        return true;
    }
    for (int i = 0; i < rank; i++) {
        groups[i] = order[i] == 0 ? gs_plane_group(layout, by) / gs_plane_group(layout, plane) : 1;
    }
    *x = gs_inner(b, sinter_f32);
    return gs_add(b, sinter_op_dynamic_dequantize, sinter_in(&planes[plane]),
                  sinter_in(&planes[by]), sinter_out(x),
                  sinter_attr_str(sinter_op_attr_qtype, "per_group"),
                  sinter_attr_s64s(sinter_op_attr_group_shape, (size_t)rank, groups));
}

bool gs_dequantise_planes(gs_builder_t *b, const tensor_t *t, int rank, const int *order,
                          const lt_t *planes, lt_t *y)
{
    const gs_layout_t *layout = gs_layout_of(t->type);
    int64_t groups[GGML_MAX_DIMS];
    lt_t scales, offsets;
    for (int i = 0; i < rank; i++) {
        groups[i] = order[i] == 0 ? layout->group : 1;
    }
    sinter_op_part_t parts[8];
    int n = 0;
    if (!scale_plane(b, layout, rank, order, GS_SCALES, GS_SCALE_SCALES, planes, &scales)) {
        return false;
    }
    parts[n++] = sinter_in(&planes[GS_CODES]);
    parts[n++] = sinter_in(&scales);
    if (layout->planes[GS_OFFSETS].type != sinter_data_type_undef) {
        if (!scale_plane(b, layout, rank, order, GS_OFFSETS, GS_OFFSET_SCALES, planes, &offsets)) {
            return false;
        }
        parts[n++] = sinter_in(&offsets);
        parts[n++] = sinter_attr_str(sinter_op_attr_zps_kind, "offsets");
    }
    *y = gs_inner(b, sinter_f32);
    parts[n++] = sinter_out(y);
    parts[n++] = sinter_attr_str(sinter_op_attr_qtype, "per_group");
    parts[n++] = sinter_attr_s64s(sinter_op_attr_group_shape, (size_t)rank, groups);
    return gs_add_parts(b, sinter_op_dynamic_dequantize, n, parts);
}

/* A quantised tensor in memory as floats. */
static bool use_quantised(gs_builder_t *b, const tensor_t *t, int rank, const int *order, lt_t *y)
{
    const gs_layout_t *layout = gs_layout_of(t->type);
    lt_t planes[GS_PLANES];
    for (int p = 0; p < GS_PLANES; p++) {
        if (layout->planes[p].type != sinter_data_type_undef &&
            !gs_add_input(b, gs_input_in_order(b, t, p, rank, order), &planes[p])) {
            return false;
        }
    }
    return gs_dequantise_planes(b, t, rank, order, planes, y);
}

static bool gather(gs_builder_t *b, const lt_t *x, const lt_t *ids, lt_t *y)
{
    *y = gs_inner(b, x->data_type);
    return gs_add(b, sinter_op_gather, sinter_in(x), sinter_in(ids), sinter_out(y),
                  sinter_attr_s64(sinter_op_attr_axis, 0));
}

bool gs_use_gathered(gs_builder_t *b, const tensor_t *t, int rank, const lt_t *ids, int ids_rank,
                     lt_t *y)
{
    const gs_layout_t *layout = gs_layout_of(t->type);
    const int *order = gs_plain_order(rank), after = rank - 1 + ids_rank;
    lt_t all, planes[GS_PLANES];
    if (!layout || gs_version_of(b, t)) {
        return gs_use_plain(b, t, rank, &all) && gather(b, &all, ids, y);
    }
    for (int p = 0; p < GS_PLANES; p++) {
        if (layout->planes[p].type != sinter_data_type_undef &&
            (!gs_add_input(b, gs_input_in_order(b, t, p, rank, order), &all) ||
             !gather(b, &all, ids, &planes[p]))) {
            return false;
        }
    }
    return gs_dequantise_planes(b, t, after, gs_plain_order(after), planes, y);
}

/* ---- views ----------------------------------------------------------------------------------- */

/* Whether some dim of the view goes from head to head, through all of a row. */
static bool has_heads(const tensor_t *t, int64_t heads, size_t head)
{
    bool found = false;
    for (int i = 1; i < GGML_MAX_DIMS; i++) {
        found = found || (t->nb[i] == head && t->ne[i] == heads);
    }
    return found;
}

bool gs_turns(const tensor_t *t)
{
    return gs_op(t) == GS_OP_PERMUTE || gs_op(t) == GS_OP_TRANSPOSE;
}

const char *gs_view_of_rows(const tensor_t *t, gs_rows_t *rows)
{
    const tensor_t *root = gs_root(t);
    const size_t row = ggml_row_size(root->type, root->ne[0]);
    const size_t head = ggml_row_size(t->type, t->ne[0]);
    int *perm = rows->perm;
    if (t->type != root->type || t->ne[0] == 0 || t->ne[0] > root->ne[0]) {
        return "memory that an earlier node writes";
    }
    const int64_t heads = root->ne[0] / t->ne[0];
    *rows = (gs_rows_t){.heads = 1};
    if (heads > 1 && root->ne[0] % t->ne[0] == 0 && has_heads(t, heads, head)) {
        rows->heads = heads;
    } else {
        const size_t begin = (size_t)((const char *)t->data - (const char *)root->data) % row;
        rows->start = (int64_t)(begin / ggml_type_size(t->type)) * ggml_blck_size(t->type);
        if (begin % ggml_type_size(t->type) != 0 || rows->start + t->ne[0] > root->ne[0]) {
            return "memory that an earlier node writes";
        }
    }
    bool found[GGML_MAX_DIMS] = {true};
    int left[GGML_MAX_DIMS], n = 0;
    perm[0] = 0;
    for (int i = 1; i < GGML_MAX_DIMS; i++) {
        const int base = rows->heads > 1 && t->nb[i] == head && t->ne[i] == rows->heads ? 1
                         : t->nb[i] == row && t->ne[i] > 1                              ? 2
                         : t->nb[i] == root->nb[2] && t->ne[i] > 1 && root->ne[2] > 1   ? 3
                                                                                        : 0;
        if (base && !found[base]) {
            perm[i] = base;
            found[base] = true;
        } else if (t->ne[i] == 1) {
            left[n++] = i;
        } else {
            return "a view of memory that an earlier node writes";
        }
    }
    for (int base = 1; base < GGML_MAX_DIMS; base++) {
        if (!found[base]) {
            perm[left[--n]] = base;
        }
    }
    return NULL;
}

bool gs_view_of_columns(const tensor_t *t, int *perm)
{
    const tensor_t *root = gs_root(t);
    const size_t bytes = ggml_type_size(root->type), column = bytes * (size_t)root->ne[1],
                 begin = (size_t)((const char *)t->data - (const char *)root->data);
    int64_t ne[GGML_MAX_DIMS] = {t->ne[0], 1, 1, 1};
    int left[GGML_MAX_DIMS], n = 0;
    if (t->type != root->type || ggml_is_quantized(t->type) || t->nb[0] != bytes ||
        t->ne[0] > root->ne[1] || root->ne[0] < 2 || begin % root->nb[2] != 0) {
        return false;
    }
    for (int i = 1; i < GGML_MAX_DIMS; i++) {
        ne[1] = t->nb[i] == column && t->ne[i] > 1 ? t->ne[i] : ne[1];
    }
    bool found[GGML_MAX_DIMS] = {true};
    perm[0] = 0;
    for (int i = 1; i < GGML_MAX_DIMS; i++) {
        const int base = t->nb[i] == column                   ? 1
                         : t->nb[i] == column * (size_t)ne[1] ? 2
                         : t->nb[i] == root->nb[2]            ? 3
                                                              : 0;
        if (t->ne[i] == 1) {
            left[n++] = i;
        } else if (base == 0 || found[base]) {
            return false;
        } else {
            perm[i] = base;
            ne[base] = t->ne[i];
            found[base] = true;
        }
    }
    for (int base = 1; base < GGML_MAX_DIMS; base++) {
        if (!found[base]) {
            perm[left[--n]] = base;
        }
    }
    return ne[1] * ne[2] == root->ne[0];
}

/* The same of columns. */
static bool columns_of_version(gs_builder_t *b, const tensor_t *t, const gs_value_t *version,
                               gs_value_t *v)
{
    int perm[GGML_MAX_DIMS];
    if (!gs_view_of_columns(t, perm) || t->data != version->begin) {
        return gs_fail(b, "memory that an earlier node writes");
    }
    *v = *version;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        v->perm[i] = perm[i];
        v->ne[perm[i]] = gs_dim(b, t, i);
    }
    return (v->ne[0] == v->dims[2] && v->ne[3] == v->dims[0]) ||
           gs_fail(b, "other cells than an earlier node writes");
}

/* The value of a view of rows, whose tokens are dim `tokens` of `of`; sequences are before it. */
static gs_value_t value_of_rows(const tensor_t *t, const gs_rows_t *rows, const gs_value_t *of,
                                int tokens)
{
    gs_value_t v = *of;
    memcpy(v.perm, rows->perm, sizeof(v.perm));
    v.ne[0] = t->ne[0];
    v.ne[1] = rows->heads;
    v.ne[2] = of->dims[tokens];
    v.ne[3] = tokens > 0 ? of->dims[0] : 1;
    return v;
}

/* A view of the rows of a cache, of which an earlier node has written some. */
static bool rows_of_version(gs_builder_t *b, const tensor_t *t, const gs_value_t *version,
                            gs_value_t *v)
{
    gs_rows_t rows;
    const int rank = version->rank;
    *v = (gs_value_t){.known = true, .id = version->id, .type = version->type, .rank = rank};
    const char *why = gs_view_of_rows(t, &rows);
    if (why || version->id == 0 ||
        (const char *)t->data !=
            (const char *)version->begin + ggml_row_size(t->type, rows.start)) {
        return gs_fail(b, "%s", why ? why : "memory that an earlier node writes");
    }
    memcpy(v->dims, version->dims, sizeof(v->dims));
    const bool in_tiles =
        gs_heads_of(gs_root(t)).head > 0; /* else dims are [.., tokens, elements] */
    *v = value_of_rows(t, &rows, v, in_tiles ? 0 : rank - 2);
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (v->perm[i] >= 2 && gs_dim(b, t, i) != v->ne[v->perm[i]]) {
            return gs_fail(b, "other rows than an earlier node writes");
        }
    }
    if (in_tiles) {
        return (v->dims[1] == rows.heads && v->dims[2] == t->ne[0]) ||
               gs_fail(b, "other heads than those of the tiles");
    }
    if (rows.heads * t->ne[0] == version->dims[rank - 1]) {
        return true;
    }
    lt_t all, part;
    sinter_logical_tensor_init_unknown(&all, v->id, v->type, SINTER_UNKNOWN_NDIMS,
                                       sinter_tensor_property_undef);
    if (!gs_slice(b, &all, rank - 1, rows.start, t->ne[0], &part)) {
        return false;
    }
    v->id = part.id;
    v->dims[rank - 1] = t->ne[0];
    return true;
}

/* A view of a cache in tiles, as floats. */
static bool use_heads(gs_builder_t *b, const tensor_t *t, gs_heads_t heads, gs_value_t *v)
{
    const gs_layout_t *layout = gs_layout_of(t->type);
    gs_rows_t rows;
    lt_t planes[GS_PLANES], y;
    int dim = 1;
    const char *why = gs_view_of_rows(t, &rows);
    if (why || rows.start != 0 || t->ne[0] != heads.head || t->data != gs_root(t)->data) {
        return gs_fail(b, "%s", why ? why : "another part of a cache in tiles than its heads");
    }
    while (rows.perm[dim] != 2) {
        dim++;
    }
    for (int p = 0; p < GS_PLANES; p++) {
        if (layout->planes[p].type != sinter_data_type_undef &&
            !gs_add_input(b, gs_input_of_heads(b, gs_root(t), p, heads, t, dim), &planes[p])) {
            return false;
        }
    }
    if (!gs_dequantise_planes(b, t, 3, gs_plain_order(3), planes, &y)) {
        return false;
    }
    const gs_value_t all = {.known = true,
                            .id = y.id,
                            .type = y.data_type,
                            .rank = 3,
                            .dims = {gs_dim(b, t, dim), rows.heads, heads.head}};
    *v = value_of_rows(t, &rows, &all, 0);
    return true;
}

/* The dims of a tensor without those of size 1; neighbours whose elements follow one another are
 * merged into one. */
typedef struct runs {
    int n;
    int64_t ne[GGML_MAX_DIMS + 1];
    size_t nb[GGML_MAX_DIMS + 1];
} runs_t;

static runs_t runs_of(int dims, const int64_t *ne, const size_t *nb)
{
    runs_t r = {0};
    for (int i = 0; i < dims; i++) {
        const int last = r.n - 1;
        if (ne[i] == 1) {
            continue;
        }
        if (last >= 0 && nb[i] == r.nb[last] * (size_t)r.ne[last]) {
            r.ne[last] *= ne[i];
        } else {
            r.ne[r.n] = ne[i];
            r.nb[r.n++] = nb[i];
        }
    }
    return r;
}

/* Whether both go through the same elements in the same order. */
static bool same_runs(const runs_t *x, const runs_t *y)
{
    bool same = x->n == y->n;
    for (int i = 0; i < x->n && same; i++) {
        same = x->ne[i] == y->ne[i] && x->nb[i] == y->nb[i];
    }
    return same;
}

gs_part_t gs_part_of(const tensor_t *view, int *dim, int64_t *start, int64_t *count)
{
    const tensor_t *from = view->src[0];
    const size_t offset = (size_t)((const char *)view->data - (const char *)from->data);
    const int64_t all = ggml_nelements(from), some = ggml_nelements(view);
    if (some == all && offset == 0 && ggml_is_contiguous(view) && ggml_is_contiguous(from)) {
        return GS_PART_ALL;
    }
    const runs_t of_view = runs_of(GGML_MAX_DIMS, view->ne, view->nb);
    for (int d = 0; d < GGML_MAX_DIMS && some > 0; d++) {
        if (from->nb[d] == 0) {
            continue;
        }
        const int64_t each = all / from->ne[d];
        int64_t ne[GGML_MAX_DIMS];
        memcpy(ne, from->ne, sizeof(ne));
        ne[d] = some / each;
        *dim = d;
        *count = ne[d];
        *start = (int64_t)(offset / from->nb[d]);
        if (some % each || ne[d] == 0 || offset % from->nb[d] || *start + *count > from->ne[d]) {
            continue;
        }
        const runs_t of_part = runs_of(GGML_MAX_DIMS, ne, from->nb);
        if (same_runs(&of_view, &of_part)) {
            return GS_PART_OF_DIM;
        }
    }
    return GS_PART_OTHER;
}

/* What a view takes of its source where one dim of that is split: of each `size` elements along
 * dim `dim` those from start on, `count` of them. The keys and the values of a head lie side by
 * side in the result of one product, for example. */
typedef struct split {
    int dim;
    int64_t size, start, count;
} split_t;

static bool split_of(const tensor_t *view, split_t *s)
{
    const tensor_t *from = view->src[0];
    const size_t offset = (size_t)((const char *)view->data - (const char *)from->data);
    const int64_t all = ggml_nelements(from), some = ggml_nelements(view);
    const runs_t of_view = runs_of(GGML_MAX_DIMS, view->ne, view->nb);
    for (int at = 0; at < GGML_MAX_DIMS * GGML_MAX_DIMS && all > 0; at++) {
        const int d = at / GGML_MAX_DIMS, i = at % GGML_MAX_DIMS;
        int64_t ne[GGML_MAX_DIMS + 1];
        size_t nb[GGML_MAX_DIMS + 1];
        if (from->nb[d] == 0 || view->nb[i] % from->nb[d] != 0 || offset % from->nb[d] != 0) {
            continue;
        }
        *s = (split_t){.dim = d,
                       .size = (int64_t)(view->nb[i] / from->nb[d]),
                       .start = (int64_t)(offset / from->nb[d])};
        if (s->size < 2 || from->ne[d] % s->size != 0 || some % (all / s->size) != 0) {
            continue;
        }
        s->count = some / (all / s->size);
        for (int k = 0, n = 0; k < GGML_MAX_DIMS; k++) {
            ne[n] = k == d ? s->count : from->ne[k];
            nb[n++] = from->nb[k];
            if (k == d) {
                ne[n] = from->ne[k] / s->size;
                nb[n++] = from->nb[k] * (size_t)s->size;
            }
        }
        const runs_t of_part = runs_of(GGML_MAX_DIMS + 1, ne, nb);
        if (s->start + s->count <= s->size && same_runs(&of_view, &of_part)) {
            return true;
        }
    }
    return false;
}

/* Whether an op has made what t is a view of, so that it may be a value. */
static bool is_of_result(const tensor_t *t)
{
    while (gs_is_view(t) && t->src[0]) {
        t = t->src[0];
    }
    return !gs_is_view(t);
}

static uint64_t kind_of_view(const tensor_t *t)
{
    gs_rows_t rows;
    int dim = 0;
    int64_t start = 0, count = 0;
    const bool of_rows = !gs_view_of_rows(t, &rows);
    uint64_t kind = (uint64_t)of_rows;
    for (int i = 1; i < GGML_MAX_DIMS && of_rows; i++) {
        kind = kind << 2 | (uint64_t)rows.perm[i];
    }
    kind = kind << 1 | (uint64_t)(of_rows && rows.heads > 1);
    const gs_part_t part = gs_op(t) == GS_OP_VIEW && is_of_result(t)
                               ? gs_part_of(t, &dim, &start, &count)
                               : GS_PART_ALL;
    kind = kind << 2 | (uint64_t)part;
    split_t s;
    if (part == GS_PART_OTHER && split_of(t, &s)) {
        kind = gs_mix(gs_mix(kind, (uint64_t)s.dim), (uint64_t)s.size);
        return gs_mix(gs_mix(kind, (uint64_t)s.start), (uint64_t)s.count);
    }
    return part == GS_PART_OF_DIM
               ? (kind << 2 | (uint64_t)dim) << 48 ^ (uint64_t)start << 24 ^ (uint64_t)count
               : kind << 48;
}

uint64_t gs_kind_of_view(const tensor_t *t)
{
    gs_rows_t rows;
    const bool columns = gs_view_of_columns(t, rows.perm),
               streams = gs_root(t)->ne[2] > 1 && (columns || !gs_view_of_rows(t, &rows));
    uint64_t kind = gs_mix(kind_of_view(t), (uint64_t)columns);
    /* Slots of parts and of columns are made with the number of cells. */
    kind = columns || streams ? gs_mix(kind, (uint64_t)gs_root(t)->ne[1]) : kind;
    for (int i = 1; i < GGML_MAX_DIMS && streams; i++) {
        kind = gs_mix(kind, rows.perm[i] == 3 ? (uint64_t)t->ne[i] : 0);
    }
    return kind;
}

static bool value_of(gs_builder_t *b, const tensor_t *t, gs_value_t *v);

/* A view of a value: the same elements in other dims, or parts of it along one dim. */
static bool view_of_value(gs_builder_t *b, const tensor_t *t, gs_value_t *v)
{
    const tensor_t *from = t->src[0];
    gs_value_t source;
    if (!value_of(b, from, &source)) {
        return false;
    }
    *v = source;
    if (gs_turns(t)) {
        static const int swap[4] = {1, 0, 2, 3};
        for (int i = 0; i < GGML_MAX_DIMS; i++) {
            v->perm[gs_op(t) == GS_OP_TRANSPOSE ? swap[i] : t->op_params[i]] = source.perm[i];
        }
        return true;
    }
    int dim;
    int64_t start, count;
    const gs_part_t part = gs_part_of(t, &dim, &start, &count);
    split_t split;
    if (part == GS_PART_OTHER && !split_of(t, &split)) {
        return gs_fail(b, "a view that is no part along one dim");
    }
    const int rank = gs_rank(from), *order = gs_plain_order(rank);
    lt_t x, y;
    if (!arrange(b, &source, rank, order, &x)) {
        return false;
    }
    *v = value_in_order(b, from, &x, rank, order);
    if (part == GS_PART_OTHER) {
        const int axis = rank - 1 - split.dim;
        sinter_dim_t dims[GS_MAX_RANK];
        if (v->dims[axis] < 0) {
            return gs_fail(b, "a view that splits a dim of a size that changes");
        }
        memcpy(dims, v->dims, sizeof(dims));
        memmove(dims + axis + 1, dims + axis, (size_t)(rank - axis) * sizeof(*dims));
        dims[axis] = v->dims[axis] / split.size;
        dims[axis + 1] = split.size;
        if (!gs_reshape(b, &x, v->dims, rank, dims, rank + 1, &y) ||
            !gs_slice(b, &y, axis + 1, split.start, split.count, &x)) {
            return false;
        }
        v->id = x.id;
        v->rank = rank + 1;
        dims[axis + 1] = split.count;
        memcpy(v->dims, dims, sizeof(dims));
    }
    v->sorted = ggml_are_same_shape(t, from) ? source.sorted : 0;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        v->ne[i] = gs_dim(b, t, i);
        v->perm[i] = i;
    }
    if (part == GS_PART_OF_DIM) {
        const int axis = rank - 1 - dim;
        /* The value of an ARGSORT may have only its first parts already, as TopK gives them. */
        if (start > 0 || source.ne[source.perm[dim]] != count) {
            if (!gs_slice(b, &x, axis, start, count, &y)) {
                return false;
            }
            v->id = y.id;
        } else {
            v->sorted = source.sorted;
        }
        v->dims[axis] = count;
    }
    return true;
}

/* What a tensor is in this graph, where it is more than plain memory. v->known is false where it
 * is that. */
static bool value_of(gs_builder_t *b, const tensor_t *t, gs_value_t *v)
{
    const int index = gs_tensors_find(b->tensors, t);
    if (index < 0) {
        return gs_fail(b, "a tensor that is not in the list");
    }
    *v = b->values[index];
    if (v->known) {
        return true;
    }
    const gs_value_t *version = gs_version_of(b, t);
    if (gs_in_graph(b, t)) {
        if (!gs_is_view(t)) {
            return gs_fail(b, "%s of this graph has no value", ggml_op_name(t->op));
        }
        if (!view_of_value(b, t, v)) {
            return false;
        }
    } else if (version) {
        gs_rows_t rows;
        const bool turned = gs_turns(t) && !version->columns && gs_view_of_rows(t, &rows);
        if (version->columns ? !columns_of_version(b, t, version, v)
            : turned         ? !view_of_value(b, t, v)
                             : !rows_of_version(b, t, version, v)) {
            return false;
        }
    } else if (gs_layout_of(t->type) && gs_heads_of(gs_root(t)).head > 0) {
        if (!use_heads(b, t, gs_heads_of(gs_root(t)), v)) {
            return false;
        }
    } else if (gs_layout_of(t->type)) {
        const int rank = gs_rank(t), *order = gs_plain_order(rank);
        lt_t y;
        if (!use_quantised(b, t, rank, order, &y)) {
            return false;
        }
        *v = value_in_order(b, t, &y, rank, order);
    } else {
        return true;
    }
    b->values[index] = *v;
    return true;
}

/* ---- uses ------------------------------------------------------------------------------------ */

bool gs_use(gs_builder_t *b, const tensor_t *t, int rank, const int *order, lt_t *lt)
{
    gs_value_t v;
    if (!value_of(b, t, &v)) {
        return false;
    }
    return v.known ? arrange(b, &v, rank, order, lt)
                   : gs_add_input(b, gs_input_in_order(b, t, -1, rank, order), lt);
}

bool gs_use_plain(gs_builder_t *b, const tensor_t *t, int rank, lt_t *lt)
{
    return gs_use(b, t, rank, gs_plain_order(rank), lt);
}

/* ---- results --------------------------------------------------------------------------------- */

lt_t gs_result(gs_builder_t *b, int rank, const int *order)
{
    const tensor_t *t = b->tensors->list[b->node];
    lt_t lt = gs_inner(b, gs_plain_type(t->type));
    gs_output_t *output = gs_output_of(b, b->node);
    const bool open = gs_has_open(b, t),
               plain = order == gs_plain_order(rank) && ggml_is_contiguous(t);
    if (!output || (open && !plain)) {
        return lt;
    }
    output->id = lt.id;
    output->rank = rank;
    memcpy(output->dim, order, (size_t)rank * sizeof(*order));
    if (!open) {
        sinter_dim_t dims[GGML_MAX_DIMS], strides[GGML_MAX_DIMS];
        for (int i = 0; i < rank; i++) {
            dims[i] = t->ne[order[i]];
            strides[i] = (sinter_dim_t)(t->nb[order[i]] / ggml_type_size(t->type));
        }
        sinter_logical_tensor_init_with_strides(&lt, lt.id, lt.data_type, rank, dims, strides,
                                                sinter_tensor_property_undef);
    }
    return lt;
}

bool gs_done(gs_builder_t *b, const lt_t *lt, int rank, const int *order)
{
    b->values[b->node] = value_in_order(b, b->tensors->list[b->node], lt, rank, order);
    return true;
}

bool gs_convert(gs_builder_t *b, const lt_t *x, const lt_t *y)
{
    return gs_add(b, x->data_type == y->data_type ? sinter_op_reorder : sinter_op_type_cast,
                  sinter_in(x), sinter_out(y));
}

bool gs_use_floats(gs_builder_t *b, const tensor_t *t, int rank, lt_t *lt)
{
    lt_t x;
    if (!gs_use_plain(b, t, rank, &x)) {
        return false;
    }
    *lt = x.data_type == sinter_f32 ? x : gs_inner(b, sinter_f32);
    return x.data_type == sinter_f32 || gs_convert(b, &x, lt);
}

bool gs_copy_to_output(gs_builder_t *b)
{
    const tensor_t *t = b->tensors->list[b->node];
    const gs_output_t *output = gs_output_of(b, b->node);
    const int rank = gs_rank(t);
    lt_t x, y;
    if (!output || output->id != 0) {
        return true;
    }
    if (!gs_use_plain(b, t, rank, &x)) {
        return false;
    }
    y = gs_result(b, rank, gs_plain_order(rank));
    return output->id != 0 ? gs_convert(b, &x, &y)
                           : gs_fail(b, "an output of dims that change, in memory with gaps");
}
