"""docs/troubleshooting.md lists every error text of the sources that a user may see, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import error_texts

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()


def listed() -> list[str]:
    """Return the messages in the first column of the tables."""
    cells = re.findall(r"^\| ([^|]*`[^|]*) \|", PAGE, re.MULTILINE)
    return [error_texts.normalised(text) for cell in cells for text in re.findall(r"`([^`]+)`", cell)]


def test_every_error_of_operation_is_listed() -> None:
    missing = {message.text: message.module for message in error_texts.operational()}
    for text in listed():
        missing.pop(text, None)
    assert missing == {}, "add them to docs/troubleshooting.md, with cause and remedy"


def test_every_message_listed_is_one_of_the_sources() -> None:
    known = {message.text for message in error_texts.messages()}
    texts = error_texts.constants()
    gone = [text for text in listed() if text not in known and not all(part in texts for part in text.split("..."))]
    assert gone == []


def test_every_row_has_a_cause_and_a_remedy() -> None:
    rows = [line.strip("|").split(" | ") for line in PAGE.splitlines() if line.startswith("| `")]
    assert [cells for cells in rows if len(cells) != 3 or not all(cell.strip() for cell in cells)] == []
    assert len(rows) > 50


def test_texts_are_found_in_the_sources() -> None:
    found = error_texts.messages()
    kinds = {message.error for message in found}
    assert {"CommandError", "ConfigError", "CommError", "LaunchError", "OSError", "CaptureError"} <= kinds
    assert len(error_texts.operational()) > 200
    assert len(error_texts.of_arguments()) > 300
    assert all(error_texts._exceptions() >= {message.error} for message in found)


def test_the_page_of_messages_has_every_text() -> None:
    page = error_texts.page()
    plain = page.replace("\\", "").replace("&lt;", "<").replace("&#124;", "|").replace("&amp;", "&")
    shown = {*error_texts.operational(), *error_texts.of_arguments()}
    assert [message.text for message in shown if message.text not in plain] == []
