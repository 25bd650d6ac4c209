/* A turn of a NIC: what its wire has is read, checked, processed and passed on, timers run, and flows send by turns.

   All data takes this way, in the daemon and in virtual time alike. The NIC of a kernel has the kernel's device in the
   place of flows (tap_nic.h). What is decision is asked of the control plane (`sn_control`): a frame that opens or closes
   a connection or belongs to none, timers that decide something, a tag whose codec is not known, a path. It
   answers before the turn goes on, so no turn is ever half done. */
#ifndef SOFTNIC_TURN_H
#define SOFTNIC_TURN_H
/* C only */
#include <stdbool.h>
#include <stdint.h>

#include "nic/batch_io.h"
#include "nic/capture.h"
#include "nic/emulated_link.h"
#include "collectives/engine.h"
#include "tcp/fast_path.h"
#include "nic/frames.h"
#include "nic/packets.h"
#include "nic/port.h"
#include "nic/secure_channel.h"
#include "nic/steering.h"
#include "nic/tap_nic.h"
#include "tcp/schedule.h"
/* all */

/* Why `sn_turn_run` has returned. */
enum {
    SN_TURN_EVENTS = 1, /* events of file descriptors that are not ports */
    SN_TURN_TIMERS = 2, /* the time `timers_at` has come */
    SN_TURN_UNTIL = 4,  /* the time that was given has come */
    SN_TURN_FAILED = 8  /* the control plane has failed */
};

/* What has happened to a flow that has no port. */
enum { SN_FLOW_READABLE = 1, SN_FLOW_WRITABLE = 2 };

/* How a turn is shared out. */
enum {
    SN_OFFLOADED_BYTES = 1 << 20, /* limit of the frame bytes of one offloaded segment */
    SN_LINK_BYTES = 4 << 20,      /* limit of the frames queued for a full socket */
    SN_MOST_BATCHES = 64,         /* received in one turn, so that a busy link leaves time for sending */
    SN_MOST_FRAMES = 4096         /* of a segment or a batch; only part of a longer segment is consumed */
};

/* Limit of the events of one wait. */
enum { SN_TURN_EVENTS_MOST = 256 };

/* What was counted: the sum of all calls. */
typedef struct {
    uint64_t nic_tx_segments;
    uint64_t nic_tx_bytes;
    uint64_t nic_tx_frames;
    uint64_t nic_tx_wire_bytes;
    uint64_t nic_tx_offload_frames;
    uint64_t nic_tx_offload_original_bytes;
    uint64_t nic_tx_offload_encoded_bytes;
    uint64_t nic_tx_offload_raw_frames;
    uint64_t nic_tx_other_frames;
    uint64_t nic_tx_drop_length;
    uint64_t nic_loopback_frames;
    uint64_t nic_loopback_wire_bytes;
    uint64_t nic_rx_segments;
    uint64_t nic_rx_bytes;
    uint64_t nic_rx_frames;
    uint64_t nic_rx_wire_bytes;
    uint64_t nic_rx_offload_frames;
    uint64_t nic_rx_offload_original_bytes;
    uint64_t nic_rx_offload_encoded_bytes;
    uint64_t nic_rx_offload_raw_frames;
    uint64_t nic_rx_other_frames;
    uint64_t nic_rx_drop_offload;
    uint64_t nic_rx_steered_frames;
    uint64_t nic_rx_drop_steered;
    uint64_t host_segments_sent;
    uint64_t host_segments_received;
    uint64_t host_fast_path_sent;
    uint64_t host_fast_path_received;
    uint64_t host_fast_retransmits;
    uint64_t host_spurious_retransmits;
    uint64_t host_out_of_order;
    uint64_t link_sent_frames;
    uint64_t link_sent_bytes;
    uint64_t link_received_frames;
    uint64_t link_received_bytes;
    uint64_t tap_tx_exact_bytes;
    uint64_t tap_tx_drop_header;
    uint64_t tap_rx_drop_header;
    uint64_t device_read;
    uint64_t device_written;
    uint64_t device_dropped_write;
} sn_turn_counts;

/* Memory for batches that are received from the kernel. */
typedef struct {
    uint8_t *data;
    uint64_t size;
    uint32_t slot; /* bytes for each datagram */
    uint32_t messages;
    uint32_t frames; /* limit of the frames of a batch; entries of the arrays */
    uint32_t *offsets;
    uint32_t *lengths;
    sn_source *sources;
    sn_received *found;
} sn_turn_receive;

