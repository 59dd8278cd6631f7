/* How much work a step is, and into how many shares it is worth dividing. */
#ifndef SINTER_SRC_WORK_H
#define SINTER_SRC_WORK_H

#include "backend_xsmm/kernel.h"

/* An estimate of the microseconds that one thread needs for a step: from the dims and types of its
 * values, so the same dims always give the same number. -1: some dim is not known. */
double step_work(const problem_t *p);

/* How many shares a step of so many microseconds is worth, at most `most`. */
int work_shares(double work, int most);

/* Whether an execute or a sequence pays for the threads of a region. divisible: the work of all its
 * steps that have several shares, in microseconds. */
bool work_pays_region(double divisible);

#endif
