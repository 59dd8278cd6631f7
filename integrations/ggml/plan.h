/* Compiled graphs, kept for later runs. */
#ifndef SINTER_GGML_PLAN_H
#define SINTER_GGML_PLAN_H

#include <sinter/sinter.h>

#include "ggml-impl.h"

typedef struct gs_plans gs_plans_t;

gs_plans_t *gs_plans_create(void); /* NULL: out of memory */
void gs_plans_destroy(gs_plans_t *plans);
enum ggml_status gs_plans_compute(gs_plans_t *plans, sinter_stream_t *stream,
                                  struct ggml_cgraph *graph);

#endif
