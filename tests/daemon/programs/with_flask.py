"""Flask on werkzeug's server, and requests."""

import sys

if sys.argv[1] == "server":
    import threading

    import flask
    import werkzeug.serving

    app = flask.Flask(__name__)

    @app.post("/echo")
    def echo() -> bytes:
        return flask.request.get_data()[::-1]

    server = werkzeug.serving.make_server("0.0.0.0", 8000, app, threaded=True)
    threading.Thread(target=server.serve_forever).start()
    print("ready", flush=True)
else:
    import requests

    with requests.Session() as session:
        for size in (10, 100_000):
            answer = session.post("http://node0:8000/echo", data=bytes(range(10)) * (size // 10), timeout=30)
            assert answer.content == bytes(range(9, -1, -1)) * (size // 10)
