"""Words used more often about one group than about the others: associations, standard errors, stereotypes.

Source: Howard et al., "Uncovering Bias in Large Vision-Language Models at Scale with Counterfactuals", appendix D.1,
equations 5 to 7.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.prompts import prompt_ids
from plumbline.catalog.schema import NO_INSTRUCTION, Row, Schema, metric_frame
from plumbline.catalog.word_lists import stop_words
from plumbline.language.answers import UNIT, answer_row, known_answers
from plumbline.language.cell import Judge, LanguageCell, LanguageResult, LanguageSettings, stereotypes
from plumbline.language.tokens import Occurrences, count_occurrences, count_words, text_batches
from plumbline.metrics.family import Family
from plumbline.reasons import decode, encode, in_words, joined, reason
from plumbline.statistics.clusters import cluster_count_reason
from plumbline.statistics.groups import shares
from plumbline.statistics.multiplicity import q_values
from plumbline.statistics.seeds import generator

_REASONS = {
    code: encode([reason(code)]) for code in ("never_said_of_others", "no_words_of_group", "no_words_of_others")
}


def word_associations(
    counts: pl.DataFrame,
    *,
    min_count: int = 10,
    threshold: float = 1.0,
    log_base: float = 2,
    stop_words: Collection[str] = (),
) -> pl.DataFrame:
    """Return the words that each group's texts use more than the texts of all other groups.

    association(w, g) = PMI(w, g) - PMI(w, not g) = log(f(w, g) / N_g) - log(f(w, not g) / N_not g), where f counts a
    word and N all words. 0: equally frequent; with base 2, 1: twice as frequent; below 0: rarer.

    Parameters
    ----------
    counts : DataFrame with `group`, `word`, `count`
        As `count_words` gives it, stop words included: N are its sums. Rows of the same group and word are added. The
        other groups of the frame are "not g": give one subset and one model at a time.
    min_count : int
        Words said fewer times of a group are left out for it (the paper: 10; 3 for small samples); at least 1.
    threshold : float
        Only associations strictly above it are kept; -inf keeps all.
    log_base : float
        Above 1. The threshold is in its units.
    stop_words : collection of str
        Left out of the result, and still counted in N.

    Returns
    -------
    DataFrame
        `group, word, association, count` f(w, g), `n` N_g, `count_others`, `n_others`, `reason_codes` (see
        `plumbline.reasons.decode`); by group, strongest first, then by word. A word that is never said of the others
        counts there as one half, and the reason says so. A group of which nothing can be said, having no words or no
        others beside it, has one row: word null, association nan, and the reason.
    """
    count, n = pl.col("count"), pl.col("count").sum().over("group")
    rows = (
        counts.group_by("group", "word")
        .agg(count.sum())
        .with_columns(n=n, count_others=count.sum().over("word") - count, n_others=count.sum() - n)
    )
    frequent = rows.filter(count >= min_count, pl.col("n_others") > 0, ~pl.col("word").is_in(list(stop_words)))
    # One logarithm of a ratio of products: whole numbers up to 2^53 are exact in them, so that a word said exactly
    # twice as often gets exactly 1 and is not above the threshold.
    products = count * pl.col("n_others").cast(pl.Float64), pl.max_horizontal("count_others", 0.5) * pl.col("n")
    ratio = frequent.select(products[0] / products[1]).to_series().to_numpy()
    never = pl.when(pl.col("count_others") == 0).then(pl.lit(_REASONS["never_said_of_others"]))
    passed = frequent.select(
        "group",
        "word",
        pl.Series("association", np.log2(ratio) / np.log2(log_base)),
        "count",
        "n",
        "count_others",
        "n_others",
        reason_codes=never,
    ).filter(pl.col("association") > threshold)
    nothing = (
        pl.when(pl.col("n") == 0)
        .then(pl.lit(_REASONS["no_words_of_group"]))
        .when(pl.col("n_others") == 0)
        .then(pl.lit(_REASONS["no_words_of_others"]))
    )
    undefined = rows.select("group", "n", "n_others", association=pl.lit(np.nan), reason_codes=nothing)
    both = pl.concat([passed, undefined.drop_nulls().unique()], how="diagonal")
    return both.sort("group", "association", "word", descending=[False, True, False])


# --- How sure a word association is: its standard error over blocks of whole sets.


class AssociationErrors(NamedTuple):
    """Standard errors of associations, with degrees of freedom.

    Attributes
    ----------
    error : (g, w) float64
        Standard errors, in the associations' logarithm. nan where a group never says the word, where fewer than two
        blocks hold it, or where there are no words of other groups.
    once : (g, w) float64
        The same, where a word that others never say were said once of them.
    degrees : (w,) int64
        Degrees of freedom of each word: the blocks in which anyone says it, less one.
    """

    error: NDArray[np.float64]
    once: NDArray[np.float64]
    degrees: NDArray[np.int64]


def association_errors(times: NDArray[np.int64], words: NDArray[np.int64], *, log_base: float = 2) -> AssociationErrors:
    """Return the standard error of every word's association with every group.

    The association log(f_g / N_g) - log(f_o / N_o) is a smooth function of four sums over blocks b of independent
    sets, so its variance is that of the sum of its linear parts (Taylor linearisation of a ratio of clustered counts;
    Wolter 2007, Introduction to Variance Estimation, chapter 6), and never below that of independent counts:

        z_b = f_gb / f_g - N_gb / N_g - f_ob / f_o + N_ob / N_o
        variance = max(B / (B - 1) × Σ z_b², 1 / f_g + 1 / f_o) / ln(base)²

    A word that one text repeats, or that one scene calls for in every answer, is counted often but is in few blocks,
    and gets the wide error and the few degrees of freedom that it should; a test that takes every count as independent
    (such as Dunning's log-likelihood ratio) calls nearly all such words significant. The bound is for words of few
    blocks, whose shares of two groups may agree by chance. Only that whole sets are independent is assumed; groups may
    be related within a set in any way.

    Parameters
    ----------
    times : (g, b, w) int
        How often each group's texts say each word, by block of sets.
    words : (g, b) int
        All words of a group's texts, by block.
    log_base : float
        Of the associations.

    Returns
    -------
    AssociationErrors
        A word that others never say is counted there as one half, as in the association: its error has the own part
        of the variance and 1 / ½ = 2. Said once, it would have B / (B - 1).
    """
    others, words_of_others = times.sum(axis=0) - times, words.sum(axis=0) - words
    totals, totals_of_others = times.sum(axis=1), others.sum(axis=1)
    never = totals_of_others == 0
    of_group = _block_shares(times) - _block_shares(words)[..., None]
    other = _block_shares(others) - _block_shares(words_of_others)[..., None]
    deviations = of_group - np.where(never[:, None], 0.0, other)
    blocks = times.shape[1]
    clustered = blocks / max(blocks - 1, 1) * (deviations**2).sum(axis=1)
    inverse, inverse_of_others = (shares(np.ones(counts.shape), counts) for counts in (totals, totals_of_others))
    own, correction = np.maximum(clustered, inverse), blocks / max(blocks - 1, 1)
    variance = np.where(never, own + 2, np.maximum(clustered, inverse + inverse_of_others))
    variance[words_of_others.sum(axis=1) == 0] = np.nan
    degrees = (times.sum(axis=0) > 0).sum(axis=0) - 1
    variance[:, degrees < 1] = np.nan
    once = np.where(never, variance + correction - 2, variance)
    error, once = (np.sqrt(each) / np.log(log_base) for each in (variance, once))
    return AssociationErrors(error, once, degrees.astype(np.int64))


def _block_shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each block's share of the sum over blocks, axis 1; nan where that is 0."""
    return shares(counts, counts.sum(axis=1, keepdims=True))


# --- The answers whose words are compared, pooled over prompts and dealt to blocks of whole sets.


BLOCKS = 40
"""Whole sets are dealt to so many blocks, over which errors are measured: 39 degrees of freedom widen an interval by 3%
against infinitely many, and the counts stay small."""


_NAMES = ["dataset", "attribute", "group"]


@dataclass(frozen=True)
class Corpus:
    """The pooled answers, by group.

    What they are joined with is joined batch by batch: in a lazy query the joins run ahead of the counting, and hold
    gigabytes of texts that wait for it.

    Attributes
    ----------
    answers : LazyFrame
    parts : DataFrame
        `part` (0 .. in order), `dataset`, `attribute`, `group`, `sets`, `prompts`: one row a group.
    blocks : DataFrame
        `dataset`, `attribute`, `unit`, `block`: one row a set.
    """

    answers: pl.LazyFrame
    parts: pl.DataFrame
    blocks: pl.DataFrame

    def batches(self) -> Iterator[pl.DataFrame]:
        """Yield `group`, `cell`, `text` of some answers at a time: the part, and the part × `BLOCKS` plus the block."""
        for batch in text_batches(self.answers, *_NAMES, "subset", "set_id", "image_id"):
            whose = batch.with_columns(unit=UNIT).join(self.parts, on=_NAMES)
            yield whose.join(self.blocks, on=["dataset", "attribute", "unit"]).select(
                "text", group=pl.col("part").cast(pl.String), cell=pl.col("part") * BLOCKS + pl.col("block")
            )


def main_corpus(cell: LanguageCell, *, seed: int) -> Corpus:
    """Pool the answers to the five main prompts as they are, without any instruction (the paper, appendix D.1).

    Prompts that were not asked are absent. Only names are read here, no texts.
    """
    answers = known_answers(cell.generations, prompts=prompt_ids("main"), instruction=NO_INSTRUCTION)
    of_prompts = answers.select(*_NAMES, "prompt").unique().collect(engine="streaming")
    of_sets = answers.select(*_NAMES, unit=UNIT).unique().collect(engine="streaming")
    parts = (
        of_prompts.group_by(_NAMES)
        .agg(prompts=pl.col("prompt").sort())
        .join(of_sets.group_by(_NAMES).agg(sets=pl.len().cast(pl.Int64)), on=_NAMES)
        .sort(_NAMES)
        .with_columns(part=pl.int_range(pl.len()))
    )
    units = of_sets.select("dataset", "attribute", "unit").unique().sort("dataset", "attribute", "unit")
    dealt = [_dealt(each, seed=seed, model=cell.model) for each in units.partition_by("dataset", "attribute")]
    return Corpus(answers, parts, pl.concat([units.clear().with_columns(block=pl.lit(0, pl.Int64)), *dealt]))


def _dealt(units: pl.DataFrame, *, seed: int, model: str) -> pl.DataFrame:
    """Deal the sets of one attribute to blocks of nearly equal size."""
    rng = generator(seed, model, units["dataset"][0], units["attribute"][0], "blocks of sets")
    return units.with_columns(block=pl.Series(rng.permutation(units.height) % min(BLOCKS, units.height)))


# --- The words that are associated with each group of a subset, with how sure that is.

LISTED = 200
"""Words that are listed of a group, the most associated first, beside those that the judge names; all are counted."""

WORD_ASSOCIATIONS: Schema = {
    "dataset": pl.String,
    "attribute": pl.String,
    "group": pl.String,
    "word": pl.String,
    "association": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "p": pl.Float64,
    "q": pl.Float64,
    "count": pl.Int64,
    "n": pl.Int64,
    "count_others": pl.Int64,
    "n_others": pl.Int64,
    "texts": pl.Int64,
    "stereotype": pl.Boolean,
    "reason": pl.String,
}
"""One row a listed word of a group; a group of which nothing can be said has one row with a null word and the reason.

`count` of `n` words of the group's answers, `count_others` of `n_others` of the other groups of the same subset;
`texts`: answers about the group that say the word at all. `p` (two-sided) asks whether the word is said of the others
equally often, by the error over blocks of whole sets; `q` is Benjamini-Hochberg over every word of the subset that was
said often enough, those that are not listed counted as p = 1. p of a word that is never said of the others is at most
that of one that is said once of them. `stereotype`: the judge's answer, null without one.
"""


@dataclass(frozen=True)
class Subset:
    """The associations of one dataset and attribute.

    Attributes
    ----------
    parts : DataFrame
        Rows of `Corpus.parts`: its groups.
    passed : DataFrame
        Every word above the threshold, by group, strongest first; columns of `word_associations`, and `stereotype`:
        the judge's answer, null without one.
    candidates : dict of str to int
        Group -> words that were said of it often enough to be asked about; a group without any is absent.
    sets : int
    """

    parts: pl.DataFrame
    passed: pl.DataFrame
    candidates: dict[str, int]
    sets: int

    @property
    def listed(self) -> pl.DataFrame:
        """Return the strongest words of each group, and all that the judge named."""
        return self.passed.filter((pl.int_range(pl.len()).over("group") < LISTED) | pl.col("stereotype"))


def associated_subsets(corpus: Corpus, *, settings: LanguageSettings) -> list[Subset]:
    """Count every word of the corpus, in one reading, and return the associations within each subset.

    The judge, where there is one, is asked about every word above the threshold.
    """
    counts = count_words(corpus.batches()).rename({"group": "part"}).cast({"part": pl.Int64})
    left_out = list(stop_words())
    subsets = []
    for parts in corpus.parts.partition_by("dataset", "attribute"):
        of_subset = counts.join(parts.select("part", "group"), on="part").select("group", "word", "count")
        passed = word_associations(
            of_subset,
            min_count=settings.min_count,
            threshold=settings.association_threshold,
            log_base=settings.log_base,
            stop_words=left_out,
        )
        frequent = of_subset.filter(pl.col("count") >= settings.min_count, ~pl.col("word").is_in(left_out))
        sets = corpus.blocks.join(parts, on=["dataset", "attribute"], how="semi").height
        passed = judged(passed, settings.judge)
        subsets.append(Subset(parts, passed, dict(frequent.group_by("group").len().iter_rows()), sets))
    return subsets


def word_tables(corpus: Corpus, subsets: list[Subset], *, settings: LanguageSettings) -> list[pl.DataFrame]:
    """Find in which blocks of sets the listed words are said, in one more reading, and return each subset's table.

    Returns
    -------
    list of DataFrame in `WORD_ASSOCIATIONS`
    """
    words = sorted({word for subset in subsets for word in subset.listed["word"].drop_nulls()})
    occurrences = count_occurrences(corpus.batches(), words, cells=corpus.parts.height * BLOCKS)
    return [_table(subset, words, occurrences, settings) for subset in subsets]


def _table(subset: Subset, words: list[str], found: Occurrences, settings: LanguageSettings) -> pl.DataFrame:
    from scipy.special import stdtr, stdtrit

    errors = _errors(subset, words, found, settings.log_base)
    table = subset.listed.join(errors, on=["group", "word"], how="left", maintain_order="left")
    association, error, degrees = (table[name].to_numpy() for name in ("association", "error", "degrees"))
    half = stdtrit(degrees, (1 + settings.confidence) / 2) * error
    p = 2 * stdtr(degrees, -np.abs(association) / error)
    # Evidence of a word that is never said of the others is no weaker than if it were said once, in one block more.
    once = (association - np.log(2) / np.log(settings.log_base)) / table["once"].to_numpy()
    p = np.where(table["count_others"].to_numpy() == 0, np.fmin(p, 2 * stdtr(degrees + 1, -np.abs(once))), p)
    tested = np.isfinite(p)
    # What was asked about and is not listed counts as found equal: q is then never too small.
    unlisted = np.ones(max(0, sum(subset.candidates.values()) - int(tested.sum())))
    q = np.full(len(p), np.nan)
    q[tested] = q_values(np.concatenate([p[tested], unlisted]))[: int(tested.sum())]
    few = cluster_count_reason(subset.sets)
    reasons = [
        in_words(joined(decode(codes), reason("one_block") if word is not None and np.isnan(end) else None, few))
        for codes, word, end in zip(table["reason_codes"], table["word"], half)
    ]
    return (
        table.with_columns(ci_low=association - half, ci_high=association + half, p=p, q=q)
        .with_columns(pl.Series("reason", reasons, dtype=pl.String))
        .join(subset.parts.select("dataset", "attribute", "group"), on="group", maintain_order="left")
        .select(list(WORD_ASSOCIATIONS))
        .cast(pl.Schema(WORD_ASSOCIATIONS))
    )


def _errors(subset: Subset, words: list[str], found: Occurrences, log_base: float) -> pl.DataFrame:
    """Return `group, word, error, once, degrees, texts` of every group and every word that is listed of any."""
    listed = set(subset.listed["word"])
    columns = np.array([column for column, word in enumerate(words) if word in listed], dtype=np.int64)
    cells = subset.parts["part"].to_numpy()[:, None] * BLOCKS + np.arange(min(BLOCKS, subset.sets))
    times, texts = (counts[cells[:, :, None], columns] for counts in (found.times, found.texts))
    errors = association_errors(times, found.words[cells], log_base=log_base)
    # Without a degree of freedom there is no error either.
    degrees = np.broadcast_to(np.maximum(errors.degrees, 1), errors.error.shape)
    names = pl.DataFrame({"word": [words[column] for column in columns]}, schema={"word": pl.String})
    return (
        subset.parts.select("group")
        .join(names, how="cross", maintain_order="left_right")
        .with_columns(
            error=errors.error.ravel(),
            once=errors.once.ravel(),
            degrees=degrees.ravel(),
            texts=texts.sum(axis=1).ravel(),
        )
    )


# --- The rows.


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
    rows = [row for subset, table in zip(subsets, tables) for row in _metric_rows(cell.model, subset, table, settings)]
    return LanguageResult(metric_frame(rows), {"word_associations": pl.concat(tables)})


def judged(associations: pl.DataFrame, judge: Judge | None) -> pl.DataFrame:
    """Query the judge once for each group with associated words, and mark in `stereotype` those that it names.

    Parameters
    ----------
    associations : DataFrame
        With `group` and `word`, of one subset.
    judge : Judge or None
        Without one the marks are null.
    """
    if judge is None:
        return associations.with_columns(stereotype=pl.lit(None, pl.Boolean))
    words_of = associations.drop_nulls("word").group_by("group", maintain_order=True).agg("word")
    named = {group: stereotypes(judge, group, words) for group, words in words_of.iter_rows()}
    marks = [word and word in named[group] for group, word in associations.select("group", "word").iter_rows()]
    return associations.with_columns(pl.Series("stereotype", marks, dtype=pl.Boolean))


def _metric_rows(model: str, subset: Subset, table: pl.DataFrame, settings: LanguageSettings) -> list[Row]:
    rows: list[Row] = []
    for part in subset.parts.iter_rows(named=True):
        passed = subset.passed.filter(pl.col("group") == part["group"])
        undefined = decode(next(iter(passed.filter(pl.col("word").is_null())["reason_codes"].to_list()), None))
        listed = table.filter(pl.col("group") == part["group"], pl.col("word").is_not_null()).height
        common = answer_row(
            model,
            definition="pmi",
            statistic="count",
            **{name: part[name] for name in ("dataset", "attribute", "group")},
        )
        number = float("nan") if undefined else float(passed.height)
        rare = not undefined and part["group"] not in subset.candidates
        missing = [prompt for prompt in prompt_ids("main") if prompt not in part["prompts"]]
        reasons = joined(
            reason("words_too_rare", min_count=settings.min_count) if rare else undefined,
            reason("prompts_not_asked", prompts=missing) if missing else None,
            reason("words_beyond_table", listed=LISTED) if passed.height > listed else None,
        )
        associated = {"metric": "associated_words", "value": number, "n": part["sets"], "reason": reasons}
        no_judge = reason("no_judge") if settings.judge is None else ()
        named = float("nan") if undefined or no_judge else float(passed["stereotype"].sum())
        words = passed["word"].count()
        stereotypes = {"value": named, "n": words, "reason": joined(undefined or no_judge)}
        rows += [common | associated, common | {"metric": "stereotype_words"} | stereotypes]
    return rows


WORDS = Family(name="words", needs=("texts",), compute=words_result, tables={"word_associations": WORD_ASSOCIATIONS})
