/* Ports: the NIC's ends of applications' Unix stream pairs, where the bytes of flows come from and go to. */
#ifndef SOFTNIC_PORT_H
#define SOFTNIC_PORT_H
/* C only */
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "fast_path.h"
#include "flow.h"
/* all */

/* Received bytes that the application has not read yet. */
typedef struct sn_chunk {
    struct sn_chunk *next;
    uint32_t size;
    uint32_t start; /* of the bytes that are left */
    uint32_t end;
    uint8_t data[];
} sn_chunk;

/* FIELDS: daemons/softnicd/streams.py says what they mean, and the fast turn what those of its own are. */
typedef struct sn_port {
    int64_t fd;
    int64_t number;
    bool readable;
    bool ending;
    bool hung_up;
    bool left_unread;
    bool input_open;
    bool output_open;
    bool offloaded;
    bool blocked;
    int64_t offset;
    int64_t write_blocker;
    int64_t kept; /* bytes in chunks; the other unread ones are in Python */
    double path_until; /* until then the path below is valid, while the turn's `path_epoch` is this one */
    int64_t path_epoch;
    int64_t destination; /* MAC address */
    int64_t peer_address; /* of the UDP endpoint */
    int64_t peer_port;
    bool gso;
    int64_t peer_codecs; /* that both ends have; -1: the NIC decides about each segment in Python */
    int64_t tag;         /* number of the tag that the codec below is for; -1: none */
    int64_t codec;       /* as in an sn_cut_plan */
    int64_t parameter;
    bool in_table;
    bool is_loopback; /* the flow is to this node itself */
    sn_flow *flow;
    struct sn_step_queue *steps; /* of collectives, which read the bytes instead of an application; NULL: none */
    struct sn_header_queue *headers; /* of collectives, which reads the bytes then; NULL: none */
    sn_chunk *first; /* received bytes, in order */
    sn_chunk *last;
    struct sn_port *next_ready;
    struct sn_port *next_pulled;
    struct sn_port *next_noted;
    int64_t notes; /* what Python has to do: SN_PORT_... */
    bool is_pulled;
    double timer_at;
    int64_t timer_index; /* in the heap of timers, from 1 on; 0: it has no entry */
} sn_port;
/* END OF FIELDS */

enum {
    SN_PORT_READ = 1,     /* its bytes have to be read by Python: the application's end, an error, no memory */
    SN_PORT_WRITE = 2,    /* Python has to write: there was an error, or the peer's end follows */
    SN_PORT_WRITABLE = 4, /* a writer waits for space, and the buffer may grow */
    SN_PORT_SCHEDULE = 8  /* as SN_SCHEDULE */
};

/* C only */
enum { SN_READ_BYTES = 256 << 10 };

/* Reads the application's bytes into the send buffer. Returns how many, 0 if there are none or no space, -1 if Python
   has to read. */
int64_t sn_port_pull(sn_port *port);

/* Writes bytes to the application. Returns how many it took, or -1 after an error. */
int64_t sn_port_write(const sn_port *port, const struct iovec *pieces, uint32_t count);

/* Writes what is kept. Returns how many bytes, or -1 after an error. */
int64_t sn_port_push(sn_port *port);

/* Appends `size` bytes at the end of `chunk`, which is the last one of those that are kept or becomes it. */
void sn_port_keep(sn_port *port, sn_chunk *chunk, uint32_t size);

/* Removes bytes from the front of what is kept. */
void sn_port_drop(sn_port *port, int64_t count);

/* Counts bytes that the application has. Returns whether the window has opened by enough to tell the peer. */
bool sn_port_consume(sn_port *port, int64_t count);
/* all */

/* Copies the first `size` kept bytes, and removes them. */
void sn_port_read(sn_port *port, uint8_t *out, int64_t size);

/* Frees what is kept. */
void sn_port_clear(sn_port *port);

/* A chunk for `size` bytes or more; NULL: there is no memory. */
sn_chunk *sn_chunk_new(uint32_t size);
void sn_chunk_free(sn_chunk *chunk);

/* Keeps a copy of received bytes behind those that are kept. Returns -1 if there is no memory. */
int sn_port_keep_copy(sn_port *port, const uint8_t *data, uint32_t size);

/* Takes the first chunk of those that are kept; NULL: there is none. It belongs to the caller. */
sn_chunk *sn_port_take(sn_port *port);

#endif
