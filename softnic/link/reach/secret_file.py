"""The secret of meeting servers: 32 bytes in a file that only its owner may read, as 64 hexadecimal digits.

Servers that have the same file accept the same tokens.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from softnic.link.secure.keys import KEY_BYTES, read_key, write_private


def read_secret(path: Path, random_bytes: Callable[[int], bytes] = os.urandom) -> tuple[bytes, bool]:
    """Return the secret in a file, and whether the file was made because there was none.

    Raises
    ------
    ValueError
        If others may read the file, or its content is no secret.
    OSError
        If it can be neither read nor made.
    """
    made = False
    with contextlib.suppress(FileExistsError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, f"{random_bytes(KEY_BYTES).hex()}\n")
        made = True
    return read_key(str(path.absolute())), made
