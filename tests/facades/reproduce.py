"""`softnic reproduce`: the figures and tables of the papers."""

from __future__ import annotations

from softnic.experiments.plot import Bars, Lines
from softnic.experiments.report import Value, ValueColumn, ValueTable
from softnic.experiments.reproduce import gradients, networks
from softnic.experiments.reproduce.a2dtwp import models as a2dtwp_models
from softnic.experiments.reproduce.a2dtwp import paper as a2dtwp_paper
from softnic.experiments.reproduce.a2dtwp.cases import BASELINE, Case
from softnic.experiments.reproduce.a2dtwp.cases import differs as a2dtwp_differs
from softnic.experiments.reproduce.a2dtwp.costs import Computed, Costs, Legs
from softnic.experiments.reproduce.a2dtwp.costs import _legs as legs_of
from softnic.experiments.reproduce.a2dtwp.training import AWP_NAME, Plan, Server, Training, sizes, trained
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.exchange import PIECE_WORDS, STRATEGIES, Sample, add_gamma, in_virtual_time, sample
from softnic.experiments.reproduce.inceptionn import digits, fig7, fig14, fig15, paper, table3
from softnic.experiments.reproduce.inceptionn.emulate import Aggregator, Exact, Ring
from softnic.experiments.reproduce.inceptionn.fig7 import Speed
from softnic.experiments.reproduce.inceptionn.fig13 import Progression, outcome
from softnic.experiments.reproduce.items import ITEMS, make
from softnic.experiments.reproduce.lgc import gradients as lgc_gradients
from softnic.experiments.reproduce.lgc import paper as lgc_paper
from softnic.experiments.reproduce.lgc.fig14 import _relative as relative_error
from softnic.experiments.reproduce.lgc.training import smoothed
from softnic.experiments.reproduce.report import Item, change, span
from softnic.experiments.reproduce.smartnic import fig2 as smartnic_fig2
from softnic.experiments.reproduce.smartnic import fig4 as smartnic_fig4
from softnic.experiments.reproduce.smartnic import paper as smartnic_paper
from softnic.experiments.reproduce.smartnic import perceptron

__all__ = [
    "AWP_NAME",
    "BASELINE",
    "ITEMS",
    "PIECE_WORDS",
    "STRATEGIES",
    "Aggregator",
    "Bars",
    "Case",
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
    "Training",
    "Value",
    "ValueColumn",
    "ValueTable",
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
    "networks",
    "outcome",
    "paper",
    "perceptron",
    "relative_error",
    "sample",
    "sizes",
    "smartnic_fig2",
    "smartnic_fig4",
    "smartnic_paper",
    "smoothed",
    "span",
    "table3",
    "trained",
]
