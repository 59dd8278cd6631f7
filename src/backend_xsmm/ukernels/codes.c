/* The data types that products in integers take. */
#include "backend_xsmm/ukernels/codes.h"

/* The sums of P V are vectors of dwords: number 2 j + h has, in lane 4 l + k, half h of byte 16 l +
 * 4 j + k of the chunk; for codes of a byte there are no halves. */
static int nibble_at(int at)
{
    const int vector = at / 16, l = at % 16 / 4, k = at % 4;
    return 2 * (16 * l + 4 * (vector / 2) + k) + vector % 2;
}

static int byte_at(int at)
{
    return 16 * (at % 16 / 4) + 4 * (at / 16) + at % 4;
}

static const codes_type_t types[] = {
    [sinter_s4] = {CODES_NIBBLES, 128, 8, 8, 1, nibble_at},
    [sinter_u4] = {CODES_NIBBLES, 128, 0, 0, 1, nibble_at},
    [sinter_f4_e2m1] = {CODES_TABLE, 128, 0, 12, 0.5f, nibble_at},
    [sinter_s8] = {CODES_BYTES, 64, 0x80, 128, 1, byte_at},
    [sinter_u8] = {CODES_BYTES, 64, 0, 0, 1, byte_at},
};

const codes_type_t *codes_type(sinter_data_type_t type)
{
    const size_t n = sizeof types / sizeof *types;
    return (size_t)type < n && types[type].elems > 0 ? &types[type] : NULL;
}
