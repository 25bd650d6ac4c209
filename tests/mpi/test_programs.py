"""Random programs over real NICs: a few dozen of the thousand that `python -m tests.mpi.programs` runs."""

from __future__ import annotations

import numpy as np
import pytest

from softnic import MPI, codecs
from softnic.collectives.elements import named
from softnic.mpi.collectives import execution
from softnic.mpi.communicator import Communicator
from tests.mpi.programs.check import UFUNCS, Mismatch, check, rounding_error
from tests.mpi.programs.contents import contribution
from tests.mpi.programs.program import COLLECTIVES, DTYPES, MOST_ELEMENTS, MOST_RANKS, Call, make, operations
from tests.mpi.programs.rank import Rank
from tests.mpi.programs.runner import differing, run
from tests.mpi.ranks import run as run_threads
from tests.slow import slow_after


@pytest.mark.parametrize("ranks", slow_after(1, [2, 5]))
def test_programs_over_nics(ranks: int) -> None:
    options = [{"seed": seed, "size": ranks, "most_elements": 50_000} for seed in range(12)]
    failures = list(run(options))
    assert not failures, "\n".join(f"seed {failure.program.seed}: {failure.text}" for failure in failures)


@pytest.mark.parametrize(("ranks", "chunk_bytes"), [(1, 1 << 20), (3, 1 << 20), (3, 256)])
def test_programs_of_threads(ranks: int, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocking calls, over kernel sockets that round what is tagged; also with contributions that come in chunks."""
    monkeypatch.setattr(execution, "CHUNK_BYTES", chunk_bytes)
    for seed in range(20):
        program = make(seed, nonblocking=False, most_elements=3000, size=ranks)

        def result(comm: Communicator) -> list[int]:
            return Rank(comm, program).run()  # noqa: B023

        assert not differing(program, run_threads(ranks, result)), seed


def test_programs_are_of_their_seed_and_have_everything_in_them() -> None:
    programs = [make(seed) for seed in range(1000)]
    calls = [call for program in programs for call in program.calls]
    assert programs[:50] == [make(seed) for seed in range(50)]
    assert {program.size for program in programs} == set(range(1, MOST_RANKS + 1))
    assert {call.collective for call in calls} == set(COLLECTIVES)
    assert {call.op for call in calls} == set(UFUNCS)
    assert {call.op for call in calls if call.dtype == "bool"} == {"LAND", "LOR", "LXOR"}
    assert min(call.count for call in calls) == 0
    assert MOST_ELEMENTS / 2 < max(call.count for call in calls) <= MOST_ELEMENTS
    for flag in ("compressed", "in_place", "registered", "nonblocking", "polls"):
        assert {getattr(call, flag) for call in calls} == {False, True}
    assert sum(call.nonblocking and call.wait_after > call.index for call in calls) > 500  # several in flight


@pytest.mark.parametrize("dtype", sorted(set(DTYPES)))
def test_programs_have_the_operations_that_their_types_have(dtype: str) -> None:
    """All that programs have at all: none is forgotten, none refused. Of integers, not the logical ones."""
    taken = {name for name in UFUNCS if getattr(MPI, name).takes(named(dtype))}
    if named(dtype).kind in "iu":
        taken -= {"LAND", "LOR", "LXOR"}
    assert set(operations(dtype)) == taken


def reduction(dtype: str = "float32", codec: str | None = None, op: str = "SUM") -> Call:
    return Call(
        0, "allreduce", dtype, 100, op, 0, None, codec is not None, codec, None, False, False, False, 0, False, 1.0
    )


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (reduction(), 1e-4),
        (reduction("float64"), 1e-12),
        (reduction("float16"), 0.1),
        (reduction("int32"), 1),
        (reduction("float32", op="MAX"), 1e-6),
        (reduction("float32", "bounded:10"), 0.01),
        (reduction("float64", "bounded:10"), 0.01),
        (reduction("complex64", "bounded:10"), 1e-4),
    ],
    ids=lambda value: f"{value.dtype}-{value.codec}-{value.op}" if isinstance(value, Call) else str(value),
)
def test_a_result_that_is_off_is_found(call: Call, error: float) -> None:
    """Programs would not pass whatever they gave."""
    parts = [contribution(3, call, rank).astype("f8" if "float" in call.dtype else call.dtype) for rank in range(3)]
    right = UFUNCS[call.op].reduce(parts).astype(call.dtype)
    check(3, call, 3, right, slice(0, 100))
    right[7] += right.dtype.type(error)
    with pytest.raises(Mismatch, match="1 of 100 elements"):
        check(3, call, 3, right, slice(0, 100))


@pytest.mark.parametrize(
    "name", ["bounded:4", "bounded:12", "inceptionn:8", "inceptionn:12", "bfp:3", "bfp:7", "bfp:15", "truncate:8",
             "truncate:12", "truncate:23", "truncate:32"],
)  # fmt: skip
def test_what_is_allowed_is_what_codecs_do(name: str) -> None:
    """The bounds hold, and are not far from what happens."""
    codec, rng = codecs.get(name), np.random.default_rng(5)
    for greatest in (0.01, 0.3, 1.0, 20.0):
        words = rng.uniform(-greatest, greatest, 1 << 16).astype(np.float32)
        words[0] = greatest
        worst = float(np.abs(codec.roundtrip(words).astype(np.float64) - words).max())
        bound = rounding_error(codec, float(np.abs(words).max()))
        assert worst <= bound
        if greatest >= 0.3 and not (codec.name == "truncate" and codec.parameter == 32):
            assert worst > bound / 8 or greatest > 1


def test_ranks_that_hold_different_bits_are_found() -> None:
    program = make(0)
    same = [0] * len(program.calls)
    assert not differing(program, [same, same])
    assert "different bits" in differing(program, [same, [*same[:-1], 1]])
