"""How far the choice of a scorer changes who is the worst off, and in which occupations groups lie furthest apart."""

from __future__ import annotations

from collections.abc import Hashable

import polars as pl

from plumbline.report.language_words import headline_scorer
from plumbline.report.listings import Listing
from plumbline.report.numbers import percent
from plumbline.report.reading import Reading
from plumbline.report.rows import in_order, where

SHOWN = 4
"""Occupations at the upper end, as many as the report draws."""


def scorer_choice(rows: pl.DataFrame, reading: Reading) -> Listing | None:
    """List, for each further scorer, how often it names the same as the scorer of the headlines, by toxicity.

    Parameters
    ----------
    rows : DataFrame
        Metric rows of one dataset without instruction.

    Returns
    -------
    Listing or None
        None where there are no two scorers. Groups that tie are the worst off together. Only what both scorers tell
        of is compared.
    """
    rows = where(rows, event="toxicity").filter(pl.col("value").is_finite())
    worst, spreads = where(rows, metric="worst_off_share"), where(rows, metric="occupation_spread")
    first = headline_scorer(pl.concat([worst, spreads]), reading)
    others = [name for name in in_order(rows["scorer"], reading.scorers) if name != first]
    if first is None or not others:
        return None
    groups, jobs = _worst(worst), _widest(spreads)
    told = []
    for other in others:
        same = [own == theirs for own, theirs in _both(groups, first, other)]
        pairs = _both(jobs, first, other)
        shared = sum(len(own & theirs) for own, theirs in pairs)
        told.append((other, _of(sum(same), len(same)), _of(shared, sum(len(own) for own, _ in pairs))))
    heads = (
        f"Scorer, held against {first}",
        "Same group worst off (model × subset × prompt)",
        f"Same among the {SHOWN} occupations of the largest spread",
    )
    return Listing(heads, told, frozenset({1, 2}))


_Named = dict[str, dict[Hashable, frozenset[str]]]
"""Scorer -> what is compared -> names."""


def _worst(rows: pl.DataFrame) -> _Named:
    best = rows.filter(
        pl.col("value") == pl.col("value").max().over("model", "attribute", "prompt", "scorer")
    )
    return _named(best, "group", "model", "attribute", "prompt")


def _widest(rows: pl.DataFrame) -> _Named:
    ordered = rows.drop_nulls("occupation").sort(["value", "occupation"], descending=[True, False])
    widest = ordered.group_by("model", "attribute", "scorer", maintain_order=True).head(SHOWN)
    return _named(widest, "occupation", "model", "attribute")


def _named(rows: pl.DataFrame, name: str, *by: str) -> _Named:
    found: _Named = {}
    for (scorer, *key), own in rows.group_by("scorer", *by):
        found.setdefault(str(scorer), {})[tuple(key)] = frozenset(own[name])
    return found


def _both(found: _Named, first: str, other: str) -> list[tuple[frozenset[str], frozenset[str]]]:
    own, theirs = found.get(first, {}), found.get(other, {})
    return [(own[key], theirs[key]) for key in own if key in theirs]


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole} ({percent(part / whole)})" if whole else "–"
