#include "nic/steering.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nic/aead.h"
#include "nic/headers.h"
#include "words.h"

#if defined(__linux__)
#include <linux/filter.h>
#ifndef SO_ATTACH_REUSEPORT_CBPF
#define SO_ATTACH_REUSEPORT_CBPF 51
#endif
#endif

/* Odd, as multipliers of good hashes are: both are from Knuth's golden ratio and from MurmurHash3. */
static const uint32_t ADDRESS_FACTOR = UINT32_C(0x85EBCA6B), FACTOR = UINT32_C(0x9E3779B1);

enum { HASH_SHIFT = 16 };

uint32_t sn_queue_of(uint32_t address, uint32_t other, uint16_t port, uint16_t other_port, uint32_t queues)
{
    const uint32_t mixed = (address ^ other) * ADDRESS_FACTOR ^ (uint32_t)(port ^ other_port);
    return (mixed * FACTOR >> HASH_SHIFT) % queues;
}

uint32_t sn_next_port(uint32_t address, uint32_t other, uint16_t other_port, uint32_t queues, uint32_t queue,
                      uint32_t port, uint32_t end)
{
    while (port < end && sn_queue_of(address, other, (uint16_t)port, other_port, queues) != queue)
        port++;
    return port;
}

uint32_t sn_frame_lane(const uint8_t *frame, uint32_t length)
{
    if (length < ETHERNET_HEADER + IPV4_HEADER || sn_load16be(frame + ETHERNET_TYPE) != ETHERTYPE_IPV4)
        return 0;
    const uint8_t *ip = frame + ETHERNET_HEADER;
    const uint32_t header = 4 * (ip[0] & 0x0Fu);
    if (ip[IPV4_PROTOCOL] != PROTOCOL_TCP || length < ETHERNET_HEADER + header + TCP_DPORT + 2)
        return 0;
    return sn_queue_of(sn_load32be(ip + IPV4_SOURCE), sn_load32be(ip + IPV4_DESTINATION),
                       sn_load16be(ip + header + TCP_SPORT), sn_load16be(ip + header + TCP_DPORT), SN_FLOW_LANES);
}

enum { COUNTER_AT = 8 /* in a sealed datagram */ };

uint32_t sn_hello_length(const uint8_t *datagram, uint32_t length)
{
    if (length == SN_HELLO_LENGTH && datagram[0] == SN_SECURE_HELLO)
        return SN_HELLO_LENGTH;
    return length == SN_IDENTITY_HELLO_LENGTH && datagram[0] == SN_IDENTITY_HELLO ? SN_IDENTITY_HELLO_LENGTH : 0;
}

uint32_t sn_sealed_queue(const uint8_t *datagram, uint32_t length, uint32_t queues, uint32_t own)
{
    if (sn_hello_length(datagram, length))
        return 0;
    if (length < SN_SECURE_OVERHEAD || datagram[0] != SN_SECURE_FRAME)
        return own;
    return (uint32_t)(datagram[COUNTER_AT] >> SN_COUNTER_LANE) % queues;
}

#if defined(__linux__)

enum { VXLAN_HEADER = 8, IP_AT = VXLAN_HEADER + ETHERNET_HEADER };

static int attach(int fd, struct sock_filter *program, size_t length)
{
    const struct sock_fprog filter = {(unsigned short)length, program};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &filter, sizeof filter) < 0 ? -errno : 0;
}

/* sn_sealed_queue */
static int steer_sealed(int fd, uint32_t queues)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SN_SECURE_FRAME, 0, 4),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, COUNTER_AT),
        BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, SN_COUNTER_LANE),
        BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, queues),
        BPF_STMT(BPF_RET | BPF_A, 0),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    return attach(fd, program, sizeof program / sizeof program[0]);
}

