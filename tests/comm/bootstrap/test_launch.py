"""Rank and size: the variables of launchers, their precedence, and contradictions."""

from __future__ import annotations

import pytest

from softnic.comm.bootstrap.launch import LAUNCHERS, Launcher, from_environment, local_rank, ranks_here
from softnic.comm.errors import LaunchError


def test_a_process_without_a_launcher_is_the_only_rank() -> None:
    launch = from_environment({})
    assert (launch.rank, launch.size, launch.source) == (0, 1, "none")


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_variables_of_every_launcher(launcher: Launcher) -> None:
    launch = from_environment({launcher.rank: "2", launcher.size: "4"})
    assert (launch.rank, launch.size, launch.source) == (2, 4, launcher.name)
    assert launch.launcher == launcher


@pytest.mark.parametrize("first", range(len(LAUNCHERS)))
def test_the_first_launcher_takes_precedence(first: int) -> None:
    environment: dict[str, str] = {}
    for index, launcher in enumerate(LAUNCHERS[first:]):
        environment |= {launcher.rank: str(index), launcher.size: "9"}
    launch = from_environment(environment)
    assert (launch.rank, launch.source) == (0, LAUNCHERS[first].name)


def test_addresses_of_ranks() -> None:
    two = {"SOFTNIC_RANK": "1", "SOFTNIC_WORLD_SIZE": "2"}
    assert from_environment(two).addresses == (("10.77.0.1", 29477), ("10.77.0.2", 29478))
    assert from_environment(two | {"SOFTNIC_IP": "10.77.0.2"}).rank == 1
    peers = two | {"SOFTNIC_PEERS": "10.1.0.1, 10.1.0.9", "SOFTNIC_PORT": "5000", "SOFTNIC_RENDEZVOUS_TIMEOUT": "2.5"}
    assert from_environment(peers).addresses == (("10.1.0.1", 5000), ("10.1.0.9", 5001))
    assert from_environment(peers).timeout_s == 2.5


def test_the_default_addresses_exceed_one_byte() -> None:
    launch = from_environment({"SOFTNIC_RANK": "0", "SOFTNIC_WORLD_SIZE": "300"})
    assert launch.addresses[255][0] == "10.77.1.0"


ONE = {"SOFTNIC_RANK": "0", "SOFTNIC_WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"RANK": "1"}, "RANK is set and WORLD_SIZE is not"),
        ({"SOFTNIC_RANK": "2", "SOFTNIC_WORLD_SIZE": "2"}, "SOFTNIC_RANK=2 and SOFTNIC_WORLD_SIZE=2"),
        ({"SOFTNIC_RANK": "-1", "SOFTNIC_WORLD_SIZE": "2"}, "0 or more"),
        ({"SOFTNIC_RANK": "0", "SOFTNIC_WORLD_SIZE": "70000"}, "SOFTNIC_WORLD_SIZE=70000"),
        ({"PMI_RANK": "one", "PMI_SIZE": "2"}, "PMI_RANK='one' is not an integer"),
        ({"PMI_RANK": "", "PMI_SIZE": "2"}, "PMI_RANK='' is not an integer"),
        (ONE | {"SOFTNIC_PORT": "65535"}, "no valid port"),
        (ONE | {"SOFTNIC_PORT": "0"}, "no valid port"),
        (ONE | {"SOFTNIC_PEERS": "10.1.0.1"}, "1 addresses for 2 ranks"),
        (ONE | {"SOFTNIC_PEERS": "10.1.0.1,host"}, "'host' is not an IPv4 address"),
        (ONE | {"SOFTNIC_IP": "10.77.0.2"}, "rank 0 is at 10.77.0.1"),
        (ONE | {"SOFTNIC_RENDEZVOUS_TIMEOUT": "soon"}, "not a number of seconds"),
        (ONE | {"SOFTNIC_RENDEZVOUS_TIMEOUT": "0"}, "not a number of seconds"),
    ],
)
def test_contradictory_variables_are_named(environment: dict[str, str], text: str) -> None:
    with pytest.raises(LaunchError) as caught:
        from_environment(environment)
    assert text in str(caught.value)


@pytest.mark.parametrize("launcher", [each for each in LAUNCHERS if each.ranks_here])
def test_launchers_say_the_rank_on_this_host(launcher: Launcher) -> None:
    def found(rank: str, size: str) -> tuple[int, int] | None:
        return local_rank({launcher.local_rank: rank, launcher.ranks_here: size})

    assert found("2", "6") == (2, 6)
    assert [found(*texts) for texts in (("6", "6"), ("", "6"), ("0", ""), ("-1", "6"), ("0", "0"))] == [None] * 5
    assert local_rank({launcher.local_rank: "2"}) is None


@pytest.mark.parametrize("launcher", [each for each in LAUNCHERS if each.ranks_here])
def test_launchers_say_how_many_ranks_are_on_this_host(launcher: Launcher) -> None:
    assert ranks_here({launcher.ranks_here: "6"}) == 6
    assert [ranks_here({launcher.ranks_here: text}) for text in ("", "0", "-1", "many")] == [1, 1, 1, 1]
    assert ranks_here({}) == 1
