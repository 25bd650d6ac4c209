"""Pyro5, both sides: the client gets the URI of an object by its name."""

import sys

import Pyro5.api

if sys.argv[1] == "server":

    @Pyro5.api.expose
    class Thing:
        def double(self, text: str) -> str:
            return text * 2

    daemon = Pyro5.api.Daemon(host="node0", port=8000)
    daemon.register(Thing, "thing")
    print("ready", flush=True)
    daemon.requestLoop()
else:
    with Pyro5.api.Proxy("PYRO:thing@node0:8000") as thing:
        assert thing.double("ab" * 10_000) == "ab" * 20_000
