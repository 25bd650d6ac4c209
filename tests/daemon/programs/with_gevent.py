"""gevent after monkey.patch_all: the standard library's modules, on its loop."""

import gevent.monkey

gevent.monkey.patch_all()

import socket  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402

import gevent  # noqa: E402

if sys.argv[1] == "server":

    def serve(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data.upper())

    with socket.create_server(("", 8000)) as listening:
        print("ready", flush=True)
        while True:
            threading.Thread(target=serve, args=(listening.accept()[0],)).start()
else:

    def talk(text: bytes) -> bool:
        with socket.create_connection(("node0", 8000), timeout=30) as connection:
            connection.sendall(text * 1000)
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as file:
                return file.read() == text.upper() * 1000

    jobs = [gevent.spawn(talk, b"hello %d" % number) for number in range(10)]
    gevent.joinall(jobs, raise_error=True)
    assert all(job.value for job in jobs)
