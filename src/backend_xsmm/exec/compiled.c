/* Scratch memory of compiled partitions. */
#include "backend_xsmm/exec/compiled.h"

#include <string.h>

#include "base/status.h"

bool scratch_grow(sinter_compiled_partition_t *cp, scratch_block_t *block, size_t bytes)
{
    if (block->bytes >= bytes) {
        return true;
    }
    sg_free(cp->engine, block->memory);
    block->memory = sg_alloc(cp->engine, bytes, SCRATCH_ALIGN);
    block->bytes = block->memory != NULL ? bytes : 0;
    return block->memory != NULL;
}

scratch_block_t *scratch_take(sinter_compiled_partition_t *cp, size_t bytes)
{
    pthread_mutex_lock(&cp->lock);
    scratch_block_t *block = cp->idle;
    if (block != NULL) {
        cp->idle = block->next;
    }
    pthread_mutex_unlock(&cp->lock);
    if (block == NULL) {
        block = sg_alloc(cp->engine, sizeof(*block), SCRATCH_ALIGN);
        if (block == NULL) {
            return NULL;
        }
        memset(block, 0, sizeof(*block));
    }
    if (!scratch_grow(cp, block, bytes)) {
        scratch_give(cp, block);
        return NULL;
    }
    return block;
}

void scratch_give(sinter_compiled_partition_t *cp, scratch_block_t *block)
{
    pthread_mutex_lock(&cp->lock);
    block->next = cp->idle;
    cp->idle = block;
    pthread_mutex_unlock(&cp->lock);
}
