/* Receive. Every length is checked against the enclosing one before anything behind it is read. */
#include "nic/packets.h"
#include "nic/checksum.h"
#include "codecs/codecs.h"
#include "nic/frame_header.h"
#include "nic/frames.h"
#include "nic/headers.h"

static uint8_t parse_ethernet(const uint8_t *frame, uint32_t length, const uint8_t *mac)
{
    if (length < ETHERNET_HEADER) return SN_DROP_FRAME;
    if (!(frame[0] & 1) && memcmp(frame, mac, 6) != 0) return SN_DROP_ADDRESS;
    return sn_load16be(frame + ETHERNET_TYPE) == ETHERTYPE_IPV4 ? SN_KIND_TCP : SN_KIND_OTHER;
}

/* A source must be a host address: neither 0 nor multicast nor broadcast. */
static int source_is_legal(uint32_t address) { return address != 0 && address < 0xe0000000u; }

static uint8_t parse_ipv4(const uint8_t *ip, uint32_t length, uint32_t *header, uint32_t *total)
{
    if (length < IPV4_HEADER || ip[0] >> 4 != 4) return SN_DROP_IP;
    *header = 4 * (uint32_t)(ip[0] & 15);
    *total = sn_load16be(ip + IPV4_LENGTH);
    if (*header < IPV4_HEADER || *total < *header || *total > length) return SN_DROP_IP;
    if (sn_fold(sn_sum(ip, *header)) != 0xffff) return SN_DROP_IP_CHECKSUM;
    if (!source_is_legal(sn_load32be(ip + IPV4_SOURCE))) return SN_DROP_IP;
    if (sn_load16be(ip + IPV4_FRAGMENT) & 0x3fff) return SN_DROP_FRAGMENT;
    return ip[IPV4_PROTOCOL] == PROTOCOL_TCP ? SN_KIND_TCP : SN_KIND_OTHER;
}

/* Finds timestamps and SACK blocks among TCP options. As in Linux, options from one of an impossible length on are
   ignored, and so is one of a wrong length. `offset` is the options' offset in the batch's buffer. */
static void parse_options(const uint8_t *options, uint32_t length, uint32_t offset, sn_run *run)
{
    for (uint32_t i = 0; i < length;) {
        if (options[i] == OPTION_END) break;
        if (options[i] == OPTION_NOP) {
            i++;
            continue;
        }
        if (i + 1 >= length || options[i + 1] < 2 || options[i + 1] > length - i) break;
        if (options[i] == OPTION_TIMESTAMPS && options[i + 1] == TIMESTAMPS_LENGTH) {
            run->has_timestamps = 1;
            run->ts_value = sn_load32be(options + i + 2);
            run->ts_echo = sn_load32be(options + i + 6);
        } else if (options[i] == OPTION_SACK && options[i + 1] % 8 == 2 && options[i + 1] > 2) {
            run->sack_offset = offset + i + 2;
            run->sack_blocks = options[i + 1] / 8;
        }
        i += options[i + 1];
    }
}

static uint8_t parse_tcp(const uint8_t *ip, uint32_t ip_header, uint32_t total, uint32_t offset, sn_run *run,
                         uint32_t *header)
{
    const uint8_t *tcp = ip + ip_header;
    uint32_t length = total - ip_header;
    if (length < TCP_HEADER) return SN_DROP_TCP;
    *header = 4 * (uint32_t)(tcp[TCP_OFFSET] >> 4);
    if (*header < TCP_HEADER || *header > length) return SN_DROP_TCP;
    uint64_t pseudo = sn_sum(ip + IPV4_SOURCE, 8) + sn_sum_field16(PROTOCOL_TCP) + sn_sum_field16(length);
    if (sn_fold(pseudo + sn_sum(tcp, length)) != 0xffff) return SN_DROP_TCP_CHECKSUM;
    run->options_offset = offset + ip_header + TCP_HEADER;
    run->options_length = (uint16_t)(*header - TCP_HEADER);
    parse_options(tcp + TCP_HEADER, run->options_length, run->options_offset, run);
    run->src = sn_load32be(ip + IPV4_SOURCE);
    run->dst = sn_load32be(ip + IPV4_DESTINATION);
    run->tos = ip[IPV4_TOS];
    run->sport = sn_load16be(tcp + TCP_SPORT);
    run->dport = sn_load16be(tcp + TCP_DPORT);
    run->seq = sn_load32be(tcp + TCP_SEQ);
    run->ack = sn_load32be(tcp + TCP_ACK);
    run->flags = tcp[TCP_FLAGS];
    run->window = sn_load16be(tcp + TCP_WINDOW);
    return SN_KIND_TCP;
}

