#define _DEFAULT_SOURCE /* madvise */
#include "base/constants.h"

#include <string.h>
#include <sys/mman.h>

#include "base/memory.h"

enum { LARGE_PAGE = 1 << 21 };

typedef struct owner {
    struct owner *next;
    const void *who;
} owner_t;

struct constant {
    constant_t *next;
    constant_key_t key;
    void *memory;
    size_t bytes;
    int users;         /* executes that read it, make it or wait for it */
    bool made;         /* its memory has been filled */
    bool dropped;      /* to be freed by the last of them */
    uint64_t last_use; /* by the cache's clock */
    owner_t *owners;
};

bool constants_init(constants_t *c, const sinter_allocator_t *allocator)
{
    *c = (constants_t)CONSTANTS_INITIALIZER(allocator);
    if (pthread_mutex_init(&c->lock, NULL) != 0) {
        return false;
    }
    if (pthread_cond_init(&c->made, NULL) != 0) {
        pthread_mutex_destroy(&c->lock);
        return false;
    }
    return true;
}

void constants_end(constants_t *c)
{
    /* Compiled partitions hold the engine, so none is left, and no copy either. */
    pthread_cond_destroy(&c->made);
    pthread_mutex_destroy(&c->lock);
}

void *constant_memory(const constant_t *constant)
{
    return constant->memory;
}

