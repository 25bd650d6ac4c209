/* Steps that flow_receive.c and flow_send.c share. */
#ifndef SOFTNIC_FLOW_STEPS_H
#define SOFTNIC_FLOW_STEPS_H
#include "nic/frame_header.h"
#include "tcp/fast_path.h"
#include "tcp/flow.h"

/* The position with this sequence number that lies nearest to `near` (softnic/tcp/seq.py). */
static inline int64_t sn_position(int64_t initial, uint32_t number, int64_t near)
{
    return near + (int32_t)(number - (uint32_t)initial - (uint32_t)near);
}

static inline uint32_t sn_number(int64_t initial, int64_t position)
{
    return (uint32_t)(initial + position);
}

/* Whether the flow is one whose data C moves: established, with SACK, and no end is near. */
static inline bool sn_is_streaming(const sn_flow *flow)
{
    const sn_connection *c = &flow->connection;
    return c->fast_path && c->established && c->use_sack && !c->syn_pending && !c->persisting && !flow->send.fin_queued;
}

/* As Python's min and max: the first of equals. */
static inline double smaller(double a, double b)
{
    return b < a ? b : a;
}

static inline double larger(double a, double b)
{
    return b > a ? b : a;
}

/* The fields of the header of a segment. */
sn_segment_fields sn_flow_fields(const sn_flow *flow, const sn_output *out);

/* Whether it is worth it to move the right edge of the window: by an eighth of the buffer at least. */
static inline bool sn_window_may_move(const sn_receive *receive)
{
    const int64_t most = receive->rcv_nxt + receive->capacity - receive->unread;
    return most - receive->rcv_adv >= receive->capacity / SN_WINDOW_STEPS;
}

/* The TSval of a segment sent now. */
static inline uint32_t sn_timestamp(const sn_flow *flow, double now)
{
    return (uint32_t)((int64_t)(now * 1000) + flow->timestamps.offset);
}

/* Has the memory of empty buffers returned later on. Returns whether the flow is to be scheduled. */
bool sn_flow_schedule_trim(sn_flow *flow, double now);

/* METHODS: views.c shows the functions from here on to Python, as methods of the part that their names begin with; those
   of a flow are methods of the connection. What Python says of their meaning stands in softnic/_fields.pyi. */

void sn_retransmission_timeout_sample(sn_retransmission_timeout *rtt, double sample);
void sn_retransmission_timeout_back_off(sn_retransmission_timeout *rtt);
void sn_retransmission_timeout_answered(sn_retransmission_timeout *rtt);
void sn_minimum_rtt_sample(sn_minimum_rtt *minimum, double rtt, double now);
void sn_rack_update(sn_flow *flow, const sn_ack *ack, sn_maybe_number repeat_rtt);
void sn_rack_duplicate(sn_rack *rack, int64_t una, int64_t nxt);
void sn_rack_recovered(sn_rack *rack);
double sn_rack_window(sn_flow *flow, const sn_scoreboard *board, bool recovering, int64_t smss, double srtt);
double sn_rack_detect(const sn_rack *rack, sn_scoreboard *board, double window, double now);
void sn_rack_timed_out(sn_rack *rack, sn_scoreboard *board, double now, double window);
double sn_rack_probe_after(const sn_rack *rack, const sn_scoreboard *board, int64_t smss, double srtt);
void sn_rack_probed(sn_rack *rack, int64_t end, bool repeats);
bool sn_rack_probe_answered(sn_rack *rack, int64_t ack);
void sn_recovery_begin(sn_flow *flow);
void sn_recovery_begin_after_timeout(sn_flow *flow, bool again);
void sn_recovery_sent(sn_recovery *recovery, int64_t wire_bytes);
void sn_recovery_sent_again(sn_recovery *recovery, sn_maybe_position stamp);
int64_t sn_recovery_window(sn_flow *flow, int64_t arrived, bool advanced);
bool sn_recovery_ends(sn_recovery *recovery, int64_t una);
bool sn_recovery_undo(sn_flow *flow, sn_maybe_position echo);
void sn_hystart_restart(sn_hystart *hystart);
int64_t sn_hystart_on_ack(sn_hystart *hystart, int64_t una, int64_t nxt, double rtt);
void sn_congestion_begin_bbr(sn_congestion *congestion);
void sn_congestion_on_loss(sn_congestion *congestion, int64_t flight_size);
void sn_congestion_count_loss(sn_flow *flow);
void sn_congestion_on_timeout(sn_congestion *congestion, int64_t flight_size, bool first);
void sn_congestion_restore(sn_congestion *congestion, const sn_congestion *before);
void sn_congestion_on_ack(sn_flow *flow, const sn_ack *ack);
void sn_congestion_on_idle(sn_flow *flow, double idle_s);
sn_maybe_number sn_congestion_pacing_rate(const sn_congestion *congestion, double rtt);
bool sn_pacer_update(sn_pacer *pacer, const sn_congestion *congestion, const sn_retransmission_timeout *rtt,
                     double link_full_at, double now);
