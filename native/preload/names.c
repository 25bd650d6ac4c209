/* Addresses of the preloaded library: socket addresses, and the names of nodes (node0, node1.softnic). */
#include "preload/preload.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const char domain[] = ".softnic";
static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};

int sp_parse(const struct sockaddr *address, socklen_t size, sp_address *to)
{
    if (!address || size < sizeof address->sa_family)
        return -EINVAL;
    if (address->sa_family == AF_INET) {
        struct sockaddr_in four;
        if (size < sizeof four)
            return -EINVAL;
        memcpy(&four, address, sizeof four);
        *to = (sp_address){four.sin_addr.s_addr, ntohs(four.sin_port)};
        return 0;
    }
    if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 six;
        if (size < offsetof(struct sockaddr_in6, sin6_scope_id))
            return -EINVAL;
        memcpy(&six, address, offsetof(struct sockaddr_in6, sin6_scope_id));
        to->port = ntohs(six.sin6_port);
        if (IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr)) {
            to->ip = htonl(INADDR_ANY);
            return 0;
        }
        if (!memcmp(&six.sin6_addr, mapped, sizeof mapped)) {
            memcpy(&to->ip, six.sin6_addr.s6_addr + sizeof mapped, sizeof to->ip);
            return 0;
        }
    }
    return -EAFNOSUPPORT;
}

void sp_format(const sp_address *address, bool six, struct sockaddr *to, socklen_t *size)
{
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(address->port), .sin_addr = {address->ip}};
    struct sockaddr_in6 other = {.sin6_family = AF_INET6, .sin6_port = htons(address->port)};
    const socklen_t whole = six ? sizeof other : sizeof four;

    if (!to || !size)
        return;
    if (address->ip) {
        memcpy(&other.sin6_addr, mapped, sizeof mapped);
        memcpy(other.sin6_addr.s6_addr + sizeof mapped, &address->ip, sizeof address->ip);
    }
    memcpy(to, six ? (const void *)&other : (const void *)&four, *size < whole ? *size : whole);
    *size = whole;
}

/* Writes the address of a node as text; returns false if the NIC knows no node of this name. It is asked for names
   without a dot and for those that end in .softnic. `localhost` is this node, by IPv4, the family that a NIC has. */
static bool node_address(const char *name, char text[static INET_ADDRSTRLEN])
{
    char reply[SP_REPLY];

    if (!name || !*name || !sp_nic() || strlen(name) > SP_TEXT / 2)
        return false;
    const char *dot = strchr(name, '.');
    if (!strcasecmp(name, "localhost")) {
        strcpy(text, "127.0.0.1");
        return true;
    }
    if ((dot && strcmp(dot, domain)) || name[strspn(name, ".0123456789")] == 0)
        return false;
    for (const char *at = name; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("-_.", *at))
            return false;
    return !sp_call(reply, -1, "{\"type\":\"Resolve\",\"name\":\"%s\"}", name) &&
           sp_text(sp_member(reply, "address"), text, INET_ADDRSTRLEN);
}

/* Lets the results have the name that was asked for, where AI_CANONNAME wants one. */
static int name_results(struct addrinfo *found, const char *name)
{
    char *canonical = found && found->ai_canonname ? strdup(name) : NULL; /* freeaddrinfo frees it */

    if (canonical) {
        free(found->ai_canonname);
        found->ai_canonname = canonical;
    }
    return 0;
}

PRELOADED int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    const int flags = hints ? hints->ai_flags : 0;
    const bool is_six = hints && hints->ai_family == AF_INET6 && !(flags & AI_V4MAPPED);
    char text[INET_ADDRSTRLEN];

    if (is_six || flags & AI_NUMERICHOST || !node_address(name, text))
        return REAL(getaddrinfo)(name, service, hints, found);
    const int error = REAL(getaddrinfo)(text, service, hints, found);
    return error ? error : name_results(*found, name);
}

PRELOADED struct hostent *gethostbyname(const char *name)
{
    char text[INET_ADDRSTRLEN];

    return REAL(gethostbyname)(node_address(name, text) ? text : name);
}

PRELOADED struct hostent *gethostbyname2(const char *name, int family)
{
    char text[INET_ADDRSTRLEN];

    return REAL(gethostbyname2)(family == AF_INET && node_address(name, text) ? text : name, family);
}

