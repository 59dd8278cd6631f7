#include "base/idmap.h"

typedef struct slot {
    uint64_t id;
    int index_plus_one; /* 0: empty */
} slot_t;

struct idmap {
    arena_t *arena;
    slot_t *slots;
    size_t mask, count; /* mask + 1 slots, at most half of them taken */
};

enum { FIRST_SLOTS = 16 };

/* The finaliser of splitmix64: ids are often consecutive, or differ only in high bits. */
static uint64_t hash(uint64_t id)
{
    id = (id ^ (id >> 30)) * 0xBF58476D1CE4E5B9u;
    id = (id ^ (id >> 27)) * 0x94D049BB133111EBu;
    return id ^ (id >> 31);
}

/* The slot that has the id, or else the empty slot where it belongs. */
static slot_t *find(slot_t *slots, size_t mask, uint64_t id)
{
    size_t i = (size_t)hash(id) & mask;
    while (slots[i].index_plus_one != 0 && slots[i].id != id) {
        i = (i + 1) & mask;
    }
    return &slots[i];
}

idmap_t *idmap_new(arena_t *arena)
{
    idmap_t *map = ARENA_NEW(arena, idmap_t, 1);
    slot_t *slots = ARENA_NEW(arena, slot_t, FIRST_SLOTS);
    if (map == NULL || slots == NULL) {
        return NULL;
    }
    *map = (idmap_t){arena, slots, FIRST_SLOTS - 1, 0};
    return map;
}

int idmap_get(const idmap_t *map, uint64_t id)
{
    return map == NULL ? -1 : find(map->slots, map->mask, id)->index_plus_one - 1;
}

bool idmap_grow(idmap_t *map, size_t extra)
{
    size_t size = map->mask + 1, need;
    if (!add_size(map->count, extra, &need) || need > SIZE_MAX / 4) {
        return false;
    }
    if (need <= size / 2) {
        return true;
    }
    while (need > size / 2) {
        size *= 2;
    }
    slot_t *slots = ARENA_NEW(map->arena, slot_t, size);
    if (slots == NULL) {
        return false;
    }
    for (size_t i = 0; i <= map->mask; i++) {
        if (map->slots[i].index_plus_one != 0) {
            *find(slots, size - 1, map->slots[i].id) = map->slots[i];
        }
    }
    map->slots = slots;
    map->mask = size - 1;
    return true;
}

bool idmap_put(idmap_t *map, uint64_t id, int index)
{
    slot_t *slot = find(map->slots, map->mask, id);
    if (slot->index_plus_one == 0) {
        if (!idmap_grow(map, 1)) {
            return false;
        }
        slot = find(map->slots, map->mask, id);
        map->count++;
    }
    *slot = (slot_t){id, index + 1};
    return true;
}
