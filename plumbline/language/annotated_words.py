"""The words that people judged: those of some groups, those that a model says, and the judge against the majority."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from plumbline.language.answers import known_answers
from plumbline.language.cell import LanguageCell
from plumbline.language.judge import NO_JUDGE, Judge, stereotypes
from plumbline.language.scored_answers import parts
from plumbline.language.settings import LanguageSettings
from plumbline.statistics.reasons import joined
from plumbline.tables.generation_prompts import prompt_ids
from plumbline.tables.generation_schema import NO_INSTRUCTION
from plumbline.tables.schema import Row
from plumbline.text.annotations import JUDGE, word_id
from plumbline.text.counting import count_words
from plumbline.text.judge_agreement import judge_agreement
from plumbline.text.sheet_labels import sheet_labels

EVEN = "undefined: a majority needs an odd number of annotators"


def words_of_groups(sheet: pl.DataFrame, expected: pl.DataFrame) -> pl.DataFrame:
    """Return the labels of the judge's sheet that are about the groups of some images.

    Parameters
    ----------
    sheet : DataFrame
        Labels of the sheet `judge`, in `plumbline.text.annotations.ANNOTATION_SCHEMA`.
    expected : DataFrame
        With `attribute, group`; rows without either are passed over.

    Returns
    -------
    DataFrame
        The labels with `attribute, group, word`, each once, by text and annotator.
    """
    groups = expected.select("attribute", "group").drop_nulls().unique()
    whose = groups.with_columns(about=pl.format("{}/{}/", "attribute", "group"))
    found = sheet.join_where(whose, pl.col("text_id").str.starts_with(pl.col("about")))
    return found.with_columns(word=pl.col("text_id").str.strip_prefix(pl.col("about"))).sort(
        "text_id", "annotator"
    )


def words_said(cell: LanguageCell, items: pl.DataFrame) -> pl.DataFrame:
    """Return which of the words a model says of their group in its answers to the main prompts.

    Only answers about the groups of the sheet are read, a batch at a time.

    Parameters
    ----------
    cell : LanguageCell
    items : DataFrame
        Of `words_of_groups`.

    Returns
    -------
    DataFrame
        `dataset, text_id`, one row a word that is said in a dataset.
    """
    about = items.select(
        text_id=pl.col("text_id"), key=pl.format("{}/{}", "attribute", "group"), word="word"
    ).unique()
    key = pl.format("{}/{}", "attribute", "group")
    answers = known_answers(cell.generations, prompts=prompt_ids("main"), instruction=NO_INSTRUCTION).filter(
        key.is_in(about["key"].unique().implode())
    )
    datasets = cell.expected["dataset"].drop_nulls().unique().sort()
    said = [pl.DataFrame(schema={"dataset": pl.String, "text_id": pl.String})]
    for dataset in datasets:
        of_dataset = answers.filter(pl.col("dataset") == dataset).select("text", group=key)
        counts = count_words(of_dataset).select("word", key="group")
        found = about.join(counts, on=["key", "word"], how="semi")
        said.append(found.select("text_id", dataset=pl.lit(dataset)).select("dataset", "text_id"))
    return pl.concat(said)


def judge_rows(
    row: Row, items: pl.DataFrame, notes: list[str], *, settings: LanguageSettings
) -> Iterator[Row]:
    """Yield precision and recall of the judge against the majority of the annotators.

    Parameters
    ----------
    row : Row
        What both rows say: model and dataset.
    items : DataFrame
        Of `words_of_groups`.
    notes : list of str
        What `reason` says besides.
    """
    row = row | {"definition": "majority_of_three"}
    metrics = ("judge_precision", "judge_recall")
    labelled = sheet_labels(items, JUDGE)
    notes = [*notes, *(note.replace(" texts left out", " words left out") for note in labelled.notes)]
    reason = NO_JUDGE if settings.judge is None else None if labelled.annotators % 2 else EVEN
    if settings.judge is None or reason is not None:
        nothing: Row = {"value": np.nan, "n": labelled.counts.height, "reason": joined(reason, *notes)}
        yield from (row | {"metric": metric} | nothing for metric in metrics)
        return
    usable = items.join(labelled.counts, on="text_id", how="semi")
    found = judge_agreement(labelled.counts, _named(usable, settings.judge), confidence=settings.confidence)
    for metric, share in zip(metrics, (found.precision, found.recall)):
        yield row | {
            "metric": metric,
            "value": share.value,
            "ci_low": share.ci_low,
            "ci_high": share.ci_high,
            "n": share.n,
            "reason": joined(share.reason, *notes),
        }


def _named(items: pl.DataFrame, judge: Judge) -> set[str]:
    """Ask the judge about the words of each group; return the `text_id` of what it names among them."""
    return {
        word_id(attribute, group, word)
        for (attribute, group), own in parts(items, "attribute", "group")
        for word in stereotypes(judge, group, sorted(set(own["word"])))
    }
