"""A NIC's configuration file.

What cannot be used is refused in one line; what is taken has an address, peers, a table and a link that make sense.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from softnicd.config import EXAMPLE, ConfigError, load, parser

_BARE = parser().parse_args([])


class _File(type(Path())):  # type: ignore[misc]  # the class that this system's paths are of
    """A file whose content is the input."""

    content = b""

    def read_text(self, *_: object, **__: object) -> str:
        return self.content.decode()

    def stat(self, *_: object, **__: object) -> os.stat_result:
        return os.stat_result((0o100600, *[0] * 9))


_FILE = _File("node.toml")


def feed(data: bytes) -> None:
    _FILE.content = data
    _BARE.config = _FILE
    try:
        config = load(_BARE)
    except ConfigError as error:
        _check_refusal(str(error))
        return
    assert 0 <= config.address < 1 << 32
    assert config.address not in config.peer_addresses
    assert all(0 <= port <= 0xFFFF for _, port in (config.wire_address, *config.peer_addresses.values()))
    assert all(tos & 0xFC == tos for tos in config.offload_table)
    assert config.emulation_spec is None or config.emulation_spec.limit_bytes != 0


def _check_refusal(text: str) -> None:
    assert text
    assert "\n" not in text


def seeds() -> Iterator[bytes]:
    example = EXAMPLE[EXAMPLE.index("name =") :].replace("\n  ", "\n")
    yield example.encode()
    keys = (
        "vni = 7",
        "mtu = 9000",
        f'key = "{"5f" * 32}"',
        'mode = "packet"',
        "seed = 5",
        "[emulation]",
        'loss = "0.1%"',
        'limit = "256kb"',
    )
    yield "\n".join(['ip = "10.0.0.1"', 'control = "/tmp/a"', 'wire = "127.0.0.1:0"', *keys]).encode()
    yield b'ip = "10.0.0.1"\ncontrol = "a"\nemulation = {rate = "1gbit", jitter = "1us", reorder = "1%"}'
