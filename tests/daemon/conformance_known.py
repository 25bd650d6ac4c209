"""The CPython tests that tests/daemon/conformance.py runs, and those expected to fail, with reasons."""

from __future__ import annotations

import re

_TCP = """
    BasicTCPTest BasicTCPTest2 TCPCloserTest GeneralModuleTests SendmsgTCPTest RecvmsgTCPTest RecvmsgIntoTCPTest
    InterruptedSendTimeoutTest NonBlockingTCPTests FileObjectClassTestCase UnbufferedFileObjectClassTestCase
    LineBufferedFileObjectClassTestCase SmallBufferedFileObjectClassTestCase UnicodeReadFileObjectClassTestCase
    UnicodeWriteFileObjectClassTestCase UnicodeReadWriteFileObjectClassTestCase NetworkConnectionNoServer
    NetworkConnectionAttributesTest NetworkConnectionBehaviourTest TCPTimeoutTest TestExceptions BufferIOTest
    ContextManagersTest InheritanceTest NonblockConstantTest SendfileUsingSendTest SendfileUsingSendfileTest
    CreateServerTest CreateServerFunctionalTest
"""
SUITES: dict[str, frozenset[str] | None] = {
    "test.test_socket": frozenset(_TCP.split()),
    "test.test_ssl": None,
    "test.test_ftplib": None,
    "test.test_asyncio.test_streams": None,
    "test.test_asyncio.test_sock_lowlevel": frozenset({"EPollEventLoopTests"}),
    "test.test_asyncio.test_ssl": None,
    "test.test_asyncio.test_sslproto": None,
    "test.test_asyncio.test_server": None,
    "test.test_asyncio.test_sendfile": frozenset({"EPollEventLoopTests"}),
    "test.test_asyncio.test_buffered_proto": None,
}
"""Test modules and the classes of each that are run (None: all)."""
NOT_RUN = frozenset({"GeneralModuleTests.test_sethostname"})
"""Where it runs as root it changes the name of the machine."""

EXPECTED: dict[str, str] = {
    r"TestFTPClass\.test_abort$": "urgent data (MSG_OOB): RFC 6093 advises against it",
    r"ContextTests\.test_context_custom_class$": "a custom class in SSLContext.sslsocket_class that derives from "
    "ssl.SSLSocket: to wrap a NIC's sockets, derive it from softnic.socket.SSLSocket",
}
"""The reason of each expected failure, by a regular expression for the test's name."""
EITHER: dict[str, str] = {
    r"TestPreHandshakeClose\.test_preauth_data_to_tls_server$": "a reset that reaches the other end before "
    "close returns: so on the kernel's loopback only, not through a network",
    r"test_sendfile\.\w+\.test_sendfile_close_peer_in_the_middle_of_receiving$": "SO_SNDBUF and SO_RCVBUF "
    "bound the descriptor, not the NIC's TCP: all bytes may be on their way before the peer closes",
    r"Sendfile\w+Test\.testWithTimeoutTriggeredSend$": "the buffers of two NICs may take all 10 MB at once, "
    "so nothing times out",
}
"""Tests whose outcome depends on timing that no network guarantees, and why."""


def reason_of(name: str) -> str:
    """Return why this test is expected to fail, or may; empty if it must pass."""
    return next((reason for pattern, reason in (EXPECTED | EITHER).items() if re.search(pattern, name)), "")


def may_pass(name: str) -> bool:
    """Return whether a test with a reason to fail may also pass."""
    return any(re.search(pattern, name) for pattern in EITHER)
