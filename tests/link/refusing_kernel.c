/* A kernel that refuses frames: sendmmsg that accepts only some messages of a call, or none, as a script says. Loaded by
   LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>

static const int *script; /* of each call: the messages accepted, or -errno */
static size_t left;
static uint32_t state; /* of random refusals; 0: none */

void refuse_as(const int *answers, size_t count)
{
    script = answers;
    left = count;
}

size_t refusals_left(void)
{
    return left;
}

static int random_answer(void)
{
    state = state * UINT32_C(1664525) + UINT32_C(1013904223);
    const uint32_t drawn = state >> 16;
    if (drawn % 4 == 0)
        return -EAGAIN;
    return drawn % 4 == 1 ? 1 : 1 << 20;
}

static int next_answer(void)
{
    if (left) {
        left--;
        return *script++;
    }
    return state ? random_answer() : 1 << 20;
}

__attribute__((constructor)) static void start(void)
{
    const char *seed = getenv("REFUSING_KERNEL_SEED");
    state = seed ? (uint32_t)strtoul(seed, NULL, 10) : 0;
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags)
{
    int (*const real)(int, struct mmsghdr *, unsigned int, int) =
        (int (*)(int, struct mmsghdr *, unsigned int, int))dlsym(RTLD_NEXT, "sendmmsg");
    const int answer = next_answer();
    if (answer < 0) {
        errno = -answer;
        return -1;
    }
    return real(fd, messages, (unsigned int)answer < count ? (unsigned int)answer : count, flags);
}
