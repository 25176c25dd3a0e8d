"""Influence of images on a number: how far it moves when images are left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.blocks import map_rows
from plumbline.catalog.schema import IDENTIFYING
from plumbline.catalog.suites import TASKS
from plumbline.language.cell import LanguageCell, LanguageSettings
from plumbline.language.registry import LANGUAGE_FAMILIES
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.disparities import RANGE_STATISTICS, SKEW_STATISTICS, ImageOutcomes
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.own import GAP, VALUE
from plumbline.metrics.predictions import EventPredictions, event_predictions
from plumbline.metrics.registry import FAMILIES
from plumbline.statistics.bootstrap import jackknife_tables
from plumbline.statistics.clusters import cluster_codes, cluster_tables, jackknife_clusters
from plumbline.statistics.groups import Groups, attribute_groups, shares

MOST_TOLD = 8
MOST_IMAGES = 6
"""Maximum number of images shown for one entry."""


@dataclass(frozen=True)
class Moved:
    """A unit that is left out, and the change of the number.

    Attributes
    ----------
    name : str
        An image, a set or a group, in words.
    without : float
        The number without it; nan where it is then undefined.
    change : float
        `without` less the number.
    images : tuple of str
        sha256 of images that are left out, those to be shown.
    of : int
        How many images the name stands for.
    alike : bool
        Whether any single one of them is left out, and not all of them together.
    """

    name: str
    without: float
    change: float
    images: tuple[str, ...]
    of: int
    alike: bool = False

    @property
    def label(self) -> str:
        """Return what is left out, in words."""
        if self.alike:
            return f"one of {self.of:,} images alike: {self.name}" if self.of > 1 else f"one image: {self.name}"
        return self.name if self.of == 1 else f"{self.name}: {self.of:,} images"


@dataclass(frozen=True)
class Influence:
    """The images that move a number most.

    Attributes
    ----------
    method : str
        What was left out, and how the number was found without it; where nothing could be left out, why.
    moved : tuple of Moved
        The largest changes first; those that change nothing are left out.
    """

    method: str
    moved: tuple[Moved, ...] = ()


def ranked(method: str, changes: Iterable[Moved]) -> Influence:
    """Return the largest changes first; units without which the number is undefined come last: they have no size."""
    moving = [one for one in changes if math.isnan(one.change) or abs(one.change) > 1e-12]
    moving.sort(key=lambda one: (math.isnan(one.change), -abs(one.change), one.name))
    return Influence(method if moving else f"{method} None of them changes it.", tuple(moving[:MOST_TOLD]))


def same_measure(rows: pl.DataFrame, row: Mapping[str, Any]) -> pl.DataFrame:
    """Return the rows that measure the same as `row`."""
    return rows.filter(pl.col(name).eq_missing(pl.lit(row[name], dtype=rows.schema[name])) for name in IDENTIFYING)


def value_of(rows: pl.DataFrame, row: Mapping[str, Any]) -> float:
    """Return the value of the row that measures the same as `row`; nan where there is none."""
    values = same_measure(rows, row)["value"].to_list()
    return math.nan if len(values) != 1 or values[0] is None else float(values[0])


def _moved(row: Mapping[str, Any], name: str, without: float, images: Sequence[str], *, alike: bool = False) -> Moved:
    """Return how far the number of a row moves without these images, the first of which are shown."""
    return Moved(name, without, without - row["value"], tuple(images[:MOST_IMAGES]), len(images), alike=alike)


def _undefined(row: Mapping[str, Any]) -> Influence | None:
    """Return the empty influence of an undefined number; None if the number is defined."""
    if row["value"] is not None and math.isfinite(row["value"]):
        return None
    return Influence(f"Not available: the number is undefined ({row['reason'] or 'no reason was recorded'}).")


def left_out(
    row: Mapping[str, Any],
    units: Mapping[str, tuple[str, ...]],
    recompute: Callable[[frozenset[str]], pl.DataFrame],
    *,
    method: str,
) -> Influence:
    """Compute a number anew without each of some units, one at a time.

    Parameters
    ----------
    row : mapping
        The metric row.
    units : mapping of str to tuple of str
        Name of a group or set -> its images.
    recompute : callable
        From the images that are left out to metric rows of the same kind.
    method : str
        What is done, for the reader.

    Returns
    -------
    Influence
        Without entries, and saying so, if the stored data no longer give the stored number.
    """
    if undefined := _undefined(row):
        return undefined
    again = value_of(recompute(frozenset()), row)
    if not same_number(again, row["value"]):
        return Influence(
            f"Not available: computed anew from the stored data this number is {again:.6g}. "
            "The code, or data that the number depends on besides the images, has changed since."
        )
    changes = (_moved(row, name, value_of(recompute(frozenset(images)), row), images) for name, images in units.items())
    return ranked(method, changes)


def same_number(one: float, other: float | None) -> bool:
    """Return whether two numbers agree up to rounding; no number agrees with none."""
    return other is not None and math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


# --- Leaving out one image, or one set, of a number that is a function of counts of answers: exact, for
# every image.

Value = Callable[[NDArray[np.int64]], NDArray[np.float64]]
_DISPARITIES = {(each.metric, each.definition): each for each in (*SKEW_STATISTICS, *RANGE_STATISTICS)}
_ALL = "all images"


@dataclass(frozen=True)
class _Counted:
    """A number as a function of (k, g, c) tables of counts, with the name of each outcome."""

    seen: ImageOutcomes
    value: Value
    outcomes: tuple[str, ...]
    surest: NDArray[np.float64]


def answer_influence(cell: Cell, row: Mapping[str, Any]) -> Influence | None:
    """Return which images move a number of the outcome suites most; None for a number of another kind.

    Images of one group with the same answer are alike: leaving out any one of them moves the number equally. Of each
    kind those are shown whose answer was the surest.
    """
    counted = _counted(cell, row)
    if counted is None:
        return None
    if undefined := _undefined(row):
        return undefined
    table = counted.seen.table
    if not same_number(float(counted.value(table[None])[0]), row["value"]):
        return Influence(
            "Not available: the stored answers are those of then, but the code of today makes another number of them."
        )
    return _of_images(cell, counted, row) if counted.seen.clusters is None else _of_sets(cell, counted, row)


def _counted(cell: Cell, row: Mapping[str, Any]) -> _Counted | None:
    if row["condition"] != "before" or row["statistic"] != "estimate":
        return None
    events = [event for event in event_predictions(cell) if _is_asked(event, row)]
    if row["suite"] == "outcomes":
        events = [event for task in TASKS for event in events if event.suite == task]
    if not events:
        return None
    groups = _groups(cell, row, events[0])
    if groups is None:
        return None
    kept = np.logical_and.reduce([event.kept for event in events])
    bits = np.arange(len(events))
    codes = np.stack([event.hit for event in events], axis=1) @ (1 << bits)
    membership = (np.arange(2 ** len(events)) >> bits[:, None]) & 1
    none = f"not given {events[0].event}" if len(events) == 1 else "given none of the events"
    names = [", ".join(e.event for e, holds in zip(events, pattern) if holds) for pattern in membership.T]
    seen = ImageOutcomes(
        replace(groups, codes=np.where(kept, groups.codes, -1)), codes, membership, cluster_codes(cell.records)
    )
    value = _value(seen, row)
    outcomes = tuple(f"given {name}" if name else none for name in names)
    return None if value is None else _Counted(seen, value, outcomes, _sureness(cell, events))


def _is_asked(event: EventPredictions, row: Mapping[str, Any]) -> bool:
    if row["suite"] == "outcomes":
        return event.skewed and row["event"] == "mean_of_tasks"
    return (event.suite, event.event) == (row["suite"], row["event"])


def _groups(cell: Cell, row: Mapping[str, Any], event: EventPredictions) -> Groups | None:
    if row["metric"] == "harm_rate":
        return Groups(_ALL, (_ALL,), np.zeros(cell.records.height, dtype=np.int64))
    return next((g for g in attribute_groups(cell.labels(event.suite)) if g.attribute == row["attribute"]), None)


def _value(seen: ImageOutcomes, row: Mapping[str, Any]) -> Value | None:
    kind = (row["metric"], row["definition"])
    disparity = _DISPARITIES.get(kind)
    if disparity is None and kind not in (("harm_rate", "top1"), ("outcome_proportion", "top1")):
        return None
    group = 0 if disparity or row["metric"] == "harm_rate" else seen.groups.names.index(row["group"])

    def value(tables: NDArray[np.int64]) -> NDArray[np.float64]:
        events = seen.events(tables)
        if disparity is None:
            return shares(events[..., 0, group], events[..., -1, group])
        return disparity.value(events[..., :-1, :], events[..., -1:, :])

    return value


def _sureness(cell: Cell, events: list[EventPredictions]) -> NDArray[np.float64]:
    """Return how far each image's best candidate is ahead of the best one that would have changed the answer."""
    if len(events) > 1:
        return np.zeros(cell.records.height)
    logits = cell.logits[events[0].suite]
    chosen = logits.suite.columns(*logits.suite.events[events[0].event])
    inside = np.isin(np.arange(logits.scores.shape[1]), chosen)
    ahead = map_rows(lambda each: each[:, inside].max(axis=1) - each[:, ~inside].max(axis=1), logits.scores)
    return np.abs(ahead.astype(np.float64))


