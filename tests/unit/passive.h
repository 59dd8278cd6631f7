/* Waiting threads that spin cost many small executes ten times what their work does. Starts the
 * program again where OMP_WAIT_POLICY is not set, as the OpenMP runtime reads its environment
 * before main. */
#ifndef SINTER_TESTS_PASSIVE_H
#define SINTER_TESTS_PASSIVE_H

#include <stdlib.h>
#include <unistd.h>

static inline void wait_passively(char **argv)
{
    if (!getenv("OMP_WAIT_POLICY") && !setenv("OMP_WAIT_POLICY", "passive", 1)) {
        execv("/proc/self/exe", argv);
    }
}

#endif
