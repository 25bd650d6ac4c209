/* What crosses a kernel's TAP device, both ways. Input: segment size that writes ask for (2 bytes), then packets: length
   (2 bytes, of which 11 bits count), bytes, with virtio's header first. As many are read at once as there is room for.

   The device is one of ours. What is said of a packet lies within it; one that is handed up as a TCP stream again has
   whole headers, right lengths and checksums, and the same bytes. */
#include <sys/uio.h>
#include <unistd.h>

ssize_t fuzzed_readv(int fd, const struct iovec *parts, int count);
ssize_t fuzzed_writev(int fd, const struct iovec *parts, int count);
#define readv fuzzed_readv
#define writev fuzzed_writev
#include "nic/tap.c"
#undef readv
#undef writev

#include "fuzz.h"

enum { PACKETS = 32, ROOM = 4 * SN_TAP_PACKET, HEADERS_ROOM = PACKETS * SN_TAP_SLOT };

static input waiting;
static uint8_t *written;
static size_t written_size;
static uint32_t written_packets, asked_segment, expected_segment;

ssize_t fuzzed_readv(int fd, const struct iovec *parts, int count)
{
    size_t length, done = 0;
    (void)fd;
    if (!waiting.left) {
        errno = EAGAIN;
        return -1;
    }
    const size_t asked = take16(&waiting) & 0x7ff;
    uint8_t *bytes = take_bytes(&waiting, asked, &length);
    for (int i = 0; i < count; i++) {
        const size_t size = length - done < parts[i].iov_len ? length - done : parts[i].iov_len;
        memcpy(parts[i].iov_base, bytes + done, size);
        done += size;
    }
    CHECK(done == length);
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
    CHECK((payload > expected_segment) == (frame[VNET_GSO - SN_TAP_HEADER] == GSO_TCPV4));
    written_packets++;
    return (ssize_t)(parts[0].iov_len + payload);
}

static void check_packet(const uint8_t *headers, const uint8_t *buffer, const sn_tap_packet *packet)
{
    CHECK(packet->kind == SN_KIND_TCP || packet->kind == SN_KIND_OTHER || packet->kind == SN_DROP_FRAME);
    CHECK((size_t)packet->offset + packet->length <= ROOM);
    CHECK(packet->packets >= 1);
    if (packet->kind != SN_KIND_TCP) {
        CHECK(packet->header_length == 0 && packet->packets == 1);
        return;
    }
    CHECK((size_t)packet->header + packet->header_length <= HEADERS_ROOM && packet->header_length <= MAX_HEADER);
    const sn_payload_ref halves[2] = {{0, packet->length / 2, 0}, {packet->length / 2, packet->length - packet->length / 2, 0}};
    const uint8_t *header = headers + packet->header;
    uint8_t *payload = exactly(packet->length);
    uint32_t packets;
    memcpy(payload, buffer + packet->offset, packet->length);
    written_size = written_packets = 0;
    expected_segment = asked_segment ? asked_segment : halves[1].length ? halves[1].length : 1;
    const int failed = sn_tap_write(0, header, packet->header_length, payload, packet->length, halves, 2, asked_segment, &packets);
    CHECK(failed == 0);
    CHECK(packets == written_packets && written_size == packet->length);
    CHECK(same(written, payload, packet->length));
    free(payload);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t *headers, *buffer;
    sn_tap_packet packets[PACKETS];
    if (!buffer) {
        headers = exactly(HEADERS_ROOM);
        buffer = exactly(ROOM);
        written = exactly(ROOM);
    }
    waiting = (input){data, size};
    asked_segment = take16(&waiting);
    while (waiting.left) {
        const size_t before = waiting.left;
        int more;
        const int found = sn_tap_read(0, headers, buffer, ROOM, packets, PACKETS, &more);
        CHECK(found >= 0 && found <= PACKETS);
        for (int i = 0; i < found; i++)
            check_packet(headers, buffer, packets + i);
        CHECK(waiting.left < before);
    }
    return 0;
}
