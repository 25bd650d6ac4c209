"""Kernels in Triton's interpreter: byte for byte the codecs of native/codecs."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softnic import codecs
from softnic.codecs import feedback
from softnic.codecs.combine import ReduceOp, combine, decode_combine
from tests.slow import some
from tests.torch.gpu.needed import NEEDED
from tests.torch.gpu.words import KINDS, WORDS, words_of

torch = pytest.importorskip("torch")
if find_spec("triton") is not None:
    from softnic.torch.gpu.codec import DeviceCodec, kernels_of

# The interpreter computes with NumPy.
pytestmark = [*NEEDED, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
CPU = torch.device("cpu")
NAMES = some(
    8,
    [
        *("rht:4", "rht:3", "bfp:7", "bfp:15", "mx:e4m3", "mx:e2m1", "truncate:8", "truncate:16"),
        *("rht:5", "rht:6", "bfp:3", "bfp:4", "bfp:8", "bfp:11", "bfp:12", "mx:e5m2", "mx:e2m3"),
        *("truncate:10", "truncate:13"),
    ],
)
ADDENDS = np.array([1, -1, 0, np.inf, np.nan, 1e-40, 3e38], np.float32)


def own_words(count: int) -> np.ndarray:
    """Return words to add to, infinities, NaNs and zeros included."""
    words = words_of("gaussian", count, seed=9)
    words[:: len(ADDENDS)] = np.resize(ADDENDS, words[:: len(ADDENDS)].size)
    return words


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
    before = own_words(words.size)
    added = torch.from_numpy(before.copy())
    device.decode(body, added, add=True)
    total = decode_combine(codec, expected, ReduceOp.SUM, before)
    assert added.numpy().tobytes() == total.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_bodies_by_the_sizes_of_their_blocks(name: str) -> None:
    codec = codecs.get(name)
    device = DeviceCodec(codec, CPU)
    words = np.concatenate([words_of(kind, 256) for kind in KINDS])
    expected, before = codec.encode(words), own_words(words.size)
    decoded = codec.decode(expected, words.size)
    total = decode_combine(codec, expected, ReduceOp.SUM, before)
    body, rounded = torch.frombuffer(bytearray(expected), dtype=torch.uint8), torch.from_numpy(words.copy())
    slots, sizes = device.encode_rounded(rounded)
    assert rounded.numpy().tobytes() == decoded.tobytes()
    assert device.sizes.issuperset(sizes.tolist())
    assert torch.equal(device.body_of(rounded, slots, sizes, body.numel()), body)
    found, added = torch.full((words.size,), 7.0), torch.from_numpy(before.copy())
    device.decode_sizes(body, sizes, found)
    device.decode_sizes(body, sizes, added, add=True)
    assert found.numpy().tobytes() == decoded.tobytes()
    assert added.numpy().tobytes() == total.tobytes()


def check_reduced(name: str, own: np.ndarray, contributions: list[np.ndarray]) -> None:
    """Compare sums, what they are encoded to, and what that decodes to, with those of the host."""
    codec = codecs.get(name)
    device = DeviceCodec(codec, CPU)
    bodies = [codec.encode(each) for each in contributions]
    assert all(len(each) == device.slot_bytes(own.size) for each in bodies)
    total = own
    for each in bodies:
        total = decode_combine(codec, each, ReduceOp.SUM, total)
    slots = torch.from_numpy(np.frombuffer(b"".join(bodies), np.uint8).copy())

    words = torch.from_numpy(own.copy())
    device.decode_slots(slots, words, add=True)
    assert words.numpy().tobytes() == total.tobytes()

    words = torch.from_numpy(own.copy())
    first, sizes = device.reduce_slots(slots, words)
    assert words.numpy().tobytes() == own.tobytes()
    assert bytes(device.body(first, sizes, torch.from_numpy(total)).numpy()) == codec.encode(total)
    second, sizes = device.reduce_slots(slots, words, decode=True)
    assert words.numpy().tobytes() == codec.decode(codec.encode(total), own.size).tobytes()
    assert bytes(device.body(second, sizes, words).numpy()) == codec.encode(total)


@pytest.mark.parametrize("name", NAMES)
def test_bodies_are_those_of_the_host(name: str) -> None:
    check(name, np.concatenate([words_of(kind, 256) for kind in KINDS]))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8)
@given(data=st.data())
def test_any_words(name: str, data: st.DataObject) -> None:
    block = DeviceCodec(codecs.get(name), CPU).block_words
    bits = data.draw(st.lists(WORDS, min_size=block, max_size=block))
    check(name, np.array(bits * 2, np.uint32).view(np.float32))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_sums_are_those_of_the_host(name: str, ranks: int) -> None:
    own = np.concatenate([words_of(kind, 256) for kind in KINDS])
    check_reduced(name, own, [words_of("gaussian", own.size, seed) for seed in range(1, ranks)])


@pytest.mark.parametrize("name", NAMES)
def test_sums_with_few_regular_blocks(name: str) -> None:
    """Zeros that stay zeros are what opposite contributions leave."""
    given = words_of("gaussian", 1024)
    own = -np.asarray(codecs.get(name).decode(codecs.get(name).encode(given), given.size))
    own[512:640] = np.inf
    own[700] = np.nan
    check_reduced(name, own, [given])


@pytest.mark.parametrize("name", ["mx:e5m2", "mx:e2m1", "truncate:8", "truncate:16"])
@settings(max_examples=8)
@given(data=st.data())
def test_sums_of_any_words_without_irregular_blocks(name: str, data: st.DataObject) -> None:
    bits = data.draw(st.lists(WORDS, min_size=192, max_size=192))
    words = np.array(bits, np.uint32).view(np.float32)
    check_reduced(name, words[:64].copy(), [words[64:128].copy(), words[128:].copy()])


@pytest.mark.parametrize("name", NAMES)
def test_error_feedback_is_that_of_the_host(name: str) -> None:
    codec = codecs.get(name)
    device = DeviceCodec(codec, CPU)
    expected = np.zeros(256 * len(KINDS), np.float32)
    residual = torch.from_numpy(expected.copy())
    for seed in range(3):
        words = np.concatenate([words_of(kind, 256, seed) for kind in KINDS])
        total = combine(ReduceOp.SUM, words, expected)
        decoded = np.empty_like(words)
        sent = feedback.round_parts(codec, [words], [expected], decoded)
        slots, sizes = device.encode_slots(torch.from_numpy(words), residual=residual)
        assert residual.numpy().tobytes() == expected.tobytes()
        body = device.body(slots, sizes, torch.from_numpy(total))
        assert len(body) == sent
        assert bytes(body.numpy()) == codec.encode(total)


def test_slots_and_residuals_of_other_sizes() -> None:
    device = DeviceCodec(codecs.get("rht:4"), CPU)
    words = torch.zeros(256)
    with pytest.raises(ValueError, match="131 bytes are not the slots of 256 words"):
        device.reduce_slots(torch.zeros(131, dtype=torch.uint8), words)
    with pytest.raises(ValueError, match="132 bytes are not the slots of 0 words"):
        device.reduce_slots(torch.zeros(132, dtype=torch.uint8), words[:0])
    with pytest.raises(ValueError, match="a residual of 128 words goes with 256"):
        device.encode_slots(words, residual=words[:128])
    for slots in (0, 66, 264):
        with pytest.raises(ValueError, match=f"{slots} bytes are not the slots of"):
            device.decode_slots(torch.zeros(slots, dtype=torch.uint8), words)


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


def test_what_has_no_slots() -> None:
    for name in ("inceptionn:10", "bounded:10", "exact:32", "truncate:17", "raw"):
        assert kernels_of(codecs.get(name)) is None
        with pytest.raises(ValueError, match=f"{name} has no slots on a GPU"):
            DeviceCodec(codecs.get(name), CPU)


def test_words_that_are_no_blocks() -> None:
    device = DeviceCodec(codecs.get("rht:4"), CPU)
    for words in (torch.zeros(127), torch.zeros(256, dtype=torch.float64), torch.zeros(512)[::2]):
        with pytest.raises(ValueError, match="contiguous blocks of 128"):
            device.encode(words)
