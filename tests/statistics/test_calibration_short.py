"""The calibration bench in short: cells of every block with few worlds (`make bench-calibration` runs them all)."""

from importlib import import_module

import pytest

from benchmarks.calibration.__main__ import BLOCKS
from benchmarks.calibration.blocks import simulated

WORLDS = {"unequal_spread": 100}
"""Of block; 30 of the others. The test of its cell rejects in 5.8% of 4,000 worlds, and in 6 of the first 30."""


@pytest.mark.parametrize("name", [name for name in BLOCKS if import_module(f"benchmarks.calibration.{name}").BLOCK.few])
def test_cells_keep_their_bars(name):
    block = import_module(f"benchmarks.calibration.{name}").BLOCK
    assert set(block.few) <= {cell.name for cell in block.cells}
    table = simulated(block, worlds=WORLDS.get(name, 30), only=block.few)
    assert table["cell"].n_unique() == len(block.few)
    missed = table.filter(~table["kept"])
    assert missed.is_empty(), missed