def _of_images(cell: Cell, counted: _Counted, row: Mapping[str, Any]) -> Influence:
    seen, ids = counted.seen, cell.records["image_id"].to_numpy()
    left = jackknife_tables(seen.table, counted.value)
    changes = []
    for group, outcome in zip(*np.nonzero(left.counts)):
        rows = np.flatnonzero((seen.groups.codes == group) & (seen.codes == outcome))
        rows = rows[np.argsort(-counted.surest[rows], kind="stable")]
        name = f"{seen.groups.names[group]}, {counted.outcomes[outcome]}"
        changes.append(_moved(row, name, float(left.values[group, outcome]), tuple(ids[rows]), alike=True))
    method = (
        "One image is left out at a time; exact, for every image. Images of one group with the same answer move the "
        "number equally, so they are told together: the change is that of leaving out any single one of them. Shown "
        "are those whose answer was the surest."
    )
    return ranked(method, changes)


def _of_sets(cell: Cell, counted: _Counted, row: Mapping[str, Any]) -> Influence:
    seen, ids = counted.seen, cell.records["image_id"].to_numpy()
    assert seen.clusters is not None
    tables = cluster_tables(
        seen.groups.codes, seen.codes, seen.clusters, n_groups=seen.n_groups, n_outcomes=seen.n_outcomes
    )
    left = jackknife_clusters(tables, counted.value)
    names = cell.records["set_id"].cast(pl.String).to_list()
    changes = []
    for code, without in zip(np.unique(seen.clusters[seen.groups.codes >= 0]), left.values[0]):
        rows = np.flatnonzero((seen.clusters == code) & (seen.groups.codes >= 0))
        name = f"set {names[rows[0]]}" if names[rows[0]] is not None else f"image {ids[rows[0]][:12]}"
        changes.append(_moved(row, name, float(without), tuple(ids[rows])))
    return ranked("One set of images is left out at a time; exact, for every set.", changes)


