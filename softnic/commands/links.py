"""Command-line arguments of a cluster and its links, for `run`, `demo` and measurements."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Literal

from softnic import codecs, units
from softnic.arguments import argument, count
from softnic.cluster.cluster import Cluster
from softnic.cluster.nic_process import LINK, MAX_NODES, ClusterError
from softnic.commands import CommandError
from softnic.ipc.control import QUEUES

_HELP = {
    "rate": ("rate of transmission", "1gbit"),
    "delay": ("one-way delay", "50us"),
    "jitter": ("variation of the delay", "10us"),
    "loss": ("share of frames lost", "0.1%"),
    "duplicate": ("share of frames duplicated", "0.1%"),
    "reorder": ("share of frames delivered late", "0.1%"),
    "corrupt": ("share of frames with a flipped bit", "0.1%"),
    "limit": ("size of the queue", "256kb"),
}
"""Descriptions and examples of the properties in LINK."""


def text(parse: Callable[[str], object]) -> Callable[[str], str]:
    """Return an argparse type that accepts what `parse` accepts, and keeps the text."""

    def check(given: str) -> str:
        parse(given)
        return given

    return argument(check)


def codec_name(given: str) -> str:
    """Return the full name of a codec. Raises ValueError."""
    return str(codecs.get(given))


def add_arguments(parser: argparse.ArgumentParser, *, rate: str | None = None, delay: str | None = None) -> None:
    """Add the arguments of a cluster. `rate` and `delay` are defaults; None: not emulated."""
    parser.add_argument("-n", "--nodes", type=count(1, MAX_NODES), default=4, metavar="N", help="nodes (4)")
    parser.add_argument(
        "--mode",
        choices=["fill", "packet"],
        default="fill",
        help="fill: compress, then cut into packets; packet: cut first, as hardware does (fill)",
    )
    parser.add_argument("--seed", type=count(0), default=7, metavar="N", help="seed of all randomness (7)")
    add_key(parser)
    add_queues(parser)
    link = parser.add_argument_group("egress link of every node")
    for name, (meaning, example) in _HELP.items():
        default = {"rate": rate, "delay": delay}.get(name)
        description = f"{meaning}, as in {example}" + (f" ({default})" if default else "")
        link.add_argument(
            f"--{name}", type=text(LINK[name]), default=default, metavar="X", help=description.replace("%", "%%")
        )


def add_key(parser: argparse.ArgumentParser) -> None:
    """Add --key."""
    parser.add_argument(
        "--key", action="store_true", help="encrypt all frames with a key that is made for this cluster"
    )


def add_queues(parser: argparse.ArgumentParser) -> None:
    """Add --queues."""
    text = "queues of each NIC, with a thread each, on machines with cores to spare; auto: the cores by the nodes (1)"
    parser.add_argument("--queues", type=_queues, default=1, metavar="N", help=text)


def _queues(given: str) -> int | Literal["auto"]:
    if given == "auto":
        return "auto"
    if given not in map(str, QUEUES):
        raise argparse.ArgumentTypeError(f"{given!r} is not one of {', '.join(map(str, QUEUES))}, auto")
    return int(given)


def add_link(parser: argparse.ArgumentParser, rate: str | None = None, delay: str | None = None) -> None:
    """Add the link properties for measurements. `rate` and `delay` are defaults."""
    link = parser.add_argument_group("egress link of every node")
    for name, default, example in (("rate", rate, "1gbit"), ("delay", delay, "50us"), ("loss", None, "0.1%")):
        description = f"as in {example} ({default or 'not emulated'})"
        link.add_argument(
            f"--{name}", type=text(LINK[name]), default=default, metavar="X", help=description.replace("%", "%%")
        )


def add_poll(parser: argparse.ArgumentParser) -> None:
    """Add --poll."""
    parser.add_argument(
        "--poll", type=text(units.time_s), metavar="TIME", help="have NICs poll before they sleep, as in 20us (off)"
    )


def link_of(args: argparse.Namespace) -> dict[str, str]:
    """Return the properties of `add_link` that were given."""
    return {name: value for name in ("rate", "delay", "loss") if (value := getattr(args, name)) is not None}


def start_cluster(
    args: argparse.Namespace, codec: str | None = None, kind: Callable[..., Cluster] = Cluster
) -> Cluster:
    """Start the cluster that the arguments describe. Raises CommandError if it does not start."""
    link = {name: getattr(args, name) for name in LINK}
    try:
        return kind(args.nodes, **link, codec=codec, mode=args.mode, seed=args.seed, key=args.key, queues=args.queues)
    except (ClusterError, ValueError) as error:
        raise CommandError(str(error)) from error
