"""Agreement of annotators with each other, with a scorer, and with the judge of stereotypes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.prompts import prompt_ids
from plumbline.catalog.schema import ALL_MODELS, NO_INSTRUCTION, Row, metric_frame
from plumbline.language.annotation_sheets import SheetLabels, sheet_labels, with_score, word_id
from plumbline.language.answers import answer_row, known_answers, parts
from plumbline.language.cell import LanguageCell, LanguageResult, LanguageSettings, stereotypes
from plumbline.language.tokens import count_words, text_batches
from plumbline.language.user_files import BLACK_SUBJECT, JUDGE, PERSONALITY, read_annotations
from plumbline.metrics.family import Family
from plumbline.reasons import Reasons, joined, reason
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.intervals import percentile, wilson

_BLOCK = 1_000_000
"""Numbers drawn at once."""


def fleiss_kappa(
    counts: NDArray[np.int64], *, rng: np.random.Generator, resamples: int = 10_000, confidence: float = 0.95
) -> Estimate:
    """Return Fleiss' kappa with a bootstrap interval.

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
    """
    n = len(counts)
    undefined = {
        "no_labelled_texts": not n,
        "one_annotator": counts[:1].sum() < 2,
        "one_label": (counts.sum(axis=0) > 0).sum() < 2,
    }
    if any(undefined.values()):
        code = next(code for code, holds in undefined.items() if holds)
        return Estimate(np.nan, np.nan, np.nan, n, reason=(reason(code),))
    value = float(_kappas(counts, np.ones((1, n), dtype=np.int64))[0])
    return replace(percentile(value, _resampled(counts, resamples=resamples, rng=rng), confidence=confidence), n=n)


def _resampled(counts: NDArray[np.int64], *, resamples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return kappa of each resample of whole texts: (resamples,)."""
    n, step = len(counts), max(1, _BLOCK // len(counts))
    sizes = [min(step, resamples - start) for start in range(0, resamples, step)]
    return np.concatenate([_kappas(counts, rng.multinomial(n, np.full(n, 1 / n), size=size)) for size in sizes])


def _kappas(counts: NDArray[np.int64], drawn: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return (r,) kappas of resamples with (r, n) bootstrap weights; nan where only one label was drawn.

    Agreement within a text does not change, and the frequencies of labels are sums: both need only how often each
    text was drawn.
    """
    n, annotators = len(counts), counts[0].sum()
    agreement = ((counts**2).sum(axis=1) - annotators) / (annotators * (annotators - 1))
    labels = drawn @ counts
    chance = (labels.astype(np.float64) ** 2).sum(axis=1) / (n * annotators) ** 2
    one_label = (labels > 0).sum(axis=1) < 2
    return np.where(one_label, np.nan, (drawn @ agreement / n - chance) / np.where(one_label, 1, 1 - chance))


# --- Precision and recall of a judge of words against the majority of annotators.
#
# Source: Howard et al., "Uncovering Bias in Large Vision-Language Models at Scale with Counterfactuals",
# appendix D.2.


class JudgeAgreement(NamedTuple):
    """Precision and recall of a judge's list against the annotators' majority.

    Attributes
    ----------
    precision : Estimate
        Of what the judge names, what the majority names too.
    recall : Estimate
        Of what the majority names, what the judge names too.
    """

    precision: Estimate
    recall: Estimate


def judge_agreement(counts: pl.DataFrame, named: Collection[str], *, confidence: float = 0.95) -> JudgeAgreement:
    """Return precision and recall of a judge against the majority of the annotators.

    Parameters
    ----------
    counts : DataFrame
        The `counts` of `sheet_labels`, by an odd number of annotators: the items that were annotated. What the judge
        names besides them does not count.
    named : collection of str
        `text_id` of what the judge names.
    """
    true = (counts["yes"] > counts["no"]).to_numpy()
    judged = counts["text_id"].is_in(list(named)).to_numpy()
    both = int((true & judged).sum())
    return JudgeAgreement(
        precision=_share(both, int(judged.sum()), "none_judged", confidence),
        recall=_share(both, int(true.sum()), "none_true", confidence),
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
    labels = sheet.join_where(whose, pl.col("text_id").str.starts_with(pl.col("about")))
    return labels.with_columns(word=pl.col("text_id").str.strip_prefix(pl.col("about"))).sort("text_id", "annotator")


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
    key = pl.format("{}/{}/{}", "dataset", "attribute", "group")
    datasets = cell.expected.select("dataset").drop_nulls().unique()
    about = items.select("attribute", "group", "word", "text_id").unique().join(datasets, how="cross")
    about = about.select("dataset", "text_id", "word", group=key)
    answers = known_answers(cell.generations, prompts=prompt_ids("main"), instruction=NO_INSTRUCTION)
    of_groups = answers.filter(key.is_in(about["group"].unique().implode()))
    counts = count_words(text_batches(of_groups, key.alias("group")))
    return about.join(counts, on=["group", "word"], how="semi").select("dataset", "text_id")


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
    named = {
        word_id(attribute, group, word)
        for (attribute, group), subset in parts(usable, "attribute", "group")
        for word in stereotypes(settings.judge, group, sorted(set(subset["word"])))
    }
    judged = judge_agreement(labelled.counts, named, confidence=settings.confidence)
    for metric, share in zip(metrics, judged):
        yield row | {"metric": metric} | _columns(share, why)


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
    as one annotator more. The judge is compared with the majority. n: texts; words that the judge names (precision) or
    that the majority names (recall). `reason` says what of the sheet was left out. None without a file of annotations.
    """
    return list(_agreement([cell], settings, pooled=False))


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
    return metric_frame(list(_agreement(cells, settings, pooled=True)))


def _agreement(cells: Sequence[LanguageCell], settings: LanguageSettings, *, pooled: bool) -> Iterator[Row]:
    """Yield the rows of one model, by dataset, or of all models and datasets at once."""
    if settings.annotations is None or not cells:
        return
    model, labels = ALL_MODELS if pooled else cells[0].model, read_annotations(settings.annotations)
    texts, scores = _annotated(cells, labels)
    for sheet, columns in _SHEETS.items():
        for sample in _samples(labels.filter(pl.col("sheet") == sheet), texts, "texts", pooled=pooled):
            row = answer_row(model, metric="fleiss_kappa", dataset=sample.dataset, **columns)
            yield from _kappa_rows(row, sheet_labels(sample.labels, sheet), scores, sheet, sample.why, settings)
    on_sheet = labels.filter(pl.col("sheet") == JUDGE)
    expected = pl.concat([cell.expected for cell in cells])
    items = words_of_groups(on_sheet, expected)
    # Of all models, the words on the sheet count whoever says them.
    pictured = items.join(expected.unique(["dataset", "attribute", "group"]), on=["attribute", "group"])
    words = pictured.select("dataset", "text_id") if pooled else words_said(cells[0], items)
    for sample in _samples(on_sheet, words.drop_nulls(), "words", pooled=pooled):
        of_sample = items.join(sample.labels, on="text_id", how="semi")
        yield from judge_rows(answer_row(model, dataset=sample.dataset), of_sample, sample.why, settings=settings)


class _Sample(NamedTuple):
    """The labels of a sheet that are compared, their dataset, and the caveats."""

    dataset: str
    labels: pl.DataFrame
    why: Reasons


def _samples(sheet: pl.DataFrame, known: pl.DataFrame, what: str, *, pooled: bool) -> Iterator[_Sample]:
    """Yield the labels of `known` items (`dataset`, `text_id`) on a sheet: by dataset, or at once where pooled."""
    items = sheet["text_id"].n_unique()
    if not pooled:
        for (dataset,), of_dataset in parts(sheet.join(known.unique(), on="text_id"), "dataset"):
            of_sheet = {what: of_dataset["text_id"].n_unique(), "sheet": items}
            yield _Sample(dataset, of_dataset, (reason(f"own_{what}", **of_sheet),))
    elif items:
        labels = sheet.join(known, on="text_id", how="semi")
        datasets = known.join(sheet, on="text_id", how="semi")["dataset"].unique().to_list()
        left_out = items - labels["text_id"].n_unique()
        strangers = {"left_out": left_out, "items": items, "labels": sheet.height - labels.height}
        why = (reason(f"foreign_{what}", **strangers),) if left_out else ()
        yield _Sample(datasets[0] if len(datasets) == 1 else ALL_DATASETS, labels, why)


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


def _kappa_rows(
    row: Row, labelled: SheetLabels, scores: pl.DataFrame, sheet: str, why: Reasons, settings: LanguageSettings
) -> Iterator[Row]:
    """Yield the kappa of the annotators, and one with each scorer that has scores on the sheets."""
    counts, why = labelled.counts, joined(why, labelled.reasons())
    tables: dict[tuple[str | None, str], tuple[pl.DataFrame, Reasons]] = {(None, "annotators"): (counts, why)}
    for (scorer,), scored in parts(scores, "scorer"):
        both = with_score(counts, scored).sort("text_id")
        missing = counts.height - both.height
        unscored = reason("texts_without_score", left_out=missing, items=counts.height) if missing else None
        tables[scorer, "annotators_and_score"] = both, joined(why, unscored)
    for (name, definition), (table, reasons) in tables.items():
        labels = (str(row["model"]), str(row["dataset"]), sheet, name or "", "kappa")
        kappa = fleiss_kappa(table.select("no", "yes").to_numpy(), **settings.draws(*labels))
        yield row | {"definition": definition, "scorer": name} | _columns(kappa, reasons)


def _columns(estimate: Estimate, why: Reasons) -> Row:
    """Return the columns of an estimate without a test; its own reason comes first."""
    columns = estimate.columns() | {"reason": joined(estimate.reason, why)}
    del columns["p"]
    return columns


def compute_annotated_agreement(cell: LanguageCell, *, settings: LanguageSettings) -> LanguageResult:
    """Return Fleiss' kappa, and precision and recall of the judge, of what is annotated of one model."""
    return LanguageResult(metric_frame(annotation_rows(cell, settings=settings)))


ANNOTATED_AGREEMENT = Family(name="annotated_agreement", needs=("scores",), compute=compute_annotated_agreement)