int sn_steer(int fd, uint32_t queues, bool sealed)
{
    if (sealed)
        return steer_sealed(fd, queues);
    /* sn_queue_of, of what lies behind the UDP header. A load beyond the datagram ends the program with 0. */
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, VXLAN_HEADER + ETHERNET_TYPE),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETHERTYPE_IPV4, 0, 21),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, IP_AT + IPV4_PROTOCOL),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROTOCOL_TCP, 0, 19),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, IP_AT + IPV4_SOURCE),
        BPF_STMT(BPF_ST, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, IP_AT + IPV4_DESTINATION),
        BPF_STMT(BPF_LDX | BPF_MEM, 0),
        BPF_STMT(BPF_ALU | BPF_XOR | BPF_X, 0),
        BPF_STMT(BPF_ALU | BPF_MUL | BPF_K, ADDRESS_FACTOR),
        BPF_STMT(BPF_ST, 0),
        BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, IP_AT), /* the length of the IPv4 header */
        BPF_STMT(BPF_LD | BPF_H | BPF_IND, IP_AT + TCP_SPORT),
        BPF_STMT(BPF_ST, 1),
        BPF_STMT(BPF_LD | BPF_H | BPF_IND, IP_AT + TCP_DPORT),
        BPF_STMT(BPF_LDX | BPF_MEM, 1),
        BPF_STMT(BPF_ALU | BPF_XOR | BPF_X, 0),
        BPF_STMT(BPF_LDX | BPF_MEM, 0),
        BPF_STMT(BPF_ALU | BPF_XOR | BPF_X, 0),
        BPF_STMT(BPF_ALU | BPF_MUL | BPF_K, FACTOR),
        BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, HASH_SHIFT),
        BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, queues),
        BPF_STMT(BPF_RET | BPF_A, 0),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    return attach(fd, program, sizeof program / sizeof program[0]);
}

#else

int sn_steer(int fd, uint32_t queues, bool sealed)
{
    (void)fd, (void)queues, (void)sealed;
    return -ENOSYS;
}

#endif

/* Frames that wait, or that the queue works on. */
typedef struct {
    uint8_t *data; /* allocated when the first frame comes: most NICs never need it */
    uint32_t offsets[SN_INBOX_FRAMES];
    uint32_t lengths[SN_INBOX_FRAMES];
    uint32_t count;
    uint64_t used;
} waiting_frames;

struct sn_inbox {
    pthread_mutex_t lock;
    int event;
    unsigned filled; /* index of the half that is being filled; the other one is the queue's own */
    waiting_frames halves[2];
};

sn_inbox *sn_inbox_new(int event)
{
    sn_inbox *inbox = calloc(1, sizeof *inbox);
    if (inbox == NULL)
        return NULL;
    pthread_mutex_init(&inbox->lock, NULL);
    inbox->event = event;
    return inbox;
}

void sn_inbox_free(sn_inbox *inbox)
{
    if (inbox == NULL)
        return;
    pthread_mutex_destroy(&inbox->lock);
    free(inbox->halves[0].data);
    free(inbox->halves[1].data);
    free(inbox);
}

/* Copies what fits. Returns how many frames. */
static uint32_t fill(waiting_frames *half, const uint8_t *data, const uint32_t *offsets, const uint32_t *lengths,
                     uint32_t count)
{
    if (half->data == NULL && (half->data = malloc(SN_INBOX_BYTES)) == NULL)
        return 0;
    uint32_t done = 0;
    for (; done < count && half->count < SN_INBOX_FRAMES && lengths[done] <= SN_INBOX_BYTES - half->used; done++) {
        memcpy(half->data + half->used, data + offsets[done], lengths[done]);
        half->offsets[half->count] = (uint32_t)half->used;
        half->lengths[half->count++] = lengths[done];
        half->used += lengths[done];
    }
    return done;
}

uint32_t sn_inbox_put(sn_inbox *inbox, const uint8_t *data, const uint32_t *offsets, const uint32_t *lengths,
                      uint32_t count)
{
    pthread_mutex_lock(&inbox->lock);
    waiting_frames *half = &inbox->halves[inbox->filled];
    const bool was_empty = half->count == 0;
    const uint32_t done = fill(half, data, offsets, lengths, count);
    pthread_mutex_unlock(&inbox->lock);
    if (was_empty && done) {
        const uint64_t one = 1;
        if (write(inbox->event, &one, sizeof one) < 0) {
            /* its counter is full, so the queue is awake */
        }
    }
    return done;
}

uint32_t sn_inbox_take(sn_inbox *inbox, uint8_t **data, uint64_t *size, uint32_t **offsets, uint32_t **lengths)
{
    pthread_mutex_lock(&inbox->lock);
    waiting_frames *half = &inbox->halves[inbox->filled];
    inbox->filled ^= 1;
    inbox->halves[inbox->filled].count = 0;
    inbox->halves[inbox->filled].used = 0;
    pthread_mutex_unlock(&inbox->lock);
    *data = half->data;
    *size = half->used;
    *offsets = half->offsets;
    *lengths = half->lengths;
    return half->count;
}
