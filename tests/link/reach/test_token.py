"""Tokens: what one line of text carries, and which texts are none; the file with the servers' secret."""

from __future__ import annotations

import base64
import os
import random
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.link.reach.secret_file import read_secret
from softnic.link.reach.token import MOST_NODES, PREFIX, Grant, Token, TokenError, admission
from softnic.underlay import Address
from tests.link.reach.world import SECRET, UNIX_TIME, job_token

ADDRESSES: st.SearchStrategy[Address] = st.tuples(
    st.sampled_from(["meet.example.org", "192.0.2.1", "2001:db8::1"]), st.integers(0, 0xFFFF)
)


@given(
    st.lists(ADDRESSES, min_size=1, max_size=8),
    st.integers(1, MOST_NODES),
    st.integers(0, 2**53 - 1),
    st.integers(0, 2**32 - 1),
    st.binary(min_size=32, max_size=32),
)
def test_a_token_is_what_its_text_says(
    servers: list[Address], nodes: int, expiry: int, relay_kbps: int, secret: bytes
) -> None:
    grant = Grant(secret[:16], nodes, expiry, relay_kbps)
    token = Token.make(SECRET, servers, grant, secret)
    assert Token.parse(f" {token.text()}\n") == token
    assert token.servers == tuple(servers)
    assert token.grant == grant
    assert token.admission == admission(SECRET, grant.pack())
    assert Grant.unpack(grant.pack()) == grant


def test_the_bytes_of_a_token_are_those_of_the_format() -> None:
    text = job_token(4, servers=2).text()
    coded = text.removeprefix("softnic-join:")
    fields = msgspec.msgpack.decode(base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4)))
    assert fields[:6] == [1, ["198.51.100.1:9470", "198.51.100.2:9470"], (1).to_bytes(16, "big"), 4, 1_800_003_600, 0]
    assert [len(each) for each in fields[6:]] == [32, 32]


def test_every_truncated_token_is_refused() -> None:
    text = job_token(4).text()
    for length in range(len(text)):
        with pytest.raises(TokenError):
            Token.parse(text[:length])


def test_a_text_that_is_no_token_is_refused_with_one_line() -> None:
    text = job_token(4).text()
    for wrong in (
        "",
        "softnic",
        text[8:],
        PREFIX,
        f"{PREFIX}!!!!",
        f"{text}AAAA",
        "x" * 10**6,
        f"{PREFIX}é",
        f"{text}\0",
    ):
        with pytest.raises(TokenError) as error:
            Token.parse(wrong)
        assert "\n" not in str(error.value)


def test_a_token_of_another_version_says_so() -> None:
    token = job_token(4)
    coded = token.text().removeprefix(PREFIX)
    fields = msgspec.msgpack.decode(base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4)))
    fields[0] = 2
    with pytest.raises(TokenError, match="version 2, not 1"):
        Token.parse(PREFIX + base64.urlsafe_b64encode(msgspec.msgpack.encode(fields)).decode())


def test_an_expired_token_says_so() -> None:
    token = job_token(4)
    assert token.check(UNIX_TIME + 3599) is token
    with pytest.raises(TokenError, match="expired"):
        token.check(UNIX_TIME + 3600)


@pytest.mark.parametrize("nodes", [0, MOST_NODES + 1])
def test_a_job_has_a_number_of_nodes_in_range(nodes: int) -> None:
    with pytest.raises(TokenError):
        job_token(nodes)


def test_a_token_shows_no_secret() -> None:
    token = job_token(4)
    assert token.secret.hex() not in repr(token)
    assert "secret" not in repr(token)


def test_derived_secrets_depend_on_token_job_and_purpose() -> None:
    derived = [job_token(4).derive(b"card"), job_token(4).derive(b"key"), job_token(4, job=2).derive(b"card")]
    assert len(set(derived)) == 3
    assert job_token(4).derive(b"card") == job_token(5, servers=2).derive(b"card")


def test_the_secret_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"
    secret, made = read_secret(path, random.Random(1).randbytes)
    assert (made, secret) == (True, random.Random(1).randbytes(32))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_secret(path) == (secret, False)


def test_a_secret_that_others_read_or_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(os.urandom(32).hex())
    path.chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        read_secret(path)
    path.chmod(0o600)
    path.write_text("secret")
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        read_secret(path)
