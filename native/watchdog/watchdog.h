/* A process beside a daemon that ends it when it is stopped or hangs. */
#ifndef SOFTNIC_STALL_WATCHDOG_H
#define SOFTNIC_STALL_WATCHDOG_H
/* C only */
#include <stdint.h>
/* all */

enum { SN_WATCHDOG_HEARTBEAT_MS = 500 };

/* Limits in ms of how long the daemon may be stopped (SIGSTOP), and how long its heartbeat may stand still; 0: no
   limit. Silence while it waits for a CPU, is stopped or is traced does not count. */
typedef struct {
    uint32_t stopped_ms;
    uint32_t silent_ms;
} sn_watchdog_bounds;

/* Starts a watchdog of the calling process, as a child that ends with it. `beat` is in shared memory (MAP_SHARED); the
   daemon increments it every SN_WATCHDOG_HEARTBEAT_MS. While it is 0, silence is not limited. When a limit is exceeded,
   the watchdog writes the text to standard error, if that does not block, and ends the daemon: SIGTERM and SIGCONT, and
   SIGKILL 1 s later. Returns the watchdog's PID, or -errno. */
int32_t sn_stall_watchdog(const uint64_t *beat, const sn_watchdog_bounds *bounds, const char *stopped_text,
                 const char *silent_text);

#endif
