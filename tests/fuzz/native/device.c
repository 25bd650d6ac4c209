/* What crosses a kernel's TAP device, both ways. Input: segment size that writes ask for (2 bytes), then packets: length
   (2 bytes, of which 11 bits count), bytes, with virtio's header first.

   The device is one of ours. What is said of a packet lies within it; one that is handed up as a TCP stream again has
   whole headers, right lengths and checksums, and the same bytes. */
#include <sys/uio.h>
#include <unistd.h>

ssize_t fuzzed_read(int fd, void *buffer, size_t size);
ssize_t fuzzed_writev(int fd, const struct iovec *parts, int count);
#define read fuzzed_read
#define writev fuzzed_writev
#include "tap.c"
#undef read
#undef writev

#include "fuzz.h"

enum { PACKETS = 32, ROOM = 4 * SN_TAP_PACKET };

static input waiting;
static uint8_t *written;
static size_t written_size;
static uint32_t written_packets, asked_segment;

ssize_t fuzzed_read(int fd, void *buffer, size_t size)
{
    size_t length;
    (void)fd;
    if (!waiting.left) {
        errno = EAGAIN;
        return -1;
    }
    const size_t asked = take16(&waiting) & 0x7ff;
    uint8_t *bytes = take_bytes(&waiting, asked, &length);
    CHECK(length <= size);
    memcpy(buffer, bytes, length);
    free(bytes);
    return (ssize_t)length;
}

/* Takes a packet apart again, and keeps its payload. */
ssize_t fuzzed_writev(int fd, const struct iovec *parts, int count)
{
    const uint8_t *frame = (const uint8_t *)parts[0].iov_base + SN_TAP_HEADER, *ip = frame + ETHERNET_HEADER;
    const size_t header = parts[0].iov_len - SN_TAP_HEADER;
    size_t payload = 0;
    (void)fd;
    for (int i = 1; i < count; i++) {
        memcpy(written + written_size, parts[i].iov_base, parts[i].iov_len);
        written_size += parts[i].iov_len;
        payload += parts[i].iov_len;
    }
    CHECK(sn_load16be(ip + IPV4_LENGTH) == header - ETHERNET_HEADER + payload);
    CHECK(sn_fold(sn_sum(ip, IPV4_HEADER)) == 0xffff);
    CHECK(load16(frame - SN_TAP_HEADER + VNET_HEADER_LENGTH) == header);
    CHECK((payload > asked_segment) == (frame[VNET_GSO - SN_TAP_HEADER] == GSO_TCPV4));
    written_packets++;
    return (ssize_t)(parts[0].iov_len + payload);
}

static void check_packet(const uint8_t *buffer, const sn_tap_packet *packet)
{
    CHECK(packet->kind == SN_KIND_TCP || packet->kind == SN_KIND_OTHER || packet->kind == SN_DROP_FRAME);
    CHECK((size_t)packet->offset + packet->length <= ROOM);
    if (packet->kind != SN_KIND_TCP)
        return;
    CHECK((size_t)packet->header_length + packet->payload <= packet->length);
    const sn_piece halves[2] = {{packet->header_length, packet->payload / 2, 0},
                                {packet->header_length + packet->payload / 2, packet->payload - packet->payload / 2, 0}};
    uint8_t *frame = exactly(packet->length);
    uint32_t packets;
    memcpy(frame, buffer + packet->offset, packet->length);
    written_size = written_packets = 0;
    if (asked_segment == 0) {
        CHECK(sn_tap_write(0, frame, packet->header_length, frame, packet->length, halves, 2, 0, &packets) == -EINVAL);
    } else {
        CHECK(sn_tap_write(0, frame, packet->header_length, frame, packet->length, halves, 2, asked_segment, &packets) == 0);
        CHECK(packets == written_packets && written_size == packet->payload);
        CHECK(same(written, frame + packet->header_length, packet->payload));
    }
    free(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t *buffer;
    sn_tap_packet packets[PACKETS];
    if (!buffer) {
        buffer = exactly(ROOM);
        written = exactly(SN_TAP_PACKET);
    }
    waiting = (input){data, size};
    asked_segment = take16(&waiting);
    while (waiting.left) {
        const size_t before = waiting.left;
        const int found = sn_tap_read(0, buffer, ROOM, packets, PACKETS);
        CHECK(found >= 0 && found <= PACKETS);
        for (int i = 0; i < found; i++)
            check_packet(buffer, packets + i);
        CHECK(waiting.left < before);
    }
    return 0;
}
