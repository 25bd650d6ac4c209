"""The arguments that say what a cluster's links are like, for `run` and `demo`, and the cluster that they describe."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from softnic import codecs
from softnic.cluster import Cluster
from softnic.cluster.nic_process import LINK, MAX_NODES, ClusterError
from softnic.commands import CommandError, argument, count

_MEANING = {
    "rate": ("how fast frames leave", "1gbit"),
    "delay": ("how long they are on their way", "50us"),
    "jitter": ("give or take this", "10us"),
    "loss": ("frames lost", "0.1%"),
    "duplicate": ("frames that come twice", "0.1%"),
    "reorder": ("frames that others overtake", "0.1%"),
    "corrupt": ("frames with a bit flipped", "0.1%"),
    "limit": ("what the link's queue holds", "256kb"),
}
"""Of the properties in LINK, with an example."""


def text(parse: Callable[[str], object]) -> Callable[[str], str]:
    """An argparse type: what `parse` understands, as it was written."""

    def check(given: str) -> str:
        parse(given)
        return given

    return argument(check)


def codec_name(given: str) -> str:
    """The full name of a codec. Raises ValueError."""
    return str(codecs.get(given))


def add_arguments(parser: argparse.ArgumentParser, *, rate: str | None = None, delay: str | None = None) -> None:
    """`rate` and `delay` are the default ones; None: as fast as the machine."""
    parser.add_argument("-n", "--nodes", type=count(1, MAX_NODES), default=4, metavar="N", help="nodes (4)")
    parser.add_argument(
        "--mode",
        choices=["fill", "packet"],
        default="fill",
        help="fill: compress, then cut into packets; packet: cut first, as hardware does (fill)",
    )
    parser.add_argument("--seed", type=count(0), default=7, metavar="N", help="of all randomness (7)")
    add_key(parser)
    link = parser.add_argument_group("links, on every node's way out")
    for name, (meaning, example) in _MEANING.items():
        default = {"rate": rate, "delay": delay}.get(name)
        said = f"{meaning}, as in {example}" + (f" ({default})" if default else "")
        link.add_argument(
            f"--{name}", type=text(LINK[name]), default=default, metavar="X", help=said.replace("%", "%%")
        )


def add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--key", action="store_true", help="seal all frames with a key made for this")


def add_link(parser: argparse.ArgumentParser, rate: str | None = None, delay: str | None = None) -> None:
    """The few properties that matter to those who measure; `rate` and `delay` are the default ones."""
    link = parser.add_argument_group("links, on every node's way out")
    for name, default, example in (("rate", rate, "1gbit"), ("delay", delay, "50us"), ("loss", None, "0.1%")):
        said = f"as in {example} ({default or 'as the machine has it'})"
        link.add_argument(
            f"--{name}", type=text(LINK[name]), default=default, metavar="X", help=said.replace("%", "%%")
        )


def link_of(args: argparse.Namespace) -> dict[str, str]:
    """Those that were given."""
    return {name: value for name in ("rate", "delay", "loss") if (value := getattr(args, name)) is not None}


def start_cluster(args: argparse.Namespace, codec: str | None = None, kind: type[Cluster] = Cluster) -> Cluster:
    """The cluster, of this kind, that the arguments describe. Raises CommandError where it does not start."""
    link = {name: getattr(args, name) for name in LINK}
    try:
        return kind(args.nodes, **link, codec=codec, mode=args.mode, seed=args.seed, key=args.key)
    except (ClusterError, ValueError) as error:
        raise CommandError(str(error)) from error
