"""Do intervals and tests keep their word? `python -m benchmarks.calibration [BLOCK…] [--worlds N] [--all]`.

Prints for every block the worst cell beside its bar, and ends with 1 if a cell misses its bar by more than Monte Carlo
error. docs/calibration.md is made from it.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module

import polars as pl

from benchmarks.calibration.blocks import MOST_WIDTH, simulated, worst
from plumbline.concurrency import usable_cores

BLOCKS = (
    "rows",
    "maxima",
    "sets",
    "few_sets",
    "audits",
    "unequal_spread",
    "selection",
    "floor",
    "corrected_labels",
    "few_checkpoints",
    "paired_effects",
    "power",
)
"""Modules of this package, in the order in which they are run."""


def main() -> int:
    """Run the blocks that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("blocks", nargs="*", metavar="BLOCK", help=f"of {', '.join(BLOCKS)}; all by default")
    parser.add_argument("--worlds", type=int, help="draws of each cell, instead of as many as the block says")
    parser.add_argument("--all", action="store_true", help="print every cell, not only the worst")
    asked = parser.parse_args()
    failed = 0
    with ProcessPoolExecutor(usable_cores()) as pool:
        for name in asked.blocks or BLOCKS:
            block, began = import_module(f"benchmarks.calibration.{name}").BLOCK, time.monotonic()
            table = simulated(block, worlds=asked.worlds or block.worlds, pool=pool)
            print(
                f"{block.title}\n  bars: coverage {100 * block.coverage:.0f}%, level {100 * block.level:.0f}%, "
                f"width {MOST_WIDTH}; {len(block.cells)} cells, {asked.worlds or block.worlds} worlds each, "
                f"{time.monotonic() - began:.0f} s"
            )
            print("\n".join(worst(table, told_power=block.power is not None)))
            missed = table.filter(~pl.col("kept"))
            failed += missed.height
            shown = table if asked.all else missed
            if shown.height:
                with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=160, fmt_str_lengths=60, float_precision=3):
                    print(shown)
            sys.stdout.flush()
    print(f"{failed} cells miss their bar." if failed else "Every cell keeps its bars.")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