/* Returns the original length in a payload's header; the payload's own length if it cannot encode so many bytes, so
   that nobody allocates memory for them. */
static uint32_t claimed_bytes(const uint8_t *payload, uint32_t length)
{
    if (length < SN_PAYLOAD_HEADER) return length;
    uint32_t claimed = sn_load32be(payload + 4);
    size_t least = claimed;
    if (!(payload[0] & SN_FLAG_RAW)) {
        int codec = payload[1], parameter = (int8_t)payload[2];
        if (!sn_codec_valid(codec, parameter)) return length;
        least = sn_encoded_least(codec, parameter, claimed / 4) + (claimed & 3);
    }
    return claimed && least <= length - SN_PAYLOAD_HEADER ? claimed : length;
}

static void parse_frame(const uint8_t *data, size_t size, uint32_t offset, uint32_t length, const uint8_t *mac,
                        uint64_t offloads, sn_payload_ref *piece, sn_run *run)
{
    const uint8_t *frame = data + offset, *ip = frame + ETHERNET_HEADER;
    uint32_t ip_header, total, tcp_header;
    *piece = (sn_payload_ref){offset, 0, 0};
    if (offset > size || length > size - offset) {
        run->kind = SN_DROP_FRAME;
        return;
    }
    if ((run->kind = parse_ethernet(frame, length, mac)) != SN_KIND_TCP) return;
    if ((run->kind = parse_ipv4(ip, length - ETHERNET_HEADER, &ip_header, &total)) != SN_KIND_TCP) return;
    if ((run->kind = parse_tcp(ip, ip_header, total, offset + ETHERNET_HEADER, run,
                               &tcp_header)) != SN_KIND_TCP) return;
    piece->offset = run->options_offset + run->options_length;
    piece->length = total - ip_header - tcp_header;
    piece->original = offloads >> (run->tos >> 2) & 1 ? claimed_bytes(data + piece->offset,
                                                                      piece->length) : piece->length;
    run->payload_bytes = piece->length;
    run->original_bytes = piece->original;
}

/* Returns 1 if `next` continues `run` with the same fields. Segments without data are ACKs of their own and never
   joined, nor are segments with other flags. */
static int joins(const sn_run *run, const sn_run *next, const uint8_t *data)
{
    return run->kind == SN_KIND_TCP && next->kind == SN_KIND_TCP && run->payload_bytes && next->payload_bytes &&
           run->flags == TCP_ACK_FLAG && (next->flags & ~(TCP_PSH | TCP_FIN)) == TCP_ACK_FLAG &&
           next->seq == run->seq + run->original_bytes && next->src == run->src && next->dst == run->dst &&
           next->sport == run->sport && next->dport == run->dport && next->ack == run->ack &&
           next->window == run->window && next->tos == run->tos && next->options_length == run->options_length &&
           memcmp(data + next->options_offset, data + run->options_offset, run->options_length) == 0 &&
           (uint64_t)run->original_bytes + next->original_bytes <= SN_MAX_RUN;
}

uint32_t sn_parse(const uint8_t *data, size_t size, const uint32_t *offsets, const uint32_t *lengths,
                  uint32_t count, const uint8_t *mac, uint64_t offloads, sn_payload_ref *pieces, sn_run *runs)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        sn_run *run = runs + found;
        memset(run, 0, sizeof *run);
        run->first = i;
        run->count = 1;
        parse_frame(data, size, offsets[i], lengths[i], mac, offloads, pieces + i, run);
        if (found == 0 || !joins(run - 1, run, data)) {
            found++;
            continue;
        }
        sn_run *last = run - 1;
        last->count++;
        last->payload_bytes += run->payload_bytes;
        last->original_bytes += run->original_bytes;
        last->flags |= run->flags;
    }
    return found;
}
