"""`softnic doctor` between two processes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from tests.commands.conftest import Start


def test_one_listens_and_the_other_asks(start: Start, softnic: Callable[..., tuple[int, str, str]]) -> None:
    listener = start("doctor", "--listen", "127.0.0.1:0", "--seconds", "120")
    assert listener.stdout is not None
    line = listener.stdout.readline()
    at = re.fullmatch(r"listening at (127\.0\.0\.1:\d+) by UDP and TCP, until Ctrl-C\n", line)
    assert at is not None, line
    code, out, err = softnic("doctor", at[1], "--mtu", "1450", "--json", "-")
    found = {each["check"]: each for each in json.loads(out)["findings"]}
    problems = {name for name, each in found.items() if each["level"] == "problem"}
    assert problems <= {"descriptors", "clock"}, (out, err)  # those of this machine
    assert code == int(bool(problems))
    assert {"peer", "version", "key", "mtu", "link", "codec", "advice"} <= set(found)
