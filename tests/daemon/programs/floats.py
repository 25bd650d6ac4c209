"""Knows nothing of tags: sends floats to the port in its argument, then to whoever connects to port 6000."""

import softnic

softnic.install()  # nothing under `softnic exec`

import array  # noqa: E402
import socket  # noqa: E402
import sys  # noqa: E402

floats = array.array("f", (0.7 / (1 + number) for number in range(4096))).tobytes()
with socket.create_connection(("node1", int(sys.argv[1])), timeout=30) as connection:
    connection.sendall(floats)
with socket.create_server(("", 6000)) as listening:
    print("ready", flush=True)
    with listening.accept()[0] as accepted:
        accepted.sendall(floats)
