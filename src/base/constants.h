/* The constant cache of an engine: copies of users' constant tensors in the layouts that kernels
 * want, made when a compiled partition first meets them and shared by all that want the same. A
 * copy lives as long as one of the compiled partitions that have used it, unless the budget or
 * the user ends it before. */
#ifndef SINTER_SRC_CONSTANTS_H
#define SINTER_SRC_CONSTANTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sinter/sinter_graph.h>

/* The tensor that a copy was made from, and the strides of both. Keys are compared byte by byte,
 * so clear one before you fill it. */
typedef struct constant_key {
    const void *data;
    size_t extent; /* bytes from data on that the copy was made from */
    int64_t dims[SINTER_MAX_NDIMS];
    int64_t strides[SINTER_MAX_NDIMS], packed[SINTER_MAX_NDIMS]; /* of the data, of the copy */
    int32_t type, ndims;
    /* The copy lies in tiles (numeric/tiles.h): dims of columns and of K, as in plan_value_t.
     * unpacks: the data does, in the layout of this id, and the copy does not; else 0. */
    int32_t tiled, across, along, window, unpacks;
} constant_key_t;

typedef struct constant constant_t;

enum { CONSTANT_BUCKETS = 256 };

typedef struct constants {
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t made;  /* a copy has been filled */
    const sinter_allocator_t *allocator;
    constant_t *bucket[CONSTANT_BUCKETS];
    constant_t *dropped; /* out of the buckets, but in use */
    sinter_constant_cache_stats_t stats;
    uint64_t clock;
    uint64_t drops; /* of copies, since the begin */
} constants_t;

/* For an engine that is static. */
#define CONSTANTS_INITIALIZER(allocator_)                                    \
    {                                                                        \
        .lock = PTHREAD_MUTEX_INITIALIZER, .made = PTHREAD_COND_INITIALIZER, \
        .allocator = (allocator_), .stats = {                                \
            .size = sizeof(sinter_constant_cache_stats_t),                   \
            .budget = SIZE_MAX                                               \
        }                                                                    \
    }

/* False: the system has no mutex or no condition variable left. The allocator must outlive c. */
bool constants_init(constants_t *c, const sinter_allocator_t *allocator);
void constants_end(constants_t *c);

/* The copy, held until constants_give. If there is none yet, `fill` makes it in the calling thread
 * and without the lock: threads that want the same copy wait until it is made, all others go on.
 * owner: the compiled partition. *out NULL: the budget has no room; where the copy is needed, it is
 * made nevertheless, and freed when nobody holds it any more. Fails only without memory. */
sinter_status_t constants_take(constants_t *c, const constant_key_t *key, size_t bytes, bool needed,
                               const void *owner,
                               void (*fill)(const constant_key_t *key, void *memory,
                                            const void *user),
                               const void *user, constant_t **out);
void *constant_memory(const constant_t *constant);
void constants_give(constants_t *c, constant_t *constant); /* NULL: nothing to do */
uint64_t constants_drops(constants_t *c);
/* Holds n copies again that were taken when no more than `drops` copies had been dropped, and given
 * since; NULL among them: nothing to hold. False: some copy was dropped since then, perhaps one of
 * these, and none is held. */
bool constants_hold(constants_t *c, constant_t *const *copies, int n, uint64_t drops);
/* To be called when the owner is destroyed: copies that no other owner has used are dropped. */
void constants_disown(constants_t *c, const void *owner);
/* Drops the copies that were made from any of these bytes. */
void constants_invalidate(constants_t *c, const void *data, size_t bytes);
void constants_set_budget(constants_t *c, size_t bytes);

#endif
