/* Running plans: the only OpenMP in the library. */
#ifndef SINTER_SRC_EXEC_H
#define SINTER_SRC_EXEC_H

/* Threads OpenMP would use by default; reads, never sets. */
int exec_default_threads(void);

#endif
