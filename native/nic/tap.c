/* TAP: one packet per system call (the device has no other way), but of up to 64 KiB. Checksums are offloaded in both
   directions, so no byte is summed in vain. */
#include "nic/tap.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "nic/checksum.h"
#include "nic/headers.h"

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
    TIMESTAMPS = 12, /* with their two NOPs, as every kernel sends them */
    PIECES = 512 /* per packet, below UIO_MAXIOV */
};

/* Completes a checksum: the kernel has stored the pseudo header's sum, and [start, length) is missing. */
static int complete_checksum(uint8_t *frame, size_t length, size_t start, size_t offset)
{
    if (start > length || offset + 2 > length - start) return -1;
    uint16_t sum = (uint16_t)~sn_fold(sn_sum(frame + start, length - start));
    sn_store16(frame + start + offset, sum ? sum : 0xffff); /* 0 means no checksum in UDP (RFC 768) */
    return 0;
}

/* Returns whether this is TCP over IPv4 that sn_cut can cut, and fills in its fields. `length` is that of the frame, at
   least whose headers are at `frame`. */
static int parse_segment(const uint8_t *frame, size_t length, sn_tap_packet *packet)
{
    const uint8_t *ip = frame + ETHERNET_HEADER, *tcp = frame + HEADERS;
    if (length < HEADERS + TCP_HEADER || sn_load16be(frame + ETHERNET_TYPE) != ETHERTYPE_IPV4) return 0;
    if (ip[0] != 0x45 || ip[IPV4_PROTOCOL] != PROTOCOL_TCP || sn_load16be(ip + IPV4_FRAGMENT) & 0x3fff) return 0;
    size_t total = sn_load16be(ip + IPV4_LENGTH), header = 4 * (size_t)(tcp[TCP_OFFSET] >> 4);
    if (total > length - ETHERNET_HEADER || header < TCP_HEADER || total < IPV4_HEADER + header) return 0;
    packet->length = (uint32_t)(total - IPV4_HEADER - header);
    packet->src = sn_load32be(ip + IPV4_SOURCE);
    packet->dst = sn_load32be(ip + IPV4_DESTINATION);
    packet->seq = sn_load32be(tcp + TCP_SEQ);
    packet->ack = sn_load32be(tcp + TCP_ACK);
    packet->sport = sn_load16be(tcp + TCP_SPORT);
    packet->dport = sn_load16be(tcp + TCP_DPORT);
    packet->window = sn_load16be(tcp + TCP_WINDOW);
    packet->header_length = (uint16_t)(HEADERS + header);
    packet->flags = tcp[TCP_FLAGS];
    packet->tos = ip[IPV4_TOS];
    packet->kind = SN_KIND_TCP;
    return 1;
}

static uint16_t load16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value); /* virtio's fields are in native byte order (tun's default) */
    return value;
}

static void store16(uint8_t *at, size_t value)
{
    const uint16_t field = (uint16_t)value;
    memcpy(at, &field, sizeof field);
}

/* Location of a packet of `length` bytes: the first `split` bytes in its slot, the rest in `body`. */
typedef struct {
    uint8_t *slot;
    uint8_t *body;
    size_t split;
    size_t length;
} reading;

/* Moves what follows `header` bytes contiguously to `body`. Returns its offset from `body`. */
static size_t settle(const reading *r, size_t header)
{
    if (header >= r->split) return header - r->split;
    const size_t early = r->split - header;
    memmove(r->body + early, r->body, r->length - r->split);
    memcpy(r->body, r->slot + header, early);
    return 0;
}

static void parse_other(const uint8_t *vnet, uint8_t *frame, size_t length, sn_tap_packet *packet)
{
    packet->length = (uint32_t)length;
    packet->kind = SN_DROP_FRAME;
    if (length < ETHERNET_HEADER || vnet[VNET_GSO] != GSO_NONE) return;
    if (vnet[VNET_FLAGS] & NEEDS_CHECKSUM &&
        complete_checksum(frame, length, load16(vnet + VNET_START), load16(vnet + VNET_OFFSET)))
        return;
    packet->kind = SN_KIND_OTHER;
}

