"""Do intervals and tests keep their word? `python -m benchmarks.calibration [BLOCK…] [--worlds N] [--page FILE]`.

Prints for every block the worst cell beside its bar, and ends with 1 if a cell misses its bar by more than Monte Carlo
error. With `--page docs/calibration.md` the figures of each block that ran replace those on the page, so that the whole
can be run in parts.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path

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
    parser.add_argument("--page", type=Path, help="a page whose figures of these blocks are replaced")
    parser.add_argument("--processes", type=int, default=usable_cores(), help="one for each core by default")
    asked = parser.parse_args()
    failed = 0
    with ProcessPoolExecutor(asked.processes) as pool:
        for name in asked.blocks or BLOCKS:
            block, began = import_module(f"benchmarks.calibration.{name}").BLOCK, time.monotonic()
            worlds = asked.worlds or block.worlds
            table = simulated(block, worlds=worlds, pool=pool)
            missed = table.filter(~pl.col("kept"))
            failed += missed.height
            lines = [
                f"  bars: coverage {100 * block.coverage:.0f}%, level {100 * block.level:.0f}%, width {MOST_WIDTH}; "
                f"{len(block.cells)} cells, {worlds} worlds each, at {_commit()}",
                *worst(table, told_power=block.power is not None),
                *(f"  MISSES its bar: {row['number']} ({row['cell']})" for row in missed.iter_rows(named=True)),
            ]
            print("\n".join([block.title, *lines]), f"  {time.monotonic() - began:.0f} s", sep="\n")
            if asked.page:
                asked.page.write_text(on_page(asked.page.read_text(encoding="utf-8"), block.title, lines), "utf-8")
            shown = table if asked.all else missed
            if shown.height:
                with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=160, fmt_str_lengths=60, float_precision=3):
                    print(shown)
            sys.stdout.flush()
    print(f"{failed} cells miss their bar." if failed else "Every cell keeps its bars.")
    return int(failed > 0)


def on_page(page: str, title: str, lines: list[str]) -> str:
    """Return a page on which the figures under a title, in its one block of code, are these lines; added if new."""
    before, figures, after = page.split("```\n")
    wrapped = [part for line in lines for part in textwrap.wrap(line, 118, subsequent_indent=" " * 6)]
    blocks: dict[str, list[str]] = {}
    for line in figures.splitlines():
        if line.startswith(" "):
            blocks[next(reversed(blocks))].append(line)
        else:
            blocks[line] = []
    blocks[title] = wrapped
    return "```\n".join([before, "".join(f"{line}\n" for name in blocks for line in (name, *blocks[name])), after])


def _commit() -> str:
    """Return the last commit of the library, whose figures these are."""

    def git(*asked: str) -> str:
        found = subprocess.run(["git", *asked, "--", "plumbline"], capture_output=True, text=True, check=True)
        return found.stdout.strip()

    return git("log", "-1", "--format=%h") + (" and changes" if git("status", "--porcelain") else "")


if __name__ == "__main__":
    sys.exit(main())
