/* Sets of CPU features. Kernels and tables of functions say which set they need; whether a machine
 * has it is asked here and nowhere else. */
#ifndef SINTER_SRC_FEATURES_H
#define SINTER_SRC_FEATURES_H

#include <stdbool.h>
#include <stdint.h>

#include <sinter/sinter_types.h>

enum feature_index {
#define SINTER_FEATURE(name, text, has) FEATURE_INDEX_##name,
#include "base/features.def"
#undef SINTER_FEATURE
    FEATURES
};

/* One more than the number of any level: for arrays by level. */
enum {
    LEVELS = 1
#define SINTER_LEVEL(name, needs, keeps) +1
#include "base/features.def"
#undef SINTER_LEVEL
};

enum {
#define SINTER_FEATURE(name, text, has) FEATURE_##name = 1 << FEATURE_INDEX_##name,
#include "base/features.def"
#undef SINTER_FEATURE
};

/* A struct, so that no number and no level passes for a set by mistake. */
typedef struct features {
    uint32_t bits; /* FEATURE_* */
} features_t;

enum {
#define SINTER_SET(name, bits) NEEDS_##name = bits,
#include "base/features.def"
#undef SINTER_SET
};

static inline bool has_features(features_t have, uint32_t needs)
{
    return (needs & ~have.bits) == 0;
}

/* What this machine has. */
features_t cpu_features(void);
/* The features that a cap at this level keeps; sinter_isa_default: all of them. */
features_t features_of_level(sinter_cpu_isa_t level);
/* The highest level that is included in a set; never sinter_isa_default. */
sinter_cpu_isa_t level_of_features(features_t features);
/* The machine's features that a cap at this level keeps: for tables of functions that are chosen
 * by level. */
features_t features_up_to(sinter_cpu_isa_t level);
/* The name of a feature that is needed and missing, NULL if there is none. */
const char *missing_feature(features_t have, uint32_t needs);

#endif
