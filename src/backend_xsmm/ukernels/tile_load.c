/* Loading of tiles, line by line: lines run along whichever of rows and columns is contiguous in
 * memory.
 *
 *   codes --dtype_bulk--> f32 line --(x - zp) * scale--> dst row,     or 16 such lines
 *   --transpose--> 16 dst columns */
#include "backend_xsmm/ukernels/tile_isa.h"

#include <math.h>
#include <string.h>

#include "numeric/packed.h"
#include "numeric/tiles.h"

/* A type with its conversion of consecutive elements, looked up once for each tile. */
typedef struct reader {
    const dtype_traits_t *type;
    const dtype_bulk_t *bulk;
} reader_t;

static reader_t reader_of(const tile_isa_t *isa, sinter_data_type_t type)
{
    return (reader_t){dtype_traits(type), dtype_bulk(type, isa->needs)};
}

static void read_elems(const reader_t *from, const unsigned char *base, int64_t first,
                       int64_t stride, int n, float *dst)
{
    if (stride == 1 || n == 1) {
        from->bulk->load(base, first, n, dst);
    } else {
        from->type->codec.load_f32(base, first, stride, n, dst);
    }
}

/* The stretch of all lines that is loaded: elements first .. first + n - 1 of each. */
typedef struct stretch {
    int64_t first;
    int n;
} stretch_t;

/* The scales, or the zero points, of a stretch. Where all groups are wide there is one value for
 * each group of a line, else one for each element. */
typedef struct coefs {
    const groups_t *of; /* lines are its rows */
    reader_t from;
    int64_t first_group;
    int groups, head, size; /* how many groups; elements in the first and in each other one */
    int64_t line, lines;    /* the lines of groups that x has the values of */
    const float *now;       /* the values of the current line */
    float x[TILE_LINE];
} coefs_t;

static void coefs_begin(coefs_t *k, const tile_isa_t *isa, const groups_t *of, stretch_t at)
{
    k->of = of;
    if (of->data == NULL) {
        return;
    }
    k->from = reader_of(isa, of->dtype);
    k->first_group = 0;
    k->groups = 1;
    k->head = k->size = at.n;
    k->lines = 0;
    if (of->column.stride != 0) {
        const int64_t group = of->column.group, left = group - at.first % group;
        k->first_group = at.first / group;
        k->groups = (int)((at.first + at.n - 1) / group - k->first_group) + 1;
        k->head = left < at.n ? (int)left : at.n;
        k->size = group < at.n ? (int)group : at.n;
    }
}

static void read_groups(const coefs_t *k, int64_t line, int64_t stride, int n, float *to)
{
    const groups_t *g = k->of;
    read_elems(&k->from, g->data,
               g->first + line * g->row.stride + k->first_group * g->column.stride, stride, n, to);
}

/* The values of the groups of as many lines before `end` as can be read with one stride. */
static void load_groups(coefs_t *k, int64_t line, int64_t end)
{
    const axis_t *row = &k->of->row, *column = &k->of->column;
    const bool one = k->groups == 1, dense = column->stride == 1 && row->stride == k->groups;
    const int64_t most = one || dense ? TILE_LINE / k->groups : 1;
    k->lines = end - line < most ? end - line : most;
    read_groups(k, line, one ? row->stride : column->stride, (int)k->lines * k->groups, k->x);
}

/* The values of one line, each as often as its group has elements in the stretch. */
static void spread_groups(const tile_isa_t *isa, coefs_t *k, int64_t line, int n)
{
    float values[TILE_LINE];
    k->lines = 1;
    read_groups(k, line, k->of->column.stride, k->groups, values);
    for (int g = 0, i = 0, left = k->head; g < k->groups; g++, left = k->size) {
        const int times = left < n - i ? left : n - i;
        if (times == 1) {
            k->x[i] = values[g];
        } else {
            isa->fill(k->x + i, values[g], times);
        }
        i += times;
    }
}

