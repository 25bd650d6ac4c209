"""The codec exact in Triton's interpreter: byte for byte native/codecs/exact.c, and as strict."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from softnic import codecs
from tests.torch.gpu.needed import NEEDED
from tests.torch.gpu.words import KINDS, WORDS, words_of

torch = pytest.importorskip("torch")
if find_spec("triton") is not None:
    from softnic.torch.gpu.exact_codec import DeviceExact

pytestmark = [*NEEDED, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
CPU = torch.device("cpu")
NAMES = ["exact:16", "exact:32"]
SYMBOLS = st.sampled_from([0, 1, 2, 3, 5, 8, 9, 10, 11, 126, 127, 250, 253, 254, 255])


def check(name: str, words: np.ndarray) -> None:
    codec = codecs.get(name)
    device = DeviceExact(codec, CPU)
    body, sizes = device.encode(torch.from_numpy(words))
    assert bytes(body.numpy()) == codec.encode(words)
    for given_sizes in (sizes, sizes.to(torch.int16), None):
        found = torch.full((words.size,), 7.0)
        device.decode(body, found, given_sizes)
        assert found.numpy().tobytes() == words.tobytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_bodies_are_those_of_the_host(name: str, kind: str) -> None:
    check(name, words_of(kind, 3 * 128))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_weights(name: str, dtype: Any) -> None:
    weights = torch.from_numpy(words_of("gaussian", 512)).to(dtype)
    check(name, weights.view(torch.float32).numpy())


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10)
@given(bits=st.lists(WORDS, min_size=128, max_size=128))
def test_any_words(name: str, bits: list[int]) -> None:
    check(name, np.array(bits, np.uint32).view(np.float32))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10)
@given(symbols=st.lists(SYMBOLS, min_size=1, max_size=24), seed=st.integers(0, 1000))
def test_any_symbols(name: str, symbols: list[int], seed: int) -> None:
    """Bases from 0 to 254, symbols on the other side of 0, and blocks of all lengths."""
    rng = np.random.default_rng(seed)
    width = np.uint16 if name == "exact:16" else np.uint32
    bits = 8 * np.dtype(width).itemsize
    drawn = rng.choice(np.array(symbols, np.uint64), 256 * 32 // bits) << (bits - 8)
    rotated = drawn | rng.integers(0, 1 << (bits - 8), drawn.size, dtype=np.uint64)
    elements = (rotated >> 1 | rotated << (bits - 1)).astype(width)
    check(name, elements.view(np.float32))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(data=st.data())
def test_damaged_bodies_are_decoded_or_refused_as_on_the_host(name: str, data: st.DataObject) -> None:
    codec = codecs.get(name)
    kind = data.draw(st.sampled_from(["gaussian", "sparse", "bits", "zeros"]))
    body = bytearray(codec.encode(words_of(kind, 256)))
    for place in data.draw(st.lists(st.integers(0, min(90, len(body) - 1)), max_size=3)):
        body[place] = data.draw(st.integers(0, 255))
    body = (body + bytes(2))[: len(body) + data.draw(st.sampled_from([0, 0, 0, -1, 1, -300]))]
    found = torch.full((256,), 7.0)
    device = DeviceExact(codec, CPU)
    given_body = torch.from_numpy(np.frombuffer(bytes(body), np.uint8).copy())
    try:
        expected = codec.decode(bytes(body), 256)
    except codecs.DecodeError:
        with pytest.raises(codecs.DecodeError, match=f"{len(body)} bytes are not a {name} encoding of 256 words"):
            device.decode(given_body, found)
    else:
        device.decode(given_body, found)
        assert found.numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10)
@given(data=st.data())
def test_wrong_sizes_are_refused(name: str, data: st.DataObject) -> None:
    device = DeviceExact(codecs.get(name), CPU)
    words = torch.from_numpy(words_of("gaussian", 384))
    body, right = device.encode(words)
    size = st.sampled_from([0, 1, 417, 512, 513, *right.tolist()]) | st.integers(-(2**31), 2**31 - 1)
    wrong = torch.tensor(data.draw(st.lists(size, min_size=3, max_size=3)), dtype=torch.int32)
    assume(not torch.equal(wrong, right))
    with pytest.raises(codecs.DecodeError):
        device.decode(body, words.clone(), wrong)


@pytest.mark.parametrize("name", NAMES)
def test_nothing(name: str) -> None:
    check(name, np.empty(0, np.float32))
    with pytest.raises(codecs.DecodeError):
        DeviceExact(codecs.get(name), CPU).decode(torch.zeros(1, dtype=torch.uint8), torch.zeros(0))


def test_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="rht:4 is not exact"):
        DeviceExact(codecs.get("rht:4"), CPU)
    device = DeviceExact(codecs.get("exact:16"), CPU)
    with pytest.raises(ValueError, match="contiguous blocks of 128"):
        device.encode(torch.zeros(127))
    body, sizes = device.encode(torch.zeros(256))
    with pytest.raises(ValueError, match="1 sizes go with 2 blocks"):
        device.decode(body, torch.zeros(256), sizes[:1])
