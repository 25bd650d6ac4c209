/* The encryption of batches: frames to a peer are sealed and sent, received datagrams are opened where they lie.

   Python decides about sessions (softnic/link/secure). What is asked of it here is all that a session does not answer:
   frames without a session, or whose session is to be replaced, are not sent; the opening of a batch pauses at a hello,
   after dropped datagrams, and after the first datagram of a session that the peer was not known to have.

   Whatever Python believes: a session is not used after its time, no counter is used twice or beyond its limit, none is
   accepted twice, and nothing of a datagram is looked at before it is authenticated (aead.h). */
#ifndef SOFTNIC_SECURE_CHANNEL_H
#define SOFTNIC_SECURE_CHANNEL_H
/* C only */
#include <stdbool.h>
#include <stdint.h>

#include "nic/aead.h"
#include "nic/batch_io.h"
#include "nic/steering.h"
/* all */

enum { SN_MOST_SESSIONS = 2 };

/* A session with a peer, in both directions. */
typedef struct {
    sn_encryptor encryptor;
    sn_decryptor decryptor;
    double rekey_at;        /* another one is to take its place from this time on, ... */
    uint64_t rekey_counter; /* or from this counter of the encryptor */
    double expires_at;
    bool settled; /* the peer is known to have it */
} sn_session;

/* What is agreed with a peer. */
typedef struct {
    sn_hello_key hello_keys[SN_MOST_HELLO_KEYS];
    uint32_t hello_key_count;
    sn_session *sessions[SN_MOST_SESSIONS]; /* the newest first */
    uint32_t session_count;
    double sent_at; /* when a frame was last sent to it */
} sn_secure_peer;

/* The datagrams of one batch (sn_vxlan_receive). `sources` and `received` count datagrams, and when it is open, frames. */
typedef struct {
    uint8_t *data;
    uint32_t *offsets;
    uint32_t *lengths;
    sn_source *sources;
    sn_received *received;
} sn_datagrams;

/* How far the opening of a batch is. */
typedef struct {
    uint32_t source; /* that is being opened, or the one behind the last */
    uint32_t done;   /* its datagrams that are opened, dropped or answered */
    uint32_t first;  /* frames listed before those of this source */
    uint32_t frames; /* frames listed */
    uint32_t kept;   /* sources with frames before this one */
    sn_decrypted found; /* among its datagrams since the call before */
    sn_session *shown;  /* a session that is not settled, and of which they are; NULL: none */
    bool at_hello;      /* a hello under the right key follows, which counts as done */
    uint32_t hello;     /* where it is in `data` */
} sn_opening;

/* The queues of a NIC, each of which has a channel of its own. A datagram is opened by its own queue (sn_sealed_queue), so
   that no other one takes a replay of it. */
typedef struct {
    uint32_t own;
    uint32_t count;        /* 0 or 1: there is no other one */
    sn_inbox **inboxes;    /* of all, for datagrams, each behind the address of its sender */
    sn_source *sources;    /* SN_INBOX_FRAMES: of those that others have passed on, */
    sn_received received;  /* and their number */
    uint64_t passed;       /* to others, */
    uint64_t dropped;      /* or not, as their inbox was full */
} sn_secure_queues;

typedef struct {
    const sn_cipher *cipher;
    const sn_endpoint *keys; /* of the peers, as for sn_vxlan_receive */
    double *heard_at;        /* when something that is authentic was last heard from each of these addresses */
    sn_secure_peer **peers;
    uint32_t peer_count;
    uint8_t *out; /* memory of a sealed batch */
    uint32_t size;
    uint32_t frames; /* entries of the arrays */
    uint32_t *offsets;
    uint32_t *lengths;
    sn_datagrams batch;
    sn_opening opening;
    sn_secure_queues queues;
} sn_secure_channel;

/* Returns the session to seal with: the newest settled one, else the newest; NULL: there is none. */
sn_session *sn_sending_session(const sn_secure_peer *peer, double now);

/* Returns whether another session is to be made in the place of this one. */
bool sn_session_needs_rekey(const sn_session *session, double now);

/* Seals frames and sends them over a UDP socket to a peer (see sn_udp_send). Returns how many the kernel accepted: none
   without a session, or with one that is to be replaced. */
uint32_t sn_secure_send(sn_secure_channel *channel, int fd, uint32_t peer, const uint8_t *data,
                        const uint32_t *offsets, const uint32_t *lengths, uint32_t count, int gso, double now);

/* Begins with the batch that was received: passes datagrams of other queues on. */
void sn_secure_begin(sn_secure_channel *channel);

/* Makes what other queues have passed on the batch, `size` bytes. Returns whether there is any. */
bool sn_secure_take(sn_secure_channel *channel, uint64_t *size);

/* Opens datagrams of the batch in place, and lists the frames in their stead. Returns whether it has paused, because
   `opening` is to be looked at: the next call goes on. */
bool sn_secure_open(sn_secure_channel *channel, double now);

#endif
