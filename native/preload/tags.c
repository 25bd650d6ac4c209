/* Tags of connections of programs that know nothing of tags: SOFTNIC_TAGS=5000=bounded:10,6000=bfp:7 names the codec of
   each port that is connected to or listened at. A program that sets IP_TOS itself is left alone. */
#include "preload/preload.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum { OFFLOAD_TAG = 0x28, CODEC = 64 };

/* Finds the codec of a port. Returns false if it has none. */
static bool find_codec(const char *table, uint16_t port, char codec[static CODEC])
{
    while (table && *table) {
        char *after;
        const long number = strtol(table, &after, 10);
        const size_t size = strcspn(after, ",");
        if (number == port && after != table && *after == '=' && size > 1 && size <= CODEC) {
            memcpy(codec, after + 1, size - 1);
            codec[size - 1] = 0;
            return true;
        }
        table = after + size + (after[size] == ',');
    }
    return false;
}

void sp_tag(int fd, uint16_t port)
{
    char codec[CODEC];
    int tag = 0;
    socklen_t size = sizeof tag;

    if (!find_codec(getenv("SOFTNIC_TAGS"), port, codec) || getsockopt(fd, IPPROTO_IP, IP_TOS, &tag, &size) || tag)
        return;
    tag = OFFLOAD_TAG;
    if (!setsockopt(fd, SP_SOL_NIC, SP_NIC_CODEC, codec, (socklen_t)strlen(codec)))
        setsockopt(fd, IPPROTO_IP, IP_TOS, &tag, sizeof tag);
}
