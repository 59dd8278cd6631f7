/* What the machine can do, and the names of ISA levels and fpmath modes. cpu.c defines the
 * public sinter_cpu_isa_name, sinter_cpu_isa_parse, sinter_fpmath_mode_name and
 * sinter_fpmath_mode_parse. */
#ifndef SINTER_SRC_CPU_H
#define SINTER_SRC_CPU_H

#include <stdbool.h>
#include <stddef.h>

#include <sinter/sinter_types.h>

#include "base/features.h"

/* What the machine has below the caps max (sinter_isa_default: none) and SINTER_MAX_CPU_ISA; an
 * unknown max or environment value is sinter_invalid_arguments. */
sinter_status_t cpu_cap_features(sinter_cpu_isa_t max, features_t *features);
/* The level of those features. */
sinter_status_t cpu_isa_cap(sinter_cpu_isa_t max, sinter_cpu_isa_t *isa);
/* Bytes of the largest cache; 0 if the CPU does not say. */
size_t cpu_last_level_cache(void);
bool fpmath_mode_is_valid(sinter_fpmath_mode_t mode);

#endif