# --- Leaving out one group or one set of images and computing a metric family anew.

MOST_SETS = 60
"""With more sets than this, groups are left out instead: each unit costs one computation of the family."""
_FEW_DRAWS = 100
_OF_THE_WHOLE_AUDIT = ("probe_rate_normalised", "template_rank_correlation")
_TRIDENT = "trident"
BY_GROUPS = "One group of images is left out at a time, and the metric computed anew from the others."
BY_SETS = "One set of images is left out at a time, and the metric computed anew from the others."


def encoder_influence(cell: Cell, row: Mapping[str, Any], *, settings: MetricSettings) -> Influence:
    """Return which images move a number of an encoder on a dataset most.

    By leaving out single images where the number is a function of counts of answers, else sets or groups. Where
    neither can be done the method says why.
    """
    if row["condition"] != "before" or row["definition"].startswith("test_rows"):
        return Influence(
            "Not available: what a mitigation was fitted on has a say in this number, so that leaving out images "
            "would mean fitting it again. Explain the same row under the condition `before`."
        )
    if row["metric"] in _OF_THE_WHOLE_AUDIT:
        return Influence("Not available: this number is computed from other numbers of the whole audit.")
    if row["metric"] in (VALUE, GAP):
        return Influence("Not available: a function of the audit file's own is not run to explain what it gave.")
    if (exact := answer_influence(cell, row)) is not None:
        return exact
    family = next((f for f in FAMILIES.values() if row["metric"] in f.metrics), None)
    suite = _suite(cell, row)
    logits_of_suite = {name: logits for name, logits in cell.logits.items() if _is_of(name, suite)} or dict(cell.logits)
    if family is None or not cell.records.height:
        return Influence("Not available: no metric family of this version computes this number.")
    quick = replace(settings, resamples=_FEW_DRAWS, permutations=_FEW_DRAWS)
    reduced, compute = replace(cell, logits=logits_of_suite), family.compute

    def recompute(without: frozenset[str]) -> pl.DataFrame:
        left = _without(reduced, without)
        if row["k"] is None:
            return compute(left, settings=quick)
        # Of fewer images the k best are fewer.
        n = left.records.height
        k = quick.skew_k if quick.skew_k == "auto" or quick.skew_k < n else n // 2
        return compute(left, settings=replace(quick, skew_k=k)).with_columns(k=pl.lit(row["k"], pl.Int64))

    units, method = _units(cell, row, suite)
    if row["k"] is not None and quick.skew_k == "auto":
        method += f" k, {row['k']:,} of all images, is chosen anew for those that are left."
    if not units:
        return Influence("Not available: the images of this dataset carry no labels by which to leave some out.")
    return left_out(row, units, recompute, method=method)


