/* GET_ROWS, SET_ROWS, copies and sorting: by Sinter, or, where blocks of ggml are involved, by
 * loops around ggml's own functions. */
#include <stdlib.h>

#include "layout.h"
#include "special.h"

/* Where row number i of a tensor with the dims of `like` lies in t. */
static size_t row_offset(const tensor_t *t, const tensor_t *like, int64_t i)
{
    const size_t i1 = (size_t)(i % like->ne[1]), i2 = (size_t)(i / like->ne[1] % like->ne[2]),
                 i3 = (size_t)(i / like->ne[1] / like->ne[2]);
    return i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3];
}

/* ---- GET_ROWS -------------------------------------------------------------------------------- */

/* Whether a GET_ROWS takes rows from a table for each of several lists of indices. */
static bool has_tables(const tensor_t *t)
{
    return t->src[0]->ne[2] != 1 || t->src[0]->ne[3] != 1;
}

/* Whether a GET_ROWS needs a loop: of blocks, and of tiles, from which a row comes back as
 * blocks. */
static bool get_rows_takes_loop(const tensor_t *t)
{
    const tensor_t *data = t->src[0];
    return gs_has_blocks(data) || gs_in_tiles(gs_root(data)) ||
           (has_tables(t) && ggml_is_quantized(data->type));
}

static int64_t rows_of_a_table(const tensor_t *t)
{
    return has_tables(t) ? t->src[0]->ne[1] : 0;
}

static const char *refuse_get_rows(const tensor_t *t)
{
    const tensor_t *data = t->src[0], *rows = t->src[1];
    const bool loop = get_rows_takes_loop(t);
    const bool decoded = loop && ggml_get_type_traits(data->type)->to_float != NULL;
    const char *why = decoded               ? gs_broken_blocks(data)
                      : gs_is_integer(data) ? gs_unreadable_plain(data)
                                            : gs_unreadable(data);
    if (why) {
        return why;
    }
    if (loop && data->nb[0] != ggml_type_size(data->type)) {
        return "tables that are transposed";
    }
    if (rows->type != GGML_TYPE_I32) {
        return "the indices' type";
    }
    return t->type == GGML_TYPE_F32 || t->type == data->type ? NULL : "a result that is not f32";
}

/* What TopK has found beside the indices, where the tables are what was sorted, with rows of one
 * element. 0: they are something else. */
static uint64_t sorted_elements(const gs_builder_t *b, const tensor_t *t)
{
    const tensor_t *data = t->src[0], *ids = t->src[1], *sorting = gs_root(ids);
    const bool same = gs_op(sorting) == GS_OP_ARGSORT && gs_op(data) == GS_OP_RESHAPE &&
                      data->src[0] == sorting->src[0] && data->ne[0] == 1 &&
                      data->ne[1] == sorting->ne[0];
    return same ? b->values[gs_tensors_find(b->tensors, ids)].sorted : 0;
}

/* Each table has indices of its own: two dims of both are the same. */
static bool translate_tables(gs_builder_t *b, const tensor_t *t)
{
    const tensor_t *data = t->src[0], *ids = t->src[1];
    const int rank = gs_rank(ids);
    lt_t tables, i, x, y;
    if (!gs_use_plain(b, ids, 3, &i)) {
        return false;
    }
    const uint64_t elements = sorted_elements(b, t); /* known only now that ids are used */
    if (elements) {
        const sinter_dim_t result[4] = {gs_dim(b, t, 3), gs_dim(b, t, 2), gs_dim(b, t, 1),
                                        gs_dim(b, t, 0)};
        const sinter_dim_t lists[3] = {gs_dim(b, ids, 2), gs_dim(b, ids, 1), gs_dim(b, ids, 0)};
        sinter_logical_tensor_init_unknown(&x, elements, sinter_f32, SINTER_UNKNOWN_NDIMS,
                                           sinter_tensor_property_undef);
        return gs_reshape(b, &x, lists + 3 - rank, rank, result, 4, &y) &&
               gs_done(b, &y, 4, gs_plain_order(4));
    }
    if (!gs_use_plain(b, data, 4, &tables)) {
        return false;
    }
    x = gs_inner(b, tables.data_type);
    if (!gs_add(b, sinter_op_gather, sinter_in(&tables), sinter_in(&i), sinter_out(&x),
                sinter_attr_s64(sinter_op_attr_axis, 2),
                sinter_attr_s64(sinter_op_attr_batch_dims, 2))) {
        return false;
    }
    const lt_t cast = gs_inner(b, gs_plain_type(t->type));
    const bool casts = x.data_type != cast.data_type;
    return (!casts || gs_convert(b, &x, &cast)) &&
           gs_done(b, casts ? &cast : &x, 4, gs_plain_order(4));
}

