"""What a block of the calibration bench is: cells that are drawn many times, with the bars that each must keep.

A block is a module of this package with `BLOCK`. Its cells are drawn by functions of a seed, at the top level of the
module so that other processes find them; each drawing returns what the project's own functions report of one world,
together with the truth. The runner counts how often intervals hold the truth and how often p is at most 5%.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

NOMINAL = 0.95
LEAST_COVERAGE = 0.94
MOST_REJECTED = 0.06
MOST_WIDTH = 1.6
"""Times the width that version 0.5 gave, where that held by more than a standard error of the simulation."""
MONTE_CARLO = 3.0
"""Standard errors by which a cell may miss its bar: of several hundred cells, one in a thousand does by chance."""


@dataclass(frozen=True)
class Drawn:
    """One number of one simulated world, as the project reports it.

    Attributes
    ----------
    value : float
    truth : float
        What the interval should hold; where it cannot be written down, nan: then the mean value over all worlds.
    ci_low, ci_high : float
        nan where the interval is undefined.
    p : float
        nan where nothing was tested.
    null : bool
        Whether the hypothesis that p tests is true in this world.
    width_before : float
        Width of the interval that version 0.5 gave for the same data, nan where that is not compared.
    held_before : bool
        Whether that one held the truth.
    wrong : float
        Which share of what is claimed is not so, nan where that is not asked.
    told : bool
        Whether the difference is one that a test is told to find; otherwise it should find it less often than that.
    """

    value: float = np.nan
    truth: float = np.nan
    ci_low: float = np.nan
    ci_high: float = np.nan
    p: float = np.nan
    null: bool = False
    width_before: float = np.nan
    held_before: bool = False
    wrong: float = np.nan
    told: bool = True


@dataclass(frozen=True)
class Cell:
    """One setting of the world.

    Attributes
    ----------
    name : str
        Such as "7 groups x 300, base 10%, one apart".
    draw : callable
        From a seed to what is reported, by name of the number.
    """

    name: str
    draw: Callable[[int], Mapping[str, Drawn]]


@dataclass(frozen=True)
class Block:
    """Cells that belong together.

    Attributes
    ----------
    title : str
        What is asked of them, in a few words.
    cells : tuple of Cell
    worlds : int
        How often each cell is drawn.
    few : tuple of str
        Names of the cells of the short version, in `make test`.
    coverage, level : float
        Least share of intervals that hold the truth, most p at or below 5% where nothing differs; also the largest
        share of what is claimed that may be wrong.
    errors : float
        Standard errors of the simulation by which a cell may miss its bar.
    power : (float, float), optional
        Between which shares of worlds a test should find what differs.
    """

    title: str
    cells: tuple[Cell, ...]
    worlds: int = 1000
    few: tuple[str, ...] = ()
    coverage: float = LEAST_COVERAGE
    level: float = MOST_REJECTED
    errors: float = MONTE_CARLO
    power: tuple[float, float] | None = None


def simulated(
    block: Block, *, worlds: int, pool: Executor | None = None, only: Iterable[str] | None = None
) -> pl.DataFrame:
    """Draw the cells of a block and return one row for each cell and number.

    Returns
    -------
    DataFrame
        cell, number; worlds; undefined (share of intervals that are not there); coverage (among those that are; null
        where there is no truth or where fewer than half are defined); level (null where nothing is tested or something
        differs); power (where something does); width (median over that of version 0.5, null where not compared or
        where that held in less than 94%); kept (whether it keeps its bars, beyond Monte Carlo error).
    """
    rows = []
    for cell in block.cells:
        if only is not None and cell.name not in only:
            continue
        draws = list(
            (pool.map if pool else map)(partial(_one, cell), range(worlds), **({"chunksize": 20} if pool else {}))
        )
        for number in draws[0]:
            rows.append({"cell": cell.name, "number": number, **_row([draw[number] for draw in draws], block)})
    return pl.DataFrame(rows, infer_schema_length=None)


def _one(cell: Cell, seed: int) -> dict[str, Drawn]:
    return dict(cell.draw(seed))


def _row(draws: list[Drawn], block: Block) -> dict[str, object]:
    truth, low, high, p = (np.array([getattr(d, name) for d in draws]) for name in ("truth", "ci_low", "ci_high", "p"))
    if np.isnan(truth).all():
        truth = np.full(len(draws), np.mean([d.value for d in draws]))
    worlds = len(draws)
    defined = np.isfinite(low) & np.isfinite(high)
    asked = np.isfinite(truth).any()
    slack = 1e-9 * np.maximum(1.0, np.abs(truth))
    held = defined & (low <= truth + slack) & (high >= truth - slack)
    coverage = float(held.sum() / defined.sum()) if asked and defined.mean() >= 0.5 else None
    tested = np.isfinite(p)
    rejected = float((p[tested] <= 1 - NOMINAL + 1e-12).mean()) if tested.any() else None
    null = all(d.null for d in draws)
    before = np.array([d.width_before for d in draws])
    compared = defined & np.isfinite(before) & (before > 0)
    width = None
    held_before = np.mean([d.held_before for d in draws]) - _error(LEAST_COVERAGE, worlds)
    if compared.any() and held_before >= LEAST_COVERAGE:  # not by the luck of these worlds
        width = float(np.median(((high - low)[compared]) / before[compared]))
    shares = np.array([d.wrong for d in draws])
    wrong = None if np.isnan(shares).all() else float(shares.mean())
    kept = not (
        (coverage is not None and coverage < block.coverage - block.errors * _error(block.coverage, int(defined.sum())))
        or (
            null
            and rejected is not None
            and rejected > block.level + block.errors * _error(block.level, int(tested.sum()))
        )
        or (width is not None and width > MOST_WIDTH)
        or (block.power is not None and rejected is not None and _outside(rejected, block, draws))
        or (wrong is not None and wrong > block.level + block.errors * float(shares.std()) / np.sqrt(worlds))
    )
    return {
        "worlds": worlds,
        "undefined": float(1 - defined.mean()) if asked else None,
        "coverage": coverage,
        "level": rejected if null else None,
        "power": None if null else rejected,
        "width": width,
        "wrong": wrong,
        "kept": kept,
    }


def _outside(power: float, block: Block, draws: list[Drawn]) -> bool:
    least, most = block.power or (0.0, 1.0)
    too_low = power < least - block.errors * _error(least, len(draws)) and all(draw.told for draw in draws)
    return too_low or power > most + block.errors * _error(most, len(draws))


def _error(share: float, n: int) -> float:
    return float(np.sqrt(share * (1 - share) / max(n, 1)))


def worst(table: pl.DataFrame, *, told_power: bool = False) -> list[str]:
    """Return a line for each number of a block: its worst cells, beside the bars; its power where that has bars."""
    lines = []
    for (number,), rows in table.group_by("number", maintain_order=True):
        parts = []
        for column, descending in (
            ("coverage", False),
            ("level", True),
            ("width", True),
            ("wrong", True),
            *((("power", False), ("power", True)) if told_power else ()),
            ("undefined", True),
        ):
            seen = rows.filter(pl.col(column).is_not_null())
            if seen.height and (column != "undefined" or seen[column].max() > 0):
                row = seen.sort(column, descending=descending, maintain_order=True).row(0, named=True)
                value = f"{row[column]:.2f}" if column == "width" else f"{100 * row[column]:.1f}%"
                parts.append(f"{column} {value} ({row['cell']})")
        lines.append(f"  {number}: " + "; ".join(parts))
    return lines
