/* The NIC of a kernel: its side of a turn (turn.h). Egress reads the kernel's packets, cuts and encodes them; ingress
   joins what has arrived into packets for the kernel. Python is asked about packets that open or end a connection,
   tagged ones of unknown connections, and the codecs that a NIC may leave out (softnic/tapnic/turn.py). */
#ifndef SOFTNIC_TAP_NIC_H
#define SOFTNIC_TAP_NIC_H
/* C only */
#include <stdbool.h>
#include <stdint.h>

#include "nic/tap.h"
#include "nic/tap_flows.h"
/* all */

/* How the codec of a ToS encodes. */
typedef struct {
    int32_t codec; /* as in an sn_cut_plan */
    int32_t parameter;
    uint32_t block;   /* bytes between two places where a range of it may be cut */
    bool is_adaptive; /* the NIC may leave it out */
} sn_tap_codec;

/* What a kernel's packets and those for it ask of the control plane, whose `owner` is the turn's. */
typedef struct {
    /* Decides about packet `index` of those read, and may change its header. Returns whether it is to be sent. */
    bool (*outgoing)(void *owner, uint32_t index, double now);
    /* Decides about run `index` of the turn's batch. Returns whether it is to be passed up. */
    bool (*incoming)(void *owner, uint32_t index, double now);
    /* Sets the path to a MAC address. Returns whether there is one. */
    bool (*find_path)(void *owner, sn_nic_flow *path, double now);
    /* Returns whether an adaptive codec is to encode the next segment of a flow, ... */
    bool (*encodes)(void *owner, sn_tap_flow *flow, uint32_t tos);
    /* ... which was cut into frames (`tx.result`). `is_limited`: the link takes no more. */
    void (*encoded)(void *owner, sn_tap_flow *flow, bool is_limited, double now);
    /* Records a segment on the kernel's side whose options are not timestamps alone. */
    void (*record)(void *owner, uint32_t direction, const uint8_t *header, uint32_t header_length,
                   const uint8_t *payload, uint64_t length, double now);
    /* There was no memory for a packet, which is dropped. */
    void (*exhausted)(void *owner);
} sn_tap_control;

/* The packet that is being sent. */
typedef struct {
    bool has_begun;
    bool has_flow;  /* `flows->sending` is its flow, unless that was removed */
    bool is_parted; /* its parts have headers of their own: tags and flags */
    uint32_t max_payload; /* TCP payload bytes per frame */
    uint32_t part;        /* index of the part that is sent next, ... */
    uint32_t done;        /* and the bytes of it that were sent */
    sn_tx_parts parts;
} sn_tap_sending;

typedef struct {
    sn_tap_control control;
    int32_t fd;    /* of the device */
    bool readable; /* there may be something to read */
    sn_tap_flows *flows;
    sn_tap_codec codecs[64]; /* by ToS >> 2 */
    uint8_t *headers;        /* memory of reads, as for sn_tap_read */
    uint8_t *buffer;
    uint64_t size;
    sn_tap_packet *packets;
    uint32_t most;
    uint32_t count; /* packets read */
    uint32_t next;  /* index of the first that was not sent */
    sn_tap_sending sending;
    sn_nic_flow unknown; /* counts and the path of what has no flow */
    uint8_t *decoded;    /* bytes for the kernel */
    uint64_t decoded_size;
} sn_tap_nic;

/* Frees what the turn has allocated. */
void sn_tap_nic_clear(sn_tap_nic *tap);

#endif