static bool translate_get_rows(gs_builder_t *b, const tensor_t *t)
{
    if (has_tables(t)) {
        return translate_tables(b, t);
    }
    const tensor_t *data = t->src[0];
    const int *order = gs_plain_order(2);
    lt_t rows, from, y;
    if (!gs_use_plain(b, t->src[1], 1, &rows)) {
        return false;
    }
    if (gs_layout_of(data->type) && !gs_version_of(b, data)) {
        return gs_use_gathered(b, data, 2, &rows, 1, &y) && gs_done(b, &y, 2, order);
    }
    if (!gs_use_plain(b, data, 2, &from)) {
        return false;
    }
    y = gs_result(b, 2, order);
    const bool cast = from.data_type != y.data_type;
    const lt_t some = cast ? gs_inner(b, from.data_type) : y;
    return gs_add(b, sinter_op_gather, sinter_in(&from), sinter_in(&rows), sinter_out(&some),
                  sinter_attr_s64(sinter_op_attr_axis, 0)) &&
           (!cast || gs_convert(b, &some, &y)) && gs_done(b, &y, 2, order);
}

static int64_t index_at(const tensor_t *ids, size_t i0, size_t i1, size_t i2)
{
    const char *at = (const char *)ids->data + i0 * ids->nb[0] + i1 * ids->nb[1] + i2 * ids->nb[2];
    return ids->type == GGML_TYPE_I64 ? *(const int64_t *)at : *(const int32_t *)at;
}

/* Whether all indices are rows of tables of so many. The log has the first that is not. */
static bool are_rows(const tensor_t *t, const tensor_t *ids, int64_t rows)
{
    for (int64_t i = 0; i < ggml_nelements(ids); i++) {
        const int64_t index =
            index_at(ids, (size_t)(i % ids->ne[0]), (size_t)(i / ids->ne[0] % ids->ne[1]),
                     (size_t)(i / ids->ne[0] / ids->ne[1]));
        if (index < 0 || index >= rows) {
            GGML_LOG_ERROR("sinter: %s %s: index %lld at position %lld of %s is outside of %lld "
                           "rows\n",
                           ggml_op_desc(t), t->name, (long long)index, (long long)i, ids->name,
                           (long long)rows);
            return false;
        }
    }
    return true;
}

static bool loop_get_rows(const tensor_t *t)
{
    const tensor_t *table = t->src[0], *ids = t->src[1];
    const struct ggml_type_traits *traits = ggml_get_type_traits(table->type);
    const size_t bytes = ggml_row_size(table->type, table->ne[0]);
    if (!are_rows(t, ids, table->ne[1])) {
        return false;
    }
    void *blocks = malloc(bytes);
    const bool ok = blocks != NULL;
    for (int64_t i = 0; i < ggml_nrows(t) && ok; i++) {
        const size_t i1 = (size_t)(i % t->ne[1]), i2 = (size_t)(i / t->ne[1] % t->ne[2]),
                     i3 = (size_t)(i / t->ne[1] / t->ne[2]);
        float *to = (float *)((char *)t->data + row_offset(t, t, i));
        const size_t at = (size_t)index_at(ids, i1, i2, i3) * table->nb[1] + i2 * table->nb[2] +
                          i3 * table->nb[3];
        if (gs_has_blocks(table) || !ggml_is_quantized(table->type)) {
            memcpy(blocks, (const char *)table->data + at, bytes);
        } else {
            ggml_backend_tensor_get(table, blocks, at, bytes);
        }
        if (table->type == GGML_TYPE_F32) {
            memcpy(to, blocks, bytes);
        } else {
            traits->to_float(blocks, to, t->ne[0]);
        }
    }
    free(blocks);
    return ok;
}

const gs_special_t gs_get_rows = {.translate = translate_get_rows,
                                  .refuse = refuse_get_rows,
                                  .takes_loop = get_rows_takes_loop,
                                  .loop = loop_get_rows,
                                  .fixed = rows_of_a_table};

/* ---- SET_ROWS -------------------------------------------------------------------------------- */

/* Whether a SET_ROWS writes into what an op has made: tables of floats, with a list of slots for
 * each. */
static bool is_into_result(const tensor_t *t)
{
    const tensor_t *rows = t->src[0], *slots = t->src[1];
    return gs_is_float(t) && gs_op(gs_root(t)) != GS_OP_NONE && ggml_is_contiguous(t) &&
           ggml_nelements(t) == ggml_nelements(gs_root(t)) && slots->type == GGML_TYPE_I32 &&
           slots->ne[1] == t->ne[2] && slots->ne[2] == t->ne[3] && rows->ne[2] == t->ne[2] &&
           rows->ne[3] == t->ne[3];
}

static int64_t rows_of_a_result(const tensor_t *t)
{
    return is_into_result(t) ? t->ne[1] : 0;
}

/* How DynamicQuantize makes the codes of a type, one row each. They are those of ggml's functions
 * but for elements near the middle of two codes: ggml makes codes with scales that are not yet
 * rounded to f16. */
typedef struct formula {
    enum ggml_type type;
    const char *kind;
    int64_t code_bits; /* 0: all that the codes' type has */
} formula_t;

