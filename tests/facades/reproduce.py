"""`softnic reproduce`: the figures and tables of the papers."""

from __future__ import annotations

from softnic.experiments.plot import Bars, Lines, draw
from softnic.experiments.report import Value
from softnic.experiments.reproduce import gradients, networks, over_nics, report, stored
from softnic.experiments.reproduce.a2dtwp import paper as a2dtwp_paper
from softnic.experiments.reproduce.a2dtwp import precision as a2dtwp_precision
from softnic.experiments.reproduce.a2dtwp.cases import ORACLE, SeedCase, WeightCase
from softnic.experiments.reproduce.a2dtwp.cases import differs as a2dtwp_differs
from softnic.experiments.reproduce.a2dtwp.costs import Computed, IterationCosts, Legs, legs_of
from softnic.experiments.reproduce.a2dtwp.training import (
    AWP_NAME,
    BASELINE,
    WeightPlan,
    WeightServer,
    WeightTraining,
    sizes,
    trained,
)
from softnic.experiments.reproduce.cache import cache_directory
from softnic.experiments.reproduce.claim import Results
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.inceptionn import (
    digits,
    fig1,
    fig4,
    fig5,
    fig7,
    fig13,
    fig14,
    fig15,
    learning_curves,
    lossy,
    packets,
    paper,
    table3,
)
from softnic.experiments.reproduce.inceptionn.emulate import EmulatedAggregator, EmulatedRing, exact_sum
from softnic.experiments.reproduce.inceptionn.fig7 import Speed
from softnic.experiments.reproduce.inceptionn.fig13 import ToAccuracy, outcome, reaches
from softnic.experiments.reproduce.item import Item, ValueTable, change, span
from softnic.experiments.reproduce.items import ITEMS, make
from softnic.experiments.reproduce.learner import block_of, enlarged, learner, samples
from softnic.experiments.reproduce.lgc import fig13 as lgc_fig13
from softnic.experiments.reproduce.lgc import fig14 as lgc_fig14
from softnic.experiments.reproduce.lgc import gradients as lgc_gradients
from softnic.experiments.reproduce.lgc import over_steps, rates, shapes, table6
from softnic.experiments.reproduce.lgc import paper as lgc_paper
from softnic.experiments.reproduce.lgc import training as lgc_training
from softnic.experiments.reproduce.lgc.selected import Accumulators, Selected, relative_error
from softnic.experiments.reproduce.lgc.training import MethodTraining, PhaseSteps, smoothed, summarised
from softnic.experiments.reproduce.over_nics import PIECE_WORDS, STRATEGIES, Sample, sample
from softnic.experiments.reproduce.smartnic import fig2b as smartnic_fig2b
from softnic.experiments.reproduce.smartnic import fig4b as smartnic_fig4b
from softnic.experiments.reproduce.smartnic import iterations, perceptron
from softnic.experiments.reproduce.smartnic import paper as smartnic_paper
from softnic.experiments.reproduce.units import Unit, made
from softnic.experiments.reproduce.verdicts import PAPERS
from softnic.experiments.reproduce.virtual import add_gamma, in_virtual_time

__all__ = [
    "AWP_NAME",
    "BASELINE",
    "ITEMS",
    "ORACLE",
    "PAPERS",
    "PIECE_WORDS",
    "STRATEGIES",
    "Accumulators",
    "Bars",
    "Computed",
    "Context",
    "EmulatedAggregator",
    "EmulatedRing",
    "Item",
    "IterationCosts",
    "Legs",
    "Lines",
    "MethodTraining",
    "PhaseSteps",
    "Results",
    "Sample",
    "SeedCase",
    "Selected",
    "Speed",
    "ToAccuracy",
    "Unit",
    "Value",
    "ValueTable",
    "WeightCase",
    "WeightPlan",
    "WeightServer",
    "WeightTraining",
    "a2dtwp_differs",
    "a2dtwp_paper",
    "a2dtwp_precision",
    "add_gamma",
    "block_of",
    "cache_directory",
    "change",
    "digits",
    "draw",
    "enlarged",
    "exact_sum",
    "fig1",
    "fig4",
    "fig5",
    "fig7",
    "fig13",
    "fig14",
    "fig15",
    "gradients",
    "in_virtual_time",
    "iterations",
    "learner",
    "learning_curves",
    "legs_of",
    "lgc_fig13",
    "lgc_fig14",
    "lgc_gradients",
    "lgc_paper",
    "lgc_training",
    "lossy",
    "made",
    "make",
    "networks",
    "outcome",
    "over_nics",
    "over_steps",
    "packets",
    "paper",
    "perceptron",
    "rates",
    "reaches",
    "relative_error",
    "report",
    "sample",
    "samples",
    "shapes",
    "sizes",
    "smartnic_fig2b",
    "smartnic_fig4b",
    "smartnic_paper",
    "smoothed",
    "span",
    "stored",
    "summarised",
    "table3",
    "table6",
    "trained",
]
