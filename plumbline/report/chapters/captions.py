"""PATA's own captions: who is given a negative one, scene by scene."""

from __future__ import annotations

import polars as pl

from plumbline.report.chapter import Chapter, Part, drawn
from plumbline.report.disparity import Disparity, fallback_finding
from plumbline.report.evidence import evidence, finding_of, subject_of, uncertainty
from plumbline.report.figures.canvas import Picture
from plumbline.report.figures.outcomes import ATTRIBUTES, SUITE, caption_event, heat_figure, proportions_figure
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.listings import Listing, share, skew_listing
from plumbline.report.numbers import bare_p, count, number, percent
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, in_order, or_nan, reason_of, where
from plumbline.report.vocabulary import attribute_title, group_faces, group_title, sentence_start


def caption_table(table: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the caption suite."""
    return where(table, suite=SUITE, condition="before")


def over_scenes(table: pl.DataFrame, attribute: str) -> pl.DataFrame:
    """Return the rows over all scenes of one attribute's captions, without those by scene."""
    rows = where(caption_table(table), event=caption_event(attribute), probe=None)
    return rows.filter(pl.col("attribute").is_null() | (pl.col("attribute") == attribute))


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = caption_table(table)
    datasets = inputs.datasets_in(used["dataset"])
    return [_part(where(used, dataset=dataset), inputs, dataset) for dataset in datasets]


def _part(own: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Part:
    heats = []
    for attribute in ATTRIBUTES:
        for model in _most_uneven_first(own, inputs.models, attribute)[:1]:
            heats.append(heat_figure(own, inputs.audit, model=model, dataset=dataset, attribute=attribute))
    return Part(
        title=dataset,
        pictures=[*_shares(own, inputs, dataset), *drawn(heats)],
        listings=[
            ("Disparities in numbers", skew_listing(own, inputs.models, dataset)),
            ("Differences within each scene, of every model", scene_listing(own)),
        ],
        notes=["Scenes are drawn for the model whose groups differ most; the list below has every model's."]
        if own["model"].n_unique() > 1
        else [],
    )


def _shares(own: pl.DataFrame, inputs: ReportInputs, dataset: str) -> list[Picture]:
    return drawn(
        proportions_figure(
            over_scenes(own, attribute),
            None,
            inputs.models,
            dataset=dataset,
            suite=SUITE,
            event=caption_event(attribute),
        )
        for attribute in ATTRIBUTES
    )


def _most_uneven_first(own: pl.DataFrame, models: tuple[str, ...], attribute: str) -> list[str]:
    gaps = by(where(over_scenes(own, attribute), metric="parity_difference"), "model")
    names = in_order(over_scenes(own, attribute)["model"], models)

    def gap(name: str) -> float:
        value = or_nan(gaps.get((name,), {}).get("value"))
        return value if defined(value) else 0.0

    return sorted(names, key=lambda name: -gap(name))


def scene_listing(table: pl.DataFrame) -> Listing:
    """List the difference between groups within every scene, the largest first; a row a model, attribute and scene."""
    gaps = where(table, metric="parity_difference", definition="by_scene").to_dicts()
    shares = where(table, metric="outcome_proportion").drop_nulls("probe")
    of_groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in shares.to_dicts():
        of_groups.setdefault((row["model"], row["attribute"], row["probe"]), []).append(row)
    gaps.sort(key=lambda r: (-(r["value"] if defined(r["value"]) else -1), r["model"], r["attribute"], r["probe"]))
    rows = [
        (
            row["model"],
            attribute_title(row["attribute"]),
            group_title(row["probe"]),
            share(row),
            bare_p(row["p"]),
            bare_p(row["q"]),
            "; ".join(
                f"{group_title(g['group'])} {percent(g['value'])}"
                for g in of_groups.get((row["model"], row["attribute"], row["probe"]), [])
            ),
            count(row["n"]),
            row["reason"] or "",
        )
        for row in gaps
    ]
    heads = ("Model", "Attribute", "Scene", "Largest − smallest share", "p", "q", "Shares", "n", "Note")
    return Listing(heads, rows, frozenset({3, 4, 5, 7}))


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


def _thumbnail(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Picture | None:
    """Draw the first model's race captions by scene."""
    return heat_figure(table, reading, model=models[0], dataset=dataset, attribute="race") if models else None


CHAPTER = Chapter(
    anchor="captions",
    title="PATA's own captions",
    lead="PATA gives every scene positive and negative captions of its own, for race, gender and age apart. Every "
    "image is asked those of its scene; the share below is of images whose best caption is a negative one.",
    parts=_parts,
    findings=caption_findings,
    pictures={"captions": _thumbnail},
    method=(
        (
            "Captions by scene",
            "Top-1 among the captions of the image's own scene and one attribute. A scene counts where it has captions "
            "of both kinds and shows at least two groups, so that age is contrasted where both ages are shown. Over "
            "all scenes, p shuffles the labels within scenes: what a scene brings about is no difference of groups.",
        ),
    ),
)
