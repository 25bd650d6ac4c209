/* Ports: the NIC's ends of applications' Unix stream pairs, where the bytes of flows come from and go to. */
#ifndef SOFTNIC_PORT_H
#define SOFTNIC_PORT_H
/* C only */
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "tcp/fast_path.h"
#include "tcp/flow.h"
/* all */

/* FIELDS: daemons/softnicd/streams.py says what they mean, and the turn what those of its own are. */
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
    sn_flow *flow; /* while it has a connection and the turn has it; NULL: it does not */
    struct sn_port *next_pulled;
    struct sn_port *next_noted;
    int64_t notes; /* what Python has to do: SN_PORT_... */
    bool is_pulled;
} sn_port;
/* END OF FIELDS */

enum {
    SN_PORT_READ = 1, /* its bytes have to be read by Python: the application's end, an error, no memory */
    SN_PORT_WRITE = 2 /* Python has to write: there was an error, or the peer's end follows */
};

enum {
    SN_READ_BYTES = 256 << 10, /* of one read: the size of a super-segment */
    SN_WRITE_PIECES = 64       /* of one write */
};

/* C only */

/* Reads the application's bytes into the send buffer. Returns how many, 0 if there are none or no space, -1 if Python
   has to read. */
int64_t sn_port_pull(sn_port *port);

/* Writes bytes to the application. Returns how many it took, or -1 after an error. */
int64_t sn_port_write(const sn_port *port, const struct iovec *pieces, uint32_t count);

/* all */

/* Writes received bytes to the application. Returns how many it took, or -1 after an error. */
int64_t sn_port_push(const sn_port *port, sn_receive_buffer *buffer);

#endif
