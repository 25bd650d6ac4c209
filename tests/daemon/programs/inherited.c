/* Has a listening socket as descriptor 3, and is another user's program. Accepts a connection, and opens a socket of its
   own. Prints the port of the listening socket, as each of the first two has it, and whether the third was bound. */
#include <arpa/inet.h>
#include <stdio.h>
#include <unistd.h>

static int port_of(int fd)
{
    struct sockaddr_in address;
    socklen_t size = sizeof address;

    return getsockname(fd, (struct sockaddr *)&address, &size) ? -1 : ntohs(address.sin_port);
}

int main(void)
{
    const struct sockaddr_in any = {.sin_family = AF_INET};
    const int accepted = accept(3, NULL, NULL), own = socket(AF_INET, SOCK_STREAM, 0);
    const int failed = bind(own, (const struct sockaddr *)&any, sizeof any);

    printf("%d %d %d\n", port_of(3), port_of(accepted), !failed && port_of(own) > 0);
    return 0;
}
