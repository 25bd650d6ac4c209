"""The key of a NIC that meets others and was given none: made at the start, and gone with the process."""

from __future__ import annotations

import os

import msgspec

from softnic.link.secure.identity import key_text
from softnic.link.secure.keys import SHARE_BYTES
from softnicd.config import Config


def with_identity(config: Config) -> Config:
    """Return the configuration, with the file of a new private key if it has a token and no identity.

    The file has no name in any directory, is in memory, and ends with this process.
    """
    if not config.meet or config.identity:
        return config
    descriptor = os.memfd_create("softnic-identity")
    os.fchmod(descriptor, 0o600)
    os.write(descriptor, f"{key_text(os.urandom(SHARE_BYTES))}\n".encode())
    return msgspec.structs.replace(config, identity=f"/proc/self/fd/{descriptor}")