static constant_t **bucket_of(constants_t *c, const void *data)
{
    const uint64_t hash = (uint64_t)(uintptr_t)data * 0x9E3779B97F4A7C15u;
    return &c->bucket[hash >> 56];
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void free_constant(constants_t *c, constant_t *k)
{
    c->stats.bytes -= k->bytes;
    memory_give(c->allocator, k->memory);
    while (k->owners != NULL) {
        owner_t *next = k->owners->next;
        memory_give(c->allocator, k->owners);
        k->owners = next;
    }
    memory_give(c->allocator, k);
}

/* Takes what *at points to out of its bucket; the last execute that reads it frees it. */
static void drop(constants_t *c, constant_t **at)
{
    constant_t *k = *at;
    *at = k->next;
    c->stats.entries--;
    c->drops++;
    if (k->users == 0) {
        free_constant(c, k);
        return;
    }
    k->dropped = true;
    k->next = c->dropped;
    c->dropped = k;
}

/* Drops all copies for which `ends` is true. */
static void drop_where(constants_t *c,
                       bool (*ends)(constants_t *c, constant_t *k, const void *with),
                       const void *with)
{
    for (int b = 0; b < CONSTANT_BUCKETS; b++) {
        for (constant_t **at = &c->bucket[b]; *at != NULL;) {
            if (ends(c, *at, with)) {
                drop(c, at);
            } else {
                at = &(*at)->next;
            }
        }
    }
}

/* The copy that was used longest ago, of those that are not in use; NULL: there is none. */
static constant_t **oldest(constants_t *c)
{
    constant_t **found = NULL;
    for (int b = 0; b < CONSTANT_BUCKETS; b++) {
        for (constant_t **at = &c->bucket[b]; *at != NULL; at = &(*at)->next) {
            if ((*at)->users == 0 && (found == NULL || (*at)->last_use < (*found)->last_use)) {
                found = at;
            }
        }
    }
    return found;
}

/* Frees copies until `bytes` more bytes fit the budget. False: they cannot. */
static bool make_room(constants_t *c, size_t bytes)
{
    if (bytes > c->stats.budget) {
        return false;
    }
    while (c->stats.bytes > c->stats.budget - bytes) {
        constant_t **at = oldest(c);
        if (at == NULL) {
            return false;
        }
        drop(c, at);
        c->stats.evicted++;
    }
    return true;
}

/* ---- use ------------------------------------------------------------------------------------- */

static bool add_owner(constants_t *c, constant_t *k, const void *who)
{
    for (const owner_t *o = k->owners; o != NULL; o = o->next) {
        if (o->who == who) {
            return true;
        }
    }
    owner_t *o = memory_take(c->allocator, sizeof(*o), _Alignof(owner_t));
    if (o == NULL) {
        return false;
    }
    *o = (owner_t){.next = k->owners, .who = who};
    k->owners = o;
    return true;
}

/* Large copies lie on large pages where the system has them, so that reading them takes fewer
 * translations of addresses. */
static void *take_memory(const constants_t *c, size_t bytes)
{
    const bool large = bytes >= 2 * (size_t)LARGE_PAGE;
    void *memory = memory_take(c->allocator, bytes, large ? (size_t)LARGE_PAGE : 64);
#ifdef MADV_HUGEPAGE
    if (memory != NULL && large) {
        (void)madvise(memory, bytes / LARGE_PAGE * LARGE_PAGE, MADV_HUGEPAGE);
    }
#endif
    return memory;
}

/* A new copy in its bucket, not filled yet; NULL: out of memory. */
static constant_t *add_constant(constants_t *c, const constant_key_t *key, size_t bytes)
{
    constant_t *k = memory_take(c->allocator, sizeof(*k), _Alignof(constant_t));
    if (k == NULL) {
        return NULL;
    }
    *k = (constant_t){.key = *key, .bytes = bytes, .memory = take_memory(c, bytes)};
    if (k->memory == NULL) {
        memory_give(c->allocator, k);
        return NULL;
    }
    constant_t **at = bucket_of(c, key->data);
    k->next = *at;
    *at = k;
    c->stats.entries++;
    c->stats.bytes += bytes;
    return k;
}

sinter_status_t constants_take(constants_t *c, const constant_key_t *key, size_t bytes, bool needed,
                               const void *owner,
                               void (*fill)(const constant_key_t *key, void *memory,
                                            const void *user),
                               const void *user, constant_t **out)
{
    sinter_status_t status = sinter_success;
    *out = NULL;
    pthread_mutex_lock(&c->lock);
    constant_t *k = *bucket_of(c, key->data);
    while (k != NULL && memcmp(&k->key, key, sizeof(*key)) != 0) {
        k = k->next;
    }
    const bool found = k != NULL, /* another thread may still be making it */
        room = found || make_room(c, bytes);
    c->stats.refused += !room;
    if (!room && !needed) {
        /* the caller does without */
    } else if ((!found && (k = add_constant(c, key, bytes)) == NULL) || !add_owner(c, k, owner)) {
        status = sinter_out_of_memory;
        if (!found && k != NULL) {
            /* the new copy is the first one of its bucket */
            drop(c, bucket_of(c, key->data));
        }
    } else {
        k->users++; /* nobody frees it now, even if it is invalidated while it is being made */
        if (!found) {
            pthread_mutex_unlock(&c->lock);
            fill(key, k->memory, user);
            pthread_mutex_lock(&c->lock);
            k->made = true;
            pthread_cond_broadcast(&c->made);
        }
        for (constant_t **at = bucket_of(c, key->data); !room && *at != NULL; at = &(*at)->next) {
            if (*at == k) { /* unless it was invalidated meanwhile */
                drop(c, at);
                break;
            }
        }
        while (!k->made) {
            pthread_cond_wait(&c->made, &c->lock);
        }
        c->stats.hits += found;
        c->stats.packed += !found;
        k->last_use = ++c->clock;
        *out = k;
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}

void constants_give(constants_t *c, constant_t *constant)
{
    if (constant == NULL) {
        return;
    }
    pthread_mutex_lock(&c->lock);
    if (--constant->users == 0 && constant->dropped) {
        constant_t **at = &c->dropped;
        while (*at != constant) {
            at = &(*at)->next;
        }
        *at = constant->next;
        free_constant(c, constant);
    }
    pthread_mutex_unlock(&c->lock);
}

uint64_t constants_drops(constants_t *c)
{
    pthread_mutex_lock(&c->lock);
    const uint64_t drops = c->drops;
    pthread_mutex_unlock(&c->lock);
    return drops;
}

bool constants_hold(constants_t *c, constant_t *const *copies, int n, uint64_t drops)
{
    pthread_mutex_lock(&c->lock);
    const bool all = c->drops == drops;
    for (int i = 0; i < n && all; i++) {
        if (copies[i] != NULL) {
            copies[i]->users++;
            copies[i]->last_use = ++c->clock;
            c->stats.hits++;
        }
    }
    pthread_mutex_unlock(&c->lock);
    return all;
}

static bool is_orphan(constants_t *c, constant_t *k, const void *gone)
{
    for (owner_t **at = &k->owners; *at != NULL; at = &(*at)->next) {
        if ((*at)->who == gone) {
            owner_t *o = *at;
            *at = o->next;
            memory_give(c->allocator, o);
            break;
        }
    }
    return k->owners == NULL;
}

void constants_disown(constants_t *c, const void *owner)
{
    pthread_mutex_lock(&c->lock);
    drop_where(c, is_orphan, owner);
    pthread_mutex_unlock(&c->lock);
}

typedef struct range {
    uintptr_t begin;
    size_t bytes;
} range_t;

static bool is_made_from(constants_t *c, constant_t *k, const void *with)
{
    const range_t *r = with;
    const uintptr_t begin = (uintptr_t)k->key.data;
    (void)c;
    return r->bytes == 0      ? false
           : begin < r->begin ? r->begin - begin < k->key.extent
                              : begin - r->begin < r->bytes;
}

void constants_invalidate(constants_t *c, const void *data, size_t bytes)
{
    const range_t range = {(uintptr_t)data, bytes};
    pthread_mutex_lock(&c->lock);
    drop_where(c, is_made_from, &range);
    pthread_mutex_unlock(&c->lock);
}

void constants_set_budget(constants_t *c, size_t bytes)
{
    pthread_mutex_lock(&c->lock);
    c->stats.budget = bytes;
    (void)make_room(c, 0); /* copies in use now are dropped when room is needed next */
    pthread_mutex_unlock(&c->lock);
}
