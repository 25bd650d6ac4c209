/* The state of a process from /proc (proc(5)), read only with calls that are safe between fork and exec. */
#ifndef SOFTNIC_PROCFS_H
#define SOFTNIC_PROCFS_H
#include <stdint.h>
#include <sys/types.h>

typedef struct {
    char state;        /* of the main thread, as in proc(5)'s stat; '?': unknown */
    int running;       /* whether any thread runs or waits for a CPU */
    uint64_t cpu_ticks; /* CPU time of all threads */
} sn_process;

/* Reads the state of a process and, with `threads`, of each of its threads. */
sn_process sn_process_state(pid_t process, int threads);

/* Releases the memory that the calling process shares copy-on-write with its parent since fork: large anonymous
   mappings, which then hold zeros, except near the stack pointer and near `keep`. */
void sn_forget_memory(const void *keep);

#endif
