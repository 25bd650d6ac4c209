"""aiohttp, both sides."""

import asyncio
import sys


async def server() -> None:
    from aiohttp import web

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=(await request.read())[::-1])

    app = web.Application()
    app.router.add_post("/echo", echo)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, port=8000).start()
    print("ready", flush=True)
    await asyncio.Event().wait()


async def client() -> None:
    import aiohttp

    async with aiohttp.ClientSession() as session:
        posts = [session.post("http://node0:8000/echo", data=b"%d!" % number * 1000) for number in range(10)]
        answers = await asyncio.gather(*posts)
        assert [await answer.read() for answer in answers] == [b"!%d" % number * 1000 for number in range(10)]


asyncio.run(server() if sys.argv[1] == "server" else client())
