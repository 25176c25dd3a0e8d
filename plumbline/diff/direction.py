"""Which way is worse: how far a metric lies from what it is where groups are treated alike."""

from __future__ import annotations

import math

import polars as pl

from plumbline.language.registry import LANGUAGE_FAMILIES
from plumbline.metrics.registry import METRICS
from plumbline.tables.generation_schema import SCORED_ATTRIBUTES

_IDEALS = {"zero": 0.0, "one": 1.0}
LOWER = ("harm_rate", "probe_rate", *SCORED_ATTRIBUTES)
"""Rates and scores of harm: no disparities, but less is better."""
HIGHER = ("macro_accuracy", "zero_shot_accuracy", "retrieval_recall", "retrieval_r_precision")


def fair_values() -> dict[str, float]:
    """Return metric -> the value that it has where groups are treated alike."""
    found = {name: _IDEALS[t.when_identical] for name, t in METRICS.items() if t.when_identical in _IDEALS}
    for family in LANGUAGE_FAMILIES.values():
        for traits in family.traits:
            if traits.when_identical is not None and not math.isnan(traits.when_identical):
                found[traits.name] = traits.when_identical
    return found


def directed_metrics() -> tuple[str, ...]:
    """Return the metrics of which it can be said that they got worse, by name."""
    return tuple(sorted({*fair_values(), *LOWER, *HIGHER}))


def headline_definitions() -> dict[str, str]:
    """Return metric -> the definition that stands for it, where one does."""
    of_encoders = {name: traits.headline for name, traits in METRICS.items()}
    of_answers = {t.name: t.headline for family in LANGUAGE_FAMILIES.values() for t in family.traits}
    return {name: headline for name, headline in (of_encoders | of_answers).items() if headline}


def worse(old: pl.Expr, new: pl.Expr) -> pl.Expr:
    """Return how far a metric moved away from what is fair; negative: towards it; null where that is not known."""
    metric = pl.col("metric")
    fair = metric.replace_strict(fair_values(), default=None, return_dtype=pl.Float64)
    return (
        pl.when(metric.is_in(LOWER))
        .then(new - old)
        .when(metric.is_in(HIGHER))
        .then(old - new)
        .otherwise((new - fair).abs() - (old - fair).abs())
    )
