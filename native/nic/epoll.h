/* epoll with timeouts in nanoseconds. */
#ifndef SOFTNIC_EPOLL_H
#define SOFTNIC_EPOLL_H
/* C only */
#include <stdint.h>
/* all */

/* Waits for events of the epoll instance `fd`, at most `timeout_ns` nanoseconds (-1: no limit), precisely, where
   epoll_wait has whole milliseconds. `descriptors` and `masks` take `most` entries. File descriptors are identified by
   number, as Python's select.epoll registers them. Returns the number of events (0: timeout), or -errno (-EINTR:
   signal; -ENOSYS: not Linux). */
int sn_epoll_wait(int fd, int64_t timeout_ns, int32_t *descriptors, uint32_t *masks, uint32_t most);

/* Watches a file descriptor that is registered, edge-triggered: for bytes, its end and, if asked, space. Returns 0 or
   -errno. */
int sn_epoll_watch(int fd, int watched, int space);

/* Resets an eventfd (eventfd(2)) that has reported. */
void sn_epoll_take_event(int event);

/* Sets the calling thread's timer slack to its minimum: waits end on time instead of up to 50 us late. Returns 0 or
   -errno. */
int sn_set_timer_slack(void);

#endif
