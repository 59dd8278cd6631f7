/* A heap of items: the one with the least key is on top. The caller gives the room. */
#ifndef SINTER_SRC_HEAP_H
#define SINTER_SRC_HEAP_H

typedef struct heap_item {
    int key, id;
} heap_item_t;

typedef struct heap {
    heap_item_t *items;
    int n;
} heap_t;

static inline void heap_push(heap_t *h, int key, int id)
{
    int i = h->n++;
    for (; i > 0 && h->items[(i - 1) / 2].key > key; i = (i - 1) / 2) {
        h->items[i] = h->items[(i - 1) / 2];
    }
    h->items[i] = (heap_item_t){key, id};
}

/* Takes the top item off, and gives its id. */
static inline int heap_pop(heap_t *h)
{
    const int top = h->items[0].id;
    const heap_item_t last = h->items[--h->n];
    int i = 0;
    for (int child = 1; child < h->n; child = 2 * i + 1) {
        child += child + 1 < h->n && h->items[child + 1].key < h->items[child].key;
        if (h->items[child].key >= last.key) {
            break;
        }
        h->items[i] = h->items[child];
        i = child;
    }
    h->items[i] = last;
    return top;
}

#endif
