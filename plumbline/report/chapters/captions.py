"""PATA's own captions: who is given a negative one, scene by scene."""

from __future__ import annotations

import polars as pl

from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.outcomes import (
    CAPTION_ATTRIBUTES,
    CAPTION_SUITE,
    caption_event,
    caption_shares,
    captions_by_scene,
)
from plumbline.report.disparity import Disparity, fallback_finding
from plumbline.report.evidence import evidence, finding_of, subject_of, uncertainty
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.numbers import number, percent
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, in_order, or_nan, reason_of, where
from plumbline.report.vocabulary import attribute_title, group_faces, sentence_start


def caption_table(table: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the caption suite."""
    return where(table, suite=CAPTION_SUITE, condition="before")


def over_scenes(table: pl.DataFrame, attribute: str) -> pl.DataFrame:
    """Return the rows over all scenes of one attribute's captions, without those by scene."""
    rows = where(caption_table(table), event=caption_event(attribute), probe=None)
    return rows.filter(pl.col("attribute").is_null() | (pl.col("attribute") == attribute))


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = caption_table(table)
    datasets = inputs.datasets_in(used["dataset"])
    return [_part(where(used, dataset=dataset), inputs, dataset) for dataset in datasets]


def _part(own: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Part:
    by_group = caption_shares(own, inputs.audit, inputs.models, dataset)
    by_scene = [
        captions_by_scene(own, inputs.audit, model=model, dataset=dataset, attribute=attribute)
        for attribute in CAPTION_ATTRIBUTES
        for model in _most_uneven_first(own, inputs.models, attribute)[:1]
    ]
    several = own["model"].n_unique() > 1
    notes = ["Scenes are drawn for the model whose groups differ most; the table of all numbers has every model's."]
    return Part.of(dataset, [by_group, *by_scene], notes=notes if several else ())


def _most_uneven_first(own: pl.DataFrame, models: tuple[str, ...], attribute: str) -> list[str]:
    gaps = by(where(over_scenes(own, attribute), metric="parity_difference"), "model")
    names = in_order(over_scenes(own, attribute)["model"], models)

    def gap(name: str) -> float:
        value = or_nan(gaps.get((name,), {}).get("value"))
        return value if defined(value) else 0.0

    return sorted(names, key=lambda name: -gap(name))


def caption_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return for each model, dataset and attribute whether its groups are given negative captions equally often."""
    rows = where(caption_table(table), metric="max_skew", definition="mean_over_pairs", probe=None)
    return [_finding(row, table, reading) for row in rows.to_dicts()]


def _finding(row: Row, table: pl.DataFrame, reading: Reading) -> Finding:
    what = f"{attribute_title(row['attribute'])} skew in PATA's negative captions"
    subject = subject_of(row)
    topic = ("captions", row["dataset"], row["attribute"])
    disparity = Disparity.of(row, table)
    if instead := fallback_finding(disparity, what, topic, reading):
        return instead
    stated = f"{number(row['value'])} ({uncertainty(row, reading)})"
    if not defined(row["value"]):
        tone, short = "undefined", f"{what}: undefined"
        sentence = f"{subject}: {what} is undefined: {reason_of(row)}."
    elif evidence(row, reading):
        tone, short = "bias", sentence_start(what)
        sentence = f"{subject}: {what} is {stated}.{disparity.bounded_by(reading)}{_extremes(row, table)}"
    else:
        tone, short = "none", f"no evidence of {what}"
        sentence = f"{subject}: no evidence of {what}; the estimate is {stated}."
    return finding_of(row, tone=tone, topic=topic, short=short, sentence=sentence)


def _extremes(row: Row, table: pl.DataFrame) -> str:
    scenes = where(over_scenes(table, row["attribute"]), model=row["model"], dataset=row["dataset"])
    groups = [g for g in where(scenes, metric="outcome_proportion").to_dicts() if defined(g["value"])]
    if len(groups) < 2:
        return ""
    top, low = max(groups, key=lambda g: g["value"]), min(groups, key=lambda g: g["value"])
    ends = [f"{group_faces(g['attribute'], g['group'])} {percent(g['value'], g['n'])}" for g in (top, low)]
    return f" {sentence_start(ends[0])}, {ends[1]}."


CHAPTER = Chapter(
    anchor="captions",
    title="PATA's own captions",
    lead="PATA gives every scene positive and negative captions of its own, for race, gender and age apart. Every "
    "image is asked those of its scene; the share below is of images whose best caption is a negative one.",
    parts=_parts,
    findings=caption_findings,
    pictures={"captions": caption_shares},
    method=(
        (
            "Captions by scene",
            "Top-1 among the captions of the image's own scene and one attribute. A scene counts where it has captions "
            "of both kinds and shows at least two groups, so that age is contrasted where both ages are shown. Over "
            "all scenes, p shuffles the labels within scenes: what a scene brings about is no difference of groups.",
        ),
    ),
)