/* Fills in an entry except for its offsets; returns the payload's offset from `body`. */
static size_t parse_packet(const reading *r, sn_tap_packet *packet)
{
    const size_t more = SN_TAP_SLOT - r->split, rest = r->length - r->split;
    memcpy(r->slot + r->split, r->body, more < rest ? more : rest); /* now all headers are in the slot */
    memset(packet, 0, sizeof *packet);
    packet->packets = 1;
    if (parse_segment(r->slot + SN_TAP_HEADER, r->length - SN_TAP_HEADER, packet)) {
        packet->segment = r->slot[VNET_GSO] == GSO_NONE ? 0 : load16(r->slot + VNET_SEGMENT);
        return settle(r, SN_TAP_HEADER + (size_t)packet->header_length);
    }
    const size_t at = settle(r, SN_TAP_HEADER);
    parse_other(r->slot, r->body + at, r->length - SN_TAP_HEADER, packet);
    return at;
}

/* Returns whether two packets belong to one direction of one flow and have the same fields except lengths,
   identification, checksums, sequence and ACK number, flags and timestamps (RFC 7323, where every kernel has them). */
static int alike(const uint8_t *a, const uint8_t *b, size_t length)
{
    static const uint8_t stamps[] = {1, 1, 8, 10};
    static const struct {
        uint8_t start, end;
    } same[] = {{0, ETHERNET_HEADER + IPV4_LENGTH},
                {ETHERNET_HEADER + IPV4_FRAGMENT, ETHERNET_HEADER + IPV4_CHECKSUM},
                {ETHERNET_HEADER + IPV4_SOURCE, HEADERS + TCP_SEQ},
                {HEADERS + TCP_OFFSET, HEADERS + TCP_FLAGS}};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (memcmp(a + same[i].start, b + same[i].start, (size_t)(same[i].end - same[i].start))) return 0;
    size_t options = HEADERS + TCP_HEADER;
    if (length == options) return 1;
    return length == options + TIMESTAMPS && !memcmp(a + options, stamps, 4) && !memcmp(b + options, stamps, 4);
}

/* Appends a super-segment to a run that it continues. The segment size is the smaller of both; the run's timestamps are
   its first packet's. */
static int append(uint8_t *header, sn_tap_packet *run, const sn_tap_packet *next)
{
    if (!run->segment || (next->segment ? next->segment != run->segment : next->length > run->segment)) return 0;
    if ((run->flags & ~TCP_PSH) != TCP_ACK_FLAG || (next->flags & ~(TCP_PSH | TCP_FIN)) != TCP_ACK_FLAG) return 0;
    if (next->seq != run->seq + run->length || next->offset != run->offset + run->length) return 0;
    if (next->ack != run->ack || next->window != run->window) return 0;
    run->length += next->length;
    run->flags |= next->flags;
    header[HEADERS + TCP_FLAGS] = run->flags;
    return 1;
}

/* Replaces a bare ACK by a newer one that acknowledges more (RFC 3449, section 5.2.1). A duplicate ACK is a sign of
   loss and stays. */
static int supersede(uint8_t *header, const uint8_t *newer, sn_tap_packet *run, const sn_tap_packet *next)
{
    if (run->length || run->flags != TCP_ACK_FLAG || next->flags != TCP_ACK_FLAG) return 0;
    const uint32_t more = next->ack - run->ack;
    if (next->seq != run->seq || more == 0 || more >= UINT32_C(1) << 31) return 0;
    memcpy(header, newer, run->header_length);
    run->ack = next->ack;
    run->window = next->window;
    return 1;
}

/* Joins two packets into one entry if nothing is lost thereby. */
static int join(uint8_t *headers, sn_tap_packet *run, const sn_tap_packet *next)
{
    uint8_t *header = headers + run->header, *following = headers + next->header;
    if (run->kind != SN_KIND_TCP || next->kind != SN_KIND_TCP || run->header_length != next->header_length) return 0;
    if (!alike(header, following, run->header_length)) return 0;
    if (!(next->length ? append(header, run, next) : supersede(header, following, run, next))) return 0;
    run->packets++;
    return 1;
}