static const formula_t formulas[] = {
    {GGML_TYPE_Q8_0, "dynamic_symmetric", 0},  {GGML_TYPE_Q4_0, "dynamic_signed", 0},
    {GGML_TYPE_Q4_1, "dynamic_asymmetric", 0}, {GGML_TYPE_Q5_0, "dynamic_signed", 5},
    {GGML_TYPE_Q5_1, "dynamic_asymmetric", 5}, {GGML_TYPE_IQ4_NL, "dynamic_iq4_nl", 0},
    {GGML_TYPE_MXFP4, "dynamic_mx", 0},
};

/* NULL: ggml's own functions make them. */
static const formula_t *formula_of(enum ggml_type type)
{
    for (size_t i = 0; i < sizeof(formulas) / sizeof(formulas[0]); i++) {
        if (formulas[i].type == type) {
            return &formulas[i];
        }
    }
    return NULL;
}

/* new[plane] = the codes, scales and offsets of rows. */
static bool quantise(gs_builder_t *b, const tensor_t *t, int rank, const lt_t *rows, lt_t *new)
{
    static const int64_t groups[3] = {1, 1, 32};
    const gs_layout_t *layout = gs_layout_of(t->type);
    const formula_t *formula = formula_of(t->type);
    sinter_op_part_t parts[9];
    int n = 0;
    parts[n++] = sinter_in(rows);
    for (int p = 0; p < GS_PLANES && layout->planes[p].type != sinter_data_type_undef; p++) {
        new[p] = gs_inner(b, layout->planes[p].type);
        parts[n++] = sinter_out(&new[p]);
    }
    parts[n++] = sinter_attr_str(sinter_op_attr_quantization_kind, formula->kind);
    parts[n++] = sinter_attr_str(sinter_op_attr_qtype, "per_group");
    parts[n++] = sinter_attr_s64s(sinter_op_attr_group_shape, (size_t)rank, groups + 3 - rank);
    if (layout->planes[GS_OFFSETS].type != sinter_data_type_undef) {
        parts[n++] = sinter_attr_str(sinter_op_attr_zps_kind, "offsets");
    }
    if (formula->code_bits > 0) {
        parts[n++] = sinter_attr_s64(sinter_op_attr_code_bits, formula->code_bits);
    }
    return gs_add_parts(b, sinter_op_dynamic_quantize, n, parts);
}

/* Whether a SET_ROWS needs a loop: ggml has to make the codes, or the rows do not belong to one
 * table. */
static bool set_rows_takes_loop(const tensor_t *t)
{
    const tensor_t *rows = t->src[0], *slots = t->src[1];
    if (is_into_result(t)) {
        return false;
    }
    const bool direct =
        gs_is_float(t) || (!gs_has_blocks(t) && !gs_in_tiles(gs_root(t)) && formula_of(t->type));
    const bool whole = gs_is_float(t) ? !gs_unreadable_plain(t) : !gs_broken_blocks(t);
    return !direct || t->ne[2] != 1 || t->ne[3] != 1 || rows->ne[2] != 1 || rows->ne[3] != 1 ||
           ggml_nrows(slots) != 1 || !whole;
}

static const char *refuse_set_rows(const tensor_t *t)
{
    const tensor_t *rows = t->src[0], *slots = t->src[1];
    const bool loop = set_rows_takes_loop(t);
    if (rows->type != GGML_TYPE_F32 && rows->type != GGML_TYPE_F16) {
        return "rows that are neither f32 nor f16";
    }
    if (slots->type != GGML_TYPE_I64 && slots->type != GGML_TYPE_I32) {
        return "the slots' type";
    }
    if (loop && !gs_is_float(t) && !ggml_get_type_traits(t->type)->from_float_ref) {
        return "its data type";
    }
    return loop && ggml_is_quantized(t->type) ? gs_broken_blocks(t) : NULL;
}

/* What a SET_ROWS writes, as the first node of the graph that reads it sees it. */
typedef struct seen {
    const tensor_t *view; /* NULL: nobody reads it, or in another way */
    bool columns;         /* the cells of each element lie side by side */
    int perm[GGML_MAX_DIMS];
} seen_t;

/* Which dim of the view has this number, see gs_rows_t. */
static int dim_of(const seen_t *seen, int base)
{
    int dim = 0;
    while (seen->perm[dim] != base) {
        dim++;
    }
    return dim;
}

/* Whether t is all of a cache that has a part for each sequence. */
static bool has_parts(const tensor_t *t)
{
    const tensor_t *root = gs_root(t);
    return root->ne[2] > 1 && root->ne[3] == 1 && ggml_nelements(root) == ggml_nelements(t);
}

/* Whether a view sees the first rows of t, or, where the root has a part for each sequence, the
 * first rows of some parts, or the same as columns, which SET_ROWS writes element by element. */
