"""Logs as JSON and as entries of systemd's journal: their fields, and that neither ever blocks."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from softnicd.event_log import EventLog
from softnicd.log import JournalHandler, JsonFormatter, NonBlockingStreamHandler
from tests.daemon.nics import WAIT_S, Nic, free_port

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "monitoring.md").read_text()


@pytest.fixture
def log() -> Any:
    """Returns the log of the daemons, with nothing attached."""
    logger = logging.getLogger("softnicd")
    handlers, level, propagate = logger.handlers[:], logger.level, logger.propagate
    logger.handlers, logger.propagate = [], False
    logger.setLevel(logging.DEBUG)
    yield logger
    for handler in logger.handlers:
        handler.close()
    logger.handlers, logger.propagate = handlers, propagate
    logger.setLevel(level)


def test_json_lines_of_a_daemon(tmp_path: Path) -> None:
    nic = Nic(tmp_path, 0, [free_port()], "--log-format", "json", "--verbose")
    nic.start()
    assert nic.stop() == 0
    lines = [json.loads(line) for line in nic.log.read_text().splitlines()]
    assert lines
    for line in lines:
        assert set(line) == {"time", "level", "nic", "pid", "message", "source"}
        assert (line["nic"], line["pid"]) == ("node0", nic.pid)
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", line["time"])
    assert lines[0]["message"] == f"started as 10.77.0.1, process {nic.pid}"
    assert lines[0]["level"] == "debug"


def fail(events: EventLog) -> None:
    try:
        raise RuntimeError("planted")
    except RuntimeError:
        events.internal_error("internal error in a test")


def test_topics_and_tracebacks_are_fields(log: logging.Logger) -> None:
    reading, writing = os.pipe()
    handler = NonBlockingStreamHandler(writing)
    handler.setFormatter(JsonFormatter("n%s\n"))
    log.addHandler(handler)
    events = EventLog()
    events.record_limited("peers lost", 'a "peer"\nis lost')
    fail(events)
    os.close(writing)
    with os.fdopen(reading) as said:
        first, second, *_ = (json.loads(line) for line in said)
    assert (first["topic"], first["message"], first["nic"]) == ("peers lost", 'a "peer"?is lost', "n%s\n")
    assert second["traceback"].endswith("RuntimeError: planted")
    assert second["level"] == "error"
    assert set(first) | set(second) <= set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))


def test_dropped_lines_are_an_object_of_their_own(log: logging.Logger) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writing, bytes(4096)):
            pass
    handler = NonBlockingStreamHandler(writing)
    handler.setFormatter(JsonFormatter("node0"))
    log.addHandler(handler)
    log.warning("lost")
    while os.read(reading, 1 << 16)[-1:] == b"\0" and not _is_empty(reading):
        pass
    log.warning("written")
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        lines = [json.loads(line) for line in said.read().strip(b"\0").splitlines()]
    assert [line["message"] for line in lines] == [
        "1 lines of this log were dropped: writing them would have blocked",
        "written",
    ]


def _is_empty(fd: int) -> bool:
    os.set_blocking(fd, False)
    try:
        return not os.read(fd, 1 << 16)
    except BlockingIOError:
        return True


def entry_of(packet: bytes) -> dict[str, str]:
    """Return the fields of an entry in the journal's native protocol."""
    fields = {}
    while packet:
        line, _, packet = packet.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (size,) = struct.unpack_from("<Q", packet)
            value, packet = packet[8 : 8 + size], packet[9 + size :]
        fields[name.decode()] = value.decode()
    return fields


def test_journal_entries_have_fields(log: logging.Logger, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(tmp_path / "journal"))
        journal.settimeout(WAIT_S)
        log.addHandler(JournalHandler("node0", tmp_path / "journal"))
        events = EventLog()
        events.record_limited("peers lost", "10.77.0.2 is lost")
        fail(events)
        first, second = (entry_of(journal.recv(1 << 17)) for _ in range(2))
    assert first["MESSAGE"] == "10.77.0.2 is lost"
    assert (first["PRIORITY"], first["SYSLOG_IDENTIFIER"]) == ("4", "softnicd")
    assert (first["SOFTNIC_NIC"], first["SOFTNIC_TOPIC"]) == ("node0", "peers lost")
    assert first["CODE_FILE"].endswith("event_log.py")
    assert int(first["CODE_LINE"]) > 0
    assert second["SOFTNIC_TRACEBACK"].endswith("RuntimeError: planted")
    assert set(first) | set(second) <= set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))


def test_a_full_journal_does_not_block(log: logging.Logger, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(tmp_path / "journal"))
        handler = JournalHandler("node0", tmp_path / "journal")
        log.addHandler(handler)
        for number in range(1000):
            log.warning("line %d", number)
        journal.setblocking(False)
        taken = 0
        while True:
            try:
                journal.recv(1 << 17)
            except BlockingIOError:
                break
            taken += 1
        log.warning("after")
        said = entry_of(journal.recv(1 << 17))["MESSAGE"]
    assert said == f"after ({1000 - taken} lines of this log were dropped: writing them would have blocked)"


@pytest.mark.skipif(Path("/run/systemd/journal/socket").exists(), reason="this host has a journal")
def test_no_journal_is_one_line(tmp_path: Path) -> None:
    nic = Nic(tmp_path, 0, [free_port()], "--log-format", "journald")
    done = subprocess.run(nic.command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 1
    assert done.stderr == "softnicd: no journal answers at /run/systemd/journal/socket: No such file or directory\n"


def test_unknown_formats_are_refused(tmp_path: Path) -> None:
    nic = Nic(tmp_path, 0, [free_port()], "--log-format", "xml")
    done = subprocess.run(nic.command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stderr) == (2, "softnicd: log_format: 'xml' is not one of text, json, journald\n")
