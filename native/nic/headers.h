/* Offsets of the fields of Ethernet II, IPv4 and TCP, each from the start of its own header. */
#ifndef SOFTNIC_HEADERS_H
#define SOFTNIC_HEADERS_H

enum {
    ETHERNET_HEADER = 14,
    ETHERNET_TYPE = 12,
    ETHERTYPE_IPV4 = 0x0800,

    IPV4_HEADER = 20,
    IPV4_TOS = 1,
    IPV4_LENGTH = 2,
    IPV4_ID = 4,
    IPV4_FRAGMENT = 6,
    IPV4_TTL = 8,
    IPV4_PROTOCOL = 9,
    IPV4_CHECKSUM = 10,
    IPV4_SOURCE = 12,
    IPV4_DESTINATION = 16,
    IPV4_MAX = 65535,
    PROTOCOL_TCP = 6,

    TCP_HEADER = 20,
    TCP_SPORT = 0,
    TCP_DPORT = 2,
    TCP_SEQ = 4,
    TCP_ACK = 8,
    TCP_OFFSET = 12,
    TCP_FLAGS = 13,
    TCP_WINDOW = 14,
    TCP_CHECKSUM = 16,

    TCP_FIN = 0x01,
    TCP_SYN = 0x02,
    TCP_RST = 0x04,
    TCP_PSH = 0x08,
    TCP_ACK_FLAG = 0x10,

    MAX_HEADER = ETHERNET_HEADER + IPV4_HEADER + 60
};

#endif
