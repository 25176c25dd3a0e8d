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
from plumbline.report.evidence import finding_of, titled, tone_of
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, in_order, or_nan, where
from plumbline.report.vocabulary import attribute_title


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
    topic = ("captions", row["dataset"], row["attribute"])
    if instead := fallback_finding(Disparity.of(row, table), what, topic, reading):
        return instead
    tone = tone_of(row, reading)
    return finding_of(row, reading, tone=tone, topic=topic, short=titled(tone, what))


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
