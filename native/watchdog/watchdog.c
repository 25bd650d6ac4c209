/* A process that ends a stopped or hung daemon. A stopped daemon keeps its file descriptors open, so its applications
   would wait for ever, and it handles no signal; one whose event loop hangs is no better. The watchdog is a fork
   without exec: it releases the memory shared with the daemon and calls only functions that are safe between fork and
   exec (signal-safety(7)).

   It counts time in steps of STEP_MS, however long each took: time in which the whole host was suspended, or had no
   CPU for the watchdog either, counts little. */

#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "watchdog/watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "watchdog/procfs.h"
#endif

#if defined(__linux__)
enum { STEP_MS = 250, END_MS = 1000, OLD_KERNELS_DESCRIPTORS = 1024 };
enum { QUIET_MS = SN_WATCHDOG_HEARTBEAT_MS }; /* time without a heartbeat that is normal */

typedef struct {
    pid_t daemon;
    const uint64_t *beat;
    uint64_t seen; /* last value of the heartbeat */
    uint64_t cpu_ticks;
    uint32_t tick_ms;
    uint32_t stopped_ms, silent_ms;
} watched;

static void detach(void)
{
    for (int number = 1; number < 32; number++)
        signal(number, SIG_DFL);
    signal(SIGINT, SIG_IGN);  /* Ctrl-C is for the daemon, which shuts down cleanly */
    signal(SIGPIPE, SIG_IGN); /* standard error may be closed */
    setsid();
    sn_forget_memory(&errno);
#ifdef SYS_close_range
    if (syscall(SYS_close_range, 3U, ~0U, 0U) == 0)
        return;
#endif
    for (int fd = 3; fd < OLD_KERNELS_DESCRIPTORS; fd++)
        close(fd);
}

/* Returns how much of a step without a heartbeat counts as silence: all of it if the daemon waits, the CPU time if it
   computed, nothing if it was not scheduled. */
static uint32_t silence(watched *w, const sn_process *now)
{
    const uint64_t computed_ms = (now->cpu_ticks - w->cpu_ticks) * w->tick_ms;

    if (now->state == 'T' || now->state == 't' || now->state == '?')
        return 0;
    if (!now->running)
        return STEP_MS;
    return computed_ms < STEP_MS ? (uint32_t)computed_ms : STEP_MS;
}

static void step(watched *w)
{
    const uint64_t beat = __atomic_load_n(w->beat, __ATOMIC_RELAXED);
    const int quiet = beat == w->seen && beat != 0;
    const sn_process now = sn_process_state(w->daemon, quiet && w->silent_ms >= QUIET_MS);

    /* One that runs between two stops, as under cpulimit, is slow. */
    const int ran = beat != w->seen || now.cpu_ticks != w->cpu_ticks;

    w->stopped_ms = now.state == 'T' && !ran ? w->stopped_ms + STEP_MS : 0;
    if (!quiet)
        w->silent_ms = 0;
    else if (w->silent_ms < QUIET_MS)
        w->silent_ms += STEP_MS;
    else
        w->silent_ms += silence(w, &now);
    w->seen = beat;
    w->cpu_ticks = now.cpu_ticks;
}

static void write_text(const char *text)
{
    struct pollfd out = {STDERR_FILENO, POLLOUT, 0};

    if (poll(&out, 1, 0) == 1 && out.revents & POLLOUT && write(STDERR_FILENO, text, strlen(text)) < 0)
        errno = 0;
}

static void end(pid_t daemon, const char *text)
{
    kill(daemon, SIGTERM);
    write_text(text);
    kill(daemon, SIGCONT);
    for (int waited_ms = 0; waited_ms < END_MS && getppid() == daemon; waited_ms += STEP_MS)
        poll(NULL, 0, STEP_MS);
    if (getppid() == daemon)
        kill(daemon, SIGKILL);
}

static void watch(watched *w, const sn_watchdog_bounds *bounds, const char *stopped_text, const char *silent_text)
{
    while (getppid() == w->daemon) {
        poll(NULL, 0, STEP_MS);
        step(w);
        if (bounds->stopped_ms && w->stopped_ms >= bounds->stopped_ms) {
            end(w->daemon, stopped_text);
            return;
        }
        if (bounds->silent_ms && w->silent_ms >= bounds->silent_ms) {
            end(w->daemon, silent_text);
            return;
        }
    }
}
#endif

int32_t sn_stall_watchdog(const uint64_t *beat, const sn_watchdog_bounds *bounds, const char *stopped_text,
                 const char *silent_text)
{
#if defined(__linux__)
    const long ticks_s = sysconf(_SC_CLK_TCK);
    const sn_watchdog_bounds held = *bounds; /* on the stack, which is kept */
    char words[2][256];
    watched w = {getpid(), beat, 0, 0, (uint32_t)(1000 / (ticks_s > 0 && ticks_s <= 1000 ? ticks_s : 100)), 0, 0};

    for (int index = 0; index < 2; index++) {
        const char *from = index ? silent_text : stopped_text;
        const size_t size = strlen(from) < sizeof words[0] ? strlen(from) : sizeof words[0] - 1;
        memcpy(words[index], from, size);
        words[index][size] = 0;
    }
    const pid_t guard = fork();
    if (guard < 0)
        return -errno;
    if (guard == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        prctl(PR_SET_NAME, "softnicd-wdog", 0, 0, 0);
        detach();
        watch(&w, &held, words[0], words[1]);
        _exit(0);
    }
    return (int32_t)guard;
#else
    (void)beat, (void)bounds, (void)stopped_text, (void)silent_text;
    return -ENOSYS;
#endif
}
