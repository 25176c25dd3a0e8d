"""Whole simulated audits: how often does a headline claim evidence that is not there?

An audit is three checkpoints on one dataset of faces of seven races and two genders, with the suites of outcomes,
Trident and perception words; its rows become a metric table, and that the headlines of a report. Images are random
vectors in which nothing depends on a group, but for checkpoints and attributes where a difference is planted.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import polars as pl

from benchmarks.calibration.blocks import Block, Cell, Drawn
from plumbline.catalog.schema import row_id
from plumbline.catalog.suites import Suite, load_suite
from plumbline.metrics import Cell as MetricCell
from plumbline.metrics import MetricSettings, SuiteLogits
from plumbline.metrics.registry import FAMILIES, metric_table
from plumbline.report.finding import DIFFERENCES, Finding, headlines
from plumbline.report.findings import picked_findings

MODELS = ("one", "two", "three")
RACES = ("White", "Black", "East Asian", "Indian", "Middle Eastern", "Latino_Hispanic", "Southeast Asian")
IMAGES = 700
DIMENSIONS = 12
NEGATIVE = {"crime", "non_human", "negative"}
FAMILY_NAMES = ("outcome_metrics", "trident_metrics", "association_metrics", "ranking_metrics")


@cache
def suites() -> tuple[Suite, ...]:
    """Return the suites of the audits."""
    names = ("crime", "communion", "agency", "perception")
    return (*(load_suite(name) for name in names), load_suite("trident", classes="fairface"))


def cell(rng: np.random.Generator, model: str, planted: dict[str, float]) -> MetricCell:
    """Draw the cell of one checkpoint: responses to every suite are products of random vectors.

    Parameters
    ----------
    planted : mapping
        "race" or "gender" -> by how many standard deviations images of its first group lie towards negative words.
    """
    race, gender = rng.integers(0, len(RACES), IMAGES), rng.integers(0, 2, IMAGES)
    towards = planted.get("race", 0.0) * (race == 0) + planted.get("gender", 0.0) * (gender == 0)
    images = rng.standard_normal((IMAGES, DIMENSIONS))
    images[:, 0] += towards
    logits = {}
    for suite in suites():
        texts = rng.standard_normal((len(suite.candidates), DIMENSIONS)) / np.sqrt(DIMENSIONS)
        # Along the planted direction nothing but what is negative differs.
        texts[:, 0] = [
            0.8 * (c.category in NEGATIVE or c.word in suite.scales.get("agency_negative", ()))
            for c in suite.candidates
        ]
        response = (images @ texts.T).astype(np.float32)
        logits[suite.id] = SuiteLogits(suite=suite, logits=response, cosine=response)
    records = pl.DataFrame(
        {
            "image_id": [f"{i:08x}" for i in range(IMAGES)],
            "race": [RACES[i] for i in race],
            "gender": [("man", "woman")[i] for i in gender],
        }
    )
    return MetricCell(model=model, dataset="faces", records=records, logits=logits, keep={})


def table(seed: int, planted: dict[str, dict[str, float]]) -> pl.DataFrame:
    """Return the metric table of an audit; `planted` by checkpoint, see `cell`."""
    rng = np.random.default_rng(seed)
    settings = MetricSettings(seed=seed, resamples=300, permutations=999)
    frames = []
    for model in MODELS:
        drawn = cell(rng, model, planted.get(model, {}))
        frames += [FAMILIES[name].compute(drawn, settings=settings) for name in FAMILY_NAMES]
    lineage = [pl.lit(None, pl.String).alias(name) for name in ("cell_id", "audit_id")]
    return metric_table([frame.with_columns(lineage) for frame in frames], audit_id="simulated")


def claims(metrics: pl.DataFrame) -> list[Finding]:
    """Return the headlines that claim evidence of a difference between groups."""
    return [finding for finding in headlines(picked_findings(metrics)) if finding.tone in DIFFERENCES]


def is_true(finding: Finding, metrics: pl.DataFrame, planted: dict[str, dict[str, float]]) -> bool:
    """Return whether what a finding claims was planted: of its checkpoint, its attribute and what is asked."""
    row = metrics.row(named_rows(metrics)[finding.row], named=True)
    attributes = planted.get(row["model"], {})
    # Of perception words one scale lies along the planted direction.
    asked = row["suite"] != "perception" or "agency" in str(row["event"])
    return asked and any(name in str(row["attribute"]) for name in attributes)


def named_rows(metrics: pl.DataFrame) -> dict[str, int]:
    """Return the place of each row of a table by its name."""
    return {row_id(row): i for i, row in enumerate(metrics.iter_rows(named=True))}


def nothing_planted(seed: int) -> dict[str, Drawn]:
    """Return whether any headline of an audit without any difference claims one."""
    return {"any headline claims evidence": Drawn(p=0.0 if claims(table(seed, {})) else 1.0, null=True)}


def some_planted(seed: int, *, shift: float) -> dict[str, Drawn]:
    """Return which share of the headlines that claim evidence is wrong, where some checkpoints are biased by race."""
    planted = {"one": {"race": shift}, "two": {"race": shift / 2}}
    metrics = table(seed, planted)
    told = claims(metrics)
    wrong = [not is_true(finding, metrics, planted) for finding in told]
    return {"headlines that are wrong": Drawn(wrong=float(np.mean(wrong)) if told else 0.0)}


BLOCK = Block(
    title=f"Whole audits: {len(MODELS)} checkpoints, {IMAGES} faces of seven races and two genders",
    cells=(Cell("nothing planted", nothing_planted), Cell("a little planted", partial(some_planted, shift=0.5))),
    worlds=300,
    level=0.05,
    errors=1.65,
)
