#include "patterns/tables.h"

const pattern_t *const sinter_patterns[] = {
#define SINTER_PATTERN(row) &pattern_##row,
#include "patterns/patterns.def"
#undef SINTER_PATTERN
};
const int sinter_n_patterns = (int)(sizeof(sinter_patterns) / sizeof(sinter_patterns[0]));
