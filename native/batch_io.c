/* UDP in batches: one system call moves up to 64 datagrams, and with segmentation offload (GSO, Linux 4.18) and
   receive coalescing (GRO, Linux 5.0) one datagram stands for up to 64 frames. Where a system lacks one of these,
   the same code moves fewer frames a call. VXLAN is RFC 7348, section 5. */
#define _GNU_SOURCE
#include "batch_io.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "words.h"

#if defined(__linux__)
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
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
    MAX_UDP_PAYLOAD = 65507, /* 65535 - IPv4 header - UDP header */
    MAX_SEGMENTS = 64,       /* of one GSO datagram: UDP_MAX_SEGMENTS of every kernel that has it */
    SEND_MESSAGES = 16,      /* datagrams a system call */
    RECEIVE_MESSAGES = 64,
    MESSAGE_FRAMES = 128, /* of one GRO datagram */
    EPOLL_EVENTS = 256
};

typedef union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
} control_buffer;

/* Messages handed over, or -errno. */
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

/* Messages received, 0 when none waits, or -errno. */
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

/* Asks the kernel to cut the message into datagrams of `size` bytes. */
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

/* The first frames that may leave as one datagram: of equal size, but for a last one that may be shorter. */
static uint32_t group_size(const uint32_t *lengths, uint32_t count, int gso)
{
    uint32_t frames = 1;
#if defined(__linux__)
    const uint64_t size = (uint64_t)lengths[0] + VXLAN_HEADER;
    uint64_t total = size;
    while (gso && frames < count && frames < MAX_SEGMENTS && lengths[frames - 1] == lengths[0]
           && lengths[frames] <= lengths[0]) {
        total += (uint64_t)lengths[frames] + VXLAN_HEADER;
        if (total > MAX_UDP_PAYLOAD)
            break;
        frames++;
    }
#else
    (void)lengths;
    (void)count;
    (void)gso;
#endif
    return frames;
}

