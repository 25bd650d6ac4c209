"""Keys: where they may be stored, their derivation, X25519, and the cipher of libcrypto."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from softnic.link.secure import keys, libcrypto
from softnic.link.secure.keys import PairKeys, expand, extract, read_key
from tests.link.doubles import A, B, C

DIGITS = "00112233445566778899aAbBcCdDeEfF" * 2
KEY = bytes.fromhex(DIGITS)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "softnic.key"
    path.touch(0o600)
    return path


class TestReading:
    def test_a_key_is_64_digits_or_the_file_that_holds_them(self, file: Path) -> None:
        assert read_key(DIGITS) == KEY
        for text in (DIGITS, f"{DIGITS}\n", f"  {DIGITS}\r\n"):
            file.write_text(text)
            assert read_key(str(file)) == KEY

    @pytest.mark.parametrize("text", ["", DIGITS[1:], DIGITS + "0", "x" + DIGITS[1:], f"{DIGITS}\n{DIGITS}\n"])
    def test_another_content_is_refused_and_not_shown(self, file: Path, text: str) -> None:
        file.write_text(text)
        with pytest.raises(ValueError, match="does not contain 64 hexadecimal digits") as caught:
            read_key(str(file))
        assert "0011" not in str(caught.value)

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
    def test_a_file_that_others_may_touch_is_refused(self, file: Path, mode: int) -> None:
        file.write_text(DIGITS)
        file.chmod(mode)
        with pytest.raises(ValueError, match="is accessible to others"):
            read_key(str(file))

    def test_a_file_that_is_not_there_is_named(self) -> None:
        with pytest.raises(ValueError, match=r"/no/such/key: No such file or directory; \(umask 077; openssl"):
            read_key("/no/such/key")

    def test_what_no_file_can_be_called_is_refused(self) -> None:
        with pytest.raises(ValueError, match="null byte"):
            read_key("a\0b")

    def test_the_command_of_the_manual_makes_one(self, tmp_path: Path) -> None:
        assert os.system(f"cd {tmp_path} && {keys.HOW_TO}") == 0
        assert len(read_key(str(tmp_path / "softnic.key"))) == keys.KEY_BYTES


class TestDerivation:
    def test_hkdf_is_that_of_rfc_5869(self) -> None:
        """Appendix A.1 and A.2."""
        secret = extract(bytes(range(13)), b"\x0b" * 22)
        assert secret.hex() == "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5"
        assert expand(secret, bytes(range(0xF0, 0xFA)), 42).hex() == (
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
        )
        secret = extract(bytes(range(0x60, 0xB0)), bytes(range(0x50)))
        assert expand(secret, bytes(range(0xB0, 0x100)), 82).hex() == (
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09"
            "da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"
        )

    def test_both_ends_have_the_same_keys_crosswise(self) -> None:
        a, b = PairKeys(KEY, 7, A, B), PairKeys(KEY, 7, B, A)
        assert (a.hello_out, a.hello_in) == (b.hello_in, b.hello_out)
        out, back = a.of_session(b"agreed", b"share a", b"share b")
        theirs, ours = b.of_session(b"agreed", b"share b", b"share a")
        assert (out, back) == (ours, theirs)

    def test_any_other_circumstance_gives_another_key(self) -> None:
        """Network key, VNI, either node, direction, what was agreed on, either share."""
        made = []
        networks = ((KEY, 7), (KEY[::-1], 7), (KEY, 8))
        pairs = [(key, vni, A, B) for key, vni in networks] + [(KEY, 7, A, C), (KEY, 7, C, B)]
        for key, vni, own, other in pairs:
            pair = PairKeys(key, vni, own, other)
            made += [pair.hello_out, pair.hello_in]
            for agreed, ours, theirs in (
                (b"x", b"s", b"t"),
                (b"y", b"s", b"t"),
                (b"x", b"u", b"t"),
                (b"x", b"s", b"u"),
            ):
                for direction in pair.of_session(agreed, ours, theirs):
                    made += [direction.key, direction.nonce]
        assert len(set(made)) == len(made)

    def test_a_key_has_32_bytes(self) -> None:
        with pytest.raises(ValueError, match="32 bytes, not 31"):
            PairKeys(KEY[1:], 7, A, B)

    def test_keys_do_not_show_themselves(self) -> None:
        for each in PairKeys(KEY, 7, A, B).of_session(b"x", b"y", b"z"):
            assert each.key.hex() not in repr(each)
            assert str(each.key) not in repr(each)


class TestX25519:
    def test_it_is_that_of_rfc_7748(self) -> None:
        """Section 5.2."""
        scalar = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
        share = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
        agreed = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
        assert keys.agree(scalar, share).hex() == agreed
        nine = b"\x09".ljust(32, b"\0")
        once = "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
        assert keys.public_share(nine).hex() == keys.agree(nine, nine).hex() == once

    def test_two_agree(self) -> None:
        one, other = bytes(range(32)), bytes(range(32, 64))
        agreed = keys.agree(one, keys.public_share(other))
        assert agreed == keys.agree(other, keys.public_share(one))

    @pytest.mark.parametrize("share", [bytes(32), b"\x01".ljust(32, b"\0"), b"", bytes(31), bytes(33)])
    def test_nothing_is_agreed_with_a_share_that_gives_the_secret_away(self, share: bytes) -> None:
        with pytest.raises(ValueError, match=r"shared key|32 bytes"):
            keys.agree(bytes(range(32)), share)


class TestCipher:
    @pytest.mark.parametrize("key", [b"", bytes(16), bytes(33)])
    def test_a_key_of_another_length_is_refused(self, key: bytes) -> None:
        with pytest.raises(libcrypto.CryptoError):
            libcrypto.encrypting(key)

    def test_without_a_library_it_says_what_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(libcrypto, "NAMES", ("libnothing.so.1", "libnothing.so.2"))
        with pytest.raises(libcrypto.CryptoError, match=r"no libnothing.so.1 and no libnothing.so.2"):
            libcrypto.library.__wrapped__()
