/* Which micro-kernels a set of features has: projections of tables.def. */
#include <stddef.h>

#include "backend_xsmm/ukernels/attention_decode.h"
#include "backend_xsmm/ukernels/codes.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "backend_xsmm/ukernels/linear_attention.h"
#include "backend_xsmm/ukernels/matmul_blocks.h"
#include "backend_xsmm/ukernels/matmul_columns.h"
#include "backend_xsmm/ukernels/matmul_rows.h"
#include "backend_xsmm/ukernels/tile_isa.h"
#include "backend_xsmm/ukernels/tiles.h"

typedef enum family {
    FAMILY_eltwise,
    FAMILY_eltwise_f64,
    FAMILY_tile,
    FAMILY_codes,
    FAMILY_tiles,
    FAMILY_blocks,
    FAMILY_rows,
    FAMILY_columns,
    FAMILY_decode,
    FAMILY_linear
} family_t;

/* What the rows of a family name. */
typedef eltwise_table_t eltwise_family_t;
typedef eltwise_f64_t eltwise_f64_family_t;
typedef tile_table_t tile_family_t;
typedef codes_table_t codes_family_t;
typedef tiles_table_t tiles_family_t;
typedef blocks_table_t blocks_family_t;
typedef rows_floats_t rows_family_t[CODE_TYPES];
typedef columns_floats_t columns_family_t[CODE_TYPES];
typedef decode_ops_t decode_family_t[CODE_TYPES];
typedef linear_table_t linear_family_t;

#define SINTER_UKERNELS(family, needs, table) extern const family##_family_t table;
#include "backend_xsmm/ukernels/tables.def"

static const void *best_of(family_t family, features_t have)
{
    static const struct {
        family_t family;
        uint32_t needs;
        const void *table;
    } rows[] = {
#define SINTER_UKERNELS(family, needs, table) {FAMILY_##family, NEEDS_##needs, &table},
#define SINTER_NO_UKERNELS(family, needs) {FAMILY_##family, NEEDS_##needs, NULL},
#include "backend_xsmm/ukernels/tables.def"
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].family == family && has_features(have, rows[i].needs)) {
            return rows[i].table;
        }
    }
    return NULL;
}

#define TABLE(family, type, name)         \
    const type *name(features_t features) \
    {                                     \
        return best_of(family, features); \
    }
TABLE(FAMILY_eltwise, eltwise_table_t, eltwise_table)
TABLE(FAMILY_eltwise_f64, eltwise_f64_t, eltwise_f64)
TABLE(FAMILY_tile, tile_table_t, tile_table)
TABLE(FAMILY_codes, codes_table_t, codes_table)
TABLE(FAMILY_tiles, tiles_table_t, tiles_table)
TABLE(FAMILY_blocks, blocks_table_t, blocks_table)
TABLE(FAMILY_linear, linear_table_t, linear_table)

/* Families with a row for each data type: one without a layout is missing. */
#define TABLE_OF_TYPE(family, row_t, name)                                                \
    const row_t *name(features_t features, sinter_data_type_t type)                       \
    {                                                                                     \
        const row_t *rows = (size_t)type < CODE_TYPES ? best_of(family, features) : NULL; \
        return rows != NULL && rows[type].layout.elems > 0 ? &rows[type] : NULL;          \
    }
TABLE_OF_TYPE(FAMILY_rows, rows_floats_t, rows_floats)
TABLE_OF_TYPE(FAMILY_columns, columns_floats_t, columns_floats)
TABLE_OF_TYPE(FAMILY_decode, decode_ops_t, decode_ops)
