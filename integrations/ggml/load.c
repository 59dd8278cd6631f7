/* Loading of large tensors: threads, and pages of files. */
#include "load.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "layout.h"

/* The host loads in one thread, which would mostly wait for memory. A range is large enough that
 * its threads need not be there at once, and small enough that little of the file is in memory. */
enum { MOST_THREADS = 4, RANGE_BYTES = 2 << 20, LEAST_BYTES = 2 * RANGE_BYTES };

/* Blocks to unpack, in ranges that threads take until none is left. */
typedef struct load {
    const struct ggml_tensor *root;
    const uint8_t *blocks;
    size_t count, block_bytes;
    size_t step; /* blocks of a range */
    bool from_file;
    _Atomic size_t next; /* from 0 on */
    _Atomic bool failed;
} load_t;

/* What the system says of memory: its permissions, as "r--s", and the number of the file that is
 * mapped there, or 0. */
typedef struct mapping {
    char may[5];
    unsigned long inode;
} mapping_t;

/* false: this memory is not part of one mapping. */
static bool find_mapping(const uint8_t *memory, size_t bytes, mapping_t *m)
{
    char line[512];
    const uintptr_t begin = (uintptr_t)memory;
    bool found = false, begins = true; /* else it is the end of a long name */
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && !found && fgets(line, sizeof(line), maps)) {
        uintptr_t low, high;
        found = begins &&
                sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*x %*x:%*x %lu", &low, &high, m->may,
                       &m->inode) == 4 &&
                low <= begin && begin + bytes <= high;
        begins = strchr(line, '\n') != NULL;
    }
    if (maps) {
        fclose(maps);
    }
    return found;
}

/* Whether all of this memory is a shared mapping of a file: then dropping its pages loses nothing,
 * since they are read again from the file, or from the system's copy of it. */
static bool is_shared_file(const uint8_t *memory, size_t bytes)
{
    mapping_t m;
    return find_mapping(memory, bytes, &m) && m.may[3] == 's' && m.inode != 0;
}

bool gs_is_read_only(const void *memory, size_t bytes)
{
    mapping_t m;
    return find_mapping(memory, bytes, &m) && m.may[1] == '-';
}

/* Gives back the pages that lie within these bytes. Pages that are locked stay. */
static void drop_pages(const uint8_t *memory, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)memory,
                    first = (begin + page - 1) / page * page, end = (begin + bytes) / page * page;
    if (first < end) {
        madvise((void *)first, end - first, MADV_DONTNEED);
    }
}

static void *load_ranges(void *data)
{
    load_t *l = data;
    for (size_t at; (at = atomic_fetch_add(&l->next, l->step)) < l->count;) {
        const size_t count = l->count - at < l->step ? l->count - at : l->step;
        const uint8_t *blocks = l->blocks + at * l->block_bytes;
        if (!gs_unpack_blocks(l->root, at, count, blocks)) {
            l->failed = true;
        } else if (l->from_file) {
            drop_pages(blocks, count * l->block_bytes);
        }
    }
    return NULL;
}

bool gs_load_blocks(const struct ggml_tensor *root, size_t first, size_t count,
                    const uint8_t *blocks)
{
    const size_t block_bytes = ggml_type_size(root->type),
                 strip = (size_t)root->ne[0] / (size_t)ggml_blck_size(root->type) * 16;
    if (first != 0 || count * block_bytes < LEAST_BYTES) {
        return gs_unpack_blocks(root, first, count, blocks);
    }
    const size_t strips = RANGE_BYTES / (strip * block_bytes);
    load_t load = {.root = root,
                   .blocks = blocks,
                   .count = count,
                   .block_bytes = block_bytes,
                   .step = strip * (strips > 0 ? strips : 1),
                   .from_file = is_shared_file(blocks, count * block_bytes)};
    pthread_t threads[MOST_THREADS];
    const long there = sysconf(_SC_NPROCESSORS_ONLN);
    int n = 0;
    while (n < MOST_THREADS - 1 && n < there - 1 &&
           !pthread_create(&threads[n], NULL, load_ranges, &load)) {
        n++;
    }
    load_ranges(&load);
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
    }
    /* A thread had no memory for a strip. There may be some now that no other one needs any. */
    return !load.failed || gs_unpack_blocks(root, 0, count, blocks);
}
