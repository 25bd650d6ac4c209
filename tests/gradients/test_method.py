"""Properties of every method: names, state, statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from softnic import gradients
from softnic.gradients import Floats, Method, MethodError
from softnic.gradients.compressed import Compressed
from softnic.gradients.parameters import parse
from softnic.mpi.communicator import Communicator
from tests.gradients.feeding import SIZES, given, mean
from tests.mpi.ranks import run


@pytest.mark.parametrize("size", [1, 2, 3])
def test_exact_is_the_mean_on_every_rank(size: int) -> None:
    def program(comm: Communicator) -> dict[str, Floats]:
        mine = given(comm.rank)
        gradients.get("exact").average(comm, mine)
        return mine

    results = run(size, program)
    for name, expected in mean(size).items():
        np.testing.assert_allclose(results[0][name], expected, rtol=1e-5, atol=1e-9)
        assert len({result[name].tobytes() for result in results}) == 1


def test_stats_count_gradients_and_sent_bytes() -> None:
    def program(comm: Communicator) -> Method:
        method = gradients.get("exact")
        method.average(comm, given(comm.rank))
        method.average(comm, given(comm.rank))
        return method

    nbytes = 2 * 4 * sum(SIZES.values())
    stats = run(2, program)[0].stats
    assert (stats.calls, stats.given_bytes, stats.sent_bytes, stats.ratio) == (2, nbytes, nbytes, 1.0)


@pytest.mark.parametrize(
    ("codecs_", "algorithm"),
    [
        (("either", "rht:4", "bounded:10"), ""),
        (("either:bounded:14,rht:5", "rht:5", "bounded:14"), ""),
        (("either:bounded:14,rht:5", "rht:5", "bounded:14"), ",algorithm=ring"),
        (("either:auto:bounded:14, rht:5", "rht:5", "bounded:14"), ",ring"),
    ],
)
def test_compressed_either_has_the_codec_of_what_the_gradients_are(codecs_: tuple[str, ...], algorithm: str) -> None:
    def made(rank: int, filled: int, count: int) -> dict[str, Floats]:
        made = np.zeros(count, np.float32)
        made[:filled] = np.random.default_rng(rank).standard_normal(filled) * 0.01
        return {"weight": made}

    def program(comm: Communicator) -> list[tuple[str, bytes, int]]:
        found = []
        for filled, count in ((1 << 18, 1 << 18), (1000, 1 << 18), (1000, (1 << 18) - 1)):  # the last are too short
            for codec in codecs_:
                method = gradients.get(f"compressed:{codec}{algorithm}")
                mine = made(comm.rank, filled, count)
                method.average(comm, mine)
                found.append((codec, b"".join(each.tobytes() for each in mine.values()), method.stats.sent_bytes))
        return found

    first, second = run(2, program)
    assert [result[1] for result in first] == [result[1] for result in second]
    (dense, rht, _), (sparse, _, bounded), (short, rht_too, _) = first[:3], first[3:6], first[6:]
    assert [each[1:] for each in (dense, sparse, short)] == [each[1:] for each in (rht, bounded, rht_too)]


@pytest.mark.parametrize("text", ["nothing", "exact:1", "exact:rate=2", ""])
def test_an_unknown_method_is_refused(text: str) -> None:
    with pytest.raises(MethodError):
        gradients.get(text)


REFUSED = {
    "dgc:x": "dgc: density is 'x', and a number is expected",
    "dgc:nan": "dgc: density is 'nan', and a number is expected",
    "dgc:0.1,foo=2": "dgc has no parameter 'foo': it takes density, momentum, warmup, clip, nesterov, floor, full",
    "dgc:0.1,": "dgc: momentum is ''",
    "dgc:0.1,density=0.2": "dgc has density twice",
    "dgc:0.1,warmup=1.5": "dgc: warmup is '1.5', and an integer is expected",
    "dgc:0.1,nesterov=maybe": "dgc: nesterov is 'maybe', and 0 or 1 is expected",
    "dgc:1,0,0,0,0,0,0,7": "dgc takes no further argument '7': it takes density",
    "dgc:0.1,floor=-1": "floor is a number of elements",
    "scalecom:0.1,floor=-1": "floor is a number of elements",
    "exact:1": "exact takes no further argument '1': it takes none",
    "compressed:10": "'10' is not a codec",
    "compressed:,": "compressed: codec is empty",
    "compressed:bounded:10,algorithm=star": "algorithm is 'star': there are ring",
    "compressed:either:rht:4": "two codecs are expected, as in 'either:bounded:10,rht:4'",
    "compressed:either:rht:4,algorithm=ring": "two codecs are expected, as in 'either:bounded:10,rht:4'",
    "compressed:either:rht:4,": "'' is not a codec",
    "compressed:either:rht:4,raw,bounded:10": "algorithm is 'bounded:10': there are",
    "compressed:algorithm=ring,codec=either:raw,rht:4,ring": "compressed takes no further argument 'ring'",
    "feedback:either:bounded:14,rht:5": "`either` chooses a codec for each call: the method `compressed` takes it",
    "feedback:either": "`either` chooses a codec for each call: the method `compressed` takes it",
    "feedback:relative:x": "'relative:x': an integer is expected, as in relative:3",
    "lgc-ring:x=1": "lgc-ring has no parameter 'x': it takes share, full, learn",
    "lgc-ps:full=many": "lgc-ps: full is 'many', and an integer is expected",
}


@pytest.mark.parametrize("text", REFUSED)
def test_errors_about_parameters_name_the_expected_values(text: str) -> None:
    with pytest.raises(MethodError) as caught:
        gradients.get(text)
    assert REFUSED[text] in str(caught.value)
    assert "__init__" not in str(caught.value)


@pytest.mark.parametrize("text", [10, None, ["dgc"], b"dgc"])
def test_a_method_is_named_by_a_string(text: Any) -> None:
    with pytest.raises(MethodError, match="is given as a str"):
        gradients.get(text)


def test_parameters_may_have_names_or_not() -> None:
    assert gradients.get("dgc:0.1,0.5,3,nesterov=1").momentum == 0.5
    assert gradients.get("lgc-ps:0.01,full=1,innovation=0.5").name == "lgc-ps"


def test_a_codec_whose_name_has_a_comma_is_one_parameter() -> None:
    assert parse("compressed", Compressed, "algorithm=ring,codec=either:bounded:14,rht:5") == {
        "algorithm": "ring",
        "codec": "either:bounded:14,rht:5",
    }


def test_state_of_another_method_is_refused() -> None:
    method = gradients.get("exact")
    with pytest.raises(MethodError, match="not of 'exact'"):
        method.load_state_dict({**method.state_dict(), "method": "other"})


def test_a_parameter_whose_size_has_changed_is_refused() -> None:
    method = gradients.get("exact")
    method.kept("residual", "first", 10)
    with pytest.raises(MethodError, match="10 elements of first"):
        method.kept("residual", "first", 11)
