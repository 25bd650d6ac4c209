"""What `softnic stat` and `softnic top` show of a stream, in words. Empty: there is nothing to show."""

from __future__ import annotations

from softnic.ipc.control import StreamInfo
from softnic.units import text_bytes, text_time


def endpoint(address: tuple[str, int] | None) -> str:
    return "" if address is None else f"{address[0]}:{address[1]}"


def ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def round_trip(stream: StreamInfo) -> str:
    return text_time(stream.srtt) if stream.srtt else ""


def congestion_window(stream: StreamInfo) -> str:
    return text_bytes(stream.cwnd) if stream.cwnd else ""


def tag(stream: StreamInfo) -> str:
    """The current ToS, and the codecs of the bytes that were tagged: a collective tags each of its blocks."""
    names = ", ".join(stream.sent_codecs) or stream.codec
    return f"0x{stream.tos:02x} {names}".strip() if stream.tos else names