/* Makes k->now the values of the groups that a line is in. Lines before `end` will be asked for
 * as well, so that values for them may be loaded on the way. True if any were loaded. */
static bool coefs_at(const tile_isa_t *isa, coefs_t *k, bool wide, int64_t line, int64_t end, int n)
{
    const int64_t group = k->of->row.group; /* 1 is common, and division is slow */
    const int64_t at = group == 1 ? line : line / group,
                  end_at = group == 1 ? end : (end - 1) / group + 1;
    const bool load = k->lines == 0 || at < k->line || at >= k->line + k->lines;
    if (load && wide) {
        load_groups(k, at, end_at);
    } else if (load) {
        spread_groups(isa, k, at, n);
    }
    k->line = load ? at : k->line;
    k->now = k->x + (at - k->line) * (wide ? k->groups : n);
    return load;
}

/* Zero points of 32 bits may be so large that f32 does not hold them, or not their difference to
 * a code. */
static bool needs_f64(const float *zp, int64_t n)
{
    bool large = false;
    for (int64_t i = 0; i < n; i++) {
        large |= fabsf(zp[i]) > 0x1p22f;
    }
    return large;
}

static bool are_wide(const groups_t *g)
{
    return g->data == NULL || g->column.stride == 0 || g->column.group >= TILE_WIDE_GROUP;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* x = (x - zp) * scale, over runs of one scale and one zero point; or x * scale + offset. */
static void dequant_wide(const tile_isa_t *isa, const coefs_t *scales, const coefs_t *zps,
                         bool offsets, int n, float *x)
{
    const float none[2] = {1, 0};
    const bool has_scale = scales->of->data != NULL, has_zp = zps->of->data != NULL;
    const float *scale = has_scale ? scales->now : &none[0], *zp = has_zp ? zps->now : &none[1];
    int scale_left = has_scale ? scales->head : n, zp_left = has_zp ? zps->head : n;
    for (int i = 0, len; i < n; i += len) {
        len = least(least(scale_left, zp_left), n - i);
        (offsets ? isa->restore_group : isa->dequant_group)(x + i, *zp, *scale, len);
        scale_left -= len;
        zp_left -= len;
        if (i + len < n && scale_left == 0) {
            scale++;
            scale_left = scales->size;
        }
        if (i + len < n && zp_left == 0) {
            zp++;
            zp_left = zps->size;
        }
    }
}

/* A stretch of one line of split codes. */
static void split_line(const dtype_split_t *split, const matrix_t *m, int64_t line, stretch_t at,
                       float *dst)
{
    const groups_t *low = &m->codes, *high = &m->high;
    const int64_t low_at = codes_at(low, line, at.first), high_at = codes_at(high, line, at.first);
    if (low->column.stride == 1 && high->column.stride == 1) {
        split->load(low->data, low_at, high->data, high_at, at.n, dst);
        return;
    }
    float high_bits[TILE_LINE];
    low->type->codec.load_f32(low->data, low_at, low->column.stride, at.n, dst);
    high->type->codec.load_f32(high->data, high_at, high->column.stride, at.n, high_bits);
    split->join(dst, high_bits, at.n, dst);
}

static double value_f64(const groups_t *g, int64_t row, int64_t column)
{
    double x;
    g->type->codec.load_f64(g->data, groups_at(g, row, column), 0, 1, &x);
    return x;
}

/* The slow exact path, straight from the codecs in double. */
static void line_f64(const matrix_t *m, int64_t line, stretch_t at, float *dst)
{
    for (int i = 0; i < at.n; i++) {
        const int64_t c = at.first + i;
        double code;
        if (m->high.data != NULL) {
            float x;
            split_line(dtype_split(m->split, (features_t){NEEDS_NOTHING}), m, line,
                       (stretch_t){c, 1}, &x);
            code = (double)x;
        } else {
            code = value_f64(&m->codes, line, c);
        }
        const double zp = m->zp.data != NULL ? value_f64(&m->zp, line, c) : 0,
                     scale = m->scale.data != NULL ? value_f64(&m->scale, line, c) : 1;
        dst[i] = (float)(m->offsets ? code * scale + zp : (code - zp) * scale);
    }
}

/* The groups of a stretch as load_scaled takes them; false: scales and zero points differ in
 * them, or there are no scales. */
static bool same_groups(const coefs_t *scale, const coefs_t *zp, int n, dtype_scaled_t *g)
{
    const bool zps = zp->of->data != NULL && zp->groups > 1, one = scale->groups == 1;
    if (zps &&
        (zp->groups != scale->groups || zp->head != scale->head || zp->size != scale->size)) {
        return false;
    }
    g->zp_each = zps;
    g->group = one ? (n + DTYPE_GROUP - 1) / DTYPE_GROUP * DTYPE_GROUP : scale->size;
    g->phase = one ? 0 : scale->size - scale->head;
    return g->group % DTYPE_GROUP == 0 && g->phase % DTYPE_GROUP == 0;
}

/* A stretch of at most TILE_LINE elements of lines `line` .. line + lines - 1, which are rows of
 * m. */
static void load_lines(const tile_isa_t *isa, const matrix_t *m, int64_t line, int lines,
                       stretch_t at, float *dst, int64_t ld)
{
    static const float no_zp = 0;
    const groups_t *codes = &m->codes;
    const bool has_scale = m->scale.data != NULL, has_zp = m->zp.data != NULL,
               quantised = has_scale || has_zp, wide = are_wide(&m->scale) && are_wide(&m->zp);
    const dtype_split_t *split = m->high.data != NULL ? dtype_split(m->split, isa->needs) : NULL;
    const reader_t data = reader_of(isa, codes->dtype);
    const int64_t end = line + lines;
    bool f64 = codes->type->digits > 24; /* code - zp would not be exact in f32 */
    coefs_t scale, zp;
    dtype_scaled_t groups = {0};
    coefs_begin(&scale, isa, &m->scale, at);
    coefs_begin(&zp, isa, &m->zp, at);
    const bool scaled = has_scale && wide && !split && !m->offsets && codes->column.stride == 1 &&
                        data.bulk->load_scaled && same_groups(&scale, &zp, at.n, &groups);
    for (; line < end; line++, dst += ld) {
        const int64_t first = codes_at(codes, line, at.first);
        if (has_scale) {
            coefs_at(isa, &scale, wide, line, end, at.n);
        }
        if (has_zp && coefs_at(isa, &zp, wide, line, end, at.n)) {
            f64 =
                codes->type->digits > 24 ||
                (m->zp.type->digits > 24 && needs_f64(zp.x, zp.lines * (wide ? zp.groups : at.n)));
        }
        if (quantised && f64) {
            line_f64(m, line, at, dst);
            continue;
        }
        if (scaled) {
            groups.scale = scale.now;
            groups.zp = has_zp ? zp.now : &no_zp;
            data.bulk->load_scaled(codes->data, first, at.n, &groups, dst);
            continue;
        }
        if (split) {
            split_line(split, m, line, at, dst);
        } else {
            read_elems(&data, codes->data, first, codes->column.stride, at.n, dst);
        }
        if (quantised && wide) {
            dequant_wide(isa, &scale, &zp, m->offsets, at.n, dst);
        } else if (m->offsets) {
            isa->restore(dst, zp.now, scale.now, at.n);
        } else if (has_scale) {
            isa->dequant(dst, has_zp ? zp.now : NULL, scale.now, at.n);
        } else if (has_zp) {
            for (int i = 0; i < at.n; i++) {
                dst[i] -= zp.now[i];
            }
        }
    }
}

static void load_transposed(const tile_isa_t *isa, const matrix_t *m, rect_t at, float *dst,
                            int64_t ld)
{
    const matrix_t t = matrix_transposed(m);
    enum { LD = TILE_LINE + TILE_LANES }; /* lines do not meet in the same cache sets */
    _Alignas(64) float lines[TILE_LANES * LD];
    for (int r = 0; r < at.rows; r += TILE_LINE) {
        const int n = least(at.rows - r, TILE_LINE);
        for (int c = 0; c < at.columns; c += TILE_LANES) {
            const int n_lines = least(at.columns - c, TILE_LANES);
            load_lines(isa, &t, at.column + c, n_lines, (stretch_t){at.row + r, n}, lines, LD);
            isa->transpose(lines, LD, n_lines, n, dst + r * ld + c, ld);
        }
    }
}

/* Floats whose rows are contiguous are copied: lines may be too short for anything else. */
static bool are_floats(const matrix_t *m)
{
    return m->codes.dtype == sinter_f32 && m->codes.column.stride == 1 && m->scale.data == NULL &&
           m->zp.data == NULL && m->high.data == NULL;
}

/* Block by block, along the axis that lies in blocks. */
static void load_blocks(const tile_isa_t *isa, const matrix_t *m, rect_t at, float *dst, int64_t ld)
{
    const int64_t block = m->codes.block;
    const bool down = m->codes.column.stride != 1;
    const int64_t first = down ? at.row : at.column;
    const int n = down ? at.rows : at.columns;
    for (int i = 0, some; i < n; i += some) {
        const matrix_t of = codes_of_block(m, (first + i) / block);
        some = least(n - i, (int)(block - (first + i) % block));
        const rect_t part = down ? (rect_t){first + i, some, at.column, at.columns}
                                 : (rect_t){at.row, at.rows, first + i, some};
        tile_load(isa, &of, part, down ? dst + i * ld : dst + i, ld, 0, 0);
    }
}

/* ---- tiles of weights: numeric/tiles.h ------------------------------------------------------- */

/* n values of a plane from some place on, of which some bits are kept. */
static void read_kept(const groups_t *g, const unsigned char *base, int64_t at, int n, float *to)
{
    const int kept = tiles_kept(g->tiled), zero = tiles_zero(kept, g->dtype);
    for (int i = 0, some; i < n; i += some) {
        const int64_t line = (at + i) / TILES_COLUMNS;
        const int first = (int)((at + i) % TILES_COLUMNS);
        uint8_t value[TILES_COLUMNS];
        some = least(n - i, TILES_COLUMNS - first);
        tiles_kept_values(base + line * (TILES_COLUMNS * kept / 8), kept, value);
        for (int c = 0; c < some; c++) {
            to[i + c] = (float)(value[first + c] - zero);
        }
    }
}

/* n values of any plane; zero points as they are. */
static void read_values(const tile_isa_t *isa, const groups_t *g, const unsigned char *base,
                        int64_t at, int n, float *to)
{
    if (tiles_kept(g->tiled) > 0) {
        read_kept(g, base, at, n, to);
        return;
    }
    const bool zps = g->type->cls == DTYPE_INT;
    const float more = g->dtype == sinter_u8 ? 128 : 0;
    dtype_bulk(zps ? sinter_s8 : g->dtype, isa->needs)->load(base, at, n, to);
    for (int i = 0; more != 0 && i < n; i++) {
        to[i] += more;
    }
}

/* The values of a row for the columns of a strip. */
static void read_strip(const tile_isa_t *isa, const groups_t *g, int64_t strip, int64_t row,
                       float *to)
{
    const bool each = g->column.stride != 0;
    const int n = each && g->column.group == 1 ? TILES_COLUMNS : 1; /* that lie together */
    const int64_t line = g->row.stride == 0 ? 0 : row / g->row.group * TILES_COLUMNS;
    for (int c = 0; c < TILES_COLUMNS; c += n) {
        const int64_t column = each ? (strip * TILES_COLUMNS + c) / g->column.group : 0;
        read_values(isa, g, g->data + column / TILES_COLUMNS * g->strip,
                    line + column % TILES_COLUMNS, n, to + c);
    }
}

/* Scales or offsets, with what they are multiplied with. */
static void read_scaled(const tile_isa_t *isa, const groups_t *g, const groups_t *by, int64_t strip,
                        int64_t row, float *to)
{
    float factor[TILES_COLUMNS];
    read_strip(isa, g, strip, row, to);
    if (by->type != NULL) {
        read_strip(isa, by, strip, row, factor);
        for (int c = 0; c < TILES_COLUMNS; c++) {
            to[c] *= factor[c];
        }
    }
}

/* Scales or zero points alone, which are a matrix of single elements: rows of a strip follow one
 * another. */
static void load_values(const tile_isa_t *isa, const matrix_t *m, rect_t at, float *dst, int64_t ld)
{
    enum { SOME = 32 };
    const groups_t *g = &m->codes;
    float x[SOME * TILES_COLUMNS];
    for (int c = 0, n; c < at.columns; c += n) {
        const int64_t column = at.column + c;
        const int first = (int)(column % TILES_COLUMNS);
        n = least(at.columns - c, TILES_COLUMNS - first);
        for (int r = 0, rows; r < at.rows; r += rows) {
            rows = least(at.rows - r, SOME);
            read_values(isa, g, g->data + column / TILES_COLUMNS * g->strip,
                        (at.row + r) * TILES_COLUMNS, rows * TILES_COLUMNS, x);
            for (int i = 0; i < rows; i++) {
                memcpy(dst + (r + i) * ld + c, x + i * TILES_COLUMNS + first,
                       (size_t)n * sizeof *x);
            }
        }
    }
}

/* The high bits of the split codes of a tile. */
static void add_high(const matrix_t *m, int64_t strip, int64_t tile, uint8_t (*code)[TILES_COLUMNS])
{
    const groups_t *high = &m->high;
    const int bytes = tiles_bytes(high->type->bits);
    uint8_t bits[TILES_K][TILES_COLUMNS];
    tiles_codes(high->data + strip * high->strip + tile * bytes, high->tiled, high->dtype, bits);
    for (int i = 0; i < TILES_K * TILES_COLUMNS; i++) {
        code[i / TILES_COLUMNS][i % TILES_COLUMNS] |=
            (uint8_t)(bits[i / TILES_COLUMNS][i % TILES_COLUMNS] << m->codes.type->bits);
    }
}

/* n columns from column `first` of a strip on. */
static void load_strip(const tile_isa_t *isa, const matrix_t *m, int64_t strip, int first, int n,
                       rect_t at, float *dst, int64_t ld)
{
    const groups_t *codes = &m->codes;
    const unsigned char *base = codes->data + strip * codes->strip;
    const dtype_traits_t *type = m->high.data != NULL ? dtype_traits(m->split) : codes->type;
    const int bits = type->bits, bytes = tiles_bytes(tiles_bits(codes->tiled, codes->dtype));
    const bool has_scale = m->scale.data != NULL, has_zp = m->zp.data != NULL;
    uint8_t code[TILES_K][TILES_COLUMNS];
    float scale[TILES_COLUMNS], zp[TILES_COLUMNS], x[TILES_COLUMNS];
    int64_t tile = -1, scales = -1, zps = -1;
    for (int r = 0; r < at.rows; r++, dst += ld) {
        const int64_t k = at.row + r;
        if (k / TILES_K != tile) {
            tile = k / TILES_K;
            tiles_codes(base + tile * bytes, codes->tiled, codes->dtype, code);
            if (m->high.data != NULL) {
                add_high(m, strip, tile, code);
            }
        }
        if (has_scale && k / m->scale.row.group != scales) {
            scales = k / m->scale.row.group;
            read_scaled(isa, &m->scale, &m->scale_scale, strip, k, scale);
        }
        if (has_zp && k / m->zp.row.group != zps) {
            zps = k / m->zp.row.group;
            read_scaled(isa, &m->zp, &m->zp_scale, strip, k, zp);
        }
        const uint8_t *line = code[k % TILES_K];
        uint8_t packed[TILES_COLUMNS] = {0};
        for (int c = 0; bits < 8 && c < TILES_COLUMNS; c++) {
            packed_put(bits, packed, c, line[c]);
        }
        type->codec.load_f32(bits < 8 ? packed : line, 0, 1, TILES_COLUMNS, x);
        if (m->offsets) {
            isa->restore(x, zp, scale, TILES_COLUMNS);
        } else if (has_scale) {
            isa->dequant(x, has_zp ? zp : NULL, scale, TILES_COLUMNS);
        } else {
            for (int c = 0; has_zp && c < TILES_COLUMNS; c++) {
                x[c] -= zp[c];
            }
        }
        memcpy(dst, x + first, (size_t)n * sizeof *x);
    }
}

/* The same of plain floats. */
static void load_floats(const tile_isa_t *isa, const matrix_t *m, int64_t strip, int first, int n,
                        rect_t at, float *dst, int64_t ld)
{
    const groups_t *g = &m->codes;
    const int bits = g->type->bits, bytes = bits / 8;
    const dtype_bulk_t *bulk = dtype_bulk(g->dtype, isa->needs);
    for (int r = 0; r < at.rows; r++) {
        const int64_t k = at.row + r;
        const unsigned char *tile = g->data + strip * g->strip + k / TILES_K * tiles_bytes(bits);
        unsigned char row[TILES_LINE];
        for (int c = 0; c < n; c++) {
            memcpy(row + c * bytes, tile + tiles_place(bits, (int)(k % TILES_K), first + c),
                   (size_t)bytes);
        }
        bulk->load(row, 0, n, dst + r * ld);
    }
}

static void load_tiles(const tile_isa_t *isa, const matrix_t *m, rect_t at, float *dst, int64_t ld)
{
    for (int c = 0, n; c < at.columns; c += n) {
        const int64_t column = at.column + c;
        const int first = (int)(column % TILES_COLUMNS);
        n = least(at.columns - c, TILES_COLUMNS - first);
        if (m->codes.type->bits > 8) {
            load_floats(isa, m, column / TILES_COLUMNS, first, n, at, dst + c, ld);
        } else {
            load_strip(isa, m, column / TILES_COLUMNS, first, n, at, dst + c, ld);
        }
    }
}

void tile_load(const tile_isa_t *isa, const matrix_t *m, rect_t at, float *dst, int64_t ld,
               int pad_rows, int pad_columns)
{
    if (tiles_are_values(m->codes.tiled)) {
        load_values(isa, m, at, dst, ld);
    } else if (m->codes.tiled != NOT_TILED) {
        load_tiles(isa, m, at, dst, ld);
    } else if (m->codes.block > 0) {
        load_blocks(isa, m, at, dst, ld);
    } else if (are_floats(m)) {
        isa->copy(groups_byte(&m->codes, codes_at(&m->codes, at.row, at.column)),
                  m->codes.row.stride, at.rows, at.columns, dst, ld);
    } else if (m->codes.column.stride != 1 && m->codes.row.stride == 1) {
        load_transposed(isa, m, at, dst, ld);
    } else {
        for (int c = 0; c < at.columns; c += TILE_LINE) {
            load_lines(isa, m, at.row, at.rows,
                       (stretch_t){at.column + c, least(at.columns - c, TILE_LINE)}, dst + c, ld);
        }
    }
    for (int r = 0; r < at.rows && pad_columns > at.columns; r++) {
        memset(dst + r * ld + at.columns, 0, (size_t)(pad_columns - at.columns) * sizeof(float));
    }
    for (int r = at.rows; r < pad_rows; r++) {
        memset(dst + r * ld, 0,
               (size_t)(pad_columns > at.columns ? pad_columns : at.columns) * sizeof(float));
    }
}
