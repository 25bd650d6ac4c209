/* Opens a socket, has a child of vfork open and close one, and opens another. Prints how many it got, and how many
   descriptors more than these it has at the end than after the first. */
#include <dirent.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

int main(void)
{
    int sockets = socket(AF_INET, SOCK_STREAM, 0) >= 0;
    const int before = descriptors(), again = socket(AF_INET, SOCK_STREAM, 0);
    const pid_t child = vfork();
    int status;

    if (!child)
        _exit(close(again) || socket(AF_INET, SOCK_STREAM, 0) < 0);
    if (waitpid(child, &status, 0) != child || status || close(again))
        return 1;
    const int last = socket(AF_INET, SOCK_STREAM, 0);
    sockets += last >= 0;
    printf("%d sockets, %d descriptors more\n", sockets, descriptors() - before - 1);
    return 0;
}
