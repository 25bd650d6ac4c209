/* The numbers of one connection, in one block of memory.

   Python's stack (softnic/tcp) and the C of the fast path work on the same fields: each struct below is a part of a
   flow, and softnic._fields (native/tcp/views.c) shows its fields as the attributes of a Python class. Their meaning and
   their owners are documented there, in softnic/tcp/flow.py and the modules of its parts.

   Positions are as in softnic/tcp/seq.py: they never wrap, a SYN has position 0. Times are seconds on the caller's clock,
   infinite if a deadline is not set. Sizes are bytes; wire bytes where the name or Python says so. */
#ifndef SOFTNIC_FLOW_H
#define SOFTNIC_FLOW_H
#include <stdbool.h>
#include <stdint.h>

#include "nic/nic_flow.h"
#include "tcp/reassembly.h"
#include "tcp/receive_buffer.h"
#include "tcp/scoreboard.h"
#include "tcp/send_buffer.h"

/* FIELDS: views.c shows the structs from here on to Python, one field a line. */

typedef int64_t sn_maybe_position; /* -1: None */
typedef double sn_maybe_number;    /* NaN: None */

typedef struct {
    bool established; /* ESTABLISHED: both directions are open */
    bool writable;    /* this direction is not closed */
    bool use_sack;
    bool use_timestamps;
    bool ack_pending;
    bool syn_pending;
    bool blocked;
    bool persisting;
    bool nodelay;
    bool corked;
    bool orphaned;
    bool wants_space;
    bool readable_notified;
    bool queued;
    bool has_soft_error;
    bool fast_path;
    int64_t dup_acks_pending;
    int64_t keepalive_probes;
    int64_t turn_bytes;
    int64_t last_ack_sent;
    int64_t frames_received;
    int64_t frames_sent;
    int64_t wire_bytes_sent;
    int64_t retransmits;
    int64_t path_mtu;
    int64_t ttl;
    double user_timeout_s;
    double last_heard;
    double last_sent_at;
    double unacked_since;
    double scheduled_at;
    double rto_at;
    double pto;
    double reo_timer;
    double pacing_timer;
    double close_at;
    double gap_at;
    double cork_at;
    double keepalive_at;
    double trim_at;
    double path_mtu_until;
    double last_challenge;
    double syn_sent_at;
    int64_t local_ip;
    int64_t local_port;
    int64_t peer_ip;
    int64_t peer_port;
    int64_t super_segment;
    double trim_after_s;
    double gap_s;
} sn_connection;

typedef struct {
    bool fin_queued;
    int64_t iss;
    int64_t snd_una;
    int64_t snd_nxt;
    int64_t snd_sml;
    int64_t snd_wnd;
    int64_t snd_wl1;
    int64_t snd_wl2;
    int64_t max_wnd;
    int64_t scale;
    int64_t mss;
    int64_t peer_mss;
} sn_send;

typedef struct {
    bool eof;
    int64_t irs;
    int64_t rcv_nxt;
    int64_t rcv_adv;
    int64_t scale;
    int64_t capacity;
    int64_t initial;
    int64_t unread;
    int64_t largest;
    sn_maybe_position fin;
} sn_receive;

typedef struct {
    double srtt;
    double rttvar;
    double latest;
    double rto;
    double initial_s;
    double min_s;
    double max_s;
    int64_t backoff;
} sn_retransmission_timeout;

enum { SN_RENO = 1, SN_CUBIC = 2, SN_BBR = 3 };
enum { SN_BBR_STARTUP = 0, SN_BBR_DRAIN = 1, SN_BBR_PROBE_BW = 2, SN_BBR_PROBE_RTT = 3 };

