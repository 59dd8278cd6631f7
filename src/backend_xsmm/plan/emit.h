/* What the kinds of step use to emit their steps (lower_emit.c). */
#ifndef SINTER_SRC_EMIT_H
#define SINTER_SRC_EMIT_H

#include <string.h>

#include "backend_xsmm/plan/lower.h"
#include "backend_xsmm/step.h"
#include "base/status.h"

/* The chain that is being built, and the registers of its values. */
typedef struct emitter {
    lowering_t *lo;
    chain_builder_t b;
    int *reg; /* by graph value, valid where stamp says so */
    int *stamp;
    int now;
    bool f64;
} emitter_t;

static inline const node_t *emit_heavy(const emitter_t *e, const cluster_t *cl)
{
    return &e->lo->g->nodes[cl->heavy];
}

/* The value of a softmax's sinks; -1: it has none. */
static inline int softmax_sink(const node_t *n)
{
    return n->kind == sinter_op_softmax && n->n_in > 1 ? n->in[1] : -1;
}

static inline bool softmax_inf_as_zero(const node_t *n)
{
    return strcmp(node_str(n, sinter_op_attr_mode, "none"), "inf_as_zero") == 0;
}

void emit_set_reg(emitter_t *e, int v, int reg);
/* Notes the register that an op computed; -1: it found no room. */
sinter_status_t emit_result(emitter_t *e, int v, int reg);
/* Notes that the chain accesses a value. */
void emit_note_type(emitter_t *e, int value);
/* The register of a value, which is loaded where it is in none yet. */
sinter_status_t emit_reg(emitter_t *e, int v, int *reg);
/* An input of a product with its scales and zero points. */
sinter_status_t emit_operand(lowering_t *lo, const node_t *n, int port, operand_t *op);
/* The node before that dequantises a value, or what it is a view or another type of; NULL: none. */
const node_t *emit_dequant_before(const lowering_t *lo, int v);
/* An input of a product is codes times scales, whether this step dequantises them or an earlier one
 * has. Codes are not rounded to other integers. */
bool emit_is_of_codes(const lowering_t *lo, const node_t *product, int port);
/* The mode of a product: the partition's, unless that does not apply to integers. */
sinter_fpmath_mode_t emit_mode(const lowering_t *lo, const node_t *product);
/* The chain that computes value `to` from value `from`, which the kernel hands in, by nodes of
 * `all`, over the dims of value `space`; NULL if the values are the same. Views are elements that
 * stay where they are. */
sinter_status_t emit_part(emitter_t *e, const cluster_t *all, int from, int to, int space,
                          const chain_t **chain);
void emit_dynquant(const lowering_t *lo, int node, dynquant_params_t *p);

#endif
