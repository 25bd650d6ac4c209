/* What /proc says of a process (proc(5)), read with nothing but calls that are safe between fork and exec. */
#ifndef SOFTNIC_PROCFS_H
#define SOFTNIC_PROCFS_H
#include <stdint.h>
#include <sys/types.h>

typedef struct {
    char state;        /* of the main thread, as in proc(5)'s stat; '?': not known */
    int running;       /* whether any thread runs or waits for a processor */
    uint64_t cpu_ticks; /* processor time of all threads so far */
} sn_process;

/* Reads the state of a process, and that of each of its threads if `threads` is set. */
sn_process sn_process_state(pid_t process, int threads);

/* Gives up the memory that the calling process shares copy-on-write with its parent since fork: large anonymous
   mappings, which then hold zeros, except what lies near the stack pointer and near `keep`. */
void sn_forget_memory(const void *keep);

#endif