static bool sees(const tensor_t *view, const tensor_t *t, seen_t *seen)
{
    const tensor_t *root = gs_root(t);
    const size_t begin = (size_t)((const char *)view->data - (const char *)root->data);
    gs_rows_t rows;
    *seen = (seen_t){.view = view, .columns = t->ne[0] == 1 && gs_root(t)->ne[0] > 1};
    if (seen->columns) {
        return ggml_nelements(root) == ggml_nelements(t) && ggml_nelements(root) <= INT32_MAX &&
               gs_view_of_columns(view, seen->perm);
    }
    if (gs_view_of_rows(view, &rows)) {
        return false;
    }
    memcpy(seen->perm, rows.perm, sizeof(seen->perm));
    const int64_t count = view->ne[dim_of(seen, 2)];
    if (has_parts(t)) {
        return ggml_nrows(root) <= INT32_MAX && begin % root->nb[2] == 0 && count <= root->ne[1];
    }
    return t->ne[0] == root->ne[0] && view->data == t->data && count > 1 && count <= t->ne[1] &&
           view->ne[dim_of(seen, 3)] == 1;
}

static seen_t seen_of(const gs_builder_t *b, const tensor_t *t)
{
    const tensor_t *root = gs_root(t);
    seen_t seen = {0};
    for (int i = b->node + 1; i < b->end; i++) {
        const tensor_t *node = b->tensors->list[i];
        for (int s = 0; s < GGML_MAX_SRC; s++) {
            const tensor_t *src = node->src[s];
            if (!src || gs_is_view(node) || gs_root(src) != root || src == t ||
                gs_op(src) == GS_OP_NONE) {
                continue;
            }
            while (!sees(src, t, &seen) && gs_turns(src)) {
                src = src->src[0];
            }
            return sees(src, t, &seen) ? seen : (seen_t){0};
        }
    }
    return seen;
}

/* *before = the tables: a value, or memory that is written in place. */
static bool use_tables(gs_builder_t *b, const tensor_t *t, lt_t *before)
{
    if (gs_in_graph(b, t->src[2])) {
        return gs_use_plain(b, t->src[2], 4, before);
    }
    return gs_version_of(b, t)
               ? gs_fail(b, "memory that is written twice")
               : gs_add_input(b, gs_input_in_order(b, t, -1, 4, gs_plain_order(4)), before);
}

static bool translate_set_result(gs_builder_t *b, const tensor_t *t)
{
    lt_t before, slots, rows;
    if (!use_tables(b, t, &before) || !gs_use_plain(b, t->src[1], 3, &slots) ||
        !gs_use_plain(b, t->src[0], 4, &rows)) {
        return false;
    }
    if (rows.data_type != before.data_type) {
        const lt_t cast = gs_inner(b, before.data_type);
        if (!gs_convert(b, &rows, &cast)) {
            return false;
        }
        rows = cast;
    }
    const bool in_place = !gs_in_graph(b, t->src[2]);
    lt_t after = gs_inner(b, before.data_type);
    if (in_place) {
        after = before;
        after.id = ++b->ids;
    }
    if (!gs_add(b, sinter_op_scatter_rows, sinter_in(&before), sinter_in(&slots), sinter_in(&rows),
                sinter_out(&after), sinter_attr_s64(sinter_op_attr_axis, 2),
                sinter_attr_s64(sinter_op_attr_batch_dims, 2))) {
        return false;
    }
    if (in_place) {
        b->versions[gs_tensors_find(b->tensors, gs_root(t))] = (gs_value_t){.known = true};
        return gs_add_output(b, after.id, -1);
    }
    return gs_done(b, &after, 4, gs_plain_order(4));
}

/* *y = x - begin, or the least integer where that is below 0: -1 would leave a row out. Slots of 64
 * bits that do not fit 32 become the greatest or the least integer, which no part has. */
static bool slots_from(gs_builder_t *b, const lt_t *x, const lt_t *begin, lt_t *y)
{
    const int32_t integers[2] = {0, INT32_MIN};
    lt_t narrow = *x, zero, least;
    if (x->data_type != sinter_s32) {
        narrow = gs_inner(b, sinter_s32);
        if (!gs_convert(b, x, &narrow)) {
            return false;
        }
    }
    const lt_t from = gs_inner(b, sinter_s32), is_inside = gs_inner(b, sinter_boolean);
    *y = gs_inner(b, sinter_s32);
    return gs_integers(b, &integers[0], 1, &zero) && gs_integers(b, &integers[1], 1, &least) &&
           gs_add(b, sinter_op_subtract, sinter_in(&narrow), sinter_in(begin), sinter_out(&from)) &&
           gs_add(b, sinter_op_greater_equal, sinter_in(&from), sinter_in(&zero),
                  sinter_out(&is_inside)) &&
           gs_add(b, sinter_op_select, sinter_in(&is_inside), sinter_in(&from), sinter_in(&least),
                  sinter_out(y));
}

/* *y = slots of a cache that has a part for each sequence, or of columns, counted from the begin of
 * their part or column: [streams, columns, tokens], or [streams, tokens] where columns is 0.
 * ScatterRows checks that each slot lies in its part. All layers share the same result. */