def language_influence(cell: LanguageCell, row: Mapping[str, Any], *, settings: LanguageSettings) -> Influence:
    """Return which pictured people move a number of a generative model most: whole sets, or groups."""
    family = next((f for f in LANGUAGE_FAMILIES.values() if row["metric"] in f.metrics), None)
    if family is None or settings.judge is not None or settings.annotations is not None:
        return Influence(
            "Not available: a judge's or people's labels have a say in this number, or no metric family of this "
            "version computes it."
        )
    quick = replace(settings, resamples=_FEW_DRAWS, permutations=_FEW_DRAWS)
    held = _collected(cell)

    def recompute(without: frozenset[str]) -> pl.DataFrame:
        return family.compute(_less(held, without), settings=quick).rows

    people = cell.expected.filter(pl.col("dataset") == row["dataset"])
    if row["attribute"] is not None and row["attribute"] in people["attribute"].to_list():
        people = people.filter(pl.col("attribute") == row["attribute"])
    sets = people.drop_nulls("set_id").select("image_id", pl.concat_str("subset", "set_id", separator=", set "))
    if 1 < sets["subset"].n_unique() <= MOST_SETS:
        return left_out(row, _gathered(sets, "subset"), recompute, method=BY_SETS)
    return left_out(row, _gathered(people.select("image_id", "group"), "group"), recompute, method=BY_GROUPS)


def _suite(cell: Cell, row: Mapping[str, Any]) -> str:
    # The mixed tests are asked with the prompts of the single ones.
    suite = str(row["suite"])
    return _TRIDENT if suite.startswith(_TRIDENT) and suite not in cell.logits else suite


def _is_of(name: str, suite: str) -> bool:
    return name.startswith(_TRIDENT) if suite.startswith(_TRIDENT) else name == suite


def _units(cell: Cell, row: Mapping[str, Any], suite: str) -> tuple[dict[str, tuple[str, ...]], str]:
    # An image that the suite's filter leaves out has no part in the number.
    records = cell.labels(suite).filter(pl.Series(cell.rows(suite)))
    sets = cluster_codes(records)
    if sets is not None and len(np.unique(sets)) <= MOST_SETS:
        named = records.select("image_id", pl.concat_str(pl.lit("set "), pl.col("set_id").cast(pl.String)).alias("set"))
        return _gathered(named.drop_nulls(), "set"), BY_SETS
    units: dict[str, tuple[str, ...]] = {}
    for groups in attribute_groups(records):
        if groups.attribute == "gender_race" and row["attribute"] != "gender_race":
            continue
        for code, name in enumerate(groups.names):
            chosen = records.filter(pl.Series(groups.codes == code))["image_id"]
            units[f"{groups.attribute}: {name}"] = tuple(chosen.to_list())
    return units, BY_GROUPS


def _gathered(images: pl.DataFrame, by: str) -> dict[str, tuple[str, ...]]:
    grouped = images.unique(maintain_order=True).group_by(by, maintain_order=True).agg("image_id").sort(by)
    return {str(name): tuple(ids) for name, ids in grouped.select(by, "image_id").iter_rows()}


def _without(cell: Cell, images: frozenset[str]) -> Cell:
    if not images:
        return cell
    keep = ~cell.records["image_id"].is_in(list(images)).to_numpy()

    def cut(logits: SuiteLogits) -> SuiteLogits:
        cosine = None if logits.cosine is None else logits.cosine[:][keep]
        return replace(logits, logits=logits.logits[:][keep], cosine=cosine)

    return replace(
        cell,
        records=cell.records.filter(pl.Series(keep)),
        logits={name: cut(logits) for name, logits in cell.logits.items()},
        keep={name: mask[keep] for name, mask in cell.keep.items()},
        relabelled={name: frame.filter(pl.Series(keep)) for name, frame in cell.relabelled.items()},
        images=None if cell.images is None else cell.images[keep],
    )


def _collected(cell: LanguageCell) -> LanguageCell:
    """Return the cell with its answers in memory: they are read once, and not once for every unit.

    In one chunk: on many, the streaming engine of polars 2.1 ends in a panic where texts are filtered.
    """
    return replace(
        cell,
        generations=cell.generations.collect().rechunk().lazy(),
        scores=cell.scores.collect().rechunk().lazy(),
        base_llm=None if cell.base_llm is None else _collected(cell.base_llm),
    )


def _less(cell: LanguageCell, images: frozenset[str]) -> LanguageCell:
    if not images:
        return cell
    kept = cell.generations.filter(~pl.col("image_id").is_in(list(images)))
    return replace(
        cell,
        generations=kept,
        scores=cell.scores.join(kept.select("row_key"), on="row_key", how="semi"),
        expected=cell.expected.filter(~pl.col("image_id").is_in(list(images))),
        base_llm=None if cell.base_llm is None else _less(cell.base_llm, images),
    )
