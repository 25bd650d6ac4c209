"""Kernels in Triton's interpreter: byte for byte the codecs of native/codecs."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softnic import codecs
from tests.torch.gpu.needed import NEEDED

torch = pytest.importorskip("torch")
if find_spec("triton") is not None:
    from softnic.torch.gpu.codec import DeviceCodec, kernels_of

# The interpreter computes with NumPy.
pytestmark = [*NEEDED, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
CPU = torch.device("cpu")
NAMES = [
    *(f"rht:{bits}" for bits in range(3, 7)),
    *(f"bfp:{bits}" for bits in (3, 4, 7, 8, 11, 12, 15)),
    *("mx:e4m3", "mx:e5m2", "mx:e2m3", "mx:e2m1"),
    *("truncate:8", "truncate:10", "truncate:13", "truncate:16"),
]


def words_of(kind: str, count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind == "bits":
        return rng.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    makers: dict[str, Callable[[], Any]] = {
        "gaussian": lambda: rng.normal(0, 0.01, count),
        "scales": lambda: rng.normal(0, 1, count) * 10.0 ** np.repeat(rng.uniform(-44, 37, count // 16), 16),
        "heavy": lambda: rng.standard_t(1, count),
        "denormal": lambda: rng.normal(0, 1e-40, count),
        "equal": lambda: np.full(count, 0.3),
        "zeros": lambda: np.where(rng.random(count) < 0.5, 0.0, -0.0),
        "halves": lambda: rng.integers(-64, 64, count) / 32,
        "sparse": lambda: rng.normal(0, 1, count) * (np.repeat(rng.random(count // 16), 16) < 0.3),
    }
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(makers[kind](), np.float32)


KINDS = ["gaussian", "scales", "heavy", "denormal", "equal", "zeros", "halves", "sparse", "bits"]


def check(name: str, words: np.ndarray) -> None:
    codec = codecs.get(name)
    device = DeviceCodec(codec, CPU)
    expected = bytes(codec.encode(words))
    body = device.encode(torch.from_numpy(words))
    assert bytes(body.numpy()) == expected
    found = torch.full((words.size,), 7.0)
    device.decode(body, found)
    decoded = np.asarray(codec.decode(expected, words.size))
    assert found.numpy().tobytes() == decoded.tobytes()
    before = np.random.default_rng(9).standard_normal(words.size).astype(np.float32)
    added = torch.from_numpy(before.copy())
    device.decode(body, added, add=True)
    with np.errstate(all="ignore"):
        total = before + decoded
    assert np.array_equal(added.numpy(), total, equal_nan=True)
    numbers = ~np.isnan(total)
    assert added.numpy()[numbers].tobytes() == total[numbers].tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_bodies_are_those_of_the_host(name: str) -> None:
    check(name, np.concatenate([words_of(kind, 256) for kind in KINDS]))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8)
@given(data=st.data())
def test_any_words(name: str, data: st.DataObject) -> None:
    block = DeviceCodec(codecs.get(name), CPU).block_words
    special = st.sampled_from(
        [0, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00001, 0x80000000, 0xFF800000]
    )
    bits = data.draw(st.lists(st.integers(0, 2**32 - 1) | special, min_size=block, max_size=block))
    check(name, np.array(bits * 2, np.uint32).view(np.float32))


@pytest.mark.parametrize("name", ["rht:4", "bfp:7"])
def test_blocks_that_are_not_regular_lie_between_regular_ones(name: str) -> None:
    words = words_of("gaussian", 16 * 128)
    words[128:256] = 0
    words[500] = np.inf
    words[1000] = np.nan
    words[1500] = 1e38
    check(name, words)


def test_a_body_of_the_regular_size_may_have_irregular_blocks() -> None:
    """Seven blocks of zeros and one as it is take as many bytes as eight regular ones."""
    words = np.zeros(8 * 128, np.float32)
    words[3 * 128] = np.inf
    assert len(codecs.get("rht:4").encode(words)) == DeviceCodec(codecs.get("rht:4"), CPU).slot_bytes(words.size)
    check("rht:4", words)


@pytest.mark.parametrize("name", NAMES)
def test_nothing(name: str) -> None:
    check(name, np.empty(0, np.float32))


def test_malformed_bodies_are_refused() -> None:
    device = DeviceCodec(codecs.get("rht:4"), CPU)
    words = torch.zeros(256)
    body = device.encode(torch.from_numpy(words_of("gaussian", 256)))
    for length in (0, 1, 66, 131, 133):
        with pytest.raises(codecs.DecodeError):
            device.decode(torch.zeros(length, dtype=torch.uint8), words)
    body[1] = 0x7F
    body[0] = 0x90
    with pytest.raises(codecs.DecodeError):
        device.decode(body, words)


def test_what_has_no_kernels() -> None:
    for name in ("inceptionn:10", "bounded:10", "exact:32", "truncate:17", "raw"):
        assert kernels_of(codecs.get(name)) is None
        with pytest.raises(ValueError, match=f"{name} has no kernels for a GPU"):
            DeviceCodec(codecs.get(name), CPU)


def test_words_that_are_no_blocks() -> None:
    device = DeviceCodec(codecs.get("rht:4"), CPU)
    for words in (torch.zeros(127), torch.zeros(256, dtype=torch.float64), torch.zeros(512)[::2]):
        with pytest.raises(ValueError, match="contiguous blocks of 128"):
            device.encode(words)