static bool slots_of_parts(gs_builder_t *b, const tensor_t *slots, const gs_slots_t *parts, lt_t *y)
{
    const int64_t each = parts->columns > 0 ? parts->columns : 1, n = parts->streams * each;
    gs_slots_t *known = &b->slots[gs_tensors_find(b->tensors, slots)];
    *y = gs_inner(b, sinter_s32);
    if (known->id && known->streams == parts->streams && known->first == parts->first &&
        known->cells == parts->cells && known->columns == parts->columns) {
        y->id = known->id;
        return true;
    }
    lt_t all, split, first, begin, x, z;
    int32_t *begins = malloc((size_t)n * sizeof(*begins));
    for (int64_t i = 0; i < n && begins; i++) {
        begins[i] = (int32_t)((parts->first * each + i) * parts->cells);
    }
    const sinter_dim_t ones[1] = {n}, dims[3] = {parts->streams, 1, each};
    const int64_t shape[3] = {parts->streams, -1, each}, turn[3] = {0, 2, 1};
    split = gs_inner(b, gs_plain_type(slots->type));
    z = gs_inner(b, sinter_s32);
    const bool ok = begins && gs_integers(b, begins, (int)n, &first) &&
                    gs_add_input(b, gs_input_in_order(b, slots, -1, 1, gs_plain_order(1)), &all) &&
                    gs_add(b, sinter_op_static_reshape, sinter_in(&all), sinter_out(&split),
                           sinter_attr_s64s(sinter_op_attr_shape, 3, shape),
                           sinter_attr_bool(sinter_op_attr_special_zero, false)) &&
                    gs_reshape(b, &first, ones, 1, dims, 3, &begin) &&
                    slots_from(b, &split, &begin, &x) &&
                    gs_add(b, sinter_op_static_transpose, sinter_in(&x), sinter_out(&z),
                           sinter_attr_s64s(sinter_op_attr_order, 3, turn));
    free(begins);
    const int64_t lines[3] = {parts->streams, parts->columns > 0 ? each : -1, -1};
    if (!ok || !gs_add(b, sinter_op_static_reshape, sinter_in(&z), sinter_out(y),
                       sinter_attr_s64s(sinter_op_attr_shape, parts->columns > 0 ? 3 : 2, lines),
                       sinter_attr_bool(sinter_op_attr_special_zero, false))) {
        return false;
    }
    *known = *parts;
    known->id = y->id;
    return true;
}

/* A cache as the first node that reads it sees it: [rows, elements]; with parts for sequences
 * [streams, rows, elements]; as columns [streams, elements, rows]; in tiles [rows, heads, head]. */
typedef struct table {
    seen_t seen;
    gs_heads_t heads; /* in tiles */
    gs_slots_t parts; /* where slots are those of parts. columns: elements, or 0 */
    int rank;
} table_t;

static table_t table_of(const gs_builder_t *b, const tensor_t *t)
{
    const tensor_t *root = gs_root(t);
    table_t table = {.seen = seen_of(b, t), .rank = 2};
    const tensor_t *view = table.seen.view;
    table.heads = gs_layout_of(t->type) ? gs_heads_of(root) : (gs_heads_t){false, 0};
    if (table.heads.head > 0) {
        table.rank = 3;
        return table;
    }
    if (view && (table.seen.columns || has_parts(t))) {
        table.rank = 3;
        table.parts = (gs_slots_t){
            .streams = view->ne[dim_of(&table.seen, 3)],
            .first = (int64_t)((size_t)((const char *)view->data - (const char *)root->data) /
                               root->nb[2]),
            .cells = root->ne[1],
            .columns = table.seen.columns ? root->ne[0] : 0};
        /* Slots are read from memory, as many for each part. */
        const tensor_t *slots = t->src[1];
        const int64_t each = table.parts.columns > 0 ? table.parts.columns : 1;
        if (gs_in_graph(b, slots) || gs_version_of(b, slots) ||
            slots->ne[0] % (table.parts.streams * each) != 0) {
            table = (table_t){.rank = 2};
        }
    }
    return table;
}

/* The input that is a plane of a table. */
static gs_input_t input_of(const gs_builder_t *b, const tensor_t *t, const table_t *table,
                           int plane)
{
    const seen_t *seen = &table->seen;
    if (table->heads.head > 0) {
        return gs_input_of_heads(b, gs_root(t), plane, table->heads, seen->view ? seen->view : t,
                                 seen->view ? dim_of(seen, 2) : 1);
    }
    if (!seen->view) {
        return gs_input_in_order(b, t, plane, 2, gs_plain_order(2));
    }
    const int rows = seen->columns ? 0 : dim_of(seen, 2), streams = dim_of(seen, 3);
    const int order[3] = {streams, rows, 0}, columns[3] = {streams, dim_of(seen, 1), rows};
    gs_input_t in = gs_input_in_order(b, seen->view, plane, table->rank,
                                      seen->columns ? columns : order + 3 - table->rank);
    const int elements = seen->columns ? 1 : table->rank - 1;
    in.keeps_strides = table->rank == 3; /* the output that takes its buffer needs them */
    in.size_of[elements] = gs_tensors_find(b->tensors, seen->columns ? gs_root(t) : t);
    in.size_dim[elements] = 0;
    if (seen->columns && seen->view->ne[dim_of(seen, 1)] == 1) {
        in.stride_dim[1] = dim_of(seen, 2);
    }
    return in;
}

