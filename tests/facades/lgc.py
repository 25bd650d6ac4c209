"""Learned gradient compression: phases, selection, autoencoder."""

from __future__ import annotations

from softnic.gradients.lgc.autoencoder import Autoencoder, code_words, padded
from softnic.gradients.lgc.phases import COMPRESSED, FULL, LEARN, Lgc
from softnic.gradients.lgc.ring import LgcRing
from softnic.gradients.lgc.selection import (
    Layout,
    largest,
    layer_of,
    layout,
    pack_indices,
    scales,
    select,
    selected_of,
    spread,
    unpack_indices,
)
from softnic.gradients.lgc.server import LgcServer

__all__ = [
    "COMPRESSED",
    "FULL",
    "LEARN",
    "Autoencoder",
    "Layout",
    "Lgc",
    "LgcRing",
    "LgcServer",
    "code_words",
    "largest",
    "layer_of",
    "layout",
    "pack_indices",
    "padded",
    "scales",
    "select",
    "selected_of",
    "spread",
    "unpack_indices",
]
