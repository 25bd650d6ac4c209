"""redis-py, against a server that is started on the same node; the server is a program in C."""

import subprocess
import sys
import time

import redis

if sys.argv[1] == "server":
    options = ["--port", "8000", "--save", "", "--protected-mode", "no", "--bind", "0.0.0.0"]
    with subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL):
        while True:
            try:
                redis.Redis("127.0.0.1", 8000).ping()
                break
            except redis.ConnectionError:
                time.sleep(0.05)
        print("ready", flush=True)
else:
    connection = redis.Redis("node0", 8000, socket_timeout=30)
    assert connection.set("key", b"value" * 100_000)
    assert connection.get("key") == b"value" * 100_000
    assert connection.incr("number", 5) == 5
