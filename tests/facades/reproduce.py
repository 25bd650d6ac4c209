"""`softnic reproduce`: the figures and tables of the papers."""

from __future__ import annotations

from softnic.experiments.reproduce import (
    a2dtwp_models,
    a2dtwp_paper,
    digits,
    fig7,
    fig14,
    fig15,
    gradients,
    lgc_gradients,
    lgc_paper,
    models,
    paper,
    perceptron,
    smartnic_fig2,
    smartnic_fig4,
    table3,
)
from softnic.experiments.reproduce.a2dtwp_cases import BASELINE, Case
from softnic.experiments.reproduce.a2dtwp_cases import differs as a2dtwp_differs
from softnic.experiments.reproduce.a2dtwp_costs import Computed, Costs, Legs
from softnic.experiments.reproduce.a2dtwp_costs import _legs as legs_of
from softnic.experiments.reproduce.a2dtwp_training import AWP_NAME, Plan, Server, Training, sizes, trained
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.emulate import Aggregator, Exact, Ring
from softnic.experiments.reproduce.exchange import PIECE_WORDS, STRATEGIES, Sample, add_gamma, in_virtual_time, sample
from softnic.experiments.reproduce.fig7 import Speed
from softnic.experiments.reproduce.fig13 import Progression, outcome
from softnic.experiments.reproduce.items import ITEMS, make
from softnic.experiments.reproduce.lgc_fig14 import _relative as relative_error
from softnic.experiments.reproduce.lgc_training import smoothed
from softnic.experiments.reproduce.plot import Bars, Lines
from softnic.experiments.reproduce.report import Column, Item, Table, Value, change, span

__all__ = [
    "AWP_NAME",
    "BASELINE",
    "ITEMS",
    "PIECE_WORDS",
    "STRATEGIES",
    "Aggregator",
    "Bars",
    "Case",
    "Column",
    "Computed",
    "Context",
    "Costs",
    "Exact",
    "Item",
    "Legs",
    "Lines",
    "Plan",
    "Progression",
    "Ring",
    "Sample",
    "Server",
    "Speed",
    "Table",
    "Training",
    "Value",
    "a2dtwp_differs",
    "a2dtwp_models",
    "a2dtwp_paper",
    "add_gamma",
    "change",
    "digits",
    "fig7",
    "fig14",
    "fig15",
    "gradients",
    "in_virtual_time",
    "legs_of",
    "lgc_gradients",
    "lgc_paper",
    "make",
    "models",
    "outcome",
    "paper",
    "perceptron",
    "relative_error",
    "sample",
    "sizes",
    "smartnic_fig2",
    "smartnic_fig4",
    "smoothed",
    "span",
    "table3",
    "trained",
]
