"""gunicorn with two workers, and urllib."""

import os
import sys
import urllib.request


def app(environ: dict, start_response) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{environ['REMOTE_ADDR']} {os.getpid()}".encode()]


if __name__ == "__main__" and sys.argv[1] == "server":
    from gunicorn.app.base import BaseApplication

    class Application(BaseApplication):
        def load_config(self) -> None:
            self.cfg.set("bind", ["0.0.0.0:8000"])
            self.cfg.set("workers", 2)
            self.cfg.set("when_ready", lambda _: print("ready", flush=True))

        def load(self):
            return app

    Application().run()
elif __name__ == "__main__":
    workers = set()
    for _ in range(200):
        with urllib.request.urlopen("http://node0:8000/", timeout=30) as answer:
            address, worker = answer.read().split()
        assert address == b"10.77.0.2"
        workers.add(worker)
        if len(workers) == 2:
            break
    assert len(workers) == 2, workers
