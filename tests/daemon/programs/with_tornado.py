"""tornado's HTTP server and client."""

import asyncio
import sys

import tornado.httpclient
import tornado.web


async def server() -> None:
    class Echo(tornado.web.RequestHandler):
        def post(self) -> None:
            self.write(self.request.body[::-1])

    tornado.web.Application([("/", Echo)]).listen(8000)
    print("ready", flush=True)
    await asyncio.Event().wait()


async def client() -> None:
    client = tornado.httpclient.AsyncHTTPClient()
    answer = await client.fetch("http://node0:8000/", method="POST", body=b"olleh" * 1000)
    assert answer.body == b"hello" * 1000


asyncio.run(server() if sys.argv[1] == "server" else client())
