/* Another TCP on the NICs' network: lwIP (BSD license) behind a UDP socket that carries its frames as VXLAN (RFC 7348).

   lwip FD ADDRESS MTU echo PORT          sends back what each connection brings, one connection after the other
   lwip FD ADDRESS MTU send ADDRESS PORT  sends its stdin, ends the stream, and writes what comes back to its stdout

   FD is a connected UDP socket; the VNI is 1. Says "ready" on stderr when it can be reached. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <lwip/etharp.h>
#include <lwip/inet.h>
#include <lwip/netif.h>
#include <lwip/sockets.h>
#include <lwip/tcpip.h>

enum { VXLAN_HEADER = 8, LONGEST = 1 << 16 };
static const uint8_t header[VXLAN_HEADER] = {0x08, 0, 0, 0, 0, 0, 1, 0};
static int wire;
static struct netif interface;

static void fail(const char *what)
{
    fprintf(stderr, "lwip: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* lwIP calls this with one frame, under its lock. What the socket does not take is lost, as on any wire. */
static err_t put(struct netif *of, struct pbuf *frame)
{
    static uint8_t datagram[LONGEST];
    (void)of;
    memcpy(datagram, header, sizeof header);
    pbuf_copy_partial(frame, datagram + VXLAN_HEADER, frame->tot_len, 0);
    (void)!send(wire, datagram, VXLAN_HEADER + (size_t)frame->tot_len, 0);
    return ERR_OK;
}

static void *take(void *unused)
{
    static uint8_t datagram[LONGEST];
    (void)unused;
    for (;;) {
        const ssize_t size = recv(wire, datagram, sizeof datagram, 0);
        if (size < VXLAN_HEADER || memcmp(datagram, header, sizeof header) != 0)
            continue;
        const u16_t length = (u16_t)(size - VXLAN_HEADER);
        struct pbuf *frame = pbuf_alloc(PBUF_RAW, length, PBUF_RAM);
        if (frame == NULL)
            continue;
        pbuf_take(frame, datagram + VXLAN_HEADER, length);
        if (interface.input(frame, &interface) != ERR_OK)
            pbuf_free(frame);
    }
    return NULL;
}

static err_t set_up(struct netif *made)
{
    static const uint8_t mac[ETHARP_HWADDR_LEN] = {0x02, 'l', 'w', 'i', 'p', 1};
    made->name[0] = 'v';
    made->name[1] = 'x';
    made->output = etharp_output;
    made->linkoutput = put;
    made->mtu = *(const u16_t *)made->state;
    made->hwaddr_len = sizeof mac;
    memcpy(made->hwaddr, mac, sizeof mac);
    made->flags = NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET | NETIF_FLAG_LINK_UP;
    return ERR_OK;
}

static void join(void *joined)
{
    sys_sem_signal(joined);
}

static void start(const char *address, u16_t mtu)
{
    static u16_t told;
    pthread_t reader;
    sys_sem_t joined;
    ip4_addr_t own, mask, gateway;

    told = mtu;
    if (!ip4addr_aton(address, &own))
        fail(address);
    IP4_ADDR(&mask, 255, 255, 255, 0);
    ip4_addr_set_zero(&gateway);
    sys_sem_new(&joined, 0);
    tcpip_init(join, &joined);
    sys_arch_sem_wait(&joined, 0);
    LOCK_TCPIP_CORE();
    if (netif_add(&interface, &own, &mask, &gateway, &told, set_up, tcpip_input) == NULL)
        fail("netif_add");
    netif_set_default(&interface);
    netif_set_up(&interface);
    UNLOCK_TCPIP_CORE();
    if (pthread_create(&reader, NULL, take, NULL) != 0)
        fail("pthread_create");
}

static struct sockaddr_in at(const char *address, const char *port)
{
    struct sockaddr_in made;
    memset(&made, 0, sizeof made);
    made.sin_family = AF_INET;
    made.sin_port = lwip_htons((u16_t)atoi(port));
    if (!inet_aton(address, &made.sin_addr))
        fail(address);
    return made;
}

static void write_all(int connection, const uint8_t *data, size_t size)
{
    while (size) {
        const ssize_t written = lwip_write(connection, data, size);
        if (written <= 0)
            fail("write");
        data += written;
        size -= (size_t)written;
    }
}

static void echo(const char *address, const char *port)
{
    static uint8_t data[LONGEST];
    const struct sockaddr_in own = at(address, port);
    const int listening = lwip_socket(AF_INET, SOCK_STREAM, 0);
    ssize_t size;

    if (listening < 0 || lwip_bind(listening, (const struct sockaddr *)&own, sizeof own) < 0
        || lwip_listen(listening, 16) < 0)
        fail("listen");
    fprintf(stderr, "ready\n");
    for (;;) {
        const int connection = lwip_accept(listening, NULL, NULL);
        if (connection < 0)
            fail("accept");
        while ((size = lwip_read(connection, data, sizeof data)) > 0)
            write_all(connection, data, (size_t)size);
        lwip_close(connection);
    }
}

static void send_stdin(const char *address, const char *port)
{
    static uint8_t data[LONGEST];
    const struct sockaddr_in peer = at(address, port);
    const int connection = lwip_socket(AF_INET, SOCK_STREAM, 0);
    ssize_t size;

    fprintf(stderr, "ready\n");
    if (connection < 0 || lwip_connect(connection, (const struct sockaddr *)&peer, sizeof peer) < 0)
        fail("connect");
    while ((size = read(0, data, sizeof data)) > 0)
        write_all(connection, data, (size_t)size);
    if (lwip_shutdown(connection, SHUT_WR) < 0)
        fail("shutdown");
    while ((size = lwip_read(connection, data, sizeof data)) > 0)
        if (write(1, data, (size_t)size) != size)
            fail("stdout");
    if (size < 0)
        fail("read");
    lwip_close(connection);
}

int main(int count, char **arguments)
{
    if (count < 6) {
        fprintf(stderr, "usage: lwip FD ADDRESS MTU echo PORT | send ADDRESS PORT\n");
        return 2;
    }
    wire = atoi(arguments[1]);
    start(arguments[2], (u16_t)atoi(arguments[3]));
    if (strcmp(arguments[4], "echo") == 0)
        echo(arguments[2], arguments[5]);
    else if (count > 6)
        send_stdin(arguments[5], arguments[6]);
    return 0;
}
