"""INCEPTIONN's Fig. 5 and Table III: gradients at three times of a training, by magnitude and by bits of the codec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.papers.context import Context
from benchmarks.papers.inceptionn import paper
from benchmarks.papers.inceptionn.lossy import (
    EDGES,
    EXACT,
    STAGES,
    TITLES,
    StageShares,
    differs,
    prepare,
    trainings,
)
from benchmarks.papers.item import Item, Row, ValueTable, span
from softnic.measure.plot import Lines

MODELS = ("alexnet", "hdc")
BITS = (2, 10, 18, 34)
_COLUMNS = (
    "model | time | step [d] | largest [.3g] | standard deviation [.2g] | below 2^-14 (%) [.1f] | "
    "below 2^-10 (%) [.1f] | below 2^-6 (%) [.1f] | from 1 on (%) [.4f]"
)
_BIT_COLUMNS = (
    "model | time | bound | 2-bit [.1f] | 10-bit [.1f] | 18-bit [.1f] | 34-bit [.1f] | paper 18-bit [.1f] | "
    "paper 34-bit [.1f]"
)

Stages = Mapping[str, Sequence[StageShares]]
"""By the time of the training, one for each seed."""


def make(context: Context) -> Item:
    models = context.only(MODELS)
    prepare(context, {model: [EXACT] for model in models})
    found = {model: _stages(context, model) for model in models}
    return Item(
        "gradients throughout a training",
        [
            ValueTable("Magnitudes; paper: Fig. 5", _COLUMNS, [row for each in found.items() for row in _rows(*each)]),
            ValueTable(
                "Share of the words (%) by bits; paper: Table III",
                _BIT_COLUMNS,
                [row for each in found.items() for row in _bit_rows(*each)],
                "bits",
            ),
        ],
        [_chart(model, stages) for model, stages in found.items()],
        [
            "The gradients of one worker, before the exchange. The paper shows AlexNet's, by a chart.",
            *differs(context, models),
        ],
        _findings(found),
        {"models": models},
    )


def _stages(context: Context, model: str) -> dict[str, list[StageShares]]:
    done = trainings(context, model, EXACT)
    names = list(STAGES)[-len(done[0].stages) :]
    return {name: [each.stages[index] for each in done] for index, name in enumerate(names)}


def _below(stage: StageShares, edge: float) -> float:
    return 100 * sum(stage.magnitudes[: EDGES.index(edge) + 1])


def _rows(model: str, stages: Stages) -> list[Row]:
    rows: list[Row] = []
    for time, of in stages.items():
        means = [float(np.mean([_below(stage, edge) for stage in of])) for edge in (EDGES[0], 2.0**-10, 2.0**-6)]
        outside = 100 * float(np.mean([stage.magnitudes[-1] for stage in of]))
        deviation = float(np.mean([stage.deviation for stage in of]))
        rows.append([TITLES[model], time, of[0].step, max(stage.largest for stage in of), deviation, *means, outside])
    return rows


def _bits(of: Sequence[StageShares], k: int) -> list[float]:
    means: list[float] = (100 * np.mean([stage.bits[str(k)] for stage in of], axis=0)).tolist()
    return means


def _bit_rows(model: str, stages: Stages) -> list[Row]:
    rows: list[Row] = []
    for time, of in stages.items():
        for index, k in enumerate(paper.BOUNDS):
            published = [100 * table[model][index] for table in (paper.TABLE_3_18_BIT, paper.TABLE_3_34_BIT)]
            rows.append([TITLES[model], time, f"2^-{k}", *_bits(of, k), *published])
    return rows


def _chart(model: str, stages: Stages) -> Lines:
    at = [float(np.log2(edge)) for edge in EDGES]
    series = {
        time: [float(np.mean([_below(stage, edge) for stage in of])) for edge in EDGES] for time, of in stages.items()
    }
    return Lines(f"{TITLES[model]}: gradients smaller than", "log2 of the magnitude", "%", at, series)


def _findings(found: Mapping[str, Stages]) -> list[str]:
    every = [(stages, of) for stages in found.values() for of in stages.values()]
    outside = max(stage.magnitudes[-1] for _, of in every for stage in of)
    at_10 = [_bits(of, 10)[0] for _, of in every]
    at_6 = [_bits(of, 6)[0] for _, of in every]
    low, high = paper.TWO_BITS_AT_10
    return [
        f"At most {100 * outside:.3f} % of the gradients of any stage are outside -1 and 1; the paper has none.",
        f"{span(at_10, '.0f')} % become two bits with 2^-10 (paper: {100 * low:.0f} to {100 * high:.0f} %), "
        f"{span(at_6, '.0f')} % with 2^-6 (paper: more than {100 * paper.TWO_BITS_AT_6:.0f} %).",
    ]
