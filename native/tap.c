/* TAP: one packet a system call (the device knows no other way), but a packet of up to 64 KiB. The kernel leaves the
   checksum of what it sends to us, and we tell it that what we hand up is right, so no byte is summed for nothing. */
#include "tap.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "checksum.h"
#include "headers.h"

enum {
    VNET_FLAGS = 0,
    VNET_GSO = 1,
    VNET_HEADER_LENGTH = 2,
    VNET_SEGMENT = 4,
    VNET_START = 6,
    VNET_OFFSET = 8,
    NEEDS_CHECKSUM = 1,
    GSO_NONE = 0,
    GSO_TCPV4 = 1,
    HEADERS = ETHERNET_HEADER + IPV4_HEADER,
    PIECES = 512 /* of one packet, below UIO_MAXIOV */
};

/* Adds what the sum of [start, length) lacks: the kernel has put the pseudo header's sum where the checksum goes. */
static int complete_checksum(uint8_t *frame, size_t length, size_t start, size_t offset)
{
    if (start > length || offset + 2 > length - start) return -1;
    uint16_t sum = (uint16_t)~sn_fold(sn_sum(frame + start, length - start));
    sn_store16(frame + start + offset, sum ? sum : 0xffff); /* 0 means none to UDP (RFC 768) */
    return 0;
}

/* Whether this is TCP over IPv4 that sn_cut can cut; the fields are taken from it then. */
static int parse_segment(const uint8_t *frame, size_t length, sn_tap_packet *packet)
{
    const uint8_t *ip = frame + ETHERNET_HEADER, *tcp = frame + HEADERS;
    if (length < HEADERS + TCP_HEADER || sn_load16be(frame + ETHERNET_TYPE) != ETHERTYPE_IPV4) return 0;
    if (ip[0] != 0x45 || ip[IPV4_PROTOCOL] != PROTOCOL_TCP || sn_load16be(ip + IPV4_FRAGMENT) & 0x3fff) return 0;
    size_t total = sn_load16be(ip + IPV4_LENGTH), header = 4 * (size_t)(tcp[TCP_OFFSET] >> 4);
    if (total > length - ETHERNET_HEADER || header < TCP_HEADER || total < IPV4_HEADER + header) return 0;
    packet->payload = (uint32_t)(total - IPV4_HEADER - header);
    packet->src = sn_load32be(ip + IPV4_SOURCE);
    packet->dst = sn_load32be(ip + IPV4_DESTINATION);
    packet->seq = sn_load32be(tcp + TCP_SEQ);
    packet->ack = sn_load32be(tcp + TCP_ACK);
    packet->sport = sn_load16be(tcp + TCP_SPORT);
    packet->dport = sn_load16be(tcp + TCP_DPORT);
    packet->header_length = (uint16_t)(HEADERS + header);
    packet->flags = tcp[TCP_FLAGS];
    packet->tos = ip[IPV4_TOS];
    return 1;
}

static uint16_t load16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value); /* virtio's fields are in the machine's order here (tun's default) */
    return value;
}

static void store16(uint8_t *at, size_t value)
{
    const uint16_t field = (uint16_t)value;
    memcpy(at, &field, sizeof field);
}

static void parse_packet(uint8_t *vnet, size_t length, sn_tap_packet *packet)
{
    uint8_t *frame = vnet + SN_TAP_HEADER;
    packet->length = (uint32_t)length;
    packet->kind = SN_DROP_FRAME;
    if (length < ETHERNET_HEADER) return;
    packet->segment = vnet[VNET_GSO] == GSO_NONE ? 0 : load16(vnet + VNET_SEGMENT);
    if (parse_segment(frame, length, packet)) {
        packet->kind = SN_KIND_TCP;
        return;
    }
    if (vnet[VNET_GSO] != GSO_NONE) return;
    if (vnet[VNET_FLAGS] & NEEDS_CHECKSUM &&
        complete_checksum(frame, length, load16(vnet + VNET_START), load16(vnet + VNET_OFFSET)))
        return;
    packet->kind = SN_KIND_OTHER;
}

int sn_tap_read(int fd, uint8_t *buffer, size_t size, sn_tap_packet *packets, uint32_t most)
{
    uint32_t count = 0;
    size_t used = 0;
    if (size > UINT32_MAX) return -EINVAL;
    while (count < most && size - used >= SN_TAP_PACKET) {
        const ssize_t length = read(fd, buffer + used, SN_TAP_PACKET);
        if (length < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN || count) break;
            return -errno;
        }
        if (length < SN_TAP_HEADER) break;
        memset(packets + count, 0, sizeof packets[count]);
        packets[count].offset = (uint32_t)(used + SN_TAP_HEADER);
        parse_packet(buffer + used, (size_t)length - SN_TAP_HEADER, packets + count);
        used += (size_t)length;
        count++;
    }
    return (int)count;
}

