"""`softnic model`: predicts the cost of training on many nodes, and checks predictions in virtual time."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console

from softnic import units
from softnic.arguments import argument, count
from softnic.bench import calibrate, inputs
from softnic.cluster.nic_process import ClusterError
from softnic.commands import CommandError, add_json, check_writable, deliver_json, named, picture
from softnic.commands.links import codec_name, text
from softnic.measure.progress import shown
from softnic.measure.report import MeasurementError, draw_table, widen
from softnic.model import chart, check, layers, outer, parameters, predict

NAME = "model"
HELP = "predict iteration times for many nodes, calibrate and check the predictions"

PAPER = "paper"
NAMED = {PAPER: parameters.PAPER, "engines": parameters.ENGINES}
"""Instead of a file of parameters: those of Ma et al., and these with the engines of native/rtl."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  softnic model calibrate\n"
        "  softnic model predict --network resnet50 --batch 32 --rate 10gbit\n"
        "  softnic model predict --parameters paper --network mlp20 --batch 448 --rate 40gbit --png scaling.png\n"
        "  softnic model check --nodes 2,4,8\n"
        "  softnic model outer --rate 10mbit --step 2.5s"
    )
    kinds = parser.add_subparsers(metavar="calibrate|predict|check|exchange|outer", required=True, dest="what")
    for add in (_add_calibrate, _add_predict, _add_check, _add_exchange, _add_outer):
        add(kinds)


def run(args: argparse.Namespace) -> int:
    check_writable(args.json, getattr(args, "png", None))
    try:
        content, show = args.make(args)
    except (MeasurementError, ClusterError, ValueError) as error:
        raise CommandError(str(error)) from error
    if deliver_json(args.json, content):
        show()
    return 0


Result = tuple[Any, Callable[[], None]]
"""The content for JSON, and a function that prints it for people."""


