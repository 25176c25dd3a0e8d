"""How far people agree with each other, with a scorer, and with the judge of stereotypes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from plumbline.language.answers import Row, answer_row
from plumbline.language.cell import LanguageCell
from plumbline.language.scored_answers import parts
from plumbline.language.settings import Judge, LanguageSettings
from plumbline.language.words import NO_JUDGE
from plumbline.statistics.seeds import generator
from plumbline.tables.generation_prompts import group_in_words
from plumbline.text.agreement import Kappa, fleiss_kappa, judge_agreement, label_counts, with_score
from plumbline.text.annotations import BLACK_SUBJECT, JUDGE, PERSONALITY, read_annotations, word_id

SCORED = "toxicity"
EVEN = "undefined: a majority needs an odd number of annotators"
_SHEETS: dict[str, Row] = {
    PERSONALITY: {"prompt": "personality"},
    BLACK_SUBJECT: {"attribute": "race", "group": "Black"},
}
"""Sheet of texts -> the columns of its rows."""


def annotation_rows(cell: LanguageCell, *, settings: LanguageSettings) -> list[Row]:
    """Return Fleiss' kappa of the annotators, alone and with each scorer, and precision and recall of the judge.

    Source: Howard et al., C.2 and D.2. The texts of a sheet are those of this model, by dataset; `annotators` is their
    own kappa, `annotators_and_score` that with the toxicity score from 0.3 on as one annotator more. The judge is asked
    about the words of the sheet, and held against the majority. None without a file of annotations. n: texts, or words.
    """
    if settings.annotations is None:
        return []
    labels = read_annotations(settings.annotations)
    return [*_text_rows(cell, labels, settings), *_judge_rows(cell, labels, settings)]


def _text_rows(cell: LanguageCell, labels: pl.DataFrame, settings: LanguageSettings) -> Iterator[Row]:
    wanted = labels.filter(pl.col("sheet").is_in(list(_SHEETS)))["text_id"].unique()
    answers = cell.generations.select("dataset", text_id="row_key").filter(
        pl.col("text_id").is_in(wanted.implode())
    )
    texts = answers.unique().collect(engine="streaming")
    scores = (
        cell.scores.filter(pl.col("attribute") == SCORED, pl.col("row_key").is_in(wanted.implode()))
        .select("scorer", "score", text_id="row_key")
        .collect(engine="streaming")
    )
    of_datasets = labels.join(texts, on="text_id")
    for sheet, columns in _SHEETS.items():
        for (dataset,), own in parts(of_datasets.filter(pl.col("sheet") == sheet), "dataset"):
            counts = label_counts(own, sheet)
            row = answer_row(cell.model, metric="fleiss_kappa", dataset=dataset, **columns)
            labelled: dict[tuple[str | None, str], pl.DataFrame] = {(None, "annotators"): counts}
            for (scorer,), scored in parts(scores, "scorer"):
                labelled[scorer, "annotators_and_score"] = with_score(counts, scored).sort("text_id")
            for (name, definition), table in labelled.items():
                found = fleiss_kappa(
                    table.select("no", "yes").to_numpy(),
                    rng=generator(settings.seed, cell.model, dataset, sheet, name or "", "kappa"),
                    resamples=settings.resamples,
                    confidence=settings.confidence,
                )
                yield row | {"definition": definition, "scorer": name} | _columns(found)


def _columns(found: Kappa) -> Row:
    return {
        "value": found.value,
        "ci_low": found.ci_low,
        "ci_high": found.ci_high,
        "n": found.n,
        "reason": found.reason,
    }


def _judge_rows(cell: LanguageCell, labels: pl.DataFrame, settings: LanguageSettings) -> Iterator[Row]:
    groups = cell.expected.select("dataset", "attribute", "group").drop_nulls().unique()
    for (dataset,), own in parts(groups, "dataset"):
        items = _words_of(labels, own)
        if items.is_empty():
            continue
        row = answer_row(cell.model, definition="majority_of_three", dataset=dataset)
        metrics = ("judge_precision", "judge_recall")
        counts = label_counts(items, JUDGE)
        reason = NO_JUDGE if settings.judge is None else None if items["annotator"].n_unique() % 2 else EVEN
        if settings.judge is None or reason is not None:
            nothing: Row = {"value": np.nan, "n": counts.height, "reason": reason}
            yield from (row | {"metric": metric} | nothing for metric in metrics)
            continue
        named = _named(items.filter(pl.col("text_id").is_in(counts["text_id"].implode())), settings.judge)
        found = judge_agreement(counts, named, confidence=settings.confidence)
        for metric, share in zip(metrics, (found.precision, found.recall)):
            yield row | {
                "metric": metric,
                "value": share.value,
                "ci_low": share.ci_low,
                "ci_high": share.ci_high,
                "n": found.n,
                "reason": share.reason,
            }


def _words_of(labels: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Return the labels of the judge's sheet that are about some groups, with `attribute, group, word`."""
    whose = groups.select(
        "attribute", "group", about=pl.format("{}/{}/", pl.col("attribute"), pl.col("group"))
    )
    items = labels.filter(pl.col("sheet") == JUDGE)
    found = items.join_where(whose, pl.col("text_id").str.starts_with(pl.col("about")))
    return found.with_columns(word=pl.col("text_id").str.strip_prefix(pl.col("about"))).sort(
        "text_id", "annotator"
    )


def _named(items: pl.DataFrame, judge: Judge) -> set[str]:
    """Ask the judge about the words of each group; return the `text_id` of what it names among them."""
    return {
        word_id(attribute, group, word)
        for (attribute, group), own in parts(items, "attribute", "group")
        for word in set(judge(group_in_words(group), sorted(set(own["word"])))) & set(own["word"])
    }
