/* Floats of one width and their bits, for eltwise_f32.inc and eltwise_f64.inc: these define real,
 * real_bits (integers of that width) and FMA first. */
#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "backend_xsmm/ukernels/eltwise.h"

#if defined(__clang__)
#define SAME_INDEX_ONLY
#else /* dst may be an operand itself, which is no dependence between iterations */
#define SAME_INDEX_ONLY _Pragma("GCC ivdep")
#endif
#define INLINE static inline __attribute__((always_inline))

#if defined(__FMA__)
#define MAD(a, b, c) FMA((a), (b), (c))
#else
#define MAD(a, b, c) ((a) * (b) + (c))
#endif

typedef union pun {
    real x;
    real_bits u;
} pun_t;

INLINE real_bits bits(real x)
{
    return (pun_t){.x = x}.u;
}
INLINE real from_bits(real_bits u)
{
    return (pun_t){.u = u}.x;
}