/* Where the next byte of some pieces lies. */
typedef struct {
    const uint8_t *data;
    const sn_piece *pieces;
    uint32_t count;
    uint32_t index;
    uint32_t within;
} cursor;

/* Lists the next bytes, at most `most`, at most PIECES of them. Returns how many bytes. */
static size_t take(cursor *at, size_t most, struct iovec *parts, int *used)
{
    size_t taken = 0;
    while (at->index < at->count && taken < most && *used < PIECES) {
        const sn_piece *piece = at->pieces + at->index;
        size_t length = piece->length - at->within;
        if (length > most - taken) length = most - taken;
        if (length) parts[(*used)++] = (struct iovec){(void *)(at->data + piece->offset + at->within), length};
        taken += length;
        at->within += (uint32_t)length;
        if (at->within == piece->length) {
            at->index++;
            at->within = 0;
        }
    }
    return taken;
}

/* virtio's header and the packet's own at `out`, for `payload` bytes that start `done` bytes into the stream. */
static void write_headers(uint8_t *out, const uint8_t *header, uint32_t length, size_t payload, uint32_t done, int last,
                          uint32_t segment)
{
    uint8_t *ip = out + SN_TAP_HEADER + ETHERNET_HEADER, *tcp = ip + IPV4_HEADER;
    const uint32_t tcp_length = (uint32_t)(length - HEADERS + payload);
    memset(out, 0, SN_TAP_HEADER);
    out[VNET_FLAGS] = NEEDS_CHECKSUM;
    if (payload > segment) {
        out[VNET_GSO] = GSO_TCPV4;
        store16(out + VNET_SEGMENT, segment);
    }
    store16(out + VNET_HEADER_LENGTH, length);
    store16(out + VNET_START, HEADERS);
    store16(out + VNET_OFFSET, TCP_CHECKSUM);
    memcpy(out + SN_TAP_HEADER, header, length);
    sn_store16be(ip + IPV4_LENGTH, (uint16_t)(IPV4_HEADER + tcp_length));
    sn_store16(ip + IPV4_CHECKSUM, 0);
    sn_store16(ip + IPV4_CHECKSUM, (uint16_t)~sn_fold(sn_sum(ip, IPV4_HEADER)));
    sn_store32be(tcp + TCP_SEQ, sn_load32be(tcp + TCP_SEQ) + done);
    if (!last) tcp[TCP_FLAGS] &= (uint8_t)~(TCP_PSH | TCP_FIN);
    const uint64_t pseudo = sn_sum(ip + IPV4_SOURCE, 8) + sn_sum_field16(PROTOCOL_TCP) + sn_sum_field16(tcp_length);
    sn_store16(tcp + TCP_CHECKSUM, sn_fold(pseudo));
}

static int write_packet(int fd, const struct iovec *parts, int count)
{
    ssize_t written;
    do {
        written = writev(fd, parts, count);
    } while (written < 0 && errno == EINTR);
    return written < 0 ? -errno : 0;
}

static int legal(const uint8_t *header, uint32_t length, size_t size, const sn_piece *pieces, uint32_t count)
{
    if (length < HEADERS + TCP_HEADER || length > MAX_HEADER || header[ETHERNET_HEADER] != 0x45) return 0;
    if (HEADERS + 4 * (uint32_t)(header[HEADERS + TCP_OFFSET] >> 4) != length) return 0;
    for (uint32_t i = 0; i < count; i++)
        if (pieces[i].offset > size || pieces[i].length > size - pieces[i].offset) return 0;
    return 1;
}

int sn_tap_write(int fd, const uint8_t *header, uint32_t header_length, const uint8_t *data, size_t size,
                 const sn_piece *pieces, uint32_t count, uint32_t segment, uint32_t *written)
{
    uint8_t headers[SN_TAP_HEADER + MAX_HEADER];
    struct iovec parts[PIECES + 1];
    cursor at = {data, pieces, count, 0, 0};
    uint32_t done = 0;
    *written = 0;
    if (!legal(header, header_length, size, pieces, count) || segment == 0 || segment > IPV4_MAX) return -EINVAL;
    size_t most = IPV4_MAX - (header_length - ETHERNET_HEADER);
    if (most > segment) most -= most % segment;
    do {
        int used = 1;
        const size_t payload = take(&at, most, parts, &used);
        parts[0] = (struct iovec){headers, SN_TAP_HEADER + header_length};
        write_headers(headers, header, header_length, payload, done, at.index == count, segment);
        const int failed = write_packet(fd, parts, used);
        if (failed) return failed;
        *written += 1;
        done += (uint32_t)payload;
    } while (at.index < count);
    return 0;
}

int sn_tap_pass(int fd, const uint8_t *frame, uint32_t length)
{
    uint8_t nothing[SN_TAP_HEADER] = {0};
    const struct iovec parts[2] = {{nothing, sizeof nothing}, {(void *)frame, length}};
    return write_packet(fd, parts, 2);
}