PRELOADED int gethostbyname_r(const char *name, struct hostent *entry, char *space, size_t size,
                              struct hostent **found, int *error)
{
    char text[INET_ADDRSTRLEN];

    return REAL(gethostbyname_r)(node_address(name, text) ? text : name, entry, space, size, found, error);
}

/* -- names of addresses -- */

/* Writes the full name of the node at an address; returns false if there is none. */
static bool node_name(const void *address, char name[static NI_MAXHOST])
{
    const uint8_t *ip = address;
    char reply[SP_REPLY];

    if (!sp_nic() || ip[0] == 127 ||
        sp_call(reply, -1, "{\"type\":\"Resolve\",\"name\":\"%d.%d.%d.%d\"}", ip[0], ip[1], ip[2], ip[3]) ||
        !sp_text(sp_member(reply, "name"), name, NI_MAXHOST - sizeof domain))
        return false;
    if (!strchr(name, '.'))
        strcat(name, domain);
    return true;
}

PRELOADED int getnameinfo(const struct sockaddr *address, socklen_t size, char *host, socklen_t host_size,
                          char *service, socklen_t service_size, int flags)
{
    char name[NI_MAXHOST];
    sp_address parsed;

    if (!host || !host_size || flags & NI_NUMERICHOST || sp_parse(address, size, &parsed) || !parsed.ip ||
        !node_name(&parsed.ip, name))
        return REAL(getnameinfo)(address, size, host, host_size, service, service_size, flags);
    const int error =
        service && service_size ? REAL(getnameinfo)(address, size, NULL, 0, service, service_size, flags) : 0;
    if (error)
        return error;
    if (flags & NI_NOFQDN && !strcmp(strchr(name, '.'), domain))
        *strchr(name, '.') = 0;
    if (strlen(name) >= host_size)
        return EAI_OVERFLOW;
    strcpy(host, name);
    return 0;
}

/* Puts a name into the entry of an address, which was looked up by number. */
PRELOADED int gethostbyaddr_r(const void *address, socklen_t size, int family, struct hostent *entry, char *space,
                              size_t space_size, struct hostent **found, int *error)
{
    char name[NI_MAXHOST], text[INET_ADDRSTRLEN];

    if (family != AF_INET || size != sizeof(struct in_addr) || !node_name(address, name) ||
        !inet_ntop(AF_INET, address, text, sizeof text))
        return REAL(gethostbyaddr_r)(address, size, family, entry, space, space_size, found, error);
    const size_t length = strlen(name) + 1;
    if (length > space_size)
        return ERANGE;
    memcpy(space, name, length);
    const int failed = REAL(gethostbyname_r)(text, entry, space + length, space_size - length, found, error);
    if (!failed && *found)
        entry->h_name = space;
    return failed;
}

PRELOADED struct hostent *gethostbyaddr(const void *address, socklen_t size, int family)
{
    static _Thread_local char space[NI_MAXHOST + 512];
    static _Thread_local struct hostent entry;
    struct hostent *found = NULL;
    char name[NI_MAXHOST];
    int error = 0;

    if (family != AF_INET || size != sizeof(struct in_addr) || !node_name(address, name))
        return REAL(gethostbyaddr)(address, size, family);
    return gethostbyaddr_r(address, size, family, &entry, space, sizeof space, &found, &error) ? NULL : found;
}

PRELOADED int gethostbyname2_r(const char *name, int family, struct hostent *entry, char *space, size_t size,
                               struct hostent **found, int *error)
{
    char text[INET_ADDRSTRLEN];

    return REAL(gethostbyname2_r)(family == AF_INET && node_address(name, text) ? text : name, family, entry, space,
                                  size, found, error);
}

/* The node's name, which others reach it by. */
PRELOADED int gethostname(char *name, size_t space)
{
    char reply[SP_REPLY], own[64];

    if (!sp_nic() || sp_call(reply, -1, "{\"type\":\"QueryNic\"}") ||
        !sp_text(sp_member(reply, "name"), own, sizeof own) || !*own)
        return REAL(gethostname)(name, space);
    if (strlen(own) >= space)
        return sp_result(-ENAMETOOLONG);
    strcpy(name, own);
    return 0;
}
