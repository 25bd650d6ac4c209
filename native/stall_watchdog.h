/* A process beside a daemon that ends it when it is stopped or hangs, which it cannot notice itself. */
#ifndef SOFTNIC_STALL_WATCHDOG_H
#define SOFTNIC_STALL_WATCHDOG_H
/* C only */
#include <stdint.h>
/* all */

enum { SN_WATCHDOG_HEARTBEAT_MS = 500 };

/* For how long the process may be stopped (SIGSTOP), and for how long it may leave its heartbeat alone, in ms; 0: for
   ever. Time of the second kind in which it waits for a processor, is stopped or is traced does not count. */
typedef struct {
    uint32_t stopped_ms;
    uint32_t silent_ms;
} sn_watchdog_bounds;

/* Starts a guard of the calling process, a child that ends with it. `beat` is memory that both share (MAP_SHARED): the
   process counts it up every SN_WATCHDOG_HEARTBEAT_MS from the first count on; as long as it is 0 there is no bound to silence.
   Where a bound is exceeded, the guard writes the words to standard error, if that takes them at once, and has the
   process end: SIGTERM and SIGCONT, and SIGKILL 1 s later if that did not do.
   Returns the guard's process id, or -errno. */
int32_t sn_stall_watchdog(const uint64_t *beat, const sn_watchdog_bounds *bounds, const char *stopped_words,
                 const char *silent_words);

#endif