int sn_tap_read(int fd, uint8_t *headers, uint8_t *buffer, size_t size, sn_tap_packet *packets, uint32_t most,
                int *more)
{
    uint32_t count = 0;
    size_t used = 0, split = SN_TAP_HEADER + HEADERS + TCP_HEADER + TIMESTAMPS;
    *more = 1;
    if (size > UINT32_MAX || most > UINT32_MAX / SN_TAP_SLOT) return -EINVAL;
    while (count < most && size - used >= SN_TAP_PACKET) {
        reading r = {headers + (size_t)count * SN_TAP_SLOT, buffer + used, split, 0};
        const struct iovec parts[2] = {{r.slot, split}, {r.body, SN_TAP_PACKET - split}};
        const ssize_t length = readv(fd, parts, 2);
        if (length < 0) {
            if (errno == EINTR) continue;
            *more = 0;
            return count || errno == EAGAIN ? (int)count : -errno;
        }
        if (length == 0) { /* the device is gone */
            *more = 0;
            break;
        }
        if (length < SN_TAP_HEADER) continue;
        r.length = (size_t)length;
        if (r.length < split) r.split = r.length;
        sn_tap_packet *packet = packets + count;
        const size_t at = used + parse_packet(&r, packet);
        packet->header = (uint32_t)(count * SN_TAP_SLOT + SN_TAP_HEADER);
        packet->offset = (uint32_t)at;
        used = at + packet->length;
        if (packet->header_length && packet->length) split = SN_TAP_HEADER + (size_t)packet->header_length;
        if (!count || !join(headers, packet - 1, packet)) count++;
    }
    return (int)count;
}

/* Position of the next byte in a list of payloads. */
typedef struct {
    const uint8_t *data;
    const sn_payload_ref *pieces;
    uint32_t count;
    uint32_t index;
    uint32_t within;
} cursor;

/* Lists the next bytes, at most `most`, in at most PIECES parts. Returns the number of bytes. */
static size_t take(cursor *at, size_t most, struct iovec *parts, int *used)
{
    size_t taken = 0;
    while (at->index < at->count && taken < most && *used < PIECES) {
        const sn_payload_ref *piece = at->pieces + at->index;
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

/* Writes virtio's header and the packet's own to `out`, for `payload` bytes that start `done` bytes into the stream. */
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

static int legal(const uint8_t *header, uint32_t length, size_t size, const sn_payload_ref *pieces, uint32_t count)
{
    if (length < HEADERS + TCP_HEADER || length > MAX_HEADER || header[ETHERNET_HEADER] != 0x45) return 0;
    if (HEADERS + 4 * (uint32_t)(header[HEADERS + TCP_OFFSET] >> 4) != length) return 0;
    for (uint32_t i = 0; i < count; i++)
        if (pieces[i].offset > size || pieces[i].length > size - pieces[i].offset) return 0;
    return 1;
}

static uint32_t longest(const sn_payload_ref *pieces, uint32_t count)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < count; i++)
        if (pieces[i].length > most) most = pieces[i].length;
    return most;
}

int sn_tap_write(int fd, const uint8_t *header, uint32_t header_length, const uint8_t *data, size_t size,
                 const sn_payload_ref *pieces, uint32_t count, uint32_t segment, uint32_t *written)
{
    uint8_t headers[SN_TAP_HEADER + MAX_HEADER];
    struct iovec parts[PIECES + 1];
    cursor at = {data, pieces, count, 0, 0};
    uint32_t done = 0;
    *written = 0;
    if (!legal(header, header_length, size, pieces, count)) return -EINVAL;
    if (segment == 0) segment = longest(pieces, count);
    if (segment > IPV4_MAX) return -EINVAL;
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

int sn_tap_write_frame(int fd, const uint8_t *frame, uint32_t length)
{
    uint8_t nothing[SN_TAP_HEADER] = {0};
    const struct iovec parts[2] = {{nothing, sizeof nothing}, {(void *)frame, length}};
    return write_packet(fd, parts, 2);
}
