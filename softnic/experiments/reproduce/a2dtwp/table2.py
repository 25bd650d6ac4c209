"""A2DTWP's Tables II and III: what a batch of VGG's time goes to, with 32 bits and with A2DTWP."""

from __future__ import annotations

from softnic.experiments.plot import Bars
from softnic.experiments.report import Value, ValueColumn, ValueTable
from softnic.experiments.reproduce.a2dtwp import paper
from softnic.experiments.reproduce.a2dtwp.cases import Case, batches_of, case, differs
from softnic.experiments.reproduce.a2dtwp.costs import legs
from softnic.experiments.reproduce.a2dtwp.paper import Profile
from softnic.experiments.reproduce.a2dtwp.training import AWP_NAME
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.report import Item, percent

CODEC = "bounded:10"
"""Of gradients, where both legs are compressed."""
STEPS = (
    "weights down",
    "gradients up",
    "convolution",
    "fully connected",
    "forward, backward",
    "gradient sum",
    "update",
    "AWP (l2-norm)",
    "ADT (Bitpack)",
    "ADT (Bitunpack)",
)


def make(context: Context) -> Item:
    model = "vgg16" if "vgg16" in context.models else context.models[0]
    given = case(context, model, batches_of(context, model)[-1])
    both = legs(context, given.costs.computed.gradients, f"wa+{CODEC}+adt:8")
    here = {"32 bits": _here(given, 32), f"{_bits(given):.0f} bits": _here(given, _bits(given))}
    here["8 bits, both legs"] = {**_here(given, 8), "gradients up": 1e3 * both.up_s, "weights down": 1e3 * both.down_s}
    columns = {f"{system} {what}": _published(profile) for system in paper.SYSTEMS for what, profile in _pair(system)}
    columns |= {f"here {name}": steps for name, steps in here.items()}
    rows: list[list[Value]] = [[step, *(steps.get(step) for steps in columns.values())] for step in STEPS]
    rows.append(["total", *(_total(steps) for steps in columns.values())])
    return Item(
        "a2dtwp",
        "table2",
        "what a batch's time goes to",
        [
            ValueTable(
                f"Milliseconds of a batch; paper: VGG, batch 64, Tables II and III; here: {given.title}",
                [ValueColumn("step"), *(ValueColumn(name, ".2f") for name in columns)],
                rows,
            )
        ],
        [
            Bars(
                "Share of the time",
                "%",
                list(columns),
                {step: [100 * steps.get(step, 0) / _total(steps) for steps in columns.values()] for step in STEPS[:-2]},
                stacked=True,
            )
        ],
        [
            "Bitpack and Bitunpack are measured on one core here, on all weights to 8 bits; NICs do both during the "
            "transfer, so they are part of it and not of the total.",
            f"The middle column has the mean bits of {AWP_NAME}'s training; the last one compresses gradients, too, by "
            f"{CODEC}, which the paper leaves to other work.",
            *differs(context),
        ],
        [*_findings(given), *_published_findings()],
        {"case": given.title, "quick": context.quick},
    )


def _bits(given: Case) -> float:
    """Mean over A2DTWP's training, of all that was sent."""
    own = given.trainings[AWP_NAME]
    return 8 * own.sent[-1] / (own.looks[-1] + 1) / given.costs.floats


def _here(given: Case, bits: float) -> dict[str, float]:
    """Milliseconds by step."""
    costs, own = given.costs, given.costs.computed
    down = costs.least.down_s + (bits - 8) / 24 * (costs.whole.down_s - costs.least.down_s)
    steps = {
        "weights down": down,
        "gradients up": costs.whole.up_s,
        "forward, backward": own.learn_s,
        "gradient sum": costs.whole.sum_s,
        "update": own.update_s,
    }
    if bits < 32:
        steps |= {"AWP (l2-norm)": own.norms_s, "ADT (Bitpack)": own.pack_s, "ADT (Bitunpack)": own.unpack_s}
    return {step: 1e3 * seconds for step, seconds in steps.items()}


def _pair(system: str) -> list[tuple[str, Profile]]:
    whole, adaptive = paper.PROFILES[system]
    return [("32 bits", whole), (AWP_NAME, adaptive)]


def _published(given: Profile) -> dict[str, float]:
    steps = {
        "weights down": given.weights,
        "gradients up": given.gradients,
        "convolution": given.convolution,
        "fully connected": given.connected,
        "update": given.update,
        "AWP (l2-norm)": given.norms,
        "ADT (Bitpack)": given.bitpack,
        "ADT (Bitunpack)": given.bitunpack,
    }
    return {step: value for step, value in steps.items() if value}


def _total(steps: dict[str, float]) -> float:
    """Where there is no GPU, packing is part of the transfer."""
    return sum(value for step, value in steps.items() if "forward, backward" not in steps or "ADT" not in step)


def _findings(given: Case) -> list[str]:
    costs, own = given.costs, given.costs.computed
    gain = costs.whole.down_s / costs.least.down_s
    packed = 1e-9 * 4 * costs.floats
    theirs = " and ".join(f"1/{whole.weights / adaptive.weights:.2f}" for whole, adaptive in paper.PROFILES.values())
    return [
        f"With 8 bits the weights' leg takes 1/{gain:.2f} of its time with 32; with A2DTWP's it takes {theirs} in the "
        "paper (x86, POWER).",
        f"One core packs {packed / own.pack_s:.1f} GB/s and unpacks {packed / own.unpack_s:.1f}; AWP's norms take "
        f"{percent(own.norms_s / (own.norms_s + own.learn_s + own.update_s))} of the computing.",
    ]


def _published_findings() -> list[str]:
    lines = []
    for system, (whole, adaptive) in paper.PROFILES.items():
        gain = paper.GAINS[system]["vgg16"][64]
        lines.append(
            f"By the paper's own profile of {system}, a batch takes {percent(1 - adaptive.total / whole.total)} less "
            f"with A2DTWP ({whole.total:.0f} and {adaptive.total:.0f} ms); for VGG with batch 64 it states "
            f"{percent(gain, 2)}."
        )
    return lines
