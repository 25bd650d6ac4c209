/* Datagrams as a kernel hands them up, several in one where GRO joined them. Input: messages: how (1 byte: bit 0 truncated,
   bit 1 with a GRO size, bits 2 and 3 who sent it), GRO size (4, signed), length (2), bytes. Bit 7 of the first message's
   has datagrams listed as they are, as for encrypted ones.

   The receiver runs on a recvmmsg of ours. Frames must lie within what was received from peers, sources must cover them
   in order, and every frame must have had our VNI before it. */
#define _GNU_SOURCE
#include <sys/socket.h>

int fuzzed_recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags, void *timeout);
#define recvmmsg fuzzed_recvmmsg
#include "nic/batch_io.c"
#undef recvmmsg

#include "endpoint.h"
#include "fuzz.h"

enum { SLOT = 4096, SLOTS = 8, FRAMES = SLOTS * MESSAGE_FRAMES, VNI = 7 };

static input waiting;
static size_t received_sizes[SLOTS];

static void join_segments(struct msghdr *header, int32_t size)
{
    struct cmsghdr *entry = CMSG_FIRSTHDR(header);
    entry->cmsg_level = SOL_UDP;
    entry->cmsg_type = UDP_GRO;
    entry->cmsg_len = CMSG_LEN(sizeof size);
    memcpy(CMSG_DATA(entry), &size, sizeof size);
}

int fuzzed_recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags, void *timeout)
{
    unsigned int filled = 0;
    (void)fd, (void)flags, (void)timeout;
    for (; filled < count && waiting.left; filled++) {
        struct msghdr *header = &messages[filled].msg_hdr;
        const uint32_t how = take8(&waiting);
        const int32_t segment = (int32_t)take32(&waiting);
        const size_t asked = take16(&waiting) % (SLOT + 1);
        size_t length;
        uint8_t *bytes = take_bytes(&waiting, asked, &length);
        CHECK(header->msg_iovlen == 1 && header->msg_iov->iov_len == SLOT);
        if (length)
            memcpy(header->msg_iov->iov_base, bytes, length);
        free(bytes);
        const sn_endpoint from = loopback((uint16_t)(4000 + (how >> 2 & 3)));
        CHECK(header->msg_namelen == sizeof from.name);
        memcpy(header->msg_name, from.name, from.length);
        header->msg_namelen = from.length;
        header->msg_flags = how & 1 ? MSG_TRUNC : 0;
        if (how & 2)
            join_segments(header, segment);
        else
            header->msg_controllen = 0;
        messages[filled].msg_len = (unsigned int)length;
        received_sizes[filled] = length;
    }
    if (filled)
        return (int)filled;
    errno = EAGAIN;
    return -1;
}

static void check_frame(const uint8_t *buffer, uint32_t offset, uint32_t length, int any)
{
    const uint32_t slot = offset / SLOT, within = offset % SLOT;
    CHECK(slot < SLOTS && (size_t)within + length <= received_sizes[slot]);
    if (any)
        return;
    CHECK(within >= VXLAN_HEADER && length >= ETHERNET_HEADER);
    const uint8_t *header = buffer + offset - VXLAN_HEADER;
    CHECK(header[0] & 0x08 && header[4] == 0 && header[5] == 0 && header[6] == VNI);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const sn_endpoint peers[] = {loopback(4000), loopback(4002)};
    const int any = size && data[0] & 0x80;
    uint32_t offsets[FRAMES], lengths[FRAMES];
    sn_source sources[SLOTS];
    sn_received found;
    uint8_t *buffer = exactly(SLOTS * SLOT);
    waiting = (input){data, size};
    CHECK(sn_vxlan_receive(0, any ? SN_ANY_DATAGRAM : VNI, peers, 2, buffer, SLOT, SLOTS, offsets, lengths, FRAMES,
                           sources, &found) == 0);
    CHECK(found.messages <= SLOTS && found.sources <= found.messages && found.frames <= FRAMES);
    CHECK(found.encrypted <= found.malformed);
    uint32_t next = 0;
    for (uint32_t i = 0; i < found.sources; i++) {
        CHECK(sources[i].first == next && sources[i].count > 0 && sources[i].peer < 2);
        next += sources[i].count;
    }
    CHECK(next == found.frames);
    for (uint32_t i = 0; i < found.frames; i++)
        check_frame(buffer, offsets[i], lengths[i], any);
    free(buffer);
    return 0;
}