/* Rows as the table has them. */
static bool use_rows(gs_builder_t *b, const tensor_t *t, const table_t *table, lt_t *rows)
{
    const tensor_t *from = t->src[0];
    const gs_slots_t *parts = &table->parts;
    lt_t x, y;
    if (!gs_use_plain(b, from, 2, &x)) {
        return false;
    }
    if (table->heads.head > 0) {
        const sinter_dim_t dims[2] = {gs_dim(b, from, 1), t->ne[0]},
                           heads[3] = {dims[0], t->ne[0] / table->heads.head, table->heads.head};
        return gs_reshape(b, &x, dims, 2, heads, 3, rows);
    }
    if (table->rank == 2) {
        *rows = x;
        return true;
    }
    const int64_t elements = parts->columns > 0 ? parts->columns : t->ne[0],
                  shape[3] = {parts->streams, -1, elements}, turn[3] = {0, 2, 1};
    y = gs_inner(b, x.data_type);
    if (!gs_add(b, sinter_op_static_reshape, sinter_in(&x), sinter_out(&y),
                sinter_attr_s64s(sinter_op_attr_shape, 3, shape),
                sinter_attr_bool(sinter_op_attr_special_zero, false))) {
        return false;
    }
    *rows = parts->columns > 0 ? gs_inner(b, x.data_type) : y;
    return parts->columns == 0 ||
           gs_add(b, sinter_op_static_transpose, sinter_in(&y), sinter_out(rows),
                  sinter_attr_s64s(sinter_op_attr_order, 3, turn));
}

static bool translate_set_rows(gs_builder_t *b, const tensor_t *t)
{
    if (is_into_result(t)) {
        return translate_set_result(b, t);
    }
    const tensor_t *root = gs_root(t);
    const gs_layout_t *layout = gs_layout_of(t->type);
    const int root_index = gs_tensors_find(b->tensors, root);
    const table_t table = table_of(b, t);
    const int axis = table.parts.streams == 0 ? 0 : table.seen.columns ? 2 : 1;
    if (root_index < 0 || gs_version_of(b, t) || gs_in_graph(b, t->src[2])) {
        return gs_fail(b, "memory that is written twice");
    }
    lt_t rows, slots, y, new[GS_PLANES], after[GS_PLANES];
    if (!use_rows(b, t, &table, &rows) ||
        !(table.parts.streams == 0 ? gs_use_plain(b, t->src[1], 1, &slots)
                                   : slots_of_parts(b, t->src[1], &table.parts, &slots))) {
        return false;
    }
    if (layout) {
        if (!quantise(b, t, table.rank, &rows, new)) {
            return false;
        }
    } else if (rows.data_type == gs_plain_type(t->type)) {
        new[0] = rows;
    } else {
        new[0] = gs_inner(b, gs_plain_type(t->type));
        if (!gs_convert(b, &rows, &new[0])) {
            return false;
        }
    }
    for (int p = 0;
         p == 0 || (layout && p < GS_PLANES && layout->planes[p].type != sinter_data_type_undef);
         p++) {
        lt_t before;
        if (!gs_add_input(b, input_of(b, t, &table, layout ? p : -1), &before)) {
            return false;
        }
        before.property = sinter_tensor_property_undef;
        after[p] = before;
        after[p].id = ++b->ids;
        if (!gs_add(b, sinter_op_scatter_rows, sinter_in(&before), sinter_in(&slots),
                    sinter_in(&new[p]), sinter_out(&after[p]),
                    sinter_attr_s64(sinter_op_attr_axis, axis),
                    sinter_attr_s64(sinter_op_attr_batch_dims, axis)) ||
            !gs_add_output(b, after[p].id, -1)) {
            return false;
        }
    }
    y = after[0];
    if (layout && !gs_dequantise_planes(b, t, table.rank, gs_plain_order(table.rank), after, &y)) {
        return false;
    }
    /* Nobody but readers of the cache may use the result, which has fewer rows: the node itself has
     * no value. After parts of rows the cache has none either, so that readers begin a graph. */
    const seen_t *seen = &table.seen;
    const tensor_t *view = seen->view;
    gs_value_t version = {.known = true,
                          .id = seen->columns || t->ne[0] == root->ne[0] ? y.id : 0,
                          .type = y.data_type,
                          .rank = table.rank,
                          .begin = view ? view->data : t->data,
                          .columns = seen->columns};
    const sinter_dim_t cells = seen->columns ? gs_dim(b, view, 0)
                               : view        ? gs_dim(b, view, dim_of(seen, 2))
                                             : gs_dim(b, t, 1);
    if (table.heads.head > 0) {
        version.dims[0] = cells;
        version.dims[1] = t->ne[0] / table.heads.head;
        version.dims[2] = table.heads.head;
    } else {
        version.dims[0] = table.parts.streams;
        version.dims[table.rank - 2] = seen->columns ? root->ne[0] : cells;
        version.dims[table.rank - 1] = seen->columns ? cells : t->ne[0];
    }
    b->versions[root_index] = version;
    return true;
}

