"""Keys of a running NIC and its peers, on all of its queues: replaced, added and revoked while connections go on."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from softnic.ipc import control
from softnic.link.secure.channel import SecureChannel
from softnic.link.secure.identity import GENERATIONS, fingerprint, key_text, parse_public, parse_publics
from softnic.packet import ipv4
from softnic.packet.ethernet import mac_of
from softnicd.config import Config, ConfigError
from softnicd.handlers import Handler, address_of
from softnicd.link_setup import QueueLink


class NicKeys:
    """Answers requests for keys.

    Parameters
    ----------
    config : Config
        Names the file of the NIC's private keys.
    links : sequence of QueueLink
        The wire side of each queue, the first one first.
    held : callable
        Has a queue, by its number, stand still.
    now : callable
        Returns the time in seconds.
    ip_of : callable
        Returns the address of the peer that has a MAC.
    end_connections : callable
        Resets the connections of a queue to a node, for a reason.
    """

    def __init__(
        self,
        config: Config,
        links: Sequence[QueueLink],
        held: Callable[[int], AbstractContextManager[None]],
        *,
        now: Callable[[], float],
        ip_of: Callable[[bytes], int],
        end_connections: Callable[[int, int, str], None],
    ) -> None:
        self._config, self._links, self._held, self._now = config, links, held, now
        self._ip_of, self._end_connections = ip_of, end_connections
        self.by_request: dict[type, Handler] = {
            control.AddPeerKey: self._add_peer_key,
            control.RevokeKey: self._revoke,
            control.ReplaceIdentity: self._replace_identity,
        }

    def set(self, ip: int, texts: Sequence[str]) -> None:
        """Know a node by these public keys, the newest first. Raises OSError (EINVAL)."""
        try:
            keys = parse_publics(texts)
        except ValueError as error:
            raise OSError(errno.EINVAL, str(error)) from None
        self._set(ip, keys)

    def _set(self, ip: int, keys: tuple[bytes, ...]) -> None:
        self._check_identity()
        for queue, link in enumerate(self._links):
            with self._held(queue):
                _channel(link).set_keys(mac_of(ip), keys, self._now())

    def _check_identity(self) -> None:
        if not self._config.identity:
            raise OSError(errno.EINVAL, "the NIC has no private key: start it with --identity FILE")

    def fingerprint(self, mac: bytes) -> str:
        """Return what people know the newest key of a peer by; empty: it has none."""
        keys = _channel(self._links[0]).keys_of(mac) if self._config.is_sealed else ()
        return fingerprint(keys[0]) if keys else ""

    def _add_peer_key(self, request: control.AddPeerKey, _fd: int | None, _client: object) -> control.Done:
        self._check_identity()
        ip, key = address_of(request.ip), _public(request.key)
        with self._held(0):
            known = _channel(self._links[0]).keys_of(mac_of(ip))
        others = [other for other in known if other != key]
        self._set(ip, (key, *others[: GENERATIONS - 1]))
        return control.Done()

    def _revoke(self, request: control.RevokeKey, _fd: int | None, _client: object) -> control.Done:
        if not self._config.is_sealed:
            raise OSError(errno.EINVAL, "the NIC does not encrypt its frames: it uses no keys")
        key = _public(request.key)
        for queue, link in enumerate(self._links):
            with self._held(queue):
                for ip in map(self._ip_of, _channel(link).revoke(key, self._now())):
                    text = f"the key of {ipv4.text(ip)} is revoked"
                    self._end_connections(queue, ip, text)
        return control.Done()

    def _replace_identity(self, _request: control.ReplaceIdentity, _fd: int | None, _client: object) -> control.Keys:
        self._check_identity()
        try:
            identity = self._config.node_identity
        except ConfigError as error:
            raise OSError(errno.EINVAL, str(error)) from None
        assert identity is not None
        for queue, link in enumerate(self._links):
            with self._held(queue):
                _channel(link).replace_identity(identity, self._now())
        return control.Keys([key_text(key) for key in identity.public])


def _channel(link: QueueLink) -> SecureChannel:
    """The channel of a wire that is encrypted."""
    channel = link.wire.channel
    assert channel is not None
    return channel


def _public(text: str) -> bytes:
    """Return a public key. Raises OSError (EINVAL)."""
    try:
        return parse_public(text)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from None
