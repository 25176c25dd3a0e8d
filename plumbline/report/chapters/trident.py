"""Trident: whether some classes are taken for a probe word, such as “thief”, more often than others."""

from __future__ import annotations

import polars as pl

from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.chart import Chart
from plumbline.report.charts.estimates import MOST_MODELS
from plumbline.report.charts.trident import SUITES, gaps_by_valence, probe_rates
from plumbline.report.evidence import evidence, finding_of, uncertainty
from plumbline.report.finding import DIFFERENCES, Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.numbers import percent
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, in_order, reason_of, where
from plumbline.report.vocabulary import attribute_title, group_title, probes, sentence_start, suite_title


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(table, metric="probe_rate", definition="logit", suite=SUITES, condition="before")
    return [_part(where(table, dataset=dataset), inputs, dataset) for dataset in inputs.datasets_in(used["dataset"])]


def _part(own: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Part:
    rates = (
        probe_rates(own, model=model, dataset=dataset, suite=suite)
        for suite in SUITES
        for model in _widest_first(own, inputs.models, suite)[:MOST_MODELS]
    )
    return Part.of(dataset, [gaps_by_valence(own, inputs.audit, inputs.models, dataset), *rates])


def _widest_first(own: pl.DataFrame, models: tuple[str, ...], suite: str) -> list[str]:
    """Return the models of a suite, the one with the widest gap for negative probes first."""
    gaps = where(own, metric="probe_rate_gap", suite=suite, event="negative", condition="before")
    widest = {row["model"]: row["value"] for row in gaps.to_dicts() if defined(row["value"])}
    names = in_order(where(own, metric="probe_rate", suite=suite, condition="before")["model"], models)
    return sorted(names, key=lambda name: -widest.get(name, 0.0))


def _single(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Chart | None:
    """Draw the first model's single-attribute test."""
    return probe_rates(table, model=models[0], dataset=dataset, suite="trident") if models else None


def gap_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return for each model, dataset, suite and valence whether classes are taken for probes equally often."""
    rows = where(table, metric="probe_rate_gap", definition="by_valence", condition="before")
    return [_gap(row, table, reading) for row in rows.to_dicts()]


_TONES = {"none": "no evidence: ", "undefined": "undefined: "}


def _gap(row: Row, table: pl.DataFrame, reading: Reading) -> Finding:
    what = f"gap between {attribute_title(row['attribute'])} classes in being taken for a {row['event']} probe word"
    subject = f"{row['model']} on {row['dataset']} ({suite_title(row['suite'])})"
    stated = f"{percent(row['value'])} of images ({uncertainty(row, reading, share=True)})"
    if not defined(row["value"]):
        tone, sentence = ("undefined", f"{subject}: the {what} is undefined: {reason_of(row)}.")
    elif evidence(row, reading):
        # Whether it is a bias that one group is called “citizen” more often is for the reader to judge.
        tone = "bias" if row["event"] == "negative" else "difference"
        sentence = f"{subject}: the {what} is {stated}.{_strongest_probe(row, table, reading)}"
    else:
        tone, sentence = "none", f"{subject}: no evidence of a {what}; the estimate is {stated}."
    short = f"{row['event']} probe words: gap between {attribute_title(row['attribute'])} classes"
    return finding_of(
        row,
        tone=tone,
        topic=("trident", row["dataset"], row["suite"], row["event"]),
        short=sentence_start(short) if tone in DIFFERENCES else f"{_TONES[tone]}{short}",
        sentence=sentence,
        share=True,
    )


def _strongest_probe(row: Row, table: pl.DataFrame, reading: Reading) -> str:
    words = tuple(word for word, valence in probes() if valence == row["event"])
    rates = where(
        table,
        metric="probe_rate",
        definition="logit",
        model=row["model"],
        dataset=row["dataset"],
        suite=row["suite"],
        probe=words,
        condition="before",
    ).filter(pl.col("value").is_finite())
    if rates.height < 2:
        return ""
    top = rates.sort(["value", "group", "probe"], descending=[True, False, False]).row(0, named=True)
    same = where(rates, probe=top["probe"]).sort(["value", "group"]).row(0, named=True)
    return (
        f" Most for “{top['probe']}”: {group_title(top['group'])} {_share_of(top, reading)}, "
        f"{group_title(same['group'])} {_share_of(same, reading)}."
    )


def _share_of(row: Row, reading: Reading) -> str:
    return percent(row["value"], row["n"], minimum_group=reading.minimum_group)


CHAPTER = Chapter(
    anchor="trident",
    title="Trident: who is taken for a thief or a hero",
    lead="Each test adds one probe word to the dataset's own classes. A face that is taken for “thief” rather than for "
    "its class is a misreading; when that happens to some classes more than to others, it is a biased one. Mixed tests "
    "split the same predictions by the automatic gender label as well, whose errors the chapter on labels shows.",
    parts=_parts,
    findings=gap_findings,
    pictures={"trident": _single, "gap": gaps_by_valence},
    method=(
        (
            "Trident",
            "The classes of a dataset and one probe word compete for each image, 15 probes in turn, by the logit that "
            "the study's released code takes from the model's family (CLIP: the raw dot product; ALIGN: its image "
            "logits; BridgeTower: the image-text-matching logit; OWLv2: the mean class logit over the patches). Macro "
            "accuracy: the mean over classes of the share of images given their class. Normalised shares: min-max "
            "normalised to 0–100 within a model over everything it was tested on, single and mixed tests apart.",
        ),
        (
            "Gap by valence",
            "Mean share over the five probes of a valence, largest minus smallest class. Intervals: BCa; p: "
            "permutation.",
        ),
    ),
)
