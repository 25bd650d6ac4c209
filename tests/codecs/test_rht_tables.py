"""The tables of rht are those of the format."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from softnic.codecs.rht_tables import rht_tables

GOLDEN = json.loads((Path(__file__).parents[1] / "vectors/rht-tables.json").read_text())
SIGNS = 0x9E3779B97F4A7C15F39CC0605CEDC834


@pytest.mark.parametrize("bits", [3, 4, 5, 6])
def test_the_tables_are_those_of_the_format(bits: int) -> None:
    tables = rht_tables(bits)
    for name in ("levels", "thresholds"):
        assert [f"{word:08x}" for word in getattr(tables, name).view(np.uint32).tolist()] == GOLDEN[str(bits)][name]
    assert tables.signs.tolist() == [SIGNS >> index & 1 for index in range(128)]


@pytest.mark.parametrize("bits", [2, 7])
def test_other_numbers_of_bits(bits: int) -> None:
    with pytest.raises(ValueError, match=f"not {bits}"):
        rht_tables(bits)
