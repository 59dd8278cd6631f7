/* Where tables of op kinds have their rows. Numbers of Sinter's own ops begin at 0x1000; their rows
 * follow those of oneDNN Graph's ops, so that tables have no large gap. */
#ifndef SINTER_SRC_BASE_OP_SLOT_H
#define SINTER_SRC_BASE_OP_SLOT_H

#include <sinter/sinter_types.h>

enum { OP_OWN = 0x1000, OP_OWN_SLOT = 128 };

/* A constant expression, for the tables themselves. */
#define OP_SLOT(kind) ((int)(kind) < OP_OWN ? (int)(kind) : (int)(kind)-OP_OWN + OP_OWN_SLOT)

enum { OP_SLOTS = OP_SLOT(sinter_op_last_symbol) };

/* -1: no op has this number. */
static inline int op_slot(sinter_op_kind_t kind)
{
    const int n = (int)kind;
    if (n < 0 || n >= (int)sinter_op_last_symbol || (n >= OP_OWN_SLOT && n < OP_OWN)) {
        return -1;
    }
    return OP_SLOT(n);
}

/* The op that has a slot. */
static inline sinter_op_kind_t op_of_slot(int slot)
{
    return (sinter_op_kind_t)(slot < OP_OWN_SLOT ? slot : slot - OP_OWN_SLOT + OP_OWN);
}

#endif
