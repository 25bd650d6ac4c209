/* A turn of a NIC in one call: what its sockets have is read, checked, processed and passed on, and the answers are sent.
   It covers streams of applications and of collectives on their fast path (fast_path.h) over an unencrypted wire. Whatever else comes up
   ends the call, and Python continues the turn (daemons/softnicd/fast_turn.py): before it, everything is done, behind it
   nothing has begun. */
#ifndef SOFTNIC_TURN_H
#define SOFTNIC_TURN_H
/* C only */
#include <stdbool.h>
#include <stdint.h>

#include "batch_io.h"
#include "emulated_link.h"
#include "engine.h"
#include "fast_path.h"
#include "frames.h"
#include "packets.h"
#include "port.h"
/* all */

/* Why a call has ended. */
enum {
    SN_TURN_EVENTS = 1,  /* events of file descriptors that are not ports */
    SN_TURN_TIMERS = 2,  /* the time `timers_at` has come */
    SN_TURN_FRAMES = 4,  /* a batch was received of which the link has to take note */
    SN_TURN_RUNS = 8,    /* a run of a batch cannot be processed here */
    SN_TURN_READY = 16,  /* a flow cannot send here */
    SN_TURN_UNSENT = 32, /* the kernel did not accept all frames */
    SN_TURN_NOTES = 64,  /* ports have notes */
    SN_TURN_UNTIL = 128, /* the time that was given has come */
    SN_TURN_CUT = 256,   /* a segment was cut for a link that only Python knows */
    SN_TURN_WIRE = 512,  /* the emulated link cannot pass frames to the kernel */
    SN_TURN_ENGINE = 1024, /* a collective is complete, or Python has to go on with it */
    SN_TURN_LOOPED = 2048  /* the frames of the last segment, from `looped` on, are to this NIC and for Python */
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
    uint64_t host_segments_sent;
    uint64_t host_segments_received;
    uint64_t host_fast_path_sent;
    uint64_t host_fast_path_received;
    uint64_t link_sent_frames;
    uint64_t link_sent_bytes;
    uint64_t link_received_frames;
    uint64_t link_received_bytes;
} sn_turn_counts;

/* Memory for received batches. */
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
    sn_payload_ref *payloads;
    sn_run *runs;
} sn_turn_receive;

/* Memory for the frames of a segment. */
typedef struct {
    uint8_t *data;
    uint64_t size;
    uint32_t frames; /* entries of the arrays */
    uint32_t *offsets;
    uint32_t *lengths;
    sn_cut_plan *plan; /* with `packet_mode` and `equal_sizes` set */
    sn_cut_result *result;
} sn_turn_transmit;

/* Where the frames to a MAC address go. */
typedef struct {
    uint64_t destination;
    uint32_t address;
    uint16_t port;
    bool gso;
} sn_turn_path;

/* Ports whose flows may have something to send. */
typedef struct {
    sn_port *first;
    sn_port *last;
} sn_ready_list;

/* Limit of the paths that are known at a time. */
enum { SN_TURN_PATHS = 256 };

typedef struct {
    int32_t epoll;
    int32_t wire; /* file descriptor */
    int32_t vni;
    uint32_t ip;
    uint32_t mtu;
    uint8_t mac[6];
    uint64_t offloads; /* bit (tos >> 2) is set for every ToS that selects an offload */
    const uint64_t *peers; /* as for sn_vxlan_receive */
    uint64_t *peer_macs;   /* MAC address that was heard from each of them last */
    uint32_t peer_count;
    sn_emulated_link *emulated; /* between the flows and the wire; NULL: none */
    uint32_t path_count;
    int64_t path_epoch; /* changes with MAC addresses and endpoints of peers */
    double link_full_at;
    double timers_at;
    double poll_s; /* after a turn with events, the sockets are polled for this time before the process sleeps */
    uint32_t polls_to_skip; /* waits without a poll that follow the last one */
    uint32_t polls_skipped;
    bool wire_readable;
    bool cuts_only; /* frames are sent by Python, through a link */
    uint16_t identification;
    sn_turn_receive rx;
    sn_turn_transmit tx;
    uint32_t reasons;
    uint32_t event_count;
    uint32_t run_count; /* of the batch received last */
    uint32_t next_run;  /* the first one not processed */
    uint32_t accepted;  /* frames of the last segment that the kernel has */
    sn_turn_counts counts;
    uint32_t looped;
    bool has_looped; /* something was received over loopback since the collectives were advanced */
    sn_ready_list ready;
    sn_ready_list ready_loopback;
    sn_port *first_pulled;
    sn_port *last_pulled;
    sn_port *first_noted;
    sn_port **by_fd;
    sn_port **table;
    uint32_t by_fd_size;
    uint32_t table_size; /* a power of two, or 0 */
    uint32_t table_used;
    sn_chunk *spare;
    sn_engine *engines;
    sn_port **timers; /* a heap by `timer_at` */
    uint32_t timer_count;
    uint32_t timers_size;
    sn_output output;
    int32_t fds[256]; /* events that are left. Arrays come last: what every turn touches lies together */
    uint32_t masks[256];
    sn_turn_path paths[256];
} sn_turn;

