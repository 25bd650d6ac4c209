"""AES-256-GCM and HMAC of OpenSSL's libcrypto, for the C that encrypts every frame (native/nic/aead.c).

The library is the one that Python's own ssl module uses where that is a shared library; version 1.1.1 or later.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from typing import Any

from softnic._native import ffi

NAMES = ("libcrypto.so.3", "libcrypto.so.1.1")
KEY_BYTES = 32
_LEAST_VERSION = 0x10101000
_ENCRYPT, _DECRYPT = 1, 0
_POINTER, _BYTES, _INT = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "OpenSSL_version_num": (ctypes.c_ulong, ()),
    "EVP_aes_256_gcm": (_POINTER, ()),
    "EVP_sha256": (_POINTER, ()),
    "EVP_CIPHER_CTX_new": (_POINTER, ()),
    "EVP_CIPHER_CTX_free": (None, (_POINTER,)),
    "EVP_CipherInit_ex": (_INT, (_POINTER, _POINTER, _POINTER, _BYTES, _BYTES, _INT)),
}
"""Result and argument types of the functions called from Python."""
_CALLED_BY_C = {
    "init": "EVP_CipherInit_ex",
    "update": "EVP_CipherUpdate",
    "final": "EVP_CipherFinal_ex",
    "control": "EVP_CIPHER_CTX_ctrl",
    "hmac": "HMAC",
}
"""Functions by their field of sn_cipher."""


class CryptoError(OSError):
    """libcrypto is missing, too old, or refuses a request."""


@functools.cache
def library() -> ctypes.CDLL:
    """Load libcrypto. Raises CryptoError if there is none of a supported version."""
    with contextlib.suppress(ImportError):
        import _hashlib  # noqa: F401  loads the interpreter's libcrypto, which CDLL then finds by its name
    for name in NAMES:
        with contextlib.suppress(OSError, AttributeError):
            found = ctypes.CDLL(name)
            for function, (result, arguments) in _FUNCTIONS.items():
                getattr(found, function).restype = result
                getattr(found, function).argtypes = arguments
            if found.OpenSSL_version_num() >= _LEAST_VERSION:
                return found
    raise CryptoError(None, f"a key needs OpenSSL's libcrypto, 1.1.1 or later: there is no {' and no '.join(NAMES)}")


@functools.cache
def cipher() -> Any:
    """Return the functions that the C calls (sn_cipher). Raises CryptoError."""
    crypto = library()
    found = ffi.new("sn_cipher *")
    for field, name in _CALLED_BY_C.items():
        address = ctypes.cast(getattr(crypto, name), ctypes.c_void_p).value
        setattr(found, field, ffi.cast(ffi.typeof(getattr(found, field)), address))
    found.sha256 = ffi.cast("void *", crypto.EVP_sha256())
    return found


def encrypting(key: bytes) -> Any:
    """Return an EVP_CIPHER_CTX that encrypts with AES-256-GCM. Raises CryptoError.

    The context is freed, and its key wiped, with the last reference to it.
    """
    return _context(key, _ENCRYPT)


def decrypting(key: bytes) -> Any:
    """Return an EVP_CIPHER_CTX that decrypts with AES-256-GCM. Raises CryptoError."""
    return _context(key, _DECRYPT)


def _context(key: bytes, direction: int) -> Any:
    crypto = library()
    made = crypto.EVP_CIPHER_CTX_new()
    if not made:
        raise CryptoError(None, "libcrypto could not allocate a cipher context")
    context = ffi.gc(ffi.cast("void *", made), lambda _: crypto.EVP_CIPHER_CTX_free(made))
    if len(key) != KEY_BYTES or not crypto.EVP_CipherInit_ex(
        made, crypto.EVP_aes_256_gcm(), None, key, None, direction
    ):
        raise CryptoError(None, "libcrypto refuses AES-256-GCM with this key")
    return context
