#if defined(__linux__)
#define _GNU_SOURCE
#include "watchdog/procfs.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PATH = 64, TEXT = 512, ENTRIES = 4096, LEAST = 1 << 20, MARGIN = 256 << 10 };
enum { UTIME = 11, STIME = 12 }; /* fields of stat, counted from the state */

struct entry { /* getdents64(2) */
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

static char *put_text(char *at, const char *text)
{
    while (*text)
        *at++ = *text++;
    return at;
}

static char *put_number(char *at, uint64_t number)
{
    char digits[20];
    int count = 0;

    do
        digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    while (count)
        *at++ = digits[--count];
    return at;
}

static ssize_t read_whole(const char *path, char *text, size_t room)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    const ssize_t size = read(fd, text, room - 1);
    close(fd);
    text[size > 0 ? size : 0] = 0;
    return size;
}

/* Parses state and CPU time of a stat file. The name before them, in parentheses, may contain any character. */
static char parse_stat(const char *path, uint64_t *ticks)
{
    char text[TEXT];
    const ssize_t size = read_whole(path, text, sizeof text);
    const char *at = NULL;

    for (ssize_t index = size - 3; index >= 0 && at == NULL; index--)
        if (text[index] == ')')
            at = text + index + 2;
    if (at == NULL)
        return '?';
    const char state = *at;
    *ticks = 0;
    for (int field = 0; *at && field <= STIME; at++) {
        if (*at == ' ')
            field++;
        else if (field >= UTIME && field <= STIME) {
            uint64_t number = 0;
            for (; *at >= '0' && *at <= '9'; at++)
                number = number * 10 + (uint64_t)(*at - '0');
            *ticks += number;
            at--;
        }
    }
    return state;
}

/* Returns whether any thread of a process is runnable. `path` up to `end` is the process's directory. */
static int any_runs(char *path, char *end)
{
    char entries[ENTRIES];
    int found = 0;

    *put_text(end, "task") = 0;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    for (long size; !found && (size = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0;) {
        for (long at = 0; at < size && !found;) {
            const struct entry *entry = (const struct entry *)(entries + at);
            uint64_t ignored;
            at += entry->length;
            if (entry->name[0] < '0' || entry->name[0] > '9')
                continue;
            *put_text(put_text(put_text(end, "task/"), entry->name), "/stat") = 0;
            found = parse_stat(path, &ignored) == 'R';
        }
    }
    close(fd);
    return found;
}

sn_process sn_process_state(pid_t process, int threads)
{
    char path[PATH];
    char *end = put_text(put_number(put_text(path, "/proc/"), (uint64_t)process), "/");
    sn_process found = {'?', 0, 0};

    *put_text(end, "stat") = 0;
    found.state = parse_stat(path, &found.cpu_ticks);
    found.running = found.state == 'R' || (threads && any_runs(path, end));
    return found;
}

/* --- memory */

static void forget_part(uintptr_t start, uintptr_t end)
{
    if (start < end && end - start >= LEAST)
        madvise((void *)start, end - start, MADV_DONTNEED); /* on failure the memory stays shared */
}

static void forget_around(uintptr_t start, uintptr_t end, uintptr_t kept)
{
    const uintptr_t low = (kept - MARGIN) & ~(uintptr_t)0xFFFF, high = (kept + MARGIN) & ~(uintptr_t)0xFFFF;

    if (end <= low || start >= high) {
        forget_part(start, end);
        return;
    }
    forget_part(start, low);
    forget_part(high, end);
}

static uintptr_t parse_hex(const char **at)
{
    uintptr_t number = 0;

    for (;; (*at)++) {
        if (**at >= '0' && **at <= '9')
            number = number << 4 | (uintptr_t)(**at - '0');
        else if (**at >= 'a' && **at <= 'f')
            number = number << 4 | (uintptr_t)(**at - 'a' + 10);
        else
            return number;
    }
}

/* One line of maps: `start-end rw-p offset 00:00 0  name`. */
static void forget_mapping(const char *line, uintptr_t stack, uintptr_t keep)
{
    const uintptr_t start = parse_hex(&line);
    line++;
    const uintptr_t end = parse_hex(&line);

    if (strncmp(line, " rw-p ", 6) || end - start < LEAST || (start <= stack && stack < end))
        return;
    line += 6;
    parse_hex(&line);
    if (strncmp(line, " 00:00 0", 8) == 0 && (line[8] == ' ' || line[8] == 0))
        forget_around(start, end, keep);
}

void sn_forget_memory(const void *keep)
{
    char text[ENTRIES], line[TEXT];
    size_t length = 0;
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    for (ssize_t size; (size = read(fd, text, sizeof text)) > 0;) {
        for (ssize_t at = 0; at < size; at++) {
            if (text[at] != '\n') {
                if (length < sizeof line - 1)
                    line[length++] = text[at];
                continue;
            }
            line[length] = 0;
            length = 0;
            forget_mapping(line, (uintptr_t)line, (uintptr_t)keep);
        }
    }
    close(fd);
}
#endif
