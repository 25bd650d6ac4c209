"""asyncio's streams on uvloop, whose sockets are made in C."""

import asyncio
import sys

import uvloop


async def server() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(echo, "0.0.0.0", 8000)
    print("ready", flush=True)
    await listening.serve_forever()


async def client() -> None:
    reader, writer = await asyncio.open_connection("node0", 8000)
    assert writer.get_extra_info("peername") == ("10.77.0.1", 8000)
    writer.write(b"hello" * 1000)
    writer.write_eof()
    assert await reader.read() == b"HELLO" * 1000
    writer.close()


uvloop.run(server() if sys.argv[1] == "server" else client())
