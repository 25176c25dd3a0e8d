"""The calibration bench in short: cells of every block with few worlds (`make bench-calibration` runs them all)."""

from importlib import import_module

import pytest

from benchmarks.calibration.__main__ import BLOCKS
from benchmarks.calibration.blocks import simulated

WORLDS = 30


@pytest.mark.parametrize("name", [name for name in BLOCKS if import_module(f"benchmarks.calibration.{name}").BLOCK.few])
def test_cells_keep_their_bars(name):
    block = import_module(f"benchmarks.calibration.{name}").BLOCK
    assert set(block.few) <= {cell.name for cell in block.cells}
    table = simulated(block, worlds=WORLDS, only=block.few)
    assert table["cell"].n_unique() == len(block.few)
    missed = table.filter(~table["kept"])
    assert missed.is_empty(), missed
