"""The scapy layer of the payload header. Importing it imports scapy."""

from __future__ import annotations

from softnic.capture import scapy_layer
from softnic.capture.scapy_layer import SoftnicPayload, encode

__all__ = [
    "SoftnicPayload",
    "encode",
    "scapy_layer",
]
