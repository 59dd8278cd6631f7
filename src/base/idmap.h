/* A map from 64-bit ids to indices: open addressing, in an arena, O(1). Any id is a valid key;
 * entries are never removed. */
#ifndef SINTER_SRC_IDMAP_H
#define SINTER_SRC_IDMAP_H

#include "base/alloc.h"

typedef struct idmap idmap_t;

idmap_t *idmap_new(arena_t *arena);             /* NULL: out of memory */
int idmap_get(const idmap_t *map, uint64_t id); /* -1: not there, or map is NULL */
bool idmap_put(idmap_t *map, uint64_t id,
               int index); /* index >= 0; replaces; false: out of memory, the map is as before */
bool idmap_grow(idmap_t *map, size_t extra); /* makes room: the next `extra` puts cannot fail */

#endif