/* Writes the headers of `frames` frames and lets `pieces` list them, neighbours in one. Returns the pieces. */
static size_t list_pieces(struct iovec *pieces, uint8_t *data, const uint32_t *offsets, const uint32_t *lengths,
                          uint32_t frames, uint32_t vni)
{
    size_t used = 0;
    for (uint32_t i = 0; i < frames; i++) {
        uint8_t *start = data + offsets[i] - VXLAN_HEADER;
        const size_t size = (size_t)lengths[i] + VXLAN_HEADER;
        write_vxlan_header(start, vni);
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

int sn_vxlan_send(int fd, uint32_t address, uint16_t port, uint32_t vni, uint8_t *data,
                  const uint32_t *offsets, const uint32_t *lengths, uint32_t count, int gso)
{
    message messages[SEND_MESSAGES];
    struct iovec pieces[SEND_MESSAGES][MAX_SEGMENTS];
    control_buffer controls[SEND_MESSAGES];
    uint32_t groups[SEND_MESSAGES];
    struct sockaddr_in to;
    uint32_t done = 0;

    memset(&to, 0, sizeof to);
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(address);
    to.sin_port = htons(port);
    for (uint32_t i = 0; i < count; i++)
        if (offsets[i] < VXLAN_HEADER || lengths[i] > MAX_UDP_PAYLOAD - VXLAN_HEADER)
            return -EMSGSIZE;
    while (done < count) {
        unsigned int filled = 0;
        for (uint32_t at = done; at < count && filled < SEND_MESSAGES; filled++) {
            const uint32_t frames = group_size(lengths + at, count - at, gso);
            struct msghdr *header = &messages[filled].msg_hdr;
            memset(&messages[filled], 0, sizeof messages[filled]);
            header->msg_name = &to;
            header->msg_namelen = sizeof to;
            header->msg_iov = pieces[filled];
            header->msg_iovlen = list_pieces(pieces[filled], data, offsets + at, lengths + at, frames, vni);
            if (frames > 1)
                set_segment_size(header, &controls[filled], (uint16_t)(lengths[at] + VXLAN_HEADER));
            groups[filled] = frames;
            at += frames;
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

/* The size of the datagrams that GRO joined to this one; its own where it is a single one. */
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
    uint32_t count;
    uint32_t rejected;
} frame_list;

/* Lists the frames of one received message that lies at `offset` of the buffer. Each datagram must hold a VXLAN
   header with the I flag and our VNI (the other bits are to be ignored) and two Ethernet addresses. */
static void list_frames(frame_list *list, const uint8_t *buffer, size_t offset, message *received, uint32_t vni)
{
    const size_t end = offset + received->msg_len;
    const size_t segment = segment_size(received);

    if (received->msg_hdr.msg_flags & MSG_TRUNC || segment == 0) {
        list->rejected++;
        return;
    }
    while (offset < end) {
        const size_t size = end - offset < segment ? end - offset : segment;
        const uint8_t *header = buffer + offset;
        if (size < VXLAN_HEADER + ETHERNET_HEADER || !(header[0] & 0x08)
            || sn_load32be(header + 4) >> 8 != vni || list->count == list->capacity) {
            list->rejected++;
        } else {
            list->offsets[list->count] = (uint32_t)(offset + VXLAN_HEADER);
            list->lengths[list->count] = (uint32_t)(size - VXLAN_HEADER);
            list->count++;
        }
        offset += size;
    }
}

/* Notes where frames [first, end) came from; neighbours from one address become one source. */
static uint32_t note_source(sn_source *sources, uint32_t count, const struct sockaddr_in *from, uint32_t first,
                            uint32_t end)
{
    const uint32_t address = ntohl(from->sin_addr.s_addr);
    const uint16_t port = ntohs(from->sin_port);

    if (first == end)
        return count;
    if (count && sources[count - 1].address == address && sources[count - 1].port == port) {
        sources[count - 1].count += end - first;
        return count;
    }
    sources[count] = (sn_source){address, port, 0, first, end - first};
    return count + 1;
}

int sn_vxlan_receive(int fd, uint32_t vni, uint8_t *buffer, size_t slot, uint32_t max_messages,
                     uint32_t *offsets, uint32_t *lengths, uint32_t max_frames, sn_source *sources,
                     uint32_t *frames, uint32_t *rejected)
{
    message messages[RECEIVE_MESSAGES];
    struct iovec pieces[RECEIVE_MESSAGES];
    control_buffer controls[RECEIVE_MESSAGES];
    struct sockaddr_in from[RECEIVE_MESSAGES];
    frame_list list = {offsets, lengths, max_frames, 0, 0};
    uint32_t count = max_messages < RECEIVE_MESSAGES ? max_messages : RECEIVE_MESSAGES;
    uint32_t found = 0;

    *frames = *rejected = 0;
    if (count > max_frames / MESSAGE_FRAMES)
        count = max_frames / MESSAGE_FRAMES;
    if (count == 0 || slot == 0 || slot > UINT32_MAX / RECEIVE_MESSAGES)
        return -EINVAL;
    memset(messages, 0, count * sizeof messages[0]);
    for (uint32_t i = 0; i < count; i++) {
        struct msghdr *header = &messages[i].msg_hdr;
        pieces[i] = (struct iovec){buffer + i * slot, slot};
        header->msg_name = &from[i];
        header->msg_namelen = sizeof from[i];
        header->msg_iov = &pieces[i];
        header->msg_iovlen = 1;
        header->msg_control = controls[i].bytes;
        header->msg_controllen = sizeof controls[i].bytes;
    }
    const int received = receive_messages(fd, messages, count);
    if (received < 0)
        return received;
    for (int i = 0; i < received; i++) {
        const uint32_t first = list.count;
        list_frames(&list, buffer, (size_t)i * slot, &messages[i], vni);
        found = note_source(sources, found, &from[i], first, list.count);
    }
    *frames = list.count;
    *rejected = list.rejected;
    return (int)found;
}

#if defined(__linux__)
/* epoll_pwait2 (Linux 5.11), or the same by two calls: an epoll instance can itself be polled. */
static int wait_for_events(int fd, struct epoll_event *events, int most, int64_t timeout_ns)
{
    static int missing; /* set once, by whoever finds out first */
    const struct timespec limit = {(time_t)(timeout_ns / 1000000000), (long)(timeout_ns % 1000000000)};

    if (timeout_ns <= 0)
        return epoll_wait(fd, events, most, timeout_ns ? -1 : 0);
#ifdef SYS_epoll_pwait2
    if (!missing) {
        const long found = syscall(SYS_epoll_pwait2, fd, events, most, &limit, NULL, (size_t)8);
        if (found >= 0 || errno != ENOSYS)
            return (int)found;
        missing = 1;
    }
#endif
    struct pollfd instance = {fd, POLLIN, 0};
    const int ready = ppoll(&instance, 1, &limit, NULL);
    return ready > 0 ? epoll_wait(fd, events, most, 0) : ready;
}
#endif

int sn_epoll_wait(int fd, int64_t timeout_ns, int32_t *descriptors, uint32_t *masks, uint32_t most)
{
#if defined(__linux__)
    struct epoll_event events[EPOLL_EVENTS];
    const int found = wait_for_events(fd, events, most < EPOLL_EVENTS ? (int)most : EPOLL_EVENTS, timeout_ns);
    for (int i = 0; i < found; i++) {
        descriptors[i] = events[i].data.fd;
        masks[i] = events[i].events;
    }
    return found < 0 ? -errno : found;
#else
    (void)fd, (void)timeout_ns, (void)descriptors, (void)masks, (void)most;
    return -ENOSYS;
#endif
}

int sn_wake_on_time(void)
{
#if defined(__linux__)
    return prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL) < 0 ? -errno : 0;
#else
    return -ENOSYS;
#endif
}
