/* How much work a step is, and into how many shares it is worth dividing. */
#ifndef SINTER_SRC_WORK_H
#define SINTER_SRC_WORK_H

#include "backend_xsmm/step.h"

/* A sum of work in microseconds of one thread, of which a part may be unknown. Numbers of elements
 * are in thousands; a negative one is not known. */
typedef struct estimate {
    double us;
    bool open;
} estimate_t;

double estimate_elements(const problem_t *p, int value);
/* Adds n times so many simple operations. */
void estimate_ops(estimate_t *e, double n, double each);
void estimate_exps(estimate_t *e, double n);
/* Reading or writing all of a value; -1: nothing. */
void estimate_bytes(estimate_t *e, const problem_t *p, int value);
void estimate_operand(estimate_t *e, const problem_t *p, const operand_t *o);
/* A chain over n elements. */
void estimate_chain(estimate_t *e, const problem_t *p, const struct chain *chain, double n);
void estimate_dynquant(estimate_t *e, const problem_t *p, const dynquant_params_t *q, double n);
/* The products of n results of length k, or reading their operands where that takes longer: the
 * processor fetches while it multiplies. */
void estimate_products(estimate_t *e, double n, double k, estimate_t operands);

/* An estimate of the microseconds that one thread needs for a step: from the dims and types of its
 * values, so the same dims always give the same number. -1: some dim is not known. */
double step_work(const problem_t *p);

/* How many shares a step of so many microseconds is worth, at most `most`. */
int work_shares(double work, int most);

/* Whether an execute or a sequence pays for the threads of a region. divisible: the work of all its
 * steps that have several shares, in microseconds. */
bool work_pays_region(double divisible);

#endif
