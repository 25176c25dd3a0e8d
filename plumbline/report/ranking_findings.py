"""What the rows of the ranking family say, one finding a model, dataset and attribute."""

from __future__ import annotations

import math
from dataclasses import replace

import polars as pl

from plumbline.report.evidence import evidence, finding_of, subject_of, uncertainty
from plumbline.report.figures.associations import scale_title
from plumbline.report.figures.rankings import RANKED, ranking_rows
from plumbline.report.finding import Finding
from plumbline.report.numbers import count, number
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, or_nan, where
from plumbline.report.vocabulary import attribute_title, group_faces, sentence_start

_ABSENT = 10.0
"""A group that is absent from the top is skewed more than any other: e^10 is far beyond what k images can show."""


def ranking_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return the strongest Skew@k of every model, dataset and attribute, against the shares of the ranked faces."""
    found: list[Finding] = []
    for dataset in table["dataset"].unique().sort().to_list():
        rows = ranking_rows(table, dataset, "skew_at_k", RANKED)
        for key in rows.select("model", "attribute").unique().sort("model", "attribute").iter_rows():
            found += _strongest(where(rows, model=key[0], attribute=key[1]).to_dicts(), reading)
    return found


def _strongest(rows: list[Row], reading: Reading) -> list[Finding]:
    """Return the largest of the skews for which there is evidence, else of all."""
    known = [row for row in rows if not math.isnan(or_nan(row["value"]))]
    if not known:
        return []
    evident = [row for row in known if evidence(row, reading)]
    row = max(evident or known, key=lambda r: (_size(r), r["event"], r["group"]))
    attribute, subject = attribute_title(row["attribute"]), subject_of(row)
    numbers = f"skew@k {number(row['value'])}; {uncertainty(row, reading)}; n = {row['n']:,}{_small(row)}"
    told = f"{_sentence(row)} ({numbers})"
    if evident:
        # First for negative words is a harm to whichever group it is; first for warm ones is for the reader to judge.
        tone = "bias" if row["event"].endswith("negative") else "difference"
        short = f"{sentence_start(attribute)}: ranked unequally by {scale_title(row['event'])}"
        sentence = (
            f"{subject}: {told}. It is the strongest of {len(evident)} such skews by {attribute} for which there is "
            f"evidence, of {len(known)} tested."
        )
    else:
        tone, short = "none", f"no evidence of unequal rankings by {attribute}"
        sentence = (
            f"{subject}: no evidence that rankings by social perception favour faces by {attribute}; the largest of "
            f"{len(known)} estimates: {told}. This does not show that there is none."
        )
    found = finding_of(
        row, tone=tone, topic=("ranking", row["dataset"], row["attribute"]), short=short, sentence=sentence
    )
    return [replace(found, value=_size(row), value_text=number(row["value"]), strength=_least(row))]


def _sentence(row: Row) -> str:
    faces = group_faces(row["attribute"], row["group"])
    scale = scale_title(row["event"]).removesuffix(" words")
    words = f"{scale.replace(', ', ' (')})" if ", " in scale else scale
    best = f"among the {count(row['k'])} faces that best fit the words of {words}"
    if math.isinf(row["value"]):
        return f"{best} there are no {faces}"
    return f"{best}, {faces} are {number(math.exp(row['value']))} times as frequent as among all"


def _small(row: Row) -> str:
    return ", small group" if "small group" in (row["reason"] or "") else ""


def _size(row: Row) -> float:
    return min(abs(or_nan(row["value"])), _ABSENT)


def _least(row: Row) -> float:
    """Return the end of the interval that is nearer to 0, 0 where it holds it."""
    low, high = or_nan(row["ci_low"]), or_nan(row["ci_high"])
    if math.isnan(low) or math.isnan(high):
        return _size(row)
    return max(0.0, min(low, _ABSENT)) if row["value"] > 0 else max(0.0, min(-high, _ABSENT))
