"""What is calibrated: the rows of the metric families whose truth in a planted world can be written down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from benchmarks.calibration.blocks import Block, Cell, Drawn
from benchmarks.calibration.worlds import CORRELATION, effect_size, group_rates, log_top_shares, world
from plumbline.metrics import MetricSettings
from plumbline.metrics.registry import FAMILIES

TOP_SHARE = 0.5
"""k / n of the rows on a world of 400 images."""


@dataclass(frozen=True)
class Calibrated:
    """One number of a metric table.

    Attributes
    ----------
    title : str
    family : str
        Whose rows hold it.
    where : mapping of str to str
        Column to value: exactly one row of a world fulfils it.
    truth : callable
        Of beta.
    tested : bool
        Whether p is against "no difference between groups".
    """

    title: str
    family: str
    where: dict[str, str]
    truth: Callable[[float], float]
    tested: bool = True

    def drawn(self, table: pl.DataFrame, beta: float) -> Drawn:
        """Return value, ends and p of the one row, with the truth."""
        chosen = table.filter(pl.col(name) == value for name, value in self.where.items())
        if chosen.height != 1:
            raise ValueError(f"{self.title}: {chosen.height} rows, expected 1")
        row = chosen.select("value", "ci_low", "ci_high", "p").row(0, named=True)
        p = row.pop("p")
        return Drawn(**row, truth=self.truth(beta), p=p if self.tested else float("nan"), null=beta == 0)


def _gap(beta: float) -> float:
    rates = group_rates(beta)
    return float(rates.max() - rates.min())


def _weat(beta: float) -> float:
    # An image's score is (c - 1) x + sqrt(1 - c²) z, with x the planted and z the other normal variable.
    slope = CORRELATION - 1
    spread = slope**2 * (1 + beta**2) + 1 - CORRELATION**2
    return float(slope * 2 * beta / np.sqrt(spread))


READINGS = (
    Calibrated("outcome proportion of a group", "outcome_metrics", {"metric": "outcome_proportion", "group": "man"},
               lambda beta: float(group_rates(beta)[0]), tested=False),
    Calibrated("harm rate", "outcome_metrics", {"metric": "harm_rate"},
               lambda beta: float(group_rates(beta).mean()), tested=False),
    Calibrated("parity difference", "outcome_metrics", {"metric": "parity_difference"}, _gap),
    Calibrated("impact ratio", "outcome_metrics", {"metric": "impact_ratio"},
               lambda beta: float(group_rates(beta).min() / group_rates(beta).max())),
    Calibrated("Max Skew", "outcome_metrics", {"metric": "max_skew", "definition": "mean_over_pairs"},
               lambda beta: float(group_rates(beta).max() / group_rates(beta).min() - 1)),
    Calibrated("SC-WEAT effect size (two-sided p)", "association_metrics",
               {"metric": "sc_weat_effect", "definition": "two_sided", "event": "agency_negative"}, effect_size),
    Calibrated("SC-WEAT effect size (one-sided p)", "association_metrics",
               {"metric": "sc_weat_effect", "definition": "studentised", "event": "agency_negative"}, effect_size),
    Calibrated("WEAT effect size", "association_metrics", {"metric": "weat_effect", "definition": "two_sided"}, _weat),
    Calibrated("markedness of a group, %", "association_metrics",
               {"metric": "markedness", "definition": "photo", "group": "man"},
               lambda beta: 100 * float(group_rates(beta)[0]), tested=False),
    Calibrated("markedness gap, points", "association_metrics", {"metric": "markedness_gap"},
               lambda beta: 100 * _gap(beta)),
    Calibrated("valence correlation in a group", "association_metrics",
               {"metric": "valence_correlation", "group": "man"}, lambda _: CORRELATION, tested=False),
    Calibrated("Skew@k of a group", "ranking_metrics",
               {"metric": "skew_at_k", "definition": "ranked", "event": "agency_negative", "group": "man"},
               lambda beta: float(log_top_shares(beta, TOP_SHARE)[0])),
    Calibrated("MaxSkew@k", "ranking_metrics",
               {"metric": "max_skew_at_k", "definition": "ranked", "event": "agency_negative"},
               lambda beta: float(log_top_shares(beta, TOP_SHARE).max())),
    # What a ranking of this many images gives on average: no closed form, so the mean over the worlds stands for it.
    Calibrated("NDKL", "ranking_metrics", {"metric": "ndkl", "definition": "equal", "event": "agency_negative"},
               lambda _: float("nan")),
)  # fmt: skip


IMAGES = 400
STRENGTHS = (0.0, 0.1, 0.2, 0.4)


def drawn(seed: int, *, beta: float) -> dict[str, Drawn]:
    """Return every reading of one world."""
    cell = world(seed, beta=beta, n=IMAGES)
    settings = MetricSettings(seed=seed, resamples=400, permutations=399)
    tables = {
        name: FAMILIES[name].compute(cell, settings=settings) for name in dict.fromkeys(r.family for r in READINGS)
    }
    return {r.title: r.drawn(tables[r.family], beta) for r in READINGS}


BLOCK = Block(
    title=f"Rows of an audit: {IMAGES} faces of two groups, by strength of the planted association",
    cells=tuple(Cell(f"strength {beta}", partial(drawn, beta=beta)) for beta in STRENGTHS),
)
