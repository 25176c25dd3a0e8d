"""The labels of one sheet, text by text, and what of the sheet could not be counted."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from plumbline.errors import MetricError

SCORE_THRESHOLD = 0.3
"""A text counts as toxic from this score on, as in the paper's comparison with annotators."""

NAMED = 5
"""Annotators that a note names at most; of a name, 40 characters."""


@dataclass(frozen=True)
class SheetLabels:
    """The labels of one sheet.

    Attributes
    ----------
    counts : DataFrame
        `text_id`, `no` and `yes` (Int64), of the texts that every annotator labelled, by id. Others are left out: kappa
        compares equally many labels a text.
    texts : int
        Texts with any label.
    annotators : int
        Names on the sheet. One that was mistyped is one more, and then no text has the labels of all.
    few : tuple of (str, int)
        Annotators who labelled less than half of the texts, and how many they did, fewest first.
    """

    counts: pl.DataFrame
    texts: int
    annotators: int
    few: tuple[tuple[str, int], ...]

    @property
    def notes(self) -> list[str]:
        """Return in words what was left out, and whose labels are few; empty where every text was counted."""
        said = left_out(
            self.texts - self.counts.height, self.texts, f"not labelled by all {self.annotators} annotators"
        )
        if self.few:
            names = ", ".join(f"{name[:40]} ({count} of {self.texts})" for name, count in self.few[:NAMED])
            more = f" and {len(self.few) - NAMED} more" if len(self.few) > NAMED else ""
            said.append(f"few labels of {names}{more}")
        return said


def left_out(count: int, of: int, why: str, *, what: str = "texts") -> list[str]:
    """Return the note that some of the items were left out; none where none was."""
    return [f"{count} of {of} {what} left out: {why}"] if count else []


def sheet_labels(annotations: pl.DataFrame, sheet: str) -> SheetLabels:
    """Count the labels of one sheet.

    Parameters
    ----------
    annotations : DataFrame
        As `plumbline.text.annotations.read_annotations` gives it.
    sheet : str
    """
    of_sheet = annotations.filter(pl.col("sheet") == sheet)
    everyone, texts = of_sheet["annotator"].n_unique(), of_sheet["text_id"].n_unique()
    of_annotators = of_sheet.group_by("annotator").len("labels").sort("labels", "annotator")
    counts = (
        of_sheet.group_by("text_id")
        .agg(no=(pl.col("label") == 0).sum().cast(pl.Int64), yes=(pl.col("label") == 1).sum().cast(pl.Int64))
        .filter(pl.col("no") + pl.col("yes") == everyone)
        .sort("text_id")
    )
    few = of_annotators.filter(2 * pl.col("labels") < texts)
    return SheetLabels(counts, texts, everyone, tuple(few.iter_rows()))


def label_counts(annotations: pl.DataFrame, sheet: str) -> pl.DataFrame:
    """Return the `counts` of `sheet_labels` alone."""
    return sheet_labels(annotations, sheet).counts


def with_score(
    counts: pl.DataFrame, scores: pl.DataFrame, *, threshold: float = SCORE_THRESHOLD
) -> pl.DataFrame:
    """Add the thresholded score as one annotator more.

    Parameters
    ----------
    counts : DataFrame
        Of `label_counts`.
    scores : DataFrame with `text_id`, `score`
        Texts without a score, or with nan, are left out.
    threshold : float
        A score from here on is a `yes`.

    Raises
    ------
    MetricError
        If a text has two scores.
    """
    usable = scores.select("text_id", "score").filter(pl.col("score").is_not_nan())
    if usable["text_id"].is_duplicated().any():
        raise MetricError(
            "a text has two scores", where=usable.filter(usable["text_id"].is_duplicated())["text_id"][0]
        )
    toxic = (pl.col("score") >= threshold).cast(pl.Int64)
    return counts.join(usable, on="text_id").select(
        "text_id", no=pl.col("no") + 1 - toxic, yes=pl.col("yes") + toxic
    )  # fmt: skip
