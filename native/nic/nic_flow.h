/* The NIC's part of a flow: its path, the codec of what it sends next, and what was counted. */
#ifndef SOFTNIC_NIC_FLOW_H
#define SOFTNIC_NIC_FLOW_H
/* C only */
#include <stdbool.h>
#include <stdint.h>
/* all */

/* FIELDS */
typedef struct {
    int64_t wire_bytes_sent;
    int64_t wire_bytes_received;
    int64_t offload_original_bytes_sent;
    int64_t offload_encoded_bytes_sent;
    int64_t offload_original_bytes_received;
    int64_t offload_encoded_bytes_received;
    double path_until; /* until then the path is valid, while the turn's `path_epoch` is this one */
    int64_t path_epoch;
    int64_t destination;  /* MAC address */
    int64_t peer; /* index in the turn's list of peers, where the wire is UDP */
    bool gso;
    bool is_loopback;     /* the flow is to this node itself */
    int64_t peer_codecs;  /* that both ends have; -1: the NIC decides about each segment in Python */
    int64_t tag;          /* number of the tag that the codec below is for; -1: none */
    int64_t codec;        /* as in an sn_cut_plan */
    int64_t parameter;
} sn_nic_flow;
/* END OF FIELDS */

#endif
