/* Covering designs: rows of one value for each property, in which every two values of any two
 * properties meet at least once. Rows are made one after the other, each as good as it gets. */
#ifndef SINTER_TESTS_COVERING_H
#define SINTER_TESTS_COVERING_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "random.h"

enum { COVERING_PROPERTIES = 20, COVERING_VALUES = 12 };

typedef struct covering {
    int n;            /* properties */
    const int *sizes; /* how many values each has */
    uint64_t state;   /* of the random order in which properties are filled in */
    unsigned char met[COVERING_PROPERTIES][COVERING_VALUES][COVERING_PROPERTIES][COVERING_VALUES];
} covering_t;

static inline void covering_begin(covering_t *c, int n, const int *sizes, uint64_t seed)
{
    memset(c, 0, sizeof *c);
    c->n = n;
    c->sizes = sizes;
    c->state = seed;
}

/* Values of the row that this one of property p has not met yet. */
static inline int covering_gain(const covering_t *c, const int *row, int p, int value)
{
    int gain = 0;
    for (int q = 0; q < c->n; q++) {
        gain += q != p && row[q] >= 0 && !c->met[p][value][q][row[q]];
    }
    return gain;
}

/* Two values that have not met; -1 elsewhere. False: all have. */
static inline bool covering_pair(const covering_t *c, int *row)
{
    for (int p = 0; p < c->n; p++) {
        row[p] = -1;
    }
    for (int p = 0; p < c->n; p++) {
        for (int q = p + 1; q < c->n; q++) {
            for (int i = 0; i < c->sizes[p] * c->sizes[q]; i++) {
                const int a = i / c->sizes[q], b = i % c->sizes[q];
                if (!c->met[p][a][q][b]) {
                    row[p] = a;
                    row[q] = b;
                    return true;
                }
            }
        }
    }
    return false;
}

/* The next row: an index of a value for each property. False: the design is complete. */
static inline bool covering_next(covering_t *c, int *row)
{
    if (!covering_pair(c, row)) {
        return false;
    }
    const int first = random_below(&c->state, c->n);
    for (int i = 0; i < c->n; i++) {
        const int p = (first + i) % c->n, begin = random_below(&c->state, c->sizes[p]);
        int best = -1, most = -1;
        for (int k = 0; row[p] < 0 && k < c->sizes[p]; k++) {
            const int value = (begin + k) % c->sizes[p], gain = covering_gain(c, row, p, value);
            best = gain > most ? value : best;
            most = gain > most ? gain : most;
        }
        row[p] = row[p] < 0 ? best : row[p];
    }
    for (int p = 0; p < c->n; p++) {
        for (int q = 0; q < c->n; q++) {
            c->met[p][row[p]][q][row[q]] = 1;
        }
    }
    return true;
}

#endif
