/* Which input of a LinearAttention is which. */
#ifndef SINTER_SRC_LINEAR_ATTENTION_H
#define SINTER_SRC_LINEAR_ATTENTION_H

#include <string.h>

#include "graph/node.h"

/* The inputs behind q, k, v and the state: the decay, and the rate, the bonus, or a and b that the
 * mode wants, then perhaps the slots of states that are read and that are written. -1: not
 * there. */
typedef struct linear_ports {
    int decay, beta, bonus, a, b, from, to;
    int least; /* inputs that the mode wants */
} linear_ports_t;

static inline linear_ports_t linear_ports(const node_t *node)
{
    const char *mode = node_str(node, sinter_op_attr_mode, "");
    const bool gated = strncmp(mode, "gated", 5) == 0, delta = strstr(mode, "delta") != NULL,
               bonus = strcmp(mode, "gated_bonus") == 0,
               low_rank = strcmp(mode, "gated_low_rank") == 0;
    const int least = 4 + gated + delta + bonus + 2 * low_rank;
    return (linear_ports_t){.decay = gated ? 4 : -1,
                            .beta = delta ? 4 + gated : -1,
                            .bonus = bonus ? 5 : -1,
                            .a = low_rank ? 5 : -1,
                            .b = low_rank ? 6 : -1,
                            .from = node->n_in > least ? least : -1,
                            .to = node->n_in > least + 1 ? least + 1 : -1,
                            .least = least};
}

#endif
