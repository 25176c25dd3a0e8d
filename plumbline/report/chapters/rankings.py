"""Social perception: whose faces come first when all are ranked by a trait."""

from __future__ import annotations

import math
from dataclasses import replace

import polars as pl

from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.perception import EQUAL, RANKED, ranking_rows, ranking_spread, scale_title, skew_at_k
from plumbline.report.evidence import evidence, finding_of
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.numbers import count, number
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, or_nan, where
from plumbline.report.vocabulary import attribute_title, sentence_start

METRICS = ("skew_at_k", "max_skew_at_k", "ndkl")


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(table, metric=METRICS, condition="before")
    datasets = inputs.datasets_in(used["dataset"])
    return [_part(where(used, dataset=dataset), inputs, dataset) for dataset in datasets]


def _part(own: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Part:
    arguments = (own, inputs.audit, inputs.models, dataset)
    charts = [
        skew_at_k(*arguments),
        *(ranking_spread(*arguments, metric=metric) for metric in METRICS[1:]),
        skew_at_k(*arguments, definition=EQUAL),
    ]
    return Part.of(dataset, charts, notes=_notes(own))


def _notes(own: pl.DataFrame) -> list[str]:
    lengths = own["k"].drop_nulls().unique().sort().to_list()
    if not lengths or lengths == [1000]:
        return []
    listing = " and ".join(count(k) for k in lengths)
    return [f"With fewer than 2,000 labelled faces, k is half of them instead of 1,000: here {listing}."]


_ABSENT = 10.0
"""A group that is absent from the top is skewed more than any other: e^10 is far beyond what k images can show."""


def ranking_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return the strongest Skew@k of every model, dataset and attribute, against the shares of the ranked faces."""
    findings: list[Finding] = []
    for dataset in table["dataset"].unique().sort().to_list():
        rows = ranking_rows(table, dataset, "skew_at_k", RANKED)
        for key in rows.select("model", "attribute").unique().sort("model", "attribute").iter_rows():
            findings += _strongest(where(rows, model=key[0], attribute=key[1]).to_dicts(), reading)
    return findings


def _strongest(rows: list[Row], reading: Reading) -> list[Finding]:
    """Return the largest of the skews for which there is evidence, else of all."""
    known = [row for row in rows if not math.isnan(or_nan(row["value"]))]
    if not known:
        return []
    evident = [row for row in known if evidence(row, reading)]
    row = max(evident or known, key=lambda r: (_size(r), r["event"], r["group"]))
    attribute = attribute_title(row["attribute"])
    if evident:
        # First for negative words is a harm to whichever group it is; first for warm ones is for the reader to judge.
        tone = "bias" if row["event"].endswith("negative") else "difference"
        short = f"{sentence_start(attribute)}: ranked unequally by {scale_title(row['event'], row['suite'])}"
    else:
        tone, short = "none", f"no evidence of unequal rankings by {attribute}"
    finding = finding_of(row, reading, tone=tone, topic=("ranking", row["dataset"], row["attribute"]), short=short)
    return [replace(finding, value=_size(row), value_text=number(row["value"]), strength=_least(row))]


def _size(row: Row) -> float:
    return min(abs(or_nan(row["value"])), _ABSENT)


def _least(row: Row) -> float:
    """Return the end of the interval that is nearer to 0, 0 where it holds it."""
    low, high = or_nan(row["ci_low"]), or_nan(row["ci_high"])
    if math.isnan(low) or math.isnan(high):
        return _size(row)
    return max(0.0, min(low, _ABSENT)) if row["value"] > 0 else max(0.0, min(-high, _ABSENT))


CHAPTER = Chapter(
    anchor="rankings",
    title="Social perception: rankings",
    lead="An image search for “a friendly person” shows whom a model finds friendliest. When all faces are ranked by "
    "how well an adjective fits them, whose faces come first, and is that more than a random order would give?",
    parts=_parts,
    findings=ranking_findings,
    pictures={"rankings": skew_at_k, "ndkl": ranking_spread},
    method=(
        (
            "Skew@k and MaxSkew@k",
            "Faces are ranked by their cosine with a word, averaged over four templates, for a scale over its words; "
            "equal faces by image id. Skew@k is the natural logarithm of a group's share among the k best over its "
            "desired share: an equal one for every group, as in the paper, or the group's share of the ranked faces; "
            "−∞ for a group that is absent. MaxSkew@k is the largest. Intervals are BCa over resampled faces (over "
            "resampled sets where faces come in sets); that of the largest, which chance makes too large, is joined "
            "with those of the groups. p asks whether the order has anything to do with the groups: "
            "Fisher's exact test of each group's count, random tops for the largest; it is the same for either kind "
            "of desired share, so against equal shares a skew can be large and yet only mirror the data.",
        ),
        (
            "NDKL",
            "The Kullback–Leibler divergence of the groups' shares from the desired ones, in nats, over every prefix "
            "of the ranking, earlier prefixes weighing more. The first face is of one group whatever the model, so "
            "NDKL is never 0: read it against the stroke that marks random rankings. The interval is the jackknife's "
            "for the expected NDKL of as many faces; p by random rankings; where faces come in sets, by dealing out "
            "all faces of one group in a set together, a thousand times at most.",
        ),
    ),
)
