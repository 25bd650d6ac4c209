"""What the functions of name resolution return on node0."""

import softnic

softnic.install()  # nothing under `softnic exec`

import asyncio  # noqa: E402
import socket  # noqa: E402

assert socket.gethostname() == "node0"
assert socket.gethostbyname("node1") == "10.77.0.2"
assert socket.gethostbyname(socket.gethostname()) == "10.77.0.1"
for host, expected in (("node1.softnic", "10.77.0.2"), ("node0", "10.77.0.1"), ("localhost", "127.0.0.1")):
    found = socket.getaddrinfo(host, 80, type=socket.SOCK_STREAM)
    assert (socket.AF_INET, socket.SOCK_STREAM, 6, "", (expected, 80)) in found, found
assert socket.getaddrinfo("192.0.2.1", 80, type=socket.SOCK_STREAM)[0][4] == ("192.0.2.1", 80)


async def main() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    server = await asyncio.start_server(echo, None, 5500)
    for host, address in (("localhost", "127.0.0.1"), ("node0", "10.77.0.1")):
        reader, writer = await asyncio.open_connection(host, 5500)
        assert writer.get_extra_info("peername") == (address, 5500)
        writer.write(b"own node\n")
        assert await reader.read() == b"own node\n"
        writer.close()
    server.close()


asyncio.run(main())
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams, socket.socket(socket.AF_INET6) as other:
    datagrams.bind(("127.0.0.1", 0))  # the kernel's
    other.bind(("::1", 0))
    assert datagrams.getsockname()[0] == "127.0.0.1"
    assert other.getsockname()[0] == "::1"
here, there = socket.socketpair()
with here, there:
    here.sendall(b"the kernel's")
    assert there.recv(20) == b"the kernel's"
