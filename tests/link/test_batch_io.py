"""The native batch calls with arguments that VxlanLink never passes: none may read or write out of bounds."""

from __future__ import annotations

import errno
from contextlib import ExitStack

import pytest

from softnic import underlay
from softnic._native import ffi, lib
from softnic.link.endpoint import packed
from softnic.underlay import Address
from tests.link.doubles import B, numbered
from tests.link.sockets import BOTH_FAMILIES, VNI, endpoint, host_of, opened, plain_socket

HOSTS = BOTH_FAMILIES


class TestNative:
    def send(self, offset: int, length: int) -> int:
        data = ffi.new("uint8_t[]", 70_000)
        offsets, lengths = ffi.new("uint32_t[]", [offset]), ffi.new("uint32_t[]", [length])
        result: int = lib.sn_vxlan_send(-1, endpoint(("127.0.0.1", 9)), 1, data, offsets, lengths, 1, 1)
        return result

    @pytest.mark.parametrize(("offset", "length"), [(0, 60), (7, 60), (8, 65500), (8, 2**32 - 1)])
    def test_send_rejects_frames_without_headroom_and_frames_that_are_too_long(self, offset: int, length: int) -> None:
        assert self.send(offset, length) == -errno.EMSGSIZE

    def test_send_returns_the_kernels_error(self) -> None:
        assert self.send(8, 65499) == -errno.EBADF

    def receive(
        self, fd: int, *senders: Address, slot: int = 2048, messages: int = 64, frames: int = 1024, vni: int = VNI
    ) -> tuple[int, int, int, int]:
        """Sources, frames, and malformed and unknown datagrams of what senders sent, all of them peers; checks that
        nothing behind the buffers was written."""
        guard = 64
        buffer = ffi.new("uint8_t[]", bytes([0xA5]) * (slot * 64 + guard))
        offsets, lengths = ffi.new("uint32_t[]", frames + 1), ffi.new("uint32_t[]", frames + 1)
        offsets[frames] = lengths[frames] = 0xA5A5A5A5
        found = ffi.new("sn_received *")
        sources = ffi.new("sn_source[]", 64)
        keys = sorted(packed(sender, underlay.family(sender[0])) for sender in set(senders))
        known = ffi.from_buffer("sn_endpoint[]", b"".join(keys))
        error: int = lib.sn_vxlan_receive(
            fd, vni, known, len(known), buffer, slot, messages, offsets, lengths, frames, sources, found
        )
        assert ffi.buffer(buffer)[slot * 64 : slot * 64 + guard] == bytes([0xA5]) * guard
        assert (offsets[frames], lengths[frames]) == (0xA5A5A5A5, 0xA5A5A5A5)
        return error or found.sources, found.frames, found.malformed, found.unknown

    def test_receive_rejects_a_buffer_smaller_than_one_message(self) -> None:
        assert self.receive(-1, frames=127)[0] == -errno.EINVAL
        assert self.receive(-1, messages=0)[0] == -errno.EINVAL
        assert self.receive(-1)[0] == -errno.EBADF

    def test_a_datagram_longer_than_its_slot_is_rejected(self, stack: ExitStack) -> None:
        a, b = opened(stack), plain_socket(stack)
        a.add_peer(B, b.getsockname())
        a.send(numbered(0, 1, 3000), 0.0)
        a.send(numbered(0, 1, 100), 0.0)
        assert self.receive(b.fileno(), a.address) == (1, 1, 1, 0)

    def test_the_number_of_messages_is_limited_by_the_frame_list(self, stack: ExitStack) -> None:
        a, b = opened(stack), plain_socket(stack)
        a.add_peer(B, b.getsockname())
        a.send(numbered(0, 5, 100), 0.0)
        assert self.receive(b.fileno(), a.address, frames=2 * 128 + 5) == (1, 2, 0, 0)

    def test_only_consecutive_datagrams_of_one_source_are_joined(self, stack: ExitStack) -> None:
        one, two, b = opened(stack), opened(stack), plain_socket(stack)
        for sender in (one, one, two, two, one):
            sender.add_peer(B, b.getsockname())
            sender.send(numbered(0, 1, 100), 0.0)
        assert self.receive(b.fileno(), one.address, two.address) == (3, 5, 0, 0)

    def test_a_peer_is_found_among_any_number(self, stack: ExitStack) -> None:
        others = [(host_of(stack), port) for port in range(1, 40)]
        others += [("10.0.0.1", 9), ("255.255.255.255", 65535), ("2001:db8::1", 9), ("fe80::1%lo", 1)]
        a, b = opened(stack), plain_socket(stack)
        a.add_peer(B, b.getsockname())
        for known in range(len(others)):
            a.send(numbered(0, 2, 100), 0.0)
            assert self.receive(b.fileno(), *others[:known]) == (0, 0, 0, 2)
            a.send(numbered(0, 2, 100), 0.0)
            assert self.receive(b.fileno(), *others[:known], a.address) == (1, 2, 0, 0)

    def test_datagrams_from_unknown_sources_are_counted_individually_and_not_parsed(self, stack: ExitStack) -> None:
        """GRO may have merged them."""
        a, b = opened(stack), plain_socket(stack)
        lib.sn_enable_gro(b.fileno())
        a.add_peer(B, b.getsockname())
        a.send(numbered(0, 40), 0.0)
        plain_socket(stack).sendto(b"", b.getsockname())
        assert self.receive(b.fileno(), slot=1 << 16) == (0, 0, 0, 41)

    def test_all_datagrams_are_listed_on_request(self, stack: ExitStack) -> None:
        a, b = plain_socket(stack), plain_socket(stack)
        for data in (b"x", b"", bytes(2000), bytes(3000)):
            a.sendto(data, b.getsockname())
        assert self.receive(b.fileno(), a.getsockname(), vni=lib.SN_ANY_DATAGRAM) == (1, 2, 2, 0)
