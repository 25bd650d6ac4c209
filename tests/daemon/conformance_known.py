"""Which of CPython's tests tests/daemon/conformance.py runs, and which of them are expected to fail, and why."""

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
"""Modules of tests, and the classes of each that are run (None: all)."""

_UDP = "UDP: a NIC carries TCP"
EXPECTED: dict[str, str] = {
    r"GeneralModuleTests\.testSendtoErrors$": _UDP,
    r"GeneralModuleTests\.test_socket_fileno$": _UDP,
    r"SendfileUsingSend(file)?Test\.test_errors$": _UDP,
    r"BasicSocketTests\.test_unsupported_dtls$": _UDP,
    r"test_sock_lowlevel\.\w+\.test_(recvfrom|recvfrom_into|sendto_blocking)$": _UDP,
    r"test_sendfile\.\w+\.test_sendfile_not_supported$": _UDP,
    r"GeneralModuleTests\.test_unknown_socket_family_repr$": "another address family: a NIC carries IPv4",
    r"CreateServerTest\.test_reuse_port$": "SO_REUSEPORT: one listener has a port of a node",
    r"TestFTPClass\.test_abort$": "urgent data (MSG_OOB): RFC 6093 advises against it",
    r"ContextTests\.test_context_custom_class$": "a custom class in SSLContext.sslsocket_class that derives from "
    "ssl.SSLSocket: to wrap a NIC's sockets, derive it from softnic.socket.SSLSocket",
}
"""By regular expression over a test's name: why it fails."""
EITHER: dict[str, str] = {
    r"TestPreHandshakeClose\.test_preauth_data_to_tls_server$": "a reset that reaches the other end before "
    "close returns: so on the kernel's loopback only, not through a network",
    r"test_sendfile\.\w+\.test_sendfile_(fallback_)?close_peer_in_the_middle_of_receiving$": "SO_SNDBUF and SO_RCVBUF "
    "bound the descriptor, not the NIC's TCP: all bytes may be on their way before the peer closes",
}
"""Tests whose outcome depends on what no network promises, and why."""
RACES = r"SimpleBackgroundTests|ThreadedTests|TestSSLDebug|TestPostHandshakeAuth"
"""Tests of a server that stops when a client closes before it has read what is on its way (session tickets of TLS 1.3),
which it does in time or not: those that fail are run again."""


def reason_of(name: str) -> str:
    """Why this test is expected to fail, or may; empty if it is to pass."""
    return next((reason for pattern, reason in (EXPECTED | EITHER).items() if re.search(pattern, name)), "")


def may_pass(name: str) -> bool:
    """Whether a test with a reason to fail may pass all the same."""
    return any(re.search(pattern, name) for pattern in EITHER)
