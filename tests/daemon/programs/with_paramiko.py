"""paramiko: an SSH server that runs one command, and a client."""

import socket
import sys
import threading

import paramiko

if sys.argv[1] == "server":

    class Server(paramiko.ServerInterface):
        def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002
            return paramiko.OPEN_SUCCEEDED

        def check_auth_password(self, username: str, password: str) -> int:
            return paramiko.AUTH_SUCCESSFUL if (username, password) == ("me", "word") else paramiko.AUTH_FAILED

        def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
            def answer() -> None:
                channel.recv(1)  # the client ends its input when it has been told that the command runs
                channel.sendall(command[::-1] * 20_000)
                channel.send_exit_status(0)
                channel.close()

            threading.Thread(target=answer).start()
            return True

    with socket.create_server(("", 8000)) as listening:
        print("ready", flush=True)
        while True:
            connection, _ = listening.accept()
            transport = paramiko.Transport(connection)
            transport.add_server_key(paramiko.RSAKey.generate(2048))
            transport.start_server(server=Server())
else:
    with paramiko.SSHClient() as client:
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        client.connect("node0", 8000, "me", "word", look_for_keys=False, allow_agent=False, timeout=30)
        _, output, _ = client.exec_command("olleh")
        output.channel.shutdown_write()
        assert output.read() == b"hello" * 20_000
