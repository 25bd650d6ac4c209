/* A process beside a daemon that sees when the daemon is stopped, which it cannot see itself. */
#ifndef SOFTNIC_GUARD_H
#define SOFTNIC_GUARD_H
/* C only */
#include <stdint.h>
/* all */

/* Starts a guard of the calling process, a child that ends with it. When the process has been stopped (SIGSTOP) for
   `patience_ms`, the guard writes `last_words` to standard error and has it go on and end: SIGTERM and SIGCONT, and
   SIGKILL 1 s later if that did not do. Call it while no other thread holds a lock that fork needs.
   Returns the guard's process id, or -errno. */
int32_t sn_guard(uint32_t patience_ms, const char *last_words);

#endif