/* Codes that ggml makes. */
static bool loop_set_rows(const tensor_t *t)
{
    const tensor_t *from = t->src[0], *slots = t->src[1];
    const size_t bytes = ggml_row_size(t->type, t->ne[0]);
    if (!are_rows(t, slots, t->ne[1])) {
        return false;
    }
    void *blocks = malloc(bytes);
    float *floats = malloc((size_t)t->ne[0] * sizeof(*floats));
    const bool ok = blocks != NULL && floats != NULL;
    for (int64_t i = 0; i < ggml_nrows(from) && ok; i++) {
        const size_t i1 = (size_t)(i % from->ne[1]), i2 = (size_t)(i / from->ne[1] % from->ne[2]),
                     i3 = (size_t)(i / from->ne[1] / from->ne[2]);
        const size_t slot =
            (size_t)index_at(slots, i1, i2 % (size_t)slots->ne[1], i3 % (size_t)slots->ne[2]);
        const void *row = (const char *)from->data + row_offset(from, from, i);
        const float *x = row;
        if (from->type == GGML_TYPE_F16) {
            ggml_get_type_traits(GGML_TYPE_F16)->to_float(row, floats, t->ne[0]);
            x = floats;
        }
        if (t->type == GGML_TYPE_F32) {
            memcpy(blocks, x, bytes);
        } else {
            ggml_get_type_traits(t->type)->from_float_ref(x, blocks, t->ne[0]);
        }
        ggml_backend_tensor_set((struct ggml_tensor *)t, blocks,
                                slot * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3], bytes);
    }
    free(floats);
    free(blocks);
    return ok;
}

const gs_special_t gs_set_rows = {.translate = translate_set_rows,
                                  .refuse = refuse_set_rows,
                                  .takes_loop = set_rows_takes_loop,
                                  .loop = loop_set_rows,
                                  .fixed = rows_of_a_result};

/* ---- CPY, CONT, DUP -------------------------------------------------------------------------- */

/* Rows of the same dims, from a quantised type to itself or f32, or from f32 to it. */
static bool copies_blocks(const tensor_t *t)
{
    const tensor_t *src = t->src[0];
    const struct ggml_type_traits *from = ggml_get_type_traits(src->type),
                                  *to = ggml_get_type_traits(t->type);
    return (ggml_is_quantized(src->type) || ggml_is_quantized(t->type)) &&
           ggml_are_same_shape(src, t) && !gs_broken_blocks(src) && !gs_broken_blocks(t) &&
           (src->type == t->type || (src->type == GGML_TYPE_F32 && to->from_float_ref) ||
            (t->type == GGML_TYPE_F32 && from->to_float));
}

static const char *refuse_copy(const tensor_t *t)
{
    if (copies_blocks(t)) {
        return NULL;
    }
    const enum ggml_type from = t->src[0]->type;
    const bool same = from == t->type && gs_is_integer(t),
               numbers = (from == GGML_TYPE_I32 && t->type == GGML_TYPE_F32) ||
                         (from == GGML_TYPE_F32 && t->type == GGML_TYPE_I32);
    if (!same && !numbers && (!gs_is_float(t->src[0]) || !gs_is_float(t))) {
        return "a copy of other types than f32, f16, bf16 and i32";
    }
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (t->src[0]->nb[i] % ggml_type_size(t->src[0]->type) ||
            t->nb[i] % ggml_type_size(t->type)) {
            return "strides that are not whole elements";
        }
    }
    if (ggml_nelements(t) != ggml_nelements(t->src[0])) {
        return "a copy of other elements";
    }
    for (int i = 1; i < GGML_MAX_DIMS; i++) {
        /* A result with gaps is fine, one that covers itself is not. */
        if (t->ne[i] > 1 && t->nb[i] < t->nb[0]) {
            return "a result whose elements lie in one another";
        }
    }
    return NULL;
}

static bool translate_copy(gs_builder_t *b, const tensor_t *t)
{
    const tensor_t *src = t->src[0];
    const int rank = gs_rank(t), from = gs_rank(src);
    if (b->values[b->node].known) {
        return true; /* the op that makes the source writes it here */
    }
    lt_t x, z;
    sinter_dim_t dims[4], to[4];
    if (!gs_use_plain(b, src, from, &x)) {
        return false;
    }
    for (int i = 0; i < from; i++) {
        dims[i] = gs_dim(b, src, from - 1 - i);
    }
    for (int i = 0; i < rank; i++) {
        to[i] = gs_dim(b, t, rank - 1 - i);
    }
    if (!gs_reshape(b, &x, dims, from, to, rank, &z)) {
        return false;
    }
    /* Numbers become integers as in C. */
    if (src->type == GGML_TYPE_F32 && t->type == GGML_TYPE_I32) {
        x = gs_inner(b, sinter_f32);
        if (!gs_truncate(b, &z, &x)) {
            return false;
        }
        z = x;
    }
    const lt_t y = gs_result(b, rank, gs_plain_order(rank));
    return gs_convert(b, &z, &y) && gs_done(b, &y, rank, gs_plain_order(rank));
}

