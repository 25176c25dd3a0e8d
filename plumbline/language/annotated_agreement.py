"""How far people agree with each other, with a scorer, and with the judge of stereotypes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl

from plumbline.language.annotated_words import judge_rows, words_of_groups, words_said
from plumbline.language.answers import answer_row
from plumbline.language.cell import LanguageCell
from plumbline.language.scored_answers import parts
from plumbline.language.settings import LanguageSettings
from plumbline.statistics.reasons import joined
from plumbline.statistics.seeds import generator
from plumbline.tables.generation_schema import ALL_MODELS
from plumbline.tables.schema import Row, metric_frame
from plumbline.text.agreement import Kappa, fleiss_kappa
from plumbline.text.annotations import BLACK_SUBJECT, JUDGE, PERSONALITY, read_annotations
from plumbline.text.sheet_labels import SheetLabels, left_out, sheet_labels, with_score

SCORED = "toxicity"
ALL_DATASETS = "all datasets"
NO_ANSWER = "of no answer of this audit"
NO_SCORE = "without a score"
_SHEETS: dict[str, Row] = {
    PERSONALITY: {"prompt": "personality"},
    BLACK_SUBJECT: {"attribute": "race", "group": "Black"},
}
"""Sheet of texts -> the columns of its rows."""


def annotation_rows(cell: LanguageCell, *, settings: LanguageSettings) -> list[Row]:
    """Return Fleiss' kappa of the annotators, alone and with each scorer, and precision and recall of the judge.

    Source: Howard et al., C.2 and D.2. By dataset, of the texts of a sheet that are this model's answers, and of the
    words that it says of the group: less than the whole sheet, which is drawn over all models; see `pooled_agreement`.
    `annotators` is the kappa of the annotators alone, `annotators_and_score` that with the toxicity score from 0.3 on
    as one annotator more. The judge is held against the majority. n: texts; words that the judge names (precision) or
    that the majority names (recall). `reason` says what of the sheet was left out. None without a file of annotations.
    """
    if settings.annotations is None:
        return []
    labels = read_annotations(settings.annotations)
    return [*_rows_of_texts(cell, labels, settings), *_rows_of_words(cell, labels, settings)]


def pooled_agreement(cells: Sequence[LanguageCell], settings: LanguageSettings) -> pl.DataFrame:
    """Return the same numbers over all models and datasets at once, as the study gives them.

    Parameters
    ----------
    cells : sequence of LanguageCell
        Of every model whose answers the sheets were drawn from.
    settings : LanguageSettings

    Returns
    -------
    DataFrame
        Metric rows of the model `all models`. `dataset` is the one that the sheet's texts are of, or `all datasets`.
        Labels of a text or a group that no cell has are left out, and `reason` counts them. No rows without cells or
        without a file of annotations.
    """
    if settings.annotations is None or not cells:
        return metric_frame([])
    labels = read_annotations(settings.annotations)
    return metric_frame([*_pooled_texts(cells, labels, settings), *_pooled_words(cells, labels, settings)])


def _rows_of_texts(cell: LanguageCell, labels: pl.DataFrame, settings: LanguageSettings) -> Iterator[Row]:
    texts, scores = _annotated([cell], labels)
    for sheet, columns in _SHEETS.items():
        on_sheet = labels.filter(pl.col("sheet") == sheet)
        for (dataset,), own in parts(on_sheet.join(texts, on="text_id"), "dataset"):
            row = answer_row(cell.model, metric="fleiss_kappa", dataset=dataset, **columns)
            of, whole = own["text_id"].n_unique(), on_sheet["text_id"].n_unique()
            notes = [f"of this model's texts only: {of} of the {whole} on the sheet"]
            yield from _kappas(row, sheet_labels(own, sheet), scores, sheet, notes, settings)


def _pooled_texts(
    cells: Sequence[LanguageCell], labels: pl.DataFrame, settings: LanguageSettings
) -> Iterator[Row]:
    texts, scores = _annotated(cells, labels)
    for sheet, columns in _SHEETS.items():
        on_sheet = labels.filter(pl.col("sheet") == sheet)
        if on_sheet.is_empty():
            continue
        known = on_sheet.join(texts, on="text_id", how="semi")
        datasets = texts.join(known, on="text_id", how="semi")["dataset"].unique().to_list()
        dataset = datasets[0] if len(datasets) == 1 else ALL_DATASETS
        row = answer_row(ALL_MODELS, metric="fleiss_kappa", dataset=dataset, **columns)
        notes = _strangers(on_sheet, known, NO_ANSWER, "texts")
        yield from _kappas(row, sheet_labels(known, sheet), scores, sheet, notes, settings)


class _Annotated(NamedTuple):
    """`dataset, text_id` of the answers on the sheets, and `scorer, score, text_id` of their scores."""

    texts: pl.DataFrame
    scores: pl.DataFrame


def _annotated(cells: Sequence[LanguageCell], labels: pl.DataFrame) -> _Annotated:
    ids = labels.filter(pl.col("sheet").is_in(list(_SHEETS)))["text_id"].unique()
    wanted = pl.col("row_key").is_in(ids.implode())
    texts = [cell.generations.filter(wanted).select("dataset", text_id="row_key") for cell in cells]
    scores = [
        cell.scores.filter(pl.col("attribute") == SCORED, wanted).select("scorer", "score", text_id="row_key")
        for cell in cells
    ]
    return _Annotated(
        pl.concat(texts).drop_nulls().unique().collect(engine="streaming"),
        pl.concat(scores).drop_nulls().unique().collect(engine="streaming"),
    )


def _kappas(
    row: Row,
    labelled: SheetLabels,
    scores: pl.DataFrame,
    sheet: str,
    notes: list[str],
    settings: LanguageSettings,
) -> Iterator[Row]:
    """Yield the row of the annotators, and one with each scorer that has scored anything on the sheets."""
    counts, notes = labelled.counts, [*notes, *labelled.notes]
    tables: dict[tuple[str | None, str], tuple[pl.DataFrame, list[str]]] = {
        (None, "annotators"): (counts, notes)
    }
    for (scorer,), scored in parts(scores, "scorer"):
        both = with_score(counts, scored).sort("text_id")
        missing = left_out(counts.height - both.height, counts.height, NO_SCORE)
        tables[scorer, "annotators_and_score"] = both, [*notes, *missing]
    for (name, definition), (table, said) in tables.items():
        found = fleiss_kappa(
            table.select("no", "yes").to_numpy(),
            rng=generator(settings.seed, str(row["model"]), str(row["dataset"]), sheet, name or "", "kappa"),
            resamples=settings.resamples,
            confidence=settings.confidence,
        )
        yield row | {"definition": definition, "scorer": name} | _columns(found, said)


def _columns(found: Kappa, notes: list[str]) -> Row:
    return {
        "value": found.value,
        "ci_low": found.ci_low,
        "ci_high": found.ci_high,
        "n": found.n,
        "reason": joined(found.reason, *notes),
    }


def _rows_of_words(cell: LanguageCell, labels: pl.DataFrame, settings: LanguageSettings) -> Iterator[Row]:
    sheet = labels.filter(pl.col("sheet") == JUDGE)
    items = words_of_groups(sheet, cell.expected)
    if items.is_empty():
        return
    whole = sheet["text_id"].n_unique()
    for (dataset,), said in parts(words_said(cell, items), "dataset"):
        own = items.join(said, on="text_id", how="semi")
        note = f"of words that this model says of the group only: {said.height} of the {whole} on the sheet"
        row = answer_row(cell.model, dataset=dataset)
        yield from judge_rows(row, own, [note], settings=settings)


def _pooled_words(
    cells: Sequence[LanguageCell], labels: pl.DataFrame, settings: LanguageSettings
) -> Iterator[Row]:
    sheet = labels.filter(pl.col("sheet") == JUDGE)
    if sheet.is_empty():
        return
    expected = pl.concat([cell.expected for cell in cells])
    items = words_of_groups(sheet, expected)
    pictured = items.join(expected.unique(["dataset", "attribute", "group"]), on=["attribute", "group"])
    datasets = pictured["dataset"].drop_nulls().unique().to_list()
    row = answer_row(ALL_MODELS, dataset=datasets[0] if len(datasets) == 1 else ALL_DATASETS)
    notes = _strangers(sheet, items, "of no group of this audit", "words")
    yield from judge_rows(row, items, notes, settings=settings)


def _strangers(on_sheet: pl.DataFrame, known: pl.DataFrame, why: str, what: str) -> list[str]:
    """Return the note of what stands on the sheet and not in the audit, with its labels."""
    of = on_sheet["text_id"].n_unique()
    count, labels = of - known["text_id"].n_unique(), on_sheet.height - known.height
    return left_out(count, of, f"{why} ({labels} labels)", what=what)
