"""What papers printed, beside what this audit measured of the same checkpoint, dataset and metric."""

from __future__ import annotations

import polars as pl

from plumbline.report.chapter import Chapter, Part
from plumbline.report.comparison import WORD_LISTS, checkpoint_fits, compare_word_lists
from plumbline.report.evidence import subject_of
from plumbline.report.inputs import ReportInputs
from plumbline.report.listings import Listing
from plumbline.report.numbers import count, interval, number
from plumbline.report.rows import Row, defined


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    compared, tables = inputs.published, inputs.reproduction
    parts = []
    if tables is not None and not tables.is_empty():
        parts.append(Part(title="Every table of these papers", listings=[(_TABLES, reproduction_listing(tables))]))
    if (lists := _word_lists(inputs)).height:
        parts.append(_words_part(lists))
    if compared is None or compared.is_empty():
        return parts
    for paper in compared["paper"].unique(maintain_order=True).to_list():
        of_paper = compared.filter(pl.col("paper") == paper)
        judged = of_paper.filter(pl.col("within").is_not_null())
        held, left = int(judged["within"].sum()), of_paper.height - judged.height
        note = f"{count(held)} of {count(judged.height)} printed numbers lie within the measured interval."
        if left:
            other = of_paper["other_protocol"].count()
            note += f" {count(left)} are not judged: suspect, not comparable, or undefined here; the list says why."
            note += f" {count(other)} of these are measured here by another protocol than the paper's." if other else ""
        listings = [
            ("Every printed number beside the measured one", comparison_listing(of_paper)),
            ("Which checkpoint fits the paper", _fit_listing(checkpoint_fits(of_paper))),
        ]
        parts.append(Part(title=paper, notes=[note], listings=listings))
    return parts


def comparison_listing(rows: pl.DataFrame) -> Listing:
    """List printed and measured numbers, those that differ most first."""
    ordered = rows.sort(pl.col("within").fill_null(True), -pl.col("difference").abs(), nulls_last=True)
    shown = [
        (
            f"table {row['table']}: {row['row']}, {row['column']}",
            subject_of(row),
            _number(row["published"]),
            _number(row["measured"]),
            interval(row["ci_low"], row["ci_high"]),
            _number(row["difference"]),
            _verdict(row),
        )
        for row in ordered.to_dicts()
    ]
    heads = ("Cell of the paper", "Measured on", "Published", "Measured", "Interval", "Difference", "Agreement")
    return Listing(heads, shown, frozenset({2, 3, 4, 5}), "Those outside the interval come first.")


def _word_lists(inputs: ReportInputs) -> pl.DataFrame:
    words = inputs.language.get("word_associations")
    if words is None:
        return pl.DataFrame(schema=WORD_LISTS)
    real = [one.id for one in inputs.datasets if one.reader == "socialcounterfactuals" and not one.planted]
    return compare_word_lists(words, addresses={one.id: one.address for one in inputs.lvlms}, datasets=real)


def _words_part(lists: pl.DataFrame) -> Part:
    shown = [
        (
            f"table {row['table']}: {row['row']}, {row['column']}",
            f"{row['model']}, {row['dataset']}",
            count(row["printed"]),
            count(row["measured"]),
            _number(row["overlap"]),
            _number(row["rank_biased_overlap"]),
            count(row["associated"]),
            ", ".join(row["absent"]) or "–",
            row["note"] or "–",
        )
        for row in lists.to_dicts()
    ]
    heads = (
        "Printed list", "Here", "Words printed", "Named here", "Overlap", "Rank-biased overlap", "Associated here",
        "Printed words that are not named here", "Note",
    )  # fmt: skip
    what = "Overlap: share of the printed words among as many of the first here. Rank-biased overlap: of both lists."
    listing = Listing(heads, shown, frozenset({2, 3, 4, 5, 6}), what)
    return Part(title="Words named for groups", listings=[("Every printed list of words beside those here", listing)])


_TABLES = "What of each table is reproduced, made by another protocol, or cannot be"


def reproduction_listing(tables: pl.DataFrame) -> Listing:
    """List the tables of the papers with how many of their cells are reproduced, and why not the others."""
    shown = [
        (
            f"{row['paper']}, {row['table']}",
            row["title"],
            *(count(row[name]) for name in ("cells", "reproduced", "other_protocol", "cannot")),
            row["why"] or "–",
        )
        for row in tables.to_dicts()
    ]
    heads = ("Table", "What it is", "Numbers", "Reproduced", "Other protocol", "Cannot be", "Why not (numbers)")
    return Listing(heads, shown, frozenset({2, 3, 4, 5}))


def _verdict(row: Row) -> str:
    judged = {True: "within the interval", False: "outside the interval", None: "not judged"}[row["within"]]
    return f"{judged}: {row['note']}" if row["note"] else judged


def _fit_listing(fits: pl.DataFrame) -> Listing:
    shown = [
        (
            row["checkpoint"],
            row["model"],
            row["metric"],
            f"{row['within']} of {row['cells']}",
            number(row["mean_absolute_difference"]),
        )
        for row in fits.to_dicts()
    ]
    heads = ("Checkpoint of the paper", "Here", "Metric", "Within", "Mean absolute difference")
    return Listing(heads, shown, frozenset({3, 4}))


def _number(value: float | None) -> str:
    return number(value) if defined(value) else "–"


CHAPTER = Chapter(
    anchor="published",
    title="Beside the published numbers",
    lead="Where a checkpoint and a dataset of this audit are those of a paper: what it printed, what was measured "
    "here, and whether the measured interval, widened by the rounding in print, holds the printed number.",
    parts=_parts,
)