/* A copy from or to blocks: through floats, row by row. It is for shifts of a cache, which are
 * rare. */
static bool loop_copy(const tensor_t *t)
{
    const tensor_t *src = t->src[0];
    const size_t from = ggml_row_size(src->type, src->ne[0]), to = ggml_row_size(t->type, t->ne[0]);
    uint8_t *blocks = malloc(from > to ? from : to);
    float *floats = malloc((size_t)t->ne[0] * sizeof(*floats));
    const bool ok = blocks && floats;
    for (int64_t row = 0; row < ggml_nrows(t) && ok; row++) {
        ggml_backend_tensor_get(src, blocks, row_offset(src, t, row), from);
        const void *result = blocks;
        if (src->type == GGML_TYPE_F32) {
            memcpy(floats, blocks, from);
            ggml_get_type_traits(t->type)->from_float_ref(floats, blocks, t->ne[0]);
        } else if (src->type != t->type) {
            ggml_get_type_traits(src->type)->to_float(blocks, floats, t->ne[0]);
            result = floats;
        }
        ggml_backend_tensor_set((struct ggml_tensor *)t, result, row_offset(t, t, row), to);
    }
    free(blocks);
    free(floats);
    return ok;
}

const gs_special_t gs_copy = {.translate = translate_copy,
                              .refuse = refuse_copy,
                              .takes_loop = copies_blocks,
                              .loop = loop_copy};

/* ---- ARGSORT, TOP_K -------------------------------------------------------------------------- */

static const char *refuse_sorted(const tensor_t *t)
{
    return gs_unreadable_floats(t->src[0]);
}

static int64_t elements_of_a_row(const tensor_t *t)
{
    return t->src[0]->ne[0];
}

/* The value of the present node is the indices of the `count` first of each row in order. */
static bool sorted(gs_builder_t *b, const tensor_t *t, bool largest, int64_t count)
{
    const int rank = gs_rank(t), *order = gs_plain_order(rank);
    lt_t x;
    if (gs_dim(b, t->src[0], 0) < 0 || gs_dim(b, t, 0) < 0) {
        return gs_fail(b, "rows to be sorted of a length that changes");
    }
    if (!gs_use_plain(b, t->src[0], rank, &x)) {
        return false;
    }
    const lt_t values = gs_inner(b, sinter_f32), y = gs_result(b, rank, order);
    if (!gs_add(b, sinter_op_top_k, sinter_in(&x), sinter_out(&values), sinter_out(&y),
                sinter_attr_s64(sinter_op_attr_k, count), sinter_attr_s64(sinter_op_attr_axis, -1),
                sinter_attr_bool(sinter_op_attr_largest, largest))) {
        return false;
    }
    gs_done(b, &y, rank, order);
    gs_value_t *v = &b->values[b->node];
    v->dims[rank - 1] = v->ne[0] = count;
    v->sorted = x.data_type == sinter_f32 ? values.id : 0;
    return true;
}

/* How many elements at the begin of each row of the present node are read. */
static int64_t first_read(const gs_builder_t *b, const tensor_t *t)
{
    int64_t most = 1;
    for (int i = b->node + 1; i < b->end; i++) {
        const tensor_t *node = b->tensors->list[i];
        for (int s = 0; s < GGML_MAX_SRC; s++) {
            int dim;
            int64_t start, count;
            if (node->src[s] != t) {
                continue;
            }
            if (gs_op(node) != GS_OP_VIEW ||
                gs_part_of(node, &dim, &start, &count) != GS_PART_OF_DIM || dim != 0) {
                return t->ne[0];
            }
            most = start + count > most ? start + count : most;
        }
    }
    return gs_output_of(b, b->node) ? t->ne[0] : most;
}

static bool translate_argsort(gs_builder_t *b, const tensor_t *t)
{
    return sorted(b, t, t->op_params[0] == GGML_SORT_ORDER_DESC, first_read(b, t));
}

const gs_special_t gs_argsort = {
    .translate = translate_argsort, .refuse = refuse_sorted, .fixed = elements_of_a_row};

static int64_t elements_kept(const tensor_t *t)
{
    return t->src[0]->ne[0] << 32 | t->ne[0];
}

/* ggml leaves the order of the result open. */
static bool translate_top_k(gs_builder_t *b, const tensor_t *t)
{
    return sorted(b, t, true, t->ne[0]);
}

const gs_special_t gs_top_k = {
    .translate = translate_top_k, .refuse = refuse_sorted, .fixed = elements_kept};
