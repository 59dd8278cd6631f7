/* What all of the process shares: the engine, the settings from the environment, and messages. */
#ifndef SINTER_GGML_ENGINE_H
#define SINTER_GGML_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sinter/sinter.h>

sinter_engine_t *gs_engine(void); /* NULL: out of memory */
bool gs_is_deterministic(void);   /* what SINTER_GGML_DETERMINISTIC says: so is the engine */
/* The fpmath mode of products. exact: of those whose precision hint asks for f32. */
sinter_fpmath_mode_t gs_fpmath(bool exact);

/* What SINTER_GGML_DEVICE says that the device is beside the host's CPU backend. */
typedef enum gs_role { GS_ROLE_BY_HOST, GS_ROLE_GPU, GS_ROLE_ACCEL } gs_role_t;
gs_role_t gs_asked_role(void);

bool gs_is_verbose(void); /* SINTER_VERBOSE lists dispatch */

/* Memory that the system would give without swapping, of which pages of files are a part. 0: it
 * does not say. */
size_t gs_available_memory(void);
/* Bytes that copies of weights in the host's memory may take: SINTER_GGML_COPIES, or half of the
 * memory that was available at first. */
size_t gs_most_copies(void);

/* Where SINTER_VERBOSE lists dispatch, these print on stderr: a reason, the first time that it
 * occurs, with the node that it is about; and at the end how often each has occurred, and what was
 * compiled. */
void gs_say_reason(const char *node, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gs_say_counts(uint64_t compiled, uint64_t reused);

#endif
