"""dask.distributed: a scheduler and a worker on one node, a client on the other."""

import asyncio
import sys

import distributed


async def server() -> None:
    async with (
        distributed.Scheduler(host="node0", port=8000, dashboard=False, dashboard_address=None) as scheduler,
        distributed.Worker(scheduler.address, host="node0", nthreads=1, dashboard=False, dashboard_address=None),
    ):
        print("ready", flush=True)
        await asyncio.Event().wait()


async def client() -> None:
    async with distributed.Client("tcp://node0:8000", asynchronous=True) as client:
        futures = client.map(lambda value: value**2, range(20))
        assert await client.gather(futures) == [value**2 for value in range(20)]


asyncio.run(server() if sys.argv[1] == "server" else client())