/* The frames that are being processed, and what they are. */
typedef struct {
    uint8_t *data;
    uint64_t size;
    const uint32_t *offsets;
    const uint32_t *lengths;
    bool is_looped; /* they are to this node itself */
    bool is_steered; /* another queue has passed them on */
    sn_payload_ref *payloads; /* an entry for each frame */
    sn_run *runs;
} sn_batch;

/* Memory for the frames of a segment. */
typedef struct {
    uint8_t *data;
    uint64_t size;
    uint32_t frames; /* entries of the arrays */
    uint32_t *offsets;
    uint32_t *lengths;
    uint64_t packet_id; /* number of the segment whose frames these are; 0: they are of none */
    sn_cut_plan *plan; /* with `packet_mode` and `equal_sizes` set */
    sn_cut_result *result;
} sn_turn_transmit;

/* Where the frames to a MAC address go. */
typedef struct {
    uint64_t destination;
    uint32_t peer; /* index in the list of peers */
    bool gso;
} sn_turn_path;

/* Limit of the paths that are known at a time. */
enum { SN_TURN_PATHS = 256 };

/* The control plane. A call may use the flows and the schedule in any way, and send; one that has failed sets `failed`, and
   the turn ends. Only `attend` and `report` may be NULL. */
typedef struct {
    /* Has `batch` list frames that the turn cannot receive: of a link in Python, of this node to itself, or what is left of
       the batch that was read (`has_batch`) after a look at its senders. Returns their number; 0: there are none. */
    uint32_t (*receive)(void *owner, bool has_batch, double now);
    /* Looks at the opening of the batch that was read, which has paused (secure_channel.h). */
    void (*examine)(void *owner, double now);
    /* Processes run `index` of `batch`. */
    void (*run)(void *owner, uint32_t index, double now);
    /* Runs the timers of a flow, and sets when they are to be run next. */
    void (*expire)(void *owner, sn_flow *flow, double now);
    /* Tells the reader and writer of a flow without a port: SN_FLOW_... */
    void (*notify)(void *owner, sn_flow *flow, uint32_t what);
    /* Sets the path of an established flow, and the codec of the tag that it sends next. */
    void (*prepare)(void *owner, sn_flow *flow, double now);
    /* Sends for the first flow of a ring, at most about `space` bytes. Returns the wire bytes. */
    int64_t (*output)(void *owner, sn_ready_ring *ring, int64_t space, double now);
    /* Sends the acknowledgement with which a flow reports gaps. */
    void (*acknowledge)(void *owner, sn_flow *flow, double now);
    /* Sends the frames of the latest cut from `first` on through the link. */
    void (*send)(void *owner, uint32_t first, double now);
    /* Has `receive` return the frames of the latest cut from `first` on. */
    void (*loop)(void *owner, uint32_t first);
    /* Sends the burst of the emulated link that the kernel does not take as it is. */
    void (*release)(void *owner, double now);
    /* Bytes that the link takes now without loss. */
    int64_t (*space)(void *owner, double now);
    /* Does what is due at `link_at`, or at `requests_at`: of the link, of ARP. */
    void (*advance_link)(void *owner, double now);
    void (*advance_requests)(void *owner, double now);
    /* Serves readers and writers, between what is received and what is sent; and replies to them at the end. */
    void (*attend)(void *owner, double now);
    void (*report)(void *owner, double now);
} sn_control;

