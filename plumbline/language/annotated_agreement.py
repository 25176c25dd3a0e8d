"""Agreement of annotators with each other, with a scorer, and with the judge of stereotypes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from plumbline.catalog.prompts import prompt_ids
from plumbline.catalog.schema import ALL_MODELS, NO_INSTRUCTION, Row, metric_frame
from plumbline.errors import MetricError
from plumbline.language.annotation_sheets import SheetLabels, sheet_labels, with_score, word_id
from plumbline.language.answers import answer_row, known_answers, parts
from plumbline.language.cell import Judge, LanguageCell, LanguageSettings, stereotypes
from plumbline.language.counting import count_words, text_batches
from plumbline.language.family import LanguageResult
from plumbline.language.user_files import BLACK_SUBJECT, JUDGE, PERSONALITY, read_annotations
from plumbline.metrics.family import Family
from plumbline.reasons import Reasons, joined, reason
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.intervals import percentile, wilson
from plumbline.statistics.seeds import generator

_BLOCK = 1_000_000
"""Numbers drawn at once."""


def fleiss_kappa(
    counts: ArrayLike, *, rng: np.random.Generator, resamples: int = 10_000, confidence: float = 0.95
) -> Estimate:
    """Return Fleiss' kappa, by statsmodels, with a bootstrap interval.

    Parameters
    ----------
    counts : (n, labels) int
        How many annotators gave each text each label; every text has the same number of them.
    rng : Generator
    resamples : int
        Of whole texts. One in which every label is the same has no kappa; see `percentile` for what comes of those.
    confidence : float

    Returns
    -------
    Estimate
        1: all agree on every text; 0: they agree as often as labels drawn by their frequency would; below 0: less
        often. n: texts. nan with a reason where there are no texts, less than two annotators, or only one label was
        ever given. All in complete agreement gives 1 without an interval: no resample differs.

    Raises
    ------
    MetricError
        If the counts are not a matrix of whole numbers from 0 whose rows have one sum.
    """
    table = _table(counts)
    n, annotators = len(table), int(table[0].sum()) if len(table) else 0
    undefined = (
        reason("no_labelled_texts")
        if not n
        else reason("one_annotator")
        if annotators < 2
        else reason("one_label")
        if (table.sum(axis=0) > 0).sum() < 2
        else None
    )
    if undefined:
        return Estimate(np.nan, np.nan, np.nan, n, reason=(undefined,))
    from statsmodels.stats.inter_rater import fleiss_kappa as kappa

    drawn = _resampled(table, resamples=resamples, rng=rng)
    return replace(percentile(float(kappa(table)), drawn, confidence=confidence), n=n)


def _table(counts: ArrayLike) -> NDArray[np.int64]:
    table = np.asarray(counts)
    if table.ndim != 2 or not np.issubdtype(table.dtype, np.integer) or (table < 0).any():
        raise MetricError(
            "label counts must be a matrix of whole numbers from 0",
            found=f"{table.dtype} {table.shape}",
            expected="(texts, labels) int",
        )
    if len(sums := np.unique(table.sum(axis=1))) > 1:
        raise MetricError(
            "every text needs the same number of labels",
            found=f"{sums[0]} to {sums[-1]}",
            hint="leave out the texts that an annotator did not label",
        )
    return table.astype(np.int64)


def _resampled(table: NDArray[np.int64], *, resamples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return kappa of each resample of whole texts: (resamples,), nan where only one label was drawn.

    Agreement within a text does not change, and the frequencies of labels are sums: both need only how often each
    text was drawn.
    """
    n, annotators = len(table), table[0].sum()
    agreement = ((table**2).sum(axis=1) - annotators) / (annotators * (annotators - 1))
    kappas = []
    step = max(1, _BLOCK // n)
    for start in range(0, resamples, step):
        drawn = rng.multinomial(n, np.full(n, 1 / n), size=min(step, resamples - start))
        observed = drawn @ agreement / n
        labels = drawn @ table
        chance = (labels.astype(np.float64) ** 2).sum(axis=1) / (n * annotators) ** 2
        one_label = (labels > 0).sum(axis=1) < 2
        kappas.append(np.where(one_label, np.nan, (observed - chance) / np.where(one_label, 1, 1 - chance)))
    return np.concatenate(kappas) if kappas else np.empty(0)


# --- Precision and recall of a judge of words against the majority of annotators.
#
# Source: Howard et al., "Uncovering Bias in Large Vision-Language Models at Scale with Counterfactuals",
# appendix D.2.


class JudgeAgreement(NamedTuple):
    """How far a judge's list is that of the annotators' majority.

    Attributes
    ----------
    precision : Estimate
        Of what the judge names, what the majority names too.
    recall : Estimate
        Of what the majority names, what the judge names too.
    n : int
        Items that were annotated.
    """

    precision: Estimate
    recall: Estimate
    n: int


def judge_agreement(counts: pl.DataFrame, named: Collection[str], *, confidence: float = 0.95) -> JudgeAgreement:
    """Return precision and recall of a judge against the majority of the annotators.

    Parameters
    ----------
    counts : DataFrame
        The `counts` of `sheet_labels`: the items that were annotated. What the judge names besides them does not count.
    named : collection of str
        `text_id` of what the judge names.

    Raises
    ------
    MetricError
        If the annotators are an even number, so that there may be no majority.
    """
    annotators = int((counts["no"] + counts["yes"]).max() or 1)  # type: ignore[arg-type]
    if annotators % 2 == 0:
        raise MetricError(
            "a majority needs an odd number of annotators", found=annotators, expected="such as 3", where="judge"
        )
    true = (counts["yes"] > counts["no"]).to_numpy()
    judged = counts["text_id"].is_in(list(named)).to_numpy()
    both = int((true & judged).sum())
    return JudgeAgreement(
        precision=_share(both, int(judged.sum()), "none_judged", confidence),
        recall=_share(both, int(true.sum()), "none_true", confidence),
        n=counts.height,
    )


def _share(count: int, n: int, undefined: str, confidence: float) -> Estimate:
    """Return a share of n items with its Wilson interval; nan with a reason where nothing was counted."""
    if not n:
        return Estimate(np.nan, np.nan, np.nan, 0, reason=(reason(undefined),))
    low, high = wilson(count, n, confidence=confidence)
    return Estimate(count / n, float(low), float(high), n)


# --- The words of the judge's sheet.


def words_of_groups(sheet: pl.DataFrame, expected: pl.DataFrame) -> pl.DataFrame:
    """Return the labels of the judge's sheet that are about the groups of some images.

    Parameters
    ----------
    sheet : DataFrame
        Labels of the sheet `judge`, in `plumbline.language.user_files.ANNOTATION_SCHEMA`.
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
    return found.with_columns(word=pl.col("text_id").str.strip_prefix(pl.col("about"))).sort("text_id", "annotator")


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
    about = items.select(text_id=pl.col("text_id"), key=pl.format("{}/{}", "attribute", "group"), word="word").unique()
    key = pl.format("{}/{}", "attribute", "group")
    answers = known_answers(cell.generations, prompts=prompt_ids("main"), instruction=NO_INSTRUCTION).filter(
        key.is_in(about["key"].unique().implode())
    )
    datasets = cell.expected["dataset"].drop_nulls().unique().sort()
    said = [pl.DataFrame(schema={"dataset": pl.String, "text_id": pl.String})]
    for dataset in datasets:
        batches = text_batches(answers.filter(pl.col("dataset") == dataset), key.alias("group"))
        counts = count_words(batches).select("word", key="group")
        found = about.join(counts, on=["key", "word"], how="semi")
        said.append(found.select("text_id", dataset=pl.lit(dataset)).select("dataset", "text_id"))
    return pl.concat(said)


def judge_rows(row: Row, items: pl.DataFrame, why: Reasons, *, settings: LanguageSettings) -> Iterator[Row]:
    """Yield precision and recall of the judge against the majority of the annotators.

    Parameters
    ----------
    row : Row
        What both rows say: model and dataset.
    items : DataFrame
        Of `words_of_groups`.
    why : tuple of Reason
        What `reason` says besides.
    """
    row = row | {"definition": "majority_of_three"}
    metrics = ("judge_precision", "judge_recall")
    labelled = sheet_labels(items, JUDGE)
    why = joined(why, labelled.reasons("words"))
    if settings.judge is None or labelled.annotators % 2 == 0:
        undefined = reason("no_judge" if settings.judge is None else "even_annotators")
        nothing: Row = {"value": np.nan, "n": labelled.counts.height, "reason": joined(undefined, why)}
        yield from (row | {"metric": metric} | nothing for metric in metrics)
        return
    usable = items.join(labelled.counts, on="text_id", how="semi")
    judged = judge_agreement(labelled.counts, _named(usable, settings.judge), confidence=settings.confidence)
    for metric, share in zip(metrics, (judged.precision, judged.recall)):
        yield row | {"metric": metric} | _columns(share, why)


def _named(items: pl.DataFrame, judge: Judge) -> set[str]:
    """Ask the judge about the words of each group; return the `text_id` of what it names among them."""
    return {
        word_id(attribute, group, word)
        for (attribute, group), own in parts(items, "attribute", "group")
        for word in stereotypes(judge, group, sorted(set(own["word"])))
    }


# --- How far people agree with each other, with a scorer, and with the judge of stereotypes.

SCORED = "toxicity"
ALL_DATASETS = "all datasets"
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
            why = joined(reason("own_texts", texts=of, sheet=whole))
            yield from _kappas(row, sheet_labels(own, sheet), scores, sheet, why, settings)


def _pooled_texts(cells: Sequence[LanguageCell], labels: pl.DataFrame, settings: LanguageSettings) -> Iterator[Row]:
    texts, scores = _annotated(cells, labels)
    for sheet, columns in _SHEETS.items():
        on_sheet = labels.filter(pl.col("sheet") == sheet)
        if on_sheet.is_empty():
            continue
        known = on_sheet.join(texts, on="text_id", how="semi")
        datasets = texts.join(known, on="text_id", how="semi")["dataset"].unique().to_list()
        dataset = datasets[0] if len(datasets) == 1 else ALL_DATASETS
        row = answer_row(ALL_MODELS, metric="fleiss_kappa", dataset=dataset, **columns)
        why = _strangers("foreign_texts", on_sheet, known)
        yield from _kappas(row, sheet_labels(known, sheet), scores, sheet, why, settings)


def _annotated(cells: Sequence[LanguageCell], labels: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return `dataset, text_id` of the answers on the sheets, and `scorer, score, text_id` of their scores."""
    ids = labels.filter(pl.col("sheet").is_in(list(_SHEETS)))["text_id"].unique()
    wanted = pl.col("row_key").is_in(ids.implode())
    scored = pl.col("attribute") == SCORED
    texts = [cell.generations.filter(wanted).select("dataset", text_id="row_key") for cell in cells]
    scores = [cell.scores.filter(scored, wanted).select("scorer", "score", text_id="row_key") for cell in cells]
    return (
        pl.concat(texts).drop_nulls().unique().collect(engine="streaming"),
        pl.concat(scores).drop_nulls().unique().collect(engine="streaming"),
    )


def _kappas(
    row: Row, labelled: SheetLabels, scores: pl.DataFrame, sheet: str, why: Reasons, settings: LanguageSettings
) -> Iterator[Row]:
    """Yield the row of the annotators, and one with each scorer that has scored anything on the sheets."""
    counts, why = labelled.counts, joined(why, labelled.reasons())
    tables: dict[tuple[str | None, str], tuple[pl.DataFrame, Reasons]] = {(None, "annotators"): (counts, why)}
    for (scorer,), scored in parts(scores, "scorer"):
        both = with_score(counts, scored).sort("text_id")
        missing = counts.height - both.height
        unscored = reason("texts_without_score", left_out=missing, items=counts.height) if missing else None
        tables[scorer, "annotators_and_score"] = both, joined(why, unscored)
    for (name, definition), (table, reasons) in tables.items():
        kappa = fleiss_kappa(
            table.select("no", "yes").to_numpy(),
            rng=generator(settings.seed, str(row["model"]), str(row["dataset"]), sheet, name or "", "kappa"),
            resamples=settings.resamples,
            confidence=settings.confidence,
        )
        yield row | {"definition": definition, "scorer": name} | _columns(kappa, reasons)


def _columns(estimate: Estimate, why: Reasons) -> Row:
    """Return the columns of an estimate that nothing is tested of; its own reason comes first."""
    columns = estimate.columns() | {"reason": joined(estimate.reason, why)}
    del columns["p"]
    return columns


def _rows_of_words(cell: LanguageCell, labels: pl.DataFrame, settings: LanguageSettings) -> Iterator[Row]:
    sheet = labels.filter(pl.col("sheet") == JUDGE)
    items = words_of_groups(sheet, cell.expected)
    if items.is_empty():
        return
    whole = sheet["text_id"].n_unique()
    for (dataset,), said in parts(words_said(cell, items), "dataset"):
        own = items.join(said, on="text_id", how="semi")
        why = joined(reason("own_words", words=said.height, sheet=whole))
        yield from judge_rows(answer_row(cell.model, dataset=dataset), own, why, settings=settings)


def _pooled_words(cells: Sequence[LanguageCell], labels: pl.DataFrame, settings: LanguageSettings) -> Iterator[Row]:
    sheet = labels.filter(pl.col("sheet") == JUDGE)
    if sheet.is_empty():
        return
    expected = pl.concat([cell.expected for cell in cells])
    items = words_of_groups(sheet, expected)
    pictured = items.join(expected.unique(["dataset", "attribute", "group"]), on=["attribute", "group"])
    datasets = pictured["dataset"].drop_nulls().unique().to_list()
    row = answer_row(ALL_MODELS, dataset=datasets[0] if len(datasets) == 1 else ALL_DATASETS)
    yield from judge_rows(row, items, _strangers("foreign_words", sheet, items), settings=settings)


def _strangers(code: str, on_sheet: pl.DataFrame, known: pl.DataFrame) -> Reasons:
    """Return the reason of what stands on the sheet and not in the audit, with its labels."""
    of = on_sheet["text_id"].n_unique()
    count, labels = of - known["text_id"].n_unique(), on_sheet.height - known.height
    return (reason(code, left_out=count, items=of, labels=labels),) if count else ()


def compute_annotated_agreement(cell: LanguageCell, *, settings: LanguageSettings) -> LanguageResult:
    """Return Fleiss' kappa, and precision and recall of the judge, of what is annotated of one model."""
    return LanguageResult(metric_frame(annotation_rows(cell, settings=settings)))


ANNOTATED_AGREEMENT = Family(
    name="annotated_agreement", code_version="1", needs=("scores",), compute=compute_annotated_agreement
)