/* Adds the port of a flow, or removes it. `add` returns -1 if there is no memory, `remove` whether the flow waited to send
   (SN_PORT_READ) or for its timers (SN_PORT_SCHEDULE), which is Python's from then on. */
int sn_turn_add(sn_turn *turn, sn_port *port, sn_flow *flow);
uint32_t sn_turn_remove(sn_turn *turn, sn_port *port);

/* Adds collectives, all of whose queues have ports of the turn, or removes them. */
void sn_turn_add_engine(sn_turn *turn, sn_engine *engine);
void sn_turn_remove_engine(sn_turn *turn, sn_engine *engine);

/* Moves headers and blocks of collectives as far as that is possible now. Returns whether Python has to go on, for another
   reason than complete operations. */
bool sn_turn_move_engine(sn_turn *turn, sn_engine *engine);

/* Has a port's bytes read, or its flow served, in the next call. */
void sn_turn_pull(sn_turn *turn, sn_port *port);
void sn_turn_wake(sn_turn *turn, sn_port *port);

/* Has the timers of a port's flow run from its earliest deadline on, if that is before its `scheduled_at`. */
void sn_turn_schedule(sn_turn *turn, sn_port *port);

/* Runs the timers that are due, and has Python run those that it runs. */
void sn_turn_run_timers(sn_turn *turn, double now);

/* When that has to be done next. */
double sn_turn_next_timer(const sn_turn *turn);

/* Take the first port of a list that Python continues with; NULL: it is empty. */
sn_port *sn_turn_take_ready(sn_ready_list *list);
sn_port *sn_turn_take_pulled(sn_turn *turn);
sn_port *sn_turn_take_noted(sn_turn *turn);

/* Processes the runs of a batch, `count` in all, from `first` on. Returns the index of the first one that is Python's. */
uint32_t sn_turn_take_runs(sn_turn *turn, uint32_t first, uint32_t count, double now);

/* Lets flows to other nodes send by turns up to about `space` bytes of frames, or one segment if `cuts_only`. Returns the
   reason to stop before that, or 0. */
uint32_t sn_turn_output(sn_turn *turn, int64_t space, double now);

/* Lets flows to the node itself send, and receives that at once. Returns as `sn_turn_output`. */
uint32_t sn_turn_output_loopback(sn_turn *turn, double now);

/* One turn at the time `now`, with the `event_count` events in `fds` and `masks`. Returns `reasons`. */
uint32_t sn_turn_step(sn_turn *turn, double now);

/* Looks for events for `poll_s`, at most until `limit`, without sleeping; not while all cores are taken. A poll that
   finds nothing is followed by 1, 2, 4 to 64 waits without one. Returns as `sn_epoll_wait`, 0 for a wait without one. */
int sn_turn_poll(sn_turn *turn, double limit);

/* Waits for events and takes turns until there is a reason to return, at the latest at `until`; returns `reasons`, or
   -errno. Times are seconds of CLOCK_MONOTONIC. */
int64_t sn_turn_run(sn_turn *turn, double until);

/* Frees what the turn has allocated. */
void sn_turn_clear(sn_turn *turn);

#endif
