"""A listening socket is handed to other processes: pickled, over a Unix socket, and as service managers do."""

import softnic

softnic.install()  # nothing under `softnic exec`

import multiprocessing  # noqa: E402
import os  # noqa: E402
import socket  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402


def serve(listening: socket.socket) -> None:
    connection, (host, _) = listening.accept()
    with connection:
        connection.sendall(f"{os.getpid()} served {host} at {connection.getsockname()[1]}".encode())


def ask(host: str, port: int, server: int) -> None:
    with socket.create_connection((host, port), timeout=30) as connection, connection.makefile("rb") as answer:
        own = connection.getsockname()[0]
        assert answer.read() == f"{server} served {own} at {port}".encode()


def main() -> None:
    listening = socket.create_server(("", 0))
    port = listening.getsockname()[1]

    process = multiprocessing.get_context("spawn").Process(target=serve, args=(listening,))
    process.start()
    assert process.pid is not None
    ask("127.0.0.1", port, process.pid)
    process.join()

    here, there = socket.socketpair()
    command = [sys.executable, __file__, "receive", str(there.fileno())]
    with subprocess.Popen(command, pass_fds=[there.fileno()]) as child:
        socket.send_fds(here, [b"!"], [listening.fileno()])
        ask("node0", port, child.pid)

    actions = [(os.POSIX_SPAWN_DUP2, listening.fileno(), 3)]
    environment = {**os.environ, "LISTEN_FDS": "1"}
    pid = os.posix_spawn(sys.executable, [sys.executable, __file__, "activated"], environment, file_actions=actions)
    ask("localhost", port, pid)
    assert os.waitpid(pid, 0)[1] == 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["receive"]:
        with socket.socket(fileno=int(sys.argv[2])) as channel:
            _, [received], _flags, _address = socket.recv_fds(channel, 1, 1)
        serve(socket.socket(fileno=received))
    elif sys.argv[1:2] == ["activated"]:
        assert os.environ["LISTEN_FDS"] == "1"
        serve(socket.fromfd(3, socket.AF_INET, socket.SOCK_STREAM))
    else:
        main()
