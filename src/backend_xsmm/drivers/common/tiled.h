/* A second operand of products that lies in tiles (numeric/tiles.h), bound to a frame: where its
 * strips are, and how micro-kernels are to read them. */
#ifndef SINTER_SRC_TILED_H
#define SINTER_SRC_TILED_H

#include "backend_xsmm/ukernels/tiles.h"
#include "numeric/groups.h"

/* Scales, offsets or zero points in tiles. */
typedef struct tiled_plane {
    tiles_plane_t first;     /* of the first strip */
    int64_t strip, by_strip; /* bytes from a strip to the next one */
    int64_t group;           /* tiles that share a value */
    bool halves;             /* a tile has two of them */
} tiled_plane_t;

/* B as micro-kernels read it from tiles. */
typedef struct tiled_b {
    const tiles_table_t *table; /* NULL: it does not lie in tiles, or not in those they take */
    sinter_data_type_t plain; /* B's type if it is plain floats, without coefficients; else undef */
    const codes_type_t *type;
    const unsigned char *data; /* of the codes */
    int64_t strip, tiles;      /* bytes from a strip to the next one, and tiles of a strip */
    const unsigned char *high; /* of split codes: the planes of 2 bits; else NULL */
    int tile;                  /* bytes of a tile */
    int kept, zero;            /* as tiles_strip_t has them */
    bool offsets;              /* `zp` has offsets */
    tiled_plane_t scale, zp;
    float values[16];        /* of codes of 4 bits, */
    unsigned char bytes[16]; /* and as integers */
} tiled_b_t;

/* The coefficients of a piece of a strip as floats. */
typedef struct tiles_coefs {
    _Alignas(TILES_LINE) float scale[2 * TILES_PIECE * TILES_COLUMNS];
    _Alignas(TILES_LINE) float zp[2 * TILES_PIECE * TILES_COLUMNS];
} tiles_coefs_t;

/* How scales or offsets of a type are read, of which so many bits are kept; false: they are not. */
bool tiled_values_type(sinter_data_type_t type, int kept, tiles_values_t *values);
/* From a matrix that lies in tiles as micro-kernels take them. */
void tiled_bind(features_t features, const matrix_t *b, int64_t K, tiled_b_t *to);
/* How many tiles of a strip to multiply at once from tile t on. */
int tiled_piece(const tiled_b_t *b, int64_t t);
/* Some lines of a plane from line `first` on, at most 2 TILES_PIECE, as floats, times `unit`. */
void tiled_values(const tiled_b_t *b, const tiled_plane_t *from, int64_t strip, int64_t first,
                  int lines, float unit, float *to);
/* n tiles of a strip from tile t on, whose codes begin there, with values that the caller has. */
tiles_strip_t tiled_strip(const tiled_b_t *b, const unsigned char *codes, int64_t t, int n,
                          const tiles_coefs_t *values);
/* n tiles of a strip, at most TILES_PIECE, from tile t on. Their coefficients are made in `to`, and
 * scales are times `unit`. */
tiles_strip_t tiled_coefs(const tiled_b_t *b, int64_t strip, int64_t t, int n, float unit,
                          tiles_coefs_t *to);

#endif
