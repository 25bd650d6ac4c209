/* Waiting with nanoseconds. */
#ifndef SOFTNIC_EPOLL_H
#define SOFTNIC_EPOLL_H
/* C only */
#include <stdint.h>
/* all */

/* Waits until descriptors that the epoll instance `fd` watches have something to say, `timeout_ns` nanoseconds at most
   (-1: for ever), which is precise where epoll_wait's own timeouts are whole milliseconds. `descriptors` and `masks` take
   `most` entries. The descriptors are known by their numbers, as Python's select.epoll registers them. Returns how
   many have (0: none in time), or -errno (-EINTR: a signal came; -ENOSYS: no Linux). */
int sn_epoll_wait(int fd, int64_t timeout_ns, int32_t *descriptors, uint32_t *masks, uint32_t most);

/* Lets the calling thread's waits end on time instead of up to 50 us late. Returns 0 or -errno. */
int sn_set_timer_slack(void);

#endif
