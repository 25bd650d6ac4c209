"""uvicorn with two workers, which get their listening socket by multiprocessing, and http.client."""

import http.client
import os
import sys
from pathlib import Path


async def app(scope, receive, send) -> None:
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            print("ready" if message["type"] == "lifespan.startup" else "over", flush=True)
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    text = f"{scope['client'][0]} {os.getpid()}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})


if __name__ == "__main__" and sys.argv[1] == "server":
    import uvicorn

    here = str(Path(__file__).parent)
    loop = sys.argv[2] if len(sys.argv) > 2 else "asyncio"
    uvicorn.run("with_uvicorn:app", host="0.0.0.0", port=8000, workers=2, app_dir=here, loop=loop)
elif __name__ == "__main__":
    workers = set()
    for _ in range(200):
        connection = http.client.HTTPConnection("node0", 8000, timeout=30)
        connection.request("GET", "/")
        address, worker = connection.getresponse().read().split()
        assert address == b"10.77.0.2"
        connection.close()
        workers.add(worker)
        if len(workers) == 2:
            break
    assert len(workers) == 2, workers
