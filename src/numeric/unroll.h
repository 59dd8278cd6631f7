/* For loops over vectors that live in registers. */
#ifndef SINTER_SRC_NUMERIC_UNROLL_H
#define SINTER_SRC_NUMERIC_UNROLL_H

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__SANITIZE_ADDRESS__)
#define UNROLL /* at -O1 GCC warns where there is nothing to unroll */
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* For loops that should stay loops. */
#if defined(__clang__)
#define KEEP_LOOP _Pragma("clang loop unroll(disable)")
#elif defined(__SANITIZE_ADDRESS__)
#define KEEP_LOOP
#else
#define KEEP_LOOP _Pragma("GCC unroll 1")
#endif

/* The iterations do not depend on each other, though the compiler cannot see it. */
#if defined(__clang__)
#define NO_DEPENDENCE _Pragma("clang loop vectorize(enable)")
#else
#define NO_DEPENDENCE _Pragma("GCC ivdep")
#endif

/* Makes p's value unknown: addresses are then made from p where they are needed instead of being
 * kept, all of them, in registers. */
#define HIDE(p) __asm__("" : "+r"(p))

/* The same for a vector: it stays in its register, where GCC would load it anew for each use. */
#ifndef HIDE_VECTOR /* a build that emulates AVX-512 keeps vectors in memory */
#define HIDE_VECTOR(x) __asm__("" : "+v"(x))
#endif

/* Makes the address p unknown until the vector x is computed. So the compiler cannot load from p
 * early, into a register that is still needed. */
#ifndef HIDE_AFTER
#define HIDE_AFTER(p, x) __asm__("" : "+r"(p), "+v"(x))
#endif

#endif
