"""trio's streams, both sides."""

import sys

import trio


async def echo(stream: trio.SocketStream) -> None:
    async for data in stream:
        await stream.send_all(data.upper())


async def server() -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_tcp, echo, 8000)
        print("ready", flush=True)


async def client() -> None:
    stream = await trio.open_tcp_stream("node0", 8000)
    async with stream:
        await stream.send_all(b"hello" * 1000)
        await stream.send_eof()
        answer = b"".join([data async for data in stream])
    assert answer == b"HELLO" * 1000


trio.run(server if sys.argv[1] == "server" else client)
