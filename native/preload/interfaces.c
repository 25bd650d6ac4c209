/* Network interfaces in the preloaded library: the node's address is that of an interface, `softnic0`, beside those of the
   kernel, for programs that look for the interface of an address or for the address of this host. */
#include "preload/preload.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const char interface[] = "softnic0";
static const uint32_t netmask = 0xFFFFFF00; /* the nodes' network, unless it is larger */

typedef struct {
    struct ifaddrs entry;
    struct sockaddr_in address, mask;
    char name[IFNAMSIZ];
} own_entry;

int sp_own_address(sp_address *own)
{
    char reply[SP_REPLY], text[INET_ADDRSTRLEN];
    const int error = sp_call(reply, -1, "{\"type\":\"QueryNic\"}");

    *own = (sp_address){0};
    if (error)
        return error;
    return sp_text(sp_member(reply, "ip"), text, sizeof text) && inet_pton(AF_INET, text, &own->ip) == 1 ? 0 : -EPROTO;
}

static struct sockaddr_in in_of(uint32_t ip)
{
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {ip}};
}

/* -- getifaddrs -- */

PRELOADED int getifaddrs(struct ifaddrs **found)
{
    sp_address own;
    const int result = REAL(getifaddrs)(found);

    if (result || !sp_nic() || sp_own_address(&own))
        return result;
    own_entry *first = calloc(1, sizeof *first);
    if (!first) {
        REAL(freeifaddrs)(*found);
        return sp_result(-ENOMEM);
    }
    strcpy(first->name, interface);
    first->address = in_of(own.ip);
    first->mask = in_of(htonl(netmask));
    first->entry = (struct ifaddrs){
        .ifa_next = *found,
        .ifa_name = first->name,
        .ifa_flags = IFF_UP | IFF_RUNNING,
        .ifa_addr = (struct sockaddr *)&first->address,
        .ifa_netmask = (struct sockaddr *)&first->mask,
    };
    *found = &first->entry;
    return 0;
}

PRELOADED void freeifaddrs(struct ifaddrs *list)
{
    if (list && list->ifa_name == ((own_entry *)list)->name) { /* this library's: only its entry has its name within */
        struct ifaddrs *const rest = list->ifa_next;
        free(list);
        list = rest;
    }
    REAL(freeifaddrs)(list);
}

/* -- ioctl -- */

bool sp_is_interface_request(unsigned long request)
{
    return request == SIOCGIFADDR || request == SIOCGIFNETMASK || request == SIOCGIFFLAGS;
}

/* Answers about the node's interface. */
static int answer(unsigned long request, struct ifreq *asked)
{
    struct sockaddr_in address;
    sp_address own;
    const int error = sp_own_address(&own);

    if (error)
        return error;
    if (request == SIOCGIFFLAGS) {
        asked->ifr_flags = IFF_UP | IFF_RUNNING;
        return 0;
    }
    address = in_of(request == SIOCGIFADDR ? own.ip : htonl(netmask));
    memcpy(&asked->ifr_addr, &address, sizeof address);
    return 0;
}

int sp_interface_request(int fd, unsigned long request, void *argument)
{
    struct ifreq *asked = argument;
    sp_stream stream;

    if (sp_nic() && asked && !strncmp(asked->ifr_name, interface, IFNAMSIZ))
        return sp_result(answer(request, asked));
    if (!sp_stream_of(fd, &stream))
        return REAL(ioctl)(fd, request, argument);
    const int kernels = REAL(socket)(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); /* a Unix socket has no addresses of IPv4 */
    if (kernels < 0)
        return -1;
    const int result = REAL(ioctl)(kernels, request, argument), error = errno;
    REAL(close)(kernels);
    errno = error;
    return result;
}
