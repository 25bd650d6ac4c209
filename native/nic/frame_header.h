/* The headers of the frames of a segment: that of the first one is written from its fields, what all share is summed once,
   and the fields that differ are completed for each. */
#ifndef SOFTNIC_FRAME_HEADER_H
#define SOFTNIC_FRAME_HEADER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "nic/checksum.h"
#include "nic/headers.h"

enum { ETHERNET_AND_IPV4 = ETHERNET_HEADER + IPV4_HEADER };
enum { OPTION_END = 0, OPTION_NOP = 1, OPTION_SACK = 5, OPTION_TIMESTAMPS = 8, TIMESTAMPS_LENGTH = 10 };

/* The fields of a segment, in host order. */
typedef struct {
    uint32_t src;
    uint32_t dst;
    uint16_t sport;
    uint16_t dport;
    uint32_t seq;
    uint32_t ack;
    uint32_t window;
    uint8_t flags;
    uint8_t tos;
    uint8_t ttl;
    bool has_timestamps;
    uint32_t ts_value;
    uint32_t ts_echo;
    uint32_t sack_blocks;
    uint32_t sacks[8]; /* the first number of each block, and the one behind it */
} sn_segment_fields;

/* Writes timestamps and SACK blocks, as many as fit beside them (RFC 2018, section 3), as softnic/packet/headers.py does.
   Returns the length. */
static inline uint32_t sn_segment_options(const sn_segment_fields *s, uint8_t *options)
{
    const uint32_t most = s->has_timestamps ? 3 : 4, blocks = s->sack_blocks < most ? s->sack_blocks : most;
    uint32_t length = 0;
    if (s->has_timestamps) {
        if (!blocks)
            options[length++] = OPTION_NOP, options[length++] = OPTION_NOP;
        options[length] = OPTION_TIMESTAMPS;
        options[length + 1] = TIMESTAMPS_LENGTH;
        sn_store32be(options + length + 2, s->ts_value);
        sn_store32be(options + length + 6, s->ts_echo);
        length += TIMESTAMPS_LENGTH;
    }
    if (blocks) {
        options[length] = OPTION_SACK;
        options[length + 1] = (uint8_t)(2 + 8 * blocks);
        length += 2;
        for (uint32_t i = 0; i < 2 * blocks; i++, length += 4)
            sn_store32be(options + length, s->sacks[i]);
    }
    while (length % 4)
        options[length++] = OPTION_NOP;
    return length;
}

/* Writes the Ethernet, IPv4 and TCP header of a segment, at most SN_MOST_HEADER bytes. Lengths and checksums are zero.
   Returns the length. */
static inline uint32_t sn_segment_header(const sn_segment_fields *s, const uint8_t *destination, const uint8_t *source,
                                         uint16_t identification, uint8_t *header)
{
    uint8_t *ip = header + ETHERNET_HEADER, *tcp = header + ETHERNET_AND_IPV4;
    memset(header, 0, ETHERNET_AND_IPV4 + TCP_HEADER);
    memcpy(header, destination, 6);
    memcpy(header + 6, source, 6);
    sn_store16be(header + ETHERNET_TYPE, ETHERTYPE_IPV4);
    ip[0] = 0x45;
    ip[IPV4_TOS] = s->tos;
    sn_store16be(ip + IPV4_ID, identification);
    sn_store16be(ip + IPV4_FRAGMENT, 0x4000); /* do not fragment */
    ip[IPV4_TTL] = s->ttl;
    ip[IPV4_PROTOCOL] = PROTOCOL_TCP;
    sn_store32be(ip + IPV4_SOURCE, s->src);
    sn_store32be(ip + IPV4_DESTINATION, s->dst);
    sn_store16be(tcp + TCP_SPORT, s->sport);
    sn_store16be(tcp + TCP_DPORT, s->dport);
    sn_store32be(tcp + TCP_SEQ, s->seq);
    sn_store32be(tcp + TCP_ACK, s->ack);
    const uint32_t options = sn_segment_options(s, tcp + TCP_HEADER);
    tcp[TCP_OFFSET] = (uint8_t)((TCP_HEADER + options) / 4 << 4);
    tcp[TCP_FLAGS] = s->flags;
    sn_store16be(tcp + TCP_WINDOW, (uint16_t)s->window);
    return ETHERNET_AND_IPV4 + TCP_HEADER + options;
}

/* The header, zero in the fields that differ between frames, and the partial checksums of the rest. */
typedef struct {
    uint8_t header[MAX_HEADER];
    size_t length;
    uint64_t ip_sum;
    uint64_t tcp_sum; /* with the pseudo header, except its length */
    uint32_t id;
    uint32_t seq;
    uint8_t flags;
} sn_frame_header;

/* Takes the header of the first frame, `length` bytes of Ethernet, IPv4 and TCP with options. */
static inline void sn_frame_header_begin(sn_frame_header *h, const uint8_t *header, size_t length)
{
    uint8_t *ip = h->header + ETHERNET_HEADER, *tcp = h->header + ETHERNET_AND_IPV4;
    memcpy(h->header, header, length);
    h->length = length;
    h->id = sn_load16be(ip + IPV4_ID);
    h->seq = sn_load32be(tcp + TCP_SEQ);
    h->flags = tcp[TCP_FLAGS];
    sn_store16(ip + IPV4_LENGTH, 0);
    sn_store16(ip + IPV4_ID, 0);
    sn_store16(ip + IPV4_CHECKSUM, 0);
    sn_store32(tcp + TCP_SEQ, 0);
    tcp[TCP_FLAGS] = 0;
    sn_store16(tcp + TCP_CHECKSUM, 0);
    h->ip_sum = sn_sum(ip, IPV4_HEADER);
    h->tcp_sum = sn_sum(tcp, length - ETHERNET_AND_IPV4) + sn_sum(ip + IPV4_SOURCE, 8) + sn_sum_field16(PROTOCOL_TCP);
}

/* Writes the header of the `index`th frame, whose payload of `length` bytes has the sum `sum` and starts `taken` bytes
   into the segment. */
static inline void sn_frame_header_write(uint8_t *frame, const sn_frame_header *h, size_t length, uint64_t sum,
                                         size_t taken, uint32_t index, uint8_t flags)
{
    uint8_t *ip = frame + ETHERNET_HEADER, *tcp = frame + ETHERNET_AND_IPV4;
    const uint32_t tcp_length = (uint32_t)(h->length - ETHERNET_AND_IPV4 + length);
    const uint32_t ip_length = IPV4_HEADER + tcp_length, id = h->id + index;
    memcpy(frame, h->header, h->length);
    sn_store16be(ip + IPV4_LENGTH, (uint16_t)ip_length);
    sn_store16be(ip + IPV4_ID, (uint16_t)id);
    sn_store16(ip + IPV4_CHECKSUM, (uint16_t)~sn_fold(h->ip_sum + sn_sum_field16(ip_length) + sn_sum_field16(id)));
    sn_store32be(tcp + TCP_SEQ, h->seq + (uint32_t)taken);
    tcp[TCP_FLAGS] = flags;
    sum += h->tcp_sum + sn_sum_field16(tcp_length) + sn_load32(tcp + TCP_SEQ) + sn_sum_field16(flags);
    sn_store16(tcp + TCP_CHECKSUM, (uint16_t)~sn_fold(sum));
}

#endif
