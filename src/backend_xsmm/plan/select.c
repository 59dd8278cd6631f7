/* The kernel registry and its one selection rule: the cheapest row that accepts the step and
 * whose ISA the plan may use; ties go to the earlier row. */
#include <sinter/sinter_graph.h>
#include <sinter/sinter_partition.h>

#include "backend_xsmm/kernel.h"
#include "base/cpu.h"

#define SINTER_KERNEL(name) extern const kernel_t kernel_##name;
#include "backend_xsmm/kernels.def"
#undef SINTER_KERNEL

const kernel_t *const sinter_kernels[] = {
#define SINTER_KERNEL(name) &kernel_##name,
#include "backend_xsmm/kernels.def"
#undef SINTER_KERNEL
};
const int sinter_n_kernels = (int)(sizeof(sinter_kernels) / sizeof(sinter_kernels[0]));

const kernel_t *kernel_select(const plan_t *plan, const step_t *step, textbuf_t *why)
{
    const kernel_t *best = NULL;
    for (int i = 0; i < sinter_n_kernels; i++) {
        const kernel_t *k = sinter_kernels[i];
        if (k->step != step->kind) {
            continue;
        }
        if (!has_features(plan->features, k->needs.bits)) {
            text_add(why, "  %s refused: needs %s, this engine has %s\n", k->name,
                     missing_feature(plan->features, k->needs.bits),
                     sinter_cpu_isa_name(level_of_features(plan->features)));
            continue;
        }
        const char *reason = k->refuse ? k->refuse(plan, step) : NULL;
        if (reason != NULL) {
            text_add(why, "  %s refused: %s\n", k->name, reason);
        } else if (best == NULL || k->cost < best->cost) {
            best = k;
        }
    }
    return best;
}

const char *sinter_kernel_list(void)
{
    return
#define SINTER_KERNEL(name) #name "\n"
#include "backend_xsmm/kernels.def"
#undef SINTER_KERNEL
        "";
}
