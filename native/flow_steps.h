/* Steps that flow_receive.c and flow_send.c share. */
#ifndef SOFTNIC_FLOW_STEPS_H
#define SOFTNIC_FLOW_STEPS_H
#include "fast_path.h"
#include "flow.h"

/* The position with this sequence number that lies nearest to `near` (softnic/tcp/seq.py). */
static inline int64_t sn_position(int64_t initial, uint32_t number, int64_t near)
{
    return near + (int32_t)(number - (uint32_t)initial - (uint32_t)near);
}

static inline uint32_t sn_number(int64_t initial, int64_t position)
{
    return (uint32_t)(initial + position);
}

/* Whether the flow is established, and neither losses nor its end concern it. */
static inline bool sn_is_loss_free(const sn_flow *flow)
{
    const sn_connection *c = &flow->connection;
    return c->fast_path && c->established && c->use_sack && !c->syn_pending && !c->persisting &&
           c->dup_acks_pending == 0 && !flow->send.fin_queued && !flow->reassembly.has_gap && flow->recovery.is_open &&
           flow->rack.probe_end == -1 && flow->scoreboard.lost == 0 && flow->scoreboard.sacked == 0;
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

/* The TSval of a segment sent now. */
static inline uint32_t sn_timestamp(const sn_flow *flow, double now)
{
    return (uint32_t)((int64_t)(now * 1000) + flow->timestamps.offset);
}

void sn_sample_rtt(sn_retransmission_timeout *rtt, double sample);
void sn_sample_minimum_rtt(sn_minimum_rtt *minimum, double rtt, double now);

/* Grows a Reno or CUBIC window after an acknowledgement outside recovery. */
void sn_grow_window(sn_congestion *congestion, sn_hystart *hystart, const sn_ack *ack);

/* Restarts after an idle time longer than a timeout. */
void sn_restart_window(sn_congestion *congestion, sn_hystart *hystart);

/* Sets the pacing rate of what is sent from here on. Returns whether there is one. */
bool sn_update_pacing(sn_pacer *pacer, const sn_congestion *congestion, const sn_retransmission_timeout *rtt,
                      double link_full_at, double now);

/* The frames that pacing permits now. */
int64_t sn_pacing_burst(const sn_pacer *pacer, int64_t smss, double now);
void sn_charge_pacing(sn_pacer *pacer, int64_t wire_bytes, double now);

/* (Re)starts the retransmission timer. Returns whether the flow is to be scheduled. */
bool sn_arm_rto(sn_flow *flow, double now);

/* Sets the time of a tail loss probe. Returns whether the flow is to be scheduled. */
bool sn_arm_pto(sn_flow *flow, double now);

#endif
