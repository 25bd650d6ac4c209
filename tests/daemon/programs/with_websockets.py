"""websockets, both sides."""

import asyncio
import sys

import websockets


async def server() -> None:
    async def echo(connection) -> None:
        async for message in connection:
            await connection.send(message[::-1])

    async with websockets.serve(echo, "0.0.0.0", 8000):
        print("ready", flush=True)
        await asyncio.Event().wait()


async def client() -> None:
    async with websockets.connect("ws://node0:8000") as connection:
        for size in (1, 1000, 500_000):
            message = bytes(range(250)) * (size // 250 + 1)
            await connection.send(message)
            assert await connection.recv() == message[::-1]


asyncio.run(server() if sys.argv[1] == "server" else client())
