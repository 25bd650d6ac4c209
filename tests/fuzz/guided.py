"""A Python target under atheris: `python -m tests.fuzz.guided TARGET`, with libFuzzer's arguments behind it.

The modules of softnic are instrumented as they are imported, so nothing of it may be imported before.
"""

from __future__ import annotations

import importlib
import sys

import atheris


def main() -> None:
    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=["softnic", "softnicd", "tomllib", "ipaddress"]):
        feed = importlib.import_module(f"tests.fuzz.python.{name}").feed
    atheris.Setup(sys.argv, feed)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
