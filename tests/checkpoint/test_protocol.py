"""Manifests, layouts, frames, plans and pacing: without I/O, and with input that is none."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest

from softnic.checkpoint import Leaf, TrainingState, manifest, protocol
from softnic.checkpoint.manifest import Manifest, ManifestError, StateLayout
from softnic.checkpoint.pacing import CpuBudget
from softnic.checkpoint.plan import PullPlan
from softnic.checkpoint.protocol import FrameKind, ProtocolError
from tests.checkpoint.peers import a_state, described

NONCES = (b"s" * 16, b"r" * 16)


# -- manifests ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_pieces_cover_every_byte_once_and_have_one_codec(seed: int) -> None:
    rng = random.Random(seed)
    leaves = [
        Leaf(str(n), rng.choice(["float32", "bfloat16", "int64", "bool"]), 4, (rng.choice([0, 1, 7, 300]),))
        for n in range(rng.randrange(12))
    ]
    state = TrainingState([(leaf, np.zeros(leaf.nbytes, np.uint8)) for leaf in leaves])
    layout = StateLayout(state.leaves, 64)
    seen = []
    for piece in range(len(layout)):
        parts = list(layout.parts(piece))
        assert 0 < sum(part.stop - part.start for part in parts) == layout.size(piece) <= 64
        assert {state.leaves[part.leaf].codec for part in parts} == {layout.codecs[piece]}
        cut = rng.randrange(layout.size(piece) + 1)
        halves = [*layout.parts(piece, 0, cut), *layout.parts(piece, cut)]
        assert sum(part.stop - part.start for part in halves) == layout.size(piece)
        seen += [(part.leaf, byte) for part in parts for byte in range(part.start, part.stop)]
    assert seen == [(n, byte) for n, leaf in enumerate(state.leaves) for byte in range(leaf.nbytes)]


def test_equal_states_have_equal_manifests() -> None:
    one, pieces = described(a_state(1), 5)
    assert one == described(a_state(1), 5)[0]
    assert one != described(a_state(1), 6)[0]
    assert one != described(a_state(2), 5)[0]
    found, layout = manifest.decode(one)
    assert len(layout) == len(pieces)
    assert found.digest_of(0) != found.digest_of(1)


def test_a_state_has_leaves_of_different_names_and_right_sizes() -> None:
    leaf = Leaf("a", "uint8", 1, (3,))
    with pytest.raises(ManifestError, match="two leaves have one name"):
        TrainingState([(leaf, np.zeros(3, np.uint8)), (leaf, np.zeros(3, np.uint8))])
    with pytest.raises(ManifestError, match="a: 4 bytes of uint8, not 3"):
        TrainingState([(leaf, np.zeros(4, np.uint8))])


BAD = {
    "no msgpack": b"\xc1",
    "too few digests": Manifest(1, 64, (Leaf("a", "uint8", 1, (65,)),), bytes(32)),
    "too many digests": Manifest(1, 64, (Leaf("a", "uint8", 1, (64,)),), bytes(64)),
    "a state that is too large": Manifest(1, 64, (Leaf("a", "uint8", 64, (2**48,)),), bytes(32)),
    "leaves out of order": Manifest(1, 64, (Leaf("a", "int8", 1, (0,)), Leaf("b", "float32", 4, (0,))), b""),
    "a name twice": Manifest(1, 64, (Leaf("a", "int8", 1, (0,)),) * 2, b""),
    "pieces of no size": [1, 0, [], b""],
    "a negative dimension": [1, 64, [["a", "int8", 1, [-1]]], b""],
    "no elements": [1, 64, [["a", "int8", 0, [1]]], b""],
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_manifest_is_refused(case: str) -> None:
    bad = BAD[case]
    with pytest.raises(ManifestError):
        manifest.decode(bad if isinstance(bad, bytes) else msgspec.msgpack.encode(bad))


@pytest.mark.parametrize("seed", range(200))
def test_damaged_manifests_raise_one_error(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(described(a_state(1, 400), 5)[0])
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    try:
        found, layout = manifest.decode(bytes(data))
    except ManifestError:
        return
    assert len(found.digests) == 32 * len(layout)


# -- frames -------------------------------------------------------------------------------------------------------


def test_frames_come_back() -> None:
    assert protocol.parse_greeting(protocol.greeting(NONCES[0])) == NONCES[0]
    sent = protocol.answer(b"secret", *NONCES, "épreuve")
    nonce, rest = protocol.parse_answer(sent[: protocol.ANSWER_BYTES])
    assert (nonce, rest) == (NONCES[1], len(sent) - protocol.ANSWER_BYTES)
    protocol.check_answer(b"secret", NONCES, "épreuve", sent[protocol.ANSWER_BYTES :])
    proof = protocol.accepted(b"secret", NONCES, "épreuve")[protocol.FRAME_BYTES :]
    protocol.check_accepted(b"secret", NONCES, "épreuve", proof)
    assert protocol.parse_step(protocol.ask_step(-3)[protocol.FRAME_BYTES :]) == -3
    assert protocol.parse_piece(protocol.ask_piece(7)[protocol.FRAME_BYTES :]) == 7
    head = protocol.piece_head(7, 100)
    assert protocol.parse_head(head[: protocol.FRAME_BYTES]) == (FrameKind.PIECE, 104)


def test_a_proof_is_of_one_role_one_connection_and_one_secret() -> None:
    own = protocol.answer(b"secret", *NONCES, "job")[protocol.ANSWER_BYTES :]
    for secret, nonces in ((b"other", NONCES), (b"", NONCES), (b"secret", NONCES[::-1])):
        with pytest.raises(ProtocolError, match="SOFTNIC_JOB_SECRET"):
            protocol.check_answer(secret, nonces, "job", own)
    with pytest.raises(ProtocolError, match="another epoch"):
        protocol.check_answer(b"secret", NONCES, "other", own)
    with pytest.raises(ProtocolError, match="SOFTNIC_JOB_SECRET"):  # its own proof, sent back
        protocol.check_accepted(b"secret", NONCES, "job", own[-protocol.PROOF_BYTES :])


def test_other_versions_and_other_servers_are_named() -> None:
    with pytest.raises(ProtocolError, match="other first bytes"):
        protocol.parse_greeting(b"HTTP/1.1 400 Bad Reque")
    with pytest.raises(ProtocolError, match="version 2 of the checkpoint protocol, not 1"):
        protocol.parse_greeting(b"SNCK\x02\x00" + bytes(16))
    with pytest.raises(ProtocolError, match="an epoch of 65535 bytes"):
        protocol.parse_answer(b"SNCK\x01\x00" + bytes(16) + b"\xff\xff")


@pytest.mark.parametrize("kind", FrameKind)
def test_lengths_are_bounded_before_memory_is_taken(kind: FrameKind) -> None:
    with pytest.raises(ProtocolError):
        protocol.parse_head(bytes([kind, 0, 0, 0]) + b"\xff\xff\xff\xff")


# -- plan ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(100))
def test_a_plan_ends_while_one_source_lives(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.randrange(1, 9) for _ in range(rng.randrange(30))]
    held = {piece for piece in range(len(sizes)) if rng.random() < 0.2}
    plan, names, now, first = PullPlan(sizes, held), ["a", "b", "c"], 0.0, 0
    for _ in range(10_000):
        now += rng.random() / 5
        name = rng.choice(names)
        share = plan.shares.get(name)
        outstanding = list(share.asked_at) if share else []
        if outstanding and rng.random() < 0.6:
            first += plan.arrived(name, rng.choice(outstanding), now)
        elif len(names) > 1 and rng.random() < 0.02:
            plan.drop(name)
            names.remove(name)
        elif len(outstanding) < 2:
            plan.take(name, now)
        if plan.complete:
            break
    assert plan.complete
    assert first == len(sizes) - len(held)
    assert plan.received == plan.wanted == sum(size for piece, size in enumerate(sizes) if piece not in held)


def test_pieces_of_a_source_that_ends_are_asked_first() -> None:
    plan = PullPlan([1] * 6)
    assert [plan.take("a", 0.0), plan.take("a", 0.0), plan.take("b", 0.0)] == [0, 1, 2]
    assert plan.drop("a") == 2
    assert [plan.take("b", 0.0) for _ in range(4)] == [0, 1, 3, 4]
    assert plan.shares["b"].asked_again == 2


def test_a_late_piece_is_asked_of_another_source_that_has_no_work() -> None:
    plan = PullPlan([1] * 2)
    assert (plan.take("slow", 0.0), plan.take("fast", 0.0)) == (0, 1)
    assert plan.arrived("fast", 1, 0.1)
    assert plan.take("fast", 0.15) is None  # not late: the fast one takes 0.1 s a piece
    assert plan.take("fast", 0.25) == 0
    assert plan.take("third", 9.0) is None  # two have it
    assert plan.arrived("fast", 0, 0.3)
    assert not plan.arrived("slow", 0, 0.4)
    assert plan.complete


# -- pacing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.05, 0.25, 1.0])
def test_no_more_than_the_share_is_used(share: float) -> None:
    rng, now = random.Random(1), 100.0
    budget, began = CpuBudget(share, 0.1, now), now
    for _ in range(2_000):
        used = rng.random() / 100
        now += used
        now += budget.charge(used, now)
        if rng.random() < 0.01:
            now += 3  # nobody asks for a while
        assert budget.used_s <= share * (now - began) + 0.1 + 0.01
    assert budget.used_s > 0.1 * share * (now - began)


def test_a_share_is_more_than_nothing() -> None:
    with pytest.raises(ValueError, match="a share of 0 of a core: more than 0 is expected"):
        CpuBudget(0, 0.1, 0.0)