typedef struct {
    int64_t algorithm;
    int64_t smss;
    int64_t cwnd;
    int64_t ssthresh;
    bool by_path;
    bool restarting;
    bool lost_much;       /* BBR: in this phase */
    int64_t queueless_losses; /* auto */
    int64_t acknowledged; /* Reno */
    double w_max;         /* CUBIC, from here on */
    double prior;
    sn_maybe_number began_at;
    double k;
    double estimate;
    double seen_at;
    int64_t mode; /* BBR, from here on */
    double gain;
    double rate;
    double least_rtt;
    double least_rtt_at;
    double recent_rtt;
    double recent_rtt_at;
    int64_t round;
    int64_t round_ends;
    double full_rate;
    int64_t full_rounds;
    int64_t phase;
    double phase_at;
    sn_maybe_number probe_ends;
    int64_t limited_until;
    int64_t resume;
    int64_t bound;
    int64_t bound_step;
    int64_t counted_delivered;
    int64_t counted_lost;
    int64_t round_flight;
    int64_t seen_lost;
    double crowded_at;
    int64_t rates_count;
    int64_t rate_rounds[10]; /* ascending: the round of each of `rates` */
    double rates[10];        /* descending: each may become the maximum of the last rounds */
} sn_congestion;

typedef struct {
    int64_t window_end;
    int64_t samples;
    int64_t rounds;
    double last;
    double current;
    double baseline;
} sn_hystart;

enum { SN_RECOVERY_OPEN = 0, SN_RECOVERY_FAST = 1, SN_RECOVERY_LOSS = 2 };

typedef struct {
    bool is_open;
    bool must_send;
    bool may_undo;
    int64_t state;
    int64_t recover;
    int64_t duplicates;
    int64_t flight_size;
    int64_t arrived;
    int64_t sent_bytes;
    sn_maybe_position stamp;
    sn_congestion congestion; /* this and the next, before the reduction: if `may_undo` */
    sn_hystart hystart;
} sn_recovery;

typedef struct {
    double before;
    double now;
    double since;
} sn_minimum_rtt;

typedef struct {
    double sent_at;
    int64_t end;
    double rtt;
    double peer_ack_delay_s;
    bool reordering_seen;
    bool probe_repeats;
    bool probe_dsacked;
    sn_maybe_position probe_end;
    sn_maybe_position dsack_round;
    int64_t multiplier;
    int64_t persist;
} sn_rack;

typedef struct {
    sn_maybe_number rate;
    double free_at;
    double late_s;
} sn_pacer;

typedef struct {
    int64_t offset;
    int64_t ts_recent;
    double recent_at;
} sn_timestamps;

typedef struct {
    double delay_s;
    double at;
    double arrived_at;
    int64_t frames;
    int64_t answers;
    int64_t needed;
    bool batch;
} sn_delayed_ack;

typedef struct {
    int64_t most;
    int64_t taken;
    int64_t position;
    int64_t consumed;
    double started;
    double rtt_s;
    double round_ends;
} sn_receive_tuning;

typedef struct {
    int64_t least;
    int64_t most;
    int64_t taken;
    int64_t next;
} sn_send_tuning;

/* END OF FIELDS */

/* The flow's place in the rings and among the timers of its node (schedule.h). */
typedef struct {
    struct sn_flow *next;
    double timer_at;
    uint64_t timer_order;
    uint32_t timer_index; /* from 1 on; 0: it has no entry */
    bool is_known;
} sn_scheduling;

typedef struct sn_flow {
    sn_connection connection;
    sn_receive receive;
    sn_receive_buffer receive_buffer;
    sn_reassembly reassembly;
    sn_timestamps timestamps;
    sn_delayed_ack delayed_ack;
    sn_receive_tuning receive_tuning;
    sn_send send;
    sn_scoreboard scoreboard;
    sn_retransmission_timeout retransmission_timeout;
    sn_rack rack;
    sn_minimum_rtt minimum_rtt;
    sn_recovery recovery;
    sn_congestion congestion;
    sn_hystart hystart;
    sn_pacer pacer;
    sn_send_buffer send_buffer;
    sn_send_tuning send_tuning;
    sn_nic_flow nic_flow;
    sn_scheduling scheduling;
    struct sn_port *port;            /* through which an application reads and writes; NULL: Python does */
    struct sn_step_queue *steps;     /* of collectives, which reads the bytes instead; NULL: none */
    struct sn_header_queue *headers; /* the same for headers */
} sn_flow;

#endif
