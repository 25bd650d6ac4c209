/* Addresses of loopback, as the C has them. */
#ifndef SOFTNIC_FUZZ_ENDPOINT_H
#define SOFTNIC_FUZZ_ENDPOINT_H
#include <netinet/in.h>
#include <string.h>

#include "nic/batch_io.h"

static sn_endpoint loopback(uint16_t port)
{
    const struct sockaddr_in name = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    sn_endpoint endpoint = {.length = sizeof name};
    memcpy(endpoint.name, &name, sizeof name);
    return endpoint;
}

#endif
