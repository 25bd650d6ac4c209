"""rpyc, both sides."""

import sys

import rpyc

if sys.argv[1] == "server":
    from rpyc.utils.server import ThreadedServer

    class Service(rpyc.Service):
        def exposed_apply(self, function, value):
            return function(value)

    server = ThreadedServer(Service, port=8000)
    print("ready", flush=True)
    server.start()
else:
    connection = rpyc.connect("node0", 8000)
    assert connection.root.apply(lambda value: value + 1, 41) == 42
    connection.close()
