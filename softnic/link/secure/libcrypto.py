"""OpenSSL's libcrypto, 1.1.1 or later, the one that Python's own ssl module uses where it is a library by itself.

Two things are needed of it: AES-256-GCM, whose functions are handed to native/seal.c, and X25519 (RFC 7748) for the few
datagrams of a handshake, which is called from here.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from typing import Any

from softnic._native import ffi

NAMES = ("libcrypto.so.3", "libcrypto.so.1.1")
KEY_BYTES = 32
SHARE_BYTES = 32
"""Of X25519: a private key, a public one, and what two of them agree on."""
_LEAST_VERSION = 0x10101000
_X25519 = 1034
"""NID_X25519 (openssl/obj_mac.h)."""
_ENCRYPT, _DECRYPT = 1, 0
_POINTER, _BYTES, _INT, _SIZE = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "EVP_aes_256_gcm": (_POINTER, ()),
    "EVP_CIPHER_CTX_new": (_POINTER, ()),
    "EVP_CIPHER_CTX_free": (None, (_POINTER,)),
    "EVP_CipherInit_ex": (_INT, (_POINTER, _POINTER, _POINTER, _BYTES, _BYTES, _INT)),
    "EVP_CipherUpdate": (_INT, ()),
    "EVP_CipherFinal_ex": (_INT, ()),
    "EVP_CIPHER_CTX_ctrl": (_INT, ()),
    "HMAC": (_POINTER, ()),
    "EVP_sha256": (_POINTER, ()),
    "EVP_PKEY_new_raw_private_key": (_POINTER, (_INT, _POINTER, _BYTES, _SIZE)),
    "EVP_PKEY_new_raw_public_key": (_POINTER, (_INT, _POINTER, _BYTES, _SIZE)),
    "EVP_PKEY_get_raw_public_key": (_INT, (_POINTER, _BYTES, _POINTER)),
    "EVP_PKEY_free": (None, (_POINTER,)),
    "EVP_PKEY_CTX_new": (_POINTER, (_POINTER, _POINTER)),
    "EVP_PKEY_CTX_free": (None, (_POINTER,)),
    "EVP_PKEY_derive_init": (_INT, (_POINTER,)),
    "EVP_PKEY_derive_set_peer": (_INT, (_POINTER, _POINTER)),
    "EVP_PKEY_derive": (_INT, (_POINTER, _BYTES, _POINTER)),
}


class CryptoError(OSError):
    """libcrypto is not there, is too old, or refuses what it is asked for."""


@functools.cache
def library() -> ctypes.CDLL:
    """Raises CryptoError."""
    with contextlib.suppress(ImportError):
        import _hashlib  # noqa: F401  it has the interpreter's libcrypto loaded, which then goes by its name
    for name in NAMES:
        with contextlib.suppress(OSError, AttributeError):
            found = ctypes.CDLL(name)
            for function, (result, arguments) in _FUNCTIONS.items():
                getattr(found, function).restype = result
                if arguments:
                    getattr(found, function).argtypes = arguments
            found.OpenSSL_version_num.restype = ctypes.c_ulong
            if found.OpenSSL_version_num() >= _LEAST_VERSION:
                return found
    raise CryptoError(None, f"a key needs OpenSSL's libcrypto, 1.1.1 or later: there is no {' and no '.join(NAMES)}")


@functools.cache
def cipher() -> Any:
    """The functions that the C calls (sn_cipher). Raises CryptoError."""
    crypto = library()
    found = ffi.new("sn_cipher *")
    for field, name in (
        ("init", "EVP_CipherInit_ex"),
        ("update", "EVP_CipherUpdate"),
        ("final", "EVP_CipherFinal_ex"),
        ("control", "EVP_CIPHER_CTX_ctrl"),
        ("hmac", "HMAC"),
    ):
        address = ctypes.cast(getattr(crypto, name), ctypes.c_void_p).value
        setattr(found, field, ffi.cast(ffi.typeof(getattr(found, field)), address))
    found.sha256 = ffi.cast("void *", crypto.EVP_sha256())
    return found


def encrypting(key: bytes) -> Any:
    """An EVP_CIPHER_CTX of AES-256-GCM that encrypts, for sn_sealer; freed, and its key wiped, with the last reference
    to what is returned. Raises CryptoError."""
    return _context(key, _ENCRYPT)


def decrypting(key: bytes) -> Any:
    """The same for sn_opener."""
    return _context(key, _DECRYPT)


def _context(key: bytes, direction: int) -> Any:
    crypto = library()
    made = crypto.EVP_CIPHER_CTX_new()
    if not made:
        raise CryptoError(None, "libcrypto has no memory for a key")
    context = ffi.gc(ffi.cast("void *", made), lambda _: crypto.EVP_CIPHER_CTX_free(made))
    if len(key) != KEY_BYTES or not crypto.EVP_CipherInit_ex(
        made, crypto.EVP_aes_256_gcm(), None, key, None, direction
    ):
        raise CryptoError(None, "libcrypto does not do AES-256-GCM with this key")
    return context


def public_share(private: bytes) -> bytes:
    """The public key of an X25519 private key, which is any SHARE_BYTES bytes. Raises CryptoError."""
    crypto = library()
    with contextlib.ExitStack() as stack:
        key = _key(stack, crypto.EVP_PKEY_new_raw_private_key, private)
        share, length = ctypes.create_string_buffer(SHARE_BYTES), ctypes.c_size_t(SHARE_BYTES)
        if not crypto.EVP_PKEY_get_raw_public_key(key, share, ctypes.byref(length)):
            raise CryptoError(None, "libcrypto does not do X25519")
        return share.raw


def agree(private: bytes, share: bytes) -> bytes:
    """What both owners of two key pairs get, and nobody else (RFC 7748, 6.1). Raises CryptoError, also for a public
    key of small order, which would make it known to all."""
    crypto = library()
    with contextlib.ExitStack() as stack:
        ours = _key(stack, crypto.EVP_PKEY_new_raw_private_key, private)
        theirs = _key(stack, crypto.EVP_PKEY_new_raw_public_key, share)
        context = crypto.EVP_PKEY_CTX_new(ours, None)
        stack.callback(crypto.EVP_PKEY_CTX_free, context)
        secret, length = ctypes.create_string_buffer(SHARE_BYTES), ctypes.c_size_t(SHARE_BYTES)
        if (
            crypto.EVP_PKEY_derive_init(context) <= 0
            or crypto.EVP_PKEY_derive_set_peer(context, theirs) <= 0
            or crypto.EVP_PKEY_derive(context, secret, ctypes.byref(length)) <= 0
            or not any(secret.raw)
        ):
            raise CryptoError(None, "nothing can be agreed on with this public key")
        return secret.raw


def _key(stack: contextlib.ExitStack, make: Any, raw: bytes) -> Any:
    if len(raw) != SHARE_BYTES:
        raise CryptoError(None, f"a key of X25519 has {SHARE_BYTES} bytes")
    crypto = library()
    key = make(_X25519, None, raw, SHARE_BYTES)
    if not key:
        raise CryptoError(None, "libcrypto does not do X25519")
    stack.callback(crypto.EVP_PKEY_free, key)
    return key