typedef struct {
    sn_control control;
    void *owner;
    sn_schedule *schedule; /* of all flows of the node, or of this queue */
    sn_tap_nic *tap;       /* the kernel that this NIC serves instead of flows of its own; NULL: none */
    uint32_t queue;        /* its number, from 0 */
    uint32_t queues;       /* number of queues of the NIC; 0 or 1: this is the only one */
    sn_inbox **inboxes;    /* of all queues */
    int32_t inbox_event;   /* eventfd of this one's; -1: there is none */
    int32_t epoll;
    int32_t wire; /* file descriptor; -1: there is none, and what C sends stays in `tx` */
    int32_t vni;
    uint32_t ip;
    uint32_t mtu;
    uint8_t mac[6];
    uint64_t offloads; /* bit (tos >> 2) is set for every ToS that selects an offload */
    const sn_endpoint *peers; /* as for sn_vxlan_receive */
    uint64_t *peer_macs;   /* MAC address that was heard from each of them last */
    uint32_t peer_count;
    sn_secure_channel *channel; /* encrypts the wire; NULL: it is VXLAN */
    sn_emulated_link *emulated; /* between the flows and the wire; NULL: none */
    sn_capture *capture; /* what is sent from here, and received, is recorded there; NULL: nothing is */
    uint32_t path_count;
    int64_t path_epoch; /* above 0; changes with MAC addresses and endpoints of peers */
    double link_full_at;
    double link_at;     /* when the control plane's link has something to do */
    double requests_at; /* when the control plane has something to ask of the network */
    double timers_at;   /* when `sn_turn_run` returns */
    double poll_s; /* after a turn with events, the sockets are polled for this time before the process sleeps */
    uint32_t polls_to_skip; /* waits without a poll that follow the last one */
    uint32_t polls_skipped;
    bool in_python; /* all frames pass through the link in Python */
    bool wire_readable;
    bool has_frames;  /* `receive` has frames */
    bool has_inbox;   /* other queues have passed frames on, */
    bool has_sealed;  /* or may have passed datagrams on that are sealed */
    bool wire_is_full; /* frames wait in the link for the kernel */
    bool owes_reports; /* flows have gaps to report */
    bool is_full;     /* flows that have something to send wait for the link */
    bool attends;     /* `attend` is called in every turn */
    bool attention;   /* and in the next one, which is taken at once */
    bool failed;
    bool is_waiting; /* `sn_turn_run` waits for events */
    bool has_looped; /* something was received over loopback since the collectives were advanced */
    uint64_t turns; /* that were taken */
    uint16_t identification;
    uint64_t packet_id; /* number of the segment that was cut last */
    sn_turn_receive rx;
    sn_batch batch;
    sn_turn_transmit tx;
    uint32_t event_count;
    sn_turn_counts counts;
    sn_port *first_pulled;
    sn_port *last_pulled;
    sn_port *first_noted;
    sn_port **by_fd;
    uint32_t by_fd_size;
    sn_chunk *spare;
    sn_engine *engines;
    sn_output output;
    int32_t fds[256]; /* events that are left. Arrays come last: what every turn touches lies together */
    uint32_t masks[256];
    sn_turn_path paths[256];
} sn_turn;

/* Adds the port of a flow, or removes it. `add` returns -1 if there is no memory. */
int sn_turn_add(sn_turn *turn, sn_port *port, sn_flow *flow);
void sn_turn_remove(sn_turn *turn, sn_port *port);

/* Adds collectives, or removes them. */
void sn_turn_add_engine(sn_turn *turn, sn_engine *engine);
void sn_turn_remove_engine(sn_turn *turn, sn_engine *engine);

/* Moves headers and blocks of collectives as far as that is possible now. Returns whether Python has to go on, for another
   reason than complete operations. */
bool sn_turn_move_engine(sn_turn *turn, sn_engine *engine);

/* Has a port's bytes read in the next turn. */
void sn_turn_pull(sn_turn *turn, sn_port *port);

/* Take the first port of a list that Python continues with; NULL: it is empty. */
sn_port *sn_turn_take_pulled(sn_turn *turn);
sn_port *sn_turn_take_noted(sn_turn *turn);

/* Passes received bytes on to a port's application. */
void sn_turn_push(sn_turn *turn, sn_port *port);

/* The two halves of a turn at the time `now`: what has arrived and the timers, and what flows send. */
void sn_turn_receive_all(sn_turn *turn, double now);
void sn_turn_send_all(sn_turn *turn, double now);

/* Their steps: processes the first `frames` frames of `batch`; lets the first flow of a ring send at most about `space` bytes
   of frames once, and returns the wire bytes. */
void sn_turn_take_batch(sn_turn *turn, uint32_t frames, double now);
int64_t sn_turn_serve(sn_turn *turn, sn_ready_ring *ring, int64_t space, double now);

/* A turn with the `event_count` events in `fds` and `masks`, of which it leaves those that are not of ports. */
void sn_turn_step(sn_turn *turn, double now);

/* When the next turn is due without an event; -infinity: at once. */
double sn_turn_due(const sn_turn *turn);

/* Looks for events for `poll_s`, at most until `limit`, without sleeping; not while all cores are taken. A poll that
   finds nothing is followed by 1, 2, 4 to 64 waits without one. Returns as `sn_epoll_wait`, 0 for a wait without one. */
int sn_turn_poll(sn_turn *turn, double limit);

/* Waits for events and takes turns until there is a reason to return, at the latest at `until`. Returns the reasons, or
   -errno. Times are seconds of CLOCK_MONOTONIC. */
int64_t sn_turn_run(sn_turn *turn, double until);

/* Frees what the turn has allocated. */
void sn_turn_clear(sn_turn *turn);

#endif
