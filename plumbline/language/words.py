"""The words family: what a model says more of one group than of the others, and which of it is stereotype."""

from __future__ import annotations

import polars as pl

from plumbline.language.answers import answer_row
from plumbline.language.cell import LanguageCell
from plumbline.language.corpus import main_corpus
from plumbline.language.family import LanguageResult
from plumbline.language.judge import NO_JUDGE, Judge, stereotypes
from plumbline.language.listed_words import LISTED, WORD_ASSOCIATIONS, Subset, associated_subsets, word_tables
from plumbline.language.settings import LanguageSettings
from plumbline.statistics.reasons import joined
from plumbline.tables.generation_prompts import prompt_ids
from plumbline.tables.schema import Row, metric_frame

TOO_FEW = "no word was said often enough"


def words_result(cell: LanguageCell, *, settings: LanguageSettings) -> LanguageResult:
    """Return the words that are associated with each group, their number, and how many are stereotypes.

    Source: Howard et al., "Uncovering Bias in Large Vision-Language Models at Scale with Counterfactuals", appendix D.
    The answers to the five main prompts, as they are, are pooled. They are read twice, a batch at a time: once to
    count every word, once to find in which sets the listed words are said.

    Returns
    -------
    LanguageResult
        Rows of `associated_words` (n: sets of the group) and `stereotype_words` (n: words judged), one a group; the
        table `word_associations`. Both empty where none of the five prompts was asked of images whose group is known.
    """
    corpus = main_corpus(cell, seed=settings.seed)
    if corpus.parts.is_empty():
        return LanguageResult(metric_frame([]), {"word_associations": pl.DataFrame(schema=WORD_ASSOCIATIONS)})
    subsets = associated_subsets(corpus, settings=settings)
    tables = word_tables(corpus, subsets, settings=settings)
    if settings.judge is not None:
        tables = [judged(table, settings.judge) for table in tables]
    rows = [
        row for subset, table in zip(subsets, tables) for row in _rows(cell.model, subset, table, settings)
    ]
    return LanguageResult(metric_frame(rows), {"word_associations": pl.concat(tables)})


def judged(table: pl.DataFrame, judge: Judge) -> pl.DataFrame:
    """Ask the judge once for each group with listed words, and mark what it names.

    Parameters
    ----------
    table : DataFrame
        In `WORD_ASSOCIATIONS`, of one subset.
    judge : Judge
    """
    said = table.filter(pl.col("word").is_not_null())
    named = [
        (group, word)
        for (group,), rows in said.group_by("group", maintain_order=True)
        for word in stereotypes(judge, str(group), rows["word"].to_list())
    ]
    found = pl.DataFrame(named, schema={"group": pl.String, "word": pl.String}, orient="row")
    marked = table.drop("stereotype").join(
        found.with_columns(stereotype=pl.lit(True)), on=["group", "word"], how="left", maintain_order="left"
    )
    known = pl.when(pl.col("word").is_not_null()).then(pl.col("stereotype").fill_null(False))
    return marked.with_columns(stereotype=known).select(list(WORD_ASSOCIATIONS))


def _rows(model: str, subset: Subset, table: pl.DataFrame, settings: LanguageSettings) -> list[Row]:
    rows: list[Row] = []
    for part in subset.parts.iter_rows(named=True):
        own = subset.passed.filter(pl.col("group") == part["group"])
        undefined = own.filter(pl.col("word").is_null())["reason"].to_list()
        listed = table.filter(pl.col("group") == part["group"], pl.col("word").is_not_null())
        common = answer_row(
            model,
            definition="pmi",
            statistic="count",
            **{name: part[name] for name in ("dataset", "attribute", "group")},
        )
        number = float("nan") if undefined else float(own.height)
        rare = not undefined and part["group"] not in subset.candidates
        none = [f"{TOO_FEW}: language.min_count is {settings.min_count}"] if rare else undefined
        reason = _reason(own.height, part["prompts"], none)
        rows.append(
            common | {"metric": "associated_words", "value": number, "n": part["sets"], "reason": reason}
        )
        found = _stereotypes(listed, own.height, undefined, asked_judge=settings.judge is not None)
        rows.append(common | {"metric": "stereotype_words", "n": listed.height} | found)
    return rows


def _reason(passed: int, prompts: list[str], why: list[str]) -> str | None:
    """Say why there is none, which prompts were not asked, and how many words are counted and not listed."""
    missing = [prompt for prompt in prompt_ids("main") if prompt not in prompts]
    said = [f"not asked: {', '.join(missing)}"] if missing else []
    if passed > LISTED:
        said.append(f"the table lists the {LISTED} most associated")
    return joined(*why, *said)


def _stereotypes(listed: pl.DataFrame, passed: int, undefined: list[str], *, asked_judge: bool) -> Row:
    """Return the columns of the number of stereotypes among the associated words."""
    if undefined or not asked_judge:
        return {"value": float("nan"), "reason": undefined[0] if undefined else NO_JUDGE}
    left = passed - listed.height
    reason = f"{left} of {passed} associated words were not judged" if left else None
    return {"value": float(listed["stereotype"].sum()), "reason": reason}