int64_t sn_pacer_burst(const sn_pacer *pacer, int64_t smss, double now);
void sn_pacer_woken(sn_pacer *pacer, double late_s);
void sn_pacer_sent(sn_pacer *pacer, int64_t wire_bytes, double now);
int64_t sn_send_position(const sn_send *send, uint32_t acknowledgement);
bool sn_send_update_window(sn_send *send, int64_t position, int64_t ack, uint32_t field, bool scaled);
int64_t sn_receive_position(const sn_receive *receive, uint32_t sequence);
bool sn_receive_accepts(const sn_receive *receive, int64_t position, int64_t length);
bool sn_receive_wants_update(const sn_receive *receive);
int64_t sn_receive_tuning_advance(sn_receive_tuning *tuning, const sn_receive *receive, int64_t waiting, double now,
                                  double srtt, sn_maybe_number echoed);
bool sn_delayed_ack_should_delay(sn_delayed_ack *delayed, int64_t frames, int64_t size, double now);
void sn_delayed_ack_expired(sn_delayed_ack *delayed);
void sn_delayed_ack_on_pure_ack(sn_delayed_ack *delayed);
void sn_delayed_ack_on_piggybacked(sn_delayed_ack *delayed, double now);
bool sn_flow_heard(sn_flow *flow, int64_t position, int64_t stamp, double now);
bool sn_flow_begin_ack(sn_flow *flow, sn_ack *ack, int64_t una, double now);
void sn_flow_measure(sn_flow *flow, sn_ack *ack, bool advanced, uint32_t echo);
bool sn_flow_is_repairing(const sn_flow *flow);
void sn_flow_arrived(sn_flow *flow, sn_ack *ack);
bool sn_flow_look_for_losses(sn_flow *flow, double now);
void sn_flow_begin_recovery(sn_flow *flow);
uint32_t sn_flow_acknowledged(sn_flow *flow, sn_ack *ack, bool advanced, bool dsack, sn_maybe_position echo);
bool sn_flow_arm_rto(sn_flow *flow, double now);
bool sn_flow_arm_pto(sn_flow *flow, double now);
bool sn_flow_rearm_after_ack(sn_flow *flow, double now, bool advanced);
bool sn_flow_has_output(const sn_flow *flow);
int64_t sn_flow_frame_budget(sn_flow *flow, int64_t unsent, int64_t frames, double link_full_at, double now);
int64_t sn_flow_segment_end(const sn_flow *flow, int64_t start, int64_t budget, bool force);
int64_t sn_flow_next_sent(const sn_flow *flow);
int64_t sn_flow_again_end(const sn_flow *flow, int64_t start, int64_t stop, int64_t budget);
int sn_flow_carried(sn_flow *flow, int64_t end, int64_t frames, int64_t wire_bytes, double now);
int sn_flow_sent_new(sn_flow *flow, int64_t end, bool is_short, int64_t wire_bytes, double now);
int sn_flow_sent_again(sn_flow *flow, int64_t start, int64_t end, int64_t wire_bytes, double now);

/* END OF METHODS */

/* Whether a loss reduces the window, by proportional rate reduction (RFC 6937). */
static inline bool sn_congestion_reduces(const sn_congestion *congestion)
{
    return congestion->algorithm != SN_BBR;
}

/* Infinite before the first sample. */
static inline double sn_minimum_rtt_least(const sn_minimum_rtt *minimum)
{
    return smaller(minimum->before, minimum->now);
}

/* What sn_congestion_on_ack, sn_congestion_pacing_rate and sn_congestion_restore do for BBR (bbr.c). */
void sn_bbr_on_ack(sn_congestion *congestion, const sn_ack *ack);
double sn_bbr_pacing_rate(const sn_congestion *congestion, double rtt);
void sn_bbr_keep_rates(sn_congestion *congestion, const sn_congestion *from);

#endif