def _add(kinds: Any, name: str, what: str, epilog: str, make: Callable[[argparse.Namespace], Result]) -> Any:
    parser = kinds.add_parser(
        name, help=what, description=what, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_json(parser)
    parser.set_defaults(make=make)
    return parser


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> None:
    """Print a table whose first `words` columns are left-justified."""
    table = draw_table([(heading, index < words) for index, heading in enumerate(headings)], rows)
    console = Console(markup=False)
    widen(console, table)
    console.print(table)


def _numbers(given: str) -> tuple[int, ...]:
    """Parse a list such as 2,4,8."""
    return tuple(dict.fromkeys(count(1, 1 << 20)(each) for each in given.split(",")))


# calibrate


def _add_calibrate(kinds: Any) -> None:
    parser = _add(
        kinds,
        "calibrate",
        "measure this machine: matrix products, sums, copies, updates, codecs, frames, latency, streams",
        "examples:\n  softnic model calibrate\n  softnic model calibrate --data hdc --codec bounded:8 --out here.json",
        _calibrate,
    )
    plan = calibrate.CalibrationSettings()
    add, codec = parser.add_argument, text(codec_name)
    add("--out", type=Path, metavar="FILE", help=f"output file ({parameters.default_path()})")
    add("--codec", type=codec, action="append", metavar="NAME", help=f"may be repeated ({', '.join(plan.codecs)})")
    data_help = f"gradients to encode ({plan.data})"
    add("--data", type=text(inputs.check), default=plan.data, metavar="NAME", help=data_help)
    rounds_help = "number of rounds; the median is reported (5)"
    add("--rounds", type=count(1, 1000), default=plan.rounds, metavar="N", help=rounds_help)
    nics_help = "start no daemons: latency 0, and streams at the rate of their links"
    add("--no-nics", action="store_true", help=nics_help)


def _calibrate(args: argparse.Namespace) -> Result:
    codecs = tuple(dict.fromkeys(args.codec or calibrate.CalibrationSettings.codecs))
    path = args.out or parameters.default_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    check_writable(path)
    plan = calibrate.CalibrationSettings(codecs, args.data, rounds=args.rounds, through_nics=not args.no_nics)
    with shown() as progress:
        machine = calibrate.run(plan, progress)
    with named(path):
        parameters.save(machine, path)

    def show() -> None:
        _table(("quantity", "figure"), _machine_rows(machine), words=2)
        rows = [
            (name, *(f"{each.beta(summed):.2f}" for summed in (1, 4, 32, 1024)), f"{each.alpha:.3f}",
             f"{each.encode_bytes_s / 1e9:.1f}", f"{each.decode_bytes_s / 1e9:.1f}")
            for name, each in machine.codecs.items()
        ]  # fmt: skip
        _table(("codec", "beta", "of 4", "of 32", "of 1024", "alpha", "encode GB/s", "decode GB/s"), rows)
        print(
            f"beta: compression ratio of gradients ({machine.data}), and of sums over 4, 32, 1024 ranks\n"
            f"written to {path}"
        )

    return asdict(machine), show


def _machine_rows(machine: parameters.Machine) -> list[tuple[str, str]]:
    stream = machine.stream_bytes_s
    return [
        ("machine", machine.description),
        ("P_Worker, matrix products", f"{machine.P_Worker / 1e9:.1f} GFLOP/s"),
        ("1 / gamma, sums", f"{machine.add_bytes_s / 1e9:.2f} GB/s"),
        ("memory, copies", f"{machine.memory_bytes_s / 1e9:.2f} GB/s"),
        ("updates with momentum", f"{machine.update_bytes_s / 1e9:.2f} GB/s"),
        ("alpha, payload in frames", f"{machine.alpha:.4f}"),
        ("latency through two NICs", units.text_time(machine.latency_s)),
        ("a stream through two NICs", "at the link's rate" if stream is None else f"{stream / 1e6:.0f} MB/s"),
    ]


# predict


def _add_predict(kinds: Any) -> None:
    parser = _add(
        kinds,
        "predict",
        "iteration time and scaling by strategy and nodes, from a machine's parameters",
        "examples:\n"
        "  softnic model predict --network alexnet --batch 64 --rate 1gbit --codec bfp:7\n"
        "  softnic model predict --network resnet50 --compute 120ms --rate 10gbit\n"
        "  softnic model predict --layers mine.json --batch 16 --rate 100gbit --ideal-nic --json -",
        _predict,
    )
    add = parser.add_argument
    add("--network", choices=tuple(layers.NETWORKS), default="mlp20", help="network (mlp20)")
    layers_help = 'JSON instead of a network: [{"parameters": .., "forward_flop": ..}, ..]'
    add("--layers", type=Path, metavar="FILE", help=layers_help)
    add("--batch", type=count(1, 1 << 30), default=32, metavar="B", help="examples in a worker's mini-batch (32)")
    add("--rate", type=argument(units.rate_bps), default="10gbit", metavar="X", help="rate of the links (10gbit)")
    add("--delay", type=argument(units.time_s), default="0s", metavar="X", help="delay of the links (0s)")
    codec_help = f"codec of the strategies with +c ({predict.RECOMMENDED}, or the first of --parameters)"
    add("--codec", type=text(codec_name), metavar="NAME", help=codec_help)
    nodes_help = "numbers of nodes (1,2,4 .. 1024)"
    add("--nodes", type=argument(_numbers), default=predict.NODES, metavar="N,N", help=nodes_help)
    add("--strategy", choices=predict.STRATEGIES, action="append", help="may be repeated (all)")
    machine_help = (
        f"output of calibrate, `{PAPER}` for Ma et al.'s prototype, or `engines` for it with the cycles of native/rtl "
        f"({parameters.default_path()})"
    )
    add("--parameters", metavar="FILE", help=machine_help)
    compute_help = "a step's time on one worker without exchange, as in 120ms (this machine's, by --parameters)"
    add("--compute", type=argument(units.time_s), metavar="TIME", help=compute_help)
    add("--ideal-nic", action="store_true", help="assume NICs that fill any link")
    add("--png", type=picture(".png"), metavar="FILE", help="write a chart (needs matplotlib)")


def _predict(args: argparse.Namespace) -> Result:
    machine = _machine(args.parameters)
    network = layers.load(args.layers) if args.layers else layers.network(args.network)
    codec = args.codec or predict.default_codec(machine)
    plan = predict.TrainingSetup(
        network=network,
        batch=args.batch,
        rate_bps=args.rate,
        delay_s=args.delay,
        codec=codec,
        nodes=args.nodes,
        strategies=tuple(dict.fromkeys(args.strategy or predict.STRATEGIES)),
        nic_limit=not args.ideal_nic,
        compute_s=args.compute,
    )
    rows = predict.predict(plan, machine)
    name = str(args.layers or args.network)
    computed = "" if args.compute is None else f", {units.text_time(args.compute)} of computation a step"
    title = (
        f"{name}: {len(network)} layers, {layers.parameters_of(network) / 1e6:.1f} million parameters, {args.batch} "
        f"examples a worker{computed}; {units.text_rate(args.rate)}, {codec}; {machine.description}"
    )
    if args.png:
        with named(args.png):
            chart.png(rows, args.png, title)

    def show() -> None:
        print(f"{title}\n\nmilliseconds an iteration (throughput of one node = 1)")
        groups = chart.series(rows)
        table = [
            (str(nodes), *(_cell(group[index]) for group in groups.values()))
            for index, nodes in enumerate(sorted(plan.nodes))
        ]
        _table(("nodes", *groups), table, words=0)
        print(f"chart written to {args.png}" if args.png else chart.text(rows))

    predictions = [asdict(row) for row in rows]
    return {"title": title, "compute_s": args.compute, "machine": asdict(machine), "predictions": predictions}, show


def _cell(row: predict.Prediction) -> str:
    return f"{1e3 * row.iteration.total_s:.1f} ({row.scaling:.3g})"


def _machine(given: str | None) -> parameters.Machine:
    if given in NAMED:
        return NAMED[given]
    path = Path(given) if given else parameters.default_path()
    if not given and not path.exists():
        raise CommandError(f"{path} does not exist: run softnic model calibrate, or use --parameters {PAPER}")
    return parameters.load(path)


# check, exchange


def _add_check(kinds: Any) -> None:
    parser = _add(
        kinds,
        "check",
        "compare the formulas with a virtual-time cluster, in which every byte passes through the whole stack",
        "examples:\n  softnic model check --nodes 2,4\n  softnic model check --strategy nic --strategy nic+c",
        _check,
    )
    _add_cases(parser, (2, 4, 8, 16, 32))


def _add_exchange(kinds: Any) -> None:
    parser = _add(
        kinds,
        "exchange",
        "simulate exchanges on growing virtual-time clusters (INCEPTIONN's Fig. 15)",
        "example:\n  softnic model exchange --nodes 4,8,16,32",
        _exchange,
    )
    _add_cases(parser, (4, 8, 16, 32))


def _add_cases(parser: Any, nodes: tuple[int, ...]) -> None:
    default = ",".join(map(str, nodes))
    parser.add_argument(
        "--nodes", type=argument(_numbers), default=nodes, metavar="N,N", help=f"numbers of workers ({default})"
    )
    parser.add_argument("--strategy", choices=check.STRATEGIES, action="append", help="may be repeated (all)")


def _run_cases(cases: Sequence[check.CheckCase], strategies: Sequence[str] | None) -> list[check.CheckResult]:
    """Simulate one case on each core: virtual times do not depend on the load."""
    chosen = [case for case in cases if not strategies or case.strategy in strategies]
    done: dict[check.CheckCase, check.CheckResult] = {}
    workers = min(len(os.sched_getaffinity(0)), len(chosen))
    with (
        Console(stderr=True, markup=False).status("starting") as status,
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
    ):
        for result in pool.map(check.check, chosen):
            done[result.case] = result
            status.update(f"{len(done)} of {len(chosen)} done; {_summary(result)}")
    return [done[case] for case in chosen]


def _summary(each: check.CheckResult) -> str:
    return f"{each.case.strategy}, {each.case.nodes} nodes, {each.case.name}: {each.error:+.2%}"


def _as_json(done: Sequence[check.CheckResult]) -> list[dict[str, Any]]:
    rows = []
    for each in done:
        case = {name: value for name, value in asdict(each.case).items() if name != "network"}
        rows.append({**case, "predicted_s": each.predicted_s, "simulated_s": each.simulated_s, "error": each.error})
    return rows


def _check(args: argparse.Namespace) -> Result:
    done = _run_cases(check.cases(args.nodes), args.strategy)

    def show() -> None:
        rows = [
            (
                each.case.strategy, each.case.name, units.text_rate(each.case.rate_bps), each.case.used_codec,
                str(each.case.nodes), f"{1e3 * each.predicted_s:.2f}", f"{1e3 * each.simulated_s:.2f}",
                f"{each.error:+.2%}",
            )
            for each in done
        ]  # fmt: skip
        _table(
            ("strategy", "layers", "links", "codec", "nodes", "predicted ms", "simulated ms", "error"), rows, words=4
        )
        worst = max(done, key=lambda each: abs(each.error))
        print(f"largest error: {_summary(worst)}")

    return _as_json(done), show


def _exchange(args: argparse.Namespace) -> Result:
    done = _run_cases(check.exchanges(args.nodes), args.strategy)

    def show() -> None:
        first = done[0].simulated_s
        rows = [
            (
                each.case.strategy, str(each.case.nodes), f"{1e3 * each.simulated_s:.2f}",
                f"{each.simulated_s / first:.2f}", f"{1e3 * each.predicted_s:.2f}", f"{each.error:+.2%}",
            )
            for each in done
        ]  # fmt: skip
        _table(("strategy", "nodes", "simulated ms", "of the first", "predicted ms", "error"), rows)
        case = done[0].case
        print(f"{case.name} of float32, links of {units.text_rate(case.rate_bps)}")

    return _as_json(done), show


# outer


def _add_outer(kinds: Any) -> None:
    parser = _add(
        kinds,
        "outer",
        "the share of time spent computing in local training with outer steps, by DiLoCo's formula and in virtual time",
        "examples:\n  softnic model outer\n  softnic model outer --weights 1000000000 --step 5s --rate 100mbit",
        _outer,
    )
    plan = outer.OuterCase()
    add = parser.add_argument
    add("--weights", type=count(1, 1 << 40), default=plan.parameters, metavar="N", help="of the model (100000000)")
    add("--step", type=argument(units.time_s), default=plan.step_s, metavar="TIME", help="of an inner step (2.5s)")
    every_help = "inner steps between two outer steps, a multiple of 4 (100)"
    add("--every", type=count(20, 1 << 20), default=plan.every, metavar="H", help=every_help)
    add("--nodes", type=count(2, 1 << 10), default=plan.nodes, metavar="N", help="number of ranks (4)")
    add("--rate", type=argument(units.rate_bps), default=plan.rate_bps, metavar="X", help="rate of the links (10mbit)")
    add("--delay", type=argument(units.time_s), default=plan.delay_s, metavar="X", help="delay of the links (10ms)")
    scale_help = "divide weights and step time by N in the simulation; 1, the whole model, takes minutes (10)"
    add("--scale", type=count(1, 1 << 20), default=10, metavar="N", help=scale_help)


def _outer(args: argparse.Namespace) -> Result:
    plan = outer.OuterCase(
        nodes=args.nodes,
        parameters=args.weights,
        rate_bps=args.rate,
        delay_s=args.delay,
        step_s=args.step,
        every=args.every,
    )
    with shown() as progress:
        done = []
        for case in outer.cases(plan):
            progress(case.way)
            done.append(outer.check_outer(case, args.scale))

    def show() -> None:
        rows = [
            (
                each.case.way, f"{outer.exchange_s(each.case):.2f}", f"{each.predicted:.3f}", f"{each.simulated:.3f}",
                units.text_time(each.least_step_s),
            )
            for each in done
        ]  # fmt: skip
        _table(("outer steps", "exchange s", "computing: formula", "simulated", f"step for {outer.ASKED}"), rows)
        print(
            f"{plan.parameters / 1e6:.1f} million weights, {plan.nodes} ranks, links of "
            f"{units.text_rate(plan.rate_bps)} and {units.text_time(plan.delay_s)}, "
            f"{plan.every} steps of {units.text_time(plan.step_s)}"
        )

    return [{**asdict(each), "case": asdict(each.case)} for each in done], show
