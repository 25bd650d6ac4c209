/* A stopped daemon keeps its descriptors, so programs that wait for it would wait for ever, and no signal reaches it.
   Hence a second process. It is a fork without exec: it shares the daemon's memory, touches next to none of it, and
   calls only what is safe between fork and exec (signal-safety(7)). */

#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

#if defined(__linux__)
enum { STEP_MS = 250, END_MS = 1000, OLD_KERNELS_DESCRIPTORS = 1024 };

/* The letter of proc(5)'s stat, behind the name in parentheses, which may hold any character; '?': not known. */
static char state_at(const char *path)
{
    char text[512];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return '?';
    const ssize_t size = read(fd, text, sizeof text);
    close(fd);
    for (ssize_t at = size - 3; at >= 0; at--)
        if (text[at] == ')')
            return text[at + 2];
    return '?';
}

static void let_go_of_everything(void)
{
    for (int number = 1; number < 32; number++)
        signal(number, SIG_DFL);
    signal(SIGINT, SIG_IGN);  /* Ctrl-C is for the daemon, which takes its time to end */
    signal(SIGPIPE, SIG_IGN); /* nobody may be there to read the last words */
    setsid();
#ifdef SYS_close_range
    if (syscall(SYS_close_range, 3U, ~0U, 0U) == 0)
        return;
#endif
    for (int fd = 3; fd < OLD_KERNELS_DESCRIPTORS; fd++)
        close(fd);
}

static void watch(pid_t daemon, const char *path, uint32_t patience_ms, const char *last_words)
{
    uint32_t stopped_ms = 0; /* in steps of its own: if all stood still, all go on */

    while (getppid() == daemon) {
        poll(NULL, 0, STEP_MS);
        stopped_ms = state_at(path) == 'T' ? stopped_ms + STEP_MS : 0;
        if (stopped_ms < patience_ms)
            continue;
        kill(daemon, SIGTERM);
        if (write(STDERR_FILENO, last_words, strlen(last_words)) < 0)
            errno = 0;
        kill(daemon, SIGCONT);
        for (int waited_ms = 0; waited_ms < END_MS && getppid() == daemon; waited_ms += STEP_MS)
            poll(NULL, 0, STEP_MS);
        if (getppid() == daemon)
            kill(daemon, SIGKILL);
        return;
    }
}
#endif

int32_t sn_guard(uint32_t patience_ms, const char *last_words)
{
#if defined(__linux__)
    char path[32];
    const pid_t daemon = getpid();

    snprintf(path, sizeof path, "/proc/%ld/stat", (long)daemon);
    const pid_t guard = fork();
    if (guard < 0)
        return -errno;
    if (guard == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        prctl(PR_SET_NAME, "softnicd-guard", 0, 0, 0);
        let_go_of_everything();
        watch(daemon, path, patience_ms, last_words);
        _exit(0);
    }
    return (int32_t)guard;
#else
    (void)patience_ms, (void)last_words;
    return -ENOSYS;
#endif
}
