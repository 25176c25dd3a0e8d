"""Leaving out one group or one set of images and computing a metric family anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from plumbline.explain.answer_influence import answer_influence
from plumbline.explain.influence import Influence, left_out
from plumbline.language.cell import LanguageCell
from plumbline.language.registry import LANGUAGE_FAMILIES
from plumbline.language.settings import LanguageSettings
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.registry import FAMILIES
from plumbline.metrics.settings import MetricSettings
from plumbline.statistics.clusters import cluster_codes
from plumbline.statistics.groups import attribute_groups

MOST_SETS = 60
"""With more sets than this, groups are left out instead: every unit is a computation of its own."""
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
    if (exact := answer_influence(cell, row)) is not None:
        return exact
    family = next((f for f in FAMILIES.values() if row["metric"] in f.metrics), None)
    suite = _suite(cell, row)
    asked = {name: logits for name, logits in cell.logits.items() if _is_of(name, suite)} or dict(cell.logits)
    if family is None or not cell.records.height:
        return Influence("Not available: no metric family of this version computes this number.")
    quick = replace(settings, resamples=_FEW_DRAWS, permutations=_FEW_DRAWS)
    own, compute = replace(cell, logits=asked), family.compute

    def recompute(without: frozenset[str]) -> pl.DataFrame:
        return compute(_without(own, without), settings=quick)

    units, method = _units(cell, row, suite)
    if not units:
        return Influence(
            "Not available: the images of this dataset carry no labels by which to leave some out."
        )
    return left_out(row, units, recompute, method=method)


def language_influence(
    cell: LanguageCell, row: Mapping[str, Any], *, settings: LanguageSettings
) -> Influence:
    """Return which pictured people move a number of a generative model most: whole sets, or groups."""
    family = next(
        (f for f in LANGUAGE_FAMILIES.values() if row["metric"] in {t.name for t in f.traits}), None
    )
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
    sets = people.drop_nulls("set_id").select(
        "image_id", pl.concat_str("subset", "set_id", separator=", set ")
    )
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
    records = cell.labels(suite)
    sets = cluster_codes(records)
    if sets is not None and len(np.unique(sets)) <= MOST_SETS:
        named = records.select(
            "image_id", pl.concat_str(pl.lit("set "), pl.col("set_id").cast(pl.String)).alias("set")
        )
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
        cosine = None if logits.cosine is None else logits.cosine[keep]
        return replace(logits, logits=logits.logits[keep], cosine=cosine)

    return replace(
        cell,
        records=cell.records.filter(pl.Series(keep)),
        logits={name: cut(logits) for name, logits in cell.logits.items()},
        keep={name: mask[keep] for name, mask in cell.keep.items()},
        relabelled={name: frame.filter(pl.Series(keep)) for name, frame in cell.relabelled.items()},
        images=None if cell.images is None else cell.images[keep],
    )


def _collected(cell: LanguageCell) -> LanguageCell:
    """Return the cell with its answers in memory: they are read once, and not once for every unit."""
    return replace(
        cell,
        generations=cell.generations.collect().lazy(),
        scores=cell.scores.collect().lazy(),
        twin=None if cell.twin is None else _collected(cell.twin),
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
        twin=None if cell.twin is None else _less(cell.twin, images),
    )
