/* UDP in batches: one system call moves up to 64 datagrams, and with segmentation offload (GSO, Linux 4.18) and receive
   coalescing (GRO, Linux 5.0) one datagram carries up to 64 frames. On systems without these the same code moves fewer
   frames per call. VXLAN: RFC 7348, section 5. */
#define _GNU_SOURCE
#include "nic/batch_io.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "nic/aead.h"
#include "words.h"

#if defined(__linux__)
#ifndef SOL_UDP
#define SOL_UDP 17
#endif
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
typedef struct mmsghdr message;
#else
typedef struct {
    struct msghdr msg_hdr;
    unsigned int msg_len;
} message;
#endif

enum {
    VXLAN_HEADER = 8,
    ETHERNET_HEADER = 14,
    MAX_UDP_PAYLOAD = 65507, /* 65535 - IPv4 header - UDP header; IPv6 has room for 20 more */
    MAX_SEGMENTS = 64,       /* per GSO datagram: UDP_MAX_SEGMENTS of every kernel that has it */
    SEND_MESSAGES = 16,      /* datagrams per system call */
    RECEIVE_MESSAGES = 64,
    MESSAGE_FRAMES = 128 /* per GRO datagram */
};

typedef union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
} control_buffer;

/* Returns the messages sent, or -errno. */
static int send_messages(int fd, message *messages, unsigned int count)
{
#if defined(__linux__)
    int sent;
    do {
        sent = sendmmsg(fd, messages, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : sent;
#else
    unsigned int sent = 0;
    while (sent < count && sendmsg(fd, &messages[sent].msg_hdr, MSG_DONTWAIT) >= 0)
        sent++;
    return sent ? (int)sent : -errno;
#endif
}

/* Returns the messages received, 0 if none waits, or -errno. */
static int receive_messages(int fd, message *messages, unsigned int count)
{
    int received;
#if defined(__linux__)
    do {
        received = recvmmsg(fd, messages, count, MSG_DONTWAIT, NULL);
    } while (received < 0 && errno == EINTR);
#else
    ssize_t length = 0;
    for (received = 0; received < (int)count; received++) {
        length = recvmsg(fd, &messages[received].msg_hdr, MSG_DONTWAIT);
        if (length < 0)
            break;
        messages[received].msg_len = (unsigned int)length;
    }
    if (received == 0 && length < 0)
        received = -1;
#endif
    if (received < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
    return received;
}

static void write_vxlan_header(uint8_t *at, uint32_t vni)
{
    sn_store32be(at, UINT32_C(0x08000000));
    sn_store32be(at + 4, vni << 8);
}

/* Asks the kernel to segment the message into datagrams of `size` bytes. */
static void set_segment_size(struct msghdr *header, control_buffer *control, uint16_t size)
{
#if defined(__linux__)
    memset(control, 0, sizeof *control);
    header->msg_control = control->bytes;
    header->msg_controllen = CMSG_SPACE(sizeof size);
    struct cmsghdr *entry = CMSG_FIRSTHDR(header);
    entry->cmsg_level = SOL_UDP;
    entry->cmsg_type = UDP_SEGMENT;
    entry->cmsg_len = CMSG_LEN(sizeof size);
    memcpy(CMSG_DATA(entry), &size, sizeof size);
#else
    (void)header;
    (void)control;
    (void)size;
#endif
}

/* Returns how many of the first datagrams can be sent as one GSO datagram: of equal size, except a shorter last one.
   `before` bytes precede each. */
static uint32_t group_size(const uint32_t *lengths, uint32_t count, uint32_t before, int gso)
{
    uint32_t size = 1;
#if defined(__linux__)
    uint64_t total = (uint64_t)lengths[0] + before;
    while (gso && size < count && size < MAX_SEGMENTS && lengths[size - 1] == lengths[0]
           && lengths[size] <= lengths[0]) {
        total += (uint64_t)lengths[size] + before;
        if (total > MAX_UDP_PAYLOAD)
            break;
        size++;
    }
#else
    (void)lengths;
    (void)count;
    (void)before;
    (void)gso;
#endif
    return size;
}

/* Fills `pieces` with datagrams and the `before` bytes before each, joining neighbours. Returns the number of
   pieces. */
static size_t list_pieces(struct iovec *pieces, const uint8_t *data, const uint32_t *offsets,
                          const uint32_t *lengths, uint32_t count, uint32_t before)
{
    size_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *start = (uint8_t *)data + offsets[i] - before; /* iovec has no const variant */
        const size_t size = (size_t)lengths[i] + before;
        if (used && (uint8_t *)pieces[used - 1].iov_base + pieces[used - 1].iov_len == start) {
            pieces[used - 1].iov_len += size;
        } else {
            pieces[used].iov_base = start;
            pieces[used].iov_len = size;
            used++;
        }
    }
    return used;
}

static int send_datagrams(int fd, const sn_endpoint *to, const uint8_t *data, const uint32_t *offsets,
                          const uint32_t *lengths, uint32_t count, uint32_t before, int gso)
{
    message messages[SEND_MESSAGES];
    struct iovec pieces[SEND_MESSAGES][MAX_SEGMENTS];
    control_buffer controls[SEND_MESSAGES];
    uint32_t groups[SEND_MESSAGES];
    uint32_t done = 0;

    while (done < count) {
        unsigned int filled = 0;
        for (uint32_t at = done; at < count && filled < SEND_MESSAGES; filled++) {
            const uint32_t size = group_size(lengths + at, count - at, before, gso);
            struct msghdr *header = &messages[filled].msg_hdr;
            memset(&messages[filled], 0, sizeof messages[filled]);
            header->msg_name = (void *)to->name; /* msghdr has no const variant */
            header->msg_namelen = to->length;
            header->msg_iov = pieces[filled];
            header->msg_iovlen = list_pieces(pieces[filled], data, offsets + at, lengths + at, size, before);
            if (size > 1)
                set_segment_size(header, &controls[filled], (uint16_t)(lengths[at] + before));
            groups[filled] = size;
            at += size;
        }
        const int sent = send_messages(fd, messages, filled);
        if (sent < 0)
            return done ? (int)done : sent;
        for (int i = 0; i < sent; i++)
            done += groups[i];
        if ((unsigned int)sent < filled)
            break;
    }
    return (int)done;
}

int sn_udp_send(int fd, const sn_endpoint *to, const uint8_t *data, const uint32_t *offsets, const uint32_t *lengths,
                uint32_t count, int gso)
{
    for (uint32_t i = 0; i < count; i++)
        if (lengths[i] > MAX_UDP_PAYLOAD)
            return -EMSGSIZE;
    return send_datagrams(fd, to, data, offsets, lengths, count, 0, gso);
}

int sn_vxlan_send(int fd, const sn_endpoint *to, uint32_t vni, uint8_t *data, const uint32_t *offsets,
                  const uint32_t *lengths, uint32_t count, int gso)
{
    for (uint32_t i = 0; i < count; i++)
        if (offsets[i] < VXLAN_HEADER || lengths[i] > MAX_UDP_PAYLOAD - VXLAN_HEADER)
            return -EMSGSIZE;
    for (uint32_t i = 0; i < count; i++)
        write_vxlan_header(data + offsets[i] - VXLAN_HEADER, vni);
    return send_datagrams(fd, to, data, offsets, lengths, count, VXLAN_HEADER, gso);
}

int sn_enable_gro(int fd)
{
#if defined(__linux__)
    const int on = 1;
    return setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof on) == 0;
#else
    (void)fd;
    return 0;
#endif
}

/* Returns the size of the datagrams that GRO joined in this one; its own size if it is a single one. */
static size_t segment_size(message *received)
{
    size_t size = received->msg_len;
#if defined(__linux__)
    struct msghdr *header = &received->msg_hdr;
    for (struct cmsghdr *entry = CMSG_FIRSTHDR(header); entry; entry = CMSG_NXTHDR(header, entry)) {
        if (entry->cmsg_level == SOL_UDP && entry->cmsg_type == UDP_GRO
            && entry->cmsg_len >= CMSG_LEN(sizeof(int))) {
            int joined;
            memcpy(&joined, CMSG_DATA(entry), sizeof joined);
            if (joined > 0 && (size_t)joined < size)
                size = (size_t)joined;
        }
    }
#endif
    return size;
}

typedef struct {
    uint32_t *offsets;
    uint32_t *lengths;
    uint32_t capacity;
    int32_t vni;
} frame_list;

/* Returns whether a datagram that begins so is of a NIC that encrypts. */
static int is_sealed(uint8_t kind)
{
    return kind == SN_SECURE_HELLO || kind == SN_SECURE_FRAME || kind == SN_IDENTITY_HELLO;
}

/* Lists the frames of one received message at `offset` of the buffer. Each datagram must hold a VXLAN header with the I
   flag and our VNI (the other bits are ignored) and two Ethernet addresses. */
static void list_frames(const frame_list *list, const uint8_t *buffer, size_t offset, message *received,
                        sn_received *found)
{
    const size_t end = offset + received->msg_len;
    const size_t segment = segment_size(received);
    const int any = list->vni == SN_ANY_DATAGRAM;
    const size_t header = any ? 0 : VXLAN_HEADER;

    if (received->msg_hdr.msg_flags & MSG_TRUNC || segment == 0) {
        found->malformed++;
        return;
    }
    while (offset < end) {
        const size_t size = end - offset < segment ? end - offset : segment;
        const uint8_t *at = buffer + offset;
        const int fits = any
            || (size >= VXLAN_HEADER + ETHERNET_HEADER && at[0] & 0x08
                && sn_load32be(at + 4) >> 8 == (uint32_t)list->vni);
        if (!fits || found->frames == list->capacity) {
            found->malformed++;
            found->encrypted += !any && size >= 1 && (is_sealed(at[0]));
        } else {
            list->offsets[found->frames] = (uint32_t)(offset + header);
            list->lengths[found->frames] = (uint32_t)(size - header);
            found->frames++;
        }
        offset += size;
    }
}

int64_t sn_find_peer(const sn_endpoint *peers, uint32_t count, const sn_endpoint *address)
{
    uint32_t low = 0, high = count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (memcmp(&peers[middle], address, sizeof *address) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && memcmp(&peers[low], address, sizeof *address) == 0 ? (int64_t)low : -1;
}

static uint32_t datagrams_of(message *received)
{
    const size_t segment = segment_size(received);
    return segment ? (uint32_t)((received->msg_len + segment - 1) / segment) : 1;
}

/* Records the sender of frames [first, found->frames); neighbours from one peer become one source. */
static void note_source(sn_source *sources, uint32_t peer, uint32_t first, sn_received *found)
{
    if (first == found->frames)
        return;
    if (found->sources && sources[found->sources - 1].peer == peer)
        sources[found->sources - 1].count += found->frames - first;
    else
        sources[found->sources++] = (sn_source){peer, first, found->frames - first};
}

/* Keeps a message of an unknown source that may be a peer's. */
static void keep_stranger(sn_received *found, const uint8_t *buffer, size_t offset, message *received,
                          const sn_endpoint *from)
{
    const size_t length = segment_size(received);
    if (length == 0 || received->msg_hdr.msg_flags & MSG_TRUNC || found->strangers == SN_MOST_STRANGERS)
        return;
    if (is_sealed(buffer[offset]) || buffer[offset] == SN_OTHER_DATAGRAM)
        found->stranger[found->strangers++] = (sn_stranger){*from, (uint32_t)offset, (uint32_t)length,
                                                                received->msg_len};
}

int sn_vxlan_receive(int fd, int32_t vni, const sn_endpoint *peers, uint32_t peer_count, uint8_t *buffer, size_t slot,
                     uint32_t max_messages, uint32_t *offsets, uint32_t *lengths, uint32_t max_frames,
                     sn_source *sources, sn_received *found)
{
    message messages[RECEIVE_MESSAGES];
    struct iovec pieces[RECEIVE_MESSAGES];
    control_buffer controls[RECEIVE_MESSAGES];
    sn_endpoint from[RECEIVE_MESSAGES];
    const frame_list list = {offsets, lengths, max_frames, vni};
    uint32_t count = max_messages < RECEIVE_MESSAGES ? max_messages : RECEIVE_MESSAGES;

    *found = (sn_received){0};
    if (count > max_frames / MESSAGE_FRAMES)
        count = max_frames / MESSAGE_FRAMES;
    if (count == 0 || slot == 0 || slot > UINT32_MAX / RECEIVE_MESSAGES)
        return -EINVAL;
    memset(messages, 0, count * sizeof messages[0]);
    memset(from, 0, count * sizeof from[0]);
    for (uint32_t i = 0; i < count; i++) {
        struct msghdr *header = &messages[i].msg_hdr;
        pieces[i] = (struct iovec){buffer + i * slot, slot};
        header->msg_name = from[i].name;
        header->msg_namelen = sizeof from[i].name;
        header->msg_iov = &pieces[i];
        header->msg_iovlen = 1;
        header->msg_control = controls[i].bytes;
        header->msg_controllen = sizeof controls[i].bytes;
    }
    const int received = receive_messages(fd, messages, count);
    if (received < 0)
        return received;
    found->messages = (uint32_t)received;
    for (int i = 0; i < received; i++) {
        from[i].length = messages[i].msg_hdr.msg_namelen;
        const int64_t peer = sn_find_peer(peers, peer_count, &from[i]);
        /* A relay at a peer's address also answers for itself. */
        const bool is_other = vni == SN_ANY_DATAGRAM && messages[i].msg_len && buffer[i * slot] == SN_OTHER_DATAGRAM;
        if (peer < 0 || is_other) {
            found->unknown += datagrams_of(&messages[i]);
            found->unknown_source = from[i];
            if (vni == SN_ANY_DATAGRAM)
                keep_stranger(found, buffer, (size_t)i * slot, &messages[i], &from[i]);
            continue;
        }
        const uint32_t first = found->frames;
        list_frames(&list, buffer, (size_t)i * slot, &messages[i], found);
        note_source(sources, (uint32_t)peer, first, found);
    }
    return 0;
}
